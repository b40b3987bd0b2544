//! Which mechanisms a host has.

use crate::Chain;
use crate::ack_stall::AckStallConfig;
use crate::hold_back::HoldBackConfig;
use crate::reconnect_acks::{ReconnectAcks, ReconnectAcksConfig};
use crate::release::ReleaseConfig;
use crate::unreachable_poke::UnreachablePokeConfig;
use crate::wake::{Wake, WakeConfig};

/// Which mechanisms a host has; none by default.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Mechanisms {
    /// See [`crate::reconnect_acks`].
    pub reconnect_acks: Option<ReconnectAcksConfig>,
    /// See [`crate::hold_back`].
    pub hold_back: Option<HoldBackConfig>,
    /// See [`crate::ack_stall`].
    pub ack_stall: Option<AckStallConfig>,
    /// See [`crate::unreachable_poke`].
    pub unreachable_poke: Option<UnreachablePokeConfig>,
    /// Those of the three above that are `None` are on as well, with their defaults: see [`crate::wake`].
    pub wake: bool,
    /// How `hold_back`, `ack_stall` and `wake` let go of what they hold: see [`crate::release`].
    pub release: ReleaseConfig,
}

impl Mechanisms {
    /// The chain of them, ready to run. What an outgoing packet meets first is named first.
    pub fn chain(&self) -> Chain {
        let mut chain = Chain::new();
        if let Some(config) = self.reconnect_acks {
            chain.push(Box::new(ReconnectAcks::new(config)));
        }
        let wake = self.wake_config();
        if wake != (WakeConfig { release: self.release, ..WakeConfig::default() }) {
            chain.push(Box::new(Wake::new(wake)));
        }
        chain
    }

    fn wake_config(&self) -> WakeConfig {
        let rest = if self.wake { WakeConfig::all() } else { WakeConfig::default() };
        WakeConfig {
            hold_back: self.hold_back.or(rest.hold_back),
            ack_stall: self.ack_stall.or(rest.ack_stall),
            unreachable_poke: self.unreachable_poke.or(rest.unreachable_poke),
            release: self.release,
        }
    }
}
