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
//! Datagrams may be lost, duplicated, delayed and reordered: a claim is repeated until the first answer, packets and the end until they are
//! confirmed. The ids of a process's claims grow; a claim older than its last one for the same mobile host is ignored. Epochs are those of
//! [`crate::cluster`].

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use holdover_base::{Duration, Instant};

/// The most packets of one mobile host in flight to another gateway.
const WINDOW: usize = 16;

/// The time until the first retransmission; it doubles with each.
const REPEAT_AFTER: Duration = Duration::from_millis(100);

/// The most transmissions: 6.3 s in all. Then the other gateway is given up.
const TRIES: u32 = 7;

/// The most bytes of one mobile host in flight to another gateway.
const WINDOW_BYTES: usize = 128_000;

/// The most mobile hosts that move at the same time.
const MOST: usize = 4096;

/// The epoch in which a gateway owns a mobile host. The default belongs to no store: there is no cluster.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Epoch {
    /// The cluster id of the store.
    pub(crate) store: u64,
    /// The store's revision.
    pub(crate) revision: u64,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) id: u64,
    pub(crate) mobile: IpAddr,
    pub(crate) body: Body,
}

/// The content of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// The sender owns the mobile host in this epoch.
    Claim { epoch: Epoch },
    /// Packets wait for a mobile host that the receiver owns, as far as the sender knows, in this epoch.
    Offer { epoch: Epoch },
    /// The claim was refused: the sender knows this later epoch.
    Refused { epoch: Epoch },
    /// A packet, with its number. Its offload header is opaque here.
    Packet { place: u32, bytes: Vec<u8> },
    /// All packets before this number were sent.
    End { place: u32 },
    /// All before this number have arrived; the end counts as one.
    Got { place: u32 },
}

impl Epoch {
    fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.store) << 64 | u128::from(self.revision)).to_be_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (store, revision) = bytes.split_first_chunk()?;
        let revision = u64::from_be_bytes(revision.try_into().ok()?);
        Some(Self { store: u64::from_be_bytes(*store), revision })
    }
}

impl Message {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (kind, place, rest): (u8, u32, &[u8]) = match &self.body {
            Body::Claim { epoch } => (1, 0, &epoch.to_bytes()),
            Body::Offer { epoch } => (5, 0, &epoch.to_bytes()),
            Body::Refused { epoch } => (6, 0, &epoch.to_bytes()),
            Body::Packet { place, bytes } => (2, *place, bytes),
            Body::End { place } => (3, *place, &[]),
            Body::Got { place } => (4, *place, &[]),
        };
        let address = crate::network::mapped(self.mobile).octets();
        [&[kind][..], &self.id.to_be_bytes(), &address, &place.to_be_bytes(), rest].concat()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        let (id, rest) = rest.split_first_chunk::<8>()?;
        let (address, rest) = rest.split_first_chunk::<16>()?;
        let (place, rest) = rest.split_first_chunk::<4>()?;
        let place = u32::from_be_bytes(*place);
        let address = Ipv6Addr::from(*address);
        let mobile = address.to_ipv4_mapped().map_or(address.into(), IpAddr::from);
        let epoch = || Epoch::from_bytes(rest);
        let body = match kind {
            1 => Body::Claim { epoch: epoch()? },
            5 => Body::Offer { epoch: epoch()? },
            6 => Body::Refused { epoch: epoch()? },
            2 => Body::Packet { place, bytes: rest.to_vec() },
            3 if rest.is_empty() => Body::End { place },
            4 if rest.is_empty() => Body::Got { place },
            _ => return None,
        };
        Some(Self { id: u64::from_be_bytes(*id), mobile, body })
    }
}

/// An event for the owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A peer claims this mobile host: pass its packets to [`Relay::hand_on`], and then call [`Relay::end`].
    Claimed { mobile: IpAddr },
    /// A packet for a mobile host that is here.
    Packet { mobile: IpAddr, bytes: Vec<u8> },
    /// All packets of a peer have arrived.
    Done { mobile: IpAddr, packets: u32 },
    /// A peer has not answered, or has stopped answering.
    Lost { mobile: IpAddr, peer: SocketAddr },
    /// Packets wait at a peer, which regards this gateway as the owner in this epoch.
    Offered { mobile: IpAddr, epoch: Epoch, peer: SocketAddr },
    /// A peer knows a later epoch than the one in this gateway's claim.
    Refused { mobile: IpAddr },
}

/// The protocol. Call [`Self::handle_message`], [`Self::claim`], [`Self::hand_on`], [`Self::end`] and [`Self::handle_timeout`]; then
/// [`Self::poll_event`] and [`Self::poll_transmit`] until `None`; then [`Self::poll_timeout`].
#[derive(Debug)]
pub(crate) struct Relay {
    peers: Vec<SocketAddr>,
    last_id: u64,
    /// This gateway's claims, by mobile host and peer.
    coming: BTreeMap<(IpAddr, SocketAddr), Coming>,
    /// Packets for the gateway that has claimed a mobile host.
    leaving: BTreeMap<IpAddr, Leaving>,
    /// The last claim of each peer about each mobile host.
    claims: BTreeMap<(IpAddr, SocketAddr), u64>,
    events: VecDeque<Event>,
    messages: VecDeque<(SocketAddr, Message)>,
}

#[derive(Clone, Debug)]
struct Coming {
    id: u64,
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
    to: SocketAddr,
    id: u64,
    /// Unconfirmed packets.
    unconfirmed: VecDeque<Vec<u8>>,
    /// The number of the first of them.
    first: u32,
    /// Whether the end was sent.
    is_ended: bool,
    repeat: Repeat,
}

/// When to retransmit.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    at: Instant,
    tries: u32,
}

impl Repeat {
    fn begin(now: Instant) -> Self {
        Self { at: now + REPEAT_AFTER, tries: 1 }
    }

    /// Whether another attempt is left.
    fn again(&mut self, now: Instant) -> bool {
        self.at = now + Duration::from_nanos(REPEAT_AFTER.as_nanos() << self.tries.min(16));
        self.tries += 1;
        self.tries <= TRIES
    }
}

impl Relay {
    /// Without any handoff.
    pub(crate) fn new(peers: Vec<SocketAddr>) -> Self {
        Self {
            peers,
            last_id: 0,
            coming: BTreeMap::new(),
            leaving: BTreeMap::new(),
            claims: BTreeMap::new(),
            events: VecDeque::new(),
            messages: VecDeque::new(),
        }
    }

    /// Replaces the peers.
    pub(crate) fn set_peers(&mut self, peers: Vec<SocketAddr>) {
        self.peers = peers;
    }

    /// A mobile host has appeared here: requests its packets from these peers.
    pub(crate) fn claim(&mut self, now: Instant, mobile: IpAddr, epoch: Epoch, from: &[SocketAddr]) {
        // Packets on their way to another gateway stay here.
        self.leaving.remove(&mobile);
        if self.coming.len() + from.len() > MOST {
            return;
        }
        self.last_id += 1;
        let id = self.last_id;
        for &peer in from {
            let (early, repeat) = (BTreeMap::new(), Repeat::begin(now));
            let coming = Coming { id, epoch, next: 0, early, is_answered: false, repeat };
            self.coming.insert((mobile, peer), coming);
            self.messages.push_back((peer, Message { id, mobile, body: Body::Claim { epoch } }));
        }
    }

    /// Packets wait here for a mobile host that a peer owns. Not repeated.
    pub(crate) fn offer(&mut self, mobile: IpAddr, epoch: Epoch, peer: SocketAddr) {
        self.messages.push_back((peer, Message { id: 0, mobile, body: Body::Offer { epoch } }));
    }

    /// Refuses a claim: a later epoch is known.
    pub(crate) fn refuse(&mut self, peer: SocketAddr, id: u64, mobile: IpAddr, epoch: Epoch) {
        self.messages.push_back((peer, Message { id, mobile, body: Body::Refused { epoch } }));
    }

    /// Another gateway owns a mobile host: its packets are not wanted here any more.
    pub(crate) fn cancel(&mut self, mobile: IpAddr) {
        self.coming.retain(|(other, _), _| *other != mobile);
    }

    /// Whether the packets of a mobile host go to another gateway.
    pub(crate) fn is_leaving(&self, mobile: IpAddr) -> bool {
        self.leaving.get(&mobile).is_some_and(|leaving| !leaving.is_ended)
    }

    /// A packet for a mobile host that another gateway has claimed. Returns whether there was room: if not, try again
    /// later.
    pub(crate) fn hand_on(&mut self, now: Instant, mobile: IpAddr, bytes: Vec<u8>) -> bool {
        let Some(leaving) = self.leaving.get_mut(&mobile).filter(|leaving| !leaving.is_ended) else { return false };
        let bytes_under_way: usize = leaving.unconfirmed.iter().map(Vec::len).sum();
        if leaving.unconfirmed.len() >= WINDOW || bytes_under_way >= WINDOW_BYTES {
            return false;
        }
        if leaving.unconfirmed.is_empty() {
            leaving.repeat = Repeat::begin(now);
        }
        let place = leaving.first + leaving.unconfirmed.len() as u32;
        leaving.unconfirmed.push_back(bytes.clone());
        let body = Body::Packet { place, bytes };
        self.messages.push_back((leaving.to, Message { id: leaving.id, mobile, body }));
        true
    }

    /// All packets of a claimed mobile host were passed on.
    pub(crate) fn end(&mut self, now: Instant, mobile: IpAddr) {
        let Some(leaving) = self.leaving.get_mut(&mobile).filter(|leaving| !leaving.is_ended) else { return };
        leaving.is_ended = true;
        if leaving.unconfirmed.is_empty() {
            leaving.repeat = Repeat::begin(now);
        }
        let place = leaving.first + leaving.unconfirmed.len() as u32;
        self.messages.push_back((leaving.to, Message { id: leaving.id, mobile, body: Body::End { place } }));
    }

    /// A peer was restarted: it has lost the state of handoffs, and its ids begin anew.
    pub(crate) fn handle_new_session(&mut self, now: Instant, peer: SocketAddr) {
        self.claims.retain(|(_, other), _| *other != peer);
        self.leaving.retain(|_, leaving| leaving.to != peer);
        // Its first answer may have been lost with the former session.
        for ((_, other), coming) in &mut self.coming {
            if *other == peer {
                coming.repeat.at = now;
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
            Body::Claim { .. } => self.handle_claim(now, peer, id, mobile),
            Body::Offer { epoch } => {
                // Otherwise its packets are already on the way.
                if !self.coming.contains_key(&(mobile, peer)) {
                    self.events.push_back(Event::Offered { mobile, epoch, peer });
                }
            }
            Body::Refused { .. } => {
                if self.coming.extract_if(.., |key, coming| *key == (mobile, peer) && coming.id == id).count() > 0 {
                    self.events.push_back(Event::Refused { mobile });
                }
            }
            Body::Got { place } => self.handle_got(now, peer, id, mobile, place),
            Body::Packet { place, bytes } => self.handle_part(now, peer, id, mobile, place, Some(bytes)),
            Body::End { place } => self.handle_part(now, peer, id, mobile, place, None),
        }
    }

    fn handle_claim(&mut self, now: Instant, peer: SocketAddr, id: u64, mobile: IpAddr) {
        let last = self.claims.get(&(mobile, peer)).copied().unwrap_or(0);
        if id <= last {
            // A duplicate: the answer is in flight, or was confirmed.
            return;
        }
        if self.claims.len() >= MOST {
            self.claims.pop_first();
        }
        self.claims.insert((mobile, peer), id);
        // It has moved on from here.
        self.cancel(mobile);
        let repeat = Repeat::begin(now);
        let leaving = Leaving { to: peer, id, unconfirmed: VecDeque::new(), first: 0, is_ended: false, repeat };
        self.leaving.insert(mobile, leaving);
        self.events.push_back(Event::Claimed { mobile });
    }

    fn handle_got(&mut self, now: Instant, peer: SocketAddr, id: u64, mobile: IpAddr, place: u32) {
        let Some(leaving) = self.leaving.get_mut(&mobile).filter(|leaving| (leaving.to, leaving.id) == (peer, id))
        else {
            return;
        };
        let end = leaving.first + leaving.unconfirmed.len() as u32;
        if place <= leaving.first && !(leaving.is_ended && place == end + 1)
            || place > end + u32::from(leaving.is_ended)
        {
            return;
        }
        leaving.unconfirmed.drain(..(place.min(end) - leaving.first) as usize);
        leaving.first = place.min(end);
        leaving.repeat = Repeat::begin(now);
        if leaving.is_ended && place == end + 1 {
            self.leaving.remove(&mobile);
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
        let Some(coming) = self.coming.get_mut(&(mobile, peer)).filter(|coming| coming.id == id) else {
            // The confirmation of the end was lost. Other packets are not wanted here.
            if bytes.is_none() {
                self.messages.push_back(confirm(place.saturating_add(1)));
            }
            return;
        };
        (coming.is_answered, coming.repeat) = (true, Repeat::begin(now));
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
            self.coming.remove(&(mobile, peer));
        }
    }

    /// Retransmits unanswered messages.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let mut given_up = Vec::new();
        for (&(mobile, peer), coming) in self.coming.iter_mut().filter(|(_, coming)| coming.repeat.at <= now) {
            if !coming.repeat.again(now) {
                given_up.push((mobile, peer));
            } else if !coming.is_answered {
                self.messages
                    .push_back((peer, Message { id: coming.id, mobile, body: Body::Claim { epoch: coming.epoch } }));
            }
        }
        for (mobile, peer) in given_up {
            self.coming.remove(&(mobile, peer));
            self.events.push_back(Event::Lost { mobile, peer });
        }
        let mut given_up = Vec::new();
        let mut messages = Vec::new();
        for (&mobile, leaving) in self.leaving.iter_mut().filter(|(_, leaving)| leaving.repeat.at <= now) {
            let waits = leaving.is_ended || !leaving.unconfirmed.is_empty();
            if !waits {
                leaving.repeat = Repeat::begin(now);
                continue;
            }
            if !leaving.repeat.again(now) {
                given_up.push((mobile, leaving.to));
                continue;
            }
            let (to, id) = (leaving.to, leaving.id);
            for (place, bytes) in (leaving.first..).zip(&leaving.unconfirmed) {
                messages.push((to, Message { id, mobile, body: Body::Packet { place, bytes: bytes.clone() } }));
            }
            if leaving.is_ended {
                let place = leaving.first + leaving.unconfirmed.len() as u32;
                messages.push((to, Message { id, mobile, body: Body::End { place } }));
            }
        }
        self.messages.extend(messages);
        for (mobile, peer) in given_up {
            self.leaving.remove(&mobile);
            self.events.push_back(Event::Lost { mobile, peer });
        }
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
        let coming = self.coming.values().map(|coming| coming.repeat.at);
        coming.chain(self.leaving.values().map(|leaving| leaving.repeat.at)).min()
    }
}
