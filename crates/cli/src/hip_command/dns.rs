//! Peers from the DNS, and this host's own record for it (RFC 8005).

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use clap::Args;
use holdover_hip::identity::{Hit, HostIdentity};
use holdover_hipd::dns::{DomainName, FoundHost, HipRecord, Proof, Resolver, Resolvers, domain_name, find_host};
use holdover_hipd::files::{Peer, PeerError, Via};
use serde::Serialize;

use super::{Failure, wrong};

/// A zone's own name, in its file (RFC 1035 section 5.1).
pub(super) const ZONE: &str = "@";
/// The port of resolvers.
const PORT: u16 = 53;

/// How a peer is looked up.
#[derive(Args, Debug)]
pub(super) struct LookupArgs {
    /// The full name to look up; default: the peer's name on this host.
    #[arg(long, value_name = "NAME", conflicts_with = "hit")]
    dns: Option<String>,
    /// The resolver, with or without a port; default: those of /etc/resolv.conf.
    #[arg(long, value_name = "ADDRESS", value_parser = resolver, conflicts_with = "hit")]
    resolver: Option<SocketAddr>,
    /// Refuse a HIP record that was not validated by DNSSEC: the resolver has to say so (AD), and has to be on this host, or trusted by
    /// "options trust-ad" in /etc/resolv.conf. Addresses need no proof: the host at them proves its identity itself.
    #[arg(long, conflicts_with = "hit")]
    require_dnssec: bool,
}

fn resolver(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT));
    let error = || "expected an address, as 127.0.0.1, 127.0.0.1:5353 or [::1]:5353".to_owned();
    address.or_else(|_| text.parse()).map_err(|_| error())
}

impl LookupArgs {
    /// The host of this name.
    pub(super) fn find(&self, peer: &str) -> Result<Found, Failure> {
        let name = domain_name(self.dns.as_deref().unwrap_or(peer)).map_err(|error| wrong(&error))?;
        let resolvers = self.resolver.map_or_else(Resolvers::of_system, |address| Ok(Resolvers::one(address)))?;
        let host = find_host(&Resolver::new(resolvers), &name, self.require_dnssec)?;
        Ok(Found { name, host })
    }
}

/// A peer that was found in the DNS.
pub(super) struct Found {
    name: DomainName,
    host: FoundHost,
}

impl Found {
    pub(super) fn hit(&self) -> Hit {
        self.host.identity.hit()
    }

    /// The peer, in UDP unless it has rendezvous servers.
    pub(super) fn peer(&self, name: &str, via: Option<Via>) -> Result<Peer, PeerError> {
        let proposed = if self.host.servers.is_empty() { Via::Udp } else { Via::Ip };
        let peer = Peer::new(name, self.hit(), self.host.addresses.clone(), via.unwrap_or(proposed))?;
        peer.with_servers(self.host.server_addresses.clone())
    }

    /// The peer's addresses, and how far the answer can be trusted. `via` is the peer's.
    pub(super) fn text(&self, via: Via) -> String {
        let host = &self.host;
        let none = if host.server_addresses.is_empty() { "no address: it has to initiate" } else { "no address" };
        let mut text = format!("at {}\n", list(&host.addresses, none));
        if !host.servers.is_empty() {
            let names: Vec<_> = host.servers.iter().map(ToString::to_string).collect();
            let addresses = list(&host.server_addresses, "no address, so that they are of no use");
            let _ = writeln!(text, "rendezvous servers {}: {addresses}", names.join(", "));
            if via == Via::Udp {
                text.push_str(
                    "rendezvous servers forward nothing in UDP: use --via ip to reach the peer through them\n",
                );
            }
        }
        for (address, problem) in &host.refused {
            let _ = writeln!(text, "ignored {address} in the DNS: {problem}");
        }
        let (name, resolver) = (&self.name, host.resolver);
        let _ = match host.proof {
            Proof::Validated => writeln!(text, "the resolver {resolver} has validated the record of {name} (DNSSEC)"),
            Proof::Claimed => writeln!(
                text,
                "the resolver {resolver} says that it has validated the record of {name} (DNSSEC); the path to it is not protected: \
                 compare the HIT with \"holdover hip id\" on that host"
            ),
            Proof::Nothing => writeln!(
                text,
                "the record of {name} is only as trustworthy as the resolver {resolver} (no DNSSEC): compare the HIT with \"holdover \
                 hip id\" on that host"
            ),
        };
        text
    }
}

fn list(addresses: &[IpAddr], none: &str) -> String {
    let texts: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
    if texts.is_empty() { none.to_owned() } else { texts.join(", ") }
}

impl Serialize for Found {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// The peer itself is shown beside it.
        #[derive(Serialize)]
        struct Shown {
            name: String,
            resolver: SocketAddr,
            dnssec: &'static str,
            rendezvous: Vec<String>,
            /// Addresses that are of no host, and are ignored.
            ignored: Vec<IpAddr>,
        }
        let dnssec = match self.host.proof {
            Proof::Validated => "validated",
            Proof::Claimed => "claimed",
            Proof::Nothing => "none",
        };
        let rendezvous = self.host.servers.iter().map(ToString::to_string).collect();
        let ignored = self.host.refused.iter().map(|(address, _)| *address).collect();
        Shown { name: self.name.to_string(), resolver: self.host.resolver, dnssec, rendezvous, ignored }
            .serialize(serializer)
    }
}

/// This host's record, for the file of a zone.
#[derive(Serialize)]
pub(super) struct OwnRecord {
    name: String,
    /// In the presentation format of RFC 8005 section 6.
    record: String,
    /// The same for servers that do not know the type (RFC 3597), as type 55.
    unknown_type: String,
}

impl OwnRecord {
    pub(super) fn new(identity: &HostIdentity, name: &str, servers: &[String]) -> Result<Self, Failure> {
        let read = |text: &str| domain_name(text).map_err(|error| wrong(&error));
        let name = if name == ZONE { name.to_owned() } else { format!("{}.", read(name)?) };
        let servers = servers.iter().map(|server| read(server)).collect::<Result<_, _>>()?;
        let record = HipRecord::new(identity, servers);
        let unknown_type = record.unknown_type().map_err(|error| wrong(&error))?;
        Ok(Self { name, record: record.to_string(), unknown_type })
    }

    /// The line of a zone's file.
    pub(super) fn line(&self) -> String {
        format!("{} IN HIP {}\n", self.name, self.record)
    }
}
