//! Intervals of a connection's time, each with a cause.

use holdover_base::Instant;
use serde::Serialize;

/// A cause of elapsed time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Opening the connection.
    Handshake,
    /// Data transfer.
    Transfer,
    /// Data transfer below the known capacity of the path: the window was still opening.
    SlowStart,
    /// Data transfer with a window that losses kept too small to fill the path.
    Loss,
    /// Data transfer with a receive window too small to fill the path.
    ReceiveWindow,
    /// The path was down.
    Outage,
    /// Waiting for the retransmission timer, with the path up as far as known.
    RtoWait,
    /// The receiver's window was closed.
    ZeroWindow,
    /// All data was acknowledged, and the application sent nothing.
    Idle,
}

impl Cause {
    /// All causes, in report order.
    pub const ALL: [Self; 9] = [
        Self::Handshake,
        Self::Transfer,
        Self::SlowStart,
        Self::Loss,
        Self::ReceiveWindow,
        Self::Outage,
        Self::RtoWait,
        Self::ZeroWindow,
        Self::Idle,
    ];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Transfer => "transfer",
            Self::SlowStart => "slow start",
            Self::Loss => "loss",
            Self::ReceiveWindow => "small window",
            Self::Outage => "outage",
            Self::RtoWait => "RTO wait",
            Self::ZeroWindow => "zero window",
            Self::Idle => "idle",
        }
    }
}

/// An interval of a connection's time with one cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its start.
    pub from: Instant,
    /// Its end.
    pub to: Instant,
    /// Its cause.
    pub cause: Cause,
}

/// Appends a span, merged with the previous one if the cause is the same.
pub(crate) fn push(spans: &mut Vec<Span>, span: Span) {
    if span.from >= span.to {
        return;
    }
    match spans.last_mut() {
        Some(last) if last.cause == span.cause && last.to == span.from => last.to = span.to,
        _ => spans.push(span),
    }
}
