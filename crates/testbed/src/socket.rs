//! Kernel TCP sockets for tests: congestion control always pinned, a timeout on everything that waits.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use holdover_base::{ByteCount, Duration};
use rustix::event::Timespec;
use rustix::event::{PollFd, PollFlags, poll};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::{Namespace, NamespaceError, TcpInfo};

/// A congestion control algorithm of the kernel. There is no default, as machines differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Congestion {
    /// RFC 9438.
    Cubic,
    /// RFC 5681 and RFC 6582.
    Reno,
    /// Version 1, as in Linux.
    Bbr,
}

/// `linux/tcp.h`.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// Options set before a socket connects or listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketOptions {
    /// `TCP_CONGESTION`.
    pub congestion: Congestion,
    /// `TCP_NODELAY`: no Nagle.
    pub nodelay: bool,
    /// `TCP_USER_TIMEOUT`, in whole milliseconds; `None` leaves it to `tcp_retries2`.
    pub user_timeout: Option<Duration>,
    /// `SO_RCVBUF`; the kernel doubles it and no longer adapts it. `None` leaves it to `tcp_rmem`.
    pub recv_buffer: Option<ByteCount>,
    /// `SO_SNDBUF`, likewise.
    pub send_buffer: Option<ByteCount>,
    /// `TCP_MAXSEG` in bytes.
    pub max_segment: Option<u32>,
    /// `TCP_FASTOPEN_CONNECT`: the first write goes into the SYN, if the host has a cookie of the server.
    pub fast_open_connect: bool,
    /// The address to connect from.
    pub local: Option<SocketAddr>,
    /// Segments from and to this peer carry signatures ([`set_md5_key`]).
    pub md5_peer: Option<IpAddr>,
    /// The timeout of a call of [`Read`] or [`Write`], which fails with [`io::ErrorKind::TimedOut`] then.
    pub io_timeout: Duration,
}

/// A listening kernel socket.
#[derive(Debug)]
pub struct KernelListener {
    socket: Socket,
    io_timeout: Duration,
}

/// A connected kernel socket.
#[derive(Debug)]
pub struct KernelStream {
    socket: Socket,
}

/// A kernel socket could not be created.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// No connection or answer in time.
    #[error("{call} did not succeed within {timeout}")]
    TimedOut {
        /// The call.
        call: &'static str,
        /// The timeout.
        timeout: Duration,
    },
    /// A system call failed.
    #[error("{call} failed")]
    Failed {
        /// The call.
        call: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The calling thread is not in the namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

impl Congestion {
    /// The algorithms of a matrix.
    pub const ALL: [Self; 3] = [Self::Cubic, Self::Reno, Self::Bbr];

    /// The kernel's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Reno => "reno",
            Self::Bbr => "bbr",
        }
    }

    /// Whether this process may use it: the kernel has it, or root can have its module loaded.
    pub fn is_usable(self) -> bool {
        Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
            .and_then(|socket| socket.set_tcp_congestion(self.name().as_bytes()))
            .is_ok()
    }
}

impl SocketOptions {
    /// The kernel's defaults, except for congestion control; reads and writes time out after 30 s.
    pub fn new(congestion: Congestion) -> Self {
        Self {
            congestion,
            nodelay: false,
            user_timeout: None,
            recv_buffer: None,
            send_buffer: None,
            max_segment: None,
            fast_open_connect: false,
            local: None,
            md5_peer: None,
            io_timeout: Duration::from_secs(30),
        }
    }

    /// A socket with these options, neither bound nor connected.
    pub(crate) fn socket(&self, namespace: &Namespace, domain: Domain) -> Result<Socket, SocketError> {
        namespace.require_current()?;
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).map_err(failed("socket"))?;
        // This option comes first: without CAP_NET_ADMIN in the namespace, only some algorithms are allowed.
        socket.set_tcp_congestion(self.congestion.name().as_bytes()).map_err(failed("setsockopt(TCP_CONGESTION)"))?;
        socket.set_tcp_nodelay(self.nodelay).map_err(failed("setsockopt(TCP_NODELAY)"))?;
        if let Some(timeout) = self.user_timeout {
            socket.set_tcp_user_timeout(Some(timeout.into())).map_err(failed("setsockopt(TCP_USER_TIMEOUT)"))?;
        }
        if let Some(size) = self.recv_buffer {
            socket.set_recv_buffer_size(size.0 as usize).map_err(failed("setsockopt(SO_RCVBUF)"))?;
        }
        if let Some(size) = self.send_buffer {
            socket.set_send_buffer_size(size.0 as usize).map_err(failed("setsockopt(SO_SNDBUF)"))?;
        }
        if let Some(mss) = self.max_segment {
            socket.set_tcp_mss(mss).map_err(failed("setsockopt(TCP_MAXSEG)"))?;
        }
        if self.fast_open_connect {
            set_tcp_option(&socket, libc::TCP_FASTOPEN_CONNECT, 1, "setsockopt(TCP_FASTOPEN_CONNECT)")?;
        }
        if let Some(peer) = self.md5_peer {
            set_md5_key(&socket, peer).map_err(failed("setsockopt(TCP_MD5SIG)"))?;
        }
        Ok(socket)
    }
}

impl KernelListener {
    /// Listens at `address` in `namespace`, in which the calling thread must be; port 0 takes a free one. Accepted
    /// connections inherit the options.
    ///
    /// # Errors
    /// The calling thread is in another namespace, or the kernel refuses an option, the address or the socket.
    pub fn bind(namespace: &Namespace, address: SocketAddr, options: &SocketOptions) -> Result<Self, SocketError> {
        let socket = options.socket(namespace, Domain::for_address(address))?;
        socket.set_reuse_address(true).map_err(failed("setsockopt(SO_REUSEADDR)"))?;
        socket.bind(&address.into()).map_err(failed("bind"))?;
        socket.listen(128).map_err(failed("listen"))?;
        // A connection that is reset between poll and accept must not block accept.
        socket.set_nonblocking(true).map_err(failed("fcntl(O_NONBLOCK)"))?;
        Ok(Self { socket, io_timeout: options.io_timeout })
    }

    /// `TCP_RTO_MAX_MS` of the connections that it accepts (Linux 6.15).
    ///
    /// # Errors
    /// The kernel refuses it: `ENOPROTOOPT` before Linux 6.15, `EINVAL` outside of 1 to 120 s.
    pub fn set_rto_max(&self, max: Duration) -> Result<(), SocketError> {
        set_rto_max(&self.socket, max)
    }

    /// The listening address.
    pub fn local_addr(&self) -> Result<SocketAddr, SocketError> {
        address_of(self.socket.local_addr(), "getsockname")
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// [`SocketError::TimedOut`] without a connection within `timeout`, or a failed call.
    pub fn accept(&self, timeout: Duration) -> Result<KernelStream, SocketError> {
        let deadline = std::time::Instant::now() + std::time::Duration::from(timeout);
        loop {
            match self.socket.accept() {
                Ok((socket, _)) => {
                    socket.set_nonblocking(false).map_err(failed("fcntl(O_NONBLOCK)"))?;
                    return KernelStream::new(socket, self.io_timeout);
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => {}
                Err(error) => return Err(failed("accept")(error)),
            }
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || !wait_readable(self.socket.as_fd(), left.into())? {
                return Err(SocketError::TimedOut { call: "accept", timeout });
            }
        }
    }
}

impl KernelStream {
    /// Connects to `address` from `namespace`, in which the calling thread must be.
    ///
    /// # Errors
    /// [`SocketError::TimedOut`] without an answer within `timeout`, a refusal or a reset, or a failed call before that.
    pub fn connect(
        namespace: &Namespace,
        address: SocketAddr,
        options: &SocketOptions,
        timeout: Duration,
    ) -> Result<Self, SocketError> {
        let socket = options.socket(namespace, Domain::for_address(address))?;
        if let Some(local) = options.local {
            socket.set_reuse_address(true).map_err(failed("setsockopt(SO_REUSEADDR)"))?;
            socket.bind(&local.into()).map_err(failed("bind"))?;
        }
        match socket.connect_timeout(&address.into(), timeout.into()) {
            Ok(()) => Self::new(socket, options.io_timeout),
            // The kernel's own ETIMEDOUT (no answer to the last SYN) is equivalent for the caller.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(SocketError::TimedOut { call: "connect", timeout })
            }
            Err(error) => Err(failed("connect")(error)),
        }
    }

    /// Sets the timeout of later reads and writes; a timeout of zero becomes 1 µs.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_io_timeout(&self, timeout: Duration) -> Result<(), SocketError> {
        // The kernel interprets 0 as "no timeout".
        let timeout = Some(std::time::Duration::from(timeout.max(Duration::from_micros(1))));
        self.socket.set_read_timeout(timeout).map_err(failed("setsockopt(SO_RCVTIMEO)"))?;
        self.socket.set_write_timeout(timeout).map_err(failed("setsockopt(SO_SNDTIMEO)"))
    }

    /// `TCP_USER_TIMEOUT`, in whole milliseconds.
    pub fn set_user_timeout(&self, timeout: Duration) -> Result<(), SocketError> {
        self.socket.set_tcp_user_timeout(Some(timeout.into())).map_err(failed("setsockopt(TCP_USER_TIMEOUT)"))
    }

    /// `TCP_NODELAY`: no Nagle.
    pub fn set_nodelay(&self, is_on: bool) -> Result<(), SocketError> {
        self.socket.set_tcp_nodelay(is_on).map_err(failed("setsockopt(TCP_NODELAY)"))
    }

    /// `TCP_CONGESTION`.
    ///
    /// # Errors
    /// `ENOENT` without the algorithm, `EPERM` if it is not allowed to this user.
    pub fn set_congestion(&self, congestion: Congestion) -> Result<(), SocketError> {
        self.socket.set_tcp_congestion(congestion.name().as_bytes()).map_err(failed("setsockopt(TCP_CONGESTION)"))
    }

    /// `TCP_REPAIR`, which needs `CAP_NET_ADMIN` in the namespace.
    ///
    /// # Errors
    /// `EPERM` without that capability.
    pub fn set_repair(&self, is_on: bool) -> Result<(), SocketError> {
        set_tcp_option(&self.socket, libc::TCP_REPAIR, is_on.into(), "setsockopt(TCP_REPAIR)")
    }

    /// `TCP_RTO_MAX_MS` (Linux 6.15): the ceiling of the retransmission timeout, 1 to 120 s.
    pub fn set_rto_max(&self, max: Duration) -> Result<(), SocketError> {
        set_rto_max(&self.socket, max)
    }

    /// Ends this side's stream (FIN); the other direction stays open.
    ///
    /// # Errors
    /// `ENOTCONN` after a reset.
    pub fn shutdown_write(&self) -> Result<(), SocketError> {
        self.socket.shutdown(Shutdown::Write).map_err(failed("shutdown"))
    }

    /// Closes with a reset instead of a FIN.
    pub fn abort(self) -> Result<(), SocketError> {
        self.socket.set_linger(Some(std::time::Duration::ZERO)).map_err(failed("setsockopt(SO_LINGER)"))
    }

    /// Another handle of the same connection, for a thread that serves the other direction.
    pub fn try_clone(&self) -> Result<Self, SocketError> {
        self.socket.try_clone().map(|socket| Self { socket }).map_err(failed("dup"))
    }

    /// This side's address.
    pub fn local_addr(&self) -> Result<SocketAddr, SocketError> {
        address_of(self.socket.local_addr(), "getsockname")
    }

    /// The other side's address.
    pub fn peer_addr(&self) -> Result<SocketAddr, SocketError> {
        address_of(self.socket.peer_addr(), "getpeername")
    }

    /// `TCP_CONGESTION`: the algorithm's name.
    pub fn congestion(&self) -> Result<String, SocketError> {
        let name = self.socket.tcp_congestion().map_err(failed("getsockopt(TCP_CONGESTION)"))?;
        Ok(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned())
    }

    /// `TCP_INFO`.
    pub fn tcp_info(&self) -> Result<TcpInfo, SocketError> {
        tcp_info(&self.socket)
    }

    fn new(socket: Socket, io_timeout: Duration) -> Result<Self, SocketError> {
        let stream = Self { socket };
        stream.set_io_timeout(io_timeout)?;
        Ok(stream)
    }
}

impl Read for KernelStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.read(buf).map_err(timed_out)
    }
}

impl Write for KernelStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.socket.write(buf).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for KernelStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Has segments to and from a peer signed, with a fixed key (`TCP_MD5SIG`, RFC 2385).
///
/// # Errors
/// The kernel's, also without `CONFIG_TCP_MD5SIG`.
pub fn set_md5_key(socket: &impl AsFd, peer: IpAddr) -> io::Result<()> {
    const KEY: &[u8] = b"holdover";
    // `struct tcp_md5sig` of `linux/tcp.h`: a socket address in 128 bytes, flags, a prefix length, the key's length, an interface, the key.
    let mut signature = [0_u8; 128 + 8 + 80];
    let (family, at) = match peer {
        IpAddr::V4(_) => (libc::AF_INET, 4),
        IpAddr::V6(_) => (libc::AF_INET6, 8),
    };
    signature[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    match peer {
        IpAddr::V4(peer) => signature[at..at + 4].copy_from_slice(&peer.octets()),
        IpAddr::V6(peer) => signature[at..at + 16].copy_from_slice(&peer.octets()),
    }
    signature[130..132].copy_from_slice(&(KEY.len() as u16).to_ne_bytes());
    signature[136..136 + KEY.len()].copy_from_slice(KEY);
    // SAFETY: the kernel reads the structure, which lives until the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MD5SIG,
            signature.as_ptr().cast(),
            signature.len() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `TCP_INFO` of a socket.
pub(crate) fn tcp_info(socket: &impl AsRawFd) -> Result<TcpInfo, SocketError> {
    let mut buffer = [0_u8; TcpInfo::MAX_LEN];
    let mut len = buffer.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is the buffer's length, and sets `len` to the number written.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            buffer.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(failed("getsockopt(TCP_INFO)")(io::Error::last_os_error()));
    }
    Ok(TcpInfo::from_bytes(&buffer[..len as usize]))
}

/// `SO_RCVTIMEO` and `SO_SNDTIMEO` report their end as EAGAIN.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

fn set_rto_max(socket: &Socket, max: Duration) -> Result<(), SocketError> {
    let millis = libc::c_int::try_from(max.as_millis()).unwrap_or(libc::c_int::MAX);
    set_tcp_option(socket, TCP_RTO_MAX_MS, millis, "setsockopt(TCP_RTO_MAX_MS)")
}

fn set_tcp_option(
    socket: &Socket,
    option: libc::c_int,
    value: libc::c_int,
    call: &'static str,
) -> Result<(), SocketError> {
    // SAFETY: the kernel reads one int, which `value` is, and keeps no pointer to it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(failed(call)(io::Error::last_os_error())) }
}

fn wait_readable(fd: BorrowedFd<'_>, timeout: Duration) -> Result<bool, SocketError> {
    let timeout = Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: (timeout.as_nanos() % 1_000_000_000) as _,
    };
    rustix::io::retry_on_intr(|| poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)))
        .map(|ready| ready > 0)
        .map_err(|errno| failed("poll")(errno.into()))
}

fn address_of(address: io::Result<SockAddr>, call: &'static str) -> Result<SocketAddr, SocketError> {
    let address = address.map_err(failed(call))?;
    address.as_socket().ok_or_else(|| failed(call)(io::ErrorKind::Unsupported.into()))
}

fn failed(call: &'static str) -> impl Fn(io::Error) -> SocketError {
    move |source| SocketError::Failed { call, source }
}
