//! The table of runs, written during the sweep: `runs.csv` and the Parquet data set `runs.parquet`.
//!
//! Rows are in the order of cells and runs, independent of the order of completion, so that a repeated sweep writes identical bytes. The
//! data set is a directory of parts of [`ROWS_PER_PART`] rows, readable during the sweep. The CSV file gets its final name when the sweep
//! is complete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use holdover_report::PartFile;

use super::columns::{AxisColumns, runs_columns};
use super::error::SweepError;
use super::journal::Row;
use super::parquet;
use super::plan::Plan;
use super::table::{Columns, TableError, Value, csv_writer, write_csv_row};
use super::tables::rows_of_run;
use crate::journal::JournalError;

/// The table of runs so far.
#[derive(Debug)]
pub(super) struct RunsTable {
    axes: AxisColumns,
    columns: Columns,
    csv: csv::Writer<PartFile>,
    csv_path: PathBuf,
    data_set: PathBuf,
    /// The rows of the incomplete part.
    rows: Vec<Vec<Value>>,
    parts: usize,
    cells: usize,
    /// A cell was written incompletely, so nothing may follow it.
    is_broken: bool,
}

/// Rows in each part of the data set except the last; few in tests, which have few runs.
pub(super) const ROWS_PER_PART: usize = if cfg!(test) { 10 } else { 16_384 };

impl RunsTable {
    /// Creates an empty table in `directory`.
    pub(super) fn create(plan: &Plan, directory: &Path) -> Result<Self, TableError> {
        let (csv_path, data_set) = (directory.join("runs.csv"), directory.join("runs.parquet"));
        let axes = AxisColumns::new(&plan.sweep);
        let columns = runs_columns(&axes);
        let out = PartFile::create(&csv_path).map_err(|error| TableError::io(&csv_path, error))?;
        let csv = csv_writer(out, &columns).map_err(|error| TableError::io(&csv_path, error.into()))?;
        if data_set.is_file() {
            fs::remove_file(&data_set).map_err(|error| TableError::io(&data_set, error))?;
        }
        fs::create_dir_all(&data_set).map_err(|error| TableError::io(&data_set, error))?;
        Ok(Self { axes, columns, csv, csv_path, data_set, rows: Vec::new(), parts: 0, cells: 0, is_broken: false })
    }

    /// The number of cells written.
    pub(super) const fn cells(&self) -> usize {
        self.cells
    }

    /// Adds the next cell with its runs in order.
    pub(super) fn push(
        &mut self,
        plan: &Plan,
        runs: impl Iterator<Item = Result<Row, JournalError>>,
    ) -> Result<(), SweepError> {
        let cell = plan.cell(self.cells);
        let start = self.axes.cells(&plan.point(cell.point));
        if std::mem::replace(&mut self.is_broken, true) {
            let error = io::Error::other("an earlier row could not be written");
            return Err(TableError::io(&self.csv_path, error).into());
        }
        for run in runs {
            for row in rows_of_run(&start, &run?) {
                self.push_row(row)?;
            }
        }
        self.cells += 1;
        self.is_broken = false;
        Ok(())
    }

    fn push_row(&mut self, row: Vec<Value>) -> Result<(), TableError> {
        let written = write_csv_row(&mut self.csv, &row);
        written.map_err(|error| TableError::io(&self.csv_path, error.into()))?;
        self.rows.push(row);
        if self.rows.len() == ROWS_PER_PART { self.write_part() } else { Ok(()) }
    }

    /// Writes the last part, and gives the CSV file its final name.
    pub(super) fn finish(mut self) -> Result<(), TableError> {
        if !self.rows.is_empty() || self.parts == 0 {
            self.write_part()?;
        }
        let failed = |error: io::Error| TableError::io(&self.csv_path, error);
        let csv = self.csv.into_inner().map_err(|error| failed(error.into_error()))?;
        csv.commit().map_err(failed)
    }

    fn write_part(&mut self) -> Result<(), TableError> {
        let path = self.data_set.join(format!("part-{:05}.parquet", self.parts));
        let bytes = parquet::encode(&self.columns, &self.rows)
            .map_err(|error| TableError::Parquet { path: path.clone(), error })?;
        // Concurrent readers of the data set treat every file in it as a part.
        let beside = self.data_set.with_extension("parquet.part");
        let written = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, &path));
        written.map_err(|error| {
            let _ = fs::remove_file(&beside);
            TableError::io(&path, error)
        })?;
        self.rows.clear();
        self.parts += 1;
        Ok(())
    }
}
