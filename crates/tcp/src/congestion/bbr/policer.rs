//! Policers: a token bucket drops what exceeds its rate, so the highest delivery rate is that of its bursts, and
//! sending at this rate causes permanent heavy loss. BBR therefore measures the rate over long intervals with heavy
//! loss, and uses it for a while if two consecutive intervals agree.

use holdover_base::{Duration, Instant};

use crate::bandwidth::{BW_SHIFT, bandwidth, bytes_per_second};

/// An interval lasts at least this many rounds, and is abandoned after four times as many.
const INTERVAL_ROUNDS: u32 = 4;
/// A loss ratio of at least 50/256 (20 %) of the delivered segments indicates a policer.
const LOSS_SHARE: u64 = 50;
/// Two rates agree if they differ by an eighth at most, or by 4 kbit/s.
const AGREE_SHARE: u64 = 8;
const AGREE_BYTES_PER_SECOND: u64 = 4_000 / 8;
/// A policer's rate is used for this many rounds.
const USE_ROUNDS: u32 = 48;

/// The measurement, and the rate that is used if there is one.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Policer {
    is_sampling: bool,
    is_used: bool,
    rounds: u32,
    /// The rate over the last interval; 0 for none.
    rate: u64,
    since: Instant,
    delivered_before: u64,
    lost_before: u64,
}

/// Input from an ACK.
pub(super) struct PolicerAck {
    pub(super) now: Instant,
    pub(super) delivered: u64,
    pub(super) lost: u64,
    /// This ACK, or a timeout, has detected a loss.
    pub(super) has_losses: bool,
    pub(super) is_app_limited: bool,
    pub(super) is_round_start: bool,
    pub(super) is_probing_bandwidth: bool,
    pub(super) mss: u32,
}

/// Result of an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PolicerEvent {
    None,
    /// A policer was detected: its rate is used from now on.
    Found,
    /// Its rate was used long enough: bandwidth probing restarts.
    Over,
}

impl Policer {
    /// The rate to use in place of the highest one.
    pub(super) fn rate(&self) -> Option<u64> {
        self.is_used.then_some(self.rate)
    }

    pub(super) fn reset(&mut self, now: Instant, delivered: u64, lost: u64) {
        *self = Self::default();
        self.begin_interval(now, delivered, lost);
    }

    fn begin_interval(&mut self, now: Instant, delivered: u64, lost: u64) {
        (self.since, self.delivered_before, self.lost_before, self.rounds) = (now, delivered, lost, 0);
    }

    pub(super) fn on_ack(&mut self, ack: &PolicerAck) -> PolicerEvent {
        if self.is_used {
            if ack.is_probing_bandwidth && ack.is_round_start {
                self.rounds += 1;
                if self.rounds >= USE_ROUNDS {
                    self.reset(ack.now, ack.delivered, ack.lost);
                    return PolicerEvent::Over;
                }
            }
            return PolicerEvent::None;
        }
        // An interval begins and ends with a loss: a policer's bucket is empty then.
        if !self.is_sampling {
            if !ack.has_losses {
                return PolicerEvent::None;
            }
            self.begin_interval(ack.now, ack.delivered, ack.lost);
            self.is_sampling = true;
        }
        self.rounds += u32::from(ack.is_round_start);
        if ack.is_app_limited || self.rounds > 4 * INTERVAL_ROUNDS {
            self.reset(ack.now, ack.delivered, ack.lost);
            return PolicerEvent::None;
        }
        if self.rounds < INTERVAL_ROUNDS || !ack.has_losses {
            return PolicerEvent::None;
        }
        self.end_interval(ack)
    }

    fn end_interval(&mut self, ack: &PolicerAck) -> PolicerEvent {
        let delivered = ack.delivered - self.delivered_before;
        let lost = ack.lost - self.lost_before;
        let took = ack.now.saturating_since(self.since);
        if delivered == 0 || lost * 256 < LOSS_SHARE * delivered || took < Duration::from_millis(1) {
            return PolicerEvent::None;
        }
        let rate = bandwidth(delivered, took);
        let difference = rate.abs_diff(self.rate);
        let agrees =
            difference <= self.rate / AGREE_SHARE || bytes_per_second(difference, ack.mss) <= AGREE_BYTES_PER_SECOND;
        if self.rate > 0 && agrees {
            self.rate = u64::midpoint(rate, self.rate);
            (self.is_used, self.rounds) = (true, 0);
            return PolicerEvent::Found;
        }
        self.rate = rate;
        self.begin_interval(ack.now, ack.delivered, ack.lost);
        PolicerEvent::None
    }
}

const _: () = assert!(BW_SHIFT < 32, "a difference of rates is multiplied");

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of 100 ms, 100 segments delivered and `lost` of them lost in each.
    fn rounds(policer: &mut Policer, from: u64, count: u64, lost: u64) -> Vec<PolicerEvent> {
        (from..from + count)
            .map(|round| {
                policer.on_ack(&PolicerAck {
                    now: Instant::from_millis(100 * round),
                    delivered: 100 * round,
                    lost: lost * round,
                    has_losses: lost > 0,
                    is_app_limited: false,
                    is_round_start: true,
                    is_probing_bandwidth: true,
                    mss: 1448,
                })
            })
            .filter(|event| *event != PolicerEvent::None)
            .collect()
    }

    #[test]
    fn two_intervals_that_lose_a_fifth_at_one_rate_show_a_policer() {
        let mut policer = Policer::default();
        assert_eq!(rounds(&mut policer, 0, 20, 25), [PolicerEvent::Found]);
        let rate = policer.rate().unwrap();
        assert_eq!(rate, bandwidth(1_000, Duration::from_secs(1)));
        assert_eq!(rounds(&mut policer, 20, 48, 0), [PolicerEvent::Over]);
        assert_eq!(policer.rate(), None);
    }

    #[test]
    fn ordinary_losses_show_none() {
        assert_eq!(rounds(&mut Policer::default(), 0, 200, 10), []);
    }
}
