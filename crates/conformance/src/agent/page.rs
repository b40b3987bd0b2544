//! The page, the table and the JSON of `holdover conformance --agent`.

use holdover_transfers::{AgentPath, CUT_AT, Help, LEAD, Sender, TransferDirection, spaced};
use serde::Serialize;

use super::cells::{Cell, Figures, SHARE, TOLERANCE};
use super::place::{soon, what_is_sent};
use crate::grid::{GridReport, Head};
use crate::page::{failures, medians, millis_or_never, number, page, seconds_or_never, section};
use crate::results::Results;

/// Everything that is reported.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    head: Head,
    /// How the agent stood in the path.
    agent_path: AgentPath,
    /// In the worst run, 99 of 100 packets were not later than this.
    lateness_p99_ms: f64,
    #[serde(flatten)]
    results: Results<Cell>,
}

impl Report {
    pub(super) fn new(results: Results<Cell>, agent_path: AgentPath, head: Head) -> Self {
        let lateness = results.cells().iter().flat_map(|cell| &cell.runs).map(|run| run.lateness_p99_ms);
        Self { head, agent_path, lateness_p99_ms: lateness.fold(0.0, f64::max), results }
    }

    fn how_it_is_measured(&self) -> String {
        let runs = medians(self.results.repetitions());
        format!(
            "Between two unmodified kernels, {}, with a queue of {} packets. The link is cut {} after the beginning; what is \
             on the way or queued then is lost. The agent is {}, on the host that downloads or uploads, and nowhere else. Each \
             cell is {runs}.\n\n\
             - **plain**: without the agent. **agent**: it learns of the cut when it is there. **warned**: it knows {} before.\n\
             - **new data**: from the link's return to the first data at the receiver's interface that it did not have. To be \
             reached: {}, which is a round trip and a full queue.\n\
             - **done**: from the beginning to the last byte.\n\
             - **ideal**: what the same transfer took without a cut, plus the length of the cut, over the time taken. To be \
             reached: {:.0} %; and no later than plain (by more than {} %, which kernels differ by from run to run).\n\n\
             In the worst run 99 of 100 packets reached their kernel within {:.1} ms of when they were due.\n",
            what_is_sent(self.head.path),
            self.head.path.queue,
            spaced(CUT_AT.saturating_since(holdover_base::Instant::ZERO)),
            self.agent_path.in_words(),
            spaced(LEAD),
            spaced(soon(self.head.path)),
            SHARE * 100.0,
            TOLERANCE * 100.0,
            self.lateness_p99_ms,
        )
    }

    fn table(&self, sender: Sender, direction: TransferDirection) -> String {
        let is_meant = |cell: &&Cell| (cell.figures.sender, cell.figures.direction) == (sender, direction);
        let cells: Vec<&Cell> = self.results.cells().iter().filter(is_meant).collect();
        let head = format!(
            "## {}, {}\n\nWithout a cut: {}.\n\n| cut | plain: new data | done | ideal | agent: new data | done | ideal | \
             warned: new data | done | ideal |\n| --- {}|\n",
            sender.name(),
            direction.name(),
            seconds_or_never(cells.first().and_then(|cell| cell.figures.uncut_s)),
            "| ---: ".repeat(9)
        );
        let mut cuts: Vec<f64> = cells.iter().map(|cell| cell.figures.cut_s).collect();
        cuts.dedup();
        section(&head, cuts.into_iter().map(|cut_s| row(cut_s, &cells)))
    }

    fn misses(&self) -> String {
        let missing = self.results.bounded().filter(|cell| !cell.misses.is_empty());
        let rows = missing.map(|cell| {
            let figures = &cell.figures;
            format!(
                "\n**{}, {}, {} s, {}**: {}. {}\n\n```\n{}\n```\n",
                figures.sender.name(),
                figures.direction.name(),
                figures.cut_s,
                figures.help.name(),
                cell.misses.join(", "),
                figures.why.unwrap_or("Why is not known."),
                cell.trace.join("\n")
            )
        });
        section(
            "## Those that miss\n\nWhat the sender of the data sends (`>`) and gets (`<`) after the link's return, in milliseconds \
             since then.\n",
            rows,
        )
    }
}

/// The row of a cut, plain and with help.
fn row(cut_s: f64, cells: &[&Cell]) -> String {
    let texts = Help::ALL.map(|help| {
        let cell = cells.iter().find(|cell| cell.figures.cut_s == cut_s && cell.figures.help == help);
        cell.map_or_else(|| ["", "", ""].map(str::to_owned), |cell| cell_texts(cell)).join(" | ")
    });
    format!("| {cut_s} s | {} |\n", texts.join(" | "))
}

impl GridReport for Report {
    fn is_sound(&self) -> bool {
        self.results.are_sound()
    }

    fn in_a_line(&self) -> String {
        let reached = self.results.share_that_meets_bounds();
        format!("{reached} cells with the agent reach what they have to, in {} s", self.head.seconds)
    }

    /// As `docs/conformance/agent.md`.
    fn markdown(&self) -> String {
        let mut tables = String::new();
        for sender in Sender::ALL {
            for direction in TransferDirection::ALL {
                tables.push_str(&self.table(sender, direction));
            }
        }
        let sections = [tables, failures(self.results.failures()), self.misses()];
        page("The agent across outages", self, &self.head, &self.how_it_is_measured(), &sections)
    }

    fn csv(&self) -> String {
        let header = "sender,direction,cut_s,help,run,new_data_ms,in_order_ms,completion_s,uncut_median_s,path_share,timeouts,\
                      sent_again_bytes,lateness_p99_ms";
        let of_cell = |cell: &Cell| {
            let Figures { sender, direction, cut_s, help, .. } = &cell.figures;
            format!("{},{},{cut_s},{}", sender.congestion().name(), direction.name(), help.name())
        };
        self.results.csv(header, of_cell, |cell, run| {
            format!(
                "{},{},{},{},{},{},{},{}",
                number(run.new_data_ms),
                number(run.in_order_ms),
                number(run.completion_s),
                number(cell.figures.uncut_s),
                number(run.path_share),
                run.timeouts,
                run.sent_again_bytes,
                run.lateness_p99_ms
            )
        })
    }
}

/// New data, done, ideal.
fn cell_texts(cell: &Cell) -> [String; 3] {
    let emphasis = if cell.misses.is_empty() { "" } else { "**" };
    let new_data = match cell.figures.new_data_ms {
        Some(millis) if millis >= 1000.0 => seconds_or_never(Some(millis / 1e3)),
        millis => millis_or_never(millis),
    };
    let share = cell.figures.ideal_share.map_or("–".to_owned(), |share| format!("{:.1} %", share * 100.0));
    [new_data, seconds_or_never(cell.figures.completion_s), format!("{emphasis}{share}{emphasis}")]
}
