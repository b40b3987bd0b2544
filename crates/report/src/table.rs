//! The comparison of flows, with the same columns on the page and on a terminal.

use crate::metrics::{FlowMetrics, StatusName};
use crate::quantity::{bit_rate, bytes, count, percent, seconds};
use crate::summary::{Summary, VariantSummary};

/// A column of the comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    /// The explanation.
    pub(crate) meaning: &'static str,
    /// The value for a flow; `None` where it does not apply. A column that applies to no flow is omitted.
    pub(crate) value: fn(&FlowMetrics) -> Option<String>,
}

const fn column(heading: &'static str, meaning: &'static str, value: fn(&FlowMetrics) -> Option<String>) -> Column {
    Column { heading, meaning, value }
}

/// The heading of the column with ideal time divided by actual time.
pub(crate) const IDEAL: &str = "ideal";

const COLUMNS: [Column; 14] = [
    column("time", "from the start of the flow to the last byte read, or to the end of the run", |flow| {
        Some(seconds(flow.duration_s))
    }),
    column("net", "net transmission time: the time without outages", |flow| {
        (flow.outage_s > 0.0).then(|| seconds(flow.net_duration_s))
    }),
    column("goodput", "bits read by the application, over the time", |flow| Some(bit_rate(flow.goodput_bps))),
    column(IDEAL, "ideal time over the time taken", |flow| flow.ideal_share.map(percent)),
    column("idle, mean", "from a return of the path to the first new data", |flow| flow.mean_idle_s().map(seconds)),
    column("max", "the longest time from a return of the path to the first new data", |flow| {
        flow.idle_times_s().max_by(f64::total_cmp).map(seconds)
    }),
    column("exchange", "from request to answer, half of them within", |flow| {
        flow.exchanges.as_ref().map(|exchanges| seconds(exchanges.median_s))
    }),
    column("95 %", "from request to answer, 95 of 100 within", |flow| {
        flow.exchanges.as_ref().map(|exchanges| seconds(exchanges.p95_s))
    }),
    column("timeouts", "runs of the retransmission timer that ended in a retransmission", |flow| {
        flow.sender.as_ref().map(|sender| count(sender.timeouts))
    }),
    column("fast", "fast retransmits", |flow| flow.sender.as_ref().map(|sender| count(sender.fast_retransmits))),
    column("undone", "timeouts and recoveries that turned out to be spurious", |flow| {
        flow.sender.as_ref().filter(|sender| sender.undos > 0).map(|sender| count(sender.undos))
    }),
    column("sent again", "retransmitted bytes", |flow| {
        flow.sender.as_ref().map(|sender| bytes(sender.bytes_retransmitted as f64))
    }),
    column("duplicates", "bytes that arrived more than once", |flow| {
        flow.receiver.as_ref().map(|receiver| bytes(receiver.bytes_duplicate as f64))
    }),
    column("throughput", "payload bits sent, retransmissions included, over the time", |flow| {
        flow.sender.as_ref().map(|_| bit_rate(flow.throughput_bps))
    }),
];

/// The outcome of a flow in words, and whether it is bad.
pub(crate) fn status(flow: &FlowMetrics) -> (&'static str, bool) {
    match flow.status {
        StatusName::Unfinished if flow.endless => ("to the end", false),
        StatusName::Unfinished | StatusName::Failed => (flow.status.name(), true),
        StatusName::Completed => (flow.status.name(), false),
    }
}

/// One flow in all variants that have it.
#[derive(Clone, Debug)]
pub(crate) struct FlowTable<'a> {
    pub(crate) flow: &'a str,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<(&'a VariantSummary, &'a FlowMetrics)>,
}

/// One table per flow name, in order of appearance.
pub(crate) fn side_by_side(summary: &Summary) -> Vec<FlowTable<'_>> {
    let mut tables: Vec<FlowTable<'_>> = Vec::new();
    for variant in &summary.variants {
        for flow in &variant.flows {
            match tables.iter_mut().find(|table| table.flow == flow.flow) {
                Some(table) => table.rows.push((variant, flow)),
                None => tables.push(FlowTable { flow: &flow.flow, columns: Vec::new(), rows: vec![(variant, flow)] }),
            }
        }
    }
    for table in &mut tables {
        let applies = |column: &&Column| table.rows.iter().any(|(_, flow)| (column.value)(flow).is_some());
        table.columns = COLUMNS.iter().filter(applies).copied().collect();
    }
    tables
}

impl Summary {
    /// The comparison of variants as text for a terminal of `width` columns; columns that do not fit are omitted.
    pub fn to_text(&self, width: usize) -> String {
        const TABLES: usize = 8;
        let tables = side_by_side(self);
        let mut text = String::new();
        for table in tables.iter().take(TABLES) {
            if tables.len() > 1 {
                text.push_str(&format!("{}\n", table.flow));
            }
            text.push_str(&to_text(table, width));
            text.push('\n');
        }
        if tables.len() > TABLES {
            text.push_str(&format!("{} more flows are in flows.csv.\n", tables.len() - TABLES));
        }
        text
    }
}

fn to_text(table: &FlowTable<'_>, width: usize) -> String {
    let mut columns: Vec<Vec<String>> = Vec::new();
    let variants = table.rows.iter().map(|(variant, _)| variant.variant.clone());
    columns.push(std::iter::once("variant".to_owned()).chain(variants).collect());
    let status = table.rows.iter().map(|(_, flow)| status(flow).0.to_owned());
    columns.push(std::iter::once("status".to_owned()).chain(status).collect());
    for column in &table.columns {
        let values = table.rows.iter().map(|(_, flow)| (column.value)(flow).unwrap_or_else(|| "–".to_owned()));
        columns.push(std::iter::once(column.heading.to_owned()).chain(values).collect());
    }
    let mut room = width;
    let mut lines = vec![String::new(); table.rows.len() + 1];
    for (index, column) in columns.iter().enumerate() {
        let widest = column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
        let gap = if index == 0 { 0 } else { 2 };
        if widest + gap > room && index > 1 {
            break;
        }
        room = room.saturating_sub(widest + gap);
        for (line, cell) in lines.iter_mut().zip(column) {
            let padding = " ".repeat(widest - cell.chars().count());
            let (before, after) = if index == 0 { ("", padding.as_str()) } else { (padding.as_str(), "") };
            line.push_str(&format!("{:gap$}{before}{cell}{after}", ""));
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}
