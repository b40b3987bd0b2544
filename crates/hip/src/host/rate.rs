//! Limits of rates: of packets in a second, in total and for each network that causes them.

use core::fmt;
use core::net::IpAddr;

use holdover_base::{Duration, Instant};
use siphasher::sip::SipHasher24;

const SECOND: Duration = Duration::from_secs(1);

/// The number of token buckets. Networks share them, so that memory does not grow with a flood of made-up sources; at `max_r1_per_s` such a
/// flood takes ten tokens of each bucket in a second.
const BUCKETS: usize = 1024;

/// Packets in this second.
#[derive(Clone, Debug, Default)]
pub(super) struct Rate {
    second: u64,
    count: u32,
}

impl Rate {
    pub(super) fn allows(&mut self, now: Instant, limit: u32) -> bool {
        let second = now.as_nanos() / SECOND.as_nanos();
        if second != self.second {
            *self = Self { second, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= limit
    }
}

/// Token buckets by network: an IPv4 address, or 64 bits of an IPv6 address. A secret decides which networks share a bucket.
#[derive(Clone)]
pub(super) struct SourceRates {
    hasher: SipHasher24,
    /// When each bucket is full again.
    full_at: Vec<Instant>,
}

/// Prints no secret.
impl fmt::Debug for SourceRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceRates").field("buckets", &self.full_at.len()).finish_non_exhaustive()
    }
}

impl SourceRates {
    pub(super) fn new(secret: &[u8; 16]) -> Self {
        Self { hasher: SipHasher24::new_with_key(secret), full_at: vec![Instant::ZERO; BUCKETS] }
    }

    /// Takes a token for a source. A bucket has `per_s` tokens, and gets as many in a second.
    pub(super) fn allows(&mut self, now: Instant, source: IpAddr, per_s: u32) -> bool {
        let Some(each) = SECOND.as_nanos().checked_div(u64::from(per_s)) else { return false };
        let index = self.hasher.hash(&network(source).to_be_bytes()) as usize % BUCKETS;
        let full_at = self.full_at[index].max(now) + Duration::from_nanos(each);
        let is_allowed = full_at <= now + SECOND;
        if is_allowed {
            self.full_at[index] = full_at;
        }
        is_allowed
    }
}

fn network(source: IpAddr) -> u64 {
    match source {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_its_own_rate() {
        let mut rates = SourceRates::new(&[7; 16]);
        let now = Instant::from_secs(1000);
        let mut passed = |at, source: &str| (0..100).filter(|_| rates.allows(at, source.parse().unwrap(), 10)).count();
        assert_eq!(passed(now, "192.0.2.1"), 10);
        assert_eq!(passed(now, "192.0.2.2"), 10);
        assert_eq!(passed(now, "2001:db8::1"), 10);
        assert_eq!(passed(now, "2001:db8::2"), 0, "the same /64");
        assert_eq!(passed(now, "2001:db8:0:1::1"), 10);
        assert_eq!(passed(now + Duration::from_millis(350), "192.0.2.1"), 3);
        assert_eq!(passed(now + Duration::from_secs(60), "192.0.2.1"), 10, "tokens do not pile up");
        assert!(!rates.allows(now, "198.51.100.1".parse().unwrap(), 0));
    }
}
