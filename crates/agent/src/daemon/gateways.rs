//! Gateways are asked for a sign of life when there is reason to: joins what is looked at to what decides and to who asks.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use holdover_base::{Duration, Instant};

use crate::config::Config;
use crate::link_watch::gateway::{Act, GatewayWatch, Traffic};
use crate::link_watch::kernel::{Gateways, Interfaces};
use crate::link_watch::neighbours::Neighbours;

/// A link in whose path an engine is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct WatchedLink {
    pub(super) name: Box<str>,
    /// TCP packets that have passed, both ways.
    pub(super) tcp_packets: u64,
    /// Whether it is said to be down because its gateway does not answer.
    pub(super) is_held_down: bool,
}

/// The questions to the gateways of all links.
#[derive(Default)]
pub(super) struct Questions {
    links: BTreeMap<Box<str>, Asked>,
    neighbours: Option<Neighbours>,
    /// When to look again; `None` for as soon as something happens.
    look_at: Option<Instant>,
    /// Whether it has been said that it cannot be asked.
    has_complained: bool,
}

/// The gateways of a link, as long as they are the same.
struct Asked {
    watch: GatewayWatch,
    index: u32,
    addresses: BTreeSet<IpAddr>,
    answered_at: BTreeMap<IpAddr, Instant>,
}

/// So often it is looked which links there are.
const LOOK_FOR_LINKS_EVERY: Duration = Duration::from_secs(10);

impl Questions {
    /// What was asked is not to be answered any more, and nothing is known.
    pub(super) fn start_anew(&mut self, now: Instant, interfaces: &mut Interfaces) {
        for (_, asked) in std::mem::take(&mut self.links) {
            self.let_go(now, &asked, interfaces);
        }
        self.look_at = None;
    }

    /// The kernel has said something: a gateway may have answered.
    pub(super) fn handle_news(&mut self) {
        self.look_at = None;
    }

    /// When to look again.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.look_at
    }

    /// Whether it is to be looked at the links now. What that takes is too much for every turn of a busy daemon.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.look_at.is_none_or(|at| at <= now)
    }

    /// Looks at the links whose time it is, and asks. What comes of it is told by [`Interfaces::poll_change`].
    pub(super) fn handle_links(
        &mut self,
        now: Instant,
        config: &Config,
        links: &[WatchedLink],
        interfaces: &mut Interfaces,
    ) {
        let found: Vec<(&WatchedLink, Gateways)> = links
            .iter()
            .filter(|_| config.signals.neighbour)
            .filter_map(|link| Some((link, interfaces.gateways(&link.name)?)))
            .collect();
        // Others in the place of one that has answered may be such as never do.
        let are_the_same = |name: &str, asked: &Asked| {
            found.iter().any(|(link, gateways)| {
                *link.name == *name && (gateways.index, &gateways.addresses) == (asked.index, &asked.addresses)
            })
        };
        let gone: Vec<Box<str>> = self
            .links
            .iter()
            .filter(|(name, asked)| !are_the_same(name, asked))
            .map(|(name, _)| name.clone())
            .collect();
        for asked in gone.iter().filter_map(|name| self.links.remove(name)).collect::<Vec<_>>() {
            self.let_go(now, &asked, interfaces);
        }
        // An interface may get a gateway that can be asked, of which there is news; without any interface there is nothing to look at.
        self.look_at = (!links.is_empty()).then(|| now + LOOK_FOR_LINKS_EVERY);
        for (link, gateways) in found {
            if let Err(error) = self.look(now, config, link, &gateways, interfaces) {
                self.complain(&link.name, &error);
            }
        }
        let next = self.links.values().map(|asked| asked.watch.poll_timeout()).min();
        self.look_at = next.into_iter().chain(self.look_at).min();
    }

    /// Looks at one link if it is time to, and does what is to be done.
    fn look(
        &mut self,
        now: Instant,
        config: &Config,
        link: &WatchedLink,
        gateways: &Gateways,
        interfaces: &mut Interfaces,
    ) -> io::Result<()> {
        let asked = match self.links.entry(link.name.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let Gateways { index, addresses, answered_at } = gateways.clone();
                let Some(watch) = GatewayWatch::new(now, &config.signals.gateway, addresses.clone()) else {
                    return Ok(());
                };
                place.insert(Asked { watch, index, addresses, answered_at })
            }
        };
        for (&gateway, &at) in &gateways.answered_at {
            if asked.answered_at.insert(gateway, at) != Some(at) {
                asked.watch.handle_answer(now, gateway);
            }
        }
        if asked.watch.poll_timeout() > now {
            return Ok(());
        }
        asked.watch.handle_held_down(now, link.is_held_down);
        let done = open(&mut self.neighbours).and_then(|neighbours| {
            let received = neighbours.received(gateways.index)?;
            asked.watch.handle_traffic(now, Traffic { tcp_packets: link.tcp_packets, received });
            let Some(act) = asked.watch.poll_act(now) else { return Ok(()) };
            tracing::trace!(interface = &*link.name, ?act, "gateway");
            carry_out((now, act), neighbours, (&asked.watch, gateways), interfaces, &link.name)
        });
        if done.is_err() {
            asked.watch.handle_failure(now);
        }
        done
    }

    /// The kernel need not ask these any more.
    fn let_go(&mut self, now: Instant, asked: &Asked, interfaces: &mut Interfaces) {
        if asked.watch.is_waiting()
            && let Ok(neighbours) = open(&mut self.neighbours)
        {
            let asked_ones = asked.addresses.iter().filter(|&&address| !interfaces.is_fixed(asked.index, address));
            // What is gone needs not be taken back.
            _ = for_each(asked_ones, |address| neighbours.take_back(asked.index, address));
        }
        interfaces.end_search(now, asked.index);
    }

    fn complain(&mut self, interface: &str, error: &io::Error) {
        if !std::mem::replace(&mut self.has_complained, true) {
            tracing::warn!(interface, %error, "the gateway cannot be asked whether it is there");
        }
    }
}

fn carry_out(
    (now, act): (Instant, Act),
    neighbours: &mut Neighbours,
    (watch, gateways): (&GatewayWatch, &Gateways),
    interfaces: &mut Interfaces,
    interface: &str,
) -> io::Result<()> {
    let Gateways { index, addresses, .. } = gateways;
    match act {
        Act::Ask => for_each(addresses, |address| neighbours.ask(*index, address)),
        Act::Seek => {
            interfaces.handle_search(gateways);
            for_each(addresses, |address| neighbours.seek(*index, address))
        }
        Act::TakeBack => {
            let unproven = addresses.iter().filter(|&&address| !watch.has_answered(address));
            for_each(unproven, |address| neighbours.take_back(*index, address))
        }
        Act::TellDown => {
            if interfaces.handle_silence(now, gateways) {
                tracing::info!(interface, "nothing comes in, and the gateway does not answer");
            }
            Ok(())
        }
    }
}

/// Does it with all, even if it fails with one; then with the first error.
fn for_each<'a>(
    addresses: impl IntoIterator<Item = &'a IpAddr>,
    mut act: impl FnMut(IpAddr) -> io::Result<()>,
) -> io::Result<()> {
    addresses.into_iter().map(|&address| act(address)).fold(Ok(()), io::Result::and)
}

fn open(neighbours: &mut Option<Neighbours>) -> io::Result<&mut Neighbours> {
    if neighbours.is_none() {
        *neighbours = Some(Neighbours::open()?);
    }
    neighbours.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
}
