//! What a daemon uses of the kernel, of its privileges and of this host, each tried on its own.

use serde::Serialize;

/// Something that a daemon needs or can use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Feature {
    /// Its name.
    pub name: &'static str,
    /// Whether it is there.
    pub fine: bool,
    /// Whether the daemon can do nothing without it.
    pub needed: bool,
    /// What was found, or why it is not there.
    pub found: String,
    /// What is lost without it.
    pub without: &'static str,
    /// What to do about it; empty if it is there, or nothing can be done.
    pub fix: String,
}

impl Feature {
    /// What was found, or why it is not there and what to do about it.
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
}

/// Whether everything that is needed is there.
pub fn can_work(features: &[Feature]) -> bool {
    features.iter().all(|feature| feature.fine || !feature.needed)
}

/// What is there and what is not, as comments of a configuration for people: `# ok  name   found`.
pub fn comments(daemon: &str, features: &[Feature]) -> String {
    use std::fmt::Write as _;
    let can = if can_work(features) { "can" } else { "cannot" };
    let mut text = format!("# Started by this user, the {daemon} {can} work here:\n");
    for Feature { name, fine, found, without, fix, .. } in features {
        let mark = if *fine { "ok" } else { "--" };
        let missing = if *fine { String::new() } else { format!("; without it {without}") };
        let fix = if fix.is_empty() { String::new() } else { format!("; fix: {fix}") };
        let _ = writeln!(text, "# {mark}  {name:<18} {}{missing}{fix}", found.replace('\n', " "));
    }
    text
}
