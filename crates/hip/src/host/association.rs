//! The state of one peer.

use std::sync::Arc;

use core::net::IpAddr;

use bytes::Bytes;
use holdover_base::{Duration, Instant};

use super::check_budget::CheckBudget;
use super::checklist::Connectivity;
use super::client::Client;
use super::in_flight::Updates;
use super::invitation::Presented;
use super::local::Local;
use super::peer_addresses::PeerAddresses;
use super::reachability::Reachability;
use super::via::RelayedPeer;
use super::{Event, Failure, State};
use crate::codec::{Builder, HostId, NatTraversalMode, PacketType, R1Counter, RegInfo};
use crate::crypto::{DhGroup, DhKeyPair, HipCipher, HipKeys, Keymat, PuzzleSearch, Rhash};
use crate::esp::{EspSuite, Inbound, Outbound};
use crate::identity::{Hit, HostIdentity};

/// A peer, with or without an association.
#[derive(Clone, Debug)]
pub(super) struct Association {
    pub(super) peer: Hit,
    pub(super) state: State,
    pub(super) peer_addresses: PeerAddresses,
    /// Whether data reaches the peer on the path that it takes.
    pub(super) reachability: Reachability,
    /// The search for a direct path, after an exchange through a relay.
    pub(super) connectivity: Connectivity,
    /// I1, I2 or CLOSE, until it is answered.
    pub(super) pending: Option<Pending>,
    /// The puzzle that is being solved.
    pub(super) solving: Option<Solving>,
    /// The keys of an I2 that is not confirmed yet.
    pub(super) prospect: Option<Box<Prospect>>,
    pub(super) secured: Option<Box<Secured>>,
    pub(super) updates: Updates,
    /// Outlives associations, so that a new one does not renew it.
    pub(super) check_budget: CheckBudget,
    /// The registration with the peer, if the peer is a server.
    pub(super) client: Option<Client>,
    /// The peer's latest REG_INFO.
    pub(super) offered: Option<RegInfo>,
    /// The relaying between this host and the peer.
    pub(super) relayed: Option<RelayedPeer>,
    /// When the state ends by itself: R2-SENT, CLOSED, E-FAILED, and UNASSOCIATED, which is kept for a while.
    pub(super) state_until: Option<Instant>,
    /// The counter of the last accepted R1.
    pub(super) r1_counter: u64,
    /// An authentic R1 of this exchange was dropped for its lower counter, and none was accepted since.
    pub(super) has_lower_r1: bool,
    /// The last exchange has ended so: the peer's counter may have been reset, and a lower one is accepted (RFC 7401 section 4.1.4).
    pub(super) accepts_lower_r1: bool,
    /// How many more R1s this exchange may answer, so that it ends.
    pub(super) r1s_left: u8,
    /// An I2 is outdated if the R1 that it answers was not sent after this: when the R1 of the last accepted I2 was sent, as an initiator that
    /// has answered two R1s has the keys of the later one alone; and from when the peer has shown that it has the keys of the association, that time.
    pub(super) newer_than: Option<Instant>,
    /// The owner has configured the peer: its addresses are kept.
    pub(super) is_configured: bool,
    /// The time of the last data in either direction.
    pub(super) used_at: Instant,
    /// The last authentic packet of the peer.
    pub(super) heard_at: Instant,
    /// The peer's invitation, until it has accepted this host.
    pub(super) presented: Option<Presented>,
}

/// A packet that is retransmitted until it is answered.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) kind: PacketType,
    builder: Builder,
    /// Source and destination, if it may use only these.
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

/// An accepted R1, while its puzzle is being solved.
#[derive(Clone, Debug)]
pub(super) struct Solving {
    pub(super) search: PuzzleSearch,
    pub(super) offer: Offer,
    pub(super) at: Instant,
}

/// The offer of an R1, and this host's choices.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) between: (IpAddr, IpAddr),
    pub(super) identity: HostIdentity,
    /// The HOST_ID of R1, which HIP_MAC_2 covers.
    pub(super) host_id: HostId,
    pub(super) counter: Option<R1Counter>,
    pub(super) difficulty: u8,
    pub(super) opaque: [u8; 2],
    pub(super) random: Bytes,
    pub(super) expires_at: Instant,
    pub(super) rhash: Rhash,
    pub(super) group: DhGroup,
    pub(super) public: Bytes,
    pub(super) cipher: HipCipher,
    pub(super) suite: EspSuite,
    /// The NAT traversal mode to be named in I2, if any.
    pub(super) nat_mode: Option<NatTraversalMode>,
    /// The interval of connectivity checks.
    pub(super) ta: Duration,
    /// Its REG_INFO.
    pub(super) services: Option<RegInfo>,
    pub(super) echo_signed: Option<Bytes>,
    pub(super) echo_unsigned: Vec<Bytes>,
}

/// The initiator's state between I2 and R2.
#[derive(Clone, Debug)]
pub(super) struct Prospect {
    pub(super) offer: Offer,
    pub(super) keys: SessionKeys,
    pub(super) spi: u32,
    /// I2 has REG_REQUEST.
    pub(super) has_requested: bool,
}

/// The keys derived from Diffie-Hellman and the puzzle.
#[derive(Clone, Debug)]
pub(super) struct SessionKeys {
    pub(super) rhash: Rhash,
    pub(super) suite: EspSuite,
    pub(super) group: DhGroup,
    /// The cipher of ENCRYPTED.
    pub(super) cipher: HipCipher,
    /// This host's latest Diffie-Hellman key pair, and the peer's public value: if one host alone sends a new one, it is combined with the
    /// other's old one (RFC 7402 section 6.10, step 1).
    pub(super) pair: Arc<DhKeyPair>,
    pub(super) public: Bytes,
    pub(super) keymat: Keymat,
    /// The index of the next ESP keys.
    pub(super) index: usize,
    pub(super) outbound: HipKeys,
    pub(super) inbound: HipKeys,
}

/// An association.
#[derive(Clone, Debug)]
pub(super) struct Secured {
    pub(super) identity: HostIdentity,
    pub(super) keys: SessionKeys,
    pub(super) outbound: Outbound,
    pub(super) inbound: Inbound,
    /// The security association before the last rekeying, and until when it is kept.
    pub(super) old_inbound: Option<(Instant, Inbound)>,
    /// The peer's SPI before the last rekeying; 0 if there was none.
    pub(super) replaced_spi: u32,
    /// When the keys of ESP were made.
    pub(super) keyed_at: Instant,
    /// For a responder: the accepted I2, and the R2 that answers its retransmissions.
    pub(super) answered: Option<(Vec<u8>, Builder)>,
    /// The nonce in this host's CLOSE, which the CLOSE_ACK returns.
    pub(super) close_nonce: Option<[u8; 16]>,
}

impl Association {
    pub(super) fn new(peer: Hit) -> Self {
        Self {
            peer,
            state: State::Unassociated,
            peer_addresses: PeerAddresses::default(),
            reachability: Reachability::default(),
            connectivity: Connectivity::default(),
            pending: None,
            solving: None,
            prospect: None,
            secured: None,
            updates: Updates::default(),
            check_budget: CheckBudget::default(),
            client: None,
            offered: None,
            relayed: None,
            state_until: None,
            r1_counter: 0,
            has_lower_r1: false,
            accepts_lower_r1: false,
            r1s_left: 0,
            newer_than: None,
            is_configured: false,
            used_at: Instant::ZERO,
            heard_at: Instant::ZERO,
            presented: None,
        }
    }

    /// The next deadline.
    pub(super) fn deadline(&self, local: &Local) -> Option<Instant> {
        let pending = self.pending.as_ref().map(|pending| pending.at);
        let solving = self.solving.as_ref().map(|solving| solving.at);
        let old = self.secured.as_ref().and_then(|secured| secured.old_inbound.as_ref()).map(|(at, _)| *at);
        let candidates = [
            pending,
            solving,
            old,
            self.ends_at(local),
            self.state_until,
            self.updates.deadline(),
            self.rekey_at(local),
        ];
        let candidates = candidates.into_iter().chain([
            self.client_deadline(),
            self.path_check_deadline(local),
            self.checks_deadline(),
        ]);
        candidates.flatten().min()
    }

    /// When it ends without data, or without a packet of the peer.
    pub(super) fn ends_at(&self, local: &Local) -> Option<Instant> {
        let unused = self.used_at + local.config.unused_lifetime;
        let silent = self.heard_at + local.config.silent_lifetime;
        (self.state == State::Established).then(|| unused.min(silent))
    }

    /// Whether there are valid keys.
    pub(super) fn is_usable(&self) -> bool {
        matches!(self.state, State::R2Sent | State::Established) && self.secured.is_some()
    }

    pub(super) fn enter(&mut self, state: State, until: Option<Instant>) {
        (self.state, self.state_until) = (state, until);
    }

    /// Gives up the exchange.
    pub(super) fn fail(&mut self, local: &mut Local, now: Instant, reason: Failure) {
        self.abandon_exchange(local);
        self.enter(State::EFailed, Some(now + local.config.failed_hold));
        local.events.push_back(Event::Failed { peer: self.peer, reason });
    }

    /// Drops the state of an incomplete exchange.
    pub(super) fn abandon_exchange(&mut self, local: &mut Local) {
        if let Some(prospect) = self.prospect.take() {
            local.spis.remove(&prospect.spi);
        }
        (self.pending, self.solving) = (None, None);
    }

    /// Drops the keys.
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
        local.relay_views.remove(&self.peer);
        (self.relayed, self.connectivity) = (None, Connectivity::default());
        self.reachability.reset();
    }

    /// Sends a packet, and retransmits it until it is answered.
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

    /// Retransmits the pending packet, with twice the timeout; `false` if no attempts are left.
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

    /// Replaces the pending packet; its attempts still count.
    pub(super) fn replace_pending(&mut self, kind: PacketType, builder: Builder) {
        if let Some(pending) = &mut self.pending {
            (pending.kind, pending.builder, pending.between) = (kind, builder, None);
        }
    }

    fn transmit(&self, local: &mut Local, pending: &Pending) {
        match pending.between {
            Some((src, dst)) => local.send_from(&pending.builder, src, dst),
            None => {
                if let Some((src, dst)) = self.control_path(local, pending.attempts) {
                    local.send_from(&pending.builder, src, dst);
                }
            }
        }
    }
}
