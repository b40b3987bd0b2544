//! The set of mechanisms of a router.

use std::sync::Arc;

use holdover_filter::Chain;
use holdover_tcp::Config;

use crate::blocking_buffer::{BlockingBuffer, BlockingBufferConfig};
use crate::buffer_freeze::{BufferFreeze, BufferFreezeConfig};
use crate::copy_and_forward::{CopyAndForward, CopyAndForwardConfig};
use crate::daemon::{DaemonConfig, GatewayDaemon};
use crate::ebsn::{Ebsn, EbsnConfig};
use crate::handoff::salt_of;
use crate::m_tcp::{MTcp, MTcpConfig};
use crate::snoop::{Snoop, SnoopConfig};
use crate::split::{Split, SplitConfig};
use crate::supervisor::{Supervisor, SupervisorConfig};
use crate::tawcf::{Tawcf, TawcfConfig};
use holdover_srp::{Srp, SrpConfig};

/// The mechanisms of a router; none by default. A packet for a mobile host passes `ebsn` and `blocking_buffer` after the mechanism that
/// acts for the mobile host, if there is one.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Mechanisms {
    /// See [`crate::daemon`].
    pub daemon: Option<DaemonConfig>,
    /// See [`crate::supervisor`].
    pub supervisor: Option<SupervisorConfig>,
    /// See [`crate::buffer_freeze`].
    pub buffer_freeze: Option<BufferFreezeConfig>,
    /// See [`crate::split`].
    pub split: Option<SplitConfig>,
    /// See [`crate::m_tcp`].
    pub m_tcp: Option<MTcpConfig>,
    /// See [`holdover_srp`].
    pub srp: Option<SrpConfig>,
    /// See [`crate::snoop`].
    pub snoop: Option<SnoopConfig>,
    /// See [`crate::tawcf`].
    pub tawcf: Option<TawcfConfig>,
    /// See [`crate::ebsn`].
    pub ebsn: Option<EbsnConfig>,
    /// See [`crate::blocking_buffer`].
    pub blocking_buffer: Option<BlockingBufferConfig>,
    /// See [`crate::copy_and_forward`].
    pub copy_and_forward: Option<CopyAndForwardConfig>,
}

/// Why a router's mechanisms are invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// There are none.
    #[error("no mechanism is configured")]
    None,
    /// A mechanism without effect.
    #[error("{mechanism} has no effect: {what}")]
    Nothing {
        /// The mechanism's name in scenario files.
        mechanism: &'static str,
        /// The settings that cause it.
        what: &'static str,
    },
    /// Two mechanisms would both decide which ACKs of the mobile host pass.
    #[error("{one} and {other} cannot be combined at one router: both decide which ACKs of the mobile host pass")]
    Together {
        /// One mechanism.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
    /// Two mechanisms would both keep the same packets.
    #[error("{one} and {other} cannot be combined at one router: both would resend missed packets to a mobile host")]
    Twice {
        /// One mechanism.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
    /// Its notifications would go to a host that has not sent the segments.
    #[error(
        "{mechanism} cannot be combined with {terminates}, which terminates the connections: no sender would be notified"
    )]
    Terminated {
        /// The mechanism.
        mechanism: &'static str,
        /// The mechanism that terminates connections.
        terminates: &'static str,
    },
}

impl Mechanisms {
    /// The TCPs of mechanisms that terminate connections.
    pub fn tcps_mut(&mut self) -> impl Iterator<Item = &mut Arc<Config>> {
        let m_tcp = self.m_tcp.as_mut().map(|m_tcp| &mut m_tcp.split);
        self.split.iter_mut().chain(m_tcp).flat_map(|split| [&mut split.fixed, &mut split.mobile])
    }

    /// Checks the mechanisms.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_together()?;
        let idle = [
            (GatewayDaemon::NAME, self.daemon.as_ref().and_then(DaemonConfig::why_idle)),
            (Supervisor::NAME, self.supervisor.as_ref().and_then(SupervisorConfig::why_idle)),
            (Split::NAME, self.split.as_ref().and_then(SplitConfig::why_idle)),
            (MTcp::NAME, self.m_tcp.as_ref().and_then(MTcpConfig::why_idle)),
            (Srp::NAME, self.srp.as_ref().and_then(|config| config.check().err()).map(|error| error.what)),
            (BufferFreeze::NAME, self.buffer_freeze.as_ref().and_then(BufferFreezeConfig::why_idle)),
            (BlockingBuffer::NAME, self.blocking_buffer.as_ref().and_then(BlockingBufferConfig::why_idle)),
            (CopyAndForward::NAME, self.copy_and_forward.as_ref().and_then(CopyAndForwardConfig::why_idle)),
            (Snoop::NAME, self.snoop.as_ref().and_then(SnoopConfig::why_idle)),
            (Tawcf::NAME, self.tawcf.as_ref().and_then(TawcfConfig::why_idle)),
        ];
        match idle.into_iter().find_map(|(mechanism, why)| Some((mechanism, why?))) {
            Some((mechanism, what)) => Err(ConfigError::Nothing { mechanism, what }),
            None => Ok(()),
        }
    }

    /// Whether the enabled mechanisms can be combined at one router.
    fn check_together(&self) -> Result<(), ConfigError> {
        let Self {
            daemon,
            supervisor,
            buffer_freeze,
            blocking_buffer,
            copy_and_forward,
            split,
            m_tcp,
            snoop,
            tawcf,
            ebsn,
            srp,
        } = self;
        // Each of these withholds ACKs or answers for the mobile host.
        let answering = [
            daemon.as_ref().map(|_| GatewayDaemon::NAME),
            supervisor.as_ref().map(|_| Supervisor::NAME),
            buffer_freeze.as_ref().map(|_| BufferFreeze::NAME),
            split.as_ref().map(|_| Split::NAME),
            m_tcp.as_ref().map(|_| MTcp::NAME),
            srp.as_ref().map(|_| Srp::NAME),
            snoop.as_ref().map(|_| Snoop::NAME),
            tawcf.as_ref().map(|_| Tawcf::NAME),
        ];
        let mut answering = answering.into_iter().flatten();
        match (answering.next(), answering.next()) {
            (Some(one), Some(other)) => return Err(ConfigError::Together { one, other }),
            (None, None) if blocking_buffer.is_none() && copy_and_forward.is_none() && ebsn.is_none() => {
                return Err(ConfigError::None);
            }
            (Some(one), None) if copy_and_forward.is_some() => {
                return Err(ConfigError::Twice { one, other: CopyAndForward::NAME });
            }
            _ if daemon.as_ref().is_some_and(|config| config.mode.diverts()) && blocking_buffer.is_some() => {
                return Err(ConfigError::Twice { one: GatewayDaemon::NAME, other: BlockingBuffer::NAME });
            }
            _ if blocking_buffer.is_some() && copy_and_forward.is_some() => {
                return Err(ConfigError::Twice { one: BlockingBuffer::NAME, other: CopyAndForward::NAME });
            }
            _ => {}
        }
        let terminating =
            [split.as_ref().map(|_| Split::NAME), m_tcp.as_ref().map(|_| MTcp::NAME), srp.as_ref().map(|_| Srp::NAME)];
        if let (Some(_), Some(terminates)) = (ebsn, terminating.into_iter().flatten().next()) {
            return Err(ConfigError::Terminated { mechanism: Ebsn::NAME, terminates });
        }
        Ok(())
    }

    /// The chain of these mechanisms. `secret` is for sequence numbers, and makes requests to peers distinct.
    pub fn chain(&self, secret: [u8; 16]) -> Chain {
        let Self {
            daemon,
            supervisor,
            buffer_freeze,
            blocking_buffer,
            copy_and_forward,
            split,
            m_tcp,
            snoop,
            tawcf,
            ebsn,
            srp,
        } = self;
        let mut chain = Chain::new();
        if let Some(config) = daemon {
            chain.push(Box::new(GatewayDaemon::new(config.clone())));
        }
        if let Some(config) = supervisor {
            chain.push(Box::new(Supervisor::new(*config)));
        }
        if let Some(config) = buffer_freeze {
            chain.push(Box::new(BufferFreeze::new(config.clone(), salt_of(secret))));
        }
        if let Some(config) = split {
            chain.push(Box::new(Split::new(config.clone(), secret)));
        }
        if let Some(config) = m_tcp {
            chain.push(Box::new(MTcp::new(config.clone(), secret)));
        }
        if let Some(config) = srp {
            chain.push(Box::new(Srp::new(config.clone(), secret)));
        }
        if let Some(config) = snoop {
            chain.push(Box::new(Snoop::new(config.clone())));
        }
        if let Some(config) = tawcf {
            chain.push(Box::new(Tawcf::new(*config)));
        }
        if let Some(config) = ebsn {
            chain.push(Box::new(Ebsn::new(*config)));
        }
        if let Some(config) = blocking_buffer {
            chain.push(Box::new(BlockingBuffer::new(*config)));
        }
        if let Some(config) = copy_and_forward {
            chain.push(Box::new(CopyAndForward::new(*config)));
        }
        chain
    }
}
