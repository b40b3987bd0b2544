//! What a host knows of one peer.

use core::net::IpAddr;

use bytes::Bytes;
use holdover_base::{Duration, Instant};

use super::local::Local;
use super::paths::Paths;
use super::registration::Client;
use super::relay::RelayedPeer;
use super::update::Updates;
use super::{Event, Failure, State};
use crate::codec::{Builder, HostId, PacketType};
use crate::crypto::{DhGroup, HipCipher, HipKeys, Keymat, PuzzleSearch, Rhash};
use crate::esp::{EspSuite, Inbound, Outbound};
use crate::identity::{Hit, HostIdentity};

/// A peer, with or without an association.
#[derive(Debug)]
pub(super) struct Association {
    pub(super) peer: Hit,
    pub(super) state: State,
    pub(super) paths: Paths,
    /// I1, I2 or CLOSE, until it is answered.
    pub(super) pending: Option<Pending>,
    /// The puzzle that is being solved.
    pub(super) solving: Option<Solving>,
    /// The keys of an I2 that is not confirmed yet.
    pub(super) prospect: Option<Box<Prospect>>,
    pub(super) secured: Option<Box<Secured>>,
    pub(super) updates: Updates,
    /// What this host is to the peer, if the peer is a server.
    pub(super) client: Option<Client>,
    /// How a relay forwards between this host and the peer.
    pub(super) relayed: Option<RelayedPeer>,
    /// When the state ends by itself: R2-SENT, CLOSED, E-FAILED, and UNASSOCIATED, which is remembered for a while.
    pub(super) state_until: Option<Instant>,
    /// The greatest R1 counter that an authentic R1 has had.
    pub(super) r1_counter: u64,
    /// How many R1s this exchange may still answer, so that it ends.
    pub(super) r1s_left: u8,
    /// When the last association was made: an I2 that answers an older R1 is out of date.
    pub(super) made_at: Option<Instant>,
    /// The owner has named the peer: its addresses are kept.
    pub(super) is_configured: bool,
    /// When data last went or came.
    pub(super) used_at: Instant,
}

/// A packet that is sent again until it is answered.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) kind: PacketType,
    builder: Builder,
    /// Source and destination, if it is to go between these alone.
    pub(super) between: Option<(IpAddr, IpAddr)>,
    attempts: u32,
    timeout: Duration,
    pub(super) at: Instant,
}

impl Pending {
    pub(super) const fn is_sent_again(&self) -> bool {
        self.attempts > 0
    }
}

/// An R1 that was accepted, while its puzzle is being solved.
#[derive(Debug)]
pub(super) struct Solving {
    pub(super) search: PuzzleSearch,
    pub(super) offer: Offer,
    pub(super) at: Instant,
}

/// What an R1 offers, and what this host has chosen of it.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) between: (IpAddr, IpAddr),
    pub(super) identity: HostIdentity,
    /// As it was in R1, which HIP_MAC_2 covers.
    pub(super) host_id: HostId,
    pub(super) counter: Option<u64>,
    pub(super) difficulty: u8,
    pub(super) opaque: [u8; 2],
    pub(super) random: Bytes,
    pub(super) expires_at: Instant,
    pub(super) rhash: Rhash,
    pub(super) group: DhGroup,
    pub(super) public: Bytes,
    pub(super) cipher: HipCipher,
    pub(super) suite: EspSuite,
    /// The registration types in its REG_INFO.
    pub(super) services: Vec<u8>,
    pub(super) echo_signed: Option<Bytes>,
    pub(super) echo_unsigned: Vec<Bytes>,
}

/// An exchange as the initiator sees it between I2 and R2.
#[derive(Debug)]
pub(super) struct Prospect {
    pub(super) offer: Offer,
    pub(super) keys: SessionKeys,
    pub(super) spi: u32,
}

/// What both hosts have derived from Diffie-Hellman and the puzzle.
#[derive(Debug)]
pub(super) struct SessionKeys {
    pub(super) rhash: Rhash,
    pub(super) suite: EspSuite,
    pub(super) group: DhGroup,
    pub(super) keymat: Keymat,
    /// Where the next keys of ESP begin.
    pub(super) index: usize,
    pub(super) outbound: HipKeys,
    pub(super) inbound: HipKeys,
}

/// An association.
#[derive(Debug)]
pub(super) struct Secured {
    pub(super) identity: HostIdentity,
    pub(super) keys: SessionKeys,
    pub(super) outbound: Outbound,
    pub(super) inbound: Inbound,
    /// The security association before the last rekeying, and until when it is kept.
    pub(super) old_inbound: Option<(Instant, Inbound)>,
    /// When the keys of ESP were made.
    pub(super) keyed_at: Instant,
    /// The I2 that was accepted, and the R2 that answers it again; of a responder.
    pub(super) answered: Option<(Vec<u8>, Builder)>,
    /// The data in this host's CLOSE, which the CLOSE_ACK returns.
    pub(super) close_nonce: Option<[u8; 16]>,
}

impl Association {
    pub(super) fn new(peer: Hit) -> Self {
        Self {
            peer,
            state: State::Unassociated,
            paths: Paths::default(),
            pending: None,
            solving: None,
            prospect: None,
            secured: None,
            updates: Updates::default(),
            client: None,
            relayed: None,
            state_until: None,
            r1_counter: 0,
            r1s_left: 0,
            made_at: None,
            is_configured: false,
            used_at: Instant::ZERO,
        }
    }

    /// The next deadline.
    pub(super) fn deadline(&self, local: &Local) -> Option<Instant> {
        let pending = self.pending.as_ref().map(|pending| pending.at);
        let solving = self.solving.as_ref().map(|solving| solving.at);
        let old = self.secured.as_ref().and_then(|secured| secured.old_inbound.as_ref()).map(|(at, _)| *at);
        let unused = (self.state == State::Established).then(|| self.used_at + local.config.unused_lifetime);
        let candidates =
            [pending, solving, old, unused, self.state_until, self.updates.deadline(), self.rekey_at(local)];
        let candidates = candidates.into_iter().chain([self.client_deadline()]);
        candidates.flatten().min()
    }

    /// Whether there are keys that may be used.
    pub(super) fn is_usable(&self) -> bool {
        matches!(self.state, State::R2Sent | State::Established) && self.secured.is_some()
    }

    pub(super) fn enter(&mut self, state: State, until: Option<Instant>) {
        (self.state, self.state_until) = (state, until);
    }

    /// The exchange is given up.
    pub(super) fn fail(&mut self, local: &mut Local, now: Instant, reason: Failure) {
        self.abandon_exchange(local);
        self.enter(State::EFailed, Some(now + local.config.failed_hold));
        local.events.push_back(Event::Failed { peer: self.peer, reason });
    }

    /// Forgets what belongs to an exchange that is not complete.
    pub(super) fn abandon_exchange(&mut self, local: &mut Local) {
        if let Some(prospect) = self.prospect.take() {
            local.spis.remove(&prospect.spi);
        }
        (self.pending, self.solving) = (None, None);
    }

    /// Forgets keys.
    pub(super) fn forget_keys(&mut self, local: &mut Local) {
        if let Some(secured) = self.secured.take() {
            local.spis.remove(&secured.inbound.spi());
            if let Some((_, old)) = secured.old_inbound {
                local.spis.remove(&old.spi());
            }
        }
        for spi in self.updates.forget() {
            local.spis.remove(&spi);
        }
        local.registry.remove(self.peer);
        self.relayed = None;
    }

    /// Sends a packet, and again until it is answered.
    pub(super) fn send_pending(
        &mut self,
        local: &mut Local,
        now: Instant,
        kind: PacketType,
        builder: Builder,
        between: Option<(IpAddr, IpAddr)>,
    ) {
        let timeout = local.config.retransmit_after;
        let pending = Pending { kind, builder, between, attempts: 0, timeout, at: now + timeout };
        self.transmit(local, &pending);
        self.pending = Some(pending);
    }

    /// Sends the pending packet again, twice as long after the last time; `false` if it was sent often enough.
    pub(super) fn send_again(&mut self, local: &mut Local, now: Instant) -> bool {
        let Some(mut pending) = self.pending.take() else { return false };
        if pending.attempts >= local.config.retries {
            return false;
        }
        pending.attempts += 1;
        pending.timeout = pending.timeout * 2;
        pending.at = now + pending.timeout;
        self.transmit(local, &pending);
        self.pending = Some(pending);
        true
    }

    /// Another packet takes the place of the pending one, which counts on.
    pub(super) fn replace_pending(&mut self, kind: PacketType, builder: Builder) {
        if let Some(pending) = &mut self.pending {
            (pending.kind, pending.builder, pending.between) = (kind, builder, None);
        }
    }

    fn transmit(&self, local: &mut Local, pending: &Pending) {
        match pending.between {
            Some((src, dst)) => local.send_from(&pending.builder, src, dst),
            None => {
                let dst = self.paths.for_control(pending.attempts, |dst| local.source_for(dst).is_some());
                if let Some(dst) = dst {
                    local.send(&pending.builder, dst);
                }
            }
        }
    }
}
