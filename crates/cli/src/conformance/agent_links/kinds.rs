//! The kinds of links and outages.

use holdover_base::Duration;
use holdover_link::{InFlightFate, OutagePolicy, QueuedFate};
use holdover_sim::{Layer2, LinkKind, OutageKind};

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
pub(super) static KINDS: [Kind; 10] = [
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
];

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
    pub(super) const fn is_told(&self) -> bool {
        self.layer2.outage.is_seen_by_host()
    }

    /// Whether the phone has to resolve its router's address.
    pub(super) fn has_neighbours(&self) -> bool {
        self.layer2.kind == LinkKind::Ethernet
    }
}
