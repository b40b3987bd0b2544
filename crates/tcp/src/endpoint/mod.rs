//! Many connections on one host: the connection a segment belongs to, opening (`connect.rs`), listeners, and the answers to segments
//! that belong to none (`stray.rs`).
//!
//! The order of calls is that of [`Connection`], for all connections at once.

mod connect;
mod fast_open;
mod listener;
mod lookup;
mod stray;

pub use connect::ConnectError;
pub use listener::ListenError;
pub use stray::reset_for;

use core::cmp::Reverse;
use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use bytes::Bytes;
use holdover_base::Instant;
use holdover_wire::{IcmpError, Packet, Payload, Segment};
use siphasher::sip::SipHasher24;

use crate::connection::{Connection, Event, IcmpEffect};
use crate::counters::{Disposition, Reason};
use crate::ecn::EcnField;
use crate::state::State;
use fast_open::CookieCache;
use listener::{Handshake, Listener};
use lookup::{Ports, Recent};

/// The most pending answers to segments without a connection; further ones are dropped.
const MAX_REPLIES: usize = 256;

/// Parameters of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointConfig {
    /// The addresses that are this host's.
    pub addresses: Vec<IpAddr>,
    /// The secret from which initial sequence numbers, timestamp offsets and ports are drawn.
    pub secret: [u8; 16],
}

/// A connection of an [`Endpoint`]. Never reused within one endpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId {
    index: u32,
    generation: u32,
}

impl ConnectionId {
    /// A small number, unique among the connections that an endpoint has at one time: for tables beside it.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// A segment to send, as a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The packet.
    pub packet: Packet,
    /// Why it is sent.
    pub reason: Reason,
    /// Its connection; `None` for the reset of a segment without one.
    pub connection: Option<ConnectionId>,
}

#[derive(Clone, Debug)]
struct Entry {
    generation: u32,
    /// Whether it waits in `ready`.
    is_ready: bool,
    /// The earliest entry of `deadlines` that stands for this connection.
    scheduled: Instant,
    /// How it counts with its listener.
    handshake: Handshake,
    connection: Option<Box<Connection>>,
}

impl Entry {
    /// The port of the listener with which the connection counts as `handshake`.
    fn counts_at(&self, handshake: Handshake) -> Option<u16> {
        let connection = self.connection.as_deref().filter(|_| self.handshake == handshake)?;
        Some(connection.local().port())
    }
}

/// The TCP of one host. See the module documentation.
#[derive(Clone, Debug)]
pub struct Endpoint {
    addresses: Vec<IpAddr>,
    has_every_address: bool,
    secret: SipHasher24,
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Connections by the hash of their addresses, which takes less room than these: see [`Self::find`].
    by_addresses: BTreeSet<(u64, u32)>,
    recent: Recent,
    listeners: BTreeMap<u16, Listener>,
    next_port: u16,
    cookies: CookieCache,
    cookie_key: [u8; 16],
    ready: VecDeque<u32>,
    /// Deadlines, the earliest first. An entry may be too early (the connection is polled again) but never too late.
    deadlines: BinaryHeap<Reverse<(Instant, u32)>>,
    replies: VecDeque<Packet>,
    events: VecDeque<(ConnectionId, Event)>,
    strays: BTreeMap<Disposition, u64>,
}

impl Endpoint {
    /// An endpoint without connections and listeners.
    pub fn new(config: EndpointConfig) -> Self {
        let secret = SipHasher24::new_with_key(&config.secret);
        Self {
            next_port: connect::first_port(&secret),
            addresses: config.addresses,
            has_every_address: false,
            cookies: CookieCache::default(),
            cookie_key: fast_open::cookie_key(&secret),
            secret,
            entries: Vec::new(),
            free: Vec::new(),
            by_addresses: BTreeSet::new(),
            recent: Recent::new(),
            listeners: BTreeMap::new(),
            ready: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            replies: VecDeque::new(),
            events: VecDeque::new(),
            strays: BTreeMap::new(),
        }
    }

    /// An endpoint that acts for other hosts, for a node in the network: it has every address, and accepts every packet.
    pub fn for_others(secret: [u8; 16]) -> Self {
        Self { has_every_address: true, ..Self::new(EndpointConfig { addresses: Vec::new(), secret }) }
    }

    fn has(&self, address: IpAddr) -> bool {
        self.has_every_address || self.addresses.contains(&address)
    }

    /// Removes a connection in any state: nothing more is sent on it, and its segments belong to no connection.
    pub fn withdraw(&mut self, id: ConnectionId) -> Option<Connection> {
        self.connection(id)?;
        self.remove(id.index)
    }

    /// A connection, read-only.
    pub fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        let entry = self.entries.get(id.index as usize).filter(|entry| entry.generation == id.generation)?;
        entry.connection.as_deref()
    }

    /// A connection, to read, write or steer. [`Self::poll_transmit`] is due afterwards.
    pub fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connection(id)?;
        self.mark_ready(id.index);
        self.entries[id.index as usize].connection.as_deref_mut()
    }

    /// All connections.
    pub fn connections(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let id = ConnectionId { index: index as u32, generation: entry.generation };
            entry.connection.as_deref().map(|connection| (id, connection))
        })
    }

    /// Forgets a connection that is closed, and returns it. One that is not closed stays; see [`Connection::abort`].
    pub fn release(&mut self, id: ConnectionId) -> Option<Connection> {
        if !self.connection(id)?.is_closed() {
            return None;
        }
        self.remove(id.index)
    }

    /// Checks that the bookkeeping agrees with itself, of all connections too, for tests and fuzzing.
    ///
    /// # Panics
    ///
    /// If it does not, which is a bug of this crate.
    pub fn assert_invariants(&self) {
        for &(key, index) in &self.by_addresses {
            let connection = self.entries[index as usize].connection.as_deref();
            assert!(
                connection.is_some_and(|c| key == hash(&self.secret, c.local(), c.remote())),
                "an entry without a connection"
            );
        }
        for (index, entry) in (0_u32..).zip(&self.entries) {
            let Some(connection) = entry.connection.as_deref() else { continue };
            connection.assert_invariants();
            let tuple = (connection.local(), connection.remote());
            let is_known = self.find(tuple.0, tuple.1) == Some(index);
            assert!(is_known || connection.is_closed(), "{tuple:?} is out of reach");
            let is_seen_to = entry.is_ready || connection.poll_timeout().is_none_or(|(at, _)| entry.scheduled <= at);
            assert!(is_seen_to, "a deadline of {tuple:?} is not scheduled");
        }
        for (port, listener) in &self.listeners {
            assert_eq!([listener.half_open, listener.early], self.under_way(*port), "handshakes at port {port}");
        }
        let live = self.entries.iter().filter(|entry| entry.connection.is_some()).count();
        assert_eq!(live + self.free.len(), self.entries.len(), "entries are lost");
        assert_eq!(self.entries.iter().filter(|entry| entry.is_ready).count(), self.ready.len(), "ready");
        assert!(self.deadlines.len() <= Self::most_deadlines(self.entries.len()), "deadlines pile up");
        assert!(self.replies.len() <= MAX_REPLIES, "replies pile up");
    }

    /// How many segments that belonged to no connection ended as `disposition`.
    pub fn strays(&self, disposition: Disposition) -> u64 {
        self.strays.get(&disposition).copied().unwrap_or(0)
    }

    /// Takes a packet that arrived. Packets other than TCP and ICMP about TCP, and packets for other hosts, are ignored.
    pub fn handle_packet(&mut self, now: Instant, packet: &Packet) {
        match &packet.payload {
            Payload::Tcp(segment) => self.handle_segment(now, packet, segment),
            Payload::IcmpError(error) if self.has(packet.dst) => {
                self.handle_icmp(now, error);
            }
            _ => {}
        }
    }

    fn handle_segment(&mut self, now: Instant, packet: &Packet, segment: &Segment) {
        let ecn = EcnField::of_traffic_class(packet.traffic_class);
        let mut replaced = None;
        if let Some(index) = self.find_again(packet, segment) {
            if !self.may_replace(index, segment) {
                return self.pass_segment(now, index, segment, ecn);
            }
            replaced = self.replace(index);
        }
        // That of a connection is one of this host's.
        if !self.has(packet.dst) {
            return;
        }
        let local = SocketAddr::new(packet.dst, segment.dst_port);
        let remote = SocketAddr::new(packet.src, segment.src_port);
        let disposition = self.handle_stray(now, local, remote, (segment, ecn), replaced);
        if disposition != Disposition::Accepted {
            *self.strays.entry(disposition).or_default() += 1;
        }
    }

    /// Passes a segment to its connection. If that has nothing to send then, as a receiver between its ACKs, it is settled at once, unless
    /// others wait, whose events come first.
    #[inline]
    fn pass_segment(&mut self, now: Instant, index: u32, segment: &Segment, ecn: EcnField) {
        let entry = &mut self.entries[index as usize];
        let Some(connection) = entry.connection.as_deref_mut() else { return };
        let was_opening = connection.state() == State::SynSent;
        connection.handle_segment_with_ecn(now, segment, ecn);
        let is_settled = self.ready.is_empty() && connection.is_at_rest();
        if is_settled {
            connection.rest();
        }
        let is_open = !matches!(connection.state(), State::SynReceived | State::Closed);
        if is_open && entry.handshake != Handshake::Done {
            self.leave_listener(index);
        }
        if was_opening {
            self.learn_cookie(index);
        }
        if is_settled {
            self.settle(index);
        } else {
            self.mark_ready(index);
        }
    }

    /// An ICMP error about a segment of ours (RFC 9293 section 3.9.2.2).
    fn handle_icmp(&mut self, now: Instant, error: &IcmpError) -> IcmpEffect {
        let Ok(quoted) = error.quoted_tcp() else { return IcmpEffect::Ignored };
        let local = SocketAddr::new(quoted.src, quoted.src_port);
        let remote = SocketAddr::new(quoted.dst, quoted.dst_port);
        let Some(index) = self.find(local, remote) else { return IcmpEffect::Ignored };
        let Some(connection) = self.entries[index as usize].connection.as_deref_mut() else {
            return IcmpEffect::Ignored;
        };
        let effect = connection.handle_icmp_about(now, error.kind, quoted.seq, quoted.packet_len);
        self.mark_ready(index);
        effect
    }

    /// Handles every deadline at or before `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&Reverse((at, index))) = self.deadlines.peek()
            && at <= now
        {
            self.deadlines.pop();
            let Some(entry) = self.entries.get_mut(index as usize) else { continue };
            if entry.scheduled != at {
                continue;
            }
            entry.scheduled = Instant::FAR_FUTURE;
            if let Some(connection) = entry.connection.as_deref_mut() {
                connection.handle_timeout(now);
                self.mark_ready(index);
            }
        }
    }

    /// The next packet to send; call until `None`.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let mut packet = Packet::new(nowhere, nowhere, Segment::default());
        let (reason, connection) = self.poll_transmit_into(now, &mut packet)?;
        Some(Outgoing { packet, reason, connection })
    }

    /// As [`Self::poll_transmit`], with the packet written over `place`, which needs no move. Returns why it is sent, and its connection;
    /// `None` if there is nothing to send.
    pub fn poll_transmit_into(&mut self, now: Instant, place: &mut Packet) -> Option<(Reason, Option<ConnectionId>)> {
        if let Some(packet) = self.replies.pop_front() {
            *place = packet;
            return Some((Reason::Reset, None));
        }
        while let Some(&index) = self.ready.front() {
            let entry = &mut self.entries[index as usize];
            let id = ConnectionId { index, generation: entry.generation };
            if let Some(connection) = entry.connection.as_deref_mut()
                && let Some(reason) = transmit_into(connection, now, place)
            {
                if connection.settle_in_transfer(now) {
                    self.ready.pop_front();
                    self.settle(index);
                }
                return Some((reason, Some(id)));
            }
            self.ready.pop_front();
            self.settle(index);
        }
        None
    }

    /// Takes all data in order from a connection, chunk by chunk as [`Connection::read`] does. [`Self::poll_transmit`] is due afterwards.
    pub fn read(&mut self, now: Instant, id: ConnectionId, mut take: impl FnMut(Bytes)) {
        let entry = self.entries.get_mut(id.index as usize).filter(|entry| entry.generation == id.generation);
        let Some(connection) = entry.and_then(|entry| entry.connection.as_deref_mut()) else { return };
        while connection.readable_len() > 0 {
            let Some(chunk) = connection.read(now) else { break };
            take(chunk);
        }
        // A receiver between its ACKs need not be polled for each segment that it receives.
        if !connection.is_at_rest() {
            self.mark_ready(id.index);
        }
    }

    /// Whether [`Self::poll_transmit`] is due.
    #[inline]
    pub fn is_transmission_due(&self) -> bool {
        !self.ready.is_empty() || !self.replies.is_empty()
    }

    /// The next event; call until `None`. A connection that a listener accepted shows itself by [`Event::Connected`].
    #[inline]
    pub fn poll_event(&mut self) -> Option<(ConnectionId, Event)> {
        if self.events.is_empty() && !self.ready.is_empty() {
            self.collect_events();
        }
        self.events.pop_front()
    }

    /// Collects the events of connections that were not polled for segments yet: an application may handle them before
    /// [`Self::poll_transmit`], so that its answer carries the ACK.
    fn collect_events(&mut self) {
        for &index in &self.ready {
            let entry = &mut self.entries[index as usize];
            let id = ConnectionId { index, generation: entry.generation };
            let Some(connection) = entry.connection.as_deref_mut() else { continue };
            // The application does not learn of a failed passive handshake; see `settle`.
            if entry.handshake == Handshake::HalfOpen && connection.is_closed() {
                continue;
            }
            while let Some(event) = connection.poll_event() {
                self.events.push_back((id, event));
            }
        }
    }

    /// The next deadline. It may turn out to be earlier than needed; [`Self::handle_timeout`] then does nothing.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.peek().map(|Reverse((at, _))| *at)
    }

    /// A connection has nothing more to send: its events and its deadline.
    fn settle(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.is_ready = false;
        let id = ConnectionId { index, generation: entry.generation };
        let Some(connection) = entry.connection.as_deref_mut() else { return };
        if connection.is_closed() {
            self.by_addresses.remove(&(hash(&self.secret, connection.local(), connection.remote()), index));
            // The application never knew of a connection whose handshake failed (section 3.10.7.4: back to LISTEN).
            if entry.handshake == Handshake::HalfOpen {
                self.remove(index);
                return;
            }
        }
        while let Some(event) = connection.poll_event() {
            self.events.push_back((id, event));
        }
        let at = connection.earliest_deadline();
        if at < entry.scheduled {
            self.schedule(index, at);
        }
    }

    /// A connection has a deadline before the one that stands for it in `deadlines`.
    #[inline(never)]
    fn schedule(&mut self, index: u32, at: Instant) {
        self.entries[index as usize].scheduled = at;
        self.deadlines.push(Reverse((at, index)));
        self.forget_stale_deadlines();
    }

    /// A deadline that has moved stays in the heap until its time. Long connections would fill the heap with stale deadlines:
    /// it is rebuilt when most of it is stale.
    fn forget_stale_deadlines(&mut self) {
        if self.deadlines.len() > Self::most_deadlines(self.entries.len()) {
            let scheduled = (0..).zip(&self.entries).filter(|(_, entry)| entry.connection.is_some());
            let scheduled = scheduled.map(|(index, entry)| (entry.scheduled, index));
            self.deadlines = scheduled.filter(|&(at, _)| at != Instant::FAR_FUTURE).map(Reverse).collect();
        }
    }

    fn most_deadlines(entries: usize) -> usize {
        2 * entries + 64
    }

    fn insert(&mut self, connection: Connection, handshake: Handshake) -> ConnectionId {
        let index = self.free.pop().unwrap_or_else(|| {
            let fresh = Entry {
                generation: 0,
                is_ready: false,
                scheduled: Instant::FAR_FUTURE,
                handshake: Handshake::Done,
                connection: None,
            };
            self.entries.push(fresh);
            (self.entries.len() - 1) as u32
        });
        self.recent.make_room(self.entries.len());
        self.by_addresses.insert((hash(&self.secret, connection.local(), connection.remote()), index));
        let entry = &mut self.entries[index as usize];
        entry.handshake = handshake;
        entry.scheduled = Instant::FAR_FUTURE;
        entry.connection = Some(Box::new(connection));
        let id = ConnectionId { index, generation: entry.generation };
        self.mark_ready(index);
        id
    }

    fn remove(&mut self, index: u32) -> Option<Connection> {
        self.leave_listener(index);
        let entry = &mut self.entries[index as usize];
        let connection = entry.connection.take()?;
        entry.generation += 1;
        self.by_addresses.remove(&(hash(&self.secret, connection.local(), connection.remote()), index));
        self.free.push(index);
        Some(*connection)
    }

    fn mark_ready(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        if !core::mem::replace(&mut entry.is_ready, true) {
            self.ready.push_back(index);
        }
    }

    /// As [`Self::find`], without a search for connections of recent segments. A closed connection is searched for: its
    /// addresses may be another one's by now.
    #[inline]
    fn find_again(&mut self, packet: &Packet, segment: &Segment) -> Option<u32> {
        let ports = Ports { local: segment.dst_port, remote: segment.src_port };
        let recent = self.recent.get(ports, &packet.src).filter(|&index| {
            let connection = self.entries.get(index as usize).and_then(|entry| entry.connection.as_deref());
            connection.is_some_and(|c| c.is_addressed_by(packet, segment) && !c.is_closed())
        });
        if recent.is_some() {
            return recent;
        }
        let local = SocketAddr::new(packet.dst, segment.dst_port);
        let remote = SocketAddr::new(packet.src, segment.src_port);
        let found = self.find(local, remote)?;
        self.recent.put(ports, &packet.src, found);
        Some(found)
    }

    /// The connection between two addresses. Others may have the same hash: the connection's own addresses decide.
    fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let hash = hash(&self.secret, local, remote);
        let mut candidates = self.by_addresses.range((hash, 0)..=(hash, u32::MAX)).map(|&(_, index)| index);
        candidates.find(|&index| {
            let connection = self.entries[index as usize].connection.as_deref();
            connection.is_some_and(|c| (c.local(), c.remote()) == (local, remote))
        })
    }
}

/// Writes the next packet of a connection over `place`, if there is one, and returns why it is sent.
#[inline]
fn transmit_into(connection: &mut Connection, now: Instant, place: &mut Packet) -> Option<Reason> {
    let (reason, ecn) = if let Payload::Tcp(segment) = &mut place.payload {
        connection.poll_transmit_into(now, segment)?
    } else {
        let transmit = connection.poll_transmit(now)?;
        place.payload = transmit.segment.into();
        (transmit.reason, transmit.ecn)
    };
    // All fields are named, for none to be left as it was.
    let Packet { src, dst, ttl, traffic_class, reserved_flag, payload: _, received } = place;
    (*src, *dst) = connection.addresses();
    (*ttl, *traffic_class, *reserved_flag) = (Packet::DEFAULT_TTL, ecn.bits(), false);
    *received = None;
    Some(reason)
}

fn hash(secret: &SipHasher24, local: SocketAddr, remote: SocketAddr) -> u64 {
    let mut hasher = *secret;
    for address in [local, remote] {
        write_address(&mut hasher, address.ip());
        hasher.write_u16(address.port());
    }
    hasher.finish()
}

#[inline]
fn write_address(hasher: &mut SipHasher24, address: IpAddr) {
    match address {
        IpAddr::V4(address) => hasher.write(&address.octets()),
        IpAddr::V6(address) => hasher.write(&address.octets()),
    }
}

#[cfg(test)]
mod tests;
