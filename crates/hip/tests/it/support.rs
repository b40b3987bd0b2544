//! Shared by the tests: reproducible randomness, keys, and packets with every parameter.

use std::net::IpAddr;

use bytes::Bytes;
use holdover_base::Rng;
use holdover_hip::PredictableRng;
use holdover_hip::codec::{
    CandidateKind, DomainId, EspInfo, HostId, Locator, LocatorKind, LocatorTraffic, Notification, NotifyType,
    Parameter, PeerPermission, Puzzle, R1Counter, RegFailed, RegInfo, RegList, RelayAddress, Signature, Solution,
    TransportAddress,
};
use holdover_hip::identity::{Algorithm, Hit, KeyPair};
use holdover_wire::Packet;

/// Randomness from a seed.
pub(crate) fn seeded(seed: u64) -> PredictableRng {
    PredictableRng::new(Rng::new(seed))
}

pub(crate) fn key(algorithm: Algorithm, seed: u64) -> KeyPair {
    KeyPair::generate(algorithm, &mut seeded(seed))
}

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn hit(text: &str) -> Hit {
    Hit(text.parse().unwrap())
}

/// One parameter of each type, in order.
pub(crate) fn every_parameter() -> Vec<Parameter> {
    let data = |len: u8| Bytes::from((1..=len).collect::<Vec<u8>>());
    let relay = RelayAddress { port: 10_500, protocol: 17, address: "::ffff:192.0.2.7".parse().unwrap() };
    let signature = || Signature { algorithm: 13, signature: data(64) };
    let list = || RegList { lifetime: 111, types: vec![1, 2] };
    let mut parameters = vec![
        Parameter::EspInfo(EspInfo { keymat_index: 128, old_spi: 0, new_spi: 0xdead_beef }),
        Parameter::R1Counter(R1Counter { reserved: [1, 2, 3, 4], counter: 7 }),
        Parameter::LocatorSet(locators()),
        Parameter::Puzzle(Puzzle { difficulty: 10, lifetime: 37, opaque: [1, 2], random: data(32) }),
        Parameter::Solution(Solution { difficulty: 10, opaque: [1, 2], random: data(48), solution: data(48) }),
        Parameter::Seq(1),
        Parameter::Ack(vec![2, u32::MAX]),
        Parameter::DhGroupList(vec![7, 8, 4]),
        Parameter::DiffieHellman { group: 7, public: data(64) },
        Parameter::HipCipher(vec![4, 2]),
        Parameter::NatTraversalMode(vec![1, 3]),
        Parameter::TransactionPacing(50),
        Parameter::Encrypted(data(48)),
        Parameter::HostId(HostId {
            algorithm: 13,
            identity: data(36),
            domain: DomainId { kind: 2, id: Bytes::from_static(b"alice@example.org") },
        }),
        Parameter::HitSuiteList(vec![0x50, 0x20, 0x10]),
        Parameter::Certificate(data(5)),
        Parameter::Notification(Notification { kind: NotifyType::INVALID_HIT, data: data(3) }),
        Parameter::EchoRequestSigned(data(9)),
        Parameter::RegInfo(RegInfo { min_lifetime: 64, max_lifetime: 200, types: vec![1] }),
        Parameter::RegRequest(list()),
        Parameter::RegResponse(list()),
        Parameter::RegFailed(RegFailed { failure: 2, types: vec![2] }),
        Parameter::RegFrom(relay),
        Parameter::EchoResponseSigned(data(9)),
        Parameter::Unknown { kind: 2050, contents: data(13) },
        Parameter::TransportFormatList(vec![4095]),
        Parameter::EspTransform(vec![13, 8, 7]),
        Parameter::RelayedAddress(relay),
        Parameter::MappedAddress(relay),
        Parameter::CandidatePriority(u32::MAX - 1),
        Parameter::Nominate,
        Parameter::PeerPermission(PeerPermission {
            relayed_port: 10_500,
            relayed: "2001:db8::9".parse().unwrap(),
            peer_port: 40_000,
            peer: "::ffff:192.0.2.7".parse().unwrap(),
            protocol: 17,
            outbound_spi: 0x1234_5678,
            inbound_spi: 0x9abc_def0,
        }),
        Parameter::Invitation(data(40)),
        Parameter::HipMac(data(32)),
        Parameter::HipMac2(data(32)),
        Parameter::HipSignature2(signature()),
        Parameter::HipSignature(signature()),
        Parameter::EchoResponseUnsigned(data(1)),
        Parameter::EchoRequestUnsigned(data(0)),
        Parameter::RelayFrom(relay),
        Parameter::RelayTo(relay),
        Parameter::From("2001:db8::1".parse().unwrap()),
        Parameter::RvsHmac(data(32)),
        Parameter::ViaRvs(vec!["2001:db8::2".parse().unwrap()]),
        Parameter::RelayHmac(data(32)),
    ];
    parameters.sort_by_key(Parameter::kind);
    parameters
}

fn locators() -> Vec<Locator> {
    let other = LocatorKind::Other { number: 9, contents: Bytes::from_static(&[0; 12]) };
    vec![
        Locator::esp("192.0.2.1".parse().unwrap(), 0x100, 600, true),
        Locator {
            traffic: LocatorTraffic::Signalling,
            preferred: false,
            lifetime_s: u32::MAX,
            kind: LocatorKind::Address("2001:db8::1".parse().unwrap()),
        },
        Locator {
            traffic: LocatorTraffic::Data,
            preferred: false,
            lifetime_s: 60,
            kind: LocatorKind::Transport(TransportAddress {
                port: 40_000,
                protocol: 17,
                kind: CandidateKind::ServerReflexive,
                priority: 0x6400_ffff,
                spi: 0x100,
                address: "::ffff:192.0.2.1".parse().unwrap(),
            }),
        },
        Locator { traffic: LocatorTraffic::Unknown(7), preferred: false, lifetime_s: 0, kind: other },
    ]
}

/// The value of a packet, without the bytes in which it came.
pub(crate) fn value_of(packet: Packet) -> Packet {
    Packet { received: None, ..packet }
}
