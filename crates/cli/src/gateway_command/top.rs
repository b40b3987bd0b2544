//! `holdover gateway top`: the gateway above, its mobile hosts below, once a second.

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use holdover_gatewayd::control::{ClientError, Request, Response, ask};
use holdover_gatewayd::status::{MobileLine, Status};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph};

use super::text;
use crate::command_support::{print_error, with_causes};

/// How often the gateway is asked.
const EVERY: Duration = Duration::from_secs(1);

/// What mobile hosts are sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SortBy {
    /// Those that have been away for longest, then those for which most waits.
    Away,
    Waiting,
    Silent,
    Address,
}

/// What is on the screen.
struct Screen {
    answer: Result<(Status, Vec<MobileLine>), String>,
    sort_by: SortBy,
    /// The first mobile host that is shown.
    offset: usize,
    is_colourful: bool,
}

/// What a key does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Stay,
    Quit,
}

pub(super) fn run(socket: &Path) -> ExitCode {
    if !io::stdout().is_terminal() {
        print_error(&"top is for terminals; holdover gateway status and mobiles print the same once");
        return ExitCode::FAILURE;
    }
    // A gateway that is not there is said in a line, not on a screen.
    let answer = match look(socket) {
        Ok(answer) => answer,
        Err(error) => {
            print_error(&with_causes(&error));
            return ExitCode::FAILURE;
        }
    };
    let mut screen = Screen::new(answer);
    // It leaves the terminal as it was also when something panics.
    let mut terminal = ratatui::init();
    let result = screen.show(&mut terminal, socket);
    ratatui::restore();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}

fn look(socket: &Path) -> Result<(Status, Vec<MobileLine>), ClientError> {
    let other = || ClientError::Refused("the gateway answered something else: is it of another version?".to_owned());
    let Response::Status(status) = ask(socket, &Request::Status)? else { return Err(other()) };
    let Response::Mobiles { mobiles } = ask(socket, &Request::Mobiles)? else { return Err(other()) };
    Ok((*status, mobiles))
}

impl Screen {
    fn new(answer: (Status, Vec<MobileLine>)) -> Self {
        Self {
            answer: Ok(answer),
            sort_by: SortBy::Away,
            offset: 0,
            is_colourful: std::env::var_os("NO_COLOR").is_none(),
        }
    }

    fn show(&mut self, terminal: &mut ratatui::DefaultTerminal, socket: &Path) -> io::Result<()> {
        let mut asked_at = Instant::now();
        loop {
            terminal.draw(|frame| self.draw(frame))?;
            let patience = EVERY.saturating_sub(asked_at.elapsed());
            if event::poll(patience)? {
                if let Event::Key(key) = event::read()?
                    && key.kind != KeyEventKind::Release
                    && self.press(key) == Step::Quit
                {
                    return Ok(());
                }
            } else {
                asked_at = Instant::now();
                self.answer = look(socket).map_err(|error| with_causes(&error));
            }
        }
    }

    fn press(&mut self, key: KeyEvent) -> Step {
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Step::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Step::Quit,
            KeyCode::Char('s') => self.sort_by = self.sort_by.next(),
            KeyCode::Down | KeyCode::Char('j') => self.offset += 1,
            KeyCode::Up | KeyCode::Char('k') => self.offset = self.offset.saturating_sub(1),
            KeyCode::PageDown => self.offset += 20,
            KeyCode::PageUp => self.offset = self.offset.saturating_sub(20),
            KeyCode::Home => self.offset = 0,
            _ => {}
        }
        Step::Stay
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let (status, mobiles) = match &self.answer {
            Ok(answer) => answer,
            Err(error) => {
                let lines = vec![Line::from(error.as_str()), Line::from("trying again; q quits")];
                frame.render_widget(Paragraph::new(lines), frame.area());
                return;
            }
        };
        let summary = text::status(status);
        let height = u16::try_from(summary.lines().count()).unwrap_or(u16::MAX);
        let areas = Layout::vertical([Constraint::Length(height), Constraint::Min(3), Constraint::Length(1)]);
        let [head, below, foot] = areas.areas(frame.area());
        frame.render_widget(Paragraph::new(summary), head);
        let mut shown: Vec<MobileLine> = mobiles.clone();
        self.sort_by.sort(&mut shown);
        self.offset = self.offset.min(shown.len().saturating_sub(1));
        let table = text::mobiles(&shown);
        let rows = table.lines().skip(1).zip(&shown).skip(self.offset).map(|(line, mobile)| {
            let colour = match mobile.standing.as_str() {
                "away" => Color::Red,
                "fading" => Color::Yellow,
                _ => Color::Green,
            };
            Line::styled(line.to_owned(), if self.is_colourful { Style::new().fg(colour) } else { Style::new() })
        });
        let names = table.lines().next().unwrap_or_default().to_owned();
        let names = Line::styled(names, Style::new().add_modifier(Modifier::BOLD));
        let lines: Vec<Line<'_>> = std::iter::once(names).chain(rows).take(usize::from(below.height)).collect();
        let title = format!(" {} mobile hosts, by {} ", shown.len(), self.sort_by.name());
        frame.render_widget(Paragraph::new(lines).block(Block::new().borders(Borders::TOP).title(title)), below);
        frame.render_widget(Paragraph::new("s sort   up/down scroll   q quit"), foot);
    }
}

impl SortBy {
    fn next(self) -> Self {
        match self {
            Self::Away => Self::Waiting,
            Self::Waiting => Self::Silent,
            Self::Silent => Self::Address,
            Self::Address => Self::Away,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Away => "absence",
            Self::Waiting => "what waits",
            Self::Silent => "silence",
            Self::Address => "address",
        }
    }

    fn sort(self, mobiles: &mut [MobileLine]) {
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
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn mobile(last: u8, standing: &str, away_s: Option<f64>, waiting_bytes: u64) -> MobileLine {
        MobileLine {
            address: [10, 0, 1, last].into(),
            standing: standing.to_owned(),
            away_by: Vec::new(),
            away_s,
            diverts: away_s.is_some(),
            silent_s: Some(f64::from(last)),
            mac: None,
            waiting: waiting_bytes / 1000,
            waiting_bytes,
            buffer: Default::default(),
        }
    }

    fn screen() -> Screen {
        let status = serde_json::json!({
            "version": "0.1.0", "interface": "wlan0", "mode": "buffer", "attached_by": "tcx", "pinned": true,
            "taken_over": false, "running_s": 60.0, "draining": false, "mobiles": 3, "away": 1, "waiting": 5,
            "waiting_bytes": 5000, "path": holdover_gatewayd::path::PathCounters::default(),
            "buffer": holdover_gatewayd::status::BufferCounters::default(),
            "reports": holdover_gatewayd::ReportCounters::default(),
            "unsendable": holdover_gatewayd::Unsendable::default(), "woken": holdover_gatewayd::Woken::default(),
        });
        let mobiles =
            vec![mobile(1, "present", None, 0), mobile(2, "away", Some(3.0), 5000), mobile(3, "present", None, 0)];
        Screen::new((serde_json::from_value(status).unwrap(), mobiles))
    }

    fn drawn(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let cell = |x, y| buffer.cell((x, y)).map_or(" ", |cell| cell.symbol());
        (0..height).map(|y| (0..width).map(|x| cell(x, y)).collect::<String>()).collect()
    }

    fn place_of(lines: &[String], address: &str) -> usize {
        lines.iter().position(|line| line.starts_with(address)).unwrap_or_else(|| panic!("{address}: {lines:#?}"))
    }

    #[test]
    fn those_away_come_first_and_keys_sort_scroll_and_quit() {
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
        assert_eq!(screen.press(KeyCode::Char('c').into()), Step::Stay);
        assert_eq!(screen.press(KeyCode::Char('q').into()), Step::Quit);
    }

    #[test]
    fn it_fits_into_any_terminal_and_says_when_the_gateway_is_gone() {
        let mut screen = screen();
        for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
            drawn(&mut screen, width, height);
        }
        screen.answer = Err("gone".to_owned());
        assert!(drawn(&mut screen, 80, 24)[0].starts_with("gone"));
    }
}
