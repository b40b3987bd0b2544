//! Random stacks: a named profile or the standards' configuration, with some of its fields changed.

use holdover_base::Duration;
use holdover_tcp::{
    AccurateEcnOption, AccurateEcnRules, AckCounting, AckPolicy, Algorithm, BufferGrowth, Config, CwndIncrease, Ecn,
    Estimator, HyStartVariant, InitialWindow, KeepAlive, LossDetection, PacingConfig, Paws, ProbePayload, Profile,
    Reduction, RetryLimit, SsthreshBasis, WindowUpdate, ZeroWindow,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A configuration with its origin: a failing case prints the profile and the changes.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    /// `None` is [`Config::rfc`].
    pub(crate) profile: Option<Profile>,
    pub(crate) changes: Vec<Change>,
}

/// A change to a configuration.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    NoSack,
    NoDsack,
    Ecn(Ecn),
    AccurateEcnRules(AccurateEcnRules),
    AccurateEcnOption(AccurateEcnOption),
    Timestamps(Option<Duration>),
    Paws(Paws),
    InvalidAckInterval(Option<Duration>),
    WindowScale(Option<u8>),
    Mss(u16),
    SendBuffer(u32),
    ReceiveBuffer { first: u32, most: u32 },
    Growth(BufferGrowth),
    InitialReceiveWindow(u32),
    Acks(AckPolicy),
    Nagle(bool),
    WindowUpdates(WindowUpdate),
    SillyWindowOverride(Duration),
    Detection { with_sack: LossDetection, without_sack: LossDetection },
    DupAckThreshold(u32),
    Reduction(Reduction),
    LimitedTransmit(bool),
    RepairAhead(bool),
    LossProbe(bool),
    Frto(bool),
    Undo(bool),
    BarAfterTimeout(bool),
    CutOnEachTimeout(bool),
    DupAckNeedsNewSack(bool),
    ZeroWindow(ZeroWindow),
    Congestion(Algorithm, AckCounting, SsthreshBasis),
    Increase(CwndIncrease),
    InitialWindow(InitialWindow),
    Idle { validate: bool, restart: bool },
    HyStart(bool, HyStartVariant),
    Pacing(Option<PacingConfig>),
    MaxWindow(u32),
    Rto { initial: Duration, min: Duration, max: Duration },
    Tick(Duration),
    Estimator(Estimator),
    OneSamplePerWindow(bool),
    Persist { min: Duration, max: Duration },
    Probes(ProbePayload),
    KeepAlive(KeepAlive),
    UserTimeoutOption,
}

impl Stack {
    /// The configuration. It has no retry limits, because the tests show that everything finally arrives.
    pub(crate) fn config(&self) -> Config {
        let mut config = self.profile.map_or(Config::rfc(), Profile::config);
        for change in &self.changes {
            change.apply(&mut config);
        }
        // A window below its unit cannot be advertised, so no stack offers a shift that its buffer does not need.
        let needed = Config::window_scale_for(config.receive.max_buffer_bytes);
        config.window_scale = config.window_scale.map(|shift| shift.min(needed + 3));
        config.limits.r2 = RetryLimit::Never;
        config.limits.syn_retries = u32::MAX;
        config.persist.give_up_after = None;
        config
    }
}

impl Change {
    fn apply(&self, config: &mut Config) {
        match *self {
            Self::NoSack => config.sack = false,
            Self::NoDsack => config.dsack = false,
            Self::Ecn(ecn) => config.ecn = ecn,
            Self::AccurateEcnRules(rules) => config.accurate_ecn.rules = rules,
            Self::AccurateEcnOption(option) => config.accurate_ecn.option = option,
            Self::Timestamps(tick) => config.timestamps = tick,
            Self::Paws(paws) => config.paws = paws,
            Self::InvalidAckInterval(interval) => config.limits.invalid_ack_interval = interval,
            Self::WindowScale(shift) => config.window_scale = shift,
            Self::Mss(mss) => config.mss = mss,
            Self::SendBuffer(bytes) => config.send.fix_buffer(bytes),
            Self::ReceiveBuffer { first, most } => {
                config.receive.buffer_bytes = first;
                config.receive.max_buffer_bytes = most.max(first);
            }
            Self::Growth(growth) => config.receive.growth = growth,
            Self::InitialReceiveWindow(bytes) => config.receive.initial_window_bytes = bytes,
            Self::Acks(policy) => config.receive.ack = policy,
            Self::Nagle(on) => config.send.nagle = on,
            Self::WindowUpdates(rule) => config.send.window_update = rule,
            Self::SillyWindowOverride(delay) => config.send.silly_window_override = delay,
            Self::KeepAlive(keep_alive) => config.limits.keep_alive = Some(keep_alive),
            Self::UserTimeoutOption => config.user_timeout.advertise = Some(Duration::from_secs(86_400)),
            _ => self.apply_to_recovery(config),
        }
    }

    fn apply_to_recovery(&self, config: &mut Config) {
        let recovery = &mut config.recovery;
        match *self {
            Self::Detection { with_sack, without_sack } => {
                recovery.with_sack = with_sack;
                recovery.without_sack = without_sack;
            }
            Self::DupAckThreshold(segments) => recovery.dup_ack_threshold = segments,
            Self::Reduction(reduction) => recovery.reduction = reduction,
            Self::LimitedTransmit(on) => recovery.limited_transmit = on,
            Self::RepairAhead(on) => recovery.repair_ahead = on,
            Self::LossProbe(on) => recovery.loss_probe = on,
            Self::Frto(on) => recovery.frto = on,
            Self::Undo(on) => recovery.undo = on,
            Self::BarAfterTimeout(on) => recovery.bar_after_timeout = on,
            Self::CutOnEachTimeout(on) => recovery.cut_on_each_timeout = on,
            Self::DupAckNeedsNewSack(on) => recovery.dup_ack_needs_new_sack = on,
            Self::ZeroWindow(policy) => recovery.zero_window = policy,
            _ => self.apply_to_pace(config),
        }
    }

    fn apply_to_pace(&self, config: &mut Config) {
        let congestion = &mut config.congestion;
        match *self {
            Self::Congestion(algorithm, counting, basis) => {
                congestion.algorithm = algorithm;
                congestion.counting = counting;
                congestion.ssthresh_basis = basis;
            }
            Self::Increase(increase) => congestion.increase = increase,
            Self::InitialWindow(window) => congestion.initial_window = window,
            Self::Idle { validate, restart } => {
                congestion.validate_after_idle = validate;
                congestion.restart_after_idle = restart;
            }
            Self::HyStart(on, variant) => (congestion.hystart, congestion.hystart_variant) = (on, variant),
            Self::Pacing(pacing) => congestion.pacing = pacing,
            Self::MaxWindow(segments) => congestion.max_window_segments = segments,
            Self::Rto { initial, min, max } => {
                config.rto.initial = initial;
                config.rto.min = min;
                config.rto.max = max;
            }
            Self::Tick(tick) => config.rto.tick = tick,
            Self::Estimator(estimator) => config.rto.estimator = estimator,
            Self::OneSamplePerWindow(on) => config.rto.one_sample_per_window = on,
            Self::Persist { min, max } => {
                config.persist.min = min;
                config.persist.max = max;
            }
            Self::Probes(payload) => config.persist.payload = payload,
            _ => unreachable!("{self:?} is applied above"),
        }
    }
}

/// Any stack.
pub(crate) fn stacks() -> impl Strategy<Value = Stack> {
    let profile = option::weighted(0.8, select(&Profile::ALL[..]));
    (profile, vec(changes(), 0..6)).prop_map(|(profile, changes)| Stack { profile, changes })
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![exchange_changes(), receiver_changes(), recovery_changes(), window_changes(), timer_changes()]
}

fn exchange_changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::NoSack),
        Just(Change::NoDsack),
        select(vec![
            Ecn::Off,
            Ecn::Accept,
            Ecn::Request,
            Ecn::RequestAccurate,
            Ecn::AcceptAccurateRequest,
            Ecn::AcceptAccurate
        ])
        .prop_map(Change::Ecn),
        select(vec![AccurateEcnRules::Rfc9768, AccurateEcnRules::Linux]).prop_map(Change::AccurateEcnRules),
        select(vec![
            AccurateEcnOption::Off,
            AccurateEcnOption::Minimum,
            AccurateEcnOption::Full,
            AccurateEcnOption::Persist
        ])
        .prop_map(Change::AccurateEcnOption),
        option::of(select(vec![ms(1), ms(10), ms(100), Duration::from_micros(1)])).prop_map(Change::Timestamps),
        select(vec![Paws::Rfc7323, Paws::LinuxDuplicates, Paws::LinuxOldAcks]).prop_map(Change::Paws),
        option::of((1_u64..1000).prop_map(ms)).prop_map(Change::InvalidAckInterval),
        option::of(0_u8..=15).prop_map(Change::WindowScale),
        select(vec![88_u16, 100, 256, 536, 999, 1220, 1460, 8960]).prop_map(Change::Mss),
        Just(Change::UserTimeoutOption),
        (1_u64..100, 1_u64..100).prop_map(|(idle, interval)| {
            Change::KeepAlive(KeepAlive {
                idle: ms(idle * 500),
                interval: ms(interval * 500),
                // More probes than any outage in these tests can exhaust.
                probes: 100_000,
            })
        }),
    ]
}

fn receiver_changes() -> impl Strategy<Value = Change> {
    let policies = prop_oneof![
        Just(AckPolicy::Immediate),
        (1_u64..500, select(vec![0_u64, 200, 500]))
            .prop_map(|(delay, tick)| AckPolicy::Delayed { delay: ms(delay), tick: ms(tick) }),
        (0_u8..20, 1_u64..50, 50_u64..500).prop_map(|(quick_acks, min, max)| AckPolicy::Adaptive {
            quick_acks,
            min: ms(min),
            max: ms(max)
        }),
    ];
    prop_oneof![
        policies.prop_map(Change::Acks),
        (select(vec![200_u32, 1000, 3000, 8192, 20_000, 65_535, 200_000]), 1_u32..4)
            .prop_map(|(first, factor)| Change::ReceiveBuffer { first, most: first * factor }),
        select(vec![BufferGrowth::Linux2_6, BufferGrowth::Linux6_18]).prop_map(Change::Growth),
        select(vec![500_u32, 2920, 5840, 14_600, u32::MAX]).prop_map(Change::InitialReceiveWindow),
    ]
}

fn recovery_changes() -> impl Strategy<Value = Change> {
    use LossDetection::{Fack, NewReno, Rack, Reno, Sack, Tahoe};
    let detections = (select(vec![Tahoe, Reno, NewReno, Sack, Fack, Rack]), select(vec![Tahoe, Reno, NewReno]))
        .prop_map(|(with_sack, without_sack)| Change::Detection { with_sack, without_sack });
    let reductions = select(vec![Reduction::Immediate, Reduction::RateHalving, Reduction::Proportional]);
    prop_oneof![
        3 => detections,
        1 => (1_u32..8).prop_map(Change::DupAckThreshold),
        2 => reductions.prop_map(Change::Reduction),
        1 => any::<bool>().prop_map(Change::LimitedTransmit),
        1 => any::<bool>().prop_map(Change::RepairAhead),
        1 => any::<bool>().prop_map(Change::LossProbe),
        1 => any::<bool>().prop_map(Change::Frto),
        1 => any::<bool>().prop_map(Change::Undo),
        1 => any::<bool>().prop_map(Change::BarAfterTimeout),
        1 => any::<bool>().prop_map(Change::CutOnEachTimeout),
        1 => any::<bool>().prop_map(Change::DupAckNeedsNewSack),
        3 => select(vec![ZeroWindow::Retransmit, ZeroWindow::Freeze, ZeroWindow::PullBack]).prop_map(Change::ZeroWindow),
    ]
}

fn window_changes() -> impl Strategy<Value = Change> {
    let algorithms = (
        select(vec![Algorithm::Reno, Algorithm::Cubic, Algorithm::Bbr, Algorithm::Bbr3]),
        select(vec![AckCounting::PerAck, AckCounting::PerSegment]),
        select(vec![SsthreshBasis::FlightSize, SsthreshBasis::CongestionWindow, SsthreshBasis::SendWindow]),
    );
    let rules = vec![WindowUpdate::Rfc9293, WindowUpdate::LargerOnly, WindowUpdate::LargerOrZero];
    prop_oneof![
        algorithms.prop_map(|(algorithm, counting, basis)| Change::Congestion(algorithm, counting, basis)),
        select(vec![CwndIncrease::WhileLimiting, CwndIncrease::EveryAck]).prop_map(Change::Increase),
        prop_oneof![
            (1_u32..20).prop_map(InitialWindow::Segments),
            Just(InitialWindow::Rfc3390),
            Just(InitialWindow::Rfc6928)
        ]
        .prop_map(Change::InitialWindow),
        (any::<bool>(), any::<bool>()).prop_map(|(validate, restart)| Change::Idle { validate, restart }),
        (any::<bool>(), select(vec![HyStartVariant::Linux, HyStartVariant::Rfc9406]))
            .prop_map(|(on, variant)| Change::HyStart(on, variant)),
        option::weighted(0.8, (80_u32..300, 80_u32..200)).prop_map(|percent| {
            let pacing =
                |(slow_start_percent, avoidance_percent)| PacingConfig { slow_start_percent, avoidance_percent };
            Change::Pacing(percent.map(pacing))
        }),
        (1_u32..40).prop_map(Change::MaxWindow),
        select(vec![100_u32, 1000, 4000, 16_384, 100_000]).prop_map(Change::SendBuffer),
        any::<bool>().prop_map(Change::Nagle),
        select(rules).prop_map(Change::WindowUpdates),
        (100_u64..1000).prop_map(|delay| Change::SillyWindowOverride(ms(delay))),
    ]
}

fn timer_changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        (1_u64..7, 1_u64..11, 1_u64..121).prop_map(|(initial, min, max)| {
            let (min, max) = (ms(min * 100), ms(max * 1000));
            Change::Rto { initial: ms(initial * 500).max(min).min(max), min, max: max.max(min) }
        }),
        select(vec![0_u64, 10, 100, 500]).prop_map(|tick| Change::Tick(ms(tick))),
        select(vec![Estimator::Rfc6298, Estimator::Linux]).prop_map(Change::Estimator),
        any::<bool>().prop_map(Change::OneSamplePerWindow),
        (0_u64..50, 1_u64..60).prop_map(|(min, max)| Change::Persist { min: ms(min * 100), max: ms(max * 1000) }),
        select(vec![ProbePayload::Empty, ProbePayload::OneByte]).prop_map(Change::Probes),
    ]
}
