//! Mobile hosts that have a prefix each.

use std::collections::BTreeMap;

use holdover_gateway::prefixes::Prefixes;
use serde::{Deserialize, Serialize};

use super::Mobiles;
use crate::network::Network;

/// Networks in which each mobile host has a prefix, and the length of these prefixes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct HostPrefixes(BTreeMap<Network, u8>);

/// Each address is a mobile host of its own.
pub(crate) static NO_PREFIXES: HostPrefixes = HostPrefixes(BTreeMap::new());

impl HostPrefixes {
    /// Whether there are any.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The network, and the length of its hosts' prefixes, in which a network is a part of a single mobile host.
    pub(crate) fn host_around(&self, inner: &Network) -> Option<(Network, u8)> {
        let is_part = |(outer, bits): &(&Network, &u8)| outer.holds(inner) && inner.bits() > **bits;
        self.0.iter().find(is_part).map(|(outer, bits)| (*outer, *bits))
    }

    /// The networks.
    pub(crate) fn networks(&self) -> impl Iterator<Item = Network> {
        self.0.keys().copied()
    }

    /// The bits of an address that name a mobile host of this network.
    pub(crate) fn bits_in(&self, network: &Network) -> u8 {
        self.0.get(network).copied().unwrap_or(network.whole())
    }

    /// Which addresses are one mobile host, in these networks.
    pub(crate) fn of(&self, networks: impl Iterator<Item = Network>) -> Prefixes {
        let mut all = Prefixes::default();
        networks.for_each(|network| all.add(network.address(), network.bits(), self.bits_in(&network)));
        all
    }
}

impl Mobiles {
    /// The key of an invalid network or prefix, and what is expected: a mobile host has one mode, and one name.
    pub(super) fn prefix_problem(&self) -> Option<(&'static str, String)> {
        let Self { modes, networks, prefixes, exclude, .. } = self;
        let is_wrong = |(network, bits): &(&Network, &u8)| !(network.bits()..=network.whole()).contains(*bits);
        if let Some((network, bits)) = prefixes.0.iter().find(is_wrong) {
            let (least, most) = (network.bits(), network.whole());
            return Some(("prefixes", format!("{network} has no prefixes of {bits} bits: expected {least} to {most}")));
        }
        let mut all = (networks.iter().map(|network| ("networks", network)))
            .chain(modes.keys().map(|network| ("modes", network)))
            .chain(exclude.iter().map(|network| ("exclude", network)))
            .chain(prefixes.0.keys().map(|network| ("prefixes", network)));
        all.find_map(|(key, inner)| {
            let (outer, bits) = prefixes.host_around(inner)?;
            Some((key, format!("{inner} is a part of a mobile host: those of {outer} have prefixes of {bits} bits")))
        })
    }
}
