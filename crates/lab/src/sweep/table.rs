//! Tables with typed columns, and their file formats.

use std::io;
use std::path::{Path, PathBuf};

use holdover_report::{ConnectionMetrics, ExchangeMetrics, FlowMetrics};

/// The type of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Text.
    Text,
    /// Unsigned integers.
    Integer,
    /// Floating-point numbers.
    Real,
    /// Booleans.
    Flag,
}

/// A cell of a table.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A value that does not apply.
    Nothing,
    /// Text.
    Text(String),
    /// An unsigned integer.
    Integer(u64),
    /// A floating-point number.
    Real(f64),
    /// A boolean.
    Flag(bool),
}

/// The names and types of a table's columns.
pub type Columns = Vec<(String, Kind)>;

/// A table.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// The names and types of the columns.
    pub columns: Columns,
    /// The rows, with one cell per column, of the column's type or [`Value::Nothing`].
    pub rows: Vec<Vec<Value>>,
}

/// Errors of writing a table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A file could not be written.
    #[error("cannot write {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The Parquet file could not be encoded.
    #[error("cannot write {}: {error}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: ::parquet::errors::ParquetError,
    },
}

impl TableError {
    pub(super) fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), error }
    }
}

/// Begins a CSV file with these columns.
pub(super) fn csv_writer<W: io::Write>(out: W, columns: &Columns) -> csv::Result<csv::Writer<W>> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(columns.iter().map(|(name, _)| name))?;
    Ok(csv)
}

/// Adds a row to a CSV file.
pub(super) fn write_csv_row<W: io::Write>(csv: &mut csv::Writer<W>, row: &[Value]) -> csv::Result<()> {
    for value in row {
        match value {
            Value::Text(text) => csv.write_field(text)?,
            value => csv.write_field(value.to_text())?,
        }
    }
    csv.write_record(None::<&[u8]>)
}

impl Value {
    fn to_text(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Text(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Real(number) => real(*number),
            Self::Flag(flag) => flag.to_string(),
        }
    }
}

/// The shortest text that parses to the same number.
fn real(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-5..1e16).contains(&size) { number.to_string() } else { format!("{number:e}") }
}

impl From<Option<f64>> for Value {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::Nothing, Self::Real)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Integer(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// The type of a column of a table of flows (`runs.csv`, and `flows.csv` of a run); `None` if sweeps have no such column.
pub fn kind_of_flow_column(name: &str) -> Option<Kind> {
    FLOW_COLUMNS.iter().find(|(column, ..)| *column == name).map(|(_, kind, _)| *kind)
}

/// A column about a flow: its name, its type and its value.
pub(crate) type FlowColumn = (&'static str, Kind, fn(&FlowMetrics) -> Value);

/// The columns of the table of runs about each flow, with the names in a run's `flows.csv`.
pub(crate) const FLOW_COLUMNS: [FlowColumn; 35] = [
    ("flow", Kind::Text, |flow| flow.flow.as_str().into()),
    ("from", Kind::Text, |flow| flow.from.as_str().into()),
    ("to", Kind::Text, |flow| flow.to.as_str().into()),
    ("status", Kind::Text, |flow| flow.status.name().into()),
    ("error", Kind::Text, |flow| flow.error.as_deref().map_or(Value::Nothing, Value::from)),
    ("started_at_s", Kind::Real, |flow| flow.started_at_s.into()),
    ("connected_at_s", Kind::Real, |flow| flow.connected_at_s.into()),
    ("completed_at_s", Kind::Real, |flow| flow.completed_at_s.into()),
    ("duration_s", Kind::Real, |flow| flow.duration_s.into()),
    ("outage_s", Kind::Real, |flow| flow.outage_s.into()),
    ("net_duration_s", Kind::Real, |flow| flow.net_duration_s.into()),
    ("ideal_s", Kind::Real, |flow| flow.ideal_s.into()),
    ("ideal_share", Kind::Real, |flow| flow.ideal_share.into()),
    ("bytes_received", Kind::Integer, |flow| flow.bytes_received.into()),
    ("throughput_bps", Kind::Real, |flow| flow.throughput_bps.into()),
    ("goodput_bps", Kind::Real, |flow| flow.goodput_bps.into()),
    ("net_goodput_bps", Kind::Real, |flow| flow.net_goodput_bps.into()),
    ("segments_sent", Kind::Integer, |flow| sender(flow, |sender| sender.segments_sent)),
    ("segments_received", Kind::Integer, |flow| sender(flow, |sender| sender.segments_received)),
    ("bytes_sent", Kind::Integer, |flow| sender(flow, |sender| sender.bytes_sent)),
    ("bytes_retransmitted", Kind::Integer, |flow| sender(flow, |sender| sender.bytes_retransmitted)),
    ("timeouts", Kind::Integer, |flow| sender(flow, |sender| sender.timeouts)),
    ("fast_retransmits", Kind::Integer, |flow| sender(flow, |sender| sender.fast_retransmits)),
    ("recoveries", Kind::Integer, |flow| sender(flow, |sender| sender.recoveries)),
    ("undos", Kind::Integer, |flow| sender(flow, |sender| sender.undos)),
    ("duplicate_bytes_received", Kind::Integer, |flow| receiver(flow, |receiver| receiver.bytes_duplicate)),
    ("duplicate_segments_received", Kind::Integer, |flow| receiver(flow, |receiver| receiver.duplicate_segments)),
    ("reconnections", Kind::Integer, |flow| (flow.reconnections.len() as u64).into()),
    ("mean_idle_after_reconnection_s", Kind::Real, |flow| flow.mean_idle_s().into()),
    ("max_idle_after_reconnection_s", Kind::Real, |flow| flow.idle_times_s().max_by(f64::total_cmp).into()),
    ("exchanges", Kind::Integer, |flow| flow.exchanges.as_ref().map_or(Value::Nothing, |all| all.count.into())),
    ("exchange_mean_s", Kind::Real, |flow| exchange(flow, |exchanges| exchanges.mean_s)),
    ("exchange_median_s", Kind::Real, |flow| exchange(flow, |exchanges| exchanges.median_s)),
    ("exchange_p95_s", Kind::Real, |flow| exchange(flow, |exchanges| exchanges.p95_s)),
    ("exchange_max_s", Kind::Real, |flow| exchange(flow, |exchanges| exchanges.max_s)),
];

fn sender(flow: &FlowMetrics, count: fn(&ConnectionMetrics) -> u64) -> Value {
    flow.sender.as_ref().map_or(Value::Nothing, |sender| count(sender).into())
}

fn receiver(flow: &FlowMetrics, count: fn(&ConnectionMetrics) -> u64) -> Value {
    flow.receiver.as_ref().map_or(Value::Nothing, |receiver| count(receiver).into())
}

fn exchange(flow: &FlowMetrics, time: fn(&ExchangeMetrics) -> f64) -> Value {
    flow.exchanges.as_ref().map(time).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_so_that_it_reads_the_same() {
        for number in [0.0, 1.0, 0.1, 1.0 / 3.0, 9_411_234.567_89, 1e-300, -2.5e-7, 1e17, f64::MAX, 1e-5, 12_345_678.0]
        {
            assert_eq!(real(number).parse::<f64>().map(f64::to_bits), Ok(number.to_bits()));
            assert!(real(number).len() < 25, "{}", real(number));
        }
        assert_eq!([real(1.0), real(0.25), real(1e-7)], ["1", "0.25", "1e-7"]);
    }

    #[test]
    fn a_text_with_commas_and_quotes_is_one_cell() {
        let columns = vec![("a".to_owned(), Kind::Text), ("b".to_owned(), Kind::Integer)];
        let mut csv = csv_writer(Vec::new(), &columns).unwrap();
        write_csv_row(&mut csv, &["x, \"y\"".into(), Value::Nothing]).unwrap();
        assert_eq!(csv.into_inner().unwrap(), b"a,b\n\"x, \"\"y\"\"\",\n");
    }
}
