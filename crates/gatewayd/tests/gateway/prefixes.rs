//! A mobile router with a network behind it: all of its hosts are one mobile host.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use holdover_gatewayd::control::Standing;
use holdover_testbed::gateway::{Cut, MOBILE_FACING, World};
use holdover_testbed::{Namespace, Netlink};

use crate::Test;
use crate::hosts::{SOON, connect, route, set, transfer};
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("a_network_behind_a_mobile_router_leaves_and_returns_as_one", |_| network(false)),
    ("a_network_of_ipv6_behind_a_mobile_router_leaves_and_returns_as_one", |_| network(true)),
];

/// Datagrams to the host that sends nothing.
const DATAGRAMS: u8 = 20;

/// A mobile router's network.
struct Behind {
    hosts: Namespace,
    /// The mobile router's address there, and those of two hosts.
    addresses: [IpAddr; 3],
    /// The name of the mobile host.
    name: IpAddr,
    prefix: u8,
    /// Of the configuration.
    networks: &'static str,
}

impl Behind {
    fn new(world: &World, is_v6: bool) -> Self {
        let (network, prefix, networks) =
            if is_v6 { ("fd00:3:0:7::", 64, "fd00:3::/32") } else { ("10.3.7.", 24, "10.3.0.0/16") };
        let addresses = [1, 2, 3].map(|host| format!("{network}{host}").parse().unwrap());
        let name = if is_v6 { network.parse() } else { format!("{network}0").parse() };
        let behind =
            Self { hosts: Namespace::new("behind").unwrap(), addresses, name: name.unwrap(), prefix, networks };
        let (router, hosts) = (world.mobile(0), &behind.hosts);
        router.enter(|| Netlink::open(router).unwrap().add_veth("lan0", "eth0", hosts).unwrap()).unwrap();
        behind.configure(router, "lan0", &addresses[..1]);
        behind.configure(hosts, "eth0", &addresses[1..]);
        set(router, if is_v6 { "net.ipv6.conf.all.forwarding" } else { "net.ipv4.ip_forward" }, "1");
        let anywhere: IpAddr = if is_v6 { [0; 16].into() } else { [0; 4].into() };
        route(hosts, (anywhere, 0), addresses[0], "eth0");
        route(world.router(), (behind.name, prefix), world.mobile_address(0), MOBILE_FACING);
        behind
    }

    fn configure(&self, namespace: &Namespace, interface: &str, addresses: &[IpAddr]) {
        let configure = || {
            let mut netlink = Netlink::open(namespace).unwrap();
            netlink.set_up(interface).unwrap();
            addresses.iter().for_each(|address| netlink.add_address(interface, *address, self.prefix).unwrap());
        };
        namespace.enter(configure).unwrap();
    }
}

/// One host downloads. The other one receives datagrams, and never sends a packet: it is served because of its prefix.
// Claim: A mobile router with a network behind it is one mobile host by the prefix, with IPv4 and IPv6: in a silent cut of the link to it,
// packets for a host behind it that has never sent one are kept, too, and all arrive in order; a download of another one goes on,
// byte-exact; a command about one of the addresses is about all; and the gateway has one entry for them.
fn network(is_v6: bool) {
    let world = if is_v6 { World::v6() } else { World::new(1) }.unwrap();
    let behind = Behind::new(&world, is_v6);
    let [_, downloads, listens] = behind.addresses;
    let sections = format!("[mobiles.prefixes]\n\"{}\" = {}\n", behind.networks, behind.prefix);
    let gateway = Gateway::start(world.router(), &sections);
    let download = transfer(connect(&behind.hosts, world.fixed(), world.fixed_address()), false);
    assert_eq!(gateway.mobile(downloads), None);
    let socket = behind.hosts.enter(|| UdpSocket::bind(SocketAddr::new(listens, 0)).unwrap()).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let to = socket.local_addr().unwrap();
    let from = world.fixed().enter(|| UdpSocket::bind(SocketAddr::new(world.fixed_address(), 0)).unwrap()).unwrap();
    let number = || {
        let mut number = [0];
        socket.recv(&mut number).unwrap();
        number[0]
    };
    from.send_to(&[0], to).unwrap();
    assert_eq!(number(), 0);
    download.await_more(1_000_000).unwrap();

    world.set_cut(Cut::Silent, true).unwrap();
    gateway.says(behind.name, "away");
    for number in 1..=DATAGRAMS {
        from.send_to(&[number], to).unwrap();
    }
    let line = gateway.mobile(behind.name).unwrap();
    assert_eq!(line.prefix, Some(behind.prefix));
    let took = download.resumes(|| world.set_cut(Cut::Silent, false).unwrap()).unwrap();
    eprintln!("data {took:?} after the return, {line:?}");
    let numbers: Vec<u8> = (1..=DATAGRAMS).map(|_| number()).collect();
    assert_eq!(numbers, (1..=DATAGRAMS).collect::<Vec<_>>());
    gateway.says(behind.name, "present");
    download.await_more(1_000_000).unwrap();
    download.ends_exact().unwrap();
    let status = gateway.status();
    assert_eq!((status.waiting, gateway.files()), (0, 0), "{status:?}");
    assert!(status.buffer.released >= u64::from(DATAGRAMS), "{status:?}");
    gateway.report(listens, Standing::Away).unwrap();
    gateway.says(behind.name, "away");
    gateway.report(downloads, Standing::Present).unwrap();
    gateway.says(behind.name, "present");
    let of_hosts = behind.addresses.map(|address| gateway.mobile(address));
    assert_eq!(of_hosts, [None, None, None]);
}
