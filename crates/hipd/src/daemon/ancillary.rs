//! Header fields beside the data of a socket (`cmsg(3)`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdover_wire::Packet;

const WORD: usize = size_of::<usize>();
/// Length, level and type.
const HEADER: usize = WORD + 8;

/// Header fields from ancillary data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ancillary {
    pub(super) dst: Option<IpAddr>,
    pub(super) ttl: u8,
    pub(super) traffic_class: u8,
    /// Bytes of each datagram but the last, which the kernel has joined (`UDP_GRO`).
    pub(super) segment: Option<usize>,
}

impl Ancillary {
    /// Reads control messages (`cmsg(3)`): length, level and type, then data, each aligned to the size of a length.
    pub(super) fn read(mut control: &[u8]) -> Self {
        let mut ancillary = Self { dst: None, ttl: Packet::DEFAULT_TTL, traffic_class: 0, segment: None };
        while let Some((head, rest)) = control.split_at_checked(HEADER) {
            let mut len = [0; WORD];
            len.copy_from_slice(&head[..WORD]);
            let int = |at: usize| i32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (level, kind) = (int(WORD), int(WORD + 4));
            let Some(data) = usize::from_ne_bytes(len).checked_sub(HEADER).and_then(|len| rest.get(..len)) else {
                break;
            };
            match (level, kind) {
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    ancillary.dst = data.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes).into());
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    // Index, local address, destination in the header.
                    ancillary.dst =
                        data.get(8..12).and_then(|it| it.first_chunk::<4>()).map(|it| Ipv4Addr::from(*it).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) | (libc::IPPROTO_IP, libc::IP_TTL) => {
                    ancillary.ttl = number(data).unwrap_or(ancillary.ttl);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) | (libc::IPPROTO_IP, libc::IP_TOS) => {
                    ancillary.traffic_class = number(data).unwrap_or(0);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    ancillary.segment =
                        data.first_chunk::<4>().and_then(|bytes| usize::try_from(i32::from_ne_bytes(*bytes)).ok());
                }
                _ => {}
            }
            control = rest.get(data.len().next_multiple_of(WORD)..).unwrap_or_default();
        }
        ancillary
    }
}

/// An int, or a byte as `IP_RECVTOS` has it.
fn number(data: &[u8]) -> Option<u8> {
    match data {
        [byte] => Some(*byte),
        _ => data.first_chunk::<4>().map(|bytes| i32::from_ne_bytes(*bytes) as u8),
    }
}

/// Ancillary data for a datagram to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    /// In words, which are aligned as the kernel reads them.
    words: [usize; Self::MOST / WORD],
    len: usize,
}

impl Control {
    /// Room for a source address, hop limit, traffic class and segment size.
    const MOST: usize = 128;

    pub(super) const fn new() -> Self {
        Self { words: [0; Self::MOST / WORD], len: 0 }
    }

    /// The source address, which must be this host's, and the index of the interface by which the packet leaves; 0 if the routes decide. IPv6
    /// takes the interface as a wish unless the socket is bound to it.
    pub(super) fn set_source(&mut self, src: IpAddr, link: u32) {
        match src {
            IpAddr::V4(src) => {
                // Index, source address, nothing.
                let mut info = [0; 12];
                info[..4].copy_from_slice(&link.to_ne_bytes());
                info[4..8].copy_from_slice(&src.octets());
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            IpAddr::V6(src) => {
                let mut info = [0; 20];
                info[..16].copy_from_slice(&src.octets());
                info[16..].copy_from_slice(&link.to_ne_bytes());
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    pub(super) fn set_ttl_and_class(&mut self, is_v4: bool, ttl: u8, traffic_class: u8) {
        let (ttl, traffic_class) = (i32::from(ttl).to_ne_bytes(), i32::from(traffic_class).to_ne_bytes());
        if is_v4 {
            self.push(libc::IPPROTO_IP, libc::IP_TTL, &ttl);
            self.push(libc::IPPROTO_IP, libc::IP_TOS, &traffic_class);
        } else {
            self.push(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &ttl);
            self.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &traffic_class);
        }
    }

    /// Bytes of each datagram into which the kernel cuts the data (`UDP_SEGMENT`).
    pub(super) fn set_segment(&mut self, bytes: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes());
    }

    pub(super) const fn as_ptr(&self) -> *const usize {
        self.words.as_ptr()
    }

    /// In bytes.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let at = self.len / WORD;
        self.words[at] = HEADER + data.len();
        self.put(self.len + WORD, &level.to_ne_bytes());
        self.put(self.len + WORD + 4, &kind.to_ne_bytes());
        self.put(self.len + HEADER, data);
        self.len += (HEADER + data.len()).next_multiple_of(WORD);
    }

    /// Writes bytes at an offset.
    fn put(&mut self, at: usize, data: &[u8]) {
        for (index, &byte) in (at..).zip(data) {
            let mut word = self.words[index / WORD].to_ne_bytes();
            word[index % WORD] = byte;
            self.words[index / WORD] = usize::from_ne_bytes(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Control messages survive encoding and decoding.
    #[test]
    fn written_ancillary_data_reads_back() {
        for src in ["2001:db8::7".parse().unwrap(), IpAddr::from([192, 0, 2, 7])] {
            let mut control = Control::new();
            control.set_source(src, 7);
            control.set_ttl_and_class(src.is_ipv4(), 61, 0xb8);
            control.set_segment(1400);
            let bytes: Vec<u8> = control.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let read = Ancillary::read(&bytes[..control.len()]);
            assert_eq!((read.ttl, read.traffic_class), (61, 0xb8));
            // The source of a packet to send is where the destination of a received one is, in IPv6.
            assert_eq!(read.dst.filter(IpAddr::is_ipv6), Some(src).filter(IpAddr::is_ipv6));
            assert!(control.len() <= Control::MOST);
        }
    }

    /// A control message with a length of its own choice.
    fn message(len: usize, level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = [&len.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), data].concat();
        bytes.resize(bytes.len().next_multiple_of(WORD), 0);
        bytes
    }

    fn number_of(level: i32, kind: i32, number: i32) -> Vec<u8> {
        message(HEADER + 4, level, kind, &number.to_ne_bytes())
    }

    fn fields(bytes: &[u8]) -> (Option<IpAddr>, u8, u8, Option<usize>) {
        let Ancillary { dst, ttl, traffic_class, segment } = Ancillary::read(bytes);
        (dst, ttl, traffic_class, segment)
    }

    #[test]
    fn truncated_ancillary_data_has_what_precedes_the_cut() {
        let dst = message(HEADER + 20, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &[[9; 16].as_slice(), &[0; 4]].concat());
        let ttl = number_of(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, 7);
        let segment = number_of(libc::SOL_UDP, libc::UDP_GRO, 1400);
        let all = [&dst[..], &ttl, &segment].concat();
        for cut in 0..=all.len() {
            let found = fields(&all[..cut]);
            // The padding behind the data of a message may be missing.
            let has = |end: usize| cut >= end;
            let expected_dst = has(HEADER + 20).then(|| IpAddr::from([9; 16]));
            let expected_ttl = if has(dst.len() + HEADER + 4) { 7 } else { Packet::DEFAULT_TTL };
            let expected_segment = has(dst.len() + ttl.len() + HEADER + 4).then_some(1400);
            assert_eq!(found, (expected_dst, expected_ttl, 0, expected_segment), "{cut} of {} bytes", all.len());
        }
    }

    #[test]
    fn wrong_lengths_end_ancillary_data() {
        let ttl = number_of(libc::IPPROTO_IP, libc::IP_TTL, 7);
        for len in [0, 1, HEADER - 1, HEADER + 33, 1 << 20, usize::MAX - 7, usize::MAX] {
            let wrong = message(len, libc::IPPROTO_IP, libc::IP_TOS, &[1, 2, 3, 4]);
            assert_eq!(fields(&[&ttl[..], &wrong, &ttl].concat()), (None, 7, 0, None), "length {len}");
            assert_eq!(fields(&[&wrong[..], &ttl].concat()), (None, Packet::DEFAULT_TTL, 0, None), "length {len}");
        }
    }

    #[test]
    fn data_of_another_size_than_the_kernels_is_not_believed() {
        let none = (None, Packet::DEFAULT_TTL, 0, None);
        for (level, kind, len) in [
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, 15),
            (libc::IPPROTO_IP, libc::IP_PKTINFO, 11),
            (libc::IPPROTO_IP, libc::IP_TTL, 0),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, 3),
            (libc::SOL_UDP, libc::UDP_GRO, 2),
            (libc::SOL_SOCKET, libc::IP_TTL, 4),
        ] {
            assert_eq!(fields(&message(HEADER + len, level, kind, &vec![0xff; len])), none, "{level} {kind} {len}");
        }
        assert_eq!(fields(&number_of(libc::SOL_UDP, libc::UDP_GRO, -1)), none, "a negative size");
        let byte = message(HEADER + 1, libc::IPPROTO_IP, libc::IP_TOS, &[0xb8]);
        assert_eq!(fields(&byte), (None, Packet::DEFAULT_TTL, 0xb8, None));
    }

    proptest::proptest! {
        /// Any bytes are read without a panic, and in bounded time.
        #[test]
        fn any_ancillary_data_is_read(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let _ = Ancillary::read(&bytes);
        }
    }
}
