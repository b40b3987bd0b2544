//! Timetables as files: TOML, or CSV with a time and `down` or `up` in each line.

use std::path::Path;

use holdover_base::{Duration, Instant};
use serde::Deserialize;
use toml::Spanned;
use toml::value::{Datetime, Offset};

use super::{Cut, Repeat, Schedule};
use holdover_host::clock::Utc;
use holdover_host::config_error::ConfigError;
use holdover_host::time_text::Time;

/// The lead of predictions if the file has none: a round trip of most paths, with queues.
const WARN: Duration = Duration::from_millis(300);

/// A timetable in TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    interface: Option<String>,
    warn: Option<Time>,
    repeat: Option<Spanned<Time>>,
    start: Option<Spanned<Datetime>>,
    #[serde(default)]
    down: Vec<Spanned<Entry>>,
    #[serde(default)]
    up: Vec<Spanned<Entry>>,
}

/// A time with or without a link.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    at: Option<Spanned<Datetime>>,
    after: Option<Spanned<Time>>,
    r#for: Spanned<Time>,
}

/// A problem at a byte of the text.
type Problem = (usize, String);

impl Schedule {
    /// Reads a timetable: CSV if its name ends in `.csv`, TOML otherwise.
    ///
    /// # Errors
    /// The file cannot be read, or is invalid.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { file: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Parses a timetable; its name decides the format.
    ///
    /// # Errors
    /// The text is invalid.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        let parsed = if is_csv {
            parse_csv(text)
        } else {
            toml::from_str(text)
                .map_err(|error: toml::de::Error| {
                    (error.span().map_or(0, |span| span.start), error.message().trim().replace('\n', "; "))
                })
                .and_then(from_file)
        };
        parsed.map_err(|(offset, message)| ConfigError::at(path, text, offset, message))
    }
}

fn from_file(file: File) -> Result<Schedule, Problem> {
    let repeat = match (&file.repeat, &file.start) {
        (None, _) => None,
        (Some(repeat), None) => {
            return Err((
                repeat.span().start,
                "a repeating timetable needs a start, such as start = 2026-11-22T06:00:00Z".into(),
            ));
        }
        (Some(repeat), Some(start)) => {
            let Time(every) = *repeat.get_ref();
            if every < Duration::from_secs(1) {
                return Err((repeat.span().start, "the period must be at least 1 s".into()));
            }
            Some(Repeat { start: calendar(start)?, every })
        }
    };
    if let (None, Some(start)) = (repeat, &file.start) {
        return Err((start.span().start, "start needs a repeating timetable, such as repeat = \"95 min\"".into()));
    }
    let entries = match (&file.down[..], &file.up[..]) {
        ([], []) => return Err((0, "no cut: expected [[down]] or [[up]] with at (or after) and for".into())),
        ([_, ..], [up, ..]) => {
            return Err((
                up.span().start,
                "expected either [[down]] or [[up]]: the rest of the time is the other".into(),
            ));
        }
        (entries, []) | ([], entries) => entries,
    };
    let times = entries.iter().map(|entry| time_of(entry, repeat)).collect::<Result<Vec<_>, _>>()?;
    for (earlier, (later, entry)) in times.iter().zip(times.iter().zip(entries).skip(1)) {
        if later.from < earlier.to {
            let at = entry.get_ref().at.as_ref().map(Spanned::span);
            let at = at.or_else(|| entry.get_ref().after.as_ref().map(Spanned::span));
            let message = "this entry begins before the previous one ends".into();
            return Err((at.unwrap_or_else(|| entry.span()).start, message));
        }
    }
    let cuts = if file.up.is_empty() { times } else { between(&times, repeat) };
    if cuts.is_empty() {
        return Err((0, "no cut: the link is always up".into()));
    }
    let Time(warn) = file.warn.unwrap_or(Time(WARN));
    Ok(Schedule { interface: file.interface.map(Into::into), warn, cuts, repeat })
}

fn time_of(entry: &Spanned<Entry>, repeat: Option<Repeat>) -> Result<Cut, Problem> {
    let Entry { at, after, r#for } = entry.get_ref();
    let Time(length) = *r#for.get_ref();
    if length.is_zero() {
        return Err((r#for.span().start, "expected a time above 0 s".into()));
    }
    let from = match (at, after, repeat) {
        (Some(at), None, None) => calendar(at)?.0,
        (None, Some(after), Some(_)) => Instant::ZERO + after.get_ref().0,
        (Some(at), _, Some(_)) => {
            return Err((
                at.span().start,
                "a repeating timetable needs after, from each start, such as after = \"12 min\"".into(),
            ));
        }
        (_, Some(after), None) => {
            return Err((after.span().start, "after needs a repeating timetable, such as repeat = \"95 min\"".into()));
        }
        (None, None, _) => {
            return Err((entry.span().start, "expected a time, such as at = 2026-11-22T06:10:00Z".into()));
        }
    };
    let to = from + length;
    if repeat.is_some_and(|repeat| to > Instant::ZERO + repeat.every) {
        return Err((
            r#for.span().start,
            "this entry ends after the period: write the rest as an entry at its beginning".into(),
        ));
    }
    Ok(Cut { from, to })
}

/// The rest of the time is down; before the first time and after the last there is no statement, unless the timetable
/// repeats.
fn between(ups: &[Cut], repeat: Option<Repeat>) -> Vec<Cut> {
    let mut cuts: Vec<Cut> = ups.windows(2).map(|pair| Cut { from: pair[0].to, to: pair[1].from }).collect();
    if let (Some(Repeat { every, .. }), [first, .., last]) = (repeat, &[ups, ups].concat()[..]) {
        cuts.insert(0, Cut { from: Instant::ZERO, to: first.from });
        cuts.push(Cut { from: last.to, to: Instant::ZERO + every });
    }
    cuts.retain(|cut| cut.from < cut.to);
    cuts
}

fn parse_csv(text: &str) -> Result<Schedule, Problem> {
    let mut cuts: Vec<Cut> = Vec::new();
    let mut down_since = None;
    let mut last = Instant::ZERO;
    let mut offset = 0;
    for (number, whole) in text.split_inclusive('\n').enumerate() {
        let start = offset;
        offset += whole.len();
        let line = whole.trim();
        if line.is_empty() || line.starts_with('#') || (number_is_heading(number, text) && line == "time,event") {
            continue;
        }
        let Some((time, event)) = line.split_once(',') else {
            return Err((start, "expected time,event, such as 2026-11-22T06:10:00Z,down".into()));
        };
        let Ok(Utc(at)) = time.trim().parse::<Datetime>().map_err(|_| ()).and_then(|time| utc(&time)) else {
            return Err((start, format!("expected a time such as 2026-11-22T06:10:00Z, found \"{}\"", time.trim())));
        };
        if at <= last {
            return Err((start, "this time is not after the previous one".into()));
        }
        last = at;
        match event.trim() {
            "down" => _ = down_since.get_or_insert(at),
            "up" => cuts.extend(down_since.take().map(|from| Cut { from, to: at })),
            other => {
                let column = whole.find(',').map_or(0, |comma| comma + 1);
                return Err((start + column, format!("expected down or up, found \"{other}\"")));
            }
        }
    }
    // A cut without an end lasts until another source reports the link up.
    cuts.extend(down_since.map(|from| Cut { from, to: Instant::FAR_FUTURE }));
    if cuts.is_empty() {
        return Err((0, "no cut: expected a line such as 2026-11-22T06:10:00Z,down".into()));
    }
    Ok(Schedule { interface: None, warn: WARN, cuts, repeat: None })
}

/// Whether all earlier lines are empty or comments.
fn number_is_heading(number: usize, text: &str) -> bool {
    text.lines().take(number).all(|line| line.trim().is_empty() || line.trim().starts_with('#'))
}

fn calendar(time: &Spanned<Datetime>) -> Result<Utc, Problem> {
    utc(time.get_ref()).map_err(|()| {
        (time.span().start, "expected a time with Z or an offset from UTC, such as 2026-11-22T06:10:00Z".into())
    })
}

/// A time with date and offset, not before 1970.
fn utc(time: &Datetime) -> Result<Utc, ()> {
    let (Some(date), Some(clock), Some(offset)) = (time.date, time.time, time.offset) else { return Err(()) };
    let minutes = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    let days = days_since_1970(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let of_day = i64::from(clock.hour) * 3600 + i64::from(clock.minute) * 60 + i64::from(clock.second.unwrap_or(0));
    let seconds = u64::try_from(days * 86_400 + of_day - minutes * 60).map_err(|_| ())?;
    let nanos = Duration::from_nanos(clock.nanosecond.unwrap_or(0).into());
    Ok(Utc(Instant::from_secs(seconds) + nanos))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March here, so that the leap day is the
/// last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let months_since_march = (month + 9) % 12;
    let day_of_year = (153 * months_since_march + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719,468 days lie between the first of March of the year 0 and the epoch.
    year * 365 + leap_days + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("2000-03-01T01:00:00+01:00", 951_868_800),
            ("2026-11-21T23:59:59Z", 1_795_305_599),
            ("2100-01-01T00:00:00Z", 4_102_444_800),
        ] {
            assert_eq!(utc(&text.parse().unwrap()), Ok(Utc(Instant::from_secs(seconds))), "{text}");
        }
        for text in ["1969-12-31T23:59:59Z", "2026-11-22T06:00:00", "2026-11-22", "06:00:00"] {
            assert_eq!(utc(&text.parse().unwrap()), Err(()), "{text}");
        }
    }
}
