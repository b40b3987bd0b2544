//! `[[cell]]` and `[[mobile]]`.

use holdover_link::cell::{Contention, LeavePolicy};
use holdover_sim::{RegisterOn, Repeat, Selection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::{BitErrors, Length};
use crate::quantity::{Bytes, DataRate, Distance, Percent, QueueSize, Speed, Time};
use crate::word::{OrNone, Word, vocabulary};

/// A radio cell: a half-duplex medium around a base station that its hosts share.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cell {
    /// Its name: letters, digits, "-", "_" and ".".
    pub(crate) name: String,
    /// The base station: a router, and that of no other cell.
    pub(crate) base: String,
    /// The distance from the base station within which packets are received.
    pub(crate) range: Distance,
    /// The position of the base station, to the east. The default is 0 m.
    pub(crate) x: Option<Distance>,
    /// The position of the base station, to the north. The default is 0 m.
    pub(crate) y: Option<Distance>,
    /// The queue limit of the base station, for all its hosts together. The default is "unlimited".
    pub(crate) queue_limit: Option<QueueSize>,
    /// The queue limit of each host. The default is "unlimited".
    pub(crate) host_queue_limit: Option<QueueSize>,
    /// The fate of packets for a host that has left. The default is "drop".
    pub(crate) on_leave: Option<Word<LeavePolicy>>,
    /// The beacons of the base station, or "none". The default is a first beacon within 0 s and 1 s, and one every second.
    pub(crate) beacons: Option<OrNone<Beacons>>,
    /// Medium access. The default is IEEE 802.11-1997 with direct sequence at 2 Mbit/s.
    pub(crate) medium: Option<Medium>,
    /// The bit error rate: a number such as 1e-6, or a table for errors in bursts. A data frame with a damaged bit is
    /// retransmitted, up to the retry limit; a damaged broadcast is lost. The default is 0.
    pub(crate) bit_errors: Option<BitErrors>,
    /// The number of the radio channel: cells with the same number contend for one medium, and need the same medium with
    /// drawn contention. The default is a channel for each cell.
    pub(crate) channel: Option<u32>,
}

vocabulary!(LeavePolicy as "OnLeave" { Self::Drop => "drop", Self::HandBack => "hand-back" });

/// The beacons of a base station.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Beacons {
    /// The time from the start of the run to the first beacon: a time, or a distribution. The default is uniform between 0 s
    /// and 1 s.
    pub(crate) first: Option<Length>,
    /// The time between two beacons: a time, or a distribution. The default is 1 s.
    pub(crate) interval: Option<Length>,
}

/// Medium access as in IEEE 802.11.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Medium {
    /// The rate of data frames. The default is 2 Mbit/s.
    pub(crate) data_rate: Option<DataRate>,
    /// The rate of control frames and broadcasts. The default is 1 Mbit/s.
    pub(crate) basic_rate: Option<DataRate>,
    /// The slot time. The default is 20 us.
    pub(crate) slot: Option<Time>,
    /// The time between the frames of an exchange. The default is 10 us.
    pub(crate) sifs: Option<Time>,
    /// Preamble and header of the physical layer. The default is 192 us.
    pub(crate) plcp: Option<Time>,
    /// The first contention window, in slots. The default is 31.
    pub(crate) cw_min: Option<u32>,
    /// The largest contention window, in slots. The default is 1023.
    pub(crate) cw_max: Option<u32>,
    /// The framing around the packet in a data frame. The default is 36 bytes.
    pub(crate) header: Option<Bytes>,
    /// RTS precedes data frames that are longer than this. The default is 0 bytes: all are.
    pub(crate) rts_threshold: Option<Bytes>,
    /// A frame is dropped after this many unanswered attempts. The default is 7.
    pub(crate) retry_limit: Option<u32>,
    /// Whether every backoff has its mean length and nodes take turns, or backoffs are random and frames may collide. The
    /// default is "mean".
    pub(crate) contention: Option<Word<Contention>>,
}

vocabulary!(Contention as "Contention" { Self::Mean => "mean", Self::Drawn => "drawn" });

/// A host that moves between cells. It has no links. It moves by "visits", "script" or "path", and attaches to a cell by
/// "registration" or after a "handoff_time".
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mobile {
    /// The host.
    pub(crate) host: String,
    /// The host stays in one cell after the other.
    pub(crate) visits: Option<Visits>,
    /// The host is in these cells at these times.
    pub(crate) script: Option<Vec<Visit>>,
    /// The host moves along straight lines.
    pub(crate) path: Option<Path>,
    /// The host registers with a gateway, as in Mobile IP.
    pub(crate) registration: Option<Registration>,
    /// Without registration: the time from entry into a cell until packets are routed there.
    pub(crate) handoff_time: Option<Time>,
    /// The choice between overlapping cells. The default is "keep".
    pub(crate) selection: Option<Word<Selection>>,
    /// How the host predicts the loss of its cell, or "none". The default is "none".
    pub(crate) prediction: Option<OrNone<Prediction>>,
}

vocabulary!(Selection as "Selection" { Self::Keep => "keep", Self::Strongest => "strongest" });

/// Visits of several cells in order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Visits {
    /// The cells in order; the first follows the last.
    pub(crate) cells: Vec<String>,
    /// How long the host stays in a cell: a time, or a distribution.
    pub(crate) residence: Length,
    /// How long the host stays in the first cell initially. The default is as in the others.
    pub(crate) first_residence: Option<Time>,
    /// How long the host is out of range between two cells: a time, or a distribution. The default is no time.
    pub(crate) gap: Option<Length>,
    /// How many times the host moves. The default is as many as time allows.
    pub(crate) moves: Option<u64>,
}

/// From a time on, the host is in a cell or in none.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Visit {
    /// The start of this visit.
    pub(crate) at: Time,
    /// The cell, or "none" for out of range.
    pub(crate) cell: OrNone<String>,
}

/// A path along straight lines.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Path {
    /// The stops of the path, from the first on.
    pub(crate) stops: Vec<Stop>,
    /// The speed of the host.
    pub(crate) speed: Speed,
    /// When the host leaves the first stop. The default is 0 s.
    pub(crate) depart_at: Option<Time>,
    /// The behaviour after the last stop. The default is "once".
    pub(crate) repeat: Option<Word<Repeat>>,
}

vocabulary!(Repeat as "Repeat" {
    Self::Once => "once",
    Self::BackAndForth => "back-and-forth",
    Self::Around => "around",
});

/// A stop of the path.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stop {
    /// To the east. The default is 0 m.
    pub(crate) x: Option<Distance>,
    /// To the north. The default is 0 m.
    pub(crate) y: Option<Distance>,
    /// How long the host stays there. The default is 0 s.
    pub(crate) pause: Option<Time>,
}

/// Registration with a gateway. All packets for the host go there, and the gateway forwards them to the host's base
/// station through a tunnel.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Registration {
    /// The gateway: a router.
    pub(crate) gateway: String,
    /// The bytes that the tunnel adds to a packet. The default is 20 bytes.
    pub(crate) tunnel_overhead: Option<Bytes>,
    /// How long a registration is valid, in whole seconds; the host renews it after half of that. The default is "none": it
    /// does not expire.
    pub(crate) lifetime: Option<OrNone<Time>>,
    /// How long the host waits for a reply before it retransmits a request; doubled each time. The default is 1 s.
    pub(crate) retransmit_after: Option<Time>,
    /// The longest such interval. The default is 64 s.
    pub(crate) retransmit_at_most: Option<Time>,
    /// The beacons that the host answers with a request. The default is "new-cell".
    pub(crate) on: Option<Word<RegisterOn>>,
    /// Whether the gateway notifies the old base station that the host has left. The default is false.
    pub(crate) tell_old_base: Option<bool>,
}

vocabulary!(RegisterOn as "RegisterOn" { Self::NewCell => "new-cell", Self::EveryBeacon => "every-beacon" });

/// How a host predicts the loss of its cell: "margin" or "lead".
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prediction {
    /// The prediction comes when the received power exceeds the receivable minimum by less than this. Only on a "path".
    pub(crate) margin: Option<Percent>,
    /// The prediction comes this long in advance.
    pub(crate) lead: Option<Time>,
}
