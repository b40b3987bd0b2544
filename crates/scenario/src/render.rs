//! Error reports: the cause, its position, and a suggestion.

use core::fmt::Write;

use crate::error::{Location, ScenarioError};

/// Whether to use colours.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Style {
    /// Plain text, for files and pipes.
    #[default]
    Plain,
    /// Text with escape sequences for terminals (ECMA-48).
    Colour,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Colour => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    fn red(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn blue(self, text: &str) -> String {
        self.paint("1;34", text)
    }
}

impl ScenarioError {
    /// The error with its line of text, as several lines with a final newline.
    pub fn report(&self, style: Style) -> String {
        let mut out = String::new();
        let field = if self.field.is_empty() { String::new() } else { format!("{}: ", self.field) };
        let headline = style.bold(&format!("{field}{}", self.message));
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{} {headline}", style.red("error:"));
        let gutter = self.location.line.max(self.named_at.as_ref().map_or(0, |at| at.line)).to_string().len();
        place(&mut out, &self.location, gutter, style);
        let mut note = |label: &str, text: &str| {
            let _ = writeln!(out, "{:gutter$} {} {} {text}", "", style.blue("="), style.bold(label));
        };
        if let Some(context) = &self.context {
            note("in:", context);
        }
        if let Some(word) = &self.did_you_mean {
            note("did you mean", &format!("\"{word}\"?"));
        }
        if let Some(accepted) = self.accepted.as_ref().filter(|accepted| !self.message.contains(*accepted)) {
            note("accepted here:", accepted);
        }
        if let Some(named_at) = &self.named_at {
            note("the trace is named here:", "");
            place(&mut out, named_at, gutter, style);
        }
        out
    }
}

fn place(out: &mut String, at: &Location, gutter: usize, style: Style) {
    let bar = style.blue("|");
    let _ = writeln!(out, "{:gutter$}{} {at}", "", style.blue("-->"));
    if at.line == 0 {
        return;
    }
    // The width of a tab depends on the terminal, so the text before the mark has the same tabs.
    let before: String =
        at.text.chars().take(at.column.saturating_sub(1)).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let _ = writeln!(out, "{:gutter$} {bar}", "");
    let _ = writeln!(out, "{} {bar} {}", style.blue(&format!("{:gutter$}", at.line)), at.text);
    let _ = writeln!(out, "{:gutter$} {bar} {before}{}", "", style.red(&"^".repeat(at.width)));
}
