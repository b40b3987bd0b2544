//! The state of a registration at the client (RFC 8003): its requests and its permissions for peers. `registration.rs` sends them.

use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};

use super::in_flight::Outgoing;
use super::registry::{Service, lifetime_to_wire};
use crate::codec::{PeerPermission, RegInfo, RegList, RelayAddress};
use crate::identity::Hit;

/// The lifetime that a client requests.
const LIFETIME: Duration = Duration::from_secs(600);

/// Source of a REG_INFO.
#[derive(Debug)]
pub(super) enum Offered {
    /// The REG_INFO of the R1 of this association, if it has one.
    InR1(Option<RegInfo>),
    /// This host has seen no R1: an earlier REG_INFO is valid.
    Before,
}

/// The registration with a server.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) wanted: Vec<Service>,
    pub(super) granted: Vec<Service>,
    /// When services are requested, or renewed.
    pub(super) ask_at: Option<Instant>,
    pub(super) request: Option<Outgoing>,
    /// Where the relay receives data for this host.
    pub(super) relayed_at: Option<RelayAddress>,
    pub(super) permissions: BTreeMap<Hit, Permitted>,
}

/// A permission of the client.
#[derive(Clone, Debug)]
pub(super) struct Permitted {
    pub(super) permission: PeerPermission,
    pub(super) outgoing: Option<Outgoing>,
    pub(super) renew_at: Instant,
}

impl Client {
    pub(super) fn new(wanted: &[Service]) -> Self {
        let (wanted, granted) = (wanted.to_vec(), Vec::new());
        Self { wanted, granted, ask_at: None, request: None, relayed_at: None, permissions: BTreeMap::new() }
    }

    /// The request for the wanted services, if all of them are offered; a relay and a rendezvous server are not requested together (RFC 9028
    /// section 7.8).
    pub(super) fn request_from(&self, offered: Option<&RegInfo>) -> Option<RegList> {
        let offered = offered?;
        let is_relays = self.wanted.contains(&Service::RelayHip);
        let wanted = self.wanted.iter().filter(|service| !is_relays || **service != Service::Rendezvous);
        let types: Vec<u8> = wanted.map(|service| service.number()).collect();
        let lifetime = lifetime_to_wire(LIFETIME).min(offered.max_lifetime).max(offered.min_lifetime);
        (!types.is_empty() && types.iter().all(|it| offered.types.contains(it))).then_some(RegList { lifetime, types })
    }

    pub(super) const fn relayed_address(&self) -> Option<RelayAddress> {
        self.relayed_at
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

    pub(super) fn deadline(&self) -> Option<Instant> {
        let permissions = self.permissions.values();
        let permissions = permissions.map(|it| it.outgoing.as_ref().map_or(it.renew_at, |outgoing| outgoing.at));
        permissions.chain(self.request.as_ref().map(|it| it.at)).chain(self.ask_at).min()
    }
}
