//! Connections of I-TCP that move between base stations with the data in their buffers.

use core::net::{IpAddr, Ipv4Addr};

use holdover_base::Instant;
use holdover_filter::{Chain, ControlMessage, Direction, Presence, Verdict};
use holdover_gateway::Mechanisms;
use holdover_gateway::handoff::{Body, HandoffConfig, Message, Piece};
use holdover_gateway::split::SplitConfig;
use holdover_tcp::Profile;
use holdover_wire::{Flags, Packet};
use proptest::prelude::*;

use crate::roaming::{Move, Outcome, PROFILES, Roaming, Setup, Station, rough};
use crate::script::{FIXED, PHONE, ack, change, data, opening};
use crate::support::{at_ms, ms};

const OLD: usize = 0;
const NEW: usize = 1;
const THIRD: usize = 2;
const NOTHING: [&str; 0] = [];

fn address(station: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 1, station as u8).into()
}

/// Three base stations. The test plays both hosts and the network between the stations.
struct Stations {
    chains: Vec<Chain>,
    now: Instant,
}

impl Stations {
    fn new() -> Self {
        let chains = (0..3).map(|own| {
            let peers = (0..3).filter(|other| *other != own).map(address).collect();
            let handoff = Some(HandoffConfig::among(peers));
            let split = SplitConfig { handoff, ..SplitConfig::with(Profile::Linux6Reno.config()) };
            let mechanisms = Mechanisms { split: Some(split), ..Mechanisms::default() };
            mechanisms.check().expect("a mechanism that can be");
            mechanisms.chain([own as u8 + 1; 16])
        });
        Self { chains: chains.collect(), now: Instant::ZERO }
    }

    /// As [`Self::sending`]; then the new station has received all of the record, but its confirmations are lost.
    fn with_an_unconfirmed_record() -> (Self, Numbers) {
        let (mut stations, numbers) = Self::sending();
        stations.tell(OLD, Presence::Moved);
        stations.tell(NEW, Presence::Present);
        stations.deliver(NEW, |_, _| true);
        stations.deliver(THIRD, |_, _| true);
        stations.deliver(OLD, |_, _| true);
        stations.deliver(NEW, |_, body| !matches!(body, Body::Taken { .. }));
        (stations, numbers)
    }

    /// The phone moves on from the new station to the third one, which hears of the station `first` before the other one.
    fn move_to_third(&mut self, first: usize) {
        self.at(150);
        self.tell(NEW, Presence::Moved);
        self.tell(THIRD, Presence::Present);
        self.deliver(THIRD, |_, _| true);
        self.deliver(first, |_, _| true);
        self.talk();
    }

    /// A connection that the phone has opened through the old station; two segments of the fixed host are acknowledged, and on their way to
    /// the phone. Returns the numbers of both halves: the phone's SYN at the fixed host, and the first byte at the phone.
    fn sending() -> (Self, Numbers) {
        let mut stations = Self::new();
        let [syn, reply] = opening(100);
        stations.tell(OLD, Presence::Present);
        for message in stations.sent(OLD) {
            assert_eq!(message.body, Body::Ask);
            stations.answer(OLD, &message, Body::None);
        }
        let made = stations.pass(OLD, syn);
        let [to_fixed] = &made[..] else { panic!("{made:?}") };
        let of_node = to_fixed.tcp().expect("a SYN").seq + 1;
        let made = stations.pass(OLD, change(reply, |reply| reply.ack = of_node));
        let to_phone = made.iter().find(|packet| packet.dst == PHONE).expect("a SYN-ACK");
        let first = to_phone.tcp().expect("a SYN-ACK").seq + 1;
        let numbers = Numbers { of_node: of_node.value(), first: first.value() };
        stations.pass(OLD, ack(numbers.first, 8_000));
        let made: Vec<String> = [100, 636]
            .into_iter()
            .flat_map(|at| stations.pass(OLD, numbers.data(at, 536)))
            .map(|made| numbers.show(&made))
            .collect();
        assert_eq!(made, ["to fixed ack 636", "to phone 0:536", "to fixed ack 1172", "to phone 536:1072"]);
        (stations, numbers)
    }

    fn pass(&mut self, station: usize, mut packet: Packet) -> Vec<Packet> {
        let direction = if packet.dst == PHONE { Direction::Outgoing } else { Direction::Incoming };
        let verdict = self.chains[station].handle_packet(self.now, direction, &mut packet);
        let passed = (verdict == Verdict::Pass).then_some(packet);
        passed.into_iter().chain(self.made(station)).collect()
    }

    fn made(&mut self, station: usize) -> Vec<Packet> {
        core::iter::from_fn(|| self.chains[station].poll_transmit()).map(|made| made.packet).collect()
    }

    fn tell(&mut self, station: usize, presence: Presence) {
        self.chains[station].handle_mobile(self.now, PHONE, presence);
    }

    /// The messages of a station to its peers.
    fn control(&mut self, station: usize) -> Vec<ControlMessage> {
        core::iter::from_fn(|| self.chains[station].poll_control()).collect()
    }

    fn sent(&mut self, station: usize) -> Vec<Message> {
        let sent = self.control(station);
        sent.iter().map(|message| Message::parse(&message.payload).expect("a message")).collect()
    }

    /// A peer other than the one that the test is about answers.
    fn answer(&mut self, station: usize, question: &Message, body: Body) {
        for peer in (0..3).filter(|peer| *peer != station) {
            let payload = Message { body: body.clone(), ..question.clone() }.emit();
            self.chains[station].handle_control(self.now, &ControlMessage { peer: address(peer), payload });
        }
    }

    /// Delivers messages of `from`, those that `passes` lets through. Returns what was delivered.
    fn deliver(&mut self, from: usize, passes: impl Fn(usize, &Body) -> bool) -> usize {
        let mut delivered = 0;
        for message in self.control(from) {
            let to = (0..3).find(|station| address(*station) == message.peer).expect("a station");
            if passes(to, &Message::parse(&message.payload).expect("a message").body) {
                let message = ControlMessage { peer: address(from), payload: message.payload };
                assert!(self.chains[to].handle_control(self.now, &message));
                delivered += 1;
            }
        }
        delivered
    }

    /// The phone moves from the old station to the new one, and the old one's answer is lost.
    fn move_without_an_answer(&mut self) {
        self.tell(OLD, Presence::Moved);
        self.tell(NEW, Presence::Present);
        self.deliver(NEW, |_, _| true);
        self.deliver(OLD, |_, _| false);
    }

    /// Delivers all messages until none is left.
    fn talk(&mut self) {
        while (0..3).map(|from| self.deliver(from, |_, _| true)).sum::<usize>() > 0 {}
    }

    /// The same while time passes.
    fn talk_for(&mut self, from_ms: u64, for_ms: u64) {
        for millis in (from_ms..=from_ms + for_ms).step_by(100) {
            self.at(millis);
            self.talk();
        }
    }

    fn at(&mut self, millis: u64) {
        let to = at_ms(millis);
        while let Some(due) = self.chains.iter().filter_map(Chain::poll_timeout).min().filter(|&due| due <= to) {
            self.now = self.now.max(due);
            self.chains.iter_mut().for_each(|chain| chain.handle_timeout(due));
        }
        self.now = to;
    }

    /// The actions of all stations, those of one kind together.
    fn actions(&mut self) -> Vec<(usize, &'static str)> {
        let chains = self.chains.iter_mut().enumerate();
        let actions = chains.flat_map(|(at, chain)| core::iter::from_fn(move || Some((at, chain.poll_action()?.what))));
        let mut actions: Vec<_> = actions.collect();
        actions.sort_by_key(|action| action.1);
        actions
    }
}

/// The numbers of the two halves: those of the node at the fixed host, and at the phone.
#[derive(Clone, Copy)]
struct Numbers {
    of_node: u32,
    first: u32,
}

impl Numbers {
    fn data(self, seq: u32, len: usize) -> Packet {
        change(data(seq, len), |segment| segment.ack = holdover_wire::Seq::new(self.of_node))
    }

    fn ack(self, offset: u32) -> Packet {
        ack(self.first.wrapping_add(offset), 8_000)
    }

    /// A packet, with the phone's bytes counted from 0.
    fn show(self, packet: &Packet) -> String {
        let segment = packet.tcp().expect("TCP");
        let (from, len) = (segment.seq.value().wrapping_sub(self.first), segment.payload.len() as u32);
        match (packet.dst == PHONE, segment.flags.contains(Flags::RST)) {
            (true, true) => "to phone RST".to_owned(),
            (false, true) => "to fixed RST".to_owned(),
            (true, false) if len == 0 => format!("to phone ack {}", segment.ack),
            (true, false) => format!("to phone {from}:{}", from.wrapping_add(len)),
            (false, false) => format!("to fixed ack {}", segment.ack),
        }
    }

    fn shown(self, packets: &[Packet]) -> Vec<String> {
        packets.iter().map(|packet| self.show(packet)).collect()
    }
}

/// The fixed host's data is acknowledged and gone: the new station sends it to the phone at once, and continues both halves.
// Claim: A connection of I-TCP moves with the data in its buffers: the new base station sends what the phone has not acknowledged as soon as
// the phone is there, acknowledges the fixed host's next data with the same numbers, and the old one is silent.
// Tests: `split_handoff::what_arrives_during_the_handoff_waits`, `split_handoff::a_connection_comes_back`
#[test]
fn unacknowledged_data_is_sent_by_the_new_base_station() {
    let (mut stations, numbers) = Stations::sending();
    stations.tell(OLD, Presence::Moved);
    stations.tell(NEW, Presence::Present);
    stations.talk();
    assert_eq!(stations.actions(), [(OLD, "handed on"), (NEW, "took over")]);
    let made = stations.made(NEW);
    assert_eq!(numbers.shown(&made), ["to phone 0:536", "to phone 536:1072"]);
    let made = stations.pass(NEW, numbers.ack(536));
    assert_eq!(numbers.shown(&made), NOTHING);
    let made = stations.pass(NEW, numbers.ack(1_072));
    assert_eq!(numbers.shown(&made), NOTHING);
    let mut made = stations.pass(NEW, numbers.data(1_172, 536));
    made.extend(stations.pass(NEW, numbers.data(1_708, 536)));
    assert_eq!(
        numbers.shown(&made),
        ["to fixed ack 1708", "to phone 1072:1608", "to fixed ack 2244", "to phone 1608:2144"]
    );
    stations.at(10_000);
    assert_eq!(numbers.shown(&stations.made(OLD)), NOTHING);
    assert_eq!(stations.chains[OLD].stored().bytes, 0);
}

/// Packets of both ends that arrive before the record wait, in order.
#[test]
fn what_arrives_during_the_handoff_waits() {
    let (mut stations, numbers) = Stations::sending();
    stations.tell(OLD, Presence::Moved);
    for packet in [numbers.ack(1_072), numbers.data(1_172, 536), numbers.data(1_708, 536)] {
        assert!(stations.pass(NEW, packet).is_empty());
    }
    stations.talk();
    assert_eq!(stations.actions(), [(OLD, "handed on"), (NEW, "took over")]);
    let made = stations.made(NEW);
    assert_eq!(
        numbers.shown(&made),
        ["to fixed ack 2244", "to phone 1072:1608", "to phone 1608:2144"],
        "the phone has the first 1072"
    );
    // Stragglers at the old station.
    assert!(stations.pass(OLD, numbers.data(1_172, 536)).is_empty() && stations.pass(OLD, numbers.ack(536)).is_empty());
}

/// There and back again; the record that moves back is newer than the one that is remembered.
#[test]
fn a_connection_comes_back() {
    let (mut stations, numbers) = Stations::sending();
    for (round, (from, to)) in [(OLD, NEW), (NEW, THIRD), (THIRD, OLD), (OLD, NEW)].into_iter().enumerate() {
        stations.tell(from, Presence::Moved);
        stations.at(1_000 * (round as u64 + 1));
        // The phone does not answer.
        (0..3).for_each(|station| drop(stations.made(station)));
        stations.tell(to, Presence::Present);
        stations.talk();
        assert_eq!(stations.actions(), [(from, "handed on"), (to, "took over")]);
        let made = stations.made(to);
        assert_eq!(numbers.shown(&made), ["to phone 0:536", "to phone 536:1072"]);
    }
}

/// The new station has received all of the record, but its confirmations are lost; then the phone moves on. The third station gets the
/// record from both, and continues from the newer one, whichever comes first.
// Claim: If the confirmations of a record of I-TCP are lost and the mobile host moves on, the next base station continues from the newest
// record, whichever arrives first; if a peer that may have it does not answer, the ends are reset.
// Tests: `split_handoff::a_record_that_may_be_outdated_is_not_used_unless_all_answer`,
// `split_handoff::a_record_that_no_other_peer_has_is_used`
#[test]
fn the_newest_of_two_records_applies() {
    for first in [OLD, NEW] {
        let (mut stations, numbers) = Stations::with_an_unconfirmed_record();
        assert_eq!(stations.actions(), [(OLD, "handed on"), (NEW, "took over")]);
        stations.made(NEW);
        // The phone acknowledges the first segment, and the fixed host sends a third one.
        let mut made = stations.pass(NEW, numbers.ack(536));
        made.extend(stations.pass(NEW, numbers.data(1_172, 536)));
        assert_eq!(numbers.shown(&made), ["to fixed ack 1708", "to phone 1072:1608"]);
        stations.move_to_third(first);
        let took = stations.actions();
        assert_eq!(took, [(NEW, "handed on"), (THIRD, "took over")], "first {first}");
        let made = stations.made(THIRD);
        assert_eq!(
            numbers.shown(&made),
            ["to phone 536:1072", "to phone 1072:1608"],
            "first {first}: all that was acknowledged"
        );
        let made = stations.pass(THIRD, numbers.ack(1_608));
        assert_eq!(numbers.shown(&made), NOTHING, "first {first}");
    }
}

/// The new station has received all of the record, but its confirmations are lost; the connection ends there, and the phone moves on. The
/// third station gets the record of the old one, and the news of the end.
// Claim: A connection of I-TCP that has ended does not come back from a record that was never confirmed.
#[test]
fn a_connection_that_has_ended_does_not_come_back() {
    for first in [OLD, NEW] {
        let (mut stations, numbers) = Stations::with_an_unconfirmed_record();
        stations.made(NEW);
        let made = stations.pass(NEW, change(numbers.ack(536), |segment| segment.flags = Flags::RST | Flags::ACK));
        assert_eq!(numbers.shown(&made), ["to fixed RST"]);
        stations.move_to_third(first);
        assert_eq!(stations.actions(), [(OLD, "handed on"), (NEW, "took over")], "first {first}");
        assert!(stations.chains.iter().all(|chain| chain.stored().connections == 0));
    }
}

/// As in `the_newest_of_two_records_applies`, but the second station does not answer: it may have continued the connection. It waits until that answers.
#[test]
fn a_record_that_may_be_outdated_is_not_used_unless_all_answer() {
    let (mut stations, numbers) = Stations::sending();
    stations.move_without_an_answer();
    stations.tell(NEW, Presence::Moved);
    stations.tell(THIRD, Presence::Present);
    assert!(stations.pass(THIRD, numbers.ack(536)).is_empty());
    for second in 0..30 {
        stations.deliver(THIRD, |to, _| to == OLD);
        stations.deliver(OLD, |to, _| to == THIRD);
        stations.at(1_000 * second);
    }
    assert_eq!(stations.made(THIRD), [], "25 s are over");
    assert_eq!(stations.actions(), [(OLD, "handed on")]);
    assert!(stations.pass(THIRD, numbers.ack(536)).is_empty());
    stations.talk_for(29_000, 1_100);
    assert_eq!(stations.actions(), [(THIRD, "took over")]);
    // Then it is retransmitted.
    assert_eq!(numbers.shown(&stations.made(THIRD))[0], "to phone 536:1072");
}

/// A record that nobody has asked for in time is lost: no node uses an older one, and both ends are reset when they send.
#[test]
fn a_record_that_was_kept_too_long_is_lost_everywhere() {
    let (mut stations, numbers) = Stations::sending();
    stations.tell(OLD, Presence::Moved);
    stations.tell(NEW, Presence::Present);
    // The confirmations are lost, so that the old station keeps an older record.
    stations.deliver(NEW, |_, _| true);
    stations.deliver(THIRD, |_, _| true);
    stations.deliver(OLD, |_, _| true);
    stations.deliver(NEW, |_, _| false);
    assert_eq!(stations.actions(), [(OLD, "handed on"), (NEW, "took over")]);
    stations.at(1_000);
    stations.tell(NEW, Presence::Moved);
    stations.tell(THIRD, Presence::Present);
    stations.deliver(THIRD, |to, _| to == NEW);
    stations.deliver(NEW, |_, _| false);
    assert_eq!(stations.actions(), [(NEW, "handed on")]);
    // The old station is asked again and again, the other two never get through.
    for second in 2..300 {
        stations.at(1_000 * second);
        (0..3).for_each(|station| drop(stations.control(station)));
        if second % 100 == 50 {
            stations.tell(OLD, Presence::Moved);
            stations.tell(OLD, Presence::Present);
            stations.deliver(OLD, |_, _| false);
        }
    }
    stations.tell(OLD, Presence::Moved);
    (0..3).for_each(|station| drop(stations.made(station)));
    stations.tell(OLD, Presence::Present);
    stations.talk();
    for (packet, reset) in [(numbers.ack(1_072), "to phone RST"), (numbers.data(1_172, 536), "to fixed RST")] {
        let made = stations.pass(OLD, packet);
        assert_eq!(numbers.shown(&made), [reset]);
    }
    assert_eq!(stations.actions(), [(OLD, "refused"), (OLD, "refused")]);
    assert!(stations.chains.iter().all(|chain| chain.stored().bytes == 0));
}

/// A request that comes late, after the phone has returned, is refused, and the node that made it owns nothing: it passes no packet.
#[test]
fn a_late_request_takes_nothing_and_gives_no_leave() {
    let (mut stations, numbers) = Stations::sending();
    stations.tell(OLD, Presence::Moved);
    stations.tell(NEW, Presence::Present);
    let late = stations.control(NEW);
    stations.at(100);
    stations.tell(NEW, Presence::Moved);
    stations.tell(OLD, Presence::Present);
    // The new station hears nothing of that.
    stations.deliver(OLD, |to, _| to == THIRD);
    let answers = stations.control(THIRD);
    for message in answers {
        stations.chains[OLD]
            .handle_control(stations.now, &ControlMessage { peer: address(THIRD), payload: message.payload });
    }
    for message in late {
        let to = (0..3).find(|station| address(*station) == message.peer).expect("a station");
        stations.chains[to]
            .handle_control(stations.now, &ControlMessage { peer: address(NEW), payload: message.payload });
    }
    stations.talk();
    assert_eq!(stations.actions(), []);
    let mut made = stations.pass(OLD, numbers.ack(1_072));
    made.extend(stations.pass(OLD, numbers.data(1_172, 536)));
    assert_eq!(numbers.shown(&made), ["to fixed ack 1708", "to phone 1072:1608"]);
    assert!(
        stations.pass(NEW, numbers.data(1_708, 536)).is_empty() && stations.pass(NEW, numbers.ack(1_072)).is_empty()
    );
}

/// The record arrives at the third station while the second one has not answered, and the first one forgets it. A report at the third station
/// makes it ask again: it still has the record.
#[test]
fn a_record_whose_arrival_was_confirmed_outlives_the_request() {
    for is_reported in [false, true] {
        let (mut stations, numbers) = Stations::sending();
        stations.move_without_an_answer();
        stations.at(100);
        stations.tell(NEW, Presence::Moved);
        stations.tell(THIRD, Presence::Present);
        for _ in 0..4 {
            stations.deliver(THIRD, |to, _| to == OLD);
            stations.deliver(OLD, |to, _| to == THIRD);
        }
        assert_eq!(stations.chains[OLD].stored().bytes, 0, "all is confirmed");
        if is_reported {
            stations.tell(THIRD, Presence::Moved);
            stations.tell(THIRD, Presence::Present);
        } else {
            // The request is given up, and the station asks again.
            for second in 1..30 {
                stations.at(1_000 * second);
                stations.control(THIRD);
            }
            assert!(stations.pass(THIRD, numbers.ack(0)).is_empty());
            stations.talk_for(29_000, 1_100);
        }
        stations.talk();
        assert_eq!(stations.actions(), [(OLD, "handed on"), (THIRD, "took over")]);
        assert_eq!(numbers.shown(&stations.made(THIRD))[..2], ["to phone 0:536", "to phone 536:1072"]);
    }
}

// Claim: If no control message passes for 30 s after a handoff of I-TCP, and both ends of the connection are silent, the new base station asks
// again by itself, and continues the connection.
#[test]
fn a_station_asks_again_while_the_host_is_there() {
    let (mut stations, numbers) = Stations::sending();
    stations.tell(OLD, Presence::Moved);
    stations.tell(NEW, Presence::Present);
    for millis in (0..30_000).step_by(100) {
        stations.at(millis);
        (0..3).for_each(|from| drop(stations.control(from)));
    }
    assert_eq!(stations.actions(), []);
    stations.talk_for(30_000, 31_000);
    assert_eq!(stations.actions(), [(OLD, "handed on"), (NEW, "took over")]);
    assert_eq!(numbers.shown(&stations.made(NEW))[..2], ["to phone 0:536", "to phone 536:1072"]);
}

/// No message passes for a while. The old station was never told that the phone has left it again: what it repeats does not count more than
/// the report at the third station.
#[test]
fn a_repeated_request_does_not_outbid_a_later_report() {
    let (mut stations, _) = Stations::sending();
    stations.tell(OLD, Presence::Moved);
    stations.tell(NEW, Presence::Present);
    stations.talk();
    for millis in (2_000..29_000).step_by(100) {
        stations.at(millis);
        match millis {
            2_000 => stations.tell(OLD, Presence::Present),
            20_000 => stations.tell(THIRD, Presence::Present),
            _ => {}
        }
        (0..3).for_each(|from| drop(stations.control(from)));
    }
    stations.talk_for(29_000, 60_000);
    assert_eq!(stations.chains.iter().map(|chain| chain.stored().connections).collect::<Vec<_>>(), [0, 0, 1]);
}

/// The phone has returned, and the station to which it has returned never knew that it was away: the request of the other one comes late, and
/// is repaired.
#[test]
fn a_request_from_before_the_last_report_is_reversed() {
    let (mut stations, _) = Stations::sending();
    stations.at(1_000);
    stations.tell(NEW, Presence::Present);
    stations.control(NEW);
    stations.at(1_100);
    stations.tell(OLD, Presence::Present);
    stations.talk_for(1_200, 10_000);
    assert_eq!(stations.actions(), [(OLD, "handed on"), (NEW, "handed on"), (OLD, "took over"), (NEW, "took over")]);
    assert_eq!(stations.chains.iter().map(|chain| chain.stored().connections).collect::<Vec<_>>(), [1, 0, 0]);
}

/// The fixed host's packets still come to the old station, for as long as routes may need. It does not ask for the connection.
#[test]
fn packets_that_follow_a_handoff_do_not_reverse_it() {
    for is_told in [true, false] {
        let (mut stations, numbers) = Stations::sending();
        if is_told {
            stations.tell(OLD, Presence::Moved);
            stations.tell(NEW, Presence::Present);
        } else {
            assert!(stations.pass(NEW, numbers.ack(0)).is_empty());
        }
        stations.talk();
        for second in [1, 2, 5, 9] {
            stations.at(1_000 * second);
            assert!(stations.pass(OLD, numbers.data(1_172, 536)).is_empty());
            assert_eq!(stations.control(OLD), [], "{second} s");
        }
        stations.at(60_000);
        assert!(stations.pass(OLD, numbers.data(1_172, 536)).is_empty());
        assert_eq!(stations.control(OLD).is_empty(), is_told, "a report counts more");
    }
}

/// The first packet of the phone at the new station begins another connection. The old station hears of it, and passes none of that
/// connection's packets.
#[test]
fn a_syn_at_a_new_station_is_a_sign_of_the_host() {
    let (mut stations, _) = Stations::sending();
    let [syn, _] = opening(5_000);
    let syn = change(syn, |syn| syn.src_port += 1);
    assert!(stations.pass(NEW, syn.clone()).is_empty(), "it waits");
    stations.talk();
    assert_eq!(stations.actions(), [(OLD, "handed on"), (NEW, "took over")]);
    let made = stations.made(NEW);
    let opened = made.iter().filter(|packet| packet.tcp().is_some_and(|segment| segment.flags == Flags::SYN)).count();
    assert_eq!(opened, 1, "{made:?}");
    stations.at(20_000);
    stations.made(OLD);
    let stray = change(data(5_001, 50), |segment| segment.dst_port += 1);
    assert!(stations.pass(OLD, stray).is_empty());
}

/// The first record is lost on its way, and the peer for which it was answers that it has none: the next station continues from it.
#[test]
fn a_record_that_no_other_peer_has_is_used() {
    let (mut stations, numbers) = Stations::sending();
    stations.move_without_an_answer();
    stations.at(100);
    stations.tell(NEW, Presence::Moved);
    stations.tell(THIRD, Presence::Present);
    stations.talk();
    assert_eq!(stations.actions(), [(OLD, "handed on"), (THIRD, "took over")]);
    assert_eq!(numbers.shown(&stations.made(THIRD)), ["to phone 0:536", "to phone 536:1072"]);
}

/// The phone returns to the station that has sent the record, which was lost: it continues from its own copy.
// Claim: If a record of I-TCP is lost on its way and the mobile host returns, its base station continues the connection.
#[test]
fn a_host_that_returns_finds_its_connection() {
    let (mut stations, numbers) = Stations::sending();
    stations.move_without_an_answer();
    stations.at(100);
    stations.tell(NEW, Presence::Moved);
    stations.tell(OLD, Presence::Present);
    stations.talk();
    stations.at(300);
    stations.talk();
    assert_eq!(stations.actions(), [(OLD, "handed on"), (OLD, "took over")]);
    assert_eq!(numbers.shown(&stations.made(OLD)), ["to phone 0:536", "to phone 536:1072"]);
}

/// A connection that no station has was never split. One that was split here and is nowhere is reset.
// Claim: An established connection without a record of I-TCP passes if no peer has one and it was never split here.
#[test]
fn a_connection_unknown_to_all_peers_passes() {
    let mut stations = Stations::new();
    assert!(stations.pass(NEW, data(100, 50)).is_empty());
    assert!(stations.pass(NEW, data(150, 50)).is_empty());
    stations.talk();
    let passed: Vec<u32> = stations.made(NEW).iter().map(|packet| packet.tcp().expect("TCP").seq.value()).collect();
    assert_eq!(passed, [100, 150]);
    assert_eq!(stations.pass(NEW, data(200, 50)).len(), 1);
}

/// Neither half is handed on in its handshake: the ends are reset, and the SYN opens the connection at the next station.
#[test]
fn a_connection_in_its_handshake_begins_again() {
    let mut stations = Stations::new();
    let [syn, _] = opening(100);
    assert!(stations.pass(OLD, syn.clone()).is_empty(), "it waits until the peers have answered");
    stations.talk();
    assert_eq!(stations.made(OLD).len(), 1, "a SYN to the fixed host");
    stations.tell(NEW, Presence::Present);
    stations.talk();
    assert_eq!(stations.actions(), []);
    assert_eq!(stations.chains[OLD].stored().connections, 0);
    let made = stations.pass(NEW, syn);
    assert!(matches!(&made[..], [made] if made.dst == FIXED), "{made:?}");
}

/// Messages with invalid pieces change nothing.
#[test]
fn unreadable_pieces_change_nothing() {
    let (mut stations, _) = Stations::sending();
    stations.tell(NEW, Presence::Present);
    let question = stations.sent(NEW).remove(0);
    let give = |index, record: Vec<u8>| Body::Give { index, count: 4, record: record.into() };
    let piece = |offset, total| {
        let bytes = vec![0; 100].into();
        Piece { is_doubtful: false, number: 0, total, offset, bytes }.emit().to_vec()
    };
    for (index, record) in [Vec::new(), vec![1; 200], piece(0, 200), piece(0, 300)].into_iter().enumerate() {
        stations.answer(NEW, &question, give(index as u16, record));
    }
    assert_eq!(stations.actions(), []);
    assert_eq!(stations.chains[NEW].stored().connections, 0);
}

fn run(setup: Setup, limit_ms: u64) -> Outcome {
    Roaming::new(setup).run(at_ms(limit_ms))
}

/// Without losses and with link events.
// Claim: A connection of I-TCP moves between base stations: over three handoffs with four profiles in both directions, with IPv4 and IPv6,
// all bytes arrive unchanged.
#[test]
fn a_transfer_continues_at_the_next_base_station() {
    let to = |to: usize, at_ms: u64| Move { at_ms, gap_ms: 50, to, route_lag_ms: 0 };
    for profile in PROFILES {
        for is_upload in [false, true] {
            for is_ipv6 in [false, true] {
                let moves = vec![to(1, 400), to(2, 1_500), to(0, 2_600)];
                let station = Station::ITcp;
                let setup = Setup { station, is_upload, is_ipv6, bytes: 3_000_000, ..Setup::quiet(profile, moves) };
                let outcome = run(setup, 120_000);
                let what = format!("{profile}, upload {is_upload}, IPv6 {is_ipv6}");
                assert!(outcome.received == outcome.sent && !outcome.failed, "{what}: {:?}", outcome.actions);
                assert_eq!((outcome.count("handed on"), outcome.count("took over")), (3, 3), "{what}");
                assert_eq!(outcome.count("refused"), 0, "{what}");
                assert!(outcome.longest_control <= 1_472, "{what}: with its headers it fits a packet of 1500 bytes");
                for arrival in [450, 1_550, 2_650] {
                    let idle = outcome.idle_after(at_ms(arrival)).expect("the transfer continues");
                    assert!(idle < ms(2_500), "{what}: {idle} after {arrival} ms");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// With any losses, duplicates and delays, and any moves of the mobile host: all bytes arrive unchanged. In a download only a report
    /// shows where the mobile host is, once the fixed host has no more to send.
    // Claim: Over random moves between three base stations of I-TCP, reported or not (in downloads reported), with losses and duplicated and late packets and
    // control messages: all bytes arrive, none is invented, and no connection is reset.
    #[test]
    fn no_handoff_loses_or_makes_up_a_byte(setup in rough(Just(Station::ITcp), 0.1)) {
        let last = setup.moves.last().map_or(0, |last| last.at_ms + last.gap_ms);
        let is_told = setup.is_told || !setup.is_upload;
        let outcome = run(Setup { is_told, ..setup }, last + 900_000);
        prop_assert!(!outcome.failed, "{:?}", outcome.actions);
        prop_assert!(outcome.received == outcome.sent, "{} of {} bytes", outcome.received.len(), outcome.sent.len());
        let ended_at = outcome.ended_at.expect("it is over");
        prop_assert!(!outcome.actions.iter().any(|action| action.2 == "refused" && action.0 < ended_at), "{:?}", outcome.actions);
    }
}
