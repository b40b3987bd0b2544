//! SYNs that begin connections: whether a connection can be split, and the answers to refused ones.

use std::net::SocketAddr;

use bytes::Bytes;
use holdover_wire::{Flags, OptionKind, Packet, Segment, Seq};

/// A SYN without ACK, and its packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Syn {
    pub(super) packet: Bytes,
    pub(super) ends: Ends,
    /// The number that acknowledges it.
    end: Seq,
}

/// The two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ends {
    /// The end that has sent the SYN.
    pub(super) client: SocketAddr,
    /// The other end.
    pub(super) server: SocketAddr,
}

/// Why a packet is not split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unfit {
    /// TCP-MD5 (RFC 2385) or TCP-AO (RFC 5925).
    Authenticated,
    /// Multipath TCP (RFC 8684).
    Multipath,
    /// Its options or its checksum are wrong.
    Malformed,
    /// Not a SYN: for example a packet that the kernel sends on every device.
    NoSyn,
}

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MD5: u8 = OptionKind::Md5Signature as u8;
const AUTHENTICATION: u8 = OptionKind::Authentication as u8;
const MULTIPATH: u8 = OptionKind::Multipath as u8;

impl Syn {
    /// Parses a packet.
    pub(super) fn parse(packet: Bytes) -> Result<Self, Unfit> {
        let parsed = match Packet::parse(packet.clone()) {
            Ok(parsed) => parsed,
            Err(_) if is_tcp(&packet) => return Err(Unfit::Malformed),
            Err(_) => return Err(Unfit::NoSyn),
        };
        let Some(segment) = parsed.tcp() else { return Err(Unfit::NoSyn) };
        if segment.flags & (Flags::SYN | Flags::ACK | Flags::RST | Flags::FIN) != Flags::SYN {
            return Err(Unfit::NoSyn);
        }
        if segment.src_port == 0 || segment.dst_port == 0 {
            return Err(Unfit::Malformed);
        }
        if let Some(unfit) = options(&packet).and_then(find_unfit) {
            return Err(unfit);
        }
        let ends = Ends {
            client: SocketAddr::new(parsed.src, segment.src_port),
            server: SocketAddr::new(parsed.dst, segment.dst_port),
        };
        Ok(Self { ends, end: segment.seq + segment.seq_len(), packet })
    }

    /// The answer of a host on which nothing listens (RFC 9293 section 3.10.7.1), as a packet.
    pub(super) fn refusal(&self) -> Option<Bytes> {
        let Ends { client, server } = self.ends;
        let segment = Segment {
            src_port: server.port(),
            dst_port: client.port(),
            ack: self.end,
            flags: Flags::RST | Flags::ACK,
            ..Segment::default()
        };
        Packet::new(server.ip(), client.ip(), segment).emit().ok()
    }
}

impl Ends {
    /// The ends as the other one sees them.
    #[cfg(test)]
    pub(super) fn reversed(self) -> Self {
        Self { client: self.server, server: self.client }
    }
}

/// The length of the IP header; `None` with IPv6 extension headers, which the programs let pass.
fn ip_header_len(packet: &[u8]) -> Option<usize> {
    match packet.first()? {
        first if first >> 4 == 4 && packet.get(9) == Some(&6) => Some(usize::from(first & 15) * 4),
        first if first >> 4 == 6 && packet.get(6) == Some(&6) => Some(40),
        _ => None,
    }
}

fn is_tcp(packet: &[u8]) -> bool {
    ip_header_len(packet).is_some()
}

/// The options of a TCP segment, as on the wire.
fn options(packet: &[u8]) -> Option<&[u8]> {
    let tcp = packet.get(ip_header_len(packet)?..)?;
    tcp.get(20..usize::from(tcp.get(12)? >> 4) * 4)
}

/// The options that prevent a connection from being split.
fn find_unfit(mut options: &[u8]) -> Option<Unfit> {
    loop {
        match *options {
            [] | [END, ..] => return None,
            [NO_OPERATION, ref rest @ ..] => options = rest,
            [kind, len, ..] if usize::from(len) >= 2 && usize::from(len) <= options.len() => match kind {
                MD5 | AUTHENTICATION => return Some(Unfit::Authenticated),
                MULTIPATH => return Some(Unfit::Multipath),
                _ => options = &options[len.into()..],
            },
            _ => return Some(Unfit::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use holdover_wire::transport_checksum;

    use super::*;

    fn syn(options: &[u8]) -> Bytes {
        // The options are the payload until the data offset covers them.
        let payload = Bytes::copy_from_slice(options);
        let segment = Segment {
            src_port: 1000,
            dst_port: 80,
            seq: Seq::new(7),
            flags: Flags::SYN,
            payload,
            ..Segment::default()
        };
        let (src, dst) = ([10, 2, 0, 7].into(), [10, 1, 0, 2].into());
        let mut bytes = Packet::new(src, dst, segment).emit().unwrap().to_vec();
        assert_eq!(options.len() % 4, 0);
        bytes[32] = (5 + options.len() as u8 / 4) << 4;
        bytes[36..38].fill(0);
        let sum = transport_checksum(src, dst, 6, &bytes[20..]);
        bytes[36..38].copy_from_slice(&sum.to_be_bytes());
        bytes.into()
    }

    #[test]
    fn options_decide_whether_a_connection_is_split() {
        assert_eq!(Syn::parse(syn(&[2, 4, 5, 180])).unwrap().ends.server, "10.1.0.2:80".parse().unwrap());
        let of = |options: &[u8]| Syn::parse(syn(options)).unwrap_err();
        let signature = [&[1, 1, 19, 18][..], &[9; 16]].concat();
        assert_eq!(of(&signature), Unfit::Authenticated);
        assert_eq!(of(&[29, 4, 1, 1]), Unfit::Authenticated);
        assert_eq!(of(&[30, 4, 1, 1]), Unfit::Multipath);
        for malformed in [[2, 0, 0, 0], [2, 1, 0, 0], [1, 1, 2, 9], [1, 1, 1, 2]] {
            assert_eq!(of(&malformed), Unfit::Malformed, "{malformed:?}");
        }
        // Bytes after the end of the options are padding.
        assert!(Syn::parse(syn(&[0, 30, 4, 1])).is_ok());
    }

    #[test]
    fn any_bytes_are_parsed_without_a_panic() {
        let mut random = holdover_base::Rng::new(7);
        for _ in 0..20_000 {
            let mut bytes = syn(&[2, 4, 5, 180, 1, 3, 3, 7]).to_vec();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            bytes.truncate(1 + random.below(bytes.len() as u64) as usize);
            let _ = Syn::parse(bytes.into());
        }
        assert_eq!(Syn::parse(Bytes::new()), Err(Unfit::NoSyn));
    }

    #[test]
    fn a_refusal_answers_the_syn() {
        let parsed = Syn::parse(syn(&[])).unwrap();
        let packet = Packet::parse(parsed.refusal().unwrap()).unwrap();
        let segment = packet.tcp().unwrap();
        assert_eq!((segment.ack, segment.flags), (Seq::new(8), Flags::RST | Flags::ACK));
        let ends = Ends {
            client: SocketAddr::new(packet.src, segment.src_port),
            server: SocketAddr::new(packet.dst, segment.dst_port),
        };
        assert_eq!(ends, parsed.ends.reversed());
    }
}
