//! The states of a connection, and how it can end.

use core::fmt;

/// The state of a connection (RFC 9293 section 3.3.2). LISTEN is the endpoint's: a listener is not a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum State {
    /// A SYN has been sent.
    SynSent,
    /// A SYN has been received and answered.
    SynReceived,
    /// Data flows.
    Established,
    /// Our FIN is sent, not acknowledged.
    FinWait1,
    /// Our FIN is acknowledged, the peer may still send.
    FinWait2,
    /// The peer's FIN has arrived, we may still send.
    CloseWait,
    /// Both FINs crossed; ours is not acknowledged.
    Closing,
    /// Our FIN, sent after the peer's, is not acknowledged.
    LastAck,
    /// Both are closed; old segments may still come.
    TimeWait,
    /// No connection.
    Closed,
}

impl State {
    /// Whether both sides have agreed on sequence numbers (RFC 9293 section 3.5.1).
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived | Self::Closed)
    }

    /// Whether the peer may still send data.
    pub const fn may_receive(self) -> bool {
        matches!(self, Self::SynReceived | Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// Whether data can be sent.
    pub const fn may_send(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait)
    }
}

/// Prints the state in RFC 9293's spelling.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECEIVED",
            Self::Established => "ESTABLISHED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::CloseWait => "CLOSE-WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::TimeWait => "TIME-WAIT",
            Self::Closed => "CLOSED",
        })
    }
}

/// How a connection ended before both sides closed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The peer reset it.
    #[error("connection reset by peer")]
    Reset,
    /// The peer answered our SYN with a reset.
    #[error("connection refused")]
    Refused,
    /// Retransmissions ran out (R2, RFC 9293 section 3.8.3).
    #[error("connection timed out: retransmissions were not acknowledged")]
    TimedOut,
    /// Data was not acknowledged within the user timeout (RFC 9293 section 3.9.1, RFC 5482).
    #[error("connection timed out: user timeout")]
    UserTimeout,
    /// Probes of a zero window, or keep-alives, were not answered.
    #[error("connection timed out: probes were not answered")]
    ProbesUnanswered,
    /// An ICMP error that leaves no hope arrived while connecting.
    #[error("destination unreachable")]
    Unreachable,
    /// The owner aborted it.
    #[error("connection aborted")]
    Aborted,
}
