//! A gateway of the model: the engine's rules ([`Attachments`]), ownership, protocol and diverter, without I/O.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;
use holdover_gateway::divert::{Course, Diverter, DiverterConfig, Source};

use super::super::super::ownership::{Admission, Event, Evidence, Ownership};
use super::super::super::store::{Answer, Change, Registration, Reply, Subject};
use super::LEASE;
use super::ledger::Ledger;
use crate::cluster::Epoch;
use crate::cluster::store::Kind;
use crate::engine::{Attachments, Clearance, ELSEWHERE, Hearing, TEND_EVERY};
use crate::handoff::message::{Body, Message};
use crate::handoff::protocol::{self, Protocol};

/// How long a mobile host is remembered.
const FORGET_AFTER: Duration = Duration::from_secs(20);

/// How long a packet for a mobile host is unanswered before the host counts as absent.
const SILENCE: Duration = Duration::from_millis(300);

/// Bytes of each packet.
const LEN: u32 = 1000;

pub(super) struct Gateway {
    pub(super) name: String,
    pub(super) registration: Registration,
    /// `None` while it is dead.
    pub(super) live: Option<Live>,
    pub(super) starts_at: Instant,
    /// The packets that an earlier process has left on tmpfs.
    files: BTreeMap<IpAddr, Vec<u32>>,
    pub(super) partitioned_until: Instant,
    /// Replies on their way, by kind in their order.
    pub(super) replies: BTreeMap<Kind, VecDeque<(Instant, Reply)>>,
    /// The number of an open watch, the revision up to which it has reported all changes, and when it ends.
    pub(super) watch: Option<(u64, u64, Instant)>,
    pub(super) delivered: u64,
}

/// The daemon's process.
pub(super) struct Live {
    pub(super) ownership: Ownership,
    pub(super) protocol: Protocol,
    diverter: Diverter<u32>,
    /// The programs' state.
    path: BTreeMap<IpAddr, Seen>,
    attachments: Attachments,
    /// Mobile hosts to be probed, as their owners have lost them.
    to_probe: Vec<IpAddr>,
    /// The latest epoch that this process has learned, whether it names this gateway, and when it was learned.
    pub(super) reported: BTreeMap<IpAddr, (u64, bool, Instant)>,
    /// The pages of a list that is not complete yet: it is valid as a whole only.
    pub(super) listed: Vec<Change>,
    tend_at: Instant,
    /// Packets in transfers that were given up.
    pub(super) abandoned: u64,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    heard_at: Option<Instant>,
    /// The last packet from the mobile host to this gateway that was not a broadcast.
    addressed_at: Option<Instant>,
    waiting_since: Option<Instant>,
    diverts: bool,
}

/// The fate of a packet from the network.
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
        let ownership = Ownership::new(now, &self.name, self.registration.clone(), LEASE, FORGET_AFTER);
        // Nothing is dropped for its age or for lack of room.
        let config =
            DiverterConfig { longest: Duration::from_secs(100_000), mobile_bytes: u64::MAX / 4, ..Default::default() };
        let mut live = Live {
            ownership,
            protocol: Protocol::new(peers),
            diverter: Diverter::new(DiverterConfig { total_bytes: u64::MAX / 4, ..config }),
            path: BTreeMap::new(),
            attachments: Attachments::new(now),
            to_probe: Vec::new(),
            reported: BTreeMap::new(),
            listed: Vec::new(),
            tend_at: now,
            abandoned: 0,
        };
        for (mobile, packets) in std::mem::take(&mut self.files) {
            live.path.entry(mobile).or_default();
            packets.into_iter().for_each(|packet| live.diverter.restore(now, mobile, now, LEN, packet));
        }
        self.live = Some(live);
    }

    /// An orderly stop: packets that other gateways have not confirmed are stored before those that still wait. Returns the unconfirmed
    /// packets, which the others may have received all the same, and the number of packets lost before.
    pub(super) fn stop(&mut self, now: Instant) -> (Vec<u32>, u64) {
        let Some(live) = &mut self.live else { return (Vec::new(), 0) };
        let unconfirmed = live.protocol.take_unconfirmed();
        let lost = self.kill(now);
        let mut uncertain = Vec::new();
        for (mobile, packets) in unconfirmed {
            let number = |bytes: Vec<u8>| u32::from_be_bytes(bytes.try_into().expect("a packet"));
            let packets: Vec<u32> = packets.into_iter().map(number).collect();
            uncertain.extend(&packets);
            self.files.entry(mobile).or_default().splice(..0, packets);
        }
        (uncertain, lost)
    }

    /// `kill -9`: files stay, and packets in memory are lost. Returns the number of the latter.
    pub(super) fn kill(&mut self, now: Instant) -> u64 {
        (self.watch, self.replies) = (None, BTreeMap::new());
        let Some(mut live) = self.live.take() else { return 0 };
        let waiting: Vec<IpAddr> = live.diverter.statuses().map(|(mobile, _)| mobile).collect();
        waiting
            .into_iter()
            .for_each(|mobile| live.diverter.discard(now, mobile, holdover_gateway::divert::Loss::Forgotten));
        while let Some((mobile, packet, _)) = live.diverter.poll_discarded() {
            // The newest ones are discarded first.
            self.files.entry(mobile).or_default().insert(0, packet);
        }
        live.serve_relay(now);
        live.abandoned + live.protocol.unconfirmed()
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

    /// The last packet of a mobile host to this gateway.
    pub(super) fn addressed_at(&self, mobile: IpAddr) -> Option<Instant> {
        self.path.get(&mobile).and_then(|seen| seen.addressed_at)
    }

    pub(super) fn has_adopted(&self, mobile: IpAddr) -> bool {
        self.attachments.adopted().contains_key(&mobile)
    }

    /// The number of mobile hosts that it knows.
    pub(super) fn known(&self) -> usize {
        self.path.len().max(self.diverter.len())
    }

    /// A source finds a mobile host absent.
    pub(super) fn find_absent(&mut self, now: Instant, mobile: IpAddr) {
        self.diverter.handle_report(now, mobile, Source::Carrier, Presence::Away);
    }

    /// A mobile host has sent a packet here.
    pub(super) fn hear(&mut self, now: Instant, mobile: IpAddr) {
        self.path.entry(mobile).or_default().addressed_at = Some(now);
        self.overhear(now, mobile);
    }

    /// A mobile host has sent a broadcast here.
    pub(super) fn overhear(&mut self, now: Instant, mobile: IpAddr) {
        let seen = self.path.entry(mobile).or_default();
        (seen.heard_at, seen.waiting_since) = (Some(now), None);
        if seen.diverts {
            self.diverter.handle_heard(now, mobile);
        }
    }

    fn note_met(&mut self, now: Instant) {
        for (&mobile, seen) in &self.path {
            if let Some(heard_at) = seen.heard_at.filter(|at| Some(*at) > seen.addressed_at) {
                self.attachments.note_overheard(now, mobile, heard_at);
            }
            let Some(heard_at) = seen.addressed_at else { continue };
            match self.attachments.note_heard(mobile, heard_at) {
                Hearing::Straggler => {}
                Hearing::First => self.ownership.handle_heard(now, mobile, Evidence::Heard(heard_at), None),
                Hearing::Again => self.ownership.handle_seen(now, mobile, heard_at),
            }
        }
    }

    /// Finds mobile hosts silent that have not answered. `is_there` returns whether a mobile host would answer a probe.
    fn note_silence(&mut self, now: Instant, is_there: &dyn Fn(IpAddr) -> bool) {
        let inquired = |mobile: IpAddr, seen: &Seen| self.attachments.inquired_since(mobile, seen.heard_at);
        let probed = self.path.iter().filter(|(mobile, seen)| inquired(**mobile, seen).is_some());
        let (present, absent): (Vec<IpAddr>, Vec<IpAddr>) =
            probed.map(|(&mobile, _)| mobile).partition(|&mobile| is_there(mobile));
        present.into_iter().for_each(|mobile| self.hear(now, mobile));
        for mobile in absent {
            self.path.entry(mobile).or_default().waiting_since.get_or_insert(now);
        }
        let is_silent = |seen: &Seen| seen.waiting_since.is_some_and(|at| now.saturating_since(at) >= SILENCE);
        for (&mobile, _) in self.path.iter().filter(|(_, seen)| !seen.diverts && is_silent(seen)) {
            self.diverter.handle_report(now, mobile, Source::Silence, Presence::Away);
        }
    }

    /// Forgets mobile hosts that were away for long.
    fn forget_absent(&mut self, now: Instant) {
        let is_long_away = |mobile: IpAddr, seen: &Seen| {
            self.diverter.status(mobile).is_some_and(|status| {
                let about = (mobile, &status);
                self.attachments.is_long_away(now, FORGET_AFTER, about, seen.heard_at, Some(&self.protocol))
            })
        };
        let gone = self.path.iter().filter(|(mobile, seen)| is_long_away(**mobile, seen));
        for mobile in gone.map(|(&mobile, _)| mobile).collect::<Vec<_>>() {
            assert!(self.diverter.forget_absent(mobile));
            self.path.remove(&mobile);
            self.attachments.forget(mobile);
            self.ownership.handle_gone(now, mobile);
        }
    }

    /// Handles a message of another gateway.
    pub(super) fn handle_message(&mut self, now: Instant, peer: SocketAddr, message: Message) {
        if let Body::Claim { epoch, .. } = message.body {
            match self.ownership.handle_peer_claim(now, message.mobile, epoch, peer) {
                Admission::Admitted => self.note_reported(now, message.mobile, epoch.revision, false),
                Admission::Stale { known } => {
                    return self.protocol.refuse(peer, message.id, message.mobile, known);
                }
                Admission::Undecided => return,
            }
        }
        self.protocol.handle_message(now, peer, message);
        self.serve_relay(now);
    }

    /// Notes the owners of mobile hosts that an answer of the store reports to this gateway, whose name is given.
    pub(super) fn note_answer(&mut self, now: Instant, name: &str, answer: Answer) {
        let changes = match answer {
            Answer::Listed { changes, next, .. } => {
                self.listed.extend(changes);
                if next.is_some() {
                    return;
                }
                std::mem::take(&mut self.listed)
            }
            Answer::Changed { changes, .. } | Answer::Claimed(changes) => changes,
            _ => return,
        };
        for change in changes {
            if let Subject::Mobile { address, record: Some(record) } = change.subject {
                self.note_reported(now, address, change.epoch, record.owner == name);
            }
        }
    }

    fn note_reported(&mut self, now: Instant, mobile: IpAddr, epoch: u64, is_own: bool) {
        let known = self.reported.entry(mobile).or_insert((0, true, Instant::ZERO));
        if epoch > known.0 {
            *known = (epoch, is_own, now);
        }
    }

    /// Handles deadlines, and the consequences of everything handled before. `won` checks an ownership.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        is_there: &dyn Fn(IpAddr) -> bool,
        won: &mut dyn FnMut(IpAddr, Epoch),
    ) {
        self.note_met(now);
        self.note_silence(now, is_there);
        self.forget_absent(now);
        self.ownership.handle_timeout(now);
        while let Some(event) = self.ownership.poll_event() {
            match event {
                Event::Won { mobile, epoch, former } => {
                    won(mobile, self.ownership.epoch(epoch));
                    self.attachments.note_won(mobile);
                    if let Some(former) = former {
                        self.protocol.claim(now, mobile, self.ownership.epoch(epoch), &[former]);
                    }
                }
                Event::Lost { mobile, .. } => self.attachments.note_moved(now, mobile, &mut self.diverter),
                Event::Orphaned { mobile, mac } if self.attachments.may_adopt(mobile) => {
                    self.path.entry(mobile).or_default();
                    self.attachments.adopt(now, mobile, mac, &mut self.diverter);
                }
                _ => {}
            }
        }
        if now >= self.tend_at {
            self.tend_at = now + TEND_EVERY;
            let Self { attachments, diverter, ownership, protocol, .. } = self;
            attachments.tend_adopted(now, diverter, ownership, |_| None);
            attachments.find_elsewhere(now, diverter, ownership);
            let mut probed = attachments.due_probes(now, ownership, |_| true);
            probed.extend(attachments.follow_overheard(now, ownership, protocol));
            probed.into_iter().filter(|&mobile| is_there(mobile)).for_each(|mobile| self.hear(now, mobile));
        }
        self.protocol.handle_timeout(now);
        self.serve_relay(now);
        let Self { attachments, diverter, ownership, protocol, .. } = self;
        for mobile in attachments.see_off(now, diverter, Some(ownership), protocol) {
            self.path.remove(&mobile);
        }
        self.attachments.expire(now, FORGET_AFTER);
        for mobile in std::mem::take(&mut self.to_probe).into_iter().filter(|&mobile| is_there(mobile)) {
            self.hear(now, mobile);
        }
        self.set_courses(now);
    }

    fn serve_relay(&mut self, now: Instant) {
        while let Some(event) = self.protocol.poll_event() {
            match event {
                protocol::Event::Packet { mobile, bytes } => {
                    let packet = u32::from_be_bytes(bytes.try_into().expect("a packet"));
                    self.diverter.handle_packet(now, mobile, LEN, || Some(packet)).expect("there is room");
                }
                protocol::Event::Offered { mobile, epoch, peer } => {
                    if let Some(own) = self.ownership.answer_to_offer(mobile, epoch) {
                        self.protocol.claim(now, mobile, own, &[peer]);
                    }
                }
                protocol::Event::Claimed { mobile } => self.attachments.note_moved(now, mobile, &mut self.diverter),
                protocol::Event::Inquired { mobile, peer } => {
                    if self.attachments.handle_inquiry(now, mobile, &self.diverter) {
                        self.protocol.answer_inquiry(mobile, peer);
                    }
                }
                protocol::Event::NotThere { mobile } if self.attachments.has_overheard(mobile) => {
                    self.to_probe.push(mobile)
                }
                protocol::Event::NotThere { .. } => {}
                protocol::Event::Refused { .. } => self.ownership.handle_refusal(),
                protocol::Event::Lost { packets, .. } => self.abandoned += u64::from(packets),
                protocol::Event::Done { .. }
                | protocol::Event::RecordsWanted { .. }
                | protocol::Event::Records { .. }
                | protocol::Event::RecordsLost { .. } => {}
            }
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
            let Seen { heard_at, addressed_at, .. } = self.path.get(&mobile).copied().unwrap_or_default();
            match Attachments::clearance(mobile, Some(&self.ownership), Some(&self.protocol), addressed_at) {
                Clearance::HandOn => {
                    if self.protocol.hand_on(now, mobile, packet.to_be_bytes().to_vec()) {
                        self.diverter.handle_sent(now, mobile);
                    } else {
                        self.diverter.handle_busy(now + Duration::from_millis(1), mobile);
                    }
                    continue;
                }
                Clearance::Elsewhere => {
                    self.diverter.handle_busy(now + ELSEWHERE, mobile);
                    continue;
                }
                Clearance::Send => {}
            }
            let reported = self.reported.get(&mobile).filter(|(_, is_own, _)| !is_own);
            assert!(
                reported.is_none_or(|(.., at)| addressed_at.is_some_and(|heard_at| heard_at >= *at)),
                "{name} releases packets of {mobile} in epoch {reported:?}, heard at {addressed_at:?}, now {now:?}",
            );
            if !Attachments::is_confirmed(now, heard_at) {
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
