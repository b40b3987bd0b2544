//! Options of TCP experiments (RFC 6994).

use bytes::Bytes;

/// A shared experimental option (RFC 6994): kind 253 or 254, an experiment identifier, and data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Experimental {
    /// Whether the kind is 254 (else 253).
    pub second_kind: bool,
    /// The experiment.
    pub id: ExperimentalId,
    /// The data after the identifier.
    pub data: Bytes,
}

impl Experimental {
    /// Bytes of the option: kind, length, identifier and data.
    pub fn wire_len(&self) -> usize {
        2 + self.id.wire_len() + self.data.len()
    }

    /// The same option with an identifier of 32 bits, for an experiment that has one; `None` if the data is too short
    /// for that.
    pub fn with_long_id(&self) -> Option<Self> {
        let ExperimentalId::Short(high) = self.id else { return Some(self.clone()) };
        let low = self.data.get(..2)?;
        let id = u32::from(high) << 16 | u32::from(u16::from_be_bytes([low[0], low[1]]));
        Some(Self { id: ExperimentalId::Long(id), data: self.data.slice(2..), ..*self })
    }
}

/// A TCP experiment identifier (RFC 6994 section 3): 16 bits, or 32 bits with the first 16 registered.
///
/// The wire format does not distinguish the two; a reader knows its own experiments. Parsing yields 16 bits and leaves
/// the rest to the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExperimentalId {
    /// A 16-bit identifier.
    Short(u16),
    /// A 32-bit identifier.
    Long(u32),
}

impl ExperimentalId {
    /// Bytes of the identifier.
    pub const fn wire_len(self) -> usize {
        match self {
            Self::Short(_) => 2,
            Self::Long(_) => 4,
        }
    }
}
