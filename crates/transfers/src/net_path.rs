//! The path between a phone and its server.

use holdover_base::{BitRate, ByteCount, Duration};
use serde::{Serialize, Serializer};

/// The path between a phone and its server, the same in both directions, without queues and outages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct NetPath {
    /// Of the phone's link; the rest of the path is not limited.
    #[serde(rename = "rate_bps", serialize_with = "bits_per_second")]
    pub rate: BitRate,
    /// From one end to the other.
    #[serde(rename = "delay_s", serialize_with = "seconds")]
    pub delay: Duration,
    /// Packets that the phone's link queues in each direction.
    #[serde(rename = "queue_packets")]
    pub queue: u32,
}

impl NetPath {
    /// The path of the demo, and the default of the grids.
    pub const DEFAULT: Self = Self { rate: BitRate::from_mbps(10), delay: Duration::from_millis(25), queue: 75 };

    /// There and back.
    pub fn round_trip(self) -> Duration {
        self.delay * 2
    }

    /// How long a full queue takes to leave.
    pub fn full_queue(self) -> Duration {
        const PACKET: u64 = 1500;
        self.rate.transmission_time(ByteCount(PACKET * u64::from(self.queue)))
    }

    /// The link's capacity in `span`, in bytes with headers. A transfer of as much payload takes slightly longer.
    pub fn amount(self, span: Duration) -> ByteCount {
        self.rate.bytes_in(span)
    }
}

fn bits_per_second<S: Serializer>(rate: &BitRate, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(rate.0)
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_queues_grow_with_the_rate() {
        let path = NetPath::DEFAULT;
        assert_eq!((path.round_trip(), path.full_queue()), (Duration::from_millis(50), Duration::from_millis(90)));
        assert_eq!(path.amount(Duration::from_secs(8)), ByteCount(10_000_000));
        let fast = NetPath { rate: BitRate::from_mbps(40), ..path };
        assert_eq!(fast.full_queue(), Duration::from_micros(22_500));
        assert_eq!(fast.amount(Duration::from_secs(8)), ByteCount(40_000_000));
    }
}
