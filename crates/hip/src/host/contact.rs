//! The state of each peer that a host's owner keeps in addition to its association: the state of the path as the mechanisms above the
//! association know it, packets that wait for an exchange, and the time of the next attempt.
//!
//! The mobile host's mechanisms are notified of a move when the peer has verified the new address ([`Event::Readdressed`]), the
//! peer's when the announcement arrives ([`Event::PeerMoved`]): each host's next packet to the other may be sent then.
//!
//! An owner that reports data ([`Contact::note_data`]) learns of a make before break: the former address is still there, and data
//! arrives over it. Nothing was lost then, and mechanisms against loss would only delay the transfer.

use std::collections::VecDeque;

use core::net::IpAddr;

use holdover_base::{Duration, Instant};

#[cfg(doc)]
use super::Event;

/// The interval between attempts after UPDATEs were given up: the path may be broken for long while the address stays.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(10);
/// The interval between attempts to open an association because of packets that this host has no keys for, as after a
/// restart.
const RECONNECT_EVERY: Duration = Duration::from_secs(5);
/// The interval between answers to packets of associations that this host does not have: the first retransmission of an UPDATE is answered.
const CALL_BACK_EVERY: Duration = Duration::from_millis(250);
/// A path over which data arrived within this time works. A transfer with longer pauses is treated as one that may have lost data.
const RECENT: Duration = Duration::from_millis(100);
/// Packets on their way arrive within this time, or not at all.
const IN_FLIGHT: Duration = Duration::from_millis(200);
/// The most packets waiting for an exchange with one peer; the oldest are dropped.
const MAX_WAITING: usize = 64;

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
    /// Those of them that it has verified while another one was preferred: no translator is in front of them.
    reached: Vec<IpAddr>,
    /// When this host moved, while the peer has not verified the new address.
    moved_at: Option<Instant>,
    preferred: Option<IpAddr>,
    /// The preferred address before the last move, as long as this host has it.
    former: Option<IpAddr>,
    /// When a move ended without [`PathChange::Moved`].
    kept_at: Option<Instant>,
    /// Where data arrived, and where it came from.
    arrived_at: Latest,
    came_from: Latest,
    announce_at: Option<Instant>,
    reconnected_at: Option<Instant>,
    called_back_at: Option<Instant>,
    waiting: VecDeque<T>,
}

impl<T> Default for Contact<T> {
    fn default() -> Self {
        Self {
            is_down: false,
            proven: Vec::new(),
            reached: Vec::new(),
            moved_at: None,
            preferred: None,
            former: None,
            kept_at: None,
            arrived_at: Latest::default(),
            came_from: Latest::default(),
            announce_at: None,
            reconnected_at: None,
            called_back_at: None,
            waiting: VecDeque::new(),
        }
    }
}

/// The result of a move of this host.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Move {
    /// The change, if the peer knows the address already.
    pub change: Option<PathChange>,
    /// Whether the peer is to verify the address: the owner calls [`Host::ensure_announced`](super::Host::ensure_announced).
    pub announce: bool,
    /// Whether the peer has verified the address before.
    pub is_known: bool,
}

/// The last two addresses of data, and the times.
#[derive(Clone, Copy, Default, Debug)]
struct Latest([Option<(IpAddr, Instant)>; 2]);

impl Latest {
    fn note(&mut self, now: Instant, address: IpAddr) {
        if self.0[0].is_some_and(|(latest, _)| latest != address) {
            self.0.swap(0, 1);
        }
        self.0[0] = Some((address, now));
    }

    fn iter(&self) -> impl Iterator<Item = (IpAddr, Instant)> + '_ {
        self.0.iter().flatten().copied()
    }

    fn of(&self, address: IpAddr) -> Option<Instant> {
        self.iter().find(|(it, _)| *it == address).map(|(_, at)| at)
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
        (self.is_down, self.moved_at) = (false, None);
    }

    /// The association is established. `locators` are those of [`Host::locators_towards`](super::Host::locators_towards); the
    /// exchange took place from the first.
    pub fn note_established(&mut self, locators: &[IpAddr]) -> Option<PathChange> {
        self.preferred = locators.first().copied();
        self.proven = self.preferred.into_iter().collect();
        self.reached.clear();
        (self.announce_at, self.former, self.kept_at) = (None, None, None);
        let was_elsewhere = self.moved_at.take().is_some();
        let was_down = core::mem::take(&mut self.is_down);
        (was_elsewhere || was_down).then_some(PathChange::Moved)
    }

    /// The exchange took place from this address instead, as one of its retransmissions has left from another one than the preferred.
    pub fn note_exchanged_at(&mut self, own: IpAddr) {
        self.proven = vec![own];
    }

    /// This host has no address any more. Its next one is announced when it has it.
    pub fn note_down(&mut self) -> PathChange {
        (self.announce_at, self.preferred, self.former, self.kept_at) = (None, None, None, None);
        self.is_down = true;
        PathChange::Down
    }

    /// This host has moved to these locators ([`Host::locators_towards`](super::Host::locators_towards)). `is_translated` if it may be
    /// behind a translator of addresses: a known address is announced again, as the translator may have forgotten it or be another one. The
    /// address of a standby that the peer has reached without having heard from it needs no translator.
    pub fn note_move(&mut self, now: Instant, locators: &[IpAddr], is_translated: bool) -> Move {
        self.forget_others(locators);
        let Some(first) = locators.first() else { return Move::default() };
        let former = self.preferred.replace(*first);
        let is_kept = |it: &IpAddr| it != first && locators.contains(it);
        (self.former, self.kept_at) = (former.filter(is_kept), None);
        if is_translated && !self.reached.contains(first) {
            self.proven.retain(|address| address != first);
        }
        if !self.proven.contains(first) {
            self.moved_at = Some(now);
            return Move { announce: true, ..Move::default() };
        }
        // The peer has verified this address before, and is notified: both resume at once.
        self.moved_at = None;
        let is_recent = |at: Instant| now.saturating_since(at) <= RECENT;
        let has_kept = self.former.and_then(|former| self.arrived_at.of(former)).is_some_and(is_recent);
        let change = match (core::mem::take(&mut self.is_down), has_kept) {
            (true, _) => Some(PathChange::Up),
            (false, false) => Some(PathChange::Moved),
            (false, true) => None,
        };
        self.kept_at = Some(now).filter(|_| change.is_none());
        Move { change, announce: false, is_known: true }
    }

    /// This host has these locators now, and the preferred one stays. If the former one goes while packets are on their way to it, they are
    /// lost after all.
    pub fn note_left(&mut self, now: Instant, locators: &[IpAddr]) -> Option<PathChange> {
        self.forget_others(locators);
        self.former.take_if(|former| !locators.contains(former))?;
        let kept_at = self.kept_at.take()?;
        (now.saturating_since(kept_at) < IN_FLIGHT).then_some(PathChange::Moved)
    }

    /// What the peer has verified of addresses that this host has left is outdated.
    fn forget_others(&mut self, locators: &[IpAddr]) {
        for known in [&mut self.proven, &mut self.reached] {
            known.retain(|address| locators.contains(address));
        }
    }

    /// Authentic data of the peer arrived from one address at another one.
    pub fn note_data(&mut self, now: Instant, from: IpAddr, at: IpAddr) {
        self.came_from.note(now, from);
        self.arrived_at.note(now, at);
    }

    /// Whether nothing was lost by this host's move so far: it still has its former address, and data has arrived there since.
    pub fn has_kept_former(&self) -> bool {
        let arrived = self.former.and_then(|former| self.arrived_at.of(former));
        !self.is_down && self.moved_at.zip(arrived).is_some_and(|(moved_at, arrived)| arrived > moved_at)
    }

    /// Whether nothing was lost by the peer's move to an address: data has just come from another one, where the peer still is by
    /// `is_there` ([`Host::has_locator`](super::Host::has_locator)).
    pub fn has_peer_kept_former(&self, now: Instant, address: IpAddr, is_there: impl Fn(IpAddr) -> bool) -> bool {
        let is_it = |(from, at): (IpAddr, Instant)| from != address && now.saturating_since(at) <= RECENT;
        self.came_from.iter().any(|it| is_it(it) && is_there(it.0))
    }

    /// The peer has moved: its ACKs were lost, and so was data in flight to it. Both ends resume at once, before the peer has detected
    /// the loss.
    pub fn note_peer_move(&mut self) -> Option<PathChange> {
        (!self.is_down && self.moved_at.is_none()).then_some(PathChange::Moved)
    }

    /// The peer has verified an address of this host. If that ends a move, the change is [`PathChange::Moved`], and the time since
    /// the move is returned.
    pub fn note_readdressed(&mut self, now: Instant, address: IpAddr) -> Option<Duration> {
        if !self.proven.contains(&address) {
            self.proven.push(address);
        }
        if self.preferred.is_some_and(|preferred| preferred != address) && !self.reached.contains(&address) {
            self.reached.push(address);
        }
        let has_kept = self.has_kept_former();
        let after = now.saturating_since(self.moved_at.take()?);
        self.is_down = false;
        self.kept_at = Some(now).filter(|_| has_kept);
        Some(after)
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

    /// Whether to answer a packet of the peer for an association that this host does not have now ([`Host::call_back`]).
    ///
    /// [`Host::call_back`]: super::Host::call_back
    pub fn may_call_back(&mut self, now: Instant) -> bool {
        let may = self.called_back_at.is_none_or(|at| now.saturating_since(at) >= CALL_BACK_EVERY);
        if may {
            self.called_back_at = Some(now);
        }
        may
    }

    /// Whether authentic data of the peer, dummies included, arrived in this time.
    pub fn has_data_within(&self, now: Instant, time: Duration) -> bool {
        self.came_from.iter().any(|(_, at)| now.saturating_since(at) <= time)
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
