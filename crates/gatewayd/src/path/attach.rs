//! The programs on the mobile-facing interface.

use std::os::fd::AsFd as _;

use aya::programs::links::FdLink;
use aya::programs::tc::{self, NlOptions, TcAttachOptions};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use aya::sys::SyscallError;
use holdover_host::clsact::{Filters, Owner};

use super::pins::Pins;
use super::{AttachedBy, KernelPath, PathError, Place, program};
use crate::network::Network;
use crate::split::SplitPlace;

/// The hooks, and the place of the programs there: last on egress and first on ingress, as far as other programs permit.
const HOOKS: [(&str, TcAttachType, fn() -> LinkOrder); 2] =
    [("ingress", TcAttachType::Ingress, LinkOrder::first), ("egress", TcAttachType::Egress, LinkOrder::last)];

impl KernelPath {
    /// Loads the programs and attaches them to an interface.
    pub(crate) fn attach(place: Place<'_>, networks: &[(Network, bool)]) -> Result<Self, PathError> {
        let pins = place.pins.and_then(|root| {
            let opened = Pins::open(root, &place);
            opened.inspect_err(|error| tracing::warn!(%error, "cannot pin programs: they end with the process")).ok()
        });
        let mut path = Self::load(&place, networks, pins)?;
        path.attach_to(place.interface, place.index, path.is_taken_over)?;
        if let Some(split) = place.split {
            path.attach_deliver(split)?;
        }
        Ok(path)
    }

    /// The interface was removed, and the kernel has detached the programs: maps stay, in this process and pinned.
    pub(crate) fn handle_gone(&mut self) {
        // The filters went with it.
        self.filters = None;
        self.links.clear();
        self.unpinned_links.clear();
        if let Some(Err(error)) = self.pins.as_mut().map(Pins::keep) {
            tracing::warn!(%error, "another gateway that starts may remove the pins of this one");
        }
    }

    /// Attaches the loaded programs to an interface that has come in place of the removed one, with frames of the same kind.
    pub(crate) fn reattach(&mut self, interface: &str, index: u32) -> Result<(), PathError> {
        if let Some(Err(error)) = self.pins.as_mut().map(|pins| pins.rename(index)) {
            tracing::warn!(%error, "cannot pin programs: they end with the process");
            self.pins = None;
        }
        self.attach_to(interface, index, false)
    }

    /// `takes_over`: from the programs of an earlier process on this interface.
    fn attach_to(&mut self, interface: &str, index: u32, takes_over: bool) -> Result<(), PathError> {
        match self.attach_tcx(interface, takes_over) {
            Ok(()) => {
                drop(Filters::clear(Owner::GATEWAY, index));
                if let Some(pins) = &mut self.pins {
                    pins.handle_started();
                }
            }
            Err(error) if is_unknown_to_kernel(&error) => {
                let of = |name| -> Result<_, PathError> {
                    let program: &SchedClassifier =
                        self.ebpf.program(name).ok_or(PathError::Object { lacks: name })?.try_into()?;
                    Ok((program.fd()?.as_fd(), program.info()?.id()))
                };
                let programs = [of("ingress")?, of("egress")?];
                let filters = Filters::attach(Owner::GATEWAY, index, programs).map_err(PathError::Clsact)?;
                self.filters = Some(filters);
                self.attached_by = AttachedBy::Clsact;
                self.unpin();
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn attach_tcx(&mut self, interface: &str, takes_over: bool) -> Result<(), ProgramError> {
        for (name, direction, order) in HOOKS {
            let program: &mut SchedClassifier =
                self.ebpf.program_mut(name).ok_or(ProgramError::NotLoaded)?.try_into()?;
            // Replaces a program of an earlier process atomically, so that no packet passes none or two.
            if let Some(link) = self.pins.as_ref().filter(|_| takes_over).and_then(|pins| pins.link(name)) {
                let link = program.attach_to_link(link)?;
                self.unpinned_links.push(program.take_link(link)?);
                continue;
            }
            let link = program.attach_with_options(interface, direction, TcAttachOptions::TcxOrder(order()))?;
            let Some(pins) = &self.pins else {
                self.unpinned_links.push(program.take_link(link)?);
                continue;
            };
            let link = FdLink::try_from(program.take_link(link)?).map_err(|error| error.to_string());
            match link.and_then(|link| link.pin(pins.path(name)).map_err(|error| error.to_string())) {
                Ok(link) => self.links.push(link),
                Err(error) => {
                    tracing::warn!(%error, "cannot pin programs: they end with the process");
                    self.pins = None;
                    let link = program.attach_with_options(interface, direction, TcAttachOptions::TcxOrder(order()))?;
                    self.unpinned_links.push(program.take_link(link)?);
                }
            }
        }
        Ok(())
    }

    /// Attaches the program that gives SYNs to listening sockets. The device, and with it the filter, ends with the process.
    fn attach_deliver(&mut self, split: &SplitPlace) -> Result<(), PathError> {
        let program = program(&mut self.ebpf, "deliver")?;
        let tcx = TcAttachOptions::TcxOrder(LinkOrder::first());
        match program.attach_with_options(&split.device, TcAttachType::Ingress, tcx) {
            Err(error) if is_unknown_to_kernel(&error) => {
                tc::qdisc_add_clsact(&split.device).map_err(|error| PathError::Clsact(std::io::Error::other(error)))?;
                let netlink = TcAttachOptions::Netlink(NlOptions::default());
                program.attach_with_options(&split.device, TcAttachType::Ingress, netlink)?;
            }
            attached => {
                attached?;
            }
        }
        Ok(())
    }
}

/// Whether the kernel does not know tcx: it reports unknown attach types as invalid arguments.
fn is_unknown_to_kernel(error: &ProgramError) -> bool {
    matches!(error, ProgramError::SyscallError(SyscallError { io_error, .. }) if io_error.raw_os_error() == Some(libc::EINVAL))
}
