//! Lists of everything in the maps: of mobile hosts, and of connections by mobile host. A list is read with many entries per system call,
//! and a long one of connections is used for a while, for mobile hosts that have no younger connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsFd as _;

use aya::maps::IterableMap as _;
use holdover_base::{Duration, Instant};
use holdover_filter::Connection;
use holdover_host::ebpf::LOCK;
use holdover_host::map_batch;

use super::records::{Address, Mobile};
use super::{KernelPath, Seen};

impl KernelPath {
    /// All known mobile hosts. Those added or removed meanwhile may be missing or included.
    pub(crate) fn all(&self) -> Vec<(IpAddr, Seen)> {
        let mut all = Vec::new();
        let map = self.mobiles.map().fd().as_fd();
        // SAFETY: these are the map's key and value, integers without padding.
        let walked = unsafe {
            map_batch::for_each(map, LOCK, &mut |address: &Address, record: &Mobile| {
                all.push((address.to_ip(), Seen::from(*record)));
            })
        };
        if let Err(error) = walked {
            tracing::warn!(%error, "cannot list mobile hosts");
        }
        all
    }

    /// The connections of a mobile host, by a list of all that is made once in a turn at most. Those begun after that, in the same turn, may
    /// be missing.
    pub(super) fn connections_of(&self, mobile: IpAddr) -> Vec<Connection> {
        let record = self.mobiles.get(&Address::new(mobile), LOCK).ok();
        self.flows.connections_of(mobile, &self.prefixes, record.map(|record| Instant::from_nanos(record.connected_at)))
    }

    /// A turn begins at `now`: drops the list of mobile hosts' connections, unless it took long to make.
    pub(crate) fn begin_turn(&mut self, now: Instant) {
        self.flows.turn_at = now;
        self.flows.of_mobiles.get_mut().take_if(|list| !list.is_of_use(now));
    }

    /// Drops the list in any case.
    pub(crate) fn drop_list(&mut self) {
        self.flows.of_mobiles.take();
    }
}

/// The connections of each mobile host at some time.
#[derive(Debug)]
pub(super) struct ConnectionList {
    of_mobiles: BTreeMap<IpAddr, Vec<Connection>>,
    listed_at: Instant,
    took: Duration,
}

/// A list that took longer than this is used in later turns: otherwise each turn in which a mobile host leaves or returns would read all
/// connections, and many thousand hosts return over many turns.
const LONG: Duration = Duration::from_millis(2);

/// For so many times the time that it took: lists that take up to 0.1 s take a fiftieth of the processor at most.
const USES: u64 = 50;

/// The longest use of a list: one whose making was preempted for long does not become old.
const LONGEST_USE: Duration = Duration::from_secs(5);

/// A packet takes less than this from its time stamp to the entry of its connection.
const PACKET: Duration = Duration::from_millis(10);

impl ConnectionList {
    /// A list, and the times at which reading it began and ended.
    pub(super) fn new(of_mobiles: BTreeMap<IpAddr, Vec<Connection>>, began_at: Instant, ended_at: Instant) -> Self {
        Self { of_mobiles, listed_at: began_at, took: ended_at.saturating_since(began_at) }
    }

    pub(super) fn of(&self, mobile: IpAddr) -> &[Connection] {
        self.of_mobiles.get(&mobile).map_or(&[], Vec::as_slice)
    }

    /// Whether a later turn uses it, too.
    fn is_of_use(&self, now: Instant) -> bool {
        self.took >= LONG && now.saturating_since(self.listed_at) < (self.took * USES).min(LONGEST_USE)
    }

    /// Whether the list may be used for a mobile host whose last connection began at this time, if known: the list was made later, or in
    /// this turn.
    pub(super) fn serves(&self, connected_at: Option<Instant>, turn_at: Instant) -> bool {
        self.listed_at >= turn_at || connected_at.is_some_and(|at| at + PACKET <= self.listed_at)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use holdover_flow::{Entry, Key};
    use holdover_host::clock;

    use super::super::Place;
    use super::super::flows::Plain;
    use super::super::testing::{MOBILE, begin};
    use super::*;

    // Claim: A list of connections is made once in a turn, and one that takes long to make is used for fifty times as long, 5 s at most, for
    // mobile hosts that have no connection begun since.
    // Tests: `path::lists::tests::a_long_list_is_made_anew_for_a_younger_connection`
    #[test]
    fn a_list_that_takes_long_is_used_for_longer() {
        let at = Instant::from_micros;
        let list = |took: u64| ConnectionList::new(BTreeMap::new(), at(1_000_000), at(1_000_000 + took));
        assert!(!list(1_999).is_of_use(at(1_001_999)));
        let long = list(60_000);
        assert!(long.is_of_use(at(1_060_000)) && long.is_of_use(at(3_999_999)) && !long.is_of_use(at(4_000_000)));
        let preempted = list(1_000_000);
        assert!(preempted.is_of_use(at(5_999_999)) && !preempted.is_of_use(at(6_000_000)));
    }

    #[test]
    fn a_mobile_host_without_connections_has_an_empty_list() {
        let [one, other] = [1, 2].map(|number| IpAddr::from([10, 0, 0, number]));
        let connection = Connection { local: ([192, 0, 2, 1], 80).into(), remote: (one, 4000).into() };
        let list = ConnectionList::new([(one, vec![connection])].into(), Instant::ZERO, Instant::ZERO);
        assert_eq!((list.of(one), list.of(other)), (&[connection][..], &[][..]));
    }

    #[test]
    fn an_older_list_serves_hosts_without_younger_connections() {
        let at = Instant::from_millis;
        let list = ConnectionList::new(BTreeMap::new(), at(1000), at(1060));
        let serves = |connected_at: Option<u64>, turn_at| list.serves(connected_at.map(at), at(turn_at));
        assert!(serves(Some(990), 1100) && !serves(Some(991), 1100) && !serves(Some(1050), 1100));
        assert!(serves(Some(1050), 1000), "made in this turn");
        assert!(serves(None, 1000) && !serves(None, 1100), "a host that is not known may have connections");
    }

    /// So many connections take longer than [`LONG`] to list.
    const MANY: u16 = 50_000;

    #[test]
    fn a_long_list_is_made_anew_for_a_younger_connection() {
        let place = Place { most_connections: 60_000, most_mobiles: 2, ..Place::nowhere() };
        let Ok(mut path) = KernelPath::load(&place, &[], None) else {
            return holdover_testbed::harness::skip("the kernel does not load the programs");
        };
        let other = IpAddr::from([10, 0, 2, 8]);
        [MOBILE, other].into_iter().for_each(|mobile| path.know(mobile).unwrap());
        for port in 0..MANY {
            let key = Key::new(Connection { local: ([192, 0, 2, 1], 80).into(), remote: (other, port).into() });
            path.flows.entries.insert(Plain(key), Plain(Entry::new()), 0).unwrap();
        }
        let first = begin(&path, 4000);
        std::thread::sleep(std::time::Duration::from_millis(20));
        path.begin_turn(clock::now());
        assert_eq!(path.connections_of(MOBILE), [first]);

        // The next turn finds the same list, without the connections begun since.
        let second = begin(&path, 4001);
        path.begin_turn(clock::now());
        let list = path.flows.of_mobiles.get_mut();
        assert_eq!(list.as_ref().map(|list| list.of(MOBILE)), Some(&[first][..]), "it took long to make");
        assert_eq!(path.connections_of(other).len(), usize::from(MANY));
        let both = [first, second].into();
        assert_eq!(path.connections_of(MOBILE).into_iter().collect::<BTreeSet<_>>(), both);

        path.begin_turn(clock::now());
        begin(&path, 4002);
        path.forget_connections(MOBILE);
        path.drop_list();
        assert_eq!(path.connections_of(MOBILE), []);
    }
}
