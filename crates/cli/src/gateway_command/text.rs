//! What the gateway tells, as text for people.

use std::fmt::Write as _;

use holdover_gatewayd::status::{MobileLine, Status};

pub(super) fn status(status: &Status) -> String {
    let Status { interface, mode, mobiles, away, waiting, waiting_bytes, path, buffer, unsendable, woken, .. } = status;
    let mut text = format!(
        "gateway {} on {interface}: {mode:?}, attached by {:?}, running for {:.0} s{}\n",
        status.version,
        status.attached_by,
        status.running_s,
        if status.draining { ", draining" } else { "" },
    );
    let _ = writeln!(text, "mobile hosts  {mobiles} known, {away} away; {} absences so far", buffer.absences);
    let _ = writeln!(text, "waiting       {waiting} packets, {waiting_bytes} bytes");
    let _ = writeln!(
        text,
        "packets       {} passed, {} diverted, {} released",
        path.passed, path.diverted, buffer.released
    );
    let _ = writeln!(
        text,
        "TCP           {} connections, {} ACKs lowered, {} withheld; after absences {} senders were shown what was held, {} told otherwise",
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
    ];
    for (why, count) in lost.into_iter().filter(|&(_, count)| count > 0) {
        let _ = writeln!(text, "dropped       {count}: {why}");
    }
    if let Some(handoff) = &status.handoff {
        let _ = writeln!(
            text,
            "handoffs      {} claims of others were answered with {} packets, {} packets came; {} times a gateway did not answer",
            handoff.left, handoff.packets_left, handoff.packets_came, handoff.lost
        );
    }
    if path.expired > 0 {
        let _ = writeln!(text, "passed        {} although away: the gateway did not run for a while", path.expired);
    }
    text
}

pub(super) fn mobiles(mobiles: &[MobileLine]) -> String {
    if mobiles.is_empty() {
        return "no mobile host was heard yet\n".to_owned();
    }
    let width = mobiles.iter().map(|mobile| mobile.address.to_string().len()).max().unwrap_or(0).max(7);
    let mut text = format!(
        "{:<width$}  {:<8} {:>8} {:>8} {:>8} {:>9} {:>7}  away by\n",
        "address", "", "away", "silent", "waiting", "released", "dropped"
    );
    for mobile in mobiles {
        let time = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"));
        let buffer = &mobile.buffer;
        let dropped =
            buffer.mobile_full + buffer.total_full + buffer.evicted + buffer.aged + buffer.storage + buffer.forgotten;
        let _ = writeln!(
            text,
            "{:<width$}  {:<8} {:>8} {:>8} {:>8} {:>9} {dropped:>7}  {}",
            mobile.address.to_string(),
            mobile.standing,
            time(mobile.away_s),
            time(mobile.silent_s),
            mobile.waiting,
            buffer.released,
            mobile.away_by.join(", "),
        );
    }
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
