use holdover_wire::{Flags, Seq};
use proptest::prelude::*;

use super::*;
use crate::segment::Seen;
use crate::{Analysis, Certainty, FoundOutage};

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn segment(millis: u64, from_sender: bool) -> Seen {
    let ends = ["10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap()];
    let [src, dst] = if from_sender { ends } else { [ends[1], ends[0]] };
    Seen {
        at: at(millis),
        src,
        dst,
        seq: Seq::new(1),
        ack: Seq::new(1),
        flags: Flags::ACK,
        window: 60_000,
        len: 0,
        timestamps: None,
        window_shift: None,
        id: None,
    }
}

/// Data of 1000 bytes.
fn sent(millis: u64, offset: u32) -> Seen {
    Seen { seq: Seq::new(1 + offset), len: 1000, ..segment(millis, true) }
}

fn acked(millis: u64, offset: u32, window: u16) -> Seen {
    Seen { ack: Seq::new(1 + offset), window, ..segment(millis, false) }
}

/// A handshake as captured, with the given round trips to both ends in ms; it ends at 0.
fn handshake(to_sender: u64, to_receiver: u64) -> Vec<Seen> {
    let syn = Seen { seq: Seq::new(0), flags: Flags::SYN, window_shift: Some(0), ..segment(0, true) };
    let answer =
        Seen { flags: Flags::SYN | Flags::ACK, seq: Seq::new(0), window_shift: Some(0), ..segment(to_receiver, false) };
    vec![syn, answer, segment(to_receiver + to_sender, true)]
}

fn conversation(segments: &[Seen]) -> Conversation {
    let mut analysis = Analysis::new();
    let mut latest = Instant::ZERO;
    for segment in segments {
        latest = latest.max(segment.at);
        analysis.segment(&Seen { at: latest, ..*segment });
    }
    analysis.finish().into_iter().next().unwrap()
}

fn millis(account: &Account, cause: Cause) -> u64 {
    account.total(cause).as_millis()
}

/// The path is down for 2 s; the sender's timer, not the path, ends the silence 1.5 s later.
#[test]
fn the_wait_after_an_outage_is_the_timers() {
    let conversation =
        conversation(&[sent(0, 0), acked(50, 1000, 9000), sent(50, 1000), sent(3600, 1000), acked(3650, 2000, 9000)]);
    let account = account(&conversation, &[Outage { down: at(100), up: at(2100) }]);
    assert_eq!(millis(&account, Cause::Outage), 2000);
    assert_eq!(millis(&account, Cause::RtoWait), 50 + 1500);
    assert_eq!(conversation.retransmissions, 1);
    assert_eq!(conversation.rtt(), Duration::from_millis(50));
}

#[test]
fn a_closed_window_differs_from_an_idle_application() {
    let conversation = conversation(&[
        sent(0, 0),
        acked(50, 1000, 0),
        acked(1050, 1000, 9000),
        sent(1050, 1000),
        acked(1100, 2000, 9000),
        sent(3100, 2000),
        acked(3150, 3000, 9000),
    ]);
    let account = account(&conversation, &[]);
    assert_eq!(millis(&account, Cause::ZeroWindow), 1000);
    assert_eq!(millis(&account, Cause::Idle), 2000);
    assert_eq!(millis(&account, Cause::RtoWait), 0);
}

#[test]
fn an_outage_while_nothing_was_wanted_of_the_path_costs_nothing() {
    let segments = [sent(0, 0), acked(50, 1000, 9000), sent(5000, 1000), acked(5050, 2000, 9000)];
    let account = account(&conversation(&segments), &[Outage { down: at(1000), up: at(2000) }]);
    assert_eq!(millis(&account, Cause::Outage), 0);
    assert_eq!(millis(&account, Cause::Idle), 4950);
}

#[test]
fn the_rounds_after_a_silence_that_carry_little_are_slow_start() {
    let mut segments = Vec::new();
    let (mut offset, mut time) = (0, 0);
    // Windows of 1, 2, 4, 8 segments and then 8 for 40 rounds of 50 ms.
    for window in [1, 2, 4].into_iter().chain([8; 40]) {
        segments.extend((0..window).map(|n| sent(time, offset + n * 1000)));
        offset += window * 1000;
        segments.push(acked(time + 50, offset, 60_000));
        time += 50;
    }
    let account = account(&conversation(&segments), &[]);
    let slow_start = millis(&account, Cause::SlowStart);
    assert!((150..=250).contains(&slow_start), "{slow_start}");
    assert_eq!(account.whole().as_millis(), time);
}

/// Transmissions at 100, 350, 850 and 1850 ms are lost, the one at 3850 ms gets through.
#[test]
fn an_outage_is_found_at_the_sender() {
    let mut segments = handshake(0, 50);
    segments.extend([sent(50, 0), acked(100, 1000, 9000)]);
    segments.extend([100, 350, 850, 1850, 3850].map(|millis| sent(millis, 1000)));
    segments.extend([acked(3900, 2000, 9000), sent(3900, 2000), acked(3950, 3000, 9000)]);
    let conversation = conversation(&segments);
    assert_eq!(conversation.place, Place::Sender);
    let found = conversation.outages();
    let [FoundOutage { guess, down, up, certainty }] = found[..] else { panic!("{found:?}") };
    assert_eq!((up, certainty), ((at(1850), at(3900)), Certainty::Sure));
    assert!(down.0 >= at(50) && down.1 <= at(150), "{down:?}");
    assert_eq!(guess, Outage { down: at(100), up: at(2850) });
    let account = account(&conversation, &[guess]);
    assert_eq!((millis(&account, Cause::Outage), millis(&account, Cause::RtoWait)), (2750, 1000));
}

/// Of two connections between the same hosts, the second begins after the outage.
#[test]
fn outages_before_a_connection_are_not_listed() {
    let mut first = handshake(0, 50);
    first.extend([sent(50, 0), acked(100, 1000, 9000)]);
    first.extend([100, 350, 850, 1850, 3850].map(|millis| sent(millis, 1000)));
    first.push(acked(3900, 2000, 9000));
    let mut second = vec![sent(5000, 0), acked(5050, 1000, 9000)];
    let found = crate::outages_of_paths(&[conversation(&first), conversation(&second)]);
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0]);
    // It was open, though silent, when the path failed.
    second.insert(0, sent(60, 0));
    let found = crate::outages_of_paths(&[conversation(&first), conversation(&second)]);
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn one_lost_segment_is_no_outage() {
    let mut segments = handshake(0, 50);
    segments.extend([sent(50, 0), acked(100, 1000, 9000), sent(100, 1000), sent(350, 1000), acked(400, 2000, 9000)]);
    let conversation = conversation(&segments);
    assert_eq!(conversation.outages(), []);
    assert_eq!(millis(&account(&conversation, &[]), Cause::RtoWait), 250);
}

/// The same outage from the other end, where the lost packets are not captured.
#[test]
fn an_outage_is_found_at_the_receiver() {
    let mut segments = handshake(50, 0);
    for n in 0..4 {
        segments.extend([sent(60 + n, 1000 * n as u32), acked(60 + n, 1000 * (n as u32 + 1), 9000)]);
    }
    segments.extend([sent(3875, 4000), acked(3875, 5000, 9000), sent(3925, 5000), sent(3926, 6000)]);
    segments.push(acked(3926, 7000, 9000));
    let conversation = conversation(&segments);
    assert_eq!(conversation.place, Place::Receiver);
    let found = conversation.outages();
    let [FoundOutage { guess, up, certainty, .. }] = found[..] else { panic!("{found:?}") };
    assert_eq!((guess.down, certainty), (at(63), Certainty::Likely));
    assert!(up.0 < at(1500) && up.1 == at(3875) && guess.up > at(2500) && guess.up < at(3300), "{found:?}");
    let account = account(&conversation, &[guess]);
    assert_eq!(millis(&account, Cause::Idle), 10, "before the first data");
    assert!(millis(&account, Cause::Outage) + millis(&account, Cause::RtoWait) >= 3800, "{account:?}");
}

/// A client that pauses, requests and receives: its server is idle in between, however the pauses look.
#[test]
fn pauses_between_answers_are_idle_at_the_receiver() {
    let mut segments = handshake(50, 0);
    for n in 0..3_u32 {
        let time = 1000 + 5000 * u64::from(n);
        let question = Seen { seq: Seq::new(1 + 100 * n), len: 100, ..acked(time, 2000 * n, 9000) };
        let tell = |seen: Seen| Seen { ack: Seq::new(101 + 100 * n), ..seen };
        segments.push(question);
        segments.push(tell(sent(time + 50, 2000 * n)));
        segments.push(Seen { flags: Flags::ACK | Flags::PSH, ..tell(sent(time + 50, 2000 * n + 1000)) });
        segments.push(Seen { seq: Seq::new(101 + 100 * n), ..acked(time + 50, 2000 * n + 2000, 9000) });
    }
    let conversation = conversation(&segments);
    assert_eq!((conversation.bytes, conversation.place, conversation.outages()), (6000, Place::Receiver, vec![]));
    let account = account(&conversation, &[]);
    assert!(millis(&account, Cause::Idle) > 10_000, "{account:?}");
}

#[test]
fn a_packet_at_two_interfaces_is_counted_once() {
    let mut segments = Vec::new();
    for (n, time) in [(0_u32, 0), (1, 100)] {
        let data = Seen { id: Some(7 + n as u16), ..sent(time, 1000 * n) };
        segments.extend([data, Seen { at: at(time + 1), ..data }]);
        segments.push(acked(time + 50, 1000 * n + 1000, 9000));
    }
    // A retransmission, with its own IP identification.
    segments.push(Seen { id: Some(9), ..sent(300, 1000) });
    let conversation = conversation(&segments);
    assert_eq!((conversation.segments, conversation.retransmissions), (3, 1));
}

#[test]
fn a_single_packet_is_an_account_too() {
    assert_eq!(account(&conversation(&[sent(5, 0)]), &[]).whole(), Duration::ZERO);
}

proptest! {
    /// For any input, the spans cover the whole time exactly once, also with the inferred outages.
    #[test]
    fn every_instant_has_one_cause(
        steps in proptest::collection::vec((0_u64..3000, any::<bool>(), 0_u32..20, 0_u16..3), 1..60),
        outages in proptest::collection::vec((1_u64..4000, 1_u64..4000), 0..5),
        place in 0..3,
    ) {
        let mut segments = match place { 0 => Vec::new(), 1 => handshake(0, 50), _ => handshake(50, 0) };
        let mut time = segments.last().map_or(0, |last| last.at.as_millis());
        segments.extend(steps.into_iter().map(|(wait, from_sender, unit, window)| {
            time += wait;
            if from_sender { sent(time, unit * 1000) } else { acked(time, unit * 1000, window * 4000) }
        }));
        segments.push(sent(time, 5000));
        let begin = segments[0].at;
        let conversation = conversation(&segments);
        let mut down = 0;
        let given: Vec<Outage> = outages.into_iter().map(|(gap, length)| {
            down += gap + length;
            Outage { down: at(down - length), up: at(down) }
        }).collect();
        let found = conversation.outages();
        for pair in found.windows(2) {
            prop_assert!(pair[0].guess.up <= pair[1].guess.down);
        }
        for outage in &found {
            prop_assert!(outage.down.0 <= outage.guess.down && outage.guess.down <= outage.down.1, "{:?}", outage);
            prop_assert!(outage.up.0 <= outage.guess.up && outage.guess.up <= outage.up.1, "{:?}", outage);
        }
        let found: Vec<Outage> = found.iter().map(|outage| outage.guess).collect();
        for outages in [given, found] {
            let account = account(&conversation, &outages);
            let mut expected = begin;
            for span in &account.spans {
                prop_assert_eq!(span.from, expected);
                prop_assert!(span.to > span.from);
                expected = span.to;
            }
            prop_assert!(begin == at(time) || expected == at(time));
        }
    }
}
