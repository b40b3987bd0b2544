//! Initial state of the engine, from its configuration.

use holdover_flow::{Holds, LinkState};
use holdover_gateway::daemon::Controller;
use holdover_gateway::divert::Diverter;
use holdover_host::Requests;

use super::EngineError;
use super::echo::Echo;
use crate::config::{Config, FlowModes, Mode, ModeNetworks};
use crate::interface::{Interface, InterfaceError};
use crate::network::Network;
use crate::packet_files::Stored;
use crate::path::{FlowPlace, ThesisPlace};

/// The link to a new mobile host. If modes differ, nothing is held before its mode is known.
pub(super) fn first_link(config: &Config) -> LinkState {
    if config.has_one_mode() {
        Controller::new(config.treatment(config.mobiles.mode)).link_state()
    } else {
        LinkState { holds: Holds::Nothing, ..LinkState::default() }
    }
}

/// The programs' settings of rules for single connections; `None` without rules.
pub(super) fn flows(config: &Config) -> Option<FlowPlace> {
    let modes = FlowModes::new(config);
    let links = modes.chosen().map(|(_, treatment)| Controller::new(treatment).link_state()).collect();
    (!modes.rules().is_empty()).then_some(FlowPlace { modes, links })
}

pub(super) fn diverter(config: &Config) -> Diverter<Stored> {
    let mut diverter = Diverter::new(config.diverter());
    for (network, mode) in config.modes_of_networks() {
        diverter.set_network(network.address(), network.bits(), config.diversion(mode));
    }
    diverter.set_others(config.diversion(config.mobiles.mode));
    diverter
}

/// The programs' settings of mode `thesis`; `None` if no mobile host has it.
pub(super) fn thesis(config: &Config, served: &[(Network, bool)]) -> Option<ThesisPlace> {
    let sign = config.sign()?;
    let hosts = ModeNetworks::new(config, served, |mode| mode == Mode::Thesis);
    Some(ThesisPlace { sign, networks: hosts.as_slice().to_vec() })
}

/// Probes by ICMP echo, where there is no address resolution.
pub(super) fn echo(interface: &Interface, config: &Config) -> std::io::Result<Option<Echo>> {
    let is_used = config.presence.silence && !interface.has_ethernet();
    is_used.then(|| Echo::open(&interface.name)).transpose()
}

/// The networks of mobile hosts (true) and their exceptions (false). The router itself is an exception.
pub(super) fn networks(
    interface: &Interface,
    requests: &mut Requests,
    config: &Config,
) -> Result<Vec<(Network, bool)>, EngineError> {
    let mut networks = config.mobiles.networks.clone();
    if networks.is_empty() {
        networks = interface.networks(requests).map_err(InterfaceError::Netlink)?;
        let prefixes = &config.mobiles.prefixes;
        let part = networks.iter().find_map(|network| Some((network, prefixes.host_around(network)?)));
        if let Some((&network, (of, bits))) = part {
            return Err(EngineError::PartOfHost { interface: interface.name.clone(), network, of, bits });
        }
    }
    networks.extend(config.mobiles.prefixes.networks());
    if networks.is_empty() {
        return Err(EngineError::NoNetworks { interface: interface.name.clone() });
    }
    let exceptions = config.mobiles.exclude.iter().map(|&network| (network, false));
    Ok(networks.into_iter().map(|network| (network, true)).chain(exceptions).collect())
}
