//! The receiving half of a session: reorders packets and acknowledges them.

use std::collections::VecDeque;

use bytes::Bytes;
use holdover_wire::Seq;

use crate::SrpConfig;
use crate::message::{Flag, Message};

/// The receiving half. See the [module](self).
#[derive(Debug)]
pub struct Receiver {
    window: u32,
    expected: Seq,
    /// Packets beyond `expected`: the first slot is that of `expected` itself, which is empty.
    beyond: VecDeque<Option<(Flag, Bytes)>>,
    /// Packets in order that the owner has not read.
    ready: VecDeque<(Flag, Bytes)>,
    /// The limit advertised last.
    advertised: Seq,
    has_ended: bool,
}

impl Receiver {
    /// Before the first packet.
    pub fn new(config: &SrpConfig) -> Self {
        Self {
            window: config.window_packets,
            expected: Seq::new(0),
            beyond: VecDeque::new(),
            ready: VecDeque::new(),
            advertised: Seq::new(1),
            has_ended: false,
        }
    }

    /// Handles a packet, and acknowledges it even if it is a duplicate.
    pub fn handle_data(&mut self, number: Seq, flag: Flag, data: Bytes) -> Message {
        let place = number.saturating_since(self.expected) as usize;
        if number.ge(self.expected) && number.lt(self.limit()) && !self.has_ended {
            if self.beyond.len() <= place {
                self.beyond.resize(place + 1, None);
            }
            self.beyond[place].get_or_insert((flag, data));
            while let Some(next) = self.beyond.front_mut().and_then(Option::take) {
                self.beyond.pop_front();
                self.expected += 1;
                self.has_ended |= next.0 == Flag::End;
                self.ready.push_back(next);
            }
        }
        self.ack()
    }

    /// The current acknowledgement.
    pub fn ack(&mut self) -> Message {
        self.advertised = self.limit();
        let arrived = self.beyond.iter().skip(1).take(64).enumerate();
        let mask = arrived.fold(0, |mask, (bit, packet)| mask | u64::from(packet.is_some()) << bit);
        Message::Ack { expected: self.expected, limit: self.advertised, mask }
    }

    /// The next packet in order.
    pub fn peek(&self) -> Option<&(Flag, Bytes)> {
        self.ready.front()
    }

    /// Takes the first `len` bytes of the next packet; removes the packet when none are left.
    pub fn take(&mut self, len: usize) -> Option<Bytes> {
        let (_, data) = self.ready.front_mut()?;
        let taken = data.split_to(len.min(data.len()));
        if data.is_empty() {
            self.ready.pop_front();
        }
        Some(taken)
    }

    /// A window update, if one is due: the peer may wait for it.
    pub fn poll_update(&mut self) -> Option<Message> {
        let was_shut = self.advertised == self.expected
            || self.limit().saturating_since(self.advertised) >= self.window.div_ceil(2);
        (self.limit().gt(self.advertised) && was_shut).then(|| self.ack())
    }

    /// Whether everything has arrived.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether everything has arrived and was read.
    pub fn is_done(&self) -> bool {
        self.has_ended && self.ready.is_empty()
    }

    /// Packets that wait for earlier ones, or for the owner.
    pub fn waiting(&self) -> usize {
        self.ready.len() + self.beyond.iter().flatten().count()
    }

    /// Bytes of these packets.
    pub fn bytes(&self) -> usize {
        self.ready.iter().chain(self.beyond.iter().flatten()).map(|(_, data)| data.len()).sum()
    }

    /// The receiver has room for packets below this number.
    fn limit(&self) -> Seq {
        self.expected + self.window.saturating_sub(self.ready.len() as u32)
    }
}
