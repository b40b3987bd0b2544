//! The configuration of a host.

use holdover_base::Duration;

use super::checklist::DEFAULT_TA;
use super::reachability::PathCheckConfig;
use super::registry::ServerConfig;
use crate::codec::NatTraversalMode;
use crate::crypto::{DhGroup, HipCipher};
use crate::esp::{EspSuite, GcmProvider};

/// How long keys of ESP are used (RFC 7402 section 3.3.7 leaves the numbers to policy). The first limit reached, in either direction, causes
/// a change of keys. The host with the smaller HIT waits an eighth longer, so that both seldom begin at once. Beyond twice the packets or
/// bytes nothing more is sent with the old keys, whether the peer has agreed to new ones or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RekeyLimits {
    /// Packets.
    pub packets: u64,
    /// Bytes of data.
    pub bytes: u64,
    /// Time. Unused keys are not changed.
    pub age: Duration,
    /// Whether each change brings a new Diffie-Hellman exchange. Otherwise only when the keying material is used up.
    pub new_dh: bool,
}

impl Default for RekeyLimits {
    /// 2^32 packets, as with sequence numbers of 32 bits; 64 GiB, which are 2^32 blocks of AES; one hour; new material each time.
    fn default() -> Self {
        Self { packets: 1 << 32, bytes: 1 << 36, age: Duration::from_secs(3600), new_dh: true }
    }
}

/// A part of all SPIs. Hosts that share an address choose theirs from different parts, so that the SPI of a packet shows its host.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SpiPart {
    mask: u32,
    low: u32,
}

impl SpiPart {
    /// The SPIs whose lowest eight bits are this number.
    pub const fn with_low_byte(byte: u8) -> Self {
        Self { mask: 0xff, low: byte as u32 }
    }

    /// A member, from a random number.
    pub(super) const fn member(self, random: u32) -> u32 {
        random & !self.mask | self.low
    }
}

/// The parameters of exchanges. RFC 7401 leaves the values to implementations, unless a section is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostConfig {
    /// The timeout of the first I1, I2, UPDATE or CLOSE; doubled with each retransmission. The default is that of a TCP
    /// without RTT samples (RFC 6298 section 2).
    pub retransmit_after: Duration,
    /// The retransmissions of each.
    pub retries: u32,
    /// Retransmissions of an UPDATE, in addition to these, before its timeout begins to double. On a path that loses packets at random
    /// they end a readdressing sooner; a path that is cut gains nothing by them.
    pub steady_retries: u32,
    /// Groups for Diffie-Hellman, the preferred one first.
    pub groups: Vec<DhGroup>,
    /// Ciphers for ENCRYPTED, the preferred one first.
    pub ciphers: Vec<HipCipher>,
    /// ESP transforms, the preferred one first.
    pub suites: Vec<EspSuite>,
    /// The implementation of AES-GCM.
    pub gcm: GcmProvider,
    /// Whether the initiator's identity is encrypted in I2 (RFC 7401 section 5.3.3). Responders' identities never are.
    pub hide_identity: bool,
    /// Whether to answer an I1 without a receiver's HIT, and to accept [`super::Host::connect_opportunistic`] (RFC 7401
    /// section 4.1.8). The first responder is trusted then.
    pub opportunistic: bool,
    /// Whether hosts that were not added by [`super::Host::add_peer`] may open associations.
    pub accept_unknown_peers: bool,
    /// The most associations; further I2s are dropped.
    pub max_associations: usize,
    /// How long puzzles and Diffie-Hellman values of a responder are used. They are accepted for twice as long. At most
    /// 60 s, the limit of the puzzles' time stamps.
    pub r1_lifetime: Duration,
    /// The generation of the first puzzles: greater than in any earlier run of this identity (RFC 7401 section 4.1.4). A daemon stores it,
    /// or uses calendar time in seconds.
    pub r1_counter: u64,
    /// #K of puzzles without load: 0 by default (RFC 7401 section 7).
    pub difficulty: u8,
    /// I1s, or I2s with a valid solution, per second from which on puzzles become harder: #K is 11 at least, and one more for each doubling
    /// of the rate.
    pub load_threshold: u32,
    /// The most R1s sent in a second.
    pub max_r1_per_s: u32,
    /// The most R1s sent in a second to one IPv4 address, or to one /64 of IPv6 (RFC 7401 section 6.7), together with the I2s from there
    /// whose solution is valid.
    pub max_r1_per_source: u32,
    /// The greatest #K that this host will solve.
    pub max_difficulty: u8,
    /// Attempts at a puzzle in one call of [`super::Host::handle_timeout`].
    pub attempts_per_slice: u32,
    /// How long a responder waits in R2-SENT for a packet of the initiator before it takes the exchange to be complete.
    pub exchange_complete: Duration,
    /// How long an association without data is kept: UAL of RFC 7401 section 4.4.1.
    pub unused_lifetime: Duration,
    /// How long an association is kept whose peer sends nothing, whatever this host sends: an owner's keep-alives count as use
    /// ([`super::Host::keep_alive`]).
    pub silent_lifetime: Duration,
    /// The longest life of a packet in the network: MSL.
    pub max_segment_lifetime: Duration,
    /// How long an exchange that failed is remembered in E-FAILED.
    pub failed_hold: Duration,
    /// How long the old keys are accepted after rekeying.
    pub old_keys_hold: Duration,
    /// When this host changes the keys of ESP by itself; `None` for on request only.
    pub rekey: Option<RekeyLimits>,
    /// The lifetime of this host's locators in LOCATOR_SET.
    pub locator_lifetime: Duration,
    /// When the path of data is tested because nothing comes back on it; `None` for never.
    pub path_check: Option<PathCheckConfig>,
    /// Whether the peer is told to prefer another address of this host when data leaves from that because a link is silent.
    pub prefers_standby: bool,
    /// The NAT traversal modes that this host supports: six at most (RFC 9028 section 5.4). Their order is that in R1; of a peer's it names
    /// UDP-ENCAPSULATION in an exchange without a relay.
    pub nat_modes: Vec<NatTraversalMode>,
    /// The shortest time between two connectivity checks: Ta, 5 ms at least (RFC 9028 section 4.4).
    pub check_pacing: Duration,
    /// This host's services as a rendezvous server or relay; `None` for none.
    pub server: Option<ServerConfig>,
    /// The SPIs that this host chooses; all by default.
    pub spis: SpiPart,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            retransmit_after: Duration::from_secs(1),
            retries: 5,
            steady_retries: 0,
            groups: DhGroup::ALL.to_vec(),
            ciphers: vec![HipCipher::Aes256Cbc, HipCipher::Aes128Cbc],
            suites: EspSuite::ENCRYPTING.to_vec(),
            gcm: GcmProvider::default(),
            hide_identity: false,
            opportunistic: false,
            accept_unknown_peers: true,
            max_associations: 65_536,
            r1_lifetime: Duration::from_secs(60),
            r1_counter: 1,
            difficulty: 0,
            load_threshold: 100,
            max_r1_per_s: 10_000,
            max_r1_per_source: 100,
            max_difficulty: 24,
            attempts_per_slice: 1 << 12,
            exchange_complete: Duration::from_secs(10),
            unused_lifetime: Duration::from_secs(15 * 60),
            // Longer than the lifetime of locators: then no address of the peer is valid any more, and it has not renewed them.
            silent_lifetime: Duration::from_secs(25 * 3600),
            max_segment_lifetime: Duration::from_secs(120),
            failed_hold: Duration::from_secs(30),
            old_keys_hold: Duration::from_secs(60),
            rekey: Some(RekeyLimits::default()),
            locator_lifetime: Duration::from_secs(24 * 3600),
            path_check: None,
            prefers_standby: false,
            nat_modes: vec![NatTraversalMode::UdpEncapsulation, NatTraversalMode::IceHipUdp],
            check_pacing: DEFAULT_TA,
            server: None,
            spis: SpiPart::default(),
        }
    }
}
