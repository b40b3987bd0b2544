//! Examples of every command, for `--help` and the man pages. A test parses each of them.

use clap::Command;

use crate::lacks;

/// A command line, and its description.
pub(crate) type Example = (&'static str, &'static str);

/// Commands by their path below `holdover`; the empty path is the program itself.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "",
        &[
            ("holdover demo", "See what an outage does to TCP, and what the agent does about it"),
            ("sudo holdover agent --dry-run --foreground", "Watch this host's links and print what the agent would do"),
            ("holdover run train-tunnel", "Simulate a scenario and write a report"),
        ],
    ),
    (
        "demo",
        &[
            ("holdover demo", "On this machine's kernel where that is possible, else in the simulator"),
            (
                "holdover demo --sender bbr --out /tmp/demo",
                "With BBR as congestion control; the report goes to /tmp/demo",
            ),
            ("holdover demo --simulated --json", "In the simulator, without a live view; print JSON"),
        ],
    ),
    (
        "agent",
        &[
            ("sudo holdover agent --foreground", "Run the agent in this terminal until Ctrl-C"),
            ("sudo holdover agent status", "Links, connections, and the agent's actions for them"),
            ("sudo holdover agent test", "Check that the agent works on this machine"),
        ],
    ),
    (
        "agent run",
        &[
            ("sudo holdover agent run --dry-run --foreground", "Change nothing; print what would be done"),
            (
                "sudo holdover agent run --config ./agent.toml --interface wwan0",
                "Another configuration, one more interface",
            ),
        ],
    ),
    (
        "agent check",
        &[
            ("holdover agent check", "The effective configuration, and the features that the agent would have"),
            ("holdover agent check ./agent.toml --json", "Check a file before it is used; print JSON"),
        ],
    ),
    ("agent schema", &[("holdover agent schema > agent.schema.json", "Write the schema for an editor")]),
    (
        "agent signal",
        &[
            ("sudo holdover agent signal down --interface wwan0", "The link is cut"),
            ("sudo holdover agent signal up --interface wwan0", "The link is back"),
            ("sudo holdover agent signal fading --lead 300ms", "All links are about to be cut, in 300 ms"),
        ],
    ),
    (
        "agent status",
        &[
            ("sudo holdover agent status", "As tables"),
            ("sudo holdover agent status --json | jq '.links[].state'", "For scripts"),
        ],
    ),
    ("agent top", &[("sudo holdover agent top", "The live view")]),
    (
        "agent actions",
        &[
            ("sudo holdover agent actions", "The last actions"),
            ("sudo holdover agent actions --follow --json", "Each further action as a line of JSON, until Ctrl-C"),
        ],
    ),
    (
        "agent test",
        &[
            ("sudo holdover agent test", "The programs of this agent across an outage of 0.5 s, in namespaces"),
            ("sudo holdover agent test --json", "For monitoring; the exit status is 0 if it works"),
        ],
    ),
    (
        "agent bugreport",
        &[
            ("sudo holdover agent bugreport", "Write a directory that can be attached to a bug report"),
            (
                "sudo holdover agent bugreport --out /tmp/report --with-addresses",
                "The same with the addresses of hosts",
            ),
        ],
    ),
    (
        "doctor",
        &[
            ("holdover doctor", "Which uses work on this machine, and how to enable the others"),
            ("holdover doctor --for agent --json", "Exit with 1 if the agent cannot work here"),
        ],
    ),
    (
        "bench",
        &[
            ("holdover bench", "All measures"),
            ("holdover bench sim-bulk --json", "One of them, as JSON"),
            ("sudo holdover bench gateway --haproxy /usr/sbin/haproxy", "The cost of forwarding, beside HAProxy's"),
        ],
    ),
    (
        "conformance",
        &[
            ("holdover conformance --out kernel.md", "How this machine's kernel behaves around outages, as a page"),
            ("holdover conformance --list", "The experiments and their cases"),
            (
                "holdover conformance --agent-links --only \"3 s, cubic\"",
                "The agent on links with carrier, outages of 3 s",
            ),
            (
                "sudo holdover conformance --gateway --only \"carrier, cubic\"",
                "Mobile hosts behind the gateway, away for 0.3 to 20 s",
            ),
        ],
    ),
    (
        "explain",
        &[
            ("holdover explain capture.pcapng", "Where each connection of a capture lost its time"),
            ("sudo holdover explain --live eth0 --for 60", "Capture for a minute, then explain"),
            (
                "holdover explain capture.pcapng --outage 12.5-19.5 --json",
                "The link is known to have been down; print JSON",
            ),
        ],
    ),
    (
        "kernel-matrix",
        &[
            ("holdover kernel-matrix --jobs 8", "Every pair of settings, eight transfers at a time"),
            (
                "holdover kernel-matrix --only sack --captures /tmp/captures",
                "Some of them; keep captures of those that fail",
            ),
        ],
    ),
    (
        "packetdrill",
        &[
            ("holdover packetdrill tests/ --ip-version ipv4,ipv6", "Every script of a directory, over IPv4 and IPv6"),
            ("holdover packetdrill one.pkt --profile linux-6-reno --json", "One script against a given stack"),
        ],
    ),
    (
        "reproduce",
        &[
            ("holdover reproduce --list", "The papers, their experiments and claims"),
            ("holdover reproduce hip-uto-rt", "One paper"),
            (
                "sudo holdover reproduce m-tcp --real",
                "M-TCP's own measurements, of the gateway's daemon on this kernel",
            ),
            (
                "sudo holdover reproduce hip-uto-rt --real",
                "Single and periodic disconnections of transfers over host identities, on this kernel, in half an hour",
            ),
            (
                "holdover reproduce freeze-tcp/table-2 --jobs 1 --out results/table-2",
                "One experiment, one run at a time",
            ),
        ],
    ),
    (
        "run",
        &[
            ("holdover run train-tunnel", "A built-in scenario, in the simulator"),
            (
                "holdover run first.toml --set link.radio.delay=\"50 ms\" --out results/slow",
                "A file of your own, with a field changed",
            ),
            ("holdover run elevator --both --repeat 5", "Simulator and this machine's kernel side by side"),
        ],
    ),
    (
        "scenario",
        &[("holdover scenario list", "The built-in scenarios"), ("holdover scenario check first.toml", "Check a file")],
    ),
    (
        "scenario check",
        &[("holdover scenario check first.toml --json", "The file's summary, or its first error, as JSON")],
    ),
    (
        "scenario trace",
        &[("holdover scenario trace drive.pcapng --interval 500ms -o drive.csv", "Make a link's trace of a capture")],
    ),
    ("scenario schema", &[("holdover scenario schema > scenario.schema.json", "Write the schema for an editor")]),
    ("scenario list", &[("holdover scenario list", "Names and titles")]),
    ("scenario show", &[("holdover scenario show train-tunnel", "Print the file")]),
    ("scenario copy", &[("holdover scenario copy lte-trace my-scenarios", "Copy it and its trace into a directory")]),
    (
        "shell",
        &[
            ("holdover shell train-tunnel --agent --events", "A shell on the mobile host, with the agent"),
            (
                "holdover shell train-tunnel --serve \"server=python3 -m http.server 80\" -- curl http://server/",
                "A program against a server on another host",
            ),
        ],
    ),
    (
        "sweep",
        &[
            ("holdover sweep train-tunnel --out results/sweep", "Every combination of the scenario's axes"),
            ("holdover sweep train-tunnel --out results/sweep --resume", "Continue after an interruption"),
        ],
    ),
    (
        "completions",
        &[
            (
                "holdover completions bash > /etc/bash_completion.d/holdover",
                "Completion of commands and options in new shells",
            ),
            ("holdover completions zsh > _holdover", "The same for zsh, for a directory of $fpath"),
        ],
    ),
    (
        "gateway",
        &[
            (
                "sudo holdover gateway run --interface wlan0 --foreground",
                "Run the gateway in this terminal until Ctrl-C",
            ),
            ("sudo holdover gateway mobiles", "Absent hosts, and waiting packets"),
        ],
    ),
    (
        "gateway demo",
        &[
            ("sudo holdover gateway demo", "Outages with and without the gateway, side by side"),
            ("sudo holdover gateway demo --json > demo.json", "The same as JSON"),
            ("sudo holdover gateway demo --page demo.html", "The same, and a page"),
            ("sudo holdover gateway demo --cluster 3", "Three gateways that agree in etcd"),
        ],
    ),
    (
        "gateway run",
        &[
            ("sudo holdover gateway run --interface wlan0 --dry-run --foreground", "Report absences; divert nothing"),
            ("sudo holdover gateway run", "With the interface that /etc/holdover/gateway.toml names"),
        ],
    ),
    ("gateway check", &[("holdover gateway check ./gateway.toml", "Check a file before it is used")]),
    ("gateway schema", &[("holdover gateway schema > gateway.schema.json", "Write the schema for an editor")]),
    ("gateway status", &[("sudo holdover gateway status --json", "State and counters as JSON")]),
    ("gateway mobiles", &[("sudo holdover gateway mobiles", "Absent hosts, since when, and waiting packets")]),
    (
        "gateway mobile",
        &[
            ("sudo holdover gateway mobile 10.0.1.7 away", "Keep packets for it"),
            ("sudo holdover gateway mobile 10.0.1.7 present", "Release it"),
        ],
    ),
    (
        "gateway handoff",
        &[(
            "sudo holdover gateway handoff 10.0.1.7",
            "Ask the other gateways for packets waiting for a host that has come here",
        )],
    ),
    ("gateway top", &[("sudo holdover gateway top", "Watch the mobile hosts, absent ones first")]),
    ("gateway drain", &[("sudo holdover gateway drain --within 30s", "End within 30 s, sooner if no packet waits")]),
    (
        "hip",
        &[
            ("sudo holdover hip keygen", "Create this host's identity"),
            ("sudo holdover hip up", "Run the daemon in this terminal until Ctrl-C"),
            ("sudo holdover hip status", "Addresses of this host and its peers"),
        ],
    ),
    ("hip keygen", &[("sudo holdover hip keygen --algorithm ecdsa-p256", "An identity of another kind")]),
    (
        "hip id",
        &[
            ("sudo holdover hip id", "The HIT by which peers know this host"),
            ("sudo holdover hip id --dns server.example.org", "The line that makes it known in the DNS"),
        ],
    ),
    ("hip peer", &[("sudo holdover hip peer list", "All peers")]),
    (
        "hip peer add",
        &[
            (
                "sudo holdover hip peer add server 2001:21::1 192.0.2.7",
                "By its HIT, and an address where it may be found",
            ),
            ("sudo holdover hip peer add server.example.org", "By its HIP record in the DNS"),
            ("sudo holdover hip peer add server --opportunistic 192.0.2.7", "Whatever host answers there, unproved"),
        ],
    ),
    ("hip peer remove", &[("sudo holdover hip peer remove server", "Its association ends")]),
    ("hip peer list", &[("sudo holdover hip peer list --hosts", "In the form of /etc/hosts")]),
    ("hip proxy", &[("sudo holdover hip proxy list", "All hosts behind this router")]),
    (
        "hip proxy add",
        &[(
            "sudo holdover hip proxy add camera 192.168.7.10 fd00:7::10 --interface lan0",
            "An identity for a host without HIP",
        )],
    ),
    ("hip proxy remove", &[("sudo holdover hip proxy remove camera", "Its associations end; its key stays")]),
    ("hip proxy list", &[("sudo holdover hip proxy list --json", "Print JSON")]),
    (
        "hip invite",
        &[(
            "sudo holdover hip invite --name server",
            "Print a string for the other host's `hip join`, and wait for it",
        )],
    ),
    ("hip join", &[("sudo holdover hip join hip:aecqaiaba...", "Become a peer of the host that printed it")]),
    (
        "hip up",
        &[
            ("sudo holdover hip up", "Until Ctrl-C"),
            ("sudo holdover hip up --no-wake", "Without waking TCP after moves"),
            ("sudo holdover hip up --esp-keys /root/esp_sa", "Write keys with which Wireshark decrypts captures"),
        ],
    ),
    (
        "hip rendezvous",
        &[("sudo holdover hip rendezvous", "Hosts that have joined this one are reached at any address")],
    ),
    ("hip relay", &[("sudo holdover hip relay --metrics 127.0.0.1:9477", "A relay, with metrics for Prometheus")]),
    ("hip down", &[("sudo holdover hip down", "End all associations and the daemon")]),
    ("hip status", &[("sudo holdover hip status --json", "Print JSON")]),
    ("hip top", &[("sudo holdover hip top", "Traffic to and from each peer")]),
    (
        "hip ping",
        &[
            ("sudo holdover hip ping --count 10 server", "Ten echo requests"),
            (
                "sudo holdover hip ping server --json | jq '.round_trip_s // empty'",
                "For programs: each reply is a line",
            ),
        ],
    ),
    (
        "hip between-hits",
        &[(
            "holdover hip between-hits eth0.pcapng --out hits.pcap",
            "Then Wireshark verifies the checksums within ESP",
        )],
    ),
];

/// Whether this program has the command of a line.
fn is_available((line, _): &&Example) -> bool {
    let command = line.split(' ').skip_while(|word| *word != "holdover").nth(1);
    !command.is_some_and(lacks)
}

/// The command and all below it, with their examples at the end of `--help`.
pub(crate) fn with_examples(command: Command) -> Command {
    below(command, "")
}

/// The examples of the command at a path below `holdover`.
pub(crate) fn of(path: &str) -> Vec<&'static Example> {
    let examples: &[Example] = EXAMPLES.iter().find(|(of, _)| *of == path).map_or(&[], |(_, examples)| examples);
    examples.iter().filter(is_available).collect()
}

fn below(command: Command, path: &str) -> Command {
    let examples = of(path);
    let command = if examples.is_empty() { command } else { command.after_help(text(&examples)) };
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let path = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
        command.mut_subcommand(name, |sub| below(sub, &path))
    })
}

fn text(examples: &[&Example]) -> String {
    let lines = examples.iter().map(|(line, what)| format!("\n  {line}\n      {what}"));
    format!("Examples:{}", lines.collect::<String>())
}

#[cfg(all(test, feature = "full"))]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::CommandLine;

    /// The paths of a command and all below it.
    fn paths(command: &Command, path: &str, all: &mut BTreeSet<String>) {
        all.insert(path.to_owned());
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
            paths(sub, format!("{path} {}", sub.get_name()).trim(), all);
        }
    }

    /// The words of a command line up to a pipe, a redirection, a comment or another command; quotes hold words together.
    fn words(line: &str) -> Vec<String> {
        let line = line.strip_prefix("sudo ").unwrap_or(line);
        let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
        for c in line.chars() {
            match (quote, c) {
                (None, '"' | '\'') => quote = Some(c),
                (Some(open), _) if c == open => quote = None,
                (None, '|' | '>' | '#' | ';' | '&') => break,
                (None, ' ') => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
                _ => word.push(c),
            }
        }
        words.extend(Some(word).filter(|word| !word.is_empty()));
        words
    }

    /// The program, called in the sources: that of the first look, and the complete one.
    const CARGO_RUN: [&str; 2] = ["cargo run --release -- ", "cargo run --release --features full -- "];

    /// The lines of shell in a page that call the program.
    fn calls(page: &str) -> Vec<String> {
        let blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
        let blocks: Vec<String> = blocks.map(|block| block.replace("\\\n", " ")).collect();
        let lines = blocks.iter().flat_map(|block| block.lines()).map(str::trim);
        let calls =
            lines.map(|line| CARGO_RUN.iter().fold(line.to_owned(), |line, run| line.replace(run, "holdover ")));
        calls.filter(|line| line.strip_prefix("sudo ").unwrap_or(line).starts_with("holdover ")).collect()
    }

    #[test]
    fn every_command_in_the_documentation_parses() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut waiting = vec![root.join("README.md"), root.join("docs")];
        let mut seen = 0;
        while let Some(path) = waiting.pop() {
            if path.is_dir() {
                waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else if path.extension().is_some_and(|extension| extension == "md") {
                for line in calls(&std::fs::read_to_string(&path).unwrap()) {
                    seen += 1;
                    let parsed = CommandLine::command().try_get_matches_from(words(&line));
                    let failed = parsed.err().filter(|error| error.use_stderr());
                    assert!(failed.is_none(), "{}: {line}\n{}", path.display(), failed.unwrap());
                }
            }
        }
        assert!(seen > 60, "the pages were not read as intended: {seen}");
    }

    // Claim: Every command has examples, and each of them parses; so does every command in these pages.
    // Tests: `examples::every_command_in_the_documentation_parses`
    #[test]
    fn every_command_has_examples_and_each_of_them_parses() {
        let mut all = BTreeSet::new();
        paths(&CommandLine::command(), "", &mut all);
        let documented: BTreeSet<String> = EXAMPLES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(documented, all);
        for (path, examples) in EXAMPLES {
            for (line, what) in *examples {
                assert!(!what.is_empty() && !what.ends_with('.'), "{line}");
                let words = words(line);
                assert!(words.join(" ").starts_with(format!("holdover {path}").trim()), "{path}: {line}");
                let parsed = with_examples(CommandLine::command()).try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }

    /// The value names of an option in a command and all below it.
    fn value_names(command: &Command, option: &str, names: &mut BTreeSet<String>) {
        let options = command.get_arguments().filter(|one| one.get_long() == Some(option));
        names.extend(options.flat_map(|one| one.get_value_names().unwrap_or_default()).map(ToString::to_string));
        command.get_subcommands().for_each(|sub| value_names(sub, option, names));
    }

    // Claim: Options that take a number have one name for it in all commands.
    #[test]
    fn numbers_have_one_name_in_all_commands() {
        let mut command = CommandLine::command();
        command.build();
        for option in ["jobs", "repeat", "seed"] {
            let mut names = BTreeSet::new();
            value_names(&command, option, &mut names);
            assert_eq!(names, BTreeSet::from(["N".to_owned()]), "--{option}");
        }
    }

    #[test]
    fn help_ends_with_examples() {
        let mut command = with_examples(CommandLine::command());
        let help = command.find_subcommand_mut("demo").unwrap().render_help().to_string();
        assert!(help.contains("Examples:\n  holdover demo\n"), "{help}");
    }
}
