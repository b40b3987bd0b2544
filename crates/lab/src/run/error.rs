//! Errors of runs, in the simulator and on kernels.

use holdover_host::log::with_causes;
use holdover_report::RecordError;
use holdover_sim::WorldError;
use holdover_testbed::PrivilegeError;
use holdover_testbed::world::RealError;

/// Errors of a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A world cannot be built.
    #[error("variant {variant}: {error}")]
    World {
        /// The variant.
        variant: String,
        /// The cause.
        error: WorldError,
    },
    /// A file could not be written.
    #[error("{0}")]
    Record(#[from] RecordError),
    /// Kernels cannot be used, or a run on them failed.
    #[error("{0}")]
    Kernel(#[from] KernelError),
    /// The run was interrupted.
    #[error("interrupted; nothing was kept")]
    Interrupted,
}

/// Errors of runs on kernels.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A host to be simulated is not in the scenario.
    #[error("the scenario has no host \"{0}\" to leave to the simulator")]
    NoSuchHost(String),
    /// No variant can run on kernels.
    #[error("no variant can be run on a kernel\n{0}")]
    NoVariant(String),
    /// The process lacks the required privilege.
    #[error("kernels cannot be used: {0}")]
    Privilege(#[from] PrivilegeError),
    /// A run failed.
    #[error("variant {variant} on the kernel: {}", with_causes(error.as_ref()))]
    Run {
        /// The variant.
        variant: String,
        /// The cause.
        error: Box<RealError>,
    },
}
