//! Whether the machine has slept: the clock that goes on during sleep (`CLOCK_BOOTTIME`) is ahead of the one that does not
//! (`CLOCK_MONOTONIC`) by as much as it has slept since it was started.
//!
//! This tells of sleep when it is over. What is told then is that the link was down and is up; if it is not, because the interface
//! has to find its network again, the other sources say so.

use holdover_base::Duration;

/// Compares the clocks. [`Self::handle_clocks`] is to be called whenever the process wakes up.
#[derive(Clone, Copy, Debug)]
pub struct SuspendWatch {
    slept: Duration,
}

/// Less than this is no sleep that a connection would notice.
const LEAST: Duration = Duration::from_millis(100);

impl SuspendWatch {
    /// `slept` is how much the machine has slept until now.
    pub fn new(slept: Duration) -> Self {
        Self { slept }
    }

    /// How long it has slept since the last call, if it has.
    pub fn handle_clocks(&mut self, slept: Duration) -> Option<Duration> {
        let more = slept.saturating_sub(self.slept);
        if more < LEAST {
            return None;
        }
        self.slept = slept;
        Some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_is_told_once_and_the_noise_of_reading_two_clocks_never() {
        let at = Duration::from_millis;
        let mut watch = SuspendWatch::new(at(5000));
        assert_eq!(watch.handle_clocks(at(5000)), None);
        assert_eq!(watch.handle_clocks(at(5001)), None);
        assert_eq!(watch.handle_clocks(at(4999)), None);
        assert_eq!(watch.handle_clocks(at(65_000)), Some(at(60_000)));
        assert_eq!(watch.handle_clocks(at(65_000)), None);
        // Short sleeps add up: nothing creeps in.
        assert_eq!(watch.handle_clocks(at(65_060)), None);
        assert_eq!(watch.handle_clocks(at(65_120)), Some(at(120)));
    }
}
