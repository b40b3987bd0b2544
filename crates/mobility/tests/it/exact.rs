//! Whatever the link does and whichever mechanisms are on, the stream stays exact: everything that was written is read, once
//! and in order.

use holdover_base::Duration;
use holdover_mobility::Mechanisms;
use holdover_mobility::reconnect_acks::ReconnectAcksConfig;
use holdover_mobility::retransmission_trigger::{Relay, RetransmissionTriggerConfig};
use holdover_mobility::user_timeout::UserTimeoutPolicyConfig;
use holdover_sim::FlowStatus;
use holdover_tcp::{AfterRetransmit, Profile};
use proptest::prelude::*;

use crate::support::*;

fn mechanisms() -> impl Strategy<Value = Mechanisms> {
    let acks = proptest::option::of((1_u8..6, proptest::option::of(1_000_u32..100_000)));
    (acks, proptest::option::of(triggers()), any::<bool>()).prop_map(|(acks, trigger, long)| Mechanisms {
        reconnect_acks: acks.map(|(copies, restart_window_bytes)| ReconnectAcksConfig {
            copies,
            restart_window_bytes,
            ..ReconnectAcksConfig::default()
        }),
        retransmission_trigger: trigger,
        user_timeout: long.then(UserTimeoutPolicyConfig::default),
    })
}

fn triggers() -> impl Strategy<Value = RetransmissionTriggerConfig> {
    let after = prop_oneof![Just(AfterRetransmit::Reset), Just(AfterRetransmit::Keep), Just(AfterRetransmit::BackOff)];
    let acks = (4_u8..10, any::<bool>());
    let relay = prop_oneof![
        Just(Relay::None),
        Just(Relay::Option),
        acks.prop_map(|(segments, piggyback)| Relay::DuplicateAcks { segments, piggyback }),
    ];
    (after, relay, any::<bool>(), 0_u64..1_000).prop_map(|(after, relay, forced_slow_start, interval_ms)| {
        RetransmissionTriggerConfig {
            after,
            counts: false,
            relay,
            forced_slow_start,
            min_interval: Duration::from_millis(interval_ms),
        }
    })
}

/// Outages of up to 3 s, with 1 ms to 2 s between them.
fn outages() -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((1_u64..2_000, 1_u64..3_000), 0..6).prop_map(|lengths| {
        let mut at = 0;
        let outage = |(up, down)| {
            let from = at + up;
            at = from + down;
            (from, at)
        };
        lengths.into_iter().map(outage).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_stream_stays_exact(
        mechanisms in mechanisms(),
        outages in outages(),
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
