//! How the agent gets into the path of a phone's packets.

use holdover_mobility::Mechanisms;
use serde::Serialize;

/// Where the agent stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AgentPath {
    /// Between the phone's interface and its link, as a filter of packets.
    Filter,
}

impl AgentPath {
    /// What the description of a world says of a host with the agent.
    pub(super) fn mechanisms(self) -> Mechanisms {
        match self {
            Self::Filter => Mechanisms { wake: true, ..Mechanisms::default() },
        }
    }

    /// As what it stands there.
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::Filter => "a filter of packets between the phone's interface and its link",
        }
    }
}
