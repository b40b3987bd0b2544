//! A peer whose packets the test composes, with the keys that a host does not show. It uses this crate's codec and cryptography, which
//! `vectors.rs` compares with another computation.

use core::net::IpAddr;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_hip::PredictableRng;
use holdover_hip::codec::{
    Builder, EspInfo, HipPacket, PacketType, Parameter, Puzzle, Received, Signature, Solution, kind,
};
use holdover_hip::crypto::{DhGroup, DhKeyPair, HipCipher, HipKeys, Keymat, Rhash};
use holdover_hip::esp::EspSuite;
use holdover_hip::host::{Dropped, Event, Host, HostConfig, State};
use holdover_hip::identity::{Algorithm, Hit, HostIdentity, KeyPair};
use holdover_wire::Packet;

use crate::support::{address, key, seeded};
use crate::world::host;

pub(crate) const GROUP: DhGroup = DhGroup::P256;
const CIPHER: HipCipher = HipCipher::Aes128Cbc;
const SUITE: EspSuite = EspSuite::Aes128CbcHmacSha256;
const RHASH: Rhash = Rhash::CShake128;
/// The peer's SPI.
pub(crate) const SPI: u32 = 0x0b00_0001;

/// The peer, as initiator, and the host.
pub(crate) struct ByHand {
    pub(crate) host: Host,
    pub(crate) now: Instant,
    pub(crate) keys: KeyPair,
    pub(crate) rng: PredictableRng,
    /// The peer's address and port; none without UDP.
    pub(crate) at: IpAddr,
    pub(crate) port: Option<u16>,
    pub(crate) to: IpAddr,
    /// This peer's Diffie-Hellman key pair, and the host's public value.
    pub(crate) pair: DhKeyPair,
    pub(crate) public: Bytes,
    /// #I and #J.
    salt: (Vec<u8>, Vec<u8>),
    session: Option<Session>,
    next_id: u32,
    pub(crate) events: Vec<Event>,
    /// The packets that the host has sent last, also if it has dropped a packet.
    last: Vec<Received>,
}

/// The keys to and from the host.
struct Session {
    outbound: HipKeys,
    inbound: HipKeys,
    identity: HostIdentity,
    /// The index after ESP's keys.
    index: usize,
}

impl ByHand {
    pub(crate) fn new(seed: u64, config: &HostConfig, port: Option<u16>) -> Self {
        let mut rng = seeded(seed + 99);
        let (at, to) = (address("192.0.2.1"), address("198.51.100.2"));
        let mut host = host(Algorithm::Ed25519, seed + 1, seed, config);
        let now = Instant::from_secs(1000);
        host.set_locators(now, &[to]);
        let pair = DhKeyPair::generate(GROUP, &mut rng);
        let (keys, public, salt) = (key(Algorithm::Ed25519, seed + 2), Bytes::new(), Default::default());
        let (session, events, last) = (None, Vec::new(), Vec::new());
        Self { host, now, keys, rng, at, port, to, pair, public, salt, session, next_id: 0, events, last }
    }

    /// After an exchange.
    pub(crate) fn established(seed: u64, config: &HostConfig, port: Option<u16>) -> Self {
        let mut peer = Self::new(seed, config, port);
        let r1 = peer.ask(&[GROUP.id()]);
        let answers = peer.answer(&r1, &[], &[]).unwrap();
        assert_eq!(answers[0].packet.kind, PacketType::R2);
        peer
    }

    pub(crate) fn own(&self) -> Hit {
        self.keys.hit()
    }

    pub(crate) fn state(&self) -> State {
        self.host.state(self.own())
    }

    /// Gives a packet to the host; returns what it sends.
    pub(crate) fn give(&mut self, packet: &Packet) -> Result<Vec<Received>, Dropped> {
        let handled = match self.port {
            Some(port) => self.host.handle_packet_in_udp(self.now, packet, port),
            None => self.host.handle_packet(self.now, packet),
        };
        self.events.extend(core::iter::from_fn(|| self.host.poll_event()));
        let sent: Vec<Packet> = core::iter::from_fn(|| self.host.poll_transmit()).collect();
        self.last = sent.iter().map(|packet| HipPacket::parse(packet).unwrap()).collect();
        handled.map(|()| self.last.clone())
    }

    pub(crate) fn last_sent(&self) -> Received {
        self.last.last().unwrap().clone()
    }

    pub(crate) fn sent(&self) -> &[Received] {
        &self.last
    }

    /// The I2 in answer to R1, not sent.
    pub(crate) fn i2_packet(&mut self, r1: &Received) -> HipPacket {
        let i2 = self.i2(r1, &[], &[]);
        HipPacket::parse(&self.finish(i2)).unwrap().packet
    }

    /// The MAC of this peer over a packet so far.
    pub(crate) fn mac(&self, builder: &Builder) -> Bytes {
        RHASH.mac(&self.session.as_ref().unwrap().outbound.integrity, builder.covered()).into()
    }

    pub(crate) fn finish(&self, builder: Builder) -> Packet {
        builder.finish(self.at, self.to)
    }

    /// Sends I1 with these groups; returns R1.
    pub(crate) fn ask(&mut self, groups: &[u8]) -> Received {
        let mut i1 = Builder::new(PacketType::I1, self.own(), self.host.hit());
        i1.push(&Parameter::DhGroupList(groups.to_vec())).unwrap();
        let i1 = self.finish(i1);
        let mut sent = self.give(&i1).unwrap();
        assert_eq!(sent.len(), 1);
        sent.remove(0)
    }

    /// Sends I2 in answer to R1, with further parameters in the clear and in ENCRYPTED; returns what the host sends.
    pub(crate) fn answer(
        &mut self,
        r1: &Received,
        open: &[Parameter],
        hidden: &[Parameter],
    ) -> Result<Vec<Received>, Dropped> {
        let i2 = self.i2(r1, open, hidden);
        let i2 = self.finish(i2);
        self.give(&i2)
    }

    fn i2(&mut self, r1: &Received, open: &[Parameter], hidden: &[Parameter]) -> Builder {
        let packet = &r1.packet;
        let puzzle = packet.find(|it| if let Parameter::Puzzle(it) = it { Some(it.clone()) } else { None }).unwrap();
        assert_eq!(puzzle.difficulty, 0);
        let host_id = packet.find(|it| if let Parameter::HostId(it) = it { Some(it.clone()) } else { None }).unwrap();
        self.public = packet
            .find(|it| match it {
                Parameter::DiffieHellman { group, public } if *group == GROUP.id() => Some(public.clone()),
                _ => None,
            })
            .unwrap();
        let Puzzle { opaque, random, .. } = puzzle;
        let solution = Bytes::from(vec![5; random.len()]);
        self.salt = (random.to_vec(), solution.to_vec());
        let secret = self.pair.agree(&self.public).unwrap();
        let keymat = Keymat::new(RHASH, secret, self.own(), packet.sender, &random, &solution);
        let (outbound, inbound, index) = keymat.hip_keys(CIPHER, self.own(), packet.sender).unwrap();
        let mut parameters = vec![
            Parameter::EspInfo(EspInfo { keymat_index: index as u16, old_spi: 0, new_spi: SPI }),
            Parameter::Solution(Solution { difficulty: 0, opaque, random, solution }),
            Parameter::DiffieHellman { group: GROUP.id(), public: self.pair.public() },
            Parameter::HipCipher(vec![CIPHER.id()]),
            Parameter::HostId(self.keys.identity().host_id(Default::default())),
            Parameter::TransportFormatList(vec![kind::ESP_TRANSFORM]),
            Parameter::EspTransform(vec![SUITE.id()]),
        ];
        parameters.extend(packet.parameters.iter().filter(|it| it.kind() == kind::R1_COUNTER).cloned());
        parameters.extend_from_slice(open);
        let identity = HostIdentity::from_host_id(&host_id).unwrap();
        self.session = Some(Session { outbound, inbound, identity, index: index + SUITE.keymat_len() });
        parameters.extend(self.encrypted(hidden));
        self.authentic(PacketType::I2, parameters)
    }

    fn encrypted(&mut self, hidden: &[Parameter]) -> Option<Parameter> {
        let mut plain = Vec::new();
        hidden.iter().for_each(|it| it.put(&mut plain).unwrap());
        let keys = &self.session.as_ref().unwrap().outbound;
        (!plain.is_empty()).then(|| {
            let data = CIPHER.encrypt(&keys.encryption, &plain, &mut self.rng).unwrap();
            Parameter::Encrypted(data.into())
        })
    }

    /// A packet with MAC and signature.
    pub(crate) fn authentic(&mut self, kind: PacketType, mut parameters: Vec<Parameter>) -> Builder {
        parameters.sort_by_key(Parameter::kind);
        let mut builder = Builder::new(kind, self.own(), self.host.hit());
        parameters.iter().for_each(|it| builder.push(it).unwrap());
        let mac = self.mac(&builder);
        builder.push(&Parameter::HipMac(mac)).unwrap();
        let signature: Signature = self.keys.sign(builder.covered(), &mut self.rng);
        builder.push(&Parameter::HipSignature(signature)).unwrap();
        builder
    }

    pub(crate) fn next_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Sends an UPDATE; returns the answers, whose MACs and signatures are those of the host.
    pub(crate) fn update(&mut self, open: Vec<Parameter>, hidden: &[Parameter]) -> Result<Vec<Received>, Dropped> {
        let parameters = open.into_iter().chain(self.encrypted(hidden)).collect();
        let update = self.authentic(PacketType::Update, parameters);
        let update = self.finish(update);
        let sent = self.give(&update)?;
        let session = self.session.as_ref().unwrap();
        for it in &sent {
            let mac = it.packet.find(|it| if let Parameter::HipMac(mac) = it { Some(mac) } else { None }).unwrap();
            let covered = it.covered_before(kind::HIP_MAC).unwrap();
            assert!(RHASH.verify_mac(&session.inbound.integrity, &covered, mac));
            let signature = it.packet.find(|it| if let Parameter::HipSignature(it) = it { Some(it) } else { None });
            let covered = it.covered_before(kind::HIP_SIGNATURE).unwrap();
            assert!(session.identity.verify(&covered, signature.unwrap()));
        }
        Ok(sent)
    }

    /// The index of the next keys in the material.
    pub(crate) fn index(&self) -> u16 {
        self.session.as_ref().unwrap().index as u16
    }

    /// The keying material of another pair and public value with the same puzzle.
    pub(crate) fn rekeyed(&self, pair: &DhKeyPair, public: &[u8]) -> Keymat {
        let secret = pair.agree(public).unwrap();
        Keymat::new(RHASH, secret, self.own(), self.host.hit(), &self.salt.0, &self.salt.1)
    }

    pub(crate) fn suite(&self) -> EspSuite {
        SUITE
    }

    /// Lets time pass; returns what the host sends meanwhile.
    pub(crate) fn wait(&mut self, time: Duration) -> Vec<Received> {
        self.now += time;
        self.host.handle_timeout(self.now);
        let sent: Vec<Packet> = core::iter::from_fn(|| self.host.poll_transmit()).collect();
        sent.iter().map(|packet| HipPacket::parse(packet).unwrap()).collect()
    }
}

/// The types of a packet's parameters, without MAC and signature.
pub(crate) fn kinds(received: &Received) -> Vec<u16> {
    let kinds = received.packet.parameters.iter().map(Parameter::kind);
    kinds.filter(|it| ![kind::HIP_MAC, kind::HIP_MAC_2, kind::HIP_SIGNATURE].contains(it)).collect()
}
