//! Syntax errors of a script.

use serde::Serialize;

/// A syntax error: its position, the expected text, and the text found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, thiserror::Error)]
#[error("{line}:{column}: expected {expected}, found {found}")]
pub struct ScriptError {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The expected text.
    pub expected: String,
    /// The text found.
    pub found: String,
}

/// A position in a script: a byte offset, converted to line and column on demand.
pub(crate) type Offset = usize;

/// The line and column, from 1, of a byte offset.
pub(crate) fn line_and_column(text: &str, offset: Offset) -> (u32, u32) {
    let before = &text[..floor_char(text, offset)];
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let column = before[start..].chars().count() + 1;
    (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
}

fn floor_char(text: &str, offset: Offset) -> usize {
    let mut at = offset.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl ScriptError {
    pub(crate) fn at(text: &str, offset: Offset, expected: impl Into<String>, found: impl Into<String>) -> Self {
        let (line, column) = line_and_column(text, offset);
        Self { line, column, expected: expected.into(), found: found.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_and_in_characters() {
        let text = "ab\nçd\n";
        assert_eq!(line_and_column(text, 0), (1, 1));
        assert_eq!(line_and_column(text, 3), (2, 1));
        assert_eq!(line_and_column(text, 5), (2, 2));
        assert_eq!(line_and_column(text, 4), (2, 1), "inside a character");
        assert_eq!(line_and_column(text, 99), (3, 1));
    }
}
