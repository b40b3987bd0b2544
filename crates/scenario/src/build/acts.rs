//! Mechanisms without effect in their world.

use holdover_base::{Duration, Instant};
use holdover_gateway::WarningSign;
use holdover_gateway::daemon::Mode;
use holdover_link::Outages;
use holdover_mobility::Mechanisms;
use holdover_mobility::probe::ProbeConfig;
use holdover_mobility::retransmission_trigger::PeerTrigger;
use holdover_mobility::timestamp_echo::{Echo, Since};
use holdover_sim::{
    Attachment, GatewayMechanisms, HostMechanisms, LinkBetween, NodeId, Role, WorldConfig, neighbour_towards,
};

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
    let node = NodeId(index as u32);
    if !is_warned {
        without_warnings(table, node, config)?;
    }
    if table.release.is_some() && table.hold_back.is_none() && table.ack_stall.is_none() && table.wake.is_none() {
        return never(
            "release",
            "this host has neither `hold_back` nor `ack_stall` nor `wake`, and so withholds no ACKs",
        );
    }
    of_link_events(table, node, config)?;
    of_moves(table, node, config)?;
    of_peers(table, node, config)
}

/// Checks the mechanisms that need warnings, at a host that gets none.
fn without_warnings(table: &file::Mechanisms, node: NodeId, config: &WorldConfig) -> Result<(), Problem> {
    let why = "nothing warns this host; its \"foresight\", or the \"prediction\" of a mobile host, would";
    if table.freeze.is_some() {
        return never("freeze", why);
    }
    if table.ack_stall.is_some() {
        return never("ack_stall", why);
    }
    let echo = mechanisms_of(node, config).and_then(|of| of.timestamp_echo);
    match echo {
        Some(echo) if echo.since == Since::ZeroWindow && echo.echo == Echo::Own => {
            never("timestamp_echo", &format!("{why}. With \"since\" = \"last-ack\" it needs no warning"))
        }
        _ => Ok(()),
    }
}

/// Checks the mechanisms that act when a link goes down or comes up.
fn of_link_events(table: &file::Mechanisms, node: NodeId, config: &WorldConfig) -> Result<(), Problem> {
    let echo = mechanisms_of(node, config).and_then(|of| of.timestamp_echo);
    let (trigger, poke) = ("retransmission_trigger", "unreachable_poke");
    let of_events = [
        ("reconnect_acks", table.reconnect_acks.is_some()),
        ("freeze", table.freeze.is_some()),
        ("timestamp_echo", echo.is_some_and(|echo| echo.echo == Echo::Own)),
        ("user_timeout", table.user_timeout.is_some()),
        ("new_cell_window", table.new_cell_window.is_some()),
        ("fast_retransmit", table.fast_retransmit.is_some()),
        ("ack_stall", table.ack_stall.is_some()),
        (poke, table.unreachable_poke.is_some()),
        (trigger, table.retransmission_trigger.is_some()),
    ];
    let mut on = of_events.into_iter().filter(|(_, is_on)| *is_on).map(|(key, _)| key);
    if !goes_down(config) {
        return on.next().map_or(Ok(()), |key| never(key, "no link has outages, and no host moves"));
    }
    if hears_link_events(node, config) {
        return Ok(());
    }
    let detects_silence = mechanisms_of(node, config).is_some_and(|of| of.silence.is_some());
    let acts = |key| key == trigger && is_asked(node, config) || key == poke && detects_silence;
    match on.find(|&key| !acts(key)) {
        Some(key) => never(key, "no link of this host has outages, and it does not move"),
        None => Ok(()),
    }
}

/// Checks the mechanisms that act after a change of attachment only.
fn of_moves(table: &file::Mechanisms, node: NodeId, config: &WorldConfig) -> Result<(), Problem> {
    if hears_moves(node, config) {
        return Ok(());
    }
    let why = "this host does not move and has one link, and so always has the same attachment";
    if table.new_cell_window.is_some() {
        return never("new_cell_window", why);
    }
    let fast_retransmit = mechanisms_of(node, config).and_then(|of| of.fast_retransmit);
    if fast_retransmit.is_some_and(|of| of.only_moved) {
        let why = format!("{why}. With \"only_moved\" = false it acts at every return of the link");
        return never("fast_retransmit", &why);
    }
    Ok(())
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
    match probe_of(node, config) {
        Some(probe) if !config.flows.is_empty() => begins_to_probe(node, &probe, config),
        _ => Ok(()),
    }
}

/// Checks that PROBE begins at a host, or at a peer that has it, too.
fn begins_to_probe(node: NodeId, own: &ProbeConfig, config: &WorldConfig) -> Result<(), Problem> {
    let begins = |node: NodeId, probe: &ProbeConfig| {
        if probe.only_moved { hears_moves(node, config) } else { hears_link_events(node, config) }
    };
    let peers = peers(node, config);
    let mut probing = peers.iter().filter_map(|&peer| Some((peer, probe_of(peer, config)?))).peekable();
    if probing.peek().is_none() {
        return never("probe", "no host at the other end of a flow has `probe`");
    }
    if !begins(node, own) && !probing.any(|(peer, probe)| begins(peer, &probe)) {
        let why = "neither this host nor one at the other end of a flow ever has another attachment. With \"only_moved\" = \
                   false it acts at every return of a link";
        return never("probe", why);
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
    if registers || hears_links(gateway, config) {
        return Ok(());
    }
    let why = if gateway.hears_links {
        "no mobile host registers at this router, or has a link to it or moves in a cell of it, so it hears of none"
    } else {
        "\"hears_links\" is false and no mobile host registers at this router, so it hears of none"
    };
    let freezes = |&node: &NodeId| of_node(node, config).is_some_and(|of| of.mechanisms.freeze.is_some());
    // By itself, "m-tcp" finds that ACKs have stopped, and hosts with `freeze` show "thesis" their windows of zero.
    let needs_reports = |mode: Mode| match mode {
        Mode::Observe | Mode::MTcp => false,
        Mode::Thesis => !gateway.mobiles.iter().any(freezes),
        Mode::Buffer | Mode::Freeze | Mode::BufferFreeze | Mode::Split => true,
    };
    let of_reports = [
        ("gateway", mechanisms.daemon.as_ref().is_some_and(|daemon| needs_reports(daemon.mode))),
        ("supervisor", mechanisms.supervisor.is_some()),
        ("tawcf", mechanisms.tawcf.is_some()),
    ];
    match of_reports.into_iter().find(|(_, is_on)| *is_on) {
        Some((key, _)) => never(key, why),
        None => Ok(()),
    }
}

/// Whether a router's link layer reports a mobile host: as its base station, as the other end of its link, or as that of the router in front
/// of it.
fn hears_links(gateway: &GatewayMechanisms, config: &WorldConfig) -> bool {
    let is_base = config.cells.iter().any(|cell| cell.base == gateway.node);
    let joins = |link: &LinkBetween, node: NodeId| [(link.a, link.b), (link.b, link.a)].contains(&(gateway.node, node));
    let comes_and_goes =
        |router: NodeId| config.links.iter().any(|link| joins(link, router) && link.forward.outages != Outages::Never);
    let is_near = |&node: &NodeId| {
        let is_behind = || neighbour_towards(config, gateway.node, node).is_some_and(comes_and_goes);
        config.links.iter().any(|link| joins(link, node))
            || is_behind()
            || is_base && config.mobiles.iter().any(|mobile| mobile.node == node)
    };
    gateway.hears_links && gateway.mobiles.iter().any(is_near)
}

/// Checks that mechanisms that wait for a mobile host's sign serve a host that sends it.
fn hears_signs(gateway: &GatewayMechanisms, config: &WorldConfig) -> Result<(), Problem> {
    let mechanisms = &gateway.mechanisms;
    let blocking = mechanisms.blocking_buffer.as_ref().map(|of| ("blocking_buffer", of.sign));
    let copying = mechanisms.copy_and_forward.as_ref().map(|of| ("copy_and_forward", of.sign));
    let daemon = mechanisms.daemon.as_ref().filter(|of| of.mode == Mode::Thesis).map(|of| ("gateway", of.thesis.sign));
    for (key, sign) in [blocking, copying, daemon].into_iter().flatten() {
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
        let why = "no link between this router and a mobile host has \"arq\", so no failed attempt is reported";
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

fn mechanisms_of(node: NodeId, config: &WorldConfig) -> Option<&Mechanisms> {
    of_node(node, config).map(|of| &of.mechanisms)
}

fn probe_of(node: NodeId, config: &WorldConfig) -> Option<ProbeConfig> {
    mechanisms_of(node, config).and_then(|of| of.probe)
}

/// The hosts at the other ends of a host's flows. Without any flow the connections are those of programs, with all other hosts.
fn peers(node: NodeId, config: &WorldConfig) -> Vec<NodeId> {
    if config.flows.is_empty() {
        let hosts = config.nodes.iter().enumerate().filter(|(_, other)| other.role == Role::Host);
        return hosts.map(|(index, _)| NodeId(index as u32)).filter(|&other| other != node).collect();
    }
    let other = |(from, to): (NodeId, NodeId)| (from == node).then_some(to);
    config.flows.iter().filter_map(|flow| other((flow.from, flow.to)).or_else(|| other((flow.to, flow.from)))).collect()
}

/// Whether a peer asks a host to retransmit, by the option of its own `retransmission_trigger`.
fn is_asked(node: NodeId, config: &WorldConfig) -> bool {
    let asks = |peer: NodeId| {
        let trigger = mechanisms_of(peer, config).and_then(|of| of.retransmission_trigger);
        trigger.is_some_and(|trigger| trigger.peer == PeerTrigger::Option)
    };
    peers(node, config).into_iter().any(|peer| asks(peer) && hears_link_events(peer, config))
}

/// Whether a mobile host registers at a router.
fn registers_at(node: NodeId, router: NodeId, config: &WorldConfig) -> bool {
    config.mobiles.iter().any(|mobile| {
        let registers = matches!(&mobile.attachment, Attachment::Registration(of) if of.gateway == router);
        mobile.node == node && registers
    })
}

/// Whether the description contains any loss of connectivity.
pub(super) fn goes_down(config: &WorldConfig) -> bool {
    !config.mobiles.is_empty() || config.links.iter().any(has_outages)
}

/// Whether a host's mechanisms get events of links: of the host's own, or, with host identity, of a peer's.
pub(super) fn hears_link_events(node: NodeId, config: &WorldConfig) -> bool {
    let own = |node: NodeId| moves(node, config) || links_of(node, config).any(has_outages);
    own(node) || peers_by_identity(node, config).into_iter().any(own)
}

/// Whether a host's mechanisms get events of new attachments: of the host's own, or, with host identity, of a peer's.
fn hears_moves(node: NodeId, config: &WorldConfig) -> bool {
    let own = |node: NodeId| {
        // A link that is down at first comes up as a new one.
        moves(node, config) || links_of(node, config).count() > 1 || links_of(node, config).any(may_begin_down)
    };
    own(node) || peers_by_identity(node, config).into_iter().any(own)
}

/// The peers of a host with an identity that have one, too.
fn peers_by_identity(node: NodeId, config: &WorldConfig) -> Vec<NodeId> {
    let has_identity = |node: &NodeId| config.addressing.iter().any(|of| of.node == *node && of.identity.is_some());
    if has_identity(&node) { peers(node, config).into_iter().filter(has_identity).collect() } else { Vec::new() }
}

fn moves(node: NodeId, config: &WorldConfig) -> bool {
    config.mobiles.iter().any(|mobile| mobile.node == node)
}

fn links_of(node: NodeId, config: &WorldConfig) -> impl Iterator<Item = &LinkBetween> {
    config.links.iter().filter(move |link| link.a == node || link.b == node)
}

fn has_outages(link: &LinkBetween) -> bool {
    let directions = [&link.forward, &link.backward];
    directions.iter().any(|direction| direction.outages != Outages::Never || direction.conditions.is_some())
}

/// Whether a link may be down when the run begins.
fn may_begin_down(link: &LinkBetween) -> bool {
    let begins_down = match &link.forward.outages {
        Outages::Never => false,
        Outages::List(list) => list.first().is_some_and(|outage| outage.down == Instant::ZERO),
        Outages::Alternating(of) => of.initial_connected == Some(Duration::ZERO),
    };
    begins_down || link.forward.conditions.is_some() || link.backward.conditions.is_some()
}
