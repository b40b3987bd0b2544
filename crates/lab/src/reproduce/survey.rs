//! A paper's claims over settings of its open parameters: each holds at all of them, at some, or at none.

use std::collections::BTreeMap;
use std::path::PathBuf;

use holdover_base::Rng;
use holdover_scenario::{ErrorKind, Location, ScenarioError};
use serde::{Deserialize, Serialize};

use super::catalogue::Sampling;
use super::judge::{self, Verdict};
use super::open::{Domain, File, Open, error, words};
use super::sample::{latin_hypercube, shuffled};
use super::script::Scripts;
use super::setting::Setting;
use super::trial::Trials;
use super::work::{Running, Work, WorkError};

/// The verdicts of a paper's claims at a sample of settings: the file `open.toml` beside a paper's.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survey {
    /// The command that makes it again.
    pub command: String,
    /// Settings in the sample.
    pub samples: u32,
    /// Runs of each variant at each point.
    pub runs: u32,
    /// What the sample was drawn from.
    pub seed: u64,
    /// The inputs and their values, as they were then.
    pub inputs: BTreeMap<String, String>,
    /// The settings, in the order of the sample.
    pub settings: Vec<Setting>,
    /// A letter for each setting, in their order: `+` holds, `-` fails, `?` the check does not work there. Claims that cannot be
    /// checked are not in it.
    pub verdicts: BTreeMap<String, String>,
}

/// What a survey says of a claim.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Surveyed {
    /// Whether it holds at all settings, at some or at none.
    pub verdict: Over,
    /// Settings at which it holds.
    pub holds: usize,
    /// Settings that were tried.
    pub of: usize,
    /// Settings at which its check does not work.
    pub broken: usize,
    /// The input that decides, if one does.
    pub decided_by: Option<Split>,
}

/// At which settings a claim holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// At all that were tried.
    All,
    /// At some.
    Some,
    /// At none.
    None,
}

/// The input and its values that tell best where a claim holds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Split {
    /// The input.
    pub input: String,
    /// Its values on one side: `up to 158 kB`, or an alternative.
    pub side: String,
    /// The place of the border, from 0 to 1; `None` between alternatives.
    pub border: Option<f64>,
    /// Of the settings on that side, those at which the claim holds, and all.
    pub inside: (usize, usize),
    /// The same of the others.
    pub outside: (usize, usize),
    /// The share of the uncertainty about the verdict that it takes away, from 0 to 1.
    pub explains: f64,
}

impl Survey {
    /// Runs the claims of the experiments that `work` has over a sample of settings; `None` if interrupted. What is in
    /// `directory` already is not run again.
    ///
    /// # Errors
    ///
    /// If a setting makes a scenario wrong, or results cannot be kept.
    pub fn make(
        work: &Work,
        directory: PathBuf,
        sampling: Sampling,
        running: &Running<'_>,
        command: String,
    ) -> Result<Option<Self>, WorkError> {
        let inputs = &work.catalogue.inputs;
        let places = latin_hypercube(inputs.len(), sampling.samples as usize, sampling.seed);
        let settings: Vec<Setting> = places.iter().map(|places| Setting::at(inputs, places)).collect();
        let names = work.scenario_names();
        let mut trials = Trials::new(work, directory, sampling.runs, running);
        let mut verdicts: BTreeMap<String, String> = BTreeMap::new();
        for (index, setting) in settings.iter().enumerate() {
            let title = format!("setting {} of {}", index + 1, settings.len());
            let Some(results) = trials.at(setting, &names, &title)? else { return Ok(None) };
            let scripts = Scripts::new(&results);
            for claim in judge::claims(&work.catalogue, &work.ids(), &scripts) {
                let letter = match claim.verdict {
                    Verdict::Holds => '+',
                    Verdict::Fails => '-',
                    Verdict::Broken => '?',
                    Verdict::NotCheckable => continue,
                };
                verdicts.entry(claim.id).or_default().push(letter);
            }
        }
        let Sampling { samples, runs, seed } = sampling;
        Ok(Some(Self { command, samples, runs, seed, inputs: described(inputs), settings, verdicts }))
    }

    /// Reads `open.toml`; `None` if it is of other inputs than the paper's file has now.
    pub(super) fn read(file: File<'_>, inputs: &[Open]) -> Result<Option<Self>, ScenarioError> {
        let survey: Self = toml::from_str(file.text).map_err(|wrong| {
            let location = Location::of(file.name, file.text, wrong.span().unwrap_or(0..0));
            error(ErrorKind::Syntax, "", wrong.message().to_owned(), location)
        })?;
        Ok((survey.inputs == described(inputs)).then_some(survey))
    }

    /// The file.
    pub fn to_toml(&self) -> String {
        let table = toml::to_string(self).unwrap_or_default();
        format!(
            "# The verdicts of the paper's claims over what it leaves open. Made by\n#\n#     {}\n\n{table}",
            self.command
        )
    }

    /// What it says of a claim; `None` of claims that are not in it.
    pub fn of(&self, claim: &str, inputs: &[Open]) -> Option<Surveyed> {
        let letters = self.verdicts.get(claim)?;
        let holds: Vec<bool> = letters.chars().map(|letter| letter == '+').collect();
        let count = holds.iter().filter(|holds| **holds).count();
        let verdict = match count {
            0 => Over::None,
            all if all == holds.len() => Over::All,
            _ => Over::Some,
        };
        let broken = letters.chars().filter(|letter| *letter == '?').count();
        let places: Vec<Vec<f64>> = self.settings.iter().map(|setting| places(setting, inputs)).collect();
        let decided_by = if verdict == Over::Some { decide(&holds, &places, inputs, self.seed) } else { None };
        Some(Surveyed { verdict, holds: count, of: holds.len(), broken, decided_by })
    }
}

/// Each input's values, in words, and what it sets: a survey of other values does not speak of these.
fn described(inputs: &[Open]) -> BTreeMap<String, String> {
    let paths = |input: &Open| input.paths.iter().map(|path| path.text.clone()).collect::<Vec<_>>().join(", ");
    inputs.iter().map(|input| (input.name.clone(), format!("{}: {}", paths(input), input.in_words()))).collect()
}

/// Where a setting lies on each input's range.
pub(super) fn places(setting: &Setting, inputs: &[Open]) -> Vec<f64> {
    let place = |input: &Open| setting.0.get(&input.name).and_then(|value| input.place_of(value));
    inputs.iter().map(|input| place(input).unwrap_or(0.5)).collect()
}

impl Surveyed {
    /// `holds at 20 of 32 settings; decided by window (up to 158 kB: 18 of 19, else 2 of 13)`.
    pub fn in_words(&self) -> String {
        let mut text = match self.verdict {
            Over::All => format!("holds at all {} settings", self.of),
            Over::Some => format!("holds at {} of {} settings", self.holds, self.of),
            Over::None => format!("holds at none of {} settings", self.of),
        };
        if self.broken > 0 {
            text.push_str(&format!(", its check does not work at {}", self.broken));
        }
        match (&self.decided_by, self.verdict) {
            (Some(split), _) => text.push_str(&format!(
                "; `{}` decides ({}: {} of {}, else {} of {})",
                split.input, split.side, split.inside.0, split.inside.1, split.outside.0, split.outside.1
            )),
            (None, Over::Some) => text.push_str("; no single input decides"),
            (None, _) => {}
        }
        text
    }
}

/// Random orders of the verdicts that a split is held against.
const SHUFFLES: u32 = 199;

/// A split that random verdicts reach more often than this says nothing.
const CHANCE: f64 = 0.05;

/// The split that takes away most of the uncertainty, unless verdicts in random order give as good a one too often.
fn decide(holds: &[bool], places: &[Vec<f64>], inputs: &[Open], seed: u64) -> Option<Split> {
    let entropy = entropy(holds.iter().filter(|holds| **holds).count(), holds.len());
    let best = best_split(holds, places, inputs)?;
    let mut rng = Rng::split(seed, "shuffled verdicts");
    let gain = |order: &[usize]| {
        let shuffled: Vec<bool> = order.iter().map(|&index| holds[index]).collect();
        best_split(&shuffled, places, inputs).map_or(0.0, |split| split.0)
    };
    let as_good = (0..SHUFFLES).filter(|_| gain(&shuffled(holds.len(), &mut rng)) >= best.0).count();
    if (1.0 + as_good as f64) / f64::from(SHUFFLES + 1) > CHANCE {
        return None;
    }
    let (gain, input, side) = best;
    let inside: Vec<bool> = places.iter().map(|places| side.has(places[input])).collect();
    let tally = |wanted: bool| {
        let there = || inside.iter().zip(holds).filter(move |(inside, _)| **inside == wanted);
        (there().filter(|(_, holds)| **holds).count(), there().count())
    };
    Some(Split {
        input: inputs[input].name.clone(),
        side: side.in_words(&inputs[input]),
        border: if let Side::UpTo(border) = side { Some(border) } else { None },
        inside: tally(true),
        outside: tally(false),
        explains: gain / entropy,
    })
}

/// The values on one side of a split.
#[derive(Clone, Copy, Debug)]
enum Side {
    /// Places up to this one.
    UpTo(f64),
    /// The alternative whose places are between these.
    Between(f64, f64),
}

impl Side {
    fn has(self, place: f64) -> bool {
        match self {
            Self::UpTo(border) => place <= border,
            Self::Between(low, high) => (low..high).contains(&place),
        }
    }

    fn in_words(self, input: &Open) -> String {
        match self {
            Self::UpTo(border) => format!("up to {}", words(&input.at(border))),
            Self::Between(low, high) => words(&input.at(f64::midpoint(low, high))),
        }
    }

    /// Every side of an input that tells its sampled places apart.
    fn all(input: &Open, places: impl Iterator<Item = f64>) -> Vec<Self> {
        match &input.domain {
            Domain::Range { .. } => {
                let mut places: Vec<f64> = places.collect();
                places.sort_by(f64::total_cmp);
                places.windows(2).map(|pair| Self::UpTo(f64::midpoint(pair[0], pair[1]))).collect()
            }
            Domain::Alternatives(list) => {
                let count = list.len() as f64;
                (0..list.len()).map(|index| Self::Between(index as f64 / count, (index + 1) as f64 / count)).collect()
            }
        }
    }
}

/// The gain in bits, the input and the side of the best split; the first one of several.
fn best_split(holds: &[bool], places: &[Vec<f64>], inputs: &[Open]) -> Option<(f64, usize, Side)> {
    let mut best: Option<(f64, usize, Side)> = None;
    for (index, input) in inputs.iter().enumerate() {
        for side in Side::all(input, places.iter().map(|places| places[index])) {
            let gain = information_gain(holds, |sample| side.has(places[sample][index]));
            if best.is_none_or(|(most, ..)| gain > most + 1e-12) {
                best = Some((gain, index, side));
            }
        }
    }
    best
}

/// How many bits the answer to `inside` takes from the uncertainty about the verdict (Quinlan 1986).
fn information_gain(holds: &[bool], inside: impl Fn(usize) -> bool) -> f64 {
    let mut count = [[0_usize; 2]; 2];
    for (sample, &holds) in holds.iter().enumerate() {
        count[usize::from(inside(sample))][usize::from(holds)] += 1;
    }
    let all = holds.len() as f64;
    let left = count.iter().map(|part| {
        let size = part[0] + part[1];
        size as f64 / all * entropy(part[1], size)
    });
    entropy(count[0][1] + count[1][1], holds.len()) - left.sum::<f64>()
}

/// The uncertainty in bits about one of `all`, of which `holds` hold.
fn entropy(holds: usize, all: usize) -> f64 {
    let part = |count: usize| {
        let share = count as f64 / all as f64;
        if count == 0 { 0.0 } else { -share * share.log2() }
    };
    if all == 0 { 0.0 } else { part(holds) + part(all - holds) }
}
