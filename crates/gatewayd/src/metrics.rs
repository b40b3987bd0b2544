//! Metrics for Prometheus, in OpenMetrics' text format.

use std::sync::atomic::AtomicU64;

use holdover_gateway::divert::Source;
use holdover_host::scrape::{counter, gauge};
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::cluster::ClusterStatus;
use crate::handoff::HandoffCounters;
use crate::presence::ReportCounters;
use crate::split::SplitStatus;
use crate::status::Status;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Fate {
    fate: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct BySource {
    source: String,
}

type Counts = Family<Fate, Counter<u64, AtomicU64>>;

fn counts(fates: &[(&'static str, u64)]) -> Counts {
    let counts = Counts::default();
    for &(fate, count) in fates {
        counts.get_or_create(&Fate { fate }).inc_by(count);
    }
    counts
}

/// The text for a status.
pub fn encode_status(status: &Status) -> String {
    let mut registry = Registry::with_prefix("holdover_gateway");
    register_mobiles(&mut registry, status);
    register_packets(&mut registry, status);
    register_connections(&mut registry, status);
    register_reports(&mut registry, &status.reports);
    if let Some(handoff) = &status.handoff {
        register_handoff(&mut registry, handoff);
    }
    if let Some(split) = &status.split {
        register_split(&mut registry, split);
    }
    if let Some(cluster) = &status.cluster {
        register_cluster(&mut registry, cluster);
    }
    let mut text = String::new();
    // Writing to a text does not fail.
    let _ = encode(&mut text, &registry);
    text
}

fn register_mobiles(registry: &mut Registry, status: &Status) {
    let is_there = u64::from(!status.interface_gone);
    registry.register("interface_present", "Whether the mobile-facing interface exists", gauge(is_there));
    registry.register("mobiles", "Mobile hosts that are known", gauge(status.mobiles));
    registry.register("mobiles_away", "Mobile hosts that are away", gauge(status.away));
    registry.register("absences", "How often mobile hosts were away", counter(status.buffer.absences));
    let warnings = "How often mobile hosts predicted an absence by a sign in their packets";
    registry.register("warnings", warnings, counter(status.buffer.warnings));
    let by_source = Family::<BySource, Gauge>::default();
    // All of them: a series that vanishes is not a zero to Prometheus.
    for source in Source::ALL.map(|source| source.to_string()) {
        let count = status.away_by.get(&source).copied().unwrap_or(0);
        by_source.get_or_create(&BySource { source }).set(count as i64);
    }
    registry.register("mobiles_away_by", "Mobile hosts that each source reports away", by_source);
}

fn register_packets(registry: &mut Registry, status: &Status) {
    let Status { path, buffer, unsendable, .. } = status;
    registry.register("waiting_packets", "Packets that wait for mobile hosts", gauge(status.waiting));
    let waiting = "Bytes that wait for mobile hosts";
    registry.register_with_unit("waiting", waiting, Unit::Bytes, gauge(status.waiting_bytes));
    let fates = [
        ("passed", path.passed),
        ("diverted", path.diverted),
        ("passed_daemon_hung", path.expired),
        ("released", path.released),
    ];
    registry.register("packets", "Packets for known mobile hosts, by what the programs did", counts(&fates));
    registry.register("heard", "Packets from known mobile hosts", counter(path.heard));
    let fates = [
        ("released", buffer.released),
        ("mobile_full", buffer.mobile_full),
        ("total_full", buffer.total_full),
        ("evicted", buffer.evicted),
        ("aged", buffer.aged),
        ("not_stored", buffer.storage),
        ("other_host", buffer.forgotten),
        ("moved", buffer.moved),
        ("too_big", unsendable.too_big),
        ("refused", unsendable.refused),
        ("redundant", unsendable.redundant),
    ];
    registry.register("diverted_packets", "Packets that were diverted, by fate", counts(&fates));
}

fn register_connections(registry: &mut Registry, status: &Status) {
    let Status { path, woken, .. } = status;
    let acks = [("lowered", path.lowered), ("withheld", path.withheld)];
    registry.register("acks_held", "ACKs of TCP that were held back, by the fate of their packets", counts(&acks));
    let alone = [
        ("signed", path.signed),
        ("multipath", path.multipath),
        ("full", path.connections_full),
        ("rule", path.by_rule),
    ];
    registry.register("tcp_left_alone", "TCP packets that passed unchanged, by reason", counts(&alone));
    let senders = [("released", woken.released), ("poked", woken.poked)];
    registry.register("woken", "TCP senders that were woken after absences, by how", counts(&senders));
    let windows = [("shut", woken.frozen), ("reopened", woken.reopened), ("probe_answered", woken.answered)];
    let help = "Windows shut for absences, opened again, and probes of them answered";
    registry.register("windows", help, counts(&windows));
    registry.register("connections", "TCP connections that are known", gauge(woken.connections));
}

fn register_reports(registry: &mut Registry, reports: &ReportCounters) {
    let outcomes = [
        ("registered", reports.registered),
        ("challenged", reports.challenged),
        ("replayed", reports.replayed),
        ("refused", reports.refused),
        ("forged", reports.forged),
        ("requested", reports.requested),
        ("lease", reports.leases),
        ("bridge", reports.bridge),
        ("station", reports.stations),
        ("wireguard", reports.wireguard),
    ];
    registry.register("reports", "Reports about mobile hosts from outside, by outcome", counts(&outcomes));
}

fn register_handoff(registry: &mut Registry, handoff: &HandoffCounters) {
    let packets = [
        ("left", handoff.packets_left),
        ("came", handoff.packets_came),
        ("unconfirmed", handoff.packets_lost),
        ("dropped", handoff.packets_dropped),
    ];
    let help =
        "Packets sent to other gateways, received from them, never confirmed, and dropped by `waiting = \"drop\"`";
    registry.register("handoff_packets", help, counts(&packets));
    let connections = [
        ("left", handoff.connections_left),
        ("came", handoff.connections_came),
        ("unconfirmed", handoff.connections_lost),
    ];
    let help = "Connections whose records were sent to other gateways, taken in from them, and never confirmed";
    registry.register("handoff_connections", help, counts(&connections));
    let handoffs = [("left", handoff.left), ("came", handoff.came), ("lost", handoff.lost)];
    let help = "Mobile hosts handed to other gateways and asked of them, by outcome";
    registry.register("handoffs", help, counts(&handoffs));
}

fn register_split(registry: &mut Registry, split: &SplitStatus) {
    registry.register("split_connections", "Connections that are split now", gauge(split.open));
    registry.register("split_pending", "Connections that are being split", gauge(split.pending));
    let outcomes = [
        ("split", split.total),
        ("reset", split.reset),
        ("refused", split.refused),
        ("unreachable", split.unreachable),
        ("unanswered", split.unanswered),
    ];
    registry.register("split_outcomes", "Connections, split or not, by outcome", counts(&outcomes));
    let bytes = [("to_mobile", split.to_mobile_bytes), ("from_mobile", split.from_mobile_bytes)];
    registry.register_with_unit("split", "Bytes of split connections, by direction", Unit::Bytes, counts(&bytes));
    let unsplit = split.unsplit;
    let reasons = [
        ("authenticated", unsplit.authenticated),
        ("multipath", unsplit.multipath),
        ("malformed", unsplit.malformed),
        ("full", unsplit.full),
        ("address_in_use", unsplit.address_in_use),
        ("daemon_away", unsplit.daemon_away),
        ("fragment", unsplit.fragments),
    ];
    registry.register("unsplit", "SYNs and fragments that passed unsplit, by reason", counts(&reasons));
}

fn register_cluster(registry: &mut Registry, cluster: &ClusterStatus) {
    let mut one = |name, help, value| registry.register(name, help, gauge(value));
    one("cluster_connected", "Whether the store answers, and all of it is known", cluster.connected.into());
    one("cluster_registered", "Whether the lease of this gateway is valid", cluster.registered.into());
    let alive = cluster.gateways.iter().filter(|gateway| gateway.alive).count() as u64;
    one("cluster_gateways", "Other gateways whose leases are valid", alive);
    one("cluster_owned", "Mobile hosts that this gateway owns", cluster.owned);
    one("cluster_claimed", "Mobile hosts that this gateway claims", cluster.claimed);
    one("cluster_elsewhere", "Mobile hosts that other gateways own", cluster.elsewhere);
    one("cluster_adopted", "Mobile hosts of dead gateways that this gateway is ready to take over", cluster.adopted);
    one("cluster_not_adopted", "Those of them for which it has no room", cluster.not_adopted);
    one("cluster_epoch", "The revision of the store of the last change of an owner", cluster.epoch);
    let counters = &cluster.counters;
    let changes = [
        ("won", counters.won),
        ("taken_over", counters.taken_over),
        ("lost", counters.lost),
        ("fenced", counters.fenced),
    ];
    registry.register("cluster_owners", "Changes of owners, and claims that came too late (fenced)", counts(&changes));
    let requests = [("sent", counters.requests), ("failed", counters.failed)];
    registry.register("cluster_requests", "Requests to the store, and those of them that failed", counts(&requests));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Mode;
    use crate::path::{AttachedBy, PathCounters};

    fn status() -> Status {
        Status {
            version: "1".to_owned(),
            interface: "wlan0".to_owned(),
            interface_gone: false,
            mode: Mode::Buffer,
            attached_by: AttachedBy::Tcx,
            pinned: true,
            taken_over: false,
            running_s: 1.0,
            draining: false,
            mobiles: 1,
            away: 0,
            away_by: [("station".to_owned(), 2)].into(),
            waiting: 0,
            waiting_bytes: 0,
            path: PathCounters::default(),
            buffer: crate::status::Tally::default(),
            reports: crate::presence::ReportCounters::default(),
            split: None,
            handoff: None,
            cluster: None,
            unsendable: crate::engine::Unsendable::default(),
            woken: crate::waker::Woken::default(),
        }
    }

    fn cluster() -> ClusterStatus {
        ClusterStatus {
            name: "a".to_owned(),
            connected: false,
            away_s: Some(2.0),
            failure: Some("timed out".to_owned()),
            registered: true,
            superseded: false,
            gateways: vec![],
            owned: 3,
            claimed: 1,
            elsewhere: 5,
            adopted: 2,
            not_adopted: 6,
            epoch: 77,
            counters: crate::cluster::OwnershipCounters { fenced: 4, ..Default::default() },
        }
    }

    #[test]
    fn frozen_windows_are_counted() {
        let mut status = status();
        (status.woken.frozen, status.woken.reopened, status.woken.answered) = (3, 2, 1);
        let text = encode_status(&status);
        for (fate, count) in [("shut", 3), ("reopened", 2), ("probe_answered", 1)] {
            let line = format!("holdover_gateway_windows_total{{fate=\"{fate}\"}} {count}");
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn predicted_absences_are_counted() {
        let mut status = status();
        status.buffer.warnings = 2;
        let text = encode_status(&status);
        assert!(text.lines().any(|line| line == "holdover_gateway_warnings_total 2"), "{text}");
    }

    #[test]
    fn absent_mobile_hosts_are_counted_by_source() {
        let text = encode_status(&status());
        for source in Source::ALL.map(|source| source.to_string()) {
            let count = if source == "station" { 2 } else { 0 };
            let line = format!("holdover_gateway_mobiles_away_by{{source=\"{source}\"}} {count}");
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn connections_handed_on_are_counted() {
        let mut status = status();
        let counters =
            HandoffCounters { connections_left: 5, connections_came: 4, connections_lost: 3, ..Default::default() };
        status.handoff = Some(counters);
        let text = encode_status(&status);
        for (fate, count) in [("left", 5), ("came", 4), ("unconfirmed", 3)] {
            let line = format!("holdover_gateway_handoff_connections_total{{fate=\"{fate}\"}} {count}");
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_cluster_has_metrics_of_its_own() {
        let mut status = status();
        assert!(!encode_status(&status).contains("cluster"));
        status.cluster = Some(cluster());
        let text = encode_status(&status);
        for line in [
            "cluster_connected 0",
            "cluster_registered 1",
            "cluster_owned 3",
            "cluster_not_adopted 6",
            "cluster_owners_total{fate=\"fenced\"} 4",
        ] {
            let line = format!("holdover_gateway_{line}");
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    // Claim: Dashboard and alerts of the gateway ask for metrics and fates that exist; promtool runs the alerts' tests.
    #[test]
    fn dashboard_and_alerts_name_metrics_and_fates_that_exist() {
        let text = encode_status(&Status { cluster: Some(cluster()), ..status() });
        for (file, least) in
            [("dist/grafana/holdover-gateway.json", 11), ("dist/prometheus/holdover-gateway.rules.yml", 5)]
        {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
            let asked = std::fs::read_to_string(path).unwrap().replace("\\\"", "\"");
            let name = |at: usize| asked[at..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
            let names: std::collections::BTreeSet<&str> =
                asked.match_indices("holdover_gateway_").map(|(at, _)| name(at)).collect();
            assert!(names.len() >= least, "{file}: {names:?}");
            for name in names {
                let exists = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
                assert!(text.lines().any(exists), "{file} asks for {name}, which is not in\n{text}");
            }
            let values = ["fate=\"", "fate=~\""].into_iter().flat_map(|label| asked.split(label).skip(1));
            for value in values.filter_map(|rest| rest.split('"').next()).flat_map(|values| values.split('|')) {
                assert!(text.contains(&format!("fate=\"{value}\"")), "{file} asks for the fate {value}");
            }
        }
    }
}
