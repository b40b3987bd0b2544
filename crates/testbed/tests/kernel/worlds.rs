//! Worlds of the simulator with kernels in place of hosts. All bounds are wide, as other programs may be running.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::cell::{CellConfig, Position};
use holdover_link::{InFlightFate, LinkConfig, Outage, OutagePolicy, Outages, QueueLimit, QueuedFate, Rate};
use holdover_mobility::fast_retransmit::FastRetransmitConfig;
use holdover_mobility::{LinkEvent, Mechanisms};
use holdover_sim::{
    Addresses, Amount, Attachment, Bulk, CellId, Ending, FlowConfig, FlowId, FlowReport, FlowStatus, Frame,
    GatewayMechanisms, HostAddressing, HostMechanisms, LinkBetween, LinkKind, MobileHost, Movement, NoObserver,
    NodeConfig, NodeId, Observer, OnOff, Opener, Place, RadioCell, RequestResponse, Role, Sample, Selection, Traffic,
    Transit, Visit, World, WorldConfig,
};
use holdover_tcp::{Config, ConnectionError, Profile};
use holdover_testbed::world::{Heard, RealError, RealOptions, RealOutcome, RealWorld};
use holdover_testbed::{Namespace, NamespaceId};
use rustix::event::{PollFd, PollFlags};

use crate::Test;

pub(crate) const TESTS: &[Test] = &[
    ("a_transfer_takes_as_long_as_in_the_simulator", a_transfer_takes_as_long_as_in_the_simulator),
    ("an_outage_is_the_same_for_a_kernel", an_outage_is_the_same_for_a_kernel),
    ("mechanisms_work_for_a_kernel", mechanisms_work_for_a_kernel),
    ("an_agent_on_a_host_hears_of_its_link", an_agent_on_a_host_hears_of_its_link),
    ("all_kinds_of_traffic", all_kinds_of_traffic),
    ("a_kernel_talks_to_a_simulated_host", a_kernel_talks_to_a_simulated_host),
    ("new_connections_use_the_address_of_the_link_that_is_up", new_connections_use_the_address_of_the_link_that_is_up),
    ("a_moving_host_is_moved_with_its_kernel", a_moving_host_is_moved_with_its_kernel),
    ("a_connection_fails_as_the_kernel_says", a_connection_fails_as_the_kernel_says),
    ("worlds_that_cannot_be_real_are_refused", worlds_that_cannot_be_real_are_refused),
    ("a_run_ends_on_request", a_run_ends_on_request),
];

fn a_transfer_takes_as_long_as_in_the_simulator(_: &Namespace) {
    let config = pair(link(10, 5, 60), vec![flow("bulk", bulk(1_500_000, Opener::Sender))]);
    let (real, outcome) = run(config.clone(), &RealOptions::default());
    let simulated = simulate(config);
    assert_eq!((real.status, outcome.ending), (FlowStatus::Completed, Some(Ending::AllDone)));
    assert_eq!((real.bytes_received, real.ideal), (1_500_000, simulated.ideal));
    let ratio = real.duration().as_secs_f64() / simulated.duration().as_secs_f64();
    assert!((0.9..1.5).contains(&ratio), "{} and {}", real.duration(), simulated.duration());
    let sender = real.sender.expect("the kernel has told");
    assert_eq!(sender.bytes_sent.0, 1_500_000);
    assert!(sender.segments_sent > 1000 && real.receiver.is_some_and(|end| end.bytes_received.0 == 1_500_000));
    assert!(outcome.lateness.packets() > 1000, "{:?}", outcome.lateness.packets());
    let names: Vec<&str> = outcome.counters.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["client", "server"]);
    assert!(outcome.counters[0].1.get("TcpActiveOpens") == Some(1), "{:?}", outcome.counters[0].1);
}

// Claim: A world of the simulator with kernels as hosts: a transfer takes as long, outages and their ends are the same,
// mechanisms work, all kinds of traffic in both directions over IPv4 and IPv6, addresses per link, moving hosts, a simulated
// host, failures with the kernel's names. Results: docs/conformance/simulator.md.
// Tests: `worlds::mechanisms_work_for_a_kernel`, `worlds::an_agent_on_a_host_hears_of_its_link`
fn an_outage_is_the_same_for_a_kernel(_: &Namespace) {
    let mut link = link(10, 5, 60);
    link.outages = one_outage(500, 1_300);
    link.outage_policy = ALL_IS_LOST;
    let config = pair(link, vec![flow("bulk", bulk(1_500_000, Opener::Sender))]);
    let simulated = simulate(config.clone());
    let mut samples = Samples::default();
    let mut world = RealWorld::new(config, &RealOptions::default()).expect("a world that can be real");
    world.run(&mut samples, |_| true).expect("it runs");
    let real = world.world().report().remove(0);
    assert_eq!((real.status, real.outage), (FlowStatus::Completed, simulated.outage));
    let returned = |report: &FlowReport| report.reconnections.iter().map(|one| one.up_at).collect::<Vec<_>>();
    assert_eq!(returned(&real), returned(&simulated));
    let idle = real.reconnections[0].idle.expect("it goes on");
    assert!(idle < Duration::from_secs(3), "{idle}");
    assert!(real.sender.is_some_and(|sender| sender.timeouts >= 1 && sender.bytes_retransmitted.0 > 0));
    assert!(samples.backed_off, "the kernel's timer is seen to back off");
    assert!(samples.count > 20 && samples.cwnd > 10, "{} {}", samples.count, samples.cwnd);
}

/// The kernel of a server is woken when its client is back.
fn mechanisms_work_for_a_kernel(_: &Namespace) {
    let mut link = link(10, 10, 60);
    link.outages = one_outage(1_000, 2_500);
    link.outage_policy = ALL_IS_LOST;
    let download = FlowConfig { from: NodeId(1), to: NodeId(0), ..flow("download", bulk(2_000_000, Opener::Receiver)) };
    let plain = pair(link, vec![download]);
    let mut equipped = plain.clone();
    equipped.mechanisms = vec![HostMechanisms {
        node: NodeId(0),
        mechanisms: Mechanisms { wake: true, ..Mechanisms::default() },
        foresight: Some(Duration::from_millis(300)),
    }];
    let [without, with] = [plain, equipped].map(|config| run(config, &RealOptions::default()).0);
    let idle = |report: &FlowReport| report.reconnections[0].idle.expect("it goes on");
    assert_eq!((with.status, without.status), (FlowStatus::Completed, FlowStatus::Completed));
    assert!(idle(&with) * 2 < idle(&without), "{} and {}", idle(&with), idle(&without));
}

/// It is inside the host's namespace, gets the host's warnings, and ends with the world.
fn an_agent_on_a_host_hears_of_its_link(_: &Namespace) {
    let mut link = link(10, 5, 60);
    link.outages = one_outage(500, 800);
    let mut config = pair(link, vec![flow("bulk", bulk(1_000_000, Opener::Sender))]);
    config.mechanisms = vec![HostMechanisms {
        node: NodeId(0),
        mechanisms: Mechanisms::default(),
        foresight: Some(Duration::from_millis(200)),
    }];
    let mut world = RealWorld::new(config, &RealOptions::default()).expect("it can be real");
    assert!(world.start_agent(NodeId(7), |_| ()).is_none(), "there is no such host");
    let agent = world.start_agent(NodeId(0), |events| {
        let mut heard = Vec::new();
        loop {
            match events.hear() {
                Heard::Event(event) => heard.push(event),
                Heard::Nothing => {
                    rustix::event::poll(&mut [PollFd::new(&events, PollFlags::IN)], None).expect("it waits");
                }
                Heard::End => return (heard, NamespaceId::current().expect("it is somewhere")),
            }
        }
    });
    let agent = agent.expect("there is such a host").expect("it can be started");
    let inside = world.namespace(NodeId(0)).expect("it has a kernel").id();
    let outcome = world.run(&mut NoObserver, |_| true).expect("it runs");
    assert_eq!(outcome.ending, Some(Ending::AllDone));
    drop(world);
    let (heard, place) = agent.join().expect("it was in the namespace");
    assert_eq!(place, inside);
    let lead = Some(Duration::from_millis(200));
    let up = LinkEvent::Up { symmetric: true, moved: false };
    assert_eq!(heard, [LinkEvent::Fading { lead }, LinkEvent::Down, up]);
}

fn all_kinds_of_traffic(_: &Namespace) {
    let exchange = Traffic::RequestResponse(RequestResponse {
        request: ByteCount(300),
        response: ByteCount(5_000),
        think: Duration::from_millis(20),
        count: Some(20),
    });
    let timed = Traffic::Bulk(Bulk { amount: Amount::For(Duration::from_secs(1)), opener: Opener::Receiver });
    let bursts = Traffic::OnOff(OnOff {
        datagram: ByteCount(500),
        rate: BitRate::from_mbps(1),
        mean_on: Duration::from_millis(300),
        mean_off: Duration::from_millis(50),
        shape: 1.5,
    });
    let flows = vec![
        FlowConfig { ipv6: true, ..flow("exchange", exchange) },
        FlowConfig { ipv6: true, ..flow("timed", timed) },
        FlowConfig { start: Instant::from_millis(200), ..flow("late", bulk(100_000, Opener::Receiver)) },
        flow("bursts", bursts),
    ];
    let mut world = RealWorld::new(pair(link(20, 5, 100), flows), &RealOptions::default()).expect("it can be real");
    let outcome = world.run(&mut NoObserver, |_| true).expect("it runs");
    assert_eq!(outcome.ending, Some(Ending::AllDone));
    let reports = world.world().report();
    assert_eq!((reports[0].status, reports[0].exchanges.len()), (FlowStatus::Completed, 20));
    assert!(
        reports[0].exchanges.iter().all(|took| (10..500).contains(&took.as_millis())),
        "{:?}",
        reports[0].exchanges
    );
    assert_eq!(reports[1].status, FlowStatus::Completed);
    assert!(reports[1].bytes_received > 500_000 && reports[1].duration() > Duration::from_millis(990));
    assert_eq!((reports[2].status, reports[2].bytes_received), (FlowStatus::Completed, 100_000));
    assert!(reports[2].connected_at.is_some_and(|at| at > Instant::from_millis(210)), "{:?}", reports[2].connected_at);
    assert!(reports[3].bytes_received > 5_000, "{}", reports[3].bytes_received);
}

fn a_kernel_talks_to_a_simulated_host(_: &Namespace) {
    for simulated in [NodeId(0), NodeId(1)] {
        let config = pair(link(20, 3, 60), vec![flow("bulk", bulk(500_000, Opener::Sender))]);
        let options = RealOptions { simulated: [simulated].into(), ..RealOptions::default() };
        let mut world = RealWorld::new(config, &options).expect("a world that can be real");
        let outcome = world.run(&mut NoObserver, |_| true).expect("it runs");
        assert_eq!((outcome.ending, outcome.counters.len()), (Some(Ending::AllDone), 1));
        assert!(world.namespace(simulated).is_none());
        let report = world.world().report().remove(0);
        assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 500_000));
        assert!(report.sender.is_some_and(|sender| sender.bytes_sent.0 == 500_000));
    }
}

/// A phone with two links to a router; the first one goes down permanently.
fn new_connections_use_the_address_of_the_link_that_is_up(_: &Namespace) {
    let mut first = between(0, 2, link(20, 2, 60));
    first.forward.outages = one_outage(600, 60_000);
    let links = vec![first, between(0, 2, link(20, 4, 60)), between(2, 1, link(100, 2, 60))];
    let exchanges = |count| {
        Traffic::RequestResponse(RequestResponse {
            request: ByteCount(100),
            response: ByteCount(1_000),
            think: Duration::from_millis(10),
            count,
        })
    };
    let start = Instant::from_millis(800);
    let mut config = pair(
        LinkConfig::default(),
        vec![flow("early", exchanges(Some(10))), FlowConfig { start, ..flow("late", exchanges(Some(10))) }],
    );
    config.nodes.push(NodeConfig { name: "router".into(), role: Role::Router });
    config.links = links.into_iter().zip(["one", "two", "rest"]).map(|(link, name)| named(link, name)).collect();
    config.addressing = vec![HostAddressing { node: NodeId(0), addresses: Addresses::PerLink, identity: None }];
    let mut sources = Sources::default();
    let mut world = RealWorld::new(config, &RealOptions::default()).expect("a world that can be real");
    world.run(&mut sources, |_| true).expect("it runs");
    let reports = world.world().report();
    assert!(reports.iter().all(|report| report.status == FlowStatus::Completed), "{reports:?}");
    let expected = [0, 1].map(|access| NodeId(0).locator(access, false));
    assert_eq!(sources.0, BTreeSet::from(expected));
}

/// A host that moves from one cell into the next while its kernel downloads.
fn a_moving_host_is_moved_with_its_kernel(_: &Namespace) {
    let cell = |name: &str, base, x_m| RadioCell {
        name: name.into(),
        base: NodeId(base),
        cell: CellConfig { position: Position { x_m, y_m: 0.0 }, ..CellConfig::wavelan(40.0, QueueLimit::Packets(30)) },
        beacons: None,
    };
    let download = FlowConfig { from: NodeId(1), to: NodeId(0), ..flow("download", bulk(300_000, Opener::Receiver)) };
    let mut config = pair(LinkConfig::default(), vec![download]);
    config.nodes.extend(["north", "south"].map(|name| NodeConfig { name: name.into(), role: Role::Router }));
    config.links = vec![named(between(1, 2, link(10, 2, 60)), "one"), named(between(2, 3, link(10, 2, 60)), "two")];
    config.cells = vec![cell("one", 2, 0.0), cell("two", 3, 60.0)];
    config.mobiles = vec![MobileHost {
        node: NodeId(0),
        movement: Movement::Script(vec![
            Visit { at: Instant::ZERO, cell: Some(CellId(0)) },
            Visit { at: Instant::from_millis(500), cell: None },
            Visit { at: Instant::from_millis(800), cell: Some(CellId(1)) },
        ]),
        attachment: Attachment::HandoffTime(Duration::from_millis(50)),
        selection: Selection::default(),
        prediction: None,
    }];
    let (report, _) = run(config, &RealOptions::default());
    assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 300_000));
    assert_eq!(report.reconnections.len(), 1);
    assert_eq!(report.outage, Duration::from_millis(350));
}

fn a_connection_fails_as_the_kernel_says(_: &Namespace) {
    let mut link = link(10, 5, 60);
    link.outages = one_outage(300, 60_000);
    let mut stack = Profile::Linux6Reno.config();
    stack.user_timeout.timeout = Some(Duration::from_millis(1_500));
    let config = pair(link, vec![with_stack(flow("bulk", bulk(10_000_000, Opener::Sender)), stack)]);
    let (report, outcome) = run(config, &RealOptions::default());
    assert_eq!(outcome.ending, Some(Ending::AllDone));
    assert_eq!(report.status, FlowStatus::Failed(ConnectionError::UserTimeout));
    let failed_at = report.failed_at.expect("it has failed");
    assert!((1_500..6_000).contains(&(failed_at.saturating_since(Instant::ZERO).as_millis())), "{failed_at}");
}

fn worlds_that_cannot_be_real_are_refused(_: &Namespace) {
    let plain = pair(link(10, 5, 60), vec![flow("bulk", bulk(1_000, Opener::Sender))]);
    let check = |config: &WorldConfig, options: &RealOptions| RealWorld::check(config, options);
    assert!(check(&plain, &RealOptions::default()).is_ok());

    let mut old = plain.clone();
    old.flows[0] = with_stack(old.flows[0].clone(), Profile::RenoBsd.config());
    let error = check(&old, &RealOptions::default()).expect_err("4.3BSD");
    assert!(matches!(&error, RealError::Stack { host, .. } if host == "client"), "{error}");

    let mut steered = plain.clone();
    let mechanisms = Mechanisms { fast_retransmit: Some(FastRetransmitConfig::default()), ..Mechanisms::default() };
    steered.mechanisms = vec![HostMechanisms { node: NodeId(1), mechanisms, foresight: None }];
    let error = check(&steered, &RealOptions::default()).expect_err("it steers the endpoint");
    assert!(matches!(error, RealError::Mechanism { mechanism: "fast_retransmit", .. }), "{error}");
    let simulated = RealOptions { simulated: [NodeId(1)].into(), ..RealOptions::default() };
    assert!(check(&steered, &simulated).is_ok());

    let mut behind = plain.clone();
    behind.nodes.push(NodeConfig { name: "tower".into(), role: Role::Router });
    behind.links = vec![
        LinkBetween::wire("air", NodeId(0), NodeId(2), link(10, 5, 60)),
        LinkBetween::wire("wan", NodeId(2), NodeId(1), link(10, 5, 60)),
    ];
    let snoop = holdover_gateway::Mechanisms { snoop: Some(Default::default()), ..Default::default() };
    let (node, mobiles) = (NodeId(2), vec![NodeId(0)]);
    behind.gateways = vec![GatewayMechanisms { node, mechanisms: snoop, mobiles, hears_links: true }];
    assert!(check(&behind, &RealOptions::default()).is_ok(), "the router is simulated");
    behind.links[0].layer2.kind = LinkKind::Ethernet;
    let error = check(&behind, &RealOptions::default()).expect_err("a kernel's router has no mechanisms");
    assert!(matches!(&error, RealError::RouterMechanisms { router } if router == "tower"), "{error}");

    let nobody = RealOptions { simulated: [NodeId(0), NodeId(1)].into(), ..RealOptions::default() };
    assert!(matches!(check(&plain, &nobody), Err(RealError::NothingReal)));
}

fn a_run_ends_on_request(_: &Namespace) {
    let config = pair(link(10, 5, 60), vec![flow("bulk", bulk(1_000_000_000, Opener::Sender))]);
    let mut world = RealWorld::new(config, &RealOptions::default()).expect("a world that can be real");
    let outcome = world.run(&mut NoObserver, |world| world.now() < Instant::from_millis(300)).expect("it runs");
    assert_eq!(outcome.ending, None);
    assert!(world.world().now() < Instant::from_secs(5), "{}", world.world().now());
    assert_eq!(world.world().report()[0].status, FlowStatus::Unfinished);
}

/// The states in samples.
#[derive(Default)]
struct Samples {
    count: usize,
    cwnd: u32,
    backed_off: bool,
}

impl Observer for Samples {
    fn sample(&mut self, _at: Instant, _flow: FlowId, sample: &Sample) {
        self.count += 1;
        self.cwnd = self.cwnd.max(sample.snd_cwnd);
        self.backed_off |= sample.backoff > 0;
    }
}

/// The source addresses of the client.
#[derive(Default)]
struct Sources(BTreeSet<IpAddr>);

impl Observer for Sources {
    fn packet(&mut self, _at: Instant, place: Place, frame: &Frame) {
        if place.node == NodeId(0) && place.transit == Transit::Out {
            self.0.insert(frame.packet().src);
        }
    }
}

/// Packets queued at the cut are lost, and so are those in flight.
const ALL_IS_LOST: OutagePolicy = OutagePolicy { queued: QueuedFate::Dropped, in_flight: InFlightFate::Dropped };

fn one_outage(down_ms: u64, up_ms: u64) -> Outages {
    Outages::List(vec![Outage { down: Instant::from_millis(down_ms), up: Instant::from_millis(up_ms) }])
}

fn between(a: u32, b: u32, config: LinkConfig) -> LinkBetween {
    LinkBetween::wire("", NodeId(a), NodeId(b), config)
}

fn named(link: LinkBetween, name: &str) -> LinkBetween {
    LinkBetween { name: name.into(), ..link }
}

fn with_stack(flow: FlowConfig, stack: Config) -> FlowConfig {
    let stack = Arc::new(stack);
    FlowConfig { sender: Arc::clone(&stack), receiver: stack, ..flow }
}

fn pair(link: LinkConfig, flows: Vec<FlowConfig>) -> WorldConfig {
    let host = |name: &str| NodeConfig { name: name.into(), role: Role::Host };
    WorldConfig {
        seed: 1,
        nodes: vec![host("client"), host("server")],
        links: vec![LinkBetween::wire("link", NodeId(0), NodeId(1), link)],
        flows,
        time_limit: Instant::from_secs(20),
        sample_every: Some(Duration::from_millis(50)),
        ..WorldConfig::default()
    }
}

fn link(mbps: u64, delay_ms: u64, queue_packets: u32) -> LinkConfig {
    LinkConfig {
        rate: Rate::Fixed(BitRate::from_mbps(mbps)),
        delay: Duration::from_millis(delay_ms),
        queue_limit: QueueLimit::Packets(queue_packets),
        ..LinkConfig::default()
    }
}

fn flow(name: &str, traffic: Traffic) -> FlowConfig {
    let stack = Arc::new(Profile::Linux6Cubic.config());
    FlowConfig {
        name: name.into(),
        from: NodeId(0),
        to: NodeId(1),
        start: Instant::ZERO,
        sender: Arc::clone(&stack),
        receiver: stack,
        traffic,
        ipv6: false,
    }
}

fn bulk(bytes: u64, opener: Opener) -> Traffic {
    Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(bytes)), opener })
}

/// The first flow's report.
fn run(config: WorldConfig, options: &RealOptions) -> (FlowReport, RealOutcome) {
    let mut world = RealWorld::new(config, options).expect("a world that can be real");
    let outcome = world.run(&mut NoObserver, |_| true).expect("it runs");
    (world.world().report().remove(0), outcome)
}

fn simulate(config: WorldConfig) -> FlowReport {
    let mut world = World::new(config).expect("a world");
    world.run(&mut NoObserver);
    world.report().remove(0)
}
