//! Notifications of the kernel over rtnetlink (`rtnetlink(7)`): interfaces, neighbours, addresses, routes and rules that change.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NLM_F_REQUEST, NetlinkMessage};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::requests::{messages, serialize};

/// Multicast groups of notifications (`linux/rtnetlink.h`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Group {
    /// `RTNLGRP_LINK`.
    Link = 1,
    /// `RTNLGRP_NEIGH`.
    Neighbour = 3,
    /// `RTNLGRP_IPV4_IFADDR`.
    Ipv4Address = 5,
    /// `RTNLGRP_IPV4_ROUTE`.
    Ipv4Route = 7,
    /// `RTNLGRP_IPV4_RULE`.
    Ipv4Rule = 8,
    /// `RTNLGRP_IPV6_IFADDR`.
    Ipv6Address = 9,
    /// `RTNLGRP_IPV6_ROUTE`.
    Ipv6Route = 11,
    /// `RTNLGRP_IPV6_RULE`.
    Ipv6Rule = 19,
}

impl Group {
    /// Addresses, routes and rules of both families.
    pub const ADDRESSING: [Self; 6] =
        [Self::Ipv4Address, Self::Ipv4Route, Self::Ipv4Rule, Self::Ipv6Address, Self::Ipv6Route, Self::Ipv6Rule];
}

/// The content of one datagram.
#[derive(Clone, PartialEq, Debug)]
pub enum Notification {
    /// Messages, in the order of the changes; unknown types are left out.
    Messages(Vec<NetlinkMessage<RouteNetlinkMessage>>),
    /// The socket's buffer overflowed and notifications were lost: the caller has to dump the state.
    Overrun,
}

/// A non-blocking socket for notifications. It also answers requests sent on it, in order with the notifications;
/// [`Requests`](crate::Requests) uses a separate socket.
pub struct Monitor {
    socket: Socket,
    sequence: u32,
}

/// Room for some thousand changes at once.
const RECEIVE_BUFFER_BYTES: u32 = 1 << 20;

impl Monitor {
    /// Subscribes in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open(groups: &[Group]) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        // A smaller buffer will do.
        let _ = socket.set_rx_buf_sz(RECEIVE_BUFFER_BYTES);
        for &group in groups {
            socket.add_membership(group as u32)?;
        }
        Ok(Self { socket, sequence: 0 })
    }

    /// Receives one datagram; `None` if none is queued.
    ///
    /// # Errors
    /// The socket fails.
    pub fn receive(&self) -> io::Result<Option<Notification>> {
        loop {
            match self.socket.recv_from_full() {
                Ok((datagram, from)) if from.port_number() == 0 => {
                    return Ok(Some(Notification::Messages(messages(&datagram).collect())));
                }
                // Not from the kernel.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    return Ok(Some(Notification::Overrun));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a request, and returns its sequence number, which the messages of its answer carry. Wait for the end of a
    /// dump before sending the next request: the kernel refuses it otherwise.
    ///
    /// # Errors
    /// The socket fails.
    pub fn send(&mut self, request: RouteNetlinkMessage, flags: u16) -> io::Result<u32> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = serialize(request, NLM_F_REQUEST | flags, self.sequence);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        Ok(self.sequence)
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{NLM_F_DUMP, NetlinkPayload};
    use netlink_packet_route::link::LinkMessage;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Every namespace has a loopback interface.
    #[test]
    fn requests_are_answered_by_the_socket_that_notifies() {
        let mut monitor = Monitor::open(&[Group::Link, Group::Neighbour]).unwrap();
        assert_eq!(monitor.receive().unwrap(), None);
        let sequence = monitor.send(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP).unwrap();
        let (mut links, mut is_done) = (0, false);
        while !is_done {
            let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
            assert_eq!(poll(&mut [PollFd::new(&monitor, PollFlags::IN)], Some(&patience)), Ok(1));
            let Some(Notification::Messages(messages)) = monitor.receive().unwrap() else { continue };
            for message in messages.iter().filter(|message| message.header.sequence_number == sequence) {
                links += usize::from(matches!(
                    message.payload,
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(_))
                ));
                is_done |= matches!(message.payload, NetlinkPayload::Done(_));
            }
        }
        assert!(links >= 1);
    }
}
