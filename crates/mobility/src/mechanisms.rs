//! The set of mechanisms of a host.

use crate::Chain;
use crate::ack_stall::{self, AckStallConfig};
use crate::delayed_dupacks::{DelayedDupacks, DelayedDupacksConfig};
use crate::ebsn::{Ebsn, EbsnConfig};
use crate::fast_retransmit::{FastRetransmit, FastRetransmitConfig};
use crate::freeze::{Freeze, FreezeConfig};
use crate::hold_back::{self, HoldBackConfig};
use crate::new_cell_window::{NewCellWindow, NewCellWindowConfig};
use crate::probe::{Probe, ProbeConfig};
use crate::reconnect_acks::{ReconnectAcks, ReconnectAcksConfig};
use crate::release::ReleaseConfig;
use crate::retransmission_trigger::{PeerTrigger, RetransmissionTrigger, RetransmissionTriggerConfig};
use crate::silence::SilenceOptions;
use crate::timestamp_echo::{TimestampEcho, TimestampEchoConfig};
use crate::unreachable_poke::UnreachablePokeConfig;
use crate::user_timeout::{UserTimeoutPolicy, UserTimeoutPolicyConfig};
use crate::wake::{Wake, WakeConfig};
use holdover_srp::{Srp, SrpConfig};

/// The mechanisms of a host; none by default.
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
    /// See [`crate::ebsn`].
    pub ebsn: Option<EbsnConfig>,
    /// See [`crate::delayed_dupacks`].
    pub delayed_dupacks: Option<DelayedDupacksConfig>,
    /// See [`crate::probe`].
    pub probe: Option<ProbeConfig>,
    /// See [`holdover_srp`].
    pub srp: Option<SrpConfig>,
    /// See [`crate::hold_back`].
    pub hold_back: Option<HoldBackConfig>,
    /// See [`crate::ack_stall`].
    pub ack_stall: Option<AckStallConfig>,
    /// See [`crate::unreachable_poke`].
    pub unreachable_poke: Option<UnreachablePokeConfig>,
    /// Those of the three above that are `None` are enabled as well, with their defaults: see [`crate::wake`].
    pub wake: bool,
    /// `wake` and the three above detect silence of the link, too: see [`crate::silence`]. Without any of them it is refused.
    pub silence: Option<SilenceOptions>,
    /// They send copies of the host's first unacknowledged segments, too: see [`crate::wake::OwnSegments`]. Without any of them it is refused.
    pub own_data: bool,
    /// How `hold_back`, `ack_stall` and `wake` release held ACKs: see [`crate::release`].
    pub release: ReleaseConfig,
}

/// A combination of mechanisms that is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CombinationError {
    /// Two mechanisms interfere.
    #[error("\"{one}\" cannot be combined with \"{other}\": {why}")]
    Interference {
        /// One mechanism, by its name in scenario files.
        one: &'static str,
        /// The other.
        other: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// An option of `wake` is set, and neither `wake` nor a part of it.
    #[error("\"{option}\" does nothing without \"wake\" or a part of it")]
    WithoutWake {
        /// The option.
        option: &'static str,
    },
}

impl CombinationError {
    /// The mechanism or option to name in a message.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Interference { one, .. } => one,
            Self::WithoutWake { option } => option,
        }
    }
}

impl Mechanisms {
    /// Whether they can be combined. Mechanisms that withhold ACKs send none when others rely on theirs; and a sender
    /// in recovery by the receiver's bitmask must not be restarted.
    pub fn check(&self) -> Result<(), CombinationError> {
        self.check_withholding()?;
        self.check_split()?;
        self.check_options()?;
        self.check_probe()
    }

    fn check_options(&self) -> Result<(), CombinationError> {
        let options = [(self.silence.is_some(), "silence"), (self.own_data, "own_data")];
        match options.into_iter().find(|(is_on, _)| *is_on && self.wake_config().is_none()) {
            Some((_, option)) => Err(CombinationError::WithoutWake { option }),
            None => Ok(()),
        }
    }

    fn check_probe(&self) -> Result<(), CombinationError> {
        let restarts = [
            (self.fast_retransmit.is_some(), FastRetransmit::NAME),
            (self.retransmission_trigger.is_some(), RetransmissionTrigger::NAME),
            (self.reconnect_acks.is_some(), ReconnectAcks::NAME),
        ];
        match restarts.into_iter().find(|(is_on, _)| *is_on && self.probe.is_some()) {
            Some((_, other)) => {
                let why = "both restart the sender after a handoff, and slow start would precede the probes' estimate";
                Err(CombinationError::Interference { one: Probe::NAME, other, why })
            }
            None => Ok(()),
        }
    }

    /// A connection that is split on the host itself sends no ACK of the host's TCP over the link.
    fn check_split(&self) -> Result<(), CombinationError> {
        let of_acks = [
            (self.wake, Wake::NAME),
            (self.hold_back.is_some(), hold_back::NAME),
            (self.ack_stall.is_some(), ack_stall::NAME),
            (self.freeze.is_some(), Freeze::NAME),
            (self.timestamp_echo.is_some(), TimestampEcho::NAME),
            (self.reconnect_acks.is_some(), ReconnectAcks::NAME),
            (self.new_cell_window.is_some(), NewCellWindow::NAME),
            (self.delayed_dupacks.is_some(), DelayedDupacks::NAME),
        ];
        match of_acks.into_iter().find(|(is_on, _)| *is_on && self.srp.is_some()) {
            Some((_, other)) => {
                let why = "SRP carries the data over the link, without segments that the other could change";
                Err(CombinationError::Interference { one: Srp::NAME, other, why })
            }
            None => Ok(()),
        }
    }

    fn check_withholding(&self) -> Result<(), CombinationError> {
        let withholds = [
            (self.wake, Wake::NAME),
            (self.hold_back.is_some(), hold_back::NAME),
            (self.ack_stall.is_some(), ack_stall::NAME),
        ];
        let Some((_, other)) = withholds.into_iter().find(|(is_on, _)| *is_on) else { return Ok(()) };
        let triggers_by_acks =
            |config: RetransmissionTriggerConfig| matches!(config.peer, PeerTrigger::DuplicateAcks { .. });
        let clashes = [
            (
                self.freeze.is_some(),
                Freeze::NAME,
                "the ACK that closes the window would be withheld, or the released ACKs would still close it",
            ),
            (
                self.reconnect_acks.is_some(),
                ReconnectAcks::NAME,
                "its ACKs would be withheld, and the released ACKs wake the peer anyway",
            ),
            (
                self.fast_retransmit.is_some_and(|config| config.copies > 0),
                FastRetransmit::NAME,
                "its ACKs would be withheld, and the released ACKs wake the peer anyway",
            ),
            (
                self.retransmission_trigger.is_some_and(triggers_by_acks),
                RetransmissionTrigger::NAME,
                "its duplicate ACKs would be withheld; its option is not",
            ),
            (self.delayed_dupacks.is_some(), DelayedDupacks::NAME, "both delay ACKs, and neither sees the other's"),
            (
                self.probe.is_some(),
                Probe::NAME,
                "its nacks and bitmasks would be withheld, and the released ACKs wake the peer anyway",
            ),
        ];
        match clashes.into_iter().find(|(is_on, ..)| *is_on) {
            Some((_, one, why)) => Err(CombinationError::Interference { one, other, why }),
            None => Ok(()),
        }
    }

    /// The chain of these mechanisms, ready to run, in the order in which an outgoing packet passes them. Combinations
    /// that [`Self::check`] refuses do no harm, but work less well than each alone.
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
        if let Some(config) = self.probe {
            chain.push_endpoint(Box::new(Probe::new(config)));
        }
        if let Some(config) = self.ebsn {
            chain.push_endpoint(Box::new(Ebsn::new(config)));
        }
        // First of the filters: intentional duplicates of others are not delayed.
        if let Some(config) = self.delayed_dupacks {
            chain.push(Box::new(DelayedDupacks::new(config)));
        }
        if let Some(config) = self.reconnect_acks {
            chain.push(Box::new(ReconnectAcks::new(config)));
        }
        if let Some(config) = self.freeze {
            chain.push(Box::new(Freeze::new(config)));
        }
        // It sees the windows of a freeze, and refreshes timestamps of the mechanisms before it.
        if let Some(config) = self.timestamp_echo {
            chain.push(Box::new(TimestampEcho::new(config)));
        }
        if let Some(config) = self.wake_config() {
            let mut wake = Wake::new(config);
            if let Some(options) = self.silence {
                wake = wake.detecting_silence(options);
            }
            if self.own_data {
                wake = wake.copying_own_data();
            }
            chain.push(Box::new(wake));
        }
        if let Some(config) = &self.srp {
            // The near side's sequence numbers never leave the host.
            chain.push(Box::new(Srp::new(config.clone(), [0; 16])));
        }
        // Nearest to the link: no other mechanism can send the real window.
        if let Some(config) = self.new_cell_window {
            chain.push(Box::new(NewCellWindow::new(config)));
        }
        chain
    }

    /// `None` without any part of `wake`.
    fn wake_config(&self) -> Option<WakeConfig> {
        let rest = if self.wake { WakeConfig::all() } else { WakeConfig::default() };
        let config = WakeConfig {
            hold_back: self.hold_back.or(rest.hold_back),
            ack_stall: self.ack_stall.or(rest.ack_stall),
            unreachable_poke: self.unreachable_poke.or(rest.unreachable_poke),
            release: self.release,
        };
        (config != WakeConfig { release: self.release, ..WakeConfig::default() }).then_some(config)
    }
}
