//! The links by which packets to peers can leave: for each the address to announce, and the kernel's opinion about its routes.
//!
//! A host may have several uplinks at a time, as Wi-Fi and LTE. The routes choose one of them; the others are standbys. A packet from a standby's
//! address leaves by the standby only if it is pinned to it ([`Pin`]): the kernel chooses a route by the destination alone, unless a rule
//! (`ip rule from`) leads to another table.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use holdover_host::Requests;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::files::check_address;

/// Documentation addresses outside of every network (RFC 5737, RFC 3849): their route is the default route.
pub(crate) const ELSEWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];
/// A port for sockets that send nothing: "discard".
const NO_PORT: u16 = 9;

/// The most peers' addresses whose routes can make a link without a default route a standby.
const MOST_PEERS: usize = 8;

/// The kinds of interfaces whose packets leave in packets of another link, as in `ip -details link`. Where packets go through one, the links below
/// are no standbys: they would go around it.
const TUNNELS: [&str; 13] =
    ["wireguard", "tun", "ovpn", "ipip", "ip6tnl", "sit", "gre", "ip6gre", "vti", "vti6", "xfrm", "geneve", "bareudp"];

/// An interface.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    /// It is up and has a carrier.
    pub(super) is_up: bool,
    pub(super) is_tunnel: bool,
    /// It is a port of a bridge, a bond or a VRF: packets do not leave by it alone.
    pub(super) is_port: bool,
}

/// The interfaces of this host by their index, and their addresses.
#[derive(Clone, Default, Debug)]
pub(super) struct Interfaces {
    pub(super) by_index: BTreeMap<u32, Interface>,
    /// Usable ones.
    pub(super) addresses: Vec<(u32, IpAddr)>,
}

/// The link of an announced address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    /// The name of the interface.
    pub(crate) name: String,
    index: u32,
    /// The routes prefer another link of this IP version.
    pub(crate) is_standby: bool,
    reach: Option<Reach>,
}

/// The destinations of packets that are pinned to a link.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Reach {
    Everything,
    These(Vec<IpAddr>),
}

/// The interface by which packets from an address leave, whatever the routes prefer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pin {
    pub(super) index: u32,
    pub(super) name: String,
}

/// The links of this host's addresses.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Links(BTreeMap<IpAddr, Link>);

impl Links {
    /// The link of an address.
    pub(crate) fn of(&self, address: IpAddr) -> Option<&Link> {
        self.0.get(&address)
    }

    /// The links of standbys.
    pub(crate) fn standbys(&self) -> impl Iterator<Item = (IpAddr, &Link)> {
        self.0.iter().filter(|(_, link)| link.is_standby).map(|(&address, link)| (address, link))
    }

    /// Where packets between these addresses are pinned to; `None` if the routes decide.
    pub(super) fn pin(&self, src: IpAddr, dst: IpAddr) -> Option<Pin> {
        let link = self.0.get(&src)?;
        let is_pinned = match link.reach.as_ref()? {
            Reach::Everything => true,
            Reach::These(destinations) => destinations.contains(&dst),
        };
        is_pinned.then(|| Pin { index: link.index, name: link.name.clone() })
    }

    /// Whether an interface has an address here.
    pub(super) fn has(&self, index: u32) -> bool {
        self.0.values().any(|link| link.index == index)
    }
}

/// The kernel's decisions about routes.
pub(super) trait Routes {
    /// The source address of packets to a destination, if the program chooses none.
    fn source_for(&mut self, dst: IpAddr) -> Option<IpAddr>;
    /// The interface of packets to a destination, from this source if there is one.
    fn link_for(&mut self, src: Option<IpAddr>, dst: IpAddr) -> Option<u32>;
    /// The source address of packets that leave by this interface.
    fn source_by(&mut self, link: u32, dst: IpAddr) -> Option<IpAddr>;
    /// The metric of the route by which packets from this source leave by this interface; `None` without one.
    fn metric_by(&mut self, link: u32, src: IpAddr, dst: IpAddr) -> Option<u32>;
}

/// An address by which packets could leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Uplink {
    metric: u32,
    link: u32,
    address: IpAddr,
}

/// This host's addresses towards its peers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Found {
    /// Those that the routes choose for packets to peers and to the default routes, while their links have a carrier.
    pub(super) chosen: Vec<IpAddr>,
    /// Those of the other links, the best route first.
    pub(super) standby: Vec<IpAddr>,
}

/// Finds the addresses. `is_locator` says whether one may be announced.
pub(super) fn find(
    routes: &mut impl Routes,
    interfaces: &Interfaces,
    peers: &[IpAddr],
    has_standbys: bool,
    is_locator: impl Fn(IpAddr) -> bool,
) -> Found {
    let mut uplinks = Vec::new();
    for elsewhere in ELSEWHERE.into_iter().filter(|_| has_standbys) {
        uplinks.extend(uplinks_of(routes, interfaces, peers, elsewhere, &is_locator));
    }
    let mut found = Found::default();
    for &target in peers.iter().chain(&ELSEWHERE) {
        let source = routes.source_for(target).filter(|&it| interfaces.is_up(it) && is_locator(it));
        let source = source.or_else(|| {
            let mut leads = |it: &Uplink| {
                it.address.is_ipv4() == target.is_ipv4() && routes.metric_by(it.link, it.address, target).is_some()
            };
            uplinks.iter().find(|it| leads(it)).map(|it| it.address)
        });
        if let Some(source) = source.filter(|it| !found.chosen.contains(it)) {
            found.chosen.push(source);
        }
    }
    let is_used = |uplink: &Uplink| {
        let is_of = |&(link, address): &(u32, IpAddr)| {
            link == uplink.link && address.is_ipv4() == uplink.address.is_ipv4() && found.chosen.contains(&address)
        };
        interfaces.addresses.iter().any(is_of)
    };
    found.standby = uplinks.iter().filter(|uplink| !is_used(uplink)).map(|uplink| uplink.address).collect();
    found
}

/// The links by which packets of one IP version could leave, the best route first. `elsewhere` is beyond the default route of that version.
fn uplinks_of(
    routes: &mut impl Routes,
    interfaces: &Interfaces,
    peers: &[IpAddr],
    elsewhere: IpAddr,
    is_locator: &impl Fn(IpAddr) -> bool,
) -> Vec<Uplink> {
    let same_version = |it: &IpAddr| it.is_ipv4() == elsewhere.is_ipv4();
    let used = routes.link_for(None, elsewhere).and_then(|link| interfaces.by_index.get(&link));
    if used.is_some_and(|used| used.is_tunnel) {
        return Vec::new();
    }
    let peers = peers.iter().copied().filter(same_version).take(MOST_PEERS);
    let targets: Vec<IpAddr> = core::iter::once(elsewhere).chain(peers).collect();
    let usable = interfaces.by_index.iter().filter(|(_, it)| it.is_up && !it.is_port);
    let mut uplinks = Vec::new();
    for (&link, _) in usable {
        let of_link = interfaces.addresses.iter().filter(|(at, _)| *at == link).map(|(_, address)| *address);
        let mut own: Vec<IpAddr> = of_link.filter(|it| same_version(it) && is_locator(*it)).collect();
        if own.is_empty() {
            continue;
        }
        let preferred = routes.source_by(link, elsewhere);
        own.sort_by_key(|it| Some(*it) != preferred);
        let pairs = targets.iter().flat_map(|&target| own.iter().map(move |&address| (address, target)));
        let best = pairs.map(|(address, target)| Some((routes.metric_by(link, address, target)?, address)));
        let best = best.flatten().next();
        uplinks.extend(best.map(|(metric, address)| Uplink { metric, link, address }));
    }
    uplinks.sort_unstable();
    uplinks
}

/// The links of announced addresses, of which `standby` are those of standbys.
pub(super) fn links_of(
    routes: &mut impl Routes,
    interfaces: &Interfaces,
    announced: &[IpAddr],
    standby: &[IpAddr],
    peers: &[IpAddr],
) -> Links {
    let mut links = BTreeMap::new();
    for &address in announced {
        let holders = interfaces.addresses.iter().filter(|(_, it)| *it == address).map(|(link, _)| *link);
        let up = |link: &u32| interfaces.by_index.get(link).is_some_and(|it| it.is_up);
        let Some(index) = holders.clone().find(up).or_else(|| holders.clone().next()) else { continue };
        let Some(interface) = interfaces.by_index.get(&index) else { continue };
        let is_standby = standby.contains(&address);
        let reach = reach(routes, interfaces, index, address, is_standby, peers);
        links.insert(address, Link { name: interface.name.clone(), index, is_standby, reach });
    }
    Links(links)
}

/// The destinations for which packets from an address have to be pinned to its link: the kernel would send them by another one, which is no
/// tunnel.
fn reach(
    routes: &mut impl Routes,
    interfaces: &Interfaces,
    link: u32,
    src: IpAddr,
    is_standby: bool,
    peers: &[IpAddr],
) -> Option<Reach> {
    let elsewhere = ELSEWHERE[usize::from(src.is_ipv6())];
    let mut is_pinned = |dst| {
        let by = routes.link_for(Some(src), dst);
        let is_tunnelled = by.and_then(|by| interfaces.by_index.get(&by)).is_some_and(|it| it.is_tunnel);
        by != Some(link) && !is_tunnelled && routes.metric_by(link, src, dst).is_some()
    };
    if is_pinned(elsewhere) {
        return Some(Reach::Everything);
    }
    let peers = peers.iter().copied().filter(|it| is_standby && it.is_ipv4() == src.is_ipv4()).take(MOST_PEERS);
    let these: Vec<IpAddr> = peers.filter(|&peer| is_pinned(peer)).collect();
    if these.is_empty() { None } else { Some(Reach::These(these)) }
}

impl Interfaces {
    /// Asks the kernel.
    ///
    /// # Errors
    /// The query fails.
    pub(super) fn read(requests: &mut Requests) -> io::Result<Self> {
        let mut interfaces = Self::default();
        for answer in requests.request(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)? {
            if let RouteNetlinkMessage::NewLink(link) = answer {
                interfaces.by_index.insert(link.header.index, Interface::of(&link));
            }
        }
        for answer in requests.request(RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP)? {
            if let RouteNetlinkMessage::NewAddress(message) = answer {
                interfaces.add_addresses(&message);
            }
        }
        Ok(interfaces)
    }

    fn add_addresses(&mut self, message: &AddressMessage) {
        let unusable = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
        let is_usable =
            !message.header.flags.intersects(unusable) || message.header.flags.contains(AddressHeaderFlags::Optimistic);
        // The far end's address of a point-to-point link is in "address", this host's in "local".
        let local = message.attributes.iter().find_map(|it| match it {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
        let other = message.attributes.iter().find_map(|it| match it {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        self.addresses.extend(local.or(other).filter(|_| is_usable).map(|address| (message.header.index, address)));
    }

    /// Whether a link with this address is up with a carrier.
    pub(super) fn is_up(&self, address: IpAddr) -> bool {
        let is_up = |link: &u32| self.by_index.get(link).is_some_and(|it| it.is_up);
        self.addresses.iter().any(|(link, it)| *it == address && is_up(link))
    }
}

impl Interface {
    fn of(link: &LinkMessage) -> Self {
        let mut interface =
            Self { is_up: link.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp), ..Self::default() };
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::IfName(name) => interface.name.clone_from(name),
                LinkAttribute::Controller(controller) => interface.is_port = *controller != 0,
                LinkAttribute::LinkInfo(infos) => {
                    let is_tunnel = |it: &LinkInfo| match it {
                        LinkInfo::Kind(kind) => TUNNELS.contains(&kind.to_string().as_str()),
                        _ => false,
                    };
                    interface.is_tunnel |= infos.iter().any(is_tunnel);
                }
                _ => {}
            }
        }
        interface
    }
}

/// The source address that the system would choose; sends nothing.
pub(crate) fn source_for(peer: IpAddr) -> Option<IpAddr> {
    let any: SocketAddr = match peer {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect((peer, NO_PORT)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// The kernel's own.
pub(super) struct KernelRoutes<'a>(pub(super) &'a mut Requests);

impl KernelRoutes<'_> {
    /// `None` without a route.
    fn get(&mut self, link: Option<u32>, src: Option<IpAddr>, dst: IpAddr, is_match: bool) -> Option<RouteMessage> {
        let mut message = RouteMessage::default();
        let bits = if dst.is_ipv4() { 32 } else { 128 };
        message.header.address_family = if dst.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.header.destination_prefix_length = bits;
        if is_match {
            // The route itself: without, IPv4 reports any destination as on the link where an interface is given and has no route.
            message.header.flags |= RouteFlags::FibMatch;
        }
        message.attributes.push(RouteAttribute::Destination(route_address(dst)));
        message.attributes.extend(link.map(RouteAttribute::Oif));
        if let Some(src) = src {
            message.header.source_prefix_length = bits;
            message.attributes.push(RouteAttribute::Source(route_address(src)));
        }
        // An error is the answer that there is no route.
        let answers = self.0.request(RouteNetlinkMessage::GetRoute(message), 0).ok()?;
        answers
            .into_iter()
            .find_map(|it| if let RouteNetlinkMessage::NewRoute(route) = it { Some(route) } else { None })
    }
}

impl Routes for KernelRoutes<'_> {
    fn source_for(&mut self, dst: IpAddr) -> Option<IpAddr> {
        source_for(dst)
    }

    fn link_for(&mut self, src: Option<IpAddr>, dst: IpAddr) -> Option<u32> {
        self.get(None, src, dst, false)?.attributes.iter().find_map(|it| match it {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        })
    }

    fn source_by(&mut self, link: u32, dst: IpAddr) -> Option<IpAddr> {
        self.get(Some(link), None, dst, false)?.attributes.iter().find_map(|it| match it {
            RouteAttribute::PrefSource(RouteAddress::Inet(address)) => Some(IpAddr::V4(*address)),
            RouteAttribute::PrefSource(RouteAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
            _ => None,
        })
    }

    fn metric_by(&mut self, link: u32, src: IpAddr, dst: IpAddr) -> Option<u32> {
        let found = self.get(Some(link), Some(src), dst, true).and_then(|route| metric(&route, link));
        // With a source IPv6 takes the interface as a wish, unless the socket is bound to it, as those for pinned packets are.
        found.or_else(|| metric(&self.get(Some(link), None, dst, true).filter(|_| dst.is_ipv6())?, link))
    }
}

/// The metric of a route to a router or a host by this interface.
fn metric(route: &RouteMessage, link: u32) -> Option<u32> {
    let is_by = |it: &RouteAttribute| match it {
        RouteAttribute::Oif(index) => *index == link,
        RouteAttribute::MultiPath(hops) => hops.iter().any(|hop| hop.interface_index == link),
        _ => false,
    };
    let metric = route.attributes.iter().find_map(|it| match it {
        RouteAttribute::Priority(metric) => Some(*metric),
        _ => None,
    });
    let is_fit = route.header.kind == RouteType::Unicast && route.attributes.iter().any(is_by);
    is_fit.then(|| metric.unwrap_or(0))
}

/// Whether the kernel drops packets that arrive on a link and whose sender its routes reach by another one (RFC 3704 section 2.2). IPv6 has no
/// such parameter.
pub(crate) fn has_strict_filter(address: IpAddr, link: &str) -> bool {
    let value = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter")).unwrap_or_default();
        text.trim().parse::<u8>().unwrap_or(0)
    };
    // The greater one applies.
    address.is_ipv4() && value("all").max(value(link)) == 1
}

/// The standbys of this host now, for an examination.
///
/// # Errors
/// The query fails.
pub(crate) fn standbys() -> io::Result<Vec<(IpAddr, String)>> {
    let mut requests = Requests::open()?;
    let interfaces = Interfaces::read(&mut requests)?;
    let mut routes = KernelRoutes(&mut requests);
    let found = find(&mut routes, &interfaces, &[], true, |it| check_address(it).is_ok());
    let links = links_of(&mut routes, &interfaces, &found.standby, &found.standby, &[]);
    Ok(links.standbys().map(|(address, link)| (address, link.name.clone())).collect())
}

const fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIFI: u32 = 3;
    const LTE: u32 = 4;
    const DOCKER: u32 = 5;
    const VPN: u32 = 6;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A routing table by destination alone, in which the first matching route is the best one, and tables of rules by source address.
    #[derive(Clone, Default)]
    struct Tables {
        /// Interface, metric, and destination; `None` for all of IPv4.
        main: Vec<(u32, u32, Option<IpAddr>)>,
        by_source: Vec<(IpAddr, u32)>,
        sources: Vec<(u32, IpAddr)>,
    }

    impl Tables {
        fn route(&self, src: Option<IpAddr>, dst: IpAddr, link: Option<u32>) -> Option<(u32, u32)> {
            let own = self.by_source.iter().find(|(from, by)| Some(*from) == src && link.is_none_or(|it| it == *by));
            let fits = |(by, _, to): &&(u32, u32, Option<IpAddr>)| {
                dst.is_ipv4() && to.is_none_or(|to| to == dst) && link.is_none_or(|it| it == *by)
            };
            let main = || self.main.iter().find(fits).map(|(by, metric, _)| (*by, *metric));
            own.map(|(_, by)| (*by, 0)).or_else(main)
        }

        fn source(&self, link: u32) -> Option<IpAddr> {
            self.sources.iter().find(|(at, _)| *at == link).map(|(_, address)| *address)
        }
    }

    impl Routes for Tables {
        fn source_for(&mut self, dst: IpAddr) -> Option<IpAddr> {
            self.route(None, dst, None).and_then(|(link, _)| self.source(link))
        }

        fn link_for(&mut self, src: Option<IpAddr>, dst: IpAddr) -> Option<u32> {
            self.route(src, dst, None).map(|(link, _)| link)
        }

        fn source_by(&mut self, link: u32, _: IpAddr) -> Option<IpAddr> {
            self.source(link)
        }

        fn metric_by(&mut self, link: u32, src: IpAddr, dst: IpAddr) -> Option<u32> {
            self.route(Some(src), dst, Some(link)).map(|(_, metric)| metric)
        }
    }

    /// Wi-Fi, LTE, the bridge of containers and a tunnel, all up.
    fn interfaces() -> Interfaces {
        let named = |name: &str| Interface { name: name.to_owned(), is_up: true, ..Interface::default() };
        let tunnel = Interface { is_tunnel: true, ..named("wg0") };
        let by_index = [(WIFI, named("wlan0")), (LTE, named("wwan0")), (DOCKER, named("docker0")), (VPN, tunnel)];
        Interfaces { by_index: by_index.into_iter().collect(), addresses: sources() }
    }

    fn sources() -> Vec<(u32, IpAddr)> {
        let at = [(WIFI, "10.1.0.2"), (LTE, "10.2.0.2"), (DOCKER, "172.17.0.1"), (VPN, "10.8.0.2")];
        at.map(|(link, it)| (link, address(it))).to_vec()
    }

    fn tables(main: &[(u32, u32, Option<IpAddr>)]) -> Tables {
        Tables { main: main.to_vec(), by_source: Vec::new(), sources: sources() }
    }

    fn look(tables: &Tables, interfaces: &Interfaces, peers: &[IpAddr]) -> (Vec<IpAddr>, Vec<IpAddr>, Links) {
        let mut tables = tables.clone();
        let Found { chosen, standby } = find(&mut tables, interfaces, peers, true, |_| true);
        let announced: Vec<IpAddr> = chosen.iter().chain(&standby).copied().collect();
        let links = links_of(&mut tables, interfaces, &announced, &standby, peers);
        (chosen, standby, links)
    }

    fn pinned(links: &Links, src: IpAddr, dst: IpAddr) -> Option<u32> {
        links.pin(src, dst).map(|pin| pin.index)
    }

    // Claim: The address of a link with a carrier and a default route is announced although another route is better, and its packets leave by
    // it; those of links without one, as bridges of containers, and of ports of bridges are not. Without a carrier a link is replaced by
    // the next one at once, whatever its route. One uplink alone has no standby, and nothing is pinned.
    #[test]
    fn links_with_a_default_route_are_standbys() {
        let [wifi, lte] = ["10.1.0.2", "10.2.0.2"].map(address);
        let peers = ["198.51.100.2"].map(address);
        let (both, one) = (tables(&[(WIFI, 100, None), (LTE, 600, None)]), tables(&[(WIFI, 100, None)]));
        let (chosen, standby, links) = look(&both, &interfaces(), &peers);
        assert_eq!((chosen, standby), (vec![wifi], vec![lte]));
        assert_eq!((pinned(&links, wifi, peers[0]), pinned(&links, lte, peers[0])), (None, Some(LTE)));
        assert!(links.of(lte).is_some_and(|it| it.is_standby && it.name == "wwan0"));
        let (chosen, standby, links) = look(&one, &interfaces(), &peers);
        assert_eq!((chosen, standby, pinned(&links, wifi, peers[0])), (vec![wifi], vec![], None));

        let mut cut = interfaces();
        cut.by_index.get_mut(&WIFI).unwrap().is_up = false;
        let (chosen, standby, links) = look(&both, &cut, &peers);
        assert_eq!((chosen, standby), (vec![lte], vec![]), "the route of the dead link stays the best one");
        assert_eq!(pinned(&links, lte, peers[0]), Some(LTE));
        assert!(look(&one, &cut, &peers).0.is_empty());
        cut.by_index.get_mut(&LTE).unwrap().is_port = true;
        assert!(look(&both, &cut, &peers).0.is_empty());

        let mut tables = both.clone();
        let found = find(&mut tables, &interfaces(), &peers, false, |_| true);
        assert!(found.standby.is_empty(), "switched off");
        let found = find(&mut tables, &interfaces(), &peers, true, |it| it != lte);
        assert!(found.standby.is_empty(), "no locator");
    }

    #[test]
    fn the_best_metric_comes_first_and_a_route_to_a_peer_suffices() {
        let [wifi, lte, docker] = ["10.1.0.2", "10.2.0.2", "172.17.0.1"].map(address);
        let [peer, other] = ["198.51.100.2", "198.51.100.9"].map(address);
        let routes = [(DOCKER, 50, None), (WIFI, 100, None), (LTE, 600, None)];
        let (chosen, standby, _) = look(&tables(&routes), &interfaces(), &[peer]);
        assert_eq!((chosen, standby), (vec![docker], vec![wifi, lte]));
        let routes = [(WIFI, 100, None), (LTE, 600, Some(peer))];
        let (_, standby, links) = look(&tables(&routes), &interfaces(), &[other, peer]);
        assert_eq!(standby, [lte]);
        assert_eq!((pinned(&links, lte, peer), pinned(&links, lte, other)), (Some(LTE), None));
    }

    // Claim: A link whose route is in another table, to which a rule by source address leads, is a standby, and its packets need not be pinned.
    // Where packets go through a tunnel, the links below it are no standbys: they would go around it.
    #[test]
    fn rules_by_source_address_are_honoured_and_tunnels_are_not_circumvented() {
        let [wifi, lte, vpn] = ["10.1.0.2", "10.2.0.2", "10.8.0.2"].map(address);
        let peers = ["198.51.100.2"].map(address);
        let mut ruled = tables(&[(WIFI, 100, None)]);
        ruled.by_source.push((lte, LTE));
        let (chosen, standby, links) = look(&ruled, &interfaces(), &peers);
        assert_eq!((chosen, standby, pinned(&links, lte, peers[0])), (vec![wifi], vec![lte], None));
        let tunnelled = tables(&[(VPN, 0, None), (WIFI, 100, None), (LTE, 600, None)]);
        let (chosen, standby, _) = look(&tunnelled, &interfaces(), &peers);
        assert_eq!((chosen, standby), (vec![vpn], vec![]));
        // The tunnel is new: the former address is still announced.
        let links = links_of(&mut tunnelled.clone(), &interfaces(), &[vpn, wifi], &[], &peers);
        assert_eq!(pinned(&links, wifi, peers[0]), None);
    }

    /// A host in a namespace of its own has neither routes nor addresses but those of loopback.
    #[test]
    fn the_kernel_is_asked_for_the_route_itself() {
        let mut requests = Requests::open().unwrap();
        let localhost = address("127.0.0.1");
        let interfaces = Interfaces::read(&mut requests).unwrap();
        let loopback = interfaces.addresses.iter().find(|(_, it)| *it == localhost).map(|(link, _)| *link);
        let Some(loopback) = loopback else { return };
        let mut routes = KernelRoutes(&mut requests);
        assert_eq!(routes.link_for(None, localhost), Some(loopback));
        assert_eq!(routes.metric_by(loopback, localhost, ELSEWHERE[0]), None, "no router is there");
    }
}
