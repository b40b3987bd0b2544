//! PSH of bursts.
//!
//! Linux passes several full segments to its device as one packet with PSH (`__tcp_transmit_skb`), and the device leaves it on the last
//! of them. A burst has at most half of the congestion window, the rest of the window, and the data that leaves within about a millisecond
//! at the pacing rate (`tcp_tso_autosize`).

use std::collections::VecDeque;

use holdover_base::Instant;
use holdover_tcp::{Connection, ConnectionId, Reason};
use holdover_wire::{Flags, Packet, Payload};

/// The burst that is being sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    id: ConnectionId,
    /// Segments so far.
    segments: u32,
    /// How many segments may follow.
    left: u32,
}

impl Burst {
    /// A burst that begins with a segment which `connection` has just sent.
    fn begin(id: ConnectionId, connection: &Connection, least: u32) -> Self {
        let cwnd = connection.cwnd();
        let before = connection.in_flight().saturating_sub(1);
        let most = (cwnd / 2).max(1).min(cwnd.saturating_sub(before)).min(connection.burst_segments(least)).max(1);
        Self { id, segments: 1, left: most - 1 }
    }
}

/// Takes note of a packet that `connection` sends after those in `outbox`; `None` at the end of sending. Marks the last packet of a burst that
/// has ended. `least` is `tcp_min_tso_segs`.
pub(super) fn mark_bursts(
    burst: &mut Option<Burst>,
    sent: Option<(ConnectionId, &Connection, Reason, usize)>,
    least: u32,
    outbox: &mut VecDeque<(Instant, Packet)>,
) {
    // With options of changing length a segment is full if more data waits.
    let full = sent.filter(|(_, connection, reason, len)| {
        *reason == Reason::NewData && (*len == connection.snd_mss() as usize || connection.unsent_len() > 0)
    });
    // The rest of the data belongs to the burst, if there is room.
    let rest = sent.filter(|(_, _, reason, len)| *reason == Reason::NewData && *len > 0);
    if let (Some(running), Some((id, ..))) = (burst.as_mut(), rest)
        && running.id == id
        && running.left > 0
    {
        running.segments += 1;
        running.left = if full.is_some() { running.left - 1 } else { 0 };
        return;
    }
    if burst.take().is_some_and(|ended| ended.segments > 1)
        && let Some((_, Packet { payload: Payload::Tcp(segment), .. })) = outbox.back_mut()
    {
        segment.flags |= Flags::PSH;
    }
    *burst = full.map(|(id, connection, ..)| Burst::begin(id, connection, least));
}
