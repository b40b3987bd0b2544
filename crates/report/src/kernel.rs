//! The measurements that a run on real kernels has besides those of all runs.

use std::collections::BTreeMap;
use std::fmt::Write;

use holdover_base::Duration;
use serde::{Deserialize, Serialize};

use crate::draw::escape;
use crate::metrics::FlowMetrics;
use crate::quantity::{counted, seconds};

/// Measurements of a variant run on real kernels. The variant's other figures are those of the median repetition by flow duration.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KernelSummary {
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// The variant's name in the simulator.
    pub simulated: String,
    /// The lateness of packets.
    pub lateness: LatenessMetrics,
    /// Each host's kernel counters for the run.
    pub hosts: Vec<HostCounters>,
    /// All repetitions.
    pub repetitions: Vec<Repetition>,
}

/// The lateness of packets at their kernels: a delay on top of that of the links.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct LatenessMetrics {
    /// The number of packets.
    pub packets: u64,
    /// The median.
    pub median_s: f64,
    /// The 99th percentile.
    pub p99_s: f64,
    /// The maximum.
    pub max_s: f64,
}

impl LatenessMetrics {
    /// Metrics of a distribution: the number of packets, the lateness not exceeded by a share of them, and the greatest one.
    pub fn new(packets: u64, quantile: impl Fn(f64) -> Duration, max: Duration) -> Self {
        Self {
            packets,
            median_s: quantile(0.5).as_secs_f64(),
            p99_s: quantile(0.99).as_secs_f64(),
            max_s: max.as_secs_f64(),
        }
    }
}

/// Counters of one host's kernel.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostCounters {
    /// The host.
    pub host: String,
    /// The TCP counters that are not 0, by the names of `nstat`.
    pub counters: BTreeMap<String, i64>,
}

/// One of several runs on real kernels.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Repetition {
    /// The directory of its files, relative to the run's.
    pub directory: String,
    /// The reason for its end.
    pub ending: String,
    /// The lateness of packets.
    pub lateness: LatenessMetrics,
    /// All flows.
    pub flows: Vec<FlowMetrics>,
}

impl KernelSummary {
    /// The facts of the run as a paragraph, and the counters of each host, for the page.
    pub(crate) fn to_html(&self) -> String {
        let late = self.lateness;
        let mut html = format!(
            "<p class=\"facts\">Linux {}, {}. Packets reached their kernel later than they were due by {} (median), {} (99 of \
             100), {} (at most).</p>\n",
            escape(&self.release),
            counted(self.repetitions.len() as u64, "run"),
            seconds(late.median_s),
            seconds(late.p99_s),
            seconds(late.max_s),
        );
        if self.hosts.iter().any(|host| !host.counters.is_empty()) {
            html.push_str("<details><summary>Counters of the kernels</summary>\n<div class=\"columns\">");
            for host in &self.hosts {
                let _ = writeln!(html, "<div><h4>{}</h4>\n<table class=\"small\">", escape(&host.host));
                for (name, value) in &host.counters {
                    let _ = writeln!(html, "<tr><th scope=\"row\">{}</th><td>{value}</td></tr>", escape(name));
                }
                html.push_str("</table></div>\n");
            }
            html.push_str("</div>\n</details>\n");
        }
        html
    }
}
