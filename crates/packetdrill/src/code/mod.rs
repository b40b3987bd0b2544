//! Code between `%{` and `}%`: the subset of Python that scripts use for assertions about `tcp_info`.
//!
//! Supported are `assert`, assignment (also `+=` and the like), `print` and `pass`; numbers, strings, tuples; `or`, `and`, `not`, `x if c
//! else y`, comparisons and chains of them, `|`, `^`, `&`, shifts, arithmetic, `%` on strings; `abs`, `min`, `max`, `int`, `float`, `str`,
//! `len` and `round`. Anything else is rejected with its name.

mod eval;
mod parse;
mod value;

use std::collections::BTreeMap;

use eval::Scope;
pub(crate) use value::Value;

/// The variables of a script's code, shared by all its blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables(BTreeMap<String, Value>);

/// An early end of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CodeError {
    /// A failed assertion: its text and its message.
    Assertion { text: String, message: String },
    /// An unsupported construct.
    Unsupported { what: String },
    /// An undefined name.
    UnknownName { name: String },
}

impl Variables {
    /// Sets a variable from outside the code: a field of `tcp_info`, or a kernel constant for its values.
    pub(crate) fn set(&mut self, name: &str, value: i64) {
        self.0.insert(name.to_owned(), Value::Int(value.into()));
    }

    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Runs a block to its end, or to the first error.
    pub(crate) fn run(&mut self, text: &str) -> Result<(), CodeError> {
        let block = parse::parse(text)?;
        let mut scope = Scope { text, variables: &mut self.0 };
        block.iter().try_for_each(|statement| scope.execute(statement))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Result<(), CodeError> {
        let mut variables = Variables::default();
        variables.set("tcpi_snd_cwnd", 10);
        variables.set("tcpi_rtt", 10_000);
        variables.run(text)
    }

    #[test]
    fn true_assertions_pass() {
        for text in [
            "",
            "assert tcpi_snd_cwnd == 10, tcpi_snd_cwnd",
            "assert 5000 <= tcpi_rtt <= 20000, 'srtt=%d us' % tcpi_rtt",
            "cwnd = 3; cwnd += 7\nassert tcpi_snd_cwnd == cwnd  # a comment",
            "assert (tcpi_snd_cwnd & 0x2) != 0 and not tcpi_rtt < 5 or False",
            "assert (tcpi_snd_cwnd ==\n   10)\nprint(tcpi_snd_cwnd)",
            "assert tcpi_rtt == 1e4; \\\n assert 7 // 2 == 3 and -7 // 2 == -4 and 7 / 2 == 3.5 and -7 % 3 == 2",
            "assert (1 if tcpi_rtt > 5 else 2) == 1 and max(1, 2, abs(-3)) == 3 and len('ab') == 2",
            "assert 2 ** 3 ** 2 == 512 and -2 ** 2 == -4 and 1 << 4 == 16 and ~0 == -1 and 6 ^ 3 == 5",
            "assert 2 in (1, 2) and 3 not in (1, 2)",
            "pass",
        ] {
            assert_eq!(run(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn failed_assertions_quote_the_expression() {
        let error = run("assert tcpi_rtt == 10000\nassert tcpi_snd_cwnd == 11, 'cwnd=%d of %s' % (tcpi_snd_cwnd, 'x')");
        let text = "tcpi_snd_cwnd == 11".to_owned();
        assert_eq!(error, Err(CodeError::Assertion { text, message: "cwnd=10 of x".to_owned() }));
        assert!(matches!(run("assert 1 > 2 > 0"), Err(CodeError::Assertion { .. })));
        assert!(matches!(run("assert not True"), Err(CodeError::Assertion { .. })));
    }

    #[test]
    fn unsupported_code_is_refused_by_name() {
        assert_eq!(run("assert a == 1"), Err(CodeError::UnknownName { name: "a".to_owned() }));
        for text in [
            "for x in y: pass",
            "import os",
            "assert 1 +",
            "x = 1 / 0",
            "assert open('f')",
            "(",
            "'",
            "1 << 999",
            "9**99",
        ] {
            assert!(matches!(run(text), Err(CodeError::Unsupported { .. } | CodeError::UnknownName { .. })), "{text}");
        }
    }
}
