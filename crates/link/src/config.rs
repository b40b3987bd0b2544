//! Configuration of a link.

use std::sync::Arc;

use holdover_base::Duration;
use holdover_wire::Compression;

use crate::arq::Arq;
use crate::bit_errors::BitErrors;
use crate::codel::CoDel;
use crate::error::{ConfigError, check_probability};
use crate::jitter::Jitter;
use crate::loss::Loss;
use crate::outage::{OutagePolicy, Outages};
use crate::queue::QueueLimit;
use crate::rate::Rate;
use crate::reordering::Reordering;
use crate::trace::ConditionTrace;

/// One direction of a link between two nodes. The default is a perfect wire: no delay, no limit, no loss.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct LinkConfig {
    /// The sending rate.
    pub rate: Rate,
    /// Bytes that the link adds to each frame, such as a link-layer header (netem's PACKETOVERHEAD of `rate`). They
    /// take time but no room in the queue.
    pub overhead_bytes: u32,
    /// Propagation delay, from the last bit sent to the last bit received.
    pub delay: Duration,
    /// Variation of the propagation delay.
    pub jitter: Option<Jitter>,
    /// Limit of the drop-tail queue.
    pub queue_limit: QueueLimit,
    /// Active queue management, besides the limit.
    pub codel: Option<CoDel>,
    /// Frames that have waited longer than this are marked, if they support ECN (Linux `fq_codel`'s `ce_threshold`).
    pub ce_threshold: Option<Duration>,
    /// Random loss on the wire.
    pub loss: Loss,
    /// Probability that a frame enters the queue twice (netem's `duplicate`). The copy counts against the queue's limit and
    /// takes time of its own, and it is not duplicated again.
    pub duplicate: f64,
    /// Probability that a frame arrives damaged (netem's `corrupt`).
    pub corrupt: f64,
    /// Bits that are damaged on the wire, those of [`Self::overhead_bytes`] included. A frame with any of them arrives damaged.
    pub bit_errors: BitErrors,
    /// Frames that skip the propagation delay.
    pub reorder: Option<Reordering>,
    /// When the link is down.
    pub outages: Outages,
    /// The fate of frames around an outage.
    pub outage_policy: OutagePolicy,
    /// How long after each link-up frames are still dropped, under any policy: a bridge port in the listening and
    /// learning states of the spanning tree protocol (STP), an access point, a modem. A frame is dropped if its last bit was sent within that time.
    pub forwards_after: Duration,
    /// Rate, delay, loss and connectivity over time. Columns of the table replace the fields above; its loss is added
    /// to `loss`.
    pub conditions: Option<Arc<ConditionTrace>>,
    /// Retransmission on the link; `None` without ARQ.
    pub arq: Option<Arq>,
    /// Compression of packets before they enter the queue, which takes no time; `None` without.
    pub compression: Option<Compression>,
}

impl LinkConfig {
    /// Whether any part of it is random: losses, damage, delays or outages.
    pub fn is_random(&self) -> bool {
        let drawn = |length: &crate::Length| !matches!(length, crate::Length::Constant(_));
        let outages = match &self.outages {
            Outages::Never | Outages::List(_) => false,
            Outages::Alternating(alternating) => drawn(&alternating.connected) || drawn(&alternating.disconnected),
        };
        outages
            || !matches!(self.loss, Loss::None | Loss::Independent(0.0))
            || self.conditions.as_ref().is_some_and(|trace| trace.has_loss())
            || !matches!(self.bit_errors, BitErrors::None | BitErrors::Independent(0.0))
            || self.duplicate > 0.0
            || self.corrupt > 0.0
            || self.jitter.is_some()
            || self.reorder.is_some()
    }
}

impl LinkConfig {
    /// Whether the configuration has any outages.
    pub fn goes_down(&self) -> bool {
        self.outages != Outages::Never || self.conditions.as_ref().is_some_and(|trace| trace.has_up())
    }

    /// Checks the configuration.
    pub fn check(&self) -> Result<(), ConfigError> {
        if matches!(self.rate, Rate::Fixed(rate) if rate.0 == 0) {
            return Err(ConfigError::ZeroRate);
        }
        check_probability("duplicate", self.duplicate)?;
        check_probability("corrupt", self.corrupt)?;
        crate::loss::check(self.loss)?;
        crate::bit_errors::check(self.bit_errors)?;
        if let Some(reordering) = self.reorder {
            check_probability("reorder", reordering.probability)?;
        }
        crate::outage::check(&self.outages)?;
        self.arq.map_or(Ok(()), crate::arq::check)?;
        if self.codel.is_some_and(|codel| codel.interval.is_zero()) {
            return Err(ConfigError::NoLength { field: "codel interval" });
        }
        if let Some(Compression { tcp, udp, other, .. }) = self.compression {
            check_probability("compression.tcp", tcp)?;
            check_probability("compression.udp", udp)?;
            check_probability("compression.other", other)?;
        }
        if let Some(trace) = &self.conditions {
            if trace.has_up() && self.outages != Outages::Never {
                return Err(ConfigError::OutagesTwice);
            }
            if trace.has_rate() && matches!(self.rate, Rate::Deliveries(_)) {
                return Err(ConfigError::RateTwice);
            }
        }
        Ok(())
    }
}
