//! A fixed host, a router, a bridge whose ports are the link, and mobile hosts, each in its own namespace.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use holdover_base::Duration;
use holdover_host::{Namespace, Netlink, NetlinkError, Route, carrier, sysctl};

use super::error::WorldError;
use super::wire::Wire;

/// The router's mobile-facing interface.
pub const MOBILE_FACING: &str = "mob0";
/// A bridge in its own namespace.
const BRIDGE: &str = "br0";

/// How the link is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// Behind the bridge: the router's interface keeps its carrier.
    Silent,
    /// At the router's interface.
    Carrier,
}

/// A fixed host, a router, a bridge whose ports are the link, and mobile hosts, each in its own namespace.
#[derive(Debug)]
pub struct World {
    // Wires end before the namespaces of their devices.
    _wire: Option<Wire>,
    /// The link, if it is not the bridge.
    link: Option<Wire>,
    fixed: Namespace,
    router: Namespace,
    /// The namespace of the bridge: its own, or the router's.
    bridge: Namespace,
    mobiles: Vec<Namespace>,
    is_v6: bool,
    plan: LinkPlan,
}

/// The link between the router and the mobile hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinkPlan {
    /// A bridge in its own namespace.
    Bridge,
    /// A bridge that is the router's mobile-facing interface.
    RouterBridge,
    /// A wire without Ethernet to the only mobile host, with this round trip.
    Wire(Duration),
}

impl World {
    /// This many mobile hosts, without delays.
    ///
    /// # Errors
    /// The kernel refuses: this needs root, or a user namespace.
    pub fn new(mobiles: u8) -> Result<Self, WorldError> {
        Self::of_family(mobiles, false, LinkPlan::Bridge, Duration::ZERO)
    }

    /// The same with a round trip between the fixed host and the router.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn with_round_trip(mobiles: u8, round_trip: Duration) -> Result<Self, WorldError> {
        Self::of_family(mobiles, false, LinkPlan::Bridge, round_trip)
    }

    /// One mobile host behind a link without Ethernet that has this round trip. There is no [`Cut::Carrier`].
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn without_ethernet(round_trip: Duration) -> Result<Self, WorldError> {
        Self::of_family(1, false, LinkPlan::Wire(round_trip), Duration::ZERO)
    }

    /// The same over IPv6, with one mobile host and no delay.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn v6() -> Result<Self, WorldError> {
        Self::of_family(1, true, LinkPlan::Bridge, Duration::ZERO)
    }

    /// This many mobile hosts behind the ports of a bridge that is the router's mobile-facing interface, as on an
    /// access point. There is no [`Cut::Carrier`].
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn bridged(mobiles: u8) -> Result<Self, WorldError> {
        Self::of_family(mobiles, false, LinkPlan::RouterBridge, Duration::ZERO)
    }

    fn of_family(mobiles: u8, is_v6: bool, plan: LinkPlan, round_trip: Duration) -> Result<Self, WorldError> {
        let new = Namespace::new;
        let (fixed, router) = (new("fixed")?, new("router")?);
        let bridge = if plan == LinkPlan::Bridge { new("bridge")? } else { router.clone() };
        let mobiles = (0..mobiles).map(|_| new("mobile")).collect::<Result<Vec<_>, _>>()?;
        let mut world = Self { _wire: None, link: None, fixed, router, bridge, mobiles, is_v6, plan };
        // A bridge is created first, so that the ends of a veth pair have different indices: Linux handles the
        // carrier of a pair with equal ones once a second (`linkwatch_urgent_event`).
        match plan {
            LinkPlan::Bridge => inside(&world.bridge, |netlink| netlink.add_bridge(BRIDGE))?,
            LinkPlan::RouterBridge => inside(&world.bridge, |netlink| netlink.add_bridge(MOBILE_FACING))?,
            LinkPlan::Wire(_) => {}
        }
        world.add_fixed(round_trip)?;
        let forwards = if is_v6 { "net.ipv6.conf.all.forwarding" } else { "net.ipv4.ip_forward" };
        world.router.enter(|| sysctl::set(&world.router, forwards, "1"))??;
        for mobile in &world.mobiles {
            inside(mobile, |netlink| netlink.set_up("lo"))?;
        }
        match plan {
            LinkPlan::Bridge => world.add_bridge(BRIDGE)?,
            LinkPlan::RouterBridge => world.add_bridge(MOBILE_FACING)?,
            LinkPlan::Wire(round_trip) => world.add_wire(round_trip)?,
        }
        for mobile in &world.mobiles {
            world.add_default_route(mobile, world.address(2, 1))?;
        }
        for namespace in [&world.fixed, &world.router, &world.bridge].into_iter().chain(&world.mobiles) {
            know_carriers(namespace)?;
        }
        Ok(world)
    }

    /// Connects the fixed host with the router.
    fn add_fixed(&mut self, round_trip: Duration) -> Result<(), WorldError> {
        let (near, far, bits) = (self.address(1, 1), self.address(1, 2), self.bits());
        if round_trip > Duration::ZERO {
            let ends = [(&self.fixed, "eth0", far), (&self.router, "fix0", near)];
            self._wire = Some(Wire::between(ends, bits, round_trip / 2)?);
        } else {
            inside(&self.router, |netlink| {
                netlink.add_veth("fix0", "eth0", &self.fixed)?;
                netlink.set_up("fix0")?;
                netlink.add_address("fix0", near, bits)
            })?;
            inside(&self.fixed, |netlink| {
                netlink.set_up("eth0")?;
                netlink.add_address("eth0", far, bits)
            })?;
        }
        self.add_default_route(&self.fixed, near)
    }

    /// Connects the router with its only mobile host by a wire.
    fn add_wire(&mut self, round_trip: Duration) -> Result<(), WorldError> {
        let ends =
            [(&self.mobiles[0], "eth0", self.mobile_address(0)), (&self.router, MOBILE_FACING, self.address(2, 1))];
        self.link = Some(Wire::between(ends, self.bits(), round_trip / 2)?);
        Ok(())
    }

    /// Connects the router with its mobile hosts by a bridge.
    fn add_bridge(&self, bridge: &str) -> Result<(), WorldError> {
        let (is_apart, bits) = (bridge != MOBILE_FACING, self.bits());
        self.add_router_end(is_apart)?;
        for (number, mobile) in self.mobiles.iter().enumerate() {
            inside(mobile, |netlink| {
                netlink.add_veth("eth0", &format!("mobile{number}"), &self.bridge)?;
                netlink.set_up("eth0")?;
                netlink.add_address("eth0", self.mobile_address(number), bits)
            })?;
        }
        if is_apart {
            self.bridge.enter(|| sysctl::set(&self.bridge, "net.ipv6.conf.all.disable_ipv6", "1"))??;
        }
        inside(&self.bridge, |netlink| {
            for port in (0..self.mobiles.len()).map(|number| format!("mobile{number}")) {
                netlink.add_port(bridge, &port)?;
                netlink.set_up(&port)?;
            }
            netlink.set_up(bridge)
        })?;
        if is_apart { self.add_router_port() } else { Ok(()) }
    }

    /// The router's end of the link to the bridge; `is_apart`, if that is in another namespace.
    fn add_router_end(&self, is_apart: bool) -> Result<(), WorldError> {
        inside(&self.router, |netlink| {
            if is_apart {
                netlink.add_veth(MOBILE_FACING, "router0", &self.bridge)?;
            }
            netlink.set_up(MOBILE_FACING)?;
            netlink.add_address(MOBILE_FACING, self.address(2, 1), self.bits())
        })
    }

    fn add_router_port(&self) -> Result<(), WorldError> {
        inside(&self.bridge, |netlink| {
            netlink.add_port(BRIDGE, "router0")?;
            netlink.set_up("router0")
        })
    }

    /// Removes the router's mobile-facing interface, as PPP does with its connection. Without Ethernet the mobile host's interface goes too.
    /// Not with [`Self::bridged`].
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn remove_mobile_facing(&mut self) -> Result<(), WorldError> {
        if self.link.take().is_some() {
            inside(&self.mobiles[0], |netlink| netlink.remove_link("eth0"))?;
        }
        inside(&self.router, |netlink| netlink.remove_link(MOBILE_FACING))
    }

    /// Makes it again, with the same name and addresses.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add_mobile_facing(&mut self) -> Result<(), WorldError> {
        match self.plan {
            LinkPlan::Wire(round_trip) => {
                self.add_wire(round_trip)?;
                self.add_default_route(&self.mobiles[0], self.address(2, 1))
            }
            LinkPlan::Bridge | LinkPlan::RouterBridge => {
                self.add_router_end(true)?;
                self.add_router_port()
            }
        }
    }

    fn add_default_route(&self, host: &Namespace, gateway: IpAddr) -> Result<(), WorldError> {
        let nowhere: IpAddr = if self.is_v6 { [0; 16].into() } else { [0; 4].into() };
        let route = Route { destination: (nowhere, 0), next_hop: Some(gateway), link: "eth0".to_owned(), source: None };
        inside(host, |netlink| netlink.add_route(&route))
    }

    fn bits(&self) -> u8 {
        if self.is_v6 { 64 } else { 24 }
    }

    fn address(&self, net: u8, host: u8) -> IpAddr {
        let v6 = std::net::Ipv6Addr::new(0xfd00, net.into(), 0, 0, 0, 0, 0, host.into());
        if self.is_v6 { v6.into() } else { [10, net, 0, host].into() }
    }

    /// The fixed host.
    pub fn fixed(&self) -> &Namespace {
        &self.fixed
    }

    /// The router, on which the daemon runs.
    pub fn router(&self) -> &Namespace {
        &self.router
    }

    /// The namespace of the bridge whose ports are the links.
    pub(super) fn bridge(&self) -> &Namespace {
        &self.bridge
    }

    /// The mobile host of this number.
    pub fn mobile(&self, number: usize) -> &Namespace {
        &self.mobiles[number]
    }

    /// The fixed host's address.
    pub fn fixed_address(&self) -> IpAddr {
        self.address(1, 2)
    }

    /// The address of a mobile host.
    pub fn mobile_address(&self, number: usize) -> IpAddr {
        self.address(2, 7 + number as u8)
    }

    /// Cuts or restores the link of the first mobile host, or of all with [`Cut::Carrier`].
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_cut(&self, cut: Cut, is_cut: bool) -> Result<(), WorldError> {
        if let Some(link) = &self.link {
            link.set_cut(is_cut);
            return Ok(());
        }
        let port = if cut == Cut::Silent { "mobile0" } else { "router0" };
        if is_cut {
            return inside(&self.bridge, |netlink| netlink.set_down(port));
        }
        inside(&self.bridge, |netlink| netlink.set_up(port))?;
        // The link is up when the ends other than the router's know it.
        know_carrier(&self.bridge, port)?;
        if cut == Cut::Silent { know_carrier(&self.mobiles[0], "eth0") } else { Ok(()) }
    }

    /// Sets the MTU of the router's mobile-facing interface.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_mobile_mtu(&self, mtu: u32) -> Result<(), WorldError> {
        inside(&self.router, |netlink| netlink.set_mtu(MOBILE_FACING, mtu))
    }
}

/// Makes the kernel process an interface's carrier, which by itself it may do a second late.
pub(super) fn know_carrier(namespace: &Namespace, interface: &str) -> Result<(), WorldError> {
    let ask = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        carrier::has_carrier(&socket, interface).map_err(io::Error::from)
    };
    Ok(namespace.enter(ask)?.map(drop)?)
}

/// The same for all interfaces of a namespace that are up, so that its first packet passes. Tunnels that the kernel adds to each namespace, as
/// `sit0`, have no carrier to ask for, and are down.
pub(super) fn know_carriers(namespace: &Namespace) -> Result<(), WorldError> {
    let links = inside(namespace, Netlink::links)?;
    let mut up = links.iter().filter(|link| link.is_up && link.name != "lo");
    up.try_for_each(|link| know_carrier(namespace, &link.name))
}

pub(super) fn inside<T: Send>(
    namespace: &Namespace,
    body: impl FnOnce(&mut Netlink) -> Result<T, NetlinkError> + Send,
) -> Result<T, WorldError> {
    Ok(namespace.enter(|| body(&mut Netlink::open(namespace)?))??)
}
