//! A run is a pure function of description and seed.

use holdover_base::Instant;
use holdover_link::cell::{Contention, LeavePolicy};
use holdover_link::{Alternating, Length, Loss, Outages};
use holdover_sim::{
    Attachment, CellId, MobileHost, Movement, Prediction, RegisterOn, Registration, Repeat, Selection, Visits, World,
    WorldConfig,
};
use holdover_tcp::Profile;

use crate::support::*;

fn lossy() -> WorldConfig {
    let config = holdover_link::LinkConfig {
        loss: Loss::Independent(0.02),
        outages: Outages::Alternating(Alternating {
            initial_connected: None,
            connected: Length::Exponential { mean: secs(3) },
            disconnected: Length::Uniform { min: ms(100), max: ms(900) },
            count: None,
        }),
        ..wire(2_000, ms(30), 20)
    };
    let old = |name, stack: Profile| with_stack(flow(name, 0, 1, bulk_for(secs(8))), stack.config());
    let flows = vec![
        flow("cubic", 0, 1, bulk_bytes(1_000_000)),
        old("reno", Profile::RenoBsd),
        old("sack", Profile::Sack1Ns2),
        flow("web", 1, 0, exchanges(20, ms(100))),
        flow("noise", 0, 1, bursts()),
    ];
    WorldConfig { sample_every: Some(ms(100)), ..pair(config, flows, secs(15)) }
}

fn wired() -> WorldConfig {
    let flows = vec![
        flow("up", 0, 1, bulk_bytes(2_000_000)),
        flow("down", 1, 0, bulk_bytes(2_000_000)),
        holdover_sim::FlowConfig { ipv6: true, start: at_ms(700), ..flow("six", 0, 1, bulk_bytes(300_000)) },
    ];
    pair(wire(5_000, ms(10), 30), flows, secs(30))
}

fn cell_only() -> WorldConfig {
    let mut config = cellular(Movement::Path(line(&[10.0], 1.0, 0)), Attachment::HandoffTime(ms(50)));
    for cell in &mut config.cells {
        cell.cell.dcf.contention = Contention::Drawn;
    }
    config.flows = vec![
        flow("down", FIXED, MOBILE, bulk_bytes(400_000)),
        flow("up", NEIGHBOUR, FIXED, bulk_bytes(400_000)),
        flow("noise", FIXED, NEIGHBOUR, bursts()),
    ];
    config.time_limit = Instant::from_secs(20);
    config
}

fn moving() -> WorldConfig {
    let mut registration = Registration::through(GATEWAY);
    registration.on = RegisterOn::EveryBeacon;
    registration.tell_old_base = true;
    let path = holdover_sim::Path { repeat: Repeat::BackAndForth, ..line(&[30.0, 50.0], 5.0, 1_000) };
    let mut config = cellular(Movement::Path(path), Attachment::Registration(registration));
    config.cells[0].cell.leave_policy = LeavePolicy::HandBack;
    config.cells[1].cell.dcf.contention = Contention::Drawn;
    config.mobiles[0].prediction = Some(Prediction::Threshold { percent: 2.0 });
    config.mobiles[0].selection = Selection::Strongest;
    let visits = Visits {
        cells: vec![CellId(1), CellId(0)],
        first_residence: None,
        residence: Length::Exponential { mean: secs(4) },
        gap: Some(Length::Exponential { mean: ms(300) }),
        moves: None,
    };
    config.mobiles[1] = MobileHost {
        movement: Movement::Visits(visits),
        prediction: Some(Prediction::Lead(ms(100))),
        ..config.mobiles[1].clone()
    };
    config.flows = vec![
        flow("down", FIXED, MOBILE, bulk_for(secs(25))),
        flow("across", MOBILE, NEIGHBOUR, bulk_bytes(300_000)),
        flow("web", NEIGHBOUR, FIXED, exchanges(10, secs(1))),
        flow("noise", FIXED, NEIGHBOUR, bursts()),
    ];
    config.time_limit = Instant::from_secs(30);
    config.sample_every = Some(ms(250));
    config
}

fn run(config: &WorldConfig) -> (Log, Vec<holdover_sim::FlowReport>) {
    let mut log = Log::default();
    let mut world = World::new(config.clone()).expect("a valid world");
    world.run(&mut log);
    (log, world.report())
}

// Claim: The same description and seed give the same run: packet for packet, event for event, sample for sample, on wired, lossy,
// radio and moving worlds, as a whole or in pieces, observed or not.
// Tests: `determinism::a_run_in_pieces_is_the_same_run`
#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    for (name, config, random) in
        [("wired", wired(), false), ("lossy", lossy(), true), ("cell", cell_only(), true), ("moving", moving(), true)]
    {
        let (first, report) = run(&config);
        let (second, again) = run(&config);
        assert_eq!(first.hash, second.hash, "{name}");
        assert!(first == second, "{name}: equal hashes, different logs");
        assert_eq!(report, again, "{name}");
        assert!(first.lines > 3_000, "{name} is hardly a world: {} lines", first.lines);
        let (other, _) = run(&WorldConfig { seed: 2, ..config });
        // Even without random events in the network, sequence numbers and ports depend on the seed.
        assert_ne!(first.hash, other.hash, "{name}");
        if random {
            assert_ne!(first.lines, other.lines, "{name}: chance has no say");
        }
    }
}

#[test]
fn a_run_in_pieces_is_the_same_run() {
    let config = moving();
    let (whole, report) = run(&config);
    let mut log = Log::default();
    let mut world = World::new(config.clone()).expect("a valid world");
    let mut until = Instant::ZERO;
    while world.run_to(until, &mut log).is_none() {
        until += ms(777);
        assert!(until < Instant::from_secs(100), "the run does not end");
    }
    assert_eq!(log.hash, whole.hash);
    assert_eq!(world.report(), report);
    assert_eq!(World::check(&config), Ok(()));
    let mut unobserved = World::new(config).expect("a valid world");
    assert_eq!(unobserved.advance_to(Instant::from_millis(777)), None);
    assert!(unobserved.advance_to(Instant::from_secs(100)).is_some(), "the run does not end");
    assert_eq!(unobserved.report(), report);
}

#[test]
fn simultaneous_events_follow_the_order_of_the_description() {
    // Both hosts open a connection at the same time over the same link: the order of the flows decides which is first, and when both SYNs
    // arrive at the same time, the order of the link's directions.
    for (first, second) in [(0, 1), (1, 0)] {
        let flows = vec![flow("a", first, second, bulk_bytes(1_000)), flow("b", second, first, bulk_bytes(1_000))];
        let (log, _) = run(&pair(wire(8_000, ms(1), 9), flows, secs(60)));
        let nodes: Vec<u32> = log.first_packets[..4].iter().map(|(_, place)| place.node.0).collect();
        assert_eq!(nodes[..2], [first, second], "SYNs leave in the order of the flows");
        let arrivals: Vec<u32> = log
            .first_packets
            .iter()
            .filter(|(_, place)| place.transit == holdover_sim::Transit::In)
            .map(|(_, place)| place.node.0)
            .collect();
        assert_eq!(arrivals[..2], [1, 0], "they arrive in the order of the link's directions");
    }
}
