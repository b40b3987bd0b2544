//! The configuration of the core.

use holdover_base::Duration;
use holdover_hip::host::{HostConfig, PathCheckConfig};
use holdover_mobility::hold_open::HoldOpenConfig;
use holdover_mobility::release::ReleaseConfig;
use holdover_mobility::wake::WakeConfig;

/// Translators of addresses forget a UDP binding after 30 s or more; RFC 9028 section 4.10 has keep-alives every 15 s.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// The configuration of the core.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// The configuration of the protocol.
    pub host: HostConfig,
    /// The mechanism in the path of the host's own TCP; `None` for none.
    pub wake: Option<WakeConfig>,
    /// The user timeout of connections with peers; `None` for that of each TCP.
    pub hold: Option<HoldOpenConfig>,
    /// The time without UDP packets to a peer after which it gets a keep-alive.
    pub keep_alive: Duration,
}

impl Default for CoreConfig {
    /// Only configured peers; the first three retransmissions of an UPDATE after 300 ms each, so that lost ones cost little: with 5 % of
    /// loss in each direction one exchange of three packets in seven fails. Wake does not wait for data that
    /// arrives by itself: data that a peer with wake sends right after its check would be taken for that, and if it is the first packet
    /// that the sender receives, it makes the sender regard its timeout as spurious (F-RTO).
    fn default() -> Self {
        let host = HostConfig {
            accept_unknown_peers: false,
            max_associations: 4096,
            retransmit_after: Duration::from_millis(300),
            retries: 7,
            steady_retries: 2,
            gcm: crate::gcm::RING,
            path_check: Some(PathCheckConfig::default()),
            prefers_standby: true,
            ..HostConfig::default()
        };
        let release = ReleaseConfig { grace: Duration::ZERO, ..ReleaseConfig::default() };
        let wake = Some(WakeConfig { release, ..WakeConfig::all() });
        Self { host, wake, hold: Some(HoldOpenConfig::default()), keep_alive: KEEP_ALIVE_EVERY }
    }
}
