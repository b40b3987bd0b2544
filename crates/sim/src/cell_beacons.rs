//! A radio cell in a world, and the beacons of its base station.

use holdover_base::{Instant, Rng};
use holdover_link::Link;
use holdover_link::cell::{Cell, StationId};
use holdover_mobility::mobile_ip::{ForeignAgent, Lifetime};

use crate::error::WorldError;
use crate::frame::Frame;
use crate::ids::NodeId;
use crate::mobility::{Beacons, CellId, RadioCell};
use crate::observer::{Medium, Place, Transit};

/// A cell.
#[derive(Clone, Debug)]
pub(crate) struct Air {
    pub(crate) cell: Cell<Box<Frame>>,
    pub(crate) id: CellId,
    pub(crate) base: NodeId,
    /// The base station as an agent of Mobile IP.
    pub(crate) agent: ForeignAgent,
    pub(crate) beacons: Option<BeaconClock>,
}

impl Air {
    pub(crate) fn new(id: CellId, config: &RadioCell, seed: u64) -> Result<Self, WorldError> {
        let cell_seed = Rng::split(seed, &format!("cell {}", config.name)).next_u64();
        let cell =
            Cell::new(config.cell, cell_seed).map_err(|error| WorldError::Cell { cell: config.name.clone(), error })?;
        let rng = Rng::split(seed, &format!("beacons {}", config.name));
        let beacons = config.beacons.map(|beacons| BeaconClock::new(beacons, rng));
        Ok(Self { cell, id, base: config.base, agent: ForeignAgent::new(config.base.ipv4()), beacons })
    }

    pub(crate) fn place(&self, node: NodeId, transit: Transit) -> Place {
        Place { node, medium: Medium::Cell(self.id), transit }
    }

    /// The cell's next deadline: at once if an output of an earlier call is pending.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        if self.cell.has_output() { Some(now) } else { self.cell.poll_timeout().map(|(at, _)| at) }
    }
}

/// A node as a station of cells.
pub(crate) fn station(node: NodeId) -> StationId {
    StationId(node.0)
}

/// When a base station sends its next beacon.
#[derive(Clone, Debug)]
pub(crate) struct BeaconClock {
    config: Beacons,
    rng: Rng,
    pub(crate) next_at: Instant,
}

impl BeaconClock {
    fn new(config: Beacons, mut rng: Rng) -> Self {
        let next_at = Instant::ZERO + config.first.draw(&mut rng);
        Self { config, rng, next_at }
    }

    /// The beacon that is due.
    pub(crate) fn send(&mut self, now: Instant, agent: &mut ForeignAgent) -> Box<Frame> {
        self.next_at = now + self.config.interval.draw(&mut self.rng);
        Box::new(Frame::new(agent.advertise(Lifetime::INFINITE), None))
    }
}
