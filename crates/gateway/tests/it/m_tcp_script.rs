//! M-TCP's supervisor host, packet by packet. The test plays the fixed host and the mobile host; both number their bytes from 1.

use core::net::SocketAddr;

use holdover_base::{Duration, Instant};
use holdover_filter::{Connection, Direction, Injected, Presence, SegmentFilter, Verdict};
use holdover_gateway::m_tcp::{MTcp, MTcpConfig};
use holdover_gateway::split::SplitConfig;
use holdover_tcp::Profile;
use holdover_wire::{Flags, Packet, Segment};

use crate::script::{FIXED, PHONE, segment};
use crate::support::{at_ms, ms};

/// Bytes of data in a segment.
const LEN: usize = 1000;

/// As the paper: a byte is held back from the first ACK on.
fn paper() -> MTcpConfig {
    MTcpConfig { held_after_bytes: 0, ..MTcpConfig::with(SplitConfig::with(Profile::Linux6Reno.config())) }
}

/// An open connection through a supervisor host.
struct Script {
    node: MTcp,
    now: Instant,
    /// The first sequence numbers of the node, towards the fixed host and towards the mobile host.
    to_fixed_from: u32,
    to_phone_from: u32,
    /// The last ACK that the fixed host got, and whether its window was open.
    shown: (u32, bool),
}

impl Script {
    /// The fixed host opens the connection; the mobile host answers after 10 ms.
    fn open(config: MTcpConfig) -> Self {
        let node = MTcp::new(config, [7; 16]);
        let mut script = Self { node, now: Instant::ZERO, to_fixed_from: 0, to_phone_from: 0, shown: (0, false) };
        let opening = |mut segment: Segment, flags| {
            segment.flags = flags;
            segment.options.mss = Some(LEN as u16);
            segment
        };
        let syn = script.send(Packet::new(FIXED, PHONE, opening(segment((80, 1000), 0, 0, 65_535, 0), Flags::SYN)));
        script.to_phone_from = first_number(&syn, Direction::Outgoing);
        script.now = at_ms(10);
        let flags = Flags::SYN | Flags::ACK;
        let answer = opening(segment((1000, 80), 0, script.to_phone_from.wrapping_add(1), 65_535, 0), flags);
        let answered = script.send(Packet::new(PHONE, FIXED, answer));
        script.to_fixed_from = first_number(&answered, Direction::Incoming);
        script.fixed(1, 0);
        assert_eq!(script.shown, (1, true));
        script
    }

    fn connection() -> Connection {
        Connection::between(SocketAddr::new(FIXED, 80), SocketAddr::new(PHONE, 1000))
    }

    /// Whether the fixed host's window is shut, and the half towards the mobile host frozen.
    fn choked(&self) -> (bool, bool) {
        self.node.is_choked(Self::connection()).expect("the connection is split")
    }

    fn send(&mut self, mut packet: Packet) -> Vec<Injected> {
        let direction = if packet.dst == PHONE { Direction::Outgoing } else { Direction::Incoming };
        assert_eq!(self.node.handle_packet(self.now, direction, &mut packet), Verdict::Keep);
        self.made()
    }

    fn made(&mut self) -> Vec<Injected> {
        let mut made = Vec::new();
        while let Some(one) = self.node.poll_transmit(self.now) {
            if let (Direction::Incoming, Some(segment)) = (one.direction, one.packet.tcp()) {
                assert!(!segment.flags.contains(Flags::URG), "the mark is for the supervisor host only");
                self.shown = (segment.ack.value(), segment.window > 0);
            }
            made.push(one);
        }
        made
    }

    /// The fixed host sends `len` bytes from `seq` on. Returns the segments that the mobile host gets.
    fn fixed(&mut self, seq: u32, len: usize) -> Vec<String> {
        let ack = self.to_fixed_from.wrapping_add(1);
        let made = self.send(Packet::new(FIXED, PHONE, segment((80, 1000), seq, ack, 65_535, len)));
        self.to_phone(&made)
    }

    /// The mobile host acknowledges, with M-TCP's mark or without. Returns what it gets.
    fn phone(&mut self, ack: u32, is_marked: bool) -> Vec<String> {
        let mut answer = segment((1000, 80), 1, self.to_phone_from.wrapping_add(ack), 65_535, 0);
        answer.flags.set(Flags::URG, is_marked);
        let made = self.send(Packet::new(PHONE, FIXED, answer));
        self.to_phone(&made)
    }

    /// The ACKs that the fixed host gets when it sends a segment from `seq` on.
    fn acks_of_fixed(&mut self, seq: u32) -> Vec<u32> {
        let ack = self.to_fixed_from.wrapping_add(1);
        let made = self.send(Packet::new(FIXED, PHONE, segment((80, 1000), seq, ack, 65_535, LEN)));
        to_fixed(&made)
    }

    /// The ACKs that the fixed host gets when the mobile host acknowledges.
    fn acks_of_phone(&mut self, ack: u32) -> Vec<u32> {
        let answer = segment((1000, 80), 1, self.to_phone_from.wrapping_add(ack), 65_535, 0);
        let made = self.send(Packet::new(PHONE, FIXED, answer));
        to_fixed(&made)
    }

    /// Segments to the mobile host: `1:1001` with data, `at 1000` without.
    fn to_phone(&self, made: &[Injected]) -> Vec<String> {
        let to_phone = made.iter().filter(|one| one.direction == Direction::Outgoing);
        let segments = to_phone.filter_map(|one| one.packet.tcp());
        segments.map(|segment| print(segment, self.to_phone_from)).collect()
    }

    /// Advances to `millis`. Returns what the mobile host gets meanwhile, with the times.
    fn at(&mut self, millis: u64) -> Vec<(Instant, String)> {
        let to = at_ms(millis);
        let mut all = Vec::new();
        while let Some(due) = self.node.poll_timeout().filter(|&due| due <= to) {
            self.now = self.now.max(due);
            self.node.handle_timeout(self.now);
            let made = self.made();
            all.extend(self.to_phone(&made).into_iter().map(|line| (self.now, line)));
        }
        self.now = to;
        all
    }

    /// Two segments of the fixed host. The mobile host acknowledges the first one at 20 ms, and nothing afterwards.
    fn cut_off(config: MTcpConfig) -> Self {
        let mut script = Self::open(config);
        assert_eq!(script.fixed(1, LEN), ["1:1001"]);
        assert_eq!(script.fixed(1001, LEN), ["1001:2001"]);
        script.at(20);
        script.phone(1001, false);
        script
    }
}

/// The ACK numbers of segments to the fixed host.
fn to_fixed(made: &[Injected]) -> Vec<u32> {
    let to_fixed = made.iter().filter(|one| one.direction == Direction::Incoming);
    to_fixed.filter_map(|one| Some(one.packet.tcp()?.ack.value())).collect()
}

fn first_number(made: &[Injected], direction: Direction) -> u32 {
    let segments = made.iter().filter(|one| one.direction == direction).filter_map(|one| one.packet.tcp());
    let mut first = segments.filter(|segment| segment.flags.contains(Flags::SYN));
    first.next().expect("a SYN").seq.value()
}

fn print(segment: &Segment, from: u32) -> String {
    let seq = segment.seq.value().wrapping_sub(from);
    match segment.payload.len() {
        0 => format!("at {seq}"),
        len => format!("{seq}:{}", seq as usize + len),
    }
}

// Claim: M-TCP acknowledges to the fixed host one byte less than the mobile host has, and the last byte when no more data comes.
#[test]
fn the_last_byte_is_held_back_until_no_more_data_comes() {
    let mut script = Script::open(paper());
    assert_eq!(script.fixed(1, LEN), ["1:1001"]);
    assert_eq!(script.shown, (1, true), "the mobile host has nothing yet");
    script.at(20);
    script.phone(1001, false);
    assert_eq!(script.shown, (1000, true));
    script.at(55);
    assert_eq!(script.shown, (1000, true));
    script.at(70);
    assert_eq!(script.shown, (1001, true), "after `flush`");
    assert_eq!(script.fixed(1001, LEN), ["1001:2001"]);
    script.at(80);
    script.phone(2001, false);
    assert_eq!(script.shown, (2000, true));
}

// Claim: A fixed host without SACK learns of a gap by three duplicate ACKs, which carry the held byte, as soon as the mobile host has
// acknowledged all before the gap and three segments wait beyond it.
#[test]
fn a_gap_is_reported_when_all_before_it_is_acknowledged() {
    let mut script = Script::open(paper());
    script.fixed(1, LEN);
    // 1001:2001 is lost.
    for seq in [2001, 3001, 4001] {
        assert!(script.acks_of_fixed(seq).is_empty(), "the mobile host has nothing yet");
    }
    assert_eq!(script.acks_of_phone(1001), [1001; 4]);
    // Later segments make duplicate ACKs of their own.
    assert_eq!(script.acks_of_fixed(5001), [1001]);
    assert_eq!(script.fixed(1001, LEN), ["1001:2001", "2001:3001", "3001:4001", "4001:5001", "5001:6001"]);
    assert_eq!(script.acks_of_phone(2001), [2000], "a byte is held back again");
}

#[test]
fn fewer_than_three_segments_beyond_a_gap_are_taken_for_reordering() {
    let mut script = Script::open(paper());
    script.fixed(1, LEN);
    assert_eq!(script.acks_of_phone(1001), [1000]);
    assert!(script.acks_of_fixed(2001).is_empty());
    assert!(script.acks_of_fixed(3001).is_empty());
    assert_eq!(script.acks_of_fixed(4001), [1001; 4]);
}

/// Section 5.3.2, first case: nothing is held back, so that the sender would ignore a window of zero.
// Claim: The three cases of wintimer's expiry (M-TCP, section 5.3.2): nothing is done if nothing is held back, the last byte is acknowledged
// if no data is outstanding, and otherwise with a window of zero.
// Tests: `m_tcp_script::wintimer_shows_the_last_byte_of_a_sender_without_more_data`,
// `m_tcp_script::wintimer_shuts_the_window_with_the_byte_that_is_held_back`
#[test]
fn wintimer_does_nothing_if_nothing_is_held_back() {
    let mut script = Script::open(MTcpConfig { held_after_bytes: 14_600, ..paper() });
    assert_eq!(script.fixed(1, LEN), ["1:1001"]);
    script.at(3000);
    assert_eq!(script.shown, (1, true));
    assert_eq!(script.choked(), (false, true), "the half towards the mobile host freezes all the same");
}

/// The second case. The fixed host retransmits data that it takes for lost; nothing else starts wintimer without outstanding data.
#[test]
fn wintimer_shows_the_last_byte_of_a_sender_without_more_data() {
    let mut script = Script::open(MTcpConfig { flush: Duration::from_secs(60), ..paper() });
    script.fixed(1, LEN);
    script.at(20);
    script.phone(1001, false);
    script.at(300);
    script.fixed(1, LEN);
    script.at(500);
    assert_eq!(script.shown, (1000, true), "wintimer takes 250 ms at least");
    script.at(3000);
    assert_eq!(script.shown, (1001, true));
    assert_eq!(script.choked(), (false, false));
}

/// The third case.
#[test]
fn wintimer_shuts_the_window_with_the_byte_that_is_held_back() {
    let mut script = Script::cut_off(paper());
    assert_eq!(script.shown, (1000, true));
    script.at(200);
    assert_eq!(script.shown, (1000, true));
    script.at(3000);
    assert_eq!(script.shown, (1001, false));
    assert_eq!(script.choked(), (true, true));
}

// Claim: M-TCP answers the persist packets of a fixed host whose window it has shut, and no data goes to the mobile host meanwhile.
#[test]
fn persist_packets_of_the_fixed_host_are_answered() {
    let mut script = Script::cut_off(paper());
    script.at(3000);
    for at in [8_000, 18_000, 38_000] {
        script.at(at);
        script.shown = (0, true);
        assert_eq!(script.fixed(1001, 1), [] as [&str; 0]);
        assert_eq!(script.shown, (1001, false));
    }
}

// Claim: A frozen half sends the mobile host persist packets after 5, 10, 20, 40 and 60 s, and then every 60 s (M-TCP, section 4.2).
#[test]
fn the_mobile_host_is_probed_at_growing_intervals() {
    let mut script = Script::cut_off(paper());
    let frozen_at = (21..3000).find(|&millis| {
        script.at(millis);
        script.choked().1
    });
    let frozen_at = at_ms(frozen_at.expect("it freezes"));
    let sent = script.at(210_000);
    assert!(sent.iter().all(|(_, line)| line == "at 1000"), "{sent:?}");
    let times: Vec<Instant> = sent.iter().map(|(at, _)| *at).collect();
    let first = times[0].saturating_since(frozen_at);
    assert!((ms(4_998)..=ms(5_000)).contains(&first), "{first}");
    let pauses: Vec<Duration> = times.windows(2).map(|pair| pair[1].saturating_since(pair[0])).collect();
    assert_eq!(pauses, [10, 20, 40, 60, 60].map(Duration::from_secs));
}

// Claim: M-TCP's marked ACK ends the freeze: outstanding data is retransmitted at once, and the fixed host's window opens.
#[test]
fn a_marked_ack_ends_the_freeze() {
    let mut script = Script::cut_off(paper());
    script.at(3000);
    assert_eq!(script.phone(1001, true), ["1001:2001"]);
    assert_eq!(script.shown, (1001, true));
    assert_eq!(script.choked(), (false, false));
}

/// If the marked ACK is lost: nothing shows yet that data gets through, so the window stays shut.
#[test]
fn an_answer_to_a_persist_packet_brings_the_data_and_its_ack_opens_the_window() {
    let mut script = Script::cut_off(paper());
    script.at(3000);
    assert_eq!(script.phone(1001, false), ["1001:2001"]);
    assert_eq!(script.shown, (1001, false));
    assert_eq!(script.choked(), (true, false));
    script.at(3010);
    script.phone(2001, false);
    assert_eq!(script.shown, (2000, true));
}

/// RECOVERING: a sender that takes `snd_max` back must not get an ACK of data that it has not sent again since.
// Claim: With `pulls_back`, a fixed host that leaves persist mode gets no ACK of data that it has not sent again.
#[test]
fn a_sender_that_pulls_back_is_acknowledged_as_it_sends_again() {
    let reopened = |pulls_back| {
        let mut script = Script::cut_off(MTcpConfig { pulls_back, ..paper() });
        script.at(3000);
        script.phone(2001, true);
        script
    };
    assert_eq!(reopened(false).shown, (2000, true));
    let mut script = reopened(true);
    assert_eq!(script.shown, (1001, true));
    script.at(3100);
    assert_eq!(script.shown, (1001, true));
    script.fixed(1001, LEN);
    assert_eq!(script.shown, (2000, true));
}

/// The layers below report the mobile host away: nothing waits for a timer.
#[test]
fn reports_of_presence_freeze_and_thaw_at_once() {
    let mut script = Script::cut_off(paper());
    script.node.handle_mobile(script.now, PHONE, Presence::Away);
    script.made();
    assert_eq!((script.shown, script.choked()), ((1001, false), (true, true)));
    script.at(1000);
    script.node.handle_mobile(script.now, PHONE, Presence::Present);
    let made = script.made();
    assert_eq!(script.to_phone(&made), ["1001:2001"]);
    assert_eq!((script.shown, script.choked()), ((1001, true), (false, false)));
}
