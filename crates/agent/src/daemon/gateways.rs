//! Gateways are asked for a sign of life when there is reason to: joins what is looked at to what decides and to who asks.

use std::collections::BTreeMap;
use std::io;

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

struct Asked {
    watch: GatewayWatch,
    answered_at: Option<Instant>,
}

/// So often it is looked which links there are.
const LOOK_FOR_LINKS_EVERY: Duration = Duration::from_secs(10);

impl Questions {
    /// Another configuration is in force.
    pub(super) fn configure(&mut self) {
        self.links.clear();
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
        let found: Vec<(&WatchedLink, Gateways)> =
            links.iter().filter_map(|link| Some((link, interfaces.gateways(&link.name)?))).collect();
        self.links.retain(|name, _| found.iter().any(|(link, _)| link.name == *name));
        // An interface may get a gateway that can be asked, of which there is news; without any interface there is nothing to look at.
        self.look_at = (!links.is_empty()).then(|| now + LOOK_FOR_LINKS_EVERY);
        if !config.signals.neighbour {
            self.links.clear();
            return;
        }
        for (link, gateways) in found {
            let Some(act) = self.look(now, config, link, &gateways) else { continue };
            tracing::trace!(interface = &*link.name, ?act, "gateway");
            let done = self.carry_out(act, &gateways);
            if act == Act::TellDown {
                tracing::info!(interface = &*link.name, "nothing comes in, and the gateway does not answer");
                interfaces.handle_silence(now, &gateways);
            }
            if let Err(error) = done {
                self.complain(&link.name, &error);
            }
        }
        let next = self.links.values().map(|asked| asked.watch.poll_timeout()).min();
        self.look_at = next.into_iter().chain(self.look_at).min();
    }

    fn look(&mut self, now: Instant, config: &Config, link: &WatchedLink, gateways: &Gateways) -> Option<Act> {
        if !self.links.contains_key(&link.name) {
            let watch = GatewayWatch::new(now, &config.signals.gateway)?;
            self.links.insert(link.name.clone(), Asked { watch, answered_at: gateways.answered_at });
        }
        let asked = self.links.get_mut(&link.name)?;
        if asked.answered_at != gateways.answered_at {
            asked.answered_at = gateways.answered_at;
            asked.watch.handle_answer(now);
        }
        if asked.watch.poll_timeout() > now {
            return None;
        }
        asked.watch.handle_held_down(now, link.is_held_down);
        let received = open(&mut self.neighbours).and_then(|neighbours| neighbours.received(gateways.index));
        if let Ok(received) = received {
            asked.watch.handle_traffic(now, Traffic { tcp_packets: link.tcp_packets, received });
        }
        asked.watch.poll_act(now)
    }

    fn carry_out(&mut self, act: Act, gateways: &Gateways) -> io::Result<()> {
        let neighbours = open(&mut self.neighbours)?;
        for &address in &gateways.addresses {
            match act {
                Act::Ask => neighbours.ask(gateways.index, address)?,
                Act::Seek => neighbours.seek(gateways.index, address)?,
                Act::TakeBack => neighbours.take_back(gateways.index, address)?,
                Act::TellDown => {}
            }
        }
        Ok(())
    }

    fn complain(&mut self, interface: &str, error: &io::Error) {
        if !std::mem::replace(&mut self.has_complained, true) {
            tracing::warn!(interface, %error, "the gateway cannot be asked whether it is there");
        }
    }
}

fn open(neighbours: &mut Option<Neighbours>) -> io::Result<&mut Neighbours> {
    if neighbours.is_none() {
        *neighbours = Some(Neighbours::open()?);
    }
    neighbours.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
}
