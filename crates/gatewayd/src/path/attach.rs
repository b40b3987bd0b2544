//! The programs on the mobile-facing interface.

use holdover_host::clsact::Owner;
use holdover_host::ebpf::AttachMode;
use holdover_host::ebpf::pins::Pins;

use super::{KernelPath, PINNED, PathError, Place};
use crate::network::Network;

impl KernelPath {
    /// Loads the programs and attaches them to an interface.
    pub(crate) fn attach(place: Place<'_>, networks: &[(Network, bool)]) -> Result<Self, PathError> {
        let pins = place.pins.and_then(|root| {
            let opened = Pins::open(root, place.index, &place.layout(), PINNED);
            opened.inspect_err(|error| tracing::warn!(%error, "cannot pin programs: they end with the process")).ok()
        });
        let mut path = Self::load(&place, networks, pins)?;
        path.attach_to(place.interface, place.index)?;
        if let Some(split) = place.split {
            // Gives SYNs to listening sockets.
            path.object.attach_to_device("deliver", &split.device)?;
        }
        Ok(path)
    }

    /// The interface was removed, and the kernel has detached the programs: maps stay, in this process and pinned.
    pub(crate) fn handle_gone(&mut self) {
        self.attachment = None;
    }

    /// Attaches the loaded programs to an interface that has come in place of the removed one, with frames of the same kind.
    pub(crate) fn reattach(&mut self, interface: &str, index: u32) -> Result<(), PathError> {
        if let Some(Err(error)) = self.pins.as_mut().map(|pins| pins.rename(index)) {
            tracing::warn!(%error, "cannot pin programs: they end with the process");
            self.pins = None;
        }
        self.attach_to(interface, index)
    }

    fn attach_to(&mut self, interface: &str, index: u32) -> Result<(), PathError> {
        let (mode, pins) = (AttachMode::Best, self.pins.as_ref());
        let attachment = self.object.attach(Owner::GATEWAY, (interface, index), mode, pins)?;
        self.pins = self.pins.take().filter(|_| attachment.is_pinned());
        if let Some(pins) = &self.pins {
            pins.handle_started();
        }
        self.attachment = Some(attachment);
        Ok(())
    }
}
