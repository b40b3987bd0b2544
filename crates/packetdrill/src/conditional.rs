//! Conditional parts of a script, as nplab's packetdrill has them: `#ifdef NAME` to `#endif`, not nested. Comments, strings, commands and
//! code are tokens or none, so that a directive within them is text. Parts left out are not read as tokens.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Offset, ScriptError};
use crate::token::{Spanned, Token};

/// Defined by nplab's packetdrill on Linux, without a value.
const PLATFORM: &str = "Linux";

const END: &str = "#endif";

/// The state of the directives of a script.
pub(crate) struct Conditional<'a> {
    text: &'a str,
    defines: &'a BTreeMap<String, String>,
    /// The script's own definitions so far.
    own: BTreeSet<String>,
    open: Option<Offset>,
}

impl<'a> Conditional<'a> {
    pub(crate) fn new(text: &'a str, defines: &'a BTreeMap<String, String>) -> Self {
        Self { text, defines, own: BTreeSet::new(), open: None }
    }

    /// Notes a definition that the tokens end with: `--define=NAME=` or `--define="NAME=VALUE"`.
    pub(crate) fn note_definition(&mut self, tokens: &[Spanned]) {
        let token = |from_end: usize| Some(&tokens.get(tokens.len().checked_sub(from_end)?)?.token);
        let is_sign = |from_end| token(from_end) == Some(&Token::Sign('='));
        let is_define = |from_end| matches!(token(from_end), Some(Token::Option(name)) if name == "define");
        let name = match token(1) {
            Some(Token::Sign('=')) if is_sign(3) && is_define(4) => match token(2) {
                Some(Token::Word(name)) => Some(name.as_str()),
                _ => None,
            },
            Some(Token::String(text)) if is_sign(2) && is_define(3) => text.split_once('=').map(|(name, _)| name),
            _ => None,
        };
        self.own.extend(name.map(str::to_owned));
    }

    /// After `#ifdef` at `at`: the length of what is read with it, the name and, if that is not defined, the part up to `#endif`.
    pub(crate) fn begin(&mut self, at: Offset, rest: &str) -> Result<usize, ScriptError> {
        if self.open.is_some() {
            return Err(ScriptError::at(self.text, at, "'#endif' before another '#ifdef'", "'#ifdef'"));
        }
        let word = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let end = word.find(|char: char| !(char.is_ascii_alphanumeric() || char == '_')).unwrap_or(word.len());
        let name = &word[..end];
        if !name.starts_with(|char: char| char.is_ascii_alphabetic()) {
            return Err(ScriptError::at(self.text, at, "a name after '#ifdef'", "'#ifdef'"));
        }
        let read = rest.len() - word.len() + end;
        if name == PLATFORM || self.defines.contains_key(name) || self.own.contains(name) {
            self.open = Some(at);
            return Ok(read);
        }
        match word[end..].find(END) {
            Some(left_out) => Ok(read + left_out + END.len()),
            None => Err(self.unterminated(at)),
        }
    }

    pub(crate) fn end(&mut self, at: Offset) -> Result<(), ScriptError> {
        match self.open.take() {
            Some(_) => Ok(()),
            None => Err(ScriptError::at(self.text, at, "'#ifdef' before '#endif'", "'#endif'")),
        }
    }

    /// At the end of the script.
    pub(crate) fn error_at_end(&self) -> Option<ScriptError> {
        self.open.map(|at| self.unterminated(at))
    }

    fn unterminated(&self, at: Offset) -> ScriptError {
        ScriptError::at(self.text, at, "'#endif' after '#ifdef'", "the end of the script")
    }
}
