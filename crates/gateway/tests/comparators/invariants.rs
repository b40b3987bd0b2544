//! Invariants for random sequences of packets.

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::{Direction, Injected, Presence, SegmentFilter, Verdict, tcp_mut};
use holdover_gateway::snoop::{Snoop, SnoopConfig};
use holdover_gateway::tawcf::{Tawcf, TawcfConfig};
use holdover_wire::{Flags, Packet, Seq, SeqRange};
use proptest::prelude::*;

use crate::support::{ack_of, bytes_at, mobile};

/// Bytes of copies that a filter may keep of the one connection.
const LIMIT: usize = 2_000;

/// An operation. Numbers are relative to a random start.
#[derive(Clone, Debug)]
enum Op {
    Data { seq: u32, len: u32, flags: Flags },
    Ack { ack: u32, window: u16, sack: Option<(u32, u32)>, len: u32, flags: Flags },
    Wait(u64),
    Presence(Presence),
}

fn op() -> impl Strategy<Value = Op> {
    let rare_flags = prop_oneof![
        30 => Just(Flags::ACK),
        1 => Just(Flags::ACK | Flags::FIN),
        1 => Just(Flags::SYN),
        1 => Just(Flags::SYN | Flags::ACK),
        1 => Just(Flags::RST),
    ];
    let seq = 0u32..3_000;
    let data = (seq.clone(), 0u32..300, rare_flags.clone()).prop_map(|(seq, len, flags)| Op::Data { seq, len, flags });
    let sack = prop::option::of((seq.clone(), 1u32..500));
    let window = prop_oneof![Just(0u16), Just(900), Just(1000)];
    let len = prop_oneof![5 => Just(0u32), 1 => 1u32..100];
    let ack = (seq, window, sack, len, rare_flags).prop_map(|(ack, window, sack, len, flags)| {
        let sack = sack.map(|(start, len)| (start, start + len));
        Op::Ack { ack, window, sack, len, flags }
    });
    let presence = prop_oneof![
        Just(Presence::Present),
        Just(Presence::Fading { lead: None }),
        Just(Presence::Away),
        Just(Presence::Moved)
    ];
    prop_oneof![
        8 => data,
        8 => ack,
        3 => (0u64..400).prop_map(Op::Wait),
        1 => presence.prop_map(Op::Presence),
    ]
}

/// The byte with this number, which differs from its neighbours.
fn byte_at(seq: u32) -> u8 {
    (seq ^ seq >> 8) as u8
}

/// A filter, and the highest ACK of the mobile host.
struct Watch<'a> {
    filter: &'a mut dyn SegmentFilter,
    now: Instant,
    acked: Option<Seq>,
}

impl Watch<'_> {
    fn apply(&mut self, op: &Op, base: u32) {
        match *op {
            Op::Data { seq, len, flags } => {
                let seq = base.wrapping_add(seq);
                let mut packet = bytes_at(seq, 0);
                if let Some(segment) = tcp_mut(&mut packet) {
                    segment.flags = flags;
                    segment.payload = (0..len).map(|at| byte_at(seq.wrapping_add(at))).collect::<Vec<u8>>().into();
                }
                self.pass(Direction::Outgoing, packet);
            }
            Op::Ack { ack, window, sack, len, flags } => {
                let at = |seq| Seq::new(base.wrapping_add(seq));
                let mut packet = ack_of(at(ack).value());
                if let Some(segment) = tcp_mut(&mut packet) {
                    (segment.flags, segment.window) = (flags, window);
                    segment.options.sack = sack.iter().map(|&(start, end)| SeqRange::new(at(start), at(end))).collect();
                    segment.payload = Bytes::from(vec![0; len as usize]);
                }
                if flags.contains(Flags::ACK) {
                    self.acked = Some(self.acked.map_or(at(ack), |acked| acked.max(at(ack))));
                }
                self.pass(Direction::Incoming, packet);
            }
            Op::Wait(millis) => {
                let until = self.now + Duration::from_millis(millis);
                for count in 0.. {
                    let Some(at) = self.filter.poll_timeout().filter(|at| *at <= until) else { break };
                    assert!(count < 1_000, "deadlines without end");
                    self.now = self.now.max(at);
                    self.filter.handle_timeout(self.now);
                    self.drain();
                }
                self.now = until;
            }
            Op::Presence(presence) => self.filter.handle_mobile(self.now, mobile(), presence),
        }
        self.drain();
    }

    fn pass(&mut self, direction: Direction, mut packet: Packet) {
        if self.filter.handle_packet(self.now, direction, &mut packet) == Verdict::Pass {
            self.check(direction, &packet);
        }
    }

    fn drain(&mut self) {
        while let Some(Injected { direction, packet }) = self.filter.poll_transmit(self.now) {
            self.check(direction, &packet);
        }
        while self.filter.poll_action().is_some() || self.filter.poll_dropped().is_some() {}
    }

    fn check(&self, direction: Direction, packet: &Packet) {
        let segment = packet.tcp().expect("nothing but TCP");
        match direction {
            Direction::Incoming if segment.flags.contains(Flags::ACK) => {
                let acked = self.acked.expect("an ACK out of nothing");
                assert!(segment.ack.le(acked), "acknowledges {} of {acked}", segment.ack);
            }
            Direction::Incoming => {}
            Direction::Outgoing => {
                let expected = |at: usize| byte_at(segment.seq.value().wrapping_add(at as u32));
                assert!(segment.payload.iter().enumerate().all(|(at, byte)| *byte == expected(at)), "other data");
            }
        }
    }
}

fn ops() -> impl Strategy<Value = (Vec<Op>, u32)> {
    (prop::collection::vec(op(), 1..200), any::<u32>())
}

fn snoop() -> Snoop {
    Snoop::new(SnoopConfig { buffer_bytes: LIMIT, ..SnoopConfig::default() })
}

fn tawcf() -> Tawcf {
    Tawcf::new(TawcfConfig { buffer_bytes: LIMIT, longest: Duration::from_secs(2), ..TawcfConfig::default() })
}

proptest! {
    // Claim: No ACK of `snoop` or `tawcf` exceeds the mobile host's, and every packet to it is one that the fixed host has sent,
    // with SACK, resets, new connections and data in both directions; their buffers stay within their limits, also with numbers
    // outside of any window.
    // Tests: `invariants::window_control_makes_no_ack_up_and_keeps_within_its_buffers`,
    // `invariants::numbers_out_of_any_window_do_no_harm`
    #[test]
    fn snoop_makes_no_ack_up_and_keeps_within_its_cache((ops, base) in ops()) {
        let mut filter = snoop();
        let (mut now, mut acked) = (Instant::ZERO, None);
        for op in &ops {
            let mut watch = Watch { filter: &mut filter, now, acked };
            watch.apply(op, base);
            (now, acked) = (watch.now, watch.acked);
            prop_assert!(filter.stored().bytes <= LIMIT as u64);
        }
    }

    #[test]
    fn window_control_makes_no_ack_up_and_keeps_within_its_buffers((ops, base) in ops()) {
        let mut filter = tawcf();
        let (mut now, mut acked) = (Instant::ZERO, None);
        for op in &ops {
            let mut watch = Watch { filter: &mut filter, now, acked };
            watch.apply(op, base);
            (now, acked) = (watch.now, watch.acked);
            prop_assert!(filter.waiting_bytes(mobile()) <= LIMIT);
            prop_assert!(filter.held_bytes() <= LIMIT);
        }
    }

    /// Sequence numbers outside of any window: nothing panics, and memory stays bounded.
    #[test]
    fn numbers_out_of_any_window_do_no_harm(ops in prop::collection::vec((op(), any::<u32>()), 1..100)) {
        let (mut snoop, mut tawcf) = (snoop(), tawcf());
        let mut now = Instant::ZERO;
        for (op, base) in &ops {
            for filter in [&mut snoop as &mut dyn SegmentFilter, &mut tawcf] {
                let acked = match op {
                    Op::Ack { ack, .. } => Some(Seq::new(base.wrapping_add(*ack))),
                    _ => None,
                };
                drive(filter, now, op, *base, acked);
            }
            if let Op::Wait(millis) = op {
                now += Duration::from_millis(*millis);
            }
            prop_assert!(snoop.stored().bytes <= LIMIT as u64 && tawcf.waiting_bytes(mobile()) <= LIMIT);
            prop_assert!(tawcf.held_bytes() <= LIMIT);
        }
    }
}

/// Applies an operation, ignoring the output.
fn drive(filter: &mut dyn SegmentFilter, now: Instant, op: &Op, base: u32, acked: Option<Seq>) {
    match *op {
        Op::Data { seq, len, flags } => {
            let mut packet = bytes_at(base.wrapping_add(seq), len);
            if let Some(segment) = tcp_mut(&mut packet) {
                segment.flags = flags;
            }
            let _ = filter.handle_packet(now, Direction::Outgoing, &mut packet);
        }
        Op::Ack { flags, .. } => {
            let mut packet = ack_of(acked.map_or(0, Seq::value));
            if let Some(segment) = tcp_mut(&mut packet) {
                segment.flags = flags;
            }
            let _ = filter.handle_packet(now, Direction::Incoming, &mut packet);
        }
        Op::Wait(millis) => {
            let until = now + Duration::from_millis(millis);
            for count in 0.. {
                let Some(at) = filter.poll_timeout().filter(|at| *at <= until) else { break };
                assert!(count < 1_000, "deadlines without end");
                filter.handle_timeout(at.max(now));
            }
        }
        Op::Presence(presence) => filter.handle_mobile(now, mobile(), presence),
    }
    while filter.poll_transmit(now).is_some() || filter.poll_action().is_some() || filter.poll_dropped().is_some() {}
}
