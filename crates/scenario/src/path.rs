//! Paths of fields in variants, sweeps and `--set`: `link.radio.delay`, `flow.*.stack.rto.min`.
//!
//! A step into a table is a field's name; a step into a list is the name of an element, its number from 0, or `*` for all. A step that
//! contains a dot is put in double quotes.

use crate::error::ErrorKind;
use crate::file::ScenarioFile;
use crate::problem::Problem;
use crate::tree::{Entry, Mark, Node, Value};

/// A path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FieldPath(Vec<String>);

/// Fields that take a short text or a table, and the field of the table set by the text.
const SHORTHANDS: [(&str, &str); 9] = [
    ("stack", "profile"),
    ("from_stack", "profile"),
    ("to_stack", "profile"),
    ("congestion", "algorithm"),
    ("user_timeout", "timeout"),
    ("ack", "policy"),
    ("jitter", "amplitude"),
    ("reorder", "probability"),
    ("trace", "file"),
];

impl FieldPath {
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let bad = || {
            let accepted = "the path of a field, such as link.radio.delay";
            Problem::unexpected(ErrorKind::NoSuchPath, format!("\"{text}\""), accepted)
        };
        let mut steps = Vec::new();
        let mut rest = text.trim();
        loop {
            let step;
            (step, rest) = match rest.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').ok_or_else(bad)?,
                None => rest.split_at(rest.find(['.', '"']).unwrap_or(rest.len())),
            };
            if step.is_empty() {
                return Err(bad());
            }
            steps.push(step.to_owned());
            if rest.is_empty() {
                return Ok(Self(steps));
            }
            rest = rest.strip_prefix('.').ok_or_else(bad)?;
        }
    }

    /// The section that the path begins with.
    pub(crate) fn section(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// Sets `value` at the path. Missing fields are created, at `mark`, so that an unknown one is reported when the tree is read.
    pub(crate) fn set(&self, root: &mut Node, mark: Mark, value: &Node) -> Result<(), Problem> {
        if ScenarioFile::LISTS.contains(&self.section()) && root.field(self.section()).is_none() {
            let message = format!("there is no [[{}]] in the scenario", self.section());
            return Err(Problem::new(ErrorKind::NoSuchPath, message));
        }
        set(root, &self.0, "the scenario", mark, value)
    }
}

fn set(node: &mut Node, steps: &[String], name: &str, mark: Mark, value: &Node) -> Result<(), Problem> {
    let Some((step, rest)) = steps.split_first() else {
        *node = value.clone();
        return Ok(());
    };
    expand_shorthand(node, name, mark);
    let here = node.mark;
    match &mut node.value {
        Value::Table(entries) => {
            let at = entries.iter().position(|entry| entry.key == *step).unwrap_or_else(|| {
                let empty = Node { mark, value: Value::Table(Vec::new()) };
                entries.push(Entry { key: step.clone(), key_mark: mark, node: empty });
                entries.len() - 1
            });
            set(&mut entries[at].node, rest, step, mark, value)
        }
        Value::Array(list) => {
            let picked = pick(list, step, name)?;
            for index in picked {
                set(&mut list[index], rest, step, mark, value)?;
            }
            Ok(())
        }
        _ => {
            let found = Node { mark: here, value: node.value.clone() }.to_value();
            let message = format!("{name} is {found} here, which has no field \"{step}\"");
            Err(Problem::new(ErrorKind::NoSuchPath, message))
        }
    }
}

/// The elements of a list selected by a step.
fn pick(list: &[Node], step: &str, list_name: &str) -> Result<Vec<usize>, Problem> {
    if step == "*" && !list.is_empty() {
        return Ok((0..list.len()).collect());
    }
    let by_name = list.iter().position(|node| node.name() == Some(step));
    let by_number = || step.parse().ok().filter(|&index: &usize| index < list.len());
    if let Some(index) = by_name.or_else(by_number) {
        return Ok(vec![index]);
    }
    let names: Vec<&str> = list.iter().filter_map(Node::name).collect();
    Err(if names.is_empty() {
        let message = format!("{list_name} has no element \"{step}\"; it has {} of them, counted from 0", list.len());
        Problem::new(ErrorKind::NoSuchPath, message)
    } else {
        Problem::unknown_name(list_name, step, names).with_kind(ErrorKind::NoSuchPath)
    })
}

/// Expands a short text into its table, so that a field of it can be set.
fn expand_shorthand(node: &mut Node, name: &str, mark: Mark) {
    let Some((_, field)) = SHORTHANDS.iter().find(|(shorthand, _)| *shorthand == name) else { return };
    if matches!(node.value, Value::String(_)) {
        let text = Node { mark: node.mark, value: node.value.clone() };
        node.value = Value::Table(vec![Entry { key: (*field).to_owned(), key_mark: mark, node: text }]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_step_by_step() {
        let steps = |text: &str| FieldPath::parse(text).map(|path| path.0).ok();
        let owned = |steps: &[&str]| Some(steps.iter().map(|&step| step.to_owned()).collect::<Vec<_>>());
        assert_eq!(steps("seed"), owned(&["seed"]));
        assert_eq!(steps("link.radio.delay"), owned(&["link", "radio", "delay"]));
        assert_eq!(steps("variant.\"linux-2.4\".set"), owned(&["variant", "linux-2.4", "set"]));
        for bad in ["", ".", "a.", ".a", "a..b", "\"a", "a\"b\"", "\"a\"b", "\"\""] {
            assert_eq!(steps(bad), None, "{bad}");
        }
    }
}
