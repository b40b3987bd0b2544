//! `[cluster]`: the store in which gateways agree on the owner of each mobile host.

use std::net::IpAddr;
use std::path::PathBuf;

use holdover_base::Duration;
use holdover_host::time_text::{Time, between};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The store (etcd) in which gateways agree on the owner of each mobile host.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Cluster")]
pub struct ClusterTable {
    /// This gateway's name, which no other one has. Missing: no store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The members of etcd, such as `"http://192.0.2.10:2379"`. The next one is asked when one fails.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// The prefix of all keys.
    pub prefix: String,
    /// How long the others wait for a gateway that is silent before its mobile hosts are theirs to take over.
    #[serde(deserialize_with = "between::<2_000, 600_000, _>")]
    pub lease: Time,
    /// The user, if etcd has users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The file with the user's password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
}

impl Default for ClusterTable {
    /// No store. A lease of 10 s outlasts a restart of the gateway.
    fn default() -> Self {
        Self {
            name: None,
            endpoints: Vec::new(),
            prefix: "/holdover/".to_owned(),
            lease: Time(Duration::from_secs(10)),
            user: None,
            password_file: None,
        }
    }
}

impl ClusterTable {
    /// Whether there is a store.
    pub fn is_enabled(&self) -> bool {
        self.name.is_some()
    }

    /// The first member of etcd to which the password would be sent in clear over a network.
    pub fn password_in_clear(&self) -> Option<&str> {
        self.password_file.as_ref()?;
        let is_remote = |endpoint: &&String| !is_loopback(endpoint);
        self.endpoints.iter().find(is_remote).map(String::as_str)
    }

    /// The key of an invalid value, and what is expected. `has_handoff`: there are an address and a key for handoffs.
    pub(super) fn problem(&self, has_handoff: bool) -> Option<(&'static str, String)> {
        let at = |key, problem: &str| Some((key, format!("{key}: {problem}")));
        let is_name = |text: &str| {
            (1..=64).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        match &self.name {
            None if !self.endpoints.is_empty() => return at("endpoints", "needs name too; give both or none"),
            None => return None,
            Some(name) if !is_name(name) => {
                return at("name", "expected 1 to 64 letters, digits, \"-\", \"_\" and \".\"");
            }
            Some(_) if self.endpoints.is_empty() => return at("name", "needs endpoints too; give both or none"),
            Some(_) => {}
        }
        for endpoint in &self.endpoints {
            if endpoint.starts_with("https://") {
                return at("endpoints", "TLS is left to a proxy on this host, such as stunnel: expected \"http://\"");
            }
            let place = endpoint.strip_prefix("http://").map(|place| place.trim_end_matches('/'));
            if !place.is_some_and(|place| !place.is_empty() && !place.contains(['/', '@', ' '])) {
                return at("endpoints", "expected addresses such as \"http://192.0.2.10:2379\"");
            }
        }
        let is_path = |text: &str| text.ends_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_path(&self.prefix) {
            return at("prefix", "expected visible ASCII characters that end with \"/\", such as \"/holdover/\"");
        }
        if self.user.is_some() != self.password_file.is_some() {
            let given = if self.user.is_some() { "user" } else { "password_file" };
            return at(given, "expected both user and password_file, or neither");
        }
        if !has_handoff {
            return at("name", "needs [handoff] listen and key_file too: gateways hand over what waits");
        }
        None
    }
}

/// Whether the host of a URL is this one.
fn is_loopback(endpoint: &str) -> bool {
    let place = endpoint.strip_prefix("http://").unwrap_or(endpoint).trim_end_matches('/');
    let host = place.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let host = host.map_or(place, |(host, _)| host);
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
