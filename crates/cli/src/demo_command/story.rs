//! The demo's results as text and as JSON.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use holdover_agent::engine::EngineError;
use holdover_base::{Duration, Instant};
use holdover_report::Table;
use holdover_testbed::kernel_release;
use holdover_transfers::{
    AgentPath, CUT_AT, Help, Measured, NetPath, Sender, TRANSFER_TIME, Transfer, TransferDirection, spaced,
};
use serde::Serialize;

use super::{CUT, Played, SHOWN, Stage, WhySimulator};
use crate::command_support::with_causes;
use crate::text_table::{self, table_width};

/// The demo's results.
pub(super) struct Story {
    pub(super) sender: Sender,
    pub(super) agent: AgentPath,
    /// Why it was not put at the interface, if that was tried.
    why_filter: Option<EngineError>,
    pub(super) stage: Stage,
    pub(super) flows: Vec<Flow>,
    /// How long the same transfers took over links that were not cut: download and upload.
    uncut: [Option<Duration>; 2],
    report: PathBuf,
}

/// One of the transfers that are shown.
pub(super) struct Flow {
    pub(super) transfer: Transfer,
    pub(super) measured: Measured,
    pub(super) ideal_share: Option<f64>,
}

/// The demo's results as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Json {
    /// `kernel` or `simulator`.
    world: &'static str,
    /// Why it is the simulator, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_simulator: Option<String>,
    /// The place of the agent: eBPF at the interface, or a filter before it.
    agent_path: AgentPath,
    /// Why not at the interface, if that was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_filter: Option<String>,
    sender: Sender,
    cut_s: f64,
    flows: Vec<JsonFlow>,
    report: PathBuf,
}

#[derive(Debug, Serialize)]
struct JsonFlow {
    direction: TransferDirection,
    /// Whether the agent was active.
    agent: bool,
    /// From the link's return to the first new data at the application.
    resume_ms: Option<f64>,
    completion_s: Option<f64>,
    /// The time that the same transfer took without the cut, and the length of the cut, over the time taken.
    ideal_share: Option<f64>,
}

/// The first line of the output.
pub(super) fn first_line(sender: Sender) -> String {
    let cut = spaced(CUT);
    format!("Preparing phones, servers and links that are cut for {cut}; senders use {}.\n", sender.name())
}

/// The introduction: three sentences.
pub(super) fn introduction(sender: Sender, stage: &Stage) -> String {
    let place = match stage {
        Stage::Kernel => {
            format!("All of it runs on this machine's kernel (Linux {}), in namespaces of its own", kernel_release())
        }
        Stage::Simulator(WhySimulator::Asked) => "All of it runs in the simulator".to_owned(),
        Stage::Simulator(WhySimulator::Unable(why)) => {
            format!("All of it runs in the simulator, as this machine's kernel cannot be used ({why})")
        }
    };
    format!(
        "Two phones download and two upload {} by TCP ({}); after {} all links are cut, for {}.\n\
         One phone of each pair runs Holdover's agent; servers, kernels and applications are unmodified.\n\
         {place}, over links of {}.\n",
        megabytes(),
        sender.name(),
        spaced(CUT_AT.saturating_since(Instant::ZERO)),
        spaced(CUT),
        NetPath::DEFAULT.rate,
    )
}

impl Story {
    pub(super) fn new(
        sender: Sender,
        (agent, why_filter): (AgentPath, Option<EngineError>),
        stage: Stage,
        transfers: &[Transfer],
        played: &Played,
        results: &Path,
    ) -> Self {
        let measured: Vec<Measured> = played.reports.iter().map(Measured::of).collect();
        let uncut = TransferDirection::ALL.map(|direction| {
            let same = |transfer: &Transfer| transfer.cut.is_none() && transfer.direction == direction;
            transfers.iter().position(same).and_then(|index| measured[index].completion)
        });
        let flow = |(&transfer, &measured): (&Transfer, &Measured)| {
            let uncut = uncut[transfer.direction as usize];
            let ideal_share = uncut.and_then(|uncut| measured.ideal_share(&transfer, uncut));
            Flow { transfer, measured, ideal_share }
        };
        let flows = transfers.iter().zip(&measured).take(SHOWN).map(flow).collect();
        Self { sender, agent, why_filter, stage, flows, uncut, report: results.join("report.html") }
    }

    /// Whether every transfer came to its end.
    pub(super) fn is_whole(&self) -> bool {
        self.flows.iter().all(|flow| flow.measured.completion.is_some())
    }

    pub(super) fn to_json(&self) -> Json {
        let flow = |flow: &Flow| JsonFlow {
            direction: flow.transfer.direction,
            agent: flow.transfer.help != Help::Plain,
            resume_ms: flow.measured.resume.map(|idle| idle.as_secs_f64() * 1e3),
            completion_s: flow.measured.completion.map(Duration::as_secs_f64),
            ideal_share: flow.ideal_share,
        };
        Json {
            world: self.world(),
            why_simulator: match &self.stage {
                Stage::Kernel => None,
                Stage::Simulator(why) => Some(why.to_string()),
            },
            agent_path: self.agent,
            why_filter: self.why_filter.as_ref().map(|why| with_causes(why)),
            sender: self.sender,
            cut_s: CUT.as_secs_f64(),
            flows: self.flows.iter().map(flow).collect(),
            report: self.report.clone(),
        }
    }

    /// The table, and the place of the report.
    pub(super) fn to_text(&self) -> String {
        let table = self.table();
        let width = |column: usize| {
            let cells = table.rows.iter().map(|row| row[column].chars().count());
            cells.chain([table.heading[column].chars().count()]).max().unwrap_or(0)
        };
        let mut text = String::new();
        for row in [&table.heading].into_iter().chain(&table.rows) {
            let cells = row.iter().enumerate().map(|(column, cell)| {
                if column == 0 {
                    format!("{cell:width$}", width = width(0))
                } else {
                    format!("{cell:>width$}", width = width(column))
                }
            });
            let _ = writeln!(text, "  {}", cells.collect::<Vec<_>>().join("   "));
        }
        if table_width().is_some_and(|limit| text.lines().any(|line| line.chars().count() > limit)) {
            // A block for each row.
            text = text_table::table(&[vec![table.heading], table.rows].concat());
        }
        let _ = writeln!(text, "\n  {}\n  {}\n", self.what_the_ideal_is(), self.where_the_agent_is());
        let _ = writeln!(text, "Report: {}", self.report.display());
        text
    }

    pub(super) fn table(&self) -> Table {
        let row = |flow: &Flow| {
            let name = match flow.transfer.help {
                Help::Plain => "plain",
                _ => "with the agent",
            };
            vec![
                format!("{}, {name}", flow.transfer.direction.name()),
                seconds(flow.measured.resume),
                seconds(flow.measured.completion),
                flow.ideal_share.map_or("–".to_owned(), |share| format!("{:.1} %", share * 100.0)),
            ]
        };
        let heading = ["", "lost after the link's return", "done after", "share of the ideal"];
        Table { heading: heading.map(str::to_owned).to_vec(), rows: self.flows.iter().map(row).collect() }
    }

    /// A sentence.
    pub(super) fn what_the_ideal_is(&self) -> String {
        let [download, upload] = self.uncut.map(seconds);
        format!(
            "The ideal is the same transfer without the cut, which took {download} and {upload} beside the others, plus the {} of it.",
            spaced(CUT)
        )
    }

    /// A sentence.
    pub(super) fn where_the_agent_is(&self) -> String {
        let why =
            self.why_filter.as_ref().map_or(String::new(), |why| format!("; not eBPF, because {}", with_causes(why)));
        format!("The agent is {}{why}.", self.agent.in_words())
    }

    /// A sentence that compares the transfers with and without the agent.
    pub(super) fn lesson(&self) -> String {
        let of = |direction: TransferDirection, help: Help| {
            let found =
                self.flows.iter().find(|flow| flow.transfer.direction == direction && flow.transfer.help == help);
            found.map_or_else(|| "–".to_owned(), |flow| seconds(flow.measured.resume))
        };
        let [download, upload] =
            TransferDirection::ALL.map(|direction| [Help::Plain, Help::Agent].map(|help| of(direction, help)));
        format!(
            "The link is back after {}, but plain TCP still waits for its timer: {} longer in the download, {} in the upload. \
             With the agent on the phone, and nothing changed in its peers, data flow again after {} and {}.",
            spaced(CUT),
            download[0],
            upload[0],
            download[1],
            upload[1]
        )
    }

    pub(super) fn world(&self) -> &'static str {
        match self.stage {
            Stage::Kernel => "kernel",
            Stage::Simulator(_) => "simulator",
        }
    }

    /// The environment of the transfers, as a phrase.
    pub(super) fn place(&self) -> String {
        match &self.stage {
            Stage::Kernel => {
                format!("between kernels of Linux {}, each in a network namespace of its own", kernel_release())
            }
            Stage::Simulator(WhySimulator::Asked) => "in the simulator".to_owned(),
            Stage::Simulator(WhySimulator::Unable(why)) => {
                format!("in the simulator (not on this machine's kernel: {why})")
            }
        }
    }
}

fn seconds(time: Option<Duration>) -> String {
    time.map_or_else(|| "–".to_owned(), |time| format!("{:.2} s", time.as_secs_f64()))
}

pub(super) fn megabytes() -> String {
    format!("{:.1} MB", NetPath::DEFAULT.amount(TRANSFER_TIME).0 as f64 / 1e6)
}
