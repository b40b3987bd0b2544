//! The configuration of the agent: `/etc/holdover/agent.toml`. The file, and every field in it, is optional.
//!
//! A file with any error is refused as a whole; the error has the position and what is expected there.

mod signals;
mod text;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use holdover_base::Duration;
use holdover_host::log::Log;
use holdover_host::scrape::MetricsTable;
use holdover_mobility::ack_stall::AckStallConfig;
use holdover_mobility::hold_back::HoldBackConfig;
use holdover_mobility::release::ReleaseConfig;
use holdover_mobility::unreachable_poke::UnreachablePokeConfig;
use holdover_mobility::wake::WakeConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::{FlowRule, Policy, PolicyError, PolicyOptions};
use crate::sockets::owner::uid_of;

pub use self::signals::{ModemTable, NextHopProbing, Percent, Signals, Wifi, WifiWarning};
pub use self::text::NamePattern;
pub use holdover_host::config_error::ConfigError;
pub use holdover_host::time_text::Time;
use holdover_host::time_text::{between, if_between};

/// The file that is read by default.
pub const DEFAULT_PATH: &str = "/etc/holdover/agent.toml";

/// The endpoint for Prometheus: enabled by default, at this port of the loopback address.
pub type Metrics = MetricsTable<true, 9786>;

/// All settings. [`Config::default`] applies without a file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Configuration of the Holdover agent")]
pub struct Config {
    /// The interfaces that the agent manages.
    pub links: Links,
    /// The agent's actions for connections when a link goes down and comes up.
    pub wake: Wake,
    /// The signals about links that the agent uses.
    pub signals: Signals,
    /// The treatment of connections that can never work again.
    pub connections: Connections,
    /// Connections of containers, which have network namespaces of their own.
    pub containers: ContainersTable,
    /// The gateway that receives reports about a link.
    pub gateway: GatewayTable,
    /// The endpoint for Prometheus.
    pub metrics: Metrics,
    /// The log.
    pub log: Log,
    /// Whether the rules of `[[flow]]` apply, and to which connections.
    pub user_timeouts: UserTimeoutTable,
    /// How long each connection waits for a peer that does not answer. The first matching rule applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flow: Vec<FlowRule>,
}

/// Whether the rules of `[[flow]]` apply, and to which connections.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "UserTimeouts")]
pub struct UserTimeoutTable {
    /// Whether timeouts are set at all.
    pub enabled: bool,
    /// Whether ssh and rsync are held for eight hours unless a rule matches.
    pub built_in: bool,
    /// Whether the former timeouts are restored when the agent ends. Otherwise the connections keep theirs.
    pub restore_on_exit: bool,
    /// The directory of a cgroup (v2): rules apply to new connections of its processes only. Missing: to all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
}

/// Connections of containers, which have network namespaces of their own.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Containers")]
pub struct ContainersTable {
    /// Whether the rules of `[[flow]]` apply to connections of other network namespaces of this host, and the status
    /// names their cgroups and processes. Needs CAP_SYS_ADMIN. Containers' forwarded connections are woken in any case.
    pub enabled: bool,
}

/// The interfaces that the agent manages.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Links {
    /// Interfaces by name or pattern. Empty: every interface that has or had a default route, except loopback, bridges
    /// and the inner ends of containers.
    pub include: Vec<NamePattern>,
    /// Interfaces that are excluded.
    pub exclude: Vec<NamePattern>,
}

/// The agent's actions for connections when a link goes down and comes up.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Wake {
    /// The number of whole segments whose ACK is held back while data flows, to be sent at link-up; 0 for none.
    #[schemars(range(max = 64))]
    pub hold_back: HeldSegments,
    /// Whether all ACKs are withheld just before a predicted cut.
    pub ack_stall: bool,
    /// How long before the predicted cut that begins. Missing: a round trip of each connection, which is best.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "if_between::<1, 60_000, _>")]
    pub warning_lead: Option<Time>,
    /// Whether a sender that nothing else can wake gets an ICMP host unreachable message.
    pub icmp_poke: bool,
    /// Whether the echoed timestamps of packets sent at link-up are advanced by the length of the outage. Otherwise
    /// senders may take them as proof that nothing was lost, and wait.
    pub refresh_timestamps: bool,
    /// From link-up to the first packet that the agent sends. If data arrives in that time, nothing is sent.
    #[serde(deserialize_with = "between::<0, 10_000, _>")]
    pub grace: Time,
}

/// The gateway in the path of a link's packets, which receives reports that the link fades, is down and is up. All
/// three keys, or none.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Gateway")]
pub struct GatewayTable {
    /// The link's interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The address on which the gateway receives reports: `[registration] listen` of its configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// The file with the key shared by this host and the gateway: a line of 32 to 128 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
}

/// The treatment of connections that can never work again.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Connections {
    /// Whether connections on an address that this host has lost are ended, so that programs get an error at once
    /// instead of after some 15 minutes.
    pub address_gone: AddressGone,
    /// How long the address has to be gone, while there is another one of its IP version: if it returns earlier, the
    /// connections are kept.
    #[serde(deserialize_with = "between::<0, 86_400_000, _>")]
    pub address_grace: Time,
}

/// The treatment of connections on an address that this host has lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AddressGone {
    /// They are kept as long as the kernel, or a rule of `[[flow]]`, keeps them.
    #[default]
    Keep,
    /// They end: programs get ECONNABORTED.
    End,
}

/// A number of segments from 0 to 64.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "u64")]
pub struct HeldSegments(u8);

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, or has an invalid setting.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { file: path.to_owned(), source })?;
        let mut config = Self::parse(path, &text)?;
        // A timetable's path is relative to the configuration file, not to the working directory.
        if let (Some(schedule), Some(directory)) = (&mut config.signals.schedule, path.parent()) {
            *schedule = directory.join(&schedule);
        }
        Ok(config)
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
        if let Some(problem) = config.metrics.problem() {
            return Err(ConfigError::at_key(path, text, ("[metrics]", "listen"), problem));
        }
        if config.user_timeouts.cgroup.as_ref().is_some_and(|cgroup| !cgroup.is_absolute()) {
            let problem = "cgroup: expected an absolute path, such as \"/sys/fs/cgroup/user.slice\"".to_owned();
            return Err(ConfigError::at_key(path, text, ("[user_timeouts]", "cgroup"), problem));
        }
        let GatewayTable { interface, address, key_file } = &config.gateway;
        let given = [interface.is_some(), address.is_some(), key_file.is_some()];
        if given.contains(&true) && given.contains(&false) {
            let problem = "[gateway]: expected all of interface, address and key_file, or none".to_owned();
            return Err(ConfigError::at(path, text, text.find("[gateway]").unwrap_or(0), problem));
        }
        Policy::check(&config.flow).map_err(|error| {
            let offset = text.match_indices("[[flow]]").nth(error.number - 1).map_or(0, |(offset, _)| offset);
            ConfigError::at(path, text, offset, error.problem.to_string())
        })?;
        Ok(config)
    }

    /// The rules in force. No hold is shorter than `at_least`
    /// ([`kernel_patience`](crate::user_timeout::kernel_patience)).
    ///
    /// [`Policy::problems`] reports unknown users.
    ///
    /// # Errors
    /// A rule is invalid, which [`Self::parse`] would have found.
    pub fn policy(&self, at_least: Duration) -> Result<Policy, PolicyError> {
        let options = PolicyOptions { built_in: self.user_timeouts.built_in, at_least };
        Policy::new(&self.flow, options, &mut uid_of)
    }

    /// All settings in force, as a file.
    pub fn to_toml(&self) -> String {
        // TOML represents every value: strings, numbers, booleans and lists of strings.
        toml::to_string(self).unwrap_or_else(|error| format!("# {error}\n"))
    }

    /// The JSON schema of the file, which ends with a line feed: the published one, as the code that derives it takes much room in a
    /// program.
    pub const fn schema() -> &'static str {
        include_str!("../../../../docs/schema/agent.schema.json")
    }
}

impl Links {
    /// Whether the configuration includes or excludes an interface; `None` if the agent decides.
    pub fn asks_for(&self, name: &str) -> Option<bool> {
        let any = |patterns: &[NamePattern]| patterns.iter().any(|pattern| pattern.matches(name));
        if any(&self.exclude) {
            Some(false)
        } else if self.include.is_empty() {
            None
        } else {
            Some(any(&self.include))
        }
    }
}

impl Wake {
    /// The configuration of the state machine.
    pub fn to_machine(&self) -> WakeConfig {
        let defaults = ReleaseConfig::default();
        let HeldSegments(segments) = self.hold_back;
        WakeConfig {
            hold_back: (segments > 0).then(|| HoldBackConfig { segments, ..HoldBackConfig::default() }),
            ack_stall: self.ack_stall.then(|| AckStallConfig {
                lead: self.warning_lead.map(|Time(lead)| lead),
                ..AckStallConfig::default()
            }),
            unreachable_poke: self.icmp_poke.then(UnreachablePokeConfig::default),
            release: ReleaseConfig { grace: self.grace.0, refresh_timestamps: self.refresh_timestamps, ..defaults },
        }
    }
}

impl Default for Wake {
    /// Everything enabled, as in `WakeConfig::all`.
    fn default() -> Self {
        Self {
            hold_back: HeldSegments(HoldBackConfig::default().segments),
            ack_stall: true,
            warning_lead: None,
            icmp_poke: true,
            refresh_timestamps: true,
            grace: Time(ReleaseConfig::default().grace),
        }
    }
}

impl TryFrom<u64> for HeldSegments {
    type Error = &'static str;

    fn try_from(segments: u64) -> Result<Self, Self::Error> {
        u8::try_from(segments)
            .ok()
            .filter(|&segments| segments <= 64)
            .map(Self)
            .ok_or("expected a number of segments from 0 (off) to 64; 4 is the default")
    }
}

impl Default for Connections {
    /// A DHCP server or a modem assigns the same address again within less than a minute.
    fn default() -> Self {
        Self { address_gone: AddressGone::default(), address_grace: Time(Duration::from_secs(60)) }
    }
}

impl Default for UserTimeoutTable {
    /// Enabled for every process, with the built-in rules.
    fn default() -> Self {
        Self { enabled: true, built_in: true, restore_on_exit: false, cgroup: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("agent.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_has_the_defaults() {
        assert_eq!(parse(""), Ok(Config::default()));
        let machine = Config::default().wake.to_machine();
        assert_eq!(machine, WakeConfig::all());
    }

    #[test]
    fn printed_settings_parse_to_the_same() {
        let text = "[links]\ninclude = [\"wl*\"]\n[wake]\nhold_back = 8\nwarning_lead = \"300ms\"\n\
                    [signals]\nschedule = \"passes.csv\"\nwifi = { warn = \"adaptive\", floor = \"-78 dBm\" }\n\
                    [metrics]\nenabled = false\n[log]\nlevel = \"debug\"\nformat = \"json\"\n\
                    [user_timeouts]\nbuilt_in = false\ncgroup = \"/sys/fs/cgroup/a\"\n\
                    [[flow]]\nport = [22, \"80-90\"]\nhold = \"4 h\"\n[[flow]]\nuser = \"root\"\nleave_alone = true\n";
        for text in ["", text] {
            let config = parse(text).unwrap();
            assert_eq!(parse(&config.to_toml()).as_ref(), Ok(&config), "{}", config.to_toml());
        }
    }

    #[test]
    fn each_switch_reaches_the_state_machine() {
        let off =
            "[wake]\nhold_back = 0\nack_stall = false\nicmp_poke = false\nrefresh_timestamps = false\ngrace = \"5ms\"";
        let machine = parse(off).unwrap().wake.to_machine();
        assert_eq!((machine.hold_back, machine.ack_stall, machine.unreachable_poke), (None, None, None));
        assert!(!machine.release.refresh_timestamps);
        assert_eq!(machine.release.grace, Duration::from_millis(5));
        let lead = parse("[wake]\nwarning_lead = \"2s\"").unwrap().wake.to_machine();
        assert_eq!(lead.ack_stall.unwrap().lead, Some(Duration::from_secs(2)));
    }

    #[test]
    fn an_error_has_its_place_and_the_expected_value() {
        for (text, place, says) in [
            ("[wake]\nhold_bak = 4", "agent.toml:2:1", "expected one of `hold_back`"),
            ("[wake]\nhold_back = 65", "agent.toml:2:13", "from 0 (off) to 64"),
            ("[wake]\ngrace = 5", "agent.toml:2:9", "grace: expected a text in quotes, found 5"),
            ("[wake]\nhold_back = \"four\"", "agent.toml:2:13", "hold_back: expected a whole number, found \"four\""),
            ("[wake]\nack_stall = 1", "agent.toml:2:13", "ack_stall: expected true or false, found 1"),
            ("[links]\ninclude = \"wlan0\"", "agent.toml:2:11", "include: expected a list in brackets"),
            ("[metrics]\nlisten = \"localhost\"", "agent.toml:2:10", "an address and a port"),
            ("[wake]\ngrace = \"5\"", "agent.toml:2:9", "a time from 0s to 10s, with its unit"),
            ("[wake]\ngrace = \"11s\"", "agent.toml:2:9", "a time from 0s to 10s"),
            ("[wake]\nwarning_lead = \"0s\"", "agent.toml:2:16", "warning_lead: expected a time"),
            ("[signals.gateway]\nask = true\n", "agent.toml:1:10", "gateway"),
            ("[signals.next_hop]\nafter = \"0s\"", "agent.toml:2:9", "after: expected a time from 250ms to 3600s"),
            ("[signals.next_hop]\nafter = \"-1s\"", "agent.toml:2:9", "from 250ms"),
            ("[signals.next_hop]\nafter = \"25h\"", "agent.toml:2:9", "to 3600s"),
            ("[signals.next_hop]\nask = true\nevery = \"1 parsec\"", "agent.toml:3:9", "(ns, us, ms, s, min, h)"),
            ("[signals.next_hop]\nevery = \"2min\"", "agent.toml:2:9", "to 60s"),
            ("[connections]\naddress_grace = \"2 days\"", "agent.toml:2:17", "(ns, us, ms, s, min, h)"),
            ("[connections]\naddress_gone = \"destroy\"", "agent.toml:2:16", "`end`"),
            ("[signals.wifi]\nlead = \"0\"", "agent.toml:2:8", "from 1ms"),
            ("[signals.wifi]\nevery = \"1ms\"", "agent.toml:2:9", "from 10ms"),
            ("[wake]\nhold_back = -1", "agent.toml:2:13", "hold_back"),
            ("[metrics]\nenabled = true\nlisten = \"127.0.0.1:0\"", "agent.toml:3:1", "port 0"),
            ("[[flow]]\nport = 0\nhold = \"4h\"", "agent.toml:2:8", "invalid port"),
            ("[[flow]]\nuser = \"\"\nhold = \"4h\"", "agent.toml:2:8", "a user's name or number"),
            ("[[flow]]\nport = 1\nhold = \"0s\"", "agent.toml:1:1", "between 1 s and 24 days"),
            ("[user_timeouts]\ncgroup = \"a\"", "agent.toml:2:1", "an absolute path"),
            ("[links]\ninclude = [\"wlan0\", \"a b\"]", "agent.toml:2:11", "the name of an interface"),
            ("[signals.wifi]\nfloor = \"-78\"", "agent.toml:2:9", "dBm"),
            ("[signals.wifi]\nwarn = \"sometimes\"", "agent.toml:2:8", "`adaptive`"),
            ("[metrics]\nlisten = \"0.0.0.0:9786\"", "agent.toml:2:1", "allow_remote = true"),
            ("[[flow]]\nport = 22\nhold = \"4h\"\n[[flow]]\nport = 80", "agent.toml:4:1", "one of hold, fail_fast"),
            ("[[flow]]\nhold = \"4h\"\nport = \"ssh\"", "agent.toml:3:8", "invalid port \"ssh\""),
            ("[nonsense]", "agent.toml:1:2", "`links`"),
            ("links = ", "agent.toml:1:", ""),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(place) && error.contains(says), "{text:?}: {error}");
        }
        let missing = Config::read(Path::new("/nowhere/agent.toml")).unwrap_err();
        assert!(missing.to_string().starts_with("/nowhere/agent.toml: cannot read"), "{missing}");
    }

    #[test]
    fn rules_become_a_policy() {
        let rules = "[[flow]]\nuser = \"root\"\nhold = \"4 h\"\n";
        let names = |text: &str| {
            let policy = parse(text).unwrap().policy(Duration::ZERO).unwrap();
            [0, 1, 2, 3].map(|rule| policy.rule_name(rule))
        };
        assert_eq!(
            names(rules)[1..],
            ["port 22, hold 28800s (built in)", "port 873, hold 28800s (built in)", "a former rule"]
        );
        assert_eq!(names(&format!("{rules}[user_timeouts]\nbuilt_in = false"))[..2], ["flow rule 1", "a former rule"]);
        let nobody = parse("[[flow]]\nuser = \"no such user here\"\nhold = \"4 h\"").unwrap();
        let policy = nobody.policy(Duration::ZERO).unwrap();
        assert_eq!(policy.problems(), ["flow rule 1: there is no user \"no such user here\""]);
    }

    #[test]
    fn interfaces_are_asked_for_by_pattern() {
        let links = |text: &str| parse(text).unwrap().links;
        assert_eq!(links("").asks_for("eth0"), None);
        let some = links("[links]\ninclude = [\"eth*\"]\nexclude = [\"eth1\"]");
        assert_eq!(["eth0", "eth1", "wlan0"].map(|name| some.asks_for(name)), [Some(true), Some(false), Some(false)]);
    }

    fn file(path: &str) -> String {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
    }

    #[test]
    fn the_example_has_every_default_and_nothing_else() {
        let example = file("dist/agent.toml");
        assert_eq!(parse(&example), Ok(Config::default()));
        // Settings without a default are there as comments that would be valid.
        let optional =
            ["warning_lead", "schedule", "cgroup", "[[flow]]", "remote_port", "process", "remote", "fail_fast"];
        let all = optional
            .into_iter()
            .chain(["hold =", "leave_alone"])
            .fold(example, |text, field| text.replace(&format!("\n#{field}"), &format!("\n{field}")));
        let config = parse(&all).unwrap();
        assert!(config.wake.warning_lead.is_some() && config.signals.schedule.is_some());
        assert_eq!((config.flow.len(), config.user_timeouts.cgroup.is_some()), (3, true));
    }

    #[test]
    fn the_guide_has_every_setting() {
        let guide = file("docs/guide/agent.md") + &file("docs/guide/flows.md");
        let schema: serde_json::Value = serde_json::from_str(Config::schema()).unwrap();
        let tables = schema["$defs"].as_object().unwrap().values();
        let fields: Vec<&String> =
            tables.filter_map(|table| table.get("properties")?.as_object()).flat_map(|fields| fields.keys()).collect();
        assert!(fields.len() > 20, "the schema was not parsed as intended");
        let missing: Vec<_> = fields.into_iter().filter(|field| !guide.contains(&format!("`{field}`"))).collect();
        // Names of sections.
        let sections = [
            "links",
            "connections",
            "wake",
            "signals",
            "wifi",
            "modem",
            "next_hop",
            "gateway",
            "metrics",
            "log",
            "user_timeouts",
            "flow",
        ];
        let missing: Vec<_> = missing.into_iter().filter(|field| !sections.contains(&field.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    /// `HOLDOVER_WRITE_DOCS=1 cargo test -p holdover-agent --lib schema` updates it.
    #[test]
    fn the_published_schema_is_that_of_the_code() {
        let schema = schemars::schema_for!(Config);
        let derived = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("HOLDOVER_WRITE_DOCS").is_some() {
            let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/agent.schema.json");
            std::fs::write(published, &derived).unwrap();
        }
        assert_eq!(file("docs/schema/agent.schema.json"), derived);
    }
}
