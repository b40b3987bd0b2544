//! The kinds of links and outages.

use std::sync::Arc;

use holdover_base::{BitRate, Duration, Instant};
use holdover_link::{AtEnd, ConditionTrace, InFlightFate, Outage, OutagePolicy, QueuedFate};
use holdover_sim::{AddressLoss, Families, Layer2, LinkKind, OutageKind};
use holdover_transfers::CUT_AT;
use serde::Serialize;

/// A link between a phone and its router, and its outage.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// The link, and its outage.
    pub(super) what: &'static str,
    pub(super) layer2: Layer2,
    /// The fate of packets in the queue and on the way when the outage begins.
    pub(super) policy: OutagePolicy,
    /// From the link's return to when it forwards.
    pub(super) forwards_after: Duration,
    /// How long outages are.
    pub(super) cuts: &'static [Duration],
    /// The outage consists of this many equal cuts, with the link up between them for the same time.
    flaps: u32,
    /// The link after its return.
    at_return: AtReturn,
    /// So many connections share the link. More than one exchange messages; one moves as much as it can, or a key.
    pub(super) connections: u32,
}

/// The use of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Use {
    /// Data from the server to the phone.
    Download,
    /// Data from the phone to the server.
    Upload,
    /// A key that is struck on the phone during the outage, and its echo.
    Keys,
}

/// A link after its return.
#[derive(Clone, Copy, PartialEq, Debug)]
enum AtReturn {
    /// As before.
    Same,
    /// It has this share of its rate.
    RateTimes(f64),
    /// It loses frames for a while: the probability, and how long.
    Lossy(f64, Duration),
}

const HALF: Duration = Duration::from_millis(500);
const THREE: Duration = Duration::from_secs(3);
const SEVEN: Duration = Duration::from_secs(7);
const TWENTY: Duration = Duration::from_secs(20);

const DROPPED: OutagePolicy = OutagePolicy { queued: QueuedFate::Dropped, in_flight: InFlightFate::Dropped };
/// The transmitter continues to send; the frames are lost.
const LOST: OutagePolicy = OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped };
const HELD: OutagePolicy = OutagePolicy { queued: QueuedFate::Held, in_flight: InFlightFate::Delivered };

/// All kinds, in the order of the page.
pub(super) static KINDS: [Kind; 26] = [
    Kind {
        layer2: Layer2::new(LinkKind::Wire, OutageKind::Silent),
        policy: LOST,
        cuts: &[HALF, THREE, TWENTY],
        ..ethernet(
            "wire-silent",
            OutageKind::Silent,
            "A wire without neighbours: what is sent is lost, and no interface shows it.",
        )
    },
    Kind {
        policy: LOST,
        cuts: &[HALF, THREE, TWENTY],
        ..ethernet("ethernet-silent", OutageKind::Silent, "Ethernet: what is sent is lost, and no interface shows it.")
    },
    Kind {
        policy: HELD,
        cuts: &[THREE, TWENTY],
        ..ethernet(
            "radio-held",
            OutageKind::Silent,
            "Ethernet to a radio that keeps what is queued and delivers it when it is back. No interface shows the outage.",
        )
    },
    Kind {
        cuts: &[HALF, THREE, TWENTY],
        ..ethernet("carrier", OutageKind::Carrier, "Ethernet: the phone and the router lose carrier, as with a cable.")
    },
    Kind {
        cuts: &[THREE, TWENTY],
        ..ethernet(
            "carrier-near",
            OutageKind::CarrierNear,
            "Ethernet: the phone loses carrier, the router does not, as with a switch between them.",
        )
    },
    Kind {
        cuts: &[THREE, TWENTY],
        ..ethernet(
            "admin-down",
            OutageKind::AdminDown,
            "Ethernet: the router's port is set down, so that the router reports the phone as unreachable; the phone loses carrier.",
        )
    },
    late("late-20ms", Duration::from_millis(20)),
    late("late-100ms", Duration::from_millis(100)),
    late("late-300ms", Duration::from_millis(300)),
    late("late-2s", Duration::from_secs(2)),
    late("late-15s", Duration::from_secs(15)),
    late("late-30s", Duration::from_secs(30)),
    Kind {
        layer2: Layer2::new(LinkKind::RawIp, OutageKind::Carrier),
        ..ethernet(
            "modem",
            OutageKind::Carrier,
            "A modem: IP packets without frames or neighbours. Both sides lose carrier.",
        )
    },
    Kind {
        layer2: Layer2 { addresses: RENEWED, ..Layer2::new(LinkKind::Ethernet, OutageKind::Carrier) },
        ..ethernet(
            "lease",
            OutageKind::Carrier,
            "Ethernet: both sides lose carrier, and the phone its addresses and routes. It has the same ones again 200 ms after the path \
             carries, as with a DHCP lease; the path counts as carrying from then on.",
        )
    },
    Kind {
        layer2: Layer2 {
            families: Families::Ipv4,
            addresses: RENEWED,
            ..Layer2::new(LinkKind::Ethernet, OutageKind::Silent)
        },
        ..ethernet(
            "ipv4-lease",
            OutageKind::Silent,
            "Ethernet with IPv4 and IPv6: IPv4 fails, and the phone loses its IPv4 address and route; carrier and IPv6 stay. IPv4 is back \
             as with `lease`.",
        )
    },
    ethernet(
        "host-down",
        OutageKind::HostDown,
        "Ethernet: the phone's interface is set down, as in airplane mode; its routes and IPv6 addresses are back as soon as it is up.",
    ),
    Kind {
        cuts: &[Duration::from_millis(4_750)],
        flaps: 10,
        ..ethernet(
            "flaps",
            OutageKind::Carrier,
            "Ethernet: both sides lose carrier ten times, for 250 ms each, and have it for 250 ms in between. First data counts from the \
             last return.",
        )
    },
    Kind {
        cuts: &[Duration::from_millis(4_750)],
        flaps: 10,
        ..ethernet(
            "flaps-near",
            OutageKind::CarrierNear,
            "As flaps, with a switch between phone and router: the router keeps its carrier.",
        )
    },
    Kind {
        at_return: AtReturn::RateTimes(0.2),
        ..ethernet(
            "slower",
            OutageKind::Carrier,
            "Ethernet: both sides lose carrier, and the link has a fifth of its rate when it is back.",
        )
    },
    Kind {
        at_return: AtReturn::RateTimes(5.0),
        ..ethernet(
            "faster",
            OutageKind::Carrier,
            "Ethernet: both sides lose carrier, and the link has five times its rate when it is back.",
        )
    },
    Kind {
        policy: HELD,
        at_return: AtReturn::Lossy(0.5, Duration::from_millis(200)),
        ..ethernet(
            "radio-part",
            OutageKind::Silent,
            "As radio-held, but half of what the radio sends in the first 200 ms is lost.",
        )
    },
    Kind {
        cuts: &[SEVEN],
        connections: 200,
        ..ethernet("crowd-200", OutageKind::Carrier, "Ethernet with 200 connections: both sides lose carrier.")
    },
    Kind {
        cuts: &[SEVEN],
        connections: 1000,
        ..ethernet("crowd-1000", OutageKind::Carrier, "Ethernet with 1,000 connections: both sides lose carrier.")
    },
    Kind {
        policy: LOST,
        cuts: &[SEVEN],
        connections: 1000,
        ..ethernet(
            "crowd-silent",
            OutageKind::Silent,
            "Ethernet with 1,000 connections: what is sent is lost, and no interface shows it.",
        )
    },
    Kind {
        layer2: Layer2 { nat: true, ..Layer2::new(LinkKind::Ethernet, OutageKind::Carrier) },
        ..ethernet(
            "nat",
            OutageKind::Carrier,
            "Ethernet to a router that translates IPv4 addresses and drops what belongs to no connection that it knows. Both sides lose \
             carrier.",
        )
    },
    Kind {
        layer2: Layer2 { nat: true, ..Layer2::new(LinkKind::Ethernet, OutageKind::Silent) },
        policy: LOST,
        ..ethernet(
            "nat-silent",
            OutageKind::Silent,
            "Ethernet to such a router: what is sent is lost, and no interface shows it.",
        )
    },
];

/// The same addresses again, as a DHCP server gives them.
const RENEWED: AddressLoss = AddressLoss::Lost { after: Duration::from_millis(200), other: false };

/// An Ethernet link that is cut for 3 s and loses all packets queued or in flight.
const fn ethernet(name: &'static str, outage: OutageKind, what: &'static str) -> Kind {
    Kind {
        name,
        what,
        layer2: Layer2::new(LinkKind::Ethernet, outage),
        policy: DROPPED,
        forwards_after: Duration::ZERO,
        cuts: &[THREE],
        flaps: 1,
        at_return: AtReturn::Same,
        connections: 1,
    }
}

/// A loss of carrier on both sides, after which the path forwards late. A bridge with the spanning tree protocol listens and learns for up to 15 s
/// each (IEEE 802.1D, `Forward Delay`).
const fn late(name: &'static str, forwards_after: Duration) -> Kind {
    let what = "Ethernet: both sides lose carrier. When it is back, the path drops everything, ARP too, for as long as the name says.";
    Kind { forwards_after, ..ethernet(name, OutageKind::Carrier, what) }
}

impl Use {
    pub(super) const ALL: [Self; 3] = [Self::Download, Self::Upload, Self::Keys];

    /// The name in tables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Download => "download",
            Self::Upload => "upload",
            Self::Keys => "key",
        }
    }
}

impl Kind {
    /// Whether the link is up for moments during an outage.
    pub(super) const fn has_flaps(&self) -> bool {
        self.flaps > 1
    }

    /// How long the link is up between two cuts of an outage of `cut`.
    pub(super) fn between(&self, cut: Duration) -> Duration {
        if self.has_flaps() { cut / u64::from(2 * self.flaps - 1) } else { Duration::ZERO }
    }

    /// The use of its connections.
    pub(super) fn uses(&self) -> &'static [Use] {
        if self.connections > 1 { &[Use::Download, Use::Upload] } else { &Use::ALL }
    }

    /// Whether the phone's kernel shows the outage, so that someone could have known of it before.
    pub(super) fn is_visible(&self) -> bool {
        self.layer2.outage.is_seen_by_host() || self.layer2.addresses != AddressLoss::Kept
    }

    /// The outages of a link that is cut for `cut`.
    pub(super) fn outages(&self, cut: Duration) -> Vec<Outage> {
        let each = cut / u64::from(2 * self.flaps - 1);
        let down = |flap: u32| CUT_AT + each * u64::from(2 * flap);
        (0..self.flaps).map(|flap| Outage { down: down(flap), up: down(flap) + each }).collect()
    }

    /// The changes of the link, which has `rate` before, after a cut until `back_at`.
    pub(super) fn conditions(&self, rate: BitRate, back_at: Instant) -> Option<Arc<ConditionTrace>> {
        let back_at = back_at.saturating_since(Instant::ZERO);
        let table = match self.at_return {
            AtReturn::Same => return None,
            AtReturn::RateTimes(share) => {
                format!("t,rate\n0,{}\n{},{:.0}\n", rate.0, back_at.as_secs_f64(), rate.0 as f64 * share)
            }
            AtReturn::Lossy(share, lasting) => {
                let (from, to) = (back_at.as_secs_f64(), (back_at + lasting).as_secs_f64());
                format!("t,loss\n0,0\n{from},{share}\n{to},0\n")
            }
        };
        let table = ConditionTrace::parse(&table, AtEnd::Stop);
        Some(Arc::new(table.expect("times are in order and rates above 0")))
    }

    /// Whether connections of this family are measured: those that the outage concerns, and that a NAT translates.
    pub(super) const fn measures(&self, ipv6: bool) -> bool {
        self.layer2.families.has(ipv6) && !(self.layer2.nat && ipv6)
    }

    /// Whether the phone has to resolve its router's address.
    pub(super) fn has_neighbours(&self) -> bool {
        self.layer2.kind == LinkKind::Ethernet
    }
}
