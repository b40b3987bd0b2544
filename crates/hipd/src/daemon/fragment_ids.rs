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

    /// The identification of the next packet between these addresses. Never 0 in the 16 bits of IPv4, which the kernel would replace in each
    /// fragment by another one (`raw(7)`).
    pub(super) fn next(&self, src: IpAddr, dst: IpAddr) -> u32 {
        let offset = self.key.hash_one((src, dst)) as u32;
        loop {
            let id = offset.wrapping_add(self.counter.fetch_add(1, Ordering::Relaxed));
            if id as u16 != 0 {
                return id;
            }
        }
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
        // Identifications of IPv4.
        let seen: BTreeSet<u16> = (0..u16::MAX).map(|_| ids.next(own, peer) as u16).collect();
        assert!(seen.len() == usize::from(u16::MAX) && !seen.contains(&0));
    }

    /// The distance between the identifications for two destinations differs in each run, so that one of them does not reveal the other.
    #[test]
    fn those_of_one_destination_do_not_show_those_of_another() {
        let [own, one, another] = [1, 2, 3].map(|number| IpAddr::from([192, 0, 2, number]));
        let distances: BTreeSet<u32> = (0..20)
            .map(|_| {
                let ids = FragmentIds::new();
                let first = ids.next(own, one);
                ids.next(own, another).wrapping_sub(first)
            })
            .collect();
        // Two distances may be equal by chance, once in some ten million runs.
        assert!(distances.len() >= 19, "{distances:?}");
    }
}
