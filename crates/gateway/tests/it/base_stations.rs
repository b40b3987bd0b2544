//! State and copies of BUFFER-FREEZE that move between base stations.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::BTreeMap;

use holdover_base::{Duration, Instant, Rng};
use holdover_filter::{Chain, ControlMessage, Direction, Presence, Verdict};
use holdover_gateway::Mechanisms;
use holdover_gateway::buffer_freeze::BufferFreezeConfig;
use holdover_gateway::handoff::{Body, HandoffConfig, Message, UnsplitRecord};
use holdover_wire::Packet;
use proptest::prelude::*;

use crate::received::received;
use crate::roaming::{Move, Outcome, PROFILES, Roaming, Setup, Station, rough};
use crate::script::{PHONE, ack, data, print};
use crate::support::{at_ms, ms};

const OLD: usize = 0;
const NEW: usize = 1;
const THIRD: usize = 2;
const NOTHING: [&str; 0] = [];

/// Base stations that are peers of each other. The test plays the hosts and the network between the stations.
struct Stations {
    chains: Vec<Chain>,
    now: Instant,
}

fn address(station: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 1, station as u8).into()
}

fn default() -> BufferFreezeConfig {
    BufferFreezeConfig::default()
}

impl Stations {
    fn new(count: usize, config: &BufferFreezeConfig) -> Self {
        let chains = (0..count).map(|own| {
            let peers = (0..count).filter(|other| *other != own).map(address).collect();
            let config = BufferFreezeConfig { handoff: Some(HandoffConfig::among(peers)), ..config.clone() };
            let mechanisms = Mechanisms { buffer_freeze: Some(config), ..Mechanisms::default() };
            mechanisms.check().expect("a mechanism that can be");
            mechanisms.chain([own as u8 + 1; 16])
        });
        Self { chains: chains.collect(), now: Instant::ZERO }
    }

    /// Two stations, at the old one as in the scripts of one station: two segments were forwarded, and the ACK of the first is withheld.
    fn withheld(config: &BufferFreezeConfig) -> Self {
        Self::withheld_among(2, config)
    }

    fn withheld_among(count: usize, config: &BufferFreezeConfig) -> Self {
        let mut stations = Self::new(count, config);
        stations.is(OLD, Presence::Present);
        stations.talk(OLD);
        stations.pass(OLD, ack(100, 500));
        assert_eq!(stations.pass(OLD, data(100, 100)), ["to phone 100:200"]);
        assert_eq!(stations.pass(OLD, data(200, 100)), ["to phone 200:300"]);
        stations.at(10);
        let passed = stations.pass(OLD, ack(200, 400));
        assert_eq!(passed.is_empty(), config.freezes, "{passed:?}");
        stations
    }

    /// The phone moves while copies of 100, 1,400 and 1,400 bytes are at the old station. Returns the pieces of their record, which have not
    /// arrived.
    fn move_with_long_copies(&mut self) -> Vec<ControlMessage> {
        for seq in [300, 1_700] {
            self.pass(OLD, data(seq, 1_400));
        }
        self.moves(OLD, NEW);
        let request = self.messages(NEW).remove(0);
        assert_eq!(body(&request), Body::Ask);
        assert_eq!(self.deliver(NEW, &request), NOTHING);
        let pieces = self.messages(OLD);
        assert_eq!(pieces.len(), 3);
        pieces
    }

    /// The same, with a frozen sender.
    fn frozen(config: &BufferFreezeConfig) -> Self {
        let mut stations = Self::withheld(config);
        assert_eq!(stations.at(260), ["to fixed ack 200 win 0"]);
        stations
    }

    /// Advances to `millis`; returns the packets that all stations send at deadlines until then.
    fn at(&mut self, millis: u64) -> Vec<String> {
        let to = at_ms(millis);
        let mut out = Vec::new();
        while let Some(due) = self.chains.iter().filter_map(Chain::poll_timeout).min().filter(|&due| due <= to) {
            self.now = self.now.max(due);
            for station in 0..self.chains.len() {
                self.chains[station].handle_timeout(self.now);
                out.extend(self.made(station));
            }
        }
        self.now = to;
        out
    }

    fn pass(&mut self, station: usize, mut packet: Packet) -> Vec<String> {
        let direction = if packet.dst == PHONE { Direction::Outgoing } else { Direction::Incoming };
        let verdict = self.chains[station].handle_packet(self.now, direction, &mut packet);
        let passed = (verdict == Verdict::Pass).then(|| print(&packet));
        passed.into_iter().chain(self.made(station)).collect()
    }

    fn is(&mut self, station: usize, presence: Presence) -> Vec<String> {
        self.chains[station].handle_mobile(self.now, PHONE, presence);
        self.made(station)
    }

    fn made(&mut self, station: usize) -> Vec<String> {
        core::iter::from_fn(|| self.chains[station].poll_transmit()).map(|made| print(&made.packet)).collect()
    }

    /// The phone moves from one station to another. Neither station sends a packet before they exchange messages.
    fn moves(&mut self, from: usize, to: usize) {
        assert_eq!(self.is(from, Presence::Moved), NOTHING);
        assert_eq!(self.is(to, Presence::Present), NOTHING);
    }

    fn messages(&mut self, station: usize) -> Vec<ControlMessage> {
        core::iter::from_fn(|| self.chains[station].poll_control()).collect()
    }

    /// Delivers a message of `from`; returns the packets that its receiver sends.
    fn deliver(&mut self, from: usize, message: &ControlMessage) -> Vec<String> {
        let to = (0..self.chains.len()).find(|&to| address(to) == message.peer).expect("a station");
        let payload = message.payload.clone();
        assert!(self.chains[to].handle_control(self.now, &ControlMessage { peer: address(from), payload }));
        self.made(to)
    }

    /// Delivers all messages, until there are none; returns the packets that `station` sends, when no other sends any.
    fn talk(&mut self, station: usize) -> Vec<String> {
        let mut out = Vec::new();
        loop {
            let sent: Vec<(usize, ControlMessage)> = (0..self.chains.len())
                .flat_map(|from| {
                    self.messages(from).into_iter().map(move |message| (from, message)).collect::<Vec<_>>()
                })
                .collect();
            if sent.is_empty() {
                return out;
            }
            for (from, message) in sent {
                let is_for_it = message.peer == address(station);
                let made = self.deliver(from, &message);
                assert!(is_for_it || made.is_empty(), "{made:?}");
                out.extend(made);
            }
        }
    }

    fn actions(&mut self, station: usize) -> Vec<&'static str> {
        core::iter::from_fn(|| self.chains[station].poll_action()).map(|action| action.what).collect()
    }
}

fn body(message: &ControlMessage) -> Body {
    Message::parse(&message.payload).expect("a message").body
}

// Claim: When a mobile host moves, its new base station sends the copies of the old one, answers the probes of a frozen sender until
// the mobile host's first ACK, and the old one does neither any more.
#[test]
fn a_frozen_sender_is_looked_after_by_the_new_base_station() {
    let mut stations = Stations::frozen(&default());
    stations.moves(OLD, NEW);
    assert_eq!(stations.talk(NEW), ["to phone 200:300"]);
    assert_eq!(stations.actions(OLD), ["froze", "handed on"]);
    assert_eq!(stations.actions(NEW), ["took over", "released"]);
    assert_eq!(stations.pass(NEW, data(199, 0)), ["to phone ack 1 win 500", "to fixed ack 200 win 0"]);
    assert_eq!(stations.pass(OLD, data(199, 0)), ["to phone ack 1 win 500"]);
    assert_eq!(stations.pass(NEW, ack(300, 450)), ["to fixed ack 300 win 450"], "it opens the window");
    assert_eq!(stations.actions(NEW), ["answered a probe", "thawed"]);
    assert_eq!(stations.at(20_000), NOTHING);
    let stored = stations.chains.iter().map(|chain| chain.stored().bytes);
    assert_eq!(stored.sum::<u64>(), 0);
}

// Claim: Without copies (FREEZE) the new base station gives the frozen sender its window back.
#[test]
fn the_new_base_station_reopens_the_window_if_there_are_no_copies() {
    let mut stations = Stations::frozen(&BufferFreezeConfig { buffers: false, ..default() });
    stations.moves(OLD, NEW);
    assert_eq!(stations.talk(NEW), ["to fixed ack 200 win 400"]);
    assert_eq!(stations.actions(NEW), ["took over", "reopened the window"]);
    assert_eq!(stations.pass(NEW, data(199, 0)), ["to phone ack 1 win 500"], "the probe is the phone's to answer");
    assert_eq!(stations.at(20_000), NOTHING);
}

#[test]
fn copies_without_a_freeze_move_too() {
    let mut stations = Stations::withheld(&BufferFreezeConfig { freezes: false, ..default() });
    stations.moves(OLD, NEW);
    assert_eq!(stations.talk(NEW), ["to phone 200:300"]);
    assert_eq!(stations.pass(NEW, ack(300, 450)), ["to fixed ack 300 win 450"]);
    assert_eq!(stations.at(20_000), NOTHING);
}

// Claim: Copies that move between base stations leave with the bytes that they came with.
#[test]
fn copies_move_as_they_came() {
    let mut stations = Stations::withheld(&BufferFreezeConfig { freezes: false, ..default() });
    let packet = received(&data(300, 100), 7);
    assert_eq!(stations.pass(OLD, packet.clone()), ["to phone 300:400"]);
    stations.moves(OLD, NEW);
    let request = stations.messages(NEW).remove(0);
    stations.deliver(NEW, &request);
    for record in stations.messages(OLD) {
        let payload = record.payload.clone();
        assert!(stations.chains[NEW].handle_control(stations.now, &ControlMessage { peer: address(OLD), payload }));
    }
    let sent = core::iter::from_fn(|| stations.chains[NEW].poll_transmit()).map(|made| made.packet.emit().unwrap());
    assert_eq!(sent.last(), Some(packet.emit().unwrap()));
}

/// The sender is not frozen yet: the new base station can still freeze it, with the same ACK.
// Claim: The withheld ACK moves with the connection: the new base station releases it with the next ACK, or freezes the sender with it.
#[test]
fn the_withheld_ack_moves() {
    let mut stations = Stations::withheld(&default());
    stations.moves(OLD, NEW);
    assert_eq!(stations.talk(NEW), ["to phone 200:300"]);
    assert_eq!(stations.pass(NEW, ack(300, 450)), ["to fixed ack 200 win 400", "to fixed ack 300 win 450"]);
    let mut stations = Stations::withheld(&default());
    stations.moves(OLD, NEW);
    stations.talk(NEW);
    assert_eq!(stations.at(259), NOTHING);
    // The timer takes 250 ms, the least, as the old station has measured a round trip of 10 ms.
    assert_eq!(stations.at(260), ["to fixed ack 200 win 0"]);
    let mut stations = Stations::withheld(&BufferFreezeConfig { buffers: false, ..default() });
    stations.moves(OLD, NEW);
    assert_eq!(
        stations.talk(NEW),
        ["to fixed ack 200 win 400"],
        "nothing is outstanding: no later ACK would release it"
    );
}

// Claim: Records of base stations whose pieces arrive out of order, twice, or after a loss, release each copy once and in order.
// Tests: `base_stations::each_copy_is_released_once_and_in_order`
#[test]
fn copies_that_come_out_of_order_leave_in_order_and_once() {
    let mut stations = Stations::withheld(&default());
    let pieces = stations.move_with_long_copies();
    // The last one first; the middle one is lost.
    for piece in [&pieces[2], &pieces[0], &pieces[2]] {
        assert_eq!(stations.deliver(OLD, piece), NOTHING);
    }
    for confirmation in stations.messages(NEW) {
        stations.deliver(NEW, &confirmation);
    }
    assert_eq!(stations.at(209), NOTHING);
    assert_eq!(stations.messages(OLD), [] as [ControlMessage; 0]);
    stations.at(210);
    let again = stations.messages(OLD);
    assert_eq!(again, [pieces[1].clone()], "its confirmation has not arrived");
    assert_eq!(stations.deliver(OLD, &again[0]), ["to phone 200:300", "to phone 300:1700", "to phone 1700:3100"]);
    for piece in &pieces {
        assert_eq!(stations.deliver(OLD, piece), NOTHING);
    }
}

/// Data of the fixed host waits for a second after the last piece. The record is used whenever it comes.
#[test]
fn a_missing_record_is_not_waited_for_longer_than_a_second() {
    let mut stations = Stations::withheld(&BufferFreezeConfig { freezes: false, ..default() });
    let pieces = stations.move_with_long_copies();
    assert_eq!(stations.pass(NEW, data(3_100, 100)), NOTHING);
    assert_eq!(stations.deliver(OLD, &pieces[0]), NOTHING);
    assert_eq!(stations.at(600), NOTHING);
    assert_eq!(stations.deliver(OLD, &pieces[2]), NOTHING);
    assert_eq!(stations.at(1_599), NOTHING);
    assert_eq!(stations.at(1_600), ["to phone 3100:3200"]);
    assert_eq!(stations.pass(NEW, data(3_200, 100)), ["to phone 3200:3300"]);
    let late = ["to phone 200:300", "to phone 300:1700", "to phone 1700:3100"];
    assert_eq!(stations.deliver(OLD, &pieces[1]), late, "better than never");
    assert_eq!(stations.pass(NEW, ack(3_300, 450)), ["to fixed ack 3300 win 450"]);
    stations.talk(NEW);
    assert_eq!(stations.chains.iter().map(|chain| chain.stored().bytes).sum::<u64>(), 0);
}

/// The old station does not hear that the new one has its record, and sends it to the third one too.
// Claim: Of several records of a connection at base stations the newest counts, also if an older one is not known to have arrived.
#[test]
fn of_two_records_the_newer_one_counts() {
    let mut stations = Stations::withheld_among(3, &default());
    stations.moves(OLD, NEW);
    for request in stations.messages(NEW) {
        stations.deliver(NEW, &request);
    }
    for from in [OLD, THIRD] {
        for answer in stations.messages(from) {
            stations.deliver(from, &answer);
        }
    }
    assert_eq!(stations.messages(NEW).iter().map(body).collect::<Vec<_>>(), [Body::Taken { index: 0 }], "lost");
    stations.pass(NEW, ack(300, 450));
    assert_eq!(stations.pass(NEW, data(300, 100)), ["to phone 300:400"]);
    stations.moves(NEW, THIRD);
    assert_eq!(stations.talk(THIRD), ["to phone 300:400"], "the phone has acknowledged the older copy");
    assert_eq!(stations.actions(THIRD), ["took over", "released"]);
    assert_eq!(stations.pass(THIRD, ack(400, 450)), ["to fixed ack 400 win 450"]);
    assert_eq!(stations.at(30_000), NOTHING);
    assert_eq!(stations.chains.iter().map(|chain| chain.stored().bytes).sum::<u64>(), 0);
}

/// No message gets through for 26 s. Then the new station asks again by itself.
// Claim: A base station to which a mobile host is reported asks again for its connections until all peers have answered.
#[test]
fn a_request_that_failed_is_repeated() {
    let mut stations = Stations::withheld(&default());
    stations.moves(OLD, NEW);
    stations.at(26_000);
    stations.messages(OLD);
    assert_eq!(stations.messages(NEW).len(), 7);
    assert_eq!(stations.pass(NEW, data(300, 100)), ["to phone 300:400"], "packets pass meanwhile");
    stations.at(26_410);
    stations.talk(NEW);
    assert_eq!(stations.pass(OLD, data(400, 100)), ["to phone 400:500"]);
    assert_eq!(stations.chains[OLD].stored().bytes, 0, "it serves the host no longer");
    assert_eq!(stations.pass(NEW, data(400, 100)), ["to phone 400:500"]);
    assert!(stations.chains[NEW].stored().bytes > 0);
}

/// The same without reports: a packet of the phone makes the new station ask again.
// Claim: Without reports, a packet of the mobile host makes a base station ask again after a request that failed.
#[test]
fn without_reports_a_packet_repeats_a_request_that_failed() {
    let mut stations = Stations::new(2, &default());
    stations.pass(OLD, ack(100, 500));
    stations.talk(OLD);
    stations.pass(OLD, data(100, 100));
    stations.pass(OLD, data(200, 100));
    stations.at(200);
    stations.pass(OLD, ack(200, 500));
    stations.pass(NEW, ack(200, 500));
    assert_eq!(stations.messages(NEW).len(), 1);
    stations.at(40_000);
    assert_eq!(stations.messages(NEW).len(), 6);
    assert_eq!(
        stations.pass(NEW, data(300, 100)),
        ["to phone 300:400"],
        "that of the fixed host may be on an old path"
    );
    assert_eq!(stations.messages(NEW).len(), 0);
    stations.pass(NEW, ack(200, 500));
    assert_eq!(stations.talk(NEW), ["to phone 200:300"]);
    assert_eq!(stations.pass(OLD, data(400, 100)), ["to phone 400:500"]);
    assert_eq!(stations.chains[OLD].stored().bytes, 0, "it serves the host no longer");
}

// Claim: Data that reaches the new base station before the old one's copies follows them; it waits for a second at most.
// Tests: `base_stations::data_does_not_wait_for_long_for_a_station_that_does_not_answer`
#[test]
fn new_data_waits_for_the_copies() {
    let mut stations = Stations::withheld(&BufferFreezeConfig { freezes: false, ..default() });
    stations.moves(OLD, NEW);
    assert_eq!(stations.pass(NEW, data(300, 100)), NOTHING);
    // The fixed host's own retransmission of a copy.
    assert_eq!(stations.pass(NEW, data(200, 100)), NOTHING);
    assert_eq!(stations.talk(NEW), ["to phone 200:300", "to phone 300:400"]);
    assert_eq!(stations.pass(NEW, data(400, 100)), ["to phone 400:500"]);
}

#[test]
fn data_does_not_wait_for_long_for_a_station_that_does_not_answer() {
    let mut stations = Stations::new(2, &default());
    stations.is(NEW, Presence::Present);
    assert_eq!(stations.pass(NEW, data(300, 100)), NOTHING);
    assert_eq!(stations.at(999), NOTHING);
    assert_eq!(stations.at(1_000), ["to phone 300:400"]);
    assert_eq!(stations.pass(NEW, data(400, 100)), ["to phone 400:500"]);
    let requests = stations.messages(NEW).len();
    assert_eq!(requests, 3, "after 200 and 600 ms again");
    assert_eq!(stations.at(26_000), NOTHING);
    assert_eq!(stations.messages(NEW).len(), 4, "seven in all");
}

// Claim: A base station from which a mobile host has moved, and that no peer asks, sends its copies after the host.
#[test]
fn copies_follow_the_host_if_no_peer_asks() {
    let mut stations = Stations::withheld(&default());
    assert_eq!(stations.is(OLD, Presence::Moved), NOTHING);
    assert_eq!(stations.at(260), ["to fixed ack 200 win 0"]);
    assert_eq!(stations.at(2_009), NOTHING);
    assert_eq!(stations.at(2_010), ["to phone 200:300"]);
    assert_eq!(stations.at(20_000), NOTHING);
}

/// The phone has sent an ACK from the new cell before the record arrives: it has opened the window.
#[test]
fn what_the_phone_says_is_newer_than_a_record() {
    let mut stations = Stations::frozen(&default());
    stations.moves(OLD, NEW);
    assert_eq!(stations.pass(NEW, ack(300, 450)), ["to fixed ack 300 win 450"]);
    assert_eq!(stations.talk(NEW), NOTHING, "it has the copy");
    assert_eq!(stations.pass(NEW, data(299, 0)), ["to phone ack 1 win 500"], "and answers itself");
}

/// There and back, twice: each time the other station has the newer state.
// Claim: A connection moves back and forth between base stations; the records of earlier moves change nothing.
#[test]
fn a_connection_comes_back() {
    let mut stations = Stations::frozen(&default());
    let mut old_records = Vec::new();
    for (from, to) in [(OLD, NEW), (NEW, OLD), (OLD, NEW), (NEW, OLD)] {
        stations.moves(from, to);
        let request = stations.messages(to).remove(0);
        stations.deliver(to, &request);
        let records = stations.messages(from);
        let made: Vec<String> = records.iter().flat_map(|record| stations.deliver(from, record)).collect();
        assert_eq!(made, ["to phone 200:300"]);
        for (sender, record) in &old_records {
            if *sender == from {
                assert_eq!(stations.deliver(from, record), NOTHING);
            }
        }
        stations.talk(to);
        old_records.extend(records.into_iter().map(|record| (from, record)));
        assert_eq!(stations.pass(to, data(199, 0)), ["to phone ack 1 win 500", "to fixed ack 200 win 0"]);
    }
}

/// Without reports, a packet of the phone shows where it is, and packets of the fixed host only pass at the old station.
// Claim: Base stations without reports of presence hand on a connection when a packet of the mobile host arrives at the new one.
#[test]
fn a_packet_of_the_phone_shows_where_it_is() {
    let mut stations = Stations::new(2, &default());
    stations.pass(OLD, ack(100, 500));
    stations.talk(OLD);
    stations.pass(OLD, data(100, 100));
    stations.pass(OLD, data(200, 100));
    stations.at(200);
    stations.pass(OLD, ack(200, 400));
    // A probe, or any other packet of the fixed host, passes at a station from which the phone's connections were requested before.
    assert_eq!(stations.pass(NEW, data(199, 0)), ["to phone ack 1 win 500"]);
    assert_eq!(stations.messages(NEW), [] as [ControlMessage; 0]);
    assert_eq!(stations.pass(NEW, ack(200, 400)), ["to fixed ack 200 win 400"]);
    assert_eq!(stations.talk(NEW), ["to phone 200:300"]);
    assert_eq!(stations.pass(OLD, data(300, 100)), ["to phone 300:400"]);
    assert_eq!(stations.chains[OLD].stored().bytes, 0, "it keeps no copy");
}

/// A new connection between the same ports is not taken for the old one.
#[test]
fn a_connection_that_begins_at_the_new_station_keeps_its_state() {
    let mut stations = Stations::frozen(&default());
    stations.moves(OLD, NEW);
    let syn = crate::script::change(data(5_000, 0), |segment| segment.flags = holdover_wire::Flags::SYN);
    let syn_ack = crate::script::change(ack(5_001, 500), |segment| {
        segment.flags = holdover_wire::Flags::SYN | holdover_wire::Flags::ACK;
    });
    stations.pass(NEW, syn);
    stations.pass(NEW, syn_ack);
    assert_eq!(stations.talk(NEW), NOTHING);
    assert_eq!(stations.actions(NEW), [] as [&str; 0]);
    assert_eq!(stations.pass(NEW, data(5_001, 100)), ["to phone 5001:5101"]);
}

/// Losses, duplicates and delays of messages, and a number of segments.
#[derive(Clone, Debug)]
struct Mishaps {
    seed: u64,
    segments: u32,
    loss: f64,
    duplicate: f64,
    jitter_ms: u64,
    freezes: bool,
    waits_ms: u64,
}

fn mishaps() -> impl Strategy<Value = Mishaps> {
    let loss = prop_oneof![Just(0.0_f64), 0.0..0.25_f64];
    (any::<u64>(), 1_u32..150, loss, 0.0..0.5, 0_u64..300, any::<bool>(), 0_u64..1_000).prop_map(
        |(seed, segments, loss, duplicate, jitter_ms, freezes, waits_ms)| Mishaps {
            seed,
            segments,
            loss,
            duplicate,
            jitter_ms,
            freezes,
            waits_ms,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// A silent phone: whatever happens to the messages, each copy is released once, in order, and no station stores more than its bound.
    #[test]
    fn each_copy_is_released_once_and_in_order(mishaps in mishaps()) {
        let Mishaps { seed, segments, loss, duplicate, jitter_ms, freezes, waits_ms } = mishaps;
        let config = BufferFreezeConfig { freezes, buffer_bytes: 30_000, ..default() };
        let mut stations = Stations::new(2, &config);
        stations.is(OLD, Presence::Present);
        stations.talk(OLD);
        stations.at(1);
        stations.pass(OLD, ack(0, 500));
        for index in 0..segments {
            stations.pass(OLD, data(index * 100, 100));
        }
        stations.at(1 + waits_ms);
        stations.moves(OLD, NEW);
        let mut rng = Rng::new(seed);
        let mut flying: BTreeMap<(Instant, u64), (usize, ControlMessage)> = BTreeMap::new();
        let (mut serial, mut made) = (0_u64, Vec::new());
        let until = stations.now + Duration::from_secs(120);
        loop {
            for from in [OLD, NEW] {
                for message in stations.messages(from) {
                    for _ in 0..1 + usize::from(rng.chance(duplicate)) {
                        let late = ms(if jitter_ms == 0 { 1 } else { 1 + rng.below(jitter_ms) });
                        if !rng.chance(loss) {
                            serial += 1;
                            flying.insert((stations.now + late, serial), (from, message.clone()));
                        }
                    }
                }
            }
            for chain in &stations.chains {
                let most = 30_000 + UnsplitRecord::MAX_STATE_BYTES + UnsplitRecord::COPY_BYTES * segments as usize;
                prop_assert!(chain.stored().bytes <= most as u64, "{:?}", chain.stored());
            }
            let due = stations.chains.iter().filter_map(Chain::poll_timeout).min();
            let next = flying.first_key_value().map(|((at, _), _)| *at);
            let Some(at) = due.into_iter().chain(next).min().filter(|&at| at <= until) else { break };
            stations.now = stations.now.max(at);
            if next.is_some_and(|next| next <= stations.now) {
                let (_, (from, message)) = flying.pop_first().expect("a message");
                made.extend(stations.deliver(from, &message));
            }
            for station in [OLD, NEW] {
                stations.chains[station].handle_timeout(stations.now);
                made.extend(stations.made(station));
            }
        }
        let released: Vec<&String> = made.iter().filter(|made| made.starts_with("to phone")).collect();
        let copies: Vec<String> = (0..segments).map(|index| format!("to phone {}:{}", index * 100, index * 100 + 100)).collect();
        prop_assert_eq!(&released, &copies.iter().collect::<Vec<_>>());
        prop_assert!(made.iter().filter(|made| made.starts_with("to fixed")).all(|made| made == "to fixed ack 0 win 0"));
    }
}

const VARIANTS: [Station; 3] = [
    Station::BufferFreeze { buffers: true, freezes: true },
    Station::BufferFreeze { buffers: true, freezes: false },
    Station::BufferFreeze { buffers: false, freezes: true },
];

fn run(setup: Setup, limit_ms: u64) -> Outcome {
    Roaming::new(setup).run(at_ms(limit_ms))
}

// Claim: A connection moves between base stations of BUFFER-FREEZE, BUFFER and FREEZE: over three handoffs with four profiles all bytes
// arrive unchanged.
#[test]
fn a_transfer_continues_at_the_next_base_station() {
    let to = |to: usize, at_ms: u64| Move { at_ms, gap_ms: 500, to, route_lag_ms: 0 };
    for station in VARIANTS {
        for profile in PROFILES {
            let moves = vec![to(1, 400), to(2, 1_900), to(0, 3_400)];
            let outcome = run(Setup { station, bytes: 2_500_000, ..Setup::quiet(profile, moves) }, 120_000);
            assert!(outcome.received == outcome.sent && !outcome.failed, "{station:?}, {profile}");
            assert!(outcome.count("handed on") >= 1, "{station:?}, {profile}: {:?}", outcome.actions);
            assert_eq!(outcome.count("handed on"), outcome.count("took over"), "{station:?}, {profile}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    // Claim: Over random moves between three base stations of BUFFER-FREEZE, BUFFER or FREEZE, reported or not, with losses and
    // duplicated and late packets and control messages: no end receives an ACK of data that the other does not have, all bytes arrive,
    // and none is invented.
    #[test]
    fn no_handoff_loses_or_makes_up_a_byte(setup in rough(prop::sample::select(VARIANTS.to_vec()), 0.3)) {
        let last = setup.moves.last().map_or(0, |last| last.at_ms + last.gap_ms);
        let outcome = run(setup, last + 900_000);
        prop_assert!(!outcome.failed, "{:?}", outcome.actions);
        prop_assert!(outcome.received == outcome.sent, "{} of {} bytes", outcome.received.len(), outcome.sent.len());
    }
}
