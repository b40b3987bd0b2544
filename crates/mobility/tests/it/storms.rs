//! Whatever the link does and whichever mechanisms are enabled, a transfer retransmits no more than its losses and timeouts explain, and is
//! over soon after the last outage.

use holdover_base::{Duration, Instant};
use holdover_link::{GilbertElliott, Loss};
use holdover_mobility::Mechanisms;
use holdover_sim::{
    Dropped, FlowReport, FlowStatus, Frame, NodeId, Observer, Place, Transit, World, WorldConfig, WorldEvent,
};
use holdover_tcp::{Config, LossDetection, Profile, Reason, RetryLimit};
use holdover_wire::{Flags, Segment, Seq};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::exact::mechanisms;
use crate::support::*;

const BYTES: u64 = 2_000_000;
/// A little less than the data of a full segment.
const SEGMENT: u64 = 1_400;

/// An account of the sender's permitted retransmissions, in bytes: data lost on the path, and data outstanding when a timer expired, at the
/// first retransmission after the link came or went, and in each round trip in which an ACK was lost and none followed before a
/// retransmission. Retransmissions by mechanisms get no further allowance.
#[derive(Debug)]
struct Account {
    sender: NodeId,
    /// SND.UNA, and the beginning and the end of what was sent, as packets show them at the sender.
    una: Option<Seq>,
    first: Option<Seq>,
    sent: Option<Seq>,
    timed_out: Option<Seq>,
    /// The end of the round trip that is already accounted for.
    round_end: Option<Seq>,
    /// The latest lost ACK, until a later one arrives.
    lost_ack: Option<Seq>,
    /// The link has come or gone: what mechanisms do then may retransmit all outstanding data.
    link_has_changed: bool,
    /// Tahoe retransmits all outstanding data, whatever was lost.
    is_tahoe: bool,
    lost: u64,
    by_timers: u64,
    by_disorder: u64,
    again: u64,
}

impl Account {
    fn new(sender: NodeId, config: &Config) -> Self {
        let detection = if config.sack { config.recovery.with_sack } else { config.recovery.without_sack };
        Self {
            sender,
            una: None,
            first: None,
            sent: None,
            timed_out: None,
            round_end: None,
            lost_ack: None,
            link_has_changed: false,
            is_tahoe: detection == LossDetection::Tahoe,
            lost: 0,
            by_timers: 0,
            by_disorder: 0,
            again: 0,
        }
    }

    fn outstanding(&self) -> u64 {
        self.una.zip(self.sent).map_or(0, |(una, sent)| u64::from(sent - una))
    }

    /// The loss of ACKs without a later one: the last data outstanding, once in a round trip.
    fn on_silence(&mut self) {
        let (Some(una), Some(sent)) = (self.una, self.sent) else { return };
        if self.lost_ack.take().is_some() && self.round_end.is_none_or(|end| una.ge(end)) {
            self.by_disorder += self.outstanding();
            self.round_end = Some(sent);
        }
    }

    fn on_sent(&mut self, segment: &Segment, reason: Option<Reason>) {
        let len = u64::from(segment.seq_len());
        let is_probe = matches!(reason, Some(Reason::WindowProbe | Reason::KeepAlive));
        if segment.flags.intersects(Flags::SYN | Flags::RST) || len == 0 || is_probe {
            return;
        }
        let end = segment.seq + segment.seq_len();
        match reason {
            Some(Reason::Timeout) if self.timed_out == Some(segment.seq) => self.by_timers += len,
            Some(Reason::Timeout) => {
                self.timed_out = Some(segment.seq);
                self.by_timers += self.outstanding();
            }
            Some(Reason::LossProbe) => self.by_timers += len,
            Some(Reason::FastRetransmit) if self.is_tahoe => self.by_timers += self.outstanding(),
            _ => {}
        }
        if self.sent.is_some_and(|sent| segment.seq.lt(sent)) {
            self.again += len;
            self.on_silence();
            if core::mem::take(&mut self.link_has_changed) {
                self.by_disorder += self.outstanding();
            }
        }
        self.una.get_or_insert(segment.seq);
        self.first.get_or_insert(segment.seq);
        self.sent = Some(self.sent.map_or(end, |sent| sent.max(end)));
    }

    /// The account, a quarter more for segments that are cut differently, and a few segments.
    fn most(&self) -> u64 {
        (self.lost + self.by_timers + self.by_disorder) * 5 / 4 + 8 * 1_460
    }
}

impl Observer for Account {
    fn packet(&mut self, _at: Instant, place: Place, frame: &Frame) {
        let Some(segment) = frame.packet().tcp().filter(|_| place.node == self.sender) else { return };
        match place.transit {
            Transit::Out => self.on_sent(segment, frame.reason),
            Transit::In if segment.flags.contains(Flags::ACK) => {
                self.lost_ack = self.lost_ack.filter(|&lost| !segment.ack.ge(lost));
                let una = self.una.map_or(segment.ack, |una| una.max(segment.ack));
                self.una = self.sent.is_none_or(|sent| una.le(sent)).then_some(una).or(self.una);
            }
            Transit::In => {}
        }
    }

    /// A packet that a host's mechanism filters does not count as lost.
    fn dropped(&mut self, _at: Instant, why: Dropped, frame: &Frame) {
        let Some(segment) = frame.packet().tcp().filter(|_| matches!(why, Dropped::Lost(..) | Dropped::Corrupted(_)))
        else {
            return;
        };
        if segment.payload.is_empty() && segment.flags.contains(Flags::ACK) {
            self.lost_ack = Some(self.lost_ack.map_or(segment.ack, |lost| lost.max(segment.ack)));
        }
        self.lost += u64::from(segment.seq_len());
    }

    fn event(&mut self, _at: Instant, event: &WorldEvent) {
        self.link_has_changed |= matches!(event, WorldEvent::LinkDown(_) | WorldEvent::LinkUp(_));
    }
}

/// The remaining work at the end of the last outage, in segments of [`SEGMENT`] bytes.
struct Calm {
    at: Instant,
    outstanding: u64,
    unacknowledged: u64,
}

impl Calm {
    fn of(at: Instant, account: &Account) -> Self {
        let acknowledged = account.una.zip(account.first).map_or(0, |(una, first)| u64::from(una - first));
        Self {
            at,
            outstanding: account.outstanding() / SEGMENT,
            unacknowledged: BYTES.saturating_sub(acknowledged) / SEGMENT,
        }
    }
}

fn run_observed(config: WorldConfig, calm_at: Instant) -> (FlowReport, Account, Calm) {
    let flow = &config.flows[0];
    let mut account = Account::new(flow.from, &flow.sender);
    let mut world = World::new(config).expect("a world");
    world.run_to(calm_at, &mut account);
    let calm = Calm::of(calm_at, &account);
    world.run(&mut account);
    (world.report().remove(0), account, calm)
}

/// A transfer over a link that comes and goes, and loses packets.
#[derive(Clone, Debug)]
struct Case {
    mechanisms: Mechanisms,
    profile: Profile,
    sack: bool,
    timestamps: bool,
    upload: bool,
    outages: Vec<(u64, u64)>,
    foresight_ms: Option<u64>,
    loss: Loss,
}

impl Case {
    fn world(&self) -> WorldConfig {
        let way = if self.upload { Way::Upload } else { Way::Download };
        let mut config = world(way, self.profile, BYTES, &self.outages);
        for link in &mut config.links {
            link.forward.loss = self.loss;
            link.backward.loss = self.loss;
        }
        config.time_limit = Instant::from_secs(100_000);
        tcp(config, |tcp| {
            // The channel's state changes only with packets, however long a timer waits in between.
            tcp.limits.r2 = RetryLimit::Never;
            tcp.limits.syn_retries = u32::MAX;
            tcp.sack &= self.sack;
            tcp.timestamps = tcp.timestamps.filter(|_| self.timestamps);
        })
    }

    fn is_lossless(&self) -> bool {
        self.loss == Loss::None
    }

    fn run(&self) {
        let config = with(self.world(), self.mechanisms.clone(), self.foresight_ms.map(Duration::from_millis));
        let sender = config.flows[0].sender.clone();
        let (report, account, calm) = run_observed(config, at_ms(self.outages.last().map_or(0, |&(_, up)| up)));
        assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, BYTES));
        let counted = report.sender.as_ref().map_or(0, |counters| counters.bytes_retransmitted.0);
        assert!(account.again >= counted, "the account has seen {} of {counted} bytes", account.again);
        // 4.3BSD permits fast retransmits after a timeout, and duplicates of needless ones begin the next (docs/limits.md).
        if sender.recovery.bar_after_timeout {
            let most = account.most();
            assert!(
                account.again <= most,
                "{} bytes were sent again, {most} at most: {} lost, {} by timers, {} by disorder",
                account.again,
                account.lost,
                account.by_timers,
                account.by_disorder
            );
        }
        // Without SACK, BBR's estimate of the bandwidth may collapse after many losses (docs/notes/linux-6.18.md).
        let is_slow_bbr = sender.congestion.algorithm.is_model_based() && !sender.sack;
        if self.is_lossless() && !is_slow_bbr {
            let took = report.over_at().saturating_since(calm.at);
            let most = Self::time_from(&calm, &sender);
            assert!(took <= most, "{took} from the last outage on, {most} at most");
        }
    }

    /// The longest time from the end of the last outage: the running timer, which was backed off while the link was gone, and six more;
    /// congestion avoidance from two segments on, by one in two round trips; a round trip with a full queue for each outstanding segment,
    /// because each may be a hole that only a partial ACK shows; and the rest at half the rate of the link.
    fn time_from(calm: &Calm, sender: &Config) -> Duration {
        let round_trip = ms(50 + 90);
        let rounds = 4 * calm.unacknowledged.isqrt() + calm.outstanding + 20;
        let timer = calm.at.saturating_since(Instant::ZERO) + sender.rto.initial;
        timer + sender.rto.min.max(sender.rto.initial) * 6 + round_trip * rounds + ms(2 * 1_700)
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let bursts = (0.0003..0.02, 0.2..1.0, 0.1..0.9).prop_map(|(good_to_bad, bad_to_good, loss_in_bad)| {
        Loss::GilbertElliott(GilbertElliott { good_to_bad, bad_to_good, loss_in_bad, loss_in_good: 0.0 })
    });
    let loss = prop_oneof![2 => Just(Loss::None), 1 => (0.0..0.03).prop_map(Loss::Independent), 2 => bursts];
    (
        mechanisms(),
        proptest::sample::select(Profile::ALL.to_vec()),
        any::<[bool; 3]>(),
        outages(2_000),
        proptest::option::of(1_u64..500),
        loss,
    )
        .prop_map(|(mechanisms, profile, [sack, timestamps, upload], outages, foresight_ms, loss)| Case {
            mechanisms,
            profile,
            sack,
            timestamps,
            upload,
            outages,
            foresight_ms,
            loss,
        })
}

/// A checker of the checker: each segment of data is retransmitted once more, with one reason.
struct Twice {
    account: Account,
    reason: Reason,
}

impl Observer for Twice {
    fn packet(&mut self, at: Instant, place: Place, frame: &Frame) {
        self.account.packet(at, place, frame);
        if let (Transit::Out, Some(segment)) = (place.transit, frame.packet().tcp())
            && place.node == self.account.sender
            && !segment.payload.is_empty()
        {
            self.account.on_sent(segment, Some(self.reason));
        }
    }

    fn dropped(&mut self, at: Instant, why: Dropped, frame: &Frame) {
        self.account.dropped(at, why, frame);
    }

    fn event(&mut self, at: Instant, event: &WorldEvent) {
        self.account.event(at, event);
    }
}

/// A sender or a mechanism that retransmits every window exceeds the bound, whatever outages and lost ACKs there are.
#[test]
fn a_window_retransmitted_twice_exceeds_the_bound() {
    for (reason, loss) in [
        (Reason::Requested, Loss::None),
        (Reason::Requested, Loss::Independent(0.02)),
        (Reason::FastRetransmit, Loss::None),
        (Reason::FastRetransmit, Loss::Independent(0.02)),
    ] {
        let case = Case {
            mechanisms: Mechanisms::default(),
            profile: Profile::Linux6Cubic,
            sack: true,
            timestamps: true,
            upload: false,
            outages: vec![(600, 900)],
            foresight_ms: None,
            loss,
        };
        let config = case.world();
        let account = Account::new(config.flows[0].from, &config.flows[0].sender);
        let mut twice = Twice { account, reason };
        World::new(config).expect("a world").run(&mut twice);
        let Account { again, .. } = twice.account;
        assert!(again > twice.account.most(), "{reason:?} {loss:?}: {again} of {}", twice.account.most());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(17), ..ProptestConfig::default() })]

    // Claim: With any combination of mechanisms of hosts, any profile, with and without SACK and timestamps, over a link with outages and
    // with losses one by one or in bursts (Gilbert-Elliott), retransmissions are at most a quarter more than what losses, timers, ACKs
    // lost without a later one and the link's coming and going explain; without losses, the transfer is over when timers, round trips
    // and the link's rate explain it. (400 cases)
    #[test]
    fn mechanisms_begin_no_storm(case in cases()) {
        case.run();
    }
}
