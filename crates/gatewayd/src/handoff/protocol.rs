//! The protocol between gateways for a mobile host that has moved from one to another, without I/O: the new gateway *claims* it, the old
//! one sends its buffered packets in order, and then their number.
//!
//! ```text
//!   new                                  old
//!    | <----- offer (epoch) ------------ |   optional: packets wait for a mobile host of the new one
//!    | -- claim (id, mobile, epoch) ---> |   gives it up; or refuses a claim whose epoch is not the latest
//!    | <----- packet (id, 0) ----------- |   at most [`WINDOW`] without an answer
//!    | <----- packet (id, 1) ----------- |
//!    | ------ got (id, 2) -------------> |   all before 2 have arrived
//!    | <----- end (id, 2) -------------- |   there are 2; 0 if nothing waits, or the mobile host is unknown
//!    | ------ got (id, 3) -------------> |   the end has arrived, too
//! ```
//!
//! A gateway that hears a broadcast of another one's mobile host *inquires* whether it is still there. The other one
//! answers only if it is not.
//!
//! Records of the mobile host's connections follow it beside its packets ([`super::records`]).
//!
//! Datagrams may get lost, doubled, late, and overtake each other: a claim is repeated until the first answer, packets and the end until they
//! are confirmed. The ids of a process's claims grow; an older claim than its last one about that mobile host changes nothing. Epochs are
//! those of [`crate::cluster`].
//!
//! A transfer that has begun is completed, also if the mobile host has moved on meanwhile: the old gateway ends it with the packets that
//! are in flight, and the new one passes them on. Packets in flight are lost only if a gateway is killed, or is unreachable for longer than
//! all retransmissions.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use holdover_base::Instant;
use holdover_flow::FlowRecord;
use holdover_gateway::handoff::Repeat;

use super::Transfers;
use super::message::{Body, Message};
use super::records::{Part, Records};
pub(crate) use super::transfer::Transfer;
use super::transfer::{MOST, WINDOW, repeat};
use crate::cluster::Epoch;

/// The most bytes of one mobile host in flight to another gateway.
const WINDOW_BYTES: usize = 128_000;

/// An event for the owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A peer claims this mobile host: pass its packets to [`Protocol::hand_on`], and then call [`Protocol::end`].
    Claimed { mobile: IpAddr },
    /// The same peer reads records of connections: pass them to [`Protocol::send_records`].
    RecordsWanted { transfer: Transfer },
    /// Records of connections of a mobile host that this gateway has claimed. `are_last` says that all of the peer have arrived.
    Records { mobile: IpAddr, bytes: Vec<u8>, are_last: bool },
    /// Records of connections that a peer has not confirmed, for which there was no room, or that came too late to follow the mobile host.
    RecordsLost { mobile: IpAddr, records: u32 },
    /// A packet for a mobile host that is here.
    Packet { mobile: IpAddr, bytes: Vec<u8> },
    /// All packets of a peer have arrived.
    Done { mobile: IpAddr, packets: u32 },
    /// A peer has not answered a claim (0 packets), or has not confirmed packets, and has stopped answering or was restarted.
    Lost { mobile: IpAddr, peer: SocketAddr, packets: u32 },
    /// Packets wait at a peer, which knows this gateway as the owner in this epoch.
    Offered { mobile: IpAddr, epoch: Epoch, peer: SocketAddr },
    /// A peer knows a later epoch than the one in this gateway's claim.
    Refused { mobile: IpAddr },
    /// A peer has heard a broadcast of a mobile host.
    Inquired { mobile: IpAddr, peer: SocketAddr },
    /// A mobile host about which this gateway has inquired is not at the peer.
    NotThere { mobile: IpAddr },
}

/// The protocol. Call [`Self::handle_message`], [`Self::claim`], [`Self::hand_on`], [`Self::end`] and [`Self::handle_timeout`]; then
/// [`Self::poll_event`] and [`Self::poll_transmit`] until `None`; then [`Self::poll_timeout`].
#[derive(Debug)]
pub(crate) struct Protocol {
    peers: Vec<SocketAddr>,
    last_id: u64,
    /// This gateway's claims.
    coming: BTreeMap<Transfer, Coming>,
    /// Packets for gateways that have claimed mobile hosts.
    leaving: BTreeMap<Transfer, Leaving>,
    /// The transfers that take further packets, which are not ended.
    open: BTreeMap<IpAddr, Transfer>,
    /// The last completed transfers to here, whose ends are confirmed again if they are repeated.
    completed: VecDeque<Transfer>,
    /// The last claim of each peer about each mobile host.
    claims: BTreeMap<(IpAddr, SocketAddr), u64>,
    /// Whether claims ask for records of connections.
    wants_records: bool,
    records: Records,
    events: VecDeque<Event>,
    messages: VecDeque<(SocketAddr, Message)>,
}

#[derive(Clone, Debug)]
struct Coming {
    epoch: Epoch,
    /// All before this number have arrived.
    next: u32,
    /// Packets after it, or the end.
    early: BTreeMap<u32, Option<Vec<u8>>>,
    /// Whether the peer has answered at all.
    is_answered: bool,
    repeat: Repeat,
}

#[derive(Debug)]
struct Leaving {
    /// Unconfirmed packets.
    unconfirmed: VecDeque<Vec<u8>>,
    /// The number of the first of them.
    first: u32,
    /// Whether the end was sent.
    is_ended: bool,
    /// Whether the peer reads records of connections.
    takes_records: bool,
    /// Datagrams of these so far.
    records: u8,
    repeat: Repeat,
}

impl Leaving {
    /// The number after that of the last packet.
    fn end(&self) -> u32 {
        self.first + self.unconfirmed.len() as u32
    }

    /// Whether a confirmation is expected.
    fn waits(&self) -> bool {
        self.is_ended || !self.unconfirmed.is_empty()
    }
}

impl Protocol {
    /// Without any handoff.
    pub(crate) fn new(peers: Vec<SocketAddr>) -> Self {
        Self {
            peers,
            last_id: 0,
            coming: BTreeMap::new(),
            leaving: BTreeMap::new(),
            open: BTreeMap::new(),
            completed: VecDeque::new(),
            claims: BTreeMap::new(),
            wants_records: false,
            records: Records::default(),
            events: VecDeque::new(),
            messages: VecDeque::new(),
        }
    }

    /// Replaces the peers.
    pub(crate) fn set_peers(&mut self, peers: Vec<SocketAddr>) {
        self.peers = peers;
    }

    /// Claims ask for records of connections from now on.
    pub(crate) fn want_records(&mut self) {
        self.wants_records = true;
    }

    /// A mobile host has appeared here: requests its packets from these peers.
    pub(crate) fn claim(&mut self, now: Instant, mobile: IpAddr, epoch: Epoch, from: &[SocketAddr]) {
        // Packets and records that have not left yet stay here.
        self.end(now, mobile);
        for bytes in self.records.take_back(mobile) {
            self.events.push_back(Event::Records { mobile, bytes, are_last: true });
        }
        if self.coming.len() + from.len() > MOST {
            return;
        }
        self.last_id += 1;
        let id = self.last_id;
        if self.wants_records {
            self.records.want(mobile, id);
        }
        let records = self.records_version();
        for &peer in from {
            let (early, repeat) = (BTreeMap::new(), repeat(now));
            self.coming.insert((mobile, peer, id), Coming { epoch, next: 0, early, is_answered: false, repeat });
            self.messages.push_back((peer, Message { id, mobile, body: Body::Claim { epoch, records } }));
        }
    }

    fn records_version(&self) -> u8 {
        if self.wants_records { FlowRecord::VERSION } else { 0 }
    }

    /// Packets wait here for a mobile host that a peer owns. Not repeated.
    pub(crate) fn offer(&mut self, mobile: IpAddr, epoch: Epoch, peer: SocketAddr) {
        self.messages.push_back((peer, Message { id: 0, mobile, body: Body::Offer { epoch } }));
    }

    /// A broadcast of a peer's mobile host was heard here. Not repeated.
    pub(crate) fn inquire(&mut self, mobile: IpAddr, peer: SocketAddr) {
        self.messages.push_back((peer, Message { id: 0, mobile, body: Body::Inquiry }));
    }

    /// The mobile host of a peer's inquiry is not here.
    pub(crate) fn answer_inquiry(&mut self, mobile: IpAddr, peer: SocketAddr) {
        self.messages.push_back((peer, Message { id: 0, mobile, body: Body::NotThere }));
    }

    /// Refuses a claim: a later epoch is known.
    pub(crate) fn refuse(&mut self, peer: SocketAddr, id: u64, mobile: IpAddr, epoch: Epoch) {
        self.messages.push_back((peer, Message { id, mobile, body: Body::Refused { epoch } }));
    }

    /// Whether the packets of a mobile host go to another gateway.
    pub(crate) fn is_leaving(&self, mobile: IpAddr) -> bool {
        self.open.contains_key(&mobile)
    }

    /// Whether packets of a mobile host may still arrive that are to be passed on, that is from another gateway than the one they go to.
    pub(crate) fn is_arriving(&self, mobile: IpAddr) -> bool {
        let to = self.open.get(&mobile).map(|(_, to, _)| *to);
        self.coming_of(mobile).any(|((_, from, _), _)| Some(*from) != to)
    }

    fn coming_of(&self, mobile: IpAddr) -> impl Iterator<Item = (&Transfer, &Coming)> {
        let lowest = SocketAddr::from(([0; 4], 0));
        self.coming.range((mobile, lowest, 0)..).take_while(move |((other, ..), _)| *other == mobile)
    }

    /// A packet for a mobile host that another gateway has claimed. Returns whether there was room: if not, try again
    /// later.
    pub(crate) fn hand_on(&mut self, now: Instant, mobile: IpAddr, bytes: Vec<u8>) -> bool {
        let Some(&(_, to, id)) = self.open.get(&mobile) else { return false };
        let Some(leaving) = self.leaving.get_mut(&(mobile, to, id)) else { return false };
        let bytes_under_way: usize = leaving.unconfirmed.iter().map(Vec::len).sum();
        if leaving.unconfirmed.len() >= WINDOW || bytes_under_way >= WINDOW_BYTES {
            return false;
        }
        if leaving.unconfirmed.is_empty() {
            leaving.repeat = repeat(now);
        }
        let place = leaving.end();
        leaving.unconfirmed.push_back(bytes.clone());
        self.messages.push_back((to, Message { id, mobile, body: Body::Packet { place, bytes } }));
        true
    }

    /// Sends records of connections of a mobile host by the claim that has asked for them.
    pub(crate) fn send_records(&mut self, now: Instant, transfer: Transfer, parts: Vec<Part>) {
        let sent = self.leaving.get(&transfer).map_or(0, |leaving| leaving.records);
        let sent = self.records.send(now, transfer, sent, parts, &mut self.messages);
        self.note_lost_records();
        if let Some(leaving) = self.leaving.get_mut(&transfer) {
            leaving.records = sent;
        }
    }

    fn note_lost_records(&mut self) {
        let lost = std::iter::from_fn(|| self.records.poll_lost());
        self.events.extend(lost.map(|(mobile, records)| Event::RecordsLost { mobile, records }));
    }

    /// Records have come late for a mobile host that another gateway has claimed since: they follow it if its packets still do, and if that
    /// gateway takes records.
    pub(crate) fn pass_records_on(&mut self, now: Instant, mobile: IpAddr, bytes: Vec<u8>) {
        let part = Part::again(bytes);
        let takes_records =
            |transfer: &Transfer| self.leaving.get(transfer).is_some_and(|leaving| leaving.takes_records);
        match self.open.get(&mobile).copied().filter(takes_records) {
            Some(transfer) => self.send_records(now, transfer, vec![part]),
            None => self.events.push_back(Event::RecordsLost { mobile, records: part.records() }),
        }
    }

    /// Whether records of connections are not confirmed yet.
    pub(crate) fn are_records_under_way(&self) -> bool {
        self.records.are_under_way()
    }

    /// All packets of a claimed mobile host were passed on.
    pub(crate) fn end(&mut self, now: Instant, mobile: IpAddr) {
        let Some((_, to, id)) = self.open.remove(&mobile) else { return };
        let Some(leaving) = self.leaving.get_mut(&(mobile, to, id)) else { return };
        leaving.is_ended = true;
        if leaving.unconfirmed.is_empty() {
            leaving.repeat = repeat(now);
        }
        self.messages.push_back((to, Message { id, mobile, body: Body::End { place: leaving.end() } }));
    }

    /// A peer was restarted: it has lost the state of handoffs, and its ids restart.
    pub(crate) fn handle_new_session(&mut self, now: Instant, peer: SocketAddr) {
        self.claims.retain(|(_, other), _| *other != peer);
        let transfers = self.leaving.extract_if(.., |(_, to, _), _| *to == peer);
        let lost: Vec<(Transfer, Leaving)> = transfers.collect();
        lost.into_iter().for_each(|(transfer, leaving)| self.abandon(transfer, &leaving));
        self.records.handle_new_session(peer);
        self.note_lost_records();
        // It does not continue transfers that it had begun, and offers the packets again.
        self.coming.retain(|(_, other, _), coming| *other != peer || !coming.is_answered);
        // Its first answer may have been lost with the former session.
        for ((_, other, _), coming) in &mut self.coming {
            if *other == peer {
                coming.repeat.at = Some(now);
            }
        }
    }

    /// Handles a message of a peer.
    pub(crate) fn handle_message(&mut self, now: Instant, peer: SocketAddr, message: Message) {
        if !self.peers.contains(&peer) {
            return;
        }
        let Message { id, mobile, body } = message;
        match body {
            Body::Claim { records, .. } => self.handle_claim(now, peer, id, mobile, records >= FlowRecord::VERSION),
            Body::Offer { epoch } => {
                // Otherwise its packets are on the way.
                if !self.coming_of(mobile).any(|((_, other, _), _)| *other == peer) {
                    self.events.push_back(Event::Offered { mobile, epoch, peer });
                }
            }
            Body::Refused { .. } => {
                if self.coming.remove(&(mobile, peer, id)).is_some() {
                    self.events.push_back(Event::Refused { mobile });
                }
            }
            Body::Inquiry => self.events.push_back(Event::Inquired { mobile, peer }),
            Body::NotThere => self.events.push_back(Event::NotThere { mobile }),
            Body::Got { place } => self.handle_got(now, peer, id, mobile, place),
            Body::Packet { place, bytes } => self.handle_part(now, peer, id, mobile, place, Some(bytes)),
            Body::End { place } => self.handle_part(now, peer, id, mobile, place, None),
            Body::Records { number, of, bytes } => self.handle_records((mobile, peer, id), (number, of), bytes),
            Body::GotRecords { number } => {
                self.records.handle_got(now, (mobile, peer, id), number, &mut self.messages);
            }
        }
    }

    fn handle_records(&mut self, transfer: Transfer, (number, of): (u8, u8), bytes: Vec<u8>) {
        let Some((are_new, are_last)) = self.records.handle_part(transfer, number, of) else { return };
        let (mobile, peer, id) = transfer;
        if are_new {
            self.events.push_back(Event::Records { mobile, bytes, are_last });
        }
        self.messages.push_back((peer, Message { id, mobile, body: Body::GotRecords { number } }));
    }

    fn handle_claim(&mut self, now: Instant, peer: SocketAddr, id: u64, mobile: IpAddr, takes_records: bool) {
        let last = self.claims.get(&(mobile, peer)).copied().unwrap_or(0);
        if id <= last || self.leaving.contains_key(&(mobile, peer, id)) {
            // A duplicate: the answer is in flight, or was confirmed.
            return;
        }
        if self.leaving.len() >= MOST {
            // Its repetition may find room.
            return;
        }
        if self.claims.len() >= MOST {
            self.claims.pop_first();
        }
        self.claims.insert((mobile, peer), id);
        // It has moved on from the gateway that had claimed it before.
        self.end(now, mobile);
        self.records.note_left(mobile);
        let repeat = repeat(now);
        let leaving =
            Leaving { unconfirmed: VecDeque::new(), first: 0, is_ended: false, takes_records, records: 0, repeat };
        let transfer = (mobile, peer, id);
        self.leaving.insert(transfer, leaving);
        self.open.insert(mobile, transfer);
        self.events.push_back(Event::Claimed { mobile });
        if takes_records {
            self.events.push_back(Event::RecordsWanted { transfer });
            // The gateway that had claimed it before may never confirm them.
            let unconfirmed: Vec<Part> = self.records.take_back(mobile).into_iter().map(Part::again).collect();
            if !unconfirmed.is_empty() {
                self.send_records(now, transfer, unconfirmed);
            }
        }
    }

    fn handle_got(&mut self, now: Instant, peer: SocketAddr, id: u64, mobile: IpAddr, place: u32) {
        let Some(leaving) = self.leaving.get_mut(&(mobile, peer, id)) else { return };
        let end = leaving.end();
        if place <= leaving.first && !(leaving.is_ended && place == end + 1)
            || place > end + u32::from(leaving.is_ended)
        {
            return;
        }
        leaving.unconfirmed.drain(..(place.min(end) - leaving.first) as usize);
        leaving.first = place.min(end);
        leaving.repeat = repeat(now);
        if leaving.is_ended && place == end + 1 {
            self.leaving.remove(&(mobile, peer, id));
        }
    }

    /// A packet, or the end, of a claimed mobile host.
    fn handle_part(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        id: u64,
        mobile: IpAddr,
        place: u32,
        bytes: Option<Vec<u8>>,
    ) {
        let confirm = |place| (peer, Message { id, mobile, body: Body::Got { place } });
        let Some(coming) = self.coming.get_mut(&(mobile, peer, id)) else {
            // The confirmation of the end was lost. Packets of unknown transfers are not wanted here.
            if bytes.is_none() && self.completed.contains(&(mobile, peer, id)) {
                self.messages.push_back(confirm(place.saturating_add(1)));
            }
            return;
        };
        (coming.is_answered, coming.repeat) = (true, repeat(now));
        // The end may follow a whole window.
        if (coming.next..=coming.next.saturating_add(WINDOW as u32)).contains(&place) {
            coming.early.insert(place, bytes);
        }
        let mut is_done = false;
        while let Some(part) = coming.early.remove(&coming.next) {
            is_done = part.is_none();
            self.events.push_back(match part {
                Some(bytes) => Event::Packet { mobile, bytes },
                None => Event::Done { mobile, packets: coming.next },
            });
            coming.next += 1;
        }
        self.messages.push_back(confirm(coming.next));
        if is_done {
            self.coming.remove(&(mobile, peer, id));
            self.completed.truncate(MOST - 1);
            self.completed.push_front((mobile, peer, id));
        }
    }

    /// Retransmits unanswered messages.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.records.handle_timeout(now, &mut self.messages);
        self.note_lost_records();
        let records = self.records_version();
        let mut given_up = Vec::new();
        for (&(mobile, peer, id), coming) in self.coming.iter_mut().filter(|(_, coming)| coming.repeat.is_due(now)) {
            if !coming.repeat.is_due_again(now) {
                given_up.push((mobile, peer, id));
            } else if !coming.is_answered {
                let body = Body::Claim { epoch: coming.epoch, records };
                self.messages.push_back((peer, Message { id, mobile, body }));
            }
        }
        for (mobile, peer, id) in given_up {
            self.coming.remove(&(mobile, peer, id));
            self.events.push_back(Event::Lost { mobile, peer, packets: 0 });
        }
        let mut given_up = Vec::new();
        for (&(mobile, to, id), leaving) in self.leaving.iter_mut().filter(|(_, leaving)| leaving.repeat.is_due(now)) {
            if !leaving.waits() {
                leaving.repeat = repeat(now);
                continue;
            }
            if !leaving.repeat.is_due_again(now) {
                given_up.push((mobile, to, id));
                continue;
            }
            for (place, bytes) in (leaving.first..).zip(&leaving.unconfirmed) {
                self.messages
                    .push_back((to, Message { id, mobile, body: Body::Packet { place, bytes: bytes.clone() } }));
            }
            if leaving.is_ended {
                self.messages.push_back((to, Message { id, mobile, body: Body::End { place: leaving.end() } }));
            }
        }
        for transfer in given_up {
            if let Some(leaving) = self.leaving.remove(&transfer) {
                self.abandon(transfer, &leaving);
            }
        }
    }

    /// A transfer was given up.
    fn abandon(&mut self, transfer: Transfer, leaving: &Leaving) {
        let (mobile, peer, _) = transfer;
        if self.open.get(&mobile) == Some(&transfer) {
            self.open.remove(&mobile);
        }
        let packets = leaving.unconfirmed.len() as u32;
        if packets > 0 {
            self.events.push_back(Event::Lost { mobile, peer, packets });
        }
    }

    /// Ends all transfers to other gateways. Returns the packets of each mobile host that were not confirmed, in order.
    pub(crate) fn take_unconfirmed(&mut self) -> BTreeMap<IpAddr, Vec<Vec<u8>>> {
        self.open.clear();
        self.records.clear();
        let mut packets = BTreeMap::<IpAddr, Vec<Vec<u8>>>::new();
        for ((mobile, ..), leaving) in std::mem::take(&mut self.leaving) {
            packets.entry(mobile).or_default().extend(leaving.unconfirmed);
        }
        packets.retain(|_, packets| !packets.is_empty());
        packets
    }

    /// Packets that were passed on and are not confirmed.
    pub(crate) fn unconfirmed(&self) -> u64 {
        self.leaving.values().map(|leaving| leaving.unconfirmed.len() as u64).sum()
    }

    /// The next event for the owner.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next message, and its destination.
    pub(crate) fn poll_transmit(&mut self) -> Option<(SocketAddr, Message)> {
        self.messages.pop_front()
    }

    /// The next deadline.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let coming = self.coming.values().filter_map(|coming| coming.repeat.at);
        let leaving = self.leaving.values().filter_map(|leaving| leaving.repeat.at);
        coming.chain(leaving).chain(self.records.poll_timeout()).min()
    }
}

impl Transfers for Protocol {
    fn is_leaving(&self, mobile: IpAddr) -> bool {
        Self::is_leaving(self, mobile)
    }

    fn is_arriving(&self, mobile: IpAddr) -> bool {
        Self::is_arriving(self, mobile)
    }

    fn end(&mut self, now: Instant, mobile: IpAddr) {
        Self::end(self, now, mobile);
    }

    fn offer(&mut self, mobile: IpAddr, epoch: Epoch, peer: SocketAddr) {
        Self::offer(self, mobile, epoch, peer);
    }

    fn inquire(&mut self, mobile: IpAddr, peer: SocketAddr) {
        Self::inquire(self, mobile, peer);
    }
}
