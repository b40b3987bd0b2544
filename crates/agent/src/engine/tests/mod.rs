//! The flow path in the kernel and the one in this process have one source. Here both shells get the same packets,
//! links and orders: they must give the same verdicts, notices and states.

mod both;
mod cases;
mod native;
mod raw;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_flow::{
    Environment, FRAME_LEN, Finding, Flow, FlowTable, Form, HostFlows, Key, Link, LinkState, Notice, Order,
    OrderRecord, PREDICTIONS, Place, Prediction, Report, Rules,
};
use holdover_mobility::wake::{WakeConfig, WakeControl};
use holdover_mobility::{Connection, Direction, LinkEvent, Verdict};
use holdover_testbed::harness::skip;
use holdover_wire::{Flags, Packet, Seq};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::path::{EXPIRES_AFTER, KernelPath};
use crate::link_watch::Family;
use both::{Both, Shells};
use cases::{Case, OptionShape, Shape, Step, case, in_order};
use native::{Native, Recorder, way};
use raw::Raw;

/// Later than anything that happens.
const FOREVER: Instant = Instant::from_secs(1_000_000);

/// Each start of the agent waits for the verifier. Linux 6.18 processes 21,000 instructions of `egress`; it was 222,000
/// before decisions were forgotten (`FORGET` of `types.h`).
// Claim: The verifier processes less than 40,000 instructions of each program of the flow path.
#[test]
fn programs_are_verified_soon() {
    if !may_load("programs_are_verified_soon") {
        return;
    }
    let began_at = std::time::Instant::now();
    let kernel = load(0).kernel;
    eprintln!("loaded in {:?}", began_at.elapsed());
    for (name, walked) in kernel.verified_instructions() {
        eprintln!("{name}: {walked:?}");
        assert!(walked.is_none_or(|walked| walked < 40_000), "{name}: {walked:?}");
    }
}

// Claim: The flow path in the kernel treats each packet as it does in a process, with the same events and state: random segments,
// links, orders, transfers of any speed, flows that share a place for predictions, restart, are forgotten or exempt, an agent
// that hangs, five configurations.
// Tests: `tests::the_kernel_does_what_a_process_does_around_a_foreseen_cut`
#[test]
fn the_kernel_does_what_a_process_does() {
    if !may_load("the_kernel_does_what_a_process_does") {
        return;
    }
    let kernels: Vec<_> = (0..configs().len()).map(|number| std::cell::RefCell::new(load(number))).collect();
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(256);
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() });
    runner
        .run(&case(), |case| {
            run(&mut kernels[case.config].borrow_mut(), &case);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}

/// Bulk in both directions with a predicted cut, which random cases rarely combine.
#[test]
fn the_kernel_does_what_a_process_does_around_a_foreseen_cut() {
    if !may_load("the_kernel_does_what_a_process_does_around_a_foreseen_cut") {
        return;
    }
    let segment = |is_outgoing: bool, len: u16| {
        Step::Segment(Shape {
            is_outgoing,
            micros_later: 900,
            ahead: 0,
            len,
            gso_size: 0,
            ack_short: 0,
            window: 5000,
            flags: 0x10,
            options: vec![OptionShape::Stamps { age_ticks: 0 }],
            extension_headers: 0,
            traffic_class: 0,
            ticks: 1,
        })
    };
    let mut shells = load(0);
    for data_goes_out in [false, true] {
        let mut steps = Vec::new();
        let exchange = |count: usize, steps: &mut Vec<Step>| {
            for _ in 0..count {
                steps.extend([segment(data_goes_out, 1000), segment(data_goes_out, 1000), segment(!data_goes_out, 0)]);
            }
        };
        exchange(60, &mut steps);
        steps.push(Step::Link(LinkEvent::Fading { lead: Some(Duration::from_millis(50)) }));
        exchange(30, &mut steps);
        steps.extend([
            Step::Link(LinkEvent::Down),
            Step::Wait(3_000),
            Step::Link(LinkEvent::Up { symmetric: false, moved: false }),
        ]);
        steps.extend([Step::Wait(1), Step::Timeout]);
        for _ in 0..40 {
            exchange(1, &mut steps);
            steps.push(Step::Timeout);
        }
        let scales = (Some(7), Some(8));
        run(
            &mut shells,
            &Case { config: 0, ipv6: false, is_old: false, scales, first: (7, 9), is_other: false, compared: 7, steps },
        );
    }
}

/// A thousand times two segments with data, and their ACK, faster than the limit of holding back.
fn fast_bulk(data_goes_out: bool) -> Vec<Step> {
    let segment = |is_outgoing, len, same_tick| in_order(is_outgoing, (len, 600), 1, same_tick);
    let turn = |turn| {
        let is_same = turn % 50 != 0;
        [
            segment(data_goes_out, 2400, is_same),
            segment(data_goes_out, 2400, is_same),
            segment(!data_goes_out, 0, is_same),
        ]
    };
    (0..1000).flat_map(turn).collect()
}

/// Header prediction takes nearly all packets of a fast transfer, in either direction, and nothing of it is lost.
// Claim: Header prediction takes nearly all packets of a fast transfer, loses none of their information, and takes none while the
// link is down. A transfer that slows down leaves header prediction. Of two such transfers with the same place, the first keeps
// it until it has been idle for a while.
// Tests: `tests::a_fast_transfer_that_slows_down_is_looked_at_again`,
// `tests::a_place_for_predictions_is_one_flows_until_it_is_freed`
#[test]
fn a_fast_transfer_is_predicted() {
    if !may_load("a_fast_transfer_is_predicted") {
        return;
    }
    for (config, data_goes_out, ipv6) in [(0, false, false), (0, true, false), (2, true, true), (2, false, true)] {
        let steps = fast_bulk(data_goes_out);
        let mut shells = load(config);
        let case = Case {
            config,
            ipv6,
            is_old: false,
            scales: (Some(7), Some(7)),
            first: (7, 9),
            is_other: false,
            compared: 7,
            steps,
        };
        run(&mut shells, &case);
        assert!(shells.kernel.predicted() > 2500, "{} of 3000", shells.kernel.predicted());
        // Nothing is predicted while the link changes.
        let before = shells.kernel.predicted();
        let mut steps = case.steps.clone();
        steps.insert(0, Step::Link(LinkEvent::Down));
        run(&mut shells, &Case { steps, ..case });
        assert_eq!(shells.kernel.predicted(), before, "while the link is down");
    }
}

/// A transfer that slows down to 2 MB/s is no longer fast, although few of its packets are looked at to notice that.
#[test]
fn a_fast_transfer_that_slows_down_is_looked_at_again() {
    if !may_load("a_fast_transfer_that_slows_down_is_looked_at_again") {
        return;
    }
    for data_goes_out in [false, true] {
        let predicted = |steps| {
            let mut shells = load(0);
            let (scales, first) = ((Some(7), Some(7)), (7, 9));
            let case =
                Case { config: 0, ipv6: false, is_old: false, scales, first, is_other: false, compared: 20, steps };
            run(&mut shells, &case);
            shells.kernel.predicted()
        };
        let slowly = |len, is_outgoing| in_order(is_outgoing, (len, 600), 500, false);
        let slow = (0..500).flat_map(|_| [slowly(2400, data_goes_out), slowly(0, !data_goes_out)]);
        let fast = fast_bulk(data_goes_out);
        let unseen = predicted(fast.iter().cloned().chain(slow).collect()) - predicted(fast);
        assert!(unseen < 30, "{unseen} of 1000");
    }
}

// Claim: What a router sends by itself is no sign that the link carries packets from beyond it: ICMP, also behind a hop-by-hop header
// (multicast listener discovery), DNS answers, and fragments of datagrams, whose port is not known.
#[test]
fn routers_own_packets_do_not_count_as_others() {
    if !may_load("routers_own_packets_do_not_count_as_others") {
        return;
    }
    let mut kernel = load(0).kernel;
    kernel.set_link(Family::Ipv6, LinkState { listens: true, expires_at: FOREVER, ..LinkState::default() });
    let mut counted = |protocol: u8, upper: &[u8]| {
        // To this host's Ethernet address, which is zero here, from fe80::1 to 2001:db8::1.
        let mut frame = vec![0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0];
        frame.extend((upper.len() as u16).to_be_bytes());
        frame.extend([protocol, 1, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        frame.extend(upper);
        let before = kernel.traffic().others_received;
        assert!(kernel.run(Direction::Incoming, &frame, Instant::from_secs(1), 0).is_some());
        kernel.traffic().others_received - before
    };
    let behind = |header: [u8; 8], upper: &[u8]| [&header[..], upper].concat();
    let (query, udp) = ([130, 0, 0, 0, 0, 0, 0, 0], |port: u8| [0, port, 0x9c, 0x40, 0, 12, 0, 0, 7, 7, 7, 7]);
    assert_eq!(counted(58, &query), 0);
    // The router alert option (RFC 2711), as in each query (RFC 3810 section 5).
    assert_eq!(counted(0, &behind([58, 0, 5, 2, 0, 0, 1, 0], &query)), 0);
    assert_eq!(counted(17, &udp(53)), 0);
    assert_eq!(counted(60, &behind([17, 0, 1, 4, 0, 0, 0, 0], &udp(53))), 0);
    assert_eq!(counted(44, &behind([17, 0, 0, 9, 0, 0, 0, 1], &udp(80))), 0);
    // From beyond.
    assert_eq!(counted(17, &udp(80)), 1);
    assert_eq!(counted(60, &behind([17, 0, 1, 4, 0, 0, 0, 0], &udp(80))), 1);
    assert_eq!(counted(44, &behind([17, 0, 0, 0, 0, 0, 0, 1], &udp(80))), 1);
    assert_eq!(counted(50, &[7; 20]), 1);
}

/// Two transfers share a place: only the first is predicted, until it has been idle for a while, or is removed.
#[test]
fn a_place_for_predictions_is_one_flows_until_it_is_freed() {
    if !may_load("a_place_for_predictions_is_one_flows_until_it_is_freed") {
        return;
    }
    let mut shells = load(0);
    let mut predicted = |parts: &[&[Step]]| {
        let (before, scales, first) = (shells.kernel.predicted(), (Some(7), Some(7)), (7, 9));
        let steps = parts.concat();
        let case = Case { config: 0, ipv6: false, is_old: true, scales, first, is_other: false, compared: 1000, steps };
        run(&mut shells, &case);
        shells.kernel.predicted() - before
    };
    let bulk = fast_bulk(true);
    let one = predicted(&[&bulk]);
    assert!(one > 2500, "{one}");
    let switch = [Step::Switch];
    assert_eq!(predicted(&[&bulk, &switch, &bulk]), one);
    let idle = [Step::FreeIdle];
    let freed = predicted(&[&bulk, &switch, &bulk, &idle, &bulk, &idle, &bulk]) - one;
    assert!((2500..3500).contains(&freed), "{freed}");
    let forgotten = predicted(&[&bulk, &[Step::Forget], &switch, &bulk]) - one;
    assert!(forgotten > 2500, "{forgotten}");
}

/// Two connections whose predictions share a place.
fn connections(ipv6: bool) -> [Connection; 2] {
    let (local, remote) =
        if ipv6 { ("[2001:db8::1]:40000", "[2001:db8:1::2]:443") } else { ("192.0.2.1:40000", "198.51.100.2:443") };
    let first = Connection { local: local.parse().expect("fine"), remote: remote.parse().expect("fine") };
    let place = |connection| Native::place(&Key::new(connection));
    let others = (40_001..u16::MAX)
        .map(|port| Connection { local: SocketAddr::new(first.local.ip(), port), remote: first.remote });
    let second = others.into_iter().find(|&other| place(other) == place(first)).expect("there are 64 places");
    [first, second]
}

/// An Ethernet header.
fn frame(connection: Connection) -> [u8; FRAME_LEN] {
    let mut frame = [0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0x00];
    if connection.local.is_ipv6() {
        frame[12..].copy_from_slice(&[0x86, 0xdd]);
    }
    frame
}

/// Loading takes the kernel a while: it is done once for many cases.
fn load(number: usize) -> Shells {
    let rules = configs()[number].rules().on_interface(FRAME_LEN as u32, 0, 0).with_test_clock();
    let kernel = KernelPath::load(rules, 8).expect("it was loaded before");
    Shells { kernel, native: Native::new(rules) }
}

/// All mechanisms with early holding back, each of them disabled, and other parameters.
fn configs() -> [WakeConfig; 5] {
    let mut all = WakeConfig::all();
    if let Some(hold_back) = &mut all.hold_back {
        hold_back.after_bytes = 5_000;
    }
    let mut other = all;
    if let (Some(hold_back), Some(stall)) = (&mut other.hold_back, &mut other.ack_stall) {
        (hold_back.segments, hold_back.pause) = (2, Duration::from_millis(40));
        stall.lead = Some(Duration::from_millis(90));
    }
    (other.release.ladder, other.release.refresh_for) = (Duration::from_millis(200), Duration::from_millis(30));
    [
        all,
        other,
        WakeConfig { hold_back: None, ..all },
        WakeConfig { ack_stall: None, unreachable_poke: None, ..all },
        WakeConfig { hold_back: None, ack_stall: None, ..all },
    ]
}

/// Whether programs can be loaded here; prints the reason if not.
fn may_load(test: &str) -> bool {
    match KernelPath::load(Rules::default(), 1) {
        Ok(_) => true,
        Err(error) => {
            skip(format_args!("{test}: {error}"));
            false
        }
    }
}

fn run(shells: &mut Shells, case: &Case) {
    let mut both = Both::new(shells, case);
    if case.is_old {
        both.pass(&both.bare(true, 0x10, Vec::new()));
    } else {
        let option = |scale: Option<u8>| scale.map_or(Vec::new(), |scale| vec![3, 3, scale]);
        both.pass(&both.bare(true, 0x02, option(case.scales.0)));
        both.end(true).nxt = both.end(true).nxt.wrapping_add(1);
        both.now += Duration::from_micros(4);
        both.pass(&both.bare(false, 0x12, option(case.scales.1)));
        both.end(false).nxt = both.end(false).nxt.wrapping_add(1);
    }
    for step in &case.steps {
        both.step(step);
    }
    both.compare();
}
