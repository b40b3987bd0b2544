//! Whole frames of an interface, sent and received one by one: a packet socket (`packet(7)`).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use holdover_host::Namespace;

/// A socket on an interface, whose frames have their link-layer headers.
#[derive(Debug)]
pub struct FrameSocket {
    socket: OwnedFd,
    index: i32,
}

/// The direction of a frame that was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameDirection {
    /// The interface has received it.
    In,
    /// This host sends it, whether or not the link accepts it.
    Out,
}

/// Bytes of frames that are kept until they are read.
const ROOM: i32 = 64 << 20;

impl FrameSocket {
    /// For sending only.
    ///
    /// # Errors
    /// There is no such interface, or `CAP_NET_RAW` is missing.
    pub fn sender(namespace: &Namespace, interface: &str) -> io::Result<Self> {
        namespace.enter(|| Self::open(interface)).map_err(io::Error::other)?
    }

    /// For all frames that the interface sends and receives from now on.
    ///
    /// # Errors
    /// See [`Self::sender`].
    pub fn listener(namespace: &Namespace, interface: &str) -> io::Result<Self> {
        let open = || {
            let this = Self::open(interface)?;
            let (address, len) = (this.address(libc::ETH_P_ALL), size_of::<libc::sockaddr_ll>() as u32);
            // SAFETY: the address lives during the call, with its length.
            checked(unsafe { libc::bind(this.socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) } as isize)?;
            let (room, len) = (std::ptr::from_ref(&ROOM).cast(), size_of::<i32>() as u32);
            // The limit applies to others than root.
            // SAFETY: the option is an int, which lives during the call.
            unsafe {
                libc::setsockopt(this.socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, room, len);
            }
            Ok(this)
        };
        namespace.enter(open).map_err(io::Error::other)?
    }

    /// A socket that receives nothing before it is bound.
    fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface)?;
        // SAFETY: the name lives during the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        checked(if index == 0 { -1 } else { 0 })?;
        // SAFETY: no memory of ours is touched.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        checked(fd as isize)?;
        // SAFETY: a new descriptor without another owner.
        Ok(Self { socket: unsafe { OwnedFd::from_raw_fd(fd) }, index: index.cast_signed() })
    }

    /// Sends a frame that carries this kind of packet (`ETH_P_*`).
    ///
    /// # Errors
    /// The interface is down or gone.
    pub fn send(&self, ethertype: i32, frame: &[u8]) -> io::Result<()> {
        let (address, len) = (self.address(ethertype), size_of::<libc::sockaddr_ll>() as u32);
        let to = std::ptr::from_ref(&address).cast();
        // SAFETY: the frame and the address live during the call, with the lengths that are given.
        let sent = unsafe { libc::sendto(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, to, len) };
        checked(sent).map(drop)
    }

    /// The next frame that was kept, as much of it as the buffer has room for; `None` if there is none. Never waits.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<(FrameDirection, &'a [u8])> {
        let mut from = self.address(0);
        let mut len = size_of::<libc::sockaddr_ll>() as u32;
        let (place, room) = (buffer.as_mut_ptr().cast(), buffer.len());
        let (address, fd) = (std::ptr::from_mut(&mut from).cast(), self.socket.as_raw_fd());
        // SAFETY: the kernel writes no more into the buffer and the address than the lengths say.
        let got = unsafe { libc::recvfrom(fd, place, room, libc::MSG_DONTWAIT, address, &raw mut len) };
        let got = checked(got).ok()?;
        let is_out = from.sll_pkttype == libc::PACKET_OUTGOING;
        Some((if is_out { FrameDirection::Out } else { FrameDirection::In }, &buffer[..got]))
    }

    fn address(&self, ethertype: i32) -> libc::sockaddr_ll {
        // SAFETY: all zero is a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (ethertype as u16).to_be();
        address.sll_ifindex = self.index;
        address
    }
}

fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
