//! Warnings about mechanisms that find no connection or none of the kind that they act on, or that wait for an outage that no flow meets.
//!
//! They are not errors: `host.*` gives mechanisms to all hosts, and an experiment may show what encryption prevents.

use holdover_base::Instant;
use holdover_gateway::daemon::Mode;
use holdover_gateway::{Mechanisms, WarningSign};
use holdover_link::{Length, Outages};
use holdover_sim::{FlowConfig, GatewayMechanisms, HostMechanisms, LinkBetween, NodeId, Traffic, WorldConfig};

use super::acts::{goes_down, hears_link_events};
use crate::file::{self, ScenarioFile};

/// Warnings about a checked `file`, from which `config` was built.
pub(crate) fn warnings(file: &ScenarioFile, config: &WorldConfig) -> Vec<String> {
    // Without any flow the connections are those of programs.
    if config.flows.is_empty() {
        return Vec::new();
    }
    let of_hosts = config.mechanisms.iter().flat_map(|host| of_host(host, config));
    let of_routers = config.gateways.iter().flat_map(|gateway| of_router(gateway, config));
    let of_outages = outages_without_flows(config);
    hosts_without_flows(file, config).into_iter().chain(of_hosts).chain(of_routers).chain(of_outages).collect()
}

fn hosts_without_flows(file: &ScenarioFile, config: &WorldConfig) -> Vec<String> {
    let why = |index: usize| {
        let mut own = config.flows.iter().filter(|flow| is_end(NodeId(index as u32), flow)).peekable();
        match own.peek() {
            None => Some("no flow begins or ends at it"),
            Some(_) => (!own.any(is_tcp)).then_some("no flow of it is TCP"),
        }
    };
    let has_any =
        |host: &file::Host| host.mechanisms.as_ref().is_some_and(|table| *table != file::Mechanisms::default());
    let with_any = file.hosts.iter().enumerate().filter(|(_, host)| has_any(host));
    let idle = with_any.filter_map(|(index, host)| Some((host, why(index)?)));
    idle.map(|(host, why)| format!("the mechanisms of host \"{}\" can never act: {why}", host.name)).collect()
}

/// Warnings about links whose outages no flow meets, in a world with mechanisms.
fn outages_without_flows(config: &WorldConfig) -> Vec<String> {
    if config.mechanisms.is_empty() && config.gateways.is_empty() {
        return Vec::new();
    }
    let first_start = config.flows.iter().map(|flow| flow.start).min().unwrap_or_default();
    let why = |link: &LinkBetween| match &link.forward.outages {
        Outages::List(list) if list.iter().all(|outage| outage.up <= first_start) && !list.is_empty() => {
            Some("they are over when the first flow begins")
        }
        outages if first_down(outages).is_some_and(|down| down >= config.time_limit) => {
            Some("the run is over when the first one begins")
        }
        _ => None,
    };
    let unmet = config.links.iter().filter_map(|link| Some((link, why(link)?)));
    unmet.map(|(link, why)| format!("no mechanism can act at the outages of link \"{}\": {why}", link.name)).collect()
}

/// When a link goes down first, if that is fixed.
fn first_down(outages: &Outages) -> Option<Instant> {
    match outages {
        Outages::Never => None,
        Outages::List(list) => list.first().map(|outage| outage.down),
        Outages::Alternating(of) => match (of.initial_connected, of.connected) {
            (Some(connected), _) | (None, Length::Constant(connected)) => Some(Instant::ZERO + connected),
            _ => None,
        },
    }
}

fn of_host(host: &HostMechanisms, config: &WorldConfig) -> Vec<String> {
    let HostMechanisms { node, mechanisms, .. } = host;
    let own: Vec<&FlowConfig> = config.flows.iter().filter(|flow| is_end(*node, flow) && is_tcp(flow)).collect();
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
    let idle = idle.map(|(key, _, why)| format!("`{key}` of host \"{}\" can never act: {why}", name(*node, config)));
    idle.chain(withholding_for_nothing(host, config)).collect()
}

/// Warnings about mechanisms that withhold ACKs, and never release them to an effect.
fn withholding_for_nothing(host: &HostMechanisms, config: &WorldConfig) -> impl Iterator<Item = String> {
    let HostMechanisms { node, mechanisms, .. } = host;
    let withholding = [("wake", mechanisms.wake), ("hold_back", mechanisms.hold_back.is_some())];
    let hears = hears_link_events(*node, config) || mechanisms.silence.is_some() && goes_down(config);
    let key = withholding.into_iter().find(|(_, is_on)| *is_on && !hears);
    let holds = key.map(|(key, _)| {
        let why = "no link of this host has outages, and it does not move";
        format!("`{key}` of host \"{}\" withholds ACKs and can never wake a sender: {why}", name(*node, config))
    });
    let delays = mechanisms.delayed_dupacks.is_some() && !has_repaired_losses(*node, config);
    let delays = delays.then(|| {
        let why = "no link retransmits out of order, by \"arq\" without \"in_order\", and no router has `snoop` for it";
        let name = name(*node, config);
        format!("`delayed_dupacks` of host \"{name}\" delays duplicate ACKs without preventing a retransmission: {why}")
    });
    holds.into_iter().chain(delays)
}

/// Whether a link or a router may fill a hole that has caused duplicate ACKs of a host. A link that keeps frames in order causes none, nor does
/// the medium of a radio cell. Any link counts, as routing decides which ones the host's data takes.
fn has_repaired_losses(node: NodeId, config: &WorldConfig) -> bool {
    let repairs = |link: &LinkBetween| {
        [&link.forward, &link.backward].into_iter().any(|way| way.arq.is_some_and(|arq| !arq.in_order))
    };
    let snoops = |gateway: &GatewayMechanisms| gateway.mechanisms.snoop.is_some() && gateway.mobiles.contains(&node);
    config.links.iter().any(repairs) || config.gateways.iter().any(snoops)
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
    if !flows.iter().any(|flow| is_tcp(flow)) {
        let why = "no flow of a mobile host that it looks after is TCP";
        reading_headers(mechanisms).into_iter().for_each(|key| warn(key, why));
    } else if flows.iter().all(is_encrypted) {
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

/// The mechanisms that do nothing for packets without a TCP header, or with one that they cannot read.
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

fn is_tcp(flow: &FlowConfig) -> bool {
    !matches!(flow.traffic, Traffic::OnOff(_))
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
