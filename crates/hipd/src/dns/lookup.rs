//! Looks up a host: its identity, its addresses and its rendezvous servers (RFC 8005 section 4.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use domain::base::iana::Rtype;
use holdover_hip::identity::{HitSuite, HostIdentity};

use super::DomainName;
use super::error::{DnsError, RecordError};
use super::record::HipRecord;
use super::resolver::{Answer, Resolver};
use crate::files::{AddressProblem, MAX_ADDRESSES, MAX_SERVERS};

/// The most addresses that are named as refused.
const MAX_REFUSED: usize = 8;
/// The most rendezvous servers whose names are looked up: a record has room for thousands.
const MAX_SERVER_NAMES: usize = 8;

/// A host, as the DNS describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundHost {
    /// Its identity.
    pub identity: HostIdentity,
    /// Its addresses, each once, of both IP versions by turns; at most [`MAX_ADDRESSES`].
    pub addresses: Vec<IpAddr>,
    /// The names of its rendezvous servers, the preferred one first.
    pub servers: Vec<DomainName>,
    /// Their addresses, each once, without the host's own; at most [`MAX_SERVERS`].
    pub server_addresses: Vec<IpAddr>,
    /// Addresses of the host and its servers in the DNS that cannot be theirs, and are ignored: the first ones, each once.
    pub refused: Vec<(IpAddr, AddressProblem)>,
    /// The protection of the record.
    pub proof: Proof,
    /// The resolver that has answered.
    pub resolver: SocketAddr,
}

/// The protection of a record against forgery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// DNSSEC, validated by a resolver on this host, or by one that the administrator trusts.
    Validated,
    /// The resolver says that it has validated it. Anyone on the path to it can say so, too.
    Claimed,
    /// Nothing.
    Nothing,
}

impl Proof {
    fn of(is_validated: bool, is_trusted: bool) -> Self {
        match (is_validated, is_trusted) {
            (true, true) => Self::Validated,
            (true, false) => Self::Claimed,
            (false, _) => Self::Nothing,
        }
    }
}

/// A source of records.
pub(crate) trait Source {
    /// The records of a name.
    fn look_up(&self, name: &DomainName, rtype: Rtype) -> Result<Answer, DnsError>;

    /// Whether the AD bit of a resolver reaches this host unchanged.
    fn is_trusted(&self, server: SocketAddr) -> bool;
}

impl Source for Resolver {
    fn look_up(&self, name: &DomainName, rtype: Rtype) -> Result<Answer, DnsError> {
        self.look_up(name, rtype)
    }

    fn is_trusted(&self, server: SocketAddr) -> bool {
        self.is_trusted(server)
    }
}

/// Looks a host up: its HIP record, its addresses, and those of its rendezvous servers. With `requires_dnssec` the HIP record must be
/// [`Proof::Validated`]; addresses need no proof, as the host at them proves its identity itself.
///
/// # Errors
/// [`DnsError`].
pub fn find_host(resolver: &Resolver, name: &DomainName, requires_dnssec: bool) -> Result<FoundHost, DnsError> {
    find_in(resolver, name, requires_dnssec)
}

pub(crate) fn find_in(source: &impl Source, name: &DomainName, requires_dnssec: bool) -> Result<FoundHost, DnsError> {
    let answer = source.look_up(name, Rtype::HIP)?;
    let server = answer.server;
    let (record, identity) = select(name, &answer.records)?;
    let proof = Proof::of(answer.is_validated, source.is_trusted(server));
    match proof {
        Proof::Nothing if requires_dnssec => return Err(DnsError::NotValidated { name: name.clone(), server }),
        Proof::Claimed if requires_dnssec => return Err(DnsError::NotTrusted { name: name.clone(), server }),
        _ => {}
    }
    let Addresses { mut usable, refused } = find_addresses(source, name)?;
    usable.truncate(MAX_ADDRESSES);
    let servers = find_servers(source, name, &record.servers, &usable)?;
    let mut host = FoundHost {
        identity,
        addresses: usable,
        servers: record.servers,
        server_addresses: servers.usable,
        refused: Vec::new(),
        proof,
        resolver: server,
    };
    refused.into_iter().chain(servers.refused).for_each(|it| add_new(&mut host.refused, it));
    host.refused.truncate(MAX_REFUSED);
    Ok(host)
}

/// The addresses of a name.
#[derive(Default)]
struct Addresses {
    usable: Vec<IpAddr>,
    refused: Vec<(IpAddr, AddressProblem)>,
}

impl Addresses {
    fn add(&mut self, address: IpAddr) {
        match AddressProblem::of(address) {
            None => add_new(&mut self.usable, address),
            Some(problem) => add_new(&mut self.refused, (address, problem)),
        }
    }
}

/// The addresses of the first rendezvous servers that have any. The lookup of one may fail if that of another one succeeds.
fn find_servers(
    source: &impl Source,
    host: &DomainName,
    names: &[DomainName],
    own: &[IpAddr],
) -> Result<Addresses, DnsError> {
    let (mut addresses, mut failure) = (Addresses::default(), None);
    for name in names.iter().take(MAX_SERVER_NAMES) {
        if addresses.usable.len() >= MAX_SERVERS {
            break;
        }
        match find_addresses(source, name) {
            Ok(found) => {
                // A server at an address of the host itself would take the address away from the host.
                let others = found.usable.into_iter().filter(|it| !own.contains(it));
                others.for_each(|it| add_new(&mut addresses.usable, it));
                found.refused.into_iter().for_each(|it| add_new(&mut addresses.refused, it));
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    addresses.usable.truncate(MAX_SERVERS);
    match failure {
        Some(error) if addresses.usable.is_empty() && addresses.refused.is_empty() => Err(error),
        Some(error) if addresses.usable.is_empty() => {
            addresses.refused.truncate(MAX_REFUSED);
            Err(DnsError::Servers { name: host.clone(), refused: addresses.refused, source: Box::new(error) })
        }
        _ => Ok(addresses),
    }
}

fn add_new<T: PartialEq>(all: &mut Vec<T>, one: T) {
    if !all.contains(&one) {
        all.push(one);
    }
}

/// Of the records whose HIT and key are supported, the one of the preferred HIT suite. A record whose HIT is not the hash of its key, or that
/// cannot be read, makes all of them unusable.
fn select(name: &DomainName, records: &[Vec<u8>]) -> Result<(HipRecord, HostIdentity), DnsError> {
    let unusable = |source| DnsError::Record { name: name.clone(), source };
    let (mut usable, mut unsupported) = (Vec::new(), None);
    for data in records {
        let record = HipRecord::parse(data).map_err(unusable)?;
        match record.identity() {
            Ok(identity) => usable.push((record, identity)),
            Err(error) if is_unsupported(&error) => unsupported = Some(error),
            Err(error) => return Err(unusable(error)),
        }
    }
    let preference = |identity: &HostIdentity| {
        let suite = identity.algorithm().suite();
        (HitSuite::ALL.iter().position(|&it| it == suite), identity.hit())
    };
    let preferred = usable.into_iter().min_by_key(|(_, identity)| preference(identity));
    preferred.ok_or_else(|| unsupported.map_or_else(|| DnsError::NoRecord { name: name.clone() }, unusable))
}

fn is_unsupported(error: &RecordError) -> bool {
    use holdover_hip::identity::{IdentityError, RecordKeyError};
    matches!(
        error,
        RecordError::HitLength { .. }
            | RecordError::Identity(
                RecordKeyError::Algorithm { .. }
                    | RecordKeyError::Suite { .. }
                    | RecordKeyError::Key(IdentityError::Curve { .. } | IdentityError::Key)
            )
    )
}

/// The addresses of a name; none if the name does not exist. The lookup of one IP version may fail if that of the other one finds addresses.
fn find_addresses(source: &impl Source, name: &DomainName) -> Result<Addresses, DnsError> {
    let of_version = |rtype| match source.look_up(name, rtype) {
        Ok(answer) => Ok(answer.records.iter().filter_map(|data| address(data)).collect::<Vec<_>>()),
        Err(DnsError::NoSuchName { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    let (ipv6, ipv4) = match (of_version(Rtype::AAAA), of_version(Rtype::A)) {
        (Ok(ipv6), Ok(ipv4)) => (ipv6, ipv4),
        (Ok(found), Err(error)) | (Err(error), Ok(found)) if found.is_empty() => return Err(error),
        (Err(error), Err(_)) => return Err(error),
        (ipv6, ipv4) => (ipv6.unwrap_or_default(), ipv4.unwrap_or_default()),
    };
    let mut addresses = Addresses::default();
    for index in 0..ipv6.len().max(ipv4.len()) {
        let of_both = [ipv6.get(index), ipv4.get(index)].into_iter().flatten();
        of_both.for_each(|&it| addresses.add(it));
    }
    Ok(addresses)
}

/// The data of an A or AAAA record.
fn address(data: &[u8]) -> Option<IpAddr> {
    let ipv4 = <[u8; 4]>::try_from(data).map(|octets| Ipv4Addr::from(octets).into());
    ipv4.or_else(|_| <[u8; 16]>::try_from(data).map(|octets| Ipv6Addr::from(octets).into())).ok()
}
