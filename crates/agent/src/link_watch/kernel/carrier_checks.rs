//! Checks of a carrier that was lost a moment ago.
//!
//! The kernel reports losses of carrier once a second (`linkwatch_schedule_work`), of all interfaces together, so that a loss soon after another one
//! is reported late, or together with the return. A request for the interface (RTM_GETLINK) is answered with its present carrier, and since
//! Linux 6.8 it makes the kernel report the loss to others at once (`linkwatch_sync_dev`).

use holdover_base::{Duration, Instant};

use super::{Interface, Interfaces};

/// Checks continue for this long after a change. A later loss is reported at once, unless another interface has lost its carrier.
const CHECK_FOR: Duration = Duration::from_secs(2);

/// A check takes some 0.1 ms.
const CHECK_EVERY: Duration = Duration::from_millis(25);

/// The checks of an interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct CarrierChecks {
    next_at: Instant,
    until: Instant,
}

impl CarrierChecks {
    /// The carrier has changed.
    pub(super) fn begin(now: Instant) -> Self {
        Self { next_at: now + CHECK_EVERY, until: now + CHECK_FOR }
    }

    /// When the next one is due.
    fn next_at(&self) -> Option<Instant> {
        Some(self.next_at).filter(|&at| at < self.until)
    }
}

impl Interface {
    /// When its carrier is to be checked: only while it has one, as its return is reported at once.
    fn carrier_check_at(&self) -> Option<Instant> {
        let is_checked = self.is_named && self.can_carry && self.may_be_uplink && self.has_had_route;
        self.carrier_checks.filter(|_| is_checked).and_then(|checks| checks.next_at())
    }
}

impl Interfaces {
    /// When an interface's state is to be requested ([`Self::take_carrier_checks`]).
    pub fn carrier_check_at(&self) -> Option<Instant> {
        self.interfaces.values().filter_map(Interface::carrier_check_at).min()
    }

    /// The interfaces whose state is to be requested now.
    pub fn take_carrier_checks(&mut self, now: Instant) -> Vec<u32> {
        let mut due = Vec::new();
        for (&index, interface) in &mut self.interfaces {
            if interface.carrier_check_at().is_some_and(|at| at <= now)
                && let Some(checks) = &mut interface.carrier_checks
            {
                checks.next_at = now + CHECK_EVERY;
                due.push(index);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::super::KernelEvent;
    use super::super::tests::{link, route};
    use super::*;

    // Claim: For 2 s after a change of an uplink's carrier the agent asks the kernel for the interface every 25 ms, while it has carrier.
    #[test]
    fn a_carrier_is_checked_for_a_while_after_its_return() {
        let mut interfaces = Interfaces::new();
        let at = |millis: u64| Instant::from_millis(10_000 + millis);
        let tell = |interfaces: &mut Interfaces, millis, event: KernelEvent| interfaces.handle(at(millis), event);
        for event in [link(2, "eth0", true), route(2, "192.0.2.1", true), link(3, "eth1", true)] {
            tell(&mut interfaces, 0, event);
        }
        assert_eq!(interfaces.carrier_check_at(), None, "nothing was lost");
        tell(&mut interfaces, 100, link(2, "eth0", false));
        tell(&mut interfaces, 100, link(3, "eth1", false));
        assert_eq!(interfaces.carrier_check_at(), None, "its return is reported at once");
        tell(&mut interfaces, 350, link(2, "eth0", true));
        tell(&mut interfaces, 350, link(3, "eth1", true));
        let mut checks = 0;
        while let Some(due) = interfaces.carrier_check_at() {
            assert!(interfaces.take_carrier_checks(due - Duration::from_millis(1)).is_empty());
            assert_eq!(interfaces.take_carrier_checks(due), [2], "the other one is no uplink");
            checks += 1;
            assert!(due < at(2_350));
        }
        assert_eq!(checks, 79);
    }
}
