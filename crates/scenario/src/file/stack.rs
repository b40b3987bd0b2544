//! A TCP stack: a profile, and changes to single fields of it.

use core::num::NonZeroU32;

use holdover_tcp::{
    AccurateEcnOption, AccurateEcnRules, AckCounting, Algorithm, BeyondWindow, BufferGrowth, CwndIncrease, Ecn,
    Estimator, HyStartVariant, LossDetection, MtuProbing, Paws, ProbePayload, Profile, Reduction, SsthreshBasis,
    WindowUpdate, ZeroWindow,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de};

use crate::quantity::{Bytes, Quantity, Retries, Segments, Time, Window};
use crate::word::{OrNone, Short, Shorthand, Vocabulary, Word, vocabulary};

impl Vocabulary for Profile {
    const TITLE: &'static str = "Profile";
    const VALUES: &'static [Self] = &Self::ALL;
    const NAMES: &'static [&'static str] = &PROFILE_NAMES;
}

/// The names of [`Profile::ALL`], in this order.
const PROFILE_NAMES: [&str; Profile::ALL.len()] = {
    let mut names = [""; Profile::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Profile::ALL[at].name();
        at += 1;
    }
    names
};

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
vocabulary!(Ecn as "Ecn" {
    Self::Off => "off",
    Self::Accept => "accept",
    Self::Request => "request",
    Self::RequestAccurate => "request-accurate",
    Self::AcceptAccurateRequest => "accept-accurate-request",
    Self::AcceptAccurate => "accept-accurate",
});
vocabulary!(AccurateEcnOption as "AccurateEcnOption" {
    Self::Off => "off",
    Self::Minimum => "minimum",
    Self::Full => "full",
    Self::Persist => "persist",
});
vocabulary!(AccurateEcnRules as "AccurateEcnRules" { Self::Rfc9768 => "rfc9768", Self::Linux => "linux" });
vocabulary!(BeyondWindow as "BeyondWindow" { Self::Cut => "cut", Self::WholeIfRead => "whole-if-read" });
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
vocabulary!(MtuProbing as "MtuProbing" {
    Self::Off => "off",
    Self::AfterBlackHole => "after-black-hole",
    Self::Always => "always",
});
vocabulary!(ProbePayload as "ProbePayload" { Self::Empty => "empty", Self::OneByte => "one-byte" });

/// A TCP stack: a profile and changes to it. Without a profile, the changes apply to the stack of the next level up (flow, host or scenario).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stack {
    /// The profile that the table modifies.
    pub(crate) profile: Option<Word<Profile>>,
    /// The largest segment that this end accepts, without headers: 48 to 65495 bytes.
    pub(crate) mss: Option<Bytes>,
    /// The shift count of the window scale option, 0 to 14, or "none".
    pub(crate) window_scale: Option<OrNone<u8>>,
    /// Whether the SACK option is sent.
    pub(crate) sack: Option<bool>,
    /// Whether duplicate segments are reported by DSACK.
    pub(crate) dsack: Option<bool>,
    /// The tick of the timestamp clock, or "none" for no timestamps.
    pub(crate) timestamps: Option<OrNone<Time>>,
    /// The segments with an old timestamp that are accepted nevertheless, or dropped without an answer.
    pub(crate) paws: Option<Word<Paws>>,
    /// Whether Explicit Congestion Notification is off, accepted if the peer requests it, or requested; with accurate feedback (RFC 9768)
    /// requested and accepted, accepted while that of RFC 3168 is requested, or only accepted.
    pub(crate) ecn: Option<Word<Ecn>>,
    /// Accurate feedback, where `ecn` allows it.
    pub(crate) accurate_ecn: Option<AccurateEcn>,
    /// Whether data is sent and taken in SYNs (TCP Fast Open, RFC 7413): never, with a cookie that the server has given, or without one.
    pub(crate) fast_open: Option<Word<FastOpen>>,
    /// Path MTU discovery by probes (RFC 4821): when, or a table.
    pub(crate) mtu_probing: Option<Short<PathMtu>>,
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
    /// Retry limits and keep-alives.
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

/// Accurate ECN feedback (RFC 9768).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccurateEcn {
    /// When segments carry the option: never, when its counters change, whenever there is room unless such segments seem to get lost, or
    /// whenever there is room.
    pub(crate) option: Option<Word<AccurateEcnOption>>,
    /// How many options are sent in a round trip at least; 0 for no minimum.
    pub(crate) beacons: Option<u32>,
    /// Whether a path that rewrites flags or the ECN field ends the use of ECN, and SYNs that are sent again stop asking for it.
    pub(crate) fallback: Option<bool>,
    /// The choice where the standard leaves one: its recommendations, or the behaviour of Linux.
    pub(crate) rules: Option<Word<AccurateEcnRules>>,
}

/// Data in SYNs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FastOpen {
    Off,
    Cookie,
    NoCookie,
}

vocabulary!(FastOpen as "FastOpen" {
    Self::Off => "off",
    Self::Cookie => "cookie",
    Self::NoCookie => "no-cookie",
});

/// Path MTU discovery by probes (RFC 4821), as in Linux.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PathMtu {
    /// When the path is probed: never, once repeated timeouts indicate that the path drops large packets without an ICMP error, or always.
    pub(crate) when: Option<Word<MtuProbing>>,
    /// The data of a segment at which a search begins.
    pub(crate) base_mss: Option<Bytes>,
    /// The least to which repeated timeouts lower it.
    pub(crate) floor_mss: Option<Bytes>,
    /// The least segment size, options included, that the peer or the path can ask for.
    pub(crate) min_mss: Option<Bytes>,
    /// How long after its begin a finished search begins anew.
    pub(crate) interval: Option<Time>,
    /// A search over fewer bytes than this is finished.
    pub(crate) threshold: Option<Bytes>,
}

impl Shorthand for PathMtu {
    type Text = Word<MtuProbing>;
    const EXPECTED: &'static str = "\"off\", \"after-black-hole\", \"always\", or a table";

    fn of_text<E: de::Error>(text: &str) -> Result<Self, E> {
        Ok(Self { when: Some(Word::read(text)?), ..Self::default() })
    }

    fn text(&self) -> Option<String> {
        let when = self.when?;
        (*self == Self { when: self.when, ..Self::default() }).then(|| when.name().to_owned())
    }
}

/// How data is sent.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Send {
    /// The send buffer: how much unsent and unacknowledged data TCP holds before the application blocks.
    pub(crate) buffer: Option<Bytes>,
    /// The size up to which the buffer grows with the congestion window; without it, a `buffer` does not grow.
    pub(crate) max_buffer: Option<Bytes>,
    /// Whether a small segment waits while data is outstanding (Nagle's algorithm).
    pub(crate) nagle: Option<bool>,
    /// Whether it waits only while another small segment is outstanding.
    pub(crate) minshall: Option<bool>,
    /// The segments without new data or ACK that may change the peer's window.
    pub(crate) window_update: Option<Word<WindowUpdate>>,
    /// How long less than a full segment may wait for a larger window.
    pub(crate) silly_window_override: Option<Time>,
    /// Whether new data leaves in bursts, and waits for the next ACK if that makes a larger one.
    pub(crate) defer_bursts: Option<bool>,
}

/// How data is received and acknowledged.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Receive {
    /// The initial receive buffer.
    pub(crate) buffer: Option<Bytes>,
    /// The size up to which the buffer grows automatically.
    pub(crate) max_buffer: Option<Bytes>,
    /// The algorithm of the growth: as in Linux 2.6.7 to 6.15, or as in Linux 6.18.
    pub(crate) growth: Option<Word<BufferGrowth>>,
    /// The largest window that is advertised initially, or "none" for the whole buffer.
    pub(crate) initial_window: Option<OrNone<Bytes>>,
    /// When to acknowledge: "immediate", "delayed" or "adaptive", or a table.
    pub(crate) ack: Option<Short<Ack>>,
    /// The treatment of data beyond the window: it is cut off, or the segment is taken whole if nothing waits to be read and dropped
    /// otherwise.
    pub(crate) beyond_window: Option<Word<BeyondWindow>>,
    /// Whether "adaptive" acknowledges at once data that lets the advertised window grow.
    pub(crate) quick_while_growing: Option<bool>,
    /// Whether, with SACK, one ACK stands for several segments out of order after the first three.
    pub(crate) compress_sacks: Option<bool>,
}

/// When data is acknowledged.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ack {
    /// The policy: every segment at once, every second one and others after a delay, or as in Linux. The default is the
    /// profile's.
    pub(crate) policy: Option<Word<AckKind>>,
    /// The longest delay of "delayed".
    pub(crate) delay: Option<Time>,
    /// The granularity of the delay of "delayed"; 0 s for none.
    pub(crate) tick: Option<Time>,
    /// How many segments "adaptive" acknowledges at once after the start or a pause.
    pub(crate) quick_acks: Option<u8>,
    /// The shortest delay of "adaptive".
    pub(crate) min: Option<Time>,
    /// The longest delay of "adaptive".
    pub(crate) max: Option<Time>,
}

/// The acknowledgement policies.
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
    /// Loss detection with SACK.
    pub(crate) with_sack: Option<Word<LossDetection>>,
    /// Loss detection without SACK.
    pub(crate) without_sack: Option<Word<LossDetection>>,
    /// The number of duplicate ACKs that begins recovery, at least 1.
    pub(crate) dup_ack_threshold: Option<u32>,
    /// How recovery reduces cwnd.
    pub(crate) reduction: Option<Word<Reduction>>,
    /// Whether the first two duplicate ACKs send new data (RFC 3042).
    pub(crate) limited_transmit: Option<bool>,
    /// Whether recovery by SACK, without new data to send, retransmits data that is not yet considered lost (RFC 6675,
    /// NextSeg rules 3 and 4).
    pub(crate) repair_ahead: Option<bool>,
    /// Tail loss probes (RFC 8985).
    pub(crate) loss_probe: Option<bool>,
    /// Forward RTO-Recovery (RFC 5682).
    pub(crate) frto: Option<bool>,
    /// Whether the effects of a spurious timeout or recovery are undone (RFC 3522, RFC 4015).
    pub(crate) undo: Option<bool>,
    /// Whether fast retransmit is barred until all data outstanding at a timeout is acknowledged.
    pub(crate) bar_after_timeout: Option<bool>,
    /// Whether ssthresh is reduced again at each timeout of the same segment.
    pub(crate) cut_on_each_timeout: Option<bool>,
    /// Whether a duplicate ACK counts only if its SACK blocks report new data.
    pub(crate) dup_ack_needs_new_sack: Option<bool>,
    /// The limit of the reordering degree, in segments.
    pub(crate) max_reordering: Option<u32>,
    /// The treatment of outstanding data when the peer closes its window.
    pub(crate) zero_window: Option<Word<ZeroWindow>>,
}

/// Congestion control.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Congestion {
    /// The algorithm.
    pub(crate) algorithm: Option<Word<Algorithm>>,
    /// The initial window.
    pub(crate) initial_window: Option<Window>,
    /// The increase per ACK.
    pub(crate) counting: Option<Word<AckCounting>>,
    /// The ACKs that increase the window.
    pub(crate) increase: Option<Word<CwndIncrease>>,
    /// How many retransmissions of a SYN are allowed before the initial window is reduced to one segment.
    pub(crate) syn_retransmissions_forgiven: Option<u32>,
    /// The basis of ssthresh after a loss.
    pub(crate) ssthresh_basis: Option<Word<SsthreshBasis>>,
    /// Whether an unused window decays (RFC 2861).
    pub(crate) validate_after_idle: Option<bool>,
    /// Whether the window is reset to the initial window after one RTO of idle time (RFC 5681).
    pub(crate) restart_after_idle: Option<bool>,
    /// Whether slow start ends when the delay grows.
    pub(crate) hystart: Option<bool>,
    /// The algorithm of HyStart: as in Linux's CUBIC, or RFC 9406 (HyStart++).
    pub(crate) hystart_variant: Option<Word<HyStartVariant>>,
    /// The pacing rate as a percentage of cwnd / SRTT, or "none".
    pub(crate) pacing: Option<OrNone<Pacing>>,
    /// The largest window.
    pub(crate) max_window: Option<Segments>,
}

/// The pacing rate as a percentage of cwnd / SRTT.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pacing {
    /// The rate while cwnd is below half of ssthresh, in percent (Linux: 200).
    pub(crate) slow_start_percent: NonZeroU32,
    /// The rate above that, in percent (Linux: 120).
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
    /// The RTO before the first sample.
    pub(crate) initial: Option<Time>,
    /// The minimum of the RTO.
    pub(crate) min: Option<Time>,
    /// The maximum of the RTO, with and without backoff.
    pub(crate) max: Option<Time>,
    /// The granularity of the clock; 0 s for none.
    pub(crate) tick: Option<Time>,
    /// The estimator of the RTO.
    pub(crate) estimator: Option<Word<Estimator>>,
    /// Whether only one segment per window is timed.
    pub(crate) one_sample_per_window: Option<bool>,
}

/// Probing zero windows.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Persist {
    /// The least time to the first probe.
    pub(crate) min: Option<Time>,
    /// The maximum of the backoff.
    pub(crate) max: Option<Time>,
    /// The payload of a probe.
    pub(crate) payload: Option<Word<ProbePayload>>,
    /// How many unanswered probes TCP sends before it aborts the connection, or "none".
    pub(crate) give_up_after: Option<OrNone<u32>>,
}

/// Retry limits, and keep-alives.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    /// How often a SYN is retransmitted before TCP gives up.
    pub(crate) syn_retries: Option<u32>,
    /// How often a segment is retransmitted before the application is notified.
    pub(crate) r1: Option<u32>,
    /// How often a segment is retransmitted before TCP aborts the connection.
    pub(crate) r2: Option<Retries>,
    /// Keep-alive probes, or "none".
    pub(crate) keep_alive: Option<OrNone<KeepAlive>>,
    /// The duration of TIME-WAIT.
    pub(crate) time_wait: Option<Time>,
    /// The duration of FIN-WAIT-2 after the application has closed its socket.
    pub(crate) fin_wait_2: Option<Time>,
    /// The limit of challenge ACKs in a second.
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
    /// How many unanswered probes TCP sends before it aborts the connection.
    pub(crate) probes: u32,
}

/// The user timeout and its option (RFC 5482).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserTimeout {
    /// How long data may stay unacknowledged before TCP aborts the connection, or "none".
    pub(crate) timeout: Option<OrNone<Time>>,
    /// The timeout that is advertised to the peer, or "none".
    pub(crate) advertise: Option<OrNone<Time>>,
    /// Whether the peer's advertisement may change the timeout.
    pub(crate) changeable: Option<bool>,
    /// The least timeout that is adopted.
    pub(crate) lower_limit: Option<Time>,
    /// The greatest timeout that is adopted.
    pub(crate) upper_limit: Option<Time>,
    /// Whether the timeout also aborts a connection whose zero-window probes are answered.
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
