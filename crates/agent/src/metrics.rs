//! Metrics for Prometheus: `GET /metrics` in OpenMetrics' text format.

use std::fmt;

use holdover_host::scrape::{counter, gauge};
use holdover_mobility::Resumed::{AtOnce, ByItself, Later, Never};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;

use crate::link_watch::LinkCondition;
use crate::outcomes::{BOUNDS_S, Outcomes, Resumes};
use crate::path_engine::Counters;
use crate::status::{LinkStatus, Status};

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct LinkLabel {
    interface: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OutcomeLabel {
    interface: String,
    outcome: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct PacketLabel {
    interface: String,
    fate: &'static str,
}

type Counts<L> = Family<L, Counter>;
type Seconds<L> = Family<L, Counter<f64, AtomicU64>>;
type Level<L> = Family<L, Gauge>;
type Fractions<L> = Family<L, Gauge<f64, AtomicU64>>;

/// Times until connections resumed, as a histogram filled elsewhere.
#[derive(Debug)]
struct ResumeTimes(Vec<(OutcomeLabel, Resumes)>);

impl Collector for ResumeTimes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "From the link's return to the first new data or ACK of a connection";
        let mut family = encoder.encode_descriptor("resume", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (label, resumes) in &self.0 {
            let bounds = BOUNDS_S.into_iter().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(resumes.buckets).collect();
            let mut metric = family.encode_family(label)?;
            metric.encode_histogram::<NoLabelSet>(resumes.sum_s, resumes.buckets.iter().sum(), &buckets, None)?;
        }
        Ok(())
    }
}

/// The metrics of a status.
pub fn encode_status(status: &Status) -> String {
    let mut registry = Registry::with_prefix("holdover");
    let mut links = Links::default();
    for link in &status.links {
        links.note(link);
    }
    links.register(&mut registry);
    registry.register("connections", "Connections that are known", gauge(status.connections_in_all));
    let timeouts = counter(status.user_timeouts.set + status.user_timeouts.set_open);
    registry.register("user_timeouts_set", "User timeouts set on connections", timeouts);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

/// The metrics of all links.
#[derive(Default)]
struct Links {
    up: Level<LinkLabel>,
    attached: Level<LinkLabel>,
    outages: Counts<LinkLabel>,
    warnings: Counts<LinkLabel>,
    false_warnings: Counts<LinkLabel>,
    moves: Counts<LinkLabel>,
    woken: Counts<OutcomeLabel>,
    unaided: Counts<LinkLabel>,
    saved: Fractions<LinkLabel>,
    down: Seconds<LinkLabel>,
    packets: Counts<PacketLabel>,
    times: Vec<(OutcomeLabel, Resumes)>,
}

impl Links {
    fn note(&mut self, link: &LinkStatus) {
        let label = LinkLabel { interface: link.interface.clone() };
        self.up.get_or_create(&label).set(i64::from(link.state != LinkCondition::Down));
        self.attached.get_or_create(&label).set(i64::from(link.problem.is_none()));
        let record = &link.record;
        for (family, count) in [
            (&self.outages, record.outages),
            (&self.warnings, record.warnings),
            (&self.false_warnings, record.false_warnings),
            (&self.moves, record.moves),
            (&self.unaided, record.outcomes.by_itself.count),
        ] {
            family.get_or_create(&label).inc_by(count);
        }
        self.down.get_or_create(&label).inc_by(record.down_s);
        if let Some(saved_s) = record.outcomes.saved_s {
            self.saved.get_or_create(&label).set(saved_s);
        }
        let Outcomes { at_once, later, never, by_itself, .. } = &record.outcomes;
        for (outcome, count) in [(AtOnce, at_once.count), (Later, later.count), (Never, *never)] {
            let label = OutcomeLabel { interface: link.interface.clone(), outcome: outcome.name() };
            self.woken.get_or_create(&label).inc_by(count);
        }
        for (outcome, resumes) in [(AtOnce, at_once), (Later, later), (ByItself, by_itself)] {
            let label = OutcomeLabel { interface: link.interface.clone(), outcome: outcome.name() };
            self.times.push((label, resumes.clone()));
        }
        for (fate, count) in fates(&link.counters) {
            self.packets.get_or_create(&PacketLabel { interface: link.interface.clone(), fate }).inc_by(count);
        }
    }

    fn register(self, registry: &mut Registry) {
        let Self {
            up,
            attached,
            outages,
            warnings,
            false_warnings,
            moves,
            woken,
            unaided,
            saved,
            down,
            packets,
            times,
        } = self;
        registry.register("link_up", "Whether the link is up", up);
        registry.register("link_attached", "Whether the agent is in the path of the link's packets", attached);
        registry.register("link_outages", "How often the link was down", outages);
        registry.register_with_unit("link_down", "For how long the link was down", Unit::Seconds, down);
        registry.register("link_warnings", "Warnings of a cut", warnings);
        registry.register("link_false_warnings", "Warnings after which no cut came", false_warnings);
        registry.register("link_moves", "How often the link's address changed", moves);
        registry.register("woken", "Connections that were woken after outages, by outcome", woken);
        registry.register("unaided", "Connections that resumed after outages before the agent sent anything", unaided);
        let help = "How much sooner woken connections resumed than by this host's pending retransmission timers";
        registry.register_with_unit("saved", help, Unit::Seconds, saved);
        registry.register_collector(Box::new(ResumeTimes(times)));
        registry.register("packets", "Packets that passed, by fate", packets);
    }
}

/// Each packet that passed has one fate; injected packets are counted separately.
fn fates(counters: &Counters) -> [(&'static str, u64); 13] {
    let Counters {
        packets,
        rewritten,
        held,
        injected,
        unsent,
        fragments,
        vlan,
        extension_headers,
        signed,
        multipath,
        other,
        evicted,
        map_full,
    } = *counters;
    [
        ("passed", packets),
        ("rewritten", rewritten),
        ("held", held),
        ("injected", injected),
        ("unsent", unsent),
        ("left_alone_fragment", fragments),
        ("left_alone_vlan", vlan),
        ("left_alone_extension_header", extension_headers),
        ("left_alone_signed", signed),
        ("left_alone_multipath", multipath),
        ("left_alone_other", other),
        ("connection_evicted", evicted),
        ("no_room", map_full),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{LinkRecord, UserTimeoutStatus};

    fn status() -> Status {
        let mut buckets = [0; BOUNDS_S.len() + 1];
        (buckets[3], buckets[12]) = (6, 1);
        let at_once = Resumes { count: 7, sum_s: 80.5, buckets };
        let outcomes = Outcomes { at_once, never: 2, saved_s: Some(-0.25), ..Outcomes::default() };
        let record = LinkRecord { outages: 3, down_s: 21.5, outcomes, ..LinkRecord::default() };
        let counters = Counters { packets: 1000, fragments: 2, ..Counters::default() };
        let link = LinkStatus {
            interface: "wwan0".to_owned(),
            state: LinkCondition::Down,
            state_s: 1.0,
            families_down: Vec::new(),
            objections: Vec::new(),
            problem: None,
            trouble: None,
            next_cut_s: None,
            record,
            counters,
        };
        Status {
            version: "1".to_owned(),
            running_s: 60.0,
            dry_run: false,
            links: vec![link],
            connections: Vec::new(),
            connections_in_all: 4,
            counters,
            user_timeouts: UserTimeoutStatus { set: 5, set_open: 6, ..UserTimeoutStatus::default() },
            containers: None,
        }
    }

    #[test]
    fn every_figure_is_there_and_the_text_ends_as_it_has_to() {
        let text = encode_status(&status());
        for line in [
            "holdover_link_up{interface=\"wwan0\"} 0",
            "holdover_link_attached{interface=\"wwan0\"} 1",
            "holdover_link_outages_total{interface=\"wwan0\"} 3",
            "holdover_link_down_seconds_total{interface=\"wwan0\"} 21.5",
            "holdover_woken_total{interface=\"wwan0\",outcome=\"at_once\"} 7",
            "holdover_woken_total{interface=\"wwan0\",outcome=\"later\"} 0",
            "holdover_woken_total{interface=\"wwan0\",outcome=\"never\"} 2",
            "holdover_unaided_total{interface=\"wwan0\"} 0",
            "holdover_saved_seconds{interface=\"wwan0\"} -0.25",
            "# TYPE holdover_resume_seconds histogram",
            "holdover_resume_seconds_sum{interface=\"wwan0\",outcome=\"at_once\"} 80.5",
            "holdover_resume_seconds_count{interface=\"wwan0\",outcome=\"at_once\"} 7",
            "holdover_resume_seconds_bucket{le=\"0.1\",interface=\"wwan0\",outcome=\"at_once\"} 6",
            "holdover_resume_seconds_bucket{le=\"60.0\",interface=\"wwan0\",outcome=\"at_once\"} 6",
            "holdover_resume_seconds_bucket{le=\"+Inf\",interface=\"wwan0\",outcome=\"at_once\"} 7",
            "holdover_packets_total{interface=\"wwan0\",fate=\"left_alone_fragment\"} 2",
            "holdover_connections 4",
            "holdover_user_timeouts_set_total 11",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
