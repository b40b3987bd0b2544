//! `[[variant]]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A named set of changes, run and compared with the other variants.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    /// Its name: letters, digits, "-", "_" and ".".
    pub(crate) name: String,
    /// A description.
    pub(crate) description: Option<String>,
    /// The changes: quoted paths of fields and their values, as in "link.radio.delay" = "50 ms".
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub(crate) set: BTreeMap<String, toml::Value>,
}
