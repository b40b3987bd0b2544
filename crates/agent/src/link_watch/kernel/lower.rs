//! **Stacked links.** A VLAN, a bond or a tunnel has no wire of its own: it is down when every link below it is.
//!
//! | kind | below |
//! | --- | --- |
//! | VLAN, macvlan, ipvlan, MACsec and the like | the interface in its link message (`IFLA_LINK`) |
//! | bond, team, bridge | its members (`IFLA_MASTER`) |
//! | WireGuard, and tunnels that are not bound to a device | the routes to their endpoints, which the shell looks up ([`Tunnel`], [`KernelEvent::Endpoints`]) |
//! | GRE, IPIP, SIT, XFRM, VXLAN that are bound to a device | that device |
//! | TUN devices (OpenVPN, tailscale), and OpenVPN's devices in the kernel, whose endpoint is not known here | the default routes of other links; nothing if the device stands in for these ([`StandIn`]) |
//!
//! Of a link below, its carrier and the links below it count; for tunnels also that it has not lost its addresses of the IP version
//! of the tunnel's packets, and that the next hop is not known to be silent. It need not be managed itself.
//!
//! A tunnel whose link below is up again waits for the address of its next hop there ([`Interfaces::take_hops_below`]).
//! Until then the kernel keeps the tunnel's packets in a short queue, sends one request a second, and then sends all of
//! them at once: a wake over the tunnel would show the peers a round trip that includes this wait.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{DefaultRoute, Interface, Interfaces, KernelEvent};
use crate::link_watch::{Family, Source};

/// The stacking of an interface, from its link message.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stacking {
    /// The index of the interface below it.
    pub below: Option<u32>,
    /// The index of the interface that it is a member of.
    pub part_of: Option<u32>,
    /// The remote address of a tunnel.
    pub remote: Option<IpAddr>,
}

/// A route of an interface's packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Way {
    /// The index of the interface below.
    pub index: u32,
    /// The IP version of the outer packets of a tunnel; `None` for other interfaces.
    pub family: Option<Family>,
    /// Their next hop: a router, or the endpoint itself.
    pub hop: Option<IpAddr>,
}

/// A next hop of tunnels whose link below is up again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HopBelow {
    /// The index of the interface below.
    pub index: u32,
    /// Its address of the same IP version.
    pub local: IpAddr,
    /// The next hop.
    pub hop: IpAddr,
}

/// A tunnel whose routes are to be looked up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tunnel {
    /// Its index.
    pub index: u32,
    /// The remote address; `None` for WireGuard, whose peers must be queried.
    pub remote: Option<IpAddr>,
}

/// The links below an interface.
#[derive(Debug, Default)]
pub(super) struct Lower {
    pub(super) stacking: Stacking,
    /// The routes to a tunnel's endpoints, if any endpoint is known.
    pub(super) endpoints: Option<BTreeSet<Way>>,
    /// The last routes.
    ways: BTreeSet<Way>,
    /// All of them are down.
    pub(super) is_cut: bool,
    /// The same, without next hops that are being resolved.
    is_cut_off: bool,
    /// The packets use other interfaces than before.
    pub(super) has_moved: bool,
}

/// The deepest stack that is followed.
const MOST_FLOORS: u32 = 8;

const WIREGUARD: &str = "wireguard";

/// Whether a program knows the endpoint of such a tunnel, and the kernel's link messages do not: a TUN device, or one of OpenVPN's in the kernel (`ovpn` since
/// Linux 6.16, before that a module of its own).
fn is_of_a_program(kind: &str) -> bool {
    ["tun", "ovpn", "ovpn-dco", "ovpn-dco-v2"].contains(&kind)
}

impl Interfaces {
    /// The tunnels to be looked up: all if routes may have changed since the last call, else those with peers that must be queried, if
    /// `asks_peers`.
    pub fn take_tunnels(&mut self, asks_peers: bool) -> Vec<Tunnel> {
        let all = std::mem::take(&mut self.have_routes_changed);
        if !all && !asks_peers {
            return Vec::new();
        }
        let tunnels = self.interfaces.iter().filter(|(_, known)| known.is_named && known.is_tunnel);
        let tunnels = tunnels.filter_map(|(&index, known)| {
            let Stacking { below, remote, .. } = known.lower.stacking;
            let has_endpoint = &*known.kind == WIREGUARD || all && remote.is_some();
            (has_endpoint && below.is_none()).then_some(Tunnel { index, remote })
        });
        tunnels.collect()
    }

    /// The next hops of tunnels that are up again, on links with neighbours to resolve.
    pub fn take_hops_below(&mut self) -> BTreeSet<HopBelow> {
        std::mem::take(&mut self.to_ask_below)
    }

    /// The next hops of tunnels on an interface are resolved, or given up.
    pub(super) fn note_hops_below(&mut self, index: u32) {
        self.unresolved_below.retain(|(unresolved, _)| *unresolved != index);
    }

    /// Requests resolution of the next hops of routes that are up again.
    fn ask_below(&mut self, ways: impl Iterator<Item = Way>) {
        let mut asked = BTreeSet::new();
        for Way { index, hop, .. } in ways {
            let (Some(lower), Some(hop)) = (self.interfaces.get(&index).filter(|lower| lower.has_neighbours), hop)
            else {
                continue;
            };
            let local = lower.addresses.iter().find(|&&address| Family::of(address) == Family::of(hop));
            if local.is_some() && self.answering != Some((index, hop)) {
                self.unresolved_below.insert((index, hop));
                asked.insert(index);
            }
        }
        // One search per interface: unresolved next hops are requested again.
        let Self { unresolved_below, interfaces, to_ask_below, .. } = self;
        for &(index, hop) in unresolved_below.iter().filter(|(index, _)| asked.contains(index)) {
            let own = interfaces.get(&index).map(|lower| lower.addresses.iter());
            let local = own.into_iter().flatten().find(|&&address| Family::of(address) == Family::of(hop));
            to_ask_below.extend(local.map(|&local| HopBelow { index, local, hop }));
        }
    }

    /// Finds the links below each interface, and whether they are down.
    pub(super) fn look_below(&mut self) {
        let mut ways: BTreeMap<u32, BTreeSet<Way>> = BTreeMap::new();
        for (&index, interface) in &self.interfaces {
            let mut found = self.ways(index, interface);
            found.retain(|way| way.index != index);
            // For a tunnel without known endpoint: the last routes.
            if found.is_empty() && interface.is_tunnel && is_of_a_program(&interface.kind) {
                found.clone_from(&interface.lower.ways);
            }
            ways.insert(index, found);
        }
        let unresolved = std::mem::take(&mut self.unresolved_below);
        let cut_off = self.cut_off(&ways);
        let mut back = Vec::new();
        for (index, interface) in &mut self.interfaces {
            let found = ways.get(index);
            let lower = &mut interface.lower;
            let has_lost_all = interface.is_tunnel && found.is_none_or(BTreeSet::is_empty) && !lower.ways.is_empty();
            let is_cut_off = cut_off.contains(index) || has_lost_all;
            if std::mem::replace(&mut lower.is_cut_off, is_cut_off) && !is_cut_off {
                back.extend(found.into_iter().flatten().copied());
            }
        }
        // A route that is down again is resolved when it is up.
        self.unresolved_below = unresolved;
        let Self { unresolved_below, interfaces, .. } = self;
        unresolved_below.retain(|(index, _)| interfaces.get(index).is_some_and(|lower| lower.can_carry));
        self.ask_below(back.into_iter());
        let cut = self.cut_off(&ways);
        for (index, interface) in &mut self.interfaces {
            let found = ways.remove(index).unwrap_or_default();
            let lower = &mut interface.lower;
            // A next hop that is being resolved prolongs an outage, but does not begin one: other traffic may use it
            // meanwhile.
            lower.is_cut = lower.is_cut_off || (lower.is_cut && cut.contains(index));
            if !found.is_empty() {
                let indices = |ways: &BTreeSet<Way>| ways.iter().map(|way| way.index).collect::<BTreeSet<u32>>();
                lower.has_moved = !lower.ways.is_empty() && indices(&lower.ways).is_disjoint(&indices(&found));
                lower.ways = found;
            }
        }
    }

    /// The interfaces for which everything below is down.
    fn cut_off(&self, ways: &BTreeMap<u32, BTreeSet<Way>>) -> BTreeSet<u32> {
        self.interfaces.keys().copied().filter(|&index| self.is_cut_below(ways, index, &mut Vec::new())).collect()
    }

    fn ways(&self, index: u32, interface: &Interface) -> BTreeSet<Way> {
        let Lower { stacking, endpoints, .. } = &interface.lower;
        let bound = stacking.below.map(|below| {
            let family = stacking.remote.map(Family::of);
            Way { index: below, family, hop: None }
        });
        match &*interface.kind {
            "bond" | "team" | "bridge" => {
                let members = self.interfaces.iter().filter(|(_, other)| other.lower.stacking.part_of == Some(index));
                members.map(|(&index, _)| Way { index, family: None, hop: None }).collect()
            }
            kind if interface.is_tunnel && is_of_a_program(kind) => self.default_ways(),
            _ if bound.is_some() => bound.into_iter().collect(),
            _ => endpoints.clone().unwrap_or_default(),
        }
    }

    /// The leading default routes, except over tunnels.
    fn default_ways(&self) -> BTreeSet<Way> {
        let uplinks = self.interfaces.iter().filter(|(_, other)| other.may_be_uplink && !other.is_tunnel);
        let ways = uplinks.flat_map(|(&index, other)| {
            let leading = other.routes.iter().filter(|route| other.leads.contains(route.family()));
            leading.map(move |route| Way { index, family: Some(route.family()), hop: route.next_hop })
        });
        ways.collect()
    }

    /// Whether everything below an interface is down. `path` are the interfaces above; loops are ignored.
    fn is_cut_below(&self, ways: &BTreeMap<u32, BTreeSet<Way>>, index: u32, path: &mut Vec<u32>) -> bool {
        let Some(below) = ways.get(&index).filter(|below| !below.is_empty()) else { return false };
        if path.contains(&index) || path.len() as u32 >= MOST_FLOORS {
            return false;
        }
        path.push(index);
        let is_cut = below.iter().all(|way| self.is_cut(way) || self.is_cut_below(ways, way.index, path));
        path.pop();
        is_cut
    }

    fn is_cut(&self, way: &Way) -> bool {
        // It is gone itself; an interface in another namespace would not have been named.
        let Some(lower) = self.interfaces.get(&way.index).filter(|lower| lower.is_named) else { return true };
        !lower.can_carry
            || lower.has_flickered
            || way.family.is_some_and(|family| lower.has_lost(Source::Address, family))
            || way.hop.is_some_and(|hop| lower.is_silent(hop) || self.unresolved_below.contains(&(way.index, hop)))
    }

    /// Sets the routes to a tunnel's endpoints; `None` if it has none.
    pub(super) fn note_endpoints(&mut self, index: u32, ways: Option<BTreeSet<Way>>) {
        if let Some(interface) = self.interfaces.get_mut(&index) {
            interface.lower.endpoints = ways;
        }
    }
}

/// A TUN device that replaces other links when they fail, such as a modem whose driver is a program: the kernel prefers the default
/// routes of these. A TUN device with a better route than theirs, of either IP version, sends its packets over them.
///
/// It keeps this role while its routes are the same and one of these links has a default route: NetworkManager adds 20,000 to the metrics
/// of a link that fails its connectivity check.
#[derive(Debug, Default)]
pub(super) struct StandIn {
    /// The links whose routes had lower metrics when the role began.
    links: BTreeSet<u32>,
    /// The device's own routes at that time.
    routes: BTreeSet<DefaultRoute>,
}

/// The default routes over uplinks of a kind other than tunnels.
pub(super) fn routes_of_links(interfaces: &BTreeMap<u32, Interface>) -> Vec<(u32, DefaultRoute)> {
    let is_link = |known: &Interface| known.is_named && known.may_be_uplink && !is_tunnel(&known.kind);
    let links = interfaces.iter().filter(|(_, known)| is_link(known));
    links.flat_map(|(&index, known)| known.routes.iter().map(move |&route| (index, route))).collect()
}

impl Interface {
    /// Compares the default routes with those of other links.
    pub(super) fn note_rank(&mut self, of_links: &[(u32, DefaultRoute)]) {
        if !is_of_a_program(&self.kind) {
            return;
        }
        let rivals = |own: DefaultRoute| {
            of_links.iter().filter(move |(_, other)| (other.is_ipv6, other.table) == (own.is_ipv6, own.table))
        };
        let rank = |own: &DefaultRoute| Some(own.rank().cmp(&rivals(*own).map(|(_, other)| other.rank()).min()?));
        match self.routes.iter().filter_map(rank).filter(|rank| rank.is_ne()).min() {
            Some(Ordering::Greater) => {
                let stand_in = self.stand_in.get_or_insert_default();
                for &own in &self.routes {
                    let better = rivals(own).filter(|(_, other)| other.rank() < own.rank());
                    stand_in.links.extend(better.map(|&(index, _)| index));
                    stand_in.routes.insert(own);
                }
            }
            Some(_) => {
                let rivals: BTreeSet<u32> =
                    self.routes.iter().flat_map(|&own| rivals(own)).map(|&(index, _)| index).collect();
                let routes = &self.routes;
                self.stand_in.take_if(|known| !routes.is_subset(&known.routes) || known.links.is_disjoint(&rivals));
            }
            None => {}
        }
        self.is_tunnel = self.stand_in.is_none();
    }
}

/// Whether a notification may change the route of a tunnel's packets.
pub(super) const fn concerns_routes(event: &KernelEvent) -> bool {
    !matches!(event, KernelEvent::Neighbour { .. } | KernelEvent::Endpoints { .. } | KernelEvent::HopsBelow { .. })
}

/// Whether the interface in a link message (`IFLA_LINK`) is the other end of a pair, and not one below.
pub(crate) fn is_pair(kind: &str) -> bool {
    ["veth", "netkit", "vxcan"].contains(&kind)
}

/// Whether an interface encapsulates its packets.
pub(super) fn is_tunnel(kind: &str) -> bool {
    let others =
        "wireguard ipip ip6tnl sit gre gretap ip6gre ip6gretap vti vti6 xfrm vxlan geneve erspan ip6erspan bareudp";
    is_of_a_program(kind) || others.split(' ').any(|known| known == kind)
}

#[cfg(test)]
mod tests;
