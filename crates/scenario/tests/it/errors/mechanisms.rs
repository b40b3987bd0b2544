//! Errors of the mechanisms of hosts and routers.

use holdover_scenario::{ErrorKind, NoFiles, Scenario};

use super::{changed, error_of, extended, place, spoilt};

#[test]
fn conflicting_mechanism_settings_are_refused() {
    for (table, kind, field) in [
        ("reconnect_acks = { copies = 0 }", ErrorKind::BadValue, "host.client.mechanisms.reconnect_acks.copies"),
        ("freeze = { period = \"1 s\" }", ErrorKind::Conflict, "host.client.mechanisms.freeze.period"),
        ("freeze = { warning = \"fixed\" }", ErrorKind::Conflict, "host.client.mechanisms.freeze"),
        (
            "new_cell_window = { initial = \"0 bytes\" }",
            ErrorKind::BadValue,
            "host.client.mechanisms.new_cell_window.initial",
        ),
        ("freeze = { round_trips = 0.0 }", ErrorKind::BadValue, "host.client.mechanisms.freeze.round_trips"),
        (
            "freeze = { warning = \"adaptive\", step = \"0 s\" }",
            ErrorKind::BadValue,
            "host.client.mechanisms.freeze.step",
        ),
    ] {
        let error = spoilt("name = \"client\"", &format!("name = \"client\"\nmechanisms.{table}"));
        assert_eq!((error.kind, error.field.as_str()), (kind, field), "{error}");
    }
}

#[test]
fn mechanisms_that_undo_each_other_are_refused_where_they_are_named() {
    let with = |tables: &str| {
        let host = "name = \"client\"";
        spoilt(host, &format!("{host}\n[host.mechanisms]\nwake = {{}}\n{tables}"))
    };
    let error = with("freeze = {}");
    assert_eq!(place(&error), (ErrorKind::Conflict, 8, 10, "host.client.mechanisms.freeze"), "{error}");
    assert!(error.to_string().contains("\"freeze\" cannot be combined with \"wake\""), "{error}");
    let error = with("retransmission_trigger = { peer = \"duplicate-acks\" }");
    assert_eq!(error.field, "host.client.mechanisms.retransmission_trigger");
}

/// Mechanisms of routers are checked at their tables.
#[test]
fn mechanisms_of_routers_can_be_as_described() {
    let with = |table: &str| spoilt("name = \"middle\"", &format!("name = \"middle\"\nmechanisms = {table}"));
    let router = "router.middle.mechanisms";
    for (table, kind, field) in [
        ("{ supervisor = {} }", ErrorKind::Conflict, String::from(router)),
        ("{ mobiles = [\"client\"] }", ErrorKind::Conflict, String::from(router)),
        ("{ mobiles = [\"middle\"], snoop = {} }", ErrorKind::BadValue, format!("{router}.mobiles.0")),
        ("{ mobiles = [\"klient\"], snoop = {} }", ErrorKind::UnknownName, format!("{router}.mobiles.0")),
        ("{ mobiles = [\"client\"], snoop = {}, split = {} }", ErrorKind::Conflict, format!("{router}.split")),
        (
            "{ mobiles = [\"client\"], gateway = { mode = \"choke\" } }",
            ErrorKind::BadValue,
            format!("{router}.gateway.mode"),
        ),
        (
            "{ mobiles = [\"client\"], gateway = { mobile_bytes = \"65535 bytes\" } }",
            ErrorKind::BadValue,
            format!("{router}.gateway.mobile_bytes"),
        ),
        ("{ mobiles = [\"client\"], gateway = {}, snoop = {} }", ErrorKind::Conflict, format!("{router}.gateway")),
        ("{ mobiles = [\"client\"], supervisor = { burst = 0 } }", ErrorKind::Conflict, format!("{router}.supervisor")),
        (
            "{ mobiles = [\"client\"], supervisor = { flush = \"0 s\" } }",
            ErrorKind::BadValue,
            format!("{router}.supervisor.flush"),
        ),
        (
            "{ mobiles = [\"client\"], m_tcp = { fixed_stack = \"minix\" } }",
            ErrorKind::BadValue,
            format!("{router}.m_tcp.fixed_stack"),
        ),
    ] {
        let error = with(table);
        assert_eq!((error.kind, &error.field), (kind, &field), "{table}: {error}");
    }
    for mechanism in ["split", "snoop", "m_tcp", "buffer_freeze"] {
        for (peers, field, message) in [
            ("[\"middle\"]", "peers.0", "this router itself"),
            ("[\"server\"]", "peers.0", "is a host"),
            ("[\"nowhere\"]", "peers.0", "nowhere"),
            ("[]", "peers", "leave out"),
        ] {
            let error = with(&format!("{{ mobiles = [\"client\"], {mechanism} = {{ peers = {peers} }} }}"));
            assert_eq!(error.field, format!("{router}.{mechanism}.{field}"), "{error}");
            assert!(error.to_string().contains(message), "{error}");
        }
    }
    // Two routers; the second one is `aside`.
    let pair = |middle: &str, aside: &str| {
        let routers = format!(
            "name = \"middle\"\nmechanisms = {{ {middle} }}\n[[router]]\nname = \"aside\"\n{aside}\n[[link]]\nname = \"lane\"\nbetween = [\"aside\", \"middle\"]"
        );
        spoilt("name = \"middle\"", &routers)
    };
    for mechanism in ["split", "snoop", "m_tcp", "buffer_freeze"] {
        let middle = format!("mobiles = [\"client\"], {mechanism} = {{ peers = [\"aside\"] }}");
        let on_aside = |keys: &str, mobile: &str| {
            format!("mechanisms = {{ mobiles = [\"{mobile}\"], {mechanism} = {{ {keys} }} }}")
        };
        for (aside, message) in [
            (String::new(), "would not answer"),
            (on_aside("", "client"), "would not answer"),
            (on_aside("peers = [\"middle\"]", "server"), "no mobile host in common"),
        ] {
            let error = pair(&middle, &aside);
            let field = format!("{router}.{mechanism}.peers.0");
            assert_eq!((error.kind, &error.field), (ErrorKind::Conflict, &field), "{error}");
            assert!(error.to_string().contains(message), "{error}");
        }
    }
    // Each names `middle`, but not the other one.
    for mechanism in ["split", "m_tcp", "buffer_freeze"] {
        let routing = |peers: &str| format!("mobiles = [\"client\"], {mechanism} = {{ peers = [{peers}] }}");
        let end = format!("mechanisms = {{ {} }}", routing("\"middle\""));
        let third = format!(
            "{end}\n[[router]]\nname = \"third\"\n{end}\n[[link]]\nname = \"path\"\nbetween = [\"third\", \"middle\"]"
        );
        let error = pair(&routing("\"aside\", \"third\""), &third);
        let field = format!("{router}.{mechanism}.peers");
        assert_eq!((error.kind, &error.field), (ErrorKind::Conflict, &field), "{error}");
        assert!(error.to_string().contains("peers of each other"), "{error}");
    }
    for variant in ["buffer = \"none\"", "freeze = false"] {
        let error = pair(
            "mobiles = [\"client\"], buffer_freeze = { peers = [\"aside\"] }",
            &format!(
                "mechanisms = {{ mobiles = [\"client\"], buffer_freeze = {{ {variant}, peers = [\"middle\"] }} }}"
            ),
        );
        assert_eq!(error.field, format!("{router}.buffer_freeze.peers.0"), "{error}");
        assert!(error.to_string().contains("cannot continue"), "{error}");
    }
    let aside = "\n[[router]]\nname = \"aside\"\nmechanisms = { mobiles = [\"client\"], snoop = {} }\n[[link]]\nname = \"lane\"\nbetween = [\"aside\", \"middle\"]\n";
    let error = extended(aside);
    assert_eq!((error.kind, error.field.as_str()), (ErrorKind::Conflict, "router.aside.mechanisms"), "{error}");
    assert!(error.to_string().contains("can never act"), "{error}");
}

/// Mechanisms that can never act are rejected, each at its table.
#[test]
fn mechanisms_that_can_never_act_are_refused() {
    const OUTAGES: &str = "outages = { list = [{ at = \"1 s\", for = \"1 s\" }] }";
    const EBSN: &str = "mechanisms = { mobiles = [\"client\"], ebsn = {} }";
    const SRP: &str = "mechanisms = { mobiles = [\"client\"], srp = {} }";
    const BLOCKING: &str = "mechanisms = { mobiles = [\"client\"], blocking_buffer = {} }";
    const FLAG: &str = "mechanisms = { mobiles = [\"client\"], blocking_buffer = { sign = \"ip-flag\" } }";
    const COPYING: &str = "mechanisms = { mobiles = [\"client\"], copy_and_forward = {} }";
    const DEAF: &str = "mechanisms = { mobiles = [\"client\"], hears_links = false, supervisor = {} }";
    const ASIDE: &str = "\n[[host]]\nname = \"idle\"\nmechanisms = { wake = {} }\n[[link]]\nname = \"lane\"\nbetween = [\"idle\", \"middle\"]\n";
    let host = |table: &str| format!("mechanisms = {{ {table} = {{}} }}");
    let (freeze, stall, ebsn, srp) = (host("freeze"), host("ack_stall"), host("ebsn"), host("srp"));
    let warned = |table: &str| format!("{table}\nforesight = \"300 ms\"");
    let refused = [
        (changed(&freeze, "", "", OUTAGES), "host.client.mechanisms.freeze", "nothing warns"),
        (changed(&stall, "", "", OUTAGES), "host.client.mechanisms.ack_stall", "nothing warns"),
        (changed(&warned(&freeze), "", "", ""), "host.client.mechanisms.freeze", "no link has outages"),
        (changed("", &ebsn, "", OUTAGES), "host.server.mechanisms.ebsn", "no router has `ebsn`"),
        (changed("", &ebsn, EBSN, OUTAGES), "router.middle.mechanisms.ebsn", "\"arq\""),
        (changed("", "", EBSN, "arq = {}"), "router.middle.mechanisms.ebsn", "no host that sends"),
        (changed(&ebsn, "", EBSN, "arq = {}"), "router.middle.mechanisms.ebsn", "no host that sends"),
        (changed("", "", SRP, ""), "router.middle.mechanisms.srp", "\"client\" has no `srp`"),
        (changed(&srp, "", "", ""), "host.client.mechanisms.srp", "no router"),
        (changed("", &srp, SRP, ""), "host.server.mechanisms.srp", "no router"),
        // Warned of outages of its own link, which has none.
        (changed("", &warned(&freeze), "", OUTAGES), "host.server.mechanisms.freeze", "no link of this host"),
        (changed("", &host("reconnect_acks"), "", OUTAGES), "host.server.mechanisms.reconnect_acks", "no link of this"),
        (changed(&host("probe"), "", "", OUTAGES), "host.client.mechanisms.probe", "no host at the other end"),
        (changed(&warned(&freeze), "", FLAG, OUTAGES), "router.middle.mechanisms.blocking_buffer", "`freeze.ip_flag`"),
        (changed(&warned(&freeze), "", COPYING, OUTAGES), "router.middle.mechanisms.copy_and_forward", "registers"),
        (changed("", "", DEAF, OUTAGES), "router.middle.mechanisms.supervisor", "hears of none"),
    ];
    for (text, field, message) in &refused {
        let error = error_of(text);
        assert_eq!((error.kind, error.field.as_str()), (ErrorKind::Conflict, *field), "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
    for of_returns in [
        "reconnect_acks",
        "timestamp_echo",
        "user_timeout",
        "new_cell_window",
        "fast_retransmit",
        "retransmission_trigger",
        "unreachable_poke",
    ] {
        let error = error_of(&changed(&host(of_returns), "", "", ""));
        assert_eq!(error.field, format!("host.client.mechanisms.{of_returns}"), "{error}");
        assert!(error.to_string().contains("it can never act"), "{error}");
    }
    for fine in [
        changed(&warned(&freeze), "", "", OUTAGES),
        changed("", &ebsn, EBSN, "arq = { attempts = \"none\", timeout = \"5 ms\", in_order = false }"),
        changed(&srp, "", SRP, ""),
        changed(&warned(&freeze), "", BLOCKING, OUTAGES),
        // Any host may advertise a window of zero.
        changed("", "", BLOCKING, OUTAGES),
        // It holds back while data flows, whether or not the link ever goes down.
        changed("mechanisms = { wake = {} }", "", "", ""),
    ] {
        Scenario::parse("test.toml", &fine, NoFiles).unwrap();
    }
    // `host.*` gives mechanisms to hosts without flows, too.
    let aside = Scenario::parse("test.toml", &format!("{}{ASIDE}", changed("", "", "", OUTAGES)), NoFiles).unwrap();
    assert_eq!(
        aside.warnings().unwrap(),
        ["the mechanisms of host \"idle\" can never act: no flow begins or ends at it"]
    );
    // A point of a sweep may lack the event for which a mechanism waits.
    let axis = "\n[[sweep.axis]]\npath = \"router.middle.mechanisms.hears_links\"\nvalues = [true, false]\n";
    let heard = changed("", "", &DEAF.replace("false", "true"), OUTAGES);
    let swept = Scenario::parse("test.toml", &format!("{heard}{axis}"), NoFiles).unwrap();
    for point in swept.sweep().expect("an axis").points() {
        swept.at(&point).unwrap();
    }
}

#[test]
fn settings_of_comparators_that_cannot_work_are_refused() {
    for (text, kind, field) in [
        (changed("", "", "", "arq = { attempts = 0 }"), ErrorKind::BadValue, "link.radio.arq.attempts"),
        (changed("", "", "", "arq = { timeout = \"0 s\" }"), ErrorKind::BadValue, "link.radio.arq.timeout"),
        (changed("", "", "", "arq = { tries = 3 }"), ErrorKind::UnknownField, "link.radio.arq.tries"),
        (
            changed("mechanisms = { delayed_dupacks = { delay = \"0 s\" } }", "", "", ""),
            ErrorKind::BadValue,
            "host.client.mechanisms.delayed_dupacks.delay",
        ),
        (
            changed("mechanisms = { delayed_dupacks = {}, wake = {} }", "", "", ""),
            ErrorKind::Conflict,
            "host.client.mechanisms.delayed_dupacks",
        ),
        (
            changed("mechanisms = { srp = { window = 65 } }", "", "", ""),
            ErrorKind::Conflict,
            "host.client.mechanisms.srp",
        ),
        (
            changed("", "mechanisms = { ebsn = { longest = \"0 s\" } }", "", ""),
            ErrorKind::BadValue,
            "host.server.mechanisms.ebsn.longest",
        ),
        (
            changed("", "", "mechanisms = { mobiles = [\"client\"], ebsn = {}, split = {} }", "arq = {}"),
            ErrorKind::Conflict,
            "router.middle.mechanisms.ebsn",
        ),
    ] {
        let error = error_of(&text);
        assert_eq!((error.kind, error.field.as_str()), (kind, field), "{error}");
    }
}
