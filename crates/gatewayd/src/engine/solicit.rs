//! Solicitations after duplicate address detection (RFC 4862 section 5.4).
//!
//! An interface that was down verifies its IPv6 addresses for one to two seconds when it is up again. Meanwhile the kernel does not answer
//! for them, and sends from another address. A mobile host that is woken resolves this router in vain then, and asks again once a second,
//! up to three times: a solicitation from the verified address tells it sooner (RFC 4861 section 7.2.3).

use std::collections::VecDeque;
use std::net::IpAddr;

use holdover_base::{Duration, Instant};

use super::Engine;

/// The mobile hosts to solicit.
#[derive(Debug, Default)]
pub(super) struct Solicitations {
    /// When the interface last got a carrier.
    carrier_since: Option<Instant>,
    /// When the next pass over all hosts begins, at the earliest.
    begins_at: Option<Instant>,
    /// The rest of the current pass.
    due: VecDeque<IpAddr>,
    /// When that continues.
    continues_at: Instant,
}

/// Addresses that are verified later than this after the carrier's return are not due to it. By default detection takes two seconds at most.
const LONGEST: Duration = Duration::from_secs(10);

/// A pass begins so long after the last verification: an interface has several addresses, and one pass serves them all.
const SETTLES_WITHIN: Duration = Duration::from_millis(100);

/// The hosts of one turn, with two or three look-ups of routes and two frames for each, and the pause before the next turn: 6,400 hosts a
/// second, which leaves most of a processor to the packets of hosts that return.
const AT_ONCE: usize = 32;
const PAUSE: Duration = Duration::from_millis(5);

impl Solicitations {
    pub(super) fn note_carrier(&mut self, now: Instant) {
        self.carrier_since = Some(now);
    }

    /// An address can be used from now on. The current pass is finished before the next one begins.
    fn note_verified(&mut self, now: Instant) {
        let is_new = |since: Instant| now.saturating_since(since) < LONGEST;
        if self.carrier_since.is_some_and(is_new) {
            self.begins_at = Some(now + SETTLES_WITHIN);
        }
    }

    /// Whether a pass begins now: then [`Self::begin`] takes its hosts.
    fn begins(&mut self, now: Instant) -> bool {
        self.due.is_empty() && self.begins_at.take_if(|at| *at <= now).is_some()
    }

    fn begin(&mut self, now: Instant, hosts: impl Iterator<Item = IpAddr>) {
        self.due = hosts.filter(IpAddr::is_ipv6).collect();
        self.continues_at = now;
    }

    /// The hosts of this turn.
    fn take(&mut self, now: Instant) -> VecDeque<IpAddr> {
        if now < self.continues_at {
            return VecDeque::new();
        }
        self.continues_at = now + PAUSE;
        let rest = self.due.split_off(self.due.len().min(AT_ONCE));
        std::mem::replace(&mut self.due, rest)
    }

    /// The interface had no room for the first of these hosts.
    fn put_back(&mut self, mut hosts: VecDeque<IpAddr>) {
        hosts.append(&mut self.due);
        self.due = hosts;
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.due.is_empty() { self.begins_at } else { Some(self.continues_at) }
    }
}

impl Engine {
    /// An IPv6 address of the interface can be used from now on.
    pub(super) fn handle_verified(&mut self, now: Instant) {
        // A link without Ethernet resolves no addresses.
        if self.interface.has_ethernet() {
            self.solicitations.note_verified(now);
        }
    }

    /// Solicits a part of the hosts that are due.
    pub(super) fn solicit(&mut self, now: Instant) {
        if self.solicitations.begins(now) {
            // Cached routes have the source address that the kernel chose during detection.
            self.behind.forget_ways();
            self.solicitations.begin(now, self.path.all().into_iter().map(|(mobile, _)| mobile));
        }
        let mut hosts = self.solicitations.take(now);
        while let Some(&mobile) = hosts.front() {
            // The name of a prefix is no host's address.
            let is_asked = self.interface.has_ethernet() && self.is_asked(mobile) && self.prefix_of(mobile).is_none();
            if let Some(seen) = self.path.seen(mobile).filter(|_| is_asked)
                && !self.resolve(mobile, seen.mac)
            {
                return self.solicitations.put_back(hosts);
            }
            hosts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u16) -> IpAddr {
        IpAddr::from([0xfd00, 2, 0, 0, 0, 0, 0, number])
    }

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    // Claim: After a carrier's return, the IPv6 mobile hosts are solicited once for all addresses that are verified within 100 ms of each
    // other, and not for addresses that are verified 10 s later.
    #[test]
    fn one_pass_serves_all_addresses() {
        let mut solicitations = Solicitations::default();
        solicitations.note_verified(at(0));
        assert_eq!(solicitations.poll_timeout(), None, "there was no carrier's return");
        solicitations.note_carrier(at(1000));
        for ms in [2000, 2040, 2090] {
            solicitations.note_verified(at(ms));
        }
        assert_eq!(solicitations.poll_timeout(), Some(at(2190)));
        assert!(!solicitations.begins(at(2189)) && solicitations.begins(at(2190)) && !solicitations.begins(at(2190)));
        solicitations.begin(at(2190), [host(1), IpAddr::from([10, 0, 0, 1]), host(2)].into_iter());
        assert_eq!(solicitations.take(at(2190)), [host(1), host(2)]);
        assert_eq!(solicitations.poll_timeout(), None);
        solicitations.note_verified(at(11_000));
        assert_eq!(solicitations.poll_timeout(), None, "it is not due to the carrier");
    }

    #[test]
    fn a_pass_is_paced_and_finished_before_the_next() {
        let mut solicitations = Solicitations::default();
        solicitations.note_carrier(at(0));
        solicitations.note_verified(at(0));
        assert!(solicitations.begins(at(100)));
        solicitations.begin(at(100), (0..100).map(host));
        let mut taken = Vec::from(solicitations.take(at(100)));
        assert_eq!((taken.len(), solicitations.poll_timeout()), (AT_ONCE, Some(at(105))));
        assert!(solicitations.take(at(104)).is_empty());
        solicitations.note_verified(at(104));
        for turn in 1.. {
            let now = at(100 + 5 * turn);
            taken.extend(solicitations.take(now));
            if solicitations.due.is_empty() {
                break;
            }
            assert!(!solicitations.begins(at(1000)));
        }
        assert!(taken.into_iter().eq((0..100).map(host)), "each once and in order");
        assert_eq!(solicitations.poll_timeout(), Some(at(204)));
    }

    // Claim: If the interface has no room for a solicitation, its host and the others follow after a pause, in order.
    #[test]
    fn hosts_without_room_are_put_back() {
        let mut solicitations = Solicitations::default();
        solicitations.begin(at(0), (0..40).map(host));
        let mut hosts = solicitations.take(at(0));
        hosts.drain(..3);
        solicitations.put_back(hosts);
        assert_eq!(solicitations.poll_timeout(), Some(at(5)));
        assert!(solicitations.take(at(4)).is_empty());
        let mut rest = solicitations.take(at(5));
        rest.extend(solicitations.take(at(10)));
        assert!(rest.into_iter().eq((3..40).map(host)));
    }
}
