//! What came of a script.

use core::fmt;

use serde::Serialize;

/// What came of one script under one IP version.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The addresses it ran with.
    pub ip_version: IpVersion,
    /// Whether it passed.
    pub verdict: Verdict,
    /// Why it was not run: what it needs that Holdover does not have.
    pub reason: Option<String>,
    /// Where Holdover did something else than the script expects, in order.
    pub differences: Vec<Difference>,
    /// Settings that were not understood, and passed over.
    pub notes: Vec<String>,
}

/// Whether a script passed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything happened as the script says.
    Passed,
    /// Something did not.
    Differs,
    /// It tests what Holdover does not have.
    NotRun,
}

/// A place where Holdover did something else than the script expects.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Difference {
    /// The script's line.
    pub line: u32,
    /// When it happened, in seconds of the script.
    pub time_s: f64,
    /// What the script expects.
    pub expected: String,
    /// What happened.
    pub actual: String,
}

/// The addresses that a script's packets have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
pub enum IpVersion {
    /// IPv4.
    #[default]
    #[serde(rename = "ipv4")]
    V4,
    /// IPv6.
    #[serde(rename = "ipv6")]
    V6,
    /// IPv4 on an IPv6 socket.
    #[serde(rename = "ipv4-mapped-ipv6")]
    V4Mapped,
}

impl IpVersion {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::V4, Self::V6, Self::V4Mapped];

    /// The name in `--ip_version`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
            Self::V4Mapped => "ipv4-mapped-ipv6",
        }
    }

    /// The version of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }
}

impl fmt::Display for IpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Differs => "differs",
            Self::NotRun => "not run",
        })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} at {:.6} s: expected {}; got {}", self.line, self.time_s, self.expected, self.actual)
    }
}
