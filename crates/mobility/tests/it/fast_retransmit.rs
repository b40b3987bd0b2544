//! Fast retransmit after a handoff.

use holdover_mobility::fast_retransmit::FastRetransmitConfig;
use holdover_mobility::{LinkEvent, Mechanisms};
use holdover_tcp::Profile;
use holdover_wire::Segment;

use crate::ends::{Ends, segments};
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

/// A link that comes back as it was is not a handoff.
#[test]
fn only_a_handoff_counts_unless_configured() {
    for way in [Way::Download, Way::Upload] {
        assert_eq!(idle(way, None), idle(way, Some(FastRetransmitConfig::default())));
    }
}

/// Both ends have data in flight when the client is cut off, or moves without a cut.
fn after(config: FastRetransmitConfig, up: LinkEvent) -> (Ends, Vec<Segment>) {
    let mut reno = Profile::RenoBsd.config();
    reno.send.fix_buffer(60_000);
    (reno.receive.buffer_bytes, reno.receive.max_buffer_bytes) = (60_000, 60_000);
    let mut ends = Ends::new(reno, &only(config), &Mechanisms::default());
    ends.client.writes(ends.now, 4);
    ends.server.writes(ends.now, 4);
    ends.client.hears(ends.now, LinkEvent::Down);
    ends.cut(ms(5_000));
    ends.client.hears(ends.now, up);
    let sent = segments(&ends.client.sends(ends.now));
    (ends, sent)
}

fn only(config: FastRetransmitConfig) -> Mechanisms {
    Mechanisms { fast_retransmit: Some(config), ..Mechanisms::default() }
}

const MOVED: LinkEvent = LinkEvent::Up { symmetric: false, moved: true };
const SAME: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };

#[test]
fn a_handoff_sets_off_the_acks_and_the_oldest_segment() {
    let (mut ends, sent) = after(FastRetransmitConfig::default(), MOVED);
    let (una, rcv_nxt) = (ends.client.tcp().snd_una(), ends.client.tcp().rcv_nxt());
    let (data, acks): (Vec<&Segment>, Vec<&Segment>) = sent.iter().partition(|segment| !segment.payload.is_empty());
    assert_eq!((data.len(), data[0].seq), (1, una));
    assert_eq!(acks.len(), 3);
    assert!(acks.iter().all(|ack| ack.ack == rcv_nxt && *ack == acks[0]), "three identical ones");
    // The new cell is unknown: slow start from one segment.
    assert_eq!(ends.client.tcp().cwnd(), 1);
    assert_eq!(ends.client.actions(), ["retransmitted"]);
    // The same link again is not a handoff, and a new attachment without a cut is one.
    assert!(after(FastRetransmitConfig::default(), SAME).1.is_empty());
    assert_eq!(after(ALWAYS, SAME).1.len(), 4);
}

#[test]
fn each_half_can_be_left_out() {
    for (copies, own_data, counts, actions) in
        [(0, true, (1, 0), vec!["retransmitted"]), (5, false, (0, 5), vec!["sent ACKs"]), (0, false, (0, 0), vec![])]
    {
        let (mut ends, sent) = after(FastRetransmitConfig { copies, own_data, only_moved: true }, MOVED);
        let data = sent.iter().filter(|segment| !segment.payload.is_empty()).count();
        assert_eq!((data, sent.len() - data), counts);
        assert_eq!(ends.client.actions(), actions);
    }
}
