//! One direction of a TCP connection, and where on its path the capture was taken.

use core::net::SocketAddr;

use holdover_base::{Duration, Instant};
use serde::Serialize;

use crate::evidence::{EndedBy, Evidence, Silence};
use crate::stream::Stream;

/// One direction of a TCP connection of a capture, in which data was sent.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The end that sent the data.
    pub sender: SocketAddr,
    /// The other end.
    pub receiver: SocketAddr,
    /// The connection's first packet.
    pub begin: Instant,
    /// The connection's last packet.
    pub end: Instant,
    /// Data bytes that the sender sent, those sent again not counted.
    pub bytes: u64,
    /// Segments with data, as they were captured: a device may have joined several.
    pub segments: u64,
    /// Of these, segments sent again, or sent to fill a hole.
    pub retransmissions: u64,
    /// Their bytes.
    pub retransmitted_bytes: u64,
    /// The first data of the sender.
    pub first_data: Option<Instant>,
    /// The first packet of the receiver.
    pub first_heard: Option<Instant>,
    /// Where the capture was taken.
    pub place: Place,
    /// The least round trip between the place of the capture and the sender, if it can be told.
    pub rtt_to_sender: Option<Duration>,
    /// The least round trip between the place of the capture and the receiver, if it can be told.
    pub rtt_to_receiver: Option<Duration>,
    /// When the handshake was over, if it was captured.
    pub(crate) established: Option<Instant>,
    pub(crate) evidence: Evidence,
}

/// Where on the path of a connection a capture was taken, judged by the round trips to both ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// At the sender, or near it: what is seen is what the sender knew.
    Sender,
    /// At the receiver, or near it: what was lost on the way was never seen.
    Receiver,
    /// Far from both.
    Between,
    /// The round trips were not seen, or both are too short to tell.
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
        // A host's own stack answers in less; a path over a link that comes and goes takes longer.
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

    /// The path's least round trip as far as it was seen; 100 ms if it was not.
    pub fn rtt(&self) -> Duration {
        let seen = match (self.rtt_to_sender, self.rtt_to_receiver) {
            (Some(sender), Some(receiver)) => Some(sender + receiver),
            (sender, receiver) => sender.or(receiver),
        };
        seen.map_or(Duration::from_millis(100), |rtt| rtt.max(Duration::from_micros(100)))
    }

    /// Silences up to this are how a window's worth of data moves.
    pub(crate) fn patience(&self) -> Duration {
        self.rtt() * 2 + Duration::from_millis(20)
    }

    /// The least retransmission timeout that is usual (Linux: 200 ms and the round trip).
    pub(crate) fn usual_rto(&self) -> Duration {
        self.rtt() + Duration::from_millis(200)
    }

    /// Whether the sender had something to send throughout a silence in which everything that was seen is acknowledged: away
    /// from the sender this does not show, but what came before and after the silence does.
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
        // A window of one or two segments is what a retransmission timeout leaves.
        !silence.after_push || (silence.ended_by == EndedBy::New && matches!(silence.burst, 1 | 2))
    }
}
