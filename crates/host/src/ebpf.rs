//! eBPF objects: their programs and maps, the attachment of two of them to an interface, and pins by which both outlive
//! the process.
//!
//! The programs of an [`Object`] get packets from [`Object::attach`] on. With tcx they end with the [`Attachment`], or with
//! the process; without tcx they are filters of the `clsact` qdisc ([`clsact`](crate::clsact)). With [`Pins`] they stay
//! when a process is killed, and the next one replaces them in a single step.

pub mod pins;

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;

use aya::maps::{Map, MapError};
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions};
use aya::programs::{LinkOrder, Program, ProgramError, SchedClassifier, TcAttachType, TestRun as _, TestRunOptions};
use aya::sys::SyscallError;
use aya::{Ebpf, EbpfError, EbpfLoader};
use flate2::read::GzDecoder;

use self::pins::Pins;
use crate::clsact::{Filters, Owner};

/// Linux's `BPF_F_LOCK`: a value is copied under its lock.
pub const LOCK: u64 = 4;

/// The maps and programs of an object file. They end with this value, or with the process, unless they are pinned.
#[derive(Debug)]
pub struct Object(Ebpf);

/// An operation on an object failed.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The object has no program or map of that name.
    #[error("the eBPF object has no {name}")]
    Lacks {
        /// The name.
        name: &'static str,
    },
    /// The kernel refuses a program, or the program is of another kind.
    #[error("eBPF program {name}")]
    Program {
        /// Its name.
        name: &'static str,
        /// The reason.
        source: ProgramError,
    },
    /// The kernel refuses a map, or the map is of another kind.
    #[error("eBPF map {name}")]
    Map {
        /// Its name.
        name: &'static str,
        /// The reason.
        source: MapError,
    },
}

impl ObjectError {
    /// An error of this program.
    pub fn program(name: &'static str) -> impl Fn(ProgramError) -> Self {
        move |source| Self::Program { name, source }
    }

    /// An error of this map.
    pub fn map(name: &'static str) -> impl Fn(MapError) -> Self {
        move |source| Self::Map { name, source }
    }
}

/// How programs are to be attached.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AttachMode {
    /// By tcx, or as filters if the kernel has no tcx.
    #[default]
    Best,
    /// By tcx (Linux 6.6): attachments end with the process.
    Tcx,
    /// As filters of the `clsact` qdisc, which stay until their owner removes them, or the next process of its kind if it
    /// was killed. For older kernels, and for tests of their behaviour on newer ones.
    Clsact,
}

/// How programs were attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    Tcx(#[source] ProgramError),
    /// The qdisc or a filter was refused.
    #[error("filters of the clsact qdisc (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF)")]
    Clsact(#[source] io::Error),
    /// A program is missing or not loaded.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// The programs `ingress` and `egress` on an interface. They are detached on drop, unless they are pinned.
#[derive(Debug)]
pub struct Attachment {
    by: AttachedBy,
    /// Without tcx.
    _filters: Option<Filters>,
    /// With tcx.
    links: Links,
}

/// The links of programs that are attached by tcx.
#[derive(Default, Debug)]
struct Links {
    /// Whether a program is detached with these.
    has_unpinned: bool,
    /// Their programs are detached on drop, unless the link is that of an earlier process, which is pinned.
    handles: Vec<SchedClassifierLink>,
    /// The pins stay until [`Pins`] removes them.
    pins: Vec<PinnedLink>,
}

impl Links {
    /// Holds a link that is not pinned.
    fn hold(&mut self, link: SchedClassifierLink) {
        self.handles.push(link);
        self.has_unpinned = true;
    }
}

impl Attachment {
    /// How the programs are attached.
    pub fn by(&self) -> AttachedBy {
        self.by
    }

    /// Whether the programs stay attached without the process, until [`Pins`] removes them.
    pub fn is_pinned(&self) -> bool {
        self.by == AttachedBy::Tcx && !self.links.has_unpinned
    }
}

/// A program's name, its hook, and its place among the programs there.
type Hook = (&'static str, TcAttachType, fn() -> LinkOrder);

/// The hooks: a program is the first one on ingress and the last one on egress, as far as other programs permit.
const HOOKS: [Hook; 2] =
    [("ingress", TcAttachType::Ingress, LinkOrder::first), ("egress", TcAttachType::Egress, LinkOrder::last)];

impl Object {
    /// Creates the maps of an object file, which is compressed with gzip; the programs are not loaded yet.
    ///
    /// # Errors
    /// The kernel refuses.
    ///
    /// # Panics
    /// The file is damaged. Files are part of this program.
    pub fn open(loader: &mut EbpfLoader<'_>, compressed: &[u8]) -> Result<Self, EbpfError> {
        // malloc aligns it to 16 bytes; the loader wants 8.
        let mut object = Vec::new();
        GzDecoder::new(compressed).read_to_end(&mut object).expect("a gzip file");
        loader.load(&object).map(Self)
    }

    /// Loads programs that handle packets.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn load(&mut self, names: &[&'static str]) -> Result<(), ObjectError> {
        for &name in names {
            self.program_mut::<SchedClassifier>(name)?.load().map_err(ObjectError::program(name))?;
        }
        Ok(())
    }

    /// A program.
    ///
    /// # Errors
    /// It is missing, or of another kind.
    pub fn program<'a, P>(&'a self, name: &'static str) -> Result<&'a P, ObjectError>
    where
        &'a P: TryFrom<&'a Program, Error = ProgramError>,
    {
        let program = self.0.program(name).ok_or(ObjectError::Lacks { name })?;
        program.try_into().map_err(ObjectError::program(name))
    }

    /// A program, to load or attach it.
    ///
    /// # Errors
    /// It is missing, or of another kind.
    pub fn program_mut<'a, P>(&'a mut self, name: &'static str) -> Result<&'a mut P, ObjectError>
    where
        &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
    {
        let program = self.0.program_mut(name).ok_or(ObjectError::Lacks { name })?;
        program.try_into().map_err(ObjectError::program(name))
    }

    /// A map, which is taken out of the object.
    ///
    /// # Errors
    /// It is missing, or of another kind.
    pub fn take<M: TryFrom<Map, Error = MapError>>(&mut self, name: &'static str) -> Result<M, ObjectError> {
        let map = self.0.take_map(name).ok_or(ObjectError::Lacks { name })?;
        map.try_into().map_err(ObjectError::map(name))
    }

    /// A map.
    ///
    /// # Errors
    /// It is missing, or of another kind.
    pub fn map<'a, M>(&'a self, name: &'static str) -> Result<M, ObjectError>
    where
        M: TryFrom<&'a Map, Error = MapError>,
    {
        self.0.map(name).ok_or(ObjectError::Lacks { name })?.try_into().map_err(ObjectError::map(name))
    }

    /// A map, to change it.
    ///
    /// # Errors
    /// It is missing, or of another kind.
    pub fn map_mut<'a, M>(&'a mut self, name: &'static str) -> Result<M, ObjectError>
    where
        M: TryFrom<&'a mut Map, Error = MapError>,
    {
        self.0.map_mut(name).ok_or(ObjectError::Lacks { name })?.try_into().map_err(ObjectError::map(name))
    }

    /// Runs a program of type `BPF_PROG_TYPE_SCHED_CLS` on these bytes (`BPF_PROG_TEST_RUN`); returns its return value.
    ///
    /// # Errors
    /// The program is missing or not loaded, or the kernel refuses.
    pub fn run(&self, name: &'static str, data: &[u8]) -> Result<u32, ObjectError> {
        let options = TestRunOptions { data_in: Some(data), ..TestRunOptions::new() };
        let result = self.program::<SchedClassifier>(name)?.test_run(options);
        Ok(result.map_err(ObjectError::program(name))?.return_value)
    }

    /// Attaches the loaded programs `ingress` and `egress` to an interface of the calling thread's network namespace, given
    /// by name and index. With tcx, removes filters that an earlier process of this owner has left there: both would handle
    /// the packets otherwise.
    ///
    /// If `pins` refuses a link, this is logged, and the programs are not pinned.
    ///
    /// # Errors
    /// See [`AttachError`]. Nothing is left attached, except links of an earlier process in `pins`, with its programs or
    /// these.
    pub fn attach(
        &mut self,
        owner: Owner,
        (name, index): (&str, u32),
        mode: AttachMode,
        pins: Option<&Pins>,
    ) -> Result<Attachment, AttachError> {
        if mode != AttachMode::Clsact {
            // The kernel has tcx then, and filters of clsact beside these links would handle the packets twice.
            let has_former = pins.is_some_and(|pins| HOOKS.iter().any(|&(name, ..)| pins.former_link(name).is_some()));
            match self.attach_tcx(name, pins) {
                Ok(links) => {
                    if let Err(error) = Filters::clear(owner, index) {
                        tracing::debug!(%error, "cannot look for filters of an earlier process");
                    }
                    return Ok(Attachment { by: AttachedBy::Tcx, _filters: None, links });
                }
                Err(AttachError::Tcx(error))
                    if mode == AttachMode::Best && !has_former && is_unknown_to_kernel(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let of = |name| -> Result<_, ObjectError> {
            let program: &SchedClassifier = self.program(name)?;
            let fd = program.fd().map_err(ObjectError::program(name))?;
            let info = program.info().map_err(ObjectError::program(name))?;
            Ok((fd.as_fd(), info.id()))
        };
        let filters = Filters::attach(owner, index, [of("ingress")?, of("egress")?]).map_err(AttachError::Clsact)?;
        Ok(Attachment { by: AttachedBy::Clsact, _filters: Some(filters), links: Links::default() })
    }

    fn attach_tcx(&mut self, interface: &str, mut pins: Option<&Pins>) -> Result<Links, AttachError> {
        let mut links = Links::default();
        for (name, hook, order) in HOOKS {
            let program: &mut SchedClassifier = self.program_mut(name)?;
            let mut attach = || {
                let link = program.attach_with_options(interface, hook, TcAttachOptions::TcxOrder(order()))?;
                program.take_link(link)
            };
            let Some(pinned) = pins else {
                links.hold(attach().map_err(AttachError::Tcx)?);
                continue;
            };
            // Replaces a program of an earlier process atomically, so that no packet passes none or two.
            if let Some(former) = pinned.former_link(name) {
                let link = program.attach_to_link(former).and_then(|link| program.take_link(link));
                links.handles.push(link.map_err(AttachError::Tcx)?);
                continue;
            }
            let link = FdLink::try_from(attach().map_err(AttachError::Tcx)?).map_err(|error| error.to_string());
            match link.and_then(|link| link.pin(pinned.path(name)).map_err(|error| error.to_string())) {
                Ok(link) => links.pins.push(link),
                Err(error) => {
                    tracing::warn!(%error, "cannot pin programs: they end with the process");
                    pins = None;
                    links.hold(attach().map_err(AttachError::Tcx)?);
                }
            }
        }
        Ok(links)
    }

    /// Attaches a loaded program to the ingress hook of a device that ends with this process, and the program with it.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn attach_to_device(&mut self, name: &'static str, device: &str) -> Result<(), AttachError> {
        let program: &mut SchedClassifier = self.program_mut(name)?;
        let tcx = TcAttachOptions::TcxOrder(LinkOrder::first());
        match program.attach_with_options(device, TcAttachType::Ingress, tcx) {
            Err(error) if is_unknown_to_kernel(&error) => {
                let refused = |error: io::Error| AttachError::Clsact(error);
                tc::qdisc_add_clsact(device).map_err(|error| refused(io::Error::other(error)))?;
                let netlink = TcAttachOptions::Netlink(NlOptions::default());
                let attached = program.attach_with_options(device, TcAttachType::Ingress, netlink);
                attached.map(drop).map_err(|error| refused(io::Error::other(error)))
            }
            attached => attached.map(drop).map_err(AttachError::Tcx),
        }
    }
}

/// Whether the kernel does not know tcx: it reports unknown attach types as invalid arguments.
fn is_unknown_to_kernel(error: &ProgramError) -> bool {
    matches!(error, ProgramError::SyscallError(SyscallError { io_error, .. }) if io_error.raw_os_error() == Some(libc::EINVAL))
}
