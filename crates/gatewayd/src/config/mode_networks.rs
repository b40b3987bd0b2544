//! The networks of mobile hosts whose mode has a property.

use std::net::IpAddr;

use super::{Config, Mode};
use crate::network::Network;

/// Networks of mobile hosts whose mode has a property (true) or not, and exceptions from them: the longest matching prefix
/// applies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ModeNetworks(Vec<(Network, bool)>);

impl ModeNetworks {
    /// Those of `served`, the networks that the daemon serves (true) and their exceptions, by mode.
    pub(crate) fn new(config: &Config, served: &[(Network, bool)], has: impl Fn(Mode) -> bool) -> Self {
        let modes: Vec<(Network, Mode)> = config.modes_of_networks().collect();
        let mode_of = |network: &Network| {
            let around = modes.iter().filter(|(outer, _)| outer.holds(network));
            around.max_by_key(|(outer, _)| outer.bits()).map_or(config.mobiles.mode, |&(_, mode)| mode)
        };
        let mut all: Vec<(Network, bool)> =
            served.iter().map(|&(network, is)| (network, is && has(mode_of(&network)))).collect();
        // A network outside those that are served has no mobile hosts.
        let within = |network: &Network| {
            let around = served.iter().filter(|(outer, _)| outer.holds(network));
            around.max_by_key(|(outer, _)| outer.bits()).is_some_and(|&(_, is_served)| is_served)
        };
        all.extend(modes.iter().filter(|(network, _)| within(network)).map(|&(network, mode)| (network, has(mode))));
        Self(all)
    }

    /// Whether an address is that of such a mobile host.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let fitting = self.0.iter().filter(|(network, _)| network.contains(address));
        fitting.max_by_key(|(network, _)| network.mapped().1).is_some_and(|&(_, has)| has)
    }

    /// The networks, for the programs.
    pub(crate) fn as_slice(&self) -> &[(Network, bool)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides_the_mode_of_networks() {
        let network = |text: &str| -> Network { text.parse().unwrap() };
        let config: Config = toml::from_str(
            "[mobiles]\nmode = \"split\"\n[mobiles.modes]\n\"10.2.1.0/24\" = \"buffer\"\n\"10.2.1.7\" = \"split\"\n",
        )
        .unwrap();
        let served = [(network("10.2.0.0/16"), true), (network("10.2.9.1"), false)];
        let split = ModeNetworks::new(&config, &served, |mode| mode == Mode::Split);
        for (address, is_split) in
            [("10.2.0.1", true), ("10.2.1.1", false), ("10.2.1.7", true), ("10.2.9.1", false), ("10.3.0.1", false)]
        {
            assert_eq!(split.contains(address.parse().unwrap()), is_split, "{address}");
        }
    }
}
