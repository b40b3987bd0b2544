//! The pieces of an answer on their way to a peer: numbered messages, each confirmed, with congestion control.
//!
//! An answer may hold the buffers of many connections, and its way may be slow. The number of pieces in flight begins at
//! [`INITIAL_WINDOW`], and follows the confirmations as a TCP's congestion window follows ACKs (RFC 5681): slow start, congestion
//! avoidance, half of it after a loss, one after a timeout. A piece is lost if [`REORDERING`] later ones are confirmed, or if nothing is
//! confirmed for a timeout that follows the round trip (RFC 6298).

use std::collections::{BTreeMap, BTreeSet};

use holdover_base::{Duration, Instant};

use super::repeat::Repeat;
use super::split_record::Piece;

/// Pieces in flight at first (RFC 6928).
const INITIAL_WINDOW: usize = 10;
/// Pieces in flight after a timeout (RFC 5681 section 3.1).
const LOSS_WINDOW: usize = 1;
/// The timeout before the first sample (RFC 6298 section 2.1).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// The most pieces in flight.
const MOST_IN_FLIGHT: usize = 256;
/// The least window after a loss (RFC 5681 section 3.1).
const LEAST_WINDOW: usize = 2;
/// So many later pieces are confirmed before one counts as lost (RFC 5681 section 3.2).
const REORDERING: u64 = 3;

/// The unconfirmed pieces of an answer.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    pieces: BTreeMap<u16, Unconfirmed>,
    /// The indices of pieces in flight, in the order in which they were sent.
    in_flight: BTreeMap<u64, InFlight>,
    /// The indices of pieces to send, for the first time or again.
    waiting: BTreeSet<u16>,
    sent: u64,
    /// The latest sent piece that was confirmed.
    latest: u64,
    window: usize,
    threshold: usize,
    /// Confirmations since the window last grew in congestion avoidance.
    confirmed: usize,
    /// Losses among pieces sent before this one belong to one loss.
    recovered_at: u64,
    round_trip: Option<RoundTrip>,
    least: Duration,
    tries: u32,
    repeat: Repeat,
}

#[derive(Clone, Debug)]
struct Unconfirmed {
    piece: Piece,
    /// Its place in the order of sending, while in flight.
    order: Option<u64>,
    is_repeated: bool,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    index: u16,
    sent_at: Instant,
}

/// SRTT and RTTVAR (RFC 6298).
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    smoothed: Duration,
    variation: Duration,
}

impl RoundTrip {
    fn of(before: Option<Self>, sample: Duration) -> Self {
        let Some(Self { smoothed, variation }) = before else {
            return Self { smoothed: sample, variation: sample / 2 };
        };
        let error = smoothed.saturating_sub(sample).max(sample.saturating_sub(smoothed));
        Self { smoothed: smoothed / 8 * 7 + sample / 8, variation: variation / 4 * 3 + error / 4 }
    }

    fn timeout(self) -> Duration {
        self.smoothed + self.variation * 4
    }
}

impl Sending {
    /// Nothing is sent before [`Self::take_due`]. The timeout is at least `least`, and doubles; the answer is given up after `tries` of
    /// them without a confirmation.
    pub(super) fn new(now: Instant, pieces: Vec<Piece>, least: Duration, tries: u32) -> Self {
        let pieces = (0..=u16::MAX).zip(pieces);
        let pieces = pieces.map(|(index, piece)| (index, Unconfirmed { piece, order: None, is_repeated: false }));
        let pieces: BTreeMap<u16, Unconfirmed> = pieces.collect();
        Self {
            waiting: pieces.keys().copied().collect(),
            pieces,
            in_flight: BTreeMap::new(),
            sent: 0,
            latest: 0,
            window: INITIAL_WINDOW,
            threshold: MOST_IN_FLIGHT,
            confirmed: 0,
            recovered_at: 0,
            round_trip: None,
            least,
            tries,
            repeat: Repeat::begin(now, INITIAL_TIMEOUT, tries),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether the timeouts are used up.
    pub(super) fn is_given_up(&self) -> bool {
        self.repeat.at.is_none()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.repeat.at
    }

    /// The pieces to send now, with their indices, which count as sent.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(u16, Piece)> {
        let mut due = Vec::new();
        while self.in_flight.len() < self.window
            && let Some(index) = self.waiting.pop_first()
        {
            let Some(unconfirmed) = self.pieces.get_mut(&index) else { continue };
            self.sent += 1;
            unconfirmed.order = Some(self.sent);
            self.in_flight.insert(self.sent, InFlight { index, sent_at: now });
            due.push((index, unconfirmed.piece.clone()));
        }
        due
    }

    /// The peer has asked again, which shows that messages get through. Pieces are sent again by their own timeout: only an answer that was
    /// given up begins again.
    pub(super) fn handle_question(&mut self, now: Instant) {
        if self.is_given_up() {
            self.time_out();
            self.repeat = Repeat::begin(now, self.timeout(), self.tries);
        }
    }

    /// A piece has arrived. Returns whether that is news.
    pub(super) fn handle_taken(&mut self, now: Instant, index: u16) -> bool {
        let Some(unconfirmed) = self.pieces.remove(&index) else { return false };
        self.waiting.remove(&index);
        if let Some(order) = unconfirmed.order
            && let Some(flight) = self.in_flight.remove(&order)
        {
            self.latest = self.latest.max(order);
            if !unconfirmed.is_repeated {
                self.round_trip = Some(RoundTrip::of(self.round_trip, now.saturating_since(flight.sent_at)));
            }
        }
        self.grow();
        self.find_losses();
        self.repeat = Repeat::begin(now, self.timeout(), self.tries);
        true
    }

    /// A deadline has passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if !self.repeat.is_due(now) || !self.repeat.is_due_again(now) {
            return;
        }
        self.time_out();
    }

    fn time_out(&mut self) {
        self.threshold = (self.window / 2).max(LEAST_WINDOW);
        (self.window, self.confirmed, self.recovered_at) = (LOSS_WINDOW, 0, self.sent);
        let all: Vec<u64> = self.in_flight.keys().copied().collect();
        for order in all {
            self.lose(order);
        }
    }

    fn timeout(&self) -> Duration {
        self.round_trip.map_or(INITIAL_TIMEOUT, |round_trip| round_trip.timeout().max(self.least))
    }

    fn grow(&mut self) {
        self.confirmed += 1;
        if self.window < self.threshold || self.confirmed >= self.window {
            (self.window, self.confirmed) = ((self.window + 1).min(MOST_IN_FLIGHT), 0);
        }
    }

    fn find_losses(&mut self) {
        let lost: Vec<u64> =
            self.in_flight.range(..=self.latest.saturating_sub(REORDERING)).map(|(&at, _)| at).collect();
        if lost.last().is_some_and(|&last| last > self.recovered_at) {
            self.threshold = (self.window / 2).max(LEAST_WINDOW);
            (self.window, self.confirmed, self.recovered_at) = (self.threshold, 0, self.sent);
        }
        for order in lost {
            self.lose(order);
        }
    }

    fn lose(&mut self, order: u64) {
        let Some(InFlight { index, .. }) = self.in_flight.remove(&order) else { return };
        if let Some(unconfirmed) = self.pieces.get_mut(&index) {
            (unconfirmed.order, unconfirmed.is_repeated) = (None, true);
            self.waiting.insert(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn sending(count: u16) -> Sending {
        let piece = |offset: u16| Piece {
            is_doubtful: false,
            number: 0,
            total: u32::from(count),
            offset: u32::from(offset),
            bytes: Bytes::from_static(b"."),
        };
        Sending::new(at(0), (0..count).map(piece).collect(), Duration::from_millis(200), 7)
    }

    fn due(sending: &mut Sending, millis: u64) -> Vec<u16> {
        let due = sending.take_due(at(millis));
        due.into_iter()
            .map(|(index, piece)| {
                assert_eq!(piece.offset, u32::from(index));
                index
            })
            .collect()
    }

    /// Two more with each confirmation, up to the limit.
    #[test]
    fn the_window_opens_by_slow_start() {
        let mut sending = sending(1_000);
        let mut next = 10;
        assert_eq!(due(&mut sending, 0), Vec::from_iter(0..10));
        for index in 0..500 {
            sending.handle_taken(at(5), index);
            let sent = due(&mut sending, 5);
            assert!(sent.len() <= 2 && sent == Vec::from_iter(next..next + sent.len() as u16), "{sent:?}");
            next += sent.len() as u16;
            assert!(sending.in_flight.len() <= MOST_IN_FLIGHT);
        }
        assert_eq!(sending.window, MOST_IN_FLIGHT);
        assert_eq!(sending.poll_timeout(), Some(at(205)));
    }

    /// A piece that three later ones have overtaken is sent again at once, and the window is halved once.
    #[test]
    fn a_lost_piece_is_sent_again_and_halves_the_window() {
        let mut sending = sending(100);
        assert_eq!(due(&mut sending, 0).len(), 10);
        for index in [1, 2] {
            sending.handle_taken(at(10), index);
            assert_eq!(due(&mut sending, 10).len(), 2, "reordered, perhaps");
        }
        sending.handle_taken(at(10), 3);
        assert_eq!(sending.window, 6, "half of 13");
        assert_eq!(due(&mut sending, 10), [] as [u16; 0], "more than that are in flight");
        for index in 4..10 {
            sending.handle_taken(at(11), index);
        }
        assert_eq!(due(&mut sending, 11).first(), Some(&0), "before new ones");
        let window = sending.window;
        // Another one of the same loss.
        assert!(window >= 6);
        sending.handle_taken(at(12), 0);
        assert!(!sending.pieces.contains_key(&0));
    }

    /// The first timeout is one second. It follows the round trip, and doubles; after it a single piece is sent. After the last the answer is
    /// given up, until the peer asks again.
    #[test]
    fn the_timeout_follows_the_round_trip_and_doubles() {
        let mut sending = sending(30);
        due(&mut sending, 0);
        assert_eq!(sending.poll_timeout(), Some(at(1_000)));
        sending.handle_question(at(300));
        assert_eq!(due(&mut sending, 300), [] as [u16; 0], "the peer's repeated request brings nothing again");
        sending.handle_taken(at(400), 0);
        // 400 ms and four times half of that.
        assert_eq!(sending.poll_timeout(), Some(at(400 + 1_200)));
        assert_eq!(due(&mut sending, 400), [10, 11]);
        sending.handle_timeout(at(1_600));
        assert_eq!(due(&mut sending, 1_600), [1], "one piece again");
        assert_eq!(sending.poll_timeout(), Some(at(1_600 + 2_400)));
        sending.handle_taken(at(1_700), 1);
        assert_eq!(due(&mut sending, 1_700), [2, 3], "slow start");
        assert_eq!(
            sending.round_trip.map(|measured| measured.smoothed),
            Some(Duration::from_millis(400)),
            "Karn's rule"
        );
        let (mut timeouts, mut sent) = (0, 0);
        while let Some(at) = sending.poll_timeout() {
            sending.handle_timeout(at);
            sent += sending.take_due(at).len();
            timeouts += 1;
        }
        assert_eq!((timeouts, sent, sending.is_given_up()), (7, 6, true));
        sending.handle_question(at(500_000));
        assert_eq!(due(&mut sending, 500_000), [2]);
        assert_eq!((sending.is_given_up(), sending.pieces.len()), (false, 28));
    }
}
