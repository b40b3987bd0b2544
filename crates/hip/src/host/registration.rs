//! Registration (RFC 8003): a client asks its server to forward packets. The server offers its services in R1; requests
//! and answers go in UPDATEs.

use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};

use super::association::Association;
use super::local::Local;
use super::update::Outgoing;
use super::{Dropped, Event};
use crate::codec::{HipPacket, Parameter, PeerPermission, RegFailed, RegInfo, RegList};
use crate::identity::Hit;

/// The lifetime that a client requests.
const LIFETIME: Duration = Duration::from_secs(600);
/// The time until a refused or unanswered request is repeated.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How long a relay keeps a permission that is not renewed, and when clients renew it.
const PERMISSION_LIFETIME: Duration = Duration::from_secs(600);
const RENEW_PERMISSION_AFTER: Duration = Duration::from_secs(250);
/// RFC 8003 section 4.5.
const UNAVAILABLE: u8 = 1;
const INSUFFICIENT_RESOURCES: u8 = 2;

/// A service of a registrar (the registry "Registration Types").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Service {
    /// Forwards I1 and UPDATE (RFC 8004 section 4.1).
    Rendezvous,
    /// Forwards all HIP packets, in UDP (RFC 5770 section 5.9).
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
        let types = self.services.iter().map(|service| service.number()).collect();
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
fn lifetime_to_wire(lifetime: Duration) -> u8 {
    (1..=u8::MAX).rev().find(|&value| registration_lifetime(value) <= lifetime).unwrap_or(1)
}

/// The clients of a server.
#[derive(Debug, Default)]
pub(super) struct Registry {
    clients: BTreeMap<Hit, Registered>,
    /// By SPI and client, each with its expiry.
    permissions: BTreeMap<(u32, Hit), (PeerPermission, Instant)>,
}

/// A client.
#[derive(Debug, Default)]
struct Registered {
    services: BTreeMap<Service, Instant>,
    hip: Rate,
    esp: Rate,
}

/// Packets in this second.
#[derive(Debug, Default)]
struct Rate {
    second: u64,
    count: u32,
}

impl Rate {
    fn allows(&mut self, now: Instant, limit: u32) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            *self = Self { second, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= limit
    }
}

impl Registry {
    /// The answer to a request: REG_RESPONSE and REG_FAILED.
    fn register(
        &mut self,
        now: Instant,
        client: Hit,
        request: &RegList,
        config: Option<&ServerConfig>,
    ) -> Vec<Parameter> {
        let (mut granted, mut unavailable, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        let (least, most) = config.map_or((Duration::ZERO, Duration::ZERO), |config| config.lifetimes);
        let is_cancelled = request.lifetime == 0;
        let lifetime = registration_lifetime(request.lifetime).clamp(least, most);
        for &number in &request.types {
            let service = Service::from_number(number);
            let offered = service.zip(config).filter(|(service, config)| config.services.contains(service));
            let Some((service, config)) = offered else {
                unavailable.push(number);
                continue;
            };
            if is_cancelled {
                self.cancel(client, service);
            } else if self.has_room(now, client, config.max_clients) {
                self.clients.entry(client).or_default().services.insert(service, now + lifetime);
            } else {
                refused.push(number);
                continue;
            }
            granted.push(number);
        }
        let lifetime = if is_cancelled { 0 } else { lifetime_to_wire(lifetime) };
        let mut answer = Vec::new();
        if !granted.is_empty() {
            answer.push(Parameter::RegResponse(RegList { lifetime, types: granted }));
        }
        for (failure, types) in [(UNAVAILABLE, unavailable), (INSUFFICIENT_RESOURCES, refused)] {
            if !types.is_empty() {
                answer.push(Parameter::RegFailed(RegFailed { failure, types }));
            }
        }
        answer
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
    fn permit(&mut self, now: Instant, client: Hit, permission: PeerPermission, most: usize) -> bool {
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

/// The registration with a server.
#[derive(Debug)]
pub(super) struct Client {
    wanted: Vec<Service>,
    granted: Vec<Service>,
    /// When services are requested, or renewed.
    ask_at: Option<Instant>,
    request: Option<Outgoing>,
    permissions: BTreeMap<Hit, Permitted>,
}

/// A permission of the client.
#[derive(Debug)]
struct Permitted {
    permission: PeerPermission,
    outgoing: Option<Outgoing>,
    renew_at: Instant,
}

impl Client {
    pub(super) fn new(wanted: &[Service]) -> Self {
        let (wanted, granted) = (wanted.to_vec(), Vec::new());
        Self { wanted, granted, ask_at: None, request: None, permissions: BTreeMap::new() }
    }

    pub(super) fn wants(&self, services: &[Service]) -> bool {
        self.wanted == services
    }

    pub(super) fn has(&self, service: Service) -> bool {
        self.granted.contains(&service)
    }

    /// Drops permissions for peers without an association.
    pub(super) fn keep_permissions(&mut self, is_usable: impl Fn(&Hit) -> bool) {
        self.permissions.retain(|peer, _| is_usable(peer));
    }

    pub(super) fn has_permissions(&self) -> bool {
        !self.permissions.is_empty()
    }

    /// Whether one of these acknowledgements is pending.
    pub(super) fn awaits(&self, acks: &[u32]) -> bool {
        let permissions = self.permissions.values().filter_map(|it| it.outgoing.as_ref());
        permissions.chain(&self.request).any(|it| it.is_acknowledged(acks))
    }

    fn deadline(&self) -> Option<Instant> {
        let permissions = self.permissions.values();
        let permissions = permissions.map(|it| it.outgoing.as_ref().map_or(it.renew_at, |outgoing| outgoing.at));
        permissions.chain(self.request.as_ref().map(|it| it.at)).chain(self.ask_at).min()
    }
}

impl Association {
    /// The next deadline of the client of this server.
    pub(super) fn client_deadline(&self) -> Option<Instant> {
        self.client.as_ref().filter(|_| self.is_usable()).and_then(|client| client.deadline())
    }

    /// There are new keys with the server, which has no registration then. `offered` are the registration types in its R1, if this host has
    /// seen it.
    pub(super) fn begin_client(&mut self, local: &mut Local, now: Instant, offered: Option<&[u8]>) {
        let Some(client) = &mut self.client else { return };
        let wanted = client.wanted.clone();
        *client = Client { ask_at: Some(now), ..Client::new(&wanted) };
        // RFC 8003 section 4.3: services that were not offered are not requested.
        let missing = offered.is_some_and(|offered| wanted.iter().any(|service| !offered.contains(&service.number())));
        if missing {
            client.ask_at = None;
            local.events.push_back(Event::RegistrationFailed { peer: self.peer, failure: UNAVAILABLE });
        } else {
            self.ask_for_services(local, now);
        }
    }

    fn ask_for_services(&mut self, local: &mut Local, now: Instant) {
        if !self.is_usable() {
            return;
        }
        let id = self.updates.next_id();
        let Some(client) = &mut self.client else { return };
        client.ask_at = None;
        client.request = Some(Outgoing::new(local, now, id));
        self.send_request(local, id, 0);
    }

    fn send_request(&mut self, local: &mut Local, id: u32, attempt: u32) {
        let Some(client) = &self.client else { return };
        let types = client.wanted.iter().map(|service| service.number()).collect();
        let request = RegList { lifetime: lifetime_to_wire(LIFETIME), types };
        self.send_to_server(local, attempt, vec![Parameter::Seq(id), Parameter::RegRequest(request)]);
    }

    fn send_to_server(&self, local: &mut Local, attempt: u32, parameters: Vec<Parameter>) {
        let dst = self.paths.for_control(attempt, |dst| local.source_for(dst).is_some());
        if let (Some(dst), Ok(builder)) = (dst, self.update(local, parameters)) {
            local.send(&builder, dst);
        }
    }

    /// Retransmits due requests; restarts those without attempts left later.
    pub(super) fn serve_client(&mut self, local: &mut Local, now: Instant) {
        if !self.is_usable() {
            return;
        }
        let Some(client) = &mut self.client else { return };
        if client.ask_at.is_some_and(|at| at <= now) {
            return self.ask_for_services(local, now);
        }
        if let Some(mut request) = client.request.take_if(|it| it.at <= now) {
            match request.again(local, now, self.updates.newest_id_mut()) {
                Some(id) => {
                    let attempt = request.attempts;
                    client.request = Some(request);
                    self.send_request(local, id, attempt);
                }
                None => client.ask_at = Some(now + TRY_AGAIN_AFTER),
            }
        }
        let Some(client) = &self.client else { return };
        let is_due = |it: &Permitted| it.outgoing.as_ref().map_or(it.renew_at, |outgoing| outgoing.at) <= now;
        let due: Vec<Hit> = client.permissions.iter().filter(|(_, it)| is_due(it)).map(|(&peer, _)| peer).collect();
        for peer in due {
            self.send_permission(local, now, peer);
        }
    }

    fn send_permission(&mut self, local: &mut Local, now: Instant, peer: Hit) {
        let newest = self.updates.newest_id_mut();
        let Some(it) = self.client.as_mut().and_then(|client| client.permissions.get_mut(&peer)) else { return };
        let (id, attempt) = match &mut it.outgoing {
            Some(outgoing) => match outgoing.again(local, now, newest) {
                Some(id) => (id, outgoing.attempts),
                None => {
                    (it.outgoing, it.renew_at) = (None, now + TRY_AGAIN_AFTER);
                    return;
                }
            },
            None => {
                *newest = newest.wrapping_add(1);
                it.outgoing = Some(Outgoing::new(local, now, *newest));
                (*newest, 0)
            }
        };
        let permission = it.permission;
        self.send_to_server(local, attempt, vec![Parameter::Seq(id), Parameter::PeerPermission(permission)]);
    }

    /// Asks the server to forward data between this host and a peer, unless it already does.
    pub(super) fn permit(&mut self, local: &mut Local, now: Instant, peer: Hit, permission: PeerPermission) {
        if !self.is_usable() {
            return;
        }
        let Some(client) = self.client.as_mut().filter(|client| client.has(Service::RelayEsp)) else { return };
        if client.permissions.get(&peer).is_some_and(|it| it.permission == permission) {
            return;
        }
        client.permissions.insert(peer, Permitted { permission, outgoing: None, renew_at: now });
        self.send_permission(local, now, peer);
    }

    /// The server's part of an UPDATE: the answers.
    pub(super) fn serve(
        &self,
        local: &mut Local,
        now: Instant,
        packet: &HipPacket,
        answer: &mut Vec<Parameter>,
    ) -> Result<(), Dropped> {
        let config = local.config.server.clone();
        let mut has_requests = false;
        for parameter in &packet.parameters {
            match parameter {
                // A packet may carry several requests; an answer carries one response.
                Parameter::RegRequest(request) if !has_requests => {
                    has_requests = true;
                    answer.extend(local.registry.register(now, self.peer, request, config.as_ref()));
                }
                Parameter::PeerPermission(permission) => {
                    let is_client = local.registry.has(now, self.peer, Service::RelayEsp);
                    let most = config.as_ref().map_or(0, |config| config.max_permissions);
                    if !is_client {
                        return Err(Dropped::Policy);
                    }
                    if !local.registry.permit(now, self.peer, *permission, most) {
                        return Err(Dropped::Value { kind: parameter.kind() });
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The client's part of an UPDATE: returns whether further services were granted.
    pub(super) fn take_registration(
        &mut self,
        local: &mut Local,
        now: Instant,
        packet: &HipPacket,
        acks: &[u32],
    ) -> bool {
        let Some(client) = &mut self.client else { return false };
        for permitted in client.permissions.values_mut() {
            if permitted.outgoing.take_if(|it| it.is_acknowledged(acks)).is_some() {
                permitted.renew_at = now + RENEW_PERMISSION_AFTER;
            }
        }
        let was_asked = client.request.take_if(|it| it.is_acknowledged(acks)).is_some();
        let (mut granted, mut lifetime, mut failure, mut seen_at) = (Vec::new(), None, None, None);
        for parameter in &packet.parameters {
            match parameter {
                Parameter::RegResponse(list) => {
                    let until = registration_lifetime(list.lifetime);
                    lifetime = Some(lifetime.map_or(until, |before: Duration| before.min(until)));
                    if list.lifetime > 0 {
                        granted.extend(list.types.iter().filter_map(|&number| Service::from_number(number)));
                    }
                }
                Parameter::RegFailed(failed) => failure = Some(failed.failure),
                Parameter::RegFrom(address) => seen_at = Some((crate::codec::unmap(address.address), address.port)),
                _ => {}
            }
        }
        if !was_asked {
            // An answer without an open request may be a replay.
            return false;
        }
        let is_new = granted.iter().any(|service| !client.granted.contains(service));
        client.granted = granted;
        let lifetime = lifetime.filter(|lifetime| *lifetime > Duration::ZERO);
        client.ask_at = Some(now + lifetime.map_or(TRY_AGAIN_AFTER, |lifetime| lifetime / 2));
        let peer = self.peer;
        if failure.is_some() || lifetime.is_none() {
            let failure = failure.unwrap_or(UNAVAILABLE);
            local.events.push_back(Event::RegistrationFailed { peer, failure });
        } else if is_new {
            let (services, lifetime) = (client.granted.clone(), lifetime.unwrap_or_default());
            local.events.push_back(Event::Registered { peer, services, lifetime, seen_at });
        }
        is_new
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
