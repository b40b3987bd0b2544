//! `ip` of iproute2, for operations that the test bed's own netlink lacks.

use std::process::Command;

/// Runs `ip` with these arguments in the calling thread's network namespace.
#[track_caller]
pub(crate) fn ip(words: &str) {
    if let Err(error) = can_ip(words) {
        panic!("ip {words}: {error}");
    }
}

/// The same; what `ip` says if it fails.
#[track_caller]
pub(crate) fn can_ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip (iproute2) is there");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Whether a failure means that the kernel has no such kind of interface.
pub(crate) fn lacks_kind(error: &str) -> bool {
    ["Operation not supported", "Unknown device type"].iter().any(|lack| error.contains(lack))
}

/// The output of `ip` with these arguments.
#[track_caller]
pub(crate) fn ip_says(words: &str) -> String {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip (iproute2) is there");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
