//! `r1_counter.toml`: below which number the generations of this host's puzzles were used (RFC 7401 section 4.1.4). Peers refuse an R1 whose
//! counter is lower than the last one of the same host. Calendar time alone would do that to them if it went back between two runs.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{FileError, WriteError, read_toml, replace};

const FILE: &str = "r1_counter.toml";
/// Not secret; like the others that the daemon writes.
const MODE: u32 = 0o600;
/// The number of generations that one write reserves: with at most one a minute, enough for an hour.
const RESERVED: u64 = 64;

/// Why the file is unusable.
pub type R1CounterFileError = FileError<Infallible>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// The first number that neither an earlier run has used nor this one will use.
    next: u64,
}

/// The file, and its content.
#[derive(Debug)]
pub struct R1CounterFile {
    path: PathBuf,
    reserved: u64,
}

impl R1CounterFile {
    /// The file of a directory, and the first counter of this run: calendar time in seconds since 1970, or the number in the file if that
    /// is greater. It is reserved before it is used.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is invalid: this run has no greater counter than time has, and the file stays.
    pub fn open(directory: &Path, utc_s: u64) -> Result<(Self, u64), R1CounterFileError> {
        let path = directory.join(FILE);
        let earlier = read_toml::<Written, Infallible>(&path)?.map_or(0, |written| written.next);
        let first = utc_s.max(earlier);
        Ok((Self { path, reserved: first }, first))
    }

    /// Reserves more generations if `next`, the counter of the next one, is near the end of those reserved.
    ///
    /// # Errors
    ///
    /// The file cannot be written. It is not written again before the next reservation is due.
    pub fn reserve(&mut self, next: u64) -> Result<(), WriteError> {
        if next.saturating_add(RESERVED / 2) <= self.reserved {
            return Ok(());
        }
        self.reserved = next.saturating_add(RESERVED);
        let text = toml::to_string(&Written { next: self.reserved }).unwrap_or_default();
        replace(&self.path, MODE, &text, false)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::files::tests::Place;

    fn run(place: &Place, utc_s: u64, generations: u64) -> (u64, u64) {
        let (mut file, first) = R1CounterFile::open(&place.0, utc_s).unwrap();
        for counter in first..=first + generations {
            file.reserve(counter).unwrap();
        }
        (first, first + generations)
    }

    // Claim: The counters of puzzles grow from run to run, also if the clock is set back between two runs, and after crashes.
    // Tests: `r1_counter::a_clock_set_back_between_two_runs`
    #[test]
    fn counters_grow_from_run_to_run() {
        let place = Place::new("counters");
        let runs = [(5000, 10), (4000, 200), (4001, 0), (4001, 0), (1, 1000), (1_000_000, 5), (3000, 1)];
        let mut greatest = 0;
        for (utc_s, generations) in runs {
            let (first, last) = run(&place, utc_s, generations);
            assert!(first > greatest && first >= utc_s, "{first} after {greatest} at {utc_s}");
            greatest = last;
        }
        assert!(greatest < 1_000_500, "time is followed where it goes on: {greatest}");
    }

    #[test]
    fn one_write_serves_half_an_hour() {
        let place = Place::new("writes");
        let (mut file, first) = R1CounterFile::open(&place.0, 7000).unwrap();
        let path = place.0.join(FILE);
        assert!(!path.exists());
        let mut writes = 0;
        for counter in first..first + 320 {
            file.reserve(counter).unwrap();
            writes += usize::from(fs::remove_file(&path).is_ok());
        }
        assert_eq!(writes, 10);
    }

    #[test]
    fn an_invalid_file_is_reported_and_kept() {
        let place = Place::new("invalid-counter");
        for text in ["next = -1", "next = 1\nlast = 2", "", "\0"] {
            fs::write(place.0.join(FILE), text).unwrap();
            assert!(matches!(R1CounterFile::open(&place.0, 1), Err(FileError::Contents { .. })), "{text:?}");
            assert_eq!(fs::read_to_string(place.0.join(FILE)).unwrap(), text);
        }
    }
}
