//! The file: valid and invalid settings, error positions, and the published schema.

use holdover_base::BitRate;

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("gateway.toml"), text).map_err(|error| error.to_string())
}

#[test]
fn printed_settings_parse_to_the_same_and_an_empty_file_has_the_defaults() {
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
fn invalid_settings_are_refused_with_their_place() {
    for (text, wanted) in [
        (
            "[mobiles]\nmode = \"choke\"\n",
            "gateway.toml:2:8: mode: unknown variant `choke`, expected one of `buffer`, `observe`, `freeze`, `buffer-freeze`, `m-tcp`",
        ),
        ("[mobile]\n", "gateway.toml:1:2: unknown field `mobile`"),
        ("[mobiles]\nnetworks = [\"10.0.0.0/40\"]\n", "\"10.0.0.0/40\" is not a network such as"),
        ("[buffer]\nmobile_bytes = 100\n", "gateway.toml:2:1: mobile_bytes: expected at least 65536"),
        ("[buffer]\ntotal_bytes = 70000\n", "gateway.toml:2:1: total_bytes: expected at least mobile_bytes (4000000)"),
        ("[buffer]\nrate = \"fast\"\n", "\"fast\" is not a rate such as"),
        ("[buffer]\nlongest = \"1 day\"\n", "a time from 100ms to 3600s"),
        ("[buffer]\ndirectory = \"packets\"\n", "gateway.toml:2:1: directory: expected an absolute path"),
        (
            "[hold_back]\nmost_connections = 0\n",
            "gateway.toml:2:1: most_connections: expected a number from 1 to 1000000",
        ),
        ("[thesis]\nburst = 0\n", "gateway.toml:2:1: burst: expected a number from 1 to 1000"),
        ("[thesis]\nsign = \"word\"\n", "unknown variant `word`, expected `window` or `ip-flag`"),
        ("[thesis]\nlongest_warning = \"1 ms\"\n", "a time from 100ms to 600s"),
        ("[hold_back]\nmost_detailed = 0\n", "gateway.toml:2:1: most_detailed: expected a number from 1 to 1000000"),
        ("[mobiles.modes]\n\"10.0.0.0/40\" = \"observe\"\n", "\"10.0.0.0/40\" is not a network such as"),
        (
            "[[flow]]\nmode = \"observe\"\n[[flow]]\nfixed_port = 443\nmode = \"thesis\"\n",
            "gateway.toml:3:1: mode: \"thesis\" has one queue for each mobile host",
        ),
        ("[[flow]]\nfixed_port = 443\n", "missing field `mode`"),
        ("[[flow]]\nfixed_port = 0\nmode = \"observe\"\n", "invalid port \"0\""),
        ("[[flow]]\nport = 443\nmode = \"observe\"\n", "unknown field `port`"),
        ("[presence]\nprobes = 0\n", "gateway.toml:2:1: probes: expected a number from 1 to 100"),
        (
            "[registration]\nlisten = \"10.0.1.1:4786\"\n",
            "gateway.toml:2:1: listen: no mobile hosts to accept reports from: [[registration.hosts]]",
        ),
        ("[[registration.hosts]]\nkey_file = \"k\"\n", "missing field `addresses`"),
        (
            "[webhook]\nlisten = \"10.0.1.1:4788\"\ntoken_file = \"t\"\n",
            "gateway.toml:2:1: listen: expected an address of this host only",
        ),
        ("[webhook]\nlisten = \"127.0.0.1:4788\"\n", "gateway.toml:2:1: listen: expected both listen and token_file"),
        ("[handoff]\nlisten = \"10.0.1.1:4787\"\n", "gateway.toml:2:1: listen: needs key_file and peers too"),
        ("[handoff]\nwaiting = \"drop\"\n", "gateway.toml:2:1: waiting: needs listen and key_file too"),
        ("[handoff]\npeers = [\"10.0.0.2:4787\"]\nkey_file = \"k\"\n", "gateway.toml:3:1: key_file: needs listen too"),
        (
            "[handoff]\nlisten = \"0.0.0.0:4787\"\nkey_file = \"k\"\npeers = [\"10.0.0.2:4787\"]\n",
            "gateway.toml:2:1: listen: expected the address by which",
        ),
        (
            "[handoff]\nlisten = \"10.0.1.1:4787\"\nkey_file = \"k\"\npeers = [\"10.0.1.2:4787\", \"10.0.1.2:4787\"]\n",
            "gateway.toml:4:1: peers: 10.0.1.2:4787 is listed twice",
        ),
        (
            "[handoff]\nlisten = \"10.0.1.1:4787\"\nkey_file = \"k\"\npeers = [\"10.0.1.1:4787\"]\n",
            "gateway.toml:4:1: peers: 10.0.1.1:4787 is this gateway's own address",
        ),
        ("[cluster]\nname = \"a\"\n", "gateway.toml:2:1: name: needs endpoints too"),
        ("[cluster]\nendpoints = [\"http://10.0.0.9:2379\"]\n", "gateway.toml:2:1: endpoints: needs name too"),
        ("[cluster]\nname = \"a/b\"\n", "gateway.toml:2:1: name: expected 1 to 64 letters"),
        (
            "[cluster]\nname = \"a\"\nendpoints = [\"http://10.0.0.9:2379\"]\n",
            "gateway.toml:2:1: name: needs [handoff] listen and key_file too",
        ),
        ("[cluster]\nname = \"a\"\nendpoints = [\"https://etcd:2379\"]\n", "gateway.toml:3:1: endpoints: TLS is left"),
        ("[cluster]\nname = \"a\"\nendpoints = [\"10.0.0.9:2379\"]\n", "endpoints: expected addresses such as"),
        ("[cluster]\nlease = \"1 s\"\n", "a time from 2s to 600s"),
        (
            "[handoff]\nlisten = \"10.0.1.1:4787\"\nkey_file = \"k\"\npeers = [\"10.0.1.2:4787\"]\n\
             [cluster]\nname = \"a\"\nendpoints = [\"http://10.0.0.9:2379\"]\n",
            "gateway.toml:4:1: peers: the gateways of a cluster know each other",
        ),
        (
            "[cluster]\nname = \"a\"\nendpoints = [\"http://e\"]\nuser = \"u\"\n",
            "gateway.toml:4:1: user: expected both user and password_file",
        ),
        (
            "[cluster]\nname = \"a\"\nendpoints = [\"http://e\"]\nprefix = \"holdover\"\n",
            "gateway.toml:4:1: prefix: expected visible ASCII characters",
        ),
        (
            "[mobiles.prefixes]\n\"10.3.0.0/16\" = 8\n",
            "prefixes: 10.3.0.0/16 has no prefixes of 8 bits: expected 16 to 32",
        ),
        ("[mobiles.prefixes]\n\"10.3.0.0/16\" = 33\n", "prefixes: 10.3.0.0/16 has no prefixes of 33 bits"),
        (
            "[mobiles]\nmodes = { \"10.3.1.128/25\" = \"observe\" }\nprefixes = { \"10.3.0.0/16\" = 24 }\n",
            "modes: 10.3.1.128/25 is a part of a mobile host: those of 10.3.0.0/16 have prefixes of 24 bits",
        ),
        (
            "[mobiles]\nexclude = [\"10.3.1.1\"]\nprefixes = { \"10.3.0.0/16\" = 24 }\n",
            "exclude: 10.3.1.1/32 is a part of a mobile host",
        ),
        // The key's name also occurs earlier: in a comment, as another key's, and in another section.
        (
            "# probes, most_detailed\n[presence]\nsilence = true\nprobes = 0\n",
            "gateway.toml:4:1: probes: expected a number from 1 to 100",
        ),
        (
            "[programs]\nbpf_directory = \"/sys/fs/bpf\"\n[buffer]\ndirectory = \"packets\"\n",
            "gateway.toml:4:1: directory: expected an absolute path",
        ),
        ("buffer = { mobile_bytes = 100 }\n", "gateway.toml:1:1: mobile_bytes: expected at least 65536"),
        ("[log]\n[webhook]\ntoken_file = \"t\"\n", "gateway.toml:2:1: listen: expected both listen and token_file"),
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
    // The members of a cluster need not be listed.
    let cluster = "[handoff]\nlisten = \"10.0.1.1:4787\"\nkey_file = \"k\"\n\
                   [cluster]\nname = \"a\"\nendpoints = [\"http://10.0.0.9:2379/\"]\n";
    assert!(parse(cluster).unwrap().cluster.is_enabled());
}

#[test]
fn the_longest_network_decides_the_mode() {
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

#[test]
fn prefixes_are_part_of_the_layout_and_read_as_written() {
    let text = "[mobiles]\nnetworks = [\"10.2.0.0/16\"]\nexclude = [\"10.3.9.0/24\"]\n\
                prefixes = { \"10.3.0.0/16\" = 24, \"10.3.8.0/24\" = 32, \"fd00:3::/32\" = 64 }\n";
    let config = parse(text).unwrap();
    assert_eq!(parse(&config.to_toml()), Ok(config.clone()));
    assert_ne!(config.modes_text(), parse("[mobiles]\nnetworks = [\"10.2.0.0/16\"]\n").unwrap().modes_text());
    let served = config.mobiles.networks.iter().copied().chain(config.mobiles.prefixes.networks());
    let names = config.mobiles.prefixes.of(served);
    for (address, name) in [
        ("10.2.1.7", "10.2.1.7"),
        ("10.3.1.7", "10.3.1.0"),
        ("10.3.8.7", "10.3.8.7"),
        ("fd00:3:0:7:8::9", "fd00:3:0:7::"),
    ] {
        assert_eq!(names.host_of(address.parse().unwrap()), address_of(name), "{address}");
    }
}

fn address_of(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn rules_for_single_connections_add_their_modes() {
    let text = "[mobiles]\nmode = \"observe\"\n[[flow]]\nfixed = [\"192.0.2.0/24\"]\nfixed_port = [22, \"5000-5999\"]\n\
                mode = \"buffer\"\n[[flow]]\nmobile_port = 443\nmode = \"split\"\n";
    let config = parse(text).unwrap();
    assert_eq!(parse(&config.to_toml()), Ok(config.clone()));
    assert!(config.has_one_mode() && config.splits() && config.follows_connections() && config.diverter().diverts);
    assert_eq!(config.diversion(Mode::Observe), Diversion::Chosen);
    assert_eq!(config.diversion(Mode::Buffer), Diversion::All);
    assert_ne!(config.modes_text(), parse("[mobiles]\nmode = \"observe\"\n").unwrap().modes_text());
    let ports: Vec<String> = (1..=129).map(|port| port.to_string()).collect();
    let error = parse(&format!("[[flow]]\nfixed_port = [{}]\nmode = \"observe\"\n", ports.join(", "))).unwrap_err();
    assert!(error.contains("gateway.toml:1:1: the rules have more than 128 combinations"), "{error}");
}

#[test]
fn signs_are_read_where_a_mobile_host_has_mode_thesis() {
    assert_eq!(parse("[thesis]\nsign = \"ip-flag\"\n").unwrap().sign(), None);
    let text = "[mobiles.modes]\n\"10.0.2.0/24\" = \"thesis\"\n[thesis]\nsign = \"ip-flag\"\nburst = 3\n";
    let config = parse(text).unwrap();
    assert_eq!(parse(&config.to_toml()), Ok(config.clone()));
    assert_eq!(config.sign(), Some(WarningSign::IpFlag));
    assert_eq!(config.diversion(Mode::Thesis), Diversion::TcpInBursts(3));
    let flags = |address: &str| config.flags_released(address.parse().unwrap());
    assert!(flags("10.0.2.1") && !flags("10.0.1.1"));
}

const SECTIONS: [&str; 14] = [
    "m_tcp",
    "flow",
    "cluster",
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
fn the_installed_file_has_the_defaults() {
    let mut config = Config::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/gateway.toml")).unwrap();
    assert_eq!(config.mobiles.interface.take().as_deref(), Some("wlan0"));
    assert_eq!(config, Config::default());
}

/// `HOLDOVER_WRITE_DOCS=1 cargo test -p holdover-gatewayd --lib schema` updates it.
#[test]
fn the_published_schema_is_that_of_the_code() {
    let schema = schemars::schema_for!(Config);
    let derived = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("HOLDOVER_WRITE_DOCS").is_some() {
        let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/gateway.schema.json");
        std::fs::write(published, &derived).unwrap();
    }
    assert_eq!(file("docs/schema/gateway.schema.json"), derived);
}

#[test]
fn the_guide_has_every_setting() {
    let guide = file("docs/guide/gateway.md");
    let schema: serde_json::Value = serde_json::from_str(Config::schema()).unwrap();
    let tables = std::iter::once(&schema).chain(schema["$defs"].as_object().unwrap().values());
    let fields: Vec<String> = tables
        .filter_map(|table| table.get("properties")?.as_object())
        .flat_map(|fields| fields.keys().cloned())
        .filter(|field| !SECTIONS.contains(&field.as_str()))
        .collect();
    assert!(fields.len() > 24, "{fields:?}");
    let missing: Vec<_> = fields.into_iter().filter(|field| !guide.contains(&format!("`{field}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn modes_have_one_name_in_files_and_messages() {
    for mode in Mode::ALL {
        assert_eq!(serde_json::to_value(mode).unwrap(), mode.to_string());
    }
}

#[test]
fn a_password_for_etcd_on_another_host_is_in_clear() {
    let cluster = |endpoints: &[&str], password: bool| ClusterTable {
        endpoints: endpoints.iter().map(|&endpoint| endpoint.to_owned()).collect(),
        password_file: password.then(|| "/etc/holdover/etcd".into()),
        ..ClusterTable::default()
    };
    let local = ["http://127.0.0.1:2379", "http://localhost:2379/", "http://[::1]:2379", "http://localhost"];
    assert_eq!(cluster(&local, true).password_in_clear(), None);
    for remote in
        ["http://192.0.2.1:2379", "http://etcd.example", "http://[2001:db8::1]:2379", "http://localhost.example"]
    {
        assert_eq!(cluster(&["http://127.1.2.3:2379", remote], true).password_in_clear(), Some(remote));
        assert_eq!(cluster(&[remote], false).password_in_clear(), None);
    }
}
