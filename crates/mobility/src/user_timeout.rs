//! **User timeout.** A connection is given up when data has not been acknowledged for too long. Each end alone decides how long that is,
//! and a few minutes of disconnection can exceed it. With the TCP User Timeout option (RFC 5482) one end can ask the other for more time.
//! The endpoint ([`holdover_tcp`]) has the option and its rules: the advertised time, whether the peer's advertisement may change the
//! timeout, and its limits. This is a policy for its use: keep the short timeout with which a host reclaims its resources, request a long
//! one when a disconnection is near, and return to the former one when that is over.
//!
//! It is over for a connection when the peer has acknowledged something since link-up, or nothing is outstanding. With a fixed time
//! instead, the former timeout could return before the sender's next retransmission, which has been backed off to up to two minutes, and
//! end the connection that the long one has saved.
//!
//! After Schuetz, Eggert, Schmid and Brunner, section 2.2, who name this use but no policy ("start short and ask for more when a
//! disconnection is near"). Their measurements have a fixed timeout of 15 min at both ends instead of the option.
//!
//! Failure modes: the option is not acknowledged, and is lost if it is sent as the link goes down; then the timeout is long at this end
//! only. A peer need not grant it. Afterwards, the option can request another time, but not withdraw the request: a peer without an earlier
//! request keeps the long timeout unless a later request is configured.

use std::collections::{BTreeMap, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_tcp::{ConnectionId, Endpoint};
use holdover_wire::{Packet, Seq};

use crate::{Action, Direction, EndpointMechanism, LinkEvent, SegmentFilter, Verdict};
use holdover_filter::Connection;

/// When a long user timeout is requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserTimeoutPolicyConfig {
    /// The long timeout, within the limits of the host's own TCP.
    pub long: Duration,
    /// The timeout advertised afterwards on connections that advertised none before; `None` for none.
    pub afterwards: Option<Duration>,
    /// How long after the disconnection the former timeout returns at the earliest: until then the next disconnection
    /// finds the long one in place.
    pub linger: Duration,
}

impl Default for UserTimeoutPolicyConfig {
    /// The paper's 15 min, nothing asked for afterwards, and ten seconds until then.
    fn default() -> Self {
        Self { long: Duration::from_secs(900), afterwards: None, linger: Duration::from_secs(10) }
    }
}

/// The mechanism. See the module's documentation.
#[derive(Clone, Debug)]
pub struct UserTimeoutPolicy {
    config: UserTimeoutPolicyConfig,
    /// The former timeouts of connections with the long one.
    former: BTreeMap<ConnectionId, Former>,
    /// The next task of `steer`.
    due: Option<Due>,
    return_at: Option<Instant>,
    /// It returns to each connection that resumes.
    returns: bool,
    actions: VecDeque<Action>,
}

#[derive(Clone, Copy, Debug)]
struct Former {
    timeout: Option<Duration>,
    advertise: Option<Duration>,
    changeable: bool,
    /// SND.UNA at link-up.
    una: Option<Seq>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    Raise,
    NoteProgress,
}

impl UserTimeoutPolicy {
    /// The name in scenario files.
    pub const NAME: &'static str = "user_timeout";

    /// A policy without state.
    pub fn new(config: UserTimeoutPolicyConfig) -> Self {
        Self { config, former: BTreeMap::new(), due: None, return_at: None, returns: false, actions: VecDeque::new() }
    }

    fn raise(&mut self, now: Instant, endpoint: &mut Endpoint) {
        // Closed connections need no former timeout.
        self.former.retain(|id, _| endpoint.connection(*id).is_some());
        let open = endpoint.connections().filter(|(_, tcp)| tcp.state().is_synchronized() && !tcp.is_closed());
        let ids: Vec<ConnectionId> = open.map(|(id, _)| id).filter(|id| !self.former.contains_key(id)).collect();
        for id in ids {
            let Some(tcp) = endpoint.connection_mut(id) else { continue };
            let settings = tcp.user_timeout_config();
            let (timeout, advertise, changeable) = (settings.timeout, settings.advertise, settings.changeable);
            let long = self.config.long.max(settings.lower_limit).min(settings.upper_limit);
            // Without a user timeout R2 decides, which may be longer, or unlimited.
            let is_short = timeout.or_else(|| tcp.r2_span()).is_some_and(|timeout| timeout < long);
            let asks = advertise.is_none_or(|advertised| advertised < long);
            if is_short {
                tcp.set_user_timeout(now, Some(long), changeable);
            }
            if asks {
                tcp.advertise_user_timeout(Some(long));
            }
            if !is_short && !asks {
                continue;
            }
            let former = Former { timeout, advertise, changeable, una: None };
            let connection = Connection { local: tcp.local(), remote: tcp.remote() };
            self.former.insert(id, former);
            self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "asked for long" });
        }
    }

    /// The link is up: progress counts from here.
    fn note_progress(&mut self, endpoint: &Endpoint) {
        for (id, former) in &mut self.former {
            former.una = endpoint.connection(*id).map(holdover_tcp::Connection::snd_una);
        }
    }

    /// Restores the former timeout of connections that have resumed.
    fn give_back(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let waits = |tcp: &holdover_tcp::Connection, former: &Former| {
            tcp.send_queue_len() > 0 && former.una.is_none_or(|una| tcp.snd_una() == una)
        };
        let has_resumed = |id: &ConnectionId, former: &mut Former| {
            endpoint.connection(*id).is_none_or(|tcp| tcp.is_closed() || !waits(tcp, former))
        };
        let those: Vec<(ConnectionId, Former)> = self.former.extract_if(.., has_resumed).collect();
        self.returns = !self.former.is_empty();
        for (id, former) in those {
            let Some(tcp) = endpoint.connection_mut(id).filter(|tcp| !tcp.is_closed()) else { continue };
            tcp.set_user_timeout(now, former.timeout, former.changeable);
            tcp.advertise_user_timeout(former.advertise.or(self.config.afterwards));
            let connection = Connection { local: tcp.local(), remote: tcp.remote() };
            self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "returned" });
        }
    }
}

impl SegmentFilter for UserTimeoutPolicy {
    fn handle_packet(&mut self, _now: Instant, _direction: Direction, _packet: &mut Packet) -> Verdict {
        Verdict::Pass
    }

    fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        match event {
            LinkEvent::Fading { .. } | LinkEvent::Down => {
                self.due = Some(Due::Raise);
                (self.return_at, self.returns) = (None, false);
            }
            LinkEvent::Recovered | LinkEvent::Up { .. } if !self.former.is_empty() => {
                self.due = Some(Due::NoteProgress);
                self.return_at = Some(now + self.config.linger);
            }
            LinkEvent::Recovered | LinkEvent::Up { .. } => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.returns |= self.return_at.take_if(|at| *at <= now).is_some();
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.return_at
    }
}

impl EndpointMechanism for UserTimeoutPolicy {
    fn steer(&mut self, now: Instant, endpoint: &mut Endpoint) {
        match self.due.take() {
            Some(Due::Raise) => self.raise(now, endpoint),
            Some(Due::NoteProgress) => self.note_progress(endpoint),
            None => {}
        }
        if self.returns {
            self.give_back(now, endpoint);
        }
    }

    fn fork_endpoint(&self) -> Option<Box<dyn EndpointMechanism>> {
        Some(Box::new(self.clone()))
    }
}
