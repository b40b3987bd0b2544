//! Why an engine cannot be made, or has ceased to work.

use std::io;

use super::{AttachError, Holder, MissingCapabilities};
use crate::sockets::SocketDiagError;

/// An engine could not be made, or has ceased to work.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// There is no such interface, or it cannot be asked.
    #[error("interface {interface} cannot be looked up")]
    Interface {
        /// The interface.
        interface: Box<str>,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Its frames are not known.
    #[error(
        "interface {interface} is of kind {kind} (ARPHRD_*), whose frames the agent does not know; it knows Ethernet, PPP and raw IP"
    )]
    Kind {
        /// The interface.
        interface: Box<str>,
        /// `ARPHRD_*` of `linux/if_arp.h`.
        kind: u16,
    },
    /// The interface of that name is not what it was.
    #[error("interface {interface} has frames of another kind than before")]
    OtherFrames {
        /// The interface.
        interface: Box<str>,
    },
    /// Another agent has the interface.
    #[error("another agent has interface {interface}: {holder}; it is taken over when that one ends")]
    Held {
        /// The interface.
        interface: Box<str>,
        /// The other agent.
        holder: Holder,
    },
    /// It cannot be made sure that no other agent has the interface.
    #[error("the lock of interface {interface} cannot be taken")]
    Lock {
        /// The interface.
        interface: Box<str>,
        /// The kernel's reason.
        source: io::Error,
    },
    /// This process may not do what the engine does.
    #[error(transparent)]
    Capabilities(#[from] MissingCapabilities),
    /// This process has the capabilities, and is refused all the same.
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
    #[error("the eBPF programs cannot be attached to {interface}, which needs CAP_NET_ADMIN")]
    Attach {
        /// The interface.
        interface: Box<str>,
        /// Which way failed, and the kernel's reason.
        source: AttachError,
    },
    /// A map failed.
    #[error("a map of the agent's eBPF programs")]
    Map(#[source] aya::maps::MapError),
    /// The object is not the one that belongs to this program.
    #[error("the agent's eBPF object lacks {lacks}")]
    Object {
        /// What is not in it.
        lacks: &'static str,
    },
    /// No socket to send packets.
    #[error("no packet socket for {interface}: that needs CAP_NET_RAW")]
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
