//! Parameters of handoffs.

use core::net::IpAddr;

use holdover_base::Duration;

/// Parameters of handoffs between supervisor hosts, or base stations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandoffConfig {
    /// The other supervisor hosts or base stations. Messages of any other host are ignored.
    pub peers: Vec<IpAddr>,
    /// How long a message waits for its answer before it is repeated; doubled each time.
    pub retry: Duration,
    /// The most transmissions of a message.
    pub tries: u32,
    /// How long a connection that was handed on is remembered: its stragglers are dropped, and its record is kept
    /// unless its arrival was confirmed.
    pub keep: Duration,
}

impl HandoffConfig {
    /// With these peers; repeated after 200 ms, 400 ms and so on, seven times in all (12.6 s to the last), and
    /// remembered for 2 minutes (the maximum segment lifetime of RFC 9293 section 3.4.2).
    pub fn among(peers: Vec<IpAddr>) -> Self {
        Self { peers, retry: Duration::from_millis(200), tries: 7, keep: Duration::from_secs(120) }
    }
}

/// The salt of a node with this secret.
pub(crate) const fn salt_of(secret: [u8; 16]) -> u16 {
    u16::from_be_bytes([secret[0], secret[15]])
}
