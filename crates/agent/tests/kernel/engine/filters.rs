//! Attached as filters of the clsact qdisc, as on kernels without tcx: leftovers after SIGKILL, and their removal.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration as StdDuration;

use holdover_agent::engine::{AttachMode, AttachedBy, Engine, EngineOptions};
use holdover_base::Duration;
use holdover_mobility::Direction;
use holdover_testbed::{Congestion, ImpairmentConfig, Namespace};

use super::process::{EngineThread, UP};
use super::traffic::{Kind, Traffic};
use crate::other_process::OtherProcess;
use crate::wire::{INTERFACE, Wire};

fn clsact() -> EngineOptions {
    EngineOptions { attach: AttachMode::Clsact, ..EngineOptions::default() }
}

/// The agent's filters on a hook of an interface, as `tc(8)` shows them.
pub(crate) fn ours_on(interface: &str, hook: &str) -> Vec<String> {
    let all = tc(&["filter", "show", "dev", interface, hook]);
    all.lines().filter(|line| line.contains("holdover")).map(str::to_owned).collect()
}

/// The same on the wire's.
fn ours(hook: &str) -> Vec<String> {
    ours_on(INTERFACE, hook)
}

fn has_qdisc() -> bool {
    tc(&["qdisc", "show", "dev", INTERFACE]).contains("clsact")
}

/// `tc` of iproute2.
fn tc(arguments: &[&str]) -> String {
    let output = Command::new("tc").args(arguments).output().expect("tc, of the package iproute2");
    assert!(output.status.success(), "tc {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Killed while it withholds all ACKs, it passes packets 1.5 s later; the next agent replaces it, and removes the
/// filters and the qdisc at its end.
// Claim: Attached as filters of `clsact`, as on kernels without tcx: after SIGKILL while it withholds all ACKs, its filters stay
// and packets pass; the next agent replaces them, wakes connections stopped by an outage, and removes everything with the qdisc
// made by the first.
pub(crate) fn killed_without_tcx_it_lets_packets_pass_until_the_next(near: &Namespace) {
    let impairment = ImpairmentConfig { delay: Duration::from_millis(10), ..ImpairmentConfig::default() };
    let wire = Wire::impaired(near, &impairment);
    let kinds = Direction::BOTH.map(|way| Kind::bulk(Congestion::Cubic, way));
    let traffic = Traffic::start(near, &wire.far, &kinds);
    let mut engine = OtherProcess::engine_as_filters();
    traffic.wait_for(500_000);
    engine.tell("up");
    engine.tell("down");
    sleep(StdDuration::from_millis(300));
    engine.kill();
    let left = ["ingress", "egress"].map(ours);
    assert!(left.iter().all(|filters| filters.len() == 1), "{left:?}");
    // With the ACKs withheld for ever neither would get so far.
    traffic.wait_for(3_000_000);

    let next = EngineThread::attach(near, INTERFACE, clsact());
    let replaced = ["ingress", "egress"].map(ours);
    assert!(replaced.iter().all(|filters| filters.len() == 1), "{replaced:?}");
    assert!(replaced[0] != left[0] && replaced[1] != left[1], "other programs: {left:?}, {replaced:?}");
    // The new one sees these connections, and wakes them. It holds back no ACKs of GSO packets, as here: one of them is
    // more than an eighth of the window.
    next.link(UP);
    let waits = traffic.resume_after_outages(&wire, &next, StdDuration::from_secs(2), Duration::from_millis(1200));
    let counters = next.with(|engine| engine.counters());
    eprintln!("resumed after {waits:?}, {counters:?}");
    assert!(counters.seen > 100 && counters.injected > 0, "{counters:?}");
    drop(next);
    assert_eq!(["ingress", "egress"].map(ours), [Vec::<String>::new(), Vec::new()]);
    assert!(!has_qdisc(), "the former agent has created it");
    traffic.wait_for(1_000_000);
    traffic.finish();
}

/// Filters of others stay, and so does a qdisc that existed before, or that others use now.
// Claim: Filters of others stay, and so does a qdisc that existed before or has filters of others; an agent with tcx removes the
// remains of one without.
// Tests: `filters::an_engine_with_tcx_removes_what_one_without_has_left`
pub(crate) fn filters_of_others_stay(near: &Namespace) {
    let _wire = Wire::new(near);
    let theirs = ["filter", "add", "dev", INTERFACE, "ingress", "prio", "1", "protocol", "ip"];
    let theirs = [&theirs[..], &["u32", "match", "u32", "0", "0", "flowid", "1:1"]].concat();
    let count_theirs = || tc(&["filter", "show", "dev", INTERFACE, "ingress"]).matches("flowid").count();

    tc(&["qdisc", "add", "dev", INTERFACE, "clsact"]);
    tc(&theirs);
    let engine = Engine::attach(INTERFACE, &clsact()).unwrap();
    assert_eq!(engine.attached_by(), Some(AttachedBy::Clsact));
    assert_eq!((ours("ingress").len(), ours("egress").len(), count_theirs()), (1, 1, 1));
    drop(engine);
    assert_eq!((ours("ingress").len(), ours("egress").len(), count_theirs()), (0, 0, 1));
    assert!(has_qdisc());

    // The same without theirs: the qdisc is not the agent's.
    tc(&["filter", "del", "dev", INTERFACE, "ingress"]);
    drop(Engine::attach(INTERFACE, &clsact()).unwrap());
    assert!(has_qdisc());

    // The agent has created the qdisc, and others have added filters since.
    tc(&["qdisc", "del", "dev", INTERFACE, "clsact"]);
    let engine = Engine::attach(INTERFACE, &clsact()).unwrap();
    tc(&theirs.iter().map(|word| if *word == "1" { "7" } else { word }).collect::<Vec<_>>());
    drop(engine);
    assert_eq!((ours("ingress").len(), ours("egress").len(), count_theirs()), (0, 0, 1));
    assert!(has_qdisc());
}

/// Beside an `ingress` qdisc (traffic shaping with IFB) nothing is attached: otherwise the egress program would run on
/// ingress.
// Claim: Nothing is attached if an `ingress` qdisc occupies the place of `clsact`.
pub(crate) fn beside_an_ingress_qdisc_nothing_is_attached(near: &Namespace) {
    let _wire = Wire::new(near);
    tc(&["qdisc", "add", "dev", INTERFACE, "ingress"]);
    let error = format!("{:?}", Engine::attach(INTERFACE, &clsact()).err());
    assert!(error.contains("qdisc of kind ingress"), "{error}");
    assert!(tc(&["filter", "show", "dev", INTERFACE, "ingress"]).is_empty());
    assert!(tc(&["qdisc", "show", "dev", INTERFACE]).contains("ingress"));
}

/// Filters left by an agent without tcx do not rewrite packets beside an agent with tcx.
pub(crate) fn an_engine_with_tcx_removes_what_one_without_has_left(near: &Namespace) {
    let _wire = Wire::new(near);
    OtherProcess::engine_as_filters().kill();
    assert_eq!((ours("ingress").len(), ours("egress").len()), (1, 1));
    let engine = Engine::attach(INTERFACE, &EngineOptions::default()).unwrap();
    match engine.attached_by() {
        Some(AttachedBy::Tcx) => {
            assert_eq!((ours("ingress").len(), ours("egress").len(), has_qdisc()), (0, 0, false));
        }
        by => assert_eq!((by, ours("ingress").len(), ours("egress").len()), (Some(AttachedBy::Clsact), 1, 1)),
    }
    drop(engine);
    assert_eq!((ours("ingress").len(), ours("egress").len(), has_qdisc()), (0, 0, false));
}
