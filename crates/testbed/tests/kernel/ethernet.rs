//! Worlds with Ethernet links: carrier, neighbours, late forwarding, as seen by kernels. All bounds are wide, as other programs may be
//! running.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::{InFlightFate, LinkConfig, Outage, OutagePolicy, Outages, QueueLimit, QueuedFate, Rate};
use holdover_sim::{
    AddressLoss, Amount, Bulk, Ending, Families, FlowConfig, FlowStatus, Frame, Layer2, LinkBetween, LinkKind,
    NodeConfig, NodeId, Observer, Opener, OutageKind, Place, Role, Traffic, Transit, WorldConfig, WorldEvent,
};
use holdover_tcp::Profile;
use holdover_testbed::world::{ETHERNET_INTERFACE, MODEM_INTERFACE, RealError, RealOptions, RealWorld};
use holdover_testbed::{Namespace, NamespaceError, Neighbour, Netlink};
use holdover_wire::Flags;

use crate::Test;

pub(crate) const TESTS: &[Test] = &[
    ("a_transfer_crosses_an_ethernet_and_a_kernel_that_forwards", a_transfer_crosses),
    ("carrier_goes_and_comes_as_netlink_sees_it", carrier_goes_and_comes),
    ("a_download_survives_silence", |_| a_download_survives(OutageKind::Silent, 0)),
    ("a_download_survives_a_loss_of_carrier", |_| a_download_survives(OutageKind::Carrier, 0)),
    ("a_download_survives_late_forwarding", |_| a_download_survives(OutageKind::CarrierNear, 300)),
    ("a_download_survives_its_router_set_down", |_| a_download_survives(OutageKind::AdminDown, 0)),
    ("a_download_survives_its_host_set_down", |_| a_download_survives(OutageKind::HostDown, 0)),
    ("late_forwarding_drops_arp", late_forwarding_drops_arp),
    ("one_family_goes_with_its_addresses_and_comes_back", one_family_goes_with_its_addresses),
    ("a_lease_that_is_renewed_has_another_address", a_lease_that_is_renewed_has_another_address),
    ("an_address_is_made_from_advertisements", an_address_is_made_from_advertisements),
    ("an_address_of_another_prefix_is_advertised", an_address_of_another_prefix_is_advertised),
    ("a_modem_has_carrier_and_no_neighbours", a_modem_has_carrier_and_no_neighbours),
    ("a_router_translates_addresses", a_router_translates_addresses),
    ("invalid_ethernets_are_refused", invalid_ethernets_are_refused),
];

const PHONE: NodeId = NodeId(0);
const SERVER: NodeId = NodeId(1);
const ROUTER: NodeId = NodeId(2);

fn a_transfer_crosses(_: &Namespace) {
    for ipv6 in [false, true] {
        let mut config = world(Layer2 { outage: OutageKind::Carrier, ..ETHERNET }, Outages::Never, Duration::ZERO);
        config.flows = vec![download(1_500_000, ipv6), upload(1_500_000, ipv6)];
        let mut world = RealWorld::new(config, &RealOptions::default()).expect("it can be real");
        assert_eq!(world.interface(PHONE), Some(ETHERNET_INTERFACE));
        let outcome = world.run(&mut Events::default(), |_| true).expect("it runs");
        assert_eq!(outcome.ending, Some(Ending::AllDone));
        for report in world.world().report() {
            assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 1_500_000));
            assert!(report.duration() < Duration::from_secs(5), "{}", report.duration());
        }
        let [phone, router] = [PHONE, ROUTER].map(|node| neighbours(&world, node));
        let family = |found: &[Neighbour]| found.iter().filter(|found| found.address.is_ipv6() == ipv6).count();
        assert!(family(&phone) > 0 && family(&router) > 0, "{phone:?} {router:?}");
        assert!(phone.iter().all(|found| found.mac.is_some()), "{phone:?}");
    }
}

// Claim: Links with a second layer on kernels: carrier and neighbour entries change according to the outage, downloads survive
// each kind of outage over IPv4 and IPv6, late forwarding drops ARP, one family loses and regains its address and route, a
// renewed lease has another address, a modem has no neighbours, a router translates addresses.
fn carrier_goes_and_comes(_: &Namespace) {
    let all =
        [OutageKind::Carrier, OutageKind::CarrierNear, OutageKind::AdminDown, OutageKind::HostDown, OutageKind::Silent];
    for outage in all {
        let mut config = world(Layer2 { outage, ..ETHERNET }, one_outage(500, 1_500), Duration::ZERO);
        config.flows = vec![download(2_000_000, false)];
        let mut world = RealWorld::new(config, &RealOptions::default()).expect("it can be real");
        let phone = Watch::start(world.namespace(PHONE).expect("it is a kernel"), ETHERNET_INTERFACE);
        let router = Watch::start(world.namespace(ROUTER).expect("it is a kernel"), "lan0");
        let outcome = world.run(&mut Events::default(), |_| true).expect("it runs");
        let [phone, router] = [phone, router].map(Watch::stop);
        assert_eq!(outcome.ending, Some(Ending::AllDone), "{outage:?}");
        assert_eq!(world.world().report().remove(0).status, FlowStatus::Completed, "{outage:?}");
        let fine = State { up: true, carrier: true, known: true };
        let without = State { up: true, carrier: false, known: false };
        for (seen, loses) in [(&phone, outage.is_seen_by_host()), (&router, outage.is_seen_by_router())] {
            assert!(seen.contains(&fine), "{outage:?} {seen:?}");
            // Entries are flushed with the carrier, which returns without them.
            let is_set_down = match outage {
                OutageKind::AdminDown => std::ptr::eq(seen, &router),
                OutageKind::HostDown => std::ptr::eq(seen, &phone),
                _ => false,
            };
            let lost = State { up: !is_set_down, ..without };
            let lost_at = seen.iter().position(|state| *state == lost);
            assert_eq!(lost_at.is_some(), loses, "{outage:?} {seen:?}");
            assert!(lost_at.is_none_or(|at| seen[at..].contains(&fine)), "{outage:?} {seen:?}");
            assert!(loses || seen.iter().all(|state| state.carrier), "{outage:?} {seen:?}");
        }
    }
}

fn a_download_survives(outage: OutageKind, forwards_after: u64) {
    for ipv6 in [false, true] {
        let after = Duration::from_millis(forwards_after);
        let mut config = world(Layer2 { outage, ..ETHERNET }, one_outage(500, 2_000), after);
        config.flows = vec![download(1_500_000, ipv6)];
        let mut world = RealWorld::new(config, &RealOptions::default()).expect("it can be real");
        let mut events = Events::default();
        let outcome = world.run(&mut events, |_| true).expect("it runs");
        let report = world.world().report().remove(0);
        let what = format!("{outage:?} {ipv6} {:?}", report.status);
        assert_eq!((outcome.ending, report.bytes_received), (Some(Ending::AllDone), 1_500_000), "{what}");
        let carries = Instant::from_millis(2_000 + forwards_after);
        assert_eq!(world.world().config().links[0].carries_at(Instant::from_millis(2_000)), carries);
        assert_eq!(events.carries, [carries], "{what}");
        assert_eq!(report.reconnections.iter().map(|back| back.up_at).collect::<Vec<_>>(), [carries], "{what}");
        assert!(report.reconnections[0].idle.is_some_and(|idle| idle < Duration::from_secs(8)), "{what}");
    }
}

/// No side resolves the other before the path carries packets.
fn late_forwarding_drops_arp(_: &Namespace) {
    let layer2 = Layer2 { outage: OutageKind::Carrier, ..ETHERNET };
    let mut config = world(layer2, one_outage(300, 1_400), Duration::from_millis(1_500));
    config.flows = vec![upload(1_000_000, false)];
    let mut world = RealWorld::new(config, &RealOptions::default()).expect("it can be real");
    let phone = Watch::start(world.namespace(PHONE).expect("it is a kernel"), ETHERNET_INTERFACE);
    let start = std::time::Instant::now();
    world.run(&mut Events::default(), |_| true).expect("it runs");
    let (began, seen) = phone.stop_timed();
    assert_eq!(world.world().report().remove(0).status, FlowStatus::Completed);
    let after_start = |at: std::time::Duration| (began + at).saturating_duration_since(start).as_millis();
    let lost = seen.iter().position(|(_, state)| !state.carrier).expect("carrier is lost");
    let back = seen[lost..].iter().find(|(_, state)| state.carrier).expect("carrier is back");
    let known = seen[lost..].iter().find(|(_, state)| state.known).expect("its router is found again");
    assert!((1_390..2_300).contains(&after_start(back.0)), "{seen:?}");
    assert!(after_start(known.0) >= 2_890, "{seen:?}");
}

/// IPv4's address and routes are gone for the duration of its outage and half a second more; IPv6 is not affected.
fn one_family_goes_with_its_addresses(_: &Namespace) {
    let addresses = AddressLoss::Lost { after: Duration::from_millis(500), other: false };
    let layer2 = Layer2 { families: Families::Ipv4, addresses, ..ETHERNET };
    let mut config = world(layer2, one_outage(500, 1_500), Duration::ZERO);
    config.flows = vec![download(1_500_000, false), FlowConfig { name: "six".into(), ..download(1_500_000, true) }];
    let mut world = RealWorld::new(config, &RealOptions::default()).expect("it can be real");
    let phone = world.namespace(PHONE).expect("it is a kernel").clone();
    let (stop, is_over) = channel::<()>();
    let inside = phone.clone();
    // Checks for an IPv4 address and an IPv4 default route, and an IPv6 address.
    let watch = phone.spawn_inside(move || {
        let mut netlink = Netlink::open(&inside).expect("it is inside");
        let mut seen: Vec<(bool, bool, bool)> = Vec::new();
        while is_over.recv_timeout(std::time::Duration::from_millis(3)).is_err() {
            let found = netlink.addresses(ETHERNET_INTERFACE).expect("it can be asked");
            let has = |address: IpAddr| found.contains(&address);
            let routes = std::fs::read_to_string("/proc/thread-self/net/route").expect("it is there");
            let default = routes.lines().any(|line| line.split_whitespace().nth(1) == Some("00000000"));
            let state = (has(PHONE.address(false)), default, has(PHONE.address(true)));
            if seen.last() != Some(&state) {
                seen.push(state);
            }
        }
        seen
    });
    let mut events = Events::default();
    let outcome = world.run(&mut events, |_| true).expect("it runs");
    stop.send(()).expect("it waits for this");
    let seen = watch.expect("it was started").join().expect("no panic").expect("it was inside");
    assert_eq!(outcome.ending, Some(Ending::AllDone));
    let [four, six] = [0, 1].map(|index| world.world().report().remove(index));
    assert_eq!([four.status, six.status], [FlowStatus::Completed; 2]);
    assert_eq!((events.carries.as_slice(), six.reconnections.len()), (&[Instant::from_millis(2_000)][..], 0));
    assert_eq!(four.reconnections.iter().map(|back| back.up_at).collect::<Vec<_>>(), events.carries);
    assert_eq!((seen.first(), seen.last()), (Some(&(true, true, true)), Some(&(true, true, true))), "{seen:?}");
    assert!(seen.contains(&(false, false, true)) && seen.iter().all(|state| state.2), "{seen:?}");
}

/// Connections bound to the old address stay bound to it, and later ones have the new address.
fn a_lease_that_is_renewed_has_another_address(_: &Namespace) {
    let addresses = AddressLoss::Lost { after: Duration::from_millis(100), other: true };
    let layer2 = Layer2 { outage: OutageKind::Carrier, addresses, ..ETHERNET };
    let mut config = world(layer2, one_outage(500, 1_000), Duration::ZERO);
    let late = FlowConfig { start: Instant::from_millis(1_500), name: "late".into(), ..upload(200_000, false) };
    config.flows = vec![upload(2_000_000, false), late];
    config.time_limit = Instant::from_secs(4);
    let mut world = RealWorld::new(config, &RealOptions::default()).expect("it can be real");
    let mut sources = Sources::default();
    world.run(&mut sources, |_| true).expect("it runs");
    let reports = world.world().report();
    assert!(reports[0].status != FlowStatus::Completed, "{:?}", reports[0].status);
    assert_eq!((reports[1].status, reports[1].bytes_received), (FlowStatus::Completed, 200_000));
    assert_eq!(sources.found, BTreeSet::from([PHONE.address(false), PHONE.locator(0, false)]));
}

// Claim: With `slaac` a host's kernel makes its IPv6 address and default route from its router's advertisements, after its interface was set
// down and after it has lost its addresses: the address is tentative for a second before it is valid, and is the same as before, or has
// another advertised prefix; a download over it goes on.
// Tests: `ethernet::an_address_of_another_prefix_is_advertised`
fn an_address_is_made_from_advertisements(_: &Namespace) {
    let lost = AddressLoss::Lost { after: Duration::from_millis(100), other: false };
    for (outage, addresses) in [(OutageKind::HostDown, AddressLoss::Kept), (OutageKind::Carrier, lost)] {
        let layer2 = Layer2 { outage, addresses, slaac: true, ..ETHERNET };
        let mut config = world(layer2, one_outage(500, 1_500), Duration::ZERO);
        config.flows = vec![download(1_500_000, true)];
        config.time_limit = Instant::from_secs(40);
        let mut world = RealWorld::new(config, &RealOptions::default()).expect("it can be real");
        let phone = AddressWatch::start(world.namespace(PHONE).expect("it is a kernel"), PHONE.address(true));
        let outcome = world.run(&mut Events::default(), |_| true).expect("it runs");
        let seen = phone.stop();
        assert_eq!(outcome.ending, Some(Ending::AllDone), "{outage:?} {seen:?}");
        assert_eq!(world.world().report().remove(0).status, FlowStatus::Completed, "{outage:?}");
        let states: Vec<Option<bool>> = seen.iter().map(|&(_, state)| state).collect();
        assert_eq!(states, [Some(true), None, Some(false), Some(true)], "{outage:?} {seen:?}");
        let [.., (tentative_at, _), (valid_at, _)] = seen[..] else { panic!("{seen:?}") };
        let detection = (valid_at - tentative_at).as_millis();
        assert!((950..3_000).contains(&detection), "{outage:?} {seen:?}");
        let routes = routes(&world);
        assert!(routes.iter().any(|flags| flags & RTF_ADDRCONF != 0), "{outage:?} {routes:?}");
    }
}

fn an_address_of_another_prefix_is_advertised(_: &Namespace) {
    let addresses = AddressLoss::Lost { after: Duration::from_millis(100), other: true };
    let layer2 = Layer2 { outage: OutageKind::Carrier, addresses, slaac: true, ..ETHERNET };
    let mut config = world(layer2, one_outage(500, 1_000), Duration::ZERO);
    // Both addresses are valid some 4 s after the return.
    let late = FlowConfig { start: Instant::from_secs(8), name: "late".into(), ..upload(200_000, true) };
    config.flows = vec![upload(2_000_000, true), late];
    config.time_limit = Instant::from_secs(12);
    let mut world = RealWorld::new(config, &RealOptions::default()).expect("it can be real");
    let mut sources = Sources::default();
    world.run(&mut sources, |_| true).expect("it runs");
    let reports = world.world().report();
    assert!(reports[0].status != FlowStatus::Completed, "{:?}", reports[0].status);
    assert_eq!((reports[1].status, reports[1].bytes_received), (FlowStatus::Completed, 200_000));
    assert_eq!(sources.found, BTreeSet::from([PHONE.address(true), PHONE.locator(0, true)]));
}

/// A route that the kernel has made from a router advertisement (`linux/ipv6_route.h`).
const RTF_ADDRCONF: u32 = 0x0004_0000;

/// The flags of the phone's default routes of IPv6.
fn routes(world: &RealWorld) -> Vec<u32> {
    let phone = world.namespace(PHONE).expect("it is a kernel");
    let read = || std::fs::read_to_string("/proc/thread-self/net/ipv6_route").expect("it is there");
    let table = phone.enter(read).expect("it is there");
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let default = fields.filter(|fields| fields[1] == "00" && fields.last() == Some(&ETHERNET_INTERFACE));
    default.map(|fields| u32::from_str_radix(fields[8], 16).expect("flags")).collect()
}

/// Whether an address is there, and valid, each with the time since the start.
type AddressSeen = Vec<(std::time::Duration, Option<bool>)>;

/// Checks an address every few milliseconds, from inside its namespace.
struct AddressWatch {
    stop: Sender<()>,
    thread: JoinHandle<Result<AddressSeen, NamespaceError>>,
}

impl AddressWatch {
    fn start(namespace: &Namespace, address: IpAddr) -> Self {
        let (stop, is_over) = channel::<()>();
        let IpAddr::V6(address) = address else { panic!("IPv6") };
        let digits: String = address.octets().iter().map(|byte| format!("{byte:02x}")).collect();
        let thread = namespace.spawn_inside(move || {
            let began = std::time::Instant::now();
            let mut seen: AddressSeen = Vec::new();
            while is_over.recv_timeout(std::time::Duration::from_millis(3)).is_err() {
                let table = std::fs::read_to_string("/proc/thread-self/net/if_inet6").expect("it is there");
                let line = table.lines().find(|line| line.starts_with(&digits));
                let flags = line.and_then(|line| line.split_whitespace().nth(4)).map(str::to_owned);
                // IFA_F_DADFAILED and IFA_F_TENTATIVE.
                let state = flags.map(|flags| u8::from_str_radix(&flags, 16).expect("flags") & 0x48 == 0);
                if seen.last().is_none_or(|&(_, last)| last != state) {
                    seen.push((began.elapsed(), state));
                }
            }
            seen
        });
        Self { stop, thread: thread.expect("it starts") }
    }

    fn stop(self) -> AddressSeen {
        self.stop.send(()).expect("it waits for this");
        self.thread.join().expect("no panic").expect("it was inside")
    }
}

fn a_modem_has_carrier_and_no_neighbours(_: &Namespace) {
    for ipv6 in [false, true] {
        let layer2 = Layer2 { kind: LinkKind::RawIp, outage: OutageKind::Carrier, ..ETHERNET };
        let mut config = world(layer2, one_outage(500, 1_500), Duration::from_millis(100));
        config.flows = vec![download(1_500_000, ipv6)];
        let mut world = RealWorld::new(config, &RealOptions::default()).expect("it can be real");
        assert_eq!(world.interface(PHONE), Some(MODEM_INTERFACE));
        let phone = Watch::start(world.namespace(PHONE).expect("it is a kernel"), MODEM_INTERFACE);
        let outcome = world.run(&mut Events::default(), |_| true).expect("it runs");
        let seen = phone.stop();
        assert_eq!(outcome.ending, Some(Ending::AllDone));
        assert_eq!(world.world().report().remove(0).status, FlowStatus::Completed);
        let carrier: Vec<bool> = seen.iter().map(|state| state.carrier).collect();
        assert_eq!(carrier, [true, false, true], "{seen:?}");
        assert!(seen.iter().all(|state| !state.known), "{seen:?}");
    }
}

/// The server sees only the router's address, before and after an outage.
fn a_router_translates_addresses(_: &Namespace) {
    if std::process::Command::new("nft").arg("--version").output().is_err() {
        return eprintln!("skipped: there is no nft");
    }
    let layer2 = Layer2 { nat: true, outage: OutageKind::Carrier, ..ETHERNET };
    let mut config = world(layer2, one_outage(500, 1_000), Duration::ZERO);
    config.flows = vec![upload(1_000_000, false), download(1_000_000, false)];
    let mut world = RealWorld::new(config, &RealOptions::default()).expect("it can be real");
    let mut sources = Sources { at: SERVER, ..Sources::default() };
    let outcome = world.run(&mut sources, |_| true).expect("it runs");
    assert_eq!(outcome.ending, Some(Ending::AllDone));
    assert!(world.world().report().iter().all(|report| report.status == FlowStatus::Completed));
    assert_eq!(sources.found, BTreeSet::from([ROUTER.address(false)]));
}

fn invalid_ethernets_are_refused(_: &Namespace) {
    let plain = world(ETHERNET, Outages::Never, Duration::ZERO);
    let options = RealOptions { external: [PHONE, SERVER].into(), ..RealOptions::default() };
    assert!(RealWorld::check(&plain, &options).is_ok());
    let mut between_routers = plain.clone();
    between_routers.nodes[0].role = Role::Router;
    let error = RealWorld::check(&between_routers, &options).expect_err("it needs a host");
    assert!(matches!(error, RealError::World(_)) && error.to_string().contains("a host and a router"), "{error}");
    let mut twice = plain;
    twice.links.push(LinkBetween { name: "second".into(), ..twice.links[0].clone() });
    let error = RealWorld::check(&twice, &options).expect_err("one interface to a host");
    assert!(matches!(error, RealError::Layer2 { .. }) && error.to_string().contains("other links"), "{error}");
}

/// The state of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    up: bool,
    carrier: bool,
    /// Whether any neighbour's Ethernet address is known.
    known: bool,
}

/// The start of the observation, and the states with their times since then.
type Seen = (std::time::Instant, Vec<(std::time::Duration, State)>);

/// Checks an interface every few milliseconds, from inside its namespace.
struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Result<Seen, NamespaceError>>,
}

impl Watch {
    fn start(namespace: &Namespace, interface: &'static str) -> Self {
        let (stop, is_over) = channel();
        let inside = namespace.clone();
        let thread = namespace.spawn_inside(move || {
            let mut netlink = Netlink::open(&inside).expect("it is inside");
            let start = std::time::Instant::now();
            let mut seen: Vec<(std::time::Duration, State)> = Vec::new();
            while is_over.recv_timeout(std::time::Duration::from_millis(3)).is_err() {
                let link = netlink.link(interface).expect("it is there");
                let known = netlink.neighbours(interface).expect("it can be asked");
                let known = known.iter().any(|neighbour| neighbour.mac.is_some());
                let state = State { up: link.is_up, carrier: link.has_carrier, known };
                if seen.last().is_none_or(|(_, last)| *last != state) {
                    seen.push((start.elapsed(), state));
                }
            }
            (start, seen)
        });
        Self { stop, thread: thread.expect("it can be started") }
    }

    /// The states of the interface, in order.
    fn stop(self) -> Vec<State> {
        self.stop_timed().1.into_iter().map(|(_, state)| state).collect()
    }

    fn stop_timed(self) -> (std::time::Instant, Vec<(std::time::Duration, State)>) {
        self.stop.send(()).expect("it waits for this");
        self.thread.join().expect("it has not panicked").expect("it was inside")
    }
}

/// The times at which the link carried packets again.
#[derive(Debug, Default)]
struct Events {
    carries: Vec<Instant>,
}

impl Observer for Events {
    fn event(&mut self, at: Instant, event: &WorldEvent) {
        if let WorldEvent::LinkCarries(_) = event {
            self.carries.push(at);
        }
    }
}

/// The addresses in the SYNs that leave the phone, or that arrive at another node.
#[derive(Debug)]
struct Sources {
    found: BTreeSet<IpAddr>,
    at: NodeId,
}

impl Default for Sources {
    fn default() -> Self {
        Self { found: BTreeSet::new(), at: PHONE }
    }
}

impl Observer for Sources {
    fn packet(&mut self, _at: Instant, place: Place, frame: &Frame) {
        let is_syn = frame.packet().tcp().is_some_and(|segment| segment.flags == Flags::SYN);
        let direction = if self.at == PHONE { Transit::Out } else { Transit::In };
        if is_syn && place.node == self.at && place.transit == direction {
            self.found.insert(frame.packet().src);
        }
    }
}

const ETHERNET: Layer2 = Layer2 {
    kind: LinkKind::Ethernet,
    outage: OutageKind::Silent,
    families: Families::Both,
    addresses: AddressLoss::Kept,
    nat: false,
    slaac: false,
};

fn neighbours(world: &RealWorld, node: NodeId) -> Vec<Neighbour> {
    let namespace = world.namespace(node).expect("it is a kernel");
    let interface = if node == PHONE { ETHERNET_INTERFACE } else { "lan0" };
    namespace.enter(|| Netlink::open(namespace).unwrap().neighbours(interface).unwrap()).unwrap()
}

fn one_outage(down_ms: u64, up_ms: u64) -> Outages {
    Outages::List(vec![Outage { down: Instant::from_millis(down_ms), up: Instant::from_millis(up_ms) }])
}

fn download(bytes: u64, ipv6: bool) -> FlowConfig {
    FlowConfig { name: "download".into(), from: SERVER, to: PHONE, ..flow(bytes, Opener::Receiver, ipv6) }
}

fn upload(bytes: u64, ipv6: bool) -> FlowConfig {
    FlowConfig { name: "upload".into(), from: PHONE, to: SERVER, ..flow(bytes, Opener::Sender, ipv6) }
}

fn flow(bytes: u64, opener: Opener, ipv6: bool) -> FlowConfig {
    let stack = Arc::new(Profile::Linux6Cubic.config());
    FlowConfig {
        name: String::new(),
        from: PHONE,
        to: SERVER,
        start: Instant::ZERO,
        sender: Arc::clone(&stack),
        receiver: stack,
        traffic: Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(bytes)), opener }),
        ipv6,
    }
}

/// A phone on an Ethernet with its router, and a server behind a wire.
fn world(layer2: Layer2, outages: Outages, forwards_after: Duration) -> WorldConfig {
    let node = |name: &str, role| NodeConfig { name: name.into(), role };
    let access = LinkConfig {
        rate: Rate::Fixed(BitRate::from_mbps(10)),
        delay: Duration::from_millis(5),
        queue_limit: QueueLimit::Packets(60),
        outages,
        outage_policy: OutagePolicy { queued: QueuedFate::Dropped, in_flight: InFlightFate::Dropped },
        forwards_after,
        ..LinkConfig::default()
    };
    let rest = LinkConfig { delay: Duration::from_millis(10), ..LinkConfig::default() };
    WorldConfig {
        seed: 1,
        nodes: vec![node("phone", Role::Host), node("server", Role::Host), node("router", Role::Router)],
        links: vec![
            LinkBetween { layer2, ..LinkBetween::wire("access", PHONE, ROUTER, access) },
            LinkBetween::wire("rest", ROUTER, SERVER, rest),
        ],
        time_limit: Instant::from_secs(20),
        ..WorldConfig::default()
    }
}
