//! Errors in configuration files, with their position.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A configuration or schedule is unusable.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot read: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The content is invalid.
    #[error("{}:{line}:{column}: {message}", file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The problem, and the expected form.
        message: String,
    },
}

impl ConfigError {
    /// Invalid TOML, from the parser's error.
    pub fn invalid(file: &Path, text: &str, error: &toml::de::Error) -> Self {
        let Range { start, .. } = error.span().unwrap_or(0..0);
        let message = in_plain_words(&error.message().trim().replace('\n', "; "));
        let message = match key_at(text, start) {
            Some(key) if !message.contains(&format!("`{key}`")) => format!("{key}: {message}"),
            _ => message,
        };
        Self::at(file, text, start, message)
    }

    /// An error at the byte `offset` of the text.
    pub fn at(file: &Path, text: &str, offset: usize, message: String) -> Self {
        let (line, column) = place(text, offset);
        Self::Invalid { file: file.to_owned(), line, column, message }
    }

    /// An error in the value of a key of a section, such as `("[metrics]", "listen")`.
    pub fn at_key(file: &Path, text: &str, (section, key): (&str, &str), message: String) -> Self {
        Self::at(file, text, key_in_section(text, section, key), message)
    }
}

/// The start of the line that sets a key of a section, such as `("[metrics]", "listen")`: below the section's head, or
/// as `metrics.listen = ...`, or in the line `metrics = { ... }`; else that of the section, or of the file.
fn key_in_section(text: &str, section: &str, key: &str) -> usize {
    let mut at = 0;
    let lines: Vec<(usize, &str)> = text
        .split_inclusive('\n')
        .map(|line| {
            at += line.len();
            (at - line.len(), line.trim_start())
        })
        .collect();
    let sets = |line: &str, key: &str| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='));
    let name = section.trim_matches(['[', ']']);
    let head = lines.iter().position(|(_, line)| line.starts_with(section));
    let below =
        head.into_iter().flat_map(|head| lines[head + 1..].iter().take_while(|(_, line)| !line.starts_with('[')));
    let found = below.clone().find(|(_, line)| sets(line, key)).or_else(|| {
        let top = lines.iter().take_while(|(_, line)| !line.starts_with('['));
        top.clone().find(|(_, line)| sets(line, &format!("{name}.{key}")) || sets(line, name))
    });
    found.or_else(|| head.map(|head| &lines[head])).map_or(0, |&(at, _)| at)
}

/// The key whose value begins at the byte `offset`.
fn key_at(text: &str, offset: usize) -> Option<&str> {
    let line = text.get(..offset)?.rsplit('\n').next()?;
    let (before, _) = line.rsplit_once('=')?;
    let key = before.rsplit([',', '{']).next()?.trim();
    let is_key = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    (!key.is_empty() && key.chars().all(is_key)).then_some(key)
}

/// A serde message in plain words.
fn in_plain_words(message: &str) -> String {
    let mismatch = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    match mismatch.and_then(|mismatch| mismatch.split_once(", expected ")) {
        Some((found, wanted)) => format!("expected {}, found {}", describe_expected(wanted), describe_found(found)),
        None if message == "invalid socket address syntax" => {
            "expected an address and a port, such as \"127.0.0.1:9000\"".to_owned()
        }
        None => message.to_owned(),
    }
}

fn describe_found(found: &str) -> String {
    let kinds = [("string ", ""), ("integer ", ""), ("floating point ", ""), ("boolean ", "")];
    let named = kinds.into_iter().find_map(|(kind, word)| Some(format!("{word}{}", found.strip_prefix(kind)?)));
    let word = named.unwrap_or_else(|| match found {
        "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        other => other.to_owned(),
    });
    word.replace('`', "")
}

fn describe_expected(wanted: &str) -> &str {
    match wanted {
        "a sequence" => "a list in brackets, such as [\"one\", \"two\"]",
        "a boolean" => "true or false",
        "u8" | "u16" | "u32" | "u64" | "usize" | "i64" => "a whole number",
        "a string" | "a borrowed string" | "string or table" => "a text in quotes",
        "socket address" => "an address and a port, such as \"127.0.0.1:9000\"",
        other if other.starts_with("struct ") => "a section, such as [links]",
        other => other,
    }
}

/// Line and column (in characters), both from 1, of a byte of a text.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_any_notation_of_its_section() {
        for (text, line) in [
            ("[other]\nlisten = 1\n[metrics]\n  enabled = true\n  listen = 2\n", 5),
            ("[metrics]\nlistens = 1\n# listen = 2\nlisten=3\n", 4),
            ("# metrics\nmetrics.listen = 1\n", 2),
            ("\nmetrics = { listen = 1 }\n[other]\nlisten = 2\n", 2),
            ("[other]\nlisten = 1\n[metrics]\nenabled = true\n[metrics.more]\nlisten = 2\n", 3),
            ("[other]\nmetrics = 1\n", 1),
        ] {
            let error = ConfigError::at_key(Path::new("file"), text, ("[metrics]", "listen"), "wrong".to_owned());
            assert!(error.to_string().starts_with(&format!("file:{line}:1: wrong")), "{text}\n{error}");
        }
    }
}
