//! Levels of received signals.

use core::fmt;
use core::str::FromStr;

use crate::written_as_text::written_as_text;

/// The strength of a received signal in dBm, from -120 to 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Dbm(pub i8);

const EXPECTED_DBM: &str = "a signal strength from \"-120 dBm\" to \"0 dBm\", such as \"-78 dBm\"";

impl FromStr for Dbm {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.trim().strip_suffix("dBm").and_then(|number| number.trim().parse().ok());
        number.filter(|dbm| (-120..=0).contains(dbm)).map(Self).ok_or(EXPECTED_DBM)
    }
}

impl fmt::Display for Dbm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dBm", self.0)
    }
}

written_as_text! {
    Dbm: EXPECTED_DBM, "^(0|-[0-9]{1,3}) ?dBm$";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_level_parses_to_the_same() {
        let level: Dbm = "-78 dBm".parse().unwrap();
        assert_eq!((level, level.to_string().as_str()), (Dbm(-78), "-78 dBm"));
        for text in ["-78", "5 dBm", "-121 dBm", "dBm"] {
            assert!(text.parse::<Dbm>().is_err(), "{text}");
        }
    }
}
