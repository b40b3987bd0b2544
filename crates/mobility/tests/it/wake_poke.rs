//! Poking a sender when nothing is held for it, packet by packet.

use holdover_mobility::unreachable_poke::UnreachablePokeConfig;
use holdover_mobility::{Direction, Injected, LinkEvent, Mechanisms};
use holdover_wire::{Payload, SeqRange, Unreachable};

use crate::support::ms;
use crate::wake_script::{Script, UP, hold_back, relative, seq};

/// RFC 6069: twelve messages, 1 ms apart, that quote the oldest byte; they end when data arrives.
#[test]
fn the_poke_quotes_the_oldest_outstanding_byte() {
    let poke = Mechanisms { unreachable_poke: Some(UnreachablePokeConfig::default()), ..Mechanisms::default() };
    let mut t = Script::of(&poke, 200);
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let made = t.wait(ms(1));
    let [Injected { direction: Direction::Outgoing, packet }] = &made[..] else { panic!("{made:?}") };
    let Payload::IcmpError(error) = &packet.payload else { panic!("{packet}") };
    let quoted = error.quoted_tcp().unwrap();
    assert_eq!(error.kind, Unreachable::Host);
    assert_eq!((quoted.seq, quoted.src_port, quoted.dst_port), (seq(200_001), 80, 1000));
    assert_eq!((quoted.src, quoted.dst), (packet.dst, packet.src));
    assert_eq!(t.wait(ms(5)).len(), 5);
    t.data();
    assert_eq!(t.wait(ms(100)), [], "it has resumed");
}

/// The ACKs of a flush may have been lost in the cut, or have arrived: a link may fail towards this host only, or break later.
// Claim: Messages to a sender quote in turn the byte that it was shown before the last flush and the newest one, as it ignores those
// about another byte than its oldest outstanding one.
#[test]
fn a_poke_quotes_what_was_shown_before_the_flush_and_after_it() {
    let wake = Mechanisms { wake: true, ..Mechanisms::default() };
    let mut t = Script::of(&wake, 200);
    t.wait(ms(500));
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let made = t.wait(ms(11));
    let quotes: Vec<u32> = made
        .iter()
        .filter_map(|made| match &made.packet.payload {
            Payload::IcmpError(error) => Some(relative(error.quoted_tcp().unwrap().seq)),
            _ => None,
        })
        .collect();
    assert!(quotes.len() >= 10, "{quotes:?}");
    assert!(quotes.chunks(2).all(|pair| [196_001, 200_001].starts_with(pair)), "{quotes:?}");
}

#[test]
fn the_poke_is_for_when_nothing_is_held() {
    let wake = Mechanisms { wake: true, ..Mechanisms::default() };
    for hole in [false, true] {
        let mut t = Script::of(&wake, 200);
        if hole {
            let mut segment = t.ack_segment();
            segment.options.sack.push(SeqRange::new(seq(300_001), seq(301_001)));
            assert!(t.pass(Direction::Outgoing, segment).is_some());
        }
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        let made = t.wait(ms(100));
        let pokes = made.iter().filter(|made| made.packet.tcp().is_none()).count();
        assert_eq!(pokes, if hole { 12 } else { 0 });
        let sacks = made.iter().filter_map(|made| made.packet.tcp()).any(|segment| !segment.options.sack.is_empty());
        assert!(!sacks, "a SACK-bearing ACK would be taken for a sign of a spurious timeout");
    }
}

/// Its peer may have sent data in the meantime, and have backed off.
// Claim: The peer of a connection at rest is told of the byte that it may have outstanding.
#[test]
fn a_connection_at_rest_is_poked() {
    for (mechanisms, expected) in [(Mechanisms { wake: true, ..Mechanisms::default() }, 13), (hold_back(), 0)] {
        let mut t = Script::of(&mechanisms, 200);
        t.wait(ms(11_000));
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        let made = t.wait(ms(50));
        assert_eq!(made.len(), expected, "an ACK and the messages");
        assert!(made.iter().all(|made| made.direction == Direction::Outgoing));
        for made in &made {
            let Payload::IcmpError(error) = &made.packet.payload else { continue };
            assert_eq!(
                error.quoted_tcp().unwrap().seq,
                seq(200_001),
                "the oldest byte that the peer may have outstanding"
            );
        }
    }
}

/// An ACK of a part of the oldest segment, which a woken peer sends at the same time, makes Linux ignore later messages.
// Claim: The messages to the host's own TCP are sent all at once, and once more 5 ms later.
#[test]
fn the_own_tcp_is_poked_at_once() {
    let poke = Mechanisms { unreachable_poke: Some(UnreachablePokeConfig::default()), ..Mechanisms::default() };
    let mut t = Script::upload(&poke, 200);
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let made = t.wait(ms(1));
    let oldest = t.data_end;
    let own = made.iter().filter(|made| made.direction == Direction::Incoming);
    let quotes = own.map(|made| match &made.packet.payload {
        Payload::IcmpError(error) => error.quoted_tcp().unwrap().seq,
        _ => panic!("{}", made.packet),
    });
    assert_eq!(quotes.collect::<Vec<_>>(), [seq(oldest); 12]);
    let later = t.wait(ms(20));
    let own = later.iter().filter(|made| made.direction == Direction::Incoming).count();
    assert_eq!(own, 12, "once more, in case a program was using the socket");
}
