//! The times of Linux's retransmissions.

use holdover_wire::{Flags, Unreachable};

use super::{Duration, Experiment, MS, RTT, Subject, Wire, assert_about, gaps, millis, run, show};
use holdover_testbed::experiments::{Happening, Setup};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    ("retransmission_timeout", retransmission_timeout),
    ("syn_schedule", syn_schedule),
    ("tail_loss_probe", tail_loss_probe),
    ("unreachable", unreachable),
];
pub(super) const LONG_EXPERIMENTS: &[Experiment] = &[("retransmission_ceiling", retransmission_ceiling)];

/// Acknowledges each of the first `acked` data segments one RTT later.
fn acking(acked: usize) -> impl FnMut(&mut Wire, &Happening<'_>) + Send {
    let mut left = acked;
    move |wire, happening| {
        if let Happening::Segment(segment) = happening
            && !segment.payload.is_empty()
            && left > 0
        {
            left -= 1;
            let to = wire.rcv_nxt;
            wire.ack_after(RTT, to, &[]);
        }
    }
}

/// Writes of 1000 bytes, two RTTs apart.
fn single_writes(count: u64) -> Vec<(Duration, usize)> {
    (0..count).map(|n| (MS * 10 + RTT * 2 * n, 1000)).collect()
}

/// One segment that is not acknowledged, after five that were: the times between its copies.
fn waits_for(subject: Subject<'_>, span: Duration) -> Vec<Duration> {
    let setup = Setup { writes: single_writes(6), nodelay: true, ..Setup::default() };
    let mut acking = acking(5);
    let wire = run(subject, &setup, span, |_| {}, |wire, happening| acking(wire, &happening));
    gaps(wire.data().into_iter().skip(5))
}

/// A probe after SRTT + 200 ms (two SRTT and 200 ms would be later than the RTO), the timeout as much later, then twice as
/// much.
fn retransmission_timeout(subject: Subject<'_>) {
    let waits = waits_for(subject, MS * 2_000);
    show("retransmission_timeout", subject, &millis(&waits));
    assert_about(subject, &waits, &[MS * 250, MS * 250, MS * 500]);
}

/// ... and so on, up to 120 s.
fn retransmission_ceiling(subject: Subject<'_>) {
    let waits = waits_for(subject, MS * 640_000);
    show("retransmission_ceiling", subject, &millis(&waits));
    let expected = [250, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 120_000, 120_000];
    assert_about(subject, &waits, &expected.map(|wait| MS * wait));
}

/// The first SYNs are a second apart (`tcp_syn_linear_timeouts`).
fn syn_schedule(subject: Subject<'_>) {
    let wire = run(subject, &Setup::default(), MS * 3_500, |wire| wire.ignored_syns = 100, |_, _| {});
    assert!(wire.seen.iter().all(|seen| seen.segment.flags == Flags::SYN));
    let waits = gaps(&wire.seen);
    show("syn_schedule", subject, &millis(&waits));
    assert_about(subject, &waits, &[MS * 1_000; 3]);
}

/// Five segments at once; the last two are lost: a probe two SRTT after the last ACK repeats the last segment; the timeout, a whole RTO
/// later, the first.
fn tail_loss_probe(subject: Subject<'_>) {
    let mut writes = single_writes(5);
    writes.push((MS * 600, 5 * super::FULL as usize));
    let setup = Setup { writes, nodelay: true, ..Setup::default() };
    let mut acking = acking(8);
    let wire = run(subject, &setup, MS * 1_400, |_| {}, |wire, happening| acking(wire, &happening));
    let last_ack = wire.sent.last().expect("ACKs were sent").at;
    let data = wire.data();
    let numbers: Vec<_> = data[5..].iter().map(|seen| (seen.segment.seq - data[5].segment.seq) / super::FULL).collect();
    let probe_after = data[10].at.saturating_since(last_ack);
    let waits: Vec<_> = [probe_after].into_iter().chain(gaps(data[10..].iter().copied())).collect();
    show("tail_loss_probe", subject, &format!("{} of segments {numbers:?}", millis(&waits)));
    assert_eq!(numbers[..7], [0, 1, 2, 3, 4, 4, 3]);
    assert_about(subject, &waits, &[MS * 102, MS * 250]);
}

/// RFC 6069: an ICMP host unreachable for each copy from the fourth on takes one doubling back.
fn unreachable(subject: Subject<'_>) {
    let setup = Setup { writes: single_writes(6), nodelay: true, ..Setup::default() };
    let mut acking = acking(5);
    let script = |wire: &mut Wire, happening: Happening<'_>| {
        acking(wire, &happening);
        if let Happening::Segment(segment) = happening
            && !segment.payload.is_empty()
            && wire.data().len() >= 9
        {
            wire.unreachable_after(Duration::ZERO, Unreachable::Host, segment);
        }
    };
    let wire = run(subject, &setup, MS * 3_700, |_| {}, script);
    let waits = gaps(wire.data().into_iter().skip(5));
    show("unreachable", subject, &millis(&waits));
    assert_about(subject, &waits, &[MS * 250, MS * 250, MS * 500, MS * 500, MS * 500]);
    assert!(waits[4] < MS * 900, "without the errors it would be 2 s: {}", millis(&waits));
}
