//! A router that advertises itself (RFC 4861 section 6.2): hosts on its link configure their addresses and their default
//! route from that (RFC 4862), with duplicate address detection by their own kernels.
//!
//! An [`Advertiser`] has a raw socket in the router's namespace and a thread. It repeats its advertisement, and answers
//! solicitations. The kernel computes checksums and chooses the link-local source address.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use holdover_base::{Duration, Instant};
use holdover_host::resolution_socket::{ArpFilter, ResolutionSocket};
use holdover_wire::MacAddress;
use rustix::event::{PollFd, PollFlags, poll};
use socket2::{Domain, Protocol, Socket, Type};

use crate::shell::timespec;
use crate::{Namespace, NamespaceError, Netlink, NetlinkError, Waker, WallClock};

/// The content of router advertisements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advertisement {
    /// How long hosts may use the router as their default router; 0 if they must not.
    pub lifetime: Duration,
    /// The MTU of the link in bytes.
    pub mtu: u32,
    /// The prefixes from which hosts make addresses.
    pub prefixes: Vec<Prefix>,
}

/// A prefix of 64 bits from which hosts make addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// Its first address.
    pub prefix: Ipv6Addr,
    /// Whether all addresses of the prefix are on the link. Otherwise the router forwards between them.
    pub on_link: bool,
    /// How long addresses of the prefix are valid. Hosts extend less than 2 h to 2 h for an address that they have (RFC 4862
    /// section 5.5.3).
    pub valid: Duration,
    /// How long new connections should use them; 0 if they should not.
    pub preferred: Duration,
}

/// Advertises a router on one link until it is dropped.
#[derive(Debug)]
pub struct Advertiser {
    orders: Option<Sender<Advertisement>>,
    wake: Waker,
    thread: Option<JoinHandle<()>>,
}

/// A router cannot advertise itself.
#[derive(Debug, thiserror::Error)]
pub enum AdvertiserError {
    /// There is no such interface.
    #[error(transparent)]
    Interface(#[from] NetlinkError),
    /// The interface has no Ethernet address, or a socket was refused.
    #[error("socket for router advertisements on {interface}")]
    Socket {
        /// The interface.
        interface: Box<str>,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

/// All nodes on the link (RFC 4291 section 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All routers on the link.
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// Types of ICMPv6.
const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;

/// Options of neighbour discovery (RFC 4861 section 4.6).
const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
const PREFIX_INFORMATION: u8 = 3;
const MTU: u8 = 5;

/// Flags of a prefix.
const ON_LINK: u8 = 0x80;
const AUTONOMOUS: u8 = 0x40;

/// Receivers drop packets with less: they have crossed a router (RFC 4861 section 6.1.2).
const HOP_LIMIT: u32 = 255;

/// The hop limit that hosts are to use.
const HOSTS_HOP_LIMIT: u8 = 64;

/// From one unsolicited advertisement to the next: 4 to 1,800 s (RFC 4861 section 6.2.1).
const EVERY: Duration = Duration::from_secs(30);

/// From a solicitation to its answer: up to 0.5 s, `MAX_RA_DELAY_TIME`, at random (RFC 4861 section 6.2.6). Constant, so that runs
/// repeat.
const ANSWER_AFTER: Duration = Duration::from_millis(100);

/// The interval between attempts on an interface that is down.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(100);

impl Prefix {
    /// A prefix that is valid for a day and preferred for half of it; its addresses are on the link.
    pub const fn new(prefix: Ipv6Addr) -> Self {
        let (valid, preferred) = (Duration::from_secs(86_400), Duration::from_secs(43_200));
        Self { prefix, on_link: true, valid, preferred }
    }

    /// Hosts should use its addresses for existing connections only.
    #[must_use]
    pub const fn deprecated(self) -> Self {
        Self { preferred: Duration::ZERO, ..self }
    }
}

impl Advertisement {
    /// A router for half an hour, on a link with the MTU of Ethernet.
    pub fn new(prefixes: impl IntoIterator<Item = Prefix>) -> Self {
        Self { lifetime: Duration::from_secs(1_800), mtu: 1_500, prefixes: prefixes.into_iter().collect() }
    }

    /// The ICMPv6 message of a router with this Ethernet address, without checksum (RFC 4861 section 4.2).
    fn to_bytes(&self, mac: MacAddress) -> Vec<u8> {
        let lifetime = u16::try_from(self.lifetime.as_secs()).unwrap_or(u16::MAX);
        let mut message = vec![ADVERTISEMENT, 0, 0, 0, HOSTS_HOP_LIMIT, 0];
        message.extend(lifetime.to_be_bytes());
        // Times of neighbour discovery: not specified.
        message.extend([0; 8]);
        message.extend([SOURCE_LINK_LAYER_ADDRESS, 1]);
        message.extend(mac.0);
        message.extend([MTU, 1, 0, 0]);
        message.extend(self.mtu.to_be_bytes());
        for prefix in &self.prefixes {
            let flags = if prefix.on_link { ON_LINK | AUTONOMOUS } else { AUTONOMOUS };
            message.extend([PREFIX_INFORMATION, 4, 64, flags]);
            for time in [prefix.valid, prefix.preferred] {
                message.extend(u32::try_from(time.as_secs()).unwrap_or(u32::MAX).to_be_bytes());
            }
            message.extend([0; 4]);
            message.extend(prefix.prefix.octets());
        }
        message
    }
}

impl Advertiser {
    /// Advertises the router on an Ethernet interface of `namespace`, from now on.
    ///
    /// # Errors
    /// There is no such interface, it is not Ethernet, or the process lacks `CAP_NET_RAW`.
    pub fn start(
        namespace: &Namespace,
        interface: &str,
        advertisement: Advertisement,
    ) -> Result<Self, AdvertiserError> {
        let failed = |source| AdvertiserError::Socket { interface: interface.into(), source };
        let port = namespace.enter(|| {
            let index = Netlink::open(namespace)?.link(interface)?.index;
            Port::open(interface, index).map_err(failed)
        })??;
        let wake = Waker::new().map_err(failed)?;
        let (orders, received) = channel();
        let own = wake.clone();
        let thread = std::thread::Builder::new().name("advertiser".to_owned());
        let thread = thread.spawn(move || serve(&port, advertisement, &received, &own)).map_err(failed)?;
        Ok(Self { orders: Some(orders), wake, thread: Some(thread) })
    }

    /// Advertises this from now on, and at once.
    pub fn advertise(&self, advertisement: Advertisement) {
        // The thread lives as long as this value.
        let _ = self.orders.as_ref().map(|orders| orders.send(advertisement));
        self.wake.wake();
    }
}

impl Drop for Advertiser {
    fn drop(&mut self) {
        self.orders = None;
        self.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Advertises until the other end of `orders` is dropped.
fn serve(port: &Port, mut advertisement: Advertisement, orders: &Receiver<Advertisement>, wake: &Waker) {
    let clock = WallClock::start();
    let mut schedule = Schedule::new(clock.now());
    loop {
        let now = clock.now();
        match orders.try_recv() {
            Ok(other) => {
                advertisement = other;
                schedule.handle_change(now);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return,
        }
        while let Some(host) = port.receive() {
            schedule.handle_solicitation(now, host);
        }
        let message = advertisement.to_bytes(port.mac);
        while let Some(to) = schedule.poll_transmit(now) {
            if port.send(&message, to).is_err() {
                schedule.handle_failure(now, to);
            }
        }
        let wait = timespec(schedule.poll_timeout().saturating_since(clock.now()));
        // A signal ends the wait, too.
        let _ = poll(&mut [PollFd::new(wake, PollFlags::IN), PollFd::new(&port.socket, PollFlags::IN)], Some(&wait));
        wake.rest();
    }
}

/// The socket of an interface.
#[derive(Debug)]
struct Port {
    /// A raw socket of ICMPv6, in the type of a UDP socket, which has the necessary methods.
    socket: UdpSocket,
    mac: MacAddress,
    index: u32,
}

impl Port {
    fn open(interface: &str, index: u32) -> io::Result<Self> {
        let mac = MacAddress(ResolutionSocket::open(index, ArpFilter::Replies)?.mac()?);
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.set_nonblocking(true)?;
        socket.set_multicast_hops_v6(HOP_LIMIT)?;
        socket.set_unicast_hops_v6(HOP_LIMIT)?;
        socket.set_multicast_loop_v6(false)?;
        socket.join_multicast_v6(&ALL_ROUTERS, index)?;
        Ok(Self { socket: socket.into(), mac, index })
    }

    /// The next host that solicits an advertisement and has an address. Other hosts wait for the next one to all.
    fn receive(&self) -> Option<SocketAddrV6> {
        let mut message = [0; 256];
        loop {
            let (len, from) = self.socket.recv_from(&mut message).ok()?;
            match from {
                SocketAddr::V6(from) if is_solicitation(&message[..len]) && !from.ip().is_unspecified() => {
                    return Some(SocketAddrV6::new(*from.ip(), 0, 0, self.index));
                }
                _ => {}
            }
        }
    }

    fn send(&self, message: &[u8], to: To) -> io::Result<()> {
        let to = match to {
            To::All => SocketAddrV6::new(ALL_NODES, 0, 0, self.index),
            To::One(host) => host,
        };
        self.socket.send_to(message, to).map(drop)
    }
}

/// Whether an ICMPv6 message is a solicitation (RFC 4861 section 4.1).
fn is_solicitation(message: &[u8]) -> bool {
    message.len() >= 8 && message[..2] == [SOLICITATION, 0]
}

/// When advertisements are sent, and to which hosts.
///
/// The order of calls: one of the `handle_*`, then [`Self::poll_transmit`] until `None`, then [`Self::poll_timeout`].
#[derive(Debug)]
struct Schedule {
    to_all_at: Instant,
    answers: BTreeMap<SocketAddrV6, Instant>,
}

/// The receivers of an advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum To {
    All,
    One(SocketAddrV6),
}

impl Schedule {
    fn new(now: Instant) -> Self {
        Self { to_all_at: now, answers: BTreeMap::new() }
    }

    /// A host asks.
    fn handle_solicitation(&mut self, now: Instant, host: SocketAddrV6) {
        self.answers.entry(host).or_insert(now + ANSWER_AFTER);
    }

    /// The advertisement has changed.
    fn handle_change(&mut self, now: Instant) {
        self.to_all_at = now;
    }

    /// An advertisement could not be sent. A host that does not get its answer asks again.
    fn handle_failure(&mut self, now: Instant, to: To) {
        if to == To::All {
            self.to_all_at = now + TRY_AGAIN_AFTER;
        }
    }

    /// The receivers of an advertisement that is due.
    fn poll_transmit(&mut self, now: Instant) -> Option<To> {
        if self.to_all_at <= now {
            self.to_all_at = now + EVERY;
            return Some(To::All);
        }
        let (&host, _) = self.answers.iter().find(|&(_, &at)| at <= now)?;
        self.answers.remove(&host);
        Some(To::One(host))
    }

    fn poll_timeout(&self) -> Instant {
        self.answers.values().copied().fold(self.to_all_at, Instant::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: SocketAddrV6 = SocketAddrV6::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7), 0, 0, 3);

    fn sent(schedule: &mut Schedule, millis: u64) -> Vec<To> {
        std::iter::from_fn(|| schedule.poll_transmit(Instant::from_millis(millis))).collect()
    }

    #[test]
    fn an_advertisement_has_the_routers_addresses_and_times() {
        let prefix: Ipv6Addr = "2001:db8:0:1::".parse().unwrap();
        let times =
            Prefix { valid: Duration::from_secs(256), preferred: Duration::from_secs(2), ..Prefix::new(prefix) };
        let advertisement = Advertisement { lifetime: Duration::from_secs(258), ..Advertisement::new([times]) };
        let mut expected = vec![134, 0, 0, 0, 64, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([1, 1, 2, 0, 0, 0, 0, 9]);
        expected.extend([5, 1, 0, 0, 0, 0, 0x05, 0xdc]);
        expected.extend([3, 4, 64, 0xc0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
        expected.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(advertisement.to_bytes(MacAddress([2, 0, 0, 0, 0, 9])), expected);
        // Longer times than the fields hold.
        let long = Prefix { on_link: false, valid: Duration::from_secs(1 << 40), ..times.deprecated() };
        let advertisement = Advertisement { lifetime: Duration::from_secs(1 << 20), ..Advertisement::new([long]) };
        let message = advertisement.to_bytes(MacAddress([2, 0, 0, 0, 0, 9]));
        assert_eq!((&message[6..8], &message[35..44]), (&[0xff; 2][..], &[0x40, 255, 255, 255, 255, 0, 0, 0, 0][..]));
    }

    #[test]
    fn solicitations_are_answered_and_advertisements_repeated() {
        let mut schedule = Schedule::new(Instant::ZERO);
        assert_eq!(sent(&mut schedule, 0), [To::All]);
        assert_eq!(schedule.poll_timeout(), Instant::ZERO + EVERY);
        schedule.handle_solicitation(Instant::from_millis(200), HOST);
        // Asked twice, it is answered once.
        schedule.handle_solicitation(Instant::from_millis(250), HOST);
        assert_eq!(schedule.poll_timeout(), Instant::from_millis(300));
        assert_eq!((sent(&mut schedule, 299), sent(&mut schedule, 300)), (vec![], vec![To::One(HOST)]));
        // The interface is down for a moment.
        assert_eq!(sent(&mut schedule, 30_000), [To::All]);
        schedule.handle_failure(Instant::from_millis(30_000), To::All);
        assert_eq!((sent(&mut schedule, 30_099), sent(&mut schedule, 30_100)), (vec![], vec![To::All]));
        schedule.handle_change(Instant::from_millis(31_000));
        assert_eq!(sent(&mut schedule, 31_000), [To::All]);
    }

    #[test]
    fn other_messages_are_no_solicitations() {
        assert!(is_solicitation(&[133, 0, 1, 2, 0, 0, 0, 0]));
        for message in [&[][..], &[133, 0, 1, 2], &[134, 0, 1, 2, 0, 0, 0, 0], &[133, 1, 1, 2, 0, 0, 0, 0]] {
            assert!(!is_solicitation(message), "{message:?}");
        }
    }
}
