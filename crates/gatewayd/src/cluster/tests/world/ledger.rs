//! The fate of each packet that a gateway has stored.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct Ledger {
    next: u32,
    stored: BTreeSet<u32>,
    /// How often each packet was delivered.
    delivered: BTreeMap<u32, u32>,
    /// Handed on without a confirmation before an orderly stop: each may be delivered twice.
    uncertain: BTreeSet<u32>,
    /// Released to a link that their mobile host has left.
    missent: BTreeSet<u32>,
}

impl Ledger {
    pub(super) fn next(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub(super) fn store(&mut self, packet: u32) {
        self.stored.insert(packet);
    }

    pub(super) fn allow_twice(&mut self, packet: u32) {
        self.uncertain.insert(packet);
    }

    pub(super) fn deliver(&mut self, packet: u32) {
        *self.delivered.entry(packet).or_default() += 1;
    }

    pub(super) fn missend(&mut self, packet: u32) {
        self.missent.insert(packet);
    }

    pub(super) fn twice(&self) -> Vec<u32> {
        let most = |packet: &u32| if self.uncertain.contains(packet) { 2 } else { 1 };
        self.delivered.iter().filter(|(packet, times)| **times > most(packet)).map(|(packet, _)| *packet).collect()
    }

    /// Packets that were stored, and neither delivered nor released, apart from `waiting` ones.
    pub(super) fn lost(&self, waiting: usize) -> u64 {
        let is_gone = |packet: &&u32| !self.delivered.contains_key(packet) && !self.missent.contains(packet);
        (self.stored.iter().filter(is_gone).count() - waiting) as u64
    }
}
