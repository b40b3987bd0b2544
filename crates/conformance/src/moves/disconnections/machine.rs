//! This machine: how late it is, and how much it carries at a time.

use std::sync::{Condvar, Mutex, PoisonError};

use holdover_testbed::Lateness;

/// A run begins while fewer than this many others have a network. One that has takes 0.14 of a core of the reference machine, which has two.
const MOST_CONNECTED: usize = 8;

/// The machine, shared by all runs.
#[derive(Debug)]
pub struct Machine {
    pub(super) lateness: Lateness,
    connected: Mutex<usize>,
    cut: Condvar,
}

/// A mobile host that has a network, until this is dropped.
#[derive(Debug)]
pub(super) struct Connected<'a>(&'a Machine);

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        *self.0.connected.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.cut.notify_one();
    }
}

impl Machine {
    pub(super) fn new(lateness: Lateness) -> Self {
        Self { lateness, connected: Mutex::new(0), cut: Condvar::new() }
    }

    /// Waits until a run may begin: those that began all at once would start their daemons, and have a network, at the same times.
    pub(super) fn begin(&self) -> Connected<'_> {
        let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        let fewer = self.cut.wait_while(connected, |connected| *connected >= MOST_CONNECTED);
        *fewer.unwrap_or_else(PoisonError::into_inner) += 1;
        Connected(self)
    }

    /// A mobile host has a network again, by its schedule.
    pub(super) fn connect(&self) -> Connected<'_> {
        *self.connected.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Connected(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_transfer_begins_when_fewer_are_connected() {
        let machine = Machine::new(Lateness::watch());
        let mut connected: Vec<Connected<'_>> = (0..MOST_CONNECTED).map(|_| machine.begin()).collect();
        // Schedules go on.
        connected.push(machine.connect());
        let (began, begins) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _connected = machine.begin();
                began.send(()).unwrap();
            });
            connected.pop();
            assert!(begins.recv_timeout(Duration::from_millis(50)).is_err());
            connected.pop();
            begins.recv().unwrap();
        });
        drop(connected);
        assert_eq!(*machine.connected.lock().unwrap(), 0);
    }
}
