//! What the flow path knows of the link.

use holdover_base::{Duration, Instant};

use crate::ffi;
use crate::layout::{HOLDS_BYTES, HOLDS_NEWEST, HOLDS_NOTHING, HOLDS_SEGMENTS, Link};

/// What a controller says of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkState {
    /// When it went down, if it is; until held ACKs have been released.
    pub down_at: Option<Instant>,
    /// When it came up the last time.
    pub up_at: Option<Instant>,
    /// It is up, and held ACKs are not released yet.
    pub is_releasing: bool,
    /// Incoming packets are reported: they prove that the path carries packets.
    pub awaits_packets: bool,
    /// A cut is foreseen.
    pub stall: Option<Stall>,
    /// How often it went down or was released: what was being timed before is no round trip.
    pub epoch: u32,
    /// Nothing has come in for a while: the next incoming packet is reported ([`Report::Incoming`](crate::Report::Incoming)).
    pub listens: bool,
    /// From then on every packet passes as it is: the controller should have renewed this.
    pub expires_at: Instant,
    /// What is held back of the ACKs that come in.
    pub holds: Holds,
    /// Senders are shown no larger window of hosts beyond the link, in bytes; 0 shuts it. `None` for any.
    pub most_window: Option<u32>,
    /// Duplicate ACKs (RFC 5681 section 2) that come in are withheld.
    pub drops_duplicates: bool,
}

/// How much of the ACKs that come in over the link is held back while it is up, after
/// [`HoldBack::after_bytes`](crate::HoldBack::after_bytes).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Holds {
    /// As many segments as [`Rules`](crate::Rules) say.
    #[default]
    Segments,
    /// Nothing.
    Nothing,
    /// Exactly so many bytes (M-TCP section 4.1 has one).
    Bytes(u32),
    /// The newest ACK, while data are outstanding (BUFFER-FREEZE section III.B).
    Newest,
}

/// No ACK passes, because a cut is foreseen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stall {
    /// When the link is to break.
    pub cut_at: Instant,
    /// When the stall ends at the latest.
    pub until: Instant,
    /// It begins so long before the cut; `None` for a round trip of each flow, queues and a margin included.
    pub lead: Option<Duration>,
}

impl Default for LinkState {
    /// A link that is up, and was never down.
    fn default() -> Self {
        Self {
            down_at: None,
            up_at: None,
            is_releasing: false,
            awaits_packets: false,
            stall: None,
            epoch: 0,
            listens: false,
            expires_at: Instant::FAR_FUTURE,
            holds: Holds::Segments,
            most_window: None,
            drops_duplicates: false,
        }
    }
}

impl Link {
    /// The state of a link as the flow path reads it.
    pub fn new(link: &LinkState) -> Self {
        let nanos = |at: Option<Instant>| at.map_or(0, Instant::as_nanos);
        let stall = link.stall.as_ref();
        let (holds, held_bytes) = match link.holds {
            Holds::Segments => (HOLDS_SEGMENTS, 0),
            Holds::Nothing => (HOLDS_NOTHING, 0),
            Holds::Bytes(bytes) => (HOLDS_BYTES, bytes),
            Holds::Newest => (HOLDS_NEWEST, 0),
        };
        Self {
            down_at: nanos(link.down_at),
            up_at: nanos(link.up_at),
            stall_cut_at: nanos(stall.map(|stall| stall.cut_at)),
            stall_until: nanos(stall.map(|stall| stall.until)),
            // A lead of nothing is one of 1 ns.
            stall_lead: stall.and_then(|stall| stall.lead).map_or(0, |lead| lead.as_nanos().max(1)),
            expires_at: link.expires_at.as_nanos(),
            epoch: link.epoch,
            is_down: link.down_at.is_some().into(),
            has_up: link.up_at.is_some().into(),
            is_releasing: link.is_releasing.into(),
            has_stall: stall.is_some().into(),
            awaits_packets: link.awaits_packets.into(),
            listens: link.listens.into(),
            holds: holds as u8,
            held_bytes,
            limits_window: link.most_window.is_some().into(),
            most_window: link.most_window.unwrap_or(0),
            drops_duplicates: link.drops_duplicates.into(),
            ..Self::default()
        }
    }

    /// Whether the link is said to be down.
    pub const fn is_down(&self) -> bool {
        self.is_down != 0
    }

    /// When the link went down, if it is said to be down.
    pub const fn down_at(&self) -> Option<Instant> {
        if self.is_down() { Some(Instant::from_nanos(self.down_at)) } else { None }
    }

    /// Whether nothing happens to the link, nor is about to: only then are packets predicted.
    pub fn is_calm(&self) -> bool {
        ffi::is_calm(self)
    }
}
