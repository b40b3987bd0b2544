//! Evaluation of statements.

use core::cmp::Ordering;
use std::collections::BTreeMap;

use super::parse::{Expr, Statement};
use super::value::format;
use super::{CodeError, Value};

pub(super) struct Scope<'a> {
    pub(super) text: &'a str,
    pub(super) variables: &'a mut BTreeMap<String, Value>,
}

type Evaluated = Result<Value, CodeError>;

fn unsupported(what: impl Into<String>) -> CodeError {
    CodeError::Unsupported { what: what.into() }
}

impl Scope<'_> {
    pub(super) fn execute(&mut self, statement: &Statement) -> Result<(), CodeError> {
        match statement {
            Statement::Pass => {}
            Statement::Expr(expr) => {
                self.evaluate(expr)?;
            }
            Statement::Assign { name, operator, value } => {
                let mut value = self.evaluate(value)?;
                if let Some(operator) = operator {
                    value = binary(operator, &self.lookup(name)?, &value)?;
                }
                self.variables.insert(name.clone(), value);
            }
            Statement::Assert { condition, text, message } => {
                if !self.evaluate(condition)?.is_true() {
                    let text = self.text[text.clone()].to_owned();
                    let message = message.as_ref().map(|message| self.evaluate(message)).transpose()?;
                    let message = message.map_or_else(String::new, |value| value.to_string());
                    return Err(CodeError::Assertion { text, message });
                }
            }
        }
        Ok(())
    }

    fn lookup(&self, name: &str) -> Evaluated {
        self.variables.get(name).cloned().ok_or_else(|| CodeError::UnknownName { name: name.to_owned() })
    }

    fn evaluate(&self, expr: &Expr) -> Evaluated {
        match expr {
            Expr::Value(value) => Ok(value.clone()),
            Expr::Name(name) => self.lookup(name),
            Expr::Tuple(items) => self.all(items).map(Value::Tuple),
            Expr::Unary(operator, operand) => unary(operator, &self.evaluate(operand)?),
            Expr::Binary(operator, left, right) => {
                let left = self.evaluate(left)?;
                match operator.as_str() {
                    "or" if left.is_true() => Ok(left),
                    "and" if !left.is_true() => Ok(left),
                    "or" | "and" => self.evaluate(right),
                    _ => binary(operator, &left, &self.evaluate(right)?),
                }
            }
            Expr::Chain(first, rest) => self.chain(first, rest),
            Expr::If { condition, yes, no } => {
                if self.evaluate(condition)?.is_true() {
                    self.evaluate(yes)
                } else {
                    self.evaluate(no)
                }
            }
            Expr::Call(name, args) => call(name, &self.all(args)?),
        }
    }

    fn all(&self, items: &[Expr]) -> Result<Vec<Value>, CodeError> {
        items.iter().map(|item| self.evaluate(item)).collect()
    }

    fn chain(&self, first: &Expr, rest: &[(String, Expr)]) -> Evaluated {
        let mut left = self.evaluate(first)?;
        for (operator, right) in rest {
            let right = self.evaluate(right)?;
            if !holds(operator, &left, &right)? {
                return Ok(Value::Int(0));
            }
            left = right;
        }
        Ok(Value::Int(1))
    }
}

fn holds(operator: &str, left: &Value, right: &Value) -> Result<bool, CodeError> {
    let contains = || match right {
        Value::Tuple(items) => Ok(items.iter().any(|item| item.equals(left))),
        Value::Text(text) => Ok(matches!(left, Value::Text(part) if text.contains(part.as_str()))),
        _ => Err(unsupported("'in' a number")),
    };
    match operator {
        "==" => return Ok(left.equals(right)),
        "!=" => return Ok(!left.equals(right)),
        "in" => return contains(),
        "not in" => return contains().map(|found| !found),
        _ => {}
    }
    let order = left.compare(right).ok_or_else(|| unsupported(format!("{left} {operator} {right}")))?;
    Ok(match operator {
        "<" => order == Ordering::Less,
        "<=" => order != Ordering::Greater,
        ">" => order == Ordering::Greater,
        _ => order != Ordering::Less,
    })
}

fn unary(operator: &str, operand: &Value) -> Evaluated {
    match (operator, operand) {
        ("not", _) => Ok(Value::Int((!operand.is_true()).into())),
        ("-", Value::Int(value)) => {
            value.checked_neg().map(Value::Int).ok_or_else(|| unsupported("a number this large"))
        }
        ("-", Value::Float(value)) => Ok(Value::Float(-value)),
        ("~", Value::Int(value)) => Ok(Value::Int(!value)),
        ("+", Value::Int(_) | Value::Float(_)) => Ok(operand.clone()),
        _ => Err(unsupported(format!("{operator}{operand}"))),
    }
}

fn binary(operator: &str, left: &Value, right: &Value) -> Evaluated {
    let refused = || unsupported(format!("{left} {operator} {right}"));
    match (operator, left, right) {
        ("%", Value::Text(text), value) => Ok(Value::Text(format(text, value))),
        ("+", Value::Text(a), Value::Text(b)) => Ok(Value::Text(format!("{a}{b}"))),
        ("/", _, _) => {
            let (a, b) = (left.number().ok_or_else(refused)?, right.number().ok_or_else(refused)?);
            if b == 0.0 { Err(refused()) } else { Ok(Value::Float(a / b)) }
        }
        (_, Value::Int(a), Value::Int(b)) => integers(operator, *a, *b).map(Value::Int).ok_or_else(refused),
        _ => {
            let (a, b) = (left.number().ok_or_else(refused)?, right.number().ok_or_else(refused)?);
            floats(operator, a, b).map(Value::Float).ok_or_else(refused)
        }
    }
}

fn integers(operator: &str, a: i128, b: i128) -> Option<i128> {
    // Python rounds towards minus infinity.
    let floor_div = || Some(a.checked_div(b)? - i128::from(a % b != 0 && (a < 0) != (b < 0)));
    match operator {
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "//" => floor_div(),
        "%" => a.checked_sub(floor_div()?.checked_mul(b)?),
        "**" => a.checked_pow(u32::try_from(b).ok()?),
        "&" => Some(a & b),
        "|" => Some(a | b),
        "^" => Some(a ^ b),
        "<<" => a.checked_mul(1_i128.checked_shl(u32::try_from(b).ok()?).filter(|factor| *factor > 0)?),
        ">>" => a.checked_shr(u32::try_from(b).ok()?),
        _ => None,
    }
}

fn floats(operator: &str, a: f64, b: f64) -> Option<f64> {
    match operator {
        "+" => Some(a + b),
        "-" => Some(a - b),
        "*" => Some(a * b),
        "//" if b != 0.0 => Some((a / b).floor()),
        "%" if b != 0.0 => Some(a - (a / b).floor() * b),
        "**" => Some(a.powf(b)),
        _ => None,
    }
}

fn call(name: &str, args: &[Value]) -> Evaluated {
    let refused = || unsupported(format!("{name}()"));
    match (name, args) {
        ("print", _) => Ok(Value::None),
        ("abs", [Value::Int(value)]) => value.checked_abs().map(Value::Int).ok_or_else(refused),
        ("abs", [Value::Float(value)]) => Ok(Value::Float(value.abs())),
        ("int", [Value::Float(value)]) if value.is_finite() => Ok(Value::Int(value.trunc() as i128)),
        ("round", [Value::Float(value)]) if value.is_finite() => Ok(Value::Int(value.round_ties_even() as i128)),
        ("int" | "round", [Value::Int(_)]) => Ok(args[0].clone()),
        ("float", [value]) => value.number().map(Value::Float).ok_or_else(refused),
        ("str", [value]) => Ok(Value::Text(value.to_string())),
        ("len", [Value::Text(text)]) => Ok(Value::Int(text.chars().count() as i128)),
        ("len", [Value::Tuple(items)]) => Ok(Value::Int(items.len() as i128)),
        ("min" | "max", [Value::Tuple(items)]) => call(name, items),
        ("min" | "max", [first, rest @ ..]) if !matches!(first, Value::Tuple(_)) => {
            let wanted = if name == "min" { Ordering::Less } else { Ordering::Greater };
            rest.iter().try_fold(first.clone(), |best, value| {
                let order = value.compare(&best).ok_or_else(refused)?;
                Ok(if order == wanted { value.clone() } else { best })
            })
        }
        _ => Err(refused()),
    }
}
