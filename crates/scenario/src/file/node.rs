//! `[[host]]` and `[[router]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::{Mechanisms, Stack};
use crate::quantity::Time;
use crate::word::Short;

/// A host: it has an address, a TCP stack and applications, and forwards nothing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    /// Its name: letters, digits, "-", "_" and ".".
    pub(crate) name: String,
    /// Its TCP: a profile, or a table of changes to one. The default is the scenario's.
    pub(crate) stack: Option<Short<Stack>>,
    /// What it does for its connections when its links come and go. The default is nothing.
    pub(crate) mechanisms: Option<Mechanisms>,
    /// How long before an outage of the link that it uses it is warned of it. The default is that it is not. (How a mobile
    /// host foresees that it leaves its cell is its "prediction".)
    pub(crate) foresight: Option<Time>,
}

/// A router: it forwards packets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Router {
    /// Its name: letters, digits, "-", "_" and ".".
    pub(crate) name: String,
}
