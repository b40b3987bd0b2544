//! Each reason to send and each end of a segment occurs, and is counted once.

use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_tcp::{
    AfterRetransmit, Config, Disposition, Endpoint, EndpointConfig, InitialWindow, KeepAlive, LossDetection,
    MtuProbing, PathMtuConfig, Reason, Reduction, State,
};
use holdover_wire::{Flags, Packet, Segment, Seq};

use crate::script::*;

/// A script whose last segment was sent for `reason`.
fn sent_for(reason: Reason) -> Script {
    let mut config = plain();
    config.limits.keep_alive =
        Some(KeepAlive { idle: Duration::from_secs(50), interval: Duration::from_secs(5), probes: 2 });
    match reason {
        Reason::Syn => return Script::in_state(State::SynSent, config),
        Reason::SynAck => return Script::in_state(State::SynReceived, config),
        Reason::HandshakeAck => return Script::established(config),
        Reason::LossProbe => {
            config.sack = true;
            config.recovery.with_sack = LossDetection::Rack;
        }
        Reason::MtuProbe => {
            config.path_mtu = PathMtuConfig { probing: MtuProbing::Always, base_mss: 500, ..config.path_mtu };
            config.congestion.initial_window = InitialWindow::Segments(11);
        }
        Reason::LimitedTransmit => {}
        Reason::LossRecovery => {
            config.recovery.limited_transmit = false;
            config.recovery.reduction = Reduction::Immediate;
        }
        _ => config.recovery.limited_transmit = false,
    }
    let mut t = Script::established(config);
    let ten_out = |t: &mut Script| {
        t.write(20_000);
        t.expect_segments(1, 10_001, Reason::NewData);
    };
    match reason {
        Reason::NewData => t.write(10),
        Reason::MtuProbe => t.write(9_000),
        Reason::LimitedTransmit => {
            ten_out(&mut t);
            t.inject(seg());
        }
        Reason::Timeout | Reason::LossProbe => {
            ten_out(&mut t);
            // Two round trips of a microsecond, and two milliseconds for the clock's granularity.
            t.at_micros(if reason == Reason::Timeout { 1_000_000 } else { 2002 });
        }
        Reason::FastRetransmit => {
            ten_out(&mut t);
            (0..3).for_each(|_| t.inject(seg()));
        }
        Reason::LossRecovery => {
            ten_out(&mut t);
            (0..3).for_each(|_| t.inject(seg()));
            t.expect(data(1, 1001));
            t.inject(seg().ack(1001));
        }
        Reason::Requested => {
            ten_out(&mut t);
            t.steer(|connection, now| connection.retransmit_now(now, AfterRetransmit::Keep));
        }
        Reason::WindowProbe => {
            t.inject(seg().win(0));
            t.write(10);
            t.at(1000);
        }
        Reason::SillyWindowOverride => {
            t.inject(seg().win(10));
            t.write(1000);
            t.at(500);
        }
        Reason::KeepAlive => drop(t.at(50_000)),
        Reason::DelayedAck => {
            t.inject(seg().data(10));
            t.at(200);
        }
        Reason::Ack => {
            t.inject(seg().data(1000));
            t.inject(seg().data(1000));
        }
        Reason::DuplicateAck => t.inject(seg().seq(1001).data(10)),
        Reason::DuplicateData => t.inject_as(Disposition::DuplicateData, seg().seq(-9).data(10)),
        Reason::GapFilled => {
            t.inject(seg().seq(1001).data(10));
            t.expect(ack(1));
            t.inject(seg().seq(1).data(1000));
        }
        Reason::WindowUpdate => {
            for n in 1..=10 {
                t.inject(seg().data(1000));
                if n % 2 == 0 {
                    t.expect(ack(1 + n * 1000));
                }
            }
            t.read(10_000);
        }
        Reason::ChallengeAck => t.inject_as(Disposition::SynChallenged, flags(Flags::SYN)),
        Reason::FinAck => t.inject(fin()),
        Reason::RequestedAck => t.steer(|connection, _| connection.send_acks(1)),
        Reason::Reset => t.abort(),
        Reason::Syn | Reason::SynAck | Reason::HandshakeAck => unreachable!("returned above"),
    }
    t
}

#[test]
fn every_reason_occurs_and_is_counted() {
    for &reason in Reason::ALL {
        let mut t = sent_for(reason);
        let already_expected = matches!(reason, Reason::Syn | Reason::SynAck | Reason::HandshakeAck);
        if !already_expected {
            let reasons = t.take_reasons();
            assert!(reasons.contains(&reason), "{reason} is not among {reasons:?}");
        }
        assert!(t.connection.counters().sent(reason) >= 1, "{reason}");
        let sum: u64 = Reason::ALL.iter().map(|&reason| u64::from(t.connection.counters().sent(reason))).sum();
        assert_eq!(sum, t.connection.counters().segments_sent, "{reason}");
    }
}

/// Injects a segment with the expected disposition `disposition`; the script checks that, and the count.
fn received_as(disposition: Disposition) -> Script {
    let stamped = || Config { timestamps: Some(Duration::from_millis(1)), ..plain() };
    let mut t = match disposition {
        Disposition::UnacceptableHandshakeAck | Disposition::NotASyn => Script::in_state(State::SynSent, plain()),
        Disposition::HandshakeAbandoned => Script::in_state(State::SynReceived, plain()),
        Disposition::HandshakeDeferred => {
            let mut config = plain();
            config.limits.deferred_timeouts = 1;
            Script::in_state(State::SynReceived, config)
        }
        Disposition::AfterFin => Script::in_state(State::CloseWait, plain()),
        Disposition::Closed => Script::in_state(State::Closed, plain()),
        Disposition::PawsRejected => Script::established(stamped()),
        _ => Script::established(plain()),
    };
    match disposition {
        Disposition::Accepted => t.inject(seg()),
        Disposition::PawsRejected => t.inject_as(disposition, seg().ts(PEER_CLOCK - 1, OUR_CLOCK)),
        Disposition::DuplicateData => t.inject_as(disposition, seg().seq(0).data(1)),
        Disposition::OutsideWindow => t.inject_as(disposition, seg().seq(20_000)),
        Disposition::ResetChallenged => t.inject_as(disposition, rst().seq(100)),
        Disposition::ResetAccepted => t.inject_as(disposition, rst()),
        Disposition::SynChallenged | Disposition::HandshakeAbandoned => {
            t.inject_as(disposition, flags(Flags::SYN).seq(1))
        }
        Disposition::HandshakeDeferred => t.inject_as(disposition, seg().ack(1)),
        Disposition::NoAck => t.inject_as(disposition, flags(Flags::empty())),
        Disposition::AckOfUnsentData => t.inject_as(disposition, seg().ack(2)),
        Disposition::AckTooOld => t.inject_as(disposition, seg().ack(-20_000)),
        Disposition::UnacceptableHandshakeAck => t.inject_as(disposition, seg().ack(7)),
        Disposition::NotASyn => t.inject_as(disposition, seg().ack(1)),
        Disposition::AfterFin => t.inject_as(disposition, seg().data(1)),
        Disposition::ReceiverGone => {
            t.close();
            t.expect(our_fin(1));
            t.inject_as(disposition, seg().data(1));
        }
        Disposition::ReassemblyFull => {
            let mut config = plain();
            config.window_scale = Some(3);
            config.receive.buffer_bytes = 400_000;
            config.receive.max_buffer_bytes = 400_000;
            t.forget_sent();
            t = Script::established(config);
            for n in 0..4096 {
                t.inject(seg().seq(2 + n * 2).data(1));
                t.forget_sent();
            }
            t.inject_as(disposition, seg().seq(9000).data(1));
        }
        Disposition::Closed => t.inject_as(disposition, seg()),
        Disposition::NoConnection | Disposition::NotForListener | Disposition::BacklogFull => {
            unreachable!("an endpoint's")
        }
    }
    t
}

#[test]
fn every_disposition_occurs_and_is_counted() {
    let of_endpoint = [Disposition::NoConnection, Disposition::NotForListener, Disposition::BacklogFull];
    for &disposition in Disposition::ALL.iter().filter(|disposition| !of_endpoint.contains(disposition)) {
        let mut t = received_as(disposition);
        t.forget_sent();
        let counters = t.connection.counters();
        let sum: u64 = Disposition::ALL.iter().map(|&d| u64::from(counters.received(d))).sum();
        assert_eq!(sum, counters.segments_received, "{disposition}");
    }
    let secret = [1; 16];
    let mut endpoint = Endpoint::new(EndpointConfig { addresses: vec!["10.0.0.1".parse().unwrap()], secret });
    endpoint.listen(80, Arc::new(plain()), 1).unwrap();
    let mut inject = |src_port, dst_port, flags| {
        let segment = Segment { src_port, dst_port, seq: Seq::new(5), flags, ..Segment::default() };
        let packet = Packet::new("10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap(), segment);
        endpoint.handle_packet(Instant::from_secs(1), &packet);
    };
    inject(1, 81, Flags::SYN);
    inject(1, 80, Flags::ACK);
    inject(1, 80, Flags::SYN);
    inject(2, 80, Flags::SYN);
    for disposition in of_endpoint {
        assert_eq!(endpoint.strays(disposition), 1, "{disposition}");
    }
}

/// Names are unique, and are the printed form.
#[test]
fn names_are_unique() {
    let mut names: Vec<_> = Reason::ALL.iter().map(|reason| reason.to_string()).collect();
    names.extend(Disposition::ALL.iter().map(|disposition| disposition.to_string()));
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    assert_eq!(count, Reason::COUNT + Disposition::COUNT);
}

/// Bytes are counted once when first sent or received, and once when repeated.
#[test]
fn bytes_are_counted() {
    let mut t = Script::established(plain());
    t.write(3000);
    t.expect_segments(1, 3001, Reason::NewData);
    t.at(1000).expect(data(1, 1001));
    t.inject(seg().ack(3001));
    t.inject(seg().data(500));
    t.inject(seg().seq(301).data(500));
    t.expect(ack(801));
    let counters = t.connection.counters();
    assert_eq!((counters.bytes_sent.0, counters.bytes_acked.0, counters.bytes_retransmitted.0), (3000, 3000, 1000));
    assert_eq!((counters.bytes_received.0, counters.bytes_duplicate.0), (800, 200));
}
