//! Packet scripts for explicit bad state notification at the base station.

use holdover_filter::SegmentFilter;
use holdover_gateway::ebsn::{Budget, Ebsn, EbsnConfig};
use holdover_wire::{Flags, Packet, Payload, Seq, Udp, Unreachable};
use proptest::prelude::*;

use crate::support::{FIXED, MOBILE, Script, ack, assert_out, bytes_at, data, ms};

/// An established connection: the mobile host has acknowledged segment 0, and segments 1 to 3 are in flight.
fn under_way(every_ms: u64) -> Script<Ebsn> {
    let mut script = Script::new(Ebsn::new(EbsnConfig { every: ms(every_ms) }));
    assert_out!(script.fixed_sends(data(0)), "data 0");
    assert_out!(script.mobile_sends(ack(1)), "ack 1");
    for (n, text) in [(1, "data 1"), (2, "data 2"), (3, "data 3")] {
        assert_eq!(script.fixed_sends(data(n)), [text]);
    }
    script
}

/// The packets sent because an attempt to transmit `packet` has failed.
fn fails(script: &mut Script<Ebsn>, packet: &Packet) -> Vec<Packet> {
    script.filter.handle_failed_attempt(script.now, packet);
    let now = script.now;
    core::iter::from_fn(|| script.filter.poll_transmit(now)).map(|made| made.packet).collect()
}

#[test]
fn the_sender_is_notified_of_a_failed_attempt() {
    let mut script = under_way(10);
    let sent = fails(&mut script, &data(1));
    let [notification] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((notification.src, notification.dst), (MOBILE.into(), FIXED.into()));
    let Payload::IcmpError(error) = &notification.payload else { panic!("{notification}") };
    let quoted = error.quoted_tcp().expect("a segment");
    assert_eq!((error.kind, quoted.seq), (Unreachable::BadState, Seq::new(100)));
    assert_eq!((quoted.src, quoted.src_port, quoted.dst, quoted.dst_port), (FIXED.into(), 80, MOBILE.into(), 1024));
    // It can be emitted and parsed.
    let read = Packet::parse(notification.emit().expect("it can be sent")).expect("it can be read");
    assert_eq!(&read, notification);
}

#[test]
fn one_connection_is_notified_so_often_and_no_more() {
    let mut script = under_way(10);
    let counts: Vec<usize> = [0, 5, 9, 10, 19, 20].map(|at| fails(script.at(at), &data(1)).len()).to_vec();
    assert_eq!(counts, [1, 0, 0, 1, 0, 1]);
    let mut script = under_way(0);
    let counts: Vec<usize> = (1..=3).map(|n| fails(&mut script, &data(n)).len()).collect();
    assert_eq!(counts, [1, 1, 1], "as in the paper");
}

#[test]
fn segments_that_are_not_outstanding_cause_no_notification() {
    let mut script = under_way(0);
    assert_eq!(fails(&mut script, &data(0)).len(), 0, "acknowledged");
    assert_eq!(fails(&mut script, &bytes_at(100, 0)).len(), 0, "an ACK");
    assert_eq!(fails(&mut script, &ack(1)).len(), 0, "of the mobile host");
    let udp = Udp { src_port: 1, dst_port: 2, payload: vec![0; 100].into() };
    assert_eq!(fails(&mut script, &Packet::new(FIXED.into(), MOBILE.into(), udp)).len(), 0);
    let mut other = data(1);
    holdover_filter::tcp_mut(&mut other).expect("a segment").dst_port = 1025;
    assert_eq!(fails(&mut script, &other).len(), 0, "a connection that was never seen");
    // A handshake has no ACK of the mobile host yet.
    let mut script = Script::new(Ebsn::new(EbsnConfig::default()));
    let mut syn = bytes_at(0, 0);
    holdover_filter::tcp_mut(&mut syn).expect("a segment").flags = Flags::SYN;
    script.fixed_sends(syn.clone());
    assert_eq!(fails(&mut script, &syn).len(), 0);
}

proptest! {
    /// For any failures at any times: notifications stay within the budget, and within one in `every` for each connection.
    #[test]
    fn notifications_keep_within_their_budget(
        every_ms in 0_u64..20,
        steps in prop::collection::vec((0_u64..2_000, 0_u16..40, 1_u32..4), 1..600),
    ) {
        let mut filter = Ebsn::new(EbsnConfig { every: ms(every_ms) });
        let on_port = |mut packet: Packet, port: u16, is_mobiles: bool| {
            let segment = holdover_filter::tcp_mut(&mut packet).expect("a segment");
            *(if is_mobiles { &mut segment.src_port } else { &mut segment.dst_port }) = 1024 + port;
            packet
        };
        let mut now = holdover_base::Instant::ZERO;
        let mut sent: Vec<(holdover_base::Instant, u16)> = Vec::new();
        for port in 0..40 {
            let _ = filter.handle_packet(now, holdover_filter::Direction::Outgoing, &mut on_port(data(0), port, false));
            let _ = filter.handle_packet(now, holdover_filter::Direction::Incoming, &mut on_port(ack(1), port, true));
        }
        for (micros, port, n) in steps {
            now += holdover_base::Duration::from_micros(micros);
            filter.handle_failed_attempt(now, &on_port(data(n), port, false));
            while let Some(made) = filter.poll_transmit(now) {
                prop_assert!(matches!(made.packet.payload, Payload::IcmpError(_)));
                sent.push((now, port));
            }
        }
        for (first, &(from, port)) in sent.iter().enumerate() {
            for (count, &(at, _)) in sent[first..].iter().enumerate() {
                let refilled = at.saturating_since(from).as_micros() * u64::from(Budget::PER_SECOND) / 1_000_000;
                prop_assert!(count as u64 <= u64::from(Budget::AT_ONCE) + refilled);
            }
            let next = sent[first + 1..].iter().find(|(_, other)| *other == port);
            prop_assert!(next.is_none_or(|(at, _)| at.saturating_since(from) >= ms(every_ms)));
        }
    }
}
