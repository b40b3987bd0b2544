//! Scripts of a link whose rate is a trace of opportunities to deliver.

use std::sync::Arc;

use holdover_base::Instant;
use holdover_link::{
    AtEnd, DeliveryTrace, DropCause, InFlightFate, Link as _, LinkConfig, QueueLimit, QueuedFate, Rate,
};

use crate::common::{Seen, World, delivered, dropped, ms};
use crate::point_to_point::{config, cut};

#[test]
fn a_delivery_trace_lets_1500_bytes_go_at_each_of_its_times() {
    let trace = DeliveryTrace::parse("10\n20\n20\n30\n", AtEnd::Repeat).unwrap();
    let mut world = World::new(&LinkConfig {
        rate: Rate::Deliveries(Arc::new(trace)),
        queue_limit: QueueLimit::Packets(4),
        ..config()
    });
    // Two small ones share an opportunity, a large one needs two, and the next uses the rest of the second.
    for (name, len) in [(0, 700), (1, 800), (2, 2000), (3, 1000), (4, 1)] {
        world.send(ms(1), name, len);
    }
    world.send(ms(41), 5, 100);
    world.expect(
        ms(1000),
        &[
            dropped(1, 4, DropCause::QueueFull),
            delivered(15, 0),
            delivered(15, 1),
            delivered(25, 2),
            delivered(25, 3),
            delivered(55, 5),
        ],
    );
}

#[test]
fn a_delivery_trace_that_ends_leaves_the_rest_queued() {
    let trace = DeliveryTrace::parse("10\n", AtEnd::Stop).unwrap();
    let mut world = World::new(&LinkConfig { rate: Rate::Deliveries(Arc::new(trace)), ..config() });
    for name in 0..3 {
        world.send(ms(0), name, 1000);
    }
    world.expect(Instant::from_secs(1_000_000), &[delivered(15, 0)]);
    assert_eq!(world.link.poll_timeout(), None);
    let statistics = world.link.statistics(Instant::from_secs(1_000_000));
    // The second one had 500 of its bytes sent; it stays on the transmitter for ever.
    assert_eq!((statistics.under_way, statistics.queue.packets), (2, 1));
}

#[test]
fn a_frame_that_is_not_sent_uses_no_opportunity() {
    let every_10_ms = || Rate::Deliveries(Arc::new(DeliveryTrace::parse("10\n", AtEnd::Repeat).unwrap()));
    let mut world = World::new(&LinkConfig { rate: every_10_ms(), queue_limit: QueueLimit::Packets(1), ..config() });
    world.send(ms(0), 0, 1500);
    world.send(ms(1), 1, 1500);
    world.send(ms(10), 2, 1500);
    world.expect(ms(1000), &[dropped(1, 1, DropCause::QueueFull), delivered(15, 0), delivered(25, 2)]);

    // 0 needs the opportunities at 20 and 30 ms, but the link goes down at 25 ms: 1 gets the first one after the
    // outage.
    let mut world = World::new(&LinkConfig { rate: every_10_ms(), ..cut(QueuedFate::Held, InFlightFate::Dropped) });
    world.send(ms(11), 0, 3000);
    world.send(ms(11), 1, 1500);
    world.expect(
        ms(1000),
        &[Seen::Down(ms(25)), dropped(25, 0, DropCause::CutOff), Seen::Up(ms(100)), delivered(105, 1)],
    );

    // The same with a dropped queue: 1 would have been sent after the cut.
    let mut world =
        World::new(&LinkConfig { rate: every_10_ms(), ..cut(QueuedFate::Dropped, InFlightFate::Delivered) });
    world.send(ms(11), 0, 3000);
    world.send(ms(11), 1, 1500);
    world.send(ms(101), 2, 1500);
    world.expect(
        ms(1000),
        &[
            Seen::Down(ms(25)),
            dropped(25, 0, DropCause::CutOff),
            dropped(25, 1, DropCause::LinkDown),
            Seen::Up(ms(100)),
            delivered(115, 2),
        ],
    );
}

#[test]
fn an_opportunity_at_the_moment_of_the_cut_is_lost_and_one_at_link_up_is_not() {
    let trace = DeliveryTrace::parse("25\n", AtEnd::Repeat).unwrap();
    let rate = Rate::Deliveries(Arc::new(trace));
    for queued in [QueuedFate::Held, QueuedFate::Dropped, QueuedFate::Lost] {
        let mut world = World::new(&LinkConfig { rate: rate.clone(), ..cut(queued, InFlightFate::Delivered) });
        world.send(ms(0), 0, 1500);
        world.run_until(ms(1000));
        let expected = match queued {
            QueuedFate::Held => delivered(105, 0),
            QueuedFate::Dropped => dropped(25, 0, DropCause::LinkDown),
            _ => dropped(25, 0, DropCause::CutOff),
        };
        assert!(world.seen.contains(&expected), "{queued:?} {:?}", world.seen);
    }
}
