//! A self-contained page on one topic: a headline, a sentence or two, a picture, a table.

use std::fmt::Write;

use crate::draw::escape;
use crate::html::beginning;
use crate::links::{contents, file_links};
use crate::plots::Plot;

/// The content of a page, from top to bottom.
#[derive(Clone, Copy, Debug)]
pub struct Article<'a> {
    /// The headline.
    pub title: &'a str,
    /// The topic, in a sentence or two.
    pub lead: &'a str,
    /// The main figure.
    pub figure: &'a Plot,
    /// The numbers behind the figure.
    pub table: &'a Table,
    /// Notes on reading the table, a paragraph each.
    pub notes: &'a [String],
    /// Further figures.
    pub more: &'a [Plot],
    /// The method, a paragraph each.
    pub facts: &'a [String],
    /// The files beside the page, relative to it.
    pub files: &'a [String],
    /// The directory of most of them.
    pub directory: &'a str,
}

/// A table of text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Table {
    /// Column headings.
    pub heading: Vec<String>,
    /// The rows, each with as many cells as there are columns; the first cell names the row.
    pub rows: Vec<Vec<String>>,
}

impl Article<'_> {
    /// The page as HTML.
    pub fn to_html(&self) -> String {
        let mut html = beginning(self.title);
        let figure = self.figure.inline_svg();
        // Writing to a string does not fail.
        let _ = writeln!(html, "<p class=\"about\">{}</p>", escape(self.lead));
        let detail = (!self.more.is_empty()).then_some(("detail", "In detail"));
        let made = ("made", "How this was made");
        let files = (!self.files.is_empty()).then_some(("files", "Files"));
        html.push_str(&contents([("results", "Results")].into_iter().chain(detail).chain([made]).chain(files)));
        let _ = writeln!(html, "<figure>{figure}</figure>\n<section id=\"results\">");
        self.table.write_html(&mut html);
        paragraphs(&mut html, "note", self.notes);
        html.push_str("</section>\n");
        if !self.more.is_empty() {
            html.push_str("<section>\n<h2 id=\"detail\">In detail</h2>\n");
            for plot in self.more {
                let _ = writeln!(html, "<figure>{}</figure>", plot.inline_svg());
            }
            html.push_str("</section>\n");
        }
        html.push_str("<section>\n<h2 id=\"made\">How this was made</h2>\n");
        paragraphs(&mut html, "facts", self.facts);
        html.push_str("</section>\n");
        if !self.files.is_empty() {
            html.push_str("<section>\n<h2 id=\"files\">Files</h2>\n");
            file_links(&mut html, self.files, self.directory);
            html.push_str("</section>\n");
        }
        html.push_str("</main>\n</body>\n</html>\n");
        html
    }
}

impl Table {
    fn write_html(&self, html: &mut String) {
        html.push_str("<div class=\"wide\"><table class=\"large\">\n<thead><tr>");
        for cell in &self.heading {
            let _ = write!(html, "<th>{}</th>", escape(cell));
        }
        html.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            html.push_str("<tr>");
            for (index, cell) in row.iter().enumerate() {
                let cell = escape(cell);
                let _ = if index == 0 {
                    write!(html, "<th scope=\"row\">{cell}</th>")
                } else {
                    write!(html, "<td>{cell}</td>")
                };
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody>\n</table></div>\n");
    }
}

fn paragraphs(html: &mut String, class: &str, texts: &[String]) {
    for text in texts {
        let _ = writeln!(html, "<p class=\"{class}\">{}</p>", escape(text));
    }
}
