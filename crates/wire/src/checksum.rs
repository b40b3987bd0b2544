//! The Internet checksum (RFC 1071) and the pseudo headers that TCP, UDP and ICMPv6 include in it.

use core::net::IpAddr;

use etherparse::checksum::Sum16BitWords;

/// The bytes that a transport checksum covers besides the transport's own.
#[derive(Clone, Copy)]
pub(crate) enum Cover {
    /// None (ICMP of IPv4, the IPv4 header itself).
    Plain,
    /// A pseudo header (RFC 9293 section 3.1 for IPv4, RFC 8200 section 8.1 for IPv6).
    Pseudo {
        /// Source address.
        src: IpAddr,
        /// Destination address.
        dst: IpAddr,
        /// The upper-layer protocol number.
        protocol: u8,
    },
}

/// The checksum over `head` followed by `rest`, as a number in host order: the value that a sender writes if the field within `head` is
/// zero, and zero for a receiver that includes an intact field. `head` is of even length.
pub(crate) fn checksum(cover: Cover, head: &[u8], rest: &[u8]) -> u16 {
    debug_assert!(head.len().is_multiple_of(2), "only the last byte may be unpaired");
    let mut sum = Sum16BitWords::new();
    if let Cover::Pseudo { src, dst, protocol } = cover {
        sum = add_address(add_address(sum, src), dst)
            .add_2bytes([0, protocol])
            .add_4bytes(((head.len() + rest.len()) as u32).to_be_bytes());
    }
    // The sum is kept in memory order, as the bytes of the field are.
    u16::from_be_bytes(sum.add_slice(head).add_slice(rest).ones_complement().to_ne_bytes())
}

/// The Internet checksum over `bytes` alone (RFC 1071), as in ICMP for IPv4: the value that a sender writes if the field is zero, and zero
/// for a receiver that includes an intact field.
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    checksum(Cover::Plain, &[], bytes)
}

/// The checksum over `bytes`, the whole of an upper-layer packet of `protocol` between two addresses of one family, with the pseudo header
/// that TCP, UDP, ICMPv6 and HIP share: the value that a sender writes if the field is zero, and zero for a receiver that includes an
/// intact field.
pub fn transport_checksum(src: IpAddr, dst: IpAddr, protocol: u8, bytes: &[u8]) -> u16 {
    checksum(Cover::Pseudo { src, dst, protocol }, &[], bytes)
}

fn add_address(mut sum: Sum16BitWords, address: IpAddr) -> Sum16BitWords {
    match address {
        IpAddr::V4(address) => sum.add_4bytes(address.octets()),
        IpAddr::V6(address) => sum.add_16bytes(address.octets()),
    }
}

/// The checksum after `old` was replaced by `new` in the covered bytes (RFC 1624 section 3, equation 3). Each piece has an even number of
/// bytes and begins at a word; the order of the pieces does not matter.
pub(crate) fn updated(checksum: u16, old: &[&[u8]], new: &[&[u8]]) -> u16 {
    let mut sum = Sum16BitWords::new().add_2bytes((!checksum).to_be_bytes());
    for piece in old {
        // The complement of a sum of words is the sum of their complements.
        sum = sum.add_2bytes((!folded_sum(piece)).to_be_bytes());
    }
    for piece in new {
        sum = sum.add_2bytes(folded_sum(piece).to_be_bytes());
    }
    u16::from_be(sum.ones_complement())
}

fn folded_sum(bytes: &[u8]) -> u16 {
    u16::from_be(!Sum16BitWords::new().add_slice(bytes).ones_complement())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_section_3_sums_up() {
        let words = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(Cover::Plain, &words, &[]), !0xddf2);
        assert_eq!(checksum(Cover::Plain, &words[..2], &words[2..]), !0xddf2);
        // An odd last byte counts as the high half of a word.
        assert_eq!(checksum(Cover::Plain, &[], &[0x12, 0x34, 0x56]), !(0x1234 + 0x5600));
    }

    /// A header checksum of 0xdd2f, whose field 0x5555 becomes 0x3285, is 0 afterwards (RFC 1624 section 4).
    #[test]
    fn the_example_of_rfc_1624_section_4_gives_zero() {
        assert_eq!(updated(0xdd2f, &[&[0x55, 0x55]], &[&[0x32, 0x85]]), 0);
        assert_eq!(updated(0xdd2f, &[&[0x12, 0x34], &[0x55, 0x55]], &[&[0x32, 0x85, 0x12, 0x34]]), 0);
    }
}
