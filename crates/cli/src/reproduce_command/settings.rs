//! `--open` and `--fit`: a paper's claims and numbers over the values that it leaves open.

use std::fmt::Write as _;
use std::path::Path;

use holdover_lab::reproduce::catalogue::{Catalogue, FITTED, SURVEY};
use holdover_lab::reproduce::figures;
use holdover_lab::reproduce::fit::fit;
use holdover_lab::reproduce::sample::Sampling;
use holdover_lab::reproduce::setting::Fitted;
use holdover_lab::reproduce::survey::{Over, Survey, Surveyed};
use holdover_lab::reproduce::work::{Running, Work};
use serde::Serialize;

use super::{CommandError, ReproduceArgs, write};
use crate::text_table::{Layout, columns, laid_out, paragraph};

/// The directory of a paper's trials in its part of the results.
const SETTINGS: &str = "settings";

/// The verdicts on a paper's claims over all sampled settings.
#[derive(Serialize)]
struct SurveySummary<'a> {
    paper: &'a str,
    survey: &'a Survey,
    claims: Vec<SurveyedClaim<'a>>,
}

#[derive(Serialize)]
struct SurveyedClaim<'a> {
    id: &'a str,
    text: &'a str,
    #[serde(flatten)]
    surveyed: Surveyed,
}

/// Refuses papers without open parameters and, for a fit, without printed numbers, before anything runs.
pub(super) fn check(works: &[Work], fits: bool) -> Result<(), CommandError> {
    for work in works {
        let paper = work.catalogue.name.clone();
        if work.catalogue.inputs.is_empty() {
            return Err(CommandError::NothingOpen(paper));
        }
        if fits && !work.prints_numbers() {
            return Err(CommandError::NothingToFit(paper));
        }
    }
    Ok(())
}

fn sampling(args: &ReproduceArgs, catalogue: &Catalogue) -> Sampling {
    let declared = catalogue.sampling;
    Sampling {
        samples: args.samples.map_or(declared.samples, u32::from),
        runs: args.runs.map_or(declared.runs, u32::from),
        ..declared
    }
}

/// The command that repeats the run.
fn command(args: &ReproduceArgs, paper: &str, flag: &str, sampling: Sampling) -> String {
    let mut command =
        format!("holdover reproduce {paper} {flag} --samples {} --runs {}", sampling.samples, sampling.runs);
    if let Some(directory) = &args.experiments {
        let _ = write!(command, " --experiments {}", directory.display());
    }
    if args.keep {
        command.push_str(" --keep");
    }
    command
}

/// Judges the claims of a paper over its settings; returns the text to print.
pub(super) fn survey(
    work: &Work,
    directory: &Path,
    args: &ReproduceArgs,
    running: &Running<'_>,
) -> Result<String, CommandError> {
    let paper = &work.catalogue.name;
    let sampling = sampling(args, &work.catalogue);
    let command = command(args, paper, "--open", sampling);
    let trials = directory.join(paper).join(SETTINGS);
    let made = Survey::make(work, trials, sampling, running, command)?;
    let Some(survey) = made else { return Err(CommandError::Interrupted(directory.to_owned())) };
    keep(args, paper, directory, SURVEY, &survey.to_toml())?;
    let mut catalogue = work.catalogue.clone();
    catalogue.survey = Some(survey);
    if let Some(drawn) = figures::of_survey(&catalogue) {
        write(&directory.join(paper).join("open.svg"), drawn.picture.svg.as_bytes())?;
        if let Ok(png) = &drawn.picture.png {
            write(&directory.join(paper).join("open.png"), png)?;
        }
    }
    render(&catalogue, directory, args.json)
}

fn render(catalogue: &Catalogue, directory: &Path, json: bool) -> Result<String, CommandError> {
    let Some(survey) = &catalogue.survey else { return Ok(String::new()) };
    let surveyed = catalogue.claims.iter().filter_map(|claim| {
        let surveyed = survey.of(&claim.id, &catalogue.inputs)?;
        Some(SurveyedClaim { id: &claim.id, text: &claim.text, surveyed })
    });
    let claims: Vec<SurveyedClaim<'_>> = surveyed.collect();
    if json {
        let summary = SurveySummary { paper: &catalogue.name, survey, claims };
        return Ok(format!("{}\n", serde_json::to_string_pretty(&summary)?));
    }
    let head = format!(
        "{}: {} settings of what it leaves open (inputs: {})",
        catalogue.name,
        survey.settings.len(),
        survey.inputs.len()
    );
    let verdicts = [(Over::All, "all"), (Over::Some, "some"), (Over::None, "none")];
    let rows = verdicts.into_iter().flat_map(|(over, title)| {
        let claims = claims.iter().filter(move |claim| claim.surveyed.verdict == over);
        claims.map(move |claim| [claim.id.to_owned(), title.to_owned(), claim.surveyed.in_words()])
    });
    let layout = Layout { has_sentences: true, ..Layout::default() };
    let rows = laid_out(["claim", "holds for", "found"], layout, rows);
    let kept = format!("Kept in {}\n", directory.join(&catalogue.name).join(SURVEY).display());
    Ok([paragraph(&head), rows, kept].concat())
}

/// Fits the open parameters to a paper's numbers; returns the text to print.
pub(super) fn search(
    work: &Work,
    directory: &Path,
    args: &ReproduceArgs,
    running: &Running<'_>,
) -> Result<String, CommandError> {
    let paper = &work.catalogue.name;
    let sampling = sampling(args, &work.catalogue);
    let command = command(args, paper, "--fit", sampling);
    let trials = directory.join(paper).join(SETTINGS);
    let found = fit(work, trials, sampling, running, command)?;
    let Some(fitted) = found else { return Err(CommandError::Interrupted(directory.to_owned())) };
    keep(args, paper, directory, FITTED, &fitted.to_toml())?;
    if args.json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&fitted)?));
    }
    Ok(in_words(paper, &fitted, directory))
}

fn in_words(paper: &str, fitted: &Fitted, directory: &Path) -> String {
    let search = &fitted.search;
    let head = format!(
        "{paper}: loss {} at the best of {} settings, {} as the scenarios are written; {} of {} printed numbers are within a tenth",
        search.loss, search.tried, search.loss_as_written, search.within_a_tenth, search.numbers
    );
    let rows = fitted.setting.0.iter().map(|(name, value)| [name.clone(), holdover_lab::reproduce::open::words(value)]);
    let kept = format!("Kept in {}\n", directory.join(paper).join(FITTED).display());
    [paragraph(&head), columns(["input", "value"], rows), kept].concat()
}

/// Writes a file to the results and, on request, beside the paper's.
fn keep(args: &ReproduceArgs, paper: &str, directory: &Path, name: &str, text: &str) -> Result<(), CommandError> {
    write(&directory.join(paper).join(name), text.as_bytes())?;
    match &args.experiments {
        Some(papers) if args.keep => write(&papers.join(paper).join(name), text.as_bytes()),
        _ => Ok(()),
    }
}
