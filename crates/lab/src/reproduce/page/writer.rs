//! The two forms of a page: Markdown and HTML.

use std::fmt::Write as _;

use holdover_report::{Document, Table};

use super::super::figures::Drawn;

/// A page under construction.
pub(super) trait Writer {
    fn section(&mut self, id: &str, title: &str);
    fn heading(&mut self, title: &str);
    fn paragraph(&mut self, text: &str);
    /// A table of text.
    fn texts(&mut self, heading: &[&str], rows: Vec<Vec<String>>);
    /// A table of numbers.
    fn figures(&mut self, heading: Vec<String>, rows: Vec<Vec<String>>);
    fn picture(&mut self, drawn: &Drawn);
}

/// A page in Markdown.
pub(super) struct Markdown<'a> {
    text: String,
    /// The directory of its figures.
    pictures: &'a str,
}

impl<'a> Markdown<'a> {
    /// A page with its title.
    pub(super) fn new(title: &str, pictures: &'a str) -> Self {
        Self { text: format!("# {title}\n\n"), pictures }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    fn table(&mut self, heading: &[String], rows: &[Vec<String>], rule: &str) {
        let row = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        self.text.push_str(&row(heading));
        let _ = writeln!(self.text, "| --- |{}", format!(" {rule} |").repeat(heading.len() - 1));
        self.text.extend(rows.iter().map(|cells| row(cells)));
        self.text.push('\n');
    }
}

impl Writer for Markdown<'_> {
    fn section(&mut self, _: &str, title: &str) {
        let _ = writeln!(self.text, "## {title}\n");
    }

    fn heading(&mut self, title: &str) {
        let _ = writeln!(self.text, "### {title}\n");
    }

    fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.text, "{text}\n");
    }

    fn texts(&mut self, heading: &[&str], rows: Vec<Vec<String>>) {
        let heading: Vec<String> = heading.iter().map(|&text| text.to_owned()).collect();
        self.table(&heading, &rows, "---");
    }

    fn figures(&mut self, heading: Vec<String>, rows: Vec<Vec<String>>) {
        self.table(&heading, &rows, "---:");
    }

    fn picture(&mut self, drawn: &Drawn) {
        let _ = writeln!(self.text, "![{}]({}/{}.svg)\n", drawn.title, self.pictures, drawn.name);
    }
}

/// Escapes a text for a table cell.
fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|").replace('\n', " ")
}

/// A page in HTML.
pub(super) struct Html(pub(super) Document);

impl Writer for Html {
    fn section(&mut self, id: &str, title: &str) {
        self.0.section(id, title);
    }

    fn heading(&mut self, title: &str) {
        self.0.heading(title);
    }

    fn paragraph(&mut self, text: &str) {
        self.0.paragraph(text);
    }

    fn texts(&mut self, heading: &[&str], rows: Vec<Vec<String>>) {
        let heading = heading.iter().map(|&text| text.to_owned()).collect();
        self.0.table_of_text(&Table { heading, rows });
    }

    fn figures(&mut self, heading: Vec<String>, rows: Vec<Vec<String>>) {
        self.0.table(&Table { heading, rows });
    }

    fn picture(&mut self, drawn: &Drawn) {
        self.0.figure(&drawn.picture.inline);
    }
}
