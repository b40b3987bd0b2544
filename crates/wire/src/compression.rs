//! A model of the compression of packets to a mobile host at M-TCP's supervisor host (Brown and Singh 1997, sections 4.2.1 and 6.3).

use crate::{Packet, Payload};

/// How much of the payload of packets that are compressed one by one remains, by content. Headers stay unchanged.
/// Encrypted payload does not compress, and a packet that would not become shorter is sent unchanged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Compression {
    /// The share of TCP data that remains, from 0 to 1.
    pub tcp: f64,
    /// The share of UDP data that remains.
    pub udp: f64,
    /// The share that remains of everything else behind IP headers: ICMP, fragments, other protocols.
    pub other: f64,
    /// Bytes that compression adds to each packet that it shortens, such as a header of its own.
    pub header_bytes: u32,
}

impl Default for Compression {
    /// No compression.
    fn default() -> Self {
        Self { tcp: 1.0, udp: 1.0, other: 1.0, header_bytes: 0 }
    }
}

impl Compression {
    /// The number of bytes by which `packet` becomes shorter.
    pub fn saved(&self, packet: &Packet) -> usize {
        let (share, len) = match &packet.payload {
            Payload::Tcp(segment) => (self.tcp, segment.payload.len()),
            Payload::Udp(udp) => (self.udp, udp.payload.len()),
            Payload::Esp(_) | Payload::Encrypted(_) => return 0,
            Payload::IcmpError(_) | Payload::IcmpEcho(_) | Payload::Fragment(_) | Payload::Other { .. } => {
                (self.other, packet.wire_len() - packet.ip_header_len())
            }
        };
        // Rounded up to whole bytes.
        let remains = (share * len as f64).ceil() as usize;
        len.saturating_sub(remains).saturating_sub(self.header_bytes as usize)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Segment, Udp};

    fn packet(payload: impl Into<Payload>) -> Packet {
        Packet::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), payload)
    }

    fn segment(len: usize) -> Packet {
        packet(Segment { payload: vec![0; len].into(), ..Segment::default() })
    }

    #[test]
    fn payload_becomes_shorter_by_its_kind() {
        let compression = Compression { tcp: 0.4, udp: 0.5, header_bytes: 10, ..Compression::default() };
        assert_eq!(compression.saved(&segment(1000)), 600 - 10);
        assert_eq!(compression.saved(&segment(1001)), 1001 - 401 - 10, "rounded up");
        assert_eq!(compression.saved(&packet(Udp { payload: vec![0; 100].into(), ..Udp::default() })), 50 - 10);
        assert_eq!(compression.saved(&packet(Payload::Other { protocol: 47, payload: vec![0; 100].into() })), 0);
    }

    #[test]
    fn nothing_becomes_longer_and_encrypted_payload_does_not_compress() {
        let compression = Compression { tcp: 0.4, other: 0.0, header_bytes: 10, ..Compression::default() };
        assert_eq!(compression.saved(&segment(0)), 0);
        assert_eq!(compression.saved(&segment(16)), 0);
        assert_eq!(compression.saved(&packet(Payload::Esp(Bytes::from_static(&[0; 100])))), 0);
        assert_eq!(Compression::default().saved(&segment(1000)), 0);
    }
}
