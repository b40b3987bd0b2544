//! Details of the controller beyond scripts of whole transfers.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bytes::Bytes;
use holdover_flow::Flow;
use holdover_wire::{Flags, Packet, Segment, Seq};

use super::*;
use crate::{LinkEvent, SegmentFilter as _};

/// Passes a segment of the only connection of these tests, between the host's port 1000 and the peer's port 80.
pub(super) fn pass(wake: &mut Wake, now: Instant, direction: Direction, segment: Segment) {
    let (host, peer) = (([10, 0, 0, 1], 1000), ([10, 0, 0, 2], 80));
    let (from, to) = if direction == Direction::Outgoing { (host, peer) } else { (peer, host) };
    let segment = Segment { src_port: from.1, dst_port: to.1, ..segment };
    let mut packet = Packet::new(from.0.into(), to.0.into(), segment);
    let _ = wake.handle_packet(now, direction, &mut packet);
}

fn only_flow(wake: &Wake) -> (Connection, Flow) {
    let mut found = None;
    wake.path.for_each_live(&mut |connection, flow| found = Some((connection, *flow)));
    found.expect("there is a connection")
}

/// A download, a segment of 1,000 bytes each ms, with windows of 60,000 bytes and 40 ms of round trip.
struct Download {
    wake: Wake,
    now: Instant,
    data_end: Seq,
}

impl Download {
    fn new(segments: u32) -> Self {
        let (now, data_end) = (Instant::from_secs(1), Seq::new(1));
        let mut this = Self { wake: Wake::new(WakeConfig::all()), now, data_end };
        this.pass(Direction::Outgoing, Segment { flags: Flags::SYN, ..Segment::default() });
        this.now += Duration::from_millis(40);
        let flags = Flags::SYN | Flags::ACK;
        this.pass(Direction::Incoming, Segment { flags, ack: Seq::new(1), ..Segment::default() });
        let (seq, ack) = (Seq::new(1), Seq::new(1));
        this.pass(Direction::Outgoing, Segment { seq, ack, flags: Flags::ACK, window: 60_000, ..Segment::default() });
        this.exchange(segments);
        this
    }

    fn pass(&mut self, direction: Direction, segment: Segment) {
        pass(&mut self.wake, self.now, direction, segment);
    }

    fn exchange(&mut self, segments: u32) {
        for _ in 0..segments {
            let flags = Flags::ACK;
            let (seq, payload) = (self.data_end, Bytes::from_static(&[0; 1000]));
            self.data_end = seq + 1000;
            self.pass(Direction::Incoming, Segment { seq, ack: Seq::new(1), flags, payload, ..Segment::default() });
            let (seq, ack) = (Seq::new(1), self.data_end);
            self.pass(Direction::Outgoing, Segment { seq, ack, flags, window: 60_000, ..Segment::default() });
            self.now += Duration::from_millis(1);
        }
    }
}

/// A controller that ends during a stall releases everything at once: there is no later release.
#[test]
fn ending_in_a_stall_releases_everything() {
    for is_warned in [false, true] {
        let mut t = Download::new(300);
        if is_warned {
            t.wake.handle_link(t.now, LinkEvent::Fading { lead: Some(Duration::from_millis(20)) });
            t.exchange(30);
        }
        let (connection, flow) = only_flow(&t.wake);
        assert_eq!(flow.half(Direction::Outgoing).acked(), Some(t.data_end));
        assert!(flow.half(Direction::Outgoing).is_held(), "there is something to say");
        t.wake.control.handle_end(t.now, &mut t.wake.path);
        let made = std::iter::from_fn(|| t.wake.control.poll_transmit());
        let said: Vec<Segment> = made.filter_map(|(_, made)| made.packet.tcp().cloned()).collect();
        let [last] = &said[..] else { panic!("{said:?}") };
        assert_eq!((last.ack, last.window), (t.data_end, 60_000));
        let flow = t.wake.path.snapshot(connection).unwrap();
        assert!(
            !flow.half(Direction::Outgoing).is_held()
                && !flow.half(Direction::Outgoing).is_window_shrunk()
                && !flow.half(Direction::Outgoing).is_clocked()
        );
    }
}

/// Link-up is reported when packets pass already: they were taken for answers on a link that is down.
// Claim: An ACK withheld just before the agent received the link's return is sent then.
#[test]
fn an_ack_withheld_just_before_link_up_is_sent() {
    let mut t = Download::new(300);
    t.wake.handle_link(t.now, LinkEvent::Down);
    t.now += Duration::from_millis(500);
    let up_at = t.now;
    t.now += Duration::from_millis(5);
    let acked = t.data_end;
    t.exchange(1);
    let (connection, flow) = only_flow(&t.wake);
    assert!(flow.half(Direction::Outgoing).is_held(), "withheld");
    t.wake.handle_link(up_at, LinkEvent::Up { symmetric: false, moved: false });
    t.now += Duration::from_millis(1);
    t.wake.handle_timeout(t.now);
    let sent = std::iter::from_fn(|| t.wake.control.poll_transmit());
    let acks: Vec<Seq> = sent.filter_map(|(_, sent)| Some(sent.packet.tcp()?.ack)).collect();
    assert_eq!(acks, [acked + 1000]);
    assert!(!t.wake.path.snapshot(connection).unwrap().half(Direction::Outgoing).is_held());
}

/// The acknowledgements of these packets, and the ends of their SACK blocks.
fn acks(packets: &[Injected]) -> Vec<(Seq, usize)> {
    packets
        .iter()
        .filter_map(|made| made.packet.tcp())
        .map(|segment| (segment.ack, segment.options.sack.len()))
        .collect()
}

// Claim: In a silence the peer of a download is probed with the release of what is held, all but a byte, which changes no state;
// the sender of data that it has had gets none. On the kernel, with a round trip of 200 ms, data arrive within 340 ms of the
// first probe that gets through (repeated only if the machine's timers were late).
// Tests: `wake::tests::a_probe_shows_nothing_that_the_sender_has`, `silent::a_silent_download_resumes_a_round_trip_after_a_probe`
#[test]
fn a_probe_in_a_silence_is_the_release_but_for_a_byte() {
    for is_flushed in [false, true] {
        let mut t = Download::new(300);
        let (connection, flow) = only_flow(&t.wake);
        let shown = flow.half(Direction::Outgoing).shown();
        assert!(t.data_end - shown >= 4_000, "some is held");
        assert!(t.wake.control.release_as_probe(t.now, connection, &flow).is_empty(), "the link is not silent");

        let since = t.now;
        if is_flushed {
            t.now += Duration::from_millis(50);
            t.wake.handle_timeout(t.now);
            assert_eq!(std::iter::from_fn(|| t.wake.control.poll_transmit()).count(), 1);
        }
        t.now += Duration::from_secs(2);
        t.wake.control.handle_silence(since, &mut t.wake.path);
        let (_, flow) = only_flow(&t.wake);
        let probe = t.wake.control.release_as_probe(t.now, connection, &flow);
        assert_eq!(acks(&probe), [(shown + 1, 0), (t.data_end - 1, 0)], "flushed: {is_flushed}");
        assert!(probe.iter().all(|made| made.direction == Direction::Outgoing));
        assert_eq!(t.wake.control.release_as_probe(t.now, connection, &flow), probe, "it changes nothing");

        // The rest of the probe's ACK is shown when the silence ends.
        t.wake.control.end_silence(t.now, &mut t.wake.path);
        t.now += Duration::from_millis(5);
        t.wake.handle_timeout(t.now);
        let made: Vec<Injected> = std::iter::from_fn(|| t.wake.control.poll_transmit()).map(|(_, made)| made).collect();
        assert!(acks(&made).iter().any(|&(ack, _)| ack == t.data_end), "{made:?}");
    }
}

#[test]
fn a_probe_shows_nothing_that_the_sender_has() {
    let silent = |t: &mut Download| {
        let since = t.now;
        t.now += Duration::from_secs(2);
        t.wake.control.handle_silence(since, &mut t.wake.path);
        let (connection, flow) = only_flow(&t.wake);
        t.wake.control.release_as_probe(t.now, connection, &flow)
    };
    // Too little has arrived for ACKs to be held.
    assert_eq!(silent(&mut Download::new(5)), []);
    // The connection had been idle when the silence began.
    let mut idle = Download::new(300);
    idle.now += Duration::from_millis(50);
    idle.wake.handle_timeout(idle.now);
    idle.now += Duration::from_secs(30);
    assert_eq!(silent(&mut idle), []);
}

// Claim: At link-up a connection whose own address is lost or tentative is left alone: nothing is sent for it before its address is
// back, and then it is woken.
// Tests: `dad::a_connection_waits_for_its_own_address`
#[test]
fn a_connection_on_an_address_that_is_lost_is_woken_when_that_is_back() {
    let mut t = Download::new(300);
    let own = BTreeSet::from([IpAddr::from([10, 0, 0, 1])]);
    t.wake.handle_link(t.now, LinkEvent::Down);
    assert_eq!(t.wake.control.set_absent(t.now, &own), BTreeSet::new());
    t.now += Duration::from_secs(3);
    t.wake.handle_link(t.now, LinkEvent::Up { symmetric: false, moved: false });
    for _ in 0..20 {
        t.now += Duration::from_millis(100);
        t.wake.handle_timeout(t.now);
        assert_eq!(t.wake.control.poll_transmit(), None);
    }
    assert_eq!(t.wake.control.waiting().count(), 0);
    let (connection, _) = only_flow(&t.wake);
    t.wake.control.wake_outstanding(t.now, [(connection, OwnData::Sent)], &mut t.wake.path);
    assert_eq!(t.wake.control.poll_transmit(), None, "the host's own data cannot be answered either");

    let back = t.wake.control.set_absent(t.now, &BTreeSet::new());
    assert_eq!((&back, t.wake.control.waiting().count()), (&own, 1));
    t.wake.control.wake_returned(t.now, &back, &mut t.wake.path);
    let sent = std::iter::from_fn(|| t.wake.control.poll_transmit());
    let acks: Vec<Seq> = sent.filter_map(|(_, sent)| Some(sent.packet.tcp()?.ack)).collect();
    assert_eq!(acks.last(), Some(&t.data_end), "{acks:?}");
    assert_eq!(t.wake.control.set_absent(t.now, &own), BTreeSet::new());
    t.exchange(1);
    t.now += Duration::from_secs(1);
    t.wake.handle_timeout(t.now);
    let outcome = t.wake.control.poll_outcome().expect("it has resumed");
    assert_eq!((outcome.tries, outcome.resumed_at.is_some()), (1, true));
}

/// The packets made for the only connection.
fn made(t: &mut Download) -> Vec<Injected> {
    t.wake.handle_timeout(t.now);
    std::iter::from_fn(|| t.wake.control.poll_transmit()).map(|(_, made)| made).collect()
}

fn is_poked(made: &[Injected]) -> bool {
    made.iter().any(|made| made.direction == Direction::Incoming)
}

/// An outage of 3 s, after which the host's only address stays away.
fn lose_the_address(t: &mut Download) -> BTreeSet<IpAddr> {
    let own = BTreeSet::from([IpAddr::from([10, 0, 0, 1])]);
    t.wake.handle_link(t.now, LinkEvent::Down);
    t.wake.control.set_absent(t.now, &own);
    t.now += Duration::from_secs(3);
    t.wake.handle_link(t.now, LinkEvent::Up { symmetric: false, moved: false });
    t.now += Duration::from_millis(100);
    assert_eq!(made(t), []);
    own
}

// Claim: An address that is back counts as back although no connection on it was waiting, and the time to wake the connections on it
// begins then: one with the host's first data outstanding is woken, also if its address comes back more than a minute after the link,
// or if a packet had left from the address while it was tentative.
#[test]
fn what_is_sent_before_an_address_is_back_is_woken_for() {
    for (until_back, leaves) in [(2, false), (2, true), (70, false), (70, true)] {
        // The connection has never carried data.
        let mut t = Download::new(0);
        let own = lose_the_address(&mut t);
        if leaves {
            let payload = Bytes::from_static(b"k");
            let key = Segment { seq: Seq::new(1), ack: Seq::new(1), flags: Flags::ACK, payload, ..Segment::default() };
            t.pass(Direction::Outgoing, key);
        }
        t.now += Duration::from_secs(until_back);
        let back = t.wake.control.set_absent(t.now, &BTreeSet::new());
        assert_eq!(back, own);
        t.wake.control.wake_returned(t.now, &back, &mut t.wake.path);
        assert!(!is_poked(&made(&mut t)), "no data is known to be outstanding");
        let (connection, _) = only_flow(&t.wake);
        t.wake.control.wake_outstanding(t.now, [(connection, OwnData::Sent)], &mut t.wake.path);
        assert!(is_poked(&made(&mut t)), "{until_back} s, leaves: {leaves}");
    }
}

#[test]
fn attempts_while_an_address_was_lost_do_not_count() {
    let mut t = Download::new(300);
    t.wake.handle_link(t.now, LinkEvent::Down);
    t.now += Duration::from_secs(3);
    t.wake.handle_link(t.now, LinkEvent::Up { symmetric: false, moved: false });
    t.now += Duration::from_millis(100);
    assert!(!made(&mut t).is_empty(), "it is woken");
    let own = BTreeSet::from([IpAddr::from([10, 0, 0, 1])]);
    t.wake.control.set_absent(t.now, &own);
    t.now += Duration::from_secs(59);
    made(&mut t);
    let back = t.wake.control.set_absent(t.now, &BTreeSet::new());
    t.wake.control.wake_returned(t.now, &back, &mut t.wake.path);
    assert!(!made(&mut t).is_empty(), "it is woken again, at once");
    t.now += Duration::from_secs(2);
    assert!(!made(&mut t).is_empty(), "and again: the minute has begun anew");
    assert_eq!(t.wake.control.poll_outcome(), None);
}

// Claim: Data that the host's TCP could not send, as it had no route or address, are sent after an ACK: its peer is probed at once.
// Tests: `first_data::the_first_key_arrives_after_the_interface_was_down`
#[test]
fn data_that_could_not_be_sent_are_woken_by_an_ack() {
    for (data, probes) in [(OwnData::Sent, 0), (OwnData::Unsent, 1)] {
        let mut t = Download::new(0);
        t.wake.handle_link(t.now, LinkEvent::Down);
        t.now += Duration::from_secs(3);
        t.wake.handle_link(t.now, LinkEvent::Up { symmetric: false, moved: false });
        t.now += Duration::from_millis(10);
        assert_eq!(made(&mut t), []);
        let (connection, _) = only_flow(&t.wake);
        t.wake.control.wake_outstanding(t.now, [(connection, data)], &mut t.wake.path);
        let is_probe = |made: &&Injected| made.packet.tcp().is_some_and(|segment| segment.seq == Seq::new(0));
        assert_eq!(made(&mut t).iter().filter(is_probe).count(), probes, "{data:?}");
    }
}

// Claim: Until the next hop has answered, a peer gets probes and no ACK of anything new, however long that takes: its data would be lost
// behind a router that receives and cannot send yet, and its next timeout would reduce its window again. Then it is released at once.
#[test]
fn nothing_is_released_before_the_next_hop_has_answered() {
    let mut t = Download::new(300);
    t.wake.handle_link(t.now, LinkEvent::Down);
    t.now += Duration::from_secs(3);
    t.wake.control.handle_unresolved_up(t.now, false, &mut t.wake.path);
    let mut probes = 0;
    for _ in 0..400 {
        t.now += Duration::from_millis(5);
        for made in made(&mut t) {
            let segment = made.packet.tcp().expect("no ICMP message");
            assert_eq!((segment.seq, made.direction), (Seq::new(0), Direction::Outgoing), "{made:?}");
            probes += 1;
        }
    }
    assert!(probes >= 20, "{probes}");
    assert!(only_flow(&t.wake).1.half(Direction::Outgoing).is_held());
    t.wake.control.handle_next_hop(t.now, &mut t.wake.path);
    // And probed.
    assert!(acks(&made(&mut t)).contains(&(t.data_end, 0)));
}

/// A router keeps the answers to probes until it can send.
// Claim: A late answer to a probe that was sent before the next hop answered does not end the attempt: the peer is released.
#[test]
fn a_late_answer_to_a_probe_is_followed_by_the_release() {
    let mut t = Download::new(300);
    t.wake.handle_link(t.now, LinkEvent::Down);
    t.now += Duration::from_secs(3);
    t.wake.control.handle_unresolved_up(t.now, false, &mut t.wake.path);
    let up_at = t.now;
    while t.now < up_at + Duration::from_secs(2) || made(&mut t).is_empty() {
        t.now += Duration::from_millis(5);
    }
    // More than two round trips after the last probe.
    t.now += Duration::from_millis(110);
    let (seq, ack) = (t.data_end, Seq::new(1));
    t.pass(Direction::Incoming, Segment { seq, ack, flags: Flags::ACK, ..Segment::default() });
    let mut sent = Vec::new();
    for _ in 0..4 {
        sent.extend(made(&mut t));
        t.now += Duration::from_millis(5);
    }
    assert!(acks(&sent).iter().any(|&(ack, _)| ack == t.data_end), "{sent:?}");
    assert_eq!(t.wake.control.poll_outcome(), None);
}
