//! A mechanism that can never act is refused, or `check` warns of it.

use std::collections::BTreeSet;

use holdover_scenario::{NoFiles, Scenario};

use super::{GOOD, changed};

const OUTAGES: &str = "outages = { list = [{ at = \"1 s\", for = \"1 s\" }] }";

/// A host and a router that no flow reaches.
const IDLE: &str = "
[[host]]
name = \"idle\"
MECHANISMS

[[link]]
name = \"lane\"
between = [\"idle\", \"middle\"]
";
const ASIDE: &str = "
[[router]]
name = \"aside\"
MECHANISMS

[[link]]
name = \"lane\"
between = [\"aside\", \"middle\"]
";

/// A router beside the path, neither a base station nor at a link of the client.
const FAR: &str = "
[[router]]
name = \"far\"
MECHANISMS

[[link]]
name = \"detour\"
between = [\"server\", \"far\"]

[[link]]
name = \"back\"
between = [\"far\", \"middle\"]
";

/// A second link of the client.
const SPARE: &str = "
[[router]]
name = \"other\"

[[link]]
name = \"spare\"
between = [\"client\", \"other\"]

[[link]]
name = \"trunk\"
between = [\"other\", \"middle\"]
";

fn host(table: &str) -> String {
    format!("mechanisms = {{ {table} }}")
}

fn router(table: &str) -> String {
    format!("mechanisms = {{ mobiles = [\"client\"], {table} }}")
}

fn warned(table: &str) -> String {
    format!("{}\nforesight = \"300 ms\"", host(table))
}

/// The client, with outages of its link.
fn client(lines: &str) -> String {
    changed(lines, "", "", OUTAGES)
}

/// The server, whose link has none.
fn server(lines: &str) -> String {
    changed("", lines, "", OUTAGES)
}

/// The router between them.
fn middle(table: &str) -> String {
    changed("", "", &router(table), OUTAGES)
}

fn idle(table: &str) -> String {
    format!("{GOOD}{}", IDLE.replace("MECHANISMS", &host(table)))
}

fn aside(table: &str) -> String {
    format!("{}{}", client(""), ASIDE.replace("MECHANISMS", &router(table)))
}

fn far(table: &str) -> String {
    format!("{}{}", client(""), FAR.replace("MECHANISMS", &router(table)))
}

fn deaf(table: &str) -> String {
    middle(&format!("hears_links = false, {table}"))
}

/// The error about a scenario, or its warnings to that effect, one a line.
fn complaint(text: &str) -> String {
    match Scenario::parse("test.toml", text, NoFiles) {
        Err(error) => error.to_string(),
        Ok(scenario) => {
            let mut warnings = scenario.warnings().unwrap();
            warnings.retain(|warning| warning.contains("can never act"));
            warnings.join("\n")
        }
    }
}

/// A mechanism, a scenario in which it can never act, a part of the message about it, and a scenario in which it can act.
struct Case {
    mechanism: &'static str,
    never: String,
    says: &'static str,
    acts: Option<String>,
}

fn case(mechanism: &'static str, never: String, says: &'static str, acts: String) -> Case {
    Case { mechanism, never, says, acts: Some(acts) }
}

fn of_hosts() -> Vec<Case> {
    let of_client = |table: &str| client(&host(table));
    let of_server = |table: &str| server(&host(table));
    let of_both = |table: &str| changed(&host(table), &host(table), "", OUTAGES);
    let at_link_events = ["reconnect_acks", "user_timeout", "unreachable_poke"].map(|mechanism| {
        let table = format!("{mechanism} = {{}}");
        case(mechanism, of_server(&table), "no link of this host", of_client(&table))
    });
    let without_a_flow = ["hold_back", "wake"].map(|mechanism| {
        let table = format!("{mechanism} = {{}}");
        case(mechanism, idle(&table), "no flow begins or ends", of_client(&table))
    });
    let unwarned = ["freeze", "ack_stall"].map(|mechanism| {
        let table = format!("{mechanism} = {{}}");
        case(mechanism, of_client(&table), "nothing warns", client(&warned(&table)))
    });
    let untimed = format!("stack = \"reno-bsd\"\n{}", warned("timestamp_echo = {}"));
    let since_last_ack = of_client("timestamp_echo = { since = \"last-ack\" }");
    let with_spare = format!("{}{SPARE}", of_client("new_cell_window = {}"));
    let anywhere = "fast_retransmit = { only_moved = false }";
    let trigger = "retransmission_trigger = {}";
    let (probe, probe_anywhere) = ("probe = {}", "probe = { only_moved = false }");
    let notifies = router("ebsn = {}");
    let notified = changed("", &host("ebsn = {}"), &notifies, "arq = {}");
    let both_notified = changed(&host("ebsn = {}"), &host("ebsn = {}"), &notifies, "arq = {}");
    let split = changed(&host("srp = {}"), "", &router("srp = {}"), "");
    let others = [
        case("freeze", server(&warned("freeze = {}")), "no link of this host", client(&warned("freeze = {}"))),
        case("timestamp_echo", of_client("timestamp_echo = {}"), "nothing warns", since_last_ack),
        case("timestamp_echo", client(&untimed), "timestamps", client(&warned("timestamp_echo = {}"))),
        case("new_cell_window", of_client("new_cell_window = {}"), "same attachment", with_spare),
        case("fast_retransmit", of_client("fast_retransmit = {}"), "same attachment", of_client(anywhere)),
        case("retransmission_trigger", of_server(trigger), "no link of this host", of_both(trigger)),
        case("probe", of_both(probe), "another attachment", of_both(probe_anywhere)),
        case("probe", of_client(probe), "no host at the other end", of_both(probe_anywhere)),
        case("delayed_dupacks", of_server("delayed_dupacks = {}"), "brings data", of_client("delayed_dupacks = {}")),
        case("ebsn", of_server("ebsn = {}"), "no router has `ebsn`", notified.clone()),
        case("ebsn", both_notified, "sends no data", notified),
        case("srp", of_client("srp = {}"), "no router", split),
        case("unreachable_poke", of_server("unreachable_poke = {}, wake = {}"), "no link of this host", {
            of_server("unreachable_poke = {}, wake = { silence = {} }")
        }),
        case("release", of_client("release = {}"), "withholds no ACKs", of_client("wake = {}, release = {}")),
    ];
    at_link_events.into_iter().chain(without_a_flow).chain(unwarned).chain(others).collect()
}

fn of_routers() -> Vec<Case> {
    let on = |mechanism: &str| format!("{mechanism} = {{}}");
    let beside_freeze = |mechanism: &str| changed(&warned("freeze = {}"), "", &router(&on(mechanism)), OUTAGES);
    let between_identities = |mechanism: &str| {
        let identity = "identity = {}";
        changed(identity, identity, &router(&on(mechanism)), OUTAGES)
    };
    let upload = |mechanism: &str| {
        let (down, up) = ("from = \"server\"\nto = \"client\"", "from = \"client\"\nto = \"server\"");
        middle(&on(mechanism)).replace(down, up)
    };
    let mut cases = Vec::new();
    for mechanism in ["gateway", "supervisor", "tawcf"] {
        let acts = middle(&on(mechanism));
        cases.push(case(mechanism, deaf(&on(mechanism)), "hears of none", acts.clone()));
        cases.push(case(mechanism, far(&on(mechanism)), "hears of none", acts));
    }
    // Mode "thesis" by itself sees the windows of zero of hosts with `freeze`.
    let thesis = "gateway = { mode = \"thesis\" }";
    let frozen = changed(&warned("freeze = {}"), "", &router(&format!("hears_links = false, {thesis}")), OUTAGES);
    cases.push(case("gateway", deaf(thesis), "hears of none", frozen));
    for mechanism in ["split", "m_tcp", "snoop"] {
        cases.push(case(mechanism, aside(&on(mechanism)), "no flow of a host", middle(&on(mechanism))));
    }
    for mechanism in ["supervisor", "buffer_freeze", "snoop"] {
        cases.push(case(mechanism, upload(mechanism), "no flow brings data", middle(&on(mechanism))));
    }
    for mechanism in ["supervisor", "buffer_freeze", "split", "m_tcp", "snoop", "tawcf", "blocking_buffer"] {
        cases.push(case(mechanism, between_identities(mechanism), "sees no TCP header", beside_freeze(mechanism)));
    }
    let blocking = "blocking_buffer";
    cases.push(case(blocking, middle(&on(blocking)), "has `freeze`", beside_freeze(blocking)));
    let never = middle(&on("copy_and_forward"));
    cases.push(Case { mechanism: "copy_and_forward", never, says: "registers", acts: None });
    let split = changed(&host("srp = {}"), "", &router("srp = {}"), "");
    cases.push(case("srp", middle("srp = {}"), "has no `srp`", split));
    let [unheard, heard] =
        [OUTAGES, "arq = {}"].map(|radio| changed("", &host("ebsn = {}"), &router("ebsn = {}"), radio));
    cases.push(case("ebsn", unheard, "\"arq\"", heard));
    cases
}

/// The mechanisms that `docs/mechanisms` lists, of hosts and of routers.
fn documented() -> [BTreeSet<String>; 2] {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mechanisms/README.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (hosts, routers) = page.split_once("## In the network").unwrap();
    // | [`hold_back`](hold_back.md), [`ack_stall`](ack_stall.md) | an ACK of new data ... |
    [hosts, routers].map(|part| {
        let rows = part.lines().filter_map(|line| line.strip_prefix("| [`")?.split(" |").next());
        rows.flat_map(|cell| cell.split("[`")).filter_map(|name| name.split('`').next()).map(str::to_owned).collect()
    })
}

// Claim: Each mechanism that docs/mechanisms lists is refused where it can never act, or `scenario check` warns of it; where it can, there
// is neither an error nor such a warning.
#[test]
fn each_mechanism_is_noticed_where_it_can_never_act() {
    for (cases, documented) in [of_hosts(), of_routers()].into_iter().zip(documented()) {
        for case in &cases {
            let Case { mechanism, never, says, acts } = case;
            let said = complaint(never);
            assert!(said.contains(*says), "{mechanism}: {said}\n{never}");
            if let Some(acts) = acts {
                assert_eq!(complaint(acts), "", "{mechanism}\n{acts}");
            }
        }
        let covered: BTreeSet<&str> = cases.iter().map(|case| case.mechanism).collect();
        assert!(documented.len() > 10, "{documented:?}");
        for mechanism in &documented {
            assert!(covered.contains(mechanism.as_str()), "no case of {mechanism}");
        }
    }
}

/// A mechanism of hosts at a router, and one of routers at a host, are unknown fields.
#[test]
fn mechanisms_belong_to_hosts_or_to_routers() {
    let [hosts, routers] = documented();
    for mechanism in hosts.difference(&routers) {
        let said = complaint(&middle(&format!("{mechanism} = {{}}")));
        assert!(said.contains(&format!("there is no field \"{mechanism}\" here")), "{said}");
    }
    for mechanism in routers.difference(&hosts) {
        let said = complaint(&client(&host(&format!("{mechanism} = {{}}"))));
        assert!(said.contains(&format!("there is no field \"{mechanism}\" here")), "{said}");
    }
}

/// With host identity, a host gets events of its peers' links.
#[test]
fn a_peer_by_identity_hears_of_links() {
    for table in ["reconnect_acks = {}", "user_timeout = {}", "unreachable_poke = {}"] {
        let lines = format!("identity = {{}}\n{}", host(table));
        assert_eq!(complaint(&changed("identity = {}", &lines, "", OUTAGES)), "", "{table}");
        assert!(complaint(&changed("", &lines, "", OUTAGES)).contains("no link of this host"), "{table}");
    }
}

/// The warnings about a scenario that is read.
fn warnings(text: &str) -> Vec<String> {
    Scenario::parse("test.toml", text, NoFiles).unwrap_or_else(|error| panic!("{error}\n{text}")).warnings().unwrap()
}

/// A scenario with datagrams in place of its TCP.
fn datagrams(text: &str) -> String {
    let (before, flow) = text.split_once("[[flow]]").unwrap();
    let bulk = flow.lines().find(|line| line.starts_with("bulk")).unwrap();
    let on_off = "on_off = { rate = \"1 Mbit/s\", datagram = \"1000 B\", mean_on = \"1 s\", mean_off = \"1 s\" }";
    format!("{before}[[flow]]{}", flow.replacen(bulk, on_off, 1).replace("opener = \"client\"\n", ""))
}

/// Mechanisms for TCP at the ends of flows of datagrams, or between them.
#[test]
fn datagrams_are_no_tcp() {
    let hosts = client(&host("wake = {}"));
    assert!(warnings(&hosts).is_empty());
    assert_eq!(warnings(&datagrams(&hosts)), ["the mechanisms of host \"client\" can never act: no flow of it is TCP"]);
    for mechanism in ["split", "snoop", "supervisor", "gateway = { mode = \"freeze\" }"] {
        let table = if mechanism.contains('{') { mechanism.to_owned() } else { format!("{mechanism} = {{}}") };
        let text = complaint(&datagrams(&middle(&table)));
        assert!(text.contains("of router \"middle\" can never act") && text.contains("is TCP"), "{text}");
    }
    // It queues packets of any kind.
    assert_eq!(complaint(&datagrams(&middle("gateway = {}"))), "");
}

/// Mechanisms that withhold ACKs do so with and without outages.
#[test]
fn withholding_acks_without_effect_is_warned_of() {
    for key in ["wake", "hold_back"] {
        let table = host(&format!("{key} = {{}}"));
        assert!(warnings(&client(&table)).is_empty());
        for text in [changed(&table, "", "", ""), server(&table)] {
            let [warning] = warnings(&text).try_into().unwrap();
            assert!(warning.contains(&format!("`{key}` of host")) && warning.contains("never wake"), "{warning}");
        }
    }
    // Outages of others' links are found by their silence.
    let detects = host("wake = { silence = {} }");
    assert!(warnings(&server(&detects)).is_empty());
    assert_eq!(warnings(&changed(&detects, "", "", "")).len(), 1, "there are none");
    let delays = host("delayed_dupacks = {}");
    assert!(warnings(&changed(&delays, "", "", "arq = { in_order = false }")).is_empty());
    assert!(warnings(&changed(&delays, "", &router("snoop = {}"), OUTAGES)).is_empty());
    let far = "[[router]]\nname = \"far\"\n[[link]]\nname = \"trunk\"\nbetween = [\"middle\", \"far\"]\narq = { in_order = false }\n";
    assert!(warnings(&format!("{}\n{far}", client(&delays))).is_empty(), "a link that does not end at the host");
    for text in [client(&delays), changed(&delays, "", "", "arq = {}")] {
        let [warning] = warnings(&text).try_into().unwrap();
        assert!(warning.contains("without preventing") && warning.contains("\"in_order\""), "{warning}");
    }
}

/// Outages before the first flow, and after the run.
#[test]
fn outages_that_no_flow_meets_are_noticed() {
    let wakes = host("wake = {}");
    let never = |radio: &str, start: &str| {
        let text = changed(&wakes, "", "", radio).replace("[[flow]]\n", &format!("[[flow]]\n{start}\n"));
        let warnings = warnings(&text);
        assert!(warnings.len() <= 1, "{warnings:?}");
        warnings.into_iter().next().unwrap_or_default()
    };
    assert_eq!(never(OUTAGES, "start = \"1900 ms\""), "", "a flow begins in the outage");
    let before = never(OUTAGES, "start = \"2 s\"");
    assert!(before.contains("outages of link \"radio\": they are over when the first flow begins"), "{before}");
    for late in [
        "time_limit = \"1 s\"",
        "outages = { connected = \"5 h\", disconnected = \"1 s\" }",
        "outages = { first_at = \"5 h\", connected = \"1 s\", disconnected = \"1 s\" }",
    ] {
        let text = if late.starts_with("time") {
            let text = changed(&wakes, "", "", OUTAGES);
            let limit = text.lines().find(|line| line.starts_with("time_limit")).map(str::to_owned);
            limit.map_or_else(|| format!("{late}\n{text}"), |limit| text.replacen(&limit, late, 1))
        } else {
            changed(&wakes, "", "", late)
        };
        let [warning] = warnings(&text).try_into().unwrap();
        assert!(warning.contains("the run is over when the first one begins"), "{late}: {warning}");
    }
    // Without mechanisms there is no warning.
    assert!(warnings(&changed("", "", "", "outages = { connected = \"5 h\", disconnected = \"1 s\" }")).is_empty());
}

/// A link that is down at first comes up as another attachment.
#[test]
fn a_link_that_is_down_at_first_is_another_attachment() {
    let at_first = OUTAGES.replace("\"1 s\", for", "\"0 s\", for");
    for table in ["new_cell_window = {}", "fast_retransmit = {}"] {
        assert_eq!(complaint(&changed(&host(table), "", "", &at_first)), "", "{table}");
    }
}
