//! Solicitations after duplicate address detection (RFC 4862 section 5.4).
//!
//! An interface that was down verifies its IPv6 addresses for one to two seconds when it is up again. Meanwhile the kernel does not answer
//! for them, and sends from another address. A mobile host that is woken resolves this router in vain then, and asks again once a second,
//! up to three times: a solicitation from the verified address tells it sooner (RFC 4861 section 7.2.3).

use std::collections::VecDeque;
use std::net::IpAddr;

use holdover_base::{Duration, Instant};

use super::Engine;

/// The mobile hosts to solicit.
#[derive(Debug, Default)]
pub(super) struct Solicitations {
    /// When the interface last got a carrier.
    carrier_since: Option<Instant>,
    due: VecDeque<IpAddr>,
}

/// Addresses that are verified later than this after the carrier's return have nothing to do with it. By default detection takes two seconds at
/// most.
const LONGEST: Duration = Duration::from_secs(10);

/// The hosts of one turn: two look-ups of routes for each.
const AT_ONCE: usize = 64;

impl Solicitations {
    pub(super) fn note_carrier(&mut self, now: Instant) {
        self.carrier_since = Some(now);
    }

    pub(super) fn is_pending(&self) -> bool {
        !self.due.is_empty()
    }
}

impl Engine {
    /// An IPv6 address of the interface can be used from now on.
    pub(super) fn handle_verified(&mut self, now: Instant) {
        let is_new = |since: Instant| now.saturating_since(since) < LONGEST;
        if !self.solicitations.carrier_since.is_some_and(is_new) {
            return;
        }
        // They have the source address that the kernel chose meanwhile.
        self.behind.forget_ways();
        let hosts = self.path.all().into_iter().map(|(mobile, _)| mobile);
        self.solicitations.due = hosts.filter(IpAddr::is_ipv6).collect();
    }

    /// Solicits a part of the hosts that are due.
    pub(super) fn solicit(&mut self) {
        for _ in 0..AT_ONCE {
            let Some(mobile) = self.solicitations.due.pop_front() else { return };
            // The name of a prefix is no host's address.
            let Some(seen) = self.path.seen(mobile).filter(|_| self.prefix_of(mobile).is_none()) else { continue };
            self.resolve(mobile, seen.mac);
        }
    }
}
