//! Reconnection ACKs.

use holdover_base::Duration;
use holdover_mobility::reconnect_acks::ReconnectAcksConfig;
use holdover_mobility::{LinkEvent, Mechanisms};
use holdover_tcp::Profile;
use holdover_wire::{Flags, SackBlocks, Segment, Seq, SeqRange};

use crate::script::*;
use crate::support::*;

const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };
const MOVED: LinkEvent = LinkEvent::Up { symmetric: false, moved: true };

fn mechanisms(copies: u8) -> Mechanisms {
    Mechanisms {
        reconnect_acks: Some(ReconnectAcksConfig { copies, ..ReconnectAcksConfig::default() }),
        ..Mechanisms::default()
    }
}

/// Data up to 1001 at 100 ms, acknowledged with a window of 400.
fn flowing(config: ReconnectAcksConfig) -> Script {
    let mut script = Script::new(Mechanisms { reconnect_acks: Some(config), ..Mechanisms::default() });
    script.at(100).peer(from_peer(1, 1000)).host(from_host(1001, 400));
    script
}

/// The segments sent at the end of an outage of `outage_ms`.
fn sent_after(script: &mut Script, outage_ms: u64, up: LinkEvent) -> Vec<Segment> {
    script.link(LinkEvent::Down);
    let up_at = script.now_ms() + outage_ms;
    assert!(script.at(up_at).sent().is_empty(), "nothing before the link is back");
    script.link(up).sent()
}

#[test]
fn the_configured_number_of_identical_acks_is_sent_at_once() {
    for copies in [1, 3, 4] {
        let mut script = flowing(ReconnectAcksConfig { copies, ..ReconnectAcksConfig::default() });
        let sent = sent_after(&mut script, 5_000, UP);
        assert_eq!(sent.len(), usize::from(copies));
        assert!(sent.iter().all(|segment| *segment == sent[0]));
        assert_eq!(script.actions(), [(5_100, "sent ACKs")]);
        assert!(script.at(600_000).sent().is_empty(), "and that is all");
    }
}

/// The newest ACK of the host's TCP: its number, its window, and its SND.NXT.
#[test]
fn the_newest_ack_is_repeated_without_data_and_without_sack_blocks() {
    let mut script = flowing(ReconnectAcksConfig::default());
    script.host(change(from_host(1001, 390), |segment| segment.payload = vec![7; 10].into()));
    script.peer(from_peer(1001, 1000));
    script.host(change(from_host(2001, 380), |segment| {
        segment.seq = Seq::new(11);
        segment.options.sack = SackBlocks::from_iter([SeqRange::new(Seq::new(3001), Seq::new(4001))]);
    }));
    let sent = sent_after(&mut script, 5_000, UP);
    assert_eq!((sent[0].seq.value(), sent[0].ack.value(), sent[0].window), (11, 2001, 380));
    assert!(sent[0].payload.is_empty() && sent[0].options.sack.is_empty());
    assert_eq!(sent[0].flags, Flags::ACK);
}

/// A connection that was idle before the cut gets no ACKs; the length of the cut does not count.
#[test]
fn idle_connections_are_left_alone() {
    for (silence, copies) in [(600_000, 3), (600_001, 0)] {
        let mut script = flowing(ReconnectAcksConfig::default());
        script.at(100 + silence);
        assert_eq!(sent_after(&mut script, 10_000_000, UP).len(), copies);
    }
    let short = ReconnectAcksConfig { idle: Duration::from_secs(1), ..ReconnectAcksConfig::default() };
    assert_eq!(sent_after(flowing(short).at(1_200), 10, UP).len(), 0);
}

#[test]
fn the_window_can_be_smaller_after_a_move() {
    for (bytes, up, window) in
        [(Some(100), MOVED, 100), (Some(100), UP, 400), (Some(900), MOVED, 400), (None, MOVED, 400)]
    {
        let config = ReconnectAcksConfig { restart_window_bytes: bytes, ..ReconnectAcksConfig::default() };
        assert_eq!(sent_after(&mut flowing(config), 5_000, up)[0].window, window, "{bytes:?} {up}");
    }
}

#[test]
fn reset_connections_are_not_announced() {
    let mut script = flowing(ReconnectAcksConfig::default());
    script.peer(change(from_peer(1001, 0), |segment| segment.flags = Flags::RST));
    assert!(sent_after(&mut script, 5_000, UP).is_empty());
    let mut script = flowing(ReconnectAcksConfig::default());
    script.host(change(from_host(1001, 0), |segment| segment.flags = Flags::RST | Flags::ACK));
    assert!(sent_after(&mut script, 5_000, UP).is_empty());
}

/// A connection that both ends have closed gets no ACKs; a half-closed one does, as its peer may wait.
#[test]
fn closed_connections_are_not_announced() {
    for (acked, copies) in [(2, 0), (1, 3)] {
        let mut script = flowing(ReconnectAcksConfig::default());
        script.peer(flags(from_peer(1001, 0), Flags::FIN)).host(flags(from_host(1002, 400), Flags::FIN));
        script.peer(change(from_peer(1002, 0), |segment| segment.ack = Seq::new(acked)));
        script.at(30_000);
        assert_eq!(sent_after(&mut script, 1_000, UP).len(), copies);
    }
    let mut script = flowing(ReconnectAcksConfig::default());
    script.peer(flags(from_peer(1001, 0), Flags::FIN)).host(from_host(1002, 400));
    assert_eq!(sent_after(&mut script, 1_000, UP).len(), 3);
}

/// A host that was cut off right after its SYN-ACK, whose window is not scaled, repeats it in an ACK, whose window is
/// scaled.
#[test]
fn the_window_of_a_syn_ack_is_repeated_in_the_units_of_its_scale() {
    for (shift, window) in [(Some(4), 1_000 >> 4), (None, 1_000)] {
        let mut script = Script::new(mechanisms(3));
        script.peer(change(from_peer(0, 0), |segment| segment.flags = Flags::SYN));
        script.host(change(from_host(1, 1_000), |segment| {
            segment.flags |= Flags::SYN;
            segment.options.window_scale = shift;
        }));
        assert_eq!(sent_after(&mut script, 500, UP)[0].window, window);
    }
}

/// A sender that counts duplicates as 4.3BSD did resumes within a round trip.
#[test]
fn three_copies_restart_a_sender_that_counts_duplicates() {
    let plain = tcp(world(Way::Download, Profile::RenoBsd, 3_000_000, &[(1_000, 6_000)]), |config| {
        config.receive.buffer_bytes = 60_000;
        config.receive.max_buffer_bytes = 60_000;
    });
    let slow = idle_ms(&run(plain.clone()));
    let quick = idle_ms(&run(with(plain, mechanisms(3), None)));
    assert!(slow > 500, "{slow}");
    assert!(quick <= 100, "{quick}");
}

/// Contradiction 6 of the papers, and what real kernels do: for a SACK sender whose timer has expired, an ACK that it has already received
/// carries no new information, and the timer decides. The copy of an ACK that was lost with the link does not wake it either: that ACK is
/// new, but its timestamp is stale, and the timeout looks spurious.
#[test]
fn a_linux_sender_with_sack_is_not_woken_by_what_it_has_seen() {
    let idle = |cut_ms| {
        let plain = world(Way::Download, Profile::Linux6Cubic, 8_000_000, &[(cut_ms, cut_ms + 7_000)]);
        idle_ms(&run(with(plain, mechanisms(3), None)))
    };
    let asleep: Vec<u64> = (2_000..2_010).map(idle).collect();
    assert!(asleep.iter().all(|&idle| idle > 2_000), "{asleep:?}");
}
