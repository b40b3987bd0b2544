//! The state of a link, as the controller sets it.

use holdover_base::{Duration, Instant};

use crate::ffi;
use crate::layout::{self, HOLDS_BYTES, HOLDS_NEWEST, HOLDS_NOTHING, HOLDS_SEGMENTS, Link};

/// Packets in flight at link-down may still arrive for this long.
pub const LATE_ARRIVALS: Duration = Duration::from_nanos(layout::LATE_ARRIVALS as u64);

/// The lead of a [`Stall`] before the first sample of the round trip.
pub const USUAL_LEAD: Duration = Duration::from_nanos(layout::USUAL_LEAD as u64);

/// The longest lead of a [`Stall`].
pub const LONGEST_LEAD: Duration = Duration::from_nanos(layout::LONGEST_LEAD as u64);

/// The state of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkState {
    /// The time of link-down; set until held ACKs have been released.
    pub down_at: Option<Instant>,
    /// The time of the last link-up.
    pub up_at: Option<Instant>,
    /// The link is up, and held ACKs are not released yet.
    pub is_releasing: bool,
    /// Incoming packets are reported: they prove that the path carries packets.
    pub awaits_packets: bool,
    /// A cut is predicted.
    pub stall: Option<Stall>,
    /// The number of changes (down, or released): a round trip timed across one is discarded.
    pub epoch: u32,
    /// Nothing has arrived for a while: the next incoming packet is reported
    /// ([`Report::Incoming`](crate::Report::Incoming)).
    pub listens: bool,
    /// From this time on every packet passes unchanged: the controller has failed to renew the state.
    pub expires_at: Instant,
    /// How much of incoming ACKs is held back.
    pub holds: Holds,
    /// The largest window shown to senders, for hosts beyond the link, in bytes; 0 shuts it. `None` for no limit.
    pub most_window: Option<u32>,
    /// Incoming duplicate ACKs (RFC 5681 section 2) without new SACK blocks are withheld, for a second after the last new ACK.
    pub drops_duplicates: bool,
}

/// How much of the incoming ACKs is held back while the link is up, after
/// [`HoldBack::after_bytes`](crate::HoldBack::after_bytes).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Holds {
    /// The number of segments in [`Rules`](crate::Rules).
    #[default]
    Segments,
    /// Nothing.
    Nothing,
    /// Exactly this many bytes (M-TCP section 4.1 holds back one).
    Bytes(u32),
    /// The newest ACK, while data are outstanding (BUFFER-FREEZE section III.B).
    Newest,
}

/// No ACK passes, because a cut is predicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stall {
    /// The predicted time of the cut.
    pub cut_at: Instant,
    /// The latest end of the stall.
    pub until: Instant,
    /// How long before the cut the stall begins; `None` for a round trip of each flow, queues and a margin included.
    pub lead: Option<Duration>,
}

impl Default for LinkState {
    /// A link that is up and was never down.
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
            // A lead of 0 is stored as 1 ns.
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

    /// Whether the link is down.
    pub const fn is_down(&self) -> bool {
        self.is_down != 0
    }

    /// The time of link-down, if the link is down.
    pub const fn down_at(&self) -> Option<Instant> {
        if self.is_down() { Some(Instant::from_nanos(self.down_at)) } else { None }
    }

    /// Whether the link is up, without a change pending: only then are packets predicted.
    pub fn is_calm(&self) -> bool {
        ffi::is_calm(self)
    }
}
