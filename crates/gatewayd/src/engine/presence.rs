//! Presence: evidence that a mobile host is present or absent, and probes of its neighbour entry.

use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;
use holdover_gateway::divert::{Inquiry, Source, Standing};
use holdover_host::neighbours::NextHop;

use super::{Engine, FORGET_AFTER, LOOK_EVERY, LOOK_FOR_EACH, LOOK_SOON};
use crate::path::Seen;

impl Engine {
    /// Handles a change of the carrier.
    pub(super) fn handle_link(&mut self, now: Instant) {
        // The kernel's neighbours are lost with the carrier.
        self.keep_neighbours_at = now;
        if !self.config.presence.carrier {
            return;
        }
        let has_carrier = self.interface.has_carrier;
        tracing::info!(interface = self.interface.name, has_carrier, "carrier");
        for (mobile, _) in self.path.all() {
            if !has_carrier {
                self.diverter.handle_report(now, mobile, Source::Carrier, Presence::Away);
                continue;
            }
            // With Ethernet the host itself is probed, and its answer counts.
            if !self.is_asked(mobile) {
                self.diverter.handle_report(now, mobile, Source::Carrier, Presence::Present);
            }
            self.prober.ask_now(mobile);
        }
        self.look_at = now;
    }

    /// Whether the interface's carrier is queried.
    pub(super) fn asks_carrier(&self) -> bool {
        self.config.presence.carrier && !self.interface.has_carrier
    }

    /// Whether a host is probed by address resolution.
    pub(super) fn is_asked(&self, mobile: IpAddr) -> bool {
        let is_direct = |seen: Seen| seen.mac.is_some();
        self.config.presence.silence && self.interface.has_ethernet() && self.path.seen(mobile).is_some_and(is_direct)
    }

    /// Checks all hosts for silence, due probes, and expiry.
    pub(super) fn look(&mut self, now: Instant) {
        let all = self.path.all();
        let diverter = &self.diverter;
        self.unconfirmed.retain(|&mobile, _| diverter.status(mobile).is_some_and(|status| status.waiting > 0));
        let is_idle = |mobile: &IpAddr| self.adoptions.contains(*mobile) && !self.met.contains(mobile);
        let absent = self.diverter.away().filter(|mobile| !is_idle(mobile)).count();
        let asks = self.config.presence.silence && self.interface.has_ethernet();
        for &(mobile, seen) in &all {
            if let Some(waker) = &mut self.waker {
                waker.meet(mobile, &mut self.path);
            }
            self.note_met(now, mobile, seen);
            let status = self.diverter.status(mobile);
            let away_since = status.as_ref().filter(|status| status.standing == Standing::Away);
            if let Some(since) = away_since.and_then(|status| status.away_since) {
                // Without diversion there are no notices, and one may be lost.
                let counts_from = away_since.and_then(|status| status.counts_from).unwrap_or(since);
                if seen.heard_at.is_some_and(|at| at >= counts_from) {
                    self.diverter.handle_heard(now, mobile);
                    continue;
                }
                // A mobile host of another gateway is probed once it has packets here.
                let is_idle = self.adoptions.contains(mobile) && !self.met.contains(&mobile);
                if asks && !is_idle && self.interface.has_carrier && self.prober.look_away(now, mobile, since, absent) {
                    self.probe(mobile, seen);
                }
                continue;
            }
            if asks {
                match self.prober.look_present(now, mobile, self.waiting_since(mobile, seen)) {
                    // A host with an unanswered probe has none due yet.
                    Inquiry::None if self.prober.unanswered(mobile) > 0 => {}
                    Inquiry::None => self.note_heard(now, mobile, seen),
                    Inquiry::Ask => {
                        self.probe(mobile, seen);
                        self.note_silence(mobile, seen);
                    }
                    Inquiry::Silent => {
                        self.unconfirmed.remove(&mobile);
                        self.diverter.handle_report(now, mobile, Source::Silence, Presence::Away);
                    }
                }
            }
            let last = seen.heard_at.max(seen.waiting_since);
            let is_old = last.is_some_and(|at| now.saturating_since(at) >= FORGET_AFTER);
            if is_old && (status.is_none() || self.diverter.forget(mobile)) {
                self.path.forget(mobile);
                self.met.remove(&mobile);
                self.leave_in_cluster(now, mobile);
                if let Some(waker) = &mut self.waker {
                    waker.forget(mobile);
                }
            }
        }
        let every = if self.prober.is_asking() { LOOK_SOON } else { LOOK_EVERY };
        let for_all = Duration::from_nanos(LOOK_FOR_EACH.as_nanos().saturating_mul(all.len() as u64));
        self.look_at = now + every.max(for_all);
    }

    /// Since when a packet to a host waits for an answer: one that has passed, or one that waits for a sign of it.
    fn waiting_since(&self, mobile: IpAddr, seen: Seen) -> Option<Instant> {
        let unconfirmed = self.unconfirmed.get(&mobile).copied();
        seen.waiting_since.or_else(|| unconfirmed.filter(|since| seen.heard_at.is_none_or(|at| at < *since)))
    }

    /// A host that has not answered a first probe is not away yet, but packets sent to it meanwhile may be lost.
    pub(super) fn note_silence(&mut self, mobile: IpAddr, seen: Seen) {
        if let Some(waker) = &mut self.waker
            && self.prober.unanswered(mobile) > 0
            && let Some(since) = seen.waiting_since
        {
            waker.handle_silence(mobile, since, &mut self.path);
        }
    }

    /// A host was heard: it is not waited for any more.
    pub(super) fn note_heard(&mut self, now: Instant, mobile: IpAddr, seen: Seen) {
        if let Some(waker) = &mut self.waker
            && seen.heard_at.is_some()
        {
            waker.handle_heard(now, mobile, &mut self.path);
        }
    }

    /// Probes a host's Ethernet address. The programs see its answer.
    pub(super) fn probe(&mut self, mobile: IpAddr, seen: Seen) {
        if let Some(NextHop { hop, local }) = self.way(mobile) {
            self.sender.probe(&self.interface, local, hop, seen.mac.filter(|_| hop == mobile));
        }
    }

    pub(super) fn way(&mut self, mobile: IpAddr) -> Option<NextHop> {
        let found = self.neighbours.own_way(self.interface.index, mobile);
        found.inspect_err(|error| tracing::debug!(%error, %mobile, "no route")).ok().flatten()
    }

    /// Keeps the kernel's neighbour entry, so that it passes packets to the interface instead of resolving the address.
    pub(super) fn keep_neighbour(&mut self, mobile: IpAddr) {
        let Some(mac) = self.path.seen(mobile).and_then(|seen| seen.mac) else { return };
        let Some(NextHop { hop, .. }) = self.way(mobile) else { return };
        if let Err(error) = self.neighbours.learn(self.interface.index, hop, mac, false) {
            tracing::debug!(%error, %mobile, "cannot update a neighbour entry");
        }
    }
}
