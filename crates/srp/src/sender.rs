//! The sending half of a session: numbers packets, keeps them until they are acknowledged, and retransmits the missing
//! ones.

use std::collections::VecDeque;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_wire::Seq;

use crate::SrpConfig;
use crate::message::{Flag, Message};

/// The most packets that a mask can report.
const MOST_WINDOW: u32 = 64;

/// The sending half. See the [module](self).
#[derive(Debug)]
pub struct Sender {
    window: u32,
    least: Duration,
    most: Duration,
    /// Packets from the oldest unacknowledged one on.
    sent: VecDeque<Sent>,
    base: Seq,
    next: Seq,
    /// The peer has room for packets below this number.
    limit: Seq,
    /// The number of transmissions: later ones have higher numbers.
    transmissions: u64,
    smoothed: Option<Duration>,
    deviation: Duration,
    backoff: u32,
    /// The time to retransmit the oldest packet, or to send a probe.
    due: Option<Instant>,
    /// Whether the direction has ended.
    has_ended: bool,
    ready: VecDeque<Message>,
    repeated: u64,
}

#[derive(Debug)]
struct Sent {
    flag: Flag,
    data: Bytes,
    at: Instant,
    /// The number of its last transmission.
    transmission: u64,
    is_repeated: bool,
    is_acked: bool,
}

impl Sender {
    /// Before the first packet.
    pub fn new(config: &SrpConfig) -> Self {
        Self {
            window: config.window_packets,
            least: config.least_timeout,
            most: config.most_timeout,
            sent: VecDeque::new(),
            base: Seq::new(0),
            next: Seq::new(0),
            // The peer has room for its first packet.
            limit: Seq::new(1),
            transmissions: 0,
            smoothed: None,
            deviation: Duration::ZERO,
            backoff: 0,
            due: None,
            has_ended: false,
            ready: VecDeque::new(),
            repeated: 0,
        }
    }

    /// Whether another packet may be sent.
    pub fn has_room(&self) -> bool {
        !self.has_ended && (self.sent.len() as u32) < self.window && self.next.lt(self.limit)
    }

    /// Whether everything sent has arrived, the end of the direction included.
    pub fn is_done(&self) -> bool {
        self.has_ended && self.sent.is_empty()
    }

    /// Whether the end of the direction was sent.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Packets in flight.
    pub fn outstanding(&self) -> usize {
        self.sent.len()
    }

    /// Bytes of data in flight.
    pub fn bytes(&self) -> usize {
        self.sent.iter().map(|sent| sent.data.len()).sum()
    }

    /// The number of retransmissions.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Sends a packet if there is room ([`Self::has_room`]); does nothing otherwise.
    pub fn send(&mut self, now: Instant, flag: Flag, data: Bytes) {
        if !self.has_room() {
            return;
        }
        self.has_ended |= flag == Flag::End;
        self.transmissions += 1;
        let transmission = self.transmissions;
        self.ready.push_back(Message::Data { number: self.next, flag, data: data.clone() });
        self.sent.push_back(Sent { flag, data, at: now, transmission, is_repeated: false, is_acked: false });
        self.next += 1;
        if self.due.is_none() {
            self.due = Some(now + self.timeout());
        }
    }

    /// The owner has data and no room: probes the peer's window until it opens.
    pub fn wait_for_room(&mut self, now: Instant) {
        if self.sent.is_empty() && self.due.is_none() {
            self.due = Some(now + self.timeout());
        }
    }

    /// Handles an acknowledgement.
    pub fn handle_ack(&mut self, now: Instant, expected: Seq, limit: Seq, mask: u64) {
        // A peer cannot acknowledge numbers that were never sent.
        if expected.gt(self.next) || expected.lt(self.base) {
            return;
        }
        if limit.gt(self.limit) && limit.saturating_since(expected) <= MOST_WINDOW {
            self.limit = limit;
        }
        let mut newest = None;
        let mut sample = None;
        for (index, sent) in self.sent.iter_mut().enumerate() {
            let number = self.base + index as u32;
            let bit = number.saturating_since(expected + 1);
            let is_masked = number.gt(expected) && bit < 64 && mask >> bit & 1 == 1;
            if (number.lt(expected) || is_masked) && !sent.is_acked {
                sent.is_acked = true;
                newest = newest.max(Some(sent.transmission));
                if !sent.is_repeated {
                    sample = Some(now.saturating_since(sent.at));
                }
            }
        }
        while self.sent.front().is_some_and(|sent| sent.is_acked) {
            self.sent.pop_front();
            self.base += 1;
        }
        if let Some(sample) = sample {
            self.take_sample(sample);
        }
        if let Some(newest) = newest {
            self.backoff = 0;
            self.repeat_before(now, newest);
            self.due = (!self.sent.is_empty()).then(|| now + self.timeout());
        } else if self.sent.is_empty() {
            self.due = None;
        }
    }

    /// Retransmits packets whose last transmission precedes one that has arrived.
    fn repeat_before(&mut self, now: Instant, newest: u64) {
        for index in 0..self.sent.len() {
            if !self.sent[index].is_acked && self.sent[index].transmission < newest {
                self.repeat(now, index);
            }
        }
    }

    fn repeat(&mut self, now: Instant, index: usize) {
        let number = self.base + index as u32;
        self.transmissions += 1;
        self.repeated += 1;
        let sent = &mut self.sent[index];
        (sent.at, sent.transmission, sent.is_repeated) = (now, self.transmissions, true);
        self.ready.push_back(Message::Data { number, flag: sent.flag, data: sent.data.clone() });
    }

    /// Handles a deadline that has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.due.take_if(|due| *due <= now).is_none() {
            return;
        }
        self.backoff = self.backoff.saturating_add(1);
        if self.sent.is_empty() {
            self.ready.push_back(Message::Probe);
        } else {
            // The answer to the oldest packet shows the other holes.
            self.repeat(now, 0);
        }
        self.due = Some(now + self.timeout());
    }

    /// The peer has received everything and dropped the session.
    pub fn finish(&mut self) {
        self.sent.clear();
        self.due = None;
    }

    /// The next message.
    pub fn poll_transmit(&mut self) -> Option<Message> {
        self.ready.pop_front()
    }

    /// The next deadline.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn timeout(&self) -> Duration {
        let plain = self.smoothed.map_or(self.most, |smoothed| (smoothed + self.deviation * 4).max(self.least));
        let doubled = (0..self.backoff.min(16)).fold(plain, |timeout, _| (timeout * 2).min(self.most));
        doubled.min(self.most)
    }

    /// RFC 6298 section 2.
    fn take_sample(&mut self, sample: Duration) {
        match self.smoothed {
            None => (self.smoothed, self.deviation) = (Some(sample), sample / 2),
            Some(smoothed) => {
                let error = smoothed.max(sample).saturating_sub(smoothed.min(sample));
                self.deviation = (self.deviation * 3 + error) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
    }
}
