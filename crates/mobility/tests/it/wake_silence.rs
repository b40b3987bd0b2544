//! Outages behind a router, which no event of the host's own link reports: with `silence`, `wake` finds them by itself.

use holdover_base::{ByteCount, Duration, Instant};
use holdover_link::{InFlightFate, LinkConfig, Loss, Outage, OutagePolicy, Outages, QueuedFate};
use holdover_mobility::Mechanisms;
use holdover_mobility::silence::SilenceOptions;
use holdover_sim::{
    FlowReport, FlowStatus, Frame, LinkBetween, NodeId, Observer, Place, RequestResponse, Traffic, Transit, World,
    WorldConfig,
};
use holdover_tcp::{Profile, RetryLimit};
use proptest::prelude::*;

use crate::support::*;

const LINUX: [Profile; 2] = [Profile::Linux6Cubic, Profile::Linux6Reno];

fn wake() -> Mechanisms {
    Mechanisms { wake: true, ..Mechanisms::default() }
}

fn detecting() -> Mechanisms {
    Mechanisms { silence: Some(SilenceOptions::default()), own_data: true, ..wake() }
}

/// The same path with the slow link behind the router, which is down at the times of `silent`, in ms, and that of the host at those of
/// `reported`. What is in flight or sent then is lost.
pub(crate) fn beyond(mut world: WorldConfig, silent: &[(u64, u64)], reported: &[(u64, u64)]) -> WorldConfig {
    let outages = |list: &[(u64, u64)]| {
        Outages::List(list.iter().map(|&(down, up)| Outage { down: at_ms(down), up: at_ms(up) }).collect())
    };
    let policy = OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped };
    let slow = LinkConfig { outages: outages(silent), outage_policy: policy, ..world.links[0].forward.clone() };
    let near = LinkConfig { outages: outages(reported), outage_policy: policy, ..LinkConfig::default() };
    world.links[0] = LinkBetween::wire("cable", MOBILE, NodeId(1), near);
    world.links[1] = LinkBetween::wire("radio", NodeId(1), SERVER, slow);
    world
}

fn transfer(way: Way, profile: Profile, outages: &[(u64, u64)]) -> WorldConfig {
    beyond(world(way, profile, 12_500_000, &[]), outages, &[])
}

/// Keys of 36 bytes, each this long after the echo of the last one.
fn keys(profile: Profile, think: Duration, count: u64, silent: &[(u64, u64)], reported: &[(u64, u64)]) -> WorldConfig {
    let mut config = beyond(world(Way::Upload, profile, 1, &[]), silent, reported);
    let size = ByteCount(36);
    let keys = RequestResponse { request: size, response: size, think, count: Some(count) };
    config.flows[0].traffic = Traffic::RequestResponse(keys);
    config
}

/// The packets that the mobile host's mechanisms send, and the times at which they send any: a probe may consist of the ACKs of a release.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Made {
    packets: u64,
    times: u64,
    last_at: Option<Instant>,
}

impl Observer for Made {
    fn packet(&mut self, at: Instant, place: Place, frame: &Frame) {
        if place.node == MOBILE && place.transit == Transit::Out && frame.reason.is_none() {
            self.packets += 1;
            self.times += u64::from(self.last_at.replace(at) != Some(at));
        }
    }
}

fn run_counting(config: WorldConfig) -> (FlowReport, Made) {
    let (mut world, mut made) = (World::new(config).expect("a world"), Made::default());
    world.run(&mut made);
    (world.report().remove(0), made)
}

/// The path's round trip is 50 ms, and 140 ms with a full queue.
// Claim: In the simulator, `wake` with `silence` finds an outage behind a router, which no link event reports: downloads and
// uploads go on within some round trips of its end, where they wait for the retransmission timer without it.
// Tests: `wake_silence::a_key_in_a_silent_outage_arrives_with_the_first_probe`
#[test]
fn a_silent_outage_ends_with_the_first_probe_that_passes() {
    for profile in LINUX {
        for way in [Way::Download, Way::Upload] {
            let mut total = [0, 0];
            for for_ms in [3_000, 7_000, 20_000] {
                let config = transfer(way, profile, &[(4_000, 4_000 + for_ms)]);
                let [without, with] =
                    [wake(), detecting()].map(|mechanisms| run(with(config.clone(), mechanisms, None)));
                let what = format!("{way:?} from {profile}, {for_ms} ms");
                assert_eq!([without.status, with.status], [FlowStatus::Completed; 2], "{what}");
                let [without, with] = [idle_ms(&without), idle_ms(&with)];
                assert!(with <= 150 && with < without, "{without} ms without, {with} with: {what}");
                total = [total[0] + without, total[1] + with];
            }
            // A timer may happen to expire soon after the return, but not each time.
            assert!(total[0] > 10 * total[1], "{way:?} from {profile}: {total:?}");
        }
    }
}

#[test]
fn a_key_in_a_silent_outage_arrives_with_the_first_probe() {
    for profile in LINUX {
        // The second key is struck at some 5.2 s; the host's timer repeats it some 0.3, 0.8, 1.8 and 3.8 s later.
        let echoed_ms = |mechanisms| {
            let report = run(with(keys(profile, ms(5_000), 2, &[(4_500, 7_500)], &[]), mechanisms, None));
            assert_eq!(report.status, FlowStatus::Completed);
            report.completed_at.expect("it is completed").saturating_since(at_ms(7_500)).as_millis()
        };
        let copied = echoed_ms(detecting());
        let without = echoed_ms(wake());
        let uncopied = echoed_ms(Mechanisms { own_data: false, ..detecting() });
        assert!(copied <= 50 + 40, "{profile}: {copied} ms");
        assert!(without >= 1_000, "{profile}: {without} ms without");
        assert!(uncopied < without, "{profile}: {uncopied} ms without copies");
    }
}

/// The host's link is reported to return at any moment between two expiries of its timer.
// Claim: In the simulator, a key that is struck while the link is down is answered within two round trips of the return with `own_data`,
// wherever the host's timer stands.
#[test]
fn a_key_follows_the_return_of_a_link_at_once() {
    let slowest_ms = |mechanisms: &Mechanisms| {
        let echoed_ms = |up: u64| {
            let config = keys(LINUX[0], ms(5_000), 2, &[], &[(4_500, up)]);
            let report = run(with(config, mechanisms.clone(), None));
            assert_eq!(report.status, FlowStatus::Completed);
            report.completed_at.expect("it is completed").saturating_since(at_ms(up)).as_millis()
        };
        (6_000..8_000).step_by(50).map(echoed_ms).max().expect("a return")
    };
    let [copied, uncopied] = [true, false].map(|own_data| slowest_ms(&Mechanisms { own_data, ..wake() }));
    assert!(copied <= 100, "{copied} ms");
    assert!(uncopied >= 200, "{uncopied} ms without copies");
}

/// Neither answered traffic nor rest is probed.
#[test]
fn a_link_that_carries_packets_is_not_probed() {
    for profile in LINUX {
        for way in [Way::Download, Way::Upload] {
            let [without, with] = [wake(), detecting()]
                .map(|mechanisms| run_counting(with(transfer(way, profile, &[]), mechanisms, None)));
            assert_eq!(without.1, with.1, "{way:?} {profile}");
            assert_eq!(without.0.completed_at, with.0.completed_at, "{way:?} {profile}");
        }
        let [without, with] = [wake(), detecting()].map(|mechanisms| {
            run_counting(with(keys(profile, Duration::from_secs(60), 20, &[], &[]), mechanisms, None))
        });
        assert_eq!(without.1, with.1, "{profile}");
    }
}

/// Bytes of the transfers of the property.
const BYTES: u64 = 400_000;

/// The most times at which the mechanism sends something: a number of them for each outage, and one in 25 ms of a silence. With losses there
/// may be a silence at any time.
fn most_made(outages: &[(u64, u64)], with_loss: bool, ended_at: Instant) -> u64 {
    let silent_ms: u64 = outages.iter().map(|&(down, up)| up - down).sum();
    let at_risk_ms = if with_loss { ended_at.as_millis() } else { silent_ms };
    100 * (1 + outages.len() as u64) + at_risk_ms / 25
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    // Claim: Whatever a silent path does, the streams of `wake` with `silence` stay exact, and its probes are bounded.
    #[test]
    fn streams_stay_exact_and_probes_are_bounded(
        silent in outages(2_000),
        reported in outages(4_000),
        profile in proptest::sample::select(Profile::ALL.to_vec()),
        kind in 0..3,
        own_data in any::<bool>(),
        after_ms in 100_u64..2_000,
        loss in prop_oneof![Just(0.0), 0.0..0.05],
    ) {
        let way = if kind == 0 { Way::Download } else { Way::Upload };
        let count = 20;
        let config = match kind {
            2 => keys(profile, ms(300), count, &silent, &reported),
            _ => beyond(world(way, profile, BYTES, &[]), &silent, &reported),
        };
        let mut config = tcp(config, |tcp| {
            tcp.limits.r2 = RetryLimit::Never;
            tcp.limits.syn_retries = u32::MAX;
        });
        config.time_limit = Instant::from_secs(100_000);
        for link in &mut config.links {
            link.forward.loss = Loss::Independent(loss);
            link.backward.loss = Loss::Independent(loss);
        }
        let silence = SilenceOptions { after: ms(after_ms), ..SilenceOptions::default() };
        let mechanisms = Mechanisms { silence: Some(silence), own_data, ..wake() };
        let (report, made) = run_counting(with(config, mechanisms, None));
        prop_assert_eq!(report.status, FlowStatus::Completed);
        prop_assert_eq!(report.bytes_received, if kind == 2 { 2 * 36 * count } else { BYTES });
        let outages: Vec<_> = silent.iter().chain(&reported).copied().collect();
        let most = most_made(&outages, loss > 0.0, report.ended_at);
        prop_assert!(made.times <= most && made.packets <= 40 * most, "{:?}, {} at most", made, most);
    }
}
