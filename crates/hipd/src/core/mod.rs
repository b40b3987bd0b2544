//! The daemon's decisions, without sockets and clocks: a host with its associations ([`Host`]), the encapsulation of its packets, and
//! [`Wake`](holdover_mobility::wake::Wake) between the host's own TCP and each peer.
//!
//! The order of calls: one of the `handle_*`, `set_*` or commands, then [`Core::poll_network`], [`Core::poll_inner`] and
//! [`Core::poll_note`] until `None`, then [`Core::poll_timeout`]. Time is an argument and never goes back.
//!
//! A packet of a program goes TUN device -> [`Core::handle_inner`] -> from LSIs to HITs -> wake -> [`Host::begin_seal`] ->
//! [`Core::poll_outgoing`]; one from a peer [`Core::begin_network`] -> [`Incoming::decrypt`] -> [`Core::finish_network`] -> behind those of
//! a former path -> wake -> to LSIs where the program has IPv4 -> [`Core::poll_inner`] -> TUN device. Encryption and decryption are the
//! caller's, who may do it on several threads: [`Core::poll_network`] and [`Core::handle_network`] do it at once.

mod between_hits;
mod calls;
mod config;
mod data;
mod encapsulation;
mod events;
mod identities;
mod invitations;
mod last_data;
mod lsi;
mod path_mtu;
mod path_order;
mod peer;
mod translation;

use std::collections::{BTreeMap, VecDeque};

use core::net::{IpAddr, Ipv4Addr};

use holdover_base::{Duration, Instant};
use holdover_hip::esp::esp_sa;
use holdover_hip::host::{CommandError, DataError, Dropped, Event, Host, Service, State};
use holdover_hip::identity::{Hit, KeyPair};
use holdover_mobility::hold_open::{HoldOpen, HoldOpenConfig};
use holdover_mobility::{Direction, SegmentFilter as _, Verdict};
use holdover_wire::{IcmpError, Packet, Payload, Unreachable};
use rand_core::CryptoRng;

pub use self::between_hits::{BetweenHits, BetweenHitsCounts};
pub use self::calls::CallState;
use self::calls::Calls;
pub use self::config::CoreConfig;
pub use self::data::{Data, Decrypted, Incoming, Outgoing};
pub use self::encapsulation::PORT;
pub use self::identities::{Identities, PlainHost, Side};
use self::invitations::Offers;
pub use self::invitations::{InvitationState, MAX_OPEN};
pub use self::lsi::{LsiPrefix, LsiPrefixError};
use self::path_mtu::{Fit, PathMtus};
use self::path_order::InAll;
use self::peer::PeerState;
use self::translation::Translation;
pub use self::translation::{End, IpVersion, KernelSockets, ProgramAddresses};
use crate::files::{Peer, Peers, Serves};
use crate::status::{Counters, PathStatus, PeerStatus};

/// The time until a server is called again after its association has failed or ended.
const CALL_SERVER_AGAIN: Duration = Duration::from_secs(10);

/// An event for the owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// The event.
    pub event: Event,
    /// For [`Event::Readdressed`] after a move: the time since the new address was there.
    pub after: Option<Duration>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Core {
    host: Host,
    config: CoreConfig,
    /// `None` for programs that use HITs only.
    translation: Option<Translation>,
    peers: BTreeMap<Hit, PeerState>,
    /// Packets of peers that wait for those of their former paths.
    reordering: InAll,
    locators: Vec<IpAddr>,
    path_mtus: PathMtus,
    network: VecDeque<Outgoing>,
    inner: VecDeque<Packet>,
    notes: VecDeque<Note>,
    counters: Counters,
    offers: Offers,
    calls: Calls,
    /// All associations are ending, and no new ones are opened.
    is_ending: bool,
}

impl Core {
    /// A host without addresses or peers. `rng` must be cryptographic.
    pub fn new(keys: KeyPair, config: CoreConfig, rng: Box<dyn CryptoRng + Send>) -> Self {
        Self {
            host: Host::new(keys, config.host.clone(), rng),
            config,
            translation: None,
            peers: BTreeMap::new(),
            reordering: InAll::default(),
            locators: Vec::new(),
            path_mtus: PathMtus::default(),
            network: VecDeque::new(),
            inner: VecDeque::new(),
            notes: VecDeque::new(),
            counters: Counters::default(),
            offers: Offers::default(),
            calls: Calls::default(),
            is_ending: false,
        }
    }

    /// Programs with IPv4 only reach peers by LSIs of this prefix. `sockets` identifies these programs. Call it before
    /// peers are set.
    pub fn use_lsis(&mut self, prefix: LsiPrefix, sockets: Box<dyn KernelSockets>) {
        self.translation = Some(Translation::of_this_host(prefix, self.hit(), sockets));
    }

    /// The programs are those of another host, which has no HIP: they have these addresses, and reach peers by HITs, and by LSIs of this
    /// prefix if there is one. Packets that belong to no flow of theirs are delivered in the version of `default`. Call it before peers are
    /// set.
    pub fn stand_for(&mut self, addresses: ProgramAddresses, default: IpVersion, prefix: Option<LsiPrefix>) {
        self.translation = Some(Translation::of_other_host(prefix, self.hit(), addresses, default));
    }

    /// The IPv4 address of the programs, if they have one: the LSI of this host.
    pub fn lsi(&self) -> Option<Ipv4Addr> {
        self.translation.as_ref().and_then(Translation::v4)
    }

    /// Sets the user timeout of connections with peers, also of those that are open.
    pub fn set_hold(&mut self, hold: Option<HoldOpenConfig>) {
        self.config.hold = hold;
        for peer in self.peers.values_mut() {
            match (&mut peer.hold, hold) {
                (Some(filter), Some(config)) => filter.configure(config),
                (filter, None) => *filter = None,
                (None, Some(_)) => {}
            }
        }
    }

    /// This host's HIT.
    pub const fn hit(&self) -> Hit {
        self.host.hit()
    }

    /// This host's locators.
    pub fn locators(&self) -> &[IpAddr] {
        &self.locators
    }

    /// The state of the association with a peer.
    pub fn state(&self, peer: Hit) -> State {
        self.host.state(peer)
    }

    /// The packet counters.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether packets in ESP with this SPI are for this identity.
    pub fn has_inbound(&self, spi: u32) -> bool {
        self.host.has_inbound(spi)
    }

    /// The number of registered clients, and of their permissions to forward data.
    pub fn clients(&self) -> (usize, usize) {
        self.host.clients()
    }

    /// Possible addresses of peers: the system's routes to them determine this host's locators. Verified ones come first, and of these the IP
    /// version that this host prefers: it stays while it reaches any peer, so that one that changes its own moves no other.
    pub fn peer_addresses(&self) -> Vec<IpAddr> {
        let configured = self.peers.values().flat_map(|peer| peer.addresses.iter().chain(&peer.servers).copied());
        let mut addresses: Vec<IpAddr> =
            self.peers.keys().flat_map(|&peer| self.host.verified_addresses(peer)).collect();
        let is_preferred = |address: &IpAddr| self.locators.first().is_some_and(|it| it.is_ipv4() == address.is_ipv4());
        addresses.sort_by_key(|address| !is_preferred(address));
        addresses.extend(configured);
        let mut seen = std::collections::BTreeSet::new();
        addresses.retain(|&address| seen.insert(address));
        addresses
    }

    /// The counter of this identity's next puzzles, as [`Host::next_r1_counter`].
    pub const fn next_r1_counter(&self) -> u64 {
        self.host.next_r1_counter()
    }

    /// The ESP keys to and from a peer in Wireshark's format, as long as there is an association.
    pub fn esp_keys(&self, peer: Hit) -> Option<String> {
        let (outbound, inbound) = self.host.security_associations(peer)?;
        Some(esp_sa(outbound.spi(), outbound.keys()) + &esp_sa(inbound.spi(), inbound.keys()))
    }

    /// The status of each peer.
    pub fn peer_status(&self) -> Vec<PeerStatus> {
        let status = |(&hit, peer): (&Hit, &PeerState)| {
            let services = self.host.services(hit).iter().map(|service| service_name(*service).to_owned()).collect();
            let status = peer.status(hit, self.host.state(hit), self.host.verified_addresses(hit), services);
            let path = |((from, to), in_use)| PathStatus {
                from,
                to,
                link: None,
                in_use,
                verified: peer.contact.is_proven(from),
            };
            let paths = self.host.paths(hit).into_iter().map(path).collect();
            PeerStatus { lsi: self.translation.as_ref().and_then(|it| it.of(hit)), paths, ..status }
        };
        self.peers.iter().map(status).collect()
    }

    /// Sets the peers. Associations with others end.
    pub fn set_peers(&mut self, now: Instant, peers: &Peers) {
        if let Some(translation) = &mut self.translation {
            translation.set_peers(peers.iter().map(Peer::hit));
        }
        let gone: Vec<Hit> =
            self.peers.iter().filter(|(_, state)| state.is_configured()).map(|(&hit, _)| hit).collect();
        for hit in gone.into_iter().filter(|&hit| peers.iter().all(|peer| peer.hit() != hit)) {
            self.host.remove_peer(now, hit);
            self.forget_peer(hit);
        }
        for peer in peers.iter() {
            self.host.add_peer(peer.hit(), &peer.addresses);
            self.host.add_servers(peer.hit(), &peer.servers);
            self.host.register(now, peer.hit(), peer.serves.map_or(&[], Serves::services));
            self.peers.entry(peer.hit()).or_default().configure(peer);
        }
        self.collect(now, None);
        if !self.locators.is_empty() {
            self.connect_those(now, peers.iter().map(Peer::hit).collect());
        }
    }

    /// Forgets a peer and its waiting packets.
    pub(super) fn forget_peer(&mut self, hit: Hit) {
        if let Some(mut state) = self.peers.remove(&hit) {
            state.order.discard(&mut self.reordering);
        }
    }

    /// Sets this host's addresses, the preferred one first.
    pub fn set_locators(&mut self, now: Instant, locators: &[IpAddr]) {
        if self.locators == locators {
            return;
        }
        let before = std::mem::replace(&mut self.locators, locators.to_vec());
        self.path_mtus.clear();
        let is_other = before.first() != locators.first();
        let (mut announced, mut woken) = (Vec::new(), Vec::new());
        for (&hit, peer) in &mut self.peers {
            let towards = self.host.locators_towards(hit, locators);
            if locators.is_empty() {
                peer.note_down(now);
            } else if !is_other {
                woken.extend(peer.note_left(now, &towards).then_some(hit));
            } else {
                let it = peer.note_move(now, &towards);
                if it.announce {
                    announced.push(hit);
                } else if it.change.is_some() {
                    woken.push(hit);
                }
            }
        }
        self.host.set_locators(now, locators);
        for hit in announced {
            // Without an association there is nothing to announce.
            let _ = self.host.ensure_announced(now, hit);
        }
        self.collect(now, None);
        for peer in woken {
            self.wake_after_move(now, peer);
        }
        for peer in self.peers.keys().copied().collect::<Vec<_>>() {
            self.drain_wake(now, peer);
        }
        if !locators.is_empty() {
            // At a new address, it opens associations with all peers: they could not find this host here.
            let called = self.peers.iter().filter(|(_, peer)| is_other || peer.contact.waiting() > 0);
            self.connect_those(now, called.map(|(&hit, _)| hit).collect());
        }
    }

    fn connect_those(&mut self, now: Instant, peers: Vec<Hit>) {
        for peer in peers.into_iter().filter(|_| !self.is_ending) {
            // With an association, or without an address, there is nothing to do.
            let _ = self.host.connect(now, peer);
        }
        self.collect(now, None);
    }

    /// Opens an association with a peer.
    ///
    /// # Errors
    /// [`CommandError`] if there is one, or no address of the peer that can be reached.
    pub fn connect(&mut self, now: Instant, peer: Hit) -> Result<(), CommandError> {
        let result = self.host.connect(now, peer);
        self.collect(now, None);
        result
    }

    /// Ends all associations, and opens no more.
    pub fn close_all(&mut self, now: Instant) {
        self.is_ending = true;
        for peer in self.peers.keys().copied().collect::<Vec<_>>() {
            let _ = self.host.close(now, peer);
        }
        self.collect(now, None);
    }

    /// Whether a CLOSE is still unanswered.
    pub fn is_closing(&self) -> bool {
        self.peers.keys().any(|&peer| self.host.state(peer) == State::Closing)
    }

    /// A packet of this host's programs for a peer.
    pub fn handle_inner(&mut self, now: Instant, packet: Packet) {
        let packet = match &mut self.translation {
            Some(translation) => translation.outgoing(packet),
            None => Ok(packet),
        };
        let packet = match packet {
            Ok(packet) => packet,
            Err(answer) => {
                self.counters.not_for_hits += 1;
                return self.inner.extend(answer.map(|answer| *answer));
            }
        };
        let IpAddr::V6(dst) = packet.dst else { return self.counters.not_for_hits += 1 };
        let peer = Hit(dst);
        if peer.suite().is_none() || packet.src != IpAddr::V6(self.hit().0) {
            self.counters.not_for_hits += 1;
            return;
        }
        self.filter(now, peer, Direction::Outgoing, packet);
    }

    /// A packet from the network for one of this host's addresses: HIP, ESP, or either in UDP.
    pub fn handle_network(&mut self, now: Instant, packet: Packet) {
        if let Some(incoming) = self.begin_network(now, packet) {
            self.finish_network(now, incoming.decrypt());
        }
    }

    /// Every deadline at or before `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.host.poll_timeout().is_some_and(|at| at <= now) {
            self.host.handle_timeout(now);
        }
        let due = |peer: &PeerState| peer.poll_timeout().is_some_and(|at| at <= now);
        self.end_offers(now);
        self.end_calls(now);
        for hit in self.peers.iter().filter(|(_, peer)| due(peer)).map(|(&hit, _)| hit).collect::<Vec<_>>() {
            let Some(peer) = self.peers.get_mut(&hit) else { continue };
            if peer.contact.take_announce(now) {
                let _ = self.host.announce(now, hit);
            }
            if peer.take_call(now) && !self.is_ending && self.host.connect(now, hit).is_err() {
                // With an association, or without a path to the server, there is nothing to do now.
                peer.call_at = (self.host.state(hit) == State::Unassociated).then(|| now + CALL_SERVER_AGAIN);
            }
            if peer.take_keep_alive(now) {
                self.keep_alive(now, hit);
            }
            let Some(peer) = self.peers.get_mut(&hit) else { continue };
            if let Some(wake) = &mut peer.wake
                && wake.poll_timeout().is_some_and(|at| at <= now)
            {
                wake.handle_timeout(now);
            }
            peer.order.handle_timeout(now);
            self.drain_wake(now, hit);
            self.deliver_waiting(now, hit);
        }
        self.collect(now, None);
    }

    /// The next packet for the network.
    pub fn poll_network(&mut self) -> Option<Packet> {
        loop {
            match self.network.pop_front()?.seal() {
                Ok(packet) => return Some(packet),
                Err(_) => self.counters.not_sealed += 1,
            }
        }
    }

    /// The same, to be encrypted by the caller.
    pub fn poll_outgoing(&mut self) -> Option<Outgoing> {
        self.network.pop_front()
    }

    /// The next packet for this host's programs.
    pub fn poll_inner(&mut self) -> Option<Packet> {
        self.inner.pop_front()
    }

    /// The next event.
    pub fn poll_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    /// The next deadline.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let peers = self.peers.values().filter_map(PeerState::poll_timeout);
        peers.chain(self.host.poll_timeout()).chain(self.offers.poll_timeout()).chain(self.calls.poll_timeout()).min()
    }

    /// Keeps translators' bindings between this host and a peer alive.
    fn keep_alive(&mut self, now: Instant, hit: Hit) {
        let has_data = |peer: &PeerState| peer.contact.has_data_within(now, self.config.keep_alive * 2);
        let is_silent = !self.peers.get(&hit).is_some_and(has_data);
        match self.host.keep_alive(now, hit, is_silent) {
            Ok(packet) => {
                self.counters.keep_alives += 1;
                self.carry(now, hit, packet, None);
            }
            // The association has ended.
            Err(DataError::NoAssociation) => {}
            Err(_) => {
                if let Some(peer) = self.peers.get_mut(&hit) {
                    peer.keep_alive_at = Some(now + self.config.keep_alive);
                }
            }
        }
    }

    fn handle_hip(&mut self, now: Instant, packet: &Packet, port: Option<u16>) {
        self.counters.hip_in += 1;
        let sender = encapsulation::sender_of(packet);
        let handled = match port {
            Some(port) => self.host.handle_packet_in_udp(now, packet, port),
            None => self.host.handle_packet(now, packet),
        };
        match handled {
            Ok(()) => {
                if let Some(peer) = sender.filter(|_| self.host.has_shown_source()) {
                    self.peers.entry(peer).or_default().heard(packet.src, port);
                }
            }
            Err(dropped) => {
                self.counters.hip_dropped += 1;
                tracing::debug!(src = %packet.src, %dropped, "HIP packet dropped");
                if matches!(dropped, Dropped::State { .. }) && encapsulation::is_of_association(packet) {
                    self.call_back(now, packet, sender);
                }
            }
        }
        self.collect(now, sender.map(|peer| (peer, packet.src, port)));
    }

    /// A peer has an association that this host has lost, as after a crash. It does not learn of that by itself, and may be behind a
    /// translator, where no address of the file reaches it: this host begins an exchange at the source of the packet. The packet is not
    /// authentic, as its keys are lost; the answer is no longer than it.
    fn call_back(&mut self, now: Instant, packet: &Packet, sender: Option<Hit>) {
        let Some(hit) = sender.filter(|_| !self.is_ending) else { return };
        if self.peers.get_mut(&hit).is_some_and(|peer| peer.contact.may_call_back(now)) {
            // With an association, or an exchange that has come further, there is nothing to do.
            let _ = self.host.call_back(now, hit, (packet.dst, packet.src));
        }
    }

    /// Runs a packet between this host's programs and a peer through the mechanisms.
    fn filter(&mut self, now: Instant, peer: Hit, direction: Direction, mut packet: Packet) {
        self.hold(now, peer, direction, &mut packet);
        if let Some(state) = self.peers.get_mut(&peer).filter(|state| state.wake.is_some()) {
            match direction {
                Direction::Outgoing => state.last_data.note_outgoing(now, &packet),
                Direction::Incoming => state.last_data.note_incoming(&packet),
            }
        }
        let wake = self.peers.get_mut(&peer).and_then(|state| state.wake.as_mut());
        let verdict = wake.map_or(Verdict::Pass, |wake| wake.handle_packet(now, direction, &mut packet));
        if verdict == Verdict::Pass {
            self.forward(now, peer, direction, packet);
        }
        self.drain_wake(now, peer);
    }

    /// Holds a connection open while the peer does not answer. The answers are for this host's programs alone.
    fn hold(&mut self, now: Instant, hit: Hit, direction: Direction, packet: &mut Packet) {
        let (Some(config), Some(peer)) = (self.config.hold, self.peers.get_mut(&hit)) else { return };
        let hold = peer.hold.get_or_insert_with(|| HoldOpen::new(config));
        // The filter drops nothing.
        let _: Verdict = hold.handle_packet(now, direction, packet);
        while let Some(action) = hold.poll_action() {
            tracing::debug!(peer = %hit, connection = %action.connection, what = action.what, "{}", action.mechanism);
        }
        let answers: Vec<Packet> = core::iter::from_fn(|| hold.poll_transmit(now)).map(|it| it.packet).collect();
        answers.into_iter().for_each(|answer| self.deliver(answer));
    }

    fn forward(&mut self, now: Instant, peer: Hit, direction: Direction, packet: Packet) {
        match direction {
            Direction::Incoming => self.deliver(packet),
            Direction::Outgoing => self.seal(now, peer, packet),
        }
    }

    /// Hands a packet to this host's programs.
    fn deliver(&mut self, packet: Packet) {
        let packet = match &mut self.translation {
            Some(translation) => translation.incoming(packet),
            None => Some(packet),
        };
        match packet {
            Some(packet) => self.inner.push_back(packet),
            None => self.counters.not_for_hits += 1,
        }
    }

    fn seal(&mut self, now: Instant, peer: Hit, packet: Packet) {
        let mtu = match self.fit(now, peer, &packet) {
            Fit::Whole => None,
            Fit::InFragments(mtu) => Some(mtu),
            // The packet uses no sequence number and no credit.
            Fit::TooLong => return,
        };
        match self.host.begin_seal(now, &packet) {
            Ok(outer) => {
                self.counters.sealed += 1;
                if let Some(state) = self.peers.get_mut(&peer) {
                    state.counters.packets_out += 1;
                    state.counters.bytes_out += packet.wire_len() as u64;
                }
                let port = self.way(now, peer, outer.dst, None);
                self.network.push_back(Outgoing::Data(Data { inner: packet, outer, port, mtu }));
            }
            Err(DataError::NoAssociation) => self.wait(now, peer, packet),
            Err(DataError::NoPath) => {
                self.counters.no_path += 1;
                if !self.locators.is_empty()
                    && let Some(state) = self.peers.get_mut(&peer)
                {
                    state.wakes_when_verified = true;
                }
                // The peer's address may be checked now.
                self.collect(now, None);
            }
            Err(_) => self.counters.not_sealed += 1,
        }
    }

    /// A packet for a peer without an association yet.
    fn wait(&mut self, now: Instant, hit: Hit, packet: Packet) {
        let Some(peer) = self.peers.get_mut(&hit) else { return self.refuse(&packet) };
        if self.is_ending {
            return;
        }
        let is_off = self.locators.is_empty();
        match self.host.connect(now, hit) {
            Ok(()) | Err(CommandError::State { .. }) => {}
            // The host has no address at present.
            Err(CommandError::NoAddress { .. }) if is_off => {}
            Err(_) => return self.refuse(&packet),
        }
        if peer.contact.wait(packet).is_some() {
            self.counters.not_waited += 1;
        }
        self.collect(now, None);
    }

    /// Reports to a program that its peer is unreachable.
    fn refuse(&mut self, packet: &Packet) {
        self.counters.unreachable += 1;
        // An ICMP error about an ICMP error is not sent (RFC 4443 section 2.4).
        if matches!(packet.payload, Payload::IcmpError(_)) {
            return;
        }
        if let Ok(error) = IcmpError::quoting_packet(Unreachable::Host, packet) {
            // The error comes from the peer: in IPv4, from its LSI.
            self.deliver(Packet::new(packet.dst, packet.src, error));
        }
    }

    /// One host has moved, or the path to the peer is another one or works again: sends the packets of wake, and the last data of this host's
    /// connections once more.
    fn wake_after_move(&mut self, now: Instant, hit: Hit) {
        self.drain_wake(now, hit);
        let last = self.peers.get_mut(&hit).map(|peer| peer.last_data.take(now)).unwrap_or_default();
        for packet in last {
            self.counters.woken += 1;
            self.seal(now, hit, packet);
        }
    }

    /// The packets of wake.
    fn drain_wake(&mut self, now: Instant, hit: Hit) {
        while let Some(wake) = self.peers.get_mut(&hit).and_then(|peer| peer.wake.as_mut()) {
            while let Some(action) = wake.poll_action() {
                tracing::debug!(peer = %hit, connection = %action.connection, what = action.what, "{}", action.mechanism);
            }
            while let Some(outcome) = wake.poll_outcome() {
                tracing::debug!(peer = %hit, ?outcome, "woken");
            }
            let Some(injected) = wake.poll_transmit(now) else { return };
            self.counters.woken += 1;
            self.forward(now, hit, injected.direction, injected.packet);
        }
    }
}

/// A service's name in the status.
const fn service_name(service: Service) -> &'static str {
    match service {
        Service::Rendezvous => "rendezvous",
        Service::RelayHip => "relay of HIP",
        Service::RelayEsp => "relay of data",
    }
}
