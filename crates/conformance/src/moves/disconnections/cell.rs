//! The cells: what is transferred, when it is cut, and the mechanisms at both ends.

use std::fmt;
use std::time::Duration as WallDuration;

use holdover_base::ByteCount;
use serde::{Serialize, Serializer};

use super::{PATH, published_amount};
use crate::GridPlace;

/// The lengths of single disconnections, in seconds: a sample of the paper's, with short and long waits of its standard TCP, and two at which
/// that aborts.
pub(super) const SINGLE_S: [u64; 9] = [13, 26, 39, 52, 78, 91, 130, 156, 208];
/// Single disconnections begin after one of the paper's connected periods.
const CONNECTED_S: u64 = 10;
/// The periods of figure 13, in seconds.
pub(super) const PERIODIC_S: [(u64, u64); 6] = [(17, 37), (17, 67), (37, 37), (37, 67), (67, 37), (67, 67)];
/// The paper's standard TCP always aborts at longer single disconnections, in seconds (section 4.1.1).
const ALWAYS_ABORTS_BEYOND_S: u64 = 143;
/// At the end of a single disconnection the sender's timer may run for another 120 s, and the rest of the transfer takes 12 s. No transfer is
/// given up sooner.
const PATIENCE: WallDuration = WallDuration::from_secs(160);
/// The slowest transfer that the paper prints (37 s / 67 s) took 7.3 times as long as the link needs for its data.
pub(super) const MOST_TRANSMISSION_TIMES: u32 = 10;

/// How often a transfer is cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Repeat {
    /// Figures 10 to 12.
    Once,
    /// Figure 13.
    Periodic,
}

/// When the mobile host has no network: it has one for `connected_s`, none for `disconnected_s`, and then another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Cuts {
    /// How often.
    pub repeat: Repeat,
    /// The length of connected periods.
    pub connected_s: u64,
    /// The length of disconnected periods.
    pub disconnected_s: u64,
}

impl Cuts {
    /// One of the sample of single disconnections.
    pub const fn once(disconnected_s: u64) -> Self {
        Self { repeat: Repeat::Once, connected_s: CONNECTED_S, disconnected_s }
    }

    /// Alternating periods.
    pub const fn periodic(connected_s: u64, disconnected_s: u64) -> Self {
        Self { repeat: Repeat::Periodic, connected_s, disconnected_s }
    }

    /// The beginning and the end of each disconnection, from the beginning of the transfer on.
    pub fn times(self) -> impl Iterator<Item = [WallDuration; 2]> {
        let count = match self.repeat {
            Repeat::Once => 1,
            Repeat::Periodic => u64::MAX,
        };
        (0..count).map(move |done| {
            let cut_s = done * (self.connected_s + self.disconnected_s) + self.connected_s;
            [cut_s, cut_s + self.disconnected_s].map(WallDuration::from_secs)
        })
    }
}

/// Prints `52 s` for a single disconnection, and `37 s / 67 s` for periodic ones.
impl fmt::Display for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.repeat == Repeat::Periodic {
            write!(f, "{} s / ", self.connected_s)?;
        }
        write!(f, "{} s", self.disconnected_s)
    }
}

/// The mechanisms at both ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// `holdover hip up --no-wake`, without its hold of connections.
    Standard,
    /// The same, and a user timeout of 15 minutes, as in the paper.
    UserTimeout,
    /// `holdover hip up` as it is: with its retransmission trigger, and its hold of connections in place of the user timeout.
    Trigger,
}

impl Variant {
    /// In the order of columns.
    pub const ALL: [Self; 3] = [Self::Standard, Self::UserTimeout, Self::Trigger];

    /// The name in the paper's scenario of single disconnections.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "tcp-hip",
            Self::UserTimeout => "tcp-uto-hip",
            Self::Trigger => "tcp-uto-rt-hip",
        }
    }
}

/// A cell of the grid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Cell {
    /// When the transfer is cut.
    #[serde(flatten)]
    pub cuts: Cuts,
    /// What is transferred.
    #[serde(rename = "amount_bytes", serialize_with = "bytes")]
    pub amount: ByteCount,
    /// The mechanisms at both ends.
    pub variant: Variant,
}

impl Cell {
    /// All cells, the longest first. `amount` is transferred with periodic disconnections.
    pub fn all(amount: ByteCount) -> Vec<Self> {
        let single = SINGLE_S.map(|disconnected_s| (Cuts::once(disconnected_s), published_amount(Repeat::Once)));
        let periodic = PERIODIC_S.map(|(connected_s, s)| (Cuts::periodic(connected_s, s), amount));
        let cuts = single.into_iter().chain(periodic);
        let of_cuts = |(cuts, amount)| Variant::ALL.map(|variant| Self { cuts, amount, variant });
        let mut cells: Vec<Self> = cuts.flat_map(of_cuts).collect();
        cells.sort_by_key(|cell| std::cmp::Reverse(cell.at_best()));
        cells
    }

    /// The time of a transfer that uses all of its connected time.
    fn at_best(self) -> WallDuration {
        let mut end = WallDuration::from(PATH.rate.transmission_time(self.amount));
        for [cut, back] in self.cuts.times() {
            if cut >= end {
                break;
            }
            end += back - cut;
        }
        end
    }

    /// A transfer that takes longer is given up.
    pub(super) fn time_limit(self) -> WallDuration {
        match self.cuts.repeat {
            Repeat::Once => WallDuration::from_secs(self.cuts.connected_s + self.cuts.disconnected_s) + PATIENCE,
            Repeat::Periodic => {
                let needed = WallDuration::from(PATH.rate.transmission_time(self.amount));
                (needed * MOST_TRANSMISSION_TIMES).max(PATIENCE)
            }
        }
    }

    /// What the paper prints: net times in seconds for single disconnections, and Mbit/s of net time for periodic ones.
    pub(super) const fn published(self) -> &'static str {
        let Cuts { repeat, connected_s, disconnected_s } = self.cuts;
        match (repeat, self.variant, connected_s, disconnected_s) {
            (Repeat::Once, Variant::Standard, ..) if disconnected_s > ALWAYS_ABORTS_BEYOND_S => "aborts",
            (Repeat::Once, Variant::UserTimeout, ..) if disconnected_s > ALWAYS_ABORTS_BEYOND_S => "105 to 140",
            (Repeat::Once, Variant::Trigger, ..) => "24 to 27",
            (Repeat::Periodic, Variant::Standard, 17, _) => "aborts",
            (Repeat::Periodic, Variant::Standard, 37, 37) => "7.05",
            (Repeat::Periodic, Variant::Standard, 37, 67) => "3.85",
            (Repeat::Periodic, Variant::Standard, 67, 37) => "8.07",
            (Repeat::Periodic, Variant::Standard, 67, 67) => "6.27",
            (Repeat::Periodic, Variant::Trigger, 17, _) => "7.4",
            (Repeat::Periodic, Variant::Trigger, 37, 37) => "8.21",
            (Repeat::Periodic, Variant::Trigger, 37, 67) => "8.14",
            (Repeat::Periodic, Variant::Trigger, 67, 37) => "8.60",
            (Repeat::Periodic, Variant::Trigger, 67, 67) => "8.57",
            _ => "–",
        }
    }
}

/// Prints `52 s, tcp-hip`, and `37 s / 67 s, 100 MB, tcp-hip`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, ", self.cuts)?;
        if self.cuts.repeat == Repeat::Periodic {
            write!(f, "{}, ", megabytes(self.amount))?;
        }
        f.write_str(self.variant.name())
    }
}

fn bytes<S: Serializer>(amount: &ByteCount, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(amount.0)
}

/// An amount in decimal units, as the paper has them.
pub(super) fn megabytes(amount: ByteCount) -> String {
    format!("{} MB", amount.0 as f64 / 1e6)
}

impl GridPlace for Cell {
    /// Most of the time the runs are disconnected, or wait.
    const JOBS: u16 = 28;
    /// The longest ones take as long as all others in parallel.
    const RUNS_TOGETHER: bool = true;

    fn has_bounds(self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(cuts: Cuts, count: usize) -> Vec<[u64; 2]> {
        cuts.times().take(count).map(|times| times.map(|time| time.as_secs())).collect()
    }

    #[test]
    fn a_transfer_is_cut_once_or_again_and_again() {
        assert_eq!(seconds(Cuts::once(52), 9), [[10, 62]]);
        assert_eq!(seconds(Cuts::periodic(37, 67), 3), [[37, 104], [141, 208], [245, 312]]);
    }

    #[test]
    fn cells_are_named_by_their_cuts_amount_and_mechanisms() {
        let cells = Cell::all(ByteCount(100_000_000));
        assert_eq!(cells.len(), 3 * (SINGLE_S.len() + PERIODIC_S.len()));
        let names: Vec<String> = cells.iter().map(Cell::to_string).collect();
        for name in ["52 s, tcp-hip", "37 s / 67 s, 100 MB, tcp-uto-hip", "208 s, tcp-uto-rt-hip"] {
            assert!(names.iter().any(|it| it == name), "{names:?}");
        }
    }

    /// With all of its connected time 100 MB take 80 s: four disconnections between periods of 17 s, and one between those of 67 s.
    #[test]
    fn the_longest_cells_are_first() {
        let amount = ByteCount(100_000_000);
        let at_best = |cuts| Cell { cuts, amount, variant: Variant::Trigger }.at_best().as_secs();
        assert_eq!(at_best(Cuts::periodic(17, 67)), 80 + 4 * 67);
        assert_eq!(at_best(Cuts::periodic(67, 37)), 80 + 37);
        assert_eq!(at_best(Cuts::once(100)), 80 + 100);
        let cells = Cell::all(amount);
        assert_eq!(cells[0].cuts, Cuts::periodic(17, 67));
        assert!(cells.is_sorted_by_key(|cell| std::cmp::Reverse(cell.at_best())));
    }

    #[test]
    fn every_run_has_an_end() {
        let limit_s =
            |cuts, bytes| Cell { cuts, amount: ByteCount(bytes), variant: Variant::Standard }.time_limit().as_secs();
        assert_eq!(limit_s(Cuts::once(208), 25_000_000), 10 + 208 + 160);
        assert_eq!(limit_s(Cuts::periodic(37, 67), 100_000_000), 800);
        assert_eq!(limit_s(Cuts::periodic(1, 1), 1_000_000), 160);
    }

    /// The paper's rates are those of 600 MB in its net times.
    #[test]
    fn printed_rates_are_those_of_the_printed_times() {
        let of = |connected_s, disconnected_s, variant| {
            let cuts = Cuts::periodic(connected_s, disconnected_s);
            Cell { cuts, amount: ByteCount(1), variant }.published().parse::<f64>().unwrap()
        };
        for (connected_s, disconnected_s, variant, net_s) in [
            (37, 37, Variant::Standard, 680.0),
            (67, 37, Variant::Standard, 595.0),
            (67, 67, Variant::Standard, 765.0),
            (37, 67, Variant::Trigger, 590.0),
            (67, 37, Variant::Trigger, 558.0),
            (67, 67, Variant::Trigger, 560.0),
        ] {
            let rate = of(connected_s, disconnected_s, variant);
            assert!((rate - 4800.0 / net_s).abs() < 0.011, "{connected_s} s / {disconnected_s} s: {rate}");
        }
    }
}
