//! A self-contained page of sections, in the common page style.
//!
//! Texts may contain Markdown's `code` in backquotes and [links](to); everything else is escaped.

use std::fmt::Write;

use crate::article::Table;
use crate::draw::escape;
use crate::html::beginning;
use crate::links::contents;

/// A page under construction; content is appended at its end.
#[derive(Clone, Debug)]
pub struct Document {
    html: String,
    in_section: bool,
    /// The ids and titles of sections.
    sections: Vec<(String, String)>,
    /// The place of the contents: before the first section.
    contents_at: usize,
}

impl Document {
    /// Creates a page with a headline.
    pub fn new(title: &str) -> Self {
        Self { html: beginning(title), in_section: false, sections: Vec::new(), contents_at: 0 }
    }

    /// Adds a lead: the page's topic in a sentence or two.
    pub fn lead(&mut self, text: &str) {
        self.paragraph_of("about", text);
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.html, "<p>{}</p>", inline(text));
    }

    /// Adds a paragraph in small print.
    pub fn note(&mut self, text: &str) {
        self.paragraph_of("note", text);
    }

    fn paragraph_of(&mut self, class: &str, text: &str) {
        let _ = writeln!(self.html, "<p class=\"{class}\">{}</p>", inline(text));
    }

    /// Begins a section; links to it use `id`.
    pub fn section(&mut self, id: &str, title: &str) {
        self.end_section();
        if self.sections.is_empty() {
            self.contents_at = self.html.len();
        }
        self.sections.push((id.to_owned(), title.replace('`', "")));
        let _ = writeln!(self.html, "<section id=\"{}\">\n<h2>{}</h2>", escape(id), inline(title));
        self.in_section = true;
    }

    /// Adds a heading within a section.
    pub fn heading(&mut self, title: &str) {
        let _ = writeln!(self.html, "<h3>{}</h3>", inline(title));
    }

    /// Adds a table of text, aligned to the left and wrapped.
    pub fn table_of_text(&mut self, table: &Table) {
        self.table_of("text", table);
    }

    /// Adds a table of figures.
    pub fn table(&mut self, table: &Table) {
        self.table_of("large", table);
    }

    fn table_of(&mut self, class: &str, table: &Table) {
        let _ = write!(self.html, "<div class=\"wide\"><table class=\"{class}\">\n<thead><tr>");
        for cell in &table.heading {
            let _ = write!(self.html, "<th>{}</th>", inline(cell));
        }
        self.html.push_str("</tr></thead>\n<tbody>\n");
        for row in &table.rows {
            self.html.push_str("<tr>");
            for (index, cell) in row.iter().enumerate() {
                let cell = inline(cell);
                let _ = if index == 0 {
                    write!(self.html, "<th scope=\"row\">{cell}</th>")
                } else {
                    write!(self.html, "<td>{cell}</td>")
                };
            }
            self.html.push_str("</tr>\n");
        }
        self.html.push_str("</tbody>\n</table></div>\n");
    }

    /// Adds a figure, from its `inline_svg`.
    pub fn figure(&mut self, svg: &str) {
        let _ = writeln!(self.html, "<figure>{svg}</figure>");
    }

    /// The page as HTML, with links to its sections and a footer in small print.
    pub fn to_html(mut self, footer: &str) -> String {
        self.end_section();
        if self.sections.len() > 1 {
            let sections = self.sections.iter().map(|(id, title)| (id.as_str(), title.as_str()));
            self.html.insert_str(self.contents_at, &contents(sections));
        }
        let _ = write!(self.html, "<footer>{}</footer>\n</main>\n</body>\n</html>\n", inline(footer));
        self.html
    }

    fn end_section(&mut self) {
        if std::mem::take(&mut self.in_section) {
            self.html.push_str("</section>\n");
        }
    }
}

/// Renders a text with `code` and links.
fn inline(text: &str) -> String {
    let mut html = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 {
            let _ = write!(html, "<code>{}</code>", escape(part));
        } else {
            with_links(part, &mut html);
        }
    }
    html
}

fn with_links(text: &str, html: &mut String) {
    let mut rest = text;
    while let Some((before, name, target, after)) = next_link(rest) {
        let _ = write!(html, "{}<a href=\"{}\">{}</a>", escape(before), escape(target), escape(name));
        rest = after;
    }
    html.push_str(&escape(rest));
}

/// The first `[name](target)` of a text, and the text before and after it.
fn next_link(text: &str) -> Option<(&str, &str, &str, &str)> {
    let middle = text.find("](")?;
    let start = text[..middle].rfind('[')?;
    let end = middle + text[middle..].find(')')?;
    Some((&text[..start], &text[start + 1..middle], &text[middle + 2..end], &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_sections_and_escapes_texts() {
        let mut page = Document::new("A < B");
        page.lead("What `x < y` says, see [runs](a/runs.csv).");
        page.section("claims", "Claims");
        let rows = vec![vec!["<b>".to_owned(), "1".to_owned()]];
        page.table_of_text(&Table { heading: vec!["a".to_owned(), "b".to_owned()], rows });
        page.section("more", "More");
        page.paragraph("no ](link");
        let html = page.to_html("made by hand");
        assert!(html.contains("<title>A &lt; B</title>"));
        assert!(html.contains("<code>x &lt; y</code>") && html.contains("<a href=\"a/runs.csv\">runs</a>"));
        assert!(html.contains("&lt;b&gt;") && html.contains("no ](link"));
        for id in ["claims", "more"] {
            assert_eq!(html.matches(&format!("<a href=\"#{id}\">")).count(), 1, "{html}");
        }
        assert!(html.find("<nav") < html.find("<section"));
        assert_eq!(html.matches("<section").count(), html.matches("</section>").count());
        assert!(html.ends_with("</html>\n"));
    }
}
