//! `[sweep]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Percent;
use crate::statistics::Method;
use crate::sweep::Metric;
use crate::word::{Word, vocabulary};

/// The variation of a scenario: the axes, the number of runs of each point, and the comparison.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sweep {
    /// The axes: every combination of their values is a point.
    #[serde(default, rename = "axis", skip_serializing_if = "Vec::is_empty")]
    pub(crate) axes: Vec<Axis>,
    /// How often each point is run, each time with another seed. The default is once.
    pub(crate) replicate: Option<Replicate>,
    /// The variants to compare. The default is all with the first, run by run of the same seed.
    pub(crate) compare: Option<Compare>,
}

/// One field and its values.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Axis {
    /// The path of the field, as for a variant.
    pub(crate) path: String,
    /// The name in tables and plots. The default is the path.
    pub(crate) label: Option<String>,
    /// The values.
    #[schemars(with = "Option<Vec<serde_json::Value>>")]
    pub(crate) values: Option<Vec<toml::Value>>,
    /// A range of values, instead of a list.
    pub(crate) range: Option<Range>,
}

/// Values from one to another, with "step" or "points".
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Range {
    /// The first value, with its unit.
    #[schemars(with = "serde_json::Value")]
    pub(crate) from: toml::Value,
    /// The last value, in the same unit.
    #[schemars(with = "serde_json::Value")]
    pub(crate) to: toml::Value,
    /// The distance between two values, in the same unit.
    #[schemars(with = "Option<serde_json::Value>")]
    pub(crate) step: Option<toml::Value>,
    /// The number of values, both ends included.
    pub(crate) points: Option<u32>,
    /// The spacing of "points". The default is "linear".
    pub(crate) scale: Option<Word<Scale>>,
}

/// The spacing of points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scale {
    Linear,
    Logarithmic,
}

vocabulary!(Scale as "Scale" { Self::Linear => "linear", Self::Logarithmic => "logarithmic" });

/// How often each point is run: until the half-width of the 95 % confidence interval of a mean, relative to that mean, is
/// below a bound.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replicate {
    /// The bound. Without it, there are "min" runs.
    pub(crate) relative_error: Option<Percent>,
    /// The averaged metric. The default is goodput of all flows.
    pub(crate) of: Option<Measure>,
    /// The least number of runs. The default is 5 with "relative_error", else 1.
    pub(crate) min: Option<u32>,
    /// The greatest number of runs. The default is 100.
    pub(crate) max: Option<u32>,
}

/// The metric of each run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measure {
    /// The metric.
    pub(crate) metric: Word<Metric>,
    /// The flow. The default is all flows: their sum for rates and counts, their mean for times and ratios.
    pub(crate) flow: Option<String>,
}

/// The variants to compare, and the statistical test.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compare {
    /// The variant with which the others are compared. The default is the first.
    pub(crate) baseline: Option<String>,
    /// The other variants. The default is all.
    pub(crate) with: Option<Vec<String>>,
    /// The compared metric. The default is what "replicate" averages.
    pub(crate) of: Option<Measure>,
    /// The test: "paired" compares runs of the same seed, "welch" treats them as independent. The default is "paired".
    pub(crate) test: Option<Word<Method>>,
}
