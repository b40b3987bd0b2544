//! The daemon's state of one peer, in addition to its association.

use std::collections::{BTreeMap, VecDeque};

use core::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_hip::host::State;
use holdover_hip::identity::Hit;
use holdover_mobility::wake::{Wake, WakeConfig};
use holdover_mobility::{LinkEvent, SegmentFilter as _};
use holdover_wire::Packet;

use super::PORT;
use super::last_data::LastData;
use crate::files::{MAX_ADDRESSES, Peer, Serves, Via};
use crate::status::{PeerCounters, PeerStatus};

/// The most packets waiting for an exchange with one peer; the oldest are dropped.
const MAX_WAITING: usize = 64;

const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };
const MOVED: LinkEvent = LinkEvent::Up { symmetric: false, moved: true };

/// A peer.
#[derive(Default, Debug)]
pub(super) struct PeerState {
    /// Its name in the file of peers, if it is in it.
    name: Option<String>,
    pub(super) addresses: Vec<IpAddr>,
    /// Its rendezvous servers and relays.
    pub(super) servers: Vec<IpAddr>,
    serves: Option<Serves>,
    via: Via,
    /// Its last packets came in UDP.
    in_udp: bool,
    /// The ports from which they came.
    ports: BTreeMap<IpAddr, u16>,
    pub(super) wake: Option<Wake>,
    pub(super) last_data: LastData,
    /// The last link state passed to `wake`.
    is_down: bool,
    waiting: VecDeque<Packet>,
    /// Addresses of this host that the peer has verified.
    proven: Vec<IpAddr>,
    /// When this host moved, while the peer has not verified the new address.
    moved_at: Option<Instant>,
    pub(super) announce_at: Option<Instant>,
    /// When it is called again, if it is a server.
    pub(super) call_at: Option<Instant>,
    /// When it gets a keep-alive, unless another UDP packet is sent before.
    pub(super) keep_alive_at: Option<Instant>,
    knocked_at: Option<Instant>,
    last_move: Option<Duration>,
    pub(super) counters: PeerCounters,
}

impl PeerState {
    pub(super) fn configure(&mut self, peer: &Peer) {
        self.name = Some(peer.name.clone());
        self.addresses.clone_from(&peer.addresses);
        self.servers.clone_from(&peer.servers);
        (self.via, self.serves) = (peer.via, peer.serves);
    }

    pub(super) const fn is_configured(&self) -> bool {
        self.name.is_some()
    }

    /// Whether it serves this host.
    pub(super) const fn is_server(&self) -> bool {
        self.serves.is_some()
    }

    /// A packet of the peer came from this address, in UDP from that port or without UDP. It may be old: a known port
    /// stays.
    pub(super) fn heard(&mut self, address: IpAddr, port: Option<u16>) {
        if !self.is_at_other_port(address, port) {
            self.set_port(address, port);
        }
    }

    /// Whether packets from that address came from another port than this.
    pub(super) fn is_at_other_port(&self, address: IpAddr, port: Option<u16>) -> bool {
        port.is_some_and(|port| self.ports.get(&address).is_some_and(|known| *known != port))
    }

    /// The peer is at this address, in UDP at that port or without UDP.
    pub(super) fn set_port(&mut self, address: IpAddr, port: Option<u16>) {
        self.in_udp = port.is_some();
        match port {
            Some(port) if self.ports.len() < MAX_ADDRESSES || self.ports.contains_key(&address) => {
                self.ports.insert(address, port);
            }
            Some(port) => self.ports = BTreeMap::from([(address, port)]),
            None => _ = self.ports.remove(&address),
        }
    }

    /// The port to which packets for that address go in UDP; `None` without UDP.
    pub(super) fn port(&self, address: IpAddr) -> Option<u16> {
        self.uses_udp().then(|| self.ports.get(&address).copied().unwrap_or(PORT))
    }

    fn uses_udp(&self) -> bool {
        self.via == Via::Udp || self.in_udp
    }

    /// The association is established.
    pub(super) fn establish(&mut self, now: Instant, wake: Option<WakeConfig>, locators: &[IpAddr]) {
        if self.wake.is_none() {
            // It has no connection that could need waking, and regards the link as up.
            self.wake = wake.map(Wake::new);
            (self.is_down, self.moved_at) = (false, None);
        }
        self.proven = locators.first().copied().into_iter().collect();
        self.announce_at = None;
        let was_elsewhere = self.moved_at.take().is_some();
        if was_elsewhere || self.is_down {
            self.tell_link(now, MOVED);
        }
    }

    /// This host has moved. Returns whether to announce an address that the peer knows: after a time without one, there
    /// may be another translator.
    pub(super) fn note_move(&mut self, now: Instant, locators: &[IpAddr]) -> bool {
        self.proven.retain(|address| locators.contains(address));
        let is_back = locators.first().is_some_and(|first| self.proven.contains(first)) && self.is_down;
        if is_back && self.uses_udp() {
            self.proven.clear();
            self.moved_at = Some(now);
            return true;
        }
        match locators.first() {
            // The peer has verified this address before, and is notified: both resume at once.
            Some(first) if self.proven.contains(first) => {
                self.moved_at = None;
                if self.is_down {
                    self.tell_link(now, UP);
                } else {
                    self.counters.readdressed += 1;
                    self.last_move = Some(Duration::ZERO);
                    self.tell_link(now, MOVED);
                }
            }
            Some(_) => self.moved_at = Some(now),
            None => {}
        }
        false
    }

    /// The peer has moved: its ACKs were lost, and so was data in flight to it. This host's TCP and the peer's are
    /// woken at once, before the peer has detected the loss.
    pub(super) fn note_peer_move(&mut self, now: Instant) {
        if !self.is_down && self.moved_at.is_none() {
            self.tell_link(now, MOVED);
        }
    }

    /// The peer has verified an address of this host; returns the time since the move, if this is new.
    pub(super) fn note_readdressed(&mut self, now: Instant, address: IpAddr) -> Option<Duration> {
        if !self.proven.contains(&address) {
            self.proven.push(address);
        }
        let after = now.saturating_since(self.moved_at.take()?);
        self.counters.readdressed += 1;
        self.last_move = Some(after);
        self.tell_link(now, MOVED);
        Some(after)
    }

    pub(super) fn tell_link(&mut self, now: Instant, event: LinkEvent) {
        self.is_down = event == LinkEvent::Down;
        if let Some(wake) = &mut self.wake {
            wake.handle_link(now, event);
            // Held packets are released before anything that has arrived meanwhile.
            wake.handle_timeout(now);
        }
    }

    /// Keeps a packet until there is an association; `false` if an older one was dropped.
    pub(super) fn wait(&mut self, packet: Packet) -> bool {
        self.waiting.push_back(packet);
        let has_room = self.waiting.len() <= MAX_WAITING;
        if !has_room {
            self.waiting.pop_front();
        }
        has_room
    }

    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn take_waiting(&mut self) -> Vec<Packet> {
        self.waiting.drain(..).collect()
    }

    /// Whether UPDATEs are to be begun again now.
    pub(super) fn take_announce(&mut self, now: Instant) -> bool {
        self.announce_at.take_if(|at| *at <= now).is_some()
    }

    /// Whether a server is to be called again now.
    pub(super) fn take_call(&mut self, now: Instant) -> bool {
        self.call_at.take_if(|at| *at <= now).is_some()
    }

    /// Whether a keep-alive is to be sent now.
    pub(super) fn take_keep_alive(&mut self, now: Instant) -> bool {
        self.keep_alive_at.take_if(|at| *at <= now).is_some()
    }

    pub(super) fn may_knock(&mut self, now: Instant, every: Duration) -> bool {
        let may = self.knocked_at.is_none_or(|at| now.saturating_since(at) >= every);
        if may {
            self.knocked_at = Some(now);
        }
        may
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let wake = self.wake.as_ref().and_then(|wake| wake.poll_timeout());
        wake.into_iter().chain(self.announce_at).chain(self.call_at).chain(self.keep_alive_at).min()
    }

    pub(super) fn status(&self, hit: Hit, state: State, verified: Vec<IpAddr>, services: Vec<String>) -> PeerStatus {
        PeerStatus {
            name: self.name.clone(),
            hit: hit.to_string(),
            lsi: None,
            state: state.to_string(),
            in_udp: self.via == Via::Udp || self.in_udp,
            addresses: verified,
            known_addresses: self.addresses.clone(),
            servers: self.servers.clone(),
            services,
            is_moving: self.moved_at.is_some(),
            last_readdressing_s: self.last_move.map(Duration::as_secs_f64),
            waiting_packets: self.waiting.len() as u64,
            counters: self.counters,
        }
    }
}
