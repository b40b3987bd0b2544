//! What the gateway is told: `/etc/holdover/gateway.toml`, every field of which may be missing, as may the file.
//!
//! A file is refused as a whole if anything in it is not understood, with the place and what would be accepted there.

mod pace;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use holdover_base::Duration;
pub use holdover_gateway::daemon::Mode;
use holdover_gateway::daemon::Treatment;
use holdover_gateway::divert::{DiverterConfig, SilenceConfig};
use holdover_host::config_error::ConfigError;
use holdover_host::log::Log;
use holdover_host::scrape::MetricsTable;
use holdover_host::time_text::{Time, between};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::pace::Pace;
use crate::network::Network;
use crate::path::is_bpf_fs;

/// Where the file is looked for if no other is named.
pub const DEFAULT_PATH: &str = "/etc/holdover/gateway.toml";

/// The endpoint for Prometheus: by default there is none; if it is enabled, at this port of the loopback address.
pub type Metrics = MetricsTable<false, 9787>;

/// Everything that can be set. [`Config::default`] is what holds without a file.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Configuration of the Holdover gateway")]
pub struct Config {
    /// Which mobile hosts the gateway serves, and how.
    pub mobiles: Mobiles,
    /// Packets that wait for mobile hosts.
    pub buffer: Buffer,
    /// By what it knows that a mobile host is away.
    pub presence: PresenceSources,
    /// Leases of a DHCP server, as another source.
    pub leases: LeaseTable,
    /// Reports of mobile hosts themselves, as another source.
    pub registration: RegistrationTable,
    /// Reports over HTTP, as another source.
    pub webhook: WebhookTable,
    /// ACKs that are held back, so that TCP goes on at once when a mobile host is back.
    pub hold_back: HoldBack,
    /// Other gateways, to which mobile hosts move and from which they come.
    pub handoff: HandoffTable,
    /// The programs in the path of packets.
    pub programs: Programs,
    /// The endpoint for Prometheus.
    pub metrics: Metrics,
    /// What it writes down.
    pub log: Log,
}

/// Which mobile hosts the gateway serves, and how.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mobiles {
    /// The interface behind which they are, if none is named on the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// What is done.
    pub mode: Mode,
    /// What is done for mobile hosts of single networks instead, by network. Of several, the one with the longest prefix counts.
    #[schemars(with = "BTreeMap<String, Mode>")]
    pub modes: BTreeMap<Network, Mode>,
    /// Their networks. If none is named: the networks of the interface's own addresses.
    pub networks: Vec<Network>,
    /// Networks and addresses that are left alone.
    pub exclude: Vec<Network>,
}

/// Packets that wait for mobile hosts.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Buffer {
    /// Where they are kept: a directory on tmpfs, in which each interface has its own.
    pub directory: PathBuf,
    /// The most bytes that wait for one mobile host.
    #[schemars(range(min = 65_536))]
    pub mobile_bytes: u64,
    /// The most bytes that wait in all.
    #[schemars(range(min = 65_536))]
    pub total_bytes: u64,
    /// How long a packet waits at most.
    #[serde(deserialize_with = "between::<100, 3_600_000, _>")]
    pub longest: Time,
    /// How fast packets of one mobile host are released: a rate, or "unlimited" for as fast as the interface takes them.
    pub rate: Pace,
    /// How many bytes of one mobile host are released at once before the rate applies.
    pub burst_bytes: u64,
    /// So many mobile hosts are known at most.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub most_mobiles: u32,
}

/// By what the gateway knows that a mobile host is away.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PresenceSources {
    /// The carrier of the interface.
    pub carrier: bool,
    /// The kernel's neighbour table: an address that cannot be resolved.
    pub neighbours: bool,
    /// The forwarding table of the interface, if that is a bridge: an entry that is deleted.
    pub bridge: bool,
    /// Silence: packets to it are not answered, and probes of address resolution are not either.
    pub silence: bool,
    /// With silence: it is probed when nothing came from it for so long after a packet to it.
    #[serde(deserialize_with = "between::<20, 60_000, _>")]
    pub silence_after: Time,
    /// With silence: from one probe to the next.
    #[serde(deserialize_with = "between::<10, 10_000, _>")]
    pub probe_every: Time,
    /// With silence: it is away when so many probes in a row were not answered.
    #[schemars(range(min = 1, max = 100))]
    pub probes: u32,
    /// With silence: the longest time between two probes of a mobile host that is away, so that its return is noticed that late at most.
    #[serde(deserialize_with = "between::<10, 10_000, _>")]
    pub away_probe_every: Time,
}

/// Leases of a DHCP server for mobile hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Leases")]
pub struct LeaseTable {
    /// The server's file. Missing: leases are not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Whose file it is.
    pub format: LeaseFormat,
}

/// The format of a file of leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseFormat {
    /// dnsmasq's, such as `/var/lib/misc/dnsmasq.leases`.
    #[default]
    Dnsmasq,
    /// ISC's, such as `/var/lib/dhcp/dhcpd.leases`.
    Dhcpd,
}

/// Reports of mobile hosts that run the agent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Registration")]
pub struct RegistrationTable {
    /// The UDP address on which they are heard. Missing: they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Those that are heard.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<RegisteredHost>,
}

/// A mobile host that reports about itself.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisteredHost {
    /// The file with the key that it shares with the gateway: a line of 32 to 128 hexadecimal digits.
    pub key_file: PathBuf,
    /// The addresses, or networks, for which it speaks.
    pub addresses: Vec<Network>,
}

/// Reports over HTTP.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Webhook")]
pub struct WebhookTable {
    /// The address on which requests are heard, of this host only. Missing: they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The file with the token that requests have to have: at least 16 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
}

/// Other gateways, to which mobile hosts move and from which they come.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Handoff")]
pub struct HandoffTable {
    /// This gateway's UDP address, as the others have it among their peers. Missing: there is no handoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The file with the key that all gateways share: a line of 64 to 128 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// The others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<SocketAddr>,
}

/// ACKs that are held back, so that TCP goes on at once when a mobile host is back.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "GatewayHoldBack")]
pub struct HoldBack {
    /// Whether it is done: the ACK of the last segments of a transfer, in either direction, waits until the next one, or for 40 ms.
    pub enabled: bool,
    /// So many TCP connections are known at most.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub most_connections: u32,
    /// So many of them are known in detail at most: bulk transfers, and those that had packets while their mobile host was away. The rest passes
    /// as it is.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub most_detailed: u32,
}

/// The programs in the path of packets.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Programs {
    /// Whether they, and what they know, outlive a process that is killed, until the next one takes them over. With Linux 6.6 and later.
    pub pinned: bool,
    /// The BPF file system in which they are pinned. At `/sys/fs/bpf` it is mounted if it is not.
    #[serde(rename = "bpf_directory")]
    pub directory: PathBuf,
}

impl Default for Buffer {
    fn default() -> Self {
        let limits = DiverterConfig::default();
        Self {
            directory: "/run/holdover/gateway".into(),
            mobile_bytes: limits.mobile_bytes,
            total_bytes: limits.total_bytes,
            longest: Time(limits.longest),
            rate: Pace(limits.rate),
            burst_bytes: limits.burst_bytes,
            most_mobiles: limits.most_mobiles as u32,
        }
    }
}

impl Default for PresenceSources {
    /// All of them. A mobile host is away about 0.27 s after the last packet from it: three probes, 40 ms apart, after 150 ms without an
    /// answer. Linux acknowledges after at most 40 ms.
    fn default() -> Self {
        Self {
            carrier: true,
            neighbours: true,
            bridge: true,
            silence: true,
            silence_after: Time(Duration::from_millis(150)),
            probe_every: Time(Duration::from_millis(40)),
            probes: 3,
            away_probe_every: Time(Duration::from_millis(10)),
        }
    }
}

impl Default for HoldBack {
    /// On, for 131,072 connections, half of them in detail.
    fn default() -> Self {
        Self { enabled: true, most_connections: 131_072, most_detailed: 65_536 }
    }
}

impl Default for Programs {
    /// Pinned where systemd mounts the BPF file system.
    fn default() -> Self {
        Self { pinned: true, directory: "/sys/fs/bpf".into() }
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is not TOML, or has something in it that is not understood.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { file: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Reads [`DEFAULT_PATH`] if there is such a file, and has the defaults if not.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_default() -> Result<Self, ConfigError> {
        match Self::read(Path::new(DEFAULT_PATH)) {
            Err(ConfigError::Unreadable { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            other => other,
        }
    }

    /// Reads the text of a file, whose name is for errors.
    ///
    /// # Errors
    /// It is not TOML, or has something in it that is not understood or out of bounds.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| ConfigError::invalid(path, text, &error))?;
        match config.problem() {
            Some((place, problem)) => Err(ConfigError::at_key(path, text, place, problem)),
            None => Ok(config),
        }
    }

    /// A section and its key whose value is out of bounds, and what is accepted.
    fn problem(&self) -> Option<((&'static str, &'static str), String)> {
        /// The longest packet of a TUN device: less could not hold one.
        const LEAST: u64 = 65_536;
        const NUMBER: &str = "a number from 1 to 1000000 is expected";
        let at = |section, key, problem: &str| Some(((section, key), format!("{key}: {problem}")));
        if let Some(problem) = self.metrics.problem() {
            return Some((("[metrics]", "listen"), problem));
        }
        let Self { buffer, presence, .. } = self;
        if buffer.mobile_bytes < LEAST {
            return at(
                "[buffer]",
                "mobile_bytes",
                &format!("at least {LEAST} are needed, for one packet of the kernel's"),
            );
        }
        if buffer.total_bytes < buffer.mobile_bytes {
            return at("[buffer]", "total_bytes", &format!("less than mobile_bytes ({})", buffer.mobile_bytes));
        }
        if !(1..=1_000_000).contains(&buffer.most_mobiles) {
            return at("[buffer]", "most_mobiles", NUMBER);
        }
        if !(1..=1_000_000).contains(&self.hold_back.most_connections) {
            return at("[hold_back]", "most_connections", NUMBER);
        }
        if !(1..=1_000_000).contains(&self.hold_back.most_detailed) {
            return at("[hold_back]", "most_detailed", NUMBER);
        }
        if !(1..=100).contains(&presence.probes) {
            return at("[presence]", "probes", "a number from 1 to 100 is expected");
        }
        if !buffer.directory.is_absolute() {
            return at("[buffer]", "directory", "an absolute path is expected, such as \"/run/holdover/gateway\"");
        }
        if self.registration.listen.is_some() && self.registration.hosts.is_empty() {
            return at("[registration]", "listen", "nobody could be heard: [[registration.hosts]] names mobile hosts");
        }
        let HandoffTable { listen, key_file, peers } = &self.handoff;
        let keys = [("listen", listen.is_some()), ("key_file", key_file.is_some()), ("peers", !peers.is_empty())];
        let (given, missing): (Vec<_>, Vec<_>) = keys.into_iter().partition(|(_, is_given)| *is_given);
        if let [(key, _), ..] = given[..]
            && !missing.is_empty()
        {
            let missing: Vec<&str> = missing.iter().map(|(key, _)| *key).collect();
            return at("[handoff]", key, &format!("needs {} too; give all three or none", missing.join(" and ")));
        }
        if listen.is_some_and(|listen| listen.ip().is_unspecified()) {
            return at("[handoff]", "listen", "the address by which the others know this gateway is expected");
        }
        if self.webhook.listen.is_some_and(|listen| !listen.ip().is_loopback()) {
            let problem = "an address of this host only is expected, such as \"127.0.0.1:9788\", as the token is sent in the clear";
            return at("[webhook]", "listen", problem);
        }
        if self.webhook.listen.is_some() != self.webhook.token_file.is_some() {
            return at("[webhook]", "listen", "listen and token_file are needed, or neither");
        }
        None
    }

    /// Where programs are pinned: `None` if they are not to be, or there is no BPF file system.
    pub fn pins(&self) -> Option<PathBuf> {
        let Programs { pinned, directory } = &self.programs;
        (*pinned && is_bpf_fs(directory)).then(|| directory.join("holdover-gateway"))
    }

    /// The limits and the pace.
    pub fn diverter(&self) -> DiverterConfig {
        DiverterConfig {
            diverts: self.modes().any(Mode::diverts),
            mobile_bytes: self.buffer.mobile_bytes,
            total_bytes: self.buffer.total_bytes,
            longest: self.buffer.longest.0,
            rate: self.buffer.rate.0,
            burst_bytes: self.buffer.burst_bytes,
            most_mobiles: self.buffer.most_mobiles as usize,
        }
    }

    /// What is done for a mobile host.
    pub fn mode_of(&self, mobile: IpAddr) -> Mode {
        let fitting = self.mobiles.modes.iter().filter(|(network, _)| network.contains(mobile));
        fitting.max_by_key(|(network, _)| network.mapped().1).map_or(self.mobiles.mode, |(_, &mode)| mode)
    }

    /// What is done for the TCP connections of mobile hosts with a mode.
    pub(crate) fn treatment(&self, mode: Mode) -> Treatment {
        mode.treatment(self.hold_back.enabled)
    }

    /// Networks whose mobile hosts are treated otherwise than the rest, and how.
    pub(crate) fn modes_of_networks(&self) -> impl Iterator<Item = (Network, Mode)> {
        self.mobiles.modes.iter().map(|(&network, &mode)| (network, mode))
    }

    /// All modes that mobile hosts may have.
    fn modes(&self) -> impl Iterator<Item = Mode> {
        self.mobiles.modes.values().copied().chain([self.mobiles.mode])
    }

    /// Whether TCP connections are followed at all.
    pub fn follows_connections(&self) -> bool {
        self.modes().any(|mode| self.treatment(mode) != Treatment::Nothing)
    }

    /// What is done for which mobile hosts, as a text that is another for another choice.
    pub(crate) fn modes_text(&self) -> String {
        format!("{:?} {:?} {}", self.mobiles.mode, self.mobiles.modes, self.hold_back.enabled)
    }

    /// Whether every mobile host has the same mode.
    pub(crate) fn has_one_mode(&self) -> bool {
        self.modes().all(|mode| mode == self.mobiles.mode)
    }

    /// When mobile hosts are probed.
    pub fn silence(&self) -> SilenceConfig {
        let PresenceSources { silence_after, probe_every, probes, away_probe_every, .. } = self.presence;
        SilenceConfig { after: silence_after.0, every: probe_every.0, probes, away_every: away_probe_every.0 }
    }

    /// Everything that is in force, as a file that would say so.
    pub fn to_toml(&self) -> String {
        // Every value is a text, a number, a truth value or a list of texts, all of which TOML has.
        toml::to_string(self).unwrap_or_else(|error| format!("# {error}\n"))
    }

    /// The JSON schema of the file, which ends with a line feed.
    pub fn schema() -> String {
        let schema = schemars::schema_for!(Self);
        serde_json::to_string_pretty(&schema).map_or_else(|error| error.to_string(), |text| text + "\n")
    }
}

#[cfg(test)]
mod tests;
