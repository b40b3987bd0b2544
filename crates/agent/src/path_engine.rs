//! The interface between the daemon and the engines in the path of packets.
//!
//! The order of calls: [`PathEngine::handle_absent`], [`PathEngine::handle_link`], [`PathEngine::handle_ready`] when the descriptor is readable, or
//! [`PathEngine::handle_timeout`]; then [`PathEngine::poll_action`] and [`PathEngine::poll_outcome`] until `None`, then
//! [`PathEngine::poll_timeout`].

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use holdover_base::{Duration, Instant};
use holdover_mobility::silence::{Survey, Traffic};
use holdover_mobility::wake::WakeConfig;
use holdover_mobility::{Action, Connection, WakeOutcome};
use serde::{Deserialize, Serialize};

use crate::link_watch::{Families, LinkChange};

/// An engine in the path of an interface's packets, which acts for the connections over it. On drop it leaves the path
/// and releases everything held.
pub trait PathEngine {
    /// Its descriptor, readable when it has work; `None` if it has deadlines only.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Handles a change of the link.
    fn handle_link(&mut self, now: Instant, change: LinkChange);

    /// Sets the host's own addresses that it has lost. Connections on one that is back while the link is up are woken.
    fn handle_absent(&mut self, _now: Instant, _absent: &BTreeSet<IpAddr>) {}

    /// Handles its readable descriptor.
    fn handle_ready(&mut self, now: Instant);

    /// Handles a deadline that has passed.
    fn handle_timeout(&mut self, now: Instant);

    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The next action.
    fn poll_action(&mut self) -> Option<Action>;

    /// The next outcome of waking a connection.
    fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        None
    }

    /// When a connection would have resumed by this host's own retransmission timer, as of the last link-up: its expiry
    /// plus a round trip. `None` if no such timer ran, or it is unknown.
    fn alternative_at(&self, _connection: Connection) -> Option<Instant> {
        None
    }

    /// The last refusal of the kernel since the last call: packets then pass unchanged.
    fn poll_trouble(&mut self) -> Option<String> {
        None
    }

    /// The IP versions for which packets have arrived over a link that was reported down, so that the engine regards it
    /// as up.
    fn contradicts_down(&self) -> Families {
        Families::NONE
    }

    /// Its connections.
    fn connections(&mut self, now: Instant) -> Vec<PathConnection>;

    /// Its counters.
    fn counters(&self) -> Counters;

    /// The traffic counters for silence detection.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    /// The state of the connections, for silence detection.
    fn survey(&mut self) -> Survey {
        Survey::default()
    }

    /// Nothing has arrived since `since`: the next packet wakes the waiting connections.
    fn handle_silence(&mut self, _now: Instant, _since: Instant) {}

    /// A packet has arrived after a silence, or would: wakes the waiting connections.
    fn end_silence(&mut self, _now: Instant) {}

    /// Whether nothing has arrived since [`PathEngine::handle_silence`].
    fn is_silent(&self) -> bool {
        false
    }

    /// Sends the peer of a connection a segment that it answers at once, and that changes nothing (a keep-alive probe,
    /// RFC 9293 section 3.8.4).
    fn ask_peer(&mut self, _now: Instant, _connection: Connection) {}

    /// Exempts a connection, or ends the exemption.
    fn leave_alone(&mut self, connection: Connection, alone: bool);
}

/// Creates engines.
pub trait Attach {
    /// The engine.
    type Engine: PathEngine;
    /// The reason of a failure.
    type Error: std::error::Error;

    /// Whether engines can be attached to any interface at all. Called once, first.
    ///
    /// # Errors
    /// Something is permanently missing.
    fn check(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// When to retry after an error.
    fn retry(&self, _error: &Self::Error) -> Retry {
        Retry::Later
    }

    /// Attaches an engine to an interface.
    ///
    /// # Errors
    /// The kernel refuses, or the interface does not exist.
    fn attach(&mut self, interface: &str, config: &WakeConfig) -> Result<Self::Engine, Self::Error>;

    /// Attaches an engine, with its state, to the new interface of the same name. Not needed for engines that are not
    /// really in the path.
    ///
    /// # Errors
    /// As [`Attach::attach`], or the interface has another type than before.
    fn attach_again(&mut self, engine: &mut Self::Engine) -> Result<(), Self::Error> {
        let _ = engine;
        Ok(())
    }
}

/// When to retry attaching an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// Often: another agent manages the interface, and may end at any time.
    Soon,
    /// From time to time.
    Later,
    /// Not before the interface is replaced: this one cannot work.
    Never,
}

/// A connection in the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathConnection {
    /// Its addresses and ports.
    pub connection: Connection,
    /// Bytes of data sent.
    pub bytes_sent: u64,
    /// Bytes of data received.
    pub bytes_received: u64,
    /// Since when no packet has passed, if one ever has.
    pub idle: Option<Duration>,
    /// The round trip, queues included, if known.
    pub round_trip: Option<Duration>,
    /// Bytes whose ACK is held now, in both directions.
    pub held_bytes: u64,
    /// Whether it is exempt.
    pub is_exempt: bool,
}

/// Packet counters since the engine was attached.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Packets that passed.
    pub packets: u64,
    /// Of these, rewritten.
    pub rewritten: u64,
    /// Of these, withheld: ACKs superseded by later ones.
    pub held: u64,
    /// Packets injected.
    pub injected: u64,
    /// Packets injected that the kernel did not send.
    pub unsent: u64,
    /// Passed unchanged: IP fragments.
    pub fragments: u64,
    /// Passed unchanged: too many VLAN tags.
    pub vlan: u64,
    /// Passed unchanged: IPv6 with unsupported extension headers.
    pub extension_headers: u64,
    /// Passed unchanged: with a signature (TCP-MD5, TCP-AO).
    pub signed: u64,
    /// Passed unchanged: of Multipath TCP.
    pub multipath: u64,
    /// Passed unchanged: malformed, or not TCP.
    pub other: u64,
    /// Connections evicted because the table was full.
    pub evicted: u64,
    /// Packets of connections without room in the table.
    pub map_full: u64,
}

impl Counters {
    /// The sum of the counters of two engines.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            rewritten: self.rewritten + other.rewritten,
            held: self.held + other.held,
            injected: self.injected + other.injected,
            unsent: self.unsent + other.unsent,
            fragments: self.fragments + other.fragments,
            vlan: self.vlan + other.vlan,
            extension_headers: self.extension_headers + other.extension_headers,
            signed: self.signed + other.signed,
            multipath: self.multipath + other.multipath,
            other: self.other + other.other,
            evicted: self.evicted + other.evicted,
            map_full: self.map_full + other.map_full,
        }
    }
}
