//! `[[flow]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::Stack;
use crate::quantity::{Bytes, DataRate, Time, Volume};
use crate::word::Short;

/// One application with its traffic: "bulk", "request_response" or "on_off".
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flow {
    /// Its name: letters, digits, "-", "_" and ".".
    pub(crate) name: String,
    /// The host that sends the data or the requests.
    pub(crate) from: String,
    /// The host that receives the data, or sends the responses.
    pub(crate) to: String,
    /// The host that opens the connection of a bulk transfer: its receiver for a download, its sender for an upload. The
    /// default is the sender.
    pub(crate) opener: Option<String>,
    /// Data in one direction as fast as TCP accepts it: an amount ("10 MB"), or for a time ("30 s").
    pub(crate) bulk: Option<Volume>,
    /// Alternating requests and responses over one connection.
    pub(crate) request_response: Option<RequestResponse>,
    /// Bursts of UDP datagrams.
    pub(crate) on_off: Option<OnOff>,
    /// When the flow begins. The default is 0 s.
    pub(crate) start: Option<Time>,
    /// The number of such flows. The default is 1; several are named NAME-1, NAME-2 and so on.
    pub(crate) count: Option<u32>,
    /// The time between the starts of two such flows. The default is 0 s.
    pub(crate) spacing: Option<Time>,
    /// Whether the flow uses IPv6. The default is false.
    pub(crate) ipv6: Option<bool>,
    /// The TCP of both ends: a profile, or a table of changes to one. The default is that of each host.
    pub(crate) stack: Option<Short<Stack>>,
    /// Further changes at the end "from".
    pub(crate) from_stack: Option<Short<Stack>>,
    /// Further changes at the end "to".
    pub(crate) to_stack: Option<Short<Stack>>,
}

/// Alternating requests and responses.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestResponse {
    /// The size of a request.
    pub(crate) request: Bytes,
    /// The size of a response.
    pub(crate) response: Bytes,
    /// The time from a response to the next request. The default is 0 s.
    pub(crate) think: Option<Time>,
    /// The number of exchanges. The default is as many as time allows.
    pub(crate) count: Option<u64>,
}

/// Bursts of UDP datagrams, whose lengths and pauses are Pareto-distributed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OnOff {
    /// The rate during a burst, in bytes of payload.
    pub(crate) rate: DataRate,
    /// The payload of a datagram.
    pub(crate) datagram: Bytes,
    /// The mean length of a burst.
    pub(crate) mean_on: Time,
    /// The mean length of a pause.
    pub(crate) mean_off: Time,
    /// The shape of both distributions, above 1. The default is 1.5.
    pub(crate) shape: Option<f64>,
}
