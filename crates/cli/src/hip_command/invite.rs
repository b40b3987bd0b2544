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
    IdentityFileError, MAX_ADDRESSES, MAX_SERVERS, Peer, PeerError, Peers, Proxy, ProxyError, Serves, Via,
    check_address, check_name, generate, host_directory, read_identity, write_identity,
};
use holdover_hipd::invitation::{Invitation, Secret};

use super::{DirectoryArgs, Failure, FileArgs, ServesArg, SocketArgs, ViaArg, WRONG, reload_peers, service, wrong};
use crate::command_support::{print, print_note, within};

/// The interval of questions to the daemon.
const POLL: Duration = Duration::from_millis(200);
/// The timeout of an exchange: six I1s are sent, and five may be lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest input that is read for an invitation.
const MAX_TEXT: u64 = 64 << 10;
/// Prefixes of the names of loopback and multicast addresses in `/etc/hosts`: `localhost6`, `ip6-loopback`, `ip6-allnodes`.
const RESERVED: [&str; 4] = ["localhost", "loopback", "ip6-", "ipv6-"];

#[derive(Args, Debug)]
pub(super) struct InviteArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    /// This host's name; default: its host name.
    #[arg(long)]
    name: Option<String>,
    /// Invite on behalf of a host without HIP for which this host is the proxy ("holdover hip proxy add").
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
    /// The other host's name here; default: the first label of that in the invitation, with a number if it is taken.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    files: FileArgs,
}

pub(super) fn invite(args: &InviteArgs) -> Result<ExitCode, Failure> {
    let name = match args.name.as_ref().or(args.proxied.as_ref()) {
        Some(name) => name.clone(),
        None => host_name(),
    };
    check_name(&name).map_err(|error| wrong(&error))?;
    if args.addresses.len() > MAX_ADDRESSES {
        return Err(wrong(&PeerError::TooMany { count: args.addresses.len() }));
    }
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
            print_note(&format_args!("no address is known of this host (--address): it will have to call first"));
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
    print_note(&format_args!(
        "on the other host: sudo holdover hip join - (then this string), once, within {} s; waiting for it",
        args.expires
    ));
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

/// Writes a host that has joined into the file of peers; returns its name there, and whether it was there before. Its own statements
/// determine only its name and addresses: its HIT is proved.
fn keep_guest(directory: &Path, socket: &Path, hit: Hit, invitation: &str) -> Result<(String, bool), Failure> {
    let parsed = invitation.parse::<Invitation>().ok();
    let kept = Peers::change(directory, |peers| -> Result<_, Failure> {
        if let Some(known) = peers.iter().find(|peer| peer.hit() == hit) {
            return Ok((known.name.clone(), true));
        }
        let name = free_name(parsed.as_ref().map_or("", |parsed| parsed.name.as_str()), peers);
        let peer = match parsed {
            Some(parsed) => Peer::new(&name, hit, parsed.addresses, parsed.via)?.with_servers(parsed.servers)?,
            None => Peer::new(&name, hit, Vec::new(), Via::Udp)?,
        };
        peers.add(peer)?;
        Ok((name, false))
    });
    let (name, was_known) = kept?;
    if !was_known {
        reload_peers(socket)?;
    }
    Ok((name, was_known))
}

/// The name here of a host that has named itself.
fn free_name(wanted: &str, peers: &Peers) -> String {
    name_here(wanted, &host_name(), |name| peers.iter().any(|peer| peer.name.eq_ignore_ascii_case(name)))
}

/// The name here of a host that has named itself. It may become a line of `/etc/hosts`, whose names are not case-sensitive, and must not
/// stand for another host there: so it has one label, and is not this host's own name or one of its loopback device.
fn name_here(wanted: &str, own: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let (label, own) = (first_label(wanted), first_label(own));
    let begins_with = |prefix: &&str| label.get(..prefix.len()).is_some_and(|it| it.eq_ignore_ascii_case(prefix));
    let label = if RESERVED.iter().any(begins_with) || check_name(label).is_err() { "peer" } else { label };
    let numbered = (2..).map(|number| format!("{}-{number}", &label[..label.len().min(50)]));
    let mut names = std::iter::once(label.to_owned()).chain(numbered);
    names.find(|name| !name.eq_ignore_ascii_case(own) && !is_taken(name)).unwrap_or_default()
}

fn first_label(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

/// This host's name, as `uname -n` prints it.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Creates the identity and starts the daemon, if they are missing. A daemon that runs has to be that of this identity: it proves the
/// invitations, by its own.
fn prepare(directory: &Path, socket: &Path) -> Result<(), Failure> {
    let own = match read_identity(directory) {
        Ok(pair) => Some(pair.hit()),
        Err(IdentityFileError::None { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    match control::status(socket) {
        Ok(status) if own.is_some_and(|own| own.to_string() == status.hit) => return Ok(()),
        Ok(status) => {
            let (socket, hit, directory) = (socket.display(), status.hit, directory.display());
            let text = format!(
                "the daemon at {socket} is {hit}, whose identity is not in {directory}: name its directory (--dir), or \
                 another socket (--socket); if the identity was replaced, restart the daemon"
            );
            return Err(Failure { text, status: 1 });
        }
        Err(ClientError::NotRunning { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    if own.is_none() {
        let pair = generate("ed25519").ok_or(Failure { text: "no algorithm".to_owned(), status: 1 })?;
        write_identity(directory, &pair)?;
        print_note(&format_args!("this host is {} from now on", pair.hit()));
    }
    service::start(directory, socket)
}

/// The invitation of a host without HIP: it is reached at its proxy's addresses, and offers no service.
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
        // A daemon with another identity, as in another namespace, has other addresses and services.
        let status = control::status(socket).ok().filter(|status| status.hit == hit.to_string());
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
                print_note(&format_args!(
                    "the daemon cannot receive UDP (port 10500): peers send ESP without UDP (--via ip)"
                ));
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
    let own = host_name();
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
    let name = Peers::change(directory, |peers| -> Result<_, Failure> {
        let name = args.name.clone().unwrap_or_else(|| free_name(&name, peers));
        let peer = Peer::new(&name, hit, addresses, via)
            .and_then(|peer| peer.with_servers(servers))
            .map_err(|error| wrong(&error))?;
        peers.add(peer.serving(serves)).map_err(|error| wrong(&error))?;
        Ok(name)
    });
    let name = name?;
    let Some(secret) = secret else {
        reload_peers(socket)?;
        return Ok(print(&format!(
            "{name} is {hit}\non {name}, unless it knows this host already:\n  sudo holdover hip join {back}\n"
        )));
    };
    let joined = present(socket, hit, secret, &back);
    if joined.is_err() {
        let removed =
            Peers::change(directory, |peers| -> Result<_, Failure> { Ok(peers.remove(&hit.to_string()).is_ok()) });
        if removed? {
            reload_peers(socket)?;
        }
    }
    joined.map(|()| print(&format!("{name} is {hit}\nto try: sudo holdover hip ping {name}\n")))
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
    fn a_host_does_not_choose_the_name_of_another_one() {
        let name = |wanted| name_here(wanted, "Desk.example.org", |name| ["laptop", "laptop-2"].contains(&name));
        assert_eq!(name("phone"), "phone");
        assert_eq!(name("phone.example.org"), "phone");
        assert_eq!(name("laptop.example.org"), "laptop-3");
        assert_eq!(name("www"), "www");
        // This host's own name.
        for own in ["desk", "DESK", "desk.example.com"] {
            assert!(name(own).eq_ignore_ascii_case("desk-2"), "{own}: {}", name(own));
        }
        assert_eq!(name_here("peer", "peer", |_| false), "peer-2");
        for reserved in
            ["localhost", "LOCALHOST.localdomain", "localhost6", "Loopback", "ip6-localhost", "IP6-allnodes"]
        {
            assert_eq!(name(reserved), "peer", "{reserved}");
        }
        for invalid in ["", "-a", ".example.org", "ä"] {
            assert_eq!(name(invalid), "peer", "{invalid}");
        }
        let long = "a".repeat(60);
        let numbered = name_here(&long, "desk", |name| name.len() == 60);
        assert_eq!(numbered, format!("{}-2", "a".repeat(50)));
    }

    #[test]
    fn names_that_differ_in_case_only_are_one_name() {
        let hit = |last: u16| Hit(format!("2001:25::{last}").parse().unwrap());
        let mut peers = Peers::default();
        peers.add(Peer::new("laptop", hit(1), Vec::new(), Via::Udp).unwrap()).unwrap();
        assert_eq!(free_name("LAPTOP", &peers), "LAPTOP-2");
    }
}
