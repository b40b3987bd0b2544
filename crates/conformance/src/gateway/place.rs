//! The places of the grid.

use std::cmp::Reverse;
use std::fmt;

use holdover_base::Duration;
use holdover_link::{InFlightFate, OutagePolicy, QueuedFate};
use holdover_sim::OutageKind;
use holdover_transfers::{NetPath, Sender, TransferDirection, spaced};
use serde::Serialize;

use crate::grid::GridPlace;

/// How long mobile hosts are away.
const CUTS: [Duration; 5] = [
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(7),
    Duration::from_secs(20),
];
/// The same with `--long`.
const LONG_CUTS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(600)];

/// How the link to the mobile host fails.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Link {
    /// Packets are lost, and no interface shows it.
    Silent,
    /// The router and the mobile host lose carrier.
    Carrier,
}

/// The gateway on the router, if any.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mode {
    /// No gateway.
    Plain,
    /// The gateway with its default mode.
    Buffer,
    /// The gateway as the paper on M-TCP has it.
    MTcp,
    /// The gateway with connections that end at it.
    Split,
}

/// A place of the grid. Those without a cut are the reference for the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    pub(super) path: NetPath,
    pub(super) link: Link,
    pub(super) sender: Sender,
    pub(super) direction: TransferDirection,
    pub(super) cut: Option<Duration>,
    pub(super) mode: Mode,
}

/// The places whose name contains `only`, the plain ones beside them and their references; the longest first.
pub(super) fn places(path: NetPath, only: Option<&str>, with_long: bool) -> Vec<Place> {
    let mut places = Vec::new();
    let cuts = || CUTS.into_iter().chain(LONG_CUTS.into_iter().filter(|_| with_long));
    for link in Link::ALL {
        for sender in Sender::ALL {
            for direction in TransferDirection::ALL {
                let at = |mode, cut| Place { path, link, sender, direction, cut, mode };
                let cells = cuts().flat_map(|cut| Mode::ALL.map(|mode| at(mode, Some(cut))));
                let meant: Vec<Place> =
                    cells.filter(|place| only.is_none_or(|text| place.to_string().contains(text))).collect();
                places.extend(meant.iter().flat_map(|place| [at(Mode::Plain, place.cut), place.reference()]));
                places.extend(meant);
            }
        }
    }
    places.sort_by_key(|place| (Reverse(place.cut), *place));
    places.dedup();
    places
}

/// Within this after the mobile host's return new data arrive with the gateway: one and a half round trips.
pub(super) fn bound(path: NetPath) -> Duration {
    path.delay * 3
}

impl Link {
    pub(super) const ALL: [Self; 2] = [Self::Silent, Self::Carrier];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Carrier => "carrier",
        }
    }

    pub(super) const fn outage(self) -> OutageKind {
        match self {
            Self::Silent => OutageKind::Silent,
            Self::Carrier => OutageKind::Carrier,
        }
    }

    /// The fate of packets in the link's queue and in flight.
    pub(super) const fn policy(self) -> OutagePolicy {
        let queued = match self {
            // The transmitter continues to send; the frames are lost.
            Self::Silent => QueuedFate::Lost,
            Self::Carrier => QueuedFate::Dropped,
        };
        OutagePolicy { queued, in_flight: InFlightFate::Dropped }
    }
}

impl Mode {
    pub(super) const ALL: [Self; 4] = [Self::Plain, Self::Buffer, Self::MTcp, Self::Split];

    /// The name in tables and, but for `plain`, in the gateway's configuration.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Buffer => "buffer",
            Self::MTcp => "m-tcp",
            Self::Split => "split",
        }
    }

    /// Whether transfers have bounds to reach. The other modes are for comparison.
    pub(super) const fn has_bounds(self) -> bool {
        matches!(self, Self::Buffer)
    }
}

impl Place {
    /// Whether new data come later after the mobile host's return than they have to.
    pub(super) fn is_late(self, first_data: Option<Duration>) -> bool {
        first_data.is_none_or(|first| first > bound(self.path))
    }

    /// The same transfer without a cut and without the gateway.
    pub(super) fn reference(self) -> Self {
        Self { link: Link::Silent, cut: None, mode: Mode::Plain, ..self }
    }

    /// Whether both differ in nothing but the mode.
    pub(super) fn is_beside(self, other: Self) -> bool {
        Self { mode: Mode::Plain, ..self } == Self { mode: Mode::Plain, ..other }
    }
}

impl GridPlace for Place {
    /// Each run has a daemon of its own, as those of `--agent-links`.
    const JOBS: u16 = 6;

    fn has_bounds(self) -> bool {
        self.mode.has_bounds()
    }
}

/// Prints `silent, cubic, download, 3 s, buffer`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sender, direction) = (self.sender.congestion().name(), self.direction.name());
        match self.cut {
            Some(cut) => {
                write!(f, "{}, {sender}, {direction}, {}, {}", self.link.name(), spaced(cut), self.mode.name())
            }
            None => write!(f, "{sender}, {direction}, uncut"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_is_whole_and_a_part_of_it_has_what_it_is_measured_by() {
        let all = places(NetPath::DEFAULT, None, false);
        assert_eq!(all.len(), 2 * 3 * 2 * 5 * 4 + 3 * 2);
        assert_eq!(all[0].cut, Some(Duration::from_secs(20)), "the longest first");
        assert_eq!(places(NetPath::DEFAULT, None, true)[0].cut, Some(Duration::from_secs(600)));
        let names: Vec<String> = places(NetPath::DEFAULT, Some("carrier, bbr, upload, 7 s, m-tcp"), false)
            .iter()
            .map(Place::to_string)
            .collect();
        assert_eq!(
            names,
            ["carrier, bbr, upload, 7 s, plain", "carrier, bbr, upload, 7 s, m-tcp", "bbr, upload, uncut"]
        );
        assert!(places(NetPath::DEFAULT, Some("vegas"), true).is_empty());
    }
}
