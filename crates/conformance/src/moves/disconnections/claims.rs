//! The paper's claims, judged by the checks of its reproduction: of transfers between kernels, and of simulated ones.

use std::collections::BTreeMap;

use holdover_lab::reproduce::catalogue::Catalogue;
use holdover_lab::reproduce::judge::{self, Judged, Verdict};
use holdover_lab::reproduce::results;
use holdover_lab::reproduce::script::Scripts;
use serde::Serialize;

use super::{Cell, Repeat, Transferred, Transfers, Variant, published_amount};

/// The scenario of the paper's file in whose place these cells stand, and the experiments with claims about it.
const fn experiments(repeat: Repeat) -> (&'static str, &'static [&'static str]) {
    match repeat {
        Repeat::Once => ("grid", &["fig-10-tcp-hip", "fig-11-tcp-uto-hip", "fig-12-tcp-uto-rt-hip", "summary-4-1"]),
        Repeat::Periodic => ("fig-13-periodic", &["fig-13-periodic", "next-rto-after-reconnect"]),
    }
}

/// Claims whose checks need other cells than these: other times of the cut, shorter steps, or a transfer without a cut.
const NEED_MORE: [&str; 6] = [
    "abort-after-nine-retries",
    "finished-before-cut-no-abort",
    "cut-time-irrelevant",
    "seesaw-cause",
    "share-of-best-measured",
    "share-of-best-projected",
];

/// The verdicts on a claim.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Claim {
    /// Simulated, with the paper's amount, if that is another one than here.
    pub(super) in_full: Option<Verdict>,
    /// Simulated, with the amount of the transfers here.
    pub(super) simulated: Option<Verdict>,
    /// Here.
    #[serde(flatten)]
    pub(super) here: Judged,
}

/// Judges the claims about these cuts. Each check looks at all cells: there is no verdict if one is missing.
pub(super) fn judged(
    paper: &Catalogue,
    repeat: Repeat,
    [here, simulated, in_full]: [&Transfers; 3],
) -> Option<Vec<Claim>> {
    let [simulated, in_full] =
        [simulated, in_full].map(|it| verdicts(paper, repeat, it).unwrap_or_default().into_iter());
    let [mut simulated, mut in_full] = [simulated, in_full].map(|it| it.map(|claim| claim.verdict));
    let here = verdicts(paper, repeat, here)?.into_iter();
    Some(here.map(|here| Claim { in_full: in_full.next(), simulated: simulated.next(), here }).collect())
}

fn verdicts(paper: &Catalogue, repeat: Repeat, transfers: &Transfers) -> Option<Vec<Judged>> {
    let of_these = |cell: &&Cell| cell.cuts.repeat == repeat;
    let cells: Vec<&Cell> = transfers.keys().filter(of_these).collect();
    let amount = cells.first()?.amount;
    if cells.len() < Cell::all(amount).iter().filter(of_these).count() {
        return None;
    }
    let cells = cells.into_iter().map(|cell| results_of(*cell, &transfers[cell])).collect();
    let (scenario, experiments) = experiments(repeat);
    let results = BTreeMap::from([(scenario.to_owned(), results::Results { cells })]);
    let judged = judge::claims(paper, experiments, &Scripts::new(&results)).into_iter();
    let is_of_these = |it: &Judged| it.verdict != Verdict::NotCheckable && !NEED_MORE.contains(&&*it.id);
    Some(judged.filter(is_of_these).collect())
}

/// A cell as checks see it: as if the paper's amount had been transferred at the same rate.
fn results_of(cell: Cell, runs: &[Transferred]) -> results::Cell {
    let completed: Vec<_> = runs.iter().filter_map(|run| Some((run, run.net_time.seconds()?))).collect();
    let scale = published_amount(cell.cuts.repeat).0 as f64 / cell.amount.0 as f64;
    let idle = |run: &Transferred| {
        let count = run.idle_s.len();
        (count > 0).then(|| run.idle_s.iter().sum::<f64>() / count as f64)
    };
    let values = [
        ("net_duration", completed.iter().map(|(_, net_s)| net_s * scale).collect()),
        ("net_goodput", completed.iter().map(|(_, net_s)| cell.amount.bits() as f64 / net_s).collect()),
        ("idle_after_reconnection", completed.iter().filter_map(|(run, _)| idle(run)).collect()),
    ];
    let axes = [("connected", cell.cuts.connected_s), ("disconnected", cell.cuts.disconnected_s)];
    results::Cell {
        variant: name(cell).to_owned(),
        at: axes.map(|(axis, seconds)| (axis.to_owned(), seconds as f64)).into(),
        words: axes.map(|(axis, seconds)| (axis.to_owned(), format!("{seconds} s"))).into(),
        runs: runs.len(),
        completed: completed.len(),
        values: values.map(|(name, values)| (name.to_owned(), values)).into(),
    }
}

/// The paper's name: in figure 13 the trigger is without the user timeout.
const fn name(cell: Cell) -> &'static str {
    match (cell.cuts.repeat, cell.variant) {
        (Repeat::Periodic, Variant::Trigger) => "tcp-rt-hip",
        (_, variant) => variant.name(),
    }
}

#[cfg(test)]
mod tests {
    use holdover_base::ByteCount;

    use super::*;
    use crate::moves::disconnections::NetTime;

    const AMOUNT: ByteCount = ByteCount(100_000_000);

    fn paper() -> Catalogue {
        Catalogue::all(None).unwrap().into_iter().find(|paper| paper.name == "hip-uto-rt").unwrap()
    }

    /// What the paper prints of figure 13, at its rates.
    fn printed(amount: ByteCount) -> Transfers {
        let net_of = |cell: Cell| match cell.published().parse::<f64>() {
            Ok(rate) => NetTime::Completed(cell.amount.bits() as f64 / (rate * 1e6)),
            Err(_) if cell.variant == Variant::UserTimeout => NetTime::Unfinished,
            Err(_) => NetTime::Aborted,
        };
        let idle_s = |cell: Cell| if cell.cuts.disconnected_s == 37 { vec![4.0, 6.0] } else { vec![15.0, 25.0] };
        let cells = Cell::all(amount).into_iter().filter(|cell| cell.cuts.repeat == Repeat::Periodic);
        cells.map(|cell| (cell, vec![Transferred { net_time: net_of(cell), idle_s: idle_s(cell) }])).collect()
    }

    #[test]
    fn the_papers_own_numbers_satisfy_its_claims_whatever_the_amount() {
        for amount in [AMOUNT, published_amount(Repeat::Periodic)] {
            let printed = printed(amount);
            let claims = judged(&paper(), Repeat::Periodic, [&printed, &printed, &Transfers::new()]).unwrap();
            assert_eq!(claims.len(), 10);
            for Claim { here, simulated, in_full } in claims {
                assert_eq!(here.verdict, Verdict::Holds, "{}: {}", here.id, here.found);
                assert_eq!((simulated, in_full), (Some(Verdict::Holds), None));
            }
        }
    }

    #[test]
    fn nothing_is_judged_without_all_cells() {
        let mut some = printed(AMOUNT);
        some.pop_first();
        assert!(judged(&paper(), Repeat::Periodic, [&some, &some, &some]).is_none());
        assert!(judged(&paper(), Repeat::Once, [&some, &some, &some]).is_none());
    }

    #[test]
    fn single_disconnections_are_judged_too() {
        let cells = Cell::all(AMOUNT).into_iter().filter(|cell| cell.cuts.repeat == Repeat::Once);
        let net_time = |cell: Cell| match (cell.variant, cell.cuts.disconnected_s) {
            (Variant::Standard, 144..) => NetTime::Aborted,
            (Variant::Standard | Variant::UserTimeout, 39 | 78) => NetTime::Completed(30.0),
            (Variant::UserTimeout, 144..) => NetTime::Completed(110.0),
            (Variant::Standard | Variant::UserTimeout, _) => NetTime::Completed(101.0),
            (Variant::Trigger, _) => NetTime::Completed(25.0),
        };
        let transferred = |cell| Transferred { net_time: net_time(cell), idle_s: vec![3.0] };
        let printed: Transfers = cells.map(|cell| (cell, vec![transferred(cell)])).collect();
        let claims = judged(&paper(), Repeat::Once, [&printed; 3]).unwrap();
        assert_eq!(claims.len(), 12);
        assert!(claims.iter().all(|it| it.here.verdict == Verdict::Holds), "{claims:?}");
    }
}
