//! Attaching the programs, and probing whether that works.

use holdover_mobility::wake::WakeConfig;

use super::inject::Injector;
use super::interface::Interface;
use super::path::KernelPath;
use super::{AttachMode, Engine, EngineError, requirements};

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
