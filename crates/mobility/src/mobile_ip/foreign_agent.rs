//! The foreign agent (RFC 5944 section 3.7): it advertises itself, and relays registrations.

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use holdover_wire::Packet;

use super::message::{Advertisement, Lifetime, Message, advertisement};

/// A foreign agent. It keeps no list of visitors: its link layer knows whether a node is reachable.
#[derive(Clone, Debug)]
pub struct ForeignAgent {
    address: Ipv4Addr,
    sequence: u16,
    transmits: VecDeque<(Message, Towards)>,
    left: VecDeque<Ipv4Addr>,
}

/// The destination of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Towards {
    /// Another node, by the routes.
    Node(Ipv4Addr),
    /// A mobile node on the agent's own link.
    Visitor(Ipv4Addr),
}

impl ForeignAgent {
    /// An agent whose own address is the care-of address.
    pub fn new(address: Ipv4Addr) -> Self {
        Self { address, sequence: 0, transmits: VecDeque::new(), left: VecDeque::new() }
    }

    /// Its care-of address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The next advertisement. After 65535, sequence numbers continue from 256, so that a restart is recognized
    /// (section 2.3.2).
    pub fn advertise(&mut self, lifetime: Lifetime) -> Packet {
        let sequence = self.sequence;
        self.sequence = self.sequence.checked_add(1).unwrap_or(256);
        advertisement(Advertisement { agent: self.address, sequence, lifetime })
    }

    /// Handles a message.
    pub fn handle_message(&mut self, message: Message) {
        match message {
            Message::Request { home_agent, .. } => self.transmits.push_back((message, Towards::Node(home_agent))),
            Message::Reply { home, .. } => self.transmits.push_back((message, Towards::Visitor(home))),
            Message::Revocation { home, care_of, .. } if care_of == self.address => self.left.push_back(home),
            Message::Revocation { .. } => {}
        }
    }

    /// The next message to send, and its destination.
    pub fn poll_transmit(&mut self) -> Option<(Message, Towards)> {
        self.transmits.pop_front()
    }

    /// The next mobile node that has registered elsewhere, as reported by a home agent.
    pub fn poll_left(&mut self) -> Option<Ipv4Addr> {
        self.left.pop_front()
    }
}
