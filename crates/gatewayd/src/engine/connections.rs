//! Handoff of TCP connections: records of them go to the gateway that has claimed their mobile host, and those of mobile
//! hosts that have come are taken in, and their senders woken.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_gateway::divert::{Diverter, Standing};

use super::Engine;
use crate::handoff::protocol::Transfer;
use crate::handoff::records::{MOST_RECORDS, Part, unpack};
use crate::packet_files::Stored;
use crate::path::Seen;

/// How long connections wait for further records before they are woken together.
const TOGETHER: Duration = Duration::from_millis(25);

/// How long connections of a mobile host that has come, and is away again, are to be woken on its return.
const WOKEN_WITHIN: Duration = Duration::from_secs(600);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Mobile hosts that other gateways have claimed, and whose connections were not handed on yet.
    leaving: BTreeMap<IpAddr, Leaving>,
    /// Mobile hosts whose connections were handed on. Their packets may still pass here.
    left: BTreeSet<IpAddr>,
    /// Mobile hosts whose connections have come and were not woken yet.
    arriving: BTreeMap<IpAddr, Arriving>,
}

/// A mobile host that another gateway has claimed.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    transfer: Transfer,
    /// When it was last heard here, or fell silent. `None` if that is not known, or was forgotten.
    since: Option<Instant>,
    /// Whether this gateway knew it.
    is_known: bool,
}

/// A mobile host whose connections have come.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    /// When it was last heard at its former gateway.
    since: Instant,
    began_at: Instant,
    wake_at: Instant,
}

impl Moves {
    /// Another gateway has claimed a mobile host and asks for its connections.
    pub(super) fn note_wanted(&mut self, transfer: Transfer, seen: Option<Seen>) {
        let since = seen.and_then(|seen| seen.down_at.or(seen.heard_at));
        self.arriving.remove(&transfer.0);
        self.leaving.insert(transfer.0, Leaving { transfer, since, is_known: seen.is_some() });
    }

    /// A mobile host is here.
    pub(super) fn note_here(&mut self, mobile: IpAddr) {
        self.left.remove(&mobile);
    }

    /// Connections of a mobile host have come.
    fn note_arrived(&mut self, now: Instant, mobile: IpAddr, since: Instant, are_last: bool) {
        let anew = Arriving { since, began_at: now, wake_at: now + TOGETHER };
        let arriving = self.arriving.entry(mobile).or_insert(anew);
        arriving.since = arriving.since.max(since);
        if are_last {
            arriving.wake_at = now;
        }
    }

    /// Mobile hosts whose connections are to be woken, and since when these had rested.
    fn due(&mut self, now: Instant, is_away: impl Fn(IpAddr) -> bool) -> Vec<(IpAddr, Instant)> {
        self.arriving.retain(|_, arriving| now.saturating_since(arriving.began_at) < WOKEN_WITHIN);
        let due = self.arriving.extract_if(.., |mobile, arriving| arriving.wake_at <= now && !is_away(*mobile));
        due.map(|(mobile, arriving)| (mobile, arriving.since)).collect()
    }

    /// The next deadline. Mobile hosts that are away again have none: their return wakes their connections.
    pub(super) fn poll_timeout(&self, is_away: impl Fn(IpAddr) -> bool) -> Option<Instant> {
        let present = self.arriving.iter().filter(|(mobile, _)| !is_away(**mobile));
        present.map(|(_, arriving)| arriving.wake_at).min()
    }

    /// The state of a mobile host in the path is dropped. Returns whether its connections were handed on.
    pub(super) fn forget(&mut self, mobile: IpAddr) -> bool {
        self.arriving.remove(&mobile);
        self.left.remove(&mobile)
    }
}

impl Engine {
    pub(super) fn is_away(&self, mobile: IpAddr) -> bool {
        is_away(&self.diverter, mobile)
    }

    /// Wakes connections that have come from other gateways.
    pub(super) fn wake_arrived(&mut self, now: Instant) {
        let diverter = &self.diverter;
        for (mobile, since) in self.moves.due(now, |mobile| is_away(diverter, mobile)) {
            if let Some(waker) = &mut self.waker {
                waker.handle_moved_in(now, mobile, since, &mut self.path);
            }
        }
    }

    /// Hands on the connections of mobile hosts that other gateways have claimed. Call it before [`Engine::forget_path`], which drops their
    /// controllers.
    pub(super) fn hand_connections_on(&mut self, now: Instant) {
        if !self.moves.leaving.is_empty() {
            // The list is read anew, so that connections begun since it was made are handed on, too.
            self.path.drop_list();
        }
        while let Some((mobile, leaving)) = self.moves.leaving.pop_first() {
            self.hand_on_connections_of(now, mobile, leaving);
        }
    }

    fn hand_on_connections_of(&mut self, now: Instant, mobile: IpAddr, leaving: Leaving) {
        // Without a cluster every gateway is asked. In one, a mobile host may have been forgotten before the claim.
        let may_have_some = leaving.is_known || self.cluster.is_some();
        let Some(waker) = self.waker.as_mut().filter(|_| may_have_some) else { return };
        let records = waker.hand_on(now, mobile, MOST_RECORDS, &mut self.path);
        // Otherwise the programs do not look at its packets any more.
        if self.path.seen(mobile).is_some() {
            self.moves.left.insert(mobile);
        }
        if let (Some(handoff), false) = (&mut self.handoff, records.is_empty()) {
            tracing::info!(%mobile, connections = records.len(), "handed on to another gateway");
            // If it is unknown, the latest time in the records counts.
            let since = leaving.since.unwrap_or(Instant::ZERO);
            handoff.send_records(now, leaving.transfer, Part::pack(now, since, &records), records.len());
        }
    }

    /// Records have come from the mobile host's former gateway.
    pub(super) fn take_in_records(&mut self, now: Instant, mobile: IpAddr, bytes: Vec<u8>, are_last: bool) {
        let (Some(handoff), Some(waker)) = (&mut self.handoff, &mut self.waker) else { return };
        if !self.attachments.is_here(mobile) {
            return handoff.pass_records_on(now, mobile, bytes);
        }
        let Some((since, records)) = unpack(now, &bytes) else { return };
        let (count, last) = waker.take_in(now, mobile, &records, &mut self.path);
        handoff.note_taken_in(count);
        if count > 0 {
            tracing::info!(%mobile, connections = count, "taken in from another gateway");
            self.moves.note_arrived(now, mobile, last.map_or(since, |last| last.max(since)).min(now), are_last);
        }
    }
}

fn is_away(diverter: &Diverter<Stored>, mobile: IpAddr) -> bool {
    diverter.status(mobile).is_some_and(|status| status.standing == Standing::Away)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn connections_are_woken_together_with_the_last_record_or_soon_and_when_their_host_is_present() {
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut moves = Moves::default();
        moves.note_arrived(at(1000), one, at(400), false);
        moves.note_arrived(at(1010), one, at(500), false);
        assert_eq!((moves.poll_timeout(|_| false), moves.poll_timeout(|_| true)), (Some(at(1025)), None));
        assert_eq!(moves.due(at(1024), |_| false), []);
        assert_eq!(moves.due(at(1025), |_| false), [(one, at(500))]);
        moves.note_arrived(at(2000), one, at(1900), true);
        moves.note_arrived(at(2000), other, at(1900), true);
        assert_eq!(moves.due(at(2000), |mobile| mobile == other), [(one, at(1900))]);
        assert_eq!(moves.due(at(9000), |_| false), [(other, at(1900))]);
        assert_eq!(moves.poll_timeout(|_| false), None);
        // Away for too long.
        moves.note_arrived(at(10_000), one, at(9000), true);
        assert_eq!(moves.due(at(610_000), |_| false), []);
    }
}
