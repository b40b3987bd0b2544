//! The receiving half of a session: puts packets in order, and says what has arrived.

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
    /// Packets beyond `expected`: the first place is that of `expected` itself, which is empty.
    beyond: VecDeque<Option<(Flag, Bytes)>>,
    /// Packets in order that the owner has not taken.
    ready: VecDeque<(Flag, Bytes)>,
    /// The limit that was told last.
    told: Seq,
    has_ended: bool,
}

impl Receiver {
    /// Nothing received yet.
    pub fn new(config: &SrpConfig) -> Self {
        Self {
            window: config.window_packets,
            expected: Seq::new(0),
            beyond: VecDeque::new(),
            ready: VecDeque::new(),
            told: Seq::new(1),
            has_ended: false,
        }
    }

    /// A packet has arrived. It is acknowledged whether it is news or not.
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

    /// What has arrived.
    pub fn ack(&mut self) -> Message {
        self.told = self.limit();
        let arrived = self.beyond.iter().skip(1).take(64).enumerate();
        let mask = arrived.fold(0, |mask, (bit, packet)| mask | u64::from(packet.is_some()) << bit);
        Message::Ack { expected: self.expected, limit: self.told, mask }
    }

    /// The next packet in order, to look at.
    pub fn peek(&self) -> Option<&(Flag, Bytes)> {
        self.ready.front()
    }

    /// Takes the first `len` bytes of the next packet; the packet itself goes when all are taken.
    pub fn take(&mut self, len: usize) -> Option<Bytes> {
        let (_, data) = self.ready.front_mut()?;
        let taken = data.split_to(len.min(data.len()));
        if data.is_empty() {
            self.ready.pop_front();
        }
        Some(taken)
    }

    /// An ACK that is due because there is room again: the peer may wait for it.
    pub fn poll_update(&mut self) -> Option<Message> {
        let was_shut =
            self.told == self.expected || self.limit().saturating_since(self.told) >= self.window.div_ceil(2);
        (self.limit().gt(self.told) && was_shut).then(|| self.ack())
    }

    /// Whether all has arrived.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether all has arrived, and was taken.
    pub fn is_done(&self) -> bool {
        self.has_ended && self.ready.is_empty()
    }

    /// Packets that wait for those before them, or for the owner.
    pub fn waiting(&self) -> usize {
        self.ready.len() + self.beyond.iter().flatten().count()
    }

    /// There is room for packets below.
    fn limit(&self) -> Seq {
        self.expected + self.window.saturating_sub(self.ready.len() as u32)
    }
}
