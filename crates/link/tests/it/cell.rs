//! A radio cell: the cost of exchanges, reception, and the fate of every frame.

use crate::common::Named;
use holdover_base::{Duration, Instant};
use holdover_link::cell::{
    Cell, CellConfig, CellEvent, Contention, Dcf, Hop, JoinError, LeavePolicy, Motion, Node, Position, Radio,
    Reception, StationId, Velocity, contend,
};
use holdover_link::{ConfigError, DropCause, Link, QueueLimit};
use proptest::prelude::*;

const ANN: StationId = StationId(1);
const BOB: StationId = StationId(2);

fn config() -> CellConfig {
    CellConfig::wavelan(40.0, QueueLimit::Packets(20))
}

fn near() -> Motion {
    Motion::at_rest(Position { x_m: 10.0, y_m: 0.0 })
}

fn far() -> Motion {
    Motion::at_rest(Position { x_m: 100.0, y_m: 0.0 })
}

fn down(to: StationId, name: u32) -> Hop<Named> {
    Hop::Down { to, frame: Named { name, len: 1000 } }
}

fn up(from: StationId, name: u32) -> Hop<Named> {
    Hop::Up { from, frame: Named { name, len: 1000 } }
}

fn name(hop: &Hop<Named>) -> u32 {
    match hop {
        Hop::Down { frame, .. } | Hop::Up { frame, .. } | Hop::Broadcast { frame } => frame.name,
    }
}

struct World {
    cell: Cell<Named>,
    now: Instant,
    received: Vec<Reception<Named>>,
    events: Vec<CellEvent<Named>>,
}

impl World {
    fn new(config: CellConfig) -> Self {
        let cell = Cell::new(config, 1).expect("a cell can be as described");
        Self { cell, now: Instant::ZERO, received: Vec::new(), events: Vec::new() }
    }

    fn with(config: CellConfig, stations: &[(StationId, Motion)]) -> Self {
        let mut world = Self::new(config);
        for &(station, motion) in stations {
            world.cell.join(Instant::ZERO, station, motion).unwrap();
        }
        world
    }

    fn send(&mut self, at: Instant, hop: Hop<Named>) {
        self.run_until(at);
        self.cell.handle_packet(at, hop);
        self.poll();
    }

    fn run_until(&mut self, end: Instant) {
        let mut steps = 0;
        while let Some((at, _)) = self.cell.poll_timeout()
            && at <= end
        {
            assert!(at >= self.now, "the next deadline lies in the past");
            self.now = at;
            self.cell.handle_timeout(at);
            self.poll();
            steps += 1;
            assert!(steps < 1_000_000, "livelock at {at}");
        }
        self.now = end;
    }

    fn poll(&mut self) {
        while let Some(reception) = self.cell.poll_deliver(self.now) {
            self.received.push(reception);
        }
        while let Some(event) = self.cell.poll_event() {
            self.events.push(event);
        }
    }

    fn names(&self) -> Vec<u32> {
        self.received.iter().map(|reception| reception.frame.name).collect()
    }

    fn drops(&self) -> Vec<(u32, DropCause)> {
        let dropped = |event: &CellEvent<Named>| match event {
            CellEvent::Dropped { cause, hop, .. } => Some((name(hop), *cause)),
            _ => None,
        };
        self.events.iter().filter_map(dropped).collect()
    }
}

fn us(micros: u64) -> Instant {
    Instant::from_micros(micros)
}

#[test]
fn an_exchange_takes_the_time_of_the_standard() {
    let mut world = World::with(config(), &[(ANN, near())]);
    world.send(us(0), down(ANN, 0));
    world.send(us(0), down(ANN, 1));
    world.run_until(Instant::from_secs(1));
    // DIFS 50, mean backoff 310, RTS 352, SIFS 10, CTS 304, SIFS 10, data 4336: received after 5372. SIFS and ACK: 314 more.
    let times: Vec<Instant> = world.received.iter().map(|reception| reception.at).collect();
    assert_eq!(times, [us(5372), us(5686 + 5372)]);
    let first = &world.received[0];
    assert_eq!((first.from, first.to), (Node::Base, Node::Station(ANN)));
    let statistics = world.cell.statistics(Instant::from_secs(1));
    assert_eq!(statistics.airtime, Duration::from_micros(2 * (5686 - 360)));
    assert_eq!(statistics.down.delivered.packets, 2);
}

#[test]
fn a_saturated_cell_reaches_the_rate_of_its_exchanges() {
    for contention in [Contention::Mean, Contention::Drawn] {
        let dcf = Dcf { contention, ..Dcf::default() };
        let mut world = World::with(CellConfig { dcf, ..config() }, &[(ANN, near())]);
        let mut next = 0;
        while world.now < Instant::from_secs(60) {
            while world.cell.statistics(world.now).down.queue.packets < 10 {
                world.send(world.now, down(ANN, next));
                next += 1;
            }
            world.run_until(world.now + Duration::from_millis(5));
        }
        // One frame every 5686 us. Drawn backoffs are uniform on 0..=31 slots, a deviation of 9.23 slots or 185 us a frame: of
        // the 10,552 frames of a minute, the fourth standard error is 4 * 185 / 5686 * sqrt(10,552) = 13.
        let frames = world.received.len() as f64;
        let tolerance = if contention == Contention::Mean { 1.0 } else { 14.0 };
        assert!((frames - 60e6 / 5686.0).abs() <= tolerance, "{contention:?} {frames}");
    }
}

#[test]
fn the_medium_is_shared_frame_by_frame() {
    let mut world = World::with(config(), &[(ANN, near()), (BOB, near())]);
    for i in 0..3 {
        world.send(us(0), down(ANN, i));
        world.send(us(0), up(ANN, 10 + i));
        world.send(us(0), up(BOB, 20 + i));
    }
    world.run_until(Instant::from_secs(1));
    assert_eq!(world.names(), [0, 10, 20, 1, 11, 21, 2, 12, 22]);
    assert!(
        world.received.windows(2).all(|pair| pair[1].at.saturating_since(pair[0].at) >= Dcf::default().exchange(1000))
    );
}

#[test]
fn nodes_that_draw_share_alike_and_collide_at_the_rate_of_equal_draws() {
    let dcf = Dcf { contention: Contention::Drawn, ..Dcf::default() };
    let unlimited = CellConfig { dcf, base_buffer: QueueLimit::Unlimited, ..config() };
    let mut world = World::with(unlimited, &[(ANN, near()), (BOB, near())]);
    for i in 0..20_000 {
        world.send(us(0), up(ANN, i));
        world.send(us(0), up(BOB, i));
    }
    world.run_until(Instant::from_secs(100));
    let from = |station| world.received.iter().filter(|r| r.from == Node::Station(station)).count() as f64;
    let (ann, bob) = (from(ANN), from(BOB));
    assert!(ann + bob > 10_000.0);
    assert!((ann - bob).abs() < 0.03 * (ann + bob), "{ann} against {bob}");
    // Bianchi, "Performance analysis of the IEEE 802.11 distributed coordination function", 2000, equations 7 and 9: with two stations, W =
    // 32 and five doublings, an attempt collides with probability 0.057. In his chain a counter is decremented in a busy period, too,
    // unlike here: 15 % of tolerance for that, five standard errors of 17,000 attempts.
    let collisions = world.cell.statistics(world.now).collisions as f64;
    let share = 2.0 * collisions / (2.0 * collisions + ann + bob);
    assert!((share / 0.057 - 1.0).abs() < 0.15, "{share}");
    assert!(world.drops().is_empty());
}

#[test]
fn a_buffer_of_20_holds_20_besides_the_one_being_sent() {
    let mut world = World::with(config(), &[(ANN, near()), (BOB, near())]);
    for i in 0..23 {
        world.send(us(0), down(if i % 2 == 0 { ANN } else { BOB }, i));
    }
    assert_eq!(world.drops(), [(21, DropCause::QueueFull), (22, DropCause::QueueFull)]);
    world.run_until(Instant::from_secs(1));
    assert_eq!(world.names(), (0..21).collect::<Vec<_>>());
    let statistics = world.cell.statistics(world.now).down;
    assert_eq!((statistics.queue.high_water_packets, statistics.queue.packets), (20, 0));
    // The n-th waits for n exchanges of 5686 us, less the 360 us before the first bit, which it spends in the MAC.
    assert_eq!(statistics.queue.packet_nanos, 210 * 5_686_000);
}

#[test]
fn retries_for_a_station_out_of_range_delay_the_others() {
    let mut world = World::with(config(), &[(ANN, far()), (BOB, near())]);
    world.send(us(0), down(ANN, 0));
    world.send(us(0), down(BOB, 1));
    world.run_until(Instant::from_secs(1));
    assert_eq!(world.drops(), [(0, DropCause::OutOfRange)]);
    let gave_up = Dcf::default().gives_up_after(1000);
    // 7 attempts of DIFS 50, RTS 352, timeout 10 + 20 + 192; backoffs of (31 + 63 + 127 + 255 + 511 + 1023 + 1023) / 2 slots.
    assert_eq!(gave_up, Duration::from_micros(7 * 624 + 3033 * 10));
    assert_eq!(world.received[0].at, Instant::ZERO + gave_up + Duration::from_micros(5372));
    assert_eq!(world.cell.statistics(world.now).unanswered, 7);
}

#[test]
fn a_station_out_of_range_drops_its_frame_without_using_airtime() {
    let mut world = World::with(config(), &[(ANN, far()), (BOB, near())]);
    world.send(us(0), up(ANN, 0));
    world.send(us(0), up(ANN, 1));
    world.send(us(0), up(BOB, 2));
    world.run_until(Instant::from_secs(1));
    assert_eq!(world.received[0].at, us(5372));
    assert_eq!(world.names(), [2]);
    assert_eq!(world.drops(), [(0, DropCause::OutOfRange), (1, DropCause::OutOfRange)]);
}

/// Walks through the middle of the cell: in range from 10 s to 50 s.
fn walker() -> Motion {
    Motion {
        position: Position { x_m: -60.0, y_m: 0.0 },
        since: Instant::ZERO,
        velocity: Velocity { x_m_per_s: 2.0, y_m_per_s: 0.0 },
    }
}

#[test]
fn a_walker_comes_into_range_and_leaves_it_and_its_power_foretells_it() {
    let mut world = World::with(config(), &[(ANN, walker())]);
    for tenth in 0..1000 {
        world.send(Instant::from_millis(tenth * 100), Hop::Broadcast { frame: Named { name: 0, len: 50 } });
    }
    world.run_until(Instant::from_secs(200));
    let (came, went) = (Instant::from_secs(10), Instant::from_secs(50));
    let ranges: Vec<_> = world.events.iter().filter(|event| !matches!(event, CellEvent::Dropped { .. })).collect();
    assert_eq!(
        ranges,
        [&CellEvent::InRange { at: came, station: ANN }, &CellEvent::OutOfRange { at: went, station: ANN }]
    );
    assert_eq!(world.received.len(), 400);
    assert!(world.received.iter().all(|reception| reception.at >= came && reception.at < went));
    // Within 2 % of the threshold, that is beyond 40 m / sqrt(1.02) = 39.606 m: 0.197 s at either end.
    let warned: Vec<_> = world.received.iter().filter(|reception| reception.margin < 0.02).map(|r| r.at).collect();
    assert!(warned.iter().all(|&at| at < Instant::from_millis(10_200) || at > Instant::from_millis(49_800)));
    // Received 1.24 ms after 10.0, 10.1 and 49.9 s.
    assert_eq!(warned.len(), 3);
    assert!(world.received.iter().all(|reception| reception.margin >= 0.0));
}

#[test]
fn a_station_that_turns_back_stays() {
    let mut world = World::with(config(), &[(ANN, walker())]);
    world.run_until(Instant::from_secs(45));
    let back = Motion {
        position: walker().position(world.now),
        since: world.now,
        velocity: Velocity { x_m_per_s: -1.0, y_m_per_s: 0.0 },
    };
    world.cell.set_motion(world.now, ANN, back);
    world.run_until(Instant::from_secs(114));
    assert!(world.cell.in_range(ANN, world.now));
    // From x = 30 m, 70 m back at 1 m/s.
    world.run_until(Instant::from_secs(200));
    assert_eq!(world.events.last(), Some(&CellEvent::OutOfRange { at: Instant::from_secs(115), station: ANN }));
    world.cell.set_motion(world.now, ANN, near());
    world.poll();
    assert_eq!(world.events.last(), Some(&CellEvent::InRange { at: world.now, station: ANN }));
}

#[test]
fn a_station_that_goes_out_of_range_in_the_middle_of_a_frame_does_not_have_it() {
    let mut world = World::with(config(), &[(ANN, walker())]);
    // The data frame would end 5.372 ms later, after the edge.
    world.send(Instant::from_micros(49_996_000), down(ANN, 0));
    world.run_until(Instant::from_secs(60));
    assert_eq!((world.names(), world.drops()), (vec![], vec![(0, DropCause::OutOfRange)]));
}

#[test]
fn the_frames_of_a_station_that_leaves_are_dropped_or_handed_back() {
    for leave_policy in [LeavePolicy::Drop, LeavePolicy::HandBack] {
        let mut world = World::with(CellConfig { leave_policy, ..config() }, &[(ANN, near()), (BOB, near())]);
        for (i, to) in (0..).zip([ANN, BOB, ANN, ANN]) {
            world.send(us(0), down(to, i));
        }
        world.send(us(0), up(ANN, 10));
        world.send(us(0), up(ANN, 11));
        // During the first exchange, which then fails.
        world.run_until(us(3000));
        assert!(world.cell.leave(world.now, ANN));
        assert!(!world.cell.leave(world.now, ANN));
        world.send(us(3001), down(ANN, 20));
        world.send(us(3001), up(ANN, 21));
        world.run_until(Instant::from_secs(1));
        assert_eq!(world.names(), [1]);
        let orphans: Vec<u32> = match leave_policy {
            LeavePolicy::Drop => world.drops().iter().map(|(name, _)| *name).collect(),
            LeavePolicy::HandBack => {
                assert_eq!(world.drops(), [(20, DropCause::StationLeft), (21, DropCause::StationLeft)]);
                let back = |event: &CellEvent<Named>| match event {
                    CellEvent::HandedBack { hop, .. } => Some(name(hop)),
                    _ => None,
                };
                world.events.iter().filter_map(back).collect()
            }
        };
        match leave_policy {
            LeavePolicy::Drop => assert_eq!(orphans, [2, 3, 10, 11, 20, 21, 0]),
            LeavePolicy::HandBack => assert_eq!(orphans, [2, 3, 10, 11, 0]),
        }
        assert_eq!(world.cell.join(world.now, BOB, near()), Err(JoinError(BOB)));
        assert_eq!(world.cell.join(world.now, ANN, near()), Ok(()));
    }
}

#[test]
fn a_station_that_rejoins_does_not_finish_the_exchange_it_left() {
    let mut world = World::with(config(), &[(ANN, near())]);
    world.send(us(0), up(ANN, 0));
    world.run_until(us(3000));
    world.cell.leave(us(3000), ANN);
    world.cell.join(us(3000), ANN, near()).unwrap();
    world.send(us(3001), up(ANN, 1));
    world.run_until(Instant::from_secs(1));
    assert_eq!(world.drops(), [(0, DropCause::StationLeft)]);
    // The medium stays busy until the first exchange would have ended.
    let arrivals: Vec<_> = world.received.iter().map(|reception| (reception.at, reception.frame.name)).collect();
    assert_eq!(arrivals, [(us(5686 + 5372), 1)]);
}

#[test]
fn frames_are_recalled_from_base_station_and_station_separately() {
    let back = |world: &World| -> Vec<u32> {
        let back = |event: &CellEvent<Named>| match event {
            CellEvent::HandedBack { hop, .. } => Some(name(hop)),
            _ => None,
        };
        world.events.iter().filter_map(back).collect()
    };
    let config = CellConfig { leave_policy: LeavePolicy::HandBack, ..config() };
    // The frame on the air is received, as the station is still there.
    let mut world = World::with(config, &[(ANN, near()), (BOB, near())]);
    for (i, to) in (0..).zip([ANN, BOB, ANN, ANN]) {
        world.send(us(0), down(to, i));
    }
    world.send(us(0), up(ANN, 10));
    world.send(us(0), up(ANN, 11));
    world.run_until(us(3000));
    world.cell.recall_from_base(us(3000), ANN);
    world.poll();
    assert_eq!(back(&world), [2, 3]);
    world.send(us(3001), down(ANN, 4));
    world.run_until(Instant::from_secs(1));
    assert_eq!(world.names(), [0, 10, 1, 11, 4], "it is still in the cell and keeps its own frames");
    // Out of range, the frame on the air is an orphan at the first missing answer, and blocks no other frame.
    let mut world = World::with(config, &[(ANN, far()), (BOB, near())]);
    world.send(us(0), down(ANN, 0));
    world.send(us(0), down(BOB, 1));
    world.send(us(0), up(ANN, 10));
    world.cell.recall_from_base(us(400), ANN);
    world.cell.recall_from_station(us(400), ANN);
    world.run_until(Instant::from_secs(1));
    assert_eq!(back(&world), [10, 0]);
    assert_eq!((world.names(), world.drops()), (vec![1], vec![]));
    let statistics = world.cell.statistics(world.now);
    assert_eq!((statistics.handed_back, statistics.unanswered), (2, 1));
}

#[test]
fn a_broadcast_reaches_each_station_in_range_once() {
    let carl = StationId(3);
    let mut world = World::with(config(), &[(ANN, near()), (BOB, far()), (carl, near())]);
    world.send(us(0), Hop::Broadcast { frame: Named { name: 0, len: 50 } });
    world.run_until(Instant::from_secs(1));
    let to: Vec<Node> = world.received.iter().map(|reception| reception.to).collect();
    assert_eq!(to, [Node::Station(ANN), Node::Station(carl)]);
    // DIFS 50, mean backoff 310, and 86 bytes at 1 Mb/s behind 192 us.
    assert_eq!(world.received[0].at, us(360 + 192 + 688));
}

#[test]
fn invalid_cells_are_refused() {
    let radio = Radio { frequency_hz: 0.0, ..Radio::wavelan(40.0) };
    assert!(matches!(Cell::<Named>::new(CellConfig { radio, ..config() }, 1), Err(ConfigError::NotPositive { .. })));
    assert!(matches!(
        Cell::<Named>::new(CellConfig::wavelan(-1.0 / 0.0, QueueLimit::Unlimited), 1),
        Err(ConfigError::NotPositive { .. })
    ));
    let dcf = Dcf { data_rate: holdover_base::BitRate(0), ..Dcf::default() };
    assert!(matches!(Cell::<Named>::new(CellConfig { dcf, ..config() }, 1), Err(ConfigError::ZeroRate)));
}

/// A step of a random script.
#[derive(Clone, Debug)]
enum Step {
    Down(u32),
    Up(u32),
    Broadcast,
    Join(u32, f64, f64),
    Move(u32, f64, f64),
    Leave(u32),
    Recall(u32),
    GoElsewhere(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let station = || 0_u32..4;
    prop_oneof![
        6 => station().prop_map(Step::Down),
        6 => station().prop_map(Step::Up),
        1 => Just(Step::Broadcast),
        2 => (station(), -60.0..60.0, -30.0..30.0).prop_map(|(s, x, v)| Step::Join(s, x, v)),
        2 => (station(), -60.0..60.0, -30.0..30.0).prop_map(|(s, x, v)| Step::Move(s, x, v)),
        1 => station().prop_map(Step::Leave),
        1 => station().prop_map(Step::Recall),
        1 => station().prop_map(Step::GoElsewhere),
    ]
}

fn play(config: CellConfig, steps: &[(u64, Step)]) -> World {
    let mut world = World::new(config);
    let mut now = Instant::ZERO;
    let motion = |now, x_m, x_m_per_s| Motion {
        position: Position { x_m, y_m: 0.0 },
        since: now,
        velocity: Velocity { x_m_per_s, y_m_per_s: 0.0 },
    };
    for (index, (gap, step)) in (0..).zip(steps) {
        now += Duration::from_micros(*gap);
        world.run_until(now);
        match *step {
            Step::Down(to) => world.cell.handle_packet(now, down(StationId(to), index)),
            Step::Up(from) => world.cell.handle_packet(now, up(StationId(from), index)),
            Step::Broadcast => {
                world.cell.handle_packet(now, Hop::Broadcast { frame: Named { name: index, len: 50 } });
            }
            Step::Join(station, x, v) => drop(world.cell.join(now, StationId(station), motion(now, x, v))),
            Step::Move(station, x, v) => world.cell.set_motion(now, StationId(station), motion(now, x, v)),
            Step::Leave(station) => drop(world.cell.leave(now, StationId(station))),
            Step::Recall(station) => world.cell.recall_from_base(now, StationId(station)),
            Step::GoElsewhere(station) => world.cell.recall_from_station(now, StationId(station)),
        }
        world.poll();
    }
    world.run_until(now + Duration::from_secs(100));
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_frame_is_received_or_dropped_or_handed_back(
        steps in prop::collection::vec((prop_oneof![0_u64..8_000, 0_u64..500_000], step()), 1..150),
        drawn in any::<bool>(), hand_back in any::<bool>(), buffer in 0_u32..10,
    ) {
        let contention = if drawn { Contention::Drawn } else { Contention::Mean };
        let config = CellConfig {
            dcf: Dcf { contention, ..Dcf::default() },
            leave_policy: if hand_back { LeavePolicy::HandBack } else { LeavePolicy::Drop },
            base_buffer: QueueLimit::Packets(buffer),
            station_buffer: QueueLimit::Packets(buffer),
            ..config()
        };
        let world = play(config, &steps);
        let statistics = world.cell.statistics(world.now);
        let (down, up) = (statistics.down, statistics.up);
        prop_assert_eq!((down.under_way, up.under_way), (0, 0));
        prop_assert_eq!(
            down.offered.packets + down.duplicated.packets + up.offered.packets,
            down.delivered.packets + down.dropped.total().packets
                + up.delivered.packets + up.dropped.total().packets + statistics.handed_back
        );
        prop_assert_eq!(world.received.len() as u64, down.delivered.packets + up.delivered.packets);
        prop_assert!(world.received.iter().all(|reception| reception.margin >= -1e-6), "received out of range");

        // Half duplex: the ends of two data frames are at least a data frame apart, and the order of each sender is
        // kept.
        let unicasts: Vec<_> = world.received.iter().filter(|reception| reception.frame.len == 1000).collect();
        for pair in unicasts.windows(2) {
            prop_assert!(pair[1].at.saturating_since(pair[0].at) >= Dcf::default().exchange(1000));
        }
        for node in [Node::Base, Node::Station(StationId(0)), Node::Station(StationId(3))] {
            prop_assert!(unicasts.iter().filter(|r| r.from == node).map(|r| r.frame.name).is_sorted());
        }

        let again = play(config, &steps);
        prop_assert_eq!(again.received, world.received);
        prop_assert_eq!(again.events, world.events);
    }
}

/// Two cells on channel 1, each with station Ann in or out of range; the base station of each has frames for her.
fn on_one_channel(motions: [Motion; 2]) -> Vec<(Instant, usize)> {
    let dcf = Dcf { contention: Contention::Drawn, ..Dcf::default() };
    let config = CellConfig { dcf, channel: Some(1), base_buffer: QueueLimit::Unlimited, ..config() };
    let mut cells = [(1, motions[0]), (2, motions[1])].map(|(seed, motion)| {
        let mut cell: Cell<Named> = Cell::new(config, seed).unwrap();
        cell.join(Instant::ZERO, ANN, motion).unwrap();
        (0..3000).for_each(|i| cell.handle_packet(Instant::ZERO, down(ANN, i)));
        cell
    });
    assert!(cells.iter().all(|cell| cell.poll_timeout().is_none()), "a cell with a channel does not start by itself");
    let mut received = Vec::new();
    let mut at = Instant::ZERO;
    while at <= Instant::from_secs(10) {
        let [first, second] = &mut cells;
        contend(&mut [first, second], at);
        at = cells.iter().filter_map(Link::poll_timeout).map(|(at, _)| at).min().expect("frames are left");
        for (index, cell) in cells.iter_mut().enumerate() {
            cell.handle_timeout(at);
            received.extend(core::iter::from_fn(|| cell.poll_deliver(at)).map(|reception| (reception.at, index)));
            while cell.poll_event().is_some() {}
        }
    }
    received
}

// Claim: Cells on one channel share its medium; retries of one base station take airtime from its neighbours.
// Tests: `retries_for_an_absent_station_take_airtime_from_neighbouring_cells`
#[test]
fn cells_on_one_channel_share_the_medium() {
    let received = on_one_channel([near(), near()]);
    let of = |cell| received.iter().filter(|&&(_, index)| index == cell).count() as f64;
    // The throughput of one cell with two senders: 10 s of exchanges, each with the shorter of two backoffs, less a few collisions.
    let (first, second) = (of(0), of(1));
    assert!(first + second > 1700.0 && first + second < 1950.0, "{first} and {second}");
    assert!((first - second).abs() < 0.1 * (first + second), "{first} against {second}");
    let apart = received.windows(2).map(|pair| pair[1].0.saturating_since(pair[0].0));
    assert!(apart.min() >= Some(Dcf::default().exchange(1000)), "two exchanges were on the air at once");
}

#[test]
fn retries_for_an_absent_station_take_airtime_from_neighbouring_cells() {
    let neighbour = |motion| on_one_channel([near(), motion]).iter().filter(|&&(_, index)| index == 0).count();
    let (beside_nobody_home, alone) = (neighbour(far()), {
        let mut world = World::with(CellConfig { base_buffer: QueueLimit::Unlimited, ..config() }, &[(ANN, near())]);
        (0..3000).for_each(|i| world.send(us(0), down(ANN, i)));
        world.run_until(Instant::from_secs(10));
        world.names().len()
    });
    // Seven attempts for a frame, each an RTS and the CTS timeout, and some 1500 slots of backoff in all; one exchange
    // of the neighbour passes in 15.5 of them: 4 ms of attempts beside 0.55 s of exchanges.
    assert!(beside_nobody_home + 5 < alone, "{beside_nobody_home} against {alone}");
    assert!(beside_nobody_home * 100 > alone * 97, "{beside_nobody_home} against {alone}");
}

#[test]
fn a_shared_channel_needs_drawn_contention() {
    let turns = CellConfig { channel: Some(1), ..config() };
    assert_eq!(Cell::<Named>::new(turns, 1).unwrap_err(), ConfigError::ChannelInTurns);
}
