//! The arguments of `holdover run` about real kernels.

use clap::{Args, ValueEnum};
use holdover_lab::run::{KernelOptions, Kernels, RunError};
use holdover_sim::WorldConfig;
use holdover_testbed::Congestion;

use crate::command_support::{print_note, within};

/// Arguments about kernels.
#[derive(Args, Debug)]
#[command(next_help_heading = "Real kernels")]
pub(crate) struct KernelArgs {
    /// Run on this machine's kernel, each host in a network namespace of its own, instead of in the simulator.
    #[arg(long, conflicts_with = "both")]
    real: bool,
    /// Run in the simulator and on this machine's kernel, and compare.
    #[arg(long)]
    both: bool,
    /// The number of runs of each variant on the kernel; tables have the medians.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(1_u32..=1000))]
    repeat: u32,
    /// Keep a host in the simulator: kernels then communicate with Holdover's own TCP (repeatable).
    #[arg(long, value_name = "HOST")]
    simulated: Vec<String>,
    /// Congestion control of the kernel, in place of the stacks' own.
    #[arg(long, value_name = "NAME")]
    congestion: Option<CongestionName>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum CongestionName {
    Cubic,
    Reno,
    Bbr,
}

/// Arguments about kernels without `--real` or `--both`.
#[derive(Debug, thiserror::Error)]
#[error("{0} is about runs on kernels: it needs --real or --both")]
pub(crate) struct NotAsked(&'static str);

impl KernelArgs {
    /// Whether variants are run in the simulator.
    pub(super) const fn simulate(&self) -> bool {
        !self.real
    }

    /// The requested kernels. Call before the first thread starts.
    pub(super) fn prepare(
        &self,
        names: &[&str],
        worlds: &[WorldConfig],
    ) -> Result<Option<Kernels>, super::CommandError> {
        if !self.real && !self.both {
            let given = [
                ("--repeat", self.repeat > 1),
                ("--simulated", !self.simulated.is_empty()),
                ("--congestion", self.congestion.is_some()),
            ];
            return match given.into_iter().find(|(_, given)| *given) {
                Some((name, _)) => Err(NotAsked(name).into()),
                None => Ok(None),
            };
        }
        let congestion = self.congestion.map(|name| match name {
            CongestionName::Cubic => Congestion::Cubic,
            CongestionName::Reno => Congestion::Reno,
            CongestionName::Bbr => Congestion::Bbr,
        });
        let options = KernelOptions { repeat: self.repeat, congestion, simulated: self.simulated.clone() };
        let kernels = Kernels::prepare(options, names, worlds).map_err(RunError::Kernel)?;
        for reason in kernels.refused() {
            print_note(&reason);
        }
        Ok(Some(kernels))
    }
}
