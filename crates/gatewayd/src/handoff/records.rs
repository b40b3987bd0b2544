//! Records of a mobile host's connections on their way between gateways, without I/O. They are datagrams of their own beside the packets
//! of a transfer ([`super::protocol`]): neither waits for the other, and their order does not matter.
//!
//! ```text
//!   new                                        old
//!    | -- claim (id, mobile, epoch, version) --> |   the new gateway reads records up to this version; 0 for none
//!    | <----- records (id, 0 of 2) ------------- |   at most [`WINDOW`] without an answer
//!    | <----- records (id, 1 of 2) ------------- |
//!    | ------ got records (id, 0) -------------> |
//!    | ------ got records (id, 1) -------------> |
//! ```
//!
//! Each is repeated until it is confirmed, and counts once. If another gateway claims the mobile host first, or a restarted one claims it
//! again, unconfirmed records are sent by that claim instead. A gateway that gives up, a claim without a version, and a gateway that does
//! not know these messages leave the new gateway to learn the connections from their packets.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use holdover_base::{Duration, Instant};
use holdover_flow::FlowRecord;
use holdover_gateway::handoff::Repeat;

use super::message::{Body, Message};
use super::transfer::{MOST, Transfer, WINDOW, repeat};

/// The most datagrams of records of one transfer: as many as their numbers have bits in [`Wanted`].
const MOST_PARTS: u8 = 64;

/// The id of records for a process that has ended. They are sent only by a later claim. Ids of claims are larger.
const NO_CLAIM: u64 = 0;

/// The most records of one mobile host: so many long ones fit [`MOST_PARTS`].
pub(crate) const MOST_RECORDS: usize = 256;

/// The most bytes of records in a datagram, so that IP does not fragment it: with the message's header and the seal 1,400.
const PART_BYTES: usize = 1280;

/// The most bytes of unconfirmed records of all mobile hosts. Records beyond it are not sent.
const MOST_BYTES: usize = 8 << 20;

/// The transfers of one mobile host whose datagrams of records are remembered: the latest ones.
const MOST_SENDERS: usize = 64;

/// Records in a datagram: the age of the last packet of the mobile host at the sender, in microseconds (4 bytes), and each record, after
/// its length (2 bytes).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    bytes: Vec<u8>,
    records: u32,
}

impl Part {
    /// Records as datagrams. `since` is when the mobile host was last heard.
    pub(crate) fn pack(now: Instant, since: Instant, records: &[FlowRecord]) -> Vec<Self> {
        let micros = now.saturating_since(since).as_micros();
        let header = u32::try_from(micros).unwrap_or(u32::MAX).to_be_bytes();
        let mut parts: Vec<Self> = Vec::new();
        for record in records.iter().map(FlowRecord::to_bytes) {
            let len = (record.len() as u16).to_be_bytes();
            let has_room = |part: &&mut Self| part.bytes.len() + len.len() + record.len() <= PART_BYTES;
            match parts.last_mut().filter(has_room) {
                Some(part) => {
                    part.bytes.extend(len.iter().chain(&record));
                    part.records += 1;
                }
                None => parts.push(Self { bytes: [&header[..], &len, &record].concat(), records: 1 }),
            }
        }
        parts
    }

    /// The same datagram for the next gateway.
    pub(crate) fn again(bytes: Vec<u8>) -> Self {
        let records = unpack(Instant::ZERO, &bytes).map_or(0, |(_, records)| records.len() as u32);
        Self { bytes, records }
    }

    /// The number of its records.
    pub(super) const fn records(&self) -> u32 {
        self.records
    }
}

/// When the mobile host was last heard at the former gateway, and the records of its connections, except those of another version and
/// invalid ones. `None` if the bytes are no records.
pub(crate) fn unpack(now: Instant, bytes: &[u8]) -> Option<(Instant, Vec<FlowRecord>)> {
    let (micros, mut rest) = bytes.split_first_chunk::<4>()?;
    let ago = Duration::from_micros(u32::from_be_bytes(*micros).into());
    let mut records = Vec::new();
    while !rest.is_empty() {
        let (len, after) = rest.split_first_chunk::<2>()?;
        let (record, after) = after.split_at_checked(u16::from_be_bytes(*len).into())?;
        records.extend(FlowRecord::from_bytes(record));
        rest = after;
    }
    // 0 means never in the flow path.
    Some((Instant::from_nanos(now.as_nanos().saturating_sub(ago.as_nanos()).max(1)), records))
}

/// The state of all records under way.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Records for other gateways.
    outboxes: BTreeMap<Transfer, Outbox>,
    /// Bytes of these.
    bytes: usize,
    /// The claims about each mobile host by which records may arrive.
    wanted: BTreeMap<IpAddr, Wanted>,
    lost: VecDeque<(IpAddr, u32)>,
}

/// Records for a gateway that has claimed a mobile host.
#[derive(Debug)]
struct Outbox {
    /// Those that are not confirmed, by their numbers.
    parts: BTreeMap<u8, Part>,
    /// The number of the next datagram to be sent for the first time.
    next: u8,
    /// How many datagrams there are in all.
    all: u8,
    repeat: Repeat,
}

/// This process's claims about a mobile host since the host has come.
#[derive(Debug)]
struct Wanted {
    first: u64,
    last: u64,
    /// Another gateway has claimed it since.
    has_left: bool,
    /// Which numbers have arrived, by sender and claim.
    arrived: BTreeMap<(SocketAddr, u64), u64>,
}

impl Records {
    /// Records of a claim are expected.
    pub(super) fn want(&mut self, mobile: IpAddr, id: u64) {
        if self.wanted.len() >= MOST && !self.wanted.contains_key(&mobile) {
            let oldest = self.wanted.iter().min_by_key(|(_, wanted)| wanted.last);
            if let Some(oldest) = oldest.map(|(&mobile, _)| mobile) {
                self.wanted.remove(&oldest);
            }
        }
        let anew = || Wanted { first: id, last: id, has_left: false, arrived: BTreeMap::new() };
        let wanted = self.wanted.entry(mobile).or_insert_with(anew);
        if wanted.has_left {
            *wanted = anew();
        }
        wanted.last = id;
    }

    /// Another gateway has claimed a mobile host.
    pub(super) fn note_left(&mut self, mobile: IpAddr) {
        if let Some(wanted) = self.wanted.get_mut(&mobile) {
            wanted.has_left = true;
        }
    }

    /// A mobile host is back, or has moved on: removes its unconfirmed records and returns them.
    pub(super) fn take_back(&mut self, mobile: IpAddr) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        for (_, outbox) in self.outboxes.extract_if(.., |(other, ..), _| *other == mobile) {
            taken.extend(outbox.parts.into_values().map(|part| part.bytes));
        }
        self.bytes -= taken.iter().map(Vec::len).sum::<usize>();
        taken
    }

    /// Sends records. `sent` is the number of datagrams of records sent before in this transfer; returns the number with these.
    pub(super) fn send(
        &mut self,
        now: Instant,
        transfer: Transfer,
        sent: u8,
        parts: Vec<Part>,
        messages: &mut VecDeque<(SocketAddr, Message)>,
    ) -> u8 {
        let anew = || Outbox { parts: BTreeMap::new(), next: sent, all: sent, repeat: repeat(now) };
        let outbox = self.outboxes.entry(transfer).or_insert_with(anew);
        let mut lost = 0;
        for part in parts {
            if outbox.all >= MOST_PARTS || self.bytes + part.bytes.len() > MOST_BYTES {
                lost += part.records;
                continue;
            }
            self.bytes += part.bytes.len();
            outbox.parts.insert(outbox.all, part);
            outbox.all += 1;
        }
        let all = outbox.all;
        outbox.send_more(transfer, messages);
        self.drop_if_done(transfer);
        if lost > 0 {
            self.lost.push_back((transfer.0, lost));
        }
        all
    }

    /// A peer has confirmed records.
    pub(super) fn handle_got(
        &mut self,
        now: Instant,
        transfer: Transfer,
        number: u8,
        messages: &mut VecDeque<(SocketAddr, Message)>,
    ) {
        let Some(outbox) = self.outboxes.get_mut(&transfer) else { return };
        let Some(part) = outbox.parts.remove(&number) else { return };
        self.bytes -= part.bytes.len();
        outbox.repeat = repeat(now);
        outbox.send_more(transfer, messages);
        self.drop_if_done(transfer);
    }

    /// Whether records that have come are new, and whether they are the last ones of their transfer; `None` if they are not expected.
    pub(super) fn handle_part(&mut self, (mobile, peer, id): Transfer, number: u8, of: u8) -> Option<(bool, bool)> {
        let wanted = self.wanted.get_mut(&mobile).filter(|wanted| (wanted.first..=wanted.last).contains(&id))?;
        if number >= of.min(MOST_PARTS) {
            return None;
        }
        if wanted.arrived.len() >= MOST_SENDERS && !wanted.arrived.contains_key(&(peer, id)) {
            // If its records come again, they change nothing.
            let oldest = wanted.arrived.keys().min_by_key(|(_, id)| *id).copied();
            if let Some(oldest) = oldest {
                wanted.arrived.remove(&oldest);
            }
        }
        let arrived = wanted.arrived.entry((peer, id)).or_default();
        let is_new = *arrived & 1 << number == 0;
        *arrived |= 1 << number;
        Some((is_new, arrived.count_ones() >= of.into()))
    }

    /// A peer was restarted: it does not know the claims of its former process. Their records wait for its next claim, for as long as they
    /// would have been repeated.
    pub(super) fn handle_new_session(&mut self, peer: SocketAddr) {
        let of_former = |&(_, to, id): &Transfer, _: &mut Outbox| to == peer && id != NO_CLAIM;
        let former: Vec<(Transfer, Outbox)> = self.outboxes.extract_if(.., of_former).collect();
        for ((mobile, ..), outbox) in former {
            self.abandon((mobile, peer, NO_CLAIM));
            self.outboxes.insert((mobile, peer, NO_CLAIM), outbox);
        }
    }

    /// Repeats unconfirmed records.
    pub(super) fn handle_timeout(&mut self, now: Instant, messages: &mut VecDeque<(SocketAddr, Message)>) {
        let mut given_up = Vec::new();
        for (&transfer, outbox) in self.outboxes.iter_mut().filter(|(_, outbox)| outbox.repeat.is_due(now)) {
            if !outbox.repeat.is_due_again(now) {
                given_up.push(transfer);
            } else if transfer.2 != NO_CLAIM {
                let numbers: Vec<u8> = outbox.parts.range(..outbox.next).map(|(&number, _)| number).collect();
                messages.extend(numbers.into_iter().filter_map(|number| outbox.message(transfer, number)));
            }
        }
        given_up.into_iter().for_each(|transfer| self.abandon(transfer));
    }

    /// The process ends.
    pub(super) fn clear(&mut self) {
        self.outboxes.clear();
        self.bytes = 0;
    }

    /// Whether records are not confirmed yet.
    pub(super) fn are_under_way(&self) -> bool {
        !self.outboxes.is_empty()
    }

    /// A mobile host and a number of its records that were not confirmed, or for which there was no room.
    pub(super) fn poll_lost(&mut self) -> Option<(IpAddr, u32)> {
        self.lost.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.outboxes.values().filter_map(|outbox| outbox.repeat.at).min()
    }

    fn drop_if_done(&mut self, transfer: Transfer) {
        if self.outboxes.get(&transfer).is_some_and(|outbox| outbox.parts.is_empty()) {
            self.outboxes.remove(&transfer);
        }
    }

    fn abandon(&mut self, transfer: Transfer) {
        let Some(outbox) = self.outboxes.remove(&transfer) else { return };
        self.bytes -= outbox.parts.values().map(|part| part.bytes.len()).sum::<usize>();
        let records = outbox.parts.values().map(|part| part.records).sum();
        self.lost.push_back((transfer.0, records));
    }
}

impl Outbox {
    fn send_more(&mut self, transfer: Transfer, messages: &mut VecDeque<(SocketAddr, Message)>) {
        while self.next < self.all && self.parts.range(..self.next).count() < WINDOW {
            messages.extend(self.message(transfer, self.next));
            self.next += 1;
        }
    }

    fn message(&self, (mobile, to, id): Transfer, number: u8) -> Option<(SocketAddr, Message)> {
        let bytes = self.parts.get(&number)?.bytes.clone();
        Some((to, Message { id, mobile, body: Body::Records { number, of: self.all, bytes } }))
    }
}
