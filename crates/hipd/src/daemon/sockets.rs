//! The sockets towards the network: raw ones for HIP and ESP, UDP ones for both in UDP, and raw ones to send with.
//!
//! Packets are sent with their IP header (`IPPROTO_RAW`, `raw(7)`), so that the core chooses source address, hop limit and traffic class.
//! Raw IPv4 sockets return packets with their header; for IPv6 and UDP the kernel reports addresses as ancillary data (`IPV6_RECVPKTINFO`,
//! `IP_PKTINFO`).

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use bytes::{Bytes, BytesMut};
use holdover_hip::codec::PROTOCOL;
use holdover_wire::{Packet, Payload, Udp};
use socket2::{Domain, MaybeUninitSlice, MsgHdrMut, Protocol, SockAddr, Socket, Type};

use super::DaemonError;
use crate::core::PORT;

/// The IP protocol number of ESP.
const ESP: u8 = 50;
/// Room for packets that arrive while others are being decrypted.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// The longest packet.
const LONGEST: usize = 1 << 16;

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
    socket: Socket,
    kind: Kind,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Sockets {
    receivers: Vec<Receiver>,
    out_v4: Socket,
    out_v6: Option<Socket>,
    has_udp: bool,
    buffer: Vec<MaybeUninit<u8>>,
}

impl Sockets {
    /// Opens them. IPv6 is optional, and so is the UDP port, which may be in use.
    ///
    /// # Errors
    /// [`DaemonError`] without the privilege.
    pub(super) fn open() -> Result<Self, DaemonError> {
        let mut receivers = Vec::new();
        for protocol in [PROTOCOL, ESP] {
            receivers.push(Receiver { socket: raw(Domain::IPV4, protocol)?, kind: Kind::RawV4 });
            match raw(Domain::IPV6, protocol) {
                Ok(socket) => {
                    for option in [libc::IPV6_RECVPKTINFO, libc::IPV6_RECVHOPLIMIT, libc::IPV6_RECVTCLASS] {
                        enable(&socket, libc::IPPROTO_IPV6, option).map_err(DaemonError::Sockets)?;
                    }
                    receivers.push(Receiver { socket, kind: Kind::RawV6(protocol) });
                }
                Err(error) => tracing::warn!(%error, "no IPv6"),
            }
        }
        let mut has_udp = true;
        for domain in [Domain::IPV4, Domain::IPV6] {
            match udp(domain) {
                Ok(socket) => receivers.push(Receiver { socket, kind: Kind::Udp }),
                Err(error) => {
                    has_udp &= domain == Domain::IPV6;
                    tracing::warn!(%error, port = PORT, "cannot receive packets in UDP");
                }
            }
        }
        let out_v4 = raw(Domain::IPV4, libc::IPPROTO_RAW as u8)?;
        let out_v6 = raw(Domain::IPV6, libc::IPPROTO_RAW as u8).ok();
        Ok(Self { receivers, out_v4, out_v6, has_udp, buffer: vec![MaybeUninit::uninit(); LONGEST] })
    }

    pub(super) const fn has_udp(&self) -> bool {
        self.has_udp
    }

    /// The descriptors to poll, in the order of [`Self::receive`]'s index.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.receivers.iter().map(|receiver| receiver.socket.as_fd())
    }

    /// The next packet of a socket: `Ok(None)` if there is none now, an error for an invalid one.
    pub(super) fn receive(&mut self, index: usize) -> io::Result<Option<Packet>> {
        let Some(Receiver { socket, kind }) = self.receivers.get(index) else { return Ok(None) };
        match kind {
            Kind::RawV4 => receive_whole(socket, &mut self.buffer),
            Kind::RawV6(protocol) => receive_parts(socket, &mut self.buffer, *protocol, None),
            Kind::Udp => receive_parts(socket, &mut self.buffer, 0, Some(PORT)),
        }
    }

    /// Sends all packets of the outbox and empties it; returns the number that the system refused. These are lost, as packets may be in the
    /// network.
    pub(super) fn send(&self, outbox: &mut Outbox) -> u64 {
        let mut refused = core::mem::take(&mut outbox.refused);
        let mut sent = 0;
        while let Some(first) = outbox.packets.get(sent) {
            let is_v4 = first.to.is_ipv4();
            let same = outbox.packets[sent..].iter().take_while(|packet| packet.to.is_ipv4() == is_v4).count();
            let batch = &outbox.packets[sent..sent + same];
            let socket = if is_v4 { Some(&self.out_v4) } else { self.out_v6.as_ref() };
            sent += match socket.map(|socket| send_batch(socket, &outbox.bytes, batch)) {
                Some(Ok(count)) => count,
                Some(Err(error)) => {
                    // The error is that of the first packet.
                    tracing::debug!(to = %first.to.ip(), %error, "not sent");
                    refused += 1;
                    1
                }
                None => {
                    refused += same as u64;
                    same
                }
            };
        }
        outbox.bytes.clear();
        outbox.packets.clear();
        refused
    }
}

/// Packets that are to be sent together.
#[derive(Default, Debug)]
pub(super) struct Outbox {
    bytes: BytesMut,
    packets: Vec<Outgoing>,
    /// Packets that cannot be emitted.
    refused: u64,
}

/// The position of a packet in the buffer, and its destination.
#[derive(Debug)]
struct Outgoing {
    start: usize,
    end: usize,
    to: SocketAddr,
}

impl Outbox {
    /// The most packets per system call.
    const MOST: usize = 64;

    /// Adds a packet with its header.
    pub(super) fn push(&mut self, packet: &Packet) {
        let start = self.bytes.len();
        if packet.emit_into(&mut self.bytes).is_err() {
            self.bytes.truncate(start);
            self.refused += 1;
            return;
        }
        let to = match packet.dst {
            IpAddr::V4(dst) => SocketAddr::V4(SocketAddrV4::new(dst, 0)),
            IpAddr::V6(dst) => SocketAddr::V6(SocketAddrV6::new(dst, 0, 0, 0)),
        };
        self.packets.push(Outgoing { start, end: self.bytes.len(), to });
    }

    pub(super) const fn is_full(&self) -> bool {
        self.packets.len() >= Self::MOST
    }
}

/// Sends packets of one family by one call (`sendmmsg(2)`). Returns how many were sent.
fn send_batch(socket: &Socket, bytes: &[u8], batch: &[Outgoing]) -> io::Result<usize> {
    let addresses: Vec<SockAddr> = batch.iter().map(|packet| SockAddr::from(packet.to)).collect();
    let mut slices: Vec<libc::iovec> = batch
        .iter()
        .map(|packet| {
            let bytes = &bytes[packet.start..packet.end];
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
        })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = addresses
        .iter()
        .zip(&mut slices)
        .map(|(address, slice)| {
            // SAFETY: zeros are a valid `mmsghdr`: null pointers with lengths of 0.
            let mut message: libc::mmsghdr = unsafe { core::mem::zeroed() };
            message.msg_hdr.msg_name = address.as_ptr().cast_mut().cast();
            message.msg_hdr.msg_namelen = address.len();
            message.msg_hdr.msg_iov = slice;
            message.msg_hdr.msg_iovlen = 1;
            message
        })
        .collect();
    // SAFETY: `messages` has as many elements as the call is told, and their pointers are into `addresses`, `slices` and `bytes`, which
    // live until it returns; the kernel reads what they point to.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), messages.len() as libc::c_uint, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn raw(domain: Domain, protocol: u8) -> Result<Socket, DaemonError> {
    let open = || {
        let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(i32::from(protocol))))?;
        socket.set_nonblocking(true)?;
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
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
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
    if domain == Domain::IPV6 {
        socket.set_only_v6(true)?;
        for option in [libc::IPV6_RECVPKTINFO, libc::IPV6_RECVHOPLIMIT, libc::IPV6_RECVTCLASS] {
            enable(&socket, libc::IPPROTO_IPV6, option)?;
        }
        socket.bind(&SockAddr::from(SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT))))?;
    } else {
        for option in [libc::IP_PKTINFO, libc::IP_RECVTTL, libc::IP_RECVTOS] {
            enable(&socket, libc::IPPROTO_IP, option)?;
        }
        socket.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT))))?;
    }
    Ok(socket)
}

fn enable(socket: &Socket, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is one int, which lives until the call returns.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn receive_whole(socket: &Socket, buffer: &mut [MaybeUninit<u8>]) -> io::Result<Option<Packet>> {
    match socket.recv(buffer) {
        Ok(len) => Packet::parse(copy(&buffer[..len])).map(Some).map_err(not_a_packet),
        Err(error) => none_now(error),
    }
}

/// Assembles a packet from its payload and the header fields reported by the kernel.
fn receive_parts(
    socket: &Socket,
    buffer: &mut [MaybeUninit<u8>],
    protocol: u8,
    udp_port: Option<u16>,
) -> io::Result<Option<Packet>> {
    let mut control = [MaybeUninit::<u8>::uninit(); 256];
    let mut from = SockAddr::from(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)));
    let mut slices = [MaybeUninitSlice::new(buffer)];
    let mut header = MsgHdrMut::new().with_addr(&mut from).with_buffers(&mut slices).with_control(&mut control);
    let (len, control_len) = match socket.recvmsg(&mut header, 0) {
        Ok(len) => (len, header.control_len()),
        Err(error) => return none_now(error),
    };
    let control = copy(&control[..control_len.min(256)]);
    let payload = copy(&buffer[..len]);
    let from = from.as_socket().ok_or_else(|| not_a_packet("no source"))?;
    let ancillary = Ancillary::read(&control);
    let dst = ancillary.dst.ok_or_else(|| not_a_packet("no destination"))?;
    let payload = match (udp_port, protocol) {
        (Some(dst_port), _) => Payload::Udp(Udp { src_port: from.port(), dst_port, payload }),
        (None, ESP) => Payload::Esp(payload),
        (None, protocol) => Payload::Other { protocol, payload },
    };
    let packet = Packet::new(from.ip(), dst, payload);
    Ok(Some(Packet { ttl: ancillary.ttl, traffic_class: ancillary.traffic_class, ..packet }))
}

fn copy(bytes: &[MaybeUninit<u8>]) -> Bytes {
    // SAFETY: the callers pass what the kernel has written, and bytes have no invalid values.
    Bytes::copy_from_slice(unsafe { bytes.assume_init_ref() })
}

fn none_now<T>(error: io::Error) -> io::Result<Option<T>> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
        // An ICMP error about an earlier packet: the next call returns data.
        _ => Err(error),
    }
}

fn not_a_packet(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

/// Header fields from ancillary data (`cmsg(3)`).
#[derive(Clone, Copy, Debug)]
struct Ancillary {
    dst: Option<IpAddr>,
    ttl: u8,
    traffic_class: u8,
}

impl Ancillary {
    /// Reads control messages (`cmsg(3)`): length, level and type, then data, each aligned to the size of a length.
    fn read(mut control: &[u8]) -> Self {
        const WORD: usize = size_of::<usize>();
        const HEADER: usize = WORD + 8;
        let mut ancillary = Self { dst: None, ttl: Packet::DEFAULT_TTL, traffic_class: 0 };
        while let Some((head, rest)) = control.split_at_checked(HEADER) {
            let mut len = [0; WORD];
            len.copy_from_slice(&head[..WORD]);
            let int = |at: usize| i32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (level, kind) = (int(WORD), int(WORD + 4));
            let Some(data) = usize::from_ne_bytes(len).checked_sub(HEADER).and_then(|len| rest.get(..len)) else {
                break;
            };
            match (level, kind) {
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    ancillary.dst = data.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes).into());
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    // Index, local address, destination in the header.
                    ancillary.dst =
                        data.get(8..12).and_then(|it| it.first_chunk::<4>()).map(|it| Ipv4Addr::from(*it).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) | (libc::IPPROTO_IP, libc::IP_TTL) => {
                    ancillary.ttl = number(data).unwrap_or(ancillary.ttl);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) | (libc::IPPROTO_IP, libc::IP_TOS) => {
                    ancillary.traffic_class = number(data).unwrap_or(0);
                }
                _ => {}
            }
            control = rest.get(data.len().next_multiple_of(WORD)..).unwrap_or_default();
        }
        ancillary
    }
}

/// An int, or a byte as `IP_RECVTOS` has it.
fn number(data: &[u8]) -> Option<u8> {
    match data {
        [byte] => Some(*byte),
        _ => data.first_chunk::<4>().map(|bytes| i32::from_ne_bytes(*bytes) as u8),
    }
}
