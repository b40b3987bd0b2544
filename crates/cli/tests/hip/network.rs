//! Two hosts and a router: a mobile one with two links, and a fixed one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::BufWriter;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use holdover_base::Instant;
use holdover_host::clock;
use holdover_testbed::{Forwarder, Namespace, Netlink, Route, Tun, TunConfig};
use holdover_wire::{Checksums, IcmpError, Packet, Payload, Unreachable, internet_checksum, pcapng};

/// Half of a round trip.
pub(crate) const DELAY: Duration = Duration::from_millis(20);
/// A whole one.
pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(40);

pub(crate) const SERVER: [&str; 2] = ["10.9.0.2", "fd00:9::2"];

/// A link of the mobile host, in one address family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attachment {
    pub(crate) link: &'static str,
    pub(crate) address: &'static str,
}

pub(crate) const WIFI: Attachment = Attachment { link: "wifi", address: "10.1.0.2" };
pub(crate) const LTE: Attachment = Attachment { link: "lte", address: "10.2.0.2" };
pub(crate) const LTE_V6: Attachment = Attachment { link: "lte", address: "fd00:2::2" };

/// The same links behind translators of addresses, at 10.1.0.1 and 10.2.0.1.
pub(crate) const HOME: Attachment = Attachment { link: "wifi", address: "192.168.1.2" };
pub(crate) const CAFE: Attachment = Attachment { link: "lte", address: "192.168.2.2" };

/// HIP in UDP, on either side of a translator that has not been there.
const UDP_PORT: u16 = 10_500;

/// The ports that the translators have for the mobile host: endpoint-independent mapping, and filtering by nothing (RFC 4787).
type Bindings = Arc<Mutex<[u16; 2]>>;

/// See the module's documentation. The devices go with it.
pub(crate) struct Network {
    bindings: Bindings,
    /// The longest packet that the router forwards.
    mtu: Arc<AtomicUsize>,
    /// The router drops everything.
    is_cut: Arc<AtomicBool>,
    // It ends before the namespaces of its devices.
    _router: Forwarder,
    pub(crate) mobile: Namespace,
    pub(crate) server: Namespace,
}

impl Network {
    /// The mobile host is at no address, the fixed one at [`SERVER`]. Packets that the router forwards are written to `capture`.
    pub(crate) fn new(capture: Option<&Path>) -> Self {
        let (mobile, server) = (Namespace::new("mobile").unwrap(), Namespace::new("server").unwrap());
        let open = |namespace: &Namespace, name| {
            namespace.enter(|| Tun::open(namespace, &TunConfig::new(name, 1500)).unwrap()).unwrap()
        };
        let tuns = [open(&mobile, WIFI.link), open(&mobile, LTE.link), open(&server, "wan")];
        server
            .enter(|| {
                for address in SERVER {
                    attach(&server, &Attachment { link: "wan", address });
                }
            })
            .unwrap();
        let bindings = Arc::new(Mutex::new([20_000, 30_000]));
        let capture = capture.map(|path| BufWriter::new(File::create(path).unwrap()));
        let (mtu, is_cut) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::new(AtomicBool::new(false)));
        let mut router = Router {
            capture: capture.map(Capture::new),
            bindings: Arc::clone(&bindings),
            mtu: Arc::clone(&mtu),
            is_cut: Arc::clone(&is_cut),
            flying: BinaryHeap::new(),
            count: 0,
            scratch: vec![0; 2000],
        };
        let router = Forwarder::start("router", tuns, move |tuns| Ok(router.turn(tuns)));
        Self { bindings, mtu, is_cut, mobile, server, _router: router.unwrap() }
    }

    /// Longer packets are fragmented from now on if they may be, else dropped, and their senders told.
    pub(crate) fn set_mtu(&self, mtu: usize) {
        self.mtu.store(mtu, Ordering::Relaxed);
    }

    /// Whether the router drops everything from now on. No host learns of it.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }

    /// The translators forget their bindings: the next packet of the mobile host makes others, and packets to the old ones are dropped.
    pub(crate) fn rebind(&self) {
        self.bindings.lock().unwrap().iter_mut().for_each(|port| *port += 1);
    }

    /// The mobile host gets an address, and its default route is there.
    pub(crate) fn attach(&self, attachment: &Attachment) {
        self.mobile.enter(|| attach(&self.mobile, attachment)).unwrap();
    }

    /// The address goes, and all routes of the link with it.
    pub(crate) fn detach(&self, attachment: &Attachment) {
        let address: IpAddr = attachment.address.parse().unwrap();
        self.mobile
            .enter(|| {
                let mut netlink = Netlink::open(&self.mobile).unwrap();
                netlink.remove_route(&default_route(attachment)).unwrap();
                netlink.remove_address(attachment.link, address, if address.is_ipv4() { 24 } else { 64 }).unwrap();
            })
            .unwrap();
    }
}

fn attach(namespace: &Namespace, attachment: &Attachment) {
    let address: IpAddr = attachment.address.parse().unwrap();
    let mut netlink = Netlink::open(namespace).unwrap();
    netlink.add_address(attachment.link, address, if address.is_ipv4() { 24 } else { 64 }).unwrap();
    netlink.replace_route(&default_route(attachment)).unwrap();
}

fn default_route(attachment: &Attachment) -> Route {
    let address: IpAddr = attachment.address.parse().unwrap();
    let any: IpAddr = if address.is_ipv4() { "0.0.0.0".parse().unwrap() } else { "::".parse().unwrap() };
    Route { destination: (any, 0), next_hop: None, link: attachment.link.to_owned(), source: None }
}

/// The device behind which an address is.
fn device(packet: &[u8]) -> Option<usize> {
    match packet.first()? >> 4 {
        4 => match packet.get(16..18)? {
            [10, 1] => Some(0),
            [10, 2] => Some(1),
            [10, 9] => Some(2),
            [192, 168] => Some(usize::from(packet[18] == 2)),
            _ => None,
        },
        6 => match packet.get(24..28)? {
            [0xfd, 0, 0, 1] => Some(0),
            [0xfd, 0, 0, 2] => Some(1),
            [0xfd, 0, 0, 9] => Some(2),
            _ => None,
        },
        _ => None,
    }
}

/// Translates a packet's addresses; `None` if they drop it.
fn translate(bytes: Bytes, bindings: &Bindings) -> Option<Bytes> {
    let outside = |index: usize| IpAddr::from([10, 1 + index as u8, 0, 1]);
    let inside = |index: usize| IpAddr::from([192, 168, 1 + index as u8, 2]);
    let is_outside = |address: &[u8]| address[0] == 10 && address[1] < 9 && address[3] == 1;
    if bytes[0] >> 4 != 4 || bytes[12] != 192 && bytes[16] != 192 && !is_outside(&bytes[16..20]) {
        return Some(bytes);
    }
    let mut packet = Packet::parse(bytes).ok()?;
    let ports = *bindings.lock().unwrap();
    let Payload::Udp(udp) = &mut packet.payload else { return None };
    for (index, port) in ports.into_iter().enumerate() {
        if packet.src == inside(index) {
            (packet.src, udp.src_port) = (outside(index), port);
            // A packet to a private address is not routed outside.
            return if packet.dst.to_string().starts_with("192.168.") { None } else { packet.emit().ok() };
        }
        if packet.dst == outside(index) && udp.dst_port == port {
            (packet.dst, udp.dst_port) = (inside(index), UDP_PORT);
            return packet.emit().ok();
        }
    }
    None
}

/// A router's answer to the sender of a packet that is too long (RFC 1191, RFC 8201).
fn too_big(bytes: &Bytes, mtu: usize) -> Bytes {
    let dropped = Packet::parse_with(bytes.clone(), Checksums::Ignore).unwrap();
    let error = IcmpError::quoting(Unreachable::PacketTooBig { mtu: mtu as u32 }, bytes).unwrap();
    let router = if dropped.src.is_ipv4() { "10.250.0.1" } else { "fd00:250::1" };
    Packet::new(router.parse().unwrap(), dropped.src, error).emit().unwrap()
}

/// The fragments of a packet that is too long, if routers may fragment it (RFC 791 section 3.2).
fn fragments(bytes: &Bytes, mtu: usize) -> Option<Vec<Bytes>> {
    const HEADER: usize = 20;
    let field = u16::from_be_bytes([bytes[6], bytes[7]]);
    let (dont_fragment, more, offset) = (field & 0x4000 != 0, field & 0x2000, usize::from(field & 0x1fff));
    if bytes[0] != 0x45 || dont_fragment {
        return None;
    }
    let room = (mtu - HEADER) / 8 * 8;
    let parts: Vec<&[u8]> = bytes[HEADER..].chunks(room).collect();
    let cut = |(index, part): (usize, &&[u8])| {
        let mut fragment = [&bytes[..HEADER], part].concat();
        let more = if index + 1 < parts.len() { 0x2000 } else { more };
        let len = fragment.len() as u16;
        fragment[2..4].copy_from_slice(&len.to_be_bytes());
        fragment[6..8].copy_from_slice(&((offset + index * room / 8) as u16 | more).to_be_bytes());
        fragment[10..12].fill(0);
        let sum = internet_checksum(&fragment[..HEADER]);
        fragment[10..12].copy_from_slice(&sum.to_be_bytes());
        Bytes::from(fragment)
    };
    Some(parts.iter().enumerate().map(cut).collect())
}

struct Router {
    capture: Option<Capture>,
    bindings: Bindings,
    mtu: Arc<AtomicUsize>,
    is_cut: Arc<AtomicBool>,
    /// By the time of arrival and their number, with the device.
    flying: BinaryHeap<Reverse<(Instant, u64, usize, Bytes)>>,
    count: u64,
    scratch: Vec<u8>,
}

impl Router {
    /// Returns when the next packet arrives.
    fn turn(&mut self, tuns: &[Tun]) -> Option<Instant> {
        for tun in tuns {
            while let Ok(Some(bytes)) = tun.recv(&mut self.scratch) {
                self.forward(bytes);
            }
        }
        let now = clock::now();
        while self.flying.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            if let Some(Reverse((_, _, to, bytes))) = self.flying.pop() {
                // A device that takes nothing is a link that loses.
                let _ = tuns[to].send(&bytes);
            }
        }
        self.flying.peek().map(|Reverse((at, ..))| *at)
    }

    fn forward(&mut self, bytes: Bytes) {
        if let Some(capture) = &mut self.capture {
            capture.write(&bytes);
        }
        if self.is_cut.load(Ordering::Relaxed) {
            return;
        }
        let mtu = self.mtu.load(Ordering::Relaxed);
        let forwarded = match bytes.len() > mtu {
            true => fragments(&bytes, mtu).unwrap_or_else(|| vec![too_big(&bytes, mtu)]),
            false => vec![bytes],
        };
        for bytes in forwarded.into_iter().filter_map(|bytes| translate(bytes, &self.bindings)) {
            if let Some(to) = device(&bytes) {
                self.count += 1;
                self.flying.push(Reverse((clock::now() + DELAY.into(), self.count, to, bytes)));
            }
        }
    }
}

/// A file with what the router forwards, complete when this is dropped.
struct Capture {
    start: Instant,
    writer: pcapng::Writer<BufWriter<File>>,
    interface: pcapng::InterfaceId,
}

impl Capture {
    fn new(out: BufWriter<File>) -> Self {
        let mut writer = pcapng::Writer::new(out, "tests").unwrap();
        let interface = writer.add_interface(&pcapng::Interface::new("router")).unwrap();
        Self { start: clock::now(), writer, interface }
    }

    fn write(&mut self, bytes: &Bytes) {
        let at = Instant::ZERO + clock::now().saturating_since(self.start);
        self.writer.write_bytes(&pcapng::Record::new(at, self.interface), bytes, bytes.len()).unwrap();
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let flushed = self.writer.flush();
        assert!(flushed.is_ok() || std::thread::panicking(), "{flushed:?}");
    }
}
