//! Links on a page: its contents, and the files beside it.

use std::fmt::Write;

use crate::draw::escape;

/// A list of links to sections, each with its id and title.
pub(crate) fn contents<'a>(sections: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let links = sections.map(|(id, title)| format!("<a href=\"#{}\">{}</a>", escape(id), escape(title)));
    format!("<nav aria-label=\"Contents\">{}</nav>\n", links.collect::<Vec<_>>().join(" "))
}

/// The kinds of files that are listed, by the endings of their names. Pictures are on the page itself.
const KINDS: [(&str, &[&str]); 3] = [
    ("Captures", &["pcapng", "pcap"]),
    ("Tables and events", &["csv", "json", "jsonl", "parquet", "toml"]),
    ("For other programs", &["sqlog", "xpl", "xml"]),
];

/// Links to each of these files, whose names are relative to the page, by kind; and to the directory with all of them.
pub(crate) fn file_links(html: &mut String, files: &[String], directory: &str) {
    /// The most links of one kind.
    const MOST: usize = 60;
    for (kind, endings) in KINDS {
        let has_ending = |name: &&String| name.rsplit_once('.').is_some_and(|(_, ending)| endings.contains(&ending));
        let names: Vec<&String> = files.iter().filter(has_ending).collect();
        if names.is_empty() {
            continue;
        }
        let link = |name: &&String| {
            let shown = name.strip_prefix(directory).unwrap_or(name).trim_start_matches('/');
            format!("<a href=\"{}\">{}</a>", escape(&address(name)), escape(&shown.replacen("captures/", "", 1)))
        };
        let links: Vec<String> = names.iter().take(MOST).map(link).collect();
        let more = if names.len() > MOST {
            format!(", and {} more in the directory", names.len() - MOST)
        } else {
            String::new()
        };
        let _ = writeln!(html, "<p class=\"facts\">{kind}: {}{more}</p>", links.join(", "));
    }
    let address = escape(&address(directory));
    let _ = writeln!(html, "<p class=\"facts\">Directory: <a href=\"{address}/\">{}/</a></p>", escape(directory));
}

/// A relative path as an address: characters with a meaning in addresses are percent-encoded.
fn address(path: &str) -> String {
    let mut address = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            address.push(char::from(byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_linked_by_kind() {
        let files = ["variants/a b/captures/x.pcapng", "variants/a b/plots/rtt.svg", "variants/a b/samples.csv"];
        let mut html = String::new();
        file_links(&mut html, &files.map(str::to_owned), "variants/a b");
        assert_eq!(
            html,
            "<p class=\"facts\">Captures: <a href=\"variants/a%20b/captures/x.pcapng\">x.pcapng</a></p>\n\
             <p class=\"facts\">Tables and events: <a href=\"variants/a%20b/samples.csv\">samples.csv</a></p>\n\
             <p class=\"facts\">Directory: <a href=\"variants/a%20b/\">variants/a b/</a></p>\n"
        );
    }

    #[test]
    fn long_lists_are_cut() {
        let files: Vec<String> = (0..100).map(|number| format!("v/captures/{number}.pcap")).collect();
        let mut html = String::new();
        file_links(&mut html, &files, "v");
        assert!(html.contains(", and 40 more in the directory</p>") && html.matches("href").count() == 61, "{html}");
    }
}
