//! The printed numbers of a paper, their counterparts in the reproduction, and their distance.

use std::collections::BTreeMap;

use super::catalogue::{Column, Experiment, Table};
use super::results::Results;
use super::script::Scripts;

/// A printed number and the reproduction's.
#[derive(Clone, PartialEq, Debug)]
pub struct Printed {
    /// The experiment.
    pub experiment: String,
    /// Its name within the experiment.
    pub what: String,
    /// The printed range; both ends are equal unless a range or a bound is printed.
    pub published: (f64, f64),
    /// The reproduction's range; `None` if there is no number.
    pub ours: Option<(f64, f64)>,
}

/// The ratio from which a number counts as badly as a missing one.
const AS_BAD_AS_MISSING: f64 = 2.0;

impl Printed {
    /// The absolute natural logarithm of the ratio of the reproduction's number to the printed one: 0 if it is within a printed range, or
    /// on the right side of a printed bound. `None` if there is no number, or it has the opposite sign.
    pub fn distance(&self) -> Option<f64> {
        let (low, high) = self.ours?;
        let off = |ours: f64| {
            let nearest = ours.clamp(self.published.0, self.published.1);
            let ratio = ours / nearest;
            if ours == nearest {
                Some(0.0)
            } else {
                Some(ratio.ln().abs()).filter(|off| off.is_finite() && ratio > 0.0)
            }
        };
        Some(off(low)?.max(off(high)?))
    }

    /// Its contribution to the loss, from 0 (met) to 1 (missing, or off by a factor of two or more).
    pub fn loss(&self) -> f64 {
        self.distance().map_or(1.0, |distance| (distance / AS_BAD_AS_MISSING.ln()).min(1.0))
    }

    /// Whether the difference is at most a tenth.
    pub fn is_close(&self) -> bool {
        self.distance().is_some_and(|distance| distance <= 1.1_f64.ln())
    }
}

/// The mean contribution: each printed number counts the same.
pub fn loss(numbers: &[Printed]) -> f64 {
    numbers.iter().map(Printed::loss).sum::<f64>() / numbers.len().max(1) as f64
}

/// Every number printed by the experiments that can be parsed. For a gain in percent, the corresponding ratio of times is compared.
pub fn of<'a>(
    experiments: impl Iterator<Item = &'a Experiment>,
    results: &BTreeMap<String, Results>,
    scripts: &Scripts,
) -> Vec<Printed> {
    let mut all = Vec::new();
    for experiment in experiments {
        for number in &experiment.numbers {
            let Some(published) = read(&number.published) else { continue };
            let ours = scripts.text(&number.ours, experiment.scenario.as_deref()).ok();
            all.push(Printed {
                experiment: experiment.id.clone(),
                what: number.what.clone(),
                published,
                ours: ours.and_then(|ours| read(&ours)),
            });
        }
        let of_scenario = experiment.scenario.as_ref().and_then(|scenario| results.get(scenario));
        if let (Some(table), Some(results)) = (&experiment.table, of_scenario) {
            all.extend(of_table(&experiment.id, table, results));
        }
    }
    all
}

/// Whether an experiment has printed numbers.
pub fn any(experiment: &Experiment) -> bool {
    experiment.table.is_some() || experiment.numbers.iter().any(|number| read(&number.published).is_some())
}

fn of_table(id: &str, table: &Table, results: &Results) -> Vec<Printed> {
    let mut all = Vec::new();
    for row in &table.rows {
        let Some(at) = table.number(row, &table.key) else { continue };
        for column in &table.columns {
            let Some(published) = table.number(row, &column.key) else { continue };
            let ours = ours(table, column, at, results);
            // A gain of g percent corresponds to a ratio of times of 1 - g/100 to 1.
            let compared = |value: f64| if column.against.is_some() { 1.0 - value / 100.0 } else { value };
            all.push(Printed {
                experiment: id.to_owned(),
                what: format!("{} at {} {}", column.title, table.axis, super::script::short(at)),
                published: (compared(published), compared(published)),
                ours: ours.map(compared).map(|ours| (ours, ours)),
            });
        }
    }
    all
}

/// The reproduction's number in a column of a published table: the mean over the completed runs.
pub fn ours(table: &Table, column: &Column, at: f64, results: &Results) -> Option<f64> {
    let of = |variant: &str| results.find(variant, &table.axis, at)?.mean(&column.metric);
    match &column.against {
        None => of(&column.variant),
        Some(base) => of(base).zip(of(&column.variant)).map(|(base, own)| (base - own) / base * 100.0),
    }
}

/// Parses `about 21`, `105 to 140`, `above 130`, `below 1/3`, `585 (from its rate)` as a range.
pub(super) fn read(text: &str) -> Option<(f64, f64)> {
    let text = text.split('(').next().unwrap_or_default().trim();
    let one = |text: &str| match text.trim().split_once('/') {
        Some((numerator, denominator)) => Some(numerator.parse::<f64>().ok()? / denominator.parse::<f64>().ok()?),
        None => text.trim().parse::<f64>().ok(),
    };
    if let Some(least) = text.strip_prefix("above ").and_then(one) {
        return Some((least, f64::INFINITY));
    }
    if let Some(most) = text.strip_prefix("below ").and_then(one) {
        return Some((0.0, most));
    }
    if let Some((low, high)) = text.split_once(" to ") {
        return one(low).zip(one(high));
    }
    one(text.strip_prefix("about ").unwrap_or(text)).map(|number| (number, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(published: &str, ours: &str) -> Printed {
        Printed {
            experiment: String::new(),
            what: String::new(),
            published: read(published).unwrap(),
            ours: read(ours),
        }
    }

    #[test]
    fn numbers_are_read_as_papers_print_them() {
        assert_eq!(read("about 21"), Some((21.0, 21.0)));
        assert_eq!(read("105 to 140"), Some((105.0, 140.0)));
        assert_eq!(read("above 130"), Some((130.0, f64::INFINITY)));
        assert_eq!(read("585 (from its rate)"), Some((585.0, 585.0)));
        assert_eq!(read("below 1/4"), Some((0.0, 0.25)));
        assert_eq!(read("some"), None);
    }

    #[test]
    fn the_loss_of_a_number_is_its_ratio_up_to_two() {
        assert_eq!(printed("105 to 140", "120").loss(), 0.0);
        assert_eq!(printed("105 to 140", "110 to 140").loss(), 0.0);
        assert!((printed("100", "110 to 130").loss() - (1.3_f64.ln() / 2.0_f64.ln())).abs() < 1e-12);
        assert!((printed("100", "50").loss() - printed("50", "100").loss()).abs() < 1e-12);
        assert_eq!(printed("100", "900").loss(), 1.0);
        assert_eq!(printed("100", "none").loss(), 1.0);
        assert_eq!(printed("above 130", "143").loss(), 0.0);
        assert!(printed("above 130", "120").loss() > 0.0);
        assert!(printed("100", "109").is_close() && !printed("100", "112").is_close());
    }
}
