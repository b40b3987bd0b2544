//! Invitations: the data with which a host can become another host's peer, as a string that people can send each other.
//!
//! `hip:` and base32 (RFC 4648 section 6, lower case, no padding) of: version, HIT suite, flags, HIT, name, locators, locators of its
//! servers if the flags indicate them, the secret likewise, and the first four bytes of the SHA-256 of all preceding bytes. The checksum detects copying errors.
//! It is no proof: an invitation is only as trustworthy as its channel, and anyone who can change it in transit can replace the HIT.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use holdover_hip::crypto::Rhash;
use holdover_hip::host::SECRET_LEN;
use holdover_hip::identity::Hit;

use rand_core::Rng as _;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize as _;

use crate::files::{PeerError, Serves, Via, check_address, check_name};
use crate::random::SystemRandom;

/// The prefix of every invitation.
pub const PREFIX: &str = "hip:";
const VERSION: u8 = 1;
const CHECKSUM_LEN: usize = 4;
const FLAG_UDP: u8 = 1;
/// It serves as rendezvous server, or as relay.
const FLAG_RENDEZVOUS: u8 = 2;
const FLAG_RELAY: u8 = 4;
/// It has servers.
const FLAG_SERVERS: u8 = 8;
/// It has a secret.
const FLAG_SECRET: u8 = 16;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// The longest string that is decoded: eight locators, four of servers and the longest name fit.
const MAX_CHARACTERS: usize = 700;

/// The secret of an invitation: a host that knows it becomes a peer of the host that made it, once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub [u8; SECRET_LEN]);

impl Secret {
    /// A new one.
    pub fn random() -> Self {
        let mut bytes = [0; SECRET_LEN];
        SystemRandom.fill_bytes(&mut bytes);
        Self(bytes)
    }
}

/// Prints no secret.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A host's data for its future peers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invitation {
    /// The host's own name; the default for its name at others.
    pub name: String,
    /// Its HIT.
    pub hit: Hit,
    /// Its locators, the preferred one first; if empty, this host always initiates the exchange.
    pub addresses: Vec<IpAddr>,
    /// How its packets are carried.
    pub via: Via,
    /// Rendezvous servers and relays through which it can be reached.
    pub servers: Vec<IpAddr>,
    /// Its service for hosts that accept the invitation.
    pub serves: Option<Serves>,
    /// Makes the first host that accepts the invitation a peer of this one; `None` if the host has to be made a peer by hand.
    pub secret: Option<Secret>,
}

/// Why a string is no valid invitation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvitationError {
    /// It has another prefix.
    #[error("an invitation begins with \"{PREFIX}\": copy all that \"holdover hip invite\" printed on the other host")]
    Prefix,
    /// A character that is not in base32.
    #[error("character {position} of the invitation is '{character}', which is not valid")]
    Character {
        /// The character.
        character: char,
        /// Its position, from 1 on.
        position: usize,
    },
    /// The checksum does not match.
    #[error("the invitation is damaged (wrong checksum): copy all of it again")]
    Checksum,
    /// Another version.
    #[error("invitation of version {version}, expected {VERSION}: update the older program")]
    Version {
        /// The version.
        version: u8,
    },
    /// The HIT is invalid, or not of the named suite.
    #[error("the invitation's HIT {hit} is not of a suite that this program supports")]
    Hit {
        /// The HIT.
        hit: Hit,
    },
    /// The parts are inconsistent, although the checksum matches.
    #[error("the invitation was made by a program that does not follow the format")]
    Format,
    /// An invalid name or address.
    #[error(transparent)]
    Peer(#[from] PeerError),
}

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut flags = if self.via == Via::Udp { FLAG_UDP } else { 0 };
        flags |= match self.serves {
            None => 0,
            Some(Serves::Rendezvous) => FLAG_RENDEZVOUS,
            Some(Serves::Relay) => FLAG_RELAY,
        };
        flags |= if self.servers.is_empty() { 0 } else { FLAG_SERVERS };
        flags |= if self.secret.is_some() { FLAG_SECRET } else { 0 };
        let suite = self.hit.suite().map_or(0, |suite| suite.id());
        let mut bytes = vec![VERSION, suite, flags];
        bytes.extend(self.hit.0.octets());
        bytes.push(self.name.len().min(255) as u8);
        bytes.extend(self.name.bytes().take(255));
        put_addresses(&mut bytes, &self.addresses);
        if !self.servers.is_empty() {
            put_addresses(&mut bytes, &self.servers);
        }
        if let Some(secret) = &self.secret {
            bytes.extend(secret.0);
        }
        bytes.extend(checksum(&bytes));
        write!(f, "{PREFIX}{}", to_base32(&bytes))
    }
}

impl FromStr for Invitation {
    type Err = InvitationError;

    /// White space around and inside is skipped: mail programs break lines.
    fn from_str(text: &str) -> Result<Self, InvitationError> {
        let text: String = text.chars().filter(|character| !character.is_whitespace()).collect();
        let encoded = text.strip_prefix(PREFIX).ok_or(InvitationError::Prefix)?;
        if encoded.len() > MAX_CHARACTERS {
            return Err(InvitationError::Checksum);
        }
        let bytes = from_base32(encoded)?;
        let split = bytes.len().checked_sub(CHECKSUM_LEN).ok_or(InvitationError::Checksum)?;
        let (body, sum) = bytes.split_at(split);
        if checksum(body) != sum {
            return Err(InvitationError::Checksum);
        }
        let mut reader = Reader(body);
        let version = reader.byte()?;
        if version != VERSION {
            return Err(InvitationError::Version { version });
        }
        let (suite, flags) = (reader.byte()?, reader.byte()?);
        let hit = Hit(Ipv6Addr::from(reader.array::<16>()?));
        if hit.suite().is_none_or(|it| it.id() != suite) {
            return Err(InvitationError::Hit { hit });
        }
        let len = usize::from(reader.byte()?);
        let name = String::from_utf8(reader.take(len)?.to_vec()).map_err(|_| InvitationError::Format)?;
        check_name(&name)?;
        let addresses = reader.addresses(crate::files::MAX_ADDRESSES)?;
        let servers =
            if flags & FLAG_SERVERS == 0 { Vec::new() } else { reader.addresses(crate::files::MAX_SERVERS)? };
        let secret = if flags & FLAG_SECRET == 0 { None } else { Some(Secret(reader.array()?)) };
        if !reader.0.is_empty() {
            return Err(InvitationError::Format);
        }
        let serves = match flags & (FLAG_RENDEZVOUS | FLAG_RELAY) {
            0 => None,
            FLAG_RENDEZVOUS => Some(Serves::Rendezvous),
            _ => Some(Serves::Relay),
        };
        let via = if flags & FLAG_UDP == 0 { Via::Ip } else { Via::Udp };
        Ok(Self { name, hit, addresses, via, servers, serves, secret })
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], InvitationError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(InvitationError::Format)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], InvitationError> {
        self.take(N)?.try_into().map_err(|_| InvitationError::Format)
    }

    fn addresses(&mut self, most: usize) -> Result<Vec<IpAddr>, InvitationError> {
        let mut addresses = Vec::new();
        for _ in 0..self.byte()? {
            let address: IpAddr = match self.byte()? {
                4 => Ipv4Addr::from(self.array::<4>()?).into(),
                6 => Ipv6Addr::from(self.array::<16>()?).into(),
                _ => return Err(InvitationError::Format),
            };
            check_address(address)?;
            addresses.push(address);
        }
        if addresses.len() > most { Err(InvitationError::Format) } else { Ok(addresses) }
    }

    fn byte(&mut self) -> Result<u8, InvitationError> {
        self.array::<1>().map(|[byte]| byte)
    }
}

fn put_addresses(bytes: &mut Vec<u8>, addresses: &[IpAddr]) {
    bytes.push(addresses.len().min(255) as u8);
    for address in addresses.iter().take(255) {
        match address {
            IpAddr::V4(address) => {
                bytes.push(4);
                bytes.extend(address.octets());
            }
            IpAddr::V6(address) => {
                bytes.push(6);
                bytes.extend(address.octets());
            }
        }
    }
}

fn checksum(bytes: &[u8]) -> Vec<u8> {
    let mut hash = Rhash::Sha256.digest(&[PREFIX.as_bytes(), bytes]);
    hash.truncate(CHECKSUM_LEN);
    hash
}

fn to_base32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut bits, mut count) = (0_u32, 0);
    for &byte in bytes {
        (bits, count) = (bits << 8 | u32::from(byte), count + 8);
        while count >= 5 {
            count -= 5;
            text.push(ALPHABET[(bits >> count & 31) as usize].into());
        }
    }
    if count > 0 {
        text.push(ALPHABET[(bits << (5 - count) & 31) as usize].into());
    }
    text
}

fn from_base32(text: &str) -> Result<Vec<u8>, InvitationError> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut bits, mut count) = (0_u32, 0);
    for (index, character) in text.chars().enumerate() {
        let digit = ALPHABET.iter().position(|&it| char::from(it) == character.to_ascii_lowercase());
        let position = PREFIX.len() + index + 1;
        let digit = digit.ok_or(InvitationError::Character { character, position })?;
        (bits, count) = (bits << 5 | digit as u32, count + 5);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    // The remaining bits are the padding of the last character.
    if bits & ((1 << count) - 1) != 0 { Err(InvitationError::Checksum) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation() -> Invitation {
        Invitation {
            name: "server".into(),
            hit: Hit("2001:25:1234:5678:9abc:def0:1234:5678".parse().unwrap()),
            addresses: vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()],
            via: Via::Udp,
            servers: vec!["203.0.113.9".parse().unwrap()],
            serves: None,
            secret: None,
        }
    }

    #[test]
    fn an_invitation_is_read_as_it_was_written() {
        let text = invitation().to_string();
        assert_eq!(text.parse(), Ok(invitation()));
        // Upper case, and lines broken by a mail program.
        let (head, tail) = text.split_at(30);
        let mangled = format!("  {head}\n   {}\n", tail.to_uppercase());
        assert_eq!(mangled.parse(), Ok(invitation()));
        let alone = Invitation { addresses: Vec::new(), via: Via::Ip, servers: Vec::new(), ..invitation() };
        assert_eq!(alone.to_string().parse(), Ok(alone));
        for serves in [Serves::Rendezvous, Serves::Relay] {
            let server = Invitation { serves: Some(serves), ..invitation() };
            assert_eq!(server.to_string().parse(), Ok(server));
        }
        let secret = Invitation { secret: Some(Secret([7; SECRET_LEN])), ..invitation() };
        assert_eq!(secret.to_string().parse(), Ok(secret.clone()));
        assert!(!format!("{secret:?}").contains('7'.to_string().repeat(2).as_str()));
        let many = Invitation { servers: vec!["203.0.113.9".parse().unwrap(); 5], ..invitation() };
        assert_eq!(many.to_string().parse::<Invitation>(), Err(InvitationError::Format));
    }

    // Claim: Invitations survive encoding and decoding, and every error of one character is detected; keys are never shown or
    // replaced, and refused if others may read them; errors in files and arguments are reported with their place.
    // Tests: `identity::errors_of_a_key_do_not_show_the_key`,
    // `peers::a_file_with_mistakes_is_refused_and_the_place_named`, `words::an_identity_is_made_once`,
    // `words::wrong_words_are_refused`, `words::hosts_that_speak_no_hip_get_identities`,
    // `proxy::hosts_are_read_as_they_were_written`, `proxy::invalid_hosts_are_refused`
    #[test]
    fn every_slip_of_one_character_is_found() {
        let text = invitation().to_string();
        for index in PREFIX.len()..text.len() {
            for other in ALPHABET {
                let mut bytes = text.clone().into_bytes();
                if bytes[index] != *other {
                    bytes[index] = *other;
                    let slip = String::from_utf8(bytes).unwrap();
                    assert_eq!(slip.parse::<Invitation>(), Err(InvitationError::Checksum), "{slip}");
                }
            }
            assert!(text[..index].parse::<Invitation>().is_err());
        }
    }

    #[test]
    fn invalid_invitations_give_distinct_errors() {
        let error = |text: &str| text.parse::<Invitation>().unwrap_err();
        assert_eq!(error("https://example.org"), InvitationError::Prefix);
        assert_eq!(error("hip:ab!"), InvitationError::Character { character: '!', position: 7 });
        assert_eq!(error(&format!("hip:{}", "a".repeat(5000))), InvitationError::Checksum);
        let sealed = |body: &[u8]| format!("{PREFIX}{}", to_base32(&[body, &checksum(body)].concat()));
        assert_eq!(error(&sealed(&[9])), InvitationError::Version { version: 9 });
        assert_eq!(error(&sealed(&[])), InvitationError::Format);
        let not_a_hit = Invitation { hit: Hit("2001:db8::1".parse().unwrap()), ..invitation() };
        assert!(matches!(error(&not_a_hit.to_string()), InvitationError::Hit { .. }));
        let nameless = Invitation { name: String::new(), ..invitation() };
        assert!(matches!(error(&nameless.to_string()), InvitationError::Peer(PeerError::Name { .. })));
        for address in ["224.0.0.1", "127.0.0.1", "::1", "0.0.0.0", "fe80::1"].map(|text| text.parse().unwrap()) {
            let addressed = Invitation { addresses: vec![address], ..invitation() };
            let served = Invitation { servers: vec![address], ..invitation() };
            for invalid in [addressed, served] {
                assert!(matches!(error(&invalid.to_string()), InvitationError::Peer(PeerError::Address { .. })));
            }
        }
    }
}
