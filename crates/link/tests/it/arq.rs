//! Links with ARQ: scripts, the theory of repeated trials, and random schedules with bounds.
//!
//! The link of the scripts sends 1000 bytes in 10 ms (800 kbit/s), has 5 ms of propagation delay, and waits 20 ms for acknowledgements.

use std::collections::BTreeMap;

use crate::common::{Seen, World, delivered, dropped, ms, span_ms};
use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::{
    Arq, CoDel, ConfigError, DropCause, InFlightFate, Jitter, JitterDistribution, Link, LinkConfig, Loss, Outage,
    OutagePolicy, Outages, QueueLimit, QueuedFate, Rate,
};
use proptest::prelude::*;

fn failed(millis: u64, name: u32) -> Seen {
    Seen::AttemptFailed { at: ms(millis), name }
}

/// Frames sent while the link is down, between these milliseconds, are lost.
fn config(down: u64, up: u64, arq: Arq) -> LinkConfig {
    LinkConfig {
        rate: Rate::Fixed(BitRate::from_kbps(800)),
        delay: span_ms(5),
        outages: Outages::List(vec![Outage { down: ms(down), up: ms(up) }]),
        outage_policy: OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped },
        arq: Some(arq),
        ..LinkConfig::default()
    }
}

fn world(config: &LinkConfig, frames: u32) -> World {
    let mut world = World::new(config);
    for name in 0..frames {
        world.send(ms(0), name, 1000);
    }
    world
}

/// 2 is sent from 20 to 30 ms, and again from 50 to 60; 3 from 30 to 40, and again from 60 to 70.
#[test]
fn lost_frames_are_retransmitted_and_delivered_in_order() {
    let config = config(25, 60, Arq::default());
    let mut world = world(&config, 4);
    let expected = [
        delivered(15, 0),
        delivered(25, 1),
        Seen::Down(ms(25)),
        failed(50, 2),
        Seen::Up(ms(60)),
        failed(60, 3),
        failed(80, 2),
        delivered(95, 2),
        delivered(95, 3),
    ];
    world.expect(ms(1000), &expected);
    let statistics = world.link.statistics(ms(1000));
    assert_eq!((statistics.retransmitted.packets, statistics.retransmitted.bytes), (3, 3000));
    assert_eq!((statistics.delivered.packets, statistics.under_way), (4, 0));
    assert_eq!((statistics.transmitted().packets, statistics.transmitted().bytes), (7, 7000));
    assert_eq!(world.link.poll_timeout(), None);
}

/// Frames that wait and frames that the queue refused were not transmitted; frames lost on the wire were.
#[test]
fn transmissions_are_those_that_have_begun() {
    let config = LinkConfig {
        queue_limit: QueueLimit::Packets(1),
        arq: None,
        outages: Outages::List(vec![Outage { down: ms(12), up: ms(60) }]),
        ..config(12, 60, Arq::default())
    };
    let mut world = world(&config, 5);
    let transmitted = |world: &World| world.link.statistics(world.now).transmitted().packets;
    assert_eq!(transmitted(&world), 1);
    world.run_until(ms(1000));
    assert_eq!(world.link.statistics(ms(1000)).dropped.of(DropCause::QueueFull).packets, 3);
    assert_eq!(world.link.statistics(ms(1000)).dropped.of(DropCause::CutOff).packets, 2);
    assert_eq!(transmitted(&world), 2);
}

#[test]
fn without_order_frames_are_passed_on_as_they_come() {
    let config = config(25, 60, Arq { in_order: false, ..Arq::default() });
    let mut world = world(&config, 4);
    world.run_until(ms(1000));
    let arrivals: Vec<Seen> = world.take().into_iter().filter(|seen| matches!(seen, Seen::Delivered { .. })).collect();
    assert_eq!(arrivals, [delivered(15, 0), delivered(25, 1), delivered(75, 3), delivered(95, 2)]);
}

#[test]
fn a_dropped_frame_blocks_no_other() {
    let config = config(25, 60, Arq { attempts: Some(2), ..Arq::default() });
    let mut world = world(&config, 4);
    let expected = [
        delivered(15, 0),
        delivered(25, 1),
        Seen::Down(ms(25)),
        failed(50, 2),
        Seen::Up(ms(60)),
        failed(60, 3),
        delivered(80, 3),
        failed(80, 2),
        dropped(80, 2, DropCause::AttemptsUsed),
    ];
    world.expect(ms(1000), &expected);
    assert_eq!(world.link.statistics(ms(1000)).dropped.of(DropCause::AttemptsUsed).packets, 1);
}

/// 0 is lost until 10 ms, which is known at 30 ms, when 3 is being sent and 4 waits.
#[test]
fn a_retransmission_is_sent_before_frames_that_entered_later() {
    let config = config(1, 5, Arq { in_order: false, ..Arq::default() });
    let mut world = world(&config, 5);
    world.run_until(ms(1000));
    let seen = world.take();
    let arrivals: Vec<&Seen> = seen.iter().filter(|seen| matches!(seen, Seen::Delivered { .. })).collect();
    let expected = [delivered(25, 1), delivered(35, 2), delivered(45, 3), delivered(55, 0), delivered(65, 4)];
    assert_eq!(arrivals, expected.iter().collect::<Vec<_>>());
}

/// Frames held or refused by a link that is down were not transmitted.
#[test]
fn frames_that_were_not_transmitted_are_not_retransmitted() {
    for (queued, cause) in [(QueuedFate::Held, None), (QueuedFate::Dropped, Some(DropCause::LinkDown))] {
        let mut config = config(5, 60, Arq::default());
        config.outage_policy = OutagePolicy { queued, in_flight: InFlightFate::Delivered };
        let mut world = World::new(&config);
        world.send(ms(10), 7, 1000);
        world.run_until(ms(1000));
        let seen = world.take();
        assert!(!seen.iter().any(|seen| matches!(seen, Seen::AttemptFailed { .. })), "{seen:?}");
        match cause {
            None => assert!(seen.contains(&delivered(75, 7)), "{seen:?}"),
            Some(cause) => assert!(seen.contains(&dropped(10, 7, cause)), "{seen:?}"),
        }
    }
}

#[test]
fn unlimited_attempts_survive_any_outage() {
    let config = config(0, 30_000, Arq { attempts: None, ..Arq::default() });
    let mut world = world(&config, 10);
    world.run_until(ms(40_000));
    let arrivals: Vec<Instant> = world.take().iter().filter_map(at_if_delivered).collect();
    assert_eq!(arrivals.len(), 10);
    // Each of ten frames is retransmitted every 100 ms, the duration of ten transmissions.
    assert!(arrivals[9] <= ms(30_000 + 100 + 100 + 5), "{arrivals:?}");
    assert_eq!(world.link.statistics(ms(40_000)).dropped.total().packets, 0);
}

#[test]
fn bad_settings_are_refused() {
    let with = |arq| LinkConfig { arq: Some(arq), ..LinkConfig::default() }.check();
    assert!(matches!(with(Arq { attempts: Some(0), ..Arq::default() }), Err(ConfigError::NotPositive { .. })));
    assert!(matches!(with(Arq { timeout: Duration::ZERO, ..Arq::default() }), Err(ConfigError::NoLength { .. })));
    assert_eq!(with(Arq::default()), Ok(()));
}

/// Transmissions of a frame are geometric with mean 1 / (1 - p); a frame is lost with probability p^attempts.
#[test]
fn trials_are_independent() {
    const FRAMES: u32 = 20_000;
    let p = 0.2_f64;
    let arq = Arq { attempts: Some(3), in_order: false, ..Arq::default() };
    let config = LinkConfig { loss: Loss::Independent(p), arq: Some(arq), ..LinkConfig::default() };
    let mut world = World::with_seed(&config, 7);
    for name in 0..FRAMES {
        world.send(ms(u64::from(name)), name, 100);
    }
    world.run_until(ms(u64::from(FRAMES) + 1000));
    let statistics = world.link.statistics(world.now);
    let n = f64::from(FRAMES);
    let near = |count: u64, share: f64| {
        // Five standard errors of a share.
        let error = 5.0 * (share * (1.0 - share) / n).sqrt();
        assert!((count as f64 / n - share).abs() < error, "{count} of {n}, expected {share}");
    };
    near(statistics.dropped.of(DropCause::AttemptsUsed).packets, p.powi(3));
    // The second transmission has a share of p, and the third of p^2: their sum varies by less than twice a share of p.
    let share = p + p * p;
    let error = 10.0 * (p * (1.0 - p) / n).sqrt();
    assert!((statistics.retransmitted.packets as f64 / n - share).abs() < error, "{:?}", statistics.retransmitted);
}

fn at_if_delivered(seen: &Seen) -> Option<Instant> {
    match seen {
        Seen::Delivered { at, .. } => Some(*at),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Random losses and outages: no duplicates, attempts and time are bounded, and order is kept if configured.
    #[test]
    fn attempts_time_and_order_are_bounded(
        loss in 0.0..0.9,
        outages in prop::collection::vec((1_u64..300, 1_u64..300), 0..6),
        attempts in 1_u32..15,
        timeout in 1_u64..60,
        delay in 0_u64..30,
        in_order in any::<bool>(),
        lens in prop::collection::vec(40_u32..1500, 1..40),
        limit in 0_u32..60,
        seed in any::<u64>(),
    ) {
        let rate = BitRate::from_kbps(2_000);
        let mut at = 0;
        let list: Vec<Outage> = outages.iter().map(|&(up, down)| {
            let begin = at + up;
            at = begin + down;
            Outage { down: ms(begin), up: ms(at) }
        }).collect();
        let config = LinkConfig {
            rate: Rate::Fixed(rate),
            delay: span_ms(delay),
            loss: Loss::Independent(loss),
            queue_limit: QueueLimit::Packets(limit),
            outages: Outages::List(list),
            outage_policy: OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped },
            arq: Some(Arq { attempts: Some(attempts), timeout: span_ms(timeout), in_order }),
            ..LinkConfig::default()
        };
        let mut world = World::with_seed(&config, seed);
        for (name, &len) in (0..).zip(&lens) {
            world.send(ms(0), name, len);
        }
        let total: u64 = lens.iter().map(|&len| u64::from(len)).sum();
        let longest = rate.transmission_time(ByteCount(total * u64::from(attempts)))
            + (span_ms(timeout) + span_ms(delay)) * u64::from(attempts)
            // Each transmission is rounded up to a nanosecond.
            + Duration::from_micros(1);
        world.run_until(Instant::ZERO + longest);
        let statistics = world.link.statistics(world.now);
        prop_assert_eq!(statistics.under_way, 0);
        let mut failures: BTreeMap<u32, u32> = BTreeMap::new();
        let mut ends: BTreeMap<u32, u32> = BTreeMap::new();
        for seen in &world.seen {
            match seen {
                Seen::AttemptFailed { name, .. } => {
                    *failures.entry(*name).or_default() += 1;
                }
                Seen::Delivered { name, .. } => {
                    *ends.entry(*name).or_default() += 1;
                    prop_assert!(failures.get(name).is_none_or(|&count| count < attempts));
                }
                Seen::Dropped { name, cause, .. } => {
                    *ends.entry(*name).or_default() += 1;
                    let count = failures.get(name).copied().unwrap_or(0);
                    match cause {
                        DropCause::AttemptsUsed => prop_assert_eq!(count, attempts),
                        cause => prop_assert_eq!((*cause, count), (DropCause::QueueFull, 0)),
                    }
                }
                Seen::Down(_) | Seen::Up(_) | Seen::Forwards(_) => {}
            }
        }
        prop_assert!(ends.len() == lens.len() && ends.values().all(|&count| count == 1));
        let arrivals: Vec<u32> = world.seen.iter().filter_map(|seen| match seen {
            Seen::Delivered { name, .. } => Some(*name),
            _ => None,
        }).collect();
        prop_assert!(!in_order || arrivals.is_sorted(), "{arrivals:?}");
        let repeated: u32 = failures.iter().map(|(_, &count)| if count == attempts { count - 1 } else { count }).sum();
        prop_assert_eq!(statistics.retransmitted.packets, u64::from(repeated));
    }

    /// With every other impairment, and however late the link is polled: each frame, and each copy of one, has one end.
    // Claim: On a link with ARQ and any other impairments, outages and CoDel, polled on time or late, each frame and each copy of
    // one has one end.
    #[test]
    fn every_frame_has_one_end_whatever_else_the_link_does(
        impairments in (0.0..0.5, 0.0..0.3, 0.0..0.3, any::<bool>(), any::<bool>(), 0_u64..200),
        outages in prop::collection::vec((1_u64..300, 1_u64..300), 0..6),
        queued in prop::sample::select(vec![QueuedFate::Held, QueuedFate::Dropped, QueuedFate::Lost, QueuedFate::Corrupted]),
        in_flight in prop::sample::select(vec![InFlightFate::Delivered, InFlightFate::Dropped, InFlightFate::Corrupted]),
        attempts in 1_u32..15,
        frames in prop::collection::vec((0_u64..100, 40_u32..1500, any::<bool>()), 1..120),
        seed in any::<u64>(),
    ) {
        let (loss, duplicate, corrupt, has_jitter, has_codel, forwards_after) = impairments;
        let mut at = 0;
        let list = outages.iter().map(|&(up, down)| {
            let begin = at + up;
            at = begin + down;
            Outage { down: ms(begin), up: ms(at) }
        });
        let config = LinkConfig {
            rate: Rate::Fixed(BitRate::from_kbps(800)),
            delay: span_ms(20),
            outages: Outages::List(list.collect()),
            outage_policy: OutagePolicy { queued, in_flight },
            forwards_after: span_ms(forwards_after),
            loss: Loss::Independent(loss),
            duplicate,
            corrupt,
            jitter: has_jitter.then_some(Jitter {
                amplitude: span_ms(10),
                distribution: JitterDistribution::Uniform,
                reorder: seed.is_multiple_of(2),
            }),
            codel: has_codel.then(CoDel::default),
            arq: Some(Arq { attempts: Some(attempts), timeout: span_ms(20), in_order: seed.is_multiple_of(3) }),
            ..LinkConfig::default()
        };
        let mut world = World::with_seed(&config, seed);
        let mut at = 0;
        for (name, &(pause, len, is_late)) in (0..).zip(&frames) {
            at += pause;
            if is_late {
                // Polled without the deadlines before.
                world.now = ms(at);
                world.poll();
                world.link.handle_timeout(ms(at));
                world.poll();
                world.link.handle_packet(ms(at), crate::common::Named { name, len });
            } else {
                world.send(ms(at), name, len);
            }
        }
        world.run_until(ms(3_600_000));
        let statistics = world.link.statistics(world.now);
        prop_assert_eq!(statistics.under_way, 0);
        let ends = world.seen.iter().filter(|seen| matches!(seen, Seen::Delivered { .. } | Seen::Dropped { .. })).count();
        prop_assert_eq!(ends as u64, frames.len() as u64 + statistics.duplicated.packets);
    }
}
