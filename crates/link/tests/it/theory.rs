//! Links against theory: queueing, and the ideal time against a simulation without shortcuts.

use std::sync::Arc;

use crate::common::{Named, World};
use holdover_base::{BitRate, ByteCount, Duration, Instant, Rng};
use holdover_link::{
    Alternating, AtEnd, Capacity, ConditionTrace, DeliveryTrace, Length, Link, LinkConfig, Outage, Outages,
    PointToPoint, Rate,
};
use proptest::prelude::*;

/// Poisson arrivals of frames of one length at a fixed rate: M/D/1. Pollaczek and Khinchine: rho^2 / (2 (1 - rho)) wait.
///
/// The tolerance is three standard errors from 20 independent runs, whose own spread the test measures; the theory must lie
/// within it. The first tenth of each run, in which the queue fills up from empty, is not counted.
#[test]
fn the_mean_queue_is_that_of_m_d_1() {
    for rho in [0.5, 0.8] {
        let means: Vec<f64> = (0..20).map(|seed| mean_queue(rho, seed)).collect();
        let mean = means.iter().sum::<f64>() / 20.0;
        let variance = means.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 19.0;
        let standard_error = (variance / 20.0).sqrt();
        let theory = rho * rho / (2.0 * (1.0 - rho));
        assert!((mean - theory).abs() < 3.0 * standard_error, "rho {rho}: {mean} against {theory} +- {standard_error}");
        assert!(standard_error < 0.01 * theory, "the runs are long enough to tell: {standard_error}");
    }
}

fn mean_queue(rho: f64, seed: u64) -> f64 {
    // 1000 bytes take 1 ms.
    let config = LinkConfig { rate: Rate::Fixed(BitRate::from_mbps(8)), ..LinkConfig::default() };
    let mut link = PointToPoint::new(&config, seed).unwrap();
    let mut rng = Rng::new(seed);
    let mut now = Instant::ZERO;
    let (warm, end) = (Instant::from_secs(20), Instant::from_secs(200));
    let mut at_warm = None;
    while now < end {
        now += Duration::from_secs_f64(rng.exponential(1e-3 / rho));
        if now >= warm && at_warm.is_none() {
            at_warm = Some(link.statistics(warm).queue.packet_nanos);
        }
        link.handle_packet(now, Named { name: 0, len: 1000 });
        while link.poll_deliver(now).is_some() {}
    }
    let counted = link.statistics(end).queue.packet_nanos - at_warm.expect("the run is longer than the warm-up");
    counted as f64 / end.saturating_since(warm).as_nanos() as f64
}

fn outages() -> impl Strategy<Value = Outages> {
    let length = || {
        prop_oneof![
            (1_u64..3_000).prop_map(|millis| Length::Constant(Duration::from_millis(millis))),
            (1_u64..3_000).prop_map(|millis| Length::Exponential { mean: Duration::from_millis(millis) }),
        ]
    };
    prop_oneof![
        Just(Outages::Never),
        (length(), length()).prop_map(|(connected, disconnected)| Outages::Alternating(Alternating {
            initial_connected: None,
            connected,
            disconnected,
            count: None
        })),
    ]
}

fn rate() -> impl Strategy<Value = (Rate, Option<Arc<ConditionTrace>>)> {
    let deliveries = prop::collection::vec(0_u64..40, 1..60).prop_map(|gaps| {
        let mut text = String::new();
        let mut at = 1;
        for gap in gaps {
            at += gap;
            text.push_str(&format!("{at}\n"));
        }
        (Rate::Deliveries(Arc::new(DeliveryTrace::parse(&text, AtEnd::Repeat).unwrap())), None)
    });
    let steps = prop::collection::vec((1_u64..2_000, prop_oneof![Just(0), 50_u64..5_000]), 1..10).prop_map(|rows| {
        let mut text = String::from("t,rate\n0,1 Mbit/s\n");
        let mut at = 0;
        for (millis, kbps) in rows {
            at += millis;
            text.push_str(&format!("{at} ms,{kbps} kbit/s\n"));
        }
        (Rate::Unlimited, Some(Arc::new(ConditionTrace::parse(&text, AtEnd::Repeat).unwrap())))
    });
    prop_oneof![(50_u64..5_000).prop_map(|kbps| (Rate::Fixed(BitRate::from_kbps(kbps)), None)), deliveries, steps,]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// A link with a permanent backlog is busy whenever possible: the time of its last delivery is the ideal.
    #[test]
    fn the_ideal_time_is_that_of_a_saturated_link(
        (rate, conditions) in rate(), outages in outages(), seed in any::<u64>(), frames in 1_u32..300,
    ) {
        let config = LinkConfig { rate, conditions, outages, ..LinkConfig::default() };
        let mut world = World::with_seed(&config, seed);
        for name in 0..frames {
            world.send(Instant::ZERO, name, 1000);
        }
        let mut last = Instant::ZERO;
        let mut left = frames;
        while left > 0 {
            let (at, _) = world.link.poll_timeout().expect("the link gets there");
            world.now = at;
            world.link.handle_timeout(at);
            while let Some(delivery) = world.link.poll_deliver(at) {
                (last, left) = (delivery.at, left - 1);
            }
            while world.link.poll_event().is_some() {}
        }
        let capacity = Capacity::new(&config, seed).unwrap();
        let amount = ByteCount(u64::from(frames) * 1000);
        let ideal = capacity.time_for(amount, Instant::ZERO).expect("the link gets there");
        let got = last.saturating_since(Instant::ZERO);
        prop_assert!(got >= ideal, "{got} before {ideal}");
        // Each of the link's transmissions is rounded up to a nanosecond. At 5 Mb/s 300 of those are less than a byte.
        let one_more = capacity.time_for(ByteCount(amount.0 + 1), Instant::ZERO).expect("the link gets there");
        prop_assert!(got <= one_more, "{got} long after {ideal}");
        if matches!(config.rate, Rate::Deliveries(_)) {
            prop_assert_eq!(got, ideal, "opportunities come at whole nanoseconds");
        }

        // The integral up to then is that amount; a nanosecond earlier it has not been reached.
        let end = Instant::ZERO + ideal + Duration::from_nanos(1);
        prop_assert!(capacity.integral(Instant::ZERO, end) >= amount);
        let (Rate::Fixed(_) | Rate::Unlimited) = config.rate else {
            prop_assert!(capacity.integral(Instant::ZERO, Instant::ZERO + ideal) < amount);
            return Ok(());
        };
        prop_assert!(capacity.integral(Instant::ZERO, Instant::ZERO + ideal - Duration::from_nanos(1)) < amount);
    }

    #[test]
    fn the_integral_adds_up(
        (rate, conditions) in rate(), outages in outages(), cuts in (0_u64..9_000, 0_u64..9_000, 0_u64..9_000),
    ) {
        let config = LinkConfig { rate, conditions, outages, ..LinkConfig::default() };
        let capacity = Capacity::new(&config, 5).unwrap();
        let mut at = [cuts.0, cuts.1, cuts.2].map(Instant::from_millis);
        at.sort_unstable();
        let parts = capacity.integral(at[0], at[1]).0 + capacity.integral(at[1], at[2]).0;
        let whole = capacity.integral(at[0], at[2]).0;
        // Each part is rounded down to a byte.
        prop_assert!(whole == parts || whole == parts + 1, "{whole} against {parts}");
    }
}

#[test]
fn capacities_by_hand() {
    let at = Instant::from_secs;
    let outages = Outages::List(vec![Outage { down: at(10), up: at(30) }, Outage { down: at(40), up: at(45) }]);
    let rate = Rate::Fixed(BitRate::from_kbps(8));
    let capacity = Capacity::new(&LinkConfig { rate, outages: outages.clone(), ..LinkConfig::default() }, 1).unwrap();
    assert_eq!(capacity.integral(at(0), at(50)), ByteCount(25_000));
    assert_eq!(capacity.integral(at(12), at(28)), ByteCount(0));
    assert_eq!(capacity.up_time(at(5), at(42)), Duration::from_secs(15));
    assert_eq!(capacity.time_for(ByteCount(10_000), at(0)), Some(Duration::from_secs(10)));
    assert_eq!(capacity.time_for(ByteCount(10_001), at(0)), Some(Duration::from_millis(30_001)));
    assert_eq!(capacity.time_for(ByteCount(1_000), at(12)), Some(Duration::from_secs(19)));

    let unlimited = Capacity::new(&LinkConfig { outages, ..LinkConfig::default() }, 1).unwrap();
    assert_eq!(unlimited.integral(at(0), at(1)), ByteCount(u64::MAX));
    assert_eq!(unlimited.integral(at(12), at(13)), ByteCount(0));
    assert_eq!(unlimited.time_for(ByteCount(1), at(12)), Some(Duration::from_secs(18)));

    let trace = Arc::new(DeliveryTrace::parse("1\n", AtEnd::Stop).unwrap());
    let once = Capacity::new(&LinkConfig { rate: Rate::Deliveries(trace), ..LinkConfig::default() }, 1).unwrap();
    assert_eq!(once.integral(at(0), at(1000)), ByteCount(1500));
    assert_eq!(once.time_for(ByteCount(1500), at(0)), Some(Duration::from_millis(1)));
    assert_eq!(once.time_for(ByteCount(1501), at(0)), None);
}

/// The connected share of time of an alternating schedule is `connected / (connected + disconnected)` of the means.
#[test]
fn the_connected_share_is_that_of_the_means() {
    let outages = Outages::Alternating(Alternating {
        initial_connected: None,
        connected: Length::Exponential { mean: Duration::from_secs(5) },
        disconnected: Length::Exponential { mean: Duration::from_secs(2) },
        count: None,
    });
    let capacity = Capacity::new(&LinkConfig { outages, ..LinkConfig::default() }, 3).unwrap();
    let cycles = 20_000.0_f64;
    let run = Duration::from_secs_f64(7.0 * cycles);
    let share = capacity.up_time(Instant::ZERO, Instant::ZERO + run).as_secs_f64() / run.as_secs_f64();
    // Renewal theory: variance of the share is (c^2 sd_d^2 + d^2 sd_c^2) / (c + d)^4 a cycle, with sd = mean if exponential.
    let standard_error = (2.0 * 25.0 * 4.0 / 7.0_f64.powi(4) / cycles).sqrt();
    assert!((share - 5.0 / 7.0).abs() < 4.0 * standard_error, "{share}");
}

/// Late forwarding is part of the outage, and outages that touch because of it are one.
#[test]
fn a_link_that_forwards_late_carries_for_less_time() {
    let at = Instant::from_secs;
    let outages = Outages::List(vec![Outage { down: at(10), up: at(12) }, Outage { down: at(14), up: at(15) }]);
    let config = LinkConfig { outages, forwards_after: Duration::from_secs(3), ..LinkConfig::default() };
    let capacity = Capacity::new(&config, 1).unwrap();
    assert_eq!(capacity.up_time(Instant::ZERO, at(20)), Duration::from_secs(12));
    assert_eq!(capacity.time_for(ByteCount(1), at(11)), Some(Duration::from_secs(7)));
    assert_eq!((capacity.next_down(Instant::ZERO), capacity.next_down(at(12))), (Some(at(10)), None));
    // It flaps for ever, and never forwards.
    let outages = Outages::periodic(Duration::from_secs(1), Duration::from_secs(1));
    let capacity = Capacity::new(&LinkConfig { outages, ..config }, 1).unwrap();
    assert_eq!(capacity.up_time(Instant::ZERO, at(20)), Duration::from_secs(1));
    assert_eq!((capacity.time_for(ByteCount(1), at(2)), capacity.next_down(at(2))), (None, None));
}
