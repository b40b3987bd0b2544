//! Full-screen views of a daemon: what `holdover agent top`, `gateway top` and `hip top` have in common. They query the daemon once a
//! second; keys sort and scroll the rows of a table, and quit.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table};

use crate::command_support::print_error;

/// The interval between queries to the daemon.
const EVERY: Duration = Duration::from_secs(1);

/// The rows of a page.
const PAGE: usize = 20;

/// A daemon's answer, and how it is drawn.
pub(crate) trait Top {
    /// The sort keys of the rows.
    type SortKey: SortKey;

    /// Draws it. The rows are sorted and scrolled as `view` says.
    fn draw(&self, view: &mut View<Self::SortKey>, frame: &mut Frame<'_>);
}

/// A key by which rows are sorted.
pub(crate) trait SortKey: Copy + PartialEq + 'static {
    /// The keys. The first one is the default, and a key selects the next.
    const ALL: &'static [Self];

    /// The name in titles: `by ...`.
    fn name(self) -> &'static str;
}

/// The keys, for the last line.
pub(crate) const KEYS: &str = "s sort   r reverse   up/down scroll   q quit";

/// How the rows are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<K> {
    pub(crate) sort_key: K,
    is_reversed: bool,
    /// The first row that is shown.
    offset: usize,
    is_colourful: bool,
}

/// The state of the screen.
pub(crate) struct Screen<T: Top> {
    pub(crate) answer: Result<T, String>,
    view: View<T::SortKey>,
}

/// The effect of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Stay,
    Quit,
}

/// Shows a daemon until the user quits. Without a terminal it fails with the text `instead`, which names another command.
pub(crate) fn run<T: Top>(instead: &str, mut ask: impl FnMut() -> Result<T, String>) -> ExitCode {
    if !io::stdout().is_terminal() {
        print_error(&format_args!("top is for terminals; {instead}"));
        return ExitCode::FAILURE;
    }
    // An error is printed as a line, not on the full screen.
    let answer = match ask() {
        Ok(answer) => answer,
        Err(error) => {
            print_error(&error);
            return ExitCode::FAILURE;
        }
    };
    let mut screen = Screen::new(answer);
    // It leaves the terminal as it was also when something panics.
    let mut terminal = ratatui::init();
    let result = screen.show(&mut terminal, ask);
    ratatui::restore();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}

impl<T: Top> Screen<T> {
    pub(crate) fn new(answer: T) -> Self {
        let is_colourful = std::env::var_os("NO_COLOR").is_none();
        let view = View { sort_key: T::SortKey::ALL[0], is_reversed: false, offset: 0, is_colourful };
        Self { answer: Ok(answer), view }
    }

    fn show(
        &mut self,
        terminal: &mut ratatui::DefaultTerminal,
        mut ask: impl FnMut() -> Result<T, String>,
    ) -> io::Result<()> {
        let mut asked_at = Instant::now();
        loop {
            terminal.draw(|frame| self.draw(frame))?;
            if event::poll(EVERY.saturating_sub(asked_at.elapsed()))? {
                if let Event::Key(key) = event::read()?
                    && key.kind != KeyEventKind::Release
                    && self.press(key) == Step::Quit
                {
                    return Ok(());
                }
            } else {
                asked_at = Instant::now();
                self.answer = ask();
            }
        }
    }

    pub(crate) fn press(&mut self, key: KeyEvent) -> Step {
        let view = &mut self.view;
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Step::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Step::Quit,
            KeyCode::Char('s') => view.sort_key = next(view.sort_key),
            KeyCode::Char('r') => view.is_reversed = !view.is_reversed,
            KeyCode::Down | KeyCode::Char('j') => view.offset += 1,
            KeyCode::Up | KeyCode::Char('k') => view.offset = view.offset.saturating_sub(1),
            KeyCode::PageDown => view.offset += PAGE,
            KeyCode::PageUp => view.offset = view.offset.saturating_sub(PAGE),
            KeyCode::Home => view.offset = 0,
            _ => {}
        }
        Step::Stay
    }

    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>) {
        match &self.answer {
            Ok(answer) => answer.draw(&mut self.view, frame),
            Err(error) => {
                let lines = vec![Line::from(error.as_str()), Line::from("trying again; q quits")];
                frame.render_widget(Paragraph::new(lines), frame.area());
            }
        }
    }
}

fn next<K: SortKey>(key: K) -> K {
    let place = K::ALL.iter().position(|&one| one == key).unwrap_or(0);
    K::ALL[(place + 1) % K::ALL.len()]
}

impl<K: SortKey> View<K> {
    /// The rows that are shown, of all in order.
    pub(crate) fn shown<'r, R>(&mut self, mut sorted: Vec<&'r R>) -> Vec<&'r R> {
        if self.is_reversed {
            sorted.reverse();
        }
        self.offset = self.offset.min(sorted.len().saturating_sub(1));
        sorted.split_off(self.offset.min(sorted.len()))
    }

    /// Text in a colour, unless the user wants none.
    pub(crate) fn style(&self, colour: Color) -> Style {
        if self.is_colourful { Style::new().fg(colour) } else { Style::new() }
    }
}

/// The columns of a table; some are left out on a narrow terminal.
pub(crate) struct Columns<'a> {
    pub(crate) names: &'a [&'static str],
    /// In characters.
    pub(crate) widths: &'a [u16],
    /// The numbers of the columns to drop on a narrow terminal, in this order.
    pub(crate) given_up: &'a [usize],
}

/// Columns of this width grow where there is room.
const WIDE: u16 = 20;

impl Columns<'_> {
    /// Draws a table below a title, with as many of the rows as there is room for.
    pub(crate) fn draw(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        title: String,
        rows: impl Iterator<Item = (Vec<String>, Style)>,
    ) {
        let table = self.table(area.width, rows.take(area.height.into()));
        frame.render_widget(table.block(Block::new().borders(Borders::TOP).title(title)), area);
    }

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

/// For tests of the drawing.
#[cfg(test)]
pub(crate) mod drawn {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::{Screen, Top};

    /// The lines of a screen of this size.
    pub(crate) fn lines<T: Top>(screen: &mut Screen<T>, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let cell = |x, y| buffer.cell((x, y)).map_or(" ", |cell| cell.symbol());
        (0..height).map(|y| (0..width).map(|x| cell(x, y)).collect::<String>()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers, a line each.
    struct Numbers(Vec<u32>);

    #[derive(Clone, Copy, PartialEq)]
    enum By {
        Rise,
        Fall,
    }

    impl SortKey for By {
        const ALL: &'static [Self] = &[Self::Rise, Self::Fall];

        fn name(self) -> &'static str {
            if self == Self::Rise { "rise" } else { "fall" }
        }
    }

    impl Top for Numbers {
        type SortKey = By;

        fn draw(&self, view: &mut View<By>, frame: &mut Frame<'_>) {
            let mut rows: Vec<&u32> = self.0.iter().collect();
            rows.sort_by(|a, b| if view.sort_key == By::Rise { a.cmp(b) } else { b.cmp(a) });
            let lines: Vec<Line<'_>> = view.shown(rows).iter().map(|row| Line::from(row.to_string())).collect();
            frame.render_widget(Paragraph::new(lines), frame.area());
        }
    }

    fn shown(screen: &mut Screen<Numbers>) -> String {
        drawn::lines(screen, 4, 4).iter().map(|line| line.trim()).collect()
    }

    #[test]
    fn keys_sort_reverse_scroll_and_quit() {
        let mut screen = Screen::new(Numbers(vec![2, 1, 3]));
        assert_eq!(shown(&mut screen), "123");
        for (key, expected) in [
            (KeyCode::Char('s'), "321"),
            (KeyCode::Char('r'), "123"),
            (KeyCode::Char('j'), "23"),
            (KeyCode::PageDown, "3"),
            (KeyCode::Up, "23"),
            (KeyCode::Home, "123"),
            (KeyCode::Char('s'), "321"),
            (KeyCode::Char('c'), "321"),
        ] {
            assert_eq!((screen.press(key.into()), shown(&mut screen)), (Step::Stay, expected.to_owned()), "{key:?}");
        }
        for key in
            [KeyCode::Char('q').into(), KeyCode::Esc.into(), KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)]
        {
            assert_eq!(screen.press(key), Step::Quit, "{key:?}");
        }
    }

    #[test]
    fn a_daemon_that_is_gone_is_told() {
        let mut screen = Screen::new(Numbers(Vec::new()));
        assert_eq!(shown(&mut screen), "");
        screen.answer = Err("gone".to_owned());
        assert!(drawn::lines(&mut screen, 80, 24)[0].starts_with("gone"));
    }
}
