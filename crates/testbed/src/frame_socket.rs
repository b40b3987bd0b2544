//! Whole frames of an interface, sent and received one by one: a packet socket (`packet(7)`).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use holdover_host::{Namespace, packet_socket};

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
const ROOM: u32 = 64 << 20;

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
            packet_socket::set_receive_buffer(&this.socket, ROOM)?;
            packet_socket::bind(&this.socket, libc::ETH_P_ALL, this.index)?;
            Ok(this)
        };
        namespace.enter(open).map_err(io::Error::other)?
    }

    fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface)?;
        // SAFETY: the name lives during the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        checked(if index == 0 { -1 } else { 0 })?;
        Ok(Self { socket: packet_socket::open_unbound(libc::SOCK_RAW)?, index: index.cast_signed() })
    }

    /// Sends a frame that carries this kind of packet (`ETH_P_*`).
    ///
    /// # Errors
    /// The interface is down or gone, or its queue is full.
    pub fn send(&self, ethertype: i32, frame: &[u8]) -> io::Result<()> {
        let (address, len) = (packet_socket::address(ethertype, self.index), size_of::<libc::sockaddr_ll>() as u32);
        let to = std::ptr::from_ref(&address).cast();
        // SAFETY: the frame and the address live during the call, with the lengths that are given.
        let sent = unsafe { libc::sendto(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, to, len) };
        checked(sent).map(drop)
    }

    /// The next frame that was kept, as much of it as the buffer has room for; `None` if there is none, or the interface is down. Never waits.
    ///
    /// # Errors
    /// Those of `recvfrom(2)`.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<(FrameDirection, &'a [u8])>> {
        let mut from = packet_socket::address(0, self.index);
        let mut len = size_of::<libc::sockaddr_ll>() as u32;
        let (place, room) = (buffer.as_mut_ptr().cast(), buffer.len());
        let (address, fd) = (std::ptr::from_mut(&mut from).cast(), self.socket.as_raw_fd());
        // SAFETY: the kernel writes no more into the buffer and the address than the lengths say.
        let got = unsafe { libc::recvfrom(fd, place, room, libc::MSG_DONTWAIT, address, &raw mut len) };
        let got = match checked(got) {
            Ok(got) => got,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENETDOWN)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_out = from.sll_pkttype == libc::PACKET_OUTGOING;
        Ok(Some((if is_out { FrameDirection::Out } else { FrameDirection::In }, &buffer[..got])))
    }

    /// The frames dropped for lack of buffer space since the last call.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn dropped(&self) -> io::Result<u64> {
        packet_socket::drops(&self.socket)
    }
}

fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
