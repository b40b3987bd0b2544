//! [`FreezeControl`] over flows in memory, as a filter of a router.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use holdover_base::Instant;
use holdover_filter::{Action, Connection, Direction, Injected, LinkEvent, Presence, SegmentFilter, Table, Verdict};
use holdover_flow::{Environment, Flow, FlowTable, Form, Key, Link, LinkState, Order, OrderRecord, Place, Rules};
use holdover_wire::Packet;

use super::{FreezeConfig, FreezeControl};

/// The filter. See the [module](super).
#[derive(Debug)]
pub struct Freeze {
    config: FreezeConfig,
    rules: Rules,
    flows: Table<Flow>,
    mobiles: BTreeMap<IpAddr, Mobile>,
    ready: VecDeque<Injected>,
    actions: VecDeque<Action>,
}

#[derive(Debug)]
struct Mobile {
    control: FreezeControl,
    link: Link,
}

/// The flows of one mobile host.
pub(super) struct OfMobile<'a> {
    flows: &'a mut Table<Flow>,
    link: &'a mut Link,
    mobile: IpAddr,
}

impl Freeze {
    /// A filter that has seen nothing yet.
    pub fn new(config: FreezeConfig) -> Self {
        Self {
            config,
            rules: config.rules(),
            flows: Table::default(),
            mobiles: BTreeMap::new(),
            ready: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    /// Calls the controller of a mobile host, and takes what it has made and done.
    pub(super) fn with(&mut self, mobile: IpAddr, act: impl FnOnce(&mut FreezeControl, &mut OfMobile<'_>)) {
        let Self { config, flows, mobiles, ready, actions, .. } = self;
        let Mobile { control, link } = mobiles.entry(mobile).or_insert_with(|| Mobile::new(*config));
        act(control, &mut OfMobile { flows, link, mobile });
        ready.extend(core::iter::from_fn(|| control.poll_transmit()).map(|(_, injected)| injected));
        actions.extend(core::iter::from_fn(|| control.poll_action()));
    }
}

#[cfg(test)]
impl Freeze {
    /// Another controller takes the place of a mobile host's, and knows nothing. The flow path stays as it is.
    pub(super) fn forget_control(&mut self, mobile: IpAddr) {
        if let Some(of_mobile) = self.mobiles.get_mut(&mobile) {
            of_mobile.control = FreezeControl::new(self.config);
        }
    }

    pub(super) fn is_link_down(&self, mobile: IpAddr) -> bool {
        self.mobiles.get(&mobile).is_some_and(|of_mobile| of_mobile.link.is_down())
    }
}

impl Mobile {
    fn new(config: FreezeConfig) -> Self {
        let control = FreezeControl::new(config);
        let link = Link::new(&control.link_state());
        Self { control, link }
    }
}

impl FlowTable for OfMobile<'_> {
    fn snapshot(&self, connection: Connection) -> Option<Flow> {
        self.flows.get(connection).copied()
    }

    fn for_each_live(&self, look: &mut dyn FnMut(Connection, &Flow)) {
        let own = self.flows.live().filter(|(connection, _)| connection.mobile().ip() == self.mobile);
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

impl SegmentFilter for Freeze {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some(connection) = Connection::of(direction, packet) else { return Verdict::Pass };
        let Some(segment) = packet.tcp() else { return Verdict::Pass };
        let form = Form::of(segment);
        let mobile = connection.mobile().ip();
        let flow = self.flows.observe(now, direction, connection, segment).value;
        let link = &self.mobiles.entry(mobile).or_insert_with(|| Mobile::new(self.config)).link;
        let environment = Environment { now, link, rules: &self.rules };
        let (verdict, notice) = flow.pass_between(&Key::new(connection), environment, direction, packet, form);
        if let Some(notice) = notice {
            self.with(mobile, |control, flows| control.handle_notice(now, connection, direction, notice, flows));
        }
        verdict
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_mobile(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        match presence {
            Presence::Away => self.with(mobile, |control, flows| control.handle_away(now, flows)),
            Presence::Present | Presence::Rebound | Presence::Moved => {
                self.with(mobile, |control, flows| control.handle_back(now, flows));
            }
            Presence::Fading { .. } => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let due: Vec<IpAddr> = self
            .mobiles
            .iter()
            .filter(|(_, mobile)| mobile.control.poll_timeout().is_some_and(|at| at <= now))
            .map(|(&address, _)| address)
            .collect();
        for mobile in due {
            self.with(mobile, |control, flows| control.handle_timeout(now, flows));
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.ready.pop_front()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.mobiles.values().filter_map(|mobile| mobile.control.poll_timeout()).min()
    }
}
