//! Why an external host cannot be created, or has failed.

use std::io;

use crate::advertiser::AdvertiserError;
use crate::{CountersError, NamespaceError, NetlinkError, SocketError, SysctlError, TunError};

/// A host could not be created, or has failed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Its namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// Its interface.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// Its addresses and routes.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Its router advertisements.
    #[error(transparent)]
    Advertiser(#[from] AdvertiserError),
    /// A parameter of its kernel.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// Its kernel's counters.
    #[error(transparent)]
    Counters(#[from] CountersError),
    /// A socket of its applications.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A system call failed.
    #[error("{call} failed")]
    Call {
        /// The call.
        call: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}
