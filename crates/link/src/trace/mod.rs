//! Links recorded elsewhere: mahimahi's packet-delivery traces, and tables of rate, delay, loss and connectivity over time.

mod conditions;
mod deliveries;

pub use conditions::ConditionTrace;
pub use deliveries::DeliveryTrace;
pub(crate) use deliveries::Opportunity;

/// What a trace does when it has been played to its end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AtEnd {
    /// Start over.
    #[default]
    Repeat,
    /// A delivery trace delivers nothing more; a table keeps the values of its last row for ever.
    Stop,
}

/// Why a text is not a trace. Lines are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Nothing in it.
    #[error("the trace is empty")]
    Empty,
    /// The last line has no end, so that the number in it may be half a number.
    #[error(
        "line {line}: the last line does not end with a newline, so the file may be cut off; add one if it is whole"
    )]
    Truncated {
        /// The last line.
        line: usize,
    },
    /// Something other than what belongs there.
    #[error("line {line}: {column} is \"{found}\", expected {expected}")]
    Value {
        /// Where.
        line: usize,
        /// The column's name.
        column: &'static str,
        /// What was read.
        found: Box<str>,
        /// What would be accepted.
        expected: &'static str,
    },
    /// Time runs backwards, or stands still where it must not.
    #[error("line {line}: time {found} must not come after {previous}")]
    OutOfOrder {
        /// Where.
        line: usize,
        /// The time there.
        found: Box<str>,
        /// The time on the line before.
        previous: Box<str>,
    },
    /// A row with too few or too many fields.
    #[error("line {line}: {found} fields, but the header names {expected}")]
    FieldCount {
        /// Where.
        line: usize,
        /// As many as in the header.
        expected: usize,
        /// As many as there are.
        found: usize,
    },
    /// The header of a table names something unknown.
    #[error("line {line}: unknown column \"{found}\"; known: t, rate, delay, rtt, loss, up")]
    UnknownColumn {
        /// Where.
        line: usize,
        /// What was read.
        found: Box<str>,
    },
    /// The header of a table names something twice.
    #[error("line {line}: column \"{column}\" appears twice")]
    DuplicateColumn {
        /// Where.
        line: usize,
        /// The column.
        column: &'static str,
    },
    /// The header of a table names both the delay and the round trip, of which the delay is half.
    #[error("line {line}: a table has either \"delay\" or \"rtt\", which is twice the delay")]
    DelayTwice {
        /// Where.
        line: usize,
    },
    /// The header of a table has no time, or nothing else.
    #[error("line {line}: the header must name \"t\" and at least one of rate, delay, rtt, loss, up")]
    MissingColumn {
        /// Where.
        line: usize,
    },
    /// A trace that repeats must take time.
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
