//! Quantities of runs.

use holdover_report::{FlowMetrics, StatusName};
use holdover_scenario::{Measure, Metric, Subject};

use super::journal::Row;

/// A quantity averaged over runs: a metric of one flow or of all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quantity(pub Measure);

impl Quantity {
    /// Its value in a run; `None` if the metric applies to nothing in it.
    ///
    /// For several flows it is their sum or mean, depending on [`Metric::adds_up`], over those that the metric applies
    /// to; for several links or routers it is their sum.
    pub fn of(&self, run: &Row) -> Option<f64> {
        let of_link = |name: &String| self.0.flow.as_ref().is_none_or(|link| link == name);
        match self.0.metric.subject() {
            Subject::Flows => self.of_flows(&run.flows),
            Subject::Links => {
                total(run.links.iter().filter(|link| of_link(&link.link)).map(|link| match self.0.metric {
                    Metric::LinkPackets => link.packets,
                    _ => link.bytes,
                }))
            }
            Subject::Routers => total(run.routers.iter().map(|router| match self.0.metric {
                Metric::RouterBytes => router.bytes,
                _ => router.connections,
            })),
        }
    }

    fn of_flows(&self, flows: &[FlowMetrics]) -> Option<f64> {
        let exact = self.0.flow.as_ref().is_some_and(|name| flows.iter().any(|flow| flow.flow == *name));
        let is_meant = |flow: &&FlowMetrics| match &self.0.flow {
            None => true,
            Some(name) if exact => flow.flow == *name,
            Some(name) => is_one_of(&flow.flow, name),
        };
        let values: Vec<f64> = flows.iter().filter(is_meant).filter_map(|flow| value(self.0.metric, flow)).collect();
        let sum: f64 = values.iter().sum();
        match values.len() {
            0 => None,
            _ if self.0.metric.adds_up() => Some(sum),
            count => Some(sum / count as f64),
        }
    }

    /// The column name, for a statistic (`mean`, `half_width`) and with the unit: `goodput_mean_bps`.
    pub fn column(&self, statistic: &str) -> String {
        format!("{}_{statistic}{}", self.name(), suffix(self.0.metric))
    }

    /// The name in tables: `goodput`, `goodput_of_download`.
    pub fn name(&self) -> String {
        match &self.0.flow {
            None => self.0.metric.name().to_owned(),
            Some(flow) => format!("{}_of_{flow}", self.0.metric.name()),
        }
    }

    /// The title in reports: `goodput of download`.
    pub fn title(&self) -> String {
        self.name().replace('_', " ")
    }

    /// The unit of its values; empty for a number without one.
    pub const fn unit(&self) -> &'static str {
        self.0.metric.unit()
    }
}

/// The sum of counts; `None` without any.
fn total(counts: impl Iterator<Item = u64>) -> Option<f64> {
    counts.reduce(|a, b| a + b).map(|sum| sum as f64)
}

/// The unit as a suffix of a column name; empty if the metric's name includes it.
fn suffix(metric: Metric) -> &'static str {
    match metric.unit() {
        "bit/s" => "_bps",
        "s" => "_s",
        _ => "",
    }
}

/// Whether `flow` is one of the copies of a flow `kind` with a count: `kind-1`, `kind-2`, ...
fn is_one_of(flow: &str, kind: &str) -> bool {
    let number = flow.strip_prefix(kind).and_then(|rest| rest.strip_prefix('-'));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

fn value(metric: Metric, flow: &FlowMetrics) -> Option<f64> {
    let (sender, receiver) = (flow.sender.as_ref(), flow.receiver.as_ref());
    match metric {
        Metric::Goodput => Some(flow.goodput_bps),
        Metric::NetGoodput => Some(flow.net_goodput_bps),
        Metric::Throughput => Some(flow.throughput_bps),
        Metric::Duration => Some(flow.duration_s),
        Metric::NetDuration => Some(flow.net_duration_s),
        Metric::IdealShare => flow.ideal_share,
        Metric::Timeouts => sender.map(|sender| sender.timeouts as f64),
        Metric::BytesRetransmitted => sender.map(|sender| sender.bytes_retransmitted as f64),
        Metric::FastRetransmits => sender.map(|sender| sender.fast_retransmits as f64),
        Metric::IdleAfterReconnection => flow.mean_idle_s(),
        Metric::IdleBeforeOutage => flow.mean_over_reconnections(|outage| outage.idle_before_s),
        Metric::CwndAtOutage => flow.mean_over_reconnections(|outage| Some(outage.before?.cwnd.into())),
        Metric::CwndAfterOutage => flow.mean_over_reconnections(|outage| Some(outage.after?.cwnd.into())),
        Metric::SsthreshAfterOutage => flow.mean_over_reconnections(|outage| Some(outage.after?.ssthresh?.into())),
        Metric::RtoAtOutage => flow.mean_over_reconnections(|outage| Some(outage.before?.rto_s)),
        Metric::ReaddressingTime => flow.mean_readdressing_s(),
        Metric::LongestPause => flow.longest_pause_s,
        Metric::DuplicateSegments => receiver.map(|receiver| receiver.duplicate_segments as f64),
        Metric::ExchangeTime => flow.exchanges.as_ref().map(|exchanges| exchanges.mean_s),
        Metric::Completed => Some(if flow.status == StatusName::Completed { 1.0 } else { 0.0 }),
        Metric::LinkPackets | Metric::LinkBytes | Metric::RouterBytes | Metric::RouterConnections => None,
    }
}

/// The base unit of a scenario value, as a suffix of a column name; `None` for a word or a plain number.
pub fn unit_suffix(value: &str) -> Option<&'static str> {
    let unit = value.trim().trim_start_matches(|c: char| c.is_ascii_digit() || ".,_+-".contains(c)).trim();
    if unit.len() == value.trim().len() {
        return None;
    }
    match unit {
        "ns" | "nsec" | "us" | "usec" | "µs" | "ms" | "msec" | "s" | "sec" | "min" | "h" => Some("s"),
        "B" | "byte" | "bytes" | "kB" | "KB" | "MB" | "GB" | "KiB" | "MiB" | "GiB" => Some("bytes"),
        "%" => Some("share"),
        "packet" | "packets" => Some("packets"),
        "segment" | "segments" => Some("segments"),
        "retry" | "retries" => Some("retries"),
        rate if rate.contains("bit") || rate.ends_with("bps") => Some("bps"),
        _ => None,
    }
}
