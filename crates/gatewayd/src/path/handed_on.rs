//! Connections of mobile hosts that move between gateways: they leave the flow table of one as records, and enter that of
//! another.

use std::net::IpAddr;

use aya::maps::MapError;
use aya::sys::SyscallError;
use holdover_base::Instant;
use holdover_filter::{Connection, Direction};
use holdover_flow::{Entry, Flow, FlowRecord, Key, Order, OrderRecord};
use holdover_host::ebpf::LOCK;

use super::flows::Plain;
use super::records::NO_LINK;
use super::{KernelPath, NO_EXIST};

/// The result of taking in a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TakenIn {
    /// It is known by its record.
    Anew,
    /// Packets have shown more of it here than the record has.
    Known,
    /// There is no room.
    Full,
}

/// Connections that were removed because their mobile host has moved.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) records: Vec<FlowRecord>,
    /// Connections beyond the limit that have held ACKs.
    pub(crate) holding: Vec<(Connection, Flow)>,
}

impl KernelPath {
    /// Removes the connections of a mobile host, except those that are `kept`. At most `most` of those in use are handed on, the most
    /// recently used ones.
    pub(crate) fn take_connections(
        &mut self,
        now: Instant,
        mobile: IpAddr,
        most: usize,
        kept: impl Fn(Connection) -> bool,
    ) -> Taken {
        let mut found: Vec<(Instant, FlowRecord, Option<Flow>)> = Vec::new();
        for connection in self.connections_of(mobile).into_iter().filter(|connection| !kept(*connection)) {
            let flow = self.flows.get_with_details(connection);
            let record = flow.and_then(|(flow, is_detailed)| {
                let record = FlowRecord::of(now, connection, &flow, is_detailed)?;
                Some((flow.seen_at(), record, Some(flow).filter(is_held)))
            });
            found.extend(record);
            self.remove_connection(connection);
        }
        found.sort_by_key(|&(seen_at, ..)| std::cmp::Reverse(seen_at));
        let left = found.split_off(most.min(found.len()));
        let holding = left.into_iter().filter_map(|(_, record, flow)| Some((record.connection(), flow?)));
        Taken { holding: holding.collect(), records: found.into_iter().map(|(_, record, _)| record).collect() }
    }

    /// Removes the connections of a mobile host.
    pub(crate) fn forget_connections(&mut self, mobile: IpAddr) {
        self.connections_of(mobile).into_iter().for_each(|connection| self.remove_connection(connection));
    }

    /// Adds a connection by the record of another gateway, over the link of this number; without one nothing is done for
    /// its ACKs. State learned from packets here takes precedence over an older record.
    pub(crate) fn take_in(&mut self, now: Instant, record: &FlowRecord, link: Option<u8>) -> (TakenIn, Flow) {
        let (connection, flow) = (record.connection(), record.revive(now));
        if let Some(known) = self.flow(connection) {
            if !record.supersedes(&known) {
                self.complete_shifts(now, record, &known, link);
                return (TakenIn::Known, known);
            }
            self.remove_connection(connection);
        }
        // The details are added first, as packets find them through the entry. Without room for details, the entry alone is added.
        let wants_details = link.is_some() && (record.is_detailed() || is_held(&flow) || record.is_shut());
        let is_detailed = wants_details && self.insert_details(connection, &flow);
        let entry = Entry::handed_on(&flow, link.map_or(NO_LINK as u16, u16::from), is_detailed);
        match self.flows.entries.insert(Plain(Key::new(connection)), Plain(entry), NO_EXIST) {
            Ok(()) => {
                self.drop_list();
                (TakenIn::Anew, flow)
            }
            Err(MapError::SyscallError(SyscallError { io_error, .. }))
                if io_error.raw_os_error() == Some(libc::EEXIST) =>
            {
                // A packet has added an entry since.
                self.remove_unused_details(connection);
                let known = self.flow(connection).unwrap_or(flow);
                self.complete_shifts(now, record, &known, link);
                (TakenIn::Known, known)
            }
            Err(_) => {
                self.remove_unused_details(connection);
                (TakenIn::Full, flow)
            }
        }
    }

    /// Whether the flow table has ACKs of a connection that were not shown.
    pub(crate) fn holds_acks(&self, connection: Connection) -> bool {
        self.flow(connection).is_some_and(|flow| is_held(&flow))
    }

    /// Adds the details of a connection without an entry. Returns whether there was room.
    fn insert_details(&mut self, connection: Connection, flow: &Flow) -> bool {
        let key = Plain(Key::new(connection));
        // Details of a connection of the same name whose entry was evicted.
        let _ = self.flows.details.remove(&key);
        self.flows.details.insert(key, Plain(*flow), NO_EXIST).is_ok()
    }

    /// Removes details to which no entry refers.
    fn remove_unused_details(&mut self, connection: Connection) {
        let key = Plain(Key::new(connection));
        let is_used = self.flows.entries.get(&key, LOCK).is_ok_and(|Plain(entry)| entry.is_detailed());
        if !is_used {
            let _ = self.flows.details.remove(&key);
        }
    }

    /// Tells the flow path the window shifts that it could not see in mid-life. Without a link nothing needs them, and an order would give
    /// the connection details.
    fn complete_shifts(&self, now: Instant, record: &FlowRecord, known: &Flow, link: Option<u8>) {
        if link.is_none() {
            return;
        }
        for (direction, shift) in record.missing_shifts(known) {
            self.order_flow(OrderRecord::new(now, record.connection(), direction, Order::WindowShift(shift)));
        }
    }
}

/// Whether a receiver has acknowledged more than its sender was shown.
fn is_held(flow: &Flow) -> bool {
    [Direction::Outgoing, Direction::Incoming].into_iter().any(|direction| flow.half(direction).is_held())
}

/// Connections for tests.
#[cfg(test)]
pub(crate) mod testing {
    use std::net::{IpAddr, Ipv4Addr};

    use bytes::Bytes;
    use holdover_base::{Duration, Instant};
    use holdover_filter::{Connection, Direction};
    use holdover_flow::{Environment, Flow, Form, Key, Link, LinkState};
    use holdover_gateway::daemon;
    use holdover_wire::{Flags, Packet, SackBlocks, Segment, Seq, SeqRange, TcpOptions, Timestamps};

    use crate::path::{KernelPath, PathError, Place};

    /// Programs that are not attached, with little room.
    pub(crate) fn load() -> Result<KernelPath, PathError> {
        let place = Place { most_mobiles: 4, most_connections: 8, most_detailed: 8, ..Place::nowhere() };
        KernelPath::load(&place, &[], None)
    }

    pub(crate) const MOBILE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 7));

    /// [`MOBILE`] begins a connection from this port: the programs see its SYN.
    pub(crate) fn begin(path: &KernelPath, port: u16) -> Connection {
        let to = IpAddr::from([192, 0, 2, 1]);
        let syn = Segment { src_port: port, dst_port: 80, flags: Flags::SYN, ..Segment::default() };
        let ethernet = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        let frame = [&ethernet[..], &Packet::new(MOBILE, to, syn).emit().unwrap()].concat();
        path.object.run("ingress", &frame).unwrap();
        Connection { local: (to, 80).into(), remote: (MOBILE, port).into() }
    }

    /// A transfer of a mobile host with a fixed host, of a segment and an ACK each millisecond, until the link breaks.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Transfer {
        pub(crate) is_upload: bool,
        pub(crate) is_ipv6: bool,
        /// The window scale of both ends, if they have seen the SYNs.
        pub(crate) shift: Option<u8>,
        pub(crate) has_stamps: bool,
        pub(crate) segments: u32,
        /// Bytes of each.
        pub(crate) segment: u32,
        /// SACK blocks of the last ACK.
        pub(crate) blocks: u32,
        /// The initial sequence number of the data.
        pub(crate) isn: u32,
    }

    impl Default for Transfer {
        fn default() -> Self {
            let (is_upload, is_ipv6, shift) = (false, false, Some(7));
            let (segments, segment, isn) = (300, 1000, u32::MAX - 100_000);
            Self { is_upload, is_ipv6, shift, has_stamps: true, segments, segment, blocks: 0, isn }
        }
    }

    /// ACKs come so many segments after the data.
    const IN_FLIGHT: u32 = 40;

    impl Transfer {
        pub(crate) fn connection(&self) -> Connection {
            if self.is_ipv6 {
                let address = |last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
                return Connection { local: (address(1), 80).into(), remote: (address(2), 4000).into() };
            }
            let local = (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 80).into();
            Connection { local, remote: (MOBILE, 4000).into() }
        }

        /// The flow after a transfer whose last ACK comes at `now`, over a link that is down by then: it is held.
        pub(crate) fn until(&self, now: Instant) -> Flow {
            let began = now - Duration::from_millis((self.segments + IN_FLIGHT + 2).into());
            let mut flow = Flow::new();
            let up = LinkState::default();
            let (data, acks) = if self.is_upload {
                (Direction::Incoming, Direction::Outgoing)
            } else {
                (Direction::Outgoing, Direction::Incoming)
            };
            if self.shift.is_some() {
                let syn = Segment { seq: Seq::new(self.isn), flags: Flags::SYN, ..Segment::default() };
                self.pass(&mut flow, began, data, syn, &up);
                let flags = Flags::SYN | Flags::ACK;
                let syn = Segment { seq: Seq::new(7), ack: Seq::new(self.isn) + 1, flags, ..Segment::default() };
                self.pass(&mut flow, began + Duration::from_millis(1), acks, syn, &up);
            }
            let first = Seq::new(self.isn) + 1;
            let ends = Segment { flags: Flags::ACK, window: 50_000, ..Segment::default() };
            for number in 0..self.segments + IN_FLIGHT {
                let at = began + Duration::from_millis((number + 2).into());
                if number < self.segments {
                    let payload = Bytes::from(vec![1; self.segment as usize]);
                    let seq = first + number * self.segment;
                    self.pass(&mut flow, at, data, Segment { seq, ack: Seq::new(8), payload, ..ends.clone() }, &up);
                }
                if number >= IN_FLIGHT {
                    let is_last = number + 1 == self.segments + IN_FLIGHT;
                    let ack = first + (number + 1 - IN_FLIGHT) * self.segment;
                    let mut segment = Segment { seq: Seq::new(8), ack, ..ends.clone() };
                    let block = |number| SeqRange::new(ack + 2000 * number + 1000, ack + 2000 * number + 2000);
                    if is_last {
                        segment.options.sack = (0..self.blocks).map(block).collect::<SackBlocks>();
                    }
                    let down = LinkState { down_at: Some(at), ..up };
                    self.pass(&mut flow, at, acks, segment, if is_last { &down } else { &up });
                }
            }
            flow
        }

        /// The mobile host sends a FIN after the transfer.
        pub(crate) fn end_by_mobile(&self, flow: &mut Flow, now: Instant) {
            let end = Seq::new(self.isn) + 1 + self.segments * self.segment;
            let (seq, ack) = if self.is_upload { (end, Seq::new(8)) } else { (Seq::new(8), end) };
            let fin = Segment { seq, ack, flags: Flags::FIN | Flags::ACK, window: 50_000, ..Segment::default() };
            self.pass(flow, now, Direction::Incoming, fin, &LinkState::default());
        }

        fn pass(&self, flow: &mut Flow, now: Instant, direction: Direction, segment: Segment, link: &LinkState) {
            let Connection { local, remote } = self.connection();
            let (from, to) = if direction == Direction::Outgoing { (local, remote) } else { (remote, local) };
            let val = (now.as_nanos() / 1_000_000) as u32;
            let timestamps = self.has_stamps.then_some(Timestamps { val, ecr: val.wrapping_sub(IN_FLIGHT) });
            let options = TcpOptions { timestamps, ..segment.options.clone() };
            let mut segment = Segment { src_port: from.port(), dst_port: to.port(), options, ..segment };
            if segment.flags.contains(Flags::SYN) {
                segment.options.window_scale = self.shift;
            }
            let form = Form::of(&segment);
            let mut packet = Packet::new(from.ip(), to.ip(), segment);
            let (rules, link) = (daemon::rules(), Link::new(link));
            let environment = Environment { now, link: &link, rules: &rules };
            let _ = flow.pass_between(&Key::new(self.connection()), environment, direction, &mut packet, form);
        }
    }
}

#[cfg(test)]
mod tests {
    use holdover_base::Duration;

    use super::testing::{MOBILE, Transfer};
    use super::*;
    use crate::config::OWN_LINK;
    use crate::path::Place;

    // Claim: A connection leaves the flow table of one gateway and enters that of another with its window shifts, and with ACKs that its
    // sender was not shown; what a table knows already stays, and a full one takes none in.
    #[test]
    fn a_connection_leaves_one_table_and_enters_another() {
        let place = Place { most_connections: 1, most_detailed: 1, ..Place::nowhere() };
        let load = || KernelPath::load(&place, &[], None);
        let (Ok(mut old), Ok(mut new)) = (load(), load()) else {
            return holdover_testbed::harness::skip("the kernel does not load the programs");
        };
        let (now, later) = (Instant::from_secs(500), Instant::from_secs(90));
        let transfer = Transfer { is_upload: true, ..Transfer::default() };
        let (connection, flow) = (transfer.connection(), transfer.until(now));
        let record = FlowRecord::of(now, connection, &flow, true).unwrap();
        assert_eq!(old.take_in(now, &record, Some(OWN_LINK)).0, TakenIn::Anew);
        let mut other = connection;
        other.local.set_port(81);
        let one_more = FlowRecord::of(now, other, &flow, true).unwrap();
        assert_eq!(old.take_in(now, &one_more, Some(OWN_LINK)).0, TakenIn::Full);
        assert!(old.holds_acks(connection) && !old.holds_acks(other));
        assert_eq!(old.take_connections(now, MOBILE, 8, |_| true), Taken::default());
        let Taken { records: taken, holding } = old.take_connections(now, MOBILE, 8, |_| false);
        assert_eq!((taken.len(), holding.len()), (1, 0));
        assert!(old.flow(connection).is_none());
        assert_eq!(new.take_in(later, &taken[0], Some(OWN_LINK)).0, TakenIn::Anew);
        let moved = new.flow(connection).unwrap();
        for direction in [Direction::Outgoing, Direction::Incoming] {
            let (before, after) = (flow.half(direction), moved.half(direction));
            assert_eq!((after.acked(), after.shown()), (before.acked(), before.shown()));
            assert!(after.acked().is_some() && !after.lacks_window_shift());
        }
        assert!(is_held(&moved), "the details are there");
        assert_eq!(new.take_in(later, &taken[0], Some(OWN_LINK)), (TakenIn::Known, moved));
        new.forget_connections(MOBILE);
        assert!(new.flow(connection).is_none());
    }

    #[test]
    fn acks_of_connections_beyond_the_limit_are_to_be_shown() {
        let place = Place { most_connections: 8, most_detailed: 8, ..Place::nowhere() };
        let Ok(mut path) = KernelPath::load(&place, &[], None) else {
            return holdover_testbed::harness::skip("the kernel does not load the programs");
        };
        let now = Instant::from_secs(500);
        let transfer = Transfer::default();
        for (port, ago) in [(80, 0), (81, 2), (82, 1)] {
            let flow = transfer.until(now - Duration::from_secs(ago));
            let mut connection = transfer.connection();
            connection.local.set_port(port);
            let record = FlowRecord::of(now, connection, &flow, true).unwrap();
            assert_eq!(path.take_in(now, &record, Some(OWN_LINK)).0, TakenIn::Anew);
        }
        let port = |connection: &Connection| connection.local.port();
        let Taken { records, holding } = path.take_connections(now, MOBILE, 2, |_| false);
        assert_eq!(records.iter().map(|record| port(&record.connection())).collect::<Vec<_>>(), [80, 82]);
        assert_eq!(holding.iter().map(|(connection, _)| port(connection)).collect::<Vec<_>>(), [81]);
        assert!(holding.iter().all(|(_, flow)| is_held(flow)));
        assert_eq!(path.take_connections(now, MOBILE, 2, |_| false), Taken::default(), "none is left");
    }

    // Claim: A connection for whose ACKs nothing is done has no details at the gateway to which it moves, also if an older record has its
    // window shifts.
    #[test]
    fn a_connection_without_a_link_gets_no_details() {
        let Ok(mut path) = KernelPath::load(&Place::nowhere(), &[], None) else {
            return holdover_testbed::harness::skip("the kernel does not load the programs");
        };
        let now = Instant::from_secs(500);
        let transfer = Transfer { is_upload: true, ..Transfer::default() };
        let connection = transfer.connection();
        let record = FlowRecord::of(now, connection, &transfer.until(now), true).unwrap();
        let unseen = Transfer { shift: None, segments: 350, ..transfer };
        let later = FlowRecord::of(now, connection, &unseen.until(now), false).unwrap();
        for (record, taken_in) in [(&later, TakenIn::Anew), (&record, TakenIn::Known)] {
            assert_eq!(path.take_in(now, record, None).0, taken_in);
            assert!(!path.flows.is_detailed(connection) && !path.holds_acks(connection));
        }
    }
}
