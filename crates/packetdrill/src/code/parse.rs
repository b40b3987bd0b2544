//! The parser of code.

use core::ops::Range;

use logos::Logos;

use super::{CodeError, Value};

#[derive(Logos, Clone, PartialEq, Debug)]
#[logos(skip r"[ \t\r\f]+")]
#[logos(skip(r"#[^\n]*", allow_greedy = true))]
#[logos(skip r"\\\r?\n")]
enum Token {
    #[regex(r"[\n;]")]
    End,
    #[regex(r"[0-9]+", |lex| lex.slice().parse().ok())]
    #[regex(r"0[xX][0-9a-fA-F]+", |lex| i128::from_str_radix(&lex.slice()[2..], 16).ok())]
    Int(i128),
    #[regex(r"[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?|\.[0-9]+([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+", |lex| lex.slice().parse().ok())]
    Float(f64),
    #[regex(r"[A-Za-z_][A-Za-z0-9_]*", |lex| lex.slice().to_owned())]
    Name(String),
    #[regex(r#"'[^'\n]*'|"[^"\n]*""#, |lex| { let text = lex.slice(); text[1..text.len() - 1].to_owned() })]
    Text(String),
    #[regex(r"\*\*|//|<<|>>|<=|>=|==|!=|[-+*/%&|^]=|[-+*/%&|^~<>=(),:\\]", |lex| lex.slice().to_owned(), priority = 3)]
    Sign(String),
}

/// A statement.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Statement {
    /// The condition with its position in the text, and the message if it fails.
    Assert {
        condition: Expr,
        text: Range<usize>,
        message: Option<Expr>,
    },
    Assign {
        name: String,
        operator: Option<String>,
        value: Expr,
    },
    Expr(Expr),
    Pass,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Expr {
    Value(Value),
    Name(String),
    Tuple(Vec<Expr>),
    Unary(String, Box<Expr>),
    Binary(String, Box<Expr>, Box<Expr>),
    /// The first operand, and each comparison with its right operand.
    Chain(Box<Expr>, Vec<(String, Expr)>),
    If {
        condition: Box<Expr>,
        yes: Box<Expr>,
        no: Box<Expr>,
    },
    Call(String, Vec<Expr>),
}

/// Binary operators from the loosest to the tightest; comparisons lie between `not` and these.
const LEVELS: [&[&str]; 6] = [&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"], &["*", "/", "//", "%"]];
const COMPARISONS: &[&str] = &["==", "!=", "<", "<=", ">", ">="];
/// The maximum nesting depth, far beyond that of real scripts.
const MAX_DEPTH: u32 = 50;

struct Parser {
    tokens: Vec<(Token, Range<usize>)>,
    at: usize,
    depth: u32,
}

type Parsed<T> = Result<T, CodeError>;

pub(super) fn parse(text: &str) -> Parsed<Vec<Statement>> {
    let mut tokens = Vec::new();
    let mut lexer = Token::lexer(text);
    let mut open = 0_u32;
    while let Some(token) = lexer.next() {
        let token = token.map_err(|()| unsupported(lexer.slice()))?;
        match &token {
            Token::Sign(sign) if sign == "(" => open += 1,
            Token::Sign(sign) if sign == ")" => open = open.saturating_sub(1),
            // A line continues within parentheses.
            Token::End if open > 0 => continue,
            _ => {}
        }
        tokens.push((token, lexer.span()));
    }
    let mut parser = Parser { tokens, at: 0, depth: 0 };
    let mut statements = Vec::new();
    loop {
        while parser.peek() == Some(&Token::End) {
            parser.at += 1;
        }
        if parser.peek().is_none() {
            return Ok(statements);
        }
        statements.push(parser.statement()?);
        if !matches!(parser.peek(), None | Some(Token::End)) {
            return Err(parser.unexpected());
        }
    }
}

fn unsupported(what: impl Into<String>) -> CodeError {
    CodeError::Unsupported { what: what.into() }
}

impl Parser {
    fn statement(&mut self) -> Parsed<Statement> {
        const OTHERS: &[&str] = &[
            "if", "for", "while", "def", "class", "import", "from", "return", "try", "with", "del", "global", "raise",
            "lambda",
        ];
        match self.peek() {
            Some(Token::Name(name)) if OTHERS.contains(&name.as_str()) => Err(unsupported(format!("'{name}'"))),
            Some(Token::Name(name)) if name == "pass" => {
                self.at += 1;
                Ok(Statement::Pass)
            }
            Some(Token::Name(name)) if name == "assert" => {
                self.at += 1;
                let start = self.place().start;
                let condition = self.expression()?;
                let end = self.tokens[self.at - 1].1.end;
                let message = if self.take(",") { Some(self.expression()?) } else { None };
                Ok(Statement::Assert { condition, text: start..end, message })
            }
            _ => self.assignment(),
        }
    }

    fn assignment(&mut self) -> Parsed<Statement> {
        if let [(Token::Name(name), _), (Token::Sign(sign), _), ..] = &self.tokens[self.at..]
            && let Some(operator) = sign.strip_suffix('=').filter(|_| !COMPARISONS.contains(&sign.as_str()))
        {
            let (name, operator) = (name.clone(), Some(operator.to_owned()).filter(|operator| !operator.is_empty()));
            self.at += 2;
            return Ok(Statement::Assign { name, operator, value: self.expression()? });
        }
        self.expression().map(Statement::Expr)
    }

    /// `a if c else b`, and expressions of higher precedence.
    fn expression(&mut self) -> Parsed<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(unsupported("an expression nested this deep"));
        }
        let yes = self.any()?;
        let expression = if self.take_name("if") {
            let condition = Box::new(self.any()?);
            if !self.take_name("else") {
                return Err(self.unexpected());
            }
            Expr::If { condition, yes: Box::new(yes), no: Box::new(self.expression()?) }
        } else {
            yes
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn any(&mut self) -> Parsed<Expr> {
        let mut left = self.all()?;
        while self.take_name("or") {
            left = Expr::Binary("or".to_owned(), Box::new(left), Box::new(self.all()?));
        }
        Ok(left)
    }

    fn all(&mut self) -> Parsed<Expr> {
        let mut left = self.not()?;
        while self.take_name("and") {
            left = Expr::Binary("and".to_owned(), Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Parsed<Expr> {
        let mut negations = 0;
        while self.take_name("not") {
            negations += 1;
        }
        let mut expression = self.comparison()?;
        for _ in 0..negations.min(2 + negations % 2) {
            expression = Expr::Unary("not".to_owned(), Box::new(expression));
        }
        Ok(expression)
    }

    fn comparison(&mut self) -> Parsed<Expr> {
        let first = self.binary(0)?;
        let mut rest = Vec::new();
        loop {
            let operator = match self.peek() {
                Some(Token::Sign(sign)) if COMPARISONS.contains(&sign.as_str()) => sign.clone(),
                Some(Token::Name(name)) if name == "in" => name.clone(),
                Some(Token::Name(name)) if name == "not" => {
                    self.at += 1;
                    "not in".to_owned()
                }
                _ => break,
            };
            self.at += 1;
            rest.push((operator, self.binary(0)?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Chain(Box::new(first), rest) })
    }

    fn binary(&mut self, level: usize) -> Parsed<Expr> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(Token::Sign(sign)) = self.peek()
            && operators.contains(&sign.as_str())
        {
            let operator = sign.clone();
            self.at += 1;
            left = Expr::Binary(operator, Box::new(left), Box::new(self.binary(level + 1)?));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(unsupported("an expression nested this deep"));
        }
        for sign in ["-", "+", "~"] {
            if self.take(sign) {
                let operand = self.unary()?;
                self.depth -= 1;
                return Ok(Expr::Unary(sign.to_owned(), Box::new(operand)));
            }
        }
        let base = self.primary()?;
        let power =
            if self.take("**") { Expr::Binary("**".to_owned(), Box::new(base), Box::new(self.unary()?)) } else { base };
        self.depth -= 1;
        Ok(power)
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let Some((token, _)) = self.tokens.get(self.at).cloned() else { return Err(self.unexpected()) };
        self.at += 1;
        Ok(match token {
            Token::Int(value) => Expr::Value(Value::Int(value)),
            Token::Float(value) => Expr::Value(Value::Float(value)),
            Token::Text(text) => Expr::Value(Value::Text(text)),
            Token::Name(name) if self.take("(") => Expr::Call(name, self.arguments()?.0),
            Token::Name(name) => match name.as_str() {
                "True" => Expr::Value(Value::Int(1)),
                "False" => Expr::Value(Value::Int(0)),
                "None" => Expr::Value(Value::None),
                _ => Expr::Name(name),
            },
            Token::Sign(sign) if sign == "(" => match self.arguments()? {
                (mut items, false) if items.len() == 1 => items.remove(0),
                (items, _) => Expr::Tuple(items),
            },
            _ => {
                self.at -= 1;
                return Err(self.unexpected());
            }
        })
    }

    /// Expressions up to the closing parenthesis, and whether a comma follows the last.
    fn arguments(&mut self) -> Parsed<(Vec<Expr>, bool)> {
        let mut items = Vec::new();
        let mut comma = false;
        while !self.take(")") {
            if !items.is_empty() && !comma {
                return Err(self.unexpected());
            }
            items.push(self.expression()?);
            comma = self.take(",");
        }
        Ok((items, comma))
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn place(&self) -> Range<usize> {
        self.tokens.get(self.at).map_or(0..0, |(_, span)| span.clone())
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(next)) if next == sign);
        self.at += usize::from(found);
        found
    }

    fn take_name(&mut self, name: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Name(next)) if next == name);
        self.at += usize::from(found);
        found
    }

    fn unexpected(&self) -> CodeError {
        match self.peek() {
            Some(Token::Name(name)) => unsupported(format!("'{name}' here")),
            Some(Token::Sign(sign)) => unsupported(format!("'{sign}' here")),
            Some(token) => unsupported(format!("{token:?} here")),
            None => unsupported("the end of the code here"),
        }
    }
}
