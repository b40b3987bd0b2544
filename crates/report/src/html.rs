//! The self-contained report page, for light, dark and print.

use std::fmt::Write;

use crate::actions;
use crate::draw::{escape, style_sheet};
use crate::links::{contents, file_links};
use crate::metrics::{ConnectionMetrics, FlowMetrics};
use crate::plots::Plot;
use crate::quantity::{bytes, count, significant};
use crate::summary::{Summary, VariantSummary};
use crate::table::{FlowTable, IDEAL, side_by_side, status};
use crate::words::what_happened;

/// The files beside the page in every results directory.
const FILES: &str = "<a href=\"summary.json\">summary.json</a>, <a href=\"flows.csv\">flows.csv</a>, \
                     <a href=\"scenario.toml\">scenario.toml</a>";

/// The content of a page.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The results.
    pub summary: &'a Summary,
    /// The text of the scenario as run.
    pub scenario: &'a str,
    /// The plot of all variants together.
    pub progress: Option<&'a Plot>,
    /// The plots of each variant, in the summary's order.
    pub plots: &'a [Vec<Plot>],
    /// The files of each variant, in the summary's order, relative to the page.
    pub files: &'a [Vec<String>],
}

impl Page<'_> {
    /// The page as HTML.
    pub fn to_html(&self) -> String {
        let summary = self.summary;
        let mut html = beginning(&summary.title);
        self.head(&mut html);
        self.contents(&mut html);
        html.push_str("<section>\n<h2 id=\"what-happened\">What happened</h2>\n");
        for paragraph in what_happened(summary) {
            let _ = writeln!(html, "<p>{}</p>", lead_in(&paragraph, summary));
        }
        html.push_str("</section>\n");
        self.comparison(&mut html);
        if let Some(progress) = self.progress {
            let _ = write!(html, "<figure>{}</figure>\n</section>\n", progress.inline_svg());
        } else {
            html.push_str("</section>\n");
        }
        html.push_str(&summary.differences_to_html());
        for (number, (variant, plots)) in (1..).zip(summary.variants.iter().zip(self.plots)) {
            let files = self.files.get(number - 1).map_or(&[][..], Vec::as_slice);
            self.variant(&mut html, number, variant, plots, files);
        }
        let again = if summary.variants.iter().any(|variant| variant.kernel.is_some()) {
            "Runs on real kernels are never the same twice."
        } else {
            "The same scenario and seed give the same figures and the same bytes."
        };
        let differences =
            if summary.differences().is_empty() { "" } else { ", <a href=\"differences.csv\">differences.csv</a>" };
        let _ = write!(
            html,
            "<section>\n<h2 id=\"scenario\">Scenario</h2>\n<details><summary>{} as it was run</summary>\n<pre>{}</pre>\n</details>\n\
             <p class=\"facts\">Files: {FILES}{differences}</p>\n</section>\n<footer>Holdover {}, seed {}. {again}</footer>\n</main>\n</body>\n</html>\n",
            escape(&summary.name),
            escape(self.scenario),
            escape(&summary.version),
            summary.seed,
        );
        html
    }

    fn head(&self, html: &mut String) {
        let summary = self.summary;
        for paragraph in summary.description.split("\n\n").map(str::trim).filter(|text| !text.is_empty()) {
            let _ = writeln!(html, "<p class=\"about\">{}</p>", escape(paragraph));
        }
        let variants = crate::quantity::counted(summary.variants.len() as u64, "variant");
        let _ = writeln!(
            html,
            "<p class=\"facts\">{} · {variants} · seed {} · Holdover {}</p>",
            escape(&summary.name),
            summary.seed,
            escape(&summary.version)
        );
    }

    /// The comparison of variants: one table per flow.
    fn comparison(&self, html: &mut String) {
        html.push_str("<section>\n<h2 id=\"side-by-side\">Side by side</h2>\n");
        const TABLES: usize = 8;
        let tables = side_by_side(self.summary);
        for table in tables.iter().take(TABLES) {
            if tables.len() > 1 {
                let _ = writeln!(html, "<h3>{}</h3>", escape(table.flow));
            }
            flow_table(html, table);
        }
        if tables.len() > TABLES {
            let _ = writeln!(html, "<p>{} more flows are in flows.csv.</p>", tables.len() - TABLES);
        }
    }

    /// Links to the sections.
    fn contents(&self, html: &mut String) {
        let ids: Vec<String> = (1..=self.summary.variants.len()).map(|number| format!("variant-{number}")).collect();
        let variants = ids.iter().zip(&self.summary.variants).map(|(id, variant)| (id.as_str(), &*variant.variant));
        let first = [("what-happened", "What happened"), ("side-by-side", "Side by side")];
        html.push_str(&contents(first.into_iter().chain(variants).chain([("scenario", "Scenario")])));
    }

    fn variant(&self, html: &mut String, number: usize, variant: &VariantSummary, plots: &[Plot], files: &[String]) {
        let _ = writeln!(html, "<section>\n<h2 id=\"variant-{number}\">{}</h2>", escape(&variant.variant));
        if !variant.cut_captures.is_empty() {
            let names = variant.cut_captures.join(", ");
            let _ = writeln!(html, "<p class=\"note\">Captures that reached their limit: {}.</p>", escape(&names));
        }
        if let Some(kernel) = &variant.kernel {
            html.push_str(&kernel.to_html());
        }
        for plot in plots {
            let _ = writeln!(html, "<figure>{}</figure>", plot.inline_svg());
        }
        const TABLES: usize = 8;
        for flow in variant.flows.iter().take(TABLES) {
            counters(html, flow);
        }
        links(html, variant);
        cpus(html, variant);
        actions::table(html, &variant.actions);
        file_links(html, files, &variant.directory);
        html.push_str("</section>\n");
    }
}

/// The page up to and including the headline, which is the title as well.
pub(crate) fn beginning(title: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{}\n{}</style>\n<script type=\"module\">\n{}</script>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n",
        style_sheet(),
        include_str!("report.css"),
        include_str!("report.js"),
    )
}

/// A paragraph that highlights its first words, the name of a variant or flow.
fn lead_in(paragraph: &str, summary: &Summary) -> String {
    let names_flow = |variant: &VariantSummary, flow: &FlowMetrics, lead: &str| {
        lead == flow.flow || lead.strip_prefix(variant.variant.as_str()) == Some(&format!(", {}", flow.flow))
    };
    let is_name = |lead: &str| {
        let names = |variant: &VariantSummary| {
            lead == variant.variant || variant.flows.iter().any(|flow| names_flow(variant, flow, lead))
        };
        summary.variants.iter().any(names)
    };
    match paragraph.split_once(": ") {
        Some((lead, rest)) if is_name(lead) => format!("<b>{}</b>: {}", escape(lead), escape(&glue(rest))),
        _ => escape(&glue(paragraph)),
    }
}

/// Prevents line breaks between a number and its unit.
fn glue(text: &str) -> String {
    let mut glued = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let after_digit = glued.ends_with(|last: char| last.is_ascii_digit());
        let before_unit = letters.peek().is_some_and(|next| next.is_alphabetic() || *next == '%');
        glued.push(if letter == ' ' && after_digit && before_unit { '\u{a0}' } else { letter });
    }
    glued
}

fn flow_table(html: &mut String, table: &FlowTable<'_>) {
    html.push_str("<div class=\"wide\"><table>\n<thead><tr><th>variant</th><th>status</th>");
    for column in &table.columns {
        let _ = write!(html, "<th title=\"{}\">{}</th>", escape(column.meaning), escape(column.heading));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (variant, flow) in &table.rows {
        let (status, is_bad) = status(flow);
        let class = if is_bad { " class=\"bad\"" } else { "" };
        let variant = escape(&variant.variant);
        let _ = write!(html, "<tr><th scope=\"row\">{variant}</th><td{class}>{status}</td>");
        for column in &table.columns {
            let text = (column.value)(flow).unwrap_or_else(|| "–".to_owned());
            let _ = match flow.ideal_share {
                Some(share) if column.heading == IDEAL => {
                    let width = (share.clamp(0.0, 1.0) * 100.0).round();
                    write!(html, "<td><span class=\"bar\" style=\"--share:{width}%\">{text}</span></td>")
                }
                _ => write!(html, "<td>{text}</td>"),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table></div>\n");
}

/// The segments sent and received by both ends of a connection, by reason and disposition.
fn counters(html: &mut String, flow: &FlowMetrics) {
    let ends = [(&flow.from, &flow.sender), (&flow.to, &flow.receiver)];
    if ends.iter().all(|(_, end)| end.is_none()) {
        return;
    }
    let _ = writeln!(html, "<details><summary>Counters of {}</summary>\n<div class=\"columns\">", escape(&flow.flow));
    for (node, end) in ends {
        let Some(end) = end else { continue };
        let node = escape(node);
        let _ = write!(html, "<div><h4>{node}</h4>");
        totals(html, end);
        by_name(html, "segments sent, by reason", &end.sent_by_reason);
        by_name(html, "segments received, by what became of them", &end.received_by_disposition);
        html.push_str("</div>\n");
    }
    html.push_str("</div>\n</details>\n");
}

fn totals(html: &mut String, end: &ConnectionMetrics) {
    let rows = [
        ("segments sent", end.segments_sent),
        ("segments received", end.segments_received),
        ("bytes sent", end.bytes_sent),
        ("bytes retransmitted", end.bytes_retransmitted),
        ("bytes acknowledged", end.bytes_acked),
        ("bytes received", end.bytes_received),
        ("duplicate bytes received", end.bytes_duplicate),
        ("timeouts", end.timeouts),
        ("recoveries", end.recoveries),
        ("undone", end.undos),
    ];
    let rows = rows.iter().filter(|row| row.1 > 0).map(|&(name, value)| (name, value));
    small_table(html, "totals", rows);
}

fn by_name(html: &mut String, caption: &str, counts: &std::collections::BTreeMap<String, u64>) {
    let mut rows: Vec<(&str, u64)> = counts.iter().map(|(name, &value)| (name.as_str(), value)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.1));
    small_table(html, caption, rows.into_iter());
}

fn small_table<'a>(html: &mut String, caption: &str, rows: impl Iterator<Item = (&'a str, u64)>) {
    let _ = writeln!(html, "<table class=\"small\"><caption>{}</caption>", escape(caption));
    for (name, value) in rows {
        let _ = writeln!(html, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>", escape(name), count(value));
    }
    html.push_str("</table>\n");
}

/// The routers with processing delay.
fn cpus(html: &mut String, variant: &VariantSummary) {
    if variant.cpus.is_empty() {
        return;
    }
    html.push_str(
        "<details><summary>Processors of routers</summary>\n<div class=\"wide\"><table>\n<thead><tr><th>router</th>\
         <th>packets</th><th>by mechanisms</th><th>dropped</th><th>utilisation</th><th>mean time</th><th>backlog, max</th>\
         </tr></thead>\n<tbody>\n",
    );
    for cpu in &variant.cpus {
        let mean_time =
            cpu.mean_sojourn_s.map_or("–".to_owned(), |mean_s| format!("{} ms", significant(mean_s * 1e3)));
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{:.1} %</td><td>{mean_time}</td><td>{}</td></tr>",
            escape(&cpu.router),
            count(cpu.packets),
            count(cpu.operations),
            count(cpu.dropped_packets),
            cpu.utilisation * 100.0,
            count(cpu.max_backlog_packets),
        );
    }
    html.push_str("</tbody>\n</table></div>\n</details>\n");
}

fn links(html: &mut String, variant: &VariantSummary) {
    let links = variant.links.iter().flat_map(|link| {
        [
            (format!("{}: {} to {}", link.link, link.a, link.b), &link.forward),
            (format!("{}: {} to {}", link.link, link.b, link.a), &link.backward),
        ]
    });
    let cells = variant.cells.iter().flat_map(|cell| {
        [
            (format!("{}: from {}", cell.cell, cell.base), &cell.down),
            (format!("{}: to {}", cell.cell, cell.base), &cell.up),
        ]
    });
    const ROWS: usize = 40;
    let rows: Vec<_> = links.chain(cells).filter(|(_, direction)| direction.packets > 0).collect();
    if rows.is_empty() {
        return;
    }
    html.push_str(
        "<details><summary>Links and queues</summary>\n<div class=\"wide\"><table>\n<thead><tr><th>direction</th>\
         <th>packets</th><th>bytes</th><th>delivered</th><th>dropped</th><th>queue, mean</th><th>queue, max</th></tr>\
         </thead>\n<tbody>\n",
    );
    for (name, direction) in rows.iter().take(ROWS) {
        let drops = direction.dropped_packets.iter().map(|(cause, packets)| format!("{} {cause}", count(*packets)));
        let drops: Vec<String> = drops.collect();
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(name),
            count(direction.packets),
            bytes(direction.bytes as f64),
            count(direction.delivered_packets),
            if drops.is_empty() { "–".to_owned() } else { escape(&drops.join(", ")) },
            significant(direction.queue.mean_packets),
            count(direction.queue.max_packets),
        );
    }
    html.push_str("</tbody>\n</table></div>\n</details>\n");
}
