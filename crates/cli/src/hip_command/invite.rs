//! Invitations: two hosts become peers by one command on each.

use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use holdover_hip::host::State;
use holdover_hip::identity::Hit;
use holdover_hipd::control::{self, ClientError, Request, Response};
use holdover_hipd::files::{
    IdentityFileError, MAX_SERVERS, Peer, Peers, Proxy, ProxyError, Serves, Via, check_address, check_name, generate,
    host_directory, read_identity, write_identity,
};
use holdover_hipd::invitation::{Invitation, Secret};

use super::{DirectoryArgs, Failure, FileArgs, ServesArg, SocketArgs, ViaArg, WRONG, keep, service, tell, wrong};
use crate::command_support::{print, within};

/// The interval of questions to the daemon.
const POLL: Duration = Duration::from_millis(200);
/// How long an exchange may take: with six I1s, of which five may be lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest input that is read for an invitation.
const MAX_TEXT: u64 = 64 << 10;

#[derive(Args, Debug)]
pub(super) struct InviteArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    /// This host's name; default: its host name.
    #[arg(long)]
    name: Option<String>,
    /// For a host that speaks no HIP, whose proxy this host is ("holdover hip proxy add"), instead of for this host itself.
    #[arg(long = "for", value_name = "NAME", conflicts_with = "serves")]
    proxied: Option<String>,
    /// This host's address (repeatable); default: from the daemon.
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<IpAddr>,
    /// The encapsulation of packets to this host; default: "udp", but "ip" if it is a rendezvous server or has one. Always "udp" if it
    /// is a relay or has one.
    #[arg(long, value_enum, value_name = "PROTOCOL")]
    via: Option<ViaArg>,
    /// The service of this host for joining hosts; default: from the daemon.
    #[arg(long, value_enum, value_name = "SERVICE")]
    serves: Option<ServesArg>,
    /// How long the invitation is valid, in seconds. It ends with this command, too.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = within(1_u64..=86_400))]
    expires: u64,
    /// Print an invitation without a secret, and end: any number of hosts may join, and each prints an invitation for this side.
    /// Implied by --for.
    #[arg(long)]
    without_secret: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

#[derive(Args, Debug)]
pub(super) struct JoinArgs {
    /// The string printed by "holdover hip invite" on the other host; "-" to read it from standard input.
    invitation: String,
    /// The other host's name here; default: the name in the invitation.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    files: FileArgs,
}

pub(super) fn invite(args: &InviteArgs) -> Result<ExitCode, Failure> {
    let name = match args.name.as_ref().or(args.proxied.as_ref()) {
        Some(name) => name.clone(),
        None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    check_name(&name).map_err(|error| wrong(&error))?;
    for &address in &args.addresses {
        check_address(address).map_err(|error| wrong(&error))?;
    }
    let (directory, socket) = (&args.directory.dir, &args.socket.socket);
    let is_by_hand = args.without_secret || args.proxied.is_some();
    if !is_by_hand {
        prepare(directory, socket)?;
    }
    let own = Own {
        addresses: &args.addresses,
        via: args.via.map(Via::from),
        proposed: Via::Udp,
        serves: args.serves.map(Serves::from),
    };
    let invitation = own.invitation(directory, socket, name)?;
    let invitation = match &args.proxied {
        Some(host) => for_host(invitation, directory, host)?,
        None => invitation,
    };
    let is_nowhere = invitation.addresses.is_empty() && invitation.servers.is_empty();
    if is_by_hand {
        if is_nowhere {
            eprintln!("no address is known of this host (--address): it will have to call first");
        }
        return Ok(print(&format!("{invitation}\n")));
    }
    if is_nowhere {
        let text = "no address is known of this host, so that none can join: name one (--address), or invite on the other host";
        return Err(Failure { text: text.to_owned(), status: 1 });
    }
    wait_for_guest(args, invitation)
}

/// Opens an invitation, prints it, and waits until a host has joined.
fn wait_for_guest(args: &InviteArgs, invitation: Invitation) -> Result<ExitCode, Failure> {
    let (directory, socket) = (&args.directory.dir, &args.socket.socket);
    let Response::Invited { number, secret } = control::ask(socket, &Request::Invite { valid_s: args.expires })? else {
        return Err(ClientError::unexpected::<Response>().into());
    };
    let _ = print(&format!("{}\n", Invitation { secret: Some(secret), ..invitation }));
    eprintln!(
        "on the other host: sudo holdover hip join - (then this string), once, within {} s; waiting for it",
        args.expires
    );
    loop {
        match control::ask(socket, &Request::Invitation { number })? {
            Response::Open => std::thread::sleep(POLL),
            Response::Joined { hit, invitation } => {
                let kept = keep_guest(directory, socket, Hit(hit), &invitation);
                let _ = control::ask(socket, &Request::Withdraw { number });
                let (name, was_known) = kept?;
                let text = if was_known { "has joined; it was a peer already" } else { "has joined" };
                return Ok(print(&format!("{name} ({}) {text}\n", Hit(hit))));
            }
            Response::Ended => {
                return Err(Failure { text: "the invitation has expired: nobody has joined".to_owned(), status: 1 });
            }
            _ => return Err(ClientError::unexpected::<Response>().into()),
        }
    }
}

/// Writes a host that has joined into the file of peers; returns its name there, and whether it was there before. What it says of itself
/// decides about its name and addresses alone: its HIT is proved.
fn keep_guest(directory: &Path, socket: &Path, hit: Hit, invitation: &str) -> Result<(String, bool), Failure> {
    let mut peers = Peers::read(directory)?;
    if let Some(known) = peers.iter().find(|peer| peer.hit() == hit) {
        return Ok((known.name.clone(), true));
    }
    let said = invitation.parse::<Invitation>().ok();
    let wanted = said.as_ref().map_or("peer", |said| said.name.as_str());
    let name = guest_name(wanted, |name| peers.iter().any(|peer| peer.name == name));
    let peer = match said {
        Some(said) => Peer::new(&name, hit, said.addresses, said.via)?.with_servers(said.servers)?,
        None => Peer::new(&name, hit, Vec::new(), Via::Udp)?,
    };
    peers.add(peer)?;
    peers.write(directory)?;
    tell(socket)?;
    Ok((name, false))
}

/// The name of a host that has named itself. It may become a line of `/etc/hosts`, and must not stand for another host there: so it has one
/// label, and is not this host's own.
fn guest_name(wanted: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let label = wanted.split('.').next().unwrap_or_default();
    let label = if label.eq_ignore_ascii_case("localhost") || check_name(label).is_err() { "peer" } else { label };
    let numbered = (2..).map(|number| format!("{}-{number}", &label[..label.len().min(50)]));
    let mut names = std::iter::once(label.to_owned()).chain(numbered);
    names.find(|name| !is_taken(name)).unwrap_or_default()
}

/// Creates the identity and starts the daemon, if they are missing.
fn prepare(directory: &Path, socket: &Path) -> Result<(), Failure> {
    match read_identity(directory) {
        Ok(_) => {}
        Err(IdentityFileError::None { .. }) => {
            let pair = generate("ed25519").ok_or(Failure { text: "no algorithm".to_owned(), status: 1 })?;
            write_identity(directory, &pair)?;
            eprintln!("this host is {} from now on", pair.hit());
        }
        Err(error) => return Err(error.into()),
    }
    service::ensure(directory, socket)
}

/// The invitation of a host that speaks no HIP: it is reached where its proxy is, and serves nobody.
fn for_host(of_proxy: Invitation, directory: &Path, host: &str) -> Result<Invitation, Failure> {
    let proxy = Proxy::read(directory)?.ok_or_else(|| wrong(&ProxyError::Unknown { name: host.into(), known: vec![] }));
    proxy?.find(host).map_err(|error| wrong(&error))?;
    let keys = host_directory(directory, host).map_err(|error| wrong(&error))?;
    Ok(Invitation { hit: read_identity(&keys)?.hit(), serves: None, ..of_proxy })
}

/// This host's properties from the command line, the rest from the daemon.
struct Own<'a> {
    addresses: &'a [IpAddr],
    via: Option<Via>,
    /// Applies without `via`, unless this host is a client of a rendezvous server.
    proposed: Via,
    serves: Option<Serves>,
}

impl Own<'_> {
    /// With the servers that are in the file of peers.
    fn invitation(&self, directory: &Path, socket: &Path, name: String) -> Result<Invitation, Failure> {
        let hit = read_identity(directory)?.hit();
        let status = control::status(socket).ok();
        let addresses = match (self.addresses, &status) {
            ([], Some(status)) => status.addresses.clone(),
            (named, _) => named.to_vec(),
        };
        let peers = Peers::read(directory)?;
        let own_servers = peers.iter().filter(|peer| peer.serves.is_some());
        let servers = own_servers.flat_map(|peer| peer.addresses.iter().copied()).take(MAX_SERVERS).collect();
        let has_udp = status.as_ref().is_none_or(|status| status.udp);
        let serves = self.serves.or(status.and_then(|status| status.serves));
        let has = |service| serves == Some(service) || peers.iter().any(|peer| peer.serves == Some(service));
        let via = match (has(Serves::Relay), self.via) {
            (true, _) => Via::Udp,
            (false, Some(via)) => via,
            // It forwards no packets in UDP.
            (false, None) if has(Serves::Rendezvous) => Via::Ip,
            (false, None) if self.proposed == Via::Udp && !has_udp => {
                eprintln!("the daemon cannot receive UDP (port 10500): peers send ESP without UDP (--via ip)");
                Via::Ip
            }
            (false, None) => self.proposed,
        };
        Ok(Invitation { name, hit, addresses, via, servers, serves, secret: None })
    }
}

pub(super) fn join(args: &JoinArgs) -> Result<ExitCode, Failure> {
    let text = match args.invitation.as_str() {
        "-" => std::io::read_to_string(std::io::stdin().lock().take(MAX_TEXT))?,
        text => text.to_owned(),
    };
    let invitation: Invitation = text.parse().map_err(|error| wrong(&error))?;
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let own = if check_name(&own).is_ok() { own } else { "peer".to_owned() };
    let (directory, socket) = (&args.files.directory.dir, &args.files.socket.socket);
    if invitation.secret.is_some() {
        prepare(directory, socket)?;
    }
    let back = Own { addresses: &[], via: None, proposed: invitation.via, serves: None };
    let back = back.invitation(directory, socket, own)?;
    if back.hit == invitation.hit {
        return Err(Failure { text: "this is this host's own invitation".to_owned(), status: WRONG });
    }
    let Invitation { name, hit, addresses, via, servers, serves, secret } = invitation;
    let name = args.name.clone().unwrap_or(name);
    let peer = Peer::new(&name, hit, addresses, via)
        .and_then(|peer| peer.with_servers(servers))
        .map_err(|error| wrong(&error))?
        .serving(serves);
    match secret {
        None => {
            keep(&args.files, peer)?;
            Ok(print(&format!("now on {name}:\n  sudo holdover hip join {back}\n")))
        }
        Some(secret) => {
            let mut peers = Peers::read(directory)?;
            peers.add(peer).map_err(|error| wrong(&error))?;
            peers.write(directory)?;
            let joined = present(socket, hit, secret, &back);
            if joined.is_err() {
                let mut peers = Peers::read(directory)?;
                if peers.remove(&name).is_ok() {
                    peers.write(directory)?;
                    tell(socket)?;
                }
            }
            joined.map(|()| print(&format!("{name} is {hit}\nto try: sudo holdover hip ping {name}\n")))
        }
    }
}

/// Accepts an invitation, and waits until the other host has confirmed it.
fn present(socket: &Path, peer: Hit, secret: Secret, own: &Invitation) -> Result<(), Failure> {
    control::ask(socket, &Request::Join { hit: peer.0, secret, own: own.to_string() })?;
    let until = Instant::now() + PATIENCE;
    let (established, failed) = (State::Established.to_string(), State::EFailed.to_string());
    while Instant::now() < until {
        let status = control::status(socket)?;
        let state = status.peers.iter().find(|it| it.hit == peer.to_string()).map(|it| it.state.as_str());
        match state {
            Some(state) if state == established => return Ok(()),
            Some(state) if state == failed => break,
            _ => std::thread::sleep(POLL),
        }
    }
    let text = "the other host has not accepted the invitation: it was used before, has expired, or its command has ended there; or the \
                host cannot be reached from here, as behind a NAT: then invite on this host, and join there";
    Err(Failure { text: text.to_owned(), status: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_does_not_get_the_name_of_another_host() {
        let name = |wanted| guest_name(wanted, |name| ["laptop", "laptop-2"].contains(&name));
        assert_eq!(name("phone"), "phone");
        assert_eq!(name("phone.example.org"), "phone");
        assert_eq!(name("laptop.example.org"), "laptop-3");
        assert_eq!(name("localhost"), "peer");
        assert_eq!(name("LOCALHOST.localdomain"), "peer");
        assert_eq!(name(""), "peer");
        let long = "a".repeat(60);
        assert_eq!(guest_name(&long, |name| name.len() == 60), format!("{}-2", "a".repeat(50)));
    }
}
