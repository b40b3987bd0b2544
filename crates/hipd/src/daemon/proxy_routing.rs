//! Routing for the proxy: which packets reach its TUN device, and which may have come from there.
//!
//! A TUN device does not show on which interface a forwarded packet arrived, so rules (`ip-rule(8)`) do: packets from the hosts' interface to
//! peers are looked up in a table of their own, whose routes are the only ones to the device. Packets for others from peers' addresses that
//! came on any other interface are forged, and dropped; packets for this host itself are not, as the kernel's local table comes first.
//! After the daemon's end the table's last route refuses packets that would leave in the clear: the rule that leads to it stays until the
//! daemon starts without hosts.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use holdover_host::Requests;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::core::LsiPrefix;

/// The table of routes for hosts, and the first priority of rules: RFC 7401.
pub(super) const TABLE: u32 = 7401;
const TO_PEERS: u32 = TABLE;
const FROM_PEERS: u32 = TABLE + 1;
pub(super) const FORGED: u32 = TABLE + 2;
/// The originator of rules and routes (`/etc/iproute2/rt_protos` has no such number): those of a daemon that was killed are found by it.
pub(super) const PROTOCOL: RouteProtocol = RouteProtocol::Other(201);
/// `RT_TABLE_MAIN`.
pub(super) const MAIN: u32 = 254;
/// Worse than all other routes.
const LAST_RESORT: u32 = u32::MAX;
const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];
/// The interface of packets that this host sends itself, in rules.
pub(super) const THIS_HOST: &str = "lo";
/// 2001:20::/28 (RFC 7343 section 2).
pub(super) const HITS: Prefix =
    Prefix { network: IpAddr::V6(Ipv6Addr::new(0x2001, 0x20, 0, 0, 0, 0, 0, 0)), len: super::HIT_PREFIX_LEN };

#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix {
    pub(super) network: IpAddr,
    pub(super) len: u8,
}

impl Prefix {
    pub(super) const fn of(lsis: LsiPrefix) -> Self {
        Self { network: IpAddr::V4(lsis.network()), len: lsis.prefix_len() }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Routing {
    kernel: Kernel,
}

/// Changes the kernel's rules and routes.
#[derive(Debug)]
pub(super) struct Kernel {
    requests: Requests,
}

impl Routing {
    /// Without rules and routes, also without those of an earlier daemon.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn without_hosts() -> io::Result<Self> {
        let mut routing = Self { kernel: Kernel::open()? };
        routing.clear()?;
        Ok(routing)
    }

    /// For hosts behind `interface`, and the TUN device with this name and index; in place of the former rules and routes.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn install(
        &mut self,
        interface: &str,
        device: &str,
        device_index: u32,
        lsis: Option<LsiPrefix>,
    ) -> io::Result<()> {
        self.clear()?;
        for prefix in [Some(HITS), lsis.map(Prefix::of)].into_iter().flatten() {
            self.install_for(prefix, interface, device, device_index)?;
        }
        Ok(())
    }

    fn install_for(&mut self, prefix: Prefix, interface: &str, device: &str, index: u32) -> io::Result<()> {
        self.kernel.add_route(unreachable(prefix))?;
        self.kernel.add_route(route_over(prefix, index))?;
        self.kernel.add_rule(rule(prefix, FORGED, None, Source::Peers, RuleAction::Blackhole))?;
        self.kernel.add_rule(rule(prefix, FROM_PEERS, Some(THIS_HOST), Source::Peers, RuleAction::ToTable))?;
        let mut to_hosts = rule(prefix, FROM_PEERS, Some(device), Source::Peers, RuleAction::ToTable);
        // A peer's packet for a host without a route is dropped by the next rule; it must not leave in the clear by the default route.
        to_hosts.attributes.push(RuleAttribute::SuppressPrefixLen(0));
        self.kernel.add_rule(to_hosts)?;
        self.kernel.add_rule(rule(prefix, TO_PEERS, Some(interface), Source::Hosts, RuleAction::ToTable))
    }

    /// Removes all rules and routes, also those of an earlier daemon.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.kernel.remove_rules(&[TO_PEERS, FROM_PEERS, FORGED])?;
        for family in FAMILIES {
            let mut every = RouteMessage::default();
            every.header.address_family = family;
            let routes = self.kernel.requests.request(RouteNetlinkMessage::GetRoute(every), NLM_F_DUMP)?;
            for route in routes.into_iter().filter_map(own_route) {
                self.kernel.remove(RouteNetlinkMessage::DelRoute(route))?;
            }
        }
        Ok(())
    }
}

impl Kernel {
    /// # Errors
    /// The socket cannot be opened.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { requests: Requests::open()? })
    }

    /// Removes the rules of these priorities, also those of an earlier daemon.
    pub(super) fn remove_rules(&mut self, priorities: &[u32]) -> io::Result<()> {
        FAMILIES.into_iter().try_for_each(|family| self.remove_rules_of(family, priorities))
    }

    /// The same in one address family.
    pub(super) fn remove_rules_of(&mut self, family: AddressFamily, priorities: &[u32]) -> io::Result<()> {
        let mut every = RuleMessage::default();
        every.header.family = family;
        let rules = match self.requests.request(RouteNetlinkMessage::GetRule(every), NLM_F_DUMP) {
            // A kernel without rules has none to remove.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => return Ok(()),
            rules => rules?,
        };
        for rule in rules.into_iter().filter_map(|rule| own_rule(rule, priorities)) {
            self.remove(RouteNetlinkMessage::DelRule(rule))?;
        }
        Ok(())
    }

    fn add_route(&mut self, route: RouteMessage) -> io::Result<()> {
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.requests.request(RouteNetlinkMessage::NewRoute(route), flags).map(drop)
    }

    pub(super) fn add_rule(&mut self, rule: RuleMessage) -> io::Result<()> {
        self.requests.request(RouteNetlinkMessage::NewRule(rule), NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    fn remove(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        match self.requests.request(message, 0) {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Routing {
    fn drop(&mut self) {
        // The rule and the route that refuse hosts' packets to peers stay.
        if let Err(error) = self.kernel.remove_rules(&[FROM_PEERS, FORGED]) {
            tracing::warn!(%error, "rules of the proxy stay (ip rule, table {TABLE})");
        }
    }
}

/// The senders that a rule is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Hosts,
    Peers,
}

fn rule(prefix: Prefix, priority: u32, interface: Option<&str>, from: Source, action: RuleAction) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = family(prefix);
    rule.header.action = action;
    let table = if from == Source::Hosts { TABLE } else { MAIN };
    match from {
        Source::Hosts => {
            rule.header.dst_len = prefix.len;
            rule.attributes.push(RuleAttribute::Destination(prefix.network));
        }
        Source::Peers => {
            rule.header.src_len = prefix.len;
            rule.attributes.push(RuleAttribute::Source(prefix.network));
        }
    }
    if action == RuleAction::ToTable {
        rule.attributes.push(RuleAttribute::Table(table));
    }
    rule.attributes.extend(interface.map(|name| RuleAttribute::Iifname(name.to_owned())));
    rule.attributes.extend([RuleAttribute::Priority(priority), RuleAttribute::Protocol(PROTOCOL)]);
    rule
}

fn route_over(prefix: Prefix, device_index: u32) -> RouteMessage {
    let mut route = route(prefix, RouteType::Unicast);
    route.header.scope = if prefix.network.is_ipv4() { RouteScope::Link } else { RouteScope::Universe };
    route.attributes.push(RouteAttribute::Oif(device_index));
    route
}

fn unreachable(prefix: Prefix) -> RouteMessage {
    let mut route = route(prefix, RouteType::Unreachable);
    route.attributes.push(RouteAttribute::Priority(LAST_RESORT));
    route
}

fn route(prefix: Prefix, kind: RouteType) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = family(prefix);
    route.header.destination_prefix_length = prefix.len;
    route.header.protocol = PROTOCOL;
    route.header.kind = kind;
    let network = match prefix.network {
        IpAddr::V4(network) => RouteAddress::Inet(network),
        IpAddr::V6(network) => RouteAddress::Inet6(network),
    };
    route.attributes.extend([RouteAttribute::Destination(network), RouteAttribute::Table(TABLE)]);
    route
}

pub(super) fn family(prefix: Prefix) -> AddressFamily {
    if prefix.network.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn own_rule(answer: RouteNetlinkMessage, priorities: &[u32]) -> Option<RuleMessage> {
    let RouteNetlinkMessage::NewRule(rule) = answer else { return None };
    let has = |wanted: &RuleAttribute| rule.attributes.contains(wanted);
    let is_own = has(&RuleAttribute::Protocol(PROTOCOL))
        && priorities.iter().any(|&priority| has(&RuleAttribute::Priority(priority)));
    is_own.then_some(rule)
}

fn own_route(answer: RouteNetlinkMessage) -> Option<RouteMessage> {
    let RouteNetlinkMessage::NewRoute(route) = answer else { return None };
    let is_own = route.header.protocol == PROTOCOL && route.attributes.contains(&RouteAttribute::Table(TABLE));
    is_own.then_some(route)
}
