//! Sockets with the addresses of others, raw sockets, and requests to the kernel about sockets.

#![allow(unsafe_code, reason = "socket options, splice(2)")]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::time::Duration;

use holdover_host::inet_diag::{
    InetDiagRequest, NLM_F_ACK, NLM_F_REQUEST, NLMSG_HEADER_LEN, SOCK_DESTROY, SOCK_DIAG_BY_FAMILY, family_of,
};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::config::SplitTable;

/// The settings of all sockets of split connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    user_timeout: Duration,
    keep_alive: Duration,
    buffer_bytes: i32,
}

impl Settings {
    pub(super) fn of(table: &SplitTable) -> Self {
        let std = |time: holdover_base::Duration| Duration::from_nanos(time.as_nanos());
        Self {
            user_timeout: std(table.user_timeout.0),
            keep_alive: std(table.keep_alive.0),
            buffer_bytes: i32::try_from(table.buffer_bytes).unwrap_or(i32::MAX),
        }
    }

    fn apply(&self, socket: &Socket, mark: Option<u32>) -> io::Result<()> {
        let is_v4 = socket.domain()? == Domain::IPV4;
        let (level, option) =
            if is_v4 { (libc::IPPROTO_IP, libc::IP_TRANSPARENT) } else { (libc::IPPROTO_IPV6, IPV6_TRANSPARENT) };
        set_option(socket, level, option, 1)?;
        if let Some(mark) = mark {
            socket.set_mark(mark)?;
        }
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_user_timeout(Some(self.user_timeout))?;
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(self.keep_alive))?;
        socket.set_out_of_band_inline(true)?;
        // A process that ends at any moment resets its connections.
        socket.set_linger(Some(Duration::ZERO))?;
        // Above the limits of the machine, for which there is the privilege.
        set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, self.buffer_bytes)?;
        set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, self.buffer_bytes)
    }

    /// A socket for SYNs that the program `deliver` assigns to it. It accepts nothing from the network: its address is of
    /// the loopback interface.
    pub(super) fn listen(&self, is_v6: bool, mark: Option<u32>) -> io::Result<Socket> {
        let (domain, address): (_, IpAddr) = match is_v6 {
            false => (Domain::IPV4, Ipv4Addr::LOCALHOST.into()),
            true => (Domain::IPV6, Ipv6Addr::LOCALHOST.into()),
        };
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        self.apply(&socket, mark)?;
        socket.bind(&SocketAddr::new(address, 0).into())?;
        socket.listen(super::MOST_HANDSHAKES as i32)?;
        Ok(socket)
    }

    /// Connects from a foreign address to another, without waiting.
    pub(super) fn connect(&self, from: SocketAddr, to: SocketAddr, mark: Option<u32>) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        self.apply(&socket, mark)?;
        socket.bind(&from.into())?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(socket),
        }
    }
}

/// `linux/in6.h`
const IPV6_TRANSPARENT: i32 = 75;

fn set_option(socket: &Socket, level: i32, option: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel reads an integer, which lives until the call returns.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast::<libc::c_void>(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Moves up to `most` bytes between a pipe and a socket, without waiting.
pub(super) fn splice(from: impl AsFd, to: impl AsFd, most: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    // SAFETY: without offsets the call accesses no memory of this process.
    let moved = unsafe { libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), most, flags) };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

/// Whether the next byte to read is the urgent one (RFC 9293 section 3.8.5).
pub(super) fn is_at_urgent(socket: BorrowedFd<'_>) -> bool {
    /// `asm/sockios.h`
    const SIOCATMARK: libc::Ioctl = 0x8905;
    let mut is_there: libc::c_int = 0;
    // SAFETY: the call writes an integer, which lives until it returns.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCATMARK, &raw mut is_there) };
    result == 0 && is_there != 0
}

/// Raw sockets for packets with any source.
#[derive(Debug)]
pub(super) struct Raw {
    v4: Socket,
    /// `None` without IPv6.
    v6: Option<Socket>,
}

impl Raw {
    pub(super) fn open(mark: Option<u32>) -> io::Result<Self> {
        let open = |domain| -> io::Result<Socket> {
            let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)))?;
            socket.set_nonblocking(true)?;
            // It receives nothing: the kernel has no packets of this protocol.
            mark.map_or(Ok(()), |mark| socket.set_mark(mark))?;
            Ok(socket)
        };
        Ok(Self { v4: open(Domain::IPV4)?, v6: open(Domain::IPV6).ok() })
    }

    /// Sends an IP packet by the routes of this host.
    pub(super) fn send(&self, packet: &[u8], to: IpAddr) -> io::Result<()> {
        let socket = if to.is_ipv4() { Some(&self.v4) } else { self.v6.as_ref() };
        let socket = socket.ok_or(io::ErrorKind::Unsupported)?;
        socket.send_to(packet, &SocketAddr::new(to, 0).into()).map(drop)
    }
}

/// Requests of `sock_diag(7)` about single TCP sockets.
#[derive(Debug)]
pub(super) struct Diag {
    socket: Socket,
    sequence: u32,
}

const NETLINK_SOCK_DIAG: i32 = 4;

impl Diag {
    pub(super) fn open() -> io::Result<Self> {
        let protocol = Protocol::from(NETLINK_SOCK_DIAG);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))?;
        // The kernel answers before `send` returns.
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Removes a socket, such as one in TIME_WAIT. Fails if there is none.
    pub(super) fn destroy(&mut self, local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
        self.ask(SOCK_DESTROY, NLM_F_REQUEST | NLM_F_ACK, local, remote)
    }

    /// Whether there is a socket.
    pub(super) fn exists(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.ask(SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, local, remote).is_ok()
    }

    fn ask(&mut self, kind: u16, flags: u16, local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let family = family_of(local.ip());
        let request = InetDiagRequest {
            kind,
            flags,
            ends: (local, remote),
            ..InetDiagRequest::new(family, libc::IPPROTO_TCP as u8)
        };
        self.socket.send(&request.to_bytes(self.sequence))?;
        let mut answer = [0; 4096];
        loop {
            let len = io::Read::read(&mut &self.socket, &mut answer)?;
            let header = answer[..len].first_chunk::<{ NLMSG_HEADER_LEN + 4 }>();
            let Some(header) = header else { return Err(io::ErrorKind::InvalidData.into()) };
            let [kind, sequence] = [(4, 6), (8, 12)].map(|(from, to)| &header[from..to]);
            // An answer that came too late for its request.
            if *sequence != self.sequence.to_ne_bytes() {
                continue;
            }
            /// `linux/netlink.h`
            const NLMSG_ERROR: u16 = 2;
            if *kind != NLMSG_ERROR.to_ne_bytes() {
                return Ok(());
            }
            let code = header.last_chunk::<4>().map_or(0, |code| i32::from_ne_bytes(*code));
            return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
        }
    }
}
