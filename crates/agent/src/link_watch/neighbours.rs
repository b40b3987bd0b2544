//! Has the kernel ask neighbours whether they are there, over rtnetlink (`rtnetlink(7)`, `ip-neighbour(8)`), and reads how many packets
//! have come in over an interface.
//!
//! It is the kernel that asks (ARP, RFC 826; neighbour solicitations, RFC 4861), with its own addresses and in its own table, so that
//! programs and the agent never hold different views. Its answers come with all its other news, by
//! [`netlink::Monitor`](super::netlink::Monitor).

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::netlink::messages;

/// A socket for requests that the kernel answers at once.
pub struct Neighbours {
    socket: Socket,
    sequence: u32,
}

impl Neighbours {
    /// In the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no such socket for this process.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // The answer is there when the request has been sent.
        socket.set_non_blocking(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// How many packets have come in over an interface since it is there.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn received(&mut self, index: u32) -> io::Result<u64> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let answer = self.request(RouteNetlinkMessage::GetLink(message), 0)?;
        let Some(RouteNetlinkMessage::NewLink(link)) = answer else { return Err(io::ErrorKind::InvalidData.into()) };
        let counted = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(stats.rx_packets),
            _ => None,
        });
        counted.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Asks a neighbour at once, at its Ethernet address, or everyone on the link where that is not known. The kernel asks again
    /// after a second and after two, and takes it for gone after three.
    ///
    /// # Errors
    /// The kernel refuses; it needs `CAP_NET_ADMIN`.
    pub fn ask(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        // One that is being asked already is not asked anew: so it is told that it is not being asked.
        self.take_back(index, address)?;
        self.seek(index, address)
    }

    /// Asks a neighbour, at its Ethernet address if one is known (it may have spoken since it fell silent) and everyone on the link
    /// otherwise: once a second, three times. What is being asked already is left to that.
    ///
    /// # Errors
    /// The kernel refuses; it needs `CAP_NET_ADMIN`.
    pub fn seek(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        match self.change(index, address, NeighbourState::Probe, NeighbourFlags::empty(), 0) {
            Err(error) if is_unknown(&error) => {
                self.change(index, address, NeighbourState::None, NeighbourFlags::Use, NLM_F_CREATE)
            }
            other => other,
        }
    }

    /// A neighbour needs not answer any more: it is as one that has not been asked for a while.
    ///
    /// # Errors
    /// The kernel refuses; it needs `CAP_NET_ADMIN`.
    pub fn take_back(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        match self.change(index, address, NeighbourState::Stale, NeighbourFlags::empty(), 0) {
            Err(error) if is_unknown(&error) => Ok(()),
            other => other,
        }
    }

    fn change(
        &mut self,
        index: u32,
        address: IpAddr,
        state: NeighbourState,
        flags: NeighbourFlags,
        how: u16,
    ) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        (message.header.ifindex, message.header.state, message.header.flags) = (index, state, flags);
        let (family, destination) = match address {
            IpAddr::V4(address) => (AddressFamily::Inet, NeighbourAddress::Inet(address)),
            IpAddr::V6(address) => (AddressFamily::Inet6, NeighbourAddress::Inet6(address)),
        };
        message.header.family = family;
        message.attributes = vec![NeighbourAttribute::Destination(destination)];
        // Without NLM_F_REPLACE all that is known of it besides stays as it is.
        self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_ACK | how).map(drop)
    }

    /// Sends one request and reads its answer.
    pub(super) fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut answers = messages(&datagram);
            // What is left of a request that failed half-way is passed over.
            let Some(answer) = answers.find(|answer| answer.header.sequence_number == self.sequence) else { continue };
            return match answer.payload {
                NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
                NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
                _ => Ok(None),
            };
        }
    }
}

/// There is no such entry, or its Ethernet address is not known.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_counts_what_its_loopback_interface_receives() {
        let mut neighbours = Neighbours::open().unwrap();
        let before = neighbours.received(1).unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        assert!(neighbours.received(1).unwrap() > before);
        assert!(neighbours.received(u32::MAX >> 1).is_err());
    }
}
