//! Sweeps: varied fields and their values, replication, and comparison.

use crate::overrides::Override;
use crate::quantity::magnitude;
use crate::statistics::Method;
use crate::word::{Vocabulary, Word, vocabulary};

/// The axes, the replication and the comparison.
#[derive(Clone, PartialEq, Debug)]
pub struct Sweep {
    pub(crate) axes: Vec<Axis>,
    pub(crate) replicate: Replicate,
    pub(crate) compare: Option<Compare>,
}

/// A field and its values.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// The path of the field.
    pub path: String,
    /// Its name in tables and plots.
    pub label: String,
    /// The values.
    pub values: Vec<toml::Value>,
}

/// A combination of the axes' values.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// Its index in the order of points; the last axis varies fastest.
    pub index: usize,
    /// Its changes to the scenario.
    pub overrides: Vec<Override>,
    /// Its position on each axis.
    pub labels: Vec<Label>,
}

/// A position on an axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Label {
    /// The label of the axis.
    pub axis: String,
    /// The value as written.
    pub value: String,
    /// The value in its base unit: seconds, bit/s, bytes, metres, packets, a share from 0 to 1; `None` for a word.
    pub number: Option<f64>,
}

/// The replication of each point.
#[derive(Clone, PartialEq, Debug)]
pub struct Replicate {
    /// The quantity averaged over the runs.
    pub measure: Measure,
    /// The bound on the half-width of the mean's confidence interval, relative to the mean, until which runs are added;
    /// `None` for exactly `min` runs.
    pub relative_error: Option<f64>,
    /// The confidence, always 0.95.
    pub confidence: f64,
    /// The minimum number of runs.
    pub min: u32,
    /// The maximum number of runs.
    pub max: u32,
}

/// A quantity measured in each run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measure {
    /// The metric.
    pub metric: Metric,
    /// The flow, or the link of a metric of links; `None` for all: their sum for rates and counts, their mean for times and ratios. A flow
    /// with a count stands for all its copies.
    pub flow: Option<String>,
}

/// The variants to compare, and the test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compare {
    /// The baseline variant.
    pub baseline: String,
    /// The other variants.
    pub with: Vec<String>,
    /// The compared quantity.
    pub measure: Measure,
    /// The test.
    pub method: Method,
}

/// A metric of flows, links or routers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Metric {
    /// Bits read by the receiving application per second of the flow's duration.
    Goodput,
    /// Bits read by the receiving application per second of the net duration.
    NetGoodput,
    /// Payload bits sent by the sender, including retransmissions, per second of the flow's duration.
    Throughput,
    /// From the flow's start to its last byte, in seconds.
    Duration,
    /// The duration without the outages, in seconds.
    NetDuration,
    /// The ideal time for the same link schedule divided by the actual time.
    IdealShare,
    /// Retransmission timeouts.
    Timeouts,
    /// Retransmitted payload bytes.
    BytesRetransmitted,
    /// Segments sent as fast retransmits.
    FastRetransmits,
    /// From a reconnection of a link to the first new data, in seconds; the mean over all reconnections.
    IdleAfterReconnection,
    /// From the last new data at the receiver to the break of the path, in seconds; the mean over all outages that ended.
    IdleBeforeOutage,
    /// The sender's congestion window when the path broke, in segments; the mean over all outages that ended.
    CwndAtOutage,
    /// The sender's congestion window at the first new data after the path's return, in segments; the mean over all outages.
    CwndAfterOutage,
    /// The sender's slow-start threshold at that time, in segments; the mean over outages after its first loss.
    SsthreshAfterOutage,
    /// The sender's retransmission timeout when the path broke, backed off, in seconds; the mean over all outages that ended.
    RtoAtOutage,
    /// From a new attachment of a host with an identity until its peer has verified the new address, in seconds; the mean over all moves.
    ReaddressingTime,
    /// The longest time without new data at the receiver, in seconds.
    LongestPause,
    /// Segments whose data the receiver had already.
    DuplicateSegments,
    /// From a request to its response, in seconds; the mean over all exchanges.
    ExchangeTime,
    /// Flows that completed.
    Completed,
    /// Packets that links have begun to transmit, in both directions: those that were lost too, and each retransmission of a link.
    LinkPackets,
    /// The bytes of [`Self::LinkPackets`].
    LinkBytes,
    /// The most bytes that the mechanisms of a router have stored at once: packets with headers, and data in the buffers of terminated
    /// connections.
    RouterBytes,
    /// The most connections for which the mechanisms of a router have had state at once.
    RouterConnections,
}

/// The subject of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Flows.
    Flows,
    /// Links.
    Links,
    /// Routers with mechanisms.
    Routers,
}

vocabulary!(Metric as "Metric" {
    Self::Goodput => "goodput",
    Self::NetGoodput => "net_goodput",
    Self::Throughput => "throughput",
    Self::Duration => "duration",
    Self::NetDuration => "net_duration",
    Self::IdealShare => "ideal_share",
    Self::Timeouts => "timeouts",
    Self::BytesRetransmitted => "bytes_retransmitted",
    Self::FastRetransmits => "fast_retransmits",
    Self::IdleAfterReconnection => "idle_after_reconnection",
    Self::IdleBeforeOutage => "idle_before_outage",
    Self::CwndAtOutage => "cwnd_at_outage",
    Self::CwndAfterOutage => "cwnd_after_outage",
    Self::SsthreshAfterOutage => "ssthresh_after_outage",
    Self::RtoAtOutage => "rto_at_outage",
    Self::ReaddressingTime => "readdressing_time",
    Self::LongestPause => "longest_pause",
    Self::DuplicateSegments => "duplicate_segments",
    Self::ExchangeTime => "exchange_time",
    Self::Completed => "completed",
    Self::LinkPackets => "link_packets",
    Self::LinkBytes => "link_bytes",
    Self::RouterBytes => "router_bytes",
    Self::RouterConnections => "router_connections",
});

impl Metric {
    /// All metrics.
    pub const ALL: &'static [Self] = <Self as Vocabulary>::VALUES;

    /// The name in scenario files and tables.
    pub fn name(self) -> &'static str {
        Word(self).name()
    }

    /// The unit of its values; empty for a number without one.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Goodput | Self::NetGoodput | Self::Throughput => "bit/s",
            Self::Duration
            | Self::NetDuration
            | Self::IdleAfterReconnection
            | Self::IdleBeforeOutage
            | Self::RtoAtOutage
            | Self::ReaddressingTime
            | Self::LongestPause
            | Self::ExchangeTime => "s",
            Self::BytesRetransmitted | Self::LinkBytes | Self::RouterBytes => "bytes",
            Self::IdealShare
            | Self::CwndAtOutage
            | Self::CwndAfterOutage
            | Self::SsthreshAfterOutage
            | Self::Timeouts
            | Self::FastRetransmits
            | Self::DuplicateSegments
            | Self::Completed
            | Self::LinkPackets
            | Self::RouterConnections => "",
        }
    }

    /// Its subject.
    pub const fn subject(self) -> Subject {
        match self {
            Self::LinkPackets | Self::LinkBytes => Subject::Links,
            Self::RouterBytes | Self::RouterConnections => Subject::Routers,
            _ => Subject::Flows,
        }
    }

    /// Whether the values of several flows are added; otherwise they are averaged.
    pub const fn adds_up(self) -> bool {
        !matches!(
            self,
            Self::Duration
                | Self::NetDuration
                | Self::IdealShare
                | Self::IdleAfterReconnection
                | Self::IdleBeforeOutage
                | Self::CwndAtOutage
                | Self::CwndAfterOutage
                | Self::SsthreshAfterOutage
                | Self::RtoAtOutage
                | Self::ReaddressingTime
                | Self::LongestPause
                | Self::ExchangeTime
        )
    }
}

impl Sweep {
    /// The axes.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The replication.
    pub const fn replicate(&self) -> &Replicate {
        &self.replicate
    }

    /// The comparison; `None` if there is only one variant.
    pub const fn compare(&self) -> Option<&Compare> {
        self.compare.as_ref()
    }

    /// The number of points; 1 without an axis.
    pub fn len(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    /// Whether there are no points; never true, since every axis has a value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All points; the last axis varies fastest.
    pub fn points(&self) -> impl Iterator<Item = Point> {
        (0..self.len()).map(|index| self.point(index))
    }

    /// The point with this index.
    pub fn point(&self, index: usize) -> Point {
        let mut rest = index;
        let mut picked = Vec::with_capacity(self.axes.len());
        for axis in self.axes.iter().rev() {
            picked.push((axis, &axis.values[rest % axis.values.len()]));
            rest /= axis.values.len();
        }
        picked.reverse();
        let overrides = picked.iter().map(|(axis, value)| Override::new(&axis.path, (*value).clone())).collect();
        let labels = picked.iter().map(|(axis, value)| Label::new(&axis.label, value)).collect();
        Point { index, overrides, labels }
    }
}

impl Label {
    pub(crate) fn new(axis: &str, value: &toml::Value) -> Self {
        let (text, number) = match value {
            toml::Value::String(text) => (text.clone(), magnitude(text)),
            toml::Value::Integer(number) => (number.to_string(), Some(*number as f64)),
            toml::Value::Float(number) => (number.to_string(), Some(*number)),
            other => (other.to_string(), None),
        };
        Self { axis: axis.to_owned(), value: text, number }
    }
}
