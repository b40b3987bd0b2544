//! Packets with bytes that their values lack, to see whether they are forwarded. Shared by the tests of crates that forward.

use bytes::Bytes;
use holdover_wire::{Checksums, Packet, Payload, transport_checksum};

/// An option of a kind that no value has, with the packet's number.
const UNKNOWN: u8 = 77;

/// The packet as it is received: with its number in IPv4's identification or IPv6's flow label, "don't fragment", and an unknown option.
pub(crate) fn received(packet: &Packet, number: u16) -> Packet {
    let plain = packet.emit().expect("a packet that can be written");
    let ip_len = packet.ip_header_len();
    let (mut ip, mut upper) = (plain[..ip_len].to_vec(), plain[ip_len..].to_vec());
    let [high, low] = number.to_be_bytes();
    let header_len = usize::from(upper[12] >> 4) * 4;
    upper.splice(header_len..header_len, [1, UNKNOWN, 6, high, low, 0xab, 0xcd, 1]);
    upper[12] += 2 << 4;
    upper[16..18].fill(0);
    let sum = transport_checksum(packet.src, packet.dst, 6, &upper);
    upper[16..18].copy_from_slice(&sum.to_be_bytes());
    if packet.dst.is_ipv4() {
        ip[2..4].copy_from_slice(&((ip_len + upper.len()) as u16).to_be_bytes());
        ip[4..7].copy_from_slice(&[high, low, 0x40]);
    } else {
        ip[2..4].copy_from_slice(&[high, low]);
        ip[4..6].copy_from_slice(&(upper.len() as u16).to_be_bytes());
    }
    // The checksum of the IPv4 header is computed, the others are as they should be.
    let bytes = Bytes::from([ip, upper].concat());
    let packet = Packet::parse_to_forward(bytes, Checksums::Ignore).expect("a packet");
    let bytes = packet.emit().expect("it can be written");
    Packet::parse_to_forward(bytes, Checksums::Verify).expect("its checksums are right")
}

/// The bytes of a packet without what a mechanism may edit: the hop limit, the reserved flag, the ACK number, the window, timestamps,
/// SACK blocks, and checksums.
pub(crate) fn without_edits(packet: &Packet) -> Vec<u8> {
    let mut bytes = packet.emit().expect("it can be written").to_vec();
    let start = packet.ip_header_len();
    if packet.dst.is_ipv4() {
        (bytes[6], bytes[8]) = (bytes[6] & 0x7f, 0);
        bytes[10..12].fill(0);
    } else {
        bytes[7] = 0;
    }
    let end = start + usize::from(bytes[start + 12] >> 4) * 4;
    for range in [8..12, 14..16, 16..18] {
        bytes[start..][range].fill(0);
    }
    let mut at = start + 20;
    while at < end && bytes[at] != 0 {
        let len = if bytes[at] == 1 { 1 } else { usize::from(bytes[at + 1]) };
        if matches!(bytes[at], 5 | 8) {
            bytes[at..at + len].fill(1);
        }
        at += len;
    }
    bytes
}

/// The number that a packet came with; `None` for a packet that was made here.
pub(crate) fn number(packet: &Packet) -> Option<u16> {
    let Payload::Tcp(segment) = &packet.payload else { return None };
    let bytes = packet.emit().expect("it can be written");
    let start = packet.ip_header_len();
    let options = &bytes[start + 20..bytes.len() - segment.payload.len()];
    let at = options.windows(3).position(|window| window == [1, UNKNOWN, 6])?;
    Some(u16::from_be_bytes([options[at + 3], options[at + 4]]))
}
