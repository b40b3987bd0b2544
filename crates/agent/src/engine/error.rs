//! Errors of engines.

use std::fmt;
use std::io;
use std::path::PathBuf;

use holdover_host::ebpf::{AttachError, ObjectError};

use crate::sockets::SocketDiagError;

/// An engine could not be created, or has failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The interface does not exist, or cannot be queried.
    #[error("cannot look up interface {interface}")]
    Interface {
        /// The interface.
        interface: Box<str>,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Its frame format is unknown.
    #[error(
        "interface {interface} has the unsupported type {kind} (ARPHRD_*); supported are Ethernet, PPP, raw IP, and IP tunnels (GRE: with a remote address)"
    )]
    Kind {
        /// The interface.
        interface: Box<str>,
        /// `ARPHRD_*` of `linux/if_arp.h`.
        kind: u16,
    },
    /// The new interface of the same name has another type.
    #[error("interface {interface} has another frame format than before")]
    OtherFrames {
        /// The interface.
        interface: Box<str>,
    },
    /// Another agent manages the interface.
    #[error("another agent manages interface {interface}: {holder}; this one takes over when it ends")]
    Held {
        /// The interface.
        interface: Box<str>,
        /// The other agent.
        holder: Holder,
    },
    /// The lock against other agents on the interface failed.
    #[error("cannot take the lock of interface {interface}")]
    Lock {
        /// The interface.
        interface: Box<str>,
        /// The kernel's reason.
        source: io::Error,
    },
    /// This process lacks capabilities.
    #[error(transparent)]
    Capabilities(#[from] MissingCapabilities),
    /// The kernel refuses although this process has the capabilities.
    #[error(
        "the kernel refuses eBPF programs to this process although it has the capabilities: a security module, a seccomp filter of a \
         container, or the kernel's lockdown forbids bpf(2)"
    )]
    Forbidden {
        /// The kernel's reason.
        source: Box<EngineError>,
    },
    /// The programs were not loaded.
    #[error(
        "the kernel does not load the agent's eBPF programs: they need Linux 5.15 and CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
    )]
    Load(#[from] aya::EbpfError),
    /// A program was refused.
    #[error(
        "the kernel refuses an eBPF program of the agent: it needs Linux 5.15 and CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
    )]
    Program(#[from] aya::programs::ProgramError),
    /// The programs were not attached.
    #[error("cannot attach the eBPF programs to {interface}: needs CAP_NET_ADMIN")]
    Attach {
        /// The interface.
        interface: Box<str>,
        /// The method that failed, and the kernel's reason.
        source: AttachError,
    },
    /// A map failed.
    #[error("a map of the agent's eBPF programs failed")]
    Map(#[source] aya::maps::MapError),
    /// The object does not match this program.
    #[error("the agent's eBPF object lacks {lacks}")]
    Object {
        /// The missing item.
        lacks: &'static str,
    },
    /// No socket to send packets.
    #[error("no packet socket for {interface}: needs CAP_NET_RAW")]
    Socket {
        /// The interface.
        interface: Box<str>,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The sockets of the host cannot be listed.
    #[error(transparent)]
    Sockets(#[from] SocketDiagError),
}

impl From<ObjectError> for EngineError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Lacks { name } => Self::Object { lacks: name },
            ObjectError::Program { source, .. } => Self::Program(source),
            ObjectError::Map { source, .. } => Self::Map(source),
        }
    }
}

/// Another agent, which manages an interface.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Holder {
    /// Its pid; `None` in another PID namespace.
    pub pid: Option<u32>,
    /// The path of its control socket; `None` if unknown.
    pub control_socket: Option<PathBuf>,
}

/// `pid 4711, control socket /run/holdover/agent.sock`.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "pid {pid}")?,
            None => f.write_str("in another container")?,
        }
        match &self.control_socket {
            Some(path) => write!(f, ", control socket {}", path.display()),
            None => Ok(()),
        }
    }
}

/// Capabilities that this process lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingCapabilities {
    pub(super) names: Vec<&'static str>,
    pub(super) is_in_user_namespace: bool,
}

/// The capabilities in the unit file and for `setcap(8)`.
const ALL: &str = "cap_bpf,cap_perfmon,cap_net_admin,cap_net_raw,cap_sys_ptrace,cap_dac_read_search";

impl fmt::Display for MissingCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names.join(", ");
        if self.is_in_user_namespace {
            return write!(
                f,
                "it lacks {names} in the initial user namespace, the only one in which the kernel gives them to eBPF programs. \
                 Start it outside of the container or user namespace"
            );
        }
        let program = std::env::current_exe().map_or_else(|_| "PROGRAM".to_owned(), |path| path.display().to_string());
        write!(
            f,
            "it lacks {names}. Start the unit (sudo systemctl start holdover-agent), run it as root (sudo holdover agent run), or \
             give the program what it needs (sudo setcap {ALL}+ep {program})"
        )
    }
}

impl std::error::Error for MissingCapabilities {}
