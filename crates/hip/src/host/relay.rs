//! Rendezvous server and relay (RFC 8004 section 4.3, RFC 9028 section 4): a server forwards HIP packets to its clients with their source,
//! and forwards ESP that a client has permitted.
//!
//! A server keeps no state of a forwarded packet. The MAC that it adds proves to the client that its own server has
//! received the packet from that source.

use core::net::IpAddr;

use bytes::Bytes;
use holdover_base::Instant;
use holdover_wire::{Packet, Payload};

use super::address::is_reachable;
use super::association::Association;
use super::check_budget::Cause;
use super::client::{Client, Offered};
use super::local::{Local, find, verify_any_signature, verify_mac_in};
use super::registry::Service;
use super::via::{RelayTarget, Relayed, RelayedPeer, ReplyVia, UDP, UDP_PORT, Via};
use super::{Arrival, DataError, Dropped, Event, Host, SPI_LEN, State};
use crate::codec::{
    Builder, HipPacket, NotifyType, PacketType, Parameter, PeerPermission, Received, RelayAddress, kind, map, unmap,
};
use crate::identity::Hit;

impl Host {
    /// Whether a packet was forwarded by a server of this host, and by which. The source address is in no MAC: it has to be one of that
    /// server's.
    pub(super) fn find_server(
        &mut self,
        now: Instant,
        received: &Received,
        packet: &Packet,
    ) -> Result<Option<Via>, Dropped> {
        let HipPacket { kind, receiver, .. } = received.packet;
        let direct = find!(received.packet, From).map(|&address| ((unmap(address), 0), kind::RVS_HMAC));
        let relayed = find!(received.packet, RelayFrom);
        let relayed = relayed.map(|address| ((unmap(address.address), address.port), kind::RELAY_HMAC));
        let has_hmac = find!(received.packet, RvsHmac).is_some();
        let Some((from, mac)) = relayed.or(direct).or(has_hmac.then_some(((packet.src, 0), kind::RVS_HMAC))) else {
            return Ok(None);
        };
        if kind == PacketType::I1 && receiver == Hit::UNSPECIFIED {
            // RFC 8004 section 4.3.2.
            return Err(Dropped::Policy);
        }
        let is_there = |it: &Association| it.peer_addresses.status(packet.src).is_some();
        let servers = self.associations.values().filter(|it| it.client.is_some() && it.is_usable());
        let server = servers.filter(|it| is_there(it)).find(|it| {
            let keys = it.secured.as_ref().map(|secured| &secured.keys);
            keys.is_some_and(|keys| verify_mac_in(received, keys.rhash, &keys.inbound, mac).is_ok())
        });
        let server = server.ok_or(Dropped::Mac)?;
        if has_hmac && server.client.as_ref().is_some_and(|client| client.has(Service::RelayHip)) {
            // RFC 9028 section 7.8: the same key may not serve for both MACs.
            let (server, kind) = (server.peer, NotifyType::RVS_HMAC_PROHIBITED_WITH_RELAY);
            self.local.notify_refusal(now, server, received, kind, (packet.dst, packet.src))?;
            return Err(Dropped::Value { kind: kind::RVS_HMAC });
        }
        if !is_reachable(&self.local.locators, from.0) {
            return Err(Dropped::Value { kind: if mac == kind::RELAY_HMAC { kind::RELAY_FROM } else { kind::FROM } });
        }
        let is_forwarded = relayed.is_some() || direct.is_some();
        let via = Via { server: server.peer, at: packet.src, from, is_relay: mac == kind::RELAY_HMAC };
        Ok(is_forwarded.then_some(via))
    }

    /// How answers to a relayed packet are addressed.
    pub(super) fn reply_via(&self, via: &Via) -> Option<ReplyVia> {
        let keys = &self.associations.get(&via.server)?.secured.as_ref()?.keys;
        let to = RelayAddress { port: via.from.1, protocol: UDP, address: map(via.from.0) };
        let key = keys.outbound.integrity.to_vec();
        via.is_relay.then_some(ReplyVia { at: via.at, to, rhash: keys.rhash, key })
    }

    /// Permits data of the peer that may come through a relay. `sender` is a peer, or the relay itself.
    pub(super) fn permit_data(&mut self, now: Instant, sender: Hit) {
        let is_server = self.associations.get(&sender).is_some_and(|it| it.client.is_some());
        let peers: Vec<Hit> = if is_server { self.associations.keys().copied().collect() } else { vec![sender] };
        for peer in peers {
            let Some(association) = self.associations.get(&peer).filter(|association| association.is_usable()) else {
                continue;
            };
            let is_unseen = is_server && association.relayed.is_none() && association.peer_addresses.has_active_relay();
            if is_unseen && self.is_common_relay(sender, association) {
                // The exchange took place before this host was a client: the peer's answer contains its address as seen by the relay.
                if let Some(association) = self.associations.get_mut(&peer) {
                    association.announce(&mut self.local, now);
                }
                continue;
            }
            let Some((relayed, secured)) = association.relayed.zip(association.secured.as_ref()) else { continue };
            let server = self.associations.get(&relayed.server).and_then(|it| it.client.as_ref());
            let at = server.and_then(|client| client.relayed_address());
            let permission = PeerPermission {
                relayed_port: at.map_or(UDP_PORT, |at| at.port),
                relayed: at.map_or(map(relayed.at), |at| at.address),
                peer_port: relayed.from.1,
                peer: map(relayed.from.0),
                protocol: UDP,
                outbound_spi: secured.outbound.spi(),
                inbound_spi: secured.inbound.spi(),
            };
            if let Some(server) = self.associations.get_mut(&relayed.server) {
                server.permit(&mut self.local, now, peer, permission);
            }
        }
    }

    /// Whether a server relays packets to this host, and those to a peer go through it. During connectivity checks both hosts have the other
    /// one's candidates.
    fn is_common_relay(&self, server: Hit, peer: &Association) -> bool {
        let server = self.associations.get(&server);
        let is_relay = server.and_then(|it| it.client.as_ref()).is_some_and(|client| client.has(Service::RelayHip));
        let is_on_path = |at: IpAddr| peer.peer_addresses.is_relay(at) && peer.peer_addresses.is_active(at);
        let mut at = server.into_iter().flat_map(|it| it.peer_addresses.iter()).map(|it| it.address);
        is_relay && !peer.connectivity.is_checking() && at.any(is_on_path)
    }

    /// A HIP packet for another host: forwards it to a client, or on behalf of a client.
    pub(super) fn forward(
        &mut self,
        now: Instant,
        received: &Received,
        packet: &Packet,
        port: Option<u16>,
    ) -> Result<(), Dropped> {
        let Some(config) = &self.local.config.server else { return Err(Dropped::NotForUs) };
        let limit = config.max_hip_per_s;
        let HipPacket { kind, receiver, .. } = received.packet;
        let is_relayed = self.local.registry.has(now, receiver, Service::RelayHip) && port.is_some();
        let is_met = self.local.registry.has(now, receiver, Service::Rendezvous)
            && matches!(kind, PacketType::I1 | PacketType::Update);
        if !is_relayed && !is_met {
            return self.forward_to_stranger(now, received, packet, limit);
        }
        if !is_relayed && (find!(received.packet, From).is_some() || find!(received.packet, RelayFrom).is_some()) {
            // Another server has forwarded it: no chains of servers.
            return Err(Dropped::Value { kind: kind::FROM });
        }
        if let Some(echo_request) =
            check_alone(&received.packet).filter(|_| !is_relayed || !checks_path(&received.packet))
        {
            // A client that announces this server's address as its own would pass the check of it, and have data sent here.
            return Err(Dropped::Value { kind: echo_request });
        }
        if !self.local.registry.allows_hip(now, receiver, limit) {
            return Err(Dropped::Overload);
        }
        if is_relayed {
            self.require_nat_mode(now, received, packet)?;
        }
        let (src, dst) = self.path_to_client(receiver).ok_or(Dropped::UnknownPeer)?;
        let keys = self.associations.get(&receiver).and_then(|it| it.secured.as_ref()).map(|secured| &secured.keys);
        let keys = keys.ok_or(Dropped::UnknownPeer)?;
        // Parameters added by another relay, or by the sender for this one, have no meaning for the client.
        let mut builder = received.truncated(kind::RELAY_FROM);
        let from = map(packet.src);
        let mac = |builder: &Builder| Bytes::from(keys.rhash.mac(&keys.outbound.integrity, builder.covered()));
        if is_relayed {
            let address = RelayAddress { port: port.unwrap_or_default(), protocol: UDP, address: from };
            builder.push(&Parameter::RelayFrom(address))?;
            builder.push(&Parameter::RelayHmac(mac(&builder)))?;
        } else {
            builder.push(&Parameter::From(from))?;
            builder.push(&Parameter::RvsHmac(mac(&builder)))?;
        }
        let to = RelayTarget::Peer(receiver);
        self.local.relayed.push_back(Relayed { packet: builder.finish(src, dst), to });
        Ok(())
    }

    /// A client answers a host that is no client: RELAY_TO names the address at which that was seen, and the packet keeps it (RFC 9028
    /// section 4.5). It is the client's packet if RELAY_HMAC or, without one, its signature says so. If there is no such host, the client is
    /// notified.
    fn forward_to_stranger(
        &mut self,
        now: Instant,
        received: &Received,
        packet: &Packet,
        limit: u32,
    ) -> Result<(), Dropped> {
        let sender = received.packet.sender;
        let is_client = self.local.registry.has(now, sender, Service::RelayHip);
        let is_there = self.path_to_client(sender).is_some_and(|(_, dst)| dst == packet.src);
        if !is_client || !is_there || !self.local.registry.allows_hip(now, sender, limit) {
            return Err(Dropped::NotForUs);
        }
        let Some(to) = find!(received.packet, RelayTo).copied() else {
            return self.notify_not_relayed(now, received, packet);
        };
        let secured = self.associations.get(&sender).and_then(|it| it.secured.as_ref());
        let secured = secured.ok_or(Dropped::UnknownPeer)?;
        match find!(received.packet, RelayHmac) {
            Some(_) => verify_mac_in(received, secured.keys.rhash, &secured.keys.inbound, kind::RELAY_HMAC)?,
            None => verify_any_signature(received, &secured.identity)?,
        }
        self.require_nat_mode(now, received, packet)?;
        let dst = unmap(to.address);
        if !is_reachable(&self.local.locators, dst) {
            return Err(Dropped::Value { kind: kind::RELAY_TO });
        }
        let src = self.local.source_for(dst).ok_or(Dropped::NotForUs)?;
        let mut builder = received.truncated(kind::RELAY_FROM);
        builder.push(&Parameter::RelayTo(to))?;
        self.local.relayed.push_back(Relayed { packet: builder.finish(src, dst), to: RelayTarget::Port(to.port) });
        Ok(())
    }

    /// A relay does not forward an R1 or I2 without NAT traversal mode (RFC 9028 section 4.5).
    fn require_nat_mode(&mut self, now: Instant, received: &Received, packet: &Packet) -> Result<(), Dropped> {
        let HipPacket { kind: packet_type, sender, .. } = received.packet;
        if !matches!(packet_type, PacketType::R1 | PacketType::I2) || find!(received.packet, NatTraversalMode).is_some()
        {
            return Ok(());
        }
        let kind = NotifyType::NO_VALID_NAT_TRAVERSAL_MODE_PARAMETER;
        let is_complete = match packet_type {
            PacketType::I2 => {
                find!(received.packet, Solution).is_some() && find!(received.packet, HipSignature).is_some()
            }
            _ => find!(received.packet, HipSignature2).is_some(),
        };
        if is_complete {
            self.local.notify_refusal(now, sender, received, kind, (packet.dst, packet.src))?;
        }
        Err(Dropped::Missing { kind: kind::NAT_TRAVERSAL_MODE })
    }

    /// NOTIFY with MESSAGE_NOT_RELAYED (RFC 9028 section 5.10).
    fn notify_not_relayed(&mut self, now: Instant, received: &Received, packet: &Packet) -> Result<(), Dropped> {
        if received.packet.kind == PacketType::Notify {
            // RFC 7401 section 5.3.6: a NOTIFY is not answered.
            return Err(Dropped::NotForUs);
        }
        let HipPacket { sender, .. } = received.packet;
        let kind = NotifyType::MESSAGE_NOT_RELAYED;
        self.local.notify_refusal(now, sender, received, kind, (packet.dst, packet.src))?;
        Ok(())
    }

    /// This host's address and the client's.
    fn path_to_client(&self, client: Hit) -> Option<(IpAddr, IpAddr)> {
        let association = self.associations.get(&client).filter(|association| association.is_usable())?;
        let dst = association.best_for_control(&self.local)?;
        Some((self.local.source_for(dst)?, dst))
    }

    /// Forwards ESP for another host that a client has permitted: [`Self::poll_relayed`] returns it.
    ///
    /// # Errors
    ///
    /// [`DataError`]: the packet is to be dropped.
    pub fn relay(&mut self, now: Instant, packet: &Packet) -> Result<(), DataError> {
        let Payload::Esp(esp) = &packet.payload else { return Err(DataError::NoAssociation) };
        let spi = esp.first_chunk::<SPI_LEN>().map(|bytes| u32::from_be_bytes(*bytes));
        let limit = self.local.config.server.as_ref().map(|config| config.max_esp_per_s);
        let (spi, limit) = spi.zip(limit).ok_or(DataError::NoAssociation)?;
        let found: Vec<(Hit, IpAddr, PeerPermission)> = (self.local.registry.permissions(now, spi))
            .filter(|(client, _)| self.local.registry.has(now, *client, Service::RelayEsp))
            .filter_map(|(client, permission)| Some((client, self.path_to_client(client)?.1, permission)))
            .collect();
        // A client's packets go to its own permitted peer, even if another client names the same address and SPI.
        let from_client = found.iter().find(|(_, client_at, it)| it.outbound_spi == spi && packet.src == *client_at);
        let from_client = from_client.map(|(client, _, it)| (*client, RelayTarget::Port(it.peer_port), unmap(it.peer)));
        let to_client = || found.iter().find(|(_, _, it)| it.inbound_spi == spi && map(packet.src) == it.peer);
        let to_client = || to_client().map(|&(client, client_at, _)| (client, RelayTarget::Peer(client), client_at));
        let (client, to, dst) = from_client.or_else(to_client).ok_or(DataError::NoAssociation)?;
        let src = self.local.source_for(dst).ok_or(DataError::NoPath)?;
        if !self.local.registry.allows_esp(now, client, limit) {
            return Err(DataError::NoPath);
        }
        self.local.relayed.push_back(Relayed { packet: Packet { src, dst, ..packet.clone() }, to });
        Ok(())
    }

    /// Whether ESP with this SPI is forwarded to an address: a client's, or that of a peer of one.
    pub fn relays_to(&self, now: Instant, spi: u32, dst: IpAddr) -> bool {
        self.local.registry.permissions(now, spi).any(|(client, it)| {
            it.outbound_spi == spi && unmap(it.peer) == dst
                || it.inbound_spi == spi && self.path_to_client(client).is_some_and(|(_, at)| at == dst)
        })
    }

    /// The next packet to forward, or to send to a special port.
    pub fn poll_relayed(&mut self) -> Option<Relayed> {
        self.local.relayed.pop_front()
    }

    /// The number of registered clients, and of their permissions to forward data.
    pub fn clients(&self) -> (usize, usize) {
        self.local.registry.count()
    }

    /// Registers with a peer for services, now or once there is an association; cancels if `services` is empty.
    pub fn register(&mut self, now: Instant, server: Hit, services: &[Service]) {
        let Some(association) = self.associations.get_mut(&server) else { return };
        if association.client.as_ref().map_or(services.is_empty(), |client| client.wants(services)) {
            return;
        }
        association.client = (!services.is_empty()).then(|| Client::new(services));
        self.local.relay_views.remove(&server);
        if association.is_usable() {
            association.begin_client(&mut self.local, now, Offered::Before, None);
        }
    }

    /// The services that a server has granted to this host.
    pub fn services(&self, server: Hit) -> Vec<Service> {
        let client = self.associations.get(&server).and_then(|association| association.client.as_ref());
        Service::ALL.into_iter().filter(|&service| client.is_some_and(|client| client.has(service))).collect()
    }

    /// Adds servers through which a peer may be reached. No data goes there, unless the exchange took place through
    /// one.
    pub fn add_servers(&mut self, peer: Hit, addresses: &[IpAddr]) {
        if let Some(association) = self.associations.get_mut(&peer) {
            addresses.iter().for_each(|&address| association.peer_addresses.add_relay(address));
        }
    }
}

/// The echo request of an UPDATE that checks an address and announces none. Announcements go by way of the server (RFC 8046 section 3.2.3),
/// checks to the address that is checked; an UPDATE that does both is an announcement.
fn check_alone(packet: &HipPacket) -> Option<u16> {
    let is_check = |it: &&Parameter| matches!(it, Parameter::EchoRequestSigned(_) | Parameter::EchoRequestUnsigned(_));
    let is_alone = packet.kind == PacketType::Update && find!(packet, LocatorSet).is_none();
    packet.parameters.iter().find(is_check).filter(|_| is_alone).map(Parameter::kind)
}

/// Whether the sender of a check knows that the address may be a relay's: it checks a candidate (RFC 9028 section 4.6.1), or tests a path.
/// Checks of locators (RFC 8046 section 3.2.1) do not have these parameters.
pub(super) fn checks_path(packet: &HipPacket) -> bool {
    let is_it = |it: &Parameter| matches!(it, Parameter::CandidatePriority(_) | Parameter::Nominate);
    packet.kind == PacketType::Update && packet.parameters.iter().any(is_it)
}

/// Whether a server has forwarded a packet to this host: one of this host's own servers, or a relay of the sender, which keeps RELAY_TO (RFC 9028
/// section 4.5).
pub(super) fn is_forwarded(packet: &HipPacket, arrival: Arrival) -> bool {
    arrival.via.is_some() || find!(packet, RelayTo).is_some()
}

impl Association {
    /// An authentic packet of the peer came through a relay: packets to it may go this way, and a direct path to the address seen by the
    /// relay is tried (RFC 9028 section 4.6).
    pub(super) fn note_relay(&mut self, local: &mut Local, now: Instant, via: &Via) {
        if !via.is_relay || !matches!(self.state, State::R2Sent | State::Established) {
            return;
        }
        self.peer_addresses.add_relay(via.at);
        let relayed = RelayedPeer { server: via.server, at: via.at, from: via.from };
        let is_new = self.relayed != Some(relayed);
        self.relayed = Some(relayed);
        let is_checked = self.note_candidates(local, via);
        let (address, port) = via.from;
        if !is_new || port == 0 || address == via.at || self.peer_addresses.is_active(address) {
            return;
        }
        local.events.push_back(Event::PeerCandidate { peer: self.peer, address, port });
        if !is_checked && !self.is_asking(address) {
            self.peer_addresses.add_known(&[address]);
            self.ask_at(local, now, address);
        }
    }

    /// This host has moved: the checks end, and the peer's address as the relay sees it is checked, if that has not been done yet.
    pub(super) fn stop_checks(&mut self, local: &mut Local, now: Instant) {
        let was_checking = self.connectivity.is_checking();
        self.connectivity.stop(now);
        let seen = self.relayed.map(|relayed| relayed.from).filter(|(_, port)| was_checking && *port != 0);
        let Some((address, _)) = seen else { return };
        if self.is_usable() && local.source_for(address).is_some() && !self.peer_addresses.is_active(address) {
            self.peer_addresses.add_known(&[address]);
            self.ask_at(local, now, address);
        }
    }

    /// Sends a check to an address of the peer: to the port that the relay sees, if it is from the relay. Nothing beyond the budget.
    /// Further attempts are also sent from this host's other addresses if paths are tested.
    pub(super) fn send_question(
        &mut self,
        local: &mut Local,
        now: Instant,
        builder: &Builder,
        (address, attempt): (IpAddr, u32),
        cause: Cause,
    ) {
        if let Some(between) = Self::control_path_to(local, address, attempt)
            && self.may_send_to(now, address, cause)
        {
            self.charge(address, builder);
            self.send_question_on(local, builder, between);
        }
    }

    /// Sends a test of a path, from one of this host's addresses.
    pub(super) fn send_question_on(&self, local: &mut Local, builder: &Builder, (src, dst): (IpAddr, IpAddr)) {
        // The port that a check has found may be another one than the relay sees; the owner knows it.
        let is_checked = self.connectivity.source_towards(dst).is_some();
        match self.relayed.map(|relayed| relayed.from).filter(|(seen, _)| *seen == dst && !is_checked) {
            Some((_, port)) => {
                let packet = builder.clone().finish(src, dst);
                local.relayed.push_back(Relayed { packet, to: RelayTarget::Port(port) });
            }
            None => {
                // The relay's client names the peer, which may be no client.
                let reply_via = self.connectivity.reply_via.clone().filter(|_| self.peer_addresses.is_relay(dst));
                let before = reply_via.map(|via| local.reply_via.replace(via));
                local.send_from(builder, src, dst);
                before.into_iter().for_each(|before| local.reply_via = before);
            }
        }
    }
}
