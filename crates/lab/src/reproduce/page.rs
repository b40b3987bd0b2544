//! What a reproduction tells people: a page in Markdown, and a shorter text for a terminal.

use std::fmt::Write as _;

use super::catalogue::{Catalogue, Experiment, Table};
use super::judge::{Counts, Judged, Verdict};
use super::results::Results;
use super::script::{Scripts, short};

/// A paper that was reproduced.
pub struct Reproduced<'a> {
    /// The paper's file.
    pub catalogue: &'a Catalogue,
    /// The experiments that were chosen.
    pub experiments: Vec<&'a Experiment>,
    /// The results by the name of scenario or union.
    pub results: &'a std::collections::BTreeMap<String, Results>,
    /// The claims, judged.
    pub claims: &'a [Judged],
    /// The pictures of each experiment: its id, the picture's file name and title.
    pub figures: &'a [(String, String, String)],
    /// The scripts' engine over the same results.
    pub scripts: &'a Scripts,
    /// The command that repeats it.
    pub command: String,
}

impl Reproduced<'_> {
    /// The page, whose pictures lie in `pictures`, seen from it.
    pub fn markdown(&self, pictures: &str) -> String {
        let paper = &self.catalogue.paper;
        let mut text = format!("# {}\n\n", paper.title);
        if !paper.authors.is_empty() {
            let _ = writeln!(text, "{}\n", paper.authors);
        }
        if !paper.summary.is_empty() {
            let _ = writeln!(text, "{}\n", paper.summary.trim());
        }
        let _ = writeln!(text, "This page is made by `{}`.\n\n{}\n", self.command, in_words(Counts::of(self.claims)));
        self.claims_table(&mut text);
        self.choices(&mut text);
        for experiment in &self.experiments {
            self.experiment(&mut text, experiment, pictures);
        }
        text
    }

    fn claims_table(&self, text: &mut String) {
        text.push_str("## Claims\n\n| claim | verdict | found here |\n| --- | --- | --- |\n");
        for claim in self.claims {
            let verdict = match claim.verdict {
                Verdict::Holds => "holds".to_owned(),
                other => format!("**{}**", other.name()),
            };
            let mut found = cell(&claim.found);
            if let Some(explanation) = &claim.explanation {
                let _ = write!(found, "<br>{}", cell(explanation));
            }
            let _ = writeln!(text, "| `{}`: {} | {verdict} | {found} |", claim.id, cell(&claim.text));
        }
        text.push('\n');
    }

    fn choices(&self, text: &mut String) {
        if self.catalogue.choices.is_empty() {
            return;
        }
        text.push_str("## What the paper leaves open\n\n| what | chosen | why |\n| --- | --- | --- |\n");
        for choice in &self.catalogue.choices {
            let _ = writeln!(text, "| {} | {} | {} |", cell(&choice.what), cell(&choice.value), cell(&choice.why));
        }
        text.push('\n');
    }

    fn experiment(&self, text: &mut String, experiment: &Experiment, pictures: &str) {
        let _ = writeln!(text, "## {}: {}\n\n{}.", experiment.id, experiment.title, experiment.source);
        match (&experiment.scenario, &experiment.not_run) {
            (Some(scenario), _) => {
                let runs: usize =
                    self.results.get(scenario).map_or(0, |results| results.cells.iter().map(|cell| cell.runs).sum());
                let files = self.catalogue.scenarios_of(scenario);
                let files: Vec<String> = files.iter().map(|name| format!("`{name}.toml`")).collect();
                let _ = writeln!(text, "`experiments/{}`: {}; {runs} runs.\n", self.catalogue.name, files.join(", "));
            }
            (None, reason) => {
                let _ = writeln!(text, "Not run: {}\n", reason.as_deref().unwrap_or("no scenario"));
            }
        }
        for note in &experiment.notes {
            let _ = writeln!(text, "{note}\n");
        }
        self.numbers(text, experiment);
        let results = experiment.scenario.as_ref().and_then(|scenario| self.results.get(scenario));
        if let (Some(table), Some(results)) = (&experiment.table, results) {
            side_by_side(text, table, results);
        }
        for (_, file, title) in self.figures.iter().filter(|(id, ..)| *id == experiment.id) {
            let _ = writeln!(text, "![{title}]({pictures}/{file})\n");
        }
    }

    fn numbers(&self, text: &mut String, experiment: &Experiment) {
        if experiment.numbers.is_empty() {
            return;
        }
        text.push_str("| | published | here |\n| --- | ---: | ---: |\n");
        for number in &experiment.numbers {
            let ours = match self.scripts.text(&number.ours, experiment.scenario.as_deref()) {
                Ok(ours) => ours,
                Err(error) => error.to_string(),
            };
            let _ = writeln!(text, "| {} | {} | {} |", cell(&number.what), cell(&number.published), cell(&ours));
        }
        text.push('\n');
    }

    /// What a terminal shows.
    pub fn terminal(&self) -> String {
        let mut text = format!("{}: {}\n", self.catalogue.name, self.catalogue.paper.title);
        let width = self.claims.iter().map(|claim| claim.id.len()).max().unwrap_or_default();
        for claim in self.claims {
            let _ = writeln!(text, "  {:13} {:width$}  {}", claim.verdict.name(), claim.id, claim.found);
        }
        let _ = writeln!(text, "  {}", in_words(Counts::of(self.claims)));
        text
    }
}

/// A published table and ours: each cell as `published / ours`.
fn side_by_side(text: &mut String, table: &Table, results: &Results) {
    let _ = write!(
        text,
        "Published / here: the mean over the runs that were completed. (Checks go by the median.)\n\n| {} |",
        table.axis
    );
    for column in &table.columns {
        let _ = write!(text, " {} |", column.title);
    }
    text.push_str("\n| ---: |");
    text.push_str(&" ---: |".repeat(table.columns.len()));
    text.push('\n');
    for row in &table.rows {
        let number = |key: &str| table.number(row, key);
        let Some(at) = number(&table.key) else { continue };
        let _ = write!(text, "| {} |", short(at));
        for column in &table.columns {
            let ours = super::numbers::ours(table, column, at, results);
            let words = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), short);
            let _ = write!(text, " {} / **{}** |", words(number(&column.key)), words(ours));
        }
        text.push('\n');
    }
    text.push('\n');
}

/// `37 claims: 20 hold, 12 fail, 5 cannot be checked by a reproduction.`
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
    text
}

/// A text that can stand in a table.
fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|").replace('\n', " ")
}
