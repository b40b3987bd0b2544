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
        let Self { modes, networks, prefixes: HostPrefixes(prefixes), exclude, .. } = self;
        let is_wrong = |(network, bits): &(&Network, &u8)| !(network.bits()..=network.whole()).contains(*bits);
        if let Some((network, bits)) = prefixes.iter().find(is_wrong) {
            let (least, most) = (network.bits(), network.whole());
            return Some(("prefixes", format!("{network} has no prefixes of {bits} bits: expected {least} to {most}")));
        }
        let all = (networks.iter().map(|network| ("networks", network)))
            .chain(modes.keys().map(|network| ("modes", network)))
            .chain(exclude.iter().map(|network| ("exclude", network)))
            .chain(prefixes.keys().map(|network| ("prefixes", network)));
        all.flat_map(|(key, inner)| prefixes.iter().map(move |(outer, bits)| (key, inner, outer, *bits)))
            .find(|(_, inner, outer, bits)| outer.holds(inner) && inner.bits() > *bits)
            .map(|(key, inner, outer, bits)| {
                (key, format!("{inner} is a part of a mobile host: those of {outer} have prefixes of {bits} bits"))
            })
    }
}
