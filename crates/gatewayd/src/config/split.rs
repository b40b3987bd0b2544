//! `[split]`.

use holdover_base::Duration;
use holdover_host::time_text::{Time, between};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Mode "split": connections that end at the gateway.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "GatewaySplit")]
pub struct SplitTable {
    /// The most connections split at a time, as far as the limit of open files allows. Others pass unsplit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub most_connections: u32,
    /// The size of the receive buffer and of the send buffer of each socket.
    #[schemars(range(min = 4096, max = 67_108_864))]
    pub buffer_bytes: u32,
    /// How long an end may be silent that has data to acknowledge, before the connection is reset at both.
    #[serde(deserialize_with = "between::<1_000, 86_400_000, _>")]
    pub user_timeout: Time,
    /// How long a connection is idle before each end is probed (TCP keep-alive).
    #[serde(deserialize_with = "between::<1_000, 32_767_000, _>")]
    pub keep_alive: Time,
    /// How long the gateway waits at a request to stop for split connections to end before it resets them.
    #[serde(deserialize_with = "between::<0, 3_600_000, _>")]
    pub drain: Time,
}

impl Default for SplitTable {
    /// 10,000 connections with buffers of 512 kB; a silent end is given up after 5 minutes.
    fn default() -> Self {
        Self {
            most_connections: 10_000,
            buffer_bytes: 524_288,
            user_timeout: Time(Duration::from_secs(300)),
            keep_alive: Time(Duration::from_secs(7200)),
            drain: Time(Duration::from_secs(10)),
        }
    }
}

impl SplitTable {
    /// The key of an invalid value, and what is expected.
    pub(super) fn problem(&self) -> Option<(&'static str, &'static str)> {
        if !(1..=1_000_000).contains(&self.most_connections) {
            return Some(("most_connections", "expected a number from 1 to 1000000"));
        }
        if !(4096..=67_108_864).contains(&self.buffer_bytes) {
            return Some(("buffer_bytes", "expected a number from 4096 to 67108864"));
        }
        None
    }
}
