//! `[host.mechanisms]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Bytes, Time};

/// What a host does for its connections when its links come and go. A mechanism is on if its table is there, even if that is
/// empty.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mechanisms {
    /// Its last ACK again, several times, when the link is back.
    pub(crate) reconnect_acks: Option<ReconnectAcks>,
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
