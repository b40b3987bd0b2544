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
        if let Some(problem) = config.metrics.problem() {
            return Err(ConfigError::at_key(path, text, ("[metrics]", "listen"), problem));
        }
        match config.problem() {
            Some((key, problem)) => {
                let offset = text.find(key).unwrap_or(0);
                Err(ConfigError::at(path, text, offset, format!("{key}: {problem}")))
            }
            None => Ok(config),
        }
    }

    /// A key whose value is out of bounds, and what is accepted.
    fn problem(&self) -> Option<(&'static str, String)> {
        /// The longest packet of a TUN device: less could not hold one.
        const LEAST: u64 = 65_536;
        let Self { buffer, presence, .. } = self;
        if buffer.mobile_bytes < LEAST {
            return Some(("mobile_bytes", format!("at least {LEAST} are needed, for one packet of the kernel's")));
        }
        if buffer.total_bytes < buffer.mobile_bytes {
            return Some(("total_bytes", format!("less than mobile_bytes ({})", buffer.mobile_bytes)));
        }
        if !(1..=1_000_000).contains(&buffer.most_mobiles) {
            return Some(("most_mobiles", "a number from 1 to 1000000 is expected".to_owned()));
        }
        if !(1..=1_000_000).contains(&self.hold_back.most_connections) {
            return Some(("most_connections", "a number from 1 to 1000000 is expected".to_owned()));
        }
        if !(1..=1_000_000).contains(&self.hold_back.most_detailed) {
            return Some(("most_detailed", "a number from 1 to 1000000 is expected".to_owned()));
        }
        if !(1..=100).contains(&presence.probes) {
            return Some(("probes", "a number from 1 to 100 is expected".to_owned()));
        }
        if !buffer.directory.is_absolute() {
            return Some(("directory", "an absolute path is expected, such as \"/run/holdover/gateway\"".to_owned()));
        }
        if self.registration.listen.is_some() && self.registration.hosts.is_empty() {
            return Some((
                "[registration]",
                "nobody could be heard: [[registration.hosts]] names mobile hosts".to_owned(),
            ));
        }
        let HandoffTable { listen, key_file, peers } = &self.handoff;
        let given = [listen.is_some(), key_file.is_some(), !peers.is_empty()];
        if given.contains(&true) && given.contains(&false) {
            return Some(("[handoff]", "listen, key_file and peers are needed, or none of them".to_owned()));
        }
        if listen.is_some_and(|listen| listen.ip().is_unspecified()) {
            return Some((
                "[handoff]",
                "listen: the address by which the others know this gateway is expected".to_owned(),
            ));
        }
        if self.webhook.listen.is_some_and(|listen| !listen.ip().is_loopback()) {
            let problem = "an address of this host only is expected, such as \"127.0.0.1:9788\", as the token is sent in the clear";
            return Some(("[webhook]", problem.to_owned()));
        }
        if self.webhook.listen.is_some() != self.webhook.token_file.is_some() {
            return Some(("[webhook]", "listen and token_file are needed, or neither".to_owned()));
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
mod tests {
    use holdover_base::BitRate;

    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("gateway.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_printed_is_read_again_and_an_empty_file_is_the_default() {
        assert_eq!(parse(""), Ok(Config::default()));
        let text = "[mobiles]\ninterface = \"wlan0\"\nmode = \"observe\"\nnetworks = [\"10.0.1.0/24\", \"fd00::/64\"]\n\
                    [buffer]\nrate = \"8 Mbit/s\"\nlongest = \"30 s\"\n[presence]\nsilence_after = \"300 ms\"\n";
        let config = parse(text).unwrap();
        assert_eq!(parse(&config.to_toml()), Ok(config.clone()));
        assert_eq!(config.diverter().rate, Some(BitRate::from_mbps(8)));
        assert!(!config.diverter().diverts);
        assert_eq!(parse("[buffer]\nrate = \"unlimited\"").unwrap().diverter().rate, None);
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_place() {
        for (text, wanted) in [
            (
                "[mobiles]\nmode = \"choke\"\n",
                "gateway.toml:2:8: mode: unknown variant `choke`, expected one of `buffer`, `observe`, `freeze`, `buffer-freeze`, `m-tcp`",
            ),
            ("[mobile]\n", "gateway.toml:1:2: unknown field `mobile`"),
            ("[mobiles]\nnetworks = [\"10.0.0.0/40\"]\n", "\"10.0.0.0/40\" is not a network such as"),
            ("[buffer]\nmobile_bytes = 100\n", "gateway.toml:2:1: mobile_bytes: at least 65536 are needed"),
            ("[buffer]\ntotal_bytes = 70000\n", "gateway.toml:2:1: total_bytes: less than mobile_bytes (4000000)"),
            ("[buffer]\nrate = \"fast\"\n", "\"fast\" is not a rate such as"),
            ("[buffer]\nlongest = \"1 day\"\n", "a time from 100ms to 3600s"),
            ("[buffer]\ndirectory = \"packets\"\n", "directory: an absolute path is expected"),
            ("[hold_back]\nmost_connections = 0\n", "most_connections: a number from 1 to 1000000"),
            ("[hold_back]\nmost_detailed = 0\n", "most_detailed: a number from 1 to 1000000"),
            ("[mobiles.modes]\n\"10.0.0.0/40\" = \"observe\"\n", "\"10.0.0.0/40\" is not a network such as"),
            ("[presence]\nprobes = 0\n", "probes: a number from 1 to 100"),
            (
                "[registration]\nlisten = \"10.0.1.1:4786\"\n",
                "gateway.toml:1:1: [registration]: nobody could be heard: [[registration.hosts]]",
            ),
            ("[[registration.hosts]]\nkey_file = \"k\"\n", "missing field `addresses`"),
            (
                "[webhook]\nlisten = \"10.0.1.1:4788\"\ntoken_file = \"t\"\n",
                "gateway.toml:1:1: [webhook]: an address of this host only",
            ),
            ("[webhook]\nlisten = \"127.0.0.1:4788\"\n", "[webhook]: listen and token_file are needed"),
            ("[handoff]\nlisten = \"10.0.1.1:4787\"\n", "[handoff]: listen, key_file and peers are needed"),
            (
                "[handoff]\nlisten = \"0.0.0.0:4787\"\nkey_file = \"k\"\npeers = [\"10.0.0.2:4787\"]\n",
                "[handoff]: listen: the address by which",
            ),
            ("[leases]\nformat = \"kea\"\n", "unknown variant `kea`, expected `dnsmasq` or `dhcpd`"),
            ("[metrics]\nenabled = true\nlisten = \"127.0.0.1:0\"\n", "gateway.toml:3:1: 127.0.0.1:0: port 0"),
            (
                "[metrics]\nenabled = true\nlisten = \"0.0.0.0:9787\"\n",
                "gateway.toml:3:1: 0.0.0.0:9787 is not a loopback address",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(wanted), "{text}\n{error}");
        }
        assert!(parse("[metrics]\nenabled = true\nlisten = \"0.0.0.0:9787\"\nallow_remote = true\n").is_ok());
    }

    #[test]
    fn the_longest_network_says_what_is_done_for_a_mobile_host() {
        let text = "[mobiles]\nmode = \"observe\"\n[mobiles.modes]\n\"10.0.2.0/24\" = \"freeze\"\n\
                    \"10.0.2.128/25\" = \"buffer-freeze\"\n\"fd00::/16\" = \"m-tcp\"\n";
        let config = parse(text).unwrap();
        assert_eq!(parse(&config.to_toml()), Ok(config.clone()));
        for (address, mode) in [
            ("10.0.1.1", Mode::Observe),
            ("10.0.2.1", Mode::Freeze),
            ("10.0.2.129", Mode::BufferFreeze),
            ("fd00::1", Mode::MTcp),
        ] {
            assert_eq!(config.mode_of(address.parse().unwrap()), mode, "{address}");
        }
        assert!(config.diverter().diverts && config.follows_connections() && !config.has_one_mode());
        assert!(!parse("[mobiles]\nmode = \"observe\"\n").unwrap().follows_connections());
    }

    const SECTIONS: [&str; 11] = [
        "handoff",
        "mobiles",
        "buffer",
        "presence",
        "leases",
        "registration",
        "webhook",
        "hold_back",
        "programs",
        "metrics",
        "log",
    ];

    fn file(path: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn the_file_that_is_installed_says_what_holds_without_it() {
        let mut config = Config::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/gateway.toml")).unwrap();
        assert_eq!(config.mobiles.interface.take().as_deref(), Some("wlan0"));
        assert_eq!(config, Config::default());
    }

    #[test]
    fn the_guide_tells_every_field_and_the_published_schema_is_this_one() {
        assert_eq!(file("docs/schema/gateway.schema.json"), Config::schema());
        let guide = file("docs/guide/gateway.md");
        let schema: serde_json::Value = serde_json::from_str(&Config::schema()).unwrap();
        let tables = std::iter::once(&schema).chain(schema["$defs"].as_object().unwrap().values());
        let fields: Vec<String> = tables
            .filter_map(|table| table.get("properties")?.as_object())
            .flat_map(|fields| fields.keys().cloned())
            .filter(|field| !SECTIONS.contains(&field.as_str()))
            .collect();
        assert!(fields.len() > 24, "{fields:?}");
        let untold: Vec<_> = fields.into_iter().filter(|field| !guide.contains(&format!("`{field}`"))).collect();
        assert!(untold.is_empty(), "{untold:?}");
    }
}
