//! Whatever the link does and whichever mechanisms are on, the stream stays exact: everything that was written is read, once
//! and in order.

use holdover_base::Duration;
use holdover_mobility::Mechanisms;
use holdover_mobility::ack_stall::AckStallConfig;
use holdover_mobility::hold_back::HoldBackConfig;
use holdover_mobility::reconnect_acks::ReconnectAcksConfig;
use holdover_mobility::release::ReleaseConfig;
use holdover_mobility::unreachable_poke::UnreachablePokeConfig;
use holdover_sim::FlowStatus;
use holdover_tcp::Profile;
use proptest::prelude::*;

use crate::support::*;

fn mechanisms() -> impl Strategy<Value = Mechanisms> {
    let acks = proptest::option::of((1_u8..6, proptest::option::of(1_000_u32..100_000)));
    (acks, wake()).prop_map(|(acks, wake)| Mechanisms {
        reconnect_acks: acks.map(|(copies, restart_window_bytes)| ReconnectAcksConfig {
            copies,
            restart_window_bytes,
            ..ReconnectAcksConfig::default()
        }),
        ..wake
    })
}

fn wake() -> impl Strategy<Value = Mechanisms> {
    let hold_back =
        (1_u8..20, 0_u64..200_000, 0_u64..2_000, 1_u64..200).prop_map(|(segments, after_bytes, pause, flush)| {
            HoldBackConfig { segments, after_bytes, pause: ms(pause), flush: ms(flush) }
        });
    let ack_stall = (1_u64..300, 1_u64..300).prop_map(|(lead, most)| AckStallConfig { lead: ms(lead), most: ms(most) });
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
    (parts, release, any::<bool>()).prop_map(|((hold_back, ack_stall, unreachable_poke), release, wake)| Mechanisms {
        hold_back,
        ack_stall,
        unreachable_poke,
        release,
        wake,
        ..Mechanisms::default()
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
