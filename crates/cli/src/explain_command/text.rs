//! An explanation for people.

use std::fmt::Write as _;

use holdover_explain::{Cause, Place};

use super::{Evidence, Explained, OutageRow, SpanRow};

/// More waits than a person reads.
const MAX_WAITS: usize = 40;
/// Outages that are listed one by one.
const MAX_OUTAGES: usize = 12;

/// The text of one connection, for a terminal of the given width.
pub(super) fn of(explained: &Explained, width: usize) -> String {
    let mut text = format!(
        "{} > {}: {} bytes in {:.3} s\n",
        explained.sender, explained.receiver, explained.bytes, explained.seconds
    );
    let _ = writeln!(text, "  captured {} in {}", explained.captured.name(), explained.capture.display());
    let _ = writeln!(text, "  round trip {}", round_trip(explained));
    let again = explained.retransmissions;
    let percent = explained.retransmitted_share * 100.0;
    let _ = writeln!(
        text,
        "  {again} segment{} sent again, {percent:.1} % of the bytes",
        if again == 1 { "" } else { "s" }
    );
    let bar_room = width.saturating_sub(36).min(40);
    for share in explained.lost.iter().filter(|share| share.seconds > 0.0) {
        let bar = "#".repeat((share.share * bar_room as f64).round() as usize);
        let row = format!("  {:12} {:>9.3} s {:>5.1} %  {bar}", share.cause.name(), share.seconds, share.share * 100.0);
        let _ = writeln!(text, "{}", row.trim_end());
    }
    for outage in explained.outages.iter().take(MAX_OUTAGES) {
        let _ = writeln!(text, "  {}", outage_line(outage));
    }
    if explained.outages.len() > MAX_OUTAGES {
        let _ = writeln!(text, "  ... and {} more outages; --json has them all", explained.outages.len() - MAX_OUTAGES);
    }
    let waits = explained.spans.iter().filter(|span| !is_movement(span.cause));
    let waits: Vec<&SpanRow> = waits.filter(|span| span.to_s - span.from_s >= 0.2).collect();
    for span in waits.iter().take(MAX_WAITS) {
        let (from, to, cause) = (span.from_s, span.to_s, span.cause.name());
        let _ = writeln!(text, "    {from:>9.3} s to {to:>9.3} s  {cause} for {:.3} s", to - from);
    }
    if waits.len() > MAX_WAITS {
        let _ = writeln!(text, "    ... and {} more; --json has them all", waits.len() - MAX_WAITS);
    }
    text.push('\n');
    text
}

fn is_movement(cause: Cause) -> bool {
    matches!(cause, Cause::Transfer | Cause::Handshake | Cause::Loss | Cause::ReceiveWindow)
}

fn round_trip(explained: &Explained) -> String {
    let millis = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
    match (explained.rtt_to_sender_s, explained.rtt_to_receiver_s, explained.captured) {
        (Some(sender), Some(receiver), _) => format!(
            "{}: {} to the sender, {} to the receiver",
            millis(explained.rtt_s),
            millis(sender),
            millis(receiver)
        ),
        (None, None, _) => "unknown, taken as 100 ms".to_owned(),
        (_, _, Place::Unknown) => format!("{} to one end, unknown to the other", millis(explained.rtt_s)),
        _ => millis(explained.rtt_s),
    }
}

fn outage_line(outage: &OutageRow) -> String {
    let from = outage.from_s;
    match (outage.certainty, outage.to_s, outage.to_between_s) {
        (Evidence::Given, Some(to), _) => format!("outage, as given, from {from:.3} s to {to:.3} s"),
        (Evidence::Given, None, _) => format!("outage, as given, from {from:.3} s to the end"),
        (certainty, Some(to), [Some(first), Some(last)]) => format!(
            "outage found ({}) from about {from:.3} s to about {to:.3} s: it ended between {first:.3} and {last:.3} s",
            name(certainty)
        ),
        (certainty, ..) => format!("outage found ({}) from about {from:.3} s, not over at the end", name(certainty)),
    }
}

const fn name(certainty: Evidence) -> &'static str {
    match certainty {
        Evidence::Given => "given",
        Evidence::Sure => "sure",
        Evidence::Likely => "likely",
    }
}
