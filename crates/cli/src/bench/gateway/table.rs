//! The table of `holdover bench gateway`.

use super::lane::Lane;
use super::{GatewayCost, LoadCost, WayCost};
use crate::text_table::{Layout, laid_out, paragraph};

/// For people: a section for each load, a row for each way.
pub(in super::super) fn table(cost: &GatewayCost) -> String {
    let meaning = "gateway: processor time of hosts, router and softirqs, by the packets and bytes of plain forwarding; ratios to plain \
                   forwarding: medians of turns (and quartiles). \"router\": without the time of hosts joined directly";
    let programs = [("haproxy", &cost.haproxy), ("pepsal", &cost.pepsal)];
    let versions = programs.into_iter().filter_map(|(name, version)| Some(format!("{name}: {}", version.as_ref()?)));
    let head = std::iter::once(meaning.to_owned()).chain(versions).map(|line| paragraph(&line));
    head.chain(cost.loads.iter().map(section)).collect()
}

fn section(load: &LoadCost) -> String {
    let LoadCost { turns, packets, bytes, .. } = load;
    let name = load.load.name();
    let head = format!("{name} ({turns} turns; {packets:.0} packets, {bytes} bytes in a slice)");
    let layout = Layout { right: &[1, 2], ..Layout::default() };
    let ways = laid_out(["way", "ns/packet", "ns/byte", "all", "router"], layout, load.ways.iter().map(row));
    [paragraph(&head), ways].concat()
}

fn row(way: &WayCost) -> [String; 5] {
    let ratio = |median: f64, [low, high]: [f64; 2]| format!("{median:.3} ({low:.3}-{high:.3})");
    let router = match way.way {
        Lane::Direct => String::new(),
        _ => ratio(way.router_ratio, way.router_ratio_quartiles),
    };
    [
        way.way.name().to_owned(),
        format!("{:.0}", way.nanoseconds_per_packet),
        format!("{:.3}", way.nanoseconds_per_byte),
        ratio(way.ratio, way.ratio_quartiles),
        router,
    ]
}
