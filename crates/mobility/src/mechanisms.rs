//! Which mechanisms a host has.

use crate::Chain;
use crate::ack_stall::AckStallConfig;
use crate::fast_retransmit::{FastRetransmit, FastRetransmitConfig};
use crate::freeze::{Freeze, FreezeConfig};
use crate::hold_back::HoldBackConfig;
use crate::new_cell_window::{NewCellWindow, NewCellWindowConfig};
use crate::reconnect_acks::{ReconnectAcks, ReconnectAcksConfig};
use crate::release::ReleaseConfig;
use crate::retransmission_trigger::{RetransmissionTrigger, RetransmissionTriggerConfig};
use crate::timestamp_echo::{TimestampEcho, TimestampEchoConfig};
use crate::unreachable_poke::UnreachablePokeConfig;
use crate::user_timeout::{UserTimeoutPolicy, UserTimeoutPolicyConfig};
use crate::wake::{Wake, WakeConfig};

/// Which mechanisms a host has; none by default.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Mechanisms {
    /// See [`crate::reconnect_acks`].
    pub reconnect_acks: Option<ReconnectAcksConfig>,
    /// See [`crate::retransmission_trigger`].
    pub retransmission_trigger: Option<RetransmissionTriggerConfig>,
    /// See [`crate::user_timeout`].
    pub user_timeout: Option<UserTimeoutPolicyConfig>,
    /// See [`crate::freeze`].
    pub freeze: Option<FreezeConfig>,
    /// See [`crate::timestamp_echo`].
    pub timestamp_echo: Option<TimestampEchoConfig>,
    /// See [`crate::new_cell_window`].
    pub new_cell_window: Option<NewCellWindowConfig>,
    /// See [`crate::fast_retransmit`].
    pub fast_retransmit: Option<FastRetransmitConfig>,
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
        if let Some(config) = self.user_timeout {
            chain.push_endpoint(Box::new(UserTimeoutPolicy::new(config)));
        }
        if let Some(config) = self.retransmission_trigger {
            chain.push_endpoint(Box::new(RetransmissionTrigger::new(config)));
        }
        if let Some(config) = self.fast_retransmit {
            chain.push_endpoint(Box::new(FastRetransmit::new(config)));
        }
        if let Some(config) = self.reconnect_acks {
            chain.push(Box::new(ReconnectAcks::new(config)));
        }
        // Nearer to the link than whatever tells the real window.
        if let Some(config) = self.new_cell_window {
            chain.push(Box::new(NewCellWindow::new(config)));
        }
        if let Some(config) = self.freeze {
            chain.push(Box::new(Freeze::new(config)));
        }
        // Nearest to the link: it sees the windows that leave, and refreshes what the others say.
        if let Some(config) = self.timestamp_echo {
            chain.push(Box::new(TimestampEcho::new(config)));
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
