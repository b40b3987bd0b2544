//! The next hops of all links: addresses, probes and answers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};

use holdover_base::Instant;
use holdover_mobility::Connection;

use super::core::Core;
use crate::link_watch::kernel::{Interfaces, KernelEvent};
use crate::link_watch::neighbour_probe::NeighbourProbe;
use crate::next_hop;
use crate::path_engine::Attach;

/// Probes next hops. The sockets are opened on first use.
#[derive(Default)]
pub(super) struct NextHops {
    probe: Option<NeighbourProbe>,
    /// Next hops below tunnels, by the interface below. Packets in a tunnel wait for them, and the kernel probes only
    /// once a second.
    below: BTreeMap<u32, next_hop::NextHops>,
    /// Whether the failure to probe has been logged.
    has_complained: bool,
}

impl NextHops {
    /// The known next hops may have changed.
    pub(super) fn handle_interfaces<A: Attach>(core: &mut Core<A>, interfaces: &Interfaces) {
        for link in core.managed_links() {
            let (next_hops, known) = match interfaces.default_routers(&link) {
                Some(routers) => (routers.addresses, routers.answered_at.into_keys().collect()),
                None => Default::default(),
            };
            let known: Vec<IpAddr> = known;
            core.handle_next_hops(&link, &next_hops, known);
        }
    }

    /// Links below tunnels may be up again.
    pub(super) fn resolve_below(&mut self, now: Instant, interfaces: &mut Interfaces) {
        let hops = interfaces.take_hops_below();
        let indices: BTreeSet<u32> = hops.iter().map(|hop| hop.index).collect();
        for index in indices {
            let waiting = hops.iter().filter(|hop| hop.index == index).map(|hop| {
                let [local, remote] = [hop.local, hop.hop].map(|address| SocketAddr::new(address, 0));
                // By broadcast: the former Ethernet address is not known.
                (Connection { local, remote }, [0xff; 6])
            });
            let search = self.below.entry(index).or_default();
            match search.begin(now, index, waiting) {
                Ok(true) => {}
                Ok(false) => interfaces.handle(now, KernelEvent::HopsBelow { index }),
                Err(error) => {
                    let interface = interfaces.name(index);
                    tracing::debug!(interface, %error, "cannot resolve the next hop below a tunnel");
                    interfaces.handle(now, KernelEvent::HopsBelow { index });
                }
            }
        }
        self.handle_below(now, interfaces);
    }

    /// When [`Self::handle_below`] is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.below.values().filter_map(next_hop::NextHops::poll_timeout).min()
    }

    /// Handles answers of, and probes, next hops below tunnels. Returns whether any is resolved now, or given up.
    pub(super) fn handle_below(&mut self, now: Instant, interfaces: &mut Interfaces) -> bool {
        let mut is_any_known = false;
        self.below.retain(|&index, search| {
            let (is_settled, is_under_way) = (search.handle_ready(now), search.poll_timeout().is_some());
            if is_settled || !is_under_way {
                interfaces.handle(now, KernelEvent::HopsBelow { index });
                is_any_known = true;
            }
            is_under_way
        });
        is_any_known
    }

    /// Sends the pending probes.
    pub(super) fn ask<A: Attach>(&mut self, core: &mut Core<A>, interfaces: &Interfaces) {
        for (link, question) in core.take_questions() {
            let Some(routers) = interfaces.default_routers(&link) else { continue };
            let asked = self.open().and_then(|probe| {
                let questions = routers
                    .addresses
                    .iter()
                    .map(|&next_hop| probe.ask(routers.index, next_hop, &question.from, question.is_broadcast));
                questions.fold(Ok(()), io::Result::and)
            });
            if let Err(error) = asked {
                self.complain(&link, &error);
            }
        }
    }

    /// Passes on the answers.
    pub(super) fn handle_ready<A: Attach>(&mut self, now: Instant, core: &mut Core<A>, interfaces: &Interfaces) {
        while let Some(reply) = self.probe.as_mut().and_then(NeighbourProbe::poll_reply) {
            if let Some(link) = interfaces.name(reply.index) {
                core.handle_next_hop_answer(now, link, reply.address);
            }
        }
    }

    /// Readable when there are answers.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let below = self.below.values().flat_map(next_hop::NextHops::descriptors).map(|descriptor| descriptor.as_fd());
        self.probe.iter().flat_map(NeighbourProbe::descriptors).chain(below)
    }

    fn open(&mut self) -> io::Result<&mut NeighbourProbe> {
        if self.probe.is_none() {
            self.probe = Some(NeighbourProbe::open()?);
        }
        self.probe.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn complain(&mut self, interface: &str, error: &io::Error) {
        if !std::mem::replace(&mut self.has_complained, true) {
            tracing::warn!(interface, %error, "cannot probe the next hop");
        }
    }
}
