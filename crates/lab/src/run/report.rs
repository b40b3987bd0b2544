//! Writes the scenario, plots and page of a run.

use std::path::Path;

use holdover_report::html::Page;
use holdover_report::plots::{Plot, PlotKind, PlottedRun, plots, progress, time_axis_ends};
use holdover_report::{
    CaptureFormat, CaptureLen, CaptureOptions, Record, RecordError, RecorderOptions, ResultsDir, ResultsError, Summary,
};
use holdover_scenario::{Captures, Output, Scenario};
use holdover_sim::WorldConfig;

use super::parallel::in_parallel;

/// The recorder options of a scenario's `[output]`; no captures if `captures` is false.
pub fn recorder_options(output: &Output, captures: bool) -> RecorderOptions {
    let nodes = match &output.captures {
        Captures::None => None,
        Captures::All => Some(None),
        Captures::Nodes(nodes) => Some(Some(nodes.clone())),
    };
    let captures = nodes.filter(|_| captures).map(|nodes| CaptureOptions {
        format: match output.capture_format {
            holdover_scenario::CaptureFormat::Pcapng => CaptureFormat::Pcapng,
            holdover_scenario::CaptureFormat::Pcap => CaptureFormat::Pcap,
        },
        nodes,
        len: output.snap_length.map_or(CaptureLen::Whole, CaptureLen::Bytes),
        ..CaptureOptions::default()
    });
    RecorderOptions { captures, events: output.events, ..RecorderOptions::default() }
}

/// The plots of a scenario's `[output]`. Queues are added to any plot of a flow.
pub fn plot_kinds(output: &Output) -> Vec<PlotKind> {
    if output.plots.is_empty() {
        return Vec::new();
    }
    let kind = |plot: &holdover_scenario::Plot| match plot {
        holdover_scenario::Plot::TimeSequence => PlotKind::TimeSequence,
        holdover_scenario::Plot::Cwnd => PlotKind::Window,
        holdover_scenario::Plot::Rtt => PlotKind::Rtt,
        holdover_scenario::Plot::Goodput => PlotKind::Goodput,
    };
    output.plots.iter().map(kind).chain([PlotKind::Queues]).collect()
}

/// The directory `path` for a run of this scenario, absent or empty; with `force` the files of an earlier run are removed.
///
/// # Errors
///
/// If it has other files, or cannot be used.
pub fn results_directory(path: &Path, force: bool, scenario: &Scenario) -> Result<ResultsDir, ResultsError> {
    ResultsDir::create(path, force, scenario.files().map(|(name, _)| name))
}

/// A new directory below `parent` for a run of this scenario at `stamp`.
///
/// # Errors
///
/// If it cannot be created, or the scenario names a file that is called as a result.
pub fn new_results_directory(
    parent: &Path,
    name: &str,
    stamp: &str,
    scenario: &Scenario,
) -> Result<ResultsDir, ResultsError> {
    ResultsDir::create_new(parent, name, stamp, scenario.files().map(|(name, _)| name))
}

/// Writes the scenario as run, and the traces that it names, if their relative names can be kept.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write_scenario(results: &ResultsDir, scenario: &Scenario) -> Result<(), RecordError> {
    for (name, text) in scenario.files() {
        results.write_copy(name, text.as_bytes())?;
    }
    results.write("scenario.toml", scenario.to_toml().as_bytes())
}

/// Draws the plots of `kinds` on `jobs` threads, and writes them with the page of a run. `worlds` and `records` belong to the summary's
/// variants.
///
/// # Errors
///
/// If a file cannot be written or a plot cannot be drawn.
pub fn write_report(
    results: &ResultsDir,
    scenario: &Scenario,
    summary: &Summary,
    worlds: &[WorldConfig],
    records: &[Record],
    kinds: &[PlotKind],
    jobs: usize,
) -> Result<(), RecordError> {
    // A scenario without variants has a single unnamed one, which titles omit.
    let single = records.len() == 1;
    let runs: Vec<PlottedRun<'_>> = summary
        .variants
        .iter()
        .zip(worlds)
        .zip(records)
        .map(|((variant, config), record)| {
            let variant = if single { "" } else { variant.variant.as_str() };
            PlottedRun { variant, config, record }
        })
        .collect();
    let ends = time_axis_ends(&records.iter().map(|record| record.ended_at).collect::<Vec<_>>());
    let drawn: Vec<Vec<Plot>> = runs.iter().zip(ends).map(|(run, end)| plots(run, kinds, end)).collect();
    let progress = if kinds.is_empty() { None } else { progress(&runs) };
    if let Some(progress) = &progress {
        results.write_plot("", progress)?;
    }
    let files: Vec<(String, &Plot)> = summary
        .variants
        .iter()
        .zip(&drawn)
        .flat_map(|(variant, plots)| {
            let directory = format!("{}/plots", variant.directory);
            plots.iter().map(move |plot| (directory.clone(), plot))
        })
        .collect();
    let written = in_parallel(files.len(), jobs, |index| results.write_plot(&files[index].0, files[index].1), || {});
    written.into_iter().collect::<Result<Vec<()>, RecordError>>()?;
    let files: Vec<_> = summary.variants.iter().map(|variant| results.files_below(&variant.directory)).collect();
    let text = scenario.to_toml();
    let page = Page { summary, scenario: &text, progress: progress.as_ref(), plots: &drawn, files: &files };
    results.write("report.html", page.to_html().as_bytes())
}
