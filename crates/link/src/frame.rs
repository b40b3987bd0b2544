//! Frames.

use holdover_wire::Compression;

/// A frame of a link. The link uses only its length, and its length after compression. `Clone` is used for duplication,
/// and for broadcasts in a radio cell only.
pub trait Frame: Clone {
    /// Bytes of the frame on the wire, without the link's own overhead.
    fn wire_len(&self) -> u32;

    /// Sets the Congestion Experienced mark (RFC 3168 section 5). Returns whether it is set; frames without ECN are not
    /// marked.
    fn mark_congestion(&mut self) -> bool {
        false
    }

    /// The number of bytes that compression saves.
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
