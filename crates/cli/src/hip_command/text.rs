//! The answers of `holdover hip` as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use holdover_hip::identity::Hit;
use holdover_hipd::files::{Peers, ProxiedHost, Via};
use holdover_hipd::status::{PathStatus, PeerStatus, ProxyStatus, Status};

use crate::text_table::{Layout, columns, laid_out};

/// The peers in the file.
pub(super) fn peers(peers: &Peers, lsis: &BTreeMap<Hit, Ipv4Addr>) -> String {
    let rows = peers.iter().map(|peer| {
        let via = if peer.via == Via::Udp { "udp" } else { "ip" };
        let lsi = lsis.get(&peer.hit()).map_or_else(|| "-".to_owned(), Ipv4Addr::to_string);
        [peer.name.clone(), peer.hit().to_string(), lsi, via.to_owned(), list(&peer.addresses)]
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return "no peers: holdover hip join, holdover hip peer add\n".to_owned();
    }
    columns(["peer", "HIT", "LSI", "via", "addresses"], rows.into_iter())
}

/// The hosts without HIP, behind this interface.
pub(super) fn hosts(interface: Option<&str>, hosts: &[(ProxiedHost, Hit)]) -> String {
    let (Some(interface), false) = (interface, hosts.is_empty()) else {
        return "no hosts: holdover hip proxy add\n".to_owned();
    };
    let rows = hosts.iter().map(|(host, hit)| [host.name.clone(), hit.to_string(), list(&host.addresses)]);
    format!("behind {interface}\n{}", columns(["host", "HIT", "addresses"], rows))
}

/// The status as text.
pub(super) fn status(status: &Status) -> String {
    let lsi = status.lsi.map(|lsi| format!(", in IPv4 {lsi}")).unwrap_or_default();
    let mut text = format!("{}{lsi}  at {}  on {}\n", status.hit, list(&status.addresses), status.interface);
    text.push_str(&standbys(status));
    if !status.wake {
        text.push_str("TCP is not woken after a move (--no-wake)\n");
    }
    match status.hold_s {
        Some(hold) => {
            let _ = writeln!(text, "TCP connections are held open for {} without an answer", span(hold));
        }
        None => text.push_str("TCP connections end by their own limits (hip.toml)\n"),
    }
    if let Some(serves) = status.serves {
        let _ = writeln!(text, "serves as {serves}: {} clients", status.clients);
    }
    for peer in status.peers.iter().filter(|peer| !peer.services.is_empty()) {
        let name = name(peer);
        let _ = writeln!(text, "{name} serves this host as {}", peer.services.join(", "));
    }
    for peer in &status.peers {
        text.push_str(&held(name(peer), peer));
    }
    if status.links.iter().any(|link| link.standby) {
        text.push_str(&paths(&status.peers));
    }
    // As in `hip top`: the columns of addresses and moves are dropped first.
    let layout = Layout { given_up: &[2, 4], ..Layout::default() };
    text.push_str(&laid_out(["peer", "state", "at", "out / in", "moves"], layout, status.peers.iter().map(peer_row)));
    if let Some(proxy) = &status.proxy {
        text.push_str(&proxy_status(proxy));
    }
    let counters = &status.counters;
    let dropped =
        counters.not_authentic + counters.unknown_spi + counters.no_path + counters.not_sealed + counters.not_waited;
    let _ = writeln!(
        text,
        "dropped: {dropped} packets of data, {} of HIP; {} to unreachable peers",
        counters.hip_dropped, counters.unreachable
    );
    text
}

/// The links that are not in use.
fn standbys(status: &Status) -> String {
    let standbys = status.links.iter().filter(|link| link.standby);
    let text: Vec<String> = standbys.map(|it| format!("{} on {}", it.address, it.link)).collect();
    if text.is_empty() { String::new() } else { format!("standby: {}\n", text.join(", ")) }
}

/// The path of data to each peer, and the others.
fn paths(peers: &[PeerStatus]) -> String {
    let mut text = String::new();
    for peer in peers.iter().filter(|peer| peer.paths.len() > 1) {
        let path = |path: &PathStatus| {
            let link = path.link.as_ref().map(|link| format!(" on {link}")).unwrap_or_default();
            let state = match (path.in_use, path.verified) {
                (true, _) => ", in use",
                (false, true) => ", verified",
                (false, false) => ", not verified",
            };
            format!("{} to {}{link}{state}", path.from, path.to)
        };
        let _ = writeln!(text, "{}: {}", name(peer), peer.paths.iter().map(path).collect::<Vec<_>>().join("; "));
    }
    text
}

/// The connections of a peer that does not answer.
fn held(name: &str, peer: &PeerStatus) -> String {
    let Some(silence) = peer.longest_silence_s.filter(|_| peer.held_connections > 0) else { return String::new() };
    format!("{name} has not answered for {}: {} TCP connections are held open\n", span(silence), peer.held_connections)
}

fn peer_row(peer: &PeerStatus) -> [String; 5] {
    let state = match (peer.is_moving, peer.is_silent) {
        (true, _) => format!("{}, moving", peer.state),
        (false, true) => format!("{}, silent", peer.state),
        (false, false) => peer.state.clone(),
    };
    let moves = match peer.last_readdressing_s {
        Some(last) => format!("{} (last {:.0} ms)", peer.counters.readdressed, last * 1e3),
        None => "0".to_owned(),
    };
    let bytes = format!("{} / {}", bytes(peer.counters.bytes_out), bytes(peer.counters.bytes_in));
    let way = if peer.in_udp { format!("{} (udp)", list(&peer.addresses)) } else { list(&peer.addresses) };
    [name(peer).to_owned(), state, way, bytes, moves]
}

/// The hosts without HIP, each with the peers that it has an association with.
fn proxy_status(proxy: &ProxyStatus) -> String {
    let mut text = format!("proxy for hosts behind {}, on {}\n", proxy.interface, proxy.device);
    let rows = proxy.hosts.iter().flat_map(|host| {
        let connected: Vec<_> = host.peers.iter().filter(|peer| peer.state != "UNASSOCIATED").collect();
        let own = [host.name.clone(), list(&host.addresses)];
        let none = connected.is_empty().then(|| [&own[..], &["-".to_owned(), String::new(), String::new()]].concat());
        let peers = connected.into_iter().map(move |peer| {
            let [name, state, _, bytes, _] = peer_row(peer);
            [&own[..], &[name, state, bytes]].concat()
        });
        none.into_iter().chain(peers).collect::<Vec<_>>()
    });
    let rows = rows.filter_map(|row| <[String; 5]>::try_from(row).ok());
    text.push_str(&columns(["host", "its addresses", "peer", "state", "out / in"], rows));
    for host in &proxy.hosts {
        for peer in &host.peers {
            text.push_str(&held(&format!("for {}, {}", host.name, self::name(peer)), peer));
        }
    }
    for (name, reason) in &proxy.left_out {
        let _ = writeln!(text, "without effect: {name}: {reason}");
    }
    if proxy.unknown_hosts > 0 {
        let _ = writeln!(text, "dropped from {}: {} packets of other hosts", proxy.interface, proxy.unknown_hosts);
    }
    text
}

/// A time in its largest unit.
fn span(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        120.0..7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3600.0),
    }
}

/// This host, in a line.
pub(super) fn summary(status: &Status) -> String {
    format!("{}  at {}", status.hit, list(&status.addresses))
}

/// The columns of [`peer_cells`].
pub(super) const PEER_COLUMNS: [&str; 6] = ["PEER", "STATE", "AT", "OUT Mbit/s", "IN Mbit/s", "MOVES"];

/// A peer with the current rates to and from it, in bits per second.
pub(super) fn peer_cells(peer: &PeerStatus, rates: [f64; 2]) -> [String; 6] {
    let [out, back] = rates.map(|rate| format!("{:.3}", rate / 1e6));
    let moves = peer.counters.readdressed.to_string();
    [name(peer).to_owned(), peer.state.clone(), list(&peer.addresses), out, back, moves]
}

/// The name of a peer: its HIT if it is not in the file of peers.
pub(super) fn name(peer: &PeerStatus) -> &str {
    peer.name.as_deref().unwrap_or(&peer.hit)
}

fn list(addresses: &[IpAddr]) -> String {
    if addresses.is_empty() {
        return "-".to_owned();
    }
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{} kB", count / 1000),
        _ => format!("{} MB", count / 1_000_000),
    }
}
