//! The mobile host's half.

use core::net::IpAddr;
use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;

use super::message::{Answer, Key, LENGTH, NONCE, Report, Verdict};

/// Counters of reports.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RegistrantCounters {
    /// Datagrams sent.
    pub sent: u64,
    /// Reports that the gateway has accepted.
    pub noted: u64,
    /// Refusals of the gateway for an address.
    pub refused: u64,
    /// Datagrams that answer no report of this host.
    pub strange: u64,
}

/// Reports. See the [module](super).
#[derive(Debug)]
pub struct Registrant {
    key: Key,
    nonce: [u8; NONCE],
    counter: u64,
    reports: BTreeMap<IpAddr, Open>,
    counters: RegistrantCounters,
}

/// A pending report about one address.
#[derive(Clone, Copy, Debug)]
struct Open {
    presence: Presence,
    /// When a fading host leaves.
    goes_at: Option<Instant>,
    /// The counter of its first datagram.
    first: Option<u64>,
    tries: u32,
    next_at: Instant,
}

/// The time until the first repetition of an unanswered report; it doubles with each.
const REPEAT_AFTER: Duration = Duration::from_millis(50);

/// The longest time between repetitions.
const REPEAT_AT_LATEST: Duration = Duration::from_secs(2);

/// The time until an answered report is repeated, so that a restarted gateway knows the host before it needs to.
const REFRESH: Duration = Duration::from_secs(20);

impl Registrant {
    /// Without reports. `first_counter` is random, so that answers to an earlier process can be distinguished.
    pub fn new(key: Key, first_counter: u64) -> Self {
        let counter = first_counter >> 2;
        Self { key, nonce: [0; NONCE], counter, reports: BTreeMap::new(), counters: RegistrantCounters::default() }
    }

    /// Counters of reports.
    pub fn counters(&self) -> RegistrantCounters {
        self.counters
    }

    /// Sets the state of an address of this host. The report of a host that is away or has moved is repeated until it
    /// is answered, and not refreshed after.
    pub fn report(&mut self, now: Instant, address: IpAddr, presence: Presence) {
        let goes_at = match presence {
            Presence::Fading { lead } => lead.map(|lead| now + lead),
            _ => None,
        };
        self.reports.insert(address, Open { presence, goes_at, first: None, tries: 0, next_at: now });
    }

    /// Removes an address.
    pub fn forget(&mut self, address: IpAddr) {
        self.reports.remove(&address);
    }

    /// Handles a datagram.
    pub fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) {
        let answer = Answer::from_bytes(&self.key, bytes);
        let last = self.counter;
        let open = answer.and_then(|answer| {
            let open = self.reports.get_mut(&answer.address)?;
            open.first.is_some_and(|first| (first..=last).contains(&answer.counter)).then_some((answer, open))
        });
        let Some((answer, open)) = open else {
            self.counters.strange += 1;
            return;
        };
        let may_refresh = matches!(open.presence, Presence::Present | Presence::Rebound);
        match answer.verdict {
            Verdict::Noted => self.counters.noted += 1,
            Verdict::Refused => self.counters.refused += 1,
            Verdict::UseNonce if self.nonce == answer.nonce => return,
            Verdict::UseNonce => {
                self.nonce = answer.nonce;
                // Reports waiting under the old nonce are repeated at once.
                for open in self.reports.values_mut().filter(|open| open.first.is_some()) {
                    (open.tries, open.next_at) = (0, now);
                }
                return;
            }
        }
        (open.tries, open.first) = (0, None);
        open.next_at = if may_refresh { now + REFRESH } else { Instant::FAR_FUTURE };
    }

    /// The next datagram for the gateway.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<[u8; LENGTH]> {
        let (&address, open) = self.reports.iter_mut().find(|(_, open)| open.next_at <= now)?;
        self.counter += 1;
        self.counters.sent += 1;
        open.first.get_or_insert(self.counter);
        let pause = Duration::from_nanos(REPEAT_AFTER.as_nanos() << open.tries.min(16));
        open.tries = open.tries.saturating_add(1);
        open.next_at = now + pause.min(REPEAT_AT_LATEST);
        let presence = match open.presence {
            Presence::Fading { .. } => Presence::Fading { lead: open.goes_at.map(|at| at.saturating_since(now)) },
            other => other,
        };
        let report = Report { presence, address, nonce: self.nonce, counter: self.counter };
        Some(report.to_bytes(&self.key))
    }

    /// When [`Self::poll_transmit`] has a datagram.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.reports.values().map(|open| open.next_at).filter(|&at| at < Instant::FAR_FUTURE).min()
    }
}
