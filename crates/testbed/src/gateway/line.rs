//! Two hosts with a router between them and nothing else, or without the router: for measurements of forwarding.

use std::net::IpAddr;

use holdover_host::{Namespace, Route, sysctl};
use holdover_wire::MacAddress;

use super::world::{inside, know_carrier};
use super::{MOBILE_FACING, WorldError};

/// A fixed host and a mobile host, joined by veth pairs without delay: to a router, or to each other.
#[derive(Debug)]
pub struct Line {
    fixed: Namespace,
    router: Option<Namespace>,
    mobile: Namespace,
}

/// An end of a veth pair.
struct End<'a> {
    host: &'a Namespace,
    interface: &'static str,
    address: IpAddr,
    mac: MacAddress,
}

impl Line {
    /// The hosts' only interface.
    pub const INTERFACE: &'static str = "eth0";
    /// The fixed host's address.
    pub const FIXED: [u8; 4] = [10, 1, 0, 2];
    /// The mobile host's address.
    pub const MOBILE: [u8; 4] = [10, 2, 0, 7];
    /// The router's address on the link to the fixed host.
    const FIXED_FACING: [u8; 4] = [10, 1, 0, 1];
    /// The router's address on the link to the mobile host.
    pub const ROUTER: [u8; 4] = [10, 2, 0, 1];

    /// With a router.
    ///
    /// # Errors
    /// The kernel refuses: this needs root, or a user namespace.
    pub fn routed() -> Result<Self, WorldError> {
        let line = Self {
            fixed: Namespace::new("fixed")?,
            router: Some(Namespace::new("router")?),
            mobile: Namespace::new("mobile")?,
        };
        let Some(router) = &line.router else { return Ok(line) };
        let facing_fixed = Self::end(router, "fix0", Self::FIXED_FACING);
        let facing_mobile = Self::end(router, MOBILE_FACING, Self::ROUTER);
        join(&[facing_fixed, Self::end(&line.fixed, Self::INTERFACE, Self::FIXED)], 24)?;
        join(&[facing_mobile, Self::end(&line.mobile, Self::INTERFACE, Self::MOBILE)], 24)?;
        router.enter(|| sysctl::set(router, "net.ipv4.ip_forward", "1"))??;
        for (host, gateway) in [(&line.fixed, Self::FIXED_FACING), (&line.mobile, Self::ROUTER)] {
            let (destination, link) = (([0; 4].into(), 0), Self::INTERFACE.to_owned());
            let route = Route { destination, next_hop: Some(gateway.into()), link, source: None };
            inside(host, |netlink| netlink.add_route(&route))?;
        }
        line.use_reno()?;
        Ok(line)
    }

    /// Without a router; the hosts have the same addresses.
    ///
    /// # Errors
    /// See [`Self::routed`].
    pub fn direct() -> Result<Self, WorldError> {
        let line = Self { fixed: Namespace::new("fixed")?, router: None, mobile: Namespace::new("mobile")? };
        let end = |host, address| Self::end(host, Self::INTERFACE, address);
        join(&[end(&line.fixed, Self::FIXED), end(&line.mobile, Self::MOBILE)], 8)?;
        line.use_reno()?;
        Ok(line)
    }

    fn end<'a>(host: &'a Namespace, interface: &'static str, address: [u8; 4]) -> End<'a> {
        End { host, interface, address: address.into(), mac: Self::mac_of(address) }
    }

    /// The Ethernet address of the interface with an address: locally administered.
    fn mac_of([a, b, c, d]: [u8; 4]) -> MacAddress {
        MacAddress([2, 0, a, b, c, d])
    }

    /// Not BBR, which paces by timers: their time is charged to whichever task they interrupt. Namespaces may not choose CUBIC.
    fn use_reno(&self) -> Result<(), WorldError> {
        for host in [Some(&self.fixed), self.router.as_ref(), Some(&self.mobile)].into_iter().flatten() {
            host.enter(|| sysctl::set(host, "net.ipv4.tcp_congestion_control", "reno"))??;
        }
        Ok(())
    }

    /// The fixed host.
    pub fn fixed(&self) -> &Namespace {
        &self.fixed
    }

    /// The router, if there is one. Its interface to the mobile host is [`MOBILE_FACING`].
    pub fn router(&self) -> Option<&Namespace> {
        self.router.as_ref()
    }

    /// The mobile host.
    pub fn mobile(&self) -> &Namespace {
        &self.mobile
    }

    /// Source and destination of the fixed host's frames for the mobile host, and of the mobile host's for the fixed host.
    pub fn macs(&self) -> [[MacAddress; 2]; 2] {
        let [fixed, mobile] = [Self::FIXED, Self::MOBILE].map(Self::mac_of);
        let [near, far] = match self.router {
            Some(_) => [Self::FIXED_FACING, Self::ROUTER].map(Self::mac_of),
            None => [mobile, fixed],
        };
        [[fixed, near], [mobile, far]]
    }
}

fn join(ends: &[End<'_>; 2], bits: u8) -> Result<(), WorldError> {
    let [one, other] = ends;
    inside(one.host, |netlink| netlink.add_veth(one.interface, other.interface, other.host))?;
    for end in ends {
        inside(end.host, |netlink| {
            netlink.set_mac(end.interface, end.mac)?;
            netlink.add_address(end.interface, end.address, bits)?;
            netlink.set_up(end.interface)
        })?;
    }
    ends.iter().try_for_each(|end| know_carrier(end.host, end.interface))
}
