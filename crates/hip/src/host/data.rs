//! Data: packets in ESP, between their bookkeeping, which is in order, and their encryption, which any thread may do, or another data plane.

use core::net::IpAddr;

use bytes::{Bytes, BytesMut};
use holdover_base::Instant;
use holdover_wire::{Packet, Payload};

use super::association::Association;
use super::local::Local;
use super::{DataError, Host, Opened, SPI_LEN, Service};
use crate::codec::NotifyType;
use crate::esp::{Decrypted, EspSuite, Inbound, OpenError, Opening, SealError, Sealing};
use crate::identity::Hit;

/// Bytes of the inner IPv6 header.
const IPV6_LEN: usize = 40;
/// The most bytes that ESP and an outer IP header add: for the credit of unverified addresses.
const OVERHEAD: usize = 100;

/// A packet that is to be encrypted ([`Host::begin_seal`](super::Host::begin_seal)).
#[derive(Debug)]
pub struct Encapsulation {
    /// Source of the outer packet.
    pub src: IpAddr,
    /// Destination of the outer packet.
    pub dst: IpAddr,
    /// Its encryption.
    pub sealing: Sealing,
}

/// A packet that is to be decrypted ([`Host::begin_open`](super::Host::begin_open)).
#[derive(Debug)]
pub struct Decapsulation {
    pub(super) spi: u32,
    pub(super) opening: Opening,
}

impl Decapsulation {
    /// Verifies and decrypts the packet for which this was begun.
    ///
    /// # Errors
    ///
    /// [`DataError`]; the packet is to be dropped.
    pub fn decrypt(&self, packet: &Packet) -> Result<Authentic, DataError> {
        let Payload::Esp(esp) = &packet.payload else { return Err(OpenError::Integrity.into()) };
        let decrypted = self.opening.decrypt(esp, packet.ttl, packet.traffic_class)?;
        Ok(Authentic { spi: self.spi, decrypted })
    }
}

/// An authentic packet for [`Host::finish_open`](super::Host::finish_open), which finds out whether it is a replay.
#[derive(Debug)]
pub struct Authentic {
    pub(super) spi: u32,
    pub(super) decrypted: Decrypted<Packet>,
}

/// A packet that another data plane encrypts ([`Host::assign`]): the outer addresses, and the header of ESP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assigned {
    /// Source of the outer packet.
    pub src: IpAddr,
    /// Destination of the outer packet.
    pub dst: IpAddr,
    /// The SPI.
    pub spi: u32,
    /// The sequence number. Its lower half is sent.
    pub number: u64,
    /// The transform.
    pub suite: EspSuite,
}

/// A packet that another data plane has verified ([`Host::accept`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// The sender.
    pub peer: Hit,
    /// As [`super::Opened::is_newest`].
    pub is_newest: bool,
}

impl Host {
    /// Encapsulates a packet between HITs in ESP between addresses.
    ///
    /// # Errors
    ///
    /// [`DataError`] without an association or a usable address; the owner may [`Host::connect`].
    pub fn seal(&mut self, now: Instant, packet: &Packet) -> Result<Packet, DataError> {
        let Encapsulation { src, dst, sealing } = self.begin_seal(now, packet)?;
        let mut esp = BytesMut::with_capacity(packet.wire_len() + OVERHEAD);
        sealing.append(packet, &mut esp)?;
        let outer = Packet::new(src, dst, Payload::Esp(esp.freeze()));
        Ok(Packet { ttl: packet.ttl, traffic_class: packet.traffic_class, ..outer })
    }

    /// Chooses the addresses and the sequence number of a packet between HITs, which the owner encrypts, on any thread.
    ///
    /// # Errors
    ///
    /// [`DataError`], as [`Host::seal`].
    pub fn begin_seal(&mut self, now: Instant, packet: &Packet) -> Result<Encapsulation, DataError> {
        let IpAddr::V6(dst) = packet.dst else { return Err(DataError::NoAssociation) };
        let (association, local, (src, dst)) = self.path_to(now, Hit(dst), packet.wire_len() + OVERHEAD)?;
        let secured = association.secured.as_mut().ok_or(DataError::NoAssociation)?;
        let sealing = secured.outbound.begin(packet, &mut *local.rng)?;
        association.used_at = now;
        association.note_sent(local, now, (src, dst));
        Ok(Encapsulation { src, dst, sealing })
    }

    /// A dummy packet for a peer (RFC 4303 section 2.6), which keeps translators' bindings alive, and shows the peer a
    /// changed binding: unlike a NOTIFY, it cannot be replayed. Between a relay and its client a NOTIFY goes with it (RFC 9028 section 4.10), and
    /// if the peer `is_silent`: a peer without the association's keys identifies the sender only by a NOTIFY.
    ///
    /// # Errors
    ///
    /// [`DataError`] without an association or a usable address.
    pub fn keep_alive(&mut self, now: Instant, peer: Hit, is_silent: bool) -> Result<Packet, DataError> {
        let (association, local, (src, dst)) = self.path_to(now, peer, OVERHEAD)?;
        let secured = association.secured.as_mut().ok_or(DataError::NoAssociation)?;
        let esp = secured.outbound.seal_dummy(&mut *local.rng)?;
        association.used_at = now;
        let is_client = association.client.as_ref().is_some_and(|client| client.has(Service::RelayHip));
        if (is_silent || is_client || local.registry.has(now, peer, Service::RelayHip))
            && let Ok(notify) = local.notification(peer, NotifyType::NAT_KEEPALIVE, Bytes::new())
        {
            local.send_from(&notify, src, dst);
        }
        Ok(Packet::new(src, dst, Payload::Esp(esp)))
    }

    /// Decapsulates the packet between HITs in ESP, unless it is a dummy.
    ///
    /// # Errors
    ///
    /// [`DataError`]; the packet is to be dropped.
    pub fn open(&mut self, now: Instant, packet: &Packet) -> Result<Opened, DataError> {
        let decrypted = self.begin_open(packet)?.decrypt(packet)?;
        self.finish_open(now, packet, decrypted)
    }

    /// Finds the security association of a packet in ESP, which the owner decrypts, on any thread, and passes to [`Host::finish_open`].
    ///
    /// # Errors
    ///
    /// [`DataError`]; the packet is to be dropped.
    pub fn begin_open(&self, packet: &Packet) -> Result<Decapsulation, DataError> {
        let Payload::Esp(esp) = &packet.payload else { return Err(DataError::NoAssociation) };
        let spi = esp.first_chunk::<SPI_LEN>().map(|bytes| u32::from_be_bytes(*bytes));
        let spi = spi.ok_or(DataError::NoAssociation)?;
        let peer = self.local.spis.get(&spi).ok_or(DataError::NoAssociation)?;
        let association = self.associations.get(peer).filter(|association| association.is_usable());
        let secured = association.and_then(|association| association.secured.as_ref());
        let secured = secured.ok_or(DataError::NoAssociation)?;
        let old = secured.old_inbound.as_ref().map(|(_, old)| old).filter(|old| old.spi() == spi);
        Ok(Decapsulation { spi, opening: old.unwrap_or(&secured.inbound).begin(esp)? })
    }

    /// Whether packets with this SPI are for this host.
    pub fn has_inbound(&self, spi: u32) -> bool {
        self.local.spis.contains_key(&spi)
    }

    /// Takes a decrypted packet: packets are to be passed in the order in which they arrived.
    ///
    /// # Errors
    ///
    /// [`DataError`]; the packet is to be dropped.
    pub fn finish_open(&mut self, now: Instant, packet: &Packet, decrypted: Authentic) -> Result<Opened, DataError> {
        let Authentic { spi, decrypted } = decrypted;
        let number = decrypted.number();
        let (inner, peer, is_newest) =
            self.receive(now, spi, packet.wire_len(), |inbound| match inbound.finish(decrypted) {
                Ok(inner) => Ok(Some(inner)),
                Err(OpenError::Dummy) => Ok(None),
                Err(error) => Err(error),
            })?;
        if let Some(association) = self.associations.get_mut(&peer) {
            association.note_heard(&mut self.local, now, (packet.dst, packet.src), true);
        }
        Ok(Opened { peer, inner, spi, number, is_newest })
    }

    /// Chooses addresses, SPI and sequence number of a packet to a peer, with `len` bytes behind its inner IP header, for a data plane
    /// that encrypts it: a kernel's, or a simulation without ciphers.
    ///
    /// # Errors
    ///
    /// [`DataError`], as [`Host::seal`].
    pub fn assign(&mut self, now: Instant, peer: Hit, len: usize) -> Result<Assigned, DataError> {
        let (association, local, (src, dst)) = self.path_to(now, peer, IPV6_LEN + len + OVERHEAD)?;
        let outbound = &mut association.secured.as_mut().ok_or(DataError::NoAssociation)?.outbound;
        let number = outbound.assign(len)?;
        let (spi, suite) = (outbound.spi(), outbound.keys().suite);
        association.used_at = now;
        association.note_sent(local, now, (src, dst));
        Ok(Assigned { src, dst, spi, number, suite })
    }

    /// Takes a packet in ESP whose integrity another data plane has verified: with this SPI and the lower half of its sequence number,
    /// `len` bytes of inner payload, and `outer_len` bytes on the wire.
    ///
    /// # Errors
    ///
    /// [`DataError`]; the packet is to be dropped.
    pub fn accept(
        &mut self,
        now: Instant,
        spi: u32,
        low: u32,
        len: usize,
        outer_len: usize,
    ) -> Result<Accepted, DataError> {
        let ((), peer, is_newest) = self.receive(now, spi, outer_len, |inbound| inbound.accept(low, len))?;
        Ok(Accepted { peer, is_newest })
    }

    /// The destination and the transform of a packet of `len` bytes to a peer, as [`Self::begin_seal`] would choose them now. `None` if it
    /// would fail.
    pub fn data_path(&mut self, now: Instant, peer: Hit, len: usize) -> Option<(IpAddr, EspSuite)> {
        let local = &self.local;
        let association = self.associations.get_mut(&peer).filter(|association| association.is_usable())?;
        let dst = association.peer_addresses.destination(now, len + OVERHEAD, |dst| local.source_for(dst).is_some())?;
        let (_, dst) = association.route(local, (local.source_for(dst)?, dst));
        Some((dst, association.secured.as_ref()?.outbound.keys().suite))
    }

    /// Whether a packet of `len` bytes to a peer has a path now: to a verified address, or to another one within the credit.
    pub fn has_path(&mut self, now: Instant, peer: Hit, len: usize) -> bool {
        let local = &self.local;
        let association = self.associations.get_mut(&peer).filter(|association| association.is_usable());
        association.is_some_and(|it| {
            it.peer_addresses.destination(now, len + OVERHEAD, |dst| local.source_for(dst).is_some()).is_some()
        })
    }

    /// The association with a peer, and the addresses of data to it.
    pub(super) fn path_to(
        &mut self,
        now: Instant,
        peer: Hit,
        bytes: usize,
    ) -> Result<(&mut Association, &mut Local, (IpAddr, IpAddr)), DataError> {
        let association = self.associations.get_mut(&peer).filter(|association| association.is_usable());
        let association = association.ok_or(DataError::NoAssociation)?;
        let local = &mut self.local;
        let dst = association.peer_addresses.for_data(now, bytes, |dst| local.source_for(dst).is_some());
        let Some(between) = dst.and_then(|dst| Some((local.source_for(dst)?, dst))) else {
            association.check_again(local, now);
            return Err(DataError::NoPath);
        };
        if association.is_worn_out(local) {
            return Err(SealError::Exhausted.into());
        }
        let between = association.route(local, between);
        Ok((association, local, between))
    }

    /// A packet arrived at an SPI: `take` passes it to the security association. Returns also the sender, and whether it is the newest
    /// under the newest keys.
    pub(super) fn receive<T>(
        &mut self,
        now: Instant,
        spi: u32,
        outer_len: usize,
        take: impl FnOnce(&mut Inbound) -> Result<T, OpenError>,
    ) -> Result<(T, Hit, bool), DataError> {
        let peer = *self.local.spis.get(&spi).ok_or(DataError::NoAssociation)?;
        let association = self.associations.get_mut(&peer).filter(|association| association.is_usable());
        let association = association.ok_or(DataError::NoAssociation)?;
        let secured = association.secured.as_mut().ok_or(DataError::NoAssociation)?;
        let old = secured.old_inbound.as_mut().map(|(_, old)| old).filter(|old| old.spi() == spi);
        let is_current = old.is_none();
        let inbound = old.unwrap_or(&mut secured.inbound);
        if inbound.spi() != spi {
            // The keys have changed since it was decrypted.
            return Err(DataError::NoAssociation);
        }
        let before = inbound.greatest();
        let taken = take(inbound)?;
        let is_newest = is_current && inbound.greatest() > before;
        association.note_alive(now);
        association.peer_addresses.earn(now, outer_len);
        if is_newest {
            association.check_again(&mut self.local, now);
        }
        Ok((taken, peer, is_newest))
    }
}
