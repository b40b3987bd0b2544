//! What a link carries.

use holdover_wire::Compression;

/// Something that a link can carry. The link looks at nothing but its length, and at what compression leaves of it.
/// `Clone` is used for duplication and for broadcasts in a radio cell only.
pub trait Frame: Clone {
    /// Bytes that the frame takes on the wire, without what the link itself adds.
    fn wire_len(&self) -> u32;

    /// Marks it as having met congestion (RFC 3168 section 5). Returns whether it is marked; a frame that does not take part in ECN is
    /// not.
    fn mark_congestion(&mut self) -> bool {
        false
    }

    /// By how many bytes a link that compresses makes it shorter.
    fn saved_by(&self, _compression: &Compression) -> u32 {
        0
    }
}

impl Frame for holdover_wire::Packet {
    fn wire_len(&self) -> u32 {
        saturating_len(Self::wire_len(self))
    }

    fn mark_congestion(&mut self) -> bool {
        let takes_part = self.traffic_class & 3 != 0;
        if takes_part {
            self.traffic_class |= 3;
        }
        takes_part
    }

    fn saved_by(&self, compression: &Compression) -> u32 {
        saturating_len(compression.saved(self))
    }
}

impl Frame for bytes::Bytes {
    fn wire_len(&self) -> u32 {
        saturating_len(self.len())
    }
}

impl Frame for Vec<u8> {
    fn wire_len(&self) -> u32 {
        saturating_len(self.len())
    }
}

fn saturating_len(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
