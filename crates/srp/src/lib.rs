//! **MTCP with SRP** (Yavatkar and Bhagawat, "Improving end-to-end performance of TCP over mobile internetworks", IEEE Workshop on
//! Mobile Computing Systems and Applications 1994): a connection between a fixed host and a mobile host is split at the base station.
//! Over the wired way it is TCP. Over the wireless hop a session layer, which stands below the applications of the mobile host and at
//! the base station, carries the data by a protocol of its own that repeats selectively (SRP), for losses there are no congestion.
//!
//! [`Srp`] is that session layer, at either end: a filter beside the wireless link, which terminates the TCP on its near side and speaks
//! SRP over the link. At the base station the near side is the fixed host's TCP, at the mobile host it is the host's own, so that
//! applications keep their sockets.
//!
//! ```text
//!   fixed host  -- TCP --  [Srp] base station  - - SRP over UDP - -  [Srp] mobile host  -- TCP --  application
//! ```
//!
//! As in every split connection, the base station acknowledges data that the mobile host may never receive.
//!
//! # SRP as it is here
//!
//! The paper names the protocol and its idea, and leaves out most of it. These are choices:
//!
//! - **Messages** ([`message`]) are UDP datagrams in the names of both ends of the connection, at [`PORT`].
//! - **Selective repeat** ([`sender`]): each packet is acknowledged at once by the number up to which all have arrived, and a mask of those
//!   beyond. A packet is repeated when one that was transmitted after it has arrived, for a wireless hop keeps its order; and the oldest
//!   one when nothing was acknowledged for a timeout of SRTT + 4 RTTVAR (RFC 6298), which doubles up to [`SrpConfig::most_timeout`].
//! - **Flow control** by the number up to which the receiver has room, at most [`SrpConfig::window_packets`]. There is no congestion
//!   control: the hop has one sender at each end.
//! - **Disconnections.** The paper does not treat them. The sender repeats its timeout without end; a connection ends when the TCP
//!   at either end gives up. Reports of links that come back are ignored.
//! - **Opening.** A SYN is answered when the far end has answered it, as with `split`: the first packet of each direction carries
//!   [`Flag::Open`]. Connections that began before pass untouched, and so do those beyond [`SrpConfig::most`].
//! - **Handoffs.** Sessions stay at their base station.

#![forbid(unsafe_code)]

pub mod message;
mod node;
pub mod receiver;
pub mod sender;

use std::sync::Arc;

use holdover_base::Duration;
use holdover_tcp::Config;

pub use message::{Flag, MessageError};
pub use node::Srp;

/// The UDP port of both ends. No port is assigned: it is one of those for private use (RFC 6335 section 6).
pub const PORT: u16 = 49_994;

/// Parameters of the session layer. See the [crate].
#[derive(Clone, PartialEq, Debug)]
pub struct SrpConfig {
    /// The TCP of the near side.
    pub near: Arc<Config>,
    /// Bytes of data in a packet at most.
    pub packet_bytes: usize,
    /// Packets in flight at most, 1 to 64: no more than the queue of the wireless link holds.
    pub window_packets: u32,
    /// The shortest timeout.
    pub least_timeout: Duration,
    /// The longest timeout, up to which it doubles.
    pub most_timeout: Duration,
    /// The most connections that are split at once; others pass.
    pub most: usize,
}

impl SrpConfig {
    /// 1400 bytes, 32 packets, 50 ms to 1 s, 10,000 connections. A window larger than the queue of the wireless link
    /// loses packets again and again, as there is no congestion control.
    pub fn with(near: Config) -> Self {
        Self {
            near: Arc::new(near),
            packet_bytes: 1_400,
            window_packets: 32,
            least_timeout: Duration::from_millis(50),
            most_timeout: Duration::from_secs(1),
            most: 10_000,
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// The first invalid setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |what| Err(ConfigError { what });
        match self {
            Self { packet_bytes: 0, .. } => refuse("packet_bytes is 0"),
            Self { packet_bytes: 60_001.., .. } => refuse("packet_bytes is above 60,000"),
            Self { window_packets: 0 | 65.., .. } => refuse("window_packets is not 1 to 64"),
            Self { most: 0, .. } => refuse("most is 0"),
            Self { least_timeout: Duration::ZERO, .. } => refuse("least_timeout is 0 s"),
            _ if self.most_timeout < self.least_timeout => refuse("most_timeout is less than least_timeout"),
            _ => Ok(()),
        }
    }
}

/// An invalid setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid SRP settings: {what}")]
pub struct ConfigError {
    /// The reason.
    pub what: &'static str,
}
