//! A network of one bridge, and hosts on it: with addresses of their own, or behind a Linux router that translates addresses (nftables).

use std::net::IpAddr;
use std::process::Command;

use holdover_testbed::{Namespace, Netlink, Route};

/// Where the server is.
pub(crate) const SERVER: &str = "198.51.100.3";
const BRIDGE: &str = "br0";
const LINK: &str = "eth0";

/// How a router chooses ports: `Preserving` is what Linux does by itself, so that two hosts behind two of them find a path; `Random`
/// chooses another port for each destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Masquerade {
    Preserving,
    Random,
}

/// See the module's documentation.
pub(crate) struct Internet {
    hub: Namespace,
    ports: u32,
    routers: Vec<Namespace>,
}

impl Internet {
    pub(crate) fn new() -> Self {
        let hub = Namespace::new("hub").unwrap();
        hub.enter(|| {
            let mut netlink = Netlink::open(&hub).unwrap();
            netlink.add_bridge(BRIDGE).unwrap();
            netlink.set_up(BRIDGE).unwrap();
        })
        .unwrap();
        Self { hub, ports: 0, routers: Vec::new() }
    }

    /// A host with an address of its own.
    pub(crate) fn host(&mut self, name: &str, address: &str) -> Namespace {
        let host = Namespace::new(name).unwrap();
        self.plug(&host, LINK, address);
        host
    }

    /// A host at 192.168.`net`.2 behind a router at `outside`.
    pub(crate) fn host_behind(&mut self, name: &str, net: u8, outside: &str, masquerade: Masquerade) -> Namespace {
        let (host, router) = (Namespace::new(name).unwrap(), Namespace::new("router").unwrap());
        self.plug(&router, "wan", outside);
        router
            .enter(|| {
                let mut netlink = Netlink::open(&router).unwrap();
                netlink.add_veth("lan", LINK, &host).unwrap();
                netlink.add_address("lan", format!("192.168.{net}.1").parse().unwrap(), 24).unwrap();
                netlink.set_up("lan").unwrap();
                std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
                let random = if masquerade == Masquerade::Random { " random" } else { "" };
                run("nft", &["-f", "-"], &rules(random));
            })
            .unwrap();
        settle(&host, LINK, &format!("192.168.{net}.2"), Some(&format!("192.168.{net}.1")));
        self.routers.push(router);
        host
    }

    /// The link between a host and its router, that of this number, carries less from now on.
    pub(crate) fn narrow(&self, host: &Namespace, router: usize, mtu: u32) {
        for (namespace, link) in [(host, LINK), (&self.routers[router], "lan")] {
            namespace.enter(|| Netlink::open(namespace).unwrap().set_mtu(link, mtu).unwrap()).unwrap();
        }
    }

    /// Whether the routers drop packets between these two addresses from now on. No host learns of it.
    pub(crate) fn cut_between(&self, addresses: [&str; 2], is_cut: bool) {
        for router in &self.routers {
            let [a, b] = addresses;
            let chain =
                format!("type filter hook forward priority -10;\nip saddr {{{a},{b}}} drop\nip daddr {{{a},{b}}} drop");
            let table = if is_cut {
                format!("table ip cut {{\nchain through {{\n{chain}\n}}\n}}\n")
            } else {
                "delete table ip cut\n".to_owned()
            };
            router.enter(|| run("nft", &["-f", "-"], &table)).unwrap();
        }
    }

    /// A host gets another address on the same link, and prefers it for packets to `peer`.
    pub(crate) fn prefer(namespace: &Namespace, address: &str, peer: &str) {
        namespace
            .enter(|| {
                let mut netlink = Netlink::open(namespace).unwrap();
                let source: IpAddr = address.parse().unwrap();
                netlink.add_address(LINK, source, 24).unwrap();
                let (destination, link) = ((peer.parse().unwrap(), 32), LINK.to_owned());
                netlink.replace_route(&Route { destination, next_hop: None, link, source: Some(source) }).unwrap();
            })
            .unwrap();
    }

    /// A host loses what arrives and matches this.
    pub(crate) fn drop_arriving(namespace: &Namespace, filter: &str) {
        let chain = format!("type filter hook prerouting priority -300;\n{filter} drop");
        let table = format!("table ip dead {{\nchain arriving {{\n{chain}\n}}\n}}\n");
        namespace.enter(|| run("nft", &["-f", "-"], &table)).unwrap();
    }

    fn plug(&mut self, namespace: &Namespace, link: &str, address: &str) {
        self.ports += 1;
        let port = format!("port{}", self.ports);
        self.hub
            .enter(|| {
                let mut netlink = Netlink::open(&self.hub).unwrap();
                netlink.add_veth(&port, link, namespace).unwrap();
                netlink.add_port(BRIDGE, &port).unwrap();
                netlink.set_up(&port).unwrap();
            })
            .unwrap();
        settle(namespace, link, address, None);
    }

    /// A host that has an address of its own gets another one.
    pub(crate) fn renumber(namespace: &Namespace, from: &str, to: &str) {
        namespace
            .enter(|| {
                let mut netlink = Netlink::open(namespace).unwrap();
                netlink.remove_address(LINK, from.parse().unwrap(), 24).unwrap();
            })
            .unwrap();
        settle(namespace, LINK, to, None);
    }
}

/// The link is up with this address, and the default route is there.
fn settle(namespace: &Namespace, link: &str, address: &str, gateway: Option<&str>) {
    namespace
        .enter(|| {
            let mut netlink = Netlink::open(namespace).unwrap();
            netlink.add_address(link, address.parse::<IpAddr>().unwrap(), 24).unwrap();
            netlink.set_up(link).unwrap();
            let gateway = gateway.map(|gateway| gateway.parse().unwrap());
            let destination = ("0.0.0.0".parse().unwrap(), 0);
            netlink
                .replace_route(&Route { destination, next_hop: gateway, link: link.to_owned(), source: None })
                .unwrap();
        })
        .unwrap();
}

/// A home router: it translates what leaves, and lets in what belongs to that alone.
fn rules(random: &str) -> String {
    let chain = |name: &str, rules: &str| format!("chain {name} {{\n{rules}\n}}\n");
    let nat = chain("post", &format!("type nat hook postrouting priority 100\noifname \"wan\" masquerade{random}"));
    let input = chain("incoming", "type filter hook input priority 0; policy drop;\niifname \"lan\" accept");
    let forward = "type filter hook forward priority 0; policy drop;\nct state established,related accept";
    let forward = chain("through", &format!("{forward}\niifname \"lan\" accept"));
    format!("table ip nat {{\n{nat}}}\ntable ip filter {{\n{input}{forward}}}\n")
}

fn run(program: &str, arguments: &[&str], input: &str) {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut child = Command::new(program).args(arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program} {arguments:?}: {input}");
}
