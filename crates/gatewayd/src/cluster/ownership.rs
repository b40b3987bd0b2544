//! Agreement on the owner of each mobile host, without I/O and without a clock.
//!
//! The store (etcd) has a key for each mobile host, whose value names the gateway that owns it, and a key for each
//! gateway, under a lease. The *epoch* of an ownership is the store's revision of the write: revisions grow with every
//! write, also across deletions. A gateway that hears a mobile host writes itself as the owner, if the key has not
//! changed since the revision that it knows (a *claim*, a fencing transaction): one write per handoff. It then requests
//! the packets that wait at the former owner, with the epoch. The former owner learns of the change from that request
//! or from the store, and releases nothing from then on.
//!
//! Packets never wait for the store. While the store is unreachable, a gateway serves the mobile hosts that it hears;
//! packets at their former owners stay there until it is reachable again.
//!
//! The order of calls: [`Ownership::handle_heard`], [`Ownership::handle_gone`], [`Ownership::handle_reply`],
//! [`Ownership::handle_peer_claim`] and [`Ownership::handle_timeout`]; then [`Ownership::poll_event`] and
//! [`Ownership::poll_request`] until `None`; then [`Ownership::poll_timeout`]. Replies to requests of one
//! [`Kind`] arrive in the order of the requests, or not at all.

mod session;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use holdover_base::{Duration, Instant};

use crate::handoff::Epoch;

use super::store::{Change, Record, Registration, Request, Subject};
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
    /// How often another store than before answered, with other revisions.
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

/// The verdict on a claim of another gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// Its epoch is the latest.
    Admitted,
    /// A later epoch is known.
    Stale { known: Epoch },
    /// The sender is not registered, or its epoch seems to be of another store. It repeats its claim.
    Unknown,
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
    /// Own mobile hosts that have been absent for long, with their epochs.
    removable: BTreeMap<IpAddr, u64>,
    sweep_at: Instant,
    events: VecDeque<Event>,
    requests: VecDeque<Request>,
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
    learned_at: Instant,
    /// `None` if no gateway owns it.
    record: Option<Record>,
    /// Whether it was heard here, and has not left since.
    is_here: bool,
    /// Whether this gateway has claimed it, with an unknown outcome.
    is_claimed: bool,
    /// How many more writes of others the current claim may overrule.
    overrules: u32,
    idle_since: Instant,
    is_orphaned: bool,
}

/// The store may have changed before the mobile host was heard here, without this gateway's knowledge: a failed claim
/// is repeated once, over that change. If it fails again, the mobile host has to be heard again.
const OVERRULES: u32 = 1;

/// The interval between removals of the keys of absent mobile hosts.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// How long the key of an absent mobile host is kept.
const KEEP: Duration = Duration::from_secs(600);
/// How long deletions are remembered, to recognize late answers.
const KEEP_DELETED: Duration = Duration::from_secs(120);

/// The most mobile hosts in one request.
const BATCH: usize = 64;

impl Ownership {
    /// `lease` is how long the other gateways wait for this one.
    pub(crate) fn new(now: Instant, name: &str, registration: Registration, lease: Duration) -> Self {
        let mut ownership = Self {
            name: name.to_owned(),
            session: Session::new(now, registration, lease),
            gateways: BTreeMap::new(),
            mobiles: BTreeMap::new(),
            wanted: BTreeSet::new(),
            removable: BTreeMap::new(),
            sweep_at: now + SWEEP_EVERY,
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
        let is_elsewhere = known.record.as_ref().is_some_and(|record| record.owner != self.name);
        !is_elsewhere || known.is_here && heard_at.is_some_and(|at| at >= known.learned_at)
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

    /// A mobile host was heard here for the first time, or again after another gateway had come to own it.
    pub(crate) fn handle_heard(&mut self, now: Instant, mobile: IpAddr, mac: Option<[u8; 6]>) {
        let known = self.mobiles.entry(mobile).or_insert_with(|| Known::new(now));
        if !std::mem::replace(&mut known.is_here, true) {
            known.overrules = OVERRULES;
        }
        self.session.note_mac(mobile, mac);
        if self.owns(mobile).is_none() {
            self.wanted.insert(mobile);
        }
        self.schedule(now);
    }

    /// The state of a mobile host is dropped here.
    pub(crate) fn handle_gone(&mut self, now: Instant, mobile: IpAddr) {
        if let Some(known) = self.mobiles.get_mut(&mobile) {
            (known.is_here, known.idle_since) = (false, now);
        }
        self.give_up(mobile);
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
        let Some(owner) = found.map(|(name, _)| name.to_owned()) else { return Admission::Unknown };
        let epoch = epoch.revision;
        let known = self.mobiles.get(&mobile);
        let is_known = known.is_some_and(|known| known.epoch == epoch && known.is_owned_by(&owner));
        let latest = known.map_or(0, |known| known.epoch);
        if epoch > latest {
            self.learn_mobile(now, mobile, epoch, Some(Record { owner, mac: None }), true);
            self.schedule(now);
        } else if !is_known {
            self.counters.fenced += 1;
            return Admission::Stale { known: self.epoch(latest) };
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
    pub(crate) fn poll_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// The next deadline.
    pub(crate) fn poll_timeout(&self) -> Instant {
        self.session_timeout().map_or(self.sweep_at, |at| at.min(self.sweep_at))
    }

    fn is_alive(&self, name: &str) -> bool {
        self.gateways.get(name).is_some_and(|gateway| gateway.gone_at.is_none())
    }

    /// Learns the state of a key. Outdated states are ignored.
    fn learn(&mut self, now: Instant, change: Change) {
        match change.subject {
            Subject::Mobile { address, record } => self.learn_mobile(now, address, change.epoch, record, false),
            Subject::Gateway { name, registration } => self.learn_gateway(now, name, change.epoch, registration),
        }
    }

    /// `is_final`: no claim of this gateway overrules this state.
    fn learn_mobile(&mut self, now: Instant, mobile: IpAddr, epoch: u64, record: Option<Record>, is_final: bool) {
        let known = self.mobiles.entry(mobile).or_insert_with(|| Known::new(now));
        if epoch <= known.epoch {
            // A claim sent by another gateway has no Ethernet address; the store's record has one.
            if let (true, Some(known), Some(Record { mac: Some(mac), .. })) =
                (epoch == known.epoch, &mut known.record, record)
            {
                known.mac = Some(mac);
            }
            return;
        }
        let former = std::mem::replace(&mut known.record, record);
        (known.epoch, known.learned_at) = (epoch, now);
        known.is_orphaned = false;
        if !known.is_here {
            known.idle_since = now;
        }
        let Some(Record { owner, .. }) = known.record.clone() else {
            // The former owner has removed the key: claim it anew.
            if known.is_here {
                self.wanted.insert(mobile);
            }
            return;
        };
        if owner == self.name {
            let is_claimed = std::mem::take(&mut known.is_claimed);
            // Not if an earlier process of this gateway made the claim.
            if self.wanted.remove(&mobile) && is_claimed {
                let former = former.map(|record| record.owner).filter(|former| *former != self.name);
                self.counters.won += 1;
                self.counters.taken_over += u64::from(former.as_ref().is_some_and(|former| !self.is_alive(former)));
                let former = former.and_then(|former| self.address_of(&former));
                self.events.push_back(Event::Won { mobile, epoch, former });
            }
            return;
        }
        if self.wanted.contains(&mobile) && known.overrules > 0 && !is_final {
            known.overrules -= 1;
        } else {
            let was_here = std::mem::take(&mut known.is_here);
            self.give_up(mobile);
            if was_here || former.is_some_and(|former| former.owner == self.name) {
                self.counters.lost += 1;
                self.events.push_back(Event::Lost { mobile, epoch, owner: owner.clone() });
            }
        }
        // The registration of an unknown gateway may arrive later.
        if self.gateways.get(&owner).is_some_and(|gateway| gateway.gone_at.is_some()) {
            self.note_orphan(mobile);
        }
    }

    fn learn_gateway(&mut self, now: Instant, name: String, epoch: u64, registration: Option<Registration>) {
        if self.gateways.get(&name).is_some_and(|known| epoch <= known.epoch) {
            return;
        }
        if name == self.name {
            self.learn_own_registration(registration.as_ref());
        }
        match registration {
            Some(Registration { handoff, .. }) => {
                let gateway = Gateway { address: handoff, epoch, gone_at: None };
                let former = self.gateways.insert(name.clone(), gateway);
                if former.is_none_or(|former| former.address != handoff || former.gone_at.is_some()) {
                    self.events.push_back(Event::Gateways);
                    let is_its = |known: &&mut Known| known.is_owned_by(&name);
                    self.mobiles.values_mut().filter(is_its).for_each(|known| known.is_orphaned = false);
                }
            }
            None => {
                let Some(known) = self.gateways.get_mut(&name) else { return };
                (known.epoch, known.gone_at) = (epoch, Some(now));
                self.events.push_back(Event::Gateways);
                self.note_orphans_of(&name);
            }
        }
    }

    /// The store's contents at a revision: missing keys were deleted.
    fn learn_all(&mut self, now: Instant, at: u64, changes: Vec<Change>) {
        let mut gateways: BTreeSet<String> = self.gateways.keys().cloned().collect();
        let mut mobiles: BTreeSet<IpAddr> = self.mobiles.keys().copied().collect();
        // Gateways first: a mobile host of an unknown gateway is an orphan.
        let (registrations, records): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|change| matches!(change.subject, Subject::Gateway { .. }));
        for change in registrations.into_iter().chain(records) {
            match &change.subject {
                Subject::Gateway { name, .. } => drop(gateways.remove(name)),
                Subject::Mobile { address, .. } => drop(mobiles.remove(address)),
            }
            self.learn(now, change);
        }
        for name in gateways {
            self.learn_gateway(now, name, at, None);
        }
        for mobile in mobiles {
            self.learn_mobile(now, mobile, at, None, false);
        }
        let owners = self.mobiles.values().filter_map(|known| Some(&known.record.as_ref()?.owner));
        let gone: BTreeSet<String> = owners.filter(|owner| !self.is_alive(owner)).cloned().collect();
        gone.iter().for_each(|owner| self.note_orphans_of(owner));
    }

    fn note_orphans_of(&mut self, owner: &str) {
        let orphans = self.mobiles.iter().filter(|(_, known)| known.is_owned_by(owner)).map(|(&mobile, _)| mobile);
        orphans.collect::<Vec<_>>().into_iter().for_each(|mobile| self.note_orphan(mobile));
    }

    fn note_orphan(&mut self, mobile: IpAddr) {
        let is_synced = self.session.is_synced;
        let Some(known) = self.mobiles.get_mut(&mobile) else { return };
        let Some(record) = known.record.as_ref().filter(|record| record.owner != self.name) else { return };
        if is_synced && !known.is_here && !std::mem::replace(&mut known.is_orphaned, true) {
            self.events.push_back(Event::Orphaned { mobile, mac: record.mac });
        }
    }

    fn give_up(&mut self, mobile: IpAddr) {
        self.wanted.remove(&mobile);
        self.session.forget_mac(mobile);
    }

    /// Another store, with other revisions: nothing known is valid.
    fn forget_store(&mut self, now: Instant) {
        self.counters.replaced += 1;
        self.gateways.clear();
        self.removable.clear();
        self.mobiles.retain(|_, known| known.is_here);
        for (&mobile, known) in &mut self.mobiles {
            *known = Known { is_here: true, overrules: OVERRULES, ..Known::new(now) };
            self.wanted.insert(mobile);
        }
        self.events.push_back(Event::Gateways);
    }

    fn sweep(&mut self, now: Instant) {
        let name = &self.name;
        let idle = |known: &Known, than: Duration| !known.is_here && now.saturating_since(known.idle_since) >= than;
        self.mobiles.retain(|_, known| known.record.is_some() || !idle(known, KEEP_DELETED));
        self.gateways.retain(|_, gateway| gateway.gone_at.is_none_or(|at| now.saturating_since(at) < KEEP));
        let long_gone = self.mobiles.iter().filter(|(_, known)| idle(known, KEEP) && known.is_owned_by(name));
        self.removable = long_gone.map(|(&mobile, known)| (mobile, known.epoch)).collect();
    }
}

impl Known {
    fn new(now: Instant) -> Self {
        Self {
            epoch: 0,
            learned_at: now,
            record: None,
            is_here: false,
            is_claimed: false,
            overrules: 0,
            idle_since: now,
            is_orphaned: false,
        }
    }

    fn is_owned_by(&self, name: &str) -> bool {
        self.record.as_ref().is_some_and(|record| record.owner == name)
    }
}
