//! The gateway's daemon as a filter of a router: flows and queues in memory.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use holdover_base::Instant;
use holdover_filter::{
    Action, Connection, Direction, Injected, LinkEvent, Presence, SegmentFilter, Stored, Table, Verdict, WakeOutcome,
};
use holdover_flow::{Environment, Flow, FlowTable, Form, Key, Link, LinkState, Order, OrderRecord, Place, Rules};
use holdover_wire::{Flags, Packet};

use super::{Controller, DaemonConfig, Mode, ThesisConfig, Treatment, is_redundant, rules};
use crate::divert::{Course, Diverter, DiverterConfig, Source};
use crate::prefixes::Prefixes;
use crate::warning_sign::Shown;

/// The filter. See the [module](super).
#[derive(Debug)]
pub struct GatewayDaemon {
    treatment: Treatment,
    /// `None` in the other modes.
    thesis: Option<ThesisConfig>,
    rules: Rules,
    prefixes: Prefixes,
    flows: Table<Flow>,
    mobiles: BTreeMap<IpAddr, Mobile>,
    diverter: Diverter<Packet>,
    released: VecDeque<Injected>,
    /// Packets of controllers. They follow packets released in the same call, as in the daemon.
    made: VecDeque<Injected>,
    dropped: VecDeque<Packet>,
    actions: VecDeque<Action>,
    outcomes: VecDeque<WakeOutcome>,
}

#[derive(Debug)]
struct Mobile {
    controller: Controller,
    link: Link,
    course: Course,
}

/// The flows of one mobile host.
pub(crate) struct OfMobile<'a> {
    prefixes: &'a Prefixes,
    flows: &'a mut Table<Flow>,
    link: &'a mut Link,
    mobile: IpAddr,
}

impl GatewayDaemon {
    /// The name in scenario files.
    pub const NAME: &'static str = "gateway";

    /// A filter without state.
    pub fn new(config: DaemonConfig) -> Self {
        let DaemonConfig { mode, holds_back, drops_duplicates, buffer, thesis, prefixes } = config;
        let buffer = DiverterConfig { diverts: mode.diverts() && buffer.diverts, ..buffer };
        let mut daemon = Self::with_treatment(mode.treatment(holds_back, drops_duplicates), rules(), buffer);
        daemon.thesis = (mode == Mode::Thesis).then_some(thesis);
        daemon.diverter.set_others(mode.diversion(thesis));
        daemon.prefixes = prefixes;
        daemon
    }

    pub(crate) fn with_treatment(treatment: Treatment, rules: Rules, buffer: DiverterConfig) -> Self {
        Self {
            treatment,
            thesis: None,
            rules,
            prefixes: Prefixes::default(),
            flows: Table::default(),
            mobiles: BTreeMap::new(),
            diverter: Diverter::new(buffer),
            released: VecDeque::new(),
            made: VecDeque::new(),
            dropped: VecDeque::new(),
            actions: VecDeque::new(),
            outcomes: VecDeque::new(),
        }
    }

    /// Calls the controller of a mobile host, and takes its packets and actions.
    pub(crate) fn with(&mut self, mobile: IpAddr, act: impl FnOnce(&mut Controller, &mut OfMobile<'_>)) {
        let Self { treatment, prefixes, flows, mobiles, made, actions, outcomes, .. } = self;
        let Mobile { controller, link, .. } = mobiles.entry(mobile).or_insert_with(|| Mobile::new(*treatment));
        act(controller, &mut OfMobile { prefixes, flows, link, mobile });
        made.extend(core::iter::from_fn(|| controller.poll_transmit()));
        let done = core::iter::from_fn(|| controller.poll_action());
        actions.extend(done.map(|action| Action { mechanism: Self::NAME, ..action }));
        outcomes.extend(core::iter::from_fn(|| controller.poll_outcome()));
    }

    /// Passes a packet through the flow path, if it is TCP in the clear.
    fn follow(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        let Some(segment) = packet.tcp().filter(|_| self.treatment != Treatment::Nothing) else {
            return Verdict::Pass;
        };
        let form = Form::of(segment);
        let mobile = self.prefixes.host_of(connection.mobile().ip());
        let flow = self.flows.observe(now, direction, connection, segment).value;
        let link = &self.mobiles.entry(mobile).or_insert_with(|| Mobile::new(self.treatment)).link;
        let environment = Environment { now, link, rules: &self.rules };
        let (verdict, notice) = flow.pass_between(&Key::new(connection), environment, direction, packet, form);
        self.with(mobile, |controller, flows| {
            if direction == Direction::Incoming {
                controller.note_arrival(now, flows);
            }
            if let Some(notice) = notice {
                controller.handle_notice(now, connection, direction, notice, flows);
            }
        });
        verdict
    }

    /// Keeps a packet for a mobile host that is absent, or for which others still wait.
    fn divert(&mut self, now: Instant, packet: &Packet) -> Verdict {
        let mobile = self.prefixes.host_of(packet.dst);
        match self.mobiles.get(&mobile).map_or(Course::Pass, |of_mobile| of_mobile.course) {
            // Only the daemon has rules for single connections.
            Course::Pass | Course::DivertChosen => return Verdict::Pass,
            Course::DivertTcp if packet.tcp().is_none() => return Verdict::Pass,
            Course::Divert | Course::DivertTcp => {}
        }
        let len = u32::try_from(packet.wire_len()).unwrap_or(u32::MAX);
        match self.diverter.handle_packet(now, mobile, len, || Some(packet.clone())) {
            Ok(()) => Verdict::Keep,
            Err(_) => Verdict::Drop,
        }
    }

    /// Handles a packet from a mobile host, and its sign.
    fn hear(&mut self, now: Instant, packet: &mut Packet) {
        let mobile = self.prefixes.host_of(packet.src);
        match self.thesis.and_then(|thesis| thesis.sign.take(packet)) {
            Some(Shown::Warning) => self.diverter.handle_warning(now, mobile),
            Some(Shown::Working) => self.diverter.handle_working(now, mobile),
            None => self.diverter.handle_heard(now, mobile),
        }
    }

    /// Handles deadlines, and the consequences of everything handled before.
    fn advance(&mut self, now: Instant) {
        self.diverter.handle_timeout(now);
        while let Some((mobile, standing)) = self.diverter.poll_change() {
            self.with(mobile, |controller, flows| controller.handle_standing(now, standing, flows));
        }
        self.set_courses(now);
        self.release(now);
        // The released packet may have been the last.
        self.set_courses(now);
        self.dropped.extend(core::iter::from_fn(|| self.diverter.poll_discarded()).map(|(_, packet, _)| packet));
    }

    fn set_courses(&mut self, now: Instant) {
        while let Some((mobile, course)) = self.diverter.poll_course() {
            self.mobiles.entry(mobile).or_insert_with(|| Mobile::new(self.treatment)).course = course;
            if course == Course::Pass {
                self.diverter.handle_settled(now, mobile, true);
            }
        }
    }

    fn release(&mut self, now: Instant) {
        while let Some((mobile, packet)) = self.diverter.due(now) {
            let mut packet = packet.clone();
            if let Some(thesis) = self.thesis {
                thesis.sign.mark(&mut packet, true);
            }
            if self.is_acknowledged(&packet) {
                self.dropped.push_back(packet);
            } else {
                self.released.push_back(Injected { direction: Direction::Outgoing, packet });
            }
            self.diverter.handle_sent(now, mobile);
        }
    }

    /// Whether a packet carries data that its mobile host has acknowledged.
    fn is_acknowledged(&self, packet: &Packet) -> bool {
        let Some(segment) = packet.tcp() else { return false };
        if segment.payload.is_empty() || segment.flags.intersects(Flags::SYN | Flags::FIN | Flags::RST) {
            return false;
        }
        let flow = Connection::of(Direction::Outgoing, packet).and_then(|connection| self.flows.get(connection));
        flow.is_some_and(|flow| is_redundant(flow, segment.seq + segment.seq_len()))
    }
}

#[cfg(test)]
impl GatewayDaemon {
    /// Replaces the controller of a mobile host by one without state. The flow path is unchanged.
    pub(crate) fn forget_controller(&mut self, mobile: IpAddr) {
        if let Some(of_mobile) = self.mobiles.get_mut(&mobile) {
            of_mobile.controller = Controller::new(self.treatment);
        }
    }

    pub(crate) fn is_link_down(&self, mobile: IpAddr) -> bool {
        self.mobiles.get(&mobile).is_some_and(|of_mobile| of_mobile.link.is_down())
    }
}

impl Mobile {
    fn new(treatment: Treatment) -> Self {
        let controller = Controller::new(treatment);
        let link = Link::new(&controller.link_state());
        Self { controller, link, course: Course::Pass }
    }
}

impl FlowTable for OfMobile<'_> {
    fn snapshot(&self, connection: Connection) -> Option<Flow> {
        self.flows.get(connection).copied()
    }

    fn for_each_live(&self, look: &mut dyn FnMut(Connection, &Flow)) {
        let is_own = |connection: Connection| self.prefixes.host_of(connection.mobile().ip()) == self.mobile;
        let own = self.flows.live().filter(|&(connection, _)| is_own(connection));
        own.for_each(|(connection, flow)| look(connection, flow));
    }

    fn order(&mut self, now: Instant, connection: Connection, direction: Direction, order: Order) {
        if let Some(flow) = self.flows.get_mut(connection) {
            flow.handle_order(&mut Place::default(), &OrderRecord::new(now, connection, direction, order));
        }
    }

    fn set_link(&mut self, link: LinkState) {
        *self.link = Link::new(&link);
    }
}

impl SegmentFilter for GatewayDaemon {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        if direction == Direction::Outgoing
            && let Some(thesis) = self.thesis
        {
            thesis.sign.mark(packet, false);
        }
        let mut verdict = self.follow(now, direction, packet);
        match direction {
            Direction::Outgoing if verdict == Verdict::Pass => verdict = self.divert(now, packet),
            Direction::Outgoing => {}
            Direction::Incoming => self.hear(now, packet),
        }
        self.advance(now);
        verdict
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_mobile(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        self.diverter.handle_report(now, self.prefixes.host_of(mobile), Source::Station, presence);
        self.advance(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        let is_due = |of_mobile: &Mobile| of_mobile.controller.poll_timeout().is_some_and(|at| at <= now);
        let due: Vec<IpAddr> =
            self.mobiles.iter().filter(|(_, of_mobile)| is_due(of_mobile)).map(|(&address, _)| address).collect();
        for mobile in due {
            self.with(mobile, |controller, flows| controller.handle_timeout(now, flows));
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.released.pop_front().or_else(|| self.made.pop_front())
    }

    fn poll_dropped(&mut self) -> Option<Packet> {
        self.dropped.pop_front()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        self.outcomes.pop_front()
    }

    fn stored(&self) -> Stored {
        let waiting = Stored { bytes: self.diverter.waiting_bytes(), connections: 0 };
        waiting + Stored::of_connections(self.flows.live().map(|_| 0))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let controllers = self.mobiles.values().filter_map(|of_mobile| of_mobile.controller.poll_timeout());
        controllers.chain(self.diverter.poll_timeout()).min()
    }
}
