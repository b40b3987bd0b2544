//! The places of the grid.

use std::fmt;

use holdover_base::{ByteCount, Duration};
use holdover_transfers::{Help, NetPath, Sender, spaced};

use super::kinds::{KINDS, Kind, Use};
use crate::grid::GridPlace;
use crate::routed::near_delay;

/// A message of one of many connections, and its answer.
pub(super) const MESSAGE: ByteCount = ByteCount(1000);
/// The bytes that IP, TCP with timestamps and the frame add to a message, with IPv6.
const HEADERS: u64 = 40 + 32 + 14;

/// A place of the grid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// Its index in [`KINDS`].
    pub(super) kind: usize,
    pub(super) path: NetPath,
    pub(super) cut: Duration,
    pub(super) sender: Sender,
    pub(super) usage: Use,
    pub(super) ipv6: bool,
    pub(super) help: Help,
}

/// The places whose name contains `only`, and the plain ones beside them; the longest outages first.
pub(super) fn places(path: NetPath, only: Option<&str>) -> Vec<Place> {
    let mut meant: Vec<Place> =
        all(path).filter(|place| only.is_none_or(|text| place.to_string().contains(text))).collect();
    let beside: Vec<Place> = meant.iter().map(|place| Place { help: Help::Plain, ..*place }).collect();
    meant.extend(beside);
    meant.sort_by_key(|place| (std::cmp::Reverse(place.lasts()), *place));
    meant.dedup();
    meant
}

fn all(path: NetPath) -> impl Iterator<Item = Place> {
    let mut places = Vec::new();
    for (index, kind) in KINDS.iter().enumerate() {
        for &cut in kind.cuts {
            for sender in Sender::ALL {
                for &usage in kind.uses() {
                    for ipv6 in [false, true].into_iter().filter(|&ipv6| kind.measures(ipv6)) {
                        let helps = Help::ALL.into_iter().filter(|&help| help != Help::Warned || kind.is_visible());
                        places.extend(helps.map(|help| Place { kind: index, path, cut, sender, usage, ipv6, help }));
                    }
                }
            }
        }
    }
    places.into_iter()
}

impl Place {
    pub(super) fn kind(&self) -> &'static Kind {
        &KINDS[self.kind]
    }

    /// From the loss of the link to when the path carries packets again.
    pub(super) fn lasts(&self) -> Duration {
        self.cut + self.kind().forwards_after
    }

    pub(super) const fn family(&self) -> &'static str {
        if self.ipv6 { "IPv6" } else { "IPv4" }
    }

    /// Within this from when the path carries, new data arrives with the agent: one and a half round trips, the queue that a
    /// transfer may find full, a round trip to the router where its address has to be found, and for many connections twice the
    /// time that the link takes for a message of each. After several cuts in quick succession downloads wait until the link has been up for
    /// longer than between them.
    pub(super) fn bound(&self) -> Duration {
        let queue = if self.usage == Use::Keys { Duration::ZERO } else { self.path.full_queue() };
        let resolution = if self.kind().has_neighbours() { near_delay(self.path) * 2 } else { Duration::ZERO };
        let between = self.kind().between(self.cut);
        let wait = if self.usage == Use::Download { between + between / 4 } else { Duration::ZERO };
        self.path.delay * 3 + queue + resolution + messages_take(*self) * 2 + wait
    }

    /// Whether both differ in nothing but the help.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        Self { help: Help::Plain, ..*self } == Self { help: Help::Plain, ..*other }
    }
}

impl GridPlace for Place {
    /// Each run has a daemon of its own, whose programs the kernel verifies meanwhile. With twelve jobs on two cores 153 of 180 cells
    /// reached their bounds, with six 177.
    const JOBS: u16 = 6;

    fn connections(self) -> u32 {
        self.kind().connections
    }

    fn has_bounds(self) -> bool {
        self.help != Help::Plain
    }
}

/// Prints `carrier, 3 s, cubic, upload, IPv6, warned`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, cut, sender) = (self.kind().name, spaced(self.cut), self.sender.congestion().name());
        write!(f, "{kind}, {cut}, {sender}, {}, {}, {}", self.usage.name(), self.family(), self.help.name())
    }
}

/// How long the link takes for a message of each connection, if there are many.
fn messages_take(place: Place) -> Duration {
    let connections = u64::from(place.kind().connections);
    if connections == 1 {
        return Duration::ZERO;
    }
    place.path.rate.transmission_time(ByteCount((MESSAGE.0 + HEADERS) * connections))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_there_and_a_part_of_the_grid_has_its_plain_runs() {
        let all = places(NetPath::DEFAULT, None);
        let families = |kind: &Kind| [false, true].into_iter().filter(|&ipv6| kind.measures(ipv6)).count();
        let of_kind = |kind: &Kind| {
            kind.cuts.len() * 3 * kind.uses().len() * families(kind) * if kind.is_visible() { 3 } else { 2 }
        };
        assert_eq!(all.len(), KINDS.iter().map(of_kind).sum::<usize>());
        assert!(all.is_sorted_by_key(|place| std::cmp::Reverse(place.lasts())));
        let names: Vec<String> = places(NetPath::DEFAULT, Some("carrier, 3 s, bbr, key, IPv6, warned"))
            .iter()
            .map(Place::to_string)
            .collect();
        assert_eq!(names, ["carrier, 3 s, bbr, key, IPv6, plain", "carrier, 3 s, bbr, key, IPv6, warned"]);
        assert!(
            places(NetPath::DEFAULT, Some("ethernet-silent")).iter().all(|place| place.help != Help::Warned),
            "no host can predict it"
        );
        assert!(places(NetPath::DEFAULT, Some("vegas")).is_empty());
    }
}
