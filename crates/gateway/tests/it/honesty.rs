//! With any packets in any order, a mechanism in the path passes only the mobile host's own acknowledgments and signals to the fixed host.

use holdover_base::{Duration, Instant};
use holdover_filter::{Direction, Presence, Verdict};
use holdover_gateway::blocking_buffer::BlockingBufferConfig;
use holdover_gateway::buffer_freeze::BufferFreezeConfig;
use holdover_gateway::copy_and_forward::CopyAndForwardConfig;
use holdover_gateway::daemon::{DaemonConfig, Mode, ThesisConfig};
use holdover_gateway::divert::DiverterConfig;
use holdover_gateway::supervisor::{Choke, SupervisorConfig};
use holdover_gateway::{Mechanisms, WarningSign};
use holdover_wire::{Packet, Payload, Seq};
use proptest::prelude::*;

use crate::script::*;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Data { at: u32, len: usize },
    Ack { at: u32, window: u16, flag: bool },
    Presence(Presence),
    Wait(u64),
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u32..40, 0_usize..3).prop_map(|(at, len)| Step::Data { at: at * 50, len: len * 50 }),
        4 => (0_u32..40, 0_u16..3, any::<bool>())
            .prop_map(|(at, window, flag)| Step::Ack { at: at * 50, window: window * 400, flag }),
        1 => prop_oneof![
            Just(Presence::Away),
            Just(Presence::Present),
            Just(Presence::Rebound),
            Just(Presence::Moved),
            Just(Presence::Fading { lead: None })
        ]
        .prop_map(Step::Presence),
        2 => (1_u64..600).prop_map(Step::Wait),
    ]
}

fn sign() -> impl Strategy<Value = WarningSign> {
    prop_oneof![Just(WarningSign::Window), Just(WarningSign::IpFlag)]
}

pub(crate) fn mechanisms() -> impl Strategy<Value = Mechanisms> {
    let none = Mechanisms::default;
    let choke = prop_oneof![Just(Choke::Never), Just(Choke::WhenAway), Just(Choke::Wintimer)];
    let mode = prop_oneof![Just(Mode::Buffer), Just(Mode::Freeze), Just(Mode::BufferFreeze), Just(Mode::MTcp)];
    prop_oneof![
        (mode, 1_u64..2_000).prop_map(move |(mode, mobile_bytes)| {
            let longest = Duration::from_millis(700);
            let buffer = DiverterConfig { mobile_bytes, longest, ..DiverterConfig::default() };
            Mechanisms { daemon: Some(DaemonConfig { mode, buffer, ..DaemonConfig::default() }), ..none() }
        }),
        (sign(), 1_u32..4, 1_u64..2_000).prop_map(move |(sign, burst_packets, mobile_bytes)| {
            let buffer =
                DiverterConfig { mobile_bytes, longest: Duration::from_millis(700), ..DiverterConfig::default() };
            let thesis = ThesisConfig { sign, burst_packets };
            let config = DaemonConfig { mode: Mode::Thesis, buffer, thesis, ..DaemonConfig::default() };
            Mechanisms { daemon: Some(config), ..none() }
        }),
        (choke, 0_u32..3, 0_usize..2_000).prop_map(move |(choke, held_bytes, buffer_bytes)| {
            let config = SupervisorConfig {
                choke,
                held_bytes,
                held_after_bytes: 0,
                buffer_bytes,
                ..SupervisorConfig::default()
            };
            Mechanisms { supervisor: Some(config), ..none() }
        }),
        (any::<bool>(), 1_usize..2_000).prop_map(move |(freezes, buffer_bytes)| {
            let config = BufferFreezeConfig { freezes, buffer_bytes, ..BufferFreezeConfig::default() };
            Mechanisms { buffer_freeze: Some(config), ..none() }
        }),
        (sign(), 1_usize..2_000).prop_map(move |(sign, buffer_bytes)| {
            let longest = Duration::from_millis(700);
            let config = CopyAndForwardConfig { sign, buffer_bytes, longest };
            Mechanisms { copy_and_forward: Some(config), ..none() }
        }),
        (sign(), 1_usize..2_000).prop_map(move |(sign, buffer_bytes)| {
            let config = BlockingBufferConfig {
                sign,
                buffer_bytes,
                longest: Duration::from_millis(700),
                ..BlockingBufferConfig::default()
            };
            Mechanisms { blocking_buffer: Some(config), ..none() }
        }),
    ]
}

proptest! {
    // Claim: Over random packets, reports of presence and pauses, no ACK of `supervisor`, `buffer_freeze`, `blocking_buffer` or
    // `copy_and_forward` exceeds the mobile host's, and every packet to the mobile host is one that the fixed host has sent.
    #[test]
    fn no_ack_says_more_than_the_mobile_host_and_no_data_are_made_up(
        mechanisms in mechanisms(),
        steps in prop::collection::vec(step(), 1..120),
        base in any::<u32>(),
        begins in any::<bool>(),
    ) {
        let by_flag = |sign| sign == Some(WarningSign::IpFlag);
        let of_daemon = mechanisms.daemon.as_ref().filter(|config| config.mode == Mode::Thesis);
        let uses_flag = by_flag(mechanisms.blocking_buffer.map(|config| config.sign))
            || by_flag(of_daemon.map(|config| config.thesis.sign))
            || by_flag(mechanisms.copy_and_forward.map(|config| config.sign));
        // It may repeat both ends' ACKs, and trigger their senders by ICMP.
        let wakes = mechanisms.daemon.as_ref().is_some_and(|config| config.mode == Mode::Buffer);
        let mut chain = mechanisms.chain([1; 16]);
        let mut now = Instant::ZERO;
        let (mut acked, mut sent) = (None::<Seq>, Vec::<Packet>::new());
        // Only a connection that was seen to begin has its ACKs lowered.
        for mut packet in opening(base).into_iter().filter(|_| begins) {
            let direction = if packet.dst == PHONE { Direction::Outgoing } else { Direction::Incoming };
            sent.push(packet.clone());
            prop_assert_eq!(chain.handle_packet(now, direction, &mut packet), Verdict::Pass);
        }
        for step in steps {
            let mut out = Vec::new();
            match step {
                Step::Data { at, len } => {
                    let mut packet = data(base.wrapping_add(at), len);
                    sent.push(packet.clone());
                    if chain.handle_packet(now, Direction::Outgoing, &mut packet) == Verdict::Pass {
                        out.push(packet);
                    }
                }
                Step::Ack { at, window, flag } => {
                    let mut packet = ack(base.wrapping_add(at), window);
                    packet.reserved_flag = flag && uses_flag;
                    let number = Seq::new(base.wrapping_add(at));
                    acked = Some(acked.map_or(number, |acked| acked.max(number)));
                    if chain.handle_packet(now, Direction::Incoming, &mut packet) == Verdict::Pass {
                        out.push(packet);
                    }
                }
                Step::Presence(presence) => chain.handle_mobile(now, PHONE, presence),
                Step::Wait(millis) => {
                    now += Duration::from_millis(millis);
                    while chain.poll_timeout().is_some_and(|at| at <= now) {
                        chain.handle_timeout(now);
                    }
                }
            }
            out.extend(core::iter::from_fn(|| chain.poll_transmit()).map(|made| made.packet));
            for packet in out {
                prop_assert!(!packet.reserved_flag || packet.dst == PHONE, "the flag stays on the mobile side");
                let packet = Packet { reserved_flag: false, ..packet };
                let Some(segment) = packet.tcp() else {
                    // Either end may be poked: the mobile host may owe an answer to data that has arrived.
                    let is_poke = matches!(packet.payload, Payload::IcmpError(_));
                    prop_assert!(wakes && is_poke, "{packet} was never sent");
                    continue;
                };
                if packet.dst == PHONE {
                    let is_repeated_ack = segment.is_pure_ack() && segment.ack == Seq::new(1);
                    prop_assert!(sent.contains(&packet) || wakes && is_repeated_ack, "{packet} was never sent");
                } else {
                    let number = segment.ack;
                    prop_assert!(acked.is_some_and(|acked| number.le(acked)), "{packet} after {acked:?}");
                }
            }
            while chain.poll_action().is_some() {}
            while chain.poll_dropped().is_some() {}
        }
    }
}
