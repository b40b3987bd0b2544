//! Emitting packets, step by step.

use core::net::IpAddr;
use core::ops::Range;

use bytes::Bytes;
use holdover_wire::{Packet, Payload, transport_checksum};

use super::parameter::is_repeatable;
use super::{
    BuildError, HEADER_LEN, HostId, MAX_LEN, NO_NEXT_HEADER, PROTOCOL, PacketType, Parameter, Puzzle, VERSION,
};
use crate::identity::Hit;

/// The offset of the header's length field, in units of 8 bytes without the first.
pub(super) const LENGTH: usize = 1;
/// The position of the header's checksum.
pub(super) const CHECKSUM: Range<usize> = 4..6;

/// A packet under construction. Parameters are pushed in the order of their types; a MAC or signature covers everything
/// pushed before it.
#[derive(Clone, Debug)]
pub struct Builder {
    bytes: Vec<u8>,
    last: Option<u16>,
    puzzle: Option<usize>,
}

impl Builder {
    /// A packet without parameters.
    pub fn new(kind: PacketType, sender: Hit, receiver: Hit) -> Self {
        let mut bytes = Vec::with_capacity(512);
        bytes.extend([NO_NEXT_HEADER, length_field(HEADER_LEN), kind.number(), VERSION, 0, 0, 0, 0]);
        bytes.extend(sender.0.octets());
        bytes.extend(receiver.0.octets());
        Self { bytes, last: None, puzzle: None }
    }

    /// A packet with this header and these parameters; `last` is the type of the last one.
    pub(super) fn from_bytes(bytes: &[u8], last: Option<u16>) -> Self {
        let mut bytes = bytes.to_vec();
        bytes[CHECKSUM].fill(0);
        bytes[LENGTH] = length_field(bytes.len());
        Self { bytes, last, puzzle: None }
    }

    /// The same with a controls field.
    #[must_use]
    pub fn controls(mut self, controls: u16) -> Self {
        self.bytes[6..8].copy_from_slice(&controls.to_be_bytes());
        self
    }

    /// Adds a parameter.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if it is out of order or too long; the packet is then as it was before.
    pub fn push(&mut self, parameter: &Parameter) -> Result<(), BuildError> {
        let (kind, start) = (parameter.kind(), self.bytes.len());
        if let Some(after) = self.last.filter(|&after| kind < after || kind == after && !is_repeatable(kind)) {
            return Err(BuildError::Order { kind, after });
        }
        let written = parameter.put(&mut self.bytes);
        let len = self.bytes.len();
        let checked = written.and(if len > MAX_LEN { Err(BuildError::TooLong { len }) } else { Ok(()) });
        if checked.is_err() {
            self.bytes.truncate(start);
            return checked;
        }
        if matches!(parameter, Parameter::Puzzle(_)) {
            self.puzzle = Some(start);
        }
        self.last = Some(kind);
        self.bytes[LENGTH] = length_field(len);
        Ok(())
    }

    /// The length of the packet so far, from the HIP header on.
    pub(crate) const fn wire_len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that a MAC or signature added now covers: everything so far, with a checksum of zero.
    pub fn covered(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes that HIP_MAC_2 covers if it is added now: [`Self::covered`] and the sender's HOST_ID (RFC 7401 section 6.4.1).
    ///
    /// # Errors
    ///
    /// [`BuildError`] if the HOST_ID cannot be written.
    pub fn covered_by_mac_2(&self, host_id: &HostId) -> Result<Vec<u8>, BuildError> {
        let mut covered = self.bytes.clone();
        Parameter::HostId(host_id.clone()).put(&mut covered)?;
        covered[LENGTH] = length_field(covered.len());
        Ok(covered)
    }

    /// Fills in the fields that HIP_SIGNATURE_2 leaves open: the receiver's HIT, and the puzzle's opaque data and #I, which has the length
    /// of the #I pushed with the puzzle.
    pub fn address_to(&mut self, receiver: Hit, puzzle: &Puzzle) {
        self.bytes[24..HEADER_LEN].copy_from_slice(&receiver.0.octets());
        if let Some(start) = self.puzzle {
            self.bytes[start + 6..start + 8].copy_from_slice(&puzzle.opaque);
            self.bytes[start + 8..start + 8 + puzzle.random.len()].copy_from_slice(&puzzle.random);
        }
    }

    /// The packet between two locators.
    pub fn finish(mut self, src: IpAddr, dst: IpAddr) -> Packet {
        let sum = transport_checksum(src, dst, PROTOCOL, &self.bytes);
        self.bytes[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
        Packet::new(src, dst, Payload::Other { protocol: PROTOCOL, payload: Bytes::from(self.bytes) })
    }
}

/// The header's length field of a packet of `len` bytes, a multiple of 8.
pub(super) fn length_field(len: usize) -> u8 {
    (len / 8 - 1) as u8
}
