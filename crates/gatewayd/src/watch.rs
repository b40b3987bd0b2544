//! Kernel notifications about the mobile-facing interface (`rtnetlink(7)`): its carrier, its neighbours and its addresses.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use holdover_host::{Group, Monitor, Notification};
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressHeaderFlags;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};

use crate::interface::Interface;

/// A kernel notification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LinkNotification {
    /// The state of the interface.
    Link(Interface),
    /// The interface is gone, or in another network namespace.
    Gone,
    /// An interface of this name has appeared after the former one was gone; look it up.
    Returned,
    /// Address resolution has failed for a neighbour.
    Unresolved(IpAddr),
    /// The interface has a new address, or one with other properties.
    Addressed {
        /// An IPv6 address that can be used: duplicate address detection has ended, or there is none.
        is_verified: bool,
    },
    /// Notifications were lost; look the interface up again.
    Lost,
}

/// A socket for notifications.
pub(crate) struct Watch {
    monitor: Monitor,
    name: String,
    /// `None` while there is no such interface.
    index: Option<u32>,
}

impl Watch {
    /// Subscribes in the network namespace of the calling thread.
    pub(crate) fn open(interface: &Interface) -> io::Result<Self> {
        let monitor = Monitor::open(&[Group::Link, Group::Neighbour, Group::Ipv4Address, Group::Ipv6Address])?;
        Ok(Self { monitor, name: interface.name.clone(), index: Some(interface.index) })
    }

    /// The name of the interface when this was opened.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Follows the interface of this index, or waits for one of the same name.
    pub(crate) fn follow(&mut self, index: Option<u32>) {
        self.index = index;
    }

    /// The notifications since the last call.
    pub(crate) fn handle_ready(&mut self) -> Vec<LinkNotification> {
        let mut notifications = Vec::new();
        loop {
            match self.monitor.receive() {
                Ok(Some(Notification::Messages(messages))) => {
                    for message in &messages {
                        if let NetlinkPayload::InnerMessage(message) = &message.payload {
                            notifications.extend(self.read(message));
                        }
                    }
                }
                Ok(None) => return notifications,
                // Lost notifications are replaced by a look-up.
                Ok(Some(Notification::Overrun)) | Err(_) => {
                    notifications.push(LinkNotification::Lost);
                    return notifications;
                }
            }
        }
    }

    fn read(&self, message: &RouteNetlinkMessage) -> Option<LinkNotification> {
        let Some(index) = self.index else {
            return Interface::of_message(message)
                .filter(|link| link.name == self.name)
                .map(|_| LinkNotification::Returned);
        };
        match message {
            RouteNetlinkMessage::NewLink(_) => {
                Interface::of_message(message).filter(|link| link.index == index).map(LinkNotification::Link)
            }
            // A port that leaves its bridge is reported as removed by the bridge.
            RouteNetlinkMessage::DelLink(link) => {
                let is_gone = link.header.index == index && link.header.interface_family != AddressFamily::Bridge;
                is_gone.then_some(LinkNotification::Gone)
            }
            RouteNetlinkMessage::NewNeighbour(entry) if entry.header.ifindex == index => {
                let has_failed = entry.header.state == NeighbourState::Failed;
                address_of(entry).filter(|_| has_failed).map(LinkNotification::Unresolved)
            }
            RouteNetlinkMessage::NewAddress(address) if address.header.index == index => {
                let is_v6 = address.header.family == AddressFamily::Inet6;
                let is_tentative = address.header.flags.contains(AddressHeaderFlags::Tentative);
                Some(LinkNotification::Addressed { is_verified: is_v6 && !is_tentative })
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
        self.monitor.as_fd()
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("index", &self.index).finish_non_exhaustive()
    }
}
