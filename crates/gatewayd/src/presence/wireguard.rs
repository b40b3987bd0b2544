//! Peers of a WireGuard interface, by generic netlink (`linux/wireguard.h`): their endpoints, handshakes and counters.
//!
//! WireGuard has no connections. A peer that receives data and sends none within 10 s then sends a keep-alive, and it
//! answers the initiation of a handshake at once (WireGuard's whitepaper, sections 5.4 and 6). So a peer that was sent
//! data or an initiation, and from which nothing came since, is away after 15 s (the whitepaper's time for a new
//! handshake). A keep-alive is not answered: the router's kernel sends one 10 s after the last data of an idle peer, and
//! with a persistent keep-alive one each interval.
//!
//! The kernel counts bytes, and keep-alives among them. Growth that may consist of keep-alives only does not count. An
//! initiation counts, also one that was sent to renew the key for a keep-alive: a peer that is there answers it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;
use holdover_gateway::divert::Source;
use holdover_host::Requests;
use holdover_host::generic_netlink::{Generic, attribute, attributes, value};
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};

use super::SourceReport;
use crate::network::Network;

/// `WG_CMD_GET_DEVICE`, `WGDEVICE_A_IFINDEX` and `WGDEVICE_A_PEERS`.
const GET_DEVICE: u8 = 0;
const INTERFACE: u16 = 1;
const PEERS: u16 = 8;

/// `WGPEER_A_PUBLIC_KEY`, `WGPEER_A_ENDPOINT`, `WGPEER_A_LAST_HANDSHAKE_TIME`, `WGPEER_A_RX_BYTES`, `WGPEER_A_TX_BYTES` and
/// `WGPEER_A_ALLOWEDIPS`.
const PUBLIC_KEY: u16 = 1;
const ENDPOINT: u16 = 4;
const LAST_HANDSHAKE: u16 = 6;
const RECEIVED: u16 = 7;
const SENT: u16 = 8;
const ALLOWED: u16 = 9;

/// `WGALLOWEDIP_A_FAMILY`, `WGALLOWEDIP_A_IPADDR` and `WGALLOWEDIP_A_CIDR_MASK`.
const ADDRESS: u16 = 2;
const BITS: u16 = 3;

/// How often peers are queried.
const QUERY_EVERY: Duration = Duration::from_millis(250);

/// Bytes of a keep-alive: a data message without data. Data messages have at least 64 (an IPv4 header, padded), the
/// initiation of a handshake has 148, and the answer to one 92.
const KEEP_ALIVE: u64 = 32;

/// A public key.
type Key = [u8; 32];

/// See the [module](self).
pub(super) struct WireGuardWatch {
    queries: Generic,
    index: u32,
    query_at: Instant,
    peers: Peers,
}

/// The state of a peer in the kernel.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct PeerInfo {
    /// `struct sockaddr`; empty if none is known.
    endpoint: Vec<u8>,
    /// `struct __kernel_timespec` of the last handshake; empty if the message has none.
    handshake: Vec<u8>,
    received: u64,
    sent: u64,
    networks: Vec<Network>,
}

impl WireGuardWatch {
    /// In the network namespace of the calling thread; `None` if the interface is no WireGuard interface. `silence`: after
    /// which time without an answer a peer is away.
    pub(super) fn open(now: Instant, index: u32, silence: Duration) -> io::Result<Option<Self>> {
        if !is_wireguard(index)? {
            // The kernel would load the module.
            return Ok(None);
        }
        let queries = Generic::open(b"wireguard\0")?;
        Ok(Some(Self { queries, index, query_at: now, peers: Peers::new(silence) }))
    }

    /// Handles deadlines.
    pub(super) fn handle_timeout(&mut self, now: Instant, reports: &mut Vec<SourceReport>) {
        if now < self.query_at {
            return;
        }
        self.query_at = now + QUERY_EVERY;
        match self.queries.ask(GET_DEVICE, NLM_F_DUMP, &attribute(INTERFACE, &self.index.to_ne_bytes())) {
            Ok(answers) => self.peers.handle_peers(now, read_peers(&answers), reports),
            Err(error) => tracing::debug!(%error, "cannot query peers"),
        }
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        self.query_at
    }
}

fn is_wireguard(index: u32) -> io::Result<bool> {
    let links = Requests::open()?.request(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)?;
    let is_of_kind = |attribute: &LinkAttribute| match attribute {
        LinkAttribute::LinkInfo(info) => info.contains(&LinkInfo::Kind(InfoKind::Wireguard)),
        _ => false,
    };
    Ok(links.iter().any(|message| match message {
        RouteNetlinkMessage::NewLink(link) => link.header.index == index && link.attributes.iter().any(is_of_kind),
        _ => false,
    }))
}

/// The peers in the messages of an answer. A peer with many networks is continued in the next message.
fn read_peers(messages: &[Vec<u8>]) -> BTreeMap<Key, PeerInfo> {
    let mut peers = BTreeMap::<Key, PeerInfo>::new();
    for message in messages {
        for (_, peer) in value(message, PEERS).into_iter().flat_map(attributes) {
            let Some(key) = value(peer, PUBLIC_KEY).and_then(|key| key.try_into().ok()) else { continue };
            let known = peers.entry(key).or_default();
            let number = |kind| value(peer, kind)?.try_into().ok().map(u64::from_ne_bytes);
            // A continuation of a peer has its key and networks only.
            if let Some(endpoint) = value(peer, ENDPOINT) {
                known.endpoint = endpoint.to_vec();
            }
            if let Some(handshake) = value(peer, LAST_HANDSHAKE) {
                known.handshake = handshake.to_vec();
            }
            known.received = number(RECEIVED).unwrap_or(known.received);
            known.sent = number(SENT).unwrap_or(known.sent);
            let networks = value(peer, ALLOWED).into_iter().flat_map(attributes);
            known.networks.extend(networks.filter_map(|(_, allowed)| read_network(allowed)));
        }
    }
    peers
}

fn read_network(allowed: &[u8]) -> Option<Network> {
    let address = value(allowed, ADDRESS)?;
    let v4 = || Some(Ipv4Addr::from(<[u8; 4]>::try_from(address).ok()?).into());
    let address: IpAddr = v4().or_else(|| Some(Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?).into()))?;
    let &[bits] = value(allowed, BITS)? else { return None };
    Network::new(address, bits)
}

/// The peers, without I/O.
#[derive(Debug)]
struct Peers {
    silence: Duration,
    peers: BTreeMap<Key, Peer>,
}

#[derive(Debug)]
struct Peer {
    info: PeerInfo,
    queried_at: Instant,
    /// Since when it has not answered a message to it.
    waiting_since: Option<Instant>,
    is_silent: bool,
}

impl Peers {
    fn new(silence: Duration) -> Self {
        Self { silence, peers: BTreeMap::new() }
    }

    fn handle_peers(&mut self, now: Instant, found: BTreeMap<Key, PeerInfo>, reports: &mut Vec<SourceReport>) {
        self.peers.retain(|key, _| found.contains_key(key));
        let mut changes = Vec::new();
        for (key, info) in &found {
            let anew = || Peer { info: info.clone(), queried_at: now, waiting_since: None, is_silent: false };
            let peer = self.peers.entry(*key).or_insert_with(anew);
            if let Some(presence) = peer.handle_info(now, self.silence, info.clone()) {
                changes.push((key, presence));
            }
        }
        for (key, presence) in changes {
            for &network in &found[key].networks {
                // The peer with the longest prefix has an address.
                let others = found.iter().filter(|(other, _)| *other != key).flat_map(|(_, info)| &info.networks);
                let except = others.copied().filter(|other| is_within(*other, network)).collect();
                reports.push(SourceReport::Network { network, except, source: Source::WireGuard, presence });
            }
        }
    }
}

fn is_within(inner: Network, outer: Network) -> bool {
    outer.contains(inner.address()) && inner.mapped().1 > outer.mapped().1
}

impl Peer {
    /// Handles the queried state of the peer. Returns its presence if that has changed.
    fn handle_info(&mut self, now: Instant, silence: Duration, info: PeerInfo) -> Option<Presence> {
        let before = std::mem::replace(&mut self.info, info);
        let elapsed = now.saturating_since(std::mem::replace(&mut self.queried_at, now));
        let info = &self.info;
        let has_moved = !before.endpoint.is_empty() && before.endpoint != info.endpoint;
        let is_heard = info.received != before.received || info.handshake != before.handshake;
        if is_heard || has_moved {
            self.waiting_since = None;
            let was_silent = std::mem::take(&mut self.is_silent);
            return if has_moved { Some(Presence::Rebound) } else { was_silent.then_some(Presence::Present) };
        }
        if !may_be_keep_alives(info.sent.saturating_sub(before.sent), elapsed) {
            self.waiting_since.get_or_insert(now);
        }
        let is_over = self.waiting_since.is_some_and(|since| now.saturating_since(since) >= silence);
        (is_over && !std::mem::replace(&mut self.is_silent, true)).then_some(Presence::Away)
    }
}

/// Whether all bytes sent in this time may be keep-alives: persistent ones are a second apart at least, and
/// one more may follow received data.
fn may_be_keep_alives(bytes: u64, elapsed: Duration) -> bool {
    let most = 2 + elapsed.as_secs();
    bytes.is_multiple_of(KEEP_ALIVE) && bytes / KEEP_ALIVE <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(1_000_000 + ms)
    }

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn endpoint(last: u8) -> Vec<u8> {
        [&2u16.to_ne_bytes()[..], &[0xca, 0x6c, 192, 0, 2, last], &[0; 8]].concat()
    }

    fn allowed(address: &[u8], bits: u8) -> Vec<u8> {
        attribute(0x8000, &[attribute(1, &[2, 0]), attribute(ADDRESS, address), attribute(BITS, &[bits])].concat())
    }

    fn peer(key: u8, parts: &[Vec<u8>]) -> Vec<u8> {
        attribute(0x8000, &[attribute(PUBLIC_KEY, &[key; 32]), parts.concat()].concat())
    }

    fn device(peers: &[Vec<u8>]) -> Vec<u8> {
        [attribute(INTERFACE, &[9, 0, 0, 0]), attribute(PEERS | 0x8000, &peers.concat())].concat()
    }

    fn first_message() -> Vec<u8> {
        let counters = [
            attribute(ENDPOINT, &endpoint(1)),
            attribute(LAST_HANDSHAKE, &[7; 16]),
            attribute(RECEIVED, &1000u64.to_ne_bytes()),
            attribute(SENT, &2000u64.to_ne_bytes()),
            attribute(ALLOWED | 0x8000, &allowed(&[10, 8, 0, 2], 32)),
        ];
        // One peer has not sent anything yet, and has no endpoint.
        device(&[peer(1, &counters), peer(2, &[])])
    }

    #[test]
    fn peers_are_read_also_when_they_are_continued() {
        let v6 = Ipv6Addr::LOCALHOST.octets();
        let second = device(&[peer(1, &[attribute(ALLOWED | 0x8000, &allowed(&v6, 128))])]);
        let peers = read_peers(&[first_message(), second]);
        let expected = PeerInfo {
            endpoint: endpoint(1),
            handshake: vec![7; 16],
            received: 1000,
            sent: 2000,
            networks: vec![network("10.8.0.2/32"), network("::1/128")],
        };
        assert_eq!(peers, BTreeMap::from([([1; 32], expected), ([2; 32], PeerInfo::default())]));
    }

    #[test]
    fn truncated_messages_have_fewer_entries() {
        let whole = first_message();
        for cut in 0..whole.len() {
            assert!(read_peers(&[whole[..cut].to_vec()]).len() < 2, "{cut}");
        }
    }

    fn info(endpoint_of: u8, received: u64, sent: u64) -> PeerInfo {
        let networks = vec![network("10.8.0.2/32")];
        PeerInfo { endpoint: endpoint(endpoint_of), handshake: vec![7; 16], received, sent, networks }
    }

    /// Sizes of messages: data of a TCP SYN (60 bytes, padded to 64), an initiation and an answer of a handshake.
    const SYN: u64 = 96;
    const INITIATION: u64 = 148;
    const ANSWER: u64 = 92;

    /// The peer's state at a time: which changes of its presence are reported.
    fn query(peers: &mut Peers, ms: u64, info: PeerInfo) -> Vec<Presence> {
        let mut reports = Vec::new();
        peers.handle_peers(at(ms), BTreeMap::from([([1; 32], info)]), &mut reports);
        let presence = |report| match report {
            SourceReport::Network { presence, source: Source::WireGuard, .. } => presence,
            other => panic!("{other:?}"),
        };
        reports.into_iter().map(presence).collect()
    }

    #[test]
    fn an_idle_peer_with_keep_alives_is_not_away_but_one_that_answers_no_data_or_handshake() {
        let mut peers = Peers::new(Duration::from_secs(15));
        let (received, mut sent, mut ms) = (2000, 1000, 0);
        // The kernel's keep-alive 10 s after the peer's last data, and a persistent one every second for two minutes.
        for turn in 0..480u64 {
            sent += KEEP_ALIVE * (u64::from(turn == 40) + u64::from(turn.is_multiple_of(4)));
            assert_eq!(query(&mut peers, ms, info(1, received, sent)), [], "{ms}");
            ms += 250;
        }
        // The daemon was stopped for 30 s.
        (ms, sent) = (ms + 30_000, sent + 30 * KEEP_ALIVE);
        assert_eq!(query(&mut peers, ms, info(1, received, sent)), []);
        assert_eq!(query(&mut peers, ms + 20_000, info(1, received, sent)), []);
        // A keep-alive renews the key: the peer answers.
        (ms, sent) = (ms + 20_250, sent + KEEP_ALIVE + INITIATION);
        assert_eq!(query(&mut peers, ms, info(1, received, sent)), []);
        let answered = |sent| PeerInfo { handshake: vec![8; 16], ..info(1, received + ANSWER, sent) };
        assert_eq!(query(&mut peers, ms + 250, answered(sent)), []);
        sent += KEEP_ALIVE;
        assert_eq!(query(&mut peers, ms + 500, answered(sent)), [], "it confirms the key");
        assert_eq!(query(&mut peers, ms + 60_000, answered(sent)), []);
        ms += 60_000;
        // The peer answers no further initiation.
        for turn in 1..=60 {
            sent += if turn % 20 == 1 { INITIATION } else { 0 };
            assert_eq!(query(&mut peers, ms + 250 * turn, answered(sent)), [], "{turn}");
        }
        assert_eq!(query(&mut peers, ms + 250 * 61, answered(sent)), [Presence::Away]);
    }

    #[test]
    fn small_data_is_told_from_keep_alives() {
        let mut peers = Peers::new(Duration::from_secs(15));
        assert_eq!(query(&mut peers, 0, info(1, 10, 10)), []);
        assert_eq!(query(&mut peers, 250, info(1, 10, 10 + SYN)), []);
        assert_eq!(query(&mut peers, 15_000, info(1, 10, 10 + SYN)), []);
        assert_eq!(query(&mut peers, 15_250, info(1, 10, 10 + SYN)), [Presence::Away]);
    }

    // Claim: WireGuard peers, from made-up messages with the sizes of real ones: a peer is away if data or the initiation of a
    // handshake was sent and nothing came, and not if it is idle or is sent keep-alives only; a keep-alive, a handshake or
    // another endpoint end that; the peer with the longest prefix has an address.
    // Tests: `wireguard::an_idle_peer_with_keep_alives_is_not_away_but_one_that_answers_no_data_or_handshake`,
    // `wireguard::small_data_is_told_from_keep_alives`, `wireguard::peers_are_read_also_when_they_are_continued`,
    // `wireguard::addresses_of_a_more_specific_peer_are_excepted`
    #[test]
    fn a_peer_is_away_if_something_was_sent_and_nothing_came() {
        let mut peers = Peers::new(Duration::from_secs(15));
        let mut query = |ms, info| query(&mut peers, ms, info);
        assert_eq!(query(0, info(1, 1000, 1000)), []);
        assert_eq!(query(3_600_000, info(1, 1000, 1000)), [], "idle for an hour");
        assert_eq!(query(3_600_250, info(1, 1000, 1096)), []);
        assert_eq!(query(3_615_000, info(1, 1000, 1192)), []);
        assert_eq!(query(3_615_250, info(1, 1000, 1192)), [Presence::Away]);
        assert_eq!(query(3_620_000, info(1, 1000, 1340)), [], "once");
        // A keep-alive.
        assert_eq!(query(3_620_250, info(1, 1032, 1340)), [Presence::Present]);
        assert_eq!(query(3_700_000, info(1, 1032, 1340)), []);
        // Answered in time.
        assert_eq!(query(3_700_250, info(1, 1032, 2820)), []);
        assert_eq!(query(3_710_250, info(1, 1064, 2820)), []);
        assert_eq!(query(3_720_250, info(1, 1064, 2916)), []);
        assert_eq!(query(3_730_000, info(2, 1064, 2916)), [Presence::Rebound], "from another address");
        assert_eq!(query(3_740_000, info(2, 1064, 2916)), []);
        // A handshake without data.
        assert_eq!(query(3_740_250, info(2, 1064, 3064)), []);
        assert_eq!(query(3_760_000, info(2, 1064, 3064)), [Presence::Away]);
        assert_eq!(query(3_760_250, PeerInfo { handshake: vec![8; 16], ..info(2, 1064, 3064) }), [Presence::Present]);
    }

    #[test]
    fn addresses_of_a_more_specific_peer_are_excepted() {
        let mut peers = Peers::new(Duration::from_secs(15));
        let of = |text, endpoint_of| PeerInfo { networks: vec![network(text)], ..info(endpoint_of, 1, 1) };
        let mut reports = Vec::new();
        for endpoint_of in [1, 2] {
            let found = [([1; 32], of("10.8.0.0/24", endpoint_of)), ([2; 32], of("10.8.0.7/32", 1))];
            peers.handle_peers(at(0), BTreeMap::from(found), &mut reports);
        }
        let expected = SourceReport::Network {
            network: network("10.8.0.0/24"),
            except: vec![network("10.8.0.7/32")],
            source: Source::WireGuard,
            presence: Presence::Rebound,
        };
        assert_eq!(reports, [expected]);
    }
}
