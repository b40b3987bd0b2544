//! Packets without a socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use holdover_testbed::{Namespace, Netlink};
use holdover_wire::{Flags, Packet, Segment, Seq};

/// Sends whole frames out of an interface.
pub(crate) struct RawSender {
    socket: OwnedFd,
    address: libc::sockaddr_ll,
}

impl RawSender {
    /// Out of an interface of `namespace`, in which the calling thread must be.
    pub(crate) fn open(namespace: &Namespace, interface: &str) -> Self {
        let index = Netlink::open(namespace).unwrap().link(interface).unwrap().index;
        // SAFETY: no memory of ours is touched.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: a new descriptor without another owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all zero is a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = index.cast_signed();
        Self { socket, address }
    }

    /// Sends a frame that carries this kind of packet (`ETH_P_*`).
    pub(crate) fn send(&self, ethertype: i32, frame: &[u8]) {
        let mut address = self.address;
        address.sll_protocol = (ethertype as u16).to_be();
        // SAFETY: the frame and the address live during the call, with the lengths that are given.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                std::ptr::from_ref(&address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }
}

/// A segment with an ACK and `len` bytes of data.
pub(crate) fn segment(from: SocketAddr, to: SocketAddr, seq: u32, ack: u32, len: usize) -> Packet {
    let segment = Segment {
        src_port: from.port(),
        dst_port: to.port(),
        seq: Seq::new(seq),
        ack: Seq::new(ack),
        flags: Flags::ACK,
        window: 5_000,
        payload: vec![0; len].into(),
        ..Segment::default()
    };
    Packet::new(from.ip(), to.ip(), segment)
}
