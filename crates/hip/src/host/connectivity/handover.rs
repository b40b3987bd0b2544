//! Connectivity checks after a move (RFC 9028 section 4.9): both hosts gather and exchange candidates again, and begin new checks, in the roles that
//! the exchange has given them.
//!
//! Data does not wait for them. A host that moves announces its addresses at once, and they are verified (RFC 8046, `readdress.rs`). Its candidates
//! follow in an UPDATE of their own, in ENCRYPTED, by way of the relay: once its relays have told where they see it now, and the peer has
//! acknowledged the announcement, or 3 s later, as a relay does not forward the announcement to a peer that is no client of it. The peer begins
//! its checks, and its acknowledgement has its own candidates. A peer that acknowledges without candidates, and sends no checks, makes no checks
//! after moves: the addresses that were verified remain in use.

use core::net::IpAddr;

use holdover_base::{Duration, Instant};

use super::super::Arrival;
use super::super::association::Association;
use super::super::checklist::{Handover, Role, host_addresses, is_candidates, read};
use super::super::in_flight::Outgoing;
use super::super::local::{Local, find};
use super::super::peer_addresses::Status;
use super::gathering::{gather, offer};
use crate::codec::{HEADER_LEN, HipPacket, Locator, Parameter};

/// How long candidates wait for the answers of relays and of the peer (RFC 9028 section 4.9: two minutes by default).
const RELAYS_ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Bytes of the other parameters of an UPDATE with candidates: ESP_INFO, SEQ, ACK, an echo request and response, and answers to a registration.
const OTHERS_LEN: usize = 160;

impl Association {
    /// This host has moved: its candidates are to be sent to the peer. Those of a former place are not sent any more.
    pub(in crate::host) fn begin_handover(&mut self, now: Instant, locators: &[IpAddr]) {
        if self.connectivity.role.is_none() || !self.is_usable() {
            return;
        }
        self.updates.candidates = None;
        let due_at = (!locators.is_empty()).then(|| now + RELAYS_ANSWER_WITHIN);
        self.connectivity.handover = Handover { due_at, ..Handover::default() };
    }

    /// Sends this host's candidates, if the peer lacks them and nothing has to be waited for.
    pub(in crate::host) fn offer_candidates(&mut self, local: &mut Local, now: Instant) {
        let Handover { due_at, is_partial, .. } = self.connectivity.handover;
        let is_complete = local.has_current_views();
        let is_ready = is_complete && self.updates.announcement.is_none();
        let is_due = due_at.is_some_and(|at| is_ready || at <= now) || is_partial && is_ready;
        if !is_due || !self.is_usable() || local.locators.is_empty() {
            return;
        }
        self.connectivity.handover = Handover { due_at: None, is_partial: !is_complete, is_open: true };
        let id = self.updates.next_id();
        self.updates.candidates = Some(Outgoing::new(local, now, id));
        self.send_candidates(local, now, id, 0);
    }

    /// Sends the candidates by way of the relays, and when retransmitted to the peer's other addresses in between.
    fn send_candidates(&mut self, local: &mut Local, now: Instant, id: u32, attempt: u32) {
        let Some((info, candidates)) = self.current_keys().zip(self.own_candidates(local)) else { return };
        let parameters = vec![Parameter::EspInfo(info), Parameter::Seq(id), candidates];
        let Ok(update) = self.update(local, parameters) else { return };
        let before = core::mem::replace(&mut local.reply_via, self.connectivity.reply_via.clone());
        let by_relay =
            attempt.is_multiple_of(2) && self.peer_addresses.relays().any(|it| local.source_for(it).is_some());
        if by_relay {
            self.send_to_servers(local, now, &update, None);
        } else if let Some((src, dst)) = self.control_path(local, attempt) {
            local.send_from(&update, src, dst);
        }
        local.reply_via = before;
    }

    /// Repeats candidates that were not acknowledged. After the last time they are sent again when the peer is heard.
    pub(in crate::host) fn retransmit_candidates(&mut self, local: &mut Local, now: Instant) {
        let Some(mut outgoing) = self.updates.candidates.take_if(|it| it.at <= now) else { return };
        match outgoing.again(local, now, self.updates.own_ids()) {
            Some(id) => {
                let attempt = outgoing.attempts;
                self.updates.candidates = Some(outgoing);
                self.send_candidates(local, now, id, attempt);
            }
            None => self.connectivity.handover.is_partial = true,
        }
    }

    /// ENCRYPTED with this host's candidates.
    fn own_candidates(&self, local: &mut Local) -> Option<Parameter> {
        let (keys, spi) = (&self.secured.as_ref()?.keys, self.current_keys()?.new_spi);
        let room = local.room_for_candidates(HEADER_LEN + OTHERS_LEN, [])?;
        offer(local, keys, spi, room, None).ok().flatten()
    }

    /// The candidates in an UPDATE of a peer that has moved.
    pub(in crate::host) fn offered<'a>(&self, packet: &'a HipPacket) -> Option<&'a [Locator]> {
        let locators = find!(packet, LocatorSet).map(Vec::as_slice);
        locators.filter(|locators| self.connectivity.role.is_some() && is_candidates(locators))
    }

    /// This host's candidates in the acknowledgement of the peer's: they need not be sent otherwise then, if they are complete.
    pub(in crate::host) fn answer_candidates(&mut self, local: &mut Local) -> Option<Parameter> {
        if local.has_current_views() {
            self.connectivity.handover = Handover::default();
            self.updates.candidates = None;
        }
        self.own_candidates(local)
    }

    /// Whether the addresses among the candidates of a peer need no further check: it has announced them, or others since. `seen_at` is the
    /// source of the packet.
    pub(in crate::host) fn has_announced(&self, locators: &[Locator], id: u32, seen_at: Option<IpAddr>) -> bool {
        let is_there = |address: IpAddr| {
            let status = self.peer_addresses.status(address);
            status == Some(Status::Active) || status == Some(Status::Unverified) && self.is_asking(address)
        };
        let is_seen = seen_at.is_none_or(|at| self.peer_addresses.is_relay(at) || is_there(at));
        let mut hosts = host_addresses(locators);
        self.updates.peer.has_newer_locators(id) || is_seen && hosts.all(|it| self.peer_addresses.has_announced(it))
    }

    /// The peer has moved, and these are its candidates: both hosts check again.
    pub(in crate::host) fn begin_checks_again(
        &mut self,
        local: &Local,
        now: Instant,
        locators: &[Locator],
        arrival: Arrival,
    ) {
        let Some(role) = self.connectivity.role else { return };
        let former = core::mem::take(&mut self.connectivity);
        self.begin_checks(local, now, role == Role::Controlling, former.ta, locators);
        let connectivity = &mut self.connectivity;
        connectivity.handover = Handover { is_open: false, ..former.handover };
        (connectivity.reply_via, connectivity.repeats, connectivity.selected) =
            (former.reply_via, former.repeats, former.selected);
        if let Some(via) = arrival.via.filter(|via| via.is_relay) {
            self.note_candidates(local, &via);
        }
    }

    /// The peer acknowledges this host's candidates, and checks them if it names its own.
    pub(in crate::host) fn take_candidates(
        &mut self,
        local: &Local,
        now: Instant,
        packet: &HipPacket,
        acks: &[u32],
        arrival: Arrival,
    ) {
        let acknowledged = self.updates.candidates.take_if(|it| it.is_acknowledged(acks));
        let Some(locators) = acknowledged.and(self.offered(packet)) else { return };
        if self.connectivity.is_checking() {
            let (peer, _) = read(locators, &local.locators);
            let own = gather(local);
            self.connectivity.checklist.iter_mut().for_each(|list| list.add_all(&own, &peer));
        } else {
            self.begin_checks_again(local, now, locators, arrival);
        }
    }

    /// The peer checks the candidates that this host has sent, and its own have not arrived: they are those of before.
    pub(super) fn join_checks(&mut self, local: &Local, now: Instant, arrival: Arrival) {
        if self.connectivity.handover.is_open && self.connectivity.checklist.is_none() {
            let locators = core::mem::take(&mut self.connectivity.peer_candidates);
            self.begin_checks_again(local, now, &locators, arrival);
        }
    }
}
