//! Tables in Arrow's memory format, handed over by the Arrow PyCapsule interface without copies.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, RecordBatch, RecordBatchIterator, RecordBatchReader, StringArray, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use holdover_lab::sweep::table::{Kind, Table, Value, kind_of_flow_column};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::failed;

/// A table in Arrow's memory format.
#[pyclass(frozen, name = "Table", module = "holdover._holdover")]
pub(crate) struct PyTable(RecordBatch);

#[pymethods]
impl PyTable {
    /// The Arrow PyCapsule interface. The requested schema is a wish, which is not granted: the consumer casts.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        let reader: Box<dyn RecordBatchReader + Send> = Box::new(batches);
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), c"arrow_array_stream")
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The names and the types of the columns.
    #[getter]
    fn types(&self) -> Vec<(String, String)> {
        let schema = self.0.schema();
        schema.fields().iter().map(|field| (field.name().clone(), field.data_type().to_string())).collect()
    }

    /// A column as a list, or its first `rows`; what does not apply is `None`.
    #[pyo3(signature = (name, rows=None))]
    fn column(&self, py: Python<'_>, name: &str, rows: Option<usize>) -> PyResult<Vec<Py<PyAny>>> {
        use pyo3::IntoPyObjectExt as _;
        let Some(column) = self.0.column_by_name(name) else {
            let known = self.column_names().join(", ");
            let message = format!("there is no column \"{name}\"; there are {known}");
            return Err(pyo3::exceptions::PyKeyError::new_err(message));
        };
        let column = column.slice(0, rows.map_or(column.len(), |rows| rows.min(column.len())));
        let any = column.as_any();
        if let Some(column) = any.downcast_ref::<Float64Array>() {
            return column.iter().map(|value| value.into_py_any(py)).collect();
        }
        if let Some(column) = any.downcast_ref::<UInt64Array>() {
            return column.iter().map(|value| value.into_py_any(py)).collect();
        }
        if let Some(column) = any.downcast_ref::<BooleanArray>() {
            return column.iter().map(|value| value.into_py_any(py)).collect();
        }
        let column = any.downcast_ref::<StringArray>();
        column.into_iter().flatten().map(|value| value.into_py_any(py)).collect()
    }
}

impl PyTable {
    /// A table of a sweep, or one that was read.
    pub(crate) fn new(py: Python<'_>, table: &Table) -> PyResult<Self> {
        let column = |at: usize, kind: Kind| -> (DataType, ArrayRef) {
            let cells = table.rows.iter().map(|row| &row[at]);
            match kind {
                Kind::Text => {
                    let text = |value: &'_ Value| if let Value::Text(text) = value { Some(text.clone()) } else { None };
                    (DataType::Utf8, Arc::new(cells.map(text).collect::<StringArray>()))
                }
                Kind::Integer => {
                    let number = |value: &Value| if let Value::Integer(number) = value { Some(*number) } else { None };
                    (DataType::UInt64, Arc::new(cells.map(number).collect::<UInt64Array>()))
                }
                Kind::Real => {
                    let number = |value: &Value| if let Value::Real(number) = value { Some(*number) } else { None };
                    (DataType::Float64, Arc::new(cells.map(number).collect::<Float64Array>()))
                }
                Kind::Flag => {
                    let flag = |value: &Value| if let Value::Flag(flag) = value { Some(*flag) } else { None };
                    (DataType::Boolean, Arc::new(cells.map(flag).collect::<BooleanArray>()))
                }
            }
        };
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = table
            .columns
            .iter()
            .enumerate()
            .map(|(at, (name, kind))| {
                let (of, array) = column(at, *kind);
                (Field::new(name, of, true), array)
            })
            .unzip();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        batch.map(Self).map_err(|error| failed(py, error))
    }
}

/// Why a file of a run cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("{}: {error}", path.display())]
    Csv { path: PathBuf, error: csv::Error },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{}:{line}: not an event of a run: {error}", path.display())]
    Event { path: PathBuf, line: usize, error: serde_json::Error },
    #[error("{}:{row}: \"{cell}\" in the column {column} is not what a run writes there", path.display())]
    Cell { path: PathBuf, row: usize, column: String, cell: String },
}

/// `flows.csv` of a run.
#[pyfunction]
pub(crate) fn read_flows(py: Python<'_>, path: PathBuf) -> PyResult<PyTable> {
    let kind = |name: &str| match name {
        "variant" => Kind::Text,
        "seed" => Kind::Integer,
        // A list of times, separated by semicolons.
        "idle_after_reconnection_s" => Kind::Text,
        name => kind_of_flow_column(name).unwrap_or_else(|| by_ending(name)),
    };
    read_csv(py, &path, kind)
}

/// `samples.csv` of a variant.
#[pyfunction]
pub(crate) fn read_samples(py: Python<'_>, path: PathBuf) -> PyResult<PyTable> {
    read_csv(py, &path, |name| match name {
        "flow" | "state" | "ca_state" => Kind::Text,
        name => by_ending(name),
    })
}

/// Numbers have their unit at the end of their name; those without are counts.
fn by_ending(name: &str) -> Kind {
    if ["_s", "_bps", "_share"].iter().any(|ending| name.ends_with(ending)) { Kind::Real } else { Kind::Integer }
}

pub(crate) fn read_csv(py: Python<'_>, path: &Path, kind: impl Fn(&str) -> Kind + Sync) -> PyResult<PyTable> {
    let table = py.detach(|| csv_table(path, &kind)).map_err(|error| failed(py, error))?;
    PyTable::new(py, &table)
}

fn csv_table(path: &Path, kind: impl Fn(&str) -> Kind) -> Result<Table, ReadError> {
    let failed = |error| ReadError::Csv { path: path.to_owned(), error };
    let mut reader = csv::Reader::from_path(path).map_err(failed)?;
    let columns: Vec<(String, Kind)> =
        reader.headers().map_err(failed)?.iter().map(|name| (name.to_owned(), kind(name))).collect();
    let mut rows = Vec::new();
    for (row, record) in reader.records().enumerate() {
        let record = record.map_err(failed)?;
        let cells = record.iter().zip(&columns).map(|(cell, (column, kind))| {
            value(cell, *kind).ok_or_else(|| ReadError::Cell {
                path: path.to_owned(),
                row: row + 2,
                column: column.clone(),
                cell: cell.to_owned(),
            })
        });
        rows.push(cells.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(Table { columns, rows })
}

fn value(cell: &str, kind: Kind) -> Option<Value> {
    match kind {
        _ if cell.is_empty() => Some(Value::Nothing),
        Kind::Text => Some(cell.into()),
        Kind::Integer => cell.parse().ok().map(Value::Integer),
        Kind::Real => cell.parse().ok().map(Value::Real),
        Kind::Flag => cell.parse().ok().map(Value::Flag),
    }
}

/// The columns that a table of events always has, so that tables of several runs can be put together; what else occurs is appended as text.
const EVENT_COLUMNS: [(&str, Kind); 21] = [
    ("t_s", Kind::Real),
    ("event", Kind::Text),
    ("node", Kind::Text),
    ("link", Kind::Text),
    ("cell", Kind::Text),
    ("flow", Kind::Text),
    ("peer", Kind::Text),
    ("mechanism", Kind::Text),
    ("what", Kind::Text),
    ("connection", Kind::Text),
    ("cause", Kind::Text),
    ("reason", Kind::Text),
    ("packet", Kind::Text),
    ("direction", Kind::Text),
    ("family", Kind::Text),
    ("error", Kind::Text),
    ("lead_s", Kind::Real),
    ("idle_s", Kind::Real),
    ("took_s", Kind::Real),
    ("attempt", Kind::Integer),
    ("moved", Kind::Flag),
];

/// The columns of what mechanisms did.
const ACTION_COLUMNS: [(&str, Kind); 5] = [
    ("t_s", Kind::Real),
    ("node", Kind::Text),
    ("mechanism", Kind::Text),
    ("what", Kind::Text),
    ("connection", Kind::Text),
];

/// `events.jsonl` of a variant.
#[pyfunction]
pub(crate) fn read_events(py: Python<'_>, path: PathBuf) -> PyResult<PyTable> {
    let table = py.detach(|| {
        let mut columns = EVENT_COLUMNS.map(|(name, kind)| (name.to_owned(), kind)).to_vec();
        let mut rows: Vec<Vec<Value>> = Vec::new();
        each_event(&path, |event| {
            for name in event.keys() {
                if !columns.iter().any(|(column, _)| column == name) {
                    columns.push((name.clone(), Kind::Text));
                }
            }
            rows.push(columns.iter().map(|(name, kind)| take(event, name, *kind)).collect());
        })?;
        for row in &mut rows {
            row.resize(columns.len(), Value::Nothing);
        }
        Ok(Table { columns, rows })
    });
    PyTable::new(py, &table.map_err(|error: ReadError| failed(py, error))?)
}

/// What mechanisms did: those of the events of a variant that are actions of theirs.
#[pyfunction]
pub(crate) fn read_actions(py: Python<'_>, path: PathBuf) -> PyResult<PyTable> {
    let table = py.detach(|| {
        let mut rows = Vec::new();
        each_event(&path, |event| {
            if event.get("event").is_some_and(|kind| kind == "mechanism") {
                rows.push(ACTION_COLUMNS.map(|(name, kind)| take(event, name, kind)).to_vec());
            }
        })?;
        Ok(Table { columns: ACTION_COLUMNS.map(|(name, kind)| (name.to_owned(), kind)).to_vec(), rows })
    });
    PyTable::new(py, &table.map_err(|error: ReadError| failed(py, error))?)
}

/// An event as it is written: its fields by their names.
type Event = BTreeMap<String, serde_json::Value>;

/// Reads a file of events line by line.
fn each_event(path: &Path, mut work: impl FnMut(&mut Event)) -> Result<(), ReadError> {
    let failed = |error| ReadError::Io { path: path.to_owned(), error };
    for (number, line) in BufReader::new(File::open(path).map_err(failed)?).lines().enumerate() {
        let mut event = serde_json::from_str(&line.map_err(failed)?).map_err(|error| ReadError::Event {
            path: path.to_owned(),
            line: number + 1,
            error,
        })?;
        work(&mut event);
    }
    Ok(())
}

/// A field as a cell of a table.
fn take(event: &mut Event, name: &str, kind: Kind) -> Value {
    event.remove(name).map_or(Value::Nothing, |field| cell(field, kind))
}

fn cell(field: serde_json::Value, kind: Kind) -> Value {
    use serde_json::Value as Json;
    match (kind, field) {
        (_, Json::Null) => Value::Nothing,
        (Kind::Real, field) => field.as_f64().into(),
        (Kind::Integer, field) => field.as_u64().map_or(Value::Nothing, Value::Integer),
        (Kind::Flag, field) => field.as_bool().map_or(Value::Nothing, Value::Flag),
        (Kind::Text, Json::String(text)) => Value::Text(text),
        (Kind::Text, field) => Value::Text(field.to_string()),
    }
}
