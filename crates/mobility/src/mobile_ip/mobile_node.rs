//! The mobile node (RFC 5944 section 3.6): registrations, and their lifetimes.

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use holdover_base::{Duration, Instant};

use super::message::{Code, Lifetime, Message};

/// How a mobile node registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MobileNodeConfig {
    /// Its home address.
    pub home: Ipv4Addr,
    /// Its home agent.
    pub home_agent: Ipv4Addr,
    /// The lifetime that it requests. It renews when half of the granted one has passed.
    pub lifetime: Lifetime,
    /// How long it waits for a reply before it retransmits its request; doubled each time (section 3.6.3).
    pub retransmit_after: Duration,
    /// The longest such wait.
    pub retransmit_at_most: Duration,
    /// The advertisements that it answers by a request.
    pub on: RegisterOn,
}

/// The advertisements that a mobile node answers by a registration request.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum RegisterOn {
    /// Those of a foreign agent with which it is not registered.
    #[default]
    NewCell,
    /// Every one of the foreign agent that it has chosen: bindings are refreshed.
    EveryBeacon,
}

/// A node's view of an advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct View {
    /// The agent that it is registered with still reaches it.
    pub reaches_current: bool,
    /// It prefers the new agent to the one that it is registered with.
    pub better_than_current: bool,
    /// It prefers the new agent to the one that it has sent a request to.
    pub better_than_asked: bool,
}

/// A change of a node's registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MobileEvent {
    /// It has sent a request.
    Requested {
        /// The foreign agent.
        agent: Ipv4Addr,
        /// The number of transmissions, from 1.
        attempts: u32,
    },
    /// Its request was accepted: it sends through this foreign agent from now on.
    Registered {
        /// The foreign agent.
        agent: Ipv4Addr,
    },
    /// Its request was denied; it repeats it at the next advertisement.
    Denied {
        /// The foreign agent.
        agent: Ipv4Addr,
        /// The reply's code.
        code: Code,
    },
    /// Its registration has expired.
    Expired {
        /// The foreign agent.
        agent: Ipv4Addr,
    },
}

/// A mobile node.
#[derive(Clone, Debug)]
pub struct MobileNode {
    config: MobileNodeConfig,
    registration: Option<Registration>,
    request: Option<Request>,
    /// A request was given up unanswered: the home agent may have granted it, so that the binding is unknown.
    unsure: bool,
    last_id: u64,
    transmits: VecDeque<(Message, Ipv4Addr)>,
    events: VecDeque<MobileEvent>,
}

#[derive(Clone, Copy, Debug)]
struct Registration {
    agent: Ipv4Addr,
    /// `None` if it does not expire.
    expires_at: Option<Instant>,
    /// When to renew it.
    renew_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    agent: Ipv4Addr,
    id: u64,
    sent_at: Instant,
    attempts: u32,
    wait: Duration,
    again_at: Instant,
}

impl MobileNode {
    /// A node without a registration.
    pub fn new(config: MobileNodeConfig) -> Self {
        Self {
            config,
            registration: None,
            request: None,
            unsure: false,
            last_id: 0,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// The foreign agent that it is registered with.
    pub fn agent(&self) -> Option<Ipv4Addr> {
        self.registration.map(|registration| registration.agent)
    }

    /// The foreign agent with a pending request.
    pub fn asked(&self) -> Option<Ipv4Addr> {
        self.request.map(|request| request.agent)
    }

    /// Registers without messages: for a node that is registered when a run begins.
    pub fn register_at(&mut self, now: Instant, agent: Ipv4Addr) {
        self.take(now, agent, self.config.lifetime);
    }

    /// Handles an advertisement of a foreign agent.
    pub fn handle_advertisement(&mut self, now: Instant, agent: Ipv4Addr, view: View) {
        let wants = match (self.request, self.agent()) {
            // One request at a time, unless a better agent appears.
            (Some(request), _) => request.agent != agent && view.better_than_asked,
            (None, Some(current)) if current == agent => self.unsure || self.config.on == RegisterOn::EveryBeacon,
            (None, Some(_)) if view.reaches_current => view.better_than_current,
            (None, _) => true,
        };
        if wants {
            self.ask(now, agent);
        }
    }

    /// Handles the loss of a foreign agent's link.
    pub fn handle_lost(&mut self, agent: Ipv4Addr) {
        if self.request.take_if(|request| request.agent == agent).is_some() {
            self.unsure = true;
        }
        if let Some(registration) = self.registration.as_mut().filter(|registration| registration.agent == agent)
            && registration.renew_at.take().is_some()
        {
            // No node receives the reply there: the next advertisement of that agent is answered.
            self.unsure = true;
        }
    }

    /// Handles a reply.
    pub fn handle_message(&mut self, now: Instant, message: Message) {
        let Message::Reply { code, lifetime, id, .. } = message else { return };
        let Some(request) = self.request.take_if(|request| request.id == id) else { return };
        let agent = request.agent;
        if !code.is_accepted() {
            self.unsure = true;
            return self.events.push_back(MobileEvent::Denied { agent, code });
        }
        self.unsure = false;
        // Section 3.6.2: counted from the transmission of the request.
        self.take(request.sent_at, agent, lifetime);
        if self.registration.is_some_and(|registration| registration.renew_at.is_some_and(|at| at <= now)) {
            self.unsure = true;
        }
        self.events.push_back(MobileEvent::Registered { agent });
    }

    /// Handles a deadline that has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let expired = |registration: &mut Registration| registration.expires_at.is_some_and(|at| at <= now);
        if let Some(Registration { agent, .. }) = self.registration.take_if(expired) {
            self.events.push_back(MobileEvent::Expired { agent });
        }
        if let Some(request) = self.request
            && request.again_at <= now
        {
            self.ask(now, request.agent);
        }
        if let Some(registration) = &mut self.registration
            && registration.renew_at.take_if(|at| *at <= now).is_some()
        {
            let agent = registration.agent;
            if self.request.is_none() {
                self.ask(now, agent);
            }
        }
    }

    /// The next message to send, and the foreign agent to send it to.
    pub fn poll_transmit(&mut self) -> Option<(Message, Ipv4Addr)> {
        self.transmits.pop_front()
    }

    /// The next change of the registration.
    pub fn poll_event(&mut self) -> Option<MobileEvent> {
        self.events.pop_front()
    }

    /// When to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let again = self.request.map(|request| request.again_at);
        let registration = self.registration.map(|registration| [registration.expires_at, registration.renew_at]);
        again.into_iter().chain(registration.into_iter().flatten().flatten()).min()
    }

    fn take(&mut self, from: Instant, agent: Ipv4Addr, lifetime: Lifetime) {
        let length = lifetime.length();
        self.registration = Some(Registration {
            agent,
            expires_at: length.map(|length| from + length),
            renew_at: length.map(|length| from + length / 2),
        });
    }

    /// Sends a request: the next of the same series, or the first of a new one.
    fn ask(&mut self, now: Instant, agent: Ipv4Addr) {
        let MobileNodeConfig { home, home_agent, lifetime, retransmit_after, retransmit_at_most, .. } = self.config;
        let request = match self.request.filter(|request| request.agent == agent) {
            Some(last) => {
                let wait = (last.wait * 2).min(retransmit_at_most.max(retransmit_after));
                Request { attempts: last.attempts + 1, wait, again_at: now + wait, sent_at: now, ..last }
            }
            None => {
                self.unsure |= self.request.is_some();
                self.last_id += 1;
                let wait = retransmit_after;
                Request { agent, id: self.last_id, attempts: 1, wait, again_at: now + wait, sent_at: now }
            }
        };
        self.request = Some(request);
        let message = Message::Request { home, home_agent, care_of: agent, lifetime, id: request.id };
        self.transmits.push_back((message, agent));
        self.events.push_back(MobileEvent::Requested { agent, attempts: request.attempts });
    }
}
