//! Schedule of the requests to next hops.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdover_base::{Duration, Instant};

use holdover_host::neighbour_frames::Mac;

/// A next hop, and the own address that the request comes from, which the next hop learns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Target {
    pub(crate) local: IpAddr,
    pub(crate) hop: IpAddr,
}

/// The requests after one link-up.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    since: Instant,
    next_at: Instant,
    rounds: u32,
    answers: BTreeMap<Target, Option<Mac>>,
    /// Next hops whose addresses the kernel knows: they are asked only so that they learn the host's own.
    known: BTreeSet<IpAddr>,
    answered_at: Option<Instant>,
    is_reported: bool,
}

/// How often the kernel is made to resolve as well (RFC 4861 section 10, `RETRANS_TIMER`): its own entry fails after
/// three requests.
const KERNEL_EVERY: Duration = Duration::from_secs(1);

/// Duration and interval of requests since link-up: a switch port may listen and learn for 15 s each (IEEE 802.1D,
/// `Forward Delay`), and a delay of 25 ms in waking is acceptable, as with a silent next hop.
const EVERY: [(Duration, Duration); 4] = [
    (Duration::from_millis(200), Duration::from_millis(10)),
    (Duration::from_secs(5), Duration::from_millis(20)),
    (Duration::from_secs(35), Duration::from_millis(25)),
    (Duration::from_secs(60), Duration::from_millis(250)),
];

/// How long the other next hops are waited for once one has answered.
const OTHERS: Duration = Duration::from_millis(50);

/// How long requests are sent to a next hop whose address the kernel knows.
const INTRODUCTION: Duration = Duration::from_secs(1);

/// The mean distance between requests, for any number of next hops: 100 a second take little of any link.
const PER_QUESTION: Duration = Duration::from_millis(10);

/// Every this many rounds requests are broadcast, although the neighbour's former address is known.
const TO_ALL_EVERY: u32 = 3;

/// The requests of a round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Round {
    /// Next hops without an answer: all, or those that the kernel does not know and one that it knows.
    pub(crate) asked: Vec<Target>,
    /// Whether requests are broadcast, and not only sent to the former address.
    pub(crate) to_all: bool,
    /// Whether the kernel is made to resolve as well.
    pub(crate) by_the_kernel: bool,
}

impl Search {
    /// Begins. The kernel knows the addresses of the next hops `known`. `None` without any next hop.
    pub(crate) fn new(now: Instant, asked: impl IntoIterator<Item = Target>, known: BTreeSet<IpAddr>) -> Option<Self> {
        let answers: BTreeMap<Target, Option<Mac>> = asked.into_iter().map(|asked| (asked, None)).collect();
        let answered_at = (!known.is_empty()).then_some(now);
        let mut search = Self { since: now, next_at: now, rounds: 0, answers, known, answered_at, is_reported: false };
        // Nothing waits for an answer.
        search.is_reported = search.is_settled(now);
        (!search.answers.is_empty()).then_some(search)
    }

    /// Handles the address of a neighbour. Returns whether it was searched for and not known.
    pub(crate) fn handle_answer(&mut self, now: Instant, hop: IpAddr, mac: Mac) -> bool {
        let mut is_new = false;
        for (asked, answer) in &mut self.answers {
            is_new |= asked.hop == hop && answer.replace(mac).is_none();
        }
        if is_new {
            self.answered_at.get_or_insert(now);
        }
        is_new
    }

    /// Whether waiting packets may be sent: all are known or have answered, or the wait for the others is over.
    pub(crate) fn is_settled(&self, now: Instant) -> bool {
        let is_known = |(asked, answer): (&Target, &Option<Mac>)| answer.is_some() || self.known.contains(&asked.hop);
        self.answers.iter().all(is_known) || self.answered_at.is_some_and(|at| now >= at + OTHERS)
    }

    /// As [`Self::is_settled`], once.
    pub(crate) fn take_settled(&mut self, now: Instant) -> bool {
        let is_new = !self.is_reported && self.is_settled(now);
        self.is_reported |= is_new;
        is_new
    }

    /// Whether no more requests will be sent.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        let [.., (end, _)] = EVERY;
        let (searched, known) = self.unanswered(now);
        searched.is_empty() && known.is_empty() || now >= self.since + end
    }

    /// The next hops still to be asked: those that are searched for, and those that the kernel knows.
    fn unanswered(&self, now: Instant) -> (Vec<Target>, Vec<Target>) {
        let is_introduction = now < self.since + INTRODUCTION;
        let unanswered = self.answers.iter().filter(|(_, answer)| answer.is_none()).map(|(&asked, _)| asked);
        let is_asked = |asked: &Target| is_introduction || !self.known.contains(&asked.hop);
        unanswered.filter(is_asked).partition(|asked| !self.known.contains(&asked.hop))
    }

    /// The requests to send now, if due.
    pub(crate) fn poll_round(&mut self, now: Instant) -> Option<Round> {
        if now < self.next_at || self.is_over(now) {
            return None;
        }
        let passed = now.saturating_since(self.since);
        let every = EVERY.iter().find(|&&(until, _)| passed < until).map_or(KERNEL_EVERY, |&(_, every)| every);
        let (mut asked, mut known) = self.unanswered(now);
        // Requests to unknown next hops must not be delayed: while there are any, one known next hop is asked in each round after the
        // first.
        let spaced = if asked.is_empty() { known.len() } else { asked.len() + known.len().min(1) };
        if !asked.is_empty() && !known.is_empty() && self.rounds > 0 {
            known = vec![known[self.rounds as usize % known.len()]];
        }
        asked.append(&mut known);
        self.next_at = now + every.max(PER_QUESTION * spaced as u64);
        let since_kernel = passed.as_nanos() % KERNEL_EVERY.as_nanos();
        let round = Round {
            asked,
            to_all: self.rounds.is_multiple_of(TO_ALL_EVERY),
            by_the_kernel: self.rounds == 0 || since_kernel < every.as_nanos(),
        };
        self.rounds += 1;
        Some(round)
    }

    /// The next deadline.
    pub(crate) fn poll_timeout(&self) -> Instant {
        let settled_at = self.answered_at.filter(|_| !self.is_reported).map(|at| at + OTHERS);
        settled_at.map_or(self.next_at, |at| at.min(self.next_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 2];

    fn asked(hop: &str) -> Target {
        Target { local: "10.0.0.2".parse().unwrap(), hop: hop.parse().unwrap() }
    }

    // Claim: Next hops are asked for often, then less often, and not for ever; the questions are ARP requests and neighbour
    // solicitations, and only valid answers count.
    // Tests: `neighbour_frames::an_arp_request_is_a_frame_of_60_bytes_with_our_address`,
    // `neighbour_frames::a_solicitation_goes_to_the_group_of_the_neighbour`,
    // `neighbour_frames::an_advertisement_reports_its_target`, `neighbour_frames::any_bytes_are_parsed_without_panic`
    #[test]
    fn it_asks_often_and_then_less_often_and_ends() {
        let mut search = Search::new(Instant::ZERO, [asked("10.0.0.1")], BTreeSet::new()).unwrap();
        let (mut times, mut kernel) = (Vec::new(), 0);
        for millis in 0..70_000 {
            if let Some(round) = search.poll_round(Instant::from_millis(millis)) {
                times.push(millis);
                kernel += u32::from(round.by_the_kernel);
                assert_eq!(round.asked, [asked("10.0.0.1")]);
            }
        }
        assert_eq!(times[..4], [0, 10, 20, 30]);
        assert!(
            times.windows(2).filter(|pair| pair[0] >= 6_000 && pair[0] < 35_000).all(|pair| pair[1] - pair[0] == 25)
        );
        assert!(times.last().is_some_and(|&last| (59_000..60_000).contains(&last)));
        assert!((59..=61).contains(&kernel), "{kernel}");
        assert!(search.is_over(Instant::from_secs(60)) && !search.is_settled(Instant::from_secs(60)));
    }

    #[test]
    fn the_others_have_a_moment() {
        let both = [asked("10.0.0.1"), asked("10.0.0.3")];
        let mut search = Search::new(Instant::ZERO, both, BTreeSet::new()).unwrap();
        let now = Instant::from_millis(5);
        assert!(!search.handle_answer(now, "10.0.0.9".parse().unwrap(), MAC));
        assert!(search.handle_answer(now, "10.0.0.1".parse().unwrap(), MAC));
        assert!(!search.handle_answer(now, "10.0.0.1".parse().unwrap(), MAC));
        assert!(!search.is_settled(now) && search.is_settled(now + OTHERS) && !search.is_over(now + OTHERS));
        // Reported once, it does not cause further wake-ups.
        let later = now + OTHERS;
        assert_eq!(search.poll_timeout(), Instant::ZERO, "the first round is due");
        assert_eq!(search.poll_round(later).unwrap().asked, [asked("10.0.0.3")]);
        assert!(search.poll_timeout() <= later && search.take_settled(later) && !search.take_settled(later));
        assert!(search.poll_timeout() > later);
        assert!(search.handle_answer(now, "10.0.0.3".parse().unwrap(), MAC));
        assert!(search.is_settled(now) && search.is_over(now));
        assert!(Search::new(now, [], BTreeSet::new()).is_none());
    }

    /// A router whose advertisement has told its address need not know the host's.
    // Claim: At link-up a next hop that the kernel knows is asked as well, from each own address of a waiting connection, so that it
    // learns them; nothing waits for its answer.
    // Tests: `dad::data_resume_when_the_address_is_valid`
    #[test]
    fn one_that_is_known_is_asked_and_not_waited_for() {
        let (now, hop) = (Instant::from_millis(5), asked("10.0.0.1").hop);
        let from = ["10.0.0.2", "10.0.0.4"].map(|local| Target { local: local.parse().unwrap(), hop });
        let mut search = Search::new(Instant::ZERO, from, BTreeSet::from([hop])).unwrap();
        assert!(search.is_settled(Instant::ZERO) && !search.take_settled(Instant::ZERO));
        assert_eq!(search.poll_round(Instant::ZERO).unwrap().asked, from);
        assert!(
            !search.is_over(now) && search.is_over(Instant::ZERO + INTRODUCTION),
            "the kernel's entry may be fixed"
        );
        assert!(search.handle_answer(now, hop, MAC) && search.is_over(now));
        assert!(!search.take_settled(now), "it was never waited for");
    }

    // Claim: One next hop that is searched for is asked every 20 ms although 60 are asked that the kernel knows, and each of these is asked.
    #[test]
    fn known_ones_do_not_delay_the_search_for_another() {
        let hops: Vec<Target> = (1..=60).map(|host| asked(&format!("10.0.0.{host}"))).collect();
        let router = asked("10.0.0.254");
        let all = hops.iter().copied().chain([router]);
        let mut search = Search::new(Instant::ZERO, all, hops.iter().map(|asked| asked.hop).collect()).unwrap();
        let (mut times, mut introduced) = (Vec::new(), BTreeSet::new());
        for millis in 0..200 {
            let Some(round) = search.poll_round(Instant::from_millis(millis)) else { continue };
            times.extend(round.asked.contains(&router).then_some(millis));
            introduced.extend(round.asked.into_iter().filter(|asked| *asked != router));
        }
        assert_eq!((&times[..4], times.len()), (&[0, 20, 40, 60][..], 10));
        assert_eq!(introduced.len(), hops.len());
    }

    #[test]
    fn many_next_hops_share_the_link_with_what_waits() {
        let hops: Vec<String> = (1..=60).map(|host| format!("10.0.0.{host}")).collect();
        let router = asked("10.0.0.254");
        let all = hops.iter().map(|hop| asked(hop)).chain([router]);
        let mut search = Search::new(Instant::ZERO, all, BTreeSet::from([router.hop])).unwrap();
        // The kernel knows the router: packets to it wait no longer than the wait for the others.
        assert!(!search.take_settled(Instant::ZERO) && search.take_settled(Instant::ZERO + OTHERS));
        let asked: usize = (0..10_000)
            .filter_map(|millis| search.poll_round(Instant::from_millis(millis)))
            .map(|round| round.asked.len())
            .sum();
        assert!((900..=1_080).contains(&asked), "{asked} questions in 10 s");
    }
}
