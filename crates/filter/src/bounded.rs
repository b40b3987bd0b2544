//! Values by connection, bounded in number.

use std::collections::{BTreeMap, BTreeSet};

use holdover_base::{Duration, Instant};

use crate::Connection;

/// How long tables remember closed connections, for retransmissions, and strangers.
pub const LINGER: Duration = Duration::from_secs(60);

/// The granularity of the order by age.
const GRAIN: Duration = Duration::from_secs(1);

/// The most connections that are remembered.
pub const LIMIT: usize = 65_536;

/// The most strangers and closed connections that are remembered.
const MOST_PASSING: usize = 4_096;

/// Values by connection, ordered by address. The owner says of each whether it is *passing*: a closed connection, or that of a stranger.
/// Few of these are remembered, and not for long.
///
/// It is bounded: when it is full, the connection that has been idle for longest is evicted, and from then on is handled like one that is
/// older than the owner.
#[derive(Clone, Debug)]
pub struct Bounded<V> {
    entries: BTreeMap<Connection, Aged<V>>,
    /// By the time of their last packet, to within [`GRAIN`].
    live: BTreeSet<(Instant, Connection)>,
    /// In the same order.
    passing: BTreeSet<(Instant, Connection)>,
    limit: usize,
}

#[derive(Clone, Debug)]
struct Aged<V> {
    seen_at: Instant,
    is_passing: bool,
    value: V,
}

impl<V> Default for Bounded<V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), live: BTreeSet::new(), passing: BTreeSet::new(), limit: LIMIT }
    }
}

impl<V> Bounded<V> {
    /// Handles a packet of a connection, for which there is a value, or a `new` one: `act` updates it, and returns whether it is passing
    /// from now on.
    pub fn update(
        &mut self,
        now: Instant,
        connection: Connection,
        new: impl FnOnce() -> V,
        act: impl FnOnce(&mut V) -> bool,
    ) -> &mut V {
        self.expire(now);
        if !self.entries.contains_key(&connection) {
            self.make_room();
            self.passing.insert((now, connection));
        }
        let Self { entries, live, passing, .. } = self;
        let aged = entries.entry(connection).or_insert_with(|| Aged { seen_at: now, is_passing: true, value: new() });
        let was_passing = aged.is_passing;
        aged.is_passing = act(&mut aged.value);
        if aged.is_passing != was_passing || now.saturating_since(aged.seen_at) >= GRAIN {
            (if was_passing { &mut *passing } else { &mut *live }).remove(&(aged.seen_at, connection));
            (if aged.is_passing { passing } else { live }).insert((now, connection));
            aged.seen_at = now;
        }
        &mut aged.value
    }

    /// The value of a known connection.
    pub fn get_mut(&mut self, connection: Connection) -> Option<&mut V> {
        self.entries.get_mut(&connection).map(|aged| &mut aged.value)
    }

    /// As [`Self::get_mut`], read-only.
    pub fn get(&self, connection: Connection) -> Option<&V> {
        self.entries.get(&connection).map(|aged| &aged.value)
    }

    /// Removes a connection.
    pub fn remove(&mut self, connection: Connection) {
        if let Some(aged) = self.entries.remove(&connection) {
            (if aged.is_passing { &mut self.passing } else { &mut self.live }).remove(&(aged.seen_at, connection));
        }
    }

    /// Connections that are not passing, read-only.
    pub fn live(&self) -> impl Iterator<Item = (Connection, &V)> {
        let live = self.entries.iter().filter(|(_, aged)| !aged.is_passing);
        live.map(|(connection, aged)| (*connection, &aged.value))
    }

    /// Connections that are not passing.
    pub fn live_mut(&mut self) -> impl Iterator<Item = (Connection, &mut V)> {
        let live = self.entries.iter_mut().filter(|(_, aged)| !aged.is_passing);
        live.map(|(connection, aged)| (*connection, &mut aged.value))
    }

    /// All connections.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Connection, &mut V)> {
        self.entries.iter_mut().map(|(connection, aged)| (*connection, &mut aged.value))
    }

    fn expire(&mut self, now: Instant) {
        while let Some(&(seen_at, connection)) = self.passing.first()
            && now.saturating_since(seen_at) >= LINGER
        {
            self.passing.pop_first();
            self.entries.remove(&connection);
        }
    }

    /// Makes room for one more: evicts passing connections first, then the one idle for longest.
    fn make_room(&mut self) {
        while self.passing.len() >= MOST_PASSING || self.entries.len() >= self.limit {
            let Some((_, connection)) = self.passing.pop_first().or_else(|| self.live.pop_first()) else { return };
            self.entries.remove(&connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, SocketAddr};

    use super::*;

    fn connection(number: u32) -> Connection {
        let remote = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number));
        Connection { local: SocketAddr::new([192, 0, 2, 1].into(), 80), remote: SocketAddr::new(remote, 1000) }
    }

    /// Counts the packets of a connection.
    fn count(values: &mut Bounded<u32>, secs: u64, number: u32, is_passing: bool) -> u32 {
        let count = |value: &mut u32| {
            *value += 1;
            is_passing
        };
        *values.update(Instant::from_secs(secs), connection(number), || 0, count)
    }

    #[test]
    fn passing_connections_do_not_evict_others() {
        let mut values = Bounded::default();
        count(&mut values, 1, 0, false);
        for number in 1..200_000 {
            count(&mut values, 2, number, true);
        }
        assert_eq!(values.entries.len(), 1 + MOST_PASSING);
        assert_eq!((values.live.len(), values.passing.len()), (1, MOST_PASSING));
        assert_eq!(count(&mut values, 3, 0, false), 2);
        count(&mut values, 3, 7, true);
        assert_eq!(count(&mut values, 3, 7, false), 2);
        assert_eq!(values.live.len(), 2);
    }

    #[test]
    fn the_connection_idle_for_longest_is_evicted() {
        let mut values = Bounded { limit: 3, ..Bounded::default() };
        for number in 0..3 {
            count(&mut values, u64::from(number), number, false);
        }
        count(&mut values, 10, 0, false);
        count(&mut values, 11, 3, false);
        let kept: Vec<Connection> = values.iter_mut().map(|(connection, _)| connection).collect();
        assert_eq!(kept, [connection(0), connection(2), connection(3)]);
    }

    #[test]
    fn passing_connections_are_evicted_after_the_linger_time() {
        let mut values = Bounded::default();
        count(&mut values, 3, 0, true);
        assert_eq!(count(&mut values, 62, 0, true), 2, "a retransmission");
        count(&mut values, 123, 1, false);
        assert_eq!(values.entries.len(), 1);
    }

    #[test]
    fn a_removed_connection_leaves_nothing() {
        let mut values = Bounded::default();
        for is_passing in [false, true] {
            count(&mut values, 1, 0, is_passing);
            values.remove(connection(0));
            assert_eq!((values.entries.len(), values.live.len(), values.passing.len()), (0, 0, 0));
        }
    }
}
