//! Values of the code in scripts.

use core::cmp::Ordering;
use core::fmt;

/// A value. Truth values are integers, as in Python.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    None,
    Int(i128),
    Float(f64),
    Text(String),
    Tuple(Vec<Value>),
}

impl Value {
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::None => false,
            Self::Int(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Tuple(items) => !items.is_empty(),
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            _ => self.number()?.partial_cmp(&other.number()?),
        }
    }

    pub(super) fn equals(&self, other: &Self) -> bool {
        self == other || self.compare(other) == Some(Ordering::Equal)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(text) => f.write_str(text),
            Self::Tuple(items) => {
                f.write_str("(")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
        }
    }
}

/// `text % value`: each directive takes the next value. Width and sign in directives are ignored.
pub(super) fn format(text: &str, value: &Value) -> String {
    let single = [value.clone()];
    let mut values = match value {
        Value::Tuple(items) => items.iter(),
        _ => single.iter(),
    };
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let kind = rest.by_ref().find(|letter| !(letter.is_ascii_digit() || "+-. #l".contains(*letter)));
        match (kind, values.as_slice()) {
            (Some('%') | None, _) => out.push('%'),
            (Some('x'), [Value::Int(value), ..]) => out.push_str(&format!("{value:x}")),
            (Some(_), [value, ..]) => out.push_str(&value.to_string()),
            (Some(_), []) => out.push('?'),
        }
        if kind != Some('%') {
            values.next();
        }
    }
    out
}
