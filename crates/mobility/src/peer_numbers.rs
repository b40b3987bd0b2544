//! The numbers of a peer's segment, which validate a request that restarts a sender.

use holdover_wire::{Segment, Seq};

/// SEG.SEQ and SEG.ACK of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerNumbers {
    seq: Seq,
    pub(crate) ack: Seq,
}

impl PeerNumbers {
    pub(crate) const fn of(segment: &Segment) -> Self {
        Self { seq: segment.seq, ack: segment.ack }
    }

    /// Whether both numbers are plausible for the peer of `tcp` now, a retransmission included: an off-path attacker cannot restart a sender.
    pub(crate) fn are_plausible(self, tcp: &holdover_tcp::Connection) -> bool {
        let window = u32::try_from(tcp.receive_buffer_len()).unwrap_or(u32::MAX).clamp(0xffff, 1 << 30);
        tcp.state().is_synchronized()
            && self.ack.ge(tcp.snd_una())
            && self.ack.le(tcp.snd_nxt())
            && self.seq.ge(tcp.rcv_nxt() - window)
            && self.seq.le(tcp.rcv_nxt() + window)
    }
}
