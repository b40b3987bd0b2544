//! The result of a script.

use core::fmt;

use serde::Serialize;

/// The result of a script under one IP version.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The IP version of the run.
    pub ip_version: IpVersion,
    /// The verdict.
    pub verdict: Verdict,
    /// The unsupported feature for which it was not run.
    pub reason: Option<String>,
    /// The differences from the script, in order.
    pub differences: Vec<Difference>,
    /// Ignored settings that are not supported.
    pub notes: Vec<String>,
}

/// The verdict on a script.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything happened as in the script.
    Passed,
    /// Something differed.
    Differs,
    /// The script tests an unsupported feature.
    NotRun,
}

/// A difference between the script and Holdover.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Difference {
    /// The line of the script.
    pub line: u32,
    /// The time, in seconds of the script.
    pub time_s: f64,
    /// The script's expectation.
    pub expected: String,
    /// The actual result.
    pub actual: String,
}

/// The IP version of a script's packets.
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
    /// All versions.
    pub const ALL: [Self; 3] = [Self::V4, Self::V6, Self::V4Mapped];

    /// The name for `--ip_version`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
            Self::V4Mapped => "ipv4-mapped-ipv6",
        }
    }

    /// The version called `name`.
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
