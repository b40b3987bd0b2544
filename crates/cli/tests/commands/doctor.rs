//! `holdover doctor` and `holdover conformance`.

use crate::support::{Ended, Place};

#[test]
fn lines_and_json_say_the_same() {
    let place = Place::new("doctor");
    let (text, json) = (place.run("doctor"), place.run("doctor --json"));
    assert_eq!(text.code, json.code);
    let json = json.json();
    let real_runs = json["real_runs"].as_bool().unwrap();
    assert_eq!(text.code, Some(i32::from(!real_runs)), "{}", text.out);
    let checks = json["checks"].as_array().unwrap();
    assert!(checks.len() >= 8, "{json}");
    for check in checks {
        let (name, found) = (check["name"].as_str().unwrap(), check["found"].as_str().unwrap());
        let line = text.out.lines().find(|line| line[4..].starts_with(name)).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(line.starts_with("ok"), check["fine"].as_bool().unwrap(), "{line}");
        assert_eq!(line.contains("; fix: "), check["fix"].is_string(), "{line}");
        assert!(line.contains(found), "{line}");
    }
}

#[test]
fn conformance_lists_runs_and_refuses() {
    let place = Place::new("conformance");
    let list = place.run("conformance --list").well().out;
    assert!(
        list.contains("wake: What does each kind of packet do") && list.contains("    3 s: nothing, bbr\n"),
        "{list}"
    );
    assert!(!list.contains("60 s, cubic"), "what takes minutes is run on request: {list}");
    let refused = place.run("conformance --only no-such-experiment").refused();
    assert!(refused.contains("\"no-such-experiment\""), "{refused}");

    let case = "dirty_freeze: 1 s, cubic";
    let output = place.command("conformance --json --only").arg(case).output().unwrap();
    let ended = Ended::new(case, output);
    if ended.err.contains("needs network namespaces") {
        let is_required = std::env::var_os("HOLDOVER_REQUIRE_NAMESPACES").is_some_and(|value| value == "1");
        assert!(!is_required && ended.code == Some(1), "{}", ended.err);
        println!("not run: {}", ended.err);
        return;
    }
    let json = ended.json();
    let row = &json["experiments"][0]["cases"][0];
    assert_eq!((row["sender"].as_str(), row["profile"].as_str()), (Some("cubic"), Some("linux-6-cubic")), "{json}");
    assert_eq!(row["kernel"].as_array().unwrap().len(), row["ours"].as_array().unwrap().len());
    assert!(row["error"].is_null(), "{json}");
    // On another kernel, or a very busy machine, it may differ, and says so.
    assert_eq!(ended.code == Some(0), row["verdict"] != "differs", "{json}");
}
