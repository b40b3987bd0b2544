//! Records of flows for another gateway: the part of a [`Flow`] that is meaningful there, in at most [`FlowRecord::MAX_BYTES`].
//!
//! A record has the state that both ends have agreed on or shown: windows, sequence numbers, timestamps. Times are ages,
//! relative to the moment at which the record was made, as the clocks of two machines have nothing in common; the time on
//! its way makes them too recent, and so the estimate of a timestamp clock too old, which is the safe side. Not in it are
//! orders of a controller, except that a window stays shut, measurements in progress, and the rate of the flow.
//!
//! ```text
//! bytes    content, in network byte order
//!  1       version: 1
//!  1       flags: IPv4, round trips known, SND.NXT known, detailed, window of the fixed host shut until something new is acknowledged
//!  8 / 32  addresses of the fixed host and of the mobile host
//!  4       their ports
//! 13       stage, initial sequence number, ends of both FINs
//! 12       round trips in us: smoothed, shortest, shortest beyond the gateway
//!  8       SND.NXT of the fixed host; age of the last packet of the mobile host, in us
//! 42 + n   data towards the fixed host, and its ACKs
//! 42 + n   data towards the mobile host, and its ACKs
//! ```
//!
//! [`HalfRecord`] has the parts of the last two.

mod age;
mod fields;
mod half;

use holdover_base::Instant;
use holdover_filter::{Connection, Direction};

use crate::layout::{
    Flow, HALF_LIMITED, HALF_UNTIL_ACKED, HALF_UNTIL_HEARD, Key, STAGE_HOST_FIN, STAGE_HOST_FIN_ACKED, STAGE_ISN,
    STAGE_PEER_FIN, STAGE_PEER_FIN_ACKED, STAGE_RESET, TRIP_BEYOND, TRIP_NXT, TRIP_SAMPLED, UNKNOWN_SHIFT,
};
use age::{NEVER, age, low_and_high, micros, moment};
use fields::{Fields, Input};
use half::HalfRecord;

/// A flow as another gateway needs it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowRecord {
    key: Key,
    flags: u8,
    stage: u8,
    host_isn: u32,
    host_fin: u32,
    peer_fin: u32,
    smoothed: u32,
    least: u32,
    beyond: u32,
    nxt: u32,
    heard: u32,
    outgoing: HalfRecord,
    incoming: HalfRecord,
}

const IPV4: u8 = 0x1;
const SAMPLED: u8 = 0x2;
const HAS_NXT: u8 = 0x4;
const DETAILED: u8 = 0x8;
const SHUT: u8 = 0x10;

const STAGES: u32 =
    STAGE_ISN | STAGE_HOST_FIN | STAGE_PEER_FIN | STAGE_HOST_FIN_ACKED | STAGE_PEER_FIN_ACKED | STAGE_RESET;
const HAS_ISN: u8 = STAGE_ISN as u8;

/// Bytes of a SACK block, or of an ACK with its age.
const PAIR_BYTES: usize = 8;

/// The prefix of IPv4-mapped addresses (RFC 4291 section 2.5.5.2).
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl FlowRecord {
    /// The version that this code writes and reads.
    pub const VERSION: u8 = 1;

    /// The longest record (the paper on M-TCP has 500 bytes).
    pub const MAX_BYTES: usize = 256;

    /// The record of a flow at `now`; `None` for a connection that is closed, that has not been answered, or that a
    /// policy exempts. `is_detailed` says whether the flow table has more than its entry.
    pub fn of(now: Instant, connection: Connection, flow: &Flow, is_detailed: bool) -> Option<Self> {
        if flow.is_over() || flow.is_unanswered() || flow.is_exempt() {
            return None;
        }
        let key = Key::new(connection);
        let (outgoing, incoming) = (flow.half(Direction::Outgoing), flow.half(Direction::Incoming));
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let mut record = Self {
            key,
            flags: flag(is_ipv4(&key.local), IPV4)
                | flag(flow.has(TRIP_SAMPLED), SAMPLED)
                | flag(flow.has(TRIP_NXT), HAS_NXT)
                | flag(is_detailed, DETAILED)
                | flag(incoming.is_shut_until_acked() && !incoming.is_held(), SHUT),
            stage: (u32::from(flow.stage) & STAGES) as u8,
            host_isn: flow.host_isn,
            host_fin: flow.host_fin,
            peer_fin: flow.peer_fin,
            smoothed: micros(flow.smoothed()),
            least: micros(flow.least),
            beyond: micros(flow.beyond),
            nxt: flow.nxt,
            heard: age(now, flow.heard_nanos()),
            outgoing: HalfRecord::of(now, outgoing),
            incoming: HalfRecord::of(now, incoming),
        };
        // A host receives every ACK that the gateway beside it shows to it.
        record.incoming.shown_lately.clear();
        record.incoming.is_cut = false;
        record.shorten();
        Some(record)
    }

    /// Its connection; the remote end is the mobile host's.
    pub fn connection(&self) -> Connection {
        self.key.connection()
    }

    /// Whether the former flow table had more than the flow's entry.
    pub const fn is_detailed(&self) -> bool {
        self.flags & DETAILED != 0
    }

    /// Whether the fixed host's window stays shut until it is shown an ACK of something new.
    pub const fn is_shut(&self) -> bool {
        self.flags & SHUT != 0
    }

    /// The same record with an open window.
    pub fn opened(mut self) -> Self {
        self.flags &= !SHUT;
        self
    }

    /// The flow, with its times on the clock of `now`.
    pub fn revive(&self, now: Instant) -> Flow {
        let heard_at = moment(now, self.heard).max(1);
        let nanos = |micros: u32| u64::from(micros) * 1000;
        let flag = |flag: u8, is: u32| if self.flags & flag != 0 { is } else { 0 };
        let (heard_low, heard_era) = low_and_high(heard_at);
        let mut flow = Flow {
            latest: nanos(self.smoothed),
            least: nanos(self.least),
            heard_at: heard_low,
            heard_era,
            nxt: self.nxt,
            flags: (flag(SAMPLED, TRIP_SAMPLED)
                | flag(HAS_NXT, TRIP_NXT)
                | if self.beyond > 0 { TRIP_BEYOND } else { 0 }) as u16,
            beyond: nanos(self.beyond),
            began_at: heard_at,
            host_isn: self.host_isn,
            host_fin: self.host_fin,
            peer_fin: self.peer_fin,
            stage: self.stage.into(),
            ..Flow::new()
        };
        flow.set_smoothed(nanos(self.smoothed));
        self.outgoing.revive(now, &mut flow, Direction::Outgoing);
        self.incoming.revive(now, &mut flow, Direction::Incoming);
        if self.is_shut() {
            flow.incoming.flags |= HALF_LIMITED | HALF_UNTIL_HEARD | HALF_UNTIL_ACKED;
        }
        let data_at = Direction::BOTH.map(|direction| flow.half(direction).last_data_nanos());
        flow.seen_at = data_at.into_iter().fold(heard_at, u64::max);
        flow
    }

    /// Whether the record replaces a flow learned from packets here: it is of the same connection, contains everything that the flow knows,
    /// its end included, and knows more.
    pub fn supersedes(&self, known: &Flow) -> bool {
        let half = |direction| known.half(direction);
        let halves = [(&self.outgoing, half(Direction::Outgoing)), (&self.incoming, half(Direction::Incoming))];
        self.may_be(known)
            && known.stage & !u16::from(self.stage) == 0
            && halves.iter().all(|(record, half)| record.covers(*half))
            && halves.iter().any(|(record, half)| record.exceeds(*half))
    }

    /// The window shifts that a flow which packets have shown here lacks, by the direction of the ACKs.
    pub fn missing_shifts(&self, known: &Flow) -> impl Iterator<Item = (Direction, u8)> {
        let halves = [(Direction::Outgoing, &self.outgoing), (Direction::Incoming, &self.incoming)];
        let is_same =
            self.may_be(known) && halves.iter().all(|(direction, record)| record.is_near(known.half(*direction)));
        let missing = halves.map(|(direction, record)| {
            let half = known.half(direction);
            let is_new = is_same && half.lacks_window_shift() && u32::from(record.window_shift) != UNKNOWN_SHIFT;
            is_new.then_some((direction, record.window_shift))
        });
        missing.into_iter().flatten()
    }

    /// Whether a flow can be of the same connection. It is another one if the flow's SYN was seen here and the record lacks its number.
    fn may_be(&self, known: &Flow) -> bool {
        let has_isn = self.stage & HAS_ISN != 0;
        u32::from(known.stage) & STAGE_ISN == 0 || has_isn && self.host_isn == known.host_isn
    }

    /// The record as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::MAX_BYTES);
        // Writing does not fail.
        let _ = self.clone().pass_fields(&mut bytes);
        bytes
    }

    /// Parses a record; `None` for another version, and for values that no flow has.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut record = Self::default();
        let mut input = Input(bytes);
        if bytes.len() > Self::MAX_BYTES {
            return None;
        }
        record.pass_fields(&mut input)?;
        (input.0.is_empty() && record.is_valid()).then_some(record)
    }

    fn pass_fields(&mut self, fields: &mut impl Fields) -> Option<()> {
        let mut version = Self::VERSION;
        fields.u8(&mut version)?;
        if version != Self::VERSION {
            return None;
        }
        fields.u8(&mut self.flags)?;
        let Key { local, remote, local_port, remote_port } = &mut self.key;
        for address in [local, remote] {
            let mut from = 0;
            if self.flags & IPV4 != 0 {
                address[..MAPPED.len()].copy_from_slice(&MAPPED);
                from = MAPPED.len();
            }
            fields.bytes(&mut address[from..])?;
        }
        for port in [local_port, remote_port] {
            let mut host_order = u16::from_be(*port);
            fields.u16(&mut host_order)?;
            *port = host_order.to_be();
        }
        fields.u8(&mut self.stage)?;
        let Self { host_isn, host_fin, peer_fin, smoothed, least, beyond, nxt, heard, .. } = self;
        for number in [host_isn, host_fin, peer_fin, smoothed, least, beyond, nxt, heard] {
            fields.u32(number)?;
        }
        self.outgoing.pass_fields(fields)?;
        self.incoming.pass_fields(fields)
    }

    fn is_valid(&self) -> bool {
        let is_ipv4 = [&self.key.local, &self.key.remote].map(is_ipv4);
        self.flags & !(IPV4 | SAMPLED | HAS_NXT | DETAILED | SHUT) == 0
            && is_ipv4 == [self.flags & IPV4 != 0; 2]
            && u32::from(self.stage) & !STAGES == 0
            && self.heard != NEVER
            && self.outgoing.is_valid()
            && self.incoming.is_valid()
    }

    /// Drops SACK blocks and ACKs shown for which there is no room: the oldest ones.
    fn shorten(&mut self) {
        let Self { outgoing, incoming, .. } = self;
        let pairs = outgoing.sack.len() + incoming.sack.len() + outgoing.shown_lately.len();
        let mut room = (Self::MAX_BYTES + pairs * PAIR_BYTES).saturating_sub(self.to_bytes().len()) / PAIR_BYTES;
        let Self { outgoing, incoming, .. } = self;
        for sack in [&mut outgoing.sack, &mut incoming.sack] {
            sack.truncate(room);
            room -= sack.len();
        }
        outgoing.is_cut |= outgoing.shown_lately.len() > room;
        outgoing.shown_lately.truncate(room);
    }
}

fn is_ipv4(address: &[u8; 16]) -> bool {
    address.starts_with(&MAPPED)
}
