//! The places of the grid.

use std::fmt;
use std::time::Duration as WallDuration;

use holdover_base::Duration;
use holdover_transfers::NetPath;
use serde::Serialize;

use super::kinds::{KINDS, Kind, OVERLAP};
use crate::grid::GridPlace;

/// Bytes of a key, as ssh sends it; the interval of a held key, and the most keys without an echo.
pub(super) const KEY: u64 = 36;
pub(super) const KEY_EVERY: WallDuration = WallDuration::from_millis(50);
pub(super) const WITHOUT_ECHO: u64 = 20;
/// Its keys take 5 s.
pub(super) const KEYS: u64 = 120;

/// The default of [`MovesGrid::tolerance`](super::MovesGrid::tolerance): netlink, timers of kernels and four processes on two cores.
pub const TOLERANCE: Duration = Duration::from_millis(15);
/// Within this, 99 of 100 readdressings on a path that loses packets end.
pub(super) const LOSSY_BOUND: Duration = Duration::from_secs(1);

/// The use of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Use {
    /// Data from the server to the mobile host.
    Download,
    /// Data from the mobile host to the server.
    Upload,
    /// A held key, and its echoes.
    Keys,
    /// No connection: the exchange alone.
    Exchange,
}

/// The means that carries the connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Means {
    /// TCP between addresses.
    Plain,
    /// `holdover hip up --no-wake` at both ends.
    HipWithoutWake,
    /// `holdover hip up` at both ends.
    Hip,
    /// `wireguard-go` at both ends.
    #[serde(rename = "wire-guard")]
    WireGuardGo,
    /// The kernel's WireGuard at both ends.
    #[serde(rename = "kernel-wireguard")]
    WireGuard,
    /// MPTCP of the kernels between addresses.
    Multipath,
}

/// A place of the grid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// Its index in [`KINDS`].
    pub(super) kind: usize,
    pub(super) path: NetPath,
    pub(super) usage: Use,
    pub(super) means: Means,
    /// What the bounds allow the machine.
    pub(super) tolerance: Duration,
}

/// The places of all means whose name contains `only`, with the default tolerance; the longest moves first.
pub(super) fn places(path: NetPath, only: Option<&str>, long: bool) -> Vec<Place> {
    let mut places = Vec::new();
    for (index, kind) in KINDS.iter().enumerate().filter(|(_, kind)| long || !kind.is_long) {
        for &usage in kind.uses() {
            let means = Means::ALL.into_iter().filter(|means| means.can_follow(kind));
            let means = means.filter(|means| usage != Use::Exchange || *means == Means::Hip);
            places.extend(means.map(|means| Place { kind: index, path, usage, means, tolerance: TOLERANCE }));
        }
    }
    places.retain(|place| only.is_none_or(|text| place.to_string().contains(text)));
    places.sort_by_key(|place| std::cmp::Reverse((place.usage == Use::Exchange, place.kind().gap)));
    places
}

impl Kind {
    const fn uses(&self) -> &'static [Use] {
        if self.moves > 1 { &[Use::Exchange] } else { &[Use::Download, Use::Upload, Use::Keys] }
    }
}

impl Use {
    /// The name in tables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Download => "download",
            Self::Upload => "upload",
            Self::Keys => "key",
            Self::Exchange => "exchange",
        }
    }
}

impl Means {
    /// In the order of tables.
    pub const ALL: [Self; 6] =
        [Self::Plain, Self::HipWithoutWake, Self::Hip, Self::WireGuardGo, Self::WireGuard, Self::Multipath];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain TCP",
            Self::HipWithoutWake => "hip --no-wake",
            Self::Hip => "hip",
            Self::WireGuardGo => "wireguard-go",
            Self::WireGuard => "wireguard",
            Self::Multipath => "MPTCP",
        }
    }

    /// Whether it is compared there. The grid's set-up of the others knows one address of the server, and so has no path to it where that one
    /// changes or is of another IP version.
    fn can_follow(self, kind: &Kind) -> bool {
        let [from, to] = &kind.ends;
        let has_path = from.address.is_ipv4() == to.address.is_ipv4() && kind.server_to.is_none();
        has_path || !matches!(self, Self::WireGuardGo | Self::WireGuard | Self::Multipath)
    }

    pub(super) const fn is_hip(self) -> bool {
        matches!(self, Self::Hip | Self::HipWithoutWake)
    }
}

impl Place {
    pub(super) fn kind(&self) -> &'static Kind {
        &KINDS[self.kind]
    }

    /// Of the exchange: one and a half round trips. Where both hosts move, one of them learns the other one's address half a round trip later,
    /// with that one's announcement.
    pub(super) fn exchange_bound(&self) -> Duration {
        let delays = if self.kind().server_to.is_some() { 4 } else { 3 };
        self.path.delay * delays + self.tolerance
    }

    /// Of the first new data after the exchange: one and a half round trips.
    pub(super) fn data_bound(&self) -> Duration {
        self.path.delay * 3 + self.tolerance + if self.usage == Use::Keys { KEY_EVERY.into() } else { Duration::ZERO }
    }

    /// So long after the new address a connection that is silent is given up.
    pub(super) fn patience(&self) -> Duration {
        let gap = self.kind().gap.unwrap_or(OVERLAP);
        if self.means == Means::Plain { Duration::from_secs(10) } else { Duration::from_secs(30) + gap * 2 }
    }
}

impl GridPlace for Place {
    /// Each run has two or three daemons, or kernels' tunnels, which all encrypt.
    const JOBS: u16 = 3;

    /// The other means are for comparison.
    fn has_bounds(self) -> bool {
        self.means.is_hip()
    }

    fn waits(self) -> bool {
        self.kind().gap.is_some_and(|gap| gap >= Duration::from_secs(60))
    }
}

/// Prints `gap-1s, upload, hip`. Those with `--no-wake` are `gap-1s, upload, hip --no-wake`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.kind().name, self.usage.name(), self.means.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_gaps_are_measured_on_request() {
        let all = |long| places(NetPath::DEFAULT, None, long);
        assert_eq!(all(true).len() - all(false).len(), 3 * Means::ALL.len());
        assert!(places(NetPath::DEFAULT, Some("no such"), true).is_empty());
        for (kind, means) in [("gap-1s, key", 6), ("nat, key", 6), ("ipv4-to-ipv6, key", 3), ("both, key", 3)] {
            assert_eq!(places(NetPath::DEFAULT, Some(kind), false).len(), means, "{kind}");
        }
        let lossy = places(NetPath::DEFAULT, Some("lossy"), false);
        assert_eq!(lossy.iter().map(Place::to_string).collect::<Vec<_>>(), ["lossy, exchange, hip"]);
    }
}
