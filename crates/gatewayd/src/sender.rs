//! Releases packets to mobile hosts, and probes their presence: through a packet socket, which bypasses the router's
//! filters and routes, with the mobile host's current Ethernet address. The programs redirect packets made for fixed
//! hosts to ingress, so that the router forwards them as if the mobile host had sent them.

use std::io;
use std::net::IpAddr;

use holdover_filter::{Direction, Injected};
use holdover_host::Offload;
use holdover_host::carrier;
use holdover_host::neighbour_frames::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Mac, Question};
use holdover_host::packet_socket::PacketSocket;

use crate::interface::Interface;
use crate::path::{MARK, MARK_BACK};

/// The result of sending a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    /// It is in the interface's queue.
    Done,
    /// There is no room now.
    Busy,
    /// The interface is down.
    Down,
    /// It exceeds the MTU, which has changed since it arrived.
    TooBig,
    /// The kernel refuses it.
    Refused,
}

/// Sends on one interface.
#[derive(Debug)]
pub(crate) struct Sender {
    socket: PacketSocket,
    back: PacketSocket,
    frame: Vec<u8>,
}

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

impl Sender {
    /// In the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let open = |mark| PacketSocket::open(mark)?.with_offload();
        Ok(Self { socket: open(MARK)?, back: open(MARK_BACK)?, frame: Vec::new() })
    }

    /// Sends a packet to the neighbour with this Ethernet address, which interfaces without Ethernet ignore.
    pub(crate) fn release(&mut self, interface: &Interface, to: Mac, offload: Offload, packet: &[u8]) -> Sent {
        if longest_segment(offload, packet) > interface.mtu as usize {
            return Sent::TooBig;
        }
        self.write_frame(interface, (to, interface.mac), offload, packet);
        self.send(Direction::Outgoing, interface, packet)
    }

    /// Sends a packet made for the connection of a mobile host: to it, or as if from it.
    pub(crate) fn inject(&mut self, interface: &Interface, mobile: Mac, injected: &Injected) -> Sent {
        let Ok(packet) = injected.packet.emit() else { return Sent::Refused };
        let addresses = match injected.direction {
            Direction::Outgoing => (mobile, interface.mac),
            Direction::Incoming => (interface.mac, mobile),
        };
        self.write_frame(interface, addresses, Offload::default(), &packet);
        self.send(injected.direction, interface, &packet)
    }

    fn write_frame(&mut self, interface: &Interface, (to, from): (Mac, Mac), offload: Offload, packet: &[u8]) {
        let ethernet = if interface.has_ethernet() { ETHERNET } else { 0 };
        self.frame.clear();
        self.frame.extend(offload.behind(ethernet as u16).to_bytes());
        if ethernet != 0 {
            self.frame.extend(to);
            self.frame.extend(from);
            self.frame.extend(if is_ipv4(packet) { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 }.to_be_bytes());
        }
        self.frame.extend(packet);
    }

    /// Sends the frame of a packet.
    fn send(&self, direction: Direction, interface: &Interface, packet: &[u8]) -> Sent {
        self.send_frame(direction, interface, is_ipv4(packet))
    }

    fn send_frame(&self, direction: Direction, interface: &Interface, is_ipv4: bool) -> Sent {
        let socket = if direction == Direction::Outgoing { &self.socket } else { &self.back };
        match socket.send(interface.index as i32, is_ipv4, &self.frame) {
            Ok(()) => Sent::Done,
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Sent::Busy,
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Sent::Down,
                Some(libc::EMSGSIZE) => Sent::TooBig,
                _ => {
                    tracing::debug!(%error, "the kernel refused a packet");
                    Sent::Refused
                }
            },
        }
    }

    /// Queries the interface's carrier, which makes the kernel report a change.
    pub(crate) fn ask_carrier(&self, interface: &Interface) {
        // The change is reported by netlink.
        let _ = carrier::has_carrier(&self.socket, &interface.name);
    }

    /// Resolves the Ethernet address of `hop`: by unicast to `known`, else by broadcast. Failures are retried with the
    /// next probe.
    pub(crate) fn probe(&mut self, interface: &Interface, local: IpAddr, hop: IpAddr, known: Option<Mac>) -> Sent {
        let Some(frame) = (Question { mac: interface.mac, local, hop }).frame(known) else { return Sent::Refused };
        self.frame.clear();
        self.frame.extend(Offload::default().to_bytes());
        self.frame.extend(frame);
        // ARP is sent with IPv4's protocol number: the frame has its own EtherType.
        let sent = self.send_frame(Direction::Outgoing, interface, hop.is_ipv4());
        if sent != Sent::Done {
            tracing::trace!(?sent, %hop, "a probe was not sent");
        }
        sent
    }
}

/// Sets the reserved flag of an IPv4 header: the mobile host takes the packet for one of a buffer, and its link for a
/// working one (the thesis on Freeze-TCP, section 4.6.3). The checksum is updated by difference (RFC 1624 section 3).
pub(crate) fn set_reserved_flag(packet: &mut [u8]) {
    const FLAG: u8 = 0x80;
    if !is_ipv4(packet) || packet.len() < 20 || packet[6] & FLAG != 0 {
        return;
    }
    packet[6] |= FLAG;
    let sum = u32::from(!u16::from_be_bytes([packet[10], packet[11]])) + (u32::from(FLAG) << 8);
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn is_ipv4(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 4)
}

/// The length of the longest packet that the kernel will send for this one, in bytes.
fn longest_segment(offload: Offload, packet: &[u8]) -> usize {
    let bytes = offload.to_bytes();
    let gso_size = u16::from_ne_bytes([bytes[4], bytes[5]]);
    if bytes[1] == 0 || gso_size == 0 {
        return packet.len();
    }
    let at = |index: usize| packet.get(index).copied().unwrap_or(0);
    // GSO packets are TCP, and their checksum begins at the TCP header.
    let tcp = usize::from(u16::from_ne_bytes([bytes[6], bytes[7]]));
    let headers = tcp + usize::from(at(tcp + 12) >> 4) * 4;
    packet.len().min(headers + usize::from(gso_size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserved_flag_is_set_with_its_checksum() {
        for identification in [0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff] {
            let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 10, 0, 0, 7];
            packet[4..6].copy_from_slice(&u16::to_be_bytes(identification));
            let sum = |packet: &[u8]| {
                let sum: u32 = packet.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
                let folded = (sum & 0xffff) + (sum >> 16);
                ((folded & 0xffff) + (folded >> 16)) as u16
            };
            let checksum = !sum(&packet);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            for _ in 0..2 {
                set_reserved_flag(&mut packet);
                assert_eq!((sum(&packet), packet[6]), (0xffff, 0xc0), "{identification}");
            }
        }
        let mut packet = vec![0x60; 40];
        set_reserved_flag(&mut packet);
        assert_eq!(packet, vec![0x60; 40], "IPv6 has none");
    }

    #[test]
    fn the_longest_segment_of_a_large_packet_has_its_headers() {
        let mut packet = vec![0; 20_000];
        (packet[0], packet[20 + 12]) = (0x45, 0x80);
        // TCP over IPv4, 1448 bytes a segment, a checksum from byte 20 on.
        let mut header = [0; Offload::LEN];
        (header[0], header[1]) = (1, 1);
        header[4..6].copy_from_slice(&1448u16.to_ne_bytes());
        header[6..8].copy_from_slice(&20u16.to_ne_bytes());
        assert_eq!(longest_segment(Offload::from_bytes(&header), &packet), 20 + 32 + 1448);
        assert_eq!(longest_segment(Offload::from_bytes(&header), &packet[..700]), 700);
        assert_eq!(longest_segment(Offload::default(), &packet), 20_000);
    }
}
