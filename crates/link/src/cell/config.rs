//! Configuration of a cell.

use super::dcf::{Contention, Dcf};
use super::hop::StationId;
use super::motion::Position;
use super::radio::Radio;
use crate::bit_errors::BitErrors;
use crate::error::ConfigError;
use crate::queue::QueueLimit;

/// The treatment of the frames of a station that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LeavePolicy {
    /// They are dropped.
    #[default]
    Drop,
    /// They are handed back, oldest first, so that the node can forward them to the new cell.
    HandBack,
}

/// A cell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CellConfig {
    /// Medium access.
    pub dcf: Dcf,
    /// The transceivers, which determine the range.
    pub radio: Radio,
    /// The position of the base station.
    pub position: Position,
    /// Limit of the base station's buffer, which all its stations share.
    pub base_buffer: QueueLimit,
    /// Limit of each station's buffer.
    pub station_buffer: QueueLimit,
    /// The treatment of the frames of a station that leaves.
    pub leave_policy: LeavePolicy,
    /// Bit errors of data frames on the air, MAC header included. RTS, CTS and acknowledgments are never damaged.
    pub bit_errors: BitErrors,
    /// The channel number; `None` for a channel of its own. A cell with a number sends only when [`super::contend`]
    /// starts it.
    pub channel: Option<u32>,
}

impl CellConfig {
    /// A 2 Mb/s cell of radius `range_m` metres around the origin, whose base station has `base_buffer` and whose stations
    /// have no limit.
    pub fn wavelan(range_m: f64, base_buffer: QueueLimit) -> Self {
        Self {
            dcf: Dcf::DSSS_2_MBPS,
            radio: Radio::wavelan(range_m),
            position: Position::default(),
            base_buffer,
            station_buffer: QueueLimit::Unlimited,
            leave_policy: LeavePolicy::default(),
            bit_errors: BitErrors::None,
            channel: None,
        }
    }

    /// Checks the configuration.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.dcf.data_rate.0 == 0 || self.dcf.basic_rate.0 == 0 {
            return Err(ConfigError::ZeroRate);
        }
        if self.channel.is_some() && self.dcf.contention != Contention::Drawn {
            return Err(ConfigError::ChannelInTurns);
        }
        crate::bit_errors::check(self.bit_errors)?;
        self.radio.check()
    }
}

/// Two stations of the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("station {} is in the cell already", .0.0)]
pub struct JoinError(pub StationId);
