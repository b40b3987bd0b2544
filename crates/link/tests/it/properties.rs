//! Properties of all links under any traffic.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Seen, World};
use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::{
    Alternating, Arq, AtEnd, ConditionTrace, DeliveryTrace, GilbertElliott, InFlightFate, Jitter, JitterDistribution,
    Length, LinkConfig, Loss, OutagePolicy, Outages, QueueLimit, QueuedFate, Rate, Reordering,
};
use proptest::prelude::*;

/// Arrivals: the time since the previous one in microseconds, and the length in bytes.
type Traffic = Vec<(u64, u32)>;

fn traffic() -> impl Strategy<Value = Traffic> {
    prop::collection::vec((prop_oneof![Just(0), 0_u64..3_000, 0_u64..200_000], 1_u32..2_000), 1..120)
}

fn queue_limit() -> impl Strategy<Value = QueueLimit> {
    prop_oneof![
        Just(QueueLimit::Unlimited),
        (0_u32..40).prop_map(QueueLimit::Packets),
        (0_u64..40_000).prop_map(|bytes| QueueLimit::Bytes(ByteCount(bytes))),
    ]
}

fn length() -> impl Strategy<Value = Length> {
    let span = || (1_u64..400).prop_map(Duration::from_millis);
    prop_oneof![
        span().prop_map(Length::Constant),
        span().prop_map(|mean| Length::Exponential { mean }),
        (span(), span()).prop_map(|(mean, standard_deviation)| Length::Normal { mean, standard_deviation }),
        span().prop_map(|max| Length::Uniform { min: Duration::from_micros(10), max }),
    ]
}

fn outages() -> impl Strategy<Value = Outages> {
    prop_oneof![
        Just(Outages::Never),
        (length(), length()).prop_map(|(connected, disconnected)| {
            Outages::Alternating(Alternating { initial_connected: None, connected, disconnected, count: None })
        }),
    ]
}

fn outage_policy() -> impl Strategy<Value = OutagePolicy> {
    use InFlightFate as Flight;
    use QueuedFate as Queued;
    (
        prop::sample::select(vec![Queued::Held, Queued::Dropped, Queued::Lost, Queued::Corrupted]),
        prop::sample::select(vec![Flight::Delivered, Flight::Dropped, Flight::Corrupted]),
    )
        .prop_map(|(queued, in_flight)| OutagePolicy { queued, in_flight })
}

prop_compose! {
    /// A link without random impairments.
    fn orderly()(
        kbps in 50_u64..20_000,
        delay in 0_u64..50,
        queue_limit in queue_limit(),
        outages in outages(),
        outage_policy in outage_policy(),
        overhead_bytes in 0_u32..40,
    ) -> LinkConfig {
        LinkConfig {
            rate: Rate::Fixed(BitRate::from_kbps(kbps)),
            delay: Duration::from_millis(delay),
            queue_limit,
            outages,
            outage_policy,
            overhead_bytes,
            ..LinkConfig::default()
        }
    }
}

fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::None),
        (0.0..0.5).prop_map(Loss::Independent),
        (0.0..0.2, 0.1..1.0).prop_map(|(good_to_bad, bad_to_good)| {
            Loss::GilbertElliott(GilbertElliott { good_to_bad, bad_to_good, loss_in_bad: 0.9, loss_in_good: 0.01 })
        }),
    ]
}

prop_compose! {
    fn any_link()(
        config in orderly(),
        loss in loss(),
        duplicate in prop_oneof![Just(0.0), 0.0..0.5],
        corrupt in prop_oneof![Just(0.0), 0.0..0.5],
        jitter in prop::option::of((0_u64..30, any::<bool>(), any::<bool>())),
        reorder in prop::option::of((0.0..1.0, 0_u32..5)),
        rate in prop::option::of(varying_rate()),
        arq in prop::option::of(arq()),
    ) -> LinkConfig {
        let jitter = jitter.map(|(millis, normal, reorder)| Jitter {
            amplitude: Duration::from_millis(millis),
            distribution: if normal { JitterDistribution::Normal } else { JitterDistribution::Uniform },
            reorder,
        });
        let reorder = reorder.map(|(probability, gap)| Reordering { probability, gap });
        let config = LinkConfig { loss, duplicate, corrupt, jitter, reorder, arq, ..config };
        match rate {
            None => config,
            Some((rate, conditions)) => LinkConfig { rate, conditions, outages: without_rhythm(config.outages), ..config },
        }
    }
}

fn arq() -> impl Strategy<Value = Arq> {
    (1_u32..20, 1_u64..100, any::<bool>()).prop_map(|(attempts, timeout, in_order)| Arq {
        attempts: Some(attempts),
        timeout: Duration::from_millis(timeout),
        in_order,
    })
}

fn varying_rate() -> impl Strategy<Value = (Rate, Option<Arc<ConditionTrace>>)> {
    let deliveries = prop::collection::vec(0_u64..20, 1..30).prop_map(|gaps| {
        let times = gaps.iter().scan(1, |at, gap| {
            *at += gap;
            Some(format!("{at}\n"))
        });
        let trace = DeliveryTrace::parse(&times.collect::<String>(), AtEnd::Repeat).unwrap();
        (Rate::Deliveries(Arc::new(trace)), None)
    });
    let row = (1_u64..500, prop_oneof![Just(0_u64), 50_u64..20_000], 0_u64..60, 0.0..0.3);
    let table = prop::collection::vec(row, 1..8).prop_map(|rows| {
        let mut text = String::from("t,rate,delay,loss\n0,1 Mbit/s,10 ms,0\n");
        let mut at = 0;
        for (millis, kbps, delay, loss) in rows {
            at += millis;
            text.push_str(&format!("{at} ms,{kbps} kbit/s,{delay} ms,{loss}\n"));
        }
        (Rate::Unlimited, Some(Arc::new(ConditionTrace::parse(&text, AtEnd::Repeat).unwrap())))
    });
    prop_oneof![Just((Rate::Unlimited, None)), deliveries, table]
}

/// A trace that repeats and outages that repeat may overlap so seldom that a run would take years.
fn without_rhythm(outages: Outages) -> Outages {
    let random = |length| match length {
        Length::Constant(mean) => Length::Exponential { mean },
        other => other,
    };
    match outages {
        Outages::Alternating(plan) => Outages::Alternating(Alternating {
            connected: random(plan.connected),
            disconnected: random(plan.disconnected),
            ..plan
        }),
        other => other,
    }
}

/// Long enough for every frame to get through any of these links.
const END: Instant = Instant::from_secs(100_000);

/// Times of manual cuts (false) and restorations (true), in microseconds.
type Switches = Vec<(u64, bool)>;

fn switches() -> impl Strategy<Value = Switches> {
    prop_oneof![Just(Vec::new()), prop::collection::vec((0_u64..200_000, any::<bool>()), 0..6)]
}

fn run(config: &LinkConfig, traffic: &Traffic, switches: &Switches, seed: u64) -> World {
    let mut world = World::with_seed(config, seed);
    let mut switches: Vec<_> = switches.clone();
    switches.sort_unstable();
    let mut switches = switches.into_iter().peekable();
    let mut now = 0;
    for (name, &(gap, len)) in (0..).zip(traffic) {
        now += gap;
        while let Some((at, up)) = switches.next_if(|&(at, _)| at <= now) {
            world.run_until(Instant::from_micros(at));
            world.link.set_up(Instant::from_micros(at), up);
            world.poll();
        }
        world.send(Instant::from_micros(now), name, len);
    }
    let now = Instant::from_micros(now);
    world.run_until(now);
    world.link.set_up(now, true);
    world.poll();
    // Random outages have no end: stop when no frame is in the link.
    let mut until = now;
    while world.link.statistics(until).under_way > 0 && until < END {
        until += Duration::from_secs(1);
        world.run_until(until);
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_frame_is_delivered_or_dropped_with_a_cause(
        config in any_link(), traffic in traffic(), switches in switches(), seed in any::<u64>(),
    ) {
        let world = run(&config, &traffic, &switches, seed);
        let statistics = world.link.statistics(world.now);
        let mut times_out: BTreeMap<u32, u64> = BTreeMap::new();
        for seen in &world.seen {
            if let Seen::Delivered { name, .. } | Seen::Dropped { name, .. } = seen {
                *times_out.entry(*name).or_default() += 1;
            }
        }
        prop_assert_eq!(statistics.under_way, 0);
        prop_assert_eq!(times_out.len(), traffic.len());
        let copies: u64 = times_out.values().map(|times| times - 1).sum();
        prop_assert_eq!(copies, statistics.duplicated.packets);
        prop_assert!(times_out.values().all(|&times| times <= 2));
        prop_assert_eq!(statistics.offered.packets, traffic.len() as u64);
        let dropped = statistics.dropped.total();
        prop_assert_eq!(
            statistics.offered.packets + statistics.duplicated.packets,
            statistics.delivered.packets + dropped.packets
        );
        prop_assert_eq!(
            statistics.offered.bytes + statistics.duplicated.bytes,
            statistics.delivered.bytes + dropped.bytes
        );
        prop_assert_eq!(statistics.queue.packets, 0);
    }

    #[test]
    fn order_is_kept_and_time_does_not_run_backwards(
        config in orderly(), traffic in traffic(), switches in switches(), loss in loss(), seed in any::<u64>(),
    ) {
        let jitter = Some(Jitter {
            amplitude: Duration::from_millis(20), distribution: JitterDistribution::Normal, reorder: false,
        });
        let world = run(&LinkConfig { loss, jitter, ..config }, &traffic, &switches, seed);
        let arrivals = || world.seen.iter().filter_map(|seen| match seen {
            Seen::Delivered { at, name, .. } => Some((*at, *name)),
            _ => None,
        });
        prop_assert!(arrivals().map(|(_, name)| name).is_sorted());
        prop_assert!(arrivals().map(|(at, _)| at).is_sorted());
    }

    /// A link on which nothing is left to chance takes a shorter path than one that loses frames with probability 0.
    #[test]
    fn a_steady_link_does_what_one_with_a_loss_of_zero_does(
        config in orderly(), is_unlimited in any::<bool>(), traffic in traffic(), switches in switches(),
    ) {
        let rate = if is_unlimited { Rate::Unlimited } else { config.rate.clone() };
        let steady = LinkConfig { rate, outages: Outages::Never, ..config };
        let by_chance = LinkConfig { loss: Loss::Independent(0.0), ..steady.clone() };
        let [one, other] = [steady, by_chance].map(|config| run(&config, &traffic, &switches, 1));
        prop_assert_eq!(one.link.statistics(one.now), other.link.statistics(other.now));
        prop_assert_eq!(one.seen, other.seen);
    }

    #[test]
    fn the_rate_is_exceeded_in_no_interval(
        config in orderly(), traffic in traffic(), switches in switches(),
    ) {
        let Rate::Fixed(rate) = config.rate else { unreachable!("orderly links have a rate") };
        let world = run(&config, &traffic, &switches, 1);
        let arrivals: Vec<(Instant, u64)> = world.seen.iter().filter_map(|seen| match seen {
            // A frame that was cut short took less than its length.
            Seen::Delivered { at, name, corrupted: false } => {
                Some((*at, u64::from(traffic[*name as usize].1 + config.overhead_bytes)))
            }
            _ => None,
        }).collect();
        for first in 0..arrivals.len() {
            let mut bytes = 0;
            for (at, len) in &arrivals[first + 1..] {
                bytes += len;
                let needed = rate.transmission_time(ByteCount(bytes));
                // Each transmission is rounded up to a nanosecond, the sum of them once.
                prop_assert!(at.saturating_since(arrivals[first].0) >= needed);
            }
        }
    }

    #[test]
    fn a_run_is_reproducible(
        config in any_link(), traffic in traffic(), switches in switches(), seed in any::<u64>(),
    ) {
        let (one, other) = (run(&config, &traffic, &switches, seed), run(&config, &traffic, &switches, seed));
        prop_assert_eq!(one.seen, other.seen);
        prop_assert_eq!(one.link.statistics(one.now), other.link.statistics(other.now));
    }

    /// Compares start times, waiting frames and bytes with a reference queue, frame by frame.
    #[test]
    fn the_queue_limit_and_its_integral_are_exact(
        kbps in 50_u64..20_000, queue_limit in queue_limit(), traffic in traffic(),
    ) {
        let rate = BitRate::from_kbps(kbps);
        let config = LinkConfig { rate: Rate::Fixed(rate), queue_limit, ..LinkConfig::default() };
        let world = run(&config, &traffic, &Vec::new(), 1);

        let (mut now, mut free_at) = (Instant::ZERO, Instant::ZERO);
        let mut starts: Vec<(Instant, u32)> = Vec::new();
        let (mut arrivals, mut waited, mut high_water) = (Vec::new(), 0_u128, 0);
        for (name, &(gap, len)) in (0..).zip(&traffic) {
            now += Duration::from_micros(gap);
            let waiting: Vec<u32> =
                starts.iter().filter(|(start, _)| *start > now).map(|(_, len)| *len).collect();
            let bytes: u64 = waiting.iter().map(|&len| u64::from(len)).sum();
            let fits = match queue_limit {
                QueueLimit::Unlimited => true,
                QueueLimit::Packets(packets) => waiting.len() < packets as usize,
                QueueLimit::Bytes(limit) => bytes + u64::from(len) <= limit.0,
            };
            let start = free_at.max(now);
            if start > now && !fits {
                continue;
            }
            if start > now {
                high_water = high_water.max(waiting.len() + 1);
            }
            waited += u128::from(start.saturating_since(now).as_nanos());
            free_at = start + rate.transmission_time(ByteCount(u64::from(len)));
            starts.push((start, len));
            arrivals.push((free_at, name));
        }
        let seen: Vec<(Instant, u32)> = world.seen.iter().filter_map(|seen| match seen {
            Seen::Delivered { at, name, .. } => Some((*at, *name)),
            _ => None,
        }).collect();
        prop_assert_eq!(seen, arrivals);
        let statistics = world.link.statistics(world.now);
        prop_assert_eq!(statistics.queue.packet_nanos, waited);
        prop_assert_eq!(statistics.queue.high_water_packets, high_water as u64);
    }
}
