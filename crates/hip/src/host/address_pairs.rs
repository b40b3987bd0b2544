//! The paths of HIP packets: pairs of an address of this host and one of the peer.
//!
//! An address may be dead while its host still has it, in one direction or in both: behind a filter, or on a link that carries nothing. What
//! is sent from it or to it is lost, an announcement of other addresses included. So retransmissions try other pairs in turn, between those on
//! the best one, as RFC 5534 section 4.3 explores pairs of locators. There are no more retransmissions than one pair would get, so an UPDATE
//! of `holdover hip` tries five other pairs at most.
//!
//! The peer may have moved as well, and be reached only at its server or at another known address. So each of the peer's addresses comes
//! once, from this host's best address, before pairs with other addresses of this host.

use core::net::IpAddr;

use super::association::Association;
use super::local::Local;
use super::peer_addresses::Status;
use super::reachability::Between;

impl Association {
    /// The best destination of HIP packets.
    pub(super) fn best_for_control(&self, local: &Local) -> Option<IpAddr> {
        self.peer_addresses.for_control(|dst| local.source_for(dst).is_some()).next()
    }

    /// The path of the `attempt`th transmission of a HIP packet: every other time the best one, in between the others in turn.
    pub(super) fn control_path(&self, local: &Local, attempt: u32) -> Option<Between> {
        if attempt.is_multiple_of(2)
            && let Some(standby) = self.standby_source(local)
            && let Some((_, taken)) = self.reachability.detour()
        {
            return Some((standby, taken.1));
        }
        let destinations = self.peer_addresses.for_control(|dst| local.source_for(dst).is_some());
        let is_left = |dst: &IpAddr| self.peer_addresses.status(*dst) == Some(Status::Deprecated);
        let (left, present): (Vec<IpAddr>, Vec<IpAddr>) = destinations.partition(is_left);
        let (src, dst) = in_turn(&control_order(&local.locators, &present, &left), attempt)?;
        Some((if attempt.is_multiple_of(2) { self.usual_source(local, dst).unwrap_or(src) } else { src }, dst))
    }

    /// This host's address for an address of the peer: that of the pair which connectivity checks have selected, or the preferred one.
    pub(super) fn usual_source(&self, local: &Local, dst: IpAddr) -> Option<IpAddr> {
        let selected = self.connectivity.source_towards(dst).filter(|own| local.locators.contains(own));
        selected.or_else(|| local.source_for(dst))
    }

    /// The path of the `attempt`th check of an address. From the best source alone if paths are not tested: data leaves from there, to whatever
    /// address a check has verified.
    pub(super) fn control_path_to(local: &Local, dst: IpAddr, attempt: u32) -> Option<Between> {
        if local.config.path_check.is_none() {
            return Some((local.source_for(dst)?, dst));
        }
        in_turn(&pairs(&local.locators, core::iter::once(dst)), attempt)
    }
}

/// All pairs with the addresses at which the peer may be, and with those that it has left: first each of the former from the best source,
/// then other sources and the latter alternately.
fn control_order(own: &[IpAddr], present: &[IpAddr], left: &[IpAddr]) -> Vec<Between> {
    let is_from_best = |(src, dst): &Between| own.iter().find(|it| it.is_ipv4() == dst.is_ipv4()) == Some(src);
    let split = |destinations: &[IpAddr]| -> (Vec<Between>, Vec<Between>) {
        let (mut from_best, others): (Vec<Between>, Vec<Between>) =
            pairs(own, destinations.iter().copied()).into_iter().partition(is_from_best);
        from_best.sort_by_key(|(_, dst)| destinations.iter().position(|it| it == dst));
        (from_best, others)
    };
    let (mut order, others) = split(present);
    let (to_left, others_to_left) = split(left);
    let (mut others, mut to_left) = (others.into_iter(), to_left.into_iter());
    loop {
        let next = [others.next(), to_left.next()];
        if next == [None, None] {
            break;
        }
        order.extend(next.into_iter().flatten());
    }
    order.extend(others_to_left);
    order
}

fn in_turn(pairs: &[Between], attempt: u32) -> Option<Between> {
    let others = pairs.len().saturating_sub(1);
    let index = if attempt.is_multiple_of(2) || others == 0 { 0 } else { 1 + attempt as usize / 2 % others };
    pairs.get(index).copied()
}

/// The pairs of one IP version. Both orders begin with the preferred address. Pairs of less preferred addresses come later; of those with the
/// same preference that pair comes first which shares no address with better ones, as either may be dead.
pub(super) fn pairs(own: &[IpAddr], destinations: impl Iterator<Item = IpAddr>) -> Vec<Between> {
    let (mut pairs, mut earlier) = (Vec::new(), Vec::<IpAddr>::new());
    for dst in destinations {
        let of_version = |it: &IpAddr| it.is_ipv4() == dst.is_ipv4();
        let destination_rank = earlier.iter().filter(|it| of_version(it)).count();
        let sources = own.iter().copied().filter(of_version).enumerate();
        let key = |rank: usize| (rank.max(destination_rank), rank.abs_diff(destination_rank), destination_rank);
        pairs.extend(sources.map(|(rank, src)| (key(rank), (src, dst))));
        earlier.push(dst);
    }
    let best = pairs.first().map(|(_, between)| *between);
    pairs.sort_by_key(|(key, between)| (Some(*between) != best, *key));
    pairs.into_iter().map(|(_, between)| between).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn pairs_of_preferred_addresses_come_first() {
        let own = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(address);
        let peer = ["198.51.100.1", "198.51.100.9", "2001:db8:9::1"].map(address);
        let expected = [(0, 0), (2, 2), (1, 1), (1, 0), (0, 1)].map(|(src, dst)| (own[src], peer[dst]));
        assert_eq!(pairs(&own, peer.into_iter()), expected);
        let attempts: Vec<Between> = (0..10).filter_map(|attempt| in_turn(&expected, attempt)).collect();
        assert!(expected.iter().all(|pair| attempts.contains(pair)), "{attempts:?}");
        assert!(attempts.iter().step_by(2).all(|pair| *pair == expected[0]), "{attempts:?}");
    }

    /// Both hosts may have moved: a server, or another address of the peer, is not starved by this host's further addresses.
    #[test]
    fn each_destination_comes_before_other_sources() {
        let own = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(address);
        let [first, second, server, left] =
            ["198.51.100.1", "198.51.100.9", "203.0.113.3", "198.51.100.77"].map(address);
        let order = control_order(&own, &[first, second, server], &[left]);
        let expected = [(0, first), (0, second), (0, server), (1, second), (0, left), (1, first)];
        assert_eq!(order[..6], expected.map(|(src, dst)| (own[src], dst)));
        assert_eq!(order.len(), 12);
        let attempts = [1, 3, 5].map(|attempt| in_turn(&order, attempt).unwrap().1);
        assert_eq!(attempts, [second, server, second]);
        // One address of this host: an address after the other.
        let one = control_order(&own[..1], &[first, server], &[left]);
        assert_eq!(one, [first, server, left].map(|dst| (own[0], dst)));
        // Both IP versions.
        let (own, peer) = (["192.0.2.1", "2001:db8::1"].map(address), ["2001:db8:9::1", "198.51.100.1"].map(address));
        assert_eq!(control_order(&own, &peer, &[]), [(own[1], peer[0]), (own[0], peer[1])]);
    }

    #[test]
    fn an_ip_version_of_one_host_alone_has_no_pairs() {
        let (own, peer) = (["192.0.2.1"].map(address), ["2001:db8:9::1"].map(address));
        assert_eq!(pairs(&own, peer.into_iter()), []);
        assert_eq!(in_turn(&[], 1), None);
    }
}
