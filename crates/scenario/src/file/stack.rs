//! A TCP stack: a profile, and changes to single fields of it.

use core::num::NonZeroU32;

use holdover_tcp::{
    AckCounting, Algorithm, BufferGrowth, CwndIncrease, Ecn, Estimator, HyStartVariant, LossDetection, Paws,
    ProbePayload, Profile, Reduction, SsthreshBasis, WindowUpdate, ZeroWindow,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de};

use crate::quantity::{Bytes, Quantity, Retries, Segments, Time, Window};
use crate::word::{OrNone, Short, Shorthand, Word, vocabulary};

vocabulary!(Profile as "Profile" {
    Self::TahoeBsd => "tahoe-bsd",
    Self::RenoBsd => "reno-bsd",
    Self::Sack1Ns2 => "sack1-ns2",
    Self::Linux2_1 => "linux-2.1",
    Self::Linux2_4 => "linux-2.4",
    Self::Linux6Reno => "linux-6-reno",
    Self::Linux6Cubic => "linux-6-cubic",
    Self::Linux6Bbr => "linux-6-bbr",
    Self::BbrV3 => "bbr-v3",
});
vocabulary!(WindowUpdate as "WindowUpdate" {
    Self::Rfc9293 => "rfc9293",
    Self::LargerOnly => "larger-only",
    Self::LargerOrZero => "larger-or-zero",
});
vocabulary!(LossDetection as "LossDetection" {
    Self::Tahoe => "tahoe",
    Self::Reno => "reno",
    Self::NewReno => "newreno",
    Self::Sack => "sack",
    Self::Fack => "fack",
    Self::Rack => "rack",
});
vocabulary!(Reduction as "Reduction" {
    Self::Immediate => "immediate",
    Self::RateHalving => "rate-halving",
    Self::Proportional => "proportional",
});
vocabulary!(ZeroWindow as "ZeroWindow" {
    Self::Retransmit => "retransmit",
    Self::Freeze => "freeze",
    Self::PullBack => "pull-back",
});
vocabulary!(Algorithm as "Algorithm" {
    Self::Reno => "reno",
    Self::Cubic => "cubic",
    Self::Bbr => "bbr",
    Self::Bbr3 => "bbr3",
});
vocabulary!(Ecn as "Ecn" { Self::Off => "off", Self::Accept => "accept", Self::Request => "request" });
vocabulary!(Paws as "Paws" {
    Self::Rfc7323 => "rfc7323",
    Self::LinuxDuplicates => "linux-duplicates",
    Self::LinuxOldAcks => "linux-old-acks",
});
vocabulary!(HyStartVariant as "HyStartVariant" { Self::Linux => "linux", Self::Rfc9406 => "rfc9406" });
vocabulary!(AckCounting as "AckCounting" { Self::PerAck => "per-ack", Self::PerSegment => "per-segment" });
vocabulary!(BufferGrowth as "BufferGrowth" { Self::Linux2_6 => "linux-2.6", Self::Linux6_18 => "linux-6.18" });
vocabulary!(CwndIncrease as "CwndIncrease" { Self::WhileLimiting => "while-limiting", Self::EveryAck => "every-ack" });
vocabulary!(SsthreshBasis as "SsthreshBasis" {
    Self::FlightSize => "flight-size",
    Self::CongestionWindow => "congestion-window",
    Self::SendWindow => "send-window",
});
vocabulary!(Estimator as "Estimator" { Self::Rfc6298 => "rfc6298", Self::Linux => "linux", Self::Ns2 => "ns2" });
vocabulary!(ProbePayload as "ProbePayload" { Self::Empty => "empty", Self::OneByte => "one-byte" });

/// A TCP stack: a profile and changes to it. Without a profile, the changes are to the stack that would be used otherwise.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stack {
    /// The named stack that is changed.
    pub(crate) profile: Option<Word<Profile>>,
    /// The largest segment that this side is willing to receive, without headers: 48 to 65495 bytes.
    pub(crate) mss: Option<Bytes>,
    /// The window scale shift that is offered, 0 to 14, or "none".
    pub(crate) window_scale: Option<OrNone<u8>>,
    /// Whether SACK is offered.
    pub(crate) sack: Option<bool>,
    /// Whether duplicates are reported by DSACK.
    pub(crate) dsack: Option<bool>,
    /// The tick of the timestamp clock, or "none" for no timestamps.
    pub(crate) timestamps: Option<OrNone<Time>>,
    /// Which segments with an old timestamp are taken all the same, or dropped without an answer.
    pub(crate) paws: Option<Word<Paws>>,
    /// Whether Explicit Congestion Notification is used: never, if the peer asks for it, or asked for.
    pub(crate) ecn: Option<Word<Ecn>>,
    /// Sending.
    pub(crate) send: Option<Send>,
    /// Receiving and acknowledging.
    pub(crate) receive: Option<Receive>,
    /// How losses are detected and repaired.
    pub(crate) recovery: Option<Recovery>,
    /// Congestion control: an algorithm, or a table.
    pub(crate) congestion: Option<Short<Congestion>>,
    /// The retransmission timer.
    pub(crate) rto: Option<Rto>,
    /// Probing zero windows.
    pub(crate) persist: Option<Persist>,
    /// Giving up, and keeping alive.
    pub(crate) limits: Option<Limits>,
    /// The user timeout, or "none"; or a table.
    pub(crate) user_timeout: Option<Short<UserTimeout>>,
}

impl Shorthand for Stack {
    type Text = Word<Profile>;
    const EXPECTED: &'static str = "the name of a profile, or a table of changes to one";

    fn of_text<E: de::Error>(text: &str) -> Result<Self, E> {
        Ok(Self { profile: Some(Word::read(text)?), ..Self::default() })
    }

    fn text(&self) -> Option<String> {
        let profile = self.profile?;
        (*self == Self { profile: self.profile, ..Self::default() }).then(|| profile.name().to_owned())
    }
}

/// How data is sent.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Send {
    /// What may wait to be sent or acknowledged before the application has to wait.
    pub(crate) buffer: Option<Bytes>,
    /// Whether a small segment waits while data is outstanding.
    pub(crate) nagle: Option<bool>,
    /// Whether it waits only while another small segment is outstanding.
    pub(crate) minshall: Option<bool>,
    /// Which segments with nothing new may change the peer's window.
    pub(crate) window_update: Option<Word<WindowUpdate>>,
    /// How long less than a full segment may wait for a window that stays small.
    pub(crate) silly_window_override: Option<Time>,
}

/// How data is received and acknowledged.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Receive {
    /// The receive buffer at first.
    pub(crate) buffer: Option<Bytes>,
    /// The size up to which the buffer grows by itself.
    pub(crate) max_buffer: Option<Bytes>,
    /// How it grows: as in Linux 2.6.7 to 6.15, or as in Linux 6.18.
    pub(crate) growth: Option<Word<BufferGrowth>>,
    /// The largest window that is advertised at first, or "none" for the whole buffer.
    pub(crate) initial_window: Option<OrNone<Bytes>>,
    /// When to acknowledge: "immediate", "delayed" or "adaptive", or a table.
    pub(crate) ack: Option<Short<Ack>>,
    /// Whether "adaptive" acknowledges at once what lets the advertised window grow.
    pub(crate) quick_while_growing: Option<bool>,
}

/// When data is acknowledged.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ack {
    /// The policy: every segment at once, every second one and others after a delay, or as Linux does it. The default is the
    /// profile's.
    pub(crate) policy: Option<Word<AckKind>>,
    /// The longest delay of "delayed".
    pub(crate) delay: Option<Time>,
    /// The grain of the delay of "delayed"; 0 s for none.
    pub(crate) tick: Option<Time>,
    /// How many segments "adaptive" acknowledges at once after the start or a pause.
    pub(crate) quick_acks: Option<u8>,
    /// The shortest delay of "adaptive".
    pub(crate) min: Option<Time>,
    /// The longest delay of "adaptive".
    pub(crate) max: Option<Time>,
}

/// The policies of acknowledging.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckKind {
    Immediate,
    Delayed,
    Adaptive,
}

vocabulary!(AckKind as "AckPolicy" {
    Self::Immediate => "immediate",
    Self::Delayed => "delayed",
    Self::Adaptive => "adaptive",
});

impl Shorthand for Ack {
    type Text = Word<AckKind>;
    const EXPECTED: &'static str = "\"immediate\", \"delayed\", \"adaptive\", or a table";

    fn of_text<E: de::Error>(text: &str) -> Result<Self, E> {
        Ok(Self { policy: Some(Word::read(text)?), ..Self::default() })
    }

    fn text(&self) -> Option<String> {
        let policy = self.policy?;
        (*self == Self { policy: self.policy, ..Self::default() }).then(|| policy.name().to_owned())
    }
}

/// How losses are detected and repaired.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recovery {
    /// How losses are inferred where SACK was agreed.
    pub(crate) with_sack: Option<Word<LossDetection>>,
    /// How losses are inferred elsewhere.
    pub(crate) without_sack: Option<Word<LossDetection>>,
    /// Duplicate ACKs that begin recovery, at least 1.
    pub(crate) dup_ack_threshold: Option<u32>,
    /// How cwnd comes down in recovery.
    pub(crate) reduction: Option<Word<Reduction>>,
    /// New data on the first two duplicate ACKs (RFC 3042).
    pub(crate) limited_transmit: Option<bool>,
    /// Whether recovery by SACK, with nothing new to send, repairs what is not held lost yet (RFC 6675, NextSeg rules 3 and 4).
    pub(crate) repair_ahead: Option<bool>,
    /// Tail loss probes (RFC 8985).
    pub(crate) loss_probe: Option<bool>,
    /// Forward RTO-Recovery (RFC 5682).
    pub(crate) frto: Option<bool>,
    /// Undoing what a spurious timeout or recovery did (RFC 3522, RFC 4015).
    pub(crate) undo: Option<bool>,
    /// Whether fast retransmit is barred until what was outstanding at a timeout is acknowledged.
    pub(crate) bar_after_timeout: Option<bool>,
    /// Whether ssthresh is cut again at each timeout of the same segment.
    pub(crate) cut_on_each_timeout: Option<bool>,
    /// Whether a duplicate ACK must carry news in SACK blocks to count.
    pub(crate) dup_ack_needs_new_sack: Option<bool>,
    /// The most segments that reordering is tolerated for.
    pub(crate) max_reordering: Option<u32>,
    /// What happens to outstanding data when the peer closes its window.
    pub(crate) zero_window: Option<Word<ZeroWindow>>,
}

/// Congestion control.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Congestion {
    /// How the window grows and shrinks.
    pub(crate) algorithm: Option<Word<Algorithm>>,
    /// The window at the start.
    pub(crate) initial_window: Option<Window>,
    /// By how much an ACK opens the window.
    pub(crate) counting: Option<Word<AckCounting>>,
    /// Which ACKs open the window.
    pub(crate) increase: Option<Word<CwndIncrease>>,
    /// How often a SYN may be retransmitted before the connection begins with a window of one segment.
    pub(crate) syn_retransmissions_forgiven: Option<u32>,
    /// What ssthresh is computed from when a loss shows.
    pub(crate) ssthresh_basis: Option<Word<SsthreshBasis>>,
    /// Whether the window decays while it is not used (RFC 2861).
    pub(crate) validate_after_idle: Option<bool>,
    /// Whether the window is cut to the initial one after one idle RTO (RFC 5681).
    pub(crate) restart_after_idle: Option<bool>,
    /// Whether slow start leaves on a growing delay.
    pub(crate) hystart: Option<bool>,
    /// How it does: as in Linux's CUBIC, or by RFC 9406 (HyStart++).
    pub(crate) hystart_variant: Option<Word<HyStartVariant>>,
    /// Whether data is spread over the round trip: its rate in percent of cwnd / SRTT, or "none".
    pub(crate) pacing: Option<OrNone<Pacing>>,
    /// The largest window.
    pub(crate) max_window: Option<Segments>,
}

/// The pacing rate as a share of cwnd / SRTT.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pacing {
    /// While cwnd is less than half of ssthresh, in percent (Linux: 200).
    pub(crate) slow_start_percent: NonZeroU32,
    /// From there on, in percent (Linux: 120).
    pub(crate) avoidance_percent: NonZeroU32,
}

impl Shorthand for Congestion {
    type Text = Word<Algorithm>;
    const EXPECTED: &'static str = "\"reno\", \"cubic\", \"bbr\", or a table";

    fn of_text<E: de::Error>(text: &str) -> Result<Self, E> {
        Ok(Self { algorithm: Some(Word::read(text)?), ..Self::default() })
    }

    fn text(&self) -> Option<String> {
        let algorithm = self.algorithm?;
        (*self == Self { algorithm: self.algorithm, ..Self::default() }).then(|| algorithm.name().to_owned())
    }
}

/// The retransmission timer (RFC 6298).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rto {
    /// Before the first sample.
    pub(crate) initial: Option<Time>,
    /// The floor.
    pub(crate) min: Option<Time>,
    /// The ceiling, backed off or not.
    pub(crate) max: Option<Time>,
    /// The grain of the clock; 0 s for none.
    pub(crate) tick: Option<Time>,
    /// How samples become an RTO.
    pub(crate) estimator: Option<Word<Estimator>>,
    /// Whether only one segment is timed per window.
    pub(crate) one_sample_per_window: Option<bool>,
}

/// Probing zero windows.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Persist {
    /// The least time to the first probe.
    pub(crate) min: Option<Time>,
    /// The ceiling of the backoff.
    pub(crate) max: Option<Time>,
    /// What a probe carries.
    pub(crate) payload: Option<Word<ProbePayload>>,
    /// After how many unanswered probes the connection is given up, or "none".
    pub(crate) give_up_after: Option<OrNone<u32>>,
}

/// When to give up, and keep-alives.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    /// Retransmissions of a SYN before giving up.
    pub(crate) syn_retries: Option<u32>,
    /// Retransmissions of a segment before the application is told.
    pub(crate) r1: Option<u32>,
    /// Retransmissions of a segment before the connection is given up.
    pub(crate) r2: Option<Retries>,
    /// Keep-alive probes, or "none".
    pub(crate) keep_alive: Option<OrNone<KeepAlive>>,
    /// How long TIME-WAIT lasts.
    pub(crate) time_wait: Option<Time>,
    /// How long a connection whose application has gone stays in FIN-WAIT-2.
    pub(crate) fin_wait_2: Option<Time>,
    /// At most so many challenge ACKs in a second.
    pub(crate) challenge_acks_per_second: Option<u16>,
    /// The least time between answers to unacceptable segments without data and FIN, or "none".
    pub(crate) invalid_ack_interval: Option<OrNone<Time>>,
}

/// Keep-alive probing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeepAlive {
    /// How long the connection is idle before the first probe.
    pub(crate) idle: Time,
    /// The time between probes.
    pub(crate) interval: Time,
    /// Unanswered probes before the connection is given up.
    pub(crate) probes: u32,
}

/// The user timeout and its option (RFC 5482).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserTimeout {
    /// How long data may stay unacknowledged before the connection is given up, or "none".
    pub(crate) timeout: Option<OrNone<Time>>,
    /// What is advertised to the peer, or "none".
    pub(crate) advertise: Option<OrNone<Time>>,
    /// Whether the peer's advertisement may change the timeout.
    pub(crate) changeable: Option<bool>,
    /// The least that is adopted.
    pub(crate) lower_limit: Option<Time>,
    /// The most that is adopted.
    pub(crate) upper_limit: Option<Time>,
    /// Whether the timeout also ends a connection whose zero-window probes are answered.
    pub(crate) covers_zero_window: Option<bool>,
}

impl Shorthand for UserTimeout {
    type Text = OrNone<Time>;
    const EXPECTED: &'static str = "a time with its unit, such as \"30 s\", or \"none\", or a table";

    fn of_text<E: de::Error>(text: &str) -> Result<Self, E> {
        let timeout = match text {
            "none" => None,
            _ => Some(Time::read(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &Self::EXPECTED))?),
        };
        Ok(Self { timeout: Some(OrNone(timeout)), ..Self::default() })
    }

    fn text(&self) -> Option<String> {
        let timeout = self.timeout.clone()?;
        let text = timeout.0.map_or_else(|| "none".to_owned(), |time| time.write());
        (*self == Self { timeout: self.timeout.clone(), ..Self::default() }).then_some(text)
    }
}
