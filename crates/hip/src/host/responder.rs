//! The stateless responder before there is an association (RFC 7401 section 4.1.1).
//!
//! #I is a MAC over both HITs, both addresses, #K and the time under a secret of this generation of puzzles, so that an I2 alone shows
//! which R1 it answers, its difficulty, and when that R1 was sent. R1s are signed once for each generation, group and difficulty. Under
//! load the difficulty rises, but memory use does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use core::net::IpAddr;

use bytes::Bytes;
use holdover_base::{Duration, Instant};

use super::connectivity::offered;
use super::local::{Local, find, missing, value};
use super::rate::{Rate, SourceRates};
use super::{Dropped, HostConfig};
use crate::codec::{Builder, HipPacket, PacketType, Parameter, Puzzle, R1Counter, kind, map};
use crate::crypto::{DhGroup, DhKeyPair, MAX_DIFFICULTY, lifetime_to_wire, verify_solution};
use crate::identity::{Hit, HitSuite};

/// Time stamps in puzzles count 32nds of a second since the start of the generation: 12 bits, 128 s.
const TICK: Duration = Duration::from_nanos(1_000_000_000 / 32);
const TICK_BITS: u16 = 12;
/// The longest time for which puzzles are handed out: they are accepted for twice as long, and time stamps must not wrap.
const MAX_R1_LIFETIME: Duration = Duration::from_secs(60);

/// #K under load, before it rises with the load: some thousand attempts, a millisecond or so.
const LOADED_DIFFICULTY: u8 = 10;

#[derive(Clone)]
pub(super) struct Responder {
    counter: u64,
    /// The current one last; at most two.
    generations: Vec<Generation>,
    /// I1s, and I2s with a valid solution: without load these are free.
    i1s: Load,
    i2s: Load,
    /// R1s sent.
    r1s: Rate,
    /// R1s sent to a network, and its I2s with a valid solution.
    sources: SourceRates,
}

#[derive(Clone)]
struct Generation {
    counter: u64,
    secret: [u8; 32],
    since: Instant,
    pairs: BTreeMap<u8, Arc<DhKeyPair>>,
    /// R1s by group and difficulty.
    signed: BTreeMap<(u8, u8), Builder>,
}

/// Packets in this second and the one before.
#[derive(Clone, Default)]
struct Load {
    second: u64,
    count: u32,
    before: u32,
}

/// A puzzle of this host that an I2 solves.
pub(super) struct Solved<'a> {
    /// When its R1 was sent, rounded down.
    pub(super) issued_at: Instant,
    /// The key pair of that R1.
    pub(super) pair: &'a Arc<DhKeyPair>,
    /// The initiator's public value.
    pub(super) public: &'a Bytes,
}

impl Responder {
    pub(super) fn new(config: &HostConfig, sources: SourceRates) -> Self {
        let (counter, generations) = (config.r1_counter, Vec::new());
        Self { counter, generations, i1s: Load::default(), i2s: Load::default(), r1s: Rate::default(), sources }
    }

    /// The R1 in answer to an I1 of `initiator`, which was seen at this address by this host or a server.
    pub(super) fn answer(
        &mut self,
        local: &mut Local,
        now: Instant,
        initiator: Hit,
        addresses: (IpAddr, IpAddr),
        seen_at: IpAddr,
        offered: &[u8],
    ) -> Result<Builder, Dropped> {
        // RFC 7401 section 6.7. I1s of one network beyond its rate do not make the puzzles of others harder.
        if !self.sources.allows(now, seen_at, local.config.max_r1_per_source) {
            return Err(Dropped::Overload);
        }
        self.i1s.note(now);
        let rate = self.i1s.rate(now).max(self.i2s.rate(now));
        if !self.r1s.allows(now, local.config.max_r1_per_s) {
            return Err(Dropped::Overload);
        }
        // Without a common group R1 shows this host's groups (RFC 7401 section 6.7, step 4).
        let groups = &local.config.groups;
        let group = groups.iter().find(|group| offered.contains(&group.id())).or(groups.first()).copied();
        let group = group.ok_or(value(kind::DH_GROUP_LIST))?;
        let difficulty = difficulty(&local.config, rate);
        let generation = self.current(local, now);
        let mut r1 = generation.signed_r1(local, group, difficulty)?;
        let ticks = (now.saturating_since(generation.since).as_nanos() / TICK.as_nanos()) as u16;
        let opaque = ((generation.counter as u16) << TICK_BITS | ticks).to_be_bytes();
        let random = generation.random(local.keys.hit(), initiator, addresses, difficulty, opaque);
        let lifetime = lifetime_to_wire(lifetime(&local.config));
        r1.address_to(initiator, &Puzzle { difficulty, lifetime, opaque, random: Bytes::from(random) });
        Ok(r1)
    }

    /// Checks the puzzle in an I2: it is this host's, for this initiator at this address, not expired, and solved. The following steps take
    /// time, so they count as load.
    pub(super) fn check<'a>(
        &'a mut self,
        local: &Local,
        now: Instant,
        i2: &'a HipPacket,
        addresses: (IpAddr, IpAddr),
        seen_at: IpAddr,
    ) -> Result<Solved<'a>, Dropped> {
        let solution = find!(i2, Solution).ok_or(missing(kind::SOLUTION))?;
        let opaque = u16::from_be_bytes(solution.opaque);
        let generation = self.generations.iter().rev();
        let generation = generation.into_iter().find(|it| it.counter as u16 & 0xf == opaque >> TICK_BITS);
        let generation = generation.ok_or(Dropped::StalePuzzle)?;
        let issued_at = generation.since + TICK * u64::from(opaque & ((1 << TICK_BITS) - 1));
        let fresh = now < issued_at + lifetime(&local.config) * 2;
        let expected = generation.random(local.hit, i2.sender, addresses, solution.difficulty, solution.opaque);
        if !fresh || solution.random[..] != expected[..] {
            return Err(Dropped::StalePuzzle);
        }
        if find!(i2, R1Counter).is_some_and(|it| it.counter != generation.counter) {
            return Err(Dropped::StalePuzzle);
        }
        let rhash = local.keys.identity().algorithm().suite().rhash();
        if !verify_solution(rhash, solution.difficulty, &solution.random, i2.sender, local.hit, &solution.solution) {
            return Err(Dropped::Unsolved);
        }
        if !self.sources.allows(now, seen_at, local.config.max_r1_per_source) {
            return Err(Dropped::Overload);
        }
        self.i2s.note(now);
        let dh = i2.find(|parameter| {
            if let Parameter::DiffieHellman { group, public } = parameter { Some((group, public)) } else { None }
        });
        let (group, public) = dh.ok_or(missing(kind::DIFFIE_HELLMAN))?;
        let pair = generation.pairs.get(group).ok_or(value(kind::DIFFIE_HELLMAN))?;
        Ok(Solved { issued_at, pair, public })
    }

    /// The counter of the next generation.
    pub(super) const fn next_counter(&self) -> u64 {
        self.counter
    }

    /// The number of signed R1s and key pairs kept.
    pub(super) fn kept(&self) -> usize {
        self.generations.iter().map(|generation| generation.signed.len() + generation.pairs.len()).sum()
    }

    fn current(&mut self, local: &mut Local, now: Instant) -> &mut Generation {
        let lifetime = lifetime(&local.config);
        if self.generations.last().is_none_or(|last| now.saturating_since(last.since) >= lifetime) {
            let secret = local.random();
            let (pairs, signed) = (BTreeMap::new(), BTreeMap::new());
            self.generations.push(Generation { counter: self.counter, secret, since: now, pairs, signed });
            self.counter = self.counter.wrapping_add(1);
            let excess = self.generations.len().saturating_sub(2);
            self.generations.drain(..excess);
        }
        let last = self.generations.len() - 1;
        &mut self.generations[last]
    }
}

impl Generation {
    /// #I: as long as the hash.
    fn random(
        &self,
        local: Hit,
        initiator: Hit,
        (from, to): (IpAddr, IpAddr),
        difficulty: u8,
        opaque: [u8; 2],
    ) -> Vec<u8> {
        let rhash = local.suite().map_or(crate::crypto::Rhash::Sha256, HitSuite::rhash);
        let [high, low] = opaque;
        let parts = [initiator.0.octets(), local.0.octets(), map(from).octets(), map(to).octets()].concat();
        rhash.mac(&self.secret, &[&parts[..], &[difficulty, high, low]].concat())
    }

    /// The R1 of a group and difficulty, without receiver, #I and opaque data.
    fn signed_r1(&mut self, local: &mut Local, group: DhGroup, difficulty: u8) -> Result<Builder, Dropped> {
        let key = (group.id(), difficulty);
        if let Some(r1) = self.signed.get(&key) {
            return Ok(r1.clone());
        }
        let pair =
            self.pairs.entry(group.id()).or_insert_with(|| Arc::new(DhKeyPair::generate(group, &mut *local.rng)));
        let config = &local.config;
        let lifetime = lifetime_to_wire(lifetime(config));
        let random = Bytes::from(vec![0; local.keys.identity().algorithm().suite().rhash().output_len()]);
        let mut r1 = Builder::new(PacketType::R1, local.hit, Hit::UNSPECIFIED);
        let services = config.server.as_ref().map(|server| server.offer());
        let parameters = [
            Parameter::R1Counter(R1Counter::new(self.counter)),
            Parameter::Puzzle(Puzzle { difficulty, lifetime, opaque: [0; 2], random }),
            Parameter::DhGroupList(config.groups.iter().map(|group| group.id()).collect()),
            Parameter::DiffieHellman { group: group.id(), public: pair.public() },
            Parameter::HipCipher(config.ciphers.iter().map(|cipher| cipher.id()).collect()),
            Parameter::HostId(local.host_id.clone()),
            Parameter::HitSuiteList(HitSuite::ALL.iter().map(|suite| suite.wire_id()).collect()),
            Parameter::TransportFormatList(vec![kind::ESP_TRANSFORM]),
            Parameter::EspTransform(config.suites.iter().map(|suite| suite.id()).collect()),
        ];
        let mut parameters: Vec<Parameter> = parameters.into_iter().chain(services).chain(offered(config)).collect();
        parameters.sort_by_key(Parameter::kind);
        for parameter in &parameters {
            r1.push(parameter)?;
        }
        let signature = local.keys.sign(r1.covered(), &mut *local.rng);
        r1.push(&Parameter::HipSignature2(signature))?;
        self.signed.insert(key, r1.clone());
        Ok(r1)
    }
}

impl Load {
    /// Counts a packet.
    fn note(&mut self, now: Instant) {
        self.begin(now);
        self.count = self.count.saturating_add(1);
    }

    /// The greater of this second's and the last one's number.
    fn rate(&mut self, now: Instant) -> u32 {
        self.begin(now);
        self.count.max(self.before)
    }

    fn begin(&mut self, now: Instant) {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            self.before = if second == self.second + 1 { self.count } else { 0 };
            (self.second, self.count) = (second, 0);
        }
    }
}

fn lifetime(config: &HostConfig) -> Duration {
    config.r1_lifetime.min(MAX_R1_LIFETIME)
}

/// #K at a rate of I1s or I2s: from the threshold on the puzzle of a loaded host, and one bit more each time that the rate doubles.
fn difficulty(config: &HostConfig, rate: u32) -> u8 {
    let Some(doublings) = (rate / config.load_threshold.max(1)).checked_ilog2() else { return config.difficulty };
    let loaded = config.difficulty.max(LOADED_DIFFICULTY);
    loaded.saturating_add(doublings as u8 + 1).min(MAX_DIFFICULTY.max(config.difficulty))
}
