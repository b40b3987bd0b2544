//! The page, the table and the JSON of `holdover conformance --agent`.

use std::fmt::Write as _;

use holdover_transfers::{AgentPath, CUT_AT, Help, LEAD, Sender, TransferDirection, spaced};
use serde::Serialize;

use super::cells::{Cell, SHARE, TOLERANCE};
use super::place::{soon, what_is_sent};
use crate::grid::{Failure, GridReport, Head};
use crate::page::{failures, number, page};

/// Everything that is reported.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    head: Head,
    /// How the agent stood in the path.
    agent_path: AgentPath,
    /// In the worst run, 99 of 100 packets were not later than this.
    lateness_p99_ms: f64,
    cells: Vec<Cell>,
    failures: Vec<Failure>,
}

impl Report {
    pub(super) fn new(cells: Vec<Cell>, failures: Vec<Failure>, agent_path: AgentPath, head: Head) -> Self {
        let lateness = cells.iter().flat_map(|cell| &cell.runs).map(|run| run.lateness_p99_ms);
        Self { head, agent_path, lateness_p99_ms: lateness.fold(0.0, f64::max), cells, failures }
    }

    fn how_it_is_measured(&self) -> String {
        let runs = self.cells.iter().map(|cell| cell.runs.len()).max().unwrap_or(0);
        format!(
            "Between two unmodified kernels, {}, with a queue of {} packets. The link is cut {} after the beginning; what is \
             on the way or queued then is lost. The agent is {}, on the host that downloads or uploads, and nowhere else. Each \
             cell is the median of {runs} runs.\n\n\
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

    fn table(&self, text: &mut String, sender: Sender, direction: TransferDirection) {
        let cells: Vec<&Cell> =
            self.cells.iter().filter(|cell| (cell.sender, cell.direction) == (sender, direction)).collect();
        let Some(uncut) = cells.first().map(|cell| cell.uncut_s) else { return };
        let _ = writeln!(
            text,
            "## {}, {}\n\nWithout a cut: {}.\n\n| cut | plain: new data | done | ideal | agent: new data | done | ideal | \
             warned: new data | done | ideal |\n| --- {}|",
            sender.name(),
            direction.name(),
            seconds(uncut),
            "| ---: ".repeat(9)
        );
        let mut cuts: Vec<f64> = cells.iter().map(|cell| cell.cut_s).collect();
        cuts.dedup();
        for cut_s in cuts {
            let _ = write!(text, "| {cut_s} s |");
            for help in Help::ALL {
                let cell = cells.iter().find(|cell| cell.cut_s == cut_s && cell.help == help);
                let texts = cell.map_or_else(|| ["", "", ""].map(str::to_owned), |cell| cell_texts(cell));
                let _ = write!(text, " {} |", texts.join(" | "));
            }
            text.push('\n');
        }
        text.push('\n');
    }

    fn misses(&self, text: &mut String) {
        let missing: Vec<&Cell> = self.cells.iter().filter(|cell| !cell.misses.is_empty()).collect();
        if missing.is_empty() {
            return;
        }
        text.push_str(
            "## Those that miss\n\nWhat the sender of the data sends (`>`) and gets (`<`) after the link's return, in milliseconds \
             since then.\n",
        );
        for cell in missing {
            let _ = writeln!(
                text,
                "\n**{}, {}, {} s, {}**: {}. {}\n\n```\n{}\n```",
                cell.sender.name(),
                cell.direction.name(),
                cell.cut_s,
                cell.help.name(),
                cell.misses.join(", "),
                cell.why.unwrap_or("Why is not known."),
                cell.trace.join("\n")
            );
        }
    }
}

impl GridReport for Report {
    fn is_sound(&self) -> bool {
        self.failures.is_empty() && self.cells.iter().all(|cell| cell.misses.is_empty())
    }

    fn in_a_line(&self) -> String {
        let with: Vec<&Cell> = self.cells.iter().filter(|cell| cell.help != Help::Plain).collect();
        let reached = with.iter().filter(|cell| cell.misses.is_empty()).count();
        format!("{reached} of {} cells with the agent reach what they have to, in {} s", with.len(), self.head.seconds)
    }

    /// As `docs/conformance/agent.md`.
    fn markdown(&self) -> String {
        let (mut tables, mut missed) = (String::new(), String::new());
        for sender in Sender::ALL {
            for direction in TransferDirection::ALL {
                self.table(&mut tables, sender, direction);
            }
        }
        self.misses(&mut missed);
        let sections = [tables, failures(&self.failures), missed];
        page("The agent across outages", self, &self.head, &self.how_it_is_measured(), &sections)
    }

    fn csv(&self) -> String {
        let mut text =
            "sender,direction,cut_s,help,run,new_data_ms,in_order_ms,completion_s,uncut_median_s,path_share,timeouts,\
                        sent_again_bytes,lateness_p99_ms\n"
                .to_owned();
        for cell in &self.cells {
            for (index, run) in (1..).zip(&cell.runs) {
                let _ = writeln!(
                    text,
                    "{},{},{},{},{index},{},{},{},{},{},{},{},{}",
                    cell.sender.congestion().name(),
                    cell.direction.name(),
                    cell.cut_s,
                    cell.help.name(),
                    number(run.new_data_ms),
                    number(run.in_order_ms),
                    number(run.completion_s),
                    number(cell.uncut_s),
                    number(run.path_share),
                    run.timeouts,
                    run.sent_again_bytes,
                    run.lateness_p99_ms
                );
            }
        }
        text
    }
}

/// New data, done, ideal.
fn cell_texts(cell: &Cell) -> [String; 3] {
    let emphasis = if cell.misses.is_empty() { "" } else { "**" };
    let new_data = cell.new_data_ms.map_or("never".to_owned(), |millis| match millis {
        long if long >= 1000.0 => format!("{:.2} s", long / 1e3),
        short => format!("{short:.0} ms"),
    });
    let share = cell.ideal_share.map_or("–".to_owned(), |share| format!("{:.1} %", share * 100.0));
    [new_data, seconds(cell.completion_s), format!("{emphasis}{share}{emphasis}")]
}

fn seconds(value: Option<f64>) -> String {
    value.map_or("never".to_owned(), |value| format!("{value:.2} s"))
}
