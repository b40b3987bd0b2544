//! Connectivity checks (RFC 9028 section 4.6) of a host and an initiator by hand.
//! [`direct_path`](super::direct_path) has those between hosts.

use bytes::Bytes;
use holdover_base::Duration;
use holdover_hip::codec::{
    CandidateKind, HipPacket, Locator, LocatorKind, LocatorTraffic, Parameter, RelayAddress, TransportAddress, kind,
};
use holdover_hip::host::{Dropped, Event, HostConfig, RelayTarget};
use holdover_wire::Packet;

use crate::by_hand::{ByHand, GROUP, SPI, kinds};
use crate::rules::{echo, seq};

pub(crate) const PORT: u16 = 40_000;
/// The type preferences of host and server-reflexive candidates.
pub(crate) const HOST: u32 = 126 << 24;
pub(crate) const REFLEXIVE: u32 = 100 << 24;

pub(crate) fn candidate(at: &str, port: u16, kind: CandidateKind, priority: u32) -> Locator {
    let address = format!("::ffff:{at}").parse().unwrap();
    let transport = TransportAddress { port, protocol: 17, kind, priority, spi: SPI, address };
    Locator {
        traffic: LocatorTraffic::Both,
        preferred: false,
        lifetime_s: 600,
        kind: LocatorKind::Transport(transport),
    }
}

/// After an exchange in UDP with this mode, and these candidates of the initiator.
pub(crate) fn after_exchange(seed: u64, config: &HostConfig, open: &[Parameter], locators: Vec<Locator>) -> ByHand {
    let mut peer = ByHand::new(seed, config, Some(PORT));
    let r1 = peer.ask(&[GROUP.id()]);
    let answers = peer.answer(&r1, open, &[Parameter::LocatorSet(locators)]).unwrap();
    let has_checks = open.contains(&Parameter::NatTraversalMode(vec![3]));
    assert_eq!(kinds(&answers[0]).contains(&kind::ENCRYPTED), has_checks, "RFC 9028 section 4.3, step 4");
    peer
}

pub(crate) fn mode() -> Parameter {
    Parameter::NatTraversalMode(vec![3])
}

/// A private address, and the one behind the translator.
pub(crate) fn both() -> Vec<Locator> {
    vec![
        candidate("10.0.0.7", 10_500, CandidateKind::Host, HOST),
        candidate("192.0.2.1", PORT, CandidateKind::ServerReflexive, REFLEXIVE),
    ]
}

/// The checks that the host sends within this time: when, in ms, where to, and their contents.
pub(crate) fn checks(peer: &mut ByHand, time: Duration) -> Vec<(u64, String, u16, HipPacket)> {
    let (start, end, mut sent) = (peer.now, peer.now + time, Vec::new());
    loop {
        while let Some(relayed) = peer.host.poll_relayed() {
            let RelayTarget::Port(port) = relayed.to else { panic!("{relayed:?}") };
            let packet = HipPacket::parse(&relayed.packet).unwrap().packet;
            let at = peer.now.saturating_since(start).as_millis();
            sent.push((at, relayed.packet.dst.to_string(), port, packet));
        }
        peer.events.extend(core::iter::from_fn(|| peer.host.poll_event()));
        let Some(next) = peer.host.poll_timeout().filter(|at| *at <= end) else { break };
        peer.now = next.max(peer.now);
        peer.host.handle_timeout(peer.now);
    }
    peer.now = end;
    sent
}

fn nonce_of(check: &HipPacket) -> Bytes {
    check.find(|it| if let Parameter::EchoRequestSigned(it) = it { Some(it.clone()) } else { None }).unwrap()
}

pub(crate) fn id_of(check: &HipPacket) -> u32 {
    check.find(|it| if let Parameter::Seq(it) = it { Some(*it) } else { None }).unwrap()
}

/// The peer's response to a check, from its present address and port.
pub(crate) fn respond(peer: &mut ByHand, check: &HipPacket) -> Result<(), Dropped> {
    let response = vec![Parameter::Ack(vec![id_of(check)]), Parameter::EchoResponseSigned(nonce_of(check))];
    peer.update(response, &[]).map(drop)
}

/// A check of the peer.
pub(crate) fn check(peer: &mut ByHand, further: Option<Parameter>) -> Packet {
    let mut parameters = vec![
        Parameter::Seq(peer.next_id()),
        Parameter::EchoRequestSigned(Bytes::from_static(b"nonce")),
        Parameter::CandidatePriority(110 << 24),
    ];
    parameters.extend(further);
    let builder = peer.authentic(holdover_hip::codec::PacketType::Update, parameters);
    peer.finish(builder)
}

pub(crate) fn nominated(peer: &ByHand) -> Vec<(String, u16)> {
    let of = |event: &Event| match event {
        Event::Nominated { between, port, is_relayed: false, .. } => Some((between.1.to_string(), *port)),
        _ => None,
    };
    peer.events.iter().filter_map(of).collect()
}

// Claim: Connectivity checks go to the peer's candidates in the order of priority, one in each Ta (the greater of both hosts'), are
// repeated with the same SEQ after one second and later, and end with CONNECTIVITY_CHECKS_FAILED if none is answered.
#[test]
fn candidates_are_checked_in_order_at_the_negotiated_pace() {
    let pacing = Parameter::TransactionPacing(100);
    let mut peer = after_exchange(1, &HostConfig::default(), &[mode(), pacing], both());
    let sent = checks(&mut peer, Duration::from_millis(2900));
    let seen: Vec<(u64, &str, u16)> = sent.iter().map(|(at, to, port, _)| (*at, to.as_str(), *port)).collect();
    let (private, outside) = (("10.0.0.7", 10_500), ("192.0.2.1", PORT));
    assert_eq!(
        seen,
        [(0, private), (100, outside), (1000, private), (1100, outside)].map(|(at, (to, port))| (at, to, port))
    );
    for (_, _, _, packet) in &sent {
        let kinds: Vec<u16> = packet.parameters.iter().map(Parameter::kind).filter(|it| *it < kind::HIP_MAC).collect();
        assert_eq!(kinds, [kind::SEQ, kind::ECHO_REQUEST_SIGNED, kind::CANDIDATE_PRIORITY]);
        let priority = packet.find(|it| if let Parameter::CandidatePriority(it) = it { Some(*it) } else { None });
        assert_eq!(priority, Some((110 << 24) + (65_535 << 8) + 255), "RFC 9028 section 4.6.2: peer-reflexive");
    }
    assert_eq!([id_of(&sent[0].3), nonce_of(&sent[0].3).len() as u32], [id_of(&sent[2].3), 16]);
    assert_ne!(id_of(&sent[0].3), id_of(&sent[1].3));
    assert_eq!(checks(&mut peer, Duration::from_secs(40)).len(), 4);
    assert!(peer.events.iter().any(|event| matches!(event, Event::ChecksFailed { .. })));
    let notify = peer.wait(Duration::ZERO);
    let notified = notify
        .iter()
        .find_map(|it| it.packet.find(|it| if let Parameter::Notification(it) = it { Some(it.clone()) } else { None }));
    assert_eq!(notified.map(|it| (it.kind.0, it.data.len())), Some((61, 0)), "RFC 9028 section 5.10");
}

// Claim: A check is answered where it came from, with MAPPED_ADDRESS; from an unknown port it is checked in return at once (a
// peer-reflexive candidate). Repetitions are answered at a limited rate.
#[test]
fn a_check_from_another_port_is_answered_and_returned() {
    let mut peer = after_exchange(2, &HostConfig::default(), &[mode()], Vec::new());
    assert!(checks(&mut peer, Duration::ZERO).is_empty());
    peer.port = Some(41_234);
    let packet = check(&mut peer, None);
    let answers = peer.give(&packet).unwrap();
    assert_eq!(kinds(&answers[0]), [kind::ACK, kind::ECHO_RESPONSE_SIGNED, kind::MAPPED_ADDRESS]);
    let mapped = RelayAddress { port: 41_234, protocol: 17, address: "::ffff:192.0.2.1".parse().unwrap() };
    assert!(answers[0].packet.parameters.contains(&Parameter::MappedAddress(mapped)));
    let returned = checks(&mut peer, Duration::from_millis(10));
    assert_eq!((returned.len(), returned[0].1.as_str(), returned[0].2), (1, "192.0.2.1", 41_234));
    let answered = (0..100).filter(|_| peer.give(&packet).is_ok_and(|answers| answers.len() == 1)).count();
    assert_eq!(answered, 20);
}

// Claim: The response to a check counts only if it comes from the checked address and port, once.
#[test]
fn a_response_from_elsewhere_verifies_nothing() {
    let mut peer = after_exchange(3, &HostConfig::default(), &[mode()], vec![both().remove(1)]);
    let sent = checks(&mut peer, Duration::ZERO).remove(0).3;
    peer.port = Some(PORT + 1);
    respond(&mut peer, &sent).unwrap();
    let is_verified = |peer: &ByHand| peer.events.iter().any(|it| matches!(it, Event::PeerReaddressed { .. }));
    assert!(!is_verified(&peer));
    peer.port = Some(PORT);
    respond(&mut peer, &sent).unwrap();
    assert!(is_verified(&peer));
    assert_eq!(respond(&mut peer, &sent), Err(Dropped::Stale));
}

// Claim: The controlled host selects the nominated pair once the peer was verified there, answers with NOMINATE, SEQ and an echo
// request of its own, and ends its checks; a nomination of an address that does not answer has no effect.
// Tests: `connectivity::a_nominated_pair_that_was_not_checked_has_to_answer`
#[test]
fn a_nomination_ends_the_checks() {
    let mut peer = after_exchange(4, &HostConfig::default(), &[mode()], both());
    let sent = checks(&mut peer, Duration::from_millis(60));
    respond(&mut peer, &sent[1].3).unwrap();
    let nomination = check(&mut peer, Some(Parameter::Nominate));
    let answers = peer.give(&nomination).unwrap();
    let expected = [
        kind::SEQ,
        kind::ACK,
        kind::ECHO_REQUEST_SIGNED,
        kind::ECHO_RESPONSE_SIGNED,
        kind::MAPPED_ADDRESS,
        kind::NOMINATE,
    ];
    assert_eq!(kinds(&answers[0]), expected, "RFC 9028 section 4.6.3");
    assert_eq!(nominated(&peer), [("192.0.2.1".to_owned(), PORT)]);
    // Repeated, because the answer was lost: the same request.
    let again = peer.give(&nomination).unwrap();
    assert_eq!((seq(&again[0]), echo(&again[0])), (seq(&answers[0]), echo(&answers[0])));
    respond(&mut peer, &answers[0].packet).unwrap();
    assert!(checks(&mut peer, Duration::from_secs(20)).is_empty());
    assert_eq!(nominated(&peer).len(), 1);
}

#[test]
fn a_nominated_pair_that_was_not_checked_has_to_answer() {
    let mut peer = after_exchange(5, &HostConfig::default(), &[mode()], both());
    peer.port = Some(41_234);
    let nomination = check(&mut peer, Some(Parameter::Nominate));
    let answers = peer.give(&nomination).unwrap();
    assert_eq!(nominated(&peer), []);
    peer.port = Some(PORT);
    respond(&mut peer, &answers[0].packet).unwrap();
    assert_eq!(nominated(&peer), []);
    peer.port = Some(41_234);
    respond(&mut peer, &answers[0].packet).unwrap();
    assert_eq!(nominated(&peer), [("192.0.2.1".to_owned(), 41_234)]);
}

// Claim: A peer whose candidates are those of others causes at most 48 checks of them at once, and one answer to each new check that seems to
// come from them; forbidden addresses are never checked.
#[test]
fn candidates_of_others_cost_them_little() {
    let mut victims: Vec<Locator> =
        (1..=20).map(|n| candidate(&format!("203.0.113.{n}"), 53, CandidateKind::Host, HOST + n)).collect();
    let forbidden = ["127.0.0.1", "224.0.0.1", "255.255.255.255", "0.0.0.0", "198.51.100.2"];
    victims.extend(forbidden.map(|at| candidate(at, 53, CandidateKind::Host, u32::MAX)));
    victims.reverse();
    let mut peer = after_exchange(6, &HostConfig::default(), &[mode()], victims);
    let mut sent = checks(&mut peer, Duration::from_secs(1));
    // The peer's checks from many ports, which the network may have changed.
    for port in 1..200 {
        peer.port = Some(port);
        peer.at = format!("203.0.114.{}", port % 100 + 1).parse().unwrap();
        let packet = check(&mut peer, None);
        assert_eq!(peer.give(&packet).map(|answers| answers.len()), Ok(1));
        sent.extend(checks(&mut peer, Duration::from_millis(10)));
    }
    sent.extend(checks(&mut peer, Duration::from_secs(30)));
    assert!(sent.len() > 40 && sent.len() <= 48 + 20, "{}", sent.len());
    assert!(sent.iter().all(|(_, to, ..)| !forbidden.contains(&to.as_str())));
}

/// RFC 9028 section 4.7.1: without ICE-HIP-UDP there are no connectivity checks.
#[test]
fn without_agreement_a_check_is_any_update() {
    let mut peer = after_exchange(7, &HostConfig::default(), &[Parameter::NatTraversalMode(vec![1])], both());
    assert!(checks(&mut peer, Duration::from_secs(5)).is_empty());
    let packet = check(&mut peer, Some(Parameter::Nominate));
    let answers = peer.give(&packet).unwrap();
    assert_eq!(kinds(&answers[0]), [kind::ACK, kind::ECHO_RESPONSE_SIGNED]);
    assert!(checks(&mut peer, Duration::from_secs(5)).is_empty() && nominated(&peer).is_empty());
}
