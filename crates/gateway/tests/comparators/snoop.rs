//! Packet scripts for Snoop.

use holdover_filter::{Presence, SegmentFilter as _};
use holdover_gateway::snoop::{Snoop, SnoopConfig};
use holdover_wire::Flags;

use crate::support::{Script, WINDOW, ack, ack_of, assert_out, bytes_at, data, sack, window};

/// A configuration in which no timer expires within the script.
fn untimed() -> SnoopConfig {
    let never = holdover_base::Duration::from_secs(3600);
    SnoopConfig { least_timeout: never, persist: never, ..SnoopConfig::default() }
}

/// Segments 1 to `last` have been forwarded, and the mobile host has acknowledged all below 1.
fn forwarded(config: SnoopConfig, last: u32) -> Script<Snoop> {
    let mut script = Script::new(Snoop::new(config));
    assert_out!(script.fixed_sends(data(0)), "data 0");
    assert_out!(script.at(20).mobile_sends(ack(1)), "ack 1");
    for n in 1..=last {
        assert_out!(script.fixed_sends(data(n)), &*format!("data {n}"));
    }
    script
}

#[test]
fn new_acks_pass_and_free_the_cache() {
    let mut script = forwarded(untimed(), 3);
    assert_eq!(script.filter.stored().bytes, 3 * 140);
    assert_out!(script.mobile_sends(ack(2)), "ack 2");
    assert_eq!(script.filter.stored().bytes, 2 * 140);
    assert_out!(script.mobile_sends(ack(4)), "ack 4");
    assert_eq!(script.filter.stored().bytes, 0);
}

/// Segment 1 is lost, and 2 to 6 arrive: the first duplicate ACK retransmits, the four others are expected. Segment 7 arrives, and the
/// retransmission does not: that is one more than expected.
#[test]
fn the_first_duplicate_ack_retransmits_and_the_expected_ones_end_here() {
    let mut script = forwarded(untimed(), 6);
    assert_out!(script.mobile_sends(ack(1)), "data 1");
    for _ in 3..=6 {
        assert_out!(script.mobile_sends(ack(1)));
    }
    assert_out!(script.fixed_sends(data(7)), "data 7");
    assert_out!(script.mobile_sends(ack(1)), "data 1");
    assert_out!(script.mobile_sends(ack(8)), "ack 8");
    assert_eq!(script.filter.stored().bytes, 0);
}

/// Segments 1 and 3 are lost.
#[test]
fn each_loss_of_a_window_is_repaired() {
    let mut script = forwarded(untimed(), 6);
    assert_out!(script.mobile_sends(ack(1)), "data 1");
    for _ in [4, 5, 6] {
        assert_out!(script.mobile_sends(ack(1)));
    }
    // 2 has arrived, and 1 again.
    assert_out!(script.at(50).mobile_sends(ack(3)), "ack 3");
    assert_out!(script.fixed_sends(data(7)), "data 7");
    assert_out!(script.mobile_sends(ack(3)), "data 3");
    assert_out!(script.at(80).mobile_sends(ack(8)), "ack 8");
}

#[test]
fn an_ack_older_than_the_last_one_is_discarded() {
    let mut script = forwarded(untimed(), 3);
    assert_out!(script.mobile_sends(ack(3)), "ack 3");
    assert_out!(script.mobile_sends(ack(2)));
    let mut with_data = ack(2);
    if let Some(segment) = holdover_filter::tcp_mut(&mut with_data) {
        segment.payload = bytes::Bytes::from_static(b"upload");
    }
    assert_out!(script.mobile_sends(with_data), "ack 2");
}

/// Segment 1 was lost before the base station.
#[test]
fn duplicate_acks_for_what_was_lost_before_pass() {
    let mut script = forwarded(untimed(), 0);
    for n in 2..=5 {
        assert_out!(script.fixed_sends(data(n)), &*format!("data {n}"));
    }
    for _ in 2..=5 {
        assert_out!(script.mobile_sends(ack(1)), "ack 1");
    }
    // The sender's fast retransmission is lost on the wireless link: the sender continues to count duplicates.
    assert_out!(script.fixed_sends(data(1)), "data 1");
    assert_out!(script.fixed_sends(data(6)), "data 6");
    assert_out!(script.mobile_sends(ack(1)), "ack 1");
    assert_out!(script.mobile_sends(ack(7)), "ack 7");
    // Later losses are local again.
    assert_out!(script.fixed_sends(data(7)), "data 7");
    assert_out!(script.fixed_sends(data(8)), "data 8");
    assert_out!(script.mobile_sends(ack(7)), "data 7");
}

#[test]
fn segments_retransmitted_by_the_sender_are_left_to_it() {
    let mut script = forwarded(untimed(), 3);
    assert_out!(script.fixed_sends(data(1)), "data 1");
    assert_out!(script.mobile_sends(ack(1)), "ack 1");
    assert_out!(script.mobile_sends(ack(1)), "ack 1");
}

#[test]
fn acknowledged_segments_are_answered_and_not_forwarded() {
    let mut script = forwarded(untimed(), 3);
    assert_out!(script.mobile_sends(ack(3)), "ack 3");
    assert_out!(script.fixed_sends(data(1)), "ack 3");
    assert_out!(script.fixed_sends(data(2)), "ack 3");
    assert_out!(script.fixed_sends(bytes_at(299, 1)), "data 299+1");
    assert_out!(script.fixed_sends(bytes_at(299, 0)), "data 299+0");
    assert_out!(script.fixed_sends(data(3)), "data 3");
}

#[test]
fn duplicate_acks_are_pure_and_leave_the_window_as_it_is() {
    let mut script = forwarded(untimed(), 3);
    assert_out!(script.mobile_sends(window(ack(1), 2000)), "ack 1 win 2000");
    assert_out!(script.mobile_sends(window(ack(1), 0)), "ack 1 win 0");
    assert_out!(script.mobile_sends(window(ack(1), 0)), "ack 1 win 0");
    assert_out!(script.mobile_sends(ack(1)), "ack 1");
    assert_out!(script.mobile_sends(ack(1)), "data 1");
    assert_out!(script.mobile_sends(ack(4)), "ack 4");
    // Nothing is outstanding.
    assert_out!(script.mobile_sends(ack(4)), "ack 4");
}

/// Segments 1 and 3 are lost.
#[test]
fn sack_blocks_of_hidden_losses_are_hidden() {
    let mut script = forwarded(untimed(), 5);
    assert_out!(script.mobile_sends(window(sack(1, &[(2, 3)]), WINDOW - 1)), "data 1");
    assert_out!(script.mobile_sends(sack(1, &[(4, 5), (2, 3)])));
    assert_out!(script.mobile_sends(sack(1, &[(4, 6), (2, 3)])));
    // The hidden blocks are used.
    assert_out!(script.mobile_sends(sack(3, &[(4, 6)])), "ack 3", "data 3");
    assert_out!(script.fixed_sends(data(6)), "data 6");
    // Segment 6 was forwarded after the retransmission, which is lost too.
    assert_out!(script.mobile_sends(sack(3, &[(4, 7)])), "data 3");
    assert_out!(script.mobile_sends(ack(7)), "ack 7");
}

/// Segments 1 and 2 are lost, and 5 is late.
#[test]
fn only_segments_above_the_highest_block_are_expected() {
    let mut script = forwarded(untimed(), 5);
    assert_out!(script.mobile_sends(sack(1, &[(3, 4)])), "data 1");
    assert_out!(script.mobile_sends(sack(1, &[(3, 5)])));
    assert_out!(script.mobile_sends(sack(2, &[(3, 5)])), "ack 2", "data 2");
    assert_out!(script.mobile_sends(sack(2, &[(3, 6)])));
    assert_out!(script.mobile_sends(sack(2, &[(3, 6)])), "data 2");
}

/// Segment 2 was lost before the base station.
#[test]
fn sack_blocks_of_other_losses_pass() {
    let mut script = forwarded(untimed(), 1);
    assert_out!(script.fixed_sends(data(3)), "data 3");
    assert_out!(script.fixed_sends(data(4)), "data 4");
    assert_out!(script.mobile_sends(sack(2, &[(3, 4)])), "ack 2 sack 3-4");
    assert_out!(script.mobile_sends(sack(2, &[(3, 5)])), "ack 2 sack 3-5");
}

#[test]
fn a_dsack_of_a_local_retransmission_is_discarded() {
    let mut script = forwarded(untimed(), 3);
    assert_out!(script.mobile_sends(sack(1, &[(2, 3)])), "data 1");
    assert_out!(script.mobile_sends(ack(3)), "ack 3");
    // Segment 1 was only delayed.
    assert_out!(script.mobile_sends(sack(3, &[(1, 2)])));
    // The network has duplicated segment 2.
    assert_out!(script.mobile_sends(sack(3, &[(2, 3)])), "ack 3 sack 2-3");
}

/// The local round trip is 20 ms, and so is the time until the ACK of a retransmission.
#[test]
fn a_needless_retransmission_does_not_cause_another() {
    let mut script = forwarded(untimed(), 3);
    assert_out!(script.mobile_sends(ack(1)), "data 1");
    // Only delayed: both the original and the copy arrive.
    assert_out!(script.at(25).mobile_sends(ack(3)), "ack 3");
    assert_out!(script.at(40).mobile_sends(ack(3)));
    assert_out!(script.at(41).mobile_sends(ack(3)), "data 3");
    // This retransmission was needed.
    assert_out!(script.fixed_sends(data(4)), "data 4");
    assert_out!(script.fixed_sends(data(5)), "data 5");
    assert_out!(script.at(61).mobile_sends(ack(4)), "ack 4");
    assert_out!(script.mobile_sends(ack(4)), "data 4");
}

#[test]
fn a_segment_is_retransmitted_so_often_and_no_more() {
    let mut script = forwarded(SnoopConfig { most_resent: 2, ..untimed() }, 2);
    assert_out!(script.mobile_sends(ack(1)), "data 1");
    assert_out!(script.mobile_sends(ack(1)), "data 1");
    assert_out!(script.mobile_sends(ack(1)), "ack 1");
    assert_out!(script.mobile_sends(sack(1, &[(2, 3)])), "ack 1 sack 2-3");
}

#[test]
fn segments_beyond_the_cache_have_no_copy() {
    let mut script = forwarded(SnoopConfig { buffer_bytes: 300, ..untimed() }, 4);
    assert_eq!(script.filter.stored().bytes, 2 * 140);
    assert_out!(script.mobile_sends(ack(1)), "data 1");
    // 3 and 4 are expected to cause one each.
    assert_out!(script.mobile_sends(ack(1)));
    assert_out!(script.mobile_sends(ack(1)));
    assert_out!(script.mobile_sends(ack(3)), "ack 3");
    assert_out!(script.mobile_sends(ack(3)), "ack 3");
}

/// One round trip of 20 ms was measured: the round-trip timer takes 40 ms, and starts again with each retransmission.
#[test]
fn the_round_trip_timer_retransmits_after_two_round_trips() {
    let config = SnoopConfig { most_resent: 3, ..SnoopConfig::default() };
    let mut script = forwarded(config, 2);
    let made: Vec<(u64, String)> = script.wait_until(10_000);
    let again = "data 1".to_owned();
    assert_eq!(made, [(60, again.clone()), (100, again.clone()), (140, again)]);
}

#[test]
fn the_round_trip_timer_has_a_floor() {
    let mut script = Script::new(Snoop::new(SnoopConfig { most_resent: 1, ..SnoopConfig::default() }));
    script.fixed_sends(data(0));
    script.at(10).mobile_sends(ack(1));
    script.fixed_sends(data(1));
    assert_eq!(script.wait_until(1000), [(50, "data 1".to_owned())]);
}

#[test]
fn the_round_trip_timer_follows_the_round_trip() {
    let persist = holdover_base::Duration::from_secs(3600);
    let mut script = Script::new(Snoop::new(SnoopConfig { most_resent: 1, persist, ..SnoopConfig::default() }));
    script.fixed_sends(data(0));
    script.at(100).mobile_sends(ack(1));
    script.fixed_sends(data(1));
    script.fixed_sends(data(2));
    script.at(120).mobile_sends(ack(2));
    // (3 * 100 + 20) / 4 = 80 ms, twice.
    assert_eq!(script.wait_until(5000), [(280, "data 2".to_owned())]);
}

#[test]
fn the_persist_timer_retransmits_when_neither_side_sends() {
    let mut script = Script::new(Snoop::new(SnoopConfig { most_resent: 2, ..SnoopConfig::default() }));
    script.fixed_sends(data(0));
    // No round trip has been measured.
    script.at(150).fixed_sends(data(1));
    assert_eq!(script.wait_until(5000), [(350, "data 0".to_owned()), (550, "data 0".to_owned())]);
}

/// Segment 1 is lost together with the data after it, and one of many expected duplicate ACKs arrives.
#[test]
fn after_the_persist_timer_no_duplicate_ack_is_expected() {
    let hour = holdover_base::Duration::from_secs(3600);
    let mut script = forwarded(SnoopConfig { least_timeout: hour, ..SnoopConfig::default() }, 9);
    assert_out!(script.mobile_sends(ack(1)), "data 1");
    assert_out!(script.mobile_sends(ack(1)));
    assert_eq!(script.wait_until(300), [(220, "data 1".to_owned())]);
    assert_out!(script.mobile_sends(ack(1)), "data 1");
}

/// Segment 1 was lost before the base station: retransmitting 2 does not help.
#[test]
fn the_timers_retransmit_what_the_mobile_host_waits_for() {
    let mut script = forwarded(SnoopConfig::default(), 0);
    assert_out!(script.fixed_sends(data(2)), "data 2");
    assert_eq!(script.wait_until(60_000), []);
}

/// Segment 2 was sent 20 ms before its ACK, but retransmitted in between.
#[test]
fn a_retransmission_measures_no_round_trip() {
    let persist = holdover_base::Duration::from_secs(3600);
    let mut script = Script::new(Snoop::new(SnoopConfig { most_resent: 1, persist, ..SnoopConfig::default() }));
    script.fixed_sends(data(0));
    script.at(60).mobile_sends(ack(1));
    script.fixed_sends(data(1));
    script.fixed_sends(data(2));
    assert_out!(script.mobile_sends(ack(1)), "data 1");
    assert_out!(script.at(80).mobile_sends(ack(2)), "ack 2");
    // Still twice 60 ms.
    assert_eq!(script.wait_until(5000), [(200, "data 2".to_owned())]);
}

/// Segments 1 and 2 are lost, and a part of 2 arrives later.
#[test]
fn hidden_blocks_retransmit_a_segment_once() {
    let mut script = forwarded(untimed(), 4);
    assert_out!(script.mobile_sends(sack(1, &[(3, 4)])), "data 1");
    assert_out!(script.mobile_sends(sack(2, &[(3, 4)])), "ack 2", "data 2");
    let mut part = sack(2, &[(3, 4)]);
    if let Some(segment) = holdover_filter::tcp_mut(&mut part) {
        segment.ack += 50;
    }
    assert_out!(script.mobile_sends(part), "ack byte 250");
}

#[test]
fn nothing_outstanding_sets_no_timer() {
    let mut script = forwarded(SnoopConfig::default(), 2);
    assert_out!(script.mobile_sends(ack(3)), "ack 3");
    assert_eq!(script.wait_until(60_000), []);
}

#[test]
fn a_host_that_has_moved_is_forgotten() {
    let mut script = forwarded(SnoopConfig::default(), 2);
    assert_out!(script.presence(Presence::Moved));
    assert_eq!(script.filter.stored().bytes, 0);
    assert_eq!(script.wait_until(60_000), []);
    assert_out!(script.mobile_sends(ack(1)), "ack 1");
}

#[test]
fn a_reset_ends_everything() {
    let mut script = forwarded(SnoopConfig::default(), 2);
    let mut reset = data(3);
    if let Some(segment) = holdover_filter::tcp_mut(&mut reset) {
        segment.flags = Flags::RST;
    }
    assert_out!(script.fixed_sends(reset), "data 3");
    assert_eq!(script.wait_until(60_000), []);
    assert_out!(script.mobile_sends(ack_of(100)), "ack 1");
}
