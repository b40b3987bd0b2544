//! Linux's treatment of segments that newer ones have overtaken, whose timestamps are old, and of those outside its window.

use holdover_wire::{Seq, SeqRange};

use super::{Duration, Experiment, FULL, MS, Subject, run, segments_from, show};
use holdover_testbed::experiments::{FIRST_BYTE, Happening, Seen, Setup, Wire};
use holdover_testbed::kernel_release;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    ("overtaken_duplicates_count", |subject| assert!(repairs_after_overtaken(subject, MS * 100))),
    ("duplicates_older_than_a_timeout_do_not", |subject| assert!(!repairs_after_overtaken(subject, MS * 4_000))),
    ("an_old_ack_is_not_answered", an_old_ack_is_not_answered),
    ("probes_are_answered_twice_a_second", probes_are_answered_twice_a_second),
    ("each_duplicate_is_answered", each_duplicate_is_answered),
    ("a_duplicate_that_reaches_the_last_ack_is_echoed", a_duplicate_that_reaches_the_last_ack_is_echoed),
];

/// The first of ten segments is lost. The first duplicate ACK is current, the next two were overtaken by it: their timestamps are `age`
/// old. Returns whether the first segment is retransmitted before the first duplicate's reordering timer can do it, a quarter of the round
/// trip later.
fn repairs_after_overtaken(subject: Subject<'_>, age: Duration) -> bool {
    const RTT: Duration = Duration::from_millis(400);
    let setup = Setup { writes: vec![(MS * 10, 10 * FULL as usize)], ..Setup::default() };
    let mut first: Option<Seq> = None;
    let script = |wire: &mut Wire, happening: Happening<'_>| {
        let Happening::Segment(segment) = happening else { return };
        if segment.payload.is_empty() || first.is_some() {
            return;
        }
        let base = *first.insert(segment.seq);
        let block = |number: u32| SeqRange::new(base + FULL * number, base + FULL * (number + 1));
        wire.ack_after(RTT, base, &[block(1)]);
        wire.overtaken_ack_after(RTT + MS * 5, age, base, &[block(2)]);
        wire.overtaken_ack_after(RTT + MS * 10, age, base, &[block(3)]);
    };
    let wire = run(subject, &setup, MS * 1_000, |wire| wire.rtt = RTT, script);
    let sent = segments_from(&wire, 10);
    show("overtaken duplicates", subject, &format!("{age} old: {sent:?}"));
    sent.iter().any(|(at, number)| *number == 0 && *at < RTT.as_millis() + 60)
}

/// The ACKs in answer to the script's segments after its first data segment has been acknowledged.
fn answers(subject: Subject<'_>, mut after_data: impl FnMut(&mut Wire) + Send) -> Vec<Seen> {
    const LEN: u32 = 1_000;
    let mut began = false;
    let script = |wire: &mut Wire, happening: Happening<'_>| match happening {
        Happening::Segment(_) if !began => {
            began = true;
            wire.write_after(MS * 20, LEN as usize);
            wire.alarm_after(MS * 300, 0);
        }
        Happening::Alarm(_) => {
            wire.marks.insert("begin", wire.now);
            after_data(wire);
        }
        Happening::Segment(_) => {}
    };
    let wire = run(subject, &Setup::default(), MS * 2_600, |_| {}, script);
    let begin = wire.mark("begin").expect("the alarm has rung");
    let mut seen = wire.seen;
    seen.retain(|seen| seen.at >= begin && seen.segment.is_pure_ack());
    assert!(seen.iter().all(|seen| seen.segment.ack == FIRST_BYTE + LEN), "{seen:?}");
    show("answers", subject, &seen.len());
    seen
}

/// An ACK from before the last data, with a timestamp from before it (Linux 6.14 and later).
fn an_old_ack_is_not_answered(subject: Subject<'_>) {
    let seen =
        answers(subject, |wire| (1..=5).for_each(|n| wire.repeat_after(MS * 200 * n, MS * (350 + 200 * n), 500, 0)));
    if matches!(subject, Subject::Kernel(..)) && !is_since_6_14(&kernel_release()) {
        assert_eq!(seen.len(), 2, "five in 800 ms, of which one in 500 ms is answered: {seen:?}");
    } else {
        assert!(seen.is_empty(), "{seen:?}");
    }
}

fn is_since_6_14(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(14))
}

/// 22 keep-alives, 90 ms apart: those within 500 ms after an answered one are not answered (`tcp_invalid_ratelimit`).
fn probes_are_answered_twice_a_second(subject: Subject<'_>) {
    let seen = answers(subject, |wire| (0..22).for_each(|n| wire.repeat_after(MS * (90 * n), Duration::ZERO, 1, 0)));
    assert_eq!(seen.len(), 4, "{seen:?}");
}

/// Duplicate data is answered each time.
fn each_duplicate_is_answered(subject: Subject<'_>) {
    let seen = answers(subject, |wire| {
        (0..20).for_each(|n| wire.repeat_after(MS * (90 * n), Duration::ZERO, 1_000, 1_000));
    });
    assert_eq!(seen.len(), 20, "{seen:?}");
}

/// A retransmission whose ACK was lost is answered with its own timestamp; one that ends before the last ACK is not.
fn a_duplicate_that_reaches_the_last_ack_is_echoed(subject: Subject<'_>) {
    for (len, is_echoed) in [(1_000, true), (999, false)] {
        let seen = answers(subject, |wire| {
            (0..5).for_each(|n| wire.repeat_after(MS * (200 * n), Duration::ZERO, 1_000, len));
        });
        let mut echoes: Vec<u32> =
            seen.iter().map(|seen| seen.segment.options.timestamps.expect("timestamps").ecr).collect();
        assert_eq!(echoes.len(), 5, "{seen:?}");
        echoes.dedup();
        assert_eq!(echoes.len(), if is_echoed { 5 } else { 1 }, "{len} bytes of 1,000: {seen:?}");
    }
}
