//! Packets that a router's mechanisms forward, keep, resend or rewrite leave with the bytes that they came with.

use core::net::{IpAddr, Ipv6Addr};

use holdover_base::{Duration, Instant};
use holdover_filter::{Chain, Direction, Verdict};
use holdover_gateway::Mechanisms;
use holdover_gateway::snoop::SnoopConfig;
use holdover_gateway::tawcf::TawcfConfig;
use holdover_wire::{Packet, SeqRange, Timestamps};
use proptest::prelude::*;

use crate::honesty::{Step, mechanisms, step};
use crate::received::{number, received, without_edits};
use crate::script::{PHONE, ack, change, data, opening};

const FIXED_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
const PHONE_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));

fn between(packet: Packet, is_ipv6: bool) -> Packet {
    let (src, dst) = match (is_ipv6, packet.dst == PHONE) {
        (false, _) => return packet,
        (true, true) => (FIXED_V6, PHONE_V6),
        (true, false) => (PHONE_V6, FIXED_V6),
    };
    Packet { src, dst, ..packet }
}

/// A packet of a step, with timestamps, and ACKs with a SACK block now and then.
fn packet(step: &Step, base: u32, now: Instant, count: u16) -> Option<Packet> {
    let val = 1 + now.as_millis() as u32;
    match *step {
        Step::Data { at, len } => Some(change(data(base.wrapping_add(at), len), |segment| {
            segment.options.timestamps = Some(Timestamps { val, ecr: 1 });
        })),
        Step::Ack { at, window, .. } => Some(change(ack(base.wrapping_add(at), window), |segment| {
            segment.options.timestamps = Some(Timestamps { val, ecr: val });
            if count.is_multiple_of(5) {
                segment.options.sack.push(SeqRange::new(segment.ack + 50, segment.ack + 100));
            }
        })),
        Step::Presence(_) | Step::Wait(_) => None,
    }
}

/// Mechanisms that resend packets lost by the radio.
fn local_recovery() -> impl Strategy<Value = Mechanisms> {
    prop_oneof![
        Just(Mechanisms { snoop: Some(SnoopConfig::default()), ..Mechanisms::default() }),
        Just(Mechanisms { tawcf: Some(TawcfConfig::default()), ..Mechanisms::default() }),
    ]
}

proptest! {
    // Claim: Packets that a mechanism of a router forwards, keeps, resends or rewrites keep their bytes, unknown TCP options,
    // identification and flow label among them, except ACK number, window, timestamps, SACK blocks, hop limit and checksums; all
    // packets with data are such ones. Over random packets, reports and pauses, with IPv4 and IPv6.
    #[test]
    fn packets_leave_as_they_came(
        mechanisms in prop_oneof![6 => mechanisms(), 2 => local_recovery()],
        steps in prop::collection::vec(step(), 1..120),
        base in any::<u32>(),
        is_ipv6 in any::<bool>(),
        begins in any::<bool>(),
    ) {
        let mut chain = mechanisms.chain([1; 16]);
        let mut now = Instant::from_secs(1);
        let mut came: Vec<Packet> = Vec::new();
        // Only a connection that was seen to begin has its ACKs lowered.
        for packet in opening(base).into_iter().filter(|_| begins) {
            let direction = if packet.dst == PHONE { Direction::Outgoing } else { Direction::Incoming };
            let mut packet = received(&between(packet, is_ipv6), came.len() as u16);
            came.push(packet.clone());
            prop_assert_eq!(chain.handle_packet(now, direction, &mut packet), Verdict::Pass);
        }
        for step in steps {
            let mut out = Vec::new();
            match &step {
                Step::Presence(presence) => {
                    let mobile = if is_ipv6 { PHONE_V6 } else { PHONE };
                    chain.handle_mobile(now, mobile, *presence);
                }
                Step::Wait(millis) => {
                    now += Duration::from_millis(*millis);
                    while chain.poll_timeout().is_some_and(|at| at <= now) {
                        chain.handle_timeout(now);
                    }
                }
                Step::Data { .. } | Step::Ack { .. } => {
                    let count = came.len() as u16;
                    let value = packet(&step, base, now, count).expect("a packet");
                    let direction = if value.dst == PHONE { Direction::Outgoing } else { Direction::Incoming };
                    let mut packet = received(&between(value, is_ipv6), count);
                    came.push(packet.clone());
                    if chain.handle_packet(now, direction, &mut packet) == Verdict::Pass {
                        prop_assert!(number(&packet).is_some(), "{packet} passes");
                        out.push(packet);
                    }
                }
            }
            out.extend(made(&mut chain));
            for packet in out {
                let Some(number) = number(&packet) else {
                    let has_data = packet.tcp().is_some_and(|segment| segment.seq_len() > 0);
                    prop_assert!(!has_data, "{packet} is not as it came");
                    continue;
                };
                prop_assert_eq!(without_edits(&packet), without_edits(&came[usize::from(number)]));
                let bytes = packet.emit().expect("it can be written");
                prop_assert!(Packet::parse(bytes).is_ok(), "its checksums are right");
            }
        }
    }
}

fn made(chain: &mut Chain) -> Vec<Packet> {
    while chain.poll_action().is_some() {}
    while chain.poll_dropped().is_some() {}
    core::iter::from_fn(|| chain.poll_transmit()).map(|made| made.packet).collect()
}
