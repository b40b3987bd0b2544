//! Connection tracking (`linux/netfilter/nfnetlink_conntrack.h`): which connection of a container is behind a translated
//! one.

use std::net::{IpAddr, SocketAddr};

use holdover_host::generic_netlink::{attribute, value};
use holdover_host::inet_diag::family_of;
use holdover_host::netlink_socket::{NETLINK_NETFILTER, NetlinkSocket, Request};
use holdover_mobility::Connection;

use super::SocketDiagError;

/// `NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET`.
const GET: u16 = 0x101;
/// The type of its answer, `IPCTNL_MSG_CT_NEW`.
const NEW: u16 = 0x100;
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
const IPPROTO_TCP: u8 = 6;

/// Queries the tracked connections of one network namespace: that of the thread which opens it.
#[derive(Debug)]
pub(crate) struct Conntrack(NetlinkSocket);

/// Source and destination of the packets of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tuple {
    source: SocketAddr,
    destination: SocketAddr,
}

impl Conntrack {
    /// Opens it in the calling thread's network namespace.
    pub(crate) fn open() -> Result<Self, SocketDiagError> {
        NetlinkSocket::open(NETLINK_NETFILTER).map(Self).map_err(SocketDiagError::Socket)
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

    /// Both directions of the tracked connection, one of them being this.
    fn find(&mut self, tuple: Tuple) -> Result<Option<[Tuple; 2]>, SocketDiagError> {
        let mut found = None;
        let result = self.0.request(&request(tuple), &mut |header, answer| {
            if header.message_type == NEW {
                found = answer.get(NFGENMSG_LEN..).and_then(both_tuples);
            }
        });
        match result {
            Err(error) if error.refusal() == Some(libc::ENOENT) => Ok(None),
            result => Ok(result.map(|()| found)?),
        }
    }
}

fn request(tuple: Tuple) -> Request {
    let family = family_of(tuple.source.ip());
    let first = if tuple.source.is_ipv4() { CTA_IP_V4_SRC } else { CTA_IP_V6_SRC };
    let mut addresses = attribute(first, &octets(tuple.source.ip()));
    addresses.extend(attribute(first + 1, &octets(tuple.destination.ip())));
    let mut protocol = attribute(CTA_PROTO_NUM, &[IPPROTO_TCP]);
    protocol.extend(attribute(CTA_PROTO_SRC_PORT, &tuple.source.port().to_be_bytes()));
    protocol.extend(attribute(CTA_PROTO_DST_PORT, &tuple.destination.port().to_be_bytes()));
    let mut nested = attribute(CTA_TUPLE_IP | NLA_F_NESTED, &addresses);
    nested.extend(attribute(CTA_TUPLE_PROTO | NLA_F_NESTED, &protocol));
    let mut payload = vec![family, 0, 0, 0];
    payload.extend(attribute(CTA_TUPLE_ORIG | NLA_F_NESTED, &nested));
    Request { kind: GET, flags: 0, payload }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn both_tuples(bytes: &[u8]) -> Option<[Tuple; 2]> {
    Some([tuple(value(bytes, CTA_TUPLE_ORIG)?)?, tuple(value(bytes, CTA_TUPLE_REPLY)?)?])
}

fn tuple(bytes: &[u8]) -> Option<Tuple> {
    let (ip, protocol) = (value(bytes, CTA_TUPLE_IP)?, value(bytes, CTA_TUPLE_PROTO)?);
    let end = |offset: u16| {
        let address = value(ip, CTA_IP_V4_SRC + offset).or_else(|| value(ip, CTA_IP_V6_SRC + offset))?;
        let port = u16::from_be_bytes(*value(protocol, CTA_PROTO_SRC_PORT + offset)?.first_chunk()?);
        Some(SocketAddr::new(address_of(address)?, port))
    };
    Some(Tuple { source: end(0)?, destination: end(1)? })
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    let v6 = || bytes.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes));
    if bytes.len() == 4 { bytes.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes)) } else { v6() }
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
            let request = request(tuple);
            let body = &request.payload[NFGENMSG_LEN..];
            assert_eq!(value(body, CTA_TUPLE_ORIG).and_then(super::tuple), Some(tuple));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            both_tuples(&bytes);
        }
    }
}
