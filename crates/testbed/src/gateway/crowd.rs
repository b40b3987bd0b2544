//! Thousands of mobile hosts behind one router: addresses of one namespace, with the kernel's TCP, and a link in this process that
//! knows which of them are there.
//!
//! The router's mobile-facing interface is a TAP device with a token bucket; the hosts' interface is a TUN device. A thread carries
//! packets between the two, drops those of absent hosts, and answers address resolution for those that are there.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_host::{Namespace, Offload, Route, Tun, TunConfig, TunError, clock, sysctl, token_bucket};
use holdover_wire::MacAddress;

use super::world::{inside, know_carrier};
use super::{MOBILE_FACING, WorldError};
use crate::Forwarder;

/// Hosts and link. Ends with this value.
#[derive(Debug)]
pub struct Crowd {
    // It ends before the namespaces of its devices.
    _forwarder: Forwarder,
    fixed: Namespace,
    router: Namespace,
    mobiles: Namespace,
    count: u32,
    air: Arc<Air>,
}

/// What a mobile host does when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Return {
    /// It announces its address by ARP (RFC 5227 section 3).
    Announced,
    /// Nothing.
    Silent,
}

/// The link.
#[derive(Debug)]
struct Air {
    /// Those at [`TAP`] and [`TUN`].
    devices: Arc<[Tun]>,
    hosts: Vec<Host>,
    /// Announcements to be made, the earliest first.
    announcements: Mutex<VecDeque<(Instant, u32)>>,
    /// Packets of a port from here on are dropped on their way to mobile hosts.
    blocked_from_port: AtomicU64,
    lost: AtomicU64,
}

/// Times in nanoseconds of [`clock`].
#[derive(Debug)]
struct Host {
    /// It is there from this time on.
    there_from: AtomicU64,
    /// When data came to it first since then; 0 before.
    data_at: AtomicU64,
}

/// A host that is not to return by itself.
const NEVER: u64 = u64::MAX;

/// To the router, with Ethernet.
const TAP: usize = 0;
/// To the hosts.
const TUN: usize = 1;

const HOSTS_INTERFACE: &str = "hosts0";
const FIXED_INTERFACE: &str = "eth0";
const MTU: u32 = 1500;
const ETHERNET: usize = 14;
/// `linux/if_ether.h`.
const ARP: [u8; 2] = [8, 6];
const IPV4: [u8; 2] = [8, 0];
/// Bytes of an ARP packet with its Ethernet header.
const ARP_FRAME: usize = ETHERNET + 28;

/// Frames carried in one direction before the other has its turn.
const BATCH: usize = 128;
/// The longest sleep of the thread: announcements may be made meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_millis(10);

/// The burst of the token bucket: the longest packet that a device hands over at once, with its headers.
const BURST: ByteCount = ByteCount(70_000);
/// The time for which its queue lasts.
const QUEUE: Duration = Duration::from_millis(20);

impl Crowd {
    /// The most hosts.
    pub const MOST: u32 = 60_000;
    /// The fixed host's address.
    pub const FIXED: [u8; 4] = [10, 1, 0, 2];
    const FIXED_FACING: [u8; 4] = [10, 1, 0, 1];
    const ROUTER: [u8; 4] = [10, 2, 0, 1];
    /// The number of the first host within the network 10.2.0.0/16.
    const FIRST: u32 = 256;
    /// The router's Ethernet address on the link.
    const ROUTER_MAC: [u8; 6] = [2, 0, 10, 2, 0, 1];

    /// This many mobile hosts, all there, behind a link of this rate towards them.
    ///
    /// # Errors
    /// The kernel refuses: this needs root, and CONFIG_NET_SCH_TBF.
    pub fn new(count: u32, rate: BitRate) -> Result<Self, WorldError> {
        let (fixed, router, mobiles) =
            (Namespace::new("fixed")?, Namespace::new("router")?, Namespace::new("mobiles")?);
        inside(&router, |netlink| {
            netlink.add_veth("fix0", FIXED_INTERFACE, &fixed)?;
            netlink.add_address("fix0", Self::FIXED_FACING.into(), 24)?;
            netlink.set_up("fix0")
        })?;
        inside(&fixed, |netlink| {
            netlink.add_address(FIXED_INTERFACE, Self::FIXED.into(), 24)?;
            netlink.set_up(FIXED_INTERFACE)?;
            netlink.add_route(&default_route(FIXED_INTERFACE, Some(Self::FIXED_FACING)))
        })?;
        // What mobile hosts answer to addresses that nobody has goes to the fixed host, too.
        inside(&router, |netlink| netlink.add_route(&default_route("fix0", Some(Self::FIXED))))?;
        know_carrier(&router, "fix0")?;
        know_carrier(&fixed, FIXED_INTERFACE)?;
        let tap = Self::open_tap(&router, rate)?;
        let tun = Self::open_tun(&mobiles)?;
        let host = || Host { there_from: AtomicU64::new(0), data_at: AtomicU64::new(0) };
        let air = Arc::new(Air {
            devices: [tap, tun].into(),
            hosts: (0..count.min(Self::MOST)).map(|_| host()).collect(),
            announcements: Mutex::default(),
            blocked_from_port: AtomicU64::new(NEVER),
            lost: AtomicU64::new(0),
        });
        let (carried, mut buffer) = (Arc::clone(&air), BytesMut::new());
        let turn = move |_: &[Tun]| carried.carry(&mut buffer);
        let forwarder = Forwarder::start("air", Arc::clone(&air.devices), turn)?;
        Ok(Self { _forwarder: forwarder, fixed, router, mobiles, count: count.min(Self::MOST), air })
    }

    fn open_tap(router: &Namespace, rate: BitRate) -> Result<Tun, WorldError> {
        let mac = Some(MacAddress(Self::ROUTER_MAC));
        let config = TunConfig { offload: true, mac, ..TunConfig::new(MOBILE_FACING, MTU).address(Self::ROUTER, 16) };
        let tap = router.enter(|| Tun::open(router, &config))??;
        let index = inside(router, |netlink| netlink.link(MOBILE_FACING))?.index;
        let queue = ByteCount(rate.bytes_in(QUEUE).0.max(BURST.0));
        router.enter(|| token_bucket::limit(index, rate, BURST, queue))??;
        router.enter(|| sysctl::set(router, "net.ipv4.ip_forward", "1"))??;
        Ok(tap)
    }

    /// The kernel accepts packets to each address of a network that its loopback interface has.
    fn open_tun(mobiles: &Namespace) -> Result<Tun, WorldError> {
        let config = TunConfig { offload: true, ..TunConfig::new(HOSTS_INTERFACE, MTU) };
        let tun = mobiles.enter(|| Tun::open(mobiles, &config))??;
        inside(mobiles, |netlink| {
            netlink.set_up("lo")?;
            netlink.add_address("lo", Self::ROUTER.into(), 16)?;
            netlink.add_route(&default_route(HOSTS_INTERFACE, None))
        })?;
        Ok(tun)
    }

    /// The fixed host.
    pub fn fixed(&self) -> &Namespace {
        &self.fixed
    }

    /// The router. Its interface to the mobile hosts is [`MOBILE_FACING`].
    pub fn router(&self) -> &Namespace {
        &self.router
    }

    /// All mobile hosts: the kernel accepts each of their addresses.
    pub fn mobiles(&self) -> &Namespace {
        &self.mobiles
    }

    /// The number of mobile hosts.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The address of a mobile host.
    pub fn address(number: u32) -> Ipv4Addr {
        let [_, _, high, low] = (Self::FIRST + number).to_be_bytes();
        Ipv4Addr::new(10, 2, high, low)
    }

    /// The mobile host of an address.
    fn number_of(&self, address: IpAddr) -> Option<u32> {
        let IpAddr::V4(address) = address else { return None };
        self.air.number_of(address.octets()).map(|number| number as u32)
    }

    /// All mobile hosts are away: nothing comes to them or from them.
    pub fn leave(&self) {
        self.lock_announcements().clear();
        self.air.hosts.iter().for_each(|host| host.there_from.store(NEVER, Ordering::SeqCst));
    }

    /// Each mobile host returns at a time of its own, equally spaced from `from` on over `within`, in no order of their addresses.
    pub fn come_back(&self, from: Instant, within: Duration, how: Return) {
        let count = self.count.max(1);
        // A multiple of a number without common divisors visits each host once.
        let stride = [7919, 104_729].into_iter().find(|prime| !count.is_multiple_of(*prime)).unwrap_or(1);
        let mut announcements = VecDeque::new();
        for turn in 0..count {
            let number = (u64::from(turn) * u64::from(stride) % u64::from(count)) as u32;
            let at = from + within * u64::from(turn) / u64::from(count);
            if let Some(host) = self.air.hosts.get(number as usize) {
                host.data_at.store(0, Ordering::SeqCst);
                host.there_from.store(at.as_nanos(), Ordering::SeqCst);
            }
            announcements.push_back((at, number));
        }
        *self.lock_announcements() = if how == Return::Announced { announcements } else { VecDeque::new() };
    }

    /// Takes the carrier from the router's interface, or gives it back.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_carrier(&self, is_on: bool) -> Result<(), WorldError> {
        Ok(self.air.devices[TAP].set_carrier(is_on)?)
    }

    /// When a mobile host returned, and when data came to it first since then.
    pub fn first_data(&self, number: u32) -> Option<(Instant, Option<Instant>)> {
        let host = self.air.hosts.get(number as usize)?;
        let time = |nanos: &AtomicU64| Instant::from_nanos(nanos.load(Ordering::SeqCst));
        let data_at = Some(time(&host.data_at)).filter(|at| *at > Instant::ZERO);
        Some((time(&host.there_from), data_at))
    }

    /// Packets to and from absent mobile hosts so far.
    pub fn lost(&self) -> u64 {
        self.air.lost.load(Ordering::Relaxed)
    }

    /// From now on mobile hosts do not get packets to ports from this one on, as behind a firewall.
    pub fn block_ports_from(&self, port: u16) {
        self.air.blocked_from_port.store(port.into(), Ordering::Relaxed);
    }

    /// Sends an IPv4 packet to the router, as if from the mobile host that is its source.
    ///
    /// # Errors
    /// The source is no mobile host's, or the device fails.
    pub fn send_from(&self, source: IpAddr, packet: &[u8]) -> Result<(), WorldError> {
        let number = self.number_of(source).ok_or_else(|| std::io::Error::other("not the address of a mobile host"))?;
        Ok(self.air.send_up(number as usize, Offload::default(), packet)?)
    }

    fn lock_announcements(&self) -> std::sync::MutexGuard<'_, VecDeque<(Instant, u32)>> {
        self.air.announcements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn default_route(link: &str, gateway: Option<[u8; 4]>) -> Route {
    Route { destination: ([0; 4].into(), 0), next_hop: gateway.map(IpAddr::from), link: link.to_owned(), source: None }
}

impl Air {
    /// Returns when it is to be called again.
    fn carry(&self, buffer: &mut BytesMut) -> Result<Option<Instant>, TunError> {
        let now = clock::now();
        let down = self.carry_down(now, buffer)?;
        let up = self.carry_up(now, buffer)?;
        let next = self.announce(now)?;
        if down + up > 0 {
            return Ok(Some(now));
        }
        Ok(Some(next.map_or(now + LONGEST_SLEEP, |at| at.min(now + LONGEST_SLEEP))))
    }

    /// Carries frames of the router. Returns how many.
    fn carry_down(&self, now: Instant, buffer: &mut BytesMut) -> Result<usize, TunError> {
        for count in 0..BATCH {
            let Some((offload, frame)) = self.devices[TAP].recv_offloaded(buffer)? else { return Ok(count) };
            match frame.get(12..ETHERNET) {
                Some(kind) if kind == ARP => self.answer(now, &frame)?,
                Some(kind) if kind == IPV4 => {
                    let packet = &frame[ETHERNET..];
                    let number = packet.get(16..20).and_then(|octets| self.number_of(octets.try_into().ok()?));
                    if number.is_some_and(|number| self.is_there(now, number)) {
                        if self.blocks(packet) {
                            continue;
                        }
                        self.note_data(now, number, packet);
                        self.devices[TUN].send_offloaded(offload.without(ETHERNET as u16), &[packet])?;
                    } else {
                        self.lost.fetch_add(1, Ordering::Relaxed);
                    }
                }
                _ => {}
            }
        }
        Ok(BATCH)
    }

    /// Carries packets of the mobile hosts. Returns how many.
    fn carry_up(&self, now: Instant, buffer: &mut BytesMut) -> Result<usize, TunError> {
        for count in 0..BATCH {
            let Some((offload, packet)) = self.devices[TUN].recv_offloaded(buffer)? else { return Ok(count) };
            let number = packet.get(12..16).and_then(|octets| self.number_of(octets.try_into().ok()?));
            match number.filter(|&number| self.is_there(now, number)) {
                Some(number) => self.send_up(number, offload, &packet)?,
                None => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(BATCH)
    }

    fn send_up(&self, number: usize, offload: Offload, packet: &[u8]) -> Result<(), TunError> {
        let header = ethernet(Crowd::ROUTER_MAC, mac_of(number), IPV4);
        self.devices[TAP].send_offloaded(offload.behind(ETHERNET as u16), &[&header, packet])
    }

    /// Makes announcements that are due. Returns when the next one is.
    fn announce(&self, now: Instant) -> Result<Option<Instant>, TunError> {
        loop {
            let mut waiting = self.announcements.lock().unwrap_or_else(PoisonError::into_inner);
            match waiting.front().copied() {
                Some((at, number)) if at <= now => {
                    waiting.pop_front();
                    drop(waiting);
                    let address = Crowd::address(number).octets();
                    let frame = arp([0xff; 6], 1, (mac_of(number as usize), address), ([0; 6], address));
                    self.devices[TAP].send_offloaded(Offload::default(), &[&frame])?;
                }
                next => return Ok(next.map(|(at, _)| at)),
            }
        }
    }

    /// Answers a request for a mobile host's Ethernet address, if the host is there.
    fn answer(&self, now: Instant, frame: &[u8]) -> Result<(), TunError> {
        let Some(request) = frame.get(..ARP_FRAME).filter(|request| request[20..22] == [0, 1]) else { return Ok(()) };
        let octets = |at: usize| [request[at], request[at + 1], request[at + 2], request[at + 3]];
        let (router, wanted) = (octets(28), octets(38));
        let Some(number) = self.number_of(wanted) else { return Ok(()) };
        if !self.is_there(now, number) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let answer = arp(Crowd::ROUTER_MAC, 2, (mac_of(number), wanted), (Crowd::ROUTER_MAC, router));
        self.devices[TAP].send_offloaded(Offload::default(), &[&answer])
    }

    fn number_of(&self, address: [u8; 4]) -> Option<usize> {
        let [10, 2, high, low] = address else { return None };
        let number = u32::from(u16::from_be_bytes([high, low])).checked_sub(Crowd::FIRST)?;
        Some(number as usize).filter(|number| *number < self.hosts.len())
    }

    fn is_there(&self, now: Instant, number: usize) -> bool {
        self.hosts[number].there_from.load(Ordering::SeqCst) <= now.as_nanos()
    }

    fn blocks(&self, packet: &[u8]) -> bool {
        let header = usize::from(packet[0] & 0xf) * 4;
        let port = packet.get(header + 2..header + 4).map_or(0, |port| u64::from(port[0]) << 8 | u64::from(port[1]));
        port >= self.blocked_from_port.load(Ordering::Relaxed)
    }

    /// Notes the first packet with data for a mobile host.
    fn note_data(&self, now: Instant, number: Option<usize>, packet: &[u8]) {
        let header = usize::from(packet[0] & 0xf) * 4;
        let offset = packet.get(header + 12).map_or(0, |byte| usize::from(byte >> 4) * 4);
        let has_data = packet[9] == 6 && packet.len() > header + offset;
        if let Some(host) = number.and_then(|number| self.hosts.get(number)).filter(|_| has_data) {
            // Only the first one counts.
            let _ = host.data_at.compare_exchange(0, now.as_nanos(), Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

/// The Ethernet address of a mobile host: locally administered.
fn mac_of(number: usize) -> [u8; 6] {
    let [a, b, c, d] = Crowd::address(number as u32).octets();
    [2, 0, a, b, c, d]
}

fn ethernet(to: [u8; 6], from: [u8; 6], kind: [u8; 2]) -> [u8; ETHERNET] {
    let mut header = [0; ETHERNET];
    header[..6].copy_from_slice(&to);
    header[6..12].copy_from_slice(&from);
    header[12..].copy_from_slice(&kind);
    header
}

/// An ARP packet in its frame (RFC 826): operation, sender and target.
fn arp(to: [u8; 6], operation: u8, sender: ([u8; 6], [u8; 4]), target: ([u8; 6], [u8; 4])) -> Vec<u8> {
    let mut frame = ethernet(to, sender.0, ARP).to_vec();
    frame.extend([0, 1, 8, 0, 6, 4, 0, operation]);
    for (mac, address) in [sender, target] {
        frame.extend(mac);
        frame.extend(address);
    }
    frame
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener};
    use std::time::Duration as WallDuration;

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn an_arp_answer_is_laid_out_as_rfc_826_has_it() {
        let frame = arp([9; 6], 2, ([1; 6], [10, 2, 1, 0]), ([3; 6], [10, 2, 0, 1]));
        assert_eq!((frame.len(), &frame[12..14], &frame[20..22]), (ARP_FRAME, &ARP[..], &[0, 2][..]));
        assert_eq!((&frame[28..32], &frame[38..42]), (&[10, 2, 1, 0][..], &[10, 2, 0, 1][..]));
        assert_eq!(
            [0, 1, 59_999].map(Crowd::address).map(|address| address.octets()[2..].to_vec()),
            [vec![1, 0], vec![1, 1], vec![235, 95]]
        );
    }

    /// A connection of a mobile host to the fixed host.
    fn connect(crowd: &Crowd, listener: &TcpListener, number: u32) -> (Socket, std::net::TcpStream) {
        let open = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&SocketAddr::new(Crowd::address(number).into(), 0).into())?;
            socket.connect_timeout(&listener.local_addr()?.into(), WallDuration::from_secs(5))?;
            Ok::<_, std::io::Error>(socket)
        };
        let mobile = crowd.mobiles().enter(open).unwrap().unwrap();
        mobile.set_read_timeout(Some(WallDuration::from_millis(300))).unwrap();
        (mobile, listener.accept().unwrap().0)
    }

    #[test]
    fn an_absent_host_gets_nothing_until_its_time() {
        let crowd = match Crowd::new(50, BitRate::from_mbps(100)) {
            Ok(crowd) => crowd,
            Err(error) => return crate::harness::skip(error),
        };
        let bind = || TcpListener::bind(SocketAddr::new(Crowd::FIXED.into(), 5001));
        let listener = crowd.fixed().enter(bind).unwrap().unwrap();
        let mut ends: Vec<_> = [0, 49].map(|number| connect(&crowd, &listener, number)).into();
        crowd.leave();
        for (_, fixed) in &mut ends {
            fixed.write_all(b"data").unwrap();
        }
        let mut byte = [0; 8];
        assert!((&ends[0].0).read(&mut byte).is_err(), "it is away");
        assert!(crowd.lost() > 0);
        let from = clock::now();
        crowd.come_back(from, Duration::from_millis(100), Return::Announced);
        for (number, (mobile, _)) in [0, 49].into_iter().zip(&ends) {
            mobile.set_read_timeout(Some(WallDuration::from_secs(5))).unwrap();
            assert_eq!((&*mobile).read(&mut byte).unwrap(), 4, "{number}");
            let (there_from, data_at) = crowd.first_data(number).unwrap();
            assert!(there_from >= from && there_from < from + Duration::from_millis(100), "{number}");
            assert!(data_at.is_some_and(|at| at >= there_from), "{number}");
        }
    }
}
