//! A link with queue management: timing of marked, dropped and other frames.

use holdover_base::{BitRate, Duration, Instant};
use holdover_link::{CoDel, DropCause, Frame, Link, LinkConfig, PointToPoint, PointToPointEvent, QueueLimit, Rate};

/// 1000 bytes, with or without ECN.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Probe {
    name: u32,
    takes_part: bool,
    is_marked: bool,
}

impl Frame for Probe {
    fn wire_len(&self) -> u32 {
        1_000
    }

    fn mark_congestion(&mut self) -> bool {
        self.is_marked |= self.takes_part;
        self.takes_part
    }
}

const fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// 8 Mbit/s: a frame per millisecond.
fn config() -> LinkConfig {
    LinkConfig {
        rate: Rate::Fixed(BitRate::from_mbps(8)),
        delay: Duration::from_millis(10),
        queue_limit: QueueLimit::Packets(1_000),
        ..LinkConfig::default()
    }
}

/// Arrivals: time, name, and whether marked.
type Arrivals = Vec<(u64, u32, bool)>;

/// Arrivals, and the times of CoDel's drops. Two frames enter each millisecond, for 200 ms.
fn overloaded(config: &LinkConfig, takes_part: bool) -> (Arrivals, Vec<(u64, u32)>) {
    let mut link = PointToPoint::new(config, 1).unwrap();
    let (mut arrived, mut dropped) = (Vec::new(), Vec::new());
    for ms in 0..1_000 {
        if ms < 200 {
            for name in [2 * ms as u32, 2 * ms as u32 + 1] {
                link.handle_packet(at(ms), Probe { name, takes_part, is_marked: false });
            }
        }
        while let Some((due, _)) = link.poll_timeout().filter(|&(due, _)| due <= at(ms)) {
            link.handle_timeout(due);
            while let Some(delivery) = link.poll_deliver(due) {
                arrived.push((delivery.at.as_millis(), delivery.frame.name, delivery.frame.is_marked));
            }
            while let Some(event) = link.poll_event() {
                if let PointToPointEvent::Dropped { at, cause: DropCause::CoDel, frame } = event {
                    dropped.push((at.as_millis(), frame.name));
                }
            }
        }
    }
    let statistics = link.statistics(at(1_000));
    assert_eq!(statistics.offered.packets, 400);
    assert_eq!(statistics.delivered.packets + statistics.dropped.total().packets, 400);
    assert_eq!(statistics.marked.packets as usize, arrived.iter().filter(|&&(_, _, is_marked)| is_marked).count());
    (arrived, dropped)
}

#[test]
fn codel_marks_and_every_frame_keeps_its_time() {
    let (plain, _) = overloaded(&config(), true);
    let (managed, dropped) = overloaded(&LinkConfig { codel: Some(CoDel::default()), ..config() }, true);
    assert_eq!(dropped, []);
    let times = |seen: &[(u64, u32, bool)]| seen.iter().map(|&(at, name, _)| (at, name)).collect::<Vec<_>>();
    assert_eq!(times(&managed), times(&plain));
    // Waits reach 5 ms with the frame that leaves after some 10 ms, and marks begin an interval later.
    let first = managed.iter().position(|&(_, _, is_marked)| is_marked).unwrap();
    assert!((105..120).contains(&first), "{first}");
}

#[test]
fn frames_dropped_by_codel_use_no_line_time() {
    let (arrived, dropped) = overloaded(&LinkConfig { codel: Some(CoDel::default()), ..config() }, false);
    assert!(dropped.len() >= 3, "{dropped:?}");
    assert_eq!(arrived.len() + dropped.len(), 400);
    // The line is never idle: one frame arrives in each millisecond, in order, whatever is dropped in between.
    assert!(arrived.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1 && pair[1].1 > pair[0].1));
    // It is dropped when it leaves the queue, not on arrival.
    assert!(dropped.iter().all(|&(at, name)| at > u64::from(name / 2) + 5), "{dropped:?}");
    let spacings: Vec<u64> = dropped.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(spacings[0].abs_diff(100) <= 2 && spacings[1].abs_diff(71) <= 2, "{spacings:?}");
}

#[test]
fn the_threshold_marks_every_frame_that_waits_longer() {
    let threshold = Duration::from_millis(20);
    let (arrived, _) = overloaded(&LinkConfig { ce_threshold: Some(threshold), ..config() }, true);
    // A frame's wait is the time from its arrival in the queue, without the millisecond of its transmission and the 10
    // ms of delay.
    for (at, name, is_marked) in arrived {
        let waited = at - 11 - u64::from(name / 2);
        assert_eq!(is_marked, waited > 20, "{name} waited {waited} ms");
    }
    let (unmarked, dropped) = overloaded(&LinkConfig { ce_threshold: Some(threshold), ..config() }, false);
    assert!(dropped.is_empty() && unmarked.len() == 400);
}

#[test]
fn an_interval_of_no_length_is_refused() {
    let codel = CoDel { interval: Duration::ZERO, ..CoDel::default() };
    assert!(PointToPoint::<Probe>::new(&LinkConfig { codel: Some(codel), ..config() }, 1).is_err());
}
