//! Limits the packets that a peer can cause to addresses at which it was not verified: checks of the locators that it announces, and
//! repetitions of answers that go there.
//!
//! A peer that lies about its addresses directs these packets at others. RFC 8046 section 5.6 allows data to such an address as far as the
//! peer has sent data itself; checks are subject to the same principle here. A packet to an unverified address is charged, in packets and in
//! bytes. Credited are the packets by which the peer announces addresses, all checks of an address that answers one of them (so that they went
//! to the peer itself), and a little with time. Thus a host that moves honestly, however often, owes nothing in the end.
//!
//! Packets beyond the limits are not sent. One half of the limits is reserved for the first checks of announced addresses and for answers
//! to announcements: packets that other hosts cause, by forged sources or by replays, do not use it up. An eighth is for these, and for
//! repetitions, whatever connectivity checks have used: those of candidates that do not answer are never credited.

use holdover_base::{Duration, Instant};

/// The most packets that are owed: two announcements of four addresses without an answer, with ten checks of each, and half as much again.
const MAX_PACKETS: u32 = 128;
/// The most bytes that are owed, but for one packet: a check signed with Ed25519 or ECDSA P-256 has some 250 bytes, with RSA of 4096 bits 700.
const MAX_BYTES: u64 = 64 * 1024;
/// One packet is forgiven in this time, with as many bytes as a packet has of both limits.
const FORGIVEN_EVERY: Duration = Duration::from_secs(2);
const FORGIVEN_BYTES: u64 = MAX_BYTES / MAX_PACKETS as u64;

/// The cause of a packet to an unverified address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// An announcement of the peer.
    Announcement,
    /// A timer, data, or the source of a packet.
    Other,
    /// Connectivity checks of an exchange.
    Candidates,
}

/// Packets and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Amount {
    pub(super) packets: u32,
    pub(super) bytes: u64,
}

impl Amount {
    /// A packet of this length.
    pub(super) const fn packet(len: usize) -> Self {
        Self { packets: 1, bytes: len as u64 }
    }

    pub(super) const fn plus(self, other: Self) -> Self {
        let (packets, bytes) = (self.packets.saturating_add(other.packets), self.bytes.saturating_add(other.bytes));
        Self { packets, bytes }
    }

    const fn minus(self, other: Self) -> Self {
        let (packets, bytes) = (self.packets.saturating_sub(other.packets), self.bytes.saturating_sub(other.bytes));
        Self { packets, bytes }
    }
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CheckBudget {
    owed: Amount,
    forgiven_at: Instant,
}

impl CheckBudget {
    /// Whether another packet may be sent.
    pub(super) fn allows(&mut self, now: Instant, cause: Cause) -> bool {
        self.forgive(now);
        let eighths = match cause {
            Cause::Announcement => 8,
            Cause::Other => 4,
            Cause::Candidates => 3,
        };
        self.owed.packets < MAX_PACKETS * eighths / 8 && self.owed.bytes < MAX_BYTES * u64::from(eighths) / 8
    }

    /// A packet was sent to an unverified address.
    pub(super) fn charge(&mut self, sent: Amount) {
        self.owed = self.owed.plus(sent);
    }

    /// The peer has sent this much, or was verified where this much was sent.
    pub(super) fn credit(&mut self, amount: Amount) {
        self.owed = self.owed.minus(amount);
    }

    fn forgive(&mut self, now: Instant) {
        let steps = now.saturating_since(self.forgiven_at).as_nanos() / FORGIVEN_EVERY.as_nanos();
        let packets = u32::try_from(steps).unwrap_or(u32::MAX);
        self.credit(Amount { packets, bytes: u64::from(packets) * FORGIVEN_BYTES });
        self.forgiven_at = if packets == u32::MAX { now } else { self.forgiven_at + FORGIVEN_EVERY * steps };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends packets of this length while they are allowed; returns their number.
    fn exhaust(budget: &mut CheckBudget, now: Instant, cause: Cause, len: usize) -> usize {
        let allowed = (0..10_000).take_while(|_| {
            let is_allowed = budget.allows(now, cause);
            if is_allowed {
                budget.charge(Amount::packet(len));
            }
            is_allowed
        });
        allowed.count()
    }

    #[test]
    fn a_half_is_for_announcements() {
        let (mut budget, now) = (CheckBudget::default(), Instant::from_secs(1000));
        assert_eq!(exhaust(&mut budget, now, Cause::Other, 250), 64);
        assert_eq!(exhaust(&mut budget, now, Cause::Announcement, 250), 64);
        assert_eq!(exhaust(&mut budget, now, Cause::Announcement, 250), 0);
        // The peer's announcement pays for its answer.
        budget.credit(Amount::packet(250));
        assert_eq!(exhaust(&mut budget, now, Cause::Announcement, 250), 1);
        assert_eq!(exhaust(&mut budget, now + Duration::from_secs(10), Cause::Announcement, 250), 5);
        assert_eq!(exhaust(&mut budget, now + Duration::from_secs(9999), Cause::Other, 250), 64, "no credit piles up");
    }

    #[test]
    fn connectivity_checks_leave_a_part() {
        let (mut budget, now) = (CheckBudget::default(), Instant::from_secs(1000));
        assert_eq!(exhaust(&mut budget, now, Cause::Candidates, 250), 48);
        assert_eq!(exhaust(&mut budget, now, Cause::Other, 250), 16);
        assert_eq!(exhaust(&mut budget, now, Cause::Candidates, 250), 0);
    }

    #[test]
    fn bytes_are_limited() {
        let (mut budget, now) = (CheckBudget::default(), Instant::from_secs(1000));
        assert_eq!(exhaust(&mut budget, now, Cause::Announcement, 1024), 64);
        // An announcement pays for as many bytes as it has.
        budget.credit(Amount::packet(256));
        assert_eq!(exhaust(&mut budget, now, Cause::Announcement, 1024), 1);
        budget.credit(Amount::packet(256));
        assert_eq!(exhaust(&mut budget, now, Cause::Announcement, 1024), 0);
        assert_eq!(exhaust(&mut budget, now + Duration::from_secs(10), Cause::Announcement, 512), 4);
    }
}
