//! Raw sockets for ICMP and ICMPv6 (`raw(7)`): they receive messages of one type, and send messages whose IP header the kernel makes.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use bytes::Bytes;
use socket2::{Domain, Protocol, Socket, Type};

/// The longest message that is received whole, with an IPv4 header: an error quotes at most the least MTU of IPv6.
const LONGEST: usize = 2048;
/// `ICMP_FILTER` of `linux/icmp.h`, `ICMPV6_FILTER` of `linux/icmpv6.h`.
const ICMP_FILTER: libc::c_int = 1;
const ICMPV6_FILTER: libc::c_int = 1;

/// The protocol of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Icmp {
    /// ICMP (RFC 792).
    V4,
    /// ICMPv6 (RFC 4443).
    V6,
}

impl Icmp {
    /// Both, in the order of [`Self::index`].
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    pub const fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// 0 and 1, for tables of both.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A socket of the network namespace in which it was opened.
#[derive(Debug)]
pub struct IcmpSocket(Socket);

impl IcmpSocket {
    /// Receives messages of type `accepted`, or none. The filter of ICMP knows types below 32; Linux passes messages of other types in any case.
    ///
    /// # Errors
    /// The process lacks `CAP_NET_RAW`.
    pub fn open(icmp: Icmp, accepted: Option<u8>) -> io::Result<Self> {
        let (domain, protocol) = match icmp {
            Icmp::V4 => (Domain::IPV4, Protocol::ICMPV4),
            Icmp::V6 => (Domain::IPV6, Protocol::ICMPV6),
        };
        let socket = Self(Socket::new(domain, Type::RAW, Some(protocol))?);
        socket.0.set_nonblocking(true)?;
        socket.accept_only(icmp, accepted)?;
        Ok(socket)
    }

    /// Receives and sends over one interface only, and sends packets with a mark.
    ///
    /// # Errors
    /// There is no such interface, or the process lacks `CAP_NET_ADMIN`.
    pub fn on(self, interface: &str, mark: u32) -> io::Result<Self> {
        self.0.bind_device(Some(interface.as_bytes()))?;
        self.0.set_mark(mark)?;
        Ok(self)
    }

    /// The next message and its sender: with the IPv4 header in front of ICMP, and without a header for ICMPv6, whose checksum the kernel has
    /// verified. Never waits.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none. After another error the socket stays usable.
    pub fn receive(&self) -> io::Result<(Bytes, Option<IpAddr>)> {
        let mut buffer = [MaybeUninit::uninit(); LONGEST];
        loop {
            let (len, from) = match self.0.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            // SAFETY: the kernel has initialized the first `len` bytes.
            let bytes: Vec<u8> = buffer[..len].iter().map(|byte| unsafe { byte.assume_init() }).collect();
            return Ok((bytes.into(), from.as_socket().map(|from| from.ip())));
        }
    }

    /// Sends a message. The kernel adds the IP header and, for ICMPv6, the checksum.
    ///
    /// # Errors
    /// There is no route, or the queue is full.
    pub fn send(&self, message: &[u8], to: IpAddr) -> io::Result<()> {
        self.0.send_to(message, &SocketAddr::new(to, 0).into()).map(drop)
    }

    /// Bits of types that do not pass: those of ICMP's first 32 types in one word, and those of ICMPv6's 256 in eight.
    fn accept_only(&self, icmp: Icmp, accepted: Option<u8>) -> io::Result<()> {
        let (level, name, words) = match icmp {
            Icmp::V4 => (libc::SOL_RAW, ICMP_FILTER, 1),
            Icmp::V6 => (libc::SOL_ICMPV6, ICMPV6_FILTER, 8),
        };
        let mut filter = vec![u32::MAX; words];
        if let Some(accepted) = accepted
            && let Some(word) = filter.get_mut(usize::from(accepted) / 32)
        {
            *word = !(1 << (accepted % 32));
        }
        let len = size_of_val(&filter[..]) as libc::socklen_t;
        // SAFETY: the filter lives until the call returns, and `len` is its length.
        let result = unsafe { libc::setsockopt(self.0.as_raw_fd(), level, name, filter.as_ptr().cast(), len) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsFd for IcmpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
