//! The state of the fast path as plain memory, laid out as `crates/agent/bpf/path.bpf.c` has it.
//!
//! Times are in nanoseconds, and 0 is never. Addresses and ports are as on the wire.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use holdover_base::{Duration, Instant};
use holdover_wire::{SackBlocks, Seq, SeqRange, Timestamps};

use super::bulk::Bulks;
use super::observed::{Flight, ShownLately};
use super::runs::{Run, SegmentRuns};
use super::{FastConnection, FastHalf, FastLink, Notice, Observed, Order, Refresh, Stamps};
use crate::round_trip::RoundTrip;
use crate::wake::WakeConfig;
use crate::{Connection, Direction};
use holdover_filter::{Last, Spoken};

/// `struct run`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RawRun {
    start: u32,
    end: u32,
    size: u32,
}

/// `struct shown`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RawShown {
    at: u64,
    ack: u32,
    unused: u32,
}

/// `struct block`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RawBlock {
    start: u32,
    end: u32,
}

/// `struct half`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawHalf {
    last_data_at: u64,
    advanced_at: u64,
    bytes_acked: u64,
    newest_stamp_at: u64,
    flush_at: u64,
    hold_from: u64,
    flight_since: u64,
    flight_from: u64,
    newest_stamp: u32,
    acked: u32,
    shown: u32,
    longest_segment: u32,
    said_nxt: u32,
    said_ack: u32,
    said_val: u32,
    said_ecr: u32,
    flags: u32,
    flight_bytes: u32,
    flushed_from: u32,
    said_window: u16,
    said_ttl: u8,
    said_class: u8,
    runs_len: u8,
    shown_len: u8,
    sack_len: u8,
    window_shift: u8,
    shown_next: u32,
    runs: [RawRun; SegmentRuns::MOST],
    shown_lately: [RawShown; ShownLately::MOST],
    sack: [RawBlock; MOST_BLOCKS],
    first_stamp_at: u64,
    refresh_at: u64,
    refresh_ticks_per_sec: u64,
    first_stamp: u32,
    refresh_stale: u32,
    refresh_value: u32,
    unused: u32,
}

const MOST_BLOCKS: usize = 4;
const UNKNOWN_SHIFT: u8 = 0xff;

const HALF_ACKED: u32 = 0x1;
const HALF_SAID: u32 = 0x2;
const HALF_SAID_STAMPS: u32 = 0x4;
const HALF_ENDING: u32 = 0x8;
const HALF_RESET: u32 = 0x10;
const HALF_DRAWN_IN: u32 = 0x20;
const HALF_RECORDING: u32 = 0x40;
const HALF_CLOCKED: u32 = 0x80;
const HALF_FLUSHED: u32 = 0x100;
const HALF_REFRESH: u32 = 0x200;
const HALF_FAST: u32 = 0x400;

/// `struct connection`: what is known of a connection, and more for whoever keeps the map and sends frames.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawConnection {
    lock: u32,
    epoch: u32,
    smoothed: u64,
    latest: u64,
    least: u64,
    stamped_at: u64,
    timed_at: u64,
    heard_at: u64,
    stamped: u32,
    timed: u32,
    nxt: u32,
    flags: u32,
    /// When its last packet passed, in ns.
    pub seen_at: u64,
    /// When its first packet passed, in ns.
    pub began_at: u64,
    /// Bytes of data that came in, repeated ones included.
    pub bytes_in: u64,
    /// Bytes of data that went out, repeated ones included.
    pub bytes_out: u64,
    /// ACKs that were not let through.
    pub withheld: u32,
    /// ACKs that were lowered.
    pub lowered: u32,
    host_isn: u32,
    host_fin: u32,
    peer_fin: u32,
    /// The Ethernet header of the last packet that went out; all zero where there is none.
    pub frame_out: [u8; FRAME_LEN],
    /// The same of the last packet that came in.
    pub frame_in: [u8; FRAME_LEN],
    gone: u16,
    unused: [u16; 3],
    outgoing: RawHalf,
    incoming: RawHalf,
}

/// Bytes of an Ethernet header.
pub const FRAME_LEN: usize = 14;

const TRIP_SAMPLED: u32 = 0x1;
const TRIP_STAMPED: u32 = 0x2;
const TRIP_TIMED: u32 = 0x4;
const TRIP_NXT: u32 = 0x8;

const GONE_HOST_FIN_ACKED: u16 = 0x8;
const GONE_PEER_FIN_ACKED: u16 = 0x10;
const GONE_RESET: u16 = 0x20;
const LEFT_ALONE: u16 = 0x40;

/// `struct link`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RawLink {
    down_at: u64,
    up_at: u64,
    stall_cut_at: u64,
    stall_until: u64,
    stall_lead: u64,
    expires_at: u64,
    epoch: u32,
    is_down: u8,
    has_up: u8,
    is_releasing: u8,
    has_stall: u8,
    awaits_packets: u8,
    listens: u8,
    unused: [u8; 6],
}

/// `struct rules`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RawRules {
    hold_after_bytes: u64,
    hold_pause: u64,
    hold_flush: u64,
    refresh_for: u64,
    hold_segments: u32,
    holds: u32,
    /// Bytes before the IP header: [`FRAME_LEN`] or 0.
    pub frame_len: u32,
    /// The mark of packets of user space's that go out.
    pub mark_out: u32,
    /// The mark of packets of user space's for the host itself.
    pub mark_in: u32,
    /// 1 if the time of a packet is what its timestamp says: for tests.
    pub test_clock: u32,
}

/// `struct key`: a connection, IPv4 addresses mapped (RFC 4291 section 2.5.5.2).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct RawKey {
    local: [u8; 16],
    remote: [u8; 16],
    local_port: [u8; 2],
    remote_port: [u8; 2],
}

/// `struct bulk`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawBulk {
    key: RawKey,
    next: u32,
    said: u64,
    stamps: u64,
    most: u32,
    state: u32,
}

/// Lines of `struct bulk`: two for each place.
pub const BULKS: u32 = 2 << BULK_PLACES_BITS;
const BULK_PLACES_BITS: u32 = 6;
const BULK_FREE: u32 = 0;
const BULK_DATA: u32 = 2;
const BULK_KIND: u32 = 0xff;

impl RawBulk {
    /// The number of the line of packets that go in `direction`. That of the other direction is its neighbour.
    pub fn number(key: &RawKey, way: Direction) -> u32 {
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let port = |bytes: [u8; 2]| u32::from(u16::from_le_bytes(bytes));
        let mixed =
            word(&key.local[12..]) ^ word(&key.remote[12..]) ^ (port(key.local_port) << 16 | port(key.remote_port));
        (mixed.wrapping_mul(0x9e37_79b1) >> (32 - BULK_PLACES_BITS)) << 1 | u32::from(raw_direction(way))
    }

    /// Whether packets of this connection are noted in it.
    pub fn goes_on_as(&self, key: &RawKey) -> bool {
        self.state & BULK_KIND >= BULK_DATA && self.key == *key
    }

    /// Whether it is nobody's.
    pub const fn is_free(&self) -> bool {
        self.state & BULK_KIND == BULK_FREE
    }

    /// Whose it is.
    pub const fn key(&self) -> RawKey {
        self.key
    }
}

/// `struct notice`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RawNotice {
    at: u64,
    key: RawKey,
    ack: u32,
    direction: u8,
    kind: u8,
    unused: u16,
}

/// What a notice of the eBPF program says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// Something about a half.
    Notice(Connection, Direction, Notice),
    /// A packet of this connection has come in over a link that is said to be down, or after a silence.
    Incoming(Connection),
    /// A packet of this connection has come in while that is news ([`FastLink::awaits_packets`]).
    Arrived(Connection),
}

/// `struct order`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawOrder {
    frame: [u8; FRAME_LEN],
    direction: u8,
    kind: u8,
    key: RawKey,
    a: u32,
    b: u32,
    unused: u32,
    c: u64,
    now: u64,
}

// The sizes that the program's structures have: `pahole` or the BTF of the object say them.
const _: () = assert!(size_of::<RawHalf>() == 544 && size_of::<RawLink>() == 64 && size_of::<RawRules>() == 56);
const _: () = assert!(
    size_of::<RawConnection>() == 1248
        && size_of::<RawKey>() == 36
        && size_of::<RawNotice>() == 56
        && size_of::<RawOrder>() == 80
        && size_of::<RawBulk>() == 64
);

impl RawConnection {
    /// A connection before its first packet.
    pub const BLANK: Self = Self {
        lock: 0,
        epoch: 0,
        outgoing: RawHalf::BLANK,
        incoming: RawHalf::BLANK,
        smoothed: 0,
        latest: 0,
        least: 0,
        stamped_at: 0,
        timed_at: 0,
        heard_at: 0,
        stamped: 0,
        timed: 0,
        nxt: 0,
        flags: 0,
        seen_at: 0,
        began_at: 0,
        bytes_in: 0,
        bytes_out: 0,
        withheld: 0,
        lowered: 0,
        host_isn: 0,
        host_fin: 0,
        peer_fin: 0,
        frame_out: [0; FRAME_LEN],
        frame_in: [0; FRAME_LEN],
        gone: 0,
        unused: [0; 3],
    };

    /// Whether nobody waits for anything on it any more: it was reset, or both have closed it and know it of each other.
    pub const fn is_over(&self) -> bool {
        let closed = GONE_HOST_FIN_ACKED | GONE_PEER_FIN_ACKED;
        self.gone & GONE_RESET != 0 || self.gone & closed == closed
    }

    /// Whether nothing has come from the peer yet.
    pub const fn is_unanswered(&self) -> bool {
        self.heard_at == 0
    }

    /// Whether it is left alone.
    pub const fn is_left_alone(&self) -> bool {
        self.gone & LEFT_ALONE != 0
    }

    /// Whether the shift of the windows of the host (`Outgoing`) or of the peer (`Incoming`) is not known.
    pub fn lacks_window_shift(&self, direction: Direction) -> bool {
        self.half(direction).window_shift == UNKNOWN_SHIFT
    }

    /// What the fast path makes of it, without what may go on unseen.
    pub fn fast(&self) -> FastConnection {
        let has = |flag| self.flags & flag != 0;
        FastConnection {
            outgoing: self.outgoing.fast(),
            incoming: self.incoming.fast(),
            round_trip: RoundTrip {
                smoothed: has(TRIP_SAMPLED).then_some(Duration::from_nanos(self.smoothed)),
                latest: Duration::from_nanos(self.latest),
                least: has(TRIP_SAMPLED).then_some(Duration::from_nanos(self.least)),
                stamped: has(TRIP_STAMPED).then_some((self.stamped, Instant::from_nanos(self.stamped_at))),
                timed: has(TRIP_TIMED).then_some((Seq::new(self.timed), Instant::from_nanos(self.timed_at))),
                nxt: has(TRIP_NXT).then_some(Seq::new(self.nxt)),
                heard_at: time(self.heard_at),
            },
            epoch: self.epoch,
            bulk: Bulks::default(),
        }
    }

    fn half(&self, direction: Direction) -> &RawHalf {
        match direction {
            Direction::Outgoing => &self.outgoing,
            Direction::Incoming => &self.incoming,
        }
    }
}

impl RawHalf {
    const BLANK: Self = Self {
        last_data_at: 0,
        advanced_at: 0,
        bytes_acked: 0,
        first_stamp_at: 0,
        newest_stamp_at: 0,
        flush_at: 0,
        hold_from: 0,
        refresh_at: 0,
        refresh_ticks_per_sec: 0,
        flight_since: 0,
        flight_from: 0,
        shown_lately: [RawShown { at: 0, ack: 0, unused: 0 }; ShownLately::MOST],
        runs: [RawRun { start: 0, end: 0, size: 0 }; SegmentRuns::MOST],
        sack: [RawBlock { start: 0, end: 0 }; MOST_BLOCKS],
        first_stamp: 0,
        newest_stamp: 0,
        acked: 0,
        shown: 0,
        longest_segment: 0,
        flushed_from: 0,
        refresh_stale: 0,
        refresh_value: 0,
        said_nxt: 0,
        said_ack: 0,
        said_val: 0,
        said_ecr: 0,
        said_window: 0,
        said_ttl: 0,
        said_class: 0,
        runs_len: 0,
        shown_len: 0,
        sack_len: 0,
        window_shift: UNKNOWN_SHIFT,
        flags: 0,
        flight_bytes: 0,
        shown_next: 0,
        unused: 0,
    };

    fn fast(&self) -> FastHalf {
        let has = |flag| self.flags & flag != 0;
        FastHalf {
            observed: self.observed(),
            flush_at: time(self.flush_at),
            hold_from: self.hold_from,
            flushed_from: has(HALF_FLUSHED).then_some(Seq::new(self.flushed_from)),
            is_drawn_in: has(HALF_DRAWN_IN),
            is_recording: has(HALF_RECORDING),
            is_clocked: has(HALF_CLOCKED),
            refresh: has(HALF_REFRESH).then_some(Refresh {
                stale: self.refresh_stale,
                value: self.refresh_value,
                at: Instant::from_nanos(self.refresh_at),
                ticks_per_sec: self.refresh_ticks_per_sec,
            }),
        }
    }

    fn observed(&self) -> Observed {
        let has = |flag| self.flags & flag != 0;
        let said = has(HALF_SAID).then_some(Last {
            nxt: Seq::new(self.said_nxt),
            ack: Seq::new(self.said_ack),
            window: self.said_window,
            timestamps: has(HALF_SAID_STAMPS).then_some(Timestamps { val: self.said_val, ecr: self.said_ecr }),
            ttl: self.said_ttl,
            traffic_class: self.said_class,
        });
        let sack: SackBlocks = self.sack[..usize::from(self.sack_len).min(MOST_BLOCKS)]
            .iter()
            .map(|block| SeqRange::new(Seq::new(block.start), Seq::new(block.end)))
            .collect();
        Observed {
            receiver: Spoken(said),
            ends: self.runs(),
            acked: has(HALF_ACKED).then_some(Seq::new(self.acked)),
            shown: Seq::new(self.shown),
            shown_lately: self.shown_lately(),
            bytes_acked: self.bytes_acked,
            sack,
            last_data_at: time(self.last_data_at),
            advanced_at: time(self.advanced_at),
            flight: Flight {
                bytes: self.flight_bytes,
                is_fast: has(HALF_FAST),
                since: time(self.flight_since),
                from: self.flight_from,
            },
            window_shift: (self.window_shift != UNKNOWN_SHIFT).then_some(self.window_shift),
            longest_segment: self.longest_segment,
            stamps: Stamps {
                first_at: Instant::from_nanos(self.first_stamp_at),
                newest_at: Instant::from_nanos(self.newest_stamp_at),
                first: self.first_stamp,
                newest: self.newest_stamp,
            },
            is_ending: has(HALF_ENDING),
            is_reset: has(HALF_RESET),
        }
    }

    fn runs(&self) -> SegmentRuns {
        let len = usize::from(self.runs_len).min(SegmentRuns::MOST);
        let mut runs = SegmentRuns { len: len as u8, ..SegmentRuns::default() };
        for (run, raw) in runs.runs[..len].iter_mut().zip(&self.runs) {
            *run = Run { start: Seq::new(raw.start), end: Seq::new(raw.end), size: raw.size };
        }
        runs
    }

    /// Oldest first: they are a ring.
    fn shown_lately(&self) -> ShownLately {
        let len = usize::from(self.shown_len).min(ShownLately::MOST);
        let first = (self.shown_next as usize).wrapping_sub(len);
        let mut shown = ShownLately { len: len as u8, ..ShownLately::default() };
        for (index, shown) in shown.acks[..len].iter_mut().enumerate() {
            let raw = &self.shown_lately[first.wrapping_add(index) % ShownLately::MOST];
            *shown = (Instant::from_nanos(raw.at), Seq::new(raw.ack));
        }
        shown
    }
}

impl RawLink {
    /// What the eBPF program must know of the link.
    pub fn new(link: &FastLink) -> Self {
        let nanos = |at: Option<Instant>| at.map_or(0, Instant::as_nanos);
        let stall = link.stall.as_ref();
        Self {
            down_at: nanos(link.down_at),
            up_at: nanos(link.up_at),
            stall_cut_at: nanos(stall.map(|stall| stall.cut_at)),
            stall_until: nanos(stall.map(|stall| stall.until)),
            // A lead of nothing is one of 1 ns.
            stall_lead: stall.and_then(|stall| stall.config.lead).map_or(0, |lead| lead.as_nanos().max(1)),
            expires_at: link.expires_at.as_nanos(),
            epoch: link.epoch,
            is_down: link.down_at.is_some().into(),
            has_up: link.up_at.is_some().into(),
            is_releasing: link.is_releasing.into(),
            has_stall: stall.is_some().into(),
            awaits_packets: link.awaits_packets.into(),
            listens: link.listens.into(),
            unused: [0; 6],
        }
    }
}

impl RawRules {
    /// What the eBPF program must know of the configuration.
    pub fn new(config: &WakeConfig) -> Self {
        let hold = config.hold_back;
        let nanos = |duration: Option<Duration>| duration.map_or(0, Duration::as_nanos);
        Self {
            hold_after_bytes: hold.map_or(0, |hold| hold.after_bytes),
            hold_pause: nanos(hold.map(|hold| hold.pause)),
            hold_flush: nanos(hold.map(|hold| hold.flush)),
            refresh_for: config.release.refresh_for.as_nanos(),
            hold_segments: hold.map_or(0, |hold| hold.segments.into()),
            holds: config.holds().into(),
            ..Self::default()
        }
    }
}

impl RawKey {
    /// The name of a connection.
    pub fn new(connection: Connection) -> Self {
        let Connection { local, remote } = connection;
        let octets = |address: SocketAddr| match address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        Self {
            local: octets(local),
            remote: octets(remote),
            local_port: local.port().to_be_bytes(),
            remote_port: remote.port().to_be_bytes(),
        }
    }

    /// The connection of this name.
    pub fn connection(&self) -> Connection {
        let address = |octets: [u8; 16], port| {
            let v6 = Ipv6Addr::from(octets);
            SocketAddr::new(v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4), u16::from_be_bytes(port))
        };
        Connection { local: address(self.local, self.local_port), remote: address(self.remote, self.remote_port) }
    }
}

const OUTGOING: u8 = 0;

fn raw_direction(direction: Direction) -> u8 {
    if direction == Direction::Outgoing { OUTGOING } else { 1 }
}

fn direction(raw: u8) -> Direction {
    if raw == OUTGOING { Direction::Outgoing } else { Direction::Incoming }
}

impl RawNotice {
    /// When the packet passed that it is about.
    pub fn at(&self) -> Instant {
        Instant::from_nanos(self.at)
    }

    /// What it says; `None` if it is none of ours.
    pub fn told(&self) -> Option<Told> {
        let ack = Seq::new(self.ack);
        let notice = match self.kind {
            1 => Notice::Held,
            2 => Notice::Stalled(ack),
            3 => Notice::Queued(ack),
            4 => Notice::Opened,
            5 => return Some(Told::Incoming(self.key.connection())),
            6 => return Some(Told::Arrived(self.key.connection())),
            _ => return None,
        };
        Some(Told::Notice(self.key.connection(), direction(self.direction), notice))
    }
}

impl RawOrder {
    /// An order for the half of a connection whose ACKs go in `direction`.
    pub fn new(now: Instant, connection: Connection, direction: Direction, order: Order) -> Self {
        let (kind, a, b, c) = match order {
            Order::Show(ack) => (1, ack.value(), 0, 0),
            Order::Flush { ack, hold_from } => (2, ack.value(), 0, hold_from),
            Order::Reopened => (3, 0, 0, 0),
            Order::Record(is_on) => (4, is_on.into(), 0, 0),
            Order::Clock(is_on) => (5, is_on.into(), 0, 0),
            Order::Refresh { stale, value, ticks_per_sec } => (6, stale, value, ticks_per_sec),
            Order::WindowShift(shift) => (7, shift.into(), 0, 0),
        };
        let direction = raw_direction(direction);
        Self { direction, kind, a, b, c, ..Self::blank(now, connection) }
    }

    /// An order to leave a connection alone, or not any more.
    pub fn leave_alone(now: Instant, connection: Connection, is_left_alone: bool) -> Self {
        Self { kind: 8, a: is_left_alone.into(), ..Self::blank(now, connection) }
    }

    /// What has only gone on since a connection was looked at is made good in the state of it.
    pub fn fold(key: RawKey) -> Self {
        Self { kind: 9, key, ..Self::NONE }
    }

    /// The same of one direction; and the line in which it was noted becomes free.
    pub fn free_bulk(key: RawKey, number: u32) -> Self {
        Self { kind: 10, key, direction: (number & 1) as u8, ..Self::NONE }
    }

    fn blank(now: Instant, connection: Connection) -> Self {
        Self { key: RawKey::new(connection), now: now.as_nanos(), ..Self::NONE }
    }

    const NONE: Self = Self {
        frame: [0; FRAME_LEN],
        direction: OUTGOING,
        kind: 0,
        key: RawKey { local: [0; 16], remote: [0; 16], local_port: [0; 2], remote_port: [0; 2] },
        a: 0,
        b: 0,
        unused: 0,
        c: 0,
        now: 0,
    };
}

fn time(nanos: u64) -> Option<Instant> {
    (nanos != 0).then_some(Instant::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_connection_is_one_of_which_nothing_is_known() {
        assert_eq!(RawConnection::BLANK.fast(), FastConnection::default());
    }

    #[test]
    fn a_key_names_its_connection() {
        for (local, remote) in [("192.0.2.1:80", "198.51.100.7:65535"), ("[2001:db8::1]:1", "[2001:db8::2]:443")] {
            let connection = Connection { local: local.parse().unwrap(), remote: remote.parse().unwrap() };
            assert_eq!(RawKey::new(connection).connection(), connection);
        }
    }
}
