//! Accurate ECN between peers of every kind, over paths that mark, lose, reorder, and rewrite what they should not: both streams arrive,
//! nothing is sent again without need, and both ends hold the same counts where the path leaves them alone.

use holdover_base::{Duration, Instant};
use holdover_tcp::{
    AccurateEcnOption, AccurateEcnRules, Config, Ecn, EcnBytes, EcnFeedback, EcnField, Profile, RecoveryState,
};
use proptest::prelude::*;

use crate::marking;
use crate::properties::cases;
use crate::world::{EcnDevice, Path, Side, World};

const ALL_ECN: [Ecn; 6] =
    [Ecn::Off, Ecn::Accept, Ecn::Request, Ecn::RequestAccurate, Ecn::AcceptAccurateRequest, Ecn::AcceptAccurate];

fn stacks() -> impl Strategy<Value = Config> {
    let options =
        [AccurateEcnOption::Off, AccurateEcnOption::Minimum, AccurateEcnOption::Full, AccurateEcnOption::Persist];
    let rules = [AccurateEcnRules::Rfc9768, AccurateEcnRules::Linux];
    (
        proptest::sample::select(Profile::ALL.to_vec()),
        prop_oneof![2 => Just(Ecn::RequestAccurate), 1 => proptest::sample::select(ALL_ECN.to_vec())],
        proptest::sample::select(options.to_vec()),
        0_u32..5,
        any::<bool>(),
        proptest::sample::select(rules.to_vec()),
        any::<bool>(),
    )
        .prop_map(|(profile, ecn, option, beacons, fallback, rules, sack)| {
            let mut config = profile.config();
            config.ecn = ecn;
            config.sack &= sack;
            config.accurate_ecn.option = option;
            config.accurate_ecn.beacons = beacons;
            config.accurate_ecn.fallback = fallback;
            config.accurate_ecn.rules = rules;
            config
        })
}

#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    stacks: [Config; 2],
    devices: [EcnDevice; 2],
    delay_ms: u64,
    per_segment_us: u64,
    mark: f64,
    loss: f64,
    duplicate: f64,
    reorder: f64,
    back: usize,
}

const SOUND_FROM: Instant = Instant::from_secs(30);

fn plans() -> impl Strategy<Value = Plan> {
    let devices = || proptest::sample::select(EcnDevice::ALL.to_vec());
    let chance = |most: f64| prop_oneof![2 => Just(0.0), 1 => 0.0..most];
    (
        any::<u64>(),
        (stacks(), stacks()),
        (devices(), devices()),
        (1_u64..200, prop_oneof![Just(0_u64), 1_u64..2_000]),
        prop_oneof![1 => Just(0.0), 2 => 0.0..0.1, 1 => 0.0..1.0],
        (chance(0.1), chance(0.1), chance(0.2)),
        prop_oneof![Just(0_usize), 1_usize..100_000],
    )
        .prop_map(
            |(
                seed,
                (client, server),
                (forward, backward),
                (delay_ms, per_segment_us),
                mark,
                (loss, duplicate, reorder),
                back,
            )| Plan {
                seed,
                stacks: [client, server],
                devices: [forward, backward],
                delay_ms,
                per_segment_us,
                mark,
                loss,
                duplicate,
                reorder,
                back,
            },
        )
}

const BYTES: usize = 120_000;

impl Plan {
    fn world(&self) -> World {
        let path = Path {
            per_segment: Duration::from_micros(self.per_segment_us),
            mark: self.mark,
            loss: self.loss,
            duplicate: self.duplicate,
            reorder: self.reorder,
            sound_from: SOUND_FROM,
            ..Path::clean(Duration::from_millis(self.delay_ms))
        };
        let [client, server] = self.stacks.clone();
        let mut world = World::new(client, server, path, self.seed);
        (world.forward.ecn, world.backward.ecn) = (self.devices[0], self.devices[1]);
        world.client.to_write = BYTES;
        world.server.to_write = self.back;
        world.step_cap = 200_000;
        world
    }

    /// Nothing is lost but SYNs.
    fn loses_nothing(&self) -> bool {
        let drops_options = self.devices.contains(&EcnDevice::DropsOption);
        self.loss == 0.0 && self.duplicate == 0.0 && self.reorder == 0.0 && !drops_options
    }

    /// An end that sends options, or asks, whatever happens, into a path that drops such packets.
    fn is_hopeless(&self) -> bool {
        let asks = self.stacks[0].ecn == Ecn::RequestAccurate && !self.stacks[0].accurate_ecn.fallback;
        if asks && self.devices[0] == EcnDevice::DropsSyns {
            return true;
        }
        let persists = |config: &Config| config.accurate_ecn.option == AccurateEcnOption::Persist;
        self.devices
            .iter()
            .zip(&self.stacks)
            .any(|(&device, stack)| device == EcnDevice::DropsOption && persists(stack))
    }
}

fn has_arrived(world: &mut World) -> bool {
    world.server.read_len == world.client.to_write && world.client.read_len == world.server.to_write
}

proptest! {
    #![proptest_config(cases(1_500))]

    /// Whatever the ends ask for, and whatever the path does: both streams arrive exactly, and the steps are bounded.
    // Claim: With any ECN setting at either end, marks, losses, duplication and reordering, and a device in each direction that
    // rewrites flags, ECN fields or options of accurate ECN, or drops packets with them, both streams arrive exactly; if nothing
    // is lost otherwise, nothing is sent again. (1,500 cases)
    #[test]
    fn both_streams_arrive_whatever_becomes_of_ecn(plan in plans()) {
        prop_assume!(!plan.is_hopeless());
        let mut world = plan.world();
        let done = world.run_until(Instant::from_secs(6_000), has_arrived);
        prop_assert!(done, "client {:?}, server {:?}", world.client.read_len, world.server.read_len);
        world.assert_streams_exact();
        if plan.loses_nothing() {
            // Only loss probes and timers that run out before a delayed ACK send anything again.
            for side in [Side::Client, Side::Server] {
                let bytes = world.host(side).connection().counters().bytes_retransmitted.0;
                prop_assert!(bytes <= 8 * 1460, "{bytes} bytes sent again by the {side:?}");
            }
        }
    }

    /// The same plan runs the same way twice.
    // Claim: A plan with any ECN settings, marks and devices that rewrite them runs the same way twice. (1,500 cases)
    #[test]
    fn a_plan_with_ecn_runs_the_same_way_twice(plan in plans()) {
        let log = |plan: &Plan| {
            let mut world = plan.world();
            world.log = Some(Vec::new());
            world.run_until(Instant::from_secs(100), has_arrived);
            world.log.unwrap_or_default()
        };
        let (first, second) = (log(&plan), log(&plan));
        prop_assert_eq!(first.len(), second.len());
        for (a, b) in first.into_iter().zip(second) {
            prop_assert_eq!((a.at, a.from, a.transmit), (b.at, b.from, b.transmit));
        }
    }

    /// Over a path that only marks, both ends hold the same counts in the end: no mark is missed, and with options no byte either.
    // Claim: Over a path that only marks, the sender's count of marks is never below the receiver's, above it by whole turns of
    // the field only and never above the packets sent, and with options their counts of bytes are equal. (1,500 cases)
    #[test]
    fn counts_agree_over_a_path_that_only_marks(
        plan in plans(),
        option in proptest::sample::select(vec![AccurateEcnOption::Off, AccurateEcnOption::Full]),
    ) {
        let mut plan = plan;
        (plan.loss, plan.duplicate, plan.reorder) = (0.0, 0.0, 0.0);
        plan.devices = [EcnDevice::Transparent; 2];
        for stack in &mut plan.stacks {
            stack.ecn = Ecn::RequestAccurate;
            stack.accurate_ecn.option = option;
        }
        let mut world = plan.world();
        world.client.closes = false;
        world.server.closes = false;
        let done = world.run_until(Instant::from_secs(3_000), has_arrived);
        prop_assert!(done);
        let until = world.now + Duration::from_secs(10);
        world.run_until(until, |_| false);
        for (from, to) in [(Side::Client, Side::Server), (Side::Server, Side::Client)] {
            prop_assert_eq!(world.host(from).connection().ecn_feedback(), EcnFeedback::Accurate);
            let reported = world.host(from).connection().delivered_ce();
            let counted = world.host(to).connection().received_ce();
            let bytes = world.host(to).connection().received_ecn_bytes();
            // Marks of pure ACKs are reported by the next segment, which may never come.
            let is_sender = world.side(from).to_write > 0;
            if is_sender && plan.back == 0 {
                prop_assert!(reported >= counted, "{reported} of {counted} marks");
                // The field counts in turns of eight: a count that is too high is so by whole turns, and never of more packets than were sent.
                prop_assert_eq!((reported - counted) % 8, 0, "{} of {} marks", reported, counted);
                let sent = world.host(from).connection().counters().segments_sent;
                prop_assert!(u64::from(reported) <= sent, "{reported} marks of {sent} packets");
                if option == AccurateEcnOption::Full {
                    let reported = world.host(from).connection().delivered_ecn_bytes();
                    prop_assert_eq!(reported, bytes);
                }
            }
        }
    }
}

/// A router that marks above a threshold keeps its queue short without a loss, as with the feedback of RFC 3168, and the sender knows of
/// every mark.
#[test]
fn marks_keep_the_queue_short_without_losses() {
    for (profile, option) in [
        (Profile::Linux6Cubic, AccurateEcnOption::Full),
        (Profile::Linux6Reno, AccurateEcnOption::Full),
        (Profile::Linux6Reno, AccurateEcnOption::Off),
    ] {
        let mut config = profile.config();
        config.ecn = Ecn::RequestAccurate;
        config.accurate_ecn.option = option;
        let mut world = marking::transfer_without_losses(config, profile.name());
        let client = world.client.connection();
        let (reported, counted) = (client.delivered_ce(), world.server.connection().received_ce());
        assert!(counted > 10 && reported >= counted.saturating_sub(2), "{profile}: {reported} of {counted}");
        assert!(world.now < Instant::from_millis(5_600), "{profile}: {:?}", world.now);
    }
}

/// Each device that rewrites flags or fields ends the use of ECN-capable packets under the rules of the RFC, and costs no byte.
#[test]
fn devices_that_rewrite_are_found() {
    for (device, is_capable) in [
        (EcnDevice::Transparent, true),
        (EcnDevice::ClearsField, true),
        (EcnDevice::MarksAll, false),
        (EcnDevice::ClearsAe, true),
        (EcnDevice::ClearsFlags, false),
        (EcnDevice::ClearsFlagsOfSyns, false),
        (EcnDevice::DropsSyns, false),
        (EcnDevice::StripsOption, true),
        (EcnDevice::ZeroesOption, true),
    ] {
        let mut config = Profile::Linux6Reno.config();
        config.ecn = Ecn::RequestAccurate;
        config.accurate_ecn.rules = AccurateEcnRules::Rfc9768;
        let mut world = World::new(config.clone(), config, Path::clean(Duration::from_millis(20)), 1);
        (world.forward.ecn, world.backward.ecn) = (device, device);
        world.client.to_write = BYTES;
        world.log = Some(Vec::new());
        assert!(world.run_until(Instant::from_secs(100), has_arrived), "{device:?}");
        assert_eq!(world.client.connection().counters().bytes_retransmitted.0, 0, "{device:?}");
        let fields = world.log.take().unwrap_or_default();
        let last =
            fields.iter().rfind(|logged| logged.from == Side::Client && !logged.transmit.segment.payload.is_empty());
        assert_eq!(last.map(|logged| logged.transmit.ecn != EcnField::NotEct), Some(is_capable), "{device:?}");
        if device == EcnDevice::ZeroesOption {
            assert_eq!(world.client.connection().delivered_ecn_bytes(), EcnBytes::default());
        }
        if device == EcnDevice::Transparent {
            assert_eq!(world.client.connection().recovery_state(), RecoveryState::Open);
        }
    }
}
