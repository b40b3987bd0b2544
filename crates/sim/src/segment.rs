//! The second layer of a link: the families it carries, and neighbour tables.

use holdover_base::Instant;
use holdover_link::{Link, LinkConfig, Outages, PointToPoint, PointToPointEvent};

use crate::config::LinkBetween;
use crate::error::WorldError;
use crate::frame::Frame;
use crate::layer2::{AddressLoss, Families, LinkKind};
use crate::neighbour::Neighbour;

/// The state of a link's second layer.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    families: Families,
    /// The times at which packets of these families are blocked, if these differ from the link's outages: a link that carries nothing.
    gate: Option<PointToPoint<Box<Frame>>>,
    is_closed: bool,
    /// Whether the ends have to resolve each other: not on kernels, which do it themselves, nor on links without neighbours.
    pub(crate) resolves: bool,
    /// For the sender of each direction the state of its neighbour, for IPv4 and for IPv6.
    neighbours: [[Neighbour; 2]; 2],
}

/// The gate of a segment has closed or opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GateChange {
    pub(crate) at: Instant,
    pub(crate) open: bool,
}

impl Segment {
    /// The second layer of a link; `None` for a wire.
    pub(crate) fn of(link: &LinkBetween, outage_seed: u64) -> Result<Option<Box<Self>>, WorldError> {
        let layer2 = link.layer2;
        if layer2.kind == LinkKind::Wire {
            return Ok(None);
        }
        let has_gate = layer2.families != Families::Both || layer2.addresses != AddressLoss::Kept;
        let config = LinkConfig {
            outages: link.forward.outages.clone(),
            forwards_after: link.carries_after(),
            conditions: link.forward.conditions.clone(),
            ..LinkConfig::default()
        };
        let gate = has_gate.then(|| PointToPoint::new(&config, outage_seed)).transpose();
        let gate = gate.map_err(|error| WorldError::Link { link: link.name.clone(), error })?;
        Ok(Some(Box::new(Self {
            families: layer2.families,
            gate,
            is_closed: false,
            resolves: layer2.kind == LinkKind::Ethernet,
            neighbours: Default::default(),
        })))
    }

    /// The deadline of one direction of the link because of this layer.
    pub(crate) fn deadline(&self, hop: usize) -> Option<Instant> {
        let asked = self.neighbours[hop % 2].iter().filter_map(Neighbour::deadline).min();
        let gate = self.gate.as_ref().filter(|_| hop.is_multiple_of(2));
        asked.into_iter().chain(gate.and_then(|gate| gate.poll_timeout()).map(|(at, _)| at)).min()
    }

    /// The changes of the gate until `now`.
    pub(crate) fn pass_gate(&mut self, now: Instant) -> Vec<GateChange> {
        let mut changes = Vec::new();
        let Some(gate) = &mut self.gate else { return changes };
        gate.handle_timeout(now);
        while let Some(event) = gate.poll_event() {
            let (at, open) = match event {
                PointToPointEvent::Down { at } => (at, false),
                PointToPointEvent::Up { at } if gate.forwards_late() => (at, false),
                PointToPointEvent::Up { at } | PointToPointEvent::Forwards { at } => (at, true),
                PointToPointEvent::Dropped { .. } | PointToPointEvent::AttemptFailed { .. } => continue,
            };
            if core::mem::replace(&mut self.is_closed, !open) == open {
                changes.push(GateChange { at, open });
            }
        }
        changes
    }

    /// Whether a frame is blocked now.
    pub(crate) fn keeps_out(&self, frame: &Frame) -> bool {
        self.is_closed && self.families.has(frame.is_ipv6())
    }

    /// The state of the neighbour of a direction.
    pub(crate) fn neighbour(&mut self, hop: usize, ipv6: bool) -> &mut Neighbour {
        &mut self.neighbours[hop % 2][usize::from(ipv6)]
    }
}

/// The configuration of a link's own outages, without those of the gate.
pub(crate) fn own_outages(link: &LinkBetween) -> LinkConfig {
    let mut config = link.forward.clone();
    if link.layer2.families != Families::Both {
        config.outages = Outages::Never;
    }
    config
}
