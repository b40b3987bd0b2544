//! Fast retransmit after a handoff.

use holdover_mobility::Mechanisms;
use holdover_mobility::fast_retransmit::FastRetransmitConfig;
use holdover_tcp::Profile;

use crate::support::*;

fn idle(way: Way, config: Option<FastRetransmitConfig>) -> u64 {
    let plain = tcp(world(way, Profile::RenoBsd, 3_000_000, &[(1_000, 6_000)]), |config| {
        config.receive.buffer_bytes = 60_000;
        config.receive.max_buffer_bytes = 60_000;
    });
    idle_ms(&run(with(plain, Mechanisms { fast_retransmit: config, ..Mechanisms::default() }, None)))
}

const ALWAYS: FastRetransmitConfig = FastRetransmitConfig { copies: 3, own_data: true, only_moved: false };

#[test]
fn three_identical_acks_make_the_peer_retransmit() {
    assert!(idle(Way::Download, None) > 500);
    assert!(idle(Way::Download, Some(ALWAYS)) <= 100);
    assert!(idle(Way::Download, Some(FastRetransmitConfig { copies: 0, ..ALWAYS })) > 500);
}

#[test]
fn the_hosts_own_oldest_segment_goes_out_at_once() {
    assert!(idle(Way::Upload, None) > 500);
    assert!(idle(Way::Upload, Some(ALWAYS)) <= 100);
    assert!(idle(Way::Upload, Some(FastRetransmitConfig { own_data: false, ..ALWAYS })) > 500);
}

/// A link that comes back as it was is no handoff.
#[test]
fn only_a_handoff_counts_unless_all_returns_do() {
    for way in [Way::Download, Way::Upload] {
        assert_eq!(idle(way, None), idle(way, Some(FastRetransmitConfig::default())));
    }
}
