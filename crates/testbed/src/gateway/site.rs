//! Several routers between a fixed host and mobile hosts that move between their radios, and a backbone between the
//! routers, with room for a store.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use holdover_base::Duration;
use holdover_host::{Namespace, Route, sysctl};

use super::wire::Wire;
use super::world::{inside, know_carrier, know_carriers};
use super::{Etcd, MOBILE_FACING, World, WorldError};

/// A [`World`] whose router is the first of several. Its mobile hosts are at the first one's radio.
#[derive(Debug)]
pub struct Site {
    world: World,
    others: Vec<Other>,
    backbone: Namespace,
    mobiles: usize,
    key: PathBuf,
    _wires: Vec<Wire>,
}

/// A router other than the first, and the bridge whose ports are its radio links.
#[derive(Debug)]
struct Other {
    router: Namespace,
    radio: Namespace,
}

/// The port for handoffs.
const PORT: u16 = 4787;

/// A port without a listener.
const DISCARD: u16 = 9;

impl Site {
    /// This many routers and mobile hosts, with a round trip between the fixed host and each router. `key` is the file
    /// for the routers' shared key, which must not exist.
    ///
    /// # Errors
    /// The kernel refuses: this needs root, or a user namespace.
    pub fn new(routers: u8, mobiles: u8, round_trip: Duration, key: PathBuf) -> Result<Self, WorldError> {
        let world = match round_trip {
            Duration::ZERO => World::new(mobiles)?,
            _ => World::with_round_trip(mobiles, round_trip)?,
        };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&key)?;
        file.write_all("07".repeat(32).as_bytes())?;
        let backbone = Namespace::new("backbone")?;
        let mut site = Self { world, others: Vec::new(), backbone, mobiles: mobiles.into(), key, _wires: Vec::new() };
        inside(&site.backbone, |netlink| {
            netlink.add_bridge("br0")?;
            netlink.set_up("lo")?;
            netlink.set_up("br0")?;
            netlink.add_address("br0", Self::store_address(), 24)
        })?;
        for number in 0..routers.into() {
            if number > 0 {
                site.add_router(number, round_trip)?;
            }
            let port = format!("router{number}");
            inside(site.router(number), |netlink| {
                netlink.add_veth("peer0", &port, &site.backbone)?;
                netlink.set_up("peer0")?;
                netlink.add_address("peer0", Self::router_address(number), 24)
            })?;
            inside(&site.backbone, |netlink| {
                netlink.add_port("br0", &port)?;
                netlink.set_up(&port)
            })?;
            know_carriers(site.router(number))?;
        }
        let radios = site.others.iter().map(|other| &other.radio);
        radios.chain([site.world.fixed(), &site.backbone]).try_for_each(know_carriers)?;
        Ok(site)
    }

    fn add_router(&mut self, number: usize, round_trip: Duration) -> Result<(), WorldError> {
        let (router, radio) = (Namespace::new("router")?, Namespace::new("radio")?);
        let (fixed, eth) = (self.world.fixed(), format!("eth{number}"));
        let near: IpAddr = [10, 3, number as u8, 1].into();
        let far = Self::fixed_address(number);
        inside(&radio, |netlink| netlink.add_bridge("br0"))?;
        if round_trip > Duration::ZERO {
            let ends = [(fixed, eth.as_str(), far), (&router, "fix0", near)];
            self._wires.push(Wire::between(ends, 24, round_trip / 2)?);
        } else {
            inside(&router, |netlink| {
                netlink.add_veth("fix0", &eth, fixed)?;
                netlink.set_up("fix0")?;
                netlink.add_address("fix0", near, 24)
            })?;
            inside(fixed, |netlink| {
                netlink.set_up(&eth)?;
                netlink.add_address(&eth, far, 24)
            })?;
        }
        inside(&router, |netlink| {
            netlink.add_veth(MOBILE_FACING, "router0", &radio)?;
            netlink.set_up(MOBILE_FACING)?;
            netlink.add_address(MOBILE_FACING, Self::radio_address(number), 24)?;
            let destination = (self.world.fixed_address(), 32);
            netlink.add_route(&Route { destination, next_hop: Some(far), link: "fix0".to_owned(), source: None })
        })?;
        router.enter(|| sysctl::set(&router, "net.ipv4.ip_forward", "1"))??;
        for mobile in 0..self.mobiles {
            inside(self.world.mobile(mobile), |netlink| netlink.add_veth(&eth, &format!("mobile{mobile}"), &radio))?;
        }
        inside(&radio, |netlink| {
            for port in (0..self.mobiles).map(|mobile| format!("mobile{mobile}")).chain(["router0".to_owned()]) {
                netlink.add_port("br0", &port)?;
                netlink.set_up(&port)?;
            }
            netlink.set_up("br0")
        })?;
        self.others.push(Other { router, radio });
        Ok(())
    }

    /// Connects the first two routers' radios: both routers hear what a mobile host sends to all.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn join_radios(&self) -> Result<(), WorldError> {
        let (first, second) = (self.radio(0), self.radio(1));
        inside(first, |netlink| {
            netlink.add_veth("join0", "join1", second)?;
            netlink.add_port("br0", "join0")?;
            netlink.set_up("join0")
        })?;
        inside(second, |netlink| {
            netlink.add_port("br0", "join1")?;
            netlink.set_up("join1")
        })
    }

    /// The first router, its mobile hosts and the fixed host.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The router of this number.
    pub fn router(&self, number: usize) -> &Namespace {
        number.checked_sub(1).map_or(self.world.router(), |other| &self.others[other].router)
    }

    /// The host of the store.
    pub fn backbone(&self) -> &Namespace {
        &self.backbone
    }

    /// A router's address on the backbone.
    pub fn router_address(number: usize) -> IpAddr {
        [10, 4, 0, number as u8 + 1].into()
    }

    /// The store's address on the backbone.
    pub fn store_address() -> IpAddr {
        [10, 4, 0, 100].into()
    }

    /// The fixed host's address on the way to a router other than the first.
    fn fixed_address(number: usize) -> IpAddr {
        [10, 3, number as u8, 2].into()
    }

    fn radio_address(number: usize) -> IpAddr {
        [10, 2, 0, number as u8 + 1].into()
    }

    /// The part of a gateway's configuration for handoffs to gateways of these numbers.
    pub fn handoff(&self, number: usize, peers: &[usize]) -> String {
        let address = |number| format!("\"{}:{PORT}\"", Self::router_address(number));
        let peers: Vec<String> = peers.iter().map(|&peer| address(peer)).collect();
        let (own, peers) = (address(number), peers.join(", "));
        format!("[handoff]\nlisten = {own}\nkey_file = {:?}\npeers = [{peers}]\n", self.key)
    }

    /// The same for a member of a cluster, whose name is a letter, with other settings of `[cluster]`.
    pub fn cluster(&self, number: usize, settings: &str) -> String {
        let name = Self::gateway_name(number);
        let endpoint = Etcd::endpoint(Self::store_address());
        let cluster = format!("[cluster]\nname = \"{name}\"\nendpoints = [\"{endpoint}\"]\n{settings}");
        self.handoff(number, &[]) + &cluster
    }

    /// A gateway's name in the cluster: `a`, `b`, and so on.
    pub fn gateway_name(number: usize) -> char {
        char::from(b'a' + number as u8)
    }

    /// A mobile host leaves the other routers' radios, and comes to this one's; its own routes and, with `routes`, the
    /// network's follow. Then it sends a datagram, as hosts do when they attach (DHCP, DNS).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn move_to(&self, mobile: usize, number: usize, routes: bool) -> Result<(), WorldError> {
        self.attach(mobile, number)?;
        if routes {
            self.route(mobile, number)?;
        }
        let (address, to) = (self.world.mobile_address(mobile), (self.world.fixed_address(), DISCARD));
        let send = || UdpSocket::bind((address, 0)).and_then(|socket| socket.send_to(b"here", to));
        self.world.mobile(mobile).enter(send)??;
        Ok(())
    }

    /// A mobile host leaves the other routers' radios, and comes to this one's. It sends nothing.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach(&self, mobile: usize, number: usize) -> Result<(), WorldError> {
        self.leave(mobile)?;
        let (address, eth) = (self.world.mobile_address(mobile), format!("eth{number}"));
        inside(self.world.mobile(mobile), |netlink| {
            netlink.ensure_address(&eth, address, 24)?;
            netlink.set_up(&eth)?;
            let destination = ([0; 4].into(), 0);
            let gateway = Some(Self::radio_address(number));
            netlink.replace_route(&Route { destination, next_hop: gateway, link: eth.clone(), source: None })
        })?;
        know_carrier(self.radio(number), &format!("mobile{mobile}"))?;
        know_carrier(self.world.mobile(mobile), &eth)
    }

    /// A mobile host leaves all radios.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn leave(&self, mobile: usize) -> Result<(), WorldError> {
        inside(self.world.mobile(mobile), |netlink| {
            (0..=self.others.len()).try_for_each(|number| netlink.set_down(&format!("eth{number}")))
        })
    }

    /// The fixed host's packets for a mobile host go to this router.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn route(&self, mobile: usize, number: usize) -> Result<(), WorldError> {
        let destination = (self.world.mobile_address(mobile), 32);
        let gateway: IpAddr = if number == 0 { [10, 1, 0, 1].into() } else { [10, 3, number as u8, 1].into() };
        let route = Route { destination, next_hop: Some(gateway), link: format!("eth{number}"), source: None };
        inside(self.world.fixed(), |netlink| netlink.replace_route(&route))
    }

    /// The namespace of the bridge whose ports are a router's radio links.
    fn radio(&self, number: usize) -> &Namespace {
        number.checked_sub(1).map_or(self.world.bridge(), |other| &self.others[other].radio)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.key);
    }
}
