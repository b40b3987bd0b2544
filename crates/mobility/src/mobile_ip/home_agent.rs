//! The home agent (RFC 5944 section 3.8): it grants registrations, and keeps the bindings of mobile nodes.

use core::net::Ipv4Addr;
use std::collections::{BTreeMap, VecDeque};

use holdover_base::Instant;

use super::message::{Code, Lifetime, Message};

/// A home agent.
#[derive(Clone, Debug)]
pub struct HomeAgent {
    address: Ipv4Addr,
    nodes: BTreeMap<Ipv4Addr, Node>,
    transmits: VecDeque<(Message, Ipv4Addr)>,
    events: VecDeque<HomeEvent>,
}

/// A mobile node that the agent serves.
#[derive(Clone, Copy, Debug)]
struct Node {
    longest: Lifetime,
    revokes: bool,
    binding: Option<Binding>,
}

#[derive(Clone, Copy, Debug)]
struct Binding {
    care_of: Ipv4Addr,
    /// `None` if it does not expire.
    expires_at: Option<Instant>,
}

/// A change of a mobile node's binding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HomeEvent {
    /// The node is bound to a care-of address, newly or again.
    Bound {
        /// The node.
        home: Ipv4Addr,
        /// The care-of address.
        care_of: Ipv4Addr,
        /// The previous one.
        before: Option<Ipv4Addr>,
    },
    /// The node has deregistered.
    Deregistered {
        /// The node.
        home: Ipv4Addr,
    },
    /// The lifetime of the node's binding has passed (section 3.8.3.1).
    Expired {
        /// The node.
        home: Ipv4Addr,
    },
}

impl HomeAgent {
    /// An agent without nodes.
    pub fn new(address: Ipv4Addr) -> Self {
        Self { address, nodes: BTreeMap::new(), transmits: VecDeque::new(), events: VecDeque::new() }
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The care-of address of a node; `None` without a binding.
    pub fn care_of(&self, home: Ipv4Addr) -> Option<Ipv4Addr> {
        self.nodes.get(&home)?.binding.map(|binding| binding.care_of)
    }

    /// Serves a mobile node from now on, with lifetimes up to `longest`. With `revokes`, the former foreign agent is
    /// notified (RFC 3543).
    pub fn serve(&mut self, home: Ipv4Addr, longest: Lifetime, revokes: bool) {
        self.nodes.insert(home, Node { longest, revokes, binding: None });
    }

    /// Binds a node without a message: for one that is registered when a run begins.
    pub fn bind(&mut self, now: Instant, home: Ipv4Addr, care_of: Ipv4Addr) {
        if let Some(node) = self.nodes.get_mut(&home) {
            let expires_at = node.longest.length().map(|length| now + length);
            node.binding = Some(Binding { care_of, expires_at });
        }
    }

    /// Handles a message that arrived through the foreign agent with address `from`.
    pub fn handle_message(&mut self, now: Instant, from: Ipv4Addr, message: Message) {
        let Message::Request { home, home_agent, care_of, lifetime, id } = message else { return };
        if home_agent != self.address {
            return;
        }
        let reply = |code, lifetime| Message::Reply { code, home, home_agent, lifetime, id };
        let Some(node) = self.nodes.get_mut(&home) else {
            return self.transmits.push_back((reply(Code::PROHIBITED, Lifetime::ZERO), from));
        };
        // Section 3.8.3.2: no longer than requested.
        let granted = lifetime.min(node.longest);
        let expires_at = granted.length().map(|length| now + length);
        let binding = (granted != Lifetime::ZERO).then_some(Binding { care_of, expires_at });
        let before = core::mem::replace(&mut node.binding, binding).map(|before| before.care_of);
        let left = before.filter(|&before| binding.is_some_and(|_| before != care_of) && node.revokes);
        if let Some(old) = left {
            self.transmits.push_back((Message::Revocation { home, home_agent, care_of: old }, old));
        }
        self.transmits.push_back((reply(Code::ACCEPTED, granted), from));
        self.events.push_back(match binding {
            Some(_) => HomeEvent::Bound { home, care_of, before },
            None => HomeEvent::Deregistered { home },
        });
    }

    /// Removes bindings whose lifetime has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        for (&home, node) in &mut self.nodes {
            let is_over = |binding: &mut Binding| binding.expires_at.is_some_and(|at| at <= now);
            if node.binding.take_if(is_over).is_some() {
                self.events.push_back(HomeEvent::Expired { home });
            }
        }
    }

    /// The next message to send, and its destination.
    pub fn poll_transmit(&mut self) -> Option<(Message, Ipv4Addr)> {
        self.transmits.pop_front()
    }

    /// The next change of a binding.
    pub fn poll_event(&mut self) -> Option<HomeEvent> {
        self.events.pop_front()
    }

    /// When the next binding expires.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.nodes.values().filter_map(|node| node.binding?.expires_at).min()
    }
}
