//! Rules of the RFCs that two hosts of this crate do not exercise between themselves: the peer's packets are composed by hand.

use bytes::Bytes;
use holdover_base::Duration;
use holdover_hip::codec::{
    Builder, EspInfo, HipPacket, Locator, NotifyType, PacketType, Parameter, R1Counter, Received, RegFailed, RegInfo,
    RegList, RelayAddress, kind,
};
use holdover_hip::crypto::{DhGroup, DhKeyPair};
use holdover_hip::esp::EspKeys;
use holdover_hip::host::{Dropped, Event, Failure, HostConfig, ServerConfig, Service, State};
use holdover_hip::identity::{Algorithm, KeyPair};
use holdover_wire::Packet;

use crate::by_hand::{ByHand, GROUP, SPI, kinds};
use crate::support::{address, key};
use crate::world::{Network, World};

pub(crate) fn find<T>(received: &Received, select: impl Fn(&Parameter) -> Option<T>) -> Option<T> {
    received.packet.parameters.iter().find_map(select)
}

pub(crate) fn info(received: &Received) -> EspInfo {
    find(received, |it| if let Parameter::EspInfo(info) = it { Some(*info) } else { None }).unwrap()
}

pub(crate) fn seq(received: &Received) -> u32 {
    find(received, |it| if let Parameter::Seq(id) = it { Some(*id) } else { None }).unwrap()
}

pub(crate) fn echo(received: &Received) -> Bytes {
    find(received, |it| if let Parameter::EchoRequestSigned(data) = it { Some(data.clone()) } else { None }).unwrap()
}

fn server(services: &[Service]) -> HostConfig {
    HostConfig { server: Some(ServerConfig::new(services)), ..HostConfig::default() }
}

/// RFC 7401 section 6.7, step 4: R1 shows the host's groups to an initiator without a common one.
// Claim: A peer whose packets the test composes: R1 without a common group, R1_COUNTER returned verbatim, more than six ciphers,
// HOST_ID and ENCRYPTED in I2 and UPDATE, a move with new keys in one UPDATE, whose answer may be lost, one new Diffie-Hellman
// value for two hosts, traffic types of locators, CLOSE from both ends.
// Tests: `rules::a_counter_is_returned_verbatim`, `rules::a_seventh_cipher_is_ignored`, `rules::encrypted_parameters_of_an_i2`,
// `update_rules::the_host_id_of_an_update`, `rules::a_move_with_and_without_new_keys`,
// `rules::one_new_diffie_hellman_value_is_enough`, `update_rules::locators_by_their_traffic_type`,
// `rules::two_hosts_that_close_at_once`
#[test]
fn an_i1_without_a_common_group_is_answered() {
    let config = HostConfig { groups: vec![DhGroup::P384, DhGroup::Modp3072], ..HostConfig::default() };
    let mut peer = ByHand::new(1, &config, None);
    let r1 = peer.ask(&[3, 7]);
    let group = find(&r1, |it| if let Parameter::DiffieHellman { group, .. } = it { Some(*group) } else { None });
    let list = find(&r1, |it| if let Parameter::DhGroupList(ids) = it { Some(ids.clone()) } else { None });
    assert_eq!((group, list), (Some(8), Some(vec![8, 4])));

    let mut world =
        World::pair(1, Network::CLEAN, &HostConfig { groups: vec![DhGroup::P256], ..HostConfig::default() });
    world.restart(1, Algorithm::Ed25519, 1 + 1_000_003, 1, &config);
    world.connect(0);
    world.run_for(Duration::from_secs(1));
    let (peer, reason) = (world.hit(1), Failure::NoCommon { kind: kind::DH_GROUP_LIST });
    assert!(world.has_event(0, |event| *event == Event::Failed { peer, reason }), "{:?}", world.events);
}

/// Signs an R1 again after a change of its parameters, which the puzzle follows unsigned.
fn signed_again(r1: &Packet, keys: &KeyPair, change: impl Fn(&mut Parameter)) -> Packet {
    let HipPacket { kind, sender, receiver, mut parameters, .. } = HipPacket::parse(r1).unwrap().packet;
    let puzzle = parameters.iter().find_map(|it| if let Parameter::Puzzle(it) = it { Some(it.clone()) } else { None });
    let puzzle = puzzle.unwrap();
    let mut builder = Builder::new(kind, sender, holdover_hip::identity::Hit::UNSPECIFIED);
    parameters.retain(|it| it.kind() < kind::HIP_MAC);
    for mut parameter in parameters {
        change(&mut parameter);
        if let Parameter::Puzzle(it) = &mut parameter {
            (it.opaque, it.random) = ([0; 2], vec![0; it.random.len()].into());
        }
        builder.push(&parameter).unwrap();
    }
    let signature = keys.sign(builder.covered(), &mut crate::support::seeded(3));
    builder.push(&Parameter::HipSignature2(signature)).unwrap();
    builder.address_to(receiver, &puzzle);
    builder.finish(r1.src, r1.dst)
}

/// The I2 that a host sends in answer to an R1 with changed parameters.
fn i2_after(seed: u64, in_udp: bool, change: impl Fn(&mut Parameter) + 'static) -> Option<HipPacket> {
    let mut world = World::pair(seed, Network::CLEAN, &HostConfig::default());
    world.is_in_udp = in_udp;
    let keys = key(Algorithm::Ed25519, seed + 1_000_003);
    world.tamper = Some(Box::new(move |packet| {
        if HipPacket::parse(packet).is_ok_and(|it| it.packet.kind == PacketType::R1) {
            *packet = signed_again(packet, &keys, &change);
        }
        true
    }));
    world.connect(0);
    world.run_for(Duration::from_secs(1));
    let packets = world.packets.iter().filter_map(|(_, packet)| HipPacket::parse(packet).ok());
    packets.map(|it| it.packet).find(|it| it.kind == PacketType::I2)
}

/// RFC 7401 section 5.2.3: the reserved field of R1_COUNTER is returned as it came.
#[test]
fn a_counter_is_returned_verbatim() {
    let i2 = i2_after(2, false, |parameter| {
        if let Parameter::R1Counter(counter) = parameter {
            counter.reserved = [9, 8, 7, 6];
        }
    });
    let returned = i2.unwrap().find(|it| if let Parameter::R1Counter(it) = it { Some(*it) } else { None });
    assert_eq!(returned, Some(R1Counter { reserved: [9, 8, 7, 6], counter: 1 }));
}

/// RFC 7401 section 5.2.8: of more than six ciphers the first six count.
#[test]
fn a_seventh_cipher_is_ignored() {
    let with = |ids: Vec<u16>| {
        let i2 = i2_after(3, false, move |parameter| {
            if let Parameter::HipCipher(list) = parameter {
                *list = ids.clone();
            }
        });
        i2.and_then(|i2| i2.find(|it| if let Parameter::HipCipher(ids) = it { Some(ids.clone()) } else { None }))
    };
    assert_eq!(with(vec![20, 21, 22, 23, 24, 2, 4]), Some(vec![2]));
    assert_eq!(with(vec![20, 21, 22, 23, 24, 25, 2]), None);
}

/// RFC 9028 sections 4.3 and 4.7.2: both modes are offered; UDP-ENCAPSULATION is chosen in UDP, and ICE-HIP-UDP if nothing else is offered.
// Claim: UDP-ENCAPSULATION and ICE-HIP-UDP are offered; the former is named in UDP, the latter if it alone is offered; a mode that was not
// offered, several modes, or UDP-ENCAPSULATION by way of a relay, are answered with NOTIFY; keep-alives of the peer are no events.
// Tests: `rules::a_nat_traversal_mode_that_was_not_offered_is_refused`, `relay::udp_encapsulation_is_refused_by_way_of_a_relay`,
// `rules::a_keep_alive_is_silent`, `rules::a_keep_alive_to_a_client`
#[test]
fn the_nat_traversal_mode_is_named_in_udp() {
    for in_udp in [false, true] {
        let i2 = i2_after(4, in_udp, |_| ()).unwrap();
        let mode = i2.find(|it| if let Parameter::NatTraversalMode(modes) = it { Some(modes.clone()) } else { None });
        assert_eq!(mode, in_udp.then(|| vec![1]));
    }
    let named = |offered: &'static [u16]| {
        let i2 = i2_after(5, true, |parameter| {
            if let Parameter::NatTraversalMode(modes) = parameter {
                *modes = offered.to_vec();
            }
        });
        i2.unwrap().find(|it| if let Parameter::NatTraversalMode(modes) = it { Some(modes.clone()) } else { None })
    };
    assert_eq!(named(&[2, 3]), Some(vec![3]));
    // RFC 9028 section 5.4: a seventh mode is ignored.
    assert_eq!((named(&[2]), named(&[2, 9, 9, 9, 9, 9, 3])), (None, None));
}

/// RFC 9028 section 4.3: another mode than the offered one ends the exchange, with a NOTIFY whose data is the header of the I2.
#[test]
fn a_nat_traversal_mode_that_was_not_offered_is_refused() {
    for (modes, is_accepted) in [(vec![1], true), (vec![3], true), (vec![2], false), (vec![1, 3], false)] {
        let mut peer = ByHand::new(6, &HostConfig::default(), Some(40_000));
        let r1 = peer.ask(&[GROUP.id()]);
        let offered = find(&r1, |it| if let Parameter::NatTraversalMode(it) = it { Some(it.clone()) } else { None });
        assert_eq!(offered, Some(vec![1, 3]));
        let answers = peer.answer(&r1, &[Parameter::NatTraversalMode(modes.clone())], &[]);
        if is_accepted {
            assert_eq!(answers.unwrap()[0].packet.kind, PacketType::R2);
            continue;
        }
        assert_eq!(answers.map(|_| ()), Err(Dropped::Value { kind: kind::NAT_TRAVERSAL_MODE }), "{modes:?}");
        assert_eq!(peer.state(), State::Unassociated);
        let notify = peer.last_sent();
        assert_eq!(notify.packet.kind, PacketType::Notify);
        let about =
            find(&notify, |it| if let Parameter::Notification(it) = it { Some(it.clone()) } else { None }).unwrap();
        assert_eq!(about.kind, NotifyType::NO_VALID_NAT_TRAVERSAL_MODE_PARAMETER);
        assert_eq!((about.data.len(), about.data[2]), (40, 3), "the header of an I2");
        // A flood is reported at a limited rate.
        let mode = Parameter::NatTraversalMode(modes);
        let flood = (0..50).filter(|_| {
            let _ = peer.answer(&r1, core::slice::from_ref(&mode), &[]);
            !peer.sent().is_empty()
        });
        assert!(flood.count() < 10);
    }
}

/// RFC 9028 section 4.3: ENCRYPTED may have LOCATOR_SET alone; RFC 7401 section 5.3.3: or HOST_ID.
#[test]
fn encrypted_parameters_of_an_i2() {
    let locators = Parameter::LocatorSet(vec![Locator::esp(address("192.0.2.1"), SPI, 60, true)]);
    let mut peer = ByHand::new(7, &HostConfig::default(), None);
    let r1 = peer.ask(&[GROUP.id()]);
    let answers = peer.answer(&r1, &[], &[locators]).unwrap();
    assert_eq!(answers[0].packet.kind, PacketType::R2);

    // RFC 7401 section 6.9, step 11: other contents are dropped in silence. 4097 is an unknown critical type.
    let unknown = Parameter::Unknown { kind: 4097, contents: Bytes::from_static(&[0; 4]) };
    let mut peer = ByHand::new(7, &HostConfig::default(), None);
    let r1 = peer.ask(&[GROUP.id()]);
    let refused = peer.answer(&r1, &[], &[unknown]).map(|_| ());
    assert!(matches!(refused, Err(Dropped::Decode(_))), "{refused:?}");
    assert!(peer.sent().is_empty());
}

/// RFC 8046 sections 3.2.1 and 3.2.2: an UPDATE with LOCATOR_SET, in the clear or in ENCRYPTED (RFC 9028 section 4.9), and with new keys or
/// without. The answer has one ESP_INFO, SEQ and ACK, and the check of the address.
#[test]
fn a_move_with_and_without_new_keys() {
    let with_new_keys = [(false, Some(false)), (true, Some(true))];
    let cases = [(false, None), (true, None)]
        .into_iter()
        .chain(with_new_keys)
        .map(|(is_hidden, keys)| (is_hidden, keys, false));
    for (is_hidden, new_keys, is_lost) in cases.chain(with_new_keys.map(|(is_hidden, keys)| (is_hidden, keys, true))) {
        let mut peer = ByHand::established(10, &HostConfig::default(), None);
        let new_spi = if new_keys.is_some() { SPI + 1 } else { SPI };
        let pair = DhKeyPair::generate(GROUP, &mut peer.rng);
        let keymat_index = if new_keys == Some(true) { 0 } else { peer.index() };
        let id = peer.next_id();
        let mut open = vec![Parameter::EspInfo(EspInfo { keymat_index, old_spi: SPI, new_spi }), Parameter::Seq(id)];
        if new_keys == Some(true) {
            open.push(Parameter::DiffieHellman { group: GROUP.id(), public: pair.public() });
        }
        let locators = Parameter::LocatorSet(vec![Locator::esp(address("192.0.2.77"), new_spi, 60, true)]);
        let hidden = if is_hidden {
            vec![locators]
        } else {
            open.push(locators);
            Vec::new()
        };
        let answers = peer.update(open, &hidden).unwrap();
        let dh = (new_keys == Some(true)).then_some(kind::DIFFIE_HELLMAN);
        let expected: Vec<u16> =
            [kind::ESP_INFO, kind::SEQ, kind::ACK].into_iter().chain(dh).chain([kind::ECHO_REQUEST_SIGNED]).collect();
        assert_eq!(answers.iter().map(kinds).collect::<Vec<_>>(), [expected], "{is_hidden} {new_keys:?}");
        let info = info(&answers[0]);
        assert_eq!(info.old_spi == info.new_spi, new_keys.is_none());
        assert_eq!(info.keymat_index, keymat_index, "RFC 7402 section 5.1.1: 0 with new material alone");
        let is_rekeyed = |peer: &ByHand| peer.events.iter().any(|it| matches!(it, Event::Rekeyed { .. }));
        let first = answers[0].clone();
        if is_lost {
            // Check and change of keys are repeated one by one, each with an ID of its own: the ACK of one is not that of the other.
            let again = peer.wait(Duration::from_secs(1));
            let [check_again, keys_again] = &again[..] else { panic!("{again:?}") };
            assert_eq!(kinds(check_again), [kind::ESP_INFO, kind::SEQ, kind::ECHO_REQUEST_SIGNED]);
            let expected: Vec<u16> = [kind::ESP_INFO, kind::SEQ].into_iter().chain(dh).collect();
            assert_eq!(kinds(keys_again), expected);
            let ids = [&first, check_again, keys_again].map(seq);
            assert_eq!(ids, [ids[0], ids[0] + 1, ids[0] + 2]);
            let same = EspInfo { new_spi: info.old_spi, ..self::info(check_again) };
            assert_eq!(self::info(check_again), same, "the peer knows the old SPI alone");
            assert_eq!(self::info(keys_again), info);
            let response = vec![Parameter::Ack(vec![ids[1]]), Parameter::EchoResponseSigned(echo(check_again))];
            assert_eq!(peer.update(response, &[]).map(|sent| sent.len()), Ok(0));
            assert!(!is_rekeyed(&peer), "the change of keys is not acknowledged");
            let response = vec![Parameter::Ack(vec![ids[2]])];
            assert_eq!(peer.update(response, &[]).map(|sent| sent.len()), Ok(0));
        } else {
            let response = vec![Parameter::Ack(vec![seq(&first)]), Parameter::EchoResponseSigned(echo(&first))];
            assert_eq!(peer.update(response, &[]).map(|sent| sent.len()), Ok(0));
        }
        assert_eq!(peer.host.verified_addresses(peer.own()), [address("192.0.2.77")]);
        assert_eq!(is_rekeyed(&peer), new_keys.is_some());
        assert_eq!(peer.wait(Duration::from_secs(5)).len(), 0, "nothing is left to be acknowledged");
    }
}

/// RFC 7402 section 6.10, step 1: one host sends a new Diffie-Hellman value, and the other has asked for keys from the old material; the new
/// value is combined with the other's old one.
#[test]
fn one_new_diffie_hellman_value_is_enough() {
    for host_begins_with_dh in [false, true] {
        let mut peer = ByHand::established(11, &HostConfig::default(), None);
        let own = peer.own();
        peer.host.rekey(peer.now, own, host_begins_with_dh).unwrap();
        let sent = peer.wait(Duration::ZERO);
        assert_eq!(sent.len(), 1);
        let host_info = info(&sent[0]);
        let host_public = find(&sent[0], |it| match it {
            Parameter::DiffieHellman { public, .. } => Some(public.clone()),
            _ => None,
        });
        assert_eq!((host_public.is_some(), host_info.keymat_index == 0), (host_begins_with_dh, host_begins_with_dh));
        let new = DhKeyPair::generate(GROUP, &mut peer.rng);
        let id = peer.next_id();
        let keymat_index = if host_begins_with_dh { peer.index() } else { 0 };
        let mut update = vec![
            Parameter::EspInfo(EspInfo { keymat_index, old_spi: SPI, new_spi: SPI + 1 }),
            Parameter::Seq(id),
            Parameter::Ack(vec![seq(&sent[0])]),
        ];
        if !host_begins_with_dh {
            update.push(Parameter::DiffieHellman { group: GROUP.id(), public: new.public() });
        }
        let answers = peer.update(update, &[]).unwrap();
        assert_eq!(answers.iter().map(kinds).collect::<Vec<_>>(), [vec![kind::ACK]]);
        let keymat = match &host_public {
            Some(public) => peer.rekeyed(&peer.pair, public),
            None => peer.rekeyed(&new, &peer.public),
        };
        let (outbound, inbound) = EspKeys::draw(peer.suite(), &keymat, 0, own, peer.host.hit()).unwrap();
        let (to_peer, from_peer) = peer.host.security_associations(own).unwrap();
        assert_eq!(to_peer.spi(), SPI + 1);
        assert_eq!(to_peer.keys().encryption, inbound.encryption);
        assert_eq!((from_peer.spi(), &from_peer.keys().encryption), (host_info.new_spi, &outbound.encryption));
    }
}

/// RFC 7401 section 6.15: both hosts have sent CLOSE; each discards the association with the other's CLOSE_ACK.
#[test]
fn two_hosts_that_close_at_once() {
    let mut world = World::established(13, &HostConfig::default());
    for (index, peer) in [(0, world.hit(1)), (1, world.hit(0))] {
        world.hosts[index].close(world.now, peer).unwrap();
    }
    world.run_for(Duration::from_secs(1));
    assert_eq!([world.state(0), world.state(1)], [State::Unassociated; 2]);
    for index in [0, 1] {
        let closed = world.events.iter().filter(|(_, at, event)| *at == index && matches!(event, Event::Closed { .. }));
        assert_eq!(closed.count(), 1);
    }
}

/// RFC 8003 sections 3.2 and 4: requests in I2, several of them, with one REG_RESPONSE; RFC 9028 section 7.8: not both a relay and a
/// rendezvous server; section 4.1: the addresses that belong to a relay's answer.
// Claim: Registration in I2 and UPDATE, also with several requests; a relay's answers have REG_FROM and RELAYED_ADDRESS; a client
// is not served as both a relay's and a rendezvous server's; RVS_HMAC from a relay is dropped and notified; a server that has
// opened the association offers its services; permissions expire after five minutes; the relay accepts a client's signature for
// RELAY_HMAC.
// Tests: `rules::a_client_registers_in_its_i2`, `rules::rvs_hmac_from_a_relay_is_prohibited`,
// `rules::a_server_that_opens_the_association_offers_its_services`, `rules::permissions_expire`,
// `relay::a_client_need_not_send_relay_hmac`
#[test]
fn requests_in_an_i2() {
    let request = |lifetime, types: &[u8]| Parameter::RegRequest(RegList { lifetime, types: types.to_vec() });
    let config = server(&Service::ALL);
    let mut peer = ByHand::new(14, &config, Some(40_000));
    let r1 = peer.ask(&[GROUP.id()]);
    let offer =
        find(&r1, |it| if let Parameter::RegInfo(RegInfo { types, .. }) = it { Some(types.clone()) } else { None });
    assert_eq!(offer, Some(vec![1, 2, 3, 4]));
    let requests = [request(120, &[1, 2, 2]), request(130, &[3, 77])];
    let answers = peer.answer(&r1, &requests, &[]).unwrap();
    let [r2] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(kinds(r2)[..3], [kind::ESP_INFO, kind::REG_RESPONSE, kind::REG_FAILED]);
    let granted = find(r2, |it| if let Parameter::RegResponse(list) = it { Some(list.clone()) } else { None });
    assert_eq!(granted, Some(RegList { lifetime: 120, types: vec![2, 3] }));
    let failed: Vec<&Parameter> = r2.packet.parameters.iter().filter(|it| it.kind() == kind::REG_FAILED).collect();
    let expected =
        [(1, vec![77]), (9, vec![1])].map(|(failure, types)| Parameter::RegFailed(RegFailed { failure, types }));
    assert_eq!(failed, expected.iter().collect::<Vec<_>>());
    let seen = |address: &str, port| RelayAddress { port, protocol: 17, address: address.parse().unwrap() };
    let from = seen("::ffff:192.0.2.1", 40_000);
    assert!(r2.packet.parameters.contains(&Parameter::RegFrom(from)));
    assert!(r2.packet.parameters.contains(&Parameter::RelayedAddress(seen("::ffff:198.51.100.2", 10_500))));
    assert_eq!(peer.host.clients(), (1, 0));

    // Every answer to a client has REG_FROM; CANDIDATE_DISCOVERY asks for it alone (section 4.2).
    for (parameters, expected) in [
        (Vec::new(), vec![kind::ACK, kind::REG_FROM]),
        (vec![request(0, &[2])], vec![kind::ACK, kind::REG_RESPONSE, kind::REG_FROM]),
        (vec![request(120, &[4])], vec![kind::ACK, kind::REG_RESPONSE, kind::REG_FROM]),
    ] {
        let id = peer.next_id();
        let update = parameters.into_iter().chain([Parameter::Seq(id)]).collect();
        assert_eq!(peer.update(update, &[]).unwrap().iter().map(kinds).collect::<Vec<_>>(), [expected]);
    }
    // Without a request an R2 has none of this.
    let mut peer = ByHand::new(15, &config, Some(40_000));
    let r1 = peer.ask(&[GROUP.id()]);
    assert_eq!(kinds(&peer.answer(&r1, &[], &[]).unwrap()[0]), [kind::ESP_INFO]);
}

/// RFC 9028 section 4.12.1: a permission lasts for five minutes; an UPDATE with one from a host without registration is dropped.
#[test]
fn permissions_expire() {
    let mut peer = ByHand::new(16, &server(&[Service::RelayHip, Service::RelayEsp]), Some(40_000));
    let r1 = peer.ask(&[GROUP.id()]);
    peer.answer(&r1, &[], &[]).unwrap();
    let permission = Parameter::PeerPermission(holdover_hip::codec::PeerPermission {
        relayed_port: 10_500,
        relayed: "::ffff:198.51.100.2".parse().unwrap(),
        peer_port: 10_500,
        peer: "::ffff:203.0.113.4".parse().unwrap(),
        protocol: 17,
        outbound_spi: 0x1000,
        inbound_spi: 0x2000,
    });
    let id = peer.next_id();
    let refused = peer.update(vec![Parameter::Seq(id), permission.clone()], &[]).map(|_| ());
    assert_eq!(refused, Err(Dropped::Policy));
    let request = Parameter::RegRequest(RegList { lifetime: 160, types: vec![2, 3] });
    let id = peer.next_id();
    peer.update(vec![Parameter::Seq(id), request], &[]).unwrap();
    let id = peer.next_id();
    peer.update(vec![Parameter::Seq(id), permission], &[]).unwrap();
    let mut bytes = 0x2000_u32.to_be_bytes().to_vec();
    bytes.resize(64, 0);
    let esp = holdover_wire::Payload::Esp(bytes.into());
    let esp = Packet::new(address("203.0.113.4"), address("198.51.100.2"), esp);
    assert!(peer.host.relay(peer.now, &esp).is_ok());
    let later = |seconds| peer.now + Duration::from_secs(seconds);
    let (before, after) = (later(299), later(301));
    assert!(peer.host.relay(before, &esp).is_ok());
    assert!(peer.host.relay(after, &esp).is_err());
}

/// RFC 8003 section 3.1: a server that has opened the association offers its services in an UPDATE, and its client registers then.
#[test]
fn a_server_that_opens_the_association_offers_its_services() {
    let mut world = World::pair(17, Network::CLEAN, &HostConfig::default());
    world.restart(0, Algorithm::Ed25519, 17, 17, &server(&[Service::Rendezvous]));
    let (now, server) = (world.now, world.hit(0));
    world.hosts[1].register(now, server, &[Service::Rendezvous]);
    world.connect(0);
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.hosts[1].services(server), [Service::Rendezvous]);
    let kinds_of = |packet: &Packet| kinds(&HipPacket::parse(packet).unwrap());
    let updates: Vec<Vec<u16>> = world.packets.iter().map(|(_, packet)| kinds_of(packet)).skip(4).collect();
    assert_eq!(updates[0], [kind::SEQ, kind::REG_INFO]);
    assert!(updates.contains(&vec![kind::SEQ, kind::REG_REQUEST]), "{updates:?}");
}

/// RFC 8003 section 3.2: a client registers with I2; nothing is left for an UPDATE.
#[test]
fn a_client_registers_in_its_i2() {
    let services = [Service::Rendezvous];
    let world = World::with_server(18, &HostConfig::default(), &ServerConfig::new(&services), &services);
    assert_eq!(world.hosts[1].services(world.hosts[2].hit()), services);
    let sent: Vec<PacketType> = world.sent.iter().map(|(_, _, kind)| *kind).collect();
    assert_eq!(sent, [PacketType::I1, PacketType::R1, PacketType::I2, PacketType::R2]);
}

/// RFC 9028 section 7.8: RVS_HMAC from a relay is dropped, and the relay is notified; RFC 8004 section 4.3.2: one that does not verify is
/// dropped, also without FROM.
#[test]
fn rvs_hmac_from_a_relay_is_prohibited() {
    let mut peer = ByHand::new(19, &HostConfig::default(), Some(10_500));
    let own = peer.own();
    peer.host.add_peer(own, &[peer.at]);
    peer.host.register(peer.now, own, &[Service::RelayHip, Service::Rendezvous]);
    let r1 = peer.ask(&[GROUP.id()]);
    peer.answer(&r1, &[], &[]).unwrap();
    let offer = RegInfo { min_lifetime: 64, max_lifetime: 120, types: vec![1, 2] };
    let id = peer.next_id();
    peer.update(vec![Parameter::Seq(id), Parameter::RegInfo(offer)], &[]).unwrap();
    let asked = peer.wait(Duration::ZERO);
    let request = find(&asked[0], |it| if let Parameter::RegRequest(list) = it { Some(list.clone()) } else { None });
    assert_eq!(
        request,
        Some(RegList { lifetime: 120, types: vec![2] }),
        "one of both, and not for longer than offered"
    );
    let granted = Parameter::RegResponse(RegList { lifetime: 120, types: vec![2] });
    peer.update(vec![Parameter::Ack(vec![seq(&asked[0])]), granted], &[]).unwrap();
    assert_eq!(peer.host.services(own), [Service::RelayHip]);

    let initiator = key(Algorithm::Ed25519, 55).hit();
    let i1 = |from: Option<&str>, mac: &dyn Fn(&Builder) -> Bytes| {
        let mut i1 = Builder::new(PacketType::I1, initiator, peer.host.hit());
        i1.push(&Parameter::DhGroupList(vec![GROUP.id()])).unwrap();
        from.iter().for_each(|from| i1.push(&Parameter::From(from.parse().unwrap())).unwrap());
        let mac = mac(&i1);
        i1.push(&Parameter::RvsHmac(mac)).unwrap();
        peer.finish(i1)
    };
    let wrong = |_: &Builder| Bytes::from_static(&[1; 32]);
    let right = |builder: &Builder| peer.mac(builder);
    let packets = [i1(None, &wrong), i1(Some("::ffff:192.0.2.99"), &wrong), i1(Some("::ffff:192.0.2.99"), &right)];
    let [alone, forged, valid] = packets;
    assert_eq!(peer.give(&alone).map(|_| ()), Err(Dropped::Mac));
    assert_eq!(peer.give(&forged).map(|_| ()), Err(Dropped::Mac));
    assert_eq!(peer.give(&valid).map(|_| ()), Err(Dropped::Value { kind: kind::RVS_HMAC }));
    let notify = peer.last_sent();
    assert_eq!((notify.packet.kind, notify.packet.receiver), (PacketType::Notify, own));
    let about = find(&notify, |it| if let Parameter::Notification(it) = it { Some(it.kind) } else { None });
    assert_eq!(about, Some(NotifyType::RVS_HMAC_PROHIBITED_WITH_RELAY));
}

/// RFC 9028 section 5.3: a keep-alive of the peer is no event.
#[test]
fn a_keep_alive_is_silent() {
    let mut peer = ByHand::established(20, &HostConfig::default(), Some(10_500));
    for (kind, is_event) in [(NotifyType::NAT_KEEPALIVE, false), (NotifyType::INVALID_SYNTAX, true)] {
        let mut notify = Builder::new(PacketType::Notify, peer.own(), peer.host.hit());
        let notification = holdover_hip::codec::Notification { kind, data: Bytes::new() };
        notify.push(&Parameter::Notification(notification)).unwrap();
        let signature = peer.keys.sign(notify.covered(), &mut peer.rng);
        notify.push(&Parameter::HipSignature(signature)).unwrap();
        let notify = peer.finish(notify);
        assert_eq!(peer.give(&notify).map(|sent| sent.len()), Ok(0));
        assert_eq!(peer.events.iter().any(|it| matches!(it, Event::Notified { .. })), is_event);
    }
}

/// RFC 7401 sections 5.2.20 and 5.2.21: each request is answered, also those added on the way, behind the signature.
// Claim: Echo requests in I2, UPDATE and CLOSE are answered, unsigned ones too; errors of an I2 whose puzzle is solved are
// reported by NOTIFY, at most 20 in a second and 5 to one network, and an invalid Diffie-Hellman value is not.
// Tests: `rules::errors_of_an_i2_are_reported`
#[test]
fn echo_requests_are_answered() {
    let request = |data: &'static [u8]| Parameter::EchoRequestUnsigned(Bytes::from_static(data));
    let responses = |received: &Received| -> Vec<Parameter> {
        let parameters = received.packet.parameters.iter();
        parameters
            .filter(|it| matches!(it.kind(), kind::ECHO_RESPONSE_SIGNED | kind::ECHO_RESPONSE_UNSIGNED))
            .cloned()
            .collect()
    };
    let signed = |data: &'static [u8]| Parameter::EchoResponseSigned(Bytes::from_static(data));
    let unsigned = |data: &'static [u8]| Parameter::EchoResponseUnsigned(Bytes::from_static(data));
    let mut peer = ByHand::new(21, &HostConfig::default(), None);
    let r1 = peer.ask(&[GROUP.id()]);
    let ask = Parameter::EchoRequestSigned(Bytes::from_static(b"signed"));
    let answers = peer.answer(&r1, &[ask], &[]).unwrap();
    assert_eq!(responses(&answers[0]), [signed(b"signed")]);

    let id = peer.next_id();
    for (kind, parameters, expected) in [
        (PacketType::Update, vec![Parameter::Seq(id)], vec![unsigned(b"one"), unsigned(b"two")]),
        (
            PacketType::Close,
            vec![Parameter::EchoRequestSigned(Bytes::from_static(b"nonce"))],
            vec![signed(b"nonce"), unsigned(b"one"), unsigned(b"two")],
        ),
    ] {
        let mut builder = peer.authentic(kind, parameters);
        for data in [&b"one"[..], b"two"] {
            builder.push(&request(data)).unwrap();
        }
        let packet = peer.finish(builder);
        let answers = peer.give(&packet).unwrap();
        assert_eq!(responses(&answers[0]), expected);
    }
}

/// RFC 7401 section 6.9.1: an error in an I2 whose puzzle is solved is reported by NOTIFY; section 5.3.2: not an invalid Diffie-Hellman value.
#[test]
fn errors_of_an_i2_are_reported() {
    let change = |index: usize, parameters: &mut Vec<Parameter>| {
        for parameter in parameters.iter_mut() {
            match (index, parameter) {
                (0, Parameter::HipCipher(ids)) => *ids = vec![1],
                (1, Parameter::EspTransform(ids)) => *ids = vec![7],
                (2, Parameter::HipMac(mac)) => *mac = Bytes::from_static(&[1; 32]),
                (3, Parameter::DiffieHellman { public, .. }) => *public = Bytes::from_static(&[0; 64]),
                _ => {}
            }
        }
    };
    let expected = [
        Some(NotifyType::INVALID_HIP_CIPHER_CHOSEN),
        Some(NotifyType::INVALID_ESP_TRANSFORM_CHOSEN),
        Some(NotifyType::HIP_MAC_FAILED),
        None,
    ];
    for (index, expected) in expected.into_iter().enumerate() {
        let mut peer = ByHand::new(22, &HostConfig::default(), None);
        let r1 = peer.ask(&[GROUP.id()]);
        let mut i2 = peer.i2_packet(&r1);
        change(index, &mut i2.parameters);
        let i2 = i2.emit(peer.at, address("198.51.100.2")).unwrap();
        assert!(peer.give(&i2).is_err());
        let notified = peer.sent().iter().find_map(|it| {
            find(it, |it| if let Parameter::Notification(about) = it { Some(about.clone()) } else { None })
        });
        assert_eq!(notified.as_ref().map(|it| it.kind), expected, "{index}");
        assert!(notified.is_none_or(|it| it.data.is_empty()));
        // A flood is reported at a limited rate.
        let reported = (0..80).filter(|_| peer.give(&i2).is_err() && !peer.sent().is_empty()).count();
        assert!(reported < 20, "{reported}");
    }
}

/// RFC 9028 section 4.10: a NOTIFY keeps the path between a relay and its client alive, beside the dummy packet. A silent peer gets one, too.
#[test]
fn a_keep_alive_to_a_client() {
    for (services, is_silent) in [(&[Service::RelayHip][..], false), (&[], false), (&[], true)] {
        let mut peer = ByHand::new(23, &server(&[Service::RelayHip]), Some(40_000));
        let r1 = peer.ask(&[GROUP.id()]);
        let request = RegList { lifetime: 120, types: services.iter().map(|it| it.number()).collect() };
        peer.answer(&r1, &[Parameter::RegRequest(request)], &[]).unwrap();
        let own = peer.own();
        let dummy = peer.host.keep_alive(peer.now, own, is_silent).unwrap();
        assert_eq!(dummy.dst, peer.at);
        let sent = peer.wait(Duration::ZERO);
        let kinds_of =
            |it: &Received| find(it, |it| if let Parameter::Notification(it) = it { Some(it.kind) } else { None });
        let notified: Vec<_> = sent.iter().filter_map(kinds_of).collect();
        assert_eq!(notified, if services.is_empty() && !is_silent { vec![] } else { vec![NotifyType::NAT_KEEPALIVE] });
    }
}
