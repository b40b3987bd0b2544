//! Packets on their way to the network: many are encrypted into one buffer and sent by one system call.
//!
//! A packet leaves from the address that the core has chosen, with its hop limit and traffic class. Without UDP it is sent with its IP
//! header (`IPPROTO_RAW`, `raw(7)`). Data in UDP is sent by the UDP socket, in runs of equal datagrams that pass the network stack as one
//! (`UDP_SEGMENT`, `udp(7)`).
//!
//! The kernel is told the source of each packet beside the data (`IP_PKTINFO`, `IPV6_PKTINFO`), so that it honours rules by source address
//! (`ip rule from`), and the interface of packets that are pinned to a link ([`Links::pin`]). IPv6 keeps to that interface only on sockets that
//! are bound to it: there is one for each such link, and data in UDP leaves with its header there.
//!
//! Packets that exceed the path's MTU are cut into fragments here, also data in UDP, each fragment with its IP header: the kernel refuses a
//! packet with a header that exceeds its interface's MTU, and sets "don't fragment" on other data so that routers report their MTUs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::{Bytes, BytesMut};
use holdover_wire::{EmitError, Packet, Payload};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::ancillary::Control;
use super::fragment_ids::FragmentIds;
use super::links::{Links, Pin};
use super::path_mtu::path_mtu;
use crate::core::{Data, Outgoing};

/// Datagrams in a run: `UDP_MAX_SEGMENTS` of Linux before 6.9.
const MOST_SEGMENTS: usize = 64;
/// Bytes in a run: IP's length field has 16 bits.
const MOST_BYTES: usize = 65_000;
/// Bytes of a batch's buffer.
const CHUNK: usize = 1 << 17;
/// Room for most packets.
const ROOM: usize = 1 << 11;
/// Messages in one system call.
const MOST_MESSAGES: usize = 64;

/// The sockets to send with.
#[derive(Debug)]
pub(super) struct Senders {
    raw_v4: Arc<Socket>,
    raw_v6: Option<Arc<Socket>>,
    udp: [Option<Arc<Socket>>; 2],
    links: RwLock<Links>,
    /// Raw IPv6 sockets that are bound to an interface, by its index.
    bound_v6: Mutex<BTreeMap<u32, Arc<Socket>>>,
    /// Whether the kernel takes runs.
    joins: AtomicBool,
    /// Destinations and sources of packets that were longer than the kernel sends there.
    too_big: Mutex<BTreeSet<(IpAddr, IpAddr)>>,
    fragment_ids: FragmentIds,
    /// Fragments so far.
    fragments: AtomicU64,
}

/// The kind of socket for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    RawV4,
    RawV6,
    /// Bound to this interface.
    BoundV6(u32),
    UdpV4,
    UdpV6,
}

/// The path of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Path {
    src: IpAddr,
    dst: SocketAddr,
    ttl: u8,
    traffic_class: u8,
}

/// A packet, or a run of datagrams.
#[derive(Debug)]
struct Message {
    kind: Kind,
    src: IpAddr,
    to: SocketAddr,
    /// The interface by which it leaves; 0 if the routes decide.
    link: u32,
    /// The path of a datagram; a packet has its header.
    path: Option<Path>,
    /// Header and payload, or payloads.
    pieces: [Bytes; 2],
    /// Bytes of each payload but the last.
    segment: usize,
    /// A packet that routers may fragment, and so may this host if its interface is too narrow.
    fragmentable: Option<Box<Packet>>,
}

/// A run of datagrams in the making, at the end of a batch's buffer.
#[derive(Debug)]
struct Run {
    path: Path,
    segment: usize,
    count: usize,
    /// The last datagram is shorter, so none may follow it.
    is_closed: bool,
}

/// Packets that are sent together.
#[derive(Default, Debug)]
pub(super) struct Batch {
    bytes: BytesMut,
    messages: Vec<Message>,
    run: Option<Run>,
    /// Packets that could not be encrypted or emitted.
    not_sealed: u64,
}

impl Batch {
    /// Adds packets in order, and encrypts the data.
    pub(super) fn extend(&mut self, senders: &Senders, packets: impl IntoIterator<Item = Outgoing>) {
        for outgoing in packets {
            self.make_room(senders);
            let added = match outgoing {
                Outgoing::Data(data) => match data.fragment_len() {
                    None => self.push_data(senders, data),
                    Some(mtu) => data.seal().ok().and_then(|packet| self.push_fragments(senders, packet, mtu)),
                },
                Outgoing::Fragmentable(packet, mtu) => self.push_fragments(senders, packet, mtu),
                Outgoing::Packet(packet) => self.push_packet(senders, &packet),
            };
            self.not_sealed += u64::from(added.is_none());
        }
        self.finish_run(senders);
    }

    fn push_data(&mut self, senders: &Senders, data: Data) -> Option<()> {
        let (src, dst) = data.between();
        if dst.is_ipv6() && data.port().is_some() && senders.pin(src, dst).is_some() {
            return self.push_packet(senders, &data.seal().ok()?);
        }
        if let Some(port) = data.port()
            && senders.udp[usize::from(dst.is_ipv6())].is_some()
        {
            let (ttl, traffic_class) = data.ttl_and_class();
            return self.push_datagram(senders, Path { src, dst: socket_addr(dst, port), ttl, traffic_class }, data);
        }
        self.finish_run(senders);
        let outer = data.append(&mut self.bytes).ok()?;
        let payload = Payload::Esp(self.bytes.split().freeze());
        self.push_packet(senders, &Packet { payload, ..outer })
    }

    fn push_packet(&mut self, senders: &Senders, packet: &Packet) -> Option<()> {
        self.finish_run(senders);
        let link = senders.link(packet.src, packet.dst);
        let message = Message::of_packet(packet, link, &mut self.bytes).ok()?;
        self.messages.push(message);
        Some(())
    }

    fn push_fragments(&mut self, senders: &Senders, packet: Packet, mtu: usize) -> Option<()> {
        self.finish_run(senders);
        let fragments = senders.cut(&packet, mtu).ok()?;
        for fragment in &fragments {
            self.push_packet(senders, fragment)?;
        }
        if fragments.len() == 1
            && let Some(message) = self.messages.last_mut()
        {
            message.fragmentable = Some(Box::new(packet));
        }
        Some(())
    }

    fn push_datagram(&mut self, senders: &Senders, path: Path, data: Data) -> Option<()> {
        let may_join = |run: &Run| run.path == path && !run.is_closed && run.count < MOST_SEGMENTS;
        if !self.run.as_ref().is_some_and(may_join) || !senders.joins.load(Ordering::Relaxed) {
            self.finish_run(senders);
        }
        let start = self.bytes.len();
        data.append(&mut self.bytes).ok()?;
        let len = self.bytes.len() - start;
        if self.run.as_ref().is_some_and(|run| len > run.segment || self.bytes.len() > MOST_BYTES) {
            let next = self.bytes.split_off(start);
            self.finish_run(senders);
            self.bytes = next;
        }
        match &mut self.run {
            Some(run) => {
                run.count += 1;
                run.is_closed = len < run.segment;
            }
            None => self.run = Some(Run { path, segment: len, count: 1, is_closed: false }),
        }
        Some(())
    }

    fn finish_run(&mut self, senders: &Senders) {
        let Some(Run { path, segment, .. }) = self.run.take() else { return };
        let kind = if path.dst.is_ipv4() { Kind::UdpV4 } else { Kind::UdpV6 };
        let pieces = [Bytes::new(), self.bytes.split().freeze()];
        let (src, to, link) = (path.src, path.dst, senders.link(path.src, path.dst.ip()));
        self.messages.push(Message { kind, src, to, link, path: Some(path), pieces, segment, fragmentable: None });
    }

    /// Makes room for a packet. A run stays in one piece.
    fn make_room(&mut self, senders: &Senders) {
        if self.bytes.capacity() - self.bytes.len() < ROOM {
            self.finish_run(senders);
            self.bytes.reserve(CHUNK);
        }
    }

    /// How many packets could not be encrypted or emitted since the last call.
    pub(super) fn take_not_sealed(&mut self) -> u64 {
        core::mem::take(&mut self.not_sealed)
    }

    fn clear(&mut self) {
        self.messages.clear();
    }
}

impl Senders {
    /// `udp` are the sockets of both IP versions at the port of HIP.
    pub(super) fn new(raw_v4: Socket, raw_v6: Option<Socket>, udp: [Option<Arc<Socket>>; 2]) -> Self {
        Self {
            raw_v4: Arc::new(raw_v4),
            raw_v6: raw_v6.map(Arc::new),
            udp,
            links: RwLock::default(),
            bound_v6: Mutex::default(),
            joins: AtomicBool::new(true),
            too_big: Mutex::new(BTreeSet::new()),
            fragment_ids: FragmentIds::new(),
            fragments: AtomicU64::new(0),
        }
    }

    /// The links of this host's addresses from now on.
    pub(super) fn set_links(&self, links: Links) {
        *self.links.write().unwrap_or_else(PoisonError::into_inner) = links.clone();
        self.bound_v6.lock().unwrap_or_else(PoisonError::into_inner).retain(|index, _| links.has(*index));
    }

    fn pin(&self, src: IpAddr, dst: IpAddr) -> Option<Pin> {
        self.links.read().unwrap_or_else(PoisonError::into_inner).pin(src, dst)
    }

    /// The interface by which packets between these addresses leave; 0 if the routes decide.
    fn link(&self, src: IpAddr, dst: IpAddr) -> u32 {
        self.pin(src, dst).map_or(0, |pin| pin.index)
    }

    /// The longest packet that the kernel sends from one address to another, by the link to which such packets are pinned.
    ///
    /// # Errors
    /// There is no route, or the source is no address of this host.
    pub(super) fn path_mtu(&self, dst: IpAddr, src: IpAddr) -> io::Result<u32> {
        path_mtu(dst, src, self.pin(src, dst).as_ref())
    }

    /// How many fragments were made.
    pub(super) fn fragments(&self) -> u64 {
        self.fragments.load(Ordering::Relaxed)
    }

    /// A packet's fragments, or the packet that fits.
    fn cut(&self, packet: &Packet, mtu: usize) -> Result<Vec<Packet>, EmitError> {
        let fragments = packet.fragments(mtu, self.fragment_ids.next(packet.src, packet.dst))?;
        if fragments.len() > 1 {
            self.fragments.fetch_add(fragments.len() as u64, Ordering::Relaxed);
        }
        Ok(fragments)
    }

    /// The destinations and sources of packets that the kernel has refused as too long since the last call.
    pub(super) fn take_too_big(&self) -> BTreeSet<(IpAddr, IpAddr)> {
        core::mem::take(&mut *self.too_big.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, error: &io::Error, message: &Message) {
        if is_too_long(error) {
            let between = (message.to.ip(), message.src);
            self.too_big.lock().unwrap_or_else(PoisonError::into_inner).insert(between);
        }
    }

    /// Whether to send runs of datagrams.
    #[cfg(test)]
    pub(super) fn set_joins(&self, joins: bool) {
        self.joins.store(joins, Ordering::Relaxed);
    }

    /// Sends a batch, which is empty then, and returns how many packets the system has refused: they are lost, as they may be in the
    /// network.
    pub(super) fn send(&self, batch: &mut Batch) -> u64 {
        let mut refused = 0;
        let mut rest = &batch.messages[..];
        while let Some(first) = rest.first() {
            let same = rest.iter().take(MOST_MESSAGES).take_while(|message| message.kind == first.kind).count();
            let (sent, lost) = match self.socket(first) {
                Some(socket) => match send_together(&socket, &rest[..same]) {
                    Ok(count) => (count, 0),
                    // The error is about the first one.
                    Err(error) if is_full(&error) => (1, first.datagrams()),
                    Err(error) => (1, self.send_apart(&socket, first, &error)),
                },
                None => (same, rest[..same].iter().map(Message::datagrams).sum()),
            };
            refused += lost;
            rest = &rest[sent..];
        }
        batch.clear();
        refused
    }

    fn socket(&self, message: &Message) -> Option<Arc<Socket>> {
        match message.kind {
            Kind::RawV4 => Some(Arc::clone(&self.raw_v4)),
            Kind::RawV6 => self.raw_v6.clone(),
            Kind::BoundV6(index) => self.bound_v6(index, message.src, message.to.ip()),
            Kind::UdpV4 => self.udp[0].clone(),
            Kind::UdpV6 => self.udp[1].clone(),
        }
    }

    /// The raw socket that is bound to this interface, by which packets between these addresses leave.
    fn bound_v6(&self, index: u32, src: IpAddr, dst: IpAddr) -> Option<Arc<Socket>> {
        let mut bound = self.bound_v6.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = bound.get(&index) {
            return Some(Arc::clone(socket));
        }
        let pin = self.pin(src, dst).filter(|pin| pin.index == index)?;
        let opened = raw_sender(Domain::IPV6).and_then(|socket| {
            socket.bind_device(Some(pin.name.as_bytes()))?;
            Ok(Arc::new(socket))
        });
        let opened = opened.inspect_err(|error| tracing::warn!(%error, link = pin.name, "cannot send by this link"));
        let socket = opened.ok()?;
        bound.insert(index, Arc::clone(&socket));
        Some(socket)
    }

    /// Sends each datagram of a refused run by itself: some devices take no runs, and a path may be too narrow for all but the last.
    /// Returns how many were refused.
    fn send_apart(&self, socket: &Socket, message: &Message, error: &io::Error) -> u64 {
        let Message { kind, src, to, link, path, ref pieces, segment, ref fragmentable } = *message;
        let [_, payloads] = pieces;
        if path.is_none() || payloads.len() <= segment {
            self.note(error, message);
            if let Some(packet) = fragmentable.as_ref().filter(|_| is_too_long(error)) {
                return self.send_in_fragments(socket, packet);
            }
            tracing::debug!(to = %to.ip(), %error, "cannot send a packet");
            return 1;
        }
        let mut refused = 0;
        for start in (0..payloads.len()).step_by(segment) {
            let payload = payloads.slice(start..payloads.len().min(start + segment));
            let pieces = [Bytes::new(), payload];
            let datagram = Message { kind, src, to, link, path, pieces, segment, fragmentable: None };
            if let Err(error) = send_together(socket, &[datagram]) {
                self.note(&error, message);
                refused += 1;
            }
        }
        if refused == 0 && is_unsupported(error) && self.joins.swap(false, Ordering::Relaxed) {
            tracing::warn!(%error, "the kernel does not segment UDP (UDP_SEGMENT): each datagram is sent separately");
        }
        refused
    }

    /// Sends a packet that exceeds the MTU of this host's interface. Returns how many packets were refused: one or none.
    fn send_in_fragments(&self, socket: &Socket, packet: &Packet) -> u64 {
        let send = || -> io::Result<()> {
            let mtu = self.path_mtu(packet.dst, packet.src)?;
            let fragments = self.cut(packet, mtu as usize).map_err(io::Error::other)?;
            for fragment in &fragments {
                let link = self.link(packet.src, packet.dst);
                let message = Message::of_packet(fragment, link, &mut BytesMut::new()).map_err(io::Error::other)?;
                send_together(socket, &[message])?;
            }
            Ok(())
        };
        match send() {
            Ok(()) => 0,
            Err(error) => {
                tracing::debug!(to = %packet.dst, %error, "cannot send a packet in fragments");
                1
            }
        }
    }
}

/// Whether a packet exceeds the MTU of this host's interface.
fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

/// Whether there is no room at the moment: in the socket's buffer or the interface's queue. The packets are lost, as in a full queue.
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Whether the device takes no UDP_SEGMENT: `EIO` without checksum offload (`udp_send_skb`). `EINVAL` is about one path, which is too
/// narrow.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EOPNOTSUPP))
}

/// Sends messages of one kind by one call (`sendmmsg(2)`). Returns how many were sent.
fn send_together(socket: &Socket, messages: &[Message]) -> io::Result<usize> {
    let addresses: Vec<SockAddr> = messages.iter().map(|message| SockAddr::from(message.to)).collect();
    let controls: Vec<Control> = messages.iter().map(Message::control).collect();
    let slice = |bytes: &Bytes| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut slices: Vec<[libc::iovec; 2]> =
        messages.iter().map(|message| message.pieces.each_ref().map(slice)).collect();
    let mut headers: Vec<libc::mmsghdr> = addresses
        .iter()
        .zip(&controls)
        .zip(&mut slices)
        .map(|((address, control), slices)| {
            // SAFETY: zeros are a valid `mmsghdr`: null pointers with lengths of 0.
            let mut header: libc::mmsghdr = unsafe { core::mem::zeroed() };
            header.msg_hdr.msg_name = address.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = address.len();
            header.msg_hdr.msg_iov = slices.as_mut_ptr();
            header.msg_hdr.msg_iovlen = slices.len() as _;
            if control.len() > 0 {
                header.msg_hdr.msg_control = control.as_ptr().cast_mut().cast();
                header.msg_hdr.msg_controllen = control.len() as _;
            }
            header
        })
        .collect();
    // SAFETY: `headers` has the number of elements that is passed to the call, and their pointers are into `addresses`, `controls`, `slices` and the
    // messages' bytes, which live until it returns; the kernel reads what they point to.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), headers.len() as libc::c_uint, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

impl Message {
    /// A packet with its header, which is written behind `buffer`.
    fn of_packet(packet: &Packet, link: u32, buffer: &mut BytesMut) -> Result<Self, EmitError> {
        let payload = packet.emit_pieces(buffer)?;
        let kind = match link {
            _ if packet.dst.is_ipv4() => Kind::RawV4,
            0 => Kind::RawV6,
            link => Kind::BoundV6(link),
        };
        let (src, to) = (packet.src, socket_addr(packet.dst, 0));
        let pieces = [buffer.split().freeze(), payload];
        Ok(Self { kind, src, to, link, path: None, pieces, segment: 0, fragmentable: None })
    }

    /// How many datagrams or packets it stands for.
    fn datagrams(&self) -> u64 {
        match &self.path {
            Some(_) => self.pieces[1].len().div_ceil(self.segment.max(1)).max(1) as u64,
            None => 1,
        }
    }

    fn control(&self) -> Control {
        let mut control = Control::new();
        control.set_source(self.src, self.link);
        if let Some(Path { src, ttl, traffic_class, .. }) = self.path {
            // The kernel takes no hop limit of 0 here.
            control.set_ttl_and_class(src.is_ipv4(), ttl.max(1), traffic_class);
            if let Ok(segment) = u16::try_from(self.segment)
                && self.pieces[1].len() > self.segment
            {
                control.set_segment(segment);
            }
        }
        control
    }
}

/// A socket for packets with their IP header.
pub(super) fn raw_sender(domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

const fn socket_addr(ip: IpAddr, port: u16) -> SocketAddr {
    match ip {
        IpAddr::V4(ip) => SocketAddr::V4(SocketAddrV4::new(ip, port)),
        IpAddr::V6(ip) => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, 0)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    fn sender() -> Senders {
        let any = || Socket::from(UdpSocket::bind("127.0.0.1:0").unwrap());
        Senders::new(any(), None, [Some(Arc::new(any())), None])
    }

    /// A run of datagrams of ten bytes, numbered in their first two, whose last one has five.
    fn run(to: SocketAddr, count: u16) -> Message {
        let mut bytes: Vec<u8> = (0..count).flat_map(|number| [&number.to_be_bytes()[..], &[7; 8]].concat()).collect();
        bytes.truncate(bytes.len() - 5);
        let src = "127.0.0.1".parse().unwrap();
        let path = Path { src, dst: to, ttl: 64, traffic_class: 0 };
        let pieces = [Bytes::new(), bytes.into()];
        Message { kind: Kind::UdpV4, src, to, link: 0, path: Some(path), pieces, segment: 10, fragmentable: None }
    }

    /// The kernel refuses a run of this many datagrams (`EINVAL`, as for a path that is too narrow), and accepts each by itself; the next message of
    /// the batch follows.
    #[test]
    fn the_datagrams_of_a_refused_run_are_sent_apart() {
        const COUNT: u16 = 150;
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (to, senders) = (receiver.local_addr().unwrap(), sender());
        let socket = senders.socket(&run(to, 1)).unwrap();
        let error = send_together(&socket, &[run(to, COUNT)]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "the run is refused as a whole: {error}");
        let mut batch = Batch { messages: vec![run(to, COUNT), run(to, 2)], ..Batch::default() };
        assert_eq!(senders.send(&mut batch), 0);
        assert!(batch.messages.is_empty());
        let mut buffer = [0; 100];
        for (count, numbers) in [(COUNT, 0..COUNT), (2, 0..2)] {
            for number in numbers {
                let len = receiver.recv(&mut buffer).unwrap();
                assert_eq!(len, if number + 1 == count { 5 } else { 10 });
                assert_eq!(buffer[..2], number.to_be_bytes());
            }
        }
        assert!(senders.joins.load(Ordering::Relaxed), "runs that are short enough are still sent");
    }

    /// A destination that the socket may not send to (`EACCES`): each datagram is counted, and the following ones are sent.
    #[test]
    fn each_datagram_that_is_refused_is_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (to, senders) = (receiver.local_addr().unwrap(), sender());
        let nowhere: SocketAddr = "255.255.255.255:9".parse().unwrap();
        let mut batch = Batch { messages: vec![run(nowhere, 20), run(to, 1)], ..Batch::default() };
        assert_eq!(senders.send(&mut batch), 20);
        assert_eq!(receiver.recv(&mut [0; 100]).unwrap(), 5);
        // Without a socket of that version.
        let v6: SocketAddr = "[::1]:9".parse().unwrap();
        let none = |count| Message { kind: Kind::UdpV6, ..run(v6, count) };
        let mut batch = Batch { messages: vec![none(3), none(4)], ..Batch::default() };
        assert_eq!(senders.send(&mut batch), 7);
    }

    /// The system takes no runs from this device: it is tried once, and all later datagrams are sent by themselves.
    #[test]
    fn runs_are_given_up_where_no_device_takes_them() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (to, senders) = (receiver.local_addr().unwrap(), sender());
        let socket = senders.socket(&run(to, 1)).unwrap();
        let too_narrow = io::Error::from_raw_os_error(libc::EINVAL);
        assert_eq!(senders.send_apart(&socket, &run(to, 3), &too_narrow), 0);
        assert!(senders.joins.load(Ordering::Relaxed), "that is about one path");
        let unsupported = io::Error::from_raw_os_error(libc::EIO);
        let nowhere: SocketAddr = "255.255.255.255:9".parse().unwrap();
        assert_eq!(senders.send_apart(&socket, &run(nowhere, 3), &unsupported), 3);
        assert!(senders.joins.load(Ordering::Relaxed), "apart they were refused as well");
        assert_eq!(senders.send_apart(&socket, &run(to, 1), &unsupported), 1, "one datagram is no run");
        assert_eq!(senders.send_apart(&socket, &run(to, 3), &unsupported), 0);
        assert!(!senders.joins.load(Ordering::Relaxed));
        for _ in 0..6 {
            receiver.recv(&mut [0; 100]).unwrap();
        }
    }
}
