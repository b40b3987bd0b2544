//! `holdover gateway top`: the gateway above, its mobile hosts below, once a second.

use std::path::Path;
use std::process::ExitCode;

use holdover_gatewayd::control::{ClientError, Request, Response, ask, status};
use holdover_gatewayd::status::{MobileLine, Status};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Color;
use ratatui::widgets::Paragraph;

use super::text;
use crate::command_support::with_causes;
use crate::top::{self, Columns, KEYS, SortKey, Top, View};

/// The sort keys of mobile hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SortBy {
    /// Those that have been away for longest come first, then those with the most waiting bytes.
    Away,
    Waiting,
    Silent,
    Address,
}

/// The gateway and its mobile hosts.
struct Gateway {
    status: Status,
    mobiles: Vec<MobileLine>,
}

pub(super) fn run(socket: &Path) -> ExitCode {
    top::run("holdover gateway status and mobiles print the same once", || {
        look(socket).map_err(|error| with_causes(&error))
    })
}

fn look(socket: &Path) -> Result<Gateway, ClientError> {
    let status = status(socket)?;
    let Response::Mobiles { mobiles } = ask(socket, &Request::Mobiles)? else {
        return Err(ClientError::unexpected::<Response>());
    };
    Ok(Gateway { status, mobiles })
}

impl Top for Gateway {
    type SortKey = SortBy;

    fn draw(&self, view: &mut View<SortBy>, frame: &mut Frame<'_>) {
        let summary = text::status(&self.status);
        let height = u16::try_from(summary.lines().count()).unwrap_or(u16::MAX);
        let areas = Layout::vertical([Constraint::Length(height), Constraint::Min(3), Constraint::Length(1)]);
        let [head, below, foot] = areas.areas(frame.area());
        frame.render_widget(Paragraph::new(summary), head);
        let mut sorted: Vec<&MobileLine> = self.mobiles.iter().collect();
        view.sort_key.sort(&mut sorted);
        let title = format!(" {} mobile hosts, by {} ", sorted.len(), view.sort_key.name());
        let shown = view.shown(sorted);
        let rows = shown.iter().map(|mobile| {
            let colour = match mobile.standing.as_str() {
                "away" => Color::Red,
                "fading" => Color::Yellow,
                _ => Color::Green,
            };
            (text::mobile_cells(mobile).to_vec(), view.style(colour))
        });
        // Addresses are never cut short.
        let address = self.mobiles.iter().map(|mobile| mobile.name().len()).max().unwrap_or(0).max(7);
        let widths = [u16::try_from(address).unwrap_or(u16::MAX), 8, 8, 8, 8, 9, 7, 8, 20];
        let columns = Columns { names: &text::MOBILE_COLUMNS, widths: &widths, given_up: &text::MOBILES_GIVEN_UP };
        columns.draw(frame, below, title, rows);
        frame.render_widget(Paragraph::new(KEYS), foot);
    }
}

impl SortKey for SortBy {
    const ALL: &'static [Self] = &[Self::Away, Self::Waiting, Self::Silent, Self::Address];

    fn name(self) -> &'static str {
        match self {
            Self::Away => "absence",
            Self::Waiting => "what waits",
            Self::Silent => "silence",
            Self::Address => "address",
        }
    }
}

impl SortBy {
    fn sort(self, mobiles: &mut [&MobileLine]) {
        let number = |value: Option<f64>| value.unwrap_or(-1.0);
        mobiles.sort_by(|a, b| match self {
            Self::Away => number(b.away_s).total_cmp(&number(a.away_s)).then(b.waiting_bytes.cmp(&a.waiting_bytes)),
            Self::Waiting => b.waiting_bytes.cmp(&a.waiting_bytes),
            Self::Silent => number(b.silent_s).total_cmp(&number(a.silent_s)),
            Self::Address => a.address.cmp(&b.address),
        });
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyCode;

    use super::*;
    use crate::top::Screen;
    use crate::top::drawn::lines as drawn;

    fn mobile(last: u8, standing: &str, away_s: Option<f64>, waiting_bytes: u64) -> MobileLine {
        MobileLine {
            address: [10, 0, 1, last].into(),
            prefix: None,
            standing: standing.to_owned(),
            away_by: Vec::new(),
            reports: Vec::new(),
            away_s,
            diverts: away_s.is_some(),
            silent_s: Some(f64::from(last)),
            answers_within_s: None,
            mac: None,
            waiting: waiting_bytes / 1000,
            waiting_bytes,
            buffer: Default::default(),
            owner: None,
            epoch: None,
        }
    }

    fn screen() -> Screen<Gateway> {
        let status = serde_json::json!({
            "version": "0.1.0", "interface": "wlan0", "mode": "buffer", "attached_by": "tcx", "pinned": true,
            "taken_over": false, "running_s": 60.0, "draining": false, "mobiles": 3, "away": 1, "waiting": 5,
            "waiting_bytes": 5000, "path": holdover_gatewayd::path::PathCounters::default(),
            "buffer": holdover_gatewayd::status::Tally::default(),
            "reports": holdover_gatewayd::ReportCounters::default(),
            "unsendable": holdover_gatewayd::Unsendable::default(), "woken": holdover_gatewayd::Woken::default(),
        });
        let mobiles =
            vec![mobile(1, "present", None, 0), mobile(2, "away", Some(3.0), 5000), mobile(3, "present", None, 0)];
        Screen::new(Gateway { status: serde_json::from_value(status).unwrap(), mobiles })
    }

    fn place_of(lines: &[String], address: &str) -> usize {
        lines.iter().position(|line| line.starts_with(address)).unwrap_or_else(|| panic!("{address}: {lines:#?}"))
    }

    #[test]
    fn those_away_come_first_and_keys_sort_and_scroll() {
        let mut screen = screen();
        let lines = drawn(&mut screen, 120, 24);
        assert!(place_of(&lines, "10.0.1.2") < place_of(&lines, "10.0.1.1"), "{lines:#?}");
        assert!(lines[0].contains("gateway 0.1.0 on wlan0"), "{lines:#?}");
        for _ in 0..2 {
            screen.press(KeyCode::Char('s').into());
        }
        let lines = drawn(&mut screen, 120, 24);
        assert!(place_of(&lines, "10.0.1.3") < place_of(&lines, "10.0.1.2"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("3 mobile hosts, by silence")), "{lines:#?}");
        screen.press(KeyCode::PageDown.into());
        let lines = drawn(&mut screen, 120, 24);
        assert!(!lines.iter().any(|line| line.starts_with("10.0.1.3")), "{lines:#?}");
    }

    #[test]
    fn it_fits_into_any_terminal() {
        let mut screen = screen();
        for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
            drawn(&mut screen, width, height);
        }
    }
}
