//! Mobile hosts by their Ethernet addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::path::Seen;

/// The mobile hosts of each Ethernet address, computed once for each batch of reports.
#[derive(Default, Debug)]
pub(crate) struct ByMac(Option<BTreeMap<[u8; 6], Vec<IpAddr>>>);

impl ByMac {
    pub(super) fn of(&mut self, mac: [u8; 6], all: impl FnOnce() -> Vec<(IpAddr, Seen)>) -> &[IpAddr] {
        let mobiles = self.0.get_or_insert_with(|| {
            let mut mobiles = BTreeMap::<[u8; 6], Vec<IpAddr>>::new();
            for (mobile, seen) in all() {
                if let Some(mac) = seen.mac {
                    mobiles.entry(mac).or_default().push(mobile);
                }
            }
            mobiles
        });
        mobiles.get(&mac).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use holdover_gateway::divert::Course;

    use super::*;

    #[test]
    fn mobile_hosts_are_searched_once_per_batch() {
        let seen = |mac| Seen {
            course: Course::Pass,
            diverted: 0,
            heard_at: None,
            addressed_at: None,
            waiting_since: None,
            mac,
            down_at: None,
        };
        let [first, second, third] = [1, 2, 3].map(|last| IpAddr::from([10, 2, 0, last]));
        let all = vec![(first, seen(Some([2; 6]))), (second, seen(None)), (third, seen(Some([2; 6])))];
        let (mut by_mac, mut looks) = (ByMac::default(), 0);
        for (mac, expected) in [([2; 6], &[first, third][..]), ([3; 6], &[]), ([2; 6], &[first, third])] {
            let found = by_mac.of(mac, || {
                looks += 1;
                all.clone()
            });
            assert_eq!(found, expected);
        }
        assert_eq!(looks, 1);
    }
}
