//! Nomination: the controlling host chooses the pair that both use, and the checks end (RFC 9028 section 4.6.3).
//!
//! It chooses when no better pair can succeed any more, or 1.5 s after the first direct one has. Without a direct pair it waits until all of
//! them have failed, and keeps the relay. If none at all works, both hosts say so.

use bytes::Bytes;
use holdover_base::{Duration, Instant};

use super::super::association::Association;
use super::super::checklist::{Checklist, Handover, MOST_SENDS, Nomination, PairState, Path, Role, Transaction};
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
        let is_nominated = self.connectivity.nomination.is_some();
        if best.is_none() && !is_nominated && (is_last || list.has_failed()) {
            return self.report_failure(local, now);
        }
        if self.connectivity.role == Some(Role::Controlled) {
            if is_last {
                // No pair works for the controlling host, unless it has nominated one just now, or repeats no checks.
                let unused = best.filter(|_| !is_nominated && self.connectivity.repeated == 0);
                unused.into_iter().for_each(|path| self.leave(local, path));
                self.connectivity.rest(now);
            }
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
            self.leave(local, path);
            return self.conclude(local, now);
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
    /// verified there: by a check before or later, or by its answer to this one.
    pub(super) fn take_nomination(
        &mut self,
        local: &mut Local,
        now: Instant,
        path: Path,
        is_new: bool,
    ) -> Vec<Parameter> {
        if self.connectivity.role != Some(Role::Controlled) {
            // The controlled host asks for a confirmation: it has received the nomination, and its answer was lost.
            let is_answer = |it: &mut Nomination| is_new && it.path == path;
            if self.connectivity.nomination.take_if(is_answer).is_some() {
                self.select(local, now, path);
            }
            return Vec::new();
        }
        let is_pending = self.connectivity.nomination.as_ref().is_some_and(|it| it.path == path);
        if is_new && !is_pending {
            self.connectivity.nominated = Some(path);
            let list = self.connectivity.checklist.as_ref();
            let pair = list.and_then(|list| Some(&list.pairs[list.index(path.own, path.peer)?]));
            if pair.is_some_and(|pair| pair.state == PairState::Succeeded) {
                self.select(local, now, path);
            }
            let mut transaction = Transaction::new(self.updates.next_id(), local.random(), now);
            transaction.note_sent(now, Duration::from_secs(1));
            self.connectivity.nomination = Some(Nomination { path, transaction });
        }
        // Repetitions, which anyone can send, leave its timer alone.
        let nomination = self.connectivity.nomination.as_ref().filter(|it| it.path == path);
        nomination.map_or_else(|| vec![Parameter::Nominate], |nomination| request(&nomination.transaction))
    }

    /// A pair that has answered before does no more: data leaves it. It is checked once more, as all transmissions may be lost on a path that
    /// works.
    fn leave(&mut self, local: &mut Local, path: Path) {
        if let Some(list) = &mut self.connectivity.checklist {
            list.check_anew(path);
        }
        self.connectivity.nominated.take_if(|nominated| *nominated == path);
        if self.connectivity.selected.take_if(|selected| *selected == path).is_some() && !path.is_relayed {
            self.peer_addresses.distrust(path.peer.0);
            let best = self.connectivity.checklist.as_ref().and_then(|list| list.best());
            if let Some(best) = best.filter(|best| !best.is_relayed) {
                self.peer_addresses.verify(best.peer.0);
                self.use_meanwhile(local, best);
            }
        }
    }

    /// Both hosts use a pair from now on.
    pub(super) fn select(&mut self, local: &mut Local, now: Instant, path: Path) {
        let connectivity = &mut self.connectivity;
        let is_repeated = connectivity.checklist.is_none() || path.is_relayed && connectivity.repeated > 0;
        let is_known = connectivity.selected == Some(path) && is_repeated;
        let (peer, (address, port)) = (self.peer, path.peer);
        if path.is_relayed {
            connectivity.rest(now)
        } else {
            connectivity.end_checks(now);
            connectivity.handover = Handover::default();
        }
        connectivity.nominated = None;
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

    /// No pair works. A relay that forwards no data gets none (RFC 9028 section 4.6.3): one that neither host has named as a candidate.
    /// Another one is used as before: its own check may be lost.
    fn report_failure(&mut self, local: &mut Local, now: Instant) -> Result<(), Dropped> {
        let list = self.connectivity.checklist.as_ref();
        let is_checked = list.is_some_and(|list| list.pairs.iter().any(|pair| pair.path.is_relayed));
        let own = self.relayed.and_then(|relayed| local.relay_views.get(&relayed.server));
        let is_own = own.is_some_and(|view| view.relayed_at.is_some());
        if self.connectivity.has_no_relayed && !is_checked && !is_own {
            self.peer_addresses.keep_relays_for_signalling();
        }
        self.connectivity.rest(now);
        (self.connectivity.nomination, self.connectivity.nominated, self.connectivity.selected) = (None, None, None);
        self.peer_addresses.deselect();
        if self.connectivity.repeated > 0 {
            return Ok(());
        }
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
