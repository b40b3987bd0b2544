//! The bytes of `sock_diag(7)` for TCP: `linux/netlink.h`, `linux/sock_diag.h` and `linux/inet_diag.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use holdover_base::Duration;
pub(super) use holdover_host::inet_diag::{AF_INET, AF_INET6};
use holdover_host::inet_diag::{
    ANY_COOKIE, InetDiagRequest, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_HEADER_LEN, SOCK_DESTROY,
    SOCK_DIAG_BY_FAMILY, family_of,
};
use holdover_mobility::Connection;
use holdover_wire::TcpInfo;

use super::{ArmedTimer, SocketDiagError, TcpSocket, TimerKind};

/// More than one part of a dump (32 KiB in the kernel).
pub(super) const BUFFER_LEN: usize = 64 * 1024;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

const IPPROTO_TCP: u8 = 6;

const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_CGROUP_ID: u16 = 21;
/// The requested extensions, as bits: the others are always sent.
const EXTENSIONS: u8 = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);

/// All states of `net/tcp_states.h` (1 to 12) without SYN-RECEIVED (3, and 12 without a full socket), TIME-WAIT (6),
/// CLOSE (7) and LISTEN (10).
const STATES: u32 = 0xffe & !(1 << 3 | 1 << 6 | 1 << 7 | 1 << 10);

/// `struct inet_diag_msg` without its attributes.
const MESSAGE_LEN: usize = 72;

/// `struct inet_diag_req_v2`.
pub(super) struct Request {
    pub(super) is_dump: bool,
    kind: u16,
    family: u8,
    connection: Option<Connection>,
    cookie: [u8; 8],
}

/// A message of an answer.
pub(super) struct Message {
    pub(super) sequence: u32,
    pub(super) body: Body,
}

pub(super) enum Body {
    Socket(Box<TcpSocket>),
    Done,
    /// A positive error number; 0 acknowledges.
    Error(i32),
    Other,
}

pub(super) const fn dump_request(family: u8) -> Request {
    Request { is_dump: true, kind: SOCK_DIAG_BY_FAMILY, family, connection: None, cookie: ANY_COOKIE }
}

pub(super) const fn exact_request(connection: Connection) -> Request {
    let family = family_of(connection.local.ip());
    let kind = SOCK_DIAG_BY_FAMILY;
    Request { is_dump: false, kind, family, connection: Some(connection), cookie: ANY_COOKIE }
}

/// Destroys the socket of a connection if it has that cookie.
pub(super) fn destroy_request(connection: Connection, cookie: u64) -> Request {
    let [low, high] = [cookie as u32, (cookie >> 32) as u32].map(u32::to_ne_bytes);
    let mut request = Request { kind: SOCK_DESTROY, ..exact_request(connection) };
    request.cookie[..4].copy_from_slice(&low);
    request.cookie[4..].copy_from_slice(&high);
    request
}

impl Request {
    /// Whether it destroys a socket.
    pub(super) const fn is_destroy(&self) -> bool {
        self.kind == SOCK_DESTROY
    }

    /// The request as a netlink message.
    pub(super) fn to_bytes(&self, sequence: u32) -> Vec<u8> {
        let flags = match self.kind {
            SOCK_DESTROY => NLM_F_REQUEST | NLM_F_ACK,
            _ if self.is_dump => NLM_F_REQUEST | NLM_F_DUMP,
            _ => NLM_F_REQUEST,
        };
        let any = InetDiagRequest::new(self.family, IPPROTO_TCP);
        let ends = self.connection.map_or(any.ends, |connection| (connection.local, connection.remote));
        let cookie = self.cookie;
        InetDiagRequest { kind: self.kind, flags, extensions: EXTENSIONS, states: STATES, ends, cookie, ..any }
            .to_bytes(sequence)
    }
}

/// The messages in the result of one `recv`.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Result<Message, SocketDiagError>> {
    std::iter::from_fn(move || {
        if bytes.len() < NLMSG_HEADER_LEN {
            return None;
        }
        let len = u32_at(bytes, 0) as usize;
        if len < NLMSG_HEADER_LEN || len > bytes.len() {
            bytes = &[];
            return Some(Err(SocketDiagError::Answer("the length of a message")));
        }
        let (message, _) = bytes.split_at(len);
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(parse(message))
    })
}

fn parse(message: &[u8]) -> Result<Message, SocketDiagError> {
    let (kind, sequence) = (u16_at(message, 4), u32_at(message, 8));
    let payload = &message[NLMSG_HEADER_LEN..];
    let body = match kind {
        SOCK_DIAG_BY_FAMILY => socket_of(payload)?.map_or(Body::Other, |socket| Body::Socket(Box::new(socket))),
        NLMSG_DONE => Body::Done,
        NLMSG_ERROR if payload.len() >= 4 => Body::Error(i32::from_ne_bytes(take(payload, 0)).wrapping_neg()),
        NLMSG_ERROR => return Err(SocketDiagError::Answer("an error without a number")),
        _ => Body::Other,
    };
    Ok(Message { sequence, body })
}

/// `None` for a family other than IPv4 and IPv6, and for anything but a connection's own socket.
fn socket_of(payload: &[u8]) -> Result<Option<TcpSocket>, SocketDiagError> {
    if payload.len() < MESSAGE_LEN {
        return Err(SocketDiagError::Answer("a socket that is too short"));
    }
    let [family, state, timer, tries] = take(payload, 0);
    if STATES.checked_shr(state.into()).is_none_or(|rest| rest & 1 == 0) {
        // A listener or a connection in TIME-WAIT, which the kernel finds if nothing else matches.
        return Ok(None);
    }
    let (Some(local), Some(remote)) = (address_of(family, take(payload, 8)), address_of(family, take(payload, 24)))
    else {
        return Ok(None);
    };
    let port = |at| u16::from_be_bytes(take(payload, at));
    let connection = Connection { local: SocketAddr::new(local, port(4)), remote: SocketAddr::new(remote, port(6)) };
    let bound_to = u32_at(payload, 40);
    let cookie = u64::from(u32_at(payload, 48)) << 32 | u64::from(u32_at(payload, 44));
    let expires_in = Duration::from_millis(u32_at(payload, 52).into());
    let mut socket = TcpSocket {
        connection,
        cookie,
        inode: u32_at(payload, 68),
        uid: u32_at(payload, 64),
        cgroup: None,
        bound_to: (bound_to != 0).then_some(bound_to),
        timer: TimerKind::from_kernel(timer).map(|kind| ArmedTimer { kind, expires_in, tries }),
        recv_queue: u32_at(payload, 56),
        send_queue: u32_at(payload, 60),
        congestion: String::new(),
        info: TcpInfo::from_bytes(&[]),
    };
    for (kind, value) in attributes(&payload[MESSAGE_LEN..]) {
        match kind {
            INET_DIAG_INFO => socket.info = TcpInfo::from_bytes(value),
            INET_DIAG_CONG => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                socket.congestion = String::from_utf8_lossy(name).into_owned();
            }
            INET_DIAG_CGROUP_ID => socket.cgroup = value.first_chunk().map(|id| u64::from_ne_bytes(*id)),
            _ => {}
        }
    }
    Ok(Some(socket))
}

/// `struct rtattr`s: length, type, value, padding to 4. A truncated one ends them.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        if bytes.len() < 4 {
            return None;
        }
        let (len, kind) = (usize::from(u16_at(bytes, 0)), u16_at(bytes, 2));
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn address_of(family: u8, bytes: [u8; 16]) -> Option<IpAddr> {
    match family {
        AF_INET => Some(IpAddr::V4(Ipv4Addr::from(take::<4>(&bytes, 0)))),
        AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()),
        _ => None,
    }
}

/// Bytes at an offset that the caller has checked.
pub(super) fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut taken = [0; N];
    taken.copy_from_slice(&bytes[at..at + N]);
    taken
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(take(bytes, at))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(take(bytes, at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A socket in the kernel's format, with offsets from `linux/inet_diag.h`.
    fn answer() -> Vec<u8> {
        let mut body = vec![0; MESSAGE_LEN];
        body[..4].copy_from_slice(&[AF_INET6, 1, 1, 3]);
        body[4..6].copy_from_slice(&40_000_u16.to_be_bytes());
        body[6..8].copy_from_slice(&22_u16.to_be_bytes());
        body[8..24].copy_from_slice(&Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets());
        body[24..40].copy_from_slice(&Ipv4Addr::new(192, 0, 2, 2).to_ipv6_mapped().octets());
        let numbers = [7, 0x11, 0x22, 1500, 10, 20, 1000, 4711];
        for (at, number) in (40..).step_by(4).zip(numbers) {
            body[at..at + 4].copy_from_slice(&u32::to_ne_bytes(number));
        }
        let mut attribute = |kind: u16, value: &[u8]| {
            body.extend((4 + value.len() as u16).to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(value);
            body.resize(body.len().next_multiple_of(4), 0);
        };
        attribute(INET_DIAG_CONG, b"cubic\0");
        attribute(99, b"unknown");
        attribute(INET_DIAG_CGROUP_ID, &77_u64.to_ne_bytes());
        attribute(INET_DIAG_INFO, &[1, 0, 0, 0, 13, 7, 0x57, 0]);
        let mut message = Vec::new();
        message.extend((NLMSG_HEADER_LEN as u32 + body.len() as u32).to_ne_bytes());
        message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        message.extend(NLM_F_REQUEST.to_ne_bytes());
        message.extend(5_u32.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(body);
        message
    }

    #[test]
    fn a_socket_is_read_where_the_kernel_puts_it() {
        let bytes = answer();
        let mut found = messages(&bytes);
        let message = found.next().unwrap().unwrap();
        assert_eq!(message.sequence, 5);
        let Body::Socket(socket) = message.body else { panic!("a socket") };
        assert_eq!(socket.connection.to_string(), "192.0.2.1:40000 > 192.0.2.2:22");
        assert_eq!((socket.cookie, socket.inode, socket.uid), (0x22_0000_0011, 4711, 1000));
        assert_eq!((socket.bound_to, socket.recv_queue, socket.send_queue), (Some(7), 10, 20));
        assert_eq!((socket.cgroup, socket.congestion.as_str()), (Some(77), "cubic"));
        let timer = ArmedTimer { kind: TimerKind::Retransmission, expires_in: Duration::from_millis(1500), tries: 3 };
        assert_eq!(socket.timer, Some(timer));
        assert_eq!(socket.info.tcpi_backoff, 13);
        if cfg!(target_endian = "little") {
            assert_eq!((socket.remote_window_scale(), socket.local_window_scale()), (Some(7), Some(5)));
        }
        assert!(found.next().is_none());
    }

    #[test]
    fn the_end_and_errors_of_a_dump_are_told_apart() {
        let header = |kind: u16, payload: i32| {
            let mut bytes = 20_u32.to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 10]);
            bytes.extend(payload.to_ne_bytes());
            bytes
        };
        let body = |bytes: &[u8]| messages(bytes).next().unwrap().unwrap().body;
        assert!(matches!(body(&header(NLMSG_DONE, 0)), Body::Done));
        assert!(matches!(body(&header(NLMSG_ERROR, -libc::ENOENT)), Body::Error(libc::ENOENT)));
        assert!(matches!(body(&header(99, 0)), Body::Other));
    }

    #[test]
    fn a_request_has_the_kernels_layout() {
        let connection = Connection { local: "10.0.0.1:1000".parse().unwrap(), remote: "10.0.0.2:80".parse().unwrap() };
        let bytes = exact_request(connection).to_bytes(9);
        assert_eq!(bytes.len(), 72);
        assert_eq!(bytes[16..20], [AF_INET, IPPROTO_TCP, 0b1010, 0]);
        assert_eq!(bytes[24..32], [3, 232, 0, 80, 10, 0, 0, 1]);
        assert_eq!(bytes[44..48], [10, 0, 0, 2]);
        assert_eq!(bytes[64..72], ANY_COOKIE);
        let bytes = destroy_request(connection, 0x22_0000_0011).to_bytes(9);
        assert_eq!((u16_at(&bytes, 4), u16_at(&bytes, 6)), (SOCK_DESTROY, NLM_F_REQUEST | NLM_F_ACK));
        assert_eq!((u32_at(&bytes, 64), u32_at(&bytes, 68)), (0x11, 0x22));
    }

    proptest! {
        /// Any bytes: no panic, and it ends.
        #[test]
        fn any_bytes_are_answered(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0..200_usize) {
            prop_assert!(messages(&bytes).count() <= bytes.len());
            let mut message = answer();
            message.truncate(cut.max(NLMSG_HEADER_LEN));
            let len = (message.len() as u32).to_ne_bytes();
            message[..4].copy_from_slice(&len);
            bytes.splice(0..0, message);
            prop_assert!(messages(&bytes).count() <= bytes.len());
        }
    }
}
