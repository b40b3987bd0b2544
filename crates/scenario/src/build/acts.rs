//! Mechanisms without effect in their world.

use holdover_gateway::WarningSign;
use holdover_link::Outages;
use holdover_sim::{Attachment, GatewayMechanisms, HostMechanisms, LinkBetween, NodeId, WorldConfig};

use crate::file::{self, ScenarioFile};
use crate::problem::{Problem, Under};

/// Checks that each mechanism of `file`, from which `config` was built, can act.
pub(crate) fn check(file: &ScenarioFile, config: &WorldConfig) -> Result<(), Problem> {
    for (index, host) in file.hosts.iter().enumerate() {
        let Some(table) = &host.mechanisms else { continue };
        let is_warned = config.mechanisms.iter().any(|of| of.node == NodeId(index as u32) && of.foresight.is_some())
            || config.mobiles.iter().any(|mobile| mobile.node == NodeId(index as u32) && mobile.prediction.is_some());
        of_host(table, index, is_warned, config).under("mechanisms").under_index(index).under("host")?;
    }
    for gateway in &config.gateways {
        let index = gateway.node.0 as usize - file.hosts.len();
        of_router(gateway, config).under("mechanisms").under_index(index).under("router")?;
    }
    Ok(())
}

/// Warnings about hosts whose mechanisms have no connection to act on. They are not errors, as `host.*` gives mechanisms to all hosts.
pub(crate) fn hosts_without_flows(file: &ScenarioFile, config: &WorldConfig) -> Vec<String> {
    // Without any flow the connections are those of programs.
    if config.flows.is_empty() {
        return Vec::new();
    }
    let is_idle = |index: usize| {
        let node = NodeId(index as u32);
        !config.flows.iter().any(|flow| flow.from == node || flow.to == node)
    };
    let has_any =
        |host: &file::Host| host.mechanisms.as_ref().is_some_and(|table| *table != file::Mechanisms::default());
    let idle = file.hosts.iter().enumerate().filter(|&(index, host)| has_any(host) && is_idle(index));
    idle.map(|(_, host)| {
        format!("the mechanisms of host \"{}\" can never act: no flow begins or ends at it", host.name)
    })
    .collect()
}

fn of_host(table: &file::Mechanisms, index: usize, is_warned: bool, config: &WorldConfig) -> Result<(), Problem> {
    let node = NodeId(index as u32);
    if !is_warned {
        let why = "nothing warns this host; its \"foresight\", or the \"prediction\" of a mobile host, would";
        if table.freeze.is_some() {
            return never("freeze", why);
        }
        if table.ack_stall.is_some() {
            return never("ack_stall", why);
        }
    }
    of_link_events(table, node, config)?;
    of_peers(table, node, config)
}

/// Checks the mechanisms that act when a link goes down or comes up.
fn of_link_events(table: &file::Mechanisms, node: NodeId, config: &WorldConfig) -> Result<(), Problem> {
    let of_own_links = [
        ("reconnect_acks", table.reconnect_acks.is_some()),
        ("freeze", table.freeze.is_some()),
        ("timestamp_echo", table.timestamp_echo.is_some()),
        ("new_cell_window", table.new_cell_window.is_some()),
        ("fast_retransmit", table.fast_retransmit.is_some()),
        ("ack_stall", table.ack_stall.is_some()),
        ("unreachable_poke", table.unreachable_poke.is_some()),
    ];
    let first = of_own_links.into_iter().find(|(_, is_on)| *is_on).map(|(key, _)| key);
    if !goes_down(config) {
        let first = first.or_else(|| table.user_timeout.is_some().then_some("user_timeout"));
        return first.map_or(Ok(()), |key| never(key, "no link has outages, and no host moves"));
    }
    match first {
        Some(key) if !loses_its_link(node, config) => {
            never(key, "no link of this host has outages, and it does not move")
        }
        _ => Ok(()),
    }
}

/// Checks the mechanisms that need a counterpart.
fn of_peers(table: &file::Mechanisms, node: NodeId, config: &WorldConfig) -> Result<(), Problem> {
    let notifies = |gateway: &GatewayMechanisms| gateway.mechanisms.ebsn.is_some();
    let splits = |gateway: &GatewayMechanisms| gateway.mechanisms.srp.is_some() && gateway.mobiles.contains(&node);
    if table.srp.is_some() && !config.gateways.iter().any(splits) {
        return never("srp", "no router that looks after this host has `srp`");
    }
    if table.ebsn.is_some() && !config.gateways.iter().any(notifies) {
        return never("ebsn", "no router has `ebsn`, so none notifies this host");
    }
    if config.flows.is_empty() {
        return Ok(());
    }
    let mut flows = config.flows.iter().filter(|flow| flow.from == node || flow.to == node);
    let probes = |peer: NodeId| of_node(peer, config).is_some_and(|of| of.mechanisms.probe.is_some());
    if table.probe.is_some() && !flows.any(|flow| probes(if flow.from == node { flow.to } else { flow.from })) {
        return never("probe", "no host at the other end of a flow has `probe`");
    }
    Ok(())
}

fn of_router(gateway: &GatewayMechanisms, config: &WorldConfig) -> Result<(), Problem> {
    if gateway.mechanisms.srp.is_some() {
        speaks_srp(gateway, config)?;
    }
    hears_of_hosts(gateway, config)?;
    hears_signs(gateway, config)?;
    if gateway.mechanisms.ebsn.is_some() { notifies_senders(gateway, config) } else { Ok(()) }
}

/// Checks that a router with mechanisms of presence gets reports: from its link layer, or by registrations.
fn hears_of_hosts(gateway: &GatewayMechanisms, config: &WorldConfig) -> Result<(), Problem> {
    let mechanisms = &gateway.mechanisms;
    let registers = gateway.mobiles.iter().any(|&node| registers_at(node, gateway.node, config));
    if mechanisms.copy_and_forward.is_some() && !registers {
        return never("copy_and_forward", "no mobile host registers at this router, so the copies are never sent");
    }
    if gateway.hears_links || registers {
        return Ok(());
    }
    let why = "\"hears_links\" is false and no mobile host registers at this router, so it hears of none";
    for (key, is_on) in [("supervisor", mechanisms.supervisor.is_some()), ("tawcf", mechanisms.tawcf.is_some())] {
        if is_on {
            return never(key, why);
        }
    }
    Ok(())
}

/// Checks that mechanisms that wait for a mobile host's sign serve a host that sends it.
fn hears_signs(gateway: &GatewayMechanisms, config: &WorldConfig) -> Result<(), Problem> {
    let mechanisms = &gateway.mechanisms;
    let blocking = mechanisms.blocking_buffer.as_ref().map(|of| ("blocking_buffer", of.sign));
    let copying = mechanisms.copy_and_forward.as_ref().map(|of| ("copy_and_forward", of.sign));
    for (key, sign) in [blocking, copying].into_iter().flatten() {
        let freezes = |&node: &NodeId| of_node(node, config).and_then(|of| of.mechanisms.freeze.as_ref());
        let mut frozen = gateway.mobiles.iter().filter_map(freezes);
        // Any host may advertise a window of zero: one whose application reads slowly does.
        if sign == WarningSign::IpFlag && !frozen.any(|freeze| freeze.ip_flag) {
            return never(
                key,
                "it waits for the flag in the IP header, and none of its mobile hosts has `freeze.ip_flag`",
            );
        }
    }
    Ok(())
}

/// Checks that EBSN's notifications are sent, and reach a host that reacts to them.
fn notifies_senders(gateway: &GatewayMechanisms, config: &WorldConfig) -> Result<(), Problem> {
    let leads_to_mobile = |link: &LinkBetween| {
        let is_mobile = |node| gateway.mobiles.contains(&node);
        (link.a == gateway.node && is_mobile(link.b) && link.forward.arq.is_some())
            || (link.b == gateway.node && is_mobile(link.a) && link.backward.arq.is_some())
    };
    if !config.links.iter().any(leads_to_mobile) {
        let why = "no link between this router and a mobile host has \"arq\", so no attempt is told as failed";
        return never("ebsn", why);
    }
    let reacts = |node: NodeId| of_node(node, config).is_some_and(|of| of.mechanisms.ebsn.is_some());
    if !config.flows.iter().any(|flow| gateway.mobiles.contains(&flow.to) && reacts(flow.from)) {
        return never("ebsn", "no host that sends to its mobile hosts has `ebsn`, so each ignores the notifications");
    }
    if !gateway.hears_links {
        return never("ebsn", "\"hears_links\" is false, so its link layer tells it nothing");
    }
    Ok(())
}

/// Checks that each mobile host with a flow supports MTCP/SRP as the router's peer.
fn speaks_srp(gateway: &GatewayMechanisms, config: &WorldConfig) -> Result<(), Problem> {
    let speaks = |node: NodeId| of_node(node, config).is_some_and(|of| of.mechanisms.srp.is_some());
    let has_flow = |node: NodeId| config.flows.iter().any(|flow| flow.from == node || flow.to == node);
    match gateway.mobiles.iter().find(|&&node| has_flow(node) && !speaks(node)) {
        Some(&mute) => {
            let name = config.nodes.get(mute.0 as usize).map_or("?", |node| node.name.as_str());
            let message = format!("the mobile host \"{name}\" has no `srp`, so it would never be connected to");
            Err(Problem::conflict(message).under("srp"))
        }
        None => Ok(()),
    }
}

fn never(key: &str, why: &str) -> Result<(), Problem> {
    Err(Problem::conflict(format!("it can never act: {why}")).under(key))
}

/// The mechanisms of a host.
fn of_node(node: NodeId, config: &WorldConfig) -> Option<&HostMechanisms> {
    config.mechanisms.iter().find(|of| of.node == node)
}

/// Whether a mobile host registers at a router.
fn registers_at(node: NodeId, router: NodeId, config: &WorldConfig) -> bool {
    config.mobiles.iter().any(|mobile| {
        let registers = matches!(&mobile.attachment, Attachment::Registration(of) if of.gateway == router);
        mobile.node == node && registers
    })
}

/// Whether the description contains any loss of connectivity.
fn goes_down(config: &WorldConfig) -> bool {
    !config.mobiles.is_empty() || config.links.iter().any(has_outages)
}

/// Whether a host moves, or a link of its own has outages.
fn loses_its_link(node: NodeId, config: &WorldConfig) -> bool {
    let own = |link: &&LinkBetween| link.a == node || link.b == node;
    config.mobiles.iter().any(|mobile| mobile.node == node) || config.links.iter().filter(own).any(has_outages)
}

fn has_outages(link: &LinkBetween) -> bool {
    let directions = [&link.forward, &link.backward];
    directions.iter().any(|direction| direction.outages != Outages::Never || direction.conditions.is_some())
}
