//! The Mobile IP machines, with messages passed between them step by step.

use std::net::Ipv4Addr;

use holdover_base::{Duration, Instant};
use holdover_mobility::mobile_ip::{
    Code, ForeignAgent, HomeAgent, HomeEvent, Lifetime, Message, MobileEvent, MobileNode, MobileNodeConfig, RegisterOn,
    Towards, View,
};

const HOME: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const HOME_AGENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn config(lifetime: Lifetime) -> MobileNodeConfig {
    MobileNodeConfig {
        home: HOME,
        home_agent: HOME_AGENT,
        lifetime,
        retransmit_after: Duration::from_secs(1),
        retransmit_at_most: Duration::from_secs(3),
        on: RegisterOn::NewCell,
    }
}

fn node(lifetime: Lifetime) -> MobileNode {
    MobileNode::new(config(lifetime))
}

fn events(node: &mut MobileNode) -> Vec<MobileEvent> {
    core::iter::from_fn(|| node.poll_event()).collect()
}

/// The request that a node sends now, and nothing else.
fn request(node: &mut MobileNode) -> (Message, u64) {
    let (message, _) = node.poll_transmit().expect("a request");
    assert_eq!(node.poll_transmit(), None);
    let Message::Request { id, .. } = message else { panic!("no request: {message:?}") };
    (message, id)
}

fn reply(code: Code, lifetime: Lifetime, id: u64) -> Message {
    Message::Reply { code, home: HOME, home_agent: HOME_AGENT, lifetime, id }
}

#[test]
fn a_registration_goes_to_the_home_agent_and_back() {
    let (mut node, mut foreign) = (node(Lifetime(60)), ForeignAgent::new(NEAR));
    let mut home = HomeAgent::new(HOME_AGENT);
    home.serve(HOME, Lifetime(30), true);
    node.handle_advertisement(at(0), NEAR, View::default());
    let (asked, agent) = node.poll_transmit().unwrap();
    assert_eq!(agent, NEAR);
    foreign.handle_message(asked);
    assert_eq!(foreign.poll_transmit(), Some((asked, Towards::Node(HOME_AGENT))));
    home.handle_message(at(10), NEAR, asked);
    assert_eq!(home.poll_event(), Some(HomeEvent::Bound { home: HOME, care_of: NEAR, before: None }));
    let (answer, to) = home.poll_transmit().unwrap();
    assert_eq!((answer, to), (reply(Code::ACCEPTED, Lifetime(30), 1), NEAR), "no longer than the agent grants");
    foreign.handle_message(answer);
    assert_eq!(foreign.poll_transmit(), Some((answer, Towards::Visitor(HOME))));
    node.handle_message(at(20), answer);
    let requested = MobileEvent::Requested { agent: NEAR, attempts: 1 };
    assert_eq!(events(&mut node), [requested, MobileEvent::Registered { agent: NEAR }]);
    assert_eq!((node.agent(), node.asked(), home.care_of(HOME)), (Some(NEAR), None, Some(NEAR)));
    // It renews after half of the lifetime (counted from the request), and the binding continues.
    assert_eq!(node.poll_timeout(), Some(at(15_000)));
    node.handle_timeout(at(15_000));
    let (again, id) = request(&mut node);
    assert_eq!(id, 2);
    home.handle_message(at(15_010), NEAR, again);
    assert_eq!(home.poll_event(), Some(HomeEvent::Bound { home: HOME, care_of: NEAR, before: Some(NEAR) }));
    assert_eq!(home.poll_timeout(), Some(at(45_010)));
}

#[test]
fn a_request_is_sent_again_with_doubled_waits_and_the_same_identification() {
    let mut node = node(Lifetime::INFINITE);
    node.handle_advertisement(at(0), NEAR, View::default());
    let (_, first) = request(&mut node);
    for (millis, attempts) in [(1_000, 2), (3_000, 3), (6_000, 4), (9_000, 5)] {
        assert_eq!(node.poll_timeout(), Some(at(millis)));
        node.handle_timeout(at(millis - 1));
        assert_eq!(node.poll_transmit(), None);
        node.handle_timeout(at(millis));
        assert_eq!(request(&mut node).1, first);
        assert_eq!(events(&mut node).pop(), Some(MobileEvent::Requested { agent: NEAR, attempts }));
    }
    // Advertisements of the agent with the pending request are not answered; those of another one are, if it is better.
    node.handle_advertisement(at(9_500), NEAR, View::default());
    node.handle_advertisement(at(9_500), OTHER, View::default());
    assert_eq!(node.poll_transmit(), None);
    node.handle_advertisement(at(9_600), OTHER, View { better_than_asked: true, ..View::default() });
    assert_eq!(request(&mut node).1, first + 1);
    // The reply to an abandoned request is ignored.
    node.handle_message(at(9_700), reply(Code::ACCEPTED, Lifetime::INFINITE, first));
    assert_eq!((node.agent(), node.asked()), (None, Some(OTHER)));
    node.handle_message(at(9_800), reply(Code::ACCEPTED, Lifetime::INFINITE, first + 1));
    assert_eq!((node.agent(), node.poll_timeout()), (Some(OTHER), None));
}

#[test]
fn a_request_that_was_given_up_makes_the_node_ask_where_it_is_registered() {
    let mut node = node(Lifetime::INFINITE);
    node.register_at(at(0), NEAR);
    let reached = View { reaches_current: true, ..View::default() };
    for agent in [NEAR, OTHER] {
        node.handle_advertisement(at(100), agent, reached);
        assert_eq!(node.poll_transmit(), None);
    }
    node.handle_advertisement(at(200), OTHER, View::default());
    request(&mut node);
    node.handle_lost(OTHER);
    assert_eq!(node.poll_timeout(), None);
    node.handle_advertisement(at(300), NEAR, reached);
    request(&mut node);
}

#[test]
fn bindings_expire_at_both_ends() {
    let mut node = node(Lifetime(10));
    node.register_at(at(0), NEAR);
    node.handle_lost(NEAR);
    assert_eq!(node.poll_timeout(), Some(at(10_000)), "no request without a link");
    node.handle_timeout(at(10_000));
    assert_eq!(events(&mut node), [MobileEvent::Expired { agent: NEAR }]);
    assert_eq!(node.agent(), None);
    node.handle_advertisement(at(11_000), NEAR, View::default());
    request(&mut node);

    let mut home = HomeAgent::new(HOME_AGENT);
    home.serve(HOME, Lifetime(10), false);
    home.bind(at(0), HOME, NEAR);
    home.handle_timeout(at(9_999));
    assert_eq!((home.poll_event(), home.care_of(HOME)), (None, Some(NEAR)));
    assert_eq!(home.poll_timeout(), Some(at(10_000)));
    home.handle_timeout(at(10_000));
    assert_eq!((home.poll_event(), home.care_of(HOME)), (Some(HomeEvent::Expired { home: HOME }), None));
    assert_eq!(home.poll_timeout(), None);
}

#[test]
fn a_node_that_comes_back_in_time_asks_at_the_next_advertisement() {
    let mut node = node(Lifetime(10));
    node.register_at(at(0), NEAR);
    node.handle_lost(NEAR);
    node.handle_advertisement(at(8_000), NEAR, View { reaches_current: true, ..View::default() });
    request(&mut node);
}

#[test]
fn the_former_agent_is_notified_before_the_reply() {
    let mut home = HomeAgent::new(HOME_AGENT);
    home.serve(HOME, Lifetime::INFINITE, true);
    home.bind(at(0), HOME, NEAR);
    let ask = |care_of, lifetime, id| Message::Request { home: HOME, home_agent: HOME_AGENT, care_of, lifetime, id };
    home.handle_message(at(1), OTHER, ask(OTHER, Lifetime::INFINITE, 4));
    let revocation = Message::Revocation { home: HOME, home_agent: HOME_AGENT, care_of: NEAR };
    assert_eq!(home.poll_transmit(), Some((revocation, NEAR)));
    assert_eq!(home.poll_transmit(), Some((reply(Code::ACCEPTED, Lifetime::INFINITE, 4), OTHER)));
    let mut foreign = ForeignAgent::new(NEAR);
    foreign.handle_message(revocation);
    assert_eq!((foreign.poll_left(), foreign.poll_left()), (Some(HOME), None));
    // The same care-of address again, and then none.
    home.handle_message(at(2), OTHER, ask(OTHER, Lifetime::INFINITE, 5));
    home.handle_message(at(3), OTHER, ask(OTHER, Lifetime::ZERO, 6));
    let sent: Vec<_> = core::iter::from_fn(|| home.poll_transmit()).collect();
    assert_eq!(
        sent,
        [(reply(Code::ACCEPTED, Lifetime::INFINITE, 5), OTHER), (reply(Code::ACCEPTED, Lifetime::ZERO, 6), OTHER)]
    );
    let last = core::iter::from_fn(|| home.poll_event()).last();
    assert_eq!((last, home.care_of(HOME)), (Some(HomeEvent::Deregistered { home: HOME }), None));
}

#[test]
fn an_unknown_node_is_denied_and_retries_later() {
    let mut home = HomeAgent::new(HOME_AGENT);
    let mut node = node(Lifetime::INFINITE);
    node.handle_advertisement(at(0), NEAR, View::default());
    let (asked, id) = request(&mut node);
    home.handle_message(at(1), NEAR, asked);
    let (answer, _) = home.poll_transmit().unwrap();
    assert_eq!((answer, home.poll_event()), (reply(Code::PROHIBITED, Lifetime::ZERO, id), None));
    node.handle_message(at(2), answer);
    assert_eq!(events(&mut node).pop(), Some(MobileEvent::Denied { agent: NEAR, code: Code::PROHIBITED }));
    assert_eq!((node.agent(), node.poll_timeout()), (None, None));
    node.handle_advertisement(at(1_000), NEAR, View::default());
    request(&mut node);
}
