use holdover_base::Instant;
use proptest::prelude::*;

use super::*;
use crate::link_watch::kernel::{DefaultRoute, Part, Reachability, RouteChange};
use crate::link_watch::rules::MAIN;

const WLAN: u32 = 3;
const UPPER: u32 = 9;

fn link(index: u32, kind: &str, can_carry: bool, stacking: Stacking) -> KernelEvent {
    let name = format!("if{index}").into();
    KernelEvent::Link {
        index,
        name,
        kind: kind.into(),
        is_loopback: false,
        is_set_up: true,
        can_carry,
        carrier_losses: None,
        has_neighbours: true,
        stacking,
    }
}

fn wlan(can_carry: bool) -> KernelEvent {
    link(WLAN, "", can_carry, Stacking::default())
}

fn address(is_usable: bool) -> KernelEvent {
    KernelEvent::Address { index: WLAN, address: [192, 0, 2, 7].into(), is_usable }
}

fn route(index: u32, metric: u32, is_there: bool) -> KernelEvent {
    let next_hop = Some([192, 0, 2, index as u8].into());
    let change = if is_there { RouteChange::Added } else { RouteChange::Removed };
    KernelEvent::DefaultRoute {
        index,
        route: DefaultRoute { is_ipv6: false, table: MAIN, part: Part::All, next_hop, metric },
        change,
    }
}

fn over(indices: &[u32]) -> Option<BTreeSet<Way>> {
    let way = |&index: &u32| Way { index, family: Some(Family::Ipv4), hop: Some([192, 0, 2, index as u8].into()) };
    Some(indices.iter().map(way).collect())
}

/// The `Source::Lower` events of the upper interface.
fn heard(interfaces: &mut Interfaces, news: impl IntoIterator<Item = KernelEvent>) -> Vec<String> {
    news.into_iter().for_each(|news| interfaces.handle(Instant::ZERO, news));
    let changes = std::iter::from_fn(|| interfaces.poll_change());
    let words = changes.filter_map(|change| match change {
        crate::link_watch::kernel::Change::Signal(signal)
            if signal.source == crate::link_watch::Source::Lower && &*signal.interface == "if9" =>
        {
            assert!(signal.families.are_both());
            Some(signal.event.to_string())
        }
        _ => None,
    });
    words.collect()
}

fn connected(upper: KernelEvent) -> Interfaces {
    let mut interfaces = Interfaces::new();
    assert_eq!(heard(&mut interfaces, [wlan(true), address(true), route(WLAN, 600, true), upper]), [] as [&str; 0]);
    interfaces
}

// Claim: Stacked links follow the links below, at any depth; loops terminate and report nothing.
// Tests: `tests::a_bond_goes_when_its_last_member_does`, `tests::a_tunnel_goes_with_the_way_to_its_endpoint`,
// `tests::a_tun_device_follows_the_default_route_of_others`, `tests::stacks_are_followed_and_loops_ignored`,
// `tests::whole_stacks_are_not_cut`
#[test]
fn a_vlan_goes_with_the_interface_below_and_its_own_name_is_not_needed() {
    let stacking = Stacking { below: Some(WLAN), ..Stacking::default() };
    let mut interfaces = connected(link(UPPER, "vlan", true, stacking));
    assert_eq!(heard(&mut interfaces, [wlan(false)]), ["down"]);
    assert_eq!(heard(&mut interfaces, [wlan(false), address(false)]), [] as [&str; 0]);
    assert_eq!(heard(&mut interfaces, [wlan(true)]), ["up"], "a VLAN has addresses of its own");
    assert_eq!(heard(&mut interfaces, [KernelEvent::LinkGone { index: WLAN }]), ["down"]);
}

#[test]
fn a_bond_goes_when_its_last_member_does() {
    let member =
        |index, can_carry| link(index, "", can_carry, Stacking { part_of: Some(UPPER), ..Stacking::default() });
    let mut interfaces = connected(link(UPPER, "bond", true, Stacking::default()));
    assert_eq!(heard(&mut interfaces, [member(20, true), member(21, true), member(20, false)]), [] as [&str; 0]);
    assert_eq!(heard(&mut interfaces, [member(21, false)]), ["down"]);
    assert_eq!(heard(&mut interfaces, [member(20, true)]), ["up"]);
}

#[test]
fn a_tunnel_goes_with_the_way_to_its_endpoint() {
    let mut interfaces = connected(link(UPPER, "wireguard", true, Stacking::default()));
    let tunnels = [Tunnel { index: UPPER, remote: None }];
    assert_eq!(interfaces.take_tunnels(false), tunnels);
    assert_eq!(interfaces.take_tunnels(false), [], "nothing has changed since");
    assert_eq!(interfaces.take_tunnels(true), tunnels, "its peers may have other endpoints");
    let endpoints = |ways| KernelEvent::Endpoints { index: UPPER, ways };
    assert_eq!(heard(&mut interfaces, [endpoints(over(&[WLAN]))]), [] as [&str; 0]);
    let hop = HopBelow { index: WLAN, local: [192, 0, 2, 7].into(), hop: [192, 0, 2, 3].into() };
    for (gone, back) in
        [(wlan(false), wlan(true)), (address(false), address(true)), (endpoints(over(&[])), endpoints(over(&[WLAN])))]
    {
        assert_eq!(heard(&mut interfaces, [gone.clone()]), ["down"], "{gone:?}");
        assert_eq!(heard(&mut interfaces, [back.clone()]), [] as [&str; 0], "{back:?}: its next hop is being resolved");
        assert_eq!(interfaces.take_hops_below(), [hop].into());
        assert_eq!(heard(&mut interfaces, [KernelEvent::HopsBelow { index: WLAN }]), ["up"], "{back:?}");
    }
    let router = |state| KernelEvent::Neighbour { index: WLAN, address: [192, 0, 2, 3].into(), state };
    assert_eq!(heard(&mut interfaces, [router(Reachability::Answers)]), [] as [&str; 0]);
    assert_eq!(heard(&mut interfaces, [router(Reachability::Failed)]), ["down"]);
    assert_eq!(heard(&mut interfaces, [router(Reachability::Answers)]), ["up"]);
    // The kernel's own request may be answered first.
    assert_eq!(heard(&mut interfaces, [wlan(false), wlan(true)]), ["down"]);
    assert_eq!(heard(&mut interfaces, [router(Reachability::Answers)]), ["up"]);
    assert_eq!(interfaces.take_hops_below(), [hop].into());
    assert_eq!(interfaces.take_hops_below(), [].into(), "it was up already");
    // Another route: packets in flight are lost.
    let other = link(4, "", true, Stacking::default());
    assert_eq!(heard(&mut interfaces, [other, endpoints(over(&[4]))]), ["down", "up"]);
    // Without a peer no endpoint is known.
    assert_eq!(heard(&mut interfaces, [endpoints(None)]), ["down"], "its peer is gone");
}

#[test]
fn a_tun_device_follows_the_default_route_of_others() {
    let mut interfaces = connected(link(UPPER, "tun", true, Stacking::default()));
    assert_eq!(heard(&mut interfaces, [route(UPPER, 50, true)]), [] as [&str; 0]);
    assert_eq!(interfaces.take_tunnels(true), []);
    assert_eq!(heard(&mut interfaces, [wlan(false)]), ["down"]);
    assert_eq!(heard(&mut interfaces, [wlan(true)]), [] as [&str; 0], "its next hop is being resolved");
    assert_eq!(heard(&mut interfaces, [KernelEvent::HopsBelow { index: WLAN }]), ["up"]);
    // Some clients replace the default route by theirs. The link below is unchanged.
    assert_eq!(heard(&mut interfaces, [route(WLAN, 600, false)]), [] as [&str; 0]);
    assert_eq!(heard(&mut interfaces, [address(false)]), ["down"]);
    // The only uplink has nothing below.
    let mut alone = Interfaces::new();
    let news = [link(UPPER, "tun", true, Stacking::default()), route(UPPER, 50, true), route(UPPER, 50, false)];
    assert_eq!(heard(&mut alone, news), [] as [&str; 0]);
}

// Claim: A TUN device whose default route is worse than another link's is no tunnel over that link: it stays when the link goes, its
// route then leads, and tunnels move to it.
#[test]
fn a_tun_device_that_stands_in_for_others_is_no_tunnel() {
    const STAND_IN: u32 = 4;
    let mut interfaces = connected(link(UPPER, "tun", true, Stacking::default()));
    let stand_in = link(STAND_IN, "tun", true, Stacking::default());
    assert_eq!(heard(&mut interfaces, [route(UPPER, 50, true), stand_in, route(STAND_IN, 700, true)]), [] as [&str; 0]);
    let leads = |interfaces: &Interfaces| interfaces.interfaces[&STAND_IN].leads.contains(Family::Ipv4);
    assert!(!interfaces.interfaces[&STAND_IN].is_tunnel && interfaces.interfaces[&UPPER].is_tunnel);
    assert_eq!(heard(&mut interfaces, [wlan(false)]), ["down"]);
    assert!(!interfaces.interfaces[&STAND_IN].lower.is_cut && !leads(&interfaces));
    heard(&mut interfaces, [route(WLAN, 600, false), KernelEvent::HopsBelow { index: STAND_IN }]);
    assert!(leads(&interfaces) && !interfaces.interfaces[&UPPER].lower.is_cut, "the tunnel has moved");
    assert_eq!(heard(&mut interfaces, [link(STAND_IN, "tun", false, Stacking::default())]), ["down"]);
}

// Claim: A VPN's TUN device to which two halves of all addresses lead (OpenVPN's `redirect-gateway def1`) is found without configuration, and is
// a tunnel over the link, whatever the metrics; one half alone is no default route.
// Tests: `stacked::openvpn_with_two_halves_is_found_and_followed`
#[test]
fn a_tun_device_to_which_two_halves_lead_is_a_tunnel() {
    let half = |part, is_there| {
        let (next_hop, metric) = (Some([10, 8, 0, 1].into()), 5000);
        let change = if is_there { RouteChange::Added } else { RouteChange::Removed };
        let route = DefaultRoute { is_ipv6: false, table: MAIN, part, next_hop, metric };
        KernelEvent::DefaultRoute { index: UPPER, route, change }
    };
    let mut interfaces = connected(link(UPPER, "tun", true, Stacking::default()));
    let leads = |interfaces: &Interfaces, index: u32| interfaces.interfaces[&index].leads.contains(Family::Ipv4);
    heard(&mut interfaces, [half(Part::First, true)]);
    assert!(!leads(&interfaces, UPPER), "a half");
    heard(&mut interfaces, [half(Part::Second, true)]);
    assert!(leads(&interfaces, UPPER) && leads(&interfaces, WLAN));
    assert!(interfaces.interfaces[&UPPER].is_tunnel);
    assert_eq!(heard(&mut interfaces, [wlan(false)]), ["down"]);
    heard(&mut interfaces, [half(Part::First, false)]);
    assert!(!leads(&interfaces, UPPER));
    // Those of different prefixes are no pair.
    heard(&mut interfaces, [half(Part::FirstGlobal, true)]);
    assert!(!leads(&interfaces, UPPER));
    heard(&mut interfaces, [half(Part::SecondGlobal, true)]);
    assert!(leads(&interfaces, UPPER));
    // OpenVPN's device in the kernel is a tunnel as well; one over PPP is not known to be, and leaves the link its route.
    for (kind, is_tunnel) in [("ovpn", true), ("ovpn-dco-v2", true), ("ppp", false)] {
        let mut interfaces = connected(link(UPPER, kind, true, Stacking::default()));
        heard(&mut interfaces, [half(Part::First, true), half(Part::Second, true)]);
        assert_eq!(interfaces.interfaces[&UPPER].is_tunnel, is_tunnel, "{kind}");
        assert!(leads(&interfaces, UPPER) && leads(&interfaces, WLAN), "{kind}");
        let expected: &[&str] = if is_tunnel { &["down"] } else { &[] };
        assert_eq!(heard(&mut interfaces, [wlan(false)]), expected, "{kind}");
    }
}

// Claim: A VPN's TUN device with a better default route than the link's in one IP version, and a worse one in the other, is a tunnel over
// the link, and does not take its route.
#[test]
fn a_tun_device_with_one_better_route_is_a_tunnel() {
    let ipv6 = |index, metric| {
        let next_hop = Some(format!("fe80::{index}").parse().unwrap());
        let route = DefaultRoute { is_ipv6: true, table: MAIN, part: Part::All, next_hop, metric };
        KernelEvent::DefaultRoute { index, route, change: RouteChange::Added }
    };
    for metric in [0, 50] {
        let mut interfaces = connected(link(UPPER, "tun", true, Stacking::default()));
        let news = [ipv6(WLAN, 600), ipv6(UPPER, 1024), route(UPPER, metric, true)];
        assert_eq!(heard(&mut interfaces, news), [] as [&str; 0]);
        assert!(interfaces.interfaces[&UPPER].is_tunnel);
        assert!(interfaces.interfaces[&WLAN].leads.are_both());
        assert_eq!(heard(&mut interfaces, [wlan(false)]), ["down"]);
    }
}

// Claim: A TUN device that stands in for a link still does when the link's metric is raised above its own; over another link, or with
// a better route of its own, it is a tunnel.
#[test]
fn a_stand_in_stays_one_when_the_metric_of_the_link_is_raised() {
    let standing_in = || {
        let mut interfaces = connected(link(UPPER, "tun", true, Stacking::default()));
        assert_eq!(heard(&mut interfaces, [route(UPPER, 700, true)]), [] as [&str; 0]);
        assert!(!interfaces.interfaces[&UPPER].is_tunnel);
        interfaces
    };
    let raised = [route(WLAN, 20_600, true), route(WLAN, 600, false)];
    for raised in [raised.clone(), [raised[1].clone(), raised[0].clone()]] {
        let mut interfaces = standing_in();
        assert_eq!(heard(&mut interfaces, raised), [] as [&str; 0]);
        assert!(!interfaces.interfaces[&UPPER].is_tunnel);
        assert!(interfaces.interfaces[&UPPER].leads.contains(Family::Ipv4));
        assert_eq!(heard(&mut interfaces, [wlan(false)]), [] as [&str; 0], "its own packets do not use the link");
    }
    let mut interfaces = standing_in();
    let other = [link(4, "", true, Stacking::default()), route(4, 800, true), route(WLAN, 600, false)];
    assert_eq!(heard(&mut interfaces, other), ["down", "up"], "its packets use the other link from now on");
    assert!(interfaces.interfaces[&UPPER].is_tunnel, "its route is better than the only other link's");
    let mut interfaces = standing_in();
    assert_eq!(heard(&mut interfaces, [route(UPPER, 50, true), route(UPPER, 700, false)]), [] as [&str; 0]);
    assert!(interfaces.interfaces[&UPPER].is_tunnel);
    assert_eq!(heard(&mut interfaces, [wlan(false)]), ["down"]);
}

// Claim: A loss of carrier that only the kernel's count shows is passed on to the VLANs, bonds and tunnels above.
#[test]
fn a_counted_loss_of_carrier_is_passed_on() {
    let counted = |index, part_of, count| {
        let mut link = link(index, "", true, Stacking { part_of, ..Stacking::default() });
        if let KernelEvent::Link { carrier_losses, .. } = &mut link {
            *carrier_losses = Some(count);
        }
        link
    };
    let on = |below| Stacking { below: Some(below), ..Stacking::default() };
    let mut interfaces = connected(link(8, "vlan", true, on(WLAN)));
    assert_eq!(heard(&mut interfaces, [link(UPPER, "macvlan", true, on(8))]), [] as [&str; 0]);
    assert_eq!(heard(&mut interfaces, [counted(WLAN, None, 5)]), [] as [&str; 0]);
    assert_eq!(heard(&mut interfaces, [counted(WLAN, None, 6)]), ["down", "up"]);
    assert_eq!(heard(&mut interfaces, [counted(WLAN, None, 6)]), [] as [&str; 0]);
    // A bond goes with its last member.
    let mut interfaces = connected(link(UPPER, "bond", true, Stacking::default()));
    let members = [counted(20, Some(UPPER), 5), counted(21, Some(UPPER), 5), counted(20, Some(UPPER), 6)];
    assert_eq!(heard(&mut interfaces, members), [] as [&str; 0]);
    let gone = link(20, "", false, Stacking { part_of: Some(UPPER), ..Stacking::default() });
    assert_eq!(heard(&mut interfaces, [gone, counted(21, Some(UPPER), 6)]), ["down", "up"]);
    // A tunnel waits for its next hop, as after other losses.
    let mut interfaces = connected(link(UPPER, "wireguard", true, Stacking::default()));
    let endpoints = KernelEvent::Endpoints { index: UPPER, ways: over(&[WLAN]) };
    assert_eq!(heard(&mut interfaces, [endpoints, counted(WLAN, None, 5)]), [] as [&str; 0]);
    assert_eq!(heard(&mut interfaces, [counted(WLAN, None, 6)]), ["down"]);
    assert_eq!(interfaces.take_hops_below().len(), 1);
    assert_eq!(heard(&mut interfaces, [KernelEvent::HopsBelow { index: WLAN }]), ["up"]);
}

#[test]
fn stacks_are_followed_and_loops_ignored() {
    let on = |below| Stacking { below: Some(below), ..Stacking::default() };
    let mut interfaces = connected(link(8, "vlan", true, on(WLAN)));
    assert_eq!(heard(&mut interfaces, [link(UPPER, "macvlan", true, on(8))]), [] as [&str; 0]);
    assert_eq!(heard(&mut interfaces, [wlan(false)]), ["down"]);
    let mut circular = Interfaces::new();
    assert_eq!(
        heard(&mut circular, [link(8, "vlan", true, on(UPPER)), link(UPPER, "vlan", true, on(8))]),
        [] as [&str; 0]
    );
    assert_eq!(heard(&mut circular, [link(UPPER, "vlan", true, on(UPPER))]), [] as [&str; 0]);
}

proptest! {
    /// Any stacking of interfaces, loops included: it terminates, and no interface with a working path down is reported
    /// down.
    #[test]
    fn whole_stacks_are_not_cut(
        below in prop::collection::vec(0..12u32, 12),
        parts in prop::collection::vec(0..12u32, 12),
        kinds in prop::collection::vec(0..5usize, 12),
    ) {
        let mut interfaces = Interfaces::new();
        for (index, ((below, part_of), kind)) in below.into_iter().zip(parts).zip(kinds).enumerate() {
            let kind = ["vlan", "bond", "gre", "", "tun"][kind];
            let stacking = Stacking { below: Some(below), part_of: Some(part_of), remote: None };
            interfaces.handle(Instant::ZERO, link(index as u32, kind, true, stacking));
            // Interfaces that do not exist yet count as gone.
            while interfaces.poll_change().is_some() {}
        }
        interfaces.handle(Instant::ZERO, wlan(true));
        prop_assert!(interfaces.interfaces.values().all(|interface| !interface.lower.is_cut));
    }
}
