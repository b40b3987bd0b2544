//! The state of one peer: locators, checks, and pending packets.

use core::cell::Cell;
use core::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_wire::Packet;

use crate::message::{Identity, LocatorSet, Update};

/// The association with one peer.
#[derive(Clone, Debug)]
pub(crate) struct Association {
    pub(crate) peer: Identity,
    /// Where data is sent, and the only address that it is accepted from: an address verified as reachable.
    pub(crate) active: LocatorSet,
    /// This host's locators, as last announced to the peer.
    pub(crate) told: LocatorSet,
    /// The announcement was given up without a check from the peer: it may use the old address or the new one.
    pub(crate) in_doubt: bool,
    /// Something has arrived from the peer since this host last answered its check.
    pub(crate) heard: bool,
    /// The newest Update ID of this host.
    pub(crate) update_id: u32,
    /// The newest Update ID of the peer.
    pub(crate) peer_update_id: Option<u32>,
    /// The pending announcement of locators.
    pub(crate) announcement: Option<Pending>,
    /// It was given up: it restarts no earlier than this, and only with data to send.
    pub(crate) again_at: Option<Instant>,
    /// There has been data for the peer since.
    pub(crate) wanted: Cell<bool>,
    /// The pending check of an address that the peer has announced.
    pub(crate) check: Option<Check>,
}

/// An UPDATE that is retransmitted until it is acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) update: Update,
    src: IpAddr,
    dst: IpAddr,
    /// Retransmissions left.
    retries_left: u32,
    pub(crate) timeout: Duration,
    pub(crate) at: Instant,
}

/// A new address of the peer under test.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) candidate: LocatorSet,
    pub(crate) request: Pending,
}

impl Association {
    pub(crate) fn new(peer: Identity, active: LocatorSet, told: LocatorSet) -> Self {
        Self {
            peer,
            active,
            told,
            in_doubt: false,
            heard: false,
            update_id: 0,
            peer_update_id: None,
            announcement: None,
            again_at: None,
            wanted: Cell::new(false),
            check: None,
        }
    }

    pub(crate) fn next_update_id(&mut self) -> u32 {
        self.update_id = self.update_id.wrapping_add(1);
        self.update_id
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let check = self.check.as_ref().map(|check| check.request.at);
        let again = self.again_at.filter(|_| self.wanted.get());
        self.announcement.as_ref().map(|pending| pending.at).into_iter().chain(check).chain(again).min()
    }
}

impl Pending {
    pub(crate) fn new(update: Update, src: IpAddr, dst: IpAddr, timeout: Duration, retries: u32, now: Instant) -> Self {
        Self { update, src, dst, retries_left: retries, timeout, at: now + timeout }
    }

    pub(crate) fn packet(&self) -> Packet {
        self.update.packet(self.src, self.dst)
    }

    /// The next retransmission, and twice the timeout; `None` if none is left.
    pub(crate) fn again(&mut self, now: Instant) -> Option<Packet> {
        self.retries_left = self.retries_left.checked_sub(1)?;
        self.timeout = self.timeout * 2;
        self.at = now + self.timeout;
        Some(self.packet())
    }
}
