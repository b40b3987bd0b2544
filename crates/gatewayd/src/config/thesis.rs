//! `[thesis]`.

use holdover_gateway::WarningSign;
use holdover_gateway::daemon::ThesisConfig;
use holdover_gateway::divert::DiverterConfig;
use holdover_host::time_text::{Time, between};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Mode "thesis": packets wait while a mobile host predicts its absence, and are released in bursts.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "GatewayThesis")]
pub struct ThesisTable {
    /// How a mobile host predicts its absence.
    pub sign: WarningSign,
    /// How many packets are released at once (the burst limit).
    #[schemars(range(min = 1, max = 1000))]
    pub burst: u32,
    /// How long such a prediction counts if no source reports the mobile host absent.
    #[serde(deserialize_with = "between::<100, 600_000, _>")]
    pub longest_warning: Time,
}

impl Default for ThesisTable {
    /// By the window, two at once, 10 s.
    fn default() -> Self {
        let ThesisConfig { sign, burst_packets } = ThesisConfig::default();
        Self { sign, burst: burst_packets, longest_warning: Time(DiverterConfig::default().longest_warning) }
    }
}

impl ThesisTable {
    /// The parameters of the mode.
    pub(crate) const fn config(&self) -> ThesisConfig {
        ThesisConfig { sign: self.sign, burst_packets: self.burst }
    }

    /// The key of an invalid value, and what is expected.
    pub(super) fn problem(&self) -> Option<(&'static str, &'static str)> {
        let is_fine = (1..=1000).contains(&self.burst);
        (!is_fine).then_some(("burst", "expected a number from 1 to 1000"))
    }
}
