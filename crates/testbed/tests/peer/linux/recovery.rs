//! Linux's repair of losses, and its detection of spurious ones.

use holdover_tcp::Profile;
use holdover_wire::{Seq, SeqRange};

use super::{Experiment, FULL, MS, RTT, Subject, run, segments_from, show};
use holdover_testbed::experiments::{Happening, Setup, Wire};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    ("fast_retransmit", |subject| fast_retransmit(subject, true)),
    ("fast_retransmit_without_sack", |subject| fast_retransmit(subject, false)),
    ("spurious_timeout", |subject| spurious_timeout(subject, true)),
    ("spurious_timeout_without_sack", |subject| spurious_timeout(subject, false)),
];

/// Long enough that no probe timer expires on a busy machine.
const LONG_RTT: u64 = 200;

/// The first of ten segments is lost, and the duplicate ACKs arrive 5 ms apart. The first two release a new segment each (RFC 3042),
/// the third releases the lost one; then proportional rate reduction releases new ones, fewer than there are ACKs.
fn fast_retransmit(subject: Subject<'_>, sack: bool) {
    let setup = Setup { writes: vec![(MS * 10, 40 * FULL as usize)], ..Setup::default() };
    let mut first: Option<Seq> = None;
    let mut count = 0;
    let script = |wire: &mut Wire, happening: Happening<'_>| {
        let Happening::Segment(segment) = happening else { return };
        if segment.payload.is_empty() {
            return;
        }
        let base = *first.get_or_insert(segment.seq);
        count += 1;
        if (2..=10).contains(&count) {
            let block = SeqRange::new(base + FULL, base + FULL * count);
            let blocks = if sack { &[block][..] } else { &[] };
            wire.ack_after(MS * (LONG_RTT + 5 * u64::from(count)), base, blocks);
        }
    };
    let prepare = |wire: &mut Wire| {
        wire.sack = sack;
        wire.rtt = MS * LONG_RTT;
    };
    let wire = run(subject, &setup, MS * 580, prepare, script);
    let sent = segments_from(&wire, 10);
    show("fast_retransmit", subject, &format!("SACK {sack}: {sent:?}"));
    let numbers: Vec<_> = sent.iter().map(|(_, number)| *number).collect();
    assert_eq!(numbers[..3], [10, 11, 0], "{sent:?}");
    assert!(numbers[3..].iter().copied().eq(12..12 + numbers.len() as u32 - 3), "{sent:?}");
    // Nine duplicates; the first three begin recovery. CUBIC's window falls to seven tenths, Reno's to a half.
    let reduced = if matches!(subject, Subject::Ours(Profile::Linux6Reno)) { 1..=3 } else { 3..=4 };
    assert!(reduced.contains(&(numbers.len() - 3)), "{sent:?}");
}

/// A whole window is late, not lost: its ACKs, with timestamps of the originals, arrive after the timeout. One segment is retransmitted
/// (with SACK, after a probe with new data); then Eifel detection restores the window, and sending continues.
fn spurious_timeout(subject: Subject<'_>, sack: bool) {
    let setup = Setup { writes: vec![(MS * 10, 60 * FULL as usize)], ..Setup::default() };
    let mut count = 0;
    let script = |wire: &mut Wire, happening: Happening<'_>| {
        let Happening::Segment(segment) = happening else { return };
        let is_new = !segment.payload.is_empty() && segment.seq + segment.payload.len() as u32 == wire.rcv_nxt;
        if is_new {
            count += 1;
            let to = wire.rcv_nxt;
            match count {
                1..=10 => wire.ack_after(RTT, to, &[]),
                11..=30 => wire.ack_after(MS * 600, to, &[]),
                _ => {}
            }
        }
    };
    let wire = run(subject, &setup, MS * 850, |wire| wire.sack = sack, script);
    let sent = segments_from(&wire, 10);
    show("spurious_timeout", subject, &format!("SACK {sack}: {sent:?}"));
    let numbers: Vec<_> = sent.iter().map(|(_, number)| *number).collect();
    assert!(numbers[..20].iter().copied().eq(10..30), "{sent:?}");
    let again: Vec<_> = numbers[20..].iter().filter(|number| **number < 30).collect();
    assert_eq!(again, [&10], "{sent:?}");
    let new: Vec<_> = numbers[20..].iter().copied().filter(|number| *number >= 30).collect();
    assert!(new.len() >= 20 && new.iter().copied().eq(30..30 + new.len() as u32), "{sent:?}");
}
