//! Simulated worlds.

use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_gateway::Mechanisms;
use holdover_gateway::snoop::SnoopConfig;
use holdover_gateway::tawcf::TawcfConfig;
use holdover_link::cell::{CellConfig, Position};
use holdover_link::{
    InFlightFate, Length, LinkConfig, Loss, Outage, OutagePolicy, Outages, QueueLimit, QueuedFate, Rate,
};
use holdover_sim::{
    Amount, Attachment, Bulk, CellId, FlowConfig, FlowReport, FlowStatus, Frame, GatewayMechanisms, LinkBetween,
    MobileHost, Movement, NoObserver, NodeConfig, NodeId, Observer, Opener, Path, Place, Prediction, RadioCell, Repeat,
    Role, Selection, Stop, Traffic, Transit, Visits, World, WorldConfig, WorldEvent,
};
use holdover_tcp::Profile;
use holdover_wire::Seq;

use crate::support::ms;

fn node(name: &str, role: Role) -> NodeConfig {
    NodeConfig { name: name.into(), role }
}

fn link(kbps: u64, delay: Duration, queue_packets: u32) -> LinkConfig {
    LinkConfig {
        rate: Rate::Fixed(BitRate::from_kbps(kbps)),
        delay,
        queue_limit: QueueLimit::Packets(queue_packets),
        ..LinkConfig::default()
    }
}

fn download(from: NodeId, to: NodeId, profile: Profile, bytes: u64) -> FlowConfig {
    let config = Arc::new(profile.config());
    FlowConfig {
        name: "bulk".into(),
        from,
        to,
        start: Instant::ZERO,
        sender: Arc::clone(&config),
        receiver: config,
        traffic: Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(bytes)), opener: Opener::Receiver }),
        ipv6: false,
    }
}

/// The flow's result, and the bytes that the sender retransmitted. All data has arrived.
fn run(world: WorldConfig, bytes: u64, observer: &mut impl Observer) -> (FlowReport, u64) {
    let mut world = World::new(world).expect("a world");
    world.run(observer);
    let report = world.report().remove(0);
    assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, bytes));
    let resent = report.sender.as_ref().expect("a sender").bytes_retransmitted.0;
    (report, resent)
}

const BASE: NodeId = NodeId(1);

/// A fixed host, 10 Mbit/s and 30 ms to a base station whose queues never overflow, and a wireless link of `kbps` and 3 ms with a queue
/// of 100 packets that loses packets of both directions.
fn lossy(profile: Profile, kbps: u64, loss: f64, seed: u64, snoop: Option<SnoopConfig>, bytes: u64) -> WorldConfig {
    let (fixed, mobile) = (NodeId(0), NodeId(2));
    let wireless = LinkConfig { loss: Loss::Independent(loss), ..link(kbps, ms(3), 100) };
    let gateway = |snoop| GatewayMechanisms {
        node: BASE,
        mechanisms: Mechanisms { snoop: Some(snoop), ..Mechanisms::default() },
        mobiles: vec![mobile],
        hears_links: true,
    };
    WorldConfig {
        seed,
        nodes: vec![node("fixed", Role::Host), node("base", Role::Router), node("mobile", Role::Host)],
        links: vec![
            LinkBetween::wire("internet", fixed, BASE, link(10_000, ms(30), 100_000)),
            LinkBetween::wire("wireless", BASE, mobile, wireless),
        ],
        gateways: snoop.map(gateway).into_iter().collect(),
        flows: vec![download(fixed, mobile, profile, bytes)],
        time_limit: Instant::from_secs(600),
        ..WorldConfig::default()
    }
}

/// Five runs of [`lossy`]: the mean rate in kbit/s, and the bytes that the sender retransmitted.
fn lossy_runs(profile: Profile, kbps: u64, loss: f64, snoop: Option<SnoopConfig>) -> (f64, u64) {
    const BYTES: u64 = 5_000_000;
    let (mut goodput, mut repeated) = (0.0, 0);
    for seed in 1..=5 {
        let (report, resent) = run(lossy(profile, kbps, loss, seed, snoop.clone(), BYTES), BYTES, &mut NoObserver);
        goodput += report.goodput_bps() / 5e3;
        repeated += resent;
    }
    println!("{profile} {kbps} kbit/s loss {loss} snoop {}: {goodput:.0} kbit/s, {repeated} repeated", snoop.is_some());
    (goodput, repeated)
}

/// Loss of 2 % in both directions. Measured: reno-bsd 563 and 1439 kbit/s, linux-6-cubic 1280 and 8419 kbit/s. Without loss it is 1657 and
/// 9097 kbit/s; a part of the difference is due to lost handshakes, which Snoop does not repair.
// Claim: With 2 % of loss on the wireless link Snoop gains more than twofold (`reno-bsd`) and fourfold (`linux-6-cubic`), and the
// fixed host retransmits less than a twentieth; without losses it costs less than 1 %.
// Tests: `worlds::snoop_costs_little_without_losses`
#[test]
fn snoop_hides_losses_of_the_wireless_link() {
    for (profile, gain) in [(Profile::RenoBsd, 2.0), (Profile::Linux6Cubic, 4.0)] {
        let snoop = Some(SnoopConfig::default());
        let (plain, plain_repeated) = lossy_runs(profile, 20_000, 0.02, None);
        let (with_snoop, repeated) = lossy_runs(profile, 20_000, 0.02, snoop);
        assert!(with_snoop > gain * plain, "{profile}: {with_snoop} instead of {plain} kbit/s");
        assert!(
            plain_repeated > 400_000 && repeated < plain_repeated / 20,
            "{profile}: {repeated} of {plain_repeated}"
        );
    }
}

/// The local timer sometimes takes a delayed ACK for a loss.
#[test]
fn snoop_costs_little_without_losses() {
    for profile in [Profile::RenoBsd, Profile::Linux6Cubic] {
        let (plain, _) = lossy_runs(profile, 20_000, 0.0, None);
        let (with_snoop, repeated) = lossy_runs(profile, 20_000, 0.0, Some(SnoopConfig::default()));
        assert!(with_snoop > 0.99 * plain, "{profile}: {with_snoop} instead of {plain} kbit/s");
        assert_eq!(repeated, 0);
    }
}

/// A limit: the queue of the wireless link is behind the cache. Its drops are repaired, too, one segment for each local round trip, and
/// and those of a burst take so long that the sender repairs some, too. Measured with linux-6-cubic: 4712 and 4396 kbit/s, and 14 and 129 kB of
/// 5 MB retransmitted by the sender. The window of reno-bsd fits into the queue.
// Claim: Snoop's limits: it hides congestion of the wireless link, which costs less than a tenth of the throughput, and does not
// help in an outage of 3 s.
// Tests: `worlds::snoop_does_not_get_over_long_disconnections`
#[test]
fn snoop_hides_congestion_of_the_wireless_link_too() {
    let (plain, _) = lossy_runs(Profile::Linux6Cubic, 5_000, 0.0, None);
    let (with_snoop, repeated) = lossy_runs(Profile::Linux6Cubic, 5_000, 0.0, Some(SnoopConfig::default()));
    assert!(repeated < 1_000_000, "{repeated} of 25 MB");
    assert!(with_snoop < plain && with_snoop > 0.9 * plain, "{with_snoop} and {plain} kbit/s");
    let (plain, _) = lossy_runs(Profile::RenoBsd, 5_000, 0.0, None);
    let (with_snoop, _) = lossy_runs(Profile::RenoBsd, 5_000, 0.0, Some(SnoopConfig::default()));
    assert!(with_snoop > 0.99 * plain, "{with_snoop} and {plain} kbit/s");
}

/// A limit that the paper on M-TCP names: the sender times out in a long outage despite the cache. Measured for 3 s, with and without
/// Snoop: 2 timeouts of reno-bsd, 3 of linux-6-cubic.
#[test]
fn snoop_does_not_get_over_long_disconnections() {
    const BYTES: u64 = 5_000_000;
    for profile in [Profile::RenoBsd, Profile::Linux6Cubic] {
        for snoop in [None, Some(SnoopConfig::default())] {
            let mut world = lossy(profile, 20_000, 0.0, 1, snoop.clone(), BYTES);
            let outage = Outage { down: Instant::from_secs(2), up: Instant::from_secs(5) };
            let wireless = &mut world.links[1];
            for direction in [&mut wireless.forward, &mut wireless.backward] {
                direction.outages = Outages::List(vec![outage]);
                direction.outage_policy = OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped };
            }
            let (report, repeated) = run(world, BYTES, &mut NoObserver);
            let timeouts = timeouts(&report);
            let (snoop, goodput) = (snoop.is_some(), report.goodput_bps() / 1e3);
            println!("{profile} snoop {snoop}: {timeouts} timeouts, {repeated} repeated, {goodput:.0} kbit/s");
            assert!(timeouts >= 2, "{profile}");
        }
    }
}

const OLD: NodeId = NodeId(2);
const NEW: NodeId = NodeId(3);
const ROAMING: NodeId = NodeId(4);

/// A change of cells.
#[derive(Clone, Copy)]
struct Handoff {
    /// The time out of range between two cells.
    out_of_range: Duration,
    /// The time in the new cell until packets reach the host there.
    attach: Duration,
    /// The delay between the router and each base station.
    lan: Duration,
}

/// A fixed host, a router, and two base stations with a cell each, between which a mobile host alternates every 4 s. A base station
/// predicts the loss of the host 50 ms ahead.
fn cellular(profile: Profile, handoff: Handoff, tawcf: Option<TawcfConfig>, bytes: u64) -> WorldConfig {
    let (fixed, router, mobile) = (NodeId(0), NodeId(1), ROAMING);
    let cell = |name: &str, base, x_m| RadioCell {
        name: name.into(),
        base,
        cell: CellConfig { position: Position { x_m, y_m: 0.0 }, ..CellConfig::wavelan(40.0, QueueLimit::Packets(50)) },
        beacons: None,
    };
    let gateway = |tawcf, node| GatewayMechanisms {
        node,
        mechanisms: Mechanisms { tawcf: Some(tawcf), ..Mechanisms::default() },
        mobiles: vec![mobile],
        hears_links: true,
    };
    WorldConfig {
        seed: 1,
        nodes: vec![
            node("fixed", Role::Host),
            node("router", Role::Router),
            node("old", Role::Router),
            node("new", Role::Router),
            node("mobile", Role::Host),
        ],
        links: vec![
            LinkBetween::wire("wan", fixed, router, link(1_500, ms(40), 100)),
            LinkBetween::wire("lan-1", router, OLD, link(10_000, handoff.lan, 100)),
            LinkBetween::wire("lan-2", router, NEW, link(10_000, handoff.lan, 100)),
        ],
        cells: vec![cell("cell-1", OLD, 0.0), cell("cell-2", NEW, 80.0)],
        mobiles: vec![MobileHost {
            node: mobile,
            movement: Movement::Visits(Visits {
                cells: vec![CellId(0), CellId(1)],
                first_residence: None,
                residence: Length::Constant(ms(4_000)),
                gap: Some(handoff.out_of_range).filter(|gap| !gap.is_zero()).map(Length::Constant),
                moves: None,
            }),
            attachment: Attachment::HandoffTime(handoff.attach),
            selection: Selection::default(),
            prediction: Some(Prediction::Lead(ms(50))),
        }],
        gateways: tawcf.into_iter().flat_map(|tawcf| [gateway(tawcf, OLD), gateway(tawcf, NEW)]).collect(),
        flows: vec![download(fixed, mobile, profile, bytes)],
        time_limit: Instant::from_secs(600),
        ..WorldConfig::default()
    }
}

const CELLULAR_BYTES: u64 = 5_000_000;

/// Half a second out of range in each handoff, and 100 ms until packets reach the host.
fn long_handoffs(profile: Profile, tawcf: Option<TawcfConfig>) -> (FlowReport, u64) {
    let handoff = Handoff { out_of_range: ms(500), attach: ms(100), lan: ms(2) };
    let world = cellular(profile, handoff, tawcf, CELLULAR_BYTES);
    let (report, repeated) = run(world, CELLULAR_BYTES, &mut NoObserver);
    println!("{profile} {tawcf:?}: {:.0} kbit/s, {repeated} repeated", report.goodput_bps() / 1e3);
    (report, repeated)
}

fn timeouts(report: &FlowReport) -> u32 {
    report.sender.as_ref().expect("a sender").timeouts
}

/// Measured without a mechanism, without freezing, and with all of it: reno-bsd 651, 730 and 802 kbit/s, linux-6-cubic 922, 1141 and 1133
/// kbit/s. Freezing gains nothing for linux-6-cubic: in six handoffs the sender times out needlessly, where it would have sent a tail loss
/// probe otherwise.
// Claim: TAWCF gains more than 15 % (`reno-bsd`) and 20 % (`linux-6-cubic`) over handoffs of 0.6 s; a frozen `reno-bsd` has no
// timeout.
// Tests: `worlds::a_frozen_reno_sender_does_not_time_out`
#[test]
fn window_control_gets_over_long_handoffs() {
    let buffers = TawcfConfig { low_for: None, ..TawcfConfig::default() };
    for (profile, gain) in [(Profile::RenoBsd, 1.15), (Profile::Linux6Cubic, 1.2)] {
        let (plain, _) = long_handoffs(profile, None);
        let (buffered, _) = long_handoffs(profile, Some(buffers));
        let (all, _) = long_handoffs(profile, Some(TawcfConfig::default()));
        assert!(buffered.goodput_bps() > 1.05 * plain.goodput_bps(), "{profile}");
        assert!(all.goodput_bps() > gain * plain.goodput_bps(), "{profile}");
    }
}

/// Measured: 13 timeouts without a mechanism and 12 without freezing, one in each handoff.
#[test]
fn a_frozen_reno_sender_does_not_time_out() {
    let buffers = TawcfConfig { low_for: None, ..TawcfConfig::default() };
    let (plain, plain_repeated) = long_handoffs(Profile::RenoBsd, None);
    let (buffered, _) = long_handoffs(Profile::RenoBsd, Some(buffers));
    let (all, repeated) = long_handoffs(Profile::RenoBsd, Some(TawcfConfig::default()));
    assert!(timeouts(&plain) >= 10 && timeouts(&buffered) >= 10);
    assert_eq!(timeouts(&all), 0);
    assert!(all.goodput_bps() > 1.05 * buffered.goodput_bps());
    assert!(repeated < plain_repeated);
}

/// Segments that arrive at the mobile host after one with a higher number.
#[derive(Default)]
struct Order {
    highest: Option<Seq>,
    overtaken: u32,
}

impl Observer for Order {
    fn packet(&mut self, _at: Instant, place: Place, frame: &Frame) {
        let Some(segment) = frame.observed_tcp().filter(|segment| !segment.payload.is_empty()) else { return };
        if place.node == ROAMING && place.transit == Transit::In {
            self.overtaken += u32::from(self.highest.is_some_and(|highest| segment.seq.lt(highest)));
            self.highest = Some(self.highest.map_or(segment.seq, |highest| highest.max(segment.seq)));
        }
    }
}

/// Handoffs of 20 ms, and 20 ms from the router to each base station: packets through the old one take 40 ms longer. The sender is never
/// frozen. Measured without the sequencer: 71 segments overtaken and two needless recoveries, 741 kbit/s; with it none, 762 kbit/s.
#[test]
fn the_sequencer_keeps_forwarded_segments_in_order() {
    let handoff = Handoff { out_of_range: Duration::ZERO, attach: ms(20), lan: ms(20) };
    let measure = |tawcf| {
        let mut order = Order::default();
        let world = cellular(Profile::RenoBsd, handoff, Some(tawcf), CELLULAR_BYTES);
        let (report, repeated) = run(world, CELLULAR_BYTES, &mut order);
        (order.overtaken, repeated, report.goodput_bps())
    };
    let (overtaken, _, without) = measure(TawcfConfig { fresh: Duration::ZERO, ..TawcfConfig::default() });
    assert!(overtaken >= 30, "{overtaken}");
    let (overtaken, repeated, with) = measure(TawcfConfig::default());
    assert_eq!((overtaken, repeated), (0, 0));
    assert!(with > without, "{with} and {without} bit/s");
}

/// A radio of 2 Mbit/s with handoffs of 20 ms. Packets sent in the last 50 ms would be lost.
// Claim: A handoff that the base station predicts loses nothing, with the sequencer no forwarded segment is overtaken, and a
// signal that recovers unfreezes.
// Tests: `worlds::the_sequencer_keeps_forwarded_segments_in_order`, `worlds::a_signal_that_recovers_unfreezes`
#[test]
fn a_base_station_that_foresees_the_handoff_loses_nothing() {
    let handoff = Handoff { out_of_range: Duration::ZERO, attach: ms(20), lan: ms(2) };
    let foreseen = cellular(Profile::RenoBsd, handoff, Some(TawcfConfig::default()), CELLULAR_BYTES);
    let mut unforeseen = foreseen.clone();
    unforeseen.mobiles[0].prediction = None;
    let (foreseen, repeated) = run(foreseen, CELLULAR_BYTES, &mut NoObserver);
    assert_eq!((timeouts(&foreseen), repeated), (0, 0));
    let (unforeseen, repeated) = run(unforeseen, CELLULAR_BYTES, &mut NoObserver);
    println!("{:.0} and {:.0} kbit/s, {repeated}", foreseen.goodput_bps() / 1e3, unforeseen.goodput_bps() / 1e3);
    assert!(repeated > 0);
    assert!(foreseen.goodput_bps() > 1.02 * unforeseen.goodput_bps());
}

/// The actions of base stations' mechanisms.
#[derive(Default)]
struct Actions(Vec<&'static str>);

impl Observer for Actions {
    fn event(&mut self, _at: Instant, event: &WorldEvent) {
        if let WorldEvent::Mechanism(_, action) = event {
            self.0.push(action.what);
        }
    }
}

/// The host moves from 30 m to 39 m and back at 10 m/s. Below 36.5 m the signal is 20 % above the level that its radio
/// needs.
#[test]
fn a_signal_that_recovers_unfreezes() {
    let handoff = Handoff { out_of_range: Duration::ZERO, attach: ms(20), lan: ms(2) };
    let mut world = cellular(Profile::RenoBsd, handoff, Some(TawcfConfig::default()), CELLULAR_BYTES);
    let stop = |x_m| Stop { position: Position { x_m, y_m: 0.0 }, pause: Duration::ZERO };
    // The second base station is on no path.
    world.gateways.truncate(1);
    world.mobiles[0].prediction = Some(Prediction::Threshold { percent: 20.0 });
    world.mobiles[0].movement = Movement::Path(Path {
        stops: vec![stop(30.0), stop(39.0)],
        depart_at: Instant::ZERO,
        speed_m_per_s: 10.0,
        repeat: Repeat::BackAndForth,
    });
    let mut actions = Actions::default();
    let (report, _) = run(world, CELLULAR_BYTES, &mut actions);
    assert_eq!(timeouts(&report), 0);
    assert!(actions.0.len() > 20);
    assert!(actions.0.chunks(2).all(|pair| pair[0] == "froze" && ["thawed", "reopened the window"].contains(&pair[1])));
}
