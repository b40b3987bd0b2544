//! Flows.

use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_sim::{Amount, Bulk, FlowConfig, NodeId, OnOff, Opener, RequestResponse, Traffic};

use super::nodes::Nodes;
use super::{above_zero, check_name, check_new, stack};
use crate::error::ErrorKind;
use crate::file::{self, Flow, ScenarioFile};
use crate::problem::{Problem, Under};
use crate::quantity::{Bytes, Volume};

/// Each flow has its own port, from 1024 on.
const MAX_FLOWS: usize = 65_536 - 1024;

/// The shape of ns-2's Pareto source.
const DEFAULT_SHAPE: f64 = 1.5;

/// One flow of each kind, checked; a kind may have many copies.
pub(crate) fn kinds(file: &ScenarioFile, nodes: &Nodes) -> Result<Vec<FlowConfig>, Problem> {
    if file.flows.is_empty() {
        return Err(Problem::new(ErrorKind::MissingField, "there is nothing to run: no [[flow]]"));
    }
    let mut kinds = Vec::with_capacity(file.flows.len());
    let mut total = 0;
    for (index, flow) in file.flows.iter().enumerate() {
        let before = file.flows[..index].iter().map(|flow| flow.name.as_str());
        let kind = check_name(&flow.name)
            .and_then(|()| check_new("flow", &flow.name, before))
            .and_then(|()| check_count(flow, &mut total))
            .and_then(|()| check_copies(flow, &file.flows))
            .and_then(|()| one(flow, nodes));
        kinds.push(kind.under_index(index).under("flow")?);
    }
    Ok(kinds)
}

/// All flows: the copies of `kinds`, as many as the file sets.
pub(crate) fn all(file: &ScenarioFile, kinds: Vec<FlowConfig>) -> Vec<FlowConfig> {
    let mut flows = Vec::with_capacity(kinds.len());
    for (flow, kind) in file.flows.iter().zip(kinds) {
        match flow.count {
            None | Some(1) => flows.push(kind),
            Some(count) => flows.extend((0..count).map(|number| FlowConfig {
                name: format!("{}-{}", flow.name, number + 1),
                start: start_of(flow, number),
                ..kind.clone()
            })),
        }
    }
    flows
}

/// The start of the copy with this number, counted from 0.
pub(crate) fn start_of(flow: &Flow, number: u32) -> Instant {
    let spacing = flow.spacing.map_or(Duration::ZERO, |spacing| spacing.0);
    Instant::ZERO + flow.start.map_or(Duration::ZERO, |start| start.0) + spacing * u64::from(number)
}

fn check_count(flow: &Flow, total: &mut usize) -> Result<(), Problem> {
    let count = flow.count.unwrap_or(1) as usize;
    *total += count;
    if count == 0 || *total > MAX_FLOWS {
        let accepted = format!("a number from 1 to {MAX_FLOWS}, all flows together");
        return Err(Problem::unexpected(ErrorKind::BadValue, format!("the number {count}"), accepted)).under("count");
    }
    Ok(())
}

/// Checks that no copy of `flow` has the name of another flow.
fn check_copies(flow: &Flow, flows: &[Flow]) -> Result<(), Problem> {
    let count = flow.count.unwrap_or(1);
    let number = |name: &str| name.strip_prefix(&flow.name)?.strip_prefix('-')?.parse().ok();
    let same = |other: &&Flow| {
        let copy = number(&other.name).filter(|number| count > 1 && (1..=count).contains(number));
        other.count.unwrap_or(1) == 1 && copy.is_some_and(|number| other.name == format!("{}-{number}", flow.name))
    };
    match flows.iter().find(same) {
        Some(other) => {
            let message = format!("two flows would be called \"{}\"", other.name);
            Err(Problem::new(ErrorKind::Duplicate, message)).under("name")
        }
        None => Ok(()),
    }
}

fn one(flow: &Flow, nodes: &Nodes) -> Result<FlowConfig, Problem> {
    let from = nodes.host(&flow.from).under("from")?;
    let to = nodes.host(&flow.to).under("to")?;
    if from == to {
        return Err(Problem::conflict(format!("it goes from \"{}\" to itself", flow.from))).under("to");
    }
    let stack_of = |host, end_stack: Option<&_>, end: &str| {
        let common = stack::changed(nodes.stack(host), flow.stack.as_ref()).under("stack")?;
        stack::changed(&common, end_stack).under(end).map(Arc::new)
    };
    Ok(FlowConfig {
        name: flow.name.clone(),
        from,
        to,
        start: start_of(flow, 0),
        sender: stack_of(from, flow.from_stack.as_ref(), "from_stack")?,
        receiver: stack_of(to, flow.to_stack.as_ref(), "to_stack")?,
        traffic: traffic(flow, nodes, from, to)?,
        ipv6: flow.ipv6.unwrap_or(false),
    })
}

fn traffic(flow: &Flow, nodes: &Nodes, from: NodeId, to: NodeId) -> Result<Traffic, Problem> {
    const KINDS: &str = "\"bulk\", \"request_response\", \"on_off\"";
    let opener = match &flow.opener {
        Some(name) if flow.bulk.is_some() => opener(nodes.host(name).under("opener")?, nodes, from, to)?,
        Some(_) => return Err(Problem::conflict("only a \"bulk\" flow has an opener")).under("opener"),
        None => Opener::Sender,
    };
    match (&flow.bulk, &flow.request_response, &flow.on_off) {
        (Some(volume), None, None) => {
            let amount = match volume {
                Volume::Bytes(bytes) => Amount::Bytes(*bytes),
                Volume::For(time) => Amount::For(*time),
            };
            Ok(Traffic::Bulk(Bulk { amount, opener }))
        }
        (None, Some(exchange), None) => request_response(exchange).under("request_response"),
        (None, None, Some(bursts)) => on_off(bursts).under("on_off"),
        (None, None, None) => {
            let message = format!("it does nothing; give it one of {KINDS}");
            Err(Problem::new(ErrorKind::MissingField, message))
        }
        _ => Err(Problem::conflict(format!("it does more than one thing; give it only one of {KINDS}"))),
    }
}

fn opener(opener: NodeId, nodes: &Nodes, from: NodeId, to: NodeId) -> Result<Opener, Problem> {
    if opener == from {
        return Ok(Opener::Sender);
    }
    if opener == to {
        return Ok(Opener::Receiver);
    }
    let accepted = format!("one of its ends, \"{}\" or \"{}\"", nodes.name(from), nodes.name(to));
    Err(Problem::unexpected(ErrorKind::BadValue, format!("\"{}\"", nodes.name(opener)), accepted)).under("opener")
}

fn request_response(exchange: &file::RequestResponse) -> Result<Traffic, Problem> {
    if exchange.count == Some(0) {
        let accepted = "a number of at least 1";
        return Err(Problem::unexpected(ErrorKind::BadValue, "the number 0", accepted)).under("count");
    }
    Ok(Traffic::RequestResponse(RequestResponse {
        request: not_empty(exchange.request, "request")?.0,
        response: not_empty(exchange.response, "response")?.0,
        think: exchange.think.map_or(Duration::ZERO, |think| think.0),
        count: exchange.count,
    }))
}

fn on_off(bursts: &file::OnOff) -> Result<Traffic, Problem> {
    let shape = bursts.shape.unwrap_or(DEFAULT_SHAPE);
    if !(shape > 1.0 && shape.is_finite()) {
        let accepted = "a number above 1: with less the mean is infinite";
        return Err(Problem::unexpected(ErrorKind::BadValue, format!("the number {shape}"), accepted)).under("shape");
    }
    let datagram = not_empty(bursts.datagram, "datagram")?.0;
    if datagram.0 > MAX_DATAGRAM {
        let accepted = format!("at most {MAX_DATAGRAM} bytes");
        return Err(Problem::unexpected(ErrorKind::BadValue, datagram.to_string(), accepted)).under("datagram");
    }
    Ok(Traffic::OnOff(OnOff {
        datagram,
        rate: bursts.rate.0,
        mean_on: above_zero(bursts.mean_on, "mean_on")?,
        mean_off: bursts.mean_off.0,
        shape,
    }))
}

/// The largest datagram payload in an IPv4 packet.
const MAX_DATAGRAM: u64 = 65_535 - 20 - 8;

fn not_empty(bytes: Bytes, key: &str) -> Result<Bytes, Problem> {
    if bytes.0.0 == 0 {
        return Err(Problem::unexpected(ErrorKind::BadValue, "\"0 bytes\"", "an amount above 0")).under(key);
    }
    Ok(bytes)
}
