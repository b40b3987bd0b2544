//! `[routing]`, and the routes of a `[[router]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Time;
use crate::word::OrNone;

/// Routers follow links: they stop using one that is down, and send by another way.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Routing {
    /// From when a link goes down to when no router uses it any more, or "none" for never. The default is 150 ms.
    pub(crate) detection: Option<OrNone<Time>>,
    /// From a link's return to when routers use it again. The default is as long as "detection".
    pub(crate) recovery: Option<Time>,
}

/// A route of a router, as `ip route add TO dev LINK metric METRIC`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    /// The host or router that it leads to, or "default" for all that no other route leads to.
    pub(crate) to: String,
    /// The link to send by, one of the router's own.
    pub(crate) link: String,
    /// Of several routes to the same destination, that with the lowest metric whose link is up is used. The default is 0.
    pub(crate) metric: Option<u32>,
}
