//! `holdover agent top`: links above, connections below, once a second.

use std::path::Path;
use std::process::ExitCode;

use holdover_agent::control;
use holdover_agent::link_watch::LinkCondition;
use holdover_agent::status::{ConnectionStatus, Status};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::text;
use crate::command_support::with_causes;
use crate::top::{self, Columns, KEYS, SortKey, Top, View};

/// The sort keys of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SortBy {
    Idle,
    Received,
    Sent,
    RoundTrip,
    Actions,
}

pub(super) fn run(socket: &Path) -> ExitCode {
    top::run("holdover agent status prints the same once", || {
        control::status(socket).map_err(|error| with_causes(&error))
    })
}

impl Top for Status {
    type SortKey = SortBy;

    fn draw(&self, view: &mut View<SortBy>, frame: &mut Frame<'_>) {
        let remarks: Vec<Line<'_>> = self.links.iter().flat_map(text::link_remarks).map(Line::from).collect();
        let links_height = u16::try_from(self.links.len()).unwrap_or(u16::MAX).saturating_add(3).min(12);
        let [head, links, notes, connections, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(links_height),
            Constraint::Length(u16::try_from(remarks.len()).unwrap_or(4).min(4)),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(format!("holdover {}", text::summary(self))), head);
        let rows = self.links.iter().map(|link| {
            let colour = match link.state {
                LinkCondition::Up => Color::Green,
                LinkCondition::Fading => Color::Yellow,
                LinkCondition::Down => Color::Red,
            };
            (text::link_cells(link).to_vec(), view.style(colour))
        });
        LINKS.draw(frame, links, " links ".to_owned(), rows);
        frame.render_widget(Paragraph::new(remarks), notes);
        let mut sorted: Vec<&ConnectionStatus> = self.connections.iter().collect();
        view.sort_key.sort(&mut sorted);
        let title = format!(" {} connections, by {} ", self.connections_in_all, view.sort_key.name());
        let shown = view.shown(sorted);
        let rows = shown.iter().map(|one| (text::connection_cells(one).to_vec(), Style::new()));
        CONNECTIONS.draw(frame, connections, title, rows);
        frame.render_widget(Paragraph::new(KEYS), foot);
    }
}

impl SortBy {
    fn sort(self, connections: &mut [&ConnectionStatus]) {
        let number = |value: Option<f64>| value.unwrap_or(f64::INFINITY);
        connections.sort_by(|a, b| match self {
            Self::Idle => number(a.idle_s).total_cmp(&number(b.idle_s)),
            Self::RoundTrip => number(b.round_trip_ms).total_cmp(&number(a.round_trip_ms)),
            Self::Received => b.bytes_received.cmp(&a.bytes_received),
            Self::Sent => b.bytes_sent.cmp(&a.bytes_sent),
            Self::Actions => b.actions.cmp(&a.actions),
        });
    }
}

impl SortKey for SortBy {
    const ALL: &'static [Self] = &[Self::Idle, Self::Received, Self::Sent, Self::RoundTrip, Self::Actions];

    fn name(self) -> &'static str {
        match self {
            Self::Idle => "last activity",
            Self::Received => "bytes in",
            Self::Sent => "bytes out",
            Self::RoundTrip => "round trip",
            Self::Actions => "actions",
        }
    }
}

const LINKS: Columns<'_> = Columns {
    names: &text::LINK_COLUMNS,
    widths: &[12, 24, 8, 8, 8, 7, 6, 6, 6, 6, 8],
    given_up: &text::LINKS_GIVEN_UP,
};

/// Addresses and the last action get the remaining width.
const CONNECTIONS: Columns<'_> = Columns {
    names: &text::CONNECTION_COLUMNS,
    widths: &[8, 21, 21, 12, 6, 6, 6, 6, 6, 20],
    given_up: &text::CONNECTIONS_GIVEN_UP,
};

#[cfg(test)]
mod tests {
    use holdover_agent::path_engine::Counters;
    use holdover_agent::status::UserTimeoutStatus;
    use ratatui::crossterm::event::KeyCode;

    use super::*;
    use crate::top::Screen;
    use crate::top::drawn::lines as drawn;

    fn connection(remote: &str, bytes_received: u64, idle_s: f64) -> ConnectionStatus {
        ConnectionStatus {
            interface: "wlan0".to_owned(),
            local: "192.0.2.7:1024".parse().unwrap(),
            remote: remote.parse().unwrap(),
            process: Some("ssh".to_owned()),
            container: None,
            bytes_sent: 0,
            bytes_received,
            idle_s: Some(idle_s),
            round_trip_ms: Some(52.0),
            held_bytes: 0,
            rto_ms: None,
            backoff: None,
            user_timeout: None,
            left_alone: false,
            actions: 1,
            last_action: Some("hold_back: released".to_owned()),
            saved_s: Some(0.5),
        }
    }

    fn screen() -> Screen<Status> {
        Screen::new(Status {
            version: "0.1.0".to_owned(),
            running_s: 60.0,
            dry_run: false,
            links: Vec::new(),
            connections: vec![connection("198.51.100.1:22", 10, 1.0), connection("198.51.100.2:443", 5_000_000, 9.0)],
            connections_in_all: 2,
            counters: Counters::default(),
            user_timeouts: UserTimeoutStatus::default(),
            containers: None,
        })
    }

    fn order(lines: &[String]) -> Vec<usize> {
        ["198.51.100.1:22", "198.51.100.2:443"]
            .map(|remote| lines.iter().position(|line| line.contains(remote)).unwrap())
            .to_vec()
    }

    #[test]
    fn connections_are_sorted_by_what_is_said() {
        let mut screen = screen();
        let by_idle = order(&drawn(&mut screen, 140, 24));
        assert!(by_idle[0] < by_idle[1]);
        screen.press(KeyCode::Char('s').into());
        let lines = drawn(&mut screen, 140, 24);
        assert!(
            order(&lines)[0] > order(&lines)[1] && lines.iter().any(|line| line.contains("by bytes in")),
            "{lines:#?}"
        );
    }

    #[test]
    fn columns_give_way_one_by_one() {
        let mut screen = screen();
        let has =
            |lines: &[String], name: &str| lines.iter().any(|line| line.split_whitespace().any(|word| word == name));
        for (width, there, gone) in [
            (200, &["LOCAL", "HELD", "MOVED", "ACTION"][..], &[][..]),
            (80, &["REMOTE", "PROGRAM", "RTT", "ACTION", "WOKEN", "SAVED"], &["LOCAL", "HELD", "MOVED"]),
        ] {
            let lines = drawn(&mut screen, width, 24);
            assert!(there.iter().all(|name| has(&lines, name)), "{lines:#?}");
            assert!(!gone.iter().any(|name| has(&lines, name)), "{lines:#?}");
            assert!(has(&lines, "198.51.100.2:443"), "{lines:#?}");
        }
    }

    #[test]
    fn it_fits_into_any_terminal_and_scrolls_to_the_end() {
        let mut screen = screen();
        for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
            drawn(&mut screen, width, height);
        }
        for _ in 0..5 {
            screen.press(KeyCode::PageDown.into());
        }
        let lines = drawn(&mut screen, 140, 24);
        assert!(lines.iter().any(|line| line.contains("198.51.100.2:443")), "{lines:#?}");
    }
}
