//! The example scenarios, compiled in so that they run without a checkout.

use crate::error::ScenarioError;
use crate::scenario::Scenario;
use crate::traces::Files;

/// An example scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Builtin {
    /// Its name.
    pub name: &'static str,
    /// The text of its file.
    pub text: &'static str,
    /// The names and texts of the files that it names.
    pub files: &'static [(&'static str, &'static str)],
}

macro_rules! example {
    ($name:literal $(, $file:literal)*) => {
        Builtin {
            name: $name,
            text: include_str!(concat!("../../../scenarios/", $name, ".toml")),
            files: &[$(($file, include_str!(concat!("../../../scenarios/", $file)))),*],
        }
    };
}

impl Builtin {
    /// All examples.
    pub const ALL: &'static [Self] = &[
        example!("train-tunnel"),
        example!("elevator"),
        example!("cell-edge-ping-pong"),
        example!("office-move"),
        example!("satellite-pass", "traces/satellite-pass.csv"),
        example!("switch-port"),
        example!("access-point"),
        example!("backup-path"),
        example!("base-stations"),
        example!("supervisors"),
        example!("gateway"),
        example!("lte-trace", "traces/lte-drive.trace"),
    ];

    /// The example called `name`, with or without `.toml`.
    pub fn find(name: &str) -> Option<&'static Self> {
        let name = name.strip_suffix(".toml").unwrap_or(name);
        Self::ALL.iter().find(|builtin| builtin.name == name)
    }

    /// Reads the scenario.
    ///
    /// # Errors
    ///
    /// Never: a test reads all examples.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        Scenario::parse(&format!("{}.toml", self.name), self.text, *self)
    }
}

impl Files for Builtin {
    fn read(&self, name: &str) -> Result<String, String> {
        let file = self.files.iter().find(|(file, _)| *file == name);
        file.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "it does not come with the built-in scenario".to_owned())
    }
}
