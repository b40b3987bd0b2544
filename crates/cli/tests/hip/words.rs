//! The commands that need no daemon, and their errors for wrong input. They need no privileges either.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::Test;
use crate::daemon::Place;

pub(crate) const TESTS: &[Test] = &[
    ("an_identity_is_made_once", an_identity_is_made_once),
    ("invitations_go_both_ways", invitations_go_both_ways),
    ("the_other_host_does_not_choose_any_name", the_other_host_does_not_choose_any_name),
    ("hosts_that_speak_no_hip_get_identities", hosts_that_speak_no_hip_get_identities),
    ("wrong_words_are_refused", wrong_words_are_refused),
    ("without_a_daemon_the_error_says_how_to_start_one", without_a_daemon_the_error_says_how_to_start_one),
];

/// Exit status, standard output and standard error.
pub(crate) fn run(place: &Place, words: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdover"));
    let output = command.current_dir(&place.0).arg("hip").args(words.split_whitespace()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (code, out, err) = (output.status.code().unwrap(), text(output.stdout), text(output.stderr));
    assert!(!err.contains("panicked"), "{words}: {err}");
    (code, out, err)
}

#[track_caller]
pub(crate) fn well(place: &Place, words: &str) -> String {
    let (code, out, err) = run(place, words);
    assert_eq!(code, 0, "{words}: {err}");
    out
}

fn an_identity_is_made_once() {
    let place = Place::new("words-id");
    let (code, _, err) = run(&place, "id --dir d");
    assert!(code == 1 && err.contains("sudo holdover hip keygen"), "{err}");
    let made = well(&place, "keygen --dir d");
    let hit = well(&place, "id --dir d");
    assert!(made.starts_with(hit.trim()) && hit.starts_with("2001:25:"), "{made}{hit}");
    let path = place.0.join("d/identity.toml");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let (code, _, err) = run(&place, "keygen --dir d");
    assert!(code == 1 && err.contains("exists, and peers know"), "{err}");
    assert_eq!(well(&place, "id --dir d"), hit);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, _, err) = run(&place, "id --dir d");
    assert!(code == 1 && err.contains("chmod 600"), "{err}");
    for (algorithm, prefix) in [("ecdsa-p256", "2001:22:"), ("ecdsa-p384", "2001:22:")] {
        assert!(well(&place, &format!("keygen --dir {algorithm} --algorithm {algorithm}")).starts_with(prefix));
    }
}

fn invitations_go_both_ways() {
    let place = Place::new("words-invite");
    for host in ["a", "b"] {
        well(&place, &format!("keygen --dir {host}"));
    }
    let of_a = well(
        &place,
        "invite --without-secret --dir a --socket s --name alpha --address 192.0.2.1 --address 2001:db8::1",
    );
    let joined = well(&place, &format!("join {} --dir b --socket s", of_a.trim()));
    let back = joined.split_whitespace().find(|word| word.starts_with("hip:")).unwrap();
    well(&place, &format!("join {back} --dir a --socket s --name beta"));
    let listed = well(&place, "peer list --dir b");
    assert!(listed.contains("alpha") && listed.contains("udp  192.0.2.1, 2001:db8::1"), "{listed}");
    // Without a daemon peers have no addresses of IPv4.
    let hosts = well(&place, "peer list --dir a --socket s --hosts");
    assert_eq!(hosts, format!("{} beta\n", well(&place, "id --dir b").trim()));
    let hosts = well(&place, "peer list --dir a --hosts --lsi-prefix 198.18.0.0/15");
    let hit_of_b = well(&place, "id --dir b").trim().to_owned();
    let (hit, lsi) = hosts.split_once('\n').unwrap();
    assert!(hit == format!("{hit_of_b} beta") && lsi.starts_with("198.1") && lsi.ends_with(" beta\n"), "{hosts}");
    let (code, _, err) = run(&place, &format!("peer add itself {hit_of_b} --dir b --socket s"));
    assert!(code == 2 && err.contains("this host's own"), "{err}");
    let (code, _, err) = run(&place, &format!("join {} --dir b --socket s", of_a.trim()));
    assert!(code == 2 && err.contains("exists as alpha"), "{err}");
    let (code, _, err) = run(&place, &format!("join {} --dir a --socket s", of_a.trim()));
    assert!(code == 2 && err.contains("own invitation"), "{err}");
    well(&place, "peer remove alpha --dir b --socket s");
    assert!(well(&place, "peer list --dir b").contains("no peers"));
    // In UDP, unless the host serves as a rendezvous server, or it is asked for something else.
    for (words, via) in [("", "udp"), ("--via ip", "ip"), ("--serves rendezvous", "ip"), ("--serves relay", "udp")] {
        let of_a = well(
            &place,
            &format!("invite --without-secret --dir a --socket s --name alpha --address 192.0.2.1 {words}"),
        );
        well(&place, &format!("join {} --dir b --socket s", of_a.trim()));
        let listed = well(&place, "peer list --dir b");
        assert!(listed.contains(&format!("{via}  ")), "{words}: {listed}");
        well(&place, "peer remove alpha --dir b --socket s");
    }
    // A client of a rendezvous server answers an invitation with UDP by one without.
    let of_a =
        well(&place, "invite --without-secret --dir a --socket s --name alpha --address 192.0.2.1 --serves rendezvous");
    well(&place, &format!("join {} --dir b --socket s", of_a.trim()));
    well(&place, "keygen --dir c");
    let of_c = well(&place, "invite --without-secret --dir c --socket s --name delta --address 192.0.2.3");
    let joined = well(&place, &format!("join {} --dir b --socket s", of_c.trim()));
    let back = joined.split_whitespace().find(|word| word.starts_with("hip:")).unwrap();
    well(&place, &format!("join {back} --dir c --socket s --name beta"));
    let listed = well(&place, "peer list --dir c");
    assert!(listed.contains("beta") && !listed.contains("udp"), "{listed}");
    well(&place, "peer remove beta --dir a --socket s");
    well(&place, &format!("peer add gamma {hit_of_b} 192.0.2.2 --dir a --socket s"));
    assert!(well(&place, "peer list --dir a").contains("udp  192.0.2.2"));
}

fn the_other_host_does_not_choose_any_name() {
    let place = Place::new("words-names");
    for host in ["a", "b", "c"] {
        well(&place, &format!("keygen --dir {host}"));
    }
    let join = |host: &str, name: &str, words: &str| {
        let invitation = format!("invite --without-secret --dir {host} --socket s --name {name} --address 192.0.2.1");
        let invitation = well(&place, &invitation);
        let joined = well(&place, &format!("join {} --dir b --socket s {words}", invitation.trim()));
        joined.split_whitespace().next().unwrap().to_owned()
    };
    for (name, words, expected) in [
        ("localhost", "", "peer"),
        ("ip6-localhost", "", "peer"),
        ("www.example.org", "", "www"),
        // Asked for on this host.
        ("localhost", "--name www.example.org", "www.example.org"),
    ] {
        assert_eq!(join("a", name, words), expected, "{name} {words}");
        well(&place, &format!("peer remove {expected} --dir b --socket s"));
    }
    assert_eq!(join("a", "Server", ""), "Server");
    assert_eq!(join("c", "server", ""), "server-2");
}

fn hosts_that_speak_no_hip_get_identities() {
    let place = Place::new("words-proxy");
    let files = "--dir d --socket s";
    let (code, _, err) = run(&place, &format!("proxy add printer 192.168.7.10 --interface lan {files}"));
    assert!(code == 1 && err.contains("sudo holdover hip keygen"), "{err}");
    well(&place, "keygen --dir d");
    assert!(well(&place, "proxy list --dir d").contains("no hosts"));
    let (code, _, err) = run(&place, &format!("proxy add printer 192.168.7.10 {files}"));
    assert!(code == 2 && err.contains("missing --interface"), "{err}");
    let (code, _, err) = run(&place, &format!("proxy add printer 192.168.7.10 --interface lo {files}"));
    assert!(code == 2 && err.contains("invalid interface name"), "{err}");
    let added = well(&place, &format!("proxy add printer 192.168.7.10 fd00:7::10 --interface lan {files}"));
    let key = place.0.join("d/hosts/printer/identity.toml");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o7777, 0o600);
    well(&place, &format!("proxy add camera fd00:7::11 --algorithm ecdsa-p256 {files}"));
    let listed = well(&place, "proxy list --dir d");
    let hit = added.split_whitespace().nth(2).unwrap();
    assert!(listed.contains("behind lan") && listed.contains(hit) && listed.contains("2001:22:"), "{listed}");
    for (words, expected) in [
        ("proxy add printer 192.168.7.12", "host printer exists"),
        ("proxy add other 192.168.7.10", "address of host printer already"),
        ("proxy add other 192.168.7.12 192.168.7.13", "2 addresses of one IP version"),
        ("proxy add other 127.0.0.1", "loopback"),
        ("proxy add other 192.168.7.12 --interface other", "cannot be a second interface"),
        ("proxy add a/b 192.168.7.12", "invalid name"),
        ("proxy add other 192.168.7.12 --interface lo", "cannot be a second interface"),
        ("proxy add other", "required"),
        ("proxy remove other", "existing ones: printer, camera"),
        ("invite --for other --address 192.0.2.1", "existing ones: printer, camera"),
        ("invite --for printer --serves relay", "cannot be used with"),
    ] {
        let (code, out, err) = run(&place, &format!("{words} {files}"));
        assert!(code == 2 && out.is_empty() && err.contains(expected), "{words}: {code} {out} {err}");
    }
    assert!(!place.0.join("d/hosts/other").exists(), "no key without a host");
    // The peer knows the host by its name, at the router's address.
    let invitation = well(&place, &format!("invite --for printer --address 192.0.2.1 --via udp {files}"));
    well(&place, "keygen --dir b");
    well(&place, &format!("join {} --dir b --socket s", invitation.trim()));
    let peers = well(&place, "peer list --dir b");
    assert!(peers.contains("printer") && peers.contains(hit) && peers.contains("udp  192.0.2.1"), "{peers}");
    // It keeps its identity.
    let removed = well(&place, &format!("proxy remove printer {files}"));
    assert!(removed.contains("its key stays in d/hosts/printer"), "{removed}");
    assert!(well(&place, &format!("proxy add printer 192.168.7.10 {files}")).contains(hit));
    std::fs::write(place.0.join("d/proxy.toml"), "interface = 7\n").unwrap();
    let (code, _, err) = run(&place, "proxy list --dir d");
    assert!(code == 1 && err.contains("proxy.toml") && err.contains("line 1"), "{err}");
}

fn wrong_words_are_refused() {
    let place = Place::new("words-wrong");
    well(&place, "keygen --dir d");
    let invitation = well(&place, "invite --without-secret --dir d --socket s --name alpha --address 192.0.2.1");
    let damaged = invitation.trim().replacen(['a', 'b'], "7", 1).replace("h7p", "hip");
    let hit = "2001:25:1111:2222:3333:4444:5555:6666";
    for (words, expected) in [
        ("join hello --dir d --socket s".to_owned(), "begins with \"hip:\""),
        ("join hip:a!b --dir d --socket s".to_owned(), "'!'"),
        (format!("join {damaged} --dir d --socket s"), "copy all of it again"),
        (format!("join {} --dir d --socket s", &invitation.trim()[..40]), "copy all of it again"),
        ("peer add x 2001:db8::1 192.0.2.1 --dir d --socket s".to_owned(), "not a HIT"),
        (format!("peer add x {hit} 224.0.0.1 --dir d --socket s"), "multicast"),
        (format!("peer add x {hit} fe80::1 --dir d --socket s"), "link-local"),
        (format!("peer add x {hit} 127.0.0.1 --dir d --socket s"), "loopback"),
        ("invite --without-secret --dir d --socket s --name alpha --address ::1".to_owned(), "loopback"),
        (format!("peer add -- -x {hit} --dir d"), "error"),
        ("peer remove nobody --dir d --socket s".to_owned(), "existing ones: none"),
        ("invite --without-secret --dir d --socket s --name a/b".to_owned(), "invalid name"),
        (format!("invite --dir d --socket s --name a{}", " --address 192.0.2.1".repeat(9)), "9 addresses exceed"),
        ("up --dir d --mtu 900".to_owned(), "900"),
        ("ping nobody --dir d".to_owned(), "no peer \"nobody\""),
    ] {
        let (code, out, err) = run(&place, &words);
        assert!(code == 2 && out.is_empty() && err.contains(expected), "{words}: {code} {out} {err}");
    }
    let (code, out, err) = run(&place, "ping nobody --dir d --json");
    let error: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(code == 2 && err.is_empty() && error["error"].as_str().unwrap().contains("no peer \"nobody\""), "{out}");
    std::fs::write(place.0.join("d/peers.toml"), "[[peer]]\nname = 7\n").unwrap();
    let (code, _, err) = run(&place, "peer list --dir d");
    assert!(code == 1 && err.contains("peers.toml") && err.contains("line 2"), "{err}");
}

fn without_a_daemon_the_error_says_how_to_start_one() {
    let place = Place::new("words-daemon");
    for words in ["status --socket s", "down --socket s"] {
        let (code, _, err) = run(&place, words);
        assert!(code == 1 && err.contains("sudo holdover hip up"), "{words}: {err}");
    }
    let (code, _, err) = run(&place, "top --socket s");
    assert!(code != 0 && err.contains("terminal"), "{err}");
    let (code, _, err) = run(&place, "up --dir nowhere --socket s");
    assert!(code == 1 && err.contains("hip keygen"), "{err}");
}
