//! Freezing, rule by rule; and for any sequence of packets: no ACK covers more than the mobile host's.

use core::net::IpAddr;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::{Connection, Direction, Presence, SegmentFilter as _, Verdict};
use holdover_flow::{Flow, FlowTable, HoldBack, Holds, LinkState, Rules};
use holdover_wire::{Flags, Packet, RareOptions, Segment, Seq, TcpOptions};
use proptest::prelude::*;

use super::{FreezeConfig, FreezeControl};
use crate::daemon::{GatewayDaemon, Treatment};
use crate::divert::{DiverterConfig, Standing};
use crate::prefixes::Prefixes;

const FIXED: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 1));
const PHONE: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 2));

fn segment((src_port, dst_port): (u16, u16), flags: Flags, seq: u32, ack: u32, window: u16, len: usize) -> Segment {
    Segment {
        src_port,
        dst_port,
        seq: Seq::new(seq),
        ack: Seq::new(ack),
        flags,
        window,
        payload: Bytes::from(vec![0; len]),
        ..Segment::default()
    }
}

fn connection() -> Connection {
    Connection { local: (FIXED, 80).into(), remote: (PHONE, 1000).into() }
}

fn data(seq: u32, len: usize) -> Packet {
    Packet::new(FIXED, PHONE, segment((80, 1000), Flags::ACK, seq, 1, 500, len))
}

fn ack(number: u32, window: u16) -> Packet {
    Packet::new(PHONE, FIXED, segment((1000, 80), Flags::ACK, 1, number, window, 0))
}

/// Output is written as `data 100:200` or `ack 200 win 500`.
struct Script {
    filter: GatewayDaemon,
    now: Instant,
}

impl Script {
    /// A connection between a mobile host and a server, whose windows are counted in bytes, over which data begin at `first`. ACKs are
    /// held back from the first one on.
    fn new(config: FreezeConfig, first: u32) -> Self {
        let hold = HoldBack { segments: 0, after_bytes: 0, pause: Duration::ZERO, flush: config.flush };
        let rules = Rules::new(Some(hold), true, Duration::ZERO);
        let buffer = DiverterConfig { diverts: false, ..DiverterConfig::default() };
        let filter = GatewayDaemon::with_treatment(Treatment::Freeze(config), rules, buffer, Prefixes::default());
        let mut script = Self { filter, now: Instant::from_secs(1) };
        script.open(first);
        script
    }

    fn open(&mut self, first: u32) {
        let options = TcpOptions::from(RareOptions { window_scale: Some(0), ..RareOptions::default() });
        let mut syn = segment((1000, 80), Flags::SYN, 0, 0, 500, 0);
        syn.options = options.clone();
        let mut reply = segment((80, 1000), Flags::SYN | Flags::ACK, first.wrapping_sub(1), 1, 500, 0);
        reply.options = options;
        self.pass(Packet::new(PHONE, FIXED, syn));
        self.after(5);
        self.pass(Packet::new(FIXED, PHONE, reply));
        self.after(5);
        self.pass(ack(first, 500));
    }

    fn pass(&mut self, mut packet: Packet) -> Vec<String> {
        let direction = if packet.dst == PHONE { Direction::Outgoing } else { Direction::Incoming };
        let verdict = self.filter.handle_packet(self.now, direction, &mut packet);
        let mut out = if verdict == Verdict::Pass { vec![text(&packet)] } else { Vec::new() };
        out.extend(self.made());
        out
    }

    fn after(&mut self, millis: u64) -> Vec<String> {
        self.now += Duration::from_millis(millis);
        while self.filter.poll_timeout().is_some_and(|at| at <= self.now) {
            self.filter.handle_timeout(self.now);
        }
        self.made()
    }

    fn phone_is(&mut self, presence: Presence) -> Vec<String> {
        self.filter.handle_mobile(self.now, PHONE, presence);
        self.made()
    }

    fn made(&mut self) -> Vec<String> {
        core::iter::from_fn(|| self.filter.poll_transmit(self.now)).map(|made| text(&made.packet)).collect()
    }
}

fn text(packet: &Packet) -> String {
    let segment = packet.tcp().expect("all is TCP");
    if packet.dst == PHONE {
        let end = segment.seq + segment.payload.len() as u32;
        format!("data {}:{}", segment.seq.value(), end.value())
    } else {
        format!("ack {} win {}", segment.ack.value(), segment.window)
    }
}

/// Two of three segments are acknowledged.
fn under_way(config: FreezeConfig) -> Script {
    let mut script = Script::new(config, 100);
    for seq in [100, 200, 300] {
        assert_eq!(script.pass(data(seq, 100)), [format!("data {seq}:{}", seq + 100)]);
    }
    script.after(10);
    script
}

#[test]
fn the_newest_ack_waits_for_the_next_one_while_data_are_outstanding() {
    let mut script = under_way(FreezeConfig::buffer_freeze());
    assert_eq!(script.pass(ack(200, 400)), [] as [&str; 0]);
    // Lowered to the one before, with the same right edge.
    assert_eq!(script.pass(ack(300, 300)), ["ack 200 win 400"]);
    assert_eq!(script.pass(ack(400, 500)), ["ack 400 win 500"], "nothing is outstanding any more");
}

#[test]
fn one_byte_is_held_exactly_and_shown_at_the_end() {
    let mut script = under_way(FreezeConfig::m_tcp());
    assert_eq!(script.pass(ack(200, 400)), ["ack 199 win 401"]);
    assert_eq!(script.pass(ack(300, 300)), ["ack 299 win 301"]);
    assert_eq!(script.pass(ack(400, 200)), ["ack 399 win 201"]);
    assert_eq!(script.after(39), [] as [&str; 0]);
    assert_eq!(script.after(1), ["ack 400 win 200"], "a sender that has finished does not have to wait");
    assert_eq!(script.after(10_000), [] as [&str; 0]);
}

#[test]
fn a_mobile_host_that_goes_has_its_window_shut_and_its_probes_answered() {
    let mut script = under_way(FreezeConfig::buffer_freeze());
    script.pass(ack(200, 400));
    script.pass(ack(300, 300));
    assert_eq!(script.phone_is(Presence::Away), ["ack 300 win 0"], "with the ACK that was held");
    script.after(400);
    // As Linux and 4.4BSD probe. Neither is forwarded to the absent host.
    assert_eq!(script.pass(data(299, 0)), ["ack 300 win 0"]);
    assert_eq!(script.pass(data(400, 1)), ["ack 300 win 0"]);
    // Data is forwarded, and counts as a probe if it has passed before.
    assert_eq!(script.pass(data(300, 100)), ["data 300:400", "ack 300 win 0"]);
    assert_eq!(script.pass(data(400, 100)), ["data 400:500"]);
    assert_eq!(script.after(60_000), [] as [&str; 0]);
    assert_eq!(script.phone_is(Presence::Present), [] as [&str; 0], "the third probe was a retransmission");
    assert_eq!(script.pass(data(300, 100)), ["data 300:400", "ack 300 win 0"]);
    script.after(10);
    assert_eq!(script.pass(ack(500, 450)), ["ack 500 win 450"]);
}

/// Linux ends a connection that has retransmitted for too long at its next retransmission, unless the window is shut or the retransmission
/// before was answered.
#[test]
fn a_window_stays_shut_for_a_sender_that_has_retransmitted_until_something_new_is_acknowledged() {
    for (probes, opens_with) in [(2, "the return"), (3, "an ACK of something new")] {
        let mut script = under_way(FreezeConfig::buffer_freeze());
        script.pass(ack(200, 400));
        assert_eq!(script.phone_is(Presence::Away), ["ack 200 win 0"]);
        for _ in 0..probes {
            script.after(60_000);
            assert_eq!(script.pass(data(200, 100)), ["data 200:300", "ack 200 win 0"]);
        }
        let opened: &[&str] = if probes == 2 { &["ack 200 win 400"] } else { &[] };
        assert_eq!(script.phone_is(Presence::Present), opened, "{opens_with}");
        if probes == 2 {
            continue;
        }
        assert_eq!(script.pass(ack(200, 400)), ["ack 200 win 0"], "the host is heard");
        assert_eq!(script.pass(data(200, 100)), ["data 200:300", "ack 200 win 0"], "its answer may be lost");
        assert_eq!(script.phone_is(Presence::Away), [] as [&str; 0]);
        assert_eq!(script.phone_is(Presence::Present), [] as [&str; 0]);
        assert_eq!(script.pass(ack(400, 350)), ["ack 400 win 350"]);
        assert_eq!(script.pass(data(400, 100)), ["data 400:500"]);
        assert_eq!(script.phone_is(Presence::Away), ["ack 400 win 0"]);
        assert_eq!(script.phone_is(Presence::Present), ["ack 400 win 350"], "probes are counted anew");
    }
}

/// A sender that retransmits while no absence is reported, as after a *wintimer*.
#[test]
fn a_window_that_silence_has_shut_stays_shut_for_a_sender_that_has_retransmitted() {
    for probes in [2, 3] {
        let mut script = under_way(FreezeConfig::m_tcp());
        assert_eq!(script.pass(ack(200, 400)), ["ack 199 win 401"]);
        assert_eq!(script.after(260), ["ack 200 win 0"]);
        for _ in 0..probes {
            script.after(10_000);
            assert_eq!(script.pass(data(200, 100)), ["data 200:300", "ack 200 win 0"]);
        }
        let repeated = if probes == 2 { "ack 200 win 400" } else { "ack 200 win 0" };
        assert_eq!(script.pass(ack(200, 400)), [repeated]);
        assert_eq!(script.pass(ack(400, 350))[..1], [if probes == 2 { "ack 399 win 351" } else { "ack 400 win 350" }]);
    }
}

/// The process was killed after the third probe.
#[test]
fn another_controller_leaves_a_window_shut_until_something_new_is_acknowledged() {
    for is_away in [false, true] {
        let mut script = under_way(FreezeConfig::buffer_freeze());
        script.pass(ack(200, 400));
        assert_eq!(script.phone_is(Presence::Away), ["ack 200 win 0"]);
        for _ in 0..3 {
            script.after(60_000);
            assert_eq!(script.pass(data(200, 100)), ["data 200:300", "ack 200 win 0"]);
        }
        script.filter.path_mut().forget_controller(PHONE);
        let now = script.now;
        if is_away {
            let path = script.filter.path_mut();
            path.with(PHONE, |controller, flows| controller.handle_standing(now, Standing::Away, flows));
            assert_eq!(script.made(), ["ack 200 win 0"]);
            assert_eq!(script.phone_is(Presence::Present), [] as [&str; 0]);
        } else {
            script.filter.path_mut().with(PHONE, |controller, flows| controller.take_over(now, flows));
            assert_eq!(script.made(), [] as [&str; 0]);
        }
        assert!(!script.filter.path_mut().is_link_down(PHONE));
        assert_eq!(script.pass(ack(200, 400)), ["ack 200 win 0"], "the host is heard");
        assert_eq!(script.pass(data(200, 100)), ["data 200:300", "ack 200 win 0"], "its answer may be lost");
        assert_eq!(script.pass(ack(400, 350)), ["ack 400 win 350"]);
        assert_eq!(script.pass(data(400, 100)), ["data 400:500"]);
        assert_eq!(script.phone_is(Presence::Away), ["ack 400 win 0"]);
        assert_eq!(script.phone_is(Presence::Present), ["ack 400 win 350"], "probes are counted anew");
    }
}

/// A reset ends a frozen connection, and is no ACK that ends the freeze.
#[test]
fn a_connection_with_the_ports_of_a_frozen_one_begins_anew() {
    let frozen = || {
        let mut script = under_way(FreezeConfig::m_tcp());
        assert_eq!(script.pass(ack(200, 400)), ["ack 199 win 401"]);
        assert_eq!(script.after(260), ["ack 200 win 0"]);
        script.pass(Packet::new(FIXED, PHONE, segment((80, 1000), Flags::RST, 400, 0, 0, 0)));
        script.after(1_000);
        // An attempt with another initial sequence number, as the second connection has the same SYN as the first one.
        script.pass(Packet::new(PHONE, FIXED, segment((1000, 80), Flags::SYN, 7, 0, 500, 0)));
        script.open(5_000);
        script.pass(data(5_000, 100));
        script.after(10);
        script
    };
    let mut script = frozen();
    assert_eq!(script.pass(ack(5_100, 400)), ["ack 5099 win 401"]);
    assert_eq!(script.after(40), ["ack 5100 win 400"], "what is held is shown");
    let mut script = frozen();
    assert_eq!(script.phone_is(Presence::Away), ["ack 5000 win 0"]);
    assert_eq!(script.phone_is(Presence::Present), ["ack 5000 win 500"]);
}

/// The newest ACK was withheld, as it came before the gateway had noticed the return.
#[test]
fn a_window_opens_with_an_ack_that_was_withheld() {
    let mut script = under_way(FreezeConfig::buffer_freeze());
    script.pass(ack(200, 400));
    assert_eq!(script.phone_is(Presence::Away), ["ack 200 win 0"]);
    for _ in 0..5 {
        assert_eq!(script.pass(data(200, 100)), ["data 200:300", "ack 200 win 0"]);
    }
    script.filter.path_mut().with(PHONE, |_, flows| {
        assert_eq!(flows.snapshot(connection()).map(|flow| flow.half(Direction::Incoming).is_held()), Some(false));
    });
    let now = script.now;
    let mut late = ack(300, 300);
    assert_ne!(script.filter.path_mut().follow(now, Direction::Incoming, &mut late), Verdict::Pass);
    assert_eq!(script.phone_is(Presence::Present), ["ack 300 win 300"]);
}

#[test]
fn a_mobile_host_that_speaks_ends_the_freeze_by_itself() {
    let mut script = under_way(FreezeConfig::m_tcp());
    assert_eq!(script.pass(ack(200, 400)), ["ack 199 win 401"]);
    assert_eq!(script.after(260), ["ack 200 win 0"], "no ACK for 250 ms");
    assert_eq!(script.after(5_000), [] as [&str; 0], "once");
    assert_eq!(script.pass(data(199, 0)), ["data 199:199", "ack 200 win 0"], "the host may be there: it is asked, too");
    assert_eq!(script.pass(ack(200, 400)), ["ack 200 win 400"]);
    assert_eq!(script.pass(data(199, 0)), ["data 199:199"], "the window is open again");
}

#[test]
fn duplicates_are_kept_or_dropped_and_one_ends_a_freeze_in_any_case() {
    for drops_duplicates in [false, true] {
        let mut script = under_way(FreezeConfig { drops_duplicates, ..FreezeConfig::m_tcp() });
        assert_eq!(script.pass(ack(200, 400)), ["ack 199 win 401"]);
        let shown: &[&str] = if drops_duplicates { &[] } else { &["ack 200 win 400"] };
        assert_eq!(script.pass(ack(200, 400)), shown);
        assert_eq!(script.pass(ack(300, 400)), ["ack 299 win 401"]);
        assert_eq!(script.after(260), ["ack 300 win 0"]);
        assert_eq!(script.pass(ack(300, 400)), ["ack 300 win 400"]);
    }
}

/// From some point on, the gateway does not see the data that the mobile host acknowledges.
// Claim: A window that the gateway has shut opens with the mobile host's next ACK, also one of data that have taken another path.
#[test]
fn acks_of_data_that_take_another_path_end_a_freeze() {
    let mut script = under_way(FreezeConfig::m_tcp());
    assert_eq!(script.pass(ack(200, 400)), ["ack 199 win 401"]);
    assert_eq!(script.pass(ack(500, 500)), ["ack 500 win 500"], "data have passed up to 400");
    assert_eq!(script.after(260), ["ack 200 win 0"], "which the sender ignores, as it is older");
    assert_eq!(script.pass(ack(600, 500)), ["ack 600 win 500"]);
    assert_eq!(script.after(5_000), [] as [&str; 0]);
    assert_eq!(script.pass(ack(700, 500)), ["ack 700 win 500"]);
}

#[test]
fn a_sender_that_pauses_is_frozen_before_it_continues() {
    let mut script = under_way(FreezeConfig::buffer_freeze());
    assert_eq!(script.pass(ack(400, 500)), ["ack 400 win 500"]);
    script.after(1_000);
    assert_eq!(script.phone_is(Presence::Away), ["ack 400 win 0"]);
    assert_eq!(script.phone_is(Presence::Present), ["ack 400 win 500"]);
}

#[test]
fn idle_connections_are_left_alone() {
    let mut script = under_way(FreezeConfig::buffer_freeze());
    script.pass(ack(400, 500));
    script.after(11_000);
    assert_eq!(script.phone_is(Presence::Away), [] as [&str; 0]);
    assert_eq!(script.phone_is(Presence::Present), [] as [&str; 0]);
}

/// A notice may be read late, when its window has already been opened or shut.
#[test]
fn late_notices_neither_shut_a_window_nor_leave_a_deadline_behind() {
    let mut script = under_way(FreezeConfig::buffer_freeze());
    script.pass(ack(200, 400));
    assert_eq!(script.phone_is(Presence::Away), ["ack 200 win 0"]);
    let connection = connection();
    let now = script.now;
    let late = |script: &mut Script, direction, notice| {
        script
            .filter
            .path_mut()
            .with(PHONE, |controller, flows| controller.handle_notice(now, connection, direction, notice, flows));
    };
    late(&mut script, Direction::Incoming, holdover_flow::Notice::Held);
    assert_eq!(script.phone_is(Presence::Present), ["ack 200 win 400"]);
    late(&mut script, Direction::Outgoing, holdover_flow::Notice::Probed(Seq::new(200)));
    assert_eq!(script.after(5_000), [] as [&str; 0]);
    assert_eq!(script.filter.poll_timeout(), None);
}

/// The process was killed, and the flow path has continued.
#[test]
fn another_controller_opens_windows_and_raises_a_link_that_the_one_before_has_left() {
    for config in [FreezeConfig::buffer_freeze(), FreezeConfig::m_tcp()] {
        for is_away in [false, true] {
            let mut script = under_way(config);
            script.pass(ack(200, 400));
            assert_eq!(script.phone_is(Presence::Away), ["ack 200 win 0"]);
            script.filter.path_mut().forget_controller(PHONE);
            if is_away {
                script.after(20_000);
                let now = script.now;
                script
                    .filter
                    .path_mut()
                    .with(PHONE, |controller, flows| controller.handle_standing(now, Standing::Away, flows));
                assert_eq!(script.made(), ["ack 200 win 0"], "it is frozen for this one, too");
                assert_eq!(script.phone_is(Presence::Present), ["ack 200 win 400"]);
            } else {
                let now = script.now;
                script.filter.path_mut().with(PHONE, |controller, flows| controller.handle_end(now, flows));
                assert_eq!(script.made(), ["ack 200 win 400"]);
            }
            assert_eq!(script.pass(data(199, 0)), ["data 199:199"], "probes reach the host");
            assert!(!script.filter.path_mut().is_link_down(PHONE));
            assert_eq!(
                script.pass(ack(400, 500)),
                [if config.least_timeout.is_some() { "ack 399 win 501" } else { "ack 400 win 500" }]
            );
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Data { at: u32, len: usize },
    Ack { at: u32, window: u16 },
    Presence(Presence),
    Wait(u64),
}

/// A flow table that notes whether a flow was read while the link is down.
#[derive(Default)]
struct Order {
    is_down: bool,
    read_while_down: core::cell::Cell<u32>,
    reads: core::cell::Cell<u32>,
}

impl FlowTable for Order {
    fn snapshot(&self, _: Connection) -> Option<Flow> {
        self.reads.set(self.reads.get() + 1);
        self.read_while_down.set(self.read_while_down.get() + u32::from(self.is_down));
        None
    }

    fn for_each_live(&self, _: &mut dyn FnMut(Connection, &Flow)) {}

    fn order(&mut self, _: Instant, _: Connection, _: Direction, _: holdover_flow::Order) {}

    fn set_link(&mut self, link: LinkState) {
        self.is_down = link.down_at.is_some();
    }
}

/// An ACK that comes after its flow was read would be withheld without a notice if the link were still down.
#[test]
fn the_link_is_up_before_frozen_flows_are_read() {
    let mut control = FreezeControl::new(FreezeConfig::m_tcp());
    let mut path = Order::default();
    let connection = connection();
    control.resume_frozen(Instant::ZERO, connection, &mut path);
    control.handle_away(Instant::ZERO, &mut path);
    assert!(path.is_down);
    control.handle_back(Instant::from_secs(1), &mut path);
    assert_eq!((path.reads.get(), path.read_while_down.get(), path.is_down), (2, 0, false));
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u32..40, 0_usize..3).prop_map(|(at, len)| Step::Data { at: at * 50, len: len * 50 }),
        1 => (0_u32..2000).prop_map(|at| Step::Data { at, len: 1 }),
        4 => (0_u32..40, 0_u16..3).prop_map(|(at, window)| Step::Ack { at: at * 50, window: window * 4000 }),
        1 => prop_oneof![Just(Presence::Away), Just(Presence::Present), Just(Presence::Moved)].prop_map(Step::Presence),
        2 => (1_u64..600).prop_map(Step::Wait),
    ]
}

fn configs() -> impl Strategy<Value = FreezeConfig> {
    let holds = prop_oneof![
        Just(Holds::Newest),
        Just(Holds::Nothing),
        (0_u32..500).prop_map(Holds::Bytes),
        Just(Holds::Segments)
    ];
    let timeout = prop::option::of((0_u64..400).prop_map(Duration::from_millis));
    let flags = any::<(bool, bool)>();
    (holds, timeout, flags).prop_map(|(holds, least_timeout, (when_away, drops_duplicates))| FreezeConfig {
        holds,
        when_away,
        least_timeout,
        drops_duplicates,
        ..FreezeConfig::buffer_freeze()
    })
}

proptest! {
    // Claim: The controller of windows (`FreezeControl`): for any data, ACKs, absences and pauses, no ACK exceeds the mobile
    // host's, and no data is invented. 256 cases; and each rule by packet scripts.
    // Tests: `freeze::tests::a_mobile_host_that_goes_has_its_window_shut_and_its_probes_answered`,
    // `freeze::tests::one_byte_is_held_exactly_and_shown_at_the_end`,
    // `freeze::tests::the_newest_ack_waits_for_the_next_one_while_data_are_outstanding`
    #[test]
    fn no_ack_says_more_than_the_mobile_host_and_no_data_are_made_up(
        config in configs(),
        steps in prop::collection::vec(step(), 1..120),
        first in any::<u32>(),
    ) {
        let mut script = Script::new(config, first);
        let (mut acked, mut sent) = (Seq::new(first), Vec::new());
        for step in steps {
            let mut out = Vec::new();
            match step {
                Step::Data { at, len } => {
                    let mut packet = data(first.wrapping_add(at), len);
                    sent.push(packet.clone());
                    if script.filter.handle_packet(script.now, Direction::Outgoing, &mut packet) == Verdict::Pass {
                        out.push(packet);
                    }
                }
                Step::Ack { at, window } => {
                    let mut packet = ack(first.wrapping_add(at), window);
                    acked = acked.max(Seq::new(first.wrapping_add(at)));
                    if script.filter.handle_packet(script.now, Direction::Incoming, &mut packet) == Verdict::Pass {
                        out.push(packet);
                    }
                }
                Step::Presence(presence) => script.filter.handle_mobile(script.now, PHONE, presence),
                Step::Wait(millis) => {
                    script.now += Duration::from_millis(millis);
                    let mut turns = 0;
                    while script.filter.poll_timeout().is_some_and(|at| at <= script.now) {
                        script.filter.handle_timeout(script.now);
                        turns += 1;
                        prop_assert!(turns < 100, "deadlines end");
                    }
                }
            }
            out.extend(core::iter::from_fn(|| script.filter.poll_transmit(script.now)).map(|made| made.packet));
            for packet in out {
                if packet.dst == PHONE {
                    prop_assert!(sent.contains(&packet), "{packet} was never sent");
                } else {
                    let number = packet.tcp().expect("an ACK").ack;
                    prop_assert!(number.le(acked), "{packet} after {acked:?}");
                }
            }
        }
    }
}
