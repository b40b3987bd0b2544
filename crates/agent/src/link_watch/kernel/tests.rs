use holdover_mobility::LinkEvent;
use proptest::prelude::*;

use super::*;
use crate::link_watch::LinkChange;
use crate::link_watch::rules::MAIN;

const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };
const MOVED: LinkEvent = LinkEvent::Up { symmetric: false, moved: true };

pub(super) fn link(index: u32, name: &str, can_carry: bool) -> KernelEvent {
    let is_loopback = name == "lo";
    let kind = "".into();
    let has_neighbours = !is_loopback;
    let stacking = Stacking::default();
    KernelEvent::Link {
        index,
        name: name.into(),
        kind,
        is_loopback,
        is_set_up: true,
        can_carry,
        carrier_losses: None,
        has_neighbours,
        stacking,
    }
}

fn address(index: u32, address: &str, is_usable: bool) -> KernelEvent {
    KernelEvent::Address { index, address: address.parse().unwrap(), is_usable }
}

pub(super) fn route(index: u32, next_hop: &str, is_there: bool) -> KernelEvent {
    let change = if is_there { RouteChange::Added } else { RouteChange::Removed };
    let next_hop: IpAddr = next_hop.parse().unwrap();
    let route = DefaultRoute {
        is_ipv6: next_hop.is_ipv6(),
        table: MAIN,
        part: Part::All,
        next_hop: Some(next_hop),
        metric: 100,
    };
    KernelEvent::DefaultRoute { index, route, change }
}

fn neighbour(index: u32, address: &str, state: Reachability) -> KernelEvent {
    KernelEvent::Neighbour { index, address: address.parse().unwrap(), state }
}

fn drain(interfaces: &mut Interfaces) -> Vec<String> {
    let changes = std::iter::from_fn(|| interfaces.poll_change());
    let text = |change| match change {
        Change::Appeared { interface, is_eligible: true } => format!("{interface} eligible"),
        Change::Appeared { interface, is_eligible: false } => format!("{interface} there"),
        Change::Disappeared { interface } => format!("{interface} gone"),
        Change::Signal(Signal { interface, event, families, source, .. }) => {
            format!("{interface} {source} {}", LinkChange { families, event })
        }
    };
    changes.map(text).collect()
}

fn reports(interfaces: &mut Interfaces, news: impl IntoIterator<Item = KernelEvent>) -> Vec<String> {
    news.into_iter().for_each(|news| interfaces.handle(Instant::ZERO, news));
    drain(interfaces)
}

/// A laptop that is connected.
fn connected() -> Interfaces {
    let mut interfaces = Interfaces::new();
    let news = [
        link(1, "lo", true),
        link(3, "wlan0", true),
        address(3, "192.0.2.7", true),
        route(3, "192.0.2.1", true),
        neighbour(3, "192.0.2.1", Reachability::Answers),
    ];
    assert_eq!(reports(&mut interfaces, news), ["lo there", "wlan0 there", "wlan0 eligible"]);
    interfaces
}

#[test]
fn a_lost_and_restored_link_reports_each_change_once() {
    let mut interfaces = connected();
    let lost = [
        link(3, "wlan0", false),
        link(3, "wlan0", false),
        route(3, "192.0.2.1", false),
        address(3, "192.0.2.7", false),
        address(3, "192.0.2.7", false),
    ];
    assert_eq!(reports(&mut interfaces, lost), ["wlan0 carrier down", "wlan0 route down", "wlan0 address down"]);
    let found = [
        link(3, "wlan0", true),
        address(3, "192.0.2.7", false),
        address(3, "192.0.2.7", true),
        route(3, "192.0.2.1", true),
        route(3, "192.0.2.1", true),
    ];
    assert_eq!(reports(&mut interfaces, found), ["wlan0 carrier up", "wlan0 address up", "wlan0 route up"]);
}

#[test]
fn an_address_in_place_of_another_is_a_move() {
    let mut interfaces = Interfaces::new();
    assert_eq!(reports(&mut interfaces, [link(3, "wlan0", true), address(3, "192.0.2.7", true)]), ["wlan0 there"]);
    // An additional address, of the same or another family, is not a move.
    assert_eq!(
        reports(&mut interfaces, [address(3, "192.0.2.8", true), address(3, "2001:db8::7", true)]),
        [] as [&str; 0]
    );
    assert_eq!(reports(&mut interfaces, [address(3, "192.0.2.7", false)]), [] as [&str; 0]);
    // The last one is removed and added again: the same network.
    let back = reports(&mut interfaces, [address(3, "192.0.2.8", false), address(3, "192.0.2.8", true)]);
    assert_eq!(back, ["wlan0 address down (IPv4)", "wlan0 address up (IPv4)"]);
    // A new one is added before the old one is removed, as DHCP clients do.
    let moved = reports(&mut interfaces, [address(3, "198.51.100.9", true), address(3, "192.0.2.8", false)]);
    assert_eq!(moved, [] as [&str; 0], "connections of the old address were there until the end");
    // The last one of a family is replaced.
    let moved = reports(&mut interfaces, [address(3, "198.51.100.9", false), address(3, "203.0.113.5", true)]);
    assert_eq!(moved, ["wlan0 address down (IPv4)", "wlan0 address up, moved (IPv4)"]);
    // The same, with no address in between.
    let news = [address(3, "2001:db8::7", false), address(3, "203.0.113.5", false), address(3, "192.0.2.7", true)];
    let expected = ["wlan0 address down (IPv6)", "wlan0 address down (IPv4)", "wlan0 address up, moved (IPv4)"];
    assert_eq!(reports(&mut interfaces, news), expected);
}

#[test]
fn one_version_of_ip_fails_and_the_other_stays() {
    let mut interfaces = connected();
    let both = [address(3, "2001:db8::7", true), route(3, "2001:db8::1", true)];
    assert_eq!(reports(&mut interfaces, both), [] as [&str; 0]);
    let gone = reports(&mut interfaces, [address(3, "192.0.2.7", false)]);
    assert_eq!(gone, ["wlan0 address down (IPv4)", "wlan0 route down (IPv4)"]);
    let back = reports(&mut interfaces, [address(3, "192.0.2.7", true), route(3, "192.0.2.1", true)]);
    assert_eq!(back, ["wlan0 address up (IPv4)", "wlan0 route up (IPv4)"]);
    assert_eq!(reports(&mut interfaces, [route(3, "2001:db8::1", false)]), ["wlan0 route down (IPv6)"]);
    assert_eq!(
        reports(&mut interfaces, [neighbour(3, "192.0.2.1", Reachability::Failed)]),
        ["wlan0 neighbour down (IPv4)"]
    );
    assert_eq!(reports(&mut interfaces, [link(3, "wlan0", false)])[0], "wlan0 carrier down");
}

#[test]
fn an_unused_version_follows_the_other() {
    let mut interfaces = connected();
    assert_eq!(reports(&mut interfaces, [route(3, "192.0.2.1", false)]), ["wlan0 route down"]);
    // From now on IPv6 works without IPv4.
    let changed = reports(&mut interfaces, [address(3, "2001:db8::7", true), route(3, "2001:db8::1", true)]);
    assert_eq!(changed, ["wlan0 route up (IPv6)"]);
    assert_eq!(reports(&mut interfaces, [route(3, "192.0.2.1", true)]), ["wlan0 route up (IPv4)"]);
}

#[test]
fn a_default_router_that_does_not_answer_is_a_cut() {
    let mut interfaces = connected();
    let states = [
        Reachability::Unknown,
        Reachability::Failed,
        Reachability::Failed,
        Reachability::Unknown,
        Reachability::Answers,
        Reachability::Failed,
        Reachability::Forgotten,
    ];
    let news = states.map(|state| neighbour(3, "192.0.2.1", state));
    assert_eq!(
        reports(&mut interfaces, news),
        ["wlan0 neighbour down", "wlan0 neighbour up", "wlan0 neighbour down", "wlan0 neighbour up"]
    );
    // Other neighbours on the link, and neighbours on another link, are not routers.
    let others = [neighbour(3, "192.0.2.99", Reachability::Failed), neighbour(4, "192.0.2.1", Reachability::Failed)];
    assert_eq!(reports(&mut interfaces, others), [] as [&str; 0]);
    // A second router is enough.
    let news = [route(3, "192.0.2.2", true), neighbour(3, "192.0.2.1", Reachability::Failed)];
    assert_eq!(reports(&mut interfaces, news), [] as [&str; 0]);
    let news = [neighbour(3, "192.0.2.2", Reachability::Failed), link(3, "wlan0", false)];
    assert_eq!(reports(&mut interfaces, news), ["wlan0 neighbour down", "wlan0 carrier down", "wlan0 neighbour up"]);
}

// Claim: After the carrier's return a default router that does not answer yet is no outage.
#[test]
fn after_carrier_up_a_default_router_must_answer_before_it_can_be_missed() {
    let mut interfaces = connected();
    let returned = [link(3, "wlan0", false), link(3, "wlan0", true)];
    assert_eq!(reports(&mut interfaces, returned), ["wlan0 carrier down", "wlan0 carrier up"]);
    // The path does not forward yet, and the kernel's probes are lost.
    let failed = || neighbour(3, "192.0.2.1", Reachability::Failed);
    assert_eq!(reports(&mut interfaces, [neighbour(3, "192.0.2.1", Reachability::Unknown), failed()]), [] as [&str; 0]);
    assert_eq!(reports(&mut interfaces, [neighbour(3, "192.0.2.1", Reachability::Answers)]), [] as [&str; 0]);
    assert_eq!(reports(&mut interfaces, [failed()]), ["wlan0 neighbour down"]);
}

#[test]
fn absence_from_the_start_is_no_signal() {
    let mut interfaces = Interfaces::new();
    assert_eq!(reports(&mut interfaces, [link(2, "eth0", true)]), ["eth0 there"]);
    assert_eq!(
        reports(&mut interfaces, [address(2, "192.0.2.7", false), route(2, "192.0.2.1", false)]),
        [] as [&str; 0]
    );
    // Notifications about an interface wait for its name.
    assert_eq!(reports(&mut interfaces, [address(9, "192.0.2.9", true), route(9, "192.0.2.1", true)]), [] as [&str; 0]);
    assert_eq!(reports(&mut interfaces, [link(9, "wwan0", false)]), ["wwan0 eligible", "wwan0 carrier down"]);
}

#[test]
fn bridges_and_ends_of_containers_are_no_uplinks() {
    for (name, kind) in
        [("docker0", "bridge"), ("br0", "bridge"), ("veth12ab", "veth"), ("dummy0", "dummy"), ("lo", "")]
    {
        let mut interfaces = Interfaces::new();
        let link = KernelEvent::Link {
            index: 5,
            name: name.into(),
            kind: kind.into(),
            is_loopback: name == "lo",
            is_set_up: true,
            can_carry: true,
            carrier_losses: None,
            has_neighbours: true,
            stacking: Stacking::default(),
        };
        assert_eq!(reports(&mut interfaces, [link, route(5, "192.0.2.1", true)]), [format!("{name} there")]);
    }
    // A container's own eth0 is a veth, and its uplink.
    let mut interfaces = Interfaces::new();
    let link = KernelEvent::Link {
        index: 5,
        name: "eth0".into(),
        kind: "veth".into(),
        is_loopback: false,
        is_set_up: true,
        can_carry: true,
        carrier_losses: None,
        has_neighbours: true,
        stacking: Stacking::default(),
    };
    assert_eq!(reports(&mut interfaces, [route(5, "192.0.2.1", true), link]), ["eth0 eligible"]);
}

// Claim: A loss of carrier that was over before the kernel reported it is seen by the kernel's count of losses, as down and up; one
// that was reported is not seen twice.
#[test]
fn a_loss_of_carrier_without_a_message_of_its_own_is_counted() {
    let counted = |can_carry, count| {
        let mut link = link(3, "wlan0", can_carry);
        if let KernelEvent::Link { carrier_losses, .. } = &mut link {
            *carrier_losses = count;
        }
        link
    };
    let mut interfaces = connected();
    let none = [] as [&str; 0];
    assert_eq!(reports(&mut interfaces, [counted(true, Some(5))]), none, "the first count is no change");
    assert_eq!(reports(&mut interfaces, [counted(true, Some(5))]), none);
    assert_eq!(reports(&mut interfaces, [counted(true, Some(6))]), ["wlan0 carrier down", "wlan0 carrier up"]);
    assert_eq!(reports(&mut interfaces, [counted(false, Some(7))]), ["wlan0 carrier down"]);
    assert_eq!(reports(&mut interfaces, [counted(true, Some(9))]), ["wlan0 carrier up"]);
    assert_eq!(
        reports(&mut interfaces, [counted(true, None), counted(true, Some(9))]),
        none,
        "kernels without a count"
    );
}

#[test]
fn an_interface_that_goes_or_is_renamed_is_gone() {
    let mut interfaces = connected();
    assert_eq!(reports(&mut interfaces, [link(3, "wlp2s0", true)]), ["wlan0 gone", "wlp2s0 eligible"]);
    assert_eq!(interfaces.addresses("wlp2s0").collect::<Vec<_>>(), ["192.0.2.7".parse::<IpAddr>().unwrap()]);
    let gone = KernelEvent::LinkGone { index: 3 };
    assert_eq!(reports(&mut interfaces, [gone.clone(), gone, address(3, "192.0.2.7", false)]), ["wlp2s0 gone"]);
    // The next one with that name is another interface, which lacks what this one had.
    let expected = ["wlp2s0 there", "wlp2s0 address down", "wlp2s0 route down"];
    assert_eq!(reports(&mut interfaces, [link(4, "wlp2s0", true)]), expected);
}

/// A modem that is reset. Its carrier comes before its address, and this before the route.
// Claim: An interface that is removed and made anew under its name is up when it has an address and a default route again; ten minutes
// later it is a new one.
#[test]
fn an_interface_made_anew_is_up_with_its_address_and_route() {
    let mut interfaces = connected();
    let gone = |index| KernelEvent::LinkGone { index };
    reports(&mut interfaces, [address(3, "192.0.2.7", false), gone(3)]);
    let anew = [link(5, "wlan0", false), link(5, "wlan0", true)];
    let expected =
        ["there", "carrier down", "address down", "route down", "carrier up"].map(|what| format!("wlan0 {what}"));
    assert_eq!(reports(&mut interfaces, anew), expected);
    assert_eq!(reports(&mut interfaces, [address(5, "192.0.2.7", true)]), ["wlan0 address up"]);
    assert_eq!(reports(&mut interfaces, [route(5, "192.0.2.1", true)]), ["wlan0 eligible", "wlan0 route up"]);
    // With another address its connections have moved.
    reports(&mut interfaces, [gone(5), link(6, "wlan0", true)]);
    assert_eq!(reports(&mut interfaces, [address(6, "198.51.100.4", true)]), ["wlan0 address up, moved"]);
    // An interface that never had a route does not need one.
    assert_eq!(
        reports(&mut interfaces, [link(8, "tun0", true), gone(8), link(9, "tun0", true)]),
        ["tun0 there", "tun0 gone", "tun0 there"]
    );
    interfaces.handle(Instant::ZERO, gone(6));
    drain(&mut interfaces);
    interfaces.handle(Instant::ZERO + REMEMBERED, link(7, "wlan0", true));
    assert_eq!(drain(&mut interfaces), ["wlan0 there"]);
}

/// udev renames a modem once the kernel has named it.
// Claim: An interface that is made anew under the kernel's name, and renamed, lacks what the former one of its last name had.
#[test]
fn an_interface_made_anew_is_recalled_by_its_last_name() {
    let news = |index, address, router| {
        [link(index, "wwp0s20", true), self::address(index, address, true), route(index, router, true)]
    };
    let mut interfaces = Interfaces::new();
    reports(&mut interfaces, news(3, "192.0.2.7", "192.0.2.1"));
    reports(&mut interfaces, [KernelEvent::LinkGone { index: 3 }]);
    assert_eq!(reports(&mut interfaces, [link(4, "wwan0", false)]), ["wwan0 there", "wwan0 carrier down"]);
    let expected =
        ["wwan0 gone", "wwp0s20 there", "wwp0s20 carrier down", "wwp0s20 address down", "wwp0s20 route down"];
    assert_eq!(reports(&mut interfaces, [link(4, "wwp0s20", false)]), expected);
    let expected = ["wwp0s20 carrier up", "wwp0s20 address up", "wwp0s20 eligible", "wwp0s20 route up"];
    assert_eq!(reports(&mut interfaces, news(4, "192.0.2.7", "192.0.2.1")), expected);
    // An interface remembers its own address and route under another name.
    reports(&mut interfaces, [KernelEvent::LinkGone { index: 4 }, link(5, "wwan0", true)]);
    reports(&mut interfaces, [address(5, "198.51.100.4", true)]);
    let expected = ["wwan0 gone", "wwp0s20 there", "wwp0s20 route down"];
    assert_eq!(reports(&mut interfaces, [link(5, "wwp0s20", true)]), expected);
}

#[test]
fn a_snapshot_replaces_what_was_known() {
    let mut interfaces = connected();
    interfaces.begin_snapshot();
    let quiet = [link(3, "wlan0", true), address(3, "198.51.100.4", true), link(7, "eth0", true)];
    assert_eq!(reports(&mut interfaces, quiet), [] as [&str; 0]);
    interfaces.end_snapshot(Instant::ZERO);
    assert_eq!(drain(&mut interfaces), ["lo gone", "wlan0 address up, moved", "wlan0 route down", "eth0 there"]);
    interfaces.begin_snapshot();
    for news in [link(3, "wlan0", true), address(3, "198.51.100.4", true), route(3, "198.51.100.1", true)] {
        interfaces.handle(Instant::ZERO, news);
    }
    interfaces.end_snapshot(Instant::ZERO);
    assert_eq!(drain(&mut interfaces), ["eth0 gone", "wlan0 route up"]);
}

// Claim: Routes removed without a message from the kernel are detected; losses by a full buffer are made up by a snapshot.
// Tests: `tests::a_snapshot_replaces_what_was_known`
#[test]
fn unreported_route_removals_are_inferred() {
    // A route is replaced by one on another interface.
    let mut interfaces = connected();
    let next_hop = Some("198.51.100.1".parse().unwrap());
    let instead = KernelEvent::DefaultRoute {
        index: 4,
        route: DefaultRoute { is_ipv6: false, table: MAIN, part: Part::All, next_hop, metric: 100 },
        change: RouteChange::Replaced,
    };
    assert_eq!(
        reports(&mut interfaces, [link(4, "eth0", true), instead]),
        ["eth0 there", "wlan0 route down", "eth0 eligible"]
    );
    // An interface that is set down, and one that loses its last address.
    let set_down = KernelEvent::Link {
        index: 4,
        name: "eth0".into(),
        kind: "".into(),
        is_loopback: false,
        is_set_up: false,
        can_carry: false,
        carrier_losses: None,
        has_neighbours: true,
        stacking: Stacking::default(),
    };
    assert_eq!(reports(&mut interfaces, [set_down]), ["eth0 carrier down", "eth0 route down"]);
    let mut interfaces = connected();
    assert_eq!(reports(&mut interfaces, [address(3, "192.0.2.7", false)]), ["wlan0 address down", "wlan0 route down"]);
}

/// A default route of IPv4 in a table, with a metric.
fn route_in(index: u32, table: u32, metric: u32, is_there: bool) -> KernelEvent {
    let next_hop = Some(format!("192.0.2.{index}").parse().unwrap());
    let change = if is_there { RouteChange::Added } else { RouteChange::Removed };
    KernelEvent::DefaultRoute {
        index,
        route: DefaultRoute { is_ipv6: false, table, part: Part::All, next_hop, metric },
        change,
    }
}

fn rule(table: u32, is_there: bool) -> KernelEvent {
    KernelEvent::Rule { rule: Rule { is_ipv6: false, table, selector: [].into() }, is_there }
}

#[test]
fn a_default_route_counts_while_a_rule_leads_to_its_table() {
    let mut interfaces = Interfaces::new();
    let news = [link(3, "wwan0", true), address(3, "192.0.2.7", true), rule(MAIN, true), route_in(3, 100, 0, true)];
    assert_eq!(reports(&mut interfaces, news), ["wwan0 there"]);
    assert_eq!(reports(&mut interfaces, [rule(100, true)]), ["wwan0 eligible"]);
    assert_eq!(interfaces.default_routers("wwan0").unwrap().addresses, ["192.0.2.3".parse().unwrap()].into());
    assert_eq!(reports(&mut interfaces, [rule(100, false)]), ["wwan0 route down"]);
    assert_eq!(reports(&mut interfaces, [rule(100, true)]), ["wwan0 route up"]);
    assert_eq!(reports(&mut interfaces, [route_in(3, 100, 0, false)]), ["wwan0 route down"]);
    // A snapshot without the rule, and then one with it.
    reports(&mut interfaces, [route_in(3, 100, 0, true)]);
    for (rules, expected) in [(vec![rule(MAIN, true)], "wwan0 route down"), (vec![rule(100, true)], "wwan0 route up")] {
        interfaces.begin_snapshot();
        let all = [link(3, "wwan0", true), address(3, "192.0.2.7", true), route_in(3, 100, 0, true)];
        all.into_iter().chain(rules).for_each(|news| interfaces.handle(Instant::ZERO, news));
        interfaces.end_snapshot(Instant::ZERO);
        assert_eq!(drain(&mut interfaces), [expected]);
    }
}

#[test]
fn the_best_route_moves_from_link_to_link() {
    let mut interfaces = Interfaces::new();
    let at_home = [link(3, "wwan0", true), route_in(3, MAIN, 700, true), link(4, "wlan0", true)];
    assert_eq!(reports(&mut interfaces, at_home), ["wwan0 there", "wwan0 eligible", "wlan0 there"]);
    let better = route_in(4, MAIN, 600, true);
    assert_eq!(reports(&mut interfaces, [better]), ["wwan0 route down", "wlan0 eligible"]);
    assert_eq!(reports(&mut interfaces, [route_in(4, MAIN, 600, false)]), ["wwan0 route up", "wlan0 route down"]);
    // The loss of a route that never led has no effect. A route with the same metric, or in another table, does not take the lead.
    let worse = [link(5, "eth0", true), route_in(5, MAIN, 900, true)];
    assert_eq!(reports(&mut interfaces, worse), ["eth0 there", "eth0 eligible"]);
    assert_eq!(reports(&mut interfaces, [route_in(5, MAIN, 900, false)]), [] as [&str; 0]);
    assert_eq!(reports(&mut interfaces, [route_in(5, MAIN, 700, true)]), [] as [&str; 0]);
    let elsewhere = [rule(MAIN, true), rule(200, true), route_in(5, 200, 1, true)];
    assert_eq!(reports(&mut interfaces, elsewhere), [] as [&str; 0]);
}

#[test]
fn a_tunnel_does_not_take_the_route_from_the_link_that_carries_it() {
    let mut interfaces = Interfaces::new();
    let mut tunnel = link(9, "vpn0", true);
    if let KernelEvent::Link { kind, .. } = &mut tunnel {
        *kind = "tun".into();
    }
    let news = [link(3, "wlan0", true), route_in(3, MAIN, 600, true), tunnel, route_in(9, MAIN, 50, true)];
    assert_eq!(reports(&mut interfaces, news), ["wlan0 there", "wlan0 eligible", "vpn0 there", "vpn0 eligible"]);
}

fn any_news() -> impl Strategy<Value = KernelEvent> {
    let index = 1..3u32;
    prop_oneof![
        (index.clone(), any::<bool>()).prop_map(|(index, up)| link(index, ["a", "b"][index as usize - 1], up)),
        (index.clone(), 0..4u8, any::<bool>()).prop_map(|(index, last, usable)| address(
            index,
            ["192.0.2.0", "192.0.2.1", "2001:db8::2", "2001:db8::3"][usize::from(last)],
            usable
        )),
        (index.clone(), 0..3u8, any::<bool>()).prop_map(|(index, last, there)| route(
            index,
            ["192.0.2.100", "192.0.2.101", "2001:db8::100"][usize::from(last)],
            there
        )),
        (index.clone(), 0..2u8, 0..5usize).prop_map(|(index, last, state)| {
            use Reachability::{Answers, Failed, Fixed, Forgotten, Unknown};
            let state = [Answers, Failed, Unknown, Forgotten, Fixed][state];
            neighbour(index, &format!("192.0.2.{}", 100 + last), state)
        }),
        (index.clone(), 0..2u32, 0..3u32, any::<bool>()).prop_map(|(index, table, metric, is_there)| route_in(
            index,
            [MAIN, 100][table as usize],
            metric,
            is_there
        )),
        (0..2usize, any::<bool>()).prop_map(|(table, is_there)| rule([MAIN, 100][table], is_there)),
        index.prop_map(|index| KernelEvent::LinkGone { index }),
    ]
}

proptest! {
    /// In any order of notifications: no source repeats itself, only existing interfaces are reported, and the final
    /// state does not depend on repetitions.
    // Claim: For any order and repetition of kernel messages, no source repeats a report.
    #[test]
    fn no_source_repeats_itself(news in prop::collection::vec(any_news(), 0..80)) {
        let mut interfaces = Interfaces::new();
        let mut there = BTreeSet::new();
        let mut down: BTreeSet<(Box<str>, Source, Family)> = BTreeSet::new();
        for news in news {
            interfaces.handle(Instant::ZERO, news.clone());
            interfaces.handle(Instant::ZERO, news);
            while let Some(change) = interfaces.poll_change() {
                match change {
                    Change::Appeared { interface, .. } => _ = there.insert(interface),
                    Change::Disappeared { interface } => {
                        prop_assert!(there.remove(&interface));
                        down.retain(|(name, ..)| *name != interface);
                    }
                    Change::Signal(Signal { interface, event, families, source, .. }) => {
                        prop_assert!(there.contains(&interface) && !families.is_empty());
                        for family in families.iter() {
                            let word = (interface.clone(), source, family);
                            match event {
                                LinkEvent::Down => prop_assert!(down.insert(word)),
                                UP => prop_assert!(down.remove(&word)),
                                MOVED => {
                                    prop_assert_eq!(source, Source::Address);
                                    down.remove(&word);
                                }
                                other => prop_assert!(false, "{}", other),
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn an_incomplete_snapshot_removes_nothing() {
    let mut interfaces = connected();
    assert_eq!(reports(&mut interfaces, [neighbour(3, "192.0.2.1", Reachability::Failed)]), ["wlan0 neighbour down"]);
    interfaces.begin_snapshot();
    assert_eq!(reports(&mut interfaces, [link(3, "wlan0", true), link(7, "eth0", true)]), [] as [&str; 0]);
    interfaces.abandon_snapshot(Instant::ZERO);
    assert_eq!(drain(&mut interfaces), ["eth0 there"]);
    // And another one after one that was not even abandoned.
    interfaces.begin_snapshot();
    assert_eq!(reports(&mut interfaces, [link(7, "eth0", true)]), [] as [&str; 0]);
    interfaces.begin_snapshot();
    let all = [link(1, "lo", true), link(3, "wlan0", true), address(3, "192.0.2.7", true), route(3, "192.0.2.1", true)];
    assert_eq!(reports(&mut interfaces, all), [] as [&str; 0]);
    interfaces.end_snapshot(Instant::ZERO);
    assert_eq!(drain(&mut interfaces), ["eth0 gone", "wlan0 neighbour up"], "the state of the router is unknown again");
}

// Claim: Point-to-point links and default routers with a permanent neighbour entry are not probed.
#[test]
fn default_routers_can_be_probed_unless_static() {
    let addresses = |interfaces: &Interfaces| interfaces.default_routers("wlan0").map(|routers| routers.addresses);
    let mut interfaces = connected();
    let first: BTreeSet<IpAddr> = BTreeSet::from(["192.0.2.1".parse().unwrap()]);
    assert_eq!(addresses(&interfaces), Some(first));
    reports(&mut interfaces, [route(3, "2001:db8::1", true)]);
    assert_eq!(addresses(&interfaces).unwrap().len(), 2);
    // A static neighbour entry.
    reports(&mut interfaces, [neighbour(3, "2001:db8::1", Reachability::Fixed)]);
    assert_eq!(addresses(&interfaces), None);
    reports(&mut interfaces, [neighbour(3, "2001:db8::1", Reachability::Unknown)]);
    assert_eq!(addresses(&interfaces).unwrap().len(), 2);
    // All destinations are on the link.
    let plain = DefaultRoute { is_ipv6: false, table: MAIN, part: Part::All, next_hop: None, metric: 5 };
    reports(&mut interfaces, [KernelEvent::DefaultRoute { index: 3, route: plain, change: RouteChange::Added }]);
    assert_eq!(addresses(&interfaces), None);
    // A point-to-point link has no neighbours.
    let mut interfaces = Interfaces::new();
    let ppp = KernelEvent::Link {
        index: 4,
        name: "ppp0".into(),
        kind: "".into(),
        is_loopback: false,
        is_set_up: true,
        can_carry: true,
        carrier_losses: None,
        has_neighbours: false,
        stacking: Stacking::default(),
    };
    reports(&mut interfaces, [ppp, route(4, "192.0.2.1", true)]);
    assert_eq!(interfaces.default_routers("ppp0"), None);
}

#[test]
fn the_last_answers_of_default_routers_are_kept() {
    let mut interfaces = connected();
    reports(&mut interfaces, [route(3, "2001:db8::1", true)]);
    interfaces.handle(Instant::from_secs(9), neighbour(3, "192.0.2.1", Reachability::Answers));
    let answered_at = interfaces.default_routers("wlan0").unwrap().answered_at;
    assert_eq!(answered_at, [("192.0.2.1".parse().unwrap(), Instant::from_secs(9))].into());
    // Without a route to it, it is not a default router.
    reports(&mut interfaces, [route(3, "192.0.2.1", false), route(3, "192.0.2.1", true)]);
    assert_eq!(interfaces.default_routers("wlan0").unwrap().answered_at, [].into());
}
