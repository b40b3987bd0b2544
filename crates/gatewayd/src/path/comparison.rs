//! The gateway's shell in the kernel and the flow path's functions in this process get the same packets, orders, links and
//! courses of one mobile host: they must give the same verdicts and states, in entries and in details.

use std::net::{IpAddr, Ipv4Addr};

use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use bytes::Bytes;
use holdover_filter::{Connection, Direction, Verdict, tcp_mut};
use holdover_flow::{
    ConnectionRule, Course, Entry, Environment, Finding, Flow, FlowTable as _, FlowsBetween, Followed, Form, Holds,
    Key, Link, LinkState, Order, OrderRecord, Rules, WindowLimit, comparison,
};
use holdover_testbed::harness::skip;
use holdover_wire::{Flags, Packet, SackBlocks, Segment, Seq, SeqRange, TcpOptions, Timestamps, Udp};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::config::{MOST_LINKS, OWN_LINK};

const FIXED: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const MOBILE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 7));
const FRAME: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];

/// A connection gets details after this many bytes, so that cases have connections with and without them.
const DETAILS_AFTER: u32 = 3_000;

#[derive(Clone, Debug)]
enum Step {
    Segment {
        is_outgoing: bool,
        flags: u16,
        ahead: i32,
        back: u32,
        window: u16,
        len: usize,
        has_stamps: bool,
        sack: bool,
    },
    Link {
        is_down: bool,
        holds: Holds,
        most_window: Option<u32>,
        drops_duplicates: bool,
    },
    /// A UDP packet for the mobile host, of a connection with this rule.
    Datagram(Option<ConnectionRule>),
    Course(Course),
    Limit(WindowLimit),
    Show(u32),
    Compact,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let flags = prop_oneof![30 => Just(0x10_u16), 1 => Just(0x11), 1 => Just(0x14), 1 => Just(0x02), 1 => Just(0x12)];
    let ahead = prop_oneof![8 => Just(0), 1 => -1200_i32..1200];
    let back = prop_oneof![6 => Just(0_u32), 1 => 0_u32..3000];
    let len = prop_oneof![Just(0_usize), Just(1), Just(1000), 1_usize..1400];
    let window = prop_oneof![4 => 300_u16..u16::MAX, 1 => 0_u16..20];
    let segment = (any::<bool>(), flags, ahead, back, window, len, any::<bool>(), prop::bool::weighted(0.1)).prop_map(
        |(is_outgoing, flags, ahead, back, window, len, has_stamps, sack)| Step::Segment {
            is_outgoing,
            flags,
            ahead,
            back,
            window,
            len,
            has_stamps,
            sack,
        },
    );
    let bytes = || prop_oneof![Just(0_u32), 1_u32..60_000];
    let holds = prop_oneof![
        2 => Just(Holds::Segments),
        1 => Just(Holds::Nothing),
        1 => (0_u32..3000).prop_map(Holds::Bytes),
        1 => Just(Holds::Newest)
    ];
    let link = (prop::bool::weighted(0.4), holds, prop::option::weighted(0.3, bytes()), any::<bool>());
    let limit = prop_oneof![
        Just(WindowLimit::None),
        bytes().prop_map(WindowLimit::Always),
        bytes().prop_map(WindowLimit::UntilHeard),
        bytes().prop_map(WindowLimit::UntilAcked)
    ];
    let rule = prop_oneof![Just(None), Just(Some(ConnectionRule::Passes)), Just(Some(ConnectionRule::Diverts))];
    prop_oneof![
        40 => segment,
        2 => link.prop_map(|(is_down, holds, most_window, drops_duplicates)| Step::Link {
            is_down, holds, most_window, drops_duplicates
        }),
        2 => rule.prop_map(Step::Datagram),
        2 => prop::sample::select(&Course::ALL[..]).prop_map(Step::Course),
        1 => limit.prop_map(Step::Limit),
        1 => (0_u32..20_000).prop_map(Step::Show),
        1 => Just(Step::Compact),
        3 => (0_u64..300).prop_map(Step::Wait),
    ]
}

/// Rules for the datagrams: by their ports, and none for the segments.
const RULES: &str = "[[flow]]\nfixed_port = 5001\nmode = \"observe\"\n[[flow]]\nfixed_port = 5002\nmode = \"buffer\"\n";

/// The fate of a packet.
#[derive(PartialEq, Eq, Debug)]
enum Fate {
    Passes(Packet),
    IsDiverted(Packet),
    IsWithheld,
}

/// The kernel's shell, in this process.
struct Native {
    rules: Rules,
    entry: Option<Entry>,
    details: Option<Flow>,
}

impl Native {
    fn current(&self) -> Option<Flow> {
        self.details.or_else(|| self.entry.map(|entry| entry.expand()))
    }

    fn pass(&mut self, now: Instant, link: &Link, direction: Direction, packet: &mut Packet) -> Verdict {
        let segment = packet.tcp().unwrap().clone();
        let form = Form::of(&segment);
        match Flow::find_between(self.current().as_ref(), packet, &segment) {
            Finding::FlowUnseen | Finding::FlowEnds => return Verdict::Pass,
            Finding::FlowBegins => (self.entry, self.details) = (None, None),
            Finding::FlowKnown => {}
        }
        let entry = self.entry.get_or_insert_with(Entry::new);
        if self.details.is_none() && comparison::needs_details(link) {
            self.details = Some(entry.expand());
        }
        let Some(flow) = &mut self.details else {
            if entry.follow(now, &self.rules, direction, packet, form) == Followed::Bulk {
                self.details = Some(entry.expand());
            }
            return Verdict::Pass;
        };
        let environment = Environment { now, link, rules: &self.rules };
        flow.pass_between(&Key::new(connection()), environment, direction, packet, form).0
    }

    fn order(&mut self, now: Instant, direction: Direction, order: Order) {
        let Some(entry) = self.entry else { return };
        let flow = self.details.get_or_insert_with(|| entry.expand());
        let record = OrderRecord::new(now, connection(), direction, order);
        flow.handle_order(&mut holdover_flow::Place::default(), &record);
    }

    fn compact(&mut self) {
        if let Some(entry) = self.details.as_ref().and_then(Entry::of) {
            (self.entry, self.details) = (Some(entry), None);
        }
    }
}

fn connection() -> Connection {
    Connection { local: (FIXED, 80).into(), remote: (MOBILE, 4000).into() }
}

struct Both {
    kernel: KernelPath,
    native: Native,
    /// The table of a router of the simulator, which has no entries.
    simulated: FlowsBetween,
    /// Orders were applied: entries forget their effects, the simulator's flows do not.
    has_orders: bool,
    now: Instant,
    link: LinkState,
    course: Course,
    /// SND.NXT of the fixed and of the mobile host.
    next: [u32; 2],
}

impl Both {
    fn segment(&mut self, step: &Step) -> Option<Packet> {
        let Step::Segment { is_outgoing, flags, ahead, back, window, len, has_stamps, sack } = *step else {
            return None;
        };
        let (own, other) = (usize::from(!is_outgoing), usize::from(is_outgoing));
        let seq = self.next[own].wrapping_add_signed(ahead);
        let flags = Flags::from_bits_truncate(flags);
        let len = if flags.contains(Flags::SYN) { 0 } else { len };
        if ahead == 0 {
            self.next[own] = self.next[own].wrapping_add(len as u32);
        }
        let ack = Seq::new(self.next[other].wrapping_sub(back));
        let val = self.now.as_millis() as u32;
        let timestamps = has_stamps.then_some(Timestamps { val, ecr: val.wrapping_sub(7) });
        let block = SeqRange::new(ack + 1000, ack + 2000);
        let sack = if sack { [block].into_iter().collect() } else { SackBlocks::EMPTY };
        let ends = [(FIXED, 80), (MOBILE, 4000)];
        let ((src, src_port), (dst, dst_port)) = (ends[own], ends[other]);
        let segment = Segment {
            src_port,
            dst_port,
            seq: Seq::new(seq),
            ack: if flags.contains(Flags::ACK) { ack } else { Seq::new(0) },
            flags,
            window,
            options: TcpOptions { timestamps, sack, ..TcpOptions::default() },
            payload: Bytes::from(vec![7; len]),
            ..Segment::default()
        };
        Some(Packet::new(src, dst, segment))
    }

    /// The fate of a packet in the kernel.
    fn fate_in_kernel(&self, direction: Direction, packet: &Packet) -> Fate {
        let diverted = || self.kernel.seen(MOBILE).map_or(0, |seen| seen.diverted);
        let were_diverted = diverted();
        let frame = [&FRAME[..], &packet.emit().unwrap()].concat();
        let mut context = [0; 192];
        context[152..160].copy_from_slice(&self.now.as_nanos().to_ne_bytes());
        let mut out = vec![0; frame.len() + 64];
        let name = if direction == Direction::Outgoing { "egress" } else { "ingress" };
        let options = TestRunOptions {
            data_in: Some(&frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            ..TestRunOptions::new()
        };
        let result = self.kernel.object.program::<SchedClassifier>(name).unwrap().test_run(options).unwrap();
        out.truncate(result.data_size_out as usize);
        let packet = Packet::parse(Bytes::from(out).split_off(14)).expect("its checksum is right");
        match (result.return_value as i32, diverted() - were_diverted) {
            (-1, 0) => Fate::Passes(packet),
            (_, 0) => Fate::IsWithheld,
            _ => Fate::IsDiverted(packet),
        }
    }

    fn pass_datagram(&mut self, rule: Option<ConnectionRule>) {
        let port = match rule {
            None => 5000,
            Some(ConnectionRule::Passes) => 5001,
            Some(ConnectionRule::Diverts) => 5002,
        };
        let packet =
            Packet::new(FIXED, MOBILE, Udp { src_port: port, dst_port: 4000, payload: Bytes::from_static(&[7; 20]) });
        let is_diverted = self.course.diverts(rule, packet.carries_tcp());
        let expected = if is_diverted { Fate::IsDiverted(packet.clone()) } else { Fate::Passes(packet.clone()) };
        assert_eq!(self.fate_in_kernel(Direction::Outgoing, &packet), expected, "{:?}, {rule:?}", self.course);
    }

    fn set_course(&mut self, course: Course) {
        if course == Course::Pass {
            let diverted = self.kernel.seen(MOBILE).map_or(0, |seen| seen.diverted);
            assert!(!self.kernel.pass(MOBILE, diverted + 1).unwrap(), "others are still diverted");
            assert!(self.kernel.pass(MOBILE, diverted).unwrap());
        } else {
            self.kernel.divert(MOBILE, course).unwrap();
        }
        self.course = course;
    }

    fn pass(&mut self, packet: Packet) {
        let direction = if packet.dst == MOBILE { Direction::Outgoing } else { Direction::Incoming };
        let fate = self.fate_in_kernel(direction, &packet);
        let mut link = Link::new(&self.link);
        if self.native.entry.is_none() && self.kernel.seen(MOBILE).is_none() {
            link = Link::new(&LinkState::default());
        }
        let environment = Environment { now: self.now, link: &link, rules: &self.native.rules };
        let form = Form::of(packet.tcp().unwrap());
        let _ = self.simulated.handle_packet(
            connection(),
            environment,
            direction,
            &mut packet.clone(),
            form,
            |_, (), _| {},
        );
        let mut expected = packet;
        let verdict = self.native.pass(self.now, &link, direction, &mut expected);
        let is_diverted = direction == Direction::Outgoing && self.course.diverts(None, expected.carries_tcp());
        let expected = match verdict {
            Verdict::Pass if is_diverted => Fate::IsDiverted(expected),
            Verdict::Pass => Fate::Passes(expected),
            _ => Fate::IsWithheld,
        };
        assert_eq!(fate, expected, "at {}", self.now);
        self.compare();
    }

    fn compare(&self) {
        let flow = self.kernel.flow(connection());
        if !self.has_orders {
            let stage = |flow: &Flow| (flow.began_at(), flow.is_over(), flow.is_under_way());
            assert_eq!(flow.as_ref().map(stage), self.simulated.get(connection()).map(stage), "at {}", self.now);
        }
        assert_eq!(flow, self.native.current());
        let is_detailed = |flows: &Flows| flows.is_detailed(connection());
        assert_eq!(is_detailed(&self.kernel.flows), self.native.details.is_some());
    }
}

// Claim: The gateway's programs do to each packet what the flow path does in a process, and remember the same, in entries and in
// details: random segments, datagrams, links, orders, courses, 200 cases. Until the first order, the same packets begin
// and end connections as at a router of the simulator. The verifier walks through less than 70,000 instructions of each.
// Tests: `path::tests::programs_are_verified_soon`
#[test]
fn the_kernel_does_what_a_process_does_between_two_hosts() {
    let hold_back = holdover_flow::HoldBack {
        segments: 2,
        after_bytes: 3_000,
        pause: Duration::from_millis(20),
        flush: Duration::from_millis(40),
    };
    let rules = Rules::new(Some(hold_back), true, Duration::ZERO)
        .on_interface(14, MARK, MARK_BACK)
        .with_test_clock()
        .with_details_after(DETAILS_AFTER);
    let modes = FlowModes::new(&toml::from_str(RULES).unwrap());
    let flows = FlowPlace { links: vec![LinkState::default(); MOST_LINKS - 1], modes };
    let place = Place {
        interface: "",
        index: 0,
        frame_len: 14,
        // The loopback interface.
        divert_to: 1,
        most_mobiles: 4,
        most_connections: 4,
        most_detailed: 4,
        rules,
        link: LinkState::default(),
        flows: Some(&flows),
        thesis: None,
        split: None,
        prefixes: &NO_PREFIXES,
        modes: "",
        pins: None,
    };
    let kernel = match KernelPath::load(&place, &[], None) {
        Ok(path) => path,
        Err(error) => return skip(error),
    };
    let native = Native { rules, entry: None, details: None };
    let simulated = FlowsBetween::default();
    let both = Both {
        kernel,
        native,
        simulated,
        has_orders: false,
        now: Instant::ZERO,
        link: LinkState::default(),
        course: Course::Pass,
        next: [0, 0],
    };
    let both = std::cell::RefCell::new(both);
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let cases = (prop::collection::vec(step(), 1..100), any::<[u32; 2]>(), prop::option::of(0_u8..15));
    runner
        .run(&cases, |(steps, next, shift)| {
            run(&mut both.borrow_mut(), &steps, next, shift);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}

fn run(both: &mut Both, steps: &[Step], next: [u32; 2], shift: Option<u8>) {
    both.kernel.remove_connection(connection());
    both.kernel.forget(MOBILE);
    both.kernel.know(MOBILE).unwrap();
    (both.native.entry, both.native.details) = (None, None);
    both.simulated.remove(connection());
    (both.has_orders, both.course) = (false, Course::Pass);
    (both.now, both.link, both.next) = (Instant::from_secs(100), LinkState::default(), next);
    // It is alive.
    both.kernel.expiry.set(0, Instant::FAR_FUTURE.as_nanos(), 0).unwrap();
    both.link.expires_at = Instant::FAR_FUTURE;
    for (is_outgoing, flags) in [(false, 0x02), (true, 0x12)] {
        let step = Step::Segment {
            is_outgoing,
            flags,
            ahead: 0,
            back: 0,
            window: 60_000,
            len: 0,
            has_stamps: false,
            sack: false,
        };
        let mut packet = both.segment(&step).unwrap();
        tcp_mut(&mut packet).unwrap().options.window_scale = shift;
        both.now += Duration::from_millis(3);
        both.pass(packet);
        let own = usize::from(!is_outgoing);
        both.next[own] = both.next[own].wrapping_add(1);
    }
    for step in steps {
        both.now += Duration::from_micros(700);
        let direction = Direction::Incoming;
        let order = match step {
            Step::Segment { .. } => {
                let packet = both.segment(step).unwrap();
                both.pass(packet);
                continue;
            }
            Step::Link { is_down, holds, most_window, drops_duplicates } => {
                let at = Some(both.now);
                let epoch = both.link.epoch + 1;
                let (down_at, up_at) = if *is_down { (at, None) } else { (None, at) };
                both.link = LinkState {
                    down_at,
                    up_at,
                    epoch,
                    holds: *holds,
                    most_window: *most_window,
                    drops_duplicates: *drops_duplicates,
                    ..LinkState::default()
                };
                both.link.expires_at = Instant::FAR_FUTURE;
                let link = both.link;
                both.kernel.of_mobile((MOBILE, OWN_LINK), &FlowModes::default()).set_link(link);
                continue;
            }
            Step::Datagram(rule) => {
                both.pass_datagram(*rule);
                continue;
            }
            Step::Course(course) => {
                both.set_course(*course);
                continue;
            }
            Step::Wait(millis) => {
                both.now += Duration::from_millis(*millis);
                continue;
            }
            Step::Compact => {
                both.kernel.order_flow(OrderRecord::compact(connection()));
                both.native.compact();
                both.compare();
                continue;
            }
            Step::Limit(limit) => Order::LimitWindow(*limit),
            Step::Show(ahead) => Order::Show(Seq::new(next[0]) + *ahead),
        };
        both.kernel.of_mobile((MOBILE, OWN_LINK), &FlowModes::default()).order(
            both.now,
            connection(),
            direction,
            order,
        );
        both.has_orders = true;
        both.native.order(both.now, direction, order);
        both.simulated.handle_order(connection(), &OrderRecord::new(both.now, connection(), direction, order));
        both.compare();
    }
}
