//! Attaching the programs, and probing whether that works.

use std::io;

use holdover_mobility::wake::WakeConfig;

use super::inject::Injector;
use super::interface::Interface;
use super::path::KernelPath;
use super::{Engine, EngineError, requirements};

/// How programs are attached.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AttachMode {
    /// By tcx, or as filters if the kernel has no tcx.
    #[default]
    Best,
    /// By tcx (Linux 6.6): attachments end with the process.
    Tcx,
    /// As filters of the `clsact` qdisc, which stay until removed: by this agent, or by the next one if it is killed.
    /// For older kernels, and for tests of their behaviour on newer ones.
    Clsact,
}

/// How programs are attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachedBy {
    /// See [`AttachMode::Tcx`].
    Tcx,
    /// See [`AttachMode::Clsact`].
    Clsact,
}

/// Why programs were not attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// A tcx link was refused.
    #[error("tcx")]
    Tcx(#[source] aya::programs::ProgramError),
    /// The qdisc or a filter was refused.
    #[error("filters of the clsact qdisc (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF)")]
    Clsact(#[source] io::Error),
}

/// The ways of attaching that work; see [`AttachMode`].
#[derive(Debug)]
pub struct Attachable {
    /// By tcx, or the reason why not.
    pub tcx: Result<(), EngineError>,
    /// As filters, or the reason why not.
    pub clsact: Result<(), EngineError>,
}

impl Engine {
    /// Whether this kernel and this user may load the maps and programs. Tries the smallest program only: the kernel
    /// takes over a second to verify the others.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub fn probe() -> Result<(), EngineError> {
        requirements::check(KernelPath::probe)
    }

    /// Whether the programs can be loaded, and attached by tcx and by clsact. Each is tried on the loopback interface
    /// of the calling thread's network namespace, which must have no other use.
    ///
    /// # Errors
    ///
    /// The programs cannot be loaded.
    pub fn probe_attach() -> Result<Attachable, EngineError> {
        let loopback = Interface::loopback();
        let mut path = KernelPath::load(WakeConfig::all().rules(), 1)?;
        let tcx = path.attach(&loopback, AttachMode::Tcx);
        let clsact = path.attach(&loopback, AttachMode::Clsact);
        Ok(Attachable { tcx, clsact })
    }

    /// Whether the agent's sockets for sending packets can be opened.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub fn probe_sockets() -> Result<(), EngineError> {
        Injector::open(&Interface::loopback()).map(drop)
    }
}
