//! Tables for people, as wide as the terminal at most.

use crate::command_support::terminal_width;

/// How a table of columns with fixed names is laid out.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Layout<'a> {
    /// The numbers of the columns that a narrow terminal does without, in this order.
    pub(crate) given_up: &'a [usize],
    /// The numbers of the columns that are aligned on the right.
    pub(crate) right: &'a [usize],
    /// The last column has sentences: it is broken into lines, before columns are given up, as long as that leaves it some room.
    pub(crate) has_sentences: bool,
    /// The names of the columns are not printed above them.
    pub(crate) headless: bool,
}

/// A table of these columns.
pub(crate) fn columns<const N: usize>(names: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    laid_out(names, Layout::default(), rows)
}

/// A table of these columns; some are left out on a narrow terminal.
pub(crate) fn laid_out<const N: usize>(
    names: [&str; N],
    layout: Layout<'_>,
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let names = names.map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(names).chain(rows.map(Vec::from)).collect();
    within(&rows, layout, table_width())
}

/// A table whose first row has the names of its columns.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    within(rows, Layout::default(), table_width())
}

/// A text as lines that are as wide as the terminal at most.
pub(crate) fn paragraph(text: &str) -> String {
    wrap(text, table_width().unwrap_or(usize::MAX)).into_iter().map(|line| line + "\n").collect()
}

/// The greatest width of a table.
pub(crate) fn table_width() -> Option<usize> {
    // Unit tests compare whole tables, independent of the terminal.
    if cfg!(test) { None } else { terminal_width() }
}

/// The blanks between two columns.
const GAP: usize = 2;

/// Each column is as wide as its widest cell. A table that is wider than `limit` is broken within its last column, or loses columns, as `layout`
/// says, and a line below it names them. If that does not suffice, each row becomes a block with a line for each cell, and nothing is left out.
fn within(rows: &[Vec<String>], layout: Layout<'_>, limit: Option<usize>) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let printed = rows.get(usize::from(layout.headless)..).unwrap_or_default();
    let cells = |column: usize| printed.iter().filter_map(move |row| row.get(column));
    let width = |column: usize| cells(column).map(|cell| len(cell)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut shown: Vec<usize> = (0..count).collect();
    let mut given_up = layout.given_up.iter();
    let room = limit.unwrap_or(usize::MAX);
    loop {
        let lines: Vec<String> = printed.iter().map(|row| side_by_side(row, &shown, &widths, layout.right)).collect();
        let exceeded = limit.filter(|&limit| lines.iter().any(|line| len(line) > limit));
        let whole = match exceeded {
            None => Some(lines),
            Some(limit) if layout.has_sentences => broken(printed, &shown, &widths, layout.right, limit),
            Some(_) => None,
        };
        if let Some(lines) = whole {
            let missing = (0..count).filter(|column| !shown.contains(column)).filter_map(|column| rows[0].get(column));
            let missing: Vec<&str> = missing.map(String::as_str).collect();
            let note = format!("no room for {}", missing.join(", "));
            let note = if missing.is_empty() { Vec::new() } else { wrap(&note, room) };
            return lines.into_iter().chain(note).map(|line| line + "\n").collect();
        }
        match (given_up.next(), rows) {
            (Some(column), _) => shown.retain(|shown| shown != column),
            (None, [names, rows @ ..]) => return rows.iter().map(|row| block(names, row, room)).collect(),
            (None, []) => return String::new(),
        }
    }
}

/// A row as a line.
fn side_by_side(row: &[String], shown: &[usize], widths: &[usize], right: &[usize]) -> String {
    let cells = shown.iter().filter_map(|&column| {
        let (cell, width) = (row.get(column)?, widths[column]);
        Some(if right.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:width$}") })
    });
    cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned()
}

/// The rows with the last column broken into lines, so that none is wider than `limit`; `None` if it has no room for that.
fn broken(
    rows: &[Vec<String>],
    shown: &[usize],
    widths: &[usize],
    right: &[usize],
    limit: usize,
) -> Option<Vec<String>> {
    const LEAST_ROOM: usize = 24;
    let (&last, others) = shown.split_last()?;
    let beside: usize = others.iter().map(|&column| widths[column] + GAP).sum();
    let room = limit.checked_sub(beside).filter(|&room| room >= LEAST_ROOM)?;
    let mut lines = Vec::with_capacity(rows.len());
    for row in rows {
        let mut line = row.clone();
        for part in wrap(row.get(last).map_or("", String::as_str), room) {
            if let Some(cell) = line.get_mut(last) {
                *cell = part;
            }
            lines.push(side_by_side(&line, shown, widths, right));
            line = vec![String::new(); row.len()];
        }
    }
    Some(lines)
}

/// A row as a block of lines of at most `limit` characters, unless `limit` is too small for any: the first cell, and below it the others,
/// each with the name of its column.
fn block(names: &[String], row: &[String], limit: usize) -> String {
    const INDENT: usize = 2;
    /// Less room than this beside a name is not used.
    const LEAST_ROOM: usize = 12;
    let ([first, names @ ..], [title, cells @ ..]) = (names, row) else { return String::new() };
    let title = if first.is_empty() { title.clone() } else { format!("{first}: {title}") };
    let mut lines = wrap(&title, limit);
    let width = names.iter().map(|name| len(name)).max().unwrap_or(0);
    let beside = INDENT + width + 2;
    for (name, cell) in names.iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
        if beside + len(cell).min(LEAST_ROOM) <= limit {
            for (number, part) in wrap(cell, limit - beside).into_iter().enumerate() {
                let name = if number == 0 { name.as_str() } else { "" };
                lines.push(format!("{:INDENT$}{name:width$}  {part}", ""));
            }
        } else {
            // The cell is below its name.
            for (indent, text) in [(INDENT, name), (2 * INDENT, cell)] {
                let parts = wrap(text, limit.saturating_sub(indent));
                lines.extend(parts.into_iter().map(|part| format!("{:indent$}{part}", "")));
            }
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Breaks a text into lines of at most `room` characters, at blanks where it has some.
fn wrap(text: &str, room: usize) -> Vec<String> {
    let room = room.max(1);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        let last = lines.last().map_or(0, |line| len(line));
        if last > 0 && last + 1 + word.len() > room {
            lines.push(String::new());
        }
        while word.len() > room {
            let rest = word.split_off(room);
            lines.last_mut().into_iter().for_each(|line| line.extend(&word));
            lines.push(String::new());
            word = rest;
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.extend(&word);
        }
    }
    lines
}

fn len(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        let rows = [
            ["link", "state", "since", "note"],
            ["wlan0", "up", "3 s", ""],
            ["eth0", "down", "12 s", "there is no carrier"],
        ];
        rows.map(|row| row.map(str::to_owned).to_vec()).to_vec()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "much longer", ""], ["\u{e4}\u{f6}\u{fc}", "b", "c"]].map(|row| row.map(str::to_owned));
        let text = columns(["one", "two", "three"], rows.into_iter());
        assert_eq!(text, "one  two          three\na    much longer\n\u{e4}\u{f6}\u{fc}  b            c\n");
    }

    #[test]
    fn a_table_that_is_too_wide_loses_columns_and_names_them() {
        let layout = Layout { given_up: &[2, 3], right: &[2], ..Layout::default() };
        let whole = "link   state  since  note\nwlan0  up       3 s\neth0   down    12 s  there is no carrier\n";
        assert_eq!(within(&rows(), layout, None), whole);
        assert_eq!(within(&rows(), layout, Some(40)), whole);
        let fewer = "link   state  note\nwlan0  up\neth0   down   there is no carrier\nno room for since\n";
        assert_eq!(within(&rows(), layout, Some(39)), fewer);
        let fewest = "link   state\nwlan0  up\neth0   down\nno room for since, note\n";
        assert_eq!(within(&rows(), layout, Some(32)), fewest);
    }

    #[test]
    fn a_table_that_is_too_wide_without_them_becomes_blocks() {
        let layout = Layout::default();
        let blocks = "link: wlan0\n  state  up\n  since  3 s\nlink: eth0\n  state  down\n  since  12 s\n";
        assert_eq!(
            within(&rows(), layout, Some(39)),
            format!("{blocks}  note   there is no carrier\n"),
            "nothing is left out"
        );
        assert_eq!(within(&rows(), layout, Some(22)), format!("{blocks}  note   there is no\n         carrier\n"));
        let narrow = within(&rows(), layout, Some(11));
        assert!(narrow.ends_with("  note\n    there\n    is no\n    carrier\n"), "{narrow}");
        let mut unnamed = rows();
        unnamed[0][0].clear();
        assert!(within(&unnamed, layout, Some(30)).starts_with("wlan0\n  state  up\n"));
        assert_eq!(within(&rows()[..1], layout, Some(3)), "", "no rows, no blocks");
        assert_eq!(within(&[], layout, Some(3)), "");
    }

    #[test]
    fn sentences_are_broken_within_the_last_column() {
        let mut rows = rows();
        rows[1][3] = "associated, and the signal is strong enough".to_owned();
        let layout = Layout { has_sentences: true, headless: true, given_up: &[2], right: &[] };
        let broken = "wlan0  up    3 s   associated, and the signal\n                   is strong enough\n\
                      eth0   down  12 s  there is no carrier\n";
        assert_eq!(within(&rows, layout, Some(45)), broken);
        let fewer = "wlan0  up    associated, and the signal\n             is strong enough\n\
                     eth0   down  there is no carrier\nno room for since\n";
        assert_eq!(within(&rows, layout, Some(40)), fewer);
        assert!(within(&rows, layout, Some(30)).starts_with("link: wlan0\n"), "too narrow for that");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut rows = rows();
        rows[1][3] = "fd00:1234:5678:9abc:def0:1234:5678:9abc is away since 12:00, and not heard again ".repeat(3);
        for limit in 8..60 {
            for given_up in [&[][..], &[2], &[3, 2, 1, 0]] {
                for has_sentences in [false, true] {
                    let layout = Layout { given_up, has_sentences, ..Layout::default() };
                    let text = within(&rows, layout, Some(limit));
                    assert!(text.lines().all(|line| len(line) <= limit), "{limit}: {text}");
                }
            }
        }
    }
}
