//! Eviction from a table of connections: those that are over leave it, and those that are least likely to continue if it is full.

use holdover_base::{Duration, Instant};
use holdover_filter::{Connection, Direction, LINGER};

use crate::Flow;

/// How long closed connections, and SYNs without an answer, stay in a full table: a client repeats its SYN after a second, which adds its
/// connection again. Younger SYNs stay, as their answers may be under way, unless they alone fill [`EVICTED_PART`] of the table, as a flood does.
const LINGER_WITHOUT_ROOM: Duration = Duration::from_secs(1);

/// The fraction of connections evicted at least when the table is full: one in this number.
const EVICTED_PART: usize = 16;

/// A connection of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The connection.
    pub connection: Connection,
    /// The time of its last packet.
    pub seen_at: Instant,
    /// Its use.
    pub use_of: Use,
}

/// The use of keeping a connection in the table, the least one first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Use {
    /// The connection is over.
    Over,
    /// Its SYN was never answered.
    Unanswered,
    /// One end has acknowledged something, or a gateway sees one direction only: a SYN-ACK for a forged address is not answered either.
    OneSided,
    /// Both ends have acknowledged something.
    Established,
}

impl Use {
    /// At one of its hosts, where it suffices to know whether the peer has sent anything.
    pub const fn at_host(flow: &Flow) -> Self {
        match flow.is_over() {
            true => Self::Over,
            false if flow.is_unanswered() => Self::Unanswered,
            false => Self::Established,
        }
    }

    /// Between its hosts.
    pub fn between(flow: &Flow) -> Self {
        let acked = [Direction::Outgoing, Direction::Incoming].map(|direction| flow.half(direction).acked().is_some());
        match acked {
            _ if flow.is_over() => Self::Over,
            [false, false] => Self::Unanswered,
            [true, true] => Self::Established,
            _ => Self::OneSided,
        }
    }
}

impl Candidate {
    /// Whether it leaves the table in any case: it has been over, or unanswered, for [`LINGER`].
    pub fn has_lingered(&self, now: Instant) -> bool {
        self.is_done_for(now, LINGER)
    }

    fn is_done_for(&self, now: Instant, time: Duration) -> bool {
        matches!(self.use_of, Use::Over | Use::Unanswered) && now.saturating_since(self.seen_at) >= time
    }
}

/// Whether a table with so many connections has room for more, of `most`. `was_full` says that it has refused one: if it is not nearly full,
/// the kernel lacked memory for a moment.
pub const fn has_room(connections: usize, most: usize, was_full: bool) -> bool {
    connections < if was_full { most - most / EVICTED_PART } else { most }
}

/// The connections to remove. Without room these are all connections that have been over or unanswered for a second, such as
/// those of a SYN flood, and at least a sixteenth of all: first others that are over, then unanswered ones, if they are many, then one-sided
/// ones; within each class those idle for longest.
#[must_use]
pub fn choose(now: Instant, mut candidates: Vec<Candidate>, has_room: bool) -> Vec<Connection> {
    let linger = if has_room { LINGER } else { LINGER_WITHOUT_ROOM };
    let done = candidates.iter().filter(|candidate| candidate.is_done_for(now, linger)).count();
    let is_young = |candidate: &Candidate| candidate.use_of == Use::Unanswered && !candidate.is_done_for(now, linger);
    let young = candidates.iter().filter(|candidate| is_young(candidate)).count();
    let least = if has_room { 0 } else { candidates.len().div_ceil(EVICTED_PART) };
    let spares_young = young < least;
    let count = done.max(least);
    if count > 0 && count < candidates.len() {
        candidates.select_nth_unstable_by_key(count - 1, |candidate| {
            let is_spared = spares_young && is_young(candidate);
            (is_spared, !candidate.is_done_for(now, linger), candidate.use_of, candidate.seen_at)
        });
    }
    candidates.truncate(count);
    candidates.into_iter().map(|candidate| candidate.connection).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    use holdover_wire::{Flags, Packet, Segment, Seq};

    use super::*;
    use crate::{Entry, Form, Rules};

    fn connection(number: u16) -> Connection {
        Connection { local: ([192, 0, 2, 1], 80).into(), remote: ([10, 0, 0, 1], number).into() }
    }

    /// Their ports begin with this one.
    fn candidates(first: u16, count: u16, use_of: Use, seen_at: impl Fn(u16) -> u64) -> Vec<Candidate> {
        let candidate = |number| {
            let seen_at = Instant::from_millis(seen_at(number));
            Candidate { connection: connection(first + number), seen_at, use_of }
        };
        (0..count).map(candidate).collect()
    }

    /// The ports of the mobile host.
    fn chosen(now_ms: u64, candidates: Vec<Candidate>, has_room: bool) -> BTreeSet<u16> {
        let chosen = choose(Instant::from_millis(now_ms), candidates, has_room);
        chosen.into_iter().map(|connection| connection.remote.port()).collect()
    }

    // Claim: A flood of SYNs that nobody answers leaves a full table after a second, and takes no place from connections that are answered.
    #[test]
    fn unanswered_syns_leave_a_full_table_before_any_connection() {
        // 20 SYNs every 3 ms for 3 s, beside 5,000 connections that have been idle for an hour.
        let flood = candidates(0, 20_000, Use::Unanswered, |number| 3_600_000 + u64::from(number) / 20 * 3);
        let all = [flood, candidates(30_000, 5_000, Use::Established, |_| 0)].concat();
        let ports = chosen(3_603_000, all, false);
        let old = 2000 / 3 * 20;
        assert!(ports.iter().all(|port| *port < 20_000));
        assert!((old - 20..=old + 40).contains(&ports.len()), "{}", ports.len());
    }

    // Claim: SYNs of the last second, whose answers may be under way, stay in a full table while they are less than a sixteenth of it; connections
    // idle for longest leave instead.
    #[test]
    fn young_syns_stay_unless_they_are_a_flood() {
        let table = |young: u16| {
            let old = candidates(0, 3, Use::Unanswered, |_| 98_000);
            let idle = candidates(30_000, 157 - young, Use::Established, |number| 50_000 + u64::from(number));
            [candidates(1000, young, Use::Unanswered, |number| 99_001 + u64::from(number)), old, idle].concat()
        };
        let idle = |count: u16| 30_000..30_000 + count;
        assert_eq!(chosen(100_000, table(9), false), (0..3).chain(idle(7)).collect());
        assert_eq!(chosen(100_000, table(10), false), (0..3).chain(1000..1007).collect());
    }

    #[test]
    fn a_syn_is_done_and_an_answered_one_is_not_yet_established() {
        let segment = |flags, seq, ack| {
            let [seq, ack] = [seq, ack].map(Seq::new);
            Segment { src_port: 80, dst_port: 80, flags, seq, ack, window: 1000, ..Segment::default() }
        };
        let [fixed, mobile] = [[192, 0, 2, 1], [10, 0, 0, 1]].map(IpAddr::from);
        let mut entry = Entry::new();
        let mut follow = |from: IpAddr, to: IpAddr, direction, segment: Segment| {
            let form = Form::of(&segment);
            let packet = Packet::new(from, to, segment);
            entry.follow(Instant::from_millis(1), &Rules::default(), direction, &packet, form);
            Use::between(&entry.expand())
        };
        assert_eq!(follow(mobile, fixed, Direction::Incoming, segment(Flags::SYN, 10, 0)), Use::Unanswered);
        let answer = segment(Flags::SYN | Flags::ACK, 500, 11);
        assert_eq!(follow(fixed, mobile, Direction::Outgoing, answer), Use::OneSided);
        assert_eq!(follow(mobile, fixed, Direction::Incoming, segment(Flags::ACK, 11, 501)), Use::Established);
    }

    #[test]
    fn those_idle_for_longest_leave_if_nothing_is_done() {
        let ports =
            chosen(100_000, candidates(30_000, 160, Use::Established, |number| 50_000 + u64::from(number)), false);
        assert_eq!(ports, (30_000..30_010).collect());
        // Unanswered ones first, and of these the oldest, although they began just now.
        let established = candidates(30_000, 60, Use::Established, |_| 0);
        let all =
            [candidates(0, 100, Use::Unanswered, |number| 99_800 + u64::from(number)), established.clone()].concat();
        assert_eq!(chosen(100_000, all, false), (0..10).collect());
        // Then those whose SYN-ACK was not acknowledged.
        let all = [established, candidates(0, 100, Use::OneSided, |number| 99_800 + u64::from(number))].concat();
        assert_eq!(chosen(100_000, all, false), (0..10).collect());
    }

    // Claim: Connections that have ended leave a full table before live ones, also if they have just ended, and however few they are.
    #[test]
    fn closed_connections_leave_a_full_table_before_live_ones() {
        let live = candidates(0, 155, Use::Established, |number| 1_000 + u64::from(number));
        let over = candidates(30_000, 5, Use::Over, |_| 99_900);
        let ports = chosen(100_000, [live.clone(), over].concat(), false);
        assert_eq!(ports, (0..5).chain(30_000..30_005).collect());
        // SYNs of the last second, whose answers may be under way, stay.
        let young = candidates(30_000, 5, Use::Unanswered, |_| 99_900);
        assert_eq!(chosen(100_000, [live, young].concat(), false), (0..10).collect());
        // Closed connections that are older than a second leave before those, and all of them.
        let mixed =
            [candidates(0, 20, Use::Over, |_| 99_900), candidates(100, 20, Use::Unanswered, |_| 98_000)].concat();
        assert_eq!(chosen(100_000, mixed, false), (100..120).collect());
    }

    #[test]
    fn a_refusal_by_a_table_that_is_not_nearly_full_is_a_lack_of_memory() {
        assert!(has_room(99, 100, false) && !has_room(100, 100, false));
        assert!(has_room(93, 100, true) && !has_room(94, 100, true));
    }

    #[test]
    fn with_room_only_those_leave_that_were_done_for_a_minute() {
        let others = [Use::OneSided, Use::Established].map(|use_of| candidates(30_000, 10, use_of, |_| 0)).concat();
        let all = [candidates(0, 10, Use::Unanswered, |number| 1000 * u64::from(number)), others].concat();
        assert_eq!(chosen(59_999, all.clone(), true), BTreeSet::new());
        assert_eq!(chosen(64_500, all.clone(), true), (0..5).collect());
        assert_eq!(chosen(99_000, all, true), (0..10).collect());
        assert_eq!(chosen(0, Vec::new(), false), BTreeSet::new());
    }
}
