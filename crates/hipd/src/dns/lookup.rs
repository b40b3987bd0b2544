//! Looks up a host: its identity, its addresses and its rendezvous servers (RFC 8005 section 4.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use domain::base::iana::Rtype;
use holdover_hip::identity::{HitSuite, HostIdentity};

use super::DomainName;
use super::error::{DnsError, RecordError};
use super::record::HipRecord;
use super::resolver::Resolver;
use crate::files::{MAX_ADDRESSES, MAX_SERVERS, check_address};

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

/// Looks a host up: its HIP record, its addresses, and those of its rendezvous servers. With `requires_dnssec` the HIP record must be
/// [`Proof::Validated`]; addresses need no proof, as the host at them proves its identity itself.
///
/// # Errors
/// [`DnsError`].
pub fn find_host(resolver: &Resolver, name: &DomainName, requires_dnssec: bool) -> Result<FoundHost, DnsError> {
    let answer = resolver.look_up(name, Rtype::HIP)?;
    let server = answer.server;
    let (record, identity) = select(name, &answer.records)?;
    let proof = Proof::of(answer.is_validated, resolver.is_trusted(server));
    match proof {
        Proof::Nothing if requires_dnssec => return Err(DnsError::NotValidated { name: name.clone(), server }),
        Proof::Claimed if requires_dnssec => return Err(DnsError::NotTrusted { name: name.clone(), server }),
        _ => {}
    }
    let mut addresses = find_addresses(resolver, name)?;
    addresses.truncate(MAX_ADDRESSES);
    let server_addresses = find_servers(resolver, &record.servers, &addresses)?;
    Ok(FoundHost { identity, addresses, servers: record.servers, server_addresses, proof, resolver: server })
}

/// The addresses of the first rendezvous servers that have any. The lookup of one may fail if that of another one succeeds.
fn find_servers(resolver: &Resolver, names: &[DomainName], own: &[IpAddr]) -> Result<Vec<IpAddr>, DnsError> {
    let (mut addresses, mut failure) = (Vec::new(), None);
    for name in names.iter().take(MAX_SERVER_NAMES) {
        if addresses.len() >= MAX_SERVERS {
            break;
        }
        match find_addresses(resolver, name) {
            // A server at an address of the host itself would take the address away from the host.
            Ok(found) => found.into_iter().filter(|it| !own.contains(it)).for_each(|it| add_new(&mut addresses, it)),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    addresses.truncate(MAX_SERVERS);
    match failure {
        Some(error) if addresses.is_empty() => Err(error),
        _ => Ok(addresses),
    }
}

fn add_new(addresses: &mut Vec<IpAddr>, address: IpAddr) {
    if !addresses.contains(&address) {
        addresses.push(address);
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

/// The addresses of a name that a host may have; none if the name does not exist. The lookup of one IP version may fail if that of the other
/// one finds addresses.
fn find_addresses(resolver: &Resolver, name: &DomainName) -> Result<Vec<IpAddr>, DnsError> {
    let of_version = |rtype| match resolver.look_up(name, rtype) {
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
    let mut addresses = Vec::new();
    for index in 0..ipv6.len().max(ipv4.len()) {
        let of_both = [ipv6.get(index), ipv4.get(index)].into_iter().flatten().copied();
        of_both.filter(|&it| check_address(it).is_ok()).for_each(|it| add_new(&mut addresses, it));
    }
    Ok(addresses)
}

/// The data of an A or AAAA record.
fn address(data: &[u8]) -> Option<IpAddr> {
    let ipv4 = <[u8; 4]>::try_from(data).map(|octets| Ipv4Addr::from(octets).into());
    ipv4.or_else(|_| <[u8; 16]>::try_from(data).map(|octets| Ipv6Addr::from(octets).into())).ok()
}
