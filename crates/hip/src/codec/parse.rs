//! Bytes to packets and parameters.

use core::net::{IpAddr, Ipv6Addr};

use bytes::{Buf, Bytes};
use holdover_wire::{Packet, Payload, transport_checksum};

use super::builder::{CHECKSUM, LENGTH, length_field};
use super::parameter::{is_critical, is_repeatable};
use super::write::put_received;
use super::{
    Builder, DecodeError, EspInfo, HEADER_LEN, HipPacket, HostId, Locator, Notification, NotifyType, PROTOCOL,
    PacketType, Parameter, PeerPermission, Puzzle, R1Counter, RegFailed, RegInfo, RegList, RelayAddress, Signature,
    Solution, VERSION, kind,
};
use crate::identity::Hit;

/// A parsed packet, with the bytes that MACs and signatures cover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The packet.
    pub packet: HipPacket,
    /// The HIP header and its parameters, without trailing bytes.
    bytes: Bytes,
    /// The offset of each parameter in `bytes`.
    offsets: Vec<usize>,
}

impl Received {
    /// The bytes covered by a MAC or a signature in the first parameter of type `kind`: everything before it, with the header's length
    /// adjusted and a checksum of zero (RFC 7401 sections 6.4.1 and 6.4.2). `None` if there is no such parameter.
    pub fn covered_before(&self, kind: u16) -> Option<Vec<u8>> {
        let (index, _) = self.locate(kind)?;
        let mut covered = self.bytes[..self.offsets[index]].to_vec();
        covered[CHECKSUM].fill(0);
        covered[LENGTH] = length_field(covered.len());
        Some(covered)
    }

    /// The bytes covered by HIP_SIGNATURE_2: as [`Self::covered_before`], and with zeros for the receiver's HIT and the puzzle's #I and
    /// opaque data, so that an R1 can be signed before its receiver is known (RFC 7401 section 5.2.15).
    pub fn covered_by_signature_2(&self) -> Option<Vec<u8>> {
        let mut covered = self.covered_before(kind::HIP_SIGNATURE_2)?;
        covered[24..HEADER_LEN].fill(0);
        if let Some((index, Parameter::Puzzle(puzzle))) = self.locate(kind::PUZZLE) {
            let opaque = self.offsets[index] + 6;
            covered.get_mut(opaque..opaque + 2 + puzzle.random.len())?.fill(0);
        }
        Some(covered)
    }

    /// The bytes covered by HIP_MAC_2: as [`Self::covered_before`], with the sender's HOST_ID appended (RFC 7401 section 6.4.1).
    pub fn covered_by_mac_2(&self, host_id: &HostId) -> Option<Vec<u8>> {
        let mut covered = self.covered_before(kind::HIP_MAC_2)?;
        put_received(host_id, &mut covered).ok()?;
        covered[LENGTH] = length_field(covered.len());
        Some(covered)
    }

    /// The HIP header and its parameters as received.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The packet without the parameters of types from `kind` on, to which a relay can add its own.
    pub fn truncated(&self, kind: u16) -> Builder {
        let index = self.packet.parameters.iter().position(|parameter| parameter.kind() >= kind);
        let end = index.map_or(self.bytes.len(), |index| self.offsets[index]);
        let kept = &self.packet.parameters[..index.unwrap_or(self.packet.parameters.len())];
        Builder::from_bytes(&self.bytes[..end], kept.last().map(Parameter::kind))
    }

    fn locate(&self, kind: u16) -> Option<(usize, &Parameter)> {
        self.packet.parameters.iter().enumerate().find(|(_, parameter)| parameter.kind() == kind)
    }
}

pub(super) fn parse(packet: &Packet) -> Result<Received, DecodeError> {
    let Payload::Other { protocol: PROTOCOL, payload } = &packet.payload else { return Err(DecodeError::NotHip) };
    let bytes = check_header(payload)?;
    if checksum(packet.src, packet.dst, &bytes) != 0 {
        return Err(DecodeError::Checksum);
    }
    // The bit above it and the lowest one of the next byte are fixed, and ignored (RFC 7401 section 5.1).
    let kind = bytes[2] & 0x7f;
    let kind = PacketType::from_number(kind).ok_or(DecodeError::PacketType { kind })?;
    let controls = u16::from_be_bytes([bytes[6], bytes[7]]);
    let (sender, receiver) = (hit(&bytes[8..24]), hit(&bytes[24..40]));
    let (parameters, offsets) = read_parameters(&bytes, HEADER_LEN)?;
    Ok(Received { packet: HipPacket { kind, controls, sender, receiver, parameters }, bytes, offsets })
}

/// Checks the fixed header except for the checksum; returns the packet without trailing bytes.
fn check_header(payload: &Bytes) -> Result<Bytes, DecodeError> {
    let have = payload.len();
    if have < HEADER_LEN {
        return Err(DecodeError::Truncated { needed: HEADER_LEN, have });
    }
    let len = (usize::from(payload[LENGTH]) + 1) * 8;
    if len < HEADER_LEN {
        return Err(DecodeError::HeaderLength { len });
    }
    if len > have {
        return Err(DecodeError::Truncated { needed: len, have });
    }
    let version = payload[3] >> 4;
    if version != VERSION >> 4 {
        return Err(DecodeError::Version { version });
    }
    Ok(payload.slice(..len))
}

fn checksum(src: IpAddr, dst: IpAddr, bytes: &[u8]) -> u16 {
    transport_checksum(src, dst, PROTOCOL, bytes)
}

/// Parses parameters from `start` on. For those from ENCRYPTED, `start` is 0.
pub(crate) fn read_parameters(bytes: &Bytes, start: usize) -> Result<(Vec<Parameter>, Vec<usize>), DecodeError> {
    let (mut parameters, mut offsets) = (Vec::new(), Vec::new());
    let (mut at, mut last) = (start, None);
    while at < bytes.len() {
        let have = bytes.len() - at;
        let head = bytes.get(at..at + 4).ok_or(DecodeError::Truncated { needed: 4, have })?;
        let kind = u16::from_be_bytes([head[0], head[1]]);
        let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let needed = (4 + len).next_multiple_of(8);
        if needed > have {
            return Err(DecodeError::Truncated { needed, have });
        }
        match last {
            Some(after) if kind < after => return Err(DecodeError::Order { kind, after }),
            Some(after) if kind == after && !is_repeatable(kind) => return Err(DecodeError::Repeated { kind }),
            _ => last = Some(kind),
        }
        let contents = bytes.slice(at + 4..at + 4 + len);
        parameters.push(read_parameter(kind, &contents)?);
        offsets.push(at);
        at += needed;
    }
    Ok((parameters, offsets))
}

fn read_parameter(kind: u16, contents: &Bytes) -> Result<Parameter, DecodeError> {
    let malformed = DecodeError::Parameter { kind, len: contents.len() };
    if let Some(parameter) = opaque(kind, contents) {
        return Ok(parameter);
    }
    let parameter = match kind {
        kind::ESP_INFO
        | kind::R1_COUNTER
        | kind::SEQ
        | kind::ACK
        | kind::TRANSACTION_PACING
        | kind::CANDIDATE_PRIORITY
        | kind::NOMINATE => numbers(kind, contents),
        kind::PUZZLE | kind::SOLUTION | kind::DIFFIE_HELLMAN => exchange(kind, contents),
        kind::LOCATOR_SET => Locator::read_all(contents).map(Parameter::LocatorSet),
        kind::HOST_ID => HostId::read(contents).map(Parameter::HostId),
        kind::DH_GROUP_LIST | kind::HIT_SUITE_LIST => bytes_list(kind, contents),
        kind::HIP_CIPHER | kind::TRANSPORT_FORMAT_LIST | kind::ESP_TRANSFORM | kind::NAT_TRAVERSAL_MODE => {
            words_list(kind, contents)
        }
        kind::REG_INFO | kind::REG_REQUEST | kind::REG_RESPONSE | kind::REG_FAILED => registration(kind, contents),
        kind::REG_FROM
        | kind::RELAYED_ADDRESS
        | kind::MAPPED_ADDRESS
        | kind::RELAY_FROM
        | kind::RELAY_TO
        | kind::FROM
        | kind::VIA_RVS => addresses(kind, contents),
        kind::PEER_PERMISSION => permission(contents),
        kind::NOTIFICATION | kind::ENCRYPTED | kind::HIP_SIGNATURE | kind::HIP_SIGNATURE_2 => headed(kind, contents),
        _ if is_critical(kind) => return Err(DecodeError::Critical { kind }),
        _ => Some(Parameter::Unknown { kind, contents: contents.clone() }),
    };
    parameter.ok_or(malformed)
}

/// Parses parameters whose contents have no structure.
fn opaque(kind: u16, contents: &Bytes) -> Option<Parameter> {
    let data = contents.clone();
    Some(match kind {
        kind::CERT => Parameter::Certificate(data),
        kind::INVITATION => Parameter::Invitation(data),
        kind::HIP_MAC => Parameter::HipMac(data),
        kind::HIP_MAC_2 => Parameter::HipMac2(data),
        kind::ECHO_REQUEST_SIGNED => Parameter::EchoRequestSigned(data),
        kind::ECHO_RESPONSE_SIGNED => Parameter::EchoResponseSigned(data),
        kind::ECHO_REQUEST_UNSIGNED => Parameter::EchoRequestUnsigned(data),
        kind::ECHO_RESPONSE_UNSIGNED => Parameter::EchoResponseUnsigned(data),
        kind::RVS_HMAC => Parameter::RvsHmac(data),
        kind::RELAY_HMAC => Parameter::RelayHmac(data),
        _ => return None,
    })
}

fn numbers(kind: u16, contents: &Bytes) -> Option<Parameter> {
    let mut rest = contents.clone();
    match (kind, contents.len()) {
        (kind::ESP_INFO, 12) => {
            rest.advance(2);
            let keymat_index = rest.get_u16();
            Some(Parameter::EspInfo(EspInfo { keymat_index, old_spi: rest.get_u32(), new_spi: rest.get_u32() }))
        }
        (kind::R1_COUNTER, 12) => {
            let reserved = rest.get_u32().to_be_bytes();
            Some(Parameter::R1Counter(R1Counter { reserved, counter: rest.get_u64() }))
        }
        (kind::SEQ, 4) => Some(Parameter::Seq(rest.get_u32())),
        (kind::TRANSACTION_PACING, 4) => Some(Parameter::TransactionPacing(rest.get_u32())),
        (kind::CANDIDATE_PRIORITY, 4) => Some(Parameter::CandidatePriority(rest.get_u32())),
        (kind::NOMINATE, 4) => Some(Parameter::Nominate),
        (kind::ACK, len) if len >= 4 && len.is_multiple_of(4) => {
            Some(Parameter::Ack((0..len / 4).map(|_| rest.get_u32()).collect()))
        }
        _ => None,
    }
}

fn exchange(kind: u16, contents: &Bytes) -> Option<Parameter> {
    let head: [u8; 3] = contents.get(..3)?.try_into().ok()?;
    if kind == kind::DIFFIE_HELLMAN {
        let [group, high, low] = head;
        let public = contents.slice(3..);
        return (public.len() == usize::from(u16::from_be_bytes([high, low])))
            .then_some(Parameter::DiffieHellman { group, public });
    }
    let [difficulty, lifetime, opaque] = head;
    let opaque = [opaque, *contents.get(3)?];
    let random = contents.slice(4..);
    if kind == kind::PUZZLE {
        return (!random.is_empty()).then_some(Parameter::Puzzle(Puzzle { difficulty, lifetime, opaque, random }));
    }
    let half = random.len() / 2;
    (half > 0 && random.len() == 2 * half).then(|| {
        let (random, solution) = (random.slice(..half), random.slice(half..));
        Parameter::Solution(Solution { difficulty, opaque, random, solution })
    })
}

fn bytes_list(kind: u16, contents: &Bytes) -> Option<Parameter> {
    let ids = contents.to_vec();
    (!ids.is_empty()).then(|| match kind {
        kind::DH_GROUP_LIST => Parameter::DhGroupList(ids),
        _ => Parameter::HitSuiteList(ids),
    })
}

fn words_list(kind: u16, contents: &Bytes) -> Option<Parameter> {
    let mut rest = contents.clone();
    if matches!(kind, kind::ESP_TRANSFORM | kind::NAT_TRAVERSAL_MODE) {
        rest.try_get_u16().ok()?;
    }
    if rest.is_empty() || !rest.len().is_multiple_of(2) {
        return None;
    }
    let ids = (0..rest.len() / 2).map(|_| rest.get_u16()).collect();
    Some(match kind {
        kind::HIP_CIPHER => Parameter::HipCipher(ids),
        kind::TRANSPORT_FORMAT_LIST => Parameter::TransportFormatList(ids),
        kind::ESP_TRANSFORM => Parameter::EspTransform(ids),
        _ => Parameter::NatTraversalMode(ids),
    })
}

fn registration(kind: u16, contents: &Bytes) -> Option<Parameter> {
    let &first = contents.first()?;
    let types = || contents[1..].to_vec();
    Some(match kind {
        kind::REG_REQUEST => Parameter::RegRequest(RegList { lifetime: first, types: types() }),
        kind::REG_RESPONSE => Parameter::RegResponse(RegList { lifetime: first, types: types() }),
        kind::REG_FAILED => Parameter::RegFailed(RegFailed { failure: first, types: types() }),
        _ => Parameter::RegInfo(RegInfo {
            min_lifetime: first,
            max_lifetime: *contents.get(1)?,
            types: contents[2..].to_vec(),
        }),
    })
}

fn addresses(kind: u16, contents: &Bytes) -> Option<Parameter> {
    let mut rest = contents.clone();
    match (kind, contents.len()) {
        (kind::FROM, 16) => Some(Parameter::From(Ipv6Addr::from(rest.get_u128()))),
        (kind::VIA_RVS, len) if len >= 16 && len.is_multiple_of(16) => {
            Some(Parameter::ViaRvs((0..len / 16).map(|_| Ipv6Addr::from(rest.get_u128())).collect()))
        }
        (kind::REG_FROM | kind::RELAYED_ADDRESS | kind::MAPPED_ADDRESS | kind::RELAY_FROM | kind::RELAY_TO, 20) => {
            let (port, protocol) = (rest.get_u16(), rest.get_u8());
            rest.advance(1);
            let address = RelayAddress { port, protocol, address: Ipv6Addr::from(rest.get_u128()) };
            Some(match kind {
                kind::REG_FROM => Parameter::RegFrom(address),
                kind::RELAYED_ADDRESS => Parameter::RelayedAddress(address),
                kind::MAPPED_ADDRESS => Parameter::MappedAddress(address),
                kind::RELAY_FROM => Parameter::RelayFrom(address),
                _ => Parameter::RelayTo(address),
            })
        }
        _ => None,
    }
}

fn permission(contents: &Bytes) -> Option<Parameter> {
    let mut rest = contents.clone();
    if rest.len() != 48 {
        return None;
    }
    let (relayed_port, peer_port, protocol) = (rest.get_u16(), rest.get_u16(), rest.get_u8());
    rest.advance(3);
    let (relayed, peer) = (Ipv6Addr::from(rest.get_u128()), Ipv6Addr::from(rest.get_u128()));
    let (outbound_spi, inbound_spi) = (rest.get_u32(), rest.get_u32());
    let permission = PeerPermission { relayed_port, relayed, peer_port, peer, protocol, outbound_spi, inbound_spi };
    Some(Parameter::PeerPermission(permission))
}

/// Parses parameters with a few bytes before their data.
fn headed(kind: u16, contents: &Bytes) -> Option<Parameter> {
    let word = |at: usize| Some(u16::from_be_bytes([*contents.get(at)?, *contents.get(at + 1)?]));
    let signature = || Some(Signature { algorithm: word(0)?, signature: contents.slice(2..) });
    Some(match kind {
        kind::HIP_SIGNATURE => Parameter::HipSignature(signature()?),
        kind::HIP_SIGNATURE_2 => Parameter::HipSignature2(signature()?),
        kind::NOTIFICATION => {
            Parameter::Notification(Notification { kind: NotifyType(word(2)?), data: contents.slice(4..) })
        }
        _ => Parameter::Encrypted((contents.len() > 4).then(|| contents.slice(4..))?),
    })
}

fn hit(bytes: &[u8]) -> Hit {
    let mut octets = [0; 16];
    octets.copy_from_slice(bytes);
    Hit(Ipv6Addr::from(octets))
}
