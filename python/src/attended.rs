//! Long work that Ctrl-C ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors::failed;

/// Does long work in a thread of its own, without the interpreter. Meanwhile `tell` is called now and then, and signals are checked: what either
/// raises sets the flag that the work is to look at, and is raised when that has ended.
pub(crate) fn attended<T: Send>(
    py: Python<'_>,
    tell: impl Fn(Python<'_>) -> PyResult<()> + Sync,
    work: impl FnOnce(&AtomicBool) -> T + Send,
) -> PyResult<T> {
    const EVERY: Duration = Duration::from_millis(20);
    let stop = AtomicBool::new(false);
    let (ended, raised) = py.detach(|| {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| work(&stop));
            let mut raised = None;
            while !thread.is_finished() {
                std::thread::sleep(EVERY);
                if let Err(error) = Python::attach(|py| py.check_signals().and_then(|()| tell(py))) {
                    raised.get_or_insert(error);
                    stop.store(true, Ordering::Relaxed);
                }
            }
            (thread.join(), raised)
        })
    });
    match (ended, raised) {
        (_, Some(error)) => Err(error),
        (Ok(ended), None) => Ok(ended),
        (Err(_), None) => Err(failed(py, "a thread has ended by a panic: this is a defect")),
    }
}
