//! The two messages, as bytes, and the key that authenticates them.
//!
//! ```text
//! offset  bytes
//!      0      4  "HoRg"
//!      4      1  version: 1
//!      5      1  1 report, 2 answer
//!      6      1  report: 1 present, 2 fading, 3 away, 4 moved; answer: 1 noted, 2 repeat with this nonce, 3 refused
//!      7      1  0
//!      8      8  name of the key
//!     16     16  nonce
//!     32      8  counter
//!     40      4  fading: milliseconds until the host leaves; all ones if unknown
//!     44     16  address of the mobile host, IPv4 as in RFC 4291 section 2.5.5.2
//!     60     16  the first half of HMAC-SHA256 over all preceding bytes (RFC 2104 section 5)
//! ```
//!
//! Numbers are in network byte order.

use core::net::{IpAddr, Ipv6Addr};

use hmac::{Hmac, KeyInit as _, Mac as _};
use holdover_base::Duration;
use holdover_filter::Presence;
use sha2::Sha256;

/// Bytes of a message.
pub const LENGTH: usize = 76;

/// Bytes of a nonce.
pub const NONCE: usize = 16;

const MAGIC: [u8; 4] = *b"HoRg";
const VERSION: u8 = 1;
const AUTHENTICATED: usize = 60;
const NO_LEAD: u32 = u32::MAX;

/// Shorter keys are refused.
const LEAST_KEY: usize = 16;
const MOST_KEY: usize = 64;

/// A secret shared by a mobile host and a gateway.
#[derive(Clone)]
pub struct Key {
    mac: Hmac<Sha256>,
    name: [u8; 8],
}

/// An invalid key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// It contains characters other than hexadecimal digits.
    #[error("invalid key: expected a line of hexadecimal digits, as from `openssl rand -hex 32`")]
    NotHexadecimal,
    /// Its length.
    #[error("key of {bytes} bytes: expected {LEAST_KEY} to {MOST_KEY}, as from `openssl rand -hex 32`")]
    Length {
        /// Of the key.
        bytes: usize,
    },
}

impl Key {
    /// A key of 16 to 64 bytes.
    ///
    /// # Errors
    /// [`KeyError::Length`].
    pub fn new(secret: &[u8]) -> Result<Self, KeyError> {
        let length = KeyError::Length { bytes: secret.len() };
        if !(LEAST_KEY..=MOST_KEY).contains(&secret.len()) {
            return Err(length);
        }
        let mac = Hmac::<Sha256>::new_from_slice(secret).map_err(|_| length)?;
        let whole = mac.clone().chain_update(b"holdover registration: name of the key").finalize().into_bytes();
        let mut name = [0; 8];
        name.copy_from_slice(&whole[..8]);
        Ok(Self { mac, name })
    }

    /// Parses a line of hexadecimal digits.
    ///
    /// # Errors
    /// The text is something else, or of another length.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        let digit = |byte: u8| (byte as char).to_digit(16);
        let pair = |pair: &[u8]| match *pair {
            [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
            _ => None,
        };
        let secret: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
        Self::new(&secret.ok_or(KeyError::NotHexadecimal)?)
    }

    /// Identifies the key without revealing it.
    pub fn name(&self) -> [u8; 8] {
        self.name
    }

    fn tag(&self, authenticated: &[u8]) -> Hmac<Sha256> {
        self.mac.clone().chain_update(authenticated)
    }
}

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Key({:016x})", u64::from_be_bytes(self.name))
    }
}

/// A report of a mobile host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Report {
    pub(super) presence: Presence,
    pub(super) address: IpAddr,
    pub(super) nonce: [u8; NONCE],
    pub(super) counter: u64,
}

/// An answer of the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub(super) verdict: Verdict,
    pub(super) address: IpAddr,
    pub(super) nonce: [u8; NONCE],
    /// Of the report.
    pub(super) counter: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Noted,
    /// The report is to be repeated with the answer's nonce.
    UseNonce,
    /// The key is not for this address, or there is no room.
    Refused,
}

/// The name of the key in a well-formed message.
pub(super) fn key_name(bytes: &[u8]) -> Option<[u8; 8]> {
    let is_ours = bytes.len() == LENGTH && bytes[..4] == MAGIC && bytes[4] == VERSION;
    is_ours.then(|| bytes[8..16].try_into().ok()).flatten()
}

fn write(key: &Key, kind: u8, word: u8, nonce: &[u8; NONCE], counter: u64, lead: u32, address: IpAddr) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&[VERSION, kind, word, 0]);
    bytes[8..16].copy_from_slice(&key.name);
    bytes[16..32].copy_from_slice(nonce);
    bytes[32..40].copy_from_slice(&counter.to_be_bytes());
    bytes[40..44].copy_from_slice(&lead.to_be_bytes());
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    bytes[44..60].copy_from_slice(&address.octets());
    let tag = key.tag(&bytes[..AUTHENTICATED]).finalize().into_bytes();
    bytes[AUTHENTICATED..].copy_from_slice(&tag[..LENGTH - AUTHENTICATED]);
    bytes
}

/// The common fields of both messages: the code, the nonce, the counter, the lead and the address, if the message is
/// authentic.
type Fields = (u8, [u8; NONCE], u64, u32, IpAddr);

fn read(key: &Key, kind: u8, bytes: &[u8]) -> Option<Fields> {
    if key_name(bytes) != Some(key.name) || bytes[5] != kind {
        return None;
    }
    key.tag(&bytes[..AUTHENTICATED]).verify_truncated_left(&bytes[AUTHENTICATED..]).ok()?;
    let nonce = bytes[16..32].try_into().ok()?;
    let counter = u64::from_be_bytes(bytes[32..40].try_into().ok()?);
    let lead = u32::from_be_bytes(bytes[40..44].try_into().ok()?);
    let address = Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[44..60]).ok()?);
    let address = address.to_ipv4_mapped().map_or(address.into(), IpAddr::from);
    Some((bytes[6], nonce, counter, lead, address))
}

const REPORT: u8 = 1;
const ANSWER: u8 = 2;

impl Report {
    pub(super) fn to_bytes(self, key: &Key) -> [u8; LENGTH] {
        let (word, lead) = match self.presence {
            Presence::Present | Presence::Rebound => (1, NO_LEAD),
            Presence::Fading { lead } => {
                (2, lead.map_or(NO_LEAD, |lead| u32::try_from(lead.as_millis()).unwrap_or(NO_LEAD)))
            }
            Presence::Away => (3, NO_LEAD),
            Presence::Moved => (4, NO_LEAD),
        };
        write(key, REPORT, word, &self.nonce, self.counter, lead, self.address)
    }

    pub(super) fn from_bytes(key: &Key, bytes: &[u8]) -> Option<Self> {
        let (word, nonce, counter, lead, address) = read(key, REPORT, bytes)?;
        let lead = (lead != NO_LEAD).then(|| Duration::from_millis(lead.into()));
        let presence = match word {
            1 => Presence::Present,
            2 => Presence::Fading { lead },
            3 => Presence::Away,
            4 => Presence::Moved,
            _ => return None,
        };
        Some(Self { presence, address, nonce, counter })
    }
}

impl Answer {
    pub(super) fn to_bytes(self, key: &Key) -> [u8; LENGTH] {
        let word = match self.verdict {
            Verdict::Noted => 1,
            Verdict::UseNonce => 2,
            Verdict::Refused => 3,
        };
        write(key, ANSWER, word, &self.nonce, self.counter, NO_LEAD, self.address)
    }

    pub(super) fn from_bytes(key: &Key, bytes: &[u8]) -> Option<Self> {
        let (word, nonce, counter, _, address) = read(key, ANSWER, bytes)?;
        let verdict = match word {
            1 => Verdict::Noted,
            2 => Verdict::UseNonce,
            3 => Verdict::Refused,
            _ => return None,
        };
        Some(Self { verdict, address, nonce, counter })
    }
}
