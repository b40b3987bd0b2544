//! The identities of a daemon: this host's own one, and those that it holds for hosts without HIP.
//!
//! Each has a [`Core`], with associations of its own. They share this host's addresses, its file of peers and its sockets. A HIP packet shows
//! its identity by the receiver's HIT, ESP by the low byte of the SPI ([`SpiPart`]), and a packet of a host by its source address.

use std::collections::{BTreeMap, VecDeque};

use core::net::IpAddr;

use holdover_base::Instant;
use holdover_hip::host::SpiPart;
use holdover_hip::identity::{Hit, KeyPair};
use holdover_mobility::hold_open::HoldOpenConfig;
use holdover_wire::{Packet, Payload, Quoted};
use rand_core::CryptoRng;

use super::encapsulation::{Receiver, any_receiver_of};
use super::{Core, CoreConfig, Decrypted, Incoming, IpVersion, LsiPrefix, Note, Outgoing, ProgramAddresses};
use crate::files::Peers;
use crate::status::{Counters, HostStatus};

/// The low byte of this host's own SPIs.
const OWN: u8 = 0;

/// Where packets that are not between HITs come from and go to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// This host's programs.
    Programs,
    /// Hosts without HIP.
    Hosts,
}

/// A host without HIP.
#[derive(Debug)]
pub struct PlainHost {
    /// Its name.
    pub name: String,
    /// Its addresses, at most one of each IP version. Connections from peers go to the first one.
    pub addresses: Vec<IpAddr>,
    /// Its identity.
    pub keys: KeyPair,
}

/// A host and its core.
#[derive(Debug)]
struct ProxiedCore {
    name: String,
    addresses: Vec<IpAddr>,
    core: Core,
}

/// See the module's documentation. The order of calls is that of [`Core`].
#[derive(Debug)]
pub struct Identities {
    own: Core,
    config: CoreConfig,
    prefix: Option<LsiPrefix>,
    peers: Peers,
    /// By the low byte of their SPIs.
    hosts: BTreeMap<u8, ProxiedCore>,
    by_hit: BTreeMap<Hit, u8>,
    by_address: BTreeMap<IpAddr, u8>,
    /// The last packets of hosts that were removed.
    closing: VecDeque<Outgoing>,
    /// The counters of hosts that were removed.
    former: Counters,
    unknown_hosts: u64,
}

impl Identities {
    /// This host's own identity. `prefix` is that of LSIs, if IPv4 is to be translated for hosts. `rng` must be cryptographic.
    pub fn new(keys: KeyPair, config: CoreConfig, prefix: Option<LsiPrefix>, rng: Box<dyn CryptoRng + Send>) -> Self {
        Self {
            own: Core::new(keys, with_spis(&config, OWN), rng),
            config,
            prefix,
            peers: Peers::default(),
            hosts: BTreeMap::new(),
            by_hit: BTreeMap::new(),
            by_address: BTreeMap::new(),
            closing: VecDeque::new(),
            former: Counters::default(),
            unknown_hosts: 0,
        }
    }

    /// This host's own identity.
    pub const fn own(&self) -> &Core {
        &self.own
    }

    /// The same, to be set up.
    pub const fn own_mut(&mut self) -> &mut Core {
        &mut self.own
    }

    fn cores(&self) -> impl Iterator<Item = &Core> {
        core::iter::once(&self.own).chain(self.hosts.values().map(|host| &host.core))
    }

    fn cores_mut(&mut self) -> impl Iterator<Item = &mut Core> {
        core::iter::once(&mut self.own).chain(self.hosts.values_mut().map(|host| &mut host.core))
    }

    /// Sets the hosts without HIP: at most [`MAX_HOSTS`](crate::files::MAX_HOSTS), with HITs and addresses that differ. Associations of others end.
    pub fn set_hosts(&mut self, now: Instant, hosts: Vec<PlainHost>, rng: impl Fn() -> Box<dyn CryptoRng + Send>) {
        // A host that comes back later may have used some of these numbers.
        self.config.host.r1_counter = self.next_r1_counter();
        let gone: Vec<u8> = self
            .hosts
            .iter()
            .filter(|(_, proxied)| hosts.iter().all(|host| host.keys.hit() != proxied.core.hit()))
            .map(|(&byte, _)| byte)
            .collect();
        for byte in gone {
            if let Some(ProxiedCore { mut core, .. }) = self.hosts.remove(&byte) {
                core.close_all(now);
                self.closing.extend(core::iter::from_fn(|| core.poll_outgoing()));
                self.former += *core.counters();
            }
        }
        for host in hosts {
            self.set_host(now, host, &rng);
        }
        self.by_hit = self.hosts.iter().map(|(&byte, proxied)| (proxied.core.hit(), byte)).collect();
        let addresses =
            |(&byte, proxied): (&u8, &ProxiedCore)| proxied.addresses.clone().into_iter().map(move |it| (it, byte));
        self.by_address = self.hosts.iter().flat_map(addresses).collect();
    }

    fn set_host(&mut self, now: Instant, host: PlainHost, rng: impl Fn() -> Box<dyn CryptoRng + Send>) {
        let PlainHost { name, addresses, keys } = host;
        let hit = keys.hit();
        let known = self.hosts.values_mut().find(|proxied| proxied.core.hit() == hit);
        let proxied = match known {
            Some(proxied) if proxied.addresses == addresses => return proxied.name = name,
            Some(proxied) => {
                (proxied.name, proxied.addresses) = (name, addresses);
                proxied
            }
            None => {
                let Some(byte) = (OWN + 1..=u8::MAX).find(|byte| !self.hosts.contains_key(byte)) else { return };
                let core = Core::new(keys, without_services(with_spis(&self.config, byte)), rng());
                self.hosts.entry(byte).or_insert(ProxiedCore { name, addresses, core })
            }
        };
        let (known_as, default) = program_addresses(&proxied.addresses);
        proxied.core.stand_for(known_as, default, self.prefix);
        proxied.core.set_peers(now, &self.peers);
        proxied.core.set_locators(now, self.own.locators());
    }

    /// As [`Core::set_peers`], for all identities.
    pub fn set_peers(&mut self, now: Instant, peers: &Peers) {
        self.peers = peers.clone();
        self.cores_mut().for_each(|core| core.set_peers(now, peers));
    }

    /// As [`Core::set_locators`], for all identities.
    pub fn set_locators(&mut self, now: Instant, locators: &[IpAddr]) {
        self.cores_mut().for_each(|core| core.set_locators(now, locators));
    }

    /// As [`Core::set_hold`], for all identities.
    pub fn set_hold(&mut self, hold: Option<HoldOpenConfig>) {
        self.config.hold = hold;
        self.cores_mut().for_each(|core| core.set_hold(hold));
    }

    /// As [`Core::set_path_mtu`], for all identities.
    pub fn set_path_mtu(&mut self, now: Instant, address: IpAddr, mtu: u32) {
        self.cores_mut().for_each(|core| core.set_path_mtu(now, address, mtu));
    }

    /// As [`Core::handle_too_big`]: the path is that of all identities.
    pub fn handle_too_big(&mut self, now: Instant, quoted: &Quoted, mtu: u32) {
        let believed = self.cores_mut().find_map(|core| core.handle_too_big(now, quoted, mtu));
        if let Some(mtu) = believed {
            self.set_path_mtu(now, quoted.dst, mtu);
        }
    }

    /// As [`Core::peer_addresses`], for all identities.
    pub fn peer_addresses(&self) -> Vec<IpAddr> {
        let mut seen = std::collections::BTreeSet::new();
        let mut addresses: Vec<IpAddr> = self.cores().flat_map(Core::peer_addresses).collect();
        addresses.retain(|&address| seen.insert(address));
        addresses
    }

    /// Ends all associations, and opens no more.
    pub fn close_all(&mut self, now: Instant) {
        self.cores_mut().for_each(|core| core.close_all(now));
    }

    /// Whether a CLOSE is still unanswered.
    pub fn is_closing(&self) -> bool {
        self.cores().any(Core::is_closing)
    }

    /// A packet of this host's programs, or of a host without HIP, for a peer.
    pub fn handle_inner(&mut self, now: Instant, side: Side, packet: Packet) {
        // An error about a packet of a peer for a host is reported to that peer by the host itself, by a router at its link, or by the kernel
        // of this host. Forwarded errors of anyone else on the programs' side are no packets of a host.
        let may_report = side == Side::Hosts || self.is_own_address(packet.src);
        let reported = match &packet.payload {
            Payload::IcmpError(error) if may_report => {
                error.quoted().ok().filter(|quoted| quoted.src == packet.dst).map(|quoted| quoted.dst)
            }
            _ => None,
        };
        let of_host = reported.filter(|dst| self.by_address.contains_key(dst));
        let src = of_host.or_else(|| (side == Side::Hosts).then_some(packet.src));
        let host = src.and_then(|src| self.by_address.get(&src)).and_then(|byte| self.hosts.get_mut(byte));
        let dst = packet.dst;
        match (host, src, side) {
            (Some(host), Some(src), _) => host.core.handle_inner(now, Packet { src, ..packet }),
            (_, _, Side::Programs) => self.own.handle_inner(now, packet),
            // This host's kernel reports multicast groups on the device.
            (_, _, Side::Hosts) => self.unknown_hosts += u64::from(!dst.is_multicast()),
        }
    }

    /// As [`Core::cut_to`], for a packet between these addresses that [`Self::handle_inner`] would take.
    pub fn cut_to(&mut self, now: Instant, side: Side, (src, dst): (IpAddr, IpAddr), len: usize) -> Option<usize> {
        match side {
            Side::Programs => self.own.cut_to(now, dst, len),
            Side::Hosts => self.hosts.get_mut(self.by_address.get(&src)?)?.core.cut_to(now, dst, len),
        }
    }

    /// Whether this is an address by which this host's kernel communicates with peers.
    fn is_own_address(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.own.lsi() == Some(address),
            IpAddr::V6(address) => self.own.hit().0 == address,
        }
    }

    /// As [`Core::begin_network`].
    pub fn begin_network(&mut self, now: Instant, packet: Packet) -> Option<Incoming> {
        if let Some(host) = self.host_for(&packet) {
            return host.core.begin_network(now, packet);
        }
        let (before, src) = (self.own.counters().unknown_spi, packet.src);
        let incoming = self.own.begin_network(now, packet);
        if self.own.counters().unknown_spi > before {
            // It may have been for any of them, before a restart.
            self.hosts.values_mut().for_each(|host| host.core.reconnect_on_unknown_spi(now, src));
        }
        incoming
    }

    /// As [`Core::finish_network`].
    pub fn finish_network(&mut self, now: Instant, decrypted: Decrypted) {
        match self.host_for(&decrypted.packet) {
            Some(host) => host.core.finish_network(now, decrypted),
            None => self.own.finish_network(now, decrypted),
        }
    }

    /// As [`Core::handle_network`].
    pub fn handle_network(&mut self, now: Instant, packet: Packet) {
        if let Some(incoming) = self.begin_network(now, packet) {
            self.finish_network(now, incoming.decrypt());
        }
    }

    /// The host for which a packet of the network is; `None` for this host itself, which also forwards packets of others.
    fn host_for(&mut self, packet: &Packet) -> Option<&mut ProxiedCore> {
        match any_receiver_of(packet)? {
            Receiver::Hit(hit) => self.by_hit.get(&hit).and_then(|byte| self.hosts.get_mut(byte)),
            Receiver::Spi(spi) => {
                let [.., byte] = spi.to_be_bytes();
                self.hosts.get_mut(&byte).filter(|proxied| proxied.core.has_inbound(spi))
            }
        }
    }

    /// As [`Core::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.cores_mut().for_each(|core| core.handle_timeout(now));
    }

    /// As [`Core::poll_outgoing`].
    pub fn poll_outgoing(&mut self) -> Option<Outgoing> {
        self.closing.pop_front().or_else(|| self.cores_mut().find_map(Core::poll_outgoing))
    }

    /// As [`Core::poll_inner`], with the receiving side.
    pub fn poll_inner(&mut self) -> Option<(Side, Packet)> {
        let own = self.own.poll_inner().map(|packet| (Side::Programs, packet));
        own.or_else(|| self.hosts.values_mut().find_map(|host| host.core.poll_inner()).map(|it| (Side::Hosts, it)))
    }

    /// As [`Core::poll_note`], with the identity.
    pub fn poll_note(&mut self) -> Option<(Hit, Note)> {
        self.cores_mut().find_map(|core| core.poll_note().map(|note| (core.hit(), note)))
    }

    /// As [`Core::poll_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.cores().filter_map(Core::poll_timeout).min()
    }

    /// The greatest of the identities' counters for their next puzzles.
    pub fn next_r1_counter(&self) -> u64 {
        self.cores().map(Core::next_r1_counter).max().unwrap_or(self.config.host.r1_counter)
    }

    /// As [`Core::esp_keys`], for an identity.
    pub fn esp_keys(&self, identity: Hit, peer: Hit) -> Option<String> {
        self.cores().find(|core| core.hit() == identity)?.esp_keys(peer)
    }

    /// The packet counters of all identities.
    pub fn counters(&self) -> Counters {
        let mut sum = self.former;
        self.cores().for_each(|core| sum += *core.counters());
        sum
    }

    /// How many packets came from the interface of hosts with an address that has no identity.
    pub const fn unknown_hosts(&self) -> u64 {
        self.unknown_hosts
    }

    /// The name of the host without HIP with this identity; `None` for this host itself.
    pub fn name(&self, identity: Hit) -> Option<&str> {
        let proxied = self.by_hit.get(&identity).and_then(|byte| self.hosts.get(byte));
        proxied.map(|proxied| proxied.name.as_str())
    }

    /// The status of each host without HIP, by name.
    pub fn host_status(&self) -> Vec<HostStatus> {
        let status = |proxied: &ProxiedCore| HostStatus {
            name: proxied.name.clone(),
            hit: proxied.core.hit().to_string(),
            addresses: proxied.addresses.clone(),
            peers: proxied.core.peer_status(),
        };
        let mut hosts: Vec<HostStatus> = self.hosts.values().map(status).collect();
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        hosts
    }
}

fn with_spis(config: &CoreConfig, low_byte: u8) -> CoreConfig {
    let mut config = config.clone();
    config.host.spis = SpiPart::with_low_byte(low_byte);
    config
}

/// Only this host itself serves others, and accepts unknown peers.
fn without_services(mut config: CoreConfig) -> CoreConfig {
    config.host.server = None;
    config.host.accept_unknown_peers = false;
    config
}

/// The addresses of each version, and the version of the first one.
fn program_addresses(addresses: &[IpAddr]) -> (ProgramAddresses, IpVersion) {
    let mut found = ProgramAddresses { v4: None, v6: None };
    for &address in addresses {
        match address {
            IpAddr::V4(address) => found.v4 = Some(address),
            IpAddr::V6(address) => found.v6 = Some(address),
        }
    }
    let is_v6 = addresses.first().is_some_and(IpAddr::is_ipv6);
    (found, if is_v6 { IpVersion::V6 } else { IpVersion::V4 })
}
