//! `holdover agent top`: links above, connections below, once a second.

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use holdover_agent::control::Client;
use holdover_agent::link_watch::LinkState;
use holdover_agent::status::{ConnectionStatus, LinkStatus, Status};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table};

use super::text;
use crate::command_support::{print_error, with_causes};

/// How often the agent is asked.
const EVERY: Duration = Duration::from_secs(1);

/// What connections are sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SortBy {
    Idle,
    Received,
    Sent,
    RoundTrip,
    Actions,
}

/// What is on the screen.
struct Screen {
    status: Result<Status, String>,
    sort_by: SortBy,
    is_reversed: bool,
    /// The first connection that is shown.
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
        print_error(&"top is for terminals; holdover agent status prints the same once");
        return ExitCode::FAILURE;
    }
    // An agent that is not there is said in a line, not on a screen.
    let status = match Client::status(socket) {
        Ok(status) => status,
        Err(error) => {
            print_error(&with_causes(&error));
            return ExitCode::FAILURE;
        }
    };
    let mut screen = Screen::new(status);
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

impl Screen {
    fn new(status: Status) -> Self {
        Self {
            status: Ok(status),
            sort_by: SortBy::Idle,
            is_reversed: false,
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
                self.status = Client::status(socket).map_err(|error| with_causes(&error));
            }
        }
    }

    fn press(&mut self, key: KeyEvent) -> Step {
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Step::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Step::Quit,
            KeyCode::Char('s') => self.sort_by = self.sort_by.next(),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
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
        let status = match &self.status {
            Ok(status) => status,
            Err(error) => {
                let lines = vec![Line::from(error.as_str()), Line::from("trying again; q quits")];
                frame.render_widget(Paragraph::new(lines), frame.area());
                return;
            }
        };
        let remarks: Vec<Line<'_>> = status.links.iter().flat_map(text::link_remarks).map(Line::from).collect();
        let links_height = u16::try_from(status.links.len()).unwrap_or(u16::MAX).saturating_add(3).min(12);
        let [head, links, notes, connections, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(links_height),
            Constraint::Length(u16::try_from(remarks.len()).unwrap_or(4).min(4)),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(format!("holdover {}", text::summary(status))), head);
        self.draw_links(frame, links, &status.links);
        frame.render_widget(Paragraph::new(remarks), notes);
        let mut shown: Vec<&ConnectionStatus> = status.connections.iter().collect();
        self.sort(&mut shown);
        self.offset = self.offset.min(shown.len().saturating_sub(1));
        let title = format!(" {} connections, by {} ", status.connections_in_all, self.sort_by.name());
        Self::draw_connections(frame, connections, &shown[self.offset.min(shown.len())..], title);
        frame.render_widget(Paragraph::new("s sort   r reverse   up/down scroll   q quit"), foot);
    }

    fn draw_links(&self, frame: &mut Frame<'_>, area: Rect, links: &[LinkStatus]) {
        let rows = links.iter().map(|link| {
            let colour = match link.state {
                LinkState::Up => Color::Green,
                LinkState::Fading => Color::Yellow,
                LinkState::Down => Color::Red,
            };
            let style = if self.is_colourful { Style::new().fg(colour) } else { Style::new() };
            (text::link_cells(link).to_vec(), style)
        });
        let columns = Columns { names: &text::LINK_COLUMNS, widths: &LINK_WIDTHS, given_up: &LINKS_GIVE_UP };
        let table = columns.table(area.width, rows);
        frame.render_widget(table.block(Block::new().borders(Borders::TOP).title(" links ")), area);
    }

    fn draw_connections(frame: &mut Frame<'_>, area: Rect, shown: &[&ConnectionStatus], title: String) {
        let room = usize::from(area.height);
        let rows = shown.iter().take(room).map(|one| (text::connection_cells(one).to_vec(), Style::new()));
        let columns =
            Columns { names: &text::CONNECTION_COLUMNS, widths: &CONNECTION_WIDTHS, given_up: &CONNECTIONS_GIVE_UP };
        let table = columns.table(area.width, rows);
        frame.render_widget(table.block(Block::new().borders(Borders::TOP).title(title)), area);
    }

    fn sort(&self, connections: &mut [&ConnectionStatus]) {
        let number = |value: Option<f64>| value.unwrap_or(f64::INFINITY);
        connections.sort_by(|a, b| match self.sort_by {
            SortBy::Idle => number(a.idle_s).total_cmp(&number(b.idle_s)),
            SortBy::RoundTrip => number(b.round_trip_ms).total_cmp(&number(a.round_trip_ms)),
            SortBy::Received => b.bytes_received.cmp(&a.bytes_received),
            SortBy::Sent => b.bytes_sent.cmp(&a.bytes_sent),
            SortBy::Actions => b.actions.cmp(&a.actions),
        });
        if self.is_reversed {
            connections.reverse();
        }
    }
}

impl SortBy {
    fn next(self) -> Self {
        match self {
            Self::Idle => Self::Received,
            Self::Received => Self::Sent,
            Self::Sent => Self::RoundTrip,
            Self::RoundTrip => Self::Actions,
            Self::Actions => Self::Idle,
        }
    }

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

/// In characters.
const LINK_WIDTHS: [u16; 11] = [12, 24, 8, 8, 8, 7, 6, 6, 6, 6, 8];

/// MOVED and WARNED, then DOWN and SINCE.
const LINKS_GIVE_UP: [usize; 4] = [6, 5, 4, 2];

/// In characters. Addresses and the last action get what is left.
const CONNECTION_WIDTHS: [u16; 10] = [8, 21, 21, 12, 6, 6, 6, 6, 6, 20];

/// LOCAL, HELD, OUT and IN, then LINK and PROGRAM.
const CONNECTIONS_GIVE_UP: [usize; 6] = [1, 8, 4, 5, 0, 3];

/// The columns of a table, of which some give way where the terminal is narrow.
struct Columns<'a> {
    names: &'a [&'static str],
    widths: &'a [u16],
    /// The numbers of those that give way, first the first.
    given_up: &'a [usize],
}

impl Columns<'_> {
    /// The numbers of those for which there is room.
    fn shown(&self, room: u16) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..self.names.len()).collect();
        let needed = |shown: &[usize]| shown.iter().map(|&column| self.widths[column] + 1).sum::<u16>();
        for given_up in self.given_up {
            if needed(&shown) <= room.saturating_add(1) {
                break;
            }
            shown.retain(|column| column != given_up);
        }
        shown
    }

    fn table<'r>(&self, room: u16, rows: impl Iterator<Item = (Vec<String>, Style)>) -> Table<'r> {
        let shown = self.shown(room);
        let rows = rows.map(|(mut cells, style)| {
            let cells = shown.iter().map(|&column| std::mem::take(&mut cells[column])).collect::<Vec<_>>();
            Row::new(cells).style(style)
        });
        let widths = shown.iter().map(|&column| match self.widths[column] {
            wide if wide >= WIDE => Constraint::Min(wide),
            narrow => Constraint::Length(narrow),
        });
        let names = shown.iter().map(|&column| self.names[column]).collect::<Vec<_>>();
        Table::new(rows.collect::<Vec<_>>(), widths)
            .header(Row::new(names).style(Style::new().add_modifier(Modifier::BOLD)))
    }
}

/// Columns of so many characters get more where there is room.
const WIDE: u16 = 20;

#[cfg(test)]
mod tests {
    use holdover_agent::path_engine::Counters;
    use holdover_agent::status::UserTimeoutStatus;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn connection(remote: &str, bytes_received: u64, idle_s: f64) -> ConnectionStatus {
        ConnectionStatus {
            interface: "wlan0".to_owned(),
            local: "192.0.2.7:1024".parse().unwrap(),
            remote: remote.parse().unwrap(),
            process: Some("ssh".to_owned()),
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

    fn screen() -> Screen {
        Screen::new(Status {
            version: "0.1.0".to_owned(),
            running_s: 60.0,
            dry_run: false,
            links: Vec::new(),
            connections: vec![connection("198.51.100.1:22", 10, 1.0), connection("198.51.100.2:443", 5_000_000, 9.0)],
            connections_in_all: 2,
            counters: Counters::default(),
            user_timeouts: UserTimeoutStatus::default(),
        })
    }

    fn drawn(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let cell = |x, y| buffer.cell((x, y)).map_or(" ", |cell| cell.symbol());
        (0..height).map(|y| (0..width).map(|x| cell(x, y)).collect::<String>()).collect()
    }

    fn order(lines: &[String]) -> Vec<usize> {
        ["198.51.100.1:22", "198.51.100.2:443"]
            .map(|remote| lines.iter().position(|line| line.contains(remote)).unwrap())
            .to_vec()
    }

    #[test]
    fn keys_sort_and_quit() {
        let mut screen = screen();
        let by_idle = order(&drawn(&mut screen, 140, 24));
        assert!(by_idle[0] < by_idle[1]);
        assert_eq!(screen.press(KeyCode::Char('s').into()), Step::Stay);
        let lines = drawn(&mut screen, 140, 24);
        assert!(
            order(&lines)[0] > order(&lines)[1] && lines.iter().any(|line| line.contains("by bytes in")),
            "{lines:#?}"
        );
        screen.press(KeyCode::Char('r').into());
        let reversed = order(&drawn(&mut screen, 140, 24));
        assert!(reversed[0] < reversed[1]);
        assert_eq!(screen.press(KeyCode::Char('q').into()), Step::Quit);
        assert_eq!(screen.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Step::Quit);
        assert_eq!(screen.press(KeyCode::Char('c').into()), Step::Stay);
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
        screen.status = Err("gone".to_owned());
        assert!(drawn(&mut screen, 80, 24)[0].starts_with("gone"));
    }
}
