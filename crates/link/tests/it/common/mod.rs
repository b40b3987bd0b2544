//! Shared by the tests of this crate: named frames, and a shell that drives one link.

use holdover_base::{Duration, Instant};
use holdover_link::{DropCause, Frame, Link, LinkConfig, PointToPoint, PointToPointEvent};

/// A frame with a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Named {
    pub(crate) name: u32,
    pub(crate) len: u32,
}

impl Frame for Named {
    fn wire_len(&self) -> u32 {
        self.len
    }
}

/// The output of a link, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Delivered { at: Instant, name: u32, corrupted: bool },
    Dropped { at: Instant, name: u32, cause: DropCause },
    AttemptFailed { at: Instant, name: u32 },
    Down(Instant),
    Up(Instant),
    Forwards(Instant),
}

impl Seen {
    pub(crate) fn at(&self) -> Instant {
        match *self {
            Self::Delivered { at, .. } | Self::Dropped { at, .. } | Self::AttemptFailed { at, .. } => at,
            Self::Down(at) | Self::Up(at) | Self::Forwards(at) => at,
        }
    }
}

/// Drives a link as a simulator does: one event per deadline of the link, and the arrivals of a script.
pub(crate) struct World {
    pub(crate) link: PointToPoint<Named>,
    pub(crate) seen: Vec<Seen>,
    pub(crate) now: Instant,
}

impl World {
    pub(crate) fn new(config: &LinkConfig) -> Self {
        Self::with_seed(config, 1)
    }

    pub(crate) fn with_seed(config: &LinkConfig, seed: u64) -> Self {
        let link = PointToPoint::new(config, seed).expect("a link can be as described");
        Self { link, seen: Vec::new(), now: Instant::ZERO }
    }

    /// A frame enters at `at`.
    pub(crate) fn send(&mut self, at: Instant, name: u32, len: u32) {
        self.run_until(at);
        self.link.handle_packet(at, Named { name, len });
        self.poll();
    }

    /// Handles everything due by `end`.
    pub(crate) fn run_until(&mut self, end: Instant) {
        let mut steps = 0;
        while let Some((at, _)) = self.link.poll_timeout()
            && at <= end
        {
            assert!(at >= self.now, "the next deadline lies in the past: {at} before {}", self.now);
            self.now = at;
            self.link.handle_timeout(at);
            self.poll();
            steps += 1;
            assert!(steps < 10_000_000, "livelock at {at}");
        }
        self.now = self.now.max(end);
    }

    pub(crate) fn poll(&mut self) {
        while let Some(delivery) = self.link.poll_deliver(self.now) {
            assert!(delivery.at <= self.now);
            let (at, name) = (delivery.at, delivery.frame.name);
            self.seen.push(Seen::Delivered { at, name, corrupted: delivery.corrupted });
        }
        while let Some(event) = self.link.poll_event() {
            self.seen.push(match event {
                PointToPointEvent::Down { at } => Seen::Down(at),
                PointToPointEvent::Up { at } => Seen::Up(at),
                PointToPointEvent::Forwards { at } => Seen::Forwards(at),
                PointToPointEvent::AttemptFailed { at, frame } => Seen::AttemptFailed { at, name: frame.name },
                PointToPointEvent::Dropped { at, cause, frame } => Seen::Dropped { at, name: frame.name, cause },
            });
        }
    }

    /// The output since the last call.
    pub(crate) fn take(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.seen)
    }

    /// Runs until `end` and asserts the output since the last call.
    #[track_caller]
    pub(crate) fn expect(&mut self, end: Instant, expected: &[Seen]) {
        self.run_until(end);
        assert_eq!(self.take(), expected);
    }
}

pub(crate) fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

pub(crate) fn span_ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn delivered(millis: u64, name: u32) -> Seen {
    Seen::Delivered { at: ms(millis), name, corrupted: false }
}

pub(crate) fn corrupted(millis: u64, name: u32) -> Seen {
    Seen::Delivered { at: ms(millis), name, corrupted: true }
}

pub(crate) fn dropped(millis: u64, name: u32, cause: DropCause) -> Seen {
    Seen::Dropped { at: ms(millis), name, cause }
}
