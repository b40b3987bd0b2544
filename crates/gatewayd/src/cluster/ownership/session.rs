//! The session with the store: when requests are due, and how their results are handled.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdover_base::{Duration, Instant};

use crate::cluster::Epoch;

use super::super::store::{Answer, Change, Claim, Kind, Numbered, Registration, Reply, Request, Subject};
use super::{BATCH, Event, FRESH, Ownership};

/// The pause after a failed request.
const RETRY_AFTER: Duration = Duration::from_millis(500);

const KINDS: [Kind; 5] = [Kind::Session, Kind::List, Kind::Watch, Kind::Claims, Kind::Removal];

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Session {
    registration: Registration,
    lease_time: Duration,
    /// When the lease or its renewal was requested.
    asked_at: Instant,
    /// The cluster id of the store.
    store: Option<u64>,
    lease: Option<Lease>,
    /// Whether another process is registered under this gateway's name.
    is_superseded: bool,
    /// Whether all keys have been read once.
    pub(super) is_synced: bool,
    is_list_due: bool,
    /// Pages of the list, while there are more.
    listing: Option<Listing>,
    /// The revision up to which all changes are known.
    watched: u64,
    /// When claims refused by the store are sent again.
    claims_at: Instant,
    /// Since when claims can be sent.
    accepts_since: Option<Instant>,
    /// The time of the last call.
    now: Instant,
    last_id: u64,
    /// Unanswered requests, by their numbers, with their deadlines.
    unanswered: BTreeMap<Kind, (u64, Instant)>,
    failures: BTreeMap<Kind, Failure>,
    macs: BTreeMap<IpAddr, [u8; 6]>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    id: u64,
    /// When it was requested or renewed.
    since: Instant,
}

/// All keys as of a revision, up to a page.
#[derive(Clone, Debug)]
struct Listing {
    at: u64,
    changes: Vec<Change>,
    next: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Failure {
    since: Instant,
    retry_at: Instant,
    reason: String,
}

impl Session {
    pub(super) fn new(now: Instant, registration: Registration, lease_time: Duration) -> Self {
        Self {
            registration,
            lease_time,
            asked_at: now,
            store: None,
            lease: None,
            is_superseded: false,
            is_synced: false,
            is_list_due: true,
            listing: None,
            watched: 0,
            claims_at: Instant::ZERO,
            accepts_since: None,
            now,
            last_id: 0,
            unanswered: BTreeMap::new(),
            failures: BTreeMap::new(),
            macs: BTreeMap::new(),
        }
    }

    pub(super) fn note_mac(&mut self, mobile: IpAddr, mac: Option<[u8; 6]>) {
        if let Some(mac) = mac {
            self.macs.insert(mobile, mac);
        }
    }

    pub(super) fn forget_mac(&mut self, mobile: IpAddr) {
        self.macs.remove(&mobile);
    }

    fn renew_every(&self) -> Duration {
        Duration::from_nanos(self.lease_time.as_nanos() / 3)
    }

    /// The store is another one, or an empty one in place of the former one: nothing known about it is valid.
    fn begin_anew(&mut self) {
        self.lose_lease();
        (self.is_synced, self.is_list_due, self.watched, self.is_superseded) = (false, true, 0, false);
        self.listing = None;
    }

    fn lose_lease(&mut self) {
        self.lease = None;
    }
}

impl Ownership {
    /// Whether the store answers, and all its keys are known.
    pub(crate) fn is_connected(&self) -> bool {
        self.session.is_synced && self.session.failures.is_empty()
    }

    /// An epoch in messages to other gateways.
    pub(crate) fn epoch(&self, revision: u64) -> Epoch {
        Epoch { store: self.session.store.unwrap_or(0), revision }
    }

    /// Whether an epoch of another gateway can be compared with this one's.
    pub(crate) fn is_of_store(&self, epoch: Epoch) -> bool {
        self.session.store == Some(epoch.store)
    }

    /// Since when requests fail, and why.
    pub(crate) fn failure(&self) -> Option<(Instant, &str)> {
        let first = self.session.failures.values().min_by_key(|failure| failure.since)?;
        Some((first.since, &first.reason))
    }

    /// Whether this gateway's lease is valid, by its own clock.
    pub(crate) fn is_registered(&self, now: Instant) -> bool {
        let is_valid = |lease: Lease| now.saturating_since(lease.since) < self.session.lease_time;
        !self.session.is_superseded && self.session.lease.is_some_and(is_valid)
    }

    /// Whether another process has registered under this gateway's name.
    pub(crate) fn is_superseded(&self) -> bool {
        self.session.is_superseded
    }

    /// Handles a reply of the store, or the failure of a request.
    pub(crate) fn handle_reply(&mut self, now: Instant, reply: Reply) {
        let Reply { id, kind, result } = reply;
        if self.session.unanswered.get(&kind).is_none_or(|(expected, _)| *expected != id) {
            // An answer to a request that was given up does not apply to a later one.
            self.counters.late += 1;
            return;
        }
        let is_open = matches!(result, Ok((_, Answer::Changed { .. })));
        if !is_open {
            self.session.unanswered.remove(&kind);
        }
        match result {
            Ok((store, answer)) => {
                self.note_success(kind);
                let former = match store {
                    // A watch ended without an answer.
                    0 => None,
                    store => self.session.store.replace(store),
                };
                if former.is_some_and(|former| former != store) {
                    self.session.begin_anew();
                    self.forget_store(now);
                } else {
                    self.handle_answer(now, answer);
                }
            }
            Err(reason) => self.note_failure(now, kind, reason),
        }
        self.schedule(now);
    }

    fn handle_answer(&mut self, now: Instant, answer: Answer) {
        let session = &mut self.session;
        match answer {
            Answer::Joined { lease, epoch } => {
                // Revisions only grow: the store has lost its data. Its cluster id, which is derived from addresses, is the same.
                if epoch <= session.watched {
                    session.begin_anew();
                    self.forget_store(now);
                }
                let session = &mut self.session;
                session.lease = Some(Lease { id: lease, since: session.asked_at });
                let registration = session.registration.clone();
                self.learn_gateway(now, self.name.clone(), epoch, Some(registration));
            }
            Answer::KeptAlive => {
                if let Some(lease) = &mut session.lease {
                    lease.since = session.asked_at;
                }
            }
            Answer::LeaseGone => session.lose_lease(),
            Answer::Listed { at, mut changes, next } => {
                if let Some(former) = session.listing.take() {
                    changes.splice(..0, former.changes);
                }
                if let Some(next) = next {
                    session.listing = Some(Listing { at, changes, next });
                    return;
                }
                session.watched = session.watched.max(at);
                (session.is_synced, session.is_list_due) = (true, false);
                self.learn_all(now, at, changes);
            }
            Answer::Changed { after, at, changes } => {
                changes.into_iter().for_each(|change| self.learn(now, change));
                let session = &mut self.session;
                if after <= session.watched {
                    session.watched = session.watched.max(at);
                } else {
                    // The watch was opened with a revision of another store.
                    session.is_list_due = true;
                }
            }
            Answer::WatchEnded { is_compacted } => session.is_list_due |= is_compacted,
            Answer::Claimed(changes) => {
                let is_newer = changes.iter().any(|change| self.is_newer(change));
                changes.into_iter().for_each(|change| self.learn_claimed(now, change));
                if !is_newer {
                    self.session.claims_at = now + RETRY_AFTER;
                }
            }
            Answer::Removed => {}
        }
    }

    /// Whether the state of a mobile host's key is newer than the known one.
    fn is_newer(&self, change: &Change) -> bool {
        let Subject::Mobile { address, .. } = &change.subject else { return false };
        self.mobiles.get(address).is_none_or(|known| change.epoch > known.epoch)
    }

    /// The state of a key after this gateway's claim of it.
    fn learn_claimed(&mut self, now: Instant, change: Change) {
        let Subject::Mobile { address, record } = &change.subject else { return };
        let is_refused = record.as_ref().is_none_or(|record| record.owner != self.name);
        self.counters.fenced += u64::from(is_refused && self.wanted.contains(address));
        self.learn(now, change);
    }

    pub(super) fn learn_own_registration(&mut self, found: Option<&Registration>) {
        let session = &mut self.session;
        match found {
            None => {
                // It expired, or was removed manually: register again.
                session.lose_lease();
                session.is_superseded = false;
            }
            Some(found) => {
                let was = std::mem::replace(&mut session.is_superseded, found.process != session.registration.process);
                if session.is_superseded && !was && session.lease.is_some() {
                    self.events.push_back(Event::Superseded { address: found.handoff });
                }
            }
        }
    }

    /// Requests whose deadlines have passed have failed.
    pub(super) fn handle_unanswered(&mut self, now: Instant) {
        let late: Vec<Kind> =
            self.session.unanswered.extract_if(.., |_, (_, at)| *at <= now).map(|(kind, _)| kind).collect();
        for kind in late {
            self.note_failure(now, kind, "no answer".to_owned());
        }
    }

    fn note_success(&mut self, kind: Kind) {
        if self.session.failures.remove(&kind).is_none() {
            return;
        }
        // A list is faster than a watch, which may hang for a while after the network has recovered.
        self.session.is_list_due |= kind == Kind::Session;
        if self.session.failures.is_empty() {
            self.events.push_back(Event::StoreBack);
        }
    }

    fn note_failure(&mut self, now: Instant, kind: Kind, reason: String) {
        self.counters.failed += 1;
        if kind == Kind::List {
            // Its revision may be compacted: it starts over.
            self.session.listing = None;
        }
        if self.session.failures.is_empty() {
            self.events.push_back(Event::StoreAway { reason: reason.clone() });
        }
        let since = self.session.failures.get(&kind).map_or(now, |failure| failure.since);
        self.session.failures.insert(kind, Failure { since, retry_at: now + RETRY_AFTER, reason });
    }

    /// When a request of a kind is due.
    fn due(&self, kind: Kind) -> Option<Instant> {
        let session = &self.session;
        let at_once = |is_due: bool| is_due.then_some(Instant::ZERO);
        let is_joined = session.lease.is_some() && !session.is_superseded;
        let at = match kind {
            _ if session.unanswered.contains_key(&kind) => None,
            Kind::Session if session.is_superseded => None,
            Kind::Session => {
                let is_due = session.lease.is_none() || session.failures.contains_key(&kind);
                Some(if is_due { Instant::ZERO } else { session.asked_at + session.renew_every() })
            }
            // Register this gateway first, so that listed gateways can answer it.
            Kind::List => at_once(session.is_list_due && session.lease.is_some()),
            Kind::Watch => at_once(session.is_synced && !session.is_list_due),
            Kind::Claims => {
                let can_claim = session.is_synced && is_joined && self.backed(session.now).next().is_some();
                can_claim.then_some(session.claims_at)
            }
            Kind::Removal => at_once(session.is_synced && is_joined && !self.removable.is_empty()),
        }?;
        Some(session.failures.get(&kind).map_or(at, |failure| at.max(failure.retry_at)))
    }

    /// Wanted mobile hosts with recent evidence that they are here.
    fn backed(&self, now: Instant) -> impl Iterator<Item = IpAddr> {
        self.wanted.iter().copied().filter(move |&mobile| self.is_backed(now, mobile))
    }

    /// Wanted mobile hosts that must be heard before this gateway can claim them: probe them. None while the store does
    /// not accept claims.
    pub(crate) fn to_confirm(&self, now: Instant) -> impl Iterator<Item = IpAddr> {
        let accepts = self.session.accepts_since.is_some();
        self.wanted.iter().copied().filter(move |&mobile| accepts && !self.is_backed(now, mobile))
    }

    /// When a mobile host that another gateway owns is that gateway's: it was not heard here for a second in which the
    /// store accepted claims.
    pub(super) fn give_up_at(&self, mobile: IpAddr) -> Option<Instant> {
        let known = self.mobiles.get(&mobile)?;
        known.record.as_ref().filter(|record| record.owner != self.name && self.is_alive(&record.owner))?;
        let backed_until = known.contested_since().or(known.heard_at().map(|at| at + FRESH));
        Some(self.session.accepts_since?.max(backed_until.unwrap_or(Instant::ZERO)) + FRESH)
    }

    pub(super) fn give_up_timeout(&self) -> Option<Instant> {
        self.wanted.iter().filter_map(|&mobile| self.give_up_at(mobile)).min()
    }

    pub(super) fn session_timeout(&self) -> Option<Instant> {
        let due = KINDS.into_iter().filter_map(|kind| self.due(kind));
        due.chain(self.session.unanswered.values().map(|(_, at)| *at)).min()
    }

    /// Whether a failure counts although no request is due: claims may lack evidence.
    fn keeps_failure(&self, now: Instant, kind: Kind) -> bool {
        let failures = &self.session.failures;
        let retry_at = failures.get(&kind).map_or(Instant::ZERO, |failure| failure.retry_at);
        kind == Kind::Claims && !self.wanted.is_empty() && (now < retry_at || failures.len() > 1)
    }

    /// Makes the due requests.
    pub(super) fn schedule(&mut self, now: Instant) {
        self.session.now = now;
        let fails = self.session.failures.contains_key(&Kind::Session);
        let accepts = self.session.is_synced && self.is_registered(now) && !fails;
        self.session.accepts_since = accepts.then(|| self.session.accepts_since.unwrap_or(now));
        for kind in KINDS {
            // The request failed, but is not needed any more: its effect is known from another source.
            if self.due(kind).is_none()
                && !self.keeps_failure(now, kind)
                && !self.session.unanswered.contains_key(&kind)
            {
                self.note_success(kind);
            }
            if self.due(kind).is_some_and(|at| at <= now) {
                let request = self.request(now, kind);
                // A watch ends by itself after the duration of a lease.
                let patience = if kind == Kind::Watch { 3 } else { 1 };
                let lease_time = self.session.lease_time.as_nanos();
                let within = Duration::from_nanos(lease_time.saturating_mul(patience));
                self.session.last_id += 1;
                let id = self.session.last_id;
                self.session.unanswered.insert(kind, (id, now + within));
                self.counters.requests += 1;
                self.requests.push_back(Numbered { id, request });
            }
        }
    }

    fn request(&mut self, now: Instant, kind: Kind) -> Request {
        let session = &mut self.session;
        match kind {
            Kind::Session => {
                session.asked_at = now;
                session.lease.map_or(Request::Join, |lease| Request::KeepAlive { lease: lease.id })
            }
            Kind::List => session.listing.as_ref().map_or(Request::List { from: Vec::new(), at: 0 }, |listing| {
                Request::List { from: listing.next.clone(), at: listing.at }
            }),
            Kind::Watch => Request::Watch { after: session.watched },
            Kind::Claims => {
                let mobiles: Vec<IpAddr> = self.backed(now).take(BATCH).collect();
                let claim = |mobile: IpAddr| {
                    let known = self.mobiles.get_mut(&mobile)?;
                    known.is_claimed = true;
                    let over = if known.record.is_some() { known.epoch } else { 0 };
                    Some(Claim { mobile, over, mac: self.session.macs.get(&mobile).copied() })
                };
                Request::Claims(mobiles.into_iter().filter_map(claim).collect())
            }
            Kind::Removal => Request::Remove(std::iter::from_fn(|| self.removable.pop_first()).take(BATCH).collect()),
        }
    }
}
