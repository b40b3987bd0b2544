//! `[host.mechanisms]`.

use holdover_mobility::timestamp_echo::{Echo, Since};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Bytes, Time};
use crate::word::{OrNone, Word, vocabulary};

/// What a host does for its connections when its links come and go. A mechanism is on if its table is there, even if that is
/// empty.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mechanisms {
    /// Its last ACK again, several times, when the link is back.
    pub(crate) reconnect_acks: Option<ReconnectAcks>,
    /// A window of zero in all that it sends, from shortly before its link goes until it is back.
    pub(crate) freeze: Option<Freeze>,
    /// Echoed timestamps from before an outage are advanced by its length.
    pub(crate) timestamp_echo: Option<TimestampEcho>,
    /// A smaller window in a new cell, which opens with the data that arrive.
    pub(crate) new_cell_window: Option<NewCellWindow>,
    /// After a handoff, its own retransmission at once, and three identical ACKs to its peers (FR-TCP).
    pub(crate) fast_retransmit: Option<FastRetransmit>,
}

/// The last ACK again, several times, when the link is back (Caceres and Iftode; Freeze-TCP's TR-ACKs).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReconnectAcks {
    /// How many. The default is 3.
    pub(crate) copies: Option<u8>,
    /// The most that they offer as a window if the attachment is a new one. The default is the real window.
    pub(crate) restart_window: Option<Bytes>,
    /// Connections whose peer was silent for so long before the cut are left alone. The default is 10 min.
    pub(crate) idle: Option<Time>,
}

/// A window of zero from shortly before the link goes until it is back (Freeze-TCP). It needs a warning: the host's foresight, or
/// a mobile host's prediction.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Freeze {
    /// How long before the cut it begins: "round-trips", "fixed", "whole-lead" (with the warning) or "adaptive". The default is
    /// "round-trips".
    pub(crate) warning: Option<Word<WarningKind>>,
    /// How many measured round trips before the cut, with "round-trips". The default is 1.
    pub(crate) round_trips: Option<f64>,
    /// How long before the cut, with "fixed".
    pub(crate) period: Option<Time>,
    /// By how much "adaptive" moves after each cut. The default is 10 ms.
    pub(crate) step: Option<Time>,
    /// How many ACKs with a window of zero leave at once. The default is 1.
    pub(crate) zero_window_acks: Option<u8>,
    /// How long TCP may take to acknowledge data while frozen before it is asked to, or "none" for as long as it likes. The
    /// default is 0 s.
    pub(crate) ask_after: Option<OrNone<Time>>,
    /// Connections on which no data came for so long are left alone. The default is 1 s.
    pub(crate) flowing: Option<Time>,
    /// Whether a window probe ends it, as in the thesis. The default is false.
    pub(crate) thaw_on_probe: Option<bool>,
    /// Whether one window update leaves when the link is back. The default is false.
    pub(crate) update_at_up: Option<bool>,
    /// It ends by itself if no cut comes for so long after the foreseen moment. The default is 1 s.
    pub(crate) patience: Option<Time>,
}

/// How long before the cut freezing begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WarningKind {
    RoundTrips,
    Fixed,
    WholeLead,
    Adaptive,
}

vocabulary!(WarningKind as "FreezeWarning" {
    Self::RoundTrips => "round-trips",
    Self::Fixed => "fixed",
    Self::WholeLead => "whole-lead",
    Self::Adaptive => "adaptive",
});

/// Echoed timestamps from before an outage are advanced by its length, so that the sender does not take it for a round trip (the
/// timestamp echo update of the thesis on Freeze-TCP).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimestampEcho {
    /// From when on the outage counts: the last "zero-window" after the warning, or the "last-ack" before the cut. The default
    /// is "zero-window".
    pub(crate) since: Option<Word<Since>>,
    /// Which stamp is echoed at other times: TCP's "own" choice, or the "newest" of a segment that is not beyond a gap. The
    /// default is "own".
    pub(crate) echo: Option<Word<Echo>>,
}

vocabulary!(Since as "OutageSince" { Self::ZeroWindow => "zero-window", Self::LastAck => "last-ack" });
vocabulary!(Echo as "TimestampToEcho" { Self::Own => "own", Self::Newest => "newest" });

/// A smaller window in a new cell, which opens with the data that arrive (an idea of the thesis on Freeze-TCP).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCellWindow {
    /// The window at first. The default is 14600 bytes.
    pub(crate) initial: Option<Bytes>,
    /// By how much of what is newly acknowledged it grows, in percent. The default is 100, as in slow start.
    pub(crate) growth: Option<u32>,
}

/// After a handoff, its own retransmission at once, and identical ACKs to its peers (Caceres and Iftode).
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FastRetransmit {
    /// How many ACKs each peer gets. The default is 3.
    pub(crate) copies: Option<u8>,
    /// Whether the host retransmits its own data. The default is true.
    pub(crate) own_data: Option<bool>,
    /// Whether only another attachment counts, or every return of the link. The default is true.
    pub(crate) only_moved: Option<bool>,
}
