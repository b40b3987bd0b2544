//! Ports in configuration files.

use core::fmt;
use core::str::FromStr;

use crate::words::Word;

/// A range of ports, inclusive: `22`, `5000-5999`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

/// Invalid ports.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid port \"{0}\": expected {expected}", expected = Ports::EXPECTED)]
pub struct PortsError(Box<str>);

impl Ports {
    /// Every port.
    pub const ALL: Self = Self { first: 0, last: u16::MAX };

    /// A single one.
    pub const fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }
}

impl Word for Ports {
    const NAME: &'static str = "Ports";
    const EXPECTED: &'static str = "a port, or two with a hyphen between them, such as 22 or \"5000-5999\"";
    const MAY_BE_NUMBER: bool = true;
}

impl FromStr for Ports {
    type Err = PortsError;

    fn from_str(text: &str) -> Result<Self, PortsError> {
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|&port| port > 0);
        let ports = match text.split_once('-') {
            Some((first, last)) => port(first).zip(port(last)).map(|(first, last)| Self { first, last }),
            None => port(text).map(Self::one),
        };
        ports.filter(|ports| ports.first <= ports.last).ok_or_else(|| PortsError(text.into()))
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}
