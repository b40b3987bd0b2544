//! Whatever the link does and whichever mechanisms are enabled, the stream stays exact: all data written is read, once and in order.

use holdover_base::Duration;
use holdover_mobility::ack_stall::AckStallConfig;
use holdover_mobility::fast_retransmit::FastRetransmitConfig;
use holdover_mobility::freeze::{FreezeConfig, WarningPeriod};
use holdover_mobility::hold_back::HoldBackConfig;
use holdover_mobility::new_cell_window::NewCellWindowConfig;
use holdover_mobility::probe::{ProbeConfig, RoundTrip};
use holdover_mobility::reconnect_acks::ReconnectAcksConfig;
use holdover_mobility::release::ReleaseConfig;
use holdover_mobility::retransmission_trigger::{PeerTrigger, RetransmissionTriggerConfig};
use holdover_mobility::silence::SilenceOptions;
use holdover_mobility::timestamp_echo::{Echo, Since, TimestampEchoConfig};
use holdover_mobility::unreachable_poke::UnreachablePokeConfig;
use holdover_mobility::user_timeout::UserTimeoutPolicyConfig;
use holdover_mobility::{CombinationError, Mechanisms};
use holdover_sim::FlowStatus;
use holdover_tcp::{AfterRetransmit, Profile};
use proptest::prelude::*;

use crate::support::*;

/// Any valid combination.
pub(crate) fn mechanisms() -> impl Strategy<Value = Mechanisms> {
    use proptest::option::of;
    let all = (of(reconnect_acks()), of(freeze()), of(timestamp_echo()), of(new_cell_window()), of(fast_retransmit()));
    let drawn = (all, of(triggers()), any::<bool>(), wake()).prop_map(|(all, retransmission_trigger, long, wake)| {
        let (reconnect_acks, freeze, timestamp_echo, new_cell_window, fast_retransmit) = all;
        Mechanisms {
            reconnect_acks,
            freeze,
            timestamp_echo,
            new_cell_window,
            fast_retransmit,
            retransmission_trigger,
            user_timeout: long.then(UserTimeoutPolicyConfig::default),
            ..wake
        }
    });
    let probe = proptest::option::weighted(0.2, probe());
    (drawn, any::<bool>(), probe).prop_map(|(mut mechanisms, withholds, probe)| {
        if probe.is_some() {
            (mechanisms.wake, mechanisms.hold_back, mechanisms.ack_stall) = (false, None, None);
            (mechanisms.reconnect_acks, mechanisms.fast_retransmit) = (None, None);
            mechanisms.retransmission_trigger = None;
            mechanisms.probe = probe;
        }
        let interfere = matches!(mechanisms.check(), Err(CombinationError::Interference { .. }));
        if interfere && withholds {
            (mechanisms.freeze, mechanisms.reconnect_acks, mechanisms.fast_retransmit) = (None, None, None);
            mechanisms.retransmission_trigger = None;
        } else if interfere {
            (mechanisms.wake, mechanisms.hold_back, mechanisms.ack_stall) = (false, None, None);
        }
        if matches!(mechanisms.check(), Err(CombinationError::WithoutWake { .. })) {
            (mechanisms.silence, mechanisms.own_data) = (None, false);
        }
        assert_eq!(mechanisms.check(), Ok(()));
        mechanisms
    })
}

fn wake() -> impl Strategy<Value = Mechanisms> {
    let hold_back =
        (1_u8..20, 0_u64..200_000, 0_u64..2_000, 1_u64..200).prop_map(|(segments, after_bytes, pause, flush)| {
            HoldBackConfig { segments, after_bytes, pause: ms(pause), flush: ms(flush) }
        });
    let ack_stall = (proptest::option::of(1_u64..300), 0_u64..300)
        .prop_map(|(lead, overdue)| AckStallConfig { lead: lead.map(ms), overdue: ms(overdue) });
    let poke = (1_u8..20, 0_u64..5).prop_map(|(copies, every)| UnreachablePokeConfig { copies, every: ms(every) });
    let release = (0_u64..100, 0_u64..200, any::<bool>(), 0_u64..2_000, any::<bool>()).prop_map(
        |(grace, ladder, refresh_timestamps, refresh_for, two_steps)| ReleaseConfig {
            grace: ms(grace),
            ladder: ms(ladder),
            refresh_timestamps,
            refresh_for: ms(refresh_for),
            two_steps,
        },
    );
    let parts = (proptest::option::of(hold_back), proptest::option::of(ack_stall), proptest::option::of(poke));
    let silence = (1_u64..2_000, any::<bool>()).prop_map(|(after_ms, asks)| SilenceOptions {
        after: ms(after_ms),
        asks,
        ..SilenceOptions::default()
    });
    let options = (proptest::option::of(silence), any::<bool>());
    (parts, release, any::<bool>(), options).prop_map(|(parts, release, wake, (silence, own_data))| {
        let (hold_back, ack_stall, unreachable_poke) = parts;
        Mechanisms { hold_back, ack_stall, unreachable_poke, release, wake, silence, own_data, ..Mechanisms::default() }
    })
}

fn triggers() -> impl Strategy<Value = RetransmissionTriggerConfig> {
    let after = prop_oneof![Just(AfterRetransmit::Reset), Just(AfterRetransmit::Keep), Just(AfterRetransmit::BackOff)];
    let acks = (4_u8..10, any::<bool>());
    let peer = prop_oneof![
        Just(PeerTrigger::None),
        Just(PeerTrigger::Option),
        acks.prop_map(|(segments, piggyback)| PeerTrigger::DuplicateAcks { segments, piggyback }),
    ];
    (after, peer, any::<bool>(), 0_u64..1_000).prop_map(|(after, peer, forced_slow_start, interval_ms)| {
        RetransmissionTriggerConfig {
            after,
            counts: false,
            peer,
            forced_slow_start,
            min_interval: Duration::from_millis(interval_ms),
        }
    })
}

fn reconnect_acks() -> impl Strategy<Value = ReconnectAcksConfig> {
    (1_u8..6, proptest::option::of(1_000_u32..100_000)).prop_map(|(copies, restart_window_bytes)| ReconnectAcksConfig {
        copies,
        restart_window_bytes,
        ..ReconnectAcksConfig::default()
    })
}

fn freeze() -> impl Strategy<Value = FreezeConfig> {
    let warning = prop_oneof![
        Just(WarningPeriod::WholeLead),
        (1_u64..500).prop_map(|millis| WarningPeriod::Fixed(ms(millis))),
        (0.2..3.0).prop_map(WarningPeriod::RoundTrips),
        (1_u64..100).prop_map(|millis| WarningPeriod::Adaptive { step: ms(millis) }),
    ];
    let ask_after = proptest::option::of((0_u64..20).prop_map(ms));
    (warning, 0_u8..5, ask_after, 0_u64..2_000, any::<[bool; 3]>()).prop_map(
        |(warning, at_once, ask_after, patience, [thaw_on_probe, update_at_up, ip_flag])| FreezeConfig {
            warning,
            at_once,
            ask_after,
            thaw_on_probe,
            update_at_up,
            ip_flag,
            patience: ms(patience),
            ..FreezeConfig::default()
        },
    )
}

fn timestamp_echo() -> impl Strategy<Value = TimestampEchoConfig> {
    let since = prop_oneof![Just(Since::ZeroWindow), Just(Since::LastAck)];
    let echo = prop_oneof![Just(Echo::Own), Just(Echo::Newest)];
    (since, echo).prop_map(|(since, echo)| TimestampEchoConfig { since, echo })
}

fn new_cell_window() -> impl Strategy<Value = NewCellWindowConfig> {
    (1_u32..100_000, 0_u32..300)
        .prop_map(|(initial_bytes, growth_percent)| NewCellWindowConfig { initial_bytes, growth_percent })
}

fn probe() -> impl Strategy<Value = ProbeConfig> {
    let round_trip = prop_oneof![Just(RoundTrip::Exchange), Just(RoundTrip::Smoothed)];
    (0_u8..5, 0_u8..6, any::<bool>(), any::<bool>(), 0_u64..500, round_trip).prop_map(
        |(nacks, probes, own_data, only_moved, patience, round_trip)| ProbeConfig {
            nacks,
            probes,
            own_data,
            only_moved,
            patience: ms(patience),
            round_trip,
        },
    )
}

fn fast_retransmit() -> impl Strategy<Value = FastRetransmitConfig> {
    (0_u8..6, any::<bool>(), any::<bool>()).prop_map(|(copies, own_data, only_moved)| FastRetransmitConfig {
        copies,
        own_data,
        only_moved,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_stream_stays_exact(
        mechanisms in mechanisms(),
        outages in outages(2_000),
        profile in proptest::sample::select(Profile::ALL.to_vec()),
        upload in any::<bool>(),
        foresight_ms in proptest::option::of(1_u64..500),
        loss in prop_oneof![Just(0.0), 0.0..0.05],
    ) {
        let way = if upload { Way::Upload } else { Way::Download };
        let mut config = world(way, profile, 400_000, &outages);
        for link in &mut config.links {
            link.forward.loss = holdover_link::Loss::Independent(loss);
            link.backward.loss = holdover_link::Loss::Independent(loss);
        }
        let report = run(with(config, mechanisms, foresight_ms.map(Duration::from_millis)));
        prop_assert_eq!(report.status, FlowStatus::Completed);
        prop_assert_eq!(report.bytes_received, 400_000);
    }
}
