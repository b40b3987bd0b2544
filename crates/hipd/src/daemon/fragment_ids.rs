//! Identifications of packets that are sent in fragments.
//!
//! A host that guesses the next one could have its own fragments reassembled with this host's, so that these are lost. One counter serves
//! all destinations, and each has a secret offset: a keyed hash of the addresses (RFC 7739 section 5.3). So an identification comes again
//! only after all others, and a host that receives some does not know those of others.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(super) struct FragmentIds {
    key: RandomState,
    counter: AtomicU32,
}

impl FragmentIds {
    pub(super) fn new() -> Self {
        Self { key: RandomState::new(), counter: AtomicU32::new(0) }
    }

    /// The identification of the next packet between these addresses.
    pub(super) fn next(&self, src: IpAddr, dst: IpAddr) -> u32 {
        let offset = self.key.hash_one((src, dst)) as u32;
        offset.wrapping_add(self.counter.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_identification_comes_again_after_all_others() {
        let ids = FragmentIds::new();
        let (own, peer) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([198, 51, 100, 1]));
        // Those of IPv4.
        let seen: BTreeSet<u16> = (0..=u16::MAX).map(|_| ids.next(own, peer) as u16).collect();
        assert_eq!(seen.len(), 1 << 16);
    }

    #[test]
    fn those_of_one_destination_do_not_show_those_of_another_or_of_another_run() {
        let own = IpAddr::from([192, 0, 2, 1]);
        let peer = |number| IpAddr::from([198, 51, 100, number]);
        let distances: BTreeSet<u32> = (0..20)
            .map(|number| {
                let ids = FragmentIds::new();
                let first = ids.next(own, peer(number));
                ids.next(own, peer(number + 1)).wrapping_sub(first)
            })
            .collect();
        // Some may be equal by chance, once in some ten million runs.
        assert_eq!(distances.len(), 20);
    }
}
