//! Fits the open inputs of a paper to all its printed numbers at once.
//!
//! The loss is the mean distance over all printed numbers ([`numbers`]); claims are not considered. The search starts at the best point of
//! a space-filling sample and continues input by input: one step to each side of a range, or every alternative; improvements are kept. When
//! no input improves, the step is halved. The scenarios as written are tried as well.

use std::path::PathBuf;

use super::numbers::{self, Printed};
use super::open::{Domain, Open};
use super::sample::{Sampling, latin_hypercube};
use super::script::Scripts;
use super::setting::{Fitted, Search, Setting};
use super::trial::Trials;
use super::work::{Running, Work, WorkError};

/// The steps, relative to the length of a range.
const STEPS: [f64; 3] = [0.2, 0.1, 0.05];

/// The maximum number of rounds over all inputs per step.
const ROUNDS: usize = 3;

/// The least decrease of the loss that counts as an improvement.
const BETTER: f64 = 1e-4;

struct Seeker<'a> {
    work: &'a Work,
    trials: Trials<'a>,
    names: Vec<String>,
    tried: usize,
    best: Tried,
}

/// A setting tried.
#[derive(Clone)]
struct Tried {
    /// Its position in each input's range; empty for the scenarios as written.
    places: Vec<f64>,
    setting: Setting,
    loss: f64,
}

/// Searches for the setting; `None` if interrupted. Results in `directory` are reused.
///
/// # Errors
///
/// If a setting makes a scenario invalid, or results cannot be stored.
pub fn fit(
    work: &Work,
    directory: PathBuf,
    sampling: Sampling,
    running: &Running<'_>,
    command: String,
) -> Result<Option<Fitted>, WorkError> {
    let inputs = &work.catalogue.inputs;
    let names = work.scenarios_with_numbers();
    let trials = Trials::new(work, directory, sampling.runs, running);
    let none = Tried { places: Vec::new(), setting: Setting::default(), loss: f64::INFINITY };
    let mut seeker = Seeker { work, trials, names, tried: 0, best: none.clone() };
    let Some(loss_as_written) = seeker.try_setting(Vec::new())? else { return Ok(None) };
    let written = std::mem::replace(&mut seeker.best, none);
    for places in latin_hypercube(inputs.len(), sampling.samples as usize, sampling.seed) {
        if seeker.try_setting(places)?.is_none() {
            return Ok(None);
        }
    }
    for step in STEPS {
        for _ in 0..ROUNDS {
            match seeker.round(inputs, step)? {
                None => return Ok(None),
                Some(false) => break,
                Some(true) => {}
            }
        }
    }
    if written.loss <= seeker.best.loss {
        seeker.best = written;
    }
    seeker.found(command, loss_as_written)
}

impl Seeker<'_> {
    /// Tries a setting and keeps an improvement. Returns its loss; `None` if interrupted.
    fn try_setting(&mut self, places: Vec<f64>) -> Result<Option<f64>, WorkError> {
        let setting = Setting::at(&self.work.catalogue.inputs, &places);
        self.tried += 1;
        let title = format!("fit {}, loss {:.3}", self.tried, self.best.loss);
        let Some(numbers) = self.numbers(&setting, &title)? else { return Ok(None) };
        let loss = numbers::loss(&numbers);
        if loss < self.best.loss - BETTER || self.best.loss.is_infinite() {
            self.best = Tried { places, setting, loss };
        }
        Ok(Some(loss))
    }

    fn numbers(&mut self, setting: &Setting, title: &str) -> Result<Option<Vec<Printed>>, WorkError> {
        let Some(results) = self.trials.at(setting, &self.names, title)? else { return Ok(None) };
        let scripts = Scripts::new(&results);
        Ok(Some(numbers::of(self.work.experiments().into_iter(), &results, &scripts)))
    }

    /// Tries the neighbours of the best setting, input by input. Returns whether one improved it; `None` if
    /// interrupted.
    fn round(&mut self, inputs: &[Open], step: f64) -> Result<Option<bool>, WorkError> {
        let before = self.best.loss;
        for (index, input) in inputs.iter().enumerate() {
            let here = self.best.places[index];
            let others: Vec<f64> = match &input.domain {
                Domain::Range { .. } => vec![(here - step).max(0.0), (here + step).min(1.0)],
                Domain::Alternatives(list) => {
                    let count = list.len() as f64;
                    (0..list.len()).map(|other| (other as f64 + 0.5) / count).collect()
                }
            };
            for other in others {
                let mut places = self.best.places.clone();
                places[index] = other;
                let setting = Setting::at(inputs, &places);
                if setting != self.best.setting && self.try_setting(places)?.is_none() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(self.best.loss < before))
    }

    fn found(mut self, command: String, loss_as_written: f64) -> Result<Option<Fitted>, WorkError> {
        let setting = self.best.setting.clone();
        let Some(numbers) = self.numbers(&setting, "best")? else { return Ok(None) };
        let search = Search {
            command,
            tried: self.tried,
            numbers: numbers.len(),
            within_a_tenth: numbers.iter().filter(|number| number.is_close()).count(),
            loss: rounded(numbers::loss(&numbers)),
            loss_as_written: rounded(loss_as_written),
        };
        Ok(Some(Fitted { setting, search }))
    }
}

/// Rounds to four decimals.
fn rounded(loss: f64) -> f64 {
    (loss * 1e4).round() / 1e4
}
