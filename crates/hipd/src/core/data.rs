//! Packets of associations, between the core's decisions, in order, and encryption and decryption, on any thread.

use core::net::IpAddr;

use bytes::{Bytes, BytesMut};
use holdover_base::Instant;
use holdover_hip::codec::PROTOCOL;
use holdover_hip::esp::SealError;
use holdover_hip::host::{Authentic, DataError, Decapsulation, Encapsulation, Opened, State};
use holdover_hip::identity::Hit;
use holdover_mobility::Direction;
use holdover_wire::{Packet, Payload};

use super::encapsulation::{self, Carried};
use super::{Core, PORT};

/// A packet for the network.
#[derive(Debug)]
pub enum Outgoing {
    /// A complete one.
    Packet(Packet),
    /// A complete one that leaves in fragments of at most this many bytes. If it fits, routers may fragment it over IPv4.
    Fragmentable(Packet, usize),
    /// One that is to be encrypted.
    Data(Data),
}

impl Outgoing {
    /// The complete packet, also of one that leaves in fragments.
    ///
    /// # Errors
    /// [`SealError`]: there is nothing to send.
    pub fn seal(self) -> Result<Packet, SealError> {
        match self {
            Self::Packet(packet) | Self::Fragmentable(packet, _) => Ok(packet),
            Self::Data(data) => data.seal(),
        }
    }
}

/// A packet of this host's programs that is to be encrypted, with its path.
#[derive(Debug)]
pub struct Data {
    pub(super) inner: Packet,
    pub(super) outer: Encapsulation,
    pub(super) port: Option<u16>,
    /// The most bytes of its fragments, if it exceeds the path's MTU.
    pub(super) mtu: Option<usize>,
}

impl Data {
    /// Source and destination of the outer packet.
    pub const fn between(&self) -> (IpAddr, IpAddr) {
        (self.outer.src, self.outer.dst)
    }

    /// The destination port in UDP; `None` without UDP.
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// The most bytes of its fragments; `None` if it leaves whole.
    pub const fn fragment_len(&self) -> Option<usize> {
        self.mtu
    }

    /// Hop limit and traffic class of the outer packet.
    pub const fn ttl_and_class(&self) -> (u8, u8) {
        (self.inner.ttl, self.inner.traffic_class)
    }

    /// Appends the encrypted ESP payload to `out`. On an error `out` is as before. Returns the outer packet, without UDP
    /// and with an empty payload.
    ///
    /// # Errors
    /// [`SealError`]: there is nothing to send.
    pub fn append(self, out: &mut BytesMut) -> Result<Packet, SealError> {
        let (ttl, traffic_class) = self.ttl_and_class();
        let Encapsulation { src, dst, sealing } = self.outer;
        sealing.append(&self.inner, out)?;
        Ok(Packet { ttl, traffic_class, ..Packet::new(src, dst, Payload::Esp(Bytes::new())) })
    }

    /// The complete packet, which may be longer than its path carries.
    ///
    /// # Errors
    /// [`SealError`]: there is nothing to send.
    pub fn seal(self) -> Result<Packet, SealError> {
        let (mut esp, port) = (BytesMut::new(), self.port);
        let outer = self.append(&mut esp)?;
        let packet = Packet { payload: Payload::Esp(esp.freeze()), ..outer };
        Ok(match port {
            Some(port) => encapsulation::close(packet, port),
            None => packet,
        })
    }
}

/// A packet of a peer that is to be decrypted.
#[derive(Debug)]
pub struct Incoming {
    pub(super) packet: Packet,
    pub(super) port: Option<u16>,
    pub(super) decapsulation: Decapsulation,
}

impl Incoming {
    /// Verifies and decrypts it.
    pub fn decrypt(self) -> Decrypted {
        let result = self.decapsulation.decrypt(&self.packet);
        Decrypted { packet: self.packet, port: self.port, result }
    }
}

/// A packet of a peer after its decryption, which may have failed.
#[derive(Debug)]
pub struct Decrypted {
    pub(super) packet: Packet,
    pub(super) port: Option<u16>,
    pub(super) result: Result<Authentic, DataError>,
}

impl Core {
    /// The same up to the decryption of ESP, whose result is for [`Core::finish_network`], in the order of packets. `None` if there is
    /// nothing to decrypt.
    pub fn begin_network(&mut self, now: Instant, packet: Packet) -> Option<Incoming> {
        match &packet.payload {
            Payload::Esp(_) => return self.begin_esp(now, packet, None),
            Payload::Other { protocol: PROTOCOL, .. } => self.handle_hip(now, &packet, None),
            Payload::Udp(udp) if udp.dst_port == PORT => {
                let port = Some(udp.src_port);
                match encapsulation::open(&packet, udp) {
                    Carried::Hip(packet) => self.handle_hip(now, &packet, port),
                    Carried::Esp(packet) => return self.begin_esp(now, packet, port),
                    Carried::KeepAlive => {}
                    Carried::Nothing => self.counters.hip_dropped += 1,
                }
            }
            _ => self.counters.hip_dropped += 1,
        }
        None
    }

    /// Whether a packet from the network is for the state machines of HIP, unlike ESP and keep-alives: it is to be handled after all
    /// packets before it.
    pub fn is_control(packet: &Packet) -> bool {
        match &packet.payload {
            Payload::Esp(_) => false,
            Payload::Udp(udp) if udp.dst_port == PORT => encapsulation::is_hip(udp),
            _ => true,
        }
    }

    fn begin_esp(&mut self, now: Instant, packet: Packet, port: Option<u16>) -> Option<Incoming> {
        match self.host.begin_open(&packet) {
            Ok(decapsulation) => Some(Incoming { packet, port, decapsulation }),
            Err(error) => {
                self.drop_esp(now, &packet, &error);
                self.collect(now, None);
                None
            }
        }
    }

    /// Takes a packet of [`Core::begin_network`] after its decryption.
    pub fn finish_network(&mut self, now: Instant, decrypted: Decrypted) {
        let Decrypted { packet, port, result } = decrypted;
        let mut came = None;
        match result.and_then(|authentic| self.host.finish_open(now, &packet, authentic)) {
            Ok(Opened { peer, inner, spi, number, is_newest }) => {
                if is_newest {
                    self.learn_source(now, peer, packet.src, port);
                    came = Some((peer, packet.src, port));
                }
                self.counters.opened += 1;
                let state = self.peers.entry(peer).or_default();
                state.contact.note_data(now, packet.src, packet.dst);
                if let Some(inner) = &inner {
                    state.counters.packets_in += 1;
                    state.counters.bytes_in += inner.wire_len() as u64;
                }
                let path = (packet.src, packet.dst);
                if let Some(inner) = state.order.handle_packet(now, path, (spi, number), inner, &mut self.reordering) {
                    self.filter(now, peer, Direction::Incoming, inner);
                }
                self.deliver_waiting(now, peer);
            }
            Err(error) => self.drop_esp(now, &packet, &error),
        }
        // The first data of an initiator ends R2-SENT.
        self.collect(now, came);
    }

    /// Packets of a peer that have waited for those of its former path.
    pub(super) fn deliver_waiting(&mut self, now: Instant, peer: Hit) {
        while let Some(state) = self.peers.get_mut(&peer)
            && let Some(inner) = state.order.poll_deliver(now, &mut self.reordering)
        {
            self.filter(now, peer, Direction::Incoming, inner);
        }
    }

    /// The same for a closed association, without further waiting.
    pub(super) fn deliver_all(&mut self, now: Instant, peer: Hit) {
        if let Some(state) = self.peers.get_mut(&peer) {
            state.order.close();
        }
        self.deliver_waiting(now, peer);
    }

    /// ESP that is not for this host's programs: for a client, or not authentic.
    fn drop_esp(&mut self, now: Instant, packet: &Packet, error: &DataError) {
        match error {
            DataError::NoAssociation => match self.host.relay(now, packet) {
                Ok(()) => self.counters.relayed_esp += 1,
                Err(_) => {
                    self.counters.unknown_spi += 1;
                    self.reconnect_on_unknown_spi(now, packet.src);
                }
            },
            _ => self.counters.not_authentic += 1,
        }
    }

    /// ESP arrived for an unknown association, perhaps from before a restart. Peers with this address are called, so
    /// that they learn of it.
    pub(super) fn reconnect_on_unknown_spi(&mut self, now: Instant, src: IpAddr) {
        let host = &self.host;
        let is_without = |hit| matches!(host.state(hit), State::Unassociated | State::Closed | State::EFailed);
        let found = self.peers.iter_mut().find(|(hit, peer)| peer.addresses.contains(&src) && is_without(**hit));
        if let Some((&hit, peer)) = found
            && peer.contact.may_reconnect(now)
        {
            let _ = self.host.connect(now, hit);
            self.collect(now, None);
        }
    }
}
