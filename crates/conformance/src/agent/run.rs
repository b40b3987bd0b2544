//! One run: a transfer between two kernels, with the agent on the phone.

use holdover_base::Duration;
use holdover_transfers::{self as transfers, AgentPath, CUT_AT, KernelError, KernelRun, Measured, Watcher};
use serde::{Deserialize, Serialize};

use super::place::Place;
use crate::grid::time_limit;

/// One run of a case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// From the link's return to the first data at the receiver's interface that it did not have.
    #[serde(with = "holdover_transfers::nanos::optional")]
    pub(super) new_data: Option<Duration>,
    pub(super) measured: Measured,
    /// The duration for a sender that fills the link whenever it is up, over the transfer's duration.
    pub(super) path_share: Option<f64>,
    pub(super) timeouts: u32,
    pub(super) sent_again: u64,
    /// 99 of 100 packets were not later than this.
    #[serde(with = "holdover_transfers::nanos")]
    pub(super) lateness: Duration,
    /// See [`Watcher::trace`].
    pub(super) trace: Vec<String>,
}

/// Makes a run.
pub(super) fn run(place: Place, agent: AgentPath) -> Result<Run, KernelError> {
    let cut = place.transfer.cut.unwrap_or(Duration::ZERO);
    let config = transfers::world(&[place.transfer], place.path, place.sender, agent, time_limit(cut));
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
