//! `holdover conformance --agent`: how soon transfers go on after an outage with the agent, and what share of the ideal they
//! reach, over a grid of outages, senders, directions and warnings, on this machine's kernel.

mod cells;
mod page;

use std::process::ExitCode;

use holdover_base::Duration;
use serde::{Deserialize, Serialize};

use super::{ConformanceArgs, grid};
use crate::command_support::with_causes;
use crate::transfers::{self, AgentPath, CUT_AT, KernelError, KernelRun, Measured, Watcher};
use cells::{Cell, Place};
use page::Report;

/// One run of a case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Run {
    /// From the link's return to the first data at the receiver's interface that it did not have.
    #[serde(with = "crate::nanos::optional")]
    new_data: Option<Duration>,
    measured: Measured,
    /// The ideal of the path, which is a sender that fills the link whenever it is there.
    path_share: Option<f64>,
    timeouts: u32,
    sent_again: u64,
    /// 99 of 100 packets were not later than this.
    #[serde(with = "crate::nanos")]
    lateness: Duration,
    /// See [`Watcher::trace`].
    trace: Vec<String>,
}

/// Runs the grid and prints or writes the result. Fails if a case misses what it has to reach.
pub(super) fn run(args: &ConformanceArgs) -> ExitCode {
    let places = cells::places(args.path(), args.only.as_deref());
    if let Err(code) = grid::begin(args, &places) {
        return code;
    }
    let agent = match (args.filter, AgentPath::best()) {
        (true, _) => AgentPath::Filter,
        (false, (agent, None)) => agent,
        (false, (_, Some(why))) => {
            eprintln!(
                "error: the agent cannot stand at an interface; --filter has it stand before one: {}",
                with_causes(&why)
            );
            return ExitCode::FAILURE;
        }
    };
    let name = if args.filter { "agent --filter" } else { "agent" };
    grid::measure(
        args,
        name,
        &places,
        |place| run_one(place, agent),
        |outcome, head| Report::new(Cell::all(&places, &outcome.runs), outcome.failures, agent, head),
    )
}

fn run_one(place: Place, agent: AgentPath) -> Result<Run, KernelError> {
    let cut = place.transfer.cut.unwrap_or(Duration::ZERO);
    // A timer that ends just before the link's return runs twice as long again.
    let time_limit = Duration::from_secs(60) + cut * 4;
    let config = transfers::world(&[place.transfer], place.path, place.sender, agent, time_limit);
    let mut watcher = Watcher::new(&config.flows[..1], CUT_AT + cut);
    let mut kernel = KernelRun::new(config, place.sender, agent)?;
    let outcome = kernel.run(&mut watcher, |_| true)?;
    let report = &kernel.world().report()[0];
    kernel.finish()?;
    let sender = report.sender.as_ref();
    Ok(Run {
        new_data: watcher.new_data().filter(|_| place.transfer.cut.is_some()),
        measured: Measured::of(report),
        path_share: report.ideal_share(),
        timeouts: sender.map_or(0, |sender| sender.timeouts),
        sent_again: sender.map_or(0, |sender| sender.bytes_retransmitted.0),
        lateness: outcome.lateness.quantile(0.99),
        trace: watcher.trace().to_vec(),
    })
}
