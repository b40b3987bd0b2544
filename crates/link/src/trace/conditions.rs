//! Tables of a link's conditions over time, as CSV.
//!
//! The first line names the columns, in any order: `t` and at least one of `rate`, `delay` or `rtt`, `loss`, `up`. Conditions without a
//! column are those of the link. Each row applies from its time to that of the next:
//!
//! | column | a bare number is in | or with a unit |
//! | --- | --- | --- |
//! | `t` | seconds since the start; 0 in the first row, then increasing | `1500 ms` |
//! | `rate` | bit/s | `2 Mbit/s` |
//! | `delay` | seconds, one way | `25 ms` |
//! | `rtt` | seconds, both ways: half of it is the delay | `50 ms` |
//! | `loss` | a probability, 0 to 1 | `2 %` |
//! | `up` | 1 or 0 | `true` or `false` |
//!
//! Blank lines and lines that start with `#` are skipped. A table that repeats starts over at the time of its last row, whose
//! other values are then never used.

use holdover_base::{BitRate, Duration, Instant};

use super::{AtEnd, TraceError, lines};

/// A link's conditions over time.
#[derive(Clone, PartialEq, Debug)]
pub struct ConditionTrace {
    rows: Vec<Row>,
    columns: Columns,
    at_end: AtEnd,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Row {
    nanos: u64,
    rate: BitRate,
    delay: Duration,
    loss: f64,
    up: bool,
}

#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct Columns {
    rate: bool,
    delay: bool,
    loss: bool,
    up: bool,
}

impl ConditionTrace {
    /// Reads the text of a CSV file.
    pub fn parse(text: &str, at_end: AtEnd) -> Result<Self, TraceError> {
        let mut lines = lines(text)?.filter(|(_, text)| !(text.trim().is_empty() || text.starts_with('#')));
        let (line, header) = lines.next().ok_or(TraceError::Empty)?;
        let header = parse_header(line, header)?;
        let mut rows: Vec<Row> = Vec::new();
        let mut last_line = line;
        for (line, text) in lines {
            let row = parse_row(line, text, &header)?;
            let in_order = match rows.last() {
                None if row.nanos != 0 => return Err(first_not_zero(line, row)),
                None => true,
                Some(previous) => row.nanos > previous.nanos,
            };
            if !in_order {
                let previous = rows.last().map_or(0, |previous| previous.nanos);
                return Err(TraceError::OutOfOrder { line, found: seconds(row.nanos), previous: seconds(previous) });
            }
            rows.push(row);
            last_line = line;
        }
        match rows.last() {
            None => return Err(TraceError::Empty),
            Some(last) if at_end == AtEnd::Repeat && last.nanos == 0 => {
                return Err(TraceError::NoLength { line: last_line });
            }
            Some(_) => {}
        }
        let has = |column| header.contains(&column);
        let columns = Columns {
            rate: has(Column::Rate),
            delay: has(Column::Delay) || has(Column::Rtt),
            loss: has(Column::Loss),
            up: has(Column::Up),
        };
        Ok(Self { rows, columns, at_end })
    }

    /// The time of the last row, which is the period of a table that repeats.
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.period())
    }

    /// The rate at `at`, if the table has rates.
    pub fn rate(&self, at: Instant) -> Option<BitRate> {
        self.columns.rate.then(|| self.row(at).0.rate)
    }

    /// The propagation delay of a frame whose last bit is sent at `at`, if the table has delays.
    pub fn delay(&self, at: Instant) -> Option<Duration> {
        self.columns.delay.then(|| self.row(at).0.delay)
    }

    /// The probability that a frame sent at `at` is lost, if the table has losses.
    pub fn loss(&self, at: Instant) -> Option<f64> {
        self.columns.loss.then(|| self.row(at).0.loss)
    }

    /// Whether the link is up at `at`, if the table has this column.
    pub fn up(&self, at: Instant) -> Option<bool> {
        self.columns.up.then(|| self.row(at).0.up)
    }

    pub(crate) fn has_rate(&self) -> bool {
        self.columns.rate
    }

    pub(crate) fn has_delay(&self) -> bool {
        self.columns.delay
    }

    pub(crate) fn has_loss(&self) -> bool {
        self.columns.loss
    }

    pub(crate) fn has_up(&self) -> bool {
        self.columns.up
    }

    /// The rate at `at`, and the end of its row.
    pub(crate) fn rate_until(&self, at: Instant) -> (BitRate, Instant) {
        let (row, until) = self.row(at);
        (row.rate, until)
    }

    /// Whether the link is up at `at`, and the end of the row.
    pub(crate) fn up_until(&self, at: Instant) -> (bool, Instant) {
        let (row, until) = self.row(at);
        (row.up, until)
    }

    fn row(&self, at: Instant) -> (&Row, Instant) {
        let (lap_start, offset) = match self.at_end {
            AtEnd::Repeat => {
                let offset = at.as_nanos() % self.period();
                (at.as_nanos() - offset, offset)
            }
            AtEnd::Stop => (0, at.as_nanos()),
        };
        // The first row is at 0, so that at least one lies at or before any offset.
        let next = self.rows.partition_point(|row| row.nanos <= offset).max(1);
        let until = match self.rows.get(next) {
            Some(row) => Instant::from_nanos(lap_start.saturating_add(row.nanos)),
            None => Instant::FAR_FUTURE,
        };
        (&self.rows[next - 1], until)
    }

    fn period(&self) -> u64 {
        self.rows.last().map_or(0, |row| row.nanos)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Time,
    Rate,
    Delay,
    Rtt,
    Loss,
    Up,
}

impl Column {
    const ALL: [Self; 6] = [Self::Time, Self::Rate, Self::Delay, Self::Rtt, Self::Loss, Self::Up];

    const fn name(self) -> &'static str {
        match self {
            Self::Time => "t",
            Self::Rate => "rate",
            Self::Delay => "delay",
            Self::Rtt => "rtt",
            Self::Loss => "loss",
            Self::Up => "up",
        }
    }
}

fn parse_header(line: usize, text: &str) -> Result<Vec<Column>, TraceError> {
    let mut columns = Vec::new();
    for name in text.split(',').map(str::trim) {
        let column = Column::ALL
            .into_iter()
            .find(|column| column.name() == name)
            .ok_or_else(|| TraceError::UnknownColumn { line, found: name.into() })?;
        if columns.contains(&column) {
            return Err(TraceError::DuplicateColumn { line, column: column.name() });
        }
        columns.push(column);
    }
    if columns.contains(&Column::Delay) && columns.contains(&Column::Rtt) {
        return Err(TraceError::DelayTwice { line });
    }
    if !columns.contains(&Column::Time) || columns.len() < 2 {
        return Err(TraceError::MissingColumn { line });
    }
    Ok(columns)
}

fn parse_row(line: usize, text: &str, header: &[Column]) -> Result<Row, TraceError> {
    let fields: Vec<&str> = text.split(',').map(str::trim).collect();
    if fields.len() != header.len() {
        return Err(TraceError::FieldCount { line, expected: header.len(), found: fields.len() });
    }
    let mut row = Row { nanos: 0, rate: BitRate(0), delay: Duration::ZERO, loss: 0.0, up: true };
    for (&column, &found) in header.iter().zip(&fields) {
        let refused = |expected| TraceError::Value { line, column: column.name(), found: found.into(), expected };
        match column {
            Column::Time => {
                row.nanos = parse_span(found)
                    .filter(|span| *span <= MAX_TIME)
                    .ok_or_else(|| refused("seconds of at least 0, or a time with a unit such as \"1500 ms\""))?
                    .as_nanos();
            }
            Column::Rate => {
                row.rate = parse_rate(found)
                    .ok_or_else(|| refused("bit/s of at least 0, or a rate with a unit such as \"2 Mbit/s\""))?;
            }
            Column::Delay => {
                row.delay = parse_span(found)
                    .filter(|span| *span <= MAX_TIME)
                    .ok_or_else(|| refused("seconds of at least 0, or a time with a unit such as \"25 ms\""))?;
            }
            Column::Rtt => {
                row.delay = parse_span(found)
                    .filter(|span| *span <= MAX_TIME)
                    .ok_or_else(|| refused("seconds of at least 0, or a time with a unit such as \"50 ms\""))?
                    / 2;
            }
            Column::Loss => {
                row.loss = parse_probability(found)
                    .ok_or_else(|| refused("a probability from 0 to 1, or a percentage such as \"2 %\""))?;
            }
            Column::Up => row.up = parse_bool(found).ok_or_else(|| refused("1, 0, true or false"))?,
        }
    }
    Ok(row)
}

/// Over thirty years, as for a delivery trace.
const MAX_TIME: Duration = Duration::from_secs(1_000_000_000);

fn parse_span(text: &str) -> Option<Duration> {
    match plain_number(text) {
        Some(secs) if secs <= MAX_TIME.as_secs_f64() => Some(Duration::from_secs_f64(secs)),
        Some(_) => None,
        None => text.parse().ok(),
    }
}

fn parse_rate(text: &str) -> Option<BitRate> {
    match plain_number(text) {
        Some(rate) if rate < u64::MAX as f64 => Some(BitRate(rate.round() as u64)),
        Some(_) => None,
        None => text.parse().ok(),
    }
}

fn parse_probability(text: &str) -> Option<f64> {
    let probability = match text.strip_suffix('%') {
        Some(percent) => plain_number(percent.trim())? / 100.0,
        None => plain_number(text)?,
    };
    (probability <= 1.0).then_some(probability)
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

/// A finite number of at least zero.
fn plain_number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

fn first_not_zero(line: usize, row: Row) -> TraceError {
    TraceError::Value { line, column: "t", found: seconds(row.nanos), expected: "0 in the first row" }
}

fn seconds(nanos: u64) -> Box<str> {
    format!("{} s", nanos as f64 / 1e9).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "# a tunnel\nt,rate,delay,loss,up\n0,2e6,0.025,0,1\n10,500 kbit/s,50 ms,2 %,true\n\n12 s,0,0,1,0\n15,0,0,0,1\n";

    #[test]
    fn half_of_a_round_trip_is_the_delay() {
        let trace = ConditionTrace::parse("t,rtt\n0,0.05\n1,70 ms\n2,0\n", AtEnd::Stop).unwrap();
        assert_eq!(trace.delay(Instant::ZERO), Some(Duration::from_millis(25)));
        assert_eq!(trace.delay(Instant::from_millis(1500)), Some(Duration::from_millis(35)));
        assert_eq!((trace.rate(Instant::ZERO), trace.up(Instant::ZERO)), (None, None));
    }

    #[test]
    fn rows_hold_until_the_next_and_start_over() {
        let trace = ConditionTrace::parse(TABLE, AtEnd::Repeat).unwrap();
        for lap in [0_u64, 15, 15_000_000] {
            let at = |secs: u64| Instant::from_secs(lap + secs);
            assert_eq!(trace.rate(at(0)), Some(BitRate::from_mbps(2)));
            assert_eq!(trace.rate_until(at(9)), (BitRate::from_mbps(2), at(10)));
            assert_eq!(trace.delay(at(10)), Some(Duration::from_millis(50)));
            assert_eq!(trace.loss(at(11)), Some(0.02));
            assert_eq!(trace.up_until(at(12)), (false, at(15)));
        }
        let trace = ConditionTrace::parse(TABLE, AtEnd::Stop).unwrap();
        assert_eq!(trace.up_until(Instant::from_secs(100)), (true, Instant::FAR_FUTURE));
    }

    #[test]
    fn a_table_may_name_few_columns_in_any_order() {
        let trace = ConditionTrace::parse("up,t\n1,0\n0,5\n", AtEnd::Stop).unwrap();
        let at = Instant::from_secs(6);
        assert_eq!((trace.up(at), trace.rate(at), trace.delay(at), trace.loss(at)), (Some(false), None, None, None));
    }

    #[test]
    fn malformed_tables_are_refused_with_the_line() {
        let error = |text: &str| ConditionTrace::parse(text, AtEnd::Repeat).unwrap_err();
        assert_eq!(error(""), TraceError::Empty);
        assert_eq!(error("# nothing\n"), TraceError::Empty);
        assert_eq!(error("t,rate\n"), TraceError::Empty);
        assert_eq!(error("t,rate\n0,1\n1,12"), TraceError::Truncated { line: 3 });
        assert_eq!(error("t,rate\n0,1\n1\n"), TraceError::FieldCount { line: 3, expected: 2, found: 1 });
        assert_eq!(error("t,speed\n0,1\n"), TraceError::UnknownColumn { line: 1, found: "speed".into() });
        assert_eq!(error("t,up,up\n0,1,1\n"), TraceError::DuplicateColumn { line: 1, column: "up" });
        assert_eq!(error("t,rtt,delay\n0,1,1\n"), TraceError::DelayTwice { line: 1 });
        assert_eq!(error("rate,up\n0,1\n"), TraceError::MissingColumn { line: 1 });
        assert_eq!(error("t\n0\n"), TraceError::MissingColumn { line: 1 });
        assert_eq!(error("t,rate\n0,1\n"), TraceError::NoLength { line: 2 });
        assert!(matches!(error("t,rate\n0,1\n2,1\n2,1\n"), TraceError::OutOfOrder { line: 4, .. }));
        assert!(matches!(error("t,rate\n1,1\n"), TraceError::Value { line: 2, column: "t", .. }));
        for (column, bad) in [
            ("rate", "-1"),
            ("rate", "1 MB"),
            ("rate", ""),
            ("rate", "1e30"),
            ("delay", "-3 ms"),
            ("delay", "NaN"),
            ("delay", "1e12"),
            ("loss", "1.5"),
            ("loss", "101 %"),
            ("up", "yes"),
        ] {
            let text = format!("t,{column}\n0,{bad}\n");
            assert!(matches!(error(&text), TraceError::Value { line: 2, column: at, .. } if at == column), "{text}");
        }
    }
}
