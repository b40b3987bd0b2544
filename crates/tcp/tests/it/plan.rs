//! Random schedules: the behaviour of the path, the applications and the connections' owners over time.

use holdover_base::{Duration, Instant};
use holdover_tcp::{AfterRetransmit, Connection, Timer};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::stacks::{Stack, stacks};
use crate::world::{Path, Side, World};

/// An action of a host's application or owner.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// So many more bytes are written as room permits.
    Write(usize),
    /// At most this many chunks are read now.
    Read(usize),
    /// Reads all data from now on, or stops.
    Reads(bool),
    /// No more data is written.
    Close,
    Verb(Verb),
}

/// One of the owner's verbs.
#[derive(Clone, Debug)]
pub(crate) enum Verb {
    ClampWindow(Option<u32>),
    /// Holds the ACK point this many bytes ahead of RCV.NXT.
    HoldAckPoint(u32),
    ReleaseAckPoint,
    SendAcks(u8),
    ShiftTimestampEcho(u32),
    RetransmitNow(AfterRetransmit),
    SetCwnd(u32),
    SetSsthresh(u32),
    ForceSlowStart,
    HoldTimer(Timer),
    ReleaseTimer(Timer),
    /// Bars everything up to this many bytes beyond SND.UNA.
    BarFastRetransmit(Option<u32>),
    SetUserTimeout(Option<Duration>),
    AdvertiseUserTimeout(Option<Duration>),
    MarkUrgent,
}

impl Verb {
    pub(crate) fn apply(&self, now: Instant, connection: &mut Connection) {
        match *self {
            Self::ClampWindow(bytes) => connection.clamp_window(bytes),
            Self::HoldAckPoint(ahead) => {
                let point = connection.rcv_nxt() + ahead;
                // Before the peer's SYN there is no ACK point to hold.
                if connection.state().is_synchronized() {
                    connection.hold_ack_point(Some(point));
                }
            }
            Self::ReleaseAckPoint => connection.hold_ack_point(None),
            Self::SendAcks(count) => connection.send_acks(count),
            Self::ShiftTimestampEcho(ticks) => connection.shift_timestamp_echo(ticks),
            Self::RetransmitNow(after) => {
                connection.retransmit_now(now, after);
            }
            Self::SetCwnd(segments) => connection.set_cwnd(segments),
            Self::SetSsthresh(segments) => connection.set_ssthresh(segments),
            Self::ForceSlowStart => connection.force_slow_start(),
            Self::HoldTimer(timer) => connection.hold_timer(now, timer),
            Self::ReleaseTimer(timer) => connection.release_timer(now, timer),
            Self::BarFastRetransmit(ahead) => {
                let seq = ahead.map(|ahead| connection.snd_una() + ahead);
                connection.bar_fast_retransmit_below(seq);
            }
            Self::SetUserTimeout(timeout) => connection.set_user_timeout(now, timeout, false),
            Self::AdvertiseUserTimeout(timeout) => connection.advertise_user_timeout(timeout),
            Self::MarkUrgent => connection.mark_urgent(),
        }
        connection.assert_invariants();
    }
}

/// One host's part.
#[derive(Clone, Debug)]
pub(crate) struct HostPlan {
    pub(crate) stack: Stack,
    pub(crate) reads_at_first: bool,
    /// Millisecond and action.
    pub(crate) actions: Vec<(u64, Action)>,
    pub(crate) leaves: bool,
}

/// One direction of the path.
#[derive(Clone, Debug)]
pub(crate) struct PathPlan {
    pub(crate) delay_us: u64,
    pub(crate) per_segment_us: u64,
    pub(crate) queue_limit: usize,
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    pub(crate) reorder: f64,
    pub(crate) reorder_by_ms: u64,
    pub(crate) jitter_us: u64,
    pub(crate) corrupt: f64,
    /// Start and length in milliseconds.
    pub(crate) outages: Vec<(u64, u64)>,
}

/// Everything about one case except its random numbers, and their seed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) from_both_sides: bool,
    pub(crate) client: HostPlan,
    pub(crate) server: HostPlan,
    pub(crate) forward: PathPlan,
    pub(crate) backward: PathPlan,
}

/// All disturbances end before this time: faults, pauses, verbs.
pub(crate) const CALM_FROM: Instant = Instant::from_secs(60);

impl Plan {
    /// The world at the start of this plan.
    pub(crate) fn world(&self) -> World {
        let (client, server) = (self.client.stack.config(), self.server.stack.config());
        let mut world = World::new(client, server, self.forward.path(), self.seed);
        world.backward = self.backward.path();
        if self.from_both_sides {
            world.open_from_both_sides();
        }
        for (side, plan) in [(Side::Client, &self.client), (Side::Server, &self.server)] {
            let host = world.host(side);
            host.reads = plan.reads_at_first;
            host.closes = false;
            host.leaves = plan.leaves;
            let mut actions = plan.actions.clone();
            actions.sort_by_key(|(at, _)| *at);
            host.script = actions.into_iter().map(|(at, action)| (Instant::from_millis(at), action)).collect();
            host.script.extend(calm().into_iter().map(|action| (CALM_FROM, action)));
        }
        world
    }

    /// Bytes that `side` writes.
    pub(crate) fn bytes(&self, side: Side) -> usize {
        let plan = if side == Side::Client { &self.client } else { &self.server };
        let written = |(_, action): &(u64, Action)| if let Action::Write(len) = action { *len } else { 0 };
        plan.actions.iter().map(written).sum()
    }
}

impl PathPlan {
    fn path(&self) -> Path {
        let at = Instant::from_millis;
        Path {
            per_segment: Duration::from_micros(self.per_segment_us),
            queue_limit: self.queue_limit,
            loss: self.loss,
            duplicate: self.duplicate,
            reorder: self.reorder,
            reorder_by: Duration::from_millis(self.reorder_by_ms),
            jitter: Duration::from_micros(self.jitter_us),
            corrupt: self.corrupt,
            outages: self.outages.iter().map(|&(start, len)| (at(start), at(start + len))).collect(),
            sound_from: CALM_FROM,
            ..Path::clean(Duration::from_micros(self.delay_us))
        }
    }
}

/// Undoes all actions. No window update is sent: the peer's probes must detect the open window. A held ACK is released: the peer
/// may have nothing else to send.
fn calm() -> Vec<Action> {
    let verbs = [
        Verb::ClampWindow(None),
        Verb::ReleaseAckPoint,
        Verb::SendAcks(1),
        Verb::ShiftTimestampEcho(0),
        Verb::BarFastRetransmit(None),
        Verb::SetUserTimeout(None),
    ];
    let releases = Timer::ALL.into_iter().map(Verb::ReleaseTimer);
    let verbs = verbs.into_iter().chain(releases).map(Action::Verb);
    verbs.chain([Action::Reads(true), Action::Close]).collect()
}

/// Any plan.
pub(crate) fn plans() -> impl Strategy<Value = Plan> {
    (any::<u64>(), prop::bool::weighted(0.1), hosts(), hosts(), paths(), paths()).prop_map(
        |(seed, from_both_sides, client, server, forward, backward)| Plan {
            seed,
            from_both_sides,
            client,
            server,
            forward,
            backward,
        },
    )
}

fn hosts() -> impl Strategy<Value = HostPlan> {
    let actions = prop_oneof![
        Just(vec![]),
        vec((moments(), applications()), 1..12),
        vec((moments(), prop_oneof![applications(), verbs().prop_map(Action::Verb)]), 1..20),
    ];
    (stacks(), prop::bool::weighted(0.8), actions, any::<bool>())
        .prop_map(|(stack, reads_at_first, actions, leaves)| HostPlan { stack, reads_at_first, actions, leaves })
}

/// Milliseconds before the end of the disturbances, most of them early.
fn moments() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0_u64..1000, 2 => 0_u64..10_000, 1 => 0_u64..60_000]
}

fn applications() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => (1_usize..100).prop_map(Action::Write),
        3 => (1_usize..5_000).prop_map(Action::Write),
        3 => (5_000_usize..60_000).prop_map(Action::Write),
        2 => (1_usize..10).prop_map(Action::Read),
        2 => any::<bool>().prop_map(Action::Reads),
        1 => Just(Action::Close),
    ]
}

fn verbs() -> impl Strategy<Value = Verb> {
    let after = vec![AfterRetransmit::BackOff, AfterRetransmit::Keep, AfterRetransmit::Reset];
    let ages = option::of((100_000_u64..1_000_000).prop_map(Duration::from_secs));
    prop_oneof![
        3 => option::weighted(0.7, prop_oneof![Just(0_u32), 1_u32..3000, 3000_u32..100_000]).prop_map(Verb::ClampWindow),
        2 => prop_oneof![Just(0_u32), 0_u32..5000].prop_map(Verb::HoldAckPoint),
        1 => Just(Verb::ReleaseAckPoint),
        2 => (1_u8..8).prop_map(Verb::SendAcks),
        1 => prop_oneof![0_u32..1000, any::<u32>()].prop_map(Verb::ShiftTimestampEcho),
        2 => select(after).prop_map(Verb::RetransmitNow),
        2 => prop_oneof![1_u32..100, any::<u32>()].prop_map(Verb::SetCwnd),
        2 => prop_oneof![1_u32..100, any::<u32>()].prop_map(Verb::SetSsthresh),
        1 => Just(Verb::ForceSlowStart),
        2 => select(&Timer::ALL[..]).prop_map(Verb::HoldTimer),
        1 => select(&Timer::ALL[..]).prop_map(Verb::ReleaseTimer),
        1 => option::of(0_u32..20_000).prop_map(Verb::BarFastRetransmit),
        1 => ages.clone().prop_map(Verb::SetUserTimeout),
        1 => ages.prop_map(Verb::AdvertiseUserTimeout),
        1 => Just(Verb::MarkUrgent),
    ]
}

fn paths() -> impl Strategy<Value = PathPlan> {
    let chance = |most: f64| prop_oneof![2 => Just(0.0), 1 => 0.0..most / 5.0, 1 => 0.0..most];
    (
        prop_oneof![1_u64..1000, 1000_u64..100_000, 100_000_u64..600_000],
        prop_oneof![Just(0_u64), 1_u64..10_000],
        prop_oneof![Just(usize::MAX), 1_usize..30],
        (chance(0.4), chance(0.3), chance(0.3), 1_u64..500),
        prop_oneof![2 => Just(0_u64), 1 => 1_u64..100_000],
        chance(0.2),
        vec((moments(), prop_oneof![1_u64..3000, 3000_u64..30_000]), 0..3),
    )
        .prop_map(
            |(
                delay_us,
                per_segment_us,
                queue_limit,
                (loss, duplicate, reorder, reorder_by_ms),
                jitter_us,
                corrupt,
                outages,
            )| {
                let outages = outages.into_iter().map(|(start, len)| (start, len.min(60_000 - start))).collect();
                PathPlan {
                    delay_us,
                    per_segment_us,
                    queue_limit,
                    loss,
                    duplicate,
                    reorder,
                    reorder_by_ms,
                    jitter_us,
                    corrupt,
                    outages,
                }
            },
        )
}
