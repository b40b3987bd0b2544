//! The table of `holdover bench gateway`.

use std::fmt::Write as _;

use super::lane::Lane;
use super::{GatewayCost, LoadCost};

/// For people: a section for each load, a row for each way.
pub(in super::super) fn table(cost: &GatewayCost) -> String {
    let mut text = "gateway    processor time of hosts, router and softirqs, by the packets and bytes of plain forwarding; ratios to plain\n\
         \x20          forwarding: medians of turns (and quartiles). \"router\": without the time of hosts joined directly\n"
        .to_owned();
    if let Some(version) = &cost.haproxy {
        let _ = writeln!(text, "           haproxy: {version}");
    }
    if let Some(version) = &cost.pepsal {
        let _ = writeln!(text, "           pepsal: {version}");
    }
    for load in &cost.loads {
        section(&mut text, load);
    }
    text
}

fn section(text: &mut String, load: &LoadCost) {
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "           {} ({} turns; {:.0} packets, {} bytes in a slice)\n           {:12} {:>9} {:>9}   {:<20} {:<20}",
        load.load.name(),
        load.turns,
        load.packets,
        load.bytes,
        "",
        "ns/packet",
        "ns/byte",
        "all",
        "router",
    );
    for way in &load.ways {
        let ratio = |median: f64, [low, high]: [f64; 2]| format!("{median:.3} ({low:.3}-{high:.3})");
        let router = match way.way {
            Lane::Direct => String::new(),
            _ => ratio(way.router_ratio, way.router_ratio_quartiles),
        };
        let row = format!(
            "           {:12} {:>9.0} {:>9.3}   {:<20} {router:<20}",
            way.way.name(),
            way.nanoseconds_per_packet,
            way.nanoseconds_per_byte,
            ratio(way.ratio, way.ratio_quartiles),
        );
        let _ = writeln!(text, "{}", row.trim_end());
    }
}
