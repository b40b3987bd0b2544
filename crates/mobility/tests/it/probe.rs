//! PROBE: packet scripts for each rule.

use holdover_base::Duration;
use holdover_mobility::probe::{OPTION_ID, ProbeConfig, RoundTrip};
use holdover_mobility::{LinkEvent, Mechanisms};
use holdover_tcp::{Config, Profile, RecoveryState, Timer};
use holdover_wire::{ExperimentalId, Packet, Segment, Seq};

use crate::ends::{Ends, segments};
use crate::support::*;

const MOVED: LinkEvent = LinkEvent::Up { symmetric: false, moved: true };
const SAME: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };

/// The space for the option of a probe.
const ROOM: u32 = 12;

fn default() -> ProbeConfig {
    ProbeConfig::default()
}

fn probe(config: ProbeConfig) -> Mechanisms {
    Mechanisms { probe: Some(config), ..Mechanisms::default() }
}

/// NewReno without SACK and timestamps: TCP itself reports by ACK numbers only.
fn plain() -> Config {
    let mut config = Profile::RenoBsd.config();
    config.send.fix_buffer(60_000);
    (config.receive.buffer_bytes, config.receive.max_buffer_bytes) = (60_000, 60_000);
    (config.sack, config.timestamps) = (false, None);
    config
}

/// The content of an option of PROBE: the kind of message, and the rest.
fn message(segment: &Segment) -> Option<(u8, Vec<u8>)> {
    segment.options.experimental.iter().flatten().find_map(|option| {
        let option = option.with_long_id()?;
        let is_ours = option.id == ExperimentalId::Long(OPTION_ID);
        is_ours.then(|| (option.data[0], option.data[1..].to_vec()))
    })
}

fn of_kind(sent: &[Segment], kind: u8) -> Vec<&Segment> {
    sent.iter().filter(|segment| message(segment).is_some_and(|(of, _)| of == kind)).collect()
}

const NACK: u8 = 0;
const PROBE: u8 = 1;
const BITMASK: u8 = 2;

/// Both ends have PROBE. The server has sent `outstanding` segments; those in `arrived` reached the client, but their ACKs were lost; then
/// the client was cut off for `cut`.
fn cut_off(config: ProbeConfig, tcp: Config, outstanding: usize, arrived: &[usize], cut: Duration) -> Ends {
    let mut ends = Ends::new(tcp, &probe(config), &probe(config));
    ends.server.tcp().set_cwnd(outstanding as u32);
    ends.server.writes(ends.now, outstanding);
    let sent = ends.server.sends(ends.now);
    assert_eq!(sent.len(), outstanding);
    let arrives = sent.into_iter().enumerate().filter(|(index, _)| arrived.contains(index));
    let arrives: Vec<Packet> = arrives.map(|(_, packet)| packet).collect();
    ends.client.takes(ends.now, arrives);
    ends.client.hears(ends.now, LinkEvent::Down);
    ends.cut(cut);
    ends
}

/// The client moves, and its nacks arrive at the server. Returns the packets that the server then sends.
fn nacked(ends: &mut Ends) -> Vec<Packet> {
    ends.client.hears(ends.now, MOVED);
    let nacks = ends.client.sends(ends.now);
    ends.pass(ms(50));
    ends.server.takes(ends.now, nacks);
    ends.server.sends(ends.now)
}

/// The probes arrive 10 ms apart, the first after 50 ms. Returns the packets that the client then sends.
fn probed(ends: &mut Ends, probes: Vec<Packet>) -> Vec<Packet> {
    ends.pass(ms(40));
    let mut sent = Vec::new();
    for packet in probes {
        ends.pass(ms(10));
        ends.client.takes(ends.now, vec![packet]);
        sent.extend(ends.client.sends(ends.now));
    }
    sent
}

/// Runs until everything is acknowledged.
fn finish(ends: &mut Ends) {
    for _ in 0..100 {
        ends.exchange();
        ends.pass(ms(1_000));
    }
    assert_eq!((ends.client.tcp().unacked(), ends.server.tcp().unacked()), (0, 0));
}

/// From the handoff to the server's answer to the bitmask.
fn recovered(ends: &mut Ends) -> Vec<Segment> {
    let probes = nacked(ends);
    let back = probed(ends, probes);
    ends.pass(ms(50));
    ends.server.takes(ends.now, back);
    segments(&ends.server.sends(ends.now))
}

#[test]
fn a_handoff_sets_off_three_nacks_of_the_last_byte_in_sequence() {
    let mut ends = cut_off(default(), plain(), 8, &[0, 1, 3], ms(5_000));
    let rcv_nxt = ends.client.tcp().rcv_nxt();
    ends.client.hears(ends.now, MOVED);
    let sent = segments(&ends.client.sends(ends.now));
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|nack| nack.payload.is_empty() && nack.ack == rcv_nxt && *nack == sent[0]));
    assert_eq!(message(&sent[0]), Some((NACK, vec![1])));
    assert_eq!(ends.client.actions(), ["sent nacks"]);
    // Kind 253, 8 bytes, and the identifier, on the wire.
    let address = |last| std::net::IpAddr::from([10, 0, 0, last]);
    let bytes = Packet::new(address(1), address(2), sent[0].clone()).emit().unwrap();
    assert!(bytes.windows(8).any(|bytes| bytes == [253, 8, 0x48, 0x4f, 0x50, 0x42, 0, 1]));
    // The next handoff has another number.
    ends.client.hears(ends.now, MOVED);
    assert_eq!(message(&segments(&ends.client.sends(ends.now))[0]), Some((NACK, vec![2])));
}

#[test]
fn a_link_that_comes_back_as_it_was_counts_if_configured() {
    for (only_moved, up, nacks) in [(true, MOVED, 3), (true, SAME, 0), (false, SAME, 3), (false, MOVED, 3)] {
        let mut ends = cut_off(ProbeConfig { only_moved, ..default() }, plain(), 8, &[], ms(5_000));
        ends.client.hears(ends.now, up);
        assert_eq!(ends.client.sends(ends.now).len(), nacks);
    }
    let mut ends = cut_off(ProbeConfig { nacks: 5, ..default() }, plain(), 8, &[], ms(5_000));
    ends.client.hears(ends.now, MOVED);
    assert_eq!(ends.client.sends(ends.now).len(), 5);
}

/// Timeouts have backed the timer off, and ordinary duplicates would be ignored.
#[test]
fn a_nack_sets_off_three_consecutive_probes() {
    let mut ends = cut_off(default(), plain(), 8, &[], ms(20_000));
    let (una, mss) = (ends.server.tcp().snd_una(), ends.server.tcp().snd_mss());
    assert!(ends.server.tcp().backoff() > 0);
    let plain_rto = ends.server.tcp().rto();
    let sent = segments(&nacked(&mut ends));
    assert_eq!(sent.len(), 3);
    for (index, segment) in (0..).zip(&sent) {
        assert_eq!(segment.seq, una + index * (mss - ROOM));
        assert_eq!(segment.payload.len() as u32, mss - ROOM);
        assert_eq!(message(segment), Some((PROBE, vec![1, index as u8, 3])));
    }
    assert_eq!(ends.server.actions(), ["probed"]);
    let tcp = ends.server.tcp();
    assert_eq!((tcp.backoff(), tcp.recovery_state()), (0, RecoveryState::Loss));
    assert!(tcp.rto() < plain_rto);
    let rto = tcp.rto();
    let left = tcp.deadline(Timer::Retransmit).expect("it runs").saturating_since(ends.now);
    // It ends at a tick of 500 ms.
    assert!(left <= rto + ms(500), "{left} {rto}");
}

#[test]
fn any_one_of_the_nacks_counts_and_the_others_do_not() {
    for arrives in 0..3 {
        let mut ends = cut_off(default(), plain(), 8, &[], ms(5_000));
        ends.client.hears(ends.now, MOVED);
        let nacks = ends.client.sends(ends.now);
        ends.server.takes(ends.now, vec![nacks[arrives].clone()]);
        assert_eq!(ends.server.sends(ends.now).len(), 3);
        // The other nacks arrive late, even after the phase.
        ends.server.takes(ends.now, nacks.clone());
        assert!(ends.server.sends(ends.now).is_empty());
        assert_eq!(ends.server.actions(), ["probed"]);
    }
    let mut ends = cut_off(default(), plain(), 8, &[], ms(5_000));
    let (una, mss) = (ends.server.tcp().snd_una(), ends.server.tcp().snd_mss());
    ends.client.hears(ends.now, MOVED);
    let nacks = ends.client.sends(ends.now);
    ends.server.takes(ends.now, nacks[..1].to_vec());
    let probes = ends.server.sends(ends.now);
    let back = probed(&mut ends, probes);
    ends.server.takes(ends.now, back);
    assert_eq!(ends.server.tcp().snd_una(), una + 3 * (mss - ROOM));
    assert_eq!(ends.server.actions(), ["probed", "took the bitmask", "recovered"]);
    ends.server.sends(ends.now);
    ends.server.takes(ends.now, nacks[1..].to_vec());
    assert!(ends.server.sends(ends.now).is_empty() && ends.server.actions().is_empty());
}

/// An off-path attacker cannot restart the connection.
#[test]
fn a_nack_counts_with_numbers_that_can_be_the_peers() {
    for (seq_ahead, ack_ahead, expected) in [(0, 0, 1), (0, 1_000_000, 0), (0, -1_000_000, 0), (200_000_000, 0, 0)] {
        let mut ends = cut_off(default(), plain(), 8, &[], ms(5_000));
        ends.client.hears(ends.now, MOVED);
        let ahead = |seq: Seq, by: i32| if by < 0 { seq - by.unsigned_abs() } else { seq + by.unsigned_abs() };
        let forged = crate::script::change(ends.client.sends(ends.now).remove(0), |segment| {
            (segment.seq, segment.ack) = (ahead(segment.seq, seq_ahead), ahead(segment.ack, ack_ahead));
        });
        ends.server.takes(ends.now, vec![forged]);
        assert_eq!(ends.server.actions().len(), expected, "{seq_ahead} {ack_ahead}");
    }
}

#[test]
fn nothing_outstanding_or_a_closed_window_begins_no_phase() {
    let mut ends = Ends::new(plain(), &probe(default()), &probe(default()));
    assert!(nacked(&mut ends).is_empty() && ends.server.actions().is_empty());
    let mut ends = cut_off(default(), plain(), 8, &[], ms(5_000));
    ends.client.tcp().clamp_window(Some(0));
    let sent = nacked(&mut ends);
    assert!(sent.is_empty() && ends.server.actions().is_empty(), "{sent:?}");
}

/// Of eight segments the second, fourth and fifth had arrived.
#[test]
fn the_last_probe_is_answered_by_one_bitmask() {
    let mut ends = cut_off(default(), plain(), 8, &[1, 3, 4], ms(5_000));
    let mss = ends.server.tcp().snd_mss();
    let probes = nacked(&mut ends);
    let sent = segments(&probed(&mut ends, probes));
    let bitmasks = of_kind(&sent, BITMASK);
    assert_eq!(bitmasks.len(), 1);
    assert_eq!(ends.client.actions(), ["sent nacks", "answered"]);
    let (_, data) = message(bitmasks[0]).expect("a message");
    let bandwidth = u32::from_be_bytes([data[1], data[2], data[3], data[4]]);
    assert_eq!(bandwidth, (mss - ROOM) * 100, "10 ms apart");
    // The probes cover three segments but for 36 bytes; the fourth and fifth are held.
    assert_eq!(bitmasks[0].ack, ends.client.tcp().rcv_nxt());
    let number =
        |number: u32| if number < 0x80 { vec![number as u8] } else { vec![number as u8 | 0x80, (number >> 7) as u8] };
    let expected = [vec![0], number(36 + 2 * mss), number(36), number(2 * mss)].concat();
    assert_eq!((data[0], &data[5..]), (1, &expected[..]));
    // Late duplicates of probes are not answered again.
    let mut ends = cut_off(default(), plain(), 8, &[], ms(5_000));
    let probes = nacked(&mut ends);
    let first = probed(&mut ends, probes.clone());
    let again = probed(&mut ends, probes);
    ends.pass(ms(1_000));
    let late = ends.client.sends(ends.now);
    let count = |packets: &[Packet]| of_kind(&segments(packets), BITMASK).len();
    assert_eq!((count(&first), count(&again), count(&late)), (1, 0, 0));
}

/// ssthresh is bandwidth times round trip, and cwnd half of that; data that the receiver holds is not retransmitted.
#[test]
fn the_bitmask_sets_the_windows_and_what_is_retransmitted() {
    let mut ends = cut_off(default(), plain(), 20, &[1, 3, 4], ms(5_000));
    let (una, mss) = (ends.server.tcp().snd_una(), ends.server.tcp().snd_mss());
    let sent = recovered(&mut ends);
    // A round trip of 100 ms and a probe every 10 ms: nearly ten segments.
    let ssthresh = (mss - ROOM) * 10 / mss;
    assert_eq!(ends.server.tcp().ssthresh(), Some(ssthresh));
    assert_eq!(ends.server.tcp().cwnd(), ssthresh / 2);
    assert_eq!(ends.server.actions(), ["probed", "took the bitmask"]);
    let ranges: Vec<(u32, u32)> =
        sent.iter().map(|segment| (segment.seq - una, segment.seq - una + segment.payload.len() as u32)).collect();
    let from = 3 * (mss - ROOM);
    assert_eq!(ranges[..3], [(from, from + 36), (5 * mss, 6 * mss), (6 * mss, 7 * mss)]);
    assert_eq!(ranges.len() as u32, ssthresh / 2, "within cwnd");
    assert!(sent.iter().all(|segment| message(segment).is_none()));
}

#[test]
fn ssthresh_is_at_most_the_peers_window_and_at_least_two() {
    for (spacing, clamp, windows) in [(Duration::ZERO, 60_000, None), (ms(90), 60_000, Some((2, 1)))] {
        let mut ends = cut_off(default(), plain(), 8, &[], ms(5_000));
        ends.client.tcp().clamp_window(Some(clamp));
        let probes = nacked(&mut ends);
        ends.pass(ms(50));
        let mut back = Vec::new();
        for packet in probes {
            ends.pass(spacing);
            ends.client.takes(ends.now, vec![packet]);
            back.extend(ends.client.sends(ends.now));
        }
        ends.server.takes(ends.now, back);
        let tcp = ends.server.tcp();
        let most = tcp.snd_wnd() / tcp.snd_mss();
        let windows = windows.unwrap_or((most, most / 2));
        assert_eq!((tcp.ssthresh(), tcp.cwnd()), (Some(windows.0), windows.1));
    }
}

#[test]
fn the_smoothed_round_trip_can_be_used() {
    let config = ProbeConfig { round_trip: RoundTrip::Smoothed, ..default() };
    let mut ends = cut_off(config, plain(), 8, &[], ms(5_000));
    let srtt = ends.server.tcp().srtt().expect("a sample");
    recovered(&mut ends);
    let tcp = ends.server.tcp();
    let mss = tcp.snd_mss();
    let bytes = u64::from((mss - ROOM) * 100) * srtt.as_millis() / 1000;
    assert_eq!(tcp.ssthresh(), Some((bytes as u32 / mss).clamp(2, tcp.snd_wnd() / mss)));
}

/// Only probes are sent before the bitmask shows the missing segments.
#[test]
fn acks_of_probes_release_nothing_before_the_bitmask() {
    let mut ends = cut_off(default(), plain(), 8, &[], ms(5_000));
    let probes = nacked(&mut ends);
    let mut acks = Vec::new();
    for packet in &probes[..2] {
        ends.client.takes(ends.now, vec![packet.clone()]);
        acks.extend(ends.client.sends(ends.now));
        ends.pass(ms(150));
    }
    acks.extend(ends.client.sends(ends.now));
    assert!(!acks.is_empty() && of_kind(&segments(&acks), BITMASK).is_empty());
    let una = ends.server.tcp().snd_una();
    ends.server.takes(ends.now, acks);
    assert!(ends.server.tcp().snd_una().gt(una));
    assert!(ends.server.sends(ends.now).is_empty());
}

#[test]
fn without_one_probe_a_pair_is_enough() {
    for (lost, known) in [(0, true), (1, false), (2, true)] {
        let mut ends = cut_off(default(), plain(), 8, &[], ms(5_000));
        let mut probes = nacked(&mut ends);
        probes.remove(lost);
        let sent = segments(&probed(&mut ends, probes));
        assert!(of_kind(&sent, BITMASK).is_empty(), "it waits for the third");
        ends.pass(ms(199));
        assert!(of_kind(&segments(&ends.client.sends(ends.now)), BITMASK).is_empty());
        ends.pass(ms(1));
        let back = ends.client.sends(ends.now);
        let sent = segments(&back);
        let bitmasks = of_kind(&sent, BITMASK);
        assert_eq!(bitmasks.len(), 1);
        let (_, data) = message(bitmasks[0]).expect("a message");
        assert_eq!(data[1..5] != [0; 4], known);
        let una = ends.server.tcp().snd_una();
        ends.server.takes(ends.now, back);
        let tcp = ends.server.tcp();
        if !known {
            assert_eq!(tcp.cwnd(), 1);
        }
        // Lost probes are retransmitted at once.
        let acknowledged = tcp.snd_una();
        let again = segments(&ends.server.sends(ends.now));
        assert!(acknowledged.ge(una) && again[0].seq == acknowledged, "{lost}");
    }
}

#[test]
fn without_a_bitmask_slow_start_continues_when_all_probes_are_acknowledged() {
    // The client sends nacks, but does not answer probes, as if its bitmask were lost.
    let mut ends = cut_off(default(), plain(), 8, &[], ms(5_000));
    let una = ends.server.tcp().snd_una();
    let probes = nacked(&mut ends);
    let back = probed(&mut ends, probes);
    let strip = |packet| crate::script::change(packet, |segment| segment.options.experimental = None);
    let back: Vec<Packet> = back.into_iter().map(strip).collect();
    ends.server.takes(ends.now, back);
    assert!(ends.server.tcp().snd_una().gt(una));
    assert_eq!(ends.server.actions(), ["probed"]);
    let sent = ends.server.sends(ends.now);
    assert_eq!((sent.len(), segments(&sent)[0].seq), (3, ends.server.tcp().snd_una()));
    ends.client.takes(ends.now, sent);
    ends.pass(ms(200));
    finish(&mut ends);
    assert_eq!(ends.server.actions(), ["was not answered"]);
}

#[test]
fn without_any_answer_the_timer_runs_out_after_one_timeout() {
    let mut ends = cut_off(default(), plain(), 8, &[], ms(20_000));
    nacked(&mut ends);
    ends.server.actions();
    let (una, rto) = (ends.server.tcp().snd_una(), ends.server.tcp().rto());
    let begun = ends.now;
    let mut again = Vec::new();
    while again.is_empty() {
        ends.pass(ms(10));
        ends.server.chain.steer(ends.now, &mut ends.server.endpoint);
        again = segments(&ends.server.sends(ends.now));
        assert!(ends.now.saturating_since(begun) < rto + ms(600));
    }
    assert_eq!(again[0].seq, una);
    assert_eq!(ends.server.actions(), ["timed out"]);
    // The rest is retransmitted as after any timeout.
    finish(&mut ends);
}

#[test]
fn the_phase_ends_when_all_up_to_recovery_end_is_acknowledged() {
    let mut ends = cut_off(default(), plain(), 8, &[1, 3, 4], ms(5_000));
    let una = ends.server.tcp().snd_una();
    recovered(&mut ends);
    let mss = ends.server.tcp().snd_mss();
    assert_eq!(ends.server.actions(), ["probed", "took the bitmask"]);
    let acknowledge = |ends: &mut Ends, ack: Seq| {
        let client = ends.client.tcp();
        let segment = Segment {
            src_port: client.local().port(),
            dst_port: client.remote().port(),
            seq: client.snd_nxt(),
            ack,
            flags: holdover_wire::Flags::ACK,
            window: 40_000,
            ..Segment::default()
        };
        let packet = Packet::new(client.local().ip(), client.remote().ip(), segment);
        ends.server.takes(ends.now, vec![packet]);
        ends.server.actions()
    };
    assert!(acknowledge(&mut ends, una + 4 * mss).is_empty());
    assert_eq!(acknowledge(&mut ends, una + 5 * mss), ["recovered"]);
}

/// A retransmission is lost: three duplicates make the sender retransmit the segment after the ACK, once, and nothing
/// else.
#[test]
fn three_duplicates_repeat_a_lost_retransmission() {
    let mut ends = cut_off(default(), plain(), 12, &[1, 3, 5, 7, 9], ms(5_000));
    let sent = recovered(&mut ends);
    assert!(!sent.is_empty());
    let una = ends.server.tcp().snd_una();
    assert_eq!(sent[0].seq, una);
    ends.server.actions();
    let cwnd = ends.server.tcp().cwnd();
    let mut again = Vec::new();
    for _ in 0..6 {
        ends.client.tcp().send_acks(1);
        let ack = ends.client.sends(ends.now);
        ends.server.takes(ends.now, ack);
        again.push(segments(&ends.server.sends(ends.now)).iter().map(|segment| segment.seq).collect::<Vec<_>>());
    }
    assert_eq!(again, [vec![], vec![], vec![una], vec![], vec![], vec![]]);
    assert_eq!(ends.server.actions(), ["repeated"]);
    assert_eq!((ends.server.tcp().cwnd(), ends.server.tcp().counters().recoveries), (cwnd, 0));
}

/// The mobile host probes for its own data without a nack.
#[test]
fn a_mobile_sender_probes_at_once() {
    for own_data in [true, false] {
        let config = ProbeConfig { own_data, ..default() };
        let mut ends = Ends::new(plain(), &probe(config), &probe(config));
        ends.client.writes(ends.now, 8);
        ends.cut(ms(5_000));
        let una = ends.client.tcp().snd_una();
        ends.client.hears(ends.now, MOVED);
        let sent = ends.client.sends(ends.now);
        let probes: Vec<Seq> = of_kind(&segments(&sent), PROBE).iter().map(|segment| segment.seq).collect();
        assert_eq!(probes.len(), if own_data { 3 } else { 0 });
        if own_data {
            assert_eq!(probes[0], una);
            ends.pass(ms(50));
            ends.server.takes(ends.now, sent);
            let back = ends.server.sends(ends.now);
            assert_eq!(of_kind(&segments(&back), BITMASK).len(), 1);
            ends.client.takes(ends.now, back);
            assert_eq!(ends.client.actions(), ["sent nacks", "probed", "took the bitmask", "recovered"]);
        }
        finish(&mut ends);
    }
}

/// Data was in flight in both directions: two phases on one connection, each with its own probes and bitmask.
#[test]
fn both_directions_recover_at_once() {
    let mut ends = Ends::new(plain(), &probe(default()), &probe(default()));
    ends.client.writes(ends.now, 6);
    ends.server.writes(ends.now, 6);
    ends.cut(ms(5_000));
    ends.client.hears(ends.now, MOVED);
    for _ in 0..20 {
        let (out, back) = (ends.client.sends(ends.now), ends.server.sends(ends.now));
        ends.pass(ms(50));
        ends.server.takes(ends.now, out);
        ends.client.takes(ends.now, back);
    }
    let count = |actions: Vec<&str>, what: &str| actions.iter().filter(|action| **action == what).count();
    for end in [&mut ends.client, &mut ends.server] {
        let actions = end.actions();
        for what in ["probed", "answered", "took the bitmask", "recovered"] {
            assert_eq!(count(actions.clone(), what), 1, "{what} in {actions:?}");
        }
    }
    finish(&mut ends);
}

/// A lone FIN cannot be a probe, and does not leave the sender in the phase.
#[test]
fn a_lone_fin_is_sent_again() {
    let mut ends = Ends::new(plain(), &probe(default()), &probe(default()));
    ends.server.tcp().shutdown_write();
    ends.cut(ms(5_000));
    let packets = nacked(&mut ends);
    let sent = segments(&packets);
    assert!(sent.len() == 1 && sent[0].flags.contains(holdover_wire::Flags::FIN) && message(&sent[0]).is_none());
    ends.client.takes(ends.now, packets);
    ends.exchange();
    assert_eq!(ends.server.tcp().unacked(), 0);
    assert_eq!(ends.server.actions(), ["probed", "was not answered"]);
}

/// With timestamps and SACK the options still fit, and the probes into a full-sized packet.
#[test]
fn linux_with_sack_and_timestamps() {
    let mut ends = cut_off(default(), Profile::Linux6Reno.config(), 20, &[1, 3, 5, 7, 9, 11, 13], ms(5_000));
    let mss = ends.server.tcp().snd_mss();
    let probes = nacked(&mut ends);
    assert_eq!(of_kind(&segments(&probes), PROBE).len(), 3);
    for segment in segments(&probes) {
        assert!(segment.payload.len() + segment.options.wire_len() <= mss as usize + 12, "{segment:?}");
    }
    let back = probed(&mut ends, probes);
    assert_eq!(of_kind(&segments(&back), BITMASK).len(), 1);
    ends.pass(ms(50));
    ends.server.takes(ends.now, back);
    assert_eq!(ends.server.actions(), ["probed", "took the bitmask"]);
    // At least three ranges are listed.
    assert!(ends.server.tcp().sacked() >= 3);
    finish(&mut ends);
}

/// A second handoff in the phase begins anew.
#[test]
fn another_handoff_begins_the_phase_anew() {
    let mut ends = cut_off(default(), plain(), 8, &[1], ms(5_000));
    nacked(&mut ends);
    let again = nacked(&mut ends);
    assert_eq!(of_kind(&segments(&again), PROBE).len(), 3);
    let back = probed(&mut ends, again);
    ends.server.takes(ends.now, back);
    assert_eq!(ends.server.actions(), ["probed", "probed", "took the bitmask", "recovered"]);
    finish(&mut ends);
}
