//! The modes of `holdover gateway`: packets for absent mobile hosts are kept ([`crate::divert`]), their connections are woken
//! ([`holdover_mobility::wake`]) or frozen ([`crate::freeze`]), or both.
//!
//! [`Mode::Thesis`] is the gateway of the thesis on Freeze-TCP ([`crate::blocking_buffer`]) on a real router. As in the thesis, there is
//! one queue of TCP packets for each mobile host, which the host's sign blocks ([`WarningSign`]) and which is released in bursts; there is
//! no state of single connections, and only the flag of the sign is rewritten. As in the other modes, a sign is one source of absence among
//! others, packets from a host that another source has found absent count as its registration, and the limits and the rate of the buffer
//! apply.
//!
//! A [`Mode`] decides whether packets are kept, and which [`Controller`] a mobile host's TCP connections have over the flow
//! path. The daemon's flow path is in the kernel, and its queues are in files; [`GatewayDaemon`] has both in memory, as a
//! filter of a simulated router.
//!
//! The daemon also detects by address resolution that a mobile host is silent. The filter gets reports instead, and, like
//! the daemon, regards a packet from the mobile host as its return.

mod filter;

use core::fmt;
use core::str::FromStr;

use holdover_base::Duration;
use holdover_filter::Direction;
use holdover_flow::{Flow, Rules};
use holdover_mobility::wake::WakeConfig;
use holdover_wire::Seq;

pub use filter::GatewayDaemon;

use crate::divert::{Diversion, DiverterConfig};
pub use crate::flow_path::{Controller, Treatment};
use crate::freeze::FreezeConfig;
use crate::prefixes::Prefixes;
use crate::warning_sign::WarningSign;

/// The treatment of absent mobile hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Mode {
    /// Packets for them are kept, and released in order when they return.
    #[default]
    Buffer,
    /// Nothing: absences are counted and reported.
    Observe,
    /// Senders of data are shown a zero window, and their probes are answered. Nothing is kept.
    Freeze,
    /// Both: packets are kept, and senders are shown a zero window (BUFFER-FREEZE).
    BufferFreeze,
    /// As in the paper (M-TCP): packets are kept, one byte is never acknowledged while data flow, and windows are shut
    /// when ACKs cease.
    MTcp,
    /// As in the thesis on Freeze-TCP: TCP packets are kept, also while a mobile host predicts its absence by a sign, and
    /// released in bursts.
    Thesis,
    /// TCP connections end at the gateway, in sockets of its own. Packets for absent mobile hosts are kept, those of these
    /// sockets too.
    // `GatewayDaemon` ends no connections: to it the mode is `Buffer`.
    Split,
}

/// A word that is not a mode.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("\"{name}\" is no mode of a gateway: {}", Mode::NAMES.join(", "))]
pub struct UnknownMode {
    /// The word.
    pub name: String,
}

impl Mode {
    /// Those that terminate no connections.
    pub const IN_PATH: [Self; 6] =
        [Self::Buffer, Self::Observe, Self::Freeze, Self::BufferFreeze, Self::MTcp, Self::Thesis];

    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Buffer, Self::Observe, Self::Freeze, Self::BufferFreeze, Self::MTcp, Self::Thesis, Self::Split];

    /// Their names in files, in the same order.
    pub const NAMES: [&str; 7] = ["buffer", "observe", "freeze", "buffer-freeze", "m-tcp", "thesis", "split"];

    /// Whether packets for absent mobile hosts are kept.
    pub const fn diverts(self) -> bool {
        !matches!(self, Self::Observe | Self::Freeze)
    }

    /// The packets for absent mobile hosts that are kept, and the manner of their release.
    pub const fn diversion(self, thesis: ThesisConfig) -> Diversion {
        match self {
            Self::Observe | Self::Freeze => Diversion::Nothing,
            Self::Thesis => Diversion::TcpInBursts(thesis.burst_packets),
            Self::Buffer | Self::BufferFreeze | Self::MTcp | Self::Split => Diversion::All,
        }
    }

    /// The treatment of TCP connections. `holds_back` says whether connections are woken with [`Self::Buffer`] and
    /// [`Self::Split`], and `drops_duplicates` whether duplicate ACKs are withheld with [`Self::MTcp`].
    pub fn treatment(self, holds_back: bool, drops_duplicates: bool) -> Treatment {
        match self {
            Self::Buffer | Self::Split if holds_back => Treatment::Wake(wake()),
            Self::Buffer | Self::Split | Self::Observe | Self::Thesis => Treatment::Nothing,
            Self::Freeze | Self::BufferFreeze => Treatment::Freeze(FreezeConfig::buffer_freeze()),
            Self::MTcp => Treatment::Freeze(FreezeConfig { drops_duplicates, ..FreezeConfig::m_tcp() }),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = Self::ALL.iter().position(|mode| mode == self);
        f.pad(place.map_or("", |place| Self::NAMES[place]))
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        let place = Self::NAMES.iter().position(|name| *name == text);
        place.map(|place| Self::ALL[place]).ok_or_else(|| UnknownMode { name: text.to_owned() })
    }
}

/// Cuts are not predicted at a gateway, so there is no ACK stall.
fn wake() -> WakeConfig {
    WakeConfig { ack_stall: None, ..WakeConfig::all() }
}

/// From this many acknowledged bytes on a connection has details: nothing is held before.
pub const DETAILS_AFTER: u32 = 64_000;

/// The rules of the flow path for all mobile hosts; the state of each link decides how much is held.
pub fn rules() -> Rules {
    wake().rules().with_details_after(DETAILS_AFTER)
}

/// Whether a buffered packet with data up to `end` has been acknowledged by its mobile host: a retransmission that the
/// sender made because the ACK was held back. The mobile host would answer it with a DSACK (RFC 2883), by which the
/// sender takes its timeout for spurious, and data lost in the cut for data in flight (RFC 3708).
pub fn is_redundant(flow: &Flow, end: Seq) -> bool {
    flow.half(Direction::Incoming).acked().is_some_and(|acked| acked.ge(end))
}

/// The parameters of [`Mode::Thesis`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThesisConfig {
    /// The sign by which mobile hosts predict their absence.
    pub sign: WarningSign,
    /// How many packets are released at once (the burst limit of section 4.6.5).
    pub burst_packets: u32,
}

impl Default for ThesisConfig {
    /// By the window, two at once, as in all experiments of the thesis.
    fn default() -> Self {
        Self { sign: WarningSign::default(), burst_packets: 2 }
    }
}

/// The daemon as a mechanism of routers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DaemonConfig {
    /// The treatment of absent mobile hosts.
    pub mode: Mode,
    /// Whether ACKs are held back with [`Mode::Buffer`], and senders woken.
    pub holds_back: bool,
    /// Whether duplicate ACKs are withheld with [`Mode::MTcp`] ([`FreezeConfig::drops_duplicates`]).
    pub drops_duplicates: bool,
    /// Limits and pacing of the buffer. The mode decides whether it is used.
    pub buffer: DiverterConfig,
    /// The parameters of [`Mode::Thesis`].
    pub thesis: ThesisConfig,
    /// Mobile hosts with a network behind them.
    pub prefixes: Prefixes,
}

impl Default for DaemonConfig {
    /// The defaults of `gateway.toml`.
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            holds_back: true,
            drops_duplicates: false,
            buffer: DiverterConfig::default(),
            thesis: ThesisConfig::default(),
            prefixes: Prefixes::default(),
        }
    }
}

impl DaemonConfig {
    /// Why the mechanism would do nothing, if so.
    pub(crate) fn why_idle(&self) -> Option<&'static str> {
        let Self { buffer, mode, thesis, .. } = self;
        if *mode == Mode::Thesis && thesis.burst_packets == 0 {
            return Some("it releases bursts of 0 packets");
        }
        let keeps_nothing = buffer.mobile_bytes == 0 || buffer.total_bytes == 0 || buffer.longest == Duration::ZERO;
        (mode.diverts() && keeps_nothing).then_some("it keeps nothing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert_eq!((Mode::MTcp.to_string(), Mode::default().to_string()), ("m-tcp".to_owned(), "buffer".to_owned()));
        let refused = "m_tcp".parse::<Mode>().unwrap_err().to_string();
        assert_eq!(
            refused,
            "\"m_tcp\" is no mode of a gateway: buffer, observe, freeze, buffer-freeze, m-tcp, thesis, split"
        );
    }
}
