//! `paper.toml`: a paper's experiments, its published numbers, and its claims.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdover_scenario::{Files, Override, Scenario, ScenarioError};
use include_dir::{Dir, include_dir};
use serde::Deserialize;

use super::matrix::{Facts, Matrix};
use super::open::{self, Open};
use super::sample::Sampling;
use super::setting::Fitted;
use super::survey::Survey;

/// The built-in papers.
static BUILT_IN: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");

/// The description of a paper, in its directory.
pub(super) const PAPER: &str = "paper.toml";

/// The setting that best fits the paper's printed numbers, if a fit was made.
pub const FITTED: &str = "fitted.toml";

/// The verdicts over the paper's open inputs, if a survey was made.
pub const SURVEY: &str = "open.toml";

/// Errors of a catalogue.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// A file or directory could not be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// `paper.toml` has an invalid form.
    #[error("{file}: {error}")]
    Form {
        /// The file.
        file: String,
        /// The cause.
        error: Box<toml::de::Error>,
    },
    /// The catalogue is inconsistent.
    #[error("{file}: {message}")]
    Wrong {
        /// The file.
        file: String,
        /// The inconsistency.
        message: String,
    },
    /// An error in a scenario, an open input or the fitted setting, with its position in a file.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
    /// The directory contains no paper.
    #[error("there is no paper in {}: a paper is a directory below it with a {PAPER}", path.display())]
    NoPapers {
        /// The directory.
        path: PathBuf,
    },
    /// A paper or experiment does not exist.
    #[error("there is no {what} \"{name}\"; there are: {}", known.join(", "))]
    Unknown {
        /// "paper" or "experiment".
        what: &'static str,
        /// The name.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
}

/// A paper with all its reproduced content.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// The name of its directory.
    pub name: String,
    /// The bibliographic data.
    pub paper: Paper,
    /// Choices made for all experiments where the paper is silent.
    pub choices: Vec<Choice>,
    /// Open inputs: values not stated by the paper, with their plausible ranges.
    pub inputs: Vec<Open>,
    /// The sampling of settings of the inputs.
    pub sampling: Sampling,
    /// The setting at which claims are judged; `None` runs the scenarios as written.
    pub fitted: Option<Fitted>,
    /// Scenarios with combined results.
    pub unions: Vec<Union>,
    /// Scenarios that are others with changes.
    pub derived: Vec<Derived>,
    /// Its tables and figures.
    pub experiments: Vec<Experiment>,
    /// Its claims.
    pub claims: Vec<Claim>,
    /// Shared causes of failed claims.
    pub causes: Vec<Cause>,
    /// Tables of properties in words.
    pub facts: Vec<Facts>,
    /// The verdicts over the open inputs, if a survey was made and the inputs are unchanged.
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
    #[serde(default)]
    derived: Vec<Derived>,
    #[serde(default, rename = "experiment")]
    experiments: Vec<Experiment>,
    #[serde(default, rename = "claim")]
    claims: Vec<Claim>,
    #[serde(default, rename = "cause")]
    causes: Vec<Cause>,
    #[serde(default)]
    facts: Vec<Facts>,
}

/// The bibliographic data of a paper.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// The paper's title.
    pub title: String,
    /// Its authors.
    #[serde(default)]
    pub authors: String,
    /// The authors' method of measurement, and remarks on the reproduction as a whole.
    #[serde(default)]
    pub summary: String,
}

/// A detail not stated by the paper, and the choice made for all experiments.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The detail.
    pub what: String,
    /// The choice.
    pub value: String,
    /// The reason for the choice.
    pub why: String,
}

/// Scenarios with combined results under a common name, because a sweep cannot vary their difference.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Union {
    /// The name of the results in checks and experiments.
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
    /// The places of its cells on further axes.
    #[serde(default)]
    pub at: BTreeMap<String, f64>,
}

/// A scenario that is another one with changes, such as a sweep along another axis.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Derived {
    /// Its name.
    pub name: String,
    /// The scenario file's name, without `.toml`.
    pub from: String,
    /// The changed fields, by their paths.
    pub set: toml::Table,
}

/// A table or figure of the paper.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name in claims and on the command line.
    pub id: String,
    /// The table, figure or section in the paper.
    pub source: String,
    /// The subject.
    pub title: String,
    /// The scenario file, without `.toml`; several experiments may share one.
    pub scenario: Option<String>,
    /// The reason for having no scenario.
    pub not_run: Option<String>,
    /// Published numbers one by one, beside those of the reproduction.
    #[serde(default, rename = "number")]
    pub numbers: Vec<Number>,
    /// A published table, beside that of the reproduction.
    pub table: Option<Table>,
    /// Tables of all variants at one place.
    #[serde(default, rename = "matrix")]
    pub matrices: Vec<Matrix>,
    /// Its figures.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
    /// Remarks for the page.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A published number, and the script that computes its counterpart.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// The name of the number, with its unit.
    pub what: String,
    /// The number as printed, with its unit.
    pub published: String,
    /// The script that computes the reproduction's number.
    pub ours: String,
}

/// A published table with one row for each value of an axis.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The label of the scenario's axis.
    pub axis: String,
    /// The key of its values in `rows`.
    pub key: String,
    /// The columns other than the axis.
    pub columns: Vec<Column>,
    /// The published rows, in base units.
    pub rows: Vec<BTreeMap<String, toml::Value>>,
}

/// A column of a published table, and its counterpart in the results.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The key in the published rows.
    pub key: String,
    /// The heading.
    pub title: String,
    /// The variant.
    pub variant: String,
    /// The metric.
    pub metric: String,
    /// If set, the column is the gain over this variant, in percent.
    pub against: Option<String>,
}

/// A figure of an experiment.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The kind of plot.
    pub kind: FigureKind,
    /// The plot's title.
    pub title: String,
    /// The label of the horizontal axis.
    pub x: String,
    /// For a surface, the label of the vertical axis.
    pub y: Option<String>,
    /// The label of another axis: a plot is drawn for each of its values.
    pub each: Option<String>,
    /// The metric.
    pub metric: String,
    /// The variants; all if empty. A surface is drawn for each.
    #[serde(default)]
    pub variants: Vec<String>,
    /// Whether the horizontal axis is logarithmic.
    #[serde(default)]
    pub log_x: bool,
    /// Published values for bars; lines take them from the experiment's table.
    #[serde(default)]
    pub published: Vec<PublishedValue>,
}

/// A published value of a figure.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct PublishedValue {
    /// The variant.
    pub variant: String,
    /// Its position on the axes, by their labels, in base units.
    pub at: BTreeMap<String, f64>,
    /// The value as printed: `590`, `640 to 650`, `above 1200`.
    pub value: String,
}

/// The kind of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// A value over two axes.
    Surface,
    /// A value over one axis, one line per variant.
    Lines,
    /// The same as bars.
    Bars,
    /// The distribution of the values of all runs, one curve per variant.
    Density,
}

/// A claim of the paper.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name in the catalogue.
    pub id: String,
    /// The experiment concerned.
    pub experiment: String,
    /// The claim, in a sentence.
    pub text: String,
    /// The script that checks it; see [`super::script`].
    pub check: Option<String>,
    /// The reason why a reproduction cannot judge it.
    pub not_checkable: Option<String>,
    /// The part of it not covered by the check.
    pub in_part: Option<String>,
    /// The name of the cause of its failure.
    pub cause: Option<String>,
    /// A remark for any verdict, such as that a bound is the reproduction's choice.
    pub note: Option<String>,
    /// An explanation, shown only with the verdict that it explains.
    pub explanation: Option<String>,
    /// The verdict explained.
    #[serde(default)]
    pub explains: Explains,
}

/// The verdict explained by an explanation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Explains {
    /// The cause explains why the claim fails.
    #[default]
    Fails,
    /// The cause explains why the claim holds.
    Holds,
}

/// A shared cause of failed claims.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// Its name in claims.
    pub name: String,
    /// The heading.
    pub title: String,
    /// The explanation.
    pub text: String,
}

/// The source of a catalogue's files.
#[derive(Clone, Debug)]
enum Source {
    BuiltIn(&'static Dir<'static>),
    Directory(PathBuf),
}

impl Catalogue {
    /// All catalogues: those below `directory`, or the built-in ones.
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
            derived: form.derived,
            experiments: form.experiments,
            claims: form.claims,
            causes: form.causes,
            facts: form.facts,
            source,
        };
        catalogue.check().map_err(|message| CatalogueError::Wrong { file, message })?;
        Ok(catalogue)
    }

    fn check(&self) -> Result<(), String> {
        self.facts.iter().try_for_each(Facts::check)?;
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

    /// The scenarios behind the results called `name`: the scenario of that name, or those of a union.
    pub fn scenarios_of(&self, name: &str) -> Vec<String> {
        match self.unions.iter().find(|union| union.name == name) {
            Some(union) => union.of.iter().map(|part| part.scenario.clone()).collect(),
            None => vec![name.to_owned()],
        }
    }

    /// The names of results defined by the paper's file: scenarios of experiments, and unions.
    pub fn names_of_results(&self) -> impl Iterator<Item = &str> {
        let scenarios = self.experiments.iter().filter_map(|experiment| experiment.scenario.as_deref());
        scenarios.chain(self.unions.iter().map(|union| union.name.as_str()))
    }

    /// The scenario files needed by the paper's experiments and unions.
    pub fn all_scenarios(&self) -> Vec<String> {
        let mut all: Vec<String> = self.names_of_results().flat_map(|name| self.scenarios_of(name)).collect();
        // Includes scenarios used only by a check.
        let checks = self.claims.iter().filter_map(|claim| claim.check.as_deref());
        let asked = checks.flat_map(|check| check.split("results(\"").skip(1));
        let asked = asked.filter_map(|rest| rest.split('"').next());
        all.extend(asked.flat_map(|name| self.scenarios_of(name)));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The scenario called `name`: a file, or one derived from a file.
    pub fn scenario(&self, name: &str) -> Result<Scenario, CatalogueError> {
        let derived = self.derived(name);
        let file = format!("{}.toml", derived.map_or(name, |derived| &derived.from));
        let text = self.source.text(&file)?;
        let scenario = Scenario::parse(&format!("{}/{file}", self.name), &text, self.source.clone())?;
        match derived {
            Some(derived) => {
                let change = |(path, value): (&String, &toml::Value)| Override::new(path.as_str(), value.clone());
                Ok(scenario.with(&derived.set.iter().map(change).collect::<Vec<_>>())?)
            }
            None => Ok(scenario),
        }
    }

    /// The scenario called `name`, if it is derived from another.
    pub fn derived(&self, name: &str) -> Option<&Derived> {
        self.derived.iter().find(|derived| derived.name == name)
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
    /// The scripts of the catalogue.
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
    /// The text of an optional file.
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
