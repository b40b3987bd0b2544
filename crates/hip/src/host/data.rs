//! Packets between their bookkeeping, which is in order, and their encryption, which any thread may do.

use core::net::IpAddr;

use holdover_wire::{Packet, Payload};

use super::DataError;
use crate::esp::{Decrypted, OpenError, Opening, Sealing};

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
