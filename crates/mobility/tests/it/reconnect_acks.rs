//! Reconnection ACKs.

use holdover_mobility::Mechanisms;
use holdover_mobility::reconnect_acks::ReconnectAcksConfig;
use holdover_tcp::Profile;

use crate::support::*;

fn mechanisms(copies: u8) -> Mechanisms {
    Mechanisms {
        reconnect_acks: Some(ReconnectAcksConfig { copies, ..ReconnectAcksConfig::default() }),
        ..Mechanisms::default()
    }
}

/// A sender that counts duplicates as 4.3BSD did is on its feet within a round trip.
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

/// Contradiction 6 of the papers, and what real kernels do: for a SACK sender whose timer has run out, an ACK that it has seen
/// already brings no news, and the timer decides. Nor does the copy of an ACK that was lost with the link wake it: it is news, but
/// its timestamp is stale, and the timeout looks spurious.
#[test]
fn a_linux_sender_with_sack_is_not_woken_by_what_it_has_seen() {
    let idle = |cut_ms| {
        let plain = world(Way::Download, Profile::Linux6Cubic, 8_000_000, &[(cut_ms, cut_ms + 7_000)]);
        idle_ms(&run(with(plain, mechanisms(3), None)))
    };
    let asleep: Vec<u64> = (2_000..2_010).map(idle).collect();
    assert!(asleep.iter().all(|&idle| idle > 2_000), "{asleep:?}");
}
