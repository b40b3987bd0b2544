//! Transparent sockets (TPROXY), which have the addresses of others, raw sockets, and requests to the kernel about sockets.

#![allow(unsafe_code, reason = "socket options, splice(2)")]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::time::Duration;

use holdover_host::inet_diag::{FIN_WAIT_2, Found, InetDiag, InetDiagRequest, TIME_WAIT};
use holdover_wire::TcpInfo;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::config::SplitTable;

/// The longest user timeout of the kernel.
const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

/// SYNs after the first one, instead of the kernel's 6, which take more than two minutes. A client that still waits sends its own
/// again.
const SYN_RETRIES: i32 = 4;

/// The settings of all sockets of split connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    pub(super) user_timeout: Duration,
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

    fn apply(&self, socket: &Socket, mark: u32) -> io::Result<()> {
        let is_v4 = socket.domain()? == Domain::IPV4;
        let (level, option) =
            if is_v4 { (libc::IPPROTO_IP, libc::IP_TRANSPARENT) } else { (libc::IPPROTO_IPV6, IPV6_TRANSPARENT) };
        set_option(socket, level, option, 1)?;
        socket.set_mark(mark)?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        socket.set_tcp_nodelay(true)?;
        // The splice ends connections whose end does not answer. The kernel would also end those whose receiver answers its
        // probes and does not read; its limit for retransmissions (tcp_retries2) would come before a longer user timeout.
        socket.set_tcp_user_timeout(Some(LONGEST))?;
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(self.keep_alive))?;
        socket.set_out_of_band_inline(true)?;
        // A process that ends at any moment resets its connections.
        socket.set_linger(Some(Duration::ZERO))?;
        // The daemon has the privilege to exceed the machine's limits.
        set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, self.buffer_bytes)?;
        set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, self.buffer_bytes)
    }

    /// A socket for SYNs that the program `deliver` assigns to it. It accepts nothing from the network: its address is of
    /// the loopback interface.
    pub(super) fn listen(&self, is_v6: bool, mark: u32) -> io::Result<Socket> {
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
    pub(super) fn connect(&self, from: SocketAddr, to: SocketAddr, mark: u32) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        self.apply(&socket, mark)?;
        set_option(&socket, libc::IPPROTO_TCP, libc::TCP_SYNCNT, SYN_RETRIES)?;
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

/// `TCP_INFO` of a socket.
pub(super) fn tcp_info(socket: &Socket) -> io::Result<TcpInfo> {
    let mut bytes = [0_u8; 512];
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into the buffer, which lives until the call returns.
    let result = unsafe {
        let (level, to) = (libc::IPPROTO_TCP, bytes.as_mut_ptr().cast::<libc::c_void>());
        libc::getsockopt(socket.as_raw_fd(), level, libc::TCP_INFO, to, &raw mut len)
    };
    if result == 0 { Ok(TcpInfo::from_bytes(&bytes[..len as usize])) } else { Err(io::Error::last_os_error()) }
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

/// Requests of `sock_diag(7)` about single TCP connections.
#[derive(Debug)]
pub(super) struct Diag(InetDiag);

impl Diag {
    pub(super) fn open() -> io::Result<Self> {
        InetDiag::open().map(Self)
    }

    /// Whether the kernel can destroy sockets.
    pub(super) fn can_destroy(&mut self) -> bool {
        let refusal = self.0.probe_end().err().and_then(|error| error.refusal());
        refusal != Some(libc::EOPNOTSUPP)
    }

    /// Destroys the socket of a former connection. Fails if there is none.
    pub(super) fn destroy(&mut self, local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
        self.destroy_if(local, remote, |_| true)
    }

    /// The same of a connection that its process has closed and whose FIN is acknowledged.
    pub(super) fn destroy_closed(&mut self, local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
        self.destroy_if(local, remote, |found| found.state == FIN_WAIT_2 || found.state == TIME_WAIT)
    }

    fn destroy_if(&mut self, local: SocketAddr, remote: SocketAddr, may: impl Fn(&Found) -> bool) -> io::Result<()> {
        let is_ended = self.0.end(&InetDiagRequest::of_tcp(local, remote), may)?;
        if is_ended { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Whether there is a socket.
    pub(super) fn exists(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.0.find(&InetDiagRequest::of_tcp(local, remote)).is_ok_and(|found| found.is_some())
    }
}
