//! Motion of stations.

use holdover_base::{Duration, Instant};

/// A position in the plane, in metres.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Position {
    /// Metres along the first axis.
    pub x_m: f64,
    /// Metres along the second axis.
    pub y_m: f64,
}

impl Position {
    /// The distance between two positions, in metres.
    pub fn distance_m(self, other: Self) -> f64 {
        (self.x_m - other.x_m).hypot(self.y_m - other.y_m)
    }
}

/// A velocity in metres a second.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Velocity {
    /// Along the first axis.
    pub x_m_per_s: f64,
    /// Along the second axis.
    pub y_m_per_s: f64,
}

/// A uniform straight motion, or rest. A station that turns gets a new motion at each turn.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Motion {
    /// The position at `since`.
    pub position: Position,
    /// The start.
    pub since: Instant,
    /// The velocity from then on.
    pub velocity: Velocity,
}

impl Motion {
    /// At rest.
    pub fn at_rest(position: Position) -> Self {
        Self { position, ..Self::default() }
    }

    /// The position at a time, which is not before `since`.
    pub fn position(&self, at: Instant) -> Position {
        let secs = at.saturating_since(self.since).as_secs_f64();
        Position {
            x_m: self.position.x_m + self.velocity.x_m_per_s * secs,
            y_m: self.position.y_m + self.velocity.y_m_per_s * secs,
        }
    }

    /// The interval, from `since` on and end excluded, in which it is within `radius_m` metres of `centre`; `None` if
    /// never.
    pub fn within(&self, centre: Position, radius_m: f64) -> Option<(Instant, Instant)> {
        let (x, y) = (self.position.x_m - centre.x_m, self.position.y_m - centre.y_m);
        let (vx, vy) = (self.velocity.x_m_per_s, self.velocity.y_m_per_s);
        let speed_squared = vx * vx + vy * vy;
        let beyond = x * x + y * y - radius_m * radius_m;
        if speed_squared == 0.0 {
            return (beyond <= 0.0).then_some((self.since, Instant::FAR_FUTURE));
        }
        // |(x, y) + (vx, vy) t| = radius.
        let half = x * vx + y * vy;
        let discriminant = half * half - speed_squared * beyond;
        if discriminant < 0.0 {
            return None;
        }
        let leaves = (-half + discriminant.sqrt()) / speed_squared;
        if leaves < 0.0 {
            return None;
        }
        let enters = (-half - discriminant.sqrt()) / speed_squared;
        let (from, to) = (self.since + Duration::from_secs_f64(enters), self.since + Duration::from_secs_f64(leaves));
        (from < to).then_some((from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_path_enters_and_leaves_a_circle() {
        let motion = Motion {
            position: Position { x_m: -50.0, y_m: 0.0 },
            since: Instant::from_secs(10),
            velocity: Velocity { x_m_per_s: 2.0, y_m_per_s: 0.0 },
        };
        let within = |centre, radius| motion.within(centre, radius);
        let centre = Position::default();
        assert_eq!(within(centre, 40.0), Some((Instant::from_secs(15), Instant::from_secs(55))));
        assert_eq!(
            within(Position { x_m: -50.0, y_m: 0.0 }, 10.0),
            Some((Instant::from_secs(10), Instant::from_secs(15)))
        );
        assert_eq!(within(Position { x_m: -70.0, y_m: 0.0 }, 10.0), None, "it moves away");
        assert_eq!(within(Position { x_m: 0.0, y_m: 11.0 }, 10.0), None, "it passes by");
        assert_eq!(motion.position(Instant::from_secs(35)), centre);
        let resting = Motion::at_rest(Position { x_m: 3.0, y_m: 4.0 });
        assert_eq!(resting.within(centre, 5.0), Some((Instant::ZERO, Instant::FAR_FUTURE)));
        assert_eq!(resting.within(centre, 4.9), None);
    }
}
