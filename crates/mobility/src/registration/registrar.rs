//! The gateway's half.

use core::net::IpAddr;
use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;

use super::message::{Answer, Key, LENGTH, NONCE, Report, Verdict, key_name};

/// An accepted report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registered {
    /// Of the mobile host.
    pub address: IpAddr,
    /// The reported presence.
    pub presence: Presence,
}

/// Counters of datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RegistrarCounters {
    /// Accepted reports.
    pub noted: u64,
    /// Reports with an outdated nonce, which were answered with a new one.
    pub challenged: u64,
    /// Replayed reports, or ones overtaken by a later one.
    pub replayed: u64,
    /// Authentic reports about addresses that the sender may not report about.
    pub refused: u64,
    /// Not authentic: with an unknown key, damaged, or not a message.
    pub forged: u64,
}

/// Receives reports. See the [module](super).
#[derive(Debug, Default)]
pub struct Registrar {
    hosts: BTreeMap<[u8; 8], Host>,
    counters: RegistrarCounters,
}

#[derive(Debug)]
struct Host {
    key: Key,
    /// The key's number, in the order in which they were added.
    number: usize,
    /// The current nonce, and the last counter under it.
    current: Option<([u8; NONCE], u64)>,
    /// A nonce that was offered and not used yet.
    offered: Option<[u8; NONCE]>,
    offered_at: Option<Instant>,
}

/// How long one nonce is offered: replays of old reports cannot replace it all the time.
const OFFER_LASTS: Duration = Duration::from_secs(10);

impl Registrar {
    /// Without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Accepts reports with this key from now on. Keys are numbered from 0 in the order of these calls. Returns whether
    /// the key is new.
    pub fn add(&mut self, key: Key) -> bool {
        let (name, number) = (key.name(), self.hosts.len());
        let is_new = !self.hosts.contains_key(&name);
        let host = Host { key, number, current: None, offered: None, offered_at: None };
        self.hosts.entry(name).or_insert(host);
        is_new
    }

    /// Counters of datagrams.
    pub fn counters(&self) -> RegistrarCounters {
        self.counters
    }

    /// Handles a datagram. `nonce` is random; `may` returns whether the key of this number may report about an address.
    /// Returns the answer, and the report.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        bytes: &[u8],
        nonce: [u8; NONCE],
        may: impl FnOnce(usize, IpAddr) -> bool,
    ) -> (Option<[u8; LENGTH]>, Option<Registered>) {
        let counters = &mut self.counters;
        let host = key_name(bytes).and_then(|name| self.hosts.get_mut(&name));
        let report = host.and_then(|host| Some((Report::from_bytes(&host.key, bytes)?, host)));
        let Some((report, host)) = report else {
            counters.forged += 1;
            return (None, None);
        };
        let Report { presence, address, counter, .. } = report;
        let answer =
            |host: &Host, verdict, nonce| Some(Answer { verdict, address, nonce, counter }.to_bytes(&host.key));
        match host.current {
            Some((current, last)) if current == report.nonce => {
                if counter <= last {
                    counters.replayed += 1;
                    return (None, None);
                }
            }
            _ if host.offered == Some(report.nonce) => (host.offered, host.offered_at) = (None, None),
            _ => {
                counters.challenged += 1;
                let is_old = host.offered_at.is_none_or(|at| now.saturating_since(at) >= OFFER_LASTS);
                if is_old {
                    (host.offered, host.offered_at) = (Some(nonce), Some(now));
                }
                return (answer(host, Verdict::UseNonce, host.offered.unwrap_or(nonce)), None);
            }
        }
        host.current = Some((report.nonce, counter));
        if !may(host.number, address) {
            counters.refused += 1;
            return (answer(host, Verdict::Refused, report.nonce), None);
        }
        counters.noted += 1;
        (answer(host, Verdict::Noted, report.nonce), Some(Registered { address, presence }))
    }
}
