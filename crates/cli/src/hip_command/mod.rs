//! `holdover hip`: host identities, the peers of this host, and the daemon that talks to them.

mod between_hits;
mod daemon;
mod dns;
mod invite;
mod opportunistic;
mod ping;
mod proxy;
mod service;
mod text;
mod top;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use holdover_hip::identity::Hit;
use holdover_hipd::control::{self, ClientError, DEFAULT_SOCKET, Request};
use holdover_hipd::core::LsiPrefix;
use holdover_hipd::files::{
    DEFAULT_DIRECTORY, Peer, Peers, Serves, Via, check_name, generate, read_identity, write_identity,
};
use serde_json::json;

use crate::command_support::{print, print_error, print_json, with_causes};

/// Arguments of `holdover hip`.
#[derive(Args, Debug)]
pub(crate) struct HipArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Create this host's identity: a key readable by root only.
    Keygen(KeygenArgs),
    /// Print this host's HIT, or its record for the DNS.
    Id(IdArgs),
    /// Manage the accepted peers and their addresses.
    #[command(subcommand)]
    Peer(PeerCommand),
    /// Manage the hosts without HIP for which this host is the proxy.
    #[command(subcommand)]
    Proxy(proxy::ProxyCommand),
    /// Print a string for another host (holdover hip join STRING), and wait until it has joined: both are peers then. Makes the
    /// identity and starts the daemon, if they are missing.
    Invite(invite::InviteArgs),
    /// Accept an invitation: both hosts are peers then. Creates the identity and starts the daemon, if they are missing.
    Join(invite::JoinArgs),
    /// Run the daemon until stopped.
    Up(daemon::UpArgs),
    /// Run the daemon as a rendezvous server: hosts reach its clients through it at any address.
    Rendezvous(daemon::UpArgs),
    /// Run the daemon as a relay: two hosts behind NATs reach each other through it, and send data through it where
    /// there is no direct path.
    Relay(daemon::UpArgs),
    /// End the associations with all peers, and the daemon.
    Down(SocketArgs),
    /// Show this host's addresses, its peers, and their traffic.
    Status(StatusArgs),
    /// Show the traffic to and from each peer, every second.
    Top(SocketArgs),
    /// Measure the round-trip time to a peer.
    Ping(ping::PingArgs),
    /// Write the packets in ESP of a capture with HITs in place of addresses. Wireshark, given the keys (up --esp-keys), then agrees with the
    /// checksums within, which cover the HITs.
    BetweenHits(between_hits::BetweenHitsArgs),
}

#[derive(Args, Debug)]
struct DirectoryArgs {
    /// The directory of identity and peers.
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DIRECTORY)]
    dir: PathBuf,
}

#[derive(Args, Debug)]
struct SocketArgs {
    /// The daemon's control socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
}

#[derive(Args, Debug)]
struct KeygenArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    /// The kind of key.
    #[arg(long, value_enum, default_value_t = KeyKind::Ed25519)]
    algorithm: KeyKind,
}

/// Kinds of keys, by their names in the file.
#[derive(Clone, Copy, ValueEnum, Debug)]
enum KeyKind {
    Ed25519,
    EcdsaP256,
    EcdsaP384,
    Rsa,
}

#[derive(Args, Debug)]
struct IdArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    /// Print the HIP record (RFC 8005) to add to the zone of this name; default: "@", the zone's own name.
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = dns::ZONE)]
    dns: Option<String>,
    /// The name of a rendezvous server of this host, for its record (repeatable; the preferred one first).
    #[arg(long = "rendezvous", value_name = "NAME", requires = "dns")]
    servers: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum PeerCommand {
    /// Add a peer: by its HIT, or without one from the DNS, by its HIP record (RFC 8005), its addresses and its rendezvous servers.
    Add(PeerAddArgs),
    /// Remove a peer.
    Remove(PeerRemoveArgs),
    /// List all peers.
    List(PeerListArgs),
}

#[derive(Args, Debug)]
struct PeerAddArgs {
    /// The peer's name on this host.
    name: String,
    /// Its HIT, as "holdover hip id" prints it there; default: from the DNS.
    #[arg(value_parser = hit)]
    hit: Option<Ipv6Addr>,
    /// The peer's addresses; none if it always initiates.
    addresses: Vec<IpAddr>,
    /// Take the HIT of whatever host answers at this address now. Nothing proves that it is the host that was meant.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["hit", "addresses", "dns", "resolver", "require_dnssec"])]
    opportunistic: Option<IpAddr>,
    #[command(flatten)]
    lookup: dns::LookupArgs,
    /// The encapsulation of packets to it; default: "udp", but "ip" if the DNS names rendezvous servers, which forward nothing in UDP.
    #[arg(long, value_enum, value_name = "PROTOCOL")]
    via: Option<ViaArg>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FileArgs,
}

#[derive(Args, Debug)]
struct PeerRemoveArgs {
    /// Its name or HIT.
    name: String,
    #[command(flatten)]
    files: FileArgs,
}

#[derive(Args, Debug)]
struct PeerListArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    /// Print JSON.
    #[arg(long, conflicts_with = "hosts")]
    json: bool,
    /// Print lines for /etc/hosts.
    #[arg(long)]
    hosts: bool,
    /// Show the LSIs of peers under this prefix; default: the current ones.
    #[arg(long, value_name = "PREFIX")]
    lsi_prefix: Option<LsiPrefix>,
    #[command(flatten)]
    socket: SocketArgs,
}

/// A change of the file of peers, followed by a notice to a running daemon.
#[derive(Args, Debug)]
struct FileArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    #[command(flatten)]
    socket: SocketArgs,
}

/// How a peer's packets are carried.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum ViaArg {
    /// As IP protocols 139 and 50.
    Ip,
    /// In UDP on port 10500.
    Udp,
}

/// A host's service for its peers.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum ServesArg {
    Rendezvous,
    Relay,
}

#[derive(Args, Debug)]
struct StatusArgs {
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// The exit status for invalid input.
const WRONG: u8 = 2;

/// Why a command failed, with the text for people.
struct Failure {
    text: String,
    status: u8,
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { text: with_causes(&error), status: 1 }
    }
}

fn wrong(error: &dyn std::error::Error) -> Failure {
    Failure { text: with_causes(error), status: WRONG }
}

pub(crate) fn run(args: &HipArgs) -> ExitCode {
    let result = match &args.command {
        Command::Keygen(args) => keygen(args),
        Command::Id(args) => id(args),
        Command::Peer(PeerCommand::Add(args)) => add(args),
        Command::Peer(PeerCommand::Remove(args)) => remove(args),
        Command::Peer(PeerCommand::List(args)) => list(args),
        Command::Proxy(command) => proxy::run(command),
        Command::Invite(args) => invite::invite(args),
        Command::Join(args) => invite::join(args),
        Command::Up(args) => daemon::up(args, None),
        Command::Rendezvous(args) => daemon::up(args, Some(Serves::Rendezvous)),
        Command::Relay(args) => daemon::up(args, Some(Serves::Relay)),
        Command::Down(args) => daemon::down(args),
        Command::Status(args) => daemon::status(args),
        Command::Top(args) => Ok(top::run(&args.socket)),
        Command::Ping(args) => ping::ping(args),
        Command::BetweenHits(args) => between_hits::between_hits(args),
    };
    result.unwrap_or_else(|failure| {
        print_error(&failure.text);
        ExitCode::from(failure.status)
    })
}

impl KeyKind {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

fn keygen(args: &KeygenArgs) -> Result<ExitCode, Failure> {
    let name = args.algorithm.name();
    let pair = generate(&name).ok_or_else(|| Failure { text: format!("unknown algorithm {name}"), status: WRONG })?;
    let path = write_identity(&args.directory.dir, &pair)?;
    Ok(print(&format!("{}\nthe key is in {}\n", pair.hit(), path.display())))
}

fn id(args: &IdArgs) -> Result<ExitCode, Failure> {
    let pair = read_identity(&args.directory.dir)?;
    let hit = pair.hit().to_string();
    let record = args.dns.as_deref().map(|name| dns::OwnRecord::new(pair.identity(), name, &args.servers));
    let record = record.transpose()?;
    Ok(match record {
        Some(record) if args.json => print_json(&json!({ "hit": hit, "dns": record })),
        Some(record) => print(&record.line()),
        None if args.json => print_json(&json!({ "hit": hit })),
        None => print(&format!("{hit}\n")),
    })
}

fn add(args: &PeerAddArgs) -> Result<ExitCode, Failure> {
    check_name(&args.name).map_err(|error| wrong(&error))?;
    let via = args.via.map(Via::from);
    // It ends when the daemon has read the file.
    let _call;
    let (peer, found) = match (args.hit, args.opportunistic) {
        (_, Some(address)) => {
            let via = via.unwrap_or(Via::Udp);
            let at = (&*args.files.directory.dir, &*args.files.socket.socket);
            let (call, hit) = opportunistic::call(at, &args.name, address, via)?;
            _call = call;
            (Peer::new(&args.name, hit, vec![address], via), None)
        }
        (Some(hit), None) => (Peer::new(&args.name, Hit(hit), args.addresses.clone(), via.unwrap_or(Via::Udp)), None),
        (None, None) => {
            let found = args.lookup.find(&args.name)?;
            (found.peer(&args.name, via), Some(found))
        }
    };
    let peer = peer.map_err(|error| wrong(&error))?;
    let hit = peer.hit();
    if read_identity(&args.files.directory.dir).is_ok_and(|own| own.hit() == hit) {
        return Err(Failure { text: format!("{hit} is this host's own: a peer is another host"), status: WRONG });
    }
    let added = peer.clone();
    Peers::change(&args.files.directory.dir, |peers| peers.add(added).map_err(|error| wrong(&error)))?;
    reload_peers(&args.files.socket.socket)?;
    if args.json {
        return Ok(print_json(&json!({ "peer": peer, "dns": found })));
    }
    let origin = found.map(|found| found.text(peer.via)).unwrap_or_default();
    let origin = if args.opportunistic.is_some() { opportunistic::WARNING.to_owned() } else { origin };
    Ok(print(&format!("{} is {hit}\n{origin}", peer.name)))
}

/// An argument in the place of a HIT.
fn hit(text: &str) -> Result<Ipv6Addr, String> {
    text.parse().map_err(|_| "expected NAME HIT ADDRESS..., with a HIT as \"holdover hip id\" prints it".to_owned())
}

fn remove(args: &PeerRemoveArgs) -> Result<ExitCode, Failure> {
    let directory = &args.files.directory.dir;
    let peer = Peers::change(directory, |peers| peers.remove(&args.name).map_err(|error| wrong(&error)))?;
    reload_peers(&args.files.socket.socket)?;
    Ok(print(&format!("{} ({}) is no peer any more\n", peer.name, peer.hit())))
}

/// Makes a running daemon reload the peers.
fn reload_peers(socket: &Path) -> Result<(), Failure> {
    match control::ask(socket, &Request::Reload) {
        Ok(_) | Err(ClientError::NotRunning { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn list(args: &PeerListArgs) -> Result<ExitCode, Failure> {
    let peers = Peers::read(&args.directory.dir)?;
    let lsis = match args.lsi_prefix {
        Some(prefix) => prefix.assign(peers.iter().map(Peer::hit)),
        None => lsis_of_daemon(&args.socket.socket),
    };
    let text = if args.json {
        return Ok(print_json(&peers));
    } else if args.hosts {
        hosts(&peers, &lsis)
    } else {
        text::peers(&peers, &lsis)
    };
    Ok(print(&text))
}

/// The current LSIs; none without a daemon.
fn lsis_of_daemon(socket: &Path) -> BTreeMap<Hit, Ipv4Addr> {
    let Ok(status) = control::status(socket) else { return BTreeMap::new() };
    status.peers.iter().filter_map(|peer| Some((Hit(peer.hit.parse().ok()?), peer.lsi?))).collect()
}

/// Lines for `/etc/hosts`: programs with IPv6 use the HIT.
fn hosts(peers: &Peers, lsis: &BTreeMap<Hit, Ipv4Addr>) -> String {
    let line = |peer: &Peer| {
        let lsi = lsis.get(&peer.hit()).map(|lsi| format!("{lsi} {}\n", peer.name));
        format!("{} {}\n{}", peer.hit(), peer.name, lsi.unwrap_or_default())
    };
    peers.iter().map(line).collect()
}

impl From<ViaArg> for Via {
    fn from(via: ViaArg) -> Self {
        match via {
            ViaArg::Ip => Self::Ip,
            ViaArg::Udp => Self::Udp,
        }
    }
}

impl From<ServesArg> for Serves {
    fn from(serves: ServesArg) -> Self {
        match serves {
            ServesArg::Rendezvous => Self::Rendezvous,
            ServesArg::Relay => Self::Relay,
        }
    }
}
