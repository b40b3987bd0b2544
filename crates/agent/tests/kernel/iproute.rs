//! `ip` of iproute2, for what the test bed's own netlink does not do.

use std::process::Command;

/// Runs `ip` with these words in the calling thread's network namespace.
#[track_caller]
pub(crate) fn ip(words: &str) {
    assert!(can_ip(words), "ip {words}");
}

/// The same; whether the kernel has done it.
#[track_caller]
pub(crate) fn can_ip(words: &str) -> bool {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip (iproute2) is there");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    output.status.success()
}
