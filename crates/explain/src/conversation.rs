//! The packets of a TCP connection, seen from a side that sends data.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use holdover_base::Instant;
use holdover_wire::{Flags, Segment, Seq};

use crate::capture::Captured;

/// One direction of a TCP connection of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conversation {
    /// Who sent the data.
    pub sender: SocketAddr,
    /// The other side.
    pub receiver: SocketAddr,
    /// What was seen, in order of time.
    pub sightings: Vec<Sighting>,
    /// Data bytes that the sender sent, those sent again not counted.
    pub bytes: u64,
    /// The receiver's window shift, if its SYN was seen.
    pub window_shift: Option<u8>,
}

/// What one packet said, in offsets from the sender's first sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sighting {
    /// When.
    pub at: Instant,
    /// Whether the sender of the data sent it.
    pub from_sender: bool,
    /// From the sender: where its data begins. From the receiver: its ACK.
    pub offset: u64,
    /// Bytes of data.
    pub len: u32,
    /// The receiver's window in bytes.
    pub window: u32,
    /// The control bits.
    pub flags: Flags,
}

/// Divides a capture into connections, in the order of their first packets, and these into the directions in which data was
/// sent, the one with more data first. A new SYN after a connection's end begins another.
pub fn conversations(packets: &[Captured]) -> Vec<Conversation> {
    type Key = (SocketAddr, SocketAddr);
    let mut open: BTreeMap<Key, usize> = BTreeMap::new();
    let mut all: Vec<Vec<Seen<'_>>> = Vec::new();
    for captured in packets {
        let Some(segment) = captured.packet.tcp() else { continue };
        let from = SocketAddr::new(captured.packet.src, segment.src_port);
        let to = SocketAddr::new(captured.packet.dst, segment.dst_port);
        let key = if from <= to { (from, to) } else { (to, from) };
        let begins = segment.flags & (Flags::SYN | Flags::ACK) == Flags::SYN;
        let over = |segments: &Vec<Seen<'_>>| {
            segments.iter().any(|(.., segment)| segment.flags.intersects(Flags::RST | Flags::FIN))
        };
        let index = match open.get(&key) {
            Some(&index) if !(begins && over(&all[index])) => index,
            _ => {
                all.push(Vec::new());
                open.insert(key, all.len() - 1);
                all.len() - 1
            }
        };
        all[index].push((captured.at, from, to, segment));
    }
    all.iter().flat_map(|segments| directions(segments)).collect()
}

/// A segment, when it was seen, and from where to where it went.
type Seen<'a> = (Instant, SocketAddr, SocketAddr, &'a Segment);

fn directions(segments: &[Seen<'_>]) -> Vec<Conversation> {
    let Some(&(_, a, b, _)) = segments.first() else { return Vec::new() };
    let sent_by = |who: SocketAddr| -> u64 {
        segments.iter().filter(|(_, from, ..)| *from == who).map(|(.., segment)| segment.payload.len() as u64).sum()
    };
    let mut sides = [(sent_by(a), a, b), (sent_by(b), b, a)];
    sides.sort_by_key(|&(bytes, ..)| core::cmp::Reverse(bytes));
    let with_data = sides.into_iter().filter(|&(bytes, ..)| bytes > 0);
    with_data.map(|(_, sender, receiver)| of_segments(segments, sender, receiver)).collect()
}

fn of_segments(segments: &[Seen<'_>], sender: SocketAddr, receiver: SocketAddr) -> Conversation {
    let shift_of = |who: SocketAddr| {
        let syn = segments.iter().find(|(_, from, _, segment)| *from == who && segment.flags.contains(Flags::SYN));
        syn.map(|(.., segment)| segment.options.window_scale)
    };
    // Scaling holds only if both offered it; without the receiver's SYN it is not known.
    let window_shift = match (shift_of(receiver), shift_of(sender)) {
        (Some(ours), Some(theirs)) => Some(ours.filter(|_| theirs.is_some()).unwrap_or(0).min(14)),
        (Some(None), None) => Some(0),
        (Some(Some(shift)), None) => Some(shift.min(14)),
        (None, _) => None,
    };
    let mut positions = Positions::new(segments.iter().find(|(_, from, ..)| *from == sender).map(|(.., s)| *s));
    let mut sightings: Vec<Sighting> = segments
        .iter()
        .filter_map(|&(at, from, _, segment)| sighting(at, from == sender, segment, window_shift, &mut positions))
        .collect();
    sightings.sort_by_key(|sighting| sighting.at);
    let data = sightings.iter().filter(|sighting| sighting.from_sender && sighting.len > 0);
    let bytes = data.map(|sighting| sighting.offset + u64::from(sighting.len)).max().unwrap_or(0);
    Conversation { sender, receiver, sightings, bytes, window_shift }
}

fn sighting(
    at: Instant,
    from_sender: bool,
    segment: &Segment,
    shift: Option<u8>,
    positions: &mut Positions,
) -> Option<Sighting> {
    let is_syn = segment.flags.contains(Flags::SYN);
    let seq = if from_sender {
        segment.seq + u32::from(is_syn)
    } else if segment.flags.contains(Flags::ACK) {
        segment.ack
    } else {
        return None;
    };
    let shift = if is_syn { 0 } else { shift.unwrap_or(0) };
    Some(Sighting {
        at,
        from_sender,
        offset: positions.of(seq),
        len: segment.payload.len() as u32,
        window: u32::from(segment.window) << shift,
        flags: segment.flags,
    })
}

/// 64-bit positions in a stream, from 32-bit sequence numbers that may wrap.
struct Positions {
    latest: Option<(Seq, u64)>,
}

impl Positions {
    fn new(first: Option<&Segment>) -> Self {
        let start = first.map(|segment| segment.seq + u32::from(segment.flags.contains(Flags::SYN)));
        Self { latest: start.map(|seq| (seq, 0)) }
    }

    fn of(&mut self, seq: Seq) -> u64 {
        let (latest, position) = *self.latest.get_or_insert((seq, 0));
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
        let mut positions = Positions { latest: None };
        assert_eq!(positions.of(Seq::new(u32::MAX - 99)), 0);
        assert_eq!(positions.of(Seq::new(0)), 100);
        assert_eq!(positions.of(Seq::new(u32::MAX - 49)), 50);
        assert_eq!(positions.of(Seq::new(2_000_000_000)), 2_000_000_100);
        assert_eq!(positions.of(Seq::new(4_000_000_000)), 4_000_000_100);
        assert_eq!(positions.of(Seq::new(100)), (1_u64 << 32) + 200);
    }
}
