//! Delivery-rate samples: the rate at which data is delivered, measured per ACK
//! (draft-cheng-iccrg-delivery-rate-estimation, with its names).
//!
//! Each segment records the delivered count and the time when it was sent. When the segment is delivered, the
//! difference in count over the elapsed time is a sample of the path's rate. The slower of the send rate and the ACK
//! rate counts, so that a burst of segments or of ACKs does not pass for a faster path.

use holdover_base::{Duration, Instant};
use holdover_wire::Seq;

use crate::bandwidth::bandwidth;
use crate::departure::{Departure, Load};
use crate::recovery::Rack;
use crate::recovery::sent::Sent;

/// The connection's state (section 3.1.1).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DeliveryRate {
    /// C.delivered, in segments.
    delivered: u64,
    /// C.delivered_time.
    delivered_at: Instant,
    /// C.first_sent_time.
    first_sent_at: Instant,
    /// C.app_limited: samples are the application's rate and not the path's until so much is delivered; 0 for none.
    app_limited_until: u64,
    /// The latest sent of the segments that the current ACK has delivered.
    newest: Option<Newest>,
}

#[derive(Clone, PartialEq, Debug)]
struct Newest {
    departure: Departure,
    sent_at: Instant,
    end: Seq,
}

/// A sample (section 3.1.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RateSample {
    /// Segments that were delivered over `interval`.
    pub(crate) delivered: u64,
    pub(crate) interval: Duration,
    /// C.delivered when the segment that makes the sample was sent.
    pub(crate) prior_delivered: u64,
    /// The application, not the path, limited sending.
    pub(crate) is_app_limited: bool,
    /// The ACK of a single small segment, which the peer may have delayed (Linux `is_ack_delayed`).
    pub(crate) may_be_delayed: bool,
    /// Segments in flight when the segment that makes the sample was sent, with that one.
    pub(crate) flight_at_departure: u32,
    /// Segments lost since then.
    pub(crate) lost: u64,
}

impl RateSample {
    /// In segments per 2^24 us.
    pub(crate) fn rate(&self) -> u64 {
        bandwidth(self.delivered, self.interval)
    }
}

impl DeliveryRate {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { delivered: 0, delivered_at: now, first_sent_at: now, app_limited_until: 0, newest: None }
    }

    /// C.delivered, in segments.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited_until > 0
    }

    /// A segment is sent (section 3.2); `is_first`: nothing else is outstanding.
    pub(crate) fn on_sent(&mut self, now: Instant, is_first: bool, load: Load) -> Departure {
        if is_first {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        Departure {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            is_app_limited: self.is_app_limited(),
            flight: load.flight,
            lost: load.lost,
        }
    }

    /// The application has nothing more to send, with so many segments in flight (section 3.4).
    pub(crate) fn mark_app_limited(&mut self, in_flight: u32) {
        self.app_limited_until = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// An ACK arrives: discards an unfinished sample of the previous one.
    pub(crate) fn begin_ack(&mut self) {
        self.newest = None;
    }

    /// The current ACK delivers `sent` (section 3.3, UpdateRateSample).
    pub(crate) fn on_delivered(&mut self, sent: &Sent) {
        let Some(departure) = &sent.departure else { return };
        let is_newest = self
            .newest
            .as_ref()
            .is_none_or(|newest| Rack::sent_after(sent.sent_at, sent.end(), newest.sent_at, newest.end));
        if is_newest {
            self.newest = Some(Newest { departure: (**departure).clone(), sent_at: sent.sent_at, end: sent.end() });
        }
    }

    /// Segments were delivered by an ACK from which no sample is taken.
    pub(crate) fn count(&mut self, now: Instant, delivered: u32) {
        if delivered > 0 {
            self.delivered += u64::from(delivered);
            self.delivered_at = now;
        }
    }

    /// The end of the current ACK; `lost` segments were lost since the connection began (section 3.3, GenerateRateSample). An interval
    /// shorter than the least round trip is that of a burst of ACKs, and gives no sample.
    pub(crate) fn finish_ack(
        &mut self,
        now: Instant,
        delivered: u32,
        lost: u64,
        min_rtt: Option<Duration>,
    ) -> Option<RateSample> {
        self.count(now, delivered);
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let Newest { departure, sent_at, .. } = self.newest.take()?;
        self.first_sent_at = sent_at;
        let send_elapsed = sent_at.saturating_since(departure.first_sent_at);
        let ack_elapsed = self.delivered_at.saturating_since(departure.delivered_at);
        let interval = send_elapsed.max(ack_elapsed);
        if interval < min_rtt? || interval.is_zero() {
            return None;
        }
        Some(RateSample {
            delivered: self.delivered - departure.delivered,
            interval,
            prior_delivered: departure.delivered,
            is_app_limited: departure.is_app_limited,
            may_be_delayed: false,
            flight_at_departure: departure.flight,
            lost: lost.saturating_sub(departure.lost),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(at_ms: u64, seq: u32, departure: Departure) -> Sent {
        let sent = Sent::new(Instant::from_millis(at_ms), Seq::new(seq), bytes::Bytes::from_static(&[0; 100]));
        sent.with_departure(Some(Box::new(departure)))
    }

    const MIN_RTT: Option<Duration> = Some(Duration::from_millis(50));
    const fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// Ten segments in 10 ms, acknowledged 50 ms later over 20 ms: the ACKs are the slower of the two.
    #[test]
    fn the_slower_of_sending_and_acknowledging_counts() {
        let mut rate = DeliveryRate::new(at(0));
        let flight: Vec<Sent> =
            (0..10).map(|n| sent(n, n as u32 * 100, rate.on_sent(at(n), n == 0, Load::default()))).collect();
        let mut last = None;
        for (n, sent) in flight.iter().enumerate() {
            rate.begin_ack();
            rate.on_delivered(sent);
            last = rate.finish_ack(at(50 + 2 * n as u64), 1, 0, MIN_RTT);
        }
        let last = last.unwrap();
        assert_eq!((last.delivered, last.interval, last.prior_delivered), (10, Duration::from_millis(68), 0));
        // Segments sent now are measured from the last ACK on.
        let next = sent(70, 1_000, rate.on_sent(at(70), true, Load::default()));
        rate.begin_ack();
        rate.on_delivered(&next);
        let sample = rate.finish_ack(at(120), 1, 0, MIN_RTT).unwrap();
        assert_eq!((sample.delivered, sample.interval, sample.prior_delivered), (1, Duration::from_millis(50), 10));
    }

    #[test]
    fn a_sample_over_less_than_a_round_trip_is_none() {
        let mut rate = DeliveryRate::new(at(0));
        let one = sent(0, 0, rate.on_sent(at(0), true, Load::default()));
        rate.on_delivered(&one);
        assert_eq!(rate.finish_ack(at(49), 1, 0, MIN_RTT), None);
        assert_eq!(rate.delivered(), 1);
    }

    /// Section 3.4: samples do not measure the path until the current flight is delivered.
    #[test]
    fn samples_are_the_applications_until_the_flight_is_delivered() {
        let mut rate = DeliveryRate::new(at(0));
        let first = sent(0, 0, rate.on_sent(at(0), true, Load::default()));
        rate.mark_app_limited(1);
        let second = sent(10, 100, rate.on_sent(at(10), false, Load::default()));
        let limited: Vec<bool> = [(&first, 60), (&second, 70)]
            .into_iter()
            .map(|(sent, ms)| {
                rate.begin_ack();
                rate.on_delivered(sent);
                rate.finish_ack(at(ms), 1, 0, MIN_RTT).unwrap().is_app_limited
            })
            .collect();
        assert_eq!(limited, [false, true]);
        assert!(!rate.is_app_limited());
    }
}
