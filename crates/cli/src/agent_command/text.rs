//! An agent's status in words and columns, for `status` and `top`.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use holdover_agent::link_watch::LinkCondition;
use holdover_agent::outcomes::Outcomes;
use holdover_agent::status::{ActionLine, ConnectionStatus, ContainersStatus, LinkStatus, Status};

use crate::command_support::utc;
use crate::text_table::{Layout, laid_out};

/// The columns of links.
pub(super) const LINK_COLUMNS: [&str; 11] =
    ["LINK", "STATE", "SINCE", "OUTAGES", "DOWN", "WARNED", "MOVED", "WOKEN", "LATER", "NEVER", "SAVED"];

/// The columns of links that a narrow terminal does without: MOVED and WARNED, then DOWN and SINCE.
pub(super) const LINKS_GIVEN_UP: [usize; 4] = [6, 5, 4, 2];

/// The columns of connections.
pub(super) const CONNECTION_COLUMNS: [&str; 10] =
    ["LINK", "LOCAL", "REMOTE", "PROGRAM", "OUT", "IN", "IDLE", "RTT", "HELD", "LAST ACTION"];

/// The columns of connections that a narrow terminal does without: LOCAL, HELD, OUT and IN, then LINK and PROGRAM.
pub(super) const CONNECTIONS_GIVEN_UP: [usize; 6] = [1, 8, 4, 5, 0, 3];

/// The most connections that are printed; the others are counted.
const MOST_LINES: usize = 40;

/// One line for the whole.
pub(super) fn summary(status: &Status) -> String {
    let dry = if status.dry_run { ", dry run: nothing is changed" } else { "" };
    format!("agent {}, running for {}{dry}", status.version, span(status.running_s))
}

/// The cells of a link.
pub(super) fn link_cells(link: &LinkStatus) -> [String; 11] {
    let record = &link.record;
    let Outcomes { at_once, later, never, saved_s, .. } = &record.outcomes;
    [
        link.interface.clone(),
        state(link),
        span(link.state_s),
        record.outages.to_string(),
        span(record.down_s),
        record.warnings.to_string(),
        record.moves.to_string(),
        at_once.count.to_string(),
        later.count.to_string(),
        never.to_string(),
        saved_s.map_or_else(|| "-".to_owned(), difference),
    ]
}

/// Up, fading or down, and the sources.
fn state(link: &LinkStatus) -> String {
    let objections = || link.objections.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let state = match link.state {
        LinkCondition::Up => "up",
        LinkCondition::Fading => "fading",
        LinkCondition::Down => return format!("down ({})", objections()),
    };
    match link.families_down.first() {
        Some(family) => format!("{state} ({family} down: {})", objections()),
        None => state.to_owned(),
    }
}

/// Further remarks on a link.
pub(super) fn link_remarks(link: &LinkStatus) -> Vec<String> {
    let problem = link.problem.as_ref().map(|problem| format!("{}: not attached: {problem}", link.interface));
    let trouble = link.trouble.as_ref().map(|trouble| format!("{}: the kernel has refused: {trouble}", link.interface));
    let cut = link.next_cut_s.map(|cut| format!("{}: the timetable's next cut is in {}", link.interface, span(cut)));
    problem.into_iter().chain(trouble).chain(cut).collect()
}

/// The process, and the container it is in.
fn process(connection: &ConnectionStatus) -> String {
    let process = connection.process.clone().unwrap_or_default();
    match connection.container.as_deref().map(short_cgroup) {
        Some(container) if process.is_empty() => format!("in {container}"),
        Some(container) => format!("{process} in {container}"),
        None => process,
    }
}

/// The last part of a cgroup's path, with at most the first 12 digits of a container's number:
/// `/system.slice/docker-3f2a9c0b1d4e5f60….scope` becomes `docker-3f2a9c0b1d4e`.
fn short_cgroup(cgroup: &str) -> String {
    let last = cgroup.rsplit('/').next().unwrap_or(cgroup);
    let last = [".scope", ".service", ".slice"].iter().find_map(|end| last.strip_suffix(end)).unwrap_or(last);
    let digits = last.rsplit('-').next().unwrap_or(last);
    let is_number = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_number { last[..last.len() - 52].to_owned() } else { last.to_owned() }
}

/// The cells of a connection.
pub(super) fn connection_cells(connection: &ConnectionStatus) -> [String; 10] {
    let alone = if connection.left_alone { "left alone" } else { "" };
    [
        connection.interface.clone(),
        connection.local.to_string(),
        connection.remote.to_string(),
        process(connection),
        bytes(connection.bytes_sent),
        bytes(connection.bytes_received),
        connection.idle_s.map(span).unwrap_or_default(),
        connection.round_trip_ms.map(|ms| span(ms / 1e3)).unwrap_or_default(),
        if connection.held_bytes > 0 { bytes(connection.held_bytes) } else { String::new() },
        connection.last_action.clone().unwrap_or_else(|| alone.to_owned()),
    ]
}

/// Everything, as `holdover agent status` prints it.
pub(super) fn status(status: &Status) -> String {
    let mut text = summary(status) + "\n\n";
    if status.links.is_empty() {
        text.push_str("no link is managed: none has a default route, and none was asked for\n");
        return text;
    }
    let layout = Layout { given_up: &LINKS_GIVEN_UP, ..Layout::default() };
    text.push_str(&laid_out(LINK_COLUMNS, layout, status.links.iter().map(link_cells)));
    for remark in status.links.iter().flat_map(link_remarks) {
        let _ = writeln!(text, "  {remark}");
    }
    if let Some(problem) = &status.user_timeouts.problem {
        let _ = writeln!(text, "  user timeouts: {problem}");
    }
    if let Some(ContainersStatus { namespaces, problem }) = &status.containers {
        let problem = problem.as_ref().map(|problem| format!(": {problem}")).unwrap_or_default();
        let _ = writeln!(text, "  containers: {namespaces} network namespaces{problem}");
    }
    if !status.connections.is_empty() {
        text.push('\n');
        let layout = Layout { given_up: &CONNECTIONS_GIVEN_UP, ..Layout::default() };
        let rows = status.connections.iter().take(MOST_LINES).map(connection_cells);
        text.push_str(&laid_out(CONNECTION_COLUMNS, layout, rows));
    }
    let more = status.connections_in_all.saturating_sub(MOST_LINES as u64);
    if more > 0 {
        let _ = writeln!(text, "and {more} more");
    }
    text
}

/// An action in a line.
pub(super) fn action(action: &ActionLine) -> String {
    let (time, _) = utc(UNIX_EPOCH + Duration::from_secs_f64(action.time.max(0.0)));
    let saved = match action.saved_s {
        Some(saved) if saved < 0.0 => format!(", {} later than by its own timer", span(-saved)),
        Some(saved) => format!(", {} sooner than by its own timer", span(saved)),
        None => String::new(),
    };
    let ActionLine { interface, local, remote, mechanism, what, .. } = action;
    format!("{time} {interface} {local} > {remote} {mechanism}: {what}{saved}")
}

/// A span of time to two or three digits: `52ms`, `3.2s`, `4m10s`, `2h05m`, `3d04h`.
pub(super) fn span(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0 if seconds < 0.0005 => "0".to_owned(),
        0 => format!("{:.0}ms", seconds * 1e3),
        1..10 => format!("{seconds:.1}s"),
        10..60 => format!("{whole}s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..86_400 => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole / 3600 % 24),
    }
}

/// The same of a span that may be negative.
fn difference(seconds: f64) -> String {
    if seconds < 0.0 { format!("-{}", span(-seconds)) } else { span(seconds) }
}

/// An amount of data to two or three digits.
fn bytes(count: u64) -> String {
    let mut amount = count as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if amount < 1000.0 {
            let digits = usize::from(amount < 10.0 && unit != "B");
            return format!("{amount:.digits$}{unit}");
        }
        amount /= 1000.0;
    }
    format!("{amount:.1}TB")
}

#[cfg(test)]
mod tests {
    use holdover_agent::link_watch::{Family, Source};
    use holdover_agent::path_engine::Counters;
    use holdover_agent::status::{LinkRecord, UserTimeoutStatus};

    use super::*;

    #[test]
    fn times_and_amounts_are_short() {
        for (seconds, text) in [
            (0.0, "0"),
            (0.052, "52ms"),
            (3.21, "3.2s"),
            (59.9, "59s"),
            (250.0, "4m10s"),
            (7500.0, "2h05m"),
            (273_600.0, "3d04h"),
        ] {
            assert_eq!(span(seconds), text);
        }
        for (count, text) in
            [(0, "0B"), (999, "999B"), (1500, "1.5kB"), (12_500_000, "12MB"), (5_000_000_000_000, "5.0TB")]
        {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn a_status_says_what_is_wrong() {
        let mut whole = Status {
            version: "0.1.0".to_owned(),
            running_s: 65.0,
            dry_run: true,
            links: Vec::new(),
            connections: Vec::new(),
            connections_in_all: 0,
            counters: Counters::default(),
            user_timeouts: UserTimeoutStatus::default(),
            containers: None,
        };
        assert!(status(&whole).contains("no link is managed"));
        whole.links.push(LinkStatus {
            interface: "wlan0".to_owned(),
            state: LinkCondition::Down,
            state_s: 2.0,
            families_down: Vec::new(),
            objections: vec![Source::Carrier, Source::Route],
            problem: Some("no such luck".to_owned()),
            trouble: Some("a map is full".to_owned()),
            next_cut_s: Some(90.0),
            record: LinkRecord {
                outages: 3,
                outcomes: Outcomes { never: 4, saved_s: Some(-2.5), ..Outcomes::default() },
                ..LinkRecord::default()
            },
            counters: Counters::default(),
        });
        let text = status(&whole);
        for says in [
            "running for 1m05s, dry run",
            "down (carrier, route)  2.0s   3",
            "wlan0: not attached: no such luck",
            "wlan0: the kernel has refused: a map is full",
            "next cut is in 1m30s",
            "0      0      4      -2.5s\n",
        ] {
            assert!(text.contains(says), "{says} is not in\n{text}");
        }
        whole.links[0].state = LinkCondition::Up;
        whole.links[0].families_down = vec![Family::Ipv4];
        assert!(status(&whole).contains("up (IPv4 down: carrier, route)"));
        let problem = Some("net:[4711] of process 7: not permitted".to_owned());
        whole.containers = Some(ContainersStatus { namespaces: 3, problem });
        let text = status(&whole);
        assert!(text.contains("containers: 3 network namespaces: net:[4711] of process 7: not permitted\n"), "{text}");
    }

    #[test]
    fn a_container_is_called_by_the_last_part_of_its_cgroup() {
        let number = "0123456789abcdef".repeat(4);
        for (cgroup, text) in [
            (format!("/system.slice/docker-{number}.scope"), "docker-0123456789ab"),
            (format!("/docker/{number}"), "0123456789ab"),
            ("/machine.slice/web.service".to_owned(), "web"),
            ("net:[4026532000]".to_owned(), "net:[4026532000]"),
            ("/".to_owned(), ""),
        ] {
            assert_eq!(short_cgroup(&cgroup), text, "{cgroup}");
        }
    }
}
