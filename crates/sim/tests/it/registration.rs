//! Registration through a gateway: beacons, requests, replies, the tunnel, and their losses.

use holdover_base::{ByteCount, Instant};
use holdover_link::{Length, Loss};
use holdover_sim::{
    Attachment, Beacons, Dropped, FlowStatus, Frame, Medium, Movement, NodeId, Observer, Place, RegisterOn,
    Registration, Selection, Transit, Visit, World, WorldConfig, WorldEvent,
};
use holdover_wire::Payload;

use crate::support::*;

const NODE: NodeId = NodeId(MOBILE);

fn registering(registration: Registration) -> WorldConfig {
    let mut config = cellular(Movement::Path(line(&[30.0, 50.0], 5.0, 1_000)), Attachment::Registration(registration));
    for cell in &mut config.cells {
        cell.beacons = Some(Beacons { first: Length::Constant(ms(250)), interval: Length::Constant(secs(1)) });
    }
    config.time_limit = Instant::from_secs(10);
    config
}

fn run(config: WorldConfig) -> (Log, World) {
    let mut log = Log::default();
    let mut world = World::new(config).expect("a valid world");
    world.run(&mut log);
    (log, world)
}

fn of_mobile(log: &Log) -> Vec<(f64, WorldEvent)> {
    let is_mine = |event: &WorldEvent| {
        matches!(
            *event,
            WorldEvent::RegistrationRequested(NODE, ..)
                | WorldEvent::BindingChanged(NODE, _)
                | WorldEvent::Registered(NODE, _)
                | WorldEvent::ConnectivityLost(NODE)
                | WorldEvent::ConnectivityBack { node: NODE, .. }
        )
    };
    log.events
        .iter()
        .filter(|(_, event)| is_mine(event))
        .map(|(at, event)| (at.as_secs_f64() * 1e3, event.clone()))
        .collect()
}

// Claim: A handoff with registration takes the sum of beacon, request and reply, according to the frame formats, the 802.11
// exchange and the wires.
#[test]
fn a_handoff_is_beacon_request_binding_reply() {
    let (log, _) = run(registering(Registration::through(GATEWAY)));
    let events = of_mobile(&log);
    let kinds: Vec<&WorldEvent> = events.iter().map(|(_, event)| event).collect();
    assert_eq!(
        kinds,
        [
            &WorldEvent::ConnectivityLost(NODE),
            &WorldEvent::RegistrationRequested(NODE, CELL_2, 1),
            &WorldEvent::BindingChanged(NODE, CELL_2),
            &WorldEvent::Registered(NODE, CELL_2),
            &WorldEvent::ConnectivityBack { node: NODE, cell: CELL_2, moved: true },
        ]
    );
    let times: Vec<f64> = events.iter().map(|(at, _)| *at).collect();
    assert_eq!(times[0], 3_000.0);
    // The cell's beacon is sent at 3.25 s: DIFS 50, mean backoff 310, preamble 192, 84 bytes at 1 Mb/s 672 us.
    let beacon = 3_250.0 + 1.224;
    assert!((times[1] - beacon).abs() < 1e-6, "{times:?}");
    // The request, 74 bytes: 50 + 310 + 352 + 10 + 304 + 10 + 192 + 110 * 4 us on the air; 2 ms and 74 bytes at 10 Mb/s to
    // the gateway.
    let bound = beacon + 1.668 + 2.0 + 0.0592;
    assert!((times[2] - bound).abs() < 1e-6, "{times:?}");
    // The reply, 70 bytes, takes the same path back.
    let replied = bound + 2.0 + 0.056 + 1.652;
    assert!((times[3] - replied).abs() < 1e-6, "{times:?}");
    assert_eq!(times[3], times[4]);
}

#[test]
fn packets_take_the_tunnel_with_its_overhead() {
    struct Tunnelled(Vec<(u32, NodeId, u64)>);
    impl Observer for Tunnelled {
        fn packet(&mut self, _at: Instant, place: Place, frame: &Frame) {
            let len = holdover_link::Frame::wire_len(frame);
            let inner = frame.packet().wire_len() as u32;
            if matches!(frame.packet().payload, Payload::Tcp(_)) && place.transit == Transit::Out {
                if let Some(end) = frame.tunnel {
                    assert_eq!(len, inner + 33);
                    assert_eq!(place.node, GATEWAY, "the gateway alone sends into the tunnel");
                    self.0.push((len, end, 1));
                } else {
                    assert_eq!(len, inner);
                }
            }
        }
    }
    let mut config = registering(Registration { tunnel_overhead: ByteCount(33), ..Registration::through(GATEWAY) });
    config.flows = vec![flow("down", FIXED, MOBILE, bulk_for(secs(8)))];
    config.time_limit = Instant::from_secs(300);
    let mut seen = Tunnelled(Vec::new());
    let mut world = World::new(config).unwrap();
    world.run(&mut seen);
    assert_eq!(world.report()[0].status, FlowStatus::Completed);
    let to = |base| seen.0.iter().filter(|(_, end, _)| *end == NodeId(base)).count();
    assert!(to(2) > 50 && to(3) > 50, "{} {}", to(2), to(3));
}

#[test]
fn until_the_gateway_knows_packets_go_to_the_old_cell() {
    let mut config = registering(Registration::through(GATEWAY));
    config.flows = vec![flow("down", FIXED, MOBILE, bulk_for(secs(8)))];
    let (log, world) = run(config);
    let lost = Dropped::Lost(Medium::Cell(CELL_1), holdover_link::DropCause::OutOfRange);
    let times: Vec<f64> = log.drops.iter().filter(|(_, why)| *why == lost).map(|(at, _)| at.as_secs_f64()).collect();
    assert!(times.len() > 3 && times.iter().all(|&at| at > 3.0), "{times:?}");
    let report = &world.report()[0];
    let back = log.when(|event| matches!(event, WorldEvent::ConnectivityBack { node: NODE, .. }))[0];
    let outage_ms = report.outage.as_secs_f64() * 1e3;
    assert!((outage_ms - (back - 3_000.0)).abs() < 1e-6, "{outage_ms} {back}");
    assert_eq!(report.reconnections.len(), 1);
}

#[test]
fn a_lost_request_or_reply_is_repeated_ever_more_slowly() {
    // The link between gateway and the second base station loses everything until 12 s: requests at 3.25 s, and then after
    // 1, 2, 4 and 8 s.
    let mut config = registering(Registration::through(GATEWAY));
    config.links[2].forward.outages =
        holdover_link::Outages::List(vec![holdover_link::Outage { down: Instant::ZERO, up: Instant::from_secs(12) }]);
    config.links[2].forward.outage_policy.queued = holdover_link::QueuedFate::Dropped;
    config.links[2].backward.outage_policy.queued = holdover_link::QueuedFate::Dropped;
    config.time_limit = Instant::from_secs(30);
    let (log, _) = run(config.clone());
    let attempts: Vec<u32> = log
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            WorldEvent::RegistrationRequested(NODE, CELL_2, attempt) => Some(*attempt),
            _ => None,
        })
        .collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5]);
    let times = log.when(|event| matches!(event, WorldEvent::RegistrationRequested(NODE, ..)));
    let waits: Vec<f64> = times.windows(2).map(|pair| ((pair[1] - pair[0]) * 1e6).round() / 1e6).collect();
    assert_eq!(waits, [1_000.0, 2_000.0, 4_000.0, 8_000.0]);
    assert_eq!(log.when(|event| matches!(event, WorldEvent::Registered(NODE, _))).len(), 1);
    // The same with a bound on the interval.
    if let Attachment::Registration(registration) = &mut config.mobiles[0].attachment {
        registration.retransmit_at_most = ms(1_500);
    }
    let (log, _) = run(config);
    let times = log.when(|event| matches!(event, WorldEvent::RegistrationRequested(NODE, ..)));
    let waits: Vec<f64> = times.windows(2).take(3).map(|pair| ((pair[1] - pair[0]) * 1e6).round() / 1e6).collect();
    assert_eq!(waits, [1_000.0, 1_500.0, 1_500.0]);
}

#[test]
fn random_losses_on_the_way_delay_registration_and_do_not_prevent_it() {
    let registration =
        Registration { retransmit_after: ms(300), retransmit_at_most: ms(600), ..Registration::through(GATEWAY) };
    let mut config = registering(registration);
    config.links[2].forward.loss = Loss::Independent(0.6);
    config.links[2].backward.loss = Loss::Independent(0.6);
    config.time_limit = Instant::from_secs(60);
    let mut repeated = 0;
    for seed in 0..20 {
        let (log, _) = run(WorldConfig { seed, ..config.clone() });
        assert_eq!(log.when(|event| matches!(event, WorldEvent::Registered(NODE, _))).len(), 1, "seed {seed}");
        repeated += log
            .when(|event| matches!(event, WorldEvent::RegistrationRequested(NODE, _, attempt) if *attempt > 1))
            .len();
    }
    // An attempt succeeds with probability 0.4^2: 5.25 repetitions are expected of a run, with a deviation of 5.7; of twenty, 105
    // with a deviation of 26. The bounds are four deviations on either side.
    assert!((1..209).contains(&repeated), "{repeated}");
}

#[test]
fn a_host_that_leaves_before_the_reply_registers_anew_on_return() {
    // The host stays in the second cell just long enough to send a request, and returns.
    let path =
        holdover_sim::Path { stops: vec![stop(39.0, 0), stop(40.5, 0), stop(30.0, 0)], ..line(&[0.0], 2.0, 2_780) };
    let mut config = registering(Registration::through(GATEWAY));
    config.mobiles[0].movement = Movement::Path(path);
    // It is in the cell from 3.28 to 3.78 s; the cell's beacon is at 3.777 s.
    config.cells[1].beacons = Some(Beacons { first: Length::Constant(ms(3_777)), interval: Length::Constant(secs(1)) });
    let (log, world) = run(config);
    let events = of_mobile(&log);
    let kinds: Vec<&WorldEvent> = events.iter().map(|(_, event)| event).collect();
    assert_eq!(
        kinds,
        [
            &WorldEvent::ConnectivityLost(NODE),
            &WorldEvent::RegistrationRequested(NODE, CELL_2, 1),
            // The host is back in its former cell, and the gateway has not received the request yet.
            &WorldEvent::ConnectivityBack { node: NODE, cell: CELL_1, moved: false },
            &WorldEvent::BindingChanged(NODE, CELL_2),
            &WorldEvent::ConnectivityLost(NODE),
            &WorldEvent::RegistrationRequested(NODE, CELL_1, 1),
            &WorldEvent::BindingChanged(NODE, CELL_1),
            &WorldEvent::ConnectivityBack { node: NODE, cell: CELL_1, moved: false },
            &WorldEvent::Registered(NODE, CELL_1),
        ],
        "{events:?}"
    );
    assert_eq!(world.unfinished(), 0);
}

#[test]
fn every_beacon_can_refresh_the_binding() {
    let mut config = registering(Registration { on: RegisterOn::EveryBeacon, ..Registration::through(GATEWAY) });
    config.mobiles[0].movement = Movement::Path(line(&[10.0], 1.0, 0));
    let (log, _) = run(config);
    let requests = log.when(|event| matches!(event, WorldEvent::RegistrationRequested(NODE, CELL_1, 1))).len();
    let beacons = log.when(|event| matches!(event, WorldEvent::BeaconHeard(NODE, CELL_1))).len();
    assert_eq!((beacons, requests), (10, 10));
    assert_eq!(log.when(|event| matches!(event, WorldEvent::BindingChanged(NODE, _))).len(), 0);
}

#[test]
fn beacons_are_periodic_and_reach_only_hosts_in_range() {
    let (log, world) = run(registering(Registration::through(GATEWAY)));
    let cell = world.cell_statistics(CELL_1).unwrap();
    // One beacon at 0.25 s and then every second: ten in ten seconds. From 3 s on, no host receives them.
    assert_eq!(cell.down.offered.packets, 10);
    let unheard = Dropped::Lost(Medium::Cell(CELL_1), holdover_link::DropCause::OutOfRange);
    assert_eq!(log.drops.iter().filter(|(_, why)| *why == unheard).count(), 7);
    let mut config = registering(Registration::through(GATEWAY));
    config.cells[0].beacons = Some(Beacons::default());
    for seed in 0..50 {
        let (log, _) = run(WorldConfig { seed, time_limit: Instant::from_secs(3), ..config.clone() });
        let heard = log.when(|event| matches!(event, WorldEvent::BeaconHeard(NODE, CELL_1)));
        let first = heard[0] - 1.224;
        assert!((0.0..1_000.0).contains(&first), "{first}");
        assert!(heard.windows(2).all(|pair| (pair[1] - pair[0] - 1_000.0).abs() < 1e-6), "{heard:?}");
    }
}

#[test]
fn the_old_base_station_learns_of_it_if_the_gateway_tells() {
    for tell_old_base in [false, true] {
        let mut config = registering(Registration { tell_old_base, ..Registration::through(GATEWAY) });
        config.cells[0].cell.leave_policy = holdover_link::cell::LeavePolicy::HandBack;
        config.flows = vec![flow("down", FIXED, MOBILE, bulk_for(secs(6)))];
        let (_, world) = run(config);
        let handed_back = world.cell_statistics(CELL_1).unwrap().handed_back;
        // Packets that were still at the base station, or the mobile host's own acknowledgments, which it takes back itself.
        if tell_old_base {
            assert!(handed_back > 0);
        }
        let revoked = world.link_statistics(holdover_sim::LinkId(1)).unwrap()[0].delivered.packets;
        assert!(revoked > 0);
    }
}

#[test]
fn in_an_overlap_the_host_keeps_its_cell_or_takes_the_stronger() {
    let mut config = registering(Registration::through(GATEWAY));
    config.cells[1].cell.position.x_m = 60.0;
    config.mobiles[0].movement = Movement::Path(line(&[15.0, 55.0], 5.0, 1_000));
    let (log, _) = run(config.clone());
    // The host leaves the first cell at 40 m, after 5 s.
    assert_eq!(log.when(|event| *event == WorldEvent::ConnectivityLost(NODE)), [6_000.0]);
    config.mobiles[0].selection = Selection::Strongest;
    let (log, _) = run(config);
    // It is half-way at 30 m, after 3 s: the next beacon of the second cell is at 4.25 s, and the first cell still covers the host.
    // Packets change over at the gateway and at the host at different moments; between them the path is interrupted.
    let requested = log.when(|event| matches!(event, WorldEvent::RegistrationRequested(NODE, ..)));
    assert!(requested.len() == 1 && (4_250.0..4_260.0).contains(&requested[0]), "{requested:?}");
    let lost = log.when(|event| *event == WorldEvent::ConnectivityLost(NODE));
    let back = log.when(|event| matches!(event, WorldEvent::ConnectivityBack { node: NODE, moved: true, .. }));
    assert!(lost.len() == 1 && back.len() == 1 && back[0] - lost[0] < 5.0, "{lost:?} {back:?}");
}

#[test]
fn a_gateway_that_is_a_base_station_too_needs_no_tunnel() {
    let mut config = registering(Registration::through(NodeId(2)));
    config.links[0] = link("wan", FIXED, 2, wire(1_500, ms(20), 50));
    config.flows = vec![flow("down", FIXED, MOBILE, bulk_for(secs(8))), flow("up", MOBILE, FIXED, bulk_bytes(50_000))];
    config.time_limit = Instant::from_secs(300);
    let (log, world) = run(config);
    assert!(world.report().iter().all(|report| report.status == FlowStatus::Completed));
    assert_eq!(
        log.when(|event| matches!(event, WorldEvent::Registered(NODE, CELL_2))).len(),
        1,
        "{:?}",
        of_mobile(&log)
    );
}

// Claim: Registrations are renewed after half of their lifetime, and bindings expire (RFC 5944).
// Tests: `registration::packets_after_a_binding_expires_are_unreachable`, `bindings_expire_at_both_ends`
#[test]
fn a_registration_is_renewed_after_half_of_its_lifetime() {
    let mut config = registering(Registration { lifetime: Some(secs(6)), ..Registration::through(GATEWAY) });
    config.mobiles[0].movement = Movement::Script(vec![Visit { at: Instant::ZERO, cell: Some(CELL_1) }]);
    config.flows = vec![flow("download", FIXED, MOBILE, bulk_for(secs(20)))];
    config.time_limit = Instant::from_secs(19);
    let (log, _) = run(config);
    let asked = log.when(|event| matches!(event, WorldEvent::RegistrationRequested(NODE, CELL_1, 1)));
    let repeated = log.when(|event| matches!(event, WorldEvent::RegistrationRequested(NODE, CELL_1, 2..)));
    // Three seconds after each granted request; one may be lost in the cell, and is repeated after a second.
    let mut last = 0.0;
    for &at in &asked {
        let granted = repeated.iter().copied().filter(|&again| again < at).fold(last, f64::max);
        assert_eq!(at, granted + 3_000.0, "{asked:?} {repeated:?}");
        last = at;
    }
    assert!(asked.len() >= 5 && repeated.len() <= 1, "{asked:?} {repeated:?}");
    let over = |event: &WorldEvent| {
        matches!(
            event,
            WorldEvent::BindingExpired(_) | WorldEvent::RegistrationExpired(..) | WorldEvent::ConnectivityLost(NODE)
        )
    };
    assert_eq!(log.when(over), [0.0; 0]);
}

#[test]
fn packets_after_a_binding_expires_are_unreachable() {
    let mut config = registering(Registration { lifetime: Some(secs(6)), ..Registration::through(GATEWAY) });
    let visit = |millis, cell| Visit { at: at_ms(millis), cell };
    config.mobiles[0].movement =
        Movement::Script(vec![visit(0, Some(CELL_1)), visit(2_500, None), visit(20_000, Some(CELL_1))]);
    config.flows = vec![flow("download", FIXED, MOBILE, bulk_bytes(1_000_000))];
    config.time_limit = Instant::from_secs(60);
    let (log, world) = run(config.clone());
    assert_eq!(log.when(|event| *event == WorldEvent::BindingExpired(NODE)), [6_000.0]);
    assert_eq!(log.when(|event| *event == WorldEvent::RegistrationExpired(NODE, CELL_1)), [6_000.0]);
    let unreachable: Vec<Instant> =
        log.drops.iter().filter(|(_, why)| *why == Dropped::NoRoute(GATEWAY)).map(|(at, _)| *at).collect();
    assert!(!unreachable.is_empty());
    assert!(unreachable.iter().all(|at| (at_ms(6_000)..at_ms(20_400)).contains(at)), "{unreachable:?}");
    // The host answers the first beacon after its return with a request.
    let back = log.when(|event| *event == WorldEvent::BindingChanged(NODE, CELL_1));
    assert!(back.len() == 1 && (20_250.0..20_300.0).contains(&back[0]), "{back:?}");
    assert_eq!(world.report()[0].status, FlowStatus::Completed);
    // The fixed host receives the error, and retransmits more often for it (RFC 6069).
    config.mobiles[0].attachment = Attachment::Registration(Registration::through(GATEWAY));
    let (_, unlimited) = run(config);
    let timeouts = |world: &World| world.report()[0].sender.as_ref().unwrap().timeouts;
    assert!(timeouts(&world) > timeouts(&unlimited), "{} and {}", timeouts(&world), timeouts(&unlimited));
}
