//! Packets that wait for the link to take them.
//!
//! A packet socket refuses a packet when the interface's queue is full (`ENOBUFS`), which passes, and also when the link has no
//! carrier, which does not. Nothing else repeats an ACK that the agent made, so it is tried again: with growing pauses, a
//! limited number of times, and not at all on a link that is known to be down, out of which the copies could come later as a burst.

use holdover_base::{Duration, Instant};
use holdover_mobility::{Connection, Direction, Injected};

/// The first pause before another try; each is twice as long as the one before, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// A queue of 1,000 packets of 1,500 bytes is over in this time at 100 Mbit/s.
const LONGEST_PAUSE: Duration = Duration::from_millis(128);

/// So often a packet is tried again: for some 0.9 s in all.
const MOST_TRIES: u32 = 12;

/// What the link did not take last.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Option<Waiting>,
    /// The link was told to be down.
    is_down: bool,
}

/// A packet that the link has not taken.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) connection: Connection,
    pub(super) injected: Injected,
    /// How often it was tried again; it goes on to what follows in the same burst.
    pub(super) tries: u32,
    again_at: Instant,
}

impl Outbox {
    /// The link is down, or not any more.
    pub(super) fn set_down(&mut self, is_down: bool) {
        self.is_down = is_down;
        if is_down {
            self.waiting = None;
        }
    }

    /// Whether a packet is not to be sent at all.
    pub(super) fn refuses(&self, direction: Direction) -> bool {
        self.is_down && direction == Direction::Outgoing
    }

    /// Whether something waits whose time has not come: what comes after it waits too.
    pub(super) fn is_blocked(&self, now: Instant) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| now < waiting.again_at)
    }

    /// Whether anything waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// What waits, to be tried now.
    pub(super) fn take(&mut self) -> Option<Waiting> {
        self.waiting.take()
    }

    /// A packet that the link has not taken after `tries` tries; whether it is tried again.
    pub(super) fn put_off(&mut self, now: Instant, connection: Connection, injected: Injected, tries: u32) -> bool {
        if tries >= MOST_TRIES {
            return false;
        }
        let pause = FIRST_PAUSE.saturating_shl(tries).min(LONGEST_PAUSE);
        self.waiting = Some(Waiting { connection, injected, tries: tries + 1, again_at: now + pause });
        true
    }

    /// When what waits is tried again.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.as_ref().map(|waiting| waiting.again_at)
    }
}

#[cfg(test)]
mod tests {
    use holdover_wire::{Packet, Segment};

    use super::*;

    #[test]
    fn tries_are_spaced_and_few() {
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
        // What waits when the link goes down does not keep back what is to leave when it is up again.
        assert!(outbox.put_off(now, connection, injected, 0));
        outbox.set_down(true);
        assert!(!outbox.is_waiting() && !outbox.is_blocked(now));
        assert!(outbox.refuses(Direction::Outgoing) && !outbox.refuses(Direction::Incoming));
    }
}
