//! [`WakeControl`] over flows in memory, as a filter in the path of packets.

mod silence;

use std::net::IpAddr;

use holdover_base::Instant;
use holdover_filter::Connection;
use holdover_flow::{Environment, Flow, FlowTable, Form, HostFlows, Link, LinkState, Order, OrderRecord, Rules};
use holdover_wire::Packet;

use self::silence::{Detection, OwnCopies};
use super::{WakeConfig, WakeControl};
use crate::{Action, Direction, Injected, LinkEvent, SegmentFilter, Verdict, WakeOutcome};

/// The filter. See the [module](super).
#[derive(Clone, Debug)]
pub struct Wake {
    pub(super) control: WakeControl,
    pub(super) path: InMemory,
    /// The detector of silence, if it is enabled.
    detection: Option<Box<Detection>>,
    own: OwnCopies,
}

/// The flows of a filter.
#[derive(Clone, Debug)]
pub(super) struct InMemory {
    flows: HostFlows,
    link: Link,
    rules: Rules,
}

impl Wake {
    /// The name in scenario files.
    pub const NAME: &'static str = "wake";

    /// A filter without flows, with a link that is up.
    pub fn new(config: WakeConfig) -> Self {
        let link = Link::new(&LinkState::default());
        let path = InMemory { flows: HostFlows::default(), link, rules: config.rules() };
        Self { control: WakeControl::new(config), path, detection: None, own: OwnCopies::default() }
    }
}

impl FlowTable for InMemory {
    fn snapshot(&self, connection: Connection) -> Option<Flow> {
        self.flows.get(connection).copied()
    }

    fn for_each_live(&self, look: &mut dyn FnMut(Connection, &Flow)) {
        self.flows.live().for_each(|(connection, flow)| look(connection, flow));
    }

    fn order(&mut self, now: Instant, connection: Connection, direction: Direction, order: Order) {
        self.flows.handle_order(connection, &OrderRecord::new(now, connection, direction, order));
    }

    fn set_link(&mut self, link: LinkState) {
        self.link = Link::new(&link);
    }
}

impl SegmentFilter for Wake {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let Some((connection, segment)) = Connection::of(direction, packet).zip(packet.tcp()) else {
            self.note_other(direction, packet);
            return Verdict::Pass;
        };
        let form = Form::of(segment);
        let transmission = self.own.to_be_kept(direction, packet, segment, &self.path, connection);
        self.note_tcp(now, direction);
        let Self { control, path, own, detection } = self;
        // A packet that ends a silence is handled as on a link that is up, as by the programs in the kernel, whose notice comes later.
        let ends_silence = direction == Direction::Incoming && control.silent_since().is_some();
        if direction == Direction::Incoming && !ends_silence {
            control.note_incoming(now, path);
        }
        let InMemory { flows, link, rules } = path;
        let environment = Environment { now, link, rules };
        let handled = flows.handle_packet(connection, environment, direction, packet, form);
        let (verdict, notice) = handled.unwrap_or((Verdict::Pass, None));
        if ends_silence {
            own.begin_return();
            control.note_incoming(now, path);
        }
        if let Some(detection) = detection
            && control.contradicts_down()
        {
            detection.handle_arrivals(now);
        }
        if let Some(notice) = notice {
            control.handle_notice(now, connection, direction, notice, path);
        }
        match direction {
            Direction::Incoming => {
                control.note_arrival(now, path);
                own.review(connection, path);
            }
            Direction::Outgoing => {
                let transmission = transmission.filter(|_| verdict == Verdict::Pass);
                own.note(connection, packet, transmission, path);
            }
        }
        verdict
    }

    fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        self.note_link(now, event);
        self.control.handle_link(now, event, &mut self.path);
    }

    /// The controller acts on all connections; silence of the path to another peer is still detected.
    fn handle_peer(&mut self, now: Instant, peer: &[IpAddr], event: LinkEvent) {
        self.note_peer(now, peer, event);
        self.control.handle_link(now, event, &mut self.path);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.control.handle_timeout(now, &mut self.path);
        self.detect(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Injected> {
        self.next_packet(now)
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.control.poll_action()
    }

    fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        self.control.poll_outcome()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.control.poll_timeout(), self.detects_next_at()].into_iter().flatten().min()
    }

    fn fork(&self) -> Option<Box<dyn SegmentFilter>> {
        Some(Box::new(self.clone()))
    }
}
