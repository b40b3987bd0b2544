//! Packets that the link has not accepted.
//!
//! A packet socket refuses a packet when the interface's queue is full (`ENOBUFS`), which passes, and also when the
//! link has no carrier, which does not. Nothing else repeats an ACK of the agent, so it is retried: with growing
//! pauses, a limited number of times, and not at all on a link that is down, which could send the copies later as a
//! burst.

use holdover_base::{Duration, Instant};
use holdover_mobility::{Connection, Direction, Injected};

/// The first pause before another try; each is twice as long as the one before, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// The time to drain a queue of 1,000 packets of 1,500 bytes at 100 Mbit/s.
const LONGEST_PAUSE: Duration = Duration::from_millis(128);

/// Attempts per packet: some 0.9 s in all.
const MOST_TRIES: u32 = 12;

/// The packets that the link has not accepted.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Option<Waiting>,
    /// The link is down.
    is_down: bool,
}

/// A packet that the link has not accepted.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) connection: Connection,
    pub(super) injected: Injected,
    /// The number of retries, also counted for the packets that follow in the same burst.
    pub(super) tries: u32,
    again_at: Instant,
}

impl Outbox {
    /// Sets whether the link is down.
    pub(super) fn set_down(&mut self, is_down: bool) {
        self.is_down = is_down;
        if is_down {
            self.waiting = None;
        }
    }

    /// Whether a packet must not be sent at all.
    pub(super) fn refuses(&self, direction: Direction) -> bool {
        self.is_down && direction == Direction::Outgoing
    }

    /// Whether a packet waits for its retry: later ones wait too.
    pub(super) fn is_blocked(&self, now: Instant) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| now < waiting.again_at)
    }

    /// Whether any packet waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// The waiting packet, to be retried now.
    pub(super) fn take(&mut self) -> Option<Waiting> {
        self.waiting.take()
    }

    /// Queues a packet after `tries` attempts; returns whether it will be retried.
    pub(super) fn put_off(&mut self, now: Instant, connection: Connection, injected: Injected, tries: u32) -> bool {
        if tries >= MOST_TRIES {
            return false;
        }
        let pause = FIRST_PAUSE.saturating_shl(tries).min(LONGEST_PAUSE);
        self.waiting = Some(Waiting { connection, injected, tries: tries + 1, again_at: now + pause });
        true
    }

    /// The time of the next retry.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.as_ref().map(|waiting| waiting.again_at)
    }
}

#[cfg(test)]
mod tests {
    use holdover_wire::{Packet, Segment};

    use super::*;

    #[test]
    fn retries_are_spaced_and_few() {
        let connection =
            Connection { local: "192.0.2.7:1024".parse().unwrap(), remote: "198.51.100.1:443".parse().unwrap() };
        let packet = Packet::new(connection.local.ip(), connection.remote.ip(), Segment::default());
        let injected = Injected { direction: Direction::Outgoing, packet };
        let mut outbox = Outbox::default();
        let (mut now, mut tries, mut pauses) = (Instant::from_secs(1), 0, Vec::new());
        while outbox.put_off(now, connection, injected.clone(), tries) {
            let at = outbox.poll_timeout().unwrap();
            assert!(outbox.is_blocked(now) && !outbox.is_blocked(at));
            pauses.push(at.saturating_since(now).as_millis());
            now = at;
            tries = outbox.take().unwrap().tries;
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 128, 128, 128, 128, 128]);
        assert!(!outbox.is_waiting() && outbox.poll_timeout().is_none());
        // A packet that waits at link-down does not delay those after link-up.
        assert!(outbox.put_off(now, connection, injected, 0));
        outbox.set_down(true);
        assert!(!outbox.is_waiting() && !outbox.is_blocked(now));
        assert!(outbox.refuses(Direction::Outgoing) && !outbox.refuses(Direction::Incoming));
    }
}
