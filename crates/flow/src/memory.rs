//! Flow tables in memory: the shell of a process, which finds the flow of each packet. The same functions as in the kernel's programs
//! decide which packets begin and end flows (`find_at_host` in `c/lifecycle.h`, `find_between` in `c/between.h`). The bounds are those of
//! [`Bounded`].

use holdover_base::Instant;
use holdover_filter::{Bounded, Connection, Direction, Verdict};
use holdover_wire::{Flags, Packet, Segment, Seq};

use crate::flow::Environment;
use crate::layout::{Finding, Flow, Key, STAGE_ISN};
use crate::notice::Notice;
use crate::order::OrderRecord;
use crate::prediction::Place;
use crate::segment::Form;

/// The flows of a host.
///
/// If the peer opens a connection, its flow is tracked from the peer's SYN on, which has the window scale: the SYN is stored until the host
/// answers it. The programs in the kernel do not store SYNs of strangers: there such a flow begins after the handshake, and an order sets
/// the scale.
#[derive(Clone, Default, Debug)]
pub struct HostFlows {
    entries: Bounded<AtHost>,
}

#[derive(Clone, Default, Debug)]
struct AtHost {
    flow: Option<Tracked>,
    /// The SYN of the peer that the flow has begun with.
    answered: Option<Seq>,
    /// A later SYN of the peer, which the host has not answered, and a flow that begins with it.
    asked: Option<Box<(Seq, Tracked)>>,
}

/// A flow, with its own predictions.
#[derive(Clone, Default, Debug)]
struct Tracked {
    flow: Flow,
    place: Place,
}

impl HostFlows {
    /// Handles a packet, which may be rewritten. `None`: it belongs to no flow, and passes.
    pub fn handle_packet(
        &mut self,
        connection: Connection,
        environment: Environment<'_>,
        direction: Direction,
        packet: &mut Packet,
        form: Form,
    ) -> Option<(Verdict, Option<Notice>)> {
        let segment = packet.tcp()?;
        let entry = self.entries.get(connection);
        let finding = Flow::find_at_host(entry.and_then(AtHost::flow), direction, packet, segment);
        let what = match direction {
            Direction::Incoming if finding == Finding::FlowUnseen => {
                let isn = segment.seq;
                if !is_first(segment) || entry.is_some_and(|entry| entry.has_answered(isn)) {
                    return None;
                }
                What::Asks(isn)
            }
            Direction::Outgoing if entry.is_some_and(|entry| entry.is_answer(segment)) => What::Answers(segment.seq),
            _ if finding == Finding::FlowUnseen => return None,
            _ => What::Found(finding),
        };
        let mut result = None;
        self.entries.update(environment.now, connection, AtHost::default, |entry| {
            result = entry.tracked(what).map(|Tracked { flow, place }| {
                flow.handle_packet(place, &Key::new(connection), environment, direction, packet, form)
            });
            entry.flow().is_none_or(Flow::is_over)
        });
        result
    }

    /// Removes a flow.
    pub fn remove(&mut self, connection: Connection) {
        self.entries.remove(connection);
    }

    /// A flow.
    pub fn get(&self, connection: Connection) -> Option<&Flow> {
        self.entries.get(connection)?.flow()
    }

    /// The flows of connections that are open.
    pub fn live(&self) -> impl Iterator<Item = (Connection, &Flow)> {
        self.entries.live().filter_map(|(connection, entry)| Some((connection, entry.flow()?)))
    }

    /// Carries out an order.
    pub fn handle_order(&mut self, connection: Connection, order: &OrderRecord) {
        if let Some(Tracked { flow, place }) = self.entries.get_mut(connection).and_then(|entry| entry.flow.as_mut()) {
            flow.handle_order(place, order);
        }
    }
}

/// The effect of a packet on an entry.
#[derive(Clone, Copy)]
enum What {
    /// A SYN of the peer with this number, which does not belong to the flow.
    Asks(Seq),
    /// The host's answer to such a SYN, with this number.
    Answers(Seq),
    Found(Finding),
}

impl AtHost {
    fn flow(&self) -> Option<&Flow> {
        self.flow.as_ref().map(|tracked| &tracked.flow)
    }

    /// Whether a SYN of the peer with this number is a retransmission.
    fn has_answered(&self, isn: Seq) -> bool {
        self.answered == Some(isn) && self.flow().is_some_and(|flow| !flow.is_over())
    }

    /// Whether a packet of the host answers a SYN of the peer.
    fn is_answer(&self, segment: &Segment) -> bool {
        let is_syn_ack = segment.flags.contains(Flags::SYN | Flags::ACK);
        is_syn_ack && self.asked.as_ref().is_some_and(|asked| asked.0 + 1 == segment.ack)
    }

    /// The flow that handles a packet, if one does.
    fn tracked(&mut self, what: What) -> Option<&mut Tracked> {
        match what {
            What::Asks(isn) => {
                if self.asked.as_ref().is_none_or(|asked| asked.0 != isn) {
                    self.asked = Some(Box::new((isn, Tracked::default())));
                }
                return self.asked.as_mut().map(|asked| &mut asked.1);
            }
            What::Answers(isn) => {
                if let Some(asked) = self.asked.take() {
                    let mut tracked = asked.1;
                    // A retransmission of this answer does not begin another connection.
                    tracked.flow.host_isn = isn.value();
                    tracked.flow.stage |= STAGE_ISN as u16;
                    (self.flow, self.answered) = (Some(tracked), Some(asked.0));
                }
            }
            What::Found(Finding::FlowBegins) => *self = Self { flow: Some(Tracked::default()), ..Self::default() },
            What::Found(Finding::FlowEnds) => (self.flow, self.answered) = (None, None),
            What::Found(Finding::FlowKnown | Finding::FlowUnseen) => {}
        }
        self.flow.as_mut()
    }
}

/// The flows of a node between two hosts, and with each a value of the mechanism that owns the table: it begins and ends with the flow.
#[derive(Clone, Debug)]
pub struct FlowsBetween<T = ()> {
    entries: Bounded<Between<T>>,
}

#[derive(Clone, Default, Debug)]
struct Between<T> {
    flow: Flow,
    value: T,
    /// The host on the near side has sent a packet.
    takes_part: bool,
}

impl<T> Default for FlowsBetween<T> {
    fn default() -> Self {
        Self { entries: Bounded::default() }
    }
}

impl<T: Default> FlowsBetween<T> {
    /// Handles a packet, which may be rewritten, after `before` was called with its flow as it was, and the value. `None`: it belongs to no
    /// flow, and passes.
    pub fn handle_packet(
        &mut self,
        connection: Connection,
        environment: Environment<'_>,
        direction: Direction,
        packet: &mut Packet,
        form: Form,
        before: impl FnOnce(&Flow, &mut T, &Packet),
    ) -> Option<(Verdict, Option<Notice>)> {
        let finding = Flow::find_between(self.get(connection), packet, packet.tcp()?);
        if finding == Finding::FlowUnseen {
            return None;
        }
        let mut result = None;
        self.entries.update(environment.now, connection, Between::default, |entry| {
            if finding != Finding::FlowKnown {
                *entry = Between::default();
            }
            entry.takes_part |= direction == Direction::Outgoing;
            before(&entry.flow, &mut entry.value, packet);
            result = Some(entry.flow.pass_between(&Key::new(connection), environment, direction, packet, form));
            entry.is_passing()
        });
        result
    }

    /// Adds a connection whose packets do not pass yet, unless it is known.
    pub fn add(&mut self, now: Instant, connection: Connection) {
        self.entries.update(now, connection, Between::default, |entry| {
            entry.takes_part = true;
            entry.is_passing()
        });
    }

    /// Replaces a flow by that which another node has handed on, beside the same value.
    pub fn insert(&mut self, now: Instant, connection: Connection, flow: Flow) {
        self.entries.update(now, connection, Between::default, |entry| {
            (entry.flow, entry.takes_part) = (flow, true);
            entry.is_passing()
        });
    }

    /// Removes a flow and its value.
    pub fn remove(&mut self, connection: Connection) {
        self.entries.remove(connection);
    }

    /// A flow.
    pub fn get(&self, connection: Connection) -> Option<&Flow> {
        self.entries.get(connection).map(|entry| &entry.flow)
    }

    /// A flow and its value.
    pub fn get_both(&mut self, connection: Connection) -> Option<(&Flow, &mut T)> {
        self.entries.get_mut(connection).map(|entry| (&entry.flow, &mut entry.value))
    }

    /// The value of a flow.
    pub fn value(&self, connection: Connection) -> Option<&T> {
        self.entries.get(connection).map(|entry| &entry.value)
    }

    /// The flows and values of connections that are open, and in which the host on the near side takes part.
    pub fn live(&self) -> impl Iterator<Item = (Connection, &Flow, &T)> {
        self.entries.live().map(|(connection, entry)| (connection, &entry.flow, &entry.value))
    }

    /// The values of the same connections.
    pub fn live_values_mut(&mut self) -> impl Iterator<Item = (Connection, &mut T)> {
        self.entries.live_mut().map(|(connection, entry)| (connection, &mut entry.value))
    }

    /// Carries out an order.
    pub fn handle_order(&mut self, connection: Connection, order: &OrderRecord) {
        if let Some(entry) = self.entries.get_mut(connection) {
            entry.flow.handle_order(&mut Place::default(), order);
        }
    }
}

impl<T> Between<T> {
    fn is_passing(&self) -> bool {
        !self.takes_part || self.flow.is_over()
    }
}

/// Whether a segment asks for a connection.
const fn is_first(segment: &Segment) -> bool {
    segment.flags.contains(Flags::SYN) && !segment.flags.intersects(Flags::ACK.union(Flags::RST))
}
