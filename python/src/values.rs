//! Python values as TOML values.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// Deeper than any scenario: an object that holds itself ends here.
const DEEPEST: u32 = 32;

/// The TOML value of a text, number, truth value, list or dictionary.
pub(crate) fn to_toml(value: &Bound<'_, PyAny>) -> PyResult<toml::Value> {
    convert(value, 0)
}

fn convert(value: &Bound<'_, PyAny>, depth: u32) -> PyResult<toml::Value> {
    if depth > DEEPEST {
        return Err(PyTypeError::new_err("the value is nested too deeply for a scenario"));
    }
    if value.is_instance_of::<PyBool>() {
        return Ok(toml::Value::Boolean(value.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(toml::Value::Integer(value.extract()?));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(toml::Value::Float(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(toml::Value::String(value.extract()?));
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        return Ok(toml::Value::Table(table(dict, depth)?));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value.try_iter()?.map(|item| convert(&item?, depth + 1));
        return Ok(toml::Value::Array(items.collect::<PyResult<_>>()?));
    }
    // Numbers of NumPy and similar types.
    if let Ok(number) = value.call_method0("item") {
        return convert(&number, depth + 1);
    }
    let name = value.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "a scenario cannot hold a {name}; it holds texts such as \"5 Mbit/s\", numbers, truth values, lists and dictionaries"
    )))
}

/// The TOML table of a dictionary. Entries that are `None` are left out.
pub(crate) fn table(dict: &Bound<'_, PyDict>, depth: u32) -> PyResult<toml::Table> {
    let mut table = toml::Table::new();
    for (key, value) in dict.iter().filter(|(_, value)| !value.is_none()) {
        table.insert(key.extract()?, convert(&value, depth + 1)?);
    }
    Ok(table)
}
