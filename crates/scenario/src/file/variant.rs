//! `[[variant]]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A named set of changes, run side by side with the others.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    /// Its name: letters, digits, "-", "_" and ".".
    pub(crate) name: String,
    /// What it is.
    pub(crate) description: Option<String>,
    /// What it changes: the path of a field in quotes, and the value that it gets, as in "link.radio.delay" = "50 ms".
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub(crate) set: BTreeMap<String, toml::Value>,
}
