//! The meaning of the states of the store's keys: claims won and lost, gateways that come and go, and orphaned mobile hosts.

use std::collections::BTreeSet;
use std::net::IpAddr;

use holdover_base::Instant;

use super::super::store::{Change, OwnerRecord, Registration, Subject};
use super::{Event, Evidence, Gateway, Known, OVERRULES, Ownership};

impl Ownership {
    /// Learns the state of a key. Outdated states are ignored.
    pub(super) fn learn(&mut self, now: Instant, change: Change) {
        match change.subject {
            Subject::Mobile { address, record } => self.learn_mobile(now, address, change.epoch, record, false),
            Subject::Gateway { name, registration } => self.learn_gateway(now, name, change.epoch, registration),
        }
    }

    /// `is_final`: no claim of this gateway overrules this state.
    pub(super) fn learn_mobile(
        &mut self,
        now: Instant,
        mobile: IpAddr,
        epoch: u64,
        record: Option<OwnerRecord>,
        is_final: bool,
    ) {
        let known = self.mobiles.entry(mobile).or_insert_with(|| Known::new(now));
        if epoch <= known.epoch {
            // A claim sent by another gateway has no Ethernet address; the store's record has one.
            if let (true, Some(known), Some(OwnerRecord { mac: Some(mac), .. })) =
                (epoch == known.epoch, &mut known.record, record)
            {
                known.mac = Some(mac);
            }
            return;
        }
        let former = std::mem::replace(&mut known.record, record);
        known.epoch = epoch;
        known.orphaned_since = None;
        if !known.is_here {
            known.idle_since = now;
        }
        let Some(OwnerRecord { owner, .. }) = known.record.clone() else {
            // The former owner has removed the key: claim it again.
            if known.is_here {
                known.evidence = known.evidence.filter(|evidence| *evidence != Evidence::Adopted);
                self.wanted.insert(mobile);
            }
            return;
        };
        if owner == self.name {
            (known.elsewhere_since, known.contested_at) = (None, None);
            known.evidence = known.evidence.filter(|evidence| *evidence != Evidence::Adopted);
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
        known.elsewhere_since = Some(now);
        if self.wanted.contains(&mobile) && known.overrules > 0 && !is_final {
            known.overrules -= 1;
            known.contested_at = Some(now);
        } else {
            let was_own = former.is_some_and(|former| former.owner == self.name);
            self.lose(mobile, was_own);
        }
        // The registration of an unknown gateway may arrive later.
        if self.gateways.get(&owner).is_some_and(|gateway| gateway.gone_at.is_some()) {
            self.note_orphan(now, mobile);
        }
    }

    /// Another gateway owns a mobile host, and this one does not contest it.
    fn lose(&mut self, mobile: IpAddr, was_own: bool) {
        self.give_up(mobile);
        let Some(known) = self.mobiles.get_mut(&mobile) else { return };
        (known.evidence, known.contested_at) = (None, None);
        let was_here = std::mem::take(&mut known.is_here);
        let Some(OwnerRecord { owner, .. }) = known.record.clone().filter(|_| was_here || was_own) else { return };
        self.counters.lost += 1;
        self.events.push_back(Event::Lost { mobile, epoch: known.epoch, owner });
    }

    /// Mobile hosts that another gateway owns, and that were not heard here in time, are that gateway's.
    pub(super) fn give_up_unheard(&mut self, now: Instant) {
        let is_over = |mobile: &IpAddr| self.give_up_at(*mobile).is_some_and(|at| now >= at);
        for mobile in self.wanted.iter().copied().filter(is_over).collect::<Vec<_>>() {
            self.lose(mobile, false);
            if let Some(known) = self.mobiles.get_mut(&mobile) {
                known.idle_since = now;
            }
        }
    }

    pub(super) fn learn_gateway(&mut self, now: Instant, name: String, epoch: u64, registration: Option<Registration>) {
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
                    self.mobiles.values_mut().filter(is_its).for_each(|known| known.orphaned_since = None);
                    self.return_adopted(&name);
                }
            }
            None => {
                let Some(known) = self.gateways.get_mut(&name) else { return };
                (known.epoch, known.gone_at) = (epoch, Some(now));
                self.events.push_back(Event::Gateways);
                self.note_orphans_of(now, &name);
            }
        }
    }

    /// A gateway is back before this one has taken over its mobile hosts.
    fn return_adopted(&mut self, owner: &str) {
        let is_adopted = |mobile: &IpAddr| {
            let known = self.mobiles.get(mobile);
            known.is_some_and(|known| known.is_owned_by(owner) && known.evidence == Some(Evidence::Adopted))
        };
        let adopted: Vec<IpAddr> = self.wanted.iter().copied().filter(is_adopted).collect();
        adopted.into_iter().for_each(|mobile| self.lose(mobile, false));
    }

    /// The store's contents at a revision: keys missing in it are deleted.
    pub(super) fn learn_all(&mut self, now: Instant, at: u64, changes: Vec<Change>) {
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
        gone.iter().for_each(|owner| self.note_orphans_of(now, owner));
    }

    fn note_orphans_of(&mut self, now: Instant, owner: &str) {
        let orphans = self.mobiles.iter().filter(|(_, known)| known.is_owned_by(owner)).map(|(&mobile, _)| mobile);
        orphans.collect::<Vec<_>>().into_iter().for_each(|mobile| self.note_orphan(now, mobile));
    }

    fn note_orphan(&mut self, now: Instant, mobile: IpAddr) {
        let is_synced = self.session.is_synced;
        let Some(known) = self.mobiles.get_mut(&mobile) else { return };
        let Some(record) = known.record.as_ref().filter(|record| record.owner != self.name) else { return };
        if is_synced && !known.is_here && known.orphaned_since.is_none() {
            known.orphaned_since = Some(now);
            self.events.push_back(Event::Orphaned { mobile, mac: record.mac });
        }
    }

    pub(super) fn give_up(&mut self, mobile: IpAddr) {
        self.wanted.remove(&mobile);
        self.session.forget_mac(mobile);
    }

    /// Another store, with other revisions: nothing known is valid.
    pub(super) fn forget_store(&mut self, now: Instant) {
        self.counters.replaced += 1;
        self.gateways.clear();
        self.removable.clear();
        self.mobiles.retain(|_, known| known.is_here || known.elsewhere_since.is_some());
        for (&mobile, known) in &mut self.mobiles {
            let Known { is_here, evidence, elsewhere_since, idle_since, .. } = *known;
            let evidence = evidence.filter(|evidence| *evidence != Evidence::Adopted);
            *known = Known { is_here, evidence, elsewhere_since, idle_since, overrules: OVERRULES, ..Known::new(now) };
            if is_here {
                self.wanted.insert(mobile);
            }
        }
        self.events.push_back(Event::Gateways);
    }
}
