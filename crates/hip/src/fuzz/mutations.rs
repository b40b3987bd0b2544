//! Exchanges in which packets are damaged, replayed, or made by a host that lies: with its keys, so that MACs and signatures are valid.
//!
//! Exchanges of every kind are rehearsed once. A case continues a copy of one of them from the moment before a packet arrives, so that it
//! costs only the cryptography of the rest.

mod lie;
mod scenarios;
mod world;

use std::collections::BTreeSet;

use holdover_base::Duration;
use holdover_wire::{Packet, Payload};

use self::lie::{Changed, change, split};
use self::scenarios::{Moment, moments};
use self::world::{ANNE, BOB, HOSTS, SERVER, STRANGER, World, elsewhere};
use crate::host::{Census, Tlv};

/// Retransmissions have repaired all losses within this time.
const REPAIR: Duration = Duration::from_secs(12);
/// A host that ends an association, or gives up, while its peer is unreachable leaves the peer's half behind, which ends after this time
/// without use.
const DISUSE: Duration = Duration::from_secs(20 * 60);
/// After so long without a network there is no association.
const SILENCE: Duration = Duration::from_secs(3 * 3600);
/// Every so many cases end with such a silence.
const SILENCES: usize = 4;
/// Datagrams in each direction that are tried, one after another.
const ATTEMPTS: u32 = 3;
/// The most packets that a changed one causes to addresses that no host has: four addresses are checked with six packets each, an
/// announcement goes to one of them, and an exchange begun from there has some more.
const MOST_TO_NOBODY: usize = 40;

/// Bytes that decide; zeros once they are used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number below a small bound; 0 if that is 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    /// The same for bounds above 256.
    fn below_many(&mut self, bound: usize) -> usize {
        usize::from(u16::from_be_bytes([self.byte(), self.byte()])) % bound.max(1)
    }

    /// Up to 31 bytes.
    fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(32)).map(|_| self.byte()).collect()
    }
}

/// The outcome of a case.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    /// Changed packets.
    pub changed: usize,
    /// Those that a host made with its keys.
    pub lies: usize,
    /// Changed packets that were accepted.
    pub accepted: usize,
    /// Both peers have keys at the end, and data pass.
    pub is_established: bool,
}

/// The rehearsed exchanges.
pub struct Mutations {
    moments: Vec<Moment>,
    /// Parameters of all exchanges.
    pool: Vec<Tlv>,
}

impl Default for Mutations {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for Mutations {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Mutations").field("moments", &self.moments.len()).finish_non_exhaustive()
    }
}

impl Mutations {
    /// Rehearses all exchanges.
    pub fn new() -> Self {
        let moments = moments();
        let payloads = moments.iter().filter_map(|moment| match &moment.flight.packet.payload {
            Payload::Other { payload, .. } => split(payload),
            _ => None,
        });
        let mut seen = BTreeSet::new();
        let pool = payloads.flat_map(|(_, parameters)| parameters);
        let pool = pool.filter(|parameter| seen.insert((parameter.kind, parameter.contents.clone()))).collect();
        Self { moments, pool }
    }

    /// The number of moments from which a case may continue.
    pub fn moments(&self) -> usize {
        self.moments.len()
    }

    /// Runs the case in `data`, which chooses the exchange, the packets to change and how, and a host's action afterwards. Nothing panics
    /// or runs for ever; state is bounded; no host has an association with a host that was not let in; keys exist on one side only if that
    /// side was lied to; a peer is not verified at an address that it never had; associations between other hosts than the liar continue;
    /// and after a long silence no keys are left.
    pub fn run(&self, data: &[u8]) -> Outcome {
        let mut input = Input(data);
        let number = input.below_many(self.moments.len());
        let mut case = Case::new(&self.moments[number]);
        for _ in 0..=input.below(3) {
            let Some(flight) = case.world.intercept() else { break };
            let changed = if input.below(16) == 0 {
                Changed::on_the_way(self.earlier(number, &mut input))
            } else {
                change(&mut case.world, &flight, &self.pool, &mut input)
            };
            case.deliver(flight.from, &changed);
            if input.below(4) == 0 {
                case.world.deliver(&flight.packet);
            }
        }
        let has_acted = case.act(&mut input);
        case.world.run_for(REPAIR);
        case.judge(has_acted);
        if input.below(SILENCES) == 0 {
            case.fall_silent();
        }
        case.outcome
    }

    /// A packet of the same exchange that was delivered before.
    fn earlier(&self, number: usize, input: &mut Input<'_>) -> Packet {
        let scenario = self.moments[number].scenario;
        let first = self.moments.iter().position(|it| it.scenario == scenario).unwrap_or(number);
        self.moments[first + input.below(number - first + 1)].flight.packet.clone()
    }
}

/// A copy of a rehearsed exchange that goes another way.
struct Case {
    scenario: &'static str,
    world: World,
    /// Pairs with keys at the start.
    pairs: Vec<(usize, usize)>,
    liars: BTreeSet<usize>,
    outcome: Outcome,
}

impl Case {
    fn new(moment: &Moment) -> Self {
        let world = moment.world.fork();
        let pairs = pairs().filter(|&(one, other)| world.is_usable(one, other) && world.is_usable(other, one));
        let (pairs, liars) = (pairs.collect(), BTreeSet::new());
        Self { scenario: moment.scenario, world, pairs, liars, outcome: Outcome::default() }
    }

    fn deliver(&mut self, from: usize, changed: &Changed) {
        let is_accepted = self.world.deliver(&changed.packet);
        self.outcome.changed += 1;
        self.outcome.accepted += usize::from(is_accepted);
        self.outcome.lies += usize::from(changed.is_lie);
        // A lie that is refused changes no more than a loss.
        if changed.is_lie && is_accepted {
            self.liars.insert(from);
        }
    }

    /// An owner does something. Returns whether two hosts may be apart for it.
    fn act(&mut self, input: &mut Input<'_>) -> bool {
        let (one, world) = (input.below(2), &mut self.world);
        let other = ANNE + BOB - one;
        let (now, peer) = (world.now, world.hit(other));
        match input.below(8) {
            0 => world.connect(one, other),
            1 => drop(world.hosts[one].close(now, peer)),
            2 => drop(world.hosts[one].rekey(now, peer, input.below(2) == 0)),
            3 => {
                world.move_to(one, &[elsewhere(one)]);
                return true;
            }
            4 => drop(world.send_data(one, other)),
            _ => {}
        }
        false
    }

    fn judge(&mut self, has_moved: bool) {
        let scenario = self.scenario;
        for index in 0..HOSTS {
            self.count(index);
            for peer in 0..HOSTS {
                self.judge_addresses(index, peer);
            }
        }
        let (packets, bytes) = self.world.to_nobody;
        assert!(packets <= MOST_TO_NOBODY * self.outcome.changed, "{scenario}: {packets} packets to nobody");
        assert!(bytes <= self.world.accepted_bytes, "{scenario}: {bytes} bytes of data to nobody");
        // Associations between other hosts than the liar continue.
        let is_honest = |&(one, other): &(usize, usize)| {
            !self.liars.contains(&one) && !self.liars.contains(&other) && (one, other) != (ANNE, BOB)
        };
        let others: Vec<_> = self.pairs.iter().copied().filter(is_honest).collect();
        for (one, other) in others {
            assert!(self.data_pass(one, other), "{scenario}: {one} and {other} are apart, liars {:?}", self.liars);
        }
        let are_peers = self.world.is_usable(ANNE, BOB) && self.world.is_usable(BOB, ANNE);
        self.outcome.is_established = are_peers && self.data_pass(ANNE, BOB);
        // The stranger is no peer of any host: what it sends must not interrupt an association.
        let are_honest = self.liars.iter().all(|&liar| liar == STRANGER);
        let is_repaired = self.outcome.is_established || !are_peers || has_moved || !are_honest;
        assert!(is_repaired, "{scenario}: both have keys, and data do not pass");
        if are_honest && !self.do_keys_agree() {
            self.world.run_for(DISUSE);
            assert!(self.do_keys_agree(), "{scenario}: a host has keys with another one that has none");
        }
    }

    /// A host's state is bounded, and so are its associations.
    fn count(&self, index: usize) {
        let census = self.world.hosts[index].census();
        let Census { associations, spis, kept, opportunistic, addresses, checks, .. } = census;
        let is_bounded = associations < HOSTS && spis <= 3 * associations && opportunistic == 0 && kept <= 2 * 2 * 6;
        let is_bounded = is_bounded && addresses <= 8 && checks <= 8 && census.own_permissions <= associations;
        let is_bounded = is_bounded && census.clients <= associations && census.permissions <= 4 * census.clients;
        assert!(is_bounded, "{}: host {index}: {census:?}", self.scenario);
        assert!(index == STRANGER || !self.world.is_usable(index, STRANGER), "{}: the stranger is in", self.scenario);
    }

    /// A peer is verified only at addresses that it has had, or at its server's.
    fn judge_addresses(&self, index: usize, peer: usize) {
        let (world, hit) = (&self.world, self.world.hit(peer));
        for address in world.hosts[index].verified_addresses(hit) {
            let is_own = world.owners.get(&address) == Some(&peer);
            assert!(
                is_own || world.hosts[index].is_relay(hit, address),
                "{}: host {index} has verified {peer} at {address}, liars {:?}",
                self.scenario,
                self.liars
            );
        }
    }

    /// Whether each host's keys are those of its peer.
    fn do_keys_agree(&self) -> bool {
        let world = &self.world;
        let is_shared = |one: usize, other: usize| {
            let spi = world.hosts[one].security_associations(world.hit(other)).map(|(outbound, _)| outbound.spi());
            let has_inbound = spi.is_some_and(|spi| world.hosts[other].has_inbound(spi));
            !world.is_usable(one, other) || world.is_usable(other, one) && has_inbound
        };
        pairs().all(|(one, other)| is_shared(one, other) && is_shared(other, one))
    }

    /// Whether data pass in both directions. Within the credit of an unverified address, data may be lost there until the peer's own data
    /// arrive.
    fn data_pass(&mut self, one: usize, other: usize) -> bool {
        (0..ATTEMPTS).any(|_| {
            let sent = [self.world.send_data(one, other), self.world.send_data(other, one)];
            self.world.run_for(Duration::from_secs(1));
            sent.into_iter().all(|number| number.is_some_and(|number| self.world.has_arrived(number)))
        })
    }

    fn fall_silent(&mut self) {
        self.world.cut();
        self.world.run_for(SILENCE);
        for index in 0..HOSTS {
            self.count(index);
            let host = &self.world.hosts[index];
            assert_eq!(host.inbound_spis(), 0, "{}: host {index} has keys left", self.scenario);
            assert_eq!(host.clients(), (0, 0), "{}: host {index} has clients left", self.scenario);
        }
    }
}

/// All pairs of hosts that know each other.
fn pairs() -> impl Iterator<Item = (usize, usize)> {
    [(ANNE, BOB), (ANNE, SERVER), (BOB, SERVER)].into_iter()
}
