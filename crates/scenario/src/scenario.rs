//! Scenarios: reading, checking, and building worlds.

use std::sync::Arc;

use holdover_base::Rng;
use holdover_sim::WorldConfig;
use serde::Deserialize;

use crate::build;
use crate::error::{ErrorKind, ScenarioError};
use crate::file::ScenarioFile;
use crate::output::Output;
use crate::overrides::Override;
use crate::path::FieldPath;
use crate::problem::{Problem, Step, Under};
use crate::sweep::{Point, Sweep};
use crate::traces::{Files, Traces};
use crate::tree::{Mark, Node, Source};

/// Sections that neither a variant nor a point of a sweep can change.
pub(crate) const SAME_FOR_ALL_RUNS: [&str; 6] = ["variant", "sweep", "output", "seed", "title", "description"];

/// The default seed.
const DEFAULT_SEED: u64 = 1;

/// A checked scenario: every variant and every value of a sweep makes a valid world.
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

/// The scenario as changed by one of its variants.
#[derive(Clone, Debug)]
pub struct Variant {
    name: String,
    description: Option<String>,
    sources: Arc<Vec<Source>>,
    tree: Node,
    file: ScenarioFile,
    traces: Traces,
}

impl Scenario {
    /// Reads a scenario from `text`, which messages call `name`. The traces that it names are read through `files`: a
    /// [`std::path::PathBuf`] is their directory.
    ///
    /// # Errors
    ///
    /// The first problem of the scenario, its variants or its sweep.
    pub fn parse(name: &str, text: &str, files: impl Files + 'static) -> Result<Self, ScenarioError> {
        let source = Source { name: name.to_owned(), text: text.to_owned() };
        let tree = Node::parse(&source, 0)?;
        Self::of_tree(Arc::new(vec![source]), tree, Traces::new(Arc::new(files)), true)
    }

    /// The scenario with the given changes, applied in order.
    ///
    /// # Errors
    ///
    /// If a path does not exist or a value is not accepted there.
    pub fn with(&self, overrides: &[Override]) -> Result<Self, ScenarioError> {
        self.changed(overrides, true)
    }

    /// The scenario at a point of its sweep, without the sweep.
    ///
    /// # Errors
    ///
    /// If values of several axes, or of an axis and a variant, exclude each other.
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
        let check = if with_sweep { build::check_as_written } else { build::check };
        check(&file, &mut traces).map_err(explain)?;
        let output = build::output::of_scenario(&file).map_err(explain)?;
        let sweep = build::sweep::of_scenario(&file).map_err(explain)?;
        let mut variants = variants(&sources, &tree, &file, &mut traces, check)?;
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

    /// The description: the course of the run, and points of interest.
    pub fn description(&self) -> Option<&str> {
        self.file.description.as_deref()
    }

    /// The name under which it was read.
    pub fn name(&self) -> &str {
        self.sources.first().map_or("", |source| &source.name)
    }

    /// The random seed.
    pub fn seed(&self) -> u64 {
        self.file.seed.unwrap_or(DEFAULT_SEED)
    }

    /// The seed of the `run`th replication, counted from 0. Variants are compared on the same seeds. A TOML integer can represent each of
    /// them, so that a single run can be repeated.
    pub fn replication_seed(&self, run: u32) -> u64 {
        match run {
            0 => self.seed(),
            run => Rng::split(self.seed(), &format!("run {run}")).next_u64() >> 1,
        }
    }

    /// The variants; a single one called `base` if the scenario names none.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// The sweep, if there is one.
    pub const fn sweep(&self) -> Option<&Sweep> {
        self.sweep.as_ref()
    }

    /// The recordings and plots.
    pub const fn output(&self) -> &Output {
        &self.output
    }

    /// Warnings, a sentence each: flows that stop with a link although another path leads to their end, and mechanisms that find no connection
    /// to act on.
    ///
    /// # Errors
    ///
    /// Only errors that reading the scenario reports already.
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

    /// The names and texts of the files that the scenario names. Store them with the scenario.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.traces.texts()
    }

    /// The scenario as a file in normal form, including changes: reading it gives the same scenario.
    pub fn to_toml(&self) -> String {
        // Serialization cannot fail: all values are tables, lists, texts, numbers or booleans.
        toml::to_string_pretty(&self.file).unwrap_or_default()
    }
}

impl Variant {
    /// The name of the variant that is the scenario itself.
    pub const BASE: &'static str = "base";

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its description.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Builds the world to run.
    ///
    /// # Errors
    ///
    /// Only errors that reading the scenario reports already.
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
    check: fn(&ScenarioFile, &mut Traces) -> Result<(), Problem>,
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
        check(&own, traces).map_err(explain)?;
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

/// Checks every value of every axis individually.
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
