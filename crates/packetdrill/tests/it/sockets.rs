//! Sockets, their buffers and what Linux passes to its device: scripts that passed on Linux 6.18.44 as they are.

use holdover_packetdrill::{IpVersion, RunOptions, Verdict};

use crate::scripts::{run_text, text};

/// Asserts that a script passes, and that it fails at the changed line after a change.
#[track_caller]
fn passes_but_not_with(name: &str, change: (&str, &str)) {
    let original = text(name);
    for ip_version in IpVersion::ALL {
        let report = run_text(&original, &RunOptions { ip_version, ..RunOptions::default() });
        assert_eq!((report.verdict, &report.reason), (Verdict::Passed, &None), "{name} {ip_version}: {report:?}");
    }
    assert_eq!(original.matches(change.0).count(), 1, "{} in {name}", change.0);
    let line = original[..original.find(change.0).unwrap()].lines().count() as u32;
    let report = run_text(&original.replace(change.0, change.1), &RunOptions::default());
    assert_eq!(report.verdict, Verdict::Differs, "{change:?}");
    assert!(report.differences[0].line.abs_diff(line) <= 1, "{:?}, not at {line}", report.differences[0]);
}

// Claim: With `MSG_EOR` no segment has data from both sides of the end of a record, retransmissions included.
#[test]
fn records_share_no_segment() {
    passes_but_not_with("records.pkt", ("  +0 > P. 10601:11101(500)", "  +0 > P. 10601:12301(1700)"));
}

// Claim: `SO_RCVLOWAT`, `TCP_QUICKACK` and `TCP_LINGER2` act as on Linux.
#[test]
fn readers_wait_for_more_than_a_byte() {
    passes_but_not_with("reader.pkt", ("read(4, ..., 4000) = 2000", "read(4, ..., 4000) = 1000"));
}

// Claim: `SO_RCVLOWAT` is at most half of the receive buffer, and `TCP_LINGER2` at most two minutes.
#[test]
fn values_of_socket_options_are_capped() {
    passes_but_not_with("capped.pkt", ("SO_RCVLOWAT, [30000]", "SO_RCVLOWAT, [9999]"));
    passes_but_not_with("capped.pkt", ("TCP_LINGER2, [200]", "TCP_LINGER2, [119]"));
}

// Claim: The handshakes of a listener that closes are forgotten; the peer is told when it sends something.
#[test]
fn handshakes_end_with_their_listener() {
    passes_but_not_with("listener_closes.pkt", ("  +0 > R 1:1(0)", "  +0 > . 1:1(0) ack 1"));
}

// Claim: ICMP messages that are no errors do not affect an established connection; errors by number act as those by name.
#[test]
fn icmp_messages_of_every_kind_are_understood() {
    passes_but_not_with("icmp_kinds.pkt", ("  +0 > P. 1001:2001(1000) ack 1", "  +0 > P. 1:1001(1000) ack 1"));
    passes_but_not_with("icmp_kinds.pkt", ("type_3 code_4 mtu 600", "type_3 code_200"));
}

// Claim: PSH is on the last segment of each burst that Linux passes to its device: two segments at a low rate.
#[test]
fn bursts_end_with_psh() {
    passes_but_not_with("pushes.pkt", ("  +0 > P. 6001:7001(1000)", "  +0 > . 6001:7001(1000)"));
}

// Claim: A server with `TCP_DEFER_ACCEPT` accepts a connection once its data arrives.
#[test]
fn a_deferred_connection_is_accepted_with_its_data() {
    passes_but_not_with("deferred.pkt", ("= -1 EAGAIN (no data yet)", "= 4"));
}

// Claim: Linux sets PSH at the end of a packet that extends the unsent data beyond half of the peer's largest window (`forced_push`).
#[test]
fn a_packet_that_linux_has_kept_is_pushed() {
    passes_but_not_with("push_kept.pkt", ("  +0 > P. 12001:13001(1000)", "  +0 > . 12001:13001(1000)"));
}

// Claim: A write may fill the send buffer beyond its size, by the rest of a packet of half a window.
#[test]
fn a_packet_that_was_begun_is_filled_beyond_the_buffer() {
    passes_but_not_with("overfill.pkt", ("write(4, ..., 50000) = 30000", "write(4, ..., 50000) = 28000"));
}
