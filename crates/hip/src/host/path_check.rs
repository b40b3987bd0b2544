//! Tests of the path that data takes, and of others when it is silent: UPDATEs with an echo request (RFC 8046 section 5.4).
//! [`Reachability`](super::reachability) decides which.

use core::net::IpAddr;

use bytes::Bytes;
use holdover_base::Instant;

use super::Event;
use super::address_pairs::pairs;
use super::association::Association;
use super::connectivity::reflexive_priority;
use super::in_flight::Restarts;
use super::local::Local;
use super::peer_addresses::PeerAddresses;
use super::reachability::{Between, PathState};
use crate::codec::Parameter;

/// Bytes of a full packet of Ethernet. There is always credit for nothing: the usual path is that of data which has to be paid for.
const FULL_PACKET_LEN: usize = 1500;

impl Association {
    /// The path of data, given the usual one.
    pub(super) fn route(&mut self, local: &Local, usual: Between) -> Between {
        let own = self.connectivity.source_towards(usual.1).filter(|own| local.locators.contains(own));
        let (usual, addresses) = ((own.unwrap_or(usual.0), usual.1), &self.peer_addresses);
        self.reachability.route(usual, |between| carries_data(addresses, &local.locators, between))
    }

    /// The paths that data can take, the best ones first, and whether it takes them now.
    pub(super) fn paths(&self, local: &Local) -> Vec<(Between, bool)> {
        let paths = pairs(&local.locators, self.peer_addresses.active());
        let usual = paths.first().map(|(src, dst)| (self.usual_source(local, *dst).unwrap_or(*src), *dst));
        let used = self.reachability.used().or(usual);
        paths.into_iter().map(|between| (between, Some(between) == used)).collect()
    }

    /// Addresses of a host have changed. What is known of the paths is outdated, but that the usual one is silent and another one works, if
    /// both are there still.
    pub(super) fn handle_other_addresses(&mut self, local: &Local, now: Instant) {
        let now_usual = self.usual_path(local, now);
        let is_there = |taken| carries_data(&self.peer_addresses, &local.locators, taken);
        let detour = self.reachability.detour();
        if detour.is_some_and(|(usual, taken)| now_usual == Some(usual) && is_there(taken)) {
            self.reachability.keep_detour();
        } else {
            self.reachability.reset();
        }
    }

    /// Data is sent on a path.
    pub(super) fn note_sent(&mut self, local: &Local, now: Instant, between: Between) {
        if local.config.path_check.is_some() && self.peer_addresses.is_active(between.1) {
            self.reachability.note_sent(now, between);
        }
    }

    /// An authentic packet of the peer arrived on a path.
    pub(super) fn note_heard(&mut self, local: &mut Local, now: Instant, between: Between, is_data: bool) {
        self.reachability.note_heard(now, between, is_data);
        self.report_path(local, now);
    }

    /// The response to an echo request arrived on a path; `false` if it was no test of that path.
    pub(super) fn take_test_answer(&mut self, local: &mut Local, now: Instant, echo: &Bytes, between: Between) -> bool {
        let is_test = self.reachability.note_answer(now, echo, between);
        if is_test {
            self.peer_addresses.trust(between.1);
        }
        self.report_path(local, now);
        is_test
    }

    /// An answer that shows a path ([`Updates::shows_path`](super::in_flight::Updates::shows_path)) arrived on it.
    pub(super) fn divert(&mut self, local: &mut Local, now: Instant, between: Between) {
        let is_usual = self.usual_source(local, between.1) == Some(between.0);
        let is_there = carries_data(&self.peer_addresses, &local.locators, between);
        if local.config.path_check.is_none() || is_usual || !is_there {
            return;
        }
        let Some(usual) = self.usual_path(local, now) else { return };
        self.reachability.divert(now, usual, between);
        self.report_path(local, now);
    }

    /// The path of data that has to be paid for, if none is silent.
    pub(super) fn usual_path(&mut self, local: &Local, now: Instant) -> Option<Between> {
        let usual = self.peer_addresses.destination(now, FULL_PACKET_LEN, |dst| local.source_for(dst).is_some());
        usual.and_then(|dst| Some((self.usual_source(local, dst)?, dst)))
    }

    pub(super) fn path_check_deadline(&self, local: &Local) -> Option<Instant> {
        let config = local.config.path_check.as_ref().filter(|_| self.is_usable())?;
        self.reachability.poll_timeout(config)
    }

    /// Sends the tests that are due.
    pub(super) fn check_paths(&mut self, local: &mut Local, now: Instant) {
        let Some(config) = local.config.path_check.filter(|_| self.is_usable()) else { return };
        let addresses = &self.peer_addresses;
        let due = self
            .reachability
            .handle_timeout(now, &config, |used| other_paths(addresses.active(), &local.locators, used));
        self.report_path(local, now);
        if self.reachability.is_lost() && !due.is_empty() {
            self.check_again(local, now);
        }
        for between in due {
            let (id, nonce) = (self.updates.next_id(), local.random());
            let nonce = self.reachability.note_test(between, id, nonce);
            let mut request = self.request(id, nonce);
            if self.peer_addresses.is_relay(between.1) {
                // Without it a relay does not forward the test, as it would be the check of a locator.
                request.push(Parameter::CandidatePriority(reflexive_priority(local, between.0)));
            }
            if let Ok(test) = self.update(local, request) {
                self.send_question_on(local, &test, between);
            }
        }
    }

    /// This host's address of the path that data takes in place of a silent one, if it is another address of the same IP version: the standby of a
    /// silent link. The peer is told to prefer it.
    pub(super) fn standby_source(&self, local: &Local) -> Option<IpAddr> {
        let (usual, taken) = self.reachability.detour()?;
        // Another address of the peer may be dead as well: then each host finds the pair that works by itself. Of two hosts with several
        // addresses, each could undo what the other has told.
        let is_version = |it: &IpAddr| it.is_ipv4() == taken.1.is_ipv4();
        let has_one = self.peer_addresses.active().filter(is_version).count() == 1;
        // A peer that has another address since then still needs to know: it does not tell this host, which has several.
        let knows = self.updates.announced_standby == Some(taken.0);
        let is_other = taken.0 != usual.0 && taken.1 == usual.1 && (has_one || knows);
        let is_told = local.config.prefers_standby && is_other;
        Some(taken.0).filter(|it| is_told && local.locators.contains(it))
    }

    fn report_path(&mut self, local: &mut Local, now: Instant) {
        let peer = self.peer;
        let change = self.reachability.take_change();
        if let Some(PathState::Answers { after: Some(_), .. }) = change {
            self.updates.lost_restarts = Restarts::default();
        }
        local.events.extend(change.map(|change| match change {
            PathState::Silent { between, instead, is_presumed } => {
                Event::PathSilent { peer, between, instead, is_presumed }
            }
            PathState::Answers { between, after } => Event::PathAnswers { peer, between, after },
        }));
        if self.updates.announced == local.locators {
            // Otherwise they are announced at another time.
            self.announce_if_moved(local, now);
        }
    }
}

/// Whether data may take this path: from an address that this host still has, to a verified one of the peer that is for data.
fn carries_data(addresses: &PeerAddresses, own: &[IpAddr], (src, dst): Between) -> bool {
    own.contains(&src) && addresses.takes_data(dst)
}

/// Other paths than this one, between verified addresses of the peer and those of this host, the best ones first.
fn other_paths(active: impl Iterator<Item = IpAddr>, own: &[IpAddr], used: Between) -> Vec<Between> {
    pairs(own, active).into_iter().filter(|between| *between != used).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Locator, LocatorTraffic};

    #[test]
    fn data_takes_verified_addresses_for_data_from_addresses_of_this_host() {
        let [own, left, first, second] =
            ["192.0.2.1", "192.0.2.9", "198.51.100.1", "198.51.100.2"].map(|it| it.parse::<IpAddr>().unwrap());
        let mut addresses = PeerAddresses::default();
        let signalling = Locator { traffic: LocatorTraffic::Signalling, ..Locator::esp(second, 7, 60, false) };
        addresses.announce(Instant::ZERO, &[Locator::esp(first, 7, 60, true), signalling], &[own]);
        assert!(!carries_data(&addresses, &[own], (own, first)), "not verified");
        [first, second].into_iter().for_each(|it| addresses.verify(it));
        assert!(carries_data(&addresses, &[own], (own, first)));
        assert!(!carries_data(&addresses, &[own], (left, first)), "this host has left the address");
        assert!(
            addresses.is_active(second) && !carries_data(&addresses, &[own], (own, second)),
            "for HIP packets alone"
        );
        assert_eq!(addresses.active().collect::<Vec<IpAddr>>(), [first]);
    }
}
