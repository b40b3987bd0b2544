//! RFC 3168: ECN is agreed on, marks are echoed, and echoes reduce the window once for a round trip.

use holdover_base::{Duration, Instant};
use holdover_tcp::{Config, Ecn, EcnField, Profile, Reason, RecoveryState, Reduction};
use holdover_wire::Flags;
use proptest::prelude::*;

use crate::marking;
use crate::properties::cases;
use crate::script::*;
use crate::world::{Path, World};

fn config(ecn: Ecn) -> Config {
    let mut config = plain();
    config.ecn = ecn;
    config.recovery.reduction = Reduction::Immediate;
    config
}

/// A connection that has requested ECN successfully.
fn agreed() -> Script {
    let mut t = Script::connect(config(Ecn::Request));
    t.expect(our_syn().and(Flags::ECE | Flags::CWR));
    t.at(50).inject(syn_ack().and(Flags::ECE));
    t.expect(ack(1));
    assert!(t.connection.ecn_agreed());
    t
}

/// Section 6.1.1: the SYN has both bits, the SYN-ACK only ECE.
#[test]
fn rfc3168_6_1_1_agreement() {
    agreed();
    for answer in [syn_ack(), syn_ack().and(Flags::ECE | Flags::CWR)] {
        let mut t = Script::connect(config(Ecn::Request));
        t.expect(our_syn().and(Flags::ECE | Flags::CWR));
        t.at(50).inject(answer);
        t.expect(ack(1));
        assert!(!t.connection.ecn_agreed());
    }
    let mut t = Script::connect(config(Ecn::Accept));
    t.expect(our_syn());
    t.at(50).inject(syn_ack().and(Flags::ECE));
    t.expect(ack(1));
    assert!(!t.connection.ecn_agreed(), "ECN was not requested");
}

#[test]
fn rfc3168_6_1_1_a_listener_accepts_what_it_is_asked() {
    for (ecn, bits, agrees) in [
        (Ecn::Accept, Flags::ECE | Flags::CWR, true),
        (Ecn::Request, Flags::ECE | Flags::CWR, true),
        (Ecn::Off, Flags::ECE | Flags::CWR, false),
        (Ecn::Accept, Flags::ECE, false),
    ] {
        let mut t = Script::accept(config(ecn), syn().and(bits));
        t.expect(if agrees { our_syn_ack().and(Flags::ECE) } else { our_syn_ack() });
        assert_eq!(t.connection.ecn_agreed(), agrees);
    }
}

/// Section 6.1.1.1: because routers may drop such SYNs, the repeated one does not request ECN.
#[test]
fn rfc3168_6_1_1_1_a_repeated_syn_does_not_ask() {
    let mut t = Script::connect(config(Ecn::Request));
    t.expect(our_syn().and(Flags::ECE | Flags::CWR));
    t.at(1_000).expect(our_syn().reason(Reason::Syn));
    t.inject(syn_ack().and(Flags::ECE));
    t.expect(ack(1));
    assert!(!t.connection.ecn_agreed());
}

/// Sections 6.1.2, 6.1.4 and 6.1.5: new data is ECN-capable; retransmissions, ACKs and SYNs are not.
#[test]
fn rfc3168_6_1_only_new_data_is_capable() {
    let mut t = agreed();
    t.write(2_000);
    assert_eq!(t.fields(), [EcnField::Ect0, EcnField::Ect0]);
    t.forget_sent();
    t.at(1_050);
    assert_eq!(t.fields(), [EcnField::NotEct], "by a timer");
    t.forget_sent();
    t.inject(seg().data(1_000).ack(2_001));
    t.inject(seg().data(1_000).ack(2_001));
    assert_eq!(t.fields(), [EcnField::NotEct], "an ACK");
    t.forget_sent();
}

/// Section 6.1.3: ECE on every ACK from a mark on, until CWR.
#[test]
fn rfc3168_6_1_3_a_mark_is_echoed_until_the_sender_has_reduced() {
    let mut t = agreed();
    t.inject_marked(seg().seq(1).data(1_000));
    t.inject(seg().seq(1_001).data(1_000));
    t.expect(ack(2_001).and(Flags::ECE));
    t.inject(seg().seq(2_001).data(1_000));
    t.inject(seg().seq(3_001).data(1_000));
    t.expect(ack(4_001).and(Flags::ECE));
    t.inject(seg().seq(4_001).data(1_000).and(Flags::CWR));
    t.inject(seg().seq(5_001).data(1_000));
    t.expect(ack(6_001));
}

/// Section 6.1.2: an echo halves the window once for the outstanding data, and CWR is set on the next new data.
#[test]
fn rfc3168_6_1_2_an_echo_reduces_once_in_a_round() {
    let mut t = agreed();
    t.write(40_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.at(100).inject(seg().ack(1_001).and(Flags::ECE));
    // Half of the nine outstanding segments.
    assert_eq!((t.connection.cwnd(), t.connection.ssthresh()), (4, Some(4)));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Cwr);
    for acked in [2_001, 3_001, 4_001, 6_001] {
        t.inject(seg().ack(acked).and(Flags::ECE));
    }
    assert_eq!(t.connection.cwnd(), 4, "once");
    t.expect_nothing();
    // Four segments are outstanding; the next ACK makes room.
    t.inject(seg().ack(7_001).and(Flags::ECE));
    t.expect(data(10_001, 11_001).and(Flags::CWR));
    t.inject(seg().ack(8_001).and(Flags::ECE));
    t.expect(data(11_001, 12_001));
    // The reduction ends when data sent after it is acknowledged.
    t.at(150).inject(seg().ack(10_001).and(Flags::ECE));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Cwr);
    t.forget_sent();
    t.inject(seg().ack(11_001));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
    t.forget_sent();
    // The next echo then reduces again.
    t.inject(seg().ack(12_001).and(Flags::ECE));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Cwr);
    t.forget_sent();
}

/// A loss during the reduction is repaired without another reduction.
#[test]
fn a_loss_after_a_mark_reduces_no_further() {
    let mut with_sack = config(Ecn::Request);
    with_sack.sack = true;
    let mut t = Script::connect(with_sack);
    t.expect(our_syn().and(Flags::ECE | Flags::CWR));
    t.at(50).inject(syn_ack().and(Flags::ECE).sack_ok());
    t.expect(ack(1));
    t.write(40_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.at(100).inject(seg().ack(1_001).and(Flags::ECE));
    let ssthresh = t.connection.ssthresh();
    t.inject(seg().ack(1_001).and(Flags::ECE).sack(&[(2_001, 6_001)]));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Recovery);
    assert_eq!(t.connection.ssthresh(), ssthresh);
    t.expect(data(1_001, 2_001).reason(Reason::FastRetransmit));
    t.forget_sent();
}

/// With marks instead of drops, nothing is lost: the queue stays short, and there are no retransmissions.
#[test]
fn marks_keep_the_queue_short_without_losses() {
    for profile in [Profile::Linux6Cubic, Profile::Linux6Reno, Profile::Linux2_4] {
        let mut config = profile.config();
        config.ecn = Ecn::Request;
        config.send.fix_buffer(1 << 20);
        config.receive.buffer_bytes = 1 << 20;
        config.receive.max_buffer_bytes = 1 << 20;
        let world = marking::transfer_without_losses(config, profile.name());
        assert!(world.now < Instant::from_millis(5_500), "{profile}: {:?}", world.now);
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// Marks and losses together: everything arrives, and the window never stays closed.
    #[test]
    fn marks_never_stop_a_transfer(
        seed in any::<u64>(),
        profile in proptest::sample::select(Profile::ALL.to_vec()),
        sack in any::<bool>(),
        delay_ms in 1_u64..100,
        mark in prop_oneof![0.0..0.05, 0.0..1.0],
        loss in prop_oneof![Just(0.0), 0.0..0.1],
        reorder in prop_oneof![Just(0.0), 0.0..0.1],
        outage_ms in 0_u64..2_000,
    ) {
        let mut config = profile.config();
        config.ecn = Ecn::Request;
        config.sack = sack;
        let path = Path {
            per_segment: Duration::from_micros(500),
            mark,
            loss,
            reorder,
            outages: vec![(Instant::from_millis(700), Instant::from_millis(700 + outage_ms))],
            sound_from: Instant::from_secs(30),
            ..Path::clean(Duration::from_millis(delay_ms))
        };
        let mut world = World::new(config.clone(), config, path, seed);
        world.client.to_write = 300_000;
        let done = world.run_until(Instant::from_secs(4_000), |world| world.server.read_len == world.client.to_write);
        prop_assert!(done, "not done: cwnd {}", world.client.connection().cwnd());
    }
}
