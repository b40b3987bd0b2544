//! Errors of user timeouts, and their remedies.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use aya::maps::MapError;
use aya::programs::ProgramError;
use aya::{BtfError, EbpfError};
use holdover_host::ebpf::ObjectError;

use crate::sockets::{CgroupError, SocketDiagError};

/// User timeouts cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum UserTimeoutError {
    /// The process lacks a capability.
    #[error(
        "{what} was not permitted: run as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (AmbientCapabilities= in a systemd \
         unit); a container needs them in the first user namespace"
    )]
    NotPermitted {
        /// The operation.
        what: &'static str,
        /// The kernel's reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The kernel has no BTF.
    #[error("the kernel has no BTF: needs CONFIG_DEBUG_INFO_BTF (/sys/kernel/btf/vmlinux)")]
    NoBtf(#[source] BtfError),
    /// The kernel is too old, or lacks an option.
    #[error(
        "this kernel refuses the program {program}: needs Linux 6.1 or later, CONFIG_BPF_SYSCALL and CONFIG_CGROUP_BPF"
    )]
    Program {
        /// The program.
        program: &'static str,
        /// The kernel's reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The kernel is too old for a program to read a socket's keep-alive settings, which a user timeout would cut
    /// short.
    #[error(
        "user timeouts need Linux 6.1 or later: programs of older kernels cannot read a socket's keep-alive settings"
    )]
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
        /// The reason.
        source: MapError,
    },
    /// The rules name too many combinations of addresses and ports.
    #[error(
        "the flow rules name {needed} combinations of addresses and ports, and {limit} are possible: use ranges of ports and longer \
         prefixes, or split lists of both in one rule"
    )]
    TooManyRules {
        /// The number needed.
        needed: usize,
        /// The limit.
        limit: usize,
    },
    /// The sockets could not be listed.
    #[error(transparent)]
    Sockets(#[from] SocketDiagError),
    /// A pass through the open sockets failed.
    #[error("cannot iterate over the open connections")]
    Pass(#[source] io::Error),
    /// Something about this network namespace could not be read.
    #[error("{what}")]
    Namespace {
        /// The value read.
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

impl From<ObjectError> for UserTimeoutError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Lacks { name } => Self::of(name, error),
            ObjectError::Program { name, source } => Self::of(name, source),
            ObjectError::Map { name, source } => Self::Map { map: name, source },
        }
    }
}

/// Whether one of its causes is EPERM. The verifier refuses programs with EACCES, which is different.
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
