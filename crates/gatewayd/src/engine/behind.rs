//! Mobile hosts behind another router, on a link with address resolution: a vehicle's network, or the mobile hosts of a
//! second gateway.
//!
//! That router is resolved in place of the host. While it answers, the silence of the host says nothing: it need not answer
//! what it is sent. While it does not, nothing reaches the host.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;
use holdover_gateway::divert::{MobileStatus, Source};

use super::Engine;

/// The routers in front of mobile hosts.
#[derive(Debug)]
pub(super) struct Behind {
    /// By mobile host, as far as looked up since the last review; `None` for one that is on the link.
    routers: BTreeMap<IpAddr, Option<IpAddr>>,
    review_at: Instant,
    /// The interval between checks of all hosts.
    looks_every: Duration,
}

/// Routes are looked up again after this time.
const REVIEW_EVERY: Duration = Duration::from_secs(10);

impl Behind {
    pub(super) fn new(now: Instant) -> Self {
        Self { routers: BTreeMap::new(), review_at: now, looks_every: Duration::ZERO }
    }

    /// All hosts are checked now, and again after this time.
    pub(super) fn note_look(&mut self, now: Instant, every: Duration) {
        self.looks_every = every;
        if now >= self.review_at {
            self.review_at = now + REVIEW_EVERY;
            self.routers.clear();
        }
    }
}

impl Engine {
    /// The router in front of a host, if there is one.
    pub(super) fn router_before(&mut self, mobile: IpAddr) -> Option<IpAddr> {
        if !self.interface.has_ethernet() {
            return None;
        }
        if let Some(&known) = self.behind.routers.get(&mobile) {
            return known;
        }
        let found = self.way(mobile).map(|way| way.hop).filter(|hop| *hop != mobile);
        self.behind.routers.insert(mobile, found);
        found
    }

    /// Whether a host is behind a router that answers.
    pub(super) fn is_router_there(&mut self, mobile: IpAddr) -> bool {
        let Some(router) = self.router_before(mobile) else { return false };
        let presence = &self.config.presence;
        let within = presence.probe_every.0 * u64::from(presence.probes) + self.behind.looks_every * 2;
        let answered = self.neighbours.confirmed_ago(self.interface.index, router);
        let answered = answered.inspect_err(|error| tracing::debug!(%error, %router, "cannot read a neighbour entry"));
        answered.ok().flatten().is_some_and(|ago| ago <= within)
    }

    /// A host that is away by its silence, or by the carrier, is back with the router in front of it: it may have nothing to
    /// send. Looks no route up.
    pub(super) fn follow_router(&mut self, now: Instant, mobile: IpAddr, status: &MobileStatus) {
        let by_router = [Source::Carrier, Source::Silence];
        let is_known = matches!(self.behind.routers.get(&mobile), Some(Some(_)));
        if is_known && status.objections.iter().any(|source| by_router.contains(source)) && self.is_router_there(mobile)
        {
            for source in by_router {
                self.diverter.handle_report(now, mobile, source, Presence::Present);
            }
        }
    }
}
