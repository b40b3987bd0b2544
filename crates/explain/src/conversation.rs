//! One direction of a TCP connection, and the place of the capture on its path.

use core::net::SocketAddr;

use holdover_base::{Duration, Instant};
use serde::Serialize;

use crate::evidence::{EndedBy, Evidence, Silence};
use crate::stream::Stream;

/// One direction of a captured TCP connection, with data.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The data sender.
    pub sender: SocketAddr,
    /// The other end.
    pub receiver: SocketAddr,
    /// The connection's first packet.
    pub begin: Instant,
    /// The connection's last packet.
    pub end: Instant,
    /// Data bytes sent, without retransmissions.
    pub bytes: u64,
    /// Segments with data as captured: segmentation offload may have merged several.
    pub segments: u64,
    /// Retransmitted segments among these, including segments that fill a hole.
    pub retransmissions: u64,
    /// Their bytes.
    pub retransmitted_bytes: u64,
    /// The time of the sender's first data.
    pub first_data: Option<Instant>,
    /// The time of the receiver's first packet.
    pub first_heard: Option<Instant>,
    /// The place of the capture.
    pub place: Place,
    /// The minimum round trip between the place of the capture and the sender, if known.
    pub rtt_to_sender: Option<Duration>,
    /// The minimum round trip between the place of the capture and the receiver, if known.
    pub rtt_to_receiver: Option<Duration>,
    /// The end of the handshake, if captured.
    pub(crate) established: Option<Instant>,
    pub(crate) evidence: Evidence,
}

/// The place of a capture on the path of a connection, judged by the round trips to both ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// At or near the sender: the capture matches the sender's knowledge.
    Sender,
    /// At or near the receiver: packets lost on the path are not captured.
    Receiver,
    /// Far from both.
    Between,
    /// The round trips are unknown, or both are too short to tell.
    Unknown,
}

impl Place {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender => "at the sender",
            Self::Receiver => "at the receiver",
            Self::Between => "between sender and receiver",
            Self::Unknown => "at an unknown place",
        }
    }

    fn of(to_sender: Option<Duration>, to_receiver: Option<Duration>) -> Self {
        // A host's own stack responds in less; a path over an intermittent link takes longer.
        let far = Duration::from_millis(3);
        match (to_sender, to_receiver) {
            (Some(sender), Some(receiver)) if sender * 3 < receiver => Self::Sender,
            (Some(sender), Some(receiver)) if receiver * 3 < sender => Self::Receiver,
            (Some(_), Some(_)) => Self::Between,
            (None, Some(receiver)) if receiver >= far => Self::Sender,
            (Some(sender), None) if sender >= far => Self::Receiver,
            _ => Self::Unknown,
        }
    }
}

impl Conversation {
    pub(crate) fn new(
        sender: SocketAddr,
        receiver: SocketAddr,
        (begin, end): (Instant, Instant),
        established: Option<Instant>,
        (rtt_to_sender, rtt_to_receiver): (Option<Duration>, Option<Duration>),
        mut stream: Stream,
    ) -> Self {
        stream.finish(end);
        Self {
            sender,
            receiver,
            begin,
            end,
            bytes: stream.bytes(),
            segments: stream.segments,
            retransmissions: stream.again,
            retransmitted_bytes: stream.again_bytes,
            first_data: stream.first_data,
            first_heard: stream.first_heard,
            place: Place::of(rtt_to_sender, rtt_to_receiver),
            rtt_to_sender,
            rtt_to_receiver,
            established,
            evidence: stream.evidence,
        }
    }

    /// The path's minimum round trip as far as known; 100 ms otherwise.
    pub fn rtt(&self) -> Duration {
        let seen = match (self.rtt_to_sender, self.rtt_to_receiver) {
            (Some(sender), Some(receiver)) => Some(sender + receiver),
            (sender, receiver) => sender.or(receiver),
        };
        seen.map_or(Duration::from_millis(100), |rtt| rtt.max(Duration::from_micros(100)))
    }

    /// The longest silence that is part of normal, window-limited transfer.
    pub(crate) fn patience(&self) -> Duration {
        self.rtt() * 2 + Duration::from_millis(20)
    }

    /// The smallest usual retransmission timeout (Linux: 200 ms plus the round trip).
    pub(crate) fn usual_rto(&self) -> Duration {
        self.rtt() + Duration::from_millis(200)
    }

    /// Whether the sender had data to send throughout a silence in which all captured data is acknowledged. Away from the sender this must
    /// be inferred from the packets before and after the silence.
    pub(crate) fn sender_waited(&self, silence: &Silence) -> bool {
        if self.place == Place::Sender {
            return false;
        }
        if matches!(silence.ended_by, EndedBy::Again | EndedBy::Hole) || silence.stale_echo {
            return true;
        }
        let was_asked = silence.asked.is_some_and(|at| silence.to.saturating_since(at) <= self.patience());
        if was_asked || !silence.after_full || silence.len() < self.usual_rto() {
            return false;
        }
        // A retransmission timeout leaves a window of one or two segments.
        !silence.after_push || (silence.ended_by == EndedBy::New && matches!(silence.burst, 1 | 2))
    }
}
