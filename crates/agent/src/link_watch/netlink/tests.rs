use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroI32;

use netlink_packet_core::{DoneMessage, ErrorMessage};
use netlink_packet_route::link::InfoKind;
use netlink_packet_route::neighbour::NeighbourHeader;
use netlink_packet_route::route::{RouteHeader, RouteNextHop};

use super::*;
use crate::link_watch::kernel::Change;

const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn reported(flags: u16, message: RouteNetlinkMessage) -> Vec<KernelEvent> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    translate(&header, message)
}

fn link(flags: LinkFlags, state: State) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = 3;
    message.header.flags = flags;
    message.attributes = vec![LinkAttribute::IfName("wlan0".to_owned()), LinkAttribute::OperState(state)];
    message
}

fn can_carry(flags: LinkFlags, state: State) -> bool {
    match reported(0, RouteNetlinkMessage::NewLink(link(flags, state)))[..] {
        [KernelEvent::Link { can_carry, .. }] => can_carry,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn an_interface_carries_when_its_state_says_so() {
    let all = LinkFlags::Up | LinkFlags::LowerUp | LinkFlags::Running;
    assert!(can_carry(all, State::Up));
    assert!(can_carry(all, State::Unknown), "tun devices and many modems do not report it");
    assert!(!can_carry(all, State::Dormant), "Wi-Fi that is not associated");
    assert!(!can_carry(all | LinkFlags::Dormant, State::Unknown));
    assert!(!can_carry(LinkFlags::Up | LinkFlags::LowerUp, State::Up), "not running");
    assert!(!can_carry(LinkFlags::Up, State::Unknown));
    assert!(!can_carry(LinkFlags::empty(), State::Down));
    // A wireless extension event.
    let mut event = link(all, State::Up);
    event.attributes.retain(|attribute| !matches!(attribute, LinkAttribute::OperState(_)));
    assert_eq!(reported(0, RouteNetlinkMessage::NewLink(event)), []);
    // A bridge's message about its ports is not about their links.
    let mut port = link(all, State::Up);
    port.header.interface_family = AddressFamily::Bridge;
    assert_eq!(reported(0, RouteNetlinkMessage::NewLink(port.clone())), []);
    assert_eq!(reported(0, RouteNetlinkMessage::DelLink(port)), []);
    let mut bridge = link(all, State::Up);
    bridge.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]));
    let news = reported(0, RouteNetlinkMessage::NewLink(bridge));
    assert!(matches!(&news[..], [KernelEvent::Link { kind, .. }] if &**kind == "bridge"), "{news:?}");
}

#[test]
fn an_address_counts_when_it_can_be_used() {
    let usable = |scope, flags, is_there| {
        let mut message = AddressMessage::default();
        (message.header.index, message.header.scope, message.header.flags) = (3, scope, flags);
        message.attributes = vec![AddressAttribute::Address(Ipv6Addr::LOCALHOST.into())];
        translate_address(&message, is_there).map(|news| matches!(news, KernelEvent::Address { is_usable: true, .. }))
    };
    let none = AddressHeaderFlags::empty();
    assert_eq!(usable(AddressScope::Universe, none, true), Some(true));
    assert_eq!(usable(AddressScope::Universe, AddressHeaderFlags::Tentative, true), Some(false));
    assert_eq!(usable(AddressScope::Universe, AddressHeaderFlags::Dadfailed, true), Some(false));
    assert_eq!(usable(AddressScope::Universe, none, false), Some(false));
    assert_eq!(usable(AddressScope::Link, none, true), None);
    assert_eq!(usable(AddressScope::Host, none, true), None);
}

fn default_route(ways: Vec<RouteAttribute>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.kind = RouteType::Unicast;
    message.attributes = ways;
    message.attributes.push(RouteAttribute::Priority(100));
    message
}

#[test]
fn only_default_routes_count_and_each_way_of_theirs() {
    let by = |next_hop| RouteAttribute::Gateway(RouteAddress::Inet(next_hop));
    let news = |index, next_hop, change| KernelEvent::DefaultRoute {
        index,
        route: DefaultRoute {
            is_ipv6: false,
            table: 254,
            part: Part::All,
            next_hop: Some(IpAddr::V4(next_hop)),
            metric: 100,
        },
        change,
    };
    let plain = default_route(vec![RouteAttribute::Oif(3), by(ROUTER)]);
    assert_eq!(reported(0, RouteNetlinkMessage::NewRoute(plain.clone())), [news(3, ROUTER, RouteChange::Added)]);
    assert_eq!(reported(0, RouteNetlinkMessage::DelRoute(plain.clone())), [news(3, ROUTER, RouteChange::Removed)]);
    let instead = reported(NLM_F_REPLACE, RouteNetlinkMessage::NewRoute(plain.clone()));
    assert_eq!(instead, [news(3, ROUTER, RouteChange::Replaced)]);
    let hop = |index, next_hop| {
        let mut hop = RouteNextHop::default();
        (hop.interface_index, hop.attributes) = (index, vec![by(next_hop)]);
        hop
    };
    let other = Ipv4Addr::new(198, 51, 100, 1);
    let both = default_route(vec![RouteAttribute::MultiPath(vec![hop(3, ROUTER), hop(4, other)])]);
    let both = reported(NLM_F_REPLACE, RouteNetlinkMessage::NewRoute(both));
    assert_eq!(both, [news(3, ROUTER, RouteChange::Replaced), news(4, other, RouteChange::Added)]);
    let changed = |change: fn(&mut RouteHeader)| {
        let mut route = plain.clone();
        change(&mut route.header);
        reported(0, RouteNetlinkMessage::NewRoute(route))
    };
    assert_eq!(changed(|header| header.destination_prefix_length = 24), [KernelEvent::OtherRoute]);
    assert_eq!(changed(|header| header.kind = RouteType::BlackHole), [KernelEvent::OtherRoute]);
    assert_eq!(changed(|header| header.table = 255), []);
    assert_eq!(changed(|header| header.address_family = AddressFamily::Mpls), []);
}

#[test]
fn halves_of_a_default_route_are_reported_as_such() {
    let part = |family: AddressFamily, prefix_length: u8, destination: Option<RouteAddress>| {
        let mut route = default_route(vec![RouteAttribute::Oif(3)]);
        (route.header.address_family, route.header.destination_prefix_length) = (family, prefix_length);
        route.attributes.extend(destination.map(RouteAttribute::Destination));
        match reported(0, RouteNetlinkMessage::NewRoute(route))[..] {
            [KernelEvent::DefaultRoute { route: DefaultRoute { part, .. }, .. }] => Some(part),
            [KernelEvent::OtherRoute] => None,
            ref other => panic!("{other:?}"),
        }
    };
    let v4 = |text: &str| Some(RouteAddress::Inet(text.parse().unwrap()));
    let v6 = |text: &str| Some(RouteAddress::Inet6(text.parse().unwrap()));
    let (inet, inet6) = (AddressFamily::Inet, AddressFamily::Inet6);
    assert_eq!(part(inet, 0, None), Some(Part::All));
    assert_eq!([part(inet, 1, None), part(inet, 1, v4("0.0.0.0"))], [Some(Part::First); 2]);
    assert_eq!(part(inet, 1, v4("128.0.0.0")), Some(Part::Second));
    assert_eq!([part(inet6, 1, v6("::")), part(inet6, 1, v6("8000::"))], [Some(Part::First), Some(Part::Second)]);
    let of_global = [part(inet6, 4, v6("2000::")), part(inet6, 4, v6("3000::")), part(inet6, 3, v6("2000::"))];
    assert_eq!(of_global, [Some(Part::FirstGlobal), Some(Part::SecondGlobal), Some(Part::Global)]);
    assert_eq!([part(inet, 4, v4("32.0.0.0")), part(inet, 2, None), part(inet6, 3, v6("::"))], [None; 3]);
}

#[test]
fn a_default_route_says_what_table_it_is_in() {
    let table = |change: fn(&mut RouteMessage)| {
        let mut route = default_route(vec![RouteAttribute::Oif(3)]);
        change(&mut route);
        match reported(0, RouteNetlinkMessage::NewRoute(route))[..] {
            [KernelEvent::DefaultRoute { route: DefaultRoute { table, .. }, .. }] => table,
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(table(|_| {}), rules::MAIN);
    assert_eq!(table(|route| route.header.table = 100), 100);
    let big = |route: &mut RouteMessage| {
        route.header.table = 252;
        route.attributes.push(RouteAttribute::Table(51820));
    };
    assert_eq!(table(big), 51820);
}

#[test]
fn rules_by_which_default_routes_are_found_count() {
    let message = |attributes: Vec<RuleAttribute>| {
        let mut message = RuleMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.action = RuleAction::ToTable;
        message.header.table = 100;
        message.attributes = attributes;
        message
    };
    let table = |message: RuleMessage| match &reported(0, RouteNetlinkMessage::NewRule(message))[..] {
        [KernelEvent::Rule { rule, is_there: true }] => Some(rule.table),
        [] => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(table(message(vec![RuleAttribute::SuppressPrefixLen(u32::MAX)])), Some(100));
    assert_eq!(table(message(vec![RuleAttribute::FwMark(7), RuleAttribute::Table(51820)])), Some(51820));
    assert_eq!(table(message(vec![RuleAttribute::SuppressPrefixLen(0)])), None, "as wg-quick has it for main");
    assert_eq!(table(message(vec![RuleAttribute::L3MDev(true), RuleAttribute::Table(0)])), None);
    assert_eq!(table(message(vec![RuleAttribute::Table(255)])), None);
    let mut other = message(vec![]);
    other.header.action = RuleAction::Unreachable;
    assert_eq!(table(other), None);
    let mut multicast = message(vec![]);
    multicast.header.family = AddressFamily::Other(128);
    assert_eq!(table(multicast), None);
    // Rules that differ in what they select are distinct.
    let [one, two] =
        [1, 2].map(|mark| reported(0, RouteNetlinkMessage::NewRule(message(vec![RuleAttribute::FwMark(mark)]))));
    assert_ne!(one, two);
}

#[test]
fn neighbours_answer_or_do_not() {
    let state = |state, is_there| {
        let mut message = NeighbourMessage::default();
        message.header = NeighbourHeader { ifindex: 3, state, ..NeighbourHeader::default() };
        message.attributes = vec![NeighbourAttribute::Destination(NeighbourAddress::Inet(ROUTER))];
        match translate_neighbour(&message, is_there) {
            Some(KernelEvent::Neighbour { state, .. }) => state,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(state(NeighbourState::Reachable, true), Reachability::Answers);
    assert_eq!(state(NeighbourState::Failed, true), Reachability::Failed);
    assert_eq!(state(NeighbourState::Stale, true), Reachability::Unknown);
    assert_eq!(state(NeighbourState::Incomplete, true), Reachability::Unknown);
    assert_eq!(state(NeighbourState::Failed, false), Reachability::Forgotten);
}

// Claim: Entries missing from an incomplete answer of the kernel do not count as removed.
#[test]
fn an_answer_that_is_not_whole_is_known_as_such() {
    let message = |sequence, flags, payload| {
        let mut header = NetlinkHeader::default();
        (header.sequence_number, header.flags) = (sequence, flags);
        NetlinkMessage::new(header, payload)
    };
    let item = || NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(RouteMessage::default()));
    let done = |code| {
        let mut done = DoneMessage::default();
        done.code = code;
        NetlinkPayload::Done(done)
    };
    let after = |messages: Vec<NetlinkMessage<RouteNetlinkMessage>>| {
        let mut answer = Answer::to(7);
        messages.iter().for_each(|message| answer.note(message));
        (answer.is_done, answer.is_torn)
    };
    assert_eq!(after(vec![message(7, 0, item()), message(7, 0, done(0))]), (true, false));
    assert_eq!(after(vec![message(7, NLM_F_DUMP_INTR, item()), message(7, 0, done(0))]), (true, true));
    assert_eq!(after(vec![message(7, NLM_F_DUMP_INTR, done(0))]), (true, true));
    assert_eq!(after(vec![message(7, 0, done(-12))]), (true, true));
    let error = |code| {
        let mut error = ErrorMessage::default();
        error.code = NonZeroI32::new(code);
        NetlinkPayload::Error(error)
    };
    assert_eq!(after(vec![message(7, 0, item()), message(7, 0, error(0))]), (true, false), "acknowledged");
    assert_eq!(after(vec![message(7, 0, error(-16))]), (true, true));
    // A notification, and the rest of another request.
    let others = [message(0, NLM_F_DUMP_INTR, item()), message(6, NLM_F_DUMP_INTR, done(0))];
    assert_eq!(after(others.into()), (false, false));
    let mut answer = Answer::to(7);
    answer.note_overrun();
    assert!(answer.is_torn);
}

#[test]
fn the_kernel_tells_of_its_loopback_interface() {
    let mut monitor = Monitor::open().unwrap();
    let mut interfaces = Interfaces::new();
    for _ in 0..2 {
        monitor.take_snapshot(Instant::ZERO, &mut interfaces).unwrap();
        monitor.handle_ready(Instant::ZERO, &mut interfaces).unwrap();
    }
    let changes: Vec<Change> = std::iter::from_fn(|| interfaces.poll_change()).collect();
    let is_loopback = |change: &&Change| matches!(change, Change::Appeared { interface, .. } if &**interface == "lo");
    assert_eq!(changes.iter().filter(is_loopback).count(), 1, "{changes:?}");
}
