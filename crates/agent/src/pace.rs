//! Pacing of work whose cost grows with the number of sockets and processes.

use holdover_base::Duration;

/// The pause after such work, as a multiple of its duration: the agent's only thread handles the packets of all
/// connections, and spends at most a twentieth of its time on other work.
const REST: u64 = 20;

/// How long to rest after work of this duration; at least `at_least`.
pub(crate) const fn rest(took: Duration, at_least: Duration) -> Duration {
    let rest = Duration::from_nanos(took.as_nanos().saturating_mul(REST));
    if rest.as_nanos() > at_least.as_nanos() { rest } else { at_least }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_with_the_work() {
        let at_least = Duration::from_secs(1);
        assert_eq!(rest(Duration::from_millis(1), at_least), at_least);
        assert_eq!(rest(Duration::from_millis(100), at_least), Duration::from_secs(2));
    }
}
