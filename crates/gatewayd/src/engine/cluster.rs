//! The cluster: the owner of each mobile host, as recorded in the store.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use holdover_base::{Duration, Instant};
use holdover_host::neighbours::NextHop;

use super::attachments::TEND_EVERY;
use super::{Engine, KEEP_NEIGHBOURS_EVERY, presence};
use crate::cluster::{Cluster, ClusterStatus, Event, Evidence};

/// The room for mobile hosts of gateways that have lost their leases.
#[derive(Debug)]
pub(super) struct Adoptions {
    /// The most of them.
    most: usize,
    /// The number of mobile hosts for which there was no room at the last check.
    left_out: usize,
    /// That number, as last logged.
    logged: usize,
    check_room_at: Instant,
    tend_at: Instant,
    keep_neighbours_at: Instant,
}

/// The most mobile hosts that are adopted: each has a neighbour entry that is renewed every [`KEEP_NEIGHBOURS_EVERY`].
const MOST_ADOPTED: usize = 4096;

/// How often it is checked whether there is room for mobile hosts that were not adopted.
const CHECK_ROOM_EVERY: Duration = Duration::from_secs(1);

impl Adoptions {
    /// `most_mobiles` is the room for all mobile hosts: half of it is for this gateway's own ones.
    pub(super) fn new(now: Instant, most_mobiles: u32) -> Self {
        let most = MOST_ADOPTED.min(most_mobiles as usize / 2);
        Self { most, left_out: 0, logged: 0, check_room_at: now, tend_at: now, keep_neighbours_at: now }
    }
}

impl Engine {
    /// Readable when the store has replied.
    pub(crate) fn cluster_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.cluster.as_ref().map(Cluster::descriptor)
    }

    /// Handles replies of the store.
    pub(crate) fn handle_cluster(&mut self, now: Instant) {
        if let Some(cluster) = &mut self.cluster {
            cluster.handle_ready(now);
        }
    }

    /// `None` without a store.
    pub(crate) fn cluster_status(&self, now: Instant) -> Option<ClusterStatus> {
        let cluster = self.cluster.as_ref()?;
        let (adopted, not_adopted) = (self.attachments.adopted().len() as u64, self.adoptions.left_out as u64);
        Some(ClusterStatus { adopted, not_adopted, ..cluster.status(now) })
    }

    /// The gateway that owns a mobile host, and the epoch.
    pub(crate) fn owner(&self, mobile: IpAddr) -> Option<(String, u64)> {
        let record = self.cluster.as_ref()?.ownership.record(mobile);
        record.map(|(owner, epoch)| (owner.to_owned(), epoch))
    }

    pub(super) fn cluster_timeout(&self) -> Option<Instant> {
        let cluster = self.cluster.as_ref()?;
        Some(cluster.ownership.poll_timeout().min(self.adoptions.tend_at))
    }

    /// A mobile host is here for the first time. Returns whether there is a cluster.
    pub(super) fn claim_in_cluster(&mut self, now: Instant, mobile: IpAddr, evidence: Evidence) -> bool {
        let mac = self.path.seen(mobile).and_then(|seen| seen.mac);
        let Some(cluster) = &mut self.cluster else { return false };
        cluster.ownership.handle_heard(now, mobile, evidence, mac);
        true
    }

    /// Probes mobile hosts that this gateway heard, and did not claim in time, and those that it has overheard.
    fn confirm_wanted(&mut self, now: Instant) {
        let (Some(cluster), Some(handoff)) = (&self.cluster, &mut self.handoff) else { return };
        let (config, interface, echo) = (&self.config, &self.interface, self.echo.as_ref());
        let can_probe = |mobile| {
            let seen = self.path.seen(mobile);
            seen.is_some_and(|seen| presence::is_asked(config, interface, echo, (mobile, seen)))
        };
        let mut probed = self.attachments.due_probes(now, &cluster.ownership, can_probe);
        probed.extend(self.attachments.follow_overheard(now, &cluster.ownership, handoff));
        probed.into_iter().for_each(|mobile| self.probe_if_possible(mobile));
    }

    /// Probes a mobile host that another gateway has reported as no longer there.
    pub(super) fn probe_overheard(&mut self, mobile: IpAddr) {
        if self.attachments.has_overheard(mobile) {
            self.probe_if_possible(mobile);
        }
    }

    fn probe_if_possible(&mut self, mobile: IpAddr) {
        if let Some(seen) = self.path.seen(mobile).filter(|_| self.is_asked(mobile)) {
            self.probe(mobile, seen);
        }
    }

    /// A mobile host is forgotten here.
    pub(super) fn leave_in_cluster(&mut self, now: Instant, mobile: IpAddr) {
        if let Some(cluster) = &mut self.cluster {
            cluster.ownership.handle_gone(now, mobile);
        }
    }

    /// Handles deadlines and events, and sends requests to the store.
    pub(super) fn serve_cluster(&mut self, now: Instant) {
        let Some(cluster) = &mut self.cluster else { return };
        if now >= cluster.ownership.poll_timeout() {
            cluster.ownership.handle_timeout(now);
        }
        while let Some(event) = self.cluster.as_mut().and_then(|cluster| cluster.ownership.poll_event()) {
            self.handle_cluster_event(now, event);
        }
        if now >= self.adoptions.tend_at {
            self.adoptions.tend_at = now + TEND_EVERY;
            self.tend_adoptions(now);
            self.find_elsewhere(now);
            self.confirm_wanted(now);
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.flush();
        }
    }

    fn handle_cluster_event(&mut self, now: Instant, event: Event) {
        let (Some(cluster), Some(handoff)) = (&mut self.cluster, &mut self.handoff) else { return };
        match event {
            Event::Won { mobile, epoch, former } => {
                tracing::info!(%mobile, epoch, former = ?former, "this gateway owns the mobile host");
                self.attachments.note_won(mobile);
                if let Some(former) = former {
                    handoff.claim(now, mobile, cluster.ownership.epoch(epoch), former);
                }
            }
            Event::Lost { mobile, epoch, owner } => {
                tracing::info!(%mobile, epoch, owner, "another gateway owns the mobile host");
                self.attachments.note_moved(now, mobile, &mut self.diverter);
            }
            Event::Orphaned { mobile, mac } => self.adopt(now, mobile, mac),
            Event::Gateways => {
                let gateways: Vec<_> = cluster.ownership.gateways().collect();
                let alive = gateways.iter().filter(|(_, gateway)| gateway.gone_at.is_none()).map(|(name, _)| *name);
                tracing::info!(alive = alive.collect::<Vec<_>>().join(", "), "other gateways");
                handoff.set_peers(gateways.into_iter().map(|(_, gateway)| gateway.address));
            }
            Event::StoreAway { reason } => {
                tracing::warn!(reason, "etcd is unreachable: no mobile host changes its owner meanwhile");
            }
            Event::StoreBack => tracing::info!("etcd is reachable again"),
            Event::Superseded { address } => {
                tracing::error!(%address, "another gateway has this one's name: this one claims no mobile hosts");
            }
        }
    }

    /// The owner of a mobile host has lost its lease.
    fn adopt(&mut self, now: Instant, mobile: IpAddr, mac: Option<[u8; 6]>) {
        if !self.serves(mobile) || !self.attachments.may_adopt(mobile) {
            return;
        }
        if self.attachments.adopted().len() >= self.adoptions.most {
            self.adoptions.left_out += 1;
            return;
        }
        if let Err(error) = self.path.know(mobile) {
            tracing::debug!(%error, %mobile, "no room for a mobile host of another gateway");
            self.adoptions.left_out += 1;
            return;
        }
        tracing::debug!(%mobile, "its gateway has lost its lease");
        self.attachments.adopt(now, mobile, mac, &mut self.diverter);
        self.adoptions.keep_neighbours_at = now;
    }

    fn tend_adoptions(&mut self, now: Instant) {
        let Some(cluster) = &mut self.cluster else { return };
        let mac_of = |mobile| self.path.seen(mobile).and_then(|seen| seen.mac);
        let claimed = self.attachments.tend_adopted(now, &mut self.diverter, &mut cluster.ownership, mac_of);
        for mobile in claimed {
            tracing::info!(%mobile, "takes over from a gateway without a lease");
        }
        if now >= self.adoptions.check_room_at {
            self.adoptions.check_room_at = now + CHECK_ROOM_EVERY;
            self.adopt_more(now);
        }
        if now >= self.adoptions.keep_neighbours_at {
            self.adoptions.keep_neighbours_at = now + KEEP_NEIGHBOURS_EVERY;
            for (mobile, mac) in self.attachments.adopted().clone() {
                let (Some(mac), Some(NextHop { hop, .. })) = (mac, self.way(mobile)) else { continue };
                if let Err(error) = self.neighbours.learn(self.interface.index, hop, mac, false) {
                    tracing::debug!(%error, %mobile, "cannot update a neighbour entry");
                }
            }
        }
    }

    /// Adopts mobile hosts that were left out, if others are not orphans any more, and logs how many are left out.
    fn adopt_more(&mut self, now: Instant) {
        let before = std::mem::take(&mut self.adoptions.left_out);
        if before == 0 {
            return;
        }
        let orphans: Vec<_> = self.cluster.iter().flat_map(|cluster| cluster.ownership.orphans()).collect();
        orphans.into_iter().for_each(|(mobile, mac)| self.adopt(now, mobile, mac));
        let (adopted, not_adopted) = (self.attachments.adopted().len(), self.adoptions.left_out);
        if not_adopted != self.adoptions.logged {
            self.adoptions.logged = not_adopted;
            if not_adopted > 0 {
                tracing::warn!(adopted, not_adopted, "mobile hosts of gateways without a lease: not all are adopted");
            }
        }
    }

    /// Packets that an earlier process, or an absence of the store, has left for mobile hosts of other gateways.
    fn find_elsewhere(&mut self, now: Instant) {
        let Some(cluster) = &self.cluster else { return };
        for mobile in self.attachments.find_elsewhere(now, &mut self.diverter, &cluster.ownership) {
            tracing::info!(%mobile, "packets wait here for a mobile host of another gateway");
        }
    }
}
