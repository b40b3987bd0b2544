//! One command on each of two hosts, from an installation to a ping.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout};

use crate::Test;
use crate::daemon::{Host, Place};
use crate::internet::{Internet, Masquerade, SERVER};

pub(crate) const TESTS: &[Test] = &[
    ("one_command_on_each_host_makes_them_peers", one_command_on_each_host_makes_them_peers),
    ("an_invitation_ends_with_its_command", an_invitation_ends_with_its_command),
    ("the_daemon_of_another_identity_is_refused", the_daemon_of_another_identity_is_refused),
];

/// `hip invite`, and the string that it has printed.
fn invite(host: &Host, words: &str) -> (Child, BufReader<ChildStdout>, String) {
    let mut child = host.spawn(&format!("invite {words}"));
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.starts_with("hip:"), "{line:?} {:?}", errors(&mut child));
    (child, output, line.trim().to_owned())
}

fn errors(child: &mut Child) -> String {
    let _ = child.kill();
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

/// A server and a laptop behind a translator: neither has an identity, and no daemon runs.
// Claim: One command on each of two hosts without identities and daemons, one of them behind a translator, makes them peers; the
// string is refused to a second host, which keeps no peer. An invitation ends with its time and with its command. Neither host chooses
// the name of another host at the other one: the other's own, that of a peer, or one of several labels. A daemon with another identity
// than the command's is refused, before anything is written.
// Tests: `invite::an_invitation_ends_with_its_command`, `invite::a_host_does_not_choose_the_name_of_another_one`,
// `words::the_other_host_does_not_choose_any_name`, `invite::the_daemon_of_another_identity_is_refused`
fn one_command_on_each_host_makes_them_peers() {
    let (place, mut internet) = (Place::new("invite"), Internet::new());
    let l = internet.host_behind("laptop", 1, "198.51.100.1", Masquerade::Preserving);
    let (s, o) = (internet.host("server", SERVER), internet.host("other", "198.51.100.9"));
    let [server, laptop, other] = [("server", &s), ("laptop", &l), ("other", &o)]
        .map(|(name, namespace)| Host::without_identity(&place, name, namespace));
    let (mut child, mut output, invitation) = invite(&server, "--name server");
    let joined = laptop.ok(&format!("join {invitation}"));
    assert!(joined.contains("server is 2001:25:"), "{joined}");
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success() && rest.contains("has joined"), "{rest}");
    // Both have the other one in their files, and reach it.
    laptop.ok("ping server --count 2");
    let name = rest.split_whitespace().next().unwrap();
    server.ok(&format!("ping {name} --count 2"));
    assert!(server.ok("peer list").contains(&laptop.hit().to_string()));
    // The string was for one host.
    let refused = other.run(&format!("join {invitation}"));
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("was used before"), "{error}");
    assert!(other.ok("peer list").contains("no peers") && other.status()["peers"].as_array().unwrap().is_empty());
    assert_eq!(server.status()["peers"].as_array().unwrap().len(), 1);
    for host in [server, laptop, other] {
        host.ok("down");
    }
}

fn an_invitation_ends_with_its_command() {
    let (place, mut internet) = (Place::new("invite-end"), Internet::new());
    let (s, o) = (internet.host("server", SERVER), internet.host("other", "198.51.100.9"));
    let [server, other] =
        [("server", &s), ("other", &o)].map(|(name, namespace)| Host::without_identity(&place, name, namespace));
    let (mut child, _output, _) = invite(&server, "--name server --expires 1");
    assert!(!child.wait().unwrap().success());
    let error = errors(&mut child);
    assert!(error.contains("nobody has joined"), "{error}");
    let (mut child, _output, invitation) = invite(&server, "--name server");
    child.kill().unwrap();
    child.wait().unwrap();
    // Ten seconds after its last question.
    std::thread::sleep(std::time::Duration::from_secs(12));
    let refused = other.run(&format!("join {invitation}"));
    assert!(!refused.status.success(), "{refused:?}");
    assert!(server.status()["peers"].as_array().unwrap().is_empty());
}

fn the_daemon_of_another_identity_is_refused() {
    let (place, mut internet) = (Place::new("invite-other"), Internet::new());
    let s = internet.host("server", SERVER);
    let mut server = Host::new(&place, "server", &s);
    server.up("");
    let (mut child, _output, invitation) = invite(&server, "--name server");
    // Other files, and the same daemon.
    let other = Host::without_identity(&place, "other", &s);
    std::os::unix::fs::symlink(server.socket(), other.socket()).unwrap();
    for words in ["invite --name other".to_owned(), format!("join {invitation}")] {
        let refused = other.run(&words);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && error.contains(&server.hit().to_string()), "{words}: {error}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    }
    std::fs::remove_file(other.socket()).unwrap();
    let files: Vec<_> = std::fs::read_dir(place.0.join("other")).unwrap().collect();
    assert!(files.is_empty(), "{files:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    server.down();
}
