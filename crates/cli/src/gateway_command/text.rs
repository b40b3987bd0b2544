//! The gateway's answers as text.

use std::fmt::Write as _;

use holdover_gatewayd::status::{MobileLine, Status};
use holdover_gatewayd::{ClusterStatus, SplitStatus};

use crate::text_table::{Layout, laid_out};

pub(super) fn status(status: &Status) -> String {
    let Status { interface, mode, mobiles, away, waiting, waiting_bytes, path, buffer, unsendable, woken, .. } = status;
    let mut text = format!(
        "gateway {} on {interface}{}: {mode:?}, attached by {:?}, running for {:.0} s{}\n",
        status.version,
        if status.interface_gone { " (gone: waiting for it)" } else { "" },
        status.attached_by,
        status.running_s,
        if status.draining { ", draining" } else { "" },
    );
    let by: Vec<String> = status.away_by.iter().map(|(source, count)| format!("{source} {count}")).collect();
    let by = if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) };
    let warnings =
        if buffer.warnings == 0 { String::new() } else { format!(", {} of them predicted", buffer.warnings) };
    let absences = buffer.absences;
    let _ = writeln!(text, "mobile hosts  {mobiles} known, {away} away{by}; {absences} absences so far{warnings}");
    let _ = writeln!(text, "waiting       {waiting} packets, {waiting_bytes} bytes");
    let _ = writeln!(
        text,
        "packets       {} passed, {} diverted, {} released",
        path.passed, path.diverted, buffer.released
    );
    let _ = writeln!(
        text,
        "TCP           {} connections, {} ACKs lowered, {} withheld; after absences {} senders were shown held ACKs, {} woken otherwise",
        woken.connections, path.lowered, path.withheld, woken.released, woken.poked
    );
    let lost = [
        ("the buffer of the host was full", buffer.mobile_full),
        ("the buffer was full", buffer.total_full),
        ("made room for others", buffer.evicted),
        ("waited too long", buffer.aged),
        ("not stored", buffer.storage),
        ("for the former owner of an address", buffer.forgotten),
        ("longer than the MTU", unsendable.too_big),
        ("refused by the kernel", unsendable.refused),
        ("for hosts that have moved to other gateways", status.handoff.map_or(0, |handoff| handoff.packets_dropped)),
    ];
    for (why, count) in lost.into_iter().filter(|&(_, count)| count > 0) {
        let _ = writeln!(text, "dropped       {count}: {why}");
    }
    if let Some(handoff) = &status.handoff {
        let _ = writeln!(
            text,
            "handoffs      {} claims of others were answered with {} packets, {} packets came; {} times a gateway did not answer, \
             and {} packets were not confirmed",
            handoff.left, handoff.packets_left, handoff.packets_came, handoff.lost, handoff.packets_lost
        );
        let _ = writeln!(
            text,
            "connections   {} handed on to other gateways, {} taken in; {} were not confirmed",
            handoff.connections_left, handoff.connections_came, handoff.connections_lost
        );
    }
    if let Some(split) = &status.split {
        text.push_str(&self::split(split));
    }
    if let Some(cluster) = &status.cluster {
        text.push_str(&self::cluster(cluster));
    }
    if path.expired > 0 {
        let _ = writeln!(text, "passed        {} although away: the gateway did not run for a while", path.expired);
    }
    text
}

fn split(split: &SplitStatus) -> String {
    let SplitStatus { most, open, pending, total, to_mobile_bytes, from_mobile_bytes, .. } = split;
    let state = if split.stopped { "; its thread does not run, new connections pass unsplit" } else { "" };
    let mut text = format!(
        "split         {open} connections open (at most {most}), {pending} being opened, {total} so far; \
         {to_mobile_bytes} bytes to mobile hosts, {from_mobile_bytes} from them{state}\n"
    );
    let _ = writeln!(
        text,
        "not opened    {} refused, {} unreachable, {} unanswered; {} were reset",
        split.refused, split.unreachable, split.unanswered, split.reset
    );
    let unsplit = split.unsplit;
    let reasons = [
        ("SYNs with TCP-MD5 or TCP-AO", unsplit.authenticated),
        ("SYNs of multipath TCP", unsplit.multipath),
        ("malformed SYNs", unsplit.malformed),
        ("SYNs above the limit of connections", unsplit.full),
        ("SYNs with addresses and ports in use on this host", unsplit.address_in_use),
        ("SYNs while the gateway hung or was stopping", unsplit.daemon_away),
        ("fragments", unsplit.fragments),
    ];
    for (what, count) in reasons.into_iter().filter(|&(_, count)| count > 0) {
        let _ = writeln!(text, "unsplit       {count} {what}");
    }
    text
}

fn cluster(cluster: &ClusterStatus) -> String {
    let ClusterStatus { name, owned, claimed, elsewhere, epoch, counters, .. } = cluster;
    let state = match (cluster.superseded, cluster.connected, cluster.registered) {
        (true, ..) => "another gateway has this name; claims nothing".to_owned(),
        (_, true, true) => "connected".to_owned(),
        (_, true, false) => "connected, not registered".to_owned(),
        (_, false, _) => match (cluster.away_s, &cluster.failure) {
            (Some(away_s), Some(failure)) => format!("store away for {away_s:.0} s ({failure})"),
            _ => "connecting".to_owned(),
        },
    };
    let gateways = cluster.gateways.iter().map(|gateway| {
        let lease = if gateway.alive { "" } else { " (no lease)" };
        format!("{} {}{lease}", gateway.name, gateway.address)
    });
    let gateways: Vec<String> = gateways.collect();
    let others = if gateways.is_empty() { "none".to_owned() } else { gateways.join(", ") };
    let adopted = match (cluster.adopted, cluster.not_adopted) {
        (0, 0) => String::new(),
        (adopted, 0) => format!("adopted       {adopted} mobile hosts of dead gateways\n"),
        (adopted, left_out) => format!(
            "adopted       {adopted} mobile hosts of dead gateways; no room for {left_out}: [buffer] most_mobiles\n"
        ),
    };
    format!(
        "cluster       {name}: {state}; other gateways: {others}\n\
         owners        {owned} mobile hosts are this gateway's, {claimed} claimed, {elsewhere} elsewhere; epoch {epoch}; \
         {} won ({} of dead gateways), {} lost, {} claims fenced\n{adopted}",
        counters.won, counters.taken_over, counters.lost, counters.fenced
    )
}

/// The columns of mobile hosts. The second one is where a host is: present, fading or away.
pub(super) const MOBILE_COLUMNS: [&str; 9] =
    ["address", "", "away", "silent", "waiting", "released", "dropped", "owner", "away by"];

/// The columns that a narrow terminal leaves out: released and dropped packets first, then the silence.
pub(super) const MOBILES_GIVEN_UP: [usize; 3] = [5, 6, 3];

/// The cells of a mobile host.
pub(super) fn mobile_cells(mobile: &MobileLine) -> [String; 9] {
    let time = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"));
    let buffer = &mobile.buffer;
    let dropped = buffer.lost();
    [
        mobile.name(),
        mobile.standing.clone(),
        time(mobile.away_s),
        time(mobile.silent_s),
        mobile.waiting.to_string(),
        buffer.released.to_string(),
        dropped.to_string(),
        mobile.owner.clone().unwrap_or_else(|| "-".to_owned()),
        mobile.away_by.iter().map(|source| away_by(mobile, source)).collect::<Vec<_>>().join(", "),
    ]
}

/// A source that reports a mobile host away, and since when.
fn away_by(mobile: &MobileLine, source: &str) -> String {
    let report = mobile.reports.iter().find(|report| report.source == source);
    report.map_or_else(|| source.to_owned(), |report| format!("{source} {:.1} s ago", report.ago_s))
}

pub(super) fn mobiles(mobiles: &[MobileLine]) -> String {
    if mobiles.is_empty() {
        return "no mobile host was heard yet\n".to_owned();
    }
    let layout = Layout { given_up: &MOBILES_GIVEN_UP, right: &[2, 3, 4, 5, 6], ..Layout::default() };
    laid_out(MOBILE_COLUMNS, layout, mobiles.iter().map(mobile_cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_connections_and_reasons_not_to_split_are_shown() {
        let mut split = SplitStatus { open: 3, most: 10, total: 7, ..SplitStatus::default() };
        let text = super::split(&split);
        assert!(text.starts_with("split         3 connections open (at most 10), 0 being opened, 7 so far"), "{text}");
        assert!(!text.contains("unsplit"), "{text}");
        split.unsplit.multipath = 2;
        split.stopped = true;
        let text = super::split(&split);
        assert!(text.contains("unsplit       2 SYNs of multipath TCP\n") && text.contains("does not run"), "{text}");
    }

    #[test]
    fn an_absent_mobile_host_has_the_times_of_its_reports() {
        let line = |source: &str, presence: &str, ago_s: f64| serde_json::json!({ "source": source, "presence": presence, "ago_s": ago_s });
        let mobile: MobileLine = serde_json::from_value(serde_json::json!({
            "address": "10.0.1.7", "standing": "away", "away_by": ["station", "lease"], "away_s": 3.2, "diverts": true,
            "reports": [line("station", "away", 3.2), line("silence", "present", 60.0)], "waiting": 0, "waiting_bytes": 0,
            "buffer": holdover_gatewayd::status::Tally::default(),
        }))
        .unwrap();
        assert_eq!(mobile_cells(&mobile)[8], "station 3.2 s ago, lease");
    }

    #[test]
    fn mobile_hosts_that_were_not_adopted_are_shown() {
        let cluster = |not_adopted| ClusterStatus {
            name: "a".to_owned(),
            connected: true,
            away_s: None,
            failure: None,
            registered: true,
            superseded: false,
            gateways: Vec::new(),
            owned: 1,
            claimed: 0,
            elsewhere: 7,
            adopted: not_adopted,
            not_adopted,
            epoch: 9,
            counters: Default::default(),
        };
        assert!(!super::cluster(&cluster(0)).contains("adopted"));
        let text = super::cluster(&cluster(3));
        assert!(text.contains("adopted       3 mobile hosts of dead gateways; no room for 3"), "{text}");
    }
}
