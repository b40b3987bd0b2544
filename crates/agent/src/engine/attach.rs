//! How the programs come into the path of packets, and whether they would.

use std::io;

use holdover_mobility::wake::WakeConfig;

use super::inject::Injector;
use super::interface::Interface;
use super::path::KernelPath;
use super::{Engine, EngineError, requirements};

/// How programs are to be put in the path of packets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AttachMode {
    /// By tcx, and as filters where the kernel has no tcx.
    #[default]
    Best,
    /// By tcx, which came with Linux 6.6: attachments that go with the process.
    Tcx,
    /// As filters of the `clsact` qdisc, which stay until they are removed: by this agent, or by the next one if it is killed. For
    /// older kernels, and to try on newer ones what happens there.
    Clsact,
}

/// How programs were put in the path of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachedBy {
    /// See [`AttachMode::Tcx`].
    Tcx,
    /// See [`AttachMode::Clsact`].
    Clsact,
}

/// Why programs were not put in the path of packets.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// A tcx link was refused.
    #[error("tcx")]
    Tcx(#[source] aya::programs::ProgramError),
    /// The qdisc or a filter was refused.
    #[error("filters of the clsact qdisc (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF)")]
    Clsact(#[source] io::Error),
}

/// Which ways of attaching work; see [`AttachMode`].
#[derive(Debug)]
pub struct Attachable {
    /// By tcx, or why not.
    pub tcx: Result<(), EngineError>,
    /// As filters, or why not.
    pub clsact: Result<(), EngineError>,
}

impl Engine {
    /// Whether this kernel and this user allow the maps and programs to be loaded. Tries the smallest of the programs only: the kernel
    /// takes over a second to verify the others.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn probe() -> Result<(), EngineError> {
        requirements::check(KernelPath::probe)
    }

    /// Whether the programs are loaded, and attached by tcx and by clsact, each of which is tried on the loopback interface of the
    /// calling thread's network namespace: for a namespace where nothing else is.
    ///
    /// # Errors
    ///
    /// The programs are not loaded.
    pub fn probe_attach() -> Result<Attachable, EngineError> {
        let loopback = Interface::loopback();
        let mut path = KernelPath::load(WakeConfig::all().rules(), 1)?;
        let tcx = path.attach(&loopback, AttachMode::Tcx);
        let clsact = path.attach(&loopback, AttachMode::Clsact);
        Ok(Attachable { tcx, clsact })
    }

    /// Whether the sockets are there by which the agent sends packets.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn probe_sockets() -> Result<(), EngineError> {
        Injector::open(&Interface::loopback()).map(drop)
    }
}
