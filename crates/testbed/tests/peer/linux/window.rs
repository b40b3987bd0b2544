//! The amount of data that Linux sends: initially, and at a closed window.

use super::{Experiment, MS, RTT, Seen, Subject, Wire, assert_about, gaps, millis, run, show};
use holdover_testbed::experiments::{Happening, Setup};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    ("initial_window", initial_window),
    ("initial_window_after_lost_syns", initial_window_after_lost_syns),
    ("zero_window_probes", zero_window_probes),
    ("zero_window_on_a_duplicate", zero_window_on_a_duplicate),
];

/// Ten segments (RFC 6928).
fn initial_window(subject: Subject<'_>) {
    let setup = Setup { writes: vec![(MS * 10, 100_000)], ..Setup::default() };
    // A loss probe would follow two round trips later.
    let wire = run(subject, &setup, MS * 85, |_| {}, |_, _| {});
    let lens: Vec<_> = wire.data().iter().map(|seen| seen.segment.payload.len()).collect();
    show("initial_window", subject, &format!("{lens:?}"));
    assert_eq!(lens, [1448; 10]);
}

/// One lost SYN has no effect; after two the window is one segment.
fn initial_window_after_lost_syns(subject: Subject<'_>) {
    for (lost, segments) in [(1, 10), (2, 1)] {
        let setup = Setup { writes: vec![(MS * 10, 100_000)], ..Setup::default() };
        let span = MS * (1_000 * u64::from(lost) + 400);
        let wire = run(subject, &setup, span, |wire| wire.ignored_syns = lost, |_, _| {});
        let data = wire.data();
        // Later segments are probes or retransmissions.
        let burst = data.iter().take_while(|seen| seen.at.saturating_since(data[0].at) < RTT).count();
        show("initial_window_after_lost_syns", subject, &format!("{lost} lost: {burst} segments"));
        assert_eq!(burst, segments, "after {lost} lost SYNs");
    }
}

/// The window closes when all data is acknowledged: the first probe is sent one RTO after there was data to send, the next ones after twice
/// the time each. A probe is empty and repeats the last acknowledged sequence number.
fn zero_window_probes(subject: Subject<'_>) {
    let setup = Setup { writes: vec![(MS * 10, 1000), (MS * 150, 1000)], nodelay: true, ..Setup::default() };
    let script = |wire: &mut Wire, happening: Happening<'_>| {
        if matches!(happening, Happening::Segment(_)) && !wire.data().is_empty() {
            wire.window = 0;
            let to = wire.rcv_nxt;
            wire.ack_after(RTT, to, &[]);
        }
    };
    let wire = run(subject, &setup, MS * 2_300, |_| {}, script);
    let first = wire.data()[0].clone();
    let is_probe = |seen: &&Seen| seen.at > first.at && !seen.segment.flags.contains(holdover_wire::Flags::RST);
    let probes: Vec<_> = wire.seen.iter().filter(is_probe).collect();
    let waits = gaps(core::iter::once(&first).chain(probes.iter().copied()));
    show("zero_window_probes", subject, &millis(&waits));
    // The second write is 140 ms after the first.
    assert_about(subject, &waits, &[MS * 390, MS * 500, MS * 1_000]);
    for probe in probes {
        assert_eq!((probe.segment.seq - first.segment.seq, probe.segment.payload.len()), (999, 0), "{probe:?}");
    }
}

/// A duplicate ACK closes the window over outstanding data: nothing new is sent, and the outstanding segment is
/// retransmitted at each timeout.
fn zero_window_on_a_duplicate(subject: Subject<'_>) {
    let writes = vec![(MS * 10, 1000), (MS * 200, 1000), (MS * 300, 1000)];
    let setup = Setup { writes, nodelay: true, ..Setup::default() };
    let mut count = 0;
    let script = |wire: &mut Wire, happening: Happening<'_>| {
        let Happening::Segment(segment) = happening else { return };
        count += usize::from(!segment.payload.is_empty());
        match count {
            1 => wire.ack_after(RTT, wire.rcv_nxt, &[]),
            2 => {
                wire.window = 0;
                wire.ack_after(RTT, segment.seq, &[]);
            }
            _ => {}
        }
    };
    let wire = run(subject, &setup, MS * 2_300, |_| {}, script);
    let data = wire.data();
    let offsets: Vec<_> = data.iter().map(|seen| seen.segment.seq - data[0].segment.seq).collect();
    let waits = gaps(data[1..].iter().copied());
    show("zero_window_on_a_duplicate", subject, &format!("{} of bytes from {offsets:?}", millis(&waits)));
    assert!(offsets[1..].iter().all(|offset| *offset == 1000), "{offsets:?}");
    assert_about(subject, &waits, &[MS * 250, MS * 250, MS * 500]);
}
