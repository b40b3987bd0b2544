//! Interface names and patterns in configuration files.

use core::fmt;
use core::str::FromStr;

use crate::policy::pattern;
use crate::written_as_text::written_as_text;

/// An interface's name, or a pattern with `*` (any letters) and `?` (one letter).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NamePattern(String);

const EXPECTED_PATTERN: &str = "the name of an interface, or a pattern with * and ?, such as \"wlan*\"";

/// `IFNAMSIZ` without its terminating zero; a pattern may be a little longer than what it matches.
const LONGEST_PATTERN: usize = 32;

impl NamePattern {
    /// Whether the name matches.
    pub fn matches(&self, name: &str) -> bool {
        pattern::fits(&self.0, name)
    }
}

impl FromStr for NamePattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |letter: char| !letter.is_whitespace() && !letter.is_control() && letter != '/';
        let is_fine = !text.is_empty() && text.len() <= LONGEST_PATTERN && text.chars().all(is_name);
        is_fine.then(|| Self(text.to_owned())).ok_or(EXPECTED_PATTERN)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

written_as_text! {
    NamePattern: EXPECTED_PATTERN, "^[^\\s/]{1,32}$";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        for (pattern, name, is_meant) in [
            ("wlan0", "wlan0", true),
            ("wlan0", "wlan01", false),
            ("wlan*", "wlan0", true),
            ("wlan*", "wlan", true),
            ("w*n?", "wwan0", true),
            ("*", "anything", true),
            ("?", "ab", false),
            ("*0*1", "eth0v1", true),
            ("*a*b*c*d*", "xaxbxcx", false),
        ] {
            assert_eq!(pattern.parse::<NamePattern>().unwrap().matches(name), is_meant, "{pattern} {name}");
        }
        for text in ["", "two words", "a/b", "a-name-that-is-longer-than-a-name-can-be"] {
            assert!(text.parse::<NamePattern>().is_err(), "{text}");
        }
    }
}
