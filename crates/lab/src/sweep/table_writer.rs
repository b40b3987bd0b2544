//! Tables in files.

use std::io;
use std::path::{Path, PathBuf};

use holdover_report::PartFile;

use super::parquet::ParquetWriter;
use super::table::{Columns, TableError, Value, csv_writer, write_csv_row};

/// A table being written as `NAME.csv` (RFC 4180, with a header; values that do not apply are empty) and `NAME.parquet`. Both files get
/// their final names when the table is [finished](Self::finish).
pub(super) struct TableWriter {
    columns: Columns,
    csv: csv::Writer<PartFile>,
    csv_path: PathBuf,
    parquet: ParquetWriter<PartFile>,
    parquet_path: PathBuf,
    /// Rows not yet in the Parquet file.
    rows: Vec<Vec<Value>>,
}

/// The number of rows buffered for a Parquet row group.
const ROWS_PER_GROUP: usize = 16_384;

impl TableWriter {
    /// Begins the table called `name` in `directory`.
    pub(super) fn create(directory: &Path, name: &str, columns: Columns) -> Result<Self, TableError> {
        let [csv_path, parquet_path] = ["csv", "parquet"].map(|ending| directory.join(format!("{name}.{ending}")));
        let out = |path: &Path| PartFile::create(path).map_err(|error| TableError::io(path, error));
        let csv = csv_writer(out(&csv_path)?, &columns).map_err(|error| TableError::io(&csv_path, error.into()))?;
        let parquet = ParquetWriter::new(out(&parquet_path)?, &columns)
            .map_err(|error| TableError::Parquet { path: parquet_path.clone(), error })?;
        Ok(Self { columns, csv, csv_path, parquet, parquet_path, rows: Vec::new() })
    }

    /// Adds a row.
    pub(super) fn push(&mut self, row: Vec<Value>) -> Result<(), TableError> {
        write_csv_row(&mut self.csv, &row).map_err(|error| TableError::io(&self.csv_path, error.into()))?;
        self.rows.push(row);
        if self.rows.len() == ROWS_PER_GROUP { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<(), TableError> {
        let written = self.parquet.write_group(&self.columns, &self.rows);
        self.rows.clear();
        written.map_err(|error| TableError::Parquet { path: self.parquet_path.clone(), error })
    }

    /// Gives the files their final names.
    pub(super) fn finish(mut self) -> Result<(), TableError> {
        if !self.rows.is_empty() {
            self.write_group()?;
        }
        let csv_failed = |error: io::Error| TableError::io(&self.csv_path, error);
        let csv = self.csv.into_inner().map_err(|error| csv_failed(error.into_error()))?;
        csv.commit().map_err(csv_failed)?;
        let parquet = self.parquet.into_inner();
        let parquet = parquet.map_err(|error| TableError::Parquet { path: self.parquet_path.clone(), error })?;
        parquet.commit().map_err(|error| TableError::io(&self.parquet_path, error))
    }
}
