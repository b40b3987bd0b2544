//! Links.

use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_link::{
    Alternating, Arq, CoDel, InFlightFate, Jitter, JitterDistribution, Length, LinkConfig, Loss, Outage, OutagePolicy,
    Outages, QueueLimit, QueuedFate, Rate, Reordering,
};
use holdover_sim::{LinkBetween, LinkMtu};

use super::bit_errors;
use super::compression;
use super::layer2;
use super::nodes::Nodes;
use super::{above_zero, check_name, check_new, turns};
use crate::error::ErrorKind;
use crate::file::{self, DirectionRef, Distribution, LengthTable, Link, OneWay, ScenarioFile};
use crate::problem::{Problem, Under};
use crate::quantity::{Bytes, DataRate, QueueSize};
use crate::traces::{Loaded, Traces};
use crate::word::OrNone;

pub(crate) fn all(file: &ScenarioFile, nodes: &Nodes, traces: &mut Traces) -> Result<Vec<LinkBetween>, Problem> {
    let mut links = Vec::with_capacity(file.links.len());
    for (index, link) in file.links.iter().enumerate() {
        let before = file.links[..index].iter().map(|link| link.name.as_str());
        let built = check_name(&link.name)
            .and_then(|()| check_new("link", &link.name, before))
            .and_then(|()| one(file, link, nodes, traces));
        links.push(built.under_index(index).under("link")?);
    }
    Ok(links)
}

fn one(file: &ScenarioFile, link: &Link, nodes: &Nodes, traces: &mut Traces) -> Result<LinkBetween, Problem> {
    let [a, b] = &link.between;
    if a == b {
        return Err(Problem::conflict(format!("it joins \"{a}\" with itself"))).under_index(1).under("between");
    }
    let end = |name: &str, index| nodes.node(name).under_index(index).under("between");
    let (outages, outage_policy) = match turns::of(file, link).under("outages")? {
        Some(outages) => (outages, policy(link.outages.as_ref())),
        None => outages(link.outages.as_ref()).under("outages")?,
    };
    let layer2 = layer2::of(link, nodes)?;
    let forwards_after = layer2::forwards_after(link, layer2)?;
    let arq = link.arq.as_ref().map(arq).transpose().under("arq")?;
    let mut make = |over: Option<&OneWay>, name: &'static str| {
        let mut config = direction(link.direction(), over.map(|over| (over.direction(), name)), traces)?;
        (config.outages, config.outage_policy) = (outages.clone(), outage_policy);
        config.forwards_after = forwards_after;
        config.arq = arq;
        // Errors left to the link's own check depend on more than one field.
        let problem = config.check().err().map(|error| Problem::conflict(error.to_string()));
        match (problem, over) {
            (None, _) => Ok(config),
            (Some(problem), Some(_)) => Err(problem.under(name)),
            (Some(problem), None) => Err(problem),
        }
    };
    Ok(LinkBetween {
        name: link.name.clone(),
        a: end(a, 0)?,
        b: end(b, 1)?,
        forward: make(link.forward.as_ref(), "forward")?,
        backward: make(link.backward.as_ref(), "backward")?,
        layer2,
        mtu: mtu(link)?,
    })
}

fn mtu(link: &Link) -> Result<Option<LinkMtu>, Problem> {
    let Some(Bytes(given)) = link.mtu else {
        return match link.mtu_errors {
            None => Ok(None),
            Some(_) => Err(Problem::conflict("\"mtu_errors\" is only used with \"mtu\"")).under("mtu_errors"),
        };
    };
    let bytes = u32::try_from(given.0).ok().filter(|bytes| (LinkMtu::LEAST_IPV4..=LinkMtu::MOST).contains(bytes));
    let bytes = bytes.ok_or_else(|| {
        let accepted = format!("{} to {} bytes", LinkMtu::LEAST_IPV4, LinkMtu::MOST);
        Problem::unexpected(ErrorKind::BadValue, given.to_string(), accepted).under("mtu")
    })?;
    Ok(Some(LinkMtu { bytes, is_reported: link.mtu_errors.unwrap_or(true) }))
}

fn codel(table: &file::CoDel) -> Result<CoDel, Problem> {
    let default = CoDel::default();
    Ok(CoDel {
        target: table.target.map_or(default.target, |target| target.0),
        interval: table.interval.map_or(Ok(default.interval), |interval| above_zero(interval, "interval"))?,
        ecn: table.ecn.unwrap_or(default.ecn),
    })
}

fn arq(table: &file::Arq) -> Result<Arq, Problem> {
    let default = Arq::default();
    let attempts = table.attempts.as_ref().map_or(default.attempts, |OrNone(attempts)| *attempts);
    if attempts == Some(0) {
        return Err(Problem::unexpected(ErrorKind::BadValue, "the number 0", "1 or more, or \"none\""))
            .under("attempts");
    }
    Ok(Arq {
        attempts,
        timeout: table.timeout.map_or(Ok(default.timeout), |timeout| above_zero(timeout, "timeout"))?,
        in_order: table.in_order.unwrap_or(default.in_order),
    })
}

/// One direction: the link's settings, overridden by `over`, a table with its name.
fn direction(
    link: DirectionRef<'_>,
    over: Option<(DirectionRef<'_>, &str)>,
    traces: &mut Traces,
) -> Result<LinkConfig, Problem> {
    let own = over.map(|(over, _)| over);
    let mut config = LinkConfig {
        delay: own.and_then(|over| over.delay).or(link.delay).map_or(Duration::ZERO, |delay| delay.0),
        jitter: own.and_then(|over| over.jitter).or(link.jitter).map(jitter),
        queue_limit: own.and_then(|over| over.queue_limit).or(link.queue_limit).map_or(QueueLimit::Unlimited, queue),
        ce_threshold: own.and_then(|over| over.ce_threshold).or(link.ce_threshold).map(|time| time.0),
        loss: own.and_then(|over| over.loss).or(link.loss).map_or(Loss::None, loss),
        duplicate: own.and_then(|over| over.duplicate).or(link.duplicate).map_or(0.0, |percent| percent.share()),
        corrupt: own.and_then(|over| over.corrupt).or(link.corrupt).map_or(0.0, |percent| percent.share()),
        reorder: own.and_then(|over| over.reorder).or(link.reorder).map(reordering),
        ..LinkConfig::default()
    };
    let under = |result: Result<(), Problem>, inner: bool| match over {
        Some((_, name)) if inner => result.under(name),
        _ => result,
    };
    let inner = own.is_some_and(|over| over.bit_errors.is_some());
    let given = own.and_then(|over| over.bit_errors).or(link.bit_errors);
    under(bit_errors::of(given).under("bit_errors").map(|errors| config.bit_errors = errors), inner)?;
    let inner = own.is_some_and(|over| over.codel.is_some());
    let given = own.and_then(|over| over.codel).or(link.codel);
    under(given.map(codel).transpose().under("codel").map(|codel| config.codel = codel), inner)?;
    let inner = own.is_some_and(|over| over.compression.is_some());
    if let Some(table) = own.and_then(|over| over.compression).or(link.compression) {
        let read = compression::of(table).under("compression");
        under(read.map(|compression| config.compression = Some(compression)), inner)?;
    }
    let inner = own.is_some_and(|over| over.overhead.is_some());
    under(set_overhead(&mut config, if inner { own.and_then(|over| over.overhead) } else { link.overhead }), inner)?;
    // A direction that sets its own rate replaces all of the link's settings for it.
    let mut speed = Speed::default();
    if let Some(over) = own {
        under(speed.read(over, traces), true)?;
    }
    under(speed.read_outer(link, traces), false)?;
    config.rate = speed.rate;
    config.conditions = speed.conditions;
    Ok(config)
}

/// The rate of a direction, and the other columns of its trace.
#[derive(Default)]
struct Speed {
    rate: Rate,
    conditions: Option<Arc<holdover_link::ConditionTrace>>,
}

impl Speed {
    /// Reads the settings of one table.
    fn read(&mut self, table: DirectionRef<'_>, traces: &mut Traces) -> Result<(), Problem> {
        let fixed = |rate: &DataRate| Rate::Fixed(rate.0);
        if let Some(rate) = table.rate {
            self.rate = fixed(rate);
        }
        match table.trace.map(|trace| traces.load(trace).under("trace")).transpose()? {
            None => Ok(()),
            Some(Loaded::Deliveries(_)) if table.rate.is_some() => rate_twice(),
            Some(Loaded::Deliveries(trace)) => {
                self.rate = Rate::Deliveries(trace);
                Ok(())
            }
            Some(Loaded::Conditions(trace)) => {
                if table.rate.is_some() && trace.rate(Instant::ZERO).is_some() {
                    return rate_twice();
                }
                if table.delay.is_some() && trace.delay(Instant::ZERO).is_some() {
                    let message = "the delay is given here and in the column \"delay\" of the trace; choose one";
                    return Err(Problem::conflict(message)).under("delay");
                }
                self.conditions = Some(trace);
                Ok(())
            }
        }
    }

    /// Reads the link's settings that are not replaced.
    fn read_outer(&mut self, link: DirectionRef<'_>, traces: &mut Traces) -> Result<(), Problem> {
        let mut outer = Self::default();
        outer.read(link, traces)?;
        let has_rate = |speed: &Self| {
            let by_trace = speed.conditions.as_ref().is_some_and(|trace| trace.rate(Instant::ZERO).is_some());
            by_trace || speed.rate != Rate::Unlimited
        };
        let own_rate = has_rate(self);
        if self.conditions.is_none() && !(own_rate && has_rate(&outer) && outer.conditions.is_some()) {
            self.conditions = outer.conditions;
        }
        if !own_rate {
            self.rate = outer.rate;
        }
        Ok(())
    }
}

fn rate_twice() -> Result<(), Problem> {
    Err(Problem::conflict("the rate is given here and by the trace; choose one")).under("rate")
}

fn set_overhead(config: &mut LinkConfig, overhead: Option<&crate::quantity::Bytes>) -> Result<(), Problem> {
    const MOST: u64 = 65_535;
    match overhead {
        Some(bytes) if bytes.0.0 > MOST => {
            Err(Problem::unexpected(ErrorKind::BadValue, bytes.0.to_string(), format!("at most {MOST} bytes")))
                .under("overhead")
        }
        Some(bytes) => {
            config.overhead_bytes = bytes.0.0 as u32;
            Ok(())
        }
        None => Ok(()),
    }
}

fn jitter(jitter: &file::Jitter) -> Jitter {
    Jitter {
        amplitude: jitter.amplitude.0,
        distribution: jitter.distribution.map_or(JitterDistribution::Uniform, |distribution| distribution.0),
        reorder: jitter.reorder.unwrap_or(false),
    }
}

pub(crate) fn queue(limit: &QueueSize) -> QueueLimit {
    match *limit {
        QueueSize::Unlimited => QueueLimit::Unlimited,
        QueueSize::Packets(packets) => QueueLimit::Packets(packets),
        QueueSize::Bytes(bytes) => QueueLimit::Bytes(bytes),
    }
}

fn loss(loss: &file::Loss) -> Loss {
    match loss {
        file::Loss::Independent(percent) if percent.share() == 0.0 => Loss::None,
        file::Loss::Independent(percent) => Loss::Independent(percent.share()),
        file::Loss::Bursts(chain) => Loss::GilbertElliott(holdover_link::GilbertElliott {
            good_to_bad: chain.good_to_bad.share(),
            bad_to_good: chain.bad_to_good.share(),
            loss_in_bad: chain.loss_in_bad.map_or(1.0, |percent| percent.share()),
            loss_in_good: chain.loss_in_good.map_or(0.0, |percent| percent.share()),
        }),
    }
}

fn reordering(reorder: &file::Reorder) -> Reordering {
    Reordering { probability: reorder.probability.share(), gap: reorder.gap.unwrap_or(1) }
}

fn outages(table: Option<&file::Outages>) -> Result<(Outages, OutagePolicy), Problem> {
    let policy = policy(table);
    let Some(table) = table else { return Ok((Outages::Never, policy)) };
    let outages = match (&table.list, &table.connected, &table.disconnected) {
        (Some(list), None, None) => {
            only_with_turns(table)?;
            Outages::List(listed(list)?)
        }
        (None, Some(connected), Some(disconnected)) => Outages::Alternating(Alternating {
            initial_connected: table.first_at.map(|at| at.0),
            connected: length(connected).under("connected")?,
            disconnected: length(disconnected).under("disconnected")?,
            count: table.count,
        }),
        (None, None, None) => {
            only_with_turns(table)?;
            Outages::Never
        }
        (Some(_), _, _) => {
            let message = "outages are given both as a list and by \"connected\" and \"disconnected\"; choose one";
            return Err(Problem::conflict(message)).under("list");
        }
        (None, Some(_), None) => return Err(missing("disconnected")),
        (None, None, Some(_)) => return Err(missing("connected")),
    };
    Ok((outages, policy))
}

fn policy(table: Option<&file::Outages>) -> OutagePolicy {
    let Some(table) = table else { return OutagePolicy::default() };
    let default = if table.layer2.is_some_and(|outage| outage.0.is_seen_by_host()) {
        OutagePolicy { queued: QueuedFate::Dropped, in_flight: InFlightFate::Dropped }
    } else {
        OutagePolicy::default()
    };
    OutagePolicy {
        queued: table.queued.map_or(default.queued, |fate| fate.0),
        in_flight: table.in_flight.map_or(default.in_flight, |fate| fate.0),
    }
}

fn missing(field: &str) -> Problem {
    Problem::new(ErrorKind::MissingField, format!("the field \"{field}\" is missing"))
}

fn only_with_turns(table: &file::Outages) -> Result<(), Problem> {
    for (given, key) in [(table.first_at.is_some(), "first_at"), (table.count.is_some(), "count")] {
        if given {
            let message = format!("\"{key}\" is only used with \"connected\" and \"disconnected\"");
            return Err(Problem::conflict(message)).under(key);
        }
    }
    Ok(())
}

fn listed(list: &[file::Outage]) -> Result<Vec<Outage>, Problem> {
    let mut outages = Vec::with_capacity(list.len());
    let mut free_from = Instant::ZERO;
    for (index, outage) in list.iter().enumerate() {
        let outage = listed_one(outage, free_from).under_index(index).under("list")?;
        free_from = outage.up;
        outages.push(outage);
    }
    Ok(outages)
}

fn listed_one(outage: &file::Outage, free_from: Instant) -> Result<Outage, Problem> {
    let down = Instant::ZERO + outage.at.0;
    if down < free_from {
        let found = format!("\"{}\"", outage.at.0);
        let accepted = if free_from == Instant::FAR_FUTURE {
            "nothing more: the outage before never ends".to_owned()
        } else {
            format!("{} or later, when the outage before has ended", free_from.saturating_since(Instant::ZERO))
        };
        return Err(Problem::unexpected(ErrorKind::BadValue, found, accepted)).under("at");
    }
    let up = match (outage.length, outage.until) {
        (Some(_), Some(_)) => {
            return Err(Problem::conflict("\"for\" and \"until\" both say when it ends; choose one")).under("until");
        }
        (Some(length), None) => down + above_zero(length, "for")?,
        (None, Some(until)) if Instant::ZERO + until.0 <= down => {
            let found = format!("\"{}\"", until.0);
            return Err(Problem::unexpected(ErrorKind::BadValue, found, "a time after \"at\"")).under("until");
        }
        (None, Some(until)) => Instant::ZERO + until.0,
        (None, None) => Instant::FAR_FUTURE,
    };
    Ok(Outage { down, up })
}

pub(crate) fn length(length: &file::Length) -> Result<Length, Problem> {
    let table = match length {
        file::Length::Constant(time) if time.0.is_zero() => {
            return Err(Problem::unexpected(ErrorKind::BadValue, "\"0 s\"", "a time above 0"));
        }
        file::Length::Constant(time) => return Ok(Length::Constant(time.0)),
        file::Length::Drawn(table) => table,
    };
    let LengthTable { distribution, mean, deviation, min, max } = table;
    let fields = [("mean", mean), ("deviation", deviation), ("min", min), ("max", max)];
    let used: &[&str] = match distribution.0 {
        Distribution::Exponential => &["mean"],
        Distribution::Normal => &["mean", "deviation"],
        Distribution::Uniform => &["min", "max"],
    };
    for (key, given) in fields {
        match (used.contains(&key), given) {
            (true, None) => return Err(missing(key)),
            (false, Some(_)) => {
                let message = format!(
                    "\"{}\" has no \"{key}\"; it has {}",
                    distribution.name(),
                    crate::problem::list_words(used)
                );
                return Err(Problem::conflict(message)).under(key);
            }
            _ => {}
        }
    }
    let time = |time: &Option<crate::quantity::Time>| time.map_or(Duration::ZERO, |time| time.0);
    match distribution.0 {
        Distribution::Uniform if time(min) > time(max) || time(max).is_zero() => {
            let accepted = "a time above 0 and not below \"min\"";
            Err(Problem::unexpected(ErrorKind::BadValue, format!("\"{}\"", time(max)), accepted)).under("max")
        }
        Distribution::Uniform => Ok(Length::Uniform { min: time(min), max: time(max) }),
        _ if time(mean).is_zero() => {
            Err(Problem::unexpected(ErrorKind::BadValue, "\"0 s\"", "a time above 0")).under("mean")
        }
        Distribution::Exponential => Ok(Length::Exponential { mean: time(mean) }),
        Distribution::Normal => Ok(Length::Normal { mean: time(mean), standard_deviation: time(deviation) }),
    }
}
