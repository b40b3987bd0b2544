//! The times of Linux's ACKs.

use super::{Duration, Experiment, MS, Subject, run, show};
use holdover_testbed::experiments::{FIRST_BYTE, Happening, Setup, Wire};
use holdover_wire::SeqRange;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    ("acks_of_a_stream", acks_of_a_stream),
    ("acks_of_single_segments", acks_of_single_segments),
    ("acks_of_pushed_segments", acks_of_pushed_segments),
    ("a_fin_beyond_a_gap_is_reported", a_fin_beyond_a_gap_is_reported),
];

/// Data in one segment.
const LEN: u32 = 1000;
/// At once, on a busy machine.
const AT_ONCE: Duration = Duration::from_millis(12);

/// Sends `count` segments, `gap` apart, to a waiting reader. Returns for each ACK the number of segments that it covers in all, and its
/// delay after the last of them.
fn acks(subject: Subject<'_>, count: u32, gap: Duration, push: bool) -> Vec<(u32, Duration)> {
    let mut began = false;
    let script = |wire: &mut Wire, happening: Happening<'_>| match happening {
        Happening::Segment(_) if !began => {
            began = true;
            (0..count).for_each(|number| wire.alarm_after(MS * 20 + gap * u64::from(number), number));
        }
        Happening::Alarm(_) => wire.write_after(Duration::ZERO, LEN as usize),
        Happening::Segment(_) => {}
    };
    let span = gap * u64::from(count) + MS * 300;
    let wire = run(subject, &Setup::default(), span, |wire| wire.push = push, script);
    let data: Vec<_> = wire.sent.iter().filter(|sent| !sent.segment.payload.is_empty()).collect();
    let acks: Vec<_> = wire
        .seen
        .iter()
        .filter(|seen| seen.segment.is_pure_ack() && seen.segment.ack.gt(FIRST_BYTE))
        .map(|seen| {
            let covered = (seen.segment.ack - FIRST_BYTE) / LEN;
            (covered, seen.at.saturating_since(data[covered as usize - 1].at))
        })
        .collect();
    let list: Vec<_> = acks.iter().map(|(n, after)| format!("{n}:+{:.1}", after.as_nanos() as f64 / 1e6)).collect();
    show("acks", subject, &format!("{gap} apart, pushed {push}: {} ms", list.join(" ")));
    acks
}

#[track_caller]
fn assert_first_at_once(acks: &[(u32, Duration)]) {
    for (number, (covered, after)) in (1..=16).zip(acks) {
        assert!(*covered == number && *after < AT_ONCE, "{acks:?}");
    }
}

/// The first 16 segments at once, then every second.
fn acks_of_a_stream(subject: Subject<'_>) {
    let acks = acks(subject, 40, MS * 15, false);
    assert_first_at_once(&acks);
    for (covered, (number, after)) in (18..=40).step_by(2).zip(&acks[16..]) {
        assert!(*number == covered && *after < AT_ONCE, "{acks:?}");
    }
}

/// Single segments: 16 are acknowledged at once, then after 40 ms, and once the delay has adapted, after a round trip.
fn acks_of_single_segments(subject: Subject<'_>) {
    let acks = acks(subject, 26, MS * 90, false);
    assert_first_at_once(&acks);
    assert_eq!(acks.len(), 26, "{acks:?}");
    let delays: Vec<_> = acks[16..].iter().map(|(_, after)| *after).collect();
    assert!(delays[0] >= MS * 36 && delays[0] < MS * 60, "{delays:?}");
    assert!(delays[1..].iter().all(|delay| *delay >= MS * 46 && *delay < MS * 85), "{delays:?}");
}

/// Segments that end a write, read at once: each at once.
fn acks_of_pushed_segments(subject: Subject<'_>) {
    let acks = acks(subject, 40, MS * 15, true);
    assert_eq!(acks.len(), 40, "{acks:?}");
    assert!(acks.iter().all(|(_, after)| *after < AT_ONCE), "{acks:?}");
}

/// A FIN out of order, with data and without: SACK blocks count its sequence number.
fn a_fin_beyond_a_gap_is_reported(subject: Subject<'_>) {
    for len in [500, 0] {
        let mut began = false;
        let script = |wire: &mut Wire, happening: Happening<'_>| {
            if matches!(happening, Happening::Segment(_)) && !core::mem::replace(&mut began, true) {
                wire.fin_after(MS * 20, LEN, len as usize);
            }
        };
        let wire = run(subject, &Setup::default(), MS * 200, |_| {}, script);
        let blocks: Vec<_> = wire.seen.iter().flat_map(|seen| seen.segment.options.sack.iter()).collect();
        show("SACK blocks", subject, &format!("{len} bytes and a FIN: {blocks:?}"));
        assert_eq!(blocks, [SeqRange::new(FIRST_BYTE + LEN, FIRST_BYTE + LEN + len + 1)]);
    }
}
