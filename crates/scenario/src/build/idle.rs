//! Warnings about mechanisms that find no connection, or none of the kind that they act on.
//!
//! They are no errors: `host.*` gives mechanisms to all hosts, and an experiment may show what encryption prevents.

use holdover_gateway::daemon::Mode;
use holdover_gateway::{Mechanisms, WarningSign};
use holdover_sim::{FlowConfig, GatewayMechanisms, HostMechanisms, NodeId, Traffic, WorldConfig};

use crate::file::{self, ScenarioFile};

/// Warnings about a checked `file`, from which `config` was built.
pub(crate) fn warnings(file: &ScenarioFile, config: &WorldConfig) -> Vec<String> {
    // Without any flow the connections are those of programs.
    if config.flows.is_empty() {
        return Vec::new();
    }
    let of_hosts = config.mechanisms.iter().flat_map(|host| of_host(host, config));
    let of_routers = config.gateways.iter().flat_map(|gateway| of_router(gateway, config));
    hosts_without_flows(file, config).into_iter().chain(of_hosts).chain(of_routers).collect()
}

fn hosts_without_flows(file: &ScenarioFile, config: &WorldConfig) -> Vec<String> {
    let is_idle = |index: usize| !config.flows.iter().any(|flow| is_end(NodeId(index as u32), flow));
    let has_any =
        |host: &file::Host| host.mechanisms.as_ref().is_some_and(|table| *table != file::Mechanisms::default());
    let idle = file.hosts.iter().enumerate().filter(|&(index, host)| has_any(host) && is_idle(index));
    idle.map(|(_, host)| {
        format!("the mechanisms of host \"{}\" can never act: no flow begins or ends at it", host.name)
    })
    .collect()
}

fn of_host(host: &HostMechanisms, config: &WorldConfig) -> Vec<String> {
    let HostMechanisms { node, mechanisms, .. } = host;
    let own: Vec<&FlowConfig> = config.flows.iter().filter(|flow| is_end(*node, flow)).collect();
    // There is a warning about all of its mechanisms already.
    if own.is_empty() {
        return Vec::new();
    }
    let is_notified = |flow: &&FlowConfig| {
        let notifies = |gateway: &GatewayMechanisms| {
            gateway.mechanisms.ebsn.is_some() && gateway.mobiles.iter().any(|&mobile| brings_data(flow, mobile))
        };
        sends_data(flow, *node) && config.gateways.iter().any(notifies)
    };
    let has_timestamps = |flow: &&FlowConfig| flow.sender.timestamps.is_some() && flow.receiver.timestamps.is_some();
    let gets_data = own.iter().any(|flow| brings_data(flow, *node));
    let idle = [
        ("freeze", mechanisms.freeze.is_some() && !gets_data, "no flow brings data to it"),
        ("delayed_dupacks", mechanisms.delayed_dupacks.is_some() && !gets_data, "no flow brings data to it"),
        (
            "timestamp_echo",
            mechanisms.timestamp_echo.is_some() && !own.iter().any(has_timestamps),
            "no flow of it has timestamps at both ends",
        ),
        (
            "ebsn",
            mechanisms.ebsn.is_some() && !own.iter().any(is_notified),
            "it sends no data to a mobile host of a router with `ebsn`",
        ),
    ];
    let idle = idle.into_iter().filter(|(_, is_idle, _)| *is_idle);
    idle.map(|(key, _, why)| format!("`{key}` of host \"{}\" can never act: {why}", name(*node, config))).collect()
}

fn of_router(gateway: &GatewayMechanisms, config: &WorldConfig) -> Vec<String> {
    let mobiles = &gateway.mobiles;
    let flows: Vec<&FlowConfig> =
        config.flows.iter().filter(|flow| mobiles.iter().any(|&mobile| is_end(mobile, flow))).collect();
    if flows.is_empty() {
        return Vec::new();
    }
    let brings_data = |flow: &&FlowConfig| mobiles.iter().any(|&mobile| brings_data(flow, mobile));
    let is_encrypted = |flow: &&FlowConfig| has_identity(flow.from, config) && has_identity(flow.to, config);
    let freezes =
        |mobile: &NodeId| config.mechanisms.iter().any(|host| host.node == *mobile && host.mechanisms.freeze.is_some());
    let mut warnings = Vec::new();
    let mut warn = |key: &str, why: &str| {
        let name = name(gateway.node, config);
        warnings.push(format!("`{key}` of router \"{name}\" can never act: {why}"));
    };
    let mechanisms = &gateway.mechanisms;
    if flows.iter().all(is_encrypted) {
        let why = "the hosts at both ends of each flow have an identity, so that it sees no TCP header";
        reading_headers(mechanisms).into_iter().for_each(|key| warn(key, why));
    } else if !flows.iter().any(brings_data) {
        let why = "no flow brings data to a mobile host that it looks after";
        handling_data(mechanisms).into_iter().for_each(|key| warn(key, why));
    } else if !mobiles.iter().any(freezes) {
        let why = "it waits for a window of zero, and none of its mobile hosts has `freeze`: only one whose application \
                   does not read would close its window";
        waiting_for_windows(mechanisms).into_iter().for_each(|key| warn(key, why));
    }
    warnings
}

/// The mechanisms that do nothing for packets whose TCP headers they cannot read.
fn reading_headers(of: &Mechanisms) -> Vec<&'static str> {
    let all = [
        // The other modes queue packets of any kind.
        ("gateway", of.daemon.as_ref().is_some_and(|daemon| !daemon.mode.diverts() || daemon.mode == Mode::Thesis)),
        ("supervisor", of.supervisor.is_some()),
        ("buffer_freeze", of.buffer_freeze.is_some()),
        ("split", of.split.is_some()),
        ("m_tcp", of.m_tcp.is_some()),
        ("srp", of.srp.is_some()),
        ("snoop", of.snoop.is_some()),
        ("tawcf", of.tawcf.is_some()),
        ("ebsn", of.ebsn.is_some()),
        ("blocking_buffer", of.blocking_buffer.is_some()),
        ("copy_and_forward", of.copy_and_forward.is_some()),
    ];
    those_on(&all)
}

/// The mechanisms that handle data on its way to the mobile host only.
fn handling_data(of: &Mechanisms) -> Vec<&'static str> {
    let all = [
        ("supervisor", of.supervisor.is_some()),
        ("buffer_freeze", of.buffer_freeze.is_some()),
        ("snoop", of.snoop.is_some()),
        ("blocking_buffer", of.blocking_buffer.is_some()),
        ("copy_and_forward", of.copy_and_forward.is_some()),
    ];
    those_on(&all)
}

/// The mechanisms that wait for a mobile host's window of zero.
fn waiting_for_windows(of: &Mechanisms) -> Vec<&'static str> {
    let is_window = |sign: WarningSign| sign == WarningSign::Window;
    let all = [
        ("blocking_buffer", of.blocking_buffer.is_some_and(|of| is_window(of.sign))),
        ("copy_and_forward", of.copy_and_forward.is_some_and(|of| is_window(of.sign))),
    ];
    those_on(&all)
}

fn those_on(all: &[(&'static str, bool)]) -> Vec<&'static str> {
    all.iter().filter(|(_, is_on)| *is_on).map(|(key, _)| *key).collect()
}

fn is_end(node: NodeId, flow: &FlowConfig) -> bool {
    flow.from == node || flow.to == node
}

/// Whether a flow brings data of TCP to a host.
fn brings_data(flow: &FlowConfig, node: NodeId) -> bool {
    match flow.traffic {
        Traffic::Bulk(_) => flow.to == node,
        Traffic::RequestResponse(_) => is_end(node, flow),
        Traffic::OnOff(_) => false,
    }
}

/// Whether a host sends data of TCP in a flow.
fn sends_data(flow: &FlowConfig, node: NodeId) -> bool {
    match flow.traffic {
        Traffic::Bulk(_) => flow.from == node,
        Traffic::RequestResponse(_) => is_end(node, flow),
        Traffic::OnOff(_) => false,
    }
}

fn has_identity(node: NodeId, config: &WorldConfig) -> bool {
    config.addressing.iter().any(|of| of.node == node && of.identity.is_some())
}

fn name(node: NodeId, config: &WorldConfig) -> &str {
    config.nodes.get(node.0 as usize).map_or("?", |node| node.name.as_str())
}
