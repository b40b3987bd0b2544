//! What is wrong with a file, and where.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A configuration or schedule cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something in it is not understood.
    #[error("{}:{line}:{column}: {message}", file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What is wrong, and what would be accepted.
        message: String,
    },
}

impl ConfigError {
    /// TOML that is not understood, by what its reader says.
    pub fn invalid(file: &Path, text: &str, error: &toml::de::Error) -> Self {
        let Range { start, .. } = error.span().unwrap_or(0..0);
        let message = in_plain_words(&error.message().trim().replace('\n', "; "));
        let message = match key_at(text, start) {
            Some(key) if !message.contains(&format!("`{key}`")) => format!("{key}: {message}"),
            _ => message,
        };
        Self::at(file, text, start, message)
    }

    /// Something is wrong with what begins at the byte `offset` of the text.
    pub fn at(file: &Path, text: &str, offset: usize, message: String) -> Self {
        let (line, column) = place(text, offset);
        Self::Invalid { file: file.to_owned(), line, column, message }
    }

    /// Something is wrong with the value of a key of a section, such as `("[metrics]", "listen")`.
    pub fn at_key(file: &Path, text: &str, (section, key): (&str, &str), message: String) -> Self {
        Self::at(file, text, key_in_section(text, section, key), message)
    }
}

/// Where the line begins that sets a key of a section; or where the section begins, or the file.
fn key_in_section(text: &str, section: &str, key: &str) -> usize {
    let starts = |text: &str, word: &str| text.trim_start().starts_with(word);
    let mut lines = text.split_inclusive('\n').scan(0, |at, line| {
        let begins = *at;
        *at += line.len();
        Some((begins, line))
    });
    let Some((section_at, _)) = lines.find(|(_, line)| starts(line, section)) else { return 0 };
    let key = lines.take_while(|(_, line)| !starts(line, "[")).find(|(_, line)| starts(line, key));
    key.map_or(section_at, |(at, _)| at)
}

/// The key whose value begins at the byte `offset`.
fn key_at(text: &str, offset: usize) -> Option<&str> {
    let line = text.get(..offset)?.rsplit('\n').next()?;
    let (before, _) = line.rsplit_once('=')?;
    let key = before.rsplit([',', '{']).next()?.trim();
    let is_key = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    (!key.is_empty() && key.chars().all(is_key)).then_some(key)
}

/// What serde says of a value that it cannot use, for those who do not know serde.
fn in_plain_words(message: &str) -> String {
    let said = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    match said.and_then(|said| said.split_once(", expected ")) {
        Some((found, wanted)) => format!("{} is not what is expected here: {}", found_word(found), wanted_word(wanted)),
        None if message == "invalid socket address syntax" => {
            "an address and a port are expected here, such as \"127.0.0.1:9000\"".to_owned()
        }
        None => message.to_owned(),
    }
}

fn found_word(found: &str) -> String {
    let kinds = [("string ", "the text "), ("integer ", ""), ("floating point ", ""), ("boolean ", "")];
    let named = kinds.into_iter().find_map(|(kind, word)| Some(format!("{word}{}", found.strip_prefix(kind)?)));
    let word = named.unwrap_or_else(|| match found {
        "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        other => other.to_owned(),
    });
    word.replace('`', "")
}

fn wanted_word(wanted: &str) -> &str {
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

/// Line and column, from 1 and the latter in characters, of a byte of a text.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}
