//! Addresses for each link, and identities that survive their change.

use holdover_base::Instant;
use holdover_link::{Frame as _, InFlightFate, Outage, OutagePolicy, Outages, QueuedFate};
use holdover_mobility::LinkEvent;
use holdover_sim::{
    Addresses, Dropped, FlowStatus, Frame, HostAddressing, HostIdentity, LinkId, NoObserver, NodeId, Observer, Place,
    World, WorldConfig, WorldError, WorldEvent,
};
use holdover_tcp::{ConnectionError, Profile, RetryLimit};

use crate::support::*;

const MOBILE: NodeId = NodeId(0);
const SERVER: NodeId = NodeId(2);

/// The mobile host 0 has two links to the router 1, behind which is the server 2. The first one goes down permanently after `cut_s`, the
/// second one is up from `back_s` on. The round trip takes 100 ms.
fn moving(cut_s: u64, back_s: u64, flows: Vec<holdover_sim::FlowConfig>) -> WorldConfig {
    let access = |name, down, up| {
        let mut link = link(name, 0, 1, wire(10_000, ms(25), 75));
        link.forward.outages = Outages::List(vec![Outage { down, up }]);
        link.forward.outage_policy = OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped };
        link.backward.outage_policy = link.forward.outage_policy;
        link
    };
    WorldConfig {
        seed: 1,
        nodes: vec![host("mobile"), router("x"), host("server")],
        links: vec![
            access("first", Instant::from_secs(cut_s), Instant::FAR_FUTURE),
            access("second", Instant::ZERO, Instant::from_secs(back_s)),
            link("core", 1, 2, wire(100_000, ms(25), 500)),
        ],
        flows,
        addressing: vec![HostAddressing { node: MOBILE, addresses: Addresses::PerLink, identity: None }],
        time_limit: Instant::from_secs(3_000),
        ..WorldConfig::default()
    }
}

/// Both hosts with identities.
fn with_identities(mut config: WorldConfig) -> WorldConfig {
    let identity = Some(HostIdentity::default());
    config.addressing = vec![
        HostAddressing { node: MOBILE, addresses: Addresses::PerLink, identity },
        HostAddressing { node: SERVER, addresses: Addresses::One, identity },
    ];
    config
}

fn upload() -> holdover_sim::FlowConfig {
    with_stack(flow("up", 0, 2, bulk_bytes(10_000_000)), Profile::Linux2_4.config())
}

#[test]
fn an_address_belongs_to_one_link() {
    let mut world = World::new(moving(100, 1, vec![upload(), flow("down", 2, 0, bulk_bytes(1_000_000))])).unwrap();
    world.run(&mut NoObserver);
    assert!(world.report().iter().all(|report| report.status == FlowStatus::Completed));
    let [away, back] = world.link_statistics(LinkId(1)).unwrap();
    assert_eq!((away.delivered.packets, back.delivered.packets), (0, 0), "nothing goes by the other link");
}

/// Plain TCP is bound to the address, which is bound to the link: the other link does not help.
#[test]
fn without_identity_a_change_of_address_breaks_the_connection() {
    for opener in [upload(), flow("down", 2, 0, bulk_bytes(10_000_000))] {
        let mut flow = opener;
        let mut config = (*flow.sender).clone();
        config.limits.r2 = RetryLimit::Retries(9);
        flow = with_stack(flow, config);
        let mut world = World::new(moving(2, 3, vec![flow.clone()])).unwrap();
        world.run(&mut NoObserver);
        assert_eq!(world.report()[0].status, FlowStatus::Failed(ConnectionError::TimedOut), "{}", flow.name);
        // With one address for both links, the connection survives.
        let mut world = World::new(WorldConfig { addressing: Vec::new(), ..moving(2, 3, vec![flow]) }).unwrap();
        world.run(&mut NoObserver);
        assert_eq!(world.report()[0].status, FlowStatus::Completed);
    }
}

#[test]
fn with_identities_the_connection_survives() {
    for ipv6 in [false, true] {
        let flows = [upload(), flow("down", 2, 0, bulk_bytes(5_000_000)), flow("datagrams", 2, 0, bursts())];
        let flows = flows.map(|flow| holdover_sim::FlowConfig { ipv6, ..flow }).to_vec();
        let mut log = Log::default();
        let mut world = World::new(with_identities(moving(2, 5, flows))).unwrap();
        world.run(&mut log);
        for report in &world.report()[..2] {
            assert_eq!((report.status, report.outage), (FlowStatus::Completed, secs(3)));
        }
        let done: Vec<_> = readdressed(&log);
        assert_eq!(done.len(), 2);
        // 25 ms of delay on each of two links, for each of two messages, and the transmission times.
        assert!((5_100..5_102).contains(&done[0].0) && done[0].1 == MOBILE, "{done:?}");
        assert!((5_150..5_153).contains(&done[1].0) && done[1].1 == SERVER, "{done:?}");
        let unverified = log.drops.iter().filter(|(_, why)| *why == Dropped::Unverified(SERVER)).count();
        assert!(unverified <= 20, "{unverified}");
    }
}

/// The times of completed readdressing, in ms, with the host.
fn readdressed(log: &Log) -> Vec<(u64, NodeId)> {
    let events = log.events.iter().filter_map(|(at, event)| match event {
        WorldEvent::Readdressed(node, _) => Some((at.as_millis(), *node)),
        _ => None,
    });
    events.collect()
}

/// Mechanisms get the indicator of the layer directly below TCP, not that of the link.
#[test]
fn mechanisms_hear_of_readdressing_and_not_of_the_link() {
    let mut world = World::new(with_identities(moving(2, 5, vec![upload()]))).unwrap();
    let (mobile, server) = (Notes::default(), Notes::default());
    assert!(world.edit_chain(MOBILE, |chain| *chain = mobile.chain()));
    assert!(world.edit_chain(SERVER, |chain| *chain = server.chain()));
    world.run(&mut NoObserver);
    let up = LinkEvent::Up { symmetric: true, moved: true };
    assert_eq!(mobile.heard(), [(2_000, LinkEvent::Down), (5_100, up)]);
    assert_eq!(server.heard(), [(5_150, up)]);
}

#[test]
fn the_same_link_needs_no_readdressing() {
    let mut config = with_identities(moving(100, 3_000, vec![upload()]));
    config.links[0].forward.outages =
        Outages::List(vec![Outage { down: Instant::from_secs(2), up: Instant::from_secs(5) }]);
    let mut log = Log::default();
    let mut world = World::new(config).unwrap();
    let mobile = Notes::default();
    assert!(world.edit_chain(MOBILE, |chain| *chain = mobile.chain()));
    world.run(&mut log);
    assert_eq!(mobile.heard(), [(2_000, LinkEvent::Down), (5_000, LinkEvent::Up { symmetric: false, moved: false })]);
    assert_eq!(readdressed(&log), []);
    assert_eq!(world.report()[0].status, FlowStatus::Completed);
}

#[test]
fn readdressing_outlives_losses() {
    let mut late = 0;
    for seed in 1..40 {
        let mut config = with_identities(moving(2, 5, vec![upload()]));
        config.seed = seed;
        config.links[1].forward.loss = holdover_link::Loss::Independent(0.3);
        config.links[1].backward.loss = holdover_link::Loss::Independent(0.3);
        let mut log = Log::default();
        let mut world = World::new(config).unwrap();
        world.run_to(Instant::from_secs(80), &mut log);
        let done = readdressed(&log);
        assert!(done.iter().any(|(_, node)| *node == SERVER), "{seed}: {done:?}");
        late += u32::from(done[0].0 > 5_900);
    }
    assert!(late > 5, "some UPDATEs were lost: {late}");
}

#[test]
fn the_prototypes_delay() {
    let mut config = with_identities(moving(2, 5, vec![upload()]));
    let delay = holdover_link::Length::Uniform { min: ms(1_900), max: ms(2_900) };
    config.addressing[0].identity = Some(HostIdentity { delay: Some(delay), ..HostIdentity::default() });
    let mut log = Log::default();
    World::new(config).unwrap().run(&mut log);
    let done = readdressed(&log)[0].0;
    assert!((7_000..8_002).contains(&done), "{done}");
}

#[test]
fn identities_cost_the_overhead_of_each_packet() {
    let took = |config| {
        let mut world = World::new(config).unwrap();
        world.run(&mut NoObserver);
        world.report()[0].duration().as_secs_f64()
    };
    let plain = took(moving(100, 3_000, vec![upload()]));
    let sealed = took(with_identities(moving(100, 3_000, vec![upload()])));
    assert!((sealed / plain - 1544.0 / 1500.0).abs() < 0.005, "{plain} {sealed}");
}

/// Counts packets of data between identities on all links.
#[derive(Default)]
struct Encrypted(usize);

impl Observer for Encrypted {
    fn packet(&mut self, _at: Instant, _place: Place, frame: &Frame) {
        // Compares the payload at nodes and their mechanisms with that at an observer.
        assert_eq!(frame.packet.tcp(), None);
        assert_eq!(frame.is_encrypted(), frame.observed_tcp().is_some());
        assert_eq!(frame.packet.wire_len(), frame.wire_len() as usize);
        self.0 += usize::from(frame.is_encrypted());
    }
}

#[test]
fn data_between_identities_is_opaque_on_the_way() {
    let mut encrypted = Encrypted::default();
    World::new(with_identities(moving(100, 3_000, vec![upload()]))).unwrap().run(&mut encrypted);
    assert!(encrypted.0 > 1_000, "{}", encrypted.0);
}

#[test]
fn invalid_identities_are_refused() {
    let error = |change: &dyn Fn(&mut WorldConfig)| {
        let mut config = with_identities(moving(2, 5, vec![upload()]));
        change(&mut config);
        World::new(config).expect_err("an error")
    };
    let router = error(&|config| config.addressing[0].node = NodeId(1));
    assert_eq!(router, WorldError::AddressingOfRouter { node: "x".into() });
    let twice = error(&|config| config.addressing[1].node = MOBILE);
    assert_eq!(twice, WorldError::AddressingTwice { node: "mobile".into() });
    let many = error(&|config| {
        config.links.extend((0..20).map(|n| link(&format!("more {n}"), 0, 1, wire(1_000, ms(1), 10))));
    });
    let expected = WorldError::NoLocators { node: "mobile".into(), max_links: 16, max_nodes: 65_535 };
    assert_eq!(many, expected);
    let restless = error(&|config| {
        let identity = config.addressing[0].identity.as_mut().unwrap();
        identity.shim.retransmit_after = holdover_base::Duration::ZERO;
    });
    assert_eq!(restless, WorldError::UpdateAfter { node: "mobile".into() });
}
