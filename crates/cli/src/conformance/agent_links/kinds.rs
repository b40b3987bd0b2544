//! The kinds of links and outages.

use holdover_base::Duration;
use holdover_link::{InFlightFate, OutagePolicy, QueuedFate};
use holdover_sim::{AddressLoss, Families, Layer2, LinkKind, OutageKind};

/// A link between a phone and its router, and its outage.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// What the link is, and what happens to it.
    pub(super) what: &'static str,
    pub(super) layer2: Layer2,
    /// What becomes of packets in the queue and on the way when the outage begins.
    pub(super) policy: OutagePolicy,
    /// From the link's return to when it forwards.
    pub(super) forwards_after: Duration,
    /// How long outages are.
    pub(super) cuts: &'static [Duration],
}

const HALF: Duration = Duration::from_millis(500);
const THREE: Duration = Duration::from_secs(3);
const TWENTY: Duration = Duration::from_secs(20);

const DROPPED: OutagePolicy = OutagePolicy { queued: QueuedFate::Dropped, in_flight: InFlightFate::Dropped };
/// The transmitter goes on into the void.
const LOST: OutagePolicy = OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped };
const HELD: OutagePolicy = OutagePolicy { queued: QueuedFate::Held, in_flight: InFlightFate::Delivered };

/// All of them, in the order of the page.
pub(super) static KINDS: [Kind; 14] = [
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
    Kind {
        layer2: Layer2 { nat: true, ..Layer2::new(LinkKind::Ethernet, OutageKind::Carrier) },
        ..ethernet(
            "nat",
            OutageKind::Carrier,
            "Ethernet to a router that translates IPv4 addresses and drops what belongs to no connection that it knows. Both sides lose \
             carrier.",
        )
    },
];

/// The same addresses again, as a DHCP server gives them.
const RENEWED: AddressLoss = AddressLoss::Lost { after: Duration::from_millis(200), other: false };

/// A link of Ethernet that is cut for 3 s, with nothing left of what was queued or on the way.
const fn ethernet(name: &'static str, outage: OutageKind, what: &'static str) -> Kind {
    Kind {
        name,
        what,
        layer2: Layer2::new(LinkKind::Ethernet, outage),
        policy: DROPPED,
        forwards_after: Duration::ZERO,
        cuts: &[THREE],
    }
}

/// A loss of carrier on both sides, after which the path forwards late.
const fn late(name: &'static str, forwards_after: Duration) -> Kind {
    let what = "Ethernet: both sides lose carrier. When it is back, the path drops everything, ARP too, for as long as the name says.";
    Kind { forwards_after, ..ethernet(name, OutageKind::Carrier, what) }
}

impl Kind {
    /// Whether the phone's kernel shows the outage, so that someone could have known of it before.
    pub(super) fn is_told(&self) -> bool {
        self.layer2.outage.is_seen_by_host() || self.layer2.addresses != AddressLoss::Kept
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
