//! The results of all variants of a run: `summary.json` and `flows.csv`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::actions::ActionMetrics;
use crate::error::RecordError;
use crate::kernel::KernelSummary;
use crate::metrics::{CellMetrics, CpuMetrics, FlowMetrics, LinkMetrics, MobileMetrics};
use crate::recorder::Record;

/// The measurements of a run. They contain no time or place, unless on real kernels: the same scenario and seed give the same summary.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// The scenario's name.
    pub name: String,
    /// Its title, or its name if it has none.
    pub title: String,
    /// The scenario's description; may be empty.
    pub description: String,
    /// The version of Holdover.
    pub version: String,
    /// The random seed.
    pub seed: u64,
    /// The variants, in the scenario's order.
    pub variants: Vec<VariantSummary>,
}

/// One variant.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VariantSummary {
    /// Its name.
    pub variant: String,
    /// The directory of its files, relative to the run's.
    pub directory: String,
    /// The reason for the end of the run: `all-done`, `time-limit` or `idle`.
    pub ending: String,
    /// The time of its end.
    pub ended_at_s: f64,
    /// The number of events handled by the simulator.
    pub events: u64,
    /// Captures that reached their size limit and lack later packets.
    pub cut_captures: Vec<String>,
    /// All flows.
    pub flows: Vec<FlowMetrics>,
    /// All links.
    pub links: Vec<LinkMetrics>,
    /// All radio cells.
    pub cells: Vec<CellMetrics>,
    /// All mobile hosts.
    pub mobiles: Vec<MobileMetrics>,
    /// All routers with processing delay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuMetrics>,
    /// The actions of mechanisms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<ActionMetrics>,
    /// Additional measurements of a run on real kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelSummary>,
}

impl VariantSummary {
    /// The summary of `record` for the variant called `variant`, with files in `directory`.
    pub fn new(variant: &str, directory: &str, record: &Record) -> Self {
        Self {
            variant: variant.to_owned(),
            directory: directory.to_owned(),
            ending: record.ending.to_owned(),
            ended_at_s: record.ended_at.as_secs_f64(),
            events: record.events,
            cut_captures: record.cut_captures.clone(),
            flows: record.flows.clone(),
            links: record.links.clone(),
            cells: record.cells.clone(),
            mobiles: record.mobiles.clone(),
            cpus: record.cpus.clone(),
            actions: record.actions.clone(),
            kernel: None,
        }
    }
}

impl Summary {
    /// The summary as indented JSON with a final newline.
    pub fn to_json(&self) -> String {
        // Serialization cannot fail: keys are strings and numbers finite.
        let mut json = serde_json::to_string_pretty(self).unwrap_or_default();
        json.push('\n');
        json
    }

    /// One row per flow and variant, with every metric. Times are in seconds, rates in bits per second.
    pub(crate) fn flows_csv(&self, path: &Path) -> Result<Vec<u8>, RecordError> {
        let mut out = csv::Writer::from_writer(Vec::new());
        let write = |out: &mut csv::Writer<Vec<u8>>| {
            out.write_record(FLOW_COLUMNS)?;
            for variant in &self.variants {
                for flow in &variant.flows {
                    out.write_record(flow_row(&variant.variant, self.seed, flow))?;
                }
            }
            Ok(())
        };
        write(&mut out).map_err(|error| RecordError::table(path, error))?;
        out.into_inner().map_err(|error| RecordError::io(path, error.into_error()))
    }
}

/// The columns of `flows.csv`. Metrics that do not apply are empty; `idle_after_reconnection_s` lists the times,
/// separated by semicolons, with a `-` where no new data came before the next outage or the end.
const FLOW_COLUMNS: [&str; 42] = [
    "variant",
    "seed",
    "flow",
    "from",
    "to",
    "status",
    "error",
    "started_at_s",
    "connected_at_s",
    "completed_at_s",
    "duration_s",
    "outage_s",
    "net_duration_s",
    "ideal_s",
    "ideal_share",
    "bytes_received",
    "throughput_bps",
    "goodput_bps",
    "net_goodput_bps",
    "segments_sent",
    "segments_received",
    "bytes_sent",
    "bytes_retransmitted",
    "bytes_acked",
    "timeouts",
    "fast_retransmits",
    "recoveries",
    "undos",
    "duplicate_bytes_received",
    "duplicate_segments_received",
    "reconnections",
    "mean_idle_after_reconnection_s",
    "max_idle_after_reconnection_s",
    "idle_after_reconnection_s",
    "exchanges",
    "exchange_min_s",
    "exchange_mean_s",
    "exchange_median_s",
    "exchange_p95_s",
    "exchange_max_s",
    "receiver_segments_sent",
    "receiver_segments_received",
];

fn flow_row(variant: &str, seed: u64, flow: &FlowMetrics) -> Vec<String> {
    let number = |value: f64| value.to_string();
    let optional = |value: Option<f64>| value.map_or(String::new(), number);
    let sender = |get: fn(&crate::metrics::ConnectionMetrics) -> u64| {
        flow.sender.as_ref().map_or(String::new(), |sender| get(sender).to_string())
    };
    let receiver = |get: fn(&crate::metrics::ConnectionMetrics) -> u64| {
        flow.receiver.as_ref().map_or(String::new(), |receiver| get(receiver).to_string())
    };
    let exchange = |get: fn(&crate::metrics::ExchangeMetrics) -> f64| optional(flow.exchanges.as_ref().map(get));
    let idle: Vec<String> =
        flow.reconnections.iter().map(|reconnection| reconnection.idle_s.map_or("-".to_owned(), number)).collect();
    vec![
        variant.to_owned(),
        seed.to_string(),
        flow.flow.clone(),
        flow.from.clone(),
        flow.to.clone(),
        flow.status.name().to_owned(),
        flow.error.clone().unwrap_or_default(),
        number(flow.started_at_s),
        optional(flow.connected_at_s),
        optional(flow.completed_at_s),
        number(flow.duration_s),
        number(flow.outage_s),
        number(flow.net_duration_s),
        optional(flow.ideal_s),
        optional(flow.ideal_share),
        flow.bytes_received.to_string(),
        number(flow.throughput_bps),
        number(flow.goodput_bps),
        number(flow.net_goodput_bps),
        sender(|sender| sender.segments_sent),
        sender(|sender| sender.segments_received),
        sender(|sender| sender.bytes_sent),
        sender(|sender| sender.bytes_retransmitted),
        sender(|sender| sender.bytes_acked),
        sender(|sender| sender.timeouts),
        sender(|sender| sender.fast_retransmits),
        sender(|sender| sender.recoveries),
        sender(|sender| sender.undos),
        receiver(|receiver| receiver.bytes_duplicate),
        receiver(|receiver| receiver.duplicate_segments),
        flow.reconnections.len().to_string(),
        optional(flow.mean_idle_s()),
        optional(flow.idle_times_s().max_by(f64::total_cmp)),
        idle.join(";"),
        flow.exchanges.as_ref().map_or(String::new(), |exchanges| exchanges.count.to_string()),
        exchange(|exchanges| exchanges.min_s),
        exchange(|exchanges| exchanges.mean_s),
        exchange(|exchanges| exchanges.median_s),
        exchange(|exchanges| exchanges.p95_s),
        exchange(|exchanges| exchanges.max_s),
        receiver(|receiver| receiver.segments_sent),
        receiver(|receiver| receiver.segments_received),
    ]
}
