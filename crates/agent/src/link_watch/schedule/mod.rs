//! A timetable of a link: passes of a satellite, tunnels on a line, the hours of a ferry.
//!
//! The shell calls [`ScheduleWatch::handle_time`] at the times of [`ScheduleWatch::poll_time`], and whenever calendar
//! time has jumped: the output depends on the time alone, so that a jump is an ordinary step.

mod file;

use holdover_base::{Duration, Instant};
use holdover_mobility::LinkEvent;

use holdover_host::clock::Utc;

/// The times at which a link is down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// The link; `None` for every managed link.
    pub interface: Option<Box<str>>,
    /// How long before each cut a warning is given; zero for none.
    pub warn: Duration,
    /// The cuts: in order, disjoint, and not empty. Relative to 1970, or to the beginning of a period.
    cuts: Vec<Cut>,
    repeat: Option<Repeat>,
}

/// A time without a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cut {
    from: Instant,
    to: Instant,
}

/// The repetition of the cuts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Repeat {
    start: Utc,
    every: Duration,
}

/// The state at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Up,
    Warned,
    Down,
}

/// A timetable and its last output.
#[derive(Clone, Debug)]
pub struct ScheduleWatch {
    schedule: Schedule,
    last: Phase,
}

impl Schedule {
    /// The number of cuts, per period if it repeats.
    pub fn cuts(&self) -> usize {
        self.cuts.len()
    }

    /// The state at a time, its end, and the next cut.
    fn look(&self, time: Utc) -> (Phase, Option<Utc>, Option<Utc>) {
        let near = self.near(time);
        let mut next = near.iter().filter(|cut| cut.to > time.0);
        let Some(cut) = next.next() else { return (Phase::Up, None, None) };
        let warned_from = cut.from - self.warn;
        let (phase, until) = if cut.from <= time.0 {
            (Phase::Down, cut.to)
        } else if warned_from <= time.0 {
            (Phase::Warned, cut.from)
        } else {
            (Phase::Up, warned_from)
        };
        (phase, Some(Utc(until)), Some(Utc(cut.from)))
    }

    /// The cuts around a time, in calendar time. Cuts that touch at the seam of two periods are merged.
    fn near(&self, time: Utc) -> Vec<Cut> {
        let Some(Repeat { start, every }) = self.repeat else { return self.cuts.clone() };
        let Some(since) = time.0.checked_since(start.0) else {
            // It has not begun: the first period is the next.
            return self.period_at(start.0);
        };
        let begun = start.0 + every * (since.as_nanos() / every.as_nanos());
        let mut near: Vec<Cut> = Vec::new();
        let starts = [begun - every, begun, begun + every, begun + every * 2];
        for cut in starts.into_iter().filter(|&at| at >= start.0).flat_map(|at| self.period_at(at)) {
            match near.last_mut() {
                Some(last) if last.to >= cut.from => last.to = cut.to,
                _ => near.push(cut),
            }
        }
        near
    }

    fn period_at(&self, start: Instant) -> Vec<Cut> {
        let shifted = |at: Instant| start + at.saturating_since(Instant::ZERO);
        self.cuts.iter().map(|cut| Cut { from: shifted(cut.from), to: shifted(cut.to) }).collect()
    }
}

impl ScheduleWatch {
    /// Without output yet: the link is up.
    pub fn new(schedule: Schedule) -> Self {
        Self { schedule, last: Phase::Up }
    }

    /// The link; `None` for every managed link.
    pub fn interface(&self) -> Option<&str> {
        self.schedule.interface.as_deref()
    }

    /// Handles the current time.
    pub fn handle_time(&mut self, time: Utc) -> Vec<LinkEvent> {
        let (phase, _, cut_at) = self.schedule.look(time);
        let before = std::mem::replace(&mut self.last, phase);
        let lead = cut_at.map(|cut_at| cut_at.0.saturating_since(time.0));
        let up = LinkEvent::Up { symmetric: false, moved: false };
        match (before, phase) {
            (Phase::Up, Phase::Up) | (Phase::Warned, Phase::Warned) | (Phase::Down, Phase::Down) => Vec::new(),
            (_, Phase::Down) => vec![LinkEvent::Down],
            (Phase::Up, Phase::Warned) => vec![LinkEvent::Fading { lead }],
            (Phase::Down, Phase::Warned) => vec![up, LinkEvent::Fading { lead }],
            (Phase::Warned, Phase::Up) => vec![LinkEvent::Recovered],
            (Phase::Down, Phase::Up) => vec![up],
        }
    }

    /// The time of the next output; `None` if never.
    pub fn poll_time(&self, time: Utc) -> Option<Utc> {
        let (_, until, _) = self.schedule.look(time);
        until
    }

    /// The current or next cut; `None` if there is none.
    pub fn next_cut(&self, time: Utc) -> Option<Utc> {
        let (_, _, cut) = self.schedule.look(time);
        cut
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The output from a time on, for so many seconds: in seconds since the start.
    fn story(schedule: Schedule, from: Utc, seconds: u64) -> Vec<(f64, String)> {
        let mut watch = ScheduleWatch::new(schedule);
        let mut now = from;
        let mut events = Vec::new();
        while now.0.saturating_since(from.0) <= Duration::from_secs(seconds) {
            let at = now.0.saturating_since(from.0).as_secs_f64();
            events.extend(watch.handle_time(now).into_iter().map(|event| (at, event.to_string())));
            let Some(next) = watch.poll_time(now) else { break };
            assert!(next > now, "time goes on");
            now = next;
        }
        events
    }

    fn parse(name: &str, text: &str) -> Schedule {
        Schedule::parse(Path::new(name), text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn events(story: &[(f64, String)]) -> Vec<(f64, &str)> {
        story.iter().map(|(at, event)| (*at, event.as_str())).collect()
    }

    /// 2026-11-22T06:00:00Z
    const SIX: Utc = Utc(Instant::from_secs(1_795_327_200));

    #[test]
    fn a_list_of_cuts_is_told_with_its_warnings() {
        let toml = "interface = \"wwan0\"\nwarn = \"500 ms\"\n\
                    [[down]]\nat = 2026-11-22T06:00:10Z\nfor = \"5 s\"\n\
                    [[down]]\nat = 2026-11-22T07:01:00+01:00\nfor = \"1 s\"\n";
        let csv = "# a tunnel and a bridge\ntime,event\n2026-11-22T06:00:10Z,down\n2026-11-22T06:00:15Z, up\n\n\
                   2026-11-22T06:01:00Z,down\n2026-11-22T06:01:01Z,up\n";
        let mut from_csv = parse("line.csv", csv);
        from_csv.warn = Duration::from_millis(500);
        let from_toml = parse("line.toml", toml);
        assert_eq!(from_toml.interface.as_deref(), Some("wwan0"));
        for schedule in [from_toml, from_csv] {
            let story = story(schedule, SIX, 3600);
            let expected = [
                (9.5, "fading in 500ms"),
                (10.0, "down"),
                (15.0, "up"),
                (59.5, "fading in 500ms"),
                (60.0, "down"),
                (61.0, "up"),
            ];
            assert_eq!(events(&story), expected);
        }
    }

    #[test]
    fn passes_of_a_satellite_come_again() {
        // Six seconds of pass in ten, across the seam of the period.
        let text = "repeat = \"10 s\"\nstart = 2026-11-22T06:00:00Z\nwarn = \"1 s\"\n\
                    [[up]]\nafter = \"0 s\"\nfor = \"4 s\"\n[[up]]\nafter = \"8 s\"\nfor = \"2 s\"\n";
        let schedule = parse("passes.toml", text);
        let before = Utc(SIX.0 - Duration::from_secs(5));
        let story = story(schedule, before, 30);
        let expected = [
            (8.0, "fading in 1s"),
            (9.0, "down"),
            (13.0, "up"),
            (18.0, "fading in 1s"),
            (19.0, "down"),
            (23.0, "up"),
            (28.0, "fading in 1s"),
            (29.0, "down"),
        ];
        assert_eq!(events(&story), expected);
    }

    #[test]
    fn a_cut_across_the_seam_of_a_period_is_one() {
        let text = "repeat = \"10 s\"\nstart = 2026-11-22T06:00:00Z\nwarn = \"0 s\"\n\
                    [[down]]\nafter = \"0 s\"\nfor = \"2 s\"\n[[down]]\nafter = \"9 s\"\nfor = \"1 s\"\n";
        let story = story(parse("x.toml", text), SIX, 25);
        assert_eq!(
            events(&story),
            [(0.0, "down"), (2.0, "up"), (9.0, "down"), (12.0, "up"), (19.0, "down"), (22.0, "up")]
        );
    }

    // Claim: A timetable is followed when the calendar jumps; an invalid one is rejected with its position.
    // Tests: `schedule::a_file_that_makes_no_sense_is_refused_with_the_place`
    #[test]
    fn a_calendar_that_jumps_is_followed() {
        let text = "[[down]]\nat = 2026-11-22T06:00:10Z\nfor = \"5 s\"\n";
        let mut watch = ScheduleWatch::new(parse("x.toml", text));
        let at = |seconds| Utc(SIX.0 + Duration::from_secs(seconds));
        let mut events = |time| watch.handle_time(time).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(events(at(12)), ["down"]);
        assert_eq!(events(at(0)), ["up"]);
        assert_eq!(events(at(3600)), [] as [&str; 0]);
        assert_eq!(events(Utc(at(10).0 - Duration::from_millis(100))), ["fading in 100ms"]);
        assert_eq!(events(at(3600)), ["recovered"]);
        assert_eq!(watch.poll_time(at(3600)), None);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_with_the_place() {
        for (name, text, place, says) in [
            ("a.toml", "", "a.toml:1:1", "[[down]]"),
            ("a.toml", "[[down]]\nat = 2026-11-22T06:00:00Z\n", "a.toml:1:1", "for"),
            ("a.toml", "[[down]]\nafter = \"1 s\"\nfor = \"1 s\"", "a.toml:2:9", "repeat"),
            ("a.toml", "[[down]]\nat = 2026-11-22T06:00:00\nfor = \"1 s\"", "a.toml:2:6", "Z"),
            ("a.toml", "[[down]]\nat = 2026-11-22T06:00:00Z\nfor = \"0 s\"", "a.toml:3:7", "a time above 0 s"),
            (
                "a.toml",
                "[[down]]\nat = 2026-11-22T06:00:09Z\nfor = \"1 s\"\n[[down]]\nat = 2026-11-22T06:00:09Z\nfor = \"1 s\"",
                "a.toml:5:6",
                "before",
            ),
            ("a.toml", "repeat = \"1 s\"\n[[down]]\nafter = \"0 s\"\nfor = \"1 s\"", "a.toml:1:10", "start"),
            (
                "a.toml",
                "repeat = \"1 s\"\nstart = 2026-11-22T06:00:00Z\n[[down]]\nafter = \"500 ms\"\nfor = \"1 s\"",
                "a.toml:5:7",
                "period",
            ),
            ("a.toml", "[[up]]\nat = 2026-11-22T06:00:00Z\nfor = \"1 s\"\n[[down]]", "a.toml:4:", ""),
            ("a.csv", "time,event\nyesterday,down", "a.csv:2:1", "2026"),
            ("a.csv", "2026-11-22T06:00:00Z,sideways", "a.csv:1:22", "down or up"),
            ("a.csv", "2026-11-22T06:00:00Z,up\n2026-11-22T06:00:00Z,down", "a.csv:2:1", "not after the previous"),
            ("a.csv", "2026-11-22T06:00:00Z", "a.csv:1:1", "time,event"),
            ("a.csv", "# nothing", "a.csv:1:1", "no cut"),
        ] {
            let error = Schedule::parse(Path::new(name), text).unwrap_err().to_string();
            assert!(error.starts_with(place) && error.contains(says), "{text:?}: {error}");
        }
    }
}
