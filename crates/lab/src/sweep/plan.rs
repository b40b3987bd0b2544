//! The plan of a sweep, checked before any run.

use std::collections::BTreeMap;
use std::hash::Hasher;

use holdover_report::{FlowMetrics, StatusName};
use holdover_scenario::statistics::Mean;
use holdover_scenario::{Compare, Measure, Metric, Point, Scenario, ScenarioError, Subject, Sweep, Variant};
use holdover_sim::{Amount, RequestResponse, Traffic, World, WorldConfig, WorldError};

use super::columns::label_in_the_way;
use super::journal::{Header, Row};
use super::measure::Quantity;
use crate::run::in_order;

/// Errors of a plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The scenario has an error, as written or at one of its points.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
    /// The scenario has no `[sweep]`.
    #[error(
        "{name}: there is nothing to sweep; say what to vary:\n\n    [[sweep.axis]]\n    path = \"link.radio.delay\"\n    \
         values = [\"10 ms\", \"50 ms\"]\n\nor how often to repeat the run:\n\n    [sweep.replicate]\n    min = 10\n"
    )]
    NothingToSweep {
        /// The scenario.
        name: String,
    },
    /// A world of the scenario cannot be built.
    #[error("{name}: {error} (variant \"{variant}\" at {point})")]
    World {
        /// The scenario.
        name: String,
        /// The point, in words.
        point: String,
        /// The variant.
        variant: String,
        /// The cause.
        error: Box<WorldError>,
    },
    /// The tables would have two columns with the same name.
    #[error(
        "{name}: sweep.axis: the label \"{label}\" is the name of a column in the tables; give the axis another label"
    )]
    Label {
        /// The scenario.
        name: String,
        /// The label.
        label: String,
    },
}

/// A variant at a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// The index of the point.
    pub point: usize,
    /// The index of the variant.
    pub variant: usize,
}

/// The plan of a sweep.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The scenario.
    pub scenario: Scenario,
    /// Its sweep.
    pub sweep: Sweep,
    /// The names of the variants.
    pub variants: Vec<String>,
    /// The stopping rule of cells.
    pub stop: Stop,
    /// The quantities averaged over runs; the first one determines the number of runs.
    pub quantities: Vec<Quantity>,
    kinds: Kinds,
}

/// The stopping rule of a cell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stop {
    /// The minimum number of runs.
    pub min: u32,
    /// The maximum number of runs.
    pub max: u32,
    /// The bound on the relative error of the mean; `None` for exactly `min` runs.
    pub relative_error: Option<f64>,
}

/// Properties of each cell, found when its world was built; most cells share them.
#[derive(Clone, Default, Debug)]
struct Kinds {
    kinds: Vec<Kind>,
    of_cell: Vec<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Kind {
    /// Whether each of its flows is finite.
    must_end: Vec<bool>,
    /// Whether its runs contain randomness.
    is_random: bool,
}

/// A finished run, reduced to its quantities.
#[derive(Clone, PartialEq, Debug)]
pub struct Finished {
    /// No flow failed, and all finite flows completed.
    pub completed: bool,
    /// The value of each of the plan's quantities.
    pub values: Vec<Option<f64>>,
}

impl Plan {
    /// The plan of `scenario`. The world of every variant at every point is built once, on `jobs` threads, as a check.
    ///
    /// # Errors
    ///
    /// If there is nothing to sweep, or one of the worlds cannot be built.
    pub fn new(scenario: Scenario, jobs: usize) -> Result<Self, PlanError> {
        let mut plan = Self::of_checked(scenario)?;
        plan.kinds = plan.check(jobs)?;
        Ok(plan)
    }

    /// The plan of a scenario that [`Self::new`] has checked elsewhere. It supports making runs and the columns of tables, but not
    /// [`Finished::completed`].
    ///
    /// # Errors
    ///
    /// If the scenario has no sweep.
    pub fn of_checked(scenario: Scenario) -> Result<Self, PlanError> {
        let name = || scenario.name().to_owned();
        let Some(sweep) = scenario.sweep().cloned() else {
            return Err(PlanError::NothingToSweep { name: name() });
        };
        let quantities = quantities(&sweep);
        if let Some(label) = label_in_the_way(&sweep, &quantities) {
            return Err(PlanError::Label { name: name(), label });
        }
        let replicate = sweep.replicate();
        let stop = Stop { min: replicate.min, max: replicate.max, relative_error: replicate.relative_error };
        let variants = scenario.variants().iter().map(|variant| variant.name().to_owned()).collect();
        Ok(Self { variants, stop, quantities, sweep, scenario, kinds: Kinds::default() })
    }

    /// The file name of the scenario, without directory and extension.
    pub fn name(&self) -> &str {
        let name = self.scenario.name();
        std::path::Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or(name)
    }

    /// Builds every world and returns the properties of the cells.
    fn check(&self, jobs: usize) -> Result<Kinds, PlanError> {
        let check = |point| self.check_point(&self.point(point));
        in_order(self.points(), jobs, check, |points| {
            let mut kinds = Kinds::default();
            for of_point in points {
                of_point?.into_iter().for_each(|of_cell| kinds.push(of_cell));
            }
            Ok(kinds)
        })
    }

    fn check_point(&self, point: &Point) -> Result<Vec<Kind>, PlanError> {
        let there = self.scenario.at(point)?;
        let of_variant = |variant: &Variant| {
            let world = variant.world(there.seed())?;
            let kind = Kind {
                must_end: world.flows.iter().map(|flow| has_something_to_complete(&flow.traffic)).collect(),
                is_random: world.is_random(),
            };
            World::check(&world).map_err(|error| PlanError::World {
                name: self.scenario.name().to_owned(),
                point: point_in_words(point),
                variant: variant.name().to_owned(),
                error: Box::new(error),
            })?;
            Ok(kind)
        };
        there.variants().iter().map(of_variant).collect()
    }

    /// Whether it has runs that differ in outages only, and needs all of them.
    pub(super) fn has_families(&self) -> bool {
        self.stop.min == self.stop.max && self.sweep.axes().iter().any(|axis| is_of_outages(&axis.path))
    }

    /// The number of points.
    pub fn points(&self) -> usize {
        self.sweep.len()
    }

    /// The point with this index.
    pub fn point(&self, index: usize) -> Point {
        self.sweep.point(index)
    }

    /// The number of cells; their order is by point, then by variant.
    pub fn cells(&self) -> usize {
        self.points() * self.variants.len()
    }

    /// The cell with this index.
    pub const fn cell(&self, index: usize) -> Cell {
        Cell { point: index / self.variants.len(), variant: index % self.variants.len() }
    }

    /// The index of a cell.
    pub const fn index(&self, cell: Cell) -> usize {
        cell.point * self.variants.len() + cell.variant
    }

    /// The seed of the `run`th run of any cell, from 0.
    pub fn seed(&self, run: u32) -> u64 {
        self.scenario.replication_seed(run)
    }

    /// The world of a cell's `run`th run. `scenario` is the plan's at the cell's point.
    pub fn world(&self, scenario: &Scenario, variant: usize, run: u32) -> Result<WorldConfig, ScenarioError> {
        let world = scenario.variants()[variant].world(self.seed(run))?;
        // The samples are not used.
        Ok(WorldConfig { sample_every: None, ..world })
    }

    /// The comparison; `None` if there is only one variant.
    pub const fn compare(&self) -> Option<&Compare> {
        self.sweep.compare()
    }

    /// The index of a measure among the quantities.
    pub fn quantity(&self, measure: &Measure) -> usize {
        self.quantities.iter().position(|quantity| quantity.0 == *measure).unwrap_or_default()
    }

    /// The indices of the main quantities: the one that determines the number of runs, and the compared one.
    pub fn measured_in_full(&self) -> Vec<usize> {
        let compared = self.compare().map(|compare| self.quantity(&compare.measure));
        std::iter::once(0).chain(compared.filter(|&quantity| quantity != 0)).collect()
    }

    /// The names of the quantities, in order.
    pub fn quantity_names(&self) -> impl Iterator<Item = String> {
        self.quantities.iter().map(Quantity::name)
    }

    /// Adds every metric of each of these flows or links to the quantities.
    pub fn measure_each(&mut self, subject: Subject, names: &[&str]) {
        for name in names {
            let metrics = Metric::ALL.iter().filter(|metric| metric.subject() == subject);
            let of_it = |&metric: &Metric| Quantity(Measure { metric, flow: Some((*name).to_owned()) });
            self.quantities.extend(metrics.map(of_it));
        }
    }

    /// Reduces a cell's run to its quantities.
    pub fn reduce(&self, cell: usize, row: &Row) -> Finished {
        let must_end = self.kinds.of(cell).map(|kind| &kind.must_end);
        let ended = |(index, flow): (usize, &FlowMetrics)| match flow.status {
            StatusName::Completed => true,
            StatusName::Failed => false,
            StatusName::Unfinished => !must_end.and_then(|flows| flows.get(index)).copied().unwrap_or(true),
        };
        Finished {
            completed: row.flows.iter().enumerate().all(ended),
            values: self.quantities.iter().map(|quantity| quantity.of(row)).collect(),
        }
    }

    /// Whether a cell's runs contain randomness.
    pub fn is_random(&self, cell: usize) -> bool {
        self.kinds.of(cell).is_none_or(|kind| kind.is_random)
    }

    /// A run's value of the quantity that determines the number of runs.
    pub fn deciding(&self, row: &Row) -> Option<f64> {
        self.quantities.first()?.of(row)
    }

    /// The header that a journal must match to be continued.
    pub fn header(&self) -> Header {
        let files: BTreeMap<String, String> =
            self.scenario.files().map(|(name, text)| (name.to_owned(), fingerprint(text))).collect();
        Header {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seed: self.scenario.seed(),
            scenario: self.scenario.to_toml(),
            files,
        }
    }
}

impl Kinds {
    fn push(&mut self, of_cell: Kind) {
        let kind = self.kinds.iter().position(|kind| *kind == of_cell).unwrap_or_else(|| {
            self.kinds.push(of_cell);
            self.kinds.len() - 1
        });
        self.of_cell.push(kind as u32);
    }

    fn of(&self, cell: usize) -> Option<&Kind> {
        self.kinds.get(*self.of_cell.get(cell)? as usize)
    }
}

impl Stop {
    /// Whether the first `runs` runs of a cell, with this mean, suffice. `is_random` states whether they contain randomness.
    pub fn is_met(&self, runs: u32, mean: &Mean, is_random: bool) -> bool {
        let is_known = self.is_precise(mean, is_random).is_none_or(|is_precise| {
            // A few values can be close together by chance. A quantity absent from all runs so far will be absent from
            // further ones.
            (is_precise && mean.count() >= u64::from(self.min)) || mean.count() == 0
        });
        runs >= self.max || (runs >= self.min && is_known)
    }

    /// Whether the mean is within the bound; `None` if there is no bound.
    pub fn is_precise(&self, mean: &Mean, is_random: bool) -> Option<bool> {
        let bound = self.relative_error?;
        Some(mean.count() >= 2 && relative_error(mean, is_random).is_some_and(|error| error <= bound))
    }

    /// The estimated total number of runs after the first `runs` did not suffice. The width of an interval shrinks with the square root of
    /// the number of runs.
    pub fn expected(&self, runs: u32, mean: &Mean, is_random: bool) -> u32 {
        let Some(bound) = self.relative_error else { return self.min };
        if runs < self.min {
            return self.min;
        }
        let expected = match relative_error(mean, is_random) {
            Some(error) => (f64::from(runs) * (error / bound).powi(2)).ceil().min(f64::from(self.max)) as u32,
            None => self.max,
        };
        expected.clamp(runs.saturating_add(1).min(self.max), self.max)
    }
}

/// The mean of a quantity over the runs that it applies to.
pub(super) fn mean_of(runs: &[Finished], quantity: usize) -> Mean {
    runs.iter().filter_map(|run| run.values[quantity]).collect()
}

/// The relative error of a mean; `None` if unknown. With randomness, equal values do not predict further ones: a rare event may not have
/// occurred yet.
pub(crate) fn relative_error(mean: &Mean, is_random: bool) -> Option<f64> {
    if is_random && mean.is_constant() == Some(true) { None } else { mean.relative_error() }
}

/// Whether a flow is finite: data sent for a time, or until the end, is complete at any end of the run.
const fn has_something_to_complete(traffic: &Traffic) -> bool {
    match traffic {
        Traffic::Bulk(bulk) => matches!(bulk.amount, Amount::Bytes(_)),
        Traffic::RequestResponse(RequestResponse { count, .. }) => count.is_some(),
        Traffic::OnOff(_) => false,
    }
}

/// Whether an axis varies outages.
pub(super) fn is_of_outages(path: &str) -> bool {
    path.split('.').any(|part| part == "outages")
}

/// `link.radio.delay = 10 ms, loss = 1 %`.
pub(crate) fn point_in_words(point: &Point) -> String {
    let parts: Vec<String> = point.labels.iter().map(|label| format!("{} = {}", label.axis, label.value)).collect();
    if parts.is_empty() { "its only point".to_owned() } else { parts.join(", ") }
}

/// The quantity that determines the number of runs, the compared one, then every metric over all flows.
fn quantities(sweep: &Sweep) -> Vec<Quantity> {
    let wanted = [Some(&sweep.replicate().measure), sweep.compare().map(|compare| &compare.measure)];
    let every = Metric::ALL.iter().map(|&metric| Measure { metric, flow: None });
    let mut quantities: Vec<Quantity> = Vec::new();
    for measure in wanted.into_iter().flatten().cloned().chain(every) {
        if !quantities.iter().any(|quantity| quantity.0 == measure) {
            quantities.push(Quantity(measure));
        }
    }
    quantities
}

/// A hash of a text.
fn fingerprint(text: &str) -> String {
    let mut hasher = siphasher::sip::SipHasher24::new();
    hasher.write(text.as_bytes());
    format!("{} bytes, {:016x}", text.len(), hasher.finish())
}

#[cfg(test)]
mod tests {
    use holdover_base::Rng;

    use super::*;

    #[test]
    fn repetition_stops_when_the_mean_is_known_and_not_before_the_least_number() {
        let stop = Stop { min: 5, max: 10_000, relative_error: Some(0.02) };
        let after = |stop: Stop, values: &[f64], is_random| {
            stop.is_met(values.len() as u32, &values.iter().copied().collect(), is_random)
        };
        assert!(!after(stop, &[1.0; 4], false));
        assert!(after(stop, &[1.0; 5], false));
        assert!(!after(stop, &[1.0; 5000], true), "what has not struck yet may strike");
        assert!(stop.is_met(5, &Mean::default(), true), "no run has it");
        assert!(after(Stop { max: 3, ..stop }, &[1.0, 100.0, 200.0], true));
        let mut rng = Rng::new(5);
        let mut mean = Mean::default();
        while !stop.is_met(mean.count() as u32, &mean, true) {
            mean.push(rng.normal(100.0, 20.0));
        }
        // (1.96 * 0.2 / 0.02)^2 = 384 runs are needed on average.
        assert!((250..600).contains(&mean.count()), "{}", mean.count());
    }
}
