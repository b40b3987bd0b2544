//! The recordings and plots of a run.

use holdover_base::Duration;

use crate::word::vocabulary;

/// The recordings and plots of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// The captured interfaces.
    pub captures: Captures,
    /// The format of captures.
    pub capture_format: CaptureFormat,
    /// The number of bytes captured of each packet; `None` for all.
    pub snap_length: Option<u32>,
    /// The sampling interval of each connection's state; `None` for no samples.
    pub sample_every: Option<Duration>,
    /// Whether events are written as JSON lines.
    pub events: bool,
    /// The plots.
    pub plots: Vec<Plot>,
}

/// The captured interfaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Captures {
    /// The interfaces of all hosts and routers.
    All,
    /// No interfaces.
    None,
    /// The interfaces of these hosts and routers, by name.
    Nodes(Vec<String>),
}

/// The format of captures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CaptureFormat {
    /// pcapng.
    Pcapng,
    /// Classic pcap, with nanoseconds.
    Pcap,
}

/// A plot of a flow over time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Plot {
    /// Sequence numbers sent and acknowledged.
    TimeSequence,
    /// The congestion window and ssthresh.
    Cwnd,
    /// The round-trip time and the RTO.
    Rtt,
    /// The rate at which the receiving application reads data.
    Goodput,
}

vocabulary!(CaptureFormat as "CaptureFormat" { Self::Pcapng => "pcapng", Self::Pcap => "pcap" });
vocabulary!(Plot as "Plot" {
    Self::TimeSequence => "time-sequence",
    Self::Cwnd => "cwnd",
    Self::Rtt => "rtt",
    Self::Goodput => "goodput",
});

impl CaptureFormat {
    /// The name in scenario files, and the extension of file names.
    pub fn name(self) -> &'static str {
        crate::word::Word(self).name()
    }
}

impl Plot {
    /// All plots.
    pub const ALL: [Self; 4] = [Self::TimeSequence, Self::Cwnd, Self::Rtt, Self::Goodput];

    /// The name in scenario files.
    pub fn name(self) -> &'static str {
        crate::word::Word(self).name()
    }
}
