//! How long a sender had something to send or outstanding, and how long the peer's window held it back (`tcpi_busy_time`,
//! `tcpi_rwnd_limited`).

use holdover_base::{Duration, Instant};
use holdover_tcp::{Connection, State};

/// What limits a sender at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Activity {
    Idle,
    Busy,
    LimitedByPeer,
}

impl Activity {
    fn of(connection: &Connection) -> Self {
        let unsent = connection.unsent_len();
        // A SYN is no data; what goes with it by Fast Open is, and so is an answer before the handshake ends.
        let syn = usize::from(matches!(connection.state(), State::SynSent | State::SynReceived));
        let outstanding = (connection.send_queue_len() - unsent).saturating_sub(syn);
        let room = (connection.snd_wnd() as usize).saturating_sub(outstanding);
        let next = unsent.min(connection.snd_mss() as usize);
        if unsent == 0 && outstanding == 0 {
            Self::Idle
        } else if room < next && connection.in_flight() < connection.cwnd() {
            Self::LimitedByPeer
        } else {
            Self::Busy
        }
    }
}

/// The times of one connection. Its state changes only when the machine acts, so that it is checked then.
#[derive(Clone, Debug)]
pub(crate) struct Chronograph {
    activity: Activity,
    since: Instant,
    busy: Duration,
    limited: Duration,
}

impl Chronograph {
    pub(super) fn new(now: Instant) -> Self {
        Self { activity: Activity::Idle, since: now, busy: Duration::ZERO, limited: Duration::ZERO }
    }

    /// The connection may have changed its state at `now`.
    pub(super) fn note(&mut self, now: Instant, connection: &Connection) {
        (self.busy, self.limited) = self.times(now);
        (self.activity, self.since) = (Activity::of(connection), now);
    }

    /// The time until `now` with something to send or outstanding, and the part of it in which the peer's window was closed to it.
    pub(crate) fn times(&self, now: Instant) -> (Duration, Duration) {
        let passed = now.saturating_since(self.since);
        match self.activity {
            Activity::Idle => (self.busy, self.limited),
            Activity::Busy => (self.busy + passed, self.limited),
            Activity::LimitedByPeer => (self.busy + passed, self.limited + passed),
        }
    }
}
