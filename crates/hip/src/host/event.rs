//! Events for the owner, and reasons for dropped packets.

use core::fmt;
use core::net::IpAddr;

use holdover_base::Duration;
use holdover_wire::Packet;

use super::registry::Service;
use crate::codec::{DecodeError, Notification, NotifyType, kind};
use crate::crypto::{DhError, KeymatError};
use crate::esp::{OpenError, SealError};
use crate::identity::{Hit, IdentityError};

/// The states of an association (RFC 7401 section 4.4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum State {
    /// There is no association.
    #[default]
    Unassociated,
    /// This host has sent I1.
    I1Sent,
    /// This host has sent I2.
    I2Sent,
    /// This host has sent R2, and nothing shows yet that it arrived.
    R2Sent,
    /// Both hosts have keys.
    Established,
    /// This host has sent CLOSE.
    Closing,
    /// The peer has sent CLOSE, this host CLOSE_ACK.
    Closed,
    /// The exchange failed.
    EFailed,
}

/// In the RFC's spelling.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unassociated => "UNASSOCIATED",
            Self::I1Sent => "I1-SENT",
            Self::I2Sent => "I2-SENT",
            Self::R2Sent => "R2-SENT",
            Self::Established => "ESTABLISHED",
            Self::Closing => "CLOSING",
            Self::Closed => "CLOSED",
            Self::EFailed => "E-FAILED",
        })
    }
}

/// An event for the owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// There are keys in both directions: data may be sent. Repeated after a restart of the peer.
    Established {
        /// The peer.
        peer: Hit,
        /// Whether this host has initiated the exchange.
        initiator: bool,
    },
    /// The exchange failed.
    Failed {
        /// The peer.
        peer: Hit,
        /// The reason.
        reason: Failure,
    },
    /// The association has ended.
    Closed {
        /// The peer.
        peer: Hit,
    },
    /// The peer knows this host's new address: it has sent a check there, or has acknowledged it without one. Data
    /// flows both ways again. Repeated if the answer was lost.
    Readdressed {
        /// The peer.
        peer: Hit,
        /// This host's address that the peer has checked.
        address: IpAddr,
    },
    /// The peer has announced another address, or its packets come from one: data goes there from now on, within the
    /// credit until [`Self::PeerReaddressed`].
    PeerMoved {
        /// The peer.
        peer: Hit,
        /// The address.
        address: IpAddr,
    },
    /// The peer is reachable at an address that it announced.
    PeerReaddressed {
        /// The peer.
        peer: Hit,
        /// The address.
        address: IpAddr,
    },
    /// Nothing comes back on a path: data takes another one, or is lost.
    PathSilent {
        /// The peer.
        peer: Hit,
        /// This host's address, and the peer's.
        between: (IpAddr, IpAddr),
        /// The path that answers in its place; `None` if none does.
        instead: Option<(IpAddr, IpAddr)>,
        /// The path was not tested: another one has answered first since a host has moved. A lost packet looks alike.
        is_presumed: bool,
    },
    /// A silent path answers again, and data takes it.
    PathAnswers {
        /// The peer.
        peer: Hit,
        /// This host's address, and the peer's.
        between: (IpAddr, IpAddr),
        /// How long no path answered; `None` if data has taken another one meanwhile.
        after: Option<Duration>,
    },
    /// Keys were changed.
    Rekeyed {
        /// The peer.
        peer: Hit,
    },
    /// An UPDATE was not acknowledged after all retransmissions. The association stays; [`super::Host::announce`] or
    /// the next change of locators restarts it.
    GaveUp {
        /// The peer.
        peer: Hit,
    },
    /// A server has granted services.
    Registered {
        /// The server.
        peer: Hit,
        /// The services.
        services: Vec<Service>,
        /// The lifetime; the registration is renewed after half of it.
        lifetime: Duration,
        /// This host's UDP address and port as seen by the server.
        seen_at: Option<(IpAddr, u16)>,
    },
    /// A server has refused a service, or does not offer it. The request is repeated a minute later, unless its R1
    /// lacked the offer.
    RegistrationFailed {
        /// The server.
        peer: Hit,
        /// The failure type (RFC 8003 section 4.5).
        failure: u8,
    },
    /// A relay sees the peer at this address and port: a check is sent there.
    PeerCandidate {
        /// The peer.
        peer: Hit,
        /// The address.
        address: IpAddr,
        /// The UDP port.
        port: u16,
    },
    /// Connectivity checks are concluded: both hosts use this pair of addresses.
    Nominated {
        /// The peer.
        peer: Hit,
        /// This host's address, and the peer's or a relay's.
        between: (IpAddr, IpAddr),
        /// The UDP port at the latter.
        port: u16,
        /// Whether a relay forwards the data.
        is_relayed: bool,
    },
    /// No connectivity check was answered, not even through a relay. Data goes through a relay if one forwards it.
    ChecksFailed {
        /// The peer.
        peer: Hit,
    },
    /// The peer has accepted an invitation: it is a configured peer now. Follows [`Self::Established`].
    Joined {
        /// The peer.
        peer: Hit,
        /// The number of the invitation, which is used up.
        invitation: u64,
        /// The data that the peer has sent with it.
        data: bytes::Bytes,
    },
    /// A host has answered an I1 without a receiver ([`super::Host::connect_opportunistic`]).
    Answered {
        /// The host, which is the peer of an exchange now.
        peer: Hit,
        /// The number of the I1.
        call: u64,
        /// Whether it has no association with this host yet.
        is_new: bool,
    },
    /// The peer has sent NOTIFY. Its signature was verified.
    Notified {
        /// The peer.
        peer: Hit,
        /// Its content.
        notification: Notification,
    },
}

/// Why an exchange failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// No R1 arrived.
    #[error("the peer does not answer")]
    NoR1,
    /// No R2 arrived.
    #[error("the peer did not confirm the exchange")]
    NoR2,
    /// The puzzle is harder than this host is willing to solve.
    #[error("the peer demands a puzzle of {difficulty} bits")]
    TooDifficult {
        /// #K.
        difficulty: u8,
    },
    /// The R1 is authentic, but its Diffie-Hellman value is invalid.
    #[error("the peer's Diffie-Hellman value is invalid")]
    Unusable,
    /// Nothing in common: a Diffie-Hellman group, cipher, transform, transport format or HIT suite.
    #[error("no common choice in parameter {kind}")]
    NoCommon {
        /// The parameter with the peer's choices.
        kind: u16,
    },
}

/// Why a command fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommandError {
    /// No address of the peer is known, or none of a family that this host has.
    #[error("no usable address of {peer}")]
    NoAddress {
        /// The peer.
        peer: Hit,
    },
    /// The HIT is not of a suite that this host supports.
    #[error("{peer} is not a HIT of a supported suite")]
    Suite {
        /// The peer.
        peer: Hit,
    },
    /// The command is not allowed in this state.
    #[error("the association is in state {state}")]
    State {
        /// The state.
        state: State,
    },
    /// Opportunistic mode is off.
    #[error("opportunistic mode is off")]
    Opportunistic,
    /// The keying material is used up.
    #[error(transparent)]
    Keymat(#[from] KeymatError),
}

/// Why data is not sent or not delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DataError {
    /// The packet is not for a HIT with which there is an association.
    #[error("no association for the packet")]
    NoAssociation,
    /// No address of the peer may be sent to now.
    #[error("no verified address of the peer, and no credit for others")]
    NoPath,
    /// See there.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// See there.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// The content of an authentic, new ESP packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The sender.
    pub peer: Hit,
    /// The packet between HITs; `None` for a dummy, which keeps translators' bindings alive.
    pub inner: Option<Packet>,
    /// The SPI at which it arrived.
    pub spi: u32,
    /// Its sequence number under this SPI.
    pub number: u64,
    /// Whether its sequence number is the greatest so far under the newest keys: the peer was at its source last.
    pub is_newest: bool,
}

/// Why a HIP packet was dropped. It had no effect then, except on counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Dropped {
    /// The bytes are not a HIP packet.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The receiver's HIT is not this host's.
    #[error("for another host")]
    NotForUs,
    /// The sender's HIT is of a suite that is not supported, or is not a HIT.
    #[error("the sender's HIT is not of a supported suite")]
    Suite,
    /// The sender is unknown, and the packet does not open an association.
    #[error("no association with the sender")]
    UnknownPeer,
    /// Forbidden by configuration.
    #[error("forbidden by configuration")]
    Policy,
    /// The packet is unexpected in this state.
    #[error("unexpected in state {state}")]
    State {
        /// The state.
        state: State,
    },
    /// A parameter is missing.
    #[error("parameter {kind} is missing")]
    Missing {
        /// Its type.
        kind: u16,
    },
    /// A parameter has a value that was not offered or contradicts others.
    #[error("parameter {kind} has an unexpected value")]
    Value {
        /// Its type.
        kind: u16,
    },
    /// Too many I1s in this second, or too many associations.
    #[error("overload")]
    Overload,
    /// The puzzle is not one of this host's, or has expired.
    #[error("the puzzle is unknown or has expired")]
    StalePuzzle,
    /// The solution is wrong.
    #[error("wrong solution of the puzzle")]
    Unsolved,
    /// An outdated R1, I2 or Update ID.
    #[error("outdated")]
    Stale,
    /// The HIT is not that of the host identity.
    #[error("the host identity does not have the sender's HIT")]
    WrongHit,
    /// The host identity is not usable.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The Diffie-Hellman value is not usable.
    #[error(transparent)]
    Dh(#[from] DhError),
    /// The MAC is wrong.
    #[error("wrong MAC")]
    Mac,
    /// The signature is wrong.
    #[error("wrong signature")]
    Signature,
    /// ENCRYPTED does not decrypt to a HOST_ID.
    #[error("cannot use the encrypted parameter")]
    Encrypted,
    /// The exchange failed.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The keying material is used up.
    #[error(transparent)]
    Keymat(#[from] KeymatError),
    /// The answer would be too long.
    #[error("the answer would be too long")]
    TooLong,
}

impl Dropped {
    /// The NOTIFY about an I2 with this error whose puzzle is solved; `None` if it is dropped in silence, as with an invalid Diffie-Hellman
    /// value (RFC 7401 section 5.3.2) and with other errors before MAC and signature are verified (section 5.2.19).
    pub(super) const fn notify_type(&self) -> Option<NotifyType> {
        Some(match self {
            Self::Missing { kind: kind::HIP_CIPHER } | Self::Value { kind: kind::HIP_CIPHER } => {
                NotifyType::INVALID_HIP_CIPHER_CHOSEN
            }
            Self::Missing { kind: kind::ESP_TRANSFORM } | Self::Value { kind: kind::ESP_TRANSFORM } => {
                NotifyType::INVALID_ESP_TRANSFORM_CHOSEN
            }
            Self::Mac => NotifyType::HIP_MAC_FAILED,
            Self::Encrypted => NotifyType::ENCRYPTION_FAILED,
            Self::WrongHit => NotifyType::INVALID_HIT,
            Self::Signature => NotifyType::AUTHENTICATION_FAILED,
            _ => return None,
        })
    }
}
