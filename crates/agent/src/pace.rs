//! How often work may be done that takes the longer the more sockets and processes there are.

use holdover_base::Duration;

/// How many times as long as such work has taken nothing of the kind is done again: the one thread of the agent has the packets of all
/// connections to look after, and is away from them for no more than a twentieth of its time.
const REST: u64 = 20;

/// How long to rest after work that took so long; at least so long in any case.
pub(crate) const fn rest(took: Duration, at_least: Duration) -> Duration {
    let rest = Duration::from_nanos(took.as_nanos().saturating_mul(REST));
    if rest.as_nanos() > at_least.as_nanos() { rest } else { at_least }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_works_long_rests_long() {
        let at_least = Duration::from_secs(1);
        assert_eq!(rest(Duration::from_millis(1), at_least), at_least);
        assert_eq!(rest(Duration::from_millis(100), at_least), Duration::from_secs(2));
    }
}
