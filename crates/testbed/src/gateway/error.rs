//! Why a world with a gateway cannot be made.

use std::io;
use std::path::PathBuf;

use holdover_host::{NamespaceError, NetlinkError, SysctlError, TunError};

/// The world cannot be created, or failed.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// No namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// An interface, an address or a route was refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A kernel parameter was refused.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// A device of the wire was refused.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// A socket or a thread was refused.
    #[error("a socket or a thread of the hosts: {0}")]
    Io(#[from] io::Error),
    /// A directory exists already, or cannot be made.
    #[error("cannot make the directory {}", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The store failed.
    #[error("etcd: {0}")]
    Store(String),
    /// The daemon failed.
    #[error("the daemon: {0}")]
    Daemon(String),
}
