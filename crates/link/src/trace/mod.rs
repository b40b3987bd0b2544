//! Links recorded elsewhere: mahimahi's packet-delivery traces, and tables of rate, delay, loss and connectivity over time.

mod conditions;
mod deliveries;

pub use conditions::ConditionTrace;
pub use deliveries::DeliveryTrace;
pub(crate) use deliveries::Opportunity;

/// The behaviour of a trace at its end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AtEnd {
    /// Start over.
    #[default]
    Repeat,
    /// A delivery trace delivers nothing more; a table keeps the values of its last row.
    Stop,
}

/// Why a text is not a valid trace. Lines are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// It is empty.
    #[error("the trace is empty")]
    Empty,
    /// The last line has no newline, so that its number may be cut off.
    #[error(
        "line {line}: the last line does not end with a newline, so the file may be cut off; add one if it is whole"
    )]
    Truncated {
        /// The last line.
        line: usize,
    },
    /// An invalid value.
    #[error("line {line}: {column} is \"{found}\", expected {expected}")]
    Value {
        /// The line.
        line: usize,
        /// The column's name.
        column: &'static str,
        /// The value.
        found: Box<str>,
        /// The accepted values.
        expected: &'static str,
    },
    /// Times are out of order.
    #[error("line {line}: time {found} must not come after {previous}")]
    OutOfOrder {
        /// The line.
        line: usize,
        /// Its time.
        found: Box<str>,
        /// The time on the line before.
        previous: Box<str>,
    },
    /// A row with too few or too many fields.
    #[error("line {line}: {found} fields, but the header names {expected}")]
    FieldCount {
        /// The line.
        line: usize,
        /// Fields in the header.
        expected: usize,
        /// Fields in the row.
        found: usize,
    },
    /// An unknown column in the header of a table.
    #[error("line {line}: unknown column \"{found}\"; known: t, rate, delay, rtt, loss, up")]
    UnknownColumn {
        /// The line.
        line: usize,
        /// Its name.
        found: Box<str>,
    },
    /// A duplicate column in the header of a table.
    #[error("line {line}: column \"{column}\" appears twice")]
    DuplicateColumn {
        /// The line.
        line: usize,
        /// The column.
        column: &'static str,
    },
    /// Both delay and round trip in the header of a table; the delay is half of the round trip.
    #[error("line {line}: a table has either \"delay\" or \"rtt\", which is twice the delay")]
    DelayTwice {
        /// The line.
        line: usize,
    },
    /// The header of a table has no time column, or no other one.
    #[error("line {line}: the header must name \"t\" and at least one of rate, delay, rtt, loss, up")]
    MissingColumn {
        /// The line.
        line: usize,
    },
    /// A trace that repeats has length 0.
    #[error("line {line}: a trace that repeats must end later than at 0")]
    NoLength {
        /// The last line.
        line: usize,
    },
}

/// The lines of a trace, numbered from 1.
fn lines(text: &str) -> Result<impl Iterator<Item = (usize, &str)>, TraceError> {
    if text.is_empty() {
        return Err(TraceError::Empty);
    }
    if !text.ends_with('\n') {
        return Err(TraceError::Truncated { line: text.lines().count() });
    }
    Ok((1..).zip(text.lines()))
}
