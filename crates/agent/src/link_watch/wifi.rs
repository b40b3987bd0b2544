//! Warnings from the strength of a Wi-Fi signal (RSSI).
//!
//! A level in dBm jumps by several dB between packets, so it is smoothed. A *fixed* warning is given when the smoothed
//! level is below the floor. An *adaptive* one is given when the linear fit to its last second and a half reaches the
//! floor within the lead: a user who walks away from an access point is warned early, one at the edge of its range is
//! not warned until the level falls.
//!
//! A warning is withdrawn when the level is above the floor by a margin, and, if adaptive, does not fall towards it any
//! more.

use std::collections::VecDeque;

use holdover_base::{Duration, Instant};
use holdover_mobility::LinkEvent;

use super::Dbm;

/// When to warn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WifiOptions {
    /// Whether the warning is adaptive; if not, it is fixed.
    pub is_adaptive: bool,
    /// Below this level the link is expected to break.
    pub floor: Dbm,
    /// How far ahead an adaptive warning extrapolates the level.
    pub lead: Duration,
    /// Whether levels are smoothed: for a source that reports at intervals. If a source reports changes only, the
    /// smoothed level would stay far from a constant level.
    pub is_smoothed: bool,
}

/// The levels of one interface.
#[derive(Clone, Debug)]
pub struct WifiWatch {
    is_adaptive: bool,
    floor_dbm: f64,
    lead: Duration,
    /// The weight of a new level.
    weight: f64,
    smoothed_dbm: Option<f64>,
    /// Smoothed levels and their times, for the linear fit.
    recent: VecDeque<(Instant, f64)>,
    has_warned: bool,
}

/// The weight of a new level, if levels are smoothed.
const SMOOTHING: f64 = 0.3;

/// The time covered by the linear fit.
const HISTORY: Duration = Duration::from_millis(1500);

/// The shortest time for a fit.
const SHORTEST_HISTORY: Duration = Duration::from_millis(400);

/// A slower fall counts as constant: a person sitting down causes as much.
const SLOWEST_FALL_DB_PER_S: f64 = 1.0;

/// How far above the floor a level must be to withdraw a warning.
const MARGIN_DB: f64 = 4.0;

/// The most levels kept.
const MOST_LEVELS: usize = 256;

impl WifiWatch {
    /// Without any level.
    pub fn new(options: WifiOptions) -> Self {
        let WifiOptions { is_adaptive, floor: Dbm(floor), lead, is_smoothed } = options;
        Self {
            is_adaptive,
            floor_dbm: floor.into(),
            lead,
            weight: if is_smoothed { SMOOTHING } else { 1.0 },
            smoothed_dbm: None,
            recent: VecDeque::new(),
            has_warned: false,
        }
    }

    /// Handles the current level; `None` if the interface is not associated, which resets it.
    pub fn handle_level(&mut self, now: Instant, level: Option<Dbm>) -> Option<LinkEvent> {
        let Some(Dbm(level)) = level else {
            self.smoothed_dbm = None;
            self.recent.clear();
            // Other sources report whether the link is down; the prediction ends.
            return std::mem::take(&mut self.has_warned).then_some(LinkEvent::Recovered);
        };
        let level = f64::from(level);
        let smoothed = self.smoothed_dbm.map_or(level, |before| before + self.weight * (level - before));
        self.smoothed_dbm = Some(smoothed);
        self.recent.push_back((now, smoothed));
        while self.recent.len() > MOST_LEVELS
            || self.recent.front().is_some_and(|&(at, _)| now.saturating_since(at) > HISTORY)
        {
            self.recent.pop_front();
        }
        let fall = self.fall_db_per_s().filter(|_| self.is_adaptive);
        let above = smoothed - self.floor_dbm;
        let until = fall.filter(|&fall| fall >= SLOWEST_FALL_DB_PER_S).map(|fall| (above / fall).max(0.0));
        let cut_in = until.map(Duration::from_secs_f64).filter(|&until| until <= self.lead);
        let is_below = above < 0.0 && (!self.is_adaptive || fall.is_some_and(|fall| fall > 0.0));
        if !self.has_warned && (is_below || cut_in.is_some()) {
            self.has_warned = true;
            return Some(LinkEvent::Fading { lead: cut_in.filter(|lead| !lead.is_zero()) });
        }
        let is_clear =
            above >= MARGIN_DB && until.map(Duration::from_secs_f64).is_none_or(|until| until > self.lead * 2);
        if self.has_warned && is_clear {
            self.has_warned = false;
            return Some(LinkEvent::Recovered);
        }
        None
    }

    /// The driver misses beacons or acknowledgements, at any level. Withdrawn like other warnings.
    pub fn handle_losses(&mut self) -> Option<LinkEvent> {
        (!std::mem::replace(&mut self.has_warned, true)).then_some(LinkEvent::Fading { lead: None })
    }

    /// The slope of the linear fit (least squares), positive if the level falls.
    fn fall_db_per_s(&self) -> Option<f64> {
        let (&(first, _), &(last, _)) = (self.recent.front()?, self.recent.back()?);
        if last.saturating_since(first) < SHORTEST_HISTORY {
            return None;
        }
        let points = self.recent.iter().map(|&(at, level)| (at.saturating_since(first).as_secs_f64(), level));
        let count = self.recent.len() as f64;
        let (sum_x, sum_y) = points.clone().fold((0.0, 0.0), |(xs, ys), (x, y)| (xs + x, ys + y));
        let (mean_x, mean_y) = (sum_x / count, sum_y / count);
        let (covariance, variance) =
            points.fold((0.0, 0.0), |(c, v), (x, y)| (c + (x - mean_x) * (y - mean_y), v + (x - mean_x).powi(2)));
        (variance > 0.0).then(|| -covariance / variance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXED: WifiOptions =
        WifiOptions { is_adaptive: false, floor: Dbm(-80), lead: Duration::from_millis(500), is_smoothed: true };
    const ADAPTIVE: WifiOptions = WifiOptions { is_adaptive: true, ..FIXED };

    fn watch(options: WifiOptions) -> WifiWatch {
        WifiWatch::new(options)
    }

    /// A level every 100 ms; the output, with the number of the level.
    fn events(watch: &mut WifiWatch, levels: impl IntoIterator<Item = i8>) -> Vec<(usize, LinkEvent)> {
        let levels = levels.into_iter().enumerate();
        let events = levels.filter_map(|(index, level)| {
            let now = Instant::from_millis(100 * index as u64);
            watch.handle_level(now, Some(Dbm(level))).map(|event| (index, event))
        });
        events.collect()
    }

    // Claim: A host that leaves the range of a Wi-Fi gets a warning first; one that stays at its edge does not.
    // Tests: `wifi::a_steady_level_at_the_edge_gives_no_warning`
    #[test]
    fn a_falling_level_gives_a_warning_before_the_floor() {
        // 10 dB/s: from -60 dBm it reaches the floor after 2 s.
        let mut watch = watch(ADAPTIVE);
        let events = events(&mut watch, (0..20).map(|step| -60 - step));
        assert!(
            matches!(events[..], [(step, LinkEvent::Fading { lead: Some(_) })] if (13..=18).contains(&step)),
            "{events:?}"
        );
    }

    #[test]
    fn a_steady_level_at_the_edge_gives_no_warning() {
        // Above and below the floor, with a few dB of noise around a constant level.
        for level in [-77, -83] {
            let mut watch = watch(ADAPTIVE);
            let noise = [0, 2, -1, -3, 1, 3, 0, -2, 2, -1, 1, 0, -2, 1].into_iter().cycle().take(300);
            let events = events(&mut watch, noise.map(|db| level + db));
            let warnings = events.iter().filter(|(_, event)| matches!(event, LinkEvent::Fading { .. })).count();
            assert!(warnings <= 1, "{level}: {events:?}");
        }
    }

    #[test]
    fn a_fixed_warning_is_given_below_the_floor_and_taken_back_clear_of_it() {
        let mut watch = watch(FIXED);
        let levels = [&[-70; 5][..], &[-90; 10], &[-79; 20], &[-70; 20]].concat();
        let events = events(&mut watch, levels);
        assert!(
            matches!(events[..], [(5..15, LinkEvent::Fading { lead: None }), (35..45, LinkEvent::Recovered)]),
            "{events:?}"
        );
    }

    #[test]
    fn a_returning_level_is_reported_as_recovered() {
        let mut watch = watch(ADAPTIVE);
        let levels = (0..19).map(|step| -60 - step).chain((0..30).map(|step| (-78 + step).min(-60)));
        let events = events(&mut watch, levels);
        assert!(matches!(events[..], [(_, LinkEvent::Fading { .. }), (_, LinkEvent::Recovered)]), "{events:?}");
    }

    #[test]
    fn losses_warn_once_and_a_high_level_takes_it_back() {
        let mut watch = watch(FIXED);
        assert_eq!(watch.handle_losses(), Some(LinkEvent::Fading { lead: None }));
        assert_eq!(watch.handle_losses(), None);
        assert_eq!(watch.handle_level(Instant::ZERO, Some(Dbm(-40))), Some(LinkEvent::Recovered));
    }

    #[test]
    fn an_interface_without_an_access_point_foretells_nothing() {
        let mut watch = watch(FIXED);
        assert!(matches!(watch.handle_level(Instant::ZERO, Some(Dbm(-90))), Some(LinkEvent::Fading { .. })));
        let later = Instant::from_secs(1);
        assert_eq!(watch.handle_level(later, None), Some(LinkEvent::Recovered));
        assert_eq!(watch.handle_level(later, None), None);
    }
}
