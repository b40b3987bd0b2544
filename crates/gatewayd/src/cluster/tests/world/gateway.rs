//! A gateway of the model. It follows the engine's rules: it claims a mobile host when it first hears it, hands on or
//! offers what waits for one that is elsewhere, and releases the rest while it is present.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;
use holdover_gateway::divert::{Course, Diverter, DiverterConfig, MobileStatus, Source, Standing};

use super::super::super::ownership::{Admission, Event, Evidence, Ownership};
use super::super::super::store::{Registration, Reply};
use super::LEASE;
use super::ledger::Ledger;
use crate::cluster::store::Kind;
use crate::handoff::relay::{self, Body, Epoch, Message, Relay};

/// As the engine's.
const MOVING: Duration = Duration::from_secs(1);
const TEND_EVERY: Duration = Duration::from_millis(250);
const OFFER_EVERY: Duration = Duration::from_secs(1);
const ELSEWHERE: Duration = Duration::from_millis(10);

/// As the engine's.
const RECENTLY: Duration = Duration::from_millis(250);

/// How long a packet for a mobile host is unanswered before that is absent.
const SILENCE: Duration = Duration::from_millis(300);

/// Bytes of each packet.
const LEN: u32 = 1000;

pub(super) struct Gateway {
    pub(super) name: String,
    pub(super) registration: Registration,
    /// `None` while it is dead.
    pub(super) live: Option<Live>,
    pub(super) starts_at: Instant,
    /// What an earlier process has left on tmpfs.
    files: BTreeMap<IpAddr, Vec<u32>>,
    pub(super) partitioned_until: Instant,
    /// Replies on their way, by kind in their order.
    pub(super) replies: BTreeMap<Kind, VecDeque<(Instant, Reply)>>,
    /// The number of an open watch, the revision up to which it has told everything, and when it ends.
    pub(super) watch: Option<(u64, u64, Instant)>,
    pub(super) delivered: u64,
}

/// The daemon's process.
pub(super) struct Live {
    pub(super) ownership: Ownership,
    pub(super) relay: Relay,
    diverter: Diverter<u32>,
    /// The programs' state.
    path: BTreeMap<IpAddr, Seen>,
    met: BTreeSet<IpAddr>,
    moved_at: BTreeMap<IpAddr, Instant>,
    departing: BTreeSet<IpAddr>,
    adopted: BTreeSet<IpAddr>,
    /// The latest epoch that this process was told, whether it names this gateway, and when it was told.
    pub(super) told: BTreeMap<IpAddr, (u64, bool, Instant)>,
    offer_at: Instant,
    tend_at: Instant,
    /// Packets in transfers that were given up.
    pub(super) abandoned: u64,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    heard_at: Option<Instant>,
    waiting_since: Option<Instant>,
    diverts: bool,
}

/// What becomes of a packet that the network brings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Forwarded {
    /// It goes to the link.
    Passed,
    /// It waits.
    Stored,
}

impl Gateway {
    pub(super) fn new(name: String, registration: Registration) -> Self {
        Self {
            name,
            registration,
            live: None,
            starts_at: Instant::ZERO,
            files: BTreeMap::new(),
            partitioned_until: Instant::ZERO,
            replies: BTreeMap::new(),
            watch: None,
            delivered: 0,
        }
    }

    pub(super) fn start(&mut self, now: Instant, peers: Vec<SocketAddr>) {
        self.registration.process += 1;
        let ownership = Ownership::new(now, &self.name, self.registration.clone(), LEASE);
        // Nothing is dropped for its age or for lack of room.
        let config =
            DiverterConfig { longest: Duration::from_secs(100_000), mobile_bytes: u64::MAX / 4, ..Default::default() };
        let mut live = Live {
            ownership,
            relay: Relay::new(peers),
            diverter: Diverter::new(DiverterConfig { total_bytes: u64::MAX / 4, ..config }),
            path: BTreeMap::new(),
            met: BTreeSet::new(),
            moved_at: BTreeMap::new(),
            departing: BTreeSet::new(),
            adopted: BTreeSet::new(),
            told: BTreeMap::new(),
            offer_at: now,
            tend_at: now,
            abandoned: 0,
        };
        for (mobile, packets) in std::mem::take(&mut self.files) {
            live.path.entry(mobile).or_default();
            packets.into_iter().for_each(|packet| live.diverter.restore(now, mobile, now, LEN, packet));
        }
        self.live = Some(live);
    }

    /// `kill -9`: files stay, and what is in memory is lost. Returns how many packets that is.
    pub(super) fn kill(&mut self, now: Instant) -> u64 {
        (self.watch, self.replies) = (None, BTreeMap::new());
        let Some(mut live) = self.live.take() else { return 0 };
        let waiting: Vec<IpAddr> = live.diverter.statuses().map(|(mobile, _)| mobile).collect();
        waiting.into_iter().for_each(|mobile| live.diverter.discard(now, mobile));
        while let Some((mobile, packet, _)) = live.diverter.poll_discarded() {
            // The newest ones are discarded first.
            self.files.entry(mobile).or_default().insert(0, packet);
        }
        live.serve_relay(now);
        live.abandoned + live.relay.unconfirmed()
    }

    pub(super) fn waiting(&self) -> usize {
        let in_files = self.files.values().map(Vec::len).sum::<usize>();
        in_files + self.live.as_ref().map_or(0, Live::waiting)
    }

    /// The network brings a packet for a mobile host.
    pub(super) fn forward(&mut self, now: Instant, mobile: IpAddr, packet: u32) -> Forwarded {
        let Some(live) = &mut self.live else { return Forwarded::Passed };
        let Some(seen) = live.path.get_mut(&mobile) else { return Forwarded::Passed };
        if seen.diverts {
            live.diverter.handle_packet(now, mobile, LEN, || Some(packet)).expect("there is room");
            return Forwarded::Stored;
        }
        seen.waiting_since.get_or_insert(now);
        Forwarded::Passed
    }
}

impl Live {
    fn waiting(&self) -> usize {
        self.diverter.statuses().map(|(_, status)| status.waiting).sum()
    }

    pub(super) fn heard_at(&self, mobile: IpAddr) -> Option<Instant> {
        self.path.get(&mobile).and_then(|seen| seen.heard_at)
    }

    pub(super) fn has_adopted(&self, mobile: IpAddr) -> bool {
        self.adopted.contains(&mobile)
    }

    /// A mobile host has sent a packet here.
    pub(super) fn hear(&mut self, now: Instant, mobile: IpAddr) {
        let seen = self.path.entry(mobile).or_default();
        (seen.heard_at, seen.waiting_since) = (Some(now), None);
        if seen.diverts {
            self.diverter.handle_heard(now, mobile);
        }
    }

    fn note_met(&mut self, now: Instant) {
        for (&mobile, seen) in &self.path {
            let Some(heard_at) = seen.heard_at else { continue };
            let is_straggler = self.moved_at.get(&mobile).is_some_and(|at| heard_at < *at + MOVING);
            if is_straggler {
                continue;
            }
            if self.met.insert(mobile) {
                self.moved_at.remove(&mobile);
                self.ownership.handle_heard(now, mobile, Evidence::Heard(heard_at), None);
            } else {
                self.ownership.handle_seen(now, mobile, heard_at);
            }
        }
    }

    fn note_silence(&mut self, now: Instant) {
        let is_silent = |seen: &Seen| seen.waiting_since.is_some_and(|at| now.saturating_since(at) >= SILENCE);
        for (&mobile, _) in self.path.iter().filter(|(_, seen)| !seen.diverts && is_silent(seen)) {
            self.diverter.handle_report(now, mobile, Source::Silence, Presence::Away);
        }
    }

    /// Handles a message of another gateway.
    pub(super) fn handle_message(&mut self, now: Instant, peer: SocketAddr, message: Message) {
        if let Body::Claim { epoch } = message.body {
            match self.ownership.handle_peer_claim(now, message.mobile, epoch, peer) {
                Admission::Admitted => self.note_told(now, message.mobile, epoch.revision, false),
                Admission::Stale { known } => {
                    return self.relay.refuse(peer, message.id, message.mobile, known);
                }
                Admission::Unknown => return,
            }
        }
        self.relay.handle_message(now, peer, message);
        self.serve_relay(now);
    }

    pub(super) fn note_told(&mut self, now: Instant, mobile: IpAddr, epoch: u64, is_own: bool) {
        let known = self.told.entry(mobile).or_insert((0, true, Instant::ZERO));
        if epoch > known.0 {
            *known = (epoch, is_own, now);
        }
    }

    fn note_moved(&mut self, now: Instant, mobile: IpAddr) {
        self.met.remove(&mobile);
        self.moved_at.insert(mobile, now);
        self.departing.insert(mobile);
        self.diverter.handle_report(now, mobile, Source::Command, Presence::Moved);
    }

    /// Handles deadlines, and the consequences of everything handled before. `won` checks an ownership.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        is_there: &dyn Fn(IpAddr) -> bool,
        won: &mut dyn FnMut(IpAddr, Epoch),
    ) {
        self.note_met(now);
        self.note_silence(now);
        self.ownership.handle_timeout(now);
        while let Some(event) = self.ownership.poll_event() {
            match event {
                Event::Won { mobile, epoch, former } => {
                    won(mobile, self.ownership.epoch(epoch));
                    self.adopted.remove(&mobile);
                    if let Some(former) = former {
                        self.relay.claim(now, mobile, self.ownership.epoch(epoch), &[former]);
                    }
                }
                Event::Lost { mobile, .. } => {
                    self.note_moved(now, mobile);
                }
                Event::Orphaned { mobile, .. } if !self.met.contains(&mobile) => {
                    self.path.entry(mobile).or_default();
                    self.diverter.handle_report(now, mobile, Source::Command, Presence::Away);
                    self.adopted.insert(mobile);
                }
                _ => {}
            }
        }
        if now >= self.tend_at {
            self.tend_at = now + TEND_EVERY;
            self.tend_adopted(now);
            self.find_elsewhere(now);
            let probed: Vec<IpAddr> = self.ownership.to_confirm(now).filter(|&mobile| is_there(mobile)).collect();
            probed.into_iter().for_each(|mobile| self.hear(now, mobile));
        }
        self.relay.handle_timeout(now);
        self.serve_relay(now);
        self.see_off(now);
        self.set_courses(now);
    }

    fn serve_relay(&mut self, now: Instant) {
        while let Some(event) = self.relay.poll_event() {
            match event {
                relay::Event::Packet { mobile, bytes } => {
                    let packet = u32::from_be_bytes(bytes.try_into().expect("a packet"));
                    self.diverter.handle_packet(now, mobile, LEN, || Some(packet)).expect("there is room");
                }
                relay::Event::Offered { mobile, epoch, peer } => {
                    if let Some(own) = self.ownership.answer_to_offer(mobile, epoch) {
                        self.relay.claim(now, mobile, own, &[peer]);
                    }
                }
                relay::Event::Claimed { mobile } => self.note_moved(now, mobile),
                relay::Event::Refused { .. } => self.ownership.handle_refusal(),
                relay::Event::Lost { packets, .. } => self.abandoned += u64::from(packets),
                relay::Event::Done { .. } => {}
            }
        }
    }

    fn tend_adopted(&mut self, now: Instant) {
        let over: Vec<IpAddr> =
            self.adopted.iter().copied().filter(|&mobile| !self.ownership.is_orphan(mobile)).collect();
        for mobile in over {
            self.adopted.remove(&mobile);
            if !self.met.contains(&mobile) {
                self.diverter.handle_report(now, mobile, Source::Command, Presence::Present);
                self.departing.insert(mobile);
            }
        }
        let waits = |mobile: &IpAddr| self.diverter.status(*mobile).is_some_and(|status| status.waiting > 0);
        for mobile in self.adopted.iter().copied().filter(waits).collect::<Vec<_>>() {
            if self.met.insert(mobile) {
                self.ownership.handle_heard(now, mobile, Evidence::Adopted, None);
            }
        }
    }

    fn find_elsewhere(&mut self, now: Instant) {
        let waiting = self.diverter.statuses().filter(|(_, status)| status.waiting > 0).map(|(mobile, _)| mobile);
        let elsewhere: Vec<IpAddr> = waiting
            .filter(|mobile| !self.departing.contains(mobile) && !self.adopted.contains(mobile))
            .filter(|&mobile| self.ownership.owned_elsewhere(mobile).is_some())
            .collect();
        elsewhere.into_iter().for_each(|mobile| self.note_moved(now, mobile));
    }

    fn see_off(&mut self, now: Instant) {
        let is_offer_due = now >= self.offer_at;
        for mobile in self.departing.clone() {
            let is_leaving = self.relay.is_leaving(mobile);
            let elsewhere = self.ownership.owned_elsewhere(mobile).map(|(owner, epoch)| (owner.to_owned(), epoch));
            if !is_leaving && elsewhere.is_none() {
                self.departing.remove(&mobile);
                continue;
            }
            let is_arriving = self.relay.is_arriving(mobile);
            let status = self.diverter.status(mobile);
            let is_away =
                |status: &MobileStatus| status.standing == Standing::Away && (is_leaving || status.waiting == 0);
            if status.as_ref().is_some_and(is_away) {
                self.diverter.handle_report(now, mobile, Source::Command, Presence::Moved);
            }
            if !is_arriving && status.is_none_or(|status| status.waiting == 0 && status.course == Course::Pass) {
                self.relay.end(now, mobile);
                self.departing.remove(&mobile);
                if self.diverter.forget(mobile) {
                    self.path.remove(&mobile);
                }
            } else if let Some((owner, epoch)) = elsewhere.filter(|_| !is_leaving && is_offer_due)
                && let Some(peer) = self.ownership.address_of(&owner)
            {
                self.relay.offer(mobile, self.ownership.epoch(epoch), peer);
            }
        }
        if is_offer_due {
            self.offer_at = now + OFFER_EVERY;
        }
    }

    fn set_courses(&mut self, now: Instant) {
        while self.diverter.poll_change().is_some() {}
        while let Some((mobile, course)) = self.diverter.poll_course() {
            let seen = self.path.entry(mobile).or_default();
            (seen.diverts, seen.waiting_since) = (course == Course::Divert, None);
            if course == Course::Pass {
                self.diverter.handle_settled(now, mobile, true);
            }
        }
    }

    /// Sends due packets. `is_there`: whether a mobile host is at this gateway's link. Returns how many have arrived.
    pub(super) fn release(
        &mut self,
        now: Instant,
        name: &str,
        is_there: &dyn Fn(IpAddr) -> bool,
        ledger: &mut Ledger,
    ) -> u64 {
        let mut delivered = 0;
        self.diverter.handle_timeout(now);
        while let Some((mobile, &packet)) = self.diverter.due(now) {
            if self.relay.is_leaving(mobile) {
                if self.relay.hand_on(now, mobile, packet.to_be_bytes().to_vec()) {
                    self.diverter.handle_sent(now, mobile);
                } else {
                    self.diverter.handle_busy(now + Duration::from_millis(1), mobile);
                }
                continue;
            }
            let heard_at = self.heard_at(mobile);
            if !self.ownership.may_release(mobile, heard_at) {
                self.diverter.handle_busy(now + ELSEWHERE, mobile);
                continue;
            }
            let told = self.told.get(&mobile).filter(|(_, is_own, _)| !is_own);
            assert!(
                told.is_none_or(|(.., at)| heard_at.is_some_and(|heard_at| heard_at >= *at)),
                "{name} releases packets of {mobile} in epoch {told:?}, heard at {heard_at:?}, now {now:?}",
            );
            if heard_at.is_none_or(|at| now.saturating_since(at) > RECENTLY) {
                // It is probed.
                match is_there(mobile) {
                    true => self.hear(now, mobile),
                    false => drop(self.path.entry(mobile).or_default().waiting_since.get_or_insert(now)),
                }
                self.diverter.handle_busy(now + ELSEWHERE, mobile);
                continue;
            }
            if is_there(mobile) {
                ledger.deliver(packet);
                delivered += 1;
            } else {
                // It has just left.
                ledger.missend(packet);
            }
            self.diverter.handle_sent(now, mobile);
        }
        self.set_courses(now);
        delivered
    }
}
