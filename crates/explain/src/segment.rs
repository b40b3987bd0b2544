//! The fields used from each packet.

use core::net::SocketAddr;

use holdover_base::Instant;
use holdover_wire::{Flags, Seq, TcpHeaders, Timestamps};

/// A TCP segment as captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: Flags,
    /// The window on the wire, unscaled.
    pub(crate) window: u16,
    /// Bytes of data.
    pub(crate) len: u32,
    pub(crate) timestamps: Option<Timestamps>,
    /// The window shift offered in a SYN.
    pub(crate) window_shift: Option<u8>,
    /// The identification of an IPv4 packet.
    pub(crate) id: Option<u16>,
}

impl Seen {
    pub(crate) fn new(at: Instant, headers: &TcpHeaders) -> Self {
        let segment = &headers.segment;
        Self {
            at,
            src: SocketAddr::new(headers.src, segment.src_port),
            dst: SocketAddr::new(headers.dst, segment.dst_port),
            seq: segment.seq,
            ack: segment.ack,
            flags: segment.flags,
            window: segment.window,
            len: headers.payload_len,
            timestamps: segment.options.timestamps,
            window_shift: segment.options.window_scale,
            id: headers.id,
        }
    }

    pub(crate) fn is_syn(&self) -> bool {
        self.flags.contains(Flags::SYN)
    }

    /// The acknowledgment number, if valid.
    pub(crate) fn acknowledges(&self) -> Option<Seq> {
        (self.flags.contains(Flags::ACK) && !self.flags.contains(Flags::RST)).then_some(self.ack)
    }

    /// The sequence space it occupies.
    pub(crate) fn seq_len(&self) -> u32 {
        self.len + u32::from(self.is_syn()) + u32::from(self.flags.contains(Flags::FIN))
    }

    /// Whether this is a duplicate of `other`, captured at a second interface of the host: all but the hop limit is equal. A retransmission
    /// differs in its IP identification or timestamp, if the sender uses either.
    pub(crate) fn is_copy_of(&self, other: &Self) -> bool {
        let distinct = self.id.is_some_and(|id| id != 0) || self.timestamps.is_some();
        distinct && Self { at: other.at, ..*self } == *other
    }
}

/// 64-bit positions in a stream, from 32-bit sequence numbers that may wrap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Positions {
    latest: Option<(Seq, u64)>,
}

impl Positions {
    /// The position of the first number seen: earlier data may still arrive.
    const START: u64 = 1 << 32;

    pub(crate) fn of(&mut self, seq: Seq) -> u64 {
        let (latest, position) = *self.latest.get_or_insert((seq, Self::START));
        if seq.ge(latest) {
            let position = position + u64::from(seq - latest);
            self.latest = Some((seq, position));
            position
        } else {
            position.saturating_sub(u64::from(latest - seq))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_go_on_where_sequence_numbers_wrap() {
        let mut positions = Positions::default();
        let mut of = |number| positions.of(Seq::new(number)).wrapping_sub(Positions::START);
        assert_eq!(of(u32::MAX - 99), 0);
        assert_eq!(of(0), 100);
        assert_eq!(of(u32::MAX - 49), 50);
        assert_eq!(of(2_000_000_000), 2_000_000_100);
        assert_eq!(of(4_000_000_000), 4_000_000_100);
        assert_eq!(of(100), (1_u64 << 32) + 200);
    }
}
