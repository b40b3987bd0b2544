//! `holdover explain`.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::Test;
use crate::support::{Place, SCENARIO, exchanges};

pub(crate) const TESTS: &[Test] = &[
    ("a_run_and_a_capture_are_explained", a_run_and_a_capture_are_explained),
    ("outages_are_those_of_a_connections_own_path", outages_are_those_of_a_connections_own_path),
    (
        "damaged_and_compressed_captures_are_explained_as_far_as_they_go",
        damaged_and_compressed_captures_are_explained_as_far_as_they_go,
    ),
    ("captures_of_kernels_are_explained_from_either_end", captures_of_kernels_are_explained_from_either_end),
    (
        "a_live_interface_is_explained_and_one_that_is_not_there_is_refused",
        a_live_interface_is_explained_and_one_that_is_not_there_is_refused,
    ),
    (
        "both_directions_of_questions_and_answers_are_explained_once",
        both_directions_of_questions_and_answers_are_explained_once,
    ),
    ("a_moving_hosts_outages_are_those_of_its_connections", a_moving_hosts_outages_are_those_of_its_connections),
    ("inputs_that_cannot_be_explained_give_one_error", inputs_that_cannot_be_explained_give_one_error),
    ("errors_under_json_are_json_for_every_command", errors_under_json_are_json_for_every_command),
];

/// How long was lost to `cause`.
fn seconds(explained: &Value, cause: &str) -> f64 {
    let shares = explained["lost"].as_array().unwrap();
    shares.iter().find(|share| share["cause"] == cause).unwrap()["seconds"].as_f64().unwrap()
}

/// The parts of a connection's time, and the whole.
fn adds_up(explained: &Value) {
    let parts: f64 = explained["lost"].as_array().unwrap().iter().map(|share| share["seconds"].as_f64().unwrap()).sum();
    assert!((parts - explained["seconds"].as_f64().unwrap()).abs() < 1e-6, "{explained}");
}

// Claim: `explain` finds the outage and the wait for the timer, in a run and in its captures at either end, and its parts add up
// to the total.
fn a_run_and_a_capture_are_explained() {
    let place = Place::with_scenario("explain", SCENARIO);
    place.run("run short.toml --out out --no-plots --quiet --set output.snap_length=96bytes").well();
    let text = place.run("explain out").well().out;
    assert!(text.contains("outage") && text.contains("RTO wait"), "{text}");
    let of_run = place.run("explain out --json").well().json();
    let of_run = of_run.as_array().unwrap();
    assert_eq!(of_run.len(), 2, "one connection in each of two variants");
    for explained in of_run {
        adds_up(explained);
        assert!((seconds(explained, "outage") - 1.5).abs() < 0.2, "{explained}");
        assert!(seconds(explained, "rto-wait") > 0.05, "{explained}");
        assert!(
            explained["capture"].as_str().unwrap().ends_with("server-eth0.pcapng"),
            "the sender's own: {explained}"
        );
        assert_eq!(explained["bytes"], 400_000);
    }
    // A capture alone shows the outage only as far as its packets do; a user can state its exact times, at either end.
    for end in ["server", "phone"] {
        let capture = format!("out/variants/cubic/captures/{end}-eth0.pcapng");
        let alone = place.run(&format!("explain {capture} --json")).well().json();
        let outage = &alone[0]["outages"][0];
        let between = |key: &str| [0, 1].map(|index| outage[key][index].as_f64().unwrap());
        let ([down_first, down_last], [up_first, up_last]) = (between("from_between_s"), between("to_between_s"));
        // The first packet is a millisecond or so after the start of the run.
        assert!(down_first <= 0.51 && 0.49 <= down_last && up_first <= 2.01 && 1.99 <= up_last, "{alone}");
        assert!(outage["certainty"] == "sure" || outage["certainty"] == "likely", "{outage}");
        assert_eq!(alone[0]["captured"], if end == "server" { "sender" } else { "receiver" });
        adds_up(&alone[0]);
        let only_given = place.run(&format!("explain {capture} --json --only-given")).well().json();
        assert_eq!((seconds(&only_given[0], "outage"), &only_given[0]["outages"]), (0.0, &serde_json::json!([])));
        let told = place.run(&format!("explain {capture} --json --outage 0.5-2")).well().json();
        assert!((seconds(&told[0], "outage") - 1.5).abs() < 0.2, "{end}: {told}");
        assert_eq!(told[0]["outages"][0]["certainty"], "given");
        adds_up(&told[0]);
    }
}

/// There are two ways to the server, and one is lost for good: a transfer over the other is not cut off.
// Claim: The outages of a run are those of a connection's own path.
// Tests: `path::a_path_is_down_when_no_way_is_left`
fn outages_are_those_of_a_connections_own_path() {
    let (hosts, rest) = SCENARIO.split_once("[[link]]").unwrap();
    let other = "[[host]]\nname = \"spare\"\n\n[[link]]\nname = \"sky\"\nbetween = [\"spare\", \"server\"]\nrate = \"1 Mbit/s\"\n\
                 delay = \"5 ms\"\nqueue_limit = \"40 packets\"\noutages = { list = [{ at = \"100 ms\", for = \"60 s\" }] }\n\n";
    let place = Place::with_scenario("explain-path", &format!("{hosts}{other}[[link]]{rest}"));
    place.run("run short.toml --out out --no-plots --quiet").well();
    for explained in place.run("explain out --json").well().json().as_array().unwrap() {
        assert!((seconds(explained, "outage") - 1.5).abs() < 0.2, "{explained}");
    }
}

// Claim: A damaged capture is explained up to the damage, with its position; gzip and zstd are read, and so is every link type.
// Tests: `tests::packets_before_the_damage_are_kept_and_its_position_is_reported`,
// `tests::compressed_files_may_have_several_parts`, `link_layer::ip_is_found_behind_every_header`
fn damaged_and_compressed_captures_are_explained_as_far_as_they_go() {
    use std::io::Write as _;
    let place = Place::with_scenario("explain-damaged", SCENARIO);
    place.run("run short.toml --out out --no-plots --quiet").well();
    let capture = fs::read(place.path("out/variants/cubic/captures/phone-eth0.pcapng")).unwrap();
    fs::write(place.path("torn.pcapng"), &capture[..capture.len() / 2]).unwrap();
    let torn = place.run("explain torn.pcapng --json").well();
    assert!(
        torn.err.contains("ends in the middle of a packet") && torn.err.contains("bytes into the file"),
        "{}",
        torn.err
    );
    let bytes = torn.json()[0]["bytes"].as_u64().unwrap();
    assert!((100_000..400_000).contains(&bytes), "{bytes}");
    // As gzip's stored blocks, so that no compressor is needed.
    let mut stored = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let chunks = capture.chunks(60_000).count();
    for (index, chunk) in capture.chunks(60_000).enumerate() {
        stored.push(u8::from(index + 1 == chunks));
        stored.write_all(&(chunk.len() as u16).to_le_bytes()).unwrap();
        stored.write_all(&(!(chunk.len() as u16)).to_le_bytes()).unwrap();
        stored.extend_from_slice(chunk);
    }
    // Without its checksum: the last thing that is missed.
    fs::write(place.path("packed.pcapng.gz"), &stored).unwrap();
    let packed = place.run("explain packed.pcapng.gz --json").well();
    assert_eq!(packed.json()[0]["bytes"], 400_000, "{}", packed.err);
}

/// A transfer between two kernels, over a link that is cut: the captures of both kernels show the outage.
// Claim: Outages are found from captures of two kernels, too.
fn captures_of_kernels_are_explained_from_either_end() {
    if !crate::kernel::is_possible() {
        return;
    }
    let place = Place::with_scenario("explain-kernel", &SCENARIO.replace("for = \"1500 ms\"", "for = \"3 s\""));
    place.run("run short.toml --real --out out --no-plots --quiet").well();
    for end in ["server", "phone"] {
        let captures =
            fs::read_dir(place.path("out/variants")).unwrap().next().unwrap().unwrap().path().join("captures");
        let capture = captures.join(format!("{end}-eth0.pcapng"));
        let explained = place.run(&format!("explain {} --json", capture.display())).well().json();
        let explained = &explained[0];
        assert_eq!(explained["captured"], if end == "server" { "sender" } else { "receiver" }, "{explained}");
        let first = &explained["outages"][0];
        let between = |key: &str| [0, 1].map(|index| first[key][index].as_f64().unwrap());
        let ([down_first, down_last], [up_first, up_last]) = (between("from_between_s"), between("to_between_s"));
        assert!(down_first <= 0.55 && 0.45 <= down_last && up_first <= 3.55 && 3.45 <= up_last, "{end}: {explained}");
        assert!(seconds(explained, "idle") < 0.3, "{end}: {explained}");
        adds_up(explained);
    }
}

/// Loopback of a namespace that only this test has.
// Claim: A live interface is explained.
fn a_live_interface_is_explained_and_one_that_is_not_there_is_refused() {
    let place = Place::new("explain-live");
    let error = place.run("explain --live no-such-0 --quiet").refused();
    assert!(error.contains("no-such-0"), "{error}");
    if !crate::kernel::is_possible() || !rustix::process::geteuid().is_root() {
        return;
    }
    let script = "ip link set lo up; $HOLDOVER explain --live lo --for 4 --json --quiet & explain=$!; sleep 1; \
        python3 -c 'import socket,threading
s=socket.create_server((\"127.0.0.1\",5000))
def serve():
    c,_=s.accept()
    c.sendall(bytes(3000000)); c.close()
t=threading.Thread(target=serve); t.start()
c=socket.create_connection((\"127.0.0.1\",5000))
while c.recv(65536): pass
t.join()'; wait $explain";
    let has = |program: &str| std::process::Command::new(program).arg("--version").output().is_ok();
    if !["unshare", "ip", "python3"].into_iter().all(has) {
        eprintln!("not run: unshare, ip or python3 is missing");
        return;
    }
    let mut command = std::process::Command::new("unshare");
    command.args(["--net", "sh", "-c", script]).env("HOLDOVER", env!("CARGO_BIN_EXE_holdover"));
    let ended = crate::support::Ended::new("explain --live lo", command.output().unwrap()).well();
    let explained = ended.json();
    assert_eq!(explained[0]["bytes"], 3_000_000, "{explained}");
    assert_eq!(explained[0]["sender"], "127.0.0.1:5000");
    adds_up(&explained[0]);
}

fn both_directions_of_questions_and_answers_are_explained_once() {
    let place = Place::with_scenario("explain-exchange", &exchanges());
    place.run("run short.toml --out out --no-plots --quiet --set time_limit=8s").well();
    let explained = place.run("explain out/variants/cubic --json").well().json();
    let explained = explained.as_array().unwrap();
    let captures: Vec<&str> = explained.iter().map(|one| one["capture"].as_str().unwrap()).collect();
    assert_eq!(captures.len(), 2, "{captures:?}");
    assert!(captures[0].ends_with("phone-eth0.pcapng") && captures[1].ends_with("server-eth0.pcapng"), "{captures:?}");
    // The phone had sent its request when the link broke; the server had nothing to send.
    assert!(seconds(&explained[0], "outage") > 1.0, "{}", explained[0]);
}

fn a_moving_hosts_outages_are_those_of_its_connections() {
    let place = Place::new("explain-mobile");
    place
        .run("run office-move --out out --no-plots --quiet --set flow.download.bulk=6MB --set output.captures=[\"server\"]")
        .well();
    let explained = place.run("explain out/variants/linux-6-cubic --json").well().json();
    assert!(seconds(&explained[0], "outage") > 1.0, "{explained}");
}

fn inputs_that_cannot_be_explained_give_one_error() {
    let place = Place::with_scenario("explain-errors", SCENARIO);
    fs::create_dir(place.path("empty")).unwrap();
    for (command, says) in [
        ("explain nowhere", "nowhere"),
        ("explain short.toml", "neither a pcapng nor a pcap file"),
        ("explain empty", "neither a capture nor the directory of a run"),
        ("explain short.toml --outage 5-3", "FROM-TO"),
    ] {
        let error = place.run(command).refused();
        assert!(error.contains(says), "{command}: {error}");
        // The same as JSON, and nothing else.
        let ended = place.run(&format!("{command} --json"));
        assert_eq!((ended.code, ended.err.as_str()), (Some(2), ""), "{command}");
        assert!(ended.json()["error"].as_str().unwrap().contains(says), "{command}: {}", ended.out);
    }
}

// Claim: Errors of every command that has `--json` are one line of JSON, interruptions too. A number outside its range is refused in plain words.
// Tests: `explain::inputs_that_cannot_be_explained_give_one_error`, `reproduce::invalid_papers_and_directories_are_refused`,
// `run::an_interrupted_run_leaves_nothing_behind`, `sweep::a_resumed_sweep_has_the_results_of_an_uninterrupted_one`,
// `kernel::an_interrupted_matrix_says_what_was_kept`,
// `command_support::tests::a_number_outside_its_range_is_refused_in_plain_words`
fn errors_under_json_are_json_for_every_command() {
    const RANGE: &str = "expected a whole number from 1 to ";
    let place = Place::with_scenario("json-errors", &SCENARIO.replace("[[flow]]", "[[flaw]]"));
    let cases = [
        ("agent actions", "--socket no.sock", 1, "no.sock"),
        ("agent bugreport", "--socket no.sock --out short.toml", 1, "short.toml"),
        ("agent check", "nowhere.toml", 2, "nowhere.toml"),
        ("agent status", "--socket no.sock", 1, "no.sock"),
        ("agent test", "--no-such-option", 2, "--no-such-option"),
        ("bench", "no-such-measure", 2, "no-such-measure"),
        ("conformance", "--only nothing-like-it", 2, "nothing-like-it"),
        ("demo", "--simulated --out short.toml", 2, "short.toml"),
        ("doctor", "--for toaster", 2, "toaster"),
        ("explain", "", 2, "required"),
        ("gateway check", "nowhere.toml", 2, "nowhere.toml"),
        ("gateway demo", "--cluster 1", 2, "expected a whole number from 2 to 8"),
        ("gateway mobiles", "--socket no.sock", 1, "no.sock"),
        ("gateway status", "--socket no.sock", 1, "no.sock"),
        ("hip between-hits", "nowhere.pcap --out hits.pcap", 1, "nowhere.pcap"),
        ("hip id", "--dir nowhere", 1, "nowhere"),
        ("hip peer add", "peer no-hit", 2, "no-hit"),
        ("hip peer list", "--dir short.toml", 1, "short.toml"),
        ("hip ping", "nobody --dir nowhere", 2, "nobody"),
        ("hip proxy list", "--dir short.toml", 1, "short.toml"),
        ("hip status", "--socket no.sock", 1, "no.sock"),
        ("kernel-matrix", "--jobs 0", 2, RANGE),
        ("packetdrill", "nowhere", 2, "nowhere"),
        ("reproduce", "no-such-paper", 2, "no-such-paper"),
        ("run", "short.toml", 2, "flaw"),
        ("run", "nowhere.toml", 2, "nowhere.toml"),
        ("run", "short.toml --jobs 0", 2, RANGE),
        ("scenario check", "", 2, "required"),
        ("scenario list", "--no-such-option", 2, "--no-such-option"),
        ("sweep", "short.toml", 2, "flaw"),
    ];
    // All commands, from the program's own arguments: the man pages are made of them.
    place.run("man pages").well();
    let page = |name: &String| fs::read_to_string(place.path("pages").join(format!("{name}.1"))).unwrap();
    let has_json = |name: &String| page(name).split(".SH EXAMPLES").next().unwrap().contains(r"\fB\-\-json\fR");
    let pages = fs::read_dir(place.path("pages")).unwrap().map(|entry| entry.unwrap().path());
    let names = pages.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    let having: BTreeSet<String> = names.filter(has_json).collect();
    let tried = cases.iter().map(|(command, ..)| format!("holdover-{}", command.replace(' ', "-"))).collect();
    assert_eq!(having, tried, "every command with --json is tried");

    for (command, arguments, code, says) in cases {
        let ended = place.run(&format!("{command} --json {arguments}"));
        assert_eq!(ended.code, Some(code), "{command}: {}{}", ended.out, ended.err);
        assert!(ended.json()["error"].as_str().unwrap().contains(says), "{command}: {}", ended.out);
        assert_eq!(ended.out.lines().count(), 1, "{command}: {}", ended.out);
        assert!(!ended.err.contains("error:"), "{command}: {}", ended.err);
    }
}
