//! Which mechanisms a host has.

use crate::Chain;
use crate::reconnect_acks::{ReconnectAcks, ReconnectAcksConfig};
use crate::retransmission_trigger::{RetransmissionTrigger, RetransmissionTriggerConfig};
use crate::user_timeout::{UserTimeoutPolicy, UserTimeoutPolicyConfig};

/// Which mechanisms a host has; none by default.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Mechanisms {
    /// See [`crate::reconnect_acks`].
    pub reconnect_acks: Option<ReconnectAcksConfig>,
    /// See [`crate::retransmission_trigger`].
    pub retransmission_trigger: Option<RetransmissionTriggerConfig>,
    /// See [`crate::user_timeout`].
    pub user_timeout: Option<UserTimeoutPolicyConfig>,
}

impl Mechanisms {
    /// The chain of them, ready to run. What an outgoing packet meets first is named first.
    pub fn chain(&self) -> Chain {
        let mut chain = Chain::new();
        if let Some(config) = self.user_timeout {
            chain.push_endpoint(Box::new(UserTimeoutPolicy::new(config)));
        }
        if let Some(config) = self.retransmission_trigger {
            chain.push_endpoint(Box::new(RetransmissionTrigger::new(config)));
        }
        if let Some(config) = self.reconnect_acks {
            chain.push(Box::new(ReconnectAcks::new(config)));
        }
        chain
    }
}
