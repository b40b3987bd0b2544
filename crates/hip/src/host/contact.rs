//! The state of each peer that a host's owner keeps in addition to its association: the state of the path as the mechanisms above the
//! association know it, packets that wait for an exchange, and the time of the next attempt.
//!
//! The mobile host's mechanisms are notified of a move when the peer has verified the new address ([`Event::Readdressed`]), the
//! peer's when the announcement arrives ([`Event::PeerMoved`]): each host's next packet to the other may be sent then.
//!
//! They are not notified if nothing was lost (make before break): what they do against loss would itself delay the transfers. Each host
//! judges by itself, and takes a move for one without loss only if the addresses that its data came to and went to are still there, and TCP
//! made progress until now (`progress.rs`). If such an address goes later, they are notified then.

use std::collections::VecDeque;

use core::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_wire::Packet;

#[cfg(doc)]
use super::Event;
use super::progress::Progress;

/// The interval between attempts after UPDATEs were given up: the path may be broken for long while the address stays.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(10);
/// The interval between attempts to open an association because of packets that this host has no keys for, as after a
/// restart.
const RECONNECT_EVERY: Duration = Duration::from_secs(5);
/// The most packets waiting for an exchange with one peer; the oldest are dropped.
const MAX_WAITING: usize = 64;
/// Packets are on their way for at most this long after the last one was sent to, or arrived at, an address.
const IN_FLIGHT: Duration = Duration::from_millis(200);
/// The most addresses of one host in use at the same time: those of a LOCATOR_SET.
const MAX_IN_USE: usize = 8;

/// A change of the path to a peer, for the mechanisms above the association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathChange {
    /// This host has no address.
    Down,
    /// It is back where the peer knows it.
    Up,
    /// One of the two hosts has another address, and data flows again.
    Moved,
}

/// See the module's documentation. `T` is a packet that waits.
#[derive(Clone, Debug)]
pub struct Contact<T> {
    /// The last change was [`PathChange::Down`].
    is_down: bool,
    /// Addresses of this host that the peer has verified.
    proven: Vec<IpAddr>,
    /// This host's preferred address; `None` without one.
    preferred: Option<IpAddr>,
    /// This host's addresses in use.
    own_in_use: InUse,
    /// The peer's addresses in use.
    peers_in_use: InUse,
    progress: Progress,
    /// Data may have been lost since the mechanisms were last notified.
    has_lost: bool,
    /// The mechanisms were not notified of the peer's move, as nothing was lost.
    is_peers_move_silent: bool,
    /// When this host moved, while the peer has not verified the new address.
    moved_at: Option<Instant>,
    announce_at: Option<Instant>,
    reconnected_at: Option<Instant>,
    waiting: VecDeque<T>,
}

impl<T> Default for Contact<T> {
    fn default() -> Self {
        Self {
            is_down: false,
            proven: Vec::new(),
            preferred: None,
            own_in_use: InUse::default(),
            peers_in_use: InUse::default(),
            progress: Progress::default(),
            has_lost: false,
            is_peers_move_silent: false,
            moved_at: None,
            announce_at: None,
            reconnected_at: None,
            waiting: VecDeque::new(),
        }
    }
}

/// The result of a change of this host's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Move {
    /// The change, if the peer need not verify the preferred address.
    pub change: Option<PathChange>,
    /// Whether the peer is to verify the address: the owner calls [`Host::ensure_announced`](super::Host::ensure_announced).
    pub announce: bool,
    /// Whether another address is preferred now, which the peer has verified before.
    pub is_known: bool,
}

/// The end of a move of this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readdressed {
    /// The time since the move.
    pub after: Duration,
    /// The change; `None` if nothing was lost.
    pub change: Option<PathChange>,
}

/// The result of a change of the peer's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PeerMove {
    /// The change; `None` if nothing was lost, or if this host has to be reachable first.
    pub change: Option<PathChange>,
    /// Whether data may have been lost.
    pub may_have_lost: bool,
}

/// The addresses of a host that data came to or went to, the latest first, with the times.
#[derive(Clone, Default, Debug)]
struct InUse(Vec<(IpAddr, Instant)>);

impl InUse {
    fn note(&mut self, now: Instant, address: IpAddr) {
        if let Some((latest, at)) = self.0.first_mut()
            && *latest == address
        {
            *at = now;
            return;
        }
        self.0.retain(|(it, at)| *it != address && now.saturating_since(*at) <= IN_FLIGHT);
        self.0.truncate(MAX_IN_USE - 1);
        self.0.insert(0, (address, now));
    }

    /// Forgets the addresses that are gone. Returns whether packets may have been on their way to one of them: the latest, or one that was
    /// in use a moment ago.
    fn forget_gone(&mut self, now: Instant, is_there: impl Fn(IpAddr) -> bool) -> bool {
        let latest = self.0.first().map(|(address, _)| *address);
        let mut has_left = false;
        self.0.retain(|(address, at)| {
            let stays = is_there(*address);
            let is_in_use = latest == Some(*address) || now.saturating_since(*at) <= IN_FLIGHT;
            has_left |= !stays && is_in_use;
            stays
        });
        has_left
    }
}

impl<T> Contact<T> {
    /// Whether the peer is still to verify this host's address.
    pub const fn is_moving(&self) -> bool {
        self.moved_at.is_some()
    }

    /// Whether the peer has verified this address of this host.
    pub fn is_proven(&self, address: IpAddr) -> bool {
        self.proven.contains(&address)
    }

    /// There were no mechanisms so far: they regard the path as up.
    pub fn begin(&mut self) {
        (self.is_down, self.moved_at, self.has_lost) = (false, None, false);
    }

    /// A packet of this host's programs to the peer: evidence of progress.
    pub fn note_outgoing(&mut self, now: Instant, packet: &Packet) {
        self.progress.note_outgoing(now, packet);
    }

    /// A packet of the peer to this host's programs: evidence of progress.
    pub fn note_incoming(&mut self, now: Instant, packet: &Packet) {
        self.progress.note_incoming(now, packet);
    }

    /// Data for the peer leaves from an address of this host to one of the peer.
    pub fn note_sent(&mut self, now: Instant, from: IpAddr, to: IpAddr) {
        self.own_in_use.note(now, from);
        self.peers_in_use.note(now, to);
    }

    /// Data of the peer has arrived at an address of this host.
    pub fn note_arrived(&mut self, now: Instant, at: IpAddr) {
        self.own_in_use.note(now, at);
    }

    /// The association is established. `locators` are those of [`Host::locators_towards`](super::Host::locators_towards); the
    /// exchange took place from the first.
    pub fn note_established(&mut self, locators: &[IpAddr]) -> Option<PathChange> {
        self.preferred = locators.first().copied();
        self.proven = self.preferred.into_iter().collect();
        self.announce_at = None;
        (self.has_lost, self.is_peers_move_silent) = (false, false);
        let was_elsewhere = self.moved_at.take().is_some();
        let was_down = core::mem::take(&mut self.is_down);
        (was_elsewhere || was_down).then_some(PathChange::Moved)
    }

    /// This host has no address any more. Its next one is announced when it has it.
    pub fn note_down(&mut self) -> PathChange {
        self.announce_at = None;
        self.preferred = None;
        self.own_in_use = InUse::default();
        self.is_down = true;
        PathChange::Down
    }

    /// This host has these locators now ([`Host::locators_towards`](super::Host::locators_towards)): the owner calls it at each change,
    /// also of the last ones only, so that no address that is gone counts as verified or in use. `is_translated` if it may be behind a
    /// translator of addresses: a known address may be another one to the peer, and is announced.
    pub fn note_move(&mut self, now: Instant, locators: &[IpAddr], is_translated: bool) -> Move {
        self.proven.retain(|address| locators.contains(address));
        let has_left = self.own_in_use.forget_gone(now, |address| locators.contains(&address));
        let Some(first) = locators.first() else {
            self.has_lost |= has_left;
            return Move::default();
        };
        if self.preferred.replace(*first) == Some(*first) {
            return Move { change: self.notify(has_left), ..Move::default() };
        }
        self.has_lost |= has_left;
        if is_translated {
            self.proven.clear();
        }
        if !self.proven.contains(first) {
            self.moved_at = Some(now);
            return Move { announce: true, ..Move::default() };
        }
        // The peer has verified this address before, and is notified: both resume at once.
        self.moved_at = None;
        let has_lost = core::mem::take(&mut self.has_lost) || !self.progress.is_flowing(now);
        let was_down = core::mem::take(&mut self.is_down);
        let change = if was_down { Some(PathChange::Up) } else { has_lost.then_some(PathChange::Moved) };
        Move { change, announce: false, is_known: true }
    }

    /// The peer has moved. Unless nothing was lost, its ACKs were, and so was data in flight to it. Both ends resume at once, before the
    /// peer has detected the loss. `is_there` knows the peer's present locators ([`Host::has_locator`](super::Host::has_locator)).
    pub fn note_peer_move(&mut self, now: Instant, is_there: impl Fn(IpAddr) -> bool) -> PeerMove {
        let may_have_lost = self.peers_in_use.forget_gone(now, is_there) || !self.progress.is_flowing(now);
        self.is_peers_move_silent = !may_have_lost;
        PeerMove { change: self.notify(may_have_lost), may_have_lost }
    }

    /// The peer has left addresses, and is where data goes already.
    pub fn note_peer_left(&mut self, now: Instant, is_there: impl Fn(IpAddr) -> bool) -> PeerMove {
        let may_have_lost = self.peers_in_use.forget_gone(now, is_there);
        self.is_peers_move_silent &= !may_have_lost;
        PeerMove { change: self.notify(may_have_lost), may_have_lost }
    }

    /// The peer is reachable where it has moved to. If the mechanisms were not notified of the move, no retransmission timer may stay
    /// backed off: data may have gone to the former address in vain, for lack of credit.
    pub fn note_peer_readdressed(&mut self, now: Instant) -> Option<PathChange> {
        let was_silent = core::mem::take(&mut self.is_peers_move_silent);
        self.notify(was_silent && self.progress.may_be_backed_off(now))
    }

    /// The peer has verified an address of this host. Returns whether that ends a move.
    pub fn note_readdressed(&mut self, now: Instant, address: IpAddr) -> Option<Readdressed> {
        if !self.proven.contains(&address) {
            self.proven.push(address);
        }
        let after = now.saturating_since(self.moved_at.take()?);
        let was_down = core::mem::take(&mut self.is_down);
        let has_lost = core::mem::take(&mut self.has_lost) || was_down || !self.progress.is_flowing(now);
        Some(Readdressed { after, change: has_lost.then_some(PathChange::Moved) })
    }

    /// What the mechanisms hear of a loss: nothing before this host is reachable, as its own move ends with a notification.
    fn notify(&mut self, has_lost: bool) -> Option<PathChange> {
        if self.is_down || self.moved_at.is_some() {
            self.has_lost |= has_lost;
            return None;
        }
        has_lost.then_some(PathChange::Moved)
    }

    /// UPDATEs were given up.
    pub fn note_gave_up(&mut self, now: Instant) {
        self.announce_at = Some(now + ANNOUNCE_AGAIN);
    }

    /// Whether UPDATEs are to be begun again now.
    pub fn take_announce(&mut self, now: Instant) -> bool {
        self.announce_at.take_if(|at| *at <= now).is_some()
    }

    /// Whether to open an association now because of a packet without one.
    pub fn may_reconnect(&mut self, now: Instant) -> bool {
        let may = self.reconnected_at.is_none_or(|at| now.saturating_since(at) >= RECONNECT_EVERY);
        if may {
            self.reconnected_at = Some(now);
        }
        may
    }

    /// Keeps a packet until there is an association. Returns the oldest one if there is no room.
    pub fn wait(&mut self, packet: T) -> Option<T> {
        self.waiting.push_back(packet);
        if self.waiting.len() > MAX_WAITING { self.waiting.pop_front() } else { None }
    }

    /// The number of waiting packets.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The waiting packets, in order.
    pub fn take_waiting(&mut self) -> Vec<T> {
        self.waiting.drain(..).collect()
    }

    /// The next deadline: of [`Self::take_announce`].
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.announce_at
    }
}
