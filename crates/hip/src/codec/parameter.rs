//! The parameters of HIP packets as values.

use core::net::Ipv6Addr;

use bytes::Bytes;

use super::{HostId, Locator, NotifyType, kind};

/// A parameter. Lists of numbers keep their order: a receiver takes the first one that it supports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parameter {
    /// ESP_INFO (RFC 7402 section 5.1.1).
    EspInfo(EspInfo),
    /// R1_COUNTER: the generation of the responder's puzzles (RFC 7401 section 5.2.3).
    R1Counter(R1Counter),
    /// LOCATOR_SET (RFC 8046 section 4).
    LocatorSet(Vec<Locator>),
    /// PUZZLE (RFC 7401 section 5.2.4).
    Puzzle(Puzzle),
    /// SOLUTION (RFC 7401 section 5.2.5).
    Solution(Solution),
    /// SEQ: the Update ID of a packet to be acknowledged (RFC 7401 section 5.2.16).
    Seq(u32),
    /// ACK: acknowledged Update IDs of the peer (RFC 7401 section 5.2.17).
    Ack(Vec<u32>),
    /// DH_GROUP_LIST: group IDs, the preferred one first (RFC 7401 section 5.2.6).
    DhGroupList(Vec<u8>),
    /// DIFFIE_HELLMAN (RFC 7401 section 5.2.7).
    DiffieHellman {
        /// The group ID.
        group: u8,
        /// The public value.
        public: Bytes,
    },
    /// HIP_CIPHER: cipher IDs, the preferred one first (RFC 7401 section 5.2.8).
    HipCipher(Vec<u16>),
    /// NAT_TRAVERSAL_MODE: mode IDs, the preferred one first (RFC 9028 section 5.4).
    NatTraversalMode(Vec<u16>),
    /// TRANSACTION_PACING: the least interval between connectivity checks, in milliseconds (RFC 9028 section 5.5).
    TransactionPacing(u32),
    /// ENCRYPTED: initialization vector and encrypted parameters (RFC 7401 section 5.2.18).
    Encrypted(Bytes),
    /// HOST_ID (RFC 7401 section 5.2.9).
    HostId(HostId),
    /// HIT_SUITE_LIST: HIT suites in their 8-bit encoding, the preferred one first (RFC 7401 section 5.2.10).
    HitSuiteList(Vec<u8>),
    /// CERT (RFC 8002 section 2), uninterpreted.
    Certificate(Bytes),
    /// NOTIFICATION (RFC 7401 section 5.2.19).
    Notification(Notification),
    /// ECHO_REQUEST_SIGNED (RFC 7401 section 5.2.20).
    EchoRequestSigned(Bytes),
    /// REG_INFO: services on offer (RFC 8003 section 4.2).
    RegInfo(RegInfo),
    /// REG_REQUEST: requested services (RFC 8003 section 4.3).
    RegRequest(RegList),
    /// REG_RESPONSE: services granted (RFC 8003 section 4.4).
    RegResponse(RegList),
    /// REG_FAILED: services refused (RFC 8003 section 4.5).
    RegFailed(RegFailed),
    /// REG_FROM: the source of a registration as seen by a relay (RFC 9028 section 5.6).
    RegFrom(RelayAddress),
    /// ECHO_RESPONSE_SIGNED (RFC 7401 section 5.2.22).
    EchoResponseSigned(Bytes),
    /// TRANSPORT_FORMAT_LIST: parameter types of transport formats, the preferred one first (RFC 7401 section 5.2.11).
    TransportFormatList(Vec<u16>),
    /// ESP_TRANSFORM: suite IDs, the preferred one first (RFC 7402 section 5.1.2).
    EspTransform(Vec<u16>),
    /// RELAYED_ADDRESS: the address of a relay at which it receives packets for a client (RFC 9028 section 5.12).
    RelayedAddress(RelayAddress),
    /// MAPPED_ADDRESS: the source of a connectivity check as seen by its receiver (RFC 9028 section 5.12).
    MappedAddress(RelayAddress),
    /// PEER_PERMISSION: the peer whose data a relay is to forward (RFC 9028 section 5.13).
    PeerPermission(PeerPermission),
    /// CANDIDATE_PRIORITY: the priority of a peer-reflexive candidate (RFC 9028 section 5.14).
    CandidatePriority(u32),
    /// NOMINATE: concludes connectivity checks (RFC 9028 section 5.15).
    Nominate,
    /// INVITATION: a MAC with the secret of an invitation, and data (`host/invitation.rs`). No standard has it; not critical.
    Invitation(Bytes),
    /// HIP_MAC (RFC 7401 section 5.2.12).
    HipMac(Bytes),
    /// HIP_MAC_2 (RFC 7401 section 5.2.13).
    HipMac2(Bytes),
    /// HIP_SIGNATURE_2 (RFC 7401 section 5.2.15).
    HipSignature2(Signature),
    /// HIP_SIGNATURE (RFC 7401 section 5.2.14).
    HipSignature(Signature),
    /// ECHO_RESPONSE_UNSIGNED (RFC 7401 section 5.2.23).
    EchoResponseUnsigned(Bytes),
    /// ECHO_REQUEST_UNSIGNED (RFC 7401 section 5.2.21).
    EchoRequestUnsigned(Bytes),
    /// RELAY_FROM: the source of a packet as seen by a relay (RFC 9028 section 5.6).
    RelayFrom(RelayAddress),
    /// RELAY_TO: the destination of a packet for a relay (RFC 9028 section 5.6).
    RelayTo(RelayAddress),
    /// FROM: the source of an I1 as seen by a rendezvous server (RFC 8004 section 4.2.2).
    From(Ipv6Addr),
    /// RVS_HMAC (RFC 8004 section 4.2.1).
    RvsHmac(Bytes),
    /// VIA_RVS: the rendezvous servers that forwarded an I1 (RFC 8004 section 4.2.3).
    ViaRvs(Vec<Ipv6Addr>),
    /// RELAY_HMAC (RFC 9028 section 5.8).
    RelayHmac(Bytes),
    /// A parameter that is unknown to this crate and not critical.
    Unknown {
        /// Its type.
        kind: u16,
        /// Its contents.
        contents: Bytes,
    },
}

/// ESP_INFO: the replaced and the new SPI, and the index of the new keys in the keying material.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EspInfo {
    /// The index of the keys, in bytes; 0 if the keys stay or come from a new Diffie-Hellman exchange.
    pub keymat_index: u16,
    /// The sender's inbound SPI that is replaced; 0 if none is.
    pub old_spi: u32,
    /// The sender's inbound SPI from now on.
    pub new_spi: u32,
}

/// The generation of a responder's puzzles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct R1Counter {
    /// Zero from this crate; an initiator returns the responder's.
    pub reserved: [u8; 4],
    /// The counter.
    pub counter: u64,
}

impl R1Counter {
    /// A counter, without reserved bits.
    pub const fn new(counter: u64) -> Self {
        Self { reserved: [0; 4], counter }
    }
}

/// A puzzle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Puzzle {
    /// #K: the number of bits of the hash that have to be zero.
    pub difficulty: u8,
    /// The solution is accepted for 2^(value - 32) s.
    pub lifetime: u8,
    /// Data to be returned with the solution.
    pub opaque: [u8; 2],
    /// #I, as long as the responder's hash.
    pub random: Bytes,
}

/// The solution of a puzzle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Solution {
    /// #K of the puzzle.
    pub difficulty: u8,
    /// The puzzle's opaque data.
    pub opaque: [u8; 2],
    /// #I of the puzzle.
    pub random: Bytes,
    /// #J, as long as #I.
    pub solution: Bytes,
}

/// A signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// The algorithm of the key, as in [`HostId`].
    pub algorithm: u16,
    /// The signature in the encoding of its algorithm.
    pub signature: Bytes,
}

/// An error or a condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// Its type.
    pub kind: NotifyType,
    /// Its data.
    pub data: Bytes,
}

/// Services that a host offers, and the range of their lifetimes (RFC 8003 section 4.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegInfo {
    /// The least lifetime, as 2^((value - 64) / 8) s.
    pub min_lifetime: u8,
    /// The greatest lifetime, in the same encoding.
    pub max_lifetime: u8,
    /// Registration types.
    pub types: Vec<u8>,
}

/// Services that are requested or granted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegList {
    /// The lifetime, as 2^((value - 64) / 8) s; 0 cancels.
    pub lifetime: u8,
    /// Registration types.
    pub types: Vec<u8>,
}

/// Services that are refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegFailed {
    /// The reason (RFC 8003 section 4.5).
    pub failure: u8,
    /// Registration types.
    pub types: Vec<u8>,
}

/// An address and a port as seen by a relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RelayAddress {
    /// The UDP port; 0 for plain IP.
    pub port: u16,
    /// The IP protocol: 17 for UDP, 0 for plain IP.
    pub protocol: u8,
    /// The address; an IPv4 address is mapped.
    pub address: Ipv6Addr,
}

/// Data that a relay forwards between its client and a peer of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerPermission {
    /// The relay's UDP port at which it receives packets for the client.
    pub relayed_port: u16,
    /// The relay's address; an IPv4 address is mapped.
    pub relayed: Ipv6Addr,
    /// The peer's UDP port as seen by the relay.
    pub peer_port: u16,
    /// The peer's address as seen by the relay; an IPv4 address is mapped.
    pub peer: Ipv6Addr,
    /// The IP protocol between relay and peer: 17.
    pub protocol: u8,
    /// The SPI of data from the client to the peer.
    pub outbound_spi: u32,
    /// The SPI of data from the peer to the client.
    pub inbound_spi: u32,
}

impl Parameter {
    /// The parameter's type.
    pub fn kind(&self) -> u16 {
        match self {
            Self::EspInfo(_) => kind::ESP_INFO,
            Self::R1Counter(_) => kind::R1_COUNTER,
            Self::LocatorSet(_) => kind::LOCATOR_SET,
            Self::Puzzle(_) => kind::PUZZLE,
            Self::Solution(_) => kind::SOLUTION,
            Self::Seq(_) => kind::SEQ,
            Self::Ack(_) => kind::ACK,
            Self::DhGroupList(_) => kind::DH_GROUP_LIST,
            Self::DiffieHellman { .. } => kind::DIFFIE_HELLMAN,
            Self::HipCipher(_) => kind::HIP_CIPHER,
            Self::NatTraversalMode(_) => kind::NAT_TRAVERSAL_MODE,
            Self::TransactionPacing(_) => kind::TRANSACTION_PACING,
            Self::Encrypted(_) => kind::ENCRYPTED,
            Self::HostId(_) => kind::HOST_ID,
            Self::HitSuiteList(_) => kind::HIT_SUITE_LIST,
            Self::Certificate(_) => kind::CERT,
            Self::Notification(_) => kind::NOTIFICATION,
            Self::EchoRequestSigned(_) => kind::ECHO_REQUEST_SIGNED,
            Self::RegInfo(_) => kind::REG_INFO,
            Self::RegRequest(_) => kind::REG_REQUEST,
            Self::RegResponse(_) => kind::REG_RESPONSE,
            Self::RegFailed(_) => kind::REG_FAILED,
            Self::RegFrom(_) => kind::REG_FROM,
            Self::EchoResponseSigned(_) => kind::ECHO_RESPONSE_SIGNED,
            Self::TransportFormatList(_) => kind::TRANSPORT_FORMAT_LIST,
            Self::EspTransform(_) => kind::ESP_TRANSFORM,
            Self::RelayedAddress(_) => kind::RELAYED_ADDRESS,
            Self::MappedAddress(_) => kind::MAPPED_ADDRESS,
            Self::PeerPermission(_) => kind::PEER_PERMISSION,
            Self::CandidatePriority(_) => kind::CANDIDATE_PRIORITY,
            Self::Nominate => kind::NOMINATE,
            Self::Invitation(_) => kind::INVITATION,
            Self::HipMac(_) => kind::HIP_MAC,
            Self::HipMac2(_) => kind::HIP_MAC_2,
            Self::HipSignature2(_) => kind::HIP_SIGNATURE_2,
            Self::HipSignature(_) => kind::HIP_SIGNATURE,
            Self::EchoResponseUnsigned(_) => kind::ECHO_RESPONSE_UNSIGNED,
            Self::EchoRequestUnsigned(_) => kind::ECHO_REQUEST_UNSIGNED,
            Self::RelayFrom(_) => kind::RELAY_FROM,
            Self::RelayTo(_) => kind::RELAY_TO,
            Self::From(_) => kind::FROM,
            Self::RvsHmac(_) => kind::RVS_HMAC,
            Self::ViaRvs(_) => kind::VIA_RVS,
            Self::RelayHmac(_) => kind::RELAY_HMAC,
            Self::Unknown { kind, .. } => *kind,
        }
    }
}

/// Whether an unknown parameter of this type makes the whole packet invalid (RFC 7401 section 5.2.1).
pub(super) const fn is_critical(kind: u16) -> bool {
    kind & 1 == 1
}

/// Whether a packet may carry several parameters of this type. RFC 7401 allows it for notifications and unsigned echoes, RFC 8002 for
/// certificates, RFC 8003 for registrations, RFC 8004 section 4.2.2 for FROM; for unknown types it is not known.
pub(super) fn is_repeatable(kind: u16) -> bool {
    matches!(
        kind,
        kind::CERT
            | kind::NOTIFICATION
            | kind::ECHO_REQUEST_UNSIGNED
            | kind::ECHO_RESPONSE_UNSIGNED
            | kind::REG_REQUEST
            | kind::REG_RESPONSE
            | kind::REG_FAILED
            | kind::FROM
    ) || !is_known(kind)
}

fn is_known(kind: u16) -> bool {
    KNOWN.contains(&kind)
}

const KNOWN: [u16; 44] = [
    kind::ESP_INFO,
    kind::R1_COUNTER,
    kind::LOCATOR_SET,
    kind::PUZZLE,
    kind::SOLUTION,
    kind::SEQ,
    kind::ACK,
    kind::DH_GROUP_LIST,
    kind::DIFFIE_HELLMAN,
    kind::HIP_CIPHER,
    kind::NAT_TRAVERSAL_MODE,
    kind::TRANSACTION_PACING,
    kind::ENCRYPTED,
    kind::HOST_ID,
    kind::HIT_SUITE_LIST,
    kind::CERT,
    kind::NOTIFICATION,
    kind::ECHO_REQUEST_SIGNED,
    kind::REG_INFO,
    kind::REG_REQUEST,
    kind::REG_RESPONSE,
    kind::REG_FAILED,
    kind::REG_FROM,
    kind::ECHO_RESPONSE_SIGNED,
    kind::TRANSPORT_FORMAT_LIST,
    kind::ESP_TRANSFORM,
    kind::RELAYED_ADDRESS,
    kind::MAPPED_ADDRESS,
    kind::PEER_PERMISSION,
    kind::CANDIDATE_PRIORITY,
    kind::NOMINATE,
    kind::INVITATION,
    kind::HIP_MAC,
    kind::HIP_MAC_2,
    kind::HIP_SIGNATURE_2,
    kind::HIP_SIGNATURE,
    kind::ECHO_RESPONSE_UNSIGNED,
    kind::ECHO_REQUEST_UNSIGNED,
    kind::RELAY_FROM,
    kind::RELAY_TO,
    kind::FROM,
    kind::RVS_HMAC,
    kind::VIA_RVS,
    kind::RELAY_HMAC,
];
