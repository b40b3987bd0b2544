//! The places of the grid.

use std::fmt;

use holdover_base::Duration;
use holdover_transfers::{Help, NetPath, Sender, TRANSFER_TIME, Transfer, TransferDirection, spaced};

use crate::grid::GridPlace;

/// How long links are cut.
const CUTS: [Duration; 6] = [
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(7),
    Duration::from_secs(20),
    Duration::from_secs(40),
];

/// A place of the grid. Places without a cut are the reference for the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    pub(super) path: NetPath,
    pub(super) sender: Sender,
    pub(super) transfer: Transfer,
}

/// The places whose name contains `only`, and their references; the longest first.
pub(super) fn places(path: NetPath, only: Option<&str>) -> Vec<Place> {
    let mut places = Vec::new();
    for sender in Sender::ALL {
        for direction in TransferDirection::ALL {
            let at = |help, cut| Place { path, sender, transfer: Transfer { direction, help, cut } };
            let cells = CUTS.iter().flat_map(|&cut| Help::ALL.map(|help| at(help, Some(cut))));
            let meant: Vec<Place> =
                cells.filter(|place| only.is_none_or(|text| place.to_string().contains(text))).collect();
            if !meant.is_empty() {
                places.push(at(Help::Plain, None));
            }
            places.extend(meant.iter().map(|place| at(Help::Plain, place.transfer.cut)));
            places.extend(meant);
        }
    }
    places.sort_by_key(|place| (std::cmp::Reverse(place.transfer.cut), *place));
    places.dedup();
    places
}

/// A round trip and a full queue: within this, new data arrive after the link's return.
pub(super) fn soon(path: NetPath) -> Duration {
    path.round_trip() + path.full_queue()
}

impl GridPlace for Place {
    fn has_bounds(self) -> bool {
        self.transfer.help != Help::Plain
    }
}

/// Prints `cubic, download, 300 ms, warned`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sender = self.sender.congestion().name();
        let direction = self.transfer.direction.name();
        match self.transfer.cut {
            Some(cut) => {
                let cut = spaced(cut);
                write!(f, "{sender}, {direction}, {cut}, {}", self.transfer.help.name())
            }
            None => write!(f, "{sender}, {direction}, uncut"),
        }
    }
}

/// The traffic over the grid's links, in words.
pub(super) fn what_is_sent(path: NetPath) -> String {
    format!(
        "{:.1} MB over {} and {} of round trip",
        path.amount(TRANSFER_TIME).0 as f64 / 1e6,
        path.rate,
        spaced(path.round_trip())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_is_whole_and_a_part_of_it_has_what_it_is_measured_by() {
        let all = places(NetPath::DEFAULT, None);
        assert_eq!(all.len(), 3 * 2 * (6 * 3 + 1));
        assert_eq!(all[0].transfer.cut, Some(Duration::from_secs(40)), "the longest first");
        let names: Vec<String> =
            places(NetPath::DEFAULT, Some("bbr, upload, 7 s, warned")).iter().map(Place::to_string).collect();
        assert_eq!(names, ["bbr, upload, 7 s, plain", "bbr, upload, 7 s, warned", "bbr, upload, uncut"]);
        assert!(places(NetPath::DEFAULT, Some("vegas")).is_empty());
    }
}
