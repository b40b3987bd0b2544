//! Mechanisms without effect in their world.

use holdover_link::Outages;
use holdover_sim::{GatewayMechanisms, LinkBetween, NodeId, WorldConfig};

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

fn of_host(table: &file::Mechanisms, index: usize, is_warned: bool, config: &WorldConfig) -> Result<(), Problem> {
    let never = |key: &str, why: &str| Err(Problem::conflict(format!("it can never act: {why}")).under(key));
    if !is_warned {
        let why = "nothing warns this host; its \"foresight\", or the \"prediction\" of a mobile host, would";
        if table.freeze.is_some() {
            return never("freeze", why);
        }
        if table.ack_stall.is_some() {
            return never("ack_stall", why);
        }
    }
    let of_link_events = [
        ("reconnect_acks", table.reconnect_acks.is_some()),
        ("freeze", table.freeze.is_some()),
        ("timestamp_echo", table.timestamp_echo.is_some()),
        ("user_timeout", table.user_timeout.is_some()),
        ("new_cell_window", table.new_cell_window.is_some()),
        ("fast_retransmit", table.fast_retransmit.is_some()),
        ("ack_stall", table.ack_stall.is_some()),
        ("unreachable_poke", table.unreachable_poke.is_some()),
    ];
    if !goes_down(config)
        && let Some((key, _)) = of_link_events.into_iter().find(|(_, is_on)| *is_on)
    {
        return never(key, "no link has outages, and no host moves");
    }
    let notifies = |gateway: &GatewayMechanisms| gateway.mechanisms.ebsn.is_some();
    let node = NodeId(index as u32);
    let splits = |gateway: &GatewayMechanisms| gateway.mechanisms.srp.is_some() && gateway.mobiles.contains(&node);
    if table.srp.is_some() && !config.gateways.iter().any(splits) {
        return never("srp", "no router that looks after this host has `srp`");
    }
    if table.ebsn.is_some() && !config.gateways.iter().any(notifies) {
        return never("ebsn", "no router has `ebsn`, so none notifies this host");
    }
    Ok(())
}

fn of_router(gateway: &GatewayMechanisms, config: &WorldConfig) -> Result<(), Problem> {
    if gateway.mechanisms.srp.is_some() {
        speaks_srp(gateway, config)?;
    }
    if gateway.mechanisms.ebsn.is_none() {
        return Ok(());
    }
    let never = |why: &str| Err(Problem::conflict(format!("it can never act: {why}")).under("ebsn"));
    let leads_to_mobile = |link: &LinkBetween| {
        let is_mobile = |node| gateway.mobiles.contains(&node);
        (link.a == gateway.node && is_mobile(link.b) && link.forward.arq.is_some())
            || (link.b == gateway.node && is_mobile(link.a) && link.backward.arq.is_some())
    };
    if !config.links.iter().any(leads_to_mobile) {
        return never("no link between this router and a mobile host has \"arq\", so no attempt is told as failed");
    }
    let obeys = |node: NodeId| config.mechanisms.iter().any(|of| of.node == node && of.mechanisms.ebsn.is_some());
    if !config.flows.iter().any(|flow| gateway.mobiles.contains(&flow.to) && obeys(flow.from)) {
        return never("no host that sends to its mobile hosts has `ebsn`, so each ignores the notifications");
    }
    if !gateway.hears_links {
        return never("\"hears_links\" is false, so its link layer tells it nothing");
    }
    Ok(())
}

/// Checks that each mobile host with a flow supports MTCP/SRP as the router's peer.
fn speaks_srp(gateway: &GatewayMechanisms, config: &WorldConfig) -> Result<(), Problem> {
    let speaks = |node: NodeId| config.mechanisms.iter().any(|of| of.node == node && of.mechanisms.srp.is_some());
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

/// Whether the description contains any loss of connectivity.
fn goes_down(config: &WorldConfig) -> bool {
    let has_outages = |link: &LinkBetween| {
        [&link.forward, &link.backward]
            .iter()
            .any(|direction| direction.outages != Outages::Never || direction.conditions.is_some())
    };
    !config.mobiles.is_empty() || config.links.iter().any(has_outages)
}
