//! The kernel's counters of one namespace, under the names that `nstat` prints: `TcpRetransSegs`, `TcpExtTCPTimeouts`,
//! `Ip6InReceives`.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use crate::{Namespace, NamespaceError};

/// All counters of a namespace at one time, or their differences between two times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters(BTreeMap<String, i64>);

/// The counters could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    /// The calling thread is not in the namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The file could not be read.
    #[error("{path} cannot be read")]
    Read {
        /// The file.
        path: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The file has an unknown format.
    #[error("{path} has a line that is not understood: \"{line}\"")]
    Format {
        /// The file.
        path: &'static str,
        /// The line.
        line: Box<str>,
    },
}

/// Two lines for each group: names and values.
const PAIRED_FILES: [&str; 2] = ["/proc/thread-self/net/snmp", "/proc/thread-self/net/netstat"];
/// One name and value per line; absent without IPv6.
const LISTED_FILE: &str = "/proc/thread-self/net/snmp6";

impl Counters {
    /// Reads the counters of the calling thread's namespace, which must be `namespace`.
    pub fn read(namespace: &Namespace) -> Result<Self, CountersError> {
        namespace.require_current()?;
        let mut counters = BTreeMap::new();
        for path in PAIRED_FILES {
            let text = fs::read_to_string(path).map_err(|source| CountersError::Read { path, source })?;
            parse_paired(&text, &mut counters).map_err(|line| CountersError::Format { path, line })?;
        }
        match fs::read_to_string(LISTED_FILE) {
            Ok(text) => {
                parse_listed(&text, &mut counters).map_err(|line| CountersError::Format { path: LISTED_FILE, line })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(CountersError::Read { path: LISTED_FILE, source }),
        }
        Ok(Self(counters))
    }

    /// The counter `name`; `None` if this kernel does not have it.
    pub fn get(&self, name: &str) -> Option<i64> {
        self.0.get(name).copied()
    }

    /// The increase since `earlier`. (`TcpCurrEstab` and a few others are levels, not counters: their difference may be negative.)
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = |(name, value): (&String, &i64)| (name.clone(), value - earlier.get(name).unwrap_or(0));
        Self(self.0.iter().map(difference).collect())
    }

    /// All names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

fn parse_paired(text: &str, counters: &mut BTreeMap<String, i64>) -> Result<(), Box<str>> {
    let mut lines = text.lines();
    while let Some(names) = lines.next() {
        let values = lines.next().ok_or(names)?;
        let (group, names) = names.split_once(": ").ok_or(names)?;
        let (same_group, values_text) = values.split_once(": ").ok_or(values)?;
        let names: Vec<_> = names.split_whitespace().collect();
        let values: Vec<_> = values_text.split_whitespace().collect();
        if group != same_group || names.len() != values.len() {
            return Err(values_text.into());
        }
        for (name, value) in names.into_iter().zip(values) {
            counters.insert(format!("{group}{name}"), value.parse().map_err(|_| value)?);
        }
    }
    Ok(())
}

fn parse_listed(text: &str, counters: &mut BTreeMap<String, i64>) -> Result<(), Box<str>> {
    for line in text.lines() {
        let (name, value) = line.split_once(char::is_whitespace).ok_or(line)?;
        counters.insert(name.to_owned(), value.trim().parse().map_err(|_| line)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_under_nstat_names() {
        let mut counters = BTreeMap::new();
        parse_paired("Tcp: RtoMin MaxConn OutSegs\nTcp: 200 -1 7\nTcpExt: TCPTimeouts\nTcpExt: 3\n", &mut counters)
            .unwrap();
        parse_listed("Ip6InReceives                   \t12\n", &mut counters).unwrap();
        let counters = Counters(counters);
        let expected = [
            ("Ip6InReceives", 12),
            ("TcpExtTCPTimeouts", 3),
            ("TcpMaxConn", -1),
            ("TcpOutSegs", 7),
            ("TcpRtoMin", 200),
        ];
        assert_eq!(counters.iter().collect::<Vec<_>>(), expected);
        assert_eq!(counters.since(&counters).get("TcpOutSegs"), Some(0));
        assert_eq!(counters.get("TcpNoSuchThing"), None);
    }

    #[test]
    fn a_file_of_another_form_is_an_error() {
        for text in ["Tcp: A B\nTcp: 1\n", "Tcp: A\nUdp: 1\n", "Tcp: A\n", "Tcp: A\nTcp: x\n", "A\n1\n"] {
            assert!(parse_paired(text, &mut BTreeMap::new()).is_err(), "{text}");
        }
        assert!(parse_listed("Ip6InReceives twelve\n", &mut BTreeMap::new()).is_err());
    }
}
