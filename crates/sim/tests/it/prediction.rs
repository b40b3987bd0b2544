//! Predicted disconnections, compared with geometry computed by hand.

use holdover_base::{Duration, Instant};
use holdover_link::Length;
use holdover_mobility::{Chain, LinkEvent};
use holdover_sim::{Attachment, Movement, NodeId, Prediction, Repeat, Visits, World, WorldConfig, WorldEvent};

use crate::support::*;

const NODE: NodeId = NodeId(MOBILE);

fn predicting(movement: Movement, prediction: Prediction) -> WorldConfig {
    let mut config = cellular(movement, Attachment::HandoffTime(ms(100)));
    config.mobiles[0].prediction = Some(prediction);
    config.time_limit = Instant::from_secs(30);
    config
}

fn run(config: WorldConfig) -> Log {
    let mut log = Log::default();
    World::new(config).expect("a valid world").run(&mut log);
    log
}

fn foreseen(log: &Log) -> Vec<(f64, Option<Option<Duration>>)> {
    log.events
        .iter()
        .filter_map(|(at, event)| match *event {
            WorldEvent::Fading(NODE, _, lead) => Some((at.as_secs_f64(), Some(lead))),
            WorldEvent::Recovered(NODE, _) => Some((at.as_secs_f64(), None)),
            _ => None,
        })
        .collect()
}

// Claim: A disconnection is predicted where the inverse square law places the threshold: 66 ms before the edge for 0.5 % and 263
// ms for 2 % at 1.5 m/s and 40 m.
#[test]
fn the_lead_is_what_the_inverse_square_law_makes_of_the_threshold() {
    // With p percent, the warning circle has the radius 40 / sqrt(1 + p / 100): at 1.5 m/s, 66 ms and 263 ms before the
    // edge for 0.5 % and 2 %.
    for (percent, expected_ms) in [(0.5, 66.4), (2.0, 262.7), (20.0, 2_323.0)] {
        let movement = Movement::Path(line(&[30.0, 50.0], 1.5, 0));
        let log = run(predicting(movement, Prediction::Threshold { percent }));
        let edge = 10.0 / 1.5;
        let by_hand = (40.0 - 40.0 / (1.0 + percent / 100.0_f64).sqrt()) / 1.5;
        assert!((by_hand * 1e3 - expected_ms).abs() < 1.0, "{by_hand}");
        let lost = log.when(|event| *event == WorldEvent::ConnectivityLost(NODE))[0] / 1e3;
        assert!((lost - edge).abs() < 1e-8, "{lost}");
        let seen = foreseen(&log);
        let [(at, Some(Some(lead)))] = seen[..] else { panic!("{seen:?}") };
        assert!((at - (edge - by_hand)).abs() < 1e-8, "{at}");
        assert!((lead.as_secs_f64() - by_hand).abs() < 1e-8, "{lead}");
    }
}

#[test]
fn a_warning_is_taken_back_when_the_signal_rises_again() {
    // With 20 % the circle is at 36.51 m. The host moves to 39 m at 2 m/s and back: it crosses at 3.257 s, turns at 4.5 s, and crosses back
    // at 5.743 s.
    let path = holdover_sim::Path { repeat: Repeat::BackAndForth, ..line(&[30.0, 39.0], 2.0, 0) };
    let log = run(WorldConfig {
        time_limit: Instant::from_secs(8),
        ..predicting(Movement::Path(path), Prediction::Threshold { percent: 20.0 })
    });
    let circle = 40.0 / 1.2_f64.sqrt();
    let seen = foreseen(&log);
    let [(out, Some(Some(lead))), (back, None)] = seen[..] else { panic!("{seen:?}") };
    assert!((out - (circle - 30.0) / 2.0).abs() < 1e-8, "{out}");
    assert!((lead.as_secs_f64() - (40.0 - circle) / 2.0).abs() < 1e-8, "as if it went on: {lead}");
    assert!((back - (4.5 + (39.0 - circle) / 2.0)).abs() < 1e-8, "{back}");
    assert!(log.when(|event| *event == WorldEvent::ConnectivityLost(NODE)).is_empty());
}

#[test]
fn a_rising_signal_in_a_new_cell_gives_no_warning() {
    // The host enters the second cell and continues to its other edge.
    let log = run(predicting(Movement::Path(line(&[30.0, 130.0], 10.0, 0)), Prediction::Threshold { percent: 20.0 }));
    let seen = foreseen(&log);
    let circle = 40.0 / 1.2_f64.sqrt();
    let expected = [(circle - 30.0) / 10.0, (80.0 + circle - 30.0) / 10.0];
    assert_eq!(seen.len(), 2, "{seen:?}");
    for ((at, _), expected) in seen.iter().zip(expected) {
        assert!((at - expected).abs() < 1e-8, "{seen:?}");
    }
}

#[test]
fn a_path_across_is_measured_along_the_way_not_along_the_radius() {
    // 24 m off the centre: the edge is crossed at x = 32 (24, 32, 40), the circle of 2 % at sqrt(40^2 / 1.02 - 24^2).
    let mut path = line(&[0.0, 60.0], 4.0, 0);
    path.stops.iter_mut().for_each(|stop| stop.position.y_m = 24.0);
    let log = run(predicting(Movement::Path(path), Prediction::Threshold { percent: 2.0 }));
    let seen = foreseen(&log);
    let at = (1_600.0 / 1.02 - 576.0_f64).sqrt() / 4.0;
    let (got, Some(Some(lead))) = seen[0] else { panic!("{seen:?}") };
    assert!((got - at).abs() < 1e-8 && (lead.as_secs_f64() - (8.0 - at)).abs() < 1e-8, "{seen:?} {at}");
}

#[test]
fn a_host_can_know_its_schedule() {
    let visits = Visits {
        cells: vec![CELL_1, CELL_2],
        first_residence: Some(ms(80)),
        residence: Length::Constant(secs(5)),
        gap: Some(Length::Constant(secs(1))),
        moves: Some(2),
    };
    let log = run(predicting(Movement::Visits(visits), Prediction::Lead(ms(200))));
    // The host leaves at 0.08 s and 6.08 s; it never leaves the third cell. At the start, less than the lead remains.
    assert_eq!(foreseen(&log), [(0.0, Some(Some(ms(80)))), (5.88, Some(Some(ms(200))))]);
}

#[test]
fn the_mechanisms_of_a_host_hear_of_its_own_connectivity_alone() {
    let config = predicting(Movement::Path(line(&[30.0, 50.0], 5.0, 1_000)), Prediction::Threshold { percent: 20.0 });
    let mut world = World::new(config).unwrap();
    let (mobile, neighbour) = (Notes::default(), Notes::default());
    assert!(world.edit_chain(NODE, |chain| *chain = mobile.chain()));
    assert!(world.edit_chain(NodeId(NEIGHBOUR), |chain| *chain = neighbour.chain()));
    assert!(!world.edit_chain(GATEWAY, |chain| *chain = Chain::new()), "a router has no mechanisms");
    world.run(&mut holdover_sim::NoObserver);
    let heard = mobile.heard();
    let [
        (warned, LinkEvent::Fading { lead: Some(_) }),
        (3_000, LinkEvent::Down),
        (3_100, LinkEvent::Up { moved: true, .. }),
    ] = heard[..]
    else {
        panic!("{heard:?}")
    };
    assert_eq!(warned, 2_302, "36.51 m at 5 m/s, from 30 m at 1 s");
    assert!(neighbour.heard().is_empty());
}
