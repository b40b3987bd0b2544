//! `paper.toml`: a paper's experiments, its published numbers, and its claims.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdover_scenario::{Files, Scenario, ScenarioError};
use include_dir::{Dir, include_dir};
use serde::Deserialize;

use super::open::{self, Open};
use super::setting::Fitted;
use super::survey::Survey;

/// The papers that come with Holdover.
static BUILT_IN: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");

/// The file in a paper's directory that is not a scenario.
const PAPER: &str = "paper.toml";

/// The setting that fits the paper's printed numbers best, if it was looked for.
pub const FITTED: &str = "fitted.toml";

/// The verdicts over what the paper leaves open, if they were looked for.
pub const SURVEY: &str = "open.toml";

/// Why a catalogue cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// It could not be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// `paper.toml` is not as it has to be.
    #[error("{file}: {error}")]
    Form {
        /// The file.
        file: String,
        /// Why.
        error: Box<toml::de::Error>,
    },
    /// It contradicts itself.
    #[error("{file}: {message}")]
    Wrong {
        /// The file.
        file: String,
        /// How.
        message: String,
    },
    /// A scenario of it, an open input or its fitted setting is wrong, at a place in a file.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
    /// There is no paper in a directory.
    #[error("there is no paper in {}: a paper is a directory below it with a {PAPER}", path.display())]
    NoPapers {
        /// The directory.
        path: PathBuf,
    },
    /// There is no such paper or experiment.
    #[error("there is no {what} \"{name}\"; there are: {}", known.join(", "))]
    Unknown {
        /// Paper or experiment.
        what: &'static str,
        /// The name.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
}

/// A paper with everything that is to be reproduced of it.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// The name of its directory.
    pub name: String,
    /// What the paper is.
    pub paper: Paper,
    /// What it leaves open, chosen once for all experiments.
    pub choices: Vec<Choice>,
    /// What it leaves open, as inputs with the values that the evidence allows.
    pub inputs: Vec<Open>,
    /// How settings of the inputs are sampled.
    pub sampling: Sampling,
    /// The setting at which claims are judged; without one, the scenarios are run as they are written.
    pub fitted: Option<Fitted>,
    /// Scenarios whose results are taken together.
    pub unions: Vec<Union>,
    /// Its tables and figures.
    pub experiments: Vec<Experiment>,
    /// What it claims.
    pub claims: Vec<Claim>,
    /// Why claims fail, where several fail for one reason.
    pub causes: Vec<Cause>,
    /// The verdicts over what is left open, if they were looked for and the inputs are still the same.
    pub survey: Option<Survey>,
    source: Source,
}

#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Form {
    paper: Paper,
    #[serde(default, rename = "choice")]
    choices: Vec<Choice>,
    #[serde(default, rename = "open")]
    inputs: Vec<open::Form>,
    #[serde(default)]
    sampling: Sampling,
    #[serde(default, rename = "union")]
    unions: Vec<Union>,
    #[serde(default, rename = "experiment")]
    experiments: Vec<Experiment>,
    #[serde(default, rename = "claim")]
    claims: Vec<Claim>,
    #[serde(default, rename = "cause")]
    causes: Vec<Cause>,
}

/// What the paper is.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// The paper's title.
    pub title: String,
    /// Its authors.
    #[serde(default)]
    pub authors: String,
    /// How its authors measured, and what is said about the whole of it.
    #[serde(default)]
    pub summary: String,
}

/// How settings of open inputs are sampled, where the command line does not say.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Sampling {
    /// How many settings.
    pub samples: u32,
    /// Runs of each variant at each point: fewer than for the verdicts, as there are many settings.
    pub runs: u32,
    /// What the sample is drawn from.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { samples: 32, runs: 2, seed: 1 }
    }
}

/// Something that the paper leaves open, and what was chosen for all experiments.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// What the paper leaves open.
    pub what: String,
    /// What was chosen.
    pub value: String,
    /// The reason for the choice.
    pub why: String,
}

/// Scenarios whose results are taken together under a name of their own, because a sweep cannot vary what tells them apart.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Union {
    /// The name under which checks and experiments find the results.
    pub name: String,
    /// The scenarios.
    pub of: Vec<Part>,
}

/// A scenario in a union.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The scenario file's name, without `.toml`.
    pub scenario: String,
    /// Where its cells lie on further axes.
    #[serde(default)]
    pub at: BTreeMap<String, f64>,
}

/// A table or figure of the paper.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The name by which claims and the command line refer to it.
    pub id: String,
    /// Where it is in the paper.
    pub source: String,
    /// What it is about.
    pub title: String,
    /// The scenario file that it is, without `.toml`; several experiments may be one.
    pub scenario: Option<String>,
    /// Why there is no scenario.
    pub not_run: Option<String>,
    /// Published numbers one by one, beside ours.
    #[serde(default, rename = "number")]
    pub numbers: Vec<Number>,
    /// A published table, beside ours.
    pub table: Option<Table>,
    /// What is drawn of it.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
    /// Remarks for the page.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A published number, and the script that gives ours.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// What the number is, with its unit.
    pub what: String,
    /// As it was printed, with its unit.
    pub published: String,
    /// The script that gives ours.
    pub ours: String,
}

/// A published table with one row for each value of an axis.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The label of the scenario's axis.
    pub axis: String,
    /// The key of its value in `rows`.
    pub key: String,
    /// The columns beside the axis.
    pub columns: Vec<Column>,
    /// The published rows, in base units.
    pub rows: Vec<BTreeMap<String, toml::Value>>,
}

/// A column of a published table, and what it is in our results.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The key in the published rows.
    pub key: String,
    /// The heading.
    pub title: String,
    /// The variant that it shows.
    pub variant: String,
    /// The metric that it shows.
    pub metric: String,
    /// Whether it is the gain of this variant over that one, in percent.
    pub against: Option<String>,
}

/// What is drawn of an experiment.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The kind of plot.
    pub kind: FigureKind,
    /// The plot's title.
    pub title: String,
    /// The label of the axis that is drawn to the right.
    pub x: String,
    /// For a surface, the label of the axis that is drawn upwards.
    pub y: Option<String>,
    /// The metric that is drawn.
    pub metric: String,
    /// All variants if none is named; a surface is drawn for each.
    #[serde(default)]
    pub variants: Vec<String>,
    /// Whether the axis to the right is logarithmic.
    #[serde(default)]
    pub log_x: bool,
    /// What the paper prints of bars; lines take it from the experiment's table.
    #[serde(default)]
    pub published: Vec<PublishedValue>,
}

/// A printed value of a figure.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct PublishedValue {
    /// The variant that it is of.
    pub variant: String,
    /// Its place on the axes, by their labels, in base units.
    pub at: BTreeMap<String, f64>,
    /// The value as it was printed: `590`, `640 to 650`, `above 1200`.
    pub value: String,
}

/// How it is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// A value over two axes.
    Surface,
    /// A value over one axis, a line for each variant.
    Lines,
    /// The same as bars.
    Bars,
    /// How the values of all runs are distributed, a curve for each variant.
    Density,
}

/// A claim of the paper.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name in the catalogue.
    pub id: String,
    /// The experiment that it is about.
    pub experiment: String,
    /// What the paper claims, in a sentence.
    pub text: String,
    /// The script that judges it; see [`super::script`].
    pub check: Option<String>,
    /// Why it cannot be judged by a reproduction.
    pub not_checkable: Option<String>,
    /// What of it the check leaves out.
    pub in_part: Option<String>,
    /// The name of the cause of its failure.
    pub cause: Option<String>,
    /// What is to be said of it with any verdict, such as that a bound is ours.
    pub note: Option<String>,
    /// What was found out about it; said only with the verdict that it explains.
    pub explanation: Option<String>,
    /// The verdict that the explanation is about.
    #[serde(default)]
    pub explains: Explains,
}

/// The verdict that an explanation is about.
#[derive(Clone, Copy, PartialEq, Eq, Default, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Explains {
    /// That the claim fails.
    #[default]
    Fails,
    /// That it holds.
    Holds,
}

/// Why several claims fail.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// The name by which claims refer to it.
    pub name: String,
    /// A heading.
    pub title: String,
    /// What was found out.
    pub text: String,
}

/// Where a catalogue's files are.
#[derive(Clone, Debug)]
enum Source {
    BuiltIn(&'static Dir<'static>),
    Directory(PathBuf),
}

impl Catalogue {
    /// All catalogues: those below `directory`, or those that come with Holdover.
    pub fn all(directory: Option<&Path>) -> Result<Vec<Self>, CatalogueError> {
        let mut sources = Vec::new();
        match directory {
            None => sources.extend(BUILT_IN.dirs().map(|dir| (file_name(dir.path()), Source::BuiltIn(dir)))),
            Some(directory) => {
                let failed = |error| CatalogueError::Read { path: directory.to_owned(), error };
                for entry in std::fs::read_dir(directory).map_err(failed)? {
                    let path = entry.map_err(failed)?.path();
                    if path.join(PAPER).is_file() {
                        sources.push((file_name(&path), Source::Directory(path)));
                    }
                }
                if sources.is_empty() {
                    return Err(CatalogueError::NoPapers { path: directory.to_owned() });
                }
            }
        }
        sources.sort_by(|a, b| a.0.cmp(&b.0));
        sources
            .into_iter()
            .filter(|(_, source)| source.has_paper())
            .map(|(name, source)| Self::read(name, source))
            .collect()
    }

    fn read(name: String, source: Source) -> Result<Self, CatalogueError> {
        let file = format!("{name}/{PAPER}");
        let text = source.text(PAPER)?;
        let form: Form = toml::from_str(&text)
            .map_err(|error| CatalogueError::Form { file: file.clone(), error: Box::new(error) })?;
        let inputs = open::read(form.inputs, open::File { name: &file, text: &text })?;
        let fitted = match source.optional_text(FITTED)? {
            Some(text) => Some(Fitted::read(open::File { name: &format!("{name}/{FITTED}"), text: &text }, &inputs)?),
            None => None,
        };
        let survey = match source.optional_text(SURVEY)? {
            Some(text) => Survey::read(open::File { name: &format!("{name}/{SURVEY}"), text: &text }, &inputs)?,
            None => None,
        };
        let catalogue = Self {
            name,
            paper: form.paper,
            choices: form.choices,
            inputs,
            sampling: form.sampling,
            fitted,
            survey,
            unions: form.unions,
            experiments: form.experiments,
            claims: form.claims,
            causes: form.causes,
            source,
        };
        catalogue.check().map_err(|message| CatalogueError::Wrong { file, message })?;
        Ok(catalogue)
    }

    fn check(&self) -> Result<(), String> {
        for (index, experiment) in self.experiments.iter().enumerate() {
            let id = &experiment.id;
            if self.experiments[..index].iter().any(|other| other.id == *id) {
                return Err(format!("two experiments are called \"{id}\""));
            }
            if experiment.scenario.is_some() == experiment.not_run.is_some() {
                return Err(format!("experiment \"{id}\" needs either a scenario, or not_run with the reason"));
            }
        }
        for (index, claim) in self.claims.iter().enumerate() {
            let id = &claim.id;
            if self.claims[..index].iter().any(|other| other.id == *id) {
                return Err(format!("two claims are called \"{id}\""));
            }
            if claim.check.is_some() == claim.not_checkable.is_some() {
                return Err(format!("claim \"{id}\" needs either a check, or not_checkable with the reason"));
            }
            if claim.check.is_none() && (claim.in_part.is_some() || claim.cause.is_some()) {
                return Err(format!("claim \"{id}\" has no check, and so neither in_part nor cause"));
            }
            if let Some(cause) =
                claim.cause.as_ref().filter(|name| !self.causes.iter().any(|cause| cause.name == **name))
            {
                return Err(format!("claim \"{id}\" fails for \"{cause}\", which is no [[cause]]"));
            }
            if !self.experiments.iter().any(|experiment| experiment.id == claim.experiment) {
                return Err(format!("claim \"{id}\" is about \"{}\", which is no experiment", claim.experiment));
            }
        }
        Ok(())
    }

    /// The scenarios that the results called `name` come from: its own, or those of a union.
    pub fn scenarios_of(&self, name: &str) -> Vec<String> {
        match self.unions.iter().find(|union| union.name == name) {
            Some(union) => union.of.iter().map(|part| part.scenario.clone()).collect(),
            None => vec![name.to_owned()],
        }
    }

    /// The names of results that the paper itself gives: scenarios of experiments, and unions.
    pub fn names_of_results(&self) -> impl Iterator<Item = &str> {
        let scenarios = self.experiments.iter().filter_map(|experiment| experiment.scenario.as_deref());
        scenarios.chain(self.unions.iter().map(|union| union.name.as_str()))
    }

    /// The scenario files that the paper's experiments and unions need.
    pub fn all_scenarios(&self) -> Vec<String> {
        let mut all: Vec<String> = self.names_of_results().flat_map(|name| self.scenarios_of(name)).collect();
        // Scenarios that only a check uses.
        let checks = self.claims.iter().filter_map(|claim| claim.check.as_deref());
        let asked = checks.flat_map(|check| check.split("results(\"").skip(1));
        let asked = asked.filter_map(|rest| rest.split('"').next());
        all.extend(asked.flat_map(|name| self.scenarios_of(name)));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The scenario called `name`.
    pub fn scenario(&self, name: &str) -> Result<Scenario, CatalogueError> {
        let file = format!("{name}.toml");
        let text = self.source.text(&file)?;
        Ok(Scenario::parse(&format!("{}/{file}", self.name), &text, self.source.clone())?)
    }

    /// The experiment called `id`.
    pub fn experiment(&self, id: &str) -> Option<&Experiment> {
        self.experiments.iter().find(|experiment| experiment.id == id)
    }
}

impl Table {
    /// A number of a published row.
    pub fn number(&self, row: &BTreeMap<String, toml::Value>, key: &str) -> Option<f64> {
        let value = row.get(key)?;
        value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
    }
}

impl Experiment {
    /// The scripts in it.
    pub fn scripts(&self) -> impl Iterator<Item = &str> {
        self.numbers.iter().map(|number| number.ours.as_str())
    }
}

impl Source {
    fn has_paper(&self) -> bool {
        match self {
            Self::BuiltIn(dir) => dir.get_file(dir.path().join(PAPER)).is_some(),
            Self::Directory(path) => path.join(PAPER).is_file(),
        }
    }

    fn text(&self, name: &str) -> Result<String, CatalogueError> {
        let (path, text) = match self {
            Self::BuiltIn(dir) => {
                let path = dir.path().join(name);
                let text = dir.get_file(&path).and_then(|file| file.contents_utf8()).map(str::to_owned);
                (path, text.ok_or_else(|| std::io::ErrorKind::NotFound.into()))
            }
            Self::Directory(directory) => {
                let path = directory.join(name);
                let text = std::fs::read_to_string(&path);
                (path, text)
            }
        };
        text.map_err(|error| CatalogueError::Read { path, error })
    }
}

impl Source {
    /// The text of a file that need not be there.
    fn optional_text(&self, name: &str) -> Result<Option<String>, CatalogueError> {
        match self.text(name) {
            Ok(text) => Ok(Some(text)),
            Err(CatalogueError::Read { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Files for Source {
    fn read(&self, name: &str) -> Result<String, String> {
        self.text(name).map_err(|error| error.to_string())
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
