//! The kinds of moves.

use std::net::IpAddr;

use holdover_base::Duration;
use holdover_link::Loss;
use holdover_testbed::access::Attachment;

/// A kind of move.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// The heading of its table.
    pub(super) headline: &'static str,
    /// The mobile host's attachments before and after the move.
    pub(super) ends: [Attachment; 2],
    /// How long the host has no address; `None` for a make before break, with both addresses for [`OVERLAP`].
    pub(super) gap: Option<Duration>,
    /// Where the server moves at the same time, if it does.
    pub(super) server_to: Option<Attachment>,
    pub(super) loss: Loss,
    /// The number of moves in a run, there and back and without a connection; 1 for a move during a transfer.
    pub(super) moves: u32,
    /// Measured with `--long` only.
    pub(super) is_long: bool,
}

/// How long the mobile host has both addresses in a make before break.
pub(super) const OVERLAP: Duration = Duration::from_millis(500);

const fn v4(link: &'static str, [a, b, c, d]: [u8; 4]) -> Attachment {
    Attachment { link, address: IpAddr::V4(std::net::Ipv4Addr::new(a, b, c, d)) }
}

const fn v6(link: &'static str, network: u16) -> Attachment {
    Attachment { link, address: IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, network, 0, 0, 0, 0, 0, 2)) }
}

pub(super) const WIFI: Attachment = v4("wifi", [10, 1, 0, 2]);
pub(super) const LTE: Attachment = v4("lte", [10, 2, 0, 2]);
const WIFI_V6: Attachment = v6("wifi", 1);
const LTE_V6: Attachment = v6("lte", 2);
/// Behind the translators of the two links.
const HOME: Attachment = v4("wifi", [192, 168, 1, 2]);
const CAFE: Attachment = v4("lte", [192, 168, 2, 2]);

/// The server's.
pub(super) const SERVER: Attachment = v4("wan", [10, 9, 0, 2]);
pub(super) const SERVER_V6: Attachment = v6("wan", 9);
const SERVER_ELSEWHERE: Attachment = v4("other", [10, 8, 0, 2]);
/// The rendezvous server's.
pub(super) const RENDEZVOUS: Attachment = v4("fixed", [10, 7, 0, 2]);

/// Losses of the LTE-like path, in each direction.
pub(super) const LOSS: f64 = 0.05;

const fn kind(name: &'static str, headline: &'static str, ends: [Attachment; 2], gap: Option<Duration>) -> Kind {
    Kind { name, headline, ends, gap, server_to: None, loss: Loss::None, moves: 1, is_long: false }
}

const SECOND: Option<Duration> = Some(Duration::from_secs(1));

/// All of them.
pub(super) static KINDS: &[Kind] = &[
    kind("make-before-break", "Make before break: both addresses for 500 ms", [WIFI, LTE], None),
    kind("gap-100ms", "Break before make: no address for 100 ms", [WIFI, LTE], Some(Duration::from_millis(100))),
    kind("gap-1s", "Break before make: no address for 1 s", [WIFI, LTE], SECOND),
    kind("gap-10s", "Break before make: no address for 10 s", [WIFI, LTE], Some(Duration::from_secs(10))),
    kind("gap-60s", "Break before make: no address for 60 s", [WIFI, LTE], Some(Duration::from_secs(60))),
    Kind {
        is_long: true,
        ..kind("gap-600s", "Break before make: no address for 600 s", [WIFI, LTE], Some(Duration::from_secs(600)))
    },
    kind("ipv4-to-ipv6", "From IPv4 to IPv6, no address for 1 s", [WIFI, LTE_V6], SECOND),
    kind("ipv6-to-ipv4", "From IPv6 to IPv4, no address for 1 s", [WIFI_V6, LTE], SECOND),
    kind("nat", "From behind one NAT to behind another, no address for 1 s", [HOME, CAFE], SECOND),
    Kind {
        server_to: Some(SERVER_ELSEWHERE),
        ..kind("both", "Both hosts at once, no address for 1 s, with a rendezvous server", [WIFI, LTE], SECOND)
    },
    Kind {
        loss: Loss::Independent(LOSS),
        moves: 200,
        ..kind("lossy", "Readdressing alone, 5 % loss in each direction", [WIFI, LTE], Some(Duration::from_millis(100)))
    },
];
