//! The trait of all links, and the causes of drops.

use core::fmt;

use holdover_base::Instant;

/// A link: frames enter at one end and arrive at the other, later, or are dropped with a cause.
///
/// The calls of a shell, in order, whenever a frame enters or a deadline ([`poll_timeout`](Link::poll_timeout)) is due:
///
/// 1. [`handle_packet`](Link::handle_packet) for each frame that entered, or [`handle_timeout`](Link::handle_timeout);
/// 2. [`poll_deliver`](Link::poll_deliver) until `None`;
/// 3. [`poll_event`](Link::poll_event) until `None`;
/// 4. [`poll_timeout`](Link::poll_timeout), and schedule that time if it has changed.
///
/// `now` must not run backwards. A call with an earlier `now` is treated as if made at the latest one seen.
///
/// The results of a link depend on its deadlines, not on the times of calls: a late shell on the wall clock gets the same frames, with the
/// time at which they were due in [`Delivery::at`].
pub trait Link {
    /// The input.
    type In;
    /// The output.
    type Out;
    /// An event for the operator.
    type Event;

    /// `input` enters the link at `now`. `poll_deliver` and `poll_event` report the result.
    fn handle_packet(&mut self, now: Instant, input: Self::In);

    /// Handles the deadline of `poll_timeout`.
    fn handle_timeout(&mut self, now: Instant);

    /// The next frame that has reached the far end by `now`.
    fn poll_deliver(&mut self, now: Instant) -> Option<Self::Out>;

    /// The next event. Drops are among them: a shell that does not take them keeps the dropped frames in memory.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When to call `handle_timeout` and `poll_deliver` next, and why. `None` while no frame is in the link and its
    /// connectivity will not change; a link whose outages never end always has a next deadline.
    fn poll_timeout(&self) -> Option<(Instant, Timer)>;
}

/// The reason of a deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// The link goes down or comes up.
    Connectivity,
    /// A frame reaches the far end, or is known to be lost.
    Arrival,
    /// The radio medium falls idle and the next frame may be sent.
    Medium,
    /// A station out of range drops its frame.
    RetryLimit,
    /// A link with ARQ learns that a transmission has failed.
    Retransmission,
}

/// A frame at the far end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery<F> {
    /// When it was due; not later than the `now` of the call.
    pub at: Instant,
    /// The frame as it was sent.
    pub frame: F,
    /// Its bits were damaged on the way. The frame still holds the original bits: the shell decides the effect of the
    /// damage (a checksum failure, or a flipped bit in front of a real kernel).
    pub corrupted: bool,
}

/// Why a frame was dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropCause {
    /// The queue was at its limit.
    QueueFull,
    /// Lost at random on the wire.
    Loss,
    /// It was queued at, or entered, a link that was down and does not hold frames.
    LinkDown,
    /// It was half sent or on the wire when the link went down, or was sent while the link was down.
    CutOff,
    /// The station did not answer within the retry limit because it was out of the cell's range.
    OutOfRange,
    /// It collided as often as the retry limit allows.
    Collision,
    /// Its station is not, or no longer, in the cell.
    StationLeft,
    /// It was sent after the link's return and before the link forwarded again.
    NotForwarding,
    /// The link's ARQ has used up its attempts.
    AttemptsUsed,
    /// In a radio cell: damaged as often as the retry limit allows, or a damaged broadcast.
    BitErrors,
    /// CoDel dropped it from the queue.
    CoDel,
}

impl DropCause {
    /// All causes, in the order of their declaration.
    pub const ALL: [Self; 11] = [
        Self::QueueFull,
        Self::Loss,
        Self::LinkDown,
        Self::CutOff,
        Self::OutOfRange,
        Self::Collision,
        Self::StationLeft,
        Self::NotForwarding,
        Self::AttemptsUsed,
        Self::BitErrors,
        Self::CoDel,
    ];

    /// The cause's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::Loss => "loss",
            Self::LinkDown => "link-down",
            Self::CutOff => "cut-off",
            Self::OutOfRange => "out-of-range",
            Self::Collision => "collision",
            Self::StationLeft => "station-left",
            Self::NotForwarding => "not-forwarding",
            Self::AttemptsUsed => "attempts-used",
            Self::BitErrors => "bit-errors",
            Self::CoDel => "codel",
        }
    }
}

impl fmt::Display for DropCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
