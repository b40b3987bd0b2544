//! The retransmission trigger: packet scripts for each rule, and worlds.

use holdover_base::{Duration, Instant};
use holdover_mobility::retransmission_trigger::{OPTION_ID, PeerTrigger, RetransmissionTriggerConfig};
use holdover_mobility::{LinkEvent, Mechanisms};
use holdover_tcp::{AfterRetransmit, Config, Profile, RetryLimit};
use holdover_wire::{Experimental, ExperimentalId, Packet, Segment};

use crate::ends::{End, Ends, segments};
use crate::support::*;

fn default() -> RetransmissionTriggerConfig {
    RetransmissionTriggerConfig::default()
}

fn trigger(config: RetransmissionTriggerConfig) -> Mechanisms {
    Mechanisms { retransmission_trigger: Some(config), ..Mechanisms::default() }
}

fn symmetric() -> LinkEvent {
    LinkEvent::Up { symmetric: true, moved: false }
}

fn asymmetric() -> LinkEvent {
    LinkEvent::Up { symmetric: false, moved: false }
}

fn linux() -> Config {
    Profile::Linux2_4.config()
}

/// A client and a server that both have segments outstanding after a cut of `cut`.
fn cut_off(config: RetransmissionTriggerConfig, cut: Duration) -> Ends {
    let mut ends = Ends::new(linux(), &trigger(config), &trigger(config));
    ends.client.writes(ends.now, 8);
    ends.server.writes(ends.now, 8);
    ends.cut(cut);
    assert!(ends.client.tcp().unacked() >= 4 && ends.server.tcp().unacked() >= 4);
    ends
}

/// Bytes of the Immediate Retransmission option's data, if the segment has it.
fn request(segment: &Segment) -> Option<Vec<u8>> {
    segment.options.experimental.iter().flatten().find_map(|option| {
        let option = option.with_long_id()?;
        (option.id == ExperimentalId::Long(OPTION_ID)).then(|| option.data.to_vec())
    })
}

#[test]
fn a_symmetric_indicator_retransmits_the_first_segment_at_once_at_both_ends() {
    let mut ends = cut_off(default(), ms(5_000));
    let now = ends.now;
    for end in [&mut ends.client, &mut ends.server] {
        let una = end.tcp().snd_una();
        end.hears(now, symmetric());
        let sent = segments(&end.sends(now));
        assert_eq!(sent.len(), 1, "one segment and nothing else");
        assert_eq!(sent[0].seq, una);
        assert!(!sent[0].payload.is_empty() && sent[0].options.experimental.is_none());
        assert_eq!(end.actions(), ["retransmitted"]);
    }
}

/// "No change of congestion control": the state is the same as if the timer had expired at that time.
#[test]
fn the_congestion_state_is_that_of_a_timeout() {
    let state = |end: &mut End| (end.tcp().cwnd(), end.tcp().ssthresh(), end.tcp().recovery_state(), end.tcp().lost());
    // Just before the first timeout, and after several.
    for cut in [ms(100), ms(5_000)] {
        let mut by_trigger = cut_off(RetransmissionTriggerConfig { forced_slow_start: false, ..default() }, cut);
        let mut by_timer = cut_off(default(), cut);
        by_trigger.client.hears(by_trigger.now, symmetric());
        let at = by_timer.client.endpoint.poll_timeout().expect("the timer");
        by_timer.client.endpoint.handle_timeout(at);
        assert_eq!(state(&mut by_trigger.client), state(&mut by_timer.client), "{cut}");
    }
}

#[test]
fn data_flows_again_within_a_round_trip() {
    let mut ends = cut_off(default(), ms(20_000));
    let (before, now) = (ends.server.tcp().rcv_nxt(), ends.now);
    ends.client.hears(now, symmetric());
    let out = ends.client.sends(now);
    ends.server.takes(now, out);
    assert!(ends.server.tcp().rcv_nxt().gt(before));
}

#[test]
fn nothing_outstanding_means_nothing_to_do() {
    let mut ends = Ends::new(linux(), &trigger(default()), &Mechanisms::default());
    let now = ends.now;
    ends.client.hears(now, symmetric());
    assert_eq!((ends.client.sends(now), ends.client.actions()), (vec![], vec![]));
}

#[test]
fn only_connections_with_the_peer_of_the_indicator_are_triggered() {
    let mut ends = cut_off(default(), ms(5_000));
    let now = ends.now;
    let (other, server) = ("10.0.0.77".parse().unwrap(), ends.server.address);
    ends.client.chain.handle_peer(now, &[other], symmetric());
    ends.client.chain.steer(now, &mut ends.client.endpoint);
    assert!(ends.client.sends(now).is_empty());
    ends.client.chain.handle_peer(now, &[other, server], symmetric());
    ends.client.chain.steer(now, &mut ends.client.endpoint);
    assert_eq!(ends.client.sends(now).len(), 1);
}

/// The paper leaves the timer open; each choice is an option.
#[test]
fn the_backoff_afterwards_is_configurable() {
    let rto = |after| {
        let mut ends = cut_off(RetransmissionTriggerConfig { after, ..default() }, ms(5_000));
        let before = ends.client.tcp().rto();
        ends.client.hears(ends.now, symmetric());
        (before, ends.client.tcp().rto())
    };
    let (before, kept) = rto(AfterRetransmit::Keep);
    assert_eq!(before, kept);
    assert_eq!(rto(AfterRetransmit::BackOff).1, before * 2);
    assert!(rto(AfterRetransmit::Reset).1 < ms(400));
}

#[test]
fn counting_towards_giving_up_is_configurable() {
    for counts in [false, true] {
        let mut ends = cut_off(RetransmissionTriggerConfig { counts, ..default() }, ms(5_000));
        let before = ends.client.tcp().retransmits();
        ends.client.hears(ends.now, symmetric());
        assert_eq!(ends.client.tcp().retransmits(), before + u32::from(counts));
    }
}

/// A trigger that comes too early costs a segment; the timer continues.
#[test]
fn after_a_trigger_that_was_too_early_the_timer_decides() {
    let mut ends = cut_off(default(), ms(5_000));
    ends.client.hears(ends.now, symmetric());
    assert_eq!(ends.client.sends(ends.now).len(), 1, "and it is lost");
    let at = ends.client.endpoint.poll_timeout().expect("the timer");
    ends.pass(at.saturating_since(ends.now));
    assert_eq!(ends.client.sends(ends.now).len(), 1);
}

#[test]
fn indicators_come_through_once_in_an_interval() {
    let mut ends = cut_off(RetransmissionTriggerConfig { min_interval: ms(1_000), ..default() }, ms(5_000));
    let start = ends.now;
    let mut sent = Vec::new();
    for n in 0..25 {
        let now = start + ms(100) * n;
        ends.client.hears(now, symmetric());
        if !ends.client.sends(now).is_empty() {
            sent.push(n);
        }
    }
    assert_eq!(sent, [0, 10, 20]);
    assert_eq!(ends.client.actions().iter().filter(|what| **what == "held back").count(), 22);
}

/// Without data to retransmit, a bare ACK carries the option.
#[test]
fn the_option_goes_on_a_bare_ack_where_nothing_is_outstanding() {
    let mut ends = Ends::new(linux(), &trigger(default()), &trigger(default()));
    let now = ends.now;
    ends.client.hears(now, asymmetric());
    let sent = segments(&ends.client.sends(now));
    assert_eq!(sent.len(), 1);
    assert!(sent[0].payload.is_empty());
    assert_eq!(request(&sent[0]).map(|data| data.len()), Some(2));
    assert_eq!(ends.client.actions(), ["asked"]);
    // Kind 253, 8 bytes, and the identifier, on the wire.
    let bytes = sent_bytes(&sent[0]);
    assert!(bytes.windows(6).any(|bytes| bytes == [253, 8, 0x48, 0x4f, 0x49, 0x52]));
}

fn sent_bytes(segment: &Segment) -> Vec<u8> {
    let address = |last| std::net::IpAddr::from([10, 0, 0, last]);
    Packet::new(address(1), address(2), segment.clone()).emit().unwrap().to_vec()
}

/// The next segment carries it: a retransmission that has room.
#[test]
fn the_option_rides_on_a_retransmission_that_has_room() {
    let mut ends = Ends::new(linux(), &trigger(default()), &trigger(default()));
    ends.client.tcp();
    let now = ends.now;
    assert_eq!(ends.client.tcp().write(now, vec![1; 100].into()), 100);
    ends.cut(ms(5_000));
    ends.client.hears(ends.now, asymmetric());
    let sent = segments(&ends.client.sends(ends.now));
    assert_eq!(sent.len(), 1);
    assert!(sent[0].payload.len() == 100 && request(&sent[0]).is_some());
}

/// A full-sized retransmission is not extended beyond the path's MTU: the option follows on a separate ACK.
#[test]
fn the_option_follows_a_full_sized_retransmission() {
    let mut ends = cut_off(default(), ms(5_000));
    let (una, nxt) = (ends.client.tcp().snd_una(), ends.client.tcp().snd_nxt());
    ends.client.hears(ends.now, asymmetric());
    let sent = segments(&ends.client.sends(ends.now));
    assert_eq!(sent.len(), 2);
    assert_eq!((sent[0].seq, request(&sent[0])), (una, None));
    assert!(sent[1].payload.is_empty() && request(&sent[1]).is_some());
    assert_eq!((sent[1].seq, sent[1].ack), (nxt, sent[0].ack));
}

#[test]
fn the_option_acts_as_a_symmetric_indicator() {
    let mut ends = cut_off(default(), ms(5_000));
    let now = ends.now;
    let (una, una_back) = (ends.client.tcp().snd_una(), ends.server.tcp().snd_una());
    ends.client.hears(now, asymmetric());
    let out = ends.client.sends(now);
    ends.server.takes(now, out);
    let back = segments(&ends.server.sends(now));
    assert!(back.iter().any(|segment| segment.seq == una_back && !segment.payload.is_empty()), "it retransmits");
    assert!(back.iter().all(|segment| request(segment).is_none()), "and asks for nothing back");
    assert!(back.iter().any(|segment| segment.ack.gt(una)), "and has got what it was sent");
    assert_eq!(ends.server.actions(), ["retransmitted"]);
}

#[test]
fn a_duplicate_of_the_option_is_not_answered_again() {
    let interval = RetransmissionTriggerConfig { min_interval: Duration::ZERO, ..default() };
    let mut ends = cut_off(interval, ms(5_000));
    let now = ends.now;
    ends.client.hears(now, asymmetric());
    let out = ends.client.sends(now);
    ends.server.takes(now, out.clone());
    ends.server.sends(now);
    assert_eq!(ends.server.actions(), ["retransmitted"]);
    ends.server.takes(now + ms(10), out);
    assert_eq!(ends.server.actions(), [""; 0]);
    // The next indicator is another request.
    ends.client.hears(now + ms(20), asymmetric());
    let out = ends.client.sends(now + ms(20));
    ends.server.takes(now + ms(30), out);
    assert_eq!(ends.server.actions(), ["retransmitted"]);
}

#[test]
fn requests_come_through_once_in_an_interval() {
    let quick = RetransmissionTriggerConfig { min_interval: Duration::ZERO, ..default() };
    let mut ends = Ends::new(linux(), &trigger(quick), &trigger(default()));
    ends.server.writes(ends.now, 8);
    ends.cut(ms(5_000));
    for n in 0..4 {
        let now = ends.now + ms(100) * n;
        ends.client.hears(now, asymmetric());
        let out = ends.client.sends(now);
        ends.server.takes(now, out);
        ends.server.sends(now);
    }
    assert_eq!(ends.server.actions(), ["retransmitted", "held back", "held back", "held back"]);
}

/// A request to the server, as its peer would make it, with these numbers.
fn request_with(ends: &mut Ends, number: u16, (seq_ahead, ack_ahead): (i32, i32)) -> Packet {
    let tcp = ends.server.tcp();
    let (una, nxt, local, remote) = (tcp.snd_una(), tcp.rcv_nxt(), tcp.local(), tcp.remote());
    let data = number.to_be_bytes().to_vec().into();
    let option = Experimental { second_kind: false, id: ExperimentalId::Long(OPTION_ID), data };
    let ahead =
        |seq: holdover_wire::Seq, by: i32| if by < 0 { seq - by.unsigned_abs() } else { seq + by.unsigned_abs() };
    let mut segment = Segment {
        src_port: remote.port(),
        dst_port: local.port(),
        seq: ahead(nxt, seq_ahead),
        ack: ahead(una, ack_ahead),
        flags: holdover_wire::Flags::ACK,
        window: 100,
        ..Segment::default()
    };
    segment.options.experimental = Some([option].into());
    Packet::new(remote.ip(), local.ip(), segment)
}

/// An off-path attacker cannot restart the connection.
#[test]
fn the_option_counts_with_numbers_that_can_be_the_peers() {
    for (seq_ahead, ack_ahead, expected) in
        [(0, 0, 1), (0, 1_000_000, 0), (0, -1_000_000, 0), (-1_448, 0, 1), (200_000_000, 0, 0), (-200_000_000, 0, 0)]
    {
        let mut ends = cut_off(default(), ms(5_000));
        let forged = request_with(&mut ends, 9, (seq_ahead, ack_ahead));
        ends.server.takes(ends.now, vec![forged]);
        assert_eq!(ends.server.actions().len(), expected, "{seq_ahead} {ack_ahead}");
    }
}

/// A forged request with the number that the peer will use does not prevent the peer's own from being granted.
#[test]
fn only_granted_requests_count_as_answered() {
    let mut ends = cut_off(default(), ms(5_000));
    let forged = request_with(&mut ends, 1, (0, 1_000_000));
    let elsewhere = crate::script::change(forged.clone(), |segment| segment.src_port = 7);
    ends.server.takes(ends.now, vec![forged, elsewhere]);
    assert_eq!(ends.server.actions(), [""; 0]);
    let real = request_with(&mut ends, 1, (0, 0));
    ends.server.takes(ends.now, vec![real]);
    assert_eq!(ends.server.actions(), ["retransmitted"]);
}

/// An early indicator, and the right one within the interval.
#[test]
fn an_indicator_within_the_interval_is_put_off_to_its_end() {
    let mut ends = cut_off(default(), ms(5_000));
    let first = ends.now;
    ends.client.hears(first, symmetric());
    assert_eq!(ends.client.sends(first).len(), 1, "and it is lost");
    ends.pass(ms(100));
    ends.client.hears(ends.now, symmetric());
    assert!(ends.client.sends(ends.now).is_empty());
    assert_eq!(ends.client.chain.poll_timeout(), Some(first + ms(500)));
    // The interval ends sooner than the backoff of the retransmission's timer.
    ends.pass(ms(400));
    assert_eq!(ends.client.actions(), ["retransmitted", "held back", "retransmitted"]);
    assert_eq!(ends.client.chain.poll_timeout(), None, "once");
}

/// The segment with the request is lost.
#[test]
fn a_request_is_repeated_until_the_peer_says_something_new() {
    let requests = |ends: &mut Ends| {
        let sent = ends.client.sends(ends.now);
        segments(&sent).iter().filter_map(request).collect::<Vec<_>>()
    };
    let mut ends = cut_off(default(), ms(5_000));
    ends.client.hears(ends.now, asymmetric());
    let mut heard = requests(&mut ends);
    for _ in 0..600 {
        ends.pass(ms(100));
        heard.extend(requests(&mut ends));
    }
    assert_eq!(heard.len(), 3, "and not for ever");
    assert!(heard.iter().all(|number| *number == heard[0]), "all have the same number");
    // After an answer it is sent only once.
    let mut ends = cut_off(default(), ms(5_000));
    ends.client.hears(ends.now, asymmetric());
    let out = ends.client.sends(ends.now);
    assert_eq!(segments(&out).iter().filter_map(request).count(), 1);
    ends.server.takes(ends.now, out);
    let back = ends.server.sends(ends.now);
    ends.client.takes(ends.now, back);
    assert_eq!(requests(&mut ends).len(), 0);
}

fn duplicate_acks(piggyback: bool) -> RetransmissionTriggerConfig {
    RetransmissionTriggerConfig { peer: PeerTrigger::DuplicateAcks { segments: 4, piggyback }, ..default() }
}

/// Empty queue: four pure ACKs, the worst case. With n segments outstanding, 4 - n.
#[test]
fn an_asymmetric_indicator_costs_at_most_four_pure_acks() {
    for outstanding in 0..6 {
        let mut ends = Ends::new(linux(), &trigger(duplicate_acks(true)), &Mechanisms::default());
        ends.client.writes(ends.now, outstanding);
        ends.cut(ms(5_000));
        assert_eq!(ends.client.tcp().unacked(), outstanding as u32);
        let rcv_nxt = ends.client.tcp().rcv_nxt();
        ends.client.hears(ends.now, asymmetric());
        let sent = segments(&ends.client.sends(ends.now));
        let pure = sent.iter().filter(|segment| segment.payload.is_empty()).count();
        assert_eq!(pure, 4_usize.saturating_sub(outstanding));
        assert_eq!(sent.len() - pure, outstanding.min(1), "the standard procedure sends one");
        assert!(sent.iter().all(|segment| segment.ack == rcv_nxt), "one and the same ACK number");
    }
}

#[test]
fn without_piggybacking_the_acks_are_pure() {
    let mut ends = cut_off(duplicate_acks(false), ms(5_000));
    ends.client.hears(ends.now, asymmetric());
    let sent = segments(&ends.client.sends(ends.now));
    assert_eq!(sent.iter().filter(|segment| segment.payload.is_empty()).count(), 4);
}

#[test]
fn duplicate_acks_make_a_standard_peer_retransmit() {
    let mut reno = Profile::RenoBsd.config();
    reno.send.fix_buffer(60_000);
    (reno.receive.buffer_bytes, reno.receive.max_buffer_bytes) = (60_000, 60_000);
    let mut ends = Ends::new(reno, &trigger(duplicate_acks(true)), &Mechanisms::default());
    ends.server.writes(ends.now, 8);
    // Shorter than its timeout: the ACK clock is alive, and fast retransmit follows.
    ends.cut(ms(300));
    let una = ends.server.tcp().snd_una();
    ends.client.hears(ends.now, asymmetric());
    let out = ends.client.sends(ends.now);
    assert_eq!(out.len(), 4);
    ends.server.takes(ends.now, out);
    assert_eq!(segments(&ends.server.sends(ends.now)).first().map(|segment| segment.seq), Some(una));
}

#[test]
fn without_a_relay_only_its_own_end_retransmits() {
    let mut ends = cut_off(RetransmissionTriggerConfig { peer: PeerTrigger::None, ..default() }, ms(5_000));
    ends.client.hears(ends.now, asymmetric());
    let sent = segments(&ends.client.sends(ends.now));
    assert!(sent.len() == 1 && request(&sent[0]).is_none());
}

/// A cut shorter than the timeout, and a new network: congestion state of the old one is reset, including the state for
/// an undo.
#[test]
fn a_new_network_is_entered_by_slow_start() {
    let cwnd = |cut, moved, forced_slow_start| {
        let mut ends = Ends::new(
            linux(),
            &trigger(RetransmissionTriggerConfig { forced_slow_start, ..default() }),
            &Mechanisms::default(),
        );
        ends.client.writes(ends.now, 1);
        if cut > Duration::ZERO {
            ends.cut(cut);
        } else {
            ends.exchange();
        }
        let window = ends.client.tcp().cwnd();
        ends.client.hears(ends.now, LinkEvent::Up { symmetric: true, moved });
        (window, ends.client.tcp().cwnd(), ends.client.actions())
    };
    // Nothing is outstanding, so no retransmission begins slow start.
    let (window, forced, actions) = cwnd(Duration::ZERO, true, true);
    assert!(forced < window && actions == ["slow start"], "{window} {forced} {actions:?}");
    let (window, kept, actions) = cwnd(Duration::ZERO, true, false);
    assert!(kept >= window && actions.is_empty());
    let (window, kept, actions) = cwnd(Duration::ZERO, false, true);
    assert!(kept >= window && actions.is_empty());
    let (_, forced, actions) = cwnd(ms(100), true, true);
    assert_eq!((forced, actions), (1, vec!["retransmitted", "slow start"]));
    // The timer expired: slow start follows by itself.
    assert_eq!(cwnd(ms(5_000), true, true).2, ["retransmitted"]);
}

#[test]
fn a_handshake_is_triggered_too() {
    let plain = tcp(world(Way::Upload, Profile::Linux2_4, 100_000, &[(0, 20_000)]), |_| {});
    let took = |world| run(world).completed_at.expect("it ended").as_millis();
    let slow = took(plain.clone());
    let quick = took(with(plain, trigger(default()), None));
    assert!(slow > 21_000 && quick < 20_600, "{slow} {quick}");
}

/// An upload through an outage of 18 s resumes at the next timeout, or at once.
#[test]
fn an_upload_continues_as_soon_as_the_link_is_back() {
    let mut plain = world(Way::Upload, Profile::Linux2_4, 8_000_000, &[(2_000, 20_000)]);
    plain.links[0].forward.outage_policy.in_flight = holdover_link::InFlightFate::Dropped;
    let slow = idle_ms(&run(plain.clone()));
    let quick = idle_ms(&run(with(plain, trigger(default()), None)));
    // If the ACK of the last segment was delayed beyond the cut, the first retransmission brings nothing new.
    assert!(slow > 1_000 && quick < 150, "{slow} {quick}");
}

/// A download: the mobile host knows of link-up, and the server retransmits because the option informs it. (If the mobile host's last ACK
/// was lost with the link, the ACK with the option is new to any server.)
#[test]
fn a_download_continues_if_the_server_knows_the_option() {
    let idle = |cut_ms: u64, both: bool| {
        let plain = world(Way::Download, Profile::Linux6Cubic, 8_000_000, &[(cut_ms, cut_ms + 18_000)]);
        let mut config = with(plain, trigger(default()), None);
        if both {
            let mechanisms = trigger(default());
            config.mechanisms.push(holdover_sim::HostMechanisms { node: SERVER, mechanisms, foresight: None });
        }
        idle_ms(&run(config))
    };
    let alone: Vec<u64> = (2_000..2_010).map(|cut_ms| idle(cut_ms, false)).collect();
    let both: Vec<u64> = (2_000..2_010).map(|cut_ms| idle(cut_ms, true)).collect();
    assert!(alone.iter().any(|idle| *idle > 1_000), "{alone:?}");
    assert!(both.iter().all(|idle| *idle < 110), "{both:?}");
}

/// With nine retries, as in the paper's test bed, and the trigger: counting its retransmissions ends the connection
/// earlier.
#[test]
fn a_counted_trigger_ends_a_connection_earlier() {
    let world = |counts| {
        let cuts: Vec<(u64, u64)> =
            (0..4).map(|n| (2_000 + n * 10, 2_005 + n * 10)).chain([(2_045, 100_000)]).collect();
        let config = RetransmissionTriggerConfig { counts, min_interval: Duration::ZERO, ..default() };
        let plain = tcp(world(Way::Upload, Profile::Linux2_4, 8_000_000, &cuts), |config| {
            config.limits.r2 = RetryLimit::Retries(7);
        });
        run(with(plain, trigger(config), None)).failed_at
    };
    let (counted, not) = (world(true).expect("it fails"), world(false).expect("it fails"));
    assert!(counted < not && not < Instant::from_secs(100), "{counted} {not}");
}
