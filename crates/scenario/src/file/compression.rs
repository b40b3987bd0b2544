//! `compression` of a link or of a supervisor host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Bytes, Percent};

/// The size of the payload of each packet after compression, by protocol. Headers, encrypted payload and compressed
/// payload are not compressed. A packet that compression would not shorten is sent unchanged.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compression {
    /// The compressed size of TCP data. The default is "100 %".
    pub(crate) tcp: Option<Percent>,
    /// The compressed size of UDP data. The default is "100 %".
    pub(crate) udp: Option<Percent>,
    /// The compressed size of every other payload behind IP headers. The default is "100 %".
    pub(crate) other: Option<Percent>,
    /// The bytes that compression adds to each packet that it shortens. The default is 0 bytes.
    pub(crate) header: Option<Bytes>,
}
