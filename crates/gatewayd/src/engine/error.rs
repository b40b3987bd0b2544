//! Errors of the engine.

use std::io;

use holdover_host::{NamespaceError, TunError};

use crate::cluster::ClusterError;
use crate::interface::InterfaceError;
use crate::network::Network;
use crate::packet_files::PacketFileError;
use crate::path::PathError;
use crate::presence::SecretError;
use crate::split::SplitError;

/// The engine cannot be created, or has failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The interface cannot be served.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// There are no mobile hosts.
    #[error("interface {interface} has no address to derive the networks of mobile hosts from: set [mobiles] networks")]
    NoNetworks {
        /// The interface.
        interface: String,
    },
    /// A network of the interface, from which mobile hosts are derived, is a part of a single mobile host.
    #[error(
        "{network} of interface {interface} is a part of a mobile host, as those of {of} have prefixes of {bits} bits: set [mobiles] networks"
    )]
    PartOfHost {
        /// The interface.
        interface: String,
        /// Its network.
        network: Network,
        /// The network with prefixes.
        of: Network,
        /// Their bits.
        bits: u8,
    },
    /// The programs are not attached.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The shared key or the socket for handoffs is not available.
    #[error(transparent)]
    Handoff(#[from] SecretError),
    /// The gateway cannot join the cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Connections cannot be split.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// Packets cannot be stored.
    #[error(transparent)]
    PacketFiles(#[from] PacketFileError),
    /// Packets cannot be diverted.
    #[error("cannot divert packets (/dev/net/tun, CAP_NET_ADMIN)")]
    Tun(#[from] TunError),
    /// The network namespace of this process is unknown.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A kernel socket is not available.
    #[error("cannot open {what}: needs CAP_NET_ADMIN and CAP_NET_RAW")]
    Socket {
        /// The socket.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// An interface with other frames has come in place of the removed one.
    #[error("interface {interface} has come back with frames of another kind, for which the programs were not loaded")]
    Gone {
        /// The interface.
        interface: String,
    },
}
