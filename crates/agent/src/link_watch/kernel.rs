//! Kernel notifications about interfaces, addresses, routes and neighbours, as signals about links.
//!
//! The shell calls [`Interfaces::handle`] for each [`KernelEvent`], then takes [`Interfaces::poll_change`] until
//! `None`. After an overrun (a full socket buffer) the shell dumps everything again, between
//! [`Interfaces::begin_snapshot`] and [`Interfaces::end_snapshot`]; entries missing then are removed.
//!
//! An interface is *eligible* if it may be an uplink: it has, or has had, a default route, and is neither loopback nor
//! a bridge nor the like. A former route is enough because it is lost in the very moments that matter.
//!
//! A default route counts if a rule leads to its table ([`super::rules`]). It *leads* if no other uplink has one with a
//! lower metric in that table: packets would use that one. An interface without leading routes has lost its route.
//! Routes over tunnels, and halves of a default route ([`Part`]), do not take the lead from the links that carry them.
//!
//! IPv4 and IPv6 are separate where one of them has lost its addresses, its routes or its routers and the other has
//! not. A version that an interface never had has no connections there, and follows the other.
//!
//! Absence is not a signal: an interface that never had an address, a default route or a router is not down for lack of
//! it.

mod carrier_checks;
mod former;
mod interface;
mod lower;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use holdover_base::Instant;

pub use self::former::REMEMBERED;
pub(super) use self::lower::is_pair;
pub use self::lower::{HopBelow, Stacking, Tunnel, Way};

use self::carrier_checks::CarrierChecks;
use self::former::FormerInterfaces;
use self::lower::{Lower, StandIn};
use super::rules::{Rule, Rules};
use super::{Families, Family, Signal, Source};

/// A notification of the kernel. Interfaces are identified by their index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelEvent {
    /// An interface, and its state.
    Link {
        /// Its index.
        index: u32,
        /// Its name.
        name: Box<str>,
        /// Its kind as in `ip -details link`; empty for hardware.
        kind: Box<str>,
        /// Whether it is `lo`.
        is_loopback: bool,
        /// Whether it is administratively up (`IFF_UP`).
        is_set_up: bool,
        /// Whether it is administratively up, with a carrier and not dormant.
        can_carry: bool,
        /// How often it has lost its carrier (`IFLA_CARRIER_DOWN_COUNT`).
        carrier_losses: Option<u32>,
        /// Whether hosts at the other end are resolved by ARP or neighbour discovery: not on point-to-point links.
        has_neighbours: bool,
        /// The interfaces below and above.
        stacking: Stacking,
    },
    /// An interface is gone, with everything on it.
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
        /// Whether it exists and is usable: neither tentative nor refused by duplicate address detection.
        is_usable: bool,
    },
    /// A default route of any table but `local`, or a half of one.
    DefaultRoute {
        /// The interface.
        index: u32,
        /// The route.
        route: DefaultRoute,
        /// The event.
        change: RouteChange,
    },
    /// A route other than a default route has changed.
    OtherRoute,
    /// The routes to the endpoints of a tunnel; `None` if no endpoint is known.
    Endpoints {
        /// The tunnel.
        index: u32,
        /// The routes.
        ways: Option<BTreeSet<Way>>,
    },
    /// The next hops of tunnels on this interface are resolved, or given up.
    HopsBelow {
        /// The interface.
        index: u32,
    },
    /// A routing rule that default routes of a table depend on.
    Rule {
        /// The rule.
        rule: Rule,
        /// Whether it exists.
        is_there: bool,
    },
    /// The state of a neighbour.
    Neighbour {
        /// The interface.
        index: u32,
        /// Its address.
        address: IpAddr,
        /// Whether it answers.
        state: Reachability,
    },
}

/// A default route of an interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DefaultRoute {
    /// Whether it is one of IPv6.
    pub is_ipv6: bool,
    /// Its table.
    pub table: u32,
    /// The destinations to which it leads.
    pub part: Part,
    /// The next hop; `None` if all destinations are on the link.
    pub next_hop: Option<IpAddr>,
    /// Its metric.
    pub metric: u32,
}

/// The destinations of a default route. VPN clients install two halves instead of one route, which the kernel prefers to default routes of any
/// metric: OpenVPN's `redirect-gateway def1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// `2000::/4`, the first half of IPv6's global addresses.
    FirstGlobal,
    /// `3000::/4`, the second one.
    SecondGlobal,
    /// `2000::/3`: all of them.
    Global,
    /// `0.0.0.0/1`, `::/1`.
    First,
    /// `128.0.0.0/1`, `8000::/1`.
    Second,
    /// All destinations.
    All,
}

impl Part {
    const fn prefix_len(self) -> u8 {
        match self {
            Self::FirstGlobal | Self::SecondGlobal => 4,
            Self::Global => 3,
            Self::First | Self::Second => 1,
            Self::All => 0,
        }
    }

    /// The part that it needs beside it to lead to all destinations, if any.
    const fn other(self) -> Option<Self> {
        match self {
            Self::FirstGlobal => Some(Self::SecondGlobal),
            Self::SecondGlobal => Some(Self::FirstGlobal),
            Self::First => Some(Self::Second),
            Self::Second => Some(Self::First),
            Self::Global | Self::All => None,
        }
    }
}

/// An event of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteChange {
    /// It exists from now on, or existed before the first report.
    Added,
    /// It exists in place of all routes of its family, table, destinations and metric, whose removal the kernel does not report.
    Replaced,
    /// It is gone.
    Removed,
}

/// Whether a neighbour answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reachability {
    /// It has answered recently.
    Answers,
    /// It needs no probes: its address is configured or managed by another process.
    Fixed,
    /// It was probed, and did not answer.
    Failed,
    /// It is being probed, or has not been for a while.
    Unknown,
    /// Its entry is gone.
    Forgotten,
}

/// A change of the interfaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// An interface exists, or has become eligible.
    Appeared {
        /// Its name.
        interface: Box<str>,
        /// Whether it may be an uplink. If not, it is managed only if named in the configuration.
        is_eligible: bool,
    },
    /// An interface is gone, or has been renamed.
    Disappeared {
        /// Its name.
        interface: Box<str>,
    },
    /// A signal about a link.
    Signal(Signal),
}

/// The routers of an interface that can be probed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DefaultRouters {
    /// The interface's index.
    pub index: u32,
    /// Their addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// When they last answered, if ever.
    pub answered_at: BTreeMap<IpAddr, Instant>,
}

/// The kernel's interfaces.
#[derive(Debug, Default)]
pub struct Interfaces {
    interfaces: BTreeMap<u32, Interface>,
    former: FormerInterfaces,
    rules: Rules,
    /// Routes may have changed since the last look-up of tunnels.
    have_routes_changed: bool,
    /// Unresolved next hops of tunnels whose link is up again, by interface.
    unresolved_below: BTreeSet<(u32, IpAddr)>,
    /// The neighbour, by interface, that has just answered.
    answering: Option<(u32, IpAddr)>,
    /// Changes that the shell has not taken yet.
    to_ask_below: BTreeSet<HopBelow>,
    changes: VecDeque<Change>,
    /// During a snapshot: its notifications.
    snapshot: Option<Vec<KernelEvent>>,
}

/// An interface, with the last reports of its sources.
#[derive(Debug, Default)]
struct Interface {
    name: Box<str>,
    may_be_uplink: bool,
    kind: Box<str>,
    is_tunnel: bool,
    /// Set for a TUN device that is a backup of other links, rather than a tunnel over them.
    stand_in: Option<StandIn>,
    lower: Lower,
    reported_eligible: Option<bool>,
    /// Its link message has arrived; earlier notifications wait for the name.
    is_named: bool,
    can_carry: bool,
    carrier_losses: Option<u32>,
    carrier_checks: Option<CarrierChecks>,
    /// Its carrier was lost and came back without a message in between.
    has_flickered: bool,
    has_carried: bool,
    /// Its carrier was lost at least once.
    has_returned: bool,
    has_neighbours: bool,
    addresses: BTreeSet<IpAddr>,
    /// The addresses of each family before it lost the last one.
    last_addresses: [BTreeSet<IpAddr>; 2],
    /// Its default routes in all tables.
    installed: BTreeSet<DefaultRoute>,
    /// Default routes with a rule that leads to their table.
    routes: BTreeSet<DefaultRoute>,
    has_had_route: bool,
    /// The IP versions with a leading route, and those that ever had one.
    leads: Families,
    has_led: Families,
    /// Neighbours that do not answer, as the kernel reports.
    failed: BTreeSet<IpAddr>,
    /// Routers that have answered.
    answering: BTreeSet<IpAddr>,
    /// Neighbours that need no probes.
    fixed: BTreeSet<IpAddr>,
    /// When routers last answered.
    answered_at: BTreeMap<IpAddr, Instant>,
    /// The sources that have reported down, and for which IP versions.
    reported_down: BTreeMap<Source, Families>,
}

impl Interfaces {
    /// Without any interface.
    pub fn new() -> Self {
        Self::default()
    }

    /// Handles a notification.
    pub fn handle(&mut self, now: Instant, event: KernelEvent) {
        self.have_routes_changed |= lower::concerns_routes(&event);
        // There may be many other routes; they are not stored.
        if event == KernelEvent::OtherRoute {
            return;
        }
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.push(event.clone());
        }
        match event {
            KernelEvent::Link {
                index,
                name,
                kind,
                is_loopback,
                is_set_up,
                can_carry,
                carrier_losses,
                has_neighbours,
                stacking,
            } => {
                let interface = self.interfaces.entry(index).or_default();
                let is_new = interface.name != name;
                if interface.is_named && is_new {
                    // Renamed: for configuration by name, one interface is gone and another one exists.
                    self.changes.push_back(Change::Disappeared { interface: interface.name.clone() });
                    interface.reported_eligible = None;
                    interface.reported_down.clear();
                }
                interface.may_be_uplink = !is_loopback && !is_inner(&kind, &name);
                interface.is_tunnel = lower::is_tunnel(&kind) && interface.stand_in.is_none();
                (interface.kind, interface.lower.stacking) = (kind, stacking);
                (interface.name, interface.is_named) = (name, true);
                if is_new {
                    self.former.recall(now, interface);
                }
                interface.note_carrier(now, can_carry, carrier_losses);
                interface.has_neighbours = has_neighbours;
                // The kernel does not report each removal.
                if !is_set_up {
                    interface.installed.clear();
                }
            }
            KernelEvent::LinkGone { index } => self.remove(now, index),
            KernelEvent::Address { index, address, is_usable } => {
                let Some(interface) = self.known_or_new(index, is_usable) else { return };
                if is_usable {
                    interface.addresses.insert(address);
                } else {
                    interface.remove_address(address);
                }
            }
            KernelEvent::DefaultRoute { index, route, change } => self.note_route(index, route, change),
            KernelEvent::Rule { rule, is_there } => self.rules.note(rule, is_there),
            KernelEvent::Endpoints { index, ways } => self.note_endpoints(index, ways),
            KernelEvent::HopsBelow { index } => self.note_hops_below(index),
            KernelEvent::OtherRoute => {}
            KernelEvent::Neighbour { index, address, state } => {
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

    /// Begins a snapshot: a complete dump follows.
    pub fn begin_snapshot(&mut self) {
        self.snapshot = Some(Vec::new());
    }

    /// Abandons an incomplete or outdated dump: the former state stays, and nothing is removed.
    pub fn abandon_snapshot(&mut self, now: Instant) {
        self.snapshot = None;
        self.tell(now);
    }

    /// Ends a snapshot: everything that was not in it is gone.
    pub fn end_snapshot(&mut self, now: Instant) {
        let Some(snapshot) = self.snapshot.take() else { return };
        let mut addresses = BTreeSet::new();
        let mut routes = BTreeSet::new();
        let mut links = BTreeSet::new();
        let mut rules = BTreeSet::new();
        // Neighbours that have been removed are not in the dump.
        for interface in self.interfaces.values_mut() {
            interface.failed.clear();
            interface.answering.clear();
            interface.fixed.clear();
        }
        for event in snapshot {
            match event {
                KernelEvent::Link { index, .. } => _ = links.insert(index),
                KernelEvent::Address { index, address, is_usable: true } => _ = addresses.insert((index, address)),
                KernelEvent::DefaultRoute { index, route, change: RouteChange::Added | RouteChange::Replaced } => {
                    _ = routes.insert((index, route))
                }
                KernelEvent::Rule { rule, is_there: true } => _ = rules.insert(rule),
                KernelEvent::Neighbour { index, address, state } => {
                    if let Some(interface) = self.interfaces.get_mut(&index) {
                        interface.note_neighbour(now, address, state);
                    }
                }
                _ => {}
            }
        }
        self.rules.retain(&rules);
        let gone: Vec<u32> = self.interfaces.keys().filter(|index| !links.contains(index)).copied().collect();
        gone.into_iter().for_each(|index| self.remove(now, index));
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

    /// The next change, in order.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// The usable addresses of an interface.
    pub fn addresses(&self, interface: &str) -> impl Iterator<Item = IpAddr> {
        let found = self.interfaces.values().find(|known| known.is_named && *known.name == *interface);
        found.into_iter().flat_map(|known| known.addresses.iter().copied())
    }

    /// The addresses of all interfaces, and whether the interface can carry packets.
    pub fn all_addresses(&self) -> impl Iterator<Item = (IpAddr, bool)> {
        self.interfaces.values().flat_map(|known| known.addresses.iter().map(|&address| (address, known.can_carry)))
    }

    /// The name of an interface.
    pub fn name(&self, index: u32) -> Option<&str> {
        self.interfaces.get(&index).filter(|known| known.is_named).map(|known| &*known.name)
    }

    /// The routers of an interface, if every default route has one that can be probed.
    pub fn default_routers(&self, interface: &str) -> Option<DefaultRouters> {
        let mut named = self.interfaces.iter().filter(|(_, known)| known.is_named && *known.name == *interface);
        let (&index, known) = named.next()?;
        let addresses = known.askable_routers().filter(|_| known.can_carry && known.has_neighbours)?;
        Some(DefaultRouters { index, addresses, answered_at: known.answered_at.clone() })
    }

    fn remove(&mut self, now: Instant, index: u32) {
        if let Some(gone) = self.interfaces.remove(&index).filter(|gone| gone.is_named) {
            self.former.note_gone(now, &gone);
            self.changes.push_back(Change::Disappeared { interface: gone.name });
        }
    }

    fn note_route(&mut self, index: u32, route: DefaultRoute, change: RouteChange) {
        if change == RouteChange::Replaced {
            for interface in self.interfaces.values_mut() {
                interface.installed.retain(|old| old.place() != route.place());
            }
        }
        let is_there = change != RouteChange::Removed;
        let Some(interface) = self.known_or_new(index, is_there) else { return };
        if is_there {
            interface.installed.insert(route);
        } else {
            interface.installed.remove(&route);
        }
    }

    /// A removal on an unknown interface does not create it.
    fn known_or_new(&mut self, index: u32, is_there: bool) -> Option<&mut Interface> {
        if is_there { Some(self.interfaces.entry(index).or_default()) } else { self.interfaces.get_mut(&index) }
    }

    fn tell(&mut self, now: Instant) {
        // In a snapshot, changes are reported at its end.
        if self.snapshot.is_some() {
            return;
        }
        self.find_leaders();
        // A counted loss of carrier is reported to the layers above as down, and then as up.
        let has_any_flickered = self.interfaces.values().any(|interface| interface.has_flickered);
        for _ in 0..=u32::from(has_any_flickered) {
            self.look_below();
            for interface in self.interfaces.values_mut().filter(|interface| interface.is_named) {
                interface.tell(now, &mut self.changes);
            }
        }
    }

    /// Finds the default routes that count, and the interfaces with leading ones.
    fn find_leaders(&mut self) {
        let Self { interfaces, rules, .. } = self;
        for interface in interfaces.values_mut().filter(|interface| interface.is_named) {
            let installed = &interface.installed;
            let is_whole = |route: &&DefaultRoute| route.is_whole_with(installed);
            let in_use = installed.iter().filter(|route| rules.lead_to(route.is_ipv6, route.table)).filter(is_whole);
            interface.routes = in_use.copied().collect();
        }
        let of_links = lower::routes_of_links(interfaces);
        interfaces.values_mut().for_each(|interface| interface.note_rank(&of_links));
        let best = best_ranks(interfaces);
        for interface in self.interfaces.values_mut() {
            let leads =
                |route: &DefaultRoute| best.get(&(route.is_ipv6, route.table)).is_none_or(|&best| route.rank() <= best);
            interface.leads = interface.routes.iter().filter(|route| leads(route)).map(DefaultRoute::family).collect();
        }
    }
}

impl DefaultRoute {
    const fn family(&self) -> Family {
        if self.is_ipv6 { Family::Ipv6 } else { Family::Ipv4 }
    }

    /// The kernel has one route for each of these keys, unless others were appended.
    const fn place(&self) -> (bool, u32, Part, u32) {
        (self.is_ipv6, self.table, self.part, self.metric)
    }

    /// The kernel uses the route with the lowest: one with a longer prefix, then one with a lower metric.
    const fn rank(&self) -> Rank {
        (u8::MAX - self.part.prefix_len(), self.metric)
    }

    /// Whether it leads to all destinations, a half together with the other one among these routes.
    fn is_whole_with(&self, routes: &BTreeSet<Self>) -> bool {
        let is_beside = |it: &Self, part| (it.is_ipv6, it.table, it.part) == (self.is_ipv6, self.table, part);
        self.part.other().is_none_or(|part| routes.iter().any(|it| is_beside(it, part)))
    }
}

/// See [`DefaultRoute::rank`].
type Rank = (u8, u32);

/// The rank of the best default route over uplinks except tunnels, by IP version and table. Routes with longer prefixes take no lead away: what
/// has them may be a tunnel of an unknown kind (a VPN over PPP), whose packets need the other default route.
fn best_ranks(interfaces: &BTreeMap<u32, Interface>) -> BTreeMap<(bool, u32), Rank> {
    let mut best = BTreeMap::new();
    let counted =
        interfaces.values().filter(|&interface| interface.is_named && interface.may_be_uplink && !interface.is_tunnel);
    for route in counted.flat_map(|interface| &interface.routes).filter(|route| route.part == Part::All) {
        let best: &mut Rank = best.entry((route.is_ipv6, route.table)).or_insert(route.rank());
        *best = route.rank().min(*best);
    }
    best
}

/// Whether an interface connects to other parts of this machine, by name and kind.
fn is_inner(kind: &str, name: &str) -> bool {
    const KINDS: [&str; 4] = ["bridge", "dummy", "ifb", "nlmon"];
    const NAMES: [&str; 9] = ["docker", "br-", "veth", "virbr", "vnet", "lxc", "cni", "flannel", "cali"];
    KINDS.contains(&kind) || NAMES.iter().any(|inner| name.starts_with(inner))
}

#[cfg(test)]
mod tests;
