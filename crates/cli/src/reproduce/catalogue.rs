//! `paper.toml`: a paper's experiments, its published numbers, and its claims.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdover_scenario::{Files, Scenario, ScenarioError};
use include_dir::{Dir, include_dir};
use serde::Deserialize;

/// The papers that come with Holdover.
static BUILT_IN: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");

/// The file in a paper's directory that is not a scenario.
const PAPER: &str = "paper.toml";

/// Why a catalogue cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CatalogueError {
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
    /// A scenario of it is wrong.
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
pub(crate) struct Catalogue {
    /// The name of its directory.
    pub(crate) name: String,
    pub(crate) paper: Paper,
    pub(crate) choices: Vec<Choice>,
    pub(crate) unions: Vec<Union>,
    pub(crate) experiments: Vec<Experiment>,
    pub(crate) claims: Vec<Claim>,
    source: Source,
}

#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Form {
    paper: Paper,
    #[serde(default, rename = "choice")]
    choices: Vec<Choice>,
    #[serde(default, rename = "union")]
    unions: Vec<Union>,
    #[serde(default, rename = "experiment")]
    experiments: Vec<Experiment>,
    #[serde(default, rename = "claim")]
    claims: Vec<Claim>,
}

/// What the paper is.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paper {
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) authors: String,
    /// How its authors measured, and what is said about the whole of it.
    #[serde(default)]
    pub(crate) summary: String,
}

/// Something that the paper leaves open, and what was chosen for all experiments.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Choice {
    pub(crate) what: String,
    pub(crate) value: String,
    pub(crate) why: String,
}

/// Scenarios whose results are taken together under a name of their own, because a sweep cannot vary what tells them apart.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Union {
    pub(crate) name: String,
    pub(crate) of: Vec<Part>,
}

/// A scenario in a union.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    pub(crate) scenario: String,
    /// Where its cells lie on further axes.
    #[serde(default)]
    pub(crate) at: BTreeMap<String, f64>,
}

/// A table or figure of the paper.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Experiment {
    pub(crate) id: String,
    /// Where it is in the paper.
    pub(crate) source: String,
    pub(crate) title: String,
    /// The scenario file that it is, without `.toml`; several experiments may be one.
    pub(crate) scenario: Option<String>,
    /// Why there is no scenario.
    pub(crate) not_run: Option<String>,
    /// Published numbers one by one, beside ours.
    #[serde(default, rename = "number")]
    pub(crate) numbers: Vec<Number>,
    /// A published table, beside ours.
    pub(crate) table: Option<Table>,
    #[serde(default, rename = "figure")]
    pub(crate) figures: Vec<Figure>,
    #[serde(default)]
    pub(crate) notes: Vec<String>,
}

/// A published number, and the script that gives ours.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Number {
    pub(crate) what: String,
    /// As it was printed, with its unit.
    pub(crate) published: String,
    pub(crate) ours: String,
}

/// A published table with one row for each value of an axis.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// The label of the scenario's axis.
    pub(crate) axis: String,
    /// The key of its value in `rows`.
    pub(crate) key: String,
    pub(crate) columns: Vec<Column>,
    /// The published rows, in base units.
    pub(crate) rows: Vec<BTreeMap<String, toml::Value>>,
}

/// A column of a published table, and what it is in our results.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Column {
    /// The key in the published rows.
    pub(crate) key: String,
    pub(crate) title: String,
    pub(crate) variant: String,
    pub(crate) metric: String,
    /// Whether it is the gain of this variant over that one, in percent.
    pub(crate) against: Option<String>,
}

/// What is drawn of an experiment.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    pub(crate) kind: FigureKind,
    pub(crate) title: String,
    /// The label of the axis that is drawn to the right.
    pub(crate) x: String,
    /// For a surface, the label of the axis that is drawn upwards.
    pub(crate) y: Option<String>,
    pub(crate) metric: String,
    /// All variants if none is named; a surface is drawn for each.
    #[serde(default)]
    pub(crate) variants: Vec<String>,
    /// Whether the axis to the right is logarithmic.
    #[serde(default)]
    pub(crate) log_x: bool,
}

/// How it is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FigureKind {
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
pub(crate) struct Claim {
    pub(crate) id: String,
    /// The experiment that it is about.
    pub(crate) experiment: String,
    pub(crate) text: String,
    /// The script that judges it; see [`super::script`].
    pub(crate) check: Option<String>,
    /// Why it cannot be judged by a reproduction.
    pub(crate) not_checkable: Option<String>,
    /// What was found out about it, above all if it fails.
    pub(crate) explanation: Option<String>,
}

/// Where a catalogue's files are.
#[derive(Clone, Debug)]
enum Source {
    BuiltIn(&'static Dir<'static>),
    Directory(PathBuf),
}

impl Catalogue {
    /// All catalogues: those below `directory`, or those that come with Holdover.
    pub(crate) fn all(directory: Option<&Path>) -> Result<Vec<Self>, CatalogueError> {
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
        let Form { paper, choices, unions, experiments, claims } = form;
        let catalogue = Self { name, paper, choices, unions, experiments, claims, source };
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
            if !self.experiments.iter().any(|experiment| experiment.id == claim.experiment) {
                return Err(format!("claim \"{id}\" is about \"{}\", which is no experiment", claim.experiment));
            }
        }
        Ok(())
    }

    /// The scenarios that the results called `name` come from: its own, or those of a union.
    pub(crate) fn scenarios_of(&self, name: &str) -> Vec<String> {
        match self.unions.iter().find(|union| union.name == name) {
            Some(union) => union.of.iter().map(|part| part.scenario.clone()).collect(),
            None => vec![name.to_owned()],
        }
    }

    /// The names of results that the paper itself gives: scenarios of experiments, and unions.
    pub(crate) fn names_of_results(&self) -> impl Iterator<Item = &str> {
        let scenarios = self.experiments.iter().filter_map(|experiment| experiment.scenario.as_deref());
        scenarios.chain(self.unions.iter().map(|union| union.name.as_str()))
    }

    /// The scenario called `name`.
    pub(crate) fn scenario(&self, name: &str) -> Result<Scenario, CatalogueError> {
        let file = format!("{name}.toml");
        let text = self.source.text(&file)?;
        Ok(Scenario::parse(&file, &text, self.source.clone())?)
    }

    /// The experiment called `id`.
    pub(crate) fn experiment(&self, id: &str) -> Option<&Experiment> {
        self.experiments.iter().find(|experiment| experiment.id == id)
    }
}

impl Table {
    /// A number of a published row.
    pub(crate) fn number(&self, row: &BTreeMap<String, toml::Value>, key: &str) -> Option<f64> {
        let value = row.get(key)?;
        value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
    }
}

impl Experiment {
    /// The scripts in it.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = &str> {
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

impl Files for Source {
    fn read(&self, name: &str) -> Result<String, String> {
        self.text(name).map_err(|error| error.to_string())
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
