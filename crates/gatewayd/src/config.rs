//! The configuration of the gateway: `/etc/holdover/gateway.toml`. The file, and every field in it, is optional.
//!
//! A file with any error is refused as a whole; the error has the position and what is expected there.

mod cluster;
mod flow;
mod handoff;
mod mode_networks;
mod pace;
mod prefixes;
mod split;
mod thesis;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use holdover_base::Duration;
use holdover_gateway::WarningSign;
pub use holdover_gateway::daemon::Mode;
use holdover_gateway::daemon::Treatment;
use holdover_gateway::divert::{Diversion, DiverterConfig, SilenceConfig};
use holdover_host::config_error::ConfigError;
use holdover_host::ebpf::pins::is_bpf_fs;
use holdover_host::log::Log;
use holdover_host::scrape::MetricsTable;
use holdover_host::time_text::{Time, between};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::cluster::ClusterTable;
pub use self::flow::FlowRule;
pub(crate) use self::flow::{FlowMode, FlowModes, MOST_LINKS, MOST_SELECTORS, OWN_LINK};
pub use self::handoff::{HandoffTable, Waiting};
pub(crate) use self::mode_networks::ModeNetworks;
pub use self::pace::Pace;
pub use self::prefixes::HostPrefixes;
pub(crate) use self::prefixes::NO_PREFIXES;
pub use self::split::SplitTable;
pub use self::thesis::ThesisTable;
use crate::network::Network;

/// The file that is read by default.
pub const DEFAULT_PATH: &str = "/etc/holdover/gateway.toml";

/// The endpoint for Prometheus: disabled by default; if enabled, at this port of the loopback address.
pub type Metrics = MetricsTable<false, 9787>;

/// All settings. [`Config::default`] applies without a file.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Configuration of the Holdover gateway")]
pub struct Config {
    /// Which mobile hosts the gateway serves, and how.
    pub mobiles: Mobiles,
    /// Modes of single connections, before those of their mobile hosts. The first matching rule applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flow: Vec<FlowRule>,
    /// Packets buffered for mobile hosts.
    pub buffer: Buffer,
    /// Which sources report the presence of mobile hosts.
    pub presence: PresenceSources,
    /// Leases of a DHCP server, as another source.
    pub leases: LeaseTable,
    /// Reports of mobile hosts about themselves, as another source.
    pub registration: RegistrationTable,
    /// Reports over HTTP, as another source.
    pub webhook: WebhookTable,
    /// ACKs held back, so that TCP resumes at once when a mobile host returns.
    pub hold_back: HoldBack,
    /// Mode "thesis": packets wait while a mobile host predicts its absence, and are released in bursts.
    pub thesis: ThesisTable,
    /// Mode "m-tcp".
    pub m_tcp: MTcpTable,
    /// Mode "split": connections that end at the gateway.
    pub split: SplitTable,
    /// Other gateways, to which mobile hosts move and from which they come.
    pub handoff: HandoffTable,
    /// The store in which gateways agree on the owner of each mobile host.
    pub cluster: ClusterTable,
    /// The programs in the path of packets.
    pub programs: Programs,
    /// The endpoint for Prometheus.
    pub metrics: Metrics,
    /// The log.
    pub log: Log,
}

/// Which mobile hosts the gateway serves, and how.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mobiles {
    /// The mobile-facing interface, if none is named on the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The mode.
    pub mode: Mode,
    /// Modes for mobile hosts of single networks, by network. The longest matching prefix applies.
    #[schemars(with = "BTreeMap<String, Mode>")]
    pub modes: BTreeMap<Network, Mode>,
    /// Their networks. If none is named: the networks of the interface's own addresses.
    pub networks: Vec<Network>,
    /// More networks, of mobile hosts that have a prefix each, such as routers of vehicles, by network: the length of the
    /// prefixes. Each prefix is one mobile host, whose name is the first address.
    #[serde(skip_serializing_if = "HostPrefixes::is_empty")]
    #[schemars(with = "BTreeMap<String, u8>")]
    pub prefixes: HostPrefixes,
    /// Networks and addresses that are excluded.
    pub exclude: Vec<Network>,
}

/// Packets buffered for mobile hosts.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Buffer {
    /// Where packets are stored: a directory on tmpfs, with a subdirectory for each interface.
    pub directory: PathBuf,
    /// The most bytes that wait for one mobile host.
    #[schemars(range(min = 65_536))]
    pub mobile_bytes: u64,
    /// The most bytes that wait in all.
    #[schemars(range(min = 65_536))]
    pub total_bytes: u64,
    /// The longest time that a packet is buffered.
    #[serde(deserialize_with = "between::<100, 3_600_000, _>")]
    pub longest: Time,
    /// The release rate for one mobile host, or "unlimited" for the interface's own rate.
    pub rate: Pace,
    /// How many bytes of one mobile host are released at once before the rate applies.
    pub burst_bytes: u64,
    /// The most mobile hosts tracked.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub most_mobiles: u32,
}

/// Which sources report the presence of mobile hosts.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PresenceSources {
    /// The carrier of the interface.
    pub carrier: bool,
    /// The kernel's neighbour table: an address that cannot be resolved.
    pub neighbours: bool,
    /// The forwarding table of the interface, if it is a bridge: a deleted entry.
    pub bridge: bool,
    /// The stations of access points on this host (nl80211): the interface itself, or a port of it if it is a bridge.
    pub stations: bool,
    /// The peers of the interface, if it is a WireGuard one: their endpoints and handshakes.
    pub wireguard: bool,
    /// Silence: neither packets to it nor probes are answered: address resolution, or ICMP echo without Ethernet.
    pub silence: bool,
    /// With silence: it is probed after this long without a packet from it, since a packet to it.
    #[serde(deserialize_with = "between::<20, 60_000, _>")]
    pub silence_after: Time,
    /// With silence: the interval between probes.
    #[serde(deserialize_with = "between::<10, 10_000, _>")]
    pub probe_every: Time,
    /// With silence: it is away after this many consecutive unanswered probes.
    #[schemars(range(min = 1, max = 100))]
    pub probes: u32,
    /// With silence: the longest interval between probes of an absent mobile host, which bounds the delay in noticing
    /// its return.
    #[serde(deserialize_with = "between::<10, 10_000, _>")]
    pub away_probe_every: Time,
    /// With WireGuard: a peer that was sent data or the initiation of a handshake is away if nothing has come from it for
    /// this long. The peer's WireGuard answers data after 10 s at the latest, and initiations at once. Keep-alives are not
    /// answered, and do not count.
    #[serde(deserialize_with = "between::<11_000, 600_000, _>")]
    pub wireguard_silence: Time,
    /// A mobile host is forgotten after this long without a packet from it or for it, present or away, if nothing waits
    /// for it.
    #[serde(deserialize_with = "between::<1_000, 604_800_000, _>")]
    pub forget_after: Time,
}

/// Leases of a DHCP server for mobile hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Leases")]
pub struct LeaseTable {
    /// The server's file. Missing: leases are not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The server that writes it.
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
    /// The UDP address for reports. Missing: no reports are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The hosts whose reports are accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<RegisteredHost>,
}

/// A mobile host that reports about itself.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisteredHost {
    /// The file with the key shared by host and gateway: a line of 32 to 128 hexadecimal digits.
    pub key_file: PathBuf,
    /// The addresses, or networks, that it may report about.
    pub addresses: Vec<Network>,
}

/// Reports over HTTP.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Webhook")]
pub struct WebhookTable {
    /// The address for requests, of this host only. Missing: no requests are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The file with the token required in requests: at least 16 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
}

/// ACKs held back, so that TCP resumes at once when a mobile host returns.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "GatewayHoldBack")]
pub struct HoldBack {
    /// Whether ACKs are held back: the ACK of the last segments of a transfer, in either direction, waits for the next
    /// one, or for 40 ms.
    pub enabled: bool,
    /// The most TCP connections tracked.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub most_connections: u32,
    /// The most connections tracked in detail: bulk transfers, and those with packets while their mobile host was away.
    /// Packets of the others pass unchanged.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub most_detailed: u32,
}

/// Mode "m-tcp".
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "GatewayMTcp")]
pub struct MTcpTable {
    /// Whether duplicate ACKs of mobile hosts are withheld from fixed hosts: for links that repair their losses themselves.
    /// Other losses wait for the fixed host's timer.
    pub drop_duplicates: bool,
}

/// The programs in the path of packets.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Programs {
    /// Whether the programs and their state survive a killed process, until the next one takes them over. With Linux
    /// 6.6 and later.
    pub pinned: bool,
    /// The BPF file system in which they are pinned. At `/sys/fs/bpf` it is mounted if missing.
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
    /// All enabled. A mobile host is away about 0.27 s after its last packet: three probes, 40 ms apart, after 150 ms
    /// without an answer. Linux acknowledges after at most 40 ms.
    fn default() -> Self {
        Self {
            carrier: true,
            neighbours: true,
            bridge: true,
            stations: true,
            wireguard: true,
            silence: true,
            silence_after: Time(Duration::from_millis(150)),
            probe_every: Time(Duration::from_millis(40)),
            probes: 3,
            away_probe_every: Time(Duration::from_millis(10)),
            wireguard_silence: Time(Duration::from_secs(15)),
            forget_after: Time(Duration::from_secs(600)),
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
    /// The file cannot be read, is not TOML, or has an invalid setting.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { file: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Reads [`DEFAULT_PATH`] if that file exists; the defaults otherwise.
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

    /// Parses the text of a file; `path` is for errors.
    ///
    /// # Errors
    /// The text is not TOML, or has an invalid setting.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| ConfigError::invalid(path, text, &error))?;
        if let Some((place, problem)) = config.problem() {
            return Err(ConfigError::at_key(path, text, place, problem));
        }
        if let Some((number, problem)) = flow::problem(&config.flow) {
            let offset = text.match_indices("[[flow]]").nth(number - 1).map_or(0, |(offset, _)| offset);
            return Err(ConfigError::at(path, text, offset, problem));
        }
        Ok(config)
    }

    /// The section and key of an invalid value, and what is expected.
    fn problem(&self) -> Option<((&'static str, &'static str), String)> {
        /// The longest packet of a TUN device: a smaller buffer could not hold one.
        const LEAST: u64 = 65_536;
        const NUMBER: &str = "expected a number from 1 to 1000000";
        let at = |section, key, problem: &str| Some(((section, key), format!("{key}: {problem}")));
        if let Some(problem) = self.metrics.problem() {
            return Some((("[metrics]", "listen"), problem));
        }
        let Self { buffer, presence, .. } = self;
        if let Some((key, problem)) = self.mobiles.prefix_problem() {
            return at("[mobiles]", key, &problem);
        }
        if buffer.mobile_bytes < LEAST {
            return at("[buffer]", "mobile_bytes", &format!("expected at least {LEAST}, for one packet of the kernel"));
        }
        if buffer.total_bytes < buffer.mobile_bytes {
            return at("[buffer]", "total_bytes", &format!("expected at least mobile_bytes ({})", buffer.mobile_bytes));
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
        if let Some((key, problem)) = self.split.problem() {
            return at("[split]", key, problem);
        }
        if let Some((key, problem)) = self.thesis.problem() {
            return at("[thesis]", key, problem);
        }
        if !(1..=100).contains(&presence.probes) {
            return at("[presence]", "probes", "expected a number from 1 to 100");
        }
        if !buffer.directory.is_absolute() {
            return at("[buffer]", "directory", "expected an absolute path, such as \"/run/holdover/gateway\"");
        }
        if self.registration.listen.is_some() && self.registration.hosts.is_empty() {
            return at("[registration]", "listen", "no mobile hosts to accept reports from: [[registration.hosts]]");
        }
        if let Some((key, problem)) = self.handoff.problem(self.cluster.is_enabled()) {
            return at("[handoff]", key, &problem);
        }
        let has_handoff = self.handoff.listen.is_some() && self.handoff.key_file.is_some();
        if let Some((key, problem)) = self.cluster.problem(has_handoff) {
            return Some((("[cluster]", key), problem));
        }
        if self.webhook.listen.is_some_and(|listen| !listen.ip().is_loopback()) {
            let problem =
                "expected an address of this host only, such as \"127.0.0.1:9788\", as the token is sent in the clear";
            return at("[webhook]", "listen", problem);
        }
        if self.webhook.listen.is_some() != self.webhook.token_file.is_some() {
            return at("[webhook]", "listen", "expected both listen and token_file, or neither");
        }
        None
    }

    /// Where programs are pinned: `None` if disabled, or without a BPF file system.
    pub fn pins(&self) -> Option<PathBuf> {
        let Programs { pinned, directory } = &self.programs;
        (*pinned && is_bpf_fs(directory)).then(|| directory.join("holdover-gateway"))
    }

    /// The limits and the release rate.
    pub fn diverter(&self) -> DiverterConfig {
        DiverterConfig {
            diverts: self.modes().any(Mode::diverts),
            mobile_bytes: self.buffer.mobile_bytes,
            total_bytes: self.buffer.total_bytes,
            longest: self.buffer.longest.0,
            rate: self.buffer.rate.0,
            burst_bytes: self.buffer.burst_bytes,
            most_mobiles: self.buffer.most_mobiles as usize,
            longest_warning: self.thesis.longest_warning.0,
        }
    }

    /// Which packets for absent mobile hosts with a mode are diverted, and how they are released.
    pub(crate) fn diversion(&self, mode: Mode) -> Diversion {
        match mode.diversion(self.thesis.config()) {
            Diversion::Nothing if self.flow.iter().any(|rule| rule.mode.diverts()) => Diversion::Chosen,
            diversion => diversion,
        }
    }

    /// The sign by which mobile hosts predict their absence; `None` if none of them has mode `thesis`.
    pub(crate) fn sign(&self) -> Option<WarningSign> {
        self.modes().any(|mode| mode == Mode::Thesis).then_some(self.thesis.sign)
    }

    /// Whether packets that are released to a mobile host have the reserved flag of IPv4.
    pub(crate) fn flags_released(&self, mobile: IpAddr) -> bool {
        self.thesis.sign == WarningSign::IpFlag && self.mode_of(mobile) == Mode::Thesis
    }

    /// The mode of a mobile host.
    pub fn mode_of(&self, mobile: IpAddr) -> Mode {
        let fitting = self.mobiles.modes.iter().filter(|(network, _)| network.contains(mobile));
        fitting.max_by_key(|(network, _)| network.mapped().1).map_or(self.mobiles.mode, |(_, &mode)| mode)
    }

    /// The treatment of TCP connections of mobile hosts with a mode.
    pub(crate) fn treatment(&self, mode: Mode) -> Treatment {
        mode.treatment(self.hold_back.enabled, self.m_tcp.drop_duplicates)
    }

    /// Networks whose mobile hosts have another treatment than the rest.
    pub(crate) fn modes_of_networks(&self) -> impl Iterator<Item = (Network, Mode)> {
        self.mobiles.modes.iter().map(|(&network, &mode)| (network, mode))
    }

    /// All modes that mobile hosts may have.
    fn host_modes(&self) -> impl Iterator<Item = Mode> {
        self.mobiles.modes.values().copied().chain([self.mobiles.mode])
    }

    /// The same, and all that rules choose for single connections.
    fn modes(&self) -> impl Iterator<Item = Mode> {
        self.host_modes().chain(self.flow.iter().map(|rule| rule.mode))
    }

    /// Whether connections of any mobile host are split.
    pub fn splits(&self) -> bool {
        self.modes().any(|mode| mode == Mode::Split)
    }

    /// Whether a rule for single connections splits them.
    pub(crate) fn splits_chosen(&self) -> bool {
        self.flow.iter().any(|rule| rule.mode == Mode::Split)
    }

    /// Whether TCP connections are followed at all.
    pub fn follows_connections(&self) -> bool {
        self.modes().any(|mode| self.treatment(mode) != Treatment::Nothing)
    }

    /// The modes as a text, which differs for different settings.
    pub(crate) fn modes_text(&self) -> String {
        let Mobiles { mode, modes, prefixes, .. } = &self.mobiles;
        let (holds_back, drops) = (self.hold_back.enabled, self.m_tcp.drop_duplicates);
        format!("{mode:?} {modes:?} {prefixes:?} {holds_back} {drops} {:?}", self.flow)
    }

    /// Whether every mobile host has the same mode.
    pub(crate) fn has_one_mode(&self) -> bool {
        self.host_modes().all(|mode| mode == self.mobiles.mode)
    }

    /// When mobile hosts are probed.
    pub fn silence(&self) -> SilenceConfig {
        let PresenceSources { silence_after, probe_every, probes, away_probe_every, .. } = self.presence;
        SilenceConfig { after: silence_after.0, every: probe_every.0, probes, away_every: away_probe_every.0 }
    }

    /// All settings in force, as a file.
    pub fn to_toml(&self) -> String {
        // TOML represents every value: strings, numbers, booleans and lists of strings.
        toml::to_string(self).unwrap_or_else(|error| format!("# {error}\n"))
    }

    /// The JSON schema of the file, which ends with a line feed: the published one, as the code that derives it takes much room in a
    /// program.
    pub const fn schema() -> &'static str {
        include_str!("../../../docs/schema/gateway.schema.json")
    }
}

#[cfg(test)]
mod tests;
