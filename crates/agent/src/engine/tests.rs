//! The flow path in the kernel and the one in this process have one source. Here their shells see the same packets, links and orders: they
//! must do the same to each packet, notice the same and remember the same.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_flow::{
    Environment, FRAME_LEN, Flow, FlowTable, Form, Key, Link, LinkState, Notice, Order, OrderRecord, PREDICTIONS,
    Place, Prediction, Report, Rules,
};
use holdover_mobility::wake::{WakeConfig, WakeControl};
use holdover_mobility::{Connection, Direction, LinkEvent, Verdict};
use holdover_wire::{Flags, Packet, Seq};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::path::{EXPIRES_AFTER, KernelPath};
use crate::link_watch::Family;

/// Something that happens.
#[derive(Clone, Debug)]
enum Step {
    Segment(Shape),
    Link(LinkEvent),
    /// The release, and whatever else is due.
    Timeout,
    Order(bool, Order),
    Wait(u64),
    /// Nothing is heard of the agent any more, or something again.
    Hang(bool),
    /// A policy leaves the connection alone, or does not any more.
    LeaveAlone(bool),
    /// What follows is about the other connection.
    Switch,
    /// The agent forgets the connection.
    Forget,
    /// The agent frees predictions that have been idle.
    FreeIdle,
    /// The host begins another connection of the same name, and its SYN has this number.
    Reopen(u32),
}

/// A segment, as far as it is not given by what came before.
#[derive(Clone, Debug)]
struct Shape {
    is_outgoing: bool,
    micros_later: u64,
    /// From the next new byte: negative for a retransmission, positive for a gap.
    ahead: i32,
    len: u16,
    /// Several segments in one, of so many bytes each.
    gso_size: u16,
    /// How much of what has arrived is acknowledged: less than all, or what never came.
    ack_short: i32,
    window: u16,
    flags: u8,
    options: Vec<OptionShape>,
    extension_headers: u8,
    traffic_class: u8,
    /// By how much the clock of the timestamps goes on.
    ticks: i32,
}

#[derive(Clone, Debug)]
enum OptionShape {
    Stamps {
        age_ticks: u8,
    },
    /// As usual: after two no-operations.
    AlignedStamps,
    Sack(Vec<(u16, u16)>),
    NoOperation,
    UserTimeout,
    Unknown(u8),
    Malformed(u8),
}

fn option() -> impl Strategy<Value = OptionShape> {
    prop_oneof![
        8 => (0_u8..4).prop_map(|age_ticks| OptionShape::Stamps { age_ticks }),
        2 => prop::collection::vec((1_u16..9000, 1_u16..3000), 1..=4).prop_map(OptionShape::Sack),
        2 => Just(OptionShape::NoOperation),
        1 => Just(OptionShape::UserTimeout),
        1 => (0_u8..6).prop_map(OptionShape::Unknown),
        1 => any::<u8>().prop_map(OptionShape::Malformed),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let place = (any::<bool>(), 1_u64..20_000, prop_oneof![8 => Just(0), 1 => -3000..0, 1 => 1..3000]);
    let size = (prop_oneof![3 => Just(0_u16), 3 => Just(1000), 2 => 1_u16..1400, 1 => 1400_u16..2600], 100_u16..700);
    let ack =
        (prop_oneof![10 => Just(0), 2 => 0..4000, 1 => -5000..0], prop_oneof![9 => 200_u16..u16::MAX, 1 => 0_u16..20]);
    let flags = prop_oneof![40 => Just(0x10_u8), 4 => Just(0x18), 1 => Just(0x11), 1 => Just(0x14), 2 => Just(0x12), 1 => Just(0x02), 1 => Just(0)];
    let options = prop_oneof![
        4 => Just(vec![OptionShape::Stamps { age_ticks: 0 }]),
        2 => Just(vec![OptionShape::AlignedStamps]),
        4 => prop::collection::vec(option(), 0..4)
    ];
    (place, size, ack, flags, options, 0_u8..3, any::<u8>()).prop_map(
        |((is_outgoing, micros_later, ahead), (len, gso_size), (ack_short, window), flags, options, headers, class)| {
            Shape {
                is_outgoing,
                micros_later,
                ahead,
                len,
                gso_size,
                ack_short,
                window,
                flags,
                options,
                extension_headers: headers,
                traffic_class: class,
                ticks: [0, 0, 1, 1, 1, 1, 1, 1, 1, 2, 3, 4, 5, 300, -1, -4][usize::from(class % 16)],
            }
        },
    )
}

/// The next segment, with what is acknowledged by then and the usual options.
fn in_order(is_outgoing: bool, (len, gso_size): (u16, u16), micros_later: u64, same_tick: bool) -> Step {
    Step::Segment(Shape {
        is_outgoing,
        micros_later,
        ahead: 0,
        len,
        gso_size,
        ack_short: 0,
        window: 60_000,
        flags: 0x10,
        options: vec![OptionShape::AlignedStamps],
        extension_headers: 0,
        traffic_class: 0,
        ticks: i32::from(!same_tick),
    })
}

/// Data in one direction as fast as it comes, with its ACKs, and here and there something else.
fn bulk() -> impl Strategy<Value = Vec<Step>> {
    let turn = (0_u8..4, prop_oneof![6 => Just(None), 1 => step().prop_map(Some)], 1_u64..6, 0_u8..8);
    let size = prop_oneof![Just((1000_u16, 0_u16)), Just((2400, 600)), Just((2500, 600))];
    (any::<bool>(), size, prop::collection::vec(turn, 1..80)).prop_map(|(is_outgoing, (len, gso_size), turns)| {
        let segment =
            |is_outgoing, len, micros_later, tick| in_order(is_outgoing, (len, gso_size), micros_later, tick > 0);
        let mut steps = Vec::new();
        for (segments, other, micros, tick) in turns {
            steps.extend((0..segments).map(|_| segment(is_outgoing, len, micros, tick)));
            steps.extend(other);
            steps.push(segment(!is_outgoing, 0, micros, tick.saturating_sub(3)));
        }
        steps
    })
}

fn step() -> impl Strategy<Value = Step> {
    let lead = prop::option::of((0_u64..800).prop_map(Duration::from_millis));
    let event = prop_oneof![
        lead.prop_map(|lead| LinkEvent::Fading { lead }),
        Just(LinkEvent::Recovered),
        Just(LinkEvent::Down),
        any::<bool>().prop_map(|moved| LinkEvent::Up { symmetric: false, moved }),
    ];
    let order = prop_oneof![
        (0_u32..40_000).prop_map(|ack| Order::Show(Seq::new(ack))),
        (0_u32..40_000, 0_u64..90_000).prop_map(|(ack, hold_from)| Order::Flush { ack: Seq::new(ack), hold_from }),
        Just(Order::Reopened),
        any::<bool>().prop_map(Order::Record),
        any::<bool>().prop_map(Order::Clock),
        (any::<u16>(), any::<u32>(), prop_oneof![Just(1000_u64), Just(1_000_000)])
            .prop_map(|(stale, value, ticks_per_sec)| Order::Refresh { stale: stale.into(), value, ticks_per_sec }),
        (0_u8..20).prop_map(Order::WindowShift),
    ];
    prop_oneof![
        60 => shape().prop_map(Step::Segment),
        3 => event.prop_map(Step::Link),
        2 => Just(Step::Timeout),
        2 => (any::<bool>(), order).prop_map(|(is_outgoing, order)| Step::Order(is_outgoing, order)),
        2 => (0_u64..2_000).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::Hang),
        1 => any::<bool>().prop_map(Step::LeaveAlone),
        2 => Just(Step::Switch),
        1 => Just(Step::FreeIdle),
        1 => prop_oneof![Just(Step::Forget), any::<u32>().prop_map(Step::Reopen)],
    ]
}

/// Later than anything that happens.
const FOREVER: Instant = Instant::from_secs(1_000_000);

/// A case: how the connection begins, and what happens.
#[derive(Clone, Debug)]
struct Case {
    /// Which of [`configs`].
    config: usize,
    ipv6: bool,
    is_old: bool,
    scales: (Option<u8>, Option<u8>),
    first: (u32, u32),
    /// Begins with the second of two connections whose predictions have the same place.
    is_other: bool,
    /// What is remembered is compared after one packet in so many: a look folds predicted packets into the flow.
    compared: usize,
    steps: Vec<Step>,
}

fn case() -> impl Strategy<Value = Case> {
    let first = prop_oneof![Just((1000, 2000)), Just((u32::MAX - 9000, u32::MAX - 20_000)), any::<(u32, u32)>()];
    let scale = || prop::option::of(0_u8..16);
    let config = prop_oneof![5 => Just(0), 3 => 1..configs().len()];
    let steps = prop_oneof![
        3 => prop::collection::vec(step(), 1..120),
        1 => prop::collection::vec(bulk(), 1..4).prop_map(|bulks| bulks.concat()),
    ];
    let compared = prop_oneof![Just(1), Just(3), Just(20), Just(1000)];
    (config, (any::<bool>(), any::<bool>(), any::<bool>()), (scale(), scale()), (first, compared), steps).prop_map(
        |(config, (ipv6, is_old, is_other), scales, (first, compared), steps)| Case {
            config,
            ipv6,
            is_old,
            scales,
            first,
            is_other,
            compared,
            steps,
        },
    )
}

/// One end of the connection, as far as its segments have to make sense.
#[derive(Clone, Copy, Default)]
struct End {
    first: u32,
    nxt: u32,
    stamp: u32,
}

/// The shell in this process, with a table of flows and predictions like the kernel's.
struct Native {
    flows: BTreeMap<Connection, Flow>,
    places: Vec<Place>,
    predictions_before: Vec<Option<Prediction>>,
    rules: Rules,
}

/// The kernel's shell, and the other.
struct Shells {
    kernel: KernelPath,
    native: Native,
}

struct Both<'a> {
    kernel: &'a mut KernelPath,
    native: &'a mut Native,
    expires_at: Instant,
    control: WakeControl,
    connections: [Connection; 2],
    current: usize,
    now: Instant,
    /// The host and the peer, for each of the connections.
    ends: [[End; 2]; 2],
    compared: usize,
    passed: usize,
}

impl Native {
    fn new(rules: Rules) -> Self {
        let places = vec![Place::default(); PREDICTIONS as usize / 2];
        Self { flows: BTreeMap::new(), places, predictions_before: vec![None; PREDICTIONS as usize], rules }
    }

    fn place(key: &Key) -> usize {
        Prediction::number(key, Direction::Outgoing) as usize / 2
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        link: &LinkState,
        connection: Connection,
        direction: Direction,
        packet: &mut Packet,
        form: Form,
    ) -> (Verdict, Option<Notice>) {
        let key = Key::new(connection);
        let segment = packet.tcp().expect("it is TCP");
        if direction == Direction::Outgoing {
            if self.flows.get(&connection).is_some_and(|flow| flow.is_ended_by(packet, segment)) {
                self.forget(connection);
            }
            if Flow::begins_with(packet, segment) {
                self.flows.entry(connection).or_default();
            }
        }
        let Some(flow) = self.flows.get_mut(&connection) else { return (Verdict::Pass, None) };
        if !flow.is_left_alone() {
            flow.note_frame(direction, frame(connection));
        }
        let link = Link::new(link);
        let environment = Environment { now, link: &link, rules: &self.rules };
        flow.handle_packet(&mut self.places[Self::place(&key)], &key, environment, direction, packet, form)
    }

    fn forget(&mut self, connection: Connection) {
        let key = Key::new(connection);
        for direction in [Direction::Outgoing, Direction::Incoming] {
            self.places[Self::place(&key)].free(&key, direction);
        }
        self.flows.remove(&connection);
    }

    fn order(&mut self, connection: Connection, order: OrderRecord) {
        let place = &mut self.places[Self::place(&Key::new(connection))];
        if let Some(flow) = self.flows.get_mut(&connection) {
            flow.handle_order(place, &order);
        }
    }

    fn free_idle_predictions(&mut self) {
        for number in 0..PREDICTIONS {
            let (place, direction) = (number as usize / 2, way(number % 2 == 0));
            let prediction = self.places[place].predictions()[number as usize % 2];
            let before = self.predictions_before[number as usize].replace(prediction);
            if !prediction.is_free() && before == Some(prediction) {
                let key = prediction.key();
                match self.flows.get_mut(&key.connection()) {
                    Some(flow) => {
                        flow.handle_order(&mut self.places[place], &OrderRecord::free_prediction(key, number));
                    }
                    None => self.places[place].free(&key, direction),
                }
            }
        }
    }
}

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

/// Bulk in both directions with a foreseen cut: what is rarely put together at random.
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

/// A thousand times two segments with data, and their ACK, faster than anything is held back.
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
        // Nothing is predicted while something happens to the link.
        let before = shells.kernel.predicted();
        let mut steps = case.steps.clone();
        steps.insert(0, Step::Link(LinkEvent::Down));
        run(&mut shells, &Case { steps, ..case });
        assert_eq!(shells.kernel.predicted(), before, "while the link is down");
    }
}

/// A transfer of 2 MB a second is not fast, although it was, and although few of its packets are looked at to find that out.
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

/// Of two transfers with one place only the first is predicted, until nothing has come of it for a while, or it is forgotten.
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

/// Two connections whose predictions have the same place.
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

/// All mechanisms with the first bytes held back soon, each of them missing, and other figures.
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

/// Whether programs can be loaded here; says so if not.
fn may_load(test: &str) -> bool {
    match KernelPath::load(Rules::default(), 1) {
        Ok(_) => true,
        Err(error) => {
            assert!(std::env::var_os("HOLDOVER_REQUIRE_NAMESPACES").is_none(), "{test}: {error}");
            eprintln!("{test} is skipped: {error}");
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

/// A segment in full.
struct Raw {
    is_outgoing: bool,
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    options: Vec<u8>,
    len: u16,
    gso_size: u16,
    extension_headers: u8,
    traffic_class: u8,
}

impl<'a> Both<'a> {
    fn new(shells: &'a mut Shells, case: &Case) -> Self {
        let Shells { kernel, native } = shells;
        let connections = connections(case.ipv6);
        // What was left of the case before.
        for connection in connections {
            kernel.forget(connection);
            native.forget(connection);
        }
        while kernel.next_notice().is_some() {}
        let stamp = |first: u32| if first > u32::MAX / 2 { u32::MAX - 20 } else { 5_000 };
        let end = |first| End { first, nxt: first, stamp: stamp(first) };
        let mut both = Self {
            kernel,
            native,
            expires_at: FOREVER,
            control: WakeControl::new(configs()[case.config]),
            connections,
            current: case.is_other.into(),
            now: Instant::from_secs(100),
            ends: [[end(case.first.0), end(case.first.1)]; 2],
            compared: case.compared,
            passed: 0,
        };
        both.link();
        both
    }

    fn connection(&self) -> Connection {
        self.connections[self.current]
    }

    /// The host or the peer of the current connection.
    fn end(&mut self, is_host: bool) -> &mut End {
        &mut self.ends[self.current][usize::from(!is_host)]
    }

    /// What is remembered of the current connection, for the control.
    fn recorder(&self) -> Recorder {
        Recorder(self.native.flows.get(&self.connection()).copied(), self.connection())
    }

    fn bare(&self, is_outgoing: bool, flags: u8, options: Vec<u8>) -> Raw {
        let [host, peer] = &self.ends[self.current];
        let (own, other) = if is_outgoing { (host, peer) } else { (peer, host) };
        Raw {
            is_outgoing,
            seq: own.nxt,
            ack: if flags & 0x10 == 0 { 0 } else { other.nxt },
            flags,
            window: 500,
            options,
            len: 0,
            gso_size: 0,
            extension_headers: 0,
            traffic_class: 0,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Segment(shape) => {
                self.now += Duration::from_micros(shape.micros_later);
                let raw = self.raw(shape);
                self.pass(&raw);
            }
            Step::Link(event) => {
                let mut path = self.recorder();
                self.control.handle_link(self.now, *event, &mut path);
                self.link();
            }
            Step::Timeout => {
                let mut path = self.recorder();
                self.control.handle_timeout(self.now, &mut path);
                self.link();
            }
            Step::Order(is_outgoing, order) => {
                let direction = way(*is_outgoing);
                let connection = self.connection();
                self.native.order(connection, OrderRecord::new(self.now, connection, direction, *order));
                self.kernel.set_now(self.now);
                self.kernel.order(self.now, connection, direction, *order);
            }
            Step::Wait(millis) => self.now += Duration::from_millis(*millis),
            Step::Hang(hangs) => {
                self.expires_at = if *hangs { self.now + EXPIRES_AFTER } else { FOREVER };
                self.link();
            }
            Step::LeaveAlone(alone) => {
                let connection = self.connection();
                self.native.order(connection, OrderRecord::leave_alone(connection, *alone));
                self.kernel.set_now(self.now);
                self.kernel.leave_alone(connection, *alone);
            }
            Step::Switch => self.current ^= 1,
            Step::FreeIdle => {
                self.kernel.free_idle_predictions();
                self.native.free_idle_predictions();
            }
            Step::Forget => {
                let connection = self.connection();
                self.kernel.forget(connection);
                self.native.forget(connection);
            }
            Step::Reopen(first) => {
                let stamp = self.end(true).stamp;
                *self.end(true) = End { first: *first, nxt: *first, stamp };
                self.pass(&self.bare(true, 0x02, vec![3, 3, 7]));
                self.end(true).nxt = first.wrapping_add(1);
            }
        }
    }

    /// The kernel learns what the control knows of the link.
    fn link(&mut self) {
        self.kernel.set_now(self.expires_at - EXPIRES_AFTER);
        let family = Family::of_connection(self.connections[0]);
        self.kernel.set_link(family, self.control.link_state());
        // What becomes of the other version's link is nothing to this connection.
        let others = LinkState { down_at: Some(self.now), ..LinkState::default() };
        self.kernel.set_link(family.other(), others);
        self.kernel.renew();
    }

    fn raw(&mut self, shape: &Shape) -> Raw {
        let [host, peer] = &mut self.ends[self.current];
        let (own, other) = if shape.is_outgoing { (host, *peer) } else { (peer, *host) };
        let seq = own.nxt.wrapping_add_signed(shape.ahead);
        let end = seq.wrapping_add(shape.len.into());
        if end.wrapping_sub(own.first) > own.nxt.wrapping_sub(own.first) && end.wrapping_sub(own.first) < 1 << 30 {
            own.nxt = end;
        }
        own.stamp = own.stamp.wrapping_add_signed(shape.ticks);
        let mut options = Vec::new();
        for option in &shape.options {
            let bytes = option.bytes(own.stamp, other.stamp, other.nxt);
            if options.len() + bytes.len() <= 40 {
                options.extend(bytes);
            }
        }
        Raw {
            is_outgoing: shape.is_outgoing,
            seq,
            ack: other.nxt.wrapping_sub(shape.ack_short as u32),
            flags: shape.flags,
            window: shape.window,
            options,
            len: shape.len,
            gso_size: if shape.len > 1400 { shape.gso_size } else { 0 },
            extension_headers: shape.extension_headers,
            traffic_class: shape.traffic_class,
        }
    }

    /// A segment passes both, which must agree.
    fn pass(&mut self, raw: &Raw) {
        let direction = way(raw.is_outgoing);
        let connection = self.connection();
        let bytes = raw.packet(connection);
        let mut packet = Packet::parse(Bytes::copy_from_slice(&bytes)).expect("a packet that is well-formed");
        let form = raw.form(connection.local.is_ipv6());
        let mut link = self.control.link_state();
        link.expires_at = self.expires_at;
        let (verdict, notice) = self.native.handle_packet(self.now, &link, connection, direction, &mut packet, form);

        let mut frame = frame(connection).to_vec();
        frame.extend(&bytes);
        let out = self.kernel.run(direction, &frame, self.now, raw.gso_size.into());

        let passed = out.map(|out| {
            let out = Bytes::from(out).split_off(FRAME_LEN);
            Packet::parse(out).expect("what passes is well-formed, with the right checksum")
        });
        let expected = (verdict == Verdict::Pass).then_some(packet);
        assert_eq!(passed, expected, "what became of it, at {}", self.now);
        assert_eq!(self.noticed(), notice.map(|notice| (direction, notice)));
        self.passed += 1;
        if self.passed.is_multiple_of(self.compared) {
            self.compare();
        }
        if let Some(notice) = notice {
            let mut path = self.recorder();
            self.control.handle_notice(self.now, connection, direction, notice, &mut path);
        }
    }

    /// What is remembered.
    fn compare(&mut self) {
        for connection in self.connections {
            assert_eq!(self.kernel.flow(connection).as_ref(), self.native.flows.get(&connection), "{connection}");
        }
    }

    fn noticed(&mut self) -> Option<(Direction, Notice)> {
        let mut noticed = None;
        while let Some(notice) = self.kernel.next_notice() {
            match notice.report().expect("a notice of ours") {
                Report::Incoming(_) | Report::Arrived(_) => {}
                Report::Notice(connection, direction, notice) => {
                    assert_eq!(connection, self.connection());
                    assert!(noticed.is_none(), "one for a packet");
                    noticed = Some((direction, notice));
                }
            }
        }
        noticed
    }
}

/// A path whose orders go nowhere: the case gives its own.
struct Recorder(Option<Flow>, Connection);

impl FlowTable for Recorder {
    fn snapshot(&self, connection: Connection) -> Option<Flow> {
        self.0.filter(|_| connection == self.1)
    }

    fn for_each_live(&self, look: &mut dyn FnMut(Connection, &Flow)) {
        self.0.iter().for_each(|flow| look(self.1, flow));
    }

    fn order(&mut self, _now: Instant, _connection: Connection, _direction: Direction, _order: Order) {}

    fn set_link(&mut self, _link: LinkState) {}
}

fn way(is_outgoing: bool) -> Direction {
    if is_outgoing { Direction::Outgoing } else { Direction::Incoming }
}

impl OptionShape {
    fn bytes(&self, stamp: u32, other: u32, from: u32) -> Vec<u8> {
        match self {
            Self::Stamps { age_ticks } => {
                let (val, ecr) = (stamp, other.wrapping_sub((*age_ticks).into()));
                [&[8, 10][..], &val.to_be_bytes(), &ecr.to_be_bytes()].concat()
            }
            Self::AlignedStamps => [&[1, 1, 8, 10][..], &stamp.to_be_bytes(), &other.to_be_bytes()].concat(),
            Self::Sack(blocks) => {
                let mut bytes = vec![5, 2 + 8 * blocks.len() as u8];
                for (start, len) in blocks {
                    let start = from.wrapping_add((*start).into());
                    bytes.extend(start.to_be_bytes());
                    bytes.extend(start.wrapping_add((*len).into()).to_be_bytes());
                }
                bytes
            }
            Self::NoOperation => vec![1],
            Self::UserTimeout => vec![28, 4, 0x80, 1],
            Self::Unknown(len) => [&[77, 2 + len][..], &vec![0xee; usize::from(*len)]].concat(),
            Self::Malformed(kind) => vec![(*kind).max(2), 1],
        }
    }
}

impl Raw {
    fn form(&self, ipv6: bool) -> Form {
        Form {
            segment_size: (self.gso_size > 0).then_some(self.gso_size.into()),
            has_usual_options: self.options.len() == 12
                && self.options.starts_with(&[1, 1, 8, 10])
                && !(ipv6 && self.extension_headers > 0),
        }
    }

    fn packet(&self, connection: Connection) -> Vec<u8> {
        let Connection { local, remote } = connection;
        let (from, to) = if self.is_outgoing { (local, remote) } else { (remote, local) };
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let mut tcp = Vec::new();
        tcp.extend(from.port().to_be_bytes());
        tcp.extend(to.port().to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        tcp.extend([((20 + options.len()) as u8 / 4) << 4, self.flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&options);
        tcp.extend((0..self.len).map(|n| n as u8));
        let (ips, mut packet) = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let (from, to) = (from.octets(), to.octets());
                let total = 20 + tcp.len() as u16;
                let mut ip = vec![0x45, self.traffic_class];
                ip.extend(total.to_be_bytes());
                ip.extend([0, 0, 0x40, 0, 61, 6, 0, 0]);
                ip.extend(from.iter().chain(&to));
                let sum = checksum(&ip).to_be_bytes();
                ip[10..12].copy_from_slice(&sum);
                ([from, to].concat(), ip)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let (from, to) = (from.octets(), to.octets());
                // Hop-by-hop options first, then destination options.
                let headers: &[u8] = [&[][..], &[60], &[0, 60]][usize::from(self.extension_headers)];
                let mut extensions = Vec::new();
                for index in 0..headers.len() {
                    extensions.extend([headers.get(index + 1).copied().unwrap_or(6), 0, 1, 4, 0, 0, 0, 0]);
                }
                let class = self.traffic_class;
                let mut ip = vec![0x60 | class >> 4, class << 4, 0x12, 0x34];
                ip.extend(((extensions.len() + tcp.len()) as u16).to_be_bytes());
                ip.extend([headers.first().copied().unwrap_or(6), 61]);
                ip.extend(from.iter().chain(&to));
                ip.extend(extensions);
                ([from, to].concat(), ip)
            }
            _ => unreachable!("both ends are of one family"),
        };
        let mut covered = ips;
        covered.extend([0, 6]);
        covered.extend((tcp.len() as u16).to_be_bytes());
        covered.extend(&tcp);
        let sum = checksum(&covered).to_be_bytes();
        tcp[16..18].copy_from_slice(&sum);
        packet.extend(tcp);
        packet
    }
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The flags that the cases use are those of the field.
#[test]
fn flags_are_the_fields() {
    assert_eq!((Flags::FIN | Flags::ACK).bits(), 0x11);
    assert_eq!((Flags::SYN | Flags::ACK).bits(), 0x12);
    assert_eq!((Flags::RST | Flags::ACK).bits(), 0x14);
}
