//! The date and time of day, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// A second of the Gregorian calendar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Utc {
    year: u64,
    month: u64,
    day: u64,
    second_of_day: u64,
}

impl Utc {
    pub(super) fn now() -> Self {
        // A clock before 1970 is as good as one that was never set.
        Self::from_unix(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    fn from_unix(seconds: u64) -> Self {
        let (mut days, second_of_day) = (seconds / 86_400, seconds % 86_400);
        let mut year = 1970;
        while days >= days_of(year) {
            days -= days_of(year);
            year += 1;
        }
        let mut month = 1;
        while days >= days_of_month(year, month) {
            days -= days_of_month(year, month);
            month += 1;
        }
        Self { year, month, day: days + 1, second_of_day }
    }

    /// `20260131-093005`, for names of directories.
    pub(super) fn stamp(self) -> String {
        let [hour, minute, second] = self.time();
        format!("{:04}{:02}{:02}-{hour:02}{minute:02}{second:02}", self.year, self.month, self.day)
    }

    /// `2026-01-31T09:30:05Z`.
    pub(super) fn iso_8601(self) -> String {
        let [hour, minute, second] = self.time();
        format!("{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", self.year, self.month, self.day)
    }

    fn time(self) -> [u64; 3] {
        [self.second_of_day / 3600, self.second_of_day / 60 % 60, self.second_of_day % 60]
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

fn days_of(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_of_month(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Utc::from_unix(unix).iso_8601(), text);
        }
        assert_eq!(Utc::from_unix(951_782_399).stamp(), "20000228-235959");
    }
}
