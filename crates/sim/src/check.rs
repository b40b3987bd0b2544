//! Checks the description of a world.

use std::collections::{BTreeMap, BTreeSet};

use holdover_base::{Duration, Instant};
use holdover_link::cell::Motion;

use crate::app;
use crate::config::{Addresses, FlowConfig, Role, WorldConfig};
use crate::error::WorldError;
use crate::flow::MAX_FLOWS;
use crate::ids::NodeId;
use crate::layer2::LinkKind;
use crate::link_mtu;
use crate::mobility::{Attachment, CellId, MobileHost, Movement, Path, Prediction, Repeat};
use crate::network::Network;

/// Checks the description of a world. Returns its network, without hosts in the schedule.
pub(crate) fn network_of(config: &WorldConfig) -> Result<Network, WorldError> {
    describes_a_world(config)?;
    let network = Network::new(config, 0)?;
    all_is_within_reach(config, &network)?;
    Ok(network)
}

/// Checks everything that does not need paths through the network.
pub(crate) fn describes_a_world(config: &WorldConfig) -> Result<(), WorldError> {
    check_names("nodes", config.nodes.iter().map(|node| &node.name))?;
    check_names("links", config.links.iter().map(|link| &link.name))?;
    check_names("cells", config.cells.iter().map(|cell| &cell.name))?;
    check_names("flows", config.flows.iter().map(|flow| &flow.name))?;
    if config.sample_every.is_some_and(|every| every.is_zero()) {
        return Err(WorldError::SampleInterval);
    }
    for link in &config.links {
        check_node(config, &link.name, link.a)?;
        check_node(config, &link.name, link.b)?;
        if link.a == link.b {
            return Err(WorldError::SelfLink { link: link.name.clone(), node: name(config, link.a) });
        }
        let role = |node: NodeId| config.nodes[node.index()].role;
        if link.layer2.kind != LinkKind::Wire && role(link.a) == role(link.b) {
            return Err(WorldError::Layer2Ends { link: link.name.clone() });
        }
    }
    check_routes(config)?;
    check_cells(config)?;
    check_mobiles(config)?;
    check_mechanisms(config)?;
    check_gateways(config)?;
    check_cpus(config)?;
    check_latencies(config)?;
    check_addressing(config)?;
    link_mtu::check(config)?;
    check_flows(config)
}

fn check_routes(config: &WorldConfig) -> Result<(), WorldError> {
    for route in &config.routing.routes {
        check_router(config, "router", "a route", route.router)?;
        let router = name(config, route.router);
        let Some(link) = config.links.get(route.link.0 as usize) else {
            return Err(WorldError::NoSuchLink { router, link: route.link.0, links: config.links.len() });
        };
        if link.a != route.router && link.b != route.router {
            return Err(WorldError::RouteBySomeLink { router, link: link.name.clone() });
        }
        if let Some(to) = route.to {
            check_node(config, &router, to)?;
            if config.mobiles.iter().any(|mobile| mobile.node == to) {
                return Err(WorldError::RouteToMobile { router, mobile: name(config, to) });
            }
        }
        let other = if link.a == route.router { link.b } else { link.a };
        if config.nodes[other.index()].role == Role::Host && route.to != Some(other) {
            let to = route.to.map_or("default".to_owned(), |to| name(config, to));
            return Err(WorldError::RouteThroughHost { router, to, host: name(config, other) });
        }
    }
    Ok(())
}

fn check_mechanisms(config: &WorldConfig) -> Result<(), WorldError> {
    for equipment in &config.mechanisms {
        check_node(config, "mechanisms", equipment.node)?;
        let node = &config.nodes[equipment.node.index()];
        if node.role != Role::Host {
            return Err(WorldError::MechanismsOfRouter { node: node.name.clone() });
        }
        let error = |error| WorldError::Mechanisms { node: node.name.clone(), error };
        equipment.mechanisms.check().map_err(error)?;
    }
    Ok(())
}

fn check_gateways(config: &WorldConfig) -> Result<(), WorldError> {
    let mut seen = BTreeSet::new();
    for gateway in &config.gateways {
        check_node(config, "gateway mechanisms", gateway.node)?;
        let node = name(config, gateway.node);
        if config.nodes[gateway.node.index()].role != Role::Router {
            return Err(WorldError::GatewayOfHost { node });
        }
        if !seen.insert(gateway.node) {
            return Err(WorldError::GatewayTwice { node });
        }
        for &mobile in &gateway.mobiles {
            check_node(config, &node, mobile)?;
            if config.nodes[mobile.index()].role != Role::Host {
                return Err(WorldError::MobileIsRouter { node, mobile: name(config, mobile) });
            }
        }
        gateway.mechanisms.check().map_err(|error| WorldError::Gateway { node, error })?;
    }
    Ok(())
}

fn check_cpus(config: &WorldConfig) -> Result<(), WorldError> {
    let mut seen = BTreeSet::new();
    for cpu in &config.cpus {
        check_node(config, "cpu", cpu.node)?;
        let node = name(config, cpu.node);
        if config.nodes[cpu.node.index()].role != Role::Router {
            return Err(WorldError::CpuOfHost { node });
        }
        if !seen.insert(cpu.node) {
            return Err(WorldError::CpuTwice { node });
        }
        if cpu.backlog_packets == 0 {
            return Err(WorldError::NoBacklog { node });
        }
    }
    Ok(())
}

fn check_latencies(config: &WorldConfig) -> Result<(), WorldError> {
    let mut seen = BTreeSet::new();
    for latency in &config.latencies {
        check_node(config, "latency", latency.node)?;
        let node = name(config, latency.node);
        if config.nodes[latency.node.index()].role != Role::Host {
            return Err(WorldError::LatencyOfRouter { node });
        }
        if !seen.insert(latency.node) {
            return Err(WorldError::LatencyTwice { node });
        }
        let checked = latency.busy.check("latency: busy").and_then(|()| latency.idle.check("latency: idle"));
        checked.map_err(|error| WorldError::Latency { node, error })?;
    }
    Ok(())
}

fn check_addressing(config: &WorldConfig) -> Result<(), WorldError> {
    let mut seen = BTreeSet::new();
    for host in &config.addressing {
        check_node(config, "addresses", host.node)?;
        let node = name(config, host.node);
        if config.nodes[host.node.index()].role != Role::Host {
            return Err(WorldError::AddressingOfRouter { node });
        }
        if !seen.insert(host.node) {
            return Err(WorldError::AddressingTwice { node });
        }
        let links = config.links.iter().filter(|link| link.a == host.node || link.b == host.node).count();
        let (max_links, max_nodes) = (NodeId::MAX_ACCESSES, NodeId::MAX_PER_LINK);
        let has_locators = (1..=max_links).contains(&links) && host.node.0 < max_nodes;
        if host.addresses == Addresses::PerLink && !has_locators {
            return Err(WorldError::NoLocators { node, max_links, max_nodes });
        }
        #[cfg(feature = "identity")]
        if let Some(identity) = &host.identity {
            check_identity(identity, node)?;
        }
    }
    Ok(())
}

#[cfg(feature = "identity")]
fn check_identity(identity: &crate::config::HostIdentity, node: String) -> Result<(), WorldError> {
    if identity.retransmit_after.is_zero() {
        return Err(WorldError::UpdateAfter { node });
    }
    let delay = identity.delay.map_or(Ok(()), |delay| delay.check("the delay of readdressing"));
    delay.map_err(|error| WorldError::IdentityDelay { node, error })
}

/// Checks that paths lead to all destinations of packets.
pub(crate) fn all_is_within_reach(config: &WorldConfig, network: &Network) -> Result<(), WorldError> {
    for mobile in &config.mobiles {
        if let Attachment::Registration(registration) = &mobile.attachment {
            let gateway = registration.gateway;
            for cell in cells_on_the_way(config, mobile) {
                let base = config.cells[cell].base;
                if network.wired_way(gateway, base).is_none() || network.wired_way(base, gateway).is_none() {
                    return Err(WorldError::GatewayUnreachable {
                        node: name(config, mobile.node),
                        gateway: name(config, gateway),
                        base: name(config, base),
                    });
                }
            }
        }
    }
    for flow in &config.flows {
        for (from, to) in [(flow.from, flow.to), (flow.to, flow.from)] {
            if !is_within_reach(config, network, from, to) {
                return Err(WorldError::Unreachable {
                    flow: flow.name.clone(),
                    from: name(config, from),
                    to: name(config, to),
                });
            }
        }
    }
    gateways_are_on_a_way(config, network)
}

/// Checks that each router with mechanisms is on a path between one of its mobile hosts and another host.
fn gateways_are_on_a_way(config: &WorldConfig, network: &Network) -> Result<(), WorldError> {
    for gateway in &config.gateways {
        let looks_after = |flow: &FlowConfig| {
            let ends = [(flow.from, flow.to), (flow.to, flow.from)];
            ends.into_iter().any(|(from, to)| {
                gateway.mobiles.contains(&to) && is_on_a_way(config, network, gateway.node, from, to)
                    || gateway.mobiles.contains(&from) && is_on_a_way(config, network, gateway.node, from, to)
            })
        };
        if !config.flows.iter().any(looks_after) {
            return Err(WorldError::GatewayOffPath { node: name(config, gateway.node) });
        }
    }
    Ok(())
}

/// Whether packets from one host to another may pass `node`.
fn is_on_a_way(config: &WorldConfig, network: &Network, node: NodeId, from: NodeId, to: NodeId) -> bool {
    let (starts, ends) = (places_of(config, network, from), places_of(config, network, to));
    let agent = network.mobile(to).and_then(|mobile| match &config.mobiles[mobile].attachment {
        Attachment::Registration(registration) => Some(registration.gateway),
        Attachment::HandoffTime(_) => None,
    });
    // A host with several links may use another one than when all are up.
    let is_joined =
        |host: NodeId| config.links.iter().any(|link| [(link.a, link.b), (link.b, link.a)].contains(&(node, host)));
    // Routers that follow links, or have configured routes, may use another path than when all links are up.
    let routing = &config.routing;
    let is_settled = routing.detection.is_none() && routing.routes.is_empty();
    if is_joined(from) || is_joined(to) || !is_settled {
        return true;
    }
    let crosses = |from: NodeId, to: NodeId| {
        from == node
            || to == node
            || network.wired_way(from, to).is_some_and(|way| way.iter().any(|&hop| network.hops[hop].to == node))
    };
    starts.iter().any(|&start| {
        ends.iter().any(|&end| match agent {
            None => crosses(start, end),
            Some(agent) => crosses(start, agent) || crosses(agent, end),
        })
    })
}

/// The nodes at which a host may send and receive: the base stations of the cells on its path, or its own node.
fn places_of(config: &WorldConfig, network: &Network, host: NodeId) -> Vec<NodeId> {
    let bases = |mobile: usize| -> Vec<NodeId> {
        cells_on_the_way(config, &config.mobiles[mobile]).into_iter().map(|cell| config.cells[cell].base).collect()
    };
    network.mobile(host).map_or_else(|| vec![host], bases)
}

/// Whether paths lead from every place of `from` to every place of `to`.
fn is_within_reach(config: &WorldConfig, network: &Network, from: NodeId, to: NodeId) -> bool {
    let starts = places_of(config, network, from);
    let ends = match network.mobile(to).map(|mobile| &config.mobiles[mobile].attachment) {
        Some(Attachment::Registration(registration)) => vec![registration.gateway],
        _ => places_of(config, network, to),
    };
    starts.iter().all(|&start| ends.iter().all(|&end| network.wired_way(start, end).is_some()))
}

/// The cells that a mobile host enters.
fn cells_on_the_way(config: &WorldConfig, mobile: &MobileHost) -> BTreeSet<usize> {
    let cells = |ids: &mut dyn Iterator<Item = CellId>| ids.map(CellId::index).collect();
    match &mobile.movement {
        Movement::Visits(visits) => cells(&mut visits.cells.iter().copied()),
        Movement::Script(script) => cells(&mut script.iter().filter_map(|visit| visit.cell)),
        Movement::Path(path) => {
            let covers = |index: &usize| {
                legs(path).any(|(motion, length_m)| {
                    let (centre, range) =
                        (config.cells[*index].cell.position, config.cells[*index].cell.radio.range_m());
                    // At one metre a second, distances in metres equal times in seconds.
                    motion.within(centre, range).is_some_and(|(from, _)| from.as_secs_f64() <= length_m)
                })
            };
            (0..config.cells.len()).filter(covers).collect()
        }
    }
}

/// The legs of a path as motions at one metre a second, with their lengths in metres; first the first stop itself.
fn legs(path: &Path) -> impl Iterator<Item = (Motion, f64)> {
    let first = path.stops.first().map(|stop| (Motion::at_rest(stop.position), 0.0));
    let ends = path.stops.windows(2).map(|pair| (pair[0].position, pair[1].position));
    let back = path.stops.last().zip(path.stops.first()).map(|(last, first)| (last.position, first.position));
    let legs = ends.chain(back.filter(|_| path.repeat == Repeat::Around));
    first.into_iter().chain(legs.map(|(from, to)| {
        let length_m = from.distance_m(to);
        let mut motion = Motion::at_rest(from);
        if length_m > 0.0 {
            motion.velocity.x_m_per_s = (to.x_m - from.x_m) / length_m;
            motion.velocity.y_m_per_s = (to.y_m - from.y_m) / length_m;
        }
        (motion, length_m)
    }))
}

fn check_names<'a>(kind: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), WorldError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(WorldError::SameName { kind, name: name.clone() });
        }
    }
    Ok(())
}

fn check_node(config: &WorldConfig, what: &str, node: NodeId) -> Result<(), WorldError> {
    if node.index() < config.nodes.len() {
        return Ok(());
    }
    Err(WorldError::NoSuchNode { what: what.to_owned(), node: node.0, nodes: config.nodes.len() })
}

fn check_router(config: &WorldConfig, what: &'static str, of: &str, node: NodeId) -> Result<(), WorldError> {
    check_node(config, &format!("the {what} of {of}"), node)?;
    if config.nodes[node.index()].role == Role::Router {
        return Ok(());
    }
    Err(WorldError::NotARouter { what, of: of.to_owned(), node: name(config, node) })
}

fn check_cells(config: &WorldConfig) -> Result<(), WorldError> {
    let mut bases = BTreeMap::new();
    for cell in &config.cells {
        let error = |error| WorldError::Cell { cell: cell.name.clone(), error };
        check_router(config, "base station", &cell.name, cell.base)?;
        cell.cell.check().map_err(error)?;
        if let Some(beacons) = &cell.beacons {
            beacons.first.check("beacons: first").map_err(error)?;
            beacons.interval.check("beacons: interval").map_err(error)?;
        }
        if let Some(channel) = cell.cell.channel
            && let Some(first) = config.cells.iter().find(|first| first.cell.channel == Some(channel))
            && first.cell.dcf != cell.cell.dcf
        {
            return Err(WorldError::ChannelMedium { first: first.name.clone(), second: cell.name.clone(), channel });
        }
        if let Some(first) = bases.insert(cell.base, &cell.name) {
            return Err(WorldError::SameBase {
                first: first.clone(),
                second: cell.name.clone(),
                base: name(config, cell.base),
            });
        }
    }
    Ok(())
}

fn check_mobiles(config: &WorldConfig) -> Result<(), WorldError> {
    let mut seen = BTreeSet::new();
    for mobile in &config.mobiles {
        check_node(config, "a mobile host", mobile.node)?;
        let node = name(config, mobile.node);
        if config.nodes[mobile.node.index()].role != Role::Host {
            return Err(WorldError::MovingRouter { node });
        }
        if !seen.insert(mobile.node) {
            return Err(WorldError::MobileTwice { node });
        }
        if let Some(link) = config.links.iter().find(|link| link.a == mobile.node || link.b == mobile.node) {
            return Err(WorldError::MobileWithLink { node, link: link.name.clone() });
        }
        check_movement(config, &node, &mobile.movement)?;
        let cells = cells_on_the_way(config, mobile);
        if cells.is_empty() {
            return Err(WorldError::NeverCovered { node });
        }
        if let Attachment::Registration(registration) = &mobile.attachment {
            check_router(config, "gateway", &node, registration.gateway)?;
            if registration.retransmit_after.is_zero() {
                return Err(WorldError::RetransmitAfter { node });
            }
            if registration.lifetime.is_some_and(|lifetime| lifetime.is_zero()) {
                return Err(WorldError::NoLifetime { node });
            }
            if let Some(&cell) = cells.iter().find(|&&cell| config.cells[cell].beacons.is_none()) {
                return Err(WorldError::NoBeacons { node, cell: config.cells[cell].name.clone() });
            }
        }
        if let Some(Prediction::Threshold { percent }) = mobile.prediction {
            if percent.is_nan() || percent <= 0.0 || percent.is_infinite() {
                return Err(WorldError::Threshold { node, percent });
            }
            if !matches!(mobile.movement, Movement::Path(_)) {
                return Err(WorldError::NoGeometry { node });
            }
        }
    }
    Ok(())
}

fn check_movement(config: &WorldConfig, node: &str, movement: &Movement) -> Result<(), WorldError> {
    let nowhere = |expected| Err(WorldError::NowhereToGo { node: node.to_owned(), expected });
    let exists = |cell: CellId| {
        if cell.index() < config.cells.len() {
            return Ok(());
        }
        Err(WorldError::NoSuchCell { node: node.to_owned(), cell: cell.0, cells: config.cells.len() })
    };
    match movement {
        Movement::Visits(visits) if visits.cells.is_empty() => nowhere("cell"),
        Movement::Script(script) if script.is_empty() => nowhere("visit"),
        Movement::Path(path) if path.stops.is_empty() => nowhere("stop"),
        Movement::Visits(visits) => {
            visits.cells.iter().try_for_each(|&cell| exists(cell))?;
            let error = |error| WorldError::Movement { node: node.to_owned(), error };
            visits.residence.check("the residence in a cell").map_err(error)?;
            visits.gap.map_or(Ok(()), |gap| gap.check("the gap between cells")).map_err(error)
        }
        Movement::Script(script) => {
            script.iter().filter_map(|visit| visit.cell).try_for_each(exists)?;
            match script.windows(2).position(|pair| pair[1].at <= pair[0].at) {
                None => Ok(()),
                Some(first) => {
                    let index = first + 1;
                    Err(WorldError::VisitOrder { node: node.to_owned(), index, at: script[index].at })
                }
            }
        }
        Movement::Path(path) => {
            let speed = path.speed_m_per_s;
            let moves = path.stops.len() > 1;
            let finite = path.stops.iter().all(|stop| stop.position.x_m.is_finite() && stop.position.y_m.is_finite());
            if !finite || (moves && !(speed > 0.0 && speed.is_finite())) {
                return Err(WorldError::Speed { node: node.to_owned(), speed_m_per_s: speed });
            }
            let pauses = path.stops.iter().fold(Duration::ZERO, |sum, stop| sum + stop.pause);
            let metres: f64 = legs(path).map(|(_, length_m)| length_m).sum();
            let round = Duration::from_secs_f64(metres / speed) + pauses;
            if moves && path.repeat != Repeat::Once && round < Duration::from_micros(1) {
                return Err(WorldError::RestlessPath { node: node.to_owned(), round });
            }
            Ok(())
        }
    }
}

fn check_flows(config: &WorldConfig) -> Result<(), WorldError> {
    if config.flows.len() > MAX_FLOWS {
        return Err(WorldError::TooManyFlows { flows: config.flows.len(), most: MAX_FLOWS });
    }
    for flow in &config.flows {
        for node in [flow.from, flow.to] {
            check_node(config, &flow.name, node)?;
            if config.nodes[node.index()].role != Role::Host {
                return Err(WorldError::NotAHost { flow: flow.name.clone(), node: name(config, node) });
            }
        }
        if flow.from == flow.to {
            return Err(WorldError::SameHost { flow: flow.name.clone(), node: name(config, flow.from) });
        }
        if flow.start >= config.time_limit {
            let (start, time_limit) = (flow.start, config.time_limit);
            return Err(WorldError::StartsTooLate { flow: flow.name.clone(), start, time_limit });
        }
        app::check(flow)?;
    }
    if config.time_limit == Instant::FAR_FUTURE && !config.flows.iter().any(FlowConfig::is_finite) {
        return Err(WorldError::NoEnd);
    }
    Ok(())
}

fn name(config: &WorldConfig, node: NodeId) -> String {
    config.nodes[node.index()].name.clone()
}
