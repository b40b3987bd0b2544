//! The features of this kernel, user and host, each probed separately.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use holdover_host::feature::Feature;

use crate::core::{LsiPrefix, PORT};
use crate::daemon::{
    ELSEWHERE, SocketDiag, has_strict_filter, missing_forwarding, probe_sockets, source_for, standbys,
};
use crate::files::{Peers, Proxy, Settings, check_address, read_identity};

/// Probes everything, without side effects. Looks for identity and peers in `directory`.
pub fn examine(directory: &Path) -> Vec<Feature> {
    vec![
        Feature::tun("HIP's TUN", "no packets of programs are taken"),
        Feature::tried(
            "HIP's sockets",
            true,
            "nothing is sent",
            "run as root (CAP_NET_RAW)",
            probe_sockets().map(|()| "raw sockets can be opened".to_owned()),
        ),
        Feature::tried(
            "HIP's UDP port",
            false,
            "peers behind translators of addresses cannot reach this host, unless a daemon has the port already",
            "holdover hip status; ss -ulnp",
            udp_port(),
        ),
        Feature::tried(
            "HIP's identity",
            false,
            "holdover hip up does not start",
            "holdover hip keygen, as root",
            read_identity(directory).map(|pair| pair.hit().to_string()).map_err(|error| error.to_string()),
        ),
        Feature::tried(
            "HIP's peers",
            false,
            "no peer may talk to this host",
            "holdover hip join, holdover hip peer add",
            peers(directory),
        ),
        Feature::tried(
            "HIP's settings",
            false,
            "holdover hip up does not start",
            "correct hip.toml",
            settings(directory),
        ),
        Feature::tried(
            "HIP's addresses",
            false,
            "this host has no address to offer to its peers",
            "add a default route",
            addresses(),
        ),
        Feature::tried(
            "HIP's standby links",
            false,
            "peers do not find this host by its other uplinks before these are used",
            "sysctl -w net.ipv4.conf.all.rp_filter=2",
            standby_links(),
        ),
        Feature::tried(
            "HIP's sock_diag",
            false,
            "connections from peers do not reach IPv4 programs",
            "modprobe tcp_diag udp_diag",
            sock_diag(),
        ),
        Feature::tried(
            "HIP's LSIs",
            false,
            "some addresses of this network are hidden by those of peers for programs with IPv4",
            "holdover hip up --lsi-prefix with another prefix, or --no-lsi",
            lsis(LsiPrefix::default()),
        ),
        Feature::tried(
            "HIP's proxy",
            false,
            "hosts without HIP do not reach this host's peers",
            "holdover hip proxy list; sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
            proxy(directory),
        ),
    ]
}

/// The hosts whose proxy this is: whether packets may pass to them.
fn proxy(directory: &Path) -> Result<String, String> {
    let file = Proxy::read(directory).map_err(|error| error.to_string())?;
    let count = file.iter().flat_map(Proxy::iter).count();
    let missing = file.as_ref().map(missing_forwarding).unwrap_or_default();
    match (count, missing.is_empty()) {
        (0, _) => Ok("no hosts (holdover hip proxy add)".to_owned()),
        (_, true) => Ok(format!("{count} hosts")),
        (_, false) => Err(format!("{} is 0", missing.join(" and "))),
    }
}

/// Whether the kernel reports the socket for a packet.
fn sock_diag() -> Result<String, String> {
    let diag = SocketDiag::open(0).map_err(|error| error.to_string())?;
    if diag.silent().is_empty() {
        Ok("the kernel reports sockets of TCP and UDP".to_owned())
    } else {
        Err("the kernel does not report sockets".to_owned())
    }
}

fn udp_port() -> Result<String, String> {
    let bound = UdpSocket::bind(("0.0.0.0", PORT));
    bound.map(|_| format!("{PORT} is free")).map_err(|error| format!("{PORT}: {error}"))
}

fn peers(directory: &Path) -> Result<String, String> {
    let peers = Peers::read(directory).map_err(|error| error.to_string())?;
    match peers.iter().count() {
        0 => Err(format!("none in {}", directory.display())),
        count => Ok(format!("{count} in {}", directory.display())),
    }
}

/// How long connections are held open, and whether peers are called that nothing has proved.
fn settings(directory: &Path) -> Result<String, String> {
    let settings = Settings::read(directory).map_err(|error| error.to_string())?;
    let mut text = match settings.hold {
        Some(hold) => format!("connections are held open for {}", hold.timeout),
        None => "connections end by their own limits".to_owned(),
    };
    if settings.is_opportunistic {
        text += "; opportunistic mode is on";
    }
    Ok(text)
}

/// The addresses of this host on its default route.
fn addresses() -> Result<String, String> {
    let sources = ELSEWHERE.into_iter().filter_map(source_for).filter(|&source| check_address(source).is_ok());
    let found: Vec<String> = sources.map(|it| it.to_string()).collect();
    if found.is_empty() { Err("no default route, or no address for it".to_owned()) } else { Ok(found.join(", ")) }
}

/// The links with a route that are not in use, and whether the kernel takes what arrives there.
fn standby_links() -> Result<String, String> {
    let found = standbys().map_err(|error| error.to_string())?;
    let mut strict = found.iter().filter(|(address, link)| has_strict_filter(*address, link));
    if let Some((_, link)) = strict.next() {
        return Err(format!("rp_filter is 1 at {link}: what arrives there from peers is dropped"));
    }
    let found: Vec<String> = found.iter().map(|(address, link)| format!("{address} on {link}")).collect();
    Ok(if found.is_empty() { "none".to_owned() } else { found.join(", ") })
}

/// Whether this host has another route to addresses of the prefix.
fn lsis(prefix: LsiPrefix) -> Result<String, String> {
    let everywhere = ELSEWHERE.into_iter().filter_map(source_for).collect::<Vec<_>>();
    match source_for(prefix.own().into()) {
        Some(source) if source != IpAddr::V4(prefix.own()) && !everywhere.contains(&source) => {
            Err(format!("{prefix} has a route already, from {source}"))
        }
        _ => Ok(format!("{prefix} is unused")),
    }
}
