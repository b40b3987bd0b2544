//! Packets on their way through a server: their source, the destination of answers, and the packets that a server
//! forwards.

use core::net::IpAddr;

use bytes::Bytes;
use holdover_wire::Packet;

use crate::codec::{Builder, Parameter, RelayAddress};
use crate::crypto::Rhash;
use crate::identity::Hit;

/// The UDP port of HIP (RFC 9028 section 5.1).
pub(super) const UDP_PORT: u16 = 10_500;
/// The IP protocol number of UDP.
pub(super) const UDP: u8 = 17;

/// A packet that a server forwards, or that goes to a special port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relayed {
    /// The packet.
    pub packet: Packet,
    /// The destination.
    pub to: RelayTarget,
}

/// The destination of a [`Relayed`] packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelayTarget {
    /// A peer, by its usual path.
    Peer(Hit),
    /// In UDP to this port of the packet's destination.
    Port(u16),
}

/// The server of this host that has forwarded a packet, and the packet's source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Via {
    pub(super) server: Hit,
    /// The server's address.
    pub(super) at: IpAddr,
    /// The source as seen by the server; port 0 for a rendezvous server. The peer may be sent to at this address without the server, if that
    /// is no relay; for a relay it is a candidate.
    pub(super) from: (IpAddr, u16),
    pub(super) is_relay: bool,
}

/// The relay for answers to a packet, which forwards them to its source.
#[derive(Clone, Debug)]
pub(super) struct ReplyVia {
    pub(super) at: IpAddr,
    pub(super) to: RelayAddress,
    pub(super) rhash: Rhash,
    pub(super) key: Vec<u8>,
}

/// The relaying between this host and a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RelayedPeer {
    pub(super) server: Hit,
    pub(super) at: IpAddr,
    /// The peer as the relay sees it.
    pub(super) from: (IpAddr, u16),
}

impl ReplyVia {
    /// Adds RELAY_TO and RELAY_HMAC to a packet that goes to the relay (RFC 9028 sections 4.8 and 5.8).
    pub(super) fn address(&self, builder: &mut Builder, dst: IpAddr) {
        if dst != self.at {
            return;
        }
        let mut addressed = builder.clone();
        if addressed.push(&Parameter::RelayTo(self.to)).is_ok() {
            let mac = self.rhash.mac(&self.key, addressed.covered());
            if addressed.push(&Parameter::RelayHmac(Bytes::from(mac))).is_ok() {
                *builder = addressed;
            }
        }
    }
}
