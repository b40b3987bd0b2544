//! What can stand in the way of user timeouts, and what to do about it.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use aya::maps::MapError;
use aya::programs::ProgramError;
use aya::{BtfError, EbpfError};

use crate::sockets::{CgroupError, SocketDiagError};

/// User timeouts cannot be set, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum UserTimeoutError {
    /// The process lacks a capability.
    #[error(
        "{what} was not permitted: run as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (AmbientCapabilities= in a systemd \
         unit); a container needs them in the first user namespace"
    )]
    NotPermitted {
        /// What was not.
        what: &'static str,
        /// The kernel's reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The kernel does not describe itself.
    #[error(
        "the kernel does not tell its types: it needs CONFIG_DEBUG_INFO_BTF (there is /sys/kernel/btf/vmlinux then)"
    )]
    NoBtf(#[source] BtfError),
    /// The kernel is too old, or was built without something.
    #[error(
        "this kernel does not take the program {program}: it needs Linux 6.1 or later, CONFIG_BPF_SYSCALL and CONFIG_CGROUP_BPF"
    )]
    Program {
        /// The program.
        program: &'static str,
        /// The kernel's reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The kernel is too old for a program to ask a socket about its keep-alive, which a user timeout would cut short.
    #[error("user timeouts need Linux 6.1 or later: older kernels do not tell their programs of a socket's keep-alive")]
    TooOld,
    /// There is no cgroup hierarchy to attach to.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// The cgroup cannot be opened.
    #[error("cgroup {}", path.display())]
    CgroupDirectory {
        /// Its directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A map could not be read or written.
    #[error("eBPF map {map}")]
    Map {
        /// Its name.
        map: &'static str,
        /// Why.
        source: MapError,
    },
    /// The rules name too many combinations of addresses and ports.
    #[error(
        "the flow rules name {needed} combinations of addresses and ports, and {limit} are possible: use ranges of ports and longer \
         prefixes, or split lists of both in one rule"
    )]
    TooManyRules {
        /// How many it would take.
        needed: usize,
        /// How many are possible.
        limit: usize,
    },
    /// The sockets could not be listed.
    #[error(transparent)]
    Sockets(#[from] SocketDiagError),
    /// The open sockets could not be gone through.
    #[error("going through the open connections")]
    Pass(#[source] io::Error),
    /// Something about this network namespace could not be read.
    #[error("{what}")]
    Namespace {
        /// What was read.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl UserTimeoutError {
    pub(super) fn program(program: &'static str, error: ProgramError) -> Self {
        Self::of(program, error)
    }

    pub(super) fn load(error: EbpfError) -> Self {
        Self::of("user_timeout.bpf.o", error)
    }

    pub(super) fn map(map: &'static str) -> impl Fn(MapError) -> Self {
        move |source| Self::Map { map, source }
    }

    fn of(program: &'static str, error: impl Error + Send + Sync + 'static) -> Self {
        let source = Box::new(error);
        match is_about_permission(source.as_ref()) {
            true => Self::NotPermitted { what: "loading an eBPF program", source },
            false => Self::Program { program, source },
        }
    }
}

/// Whether a cause of it is EPERM. The verifier refuses programs with EACCES, which is another matter.
fn is_about_permission(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.raw_os_error() == Some(libc::EPERM)) {
            return true;
        }
        cause = error.source();
    }
    false
}
