//! When a mobile host is probed, and when its silence means that it is absent (M-TCP's wintimer, section 4.1, without a
//! connection: any packet from the host is an answer).

use core::net::IpAddr;
use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};

/// Parameters of silence detection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SilenceConfig {
    /// A host is probed after this long without a packet from it, since a packet to it.
    pub after: Duration,
    /// The interval between probes.
    pub every: Duration,
    /// This many consecutive unanswered probes mean that it is absent.
    pub probes: u32,
    /// The longest interval between probes of an absent host.
    pub away_every: Duration,
}

/// The action for a mobile host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inquiry {
    /// Nothing.
    None,
    /// Probe it.
    Ask,
    /// It is absent.
    Silent,
}

/// The first interval between probes of an absent host; later it is a fortieth of its absence, which bounds the delay
/// in noticing its return.
const SOONEST: Duration = Duration::from_millis(10);
const FORTIETH: u64 = 40;
/// The mean distance between all probes of absent hosts.
const APART: Duration = Duration::from_micros(500);
/// The same for [`HASTE`] after many of them, or their link, have returned: after an outage of a shared link its hosts return together.
/// Each of ten thousand is then probed twice a second, by 20,000 frames of 64 bytes (10 Mbit/s).
const APART_IN_HASTE: Duration = Duration::from_micros(50);
const HASTE: Duration = Duration::from_secs(2);
/// Hosts count as returning together if at least this many return within [`TOGETHER`], and at least this part of the absent ones. Of ten
/// thousand hosts that come and go independently, some return every second; even a hundred are probed in 50 ms at the usual pace.
const TOGETHER_AT_LEAST: usize = 16;
const TOGETHER_PART: usize = 100;
const TOGETHER: Duration = Duration::from_secs(1);

/// Schedules probes of mobile hosts. Call [`look_present`](Self::look_present) or [`look_away`](Self::look_away)
/// periodically for each host.
#[derive(Debug)]
pub struct Prober {
    config: SilenceConfig,
    asked: BTreeMap<IpAddr, ProbeState>,
    /// How many hosts are absent.
    absent: usize,
    /// How many have returned since a time of at most [`TOGETHER`] ago.
    returns: usize,
    returns_since: Instant,
    /// Absent hosts are probed more often until then.
    hastens_until: Instant,
}

#[derive(Clone, Copy, Debug)]
struct ProbeState {
    /// Consecutive unanswered probes of a present host.
    times: u32,
    /// The last of them.
    asked_at: Instant,
}

impl Prober {
    /// Without probes.
    pub fn new(config: SilenceConfig) -> Self {
        let (returns_since, hastens_until) = (Instant::ZERO, Instant::ZERO);
        Self { config, asked: BTreeMap::new(), absent: 0, returns: 0, returns_since, hastens_until }
    }

    /// Sets the number of absent hosts.
    pub fn note_absent(&mut self, absent: usize) {
        self.absent = absent;
    }

    /// Checks a host that is present. `waiting_since` is the time of the first packet to it since the last one from it.
    pub fn look_present(&mut self, now: Instant, mobile: IpAddr, waiting_since: Option<Instant>) -> Inquiry {
        let SilenceConfig { after, every, probes, .. } = self.config;
        if waiting_since.is_none_or(|since| now.saturating_since(since) < after) {
            self.asked.remove(&mobile);
            return Inquiry::None;
        }
        let times = match self.asked.get(&mobile) {
            Some(asked) if now < asked.asked_at + every => return Inquiry::None,
            Some(asked) if asked.times >= probes => {
                self.asked.remove(&mobile);
                return Inquiry::Silent;
            }
            asked => asked.map_or(0, |asked| asked.times),
        };
        self.asked.insert(mobile, ProbeState { times: times + 1, asked_at: now });
        Inquiry::Ask
    }

    /// Checks a host that has been absent since `since`. Returns whether to probe it.
    pub fn look_away(&mut self, now: Instant, mobile: IpAddr, since: Instant) -> bool {
        let pause = Duration::from_nanos(now.saturating_since(since).as_nanos() / FORTIETH);
        let pause = pause.min(self.config.away_every).max(SOONEST).max(self.fair(now));
        if self.asked.get(&mobile).is_some_and(|asked| now < asked.asked_at + pause) {
            return false;
        }
        // Probes of an absent host do not count against it when it is back.
        self.asked.insert(mobile, ProbeState { times: 0, asked_at: now });
        true
    }

    /// When an absent host was probed last, if it is not to be probed again for its part of all probes.
    pub fn probed_lately(&self, now: Instant, mobile: IpAddr) -> Option<Instant> {
        let asked_at = self.asked.get(&mobile)?.asked_at;
        Some(asked_at).filter(|asked_at| now < *asked_at + self.fair(now))
    }

    /// The time in which each absent host is probed once.
    fn fair(&self, now: Instant) -> Duration {
        let apart = if now < self.hastens_until { APART_IN_HASTE } else { APART };
        Duration::from_nanos(apart.as_nanos().saturating_mul(self.absent as u64))
    }

    /// A host has returned. If many do, the others are expected to return as well.
    pub fn note_return(&mut self, now: Instant) {
        if now.saturating_since(self.returns_since) >= TOGETHER {
            (self.returns, self.returns_since) = (0, now);
        }
        self.returns += 1;
        if self.returns >= TOGETHER_AT_LEAST.max(self.absent / TOGETHER_PART) {
            self.note_link_return(now);
        }
    }

    /// The link of all hosts is back: they are expected to return.
    pub fn note_link_return(&mut self, now: Instant) {
        self.hastens_until = now + HASTE;
    }

    /// A host may be back, as its interface has a carrier again: it is probed at the next check, as if for the first time.
    pub fn ask_now(&mut self, mobile: IpAddr) {
        self.asked.remove(&mobile);
    }

    /// The last probe of a host was not sent: it does not count, and is due again at the next check.
    pub fn note_unsent(&mut self, mobile: IpAddr) {
        let Some(asked) = self.asked.get_mut(&mobile) else { return };
        if asked.times <= 1 {
            self.asked.remove(&mobile);
            return;
        }
        *asked = ProbeState { times: asked.times - 1, asked_at: asked.asked_at - self.config.every };
    }

    /// Consecutive unanswered probes of a host, without the last one.
    pub fn unanswered(&self, mobile: IpAddr) -> u32 {
        self.asked.get(&mobile).map_or(0, |asked| asked.times.saturating_sub(1))
    }

    /// Whether an answer is pending.
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

    // Claim: Three unanswered probes are silence; an absent host is probed less and less often, but at least once a second.
    // Tests: `silence::an_absent_host_is_probed_less_often_down_to_once_a_second`
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
        // It starts over.
        assert_eq!(prober.look_present(at(500), host(), Some(at(300))), Inquiry::Ask);
        assert_eq!(prober.look_present(at(540), host(), Some(at(300))), Inquiry::Ask);
        assert_eq!(prober.look_present(at(580), host(), Some(at(300))), Inquiry::Ask);
        assert_eq!(prober.look_present(at(620), host(), Some(at(300))), Inquiry::Silent);
    }

    // Claim: Probes of an absent host do not count against it when it is back: it is absent again after three more only.
    #[test]
    fn probes_of_an_absent_host_do_not_count_when_it_is_back() {
        let mut prober = Prober::new(CONFIG);
        for ms in (0..5000).step_by(10) {
            prober.look_away(at(ms), host(), at(0));
        }
        // The next check comes late, and a packet to the host has waited for 200 ms.
        let mut look = |ms| prober.look_present(at(ms), host(), Some(at(5800)));
        assert_eq!(
            [6000, 6040, 6080, 6120].map(&mut look),
            [Inquiry::Ask, Inquiry::Ask, Inquiry::Ask, Inquiry::Silent]
        );
    }

    #[test]
    fn an_absent_host_is_probed_less_often_down_to_once_a_second() {
        let mut prober = Prober::new(CONFIG);
        let mut count = |from: u64, to: u64| {
            (from / 10..to / 10).filter(|tick| prober.look_away(at(10 * tick), host(), at(0))).count()
        };
        let first = count(0, 1000);
        assert!((55..=80).contains(&first), "{first}");
        let middle = count(8000, 12_000);
        assert!((14..=20).contains(&middle), "{middle}");
        let late = count(100_000, 110_000);
        assert!((9..=11).contains(&late), "{late}");
        // Or as often as configured.
        let often = SilenceConfig { away_every: Duration::from_millis(10), ..CONFIG };
        let mut prober_of_often = Prober::new(often);
        let asked = (0..100).filter(|tick| prober_of_often.look_away(at(100_000 + 10 * tick), host(), at(0))).count();
        assert_eq!(asked, 100);
        // Ten thousand together are probed 2,000 times a second.
        prober.note_absent(10_000);
        assert!(prober.look_away(at(200_000), host(), at(199_999)));
        assert!(!prober.look_away(at(204_000), host(), at(199_999)));
        prober.ask_now(host());
        assert!(prober.look_away(at(204_000), host(), at(199_999)));
    }

    /// When one of ten thousand absent hosts is probed.
    fn asked(prober: &mut Prober, from: u64, to: u64) -> Vec<u64> {
        prober.note_absent(10_000);
        (from / 10..to / 10).map(|tick| 10 * tick).filter(|&ms| prober.look_away(at(ms), host(), at(0))).collect()
    }

    // Claim: Ten thousand absent hosts are probed every 5 s each, and every 0.5 s for two seconds after the link, or a hundred of them within a
    // second, have returned.
    // Tests: `silence::many_returns_make_the_others_be_probed_sooner`
    #[test]
    fn the_return_of_the_link_makes_hosts_be_probed_sooner() {
        let mut prober = Prober::new(CONFIG);
        assert_eq!(asked(&mut prober, 0, 12_000), [0, 5000, 10_000]);
        assert_eq!(prober.probed_lately(at(11_990), host()), Some(at(10_000)));
        prober.note_link_return(at(12_000));
        assert_eq!(prober.probed_lately(at(12_000), host()), None, "it does not wait for 15 s");
        assert_eq!(asked(&mut prober, 12_000, 20_000), [12_000, 12_500, 13_000, 13_500, 18_500]);
    }

    #[test]
    fn many_returns_make_the_others_be_probed_sooner() {
        let mut prober = Prober::new(CONFIG);
        assert_eq!(asked(&mut prober, 0, 10_000), [0, 5000]);
        // Hosts that come and go by themselves: ninety a second.
        let mut return_until = |ms: u64, count: u64| {
            for number in 0..count {
                prober.note_return(at(ms + number * 1000 / 90));
            }
            asked(&mut prober, ms, ms + 1000)
        };
        assert_eq!([10_000, 11_000, 12_000].map(|ms| return_until(ms, 90)), [vec![10_000], vec![], vec![]]);
        assert_eq!(return_until(13_000, 89), Vec::<u64>::new(), "not a hundred within a second");
        for _ in 0..100 {
            prober.note_return(at(14_000));
        }
        assert_eq!(asked(&mut prober, 14_000, 16_000), [14_000, 14_500, 15_000, 15_500]);
        assert_eq!(asked(&mut prober, 16_000, 21_000), [20_500], "each for two seconds");
    }

    #[test]
    fn a_few_absent_hosts_are_probed_sooner_after_sixteen_returns() {
        let mut prober = Prober::new(CONFIG);
        prober.note_absent(200);
        assert!(prober.look_away(at(0), host(), at(0)));
        let mut return_of = |count: usize| {
            (0..count).for_each(|_| prober.note_return(at(20)));
            prober.probed_lately(at(20), host())
        };
        assert_eq!((return_of(15), return_of(1)), (Some(at(0)), None));
    }

    // Claim: A probe for which the interface has no room does not count as unanswered, and is sent with the next check.
    #[test]
    fn a_probe_that_was_not_sent_does_not_count() {
        let mut prober = Prober::new(CONFIG);
        let look = |prober: &mut Prober, ms| prober.look_present(at(ms), host(), Some(at(0)));
        assert_eq!(look(&mut prober, 200), Inquiry::Ask);
        assert_eq!(look(&mut prober, 240), Inquiry::Ask);
        for ms in (280..2000).step_by(10) {
            assert_eq!(look(&mut prober, ms), Inquiry::Ask, "{ms}");
            prober.note_unsent(host());
            assert_eq!(prober.unanswered(host()), 1);
        }
        assert_eq!([2000, 2040].map(|ms| look(&mut prober, ms)), [Inquiry::Ask, Inquiry::Silent]);
        // The first one, and one of an absent host.
        assert_eq!(look(&mut prober, 3000), Inquiry::Ask);
        prober.note_unsent(host());
        assert_eq!(look(&mut prober, 3010), Inquiry::Ask);
        prober.ask_now(host());
        assert!(prober.look_away(at(4000), host(), at(0)));
        prober.note_unsent(host());
        assert!(prober.look_away(at(4001), host(), at(0)));
    }
}
