//! The configuration of radio cells and mobile hosts.

use holdover_base::{ByteCount, Duration, Instant};
use holdover_link::Length;
use holdover_link::cell::{CellConfig, Position};
use holdover_mobility::mobile_ip::{Lifetime, MobileNodeConfig, RegisterOn};

use crate::ids::NodeId;

/// A radio cell of a world: its index in [`crate::WorldConfig::cells`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CellId(pub u32);

impl CellId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A radio cell around a base station. Every cell is a separate medium: neighbouring cells do not interfere.
#[derive(Clone, PartialEq, Debug)]
pub struct RadioCell {
    /// The name in reports and captures.
    pub name: String,
    /// The base station: a router, which has no other cell.
    pub base: NodeId,
    /// Medium access, radio, position, buffers, and the treatment of frames for a host that has left.
    pub cell: CellConfig,
    /// The base station's beacons; with `None` no host can register with it.
    pub beacons: Option<Beacons>,
}

/// The beacons of a base station: agent advertisements (RFC 5944 section 2.1), broadcast in its cell. They wait in the base station's queue
/// like other frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beacons {
    /// From the start of the run to the first one.
    pub first: Length,
    /// From each one to the next.
    pub interval: Length,
}

impl Default for Beacons {
    /// The first one at a random time in the first second, then one every second.
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self { first: Length::Uniform { min: Duration::ZERO, max: second }, interval: Length::Constant(second) }
    }
}

/// A host that moves between cells. It has no links: cells are its only connection.
#[derive(Clone, PartialEq, Debug)]
pub struct MobileHost {
    /// The host.
    pub node: NodeId,
    /// Its movement.
    pub movement: Movement,
    /// The attachment to another cell.
    pub attachment: Attachment,
    /// The choice among overlapping cells.
    pub selection: Selection,
    /// The prediction of leaving its cell; `None` for none.
    pub prediction: Option<Prediction>,
}

/// The movement of a mobile host.
#[derive(Clone, PartialEq, Debug)]
pub enum Movement {
    /// In one cell after another, without geometry: half-way from a cell's base station to its edge, or out of range.
    Visits(Visits),
    /// In these cells at these times, without geometry, in order of time. Out of range before the first.
    Script(Vec<Visit>),
    /// Along straight lines. A cell covers it while it is within the range of the cell's radio.
    Path(Path),
}

/// Cells in turn.
#[derive(Clone, PartialEq, Debug)]
pub struct Visits {
    /// The cells, in turn and repeatedly. It starts in the first one.
    pub cells: Vec<CellId>,
    /// The length of the first stay, if not drawn like the others.
    pub first_residence: Option<Duration>,
    /// The length of a stay in a cell: constant (periodic handoffs), exponential, normal or uniform.
    pub residence: Length,
    /// The time out of range between two cells; `None` for no time.
    pub gap: Option<Length>,
    /// The number of moves; `None` for unlimited.
    pub moves: Option<u64>,
}

/// The cell of a mobile host from a time on, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    /// The time.
    pub at: Instant,
    /// The cell; `None` is out of range.
    pub cell: Option<CellId>,
}

/// A path in the plane.
#[derive(Clone, PartialEq, Debug)]
pub struct Path {
    /// Its stops, connected by straight lines. It starts at the first one.
    pub stops: Vec<Stop>,
    /// When it leaves the first one, in addition to that stop's pause.
    pub depart_at: Instant,
    /// The speed, in metres per second.
    pub speed_m_per_s: f64,
    /// The behaviour after the last stop.
    pub repeat: Repeat,
}

/// A stop on the path.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Stop {
    /// Its position.
    pub position: Position,
    /// The length of the pause there.
    pub pause: Duration,
}

/// The behaviour after the last stop of a path.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Repeat {
    /// It stays there.
    #[default]
    Once,
    /// It goes back and forth on the path.
    BackAndForth,
    /// It continues to the first stop, and so on.
    Around,
}

/// The attachment of a mobile host to another cell. Until it is complete, packets go to the old cell.
#[derive(Clone, PartialEq, Debug)]
pub enum Attachment {
    /// It registers with the gateway.
    Registration(Registration),
    /// Without registration: this long after the new cell covers it and the old one does not, the routes of all nodes change, and the old
    /// base station is notified.
    HandoffTime(Duration),
}

/// Registration through a gateway, as in Mobile IP (RFC 5944, with the base stations as foreign agents).
///
/// The mobile host receives a beacon of a base station that it is not registered with, and sends it a registration request, which the
/// base station relays to the gateway. From then on, the gateway sends the mobile host's packets to the new base station, through a tunnel, and replies on the
/// same path. When the reply arrives, the mobile host sends through the new base station. Request and reply are real packets and can be
/// lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// The router that all packets to the mobile host pass.
    pub gateway: NodeId,
    /// Bytes that the tunnel adds to a packet; 20 for IP in IP (RFC 2003).
    pub tunnel_overhead: ByteCount,
    /// The lifetime of a registration, which is renewed after half of it. `None` if it does not expire. In whole seconds, rounded up.
    pub lifetime: Option<Duration>,
    /// How long the mobile host waits for a reply before it retransmits its request; doubled each time (RFC 5944 section 3.6.3).
    pub retransmit_after: Duration,
    /// The longest such timeout.
    pub retransmit_at_most: Duration,
    /// The beacons that are answered by a request.
    pub on: RegisterOn,
    /// Whether the gateway notifies the old base station (RFC 3543) that the mobile host has left; it then applies its
    /// cell's leave policy. Otherwise it retries each frame up to the retry limit.
    pub tell_old_base: bool,
}

impl Registration {
    /// Registration through `gateway`, as in RFC 5944: IP in IP, and requests retransmitted after 1 s, 2 s and so on.
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

    /// The mobile host's state machine.
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

/// The choice of a mobile host among overlapping cells.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Selection {
    /// It keeps its cell while that covers it.
    #[default]
    Keep,
    /// The cell whose base station it receives best, relative to the threshold of the cell's radio. It compares when it receives a beacon
    /// and when it enters or leaves a cell.
    Strongest,
}

/// The prediction of a mobile host that it is about to lose its cell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Prediction {
    /// The power received from its base station falls to less than `percent` above the least power that can be received; the warning is
    /// withdrawn when it rises above that again.
    Threshold {
        /// The margin in percent, above 0.
        percent: f64,
    },
    /// It knows this long in advance.
    Lead(Duration),
}
