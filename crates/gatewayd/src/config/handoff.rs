//! `[handoff]`: other gateways.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Other gateways, to which mobile hosts move and from which they come.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Handoff")]
pub struct HandoffTable {
    /// This gateway's UDP address, as the others list it in their peers. Missing: no handoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The file with the key shared by all gateways: a line of 64 to 128 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// The other gateways. In a cluster they know each other, and none is listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<SocketAddr>,
    /// What becomes of packets that wait here for a mobile host which another gateway has claimed.
    #[serde(skip_serializing_if = "Waiting::is_forward")]
    pub waiting: Waiting,
}

/// Packets that wait for a mobile host which has moved to another gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Waiting {
    /// They are sent to that gateway, in order.
    #[default]
    Forward,
    /// They are dropped, and their senders retransmit: for gateways with little room between them. Records of connections are sent.
    Drop,
}

impl HandoffTable {
    /// The key of an invalid value, and what is expected. The members of a cluster know each other.
    pub(super) fn problem(&self, is_cluster: bool) -> Option<(&'static str, String)> {
        let Self { listen, key_file, peers, waiting } = self;
        if listen.is_none() && !waiting.is_forward() {
            return Some(("waiting", "needs listen and key_file too".to_owned()));
        }
        if is_cluster && !peers.is_empty() {
            return Some(("peers", "the gateways of a cluster know each other; remove this key".to_owned()));
        }
        let has_peers = !peers.is_empty() || is_cluster && listen.is_some();
        let keys = [("listen", listen.is_some()), ("key_file", key_file.is_some()), ("peers", has_peers)];
        let (given, missing): (Vec<_>, Vec<_>) = keys.into_iter().partition(|(_, is_given)| *is_given);
        if let [(key, _), ..] = given[..]
            && !missing.is_empty()
        {
            let missing: Vec<&str> = missing.iter().map(|(key, _)| *key).collect();
            return Some((key, format!("needs {} too; give all three or none", missing.join(" and "))));
        }
        if listen.is_some_and(|listen| listen.ip().is_unspecified()) {
            return Some(("listen", "expected the address by which the others know this gateway".to_owned()));
        }
        let is_repeated = |&(place, peer): &(usize, &SocketAddr)| peers[..place].contains(peer);
        if let Some((_, peer)) = peers.iter().enumerate().find(is_repeated) {
            return Some(("peers", format!("{peer} is listed twice")));
        }
        let own = listen.filter(|listen| peers.contains(listen));
        own.map(|own| ("peers", format!("{own} is this gateway's own address: expected the others")))
    }
}

impl Waiting {
    const fn is_forward(&self) -> bool {
        matches!(self, Self::Forward)
    }
}
