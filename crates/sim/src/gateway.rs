//! A router with mechanisms for the connections of mobile hosts.

use core::net::IpAddr;
use std::collections::BTreeMap;

use holdover_base::Rng;
use holdover_filter::{Chain, Stored};
use holdover_wire::Compression;

use crate::behind::neighbour_towards;
use crate::config::{GatewayMechanisms, WorldConfig};
use crate::frame::Frame;
use crate::ids::NodeId;

#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) node: NodeId,
    pub(crate) chain: Chain,
    /// The mobile hosts that it serves, with their addresses.
    pub(crate) mobiles: BTreeMap<NodeId, Vec<IpAddr>>,
    /// Mobile hosts behind another router, by that router, which is at the other end of this router's link.
    pub(crate) behind: BTreeMap<NodeId, Vec<NodeId>>,
    pub(crate) hears_links: bool,
    /// Compression of packets for mobile hosts.
    pub(crate) compression: Option<Compression>,
    /// The most that its mechanisms have stored.
    pub(crate) most_stored: Stored,
}

impl Gateway {
    /// The router described by `config`, in a world where each node has these addresses.
    pub(crate) fn new(config: &GatewayMechanisms, world: &WorldConfig, addresses: &[Vec<IpAddr>]) -> Self {
        let mut rng = Rng::split(world.seed, &format!("gateway {}", config.node.0));
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        secret[8..].copy_from_slice(&rng.next_u64().to_le_bytes());
        let mut behind = BTreeMap::<NodeId, Vec<NodeId>>::new();
        for &mobile in &config.mobiles {
            if let Some(router) = neighbour_towards(world, config.node, mobile).filter(|&next| next != mobile) {
                behind.entry(router).or_default().push(mobile);
            }
        }
        Self {
            node: config.node,
            chain: config.mechanisms.chain(secret),
            mobiles: config.mobiles.iter().map(|&mobile| (mobile, addresses[mobile.index()].clone())).collect(),
            behind,
            hears_links: config.hears_links,
            compression: config.mechanisms.m_tcp.as_ref().and_then(|m_tcp| m_tcp.compression),
            most_stored: Stored::default(),
        }
    }

    /// Whether a packet is from one of its mobile hosts, and whether it is to one of them.
    pub(crate) fn mobile_ends(&self, frame: &Frame) -> (bool, bool) {
        let is_mobile = |address| NodeId::of(address).is_some_and(|node| self.mobiles.contains_key(&node));
        (is_mobile(frame.packet.src), is_mobile(frame.packet.dst))
    }
}
