//! Path MTU discovery by probing.

use holdover_base::Duration;

/// Packetization layer path MTU discovery (RFC 4821), as Linux does it: single segments larger than the others probe the path, and repeated
/// timeouts indicate a path that drops large packets without an ICMP error. ICMP errors are handled in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathMtuConfig {
    /// When the path is probed (Linux `tcp_mtu_probing`).
    pub probing: MtuProbing,
    /// The data of a segment at which a search begins, in bytes (RFC 4821 section 7.2; Linux `tcp_base_mss`).
    pub base_mss: u16,
    /// The least to which repeated timeouts lower it (Linux `tcp_mtu_probe_floor`).
    pub floor_mss: u16,
    /// The least segment size, options included, that the peer or the path can ask for (Linux `tcp_min_snd_mss`).
    pub min_mss: u16,
    /// How long after its begin a finished search begins anew (Linux `tcp_probe_interval`).
    pub interval: Duration,
    /// A search over fewer bytes than this is finished (Linux `tcp_probe_threshold`).
    pub threshold: u16,
    /// The MTU of the interface, which no probe exceeds; `None` for that of [`crate::Config::mss`].
    pub link_mtu: Option<u32>,
}

impl PathMtuConfig {
    /// Linux's defaults: no probing.
    pub const LINUX: Self = Self {
        probing: MtuProbing::Off,
        base_mss: 1024,
        floor_mss: 48,
        min_mss: 48,
        interval: Duration::from_secs(600),
        threshold: 8,
        link_mtu: None,
    };
}

/// When the path MTU is probed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MtuProbing {
    /// Never (Linux `tcp_mtu_probing` = 0).
    Off,
    /// Once retransmissions have lasted as long as R1 allows: the path may be a black hole for large packets (1).
    AfterBlackHole,
    /// Always (2).
    Always,
}
