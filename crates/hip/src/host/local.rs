//! The shared state of a host's associations.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use core::net::IpAddr;
use core::ops::{Deref, DerefMut};

use bytes::Bytes;
use holdover_base::Instant;
use holdover_wire::Packet;
use rand_core::CryptoRng;

use super::checklist::RelayView;
use super::rate::{Rate, SourceRates};
use super::registry::Registry;
use super::via::{Relayed, ReplyVia};
use super::{Dropped, Event, HostConfig};
use crate::codec::{
    BuildError, Builder, HEADER_LEN, HipPacket, HostId, MAX_LEN, Notification, NotifyType, PacketType, Parameter,
    Received, Signature, kind, read_parameters,
};
use crate::crypto::{HipCipher, HipKeys, Rhash};
use crate::identity::{Hit, HostIdentity, KeyPair};

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

/// The most NOTIFYs about errors in a second, and those for one network: each costs a signature.
const MOST_NOTIFIED_PER_S: u32 = 20;
const MOST_NOTIFIED_PER_SOURCE: u32 = 5;

/// The room behind ECHO_RESPONSE_UNSIGNED for VIA_RVS, and for RELAY_TO or RELAY_FROM with the longest RELAY_HMAC.
const ROOM_AFTER_ECHOES: usize = 24 + 24 + 56;

/// Bytes of the other parameters of an I2 or R2 behind ENCRYPTED: transforms, a request for registration, a MAC, and those of relays; and of
/// the padding of the signature.
const OTHERS_LEN: usize = 280;

/// SPIs up to here are reserved, or 0 (RFC 4303 section 2.1).
pub(super) const LAST_RESERVED_SPI: u32 = 255;

pub(super) struct Local {
    pub(super) keys: Arc<KeyPair>,
    pub(super) hit: Hit,
    pub(super) host_id: HostId,
    pub(super) config: HostConfig,
    pub(super) rng: Randomness,
    /// This host's locators, the preferred one first.
    pub(super) locators: Vec<IpAddr>,
    /// The owner of each inbound SPI.
    pub(super) spis: BTreeMap<u32, Hit>,
    pub(super) transmit: VecDeque<Packet>,
    pub(super) events: VecDeque<Event>,
    /// Packets that do not use the peer's usual path.
    pub(super) relayed: VecDeque<Relayed>,
    pub(super) registry: Registry,
    /// This host as its relays see it.
    pub(super) relay_views: BTreeMap<Hit, RelayView>,
    /// Rate limit of error NOTIFYs, in total and by network.
    pub(super) notified: Rate,
    pub(super) notified_sources: SourceRates,
    /// While handling a packet that a relay has forwarded.
    pub(super) reply_via: Option<ReplyVia>,
    /// See [`super::Host::has_shown_source`].
    pub(super) has_shown_source: bool,
}

/// Reproducible randomness, for simulations: copies continue with the same values.
pub trait ForkableRng: CryptoRng + Send {
    /// Such a copy.
    fn fork(&self) -> Box<dyn ForkableRng>;
}

/// The source of keys, nonces and SPIs.
pub(super) enum Randomness {
    Unique(Box<dyn CryptoRng + Send>),
    Forkable(Box<dyn ForkableRng>),
}

impl Deref for Randomness {
    type Target = dyn CryptoRng;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Unique(rng) => &**rng,
            Self::Forkable(rng) => &**rng,
        }
    }
}

impl DerefMut for Randomness {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Unique(rng) => &mut **rng,
            Self::Forkable(rng) => &mut **rng,
        }
    }
}

impl Local {
    /// A copy that shares no state with this one; `None` if its randomness cannot be copied.
    pub(super) fn fork(&self) -> Option<Self> {
        let Randomness::Forkable(rng) = &self.rng else { return None };
        Some(Self {
            keys: Arc::clone(&self.keys),
            hit: self.hit,
            host_id: self.host_id.clone(),
            config: self.config.clone(),
            rng: Randomness::Forkable(rng.fork()),
            locators: self.locators.clone(),
            spis: self.spis.clone(),
            transmit: self.transmit.clone(),
            events: self.events.clone(),
            relayed: self.relayed.clone(),
            registry: self.registry.clone(),
            relay_views: self.relay_views.clone(),
            notified: self.notified.clone(),
            notified_sources: self.notified_sources.clone(),
            reply_via: self.reply_via.clone(),
            has_shown_source: self.has_shown_source,
        })
    }

    /// The locator of the family of `dst` that is preferred.
    pub(super) fn source_for(&self, dst: IpAddr) -> Option<IpAddr> {
        self.locators.iter().copied().find(|src| src.is_ipv4() == dst.is_ipv4())
    }

    /// This host has moved from these addresses: its relays see it elsewhere, unless the preferred one stays.
    pub(super) fn outdate_views(&mut self, before: &[IpAddr]) {
        let (is_move, locators) = (before.first() != self.locators.first(), &self.locators);
        let outdated = self.relay_views.values_mut().filter(|view| is_move || !locators.contains(&view.base));
        outdated.for_each(|view| view.is_current = false);
    }

    /// Whether all relays have answered since the last move: they do in answer to any UPDATE, other servers to a registration only.
    pub(super) fn has_current_views(&self) -> bool {
        self.relay_views.values().filter(|view| view.signalling_at.is_some()).all(|view| view.is_current)
    }

    /// The source of an answer to `dst`: the address at which the packet arrived that is answered, if this host still has it and it is of
    /// the same family.
    pub(super) fn source_of_answer(&self, arrived_at: IpAddr, dst: IpAddr) -> Option<IpAddr> {
        let stays = self.locators.contains(&arrived_at) && arrived_at.is_ipv4() == dst.is_ipv4();
        if stays { Some(arrived_at) } else { self.source_for(dst) }
    }

    /// The source of an answer that checks its destination: without tests of paths that of data, which a check from elsewhere does not cover.
    pub(super) fn source_of_check(&self, arrived_at: IpAddr, dst: IpAddr) -> Option<IpAddr> {
        if self.config.path_check.is_some() { self.source_of_answer(arrived_at, dst) } else { self.source_for(dst) }
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

    /// The bytes that are left for candidates in an I2 or R2 of this length with these further parameters: without those of HOST_ID, the
    /// signature, which is hardly longer, and the others. `None` if even these do not fit.
    pub(super) fn room_for_candidates<'a>(
        &self,
        len: usize,
        further: impl IntoIterator<Item = &'a Parameter>,
    ) -> Option<usize> {
        let mut bytes = Vec::new();
        let host_id = Parameter::HostId(self.host_id.clone());
        for parameter in further {
            parameter.put(&mut bytes).ok()?;
        }
        for parameter in [&host_id, &host_id] {
            parameter.put(&mut bytes).ok()?;
        }
        MAX_LEN.checked_sub(len + bytes.len() + OTHERS_LEN)
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

    /// A NOTIFY of this type.
    pub(super) fn notification(&mut self, receiver: Hit, kind: NotifyType, data: Bytes) -> Result<Builder, BuildError> {
        let mut notify = Builder::new(PacketType::Notify, self.hit, receiver);
        notify.push(&Parameter::Notification(Notification { kind, data }))?;
        self.sign(&mut notify)?;
        Ok(notify)
    }

    /// Sends a NOTIFY about a refused packet, at a limited rate; its data is that packet's header (RFC 9028 section 5.10).
    pub(super) fn notify_refusal(
        &mut self,
        now: Instant,
        receiver: Hit,
        refused: &Received,
        kind: NotifyType,
        between: (IpAddr, IpAddr),
    ) -> Result<(), BuildError> {
        self.notify(now, receiver, kind, refused.bytes().slice(..HEADER_LEN), between)
    }

    /// Sends a NOTIFY about an error in a packet (RFC 7401 section 4.3), at a limited rate.
    pub(super) fn notify_error(
        &mut self,
        now: Instant,
        receiver: Hit,
        error: &Dropped,
        between: (IpAddr, IpAddr),
    ) -> Result<(), BuildError> {
        let Some(kind) = error.notify_type() else { return Ok(()) };
        self.notify(now, receiver, kind, Bytes::new(), between)
    }

    fn notify(
        &mut self,
        now: Instant,
        receiver: Hit,
        kind: NotifyType,
        data: Bytes,
        (src, dst): (IpAddr, IpAddr),
    ) -> Result<(), BuildError> {
        if self.notified_sources.allows(now, dst, MOST_NOTIFIED_PER_SOURCE)
            && self.notified.allows(now, MOST_NOTIFIED_PER_S)
        {
            let notify = self.notification(receiver, kind, data)?;
            self.send_from(&notify, src, dst);
        }
        Ok(())
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

/// The signature of any packet of a host.
pub(super) fn verify_any_signature(received: &Received, identity: &HostIdentity) -> Result<(), Dropped> {
    let Some(signature) = find!(received.packet, HipSignature2) else { return verify_signature(received, identity) };
    let covered = received.covered_by_signature_2().ok_or(missing(kind::HIP_SIGNATURE_2))?;
    if identity.verify(&covered, signature) { Ok(()) } else { Err(Dropped::Signature) }
}

pub(super) fn verify_signature(received: &Received, identity: &HostIdentity) -> Result<(), Dropped> {
    let signature: Option<&Signature> =
        received.packet.find(|parameter| if let Parameter::HipSignature(it) = parameter { Some(it) } else { None });
    let covered = received.covered_before(kind::HIP_SIGNATURE);
    let (signature, covered) = signature.zip(covered).ok_or(missing(kind::HIP_SIGNATURE))?;
    if identity.verify(&covered, signature) { Ok(()) } else { Err(Dropped::Signature) }
}

/// The parameters in ENCRYPTED; none without one. To be called once HIP_MAC has been verified. Other contents than parameters are dropped
/// in silence (RFC 7401 section 6.9, step 11).
pub(super) fn decrypted(packet: &HipPacket, cipher: HipCipher, keys: &HipKeys) -> Result<Vec<Parameter>, Dropped> {
    let Some(data) = find!(packet, Encrypted) else { return Ok(Vec::new()) };
    let plain = cipher.decrypt(&keys.encryption, data).map_err(|_| Dropped::Encrypted)?;
    let (parameters, _) = read_parameters(&Bytes::from(plain), 0)?;
    Ok(parameters)
}

/// Adds ECHO_RESPONSE_UNSIGNED for each of these requests, as far as they fit: anyone on the path can add requests (RFC 7401 section
/// 5.2.21). Room is kept for the parameters that have to follow them.
pub(super) fn push_echoes<'a>(builder: &mut Builder, requests: impl IntoIterator<Item = &'a Bytes>) {
    for data in requests {
        let len = builder.covered().len() + (4 + data.len()).next_multiple_of(8);
        if len + ROOM_AFTER_ECHOES <= MAX_LEN {
            let _ = builder.push(&Parameter::EchoResponseUnsigned(data.clone()));
        }
    }
}

/// The requests of ECHO_REQUEST_UNSIGNED.
pub(super) fn unsigned_echoes(packet: &HipPacket) -> impl Iterator<Item = &Bytes> {
    let parameters = packet.parameters.iter();
    parameters.filter_map(|it| if let Parameter::EchoRequestUnsigned(data) = it { Some(data) } else { None })
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
