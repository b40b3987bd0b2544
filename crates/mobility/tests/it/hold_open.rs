//! Connections that are held open for a TCP that cannot be configured.

use holdover_base::{Duration, Instant};
use holdover_mobility::hold_open::{HoldOpen, HoldOpenConfig};
use holdover_mobility::{Connection, Direction, SegmentFilter as _, Verdict};
use holdover_wire::{Flags, Packet, Segment, Seq, Timestamps, UserTimeout};

use crate::script::{change, flags, from_peer, stamped, tcp_of};
use crate::support::at_ms;

const HOUR: Duration = Duration::from_secs(3600);

/// A filter in front of a host's TCP.
struct Script(HoldOpen);

impl Script {
    fn new(config: HoldOpenConfig) -> Self {
        Self(HoldOpen::new(config))
    }

    /// The host sends. Returns the forwarded segment, and the answer.
    fn host(&mut self, at: Instant, mut packet: Packet) -> (Segment, Option<Segment>) {
        assert_eq!(self.0.handle_packet(at, Direction::Outgoing, &mut packet), Verdict::Pass);
        let answer = self.0.poll_transmit(at).map(|injected| {
            assert_eq!(injected.direction, Direction::Incoming);
            assert_eq!((injected.packet.src, injected.packet.dst), (packet.dst, packet.src));
            tcp_of(&injected.packet).clone()
        });
        assert_eq!(self.0.poll_transmit(at), None);
        (tcp_of(&packet).clone(), answer)
    }

    /// The peer sends. Returns the segment that arrives.
    fn peers(&mut self, at: Instant, mut packet: Packet) -> Segment {
        assert_eq!(self.0.handle_packet(at, Direction::Incoming, &mut packet), Verdict::Pass);
        assert_eq!(self.0.poll_transmit(at), None);
        tcp_of(&packet).clone()
    }

    /// The peer sends; the packet arrives unchanged.
    fn peer(&mut self, at: Instant, packet: Packet) {
        let mut passed = packet.clone();
        assert_eq!(self.0.handle_packet(at, Direction::Incoming, &mut passed), Verdict::Pass);
        assert_eq!((passed, self.0.poll_transmit(at)), (packet, None));
    }
}

/// Data of the host: as `from_peer`, turned round.
fn data(seq: u32, len: usize) -> Packet {
    let packet = from_peer(seq, len);
    let packet = Packet { src: packet.dst, dst: packet.src, ..packet };
    change(packet, |it| {
        (it.src_port, it.dst_port) = (it.dst_port, it.src_port);
        it.ack = Seq::new(1);
    })
}

fn ack_of_peer(ack: u32, window: u16) -> Packet {
    change(from_peer(1, 0), |it| (it.ack, it.window) = (Seq::new(ack), window))
}

fn plain() -> HoldOpenConfig {
    HoldOpenConfig { advertise: false, ..HoldOpenConfig::default() }
}

/// A connection on which the peer has acknowledged 100 bytes at 1 s.
fn connected(config: HoldOpenConfig) -> Script {
    let mut script = Script::new(config);
    script.host(at_ms(900), data(1, 100));
    script.peer(at_ms(1000), stamped(ack_of_peer(101, 700), 50, 40));
    script
}

/// The times of Linux's retransmissions from 2 s on, up to some time.
fn retransmissions(to_s: u64) -> Vec<Instant> {
    let (mut at, mut timeout, mut times) = (2000, 200, Vec::new());
    while at + timeout < to_s * 1000 {
        at += timeout;
        timeout = (timeout * 2).min(120_000);
        times.push(at_ms(at));
    }
    times
}

// Claim: A connection whose peer does not answer is held open for the user timeout, by answers with the peer's last ACK and a window of
// zero; the first two repetitions are not answered, and nothing is after the timeout.
#[test]
fn repetitions_are_answered_with_a_window_of_zero_until_the_timeout() {
    let mut script = connected(HoldOpenConfig { timeout: HOUR, ..plain() });
    for seq in [101, 1101] {
        assert_eq!(script.host(at_ms(2000), stamped(data(seq, 1000), 60, 50)).1, None);
    }
    let mut answered = Vec::new();
    for at in retransmissions(5000) {
        let (_, answer) = script.host(at, stamped(data(101, 1000), 61, 50));
        let Some(answer) = answer else { continue };
        answered.push(at);
        let expected = Segment {
            src_port: 80,
            dst_port: 1000,
            seq: Seq::new(1),
            ack: Seq::new(101),
            flags: Flags::ACK,
            window: 0,
            ..Segment::default()
        };
        assert_eq!(answer.options.timestamps, Some(Timestamps { val: 50, ecr: 40 }));
        assert_eq!(Segment { options: expected.options.clone(), ..answer }, expected);
    }
    let all = retransmissions(5000);
    let silence = |at: &Instant| at.saturating_since(at_ms(2000));
    let expected: Vec<Instant> =
        all.iter().copied().filter(|at| (Duration::from_secs(1)..HOUR).contains(&silence(at))).collect();
    assert_eq!(answered, expected);
    assert!(expected[0] <= at_ms(6000) && expected.last() < all.last());
    assert_eq!(script.0.counters().answers, expected.len() as u64);
    assert_eq!(script.0.held().0, 0, "no more");
}

#[test]
fn any_segment_of_the_peer_ends_the_silence() {
    let mut script = connected(plain());
    script.host(at_ms(2000), data(101, 1000));
    let times = retransmissions(100);
    for at in &times {
        script.host(*at, data(101, 1000));
    }
    assert_eq!(script.0.held().0, 1);
    let back = *times.last().unwrap() + Duration::from_secs(1);
    script.peers(back, ack_of_peer(101, 700));
    assert_eq!(script.0.held().0, 0);
    // The next ones count from there.
    for ms in [0, 200, 600] {
        assert_eq!(script.host(back + Duration::from_millis(ms), data(101, 1000)).1, None, "{ms}");
    }
    assert!(script.host(back + Duration::from_millis(6000), data(101, 1000)).1.is_some());
}

// Claim: After a silence the window stays shut until the peer acknowledges something, and its segments are otherwise unchanged; if it is
// silent again before, the next repetition is answered.
#[test]
fn the_window_stays_shut_until_something_is_acknowledged() {
    let mut script = connected(plain());
    script.host(at_ms(2000), data(101, 1000));
    let times = retransmissions(2000);
    for at in &times {
        script.host(*at, data(101, 1000));
    }
    let mut at = *times.last().unwrap();
    let mut later = |ms| {
        at += Duration::from_millis(ms);
        at
    };
    // Data, a duplicate ACK, and one of long ago.
    for packet in [change(from_peer(1, 500), |it| it.ack = Seq::new(101)), ack_of_peer(101, 700), ack_of_peer(51, 700)]
    {
        let arrived = script.peers(later(10), packet.clone());
        assert_eq!(arrived, Segment { window: 0, ..tcp_of(&packet).clone() });
    }
    assert_eq!(script.host(later(10), data(101, 1000)).1, None, "the peer has just been heard");
    assert_eq!(script.host(later(120_000), data(101, 1000)).1.unwrap().window, 0, "silent again");
    script.peers(later(10), ack_of_peer(101, 700));
    script.peer(later(50), ack_of_peer(601, 700));
    // As before the silence.
    script.peer(later(10), ack_of_peer(601, 700));
    for ms in [100, 2000] {
        assert_eq!(script.host(later(ms), data(601, 500)).1, None);
    }
    // A reset arrives as it is.
    let mut script = connected(plain());
    for at in retransmissions(100) {
        script.host(at, data(101, 1000));
    }
    script.peer(at_ms(101_000), flags(ack_of_peer(101, 5), Flags::RST | Flags::ACK));
}

#[test]
fn keep_alives_and_probes_are_answered_with_the_last_window() {
    for window in [0, 700] {
        let mut script = Script::new(plain());
        script.host(at_ms(900), data(1, 100));
        script.peer(at_ms(1000), ack_of_peer(101, window));
        let probe = |at_s: u64| (Instant::from_secs(at_s), data(100, 0));
        for at_s in [7200, 7275] {
            let (at, probe) = probe(at_s);
            assert_eq!(script.host(at, probe).1, None);
        }
        for at_s in [7350, 7425, 7500] {
            let (at, probe) = probe(at_s);
            let answer = script.host(at, probe).1.unwrap();
            assert_eq!((answer.ack, answer.window), (Seq::new(101), window));
        }
    }
}

#[test]
fn acknowledgements_and_new_data_get_no_answer() {
    let mut script = connected(plain());
    for s in 2..100 {
        // An ACK of data, and new data: neither is repeated.
        assert_eq!(script.host(Instant::from_secs(s), data(101 + 10 * (s as u32 - 2), 0)).1, None);
        assert_eq!(script.host(Instant::from_secs(s), data(101 + 10 * (s as u32 - 2), 10)).1, None);
    }
    assert_eq!(script.0.counters().answers, 0);
}

/// An answer acknowledges exactly as much as the peer has, and is given only for a peer that was heard.
#[test]
fn nothing_is_invented() {
    let mut script = Script::new(plain());
    for at in retransmissions(1000) {
        assert_eq!(script.host(at, data(101, 1000)).1, None, "the peer is not known");
    }
    let mut script = Script::new(plain());
    for at in retransmissions(1000) {
        let syn = change(data(0, 0), |it| it.flags = Flags::SYN);
        assert_eq!(script.host(at, syn).1, None, "a connection that is not open");
    }
    // The peer has reset it.
    let mut script = connected(plain());
    script.host(at_ms(2000), data(101, 1000));
    script.peer(at_ms(2100), flags(ack_of_peer(101, 0), Flags::RST));
    for at in retransmissions(1000) {
        let answer = script.host(at + Duration::from_secs(1), data(101, 1000)).1;
        assert!(answer.is_none_or(|answer| answer.ack == Seq::new(101)));
    }
}

/// A TCP that answered an answer would not do so endlessly.
#[test]
fn answers_are_not_close_together() {
    let mut script = connected(plain());
    script.host(at_ms(2000), data(101, 1000));
    let answers = (0..10_000).filter(|ms| script.host(at_ms(2000 + ms), data(101, 1000)).1.is_some()).count();
    assert_eq!(answers, 45);
}

// Claim: The option of RFC 5482 is added to the SYN, but not to a repeated one, and to three segments after the handshake; the peer's
// option lengthens the user timeout up to the limit, and never shortens it.
#[test]
fn the_option_is_negotiated() {
    let config = HoldOpenConfig { timeout: HOUR, accept: HOUR * 3, advertise: true };
    let mut script = Script::new(config);
    let syn = || change(data(0, 0), |it| (it.flags, it.ack) = (Flags::SYN, Seq::new(0)));
    let option = UserTimeout::from_duration(HOUR);
    assert_eq!(script.host(at_ms(0), syn()).0.options.user_timeout, option);
    assert_eq!(
        script.host(at_ms(1000), syn()).0.options.user_timeout,
        None,
        "something may have dropped the first one"
    );
    let asked = |hours: u64| {
        let syn_ack = change(from_peer(0, 0), |it| (it.flags, it.ack) = (Flags::SYN | Flags::ACK, Seq::new(1)));
        change(syn_ack, |it| it.options.user_timeout = UserTimeout::from_duration(HOUR * hours))
    };
    script.peer(at_ms(1100), asked(2));
    let connection = Connection::of(Direction::Outgoing, &data(1, 0)).unwrap();
    assert_eq!(script.0.user_timeout(connection), Some(HOUR * 2));
    for (hours, adopted) in [(10, 3), (1, 1), (0, 1)] {
        let again =
            change(ack_of_peer(1, 700), |it| it.options.user_timeout = UserTimeout::from_duration(HOUR * hours));
        script.peer(at_ms(1200), again);
        assert_eq!(script.0.user_timeout(connection), Some(HOUR * adopted), "{hours} h");
    }
    let with_option: Vec<bool> = (0..5)
        .map(|index| script.host(at_ms(1300), data(1 + index * 100, 100)).0.options.user_timeout.is_some())
        .collect();
    assert_eq!(with_option, [true, true, true, false, false]);
    assert_eq!((script.0.counters().options_sent, script.0.counters().options_received), (4, 3));
}

#[test]
fn a_tcp_that_sends_the_option_itself_speaks_for_itself() {
    let mut script = Script::new(HoldOpenConfig::default());
    let own = UserTimeout::from_duration(HOUR * 5);
    let syn = change(data(0, 0), |it| (it.flags, it.options.user_timeout) = (Flags::SYN, own));
    assert_eq!(script.host(at_ms(0), syn).0.options.user_timeout, own);
    script.peer(at_ms(10), ack_of_peer(1, 700));
    assert_eq!(script.host(at_ms(20), data(1, 100)).0.options.user_timeout, None);
    // There is no room in a segment as long as the path allows, or beside other options.
    let mut script = Script::new(HoldOpenConfig::default());
    script.peer(at_ms(10), ack_of_peer(1, 700));
    assert_eq!(script.host(at_ms(20), data(1, 1380)).0.options.user_timeout, None);
    let unknown = change(data(1381, 10), |it| it.options.unknown = 1);
    assert_eq!(script.host(at_ms(20), unknown).0.options.user_timeout, None);
}
