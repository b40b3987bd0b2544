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
    failures: Failures,
}

/// Decides which failures to probe are logged: only the first. A probe dropped because the device's queue was full, or because the
/// interface has just lost its carrier or was set down, counts as lost on the way, not as a failure.
#[derive(Default)]
struct Failures {
    is_any_logged: bool,
    /// The number of consecutive probes of each link for which the queue was full.
    refused: BTreeMap<Box<str>, u32>,
}

/// A queue that is full for this many consecutive probes, a second or more, is regarded as broken.
const MOST_REFUSED: u32 = 100;

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
            if let Some(error) = self.failures.note(&link, asked) {
                tracing::warn!(interface = &*link, %error, "cannot probe the next hop");
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
}

impl Failures {
    /// The result of a probe. Returns an error that is to be logged.
    fn note(&mut self, link: &str, asked: io::Result<()>) -> Option<io::Error> {
        let Err(error) = asked else {
            self.refused.remove(link);
            return None;
        };
        let is_lost = match error.raw_os_error() {
            Some(libc::ENETDOWN) => true,
            Some(libc::ENOBUFS) => {
                let refused = self.refused.entry(link.into()).or_default();
                *refused = refused.saturating_add(1);
                *refused < MOST_REFUSED
            }
            _ => false,
        };
        (!is_lost && !std::mem::replace(&mut self.is_any_logged, true)).then_some(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(errno: i32) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(errno))
    }

    // Claim: A probe of a next hop that the device's queue drops, or that meets an interface without carrier, is no reason for a warning in
    // the log; a queue that drops 100 in a row is, and so is any other failure.
    #[test]
    fn a_dropped_probe_is_not_logged_and_a_queue_that_accepts_none_is() {
        let mut failures = Failures::default();
        for _ in 0..MOST_REFUSED {
            assert!(failures.note("eth0", failed(libc::ENETDOWN)).is_none());
        }
        for _ in 1..MOST_REFUSED {
            assert!(failures.note("eth0", failed(libc::ENOBUFS)).is_none());
        }
        assert!(failures.note("eth0", Ok(())).is_none());
        for _ in 1..MOST_REFUSED {
            assert!(failures.note("eth0", failed(libc::ENOBUFS)).is_none());
        }
        assert!(failures.note("wlan0", failed(libc::ENOBUFS)).is_none(), "another link");
        let logged = failures.note("eth0", failed(libc::ENOBUFS)).unwrap();
        assert_eq!(logged.raw_os_error(), Some(libc::ENOBUFS));
        assert!(failures.note("eth0", failed(libc::ENOBUFS)).is_none(), "once");
        let first = Failures::default().note("eth0", failed(libc::EPERM)).unwrap();
        assert_eq!(first.raw_os_error(), Some(libc::EPERM));
    }
}
