//! Features of the kernel, the privileges and the host that a daemon uses, each probed separately.

use serde::Serialize;

use crate::tun;

/// A feature that a daemon needs or can use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Feature {
    /// Its name.
    pub name: &'static str,
    /// Whether it is available.
    pub fine: bool,
    /// Whether the daemon cannot work without it.
    pub needed: bool,
    /// The result of the probe, or why it is missing.
    pub found: String,
    /// The functions that are missing without it.
    pub without: &'static str,
    /// How to get it; empty if it is available, or nothing can be done.
    pub fix: String,
}

impl Feature {
    /// The result of a probe: a description, or why the feature is missing and how to get it.
    pub fn tried(
        name: &'static str,
        needed: bool,
        without: &'static str,
        fix: &str,
        result: Result<String, String>,
    ) -> Self {
        match result {
            Ok(found) => Self { name, fine: true, needed, found, without, fix: String::new() },
            Err(found) => Self { name, fine: false, needed, found, without, fix: fix.to_owned() },
        }
    }

    /// Whether this process can open the device that makes TUN interfaces.
    pub fn tun(name: &'static str, without: &'static str) -> Self {
        let opened = tun::open_device().map(|_| format!("{} can be opened", tun::DEVICE_NAME));
        let fix = "modprobe tun; run as root; in a container --device /dev/net/tun";
        Self::tried(name, true, without, fix, opened.map_err(|error| format!("{}: {error}", tun::DEVICE_NAME)))
    }
}

/// Whether every needed feature is available.
pub fn can_work(features: &[Feature]) -> bool {
    features.iter().all(|feature| feature.fine || !feature.needed)
}

/// The features as comments of a configuration: `# ok  name   found`.
pub fn comments(daemon: &str, features: &[Feature]) -> String {
    use std::fmt::Write as _;
    let can = if can_work(features) { "can" } else { "cannot" };
    let mut text = format!("# As this user, the {daemon} {can} run here:\n");
    for Feature { name, fine, found, without, fix, .. } in features {
        let mark = if *fine { "ok" } else { "--" };
        let missing = if *fine { String::new() } else { format!("; without it {without}") };
        let fix = if fix.is_empty() { String::new() } else { format!("; fix: {fix}") };
        let _ = writeln!(text, "# {mark}  {name:<18} {}{missing}{fix}", found.replace('\n', " "));
    }
    text
}
