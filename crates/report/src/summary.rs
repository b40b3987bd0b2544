//! A run of all variants in figures: `summary.json` and `flows.csv`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::kernel::KernelSummary;
use crate::metrics::{CellMetrics, CpuMetrics, FlowMetrics, LinkMetrics, MobileMetrics};
use crate::recorder::{Record, RecordError};

/// All that was measured in a run. It says nothing of when and where it ran, unless on real kernels: the same scenario and seed
/// give the same.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// The scenario's name.
    pub name: String,
    /// Its title; its name if it has none.
    pub title: String,
    /// What it is about, in the scenario's words; may be empty.
    pub description: String,
    /// The version of Holdover.
    pub version: String,
    /// What everything random was drawn from.
    pub seed: u64,
    /// The variants, in the order of the scenario.
    pub variants: Vec<VariantSummary>,
}

/// One variant.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VariantSummary {
    /// Its name.
    pub variant: String,
    /// The directory of its files, relative to that of the run.
    pub directory: String,
    /// How the run ended: `all-done`, `time-limit` or `idle`.
    pub ending: String,
    /// When it ended.
    pub ended_at_s: f64,
    /// How many events the simulator handled.
    pub events: u64,
    /// Captures that reached their limit and lack later packets.
    pub cut_captures: Vec<String>,
    /// Every flow.
    pub flows: Vec<FlowMetrics>,
    /// Every link.
    pub links: Vec<LinkMetrics>,
    /// Every radio cell.
    pub cells: Vec<CellMetrics>,
    /// Every mobile host.
    pub mobiles: Vec<MobileMetrics>,
    /// Every router whose processor takes time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuMetrics>,
    /// What is known of it besides if it was run on real kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelSummary>,
}

impl VariantSummary {
    /// What `record` says of the variant called `variant`, whose files are in `directory`.
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
            kernel: None,
        }
    }
}

impl Summary {
    /// The summary as JSON, indented, with a newline at the end.
    pub fn to_json(&self) -> String {
        // Its maps have strings for keys and its numbers are finite, which is all that could go wrong.
        let mut json = serde_json::to_string_pretty(self).unwrap_or_default();
        json.push('\n');
        json
    }

    /// One row for each flow of each variant, with every metric. Times are in seconds, rates in bits per second.
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

/// The columns of `flows.csv`. What does not apply is empty; `idle_after_reconnection_s` lists the times, separated by
/// semicolons, with a `-` where no new data came before the next outage or the end.
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
