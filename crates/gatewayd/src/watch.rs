//! What the kernel tells of the mobile-facing interface (`rtnetlink(7)`): its carrier and its neighbours.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use holdover_host::messages;
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::interface::Interface;

/// Something that the kernel tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// The interface is like this.
    Link(Interface),
    /// The interface is gone.
    Gone,
    /// Address resolution has failed for a neighbour.
    Unresolved(IpAddr),
    /// News were lost: the interface is to be looked up again.
    Lost,
}

/// A socket on which the kernel tells of changes.
pub(crate) struct Watch {
    socket: Socket,
    index: u32,
}

/// `RTNLGRP_LINK` and `RTNLGRP_NEIGH` of `linux/rtnetlink.h`.
const GROUPS: [u32; 2] = [1, 3];

impl Watch {
    /// Listens in the network namespace of the calling thread.
    pub(crate) fn open(index: u32) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        socket.set_non_blocking(true)?;
        Ok(Self { socket, index })
    }

    /// What was told since the last time.
    pub(crate) fn handle_ready(&mut self) -> Vec<News> {
        let mut news = Vec::new();
        loop {
            match self.socket.recv_from_full() {
                Ok((datagram, _)) => {
                    for message in messages(&datagram) {
                        if let NetlinkPayload::InnerMessage(message) = &message.payload {
                            news.extend(self.read(message));
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return news,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // ENOBUFS, and whatever else: what is lost is looked up.
                Err(_) => {
                    news.push(News::Lost);
                    return news;
                }
            }
        }
    }

    fn read(&self, message: &RouteNetlinkMessage) -> Option<News> {
        match message {
            RouteNetlinkMessage::NewLink(_) => {
                Interface::of_message(message).filter(|link| link.index == self.index).map(News::Link)
            }
            RouteNetlinkMessage::DelLink(link) if link.header.index == self.index => Some(News::Gone),
            RouteNetlinkMessage::NewNeighbour(entry) if entry.header.ifindex == self.index => {
                let has_failed = entry.header.state == NeighbourState::Failed;
                address_of(entry).filter(|_| has_failed).map(News::Unresolved)
            }
            _ => None,
        }
    }
}

fn address_of(entry: &NeighbourMessage) -> Option<IpAddr> {
    entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some((*address).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some((*address).into()),
        _ => None,
    })
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open for as long as the socket, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("index", &self.index).finish_non_exhaustive()
    }
}
