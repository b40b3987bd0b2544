//! Radio cells and mobile hosts, as they are described.

use holdover_base::{ByteCount, Duration, Instant};
use holdover_link::Length;
use holdover_link::cell::{CellConfig, Position};
use holdover_mobility::mobile_ip::{Lifetime, MobileNodeConfig, RegisterOn};

use crate::config::NodeId;

/// A radio cell of a world: its place in [`crate::WorldConfig::cells`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CellId(pub u32);

impl CellId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A radio cell around a base station. Every cell is a medium of its own: neighbouring cells do not disturb each other.
#[derive(Clone, PartialEq, Debug)]
pub struct RadioCell {
    /// The name in reports and captures.
    pub name: String,
    /// The base station: a router, and that of no other cell.
    pub base: NodeId,
    /// Medium access, radio, position, buffers, and what becomes of the frames of a host that has left.
    pub cell: CellConfig,
    /// The base station's beacons; with `None` no host can register with it.
    pub beacons: Option<Beacons>,
}

/// The beacons of a base station: agent advertisements (RFC 5944 section 2.1), broadcast in its cell. They wait in the base
/// station's queue like every frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beacons {
    /// From the start of the run to the first one.
    pub first: Length,
    /// From each one to the next.
    pub interval: Length,
}

impl Default for Beacons {
    /// The first one at some time in the first second, then one every second.
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self { first: Length::Uniform { min: Duration::ZERO, max: second }, interval: Length::Constant(second) }
    }
}

/// A host that moves between cells. It has no links: the cells are its only way.
#[derive(Clone, PartialEq, Debug)]
pub struct MobileHost {
    /// The host.
    pub node: NodeId,
    /// Where it is when.
    pub movement: Movement,
    /// What happens when it comes into another cell.
    pub attachment: Attachment,
    /// Which cell it chooses where several overlap.
    pub selection: Selection,
    /// How it foresees that it is about to lose its cell; `None` if it does not.
    pub prediction: Option<Prediction>,
}

/// Where a mobile host is when.
#[derive(Clone, PartialEq, Debug)]
pub enum Movement {
    /// In one cell after the other, without geometry: half-way from a cell's base station to its edge, or out of range.
    Visits(Visits),
    /// In these cells at these times, without geometry, in order of time. Out of range before the first.
    Script(Vec<Visit>),
    /// Along straight lines. A cell covers it while it is within the range of the cell's radio.
    Path(Path),
}

/// Cells that take turns.
#[derive(Clone, PartialEq, Debug)]
pub struct Visits {
    /// The cells, in turn; after the last comes the first. It starts in the first one.
    pub cells: Vec<CellId>,
    /// How long it stays in the first cell at first, if not drawn like the others.
    pub first_residence: Option<Duration>,
    /// How long it stays in a cell: constant (periodic handoffs), exponential, normal or uniform.
    pub residence: Length,
    /// How long it is out of every cell's range between two; `None` for no time.
    pub gap: Option<Length>,
    /// How many times it moves; `None` for as many as time allows.
    pub moves: Option<u64>,
}

/// From a time on, a mobile host is in a cell, or in none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    /// When.
    pub at: Instant,
    /// Where; `None` is out of range.
    pub cell: Option<CellId>,
}

/// A way through the plane.
#[derive(Clone, PartialEq, Debug)]
pub struct Path {
    /// Where it goes, in straight lines. It starts at the first one.
    pub stops: Vec<Stop>,
    /// When it leaves the first one, besides that stop's pause.
    pub depart_at: Instant,
    /// How fast it goes, in metres a second.
    pub speed_m_per_s: f64,
    /// What comes after the last stop.
    pub repeat: Repeat,
}

/// A place on the way.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Stop {
    /// Where.
    pub position: Position,
    /// For how long.
    pub pause: Duration,
}

/// What comes after the last stop of a path.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Repeat {
    /// It stays there.
    #[default]
    Once,
    /// It goes back the way it came, and so on.
    BackAndForth,
    /// It goes on to the first stop, and round again.
    Around,
}

/// What happens when a mobile host comes into another cell. Until it is done, packets go to the old cell.
#[derive(Clone, PartialEq, Debug)]
pub enum Attachment {
    /// It registers with the gateway.
    Registration(Registration),
    /// Without registration: so long after the new cell covers it and the old one does not, the routes of all nodes follow,
    /// and the old base station knows.
    HandoffTime(Duration),
}

/// Registration through a gateway, as in Mobile IP (RFC 5944, with the base stations as foreign agents).
///
/// The mobile host hears a beacon of a base station that it is not registered with and sends a registration request to it,
/// which goes on to the gateway. The gateway sends the mobile host's packets to the new base station from then on, through
/// a tunnel, and replies by the same way. When the reply arrives, the mobile host sends through the new base station.
/// Request and reply are real packets and can be lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// The router that all packets to the mobile host go through.
    pub gateway: NodeId,
    /// Bytes that the tunnel adds to a packet; 20 for IP in IP (RFC 2003).
    pub tunnel_overhead: ByteCount,
    /// For how long a registration holds; it is renewed after half of that. `None` if it does not end. In whole seconds, rounded up.
    pub lifetime: Option<Duration>,
    /// How long the mobile host waits for a reply before it sends its request again; doubled each time (RFC 5944 section
    /// 3.6.3).
    pub retransmit_after: Duration,
    /// The longest such wait.
    pub retransmit_at_most: Duration,
    /// Which beacons are answered by a request.
    pub on: RegisterOn,
    /// Whether the gateway tells the old base station (RFC 3543) that the mobile host has left, which then acts by its
    /// cell's leave policy. If not, it goes on trying each frame up to the retry limit.
    pub tell_old_base: bool,
}

impl Registration {
    /// Registration through `gateway`, as RFC 5944 has it: IP in IP, and requests sent again after 1 s, 2 s and so on.
    pub fn through(gateway: NodeId) -> Self {
        Self {
            gateway,
            tunnel_overhead: ByteCount(20),
            lifetime: None,
            retransmit_after: Duration::from_secs(1),
            retransmit_at_most: Duration::from_secs(64),
            on: RegisterOn::NewCell,
            tell_old_base: false,
        }
    }

    pub(crate) fn lifetime(&self) -> Lifetime {
        self.lifetime.map_or(Lifetime::INFINITE, Lifetime::of)
    }

    /// The mobile host's part.
    pub(crate) fn of_mobile(&self, mobile: NodeId) -> MobileNodeConfig {
        MobileNodeConfig {
            home: mobile.ipv4(),
            home_agent: self.gateway.ipv4(),
            lifetime: self.lifetime(),
            retransmit_after: self.retransmit_after,
            retransmit_at_most: self.retransmit_at_most,
            on: self.on,
        }
    }
}

/// Which cell a mobile host chooses where several overlap.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Selection {
    /// It stays with its cell while that covers it.
    #[default]
    Keep,
    /// The one whose base station it hears best, measured by what each cell's radio needs. It compares when it hears a beacon
    /// and when it comes into or out of a cell.
    Strongest,
}

/// How a mobile host foresees that it is about to lose its cell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Prediction {
    /// The power received from its base station falls below so many percent above the least that can be received; it takes
    /// the warning back when the power rises above that again.
    Threshold {
        /// How many percent, above 0.
        percent: f64,
    },
    /// It knows so long before.
    Lead(Duration),
}
