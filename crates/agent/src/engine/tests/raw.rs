//! Segments as bytes, well-formed or not.

use super::*;

/// A segment in full.
pub(super) struct Raw {
    pub(super) is_outgoing: bool,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
    pub(super) options: Vec<u8>,
    pub(super) len: u16,
    pub(super) gso_size: u16,
    pub(super) extension_headers: u8,
    pub(super) traffic_class: u8,
}

impl OptionShape {
    pub(super) fn bytes(&self, stamp: u32, other: u32, from: u32) -> Vec<u8> {
        match self {
            Self::Stamps { age_ticks } => {
                let (val, ecr) = (stamp, other.wrapping_sub((*age_ticks).into()));
                [&[8, 10][..], &val.to_be_bytes(), &ecr.to_be_bytes()].concat()
            }
            Self::AlignedStamps => [&[1, 1, 8, 10][..], &stamp.to_be_bytes(), &other.to_be_bytes()].concat(),
            Self::Sack(blocks) => {
                let mut bytes = vec![5, 2 + 8 * blocks.len() as u8];
                for (start, len) in blocks {
                    let start = from.wrapping_add((*start).into());
                    bytes.extend(start.to_be_bytes());
                    bytes.extend(start.wrapping_add((*len).into()).to_be_bytes());
                }
                bytes
            }
            Self::NoOperation => vec![1],
            Self::UserTimeout => vec![28, 4, 0x80, 1],
            Self::Unknown(len) => [&[77, 2 + len][..], &vec![0xee; usize::from(*len)]].concat(),
            Self::Malformed(kind) => vec![(*kind).max(2), 1],
        }
    }
}

impl Raw {
    pub(super) fn form(&self, ipv6: bool) -> Form {
        Form {
            segment_size: (self.gso_size > 0).then_some(self.gso_size.into()),
            has_usual_options: self.options.len() == 12
                && self.options.starts_with(&[1, 1, 8, 10])
                && !(ipv6 && self.extension_headers > 0),
        }
    }

    pub(super) fn packet(&self, connection: Connection) -> Vec<u8> {
        let Connection { local, remote } = connection;
        let (from, to) = if self.is_outgoing { (local, remote) } else { (remote, local) };
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let mut tcp = Vec::new();
        tcp.extend(from.port().to_be_bytes());
        tcp.extend(to.port().to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        tcp.extend([((20 + options.len()) as u8 / 4) << 4, self.flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&options);
        tcp.extend((0..self.len).map(|n| n as u8));
        let (ips, mut packet) = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let (from, to) = (from.octets(), to.octets());
                let total = 20 + tcp.len() as u16;
                let mut ip = vec![0x45, self.traffic_class];
                ip.extend(total.to_be_bytes());
                ip.extend([0, 0, 0x40, 0, 61, 6, 0, 0]);
                ip.extend(from.iter().chain(&to));
                let sum = checksum(&ip).to_be_bytes();
                ip[10..12].copy_from_slice(&sum);
                ([from, to].concat(), ip)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let (from, to) = (from.octets(), to.octets());
                // Hop-by-hop options first, then destination options.
                let headers: &[u8] = [&[][..], &[60], &[0, 60]][usize::from(self.extension_headers)];
                let mut extensions = Vec::new();
                for index in 0..headers.len() {
                    extensions.extend([headers.get(index + 1).copied().unwrap_or(6), 0, 1, 4, 0, 0, 0, 0]);
                }
                let class = self.traffic_class;
                let mut ip = vec![0x60 | class >> 4, class << 4, 0x12, 0x34];
                ip.extend(((extensions.len() + tcp.len()) as u16).to_be_bytes());
                ip.extend([headers.first().copied().unwrap_or(6), 61]);
                ip.extend(from.iter().chain(&to));
                ip.extend(extensions);
                ([from, to].concat(), ip)
            }
            _ => unreachable!("both ends are of one family"),
        };
        let mut covered = ips;
        covered.extend([0, 6]);
        covered.extend((tcp.len() as u16).to_be_bytes());
        covered.extend(&tcp);
        let sum = checksum(&covered).to_be_bytes();
        tcp[16..18].copy_from_slice(&sum);
        packet.extend(tcp);
        packet
    }
}

/// RFC 1071.
pub(super) fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The flags of the cases have the values of the header field.
#[test]
pub(super) fn flags_are_the_fields() {
    assert_eq!((Flags::FIN | Flags::ACK).bits(), 0x11);
    assert_eq!((Flags::SYN | Flags::ACK).bits(), 0x12);
    assert_eq!((Flags::RST | Flags::ACK).bits(), 0x14);
}
