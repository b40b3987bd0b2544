//! The state of a mobile host: position, registration, and predictions.

use holdover_base::{Duration, Instant, Rng};
use holdover_mobility::mobile_ip::MobileNode;

use super::config::{Attachment, MobileHost, Prediction, RadioCell};
use super::track::Track;

use crate::ids::NodeId;

/// A mobile host. The network's knowledge of it is in [`crate::network::Roaming`].
#[derive(Clone, Debug)]
pub(crate) struct Mobile {
    pub(crate) config: MobileHost,
    pub(crate) track: Track,
    /// For each cell, whether it is in range.
    pub(crate) covered: Vec<bool>,
    /// Its part in registration, if it registers.
    pub(crate) registrar: Option<MobileNode>,
    /// Without registration: when it will be attached, and to which cell.
    pub(crate) attaches: Option<(Instant, usize)>,
    /// Whether packets reach it and return.
    pub(crate) connected: bool,
    /// The cell in which they last did.
    pub(crate) last_cell: Option<usize>,
    /// A disconnection is predicted.
    pub(crate) fading: bool,
    /// When to check for one again.
    pub(crate) look_at: Option<Instant>,
}

/// A prediction of a mobile host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Foresight {
    /// Nothing new.
    Nothing,
    /// A disconnection, this long from now.
    Fading(Option<Duration>),
    /// No disconnection after all.
    Recovered,
}

impl Mobile {
    pub(crate) fn new(config: &MobileHost, name: &str, cells: usize, seed: u64) -> Self {
        let rng = Rng::split(seed, &format!("movement {name}"));
        Self {
            track: Track::new(&config.movement, rng),
            covered: vec![false; cells],
            registrar: match &config.attachment {
                Attachment::Registration(registration) => Some(MobileNode::new(registration.of_mobile(config.node))),
                Attachment::HandoffTime(_) => None,
            },
            attaches: None,
            connected: false,
            last_cell: None,
            fading: false,
            look_at: None,
            config: config.clone(),
        }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.config.node
    }

    /// Its next own deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let request = self.registrar.as_ref().and_then(MobileNode::poll_timeout);
        let attaches = self.attaches.map(|(at, _)| at);
        [self.track.next_at(), self.look_at, request, attaches].into_iter().flatten().min()
    }

    /// Predicts, and decides when to check again. `cell` is the one that it is connected through.
    pub(crate) fn look_ahead(&mut self, now: Instant, index: usize, cell: &RadioCell) -> Foresight {
        match self.config.prediction {
            None => Foresight::Nothing,
            Some(Prediction::Lead(lead)) => self.look_at_the_clock(now, index, cell, lead),
            Some(Prediction::Threshold { percent }) => self.look_at_the_signal(now, index, cell, percent),
        }
    }

    fn look_at_the_clock(&mut self, now: Instant, index: usize, cell: &RadioCell, lead: Duration) -> Foresight {
        self.look_at = None;
        let Some(leaves) = self.track.leaves(index, cell).filter(|&leaves| leaves > now && !self.fading) else {
            return Foresight::Nothing;
        };
        let warn_at = leaves - lead;
        if warn_at > now {
            self.look_at = Some(warn_at);
            return Foresight::Nothing;
        }
        self.fading = true;
        Foresight::Fading(Some(leaves.saturating_since(now)))
    }

    /// The power falls with the square of the distance, so the threshold is a circle inside the cell.
    fn look_at_the_signal(&mut self, now: Instant, index: usize, cell: &RadioCell, percent: f64) -> Foresight {
        let (centre, range) = (cell.cell.position, cell.cell.radio.range_m());
        let motion = self.track.motion(index, cell);
        let strong = motion.within(centre, range / (1.0 + percent / 100.0).sqrt());
        let finite = |at: Instant| Some(at).filter(|&at| at != Instant::FAR_FUTURE);
        if let Some((from, to)) = strong.filter(|&(from, to)| from <= now && now < to) {
            debug_assert!(from <= to);
            self.look_at = finite(to);
            if core::mem::take(&mut self.fading) {
                return Foresight::Recovered;
            }
            return Foresight::Nothing;
        }
        self.look_at = strong.and_then(|(from, _)| finite(from).filter(|&from| from > now));
        let position = motion.position(now);
        let velocity = motion.velocity;
        let outwards =
            (position.x_m - centre.x_m) * velocity.x_m_per_s + (position.y_m - centre.y_m) * velocity.y_m_per_s;
        if self.fading || outwards <= 0.0 {
            return Foresight::Nothing;
        }
        self.fading = true;
        let leaves = motion.within(centre, range).and_then(|(_, leaves)| finite(leaves));
        Foresight::Fading(leaves.map(|leaves| leaves.saturating_since(now)))
    }
}
