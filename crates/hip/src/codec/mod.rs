//! HIPv2 packets as bytes and as values (RFC 7401 section 5).
//!
//! [`HipPacket`] is the value. [`HipPacket::parse`] parses one from an IP packet and keeps its bytes ([`Received`]), because MACs and
//! signatures cover bytes. A [`Builder`] emits one: it takes parameters in the order of their types and returns the bytes so far at each
//! step, so that a MAC and a signature can be computed and added.
//!
//! The parser checks version, length, checksum, order of parameters, repeated parameters, the length of each parameter, and
//! unknown parameters with the critical bit. It does not check which packet may carry which parameters, nor anything that needs a key.

mod builder;
mod error;
mod identifier;
mod locator;
pub(crate) use locator::{map, unmap};
mod numbers;
mod parameter;
mod parse;
mod write;

pub use builder::Builder;
pub use error::{BuildError, DecodeError};
pub use identifier::{DomainId, HostId};
pub use locator::{CandidateKind, Locator, LocatorKind, LocatorTraffic, TransportAddress};
pub use numbers::{NatTraversalMode, NotifyType, PacketType, kind};
pub use parameter::{
    EspInfo, Notification, Parameter, PeerPermission, Puzzle, R1Counter, RegFailed, RegInfo, RegList, RelayAddress,
    Signature, Solution,
};
pub use parse::Received;
pub(crate) use parse::read_parameters;

use core::net::IpAddr;

use holdover_wire::Packet;

use crate::identity::Hit;

/// The IP protocol number of HIP (RFC 7401 section 5.1).
pub const PROTOCOL: u8 = 139;

/// Bytes of the fixed header (RFC 7401 section 5.1).
pub const HEADER_LEN: usize = 40;

/// The longest packet that the header's length field can express, in bytes (RFC 7401 section 5.1).
pub const MAX_LEN: usize = 8 * 256;

/// The bit of the controls field that marks the sender's HIT as anonymous (RFC 7401 section 5.1.2).
pub const CONTROL_ANONYMOUS: u16 = 1;

/// "No next header" (RFC 8200 section 4.7), required by RFC 7401 section 5.1.
const NO_NEXT_HEADER: u8 = 59;

/// Version 2 in the upper four bits, and the bit that is always set in the lower four (RFC 7401 section 5.1).
const VERSION: u8 = 0x21;

/// A HIP packet: header fields and parameters in the order of their types.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HipPacket {
    /// The packet type.
    pub kind: PacketType,
    /// The controls field; only [`CONTROL_ANONYMOUS`] is defined.
    pub controls: u16,
    /// The sender's HIT.
    pub sender: Hit,
    /// The receiver's HIT; zero in an opportunistic I1.
    pub receiver: Hit,
    /// The parameters.
    pub parameters: Vec<Parameter>,
}

impl HipPacket {
    /// A packet without parameters.
    pub const fn new(kind: PacketType, sender: Hit, receiver: Hit) -> Self {
        Self { kind, controls: 0, sender, receiver, parameters: Vec::new() }
    }

    /// Parses the HIP packet in an IP packet, and verifies its checksum.
    ///
    /// # Errors
    ///
    /// Every [`DecodeError`]: such a packet is dropped; for [`DecodeError::Critical`] and syntax errors the receiver may send
    /// NOTIFY (RFC 7401 section 4.3).
    pub fn parse(packet: &Packet) -> Result<Received, DecodeError> {
        parse::parse(packet)
    }

    /// The packet between two locators.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if parameters are out of order or too long.
    pub fn emit(&self, src: IpAddr, dst: IpAddr) -> Result<Packet, BuildError> {
        let mut builder = Builder::new(self.kind, self.sender, self.receiver).controls(self.controls);
        for parameter in &self.parameters {
            builder.push(parameter)?;
        }
        Ok(builder.finish(src, dst))
    }

    /// The first parameter for which `select` returns a value.
    pub fn find<'a, T>(&'a self, select: impl FnMut(&'a Parameter) -> Option<T>) -> Option<T> {
        self.parameters.iter().find_map(select)
    }
}
