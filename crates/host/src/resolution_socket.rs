//! Packet sockets for address resolution on one interface (`packet(7)`): one for ARP, one for neighbour advertisements.
//! Only the neighbours see packets that they send: the kernel's own entries change only when the kernel itself accepts an answer.

use std::io;
use std::mem::ManuallyDrop;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::thread;

use crate::neighbour_frames::{ARP_REPLY, ETHERTYPE_IPV6, Mac, ethertype, neighbour};
use crate::packet_socket;

/// Sends requests on one interface, and receives the answers.
#[derive(Debug)]
pub struct ResolutionSocket {
    arp: PacketSocket,
    advertisements: PacketSocket,
}

/// A packet socket. To close one takes the kernel an RCU grace period, 10 ms and more (`packet_release` calls `synchronize_net`), in
/// which its process would not wake connections: a thread closes it.
#[derive(Debug)]
struct PacketSocket(ManuallyDrop<OwnedFd>);

/// `tcpdump -dd 'icmp6 and ip6[40] == 136'`, written out for frames of Ethernet: neighbour advertisements.
const ADVERTISEMENTS: [libc::sock_filter; 6] = [
    // The next header of IPv6, at byte 20.
    libc::sock_filter { code: 0x30, jt: 0, jf: 0, k: 20 },
    libc::sock_filter { code: 0x15, jt: 0, jf: 3, k: 58 },
    // The type of ICMPv6, at byte 54.
    libc::sock_filter { code: 0x30, jt: 0, jf: 0, k: 54 },
    libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: 136 },
    libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0xffff },
    libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 },
];

/// ARP replies: requests of others on the link do not wake the process.
const ARP_REPLIES: [libc::sock_filter; 4] = [
    // The operation, at byte 20.
    libc::sock_filter { code: 0x28, jt: 0, jf: 0, k: 20 },
    libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: ARP_REPLY as u32 },
    libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0xffff },
    libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 },
];

/// The ARP packets to receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArpFilter {
    /// Requests as well as replies: for a short time, in which each of them counts.
    All,
    /// Replies only: for as long as the interface exists.
    Replies,
}

/// The longest frame received: an advertisement with its options.
const LONGEST: usize = 256;

impl ResolutionSocket {
    /// On the interface of this index, in the calling thread's network namespace.
    ///
    /// # Errors
    /// It needs `CAP_NET_RAW`.
    pub fn open(index: u32, filter: ArpFilter) -> io::Result<Self> {
        let replies = (filter == ArpFilter::Replies).then_some(&ARP_REPLIES[..]);
        let arp = open(libc::ETH_P_ARP, index, replies)?;
        let advertisements = open(libc::ETH_P_IPV6, index, Some(&ADVERTISEMENTS))?;
        Ok(Self { arp, advertisements })
    }

    /// The interface's own Ethernet address, which may change.
    ///
    /// # Errors
    /// The interface is gone (`ENXIO`), or is not Ethernet.
    pub fn mac(&self) -> io::Result<Mac> {
        hardware_address(&self.arp.0)
    }

    /// Readable when a neighbour has reported its address.
    pub fn descriptors(&self) -> [&OwnedFd; 2] {
        [&self.arp.0, &self.advertisements.0]
    }

    /// Sends a frame on the socket of its protocol, which drivers and filters rely on. Never waits.
    ///
    /// # Errors
    /// The queue is full, or the interface is down or gone.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let [arp, advertisements] = self.descriptors();
        let socket = if ethertype(frame) == Some(ETHERTYPE_IPV6) { advertisements } else { arp };
        // SAFETY: the frame lives during the call, with the length that is given.
        let sent = unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The next neighbour that has reported its address; `None` if there is none.
    pub fn receive(&self) -> Option<(IpAddr, Mac)> {
        self.descriptors().into_iter().find_map(receive)
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        // SAFETY: it is not used again.
        let socket = unsafe { ManuallyDrop::take(&mut self.0) };
        // If no thread can be started, the socket is closed here, with the closure.
        let _ = thread::Builder::new().name("close-socket".to_owned()).spawn(move || drop(socket));
    }
}

/// Skips frames without an answer.
fn receive(socket: &OwnedFd) -> Option<(IpAddr, Mac)> {
    let mut frame = [0u8; LONGEST];
    loop {
        // SAFETY: all zero is a valid `sockaddr_ll`.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: frame and address live during the call, with the lengths that are given.
        let received = unsafe {
            libc::recvfrom(
                socket.as_raw_fd(),
                frame.as_mut_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
                std::ptr::from_mut(&mut from).cast(),
                &mut len,
            )
        };
        let received = usize::try_from(received).ok()?;
        if from.sll_pkttype != libc::PACKET_OUTGOING
            && let Some(answer) = frame.get(..received).and_then(neighbour)
        {
            return Some(answer);
        }
    }
}

fn open(protocol: i32, index: u32, filter: Option<&[libc::sock_filter]>) -> io::Result<PacketSocket> {
    let socket = packet_socket::open_unbound(libc::SOCK_RAW)?;
    if let Some(filter) = filter {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        let len = size_of::<libc::sock_fprog>() as u32;
        // SAFETY: the kernel copies the program, which lives during the call, and does not write to it.
        let set = unsafe {
            let value = std::ptr::from_ref(&program).cast();
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, len)
        };
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    packet_socket::bind(&socket, protocol, index as i32)?;
    Ok(PacketSocket(ManuallyDrop::new(socket)))
}

fn hardware_address(socket: &OwnedFd) -> io::Result<Mac> {
    // SAFETY: all zero is a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the address lives during the call, with the length that is given.
    let result = unsafe { libc::getsockname(socket.as_raw_fd(), std::ptr::from_mut(&mut address).cast(), &mut len) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // The kernel unbinds the socket when the interface goes.
    if address.sll_ifindex <= 0 {
        return Err(io::Error::from_raw_os_error(libc::ENXIO));
    }
    let [mac @ .., _, _] = address.sll_addr;
    if address.sll_hatype == libc::ARPHRD_ETHER && address.sll_halen == 6 {
        Ok(mac)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn loopback_has_no_ethernet_address() {
        let socket = ResolutionSocket::open(1, ArpFilter::Replies);
        // Without CAP_NET_RAW there is no socket.
        assert!(socket.and_then(|socket| socket.mac()).is_err());
    }

    // Claim: The sockets with which next hops are asked are closed in the background: the kernel takes some 10 ms for each, in which the
    // agent would not wake connections.
    #[test]
    fn to_close_one_does_not_wait() {
        let opened: io::Result<Vec<_>> = (0..8).map(|_| ResolutionSocket::open(1, ArpFilter::All)).collect();
        let sockets = match opened {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                eprintln!("skipped: no CAP_NET_RAW");
                return;
            }
            opened => opened.unwrap(),
        };
        let mut took: Vec<Duration> = sockets
            .into_iter()
            .map(|socket| {
                let began = Instant::now();
                drop(socket);
                began.elapsed()
            })
            .collect();
        took.sort_unstable();
        // A busy machine may delay some.
        assert!(took[took.len() / 2] < Duration::from_millis(3), "{took:?}");
    }
}
