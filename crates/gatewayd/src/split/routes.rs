//! Policy routes of the daemon: packets with its mark are for this host, for any destination.
//!
//! After SIGKILL the routes go with the daemon's device. The rules stay until the next start on the same interface, without
//! effect: their table is empty, and nothing sets the mark.

use std::io;

use holdover_host::Requests;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

/// The rules and routes of a mark, removed on drop.
#[derive(Debug)]
pub(super) struct Routes {
    requests: Requests,
    mark: u32,
    /// The daemon's device, which is up.
    device: u32,
}

/// Before all rules except the one for the local table.
const PRIORITY: u32 = 1;

const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];

impl Routes {
    /// Adds them, in the network namespace of the calling thread.
    pub(super) fn add(mark: u32, device: u32, has_v6: bool) -> io::Result<Self> {
        let mut routes = Self { requests: Requests::open()?, mark, device };
        routes.remove();
        routes.add_family(AddressFamily::Inet)?;
        if has_v6 {
            routes.add_family(AddressFamily::Inet6)?;
        }
        Ok(routes)
    }

    /// Whether the kernel has rules for routing tables.
    pub(super) fn probe() -> io::Result<()> {
        let mut message = RuleMessage::default();
        message.header.family = AddressFamily::Inet;
        Requests::open()?.request(RouteNetlinkMessage::GetRule(message), NLM_F_DUMP).map(drop)
    }

    fn add_family(&mut self, family: AddressFamily) -> io::Result<()> {
        let route = RouteNetlinkMessage::NewRoute(self.route(family));
        self.requests.request(route, NLM_F_CREATE | NLM_F_REPLACE)?;
        self.requests.request(RouteNetlinkMessage::NewRule(self.rule(family)), NLM_F_CREATE).map(drop)
    }

    /// Removes those of an earlier process on the interface, if there are any.
    pub(super) fn remove_former(mark: u32) -> io::Result<()> {
        Self { requests: Requests::open()?, mark, device: 0 }.remove();
        Ok(())
    }

    fn remove(&mut self) {
        /// Several of a kind exist only if the kernel has refused to remove an earlier one.
        const MOST: usize = 8;
        for family in FAMILIES {
            for _ in 0..MOST {
                if self.requests.request(RouteNetlinkMessage::DelRule(self.rule(family)), 0).is_err() {
                    break;
                }
            }
            // It goes with its device, and fails if there is none.
            if self.device != 0 {
                let _ = self.requests.request(RouteNetlinkMessage::DelRoute(self.route(family)), 0);
            }
        }
    }

    fn rule(&self, family: AddressFamily) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = family;
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![
            RuleAttribute::Priority(PRIORITY),
            RuleAttribute::FwMark(self.mark),
            // The number of the table is the mark, which no other table has by chance.
            RuleAttribute::Table(self.mark),
        ];
        message
    }

    fn route(&self, family: AddressFamily) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        message.header.kind = RouteType::Local;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = if family == AddressFamily::Inet { RouteScope::Host } else { RouteScope::Universe };
        message.attributes = vec![RouteAttribute::Table(self.mark), RouteAttribute::Oif(self.device)];
        message
    }
}

impl Drop for Routes {
    fn drop(&mut self) {
        self.remove();
    }
}
