//! Formatting of quantities for people, and of file names.

use std::collections::BTreeSet;

use holdover_base::Duration;

/// Seconds with three significant digits: `25 ms`, `3.4 s`, `12 min 5 s`.
pub(crate) fn seconds(secs: f64) -> String {
    match secs {
        secs if !secs.is_finite() => "never".to_owned(),
        0.0 => "0 s".to_owned(),
        secs if secs < 0.0009995 => format!("{} µs", significant(secs * 1e6)),
        secs if secs < 0.9995 => format!("{} ms", significant(secs * 1e3)),
        secs if secs < 599.5 => format!("{} s", significant(secs)),
        secs if secs < 5.0 * 3600.0 => {
            let secs = secs.round() as u64;
            if secs.is_multiple_of(60) {
                format!("{} min", secs / 60)
            } else {
                format!("{} min {} s", secs / 60, secs % 60)
            }
        }
        secs => format!("{} h", significant(secs / 3600.0)),
    }
}

/// Formats a span like [`seconds`].
pub(crate) fn duration(span: Duration) -> String {
    seconds(span.as_secs_f64())
}

/// A time of a run: always in seconds, like the axes of plots.
pub(crate) fn moment(secs: f64) -> String {
    let text = format!("{secs:.3}");
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// `9.41 Mbit/s`.
pub(crate) fn bit_rate(bits_per_second: f64) -> String {
    scaled(bits_per_second, "bit/s")
}

/// `10.5 MB`; decimal prefixes, as with rates.
pub(crate) fn bytes(bytes: f64) -> String {
    if bytes < 1000.0 {
        format!("{} {}", bytes.round(), if bytes == 1.0 { "byte" } else { "bytes" })
    } else {
        scaled(bytes, "B")
    }
}

fn scaled(value: f64, unit: &str) -> String {
    let (factor, prefix) = match value {
        value if value < 999.5 => (1.0, ""),
        value if value < 999.5e3 => (1e3, "k"),
        value if value < 999.5e6 => (1e6, "M"),
        _ => (1e9, "G"),
    };
    format!("{} {prefix}{unit}", significant(value / factor))
}

/// `71.2 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", significant(share * 100.0))
}

/// Three significant digits, without trailing zeros.
pub(crate) fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        value if value >= 0.9995 || value == 0.0 => 2,
        value => (2 - value.log10().floor() as i32).clamp(0, 6) as usize,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// `1,234,567`.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 outage`, `2 outages`.
pub(crate) fn counted(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Unique names for files and directories: letters, digits and `-_.`.
#[derive(Debug, Default)]
pub(crate) struct FileNames {
    used: BTreeSet<String>,
}

impl FileNames {
    /// A unique file name for `name`.
    pub(crate) fn unique(&mut self, name: &str) -> String {
        let plain = plain_name(name);
        let mut unique = plain.clone();
        let mut number = 2;
        // Names must differ on case-insensitive file systems.
        while !self.used.insert(unique.to_lowercase()) {
            unique = format!("{plain}-{number}");
            number += 1;
        }
        unique
    }
}

/// `name` with characters unsuited to file names replaced by `-`.
pub(crate) fn plain_name(name: &str) -> String {
    const MAX_LEN: usize = 80;
    let mut plain = String::new();
    for letter in name.chars().take(MAX_LEN) {
        let letter = if letter.is_ascii_alphanumeric() || "._".contains(letter) { letter } else { '-' };
        if !(letter == '-' && plain.ends_with('-')) {
            plain.push(letter);
        }
    }
    let plain = plain.trim_matches(['-', '.']);
    if plain.is_empty() { "unnamed".to_owned() } else { plain.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_mean_something() {
        for (secs, text) in [
            (0.0, "0 s"),
            (0.025, "25 ms"),
            (0.9999, "1 s"),
            (3.4, "3.4 s"),
            (12.345, "12.3 s"),
            (599.6, "10 min"),
            (725.0, "12 min 5 s"),
            (36_000.0, "10 h"),
        ] {
            assert_eq!(seconds(secs), text);
        }
        assert_eq!(bit_rate(9_412_345.0), "9.41 Mbit/s");
        assert_eq!(bit_rate(999_999.0), "1 Mbit/s");
        assert_eq!((bytes(1.0), bytes(999.0), bytes(1448.0)), ("1 byte".into(), "999 bytes".into(), "1.45 kB".into()));
        assert_eq!(
            (percent(0.712_34), percent(0.000_123_4), percent(0.0)),
            ("71.2 %".into(), "0.0123 %".into(), "0 %".into())
        );
        assert_eq!((count(1), count(1234), count(1_234_567)), ("1".into(), "1,234".into(), "1,234,567".into()));
        assert_eq!((moment(10.0), moment(1.2345)), ("10 s".into(), "1.234 s".into()));
    }

    #[test]
    fn file_names_are_plain_and_unique() {
        let mut names = FileNames::default();
        assert_eq!(names.unique("linux-6, 1 % loss"), "linux-6-1-loss");
        assert_eq!(names.unique("Linux-6/1/loss"), "Linux-6-1-loss-2");
        assert_eq!(names.unique("../.."), "unnamed");
        assert_eq!(names.unique(""), "unnamed-2");
    }
}
