//! The daemon's state of one peer, in addition to its association.

use core::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_hip::host::{Contact, Move, PathChange, State};
use holdover_hip::identity::Hit;
use holdover_mobility::hold_open::HoldOpen;
use holdover_mobility::wake::{Wake, WakeConfig};
use holdover_mobility::{LinkEvent, SegmentFilter as _};
use holdover_wire::Packet;

use super::PORT;
use super::last_data::LastData;
use super::path_order::PathOrder;
use crate::files::{MAX_ADDRESSES, Peer, Serves, Via};
use crate::status::{HoldCounters, PeerCounters, PeerStatus};

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
    /// The ports from which they came, the latest last.
    ports: Vec<(IpAddr, u16)>,
    pub(super) wake: Option<Wake>,
    /// Holds its connections open; made with the first of them.
    pub(super) hold: Option<HoldOpen>,
    pub(super) last_data: LastData,
    /// Its packets, while they change from one path to another.
    pub(super) order: PathOrder,
    /// The state of the path as `wake` knows it, packets that wait, and the next announcement.
    pub(super) contact: Contact<Packet>,
    /// When it is called again, if it is a server.
    pub(super) call_at: Option<Instant>,
    /// When it gets a keep-alive, unless another UDP packet is sent before.
    pub(super) keep_alive_at: Option<Instant>,
    last_move: Option<Duration>,
    /// Packets for it were dropped because its new address is not verified, or would be: they are sent once more then.
    pub(super) wakes_when_verified: bool,
    /// There was an association with it before.
    was_established: bool,
    /// No path to it answers.
    is_silent: bool,
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
        self.known_port(address).zip(port).is_some_and(|(known, port)| known != port)
    }

    /// The peer is at this address, in UDP at that port or without UDP.
    pub(super) fn set_port(&mut self, address: IpAddr, port: Option<u16>) {
        self.in_udp = port.is_some();
        if port.is_some() && self.ports.last().map(|(at, port)| (*at, Some(*port))) == Some((address, port)) {
            return;
        }
        self.ports.retain(|(at, _)| *at != address);
        if let Some(port) = port {
            // The one that is unused for the longest time makes room.
            if self.ports.len() >= MAX_ADDRESSES {
                self.ports.remove(0);
            }
            self.ports.push((address, port));
        }
    }

    fn known_port(&self, address: IpAddr) -> Option<u16> {
        self.ports.iter().find(|(at, _)| *at == address).map(|(_, port)| *port)
    }

    /// The port to which packets for that address go in UDP; `None` without UDP.
    pub(super) fn port(&self, address: IpAddr) -> Option<u16> {
        self.uses_udp().then(|| self.known_port(address).unwrap_or(PORT))
    }

    fn uses_udp(&self) -> bool {
        self.via == Via::Udp || self.in_udp
    }

    /// The association is established. Returns whether packets may have been lost before: this host or the peer has moved, or the peer has
    /// lost the keys of an earlier association.
    pub(super) fn establish(&mut self, now: Instant, wake: Option<WakeConfig>, locators: &[IpAddr]) -> bool {
        if self.wake.is_none() {
            self.wake = wake.map(Wake::new);
            self.contact.begin();
        }
        let is_again = core::mem::replace(&mut self.was_established, true);
        let change = self.contact.note_established(locators).or(is_again.then_some(PathChange::Moved));
        change.into_iter().for_each(|change| self.tell(now, change));
        change.is_some()
    }

    /// This host has no address any more.
    pub(super) fn note_down(&mut self, now: Instant) {
        let change = self.contact.note_down();
        self.tell(now, change);
    }

    /// This host has moved. Returns whether the peer is to verify the address, or knows it, and packets may be lost.
    pub(super) fn note_move(&mut self, now: Instant, locators: &[IpAddr]) -> Move {
        let it = self.contact.note_move(now, locators, self.uses_udp());
        if it.is_known && it.change != Some(PathChange::Up) {
            self.counters.readdressed += 1;
            self.last_move = Some(Duration::ZERO);
        }
        if let Some(change) = it.change {
            self.tell(now, change);
        }
        it
    }

    /// This host has left addresses other than the preferred one. Returns whether that lost packets.
    pub(super) fn note_left(&mut self, now: Instant, locators: &[IpAddr]) -> bool {
        let change = self.contact.note_left(now, locators);
        change.into_iter().for_each(|change| self.tell(now, change));
        change.is_some()
    }

    /// No answer came back on a path; `is_replaced` if another path answers.
    pub(super) const fn note_silence(&mut self, is_replaced: bool) {
        self.counters.silent_paths += 1;
        self.is_silent = !is_replaced;
    }

    /// The peer answers.
    pub(super) const fn note_answers(&mut self) {
        self.is_silent = false;
    }

    /// The peer has moved, or a path has changed, and packets may be lost.
    pub(super) fn note_path_change(&mut self, now: Instant) {
        if let Some(change) = self.contact.note_peer_move() {
            self.tell(now, change);
        }
    }

    /// The peer has verified an address of this host; returns the time since the move, if this is new, and whether packets may be lost.
    pub(super) fn note_readdressed(&mut self, now: Instant, address: IpAddr) -> Option<(Duration, bool)> {
        let has_kept = self.contact.has_kept_former();
        let after = self.contact.note_readdressed(now, address)?;
        self.counters.readdressed += 1;
        self.last_move = Some(after);
        if !has_kept {
            self.tell(now, PathChange::Moved);
        }
        Some((after, !has_kept))
    }

    fn tell(&mut self, now: Instant, change: PathChange) {
        if let Some(wake) = &mut self.wake {
            wake.handle_link(
                now,
                match change {
                    PathChange::Down => LinkEvent::Down,
                    PathChange::Up => UP,
                    PathChange::Moved => MOVED,
                },
            );
            // Held packets are released before anything that has arrived meanwhile.
            wake.handle_timeout(now);
        }
    }

    /// Whether a server is to be called again now.
    pub(super) fn take_call(&mut self, now: Instant) -> bool {
        self.call_at.take_if(|at| *at <= now).is_some()
    }

    /// Whether a keep-alive is to be sent now.
    pub(super) fn take_keep_alive(&mut self, now: Instant) -> bool {
        self.keep_alive_at.take_if(|at| *at <= now).is_some()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let wake = self.wake.as_ref().and_then(|wake| wake.poll_timeout());
        let others = [self.contact.poll_timeout(), self.order.poll_timeout(), self.call_at, self.keep_alive_at];
        wake.into_iter().chain(others.into_iter().flatten()).min()
    }

    pub(super) fn status(&self, hit: Hit, state: State, verified: Vec<IpAddr>, services: Vec<String>) -> PeerStatus {
        let (held, silence) = self.hold.as_ref().map(HoldOpen::held).unwrap_or_default();
        let hold = self.hold.as_ref().map(HoldOpen::counters).unwrap_or_default();
        PeerStatus {
            name: self.name.clone(),
            hit: hit.to_string(),
            lsi: None,
            state: state.to_string(),
            in_udp: self.via == Via::Udp || self.in_udp,
            addresses: verified,
            paths: Vec::new(),
            known_addresses: self.addresses.clone(),
            servers: self.servers.clone(),
            services,
            is_moving: self.contact.is_moving(),
            is_silent: self.is_silent,
            last_readdressing_s: self.last_move.map(Duration::as_secs_f64),
            waiting_packets: self.contact.waiting() as u64,
            held_connections: held as u64,
            longest_silence_s: (held > 0).then(|| silence.as_secs_f64()),
            hold: HoldCounters {
                held_answers: hold.answers,
                user_timeouts_sent: hold.options_sent,
                user_timeouts_received: hold.options_received,
            },
            counters: self.counters,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that is heard at many addresses, as by its checks, keeps the port of the path that data takes.
    #[test]
    fn the_port_that_is_unused_for_the_longest_time_makes_room() {
        let address = |n: u8| IpAddr::from([198, 51, 100, n]);
        let mut peer = PeerState::default();
        for n in 1..=40 {
            peer.set_port(address(0), Some(30_000));
            peer.heard(address(n), Some(40_000));
        }
        assert_eq!(peer.ports.len(), MAX_ADDRESSES);
        assert_eq!([0, 40, 1].map(|n| peer.port(address(n))), [Some(30_000), Some(40_000), Some(PORT)]);
        peer.set_port(address(0), Some(30_001));
        assert_eq!((peer.port(address(0)), peer.ports.len()), (Some(30_001), MAX_ADDRESSES));
    }
}
