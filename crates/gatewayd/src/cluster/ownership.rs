//! Agreement on the owner of each mobile host, without I/O and without a clock.
//!
//! The store (etcd) has a key for each mobile host, whose value names the gateway that owns it, and a key for each
//! gateway, under a lease. The *epoch* of an ownership is the store's revision of the write: revisions grow with every
//! write, also across deletions. A gateway that hears a mobile host writes itself as the owner, if the key has not
//! changed since the revision that it knows (a *claim*, a fencing transaction): one write per handoff. It then requests
//! the packets that wait at the former owner, with the epoch. The former owner learns of the change from that request
//! or from the store, and releases nothing from then on.
//!
//! A claim needs evidence: a packet that the mobile host has sent to this gateway at most a second ([`FRESH`]) before the
//! claim is sent or repeated, by this gateway's own clock. If another gateway has written meanwhile, the evidence must be
//! later than the notification of that. So after an outage of the store the gateway that hears the mobile host then wins, and not
//! the one with the oldest claim; no clocks of different gateways are compared. Silent mobile hosts are probed
//! ([`Ownership::to_confirm`]).
//!
//! Packets never wait for the store. While it is unreachable, a gateway serves the mobile hosts that it hears; packets that wait
//! at their former owners stay there.
//!
//! The order of calls: [`Ownership::handle_heard`], [`Ownership::handle_seen`], [`Ownership::handle_gone`], [`Ownership::handle_reply`],
//! [`Ownership::handle_peer_claim`] and [`Ownership::handle_timeout`]; then [`Ownership::poll_event`] and
//! [`Ownership::poll_request`] until `None`; then [`Ownership::poll_timeout`]. Replies carry the numbers of
//! their requests; those to a request that was given up are ignored.

mod learning;
mod session;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use holdover_base::{Duration, Instant};

use super::epoch::Epoch;
use super::store::{Numbered, OwnerRecord, Registration};
use session::Session;

/// Counters of ownership changes since the start of the process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct OwnershipCounters {
    /// Mobile hosts that this gateway came to own.
    pub won: u64,
    /// Of these, those whose former owner had lost its lease.
    pub taken_over: u64,
    /// Mobile hosts that another gateway came to own.
    pub lost: u64,
    /// Late claims: this gateway's, refused by the store or by another gateway, and others', refused here.
    pub fenced: u64,
    /// Requests to the store.
    pub requests: u64,
    /// Of these, failed ones.
    pub failed: u64,
    /// Answers of the store to requests that were given up before.
    pub late: u64,
    /// How often the store turned out to be another one than before, with other revisions.
    pub replaced: u64,
}

/// An event for the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// This gateway owns a mobile host. Buffered packets are at the former owner, if there is one.
    Won { mobile: IpAddr, epoch: u64, former: Option<SocketAddr> },
    /// Another gateway owns a mobile host that was here.
    Lost { mobile: IpAddr, epoch: u64, owner: String },
    /// The owner of a mobile host has lost its lease.
    Orphaned { mobile: IpAddr, mac: Option<[u8; 6]> },
    /// Gateways joined, changed their addresses, or lost their leases.
    Gateways,
    /// The store does not answer, or refuses requests.
    StoreAway { reason: String },
    /// The store answers again.
    StoreBack,
    /// Another process has registered under this gateway's name: this one claims nothing until that registration ends.
    Superseded { address: SocketAddr },
}

/// Why a mobile host is regarded as being here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Evidence {
    /// It has sent a packet to this gateway at this time.
    Heard(Instant),
    /// The network brings its packets to this gateway, and its owner has lost its lease. Holds until another gateway claims it.
    Adopted,
}

/// The answer to a claim of another gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// Its epoch is the latest.
    Admitted,
    /// A later epoch is known.
    Stale { known: Epoch },
    /// Not decided yet: the sender is not registered, its epoch seems to be of another store, or the mobile host was heard here a second
    /// ago at most and after that epoch was learned, so that this gateway claims it. The sender repeats its claim.
    Undecided,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Ownership {
    name: String,
    session: Session,
    gateways: BTreeMap<String, Gateway>,
    mobiles: BTreeMap<IpAddr, Known>,
    /// Mobile hosts to claim.
    wanted: BTreeSet<IpAddr>,
    /// Own mobile hosts that are long gone, and those of gateways that are, with their epochs.
    removable: BTreeMap<IpAddr, u64>,
    sweep_at: Instant,
    /// How long this gateway keeps its key of a mobile host that this process has not heard.
    keep: Duration,
    events: VecDeque<Event>,
    requests: VecDeque<Numbered>,
    counters: OwnershipCounters,
}

/// A gateway that is registered, or was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    /// The epoch of the registration, or of its end.
    pub(crate) epoch: u64,
    /// When it lost its lease.
    pub(crate) gone_at: Option<Instant>,
}

/// The known state of a mobile host.
#[derive(Clone, Debug)]
struct Known {
    /// The epoch of the last write or deletion.
    epoch: u64,
    /// When another gateway became its owner, as far as this one knows; `None` once this gateway owns it again. Outlasts the key.
    elsewhere_since: Option<Instant>,
    /// `None` if no gateway owns it.
    record: Option<OwnerRecord>,
    /// Whether it was heard here, and has not left since.
    is_here: bool,
    /// While it is here: the last evidence.
    evidence: Option<Evidence>,
    /// When this gateway learned of a write by another gateway that the present claim overrules.
    contested_at: Option<Instant>,
    /// Whether this gateway has claimed it, and does not know the outcome.
    is_claimed: bool,
    /// How many more writes of others the current claim may overrule.
    overrules: u32,
    idle_since: Instant,
    /// Whether this gateway has forgotten it, and it was not heard here since.
    is_forgotten: bool,
    /// Since when its owner has no lease.
    orphaned_since: Option<Instant>,
}

/// The store may have changed before the mobile host was heard here, without this gateway's knowledge: a claim that
/// fails is repeated once, on top of that change, if the mobile host is heard again within [`FRESH`]. If that fails, too, it
/// is another gateway's.
const OVERRULES: u32 = 1;

/// How old a packet of a mobile host may be that backs a claim: the time for which packets that it sent before it moved
/// may still arrive.
const FRESH: Duration = Duration::from_secs(1);

/// How often keys of mobile hosts that are gone are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// How long gateways without a lease are remembered, and mobile hosts that have lost their owner, another gateway.
const KEEP: Duration = Duration::from_secs(600);
/// How long the key of a mobile host is kept after the lease of its owner has ended: longer than packets wait there.
const KEEP_ORPHANS: Duration = Duration::from_secs(3600);
/// How long deletions are remembered, so that late answers are recognized.
const KEEP_DELETED: Duration = Duration::from_secs(120);

/// The most mobile hosts in one request.
const BATCH: usize = 64;

impl Ownership {
    /// `lease` is how long the other gateways wait for this one; `keep`, how long the keys of mobile hosts are kept that
    /// an earlier process of this gateway has owned.
    pub(crate) fn new(now: Instant, name: &str, registration: Registration, lease: Duration, keep: Duration) -> Self {
        let mut ownership = Self {
            name: name.to_owned(),
            session: Session::new(now, registration, lease),
            gateways: BTreeMap::new(),
            mobiles: BTreeMap::new(),
            wanted: BTreeSet::new(),
            removable: BTreeMap::new(),
            sweep_at: now + SWEEP_EVERY,
            keep,
            events: VecDeque::new(),
            requests: VecDeque::new(),
            counters: OwnershipCounters::default(),
        };
        ownership.schedule(now);
        ownership
    }

    /// Counters.
    pub(crate) fn counters(&self) -> OwnershipCounters {
        self.counters
    }

    /// The epoch of a mobile host that this gateway owns.
    pub(crate) fn owns(&self, mobile: IpAddr) -> Option<u64> {
        self.mobiles.get(&mobile).filter(|known| known.is_owned_by(&self.name)).map(|known| known.epoch)
    }

    /// Whether packets of a mobile host, last heard here at `heard_at`, may be released here: not if another gateway
    /// has come to own it since.
    pub(crate) fn may_release(&self, mobile: IpAddr, heard_at: Option<Instant>) -> bool {
        let Some(known) = self.mobiles.get(&mobile) else { return true };
        known.elsewhere_since.is_none_or(|since| known.is_here && heard_at.is_some_and(|at| at >= since))
    }

    /// The other gateway that owns a mobile host, and the epoch, unless the mobile host was heard here since.
    pub(crate) fn owned_elsewhere(&self, mobile: IpAddr) -> Option<(&str, u64)> {
        let known = self.mobiles.get(&mobile).filter(|known| !known.is_here)?;
        let record = known.record.as_ref().filter(|record| record.owner != self.name)?;
        Some((&record.owner, known.epoch))
    }

    /// The owner of a mobile host in the store, and the epoch.
    pub(crate) fn record(&self, mobile: IpAddr) -> Option<(&str, u64)> {
        let known = self.mobiles.get(&mobile)?;
        known.record.as_ref().map(|record| (record.owner.as_str(), known.epoch))
    }

    /// Whether the owner of a mobile host has lost its lease.
    pub(crate) fn is_orphan(&self, mobile: IpAddr) -> bool {
        let record = self.mobiles.get(&mobile).and_then(|known| known.record.as_ref());
        record.is_some_and(|record| record.owner != self.name && !self.is_alive(&record.owner))
    }

    /// Mobile hosts whose owners have lost their leases, with their Ethernet addresses.
    pub(crate) fn orphans(&self) -> impl Iterator<Item = (IpAddr, Option<[u8; 6]>)> {
        let orphans = self.mobiles.iter().filter(|(_, known)| known.orphaned_since.is_some() && !known.is_here);
        orphans.map(|(&mobile, known)| (mobile, known.record.as_ref().and_then(|record| record.mac)))
    }

    /// The other gateways.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = (&str, &Gateway)> {
        let others = self.gateways.iter().filter(|(name, _)| **name != self.name);
        others.map(|(name, gateway)| (name.as_str(), gateway))
    }

    /// The address of a gateway, even without a lease: it may have lost only its connection to the store.
    pub(crate) fn address_of(&self, name: &str) -> Option<SocketAddr> {
        self.gateways.get(name).map(|gateway| gateway.address)
    }

    /// The numbers of owned mobile hosts, of those being claimed, and of those of other gateways; and the latest epoch.
    pub(crate) fn tally(&self) -> (u64, u64, u64, u64) {
        let owned = self.mobiles.values().filter(|known| known.is_owned_by(&self.name)).count() as u64;
        let all = self.mobiles.values().filter(|known| known.record.is_some()).count() as u64;
        let latest = self.mobiles.values().map(|known| known.epoch).max().unwrap_or(0);
        (owned, self.wanted.len() as u64, all - owned, latest)
    }

    /// A mobile host is here for the first time, or again after another gateway had become its owner.
    pub(crate) fn handle_heard(&mut self, now: Instant, mobile: IpAddr, evidence: Evidence, mac: Option<[u8; 6]>) {
        let known = self.mobiles.entry(mobile).or_insert_with(|| Known::new(now));
        if !std::mem::replace(&mut known.is_here, true) {
            known.overrules = if evidence == Evidence::Adopted { 0 } else { OVERRULES };
            known.contested_at = None;
            // It is back before the engine has learned that it was another gateway's.
            self.events.retain(|event| !matches!(event, Event::Lost { mobile: lost, .. } if *lost == mobile));
        }
        (known.evidence, known.is_forgotten) = (Some(evidence), false);
        self.removable.remove(&mobile);
        self.session.note_mac(mobile, mac);
        if self.owns(mobile).is_none() {
            self.wanted.insert(mobile);
        }
        self.schedule(now);
    }

    /// The last packet of a mobile host that is here.
    pub(crate) fn handle_seen(&mut self, now: Instant, mobile: IpAddr, heard_at: Instant) {
        if !self.wanted.contains(&mobile) {
            return;
        }
        let Some(known) = self.mobiles.get_mut(&mobile) else { return };
        match known.evidence {
            Some(Evidence::Adopted) => {}
            Some(Evidence::Heard(at)) if at >= heard_at => {}
            Some(Evidence::Heard(_)) | None => {
                known.evidence = Some(Evidence::Heard(heard_at));
                self.schedule(now);
            }
        }
    }

    /// A mobile host is forgotten here: its key is removed, if it is this gateway's.
    pub(crate) fn handle_gone(&mut self, now: Instant, mobile: IpAddr) {
        if let Some(known) = self.mobiles.get_mut(&mobile) {
            (known.is_here, known.is_forgotten, known.idle_since) = (false, true, now);
            known.evidence = None;
        }
        self.give_up(mobile);
        if let Some(epoch) = self.owns(mobile) {
            self.removable.insert(mobile, epoch);
            self.schedule(now);
        }
    }

    /// Another gateway claims a mobile host, with the epoch assigned by the store.
    pub(crate) fn handle_peer_claim(
        &mut self,
        now: Instant,
        mobile: IpAddr,
        epoch: Epoch,
        peer: SocketAddr,
    ) -> Admission {
        let found = self.gateways().find(|(_, gateway)| gateway.address == peer && self.is_of_store(epoch));
        let Some(owner) = found.map(|(name, _)| name.to_owned()) else { return Admission::Undecided };
        let epoch = epoch.revision;
        let known = self.mobiles.get(&mobile);
        let is_known = known.is_some_and(|known| known.epoch == epoch && known.is_owned_by(&owner));
        let was_heard_since = known.is_some_and(|known| known.was_heard_since(now));
        let latest = known.map_or(0, |known| known.epoch);
        if epoch > latest {
            self.learn_mobile(now, mobile, epoch, Some(OwnerRecord { owner, mac: None }), true);
            self.schedule(now);
        } else if !is_known {
            self.counters.fenced += 1;
            return Admission::Stale { known: self.epoch(latest) };
        } else if was_heard_since {
            return Admission::Undecided;
        }
        Admission::Admitted
    }

    /// Packets wait at another gateway, which regards this one as the owner in this epoch. Returns the epoch for the
    /// claim.
    pub(crate) fn answer_to_offer(&self, mobile: IpAddr, offered: Epoch) -> Option<Epoch> {
        let own = self.owns(mobile).filter(|&own| self.is_of_store(offered) && own >= offered.revision)?;
        Some(self.epoch(own))
    }

    /// Another gateway has refused a claim of this one.
    pub(crate) fn handle_refusal(&mut self) {
        self.counters.fenced += 1;
    }

    /// A deadline has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.handle_unanswered(now);
        self.give_up_unheard(now);
        if now >= self.sweep_at {
            self.sweep_at = now + SWEEP_EVERY;
            self.sweep(now);
        }
        self.schedule(now);
    }

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next request to the store.
    pub(crate) fn poll_request(&mut self) -> Option<Numbered> {
        self.requests.pop_front()
    }

    /// The next deadline.
    pub(crate) fn poll_timeout(&self) -> Instant {
        let deadlines = self.session_timeout().into_iter().chain(self.give_up_timeout());
        deadlines.min().map_or(self.sweep_at, |at| at.min(self.sweep_at))
    }

    /// Whether a claim may be sent: see the [module](self).
    fn is_backed(&self, now: Instant, mobile: IpAddr) -> bool {
        let Some(known) = self.mobiles.get(&mobile) else { return false };
        match known.evidence {
            Some(Evidence::Adopted) => self.is_orphan(mobile),
            Some(Evidence::Heard(at)) => {
                now.saturating_since(at) <= FRESH && known.contested_at.is_none_or(|contested_at| at > contested_at)
            }
            None => false,
        }
    }

    fn is_alive(&self, name: &str) -> bool {
        self.gateways.get(name).is_some_and(|gateway| gateway.gone_at.is_none())
    }

    fn sweep(&mut self, now: Instant) {
        let name = &self.name;
        let idle = |known: &Known, than: Duration| !known.is_here && now.saturating_since(known.idle_since) >= than;
        let keep = |known: &Known| if known.elsewhere_since.is_some() { KEEP } else { KEEP_DELETED };
        self.mobiles.retain(|_, known| known.record.is_some() || !idle(known, keep(known)));
        self.gateways.retain(|_, gateway| gateway.gone_at.is_none_or(|at| now.saturating_since(at) < KEEP));
        let is_orphaned =
            |known: &Known| known.orphaned_since.is_some_and(|since| now.saturating_since(since) >= KEEP_ORPHANS);
        let is_released = |known: &Known| (known.is_forgotten || idle(known, self.keep)) && known.is_owned_by(name);
        let is_long_gone = |known: &Known| is_released(known) || is_orphaned(known);
        let long_gone = self.mobiles.iter().filter(|(_, known)| is_long_gone(known));
        self.removable = long_gone.map(|(&mobile, known)| (mobile, known.epoch)).collect();
    }
}

impl Known {
    fn new(now: Instant) -> Self {
        Self {
            epoch: 0,
            elsewhere_since: None,
            record: None,
            is_here: false,
            evidence: None,
            contested_at: None,
            is_claimed: false,
            overrules: 0,
            idle_since: now,
            is_forgotten: false,
            orphaned_since: None,
        }
    }

    fn heard_at(&self) -> Option<Instant> {
        match self.evidence {
            Some(Evidence::Heard(at)) => Some(at),
            Some(Evidence::Adopted) | None => None,
        }
    }

    /// Whether it was heard here just now, and after another gateway became its owner.
    fn was_heard_since(&self, now: Instant) -> bool {
        let is_later = |at: Instant| self.elsewhere_since.is_none_or(|since| at > since);
        self.is_here && self.heard_at().is_some_and(|at| now.saturating_since(at) <= FRESH && is_later(at))
    }

    /// When another gateway's write was learned, if nothing was heard since.
    fn contested_since(&self) -> Option<Instant> {
        self.contested_at.filter(|&since| self.heard_at().is_none_or(|at| at <= since))
    }

    fn is_owned_by(&self, name: &str) -> bool {
        self.record.as_ref().is_some_and(|record| record.owner == name)
    }
}
