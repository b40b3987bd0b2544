//! Patterns for the names of processes and cgroups.

use core::fmt;
use core::str::FromStr;

use holdover_host::words::Word;

use crate::sockets::owner::Process;

/// A name in which `*` stands for anything, slashes included, and `?` for one letter.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pattern(Box<str>);

/// An invalid pattern.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("empty name: expected {expected}", expected = Pattern::EXPECTED)]
pub struct PatternError;

impl Pattern {
    /// Whether the whole name matches.
    pub fn fits(&self, name: &str) -> bool {
        fits(&self.0, name)
    }

    /// Whether a process matches: by its path if there is a slash in the pattern, else by its name (`comm`, which the
    /// kernel cuts off after 15 bytes) or its program's.
    pub fn fits_process(&self, process: &Process) -> bool {
        let path = process.path.as_deref();
        if self.0.contains('/') {
            return path.and_then(|path| path.to_str()).is_some_and(|path| self.fits(path));
        }
        let program = path.and_then(|path| path.file_name()?.to_str());
        self.fits(&process.comm) || program.is_some_and(|program| self.fits(program))
    }

    /// Whether a cgroup or one of its ancestors matches.
    pub fn fits_cgroup(&self, cgroup: &str) -> bool {
        let parents = cgroup.match_indices('/').map(|(at, _)| &cgroup[..at]).filter(|parent| !parent.is_empty());
        parents.chain([cgroup]).any(|name| self.fits(name))
    }
}

/// Whether the whole name matches a pattern in which `*` stands for anything and `?` for one letter.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut read) = (0, 0);
    // The position of the last star, and how much of the name it stands for.
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(letter) if *letter == '?' || *letter == name[read] => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((star_at, until)) = &mut star else { return false };
                *until += 1;
                (at, read) = (*star_at + 1, *until);
            }
        }
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

impl Word for Pattern {
    const NAME: &'static str = "Pattern";
    const EXPECTED: &'static str = "a name, in which * may stand for anything and ? for one letter";
    const MAY_BE_NUMBER: bool = false;
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() { Err(PatternError) } else { Ok(Self(text.into())) }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap()
    }

    #[test]
    fn stars_stand_for_anything() {
        for (text, name, fits) in [
            ("ssh", "ssh", true),
            ("ssh", "sshd", false),
            ("ssh*", "sshd", true),
            ("*ssh", "/usr/bin/ssh", true),
            ("s?h", "ssh", true),
            ("s?h", "sh", false),
            ("*a*b", "xaxxbxb", true),
            ("*a*b", "xaxxbxc", false),
            ("*", "", true),
            ("a", "", false),
            ("", "", true),
        ] {
            assert_eq!(Pattern(text.into()).fits(name), fits, "{text} {name}");
        }
    }

    #[test]
    fn a_process_is_meant_by_name_or_path() {
        let process =
            Process { pid: 1, comm: "a-very-long-nam".to_owned(), path: Some("/opt/x/a-very-long-name".into()) };
        for text in ["a-very-long-nam", "a-very-long-name", "/opt/x/a-very-long-name", "/opt/*"] {
            assert!(pattern(text).fits_process(&process), "{text}");
        }
        assert!(!pattern("/opt/x").fits_process(&process));
        assert!(!pattern("a").fits_process(&process));
        assert!(!pattern("/*").fits_process(&Process { path: None, ..process }));
    }

    #[test]
    fn a_cgroup_is_meant_with_those_in_it() {
        let cgroup = "/system.slice/ssh.service/session";
        for text in ["/system.slice", "/system.slice/ssh.service", "/system.slice/*.service", cgroup, "/*"] {
            assert!(pattern(text).fits_cgroup(cgroup), "{text}");
        }
        assert!(!pattern("/system.slice/ssh").fits_cgroup(cgroup));
        assert!(pattern("/").fits_cgroup("/"));
        assert!(!pattern("/").fits_cgroup("/system.slice"));
    }

    /// The same by a simple recursive definition.
    fn plainly(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) => (0..=name.len()).any(|skipped| plainly(rest, &name[skipped..])),
            (Some((p, pattern)), Some((n, name))) => (*p == '?' || p == n) && plainly(pattern, name),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn patterns_are_what_they_say(text in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            let (p, n): (Vec<char>, Vec<char>) = (text.chars().collect(), name.chars().collect());
            prop_assert_eq!(Pattern(text.as_str().into()).fits(&name), plainly(&p, &n));
        }
    }
}
