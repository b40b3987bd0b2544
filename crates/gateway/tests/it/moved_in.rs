//! Connections of a mobile host that comes from another gateway, by record, in every order of the events around its arrival: they are
//! woken in any order.

use std::collections::BTreeMap;

use bytes::Bytes;
use holdover_base::Instant;
use holdover_filter::{Connection, Direction, Injected};
use holdover_flow::{Environment, Flow, FlowRecord, FlowTable, Form, Key, Link, LinkState, Order, OrderRecord, Place};
use holdover_gateway::daemon::{Controller, Mode, rules};
use holdover_gateway::divert::Standing;
use holdover_wire::{Flags, Packet, Segment, Seq, TcpOptions, Timestamps};

use crate::support::ms;

fn connection() -> Connection {
    Connection { local: ([192, 0, 2, 1], 80).into(), remote: ([10, 0, 2, 7], 4000).into() }
}

/// The flow table of one mobile host.
pub(crate) struct Flows {
    pub(crate) flows: BTreeMap<Connection, Flow>,
    pub(crate) link: Link,
}

impl FlowTable for Flows {
    fn snapshot(&self, connection: Connection) -> Option<Flow> {
        self.flows.get(&connection).copied()
    }

    fn for_each_live(&self, look: &mut dyn FnMut(Connection, &Flow)) {
        self.flows.iter().for_each(|(&connection, flow)| look(connection, flow));
    }

    fn order(&mut self, now: Instant, connection: Connection, direction: Direction, order: Order) {
        if let Some(flow) = self.flows.get_mut(&connection) {
            flow.handle_order(&mut Place::default(), &OrderRecord::new(now, connection, direction, order));
        }
    }

    fn set_link(&mut self, link: LinkState) {
        self.link = Link::new(&link);
    }
}

/// A gateway, as far as it concerns one upload.
struct Gateway {
    now: Instant,
    controller: Controller,
    flows: Flows,
    is_away: bool,
    /// The connections have come, and were not woken yet: when the mobile host was last heard at its former gateway.
    arrived: Option<Instant>,
    /// Packets that were made for the mobile host, with their times.
    made: Vec<(Instant, Injected)>,
}

/// Each a millisecond after the one before.
const SENT: u32 = 300;
const SEGMENT: u32 = 1000;
const IN_FLIGHT: u32 = 40;
const FIRST: Seq = Seq::new(1001);

impl Gateway {
    fn new(now: Instant) -> Self {
        let controller = Controller::new(Mode::Buffer.treatment(true, false));
        let link = Link::new(&controller.link_state());
        let flows = Flows { flows: BTreeMap::new(), link };
        Self { now, controller, flows, is_away: false, arrived: None, made: Vec::new() }
    }

    fn with(&mut self, act: impl FnOnce(&mut Controller, &mut Flows)) {
        act(&mut self.controller, &mut self.flows);
        while let Some(injected) = self.controller.poll_transmit() {
            if injected.direction == Direction::Outgoing {
                self.made.push((self.now, injected));
            }
        }
        while self.controller.poll_action().is_some() || self.controller.poll_outcome().is_some() {}
    }

    fn pass(&mut self, direction: Direction, segment: Segment) {
        let Connection { local, remote } = connection();
        let (from, to) = if direction == Direction::Outgoing { (local, remote) } else { (remote, local) };
        let timestamps = Some(Timestamps { val: (self.now.as_nanos() / 1_000_000) as u32, ecr: 1 });
        let options = TcpOptions { timestamps, ..segment.options.clone() };
        let segment = Segment { src_port: from.port(), dst_port: to.port(), options, ..segment };
        let form = Form::of(&segment);
        let mut packet = Packet::new(from.ip(), to.ip(), segment);
        let (now, rules) = (self.now, rules());
        let environment = Environment { now, link: &self.flows.link, rules: &rules };
        let flow = self.flows.flows.entry(connection()).or_default();
        let (_, notice) = flow.pass_between(&Key::new(connection()), environment, direction, &mut packet, form);
        self.with(|controller, flows| {
            if direction == Direction::Incoming {
                controller.note_arrival(now, flows);
            }
            if let Some(notice) = notice {
                controller.handle_notice(now, connection(), direction, notice, flows);
            }
        });
    }

    fn wait(&mut self, millis: u64) {
        let until = self.now + ms(millis);
        for _ in 0..100_000 {
            let Some(at) = self.controller.poll_timeout().filter(|at| *at <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(at);
            let now = self.now;
            self.with(|controller, flows| controller.handle_timeout(now, flows));
        }
        panic!("the controller's deadline stays {:?}", self.controller.poll_timeout());
    }

    /// An upload over a round trip of 40 ms to the fixed host.
    fn upload(&mut self) {
        let syn = Segment { seq: FIRST - 1, flags: Flags::SYN, ..Segment::default() };
        self.pass(Direction::Incoming, syn);
        let flags = Flags::SYN | Flags::ACK;
        self.wait(1);
        self.pass(Direction::Outgoing, Segment { seq: Seq::new(7), ack: FIRST, flags, ..Segment::default() });
        let ends = Segment { flags: Flags::ACK, window: 50_000, ..Segment::default() };
        for number in 0..SENT {
            self.wait(1);
            let (seq, payload) = (FIRST + number * SEGMENT, Bytes::from_static(&[1; SEGMENT as usize]));
            self.pass(Direction::Incoming, Segment { seq, ack: Seq::new(8), payload, ..ends.clone() });
            if number >= IN_FLIGHT {
                let ack = FIRST + (number + 1 - IN_FLIGHT) * SEGMENT;
                self.pass(Direction::Outgoing, Segment { seq: Seq::new(8), ack, ..ends.clone() });
            }
        }
    }

    /// The first data after the absence.
    fn retransmit(&mut self) {
        let (seq, payload) = (FIRST + (SENT - IN_FLIGHT) * SEGMENT, Bytes::from_static(&[1; SEGMENT as usize]));
        let data = Segment { seq, ack: Seq::new(8), flags: Flags::ACK, window: 50_000, payload, ..Segment::default() };
        self.pass(Direction::Incoming, data);
    }

    fn report(&mut self, standing: Standing) {
        self.is_away = standing == Standing::Away;
        let now = self.now;
        self.with(|controller, flows| controller.handle_standing(now, standing, flows));
    }

    fn silence(&mut self) {
        let since = self.now - ms(190);
        if self.controller.silent_since().is_none() {
            self.with(|controller, flows| controller.handle_silence(since, flows));
        }
    }

    fn heard(&mut self) {
        let now = self.now;
        if self.controller.silent_since().is_some() {
            self.with(|controller, flows| controller.end_silence(now, flows));
        }
    }

    fn records(&mut self, since: Instant, record: &FlowRecord) {
        let known = self.flows.flows.get(&connection());
        if known.is_none_or(|known| record.supersedes(known)) {
            self.flows.flows.insert(connection(), record.revive(self.now));
            self.arrived = Some(since);
        }
    }

    /// As the daemon does after each event.
    fn wake_those_that_have_come(&mut self) {
        let Some(since) = self.arrived.take_if(|_| !self.is_away) else { return };
        let now = self.now;
        self.with(|controller, flows| {
            controller.handle_silence(since, flows);
            controller.end_silence(now, flows);
        });
    }
}

/// The events at the new gateway, each once, a step before the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// The record comes.
    Record,
    /// The mobile host is found silent, and is heard again.
    Away,
    Present,
    /// It does not answer a probe, and is heard again.
    Silence,
    Heard,
    /// A grace period passes.
    Pause,
}

/// All orders in which pairs are in theirs.
fn orders() -> Vec<Vec<Event>> {
    fn extend(order: &mut Vec<Event>, left: &[Event], orders: &mut Vec<Vec<Event>>) {
        if left.is_empty() {
            orders.push(order.clone());
        }
        for (place, &event) in left.iter().enumerate() {
            let comes_after = match event {
                Event::Present => Some(Event::Away),
                Event::Heard => Some(Event::Silence),
                _ => None,
            };
            if comes_after.is_some_and(|first| left.contains(&first)) || left[..place].contains(&event) {
                continue;
            }
            let mut rest = left.to_vec();
            rest.remove(place);
            order.push(event);
            extend(order, &rest, orders);
            order.pop();
        }
    }
    let events = [Event::Record, Event::Away, Event::Present, Event::Silence, Event::Heard, Event::Pause, Event::Pause];
    let mut orders = Vec::new();
    extend(&mut Vec::new(), &events, &mut orders);
    orders
}

/// The state of the new gateway before.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// The mobile host was never here.
    New,
    /// It was here, and its state is still there: its connection was handed on while it was away, and after this many milliseconds.
    Known { handed_on_after: u64 },
}

/// Lets the upload run and break at a gateway. Returns the record after an absence of 5 s, and since when the mobile host was silent.
fn handed_on(gateway: &mut Gateway) -> (Instant, FlowRecord) {
    let since = gateway.now;
    gateway.wait(290);
    gateway.report(Standing::Away);
    gateway.wait(5000);
    gateway.report(Standing::Moved);
    let flow = gateway.flows.flows[&connection()];
    (since, FlowRecord::of(gateway.now, connection(), &flow, true).unwrap())
}

// Claim: The upload of a mobile host that comes from another gateway is woken whatever the order in which its record comes, it is found
// silent or absent for a moment, and grace periods end, at a gateway that is new to it and at one where state of its last stay is left; and
// that ends with the first data. All 630 orders.
#[test]
fn an_upload_is_woken_in_any_order_of_the_events_around_its_move() {
    let all = orders();
    assert_eq!(all.len(), 630);
    let mut old = Gateway::new(Instant::from_secs(1000));
    old.upload();
    let (since, record) = handed_on(&mut old);
    let silent_for = old.now.saturating_since(since);
    for before in [Before::New, Before::Known { handed_on_after: 0 }, Before::Known { handed_on_after: 3 }] {
        for order in &all {
            let mut new = Gateway::new(Instant::from_secs(500));
            if let Before::Known { handed_on_after } = before {
                new.upload();
                handed_on(&mut new);
                new.wait(handed_on_after);
                new.flows.flows.clear();
                new.wait(6000);
                new.made.clear();
            }
            let mut woken_from = new.now;
            for &event in order {
                match event {
                    Event::Record => {
                        let since = new.now - silent_for;
                        new.records(since, &record);
                    }
                    Event::Away => new.report(Standing::Away),
                    Event::Present => new.report(Standing::Present),
                    Event::Silence => new.silence(),
                    Event::Heard => new.heard(),
                    Event::Pause => new.wait(2),
                }
                if matches!(event, Event::Record | Event::Present | Event::Heard) {
                    woken_from = new.now;
                }
                new.wake_those_that_have_come();
            }
            new.wait(200);
            let acked = record.revive(new.now).half(Direction::Outgoing).acked().unwrap();
            let is_all =
                |(_, made): &&(Instant, Injected)| made.packet.tcp().is_some_and(|segment| segment.ack == acked);
            let last = new.made.iter().filter(is_all).map(|(at, _)| *at).last();
            assert!(last.is_some(), "{before:?}, {order:?}: {:?}", new.made);
            // Packets sent before the last sign of the mobile host may be lost.
            let again = new.made.iter().filter(|(at, _)| *at >= woken_from).count();
            assert!(again > 0, "{before:?}, {order:?}: {:?}", new.made);
            new.retransmit();
            new.made.clear();
            new.wait(2000);
            assert!(new.made.len() <= 1, "{before:?}, {order:?}: it goes on: {:?}", new.made);
        }
    }
}
