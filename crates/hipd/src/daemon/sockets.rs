//! The sockets towards the network, for reading: raw ones for HIP and ESP, UDP ones for both in UDP. One system call reads many packets.
//!
//! Raw IPv4 sockets hand out packets with their header; for IPv6 and UDP the kernel reports addresses beside the data
//! (`IPV6_RECVPKTINFO`, `IP_PKTINFO`). Datagrams that came one after the other from one sender are read as one (`UDP_GRO`).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use holdover_hip::codec::PROTOCOL;
use holdover_wire::{Packet, Payload, Udp};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

use super::DaemonError;
use super::ancillary::Ancillary;
use super::sending::Senders;
use crate::core::PORT;

/// The IP protocol number of ESP.
const ESP: u8 = 50;
/// Room for packets that arrive while others are being decrypted.
const RECEIVE_BUFFER_BYTES: libc::c_int = 4 << 20;
/// Room for runs of datagrams that wait for the device: few, as they wait behind each other.
const SEND_BUFFER_BYTES: libc::c_int = 1 << 18;
/// The longest packet, and the longest data of joined datagrams.
const LONGEST: usize = 1 << 16;
/// Packets, or joined datagrams, that one system call reads.
const SLOTS: usize = 32;
/// Bytes of a slot: not a power of two, so that packets share no cache sets.
const SLOT_LEN: usize = LONGEST + 2112;
/// Data of more bytes is not copied out of its slot.
const LONG: usize = 1 << 14;
/// Room for ancillary data.
const CONTROL_LEN: usize = 256;
/// Bytes of the buffer whose slices packets are.
const CHUNK: usize = 1 << 18;

/// The input of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Packets with their IPv4 header.
    RawV4,
    /// The payload of IPv6 packets of one protocol.
    RawV6(u8),
    /// The payload of datagrams to [`PORT`].
    Udp,
}

/// A socket, and its input.
#[derive(Debug)]
struct Receiver {
    socket: Arc<Socket>,
    kind: Kind,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Sockets {
    receivers: Vec<Receiver>,
    senders: Arc<Senders>,
    has_udp: bool,
    /// One for each packet of a system call: empty, with a capacity of [`SLOT_LEN`].
    slots: [BytesMut; SLOTS],
    /// Where short packets are copied to.
    chunk: BytesMut,
}

impl Sockets {
    /// Opens them. IPv6 is optional, and so is the UDP port, which may be in use.
    ///
    /// # Errors
    /// [`DaemonError`] without the privilege.
    pub(super) fn open() -> Result<Self, DaemonError> {
        let mut receivers = Vec::new();
        for protocol in [PROTOCOL, ESP] {
            receivers.push(Receiver { socket: raw(Domain::IPV4, protocol)?.into(), kind: Kind::RawV4 });
            match raw(Domain::IPV6, protocol) {
                Ok(socket) => {
                    for option in [libc::IPV6_RECVPKTINFO, libc::IPV6_RECVHOPLIMIT, libc::IPV6_RECVTCLASS] {
                        set(&socket, libc::IPPROTO_IPV6, option, 1).map_err(DaemonError::Sockets)?;
                    }
                    receivers.push(Receiver { socket: socket.into(), kind: Kind::RawV6(protocol) });
                }
                Err(error) => tracing::warn!(%error, "no IPv6"),
            }
        }
        let mut has_udp = true;
        let udp = [Domain::IPV4, Domain::IPV6].map(|domain| match udp(domain) {
            Ok(socket) => Some(Arc::new(socket)),
            Err(error) => {
                has_udp &= domain == Domain::IPV6;
                tracing::warn!(%error, port = PORT, "cannot receive packets in UDP");
                None
            }
        });
        receivers.extend(udp.iter().flatten().map(|socket| Receiver { socket: Arc::clone(socket), kind: Kind::Udp }));
        let raw_v4 = raw(Domain::IPV4, libc::IPPROTO_RAW as u8)?;
        let raw_v6 = raw(Domain::IPV6, libc::IPPROTO_RAW as u8).ok();
        let slots = core::array::from_fn(|_| BytesMut::with_capacity(SLOT_LEN));
        let senders = Arc::new(Senders::new(raw_v4, raw_v6, udp));
        Ok(Self { receivers, senders, has_udp, slots, chunk: BytesMut::new() })
    }

    pub(super) const fn has_udp(&self) -> bool {
        self.has_udp
    }

    /// Where packets are sent.
    pub(super) const fn senders(&self) -> &Arc<Senders> {
        &self.senders
    }

    /// The descriptors to poll, in the order of [`Self::receive`]'s index.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.receivers.iter().map(|receiver| receiver.socket.as_fd())
    }

    /// Appends packets of a socket to `packets`, those of one system call. Returns whether there may be more, and how many were
    /// invalid.
    pub(super) fn receive(&mut self, index: usize, packets: &mut Vec<Packet>) -> (bool, u64) {
        let Some(Receiver { socket, kind }) = self.receivers.get(index) else { return (false, 0) };
        let batch = match read_batch(socket, &mut self.slots) {
            Ok(batch) => batch,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (false, 0),
            // An ICMP error about an earlier packet, or a signal: the next call returns data.
            Err(_) => return (true, 0),
        };
        let before = packets.len();
        let mut invalid = 0;
        for (message, slot) in batch.messages().zip(&mut self.slots) {
            let data = if slot.len() > LONG {
                core::mem::replace(slot, BytesMut::with_capacity(SLOT_LEN)).freeze()
            } else {
                if self.chunk.capacity() < LONG {
                    self.chunk = BytesMut::with_capacity(CHUNK);
                }
                self.chunk.extend_from_slice(slot);
                slot.clear();
                self.chunk.split().freeze()
            };
            let valid = match kind {
                Kind::RawV4 => Packet::parse(data).map(|packet| packets.push(packet)).is_ok(),
                Kind::RawV6(protocol) => message.packets(*protocol, None, data, packets).is_some(),
                Kind::Udp => message.packets(0, Some(PORT), data, packets).is_some(),
            };
            invalid += u64::from(!valid);
        }
        (packets.len() > before, invalid)
    }
}

/// The results of one receiving system call, without the data, which is in the slots.
struct Batch {
    controls: [[u8; CONTROL_LEN]; SLOTS],
    senders: [Option<SocketAddr>; SLOTS],
    /// Bytes of ancillary data.
    control_lens: [usize; SLOTS],
    count: usize,
}

/// The control messages of a packet or of joined datagrams.
struct Message<'a> {
    control: &'a [u8],
    from: Option<SocketAddr>,
}

/// Reads packets into slots, which are empty before (`recvmmsg(2)`).
fn read_batch(socket: &Socket, slots: &mut [BytesMut; SLOTS]) -> io::Result<Batch> {
    // Zeroed: the kernel leaves out the padding between control messages.
    let mut controls = [[0; CONTROL_LEN]; SLOTS];
    let mut names: [SockAddrStorage; SLOTS] = core::array::from_fn(|_| SockAddrStorage::zeroed());
    let mut slices = slots.each_mut().map(|slot| {
        let room = slot.spare_capacity_mut();
        libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }
    });
    let mut messages: [libc::mmsghdr; SLOTS] = core::array::from_fn(|index| {
        // SAFETY: zeros are a valid `mmsghdr`: null pointers with lengths of 0.
        let mut message: libc::mmsghdr = unsafe { core::mem::zeroed() };
        message.msg_hdr.msg_name = (&raw mut names[index]).cast();
        message.msg_hdr.msg_namelen = size_of::<SockAddrStorage>() as libc::socklen_t;
        message.msg_hdr.msg_iov = &raw mut slices[index];
        message.msg_hdr.msg_iovlen = 1;
        message.msg_hdr.msg_control = controls[index].as_mut_ptr().cast();
        message.msg_hdr.msg_controllen = CONTROL_LEN as _;
        message
    });
    let (vector, len) = (messages.as_mut_ptr(), SLOTS as libc::c_uint);
    // SAFETY: `messages` has the number of elements that is passed to the call, and their pointers are into `names`, `slices`, `controls` and `slots`,
    // with their lengths, which live until it returns.
    let count = unsafe { libc::recvmmsg(socket.as_raw_fd(), vector, len, 0, core::ptr::null_mut()) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?.min(SLOTS);
    let mut senders = [None; SLOTS];
    for ((sender, name), message) in senders.iter_mut().zip(names).zip(&messages[..count]) {
        // SAFETY: the kernel has written an address of this length, or none.
        *sender = unsafe { SockAddr::new(name, message.msg_hdr.msg_namelen) }.as_socket();
    }
    for (slot, message) in slots.iter_mut().zip(&messages[..count]) {
        // SAFETY: the kernel has written this number of bytes into the slot's capacity, and bytes have no invalid values.
        unsafe { slot.set_len((message.msg_len as usize).min(slot.capacity())) };
    }
    let control_lens = messages.map(|message| message.msg_hdr.msg_controllen);
    Ok(Batch { controls, senders, control_lens, count })
}

impl Batch {
    fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        (0..self.count).map(|index| {
            let control = &self.controls[index][..self.control_lens[index].min(CONTROL_LEN)];
            Message { control, from: self.senders[index] }
        })
    }
}

impl Message<'_> {
    /// Assembles packets from their payload and the header fields reported by the kernel; `None` if there are none.
    fn packets(&self, protocol: u8, udp_port: Option<u16>, data: Bytes, packets: &mut Vec<Packet>) -> Option<()> {
        let Ancillary { dst, ttl, traffic_class, segment } = Ancillary::read(self.control);
        let (from, dst) = (self.from?, dst?);
        let segment = segment.filter(|&segment| segment > 0).unwrap_or(usize::MAX);
        let mut rest = data;
        loop {
            let payload = rest.split_to(segment.min(rest.len()));
            let payload = match (udp_port, protocol) {
                (Some(dst_port), _) => Payload::Udp(Udp { src_port: from.port(), dst_port, payload }),
                (None, ESP) => Payload::Esp(payload),
                (None, protocol) => Payload::Other { protocol, payload },
            };
            packets.push(Packet { ttl, traffic_class, ..Packet::new(from.ip(), dst, payload) });
            if rest.is_empty() {
                return Some(());
            }
        }
    }
}

fn raw(domain: Domain, protocol: u8) -> Result<Socket, DaemonError> {
    let open = || {
        let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(i32::from(protocol))))?;
        socket.set_nonblocking(true)?;
        set_receive_buffer(&socket);
        Ok::<_, io::Error>(socket)
    };
    open().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => DaemonError::NotPermitted { what: "raw sockets", capability: "CAP_NET_RAW" },
        _ => DaemonError::Sockets(error),
    })
}

fn udp(domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    set_receive_buffer(&socket);
    if set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER_BYTES).is_err() {
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER_BYTES);
    }
    // Linux has it since 5.0. Without, each datagram is read by itself.
    let _ = set(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    if domain == Domain::IPV6 {
        socket.set_only_v6(true)?;
        for option in [libc::IPV6_RECVPKTINFO, libc::IPV6_RECVHOPLIMIT, libc::IPV6_RECVTCLASS] {
            set(&socket, libc::IPPROTO_IPV6, option, 1)?;
        }
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
        socket.bind(&SockAddr::from(SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT))))?;
    } else {
        for option in [libc::IP_PKTINFO, libc::IP_RECVTTL, libc::IP_RECVTOS] {
            set(&socket, libc::IPPROTO_IP, option, 1)?;
        }
        // "Don't fragment" is set, as in packets with their header.
        set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
        socket.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT))))?;
    }
    Ok(socket)
}

/// Sets the size of the receive buffer: beyond the system's limit with `CAP_NET_ADMIN`, else up to it.
fn set_receive_buffer(socket: &Socket) {
    if set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES).is_err() {
        let _ = set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER_BYTES);
    }
}

fn set(socket: &Socket, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is one int, which lives until the call returns.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
