//! Sockets of TCP in answers of `sock_diag(7)`: `linux/inet_diag.h`.

use holdover_base::Duration;
use holdover_host::generic_netlink::attributes;
pub(super) use holdover_host::inet_diag::{AF_INET, AF_INET6};
use holdover_host::inet_diag::{Found, InetDiagRequest};
use holdover_mobility::Connection;
use holdover_wire::TcpInfo;

use super::{ArmedTimer, SocketDiagError, TcpSocket, TimerKind};

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

/// All connections of a family.
pub(super) fn request_for_all(family: u8) -> InetDiagRequest {
    InetDiagRequest { extensions: EXTENSIONS, states: STATES, ..InetDiagRequest::new(family, IPPROTO_TCP) }
}

/// The socket that receives a connection's packets from an interface: 0 for sockets that are bound to none.
pub(super) fn request_for(connection: Connection, interface: u32) -> InetDiagRequest {
    let of_connection = InetDiagRequest::of_tcp(connection.local, connection.remote);
    InetDiagRequest { extensions: EXTENSIONS, interface, ..of_connection }
}

/// This socket, and no later one with its addresses.
pub(super) fn request_for_socket(socket: &TcpSocket) -> InetDiagRequest {
    let mut request = request_for(socket.connection, socket.bound_to.unwrap_or(0));
    let [low, high] = [socket.cookie as u32, (socket.cookie >> 32) as u32].map(u32::to_ne_bytes);
    request.cookie[..4].copy_from_slice(&low);
    request.cookie[4..].copy_from_slice(&high);
    request
}

/// `None` for a family other than IPv4 and IPv6, and for anything but a connection's own socket.
pub(super) fn socket_of(payload: &[u8]) -> Result<Option<TcpSocket>, SocketDiagError> {
    if payload.len() < MESSAGE_LEN {
        return Err(SocketDiagError::Answer("a socket that is too short"));
    }
    let [_, state, timer, tries] = take(payload, 0);
    if STATES.checked_shr(state.into()).is_none_or(|rest| rest & 1 == 0) {
        // A listener or a connection in TIME-WAIT, which the kernel finds if nothing else matches.
        return Ok(None);
    }
    let Some(Found { ends: (local, remote), .. }) = Found::parse(payload) else { return Ok(None) };
    let connection = Connection { local, remote };
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

/// Bytes at an offset that the caller has checked.
fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut taken = [0; N];
    taken.copy_from_slice(&bytes[at..at + N]);
    taken
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(take(bytes, at))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

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
        body
    }

    #[test]
    fn a_socket_is_read_where_the_kernel_puts_it() {
        let socket = socket_of(&answer()).unwrap().unwrap();
        assert_eq!(socket.connection.to_string(), "192.0.2.1:40000 > 192.0.2.2:22");
        assert_eq!((socket.cookie, socket.inode, socket.uid), (0x22_0000_0011, 4711, 1000));
        assert_eq!((socket.bound_to, socket.recv_queue, socket.send_queue), (Some(7), 10, 20));
        assert_eq!((socket.cgroup, socket.congestion.as_str()), (Some(77), "cubic"));
        let timer = ArmedTimer { kind: TimerKind::Retransmission, expires_in: Duration::from_millis(1500), tries: 3 };
        assert_eq!(socket.timer, Some(timer));
        assert_eq!(socket.info.tcpi_backoff, 13);
        if cfg!(target_endian = "little") {
            assert_eq!((socket.info.tcpi_snd_wscale, socket.info.tcpi_rcv_wscale), (7, 5));
        }
    }

    #[test]
    fn a_request_names_the_socket_by_its_cookie_and_interface() {
        let socket = socket_of(&answer()).unwrap().unwrap();
        let (request, Connection { local, remote }) = (request_for_socket(&socket), socket.connection);
        assert_eq!((request.ends, request.extensions, request.interface), ((local, remote), 0b1010, 7));
        // The bytes at this offset of the answer.
        assert_eq!(request.cookie, answer()[44..52]);
    }

    #[test]
    fn a_listener_and_a_short_answer_are_no_connections() {
        let mut bytes = answer();
        bytes[1] = 10;
        assert!(socket_of(&bytes).unwrap().is_none());
        assert!(matches!(socket_of(&bytes[..MESSAGE_LEN - 1]), Err(SocketDiagError::Answer(_))));
    }

    proptest! {
        /// Any bytes behind a beginning like the kernel's: no panic.
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0..200_usize) {
            let mut message = answer();
            message.truncate(cut);
            message.extend(bytes);
            let _ = socket_of(&message);
        }
    }
}
