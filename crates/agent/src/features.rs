//! The features of the kernel and the privileges of the process that the agent uses, each probed separately: whether it
//! is available, and what is lost without it.
//!
//! The probes use the agent's own programs and sockets. Programs are attached to the loopback interface of a network
//! namespace that ends with the probing thread; no packet and no connection of the host is touched.

use std::net::Ipv4Addr;

use crate::engine::{Attachable, Engine, EngineError};
use crate::link_watch::nl80211::Station;
use crate::sockets::{SocketDiag, find_cgroup2_mount};
use crate::user_timeout::UserTimeouts;
use holdover_host::Namespace;
use holdover_host::feature::Feature;
use holdover_host::log::with_causes;
use holdover_host::neighbours::Neighbours;
use holdover_host::privileges::{CapabilitySet, held};

/// Whether the agent needs them, and the functions that are lost without them.
const CAPABILITIES: [(&str, CapabilitySet, bool, &str); 5] = [
    ("CAP_BPF", CapabilitySet::BPF, true, "no program is loaded"),
    ("CAP_PERFMON", CapabilitySet::PERFMON, true, "the kernel refuses the programs"),
    ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN, true, "no program is loaded or attached, and no neighbour probed"),
    ("CAP_NET_RAW", CapabilitySet::NET_RAW, true, "no packet is sent: nothing is woken"),
    (
        "CAP_SYS_ADMIN",
        CapabilitySet::SYS_ADMIN,
        false,
        "rules and names do not reach connections of containers ([containers])",
    ),
];

/// The loopback interface of every network namespace.
const LOOPBACK: u32 = 1;

const AS_ROOT: &str = "run as root, or as the service in dist, outside of a user namespace";

const LOST_WITHOUT_PROGRAMS: &str = "nothing is held back, and no sender woken";
const LOST_WITHOUT_TCX: &str =
    "programs are attached as filters, which a killed agent leaves behind, without effect, until the next one starts";
const LOST_WITHOUT_NEIGHBOURS: &str = "a silent router is not noticed, and none is probed at link-up";
const LOST_WITHOUT_TIMEOUTS: &str = "no connection has a user timeout by rules";

/// Probes every feature. It takes as long as the kernel needs to verify all programs, some seconds at most.
pub fn examine() -> Vec<Feature> {
    let mut features = capabilities();
    // Probes with side effects run in a namespace of their own, which ends with them.
    features.extend(Namespace::run("probes", |_| try_inside()).unwrap_or_else(|error| {
        let found = format!("cannot be probed without a network namespace: {}", with_causes(&error));
        vec![missing("programs", true, LOST_WITHOUT_PROGRAMS, found, AS_ROOT)]
    }));
    let wifi = "only with Wi-Fi: CONFIG_CFG80211 (modprobe cfg80211)";
    let btf = std::fs::metadata("/sys/kernel/btf/vmlinux");
    let (new, open) = UserTimeouts::probe();
    features.extend([
        of("nl80211", false, "a fading Wi-Fi signal is not predicted", wifi, Station::open()),
        of("BTF", false, LOST_WITHOUT_TIMEOUTS, "a kernel with CONFIG_DEBUG_INFO_BTF", btf),
        of("cgroup v2", false, LOST_WITHOUT_TIMEOUTS, "mount -t cgroup2 none /sys/fs/cgroup", find_cgroup2_mount()),
        of("sockops", false, LOST_WITHOUT_TIMEOUTS, "Linux 6.1 or later with CONFIG_CGROUP_BPF, and root", new),
        of("iter/tcp", false, LOST_WITHOUT_TIMEOUTS, "Linux 6.1 or later, and root", open),
    ]);
    features
}

fn of<T, E: std::error::Error>(
    name: &'static str,
    needed: bool,
    without: &'static str,
    fix: &str,
    tried: Result<T, E>,
) -> Feature {
    let (fine, found, fix) = match tried {
        Ok(_) => (true, "tried: works".to_owned(), String::new()),
        Err(error) => (false, brief(&with_causes(&error)), fix.to_owned()),
    };
    Feature { name, fine, needed, found, without, fix }
}

/// One line of a text that may contain the verifier's whole log: its beginning, and its end, with the reason.
fn brief(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.len() <= 2 * MOST_WORDS {
        return words.join(" ");
    }
    format!("{} ... {}", words[..MOST_WORDS].join(" "), words[words.len() - MOST_WORDS..].join(" "))
}

/// At the beginning, and as many at the end.
const MOST_WORDS: usize = 40;

fn missing(name: &'static str, needed: bool, without: &'static str, found: String, fix: &str) -> Feature {
    Feature { name, fine: false, needed, found, without, fix: fix.to_owned() }
}

fn capabilities() -> Vec<Feature> {
    let held = held();
    let feature = |(name, capability, needed, without): (&'static str, CapabilitySet, bool, &'static str)| {
        if held.contains(capability) {
            let found = "held by this process".to_owned();
            Feature { name, fine: true, needed, found, without, fix: String::new() }
        } else {
            missing(name, needed, without, "not held by this process".to_owned(), AS_ROOT)
        }
    };
    CAPABILITIES.map(feature).into()
}

/// On the loopback interface of the calling thread's network namespace.
fn try_inside() -> Vec<Feature> {
    let mut features = Vec::new();
    match Engine::probe_attach() {
        Ok(Attachable { tcx, clsact }) => {
            let attaches = tcx.is_ok() || clsact.is_ok();
            let fix = "a kernel with CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF (modprobe sch_ingress cls_bpf)";
            features.push(of::<(), EngineError>("programs", true, LOST_WITHOUT_PROGRAMS, "", Ok(())));
            features.push(of("tcx", false, LOST_WITHOUT_TCX, "Linux 6.6 or later", tcx));
            features.push(of("clsact", !attaches, "no program is attached where there is no tcx", fix, clsact));
        }
        Err(error) => {
            let fix = "Linux 5.15 or later, as root and outside of a user namespace";
            features.push(missing("programs", true, LOST_WITHOUT_PROGRAMS, brief(&with_causes(&error)), fix));
        }
    }
    let sockets = SocketDiag::open().and_then(|mut diag| diag.connections());
    let ended = SocketDiag::open().and_then(|mut diag| diag.probe_destroy());
    let neighbours =
        Neighbours::open().and_then(|mut neighbours| neighbours.resolve(LOOPBACK, Ipv4Addr::LOCALHOST.into()));
    features.extend([
        of(
            "packet sockets",
            true,
            "no packet is sent: nothing is woken",
            "CAP_NET_RAW and CONFIG_PACKET",
            Engine::probe_sockets(),
        ),
        of(
            "sock_diag",
            true,
            "the host's connections are not known",
            "CONFIG_INET_TCP_DIAG (modprobe tcp_diag)",
            sockets,
        ),
        of(
            "SOCK_DESTROY",
            false,
            "connections whose address is gone are not ended (address_gone)",
            "a kernel with CONFIG_INET_DIAG_DESTROY, and CAP_NET_ADMIN",
            ended,
        ),
        of("neighbours", false, LOST_WITHOUT_NEIGHBOURS, "CAP_NET_ADMIN", neighbours),
    ]);
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_is_listed_once_with_its_loss() {
        let features = examine();
        for feature in &features {
            assert_eq!(features.iter().filter(|other| other.name == feature.name).count(), 1, "{feature:?}");
            assert!(!feature.found.is_empty() && !feature.without.is_empty(), "{feature:?}");
            assert_eq!(feature.fine, feature.fix.is_empty(), "{feature:?}");
        }
        for name in ["CAP_BPF", "programs", "nl80211", "BTF", "cgroup v2", "sockops", "iter/tcp"] {
            assert!(features.iter().any(|feature| feature.name == name), "{name}: {features:?}");
        }
    }

    #[test]
    fn a_verifiers_log_is_its_beginning_and_its_end() {
        let log = (0..1000).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        let brief = brief(&log);
        assert!(brief.starts_with("0 1 2 ") && brief.contains(" 39 ... 960 ") && brief.ends_with(" 999"), "{brief}");
        assert_eq!(super::brief("as it\n is"), "as it is");
    }

    #[test]
    fn only_needed_features_decide() {
        let lost = |needed| missing("thing", needed, "all of it", "not there".to_owned(), "make it");
        assert!(
            holdover_host::feature::can_work(&[lost(false)])
                && !holdover_host::feature::can_work(&[lost(false), lost(true)])
        );
    }
}
