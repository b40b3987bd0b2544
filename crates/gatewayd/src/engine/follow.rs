//! Networks of mobile hosts that follow the interface's addresses, if the configuration names none. IPv6 addresses come after the daemon's
//! start where they are delegated or advertised, and change later.

use super::{Engine, setup};
use crate::network::Network;

impl Engine {
    /// The interface may have new addresses: their networks are served from now on. Networks of former addresses stay served, as an
    /// interface that goes down loses its IPv6 addresses for a while.
    pub(super) fn follow_addresses(&mut self) {
        if !self.config.mobiles.networks.is_empty() {
            return;
        }
        let found = match setup::networks(&self.interface, &mut self.requests, &self.config) {
            Ok(found) => found,
            Err(error) => return tracing::warn!(%error, "networks of new addresses are not served"),
        };
        let new: Vec<(Network, bool)> = found.into_iter().filter(|network| !self.networks.contains(network)).collect();
        if new.is_empty() {
            return;
        }
        let all: Vec<(Network, bool)> = self.networks.iter().chain(&new).copied().collect();
        if let Err(error) = self.path.add_networks(&new, &all, &self.config.mobiles.prefixes) {
            return tracing::warn!(%error, "networks of new addresses are not served");
        }
        for (network, _) in &new {
            tracing::info!(%network, "mobile hosts of this network are served");
        }
        self.networks = all;
    }
}
