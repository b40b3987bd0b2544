//! Cache of recently used connections, so that most segments need neither a keyed hash nor a search.

use core::net::IpAddr;

/// No more slots than this: 64 KiB.
const MOST_SLOTS: usize = 1 << 14;

/// The ports of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) local: u16,
    pub(super) remote: u16,
}

/// A direct-mapped table of address pairs. The caller must verify hits: two connections may share a slot, and a removed
/// connection may still have one.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    slots: Vec<u32>,
}

impl Recent {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new() }
    }

    /// The connection that last used this slot, if any.
    #[inline]
    pub(super) fn get(&self, ports: Ports, remote: &IpAddr) -> Option<u32> {
        self.slots.get(self.place(ports, remote)).copied()
    }

    #[inline]
    pub(super) fn put(&mut self, ports: Ports, remote: &IpAddr, index: u32) {
        let place = self.place(ports, remote);
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = index;
        }
    }

    /// Grows to one slot per connection, up to the maximum.
    pub(super) fn make_room(&mut self, connections: usize) {
        let wanted = connections.next_power_of_two().min(MOST_SLOTS);
        if self.slots.len() < wanted {
            self.slots.clear();
            self.slots.resize(wanted, 0);
        }
    }

    #[inline]
    fn place(&self, ports: Ports, remote: &IpAddr) -> usize {
        let low = match remote {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(ip) => ip.to_bits() as u32,
        };
        let ports = u64::from(ports.local) << 16 | u64::from(ports.remote);
        let key = ports << 32 | u64::from(low);
        // Fibonacci hashing: the highest bits depend on all of the key's.
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        mixed as usize & self.slots.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_many_connections_have_a_place_of_their_own() {
        let mut recent = Recent::new();
        let key = |n: u32| (Ports { local: 80, remote: 50_000 + n as u16 }, IpAddr::from([10, 0, 0, (n % 200) as u8]));
        assert_eq!(recent.get(key(0).0, &key(0).1), None);
        recent.make_room(1_000);
        for n in 0..1_000_u32 {
            recent.put(key(n).0, &key(n).1, n);
        }
        let found = (0..1_000_u32).filter(|&n| recent.get(key(n).0, &key(n).1) == Some(n));
        assert!(found.count() > 550);
        recent.make_room(usize::MAX / 2);
        assert_eq!(recent.slots.len(), MOST_SLOTS);
    }
}
