//! Addresses that this host has lost, and when its connections on them can never work again.
//!
//! A TCP connection is bound to its addresses. When the network has assigned the host another address for good, the
//! kernel keeps connections on the old one until its retransmissions have run out, which takes some 15 minutes, or for
//! ever if nothing is sent. If the address returns within a while, the connections are kept; so they are while the host
//! has no other address of that IP version, as its next network is not known yet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdover_base::{Duration, Instant};

use super::Family;

/// The addresses of this host, and those that it has lost.
#[derive(Clone, Debug, Default)]
pub struct LostAddresses {
    present: BTreeSet<IpAddr>,
    /// Addresses whose interface can carry packets.
    usable: BTreeSet<IpAddr>,
    gone_at: BTreeMap<IpAddr, Instant>,
    /// Those that [`Self::take_given_up`] has returned, and since when they have been gone.
    given_up: BTreeMap<IpAddr, Instant>,
}

/// The most lost addresses remembered: IPv6 hosts have a new temporary address each day (RFC 8981), and one after each
/// change of network.
const MOST_LOST: usize = 256;

impl LostAddresses {
    /// Sets the current addresses, each with whether its interface can carry packets.
    pub fn handle_addresses(&mut self, now: Instant, addresses: impl IntoIterator<Item = (IpAddr, bool)>) {
        let before = std::mem::take(&mut self.present);
        self.usable.clear();
        for (address, can_carry) in addresses {
            self.present.insert(address);
            if can_carry {
                self.usable.insert(address);
            }
        }
        for &gone in before.difference(&self.present) {
            self.gone_at.insert(gone, now);
        }
        self.gone_at.retain(|address, _| !self.present.contains(address));
        self.given_up.retain(|address, _| !self.present.contains(address));
        forget_oldest(&mut self.gone_at);
    }

    /// The addresses that have been lost for `grace`, while there is another one of their IP version. Each is returned
    /// once.
    pub fn take_given_up(&mut self, now: Instant, grace: Duration) -> Vec<IpAddr> {
        let is_due =
            |(address, at): (&IpAddr, &Instant)| (*at + grace <= now && self.has_other(*address)).then_some(*address);
        let due: Vec<IpAddr> = self.gone_at.iter().filter_map(is_due).collect();
        self.given_up.extend(due.iter().filter_map(|address| self.gone_at.remove_entry(address)));
        forget_oldest(&mut self.given_up);
        due
    }

    /// The lost addresses. One that is tentative is lost if it was there before.
    pub fn absent(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.gone_at.keys().chain(self.given_up.keys()).copied()
    }

    /// When to call [`Self::take_given_up`].
    pub fn poll_timeout(&self, grace: Duration) -> Option<Instant> {
        self.gone_at.iter().filter(|&(&address, _)| self.has_other(address)).map(|(_, &at)| at + grace).min()
    }

    fn has_other(&self, address: IpAddr) -> bool {
        self.usable.iter().any(|&other| Family::of(other) == Family::of(address))
    }
}

/// Forgets the addresses that have been gone for longest, beyond [`MOST_LOST`].
fn forget_oldest(gone_at: &mut BTreeMap<IpAddr, Instant>) {
    while gone_at.len() > MOST_LOST
        && let Some(oldest) = gone_at.iter().min_by_key(|&(_, at)| at).map(|(&address, _)| address)
    {
        gone_at.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRACE: Duration = Duration::from_secs(60);

    fn addresses(all: &[&str]) -> Vec<(IpAddr, bool)> {
        all.iter().map(|address| (address.parse().unwrap(), true)).collect()
    }

    // Claim: An address is given up when it has been gone for the configured time while there is another; an aborted connection
    // notifies its program at once.
    // Tests: `lost_addresses::one_that_comes_back_in_time_is_kept`, `lost_addresses::only_what_is_gone_is_given_up`,
    // `sockets::a_connection_that_is_ended_tells_its_program_at_once`
    #[test]
    fn an_address_is_given_up_when_another_has_been_in_its_place_for_a_while() {
        let mut lost = LostAddresses::default();
        let at = Instant::from_secs;
        lost.handle_addresses(at(0), addresses(&["192.0.2.7", "2001:db8::7"]));
        assert_eq!(lost.poll_timeout(GRACE), None);
        // Only IPv6 is left: the address may return.
        lost.handle_addresses(at(10), addresses(&["2001:db8::7"]));
        assert_eq!((lost.poll_timeout(GRACE), lost.take_given_up(at(1000), GRACE)), (None, vec![]));
        // The other one's interface has no carrier yet.
        lost.handle_addresses(at(1010), [("198.51.100.9".parse().unwrap(), false)]);
        assert_eq!(lost.take_given_up(at(1010), GRACE), [] as [IpAddr; 0]);
        lost.handle_addresses(at(1020), addresses(&["198.51.100.9", "2001:db8::7"]));
        assert_eq!(lost.poll_timeout(GRACE), Some(at(70)));
        assert_eq!(lost.take_given_up(at(1020), GRACE), ["192.0.2.7".parse::<IpAddr>().unwrap()]);
        // It is absent until it is back.
        assert_eq!(lost.absent().collect::<Vec<_>>(), ["192.0.2.7".parse::<IpAddr>().unwrap()]);
        assert_eq!((lost.poll_timeout(GRACE), lost.take_given_up(at(2000), GRACE)), (None, vec![]));
    }

    #[test]
    fn one_that_comes_back_in_time_is_kept() {
        let mut lost = LostAddresses::default();
        let at = Instant::from_secs;
        for (second, address) in [(0, "192.0.2.7"), (10, "198.51.100.9"), (69, "192.0.2.7")] {
            assert_eq!(lost.take_given_up(at(second), GRACE), [] as [IpAddr; 0]);
            lost.handle_addresses(at(second), addresses(&[address]));
        }
        // The other one is lost by now, and its own time has begun.
        assert_eq!(lost.take_given_up(at(128), GRACE), [] as [IpAddr; 0]);
        assert_eq!(lost.take_given_up(at(129), GRACE), ["198.51.100.9".parse::<IpAddr>().unwrap()]);
        lost.handle_addresses(at(130), addresses(&["198.51.100.9"]));
        assert_eq!(lost.absent().collect::<Vec<_>>(), ["192.0.2.7".parse::<IpAddr>().unwrap()]);
    }

    // Claim: Of more than 256 addresses that were given up, those that have been gone for longest are forgotten.
    #[test]
    fn the_oldest_are_forgotten() {
        let mut lost = LostAddresses::default();
        let other: IpAddr = "198.51.100.1".parse().unwrap();
        // Later addresses are smaller.
        let address = |number: u32| IpAddr::from((0xc0a8_ffff - number).to_be_bytes());
        for number in 0..=MOST_LOST as u32 + 1 {
            let now = Instant::from_secs(u64::from(number));
            lost.handle_addresses(now, [(other, true), (address(number), true)]);
            lost.take_given_up(now, Duration::ZERO);
        }
        let absent: BTreeSet<IpAddr> = lost.absent().collect();
        assert_eq!(absent, (1..=MOST_LOST as u32).map(address).collect());
    }

    proptest! {
        /// Any changes: an address that is given up does not exist, was lost for long enough, and is returned at the
        /// announced time.
        #[test]
        fn only_what_is_gone_is_given_up(steps in prop::collection::vec((0..90u64, 0..16u8), 0..60)) {
            let mut lost = LostAddresses::default();
            let (mut now, mut gone_since) = (Instant::ZERO, BTreeMap::new());
            for (wait, bits) in steps {
                now += Duration::from_secs(wait);
                let due_at = lost.poll_timeout(GRACE);
                let given_up = lost.take_given_up(now, GRACE);
                prop_assert_eq!(due_at.is_some_and(|at| at <= now), !given_up.is_empty());
                for address in given_up {
                    prop_assert!(gone_since.get(&address).is_some_and(|&since| since + GRACE <= now));
                }
                let all = (0..4u8).map(|last| IpAddr::from([192, 0, 2, last]));
                let there: Vec<IpAddr> = all.clone().filter(|address| bits >> last_byte(*address) & 1 == 1).collect();
                lost.handle_addresses(now, there.iter().map(|&address| (address, true)));
                for address in all {
                    if there.contains(&address) {
                        gone_since.remove(&address);
                    } else {
                        gone_since.entry(address).or_insert(now);
                    }
                }
            }
        }
    }

    fn last_byte(address: IpAddr) -> u8 {
        match address {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(_) => 0,
        }
    }
}
