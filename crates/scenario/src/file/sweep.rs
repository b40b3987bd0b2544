//! `[sweep]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Percent;
use crate::statistics::Method;
use crate::sweep::Metric;
use crate::word::{Word, vocabulary};

/// What is varied, how often each point is run, and what is compared.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sweep {
    /// What is varied: every combination of the axes' values is a point.
    #[serde(default, rename = "axis", skip_serializing_if = "Vec::is_empty")]
    pub(crate) axes: Vec<Axis>,
    /// How often each point is run, with a seed of its own each time. The default is once.
    pub(crate) replicate: Option<Replicate>,
    /// Which variants are compared. The default is all with the first, run by run of the same seed.
    pub(crate) compare: Option<Compare>,
}

/// One field and the values that it takes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Axis {
    /// The path of the field, as for a variant.
    pub(crate) path: String,
    /// Its name in tables and plots. The default is the path.
    pub(crate) label: Option<String>,
    /// The values.
    #[schemars(with = "Option<Vec<serde_json::Value>>")]
    pub(crate) values: Option<Vec<toml::Value>>,
    /// Or a range of values.
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
    /// How many values, both ends included.
    pub(crate) points: Option<u32>,
    /// How "points" are spread. The default is "linear".
    pub(crate) scale: Option<Word<Scale>>,
}

/// How points are spread.
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
    /// The bound. Without it, "min" runs are made.
    pub(crate) relative_error: Option<Percent>,
    /// What is averaged. The default is goodput of all flows.
    pub(crate) of: Option<Measure>,
    /// At least so many runs. The default is 5 with "relative_error", else 1.
    pub(crate) min: Option<u32>,
    /// At most so many runs. The default is 100.
    pub(crate) max: Option<u32>,
}

/// Which number is taken of each run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measure {
    /// The metric.
    pub(crate) metric: Word<Metric>,
    /// The flow. The default is all flows: their sum for rates and counts, their mean for times and ratios.
    pub(crate) flow: Option<String>,
}

/// Which variants are compared, and by which test.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compare {
    /// The variant that the others are compared with. The default is the first.
    pub(crate) baseline: Option<String>,
    /// The others. The default is all.
    pub(crate) with: Option<Vec<String>>,
    /// What is compared. The default is what "replicate" averages.
    pub(crate) of: Option<Measure>,
    /// The test: "paired" compares runs of the same seed, "welch" takes them as independent. The default is "paired".
    pub(crate) test: Option<Word<Method>>,
}
