//! The checklist: pairs of an address of this host and a candidate of the peer, in the order of their priorities, and when each is checked
//! (RFC 9028 section 4.6.2, RFC 8445 section 6.1.2). Without packets and without keys.
//!
//! One transaction begins, or is repeated, every Ta. Triggered checks come first, then pairs that were never checked, then repetitions. A pair
//! whose check has had no answer after [`MOST_SENDS`] transmissions has failed.

use std::collections::VecDeque;

use core::net::IpAddr;

use holdover_base::{Duration, Instant};

use super::super::check_budget::Amount;
use super::super::via::UDP_PORT;
use super::candidates::{Endpoint, OwnCandidate, PeerCandidate};
use crate::codec::CandidateKind;

/// RFC 9028 section 4.6.2, and RFC 8445 section 14.3: the shortest time until a repetition.
const LEAST_RTO: Duration = Duration::from_secs(1);
/// Transmissions of a check: after 1, 3 and 7 s at the earliest. After as long again as in all, the pair has failed.
pub(in crate::host) const MOST_SENDS: u32 = 4;
/// How long better pairs may follow the first direct one: a repetition of their checks, and its answer.
const SETTLE: Duration = Duration::from_millis(1500);
/// The most pairs of an association, those included that the peer's checks add; RFC 9028 section 4.6.2 recommends at most 100. Repetitions
/// are that many IDs of UPDATEs apart at most, and the peer remembers 64.
const MOST_PAIRS: usize = 64;
/// How long checks wait that the budget does not allow.
const POSTPONED_FOR: Duration = Duration::from_millis(500);

/// A check in flight: an UPDATE that keeps its ID when it is repeated.
#[derive(Clone, Debug)]
pub(in crate::host) struct Transaction {
    pub(in crate::host) id: u32,
    pub(in crate::host) nonce: [u8; 16],
    sends: u32,
    pub(in crate::host) at: Instant,
}

impl Transaction {
    pub(in crate::host) const fn new(id: u32, nonce: [u8; 16], now: Instant) -> Self {
        Self { id, nonce, sends: 0, at: now }
    }

    /// It is sent now.
    pub(in crate::host) fn note_sent(&mut self, now: Instant, rto: Duration) {
        self.at = now + rto.saturating_shl(self.sends);
        self.sends = self.sends.saturating_add(1);
    }

    /// Whether all of this many transmissions had no answer.
    pub(in crate::host) fn is_over(&self, now: Instant, most: u32) -> bool {
        self.sends >= most && self.at <= now
    }
}

/// The state of a pair (RFC 8445 section 6.1.2.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::host) enum PairState {
    Waiting,
    InProgress,
    Succeeded,
    Failed,
}

/// The addresses of a pair: those of its packets on this host's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::host) struct Path {
    /// This host's address; its port is always 10500.
    pub(in crate::host) own: IpAddr,
    pub(in crate::host) peer: Endpoint,
    /// The packets go through a relay of either host.
    pub(in crate::host) is_relayed: bool,
}

#[derive(Clone, Debug)]
pub(in crate::host) struct Pair {
    pub(in crate::host) path: Path,
    pub(in crate::host) priority: u64,
    pub(in crate::host) state: PairState,
    pub(in crate::host) transaction: Option<Transaction>,
    /// What was sent to the peer's address before it was verified.
    pub(in crate::host) sent: Amount,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(in crate::host) struct Checklist {
    is_controlling: bool,
    ta: Duration,
    pub(in crate::host) pairs: Vec<Pair>,
    triggered: VecDeque<Path>,
    /// The earliest time of the next transmission.
    next_at: Instant,
    /// When a pair other than a relayed one first succeeded.
    pub(in crate::host) succeeded_at: Option<Instant>,
}

/// RFC 8445 section 6.1.2.3.
fn pair_priority(controlling: u32, controlled: u32) -> u64 {
    let (least, most) = (controlling.min(controlled), controlling.max(controlled));
    (u64::from(least) << 32).saturating_add(2 * u64::from(most) + u64::from(controlling > controlled))
}

impl Checklist {
    /// All pairs of one IP version. A server-reflexive candidate of this host is replaced by its base, which is another candidate, so that its
    /// pairs are redundant (RFC 8445 section 6.1.2.4); relayed ones are added once the relay has seen the peer ([`Self::add_relayed`]).
    pub(in crate::host) fn new(
        now: Instant,
        is_controlling: bool,
        ta: Duration,
        own: &[OwnCandidate],
        peer: &[PeerCandidate],
    ) -> Self {
        let (pairs, triggered) = (Vec::new(), VecDeque::new());
        let mut list = Self { is_controlling, ta, pairs, triggered, next_at: now, succeeded_at: None };
        list.add_all(own, peer);
        list
    }

    /// Adds all pairs of one IP version with candidates of the peer.
    pub(in crate::host) fn add_all(&mut self, own: &[OwnCandidate], peer: &[PeerCandidate]) {
        for own in own.iter().filter(|own| own.kind == CandidateKind::Host) {
            for peer in peer.iter().filter(|peer| peer.at.0.is_ipv4() == own.base.is_ipv4()) {
                let is_relayed = peer.kind == CandidateKind::Relayed;
                self.add(Path { own: own.base, peer: peer.at, is_relayed }, own.priority, peer.priority);
            }
        }
    }

    /// Adds a pair, unless it is there or the list is full.
    fn add(&mut self, path: Path, own: u32, peer: u32) -> bool {
        if self.pairs.len() >= MOST_PAIRS || self.index(path.own, path.peer).is_some() {
            return false;
        }
        let priority = if self.is_controlling { pair_priority(own, peer) } else { pair_priority(peer, own) };
        let at = self.pairs.partition_point(|pair| pair.priority >= priority);
        let (state, transaction, sent) = (PairState::Waiting, None, Amount::default());
        self.pairs.insert(at, Pair { path, priority, state, transaction, sent });
        true
    }

    /// This host's relay has seen the peer: the relayed candidate of this host, with this priority, can reach it.
    pub(in crate::host) fn add_relayed(&mut self, own: IpAddr, relay: IpAddr, priority: u32, peer_priority: u32) {
        self.add(Path { own, peer: (relay, UDP_PORT), is_relayed: true }, priority, peer_priority);
    }

    /// The peer was seen at an address that is none of its candidates.
    pub(in crate::host) fn add_peer(&mut self, own: IpAddr, at: Endpoint, own_priority: u32, priority: u32) {
        self.add(Path { own, peer: at, is_relayed: false }, own_priority, priority);
    }

    pub(in crate::host) fn index(&self, own: IpAddr, peer: Endpoint) -> Option<usize> {
        self.pairs.iter().position(|pair| pair.path.own == own && pair.path.peer == peer)
    }

    /// A check of the peer has arrived on a path: this host checks it at once (RFC 8445 sections 7.3.1.3 and 7.3.1.4). A path that was not
    /// known has a peer-reflexive candidate of the peer with this priority.
    pub(in crate::host) fn trigger(&mut self, path: Path, own_priority: u32, peer_priority: u32) {
        // A relay has the least type preference, whatever the check says.
        let own_priority = if path.is_relayed { own_priority & 0x00ff_ffff } else { own_priority };
        self.add(path, own_priority, peer_priority);
        let Some(index) = self.index(path.own, path.peer) else { return };
        let pair = &mut self.pairs[index];
        if pair.state == PairState::Succeeded || self.triggered.contains(&pair.path) {
            return;
        }
        if pair.state == PairState::Failed || pair.transaction.as_ref().is_some_and(|it| it.sends >= MOST_SENDS) {
            // Its transmissions are used up.
            pair.transaction = None;
        }
        pair.state = PairState::Waiting;
        self.triggered.push_back(pair.path);
    }

    /// The next deadline of [`Self::next`].
    pub(in crate::host) fn poll_timeout(&self) -> Option<Instant> {
        let is_waiting = self.pairs.iter().any(|pair| pair.state == PairState::Waiting);
        let due = is_waiting.then_some(self.next_at);
        let in_progress = self.pairs.iter().filter(|pair| pair.state == PairState::InProgress);
        let repeated = in_progress.filter_map(|pair| pair.transaction.as_ref()).map(|it| it.at.max(self.next_at));
        due.into_iter().chain(repeated).min()
    }

    /// The pair to be checked now, if there is one. Those to which nothing may be sent wait.
    pub(in crate::host) fn next(&mut self, now: Instant, may_send: impl Fn(&Pair) -> bool) -> Option<usize> {
        for pair in self.pairs.iter_mut().filter(|pair| pair.state == PairState::InProgress) {
            if pair.transaction.as_ref().is_none_or(|it| it.is_over(now, MOST_SENDS)) {
                pair.state = PairState::Failed;
            }
        }
        if now < self.next_at {
            return None;
        }
        let is_waiting = |pair: &Pair| pair.state == PairState::Waiting;
        let is_due = |pair: &Pair| {
            pair.state == PairState::InProgress && pair.transaction.as_ref().is_some_and(|it| it.at <= now)
        };
        let of = |pairs: &[Pair], path: &Path| pairs.iter().position(|pair| pair.path == *path);
        let pairs = &self.pairs;
        self.triggered.retain(|path| of(pairs, path).is_some_and(|index| is_waiting(&pairs[index])));
        let triggered = self.triggered.iter().filter_map(|path| of(pairs, path)).find(|&index| may_send(&pairs[index]));
        let waiting = || pairs.iter().position(|pair| is_waiting(pair) && may_send(pair));
        let due = || pairs.iter().position(|pair| is_due(pair) && may_send(pair));
        let next = triggered.or_else(waiting).or_else(due);
        match next.map(|index| pairs[index].path) {
            Some(path) => self.triggered.retain(|it| *it != path),
            None if pairs.iter().any(|pair| is_waiting(pair) || is_due(pair)) => self.next_at = now + POSTPONED_FOR,
            None => {}
        }
        next
    }

    /// The check of a pair is sent now: `fresh` is its ID and nonce, unless it repeats an earlier transmission. Returns those sent.
    pub(in crate::host) fn note_sent(
        &mut self,
        now: Instant,
        index: usize,
        fresh: impl FnOnce() -> (u32, [u8; 16]),
    ) -> (u32, [u8; 16]) {
        let rto = self.rto();
        self.next_at = now + self.ta;
        let pair = &mut self.pairs[index];
        pair.state = PairState::InProgress;
        let transaction = pair.transaction.get_or_insert_with(|| {
            let (id, nonce) = fresh();
            Transaction::new(id, nonce, now)
        });
        transaction.note_sent(now, rto);
        (transaction.id, transaction.nonce)
    }

    /// RFC 9028 section 4.6.2.
    pub(in crate::host) fn rto(&self) -> Duration {
        let is_open = |pair: &&Pair| matches!(pair.state, PairState::Waiting | PairState::InProgress);
        LEAST_RTO.max(self.ta * self.pairs.iter().filter(is_open).count() as u64)
    }

    /// The response to a check of this path: it has succeeded. Returns what was sent there, if it is new.
    pub(in crate::host) fn succeed(
        &mut self,
        now: Instant,
        own: IpAddr,
        peer: Endpoint,
        nonce: &[u8],
    ) -> Option<(Path, Amount)> {
        let index = self.index(own, peer)?;
        let pair = &mut self.pairs[index];
        // Another response is a replay.
        pair.transaction.take_if(|it| it.nonce[..] == *nonce)?;
        pair.state = PairState::Succeeded;
        if !pair.path.is_relayed {
            self.succeeded_at.get_or_insert(now);
        }
        Some((pair.path, core::mem::take(&mut pair.sent)))
    }

    /// Whether a check with this nonce is in flight, on whatever path.
    pub(in crate::host) fn has_nonce(&self, nonce: &[u8]) -> bool {
        self.pairs.iter().filter_map(|pair| pair.transaction.as_ref()).any(|it| it.nonce[..] == *nonce)
    }

    /// Whether the pair of these addresses is that of a relayed candidate.
    pub(in crate::host) fn is_relayed(&self, own: IpAddr, peer: Endpoint) -> bool {
        self.index(own, peer).is_some_and(|index| self.pairs[index].path.is_relayed)
    }

    pub(in crate::host) fn awaits(&self, acks: &[u32]) -> bool {
        self.pairs.iter().filter_map(|pair| pair.transaction.as_ref()).any(|it| acks.contains(&it.id))
    }

    /// The pair of the highest priority that has succeeded, a relayed one only if there is no other.
    pub(in crate::host) fn best(&self) -> Option<Path> {
        let mut succeeded = self.pairs.iter().filter(|pair| pair.state == PairState::Succeeded).map(|pair| pair.path);
        succeeded.clone().find(|path| !path.is_relayed).or_else(|| succeeded.next())
    }

    /// Whether a pair may still succeed that is better than the best that has.
    pub(in crate::host) fn may_improve(&self) -> bool {
        let best = self.best();
        let is_open = |pair: &&Pair| matches!(pair.state, PairState::Waiting | PairState::InProgress);
        let is_better = |pair: &Pair| match best {
            Some(best) if best.is_relayed == pair.path.is_relayed => {
                self.pairs.iter().position(|it| it.path == pair.path) < self.pairs.iter().position(|it| it.path == best)
            }
            Some(best) => best.is_relayed,
            None => true,
        };
        self.pairs.iter().filter(is_open).any(is_better)
    }

    /// Whether the peer has answered on this path.
    pub(in crate::host) fn has_succeeded(&self, path: Path) -> bool {
        self.pairs.iter().any(|pair| pair.path == path && pair.state == PairState::Succeeded)
    }

    /// When the best pair is nominated, if it is a direct one, whatever else is in progress.
    pub(in crate::host) fn settled_at(&self) -> Option<Instant> {
        self.best().filter(|best| !best.is_relayed)?;
        self.succeeded_at.map(|at| at + SETTLE)
    }

    /// Whether nothing works, and nothing is left to check.
    pub(in crate::host) fn has_failed(&self) -> bool {
        self.pairs.iter().all(|pair| pair.state == PairState::Failed)
    }

    /// All pairs are checked again.
    pub(in crate::host) fn restart(&mut self, now: Instant) {
        (self.next_at, self.succeeded_at) = (now, None);
        self.triggered.clear();
        self.pairs.iter_mut().for_each(|pair| (pair.state, pair.transaction) = (PairState::Waiting, None));
    }

    /// A pair that has succeeded does not answer now.
    pub(in crate::host) fn check_anew(&mut self, path: Path) {
        let same = self.pairs.iter_mut().filter(|pair| pair.path == path);
        same.for_each(|pair| (pair.state, pair.transaction) = (PairState::Waiting, None));
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::priority;
    use super::*;

    const TA: Duration = Duration::from_millis(50);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn own(at: &str, rank: usize) -> OwnCandidate {
        let (kind, base) = (CandidateKind::Host, address(at));
        OwnCandidate { kind, at: (base, UDP_PORT), base, priority: priority(kind, rank) }
    }

    fn peer(kind: CandidateKind, at: &str, port: u16) -> PeerCandidate {
        PeerCandidate { kind, at: (address(at), port), priority: priority(kind, 0) }
    }

    fn list(now: Instant) -> Checklist {
        let reflexive = OwnCandidate {
            kind: CandidateKind::ServerReflexive,
            at: (address("203.0.113.9"), 7),
            ..own("10.0.0.1", 0)
        };
        let candidates = [own("10.0.0.1", 0), own("2001:db8::1", 1), reflexive];
        let of_peer = [
            peer(CandidateKind::Relayed, "203.0.113.3", 10_500),
            peer(CandidateKind::ServerReflexive, "198.51.100.2", 30_001),
            peer(CandidateKind::Host, "10.0.9.9", 10_500),
            peer(CandidateKind::Host, "2001:db8:9::9", 10_500),
        ];
        Checklist::new(now, true, TA, &candidates, &of_peer)
    }

    /// Sends what is due until `end`; returns the peer's addresses with the time.
    fn run(list: &mut Checklist, now: &mut Instant, end: Instant) -> Vec<(u64, IpAddr)> {
        let (start, mut sent) = (*now, Vec::new());
        while let Some(at) = list.poll_timeout().filter(|at| *at <= end) {
            *now = at.max(*now);
            let Some(index) = list.next(*now, |_| true) else { continue };
            sent.push((now.saturating_since(start).as_millis(), list.pairs[index].path.peer.0));
            let id = sent.len() as u32;
            list.note_sent(*now, index, || (id, [id as u8; 16]));
        }
        *now = end;
        sent
    }

    #[test]
    fn priorities_of_pairs_agree_at_both_hosts() {
        assert_eq!(pair_priority(2, 1), (1 << 32) + 4 + 1);
        assert_eq!(pair_priority(1, 2), (1 << 32) + 4);
        assert_eq!(pair_priority(u32::MAX, u32::MAX), u64::MAX, "of a hostile peer");
    }

    /// RFC 9028 section 4.6.2: in the order of priorities, one every Ta, repeated after a second at the earliest, and not for ever.
    #[test]
    fn checks_are_paced_repeated_and_given_up() {
        let mut now = Instant::from_secs(1000);
        let mut list = list(now);
        let expected = ["10.0.9.9", "2001:db8:9::9", "198.51.100.2", "203.0.113.3"].map(address);
        assert_eq!(list.pairs.iter().map(|pair| pair.path.peer.0).collect::<Vec<IpAddr>>(), expected);
        let sent = run(&mut list, &mut now, Instant::from_secs(1020));
        let of_first: Vec<u64> = sent.iter().filter(|(_, to)| *to == expected[0]).map(|(at, _)| *at).collect();
        assert_eq!(of_first, [0, 1000, 3000, 7000]);
        assert_eq!(sent[..4].iter().map(|(at, _)| *at).collect::<Vec<u64>>(), [0, 50, 100, 150]);
        assert_eq!(sent.len(), 4 * MOST_SENDS as usize);
        assert!(sent.windows(2).all(|it| it[1].0 >= it[0].0 + 50), "{sent:?}");
        assert!(list.pairs.iter().all(|pair| pair.state == PairState::Failed));
        assert_eq!((list.poll_timeout(), list.best()), (None, None));
    }

    #[test]
    fn a_check_of_the_peer_is_returned_before_others() {
        let now = Instant::from_secs(1000);
        let mut list = list(now);
        let path = Path { own: address("10.0.0.1"), peer: (address("198.51.100.2"), 40_000), is_relayed: false };
        list.trigger(path, priority(CandidateKind::Host, 0), priority(CandidateKind::PeerReflexive, 0));
        let index = list.next(now, |_| true).unwrap();
        assert_eq!(list.pairs[index].path, path);
        list.note_sent(now, index, || (1, [1; 16]));
        // The port is another candidate.
        assert_eq!(list.pairs.len(), 5);
        assert!(list.succeed(now, path.own, (path.peer.0, 30_001), &[1; 16]).is_none(), "from another port");
        assert!(list.succeed(now, path.own, path.peer, &[1; 16]).is_some());
        assert!(list.succeed(now, path.own, path.peer, &[1; 16]).is_none(), "a replay");
        assert_eq!((list.best(), list.may_improve()), (Some(path), true));
    }

    #[test]
    fn a_failed_pair_is_checked_again_if_the_peer_checks_it() {
        let mut now = Instant::from_secs(1000);
        let mut list = list(now);
        run(&mut list, &mut now, Instant::from_secs(1030));
        let path = list.pairs[0].path;
        list.trigger(path, 1, 1);
        assert_eq!(list.next(now, |_| true), Some(0));
        assert_eq!(list.note_sent(now, 0, || (77, [7; 16])), (77, [7; 16]));
    }

    /// A check that arrives through a relay which is no candidate.
    #[test]
    fn a_direct_pair_is_better_than_any_relayed_one() {
        let now = Instant::from_secs(1000);
        let mut list = list(now);
        let relay = Path { own: address("10.0.0.1"), peer: (address("203.0.113.77"), 10_500), is_relayed: true };
        list.trigger(relay, priority(CandidateKind::Host, 0), priority(CandidateKind::PeerReflexive, 0));
        let index = list.index(relay.own, relay.peer).unwrap();
        assert!(list.pairs[..index].iter().any(|pair| pair.path.peer.0 == address("198.51.100.2")));
        for path in [relay, list.pairs[index - 1].path] {
            let index = list.index(path.own, path.peer).unwrap();
            list.note_sent(now, index, || (1, [1; 16]));
            assert!(list.succeed(now, path.own, path.peer, &[1; 16]).is_some());
            assert!(list.has_succeeded(path) && list.best() == Some(path) && list.may_improve());
        }
    }

    #[test]
    fn checks_that_may_not_be_sent_wait() {
        let mut now = Instant::from_secs(1000);
        let mut list = list(now);
        let last = list.pairs.len() - 1;
        let relay = list.pairs[last].path;
        assert_eq!(list.next(now, |pair| pair.path == relay), Some(last));
        list.note_sent(now, last, || (1, [1; 16]));
        for _ in 0..100 {
            now = list.poll_timeout().unwrap().max(now);
            assert_eq!(list.next(now, |pair| pair.path == relay && pair.state == PairState::Waiting), None);
        }
        assert!(now >= Instant::from_secs(1030), "not again and again");
        assert!(list.pairs[..last].iter().all(|pair| pair.state == PairState::Waiting && pair.transaction.is_none()));
        assert_eq!(list.next(now + TA * 20, |_| true), Some(0));
    }

    #[test]
    fn a_peer_with_many_ports_uses_bounded_memory() {
        let mut list = list(Instant::from_secs(1000));
        for port in 1..2000 {
            let path = Path { own: address("10.0.0.1"), peer: (address("198.51.100.2"), port), is_relayed: false };
            list.trigger(path, 1, u32::from(port));
        }
        assert!(list.pairs.len() <= MOST_PAIRS && list.triggered.len() <= MOST_PAIRS);
    }
}
