//! A server's registrations (RFC 8003 sections 4 and 5), and what its clients permit to be forwarded to them (RFC 9028 section 4.12.1).

use std::collections::{BTreeMap, BTreeSet};

use holdover_base::{Duration, Instant};

use super::rate::Rate;
use crate::codec::{Parameter, PeerPermission, RegFailed, RegInfo, RegList};
use crate::identity::Hit;

/// How long a permission is kept that is not renewed (RFC 9028 section 4.12.1).
const PERMISSION_LIFETIME: Duration = Duration::from_secs(300);
/// Registration failure types (RFC 8003 section 4.5, RFC 9028 section 8).
pub(super) const UNAVAILABLE: u8 = 1;
const INSUFFICIENT_RESOURCES: u8 = 2;
const SIMULTANEOUS_USE_PROHIBITED: u8 = 9;
/// The registration type that asks for REG_FROM alone (RFC 9028 section 4.2).
const CANDIDATE_DISCOVERY: u8 = 4;

/// A service of a registrar (the registry "Registration Types").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Service {
    /// Forwards I1 and UPDATE (RFC 8004 section 4.1).
    Rendezvous,
    /// Forwards all HIP packets, in UDP (RFC 9028 section 5.9).
    RelayHip,
    /// Forwards ESP, in UDP (RFC 9028 section 5.9).
    RelayEsp,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Rendezvous, Self::RelayHip, Self::RelayEsp];

    /// Its registration type.
    pub const fn number(self) -> u8 {
        match self {
            Self::Rendezvous => 1,
            Self::RelayHip => 2,
            Self::RelayEsp => 3,
        }
    }

    /// The service with a registration type.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.number() == number)
    }
}

/// The configuration of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerConfig {
    /// Services on offer.
    pub services: Vec<Service>,
    /// The shortest and the longest lifetime of a registration (RFC 8003 section 5: 10 s and at least 120 s).
    pub lifetimes: (Duration, Duration),
    /// The most registered clients.
    pub max_clients: usize,
    /// The most permissions to forward data for each client.
    pub max_permissions: usize,
    /// The most HIP packets forwarded to and for a client in a second.
    pub max_hip_per_s: u32,
    /// The most ESP packets forwarded to and for a client in a second.
    pub max_esp_per_s: u32,
}

impl ServerConfig {
    /// These services, for a thousand clients.
    pub fn new(services: &[Service]) -> Self {
        Self {
            services: services.to_vec(),
            lifetimes: (Duration::from_secs(10), Duration::from_secs(3600)),
            max_clients: 1000,
            max_permissions: 64,
            max_hip_per_s: 100,
            max_esp_per_s: 50_000,
        }
    }

    /// REG_INFO of this server's R1s.
    pub(super) fn offer(&self) -> Parameter {
        let (min, max) = self.lifetimes;
        let discovery = self.services.contains(&Service::RelayHip).then_some(CANDIDATE_DISCOVERY);
        let types = self.services.iter().map(|service| service.number()).chain(discovery).collect();
        Parameter::RegInfo(RegInfo { min_lifetime: lifetime_to_wire(min), max_lifetime: lifetime_to_wire(max), types })
    }
}

/// 2^(n/8) s in nanoseconds.
const EIGHTHS: [u64; 8] = [
    1_000_000_000,
    1_090_507_733,
    1_189_207_115,
    1_296_839_555,
    1_414_213_562,
    1_542_210_825,
    1_681_792_831,
    1_834_008_086,
];

/// A registration's lifetime from its encoding: 2^((value - 64) / 8) s, and 0 for 0 (RFC 8003 section 4.1).
pub fn registration_lifetime(value: u8) -> Duration {
    if value == 0 {
        return Duration::ZERO;
    }
    let nanos = EIGHTHS[usize::from(value % 8)];
    // 64 is a multiple of 8.
    Duration::from_nanos(match i32::from(value / 8) - 8 {
        exponent @ 0.. => nanos << exponent,
        exponent => nanos >> -exponent,
    })
}

/// The longest encodable lifetime that is not above `lifetime`, and at least the shortest one that is not zero.
pub(super) fn lifetime_to_wire(lifetime: Duration) -> u8 {
    (1..=u8::MAX).rev().find(|&value| registration_lifetime(value) <= lifetime).unwrap_or(1)
}

/// The clients of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Registry {
    clients: BTreeMap<Hit, Registered>,
    /// By SPI and client, each with its expiry.
    permissions: BTreeMap<(u32, Hit), (PeerPermission, Instant)>,
}

/// A client.
#[derive(Clone, Debug, Default)]
struct Registered {
    services: BTreeMap<Service, Instant>,
    hip: Rate,
    esp: Rate,
}

impl Registry {
    /// The answers to requests: at most one REG_RESPONSE (RFC 8003 section 4.4), and a REG_FAILED for each reason.
    pub(super) fn register(
        &mut self,
        now: Instant,
        client: Hit,
        requests: &[&RegList],
        config: Option<&ServerConfig>,
    ) -> Vec<Parameter> {
        let (mut granted, mut cancelled) = (Vec::new(), Vec::new());
        let (mut least, mut failed) = (u8::MAX, BTreeMap::<u8, Vec<u8>>::new());
        let mut seen = BTreeSet::new();
        let is_requested = |service: Service| requests.iter().any(|it| it.types.contains(&service.number()));
        let prefers_relay = is_requested(Service::RelayHip) && !self.has(now, client, Service::Rendezvous);
        for request in requests {
            let lifetime = (request.lifetime > 0).then(|| registration_lifetime(request.lifetime));
            for &number in request.types.iter().filter(|it| seen.insert(**it)) {
                match self.register_for(now, client, number, lifetime, config, prefers_relay) {
                    Ok(Some(lifetime)) => {
                        granted.push(number);
                        least = least.min(lifetime_to_wire(lifetime));
                    }
                    Ok(None) => cancelled.push(number),
                    Err(failure) => failed.entry(failure).or_default().push(number),
                }
            }
        }
        let mut answers = Vec::new();
        if !granted.is_empty() {
            answers.push(Parameter::RegResponse(RegList { lifetime: least, types: granted }));
        } else if !cancelled.is_empty() {
            answers.push(Parameter::RegResponse(RegList { lifetime: 0, types: cancelled }));
        }
        answers.extend(failed.into_iter().map(|(failure, types)| Parameter::RegFailed(RegFailed { failure, types })));
        answers
    }

    /// Registers a client for a type, or cancels that without a lifetime. Returns the granted lifetime, or the reason of a refusal.
    fn register_for(
        &mut self,
        now: Instant,
        client: Hit,
        number: u8,
        lifetime: Option<Duration>,
        config: Option<&ServerConfig>,
        prefers_relay: bool,
    ) -> Result<Option<Duration>, u8> {
        let config = config.ok_or(UNAVAILABLE)?;
        let (least, most) = config.lifetimes;
        if number == CANDIDATE_DISCOVERY && config.services.contains(&Service::RelayHip) {
            // Answered by REG_FROM, without state.
            return Ok(lifetime.map(|it| it.clamp(least, most)));
        }
        let service = Service::from_number(number).filter(|service| config.services.contains(service));
        let service = service.ok_or(UNAVAILABLE)?;
        let Some(lifetime) = lifetime else {
            self.cancel(client, service);
            return Ok(None);
        };
        // RFC 9028 section 7.8: not both in one association, because both MACs have the same key.
        let is_excluded = match service {
            Service::Rendezvous => prefers_relay || self.has(now, client, Service::RelayHip),
            Service::RelayHip => self.has(now, client, Service::Rendezvous),
            Service::RelayEsp => false,
        };
        if is_excluded {
            return Err(SIMULTANEOUS_USE_PROHIBITED);
        }
        if !self.has_room(now, client, config.max_clients) {
            return Err(INSUFFICIENT_RESOURCES);
        }
        let lifetime = lifetime.clamp(least, most);
        self.clients.entry(client).or_default().services.insert(service, now + lifetime);
        Ok(Some(lifetime))
    }

    fn cancel(&mut self, client: Hit, service: Service) {
        let Some(registered) = self.clients.get_mut(&client) else { return };
        registered.services.remove(&service);
        if registered.services.is_empty() {
            self.remove(client);
        }
    }

    fn has_room(&mut self, now: Instant, client: Hit, most: usize) -> bool {
        if !self.clients.contains_key(&client) && self.clients.len() >= most {
            self.clients.retain(|_, registered| registered.services.values().any(|until| *until > now));
        }
        self.clients.contains_key(&client) || self.clients.len() < most
    }

    /// The association with a client has ended.
    pub(super) fn remove(&mut self, client: Hit) {
        if self.clients.remove(&client).is_some() {
            self.permissions.retain(|(_, of), _| *of != client);
        }
    }

    /// Whether a client is registered for a service.
    pub(super) fn has(&self, now: Instant, client: Hit, service: Service) -> bool {
        let until = self.clients.get(&client).and_then(|registered| registered.services.get(&service));
        until.is_some_and(|until| *until > now)
    }

    /// Whether one more HIP packet may be forwarded to or for a client in this second.
    pub(super) fn allows_hip(&mut self, now: Instant, client: Hit, limit: u32) -> bool {
        self.clients.get_mut(&client).is_some_and(|registered| registered.hip.allows(now, limit))
    }

    /// The same for ESP.
    pub(super) fn allows_esp(&mut self, now: Instant, client: Hit, limit: u32) -> bool {
        self.clients.get_mut(&client).is_some_and(|registered| registered.esp.allows(now, limit))
    }

    /// A client permits data to and from a peer. Evicts the permission renewed least recently. `false` if the peer's SPI already belongs to
    /// another client.
    pub(super) fn permit(&mut self, now: Instant, client: Hit, permission: PeerPermission, most: usize) -> bool {
        let until = now + PERMISSION_LIFETIME;
        self.permissions.retain(|_, (_, until)| *until > now);
        let is_same =
            |held: &PeerPermission| held.inbound_spi == permission.inbound_spi && held.peer == permission.peer;
        let is_held = self
            .permissions(now, permission.inbound_spi)
            .any(|(other, held)| other != client && is_same(&held) && self.has(now, other, Service::RelayEsp));
        if is_held {
            return false;
        }
        for spi in [permission.outbound_spi, permission.inbound_spi] {
            self.permissions.insert((spi, client), (permission, until));
        }
        let mut of_client: Vec<_> = self
            .permissions
            .iter()
            .filter(|((_, of), _)| *of == client)
            .map(|(&key, &(_, until))| (until, key))
            .collect();
        of_client.sort_unstable();
        // Each has two entries.
        let excess = of_client.len().saturating_sub(most * 2);
        for (_, key) in of_client.into_iter().take(excess) {
            self.permissions.remove(&key);
        }
        true
    }

    /// Permissions with an SPI, and their clients.
    pub(super) fn permissions(&self, now: Instant, spi: u32) -> impl Iterator<Item = (Hit, PeerPermission)> + '_ {
        let all = (spi, Hit::UNSPECIFIED)..=(spi, Hit(core::net::Ipv6Addr::from(u128::MAX)));
        let valid = self.permissions.range(all).filter(move |(_, (_, until))| *until > now);
        valid.map(|(&(_, client), &(permission, _))| (client, permission))
    }

    /// The numbers of clients and permissions.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.clients.len(), self.permissions.len() / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_exponents_of_eighths() {
        assert_eq!(registration_lifetime(0), Duration::ZERO);
        assert_eq!(registration_lifetime(64), Duration::from_secs(1));
        assert_eq!(registration_lifetime(72), Duration::from_secs(2));
        assert_eq!(registration_lifetime(56), Duration::from_millis(500));
        // RFC 8003 section 4.1: 4 ms to 178 days.
        assert_eq!(registration_lifetime(1).as_millis(), 4);
        assert_eq!(registration_lifetime(255).as_secs() / 86_400, 178);
        for value in 1..=u8::MAX {
            assert_eq!(lifetime_to_wire(registration_lifetime(value)), value);
        }
        assert_eq!(lifetime_to_wire(Duration::ZERO), 1);
    }
}
