//! What a node remembers of connections that it has handed on: their records, until another node is known to have them, and their ages.

use core::net::IpAddr;
use std::collections::BTreeMap;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::Connection;

use super::record::RecordAge;
use super::record_kinds::Record;

/// How long the age of a connection is remembered: longer than an end retransmits (RFC 9293 section 3.8.3; Linux's `tcp_retries2` amounts
/// to 15 min and more), so that no packet of a lost connection is taken for one of a connection that was never split.
const REMEMBERED: Duration = Duration::from_secs(30 * 60);
/// The most connections that are remembered. Of more, the one that would be forgotten next is forgotten.
const MOST_REMEMBERED: usize = 100_000;
/// How often the memory is searched for old ages.
const SEARCHED_EVERY: Duration = Duration::from_secs(60);

/// Records and ages. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct KeptRecords {
    /// Records of each mobile host's connections from which another node may or may not have continued.
    records: BTreeMap<IpAddr, Kept>,
    /// Connections that were handed on.
    gone: BTreeMap<Connection, Gone>,
    search_at: Instant,
}

#[derive(Debug)]
struct Kept {
    records: BTreeMap<Connection, KeptRecord>,
    /// When they are forgotten, unless they are on their way to a peer then.
    until: Instant,
}

/// A record from which another node may have continued.
#[derive(Clone, Debug)]
pub(super) struct KeptRecord {
    pub(super) age: RecordAge,
    pub(super) bytes: Bytes,
}

/// A connection that was handed on.
#[derive(Clone, Copy, Debug)]
struct Gone {
    age: RecordAge,
    /// No node has its state any more, as far as this one knows, or it has ended.
    is_lost: bool,
    /// A peer has said so. That peer tells every later owner; if this node did too, news would go round for ever.
    is_told: bool,
    until: Instant,
}

impl KeptRecords {
    /// Keeps a record until `until`, unless a newer one of the connection is kept.
    pub(super) fn keep(&mut self, connection: Connection, record: KeptRecord, until: Instant) {
        let kept =
            self.records.entry(connection.mobile().ip()).or_insert_with(|| Kept { records: BTreeMap::new(), until });
        kept.until = kept.until.max(until);
        if kept.records.get(&connection).is_none_or(|other| other.age < record.age) {
            kept.records.insert(connection, record);
        }
    }

    /// Takes all records of a mobile host.
    pub(super) fn take(&mut self, mobile: IpAddr) -> BTreeMap<Connection, KeptRecord> {
        self.records.remove(&mobile).map_or(BTreeMap::new(), |kept| kept.records)
    }

    /// The connection was handed on with this age.
    pub(super) fn note_gone(&mut self, now: Instant, connection: Connection, age: RecordAge) {
        self.remember(connection, Gone { age, is_lost: false, is_told: false, until: now + REMEMBERED });
    }

    /// The state of this age is lost, and all older ones are outdated.
    pub(super) fn note_lost(&mut self, now: Instant, connection: Connection, age: RecordAge) {
        self.note_end(connection, Gone { age, is_lost: true, is_told: false, until: now + REMEMBERED });
    }

    /// A peer says that the state of this age is lost, or that the connection has ended.
    pub(super) fn note_told(&mut self, now: Instant, connection: Connection, age: RecordAge) {
        self.note_end(connection, Gone { age, is_lost: true, is_told: true, until: now + REMEMBERED });
    }

    /// The connection of this age has ended: until then all records of it are outdated.
    pub(super) fn note_ended(&mut self, connection: Connection, age: RecordAge, until: Instant) {
        self.note_end(connection, Gone { age, is_lost: true, is_told: false, until });
    }

    fn note_end(&mut self, connection: Connection, end: Gone) {
        let age = end.age;
        if self.gone.get(&connection).is_some_and(|gone| gone.age > age) {
            return;
        }
        if let Some(kept) = self.records.get_mut(&connection.mobile().ip())
            && kept.records.get(&connection).is_some_and(|record| record.age <= age)
        {
            kept.records.remove(&connection);
        }
        self.remember(connection, end);
    }

    fn remember(&mut self, connection: Connection, gone: Gone) {
        self.gone.insert(connection, gone);
        if self.gone.len() > MOST_REMEMBERED
            && let Some((&first, _)) = self.gone.iter().min_by_key(|(_, gone)| gone.until)
        {
            self.gone.remove(&first);
        }
    }

    /// The connection is here.
    pub(super) fn note_here(&mut self, connection: Connection) {
        self.gone.remove(&connection);
    }

    /// Whether the connection was handed on, or is lost.
    pub(super) fn is_gone(&self, connection: Connection) -> bool {
        self.gone.contains_key(&connection)
    }

    /// Whether a record of this age is outdated. One that was handed on from here with the same age is not, unless it is lost.
    pub(super) fn is_outdated(&self, connection: Connection, age: RecordAge) -> bool {
        self.gone.get(&connection).is_some_and(|gone| gone.age > age || gone.age == age && gone.is_lost)
    }

    /// The records that say which connections of a mobile host are lost, or have ended, as this node itself has found.
    pub(super) fn lost_of(&self, mobile: IpAddr) -> Vec<Record> {
        let of_mobile = self
            .gone
            .iter()
            .filter(|(connection, gone)| connection.mobile().ip() == mobile && gone.is_lost && !gone.is_told);
        of_mobile.map(|(&connection, gone)| Record::lost(connection, gone.age)).collect()
    }

    /// Forgets what is old. Records for which no node has asked until then are lost. `is_giving`: whether they are on their way.
    pub(super) fn handle_timeout(&mut self, now: Instant, is_giving: impl Fn(IpAddr) -> bool) {
        let old: Vec<IpAddr> =
            self.expiring(&is_giving).filter(|(_, until)| *until <= now).map(|(mobile, _)| mobile).collect();
        for mobile in old {
            for (connection, record) in self.take(mobile) {
                self.note_lost(now, connection, record.age);
            }
        }
        if self.search_at <= now {
            self.search_at = now + SEARCHED_EVERY;
            self.gone.retain(|_, gone| gone.until > now);
        }
    }

    pub(super) fn poll_timeout(&self, is_giving: impl Fn(IpAddr) -> bool) -> Option<Instant> {
        self.expiring(&is_giving).map(|(_, until)| until).min()
    }

    fn expiring(&self, is_giving: &impl Fn(IpAddr) -> bool) -> impl Iterator<Item = (IpAddr, Instant)> {
        let waiting = self.records.iter().filter(|(mobile, _)| !is_giving(**mobile));
        waiting.map(|(&mobile, kept)| (mobile, kept.until))
    }

    pub(super) fn bytes(&self) -> usize {
        self.records.values().flat_map(|kept| kept.records.values()).map(|record| record.bytes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a peer has said is not told on. An end that is older than what is known changes nothing.
    #[test]
    fn only_ends_found_here_are_told() {
        let connection = Connection::between(([10, 9, 9, 9], 80).into(), ([10, 0, 0, 1], 4_000).into());
        let (mobile, until) = (connection.mobile().ip(), Instant::from_secs(120));
        let age = |epoch| RecordAge { opened: 3, epoch };
        let mut kept = KeptRecords::default();
        kept.note_told(Instant::ZERO, connection, age(2));
        assert!(kept.is_outdated(connection, age(2)) && kept.lost_of(mobile).is_empty());
        kept.note_ended(connection, age(1), until);
        assert!(kept.lost_of(mobile).is_empty());
        kept.note_ended(connection, age(3), until);
        assert_eq!(kept.lost_of(mobile), [Record::lost(connection, age(3))]);
    }
}
