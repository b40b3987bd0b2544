//! Worlds that differ in later outages only: their common beginning is simulated once.

use std::collections::VecDeque;

use holdover_base::{Duration, Instant};
use holdover_link::first_difference;

use super::World;
use crate::config::WorldConfig;
use crate::host::Host;
use crate::layer2::{Families, LinkKind};
use crate::network::{config_of, outage_seed};
use crate::segment::own_outages;

impl WorldConfig {
    /// The instant before which the runs of this world and of another one are the same: they differ in the outages of links only, and
    /// the first of these, or its warning, comes then. [`Instant::FAR_FUTURE`] if never; `None` if they differ in anything else.
    pub fn shared_until(&self, other: &Self) -> Option<Instant> {
        if self.links.len() != other.links.len() {
            return None;
        }
        let mut like_this = other.clone();
        for (link, of_this) in like_this.links.iter_mut().zip(&self.links) {
            link.forward.outages.clone_from(&of_this.forward.outages);
            // They are not used, but a scenario sets both.
            link.backward.outages.clone_from(&of_this.backward.outages);
        }
        if like_this != *self {
            return None;
        }
        let mut until = Instant::FAR_FUTURE;
        for (one, two) in self.links.iter().zip(&other.links) {
            if one.forward.outages == two.forward.outages {
                continue;
            }
            // A second layer, outages of one family, and a table with the state of the link have outages of their own.
            let is_plain = one.layer2.kind == LinkKind::Wire && one.layer2.families == Families::Both;
            if !is_plain || one.forward.conditions.is_some() {
                return None;
            }
            until = until.min(first_difference(&own_outages(one), &own_outages(two), outage_seed(self.seed, one)));
        }
        if until == Instant::FAR_FUTURE {
            return Some(until);
        }
        let foresight = self.mechanisms.iter().filter_map(|host| host.foresight).max().unwrap_or(Duration::ZERO);
        Some(Instant::from_nanos(until.as_nanos().saturating_sub(foresight.as_nanos())))
    }
}

impl World {
    /// The instant up to which the run so far depends on the outages of links: links plan ahead.
    pub fn depends_on_outages_to(&self) -> Instant {
        let links = self.network.hops.iter().map(|hop| hop.link.known_to());
        links.fold(self.now, Instant::max)
    }

    /// A copy that shares no state with this world; `None` if something of it cannot be copied: external hosts, mobile hosts, gateways, or
    /// mechanisms without [`holdover_filter::SegmentFilter::fork`].
    pub fn try_copy(&self) -> Option<Self> {
        let is_copyable = !self.has_external
            && self.mobiles.is_empty()
            && self.home_agents.is_empty()
            && self.gateways.is_empty()
            && self.shell_commands.is_empty();
        if !is_copyable {
            return None;
        }
        Some(Self {
            now: self.now,
            config: self.config.clone(),
            network: self.network.clone(),
            hosts: self.hosts.iter().map(Host::fork).collect::<Option<_>>()?,
            host_of: self.host_of.clone(),
            mobiles: Vec::new(),
            home_agents: Vec::new(),
            gateways: Vec::new(),
            cpus: self.cpus.clone(),
            latencies: self.latencies.clone(),
            flows: self.flows.clone(),
            unfinished: self.unfinished,
            endless: self.endless,
            next_sample: self.next_sample,
            events: self.events,
            shell_commands: VecDeque::new(),
            has_external: false,
            external_routers: Vec::new(),
        })
    }

    /// A copy of this world that continues as `config` describes, which has the same outages so far: [`Self::depends_on_outages_to`] is before
    /// [`WorldConfig::shared_until`], or they never differ. `None` if that is not so, if the world cannot be copied, or if nothing would be
    /// left to happen: a run that ends so ended with its last event, which may be long past.
    pub fn fork(&self, config: &WorldConfig) -> Option<Self> {
        let shared_until = self.config.shared_until(config)?;
        if self.depends_on_outages_to() >= shared_until && shared_until != Instant::FAR_FUTURE {
            return None;
        }
        let mut world = self.try_copy()?;
        let was = core::mem::replace(&mut world.config, config.clone());
        (world.continue_with_outages(&was) && world.network.schedule.next().is_some()).then_some(world)
    }

    /// Replaces the outages that differ from those of `was`. Returns whether all could be.
    fn continue_with_outages(&mut self, was: &WorldConfig) -> bool {
        let now = self.now;
        for hop in 0..self.network.hops.len() {
            let link = hop / 2;
            let config = &self.config.links[link];
            if config.forward.outages == was.links[link].forward.outages {
                continue;
            }
            let seed = outage_seed(self.config.seed, config);
            if !self.network.hops[hop].link.continue_with(now, &config_of(&self.config, hop), seed) {
                return false;
            }
            self.network.reschedule_hop(hop);
        }
        for host in 0..self.hosts.len() {
            let entry = &mut self.hosts[host];
            if let Some(forewarning) = &mut entry.forewarning {
                forewarning.look_again(now, entry.link, &self.config);
                self.reschedule_host(host);
            }
        }
        true
    }
}
