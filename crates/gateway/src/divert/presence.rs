//! The presence of one mobile host, from several sources that may disagree.

use core::fmt;

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;

use crate::stragglers::STRAGGLERS;

/// The source of a report about a mobile host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Source {
    /// The operator, or the operator's program.
    Command,
    /// The carrier of the mobile-facing interface.
    Carrier,
    /// The kernel's neighbour table: address resolution has failed.
    Neighbour,
    /// The access point's list of stations.
    Station,
    /// The forwarding table of a bridge.
    Bridge,
    /// The leases of a DHCP server.
    Lease,
    /// A WireGuard peer: unanswered data, handshakes, and changes of its endpoint.
    WireGuard,
    /// The mobile host itself.
    Registration,
    /// Unanswered packets, and unanswered probes (M-TCP's wintimer, section 4.1).
    Silence,
    /// Packets of the host left by an earlier process.
    Buffer,
    /// A sign in the host's packets by which it predicts its absence.
    Warning,
}

impl Source {
    /// All sources, in the order of their names in status output.
    pub const ALL: [Self; 11] = [
        Self::Command,
        Self::Carrier,
        Self::Neighbour,
        Self::Station,
        Self::Bridge,
        Self::Lease,
        Self::WireGuard,
        Self::Registration,
        Self::Silence,
        Self::Buffer,
        Self::Warning,
    ];

    /// Whether a report that the host is present is evidence in itself, and not only the withdrawal of an earlier
    /// report. A lease is not: when it is read, others may have reported later events.
    const fn proves_presence(self) -> bool {
        matches!(self, Self::Command | Self::Station | Self::WireGuard | Self::Registration)
    }

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// Prints `command`, `carrier`, `neighbour`, `station`, `bridge`, `lease`, `wireguard`, `registration`, `silence`, `buffer`,
/// `warning`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Command => "command",
            Self::Carrier => "carrier",
            Self::Neighbour => "neighbour",
            Self::Station => "station",
            Self::Bridge => "bridge",
            Self::Lease => "lease",
            Self::WireGuard => "wireguard",
            Self::Registration => "registration",
            Self::Silence => "silence",
            Self::Buffer => "buffer",
            Self::Warning => "warning",
        })
    }
}

/// The presence of a mobile host: the result of all reports, or the report of an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Standing {
    /// Packets for it get through.
    Present,
    /// Packets for it get through, and a source predicts that this will end.
    Fading,
    /// Packets for it are lost.
    Away,
    /// It is attached elsewhere; forwarded packets find it there.
    Moved,
}

impl Standing {
    /// As a report, without the time of a predicted absence.
    pub const fn to_presence(self) -> Presence {
        match self {
            Self::Present => Presence::Present,
            Self::Fading => Presence::Fading { lead: None },
            Self::Away => Presence::Away,
            Self::Moved => Presence::Moved,
        }
    }
}

/// Prints `present`, `fading`, `away`, `moved`.
impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Present => "present",
            Self::Fading => "fading",
            Self::Away => "away",
            Self::Moved => "moved",
        })
    }
}

/// How long a warning without a time holds.
const FADING: Duration = Duration::from_secs(10);

/// The reports about one mobile host. It is absent while at least one source reports so; a packet from it overrules
/// them all.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Reports {
    /// The sources that report it absent, as bits.
    objections: u16,
    away_since: Option<Instant>,
    fading_until: Option<Instant>,
    has_moved: bool,
    /// When its warning lapses, while that counts.
    warned_until: Option<Instant>,
    /// A warning has lapsed, and the host has not shown since that its link works.
    has_lapsed: bool,
}

impl Reports {
    pub(super) fn handle_report(&mut self, now: Instant, source: Source, presence: Presence) {
        match presence {
            Presence::Away => {
                if self.is_only_warned() {
                    // The absence begins now: it was heard since the warning.
                    self.away_since = None;
                }
                self.objections |= source.bit();
                self.away_since.get_or_insert(now);
            }
            Presence::Fading { lead } => self.fading_until = Some(now + lead.unwrap_or(FADING)),
            Presence::Moved => *self = Self { has_moved: true, ..Self::default() },
            Presence::Present | Presence::Rebound if source.proves_presence() => *self = Self::default(),
            Presence::Present | Presence::Rebound => {
                self.objections &= !source.bit();
                self.fading_until = None;
                if self.objections == 0 {
                    self.away_since = None;
                }
            }
        }
    }

    /// Handles a packet from the host. Ignored just after the host was reported absent, and between a warning and the
    /// absence.
    pub(super) fn handle_heard(&mut self, now: Instant) {
        if self.is_only_warned() {
            return;
        }
        match self.counts_from() {
            Some(from) if now < from => {}
            Some(_) => *self = Self { fading_until: self.fading_until, ..Self::default() },
            None => self.has_moved = false,
        }
    }

    /// Handles a sign by which the host predicts its absence. Returns when it lapses, if it is not a repetition.
    pub(super) fn handle_warning(&mut self, now: Instant, longest: Duration) -> Option<Instant> {
        self.handle_heard(now);
        if self.warned_until.is_some() || self.has_lapsed {
            return None;
        }
        self.objections |= Source::Warning.bit();
        self.away_since.get_or_insert(now);
        self.warned_until = Some(now + longest);
        self.warned_until
    }

    /// Handles a sign that the host's link works. Returns whether that ends a warning.
    pub(super) fn handle_working(&mut self, now: Instant) -> bool {
        let was_warned = self.warned_until.is_some();
        self.has_lapsed = false;
        if self.is_only_warned() {
            *self = Self { fading_until: self.fading_until, ..Self::default() };
        } else {
            self.handle_heard(now);
        }
        was_warned && self.warned_until.is_none()
    }

    /// Ends a warning that has held for too long. Returns whether there is one.
    pub(super) fn end_warning(&mut self, now: Instant) -> bool {
        if self.warned_until.take_if(|until| *until <= now).is_none() {
            return false;
        }
        self.objections &= !Source::Warning.bit();
        self.has_lapsed = true;
        if self.objections == 0 {
            self.away_since = None;
        }
        true
    }

    /// Whether the host has predicted its absence, and nothing shows that it has left.
    pub(super) const fn is_only_warned(&self) -> bool {
        self.objections == Source::Warning.bit()
    }

    pub(super) fn standing(&self, now: Instant) -> Standing {
        if self.objections != 0 {
            Standing::Away
        } else if self.has_moved {
            Standing::Moved
        } else if self.fading_until.is_some_and(|until| now < until) {
            Standing::Fading
        } else {
            Standing::Present
        }
    }

    /// Since when the host is absent; `None` if it is present.
    pub(super) fn away_since(&self) -> Option<Instant> {
        self.away_since
    }

    /// From when on a packet of the host means that it is back, if it is absent. If it was found silent, none of its
    /// packets was in flight.
    pub(super) fn counts_from(&self) -> Option<Instant> {
        let found = self.objections & !Source::Warning.bit();
        let stragglers = if found == Source::Silence.bit() { Duration::ZERO } else { STRAGGLERS };
        Some(self.away_since? + stragglers)
    }

    /// The sources that report it absent.
    pub(super) fn objections(&self) -> impl Iterator<Item = Source> + use<> {
        let bits = self.objections;
        Source::ALL.into_iter().filter(move |source| bits & source.bit() != 0)
    }
}
