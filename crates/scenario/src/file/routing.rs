//! `[routing]`, and the routes of a `[[router]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Time;
use crate::word::OrNone;

/// Routers follow the state of links: they stop using a link that is down, and take another path.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Routing {
    /// The time from the failure of a link until no router uses it, or "none" for never. The default is 150 ms.
    pub(crate) detection: Option<OrNone<Time>>,
    /// The time from a link's return until routers use it again. The default is as long as "detection".
    pub(crate) recovery: Option<Time>,
}

/// A route of a router, as in `ip route add TO dev LINK metric METRIC`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    /// The destination: a host or router, or "default" for every destination without another route.
    pub(crate) to: String,
    /// The outgoing link, one of the router's own.
    pub(crate) link: String,
    /// Among several routes to the same destination, the router uses the one with the lowest metric whose link is up. The
    /// default is 0.
    pub(crate) metric: Option<u32>,
}
