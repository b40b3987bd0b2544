//! Sends packets that the agent has made: out of an interface, or in by it, to the host itself.
//!
//! They go through packet sockets (`packet(7)`) and so past the host's filters and address translation: what is sent belongs to a
//! connection whose packets the agent has seen behind these. The eBPF programs know them by a mark, let those that go out pass as
//! they are, and turn the others round.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use bytes::BytesMut;
use holdover_mobility::{Direction, Injected};

use super::interface::request;
use super::{EngineError, Interface, MARK_BACK, MARK_OUT};

/// Sends out of one interface.
#[derive(Debug)]
pub(super) struct Injector {
    out: OwnedFd,
    back: OwnedFd,
    index: i32,
    buffer: BytesMut,
}

impl Injector {
    /// Opens the sockets in the calling thread's network namespace.
    pub(super) fn open(interface: &Interface) -> Result<Self, EngineError> {
        let open = |mark| {
            packet_socket(mark).map_err(|source| EngineError::Socket { interface: interface.name.clone(), source })
        };
        Ok(Self {
            out: open(MARK_OUT)?,
            back: open(MARK_BACK)?,
            index: interface.index as i32,
            buffer: BytesMut::new(),
        })
    }

    /// Sends a packet after `frame`, the Ethernet header of one that went the same way, where the interface has such.
    pub(super) fn send(&mut self, injected: &Injected, frame: &[u8]) -> Result<(), io::Error> {
        let packet = &injected.packet;
        self.buffer.clear();
        self.buffer.extend_from_slice(frame);
        packet.emit_into(&mut self.buffer).map_err(io::Error::other)?;
        let ethertype = if packet.dst.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
        let socket = if injected.direction == Direction::Outgoing { &self.out } else { &self.back };
        // SAFETY: all zero is a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (ethertype as u16).to_be();
        address.sll_ifindex = self.index;
        // SAFETY: the buffer and the address live during the call, with the lengths that are given.
        let sent = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                self.buffer.as_ptr().cast(),
                self.buffer.len(),
                libc::MSG_DONTWAIT,
                std::ptr::from_ref(&address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Whether the interface has a carrier now, by its driver (`ETHTOOL_GLINK`); `None` if that is not known.
    pub(super) fn has_carrier(&self, interface: &str) -> Option<bool> {
        /// `struct ethtool_value` of `linux/ethtool.h`.
        #[repr(C)]
        struct EthtoolValue {
            cmd: u32,
            data: u32,
        }
        const ETHTOOL_GLINK: u32 = 0x0a;
        let mut request = request(interface)?;
        let mut value = EthtoolValue { cmd: ETHTOOL_GLINK, data: 0 };
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request reads the name and the pointer of one `struct ifreq`, and writes into the value, which outlives the call.
        let answer = unsafe { libc::ioctl(self.out.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        (answer == 0).then_some(value.data != 0)
    }
}

/// A packet socket that receives nothing.
fn packet_socket(mark: u32) -> Result<OwnedFd, io::Error> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory of ours is touched.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which nobody else has.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    for (option, value) in [(libc::SO_MARK, mark), (libc::SO_SNDBUFFORCE, SEND_BUFFER)] {
        let value = std::ptr::from_ref(&value).cast();
        let len = size_of::<u32>() as u32;
        // SAFETY: the option is an int, which lives during the call.
        let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, len) };
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(socket)
}

/// Bytes: room for some thousand packets, which wait in the interface's queue while the link is slow.
const SEND_BUFFER: u32 = 4 << 20;
