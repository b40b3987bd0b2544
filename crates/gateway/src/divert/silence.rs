//! When a mobile host is asked whether it is there, and when its silence means that it is not (M-TCP's wintimer, section 4.1, without a
//! connection: any packet is an answer to any other).

use core::net::IpAddr;
use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};

/// How long silence may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SilenceConfig {
    /// A host is asked when nothing came from it for so long after a packet to it.
    pub after: Duration,
    /// From one question to the next.
    pub every: Duration,
    /// So many questions in a row without an answer mean that it is away.
    pub probes: u32,
    /// The longest time between two questions to a host that is away.
    pub away_every: Duration,
}

/// What is to be done about a mobile host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inquiry {
    /// Nothing.
    None,
    /// It is to be asked.
    Ask,
    /// It is away.
    Silent,
}

/// A host that is away is asked so often at first, and from then on after a fortieth of its absence, so that it is late by that at most.
const SOONEST: Duration = Duration::from_millis(10);
const FORTIETH: u64 = 40;
/// All questions to hosts that are away together are as far apart as this on average.
const APART: Duration = Duration::from_micros(500);

/// Asks mobile hosts. It is looked at periodically, for each host with [`look_present`](Self::look_present) or
/// [`look_away`](Self::look_away).
#[derive(Debug)]
pub struct Prober {
    config: SilenceConfig,
    asked: BTreeMap<IpAddr, Asked>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    /// In a row without an answer.
    times: u32,
    next_at: Instant,
}

impl Prober {
    /// Nobody was asked yet.
    pub fn new(config: SilenceConfig) -> Self {
        Self { config, asked: BTreeMap::new() }
    }

    /// Looks at a host that is present. `waiting_since` is the time of the first packet to it since the last one from it.
    pub fn look_present(&mut self, now: Instant, mobile: IpAddr, waiting_since: Option<Instant>) -> Inquiry {
        let SilenceConfig { after, every, probes, .. } = self.config;
        if waiting_since.is_none_or(|since| now.saturating_since(since) < after) {
            self.asked.remove(&mobile);
            return Inquiry::None;
        }
        let asked = self.asked.entry(mobile).or_insert(Asked { times: 0, next_at: now });
        if now < asked.next_at {
            return Inquiry::None;
        }
        if asked.times >= probes {
            self.asked.remove(&mobile);
            return Inquiry::Silent;
        }
        *asked = Asked { times: asked.times + 1, next_at: now + every };
        Inquiry::Ask
    }

    /// Looks at a host that has been away since `since`, as `absent` hosts are. Returns whether it is to be asked.
    pub fn look_away(&mut self, now: Instant, mobile: IpAddr, since: Instant, absent: usize) -> bool {
        let pause = Duration::from_nanos(now.saturating_since(since).as_nanos() / FORTIETH);
        let fair = Duration::from_nanos(APART.as_nanos().saturating_mul(absent as u64));
        let asked = self.asked.entry(mobile).or_insert(Asked { times: 0, next_at: now });
        if now < asked.next_at {
            return false;
        }
        let pause = pause.min(self.config.away_every).max(SOONEST).max(fair);
        *asked = Asked { times: asked.times.saturating_add(1), next_at: now + pause };
        true
    }

    /// A host may be back, as its interface has a carrier again: it is asked when it is looked at next.
    pub fn ask_now(&mut self, mobile: IpAddr) {
        self.asked.remove(&mobile);
    }

    /// Questions in a row that a host has left without an answer, the last one excepted.
    pub fn unanswered(&self, mobile: IpAddr) -> u32 {
        self.asked.get(&mobile).map_or(0, |asked| asked.times.saturating_sub(1))
    }

    /// Whether an answer is waited for.
    pub fn is_asking(&self) -> bool {
        !self.asked.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: SilenceConfig = SilenceConfig {
        after: Duration::from_millis(150),
        every: Duration::from_millis(40),
        probes: 3,
        away_every: Duration::from_secs(1),
    };

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn host() -> IpAddr {
        [10, 0, 0, 1].into()
    }

    #[test]
    fn three_questions_without_an_answer_mean_that_it_is_away() {
        let mut prober = Prober::new(CONFIG);
        let inquiries: Vec<(u64, Inquiry)> = (0..40)
            .map(|tick| 1000 + 10 * tick)
            .map(|ms| (ms, prober.look_present(at(ms), host(), Some(at(1000)))))
            .filter(|(_, inquiry)| *inquiry != Inquiry::None)
            .take(4)
            .collect();
        let expected = [(1150, Inquiry::Ask), (1190, Inquiry::Ask), (1230, Inquiry::Ask), (1270, Inquiry::Silent)];
        assert_eq!(inquiries, expected);
    }

    #[test]
    fn an_answer_ends_the_inquiry() {
        let mut prober = Prober::new(CONFIG);
        assert_eq!(prober.look_present(at(200), host(), Some(at(0))), Inquiry::Ask);
        assert_eq!(prober.look_present(at(240), host(), Some(at(0))), Inquiry::Ask);
        assert!(prober.is_asking());
        assert_eq!(prober.unanswered(host()), 1);
        assert_eq!(prober.look_present(at(250), host(), Some(at(245))), Inquiry::None);
        assert_eq!(prober.look_present(at(260), host(), None), Inquiry::None);
        assert!(!prober.is_asking());
        // It begins anew.
        assert_eq!(prober.look_present(at(500), host(), Some(at(300))), Inquiry::Ask);
        assert_eq!(prober.look_present(at(540), host(), Some(at(300))), Inquiry::Ask);
        assert_eq!(prober.look_present(at(580), host(), Some(at(300))), Inquiry::Ask);
        assert_eq!(prober.look_present(at(620), host(), Some(at(300))), Inquiry::Silent);
    }

    #[test]
    fn who_is_away_is_asked_less_and_less_often_but_once_a_second() {
        let mut prober = Prober::new(CONFIG);
        let mut count = |from: u64, to: u64| {
            (from / 10..to / 10).filter(|tick| prober.look_away(at(10 * tick), host(), at(0), 1)).count()
        };
        let first = count(0, 1000);
        assert!((55..=80).contains(&first), "{first}");
        let middle = count(8000, 12_000);
        assert!((14..=20).contains(&middle), "{middle}");
        let late = count(100_000, 110_000);
        assert!((9..=11).contains(&late), "{late}");
        // Or as often as it is told.
        let often = SilenceConfig { away_every: Duration::from_millis(10), ..CONFIG };
        let mut prober_of_often = Prober::new(often);
        let asked =
            (0..100).filter(|tick| prober_of_often.look_away(at(100_000 + 10 * tick), host(), at(0), 1)).count();
        assert_eq!(asked, 100);
        // A thousand together ask as often as 2,000 times a second.
        assert!(prober.look_away(at(200_000), host(), at(199_999), 10_000));
        assert!(!prober.look_away(at(204_000), host(), at(199_999), 10_000));
        prober.ask_now(host());
        assert!(prober.look_away(at(204_000), host(), at(199_999), 10_000));
    }
}
