//! The position of a mobile host: its movement as a sequence of uniform straight segments.

use holdover_base::{Duration, Instant, Rng};
use holdover_link::cell::{Motion, Position, Velocity};

use super::config::{Movement, Path, RadioCell, Repeat, Visits};

/// In metres; farther than the range of any radio of this world.
const OUT_OF_RANGE_M: f64 = 1e9;

/// A movement in progress.
#[derive(Clone, Debug)]
pub(crate) enum Track {
    /// In a cell or in none, without geometry.
    Cells(Places),
    /// Along a path.
    Path(Legs),
}

impl Track {
    /// The movement from its start. Random lengths are drawn from `rng`.
    pub(crate) fn new(movement: &Movement, rng: Rng) -> Self {
        match movement {
            Movement::Visits(visits) => Self::Cells(Places::visits(visits, rng)),
            Movement::Script(script) => {
                let script = script.iter().map(|visit| (visit.at, visit.cell.map(|cell| cell.index()))).collect();
                Self::Cells(Places { cell: None, plan: Plan::Script(script), next: 0, ends: Instant::ZERO })
            }
            Movement::Path(path) => Self::Path(Legs::new(path)),
        }
    }

    /// When the next segment begins; `None` if the current one is the last.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let at = match self {
            Self::Cells(places) => places.next_at(),
            Self::Path(legs) => legs.ends,
        };
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    /// Begins the next segment.
    pub(crate) fn advance(&mut self) {
        match self {
            Self::Cells(places) => places.advance(),
            Self::Path(legs) => legs.advance(),
        }
    }

    /// Its motion relative to a cell.
    pub(crate) fn motion(&self, index: usize, cell: &RadioCell) -> Motion {
        match self {
            Self::Path(legs) => legs.motion,
            Self::Cells(places) => {
                let half_way = cell.cell.radio.range_m() / 2.0;
                let distance = if places.cell == Some(index) { half_way } else { OUT_OF_RANGE_M };
                let Position { x_m, y_m } = cell.cell.position;
                Motion::at_rest(Position { x_m: x_m + distance, y_m })
            }
        }
    }

    /// When it leaves a cell that covers it now, as far as the current segment shows.
    pub(crate) fn leaves(&self, index: usize, cell: &RadioCell) -> Option<Instant> {
        match self {
            Self::Cells(places) => {
                let stays = places.cell != Some(index) || places.next_cell() == Some(index);
                if stays { None } else { self.next_at() }
            }
            Self::Path(legs) => {
                let (_, leaves) = legs.motion.within(cell.cell.position, cell.cell.radio.range_m())?;
                (leaves <= legs.ends && leaves != Instant::FAR_FUTURE).then_some(leaves)
            }
        }
    }
}

/// The position in a sequence of cells.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    cell: Option<usize>,
    plan: Plan,
    /// The number of completed steps of the plan.
    next: u64,
    /// When the current step of visits ends.
    ends: Instant,
}

#[derive(Clone, Debug)]
enum Plan {
    Visits(Box<Visits>, Rng),
    Script(Vec<(Instant, Option<usize>)>),
}

impl Places {
    fn visits(visits: &Visits, mut rng: Rng) -> Self {
        let first = visits.first_residence.unwrap_or_else(|| visits.residence.draw(&mut rng));
        let ends = if visits.moves == Some(0) { Instant::FAR_FUTURE } else { Instant::ZERO + first };
        let cell = visits.cells.first().map(|cell| cell.index());
        Self { cell, plan: Plan::Visits(Box::new(visits.clone()), rng), next: 0, ends }
    }

    fn next_at(&self) -> Instant {
        match &self.plan {
            Plan::Visits(..) => self.ends,
            Plan::Script(script) => script.get(self.next as usize).map_or(Instant::FAR_FUTURE, |&(at, _)| at),
        }
    }

    /// The cell of the next segment, if there is one.
    fn next_cell(&self) -> Option<usize> {
        match &self.plan {
            Plan::Script(script) => script.get(self.next as usize).and_then(|&(_, cell)| cell),
            Plan::Visits(visits, _) if self.cell.is_some() && visits.gap.is_some() => None,
            Plan::Visits(visits, _) => visits.cell_of_turn(self.next + 1),
        }
    }

    fn advance(&mut self) {
        match &mut self.plan {
            Plan::Script(script) => {
                self.cell = script.get(self.next as usize).and_then(|&(_, cell)| cell);
                self.next += 1;
            }
            Plan::Visits(visits, rng) => {
                if self.cell.take().is_some()
                    && let Some(gap) = visits.gap
                {
                    self.ends += gap.draw(rng);
                    return;
                }
                self.next += 1;
                self.cell = visits.cell_of_turn(self.next);
                let last = visits.moves.is_some_and(|moves| self.next >= moves);
                self.ends = if last { Instant::FAR_FUTURE } else { self.ends + visits.residence.draw(rng) };
            }
        }
    }
}

impl Visits {
    fn cell_of_turn(&self, turn: u64) -> Option<usize> {
        let index = turn % self.cells.len().max(1) as u64;
        self.cells.get(index as usize).map(|cell| cell.index())
    }
}

/// The position on a path.
#[derive(Clone, Debug)]
pub(crate) struct Legs {
    path: Path,
    motion: Motion,
    /// When the current leg or pause ends.
    ends: Instant,
    /// The stop that it is at, or goes to.
    stop: usize,
    pausing: bool,
    /// Whether it is on its way back.
    backwards: bool,
}

impl Legs {
    fn new(path: &Path) -> Self {
        let first = path.stops.first().copied().unwrap_or_default();
        let ends = if path.stops.len() < 2 { Instant::FAR_FUTURE } else { path.depart_at + first.pause };
        let motion = Motion::at_rest(first.position);
        Self { path: path.clone(), motion, ends, stop: 0, pausing: true, backwards: false }
    }

    fn advance(&mut self) {
        let here = self.path.stops[self.stop];
        if !self.pausing {
            self.pausing = true;
            self.motion = Motion { position: here.position, since: self.ends, velocity: Velocity::default() };
            if !here.pause.is_zero() {
                self.ends += here.pause;
                return;
            }
        }
        let Some(next) = self.next_stop() else {
            self.ends = Instant::FAR_FUTURE;
            return;
        };
        let there = self.path.stops[next].position;
        let seconds = here.position.distance_m(there) / self.path.speed_m_per_s;
        let per_second = |from: f64, to: f64| if seconds > 0.0 { (to - from) / seconds } else { 0.0 };
        let velocity = Velocity {
            x_m_per_s: per_second(here.position.x_m, there.x_m),
            y_m_per_s: per_second(here.position.y_m, there.y_m),
        };
        self.motion = Motion { position: here.position, since: self.ends, velocity };
        // A leg without length must not stop time.
        self.ends += Duration::from_secs_f64(seconds).max(Duration::from_nanos(1));
        self.stop = next;
        self.pausing = false;
    }

    fn next_stop(&mut self) -> Option<usize> {
        let last = self.path.stops.len() - 1;
        match self.path.repeat {
            Repeat::Once => (self.stop < last).then_some(self.stop + 1),
            Repeat::Around => Some((self.stop + 1) % (last + 1)),
            Repeat::BackAndForth => {
                if self.stop == 0 || self.stop == last {
                    self.backwards = self.stop == last;
                }
                Some(if self.backwards { self.stop - 1 } else { self.stop + 1 })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use holdover_link::cell::CellConfig;
    use holdover_link::{Length, QueueLimit};

    use super::super::config::{CellId, Stop, Visit};
    use super::*;
    use crate::ids::NodeId;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn cell() -> RadioCell {
        RadioCell {
            name: "cell".into(),
            base: NodeId(0),
            cell: CellConfig::wavelan(40.0, QueueLimit::Unlimited),
            beacons: None,
        }
    }

    /// The first `n` segments: the start of each, and the result of `look`.
    fn pieces<T>(mut track: Track, n: usize, look: impl Fn(&Track) -> T) -> Vec<(u64, T)> {
        let mut seen = vec![(0, look(&track))];
        while let Some(at) = track.next_at().filter(|_| seen.len() < n) {
            track.advance();
            seen.push((at.as_millis(), look(&track)));
        }
        seen
    }

    fn where_(track: &Track) -> Option<usize> {
        (0..3).find(|&index| track.motion(index, &cell()).within(Position::default(), 40.0).is_some())
    }

    #[test]
    fn visits_take_turns_with_gaps_between() {
        let visits = Visits {
            cells: vec![CellId(0), CellId(2)],
            first_residence: Some(secs(3)),
            residence: Length::Constant(secs(5)),
            gap: Some(Length::Constant(secs(1))),
            moves: Some(2),
        };
        let track = Track::new(&Movement::Visits(visits.clone()), Rng::new(1));
        let expected = [(0, Some(0)), (3_000, None), (4_000, Some(2)), (9_000, None), (10_000, Some(0))];
        assert_eq!(pieces(track, 99, where_), expected);
        let adjacent = Visits { gap: None, ..visits };
        let track = Track::new(&Movement::Visits(adjacent), Rng::new(1));
        assert_eq!(pieces(track, 99, where_), [(0, Some(0)), (3_000, Some(2)), (8_000, Some(0))]);
    }

    #[test]
    fn a_script_is_followed() {
        let visit = |at, cell| Visit { at: Instant::from_secs(at), cell };
        let script = vec![visit(0, Some(CellId(1))), visit(2, None), visit(3, Some(CellId(0)))];
        let track = Track::new(&Movement::Script(script), Rng::new(1));
        let expected = [(0, None), (0, Some(1)), (2_000, None), (3_000, Some(0))];
        assert_eq!(pieces(track, 99, where_), expected);
    }

    #[test]
    fn a_path_turns_pauses_and_repeats() {
        let stop = |x_m, pause| Stop { position: Position { x_m, y_m: 0.0 }, pause: secs(pause) };
        let path = |repeat| Path {
            stops: vec![stop(0.0, 1), stop(10.0, 0), stop(40.0, 2)],
            depart_at: Instant::from_secs(4),
            speed_m_per_s: 10.0,
            repeat,
        };
        let look = |track: &Track| match track {
            Track::Path(legs) => (legs.motion.position.x_m, legs.motion.velocity.x_m_per_s),
            Track::Cells(_) => unreachable!("a path"),
        };
        let way = |repeat, n| pieces(Track::new(&Movement::Path(path(repeat)), Rng::new(1)), n, look);
        let there = [(0, (0.0, 0.0)), (5_000, (0.0, 10.0)), (6_000, (10.0, 10.0)), (9_000, (40.0, 0.0))];
        assert_eq!(way(Repeat::Once, 99)[..4], there);
        assert_eq!(way(Repeat::Once, 99).len(), 5, "the end of the last pause changes nothing");
        let back = [(11_000, (40.0, -10.0)), (14_000, (10.0, -10.0)), (15_000, (0.0, 0.0)), (16_000, (0.0, 10.0))];
        assert_eq!(way(Repeat::BackAndForth, 8)[4..], back);
        assert_eq!(way(Repeat::Around, 6)[4..], [(11_000, (40.0, -10.0)), (15_000, (0.0, 0.0))]);
    }

    #[test]
    fn leaving_is_foreseen_within_a_piece_only() {
        let path = Path {
            stops: vec![Stop::default(), Stop { position: Position { x_m: 50.0, y_m: 0.0 }, pause: Duration::ZERO }],
            depart_at: Instant::from_secs(1),
            speed_m_per_s: 10.0,
            repeat: Repeat::BackAndForth,
        };
        let mut track = Track::new(&Movement::Path(path.clone()), Rng::new(1));
        assert_eq!(track.leaves(0, &cell()), None, "it stands still");
        track.advance();
        assert_eq!(track.leaves(0, &cell()), Some(Instant::from_secs(5)));
        let near = Path {
            stops: vec![path.stops[0], Stop { position: Position { x_m: 39.0, y_m: 0.0 }, ..path.stops[1] }],
            ..path
        };
        let mut track = Track::new(&Movement::Path(near), Rng::new(1));
        track.advance();
        assert_eq!(track.leaves(0, &cell()), None, "it turns before");
    }
}
