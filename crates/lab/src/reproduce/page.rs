//! The report of a reproduction: a page in Markdown and HTML, and a shorter text for a terminal.
//!
//! Both pages consist of the same parts in the same order; a `Writer` gives them their form.

mod writer;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use holdover_report::Document;

use super::catalogue::{Catalogue, Experiment, PAPER, Table};
use super::figures::Drawn;
use super::judge::{Counts, Judged, Verdict};
use super::numbers;
use super::open::words;
use super::results::Results;
use super::script::{Scripts, short};
use super::together::{Pair, Part, Together, UNLIKELY};
use writer::{Html, Markdown, Writer};

/// A reproduced paper.
pub struct Reproduced<'a> {
    /// The paper's file.
    pub catalogue: &'a Catalogue,
    /// The chosen experiments.
    pub experiments: Vec<&'a Experiment>,
    /// The results by the name of scenario or union.
    pub results: &'a BTreeMap<String, Results>,
    /// The claims with verdicts.
    pub claims: &'a [Judged],
    /// The figures of the experiments.
    pub figures: &'a [Drawn],
    /// The figure of the claims over the open inputs.
    pub survey: Option<&'a Drawn>,
    /// The script engine for the same results.
    pub scripts: &'a Scripts,
    /// The command that repeats the reproduction.
    pub command: String,
}

impl Reproduced<'_> {
    /// The page in Markdown; its figures are in `pictures`, relative to the page.
    pub fn markdown(&self, pictures: &str) -> String {
        let paper = &self.catalogue.paper;
        let mut page = Markdown::new(&paper.title, pictures);
        if !paper.authors.is_empty() {
            page.paragraph(&paper.authors);
        }
        if !paper.summary.is_empty() {
            page.paragraph(paper.summary.trim());
        }
        page.paragraph(&format!("This page is made by `{}`.", self.command));
        self.body(&mut page, None);
        page.into_text()
    }

    /// The self-contained page in HTML. `runs` is the directory of the runs, relative to the page, if it lies beside it.
    pub fn html(&self, runs: Option<&str>) -> String {
        let paper = &self.catalogue.paper;
        let mut page = Html(Document::new(&paper.title));
        if !paper.authors.is_empty() {
            page.0.lead(&paper.authors);
        }
        if !paper.summary.is_empty() {
            page.0.lead(paper.summary.trim());
        }
        self.body(&mut page, runs);
        page.0.to_html(&format!(
            "Holdover {}. This page is made by `{}`; the same version gives the same figures.",
            env!("CARGO_PKG_VERSION"),
            self.command
        ))
    }

    fn body(&self, page: &mut impl Writer, runs: Option<&str>) {
        page.paragraph(&in_words(Counts::of(self.claims)));
        if let Some(strictly) = strictly_in_words(self.claims) {
            page.paragraph(&strictly);
        }
        if let Some(over) = self.survey_in_words() {
            page.paragraph(&over);
        }
        self.claims(page);
        if let Some(together) = self.together().filter(Together::falls_short) {
            self.unsatisfied(page, &together);
        }
        self.facts(page);
        self.choices(page);
        self.inputs(page);
        for experiment in &self.experiments {
            self.experiment(page, experiment, runs);
        }
    }

    /// The claims by verdict, the failed ones by cause.
    fn claims(&self, page: &mut impl Writer) {
        let of = |verdict: Verdict| self.claims.iter().filter(move |claim| claim.verdict == verdict);
        let sections = [
            (Verdict::Holds, "holds", "Claims that hold"),
            (Verdict::Fails, "fails", "Claims that fail"),
            (Verdict::Broken, "broken", "Claims whose check does not work"),
            (Verdict::NotCheckable, "not-checkable", "Claims that cannot be checked by a reproduction"),
        ];
        for (verdict, id, title) in sections {
            if of(verdict).next().is_none() {
                continue;
            }
            page.section(id, title);
            if verdict != Verdict::Fails {
                self.table_of_claims(page, of(verdict).collect());
                continue;
            }
            for cause in &self.catalogue.causes {
                let claims: Vec<&Judged> =
                    of(verdict).filter(|claim| claim.cause.as_ref() == Some(&cause.name)).collect();
                if !claims.is_empty() {
                    page.heading(&cause.title);
                    page.paragraph(cause.text.trim());
                    self.table_of_claims(page, claims);
                }
            }
            let others: Vec<&Judged> = of(verdict).filter(|claim| claim.cause.is_none()).collect();
            if !others.is_empty() {
                if !self.catalogue.causes.is_empty() {
                    page.heading("Each for a reason of its own, or for none that is known");
                }
                self.table_of_claims(page, others);
            }
        }
    }

    fn table_of_claims(&self, page: &mut impl Writer, claims: Vec<&Judged>) {
        let surveyed = claims.iter().any(|claim| claim.over_open.is_some());
        let rows = claims.iter().map(|claim| {
            let mut found = claim.found.clone();
            let more =
                [&claim.in_part.as_ref().map(|rest| format!("Not checked: {rest}")), &claim.note, &claim.explanation];
            for text in more.into_iter().flatten() {
                // Findings have no full stop at their end.
                let _ = write!(found, "{} {}", if found.ends_with('.') { "" } else { "." }, text.trim());
            }
            let mut row = vec![format!("`{}`: {}", claim.id, claim.text), claim.verdict_in_words(), found];
            if surveyed {
                row.push(claim.over_open.as_ref().map_or_else(String::new, super::survey::Surveyed::in_words));
            }
            row
        });
        let mut heading = vec!["claim", "verdict", "found here"];
        if surveyed {
            heading.push("over what is left open");
        }
        page.texts(&heading, rows.collect());
    }

    /// The number of claims that hold at all, some and none of the settings.
    fn survey_in_words(&self) -> Option<String> {
        use super::survey::Over;
        let survey = self.catalogue.survey.as_ref()?;
        let count = |over: Over| {
            self.claims.iter().filter(|claim| claim.over_open.as_ref().is_some_and(|one| one.verdict == over)).count()
        };
        Some(format!(
            "Over {} {} settings of what the paper leaves open (runs of each variant at each point: {}; `{}`), of the \
             claims, {} hold at all settings, {} at some, {} at none.",
            if survey.is_complete(&self.catalogue.inputs) { "all" } else { "a sample of" },
            survey.settings.len(),
            survey.runs,
            survey.command,
            count(Over::All),
            count(Over::Some),
            count(Over::None)
        ))
    }

    /// The claims that hold together; `None` without a survey, or on a page of a part of the experiments.
    pub fn together(&self) -> Option<Together> {
        let survey = self.catalogue.survey.as_ref()?;
        let whole = self.experiments.len() == self.catalogue.experiments.len();
        if whole { Together::new(survey, self.claims, &self.catalogue.inputs) } else { None }
    }

    /// Shows which claims hold together and, if no setting satisfies the required share of claims, that none does.
    fn unsatisfied(&self, page: &mut impl Writer, together: &Together) {
        let Some(survey) = &self.catalogue.survey else { return };
        let title = match (together.is_met(), together.complete) {
            (true, _) => "Which claims hold together",
            (false, true) => "What no setting satisfies",
            (false, false) => "What no setting of the sample satisfies",
        };
        page.section("together", title);
        page.paragraph(&summary(together, &survey.command));
        page.paragraph(&format!("The setting with {}: {}.", together.most, together.at.in_words()));
        if together.complete {
            page.paragraph("Other values than the declared ones were not run.");
        } else if !together.is_met() {
            page.paragraph(&format!(
                "A sample leaves settings out: if those with {} claims filled more than {} % of the ranges, {} independent ones would \
                 all miss them with a probability below {} %.",
                together.wanted,
                short(100.0 * together.share_missed()),
                together.settings,
                100.0 * UNLIKELY
            ));
        }
        experiments_apart(page, together);
        if !together.nowhere.is_empty() {
            page.heading(&format!("Claims that hold at no setting tried: {}", together.nowhere.len()));
            page.paragraph(&quoted(&together.nowhere));
        }
        self.exclusions(page, together);
    }

    /// The pairs of claims that never hold together, except those that chance alone would keep apart.
    fn exclusions(&self, page: &mut impl Writer, together: &Together) {
        let (shown, rest): (Vec<&Pair>, Vec<&Pair>) = together.pairs.iter().partition(|pair| pair.is_unlikely());
        if together.pairs.is_empty() {
            return;
        }
        page.heading(&format!("Pairs of claims that hold each, and never together: {}", together.pairs.len()));
        if !shown.is_empty() {
            let row = |pair: &&Pair| {
                let [a, b] = [0, 1].map(|at| format!("`{}` (at {})", pair.claims[at], settings(pair.holds[at])));
                vec![a, b, format!("{:.1} %", 100.0 * pair.corrected)]
            };
            page.texts(&["claim", "never with", "apart by chance"], shown.iter().map(row).collect());
            page.paragraph(&format!(
                "The probability that settings drawn at random, in these numbers, have none in common is corrected for the {} pairs of \
                 claims that were compared (Holm's method).",
                together.compared
            ));
        }
        if !rest.is_empty() {
            page.paragraph(&format!(
                "{} are not listed: their claims hold at so few settings that two of the same numbers, drawn at random, would have none in \
                 common with a probability of {} % or more, corrected for the {} pairs that were compared (Holm's method).",
                if shown.is_empty() { "They".to_owned() } else { format!("{} more", rest.len()) },
                100.0 * UNLIKELY,
                together.compared
            ));
        }
    }

    fn facts(&self, page: &mut impl Writer) {
        for (index, facts) in self.catalogue.facts.iter().enumerate() {
            page.section(&format!("facts-{index}"), &facts.title);
            page.paragraph(&facts.source);
            let heading: Vec<&str> = facts.heading.iter().map(String::as_str).collect();
            page.texts(&heading, facts.rows.clone());
        }
    }

    fn choices(&self, page: &mut impl Writer) {
        if self.catalogue.choices.is_empty() {
            return;
        }
        page.section("choices", "What was chosen once");
        let rows = self.catalogue.choices.iter().map(|one| vec![one.what.clone(), one.value.clone(), one.why.clone()]);
        page.texts(&["what", "chosen", "why"], rows.collect());
    }

    /// The open inputs, the fitted setting, and the deciding inputs.
    fn inputs(&self, page: &mut impl Writer) {
        if self.catalogue.inputs.is_empty() {
            return;
        }
        page.section("open", "What the paper leaves open");
        let fitted = self.catalogue.fitted.as_ref();
        if let Some(fitted) = fitted {
            let search = &fitted.search;
            page.paragraph(&format!(
                "All verdicts are judged at one setting, at which the {} numbers that the paper prints fit best: {} are within a \
                 tenth, and the loss is {} against {} with the scenarios as they are written. Claims had no part in the search. It \
                 is found again by `{}`, which tried {} settings.",
                search.numbers, search.within_a_tenth, search.loss, search.loss_as_written, search.command, search.tried
            ));
        } else {
            page.paragraph("The verdicts are judged with the scenarios as they are written.");
        }
        let rows = self.catalogue.inputs.iter().map(|input| {
            let value = fitted.and_then(|fitted| fitted.setting.0.get(&input.name));
            let value = value.map_or_else(|| "as written".to_owned(), words);
            vec![input.name.clone(), input.in_words(), value, input.evidence.trim().to_owned(), input.source.clone()]
        });
        page.texts(&["input", "values", "at", "evidence", "source"], rows.collect());
        if let Some(drawn) = self.survey {
            page.picture(drawn);
        }
    }

    fn experiment(&self, page: &mut impl Writer, experiment: &Experiment, runs: Option<&str>) {
        page.section(&experiment.id, &format!("{}: {}", experiment.id, experiment.title));
        match (&experiment.scenario, &experiment.not_run) {
            (Some(scenario), _) => page.paragraph(&self.provenance(experiment, scenario, runs)),
            (None, reason) => {
                let reason = reason.as_deref().unwrap_or("no scenario");
                page.paragraph(&format!("{}. Not run: {reason}", experiment.source));
            }
        }
        for note in &experiment.notes {
            page.paragraph(note);
        }
        self.numbers(page, experiment);
        let results = experiment.scenario.as_ref().and_then(|scenario| self.results.get(scenario));
        if let (Some(table), Some(results)) = (&experiment.table, results) {
            side_by_side(page, table, results);
        }
        for matrix in &experiment.matrices {
            let Some(results) = results else { continue };
            page.heading(&matrix.title);
            page.figures(matrix.heading(results), matrix.rows(results));
        }
        for drawn in self.figures.iter().filter(|drawn| drawn.experiment == experiment.id) {
            page.picture(drawn);
        }
    }

    /// The source of an experiment's numbers.
    fn provenance(&self, experiment: &Experiment, scenario: &str, runs: Option<&str>) -> String {
        let made: usize =
            self.results.get(scenario).map_or(0, |results| results.cells.iter().map(|cell| cell.runs).sum());
        let file = |name: &String| {
            let file = match self.catalogue.derived(name) {
                Some(derived) => format!("`{}.toml` with the changes of `{name}` in `{PAPER}`", derived.from),
                None => format!("`{name}.toml`"),
            };
            match runs {
                Some(runs) => format!("{file} ([runs]({runs}/{name}/runs.csv), [summary]({runs}/{name}/summary.json))"),
                None => file,
            }
        };
        let files: Vec<String> = self.catalogue.scenarios_of(scenario).iter().map(file).collect();
        format!("{}. `experiments/{}`: {}; {made} runs.", experiment.source, self.catalogue.name, files.join(", "))
    }

    fn numbers(&self, page: &mut impl Writer, experiment: &Experiment) {
        if experiment.numbers.is_empty() {
            return;
        }
        let rows = experiment.numbers.iter().map(|number| {
            let ours = match self.scripts.text(&number.ours, experiment.scenario.as_deref()) {
                Ok(ours) => ours,
                Err(error) => error.to_string(),
            };
            vec![number.what.clone(), number.published.clone(), ours]
        });
        page.figures(["", "published", "here"].map(str::to_owned).to_vec(), rows.collect());
    }

    /// For each claim its name, the verdict and what was found.
    pub fn verdicts(&self) -> impl Iterator<Item = [String; 3]> {
        self.claims.iter().map(|claim| [claim.id.clone(), claim.verdict_in_words(), claim.found.clone()])
    }

    /// The numbers of verdicts in words; and over a survey, if there is one.
    pub fn sums(&self) -> impl Iterator<Item = String> {
        std::iter::once(in_words(Counts::of(self.claims))).chain(self.survey_in_words())
    }
}

/// How many claims are to hold at one setting, how many do, and what no setting tried can do.
fn summary(together: &Together, command: &str) -> String {
    let share = |claims: usize| format!("{:.0} %", 100.0 * claims as f64 / together.claims.max(1) as f64);
    let tried = if together.complete {
        format!("The open inputs have {} combinations of values, and all were run", together.settings)
    } else {
        format!("Of the open inputs a sample of {} settings was run", together.settings)
    };
    format!(
        "{} ({}). {tried} (`{command}`), and that of this page. At most {} claims hold at one of the {} ({}). {} {} at none, {} of \
         the others at none together, and with the best setting for each experiment by itself {} would hold ({}).",
        goal(together).trim_end_matches('.'),
        share(together.judged),
        together.most,
        if together.complete { "combinations" } else { "sample" },
        share(together.most),
        reason(together),
        counted(together.nowhere.len(), ["claim holds", "claims hold"]),
        counted(together.pairs.len(), ["pair", "pairs"]),
        together.apart(),
        share(together.apart()),
    )
}

/// How many claims are to hold at one setting, and how many do.
fn goal(together: &Together) -> String {
    format!(
        "A reproduction is to meet three quarters of the checkable claims of a paper at one setting: {} of {} here. At the setting of \
         this page {} hold.",
        together.wanted, together.claims, together.judged
    )
}

/// Why no setting tried has enough claims, if none has.
fn reason(together: &Together) -> String {
    let somewhere = together.somewhere();
    if together.is_met() {
        return format!(
            "So {} can be met at one setting, but not at the one where the page's claims are judged.",
            together.wanted
        );
    }
    if somewhere < together.wanted {
        return format!(
            "{somewhere} claims hold at some setting, so that even with a setting for each claim {} would not be met.",
            together.wanted
        );
    }
    match together.compatible {
        Some(size) if size < together.wanted => format!(
            "{somewhere} claims hold at some setting, but pairs of them at no common one of those tried: the largest set without such a \
             pair has {size}.{}",
            match together.compatible_beyond_chance {
                Some(beyond) if beyond > size =>
                    format!(" Without the pairs that chance may keep apart (below) it has {beyond}."),
                _ => String::new(),
            }
        ),
        _ => format!("{somewhere} claims hold at some setting, but no {} of them at the same one.", together.wanted),
    }
}

/// How many claims would hold if each experiment had the setting that is best for its own.
fn experiments_apart(page: &mut impl Writer, together: &Together) {
    if together.parts.len() < 2 || together.is_met() {
        return;
    }
    page.heading("If each experiment had a setting of its own");
    page.paragraph(&format!(
        "With the setting that is best for each of the {} experiments by itself, of those tried and that of this page, {} of {} claims \
         would hold{}.",
        together.parts.len(),
        together.apart(),
        together.claims,
        if together.apart() < together.wanted {
            format!(": fewer than {} even so, as claims of single experiments hold nowhere or exclude each other", together.wanted)
        } else {
            String::new()
        }
    ));
    let row = |part: &Part| {
        let counts = [part.claims, part.nowhere, part.most, part.judged].map(|count| count.to_string());
        std::iter::once(format!("`{}`", part.experiment)).chain(counts).collect()
    };
    page.figures(
        ["experiment", "checkable claims", "hold nowhere", "hold together at most", "hold on this page"]
            .map(str::to_owned)
            .to_vec(),
        together.parts.iter().map(row).collect(),
    );
}

/// `1 setting`, `4 settings`.
fn settings(count: usize) -> String {
    counted(count, ["setting", "settings"])
}

/// A number, and its noun in the singular or the plural.
fn counted(count: usize, [one, several]: [&str; 2]) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// `` `a`, `b` ``.
fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// A published table and the reproduction's: each cell as `published / ours`.
fn side_by_side(page: &mut impl Writer, table: &Table, results: &Results) {
    page.paragraph("Published / here: the mean over the runs that were completed. (Checks go by the median.)");
    let heading = std::iter::once(table.axis.clone()).chain(table.columns.iter().map(|column| column.title.clone()));
    let mut rows = Vec::new();
    for row in &table.rows {
        let Some(at) = table.number(row, &table.key) else { continue };
        let mut cells = vec![short(at)];
        for column in &table.columns {
            let words = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), short);
            let ours = numbers::ours(table, column, at, results);
            cells.push(format!("{} / {}", words(table.number(row, &column.key)), words(ours)));
        }
        rows.push(cells);
    }
    page.figures(heading.collect(), rows);
}

/// `37 claims: 20 hold, 12 fail, 5 cannot be checked by a reproduction. Of the 32 that can, 62 % hold.`
pub fn in_words(counts: Counts) -> String {
    let all = counts.holds + counts.fails + counts.not_checkable + counts.broken;
    let claims = if all == 1 { "claim" } else { "claims" };
    let mut text = format!(
        "{all} {claims}: {} hold, {} fail, {} cannot be checked by a reproduction",
        counts.holds, counts.fails, counts.not_checkable
    );
    if counts.broken > 0 {
        let _ = write!(text, ", the checks of {} do not work", counts.broken);
    }
    text.push('.');
    let checkable = counts.holds + counts.fails + counts.broken;
    if checkable > 1 {
        let _ =
            write!(text, " Of the {checkable} that can, {:.0} % hold.", 100.0 * counts.holds as f64 / checkable as f64);
    }
    text
}

/// How many claims hold with the tolerance of their checks only; `None` without any check that has one.
fn strictly_in_words(claims: &[Judged]) -> Option<String> {
    let tolerant = claims.iter().filter(|claim| claim.strict.is_some()).count();
    let only = claims.iter().filter(|claim| claim.holds_widened_only()).count();
    (tolerant > 0).then(|| {
        format!(
            "The checks of {tolerant} claims widen a printed range; {only} of these claims hold so and not in the range as printed \
             (\"strictly: fails\")."
        )
    })
}
