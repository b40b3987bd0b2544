//! Connections that move between supervisor hosts.

use std::net::IpAddr;

use bytes::Bytes;
use holdover_base::Instant;
use holdover_filter::{Chain, ControlMessage, Direction, Presence, Verdict};
use holdover_gateway::handoff::{Body, ConnectionRecord, Message, Piece};
use holdover_tcp::Profile;
use holdover_wire::Flags;
use proptest::prelude::*;

use crate::roaming::{Move, Outcome, PROFILES, Roaming, Setup, Station, mechanisms, rough};
use crate::script::{FIXED, PHONE, ack, data, opening};
use crate::support::{at_ms, ms};

fn run(setup: Setup, limit_ms: u64) -> Outcome {
    Roaming::new(setup).run(at_ms(limit_ms))
}

fn to(to: usize, at_ms: u64) -> Move {
    Move { at_ms, gap_ms: 50, to, route_lag_ms: 0 }
}

/// Without losses and with link events: the connection continues at the next supervisor host, and all bytes arrive.
// Claim: A connection moves between supervisor hosts: over three handoffs with four profiles in both directions all bytes arrive
// unchanged.
#[test]
fn a_transfer_continues_at_the_next_supervisor_host() {
    for profile in PROFILES {
        for is_upload in [false, true] {
            for is_ipv6 in [false, true] {
                let moves = vec![to(1, 400), to(2, 1_500), to(0, 2_600)];
                let setup = Setup { is_upload, is_ipv6, bytes: 3_000_000, ..Setup::quiet(profile, moves) };
                let outcome = run(setup, 120_000);
                assert_eq!(outcome.received.len(), outcome.sent.len(), "{profile}, upload {is_upload}");
                assert!(outcome.received == outcome.sent && !outcome.failed);
                assert_eq!((outcome.count("handed on"), outcome.count("took over")), (3, 3), "{profile}");
                assert_eq!(outcome.count("refused"), 0);
                assert!(outcome.longest_control <= ConnectionRecord::MAX_BYTES);
                for arrival in [450, 1_550, 2_650] {
                    let idle = outcome.idle_after(at_ms(arrival)).expect("the transfer continues");
                    assert!(idle < ms(2_500), "{profile}, upload {is_upload}: {idle} after {arrival} ms");
                }
            }
        }
    }
}

/// A supervisor host with one peer, between a fixed and a mobile host; the test plays all three.
struct Alone {
    chain: Chain,
    now: Instant,
}

const PEER: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 9));

impl Alone {
    fn new() -> Self {
        Self { chain: mechanisms(&Profile::Linux6Reno.config(), vec![PEER]).chain([7; 16]), now: at_ms(1_000) }
    }

    fn pass(&mut self, mut packet: holdover_wire::Packet) -> Verdict {
        let direction = if packet.dst == PHONE { Direction::Outgoing } else { Direction::Incoming };
        self.chain.handle_packet(self.now, direction, &mut packet)
    }

    fn asked(&mut self) -> Vec<Message> {
        let messages = core::iter::from_fn(|| self.chain.poll_control());
        messages.map(|message| Message::parse(&message.payload).expect("a message")).collect()
    }

    fn hears(&mut self, peer: IpAddr, id: u64, body: Body) -> bool {
        let payload = Message { id, mobile: PHONE, body }.emit();
        self.chain.handle_control(self.now, &ControlMessage { peer, payload })
    }

    fn made(&mut self) -> Vec<String> {
        let made = core::iter::from_fn(|| self.chain.poll_transmit());
        made.map(|made| {
            let segment = made.packet.tcp().expect("TCP").clone();
            let to = if made.packet.dst == PHONE { "phone" } else { "fixed" };
            format!("to {to} {} {}", if segment.flags == Flags::RST { "RST" } else { "data" }, segment.seq)
        })
        .collect()
    }

    fn wait(&mut self, millis: u64) {
        let until = self.now + ms(millis);
        while let Some(at) = self.chain.poll_timeout().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.chain.handle_timeout(self.now);
        }
        self.now = until;
    }
}

/// An established but unknown connection waits for repeated requests to the peer. No host has it: it was never split,
/// and passes.
// Claim: An established connection without a record waits for the answers of the peers: it passes if none has it, and while one does not
// answer, nothing passes and the supervisor host keeps asking.
// Tests: `handoff::while_a_peer_does_not_answer_nothing_passes`
#[test]
fn a_connection_unknown_to_all_peers_passes() {
    let mut alone = Alone::new();
    assert_eq!(alone.pass(data(100, 50)), Verdict::Keep);
    assert_eq!(alone.pass(data(150, 50)), Verdict::Keep);
    let first = alone.asked();
    assert!(matches!(first[..], [Message { body: Body::Ask, mobile: PHONE, .. }]), "asked once: {first:?}");
    alone.wait(700);
    assert_eq!(alone.asked(), [first[0].clone(), first[0].clone()], "after 200 ms and 400 ms more");
    assert_eq!(alone.made(), [] as [&str; 0]);
    assert!(!alone.hears(FIXED, first[0].id, Body::None), "from a host that was not asked");
    assert!(alone.hears(PEER, first[0].id - 1, Body::None), "answer to an older request");
    assert_eq!(alone.made(), [] as [&str; 0]);
    assert!(alone.hears(PEER, first[0].id, Body::None));
    assert_eq!(alone.made(), ["to phone data 100", "to phone data 150"], "in order");
    assert_eq!(alone.pass(data(200, 50)), Verdict::Pass);
    assert_eq!(alone.pass(ack(200, 500)), Verdict::Pass);
    assert_eq!(alone.asked(), []);
}

/// The peer does not answer: the numbers of the halves may differ, so nothing may pass. The next packet makes the supervisor host ask again.
/// It asks by itself while the mobile host is reported there.
#[test]
fn while_a_peer_does_not_answer_nothing_passes() {
    for is_told in [false, true] {
        let mut alone = Alone::new();
        if is_told {
            alone.chain.handle_mobile(alone.now, PHONE, Presence::Present);
        }
        assert_eq!(alone.pass(data(100, 50)), Verdict::Keep);
        assert_eq!(alone.pass(ack(100, 500)), Verdict::Keep);
        alone.wait(25_300);
        assert_eq!(alone.asked().len(), 7);
        alone.wait(20_000);
        let mut asked = alone.asked();
        assert_eq!(asked.is_empty(), !is_told);
        assert_eq!(alone.pass(data(100, 50)), Verdict::Keep);
        asked.extend(alone.asked());
        assert_eq!(alone.made(), [] as [&str; 0]);
        assert_eq!(alone.chain.poll_action().map(|action| action.what), None);
        let last = asked.last().expect("it has asked again");
        assert!(alone.hears(PEER, last.id, Body::None));
        assert_eq!(alone.made(), ["to phone data 100"]);
    }
}

/// The first packet of the mobile host is a SYN: the peers are asked before it opens a connection.
// Claim: A SYN at a new supervisor host makes it ask its peers, and waits for their answers.
#[test]
fn a_syn_makes_a_supervisor_host_ask() {
    let mut alone = Alone::new();
    let [syn, _] = opening(100);
    assert_eq!(alone.pass(syn), Verdict::Keep);
    let asked = alone.asked();
    assert!(matches!(asked[..], [Message { body: Body::Ask, mobile: PHONE, .. }]), "{asked:?}");
    assert_eq!(alone.made(), [] as [&str; 0]);
    assert!(alone.hears(PEER, asked[0].id, Body::None));
    assert_eq!(alone.made().len(), 1, "a SYN to the fixed host");
    assert_eq!(alone.chain.stored().connections, 1);
}

/// Invalid messages, and messages with invalid records, which are not confirmed, so that the peer keeps the connection.
// Claim: Bytes that are neither a message nor a record change nothing; damaged and random bytes are refused, accepted ones are
// encoded unchanged, and no record is longer than 132 bytes.
// Tests: `handoff::record::tests::a_record_comes_out_as_it_went_in`, `handoff::record::tests::a_damaged_record_is_not_taken`,
// `handoff::record::tests::random_bytes_are_refused_or_are_a_record`, `handoff::record::tests::impossible_values_are_named`,
// `handoff::message::tests::a_message_comes_out_as_it_went_in`, `handoff::message::tests::a_damaged_message_is_not_taken`,
// `handoff::message::tests::random_bytes_are_refused_or_are_a_message`
#[test]
fn unreadable_messages_change_nothing() {
    let mut alone = Alone::new();
    assert_eq!(alone.pass(data(100, 50)), Verdict::Keep);
    let id = alone.asked()[0].id;
    for payload in [Bytes::new(), Bytes::from_static(b"HO"), Bytes::from(vec![0; 300])] {
        assert!(!alone.chain.handle_control(alone.now, &ControlMessage { peer: PEER, payload }));
    }
    let piece = Piece { is_doubtful: false, number: 0, total: 108, offset: 0, bytes: vec![1; 108].into() };
    for record in [Bytes::new(), vec![1; 132].into(), piece.emit()] {
        assert!(alone.hears(PEER, id, Body::Give { index: 0, count: 1, record }));
    }
    assert_eq!(alone.asked(), []);
    assert_eq!(alone.made(), [] as [&str; 0]);
    assert_eq!(alone.pass(data(150, 50)), Verdict::Keep, "the record is missing");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// With any losses, duplicates and delays, and any moves of the mobile host: only data that the far end has is acknowledged (the world
    /// checks each step), and all bytes arrive unchanged.
    // Claim: Over random moves between three supervisor hosts, reported or not, with losses and duplicated and late packets and
    // control messages: no end receives an ACK of data that the other does not have, all bytes arrive, and none is invented.
    #[test]
    fn no_handoff_loses_or_makes_up_a_byte(setup in rough(Just(Station::MTcp), 0.1)) {
        let last = setup.moves.last().map_or(0, |last| last.at_ms + last.gap_ms);
        let outcome = run(setup, last + 900_000);
        prop_assert!(!outcome.failed, "{:?}", outcome.actions);
        prop_assert!(outcome.received == outcome.sent, "{} of {} bytes", outcome.received.len(), outcome.sent.len());
        // A retransmission after both ends have everything may arrive when the connection is no longer known.
        let ended_at = outcome.ended_at.expect("it is over");
        prop_assert!(!outcome.actions.iter().any(|action| action.2 == "refused" && action.0 < ended_at), "{:?}", outcome.actions);
    }
}
