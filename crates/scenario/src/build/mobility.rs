//! Cells and the hosts that move between them.

use holdover_base::{Duration, Instant};
use holdover_link::QueueLimit;
use holdover_link::cell::{CellConfig, Dcf, Position};
use holdover_sim::{
    Attachment, Beacons, CellId, MobileHost, Movement, Path, Prediction, RadioCell, Registration, Selection, Stop,
    Visit, Visits,
};

use super::bit_errors;
use super::link::{length, queue};
use super::nodes::Nodes;
use super::{above_zero, check_name, check_new};
use crate::error::ErrorKind;
use crate::file::{self, ScenarioFile};
use crate::problem::{Problem, Under};
use crate::quantity::Distance;
use crate::word::OrNone;

pub(crate) fn cells(file: &ScenarioFile, nodes: &Nodes) -> Result<Vec<RadioCell>, Problem> {
    let mut cells: Vec<RadioCell> = Vec::with_capacity(file.cells.len());
    for (index, cell) in file.cells.iter().enumerate() {
        let before = file.cells[..index].iter().map(|cell| cell.name.as_str());
        let built = check_name(&cell.name)
            .and_then(|()| check_new("cell", &cell.name, before))
            .and_then(|()| one_cell(cell, nodes, &cells));
        cells.push(built.under_index(index).under("cell")?);
    }
    Ok(cells)
}

fn one_cell(cell: &file::Cell, nodes: &Nodes, before: &[RadioCell]) -> Result<RadioCell, Problem> {
    let base = nodes.router(&cell.base).under("base")?;
    if let Some(other) = before.iter().find(|other| other.base == base) {
        let message = format!("\"{}\" is the base station of \"{}\" already", cell.base, other.name);
        return Err(Problem::conflict(message)).under("base");
    }
    if cell.range.0 <= 0.0 {
        let accepted = "a distance above 0 m";
        return Err(Problem::unexpected(ErrorKind::BadValue, format!("\"{} m\"", cell.range.0), accepted))
            .under("range");
    }
    let limit = |limit: Option<_>| limit.as_ref().map_or(QueueLimit::Unlimited, queue);
    let config = CellConfig {
        dcf: medium(cell.medium.as_ref()).under("medium")?,
        position: position(cell.x, cell.y),
        station_buffer: limit(cell.host_queue_limit),
        leave_policy: cell.on_leave.map_or_else(Default::default, |policy| policy.0),
        channel: cell.channel,
        bit_errors: bit_errors::of(cell.bit_errors.as_ref()).under("bit_errors")?,
        ..CellConfig::wavelan(cell.range.0, limit(cell.queue_limit))
    };
    config.check().map_err(|error| Problem::new(ErrorKind::BadValue, error.to_string()))?;
    Ok(RadioCell { name: cell.name.clone(), base, cell: config, beacons: beacons(cell).under("beacons")? })
}

fn position(x: Option<Distance>, y: Option<Distance>) -> Position {
    Position { x_m: x.map_or(0.0, |x| x.0), y_m: y.map_or(0.0, |y| y.0) }
}

fn beacons(cell: &file::Cell) -> Result<Option<Beacons>, Problem> {
    let mut beacons = Beacons::default();
    match &cell.beacons {
        None => {}
        Some(OrNone(None)) => return Ok(None),
        Some(OrNone(Some(table))) => {
            if let Some(first) = &table.first {
                beacons.first = length(first).under("first")?;
            }
            if let Some(interval) = &table.interval {
                beacons.interval = length(interval).under("interval")?;
            }
        }
    }
    Ok(Some(beacons))
}

fn medium(table: Option<&file::Medium>) -> Result<Dcf, Problem> {
    let mut dcf = Dcf::DSSS_2_MBPS;
    let Some(table) = table else { return Ok(dcf) };
    let bytes = |bytes: Option<crate::quantity::Bytes>, usual: u32, key: &str| match bytes {
        None => Ok(usual),
        Some(bytes) if bytes.0.0 <= 65_535 => Ok(bytes.0.0 as u32),
        Some(bytes) => {
            Err(Problem::unexpected(ErrorKind::BadValue, bytes.0.to_string(), "at most 65535 bytes")).under(key)
        }
    };
    dcf.data_rate = table.data_rate.map_or(dcf.data_rate, |rate| rate.0);
    dcf.basic_rate = table.basic_rate.map_or(dcf.basic_rate, |rate| rate.0);
    dcf.slot = table.slot.map_or(dcf.slot, |slot| slot.0);
    dcf.sifs = table.sifs.map_or(dcf.sifs, |sifs| sifs.0);
    dcf.plcp = table.plcp.map_or(dcf.plcp, |plcp| plcp.0);
    dcf.header_bytes = bytes(table.header, dcf.header_bytes, "header")?;
    dcf.rts_threshold_bytes = bytes(table.rts_threshold, dcf.rts_threshold_bytes, "rts_threshold")?;
    dcf.contention = table.contention.map_or(dcf.contention, |contention| contention.0);
    let number = |given: Option<u32>, usual: u32, most: u32, key: &str| match given {
        Some(number) if number == 0 || number > most => {
            let found = format!("the number {number}");
            Err(Problem::unexpected(ErrorKind::BadValue, found, format!("1 to {most}"))).under(key)
        }
        given => Ok(given.unwrap_or(usual)),
    };
    // aCWmax is at most 1023 in every PHY of the standard; the limit leaves room for experiments.
    dcf.cw_max = number(table.cw_max, dcf.cw_max, 65_535, "cw_max")?;
    dcf.cw_min = number(table.cw_min, dcf.cw_min, dcf.cw_max, "cw_min")?;
    dcf.retry_limit = number(table.retry_limit, dcf.retry_limit, 255, "retry_limit")?;
    Ok(dcf)
}

pub(crate) fn mobiles(file: &ScenarioFile, nodes: &Nodes) -> Result<Vec<MobileHost>, Problem> {
    let mut mobiles = Vec::with_capacity(file.mobiles.len());
    for (index, mobile) in file.mobiles.iter().enumerate() {
        let twice = file.mobiles[..index].iter().any(|other| other.host == mobile.host);
        let built = if twice {
            let message = format!("\"{}\" is described as mobile twice", mobile.host);
            Err(Problem::new(ErrorKind::Duplicate, message)).under("host")
        } else {
            one_mobile(mobile, file, nodes)
        };
        mobiles.push(built.under_index(index).under("mobile")?);
    }
    Ok(mobiles)
}

fn one_mobile(mobile: &file::Mobile, file: &ScenarioFile, nodes: &Nodes) -> Result<MobileHost, Problem> {
    let node = nodes.host(&mobile.host).under("host")?;
    if let Some(link) = file.links.iter().find(|link| link.between.contains(&mobile.host)) {
        let message = format!("\"{}\" has the link \"{}\"; a host that moves has cells only", mobile.host, link.name);
        return Err(Problem::conflict(message)).under("host");
    }
    Ok(MobileHost {
        node,
        movement: movement(mobile, file)?,
        attachment: attachment(mobile, nodes)?,
        selection: mobile.selection.map_or_else(Selection::default, |selection| selection.0),
        prediction: prediction(mobile)?,
    })
}

fn cell_id(name: &str, file: &ScenarioFile) -> Result<CellId, Problem> {
    let known = || file.cells.iter().map(|cell| cell.name.as_str());
    let index = known().position(|other| other == name);
    index.map(|index| CellId(index as u32)).ok_or_else(|| Problem::unknown_name("cell", name, known()))
}

fn movement(mobile: &file::Mobile, file: &ScenarioFile) -> Result<Movement, Problem> {
    const KINDS: &str = "\"visits\", \"script\", \"path\"";
    match (&mobile.visits, &mobile.script, &mobile.path) {
        (Some(table), None, None) => visits(table, file).under("visits").map(Movement::Visits),
        (None, Some(list), None) => script(list, file).under("script").map(Movement::Script),
        (None, None, Some(table)) => path(table).under("path").map(Movement::Path),
        (None, None, None) => {
            let message = format!("it does not say how it moves; give it one of {KINDS}");
            Err(Problem::new(ErrorKind::MissingField, message))
        }
        _ => Err(Problem::conflict(format!("it moves in more than one way; give it only one of {KINDS}"))),
    }
}

fn visits(table: &file::Visits, file: &ScenarioFile) -> Result<Visits, Problem> {
    not_empty(table.cells.len(), "cells")?;
    let cells = table.cells.iter().enumerate().map(|(index, name)| cell_id(name, file).under_index(index));
    Ok(Visits {
        cells: cells.collect::<Result<_, _>>().under("cells")?,
        first_residence: table.first_residence.map(|time| time.0),
        residence: length(&table.residence).under("residence")?,
        gap: table.gap.as_ref().map(|gap| length(gap).under("gap")).transpose()?,
        moves: table.moves,
    })
}

fn script(list: &[file::Visit], file: &ScenarioFile) -> Result<Vec<Visit>, Problem> {
    let mut script: Vec<Visit> = Vec::with_capacity(list.len());
    for (index, visit) in list.iter().enumerate() {
        let at = Instant::ZERO + visit.at.0;
        if script.last().is_some_and(|before| at <= before.at) {
            let accepted = "a time after that of the visit before";
            let problem = Problem::unexpected(ErrorKind::BadValue, format!("\"{}\"", visit.at.0), accepted);
            return Err(problem.under("at").under_index(index));
        }
        let cell =
            visit.cell.0.as_ref().map(|name| cell_id(name, file).under("cell").under_index(index)).transpose()?;
        script.push(Visit { at, cell });
    }
    if script.is_empty() {
        return Err(Problem::unexpected(ErrorKind::BadValue, "an empty list", "at least one visit"));
    }
    Ok(script)
}

fn path(table: &file::Path) -> Result<Path, Problem> {
    not_empty(table.stops.len(), "stops")?;
    let stop = |stop: &file::Stop| Stop {
        position: position(stop.x, stop.y),
        pause: stop.pause.map_or(Duration::ZERO, |pause| pause.0),
    };
    Ok(Path {
        stops: table.stops.iter().map(stop).collect(),
        depart_at: Instant::ZERO + table.depart_at.map_or(Duration::ZERO, |at| at.0),
        speed_m_per_s: table.speed.0,
        repeat: table.repeat.map_or_else(Default::default, |repeat| repeat.0),
    })
}

fn not_empty(len: usize, key: &str) -> Result<(), Problem> {
    if len == 0 {
        return Err(Problem::unexpected(ErrorKind::BadValue, "an empty list", "at least one element")).under(key);
    }
    Ok(())
}

fn attachment(mobile: &file::Mobile, nodes: &Nodes) -> Result<Attachment, Problem> {
    match (&mobile.registration, mobile.handoff_time) {
        (Some(table), None) => registration(table, nodes).under("registration").map(Attachment::Registration),
        (None, Some(time)) => Ok(Attachment::HandoffTime(time.0)),
        (None, None) => {
            let message = "it does not say how it attaches to a cell; give it \"registration\" or \"handoff_time\"";
            Err(Problem::new(ErrorKind::MissingField, message))
        }
        (Some(_), Some(_)) => Err(Problem::conflict("it has both \"registration\" and \"handoff_time\"; choose one"))
            .under("handoff_time"),
    }
}

fn registration(table: &file::Registration, nodes: &Nodes) -> Result<Registration, Problem> {
    let mut registration = Registration::through(nodes.router(&table.gateway).under("gateway")?);
    if let Some(overhead) = table.tunnel_overhead {
        if overhead.0.0 > 65_535 {
            let problem = Problem::unexpected(ErrorKind::BadValue, overhead.0.to_string(), "at most 65535 bytes");
            return Err(problem.under("tunnel_overhead"));
        }
        registration.tunnel_overhead = overhead.0;
    }
    if let Some(OrNone(Some(time))) = table.lifetime {
        registration.lifetime = Some(above_zero(time, "lifetime")?);
    }
    if let Some(time) = table.retransmit_after {
        registration.retransmit_after = above_zero(time, "retransmit_after")?;
    }
    if let Some(time) = table.retransmit_at_most {
        registration.retransmit_at_most = time.0;
    }
    if registration.retransmit_at_most < registration.retransmit_after {
        let message = "\"retransmit_at_most\" is below \"retransmit_after\"";
        return Err(Problem::conflict(message)).under("retransmit_at_most");
    }
    registration.on = table.on.map_or(registration.on, |on| on.0);
    registration.tell_old_base = table.tell_old_base.unwrap_or(registration.tell_old_base);
    Ok(registration)
}

fn prediction(mobile: &file::Mobile) -> Result<Option<Prediction>, Problem> {
    let Some(OrNone(Some(table))) = &mobile.prediction else { return Ok(None) };
    let prediction = match (table.margin, table.lead) {
        (Some(margin), None) if mobile.path.is_none() => {
            let _ = margin;
            Err(Problem::conflict("received power needs positions; only a host on a \"path\" has them")).under("margin")
        }
        (Some(margin), None) if margin.share() == 0.0 => {
            Err(Problem::unexpected(ErrorKind::BadValue, "\"0 %\"", "a percentage above 0")).under("margin")
        }
        (Some(margin), None) => Ok(Prediction::Threshold { percent: margin.share() * 100.0 }),
        (None, Some(lead)) => Ok(Prediction::Lead(lead.0)),
        _ => Err(Problem::conflict("it needs either \"margin\" or \"lead\"")),
    };
    prediction.under("prediction").map(Some)
}
