//! Opening connections: at the application's request, in answer to a SYN, or in place of another endpoint. Local ports and initial sequence
//! numbers (RFC 6528).

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use holdover_base::Instant;
use holdover_wire::{Flags, Packet, Seq};
use siphasher::sip::SipHasher24;

use super::{ConnectionId, Endpoint, Handshake, hash};
use crate::config::Config;
use crate::connection::{Connection, Opening, Resumption, Snapshot};
use crate::ecn::EcnField;

/// The dynamic ports (RFC 6335 section 6).
const FIRST_EPHEMERAL_PORT: u16 = 49_152;

/// The first local port that is tried.
pub(super) fn first_port(secret: &SipHasher24) -> u16 {
    let span = u16::MAX - FIRST_EPHEMERAL_PORT;
    FIRST_EPHEMERAL_PORT + (secret.finish() as u16 % span)
}

/// Why a connection could not be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectError {
    /// The local address is not one of this host's, or this host has no address of the peer's family.
    #[error("no local address for {remote}")]
    NoLocalAddress {
        /// The peer.
        remote: SocketAddr,
    },
    /// There is a connection between these two already.
    #[error("there is a connection from {local} to {remote} already")]
    InUse {
        /// The local address and port.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
    },
    /// Every dynamic port is in use towards this peer.
    #[error("no port is free for {remote}")]
    NoFreePort {
        /// The peer.
        remote: SocketAddr,
    },
    /// The peer's address or port is one that no connection can have.
    #[error("{remote} cannot be connected to")]
    BadRemote {
        /// The peer.
        remote: SocketAddr,
    },
}

impl Endpoint {
    /// Answers the SYN in `packet` without a listener. Unlike a listener's, such a connection reports a failed handshake
    /// ([`Event::Closed`](super::Event::Closed)). `None` if the packet is no SYN for this endpoint, or there is such a connection already.
    pub fn accept(&mut self, now: Instant, config: Arc<Config>, packet: &Packet) -> Option<ConnectionId> {
        let segment = packet.tcp()?;
        let local = SocketAddr::new(packet.dst, segment.dst_port);
        let remote = SocketAddr::new(packet.src, segment.src_port);
        let is_syn = segment.flags & (Flags::SYN | Flags::ACK | Flags::RST) == Flags::SYN;
        let may_be = is_syn && self.has(packet.dst) && is_unicast(remote.ip()) && segment.src_port != 0;
        if !may_be || self.find(local, remote).is_some() {
            return None;
        }
        let opening = self.opening(now, local, remote);
        let ecn = EcnField::of_traffic_class(packet.traffic_class);
        Some(self.insert(Connection::accept_with_ecn(now, config, opening, segment, ecn), Handshake::Done))
    }

    /// Opens a connection to `remote`, from `local` if given (port 0: any port).
    pub fn connect(
        &mut self,
        now: Instant,
        config: Arc<Config>,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<ConnectionId, ConnectError> {
        if remote.port() == 0 || !is_unicast(remote.ip()) {
            return Err(ConnectError::BadRemote { remote });
        }
        // Without flow label and scope, which no segment has.
        let remote = SocketAddr::new(remote.ip(), remote.port());
        let address = match local {
            Some(local) => Some(local.ip()).filter(|&address| self.has(address)),
            None => self.addresses.iter().find(|address| address.is_ipv4() == remote.is_ipv4()).copied(),
        };
        let address = address
            .filter(|address| address.is_ipv4() == remote.is_ipv4())
            .ok_or(ConnectError::NoLocalAddress { remote })?;
        let local = match local.map_or(0, |local| local.port()) {
            0 => self.free_port(address, remote)?,
            port => SocketAddr::new(address, port),
        };
        if self.find(local, remote).is_some() {
            return Err(ConnectError::InUse { local, remote });
        }
        let opening = self.opening(now, local, remote);
        Ok(self.insert(Connection::connect(now, config, opening), Handshake::Done))
    }

    /// Continues a connection of another endpoint ([`Connection::resume`]).
    pub fn resume(
        &mut self,
        now: Instant,
        config: Arc<Config>,
        resumption: &Resumption,
    ) -> Result<ConnectionId, ConnectError> {
        self.check_resumption(resumption)?;
        Ok(self.insert(Connection::resume(now, config, resumption), Handshake::Done))
    }

    /// Continues a connection of another endpoint with the data in its buffers ([`Connection::restore`]).
    pub fn restore(
        &mut self,
        now: Instant,
        config: Arc<Config>,
        snapshot: &Snapshot,
    ) -> Result<ConnectionId, ConnectError> {
        self.check_resumption(&snapshot.resumption)?;
        Ok(self.insert(Connection::restore(now, config, snapshot), Handshake::Done))
    }

    fn check_resumption(&self, resumption: &Resumption) -> Result<(), ConnectError> {
        let Resumption { local, remote, .. } = *resumption;
        if local.port() == 0 || remote.port() == 0 || !is_unicast(remote.ip()) {
            return Err(ConnectError::BadRemote { remote });
        }
        if !self.has(local.ip()) || local.is_ipv4() != remote.is_ipv4() {
            return Err(ConnectError::NoLocalAddress { remote });
        }
        if self.find(local, remote).is_some() {
            return Err(ConnectError::InUse { local, remote });
        }
        Ok(())
    }

    /// RFC 6528: a clock of 4 us and a hash of the connection with a secret.
    pub(super) fn opening(&self, now: Instant, local: SocketAddr, remote: SocketAddr) -> Opening {
        let hash = hash(&self.secret, local, remote);
        let clock = (now.as_nanos() / 4_000) as u32;
        Opening { local, remote, iss: Seq::new(clock.wrapping_add(hash as u32)), timestamp_offset: (hash >> 32) as u32 }
    }

    fn free_port(&mut self, address: IpAddr, remote: SocketAddr) -> Result<SocketAddr, ConnectError> {
        for _ in FIRST_EPHEMERAL_PORT..=u16::MAX {
            let local = SocketAddr::new(address, self.next_port);
            self.next_port = if self.next_port == u16::MAX { FIRST_EPHEMERAL_PORT } else { self.next_port + 1 };
            if self.find(local, remote).is_none() && !self.listeners.contains_key(&local.port()) {
                return Ok(local);
            }
        }
        Err(ConnectError::NoFreePort { remote })
    }
}

/// Whether an address can be one host's.
pub(super) fn is_unicast(address: IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && address != IpAddr::V4(core::net::Ipv4Addr::BROADCAST)
}
