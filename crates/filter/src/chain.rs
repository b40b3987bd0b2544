//! A chain of mechanisms in the packet path.

use core::net::IpAddr;
use std::collections::VecDeque;

use holdover_base::Instant;
use holdover_tcp::Endpoint;
use holdover_wire::Packet;

use crate::{
    Action, ControlMessage, Direction, EndpointMechanism, Injected, LinkEvent, Presence, SegmentFilter, Stored,
    Verdict, WakeOutcome,
};

/// The mechanisms of one node, in the order in which an outgoing packet meets them: endpoint mechanisms, then filters.
#[derive(Debug, Default)]
pub struct Chain {
    endpoint: Vec<Box<dyn EndpointMechanism>>,
    filters: Vec<Box<dyn SegmentFilter>>,
    ready: VecDeque<Injected>,
}

impl Chain {
    /// An empty chain.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a filter, closer to the link than those before.
    pub fn push(&mut self, filter: Box<dyn SegmentFilter>) {
        self.filters.push(filter);
    }

    /// Appends an endpoint mechanism.
    pub fn push_endpoint(&mut self, mechanism: Box<dyn EndpointMechanism>) {
        self.endpoint.push(mechanism);
    }

    /// A copy that shares no state with this one; `None` if one of the mechanisms cannot be copied.
    pub fn fork(&self) -> Option<Self> {
        let endpoint = self.endpoint.iter().map(|mechanism| mechanism.fork_endpoint()).collect::<Option<_>>()?;
        let filters = self.filters.iter().map(|filter| filter.fork()).collect::<Option<_>>()?;
        Some(Self { endpoint, filters, ready: self.ready.clone() })
    }

    /// Whether the chain is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Passes a packet through the chain, until a mechanism drops or keeps it.
    pub fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let verdict = match direction {
            Direction::Outgoing => self.pass(now, direction, packet, 0..self.len()),
            Direction::Incoming => self.pass(now, direction, packet, (0..self.len()).rev()),
        };
        self.collect(now);
        verdict
    }

    /// Reports the link event to all mechanisms before any of them sends.
    pub fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        for index in 0..self.len() {
            self.mechanism(index).handle_link(now, event);
        }
        self.collect(now);
    }

    /// Reports an event of the path to the peer with these addresses.
    pub fn handle_peer(&mut self, now: Instant, peer: &[IpAddr], event: LinkEvent) {
        for index in 0..self.len() {
            self.mechanism(index).handle_peer(now, peer, event);
        }
        self.collect(now);
    }

    /// Reports the presence of the mobile host with this address.
    pub fn handle_mobile(&mut self, now: Instant, mobile: IpAddr, presence: Presence) {
        for index in 0..self.len() {
            self.mechanism(index).handle_mobile(now, mobile, presence);
        }
        self.collect(now);
    }

    /// Reports that the link failed to transmit `packet`.
    pub fn handle_failed_attempt(&mut self, now: Instant, packet: &Packet) {
        for index in 0..self.len() {
            self.mechanism(index).handle_failed_attempt(now, packet);
        }
        self.collect(now);
    }

    /// Hands a control message for this node to the first mechanism that can parse it. Returns whether one does.
    pub fn handle_control(&mut self, now: Instant, message: &ControlMessage) -> bool {
        let is_taken = (0..self.len()).any(|index| self.mechanism(index).handle_control(now, message));
        self.collect(now);
        is_taken
    }

    /// Handles every deadline at or before `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        for index in 0..self.len() {
            let mechanism = self.mechanism(index);
            if mechanism.poll_timeout().is_some_and(|at| at <= now) {
                mechanism.handle_timeout(now);
            }
        }
        self.collect(now);
    }

    /// Lets endpoint mechanisms steer the host's TCP. See [`EndpointMechanism::steer`] for when.
    pub fn steer(&mut self, now: Instant, endpoint: &mut Endpoint) {
        for mechanism in &mut self.endpoint {
            mechanism.steer(now, endpoint);
        }
    }

    /// The next packet that a mechanism injects.
    pub fn poll_transmit(&mut self) -> Option<Injected> {
        self.ready.pop_front()
    }

    /// Whether [`Self::poll_transmit`] has a packet.
    pub fn has_transmit(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next control message for another node.
    pub fn poll_control(&mut self) -> Option<ControlMessage> {
        (0..self.len()).find_map(|index| self.mechanism(index).poll_control())
    }

    /// The next packet that a mechanism had kept and now drops.
    pub fn poll_dropped(&mut self) -> Option<Packet> {
        (0..self.len()).find_map(|index| self.mechanism(index).poll_dropped())
    }

    /// The next action of a mechanism.
    pub fn poll_action(&mut self) -> Option<Action> {
        (0..self.len()).find_map(|index| self.mechanism(index).poll_action())
    }

    /// The next outcome of waking a connection.
    pub fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        (0..self.len()).find_map(|index| self.mechanism(index).poll_outcome())
    }

    /// The next deadline.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let endpoint = self.endpoint.iter().filter_map(|mechanism| mechanism.poll_timeout());
        endpoint.chain(self.filters.iter().filter_map(|filter| filter.poll_timeout())).min()
    }

    /// The state that the mechanisms store together.
    pub fn stored(&self) -> Stored {
        let endpoint = self.endpoint.iter().map(|mechanism| mechanism.stored());
        endpoint.chain(self.filters.iter().map(|filter| filter.stored())).fold(Stored::default(), |all, one| all + one)
    }

    fn len(&self) -> usize {
        self.endpoint.len() + self.filters.len()
    }

    fn mechanism(&mut self, index: usize) -> &mut dyn SegmentFilter {
        match index.checked_sub(self.endpoint.len()) {
            None => self.endpoint[index].as_mut(),
            Some(index) => self.filters[index].as_mut(),
        }
    }

    fn pass(
        &mut self,
        now: Instant,
        direction: Direction,
        packet: &mut Packet,
        way: impl Iterator<Item = usize>,
    ) -> Verdict {
        for index in way {
            let verdict = self.mechanism(index).handle_packet(now, direction, packet);
            if verdict != Verdict::Pass {
                return verdict;
            }
        }
        Verdict::Pass
    }

    /// Passes injected packets through the rest of the chain, which may inject more.
    fn collect(&mut self, now: Instant) {
        let mut index = 0;
        while index < self.len() {
            let mut is_seen_by_earlier = false;
            while let Some(mut injected) = self.mechanism(index).poll_transmit(now) {
                let direction = injected.direction;
                is_seen_by_earlier |= direction == Direction::Incoming;
                let verdict = match direction {
                    Direction::Outgoing => self.pass(now, direction, &mut injected.packet, index + 1..self.len()),
                    Direction::Incoming => self.pass(now, direction, &mut injected.packet, (0..index).rev()),
                };
                if verdict == Verdict::Pass {
                    self.ready.push_back(injected);
                }
            }
            index = if is_seen_by_earlier { 0 } else { index + 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use holdover_wire::Segment;

    use super::*;

    /// Answers each incoming packet, and optionally injects one on a link event.
    #[derive(Debug, Default)]
    struct Echo {
        begins: bool,
        ready: VecDeque<Injected>,
    }

    fn packet() -> Packet {
        Packet::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), Segment::default())
    }

    impl SegmentFilter for Echo {
        fn handle_packet(&mut self, _now: Instant, direction: Direction, _packet: &mut Packet) -> Verdict {
            if direction == Direction::Incoming {
                self.ready.push_back(Injected { direction: Direction::Outgoing, packet: packet() });
            }
            Verdict::Pass
        }

        fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {
            if self.begins {
                self.ready.push_back(Injected { direction: Direction::Incoming, packet: packet() });
            }
        }

        fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
            self.ready.pop_front()
        }
    }

    /// The upper mechanism answers a packet of the lower one within the same call.
    // Claim: An injected packet takes effect in a chain within the same call.
    #[test]
    fn an_injected_packet_is_answered_within_the_same_call() {
        let mut chain = Chain::new();
        chain.push(Box::new(Echo::default()));
        chain.push(Box::new(Echo { begins: true, ..Echo::default() }));
        chain.handle_link(Instant::ZERO, LinkEvent::Down);
        let made: Vec<Direction> = core::iter::from_fn(|| chain.poll_transmit()).map(|made| made.direction).collect();
        assert_eq!(made, [Direction::Incoming, Direction::Outgoing]);
    }
}
