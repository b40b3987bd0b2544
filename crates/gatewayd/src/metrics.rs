//! What Prometheus is told, in OpenMetrics' text format.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::status::Status;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Fate {
    fate: &'static str,
}

type Counts = Family<Fate, Counter<u64, AtomicU64>>;

fn counts(fates: &[(&'static str, u64)]) -> Counts {
    let counts = Counts::default();
    for &(fate, count) in fates {
        counts.get_or_create(&Fate { fate }).inc_by(count);
    }
    counts
}

fn gauge(value: u64) -> Gauge {
    let gauge = Gauge::<i64>::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    gauge
}

fn counter(value: u64) -> Counter {
    let counter = Counter::<u64>::default();
    counter.inc_by(value);
    counter
}

/// The text for a status.
pub fn encode_status(status: &Status) -> String {
    let mut registry = Registry::with_prefix("holdover_gateway");
    let Status { path, buffer, unsendable, .. } = status;
    registry.register("mobiles", "Mobile hosts that are known", gauge(status.mobiles));
    registry.register("mobiles_away", "Mobile hosts that are away", gauge(status.away));
    registry.register("absences", "How often mobile hosts were away", counter(buffer.absences));
    registry.register("waiting_packets", "Packets that wait for mobile hosts", gauge(status.waiting));
    let waiting = "Bytes that wait for mobile hosts";
    registry.register_with_unit("waiting", waiting, Unit::Bytes, gauge(status.waiting_bytes));
    let path = [
        ("passed", path.passed),
        ("diverted", path.diverted),
        ("passed_daemon_hung", path.expired),
        ("released", path.released),
    ];
    registry.register("packets", "Packets for known mobile hosts, by what the programs did", counts(&path));
    registry.register("heard", "Packets from known mobile hosts", counter(status.path.heard));
    let fates = [
        ("released", buffer.released),
        ("mobile_full", buffer.mobile_full),
        ("total_full", buffer.total_full),
        ("evicted", buffer.evicted),
        ("aged", buffer.aged),
        ("not_stored", buffer.storage),
        ("other_host", buffer.forgotten),
        ("too_big", unsendable.too_big),
        ("refused", unsendable.refused),
        ("redundant", unsendable.redundant),
    ];
    registry.register("diverted_packets", "Packets that were diverted, by what became of them", counts(&fates));
    let acks = [("lowered", status.path.lowered), ("withheld", status.path.withheld)];
    registry.register("acks_held", "ACKs of TCP that were held back, by what became of their packets", counts(&acks));
    let woken = [("released", status.woken.released), ("poked", status.woken.poked)];
    registry.register("woken", "TCP senders that were woken after absences, by how", counts(&woken));
    registry.register("connections", "TCP connections that are known", gauge(status.woken.connections));
    let reports = [
        ("registered", status.reports.registered),
        ("challenged", status.reports.challenged),
        ("replayed", status.reports.replayed),
        ("refused", status.reports.refused),
        ("forged", status.reports.forged),
        ("requested", status.reports.requested),
        ("lease", status.reports.leases),
        ("bridge", status.reports.bridge),
    ];
    registry.register("reports", "Reports about mobile hosts from outside, by what became of them", counts(&reports));
    let mut text = String::new();
    // Writing to a text does not fail.
    let _ = encode(&mut text, &registry);
    text
}
