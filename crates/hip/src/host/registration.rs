//! Registration (RFC 8003): a client asks its server to forward packets. The server offers its services in R1, or in an UPDATE if it has
//! opened the association; requests and answers go in I2 and R2, or in UPDATEs.

use core::net::IpAddr;

use holdover_base::{Duration, Instant};

use super::address::{AddressProblem, is_reachable};
use super::association::Association;
use super::checklist::RelayView;
use super::client::{Client, Offered, Permitted};
use super::in_flight::Outgoing;
use super::local::{Local, find};
use super::reachability::Between;
use super::registry::{ServerConfig, Service, UNAVAILABLE, registration_lifetime};
use super::via::{UDP, UDP_PORT};
use super::{Arrival, Dropped, Event};
use crate::codec::{HipPacket, Parameter, PeerPermission, RegList, RelayAddress, map, unmap};
use crate::identity::Hit;

/// The time until a refused or unanswered request is repeated.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// When a client renews a permission: a minute before it expires (RFC 9028 section 4.12.1).
const RENEW_PERMISSION_AFTER: Duration = Duration::from_secs(240);

impl Association {
    /// The next deadline of the client of this server.
    pub(super) fn client_deadline(&self) -> Option<Instant> {
        self.client.as_ref().filter(|_| self.is_usable()).and_then(|client| client.deadline())
    }

    /// There are new keys with the server, which has no registration then. Services that were not offered are not requested (RFC 8003
    /// section 4.3). `answers` is an R2, if I2 had the request.
    pub(super) fn begin_client(
        &mut self,
        local: &mut Local,
        now: Instant,
        offered: Offered,
        answers: Option<(&HipPacket, Between)>,
    ) {
        let has_offer = matches!(offered, Offered::InR1(_));
        if let Offered::InR1(info) = offered {
            self.offered = info;
        }
        let Some(client) = &mut self.client else { return };
        *client = Client::new(&client.wanted);
        local.relay_views.remove(&self.peer);
        if client.request_from(self.offered.as_ref()).is_some() {
            if !answers.is_some_and(|(packet, between)| self.take_answers(local, now, packet, between)) {
                self.ask_for_services(local, now);
            }
        } else if has_offer || self.offered.is_some() {
            local.events.push_back(Event::RegistrationFailed { peer: self.peer, failure: UNAVAILABLE });
        }
    }

    fn ask_for_services(&mut self, local: &mut Local, now: Instant) {
        if !self.is_usable() {
            return;
        }
        let Some(client) = &mut self.client else { return };
        client.ask_at = None;
        if client.request_from(self.offered.as_ref()).is_some() {
            client.request = Some(Outgoing::new(local, now, self.updates.next_id()));
            self.send_request(local, 0);
        }
    }

    fn send_request(&mut self, local: &mut Local, attempt: u32) {
        let Some(client) = &self.client else { return };
        let request = client.request_from(self.offered.as_ref()).zip(client.request.as_ref());
        if let Some((request, outgoing)) = request {
            let id = outgoing.newest_id();
            self.send_to_server(local, attempt, vec![Parameter::Seq(id), Parameter::RegRequest(request)]);
        }
    }

    /// Announces services by UPDATE when the server was the initiator: the peer has seen no R1 (RFC 8003 section 3.1).
    pub(super) fn offer_services(&mut self, local: &mut Local, now: Instant) {
        if local.config.server.is_some() {
            self.updates.offer = Some(Outgoing::new(local, now, self.updates.next_id()));
            self.send_offer(local, 0);
        }
    }

    fn send_offer(&mut self, local: &mut Local, attempt: u32) {
        let offer = local.config.server.as_ref().map(ServerConfig::offer).zip(self.updates.offer.as_ref());
        if let Some((offer, outgoing)) = offer {
            let id = outgoing.newest_id();
            self.send_to_server(local, attempt, vec![Parameter::Seq(id), offer]);
        }
    }

    pub(super) fn retransmit_offer(&mut self, local: &mut Local, now: Instant) {
        let Some(mut offer) = self.updates.offer.take_if(|it| it.at <= now) else { return };
        if offer.again(local, now, self.updates.own_ids()).is_some() {
            let attempt = offer.attempts;
            self.updates.offer = Some(offer);
            self.send_offer(local, attempt);
        }
    }

    /// This host has moved: its server forwards no data until the permissions are repeated (RFC 9028 section 4.9).
    pub(super) fn renew_permissions(&mut self, now: Instant) {
        for permitted in self.client.iter_mut().flat_map(|client| client.permissions.values_mut()) {
            permitted.renew_at = now;
        }
    }

    /// Sends an UPDATE between a server and its client.
    fn send_to_server(&self, local: &mut Local, attempt: u32, parameters: Vec<Parameter>) {
        let path = self.control_path(local, attempt);
        if let (Some((src, dst)), Ok(builder)) = (path, self.update(local, parameters)) {
            local.send_from(&builder, src, dst);
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
            match request.again(local, now, self.updates.own_ids()) {
                Some(_) => {
                    let attempt = request.attempts;
                    client.request = Some(request);
                    self.send_request(local, attempt);
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
        let own = self.updates.own_ids();
        let Some(it) = self.client.as_mut().and_then(|client| client.permissions.get_mut(&peer)) else { return };
        let (id, attempt) = match &mut it.outgoing {
            Some(outgoing) => match outgoing.again(local, now, own) {
                Some(id) => (id, outgoing.attempts),
                None => {
                    (it.outgoing, it.renew_at) = (None, now + TRY_AGAIN_AFTER);
                    return;
                }
            },
            None => {
                let id = own.next();
                it.outgoing = Some(Outgoing::new(local, now, id));
                (id, 0)
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

    /// The server's answers to the requests of an I2 or UPDATE between these addresses, and the client's address as seen here (RFC 9028
    /// section 4.1).
    pub(super) fn registration_answers(
        &self,
        local: &mut Local,
        now: Instant,
        packet: &HipPacket,
        (own, from): (IpAddr, IpAddr),
        arrival: Arrival,
    ) -> Vec<Parameter> {
        let requests = packet.parameters.iter();
        let requests =
            requests.filter_map(|it| if let Parameter::RegRequest(request) = it { Some(request) } else { None });
        let requests: Vec<&RegList> = requests.collect();
        let config = local.config.server.clone();
        let mut answers = local.registry.register(now, self.peer, &requests, config.as_ref());
        let is_relays = config.is_some() && local.registry.has(now, self.peer, Service::RelayHip);
        let Some(port) = arrival.port.filter(|_| arrival.via.is_none() && (is_relays || !requests.is_empty())) else {
            return answers;
        };
        let in_udp = |port, address| RelayAddress { port, protocol: UDP, address: map(address) };
        answers.push(Parameter::RegFrom(in_udp(port, from)));
        let is_granted = |it: &Parameter| matches!(it, Parameter::RegResponse(list) if list.lifetime > 0 && list.types.contains(&Service::RelayEsp.number()));
        if answers.iter().any(is_granted) {
            answers.push(Parameter::RelayedAddress(in_udp(UDP_PORT, own)));
        }
        answers
    }

    /// The server's part of an UPDATE: the answers.
    pub(super) fn serve(
        &self,
        local: &mut Local,
        now: Instant,
        packet: &HipPacket,
        between: (IpAddr, IpAddr),
        arrival: Arrival,
    ) -> Result<Vec<Parameter>, Dropped> {
        for parameter in &packet.parameters {
            let Parameter::PeerPermission(permission) = parameter else { continue };
            let most = local.config.server.as_ref().map_or(0, |config| config.max_permissions);
            if !local.registry.has(now, self.peer, Service::RelayEsp) {
                return Err(Dropped::Policy);
            }
            let is_reachable = is_reachable(&local.locators, unmap(permission.peer));
            if !is_reachable || !local.registry.permit(now, self.peer, *permission, most) {
                return Err(Dropped::Value { kind: parameter.kind() });
            }
        }
        Ok(self.registration_answers(local, now, packet, between, arrival))
    }

    /// The client's part of an UPDATE. Services are taken from one that was not processed before.
    pub(super) fn take_registration(
        &mut self,
        local: &mut Local,
        now: Instant,
        packet: &HipPacket,
        acks: &[u32],
        (is_fresh, is_unprocessed): (bool, bool),
        between: Between,
    ) {
        let info = find!(packet, RegInfo).filter(|_| is_unprocessed);
        if let Some(info) = info {
            self.offered = Some(info.clone());
        }
        let offered = self.offered.as_ref();
        let Some(client) = &mut self.client else { return };
        for permitted in client.permissions.values_mut() {
            if permitted.outgoing.take_if(|it| it.is_acknowledged(acks)).is_some() {
                permitted.renew_at = now + RENEW_PERMISSION_AFTER;
            }
        }
        let is_idle = client.request.is_none() && client.ask_at.is_none() && client.granted.is_empty();
        if is_idle && info.is_some() && client.request_from(offered).is_some() {
            client.ask_at = Some(now);
        }
        // An answer without an open request may be a replay.
        if client.request.take_if(|it| it.is_acknowledged(acks)).is_some()
            && !self.take_answers(local, now, packet, between)
        {
            self.note_refusal(local, now, UNAVAILABLE);
        }
        // The answer to any UPDATE: after a move, the relay sees this host elsewhere.
        let is_relays = self.client.as_ref().is_some_and(|client| client.has(Service::RelayHip));
        if is_fresh && is_relays && !acks.is_empty() && find!(packet, RegFrom).is_some() {
            self.note_view(local, packet, between);
        }
    }

    /// The server's answers to the request: `false` if there are none.
    fn take_answers(&mut self, local: &mut Local, now: Instant, packet: &HipPacket, between: Between) -> bool {
        let Some(client) = &mut self.client else { return false };
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
                Parameter::RegFrom(address) => seen_at = Some((unmap(address.address), address.port)),
                Parameter::RelayedAddress(address) => client.relayed_at = Some(*address),
                _ => {}
            }
        }
        if lifetime.is_none() && failure.is_none() {
            return false;
        }
        let is_new = granted.iter().any(|service| !client.granted.contains(service));
        client.granted = granted;
        self.note_view(local, packet, between);
        let Some(client) = &mut self.client else { return true };
        let lifetime = lifetime.filter(|lifetime| *lifetime > Duration::ZERO);
        client.ask_at = Some(now + lifetime.map_or(TRY_AGAIN_AFTER, |lifetime| lifetime / 2));
        let peer = self.peer;
        if failure.is_some() || lifetime.is_none() {
            self.note_refusal(local, now, failure.unwrap_or(UNAVAILABLE));
        } else if is_new {
            let (services, lifetime) = (client.granted.clone(), lifetime.unwrap_or_default());
            local.events.push_back(Event::Registered { peer, services, lifetime, seen_at });
        }
        true
    }

    /// A relay shows where it sees this host, in answer to an UPDATE or registration between these addresses.
    pub(super) fn note_view(&self, local: &mut Local, packet: &HipPacket, (base, at): Between) {
        let Some(client) = &self.client else { return };
        let endpoint = |it: RelayAddress| {
            let is_usable =
                it.protocol == UDP && it.port != 0 && AddressProblem::on_a_link(unmap(it.address)).is_none();
            is_usable.then_some((unmap(it.address), it.port))
        };
        let view = RelayView {
            is_current: true,
            base,
            signalling_at: Some(at).filter(|_| client.has(Service::RelayHip)),
            seen_at: find!(packet, RegFrom).copied().and_then(endpoint),
            relayed_at: client.relayed_at.filter(|_| client.has(Service::RelayEsp)).and_then(endpoint),
        };
        local.relay_views.insert(self.peer, view);
    }

    /// The server has refused a service: it is asked again later.
    fn note_refusal(&mut self, local: &mut Local, now: Instant, failure: u8) {
        local.events.push_back(Event::RegistrationFailed { peer: self.peer, failure });
        if let Some(client) = &mut self.client {
            let at = now + TRY_AGAIN_AFTER;
            client.ask_at = Some(client.ask_at.map_or(at, |it| it.min(at)));
        }
    }
}
