//! Requests of `sock_diag(7)`: `linux/netlink.h`, `linux/sock_diag.h` and `linux/inet_diag.h`. Callers parse the parts
//! of answers that they need.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Bytes of `struct nlmsghdr`.
pub const NLMSG_HEADER_LEN: usize = 16;
/// A request for sockets, and the type of its answers.
pub const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Ends a socket.
pub const SOCK_DESTROY: u16 = 21;
/// Set in every request.
pub const NLM_F_REQUEST: u16 = 1;
/// Requests an acknowledgement.
pub const NLM_F_ACK: u16 = 4;
/// All sockets, not one.
pub const NLM_F_DUMP: u16 = 0x300;
/// `AF_INET`.
pub const AF_INET: u8 = 2;
/// `AF_INET6`.
pub const AF_INET6: u8 = 10;
/// `INET_DIAG_NOCOOKIE`: any socket.
pub const ANY_COOKIE: [u8; 8] = [0xff; 8];

/// `struct inet_diag_req_v2` as a netlink message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InetDiagRequest {
    /// [`SOCK_DIAG_BY_FAMILY`] or [`SOCK_DESTROY`].
    pub kind: u16,
    /// [`NLM_F_REQUEST`] and others.
    pub flags: u16,
    /// [`AF_INET`] or [`AF_INET6`].
    pub family: u8,
    /// The IP protocol number.
    pub protocol: u8,
    /// Extensions of the answer, as bits (`INET_DIAG_INFO - 1` and others).
    pub extensions: u8,
    /// Bit mask of states (`net/tcp_states.h`).
    pub states: u32,
    /// Source and destination as the kernel looks them up: for TCP the socket's own address first, for UDP the peer's.
    pub ends: (SocketAddr, SocketAddr),
    /// The incoming interface; 0 for any, which does not find sockets bound to an interface.
    pub interface: u32,
    /// Tells apart successive sockets with the same addresses.
    pub cookie: [u8; 8],
}

impl InetDiagRequest {
    /// A request for the sockets of a family, with all addresses, states and interfaces.
    pub const fn new(family: u8, protocol: u8) -> Self {
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Self {
            kind: SOCK_DIAG_BY_FAMILY,
            flags: NLM_F_REQUEST,
            family,
            protocol,
            extensions: 0,
            states: u32::MAX,
            ends: (any, any),
            interface: 0,
            cookie: ANY_COOKIE,
        }
    }

    /// The message, with its sequence number.
    pub fn to_bytes(&self, sequence: u32) -> Vec<u8> {
        const LEN: usize = NLMSG_HEADER_LEN + 56;
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend((LEN as u32).to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(self.flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend([self.family, self.protocol, self.extensions, 0]);
        bytes.extend(self.states.to_ne_bytes());
        bytes.extend(self.ends.0.port().to_be_bytes());
        bytes.extend(self.ends.1.port().to_be_bytes());
        bytes.extend(address_bytes(self.ends.0.ip()));
        bytes.extend(address_bytes(self.ends.1.ip()));
        bytes.extend(self.interface.to_ne_bytes());
        bytes.extend(self.cookie);
        bytes
    }
}

/// The family of an address.
pub const fn family_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => AF_INET,
        IpAddr::V6(_) => AF_INET6,
    }
}

fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}
