//! Neighbour resolution on a simulated Ethernet: RFC 826 and RFC 4861 as implemented by Linux.
//!
//! Packets for an unknown neighbour wait for its resolution. The request is repeated once a second, and after three requests waiting
//! packets are dropped; the next packet starts again. A node learns the address of a node that sends it a request. Entries last until they
//! are flushed by a loss of carrier: the confirmation of old entries, which delays no packet, is not modelled.

use std::collections::VecDeque;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_wire::MacAddress;

use crate::frame::Frame;
use crate::layer2::EthernetHeader;

/// The interval between requests: RETRANS_TIMER of RFC 4861 section 10, `retrans_time_ms` of Linux.
const RETRANSMIT_AFTER: Duration = Duration::from_secs(1);
/// Requests for one neighbour: MAX_MULTICAST_SOLICIT of RFC 4861 section 10, `mcast_solicit` of Linux.
const MOST_REQUESTS: u32 = 3;
/// Packets that wait for one neighbour. Linux counts bytes of memory (`unres_qlen_bytes`, 212,992), about as many full-sized packets.
const MOST_WAITING: usize = 101;
/// Bytes of an ARP packet on an Ethernet, padded to the frame's minimum length.
const ARP_BYTES: usize = 46;
/// Bytes of a neighbour solicitation or advertisement with its option.
const NDP_BYTES: usize = 72;

/// The state of the other end of an Ethernet at one end, for one family.
#[derive(Clone, Debug, Default)]
pub(crate) enum Neighbour {
    /// Unknown, with no request pending.
    #[default]
    Unknown,
    /// No answer yet.
    Asked { waiting: VecDeque<Box<Frame>>, requests: u32, again_at: Instant },
    /// Its Ethernet address.
    Known,
}

/// The treatment of a packet.
pub(crate) enum Admitted {
    /// It is sent.
    Goes(Box<Frame>),
    /// It waits. If it is the first one, a request is sent.
    Waits { ask: bool, dropped: Option<Box<Frame>> },
}

/// A due action.
pub(crate) enum Due {
    /// Repeat the request.
    Ask,
    /// The neighbour does not answer: drop the waiting packets.
    GiveUp(VecDeque<Box<Frame>>),
}

/// A message of one end to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    Request,
    Answer,
}

impl Neighbour {
    /// Handles a packet for the neighbour.
    pub(crate) fn admit(&mut self, now: Instant, frame: Box<Frame>) -> Admitted {
        match self {
            Self::Known => Admitted::Goes(frame),
            Self::Unknown => {
                *self = Self::Asked { waiting: VecDeque::from([frame]), requests: 1, again_at: now + RETRANSMIT_AFTER };
                Admitted::Waits { ask: true, dropped: None }
            }
            Self::Asked { waiting, .. } => {
                let dropped = if waiting.len() < MOST_WAITING { None } else { waiting.pop_front() };
                waiting.push_back(frame);
                Admitted::Waits { ask: false, dropped }
            }
        }
    }

    /// The neighbour has asked or answered: returns the waiting packets.
    pub(crate) fn learn(&mut self) -> VecDeque<Box<Frame>> {
        match core::mem::replace(self, Self::Known) {
            Self::Asked { waiting, .. } => waiting,
            Self::Unknown | Self::Known => VecDeque::new(),
        }
    }

    /// The carrier is lost: returns the waiting packets.
    pub(crate) fn flush(&mut self) -> VecDeque<Box<Frame>> {
        match core::mem::take(self) {
            Self::Asked { waiting, .. } => waiting,
            Self::Unknown | Self::Known => VecDeque::new(),
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Asked { again_at, .. } => Some(*again_at),
            Self::Unknown | Self::Known => None,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Due> {
        match self {
            Self::Asked { requests, again_at, .. } if *again_at <= now => {
                if *requests == MOST_REQUESTS {
                    return Some(Due::GiveUp(self.flush()));
                }
                *requests += 1;
                *again_at = now + RETRANSMIT_AFTER;
                Some(Due::Ask)
            }
            _ => None,
        }
    }
}

impl Message {
    /// The frame that carries it.
    pub(crate) fn frame(self, ipv6: bool) -> Box<Frame> {
        let (ether_type, len) = if ipv6 { (0x86dd, NDP_BYTES) } else { (0x0806, ARP_BYTES) };
        let header = EthernetHeader { destination: MacAddress([0xff; 6]), source: MacAddress([0; 6]), ether_type };
        let mut payload = vec![0; len];
        payload[0] = self as u8;
        Box::new(Frame::raw(header, Bytes::from(payload)))
    }

    /// The message in a frame, and its family.
    pub(crate) fn of(frame: &Frame) -> Option<(Self, bool)> {
        let (holdover_wire::Payload::Other { payload, .. }, Some(header)) = (&frame.packet.payload, frame.ethernet)
        else {
            return None;
        };
        let message = if payload.first() == Some(&(Self::Request as u8)) { Self::Request } else { Self::Answer };
        Some((message, header.ether_type == 0x86dd))
    }
}

#[cfg(test)]
mod tests {
    use holdover_wire::{Packet, Udp};

    use super::*;

    fn frame(number: u16) -> Box<Frame> {
        let udp = Udp { src_port: number, dst_port: 1, payload: Bytes::new() };
        Box::new(Frame::new(Packet::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), udp), None))
    }

    #[test]
    fn so_many_wait_and_the_oldest_goes_first() {
        let mut neighbour = Neighbour::default();
        let mut dropped = Vec::new();
        for number in 0..MOST_WAITING as u16 + 2 {
            match neighbour.admit(Instant::ZERO, frame(number)) {
                Admitted::Waits { ask, dropped: one } => {
                    assert_eq!(ask, number == 0);
                    dropped.extend(one);
                }
                Admitted::Goes(_) => panic!("no neighbour is known yet"),
            }
        }
        assert_eq!(dropped, [frame(0), frame(1)]);
        let waiting = neighbour.learn();
        assert_eq!((waiting.len(), waiting.front()), (MOST_WAITING, Some(&frame(2))));
        assert!(matches!(neighbour.admit(Instant::ZERO, frame(7)), Admitted::Goes(_)));
        assert!(neighbour.flush().is_empty() && neighbour.deadline().is_none());
    }

    #[test]
    fn it_is_asked_three_times() {
        let mut neighbour = Neighbour::default();
        neighbour.admit(Instant::ZERO, frame(0));
        for second in 1..=2 {
            assert_eq!(neighbour.deadline(), Some(Instant::from_secs(second)));
            assert!(matches!(neighbour.handle_timeout(Instant::from_secs(second)), Some(Due::Ask)));
            assert!(neighbour.handle_timeout(Instant::from_secs(second)).is_none());
        }
        let Some(Due::GiveUp(waiting)) = neighbour.handle_timeout(Instant::from_secs(3)) else { panic!("it gives up") };
        assert_eq!((waiting.len(), neighbour.deadline()), (1, None));
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        for message in [Message::Request, Message::Answer] {
            for ipv6 in [false, true] {
                assert_eq!(Message::of(&message.frame(ipv6)), Some((message, ipv6)));
            }
        }
        assert_eq!(Message::of(&frame(0)), None);
    }
}
