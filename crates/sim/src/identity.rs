//! A host's identity: the state machine of HIP, between its TCP and its links.
//!
//! Control packets are bytes: they are signed, encrypted, lost and retransmitted as a daemon's. Data packets stay values: of ESP they
//! have the addresses, SPI, sequence number and length, and pass the anti-replay window.

use core::net::IpAddr;
use std::collections::BTreeMap;

use holdover_base::{Instant, Rng};
use holdover_hip::PredictableRng;
use holdover_hip::esp::{EspSuite, OpenError};
use holdover_hip::host::{CommandError, Contact, DataError, Event, Host, HostConfig, PathChange, State};
use holdover_hip::identity::{Algorithm, Hit, KeyPair};
use holdover_wire::{Packet, Payload};

use crate::config::HostIdentity;
use crate::frame::Frame;
use crate::ids::NodeId;
use crate::observer::Dropped;

/// #K of the puzzles of simulated hosts: a search takes processor time of the simulation, and no virtual time.
const DIFFICULTY: u8 = 4;
/// Packets between two updates of the deadline: the number of packets can make a change of keys due.
const UPDATE_DEADLINE_EVERY: u64 = 4096;

/// The identity of a host.
#[derive(Debug)]
pub(crate) struct Identity {
    host: Host,
    config: HostIdentity,
    /// The randomness of delays.
    rng: Rng,
    peers: BTreeMap<NodeId, Peer>,
    nodes: BTreeMap<Hit, NodeId>,
    /// The IP versions of its locators, the preferred one first: whether they are IPv6.
    versions: Vec<bool>,
    /// The locators that the state machine has; none without a link.
    locators: Vec<IpAddr>,
    /// The last ones that it had.
    last_locators: Vec<IpAddr>,
    /// The addresses of the last attachment, which the host may not have noticed yet, and when the host came there.
    place: (Vec<IpAddr>, Instant),
    /// When the host notices its new addresses, and whether it has another link than before.
    noticed: Option<(Instant, bool)>,
    /// The next deadline, or an earlier time. It is not updated for each packet of data: one of them can make it later, and their number can
    /// make a change of keys due, for which [`UPDATE_DEADLINE_EVERY`] is often enough.
    deadline: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Peer {
    hit: Hit,
    /// Its addresses before the run began.
    addresses: Vec<IpAddr>,
    contact: Contact<Box<Frame>>,
    /// Another address that it has announced, and that is not verified yet.
    moving_to: Option<IpAddr>,
}

/// The result of sending a packet.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// It is sent.
    Sent(Box<Frame>),
    /// It waits for an exchange. An older packet may have to give way.
    Waits(Option<Box<Frame>>),
    /// It cannot be sent.
    Refused(Box<Frame>, fn(NodeId) -> Dropped),
}

/// The result of a new attachment.
#[derive(Debug)]
pub(crate) enum Attachment {
    /// All peers know the address: data can be exchanged at once. Whether it is that of another link than before.
    Known(bool),
    /// Peers are notified. Those in the list know the address already.
    Readdressing(Vec<(NodeId, PathChange)>),
}

/// An effect of the state machine's events on mechanisms, observers and waiting packets.
#[derive(Debug)]
// The boxes are sent on.
#[allow(clippy::vec_box)]
pub(crate) enum Effect {
    /// It is established.
    Associated(NodeId),
    /// The exchange failed.
    AssociationFailed(NodeId),
    /// It has ended.
    AssociationClosed(NodeId),
    /// For mechanisms: the path to a peer has changed.
    Path(NodeId, PathChange),
    /// This host's readdressing is complete at this host.
    Readdressed(NodeId),
    /// A peer's readdressing is complete at this host: this address of the peer is verified.
    PeerReaddressed(NodeId, IpAddr),
    /// UPDATEs were given up.
    GaveUp(NodeId),
    /// Packets that waited for the association can be sent now.
    Ready(Vec<Box<Frame>>),
    /// Packets that waited for the association will not be sent.
    Undeliverable(Vec<Box<Frame>>),
}

/// The state machine's configuration.
fn host_config(identity: &HostIdentity) -> HostConfig {
    // All of them: the suite of the host that is called applies, "null" included.
    let others = EspSuite::ALL.into_iter().filter(|suite| *suite != identity.esp);
    HostConfig {
        retransmit_after: identity.retransmit_after,
        retries: identity.retries,
        suites: core::iter::once(identity.esp).chain(others).collect(),
        accept_unknown_peers: false,
        max_associations: usize::MAX,
        difficulty: DIFFICULTY,
        // All exchanges before the run take place in one second.
        load_threshold: u32::MAX,
        max_r1_per_s: u32::MAX,
        attempts_per_slice: u32::MAX,
        ..HostConfig::default()
    }
}

impl Identity {
    /// A host at these locators. Its key pair is drawn from the run's seed and its name.
    pub(crate) fn new(config: HostIdentity, name: &str, seed: u64, locators: Vec<IpAddr>) -> Self {
        let versions = locators.iter().map(IpAddr::is_ipv6).collect();
        // The keys of simulated hosts are not secrets.
        let mut randomness = PredictableRng::new(Rng::split(seed, &format!("keys of {name}")));
        let keys = KeyPair::generate(Algorithm::Ed25519, &mut randomness);
        let mut host = Host::for_simulation(keys, host_config(&config), Box::new(randomness));
        host.set_locators(Instant::ZERO, &locators);
        Self {
            host,
            config,
            rng: Rng::split(seed, &format!("identity of {name}")),
            peers: BTreeMap::new(),
            nodes: BTreeMap::new(),
            versions,
            last_locators: locators.clone(),
            place: (locators.clone(), Instant::ZERO),
            locators,
            noticed: None,
            deadline: None,
        }
    }

    /// A copy that shares no state with this one.
    pub(crate) fn fork(&self) -> Option<Self> {
        Some(Self {
            host: self.host.fork()?,
            config: self.config,
            rng: self.rng.clone(),
            peers: self.peers.clone(),
            nodes: self.nodes.clone(),
            versions: self.versions.clone(),
            locators: self.locators.clone(),
            last_locators: self.last_locators.clone(),
            place: self.place.clone(),
            noticed: self.noticed,
            deadline: self.deadline,
        })
    }

    pub(crate) const fn hit(&self) -> Hit {
        self.host.hit()
    }

    pub(crate) const fn config(&self) -> &HostIdentity {
        &self.config
    }

    /// When it came to this address, if it is there and `address` is its preferred one of that IP version.
    pub(crate) fn attached_at(&self, address: IpAddr) -> Option<Instant> {
        let (addresses, at) = &self.place;
        let preferred = addresses.iter().find(|it| it.is_ipv4() == address.is_ipv4());
        preferred.is_some_and(|it| *it == address).then_some(*at)
    }

    /// The IP versions of its locators, the preferred one first: whether they are IPv6.
    pub(crate) fn versions(&self) -> &[bool] {
        &self.versions
    }

    /// This host's locators, the preferred one first.
    pub(crate) fn locators(&self) -> &[IpAddr] {
        &self.locators
    }

    /// Adds a peer that is at these addresses. Returns whether it is new.
    pub(crate) fn add_peer(&mut self, node: NodeId, hit: Hit, addresses: &[IpAddr]) -> bool {
        if self.nodes.insert(hit, node).is_some() {
            return false;
        }
        self.host.add_peer(hit, addresses);
        let (addresses, contact) = (addresses.to_vec(), Contact::default());
        self.peers.insert(node, Peer { hit, addresses, contact, moving_to: None });
        true
    }

    /// The base exchange of two hosts before the run begins: with real packets, that take no time.
    pub(crate) fn associate(&mut self, other: &mut Self) {
        // There is no association yet, and both hosts have an address.
        let _ = self.host.connect(Instant::ZERO, other.hit());
        loop {
            for host in [&mut *self, &mut *other] {
                while host.poll_effects(Instant::ZERO).is_some() {}
            }
            let (forth, back) = (self.hand_over(other), other.hand_over(self));
            if !forth && !back {
                break;
            }
        }
    }

    /// Delivers the pending packets to their receiver; returns whether there were any.
    fn hand_over(&mut self, to: &mut Self) -> bool {
        let mut any = false;
        while let Some(packet) = self.host.poll_transmit() {
            any = true;
            let _ = to.host.handle_packet(Instant::ZERO, &packet);
        }
        any
    }

    /// A packet of this host's TCP or mechanisms. To another node than a peer it is sent as it is.
    pub(crate) fn send(&mut self, now: Instant, mut frame: Box<Frame>) -> Outgoing {
        let to = NodeId::of(frame.packet.dst).and_then(|node| Some((node, self.peers.get_mut(&node)?)));
        let is_to_identity = |node: NodeId| frame.packet.dst == node.address(frame.packet.dst.is_ipv6());
        let Some((_, peer)) = to.filter(|(node, _)| is_to_identity(*node)) else { return Outgoing::Sent(frame) };
        let len = frame.payload_len();
        match self.host.assign(now, peer.hit, len) {
            Ok(assigned) => {
                frame.encapsulate(&assigned, len);
                if assigned.number.is_multiple_of(UPDATE_DEADLINE_EVERY) {
                    self.update_deadline();
                }
                Outgoing::Sent(frame)
            }
            Err(DataError::NoAssociation) => self.wait(now, frame),
            Err(_) if self.locators.is_empty() => Outgoing::Refused(frame, Dropped::NoRoute),
            Err(DataError::NoPath) => Outgoing::Refused(frame, Dropped::Unverified),
            Err(_) => Outgoing::Refused(frame, Dropped::NoAssociation),
        }
    }

    /// A packet for a peer without an association: opens one.
    fn wait(&mut self, now: Instant, frame: Box<Frame>) -> Outgoing {
        let Some(peer) = NodeId::of(frame.packet.dst).and_then(|node| self.peers.get_mut(&node)) else {
            return Outgoing::Refused(frame, Dropped::NoAssociation);
        };
        let outgoing = match self.host.connect(now, peer.hit) {
            Ok(()) | Err(CommandError::State { .. }) => Outgoing::Waits(peer.contact.wait(frame)),
            // It is opened when the host has an address.
            Err(CommandError::NoAddress { .. }) if self.locators.is_empty() => {
                Outgoing::Waits(peer.contact.wait(frame))
            }
            Err(_) => Outgoing::Refused(frame, Dropped::NoAssociation),
        };
        self.update_deadline();
        outgoing
    }

    /// A packet in ESP becomes one between identities; else it is to be dropped.
    pub(crate) fn open(&mut self, now: Instant, frame: &mut Frame) -> Result<(), fn(NodeId) -> Dropped> {
        let Payload::Encrypted(encrypted) = &frame.packet.payload else { return Ok(()) };
        let (spi, number, outer_len) = (encrypted.spi(), encrypted.number(), frame.packet.wire_len());
        let len = frame.inner_len();
        match self.host.accept(now, spi, number, len, outer_len) {
            Ok(_) => {
                frame.decapsulate(len);
                if u64::from(number).is_multiple_of(UPDATE_DEADLINE_EVERY) {
                    self.update_deadline();
                }
                Ok(())
            }
            Err(DataError::Open(OpenError::Replay { .. })) => Err(Dropped::Replayed),
            Err(_) => {
                self.reconnect_on_unknown_spi(now, frame.packet.src);
                Err(Dropped::NoAssociation)
            }
        }
    }

    /// ESP arrived without an association, as after the end of one at this host only: opens one with the peer at this address.
    fn reconnect_on_unknown_spi(&mut self, now: Instant, src: IpAddr) {
        let host = &self.host;
        let is_without = |hit| matches!(host.state(hit), State::Unassociated | State::Closed | State::EFailed);
        let found = self.peers.values_mut().find(|peer| peer.addresses.contains(&src) && is_without(peer.hit));
        if let Some(peer) = found
            && peer.contact.may_reconnect(now)
        {
            // Without an address there is nothing to do.
            let _ = self.host.connect(now, peer.hit);
            self.update_deadline();
        }
    }

    /// A HIP packet. One that is not accepted has no effect.
    pub(crate) fn handle_packet(&mut self, now: Instant, packet: &Packet) {
        let _ = self.host.handle_packet(now, packet);
        self.update_deadline();
    }

    /// The host has no link any more. Returns whether it had an address.
    pub(crate) fn detach(&mut self, now: Instant) -> bool {
        self.noticed = None;
        let had_any = !self.locators.is_empty();
        for peer in self.peers.values_mut() {
            peer.contact.note_down();
        }
        self.set_locators(now, Vec::new());
        had_any
    }

    /// The host has a link with these addresses; `moved` if it is another link than before. Addresses other than its last ones it notices
    /// after the configured delay: `None` until then.
    pub(crate) fn attach(&mut self, now: Instant, locators: Vec<IpAddr>, moved: bool) -> Option<Attachment> {
        self.noticed = None;
        if self.place.0 != locators {
            self.place = (locators, now);
        }
        let delay = self.config.delay.filter(|_| self.place.0 != self.last_locators);
        match delay.map(|delay| delay.draw(&mut self.rng)).filter(|delay| !delay.is_zero()) {
            Some(delay) => {
                self.noticed = Some((now + delay, moved));
                None
            }
            None => Some(self.notice(now, moved)),
        }
    }

    /// The host notices the addresses of its attachment.
    fn notice(&mut self, now: Instant, moved: bool) -> Attachment {
        let locators = self.place.0.clone();
        let (mut changes, mut announced) = (Vec::new(), Vec::new());
        for (&node, peer) in &mut self.peers {
            if matches!(self.host.state(peer.hit), State::R2Sent | State::Established) {
                let it = peer.contact.note_move(now, &self.host.locators_towards(peer.hit, &locators), false);
                changes.extend(it.change.map(|change| (node, change)));
                announced.extend(it.announce.then_some(peer.hit));
            }
        }
        self.set_locators(now, locators);
        if announced.is_empty() {
            return Attachment::Known(moved);
        }
        for hit in announced {
            // The association is usable, and the host has an address.
            let _ = self.host.ensure_announced(now, hit);
        }
        self.update_deadline();
        Attachment::Readdressing(changes)
    }

    fn set_locators(&mut self, now: Instant, locators: Vec<IpAddr>) {
        let is_other = self.locators.first() != locators.first();
        self.host.set_locators(now, &locators);
        if !locators.is_empty() {
            self.last_locators.clone_from(&locators);
            // At a new address, it opens associations with all peers: they could not find this host here.
            for peer in self.peers.values_mut().filter(|peer| is_other || peer.contact.waiting() > 0) {
                // With an association or exchange there is nothing to do.
                let _ = self.host.connect(now, peer.hit);
            }
        }
        self.locators = locators;
        self.update_deadline();
    }

    /// Every deadline at or before `now`. Returns a new attachment that the host notices.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Attachment> {
        let noticed = self.noticed.take_if(|(at, _)| *at <= now);
        let attachment = noticed.map(|(_, moved)| self.notice(now, moved));
        if self.deadline.is_some_and(|at| at <= now) {
            self.host.handle_timeout(now);
            for peer in self.peers.values_mut() {
                if peer.contact.take_announce(now) {
                    // Without an association there is nothing to announce.
                    let _ = self.host.announce(now, peer.hit);
                }
            }
            self.update_deadline();
        }
        attachment
    }

    /// The next deadline.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match (&self.noticed, self.deadline) {
            (Some((noticed_at, _)), Some(deadline)) => Some(deadline.min(*noticed_at)),
            (Some((noticed_at, _)), None) => Some(*noticed_at),
            (None, deadline) => deadline,
        }
    }

    fn update_deadline(&mut self) {
        let again = self.peers.values().filter_map(|peer| peer.contact.poll_timeout());
        self.deadline = again.chain(self.host.poll_timeout()).min();
    }

    /// The next HIP packet to send.
    pub(crate) fn poll_transmit(&mut self) -> Option<Packet> {
        let packet = self.host.poll_transmit()?;
        self.update_deadline();
        Some(packet)
    }

    /// The consequences of the next event. Call it until `None`, and send HIP packets before each call.
    pub(crate) fn poll_effects(&mut self, now: Instant) -> Option<Vec<Effect>> {
        let event = self.host.poll_event()?;
        let effects = self.handle_event(now, &event).unwrap_or_default();
        self.update_deadline();
        Some(effects)
    }

    /// `None` for events without consequences.
    fn handle_event(&mut self, now: Instant, event: &Event) -> Option<Vec<Effect>> {
        let (Event::Established { peer: hit, .. }
        | Event::Failed { peer: hit, .. }
        | Event::Closed { peer: hit }
        | Event::Readdressed { peer: hit, .. }
        | Event::PeerMoved { peer: hit, .. }
        | Event::PeerReaddressed { peer: hit, .. }
        | Event::GaveUp { peer: hit }) = event
        else {
            return None;
        };
        let node = *self.nodes.get(hit)?;
        let peer = self.peers.get_mut(&node)?;
        let path = |change| Effect::Path(node, change);
        Some(match event {
            Event::Established { .. } => {
                peer.moving_to = None;
                let change = peer.contact.note_established(&self.host.locators_towards(*hit, &self.locators));
                if self.locators.len() > 1 {
                    // The exchange has announced one to the peer.
                    let _ = self.host.announce(now, *hit);
                }
                let ready = Effect::Ready(peer.contact.take_waiting());
                let effects = [Effect::Associated(node)].into_iter().chain(change.map(path));
                effects.chain([ready]).collect()
            }
            Event::Failed { .. } => {
                vec![Effect::AssociationFailed(node), Effect::Undeliverable(peer.contact.take_waiting())]
            }
            Event::Closed { .. } => {
                if peer.contact.waiting() > 0 {
                    // Without an address it is opened when there is one.
                    let _ = self.host.connect(now, *hit);
                }
                vec![Effect::AssociationClosed(node)]
            }
            Event::Readdressed { address, .. } => {
                peer.contact.note_readdressed(now, *address)?;
                vec![Effect::Readdressed(node), path(PathChange::Moved)]
            }
            Event::PeerMoved { address, .. } => {
                peer.moving_to = Some(*address);
                peer.contact.note_peer_move().map(path).into_iter().collect()
            }
            Event::PeerReaddressed { address, .. } => {
                let is_end = peer.moving_to.take_if(|it| it == address).is_some();
                if is_end { vec![Effect::PeerReaddressed(node, *address)] } else { Vec::new() }
            }
            Event::GaveUp { .. } => {
                peer.contact.note_gave_up(now);
                if peer.contact.is_moving() { vec![Effect::GaveUp(node)] } else { Vec::new() }
            }
            _ => return None,
        })
    }
}
