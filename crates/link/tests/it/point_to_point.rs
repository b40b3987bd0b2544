//! Scripts: frames in, and the expected output to the nanosecond.
//!
//! The link of most scripts sends 1000 bytes in 10 ms (800 kbit/s) and has 5 ms of propagation delay.

use std::sync::Arc;

use crate::common::{Seen, World, corrupted, delivered, dropped, ms, span_ms};
use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::{
    Alternating, AtEnd, ConditionTrace, ConfigError, DeliveryTrace, DropCause, InFlightFate, Jitter,
    JitterDistribution, Length, Link, LinkConfig, Loss, Outage, OutagePolicy, Outages, PointToPoint, QueueLimit,
    QueuedFate, Rate, Reordering, Timer,
};

pub(crate) fn config() -> LinkConfig {
    LinkConfig { rate: Rate::Fixed(BitRate::from_kbps(800)), delay: span_ms(5), ..LinkConfig::default() }
}

/// Down from 25 ms to 100 ms.
pub(crate) fn cut(queued: QueuedFate, in_flight: InFlightFate) -> LinkConfig {
    LinkConfig {
        outages: Outages::List(vec![Outage { down: ms(25), up: ms(100) }]),
        outage_policy: OutagePolicy { queued, in_flight },
        ..config()
    }
}

#[test]
fn frames_queue_for_the_line_and_then_travel() {
    let mut world = World::new(&config());
    for name in 0..3 {
        world.send(ms(0), name, 1000);
    }
    world.send(ms(40), 3, 500);
    world.expect(ms(1000), &[delivered(15, 0), delivered(25, 1), delivered(35, 2), delivered(50, 3)]);
    assert_eq!(world.link.poll_timeout(), None);
}

#[test]
fn the_limit_counts_those_that_wait_and_not_the_one_being_sent() {
    let mut world = World::new(&LinkConfig { queue_limit: QueueLimit::Packets(2), ..config() });
    for name in 0..4 {
        world.send(ms(0), name, 1000);
    }
    // The transmission of 1 starts at 10 ms and makes room at that instant.
    world.send(Instant::from_nanos(9_999_999), 4, 1000);
    world.send(ms(10), 5, 1000);
    let at = Instant::from_nanos(9_999_999);
    world.expect(
        ms(1000),
        &[
            dropped(0, 3, DropCause::QueueFull),
            Seen::Dropped { at, name: 4, cause: DropCause::QueueFull },
            delivered(15, 0),
            delivered(25, 1),
            delivered(35, 2),
            delivered(45, 5),
        ],
    );
    let statistics = world.link.statistics(ms(1000));
    assert_eq!(statistics.queue.high_water_packets, 2);
    assert_eq!(statistics.dropped.of(DropCause::QueueFull).bytes, 2000);
    // 1 waits 10 ms, 2 waits 20 ms, 5 waits 20 ms.
    assert_eq!(statistics.queue.packet_nanos, 50_000_000);
    assert!((statistics.queue.mean_packets(span_ms(1000)) - 0.05).abs() < 1e-12);
}

#[test]
fn a_limit_in_bytes_lets_small_frames_through() {
    let mut world = World::new(&LinkConfig { queue_limit: QueueLimit::Bytes(ByteCount(1500)), ..config() });
    for (name, len) in [(0, 1000), (1, 1000), (2, 600), (3, 500)] {
        world.send(ms(0), name, len);
    }
    world
        .expect(ms(1000), &[dropped(0, 2, DropCause::QueueFull), delivered(15, 0), delivered(25, 1), delivered(30, 3)]);
}

#[test]
fn link_overhead_takes_time() {
    let mut world = World::new(&LinkConfig { overhead_bytes: 200, ..config() });
    world.send(ms(0), 0, 1000);
    world.expect(ms(1000), &[delivered(17, 0)]);
}

#[test]
fn a_link_without_rate_is_all_delay() {
    let mut world = World::new(&LinkConfig { rate: Rate::Unlimited, queue_limit: QueueLimit::Packets(0), ..config() });
    for name in 0..3 {
        world.send(ms(0), name, 1_000_000);
    }
    world.expect(ms(1000), &[delivered(5, 0), delivered(5, 1), delivered(5, 2)]);
}

#[test]
fn a_held_queue_waits_and_a_half_sent_frame_continues() {
    let mut world = World::new(&LinkConfig {
        queue_limit: QueueLimit::Packets(3),
        ..cut(QueuedFate::Held, InFlightFate::Delivered)
    });
    for name in 0..4 {
        world.send(ms(0), name, 1000);
    }
    // 2 is half sent at 25 ms, and 1 is on the wire until then; 3 waits, and there is room for two more.
    for name in 4..7 {
        world.send(ms(60), name, 1000);
    }
    world.expect(
        ms(1000),
        &[
            delivered(15, 0),
            delivered(25, 1),
            Seen::Down(ms(25)),
            dropped(60, 6, DropCause::QueueFull),
            Seen::Up(ms(100)),
            delivered(110, 2),
            delivered(120, 3),
            delivered(130, 4),
            delivered(140, 5),
        ],
    );
}

#[test]
fn in_flight_frames_are_lost_with_a_half_sent_one_while_the_queue_is_held() {
    let mut world = World::new(&LinkConfig { delay: span_ms(8), ..cut(QueuedFate::Held, InFlightFate::Dropped) });
    for name in 0..4 {
        world.send(ms(0), name, 1000);
    }
    world.expect(
        ms(1000),
        &[
            delivered(18, 0),
            Seen::Down(ms(25)),
            dropped(25, 1, DropCause::CutOff),
            dropped(25, 2, DropCause::CutOff),
            Seen::Up(ms(100)),
            delivered(118, 3),
        ],
    );
}

#[test]
fn a_frame_that_arrives_at_the_moment_of_the_cut_has_arrived() {
    let mut world = World::new(&cut(QueuedFate::Held, InFlightFate::Dropped));
    world.send(ms(10), 0, 1000);
    world.expect(ms(50), &[delivered(25, 0), Seen::Down(ms(25))]);
}

#[test]
fn in_flight_frames_may_arrive_damaged() {
    let mut world = World::new(&LinkConfig { delay: span_ms(8), ..cut(QueuedFate::Held, InFlightFate::Corrupted) });
    for name in 0..3 {
        world.send(ms(0), name, 1000);
    }
    // 1 was on the wire. 2 was cut after half of it, and that half arrives.
    world.expect(ms(50), &[delivered(18, 0), Seen::Down(ms(25)), corrupted(28, 1), corrupted(33, 2)]);
}

#[test]
fn a_dropping_queue_is_emptied_at_the_cut_and_takes_nothing_until_link_up() {
    let mut world = World::new(&cut(QueuedFate::Dropped, InFlightFate::Delivered));
    for name in 0..5 {
        world.send(ms(0), name, 1000);
    }
    world.send(ms(60), 5, 1000);
    world.send(ms(100), 6, 1000);
    world.run_until(ms(1000));
    let seen = world.take();
    assert_eq!(
        seen.iter().filter(|seen| !matches!(seen, Seen::Down(_) | Seen::Up(_))).cloned().collect::<Vec<_>>(),
        [
            delivered(15, 0),
            delivered(25, 1),
            dropped(25, 2, DropCause::CutOff),
            dropped(25, 3, DropCause::LinkDown),
            dropped(25, 4, DropCause::LinkDown),
            dropped(60, 5, DropCause::LinkDown),
            delivered(115, 6),
        ]
    );
    // 3 and 4 left the queue at the cut: 10 (1) + 20 (2) + 25 + 25 ms of waiting.
    assert_eq!(world.link.statistics(ms(1000)).queue.packet_nanos, 80_000_000);
}

#[test]
fn an_unaware_transmitter_loses_frames_at_the_line_rate() {
    let mut world = World::new(&cut(QueuedFate::Lost, InFlightFate::Delivered));
    for name in 0..12 {
        world.send(ms(0), name, 1000);
    }
    world.run_until(ms(1000));
    let names = |wanted: fn(&Seen) -> Option<u32>| world.seen.iter().filter_map(wanted).collect::<Vec<u32>>();
    // From 20 ms to 100 ms eight frames are sent that overlap with the outage.
    let lost = names(|seen| match seen {
        Seen::Dropped { name, cause: DropCause::CutOff, .. } => Some(*name),
        _ => None,
    });
    assert_eq!(lost, (2..10).collect::<Vec<_>>());
    let arrived = names(|seen| match seen {
        Seen::Delivered { name, .. } => Some(*name),
        _ => None,
    });
    assert_eq!(arrived, [0, 1, 10, 11]);
    assert_eq!(world.seen.last(), Some(&delivered(125, 11)));
}

#[test]
fn an_outage_of_wrong_checksums_delivers_everything_damaged_and_on_time() {
    let mut world = World::new(&cut(QueuedFate::Corrupted, InFlightFate::Delivered));
    for name in 0..4 {
        world.send(ms(0), name, 1000);
    }
    world.expect(ms(50), &[delivered(15, 0), delivered(25, 1), Seen::Down(ms(25)), corrupted(35, 2), corrupted(45, 3)]);
}

#[test]
fn the_next_deadline_names_its_reason() {
    let mut link = PointToPoint::new(&cut(QueuedFate::Held, InFlightFate::Delivered), 1).unwrap();
    assert_eq!(link.poll_timeout(), Some((ms(25), Timer::Connectivity)));
    link.handle_packet(ms(0), crate::common::Named { name: 0, len: 1000 });
    assert_eq!(link.poll_timeout(), Some((ms(15), Timer::Arrival)));
}

#[test]
fn a_manual_cut_lasts_until_it_is_ended() {
    let mut world = World::new(&LinkConfig { queue_limit: QueueLimit::Packets(3), ..config() });
    for name in 0..4 {
        world.send(ms(0), name, 1000);
    }
    world.run_until(ms(12));
    world.link.set_up(ms(12), false);
    world.poll();
    assert!(!world.link.is_up());
    // 1 is half sent and counts as in flight. 2 and 3 wait, and there is room for one more.
    for name in 4..6 {
        world.send(ms(50), name, 1000);
    }
    world.run_until(ms(500));
    world.link.set_up(ms(500), true);
    world.poll();
    world.expect(
        ms(1000),
        &[
            Seen::Down(ms(12)),
            delivered(15, 0),
            delivered(25, 1),
            dropped(50, 5, DropCause::QueueFull),
            Seen::Up(ms(500)),
            delivered(515, 2),
            delivered(525, 3),
            delivered(535, 4),
        ],
    );
}

#[test]
fn a_manual_cut_follows_the_outage_policy() {
    let outage_policy = OutagePolicy { queued: QueuedFate::Dropped, in_flight: InFlightFate::Dropped };
    let mut world = World::new(&LinkConfig { outage_policy, ..config() });
    for name in 0..4 {
        world.send(ms(0), name, 1000);
    }
    world.run_until(ms(12));
    world.link.set_up(ms(12), false);
    world.run_until(ms(12));
    world.poll();
    world.send(ms(13), 4, 1000);
    world.link.set_up(ms(14), true);
    world.send(ms(14), 5, 1000);
    world.run_until(ms(100));
    let mut seen = world.take();
    seen.sort_by_key(|seen| match seen {
        Seen::Delivered { name, .. } | Seen::Dropped { name, .. } => *name,
        Seen::Down(_) => 100,
        Seen::Up(_) => 101,
        Seen::Forwards(_) => 102,
        Seen::AttemptFailed { .. } => unreachable!("a link without ARQ"),
    });
    assert_eq!(
        seen,
        [
            dropped(12, 0, DropCause::CutOff),
            dropped(12, 1, DropCause::CutOff),
            dropped(12, 2, DropCause::LinkDown),
            dropped(12, 3, DropCause::LinkDown),
            dropped(13, 4, DropCause::LinkDown),
            delivered(29, 5),
            Seen::Down(ms(12)),
            Seen::Up(ms(14)),
        ]
    );
}

/// Frames whose last bit is sent before the link forwards are dropped, whether held or new.
#[test]
fn frames_sent_before_the_link_forwards_are_dropped() {
    for queued in [QueuedFate::Held, QueuedFate::Dropped] {
        let mut world = World::new(&LinkConfig { forwards_after: span_ms(50), ..cut(queued, InFlightFate::Delivered) });
        world.send(ms(0), 0, 1000);
        world.expect(ms(99), &[delivered(15, 0), Seen::Down(ms(25))]);
        world.send(ms(100), 1, 1000);
        world.send(ms(139), 2, 1000);
        world.send(ms(140), 3, 1000);
        world.expect(
            ms(1000),
            &[
                Seen::Up(ms(100)),
                dropped(110, 1, DropCause::NotForwarding),
                dropped(149, 2, DropCause::NotForwarding),
                Seen::Forwards(ms(150)),
                delivered(164, 3),
            ],
        );
        assert_eq!(world.link.poll_timeout(), None);
    }
    let mut world =
        World::new(&LinkConfig { forwards_after: span_ms(15), ..cut(QueuedFate::Held, InFlightFate::Delivered) });
    world.send(ms(30), 0, 1000);
    world.send(ms(30), 1, 1000);
    let expected = [
        Seen::Down(ms(25)),
        dropped(110, 0, DropCause::NotForwarding),
        Seen::Up(ms(100)),
        Seen::Forwards(ms(115)),
        delivered(125, 1),
    ];
    world.run_until(ms(1000));
    let mut seen = world.take();
    seen.sort_by_key(Seen::at);
    let mut expected = expected.to_vec();
    expected.sort_by_key(Seen::at);
    assert_eq!(seen, expected);
}

/// A link that goes down again before it forwards has never forwarded; a manual cut is followed by late forwarding as
/// well.
#[test]
fn a_flap_starts_late_forwarding_anew() {
    let outages = Outages::List(vec![Outage { down: ms(10), up: ms(20) }, Outage { down: ms(40), up: ms(50) }]);
    let mut world = World::new(&LinkConfig { outages, forwards_after: span_ms(30), ..LinkConfig::default() });
    world.send(ms(25), 0, 100);
    world.send(ms(79), 1, 100);
    world.send(ms(80), 2, 100);
    world.expect(
        ms(1000),
        &[
            Seen::Down(ms(10)),
            Seen::Up(ms(20)),
            dropped(25, 0, DropCause::NotForwarding),
            Seen::Down(ms(40)),
            Seen::Up(ms(50)),
            dropped(79, 1, DropCause::NotForwarding),
            Seen::Forwards(ms(80)),
            delivered(80, 2),
        ],
    );
    world.link.set_up(ms(1000), false);
    world.link.set_up(ms(1010), true);
    world.poll();
    world.send(ms(1020), 3, 100);
    world.send(ms(1040), 4, 100);
    world.expect(
        ms(2000),
        &[
            Seen::Down(ms(1000)),
            Seen::Up(ms(1010)),
            dropped(1020, 3, DropCause::NotForwarding),
            Seen::Forwards(ms(1040)),
            delivered(1040, 4),
        ],
    );
}

#[test]
fn a_table_changes_rate_delay_loss_and_connectivity() {
    let text = "t,rate,delay,loss,up\n0,800 kbit/s,5 ms,0,1\n15 ms,400 kbit/s,20 ms,0,1\n45 ms,400 kbit/s,1 ms,0,1\n\
                100 ms,800 kbit/s,5 ms,1,1\n200 ms,800 kbit/s,5 ms,0,0\n300 ms,800 kbit/s,5 ms,0,1\n";
    let trace = ConditionTrace::parse(text, AtEnd::Stop).unwrap();
    let mut world = World::new(&LinkConfig { conditions: Some(Arc::new(trace)), ..config() });
    for name in 0..3 {
        world.send(ms(0), name, 1000);
    }
    world.send(ms(100), 3, 1000);
    world.send(ms(250), 4, 1000);
    world.expect(
        ms(1000),
        &[
            delivered(15, 0),
            // Half of it at each rate: sent by 25 ms.
            delivered(45, 1),
            // Sent by 45 ms with a delay of 1 ms: it comes behind its predecessor.
            delivered(46, 2),
            dropped(115, 3, DropCause::Loss),
            Seen::Down(ms(200)),
            Seen::Up(ms(300)),
            delivered(315, 4),
        ],
    );
}

#[test]
fn a_falling_delay_does_not_reorder() {
    let text = "t,delay\n0,100 ms\n15 ms,1 ms\n";
    let trace = ConditionTrace::parse(text, AtEnd::Stop).unwrap();
    let mut world = World::new(&LinkConfig { conditions: Some(Arc::new(trace)), ..config() });
    world.send(ms(0), 0, 1000);
    world.send(ms(0), 1, 1000);
    world.expect(ms(1000), &[delivered(110, 0), delivered(110, 1)]);
}

#[test]
fn a_frame_picked_for_reordering_skips_the_delay() {
    let reorder = Some(Reordering { probability: 1.0, gap: 3 });
    let mut world = World::new(&LinkConfig { delay: span_ms(50), reorder, ..config() });
    for name in 0..4 {
        world.send(ms(0), name, 1000);
    }
    world.expect(ms(1000), &[delivered(30, 2), delivered(60, 0), delivered(70, 1), delivered(90, 3)]);
}

#[test]
fn a_copy_queues_behind_the_original() {
    let mut world = World::new(&LinkConfig { duplicate: 1.0, queue_limit: QueueLimit::Packets(2), ..config() });
    world.send(ms(0), 0, 1000);
    world.send(ms(0), 1, 1000);
    world
        .expect(ms(1000), &[dropped(0, 1, DropCause::QueueFull), delivered(15, 0), delivered(25, 0), delivered(35, 1)]);
    let statistics = world.link.statistics(ms(1000));
    assert_eq!((statistics.offered.packets, statistics.duplicated.packets, statistics.delivered.packets), (2, 2, 3));
}

#[test]
fn loss_takes_the_line_and_damage_arrives() {
    let mut world = World::new(&LinkConfig { loss: Loss::Independent(1.0), ..config() });
    world.send(ms(0), 0, 1000);
    world.send(ms(0), 1, 1000);
    world.expect(ms(1000), &[dropped(15, 0, DropCause::Loss), dropped(25, 1, DropCause::Loss)]);
    let mut world = World::new(&LinkConfig { corrupt: 1.0, ..config() });
    world.send(ms(0), 0, 1000);
    world.expect(ms(1000), &[corrupted(15, 0)]);
    assert_eq!(world.link.statistics(ms(1000)).corrupted.packets, 1);
}

#[test]
fn jitter_keeps_the_order_unless_it_may_reorder() {
    for reorder in [false, true] {
        let jitter = Jitter { amplitude: span_ms(5), distribution: JitterDistribution::Uniform, reorder };
        let mut world = World::new(&LinkConfig { rate: Rate::Unlimited, jitter: Some(jitter), ..config() });
        for name in 0..200 {
            world.send(Instant::from_micros(u64::from(name) * 100), name, 1000);
        }
        world.run_until(ms(1000));
        let names: Vec<u32> = world
            .seen
            .iter()
            .map(|seen| match seen {
                Seen::Delivered { name, .. } => *name,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(names.len(), 200);
        assert_eq!(!names.is_sorted(), reorder);
    }
}

#[test]
fn a_shell_that_comes_late_gets_the_same_frames_with_their_times() {
    let mut link = PointToPoint::new(&config(), 1).unwrap();
    for name in 0..3 {
        link.handle_packet(ms(0), crate::common::Named { name, len: 1000 });
    }
    let times: Vec<_> = std::iter::from_fn(|| link.poll_deliver(ms(30))).map(|delivery| delivery.at).collect();
    assert_eq!(times, [ms(15), ms(25)]);
    // Time that runs backwards is treated as standing still.
    link.handle_packet(ms(40), crate::common::Named { name: 3, len: 1000 });
    link.handle_packet(ms(1), crate::common::Named { name: 4, len: 1000 });
    let times: Vec<_> = std::iter::from_fn(|| link.poll_deliver(ms(100))).map(|delivery| delivery.at).collect();
    assert_eq!(times, [ms(35), ms(55), ms(65)]);
}

#[test]
fn a_table_and_a_schedule_that_exclude_each_other_for_ever_do_not_hang() {
    let trace = ConditionTrace::parse("t,rate\n0,1e6\n1,0\n2,0\n", AtEnd::Repeat).unwrap();
    let outages = Outages::Alternating(Alternating {
        initial_connected: Some(Duration::ZERO),
        connected: Length::Constant(Duration::from_secs(1)),
        disconnected: Length::Constant(Duration::from_secs(1)),
        count: None,
    });
    let mut world = World::new(&LinkConfig { conditions: Some(Arc::new(trace)), outages, ..config() });
    world.send(ms(0), 0, 1000);
    world.run_until(Instant::from_secs(10));
    assert_eq!(world.link.statistics(Instant::from_secs(10)).queue.packets, 1);
}

#[test]
fn both_directions_go_down_together_and_lose_frames_independently() {
    let length = Length::Exponential { mean: Duration::from_secs(1) };
    let plan = Alternating { initial_connected: None, connected: length, disconnected: length, count: None };
    let config = LinkConfig { outages: Outages::Alternating(plan), loss: Loss::Independent(0.5), ..config() };
    let run = |seed| {
        let mut world = World::new(&config);
        world.link = PointToPoint::with_outage_seed(&config, seed, 7).unwrap();
        for name in 0..100 {
            world.send(ms(u64::from(name) * 100), name, 100);
        }
        let (changes, frames): (Vec<_>, Vec<_>) =
            world.take().into_iter().partition(|seen| matches!(seen, Seen::Down(_) | Seen::Up(_)));
        (changes, frames)
    };
    let (one, other) = (run(1), run(2));
    assert!(one.0.len() > 2);
    assert_eq!(one.0, other.0);
    assert_ne!(one.1, other.1);
}

#[test]
fn invalid_configurations_are_refused() {
    let refused = |config: LinkConfig| PointToPoint::<crate::common::Named>::new(&config, 1).expect_err("refused");
    assert_eq!(refused(LinkConfig { rate: Rate::Fixed(BitRate(0)), ..config() }), ConfigError::ZeroRate);
    assert!(matches!(refused(LinkConfig { duplicate: 1.5, ..config() }), ConfigError::Probability { .. }));
    assert!(matches!(refused(LinkConfig { corrupt: -0.5, ..config() }), ConfigError::Probability { .. }));
    let reorder = Some(Reordering { probability: f64::NAN, gap: 0 });
    assert!(matches!(refused(LinkConfig { reorder, ..config() }), ConfigError::Probability { .. }));
    let table = |text| Some(Arc::new(ConditionTrace::parse(text, AtEnd::Stop).unwrap()));
    let both = LinkConfig { conditions: table("t,up\n0,1\n"), ..cut(QueuedFate::Held, InFlightFate::Delivered) };
    assert_eq!(refused(both), ConfigError::OutagesTwice);
    let deliveries = Rate::Deliveries(Arc::new(DeliveryTrace::parse("1\n", AtEnd::Repeat).unwrap()));
    let both = LinkConfig { conditions: table("t,rate\n0,1\n"), rate: deliveries, ..config() };
    assert_eq!(refused(both), ConfigError::RateTwice);
}
