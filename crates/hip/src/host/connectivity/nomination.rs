//! Nomination: the controlling host chooses the pair that both use, and the checks end (RFC 9028 section 4.6.3).
//!
//! It chooses when no better pair can succeed any more, or 1.5 s after the first direct one has. Without a direct pair it waits until all of
//! them have failed, and keeps the relay. If none at all works, both hosts say so.

use bytes::Bytes;
use holdover_base::{Duration, Instant};

use super::super::association::Association;
use super::super::checklist::{Checklist, MOST_SENDS, Nomination, PairState, Path, Role, Transaction};
use super::super::local::Local;
use super::super::{Dropped, Event};
use super::gathering::reflexive_priority;
use crate::codec::{NotifyType, Parameter};

/// Transmissions of the controlled host's request for a confirmation: the pair works, as the nomination has arrived, and the controlling host sends
/// no more checks.
const MOST_CONFIRMATIONS: u32 = 6;

impl Association {
    /// Nominates a pair if it is time to, or ends the checks without one.
    pub(super) fn conclude(&mut self, local: &mut Local, now: Instant) -> Result<(), Dropped> {
        let Some(list) = &self.connectivity.checklist else { return Ok(()) };
        let (best, is_last) = (list.best(), now >= self.connectivity.ends_at);
        if best.is_none() && (is_last || list.has_failed()) {
            return self.report_failure(local);
        }
        if self.connectivity.role == Some(Role::Controlled) {
            // The controlling host has not nominated any: data stays where it is.
            self.connectivity.checklist.take_if(|_| is_last);
            return Ok(());
        }
        let is_settled = list.settled_at().is_some_and(|at| at <= now);
        match best.filter(|_| is_last || !list.may_improve() || is_settled) {
            Some(path) if self.connectivity.nomination.is_none() => self.nominate(local, now, path),
            _ => Ok(()),
        }
    }

    fn nominate(&mut self, local: &mut Local, now: Instant, path: Path) -> Result<(), Dropped> {
        let transaction = Transaction::new(self.updates.next_id(), local.random(), now);
        self.connectivity.nomination = Some(Nomination { path, transaction });
        self.nominate_again(local, now)
    }

    /// Sends the nomination, or the controlled host's request for its confirmation, once more; gives it up after the last transmission.
    pub(super) fn nominate_again(&mut self, local: &mut Local, now: Instant) -> Result<(), Dropped> {
        let Some(mut nomination) = self.connectivity.nomination.take() else { return Ok(()) };
        let path = nomination.path;
        let is_controlling = self.connectivity.role == Some(Role::Controlling);
        let most = if is_controlling { MOST_SENDS } else { MOST_CONFIRMATIONS };
        if nomination.transaction.is_over(now, most) {
            if is_controlling && let Some(list) = &mut self.connectivity.checklist {
                list.fail(path);
                return self.conclude(local, now);
            }
            return Ok(());
        }
        let rto = self.connectivity.checklist.as_ref().map_or(Duration::from_secs(1), Checklist::rto);
        nomination.transaction.note_sent(now, rto);
        let mut request = request(&nomination.transaction);
        self.connectivity.nomination = Some(nomination);
        if is_controlling {
            request.push(Parameter::CandidatePriority(reflexive_priority(local, path.own)));
        }
        let update = self.update(local, request)?;
        self.send_on_path(local, now, update, path);
        Ok(())
    }

    /// The peer nominates a pair: returns what the answer contains beside the response (RFC 9028 section 4.6.3). It takes effect once the peer was
    /// verified there: by a check before or later, or by its answer to this one. The controlling host ignores nominations.
    pub(super) fn take_nomination(
        &mut self,
        local: &mut Local,
        now: Instant,
        path: Path,
        is_new: bool,
    ) -> Vec<Parameter> {
        if self.connectivity.role != Some(Role::Controlled) {
            return Vec::new();
        }
        let is_pending = self.connectivity.nomination.as_ref().is_some_and(|it| it.path == path);
        if is_new && !is_pending {
            self.connectivity.nominated = Some(path);
            let list = self.connectivity.checklist.as_ref();
            let pair = list.and_then(|list| Some(&list.pairs[list.index(path.own, path.peer)?]));
            if pair.is_some_and(|pair| pair.state == PairState::Succeeded) {
                self.select(local, path);
            }
            let transaction = Transaction::new(self.updates.next_id(), local.random(), now);
            self.connectivity.nomination = Some(Nomination { path, transaction });
        }
        let Some(nomination) = self.connectivity.nomination.as_mut().filter(|it| it.path == path) else {
            return vec![Parameter::Nominate];
        };
        nomination.transaction.note_sent(now, Duration::from_secs(1));
        request(&nomination.transaction)
    }

    /// Both hosts use a pair from now on.
    pub(super) fn select(&mut self, local: &mut Local, path: Path) {
        let is_known = self.connectivity.selected == Some(path) && self.connectivity.checklist.is_none();
        let (peer, (address, port)) = (self.peer, path.peer);
        (self.connectivity.checklist, self.connectivity.nominated) = (None, None);
        self.connectivity.selected = Some(path);
        if path.is_relayed {
            self.peer_addresses.add_relay(address);
        }
        if !path.is_relayed && !self.peer_addresses.is_active(address) {
            local.events.push_back(Event::PeerReaddressed { peer, address });
        }
        self.peer_addresses.verify(address);
        self.peer_addresses.prefer(address);
        if !is_known {
            let (between, is_relayed) = ((path.own, address), path.is_relayed);
            local.events.push_back(Event::Nominated { peer, between, port, is_relayed });
        }
    }

    /// No pair works. A relay that forwards no data gets none (RFC 9028 section 4.6.3); another one is used as before: its own check may be lost.
    fn report_failure(&mut self, local: &mut Local) -> Result<(), Dropped> {
        let list = self.connectivity.checklist.as_ref();
        if !list.is_some_and(|list| list.pairs.iter().any(|pair| pair.path.is_relayed)) {
            self.peer_addresses.keep_relays_for_signalling();
        }
        self.connectivity.stop();
        local.events.push_back(Event::ChecksFailed { peer: self.peer });
        let notify = local.notification(self.peer, NotifyType::CONNECTIVITY_CHECKS_FAILED, Bytes::new())?;
        if let Some((src, dst)) = self.control_path(local, 0) {
            let before = core::mem::replace(&mut local.reply_via, self.connectivity.reply_via.clone());
            local.send_from(&notify, src, dst);
            local.reply_via = before;
        }
        Ok(())
    }
}

/// A request for an answer to a nomination.
fn request(transaction: &Transaction) -> Vec<Parameter> {
    let echo = Parameter::EchoRequestSigned(Bytes::copy_from_slice(&transaction.nonce));
    vec![Parameter::Seq(transaction.id), echo, Parameter::Nominate]
}
