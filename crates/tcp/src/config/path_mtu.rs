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
    /// The MTU assumed if a router reports that a packet is too big without its MTU, as routers from before RFC 1191 do.
    pub unreported: UnreportedMtu,
}

impl PathMtuConfig {
    /// The recommendations of the RFCs, with Linux's values where they leave one open: no probing.
    pub const RFC: Self = Self { unreported: UnreportedMtu::Plateau, ..Self::LINUX };

    /// Linux's defaults: no probing.
    pub const LINUX: Self = Self {
        probing: MtuProbing::Off,
        base_mss: 1024,
        floor_mss: 48,
        min_mss: 48,
        interval: Duration::from_secs(600),
        threshold: 8,
        link_mtu: None,
        unreported: UnreportedMtu::Least,
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

/// The path MTU that is assumed of an IPv4 router that does not report its MTU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnreportedMtu {
    /// The least that is believed of any router, 552 bytes (Linux `min_pmtu`).
    Least,
    /// The next smaller one of the common MTUs (RFC 1191 section 7.1).
    Plateau,
}
