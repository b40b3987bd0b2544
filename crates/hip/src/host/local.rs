//! The shared state of a host's associations.

use std::collections::{BTreeMap, VecDeque};

use core::net::IpAddr;

use bytes::Bytes;
use holdover_wire::Packet;
use rand_core::CryptoRng;

use super::registration::Registry;
use super::relay::{Relayed, ReplyVia};
use super::{Dropped, Event, HostConfig};
use crate::codec::{BuildError, Builder, HostId, Parameter, Received, Signature, kind};
use crate::crypto::{HipKeys, Rhash};
use crate::identity::{Hit, HostIdentity, KeyPair};

/// SPIs up to here are reserved (RFC 4303 section 2.1).
const LAST_RESERVED_SPI: u32 = 255;

pub(super) struct Local {
    pub(super) keys: KeyPair,
    pub(super) hit: Hit,
    pub(super) host_id: HostId,
    pub(super) config: HostConfig,
    pub(super) rng: Box<dyn CryptoRng + Send>,
    /// This host's locators, the preferred one first.
    pub(super) locators: Vec<IpAddr>,
    /// The owner of each inbound SPI.
    pub(super) spis: BTreeMap<u32, Hit>,
    pub(super) transmit: VecDeque<Packet>,
    pub(super) events: VecDeque<Event>,
    /// Packets that do not use the peer's usual path.
    pub(super) relayed: VecDeque<Relayed>,
    pub(super) registry: Registry,
    /// While handling a packet that a relay has forwarded.
    pub(super) reply_via: Option<ReplyVia>,
}

impl Local {
    /// The locator of the family of `dst` that is preferred.
    pub(super) fn source_for(&self, dst: IpAddr) -> Option<IpAddr> {
        self.locators.iter().copied().find(|src| src.is_ipv4() == dst.is_ipv4())
    }

    /// Sends to an address, from this host's preferred one of its family; not at all if there is none.
    pub(super) fn send(&mut self, builder: &Builder, dst: IpAddr) {
        if let Some(src) = self.source_for(dst) {
            self.send_from(builder, src, dst);
        }
    }

    pub(super) fn send_from(&mut self, builder: &Builder, src: IpAddr, dst: IpAddr) {
        let mut builder = builder.clone();
        if let Some(via) = &self.reply_via {
            via.address(&mut builder, dst);
        }
        self.transmit.push_back(builder.finish(src, dst));
    }

    /// A fresh SPI for packets from `peer`.
    pub(super) fn allocate_spi(&mut self, peer: Hit) -> u32 {
        loop {
            let spi = self.config.spis.member(self.rng.next_u32());
            if spi > LAST_RESERVED_SPI && !self.spis.contains_key(&spi) {
                self.spis.insert(spi, peer);
                return spi;
            }
        }
    }

    pub(super) fn random<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }

    /// Adds HIP_MAC and HIP_SIGNATURE.
    pub(super) fn authenticate(
        &mut self,
        builder: &mut Builder,
        rhash: Rhash,
        keys: &HipKeys,
    ) -> Result<(), BuildError> {
        let mac = rhash.mac(&keys.integrity, builder.covered());
        builder.push(&Parameter::HipMac(Bytes::from(mac)))?;
        self.sign(builder)
    }

    /// Adds HIP_SIGNATURE.
    pub(super) fn sign(&mut self, builder: &mut Builder) -> Result<(), BuildError> {
        let signature = self.keys.sign(builder.covered(), &mut *self.rng);
        builder.push(&Parameter::HipSignature(signature))
    }
}

/// Checks HIP_MAC, then HIP_SIGNATURE, which takes more time.
pub(super) fn verify(
    received: &Received,
    rhash: Rhash,
    keys: &HipKeys,
    identity: &HostIdentity,
) -> Result<(), Dropped> {
    verify_mac(received, rhash, keys)?;
    verify_signature(received, identity)
}

pub(super) fn verify_mac(received: &Received, rhash: Rhash, keys: &HipKeys) -> Result<(), Dropped> {
    let mac = received.packet.find(|parameter| if let Parameter::HipMac(mac) = parameter { Some(mac) } else { None });
    let (mac, covered) = mac.zip(received.covered_before(kind::HIP_MAC)).ok_or(missing(kind::HIP_MAC))?;
    if rhash.verify_mac(&keys.integrity, &covered, mac) { Ok(()) } else { Err(Dropped::Mac) }
}

/// Verifies the MAC in a parameter added by a server, or by a client for its server.
pub(super) fn verify_mac_in(received: &Received, rhash: Rhash, keys: &HipKeys, kind: u16) -> Result<(), Dropped> {
    let mac = received.packet.find(|parameter| match parameter {
        Parameter::RvsHmac(mac) | Parameter::RelayHmac(mac) if parameter.kind() == kind => Some(mac),
        _ => None,
    });
    let (mac, covered) = mac.zip(received.covered_before(kind)).ok_or(missing(kind))?;
    if rhash.verify_mac(&keys.integrity, &covered, mac) { Ok(()) } else { Err(Dropped::Mac) }
}

pub(super) fn verify_signature(received: &Received, identity: &HostIdentity) -> Result<(), Dropped> {
    let signature: Option<&Signature> =
        received.packet.find(|parameter| if let Parameter::HipSignature(it) = parameter { Some(it) } else { None });
    let covered = received.covered_before(kind::HIP_SIGNATURE);
    let (signature, covered) = signature.zip(covered).ok_or(missing(kind::HIP_SIGNATURE))?;
    if identity.verify(&covered, signature) { Ok(()) } else { Err(Dropped::Signature) }
}

pub(super) const fn missing(kind: u16) -> Dropped {
    Dropped::Missing { kind }
}

pub(super) const fn value(kind: u16) -> Dropped {
    Dropped::Value { kind }
}

impl From<BuildError> for Dropped {
    fn from(_: BuildError) -> Self {
        Self::TooLong
    }
}

/// The value of the first parameter of a variant.
macro_rules! find {
    ($packet:expr, $variant:ident) => {
        $packet.find(
            |parameter| {
                if let $crate::codec::Parameter::$variant(value) = parameter { Some(value) } else { None }
            },
        )
    };
}
pub(super) use find;
