//! Why the DNS does not yield a peer, with the remedy.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use domain::base::iana::OptRcode;
use holdover_hip::identity::RecordKeyError;

use super::DomainName;
use crate::files::AddressProblem;

/// Why a HIP resource record is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// It ends within a field.
    #[error("it ends early")]
    Short,
    /// A field exceeds its length.
    #[error("a HIT has at most 255 bytes, and a record 65,535")]
    Long,
    /// It has no HIT, or no key.
    #[error("its HIT or its public key is empty")]
    Empty,
    /// A rendezvous server's name.
    #[error("the name of a rendezvous server is malformed or compressed")]
    Server,
    /// Text that is no value of its field.
    #[error(
        "invalid {what}: expected algorithm number, HIT in hexadecimal digits, public key in base64, names of servers"
    )]
    Text {
        /// The field.
        what: &'static str,
    },
    /// The HIT has another length than those of HIPv2.
    #[error("its HIT has {len} bytes, not 16")]
    HitLength {
        /// Its length.
        len: usize,
    },
    /// The key or the HIT is not supported, or the HIT is not the key's hash.
    #[error(transparent)]
    Identity(#[from] RecordKeyError),
}

/// Why a name yields no peer.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// Not a domain name.
    #[error("\"{text}\" is not a domain name (labels of at most 63 characters, 255 in all)")]
    Name {
        /// The text.
        text: String,
    },
    /// An address in place of a domain name.
    #[error("{text} is an address: expected a domain name, as host.example.org")]
    Address {
        /// The text.
        text: String,
    },
    /// The system's configuration cannot be read.
    #[error("cannot read {}: name a resolver (--resolver ADDRESS)", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The system's configuration names no resolver.
    #[error("{} has no line \"nameserver ADDRESS\": name a resolver (--resolver ADDRESS)", path.display())]
    NoResolver {
        /// The file.
        path: PathBuf,
    },
    /// There was no answer, or no connection.
    #[error(
        "no answer from the resolver {server} about {name}: check /etc/resolv.conf, or name another one (--resolver ADDRESS)"
    )]
    NoAnswer {
        /// The name.
        name: DomainName,
        /// The resolver that was asked last.
        server: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// The resolver has refused, or has failed itself.
    #[error(
        "the resolver {server} answers {code} about {name}: ask another one (--resolver ADDRESS), or check the zone"
    )]
    Failed {
        /// The name.
        name: DomainName,
        /// The resolver that was asked last.
        server: SocketAddr,
        /// Its response code.
        code: OptRcode,
    },
    /// The answer cannot be read.
    #[error("the answer of the resolver {server} about {name} is malformed: ask another one (--resolver ADDRESS)")]
    Malformed {
        /// The name.
        name: DomainName,
        /// The resolver that was asked last.
        server: SocketAddr,
    },
    /// The name does not exist.
    #[error(
        "{name} does not exist in the DNS: give its full name, as host.example.org, or its HIT (holdover hip id, on that host)"
    )]
    NoSuchName {
        /// The name.
        name: DomainName,
    },
    /// The name has no HIP record.
    #[error(
        "{name} has no HIP record: add the one of \"holdover hip id --dns {name}\" on that host to its zone, or give its HIT"
    )]
    NoRecord {
        /// The name.
        name: DomainName,
    },
    /// No HIP record of the name can be used.
    #[error("the HIP record of {name} cannot be used: compare it with \"holdover hip id --dns {name}\" on that host")]
    Record {
        /// The name.
        name: DomainName,
        /// The reason.
        source: RecordError,
    },
    /// The lookup of a rendezvous server failed, and all addresses of the others cannot be theirs.
    #[error("no rendezvous server of {name} can be used: {}", list(refused))]
    Servers {
        /// The name of the host.
        name: DomainName,
        /// The addresses that are ignored: the first ones.
        refused: Vec<(IpAddr, AddressProblem)>,
        /// The failure.
        source: Box<Self>,
    },
    /// DNSSEC was required.
    #[error(
        "the resolver {server} has not validated the HIP record of {name} by DNSSEC: sign the zone and ask a validating resolver, or \
         leave out --require-dnssec and compare the HIT by other means"
    )]
    NotValidated {
        /// The name.
        name: DomainName,
        /// The resolver.
        server: SocketAddr,
    },
    /// DNSSEC was required, and the resolver is not trusted with it.
    #[error(
        "the resolver {server} says that it has validated the HIP record of {name}, and the path to it is not protected: ask a \
         validating resolver on this host (as 127.0.0.1), or, if you trust the path, name it in /etc/resolv.conf with \"options trust-ad\", \
         and leave out --resolver"
    )]
    NotTrusted {
        /// The name.
        name: DomainName,
        /// The resolver.
        server: SocketAddr,
    },
}

fn list(refused: &[(IpAddr, AddressProblem)]) -> String {
    let each: Vec<String> = refused.iter().map(|(address, problem)| format!("{address} ({problem})")).collect();
    format!("ignored {}", each.join(", "))
}
