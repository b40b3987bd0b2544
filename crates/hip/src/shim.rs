//! The layer between a host's TCP and its links.

use core::net::IpAddr;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use holdover_base::{Duration, Instant, Rng};
use holdover_wire::Packet;

use crate::association::{Association, Check, Pending};
use crate::message::{Identity, LocatorSet, MessageError, Update};

/// The retransmission of unacknowledged UPDATEs.
///
/// RFC 7401 section 6.11 requires a timeout longer than the longest expected round trip, and exponential backoff; it leaves the numbers to
/// the implementation. The defaults are this crate's choice: initially one second, as for a TCP without information about the path (RFC
/// 6298), and five retries, so that an exchange is given up after 63 s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShimConfig {
    /// The first timeout; doubled each time.
    pub retransmit_after: Duration,
    /// The number of retransmissions.
    pub retries: u32,
}

impl Default for ShimConfig {
    fn default() -> Self {
        Self { retransmit_after: Duration::from_secs(1), retries: 5 }
    }
}

/// Result of a new attachment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attachment {
    /// All peers know this address already: data can be exchanged at once.
    Unchanged,
    /// Peers are notified; [`Event::Readdressed`] reports the end.
    Readdressing,
}

/// The role of a host in a readdressing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It moved.
    Mobile,
    /// Its peer moved.
    Peer,
}

/// Events for the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Readdressing is complete at this host: the mobile host has sent its ECHO_RESPONSE, the peer has received it. The
    /// event is repeated for a mobile host that is challenged again without having received anything else from the
    /// peer: its first answer, and all data after it, were lost.
    Readdressed {
        /// The other end of the association.
        peer: Identity,
        /// The role of this host.
        role: Role,
    },
    /// An UPDATE was not acknowledged after all retransmissions. A mobile host restarts when it has data for the peer, after a wait as long
    /// as its last timeout.
    GaveUp {
        /// The other end of the association.
        peer: Identity,
        /// The role of this host.
        role: Role,
    },
}

/// Host identity at one host. The order of calls: [`Self::handle_attachment`], [`Self::handle_update`] or
/// [`Self::handle_timeout`], then [`Self::poll_transmit`] until `None`, then [`Self::poll_event`] until `None`, then
/// [`Self::poll_timeout`]. Data passes [`Self::seal`] on its way out and [`Self::open`] on its way in.
#[derive(Clone, Debug)]
pub struct Shim {
    config: ShimConfig,
    identity: Identity,
    /// This host's current locators, or its last ones.
    locators: LocatorSet,
    attached: bool,
    /// When peers are notified of the current locators.
    tell_at: Option<Instant>,
    associations: Vec<Association>,
    by_hit: BTreeMap<core::net::Ipv6Addr, usize>,
    /// Peers by the addresses that data comes from and goes to: identities and active locators.
    by_address: BTreeMap<IpAddr, usize>,
    nonces: Rng,
    ready: VecDeque<Packet>,
    events: VecDeque<Event>,
}

impl Shim {
    /// A host with these locators. Nonces are drawn from `seed`.
    pub fn new(config: ShimConfig, identity: Identity, locators: LocatorSet, seed: u64) -> Self {
        Self {
            config,
            identity,
            locators,
            attached: true,
            tell_at: None,
            associations: Vec::new(),
            by_hit: BTreeMap::new(),
            by_address: BTreeMap::new(),
            nonces: Rng::new(seed),
            ready: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Adds an association with `peer`, which has these locators and knows this host's.
    pub fn add_peer(&mut self, peer: Identity, locators: LocatorSet) {
        let index = self.associations.len();
        if let Entry::Vacant(entry) = self.by_hit.entry(peer.hit) {
            entry.insert(index);
            self.associations.push(Association::new(peer, locators, self.locators));
            self.by_address.extend([false, true].map(|ipv6| (peer.address(ipv6), index)));
            self.enter(index, locators);
        }
    }

    /// The host is reachable at `locators` from now on, or not at all. A peer that does not know them is notified `delay` from now.
    pub fn handle_attachment(&mut self, now: Instant, locators: Option<LocatorSet>, delay: Duration) -> Attachment {
        self.attached = locators.is_some();
        self.tell_at = None;
        for association in &mut self.associations {
            (association.announcement, association.again_at) = (None, None);
        }
        let Some(locators) = locators else { return Attachment::Unchanged };
        self.locators = locators;
        if self.associations.iter().all(|association| association.told == locators && !association.in_doubt) {
            return Attachment::Unchanged;
        }
        self.tell_at = Some(now + delay);
        if delay.is_zero() {
            self.tell_peers(now);
        }
        Attachment::Readdressing
    }

    /// Outgoing data to a peer's identity: rewrites it to the peer's locator, from this host's. Returns whether it did;
    /// data to unknown identities is unchanged.
    pub fn seal(&self, packet: &mut Packet) -> bool {
        let Some(&index) = self.by_address.get(&packet.dst) else { return false };
        let association = &self.associations[index];
        let ipv6 = packet.dst.is_ipv6();
        if packet.dst != association.peer.address(ipv6) {
            return false;
        }
        association.wanted.set(true);
        packet.src = self.locators.address(ipv6);
        packet.dst = association.active.address(ipv6);
        true
    }

    /// Incoming sealed data from an active locator of a peer: becomes data between identities. Returns whether it did;
    /// data from any other source is to be dropped.
    pub fn open(&mut self, packet: &mut Packet) -> bool {
        let Some(&index) = self.by_address.get(&packet.src) else { return false };
        let association = &mut self.associations[index];
        let ipv6 = packet.src.is_ipv6();
        if packet.src != association.active.address(ipv6) {
            return false;
        }
        association.heard = true;
        packet.src = association.peer.address(ipv6);
        packet.dst = self.identity.address(ipv6);
        true
    }

    /// Handles an UPDATE. Ignored unless it is for this host and from a known host.
    pub fn handle_update(&mut self, now: Instant, packet: &Packet) -> Result<(), MessageError> {
        let update = Update::parse(packet)?;
        let Some(&index) = self.by_hit.get(&update.sender).filter(|_| update.receiver == self.identity.hit) else {
            return Ok(());
        };
        if let Some(id) = update.ack {
            self.take_ack(index, id, update.echo_response);
        }
        let Some(id) = update.seq else { return Ok(()) };
        // RFC 7401 section 6.12: an UPDATE older than the newest is dropped; a repetition of the newest is answered
        // again.
        let before = self.associations[index].peer_update_id;
        let age = before.map(|newest| newest.wrapping_sub(id));
        match age {
            Some(1..0x8000_0000) => return Ok(()),
            Some(0) => self.answer_again(index, id, &update, packet),
            _ => {
                self.associations[index].peer_update_id = Some(id);
                match (update.locators, update.echo_request) {
                    (Some(locators), _) => self.check(now, index, id, locators),
                    (None, Some(nonce)) => self.echo(index, id, nonce, packet),
                    (None, None) => self.acknowledge(index, id, packet),
                }
            }
        }
        Ok(())
    }

    /// Every deadline at or before `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.tell_at.is_some_and(|at| at <= now) {
            self.tell_peers(now);
        }
        for index in 0..self.associations.len() {
            if self.associations[index].again_at.is_some_and(|at| at <= now) && self.associations[index].wanted.get() {
                self.tell_peer(now, index);
            }
        }
        for association in &mut self.associations {
            if let Some(pending) = association.announcement.as_mut().filter(|pending| pending.at <= now) {
                match pending.again(now) {
                    Some(packet) => self.ready.push_back(packet),
                    None => {
                        association.again_at = Some(now + pending.timeout);
                        association.wanted.set(false);
                        association.announcement = None;
                        self.events.push_back(Event::GaveUp { peer: association.peer, role: Role::Mobile });
                    }
                }
            }
            if let Some(check) = association.check.as_mut().filter(|check| check.request.at <= now) {
                match check.request.again(now) {
                    Some(packet) => self.ready.push_back(packet),
                    None => {
                        association.check = None;
                        self.events.push_back(Event::GaveUp { peer: association.peer, role: Role::Peer });
                    }
                }
            }
        }
    }

    /// The next UPDATE to send.
    pub fn poll_transmit(&mut self) -> Option<Packet> {
        self.ready.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next deadline.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.associations.iter().filter_map(Association::deadline).chain(self.tell_at).min()
    }

    /// First message: this host has moved.
    fn tell_peers(&mut self, now: Instant) {
        self.tell_at = None;
        for index in 0..self.associations.len() {
            self.tell_peer(now, index);
        }
    }

    fn tell_peer(&mut self, now: Instant, index: usize) {
        let update = Update { locators: Some(self.locators), ..self.update_to(index) };
        let update = Update { seq: Some(self.associations[index].next_update_id()), ..update };
        let association = &mut self.associations[index];
        association.again_at = None;
        association.told = self.locators;
        association.in_doubt = true;
        let dst = association.active;
        let pending = self.send(now, update, dst);
        self.associations[index].announcement = Some(pending);
    }

    /// Second message: verifies the peer's announced locators.
    fn check(&mut self, now: Instant, index: usize, id: u32, candidate: LocatorSet) {
        let nonce = self.nonces.next_u64();
        let update = Update { ack: Some(id), echo_request: Some(nonce), ..self.update_to(index) };
        let update = Update { seq: Some(self.associations[index].next_update_id()), ..update };
        let request = self.send(now, update, candidate);
        self.associations[index].check = Some(Check { candidate, request });
    }

    /// Third message: confirms the address. If this host has left the checked address meanwhile, it does not answer.
    fn echo(&mut self, index: usize, id: u32, nonce: u64, packet: &Packet) {
        if !self.attached || packet.dst != self.locators.address(packet.dst.is_ipv6()) {
            return;
        }
        let update = Update { ack: Some(id), echo_response: Some(nonce), ..self.update_to(index) };
        self.ready.push_back(update.packet(packet.dst, packet.src));
        let association = &mut self.associations[index];
        association.in_doubt = false;
        association.heard = false;
        self.events.push_back(Event::Readdressed { peer: association.peer, role: Role::Mobile });
    }

    fn acknowledge(&mut self, index: usize, id: u32, packet: &Packet) {
        let update = Update { ack: Some(id), ..self.update_to(index) };
        self.ready.push_back(update.packet(packet.dst, packet.src));
    }

    /// The peer has retransmitted its newest UPDATE, or the network has duplicated it.
    fn answer_again(&mut self, index: usize, id: u32, update: &Update, packet: &Packet) {
        let association = &self.associations[index];
        match (&association.check, update.echo_request) {
            (Some(check), None) if check.request.update.ack == Some(id) => {
                let packet = check.request.packet();
                self.ready.push_back(packet);
            }
            (_, Some(nonce)) if association.heard => {
                let response = Update { ack: Some(id), echo_response: Some(nonce), ..self.update_to(index) };
                self.ready.push_back(response.packet(packet.dst, packet.src));
            }
            (_, Some(nonce)) => self.echo(index, id, nonce, packet),
            _ => self.acknowledge(index, id, packet),
        }
    }

    /// The peer has received an UPDATE of this host, and may have sent the echo.
    fn take_ack(&mut self, index: usize, id: u32, echo: Option<u64>) {
        let association = &mut self.associations[index];
        association.announcement.take_if(|pending| pending.update.seq == Some(id));
        let asked = |check: &mut Check| {
            check.request.update.seq == Some(id) && echo.is_some() && check.request.update.echo_request == echo
        };
        let Some(check) = association.check.take_if(asked) else { return };
        let peer = association.peer;
        let old = association.active;
        for ipv6 in [false, true] {
            if old.address(ipv6) != peer.address(ipv6) {
                self.by_address.remove(&old.address(ipv6));
            }
        }
        self.associations[index].active = check.candidate;
        self.enter(index, check.candidate);
        self.events.push_back(Event::Readdressed { peer, role: Role::Peer });
    }

    fn enter(&mut self, index: usize, locators: LocatorSet) {
        self.by_address.extend([false, true].map(|ipv6| (locators.address(ipv6), index)));
    }

    fn update_to(&self, index: usize) -> Update {
        Update::new(self.identity.hit, self.associations[index].peer.hit)
    }

    /// Sends an UPDATE, over IPv4, until it is acknowledged.
    fn send(&mut self, now: Instant, update: Update, to: LocatorSet) -> Pending {
        let (src, dst) = (self.locators.address(false), to.address(false));
        let pending = Pending::new(update, src, dst, self.config.retransmit_after, self.config.retries, now);
        self.ready.push_back(pending.packet());
        pending
    }
}
