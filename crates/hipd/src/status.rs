//! What `holdover hip status` shows.

use core::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::files::Serves;

/// How it all is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// For how many seconds it has been running.
    pub running_s: f64,
    /// This host's HIT.
    pub hit: String,
    /// Its LSI, by which programs of this host reach it over IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsi: Option<Ipv4Addr>,
    /// The TUN device.
    pub interface: String,
    /// Where this host is, as its peers are told, the preferred address first.
    pub addresses: Vec<IpAddr>,
    /// Whether packets in UDP can be received.
    pub udp: bool,
    /// Whether TCP is woken after a move.
    pub wake: bool,
    /// What this host serves as: "rendezvous", "relay".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves: Option<Serves>,
    /// Clients that are registered here.
    #[serde(default)]
    pub clients: u64,
    /// The peers: those in the file, and those with an association.
    pub peers: Vec<PeerStatus>,
    /// What was done with packets.
    pub counters: Counters,
}

/// How it is with a peer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PeerStatus {
    /// What it is called; missing if it is not in the file of peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Who it is.
    pub hit: String,
    /// Its LSI: the IPv4 address that stands for it on this host, and on no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsi: Option<Ipv4Addr>,
    /// The state of the association, as RFC 7401 spells it.
    pub state: String,
    /// Whether packets to it go in UDP.
    pub in_udp: bool,
    /// Where it was found to be.
    pub addresses: Vec<IpAddr>,
    /// Where the file of peers says that it may be.
    pub known_addresses: Vec<IpAddr>,
    /// Its rendezvous servers and relays, as the file of peers names them.
    #[serde(default)]
    pub servers: Vec<IpAddr>,
    /// What it has granted to this host.
    #[serde(default)]
    pub services: Vec<String>,
    /// Whether this host has a new address at which the peer has not found it yet.
    pub is_moving: bool,
    /// How many seconds it took the last time, from the new address to the end of its verification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_readdressing_s: Option<f64>,
    /// Packets that wait for an association.
    pub waiting_packets: u64,
    /// What went and came.
    #[serde(flatten)]
    pub counters: PeerCounters,
}

/// What went to a peer and came from it, headers of the inner packets included.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct PeerCounters {
    /// Packets to it.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Packets from it.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// How often it has found this host at a new address.
    pub readdressed: u64,
    /// How often keys were changed.
    #[serde(default)]
    pub rekeyed: u64,
    /// How often a translator of addresses showed it at another address or port.
    #[serde(default)]
    pub followed: u64,
}

/// What was done with packets, for all peers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// Packets that went out in ESP.
    pub sealed: u64,
    /// Packets that came in ESP.
    pub opened: u64,
    /// ESP whose integrity check failed, or that was a replay.
    pub not_authentic: u64,
    /// ESP for no association.
    pub unknown_spi: u64,
    /// Packets dropped because the peer is at no address that may be sent to.
    pub no_path: u64,
    /// Packets dropped because they could not be sealed.
    pub not_sealed: u64,
    /// Packets dropped because too many waited for an association.
    pub not_waited: u64,
    /// Packets to unknown or unreachable peers, answered by an ICMP error.
    pub unreachable: u64,
    /// Packets of programs that are not from this host's HIT to a HIT, nor from its LSI to a peer's.
    pub not_for_hits: u64,
    /// HIP packets that came.
    pub hip_in: u64,
    /// HIP packets that went out.
    pub hip_out: u64,
    /// Packets that came and had no effect: malformed, forged, out of date, or from a stranger.
    pub hip_dropped: u64,
    /// Packets to peers in UDP that keep the bindings of translators.
    #[serde(default)]
    pub keep_alives: u64,
    /// HIP packets that were forwarded to or for clients, or sent to a port where a relay has seen a peer.
    #[serde(default)]
    pub relayed_hip: u64,
    /// ESP packets that were forwarded for clients.
    #[serde(default)]
    pub relayed_esp: u64,
    /// Packets that wake has made.
    pub woken: u64,
    /// Packets that the system refused to send, as for want of a route.
    pub not_sent: u64,
    /// Packets of programs or of the network that could not be read.
    pub not_read: u64,
}
