//! Which mechanisms a host has.

use crate::Chain;
use crate::reconnect_acks::{ReconnectAcks, ReconnectAcksConfig};

/// Which mechanisms a host has; none by default.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Mechanisms {
    /// See [`crate::reconnect_acks`].
    pub reconnect_acks: Option<ReconnectAcksConfig>,
}

impl Mechanisms {
    /// The chain of them, ready to run. What an outgoing packet meets first is named first.
    pub fn chain(&self) -> Chain {
        let mut chain = Chain::new();
        if let Some(config) = self.reconnect_acks {
            chain.push(Box::new(ReconnectAcks::new(config)));
        }
        chain
    }
}
