//! Tables of nf_tables in a namespace, loaded by nft(8).

use std::io::Write as _;
use std::process::{Command, Stdio};

use holdover_testbed::Namespace;

/// Finds out whether there is nft.
pub(crate) fn find() -> Result<(), String> {
    let run = Command::new("nft").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match run {
        Ok(status) if status.success() => Ok(()),
        _ => Err("there is no nft: install nftables (Debian)".to_owned()),
    }
}

/// Adds the table `ip test`, with these counters and chains.
pub(crate) fn load(namespace: &Namespace, content: &str) {
    let table = format!("table ip test {{\n{content}\n}}\n");
    let run = || {
        // The program starts in the network namespace of this thread.
        let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        nft.stdin.take().unwrap().write_all(table.as_bytes()).unwrap();
        nft.wait().unwrap()
    };
    assert!(namespace.enter(run).unwrap().success(), "{table}");
}

/// Removes it.
pub(crate) fn unload(namespace: &Namespace) {
    let run = || Command::new("nft").args(["delete", "table", "ip", "test"]).status().unwrap();
    assert!(namespace.enter(run).unwrap().success());
}

/// The packets that a counter of that table has seen.
pub(crate) fn packets(namespace: &Namespace, counter: &str) -> u64 {
    let run = || Command::new("nft").args(["list", "counter", "ip", "test", counter]).output().unwrap();
    let text = String::from_utf8(namespace.enter(run).unwrap().stdout).unwrap();
    let number = text.split_once("packets ").and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no counter {counter}: {text}"))
}
