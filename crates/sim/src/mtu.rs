//! The MTU of a link.

/// The MTU of a link, in both directions.
///
/// A node does not send a longer packet into the link, and does not fragment it: it drops it. TCPs choose their segments by the MTU of
/// their host's own links, and learn that of others by ICMP errors of routers, or by probes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkMtu {
    /// The longest packet, IP header included.
    pub bytes: u32,
    /// Whether a router that drops a longer packet reports the MTU to the sender: "fragmentation needed" (RFC 1191) or "packet too big"
    /// (RFC 4443 section 3.2). Otherwise the link is a black hole for long packets (RFC 2923 section 2.1), as behind a firewall that drops
    /// these errors.
    pub is_reported: bool,
}

impl LinkMtu {
    /// Every IPv4 host accepts packets of this length (RFC 791 section 3.1), and TCPs believe in no much smaller path MTU.
    pub const LEAST_IPV4: u32 = 576;
    /// The least MTU of IPv6 (RFC 8200 section 5).
    pub const LEAST_IPV6: u32 = 1280;
    /// The longest packet of IP.
    pub const MOST: u32 = 65_535;

    /// An MTU that routers report.
    pub const fn new(bytes: u32) -> Self {
        Self { bytes, is_reported: true }
    }
}
