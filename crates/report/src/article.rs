//! A self-contained page on one topic: a headline, a sentence or two, a picture, a table.

use std::fmt::Write;

use crate::draw::escape;
use crate::html::beginning;
use crate::plots::Plot;

/// What a page tells, from the top to the bottom.
#[derive(Clone, Copy, Debug)]
pub struct Article<'a> {
    /// The headline.
    pub title: &'a str,
    /// What it is about, in a sentence or two.
    pub lead: &'a str,
    /// The picture that shows it.
    pub figure: &'a Plot,
    /// The figures behind it.
    pub table: &'a Table,
    /// What one should know to read the table, a paragraph each.
    pub notes: &'a [String],
    /// For those who want to see more.
    pub more: &'a [Plot],
    /// How it was made, a paragraph each.
    pub facts: &'a [String],
}

/// A table of text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Table {
    /// Over the columns.
    pub heading: Vec<String>,
    /// Each with as many cells, the first of which says what the row is about.
    pub rows: Vec<Vec<String>>,
}

impl Article<'_> {
    /// The page.
    pub fn to_html(&self) -> String {
        let mut html = beginning(self.title);
        let figure = self.figure.inline_svg();
        // Writing to a string does not fail.
        let _ = write!(html, "<p class=\"about\">{}</p>\n<figure>{figure}</figure>\n", escape(self.lead));
        self.table.write_html(&mut html);
        paragraphs(&mut html, "note", self.notes);
        if !self.more.is_empty() {
            html.push_str("<section>\n<h2>In detail</h2>\n");
            for plot in self.more {
                let _ = writeln!(html, "<figure>{}</figure>", plot.inline_svg());
            }
            html.push_str("</section>\n");
        }
        html.push_str("<section>\n<h2>How this was made</h2>\n");
        paragraphs(&mut html, "facts", self.facts);
        html.push_str("</section>\n</main>\n</body>\n</html>\n");
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
