//! Gateways, their protocols and a store, over networks that delay, lose and partition.

mod etcd;
mod moves;
mod world;

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdover_base::{Duration, Instant};

use super::ownership::{Admission, Event, Evidence, Ownership};
use super::store::{Answer, Change, Claim, Kind, Numbered, OwnerRecord, Registration, Reply, Request, Subject};
use crate::cluster::Epoch;
use crate::engine::Attachments;
use crate::handoff::protocol::Protocol;

fn mobile() -> IpAddr {
    [10, 0, 1, 7].into()
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn registration(number: u8, process: u64) -> Registration {
    Registration { handoff: ([192, 0, 2, number], 4787).into(), process }
}

fn record(epoch: u64, owner: &str) -> Change {
    let record = Some(OwnerRecord { owner: owner.to_owned(), mac: Some([2; 6]) });
    Change { epoch, subject: Subject::Mobile { address: mobile(), record } }
}

fn gateway(epoch: u64, name: &str, registration: Option<Registration>) -> Change {
    Change { epoch, subject: Subject::Gateway { name: name.to_owned(), registration } }
}

/// Gateway "a", its requests to the store, and the number of its last request of each kind.
struct One(Ownership, BTreeMap<Kind, u64>);

/// The first page of all keys.
const LIST: Request = Request::List { from: Vec::new(), at: 0 };

fn listed(at: u64, changes: Vec<Change>) -> Answer {
    Answer::Listed { at, changes, next: None }
}

impl One {
    fn new() -> Self {
        Self(
            Ownership::new(at(0), "a", registration(1, 1), Duration::from_secs(10), Duration::from_secs(600)),
            BTreeMap::new(),
        )
    }

    fn requests(&mut self) -> Vec<Request> {
        let numbered = std::iter::from_fn(|| self.0.poll_request());
        let note = |Numbered { id, request }: Numbered| {
            self.1.insert(request.kind(), id);
            request
        };
        numbered.map(note).collect()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.0.poll_event()).collect()
    }

    /// The store replies to the last request of a kind.
    fn reply(&mut self, now: Instant, kind: Kind, answer: Answer) {
        self.reply_as(now, kind, Ok((1, answer)));
    }

    fn reply_as(&mut self, now: Instant, kind: Kind, result: Result<(u64, Answer), String>) {
        let id = self.1[&kind];
        self.0.handle_reply(now, Reply { id, kind, result });
    }

    /// The mobile host has sent a packet here just now.
    fn hears(&mut self, now: Instant, mac: Option<[u8; 6]>) {
        self.0.handle_heard(now, mobile(), Evidence::Heard(now), mac);
    }

    /// Joined with these keys in the store, and with an open watch.
    fn joined(changes: Vec<Change>) -> Self {
        let mut one = Self::new();
        assert_eq!(one.requests(), [Request::Join]);
        one.reply(at(1), Kind::Session, Answer::Joined { lease: 7, epoch: 50 });
        assert_eq!(one.requests(), [LIST]);
        one.reply(at(2), Kind::List, listed(50, changes));
        assert_eq!(one.requests(), [Request::Watch { after: 50 }]);
        one.events();
        one
    }
}

/// The store's data directory was removed. Its cluster id, which etcd derives from its members' addresses, is the same.
#[test]
fn a_store_that_has_lost_its_data_is_learned_anew() {
    let mut one = One::joined(vec![gateway(3, "b", Some(registration(2, 9))), record(40, "b")]);
    one.0.handle_timeout(at(4990));
    assert_eq!(one.requests(), [Request::KeepAlive { lease: 7 }]);
    one.reply(at(5000), Kind::Session, Answer::LeaseGone);
    assert_eq!(one.requests(), [Request::Join]);
    one.reply(at(5001), Kind::Session, Answer::Joined { lease: 8, epoch: 2 });
    assert_eq!(one.requests(), [LIST]);
    one.reply(at(5002), Kind::List, listed(2, vec![]));
    one.hears(at(5003), None);
    let requests = one.requests();
    assert!(requests.contains(&Request::Claims(vec![Claim { mobile: mobile(), over: 0, mac: None }])), "{requests:?}");
}

#[test]
fn a_claim_that_the_store_keeps_refusing_is_not_repeated_at_once() {
    let mut one = One::joined(vec![gateway(3, "b", Some(registration(2, 9))), record(40, "b")]);
    one.hears(at(10), None);
    assert_eq!(one.requests().len(), 1);
    one.reply(at(12), Kind::Claims, Answer::Claimed(vec![record(40, "b")]));
    assert_eq!(one.requests(), []);
    one.0.handle_seen(at(500), mobile(), at(500));
    one.0.handle_timeout(at(600));
    assert!(matches!(one.requests()[..], [Request::Claims(_)]));
}

#[test]
fn a_mobile_host_is_claimed_once_over_the_revision_that_is_known() {
    let mut one = One::joined(vec![gateway(3, "b", Some(registration(2, 9))), record(40, "b")]);
    one.hears(at(10), Some([4; 6]));
    let claim = Claim { mobile: mobile(), over: 40, mac: Some([4; 6]) };
    assert_eq!(one.requests(), [Request::Claims(vec![claim])]);
    assert_eq!(one.0.owns(mobile()), None);
    one.reply(at(12), Kind::Claims, Answer::Claimed(vec![record(51, "a")]));
    let former = Some(registration(2, 9).handoff);
    assert_eq!(one.events(), [Event::Won { mobile: mobile(), epoch: 51, former }]);
    assert_eq!(one.0.owns(mobile()), Some(51));
    // Heard again, and known from the watch, too: nothing more is written.
    one.hears(at(20), None);
    one.reply(at(21), Kind::Watch, Answer::Changed { after: 50, at: 51, changes: vec![record(51, "a")] });
    assert_eq!((one.requests(), one.events()), (vec![], vec![]));
}

#[test]
fn a_lost_answer_does_not_lead_to_a_second_write() {
    let mut one = One::joined(vec![]);
    one.hears(at(10), None);
    let claim = Claim { mobile: mobile(), over: 0, mac: None };
    assert_eq!(one.requests(), [Request::Claims(vec![claim.clone()])]);
    one.reply_as(at(2000), Kind::Claims, Err("timed out".to_owned()));
    assert_eq!(one.events(), [Event::StoreAway { reason: "timed out".to_owned() }]);
    one.0.handle_seen(at(2400), mobile(), at(2390));
    assert_eq!(one.0.poll_timeout(), at(2500));
    one.0.handle_timeout(at(2500));
    assert_eq!(one.requests(), [Request::Claims(vec![claim])], "the same: the store refuses it if it was done");
    one.reply(at(2600), Kind::Claims, Answer::Claimed(vec![record(51, "a")]));
    assert_eq!(one.events(), [Event::StoreBack, Event::Won { mobile: mobile(), epoch: 51, former: None }]);
}

// Claim: A handoff is one write in the store, also if its answer is lost or a mobile host moves to and fro; of two claims at once
// the refused one is repeated once; a claim of a stale epoch or of another store is refused; a lease that has expired is asked
// for anew, and a process whose name another one has taken claims nothing; what an earlier process has claimed is not claimed
// again.
// Tests: `cluster::tests::a_mobile_host_is_claimed_once_over_the_revision_that_is_known`,
// `cluster::tests::a_lost_answer_does_not_lead_to_a_second_write`,
// `cluster::tests::a_move_is_one_write_and_a_ping_pong_one_for_each_move`,
// `cluster::tests::of_two_claims_at_once_the_refused_one_is_repeated_once`,
// `cluster::tests::a_claim_of_a_stale_epoch_is_refused_and_strangers_are_not_answered`,
// `cluster::tests::an_expired_lease_is_asked_for_anew_and_another_process_of_the_name_silences_this_one`
#[test]
fn claims_of_an_earlier_process_are_not_repeated() {
    let mut one = One::new();
    one.hears(at(0), None);
    assert_eq!(one.requests(), [Request::Join]);
    one.reply(at(1), Kind::Session, Answer::Joined { lease: 7, epoch: 50 });
    assert_eq!(one.requests(), [LIST]);
    one.reply(at(2), Kind::List, listed(50, vec![record(40, "a")]));
    assert!(one.requests().iter().all(|request| request.kind() != Kind::Claims));
    assert_eq!((one.0.owns(mobile()), one.0.counters().won), (Some(40), 0));
}

#[test]
fn of_two_claims_at_once_the_refused_one_is_repeated_once() {
    let mut one = One::joined(vec![gateway(3, "b", Some(registration(2, 9)))]);
    one.hears(at(10), None);
    one.requests();
    one.reply(at(12), Kind::Claims, Answer::Claimed(vec![record(51, "b")]));
    let over = |over| Request::Claims(vec![Claim { mobile: mobile(), over, mac: None }]);
    assert_eq!(one.requests(), [], "the packet is older than the news of the other gateway");
    assert_eq!(one.0.to_confirm(at(13)).collect::<Vec<_>>(), [mobile()]);
    one.0.handle_seen(at(20), mobile(), at(12));
    assert_eq!(one.requests(), []);
    one.0.handle_seen(at(20), mobile(), at(19));
    assert_eq!(one.requests(), [over(51)]);
    assert_eq!(one.0.owned_elsewhere(mobile()), None, "it was heard here");
    one.reply(at(24), Kind::Claims, Answer::Claimed(vec![record(52, "b")]));
    assert_eq!(one.requests(), []);
    assert_eq!(one.events(), [Event::Lost { mobile: mobile(), epoch: 52, owner: "b".to_owned() }]);
    assert_eq!(one.0.owned_elsewhere(mobile()), Some(("b", 52)));
    assert_eq!((one.0.counters().fenced, one.0.counters().lost), (2, 1));
    // Heard again later: the next claim.
    one.hears(at(2000), None);
    assert_eq!(one.requests(), [over(52)]);
}

/// The mobile host was heard here, the store was away, and the mobile host has moved to another gateway since.
// Claim: After an outage of the store an old claim gives way to the gateway that hears the mobile host, and what waits for one
// that has left stays when its key vanishes; one that is not heard again stays with its owner; an adopted one is returned to a
// gateway that is back; a late answer is not taken for that of a later request; a list is read in pages; keys of a gateway that
// does not come back are removed.
// Tests: `cluster::tests::packets_for_a_departed_host_stay_when_its_key_vanishes`,
// `cluster::tests::a_mobile_host_that_is_not_heard_again_stays_with_its_owner`,
// `cluster::tests::an_adopted_mobile_host_is_returned_to_a_gateway_that_is_back`,
// `cluster::tests::a_late_answer_is_not_taken_for_that_of_a_later_request`,
// `cluster::tests::a_list_is_read_in_pages_of_one_revision_and_anew_after_a_failure`,
// `cluster::tests::keys_of_a_gateway_that_does_not_come_back_are_removed_after_an_hour`
#[test]
fn after_an_outage_of_the_store_an_old_claim_gives_way_to_the_gateway_that_hears_the_mobile_host() {
    let mut one = One::joined(vec![gateway(3, "b", Some(registration(2, 9)))]);
    one.hears(at(10), None);
    assert!(matches!(one.requests()[..], [Request::Claims(_)]));
    one.reply_as(at(2000), Kind::Claims, Err("timed out".to_owned()));
    for ms in (2500..20_000).step_by(500) {
        one.0.handle_timeout(at(ms));
        for request in one.requests() {
            assert_ne!(request.kind(), Kind::Claims, "nothing was heard for {ms} ms");
            one.reply_as(at(ms), request.kind(), Err("timed out".to_owned()));
        }
    }
    assert_eq!(one.0.to_confirm(at(20_000)).count(), 0, "not before claims can be sent");
    one.0.handle_timeout(at(20_500));
    one.requests();
    one.reply(at(20_501), Kind::Session, Answer::LeaseGone);
    one.requests();
    one.reply(at(20_502), Kind::Session, Answer::Joined { lease: 8, epoch: 60 });
    assert!(one.requests().contains(&LIST));
    let other = gateway(3, "b", Some(registration(2, 9)));
    let keys = vec![gateway(60, "a", Some(registration(1, 1))), other, record(61, "b")];
    one.reply(at(20_503), Kind::List, listed(61, keys));
    assert!(one.requests().iter().all(|request| request.kind() != Kind::Claims));
    assert!(!one.0.may_release(mobile(), Some(at(10))));
    // The mobile host has a second to show that it is here; then it is the other gateway's.
    let contested = at(21_503);
    assert!(one.0.poll_timeout() <= contested);
    one.events();
    one.0.handle_timeout(contested);
    assert_eq!(one.events()[0], Event::Lost { mobile: mobile(), epoch: 61, owner: "b".to_owned() });
    assert_eq!(one.0.owned_elsewhere(mobile()), Some(("b", 61)));
}

/// The mobile host was heard here briefly while this gateway could not reach the store, and is back at its owner.
#[test]
fn a_mobile_host_that_is_not_heard_again_stays_with_its_owner() {
    let mut one = One::joined(vec![gateway(3, "b", Some(registration(2, 9))), record(40, "b")]);
    one.hears(at(10), None);
    one.requests();
    one.reply_as(at(500), Kind::Claims, Err("no connection".to_owned()));
    one.0.handle_timeout(at(1500));
    assert_eq!((one.requests(), one.events().len()), (vec![], 2), "the store is away, and back");
    assert_eq!(one.0.owned_elsewhere(mobile()), None, "it may be here");
    assert_eq!(one.0.poll_timeout(), at(2010));
    one.0.handle_timeout(at(2010));
    assert_eq!(one.events(), [Event::Lost { mobile: mobile(), epoch: 40, owner: "b".to_owned() }]);
    assert_eq!(one.0.owned_elsewhere(mobile()), Some(("b", 40)));
}

/// The mobile host's key vanishes while it is at another gateway.
#[test]
fn packets_for_a_departed_host_stay_when_its_key_vanishes() {
    let mut one = One::joined(vec![gateway(3, "b", Some(registration(2, 9))), record(40, "a")]);
    one.hears(at(10), None);
    one.reply(at(20), Kind::Watch, Answer::Changed { after: 50, at: 51, changes: vec![record(51, "b")] });
    assert!(!one.0.may_release(mobile(), Some(at(10))));
    let removed = Change { epoch: 52, subject: Subject::Mobile { address: mobile(), record: None } };
    one.reply(at(30), Kind::Watch, Answer::Changed { after: 51, at: 52, changes: vec![removed] });
    assert!(!one.0.may_release(mobile(), Some(at(10))), "it was not heard since");
    assert_eq!(one.requests(), []);
    one.reply_as(at(40), Kind::Watch, Ok((2, Answer::Changed { after: 1, at: 2, changes: vec![] })));
    assert_eq!(one.0.counters().replaced, 1, "another store");
    assert!(!one.0.may_release(mobile(), Some(at(10))));
    one.hears(at(2000), None);
    assert!(one.0.may_release(mobile(), Some(at(2000))));
}

/// An earlier process of this gateway owned the mobile host. The engine polls events after it has heard the mobile host.
#[test]
fn a_mobile_host_that_is_heard_as_its_loss_is_learned_is_here() {
    let mut one = One::joined(vec![gateway(3, "b", Some(registration(2, 9))), record(40, "a")]);
    one.requests();
    one.reply(at(20), Kind::Watch, Answer::Changed { after: 50, at: 51, changes: vec![record(51, "b")] });
    one.hears(at(20), None);
    assert_eq!(one.requests(), [Request::Claims(vec![Claim { mobile: mobile(), over: 51, mac: None }])]);
    assert_eq!((one.events(), one.0.owned_elsewhere(mobile())), (vec![], None));
}

/// The owner comes back before this gateway has taken over: it keeps its mobile host, and this gateway offers it the packets that wait
/// here.
#[test]
fn an_adopted_mobile_host_is_returned_to_a_gateway_that_is_back() {
    let mut one = One::joined(vec![gateway(3, "b", Some(registration(2, 9))), record(40, "b")]);
    one.reply(at(9), Kind::Watch, Answer::Changed { after: 50, at: 60, changes: vec![gateway(60, "b", None)] });
    one.0.handle_heard(at(10), mobile(), Evidence::Adopted, None);
    let claims = one.requests();
    assert!(claims.iter().any(|request| request.kind() == Kind::Claims), "long after the last packet: {claims:?}");
    one.reply_as(at(11), Kind::Claims, Err("timed out".to_owned()));
    one.events();
    let back = vec![gateway(61, "b", Some(registration(2, 10)))];
    one.reply(at(12), Kind::Watch, Answer::Changed { after: 60, at: 61, changes: back });
    assert!(one.events().contains(&Event::Lost { mobile: mobile(), epoch: 40, owner: "b".to_owned() }));
    one.0.handle_timeout(at(600));
    assert!(one.requests().iter().all(|request| request.kind() != Kind::Claims));
    assert_eq!(one.0.owned_elsewhere(mobile()), Some(("b", 40)));
}

#[test]
fn a_late_answer_is_not_taken_for_that_of_a_later_request() {
    let mut one = One::joined(vec![]);
    one.0.handle_timeout(at(3334));
    assert_eq!(one.requests(), [Request::KeepAlive { lease: 7 }]);
    let late = one.1[&Kind::Session];
    // No answer for the time of a lease: it is asked for again.
    one.0.handle_timeout(at(13_334));
    one.0.handle_timeout(at(13_834));
    assert!(one.requests().contains(&Request::KeepAlive { lease: 7 }));
    assert!(!one.0.is_registered(at(13_900)));
    one.0.handle_reply(at(13_900), Reply { id: late, kind: Kind::Session, result: Ok((1, Answer::KeptAlive)) });
    assert!(!one.0.is_registered(at(13_900)), "the lease was renewed long ago, and may have ended");
    assert_eq!(one.0.counters().late, 1);
    one.reply(at(13_901), Kind::Session, Answer::KeptAlive);
    assert!(one.0.is_registered(at(13_902)));
}

#[test]
fn a_list_is_read_in_pages_of_one_revision_and_anew_after_a_failure() {
    let mut one = One::new();
    one.requests();
    one.reply(at(1), Kind::Session, Answer::Joined { lease: 7, epoch: 50 });
    assert_eq!(one.requests(), [LIST]);
    let page = |changes, next: &[u8]| Answer::Listed { at: 50, changes, next: Some(next.to_vec()) };
    let first = vec![gateway(3, "b", Some(registration(2, 9)))];
    one.reply(at(2), Kind::List, page(first.clone(), b"m"));
    assert_eq!(one.requests(), [Request::List { from: b"m".to_vec(), at: 50 }]);
    assert!(!one.0.is_connected());
    one.reply_as(at(3), Kind::List, Err("required revision has been compacted".to_owned()));
    one.0.handle_timeout(at(503));
    assert_eq!(one.requests(), [LIST]);
    one.reply(at(504), Kind::List, page(first, b"n"));
    one.requests();
    one.reply(at(505), Kind::List, listed(50, vec![record(40, "b")]));
    assert!(one.0.is_connected());
    assert_eq!(one.requests(), [Request::Watch { after: 50 }]);
    assert_eq!((one.0.record(mobile()), one.0.is_orphan(mobile())), (Some(("b", 40)), false));
}

#[test]
fn a_claim_of_a_stale_epoch_is_refused_and_strangers_are_not_answered() {
    let mut one = One::joined(vec![gateway(3, "b", Some(registration(2, 9))), record(40, "a")]);
    one.hears(at(10), None);
    let (b, stranger) = (registration(2, 9).handoff, registration(3, 9).handoff);
    let epoch = |revision| Epoch { store: 1, revision };
    for old in [0, 39, 40].map(epoch) {
        assert_eq!(one.0.handle_peer_claim(at(11), mobile(), old, b), Admission::Stale { known: epoch(40) });
    }
    let of_another_store = Epoch { store: 2, revision: 60 };
    assert_eq!(one.0.handle_peer_claim(at(11), mobile(), of_another_store, b), Admission::Undecided);
    assert_eq!(one.0.handle_peer_claim(at(11), mobile(), epoch(60), stranger), Admission::Undecided);
    assert_eq!((one.0.owns(mobile()), one.events()), (Some(40), vec![]));
    // Before the store reports it.
    assert_eq!(one.0.handle_peer_claim(at(12), mobile(), epoch(60), b), Admission::Admitted);
    assert_eq!(one.events(), [Event::Lost { mobile: mobile(), epoch: 60, owner: "b".to_owned() }]);
    assert_eq!(one.0.owned_elsewhere(mobile()), Some(("b", 60)));
    // A late answer about the time before changes nothing; the repeated claim is the same.
    one.reply(at(13), Kind::Watch, Answer::Changed { after: 50, at: 55, changes: vec![record(55, "a")] });
    assert_eq!(one.0.owned_elsewhere(mobile()), Some(("b", 60)));
    assert_eq!(one.0.handle_peer_claim(at(14), mobile(), epoch(60), b), Admission::Admitted);
    assert_eq!(one.events(), []);
    // Heard here since: the store decides between the two, and a later epoch of the other is its decision.
    one.hears(at(20), None);
    assert_eq!(one.0.handle_peer_claim(at(21), mobile(), epoch(60), b), Admission::Undecided);
    assert_eq!(one.0.handle_peer_claim(at(22), mobile(), epoch(70), b), Admission::Admitted);
    assert_eq!(one.events(), [Event::Lost { mobile: mobile(), epoch: 70, owner: "b".to_owned() }]);
}

#[test]
fn mobile_hosts_of_a_gateway_without_a_lease_are_orphans_until_one_claims_them() {
    let mut one = One::joined(vec![gateway(3, "b", Some(registration(2, 9))), record(40, "b")]);
    assert!(!one.0.is_orphan(mobile()));
    one.reply(at(9000), Kind::Watch, Answer::Changed { after: 50, at: 60, changes: vec![gateway(60, "b", None)] });
    assert_eq!(one.events(), [Event::Gateways, Event::Orphaned { mobile: mobile(), mac: Some([2; 6]) }]);
    assert!(one.0.is_orphan(mobile()));
    one.requests();
    one.hears(at(9500), None);
    one.requests();
    one.reply(at(9501), Kind::Claims, Answer::Claimed(vec![record(61, "a")]));
    // The former owner may have lost only its connection to the store: its packets are requested.
    let former = Some(registration(2, 9).handoff);
    assert_eq!(one.events(), [Event::Won { mobile: mobile(), epoch: 61, former }]);
    assert_eq!(one.0.counters().taken_over, 1);
}

#[test]
fn an_expired_lease_is_asked_for_anew_and_another_process_of_the_name_silences_this_one() {
    let mut one = One::joined(vec![]);
    assert!(one.0.is_registered(at(9999)) && !one.0.is_registered(at(10_000)));
    one.0.handle_timeout(at(3334));
    assert_eq!(one.requests(), [Request::KeepAlive { lease: 7 }]);
    one.reply(at(3400), Kind::Session, Answer::LeaseGone);
    assert_eq!(one.requests(), [Request::Join]);
    one.reply(at(3500), Kind::Session, Answer::Joined { lease: 8, epoch: 70 });
    // The end of the former registration is outdated then.
    let changes = vec![gateway(69, "a", None)];
    one.reply(at(3501), Kind::Watch, Answer::Changed { after: 50, at: 69, changes });
    assert_eq!(one.requests(), []);
    one.hears(at(3600), None);
    assert_eq!(one.requests().len(), 1);
    let changes = vec![gateway(71, "a", Some(registration(4, 2)))];
    one.reply(at(3601), Kind::Watch, Answer::Changed { after: 50, at: 71, changes });
    assert!(one.events().contains(&Event::Superseded { address: registration(4, 2).handoff }));
    assert!(one.0.is_superseded() && !one.0.is_registered(at(3602)));
    one.0.handle_timeout(at(9000));
    assert_eq!(one.requests(), [], "neither a lease nor a claim");
    one.reply(at(9001), Kind::Watch, Answer::Changed { after: 50, at: 80, changes: vec![gateway(80, "a", None)] });
    assert_eq!(one.requests(), [Request::Join], "the other process is gone");
}

#[test]
fn compacted_changes_are_made_up_for_and_another_store_is_learned_anew() {
    let mut one = One::joined(vec![gateway(3, "b", Some(registration(2, 9))), record(40, "a")]);
    one.hears(at(10), None);
    one.reply(at(20), Kind::Watch, Answer::WatchEnded { is_compacted: true });
    assert_eq!(one.requests(), [LIST]);
    one.reply(at(21), Kind::List, listed(90, vec![gateway(50, "a", Some(registration(1, 1))), record(88, "b")]));
    let events = one.events();
    assert!(events.contains(&Event::Lost { mobile: mobile(), epoch: 88, owner: "b".to_owned() }), "{events:?}");
    assert_eq!(one.requests(), [Request::Watch { after: 90 }]);
    one.hears(at(2000), None);
    one.requests();
    one.reply_as(at(2001), Kind::Claims, Ok((2, Answer::Claimed(vec![record(4, "a")]))));
    // The first answer of another store only shows that the store was replaced.
    assert_eq!((one.0.owns(mobile()), one.0.counters().replaced), (None, 1));
    assert_eq!(one.requests(), [Request::Join]);
}

#[test]
fn keys_of_mobile_hosts_that_are_long_gone_are_removed() {
    let mut one = One::joined(vec![record(40, "a")]);
    one.hears(at(10), None);
    one.0.handle_gone(at(20), mobile());
    assert_eq!(one.requests(), [Request::Remove(vec![(mobile(), 40)])]);
    // If the store was unreachable, the next sweep removes them.
    one.reply_as(at(30), Kind::Removal, Err("timed out".to_owned()));
    one.0.handle_timeout(at(60_000));
    assert!(one.requests().contains(&Request::Remove(vec![(mobile(), 40)])));
    // The key of a mobile host that an earlier process owned and that was not heard since is removed after ten minutes.
    let mut one = One::joined(vec![record(40, "a")]);
    let mut removed_in = Vec::new();
    for minute in 1..=11 {
        one.0.handle_timeout(at(minute * 60_000));
        if one.requests().contains(&Request::Remove(vec![(mobile(), 40)])) {
            removed_in.push(minute);
        }
    }
    assert_eq!(removed_in, [11]);
}

/// A hundred mobile hosts without an owner: only one answers, which is not among the first 64.
#[test]
fn mobile_hosts_that_do_not_answer_are_probed_less_often_and_the_others_get_their_turn() {
    let mut one = One::joined(vec![]);
    let host = |number: u64| IpAddr::from([10, 0, 2, number as u8]);
    for number in 0..100 {
        one.0.handle_heard(at(10), host(number), Evidence::Heard(at(10)), None);
    }
    one.requests();
    one.reply_as(at(12), Kind::Claims, Err("timed out".to_owned()));
    let mut attachments = Attachments::new(at(2000));
    let mut probes = BTreeMap::<IpAddr, Vec<u64>>::new();
    for ms in (2000..62_000).step_by(250) {
        one.0.handle_timeout(at(ms));
        if ms.is_multiple_of(3000) {
            one.requests();
            one.reply(at(ms), Kind::Session, Answer::KeptAlive);
        }
        let probed = attachments.due_probes(at(ms), &one.0, |mobile| mobile != host(99));
        assert!(probed.len() <= 64);
        probed.into_iter().for_each(|mobile| probes.entry(mobile).or_default().push(ms));
    }
    assert_eq!(probes.len(), 99, "one cannot be probed");
    for (mobile, times) in probes {
        assert!(times[0] <= 2250 && (7..=9).contains(&times.len()), "{mobile}: {times:?}");
    }
}

#[test]
fn keys_of_a_gateway_that_does_not_come_back_are_removed_after_an_hour() {
    let mut one = One::joined(vec![gateway(3, "b", Some(registration(2, 9))), record(40, "b")]);
    one.reply(at(9000), Kind::Watch, Answer::Changed { after: 50, at: 60, changes: vec![gateway(60, "b", None)] });
    let mut removed_in = Vec::new();
    for minute in 1..=62 {
        one.0.handle_timeout(at(minute * 60_000));
        for request in one.requests() {
            match request.kind() {
                Kind::Session => one.reply(at(minute * 60_000), Kind::Session, Answer::KeptAlive),
                Kind::Removal => {
                    assert_eq!(request, Request::Remove(vec![(mobile(), 40)]));
                    removed_in.push(minute);
                }
                _ => {}
            }
        }
    }
    assert_eq!(removed_in, [61], "9 s after the hour, at the next minute");
}

#[test]
fn a_new_mobile_host_that_was_overheard_is_left_for_a_second_to_the_gateway_that_it_sends_to() {
    let one = One::joined(vec![]);
    let mut protocol = Protocol::new(vec![]);
    let mut attachments = Attachments::new(at(0));
    let mut probed_at = Vec::new();
    for ms in (0..3000).step_by(250) {
        attachments.note_overheard(at(ms), mobile(), at(ms));
        if !attachments.follow_overheard(at(ms), &one.0, &mut protocol).is_empty() {
            probed_at.push(ms);
        }
    }
    assert_eq!(probed_at, [1000, 1250, 1750, 2750]);
}
