//! The forwarding table of a bridge that is the mobile-facing interface: mobile hosts are behind its ports. When a port
//! goes down, the kernel deletes its entries, which reports all mobile hosts behind it at once.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use holdover_filter::Presence;
use holdover_gateway::divert::Source;
use holdover_host::{Group, Monitor, Notification};
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::SourceReport;

/// Follows the forwarding table of one bridge.
pub(super) struct Bridge {
    monitor: Monitor,
    index: u32,
}

impl Bridge {
    /// Subscribes in the network namespace of the calling thread. An interface that is no bridge has no entries.
    pub(super) fn open(index: u32) -> io::Result<Self> {
        Ok(Self { monitor: Monitor::open(&[Group::Neighbour])?, index })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }

    /// The reports since the last call. Lost notifications are left to the other sources.
    pub(super) fn handle_ready(&mut self, reports: &mut Vec<SourceReport>) {
        loop {
            match self.monitor.receive() {
                Ok(Some(Notification::Messages(messages))) => {
                    for message in &messages {
                        if let NetlinkPayload::InnerMessage(message) = &message.payload {
                            reports.extend(read(message, self.index));
                        }
                    }
                }
                Ok(Some(Notification::Overrun)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }
}

/// The report of a message about a host behind the bridge of this index.
fn read(message: &RouteNetlinkMessage, bridge: u32) -> Option<SourceReport> {
    let (entry, presence) = match message {
        RouteNetlinkMessage::NewNeighbour(entry) => (entry, Presence::Present),
        RouteNetlinkMessage::DelNeighbour(entry) => (entry, Presence::Away),
        _ => return None,
    };
    let mac = learned(entry, bridge)?;
    Some(SourceReport::Frame { mac, source: Source::Bridge, presence })
}

/// The Ethernet address of an entry that the bridge has learned; `None` for other entries.
fn learned(entry: &NeighbourMessage, bridge: u32) -> Option<[u8; 6]> {
    let is_learned = entry.header.family == AddressFamily::Bridge
        && !matches!(entry.header.state, NeighbourState::Permanent | NeighbourState::Noarp);
    let is_of_bridge = entry.attributes.contains(&NeighbourAttribute::Controller(bridge));
    let mac = entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(mac) => <[u8; 6]>::try_from(mac.as_slice()).ok(),
        _ => None,
    });
    mac.filter(|_| is_learned && is_of_bridge)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(state: NeighbourState, family: AddressFamily, bridge: u32) -> NeighbourMessage {
        let mut entry = NeighbourMessage::default();
        (entry.header.state, entry.header.family) = (state, family);
        let mac = NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 7]);
        entry.attributes = vec![mac, NeighbourAttribute::Controller(bridge)];
        entry
    }

    #[test]
    fn only_learned_entries_of_the_bridge_count() {
        let learned = entry(NeighbourState::Reachable, AddressFamily::Bridge, 4);
        let expected =
            |presence| Some(SourceReport::Frame { mac: [2, 0, 0, 0, 0, 7], source: Source::Bridge, presence });
        let new = RouteNetlinkMessage::NewNeighbour(learned.clone());
        assert_eq!(read(&new, 4), expected(Presence::Present));
        assert_eq!(read(&RouteNetlinkMessage::DelNeighbour(learned), 4), expected(Presence::Away));
        assert_eq!(read(&new, 5), None);
        for other in [
            entry(NeighbourState::Permanent, AddressFamily::Bridge, 4),
            entry(NeighbourState::Noarp, AddressFamily::Bridge, 4),
            entry(NeighbourState::Reachable, AddressFamily::Inet, 4),
        ] {
            assert_eq!(read(&RouteNetlinkMessage::DelNeighbour(other), 4), None);
        }
    }
}
