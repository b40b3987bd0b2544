//! Freezing, rule by rule.

use holdover_base::Duration;
use holdover_mobility::freeze::{FreezeConfig, WarningPeriod};
use holdover_mobility::reconnect_acks::ReconnectAcksConfig;
use holdover_mobility::{LinkEvent, Mechanisms};
use holdover_sim::FlowStatus;
use holdover_tcp::Profile;
use holdover_wire::{Flags, Packet, Seq, SeqRange};

use crate::script::*;
use crate::support::*;

const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };

fn fading(lead_ms: u64) -> LinkEvent {
    LinkEvent::Fading { lead: Some(ms(lead_ms)) }
}

fn freezing(config: FreezeConfig) -> Mechanisms {
    Mechanisms { freeze: Some(config), ..Mechanisms::default() }
}

fn fixed(period_ms: u64) -> FreezeConfig {
    FreezeConfig { warning: WarningPeriod::Fixed(ms(period_ms)), ..FreezeConfig::default() }
}

/// A connection with flowing data, acknowledged up to 1001 with a window of 400.
fn flowing(config: FreezeConfig) -> Script {
    let mut script = Script::new(freezing(config));
    script.at(100).peer(from_peer(1, 1000));
    assert_eq!(script.host(from_host(1001, 400)).window, 400);
    script
}

#[test]
fn every_outgoing_segment_has_a_window_of_zero_while_frozen() {
    let mut script = flowing(fixed(50));
    script.link(fading(50));
    assert_eq!(script.host(from_host(1001, 400)).window, 0);
    assert_eq!(script.host(change(from_host(1001, 390), |segment| segment.payload = vec![7; 10].into())).window, 0);
    script.at(120).peer(from_peer(1001, 1000));
    let segment = script.host(from_host(2001, 380));
    assert_eq!((segment.window, segment.ack.value()), (0, 2001));
}

/// Data is accepted, and the host's own ACK number is sent: nothing is held back.
#[test]
fn data_are_still_accepted_and_acknowledged() {
    let mut script = flowing(fixed(50));
    script.link(fading(50)).at(110).peer(from_peer(1001, 1000)).peer(from_peer(3001, 1000));
    assert_eq!(script.host(from_host(2001, 400)).ack.value(), 2001);
}

/// With nothing new to acknowledge and a TCP that does not answer, the last ACK is repeated with a zero window.
#[test]
fn at_least_one_zero_window_ack_leaves_at_once() {
    let mut script = flowing(fixed(50));
    script.link(fading(50)).at(100);
    let sent = script.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].ack.value(), sent[0].window, sent[0].payload.len()), (1001, 0, 0));
    assert_eq!(script.actions(), [(100, "froze")]);
}

#[test]
fn n_zero_window_acks_can_leave_at_once_or_none() {
    for copies in [0, 1, 3] {
        let mut script = flowing(FreezeConfig { at_once: copies, ..fixed(50) });
        script.link(fading(50)).at(100);
        assert_eq!(script.sent().len(), usize::from(copies));
        assert_eq!(script.host(from_host(1001, 400)).window, 0);
    }
}

/// The host's TCP is prompted, and its answer is the ACK that is sent: it may acknowledge more than the last one.
#[test]
fn an_ack_that_was_delayed_goes_out_with_the_freeze() {
    let mut script = flowing(fixed(50));
    script.at(110).peer(from_peer(1001, 1000)).link(fading(50));
    let question = script.handed_in();
    assert_eq!(question.len(), 1);
    assert_eq!((question[0].seq.value(), question[0].payload.len(), question[0].flags), (1000, 1, Flags::ACK));
    assert_eq!(script.host(from_host(2001, 400)).window, 0);
    script.at(110);
    assert!(script.sent().is_empty(), "the answer counts");
}

/// The byte of the prompt is one that the host has. Its DSACK does not leave, and other blocks do.
#[test]
fn the_dsack_of_a_prompt_stays_here() {
    let block = |from: u32, to: u32| SeqRange::new(Seq::new(from), Seq::new(to));
    for (reported, left) in [
        (vec![block(1000, 1001)], vec![]),
        (vec![block(1000, 1001), block(3001, 4001)], vec![block(3001, 4001)]),
        (vec![block(900, 1001)], vec![block(900, 1001)]),
        (vec![block(3001, 4001)], vec![block(3001, 4001)]),
    ] {
        let mut script = flowing(fixed(50));
        script.at(110).peer(from_peer(1001, 1000)).link(fading(50));
        assert_eq!(script.handed_in().len(), 1);
        let mut answer = |reported: &[SeqRange]| {
            let blocks = reported.iter().copied().collect();
            script.host(change(from_host(2001, 400), |segment| segment.options.sack = blocks)).options.sack
        };
        assert_eq!(answer(&reported).as_slice(), left);
        assert_eq!(answer(&reported).as_slice(), reported, "there was no other prompt");
    }
}

/// Also if other segments leave before the answer, or the freeze ends before it.
#[test]
fn the_dsack_of_a_prompt_stays_here_however_late() {
    for ends in [false, true] {
        let mut script = flowing(fixed(50));
        script.at(110).peer(from_peer(1001, 1000)).link(fading(50));
        assert_eq!(script.handed_in().len(), 1);
        script.host(from_host(1001, 400));
        if ends {
            script.link(LinkEvent::Recovered);
        }
        let dsack = [SeqRange::new(Seq::new(1000), Seq::new(1001))].into_iter().collect();
        let answer = script.host(change(from_host(2001, 400), |segment| segment.options.sack = dsack));
        assert!(answer.options.sack.is_empty(), "{ends}");
    }
}

/// The same when freezing begins later than the warning: the host's TCP may answer before the last ACK is repeated.
#[test]
fn the_answer_comes_before_a_repetition() {
    let mut script = flowing(fixed(50));
    script.link(fading(150)).at(199).peer(from_peer(1001, 1000));
    script.timeout(200);
    assert_eq!(script.handed_in().len(), 1);
    assert_eq!(script.host(from_host(2001, 400)).window, 0);
    assert!(script.at(200).sent().is_empty());
}

#[test]
fn no_ack_is_delayed_while_frozen() {
    let mut script = flowing(FreezeConfig { ask_after: Some(ms(1)), ..fixed(50) });
    script.link(fading(50)).host(from_host(1001, 400));
    script.handed_in();
    // Acknowledged in time: no prompt.
    script.at(110).peer(from_peer(1001, 1000)).host(from_host(2001, 400));
    assert!(script.at(115).handed_in().is_empty());
    // Not acknowledged: a prompt, and the filter itself acknowledges nothing.
    let question = script.peer(from_peer(2001, 1000)).at(116).handed_in();
    assert_eq!(question.len(), 1);
    assert_eq!(question[0].seq.value(), 2000);
    assert!(script.sent().is_empty());
}

#[test]
fn acks_may_stay_delayed() {
    let mut script = flowing(FreezeConfig { ask_after: None, ..fixed(50) });
    script.link(fading(50)).at(110).peer(from_peer(1001, 1000)).at(140);
    assert!(script.handed_in().is_empty());
    assert_eq!(script.sent().len(), 1);
}

#[test]
fn a_warning_that_is_early_is_waited_out() {
    let mut script = flowing(fixed(50));
    script.link(fading(200)).at(249);
    assert_eq!(script.host(from_host(1001, 400)).window, 400);
    script.at(250);
    assert_eq!(script.host(from_host(1001, 400)).window, 0);
    assert_eq!(script.actions(), [(250, "froze")]);
}

#[test]
fn a_warning_that_is_late_or_names_no_time_freezes_at_once() {
    for event in [fading(10), LinkEvent::Fading { lead: None }] {
        let mut script = flowing(fixed(50));
        script.link(event);
        assert_eq!(script.actions(), [(100, "froze")]);
    }
}

#[test]
fn the_whole_lead_can_be_used() {
    let mut script = flowing(FreezeConfig { warning: WarningPeriod::WholeLead, ..FreezeConfig::default() });
    script.link(fading(500));
    assert_eq!(script.actions(), [(100, "froze")]);
}

/// The peer echoes the host's timestamps on data 80 ms later.
#[test]
fn the_warning_period_follows_the_round_trip_by_echoed_timestamps() {
    let mut script = Script::new(freezing(FreezeConfig::default()));
    for round in 0..20_u32 {
        let (at, seq) = (u64::from(round) * 80, round * 2000 + 1);
        script.at(at).host(stamped(from_host(seq, 400), 5000 + round, 0));
        script.at(at + 40).peer(stamped(from_peer(seq, 1000), 9, 5000 + round - u32::from(round > 0)));
        script.at(at + 80).peer(stamped(from_peer(seq + 1000, 1000), 9, 5000 + round));
    }
    script.link(fading(300)).at(3000);
    assert_eq!(script.actions().first(), Some(&(1600 + 300 - 80, "froze")));
}

/// Without timestamps the handshake is measured.
#[test]
fn the_warning_period_follows_the_round_trip_of_the_handshake() {
    let config = FreezeConfig { warning: WarningPeriod::RoundTrips(2.0), ..FreezeConfig::default() };
    let mut script = Script::new(freezing(config));
    script.host(change(from_host(0, 400), |segment| {
        (segment.seq, segment.flags) = (holdover_wire::Seq::new(0), Flags::SYN)
    }));
    script.at(60).peer(flags(from_peer(0, 0), Flags::SYN));
    script.host(from_host(1, 400));
    script.peer(from_peer(1, 1000)).link(fading(300)).at(1000);
    assert_eq!(script.actions().first(), Some(&(60 + 300 - 120, "froze")));
}

/// Without a measurement the whole lead is used.
#[test]
fn without_a_measured_round_trip_the_freeze_is_early() {
    let mut script = flowing(FreezeConfig::default());
    script.link(fading(300));
    assert_eq!(script.actions(), [(100, "froze")]);
}

/// The thesis's dynamic threshold: after a freeze that was too early, the next one is later.
#[test]
fn the_warning_period_learns_from_each_cut() {
    let config = WarningPeriod::Adaptive { step: ms(30) };
    let mut script = Script::new(freezing(FreezeConfig { warning: config, ..FreezeConfig::default() }));
    script.host(change(from_host(0, 400), |segment| {
        (segment.seq, segment.flags) = (holdover_wire::Seq::new(0), Flags::SYN)
    }));
    script.at(60).peer(flags(from_peer(0, 0), Flags::SYN));
    script.host(from_host(1, 400));
    let mut froze_after = Vec::new();
    for cut in 1..=5 {
        let at = cut * 1000;
        script.at(at).peer(from_peer(1, 1000)).link(LinkEvent::Fading { lead: None });
        script.at(at + 100).link(LinkEvent::Down);
        script.at(at + 200).link(UP);
        froze_after
            .extend(script.actions().into_iter().filter(|(_, what)| *what == "froze").map(|(when, _)| when - at));
    }
    // The round trip is 60 ms and the cut comes 100 ms after the warning: a freeze 40 ms after the warning would be
    // right.
    assert_eq!(froze_after, [0, 30, 60, 30, 60]);
}

#[test]
fn an_idle_connection_is_left_alone_until_data_flow() {
    let mut script = flowing(FreezeConfig { flowing: ms(500), patience: Duration::from_secs(5), ..fixed(50) });
    script.at(700).link(fading(50));
    assert_eq!(script.host(from_host(1001, 400)).window, 400);
    assert_eq!(script.next_deadline_ms(), None);
    script.at(720).peer(from_peer(1001, 1000));
    assert_eq!(script.host(from_host(2001, 400)).window, 0);
}

#[test]
fn nothing_is_frozen_without_a_warning() {
    let mut script = flowing(fixed(50));
    script.link(LinkEvent::Down).at(200).link(UP);
    assert_eq!(script.host(from_host(1001, 400)).window, 400);
    assert!(script.sent().is_empty() && script.actions().is_empty());
}

#[test]
fn up_thaws_and_the_hosts_own_segments_tell_it() {
    let mut script = flowing(fixed(50));
    script.link(fading(50)).at(150).link(LinkEvent::Down);
    assert_eq!(script.host(from_host(1001, 400)).window, 0, "still frozen while cut off");
    script.at(60_000);
    script.sent();
    script.link(UP);
    assert!(script.sent().is_empty());
    assert_eq!(script.host(from_host(1001, 400)).window, 400);
    assert_eq!(script.actions(), [(100, "froze"), (60_000, "thawed")]);
}

#[test]
fn up_can_be_told_by_one_window_update() {
    let mut script = flowing(FreezeConfig { update_at_up: true, ..fixed(50) });
    script.link(fading(50)).at(150).link(LinkEvent::Down).at(900);
    script.sent();
    let sent = script.link(UP).sent();
    assert_eq!(sent.iter().map(|segment| (segment.ack.value(), segment.window)).collect::<Vec<_>>(), [(1001, 400)]);
}

#[test]
fn reconnection_acks_carry_the_real_window() {
    let mechanisms = Mechanisms { reconnect_acks: Some(ReconnectAcksConfig::default()), ..freezing(fixed(50)) };
    let mut script = Script::new(mechanisms);
    script.at(100).peer(from_peer(1, 1000)).host(from_host(1001, 400));
    script.link(fading(50)).at(150).link(LinkEvent::Down).at(900);
    script.sent();
    let sent = script.link(UP).sent();
    assert_eq!(sent.iter().map(|segment| segment.window).collect::<Vec<_>>(), [400; 3]);
}

#[test]
fn a_wrong_prediction_is_taken_back_at_once() {
    let mut script = flowing(fixed(50));
    script.link(fading(50)).at(120);
    script.sent();
    let sent = script.link(LinkEvent::Recovered).sent();
    assert_eq!(sent.iter().map(|segment| segment.window).collect::<Vec<_>>(), [400]);
    assert_eq!(script.host(from_host(1001, 400)).window, 400);
}

/// No cut and no recovery follows.
#[test]
fn nothing_stays_frozen_longer_than_its_deadline() {
    let mut script = flowing(FreezeConfig { patience: ms(300), ..fixed(50) });
    script.link(fading(50)).at(449);
    script.sent();
    assert_eq!(script.host(from_host(1001, 400)).window, 0);
    let sent = script.at(450).sent();
    assert_eq!(sent.iter().map(|segment| segment.window).collect::<Vec<_>>(), [400]);
    script.at(460).peer(from_peer(1001, 1000));
    assert_eq!(script.host(from_host(2001, 400)).window, 400, "and is not frozen again by the same warning");
}

#[test]
fn a_repeated_warning_moves_the_deadline_only() {
    let mut script = flowing(FreezeConfig { patience: ms(300), ..fixed(50) });
    script.link(fading(50)).at(200).link(fading(50)).at(549);
    assert_eq!(script.actions(), [(100, "froze")]);
    assert_eq!(script.at(550).actions(), [(550, "thawed")]);
}

/// Counts the host's ACKs with an open window, under warnings every 100 ms for a minute over a link that works.
#[test]
fn warnings_without_end_freeze_once() {
    for event in [LinkEvent::Fading { lead: None }, fading(50)] {
        let mut script = flowing(fixed(50));
        let mut open = 0;
        for round in 1..=600 {
            let seq = 1001 + round * 10;
            script.at(100 + u64::from(round) * 100).peer(from_peer(seq, 10)).link(event);
            open += u32::from(script.host(from_host(seq + 10, 400)).window > 0);
        }
        assert!(open >= 575, "{open} of 600 for {event}");
        assert_eq!(script.actions().iter().filter(|(_, what)| *what == "froze").count(), 1);
    }
}

#[test]
fn a_connection_that_was_frozen_in_vain_is_frozen_again_when_warnings_have_paused() {
    let mut script = flowing(FreezeConfig { patience: ms(300), ..fixed(50) });
    script.link(fading(50)).at(500);
    assert_eq!(script.actions(), [(100, "froze"), (450, "thawed")]);
    // The last warning ended at 450 ms.
    script.at(740).peer(from_peer(1001, 1000)).link(fading(50));
    assert!(script.actions().is_empty(), "no pause");
    script.at(1_400).peer(from_peer(2001, 1000)).link(fading(50));
    assert_eq!(script.actions(), [(1_400, "froze")]);
}

/// A round trip of 80 ms, measured by timestamps echoed on data.
fn timed(config: FreezeConfig) -> Script {
    let mut script = Script::new(freezing(config));
    for round in 0..20_u32 {
        let (at, seq) = (u64::from(round) * 80, round * 2000 + 1);
        script.at(at).host(stamped(from_host(seq, 400), 5000 + round, 0));
        script.at(at + 40).peer(stamped(from_peer(seq, 1000), 9, 5000 + round - u32::from(round > 0)));
        script.at(at + 80).peer(stamped(from_peer(seq + 1000, 1000), 9, 5000 + round));
    }
    script
}

/// The first data after a cut echoes the last ACK before it. Neither that echo nor an ACK of a frozen host is a round-trip sample.
#[test]
fn an_outage_is_not_taken_for_a_round_trip() {
    for frozen in [false, true] {
        let long = Duration::from_secs(60);
        let mut script = timed(FreezeConfig { patience: long, flowing: long, ..FreezeConfig::default() });
        script.host(stamped(from_host(40_001, 400), 5020, 0));
        script.at(1_640).peer(stamped(from_peer(40_001, 1000), 9, 5019));
        if frozen {
            script.link(fading(80)).host(stamped(from_host(41_001, 400), 5021, 0));
        }
        script.at(1_720).link(LinkEvent::Down).at(40_000);
        script.host(stamped(from_host(41_001, 400), 5022, 0));
        script.link(UP).at(40_080).peer(stamped(from_peer(41_001, 1000), 9, 5020));
        script.host(stamped(from_host(42_001, 400), 6000, 0));
        script.actions();
        script.link(fading(3_000)).at(43_080);
        let froze = script.actions().first().map(|(at, _)| *at);
        assert_eq!(froze, Some(40_080 + 3_000 - 80), "frozen before: {frozen}");
    }
}

/// Eight long leads, then short ones: the period adapts after cuts that preceded the freeze.
#[test]
fn an_adaptive_warning_period_learns_from_cuts_that_came_before_it() {
    let config = WarningPeriod::Adaptive { step: ms(200) };
    let mut script = Script::new(freezing(FreezeConfig { warning: config, ..FreezeConfig::default() }));
    script.host(change(from_host(0, 400), |segment| {
        (segment.seq, segment.flags) = (holdover_wire::Seq::new(0), Flags::SYN)
    }));
    script.at(60).peer(flags(from_peer(0, 0), Flags::SYN));
    script.host(from_host(1, 400));
    let mut froze = Vec::new();
    for cut in 0..12_u32 {
        let (start, lead) = (u64::from(cut + 1) * 5_000, if cut < 8 { 2_000 } else { 100 });
        script.at(start).peer(from_peer(cut * 1000 + 1, 500)).link(fading(lead));
        script.at(start + lead - 10).peer(from_peer(cut * 1000 + 501, 500)).at(start + lead).link(LinkEvent::Down);
        froze.push(script.actions().iter().any(|(_, what)| *what == "froze"));
        script.at(start + 3_000).link(UP);
        script.actions();
    }
    assert_eq!(froze[..8], [true; 8]);
    assert_eq!(froze[10..], [true; 2], "{froze:?}");
}

#[test]
fn nothing_is_asked_or_said_on_a_connection_that_is_over() {
    let reset = |ack| change(from_peer(ack, 0), |segment| segment.flags = Flags::RST | Flags::ACK);
    let mut script = flowing(FreezeConfig { ask_after: Some(ms(1)), ..fixed(50) });
    script.link(fading(50)).host(from_host(1001, 400));
    script.handed_in();
    script.peer(from_peer(1001, 1000)).peer(reset(2001)).at(120);
    assert!(script.handed_in().is_empty() && script.sent().is_empty());
    script.at(2_000);
    assert!(script.sent().is_empty(), "no window to tell");
    // Closed in both directions.
    let mut script = flowing(fixed(50));
    script.peer(flags(from_peer(1001, 0), Flags::FIN)).host(flags(from_host(1002, 400), Flags::FIN));
    script.peer(change(from_peer(1002, 0), |segment| segment.ack = holdover_wire::Seq::new(2)));
    script.link(fading(50)).at(400);
    assert!(script.sent().is_empty() && script.handed_in().is_empty() && script.actions().is_empty());
}

/// One link event applies to all connections (thesis, section 5.1.2): those with data freeze and thaw, each with its own numbers; those
/// without do not.
#[test]
fn every_connection_with_data_freezes_and_thaws() {
    let mut script = Script::new(freezing(FreezeConfig { update_at_up: true, ..fixed(50) }));
    for port in [1001, 1002, 1003] {
        let seq = u32::from(port) * 10;
        script.at(100).peer(on_port(from_peer(seq, usize::from(port != 1002) * 100), port));
        script.host(on_port(from_host(seq + 100, port), port));
    }
    let told = |script: &mut Script| {
        let sent = script.sent().into_iter();
        sent.map(|segment| (segment.src_port, segment.ack.value(), segment.window)).collect::<Vec<_>>()
    };
    script.link(fading(50)).at(100);
    assert_eq!(told(&mut script), [(1001, 10_110, 0), (1003, 10_130, 0)]);
    script.link(LinkEvent::Down).at(900).link(UP);
    assert_eq!(told(&mut script), [(1001, 10_110, 1001), (1003, 10_130, 1003)]);
    assert_eq!(script.host(on_port(from_host(10_120, 77), 1002)).window, 77);
}

/// M-TCP's mobile host answers a probe with its real window, which may be zero.
#[test]
fn a_window_probe_thaws_only_if_there_is_room() {
    let mut script = flowing(FreezeConfig { thaw_on_probe: true, ..fixed(50) });
    script.link(fading(50)).host(from_host(1001, 0));
    script.at(130).peer(from_peer(1000, 0));
    assert_eq!(script.actions(), [(100, "froze")]);
    // The application has read the data.
    assert_eq!(script.host(from_host(1001, 300)).window, 0);
    script.at(140).peer(from_peer(1000, 0));
    assert_eq!(script.host(from_host(1001, 300)).window, 300);
}

/// The thesis thaws on a window probe; Freeze-TCP answers it with a zero window.
#[test]
fn a_window_probe_thaws_or_not_as_configured() {
    for (thaws, len, seq) in [(true, 0, 1000), (true, 1, 1001), (false, 0, 1000), (false, 1, 1001)] {
        let mut script = flowing(FreezeConfig { thaw_on_probe: thaws, ..fixed(50) });
        script.link(fading(50)).host(from_host(1001, 400));
        script.at(130).peer(from_peer(seq, len));
        assert_eq!(script.host(from_host(1001, 400)).window, if thaws { 400 } else { 0 }, "{len}");
    }
}

/// The thesis, section 4.6.2: every window of zero carries the flag, even one of the host's TCP itself.
#[test]
fn the_flag_goes_with_every_window_of_zero() {
    for ip_flag in [true, false] {
        let mut script = flowing(FreezeConfig { ip_flag, ..fixed(50) });
        let mut flag = |packet| script.host_packet(packet).reserved_flag;
        assert!(!flag(from_host(1001, 400)));
        assert_eq!(flag(from_host(1001, 0)), ip_flag);
        script.link(fading(50));
        let mut flag = |packet| script.host_packet(packet).reserved_flag;
        assert_eq!(flag(from_host(1001, 400)), ip_flag);
        assert!(!flag(change(from_host(1001, 0), |segment| segment.flags = Flags::RST)));
    }
}

/// Data from the gateway's buffer shows that the link works: its ACK has the real window. Later data freezes again.
#[test]
fn data_with_the_flag_are_answered_with_the_real_window() {
    for (ip_flag, window) in [(true, 400), (false, 0)] {
        let mut script = flowing(FreezeConfig { ip_flag, ..fixed(50) });
        script.link(fading(50)).at(110);
        script.peer(Packet { reserved_flag: true, ..from_peer(1001, 1000) });
        assert_eq!(script.host(from_host(2001, 400)).window, window);
        script.at(120).peer(from_peer(2001, 1000));
        assert_eq!(script.host(from_host(3001, 400)).window, 0, "the warning stands");
    }
}

#[test]
fn a_handshake_and_a_reset_keep_their_window() {
    let mut script = flowing(fixed(50));
    script.link(fading(50));
    assert_eq!(script.host(flags(from_host(1001, 400), Flags::SYN)).window, 400);
    assert_eq!(script.host(change(from_host(1001, 400), |segment| segment.flags = Flags::RST)).window, 400);
}

/// If the last segment before the freeze is a lone one, Linux acknowledges it only after a delay, when the link is down.
#[test]
fn a_lone_segment_is_acknowledged_before_the_cut() {
    let timeouts = |cut_at_ms, ask_after| {
        let plain = world(Way::Download, Profile::Linux6Reno, 8_000_000, &[(cut_at_ms, 9_000)]);
        let config = FreezeConfig { warning: WarningPeriod::RoundTrips(1.5), ask_after, ..FreezeConfig::default() };
        run(with(plain, freezing(config), Some(ms(400)))).sender.expect("counters").timeouts
    };
    let cuts_ms: [u64; 40] = core::array::from_fn(|n| 1_500 + 37 * n as u64);
    assert_eq!(cuts_ms.map(|at| timeouts(at, Some(Duration::ZERO))), [0; 40]);
    let unprompted = cuts_ms.map(|at| timeouts(at, None));
    assert!(unprompted.contains(&0) && unprompted.iter().any(|&timeouts| timeouts >= 3), "{unprompted:?}");
}

/// "Never noticeably worse": a download over the path of the notes, warned in time and thawed by reconnection ACKs, resumes within a round
/// trip, with its former window.
#[test]
fn a_frozen_download_continues_at_once() {
    let plain = world(Way::Download, Profile::Linux6Reno, 8_000_000, &[(2_000, 9_000)]);
    let config = FreezeConfig { warning: WarningPeriod::RoundTrips(1.5), ..FreezeConfig::default() };
    let mechanisms = Mechanisms { reconnect_acks: Some(ReconnectAcksConfig::default()), ..freezing(config) };
    let stopped = run(plain.clone());
    let frozen = run(with(plain, mechanisms, Some(ms(400))));
    assert_eq!(frozen.status, FlowStatus::Completed);
    assert!(idle_ms(&frozen) <= 60, "{}", idle_ms(&frozen));
    assert!(idle_ms(&stopped) > 1_000, "{}", idle_ms(&stopped));
    assert_eq!(frozen.sender.expect("counters").timeouts, 0);
}
