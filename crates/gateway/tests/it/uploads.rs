//! Uploads of a mobile host that is silent for a while, or moves to another gateway meanwhile: the gateways have lost the ACKs of a round
//! trip on the broken link, and do not learn of the absence before it is detected.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::{Connection, Direction};
use holdover_flow::{Environment, FlowRecord, Form, Key, Link};
use holdover_gateway::daemon::{Controller, Mode, Treatment, rules};
use holdover_gateway::divert::Standing;
use holdover_tcp::{ConnectionId, Endpoint, EndpointConfig, Event, Profile};
use holdover_wire::Packet;

use crate::moved_in::Flows;
use crate::support::{at_ms, ms};

/// A round trip of 50 ms, including 10 ms on the link of the mobile host.
const NEAR: Duration = Duration::from_millis(5);
const FAR: Duration = Duration::from_millis(20);
const QUEUE: usize = 75;

/// One and a half round trips.
const SOON_MS: u64 = 75;

const DETECTED_AFTER: Duration = Duration::from_millis(270);

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1)), 80);
const PHONE: SocketAddr = SocketAddr::new(IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 2, 7)), 4000);

/// An absence, and the gateway at which it ends.
#[derive(Clone, Copy, Debug)]
struct Absence {
    from_ms: u64,
    for_ms: u64,
    to: usize,
}

#[derive(Clone, Debug)]
struct Setup {
    profile: Profile,
    mbps: u64,
    absences: Vec<Absence>,
    /// Whether the mobile host answers an empty segment before it is woken. Linux answers two a second.
    answers: bool,
    /// Whether the release has steps before the ACK of everything.
    has_steps: bool,
}

impl Setup {
    fn silent(profile: Profile, for_ms: u64) -> Self {
        let absences = vec![Absence { from_ms: 4_000, for_ms, to: 0 }];
        Self { profile, mbps: 10, absences, answers: true, has_steps: true }
    }
}

enum What {
    AtGateway(usize, Direction, Packet),
    AtPhone(Packet),
    AtServer(Packet),
    Cut(Absence),
    Detected(usize),
    /// The absent mobile host is probed.
    Look(usize),
    Return(Absence),
    /// The answer to the probe of its address.
    Heard(usize),
}

struct Gateway {
    controller: Controller,
    flows: Flows,
    is_away: bool,
}

impl Gateway {
    fn new(has_steps: bool) -> Self {
        let mut treatment = Mode::Buffer.treatment(true, false);
        if let Treatment::Wake(config) = &mut treatment {
            config.release.two_steps = has_steps;
        }
        let controller = Controller::new(treatment);
        let link = Link::new(&controller.link_state());
        Self { controller, flows: Flows { flows: BTreeMap::new(), link }, is_away: false }
    }

    fn report(&mut self, now: Instant, standing: Standing) {
        self.is_away = standing == Standing::Away;
        self.controller.handle_standing(now, standing, &mut self.flows);
    }

    /// Returns whether the packet passes.
    fn pass(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> bool {
        let connection = Connection { local: SERVER, remote: PHONE };
        let form = Form::of(packet.tcp().expect("TCP"));
        let flow = self.flows.flows.entry(connection).or_default();
        let rules = rules();
        let environment = Environment { now, link: &self.flows.link, rules: &rules };
        let (verdict, notice) = flow.pass_between(&Key::new(connection), environment, direction, packet, form);
        if direction == Direction::Incoming {
            self.controller.note_arrival(now, &mut self.flows);
        }
        if let Some(notice) = notice {
            self.controller.handle_notice(now, connection, direction, notice, &mut self.flows);
        }
        if direction == Direction::Incoming && self.is_away {
            self.report(now, Standing::Present);
        }
        verdict == holdover_filter::Verdict::Pass
    }
}

struct World {
    setup: Setup,
    now: Instant,
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    events: BTreeMap<u64, What>,
    serial: u64,
    phone: Endpoint,
    server: Endpoint,
    ids: [Option<ConnectionId>; 2],
    gateways: [Gateway; 2],
    /// The gateway of the mobile host, also while it is absent.
    at: usize,
    is_up: bool,
    /// Changes with each cut: packets on the link at that time are lost.
    epoch: u64,
    epochs: BTreeMap<u64, u64>,
    /// The end of the link's transmissions, up and down.
    busy: [Instant; 2],
    returned: Vec<Instant>,
    progress: Vec<Instant>,
}

impl World {
    fn new(setup: Setup) -> Self {
        let host =
            |at: SocketAddr| Endpoint::new(EndpointConfig { addresses: vec![at.ip()], secret: [at.port() as u8; 16] });
        let (mut phone, mut server) = (host(PHONE), host(SERVER));
        let stack = Arc::new(setup.profile.config());
        server.listen(SERVER.port(), Arc::clone(&stack), 4).expect("a free port");
        let id = phone.connect(Instant::ZERO, stack, Some(PHONE), SERVER).expect("a connection");
        let mut world = Self {
            now: Instant::ZERO,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            serial: 0,
            phone,
            server,
            ids: [Some(id), None],
            gateways: [(); 2].map(|()| Gateway::new(setup.has_steps)),
            at: 0,
            is_up: true,
            epoch: 0,
            epochs: BTreeMap::new(),
            busy: [Instant::ZERO; 2],
            returned: Vec::new(),
            progress: Vec::new(),
            setup,
        };
        for absence in world.setup.absences.clone() {
            world.plan(at_ms(absence.from_ms), What::Cut(absence));
            world.plan(at_ms(absence.from_ms + absence.for_ms), What::Return(absence));
        }
        world
    }

    fn plan(&mut self, at: Instant, what: What) {
        self.serial += 1;
        self.queue.push(Reverse((at, self.serial)));
        self.events.insert(self.serial, what);
    }

    /// Sends over the link, if it is there and has room.
    fn cross(&mut self, way: usize, packet: Packet) {
        let nanos = packet.wire_len() as u64 * 8 * 1000 / self.setup.mbps;
        let begins = self.busy[way].max(self.now);
        let full = Duration::from_nanos(QUEUE as u64 * 1500 * 8 * 1000 / self.setup.mbps);
        if !self.is_up || begins.saturating_since(self.now) > full {
            return;
        }
        self.busy[way] = begins + Duration::from_nanos(nanos);
        let at = self.at;
        let what = if way == 0 { What::AtGateway(at, Direction::Incoming, packet) } else { What::AtPhone(packet) };
        self.plan(self.busy[way] + NEAR, what);
        self.epochs.insert(self.serial, self.epoch);
    }

    fn run(mut self, until: Instant) -> Self {
        for _ in 0..5_000_000 {
            self.serve();
            let controllers = self.gateways.iter().filter_map(|gateway| gateway.controller.poll_timeout());
            let ends = [self.phone.poll_timeout(), self.server.poll_timeout()];
            let next = self.queue.peek().map(|Reverse((at, _))| *at);
            let Some(at) = controllers.chain(ends.into_iter().flatten()).chain(next).min().filter(|at| *at <= until)
            else {
                return self;
            };
            self.now = self.now.max(at);
            while let Some(&Reverse((at, serial))) = self.queue.peek()
                && at <= self.now
            {
                self.queue.pop();
                let what = self.events.remove(&serial).expect("an event");
                let is_lost = self.epochs.remove(&serial).is_some_and(|epoch| epoch != self.epoch);
                if !is_lost {
                    self.happen(what);
                }
            }
            let now = self.now;
            self.phone.handle_timeout(now);
            self.server.handle_timeout(now);
            for index in 0..2 {
                let Gateway { controller, flows, .. } = &mut self.gateways[index];
                if controller.poll_timeout().is_some_and(|at| at <= now) {
                    controller.handle_timeout(now, flows);
                }
                self.collect(index);
            }
        }
        panic!("it does not come to rest at {}", self.now);
    }

    fn happen(&mut self, what: What) {
        let now = self.now;
        match what {
            What::AtPhone(packet) => self.phone.handle_packet(now, &packet),
            What::AtServer(packet) => self.server.handle_packet(now, &packet),
            What::AtGateway(index, direction, mut packet) => {
                if self.gateways[index].pass(now, direction, &mut packet) {
                    self.depart(index, direction, packet);
                }
            }
            What::Cut(absence) => {
                (self.is_up, self.epoch) = (false, self.epoch + 1);
                self.busy = [now; 2];
                self.plan(now + DETECTED_AFTER, What::Detected(self.at));
                let _ = absence;
            }
            What::Detected(index) => {
                self.gateways[index].report(now, Standing::Away);
                self.plan(now, What::Look(index));
            }
            What::Look(index) if self.gateways[index].is_away => {
                if self.setup.answers {
                    let Gateway { controller, flows, .. } = &mut self.gateways[index];
                    controller.ask_receiver(now, flows);
                    self.collect(index);
                }
                if self.is_up && self.at == index {
                    self.plan(now + NEAR * 2, What::Heard(index));
                }
                self.plan(now + ms(5), What::Look(index));
            }
            What::Look(_) => {}
            What::Heard(index) if self.gateways[index].is_away => self.gateways[index].report(now, Standing::Present),
            What::Heard(_) => {}
            What::Return(absence) => {
                self.is_up = true;
                self.returned.push(now);
                if absence.to != self.at {
                    self.hand_over(absence);
                }
            }
        }
        for index in 0..2 {
            self.collect(index);
        }
    }

    /// The mobile host is heard at another gateway, which gets the record of its connection.
    fn hand_over(&mut self, absence: Absence) {
        let (now, connection) = (self.now, Connection { local: SERVER, remote: PHONE });
        let old = &mut self.gateways[self.at];
        let flow = old.flows.flows.remove(&connection).expect("the upload");
        old.report(now, Standing::Moved);
        let record = FlowRecord::of(now, connection, &flow, true).expect("an open connection");
        let record = FlowRecord::from_bytes(&record.to_bytes()).expect("a record");
        self.at = absence.to;
        let Gateway { controller, flows, .. } = &mut self.gateways[absence.to];
        flows.flows.insert(connection, record.revive(now));
        controller.handle_silence(at_ms(absence.from_ms), flows);
        controller.end_silence(now, flows);
    }

    fn depart(&mut self, index: usize, direction: Direction, packet: Packet) {
        match direction {
            Direction::Outgoing if index == self.at => self.cross(1, packet),
            Direction::Outgoing => {}
            Direction::Incoming => self.plan(self.now + FAR, What::AtServer(packet)),
        }
    }

    fn collect(&mut self, index: usize) {
        while let Some(made) = self.gateways[index].controller.poll_transmit() {
            self.depart(index, made.direction, made.packet);
        }
        let controller = &mut self.gateways[index].controller;
        while controller.poll_action().is_some() || controller.poll_outcome().is_some() {}
    }

    /// Serves both ends: TCP, and applications.
    fn serve(&mut self) {
        while let Some(out) = self.phone.poll_transmit(self.now) {
            self.cross(0, out.packet);
        }
        while let Some(out) = self.server.poll_transmit(self.now) {
            let at = self.at;
            self.plan(self.now + FAR, What::AtGateway(at, Direction::Outgoing, out.packet));
        }
        while self.phone.poll_event().is_some() {}
        while let Some((id, event)) = self.server.poll_event() {
            if event == Event::Connected {
                self.ids[1] = Some(id);
            }
        }
        let [phone, server] = &self.ids;
        if let Some(writer) = phone.and_then(|id| self.phone.connection_mut(id))
            && server.is_some()
        {
            while writer.write_room() > 0 {
                writer.write(self.now, Bytes::from_static(&[7; 16_384]));
            }
        }
        if let Some(reader) = server.and_then(|id| self.server.connection_mut(id)) {
            while reader.read(self.now).is_some() {
                self.progress.push(self.now);
            }
        }
    }

    /// From each return to the first new data in order at the server, in ms.
    fn idle_ms(&self) -> Vec<u64> {
        let first =
            |from: &Instant| self.progress.iter().find(|at| *at > from).expect("it goes on").saturating_since(*from);
        self.returned.iter().map(|from| first(from).as_micros() / 1000).collect()
    }
}

fn idle_ms(setup: Setup) -> Vec<u64> {
    let last = setup.absences.last().expect("an absence");
    let until = at_ms(last.from_ms + last.for_ms + 10_000);
    World::new(setup).run(until).idle_ms()
}

const LINUX: [Profile; 3] = [Profile::Linux6Bbr, Profile::Linux6Cubic, Profile::Linux6Reno];

// Claim: After a silent absence of 1 to 20 s the first new data of an upload arrive within 1.5 round trips of the mobile host's return
// (75 ms), with linux-6-bbr, linux-6-cubic and linux-6-reno, at 5 to 50 Mbit/s, and whether the mobile host answers the gateway's empty
// segment first or not.
#[test]
fn an_upload_is_woken_after_a_silent_absence() {
    let mut late = Vec::new();
    for profile in LINUX {
        for for_ms in [1_000, 3_000, 7_000, 20_000] {
            for mbps in [5, 10, 50] {
                for answers in [true, false] {
                    let setup = Setup { mbps, answers, ..Setup::silent(profile, for_ms) };
                    let idle = idle_ms(setup)[0];
                    if idle > SOON_MS {
                        late.push(format!("{profile}, {for_ms} ms, {mbps} Mbit/s, {answers}: {idle} ms"));
                    }
                }
            }
        }
    }
    assert!(late.is_empty(), "{late:#?}");
    for for_ms in [7_000, 20_000] {
        let setup = Setup { has_steps: false, ..Setup::silent(Profile::Linux6Bbr, for_ms) };
        let idle = idle_ms(setup)[0];
        assert!(idle > 2 * SOON_MS, "{for_ms} ms, one ACK of everything: {idle} ms");
    }
}

// Claim: The upload of a mobile host that is silent twice for 5 s, and is at another gateway afterwards each time, goes on within 1.5 round
// trips of each return, with the same stacks.
#[test]
fn an_upload_is_woken_after_two_moves() {
    for profile in LINUX {
        for stay_ms in [1_000, 4_000] {
            let first = Absence { from_ms: 4_000, for_ms: 5_000, to: 1 };
            let second = Absence { from_ms: 9_000 + stay_ms, for_ms: 5_000, to: 0 };
            let setup = Setup { absences: vec![first, second], ..Setup::silent(profile, 0) };
            let idle = idle_ms(setup);
            assert!(idle.iter().all(|idle| *idle <= SOON_MS), "{profile}, {stay_ms} ms: {idle:?} ms");
        }
    }
}
