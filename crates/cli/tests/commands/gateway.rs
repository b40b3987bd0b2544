//! `holdover gateway`, as far as it goes without a router: `crates/gatewayd/tests/gateway` has the rest.

use crate::Test;
use crate::support::{Place, interrupted};

pub(crate) const TESTS: &[Test] = &[
    (
        "a_configuration_is_checked_and_its_schema_is_the_published_one",
        a_configuration_is_checked_and_its_schema_is_the_published_one,
    ),
    ("invalid_gateway_commands_name_the_error", invalid_gateway_commands_name_the_error),
    ("a_failed_dry_run_leaves_no_directory", a_failed_dry_run_leaves_no_directory),
    ("an_interrupted_demo_leaves_no_directory", an_interrupted_demo_leaves_no_directory),
];

fn a_configuration_is_checked_and_its_schema_is_the_published_one() {
    let place = Place::new("gateway-check");
    place.write(
        "good.toml",
        "[mobiles]\ninterface = \"wlan7\"\nnetworks = [\"10.3.0.0/16\"]\n[buffer]\nlongest = \"20 s\"\n",
    );
    let printed = place.run("gateway check good.toml").well().out;
    assert!(printed.contains("interface = \"wlan7\"") && printed.contains("longest = \"20s\""), "{printed}");
    assert!(printed.contains("# As this user, the gateway can"), "{printed}");
    let json: serde_json::Value =
        serde_json::from_str(&place.run("gateway check good.toml --json").well().out).unwrap();
    assert_eq!(json["features"].as_array().unwrap().len(), 9, "{json}");
    assert_eq!((&json["can_work"], &json["features"][0]["fine"]), (&false.into(), &false.into()), "{json}");
    assert!(printed.contains("no interface wlan7; existing ones: "), "{printed}");
    place.write("lo.toml", "[mobiles]\ninterface = \"lo\"\n");
    let printed = place.run("gateway check lo.toml").well().out;
    assert!(printed.contains("--  gateway's interface interface lo has the unsupported type Loopback"), "{printed}");
    place.write("bad.toml", "[buffer]\nmobile_byte = 8\n");
    assert!(place.run("gateway check bad.toml").refused().contains("bad.toml:2:1"));
    assert!(place.run("gateway run --config bad.toml").refused().contains("bad.toml:2:1"));
    assert!(place.run("gateway check nowhere.toml").refused().contains("nowhere.toml"));
    let published = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/gateway.schema.json");
    assert_eq!(place.run("gateway schema").well().out, std::fs::read_to_string(published).unwrap());
}

fn invalid_gateway_commands_name_the_error() {
    let place = Place::new("gateway-errors");
    place.write("none.toml", "");
    let nowhere = place.run("gateway run --config none.toml").refused();
    assert!(nowhere.contains("behind which interface are the mobile hosts? --interface IF"), "{nowhere}");
    for command in ["status", "mobiles", "mobile 10.0.0.1 away", "drain"] {
        let ended = place.run(&format!("gateway {command} --socket no.sock"));
        assert_eq!(ended.code, Some(1), "{command}");
        let text = ended.err;
        assert!(text.contains("no gateway answers at no.sock") && text.contains("holdover gateway run"), "{text}");
    }
    assert!(place.run("gateway mobile phone away").refused().contains("invalid IP address"));
    assert!(
        place.run("gateway mobile 10.0.0.1 asleep").refused().contains("possible values: present, fading, away, moved")
    );
}

fn a_failed_dry_run_leaves_no_directory() {
    let place = Place::new("gateway-dry-run");
    place.write("none.toml", "");
    let failed = place.run("gateway run --dry-run --interface nowhere --config none.toml --socket run/holdover/s");
    assert!(failed.code != Some(0) && !failed.err.contains("panicked"), "{failed:?}");
    assert_eq!(place.entries(), ["none.toml"]);
}

fn an_interrupted_demo_leaves_no_directory() {
    let place = Place::new("gateway-interrupted");
    // Without the rights for it there is no demo, and so no directory either.
    if let Some(ended) = interrupted(&place, "gateway demo") {
        assert!(ended.code == Some(130) && ended.err.contains("interrupted"), "{ended:?}");
    }
    assert_eq!(place.entries(), [""; 0]);
}
