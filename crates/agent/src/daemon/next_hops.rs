//! The next hops of all links: who they are, what they are asked, and what they answer.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use holdover_base::Instant;

use super::core::Core;
use crate::link_watch::kernel::Interfaces;
use crate::link_watch::neighbour_probe::{NeighbourProbe, Neighbourhood};
use crate::path_engine::Attach;

/// Asks next hops. The sockets are opened with the first question.
#[derive(Default)]
pub(super) struct NextHops {
    probe: Option<NeighbourProbe>,
    /// Whether it has been said that nobody can be asked.
    has_complained: bool,
}

impl NextHops {
    /// What is known of the next hops may have changed.
    pub(super) fn handle_interfaces<A: Attach>(core: &mut Core<A>, interfaces: &Interfaces) {
        for link in core.looked_after() {
            let (next_hops, known) = match interfaces.gateways(&link) {
                Some(gateways) => (gateways.addresses, gateways.answered_at.into_keys().collect()),
                None => Default::default(),
            };
            let known: Vec<IpAddr> = known;
            core.handle_next_hops(&link, &next_hops, known);
        }
    }

    /// Asks what is to be asked.
    pub(super) fn ask<A: Attach>(&mut self, core: &mut Core<A>, interfaces: &Interfaces) {
        for (link, question) in core.take_questions() {
            let Some(gateways) = interfaces.gateways(&link) else { continue };
            let own = interfaces.addresses(&link).find_map(|address| match address {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            });
            let place = Neighbourhood { name: &link, index: gateways.index, own };
            let asked = self.open().and_then(|probe| {
                let questions =
                    gateways.addresses.iter().map(|&next_hop| probe.ask(&place, next_hop, question.is_broadcast));
                questions.fold(Ok(()), io::Result::and)
            });
            if let Err(error) = asked {
                self.complain(&link, &error);
            }
        }
    }

    /// Hands on what was answered.
    pub(super) fn handle_ready<A: Attach>(&mut self, now: Instant, core: &mut Core<A>, interfaces: &Interfaces) {
        while let Some(reply) = self.probe.as_mut().and_then(NeighbourProbe::poll_reply) {
            if let Some(link) = interfaces.name(reply.index) {
                core.handle_next_hop_answer(now, link, reply.address);
            }
        }
    }

    /// Readable when something was answered.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.probe.iter().flat_map(NeighbourProbe::descriptors)
    }

    fn open(&mut self) -> io::Result<&mut NeighbourProbe> {
        if self.probe.is_none() {
            self.probe = Some(NeighbourProbe::open()?);
        }
        self.probe.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn complain(&mut self, interface: &str, error: &io::Error) {
        if !std::mem::replace(&mut self.has_complained, true) {
            tracing::warn!(interface, %error, "the next hop cannot be asked whether it is there");
        }
    }
}
