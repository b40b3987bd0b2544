//! A scenario: read, checked, and turned into worlds.

use std::sync::Arc;

use holdover_base::Rng;
use holdover_sim::WorldConfig;
use serde::Deserialize;

use crate::error::{ErrorKind, ScenarioError};
use crate::file::ScenarioFile;
use crate::output::Output;
use crate::path::FieldPath;
use crate::problem::{Problem, Step, Under};
use crate::sweep::{Point, Sweep};
use crate::traces::{Files, Traces};
use crate::tree::{Mark, Node, Source};
use crate::{build, output, sweep};

/// Sections that neither a variant nor a point of a sweep can change.
pub(crate) const SAME_FOR_ALL_RUNS: [&str; 6] = ["variant", "sweep", "output", "seed", "title", "description"];

/// The seed of a scenario that names none.
const DEFAULT_SEED: u64 = 1;

/// A scenario that was read and checked: every variant and every value of a sweep makes a world.
#[derive(Clone, Debug)]
pub struct Scenario {
    sources: Arc<Vec<Source>>,
    tree: Node,
    file: ScenarioFile,
    traces: Traces,
    variants: Vec<Variant>,
    sweep: Option<Sweep>,
    output: Output,
}

/// A scenario as one of its variants has it.
#[derive(Clone, Debug)]
pub struct Variant {
    name: String,
    description: Option<String>,
    sources: Arc<Vec<Source>>,
    tree: Node,
    file: ScenarioFile,
    traces: Traces,
}

/// A field and the value that it gets.
#[derive(Clone, PartialEq, Debug)]
pub struct Override {
    /// The path of the field: `link.radio.delay`, `flow.*.stack.rto.min`.
    pub path: String,
    /// The value.
    pub value: toml::Value,
}

impl Override {
    /// `value` for the field at `path`.
    pub fn new(path: impl Into<String>, value: impl Into<toml::Value>) -> Self {
        Self { path: path.into(), value: value.into() }
    }

    /// Reads `path=value`. What is no TOML value is taken as a text, so that `link.radio.delay=50 ms` needs no quotes.
    ///
    /// # Errors
    ///
    /// If there is no `=`.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let Some((path, value)) = text.split_once('=') else {
            let problem = Problem::unexpected(ErrorKind::Syntax, format!("\"{text}\""), "path=value");
            let location = crate::Location::of("--set", text, 0..text.len());
            return Err(problem.into_parts().into_error(String::new(), location));
        };
        let (path, value) = (path.trim(), value.trim());
        let parsed = toml::from_str::<toml::Table>(&format!("value = {value}")).ok();
        let parsed = parsed.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
        Ok(Self::new(path, parsed.unwrap_or_else(|| toml::Value::String(value.to_owned()))))
    }

    /// The override as a text of its own, and where in it path and value are.
    fn source(&self, index: usize) -> (Source, Mark, Mark) {
        let text = format!("{} = {}", self.path, self.value);
        let path = Mark::new(index, 0..self.path.len());
        let value = Mark::new(index, self.path.len() + 3..text.len());
        (Source { name: "--set".to_owned(), text }, path, value)
    }
}

/// `path = value`, as in a scenario file.
impl core::fmt::Display for Override {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} = {}", self.path, self.value)
    }
}

impl Scenario {
    /// Reads a scenario from `text`, which messages call `name`. The traces that it names are read through `files`: a
    /// [`std::path::PathBuf`] is the directory that they lie in.
    ///
    /// # Errors
    ///
    /// The first problem of the scenario, of one of its variants or of its sweep.
    pub fn parse(name: &str, text: &str, files: impl Files + 'static) -> Result<Self, ScenarioError> {
        let source = Source { name: name.to_owned(), text: text.to_owned() };
        let tree = Node::parse(&source, 0)?;
        Self::of_tree(Arc::new(vec![source]), tree, Traces::new(Arc::new(files)), true)
    }

    /// The scenario with some fields changed, in order.
    ///
    /// # Errors
    ///
    /// If a path names nothing or a value is not accepted there.
    pub fn with(&self, overrides: &[Override]) -> Result<Self, ScenarioError> {
        self.changed(overrides, true)
    }

    /// The scenario at a point of its sweep. It has no sweep any more.
    ///
    /// # Errors
    ///
    /// If the values of several axes exclude each other, or those of an axis and a variant.
    pub fn at(&self, point: &Point) -> Result<Self, ScenarioError> {
        self.changed(&point.overrides, false)
    }

    fn changed(&self, overrides: &[Override], with_sweep: bool) -> Result<Self, ScenarioError> {
        let mut sources = (*self.sources).clone();
        let mut tree = self.tree.clone();
        for change in overrides {
            let (source, path_mark, value_mark) = change.source(sources.len());
            sources.push(source);
            let value = Node::of_value(&change.value, value_mark);
            FieldPath::parse(&change.path)
                .and_then(|path| path.set(&mut tree, path_mark, &value))
                .map_err(|problem| problem.into_parts().into_error(change.path.clone(), path_mark.locate(&sources)))?;
        }
        Self::of_tree(Arc::new(sources), tree, self.traces.clone(), with_sweep)
    }

    fn of_tree(
        sources: Arc<Vec<Source>>,
        tree: Node,
        mut traces: Traces,
        with_sweep: bool,
    ) -> Result<Self, ScenarioError> {
        let explain = |problem| tree.explain(problem, &sources);
        let mut file = ScenarioFile::deserialize(&tree).map_err(explain)?;
        if !with_sweep {
            file.sweep = None;
        }
        build::check(&file, &mut traces).map_err(explain)?;
        let output = output::of_scenario(&file).map_err(explain)?;
        let sweep = sweep::of_scenario(&file).map_err(explain)?;
        let mut variants = variants(&sources, &tree, &file, &mut traces)?;
        if let Some(sweep) = &sweep {
            check_axes(sweep, &sources, &tree, &mut traces)?;
        }
        for variant in &mut variants {
            variant.traces = traces.clone();
        }
        Ok(Self { variants, sweep, output, sources, tree, file, traces })
    }

    /// The title, or the name of the file.
    pub fn title(&self) -> &str {
        match &self.file.title {
            Some(title) => title,
            None => self.name(),
        }
    }

    /// What happens, and what there is to see.
    pub fn description(&self) -> Option<&str> {
        self.file.description.as_deref()
    }

    /// The name that it was read under.
    pub fn name(&self) -> &str {
        self.sources.first().map_or("", |source| &source.name)
    }

    /// What everything random is drawn from.
    pub fn seed(&self) -> u64 {
        self.file.seed.unwrap_or(DEFAULT_SEED)
    }

    /// The seed of the `run`th run of the same, counted from 0. Variants are compared on the same seeds. A TOML integer holds
    /// each of them, so that a single run can be repeated.
    pub fn replication_seed(&self, run: u32) -> u64 {
        match run {
            0 => self.seed(),
            run => Rng::split(self.seed(), &format!("run {run}")).next_u64() >> 1,
        }
    }

    /// What is run side by side; one variant called `base` if the scenario names none.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// What is varied, if anything is.
    pub const fn sweep(&self) -> Option<&Sweep> {
        self.sweep.as_ref()
    }

    /// What is recorded and drawn.
    pub const fn output(&self) -> &Output {
        &self.output
    }

    /// What is no error but hardly meant, a sentence each: flows that stop with a link although another way leads to their end.
    ///
    /// # Errors
    ///
    /// None that reading the scenario has not found already.
    pub fn warnings(&self) -> Result<Vec<String>, ScenarioError> {
        let mut warnings: Vec<(String, Vec<&str>)> = Vec::new();
        for variant in &self.variants {
            let explain = |problem| variant.tree.explain(problem, &variant.sources);
            for warning in build::warnings(&variant.file, &mut variant.traces.clone()).map_err(explain)? {
                match warnings.iter_mut().find(|(known, _)| *known == warning) {
                    Some((_, variants)) => variants.push(variant.name()),
                    None => warnings.push((warning, vec![variant.name()])),
                }
            }
        }
        let of_some = |(warning, variants): (String, Vec<&str>)| match variants.len() {
            all if all == self.variants.len() => warning,
            1 => format!("variant {}: {warning}", variants[0]),
            _ => format!("variants {}: {warning}", variants.join(", ")),
        };
        Ok(warnings.into_iter().map(of_some).collect())
    }

    /// The files that the scenario names: their names in it, and their texts. Store them with the scenario.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.traces.texts()
    }

    /// The scenario as a file, changes included, in the one normal form: reading it gives the same scenario.
    pub fn to_toml(&self) -> String {
        // Everything in a scenario is a table, a list, a text, a number or a truth value, and so can be written.
        toml::to_string_pretty(&self.file).unwrap_or_default()
    }
}

impl Variant {
    /// The name of a variant that stands for the scenario itself.
    pub const BASE: &'static str = "base";

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// The world to run.
    ///
    /// # Errors
    ///
    /// None that reading the scenario has not found already.
    pub fn world(&self, seed: u64) -> Result<WorldConfig, ScenarioError> {
        let mut traces = self.traces.clone();
        build::world(&self.file, seed, &mut traces).map_err(|problem| self.tree.explain(problem, &self.sources))
    }
}

/// The variants of a scenario, each checked.
fn variants(
    sources: &Arc<Vec<Source>>,
    tree: &Node,
    file: &ScenarioFile,
    traces: &mut Traces,
) -> Result<Vec<Variant>, ScenarioError> {
    let make = |name: &str, description: &Option<String>, tree: Node, file: ScenarioFile, traces: &Traces| Variant {
        name: name.to_owned(),
        description: description.clone(),
        sources: Arc::clone(sources),
        tree,
        file,
        traces: traces.clone(),
    };
    if file.variants.is_empty() {
        return Ok(vec![make(Variant::BASE, &None, tree.clone(), file.clone(), traces)]);
    }
    let mut variants = Vec::with_capacity(file.variants.len());
    for (index, variant) in file.variants.iter().enumerate() {
        let before = file.variants[..index].iter().map(|variant| variant.name.as_str());
        build::check_name(&variant.name)
            .and_then(|()| build::check_new("variant", &variant.name, before))
            .under_index(index)
            .under("variant")
            .map_err(|problem| tree.explain(problem, sources))?;
        let context = || format!("variant \"{}\"", variant.name);
        let mut changed = tree.clone();
        let set = tree.field("variant").and_then(|list| list.node.elements().get(index)?.field("set"));
        let entries = match set.map(|set| &set.node.value) {
            Some(crate::tree::Value::Table(entries)) => entries.as_slice(),
            _ => &[],
        };
        for entry in entries {
            let way = [Step::Key("variant".into()), Step::Index(index), Step::Key("set".into())];
            let wrong = |problem: Problem| {
                let problem = problem.at_steps(&[Step::Key(entry.key.clone())]).at_key().at_steps(&way);
                tree.explain(problem, sources).within(context)
            };
            apply(&mut changed, &entry.key, entry.key_mark, &entry.node).map_err(wrong)?;
        }
        let explain = |problem| changed.explain(problem, sources).within(context);
        let own = ScenarioFile::deserialize(&changed).map_err(explain)?;
        build::check(&own, traces).map_err(explain)?;
        variants.push(make(&variant.name, &variant.description, changed, own, traces));
    }
    Ok(variants)
}

/// Changes one field for a variant or a point of a sweep.
fn apply(tree: &mut Node, path: &str, mark: Mark, value: &Node) -> Result<(), Problem> {
    let path = FieldPath::parse(path)?;
    match path.section() {
        section if SAME_FOR_ALL_RUNS.contains(&section) => {
            let message = format!("\"{section}\" is the same for all runs, and cannot be changed for some");
            Err(Problem::new(ErrorKind::NoSuchPath, message))
        }
        _ => path.set(tree, mark, value),
    }
}

/// Checks every value of every axis, each on its own.
fn check_axes(sweep: &Sweep, sources: &[Source], tree: &Node, traces: &mut Traces) -> Result<(), ScenarioError> {
    let tables =
        tree.field("sweep").and_then(|sweep| sweep.node.field("axis")).map_or(&[][..], |axes| axes.node.elements());
    for (index, (axis, table)) in sweep.axes().iter().zip(tables).enumerate() {
        let path_mark = table.field("path").map_or(table.mark, |path| path.node.mark);
        let listed = table.field("values").map_or(&[][..], |values| values.node.elements());
        for (number, value) in axis.values.iter().enumerate() {
            let range_mark = table.field("range").map_or(table.mark, |range| range.node.mark);
            let node = listed.get(number).cloned().unwrap_or_else(|| Node::of_value(value, range_mark));
            let context = || format!("sweep axis \"{}\" at {value}", axis.label);
            let mut changed = tree.clone();
            apply(&mut changed, &axis.path, path_mark, &node).map_err(|problem| {
                let way = [Step::Key("sweep".into()), Step::Key("axis".into()), Step::Index(index)];
                let problem = problem.at_steps(&[Step::Key("path".into())]).at_steps(&way);
                tree.explain(problem, sources)
            })?;
            let explain = |problem| changed.explain(problem, sources).within(context);
            let own = ScenarioFile::deserialize(&changed).map_err(explain)?;
            build::check(&own, traces).map_err(explain)?;
        }
    }
    Ok(())
}
