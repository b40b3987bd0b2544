//! Conditional parts of a script, as nplab's packetdrill has them: `#ifdef NAME` to `#endif`, each alone on its line, not nested.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::Parsed;
use crate::error::{Offset, ScriptError};

/// The script with blanks in place of the directives, and of the lines whose name is not defined: all positions stay.
pub(super) fn blank_undefined<'a>(text: &'a str, defines: &BTreeMap<String, String>) -> Parsed<Cow<'a, str>> {
    if !text.contains("#ifdef") {
        return Ok(Cow::Borrowed(text));
    }
    let mut kept = String::with_capacity(text.len());
    let mut open: Option<(Offset, bool)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let mut words = line.split_whitespace();
        let is_kept = match (words.next(), words.next()) {
            (Some("#ifdef"), Some(name)) if open.is_none() => {
                open = Some((at, defines.contains_key(name)));
                false
            }
            (Some("#ifdef"), name) => {
                let expected =
                    if name.is_none() { "a name after '#ifdef'" } else { "'#endif' before another '#ifdef'" };
                return Err(ScriptError::at(text, at, expected, "'#ifdef'"));
            }
            (Some("#endif"), _) if open.take().is_some() => false,
            _ => open.is_none_or(|(_, is_defined)| is_defined),
        };
        if is_kept {
            kept.push_str(line);
        } else {
            kept.extend(
                line.chars().flat_map(|char| if char == '\n' { vec!['\n'] } else { vec![' '; char.len_utf8()] }),
            );
        }
        at += line.len();
    }
    match open {
        None => Ok(Cow::Owned(kept)),
        Some((from, _)) => Err(ScriptError::at(text, from, "'#endif' after '#ifdef'", "the end of the script")),
    }
}
