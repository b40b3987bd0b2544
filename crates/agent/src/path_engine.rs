//! What the daemon asks of whatever stands in the path of packets of one interface.
//!
//! The order of calls: [`PathEngine::handle_link`], [`PathEngine::handle_ready`] when the descriptor is readable, or
//! [`PathEngine::handle_timeout`]; then [`PathEngine::poll_action`] and [`PathEngine::poll_outcome`] until `None`, then
//! [`PathEngine::poll_timeout`].

use std::os::fd::BorrowedFd;

use holdover_base::{Duration, Instant};
use holdover_mobility::wake::WakeConfig;
use holdover_mobility::{Action, Connection, WakeOutcome};
use serde::{Deserialize, Serialize};

use crate::link_watch::silence::{Survey, Traffic};
use crate::link_watch::{Families, LinkChange};

/// Something that stands in the path of an interface's packets, and acts for the connections that cross it. When it is dropped it
/// stands there no more, and nothing that it has held is left.
pub trait PathEngine {
    /// Its descriptor, which is readable when it has something to do; `None` if it has deadlines only.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Something has become of the link.
    fn handle_link(&mut self, now: Instant, change: LinkChange);

    /// The descriptor is readable.
    fn handle_ready(&mut self, now: Instant);

    /// A deadline has passed.
    fn handle_timeout(&mut self, now: Instant);

    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The next thing that it has done.
    fn poll_action(&mut self) -> Option<Action>;

    /// The next outcome of waking a connection.
    fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        None
    }

    /// When a connection would have gone on by this host's own retransmission timer, as that stood when the link came up last: its
    /// expiry and a round trip. `None` if no such timer ran, or it is not known.
    fn alternative_at(&self, _connection: Connection) -> Option<Instant> {
        None
    }

    /// What it could not do since this was asked last, because the kernel did not let it: packets then pass as they are.
    fn poll_trouble(&mut self) -> Option<String> {
        None
    }

    /// The IP versions of which packets have come in over a link that it was told is down for them, so that it takes it for up.
    fn contradicts_down(&self) -> Families {
        Families::NONE
    }

    /// The connections that it knows.
    fn connections(&mut self, now: Instant) -> Vec<PathConnection>;

    /// What it has counted.
    fn counters(&self) -> Counters;

    /// What has passed, as far as it says whether the link is silent.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    /// What the connections say about a silence of the link.
    fn survey(&mut self) -> Survey {
        Survey::default()
    }

    /// Nothing has come in since then: the first packet that does is to wake what waits.
    fn handle_silence(&mut self, _now: Instant, _since: Instant) {}

    /// Something has come in after a silence, or would: what waits is woken.
    fn end_silence(&mut self, _now: Instant) {}

    /// Whether nothing has come in since [`PathEngine::handle_silence`].
    fn is_silent(&self) -> bool {
        false
    }

    /// Sends the peer of a connection what it answers at once, and what changes nothing (a keep-alive probe, RFC 9293 section 3.8.4).
    fn ask_peer(&mut self, _now: Instant, _connection: Connection) {}

    /// A connection is to be let alone, or not any more.
    fn leave_alone(&mut self, connection: Connection, alone: bool);
}

/// Puts engines in the path.
pub trait Attach {
    /// What stands in the path then.
    type Engine: PathEngine;
    /// Why it could not be put there.
    type Error: std::error::Error;

    /// Whether engines can be put in the path of any interface at all. Called once, before anything else.
    ///
    /// # Errors
    /// Something is missing that this process will not get.
    fn check(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// When it makes sense to try again after an error.
    fn retry(&self, _error: &Self::Error) -> Retry {
        Retry::Later
    }

    /// Puts one in the path of an interface.
    ///
    /// # Errors
    /// The kernel does not let it, or there is no such interface.
    fn attach(&mut self, interface: &str, config: &WakeConfig) -> Result<Self::Engine, Self::Error>;

    /// Puts one in the path of an interface that was gone and is there again under the same name; it has kept what it knows. Not
    /// needed where nothing is in the path in truth.
    ///
    /// # Errors
    /// As [`Attach::attach`], or it is not such an interface as before.
    fn attach_again(&mut self, engine: &mut Self::Engine) -> Result<(), Self::Error> {
        let _ = engine;
        Ok(())
    }
}

/// When to try again to put an engine in the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// Often: another agent has the interface, and may end at any time.
    Soon,
    /// From time to time.
    Later,
    /// Not before there is another interface of that name: with this one it cannot come right.
    Never,
}

/// A connection as the path has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathConnection {
    /// Its addresses and ports.
    pub connection: Connection,
    /// Bytes of data that went out.
    pub bytes_sent: u64,
    /// Bytes of data that came in.
    pub bytes_received: u64,
    /// Since when no packet has passed, if one ever has.
    pub idle: Option<Duration>,
    /// The round trip, queues included, if it is known.
    pub round_trip: Option<Duration>,
    /// Bytes whose ACK is held now, of either direction.
    pub held_bytes: u64,
    /// Whether it is let alone.
    pub is_exempt: bool,
}

/// What has become of packets, since the engine was put in the path.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Packets that passed.
    pub packets: u64,
    /// Of these, rewritten.
    pub rewritten: u64,
    /// Of these, kept from going on: ACKs that say less than the next one.
    pub held: u64,
    /// Packets that were made and sent.
    pub injected: u64,
    /// Packets that were made and that the kernel did not send.
    pub unsent: u64,
    /// Let alone: fragments of IP packets.
    pub fragments: u64,
    /// Let alone: more VLAN tags than are looked through.
    pub vlan: u64,
    /// Let alone: IPv6 with extension headers that are not looked through.
    pub extension_headers: u64,
    /// Let alone: what makes no sense, or is not TCP.
    pub other: u64,
    /// Connections that were forgotten because there were too many.
    pub evicted: u64,
    /// Packets of connections for which there was no room.
    pub map_full: u64,
}

impl Counters {
    /// The counters of two engines.
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
            other: self.other + other.other,
            evicted: self.evicted + other.evicted,
            map_full: self.map_full + other.map_full,
        }
    }
}
