//! Gateways with buffered packets, mobile hosts that move between them, and the networks between gateways and to the
//! store. These gateways follow the engine's rules: they claim a mobile host when they first hear it, hand on or offer
//! packets for a mobile host that is elsewhere, and release the rest while it is present.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use holdover_base::{Duration, Instant, Rng};
use proptest::prelude::*;

use super::super::ownership::{Admission, Event, Ownership};
use super::super::store::{Answer, Kind, Registration, Reply, Request, Subject};
use super::etcd::Store;
use super::{at, registration};
use crate::handoff::relay::{self, Body, Message, Relay};

pub(super) const LONGEST_FAULT_MS: u64 = 25_000;
const LEASE: Duration = Duration::from_secs(6);
const REQUEST_TIMEOUT_MS: u64 = 1_000;
const TICK_MS: u64 = 10;
/// The same as the engine's.
const MOVING: Duration = Duration::from_secs(1);

/// A failure, or a move.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    Move {
        mobile: usize,
        to: Option<usize>,
    },
    /// A gateway cannot reach the store.
    Partition {
        gateway: usize,
        ms: u64,
    },
    /// The store stops for a while.
    Store {
        ms: u64,
    },
    /// Another store, without contents.
    Replaced,
    Compacted,
    /// Gateways cannot reach each other.
    Gateways {
        ms: u64,
    },
    /// `kill -9`, and the next process after this time.
    Kill {
        gateway: usize,
        ms: u64,
    },
}

pub(super) fn faults(gateways: usize, mobiles: usize) -> impl Strategy<Value = Fault> {
    let ms = 100..LONGEST_FAULT_MS;
    prop_oneof![
        8 => (0..mobiles, proptest::option::of(0..gateways)).prop_map(|(mobile, to)| Fault::Move { mobile, to }),
        2 => (0..gateways, ms.clone()).prop_map(|(gateway, ms)| Fault::Partition { gateway, ms }),
        2 => ms.clone().prop_map(|ms| Fault::Store { ms }),
        1 => Just(Fault::Replaced),
        1 => Just(Fault::Compacted),
        1 => ms.clone().prop_map(|ms| Fault::Gateways { ms }),
        2 => (0..gateways, ms).prop_map(|(gateway, ms)| Fault::Kill { gateway, ms }),
    ]
}

struct Gateway {
    name: String,
    registration: Registration,
    /// `None` while it is dead.
    live: Option<(Ownership, Relay)>,
    starts_at: Instant,
    /// Packets in files on tmpfs, which survive a kill.
    waiting: BTreeMap<IpAddr, VecDeque<u32>>,
    met: BTreeSet<IpAddr>,
    moved_at: BTreeMap<IpAddr, Instant>,
    heard_at: BTreeMap<IpAddr, Instant>,
    /// The latest epoch reported to this process, whether it is the owner in it, and the time of the report.
    told: BTreeMap<IpAddr, (u64, bool, Instant)>,
    offered_at: Instant,
    partitioned_until: Instant,
    /// Replies in flight, in order for each kind.
    replies: BTreeMap<Kind, VecDeque<(Instant, Reply)>>,
    /// The revision up to which an open watch has reported everything, and its end.
    watch: Option<(u64, Instant)>,
    delivered: u64,
}

struct Mobile {
    address: IpAddr,
    place: Option<usize>,
    /// The gateway to which the network sends its packets.
    route: usize,
    route_follows_at: Instant,
}

/// See the [module](self).
pub(super) struct World {
    now: Instant,
    random: Rng,
    loss: u64,
    pub(super) store: Store,
    store_until: Instant,
    gateways_until: Instant,
    gateways: Vec<Gateway>,
    mobiles: Vec<Mobile>,
    datagrams: Vec<(Instant, usize, usize, Message)>,
    next_packet: u32,
    /// How often each packet was delivered.
    delivered: BTreeMap<u32, u32>,
    won: BTreeMap<(u64, IpAddr, u64), String>,
}

fn address_of(number: usize) -> IpAddr {
    [10, 0, 1, 7 + number as u8].into()
}

fn index_of(peer: std::net::SocketAddr) -> usize {
    match peer.ip() {
        IpAddr::V4(address) => usize::from(address.octets()[3] - 1),
        IpAddr::V6(_) => unreachable!("addresses are IPv4"),
    }
}

impl World {
    pub(super) fn new(seed: u64, gateways: usize, loss: u64) -> Self {
        let gateway = |number: usize| Gateway {
            name: format!("gateway{number}"),
            registration: registration(number as u8 + 1, 0),
            live: None,
            starts_at: Instant::ZERO,
            waiting: BTreeMap::new(),
            met: BTreeSet::new(),
            moved_at: BTreeMap::new(),
            heard_at: BTreeMap::new(),
            told: BTreeMap::new(),
            offered_at: Instant::ZERO,
            partitioned_until: Instant::ZERO,
            replies: BTreeMap::new(),
            watch: None,
            delivered: 0,
        };
        let mobile =
            |number| Mobile { address: address_of(number), place: None, route: 0, route_follows_at: Instant::ZERO };
        Self {
            now: Instant::ZERO,
            random: Rng::new(seed),
            loss,
            store: Store::new(1, LEASE),
            store_until: Instant::ZERO,
            gateways_until: Instant::ZERO,
            gateways: (0..gateways).map(gateway).collect(),
            mobiles: (0..2).map(mobile).collect(),
            datagrams: Vec::new(),
            next_packet: 0,
            delivered: BTreeMap::new(),
            won: BTreeMap::new(),
        }
    }

    pub(super) fn set_loss(&mut self, loss: u64) {
        self.loss = loss;
    }

    pub(super) fn place(&mut self, mobile: usize, to: Option<usize>) {
        let mobile = &mut self.mobiles[mobile];
        mobile.place = to;
        mobile.route_follows_at = self.now + Duration::from_millis(50);
    }

    pub(super) fn apply(&mut self, fault: Fault) {
        let until = |ms| self.now + Duration::from_millis(ms);
        match fault {
            Fault::Move { mobile, to } => self.place(mobile, to),
            Fault::Partition { gateway, ms } => self.gateways[gateway].partitioned_until = until(ms),
            Fault::Store { ms } => self.store_until = until(ms),
            Fault::Replaced => {
                self.store = Store::new(self.store.id + 1, LEASE);
                self.gateways.iter_mut().for_each(|gateway| gateway.watch = None);
                // Open watches end with their connections.
                for number in 0..self.gateways.len() {
                    self.reply(number, Kind::Watch, Err("closed".to_owned()), 1);
                }
            }
            Fault::Compacted => self.store.compact(),
            Fault::Gateways { ms } => self.gateways_until = until(ms),
            Fault::Kill { gateway, ms } => {
                let gateway = &mut self.gateways[gateway];
                (gateway.live, gateway.watch) = (None, None);
                gateway.starts_at = self.now + Duration::from_millis(ms);
                gateway.replies.clear();
                for known in [&mut gateway.moved_at, &mut gateway.heard_at] {
                    known.clear();
                }
                gateway.met.clear();
                gateway.told.clear();
            }
        }
    }

    pub(super) fn run_for(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        while self.now < end {
            self.now += Duration::from_millis(TICK_MS);
            self.tick();
        }
    }

    pub(super) fn waiting(&self, gateway: usize) -> usize {
        self.gateways[gateway].waiting.values().map(VecDeque::len).sum()
    }

    pub(super) fn delivered_at(&self, gateway: usize) -> u64 {
        self.gateways[gateway].delivered
    }

    /// The number of buffered packets.
    pub(super) fn undelivered(&self) -> usize {
        (0..self.gateways.len()).map(|gateway| self.waiting(gateway)).sum()
    }

    pub(super) fn check(&self) {
        let twice: Vec<_> = self.delivered.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "delivered twice: {twice:?}");
    }

    /// Checks that all gateways agree, after mobile hosts have rested for long without faults.
    pub(super) fn check_agreement(&self) {
        for mobile in &self.mobiles {
            let place = mobile.place.expect("it rests somewhere");
            let name = &self.gateways[place].name;
            let (owner, epoch) = self.store.owner(mobile.address).expect("an owner");
            assert_eq!(owner, name, "{} in the store", mobile.address);
            for gateway in &self.gateways {
                let (ownership, relay) = gateway.live.as_ref().expect("all are alive");
                assert_eq!(ownership.failure(), None, "{}", gateway.name);
                assert!(ownership.is_connected() && ownership.is_registered(self.now), "{ownership:#?}");
                assert_eq!(
                    ownership.record(mobile.address),
                    Some((name.as_str(), epoch)),
                    "at {}: {ownership:#?} {:?}",
                    gateway.name,
                    gateway.watch
                );
                assert_eq!(relay.poll_timeout(), None, "the relay of {}", gateway.name);
            }
        }
        assert_eq!(self.undelivered(), 0, "packets wait");
    }

    fn is_lost(&mut self) -> bool {
        self.random.below(100) < self.loss
    }

    fn tick(&mut self) {
        self.store.expire(self.now);
        for number in 0..self.gateways.len() {
            self.start(number);
            self.deliver_replies(number);
            self.hear(number);
            self.serve_events(number);
            self.serve_requests(number);
            self.serve_watch(number);
        }
        self.deliver_datagrams();
        self.send_packets();
        for number in 0..self.gateways.len() {
            self.release(number);
            self.send_datagrams(number);
        }
    }

    fn start(&mut self, number: usize) {
        let peers = (0..self.gateways.len()).filter(|&peer| peer != number);
        let peers = peers.map(|peer| self.gateways[peer].registration.handoff).collect();
        let gateway = &mut self.gateways[number];
        if gateway.live.is_some() || self.now < gateway.starts_at {
            return;
        }
        gateway.registration.process += 1;
        let ownership = Ownership::new(self.now, &gateway.name, gateway.registration.clone(), LEASE);
        gateway.live = Some((ownership, Relay::new(peers)));
        // The others learn of the new process from its session.
        let address = gateway.registration.handoff;
        let now = self.now;
        let others = self.gateways.iter_mut().filter_map(|gateway| gateway.live.as_mut());
        others.for_each(|(_, relay)| relay.handle_new_session(now, address));
        self.datagrams.retain(|(_, from, to, _)| *from != number && *to != number);
    }

    fn reaches_store(&self, number: usize) -> bool {
        self.now >= self.store_until && self.now >= self.gateways[number].partitioned_until
    }

    fn reply(&mut self, number: usize, kind: Kind, result: Result<Answer, String>, after_ms: u64) {
        let id = self.store.id;
        let queue = self.gateways[number].replies.entry(kind).or_default();
        let at = (self.now + Duration::from_millis(after_ms)).max(queue.back().map_or(self.now, |(at, _)| *at));
        queue.push_back((at, Reply { kind, result: result.map(|answer| (id, answer)) }));
    }

    fn serve_requests(&mut self, number: usize) {
        while let Some(request) =
            self.gateways[number].live.as_mut().and_then(|(ownership, _)| ownership.poll_request())
        {
            let kind = request.kind();
            let fails = !self.reaches_store(number) || self.is_lost();
            if fails {
                self.reply(number, kind, Err("no connection".to_owned()), REQUEST_TIMEOUT_MS);
                continue;
            }
            if let Request::Watch { after } = request {
                self.gateways[number].watch = Some((after, self.now + LEASE));
                continue;
            }
            let Gateway { name, registration, .. } = &self.gateways[number];
            let answer = self.store.handle(self.now, name, registration, request);
            // Some answers are lost, and some are late.
            let is_lost = self.is_lost();
            let delay = if self.random.below(20) == 0 { 800 } else { 1 + self.random.below(40) };
            match is_lost {
                true => self.reply(number, kind, Err("timed out".to_owned()), REQUEST_TIMEOUT_MS),
                false => self.reply(number, kind, Ok(answer), delay),
            }
        }
    }

    fn serve_watch(&mut self, number: usize) {
        let Some((after, ends_at)) = self.gateways[number].watch else { return };
        if !self.reaches_store(number) {
            self.gateways[number].watch = None;
            return self.reply(number, Kind::Watch, Err("closed".to_owned()), REQUEST_TIMEOUT_MS);
        }
        let delay = 1 + self.random.below(100);
        match self.store.changes_after(after) {
            None => {
                self.gateways[number].watch = None;
                self.reply(number, Kind::Watch, Ok(Answer::WatchEnded { is_compacted: true }), delay);
            }
            Some(_) if self.now >= ends_at => {
                self.gateways[number].watch = None;
                self.reply(number, Kind::Watch, Ok(Answer::WatchEnded { is_compacted: false }), delay);
            }
            Some((_, changes)) if changes.is_empty() => {}
            Some((at, changes)) => {
                self.gateways[number].watch = Some((at, ends_at));
                self.reply(number, Kind::Watch, Ok(Answer::Changed { after, at, changes }), delay);
            }
        }
    }

    fn deliver_replies(&mut self, number: usize) {
        let (now, id) = (self.now, self.store.id);
        let Gateway { name, live, replies, told, .. } = &mut self.gateways[number];
        let Some((ownership, _)) = live else { return };
        for queue in replies.values_mut() {
            while let Some((_, reply)) = queue.pop_front_if(|(at, _)| *at <= now) {
                if let Ok((store, answer)) = &reply.result
                    && *store == id
                {
                    let changes = match answer {
                        Answer::Listed { changes, .. } | Answer::Changed { changes, .. } | Answer::Claimed(changes) => {
                            &changes[..]
                        }
                        _ => &[],
                    };
                    for change in changes {
                        if let Subject::Mobile { address, record: Some(record) } = &change.subject {
                            note_told(told, now, *address, change.epoch, record.owner == *name);
                        }
                    }
                }
                let replaced = ownership.counters().replaced;
                ownership.handle_reply(now, reply);
                if ownership.counters().replaced != replaced {
                    told.clear();
                }
            }
        }
        ownership.handle_timeout(now);
    }

    /// Mobile hosts send a packet every 50 ms.
    fn hear(&mut self, number: usize) {
        if !self.now.as_millis().is_multiple_of(50) {
            return;
        }
        let gateway = &mut self.gateways[number];
        let Some((ownership, _)) = &mut gateway.live else { return };
        for mobile in self.mobiles.iter().filter(|mobile| mobile.place == Some(number)) {
            let address = mobile.address;
            gateway.heard_at.insert(address, self.now);
            let is_straggler = gateway.moved_at.get(&address).is_some_and(|at| self.now < *at + MOVING);
            if !is_straggler && gateway.met.insert(address) {
                ownership.handle_heard(self.now, address, None);
            }
        }
    }

    fn serve_events(&mut self, number: usize) {
        let (now, store) = (self.now, self.store.id);
        let gateway = &mut self.gateways[number];
        let Some((ownership, relay)) = &mut gateway.live else { return };
        while let Some(event) = ownership.poll_event() {
            match event {
                Event::Won { mobile, epoch, former } => {
                    let former =
                        self.won.insert((store, mobile, epoch), gateway.name.clone()).map_or(former, |other| {
                            assert_eq!(other, gateway.name, "two owners in epoch {epoch}");
                            former
                        });
                    if let Some(former) = former {
                        relay.claim(now, mobile, ownership.epoch(epoch), &[former]);
                    }
                }
                Event::Lost { mobile, .. } => {
                    gateway.met.remove(&mobile);
                    gateway.moved_at.insert(mobile, now);
                    relay.cancel(mobile);
                }
                _ => {}
            }
        }
        relay.handle_timeout(now);
        while let Some(event) = relay.poll_event() {
            match event {
                relay::Event::Packet { mobile, bytes } => {
                    let packet = u32::from_be_bytes(bytes.try_into().expect("a packet"));
                    gateway.waiting.entry(mobile).or_default().push_back(packet);
                }
                relay::Event::Offered { mobile, epoch, peer } => {
                    if let Some(own) = ownership.answer_to_offer(mobile, epoch) {
                        relay.claim(now, mobile, own, &[peer]);
                    }
                }
                relay::Event::Refused { .. } => ownership.handle_refusal(),
                relay::Event::Claimed { .. } | relay::Event::Done { .. } | relay::Event::Lost { .. } => {}
            }
        }
    }

    fn send_datagrams(&mut self, number: usize) {
        let mut messages = Vec::new();
        if let Some((_, relay)) = &mut self.gateways[number].live {
            messages.extend(std::iter::from_fn(|| relay.poll_transmit()));
        }
        for (peer, message) in messages {
            for _ in 0..=u64::from(self.random.below(20) == 0) {
                if self.now >= self.gateways_until && !self.is_lost() {
                    let at = self.now + Duration::from_millis(1 + self.random.below(40));
                    self.datagrams.push((at, number, index_of(peer), message.clone()));
                }
            }
        }
    }

    fn deliver_datagrams(&mut self) {
        let now = self.now;
        let due: Vec<_> = self.datagrams.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, from, to, message) in due {
            let peer = self.gateways[from].registration.handoff;
            let Gateway { live, told, .. } = &mut self.gateways[to];
            let Some((ownership, relay)) = live else { continue };
            if let Body::Claim { epoch } = message.body {
                match ownership.handle_peer_claim(now, message.mobile, epoch, peer) {
                    Admission::Admitted => note_told(told, now, message.mobile, epoch.revision, false),
                    Admission::Stale { known } => {
                        relay.refuse(peer, message.id, message.mobile, known);
                        continue;
                    }
                    Admission::Unknown => continue,
                }
            }
            relay.handle_message(now, peer, message);
        }
    }

    /// The fixed host sends each mobile host a packet every 100 ms.
    fn send_packets(&mut self) {
        for number in 0..self.mobiles.len() {
            let mobile = &mut self.mobiles[number];
            if let Some(place) = mobile.place
                && self.now >= mobile.route_follows_at
            {
                mobile.route = place;
            }
            if !self.now.as_millis().is_multiple_of(100) {
                continue;
            }
            let (address, route, is_there) = (mobile.address, mobile.route, mobile.place == Some(mobile.route));
            let gateway = &mut self.gateways[route];
            let packet = self.next_packet;
            self.next_packet += 1;
            let waiting = gateway.waiting.entry(address).or_default();
            match &gateway.live {
                // It passes, even without a daemon.
                _ if is_there && (waiting.is_empty() || gateway.live.is_none()) => {
                    *self.delivered.entry(packet).or_default() += 1;
                    gateway.delivered += 1;
                }
                Some((ownership, _))
                    if ownership.owned_elsewhere(address).is_none() && gateway.met.contains(&address) =>
                {
                    waiting.push_back(packet);
                }
                _ => {}
            }
        }
    }

    fn release(&mut self, number: usize) {
        let now = self.now;
        let gateway = &mut self.gateways[number];
        let Some((ownership, relay)) = &mut gateway.live else { return };
        let may_offer = now.saturating_since(gateway.offered_at) >= Duration::from_secs(1);
        for mobile in &self.mobiles {
            let waiting = gateway.waiting.entry(mobile.address).or_default();
            if relay.is_leaving(mobile.address) {
                while let Some(&packet) = waiting.front()
                    && relay.hand_on(now, mobile.address, packet.to_be_bytes().to_vec())
                {
                    waiting.pop_front();
                }
                if waiting.is_empty() {
                    relay.end(now, mobile.address);
                }
                continue;
            }
            if let Some((owner, epoch)) = ownership.owned_elsewhere(mobile.address) {
                let address = ownership.address_of(owner).filter(|_| may_offer && !waiting.is_empty());
                if let Some(address) = address {
                    gateway.offered_at = now;
                    relay.offer(mobile.address, ownership.epoch(epoch), address);
                }
                continue;
            }
            let heard_at = gateway.heard_at.get(&mobile.address).copied();
            if mobile.place == Some(number)
                && ownership.may_release(mobile.address, heard_at)
                && let Some(packet) = waiting.pop_front()
            {
                let told = gateway.told.get(&mobile.address).filter(|(_, is_own, _)| !is_own);
                assert!(
                    told.is_none_or(|(.., at)| heard_at.is_some_and(|heard_at| heard_at >= *at)),
                    "{} releases packets of {} in epoch {told:?}, heard at {heard_at:?}, now {now:?}",
                    gateway.name,
                    mobile.address
                );
                *self.delivered.entry(packet).or_default() += 1;
                gateway.delivered += 1;
            }
        }
    }
}

fn note_told(
    told: &mut BTreeMap<IpAddr, (u64, bool, Instant)>,
    now: Instant,
    mobile: IpAddr,
    epoch: u64,
    is_own: bool,
) {
    let known = told.entry(mobile).or_insert((0, true, at(0)));
    if epoch > known.0 {
        *known = (epoch, is_own, now);
    }
}
