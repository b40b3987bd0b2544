//! The fixed host's part of EBSN: two endpoints, and notifications made by the test.

use holdover_mobility::Mechanisms;
use holdover_mobility::ebsn::EbsnConfig;
use holdover_tcp::{Config, Profile, Timer};
use holdover_wire::{IcmpError, Packet, Payload, Segment, Seq, Unreachable};
use proptest::prelude::*;

use crate::ends::Ends;
use crate::support::ms;

fn reno() -> Config {
    let mut config = Profile::RenoBsd.config();
    config.send.fix_buffer(60_000);
    (config.receive.buffer_bytes, config.receive.max_buffer_bytes) = (60_000, 60_000);
    config
}

/// The server has four segments outstanding; all are lost.
fn cut_off(longest_s: u64) -> Ends {
    let ebsn = Some(EbsnConfig { longest: ms(longest_s * 1000) });
    let server = Mechanisms { ebsn, ..Mechanisms::default() };
    let mut ends = Ends::new(reno(), &Mechanisms::default(), &server);
    ends.server.writes(ends.now, 4);
    ends.server.sends(ends.now);
    assert!(ends.server.tcp().unacked() > 0);
    ends
}

/// A notification about the server's byte at `seq`, as received from the wire.
fn notification(ends: &mut Ends, seq: Seq, kind: Unreachable) -> Packet {
    let (local, remote) = (ends.server.tcp().local(), ends.server.tcp().remote());
    let segment = Segment { src_port: local.port(), dst_port: remote.port(), seq, ..Segment::default() };
    let error = IcmpError::quoting_packet(kind, &Packet::new(local.ip(), remote.ip(), segment)).expect("a quote");
    let packet = Packet::new(remote.ip(), local.ip(), Payload::IcmpError(error));
    Packet::parse(packet.emit().expect("it can be sent")).expect("it can be read")
}

fn notify(ends: &mut Ends, ahead: i64) {
    let seq = ends.server.tcp().snd_una() + ahead as u32;
    let packet = notification(ends, seq, Unreachable::BadState);
    let now = ends.now;
    ends.server.takes(now, vec![packet]);
}

/// Fifty notifications, 100 ms apart: no timeout, and the same timeout and windows as before.
#[test]
fn notifications_put_off_the_timer_and_change_nothing_else() {
    let mut ends = cut_off(100);
    let before = |ends: &mut Ends| {
        let tcp = ends.server.tcp();
        (tcp.rto(), tcp.backoff(), tcp.cwnd(), tcp.ssthresh(), tcp.counters().timeouts)
    };
    let first = before(&mut ends);
    for _ in 0..50 {
        ends.pass(ms(100));
        notify(&mut ends, 0);
        assert_eq!(ends.server.sends(ends.now).len(), 0);
        assert_eq!(ends.server.tcp().deadline(Timer::Retransmit).map(|at| at > ends.now), Some(true));
    }
    assert_eq!(before(&mut ends), first);
    assert_eq!(ends.server.actions().len(), 50);
    // Without further notifications the timer expires as usual.
    let rto = ends.server.tcp().rto();
    ends.cut(rto + ms(1_000));
    assert!(ends.server.tcp().counters().timeouts > first.4);
}

#[test]
fn implausible_notifications_are_ignored() {
    let mut ends = cut_off(100);
    ends.pass(ms(600));
    let deadline = ends.server.tcp().deadline(Timer::Retransmit);
    let outstanding = ends.server.tcp().snd_nxt().saturating_since(ends.server.tcp().snd_una());
    for ahead in [-1, i64::from(outstanding), 1 << 30] {
        notify(&mut ends, ahead);
    }
    // Another connection, and another message.
    let una = ends.server.tcp().snd_una();
    let mut other = notification(&mut ends, una, Unreachable::BadState);
    if let Payload::IcmpError(error) = &mut other.payload {
        let mut quote = error.quote.to_vec();
        quote[20 + 3] ^= 1;
        error.quote = quote.into();
    }
    let soft = notification(&mut ends, una, Unreachable::Other { code: 5 });
    let now = ends.now;
    ends.server.takes(now, vec![other, soft]);
    assert_eq!((ends.server.tcp().deadline(Timer::Retransmit), ends.server.actions().len()), (deadline, 0));
    notify(&mut ends, i64::from(outstanding) - 1);
    assert!(ends.server.tcp().deadline(Timer::Retransmit) > deadline);
}

/// Notifications cannot stop the timer for ever.
#[test]
fn notifications_are_honoured_for_a_limited_time() {
    let mut ends = cut_off(2);
    let rounds = 20 + 2 * ends.server.tcp().rto().as_millis() / 100;
    for _ in 0..rounds {
        ends.pass(ms(100));
        notify(&mut ends, 0);
        ends.server.sends(ends.now);
    }
    assert!(ends.server.tcp().counters().timeouts > 0);
}

/// A host without the mechanism ignores the message.
#[test]
fn a_host_without_the_mechanism_ignores_it() {
    let mut ends = Ends::new(reno(), &Mechanisms::default(), &Mechanisms::default());
    ends.server.writes(ends.now, 4);
    ends.server.sends(ends.now);
    ends.pass(ms(600));
    let deadline = ends.server.tcp().deadline(Timer::Retransmit);
    notify(&mut ends, 0);
    assert_eq!(ends.server.tcp().deadline(Timer::Retransmit), deadline);
}

proptest! {
    /// Notifications about any byte at any time: the retransmission timer expires at most one timeout after the last of them, and none of
    /// them restarts it once SND.UNA has not advanced for `longest`.
    #[test]
    fn the_timer_is_never_put_off_by_more_than_a_timeout(
        steps in prop::collection::vec((1_u64..400, -3_000_i64..20_000), 1..80),
    ) {
        let mut ends = cut_off(3);
        let began = ends.now;
        for (wait, ahead) in steps {
            ends.pass(ms(wait));
            ends.server.sends(ends.now);
            notify(&mut ends, ahead);
            let tcp = ends.server.tcp();
            let (deadline, rto) = (tcp.deadline(Timer::Retransmit).expect("data are outstanding"), tcp.rto());
            // Old stacks check their timers every 500 ms.
            prop_assert!(deadline <= ends.now + rto + ms(500), "{deadline} at {} with {rto}", ends.now);
        }
        if ends.now.saturating_since(began) > ms(3_000) + ends.server.tcp().rto() * 2 {
            prop_assert!(ends.server.tcp().counters().timeouts > 0);
        }
    }
}
