//! Asks next hops for a sign of life, without touching the kernel's table of neighbours: ARP requests (RFC 826) and neighbour
//! solicitations (RFC 4861 section 4.3) of our own.
//!
//! ARP requests go to the Ethernet address that is known, or to all hosts; solicitations to the solicited-node group of the address. Only
//! replies are received. The kernel takes them, too: its own entry, if there is one, is as fresh then as if it had asked.

use std::collections::BTreeMap;
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

type EthernetAddress = [u8; 6];

/// An interface with neighbours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Neighbourhood<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its index.
    pub index: u32,
    /// An IPv4 address of it, from which is asked.
    pub own: Option<Ipv4Addr>,
}

/// Sockets that ask and hear the replies of all interfaces of a network namespace.
#[derive(Debug)]
pub struct NeighbourProbe {
    arp: OwnedFd,
    /// `None` where there is no IPv6.
    icmp: Option<OwnedFd>,
    /// Ethernet addresses, by interface.
    known: BTreeMap<(u32, Ipv4Addr), EthernetAddress>,
}

/// A neighbour that has replied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Reply {
    /// The interface's index.
    pub index: u32,
    /// The neighbour.
    pub address: IpAddr,
}

const BROADCAST: EthernetAddress = [0xff; 6];

/// RFC 826: Ethernet and IPv4, and the lengths of their addresses.
const ARP_HEAD: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ARP_LEN: usize = 28;
const ARP_REQUEST: u8 = 1;
const ARP_REPLY: u8 = 2;

/// RFC 4861 sections 4.3 and 4.4.
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// `linux/icmpv6.h`: an option of level `IPPROTO_ICMPV6`.
const ICMPV6_FILTER: libc::c_int = 1;

impl NeighbourProbe {
    /// In the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel refuses the ARP socket; it needs `CAP_NET_RAW`.
    pub fn open() -> io::Result<Self> {
        let arp = socket(libc::AF_PACKET, libc::SOCK_DGRAM, i32::from((libc::ETH_P_ARP as u16).to_be()))?;
        only_arp_replies(&arp)?;
        Ok(Self { arp, icmp: open_icmp().ok(), known: BTreeMap::new() })
    }

    /// Asks one neighbour.
    ///
    /// # Errors
    /// The question was not sent: the interface has no address to ask from, or does not take it.
    pub fn ask(&mut self, link: &Neighbourhood<'_>, next_hop: IpAddr, is_broadcast: bool) -> io::Result<()> {
        match next_hop {
            IpAddr::V4(next_hop) => self.ask_arp(link, next_hop, is_broadcast),
            IpAddr::V6(next_hop) => self.solicit(link, next_hop),
        }
    }

    /// The next reply.
    pub fn poll_reply(&mut self) -> Option<Reply> {
        while let Some((bytes, index)) = receive::<ARP_LEN>(&self.arp) {
            if bytes[..6] == ARP_HEAD && bytes[6..8] == [0, ARP_REPLY] {
                let sender = Ipv4Addr::new(bytes[14], bytes[15], bytes[16], bytes[17]);
                let mut address = BROADCAST;
                address.copy_from_slice(&bytes[8..14]);
                self.known.insert((index, sender), address);
                return Some(Reply { index, address: sender.into() });
            }
        }
        loop {
            let (bytes, index) = receive::<24>(self.icmp.as_ref()?)?;
            if bytes[0] == NEIGHBOUR_ADVERTISEMENT {
                let mut target = [0; 16];
                target.copy_from_slice(&bytes[8..24]);
                return Some(Reply { index, address: Ipv6Addr::from(target).into() });
            }
        }
    }

    /// Readable when there is a reply.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [Some(&self.arp), self.icmp.as_ref()].into_iter().flatten().map(|socket| socket.as_fd())
    }

    fn ask_arp(&mut self, link: &Neighbourhood<'_>, next_hop: Ipv4Addr, is_broadcast: bool) -> io::Result<()> {
        let own = link.own.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let hardware = ethernet_address(link.name)?;
        let known = match self.known.get(&(link.index, next_hop)) {
            Some(&known) => Some(known),
            None => entry_of_the_kernel(link.name, next_hop),
        };
        if let Some(known) = known {
            self.known.insert((link.index, next_hop), known);
        }
        let to = known.filter(|_| !is_broadcast).unwrap_or(BROADCAST);
        let mut request = Vec::with_capacity(ARP_LEN);
        request.extend_from_slice(&ARP_HEAD);
        request.extend_from_slice(&[0, ARP_REQUEST]);
        request.extend_from_slice(&hardware);
        request.extend_from_slice(&own.octets());
        request.extend_from_slice(&[0; 6]);
        request.extend_from_slice(&next_hop.octets());
        // SAFETY: all zero is a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ARP as u16).to_be();
        address.sll_ifindex = link.index.cast_signed();
        address.sll_halen = 6;
        address.sll_addr[..6].copy_from_slice(&to);
        send(&self.arp, &request, &address)
    }

    fn solicit(&self, link: &Neighbourhood<'_>, next_hop: Ipv6Addr) -> io::Result<()> {
        let icmp = self.icmp.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let hardware = ethernet_address(link.name)?;
        // The kernel fills in the checksum.
        let mut solicitation = vec![NEIGHBOUR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
        solicitation.extend_from_slice(&next_hop.octets());
        // Source link-layer address, of 8 bytes.
        solicitation.extend_from_slice(&[1, 1]);
        solicitation.extend_from_slice(&hardware);
        // RFC 4291 section 2.7.1.
        let mut group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0];
        group[13..].copy_from_slice(&next_hop.octets()[13..]);
        // SAFETY: all zero is a valid `sockaddr_in6`.
        let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
        address.sin6_family = libc::AF_INET6 as u16;
        address.sin6_addr.s6_addr = group;
        address.sin6_scope_id = link.index;
        send(icmp, &solicitation, &address)
    }
}

/// A raw socket that receives neighbour advertisements only.
fn open_icmp() -> io::Result<OwnedFd> {
    let icmp = socket(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6)?;
    // A bit for each type that is not wanted.
    let mut filter = [u32::MAX; 8];
    filter[usize::from(NEIGHBOUR_ADVERTISEMENT >> 5)] &= !(1 << (NEIGHBOUR_ADVERTISEMENT & 31));
    set(&icmp, libc::IPPROTO_ICMPV6, ICMPV6_FILTER, &filter)?;
    // RFC 4861 section 7.1: others are not heeded.
    set(&icmp, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, &255_i32)?;
    set(&icmp, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &1_i32)?;
    Ok(icmp)
}

/// Requests of others on the link do not wake the agent.
fn only_arp_replies(arp: &OwnedFd) -> io::Result<()> {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, 6),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::from(ARP_REPLY)),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    set(arp, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

fn socket(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory of ours is touched.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let (value, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as u32);
    // SAFETY: the value lives during the call, with the length that is given.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn send<T>(socket: &OwnedFd, bytes: &[u8], address: &T) -> io::Result<()> {
    // SAFETY: the bytes and the address live during the call, with the lengths that are given.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT,
            std::ptr::from_ref(address).cast(),
            size_of::<T>() as u32,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A datagram of at least `LEN` bytes, cut to that, and the interface that it came in by.
fn receive<const LEN: usize>(socket: &OwnedFd) -> Option<([u8; LEN], u32)> {
    loop {
        let mut bytes = [0_u8; 128];
        let mut control = [0_u64; 16];
        // SAFETY: all zero are valid values of these.
        let (mut address, mut message): (libc::sockaddr_ll, libc::msghdr) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        (message.msg_iov, message.msg_iovlen) = (std::ptr::from_mut(&mut part), 1);
        message.msg_name = std::ptr::from_mut(&mut address).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: everything that the message names lives during the call, with the lengths that are given.
        let read = unsafe { libc::recvmsg(socket.as_raw_fd(), std::ptr::from_mut(&mut message), libc::MSG_DONTWAIT) };
        if read < 0 {
            return None;
        }
        let Some((found, _)) = bytes[..read as usize].split_first_chunk::<LEN>() else { continue };
        let index = if i32::from(address.sll_family) == libc::AF_PACKET {
            address.sll_ifindex.cast_unsigned()
        } else {
            packet_info(&message)
        };
        return Some((*found, index));
    }
}

/// The interface of a packet that an IPv6 socket has received (RFC 3542 section 6.2); 0 if it is not known.
fn packet_info(message: &libc::msghdr) -> u32 {
    // SAFETY: the message and its control part are as the kernel has filled them in, and are walked as `cmsg(3)` says.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(found) = header.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) {
                return std::ptr::read_unaligned(libc::CMSG_DATA(header).cast::<libc::in6_pktinfo>()).ipi6_ifindex;
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    0
}

/// The Ethernet address of an interface (`SIOCGIFHWADDR`, `netdevice(7)`).
fn ethernet_address(interface: &str) -> io::Result<EthernetAddress> {
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: all zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request reads the name of one `struct ifreq` and fills in the hardware address.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, std::ptr::from_mut(&mut request)) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled in by the call.
    let found = unsafe { request.ifr_ifru.ifru_hwaddr };
    if found.sa_family != libc::ARPHRD_ETHER {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut address = BROADCAST;
    for (to, from) in address.iter_mut().zip(found.sa_data) {
        *to = from as u8;
    }
    Ok(address)
}

/// What the kernel knows of a neighbour (`proc(5)`, `/proc/net/arp`).
fn entry_of_the_kernel(interface: &str, next_hop: Ipv4Addr) -> Option<EthernetAddress> {
    parse_entry(&std::fs::read_to_string("/proc/thread-self/net/arp").ok()?, interface, next_hop)
}

/// The columns are: IP address, HW type, Flags, HW address, Mask, Device.
fn parse_entry(table: &str, interface: &str, next_hop: Ipv4Addr) -> Option<EthernetAddress> {
    let mut rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.len() == 6 && row[0].parse() == Ok(next_hop) && row[5] == interface)?;
    let mut address = [0; 6];
    let mut bytes = row[3].split(':');
    for byte in &mut address {
        *byte = u8::from_str_radix(bytes.next()?, 16).ok()?;
    }
    (address != [0; 6]).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     192.0.2.1        0x1         0x2         02:00:00:00:00:0a     *        up0\n\
                     192.0.2.1        0x1         0x2         02:00:00:00:00:0b     *        up1\n\
                     192.0.2.9        0x1         0x0         00:00:00:00:00:00     *        up0\n";
        let of = |interface, last| parse_entry(table, interface, Ipv4Addr::new(192, 0, 2, last));
        assert_eq!(of("up0", 1), Some([2, 0, 0, 0, 0, 0x0a]));
        assert_eq!(of("up1", 1), Some([2, 0, 0, 0, 0, 0x0b]));
        assert_eq!((of("up0", 9), of("up2", 1)), (None, None));
    }

    #[test]
    fn loopback_has_no_neighbours() {
        assert!(ethernet_address("lo").is_err());
    }
}
