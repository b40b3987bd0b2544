//! The status shown by `holdover hip status`.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::files::Serves;

/// The status of the daemon.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// Its uptime in seconds.
    pub running_s: f64,
    /// This host's HIT.
    pub hit: String,
    /// Its LSI, the address at which its programs reach it over IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsi: Option<Ipv4Addr>,
    /// The TUN device.
    pub interface: String,
    /// This host's locators as announced to peers, the preferred one first.
    pub addresses: Vec<IpAddr>,
    /// Their interfaces, in the same order.
    #[serde(default)]
    pub links: Vec<LinkStatus>,
    /// Whether packets in UDP can be received.
    pub udp: bool,
    /// Whether TCP is woken after a move.
    pub wake: bool,
    /// The user timeout of connections with peers in seconds; missing if each TCP has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_s: Option<f64>,
    /// The service of this host: "rendezvous" or "relay".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves: Option<Serves>,
    /// Clients that are registered here.
    #[serde(default)]
    pub clients: u64,
    /// The peers: those in the file, and those with an association.
    pub peers: Vec<PeerStatus>,
    /// The proxy for hosts without HIP, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyStatus>,
    /// The packet counters, of all identities.
    pub counters: Counters,
}

/// The link of an address of this host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkStatus {
    /// The address.
    pub address: IpAddr,
    /// The interface.
    pub link: String,
    /// Whether it is a standby: the routes prefer another one.
    pub standby: bool,
}

/// The status of the proxy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProxyStatus {
    /// The interface behind which the hosts are.
    pub interface: String,
    /// The TUN device of their packets.
    pub device: String,
    /// Packets from that interface without effect: from addresses that have no identity.
    pub unknown_hosts: u64,
    /// The hosts.
    pub hosts: Vec<HostStatus>,
    /// Hosts of the file that have no effect, by name, with the reasons.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, String>,
}

/// The status of a host without HIP.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// Its HIT, whose key this host holds.
    pub hit: String,
    /// Its own addresses.
    pub addresses: Vec<IpAddr>,
    /// Its peers.
    pub peers: Vec<PeerStatus>,
}

/// The status of a peer.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name; missing if it is not in the file of peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its HIT.
    pub hit: String,
    /// Its LSI: the IPv4 address that stands for it on this host only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsi: Option<Ipv4Addr>,
    /// The state of the association, as RFC 7401 spells it.
    pub state: String,
    /// Whether packets to it go in UDP.
    pub in_udp: bool,
    /// Its verified addresses.
    pub addresses: Vec<IpAddr>,
    /// The paths that data to it can take, the best ones first.
    #[serde(default)]
    pub paths: Vec<PathStatus>,
    /// Its addresses in the file of peers.
    pub known_addresses: Vec<IpAddr>,
    /// Its rendezvous servers and relays in the file of peers.
    #[serde(default)]
    pub servers: Vec<IpAddr>,
    /// The services that it has granted to this host.
    #[serde(default)]
    pub services: Vec<String>,
    /// Whether this host has a new address that the peer has not verified yet.
    pub is_moving: bool,
    /// Whether data for it is sent, and nothing comes back on any path.
    #[serde(default)]
    pub is_silent: bool,
    /// The duration of the last readdressing, from the new address to the end of its verification, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_readdressing_s: Option<f64>,
    /// Packets waiting for an association.
    pub waiting_packets: u64,
    /// TCP connections with it that are held open because it does not answer.
    #[serde(default)]
    pub held_connections: u64,
    /// The longest silence of these when it was last answered, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_silence_s: Option<f64>,
    /// Counters of connections that are held open.
    #[serde(flatten)]
    pub hold: HoldCounters,
    /// The packet counters.
    #[serde(flatten)]
    pub counters: PeerCounters,
}

/// A path to a peer: an address of this host, and a verified one of the peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PathStatus {
    /// This host's address.
    pub from: IpAddr,
    /// The peer's.
    pub to: IpAddr,
    /// The interface of this host's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Whether data takes it now.
    pub in_use: bool,
    /// Whether the peer has verified this host's address.
    pub verified: bool,
}

/// Packets to and from a peer, with the headers of the inner packets.
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
    /// The number of this host's addresses that it has verified.
    pub readdressed: u64,
    /// The number of changes of keys.
    #[serde(default)]
    pub rekeyed: u64,
    /// How often a translator showed it at another address or port.
    #[serde(default)]
    pub followed: u64,
    /// How often nothing came back on the path that data took, though neither host had moved.
    #[serde(default)]
    pub silent_paths: u64,
}

/// Segments of TCP connections with a peer, for the user timeout.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct HoldCounters {
    /// Retransmissions and probes that were answered in its place, to hold a connection open.
    #[serde(default)]
    pub held_answers: u64,
    /// Segments to it that were given the option of RFC 5482.
    #[serde(default)]
    pub user_timeouts_sent: u64,
    /// Segments of it with that option.
    #[serde(default)]
    pub user_timeouts_received: u64,
}

/// Packet counters for all peers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// Packets sent in ESP.
    pub sealed: u64,
    /// Packets received in ESP.
    pub opened: u64,
    /// ESP packets with a failed integrity check, and replays.
    pub not_authentic: u64,
    /// ESP for no association.
    pub unknown_spi: u64,
    /// Packets dropped because no address of the peer may be sent to.
    pub no_path: u64,
    /// Packets dropped because they could not be encrypted, as with worn-out keys or if they are too long.
    pub not_sealed: u64,
    /// Packets dropped because they exceed the MTU of the path, answered by an ICMP error.
    #[serde(default)]
    pub too_big: u64,
    /// Fragments sent of packets that exceed the MTU of the path and may not be refused: of at most 1,280 bytes, and of HIP.
    #[serde(default)]
    pub fragments: u64,
    /// Packets dropped because too many waited for an association.
    pub not_waited: u64,
    /// Packets to unknown or unreachable peers, answered by an ICMP error.
    pub unreachable: u64,
    /// Packets of programs other than from this host's HIT to a HIT, or from its LSI to a peer's.
    pub not_for_hits: u64,
    /// HIP packets received.
    pub hip_in: u64,
    /// HIP packets sent.
    pub hip_out: u64,
    /// Packets received without effect: malformed, forged, outdated, or from a stranger.
    pub hip_dropped: u64,
    /// Packets to peers in UDP that keep translators' bindings alive.
    #[serde(default)]
    pub keep_alives: u64,
    /// HIP packets that were forwarded to or for clients, or sent to a port where a relay has seen a peer.
    #[serde(default)]
    pub relayed_hip: u64,
    /// ESP packets that were forwarded for clients.
    #[serde(default)]
    pub relayed_esp: u64,
    /// Packets of wake.
    pub woken: u64,
    /// Packets that the system refused to send, as without a route.
    pub not_sent: u64,
    /// Invalid packets of programs, of the proxy's hosts, with a wrong checksum too, or of the network.
    pub not_read: u64,
}

impl core::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.sealed += other.sealed;
        self.opened += other.opened;
        self.not_authentic += other.not_authentic;
        self.unknown_spi += other.unknown_spi;
        self.no_path += other.no_path;
        self.not_sealed += other.not_sealed;
        self.too_big += other.too_big;
        self.fragments += other.fragments;
        self.not_waited += other.not_waited;
        self.unreachable += other.unreachable;
        self.not_for_hits += other.not_for_hits;
        self.hip_in += other.hip_in;
        self.hip_out += other.hip_out;
        self.hip_dropped += other.hip_dropped;
        self.keep_alives += other.keep_alives;
        self.relayed_hip += other.relayed_hip;
        self.relayed_esp += other.relayed_esp;
        self.woken += other.woken;
        self.not_sent += other.not_sent;
        self.not_read += other.not_read;
    }
}
