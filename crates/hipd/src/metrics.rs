//! Metrics for Prometheus, in OpenMetrics' text format.

use std::sync::atomic::AtomicU64;

use holdover_host::scrape::{counter, gauge};
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::status::{Counters, PeerStatus, Status};

/// A peer by its name in the file of peers, or by its HIT.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Peer {
    peer: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

/// A host without HIP, by its name, and a peer of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct HostPeer {
    host: String,
    peer: String,
}

/// A path to a peer, by the interface and the address of this host.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct PeerLink {
    peer: String,
    link: String,
    from: String,
    to: String,
}

type PeerCounts = Family<Peer, Counter<u64, AtomicU64>>;
type PeerGauges = Family<Peer, Gauge>;

fn label(peer: &PeerStatus) -> Peer {
    Peer { peer: peer.name.clone().unwrap_or_else(|| peer.hit.clone()) }
}

fn counts(peers: &[PeerStatus], count: impl Fn(&PeerStatus) -> u64) -> PeerCounts {
    let counts = PeerCounts::default();
    for peer in peers {
        counts.get_or_create(&label(peer)).inc_by(count(peer));
    }
    counts
}

fn gauges(peers: &[PeerStatus], value: impl Fn(&PeerStatus) -> bool) -> PeerGauges {
    values(peers, |peer| u64::from(value(peer)))
}

fn values(peers: &[PeerStatus], value: impl Fn(&PeerStatus) -> u64) -> PeerGauges {
    let gauges = PeerGauges::default();
    for peer in peers {
        gauges.get_or_create(&label(peer)).set(i64::try_from(value(peer)).unwrap_or(i64::MAX));
    }
    gauges
}

/// The paths to peers: 1 if data takes it, else 0.
fn paths(peers: &[PeerStatus]) -> Family<PeerLink, Gauge> {
    let paths = Family::<PeerLink, Gauge>::default();
    for (peer, path) in peers.iter().flat_map(|peer| peer.paths.iter().map(move |path| (peer, path))) {
        let link = path.link.clone().unwrap_or_default();
        let (from, to) = (path.from.to_string(), path.to.to_string());
        paths.get_or_create(&PeerLink { peer: label(peer).peer, link, from, to }).set(i64::from(path.in_use));
    }
    paths
}

/// The metrics of a status.
pub fn encode_status(status: &Status) -> String {
    let mut registry = Registry::with_prefix("holdover_hip");
    let peers = &status.peers;
    registry.register("established", "Whether there is an association with the peer", gauges(peers, is_established));
    registry.register(
        "moving",
        "Whether the peer has not found this host at its new address yet",
        gauges(peers, |peer| peer.is_moving),
    );
    let received = "Bytes of inner packets from the peer";
    registry.register_with_unit("received", received, Unit::Bytes, counts(peers, |peer| peer.counters.bytes_in));
    let sent = "Bytes of inner packets to the peer";
    registry.register_with_unit("sent", sent, Unit::Bytes, counts(peers, |peer| peer.counters.bytes_out));
    registry.register(
        "readdressings",
        "How often the peer has found this host at a new address",
        counts(peers, |peer| peer.counters.readdressed),
    );
    registry.register(
        "silent_paths",
        "How often nothing came back on the path of data",
        counts(peers, |peer| peer.counters.silent_paths),
    );
    registry.register("silent", "Whether nothing comes back on any path", gauges(peers, |peer| peer.is_silent));
    registry.register(
        "held_connections",
        "TCP connections that are held open because the peer does not answer",
        values(peers, |peer| peer.held_connections),
    );
    registry.register("path_in_use", "Whether data to the peer takes this path", paths(peers));
    registry.register("rekeyings", "How often keys were changed", counts(peers, |peer| peer.counters.rekeyed));
    proxied(&mut registry, status);
    let Counters { relayed_hip, relayed_esp, woken, hip_in, hip_out, fragments, .. } = status.counters;
    registry.register("hip_received", "HIP packets received", counter(hip_in));
    registry.register("hip_sent", "HIP packets sent", counter(hip_out));
    registry.register("relayed_hip", "HIP packets that were forwarded", counter(relayed_hip));
    registry.register("relayed_esp", "ESP packets that were forwarded", counter(relayed_esp));
    registry.register("fragments", "Fragments sent of packets that exceed the path's MTU", counter(fragments));
    registry.register("woken", "Packets generated so that TCP resumes after a move", counter(woken));
    registry.register("clients", "Clients that are registered here", gauge(status.clients));
    registry.register("dropped", "Packets that were dropped, by cause", dropped(status));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

/// Traffic between hosts without HIP and their peers.
fn proxied(registry: &mut Registry, status: &Status) {
    let Some(proxy) = &status.proxy else { return };
    let established = Family::<HostPeer, Gauge>::default();
    let [received, sent] = [(); 2].map(|()| Family::<HostPeer, Counter<u64, AtomicU64>>::default());
    for (host, peer) in proxy.hosts.iter().flat_map(|host| host.peers.iter().map(move |peer| (host, peer))) {
        let labels = HostPeer { host: host.name.clone(), peer: label(peer).peer };
        established.get_or_create(&labels).set(i64::from(is_established(peer)));
        received.get_or_create(&labels).inc_by(peer.counters.bytes_in);
        sent.get_or_create(&labels).inc_by(peer.counters.bytes_out);
    }
    let about = "of hosts whose proxy this is";
    registry.register("proxied_established", format!("Associations with peers {about}"), established);
    registry.register_with_unit(
        "proxied_received",
        format!("Bytes of inner packets to {about}"),
        Unit::Bytes,
        received,
    );
    registry.register_with_unit("proxied_sent", format!("Bytes of inner packets {about}"), Unit::Bytes, sent);
}

fn is_established(peer: &PeerStatus) -> bool {
    matches!(peer.state.as_str(), "ESTABLISHED" | "R2-SENT")
}

fn dropped(status: &Status) -> Family<Cause, Counter<u64, AtomicU64>> {
    let counters = &status.counters;
    let unknown_hosts = status.proxy.as_ref().map_or(0, |proxy| proxy.unknown_hosts);
    let causes = [
        ("not_authentic", counters.not_authentic),
        ("unknown_spi", counters.unknown_spi),
        ("no_path", counters.no_path),
        ("not_sealed", counters.not_sealed),
        ("too_big", counters.too_big),
        ("not_waited", counters.not_waited),
        ("unreachable", counters.unreachable),
        ("not_for_hits", counters.not_for_hits),
        ("hip", counters.hip_dropped),
        ("not_sent", counters.not_sent),
        ("not_read", counters.not_read),
        ("unknown_hosts", unknown_hosts),
    ];
    let dropped = Family::default();
    for (cause, count) in causes {
        let counter: &Family<Cause, Counter<u64, AtomicU64>> = &dropped;
        counter.get_or_create(&Cause { cause }).inc_by(count);
    }
    dropped
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::status::{HostStatus, PathStatus, PeerCounters, ProxyStatus};

    fn path(from: [u8; 4], in_use: bool) -> PathStatus {
        let link = Some(format!("lte{}", from[3]));
        PathStatus { from: from.into(), to: [198, 51, 100, 2].into(), link, in_use, verified: true }
    }

    /// A status with every metric.
    fn status() -> Status {
        let counters = PeerCounters {
            bytes_in: 1000,
            bytes_out: 2000,
            readdressed: 3,
            silent_paths: 2,
            ..PeerCounters::default()
        };
        let peer = PeerStatus {
            name: Some("server".into()),
            hit: "2001:25::1".into(),
            state: "ESTABLISHED".into(),
            is_moving: true,
            paths: [(4, true), (5, false)].map(|(last, in_use)| path([192, 0, 2, last], in_use)).to_vec(),
            held_connections: 6,
            counters,
            ..PeerStatus::default()
        };
        let host = HostStatus {
            name: "printer".into(),
            hit: "2001:25::3".into(),
            addresses: Vec::new(),
            peers: vec![PeerStatus { is_moving: false, ..peer.clone() }],
        };
        let proxy = ProxyStatus {
            interface: "lan0".into(),
            device: "hip0-lan".into(),
            unknown_hosts: 5,
            hosts: vec![host],
            left_out: std::collections::BTreeMap::new(),
        };
        Status {
            version: "1".into(),
            running_s: 1.0,
            hit: "2001:25::2".into(),
            lsi: None,
            interface: "hip0".into(),
            addresses: Vec::new(),
            links: Vec::new(),
            udp: true,
            wake: true,
            hold_s: None,
            serves: None,
            clients: 4,
            proxy: Some(proxy),
            peers: vec![peer],
            counters: Counters { relayed_esp: 7, unknown_spi: 9, fragments: 8, ..Counters::default() },
        }
    }

    fn read(file: &str) -> String {
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)).unwrap()
    }

    fn names(text: &str) -> BTreeSet<&str> {
        let name = |at: usize| text[at..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
        text.match_indices("holdover_hip_").map(|(at, _)| name(at)).collect()
    }

    // Claim: The guide lists every metric of the HIP daemon and every cause of dropped packets, and no others; dashboard and alerts of the HIP daemon ask
    // for metrics and causes that exist, and the dashboard shows all but those of the proxy.
    #[test]
    fn guide_dashboard_and_alerts_name_the_metrics_that_exist() {
        let text = encode_status(&status());
        let samples: String =
            text.lines().filter(|line| !line.starts_with('#')).map(|line| line.to_owned() + "\n").collect();
        let (exist, guide) = (names(&samples), read("docs/guide/hip.md"));
        let section = guide.split("\n## Metrics\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
        let table = |named: &str| -> String {
            section
                .lines()
                .filter(|line| line.starts_with(named))
                .map(|line| line.split(" | ").next().unwrap().to_owned() + "\n")
                .collect()
        };
        assert_eq!(names(&table("| `holdover_hip_")), exist);
        let causes = |text: &str| -> BTreeSet<String> {
            let values = ["cause=\"", "cause=~\""].into_iter().flat_map(|label| text.split(label).skip(1));
            values
                .filter_map(|rest| rest.split('"').next())
                .flat_map(|values| values.split('|'))
                .map(str::to_owned)
                .collect()
        };
        let of_guide = section.split("\n| cause |").nth(1).unwrap().split("\n\n").next().unwrap();
        let of_guide =
            of_guide.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next().map(str::to_owned));
        assert_eq!(of_guide.collect::<BTreeSet<String>>(), causes(&samples));
        let files = ["dist/grafana/holdover-hip.json", "dist/prometheus/holdover-hip.rules.yml"];
        for file in files {
            let asked = read(file).replace("\\\"", "\"");
            let unknown: Vec<&str> = names(&asked).difference(&exist).copied().collect();
            assert!(unknown.is_empty(), "{file} asks for {unknown:?}");
            assert!(causes(&asked).is_subset(&causes(&samples)), "{file}");
        }
        let shown = read(files[0]);
        let missing: Vec<&str> =
            exist.difference(&names(&shown)).copied().filter(|it| !it.contains("_proxied_")).collect();
        assert!(missing.is_empty(), "the dashboard does not show {missing:?}");
    }

    #[test]
    fn every_counter_has_its_value() {
        let text = encode_status(&status());
        for line in [
            "holdover_hip_established{peer=\"server\"} 1",
            "holdover_hip_moving{peer=\"server\"} 1",
            "holdover_hip_received_bytes_total{peer=\"server\"} 1000",
            "holdover_hip_sent_bytes_total{peer=\"server\"} 2000",
            "holdover_hip_readdressings_total{peer=\"server\"} 3",
            "holdover_hip_silent_paths_total{peer=\"server\"} 2",
            "holdover_hip_silent{peer=\"server\"} 0",
            "holdover_hip_held_connections{peer=\"server\"} 6",
            "holdover_hip_path_in_use{peer=\"server\",link=\"lte4\",from=\"192.0.2.4\",to=\"198.51.100.2\"} 1",
            "holdover_hip_path_in_use{peer=\"server\",link=\"lte5\",from=\"192.0.2.5\",to=\"198.51.100.2\"} 0",
            "holdover_hip_relayed_esp_total 7",
            "holdover_hip_fragments_total 8",
            "holdover_hip_clients 4",
            "holdover_hip_dropped_total{cause=\"unknown_spi\"} 9",
            "holdover_hip_dropped_total{cause=\"unknown_hosts\"} 5",
            "holdover_hip_proxied_established{host=\"printer\",peer=\"server\"} 1",
            "holdover_hip_proxied_received_bytes_total{host=\"printer\",peer=\"server\"} 1000",
            "holdover_hip_proxied_sent_bytes_total{host=\"printer\",peer=\"server\"} 2000",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}:\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
