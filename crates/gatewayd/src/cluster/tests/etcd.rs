//! A model of etcd: revisions, leases, fencing transactions, watches and compaction.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdover_base::{Duration, Instant};

use super::super::store::{Answer, Change, OwnerRecord, Registration, Request, Subject};

/// Keys in a page of a list.
const PAGE: usize = 2;

#[derive(Debug)]
pub(super) struct Store {
    pub(super) id: u64,
    revision: u64,
    gateways: BTreeMap<String, (u64, Registration, u64)>,
    mobiles: BTreeMap<IpAddr, (u64, OwnerRecord)>,
    /// The time at which each ends.
    leases: BTreeMap<u64, Instant>,
    history: Vec<Change>,
    compacted: u64,
    /// The state of all keys as of each revision from which pages were read.
    snapshots: BTreeMap<u64, Vec<Change>>,
    pub(super) writes_of_mobiles: u64,
    lease_time: Duration,
}

impl Store {
    pub(super) fn new(id: u64, lease_time: Duration) -> Self {
        Self {
            id,
            revision: 1,
            gateways: BTreeMap::new(),
            mobiles: BTreeMap::new(),
            leases: BTreeMap::new(),
            history: Vec::new(),
            compacted: 0,
            snapshots: BTreeMap::new(),
            writes_of_mobiles: 0,
            lease_time,
        }
    }

    pub(super) fn owner(&self, mobile: IpAddr) -> Option<(&str, u64)> {
        self.mobiles.get(&mobile).map(|(epoch, record)| (record.owner.as_str(), *epoch))
    }

    pub(super) fn compact(&mut self) {
        self.compacted = self.revision;
        self.snapshots.clear();
    }

    pub(super) fn expire(&mut self, now: Instant) {
        let ended: Vec<u64> = self.leases.extract_if(.., |_, until| *until <= now).map(|(lease, _)| lease).collect();
        if ended.is_empty() {
            return;
        }
        let names: Vec<String> = self
            .gateways
            .iter()
            .filter(|(_, (_, _, lease))| ended.contains(lease))
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            self.revision += 1;
            self.gateways.remove(&name);
            self.note(Subject::Gateway { name, registration: None });
        }
    }

    fn note(&mut self, subject: Subject) -> Change {
        let change = Change { epoch: self.revision, subject };
        self.history.push(change.clone());
        change
    }

    /// The changes after a revision, and the current one; `None` if they were compacted.
    pub(super) fn changes_after(&self, after: u64) -> Option<(u64, Vec<Change>)> {
        // Revisions only grow, and all watches ask at every tick.
        let known = self.history.partition_point(|change| change.epoch <= after);
        let changes = self.history[known..].to_vec();
        (after >= self.compacted || after == self.revision).then_some((self.revision, changes))
    }

    /// All keys as of a revision, in a fixed order.
    fn list(&mut self, at: u64) -> Option<Vec<Change>> {
        if at == self.revision {
            let gateways = self.gateways.iter().map(|(name, (epoch, registration, _))| Change {
                epoch: *epoch,
                subject: Subject::Gateway { name: name.clone(), registration: Some(registration.clone()) },
            });
            let mobiles = self.mobiles.iter().map(|(&address, (epoch, record))| Change {
                epoch: *epoch,
                subject: Subject::Mobile { address, record: Some(record.clone()) },
            });
            self.snapshots.insert(at, gateways.chain(mobiles).collect());
        }
        self.snapshots.get(&at).cloned()
    }

    fn keys_at(&self, at: u64) -> usize {
        self.snapshots.get(&at).map_or(0, Vec::len)
    }

    /// Handles anything but a watch. Fails for a list as of a revision that was compacted.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        name: &str,
        registration: &Registration,
        request: Request,
    ) -> Result<Answer, String> {
        Ok(match request {
            Request::Join => {
                self.revision += 1;
                let lease = 1000 * self.id + self.revision;
                self.leases.insert(lease, now + self.lease_time);
                self.gateways.insert(name.to_owned(), (self.revision, registration.clone(), lease));
                let subject = Subject::Gateway { name: name.to_owned(), registration: Some(registration.clone()) };
                Answer::Joined { lease, epoch: self.note(subject).epoch }
            }
            Request::KeepAlive { lease } => match self.leases.get_mut(&lease) {
                Some(until) => {
                    *until = now + self.lease_time;
                    Answer::KeptAlive
                }
                None => Answer::LeaseGone,
            },
            Request::List { from, at } => {
                let at = if at == 0 { self.revision } else { at };
                let all = self.list(at).ok_or("compacted")?;
                let from = from.first().map_or(0, |&from| usize::from(from));
                let next = from + PAGE;
                let changes = all.into_iter().skip(from).take(PAGE).collect();
                Answer::Listed { at, changes, next: (next < self.keys_at(at)).then(|| vec![next as u8]) }
            }
            Request::Claims(claims) => {
                let next = self.revision + 1;
                let states = claims.into_iter().map(|claim| {
                    let address = claim.mobile;
                    let found = self.mobiles.get(&address).map_or(0, |(epoch, _)| *epoch);
                    if found == claim.over {
                        let record = OwnerRecord { owner: name.to_owned(), mac: claim.mac };
                        self.revision = next;
                        self.writes_of_mobiles += 1;
                        self.mobiles.insert(address, (next, record.clone()));
                        return self.note(Subject::Mobile { address, record: Some(record) });
                    }
                    let epoch = if found == 0 { self.revision } else { found };
                    let record = self.mobiles.get(&address).map(|(_, record)| record.clone());
                    Change { epoch, subject: Subject::Mobile { address, record } }
                });
                Answer::Claimed(states.collect())
            }
            Request::Remove(keys) => {
                for (address, epoch) in keys {
                    if self.mobiles.get(&address).is_some_and(|(found, _)| *found == epoch) {
                        self.revision += 1;
                        self.mobiles.remove(&address);
                        self.note(Subject::Mobile { address, record: None });
                    }
                }
                Answer::Removed
            }
            Request::Watch { .. } => unreachable!("the world keeps watches"),
        })
    }
}
