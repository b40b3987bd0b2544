//! Verdicts on a paper's claims over settings of its open inputs: each claim holds at all of them, at some, or at none.

use std::collections::BTreeMap;

use holdover_base::Rng;
use holdover_scenario::{ErrorKind, Location, ScenarioError};
use serde::{Deserialize, Serialize};

use super::open::{Domain, File, Open, error, words};
use super::sample::shuffled;
use super::setting::Setting;

/// The verdicts on a paper's claims at a sample of settings: the file `open.toml` in a paper's directory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survey {
    /// The command that repeats it.
    pub command: String,
    /// The number of settings.
    pub samples: u32,
    /// Runs of each variant at each point.
    pub runs: u32,
    /// The seed of the sample.
    pub seed: u64,
    /// The inputs and their values at the time of the survey.
    pub inputs: BTreeMap<String, String>,
    /// The settings, in sample order.
    pub settings: Vec<Setting>,
    /// A letter per setting, in order: `+` holds, `-` fails, `?` the check fails with an error. Claims that cannot be checked are omitted.
    pub verdicts: BTreeMap<String, String>,
}

/// The survey's result for a claim.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Surveyed {
    /// Whether the claim holds at all settings, at some or at none.
    pub verdict: Over,
    /// The number of settings at which it holds.
    pub holds: usize,
    /// The number of settings tried.
    pub of: usize,
    /// The number of settings at which its check fails with an error.
    pub broken: usize,
    /// The deciding input, if there is one.
    pub decided_by: Option<Split>,
}

/// The settings at which a claim holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// All settings tried.
    All,
    /// Some settings.
    Some,
    /// No setting.
    None,
}

/// The split of an input's values that best separates the verdicts on a claim.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Split {
    /// The input.
    pub input: String,
    /// Its values on one side: `up to 158 kB`, or an alternative.
    pub side: String,
    /// The position of the border, from 0 to 1; `None` between alternatives.
    pub border: Option<f64>,
    /// For the settings on that side: the number at which the claim holds, and the total.
    pub inside: (usize, usize),
    /// The same for the other settings.
    pub outside: (usize, usize),
    /// The share of the verdict's entropy that it removes, from 0 to 1.
    pub explains: f64,
}

impl Survey {
    /// Reads `open.toml`; `None` if its inputs differ from those of the paper's file.
    pub(super) fn read(file: File<'_>, inputs: &[Open]) -> Result<Option<Self>, ScenarioError> {
        let survey: Self = toml::from_str(file.text).map_err(|wrong| {
            let location = Location::of(file.name, file.text, wrong.span().unwrap_or(0..0));
            error(ErrorKind::Syntax, "", wrong.message().to_owned(), location)
        })?;
        Ok((survey.inputs == described(inputs)).then_some(survey))
    }

    /// The content of `open.toml`.
    pub fn to_toml(&self) -> String {
        let table = toml::to_string(self).unwrap_or_default();
        format!(
            "# The verdicts of the paper's claims over what it leaves open. Made by\n#\n#     {}\n\n{table}",
            self.command
        )
    }

    /// Whether it has every combination of the inputs' values; never for ranges.
    pub fn is_complete(&self, inputs: &[Open]) -> bool {
        let has = |setting: &Setting| self.settings.contains(setting);
        combinations(inputs, self.settings.len()).is_some_and(|all| all.iter().all(has))
    }

    /// The result for a claim; `None` for claims not included.
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

/// Every combination of the inputs' values; `None` if one has a range, or there are more than `most`.
pub(super) fn combinations(inputs: &[Open], most: usize) -> Option<Vec<Setting>> {
    let mut all = vec![Vec::new()];
    for input in inputs {
        let Domain::Alternatives(list) = &input.domain else { return None };
        if all.len().saturating_mul(list.len()) > most {
            return None;
        }
        let middle = |index: usize| (index as f64 + 0.5) / list.len() as f64;
        let with = |places: &Vec<f64>| {
            (0..list.len()).map(|index| places.iter().copied().chain([middle(index)]).collect()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    (!inputs.is_empty()).then(|| all.iter().map(|places| Setting::at(inputs, places)).collect())
}

/// Each input's values in words, and its fields: a survey of other values is invalid.
pub(super) fn described(inputs: &[Open]) -> BTreeMap<String, String> {
    let paths = |input: &Open| input.paths.iter().map(|path| path.text.clone()).collect::<Vec<_>>().join(", ");
    inputs.iter().map(|input| (input.name.clone(), format!("{}: {}", paths(input), input.in_words()))).collect()
}

/// The position of a setting in each input's range.
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

/// The number of random orders of the verdicts to compare a split with.
const SHUFFLES: u32 = 199;

/// The significance level: a split reached more often by random verdicts is rejected.
const CHANCE: f64 = 0.05;

/// The split that removes most of the entropy, unless random orders of the verdicts have an equally good one too often.
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
    /// Positions up to this one.
    UpTo(f64),
    /// The alternative at positions between these.
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

    /// Every split of an input that separates its sampled positions.
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

/// The gain in bits, the input and the side of the best split; the first one in case of ties.
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

/// The information gain about the verdict, in bits, from `inside` (Quinlan 1986).
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

/// The entropy in bits of `holds` out of `all`.
fn entropy(holds: usize, all: usize) -> f64 {
    let part = |count: usize| {
        let share = count as f64 / all as f64;
        if count == 0 { 0.0 } else { -share * share.log2() }
    };
    if all == 0 { 0.0 } else { part(holds) + part(all - holds) }
}
