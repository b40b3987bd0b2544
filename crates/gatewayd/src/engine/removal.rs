//! The interface is removed while the gateway runs, as `ppp0` with its connection or `wg0` by `wg-quick`, and comes back with another index.
//!
//! Meanwhile all mobile hosts are away. Buffered packets and the state of connections stay: the maps are the same, and the programs are
//! attached to the new interface. Split connections stay open, as none of their sockets is bound to an interface.

use holdover_base::Instant;

use super::{Engine, EngineError};
use crate::interface::{Interface, InterfaceError};

impl Engine {
    /// Whether the interface was removed, and is waited for.
    pub(crate) const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The interface was removed. Returns whether there is one of its name again.
    pub(super) fn handle_gone(&mut self, now: Instant) -> Result<bool, EngineError> {
        if self.is_gone {
            return Ok(false);
        }
        // The interface may have been renamed.
        self.interface.name = self.watch.name().to_owned();
        tracing::warn!(interface = self.interface.name, "the interface is gone: waiting for one of this name");
        self.is_gone = true;
        self.interface.has_carrier = false;
        self.watch.follow(None);
        self.path.handle_gone();
        self.note_carrier(now, false);
        // It may have come back before the notification was read.
        self.look_up(now)
    }

    /// Looks up the interface, as notifications may be older than its state. Returns whether it has come back.
    pub(super) fn look_up(&mut self, now: Instant) -> Result<bool, EngineError> {
        match Interface::find(&mut self.requests, &self.interface.name.clone()) {
            Ok(found) if self.is_gone => self.handle_returned(now, found),
            Ok(found) if found.index == self.interface.index => {
                self.interface = found;
                self.handle_link(now);
                self.follow_addresses();
                Ok(false)
            }
            Ok(_) | Err(InterfaceError::Missing { .. }) if !self.is_gone => self.handle_gone(now),
            Ok(_) | Err(InterfaceError::Missing { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// There is an interface of the removed one's name. Returns whether it is served.
    fn handle_returned(&mut self, now: Instant, interface: Interface) -> Result<bool, EngineError> {
        // The programs are loaded for frames of one kind.
        if interface.frame_len() != self.interface.frame_len() {
            return Err(EngineError::Gone { interface: interface.name });
        }
        let attached = self.path.reattach(&interface.name, interface.index);
        match Interface::find(&mut self.requests, &interface.name) {
            Ok(found) if found.index == interface.index => attached?,
            // Programs are attached by name, which may be that of another interface by now: a notification of it follows.
            Ok(_) | Err(InterfaceError::Missing { .. }) => {
                self.path.handle_gone();
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        if let Some(splitter) = &mut self.splitter {
            splitter.follow(interface.index)?;
        }
        if let Some(echo) = &mut self.echo {
            echo.reopen(&interface.name);
        }
        tracing::info!(interface = interface.name, index = interface.index, "the interface is back");
        self.watch.follow(Some(interface.index));
        (self.is_gone, self.interface) = (false, interface);
        self.follow_addresses();
        if self.interface.has_carrier || !self.config.presence.carrier {
            self.note_carrier(now, true);
        }
        Ok(true)
    }
}
