//! Packet sockets (`packet(7)`). Those for sending only bypass the host's filters, routes and address translation, and
//! carry a mark that identifies them to programs in the path.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// A packet socket.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
}

/// Bytes: room for some thousand packets, which wait in the interface's queue while the link is slow.
const SEND_BUFFER: u32 = 4 << 20;

impl PacketSocket {
    /// In the calling thread's network namespace. Its packets carry the mark.
    ///
    /// # Errors
    /// The process lacks `CAP_NET_RAW` or `CAP_NET_ADMIN`.
    pub fn open(mark: u32) -> io::Result<Self> {
        let this = Self { socket: open_unbound(libc::SOCK_RAW)? };
        this.set(libc::SOL_SOCKET, libc::SO_MARK, mark)?;
        this.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER)?;
        Ok(this)
    }

    /// Each packet begins with `struct virtio_net_hdr` ([`crate::Offload`]) from now on, so that the kernel does the
    /// offloaded work.
    ///
    /// # Errors
    /// The kernel has no `PACKET_VNET_HDR`.
    pub fn with_offload(self) -> io::Result<Self> {
        self.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        Ok(self)
    }

    /// Sends a frame, its link-layer header included, out of an interface: the one with this index. Never waits.
    ///
    /// # Errors
    /// The queue is full ([`io::ErrorKind::WouldBlock`] or `ENOBUFS`), or the interface is down or gone.
    pub fn send(&self, index: i32, is_ipv4: bool, frame: &[u8]) -> io::Result<()> {
        let ethertype = if is_ipv4 { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
        let address = address(ethertype, index);
        // SAFETY: the frame and the address live during the call, with the lengths that are given.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
                std::ptr::from_ref(&address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn set(&self, level: i32, option: i32, value: u32) -> io::Result<()> {
        set_option(&self.socket, level, option, value)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A packet socket of this type, which never waits, and receives nothing before [`bind`].
///
/// # Errors
/// The process lacks `CAP_NET_RAW`.
pub fn open_unbound(kind: i32) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory of ours is touched.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Receives packets of a protocol (`ETH_P_*`) on the interface of this index from now on.
///
/// # Errors
/// The interface is gone.
pub fn bind(socket: &OwnedFd, protocol: i32, index: i32) -> io::Result<()> {
    let (address, len) = (address(protocol, index), size_of::<libc::sockaddr_ll>() as u32);
    // SAFETY: the address lives during the call, with its length.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The address of a protocol (`ETH_P_*`) on the interface of this index.
pub fn address(protocol: i32, index: i32) -> libc::sockaddr_ll {
    // SAFETY: all zero is a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = index;
    address
}

/// Sets the size of the receive buffer in bytes; without `CAP_NET_ADMIN` in the initial user namespace the system's limit applies.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_receive_buffer(socket: &OwnedFd, bytes: u32) -> io::Result<()> {
    let set = |option| set_option(socket, libc::SOL_SOCKET, option, bytes);
    set(libc::SO_RCVBUFFORCE).or_else(|_| set(libc::SO_RCVBUF))
}

/// The packets dropped for lack of buffer space since the last call.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn drops(socket: &OwnedFd) -> io::Result<u64> {
    // SAFETY: all zero is a valid `tpacket_stats`.
    let mut statistics: libc::tpacket_stats = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tpacket_stats>() as u32;
    // SAFETY: the statistics live during the call, with their length.
    let reported = unsafe {
        let value = std::ptr::from_mut(&mut statistics).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, value, &mut len)
    };
    if reported < 0 { Err(io::Error::last_os_error()) } else { Ok(u64::from(statistics.tp_drops)) }
}

fn set_option(socket: &OwnedFd, level: i32, option: i32, value: u32) -> io::Result<()> {
    let (value, len) = (std::ptr::from_ref(&value).cast(), size_of::<u32>() as u32);
    // SAFETY: the option is an int, which lives during the call.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
