//! What a host knows of one peer: where it is, what is being asked, and what waits for an answer.

use core::cell::Cell;
use core::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_wire::Packet;

use crate::message::{Identity, LocatorSet, Update};

/// The association with one peer.
#[derive(Clone, Debug)]
pub(crate) struct Association {
    pub(crate) peer: Identity,
    /// Where data goes, and where alone it is taken from: an address that has been found reachable.
    pub(crate) active: LocatorSet,
    /// Where this host is, as the peer has been told last.
    pub(crate) told: LocatorSet,
    /// The peer has been told, but has not asked back from there: it may go by the old address or by the new one.
    pub(crate) in_doubt: bool,
    /// Something has come from the peer since this host answered its question last.
    pub(crate) heard: bool,
    /// The newest Update ID of this host.
    pub(crate) update_id: u32,
    /// The newest Update ID of the peer.
    pub(crate) peer_update_id: Option<u32>,
    /// This host says where it is.
    pub(crate) announcement: Option<Pending>,
    /// It was given up, and is not to begin again before then, nor without data to send.
    pub(crate) again_at: Option<Instant>,
    /// There was data for the peer since.
    pub(crate) wanted: Cell<bool>,
    /// This host asks whether the peer is where it says that it is.
    pub(crate) check: Option<Check>,
}

/// An UPDATE that is sent again until it is acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) update: Update,
    src: IpAddr,
    dst: IpAddr,
    /// How often it may still be sent again.
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

    /// Its time has come: the packet again, and twice the time until the next; `None` if it was sent often enough.
    pub(crate) fn again(&mut self, now: Instant) -> Option<Packet> {
        self.retries_left = self.retries_left.checked_sub(1)?;
        self.timeout = self.timeout * 2;
        self.at = now + self.timeout;
        Some(self.packet())
    }
}
