//! The metrics of flows and links, as in `summary.json` and `flows.csv`.

use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_link::Statistics;
use holdover_link::cell::CellStatistics;
use holdover_sim::{CpuStatistics, FlowConfig, FlowReport, FlowStatus, NodeConfig, Reconnection, SenderState, World};
use holdover_tcp::{Counters, Disposition, Reason};
use serde::{Deserialize, Serialize};

use crate::series::OutageLog;

/// The outcome of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatusName {
    /// All data arrived.
    Completed,
    /// The connection ended first.
    Failed,
    /// The run ended first.
    Unfinished,
}

impl StatusName {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Unfinished => "unfinished",
        }
    }
}

/// Measurements of a flow. Times are seconds since the start of the run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FlowMetrics {
    /// Its name.
    pub flow: String,
    /// The sending (or requesting) node.
    pub from: String,
    /// The receiving (or responding) node.
    pub to: String,
    /// The outcome.
    pub status: StatusName,
    /// Whether the flow has no end of its own, as exchanges without a count and datagrams: it lasts as long as the run.
    #[serde(default)]
    pub endless: bool,
    /// The error of a failed flow.
    pub error: Option<String>,
    /// The time of its start.
    pub started_at_s: f64,
    /// The time of connection establishment.
    pub connected_at_s: Option<f64>,
    /// The time of the last byte read.
    pub completed_at_s: Option<f64>,
    /// From its start to the last byte read, or to the end of the run.
    pub duration_s: f64,
    /// The time within it during which a link on the path was down.
    pub outage_s: f64,
    /// Net transmission time: the duration minus outages.
    pub net_duration_s: f64,
    /// The time of a perfect sender under the same link schedule.
    pub ideal_s: Option<f64>,
    /// Ideal time divided by the actual time: 1 is perfect.
    pub ideal_share: Option<f64>,
    /// Bytes read by the application.
    pub bytes_received: u64,
    /// Payload bits per second sent by both ends over the duration, including retransmissions.
    pub throughput_bps: f64,
    /// Payload bits per second read by the application over the duration.
    pub goodput_bps: f64,
    /// The goodput over the net transmission time.
    pub net_goodput_bps: f64,
    /// The longest time without new data at an application, between its first and last data or the end of the run.
    pub longest_pause_s: Option<f64>,
    /// The connection at `from`.
    pub sender: Option<ConnectionMetrics>,
    /// The connection at `to`.
    pub receiver: Option<ConnectionMetrics>,
    /// All reconnections of links on its path.
    pub reconnections: Vec<ReconnectionMetrics>,
    /// Between identities: the times from a host's new attachment until its peer has verified the new address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readdressings_s: Vec<f64>,
    /// Request-response exchanges.
    pub exchanges: Option<ExchangeMetrics>,
}

/// Counters of one end of a connection.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ConnectionMetrics {
    /// Segments sent.
    pub segments_sent: u64,
    /// Segments received.
    pub segments_received: u64,
    /// Data bytes sent for the first time.
    pub bytes_sent: u64,
    /// Data bytes retransmitted.
    pub bytes_retransmitted: u64,
    /// Data bytes acknowledged by the peer.
    pub bytes_acked: u64,
    /// Data bytes received in order.
    pub bytes_received: u64,
    /// Data bytes that arrived more than once.
    pub bytes_duplicate: u64,
    /// Segments whose data had all arrived before.
    pub duplicate_segments: u64,
    /// Expirations of the retransmission timer that caused a retransmission.
    pub timeouts: u64,
    /// Segments sent as fast retransmits.
    pub fast_retransmits: u64,
    /// Recoveries started by duplicate ACKs, SACK or RACK.
    pub recoveries: u64,
    /// Timeouts or recoveries undone as spurious.
    pub undos: u64,
    /// Segments sent by reason, without zeros.
    pub sent_by_reason: BTreeMap<String, u64>,
    /// Segments received by disposition, without zeros.
    pub received_by_disposition: BTreeMap<String, u64>,
}

/// A reconnection of a link on the path.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReconnectionMetrics {
    /// The time of reconnection.
    pub up_at_s: f64,
    /// From then to the first new data at the application; `None` if there was none before the next outage or the end.
    pub idle_s: Option<f64>,
    /// From the last new data at the application to the outage; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_before_s: Option<f64>,
    /// The sender when the outage began; `None` if it was not simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<SenderMetrics>,
    /// The sender at the first new data after the reconnection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<SenderMetrics>,
}

/// The state of a sender at a time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct SenderMetrics {
    /// The congestion window in segments.
    pub cwnd: u32,
    /// The slow-start threshold in segments; `None` before the first loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssthresh: Option<u32>,
    /// The retransmission timeout, backed off.
    pub rto_s: f64,
}

/// Response times.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExchangeMetrics {
    /// The number of exchanges.
    pub count: u64,
    /// The minimum.
    pub min_s: f64,
    /// The mean.
    pub mean_s: f64,
    /// The median.
    pub median_s: f64,
    /// The 95th percentile.
    pub p95_s: f64,
    /// The maximum.
    pub max_s: f64,
}

impl FlowMetrics {
    /// Measurements of every flow of `world`, for a run without a recorder.
    pub fn of_world(world: &World) -> Vec<Self> {
        let config = world.config();
        let flows = config.flows.iter().zip(world.report());
        flows.map(|(flow, report)| Self::new(flow, &config.nodes, &report)).collect()
    }

    pub(crate) fn new(config: &FlowConfig, nodes: &[NodeConfig], report: &FlowReport) -> Self {
        let name = |node: holdover_sim::NodeId| nodes[node.0 as usize].name.clone();
        let (status, error) = match report.status {
            FlowStatus::Completed => (StatusName::Completed, None),
            FlowStatus::Failed(error) => (StatusName::Failed, Some(error.to_string())),
            FlowStatus::Unfinished => (StatusName::Unfinished, None),
        };
        let per_second = |bytes: u64, span: Duration| {
            if span.is_zero() { 0.0 } else { bytes as f64 * 8.0 / span.as_secs_f64() }
        };
        let ends = [report.sender.as_ref(), report.receiver.as_ref()];
        let sent = ends.into_iter().flatten().map(|end| end.bytes_sent.0 + end.bytes_retransmitted.0).sum();
        Self {
            flow: config.name.clone(),
            from: name(config.from),
            to: name(config.to),
            status,
            endless: !config.is_finite(),
            error,
            started_at_s: report.started_at.as_secs_f64(),
            connected_at_s: report.connected_at.map(Instant::as_secs_f64),
            completed_at_s: report.completed_at.map(Instant::as_secs_f64),
            duration_s: report.duration().as_secs_f64(),
            outage_s: report.outage.as_secs_f64(),
            net_duration_s: report.net_duration().as_secs_f64(),
            ideal_s: report.ideal.map(Duration::as_secs_f64),
            ideal_share: report.ideal_share(),
            bytes_received: report.bytes_received,
            throughput_bps: per_second(sent, report.duration()),
            goodput_bps: report.goodput_bps(),
            net_goodput_bps: per_second(report.bytes_received, report.net_duration()),
            longest_pause_s: report.longest_pause.map(Duration::as_secs_f64),
            sender: report.sender.as_ref().map(ConnectionMetrics::new),
            receiver: report.receiver.as_ref().map(ConnectionMetrics::new),
            reconnections: report.reconnections.iter().map(ReconnectionMetrics::new).collect(),
            readdressings_s: report.readdressings.iter().map(|time| time.as_secs_f64()).collect(),
            exchanges: ExchangeMetrics::new(&report.exchanges),
        }
    }

    /// The mean of [`Self::readdressings_s`].
    pub fn mean_readdressing_s(&self) -> Option<f64> {
        let count = self.readdressings_s.len();
        (count > 0).then(|| self.readdressings_s.iter().sum::<f64>() / count as f64)
    }

    /// The idle times after reconnections that were followed by new data.
    pub fn idle_times_s(&self) -> impl Iterator<Item = f64> + '_ {
        self.reconnections.iter().filter_map(|reconnection| reconnection.idle_s)
    }

    /// The mean of a value over the reconnections that have it.
    pub fn mean_over_reconnections(&self, value: impl Fn(&ReconnectionMetrics) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.reconnections.iter().filter_map(value).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The mean of [`Self::idle_times_s`].
    pub fn mean_idle_s(&self) -> Option<f64> {
        let count = self.idle_times_s().count();
        (count > 0).then(|| self.idle_times_s().sum::<f64>() / count as f64)
    }

    /// Retransmitted bytes divided by bytes sent for the first time.
    pub fn retransmitted_share(&self) -> Option<f64> {
        let sender = self.sender.as_ref().filter(|sender| sender.bytes_sent > 0)?;
        Some(sender.bytes_retransmitted as f64 / sender.bytes_sent as f64)
    }
}

impl ConnectionMetrics {
    fn new(counters: &Counters) -> Self {
        let sent = |reason: &Reason| (reason.name().to_owned(), u64::from(counters.sent(*reason)));
        let received = |end: &Disposition| (end.name().to_owned(), u64::from(counters.received(*end)));
        let occurred = |(_, count): &(String, u64)| *count > 0;
        Self {
            segments_sent: counters.segments_sent,
            segments_received: counters.segments_received,
            bytes_sent: counters.bytes_sent.0,
            bytes_retransmitted: counters.bytes_retransmitted.0,
            bytes_acked: counters.bytes_acked.0,
            bytes_received: counters.bytes_received.0,
            bytes_duplicate: counters.bytes_duplicate.0,
            duplicate_segments: counters.received(Disposition::DuplicateData).into(),
            timeouts: counters.timeouts.into(),
            fast_retransmits: counters.sent(Reason::FastRetransmit).into(),
            recoveries: counters.recoveries.into(),
            undos: counters.undos.into(),
            sent_by_reason: Reason::ALL.iter().map(sent).filter(occurred).collect(),
            received_by_disposition: Disposition::ALL.iter().map(received).filter(occurred).collect(),
        }
    }
}

impl ReconnectionMetrics {
    fn new(reconnection: &Reconnection) -> Self {
        let seconds = |time: Option<Duration>| time.map(Duration::as_secs_f64);
        Self {
            up_at_s: reconnection.up_at.as_secs_f64(),
            idle_s: seconds(reconnection.idle),
            idle_before_s: seconds(reconnection.idle_before),
            before: reconnection.before.map(SenderMetrics::new),
            after: reconnection.after.map(SenderMetrics::new),
        }
    }
}

impl SenderMetrics {
    fn new(state: SenderState) -> Self {
        Self { cwnd: state.cwnd, ssthresh: state.ssthresh, rto_s: state.rto.as_secs_f64() }
    }
}

impl ExchangeMetrics {
    fn new(times: &[Duration]) -> Option<Self> {
        let mut sorted: Vec<f64> = times.iter().map(|time| time.as_secs_f64()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&min_s, &max_s) = (sorted.first()?, sorted.last()?);
        // The nearest rank, so that the value occurred.
        let quantile = |share: f64| sorted[((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1];
        Some(Self {
            count: sorted.len() as u64,
            min_s,
            mean_s: sorted.iter().sum::<f64>() / sorted.len() as f64,
            median_s: quantile(0.5),
            p95_s: quantile(0.95),
            max_s,
        })
    }
}

/// Measurements of a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinkMetrics {
    /// Its name.
    pub link: String,
    /// The node at one end.
    pub a: String,
    /// The node at the other end.
    pub b: String,
    /// Its outages.
    pub outages: OutageMetrics,
    /// From `a` to `b`.
    pub forward: DirectionMetrics,
    /// From `b` to `a`.
    pub backward: DirectionMetrics,
}

/// Counters of one direction of a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DirectionMetrics {
    /// Packets entered.
    pub packets: u64,
    /// Bytes of the packets entered.
    pub bytes: u64,
    /// Packets delivered, including damaged ones.
    pub delivered_packets: u64,
    /// Packets delivered damaged.
    pub damaged_packets: u64,
    /// Duplicates made by the link.
    pub duplicated_packets: u64,
    /// Dropped packets by cause, without zeros.
    pub dropped_packets: BTreeMap<String, u64>,
    /// The queue.
    pub queue: QueueMetrics,
}

/// A queue over the run, without the packet in transmission.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct QueueMetrics {
    /// The time-weighted mean number of packets.
    pub mean_packets: f64,
    /// The maximum number of packets.
    pub max_packets: u64,
    /// The maximum number of bytes.
    pub max_bytes: u64,
}

/// Outages of a link or host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OutageMetrics {
    /// Their number.
    pub count: u64,
    /// Their total duration.
    pub total_s: f64,
    /// The shortest completed one.
    pub shortest_s: Option<f64>,
    /// The longest completed one.
    pub longest_s: Option<f64>,
    /// Start and end of the first 20.
    pub first_s: Vec<(f64, f64)>,
}

/// Measurements of a radio cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellMetrics {
    /// Its name.
    pub cell: String,
    /// Its base station.
    pub base: String,
    /// From the base station.
    pub down: DirectionMetrics,
    /// To the base station.
    pub up: DirectionMetrics,
    /// Packets returned to their sender when a station left.
    pub handed_back_packets: u64,
    /// Transmission attempts without a response.
    pub unanswered: u64,
    /// Transmission attempts whose data frames had bit errors.
    #[serde(default)]
    pub damaged: u64,
    /// Collided transmission attempts.
    pub collisions: u64,
    /// The share of the run during which the medium was busy.
    pub airtime_share: f64,
}

/// Measurements of a router's processor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CpuMetrics {
    /// The router.
    pub router: String,
    /// Packets served.
    pub packets: u64,
    /// Packets handled by mechanisms.
    pub operations: u64,
    /// Packets originated by mechanisms without an incoming one.
    pub made_packets: u64,
    /// Data bytes compressed by mechanisms.
    pub compressed_bytes: u64,
    /// Packets dropped by a full backlog.
    pub dropped_packets: u64,
    /// The share of the run during which it was busy.
    pub utilisation: f64,
    /// The mean time of waiting and service; `None` if no packet was served.
    pub mean_sojourn_s: Option<f64>,
    /// The maximum number of packets waiting or in service.
    pub max_backlog_packets: u64,
}

/// Measurements of a mobile host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MobileMetrics {
    /// Its name.
    pub node: String,
    /// The times during which packets could not pass between it and the network.
    pub outages: OutageMetrics,
}

impl LinkMetrics {
    pub(crate) fn new(
        names: [&str; 3],
        outages: &OutageLog,
        [forward, backward]: &[Statistics; 2],
        ended_at: Instant,
    ) -> Self {
        let run = ended_at.saturating_since(Instant::ZERO);
        let [link, a, b] = names.map(str::to_owned);
        let (forward, backward) = (DirectionMetrics::new(forward, run), DirectionMetrics::new(backward, run));
        Self { link, a, b, outages: OutageMetrics::new(outages), forward, backward }
    }
}

impl OutageMetrics {
    fn new(outages: &OutageLog) -> Self {
        const FIRST: usize = 20;
        let first = outages.intervals().take(if outages.is_complete() { FIRST } else { 0 });
        Self {
            count: outages.count,
            total_s: outages.total.as_secs_f64(),
            shortest_s: outages.shortest.map(Duration::as_secs_f64),
            longest_s: outages.longest.map(Duration::as_secs_f64),
            first_s: first.map(|(down, up)| (down.as_secs_f64(), up.as_secs_f64())).collect(),
        }
    }
}

impl CpuMetrics {
    pub(crate) fn new(router: &str, counted: &CpuStatistics, ended_at: Instant) -> Self {
        let run_s = ended_at.saturating_since(Instant::ZERO).as_secs_f64();
        let served = (counted.packets > 0).then_some(counted.packets as f64);
        Self {
            router: router.to_owned(),
            packets: counted.packets,
            operations: counted.operations,
            made_packets: counted.made,
            compressed_bytes: counted.compressed_bytes,
            dropped_packets: counted.dropped,
            utilisation: if run_s > 0.0 { counted.busy.as_secs_f64() / run_s } else { 0.0 },
            mean_sojourn_s: served.map(|packets| counted.sojourn.as_secs_f64() / packets),
            max_backlog_packets: counted.most_waiting,
        }
    }
}

impl CellMetrics {
    pub(crate) fn new(cell: &str, base: &str, counted: &CellStatistics, ended_at: Instant) -> Self {
        let run = ended_at.saturating_since(Instant::ZERO);
        let run_s = run.as_secs_f64();
        Self {
            cell: cell.to_owned(),
            base: base.to_owned(),
            down: DirectionMetrics::new(&counted.down, run),
            up: DirectionMetrics::new(&counted.up, run),
            handed_back_packets: counted.handed_back,
            unanswered: counted.unanswered,
            damaged: counted.damaged,
            collisions: counted.collisions,
            airtime_share: if run_s > 0.0 { counted.airtime.as_secs_f64() / run_s } else { 0.0 },
        }
    }
}

impl MobileMetrics {
    pub(crate) fn new(node: &str, outages: &OutageLog) -> Self {
        Self { node: node.to_owned(), outages: OutageMetrics::new(outages) }
    }
}

impl DirectionMetrics {
    fn new(counted: &Statistics, run: Duration) -> Self {
        let dropped = counted.dropped.iter().filter(|(_, tally)| tally.packets > 0);
        Self {
            packets: counted.offered.packets,
            bytes: counted.offered.bytes,
            delivered_packets: counted.delivered.packets,
            damaged_packets: counted.corrupted.packets,
            duplicated_packets: counted.duplicated.packets,
            dropped_packets: dropped.map(|(cause, tally)| (cause.name().to_owned(), tally.packets)).collect(),
            queue: QueueMetrics {
                mean_packets: counted.queue.mean_packets(run),
                max_packets: counted.queue.high_water_packets,
                max_bytes: counted.queue.high_water_bytes,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        let exchanges = ExchangeMetrics::new(&times).unwrap();
        assert_eq!((exchanges.count, exchanges.min_s, exchanges.max_s), (100, 0.001, 0.1));
        assert_eq!((exchanges.median_s, exchanges.p95_s), (0.05, 0.095));
        assert!((exchanges.mean_s - 0.0505).abs() < 1e-12);
        assert_eq!(ExchangeMetrics::new(&[]), None);
        assert_eq!(ExchangeMetrics::new(&times[..1]).map(|one| (one.median_s, one.p95_s)), Some((0.1, 0.1)));
    }
}
