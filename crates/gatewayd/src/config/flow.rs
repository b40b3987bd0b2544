//! `[[flow]]`: the mode of single connections.

use std::net::IpAddr;

use holdover_filter::Connection;
use holdover_flow::{Ends, Selector, SelectorEnd, prefix_mask};
use holdover_gateway::daemon::Treatment;
use holdover_host::ports::Ports;
use holdover_host::words::List;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, Mode};
use crate::network::Network;

/// A `[[flow]]` of the configuration: the mode of some connections of mobile hosts, over TCP or UDP. A connection matches
/// if it matches all fields; a list matches if one of its elements does. The first matching rule applies; without one,
/// the mode of the mobile host does.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowRule {
    /// The port of the fixed host's end.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub fixed_port: List<Ports>,
    /// The port of the mobile host's end.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub mobile_port: List<Ports>,
    /// The fixed host's addresses, or networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<Network>,
    /// The mobile host's addresses, or networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mobile: Vec<Network>,
    /// The mode, other than "thesis".
    pub mode: Mode,
}

/// The most combinations of networks and ports in all rules: as many as the programs have room for.
pub(crate) const MOST_SELECTORS: usize = 128;

/// The links of a mobile host: that of its own mode, and one for each other treatment of TCP connections that rules
/// choose.
pub(crate) const MOST_LINKS: usize = 4;

/// The number of the link of a mobile host's own mode.
pub(crate) const OWN_LINK: u8 = 0;

impl FlowRule {
    /// All combinations of networks and ports. The local end is the fixed host's.
    fn selectors(&self) -> Vec<Selector> {
        let ends = |networks: &[Network], ports: &List<Ports>| -> Vec<SelectorEnd> {
            let networks: Vec<(u128, u128)> =
                if networks.is_empty() { vec![(0, 0)] } else { networks.iter().map(prefix).collect() };
            let ports = if ports.is_empty() { &[Ports::ALL][..] } else { ports.0.as_slice() };
            let of_network = |(prefix, mask)| {
                let with =
                    move |ports: &Ports| SelectorEnd { prefix, mask, first_port: ports.first, last_port: ports.last };
                ports.iter().map(with)
            };
            networks.into_iter().flat_map(of_network).collect()
        };
        let mobiles = ends(&self.mobile, &self.mobile_port);
        let fixed = ends(&self.fixed, &self.fixed_port);
        let with_mobiles = |fixed: SelectorEnd| mobiles.iter().map(move |&mobile| Selector::new(fixed, mobile, true));
        fixed.into_iter().flat_map(with_mobiles).collect()
    }
}

/// The prefix of a network and its mask, with IPv4 as `::ffff:0:0/96`.
fn prefix(network: &Network) -> (u128, u128) {
    let (address, bits) = network.mapped();
    (address.to_bits(), prefix_mask(bits))
}

/// The number of the first invalid rule, from 1, and what is expected.
pub(super) fn problem(rules: &[FlowRule]) -> Option<(usize, String)> {
    let mut selectors = 0;
    rules.iter().zip(1..).find_map(|(rule, number)| {
        if rule.mode == Mode::Thesis {
            let problem =
                "mode: \"thesis\" has one queue for each mobile host: set it for a network in [mobiles.modes]";
            return Some((number, problem.to_owned()));
        }
        selectors += rule.selectors().len();
        let is_too_long = selectors > MOST_SELECTORS;
        is_too_long
            .then(|| (number, format!("the rules have more than {MOST_SELECTORS} combinations of networks and ports")))
    })
}

/// The rules as used.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct FlowModes {
    rules: Vec<FlowMode>,
    /// The treatments of the links after the own one.
    treatments: Vec<Treatment>,
}

/// A rule as used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FlowMode {
    /// One for each combination of its networks and ports.
    pub(crate) selectors: Vec<Selector>,
    pub(crate) mode: Mode,
    /// The number of the link of its connections; `None` if nothing is done for their ACKs.
    pub(crate) link: Option<u8>,
}

impl FlowModes {
    /// The rules of a configuration.
    pub(crate) fn new(config: &Config) -> Self {
        let mut treatments: Vec<Treatment> = Vec::new();
        let mut link_of = |treatment: Treatment| {
            if treatment == Treatment::Nothing {
                return None;
            }
            let place = treatments.iter().position(|known| *known == treatment).unwrap_or_else(|| {
                treatments.push(treatment);
                treatments.len() - 1
            });
            Some(place as u8 + 1)
        };
        let rules = config
            .flow
            .iter()
            .map(|rule| FlowMode {
                selectors: rule.selectors(),
                mode: rule.mode,
                link: link_of(config.treatment(rule.mode)),
            })
            .collect();
        // Modes have three treatments other than none.
        debug_assert!(treatments.len() < MOST_LINKS, "{treatments:?}");
        Self { rules, treatments }
    }

    pub(crate) fn rules(&self) -> &[FlowMode] {
        &self.rules
    }

    /// The mode that a rule chooses for a connection.
    pub(crate) fn mode_of(&self, connection: Connection) -> Option<Mode> {
        self.first_rule(connection).map(|rule| rule.mode)
    }

    /// The number of the link of a connection, whose remote end is the mobile host's; `None` if nothing is done for its
    /// ACKs. The programs decide by the same selectors, in the same C.
    pub(crate) fn link_of(&self, connection: Connection) -> Option<u8> {
        if self.rules.is_empty() {
            return Some(OWN_LINK);
        }
        self.first_rule(connection).map_or(Some(OWN_LINK), |rule| rule.link)
    }

    fn first_rule(&self, connection: Connection) -> Option<&FlowMode> {
        let ends = Ends::new(connection);
        self.rules.iter().find(|rule| rule.selectors.iter().any(|selector| selector.selects(&ends)))
    }

    /// The numbers of all links of a mobile host.
    pub(crate) fn links(&self) -> impl Iterator<Item = u8> + use<> {
        OWN_LINK..=self.treatments.len() as u8
    }

    /// The treatment of connections over a link of a mobile host.
    pub(crate) fn treatment(&self, link: u8, config: &Config, mobile: IpAddr) -> Treatment {
        let chosen = usize::from(link).checked_sub(1).and_then(|place| self.treatments.get(place));
        chosen.copied().unwrap_or_else(|| config.treatment(config.mode_of(mobile)))
    }

    /// The treatments that rules choose, by the number of their links.
    pub(crate) fn chosen(&self) -> impl Iterator<Item = (u8, Treatment)> {
        (1..).zip(self.treatments.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes(text: &str) -> FlowModes {
        FlowModes::new(&toml::from_str(text).unwrap())
    }

    fn connection(fixed: &str, mobile: &str) -> Connection {
        Connection { local: fixed.parse().unwrap(), remote: mobile.parse().unwrap() }
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let modes = modes(
            "[[flow]]\nfixed_port = [22, \"5000-5999\"]\nmode = \"freeze\"\n\
             [[flow]]\nfixed = [\"192.0.2.0/24\", \"2001:db8::/32\"]\nmobile = [\"10.0.0.7\", \"fd00::/8\"]\nmode = \"observe\"\n\
             [[flow]]\nmobile_port = 80\nmode = \"buffer-freeze\"\n\
             [[flow]]\nfixed_port = 5201\nmode = \"m-tcp\"\n[[flow]]\nfixed_port = 5202\nmode = \"split\"\n",
        );
        for (fixed, mobile, link) in [
            ("198.51.100.1:22", "10.0.0.1:4000", Some(1)),
            ("192.0.2.1:5999", "10.0.0.7:4000", Some(1)),
            ("192.0.2.1:443", "10.0.0.7:4000", None),
            ("192.0.2.1:443", "10.0.0.8:4000", Some(OWN_LINK)),
            ("[2001:db8::1]:443", "[fd00::7]:4000", None),
            ("198.51.100.1:443", "10.0.0.1:80", Some(1)),
            // An earlier rule has the port.
            ("198.51.100.1:5201", "10.0.0.1:4000", Some(1)),
            ("198.51.100.1:4999", "10.0.0.1:4000", Some(OWN_LINK)),
        ] {
            assert_eq!(modes.link_of(connection(fixed, mobile)), link, "{fixed} {mobile}");
        }
        assert_eq!(modes.links().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(
            modes.rules().iter().map(|rule| rule.link).collect::<Vec<_>>(),
            [Some(1), None, Some(1), Some(2), Some(3)]
        );
        assert_eq!(modes.rules().iter().map(|rule| rule.selectors.len()).collect::<Vec<_>>(), [2, 4, 1, 1, 1]);
        assert_eq!(modes.chosen().map(|(link, _)| link).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn without_rules_every_connection_has_the_mode_of_its_host() {
        let modes = modes("[mobiles]\nmode = \"freeze\"\n");
        assert_eq!(modes, FlowModes::default());
        assert_eq!(modes.link_of(connection("192.0.2.1:443", "10.0.0.7:4000")), Some(OWN_LINK));
        assert_eq!(modes.links().count(), 1);
    }
}
