//! Tables as Parquet, for typed access.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::table::{Columns, Kind, Value};

/// A Parquet file being written. Every column is optional: values that do not apply are null.
pub(super) struct ParquetWriter<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a file with these columns and no rows.
    pub(super) fn new(out: W, columns: &Columns) -> Result<Self> {
        let fields = columns.iter().map(|(name, kind)| field(name, *kind).map(Arc::new)).collect::<Result<_>>()?;
        let schema = Arc::new(Type::group_type_builder("schema").with_fields(fields).build()?);
        SerializedFileWriter::new(out, schema, Arc::new(WriterProperties::new())).map(Self)
    }

    /// Adds a group of rows.
    pub(super) fn write_group(&mut self, columns: &Columns, rows: &[Vec<Value>]) -> Result<()> {
        let mut group = self.0.next_row_group()?;
        for (at, (_, kind)) in columns.iter().enumerate() {
            let cells = || rows.iter().map(|row| &row[at]);
            match kind {
                Kind::Text => write::<ByteArrayType, W>(&mut group, cells(), |value| match value {
                    Value::Text(text) => Some(ByteArray::from(text.as_str())),
                    _ => None,
                }),
                Kind::Integer => write::<Int64Type, W>(&mut group, cells(), |value| match value {
                    // The same 64 bits: the column is marked as unsigned.
                    Value::Integer(number) => Some(number.cast_signed()),
                    _ => None,
                }),
                Kind::Real => write::<DoubleType, W>(&mut group, cells(), |value| match value {
                    Value::Real(number) => Some(*number),
                    _ => None,
                }),
                Kind::Flag => write::<BoolType, W>(&mut group, cells(), |value| match value {
                    Value::Flag(flag) => Some(*flag),
                    _ => None,
                }),
            }?;
        }
        group.close().map(|_| ())
    }

    /// Completes the file and returns the underlying writer.
    pub(super) fn into_inner(self) -> Result<W> {
        self.0.into_inner()
    }
}

/// A table as a Parquet file of one row group.
pub(super) fn encode(columns: &Columns, rows: &[Vec<Value>]) -> Result<Vec<u8>> {
    let mut file = ParquetWriter::new(Vec::new(), columns)?;
    file.write_group(columns, rows)?;
    file.into_inner()
}

fn field(name: &str, kind: Kind) -> Result<Type> {
    let (physical, logical) = match kind {
        Kind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Integer => (PhysicalType::INT64, Some(LogicalType::integer(64, false))),
        Kind::Real => (PhysicalType::DOUBLE, None),
        Kind::Flag => (PhysicalType::BOOLEAN, None),
    };
    Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

fn write<'a, T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    cells: impl Iterator<Item = &'a Value>,
    of: impl Fn(&Value) -> Option<T::T>,
) -> Result<()> {
    let cells: Vec<Option<T::T>> = cells.map(of).collect();
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let values: Vec<T::T> = cells.into_iter().flatten().collect();
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    #[test]
    fn written_tables_are_read_back() {
        let columns = [("word", Kind::Text), ("count", Kind::Integer), ("share", Kind::Real), ("ok", Kind::Flag)];
        let columns = columns.map(|(name, kind)| (name.to_owned(), kind)).to_vec();
        let rows = vec![
            vec!["a".into(), Value::Integer(u64::MAX), Value::Real(0.1), Value::Flag(true)],
            vec![Value::Nothing, Value::Nothing, Value::Nothing, Value::Nothing],
            vec!["é".into(), Value::Integer(0), Value::Real(1e-300), Value::Flag(false)],
        ];
        let file = SerializedFileReader::new(bytes::Bytes::from(encode(&columns, &rows).unwrap())).unwrap();
        let rows: Vec<Vec<Field>> = file
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().get_column_iter().map(|(_, field)| field.clone()).collect())
            .collect();
        let text = |text: &str| Field::Str(text.to_owned());
        assert_eq!(rows[0], [text("a"), Field::ULong(u64::MAX), Field::Double(0.1), Field::Bool(true)]);
        assert_eq!(rows[1], [Field::Null, Field::Null, Field::Null, Field::Null]);
        assert_eq!(rows[2], [text("é"), Field::ULong(0), Field::Double(1e-300), Field::Bool(false)]);
    }
}
