//! `compression` of a link or of a supervisor host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Bytes, Percent};

/// What compression leaves of the payload of each packet, by what the packet carries. Headers do not become shorter, nor does encrypted
/// payload, nor what is compressed already. A packet that would not become shorter is sent as it is.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compression {
    /// What remains of TCP data. The default is "100 %".
    pub(crate) tcp: Option<Percent>,
    /// What remains of UDP data. The default is "100 %".
    pub(crate) udp: Option<Percent>,
    /// What remains of everything else behind IP headers. The default is "100 %".
    pub(crate) other: Option<Percent>,
    /// What compression adds to each packet that it makes shorter. The default is 0 bytes.
    pub(crate) header: Option<Bytes>,
}
