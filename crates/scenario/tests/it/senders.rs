//! The senders of the papers: a scenario that names a profile has exactly the same stacks as with a table of changes to 4.3BSD, and can
//! still change the values that a paper leaves open.

use std::path::Path;

use holdover_scenario::{NoFiles, Override, Scenario};
use holdover_sim::WorldConfig;

/// A sender as the scenarios of a paper have it.
struct Sender {
    /// The folder in `experiments/`.
    paper: &'static str,
    /// Texts of the scenarios, and those with the same meaning in terms of `reno-bsd` and `tahoe-bsd`. The first is in each of them.
    texts: &'static [(&'static str, &'static str)],
    /// The number of these scenarios.
    scenarios: usize,
    /// Inputs that the paper leaves open, each with a value that is not the profile's.
    open: &'static [(&'static str, &'static str)],
}

const SENDERS: [Sender; 4] = [
    Sender {
        paper: "freeze-tcp",
        texts: &[(
            r#"{ profile = "solaris-2.6", mss = "1000 bytes" }"#,
            r#"{ profile = "reno-bsd", mss = "1000 bytes", send = { buffer = "8 KiB" }, recovery = { zero_window = "freeze" }, rto = { initial = "500 ms", min = "200 ms", max = "60 s", tick = "10 ms" }, persist = { min = "200 ms", max = "60 s", payload = "one-byte" }, limits = { syn_retries = 8 } }"#,
        )],
        scenarios: 11,
        open: &[
            ("host.server.stack.recovery.zero_window", "pull-back"),
            ("host.server.stack.rto.min", "436 ms"),
            ("host.server.stack.send.buffer", "3090 B"),
        ],
    },
    Sender {
        paper: "freeze-tcp",
        texts: &[(r#"profile = "aix-4.2""#, r#"profile = "reno-bsd""#)],
        scenarios: 2,
        open: &[("host.server.stack.persist.min", "652 ms")],
    },
    Sender {
        paper: "m-tcp",
        texts: &[(r#"profile = "netbsd-1.1""#, r#"profile = "reno-bsd""#)],
        scenarios: 10,
        open: &[],
    },
    Sender {
        paper: "probe-buffer-freeze",
        texts: &[
            (
                r#"{ profile = "reno-ns1", mss = "512 bytes", receive = { ack = "immediate" } }"#,
                r#"{ profile = "reno-bsd", mss = "512 bytes", receive = { ack = "immediate" }, recovery = { zero_window = "freeze" } }"#,
            ),
            (r#"["reno-ns1", "tahoe-ns1"]"#, r#"["reno-bsd", "tahoe-bsd"]"#),
        ],
        scenarios: 4,
        open: &[("stack.recovery.zero_window", "pull-back"), ("stack.receive.ack", "delayed")],
    },
];

impl Sender {
    /// The names and texts of the scenarios, as they are and in terms of 4.3BSD.
    fn scenarios(&self) -> Vec<(String, String, String)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(self.paper);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            if path.extension().is_some_and(|extension| extension == "toml") && text.contains(self.texts[0].0) {
                let spelt_out = self.texts.iter().fold(text.clone(), |text, (now, then)| text.replace(now, then));
                assert!(spelt_out.contains(self.texts[0].1));
                found.push((path.display().to_string(), text, spelt_out));
            }
        }
        assert_eq!(found.len(), self.scenarios, "{}", folder.display());
        found
    }
}

/// The worlds of all variants.
fn worlds(name: &str, text: &str, changes: &[Override]) -> Vec<WorldConfig> {
    let scenario = Scenario::parse(name, text, NoFiles).and_then(|scenario| scenario.with(changes));
    let scenario = scenario.unwrap_or_else(|error| panic!("{}", error.report(Default::default())));
    scenario.variants().iter().map(|variant| variant.world(scenario.seed()).unwrap()).collect()
}

// Claim: The scenarios of the papers that name a sender's profile have exactly the stacks that changes to 4.3BSD give them, also
// with each input changed that a paper leaves open.
#[test]
fn a_papers_sender_is_its_changes_to_4_3_bsd() {
    for sender in SENDERS {
        for (name, now, then) in sender.scenarios() {
            let as_written = worlds(&name, &now, &[]);
            assert!(as_written == worlds(&name, &then, &[]), "{name}");
            for &(path, value) in sender.open {
                let change = [Override::new(path, value)];
                let changed = worlds(&name, &now, &change);
                assert!(changed != as_written, "{name}: {path} changes nothing");
                assert!(changed == worlds(&name, &then, &change), "{name}: {path}");
            }
        }
    }
}

/// The axis of the PROBE paper's scenarios sets the profile under the other fields of the stack.
#[test]
fn tahoe_of_ns_is_its_changes_to_4_3_bsd() {
    for (name, now, then) in SENDERS[3].scenarios() {
        let tahoe = worlds(&name, &now, &[Override::new("stack.profile", "tahoe-ns1")]);
        assert!(tahoe == worlds(&name, &then, &[Override::new("stack.profile", "tahoe-bsd")]), "{name}");
        assert!(tahoe != worlds(&name, &now, &[]), "{name}");
    }
}
