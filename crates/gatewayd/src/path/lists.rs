//! Lists of everything in the maps: of mobile hosts, and of connections by mobile host. A list is read with many entries per system call,
//! and a long one of connections is used for a while.

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

/// For so many times the time that it took: listing takes a tenth of the processor at most.
const USES: u64 = 10;

impl ConnectionList {
    /// A list that was made from one time to another.
    pub(super) fn new(of_mobiles: BTreeMap<IpAddr, Vec<Connection>>, began_at: Instant, ended_at: Instant) -> Self {
        Self { of_mobiles, listed_at: began_at, took: ended_at.saturating_since(began_at) }
    }

    pub(super) fn of(&self, mobile: IpAddr) -> &[Connection] {
        self.of_mobiles.get(&mobile).map_or(&[], Vec::as_slice)
    }

    /// Whether a later turn uses it, too: connections that have begun since are missing.
    pub(super) fn is_of_use(&self, now: Instant) -> bool {
        self.took >= LONG && now.saturating_since(self.listed_at) < self.took * USES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Claim: A list of connections is made once in a turn, and one that takes long to make is used for ten times as long.
    #[test]
    fn a_list_that_takes_long_is_used_for_longer() {
        let at = Instant::from_micros;
        let list = |took: u64| ConnectionList::new(BTreeMap::new(), at(1_000_000), at(1_000_000 + took));
        assert!(!list(1_999).is_of_use(at(1_001_999)));
        let long = list(60_000);
        assert!(long.is_of_use(at(1_060_000)) && long.is_of_use(at(1_599_999)) && !long.is_of_use(at(1_600_000)));
    }

    #[test]
    fn a_mobile_host_without_connections_has_an_empty_list() {
        let [one, other] = [1, 2].map(|number| IpAddr::from([10, 0, 0, number]));
        let connection = Connection { local: ([192, 0, 2, 1], 80).into(), remote: (one, 4000).into() };
        let list = ConnectionList::new([(one, vec![connection])].into(), Instant::ZERO, Instant::ZERO);
        assert_eq!((list.of(one), list.of(other)), (&[connection][..], &[][..]));
    }
}
