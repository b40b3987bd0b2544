//! The table of `holdover bench gateway-hosts`.

use std::fmt::Write as _;

use super::HostsCost;
use super::flood::FloodCost;
use super::returns::ReturnCost;

/// The measurements as text.
pub(in super::super) fn table(cost: &HostsCost) -> String {
    let HostsCost { hosts, connections, memory, watching, .. } = cost;
    let mut text = format!(
        "gateway-hosts  {hosts} mobile hosts, {connections} connections, behind one link of {} Mbit/s\n",
        cost.link_bits_per_second / 1_000_000
    );
    // Writing to a string does not fail.
    let mut line = |row: String| {
        let _ = writeln!(text, "               {row}");
    };
    line(format!(
        "memory without hosts: process {:.1} MB, maps {:.1} MB",
        memory.process as f64 / 1e6,
        memory.maps as f64 / 1e6
    ));
    line(format!(
        "memory per mobile host: process {:.0} bytes, maps {:.0}; per connection: process {:.0}, maps {:.0}",
        memory.process_per_host, memory.maps_per_host, memory.process_per_connection, memory.maps_per_connection
    ));
    line(format!(
        "all there, a message each second: daemon {:.1} % of a processor; {} taken for absent",
        watching.daemon_share * 100.0,
        watching.taken_for_absent
    ));
    cost.returns.iter().flat_map(returned).for_each(&mut line);
    cost.floods.iter().flat_map(flooded).for_each(&mut line);
    text
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
