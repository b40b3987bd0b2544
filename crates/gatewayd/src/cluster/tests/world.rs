//! Gateways with their waiting packets, mobile hosts that move between them, and the networks between gateways and to
//! the store.

mod gateway;
mod ledger;

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdover_base::{Duration, Instant, Rng};
use proptest::prelude::*;

use super::super::store::{Answer, Kind, Numbered, Reply, Request};
use super::etcd::Store;
use super::registration;
use crate::handoff::message::Message;
use gateway::{Forwarded, Gateway};
use ledger::Ledger;

pub(super) const LONGEST_FAULT_MS: u64 = 25_000;
const LEASE: Duration = Duration::from_secs(6);
const REQUEST_TIMEOUT_MS: u64 = 1_000;
const TICK_MS: u64 = 10;
/// The oldest packet that backs a claim.
const EVIDENCE: Duration = Duration::from_secs(1);

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
    /// For this time a mobile host sends nothing but broadcasts.
    Quiet {
        mobile: usize,
        ms: u64,
    },
    /// An orderly stop, and the next process after this time.
    Stop {
        gateway: usize,
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
        2 => (0..mobiles, ms.clone()).prop_map(|(mobile, ms)| Fault::Quiet { mobile, ms }),
        1 => (0..gateways, ms.clone()).prop_map(|(gateway, ms)| Fault::Stop { gateway, ms }),
        2 => (0..gateways, ms).prop_map(|(gateway, ms)| Fault::Kill { gateway, ms }),
    ]
}

/// Without crashes, and without disturbances between gateways.
pub(super) fn faults_of_store(gateways: usize, mobiles: usize) -> impl Strategy<Value = Fault> {
    let is_of_store =
        |fault: &Fault| !matches!(fault, Fault::Kill { .. } | Fault::Stop { .. } | Fault::Gateways { .. });
    faults(gateways, mobiles).prop_filter("a fault of the store", is_of_store)
}

struct Mobile {
    address: IpAddr,
    place: Option<usize>,
    /// Whether the fixed host sends packets to it.
    is_sent_to: bool,
    /// Until then it sends nothing but broadcasts.
    quiet_until: Instant,
    /// The gateway to which the network sends its packets.
    route: usize,
    route_follows_at: Instant,
}

/// See the [module](self).
pub(super) struct World {
    now: Instant,
    random: Rng,
    loss: u64,
    is_calm: bool,
    pub(super) store: Store,
    store_until: Instant,
    gateways_until: Instant,
    gateways: Vec<Gateway>,
    mobiles: Vec<Mobile>,
    datagrams: Vec<(Instant, usize, usize, Message)>,
    ledger: Ledger,
    /// Packets that processes had in memory only when they were killed.
    lost_in_kills: u64,
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
        let gateway = |number: usize| Gateway::new(format!("gateway{number}"), registration(number as u8 + 1, 0));
        let mobile = |number| Mobile {
            address: address_of(number),
            place: None,
            is_sent_to: true,
            quiet_until: Instant::ZERO,
            route: 0,
            route_follows_at: Instant::ZERO,
        };
        Self {
            now: Instant::ZERO,
            random: Rng::new(seed),
            loss,
            is_calm: false,
            store: Store::new(1, LEASE),
            store_until: Instant::ZERO,
            gateways_until: Instant::ZERO,
            gateways: (0..gateways).map(gateway).collect(),
            mobiles: (0..2).map(mobile).collect(),
            datagrams: Vec::new(),
            ledger: Ledger::default(),
            lost_in_kills: 0,
            won: BTreeMap::new(),
        }
    }

    /// From now on nothing is lost or late.
    pub(super) fn calm(&mut self) {
        (self.loss, self.is_calm) = (0, true);
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
                // Open watches end with their connections.
                for number in 0..self.gateways.len() {
                    if let Some((id, ..)) = self.gateways[number].watch.take() {
                        self.reply(number, id, Kind::Watch, Err("closed".to_owned()), 1);
                    }
                }
            }
            Fault::Compacted => self.store.compact(),
            Fault::Quiet { mobile, ms } => self.mobiles[mobile].quiet_until = until(ms),
            Fault::Stop { gateway, ms } => {
                let gateway = &mut self.gateways[gateway];
                let (uncertain, lost) = gateway.stop(self.now);
                self.lost_in_kills += lost;
                uncertain.into_iter().for_each(|packet| self.ledger.allow_twice(packet));
                gateway.starts_at = self.now + Duration::from_millis(ms);
            }
            Fault::Gateways { ms } => self.gateways_until = until(ms),
            Fault::Kill { gateway, ms } => {
                let gateway = &mut self.gateways[gateway];
                self.lost_in_kills += gateway.kill(self.now);
                gateway.starts_at = self.now + Duration::from_millis(ms);
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
        self.gateways[gateway].waiting()
    }

    pub(super) fn delivered_at(&self, gateway: usize) -> u64 {
        self.gateways[gateway].delivered
    }

    /// The number of mobile hosts that a gateway knows.
    pub(super) fn known(&self, gateway: usize) -> usize {
        self.gateways[gateway].live.as_ref().map_or(0, gateway::Live::known)
    }

    /// The fixed host sends nothing more to a mobile host.
    pub(super) fn route_away(&mut self, mobile: usize) {
        self.mobiles[mobile].is_sent_to = false;
    }

    /// A gateway finds a mobile host absent.
    pub(super) fn find_absent(&mut self, gateway: usize, mobile: usize) {
        let address = self.mobiles[mobile].address;
        let live = self.gateways[gateway].live.as_mut().expect("it runs");
        live.find_absent(self.now, address);
    }

    /// The name of the gateway that owns a mobile host, by the store.
    pub(super) fn owner(&self, mobile: usize) -> Option<String> {
        self.store.owner(self.mobiles[mobile].address).map(|(owner, _)| owner.to_owned())
    }

    /// As [`Self::run_for`]; meanwhile this gateway hears the broadcasts of a mobile host that is at another one.
    pub(super) fn run_overheard(&mut self, gateway: usize, mobile: usize, ms: u64) {
        let address = self.mobiles[mobile].address;
        for _ in 0..ms / 500 {
            let now = self.now;
            self.gateways[gateway].live.as_mut().expect("it runs").overhear(now, address);
            self.run_for(500);
        }
    }

    /// The number of buffered packets.
    pub(super) fn undelivered(&self) -> usize {
        self.gateways.iter().map(Gateway::waiting).sum()
    }

    /// Packets lost in handoffs that were broken off.
    pub(super) fn lost(&self) -> u64 {
        self.ledger.lost(self.undelivered())
    }

    /// No packet is delivered twice, and no more are lost than were in flight to gateways that were given up or killed.
    pub(super) fn check(&self) {
        assert_eq!(self.ledger.twice(), [0; 0], "delivered twice");
        let in_relays = self.gateways.iter().filter_map(|gateway| gateway.live.as_ref());
        let abandoned: u64 = in_relays.map(|live| live.abandoned).sum();
        let lost = self.lost();
        let in_flight: u64 =
            self.gateways.iter().filter_map(|gateway| Some(gateway.live.as_ref()?.protocol.unconfirmed())).sum();
        let accounted = abandoned + self.lost_in_kills + in_flight;
        assert!(lost <= accounted, "{lost} are lost, {abandoned} + {} + {in_flight}", self.lost_in_kills);
    }

    /// Checks that all gateways agree, after mobile hosts have rested for long without faults.
    pub(super) fn check_agreement(&self) {
        for mobile in &self.mobiles {
            let place = mobile.place.expect("it rests somewhere");
            let name = &self.gateways[place].name;
            let (owner, epoch) = self.store.owner(mobile.address).expect("an owner");
            assert_eq!(owner, name, "{} in the store", mobile.address);
            for gateway in &self.gateways {
                let live = gateway.live.as_ref().expect("all are alive");
                let ownership = &live.ownership;
                assert_eq!(ownership.failure(), None, "{}", gateway.name);
                assert!(ownership.is_connected() && ownership.is_registered(self.now), "{ownership:#?}");
                assert_eq!(
                    ownership.record(mobile.address),
                    Some((name.as_str(), epoch)),
                    "at {}: {ownership:#?} {:?}",
                    gateway.name,
                    gateway.watch
                );
                assert_eq!(live.protocol.poll_timeout(), None, "{}: {:#?}", gateway.name, live.protocol);
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
        }
        self.deliver_datagrams();
        for number in 0..self.gateways.len() {
            self.advance(number);
            self.serve_requests(number);
            self.serve_watch(number);
        }
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
        gateway.start(self.now, peers);
        // The others learn of the new process by its session.
        let address = gateway.registration.handoff;
        let now = self.now;
        let others = self.gateways.iter_mut().filter_map(|gateway| gateway.live.as_mut());
        others.for_each(|live| live.protocol.handle_new_session(now, address));
        self.datagrams.retain(|(_, from, to, _)| *from != number && *to != number);
    }

    fn reaches_store(&self, number: usize) -> bool {
        self.now >= self.store_until && self.now >= self.gateways[number].partitioned_until
    }

    fn reply(&mut self, number: usize, id: u64, kind: Kind, result: Result<Answer, String>, after_ms: u64) {
        let store = self.store.id;
        let queue = self.gateways[number].replies.entry(kind).or_default();
        let at = (self.now + Duration::from_millis(after_ms)).max(queue.back().map_or(self.now, |(at, _)| *at));
        queue.push_back((at, Reply { id, kind, result: result.map(|answer| (store, answer)) }));
    }

    fn serve_requests(&mut self, number: usize) {
        while let Some(Numbered { id, request }) =
            self.gateways[number].live.as_mut().and_then(|live| live.ownership.poll_request())
        {
            let kind = request.kind();
            if let (Request::List { from, .. }, Some(live)) = (&request, &mut self.gateways[number].live)
                && from.is_empty()
            {
                live.listed.clear();
            }
            let fails = !self.reaches_store(number) || self.is_lost();
            if fails {
                self.reply(number, id, kind, Err("no connection".to_owned()), REQUEST_TIMEOUT_MS);
                continue;
            }
            if let Request::Watch { after } = request {
                self.gateways[number].watch = Some((id, after, self.now + LEASE));
                // The watch is created.
                self.reply(number, id, kind, Ok(Answer::Changed { after, at: after, changes: Vec::new() }), 1);
                continue;
            }
            self.check_evidence(number, &request);
            let Gateway { name, registration, .. } = &self.gateways[number];
            let answer = self.store.handle(self.now, name, registration, request);
            // Some answers are lost, and some are late.
            let is_lost = self.is_lost();
            let is_late = !self.is_calm && self.random.below(20) == 0;
            let delay = if is_late { 800 + self.random.below(8_000) } else { 1 + self.random.below(40) };
            match is_lost {
                true => self.reply(number, id, kind, Err("timed out".to_owned()), REQUEST_TIMEOUT_MS),
                false => self.reply(number, id, kind, answer, delay),
            }
        }
    }

    /// Each claim of a gateway is about a mobile host that it has heard just now, or has adopted.
    fn check_evidence(&self, number: usize, request: &Request) {
        let Gateway { name, live: Some(live), .. } = &self.gateways[number] else { return };
        let Request::Claims(claims) = request else { return };
        for claim in claims {
            let heard_at = live.addressed_at(claim.mobile);
            let is_fresh = heard_at.is_some_and(|at| self.now.saturating_since(at) <= EVIDENCE);
            assert!(
                is_fresh || live.has_adopted(claim.mobile),
                "{name} claims {} at {:?}, heard at {heard_at:?}",
                claim.mobile,
                self.now
            );
        }
    }

    fn serve_watch(&mut self, number: usize) {
        let Some((id, after, ends_at)) = self.gateways[number].watch else { return };
        if !self.reaches_store(number) {
            self.gateways[number].watch = None;
            return self.reply(number, id, Kind::Watch, Err("closed".to_owned()), REQUEST_TIMEOUT_MS);
        }
        let delay = 1 + self.random.below(100);
        match self.store.changes_after(after) {
            None => {
                self.gateways[number].watch = None;
                self.reply(number, id, Kind::Watch, Ok(Answer::WatchEnded { is_compacted: true }), delay);
            }
            Some(_) if self.now >= ends_at => {
                self.gateways[number].watch = None;
                self.reply(number, id, Kind::Watch, Ok(Answer::WatchEnded { is_compacted: false }), delay);
            }
            Some((_, changes)) if changes.is_empty() => {}
            Some((at, changes)) => {
                self.gateways[number].watch = Some((id, at, ends_at));
                self.reply(number, id, Kind::Watch, Ok(Answer::Changed { after, at, changes }), delay);
            }
        }
    }

    fn deliver_replies(&mut self, number: usize) {
        let (now, id) = (self.now, self.store.id);
        let Gateway { name, live, replies, .. } = &mut self.gateways[number];
        let Some(live) = live else { return };
        for queue in replies.values_mut() {
            while let Some((_, reply)) = queue.pop_front_if(|(at, _)| *at <= now) {
                let answer = reply.result.as_ref().ok().filter(|(store, _)| *store == id);
                let answer = answer.map(|(_, answer)| answer.clone());
                let before = live.ownership.counters();
                live.ownership.handle_reply(now, reply);
                let after = live.ownership.counters();
                // An answer to a request that was given up does not count.
                if let Some(answer) = answer.filter(|_| after.late == before.late) {
                    live.note_answer(now, name, answer);
                }
                if after.replaced != before.replaced {
                    live.reported.clear();
                }
            }
        }
    }

    /// Mobile hosts send a packet every 50 ms, or a broadcast every 500 ms.
    fn hear(&mut self, number: usize) {
        let Some(live) = self.gateways[number].live.as_mut().filter(|_| self.now.as_millis().is_multiple_of(50)) else {
            return;
        };
        for mobile in self.mobiles.iter().filter(|mobile| mobile.place == Some(number)) {
            if self.now >= mobile.quiet_until {
                live.hear(self.now, mobile.address);
            } else if self.now.as_millis().is_multiple_of(500) {
                live.overhear(self.now, mobile.address);
            }
        }
    }

    fn advance(&mut self, number: usize) {
        let Self { now, gateways, mobiles, won, .. } = self;
        let is_there = |address| mobiles.iter().any(|mobile| mobile.address == address && mobile.place == Some(number));
        let Gateway { name, live: Some(live), .. } = &mut gateways[number] else { return };
        live.advance(*now, &is_there, &mut |mobile, epoch| {
            if let Some(other) = won.insert((epoch.store, mobile, epoch.revision), name.clone()) {
                assert_eq!(other, *name, "two owners in epoch {epoch:?}");
            }
        });
    }

    fn send_datagrams(&mut self, number: usize) {
        let mut messages = Vec::new();
        if let Some(live) = &mut self.gateways[number].live {
            messages.extend(std::iter::from_fn(|| live.protocol.poll_transmit()));
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
            if let Some(live) = &mut self.gateways[to].live {
                live.handle_message(now, peer, message);
            }
        }
    }

    /// The fixed host sends each mobile host a packet every 100 ms.
    fn send_packets(&mut self) {
        let is_due = self.now.as_millis().is_multiple_of(100);
        for mobile in &mut self.mobiles {
            if let Some(place) = mobile.place
                && self.now >= mobile.route_follows_at
            {
                mobile.route = place;
            }
            if !is_due || !mobile.is_sent_to {
                continue;
            }
            let gateway = &mut self.gateways[mobile.route];
            let packet = self.ledger.next();
            match gateway.forward(self.now, mobile.address, packet) {
                Forwarded::Stored => self.ledger.store(packet),
                Forwarded::Passed if mobile.place == Some(mobile.route) => {
                    self.ledger.deliver(packet);
                    gateway.delivered += 1;
                }
                // Lost behind the gateway, as without one.
                Forwarded::Passed => {}
            }
        }
    }

    fn release(&mut self, number: usize) {
        let Self { now, gateways, mobiles, ledger, .. } = self;
        let is_there = |address| mobiles.iter().any(|mobile| mobile.address == address && mobile.place == Some(number));
        let Gateway { name, live: Some(live), delivered, .. } = &mut gateways[number] else { return };
        *delivered += live.release(*now, name, &is_there, ledger);
    }
}
