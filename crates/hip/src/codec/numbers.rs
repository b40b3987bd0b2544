//! Numbers of the IANA registry "Host Identity Protocol (HIP) Parameters".

use core::fmt;

/// Parameter types (RFC 7401 section 5.2, RFC 7402 section 5.1, RFC 8003 section 4, RFC 8004 section 4.2, RFC 8046 section 4, RFC 9028
/// section 5).
pub mod kind {
    #![allow(missing_docs)]
    pub const ESP_INFO: u16 = 65;
    pub const R1_COUNTER: u16 = 129;
    pub const LOCATOR_SET: u16 = 193;
    pub const PUZZLE: u16 = 257;
    pub const SOLUTION: u16 = 321;
    pub const SEQ: u16 = 385;
    pub const ACK: u16 = 449;
    pub const DH_GROUP_LIST: u16 = 511;
    pub const DIFFIE_HELLMAN: u16 = 513;
    pub const HIP_CIPHER: u16 = 579;
    pub const NAT_TRAVERSAL_MODE: u16 = 608;
    pub const TRANSACTION_PACING: u16 = 610;
    pub const ENCRYPTED: u16 = 641;
    pub const HOST_ID: u16 = 705;
    pub const HIT_SUITE_LIST: u16 = 715;
    pub const CERT: u16 = 768;
    pub const NOTIFICATION: u16 = 832;
    pub const ECHO_REQUEST_SIGNED: u16 = 897;
    pub const REG_INFO: u16 = 930;
    pub const REG_REQUEST: u16 = 932;
    pub const REG_RESPONSE: u16 = 934;
    pub const REG_FAILED: u16 = 936;
    pub const REG_FROM: u16 = 950;
    pub const ECHO_RESPONSE_SIGNED: u16 = 961;
    pub const TRANSPORT_FORMAT_LIST: u16 = 2049;
    pub const ESP_TRANSFORM: u16 = 4095;
    pub const RELAYED_ADDRESS: u16 = 4650;
    pub const MAPPED_ADDRESS: u16 = 4660;
    pub const PEER_PERMISSION: u16 = 4680;
    pub const CANDIDATE_PRIORITY: u16 = 4700;
    pub const NOMINATE: u16 = 4710;
    /// Of the range for experiments (RFC 7401 section 5.2.1): proof of an invitation, and data of the host that accepts it.
    pub const INVITATION: u16 = 40_914;
    pub const HIP_MAC: u16 = 61_505;
    pub const HIP_MAC_2: u16 = 61_569;
    pub const HIP_SIGNATURE_2: u16 = 61_633;
    pub const HIP_SIGNATURE: u16 = 61_697;
    pub const ECHO_RESPONSE_UNSIGNED: u16 = 63_425;
    pub const ECHO_REQUEST_UNSIGNED: u16 = 63_661;
    pub const RELAY_FROM: u16 = 63_998;
    pub const RELAY_TO: u16 = 64_002;
    pub const FROM: u16 = 65_498;
    pub const RVS_HMAC: u16 = 65_500;
    pub const VIA_RVS: u16 = 65_502;
    pub const RELAY_HMAC: u16 = 65_520;
}

/// Packet types (RFC 7401 section 5.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PacketType {
    /// The initiator requests an exchange.
    I1,
    /// The responder's puzzle, Diffie-Hellman value and identity.
    R1,
    /// The initiator's solution, Diffie-Hellman value and identity.
    I2,
    /// The responder confirms.
    R2,
    /// Changes an association: locators, keys.
    Update,
    /// Reports an error or a condition; never answered.
    Notify,
    /// Ends an association.
    Close,
    /// Confirms a CLOSE.
    CloseAck,
}

impl PacketType {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::I1, Self::R1, Self::I2, Self::R2, Self::Update, Self::Notify, Self::Close, Self::CloseAck];

    /// The number in the header.
    pub const fn number(self) -> u8 {
        match self {
            Self::I1 => 1,
            Self::R1 => 2,
            Self::I2 => 3,
            Self::R2 => 4,
            Self::Update => 16,
            Self::Notify => 17,
            Self::Close => 18,
            Self::CloseAck => 19,
        }
    }

    /// The type with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

impl fmt::Display for PacketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::I1 => "I1",
            Self::R1 => "R1",
            Self::I2 => "I2",
            Self::R2 => "R2",
            Self::Update => "UPDATE",
            Self::Notify => "NOTIFY",
            Self::Close => "CLOSE",
            Self::CloseAck => "CLOSE_ACK",
        })
    }
}

/// Notify message types (RFC 7401 section 5.2.19). Those below 16,384 are errors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NotifyType(pub u16);

impl NotifyType {
    /// A critical parameter is unknown; the data is its type.
    pub const UNSUPPORTED_CRITICAL_PARAMETER_TYPE: Self = Self(1);
    /// A length or a field is out of range.
    pub const INVALID_SYNTAX: Self = Self(7);
    /// None of the proposed Diffie-Hellman groups is acceptable.
    pub const NO_DH_PROPOSAL_CHOSEN: Self = Self(14);
    /// The Diffie-Hellman group was not offered.
    pub const INVALID_DH_CHOSEN: Self = Self(15);
    /// None of the proposed HIT suites or HIP ciphers is acceptable.
    pub const NO_HIP_PROPOSAL_CHOSEN: Self = Self(16);
    /// The HIP cipher was not offered.
    pub const INVALID_HIP_CIPHER_CHOSEN: Self = Self(17);
    /// The HIT suite of the receiver is not supported.
    pub const UNSUPPORTED_HIT_SUITE: Self = Self(20);
    /// None of the proposed ESP transforms is acceptable (RFC 7402 section 5.1.3).
    pub const NO_ESP_PROPOSAL_CHOSEN: Self = Self(18);
    /// The ESP transform was not offered (RFC 7402 section 5.1.3).
    pub const INVALID_ESP_TRANSFORM_CHOSEN: Self = Self(19);
    /// A signature is wrong.
    pub const AUTHENTICATION_FAILED: Self = Self(24);
    /// A checksum is wrong.
    pub const CHECKSUM_FAILED: Self = Self(26);
    /// A MAC is wrong.
    pub const HIP_MAC_FAILED: Self = Self(28);
    /// ENCRYPTED cannot be decrypted.
    pub const ENCRYPTION_FAILED: Self = Self(32);
    /// The HIT is not the hash of the host identity.
    pub const INVALID_HIT: Self = Self(40);
    /// The responder's policy refuses the exchange.
    pub const BLOCKED_BY_POLICY: Self = Self(42);
    /// The responder is overloaded; a retry needs another solution.
    pub const RESPONDER_BUSY_PLEASE_RETRY: Self = Self(44);
    /// A preferred locator has a type that is not supported; the data are such locators (RFC 8046 section 5.3).
    pub const LOCATOR_TYPE_UNSUPPORTED: Self = Self(46);
    /// The server has associations with clients that register only (RFC 8003 section 3.2).
    pub const REG_REQUIRED: Self = Self(51);
    /// The NAT traversal mode is missing, or was not offered (RFC 9028 section 5.10).
    pub const NO_VALID_NAT_TRAVERSAL_MODE_PARAMETER: Self = Self(60);
    /// No path was found between two hosts behind translators (RFC 9028 section 5.10).
    pub const CONNECTIVITY_CHECKS_FAILED: Self = Self(61);
    /// A relay has not forwarded a packet; the data is its HIP header (RFC 9028 section 5.10).
    pub const MESSAGE_NOT_RELAYED: Self = Self(62);
    /// A relay has no address for the client (RFC 9028 section 5.10).
    pub const SERVER_REFLEXIVE_CANDIDATE_ALLOCATION_FAILED: Self = Self(63);
    /// A relay has sent RVS_HMAC (RFC 9028 sections 5.10 and 7.8).
    pub const RVS_HMAC_PROHIBITED_WITH_RELAY: Self = Self(64);
    /// The responder has an I2 and will answer later.
    pub const I2_ACKNOWLEDGEMENT: Self = Self(16_384);
    /// Keeps the bindings of translators alive; without data (RFC 9028 section 5.3).
    pub const NAT_KEEPALIVE: Self = Self(16_385);

    /// Its name in the registry; `None` if it is not known.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::UNSUPPORTED_CRITICAL_PARAMETER_TYPE => "UNSUPPORTED_CRITICAL_PARAMETER_TYPE",
            Self::INVALID_SYNTAX => "INVALID_SYNTAX",
            Self::NO_DH_PROPOSAL_CHOSEN => "NO_DH_PROPOSAL_CHOSEN",
            Self::INVALID_DH_CHOSEN => "INVALID_DH_CHOSEN",
            Self::NO_HIP_PROPOSAL_CHOSEN => "NO_HIP_PROPOSAL_CHOSEN",
            Self::INVALID_HIP_CIPHER_CHOSEN => "INVALID_HIP_CIPHER_CHOSEN",
            Self::NO_ESP_PROPOSAL_CHOSEN => "NO_ESP_PROPOSAL_CHOSEN",
            Self::INVALID_ESP_TRANSFORM_CHOSEN => "INVALID_ESP_TRANSFORM_CHOSEN",
            Self::UNSUPPORTED_HIT_SUITE => "UNSUPPORTED_HIT_SUITE",
            Self::AUTHENTICATION_FAILED => "AUTHENTICATION_FAILED",
            Self::CHECKSUM_FAILED => "CHECKSUM_FAILED",
            Self::HIP_MAC_FAILED => "HIP_MAC_FAILED",
            Self::ENCRYPTION_FAILED => "ENCRYPTION_FAILED",
            Self::INVALID_HIT => "INVALID_HIT",
            Self::BLOCKED_BY_POLICY => "BLOCKED_BY_POLICY",
            Self::RESPONDER_BUSY_PLEASE_RETRY => "RESPONDER_BUSY_PLEASE_RETRY",
            Self::LOCATOR_TYPE_UNSUPPORTED => "LOCATOR_TYPE_UNSUPPORTED",
            Self::REG_REQUIRED => "REG_REQUIRED",
            Self::NO_VALID_NAT_TRAVERSAL_MODE_PARAMETER => "NO_VALID_NAT_TRAVERSAL_MODE_PARAMETER",
            Self::CONNECTIVITY_CHECKS_FAILED => "CONNECTIVITY_CHECKS_FAILED",
            Self::MESSAGE_NOT_RELAYED => "MESSAGE_NOT_RELAYED",
            Self::SERVER_REFLEXIVE_CANDIDATE_ALLOCATION_FAILED => "SERVER_REFLEXIVE_CANDIDATE_ALLOCATION_FAILED",
            Self::RVS_HMAC_PROHIBITED_WITH_RELAY => "RVS_HMAC_PROHIBITED_WITH_RELAY",
            Self::I2_ACKNOWLEDGEMENT => "I2_ACKNOWLEDGEMENT",
            Self::NAT_KEEPALIVE => "NAT_KEEPALIVE",
            _ => return None,
        })
    }

    /// Whether it is an error, not a status.
    pub const fn is_error(self) -> bool {
        self.0 < 16_384
    }
}

/// The name in the registry, or the number.
impl fmt::Display for NotifyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "NOTIFY type {}", self.0),
        }
    }
}

/// NAT traversal modes (RFC 9028 section 5.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NatTraversalMode {
    /// UDP-ENCAPSULATION: HIP and ESP in UDP, without connectivity checks.
    UdpEncapsulation,
    /// ICE-STUN-UDP (RFC 5770).
    IceStunUdp,
    /// ICE-HIP-UDP: connectivity checks by UPDATEs.
    IceHipUdp,
}

impl NatTraversalMode {
    /// The most modes in a NAT_TRAVERSAL_MODE; a receiver ignores further ones.
    pub const MOST: usize = 6;

    /// The mode ID.
    pub const fn id(self) -> u16 {
        match self {
            Self::UdpEncapsulation => 1,
            Self::IceStunUdp => 2,
            Self::IceHipUdp => 3,
        }
    }
}
