//! The flow path ([`holdover_flow`]) at a router of the simulator: flows in memory, and a controller for each mobile host.
//!
//! It handles every packet of a mobile host for all mechanisms of a router that do not terminate connections: it tracks the ACKs received
//! and shown, holds ACKs back, sets the window shown, and recognises probes. The gateway's daemon ([`crate::daemon`]),
//! [`crate::supervisor`] and [`crate::buffer_freeze`] add what they store.

mod controller;

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use holdover_base::Instant;
use holdover_filter::{Action, Connection, Direction, Injected, Verdict, WakeOutcome};
use holdover_flow::{Environment, Flow, FlowTable, FlowsBetween, Form, Link, LinkState, Order, OrderRecord, Rules};
use holdover_mobility::wake::WakeConfig;
use holdover_wire::{Packet, Seq};

pub use controller::Controller;

use crate::freeze::{FreezeConfig, FreezeControl};
use crate::prefixes::Prefixes;

/// The treatment of a mobile host's TCP connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Treatment {
    /// ACKs are held back, and senders are woken when the mobile host returns.
    Wake(WakeConfig),
    /// Windows are shut while the mobile host is absent.
    Freeze(FreezeConfig),
    /// Nothing.
    Nothing,
}

/// Flows in memory, and the controllers of their mobile hosts. Beside each flow is a value of the mechanism.
#[derive(Debug)]
pub(crate) struct FlowPath<T = ()> {
    /// The mechanism to which actions are ascribed.
    mechanism: &'static str,
    treatment: Treatment,
    rules: Rules,
    prefixes: Prefixes,
    flows: FlowsBetween<T>,
    mobiles: BTreeMap<IpAddr, Mobile>,
    made: VecDeque<Injected>,
    actions: VecDeque<Action>,
    outcomes: VecDeque<WakeOutcome>,
}

#[derive(Debug)]
struct Mobile {
    controller: Controller,
    link: Link,
}

/// The flows of one mobile host.
pub(crate) struct OfMobile<'a, T> {
    prefixes: &'a Prefixes,
    flows: &'a mut FlowsBetween<T>,
    link: &'a mut Link,
    mobile: IpAddr,
}

impl<T: Default> FlowPath<T> {
    pub(crate) fn new(mechanism: &'static str, treatment: Treatment, rules: Rules, prefixes: Prefixes) -> Self {
        Self {
            mechanism,
            treatment,
            rules,
            prefixes,
            flows: FlowsBetween::default(),
            mobiles: BTreeMap::new(),
            made: VecDeque::new(),
            actions: VecDeque::new(),
            outcomes: VecDeque::new(),
        }
    }

    /// The mobile host that an address belongs to.
    pub(crate) fn host_of(&self, address: IpAddr) -> IpAddr {
        self.prefixes.host_of(address)
    }

    /// Passes a packet through the flow path, if it is TCP in the clear, and calls the controller of its mobile host.
    pub(crate) fn follow(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        self.follow_after(now, direction, packet, |_, _, _| {}).unwrap_or(Verdict::Pass)
    }

    /// The same, after `before` was called with the flow of the packet as it was, the mechanism's value, and the packet as it came. `None`:
    /// the packet belongs to no flow, and passes.
    pub(crate) fn follow_after(
        &mut self,
        now: Instant,
        direction: Direction,
        packet: &mut Packet,
        before: impl FnOnce(&Flow, &mut T, &Packet),
    ) -> Option<Verdict> {
        let connection = Connection::of(direction, packet)?;
        let segment = packet.tcp().filter(|_| self.treatment != Treatment::Nothing)?;
        let form = Form::of(segment);
        let mobile = self.prefixes.host_of(connection.mobile().ip());
        let link = &self.mobiles.entry(mobile).or_insert_with(|| Mobile::new(self.treatment)).link;
        let environment = Environment { now, link, rules: &self.rules };
        let (verdict, notice) = self.flows.handle_packet(connection, environment, direction, packet, form, before)?;
        self.with(mobile, |controller, flows| {
            if direction == Direction::Incoming {
                controller.note_arrival(now, flows);
            }
            if let Some(notice) = notice {
                controller.handle_notice(now, connection, direction, notice, flows);
            }
        });
        Some(verdict)
    }

    /// Calls the controller of a mobile host, and takes its packets and actions.
    pub(crate) fn with<R>(
        &mut self,
        mobile: IpAddr,
        act: impl FnOnce(&mut Controller, &mut OfMobile<'_, T>) -> R,
    ) -> R {
        let Self { mechanism, treatment, prefixes, flows, mobiles, made, actions, outcomes, .. } = self;
        let Mobile { controller, link } = mobiles.entry(mobile).or_insert_with(|| Mobile::new(*treatment));
        let result = act(controller, &mut OfMobile { prefixes, flows, link, mobile });
        made.extend(core::iter::from_fn(|| controller.poll_transmit()));
        let done = core::iter::from_fn(|| controller.poll_action());
        actions.extend(done.map(|action| Action { mechanism, ..action }));
        outcomes.extend(core::iter::from_fn(|| controller.poll_outcome()));
        result
    }

    /// Calls the controller of a mobile host with [`Treatment::Freeze`].
    pub(crate) fn freeze(&mut self, mobile: IpAddr, act: impl FnOnce(&mut FreezeControl, &mut OfMobile<'_, T>)) {
        self.with(mobile, |controller, flows| {
            if let Controller::Freeze(control) = controller {
                act(control, flows);
            }
        });
    }

    pub(crate) fn flow(&self, connection: Connection) -> Option<&Flow> {
        self.flows.get(connection)
    }

    /// The highest ACK of the mobile host.
    pub(crate) fn acked(&self, connection: Connection) -> Option<Seq> {
        self.flow(connection)?.half(Direction::Incoming).acked()
    }

    /// Whether the fixed host was shown a window of zero, and nothing was heard from the mobile host since.
    pub(crate) fn is_shut(&self, connection: Connection) -> bool {
        self.flow(connection).is_some_and(is_shut)
    }

    /// The flow of a connection, and the mechanism's value.
    pub(crate) fn get_both(&mut self, connection: Connection) -> Option<(&Flow, &mut T)> {
        self.flows.get_both(connection)
    }

    /// The mechanism's value for a connection.
    pub(crate) fn value(&self, connection: Connection) -> Option<&T> {
        self.flows.value(connection)
    }

    /// As [`Self::value`], mutable.
    pub(crate) fn value_mut(&mut self, connection: Connection) -> Option<&mut T> {
        self.get_both(connection).map(|(_, value)| value)
    }

    /// Open connections, and the mechanism's values.
    pub(crate) fn live(&self) -> impl Iterator<Item = (Connection, &T)> {
        self.flows.live().map(|(connection, _, value)| (connection, value))
    }

    /// The open connections of a mobile host's address.
    pub(crate) fn live_of(&self, mobile: IpAddr) -> Vec<Connection> {
        self.live().map(|(connection, _)| connection).filter(|connection| connection.mobile().ip() == mobile).collect()
    }

    /// The same, with the mechanism's values.
    pub(crate) fn live_of_mut(&mut self, mobile: IpAddr) -> impl Iterator<Item = (Connection, &mut T)> {
        self.flows.live_values_mut().filter(move |(connection, _)| connection.mobile().ip() == mobile)
    }

    /// Adds a connection whose packets do not pass yet, unless it is known.
    pub(crate) fn add(&mut self, now: Instant, connection: Connection) {
        self.flows.add(now, connection);
    }

    /// Inserts the flow of another router, beside the mechanism's value.
    pub(crate) fn insert(&mut self, now: Instant, connection: Connection, flow: Flow) {
        self.flows.insert(now, connection, flow);
    }

    /// Forgets a connection that another router continues, and the mechanism's value.
    pub(crate) fn forget(&mut self, connection: Connection) {
        self.flows.remove(connection);
        self.freeze(self.host_of(connection.mobile().ip()), |control, _| control.forget(connection));
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let is_due = |of_mobile: &Mobile| of_mobile.controller.poll_timeout().is_some_and(|at| at <= now);
        let due: Vec<IpAddr> =
            self.mobiles.iter().filter(|(_, of_mobile)| is_due(of_mobile)).map(|(&address, _)| address).collect();
        for mobile in due {
            self.with(mobile, |controller, flows| controller.handle_timeout(now, flows));
        }
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Injected> {
        self.made.pop_front()
    }

    /// An action of the mechanism itself, in its place among those of controllers.
    pub(crate) fn tell(&mut self, at: Instant, connection: Connection, what: &'static str) {
        self.actions.push_back(Action { at, connection, mechanism: self.mechanism, what });
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(crate) fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        self.outcomes.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.mobiles.values().filter_map(|of_mobile| of_mobile.controller.poll_timeout()).min()
    }
}

/// Whether the fixed host of a flow was shown a window of zero, and nothing was heard from the mobile host since.
pub(crate) fn is_shut(flow: &Flow) -> bool {
    flow.half(Direction::Incoming).window_limit() == Some(0)
}

#[cfg(test)]
impl FlowPath {
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
        Self { controller, link }
    }
}

impl<T: Default> FlowTable for OfMobile<'_, T> {
    fn snapshot(&self, connection: Connection) -> Option<Flow> {
        self.flows.get(connection).copied()
    }

    fn for_each_live(&self, look: &mut dyn FnMut(Connection, &Flow)) {
        let is_own = |connection: Connection| self.prefixes.host_of(connection.mobile().ip()) == self.mobile;
        let own = self.flows.live().filter(|&(connection, ..)| is_own(connection));
        own.for_each(|(connection, flow, _)| look(connection, flow));
    }

    fn order(&mut self, now: Instant, connection: Connection, direction: Direction, order: Order) {
        self.flows.handle_order(connection, &OrderRecord::new(now, connection, direction, order));
    }

    fn set_link(&mut self, link: LinkState) {
        *self.link = Link::new(&link);
    }
}
