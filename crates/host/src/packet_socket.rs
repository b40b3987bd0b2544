//! Send-only packet sockets (`packet(7)`): their packets bypass the host's filters, routes and address translation, and
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
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory of ours is touched.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor without another owner.
        let this = Self { socket: unsafe { OwnedFd::from_raw_fd(fd) } };
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
        // SAFETY: all zero is a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (ethertype as u16).to_be();
        address.sll_ifindex = index;
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
        let (value, len) = (std::ptr::from_ref(&value).cast(), size_of::<u32>() as u32);
        // SAFETY: the option is an int, which lives during the call.
        let set = unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, option, value, len) };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
