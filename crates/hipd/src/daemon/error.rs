//! Why the daemon cannot run.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use holdover_host::control_socket::ControlSocketError;
use holdover_host::poll_loop::WaitError;
use holdover_host::{NamespaceError, NetlinkError, TunError};

use crate::files::{IdentityFileError, PeersFileError, ProxyFileError, SettingsFileError};

/// The daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// No usable key.
    #[error(transparent)]
    Identity(#[from] IdentityFileError),
    /// No usable file of peers.
    #[error(transparent)]
    Peers(#[from] PeersFileError),
    /// No usable settings.
    #[error(transparent)]
    Settings(#[from] SettingsFileError),
    /// A privilege is missing.
    #[error("{what} need {capability}: sudo, or the service of dist/holdover-hip.service")]
    NotPermitted {
        /// The operation.
        what: &'static str,
        /// The capability.
        capability: &'static str,
    },
    /// There is no device for TUN interfaces.
    #[error(
        "{} is missing: modprobe tun; in a container, pass it in (--device /dev/net/tun)",
        holdover_host::tun::DEVICE_NAME
    )]
    NoTun,
    /// The TUN device cannot be created.
    #[error("cannot create the TUN device")]
    Tun(#[from] TunError),
    /// The namespace is unknown.
    #[error("cannot determine the network namespace")]
    Namespace(#[from] NamespaceError),
    /// The control socket is not available.
    #[error(transparent)]
    Control(#[from] ControlSocketError),
    /// The file for keys cannot be written.
    #[error("{}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Metrics cannot be served there.
    #[error("cannot serve metrics at {address}")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// A socket towards the network failed.
    #[error("cannot open sockets for HIP and ESP")]
    Sockets(#[source] io::Error),
    /// Kernel notifications about addresses are not available.
    #[error("cannot follow addresses and routes")]
    Addresses(#[source] io::Error),
    /// The kernel cannot be asked about sockets, which LSIs need.
    #[error("cannot query sockets (sock_diag), which addresses for IPv4 programs need (--no-lsi)")]
    SocketDiag(#[source] io::Error),
    /// The threads that encrypt cannot be started.
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
    /// Signal handlers cannot be installed.
    #[error("cannot handle signals")]
    Signals(#[source] io::Error),
    /// `poll(2)` failed.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// Unneeded privileges could not be dropped.
    #[error("cannot drop privileges")]
    Privileges(#[source] io::Error),
    /// No usable file of hosts without HIP.
    #[error(transparent)]
    Proxy(#[from] ProxyFileError),
    /// The interface of the hosts is a TUN device of the daemon.
    #[error("{name} is a TUN device of this daemon: expected the interface behind which the hosts are")]
    ProxyInterface {
        /// The interface.
        name: String,
    },
    /// A host's address is one of this host.
    #[error("{address} of host {name} is an address of this host")]
    ProxyOwnAddress {
        /// The name of the host.
        name: String,
        /// The address.
        address: IpAddr,
    },
    /// A host has no usable key.
    #[error("no identity of host {name} (holdover hip proxy remove {name}, holdover hip proxy add {name})")]
    ProxyIdentity {
        /// Its name.
        name: String,
        /// The reason.
        source: IdentityFileError,
    },
    /// Two hosts have one key.
    #[error("{name} and {other} have the same identity: each needs its own")]
    ProxySameIdentity {
        /// The name of the host.
        name: String,
        /// The name of the other one.
        other: String,
    },
    /// A host's address is that of a peer.
    #[error("{address} of host {name} is among the LSIs of peers: --lsi-prefix with another prefix")]
    ProxyLsi {
        /// The name of the host.
        name: String,
        /// The address.
        address: IpAddr,
    },
    /// The proxy's interfaces are unknown.
    #[error("cannot set up the proxy's TUN device")]
    ProxyNetlink(#[source] NetlinkError),
    /// The proxy's rules and routes cannot be set.
    #[error("cannot route packets of hosts to the proxy (ip rule)")]
    ProxyRouting(#[source] io::Error),
}
