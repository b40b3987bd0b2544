//! Records of connections: their bytes, their transfer between gateways, and the changes that they may make.

use std::collections::BTreeSet;
use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_filter::{Connection, Direction};
use holdover_flow::{Flow, FlowRecord};
use proptest::prelude::*;

use super::super::message::{Body, Message};
use super::super::protocol::{Event, Protocol};
use super::super::records::{MOST_RECORDS, Part, unpack};
use super::super::sealed::OVERHEAD;
use super::super::transfer::MOST;
use super::{address, epoch, mobile};
use crate::cluster::Epoch;
use crate::path::testing::Transfer;

const BOTH: [Direction; 2] = [Direction::Outgoing, Direction::Incoming];

fn transfer() -> impl Strategy<Value = Transfer> {
    let shift = prop::option::weighted(0.8, 0_u8..15);
    (any::<[bool; 3]>(), shift, 100_u32..400, 0_u32..=3, any::<u32>()).prop_map(
        |([is_upload, is_ipv6, has_stamps], shift, segments, blocks, isn)| Transfer {
            is_upload,
            is_ipv6,
            shift,
            has_stamps,
            segments,
            segment: 1000,
            blocks,
            isn,
        },
    )
}

fn record(transfer: Transfer, now: Instant) -> (FlowRecord, Flow) {
    let flow = transfer.until(now);
    (FlowRecord::of(now, transfer.connection(), &flow, true).unwrap(), flow)
}

/// Whether no sender was shown more than its receiver has acknowledged.
fn is_honest(flow: &Flow) -> bool {
    BOTH.into_iter().all(|direction| {
        let half = flow.half(direction);
        half.acked().is_none_or(|acked| acked.ge(half.shown()))
    })
}

proptest! {
    /// The other gateway has the first one's state, on its own clock.
    // Claim: A record of a connection has at most 256 bytes, and of it another gateway knows what the first one did: ACKs, shown ones and
    // SACK blocks, window shifts, timestamps and their rate, round trips; 256 random transfers, IPv4 and IPv6. Damaged records, those of
    // another version and garbage are refused, or say no more than a receiver's ACK.
    // Tests: `handoff::tests::records::damaged_records_are_refused_or_honest`
    #[test]
    fn a_record_says_all_on_another_clock(transfer in transfer(), offset in 0_u64..1_000_000_000) {
        let now = Instant::from_secs(5000) + Duration::from_nanos(offset);
        let there = Instant::from_secs(77) + Duration::from_nanos(offset * 7 % 1_000_000_000);
        let (record, flow) = record(transfer, now);
        let bytes = record.to_bytes();
        prop_assert!(bytes.len() <= FlowRecord::MAX_BYTES, "{}", bytes.len());
        prop_assert_eq!(FlowRecord::from_bytes(&bytes), Some(record.clone()));
        let connection = transfer.connection();
        prop_assert_eq!(record.connection(), connection);
        let moved = record.revive(there);
        prop_assert_eq!(FlowRecord::of(there, connection, &moved, true), Some(record));
        prop_assert!(is_honest(&moved));
        prop_assert_eq!(moved.keep_alive(connection), flow.keep_alive(connection));
        prop_assert_eq!(moved.is_under_way(), flow.is_under_way());
        let (before, after) = (flow.smoothed_round_trip(), moved.smoothed_round_trip());
        prop_assert_eq!(before.map(Duration::as_millis), after.map(Duration::as_millis));
        for direction in BOTH {
            let (before, after) = (flow.half(direction), moved.half(direction));
            prop_assert_eq!((after.acked(), after.shown()), (before.acked(), before.shown()));
            prop_assert_eq!((after.is_held(), after.has_outstanding()), (before.is_held(), before.has_outstanding()));
            prop_assert_eq!(after.lacks_window_shift(), transfer.shift.is_none());
            let receiver = connection.of_sender_going(direction);
            prop_assert_eq!(after.last_ack(receiver), before.last_ack(receiver));
            prop_assert_eq!(after.ack_up_to(before.shown(), receiver), before.ack_up_to(before.shown(), receiver));
            let ago = |at: Option<Instant>, now: Instant| at.map(|at| now.saturating_since(at).as_micros());
            prop_assert_eq!(ago(after.last_data_at(), there), ago(before.last_data_at(), now));
            if let (Some([first, newest]), Some([was_first, was_newest])) = (after.stamps(), before.stamps()) {
                prop_assert_eq!((first.1, newest.1), (was_first.1, was_newest.1));
                let span = |first: Instant, newest: Instant| newest.saturating_since(first).as_millis();
                prop_assert_eq!(span(first.0, newest.0), span(was_first.0, was_newest.0));
            } else {
                prop_assert!(before.stamps().is_none());
            }
        }
        // The last ACKs that a mobile sender was shown; or none, if there were too many for the ring or for the record.
        let is_full = bytes.len() + std::mem::size_of::<[u32; 2]>() > FlowRecord::MAX_BYTES;
        for ms in [0, 2, 60].map(Duration::from_millis) {
            let (before, after) = (flow.half(Direction::Outgoing), moved.half(Direction::Outgoing));
            let (before, after) = (before.shown_since(now - ms), after.shown_since(there - ms));
            prop_assert!(after == before || after.is_none() && is_full, "{ms:?}: {after:?}, {before:?}");
        }
    }

    #[test]
    fn damaged_records_are_refused_or_honest(
        transfer in transfer(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        garbage in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let bytes = record(transfer, Instant::from_secs(5000)).0.to_bytes();
        for cut in 0..bytes.len() {
            prop_assert_eq!(FlowRecord::from_bytes(&bytes[..cut]), None);
        }
        prop_assert_eq!(FlowRecord::from_bytes(&[&bytes[..], &[0]].concat()), None);
        let other_version = [&[FlowRecord::VERSION + 1], &bytes[1..]].concat();
        prop_assert_eq!(FlowRecord::from_bytes(&other_version), None);
        let mut damaged = bytes;
        for (at, byte) in changes {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        for bytes in [damaged, garbage] {
            if let Some(record) = FlowRecord::from_bytes(&bytes) {
                prop_assert_eq!(record.to_bytes(), bytes);
                prop_assert!(is_honest(&record.revive(Instant::from_secs(1))));
            }
        }
    }
}

/// All of it is one run of segments.
#[test]
fn a_record_of_a_long_transfer_is_valid() {
    let now = Instant::from_secs(5000);
    let transfer = Transfer { is_upload: true, segments: 18_500, segment: 60_000, ..Transfer::default() };
    let (record, flow) = record(transfer, now);
    assert!(flow.half(Direction::Outgoing).bytes_acked() > 1 << 30);
    assert_eq!(FlowRecord::from_bytes(&record.to_bytes()), Some(record));
}

#[test]
fn a_record_is_made_of_connections_in_use_only() {
    let now = Instant::from_secs(9);
    let connection = Transfer::default().connection();
    assert_eq!(FlowRecord::of(now, connection, &Flow::new(), false), None, "not answered");
    assert!(FlowRecord::of(now, connection, &Transfer::default().until(now), false).is_some());
}

// Claim: What a gateway has learned from packets is not changed by an older record: the later numbers win, a connection whose SYN was seen
// is another one, an end that only the new gateway has seen stays, and only an unknown window shift is taken from a record.
#[test]
fn the_later_numbers_win_and_a_record_of_another_connection_changes_nothing() {
    let now = Instant::from_secs(5000);
    for is_upload in [false, true] {
        let whole = Transfer { is_upload, ..Transfer::default() };
        let older = Transfer { segments: 200, ..whole };
        let unseen = Transfer { shift: None, ..whole };
        let (record, flow) = record(whole, now);
        let shifts = |known: &Flow| record.missing_shifts(known).collect::<Vec<_>>();
        assert!(!record.supersedes(&flow), "nothing new");
        assert_eq!(shifts(&flow), []);
        // State learned in mid-life, before the record was made.
        assert!(record.supersedes(&Transfer { segments: 200, ..unseen }.until(now)));
        assert_eq!(shifts(&unseen.until(now)), [(Direction::Outgoing, 7), (Direction::Incoming, 7)]);
        assert!(record.supersedes(&older.until(now)));
        for known in [older, Transfer { segments: 200, ..unseen }] {
            let mut ended = known.until(now);
            known.end_by_mobile(&mut ended, now);
            assert!(!record.supersedes(&ended), "a FIN that the former gateway has not seen");
        }
        assert!(record.supersedes(&Flow::new()));
        // State learned after the record was made.
        let later = Transfer { segments: 350, ..unseen }.until(now);
        assert!(!record.supersedes(&later));
        assert_eq!(shifts(&later), [(Direction::Outgoing, 7), (Direction::Incoming, 7)]);
        let (old_record, _) = self::record(older, now);
        assert!(!old_record.supersedes(&flow));
        assert_eq!(old_record.missing_shifts(&flow).count(), 0);
        // Another connection between the same ports.
        for isn in [whole.isn.wrapping_add(1 << 31), whole.isn.wrapping_add(5)] {
            let other = Transfer { isn, segments: 100, ..whole }.until(now);
            assert!(!record.supersedes(&other), "{isn}");
            assert_eq!(shifts(&other), []);
        }
        let far = Transfer { isn: whole.isn.wrapping_add(1 << 31), ..unseen }.until(now);
        assert!(!record.supersedes(&far));
        assert_eq!(shifts(&far), []);
    }
}

/// Records of this many connections.
fn records(count: usize, is_ipv6: bool) -> Vec<FlowRecord> {
    let now = Instant::from_secs(5000);
    let transfer = Transfer { is_upload: true, is_ipv6, blocks: 3, ..Transfer::default() };
    let flow = transfer.until(now);
    let record = |port: u16| {
        let mut connection: Connection = transfer.connection();
        connection.remote.set_port(port);
        FlowRecord::of(now, connection, &flow, true).unwrap()
    };
    (0..count).map(|number| record(number as u16 + 1000)).collect()
}

fn parts(count: usize) -> Vec<Part> {
    Part::pack(Instant::from_secs(5000), Instant::from_secs(4997), &records(count, false))
}

#[test]
fn all_records_of_a_mobile_host_fit_datagrams_of_1400_bytes_and_unknown_ones_are_left_out() {
    let now = Instant::from_secs(5000);
    let records = records(MOST_RECORDS, true);
    let mut protocol = Protocol::new(vec![address(1)]);
    protocol.handle_message(now, address(1), claim(1, 1));
    protocol.send_records(now, (mobile(), address(1), 1), Part::pack(now, now - Duration::from_secs(3), &records));
    let (mut came, mut number) = (Vec::new(), 0);
    while let Some((_, message)) = protocol.poll_transmit() {
        assert!(message.to_bytes().len() + OVERHEAD <= 1400);
        let Body::Records { bytes, .. } = message.body else { panic!("{message:?}") };
        let (since, some) = unpack(Instant::from_secs(90), &bytes).unwrap();
        assert_eq!(since, Instant::from_secs(87));
        came.extend(some);
        let mut damaged = bytes.clone();
        damaged[6] = 99;
        assert_eq!(unpack(now, &damaged).unwrap().1, came[came.len() - unpack(now, &bytes).unwrap().1.len() + 1..]);
        assert_eq!(unpack(now, &bytes[..bytes.len() - 1]), None);
        protocol.handle_message(now, address(1), Message { body: Body::GotRecords { number }, ..claim(1, 1) });
        number += 1;
    }
    assert_eq!(came, records);
    let events: Vec<Event> = std::iter::from_fn(|| protocol.poll_event()).collect();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(!protocol.are_records_under_way());
}

fn claim(id: u64, records: u8) -> Message {
    Message { id, mobile: mobile(), body: Body::Claim { epoch: Epoch::default(), records } }
}

proptest! {
    // Claim: Records of connections come once each to the gateway that claims their mobile host, over a network that loses up to 40 %,
    // doubles and reorders, and nothing is left behind at either; up to 15 % all of them come. 256 cases. Packets do not wait for
    // records; a gateway that does not read records is sent none; late ones follow a mobile host that has moved on.
    // Tests: `handoff::tests::records::packets_do_not_wait_for_records`,
    // `handoff::tests::records::records_are_sent_on_request_and_count_once`,
    // `handoff::tests::records::late_records_follow_a_mobile_host_and_unconfirmed_ones_come_back_with_it`
    #[test]
    fn records_arrive_once_each(count in 1_usize..180, seed in any::<u64>(), loss in 0_u64..40) {
        let mut random = holdover_base::Rng::new(seed);
        let mut protocols = [Protocol::new(vec![address(1)]), Protocol::new(vec![address(0)])];
        protocols[1].want_records();
        protocols[1].claim(Instant::ZERO, mobile(), Epoch::default(), &[address(0)]);
        let (mut came, mut last, mut lost) = (Vec::new(), 0, 0);
        let mut network: Vec<(u64, usize, Message)> = Vec::new();
        for tick in 0..200_000_u64 {
            let now = Instant::from_millis(tick);
            for (number, protocol) in protocols.iter_mut().enumerate() {
                protocol.handle_timeout(now);
                while let Some(event) = protocol.poll_event() {
                    match event {
                        Event::Claimed { .. } => protocol.end(now, mobile()),
                        Event::RecordsWanted { transfer } => protocol.send_records(now, transfer, parts(count)),
                        Event::Records { bytes, are_last, .. } => {
                            came.extend(unpack(now, &bytes).unwrap().1);
                            last += usize::from(are_last);
                        }
                        Event::RecordsLost { records, .. } => lost += records,
                        _ => {}
                    }
                }
                while let Some((_, message)) = protocol.poll_transmit() {
                    for _ in 0..=u64::from(random.below(100) < 10) {
                        if random.below(100) >= loss {
                            network.push((tick + 1 + random.below(30), 1 - number, message.clone()));
                        }
                    }
                }
            }
            let due: Vec<_> = network.extract_if(.., |(at, ..)| *at <= tick).collect();
            for (_, to, message) in due {
                protocols[to].handle_message(now, address(1 - to), message);
            }
            if network.is_empty() && protocols.iter().all(|protocol| protocol.poll_timeout().is_none()) {
                break;
            }
        }
        let connections: BTreeSet<Vec<u8>> = came.iter().map(FlowRecord::to_bytes).collect();
        prop_assert_eq!(connections.len(), came.len(), "each once");
        let is_complete = came.len() == count;
        prop_assert_eq!(last, usize::from(is_complete));
        // With 40 % loss the claim, or each confirmation, may be lost seven times.
        prop_assert!(is_complete || lost > 0 || loss > 15);
        prop_assert!(loss > 15 || is_complete, "{} of {count} with {loss} %", came.len());
        prop_assert!(protocols.iter().all(|protocol| protocol.poll_timeout().is_none() && !protocol.are_records_under_way()));
    }
}

#[test]
fn packets_do_not_wait_for_records() {
    let now = Instant::ZERO;
    let (mut old, mut new) = (Protocol::new(vec![address(1)]), Protocol::new(vec![address(0)]));
    new.want_records();
    new.claim(now, mobile(), epoch(1), &[address(0)]);
    old.handle_message(now, address(1), new.poll_transmit().unwrap().1);
    old.send_records(now, (mobile(), address(1), 1), parts(150));
    assert!((0..10).all(|byte| old.hand_on(now, mobile(), vec![byte])));
    old.end(now, mobile());
    // No record arrives.
    while let Some((_, message)) = old.poll_transmit() {
        if !matches!(message.body, Body::Records { .. }) {
            new.handle_message(now, address(0), message);
        }
    }
    let done = Event::Done { mobile: mobile(), packets: 10 };
    assert_eq!(std::iter::from_fn(|| new.poll_event()).last(), Some(done));
}

#[test]
fn records_are_sent_on_request_and_count_once() {
    let now = Instant::ZERO;
    let mut old = Protocol::new(vec![address(1)]);
    // A gateway of an earlier version, or one that follows no connections.
    old.handle_message(now, address(1), claim(1, 0));
    assert_eq!(std::iter::from_fn(|| old.poll_event()).collect::<Vec<_>>(), [Event::Claimed { mobile: mobile() }]);
    // A later version reads earlier records, too.
    old.handle_message(now, address(1), claim(2, 9));
    let transfer = (mobile(), address(1), 2);
    let events: Vec<Event> = std::iter::from_fn(|| old.poll_event()).collect();
    assert_eq!(events, [Event::Claimed { mobile: mobile() }, Event::RecordsWanted { transfer }]);
    let mut new = Protocol::new(vec![address(0)]);
    let part =
        |id, number, of| Message { id, mobile: mobile(), body: Body::Records { number, of, bytes: vec![number] } };
    new.handle_message(now, address(0), part(1, 0, 1));
    assert_eq!((new.poll_event(), new.poll_transmit()), (None, None), "not wanted");
    new.want_records();
    new.claim(now, mobile(), epoch(1), &[address(0)]);
    let Some((_, Message { id, body: Body::Claim { records: FlowRecord::VERSION, .. }, .. })) = new.poll_transmit()
    else {
        panic!("a claim")
    };
    let came = |number, are_last| Some(Event::Records { mobile: mobile(), bytes: vec![number], are_last });
    for (message, event, is_confirmed) in [
        (part(id, 1, 2), came(1, false), true),
        (part(id, 1, 2), None, true),
        (part(id + 1, 0, 2), None, false),
        (part(id, 2, 2), None, false),
        (part(id, 64, 255), None, false),
        (part(id, 0, 2), came(0, true), true),
        (part(id, 0, 2), None, true),
    ] {
        new.handle_message(now, address(0), message);
        assert_eq!(new.poll_event(), event);
        assert_eq!(new.poll_transmit().is_some(), is_confirmed);
    }
}

/// The mobile host goes from 0 to 1, and on to 2 before its records have come to 1.
#[test]
fn late_records_follow_a_mobile_host_and_unconfirmed_ones_come_back_with_it() {
    let now = Instant::ZERO;
    let (first, third) = (address(0), address(2));
    let mut middle = Protocol::new(vec![first, third]);
    middle.want_records();
    middle.claim(now, mobile(), epoch(1), &[first]);
    let (_, Message { id, .. }) = middle.poll_transmit().unwrap();
    middle.handle_message(now, third, claim(1, 1));
    let [part] = &parts(4)[..] else { panic!("one datagram") };
    let mut old = Protocol::new(vec![address(1)]);
    old.handle_message(now, address(1), claim(id, 1));
    old.send_records(now, (mobile(), address(1), id), vec![part.clone()]);
    let sent = old.poll_transmit().unwrap().1;
    middle.handle_message(now, first, sent.clone());
    let Some(Event::Records { bytes, .. }) = std::iter::from_fn(|| middle.poll_event()).last() else {
        panic!("records")
    };
    middle.pass_records_on(now, mobile(), bytes.clone());
    let followed: Vec<_> = std::iter::from_fn(|| middle.poll_transmit()).filter(|(to, _)| *to == third).collect();
    let body = Body::Records { number: 0, of: 1, bytes: bytes.clone() };
    assert_eq!(followed, [(third, Message { id: 1, mobile: mobile(), body })]);
    // No one has confirmed them to the first gateway, to which the mobile host returns.
    old.want_records();
    while old.poll_event().is_some() {}
    old.claim(now, mobile(), epoch(3), &[address(1)]);
    assert_eq!(old.poll_event(), Some(Event::Records { mobile: mobile(), bytes: bytes.clone(), are_last: true }));
    assert!(!old.are_records_under_way());
    // They do not follow it after its packets.
    middle.end(now, mobile());
    middle.pass_records_on(now, mobile(), bytes);
    assert_eq!(middle.poll_event(), Some(Event::RecordsLost { mobile: mobile(), records: 4 }));
}

/// The mobile host goes from 0 to 1, which does not answer, and on to 2.
#[test]
fn unconfirmed_records_go_to_the_next_gateway_that_claims_their_mobile_host() {
    let now = Instant::ZERO;
    let (second, third) = (address(1), address(2));
    let mut old = Protocol::new(vec![second, third]);
    old.handle_message(now, second, claim(1, 1));
    let [part] = &parts(4)[..] else { panic!("one datagram") };
    old.send_records(now, (mobile(), second, 1), vec![part.clone()]);
    while old.poll_transmit().is_some() {}
    old.handle_message(now, third, claim(7, 1));
    let sent = std::iter::from_fn(|| old.poll_transmit());
    let records = sent.filter(|(_, message)| matches!(message.body, Body::Records { number: 0, of: 1, .. }));
    assert_eq!(records.map(|(to, message)| (to, message.id)).collect::<Vec<_>>(), [(third, 7)]);
    old.handle_message(now, third, Message { body: Body::GotRecords { number: 0 }, ..claim(7, 1) });
    assert!(!old.are_records_under_way());
    let lost = |event: &Event| matches!(event, Event::RecordsLost { .. });
    assert!(!std::iter::from_fn(|| old.poll_event()).any(|event| lost(&event)));
}

/// The address of each is lower than those of all before.
#[test]
fn a_mobile_host_makes_room_for_those_claimed_after_it() {
    let (now, most) = (Instant::ZERO, MOST as u32);
    let mut new = Protocol::new(vec![address(0)]);
    new.want_records();
    let host = |number: u32| IpAddr::from((u32::MAX - number).to_be_bytes());
    for number in 0..=most {
        new.claim(now, host(number), Epoch::default(), &[]);
    }
    let arrives = |number: u32| {
        let body = Body::Records { number: 0, of: 1, bytes: vec![0] };
        new.handle_message(now, address(0), Message { id: u64::from(number) + 1, mobile: host(number), body });
        new.poll_event().is_some()
    };
    assert_eq!([0, 1, most - 1, most].map(arrives), [false, true, true, true]);
}

#[test]
fn records_are_bounded_and_given_up_with_their_gateway() {
    let now = Instant::ZERO;
    let mut old = Protocol::new(vec![address(1)]);
    old.handle_message(now, address(1), claim(1, 1));
    let transfer = (mobile(), address(1), 1);
    let [part] = &parts(4)[..] else { panic!("one datagram") };
    old.send_records(now, transfer, vec![part.clone(); 70]);
    assert_eq!(std::iter::from_fn(|| old.poll_transmit()).count(), 16, "a window");
    let lost = |old: &mut Protocol| {
        let events = std::iter::from_fn(|| old.poll_event());
        let lost = events
            .filter_map(|event| if let Event::RecordsLost { records, .. } = event { Some(records) } else { None });
        lost.sum::<u32>()
    };
    assert_eq!(lost(&mut old), 6 * 4, "64 datagrams at most");
    old.handle_message(now, address(1), Message { body: Body::GotRecords { number: 5 }, ..claim(1, 1) });
    assert_eq!(std::iter::from_fn(|| old.poll_transmit()).count(), 1);
    while old.are_records_under_way() {
        let at = old.poll_timeout().unwrap();
        assert!(at < Instant::from_secs(20));
        old.handle_timeout(at);
    }
    assert_eq!(lost(&mut old), 63 * 4);
    // Many mobile hosts at once: 8 MB in all.
    for number in 0..200_u32 {
        let mobile = IpAddr::from(number.to_be_bytes());
        old.handle_message(now, address(1), Message { mobile, ..claim(u64::from(number) + 2, 1) });
        old.send_records(now, (mobile, address(1), u64::from(number) + 2), vec![part.clone(); 64]);
    }
    let was_lost = lost(&mut old);
    assert!(was_lost > 0, "{was_lost}");
    // The other gateway is restarted, and claims nothing.
    old.handle_new_session(now, address(1));
    while old.poll_transmit().is_some() {}
    while old.are_records_under_way() {
        let at = old.poll_timeout().unwrap();
        assert!(at < Instant::from_secs(20));
        old.handle_timeout(at);
        assert_eq!(old.poll_transmit(), None);
    }
    assert_eq!(was_lost + lost(&mut old), 200 * 64 * 4);
}

// Claim: A gateway that is restarted before it has confirmed records gets them by its next claim, even if that has the number of the former
// one.
#[test]
fn a_restarted_gateway_gets_unconfirmed_records_by_its_next_claim() {
    let now = Instant::ZERO;
    let mut old = Protocol::new(vec![address(1)]);
    old.handle_message(now, address(1), claim(1, 1));
    let sent = parts(12);
    assert!(sent.len() > 2, "{}", sent.len());
    old.send_records(now, (mobile(), address(1), 1), sent.clone());
    old.handle_message(now, address(1), Message { body: Body::GotRecords { number: 0 }, ..claim(1, 1) });
    while old.poll_transmit().is_some() {}
    old.handle_new_session(now, address(1));
    // Records are not sent unasked: the new process may have claimed another mobile host by this number.
    old.handle_timeout(now + Duration::from_millis(500));
    assert_eq!(old.poll_transmit(), None);
    old.handle_message(now + Duration::from_secs(1), address(1), claim(1, 1));
    let mut new = Protocol::new(vec![address(0)]);
    new.want_records();
    new.claim(now, mobile(), epoch(1), &[address(0)]);
    while let Some((_, message)) = old.poll_transmit() {
        new.handle_message(now, address(0), message);
    }
    let came = std::iter::from_fn(|| new.poll_event()).map(|event| match event {
        Event::Records { bytes, are_last, .. } => (bytes, are_last),
        event => panic!("{event:?}"),
    });
    let came: Vec<_> = came.collect();
    assert_eq!(came.len(), sent.len() - 1, "one was confirmed");
    assert_eq!(came.iter().map(|(_, are_last)| *are_last).collect::<Vec<_>>().pop(), Some(true));
    while let Some((_, message)) = new.poll_transmit() {
        old.handle_message(now, address(1), message);
    }
    assert!(!old.are_records_under_way());
    assert!(!std::iter::from_fn(|| old.poll_event()).any(|event| matches!(event, Event::RecordsLost { .. })));
}
