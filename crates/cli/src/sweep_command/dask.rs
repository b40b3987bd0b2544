//! `--dask`: the workers of a Dask cluster make the runs of a sweep, through the Python module `holdover`.
//!
//! The module fills the sweep's journal; the program then finds every run in it, and continues as if it had made them itself.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::SweepArgs;
use crate::command_support::INTERRUPTED;

/// Names the Python that has the module.
const PYTHON: &str = "HOLDOVER_PYTHON";

/// The default Python.
const DEFAULT_PYTHON: &str = "python3";

/// The module's exit code after it has printed an error.
const REPORTED: i32 = 3;

/// Why the cluster has not made all runs.
#[derive(Debug, thiserror::Error)]
pub(super) enum DaskError {
    /// Python could not be started.
    #[error(
        "cannot run {}: {error}; --dask needs a Python with the module holdover (pip install '.[dask]' in a clone), \
         which the variable {PYTHON} can name",
        python.display()
    )]
    Python {
        /// The task.
        python: OsString,
        /// Why.
        error: std::io::Error,
    },
    /// It has ended without an error message from the module.
    #[error(
        "the runs on the cluster have ended early ({status}); what was finished is kept, and the same command continues with it. If the \
         module is missing: pip install '.[dask]' in a clone, by {}; or name another Python by {PYTHON}",
        python.display()
    )]
    Module {
        /// The task.
        python: OsString,
        /// How it ended.
        status: ExitStatus,
    },
    /// The module has printed the error on standard error.
    #[error(
        "the runs on the cluster have ended early; what was finished is kept, and the same command continues with it"
    )]
    Reported,
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

/// Runs on the cluster at `address` the units that the journal in `directory` lacks.
pub(super) fn fill(args: &SweepArgs, address: &str, directory: &Path, stop: &AtomicBool) -> Result<(), DaskError> {
    /// How long the module may take to end by itself after Ctrl-C.
    const PATIENCE: Duration = Duration::from_secs(5);
    let python = std::env::var_os(PYTHON).filter(|name| !name.is_empty()).unwrap_or_else(|| DEFAULT_PYTHON.into());
    let failed = |error| DaskError::Python { python: python.clone(), error };
    let mut command = Command::new(&python);
    command.args(["-c", "import sys; from holdover.sweeps import _main; sys.exit(_main())"]);
    command.args([&args.scenario, "--dask", address, "--out"]).arg(directory);
    for change in &args.set {
        command.arg("--set").arg(change);
    }
    command.args(args.seed.iter().flat_map(|seed| ["--seed".to_owned(), seed.to_string()]));
    let mut child = command.spawn().map_err(failed)?;
    let mut stopped_at = None;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if stop.load(Ordering::Relaxed) && stopped_at.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            // The journal is complete without it.
            child.kill().map_err(failed)?;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    match status.code() {
        _ if stop.load(Ordering::Relaxed) => Err(DaskError::Interrupted),
        Some(0) => Ok(()),
        Some(code) if code == i32::from(INTERRUPTED) => Err(DaskError::Interrupted),
        Some(REPORTED) => Err(DaskError::Reported),
        _ => Err(DaskError::Module { python, status }),
    }
}
