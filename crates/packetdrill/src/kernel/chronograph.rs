//! How long a sender had something to send or outstanding, and how long the peer's window held it back (`tcpi_busy_time`,
//! `tcpi_rwnd_limited`), or its own buffer (`tcpi_sndbuf_limited`).

use holdover_base::{Duration, Instant};
use holdover_tcp::{Connection, State};

/// The limit of a sender at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Activity {
    Idle,
    Busy,
    LimitedByPeer,
    /// All was sent, and the application waits for room in the buffer.
    LimitedByBuffer,
}

impl Activity {
    fn of(connection: &Connection) -> Self {
        let unsent = connection.unsent_len();
        // A SYN is not data; its Fast Open payload is, and so is an answer before the handshake ends.
        let syn = usize::from(matches!(connection.state(), State::SynSent | State::SynReceived));
        let outstanding = (connection.send_queue_len() - unsent).saturating_sub(syn);
        let room = (connection.snd_wnd() as usize).saturating_sub(outstanding);
        let next = unsent.min(connection.snd_mss() as usize);
        if unsent == 0 && outstanding == 0 {
            Self::Idle
        } else if room < next && connection.in_flight() < connection.cwnd() {
            Self::LimitedByPeer
        } else if unsent == 0 && connection.is_buffer_full() && connection.in_flight() < connection.cwnd() {
            Self::LimitedByBuffer
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
    times: BusyTimes,
}

/// How long a connection had something to send or outstanding, and the parts of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BusyTimes {
    pub(crate) busy: Duration,
    /// The peer's window was closed to the next segment.
    pub(crate) limited_by_peer: Duration,
    /// The send buffer was too small.
    pub(crate) limited_by_buffer: Duration,
}

impl Chronograph {
    pub(super) fn new(now: Instant) -> Self {
        Self { activity: Activity::Idle, since: now, times: BusyTimes::default() }
    }

    /// The connection may have changed its state at `now`.
    pub(super) fn note(&mut self, now: Instant, connection: &Connection) {
        self.times = self.times(now);
        (self.activity, self.since) = (Activity::of(connection), now);
    }

    /// The times until `now`.
    pub(crate) fn times(&self, now: Instant) -> BusyTimes {
        let passed = now.saturating_since(self.since);
        let mut times = self.times;
        match self.activity {
            Activity::Idle => return times,
            Activity::Busy => {}
            Activity::LimitedByPeer => times.limited_by_peer += passed,
            Activity::LimitedByBuffer => times.limited_by_buffer += passed,
        }
        times.busy += passed;
        times
    }
}
