//! Mobile hosts behind another router, on a link with address resolution: a vehicle's network, or the mobile hosts of a
//! second gateway.
//!
//! That router is resolved in place of the host. While it answers, a silent host is not reported away, as it need not answer
//! what it receives; while it does not, the hosts behind it are away.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;
use holdover_gateway::divert::{MobileStatus, Source};
use holdover_host::neighbours::NextHop;

use super::Engine;

/// The routers in front of mobile hosts.
#[derive(Debug)]
pub(super) struct Behind {
    /// The router of each mobile host looked up since the last check of all hosts; `None` for a host on the link.
    routers: BTreeMap<IpAddr, Option<IpAddr>>,
    /// Whether each router answers, if the kernel was asked since the last check of all hosts began.
    answers: BTreeMap<IpAddr, bool>,
    /// The way to each mobile host, and when it was looked up.
    ways: BTreeMap<IpAddr, (Instant, NextHop)>,
    /// How long a way is used.
    ways_last: Duration,
    review_at: Instant,
    /// The intended interval between checks of all hosts.
    looks_every: Duration,
    /// When the last check of all hosts began.
    looked_at: Instant,
    /// The time between that and the check before it: long if the process has not run meanwhile.
    since_last: Duration,
}

/// How long a route is used before it is looked up again, for each absent host: this bounds the share of time that look-ups take.
const WAY_LASTS_FOR_EACH: Duration = Duration::from_millis(1);

/// Routes are looked up again after this time.
const REVIEW_EVERY: Duration = Duration::from_secs(10);

impl Behind {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            routers: BTreeMap::new(),
            answers: BTreeMap::new(),
            ways: BTreeMap::new(),
            ways_last: Duration::ZERO,
            review_at: now,
            looks_every: Duration::ZERO,
            looked_at: now,
            since_last: Duration::ZERO,
        }
    }

    /// A check of all hosts begins.
    pub(super) fn begin_look(&mut self, now: Instant) {
        self.since_last = now.saturating_since(self.looked_at);
        self.looked_at = now;
        self.answers.clear();
    }

    /// All hosts were checked now, and are again after this time.
    pub(super) fn note_look(&mut self, now: Instant, every: Duration) {
        self.looks_every = every;
        if now >= self.review_at {
            self.review_at = now + REVIEW_EVERY;
            self.routers.clear();
            let ways_last = self.ways_last;
            self.ways.retain(|_, (at, _)| now.saturating_since(*at) < ways_last);
        }
    }

    /// Sets the number of absent hosts.
    pub(super) fn note_absent(&mut self, absent: usize) {
        self.ways_last = (WAY_LASTS_FOR_EACH * absent as u64).min(REVIEW_EVERY);
    }

    pub(super) fn has_router(&self, mobile: IpAddr) -> bool {
        matches!(self.routers.get(&mobile), Some(Some(_)))
    }

    pub(super) fn note_way(&mut self, now: Instant, mobile: IpAddr, way: NextHop) {
        if self.ways_last > Duration::ZERO {
            self.ways.insert(mobile, (now, way));
        }
    }

    /// The way to a mobile host, if it was looked up not long ago.
    pub(super) fn known_way(&self, now: Instant, mobile: IpAddr) -> Option<NextHop> {
        let &(at, way) = self.ways.get(&mobile)?;
        Some(way).filter(|_| now.saturating_since(at) < self.ways_last)
    }

    /// The interface has changed.
    pub(super) fn forget_ways(&mut self) {
        self.ways.clear();
    }

    /// A mobile host is forgotten.
    pub(super) fn forget(&mut self, mobile: IpAddr) {
        self.ways.remove(&mobile);
        self.routers.remove(&mobile);
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
        // A query that failed is repeated.
        let found = self.find_way(mobile).ok()?.map(|way| way.hop).filter(|hop| *hop != mobile);
        self.behind.routers.insert(mobile, found);
        found
    }

    /// Whether a host is behind a router that answers.
    pub(super) fn is_router_there(&mut self, mobile: IpAddr) -> bool {
        let Some(router) = self.router_before(mobile) else { return false };
        if let Some(&is_there) = self.behind.answers.get(&router) {
            return is_there;
        }
        let presence = &self.config.presence;
        let looks_every = self.behind.looks_every.max(self.behind.since_last);
        let within = presence.probe_every.0 * u64::from(presence.probes) + looks_every * 2;
        let answered = self.neighbours.confirmed_ago(self.interface.index, router);
        let answered = answered.inspect_err(|error| tracing::debug!(%error, %router, "cannot read a neighbour entry"));
        let is_there = answered.ok().flatten().is_some_and(|ago| ago <= within);
        self.behind.answers.insert(router, is_there);
        is_there
    }

    /// A host that is away by its silence, or by the carrier, is back with the router in front of it: it may have nothing to
    /// send. So is one that was away when an earlier process ended, whose Ethernet address is known: with other gateways, it
    /// may have moved to one of them meanwhile. Looks no route up.
    pub(super) fn follow_router(&mut self, now: Instant, mobile: IpAddr, status: &MobileStatus) {
        if !self.behind.has_router(mobile) {
            return;
        }
        let is_alone = self.cluster.is_none() && self.handoff.is_none();
        let has_mac = self.path.seen(mobile).is_some_and(|seen| seen.mac.is_some());
        let by_router = |source: &Source| match source {
            Source::Buffer => is_alone && has_mac,
            source => [Source::Carrier, Source::Silence].contains(source),
        };
        let withdrawn: Vec<Source> = status.objections.iter().copied().filter(by_router).collect();
        if !withdrawn.is_empty() && self.is_router_there(mobile) {
            for source in withdrawn {
                self.diverter.handle_report(now, mobile, source, Presence::Present);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Claim: The ways to ten thousand absent hosts are looked up every 10 s, and the way to one each time.
    #[test]
    fn ways_are_used_for_longer_with_more_absent_hosts() {
        let (mobile, router) = (IpAddr::from([10, 0, 0, 9]), IpAddr::from([10, 0, 0, 1]));
        let way = NextHop { hop: mobile, local: router };
        let at = Instant::from_millis;
        let mut behind = Behind::new(at(0));
        behind.note_way(at(0), mobile, way);
        assert_eq!(behind.known_way(at(0), mobile), None, "none is absent");
        behind.note_absent(1);
        behind.note_way(at(10), mobile, way);
        assert_eq!([10, 11].map(|ms| behind.known_way(at(ms), mobile)), [Some(way), None]);
        behind.note_absent(20_000);
        assert_eq!([10_009, 10_010].map(|ms| behind.known_way(at(ms), mobile)), [Some(way), None]);
        behind.forget_ways();
        assert_eq!(behind.known_way(at(11), mobile), None);
    }

    #[test]
    fn ways_and_routers_of_hosts_that_are_gone_are_not_kept() {
        let router = IpAddr::from([10, 0, 0, 1]);
        let [one, other] = [8, 9].map(|number| IpAddr::from([10, 0, 0, number]));
        let at = Instant::from_millis;
        let mut behind = Behind::new(at(0));
        behind.note_look(at(0), Duration::ZERO);
        behind.note_absent(5000);
        for (mobile, ms) in [(one, 100), (other, 6000)] {
            behind.note_way(at(ms), mobile, NextHop { hop: router, local: router });
            behind.routers.insert(mobile, Some(router));
        }
        behind.note_look(at(9_999), Duration::ZERO);
        assert_eq!(behind.ways.len(), 2);
        behind.note_look(at(10_000), Duration::ZERO);
        assert_eq!(behind.ways.keys().collect::<Vec<_>>(), [&other], "the other one was not used any more");
        behind.routers.insert(other, Some(router));
        behind.forget(other);
        assert!(behind.ways.is_empty() && !behind.has_router(other));
    }
}
