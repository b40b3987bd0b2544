//! A TOML text as a tree of nodes with positions, for error messages.

use core::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::error::{Diagnostic, ErrorKind, Location, ScenarioError};
use crate::problem::{Problem, Step};

/// A source of a tree's parts: a file, or a value given by hand.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A position in one of the sources.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Mark {
    pub(crate) source: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A value with its position.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Node {
    pub(crate) mark: Mark,
    pub(crate) value: Value,
}

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    /// Dates are not used in scenarios; kept for an error message.
    Datetime(String),
    Array(Vec<Node>),
    /// Fields in the order of the text.
    Table(Vec<Entry>),
}

/// A field of a table.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_mark: Mark,
    pub(crate) node: Node,
}

impl Node {
    /// Parses `source`, whose index among the sources is `index`.
    pub(crate) fn parse(source: &Source, index: usize) -> Result<Self, ScenarioError> {
        let fail = |message: &str, span: Range<usize>| {
            let location = Location::of(&source.name, &source.text, span);
            ScenarioError::from(Diagnostic::new(ErrorKind::Syntax, message.replace('\n', ", "), location))
        };
        let table = DeTable::parse(&source.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            match table_and_array(&source.text, error.message(), span.clone()) {
                Some((message, span)) => fail(&message, span),
                None => fail(error.message(), span),
            }
        })?;
        let span = table.span();
        let value = Value::of_table(table.get_ref(), index).map_err(|(message, span)| fail(message, span))?;
        Ok(Self { mark: Mark::new(index, span), value })
    }

    /// The tree of `value`, with `mark` as the position of all its parts.
    pub(crate) fn of_value(value: &toml::Value, mark: Mark) -> Self {
        let value = match value {
            toml::Value::String(text) => Value::String(text.clone()),
            toml::Value::Integer(number) => Value::Integer(*number),
            toml::Value::Float(number) => Value::Float(*number),
            toml::Value::Boolean(value) => Value::Boolean(*value),
            toml::Value::Datetime(date) => Value::Datetime(date.to_string()),
            toml::Value::Array(list) => Value::Array(list.iter().map(|value| Self::of_value(value, mark)).collect()),
            toml::Value::Table(table) => Value::Table(
                table
                    .iter()
                    .map(|(key, value)| Entry { key: key.clone(), key_mark: mark, node: Self::of_value(value, mark) })
                    .collect(),
            ),
        };
        Self { mark, value }
    }

    /// The value without positions.
    pub(crate) fn to_value(&self) -> toml::Value {
        match &self.value {
            Value::String(text) | Value::Datetime(text) => toml::Value::String(text.clone()),
            Value::Integer(number) => toml::Value::Integer(*number),
            Value::Float(number) => toml::Value::Float(*number),
            Value::Boolean(value) => toml::Value::Boolean(*value),
            Value::Array(list) => toml::Value::Array(list.iter().map(Self::to_value).collect()),
            Value::Table(entries) => {
                toml::Value::Table(entries.iter().map(|entry| (entry.key.clone(), entry.node.to_value())).collect())
            }
        }
    }

    /// The field `key` of a table.
    pub(crate) fn field(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The elements of a list; none for other values.
    pub(crate) fn elements(&self) -> &[Self] {
        match &self.value {
            Value::Array(list) => list,
            _ => &[],
        }
    }

    /// The name of a list element: the text of its field `name`, or of `host` for elements about a host.
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.field("name").or_else(|| self.field("host"))?.node.value {
            Value::String(name) => Some(name),
            _ => None,
        }
    }

    /// Turns a problem into an error with its position.
    pub(crate) fn explain(&self, problem: Problem, sources: &[Source]) -> ScenarioError {
        let parts = problem.into_parts();
        let (mark, field) = self.follow(&parts.steps, parts.at_key);
        parts.into_error(field, mark.locate(sources))
    }

    /// The position at the end of `steps`, or of the last existing one, and the path in words.
    fn follow(&self, steps: &[Step], at_key: bool) -> (Mark, String) {
        let mut node = Some(self);
        let mut mark = self.mark;
        let mut field = String::new();
        for (at, step) in steps.iter().enumerate() {
            let last = at + 1 == steps.len();
            match step {
                Step::Key(key) => {
                    let entry = node.and_then(|node| node.field(key));
                    if let Some(entry) = entry {
                        mark = if at_key && last { entry.key_mark } else { entry.node.mark };
                    }
                    node = entry.map(|entry| &entry.node);
                    if !field.is_empty() {
                        field.push('.');
                    }
                    field.push_str(key);
                }
                Step::Index(index) => {
                    node = node.and_then(|node| node.elements().get(*index));
                    mark = node.map_or(mark, |node| node.mark);
                    match node.and_then(Self::name) {
                        Some(name) => field.push_str(&format!(".{name}")),
                        None => field.push_str(&format!(".{index}")),
                    }
                }
            }
        }
        (mark, field)
    }
}

impl Mark {
    pub(crate) fn new(source: usize, span: Range<usize>) -> Self {
        Self { source, start: span.start, end: span.end }
    }

    pub(crate) fn locate(self, sources: &[Source]) -> Location {
        match sources.get(self.source) {
            Some(source) => Location::of(&source.name, &source.text, self.start..self.end),
            None => Location::default(),
        }
    }
}

type Refused = (&'static str, Range<usize>);

impl Value {
    fn of_table(table: &DeTable<'_>, source: usize) -> Result<Self, Refused> {
        let mut entries = Vec::with_capacity(table.len());
        for (key, value) in table {
            let node =
                Node { mark: Mark::new(source, value.span()), value: Self::of(value.get_ref(), source, value.span())? };
            let key_mark = Mark::new(source, key.span());
            entries.push(Entry { key: key.get_ref().to_string(), key_mark, node });
        }
        entries.sort_by_key(|entry| entry.key_mark.start);
        Ok(Self::Table(entries))
    }

    fn of(value: &DeValue<'_>, source: usize, span: Range<usize>) -> Result<Self, Refused> {
        Ok(match value {
            DeValue::String(text) => Self::String(text.to_string()),
            DeValue::Integer(number) => {
                let value = i64::from_str_radix(number.as_str(), number.radix());
                Self::Integer(value.map_err(|_| ("the number does not fit into 64 bits", span))?)
            }
            DeValue::Float(number) => Self::Float(number.as_str().parse().map_err(|_| ("this is not a number", span))?),
            DeValue::Boolean(value) => Self::Boolean(*value),
            DeValue::Datetime(date) => Self::Datetime(date.to_string()),
            DeValue::Array(list) => {
                let node = |value: &toml::Spanned<DeValue<'_>>| {
                    let mark = Mark::new(source, value.span());
                    Ok(Node { mark, value: Self::of(value.get_ref(), source, value.span())? })
                };
                Self::Array(list.iter().map(node).collect::<Result<_, Refused>>()?)
            }
            DeValue::Table(table) => Self::of_table(table, source)?,
        })
    }
}

/// Explains a name used with both single and double brackets, which the parser reports as a duplicate where it stands the second time. The
/// position is that of the name in single brackets, which is to be changed.
fn table_and_array(text: &str, message: &str, span: Range<usize>) -> Option<(String, Range<usize>)> {
    if !message.contains("duplicate key") {
        return None;
    }
    let before = text.get(..span.start)?;
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    let line = header(text[begin..].lines().next()?);
    let (name, is_array) = match line.strip_prefix("[[").and_then(|rest| rest.split("]]").next()) {
        Some(name) => (name.trim(), true),
        None => (line.strip_prefix('[')?.split(']').next()?.trim(), false),
    };
    let (single, double) = (format!("[{name}]"), format!("[[{name}]]"));
    let earlier = if is_array { &single } else { &double };
    let mut start = 0;
    let (number, at) = before.split_inclusive('\n').enumerate().find_map(|(number, line)| {
        let at = start + line.len() - line.trim_start().len();
        start += line.len();
        (header(line) == earlier).then_some((number + 1, at))
    })?;
    let other = if is_array { before.matches('\n').count() + 1 } else { number };
    let position = if is_array { at + 1..at + 1 + name.len() } else { span };
    let advice = format!("line {other} has {double}; write {double} here, too");
    Some((format!("{name} stands in single and in double brackets: {advice}"), position))
}

/// A line of TOML without its comment.
fn header(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}
