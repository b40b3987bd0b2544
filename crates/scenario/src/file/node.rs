//! `[[host]]` and `[[router]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::Stack;
use crate::word::Short;

/// A host: it has an address, a TCP stack and applications, and forwards nothing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    /// Its name: letters, digits, "-", "_" and ".".
    pub(crate) name: String,
    /// Its TCP: a profile, or a table of changes to one. The default is the scenario's.
    pub(crate) stack: Option<Short<Stack>>,
}

/// A router: it forwards packets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Router {
    /// Its name: letters, digits, "-", "_" and ".".
    pub(crate) name: String,
}
