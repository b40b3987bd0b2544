//! What the kernel says of interfaces, addresses, routes and neighbours, as signals about links.
//!
//! The shell calls [`Interfaces::handle`] for each [`News`], then takes [`Interfaces::poll_change`] until `None`. What the kernel
//! had to say may have been lost (a full socket buffer); then the shell asks for all of it again, between
//! [`Interfaces::begin_snapshot`] and [`Interfaces::end_snapshot`], and what is not told again is gone.
//!
//! An interface is *eligible* if it may be an uplink: it has, or has had, a default route, and is neither loopback nor a bridge nor
//! the like. Having had one is enough because it is lost in the very moments that matter.
//!
//! A default route counts if a rule leads to its table ([`super::rules`]). It *leads* if no other uplink has one with a lower metric in
//! that table: packets go by that one then, so that an interface whose routes all cease to lead has lost its route. Routes over tunnels do
//! not take the lead from the links that carry them.
//!
//! IPv4 and IPv6 are told apart where one of them has lost its addresses, its routes or its gateways and the other has not. A version that
//! an interface never had has no connections there, and goes the way of the other.
//!
//! Silence is no signal: an interface that never had an address, a default route or a gateway is not down for the want of it.

mod interface;
mod lower;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use holdover_base::Instant;

use self::lower::Lower;
pub(super) use self::lower::is_pair;
pub use self::lower::{HopBelow, Stacking, Tunnel, Way};
use super::rules::{Rule, Rules};
use super::{Families, Family, Signal, Source};

/// Something that the kernel says. Interfaces go by their index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// There is an interface, and this is how it is now.
    Link {
        /// Its index.
        index: u32,
        /// Its name.
        name: Box<str>,
        /// Its kind as `ip -details link` has it; empty for hardware.
        kind: Box<str>,
        /// Whether it is `lo`.
        is_loopback: bool,
        /// Whether it is administratively up (`IFF_UP`).
        is_set_up: bool,
        /// Set up, with a carrier and not dormant.
        can_carry: bool,
        /// Whether those at the other end have addresses of its own that are asked for: not on links from point to point.
        has_neighbours: bool,
        /// What it is made of.
        stacking: Stacking,
    },
    /// An interface is gone, and everything of it.
    LinkGone {
        /// Its index.
        index: u32,
    },
    /// An address of an interface, of global scope.
    Address {
        /// The interface.
        index: u32,
        /// The address.
        address: IpAddr,
        /// Whether it is there and can be used: neither tentative nor refused by duplicate address detection.
        is_usable: bool,
    },
    /// A default route of any table but `local`.
    DefaultRoute {
        /// The interface.
        index: u32,
        /// What tells it from others.
        route: DefaultRoute,
        /// Whether it is there, and how it came to be.
        presence: Presence,
    },
    /// Another route than a default route has changed.
    OtherRoute,
    /// The ways to the endpoints of a tunnel, as they were looked up; `None` if it has no endpoint that is known.
    Endpoints {
        /// The tunnel.
        index: u32,
        /// The ways.
        ways: Option<BTreeSet<Way>>,
    },
    /// The next hops of tunnels on this interface are known, or nobody waits for them any longer.
    HopsBelow {
        /// The interface.
        index: u32,
    },
    /// A rule by which default routes of a table may be used.
    Rule {
        /// The rule.
        rule: Rule,
        /// Whether it is there.
        is_there: bool,
    },
    /// What is known of a neighbour.
    Neighbour {
        /// The interface.
        index: u32,
        /// Its address.
        address: IpAddr,
        /// Whether it answers.
        state: Reachability,
    },
}

/// What tells a default route from others of an interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DefaultRoute {
    /// Whether it is one of IPv6.
    pub is_ipv6: bool,
    /// The table that it is in.
    pub table: u32,
    /// The gateway; `None` if everybody is on the link.
    pub gateway: Option<IpAddr>,
    /// Its metric.
    pub metric: u32,
}

/// Whether a route is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It is there.
    There,
    /// It is there in place of all of its family and table with its metric, of which the kernel does not say that they are gone.
    Instead,
    /// It is gone.
    Gone,
}

/// Whether a neighbour answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reachability {
    /// It has answered not long ago.
    Answers,
    /// It needs not be asked: somebody has said what its address is, and looks after that.
    Fixed,
    /// It was asked, and did not answer.
    Failed,
    /// It is being asked, or has not been for a while.
    Unknown,
    /// Nothing is known any more.
    Forgotten,
}

/// Something that has become of the interfaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// An interface is there that is eligible, or has become so.
    Appeared {
        /// Its name.
        interface: Box<str>,
        /// Whether it may be an uplink. If not, it is looked after if it was asked for by name.
        is_eligible: bool,
    },
    /// An interface is gone, or has another name now.
    Disappeared {
        /// Its name.
        interface: Box<str>,
    },
    /// News of a link.
    Signal(Signal),
}

/// The gateways of an interface that can be asked whether they are there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gateways {
    /// The interface's index.
    pub index: u32,
    /// Their addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// When they were found to answer last, if ever.
    pub answered_at: BTreeMap<IpAddr, Instant>,
}

/// The kernel's interfaces.
#[derive(Debug, Default)]
pub struct Interfaces {
    interfaces: BTreeMap<u32, Interface>,
    rules: Rules,
    /// Since tunnels were looked up last.
    have_routes_changed: bool,
    /// Next hops of tunnels whose link is back, by interface, that are not known yet.
    unresolved_below: BTreeSet<(u32, IpAddr)>,
    /// The neighbour, by interface, that has just answered.
    answering: Option<(u32, IpAddr)>,
    /// Those that the shell has not been told of.
    to_ask_below: BTreeSet<HopBelow>,
    changes: VecDeque<Change>,
    /// While a snapshot is taken: what has been told in it.
    snapshot: Option<Vec<News>>,
}

/// An interface, with what its sources have said last.
#[derive(Debug, Default)]
struct Interface {
    name: Box<str>,
    may_be_uplink: bool,
    kind: Box<str>,
    is_tunnel: bool,
    lower: Lower,
    was_told_eligible: Option<bool>,
    /// The link's message came; what came before it waits for the name.
    is_named: bool,
    can_carry: bool,
    has_carried: bool,
    /// Its carrier was gone once.
    has_returned: bool,
    has_neighbours: bool,
    addresses: BTreeSet<IpAddr>,
    /// The addresses of either family before it lost its last one.
    last_addresses: [BTreeSet<IpAddr>; 2],
    /// Its default routes in all tables.
    installed: BTreeSet<DefaultRoute>,
    /// Those of them to which a rule leads.
    routes: BTreeSet<DefaultRoute>,
    has_had_route: bool,
    /// The IP versions of which one of them leads, and of which one ever has.
    leads: Families,
    has_led: Families,
    /// Neighbours that do not answer, by the kernel's word.
    failed: BTreeSet<IpAddr>,
    /// Gateways that have answered.
    answering: BTreeSet<IpAddr>,
    /// Neighbours that need not be asked.
    fixed: BTreeSet<IpAddr>,
    /// When gateways were found to answer last.
    answered_at: BTreeMap<IpAddr, Instant>,
    /// Which sources have said that it is down, and for which IP versions.
    said_down: BTreeMap<Source, Families>,
}

impl Interfaces {
    /// Nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// The kernel says something.
    pub fn handle(&mut self, now: Instant, news: News) {
        self.have_routes_changed |= lower::concerns_routes(&news);
        // Of other routes there may be many, and nothing is remembered of them.
        if news == News::OtherRoute {
            return;
        }
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.push(news.clone());
        }
        match news {
            News::Link { index, name, kind, is_loopback, is_set_up, can_carry, has_neighbours, stacking } => {
                let interface = self.interfaces.entry(index).or_default();
                if interface.is_named && interface.name != name {
                    // Renamed: for configuration by name, one interface is gone and another one there.
                    self.changes.push_back(Change::Disappeared { interface: interface.name.clone() });
                    interface.was_told_eligible = None;
                    interface.said_down.clear();
                }
                interface.may_be_uplink = !is_loopback && !is_inner(&kind, &name);
                interface.is_tunnel = lower::is_tunnel(&kind);
                (interface.kind, interface.lower.stacking) = (kind, stacking);
                (interface.name, interface.is_named) = (name, true);
                (interface.can_carry, interface.has_neighbours) = (can_carry, has_neighbours);
                // The kernel does not tell of each of them.
                if !is_set_up {
                    interface.installed.clear();
                }
            }
            News::LinkGone { index } => self.remove(index),
            News::Address { index, address, is_usable } => {
                let Some(interface) = self.known_or_new(index, is_usable) else { return };
                if is_usable {
                    interface.addresses.insert(address);
                } else {
                    interface.remove_address(address);
                }
            }
            News::DefaultRoute { index, route, presence } => self.note_route(index, route, presence),
            News::Rule { rule, is_there } => self.rules.note(rule, is_there),
            News::Endpoints { index, ways } => self.note_endpoints(index, ways),
            News::HopsBelow { index } => self.note_hops_below(index),
            News::OtherRoute => {}
            News::Neighbour { index, address, state } => {
                self.answering = (state == Reachability::Answers).then_some((index, address));
                if let Some(hop) = self.answering {
                    self.unresolved_below.remove(&hop);
                }
                let Some(interface) = self.known_or_new(index, state == Reachability::Failed) else { return };
                interface.note_neighbour(now, address, state);
            }
        }
        self.tell(now);
        self.answering = None;
    }

    /// Everything is about to be told anew.
    pub fn begin_snapshot(&mut self) {
        self.snapshot = Some(Vec::new());
    }

    /// Not everything has been told, or not as it is now: what has been holds, and nothing is gone because it was not.
    pub fn abandon_snapshot(&mut self, now: Instant) {
        self.snapshot = None;
        self.tell(now);
    }

    /// Everything has been told: what was not is gone.
    pub fn end_snapshot(&mut self, now: Instant) {
        let Some(told) = self.snapshot.take() else { return };
        let mut addresses = BTreeSet::new();
        let mut routes = BTreeSet::new();
        let mut links = BTreeSet::new();
        let mut rules = BTreeSet::new();
        // Of neighbours that have been forgotten nothing is told.
        for interface in self.interfaces.values_mut() {
            interface.failed.clear();
            interface.answering.clear();
            interface.fixed.clear();
        }
        for news in told {
            match news {
                News::Link { index, .. } => _ = links.insert(index),
                News::Address { index, address, is_usable: true } => _ = addresses.insert((index, address)),
                News::DefaultRoute { index, route, presence: Presence::There | Presence::Instead } => {
                    _ = routes.insert((index, route))
                }
                News::Rule { rule, is_there: true } => _ = rules.insert(rule),
                News::Neighbour { index, address, state } => {
                    if let Some(interface) = self.interfaces.get_mut(&index) {
                        interface.note_neighbour(now, address, state);
                    }
                }
                _ => {}
            }
        }
        self.rules.retain(&rules);
        let gone: Vec<u32> = self.interfaces.keys().filter(|index| !links.contains(index)).copied().collect();
        gone.into_iter().for_each(|index| self.remove(index));
        for (&index, interface) in &mut self.interfaces {
            interface.installed.retain(|&route| routes.contains(&(index, route)));
            let gone: Vec<_> = interface
                .addresses
                .iter()
                .filter(|&&address| !addresses.contains(&(index, address)))
                .copied()
                .collect();
            gone.into_iter().for_each(|address| interface.remove_address(address));
        }
        self.tell(now);
    }

    /// What has changed, in order.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// The addresses of an interface that can be used.
    pub fn addresses(&self, interface: &str) -> impl Iterator<Item = IpAddr> {
        let found = self.interfaces.values().find(|known| known.is_named && *known.name == *interface);
        found.into_iter().flat_map(|known| known.addresses.iter().copied())
    }

    /// The addresses of all interfaces, each with whether its interface can carry packets.
    pub fn all_addresses(&self) -> impl Iterator<Item = (IpAddr, bool)> {
        self.interfaces.values().flat_map(|known| known.addresses.iter().map(|&address| (address, known.can_carry)))
    }

    /// The name of an interface.
    pub fn name(&self, index: u32) -> Option<&str> {
        self.interfaces.get(&index).filter(|known| known.is_named).map(|known| &*known.name)
    }

    /// The gateways of an interface, if all of its default routes lead to one that can be asked.
    pub fn gateways(&self, interface: &str) -> Option<Gateways> {
        let mut named = self.interfaces.iter().filter(|(_, known)| known.is_named && *known.name == *interface);
        let (&index, known) = named.next()?;
        let addresses = known.askable_gateways().filter(|_| known.can_carry && known.has_neighbours)?;
        Some(Gateways { index, addresses, answered_at: known.answered_at.clone() })
    }

    fn remove(&mut self, index: u32) {
        if let Some(gone) = self.interfaces.remove(&index).filter(|gone| gone.is_named) {
            self.changes.push_back(Change::Disappeared { interface: gone.name });
        }
    }

    fn note_route(&mut self, index: u32, route: DefaultRoute, presence: Presence) {
        if presence == Presence::Instead {
            for interface in self.interfaces.values_mut() {
                interface.installed.retain(|old| old.place() != route.place());
            }
        }
        let is_there = presence != Presence::Gone;
        let Some(interface) = self.known_or_new(index, is_there) else { return };
        if is_there {
            interface.installed.insert(route);
        } else {
            interface.installed.remove(&route);
        }
    }

    /// What is gone of an interface that is gone itself is no reason to remember it.
    fn known_or_new(&mut self, index: u32, is_there: bool) -> Option<&mut Interface> {
        if is_there { Some(self.interfaces.entry(index).or_default()) } else { self.interfaces.get_mut(&index) }
    }

    fn tell(&mut self, now: Instant) {
        // What is half told in a snapshot is told when it is whole.
        if self.snapshot.is_some() {
            return;
        }
        self.find_leaders();
        self.look_below();
        for interface in self.interfaces.values_mut().filter(|interface| interface.is_named) {
            interface.tell(now, &mut self.changes);
        }
    }

    /// Which default routes may be used, and which interfaces' lead.
    fn find_leaders(&mut self) {
        let mut least = BTreeMap::new();
        for interface in self.interfaces.values_mut().filter(|interface| interface.is_named) {
            let rules = &self.rules;
            let in_use = interface.installed.iter().filter(|route| rules.lead_to(route.is_ipv6, route.table));
            interface.routes = in_use.copied().collect();
            for route in interface.routes.iter().filter(|_| interface.may_be_uplink && !interface.is_tunnel) {
                let least: &mut u32 = least.entry((route.is_ipv6, route.table)).or_insert(route.metric);
                *least = route.metric.min(*least);
            }
        }
        for interface in self.interfaces.values_mut() {
            let leads = |route: &DefaultRoute| {
                least.get(&(route.is_ipv6, route.table)).is_none_or(|&least| route.metric <= least)
            };
            interface.leads = interface.routes.iter().filter(|route| leads(route)).map(DefaultRoute::family).collect();
        }
    }
}

impl DefaultRoute {
    const fn family(&self) -> Family {
        if self.is_ipv6 { Family::Ipv6 } else { Family::Ipv4 }
    }

    /// The kernel has one route in each place, unless others were appended.
    const fn place(&self) -> (bool, u32, u32) {
        (self.is_ipv6, self.table, self.metric)
    }
}

/// Whether an interface leads to other parts of this machine: its name and kind say so.
fn is_inner(kind: &str, name: &str) -> bool {
    const KINDS: [&str; 4] = ["bridge", "dummy", "ifb", "nlmon"];
    const NAMES: [&str; 9] = ["docker", "br-", "veth", "virbr", "vnet", "lxc", "cni", "flannel", "cali"];
    KINDS.contains(&kind) || NAMES.iter().any(|inner| name.starts_with(inner))
}

#[cfg(test)]
mod tests;
