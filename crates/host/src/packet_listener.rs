//! Receives the IP packets of an interface with a packet socket (`packet(7)`).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use holdover_base::{Duration, Instant};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{clock, packet_socket};

/// Receives all IP packets that an interface sends and receives, without link-layer headers. Needs `CAP_NET_RAW`.
#[derive(Debug)]
pub struct PacketListener {
    socket: OwnedFd,
    is_loopback: bool,
}

/// A captured packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heard {
    /// The kernel's time stamp, since 1970.
    pub at: Instant,
    /// The number of its bytes in the buffer.
    pub len: usize,
    /// Its length in bytes. Devices may have merged several packets into one, or may segment it later.
    pub original_len: usize,
}

/// Room for the control messages of a packet: a time.
const CONTROL_LEN: usize = 64;

#[repr(align(8))]
struct Control([u8; CONTROL_LEN]);

impl PacketListener {
    /// The bytes of packets that the kernel buffers until they are read.
    const BUFFER_LEN: u32 = 8 << 20;

    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// There is no such interface, or a privilege is missing.
    pub fn open(interface: &str) -> io::Result<Self> {
        let name = CString::new(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the name ends in a zero byte and lives during the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = packet_socket::open_unbound(libc::SOCK_DGRAM)?;
        set_option(&socket, libc::SO_TIMESTAMPNS, 1)?;
        packet_socket::set_receive_buffer(&socket, Self::BUFFER_LEN)?;
        packet_socket::bind(&socket, libc::ETH_P_ALL, index as i32)?;
        Ok(Self { socket, is_loopback: interface == "lo" })
    }

    /// The next IP packet, with its beginning in `buffer`; `None` if none arrives within `patience`.
    ///
    /// # Errors
    ///
    /// The interface has gone (`ENETDOWN`), or the call was interrupted by a signal.
    pub fn receive(&self, buffer: &mut [u8], patience: Duration) -> io::Result<Option<Heard>> {
        let began = std::time::Instant::now();
        loop {
            match self.receive_one(buffer) {
                Ok(Some(heard)) => return Ok(Some(heard)),
                // Another protocol: the next one may wait already.
                Ok(None) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let left = std::time::Duration::from_nanos(patience.as_nanos()).checked_sub(began.elapsed());
            let Some(left) = left else { return Ok(None) };
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            poll(&mut [PollFd::new(&self.socket.as_fd(), PollFlags::IN)], Some(&timeout))?;
        }
    }

    /// The packets dropped for lack of buffer space since the last call.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`.
    pub fn missed(&self) -> io::Result<u64> {
        packet_socket::drops(&self.socket)
    }

    /// Receives one packet; `None` if it is not IP, or is a duplicate on loopback.
    fn receive_one(&self, buffer: &mut [u8]) -> io::Result<Option<Heard>> {
        // SAFETY: all zero is a valid `sockaddr_ll`.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut control = Control([0; CONTROL_LEN]);
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all zero is a valid `msghdr`.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = std::ptr::from_mut(&mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_LEN as _;
        // SAFETY: all pointers in the message are valid during the call, with their lengths.
        let received = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &mut message, libc::MSG_TRUNC) };
        let Ok(original_len) = usize::try_from(received) else { return Err(io::Error::last_os_error()) };
        let protocol = i32::from(u16::from_be(from.sll_protocol));
        let is_ip = protocol == libc::ETH_P_IP || protocol == libc::ETH_P_IPV6;
        // On loopback each packet appears outgoing and incoming.
        if !is_ip || (self.is_loopback && from.sll_pkttype == libc::PACKET_OUTGOING) {
            return Ok(None);
        }
        let at = time_of(&message).unwrap_or_else(|| clock::utc().0);
        Ok(Some(Heard { at, len: original_len.min(buffer.len()), original_len }))
    }
}

/// When the kernel saw the packet.
fn time_of(message: &libc::msghdr) -> Option<Instant> {
    // SAFETY: the message was filled by the kernel, and its control messages live as long as it does.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = control.as_ref() {
            if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SO_TIMESTAMPNS {
                let time: libc::timespec = std::ptr::read_unaligned(libc::CMSG_DATA(control).cast());
                let seconds = Instant::from_secs(u64::try_from(time.tv_sec).ok()?);
                return Some(seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).ok()?));
            }
            control = libc::CMSG_NXTHDR(message, control);
        }
    }
    None
}

fn set_option(socket: &OwnedFd, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value lives during the call, with its length.
    let set = unsafe {
        let value = std::ptr::from_ref(&value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, size_of::<i32>() as u32)
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
