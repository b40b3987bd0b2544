//! Connection tracking (`linux/netfilter/nfnetlink_conntrack.h`): which connection of a container is behind a translated
//! one.

use std::io;
use std::net::{IpAddr, SocketAddr};

use holdover_host::inet_diag::{NLM_F_REQUEST, NLMSG_HEADER_LEN, family_of};
use holdover_mobility::Connection;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr, protocols::NETLINK_NETFILTER};

use super::SocketDiagError;
use super::diag::{attributes, take, u16_at, u32_at};

/// `NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET`.
const GET: u16 = 0x101;
/// The type of its answer, `IPCTNL_MSG_CT_NEW`.
const NEW: u16 = 0x100;
const NLMSG_ERROR: u16 = 2;
/// `struct nfgenmsg`.
const NFGENMSG_LEN: usize = 4;

const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
/// The source's attribute; the destination's follows it.
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
const NLA_F_NESTED: u16 = 0x8000;
const NLA_TYPE_MASK: u16 = 0x3fff;
const IPPROTO_TCP: u8 = 6;

/// Queries the tracked connections of one network namespace: that of the thread which opens it.
#[derive(Debug)]
pub(crate) struct Conntrack {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

/// Source and destination of the packets of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tuple {
    source: SocketAddr,
    destination: SocketAddr,
}

impl Conntrack {
    /// Opens it in the calling thread's network namespace.
    pub(crate) fn open() -> Result<Self, SocketDiagError> {
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(SocketDiagError::Socket)?;
        socket.bind_auto().map_err(SocketDiagError::Socket)?;
        socket.connect(&NetlinkAddr::new(0, 0)).map_err(SocketDiagError::Socket)?;
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(4096) })
    }

    /// The connection as its socket in a container has it, from its addresses on an interface of this host; `None` if it
    /// is not tracked.
    pub(crate) fn before_translation(
        &mut self,
        on_interface: Connection,
    ) -> Result<Option<Connection>, SocketDiagError> {
        // Packets that come in, which are those of the reply if the container has opened the connection.
        let incoming = Tuple { source: on_interface.remote, destination: on_interface.local };
        let Some([original, reply]) = self.find(incoming)? else { return Ok(None) };
        let outgoing = if original == incoming { reply } else { original };
        Ok(Some(Connection { local: outgoing.source, remote: outgoing.destination }))
    }

    /// Both directions of the tracked connection that has one like this.
    fn find(&mut self, tuple: Tuple) -> Result<Option<[Tuple; 2]>, SocketDiagError> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&request(tuple, self.sequence), 0).map_err(SocketDiagError::Socket)?;
        loop {
            self.buffer.clear();
            self.socket.recv(&mut self.buffer, 0).map_err(SocketDiagError::Socket)?;
            if self.buffer.len() < NLMSG_HEADER_LEN + NFGENMSG_LEN {
                return Err(SocketDiagError::Answer("a tracked connection that is too short"));
            }
            if u32_at(&self.buffer, 8) != self.sequence {
                continue;
            }
            let payload = &self.buffer[NLMSG_HEADER_LEN..];
            return match u16_at(&self.buffer, 4) {
                NEW => Ok(both_tuples(&payload[NFGENMSG_LEN..])),
                NLMSG_ERROR => match i32::from_ne_bytes(take(payload, 0)).wrapping_neg() {
                    0 | libc::ENOENT => Ok(None),
                    errno => Err(SocketDiagError::Refused(io::Error::from_raw_os_error(errno))),
                },
                _ => Ok(None),
            };
        }
    }
}

fn request(tuple: Tuple, sequence: u32) -> Vec<u8> {
    let family = family_of(tuple.source.ip());
    let first = if tuple.source.is_ipv4() { CTA_IP_V4_SRC } else { CTA_IP_V6_SRC };
    let mut addresses = attribute(first, &octets(tuple.source.ip()));
    addresses.extend(attribute(first + 1, &octets(tuple.destination.ip())));
    let mut protocol = attribute(CTA_PROTO_NUM, &[IPPROTO_TCP]);
    protocol.extend(attribute(CTA_PROTO_SRC_PORT, &tuple.source.port().to_be_bytes()));
    protocol.extend(attribute(CTA_PROTO_DST_PORT, &tuple.destination.port().to_be_bytes()));
    let mut nested = attribute(CTA_TUPLE_IP | NLA_F_NESTED, &addresses);
    nested.extend(attribute(CTA_TUPLE_PROTO | NLA_F_NESTED, &protocol));
    let body = attribute(CTA_TUPLE_ORIG | NLA_F_NESTED, &nested);

    let mut message = Vec::new();
    let len = NLMSG_HEADER_LEN + NFGENMSG_LEN + body.len();
    message.extend((len as u32).to_ne_bytes());
    message.extend(GET.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend([0; 4]);
    message.extend([family, 0, 0, 0]);
    message.extend(body);
    message
}

/// `struct nlattr`: length, type, value, padding to 4.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn both_tuples(bytes: &[u8]) -> Option<[Tuple; 2]> {
    Some([tuple(nested(bytes, CTA_TUPLE_ORIG)?)?, tuple(nested(bytes, CTA_TUPLE_REPLY)?)?])
}

fn tuple(bytes: &[u8]) -> Option<Tuple> {
    let (ip, protocol) = (nested(bytes, CTA_TUPLE_IP)?, nested(bytes, CTA_TUPLE_PROTO)?);
    let end = |offset: u16| {
        let address = nested(ip, CTA_IP_V4_SRC + offset).or_else(|| nested(ip, CTA_IP_V6_SRC + offset))?;
        let port = u16::from_be_bytes(*nested(protocol, CTA_PROTO_SRC_PORT + offset)?.first_chunk()?);
        Some(SocketAddr::new(address_of(address)?, port))
    };
    Some(Tuple { source: end(0)?, destination: end(1)? })
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    let v6 = || bytes.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes));
    if bytes.len() == 4 { bytes.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes)) } else { v6() }
}

/// The value of the first attribute of a type.
fn nested(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| found & NLA_TYPE_MASK == kind).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tuple_of(source: &str, destination: &str) -> Tuple {
        Tuple { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
    }

    #[test]
    fn a_tuple_is_read_as_it_is_written() {
        for tuple in
            [tuple_of("192.0.2.1:80", "198.51.100.7:40000"), tuple_of("[2001:db8::1]:80", "[2001:db8::2]:40000")]
        {
            let bytes = request(tuple, 7);
            assert_eq!(u32_at(&bytes, 0) as usize, bytes.len());
            let body = &bytes[NLMSG_HEADER_LEN + NFGENMSG_LEN..];
            assert_eq!(nested(body, CTA_TUPLE_ORIG).and_then(super::tuple), Some(tuple));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            both_tuples(&bytes);
        }
    }
}
