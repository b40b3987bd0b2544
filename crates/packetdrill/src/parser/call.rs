//! System calls: `+0 read(4, ..., 1000) = -1 EAGAIN (Resource temporarily unavailable)`.

use core::net::IpAddr;

use super::{MAX_DEPTH, Parsed, Parser};
use crate::ast::{Call, Expr, Field};
use crate::token::Token;

impl Parser<'_> {
    pub(super) fn call(&mut self) -> Parsed<Call> {
        let end = if self.peek() == Some(Token::Ellipsis) {
            self.at += 1;
            Some(self.time()?)
        } else {
            None
        };
        let name = self.word("the name of a system call")?;
        self.sign('(')?;
        let args = self.expressions(')')?;
        self.sign('=')?;
        let result = self.expression()?;
        let errno = self.peek_word();
        self.at += usize::from(errno.is_some());
        if self.take_sign('(') {
            self.note()?;
        }
        Ok(Call { end, name, args, result, errno })
    }

    /// Skips words in parentheses, which are not compared.
    fn note(&mut self) -> Parsed<()> {
        while !self.take_sign(')') {
            if self.next().is_none() {
                return Err(self.expected("')' after the note"));
            }
        }
        Ok(())
    }

    /// Expressions up to and including `close`.
    fn expressions(&mut self, close: char) -> Parsed<Vec<Expr>> {
        let mut expressions = Vec::new();
        if self.take_sign(close) {
            return Ok(expressions);
        }
        loop {
            expressions.push(self.expression()?);
            if !self.take_sign(',') {
                self.sign(close)?;
                return Ok(expressions);
            }
        }
    }

    fn expression(&mut self) -> Parsed<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.expected("fewer nested expressions"));
        }
        let mut left = self.primary()?;
        while self.take_sign('|') {
            left = Expr::Or(Box::new(left), Box::new(self.primary()?));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let (from, _) = self.place();
        Ok(match self.next() {
            Some(Token::Ellipsis) => Expr::Ellipsis,
            Some(Token::Integer(text)) => {
                Expr::Int(text.parse().map_err(|_| self.error_at(from, "a number of 64 bits", text))?)
            }
            Some(Token::Hex(value)) => Expr::Int(value),
            Some(Token::Word(name)) if self.take_sign('(') => self.application(from, name)?,
            Some(Token::Word(name)) if self.take_sign('=') => {
                Expr::Struct(vec![Field { name: Some(name), value: self.expression()? }])
            }
            Some(Token::Word(name)) => Expr::Word(name),
            Some(Token::String(text)) => self.text(text),
            Some(Token::Sign('[')) => Expr::List(self.expressions(']')?),
            Some(Token::Sign('{')) => Expr::Struct(self.fields()?),
            found => return Err(self.expected_at(from, "an expression", found.as_ref())),
        })
    }

    /// Joins adjacent strings; `...` after one marks it as truncated.
    fn text(&mut self, mut text: String) -> Expr {
        while let Some(Token::String(more)) = self.peek() {
            self.at += 1;
            text.push_str(&more);
        }
        if self.peek() == Some(Token::Ellipsis) {
            self.at += 1;
        }
        Expr::Text(text)
    }

    fn application(&mut self, from: usize, name: String) -> Parsed<Expr> {
        let args = self.expressions(')')?;
        match (name.as_str(), args.as_slice()) {
            ("inet_addr" | "inet6_addr", [Expr::Text(text)]) => {
                let address: IpAddr = text.parse().map_err(|_| self.error_at(from, "an IP address", text.clone()))?;
                Ok(Expr::Address(address))
            }
            _ => Ok(Expr::Apply(name, args)),
        }
    }

    fn fields(&mut self) -> Parsed<Vec<Field>> {
        let mut fields = Vec::new();
        if self.take_sign('}') {
            return Ok(fields);
        }
        loop {
            fields.push(self.field()?);
            if !self.take_sign(',') {
                self.sign('}')?;
                return Ok(fields);
            }
        }
    }

    /// `name=value`, `name(count)=value`, or a value alone.
    fn field(&mut self) -> Parsed<Field> {
        let value = self.expression()?;
        match value {
            Expr::Apply(name, _) if self.take_sign('=') => Ok(Field { name: Some(name), value: self.expression()? }),
            Expr::Struct(mut inner) if inner.len() == 1 && inner[0].name.is_some() => Ok(inner.remove(0)),
            value => Ok(Field { name: None, value }),
        }
    }
}
