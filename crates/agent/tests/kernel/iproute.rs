//! `ip` of iproute2, for operations that the test bed's own netlink lacks.

use std::process::Command;

/// Runs `ip` with these arguments in the calling thread's network namespace.
#[track_caller]
pub(crate) fn ip(words: &str) {
    assert!(can_ip(words), "ip {words}");
}

/// The same; returns whether it succeeded.
#[track_caller]
pub(crate) fn can_ip(words: &str) -> bool {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip (iproute2) is there");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    output.status.success()
}

/// The output of `ip` with these arguments.
#[track_caller]
pub(crate) fn ip_says(words: &str) -> String {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip (iproute2) is there");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
