//! Peers from the DNS (RFC 8005): a host's record, and a stub resolver that asks for it.
//!
//! Messages are read and written by `domain`, `/etc/resolv.conf` is read by `resolv-conf`. All of this blocks: it is for commands, and the
//! daemon sees the result in its file of peers.

mod config;
mod error;
mod lookup;
mod message;
mod record;
mod resolver;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use domain::base::Name;

pub use config::Resolvers;
pub use domain::base::iana::Rtype;
pub use error::{DnsError, RecordError};
pub use lookup::{FoundHost, Proof, find_host};
pub(crate) use lookup::{Source, find_in};
pub(crate) use message::{Query, Reading};
pub use record::HipRecord;
pub use resolver::{Answer, Resolver};

/// A domain name, which is absolute.
pub type DomainName = Name<Vec<u8>>;

/// Reads a domain name; a dot at its end makes no difference. An address would be one by its syntax, but no resolver knows it.
///
/// # Errors
/// [`DnsError::Name`] and [`DnsError::Address`].
pub fn domain_name(text: &str) -> Result<DomainName, DnsError> {
    if text.parse::<IpAddr>().is_ok() {
        return Err(DnsError::Address { text: text.into() });
    }
    let name: Option<DomainName> = text.parse().ok();
    name.filter(|name| !name.is_root()).ok_or_else(|| DnsError::Name { text: text.into() })
}
