use core::net::Ipv4Addr;

use holdover_filter::Connection;

use super::*;
use crate::handoff::{RecordAge, SplitRecord};

const MOBILE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 101));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 102));

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn node() -> Ownership {
    Ownership::new(HandoffConfig::among(vec![PEER, OTHER]), RecordKind::Whole, 1)
}

fn hears(node: &mut Ownership, millis: u64, peer: IpAddr, id: u64, body: Body) -> Vec<OwnershipEvent> {
    let payload = Message { id, mobile: MOBILE, body }.emit();
    assert!(node.handle_message(at(millis), &ControlMessage { peer, payload }));
    core::iter::from_fn(|| node.poll_event()).collect()
}

fn sent(node: &mut Ownership) -> Vec<(IpAddr, Message)> {
    let messages = core::iter::from_fn(|| node.poll_message());
    messages.map(|message| (message.peer, Message::parse(&message.payload).expect("a message"))).collect()
}

fn bodies(node: &mut Ownership) -> Vec<Body> {
    sent(node).into_iter().map(|(_, message)| message.body).collect()
}

/// Asks for the mobile host, and returns the number of the request.
fn asks(node: &mut Ownership, millis: u64) -> u64 {
    node.ask(at(millis), MOBILE);
    let asked = sent(node);
    assert_eq!(asked.iter().map(|(peer, _)| *peer).collect::<Vec<_>>(), [PEER, OTHER]);
    asked[0].1.id
}

fn record() -> SplitRecord {
    let connection = Connection::between(([10, 9, 9, 9], 80).into(), (MOBILE, 4_000).into());
    SplitRecord { age: RecordAge { opened: 3, epoch: 2 }, connection, halves: [None, None] }
}

/// The record in two pieces.
fn pieces() -> Vec<Piece> {
    let whole = record().emit();
    let piece = |from: usize, to: usize| Piece {
        is_doubtful: true,
        number: 0,
        total: whole.len() as u32,
        offset: from as u32,
        bytes: whole.slice(from..to),
    };
    vec![piece(0, 10), piece(10, whole.len())]
}

fn give(index: u16) -> Body {
    Body::Give { index, count: 2, record: pieces()[usize::from(index)].emit() }
}

fn given() -> OwnershipEvent {
    OwnershipEvent::Given { record: Record::Whole(Box::new(record())), bytes: record().emit(), is_doubtful: true }
}

fn concluded(conclusion: Conclusion) -> OwnershipEvent {
    OwnershipEvent::Concluded { mobile: MOBILE, conclusion }
}

/// Pieces are sent until they are confirmed, and not again because the request is repeated. An older request is refused.
#[test]
fn an_answer_is_sent_until_it_is_confirmed() {
    let mut old = node();
    assert_eq!(hears(&mut old, 0, PEER, 7, Body::Ask), [OwnershipEvent::Wanted { peer: PEER, mobile: MOBILE, id: 7 }]);
    old.give(at(0), PEER, MOBILE, 7, pieces());
    assert_eq!(bodies(&mut old), [give(0), give(1)]);
    assert!(hears(&mut old, 300, PEER, 7, Body::Ask).is_empty() && bodies(&mut old).is_empty());
    assert_eq!(hears(&mut old, 310, PEER, 7, Body::Taken { index: 0 }), []);
    assert_eq!(hears(&mut old, 320, OTHER, 7, Body::Taken { index: 1 }), [], "it was for another peer");
    let due = old.poll_timeout().expect("one is not confirmed");
    old.handle_timeout(due);
    assert_eq!(bodies(&mut old), [give(1)]);
    assert_eq!(hears(&mut old, 1_500, OTHER, 6, Body::Ask), []);
    assert_eq!(bodies(&mut old), [Body::Elsewhere { newest: 7 }]);
    assert!(old.is_giving(MOBILE));
    assert_eq!(
        hears(&mut old, 1_600, PEER, 7, Body::Taken { index: 1 }),
        [OwnershipEvent::Delivered { mobile: MOBILE }]
    );
    assert_eq!((old.poll_timeout(), old.is_giving(MOBILE)), (None, false));
    // A late copy of the request.
    assert_eq!(hears(&mut old, 1_700, PEER, 7, Body::Ask), []);
    assert_eq!(bodies(&mut old), [Body::None]);
}

/// The request ends when all have answered. A confirmation that was lost is repeated after that.
#[test]
fn a_mobile_host_is_owned_when_all_peers_have_answered() {
    let mut new = node();
    let id = asks(&mut new, 1);
    assert_eq!(hears(&mut new, 10, PEER, id, give(1)), []);
    assert_eq!(hears(&mut new, 11, PEER, id, give(1)), []);
    assert_eq!(bodies(&mut new), [Body::Taken { index: 1 }, Body::Taken { index: 1 }]);
    assert_eq!(hears(&mut new, 12, OTHER, id, Body::None), []);
    assert_eq!(hears(&mut new, 13, PEER, id, Body::None), [], "late: it has begun to send");
    assert_eq!((new.whereabouts(at(13), MOBILE), new.owned_by(MOBILE)), (Whereabouts::Asking, 0));
    new.handle_timeout(at(210));
    assert_eq!(sent(&mut new).iter().map(|(peer, _)| *peer).collect::<Vec<_>>(), [PEER], "one piece is missing");
    assert_eq!(hears(&mut new, 220, PEER, id, give(0)), [given(), concluded(Conclusion::Complete)]);
    assert_eq!((new.poll_timeout(), new.owned_by(MOBILE)), (None, id));
    bodies(&mut new);
    assert_eq!(hears(&mut new, 500, PEER, id, give(0)), []);
    assert_eq!(bodies(&mut new), [Body::Taken { index: 0 }]);
}

/// Whether it owns the mobile host, asks for it, or was not answered: a smaller number is refused, and a greater one is not.
#[test]
fn a_node_refuses_requests_older_than_its_own() {
    for answers in 0..3 {
        let mut node = node();
        let own = asks(&mut node, 1);
        match answers {
            0 => {}
            1 => [PEER, OTHER].into_iter().for_each(|peer| drop(hears(&mut node, 2, peer, own, Body::None))),
            _ => {
                while let Some(at) = node.poll_timeout() {
                    node.handle_timeout(at);
                }
            }
        }
        bodies(&mut node);
        core::iter::from_fn(|| node.poll_event()).for_each(drop);
        for id in [own - 1, own] {
            assert_eq!(hears(&mut node, 30_000, PEER, id, Body::Ask), [], "{answers}");
            assert_eq!(bodies(&mut node), [Body::Elsewhere { newest: own }], "{answers}");
        }
        let wanted = OwnershipEvent::Wanted { peer: PEER, mobile: MOBILE, id: own + 1 };
        assert_eq!(hears(&mut node, 30_001, PEER, own + 1, Body::Ask), [wanted]);
        assert_eq!(node.owned_by(MOBILE), 0);
        let next = asks(&mut node, 1);
        assert_eq!(next, own + 2, "independent of the clock");
    }
}

/// One refusal ends a request, also if another peer never answers. The next request has a greater number.
#[test]
fn a_refusal_ends_a_request() {
    let mut node = node();
    let id = asks(&mut node, 1);
    let newest = id + (1 << 40);
    assert_eq!(
        hears(&mut node, 10, PEER, id, Body::Elsewhere { newest }),
        [concluded(Conclusion::Outdated { by: time_of(newest) })]
    );
    assert_eq!(node.whereabouts(at(15), MOBILE), Whereabouts::Elsewhere { since: Duration::from_millis(5) });
    assert_eq!(node.poll_timeout(), None);
    assert_eq!(hears(&mut node, 20, OTHER, id, give(0)), []);
    assert_eq!(bodies(&mut node), [] as [Body; 0], "the peer keeps it");
    assert_eq!(asks(&mut node, 30), newest + 1);
}

/// A node that has answered a later request takes nothing for its own one.
#[test]
fn a_promise_ends_an_own_request() {
    let mut node = node();
    let id = asks(&mut node, 1);
    hears(&mut node, 10, PEER, id, give(0));
    assert_eq!(node.stored_bytes(), 10);
    bodies(&mut node);
    assert_eq!(hears(&mut node, 20, OTHER, id + 5, Body::Ask).len(), 1);
    node.give(at(20), OTHER, MOBILE, id + 5, Vec::new());
    assert_eq!(bodies(&mut node), [Body::None]);
    assert_eq!(hears(&mut node, 30, PEER, id, give(1)), []);
    assert_eq!(hears(&mut node, 30, PEER, id, give(0)), []);
    assert_eq!((bodies(&mut node), node.stored_bytes()), (Vec::new(), 0));
}

/// The last piece of a record that is none is not confirmed, and the peer keeps it.
#[test]
fn a_record_that_cannot_be_parsed_is_not_confirmed() {
    let mut node = node();
    let id = asks(&mut node, 1);
    let piece =
        |offset: u32| Piece { is_doubtful: false, number: 0, total: 20, offset, bytes: vec![7; 10].into() }.emit();
    hears(&mut node, 10, OTHER, id, Body::None);
    for _ in 0..2 {
        for (index, offset) in [(0, 0), (1, 10)] {
            let body = Body::Give { index, count: 2, record: piece(offset) };
            assert_eq!(hears(&mut node, 11, PEER, id, body), []);
        }
        assert_eq!(bodies(&mut node), [Body::Taken { index: 0 }]);
    }
    assert_eq!(node.whereabouts(at(12), MOBILE), Whereabouts::Asking);
}

#[test]
fn an_unanswered_request_is_given_up() {
    let mut node = node();
    asks(&mut node, 0);
    let (mut asked, mut now) = (2, Instant::ZERO);
    while let Some(due) = node.poll_timeout() {
        now = due;
        node.handle_timeout(now);
        asked += sent(&mut node).len();
    }
    assert_eq!((asked, now), (2 * 7, at(25_400)));
    assert_eq!(node.poll_event(), Some(concluded(Conclusion::Incomplete)));
    assert_eq!(node.whereabouts(now, MOBILE), Whereabouts::Unknown);
    let mut alone = Ownership::new(HandoffConfig::among(Vec::new()), RecordKind::Whole, 1);
    alone.ask(at(1), MOBILE);
    assert_eq!(alone.poll_event(), Some(concluded(Conclusion::Complete)), "there is no peer to ask");
}

/// Fails the request: no peer answers any more.
fn expire(node: &mut Ownership) {
    while let Some(due) = node.poll_timeout() {
        node.handle_timeout(due);
        sent(node);
    }
    assert_eq!(node.poll_event(), Some(concluded(Conclusion::Incomplete)));
}

/// An incomplete request is repeated with its number, and pieces that arrived before count. One that is given up is not: then the last report
/// gives the number, or the clock if that was used.
#[test]
fn an_incomplete_request_keeps_its_number() {
    for is_given_up in [false, true] {
        let mut node = node();
        let id = asks(&mut node, 1);
        assert_eq!(hears(&mut node, 2, PEER, id, give(0)), []);
        assert_eq!(bodies(&mut node), [Body::Taken { index: 0 }]);
        expire(&mut node);
        assert_eq!((node.whereabouts(at(40_000), MOBILE), node.stored_bytes()), (Whereabouts::Unknown, 10));
        if is_given_up {
            node.give_up(MOBILE);
            assert_eq!(node.stored_bytes(), 0);
            for (now, of) in [(60_000, 59_000), (90_000, 90_000)] {
                node.ask_again(at(now), MOBILE, at(59_000));
                let asked = sent(&mut node);
                assert_eq!(asked.iter().map(|(_, ask)| ask.id).collect::<Vec<_>>(), [node.number_of(at(of)); 2]);
                expire(&mut node);
                node.give_up(MOBILE);
            }
            continue;
        }
        node.ask_again(at(40_000), MOBILE, at(2));
        let ask = Message { id, mobile: MOBILE, body: Body::Ask };
        assert_eq!(sent(&mut node), [(PEER, ask.clone()), (OTHER, ask)]);
        assert_eq!(hears(&mut node, 40_010, OTHER, id, Body::None), []);
        assert_eq!(hears(&mut node, 40_020, PEER, id, give(1)), [given(), concluded(Conclusion::Complete)]);
        assert_eq!(node.owned_by(MOBILE), id);
    }
}

/// A mobile host that was forgotten is like a new one, but no request of its time is answered.
#[test]
fn promises_outlive_their_hosts() {
    let mut node = node();
    assert_eq!(hears(&mut node, 1, PEER, 1_000, Body::Ask).len(), 1);
    for index in 0..MOST_HOSTS as u32 {
        let mobile = IpAddr::from(Ipv4Addr::from(0x0b00_0000 + index));
        let payload = Message { id: 500, mobile, body: Body::Ask }.emit();
        node.handle_message(at(2), &ControlMessage { peer: PEER, payload });
    }
    assert_eq!((node.hosts.len(), node.hosts.contains_key(&MOBILE)), (MOST_HOSTS, false));
    while node.poll_event().is_some() || node.poll_message().is_some() {}
    assert_eq!(hears(&mut node, 3, OTHER, 900, Body::Ask), []);
    assert_eq!(bodies(&mut node), [Body::Elsewhere { newest: 1_000 }]);
    assert_eq!(hears(&mut node, 3, OTHER, 1_001, Body::Ask).len(), 1);
}
