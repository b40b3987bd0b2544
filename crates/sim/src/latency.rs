//! The latency of a host: the time from a packet's arrival at the host until its TCP handles it.
//!
//! Interrupt, scheduling and cold caches take tens of microseconds, and more after a pause. That is little beside a round trip, and yet it
//! decides which packets a bottleneck drops: ACKs that a queue has spaced release data at the very instants at which that queue has room
//! again. When the first ACK after a pause takes longer than the following ones, their data arrives that much before there is room.

use std::collections::VecDeque;

use holdover_base::{Instant, Rng};

use crate::config::HostLatency;
use crate::frame::Frame;
use crate::ids::NodeId;

/// A delay line: packets keep their order.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    config: HostLatency,
    rng: Rng,
    line: VecDeque<(Instant, Box<Frame>)>,
    /// When the last packet arrived, if any did.
    heard_at: Option<Instant>,
}

impl Latency {
    /// The latency of the host with this name.
    pub(crate) fn new(config: HostLatency, name: &str, seed: u64) -> Self {
        let rng = Rng::split(seed, &format!("latency {name}"));
        Self { config, rng, line: VecDeque::new(), heard_at: None }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.config.node
    }

    /// When the next packet is received.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.line.front().map(|(at, _)| *at)
    }

    /// A packet arrives.
    pub(crate) fn take(&mut self, now: Instant, frame: Box<Frame>) {
        let HostLatency { busy, idle, idle_after, .. } = self.config;
        let was_idle = self.heard_at.is_none_or(|at| now.saturating_since(at) >= idle_after);
        self.heard_at = Some(now);
        let at = now + if was_idle { idle } else { busy }.draw(&mut self.rng);
        let last = self.line.back().map_or(at, |(last, _)| *last);
        self.line.push_back((at.max(last), frame));
    }

    /// The next packet that has been received by `now`.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Box<Frame>> {
        self.line.pop_front_if(|(at, _)| *at <= now).map(|(_, frame)| frame)
    }
}
