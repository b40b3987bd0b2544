//! Rules for UPDATEs of another implementation, for replays, and for parameters added on the way.

use std::net::IpAddr;

use bytes::Bytes;
use holdover_base::Duration;
use holdover_hip::codec::{
    Builder, CandidateKind, EspInfo, HipPacket, Locator, LocatorKind, LocatorTraffic, MAX_LEN, PacketType, Parameter,
    Received, RegInfo, TransportAddress, kind,
};
use holdover_hip::host::{Dropped, Event, HostConfig, Service};
use holdover_hip::identity::{Algorithm, KeyPair};
use holdover_wire::{Packet, Payload};

use crate::by_hand::{ByHand, SPI, kinds};
use crate::rules::{echo, info, seq};
use crate::support::{address, key};

fn ask(data: &'static [u8]) -> Parameter {
    Parameter::EchoRequestSigned(Bytes::from_static(data))
}

/// The peer announces these locators; returns the answers.
fn announce(peer: &mut ByHand, locators: Vec<Locator>) -> Vec<Received> {
    let id = peer.next_id();
    let info = EspInfo { keymat_index: peer.index(), old_spi: SPI, new_spi: SPI };
    let update = vec![Parameter::EspInfo(info), Parameter::LocatorSet(locators), Parameter::Seq(id)];
    peer.update(update, &[]).unwrap()
}

/// Answers the checks of these packets.
fn answer_checks(peer: &mut ByHand, sent: &[Received]) {
    for it in sent.iter().filter(|it| kinds(it).contains(&kind::ECHO_REQUEST_SIGNED)) {
        let response = vec![Parameter::Ack(vec![seq(it)]), Parameter::EchoResponseSigned(echo(it))];
        peer.update(response, &[]).unwrap();
    }
}

/// RFC 9028 section 5.7: a locator of type 2 is an address with a port, which HIP packets and ESP without that port do not reach.
// Claim: UPDATEs of another make, replays, and requests added on the way: candidates are not addresses; of preferred locators the
// more specific one is used; OLD SPI and NEW SPI are checked; an ACK and a REG_INFO count once; echoes leave room for the
// parameters of servers; an UPDATE without an answer is acknowledged, not answered by another one's answer.
// Tests: `update_rules::the_more_specific_preferred_locator_is_used`, `update_rules::spis_of_a_change_of_keys`,
// `update_rules::a_reserved_spi_in_an_i2`, `update_rules::an_acknowledgement_of_a_check_is_taken_once`,
// `update_rules::an_offer_of_services_is_taken_once`, `update_rules::echoes_leave_room_for_servers`,
// `update_rules::an_update_without_an_answer`
#[test]
fn a_candidate_is_not_an_address() {
    let mut peer = ByHand::established(40, &HostConfig::default(), None);
    let candidate = LocatorKind::Transport(TransportAddress {
        port: 40_000,
        protocol: 17,
        kind: CandidateKind::ServerReflexive,
        priority: 1,
        spi: SPI,
        address: "::ffff:192.0.2.66".parse().unwrap(),
    });
    let candidate = Locator { traffic: LocatorTraffic::Both, preferred: true, lifetime_s: 60, kind: candidate };
    assert_eq!(candidate.address(), None);
    let answers = announce(&mut peer, vec![candidate, Locator::esp(address("192.0.2.77"), SPI, 60, false)]);
    assert_eq!(answers.len(), 1, "one check");
    answer_checks(&mut peer, &answers);
    assert_eq!(peer.host.verified_addresses(peer.own()), [address("192.0.2.77")]);
}

/// RFC 8046 section 4.1: of the preferred locators the one for this kind of packets alone.
#[test]
fn the_more_specific_preferred_locator_is_used() {
    let mut peer = ByHand::established(41, &HostConfig::default(), None);
    let at = |text: &str, traffic| Locator { traffic, ..Locator::esp(address(text), SPI, 60, true) };
    let locators = vec![
        at("192.0.2.10", LocatorTraffic::Both),
        at("192.0.2.11", LocatorTraffic::Data),
        at("192.0.2.12", LocatorTraffic::Signalling),
    ];
    let answers = announce(&mut peer, locators);
    answer_checks(&mut peer, &answers);
    let own = peer.own();
    assert_eq!(peer.host.verified_addresses(own).len(), 3);
    let payload = Payload::Other { protocol: 253, payload: Bytes::from_static(b"data") };
    let inner = Packet::new(peer.host.hit().0.into(), own.0.into(), payload);
    assert_eq!(peer.host.seal(peer.now, &inner).unwrap().dst, address("192.0.2.11"));
    peer.host.announce(peer.now, own).unwrap();
    assert_eq!(peer.host.poll_transmit().unwrap().dst, address("192.0.2.12"));
}

/// RFC 7401 section 5.2.21: anyone on the path can add requests. Servers on the way back find room for their parameters.
#[test]
fn echoes_leave_room_for_servers() {
    let mut peer = ByHand::established(42, &HostConfig::default(), None);
    let id = peer.next_id();
    let mut update = peer.authentic(PacketType::Update, vec![Parameter::Seq(id)]);
    while update.push(&Parameter::EchoRequestUnsigned(Bytes::from_static(b"more"))).is_ok() {}
    let update = peer.finish(update);
    let answers = peer.give(&update).unwrap();
    let [answer] = &answers[..] else { panic!("{answers:?}") };
    assert!(kinds(answer).iter().filter(|it| **it == kind::ECHO_RESPONSE_UNSIGNED).count() > 100);
    // VIA_RVS, RELAY_TO, and RELAY_HMAC of 48 bytes.
    assert!(answer.bytes().len() + 24 + 24 + 56 <= MAX_LEN, "{}", answer.bytes().len());
}

/// The first answer is lost because the peer has no more than one of its addresses; no MAC covers the source of a packet.
// Claim: The answer to a repeated UPDATE goes to the source of the repetition, if the peer has that address, and every other time to the
// peer's best address; a check goes to the checked address alone.
#[test]
fn a_repeated_answer_goes_to_another_address() {
    let mut peer = ByHand::established(45, &HostConfig::default(), None);
    let [first, second, third, forged] = ["192.0.2.77", "192.0.2.78", "192.0.2.79", "203.0.113.99"].map(address);
    let locators = |all: &[IpAddr]| -> Vec<Locator> {
        all.iter().enumerate().map(|(index, &it)| Locator::esp(it, SPI, 60, index == 0)).collect()
    };
    let answers = announce(&mut peer, locators(&[first, second]));
    answer_checks(&mut peer, &answers);
    assert_eq!(peer.host.verified_addresses(peer.own()).len(), 2);
    let sent_to = |peer: &mut ByHand, update: &Builder, from: IpAddr| {
        peer.at = from;
        let update = peer.finish(update.clone());
        peer.host.handle_packet(peer.now, &update).unwrap();
        let sent: Vec<IpAddr> = core::iter::from_fn(|| peer.host.poll_transmit()).map(|it| it.dst).collect();
        sent
    };
    let id = peer.next_id();
    let check = peer.authentic(PacketType::Update, vec![Parameter::Seq(id), ask(b"1")]);
    let expected =
        [(first, first), (second, second), (second, first), (second, second), (forged, first), (forged, first)];
    for (number, (from, to)) in expected.into_iter().enumerate() {
        assert_eq!(sent_to(&mut peer, &check, from), [to], "{number}");
    }
    let id = peer.next_id();
    let info = EspInfo { keymat_index: peer.index(), old_spi: SPI, new_spi: SPI };
    let moved = vec![Parameter::EspInfo(info), Parameter::LocatorSet(locators(&[third, first])), Parameter::Seq(id)];
    let moved = peer.authentic(PacketType::Update, moved);
    for from in [third, first, first, first, forged] {
        assert_eq!(sent_to(&mut peer, &moved, from), [third], "the check of it, from {from}");
    }
}

/// Both hosts have moved, and the peer checks this host's address with its announcement.
// Claim: An UPDATE of another make that announces addresses and checks one is answered with both: a check, and the answer to the peer's.
#[test]
fn a_check_beside_an_announcement_is_answered() {
    let mut peer = ByHand::established(46, &HostConfig::default(), None);
    let id = peer.next_id();
    let info = EspInfo { keymat_index: peer.index(), old_spi: SPI, new_spi: SPI };
    let locator = Locator::esp(address("192.0.2.77"), SPI, 60, true);
    let update = vec![Parameter::EspInfo(info), Parameter::LocatorSet(vec![locator]), Parameter::Seq(id), ask(b"1")];
    let answers = peer.update(update, &[]).unwrap();
    let [answer] = &answers[..] else { panic!("{answers:?}") };
    let expected = [kind::ESP_INFO, kind::SEQ, kind::ACK, kind::ECHO_REQUEST_SIGNED, kind::ECHO_RESPONSE_SIGNED];
    assert_eq!(kinds(answer), expected);
    let is_it =
        |it: &Parameter| matches!(it, Parameter::EchoResponseSigned(data) if data[..] == b"1"[..]).then_some(());
    assert!(answer.packet.find(is_it).is_some());
    answer_checks(&mut peer, &answers);
    assert_eq!(peer.host.verified_addresses(peer.own()), [address("192.0.2.77")]);
}

/// An UPDATE without an answer, because this host has left the checked address, is not answered by the answer to another one.
#[test]
fn an_update_without_an_answer() {
    let mut peer = ByHand::established(43, &HostConfig::default(), None);
    let ids = [peer.next_id(), peer.next_id()];
    let answers = peer.update(vec![Parameter::Seq(ids[0]), ask(b"0")], &[]).unwrap();
    assert_eq!(answers.iter().map(kinds).collect::<Vec<_>>(), [[kind::ACK, kind::ECHO_RESPONSE_SIGNED]]);
    peer.host.set_locators(peer.now, &[address("198.51.100.77")]);
    peer.wait(Duration::ZERO);
    let check = vec![Parameter::Seq(ids[1]), ask(b"1")];
    assert_eq!(peer.update(check.clone(), &[]).map(|sent| sent.len()), Ok(0), "this host is elsewhere");
    let answers = peer.update(check, &[]).unwrap();
    let acks = |it: &Received| it.packet.find(|it| if let Parameter::Ack(ids) = it { Some(ids.clone()) } else { None });
    assert_eq!(answers.iter().map(acks).collect::<Vec<_>>(), [Some(vec![ids[1]])]);
    assert_eq!(answers.iter().map(kinds).collect::<Vec<_>>(), [[kind::ACK]]);
}

/// RFC 8046 section 5.3: OLD SPI is 0 or in use; RFC 4303 section 2.1: SPIs up to 255 are reserved.
#[test]
fn spis_of_a_change_of_keys() {
    let mut peer = ByHand::established(44, &HostConfig::default(), None);
    let change = |peer: &mut ByHand, old_spi, new_spi| {
        let id = peer.next_id();
        let info = EspInfo { keymat_index: peer.index(), old_spi, new_spi };
        peer.update(vec![Parameter::EspInfo(info), Parameter::Seq(id)], &[])
    };
    let refused = Err(Dropped::Value { kind: kind::ESP_INFO });
    for (old_spi, new_spi) in [(SPI + 5, SPI + 1), (SPI, 255), (SPI, 1), (SPI, 0), (0, 0)] {
        assert_eq!(change(&mut peer, old_spi, new_spi).map(|_| ()), refused, "{old_spi} {new_spi}");
    }
    // The last change may be unknown to the peer; OLD SPI may be 0.
    for (old_spi, new_spi) in [(SPI, SPI + 1), (SPI, SPI + 2), (0, SPI + 3), (SPI + 3, SPI + 4)] {
        let answers = change(&mut peer, old_spi, new_spi).unwrap();
        let [answer] = &answers[..] else { panic!("{answers:?}") };
        assert_ne!(info(answer).old_spi, info(answer).new_spi);
        peer.update(vec![Parameter::Ack(vec![seq(answer)])], &[]).unwrap();
        let (outbound, _) = peer.host.security_associations(peer.own()).unwrap();
        assert_eq!(outbound.spi(), new_spi);
    }
    assert_eq!(change(&mut peer, SPI, SPI + 9).map(|_| ()), refused, "replaced twice");
}

/// RFC 4303 section 2.1, in an I2.
#[test]
fn a_reserved_spi_in_an_i2() {
    for (spi, expected) in [(255, Dropped::Value { kind: kind::ESP_INFO }), (256, Dropped::Mac)] {
        let mut peer = ByHand::new(45, &HostConfig::default(), None);
        let r1 = peer.ask(&[crate::by_hand::GROUP.id()]);
        let mut i2: HipPacket = peer.i2_packet(&r1);
        for parameter in &mut i2.parameters {
            if let Parameter::EspInfo(info) = parameter {
                info.new_spi = spi;
            }
        }
        let i2 = i2.emit(peer.at, address("198.51.100.2")).unwrap();
        assert_eq!(peer.give(&i2).map(|_| ()), Err(expected));
    }
}

/// RFC 7401 section 6.12.2, step 1: an ACK counts once, also that of a check whose echo has not come.
#[test]
fn an_acknowledgement_of_a_check_is_taken_once() {
    let mut peer = ByHand::established(46, &HostConfig::default(), None);
    let answers = announce(&mut peer, vec![Locator::esp(address("192.0.2.77"), SPI, 60, true)]);
    let ack = vec![Parameter::Ack(vec![seq(&answers[0])])];
    assert_eq!(peer.update(ack.clone(), &[]).map(|sent| sent.len()), Ok(0));
    assert_eq!(peer.update(ack, &[]).map(|_| ()), Err(Dropped::Stale), "a replay");
    let again = peer.wait(Duration::from_secs(1));
    assert_eq!(again.iter().map(kinds).collect::<Vec<_>>(), [[kind::ESP_INFO, kind::SEQ, kind::ECHO_REQUEST_SIGNED]]);
    assert_ne!(seq(&again[0]), seq(&answers[0]));
    answer_checks(&mut peer, &again);
    assert_eq!(peer.host.verified_addresses(peer.own()), [address("192.0.2.77")]);
}

/// A replayed UPDATE does not restore an earlier offer of services.
#[test]
fn an_offer_of_services_is_taken_once() {
    for is_replayed in [false, true] {
        let mut peer = ByHand::established(47, &HostConfig::default(), None);
        let own = peer.own();
        let offer =
            |types: &[u8]| Parameter::RegInfo(RegInfo { min_lifetime: 64, max_lifetime: 120, types: types.to_vec() });
        let ids = [peer.next_id(), peer.next_id()];
        peer.update(vec![Parameter::Seq(ids[0]), offer(&[2])], &[]).unwrap();
        peer.update(vec![Parameter::Seq(ids[1]), offer(&[1])], &[]).unwrap();
        if is_replayed {
            peer.update(vec![Parameter::Seq(ids[0]), offer(&[2])], &[]).unwrap();
        }
        peer.host.add_peer(own, &[peer.at]);
        peer.host.register(peer.now, own, &[Service::RelayHip]);
        assert_eq!(peer.wait(Duration::ZERO).len(), 0, "no request for a service that is no longer offered");
        let event = peer.host.poll_event();
        assert!(matches!(event, Some(Event::RegistrationFailed { .. })), "{event:?}");
    }
}

/// RFC 7401 sections 5.2.16 and 5.3.5.
#[test]
fn the_numbers_of_updates() {
    let mut peer = ByHand::established(8, &HostConfig::default(), None);
    assert_eq!(
        peer.update(Vec::new(), &[]).map(|_| ()),
        Err(Dropped::Missing { kind: kind::SEQ }),
        "neither SEQ nor ACK"
    );
    let ask = |data: &'static [u8]| Parameter::EchoRequestSigned(Bytes::from_static(data));
    let answered = |peer: &mut ByHand, id, data| {
        let sent = peer.update(vec![Parameter::Seq(id), ask(data)], &[]);
        sent.map(|sent| sent.iter().map(|it| it.packet.parameters[..it.packet.parameters.len() - 2].to_vec()).collect())
    };
    let ack = |id| Parameter::Ack(vec![id]);
    let response = |data: &'static [u8]| Parameter::EchoResponseSigned(Bytes::from_static(data));
    let full = |id, data| Ok(vec![vec![ack(id), response(data)]]);
    assert_eq!(answered(&mut peer, 0, b"0"), full(0, b"0"));
    assert_eq!(answered(&mut peer, 2, b"2"), full(2, b"2"));
    assert_eq!(answered(&mut peer, 1, b"1"), full(1, b"1"), "a late one is processed");
    assert_eq!(answered(&mut peer, 2, b"2"), full(2, b"2"), "the newest one is answered again");
    assert_eq!(answered(&mut peer, 0, b"0"), Ok(vec![vec![ack(0)]]), "an older one is acknowledged again");
    assert_eq!(answered(&mut peer, 1, b"1"), Err(Dropped::Stale), "not at any rate");
    peer.now += Duration::from_secs(1);
    assert_eq!(answered(&mut peer, 1, b"1"), Ok(vec![vec![ack(1)]]));
    assert_eq!(answered(&mut peer, 100, b"3"), full(100, b"3"));
    assert_eq!(answered(&mut peer, 3, b"4"), Err(Dropped::Stale), "below the window");

    // The host's own first one.
    let at = address("203.0.113.9");
    let hit = peer.own();
    peer.host.set_locators(peer.now, &[at]);
    let sent = peer.wait(Duration::ZERO);
    assert_eq!((sent.len(), seq(&sent[0])), (1, 0), "to {hit}");
    // RFC 7401 section 6.12.2: an ACK of no outstanding UPDATE, and one of it, which is outstanding only once.
    let acknowledged = |peer: &mut ByHand, id| peer.update(vec![ack(id)], &[]).map(|sent| sent.len());
    assert_eq!(acknowledged(&mut peer, 1), Err(Dropped::Stale));
    assert_eq!(acknowledged(&mut peer, 0), Ok(0));
    assert_eq!(acknowledged(&mut peer, 0), Err(Dropped::Stale));
}

/// RFC 8046 section 4.3: a HOST_ID in an UPDATE is that of the association.
#[test]
fn the_host_id_of_an_update() {
    let mut peer = ByHand::established(9, &HostConfig::default(), None);
    let host_id = |keys: &KeyPair| Parameter::HostId(keys.identity().host_id(Default::default()));
    let (own, other) = (host_id(&peer.keys), host_id(&key(Algorithm::Ed25519, 77)));
    let id = peer.next_id();
    assert_eq!(peer.update(vec![Parameter::Seq(id), other], &[]).map(|_| ()), Err(Dropped::WrongHit));
    assert_eq!(peer.update(vec![Parameter::Seq(id), own], &[]).map(|sent| sent.len()), Ok(1));
}

/// RFC 8046 sections 4 and 4.1: a locator for signalling alone receives no data; one without a lifetime is none.
#[test]
fn locators_by_their_traffic_type() {
    let mut peer = ByHand::established(12, &HostConfig::default(), None);
    let at =
        |text: &str, traffic, lifetime_s| Locator { traffic, ..Locator::esp(address(text), SPI, lifetime_s, true) };
    let locators = vec![
        at("192.0.2.10", LocatorTraffic::Signalling, 60),
        at("192.0.2.11", LocatorTraffic::Data, 60),
        at("192.0.2.12", LocatorTraffic::Both, 0),
    ];
    let id = peer.next_id();
    let info = EspInfo { keymat_index: peer.index(), old_spi: SPI, new_spi: SPI };
    let update = vec![Parameter::EspInfo(info), Parameter::LocatorSet(locators), Parameter::Seq(id)];
    let answers = peer.update(update, &[]).unwrap();
    for it in answers.iter().filter(|it| kinds(it).contains(&kind::SEQ)) {
        let response = vec![Parameter::Ack(vec![seq(it)]), Parameter::EchoResponseSigned(echo(it))];
        peer.update(response, &[]).unwrap();
    }
    let own = peer.own();
    assert_eq!(peer.host.verified_addresses(own), [address("192.0.2.10"), address("192.0.2.11")]);
    let payload = Payload::Other { protocol: 253, payload: Bytes::from_static(b"data") };
    let inner = Packet::new(peer.host.hit().0.into(), own.0.into(), payload);
    assert_eq!(peer.host.seal(peer.now, &inner).unwrap().dst, address("192.0.2.11"));
}

/// A peer that prefers all of its eight addresses, and answers at none: four are checked at a time, and while the host has data the checks
/// restart after 63 s, 126 s, 189 s, 309 s and 549 s.
#[test]
fn checks_restart_at_four_addresses_and_at_growing_intervals() {
    fn checks(sent: &[Received]) -> usize {
        sent.iter().filter(|it| kinds(it).contains(&kind::ECHO_REQUEST_SIGNED)).count()
    }
    let mut peer = ByHand::established(14, &HostConfig::default(), None);
    let locators = (10..18_u8).map(|last| Locator::esp(IpAddr::from([192, 0, 2, last]), SPI, 3600, true)).collect();
    assert_eq!(checks(&announce(&mut peer, locators)), 4);
    let payload = Payload::Other { protocol: 253, payload: Bytes::from_static(b"data") };
    let inner = Packet::new(peer.host.hit().0.into(), peer.own().0.into(), payload);
    let mut count = 0;
    for _ in 0..800 {
        assert!(peer.host.seal(peer.now, &inner).is_err());
        count += checks(&peer.wait(Duration::from_secs(1)));
    }
    assert_eq!(count, 4 * 5 + 5 * 4 * 6, "five repetitions of the first checks, and five restarts");
}
