//! The table of `holdover bench gateway-hosts`.

use super::HostsCost;
use super::flood::FloodCost;
use super::returns::ReturnCost;
use crate::text_table::{Layout, laid_out};

/// The measurements as text.
pub(in super::super) fn table(cost: &HostsCost) -> String {
    let HostsCost { hosts, connections, memory, watching, .. } = cost;
    let mbps = cost.link_bits_per_second / 1_000_000;
    let head = [
        format!("{hosts} mobile hosts, {connections} connections, behind one link of {mbps} Mbit/s"),
        format!(
            "memory without hosts: process {:.1} MB, maps {:.1} MB",
            memory.process as f64 / 1e6,
            memory.maps as f64 / 1e6
        ),
        format!(
            "memory per mobile host: process {:.0} bytes, maps {:.0}; per connection: process {:.0}, maps {:.0}",
            memory.process_per_host, memory.maps_per_host, memory.process_per_connection, memory.maps_per_connection
        ),
        format!(
            "all there, a message each second: daemon {:.1} % of a processor; {} taken for absent",
            watching.daemon_share * 100.0,
            watching.taken_for_absent
        ),
    ];
    let costs = cost.returns.iter().flat_map(returned).chain(cost.floods.iter().flat_map(flooded));
    let names = std::iter::once("gateway-hosts").chain(std::iter::repeat(""));
    let rows = names.zip(head.into_iter().chain(costs)).map(|(name, text)| [name.to_owned(), text]);
    laid_out(["measure", ""], Layout { has_sentences: true, headless: true, ..Layout::default() }, rows)
}

fn returned(cost: &ReturnCost) -> Vec<String> {
    vec![
        format!(
            "absent ({}): all known after {:.2} s, then daemon {:.1} % of a processor; {} packets wait ({:.2} MB, {:.3} s on the link)",
            cost.absence.name(),
            cost.detected_s,
            cost.daemon_share * 100.0,
            cost.waiting_packets,
            cost.waiting_bytes as f64 / 1e6,
            cost.waiting_link_s
        ),
        format!(
            "  back: first data after {:.3} s (median), {:.3} s (99 of 100), {:.3} s (slowest); all data after {:.2} s ({:.2} s on the link)",
            cost.first_data_median_s,
            cost.first_data_p99_s,
            cost.first_data_max_s,
            cost.all_data_s,
            cost.all_data_link_s
        ),
        format!(
            "  daemon {:.2} s; packets lost: {} by limits, {} before the daemon, {} at the link",
            cost.daemon_s, cost.discarded, cost.dropped_before_daemon, cost.dropped_at_link
        ),
    ]
}

fn flooded(cost: &FloodCost) -> Vec<String> {
    vec![
        format!(
            "{} SYNs from {}, {:.0} each second: {} of {} established connections keep their place, {} in the table",
            cost.syns,
            cost.flooder.name(),
            cost.syns_per_second,
            cost.kept,
            cost.established,
            cost.table
        ),
        format!(
            "  {} packets without a place; programs {:.0} ns a packet; daemon {:.1} % of a processor",
            cost.without_room,
            cost.program_nanoseconds,
            cost.daemon_share * 100.0
        ),
    ]
}
