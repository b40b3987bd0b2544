//! The processor of a router: one server with a queue.

use std::collections::VecDeque;

use holdover_base::{Duration, Instant};

use crate::config::RouterCpu;
use crate::frame::Frame;
use crate::ids::NodeId;

/// Counters of a router's processor.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuStatistics {
    /// Served packets.
    pub packets: u64,
    /// Packets handled by mechanisms.
    pub operations: u64,
    /// Packets that mechanisms made in addition to those that arrived.
    pub made: u64,
    /// Bytes of payload compressed by mechanisms.
    pub compressed_bytes: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// The total busy time.
    pub busy: Duration,
    /// The sum of the waiting and service times of packets.
    pub sojourn: Duration,
    /// The most packets that waited or were served at one time.
    pub most_waiting: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    config: RouterCpu,
    line: VecDeque<Waiting>,
    /// When the service of the first packet ends.
    done_at: Option<Instant>,
    /// Until when it does other work.
    busy_until: Instant,
    statistics: CpuStatistics,
}

#[derive(Clone, Debug)]
struct Waiting {
    frame: Box<Frame>,
    takes: Duration,
    since: Instant,
    is_operation: bool,
}

impl Cpu {
    pub(crate) fn new(config: RouterCpu) -> Self {
        Self {
            config,
            line: VecDeque::new(),
            done_at: None,
            busy_until: Instant::ZERO,
            statistics: CpuStatistics::default(),
        }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.config.node
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.done_at
    }

    pub(crate) fn statistics(&self) -> CpuStatistics {
        self.statistics
    }

    pub(crate) fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Queues a packet, or returns it if the queue is full.
    pub(crate) fn take(&mut self, now: Instant, frame: Box<Frame>, is_operation: bool) -> Result<(), Box<Frame>> {
        if self.line.len() >= self.config.backlog_packets as usize {
            self.statistics.dropped += 1;
            return Err(frame);
        }
        let bytes = u64::from(holdover_link::Frame::wire_len(&*frame));
        let RouterCpu { per_packet, per_byte, per_operation, per_operation_byte, .. } = self.config;
        let mut takes = per_packet + per_byte * bytes;
        if is_operation {
            takes += per_operation + per_operation_byte * bytes;
        }
        self.line.push_back(Waiting { frame, takes, since: now, is_operation });
        self.statistics.most_waiting = self.statistics.most_waiting.max(self.line.len() as u64);
        self.begin(now);
        Ok(())
    }

    /// Ends the service of the first packet. [`Self::begin`] is due when the consequences have been handled.
    pub(crate) fn finish(&mut self, now: Instant) -> Option<Box<Frame>> {
        self.done_at.take_if(|at| *at <= now)?;
        let Waiting { frame, takes, since, is_operation } = self.line.pop_front()?;
        self.statistics.packets += 1;
        self.statistics.operations += u64::from(is_operation);
        self.statistics.busy += takes;
        self.statistics.sojourn += now.saturating_since(since);
        Some(frame)
    }

    /// Begins the service of the next packet, if there is one and the processor is free.
    pub(crate) fn begin(&mut self, now: Instant) {
        if self.done_at.is_none()
            && let Some(first) = self.line.front()
        {
            self.done_at = Some(self.busy_until.max(now) + first.takes);
        }
    }

    /// Mechanisms have made packets of these lengths.
    pub(crate) fn note_made(&mut self, now: Instant, bytes: impl Iterator<Item = u64>) {
        for bytes in bytes {
            self.occupy(now, self.config.per_packet + self.config.per_byte * bytes);
            self.statistics.made += 1;
        }
    }

    /// Mechanisms have compressed this many bytes of payload.
    pub(crate) fn note_compressed(&mut self, now: Instant, bytes: u64) {
        self.occupy(now, self.config.per_compressed_byte * bytes);
        self.statistics.compressed_bytes += bytes;
    }

    /// Work for no packet in the queue delays the queue.
    fn occupy(&mut self, now: Instant, takes: Duration) {
        self.busy_until = self.busy_until.max(now) + takes;
        if let Some(done_at) = &mut self.done_at {
            *done_at += takes;
        }
        self.statistics.busy += takes;
    }
}
