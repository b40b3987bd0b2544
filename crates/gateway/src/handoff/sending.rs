//! The records of one answer on their way to a peer: numbered messages, each confirmed, with congestion control.
//!
//! An answer may hold the buffers of many connections, and its way may be slow. The number of records in flight begins at
//! [`INITIAL_WINDOW`], and follows the confirmations as a TCP's congestion window follows ACKs (RFC 5681): slow start, congestion
//! avoidance, half of it after a loss. A record is lost if [`REORDERING`] later ones are confirmed, or if nothing is confirmed for a
//! timeout that follows the round trip (RFC 6298).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use holdover_base::{Duration, Instant};

use super::repeat::Repeat;

/// Records in flight at first, and after a timeout (RFC 6928).
pub(super) const INITIAL_WINDOW: usize = 10;
/// The most records in flight.
const MOST_IN_FLIGHT: usize = 256;
/// The least window after a loss (RFC 5681 section 3.1).
const LEAST_WINDOW: usize = 2;
/// So many later records are confirmed before one counts as lost (RFC 5681 section 3.2).
const REORDERING: u64 = 3;

/// The unconfirmed records of an answer.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    records: BTreeMap<u16, Record>,
    /// The indices of records in flight, in the order in which they were sent.
    in_flight: BTreeMap<u64, InFlight>,
    /// The indices of records to send, for the first time or again.
    waiting: BTreeSet<u16>,
    sent: u64,
    /// The latest sent record that was confirmed.
    latest: u64,
    window: usize,
    threshold: usize,
    /// Confirmations since the window last grew in congestion avoidance.
    confirmed: usize,
    /// Losses among records sent before this one belong to one loss.
    recovered_at: u64,
    round_trip: Option<RoundTrip>,
    least: Duration,
    tries: u32,
    repeat: Repeat,
}

#[derive(Clone, Debug)]
struct Record {
    bytes: Bytes,
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
    pub(super) fn new(now: Instant, records: Vec<Bytes>, least: Duration, tries: u32) -> Self {
        let records = (0..=u16::MAX).zip(records);
        let records = records.map(|(index, bytes)| (index, Record { bytes, order: None, is_repeated: false }));
        let records: BTreeMap<u16, Record> = records.collect();
        Self {
            waiting: records.keys().copied().collect(),
            records,
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
            repeat: Repeat::begin(now, least, tries),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Bytes of unconfirmed records.
    pub(super) fn bytes(&self) -> usize {
        self.records.values().map(|record| record.bytes.len()).sum()
    }

    pub(super) fn into_records(self) -> Vec<Bytes> {
        self.records.into_values().map(|record| record.bytes).collect()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.repeat.at
    }

    /// The records to send now, with their indices, which count as sent.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(u16, Bytes)> {
        let mut due = Vec::new();
        while self.in_flight.len() < self.window
            && let Some(index) = self.waiting.pop_first()
        {
            let Some(record) = self.records.get_mut(&index) else { continue };
            self.sent += 1;
            record.order = Some(self.sent);
            self.in_flight.insert(self.sent, InFlight { index, sent_at: now });
            due.push((index, record.bytes.clone()));
        }
        due
    }

    /// The peer has asked again: the first records in flight may be lost.
    pub(super) fn handle_question(&mut self) {
        let first: Vec<u64> = self.in_flight.keys().copied().take(INITIAL_WINDOW).collect();
        for order in first {
            self.lose(order);
        }
    }

    /// A record has arrived.
    pub(super) fn handle_taken(&mut self, now: Instant, index: u16) {
        let Some(record) = self.records.remove(&index) else { return };
        self.waiting.remove(&index);
        if let Some(order) = record.order
            && let Some(flight) = self.in_flight.remove(&order)
        {
            self.latest = self.latest.max(order);
            if !record.is_repeated {
                self.round_trip = Some(RoundTrip::of(self.round_trip, now.saturating_since(flight.sent_at)));
            }
        }
        self.grow();
        self.find_losses();
        self.repeat = Repeat::begin(now, self.timeout(), self.tries);
    }

    /// A deadline has passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if !self.repeat.is_due(now) || !self.repeat.is_due_again(now) {
            return;
        }
        self.threshold = (self.window / 2).max(LEAST_WINDOW);
        (self.window, self.confirmed, self.recovered_at) = (INITIAL_WINDOW.min(self.window), 0, self.sent);
        let all: Vec<u64> = self.in_flight.keys().copied().collect();
        for order in all {
            self.lose(order);
        }
    }

    fn timeout(&self) -> Duration {
        self.round_trip.map_or(self.least, |round_trip| round_trip.timeout().max(self.least))
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
        if let Some(record) = self.records.get_mut(&index) {
            (record.order, record.is_repeated) = (None, true);
            self.waiting.insert(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn sending(count: u16) -> Sending {
        let records = (0..count).map(|index| Bytes::copy_from_slice(&index.to_be_bytes())).collect();
        Sending::new(at(0), records, Duration::from_millis(200), 7)
    }

    fn due(sending: &mut Sending, millis: u64) -> Vec<u16> {
        let due = sending.take_due(at(millis));
        due.into_iter()
            .map(|(index, bytes)| {
                assert_eq!(bytes, index.to_be_bytes()[..]);
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

    /// A record that three later ones have overtaken is sent again at once, and the window is halved once.
    #[test]
    fn a_lost_record_is_sent_again_and_halves_the_window() {
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
        assert!(!sending.records.contains_key(&0));
    }

    /// The timeout follows the round trip, and doubles; after the last the answer is given up.
    #[test]
    fn the_timeout_follows_the_round_trip_and_doubles() {
        let mut sending = sending(30);
        due(&mut sending, 0);
        sending.handle_taken(at(400), 0);
        // 400 ms and four times half of that.
        assert_eq!(sending.poll_timeout(), Some(at(400 + 1_200)));
        assert_eq!(due(&mut sending, 400), [10, 11]);
        sending.handle_timeout(at(1_600));
        assert_eq!(due(&mut sending, 1_600), Vec::from_iter(1..11), "the first ones again, no more than at first");
        assert_eq!(sending.poll_timeout(), Some(at(1_600 + 2_400)));
        sending.handle_taken(at(1_700), 1);
        assert_eq!(
            sending.round_trip.map(|measured| measured.smoothed),
            Some(Duration::from_millis(400)),
            "Karn's rule"
        );
        let mut timeouts = 0;
        while let Some(at) = sending.poll_timeout() {
            sending.handle_timeout(at);
            sending.take_due(at);
            timeouts += 1;
        }
        assert_eq!(timeouts, 7);
        assert_eq!(sending.into_records().len(), 28);
    }
}
