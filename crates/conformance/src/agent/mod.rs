//! `holdover conformance --agent`: how soon transfers resume after an outage with the agent, and what share of the ideal they
//! reach, over a grid of outages, senders, directions and warnings, on this machine's kernel.

mod cells;
mod page;
mod place;
mod run;

use holdover_host::log::with_causes;
use holdover_transfers::{AgentPath, KernelError};

use crate::results::Results;
use crate::{Grid, GridOptions, Head, Outcome, Unable};
use cells::Cell;
use page::Report;
use place::Place;
use run::Run;

/// The grid of outages, senders, directions and warnings.
#[derive(Clone, Copy, Debug)]
pub struct AgentGrid {
    /// The agent is a filter in the path, not eBPF.
    pub filter: bool,
}

impl Grid for AgentGrid {
    type Place = Place;
    type Machine = AgentPath;
    type Run = Run;
    type Error = KernelError;
    type Report = Report;

    fn name(&self) -> &'static str {
        if self.filter { "agent --filter" } else { "agent" }
    }

    fn places(&self, options: &GridOptions) -> Vec<Place> {
        place::places(options.path, options.only.as_deref())
    }

    fn examine(&self) -> Result<AgentPath, Unable> {
        match (self.filter, AgentPath::best()) {
            (true, _) => Ok(AgentPath::Filter),
            (false, (agent, None)) => Ok(agent),
            (false, (_, Some(why))) => {
                Err(Unable(format!("the agent can only be a filter in the path here: {}", with_causes(&why))))
            }
        }
    }

    fn run(&self, place: Place, agent: &AgentPath) -> Result<Run, KernelError> {
        run::run(place, *agent)
    }

    fn report(&self, agent: AgentPath, outcome: Outcome<Place, Run>, head: Head) -> Report {
        Report::new(Results::new(Cell::all(&outcome.runs), outcome.failures), agent, head)
    }
}
