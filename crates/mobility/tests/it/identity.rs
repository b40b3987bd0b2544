//! The trigger at the end of a HIP readdressing.

use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Instant};
use holdover_link::{InFlightFate, Outage, Outages, Rate, Reordering};
use holdover_mobility::Mechanisms;
use holdover_mobility::retransmission_trigger::RetransmissionTriggerConfig;
use holdover_sim::{
    Addresses, Dropped, FlowReport, Frame, HostAddressing, HostIdentity, HostMechanisms, LinkBetween, NodeId, Observer,
    Place, Transit, World, WorldConfig,
};
use holdover_tcp::Profile;

use crate::support::*;

/// An upload over a link that goes down permanently after 2 s; another is up from 12 s on, with a new address.
fn moving() -> WorldConfig {
    let mut config = world(Way::Upload, Profile::Linux2_4, 8_000_000, &[]);
    let mut second = LinkBetween { name: "second".into(), ..config.links[0].clone() };
    let outage = |down, up| Outages::List(vec![Outage { down, up }]);
    config.links[0].forward.outages = outage(at_ms(2_000), Instant::FAR_FUTURE);
    second.forward.outages = outage(Instant::ZERO, at_ms(12_000));
    config.links.push(second);
    for link in &mut config.links {
        link.forward.outage_policy.in_flight = InFlightFate::Dropped;
    }
    let identity = Some(HostIdentity::default());
    config.addressing = vec![
        HostAddressing { node: MOBILE, addresses: Addresses::PerLink, identity },
        HostAddressing { node: SERVER, addresses: Addresses::One, identity },
    ];
    let trigger = Some(RetransmissionTriggerConfig::default());
    let mechanisms = Mechanisms { retransmission_trigger: trigger, ..Mechanisms::default() };
    let at = |node: NodeId| HostMechanisms { node, mechanisms: mechanisms.clone(), foresight: None };
    config.mechanisms = vec![at(MOBILE), at(SERVER)];
    config
}

/// The times of packets that an identity has dropped.
#[derive(Default)]
struct Refused(Vec<Instant>);

impl Observer for Refused {
    fn dropped(&mut self, at: Instant, why: Dropped, _frame: &Frame) {
        if matches!(why, Dropped::Unverified(_) | Dropped::NoAssociation(_) | Dropped::Replayed(_)) {
            self.0.push(at);
        }
    }
}

fn run_moving(config: WorldConfig) -> (FlowReport, Vec<Instant>) {
    let mut refused = Refused::default();
    let report = run_observed(config, &mut refused);
    (report, refused.0)
}

fn run_observed(config: WorldConfig, observer: &mut impl Observer) -> FlowReport {
    let mut world = World::new(config).expect("a world");
    world.run(observer);
    world.report().remove(0)
}

/// The packets that arrive at the server from the second link, in order: whether they are data.
#[derive(Default)]
struct Arrivals(Vec<bool>);

impl Observer for Arrivals {
    fn packet(&mut self, _at: Instant, place: Place, frame: &Frame) {
        let is_from_there = frame.packet().src == MOBILE.locator(1, false);
        if is_from_there && (place.node, place.transit) == (SERVER, Transit::In) {
            self.0.push(frame.is_encrypted());
        }
    }
}

/// The round trip takes 50 ms: one for the first two messages, half of one for the third and the segment behind it; a few more if that
/// segment had already arrived.
#[test]
fn readdressing_fires_the_trigger() {
    let (report, refused) = run_moving(moving());
    assert_eq!(refused, []);
    assert!((75..200).contains(&idle_ms(&report)), "{}", idle_ms(&report));
    let mut plain = moving();
    plain.mechanisms.clear();
    assert!(idle_ms(&run_moving(plain).0) > 1_000);
}

/// The paper's race has no loser here: a retransmission that overtakes the third message comes from an address that is not verified yet, and
/// is accepted, because the SPI and the integrity check identify its sender.
#[test]
fn a_retransmission_that_overtakes_the_third_message_is_accepted() {
    let mut config = moving();
    // The new link carries the first message, the third, and then the retransmission, which skips the propagation
    // delay.
    config.links[2].forward.reorder = Some(Reordering { probability: 1.0, gap: 3 });
    let mut arrivals = Arrivals::default();
    run_observed(config.clone(), &mut arrivals);
    assert_eq!(arrivals.0[..3], [false, true, false], "announcement, data, response");
    let (report, refused) = run_moving(config);
    assert_eq!(refused, []);
    assert!((50..200).contains(&idle_ms(&report)), "{}", idle_ms(&report));
    assert_eq!(report.status, holdover_sim::FlowStatus::Completed);
}

/// An indicator from the readdressing of one peer does not affect connections with others.
#[test]
fn only_the_hosts_that_have_moved_are_triggered() {
    let mut config = moving();
    let other = holdover_sim::NodeConfig { name: "other".into(), role: holdover_sim::Role::Host };
    config.nodes.push(other);
    let mut wire = config.links[1].clone();
    wire.forward.rate = Rate::Fixed(BitRate::from_kbps(2_000));
    wire.backward.rate = wire.forward.rate.clone();
    config.links.push(LinkBetween { name: "other".into(), a: NodeId(1), b: NodeId(3), ..wire });
    let mut flow = config.flows[0].clone();
    (flow.name, flow.from, flow.to) = ("other".into(), SERVER, NodeId(3));
    flow.sender = Arc::clone(&config.flows[0].sender);
    config.flows.push(flow);
    let mut with = World::new(config.clone()).expect("a world");
    with.run(&mut holdover_sim::NoObserver);
    let report = &with.report()[1];
    assert!(report.over_at() > at_ms(20_000), "it was under way all the time");
    let sender = report.sender.clone().expect("a connection");
    assert_eq!(
        (sender.timeouts, sender.bytes_retransmitted),
        (0, ByteCount(0)),
        "the server's other connection goes on"
    );
}

/// Counts the times that the window was narrowed after link-up at another attachment.
#[derive(Default)]
struct Narrowings(usize);

impl Observer for Narrowings {
    fn event(&mut self, _at: Instant, event: &holdover_sim::WorldEvent) {
        if let holdover_sim::WorldEvent::Mechanism(_, action) = event {
            self.0 += usize::from(action.what == "narrowed");
        }
    }
}

/// A host whose peer has no identity announces its new address to no host, and still counts as moved.
#[test]
fn a_host_without_peers_of_its_kind_moves_too() {
    let mut config = moving();
    config.addressing.truncate(1);
    config.addressing[0].addresses = Addresses::One;
    config.mechanisms = vec![HostMechanisms {
        node: MOBILE,
        mechanisms: Mechanisms { new_cell_window: Some(Default::default()), ..Mechanisms::default() },
        foresight: None,
    }];
    let mut world = World::new(config).expect("a world");
    let mut narrowings = Narrowings::default();
    world.run(&mut narrowings);
    assert_eq!(narrowings.0, 1);
}
