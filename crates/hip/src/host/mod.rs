//! A host with an identity and its associations (RFC 7401 section 4.4, RFC 8046): base exchange, UPDATE, CLOSE, and ESP.
//!
//! The order of calls: a command, [`Host::handle_packet`] or [`Host::handle_timeout`], then [`Host::poll_transmit`] and
//! [`Host::poll_relayed`] until `None`, then [`Host::poll_event`] until `None`, then [`Host::poll_timeout`]. Data passes [`Host::seal`] on its way out and
//! [`Host::open`] on its way in. The owner gives randomness once, at the start; time is an argument and never goes back.
//!
//! A responder keeps no state for an I1 (`responder.rs`). Every later packet is authenticated before anything changes: [`Dropped`] is the
//! reason why a packet was not accepted.

mod address;
mod address_pairs;
mod association;
mod check_budget;
mod checklist;
mod client;
mod close;
mod config;
mod connectivity;
mod contact;
mod data;
mod event;
mod exchange;
mod in_flight;
mod initiator;
mod insider;
mod invitation;
mod local;
mod opportunistic;
mod path_check;
mod peer_addresses;
mod rate;
mod reachability;
mod readdress;
mod registration;
mod registry;
mod rekey;
mod relay;
mod responder;
mod update;
mod update_ids;
mod via;

pub use address::AddressProblem;
pub use config::{HostConfig, RekeyLimits, SpiPart};
pub use contact::{Contact, Move, PathChange};
pub use data::{Accepted, Assigned, Authentic, Decapsulation, Encapsulation};
pub use event::{CommandError, DataError, Dropped, Event, Failure, Opened, State};
pub(crate) use insider::{Census, Proofs, Tlv};
pub use invitation::SECRET_LEN;
pub use local::ForkableRng;
pub use reachability::PathCheckConfig;
pub use registry::{ServerConfig, Service, registration_lifetime};
pub use via::{RelayTarget, Relayed};

use std::collections::{BTreeMap, VecDeque};

use std::sync::Arc;

use core::net::IpAddr;

use holdover_base::Instant;
use holdover_wire::Packet;
use rand_core::CryptoRng;

use self::association::Association;
use self::invitation::Invitations;
use self::local::{Local, Randomness};
use self::opportunistic::Opportunistic;
use self::peer_addresses::Status;
use self::rate::{Rate, SourceRates};
use self::registry::Registry;
use self::responder::Responder;
use self::via::Via;
use crate::codec::{DomainId, HipPacket, PacketType, Received};
use crate::esp::{Inbound, Outbound};
use crate::identity::{Hit, KeyPair};

/// ESP's SPI is in its first four bytes.
const SPI_LEN: usize = 4;

/// How a HIP packet arrived.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// The source port if it arrived in UDP.
    port: Option<u16>,
    /// The server of this host that has forwarded it.
    via: Option<Via>,
}

impl Arrival {
    /// The rendezvous server that has forwarded it.
    fn met_by(self) -> Option<Via> {
        self.via.filter(|via| !via.is_relay)
    }
}

/// A host.
pub struct Host {
    local: Local,
    associations: BTreeMap<Hit, Association>,
    responder: Responder,
    opportunistic: Opportunistic,
    invitations: Invitations,
}

/// Prints no key.
impl core::fmt::Debug for Host {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let associations = self.associations.len();
        f.debug_struct("Host")
            .field("hit", &self.local.hit)
            .field("associations", &associations)
            .finish_non_exhaustive()
    }
}

impl Host {
    /// A host without addresses. `rng` must be cryptographic: keys are drawn from it.
    pub fn new(keys: KeyPair, config: HostConfig, rng: Box<dyn CryptoRng + Send>) -> Self {
        Self::with_randomness(keys, config, Randomness::Unique(rng))
    }

    /// A host without addresses that can be copied ([`Self::fork`]).
    pub fn for_simulation(keys: KeyPair, config: HostConfig, rng: Box<dyn ForkableRng>) -> Self {
        Self::with_randomness(keys, config, Randomness::Forkable(rng))
    }

    fn with_randomness(keys: KeyPair, config: HostConfig, mut rng: Randomness) -> Self {
        let (hit, host_id) = (keys.hit(), keys.identity().host_id(DomainId::default()));
        let mut source_rates = || {
            let mut secret = [0; 16];
            rng.fill_bytes(&mut secret);
            SourceRates::new(&secret)
        };
        let (notified, notified_sources) = (Rate::default(), source_rates());
        let responder = Responder::new(&config, source_rates());
        let (transmit, events) = (VecDeque::new(), VecDeque::new());
        let (locators, spis) = (Vec::new(), BTreeMap::new());
        let (relayed, registry, reply_via) = (VecDeque::new(), Registry::default(), None);
        let relay_views = BTreeMap::new();
        let local = Local {
            keys: Arc::new(keys),
            hit,
            host_id,
            config,
            rng,
            locators,
            spis,
            transmit,
            events,
            relayed,
            registry,
            relay_views,
            notified,
            notified_sources,
            reply_via,
            has_shown_source: false,
        };
        Self {
            local,
            associations: BTreeMap::new(),
            responder,
            opportunistic: Opportunistic::default(),
            invitations: Invitations::default(),
        }
    }

    /// A copy with the same keys, sequence numbers, nonces and randomness, for simulations that continue in several ways; `None` for a host
    /// that was not made by [`Self::for_simulation`]: on a network, both would encrypt different packets with one nonce.
    #[must_use]
    pub fn fork(&self) -> Option<Self> {
        Some(Self {
            local: self.local.fork()?,
            associations: self.associations.clone(),
            responder: self.responder.clone(),
            opportunistic: self.opportunistic.clone(),
            invitations: self.invitations.clone(),
        })
    }

    /// This host's HIT.
    pub const fn hit(&self) -> Hit {
        self.local.hit
    }

    /// The state of the association with a peer.
    pub fn state(&self, peer: Hit) -> State {
        self.associations.get(&peer).map_or(State::Unassociated, |association| association.state)
    }

    /// The security associations to and from a peer, for another data plane.
    pub fn security_associations(&self, peer: Hit) -> Option<(&Outbound, &Inbound)> {
        let association = self.associations.get(&peer).filter(|association| association.is_usable())?;
        association.secured.as_ref().map(|secured| (&secured.outbound, &secured.inbound))
    }

    /// The verified addresses of a peer that it has not left.
    pub fn verified_addresses(&self, peer: Hit) -> Vec<IpAddr> {
        let addresses =
            self.associations.get(&peer).into_iter().flat_map(|association| association.peer_addresses.iter());
        addresses.filter(|it| it.status == Status::Active).map(|it| it.address).collect()
    }

    /// The address of this host at which the last exchange with a peer took place: the peer has no other one before the next announcement.
    pub fn exchange_address(&self, peer: Hit) -> Option<IpAddr> {
        self.associations.get(&peer)?.updates.exchanged_at
    }

    /// The paths that data to a peer can take: pairs of addresses of this host and verified ones of the peer, the best ones first; and whether it
    /// takes the path now.
    pub fn paths(&self, peer: Hit) -> Vec<((IpAddr, IpAddr), bool)> {
        let association = self.associations.get(&peer).filter(|association| association.is_usable());
        association.map(|association| association.paths(&self.local)).unwrap_or_default()
    }

    /// The number of remembered peers, and of signed R1s and Diffie-Hellman key pairs kept for initiators.
    pub fn remembered(&self) -> (usize, usize) {
        (self.associations.len(), self.responder.kept())
    }

    /// The counter of the next puzzles: greater than those of all R1s so far (RFC 7401 section 4.1.4).
    pub const fn next_r1_counter(&self) -> u64 {
        self.responder.next_counter()
    }

    /// The number of inbound SPIs: one for each association, and another one while its keys change.
    pub fn inbound_spis(&self) -> usize {
        self.local.spis.len()
    }

    /// Adds possible addresses of a peer. Sends nothing.
    pub fn add_peer(&mut self, peer: Hit, addresses: &[IpAddr]) {
        let association = self.associations.entry(peer).or_insert_with(|| Association::new(peer));
        association.is_configured = true;
        association.peer_addresses.add_known(addresses);
    }

    /// Removes a peer: its association ends, and its addresses are dropped.
    pub fn remove_peer(&mut self, now: Instant, peer: Hit) {
        if let Some(association) = self.associations.get_mut(&peer) {
            association.is_configured = false;
            association.presented = None;
            if association.close(&mut self.local, now).is_err() {
                association.end(&mut self.local, now);
            }
        }
    }

    /// Begins an exchange with a peer.
    ///
    /// # Errors
    ///
    /// [`CommandError`] if there is an association or exchange already, or nowhere to send.
    pub fn connect(&mut self, now: Instant, peer: Hit) -> Result<(), CommandError> {
        let association = self.associations.get_mut(&peer).ok_or(CommandError::NoAddress { peer })?;
        association.connect(&mut self.local, now)
    }

    /// Sets this host's addresses, the preferred one first. Peers are notified; exchanges over a removed address restart, and those that
    /// had no address.
    pub fn set_locators(&mut self, now: Instant, locators: &[IpAddr]) {
        let had_none = self.local.locators.is_empty() && !locators.is_empty();
        let before = core::mem::replace(&mut self.local.locators, locators.to_vec());
        let has_changed = before != locators;
        if has_changed {
            self.local.outdate_views(&before);
        }
        // Servers first: if both hosts have moved, the UPDATE of one of them reaches the server behind the other one's, and is forwarded.
        let (servers, others): (Vec<_>, Vec<_>) = self.associations.values_mut().partition(|it| it.client.is_some());
        for association in servers.into_iter().chain(others) {
            if has_changed {
                association.handle_other_addresses(&self.local, now);
                if !association.connectivity.outlasts(&before, locators) {
                    let is_move = before.first() != locators.first() || association.connectivity.is_undecided(locators);
                    association.stop_checks(&mut self.local, now);
                    if is_move {
                        association.begin_handover(now, locators);
                    }
                }
            }
            let between = association.prospect.as_ref().map(|prospect| prospect.offer.between);
            let between = between.or(association.solving.as_ref().map(|solving| solving.offer.between));
            let between = between.filter(|_| association.state != State::Closed);
            let is_unsent = had_none && association.state == State::I1Sent;
            if is_unsent || between.is_some_and(|(src, _)| !locators.contains(&src)) {
                association.begin(&mut self.local, now);
            }
            if locators.is_empty() {
                association.updates.suspend_announcement();
            }
            association.announce_if_moved(&mut self.local, now);
        }
    }

    /// Announces this host's locators to a peer, even if it knows them: after [`Event::GaveUp`], or at link-up.
    ///
    /// # Errors
    ///
    /// [`CommandError::State`] without an association, [`CommandError::NoAddress`] without locators.
    pub fn announce(&mut self, now: Instant, peer: Hit) -> Result<(), CommandError> {
        if self.local.locators.is_empty() {
            return Err(CommandError::NoAddress { peer });
        }
        let state = self.state(peer);
        let association = self.associations.get_mut(&peer).filter(|association| association.is_usable());
        association.ok_or(CommandError::State { state })?.announce(&mut self.local, now);
        Ok(())
    }

    /// The same, unless the peer has not acknowledged the last announcement yet.
    ///
    /// # Errors
    ///
    /// As [`Self::announce`].
    pub fn ensure_announced(&mut self, now: Instant, peer: Hit) -> Result<(), CommandError> {
        let is_pending = |association: &Association| association.updates.announcement.is_some();
        if self.associations.get(&peer).is_some_and(is_pending) { Ok(()) } else { self.announce(now, peer) }
    }

    /// Those of these locators whose IP version the peer has an address of: the others it cannot verify. All of them if no address of
    /// the peer is known.
    pub fn locators_towards(&self, peer: Hit, locators: &[IpAddr]) -> Vec<IpAddr> {
        let addresses = self.associations.get(&peer).map(|association| &association.peer_addresses);
        let addresses = || {
            addresses.into_iter().flat_map(|addresses| addresses.iter()).filter(|it| it.status != Status::Deprecated)
        };
        let is_shared = |own: &IpAddr| addresses().any(|it| it.address.is_ipv4() == own.is_ipv4());
        let has_none = addresses().next().is_none();
        locators.iter().copied().filter(|own| has_none || is_shared(own)).collect()
    }

    /// Changes the keys of an association: drawn from the material that both have, or from a new Diffie-Hellman exchange.
    ///
    /// # Errors
    ///
    /// [`CommandError`] without an association, or if the material is used up.
    pub fn rekey(&mut self, now: Instant, peer: Hit, new_dh: bool) -> Result<(), CommandError> {
        let state = self.state(peer);
        let association = self.associations.get_mut(&peer).ok_or(CommandError::State { state })?;
        association.rekey(&mut self.local, now, new_dh)
    }

    /// An authentic packet of the peer, newer than all others ([`Opened::is_newest`]), arrived in UDP from an
    /// unexpected address, or from another port if `is_rebound`. A check is sent there. `false` if that changes too
    /// often; the owner keeps the old port then.
    pub fn follow(&mut self, now: Instant, peer: Hit, address: IpAddr, is_rebound: bool) -> bool {
        let association = self.associations.get_mut(&peer);
        association.is_some_and(|association| association.follow(&mut self.local, now, address, is_rebound))
    }

    /// Whether packets of a peer may come from an address: it is verified, or being checked, and data does not go
    /// elsewhere within the credit.
    pub fn is_expected_at(&self, peer: Hit, address: IpAddr) -> bool {
        self.associations.get(&peer).is_some_and(|association| association.peer_addresses.is_expected(address))
    }

    /// Whether a peer is at an address that was verified, and that it has not left.
    pub fn has_locator(&self, peer: Hit, address: IpAddr) -> bool {
        let addresses = self.associations.get(&peer).map(|association| &association.peer_addresses);
        addresses.is_some_and(|addresses| addresses.is_active(address) && !addresses.is_relay(address))
    }

    /// Whether a peer is reached at an address through a server.
    pub fn is_relay(&self, peer: Hit, address: IpAddr) -> bool {
        self.associations.get(&peer).is_some_and(|association| association.peer_addresses.is_relay(address))
    }

    /// Whether connectivity checks with a peer are in progress: it has this host's candidates.
    pub fn is_checking(&self, peer: Hit) -> bool {
        self.associations.get(&peer).is_some_and(|association| association.connectivity.is_checking())
    }

    /// Ends an association.
    ///
    /// # Errors
    ///
    /// [`CommandError::State`] without one.
    pub fn close(&mut self, now: Instant, peer: Hit) -> Result<(), CommandError> {
        let state = self.state(peer);
        let association = self.associations.get_mut(&peer).ok_or(CommandError::State { state })?;
        association.close(&mut self.local, now)
    }

    /// Handles a HIP packet.
    ///
    /// # Errors
    ///
    /// [`Dropped`]: the packet has had no effect.
    pub fn handle_packet(&mut self, now: Instant, packet: &Packet) -> Result<(), Dropped> {
        self.handle(now, packet, None)
    }

    /// Handles a HIP packet in UDP from a port: its source may be a translator's.
    ///
    /// # Errors
    ///
    /// [`Dropped`]: the packet has had no effect.
    pub fn handle_packet_in_udp(&mut self, now: Instant, packet: &Packet, port: u16) -> Result<(), Dropped> {
        self.handle(now, packet, Some(port))
    }

    /// Whether the HIP packet that was handled last shows where an associated peer is: an UPDATE with a MAC and a signature that came from
    /// the peer itself and is no replay. Anyone can send an I1, and replay a NOTIFY, from any address. The last packets of exchanges are
    /// reported by [`Event::Established`].
    pub const fn has_shown_source(&self) -> bool {
        self.local.has_shown_source
    }

    fn handle(&mut self, now: Instant, packet: &Packet, port: Option<u16>) -> Result<(), Dropped> {
        self.local.has_shown_source = false;
        let received = HipPacket::parse(packet)?;
        let HipPacket { kind, sender, receiver, .. } = received.packet;
        let is_opportunistic = kind == PacketType::I1 && receiver == Hit::UNSPECIFIED;
        if sender == self.local.hit {
            return Err(Dropped::NotForUs);
        }
        if receiver != self.local.hit && !is_opportunistic {
            return self.forward(now, &received, packet, port);
        }
        let via = self.find_server(now, &received, packet)?;
        self.local.reply_via = via.as_ref().and_then(|via| self.reply_via(via));
        let result = self.handle_own(now, &received, packet, Arrival { port, via });
        self.local.reply_via = None;
        if result.is_ok() {
            self.permit_data(now, sender);
            self.offer_candidates(now, sender);
        }
        result
    }

    /// Sends this host's candidates after a move, which may have waited for this packet of a relay or of the peer.
    fn offer_candidates(&mut self, now: Instant, sender: Hit) {
        let is_server = self.associations.get(&sender).is_some_and(|it| it.client.is_some());
        for (peer, association) in &mut self.associations {
            if is_server || *peer == sender {
                association.offer_candidates(&mut self.local, now);
            }
        }
    }

    /// A packet for this host.
    fn handle_own(
        &mut self,
        now: Instant,
        received: &Received,
        packet: &Packet,
        arrival: Arrival,
    ) -> Result<(), Dropped> {
        let HipPacket { kind, sender, .. } = received.packet;
        match kind {
            PacketType::I1 => return self.handle_i1(now, &received.packet, packet, arrival),
            PacketType::I2 => return self.handle_i2(now, received, packet, arrival),
            PacketType::R1 if self.state(sender) != State::I1Sent => {
                if let Some(result) = self.handle_opportunistic_r1(now, received, packet, arrival) {
                    return result;
                }
            }
            _ => {}
        }
        let (local, between) = (&mut self.local, (packet.dst, packet.src));
        let association = self.associations.get_mut(&sender).ok_or(Dropped::UnknownPeer)?;
        match kind {
            PacketType::R1 => association.handle_r1(local, now, received, between, arrival),
            PacketType::R2 => association.handle_r2(local, now, received, arrival),
            PacketType::Update => association.handle_update(local, now, received, between, arrival),
            PacketType::Notify => association.handle_notify(local, received),
            PacketType::Close => association.handle_close(local, now, received, between),
            PacketType::CloseAck => association.handle_close_ack(local, now, received),
            PacketType::I1 | PacketType::I2 => Ok(()),
        }
    }

    /// Every deadline at or before `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        for association in self.associations.values_mut().chain(self.opportunistic.iter_mut()) {
            if association.deadline(&self.local).is_some_and(|at| at <= now) {
                // Unsendable packets are retried when due; there is no one to report to.
                let _ = association.handle_timeout(&mut self.local, now);
            }
        }
        self.forget_permissions();
        self.opportunistic.forget_ended();
        self.associations.retain(|_, association| !association.is_forgettable());
    }

    /// Stops renewing permissions for data of peers without an association.
    fn forget_permissions(&mut self) {
        if !self.associations.values().any(|it| it.client.as_ref().is_some_and(|client| client.has_permissions())) {
            return;
        }
        let usable: Vec<Hit> = self.associations.values().filter(|it| it.is_usable()).map(|it| it.peer).collect();
        for client in self.associations.values_mut().filter_map(|it| it.client.as_mut()) {
            client.keep_permissions(|peer| usable.binary_search(peer).is_ok());
        }
    }

    /// The next packet to send.
    pub fn poll_transmit(&mut self) -> Option<Packet> {
        self.local.transmit.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.local.events.pop_front()
    }

    /// The next deadline.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let associations = self.associations.values().chain(self.opportunistic.iter());
        associations.filter_map(|association| association.deadline(&self.local)).min()
    }
}
