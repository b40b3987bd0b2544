//! The mobile-facing interface in its current state.

use std::io;
use std::net::IpAddr;

use holdover_host::Requests;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};

use crate::network::Network;

/// An interface of the calling thread's network namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: u32,
    /// In bytes.
    pub(crate) mtu: u32,
    /// Its Ethernet address; zeros if it has none.
    pub(crate) mac: [u8; 6],
    pub(crate) kind: LinkLayerType,
    pub(crate) has_carrier: bool,
}

/// The interface cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// It does not exist.
    #[error("no interface {name}; existing ones: {}", others.join(", "))]
    Missing {
        /// The name.
        name: String,
        /// The existing ones.
        others: Vec<String>,
    },
    /// Its frame format is unknown.
    #[error("interface {name} has the unsupported type {kind}; supported are Ethernet, PPP and raw IP")]
    Kind {
        /// The interface.
        name: String,
        /// As the kernel names it (`ARPHRD_*`).
        kind: String,
    },
    /// The kernel cannot be queried.
    #[error("cannot query interfaces: {0}")]
    Netlink(#[from] io::Error),
}

/// Bytes before the IP header in Ethernet.
const ETHERNET: u32 = 14;

impl Interface {
    /// Looks it up.
    pub(crate) fn find(requests: &mut Requests, name: &str) -> Result<Self, InterfaceError> {
        let links = requests.request(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)?;
        let links: Vec<Self> = links.iter().filter_map(Self::of_message).collect();
        match links.iter().find(|link| link.name == name) {
            Some(link) if link.frame_len().is_some() => Ok(link.clone()),
            Some(link) => Err(InterfaceError::Kind { name: link.name.clone(), kind: format!("{:?}", link.kind) }),
            None => {
                let others = links.into_iter().map(|link| link.name).collect();
                Err(InterfaceError::Missing { name: name.to_owned(), others })
            }
        }
    }

    /// Parses a message about an interface.
    pub(crate) fn of_message(message: &RouteNetlinkMessage) -> Option<Self> {
        let RouteNetlinkMessage::NewLink(link) = message else { return None };
        let flags = link.header.flags;
        let mut interface = Self {
            name: String::new(),
            index: link.header.index,
            mtu: 1500,
            mac: [0; 6],
            kind: link.header.link_layer_type,
            has_carrier: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        };
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::IfName(name) => interface.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
                LinkAttribute::Address(address) => interface.mac = address.as_slice().try_into().unwrap_or_default(),
                _ => {}
            }
        }
        Some(interface)
    }

    /// Bytes before the IP header in its frames; `None` for an unknown type.
    pub(crate) fn frame_len(&self) -> Option<u32> {
        match self.kind {
            LinkLayerType::Ether => Some(ETHERNET),
            LinkLayerType::None | LinkLayerType::Ppp | LinkLayerType::Rawip => Some(0),
            _ => None,
        }
    }

    pub(crate) fn has_ethernet(&self) -> bool {
        self.kind == LinkLayerType::Ether
    }

    /// The networks of its addresses, without link-local ones.
    pub(crate) fn networks(&self, requests: &mut Requests) -> io::Result<Vec<Network>> {
        let answers = requests.request(RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP)?;
        let networks = answers.iter().filter_map(|answer| {
            let RouteNetlinkMessage::NewAddress(message) = answer else { return None };
            let address = message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            });
            let is_global =
                |address: &IpAddr| !matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
            let address = address.filter(|address| message.header.index == self.index && is_global(address))?;
            Network::new(address, message.header.prefix_len)
        });
        Ok(networks.collect())
    }
}
