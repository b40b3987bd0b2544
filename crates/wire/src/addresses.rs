//! The addresses of a packet that is kept as bytes.

use core::net::IpAddr;

/// The source and the destination of an IP packet; `None` if it ends before them, or is of another IP version.
pub fn ip_addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let v4 = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    let v6 = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
    match packet.first()? >> 4 {
        4 => Some((v4(12)?, v4(16)?)),
        6 => Some((v6(8)?, v6(24)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Packet, Segment};

    #[test]
    fn addresses_are_those_of_the_packet() {
        for (from, to) in [("192.0.2.1", "10.0.0.7"), ("2001:db8::1", "fd00::7")] {
            let [from, to] = [from, to].map(|text| text.parse::<IpAddr>().unwrap());
            let bytes = Packet::new(from, to, Segment::default()).emit().unwrap();
            assert_eq!(ip_addresses(&bytes), Some((from, to)));
            assert_eq!(ip_addresses(&bytes[..19]), None, "truncated");
        }
        assert_eq!(ip_addresses(&[0x50; 40]), None, "no such IP version");
        assert_eq!(ip_addresses(&[]), None);
    }
}
