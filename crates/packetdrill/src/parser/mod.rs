//! The grammar of a script: options, commands and events. Packets are in `packet`, system calls in `call`.

mod call;
mod packet;

use std::collections::BTreeMap;

use crate::ast::{Action, Command, Event, EventTime, Script, ScriptOption};
use crate::error::{Offset, ScriptError, line_and_column};
use crate::lexer::tokens;
use crate::token::{Spanned, Token};

/// Words not replaced by definitions, as in packetdrill.
const KEYWORDS: &[&str] = &[
    "sa_family",
    "sin_port",
    "sin_addr",
    "msg_name",
    "msg_iov",
    "msg_flags",
    "msg_control",
    "cmsg_data",
    "cmsg_level",
    "cmsg_type",
    "fd",
    "u32",
    "u64",
    "ptr",
    "events",
    "revents",
    "onoff",
    "linger",
    "htons",
    "ipv4",
    "ipv6",
    "icmp",
    "udp",
    "gre",
    "mpls",
    "ttl",
    "inet_addr",
    "inet6_addr",
    "ack",
    "eol",
    "ecr",
    "mss",
    "mtu",
    "nop",
    "sack",
    "sackOK",
    "md5",
    "TS",
    "FO",
    "FOEXP",
    "ECN",
    "tos",
    "flowlabel",
    "val",
    "win",
    "urg",
    "wscale",
    "ect01",
    "ect0",
    "ect1",
    "noecn",
    "ce",
    "id",
];

/// The maximum nesting depth of expressions.
const MAX_DEPTH: u32 = 64;

impl Script {
    /// Parses a script. `defines` are the definitions given by `--define`; the script's own take precedence.
    pub fn parse(text: &str, defines: &BTreeMap<String, String>) -> Result<Self, ScriptError> {
        let (tokens, invalid) = tokens(text, defines);
        let mut parser = Parser { text, tokens, at: 0, defines: defines.clone(), depth: 0, dialect: None };
        let mut script = Self::default();
        let parsed = parser.script(&mut script);
        script.dialect = parser.dialect;
        if script.dialect.is_some() {
            return Ok(script);
        }
        let is_at_end = parser.at >= parser.tokens.len();
        match (parsed, invalid) {
            // An error before the invalid token comes first.
            (Err(error), Some(_)) if !is_at_end => Err(error),
            (_, Some(invalid)) => Err(invalid),
            (parsed, None) => parsed.map(|()| script),
        }
    }

    /// The value of the script's own option; the last one if it is given more than once.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|option| option.name == name).map(|option| option.value.as_str())
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Spanned>,
    at: usize,
    defines: BTreeMap<String, String>,
    depth: u32,
    /// The dialect or protocol of a construct that is not understood.
    dialect: Option<&'static str>,
}

type Parsed<T> = Result<T, ScriptError>;

/// The grammar, top down.
impl Parser<'_> {
    fn script(&mut self, script: &mut Script) -> Parsed<()> {
        while let Some(Token::Option(name)) = self.peek() {
            let option = self.option(name)?;
            if let Some((name, value)) = option.value.split_once('=').filter(|_| option.name == "define") {
                self.defines.insert(name.to_owned(), value.to_owned());
            }
            script.options.push(option);
        }
        script.init = self.command();
        loop {
            if let Some(cleanup) = self.command() {
                script.cleanup = Some(cleanup);
                break;
            }
            if self.peek().is_none() && !script.events.is_empty() {
                break;
            }
            let event = self.event()?;
            self.check_first(script, &event)?;
            script.events.push(event);
        }
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected("the end of the script after the last command")),
        }
    }

    fn check_first(&self, script: &Script, event: &Event) -> Parsed<()> {
        let at_zero = matches!(event.time, EventTime::Absolute(0) | EventTime::Relative(0));
        if script.events.is_empty() && !at_zero {
            let found = "a later time".to_owned();
            return Err(ScriptError {
                line: event.line,
                column: 1,
                expected: "a first event at time 0".to_owned(),
                found,
            });
        }
        Ok(())
    }

    fn option(&mut self, name: String) -> Parsed<ScriptOption> {
        self.at += 1;
        let mut value = String::new();
        while self.take_sign('=') {
            if !value.is_empty() {
                value.push('=');
            }
            let (from, _) = self.place();
            match self.next() {
                Some(
                    Token::Integer(part)
                    | Token::Float(part)
                    | Token::Word(part)
                    | Token::String(part)
                    | Token::Command(part)
                    | Token::Ipv4(part)
                    | Token::Ipv6(part),
                ) => value.push_str(&part),
                Some(Token::Hex(number)) => value.push_str(&format!("{number:#x}")),
                found => return Err(self.expected_at(from, "the option's value", found.as_ref())),
            }
        }
        Ok(ScriptOption { name, value })
    }

    fn command(&mut self) -> Option<Command> {
        let Some(Token::Command(text)) = self.peek() else { return None };
        let (_, line) = self.place();
        self.at += 1;
        Some(Command { line, text })
    }

    fn event(&mut self) -> Parsed<Event> {
        let (from, line) = self.place();
        let time = self.event_time()?;
        let action = match self.peek() {
            Some(Token::Sign('<' | '>')) => Action::Packet(Box::new(self.packet()?)),
            Some(Token::Command(text)) => {
                self.at += 1;
                Action::Command(text)
            }
            Some(Token::Code(text)) => {
                self.at += 1;
                Action::Code(text)
            }
            Some(Token::Word(_) | Token::Ellipsis) => Action::Call(Box::new(self.call()?)),
            _ => return Err(self.expected("a packet ('<' or '>'), a system call, a command or code")),
        };
        let outbound = matches!(&action, Action::Packet(packet) if !packet.inbound);
        if !outbound && !matches!(time, EventTime::Absolute(_) | EventTime::Relative(_)) {
            return Err(self.error_at(from, "an outbound packet after a range or '*'", "another event"));
        }
        Ok(Event { line, time, action })
    }

    fn event_time(&mut self) -> Parsed<EventTime> {
        let (from, _) = self.place();
        if self.take_sign('*') {
            return Ok(EventTime::Any);
        }
        let relative = self.take_sign('+');
        let start = self.time()?;
        if !self.take_sign('~') {
            return Ok(if relative { EventTime::Relative(start) } else { EventTime::Absolute(start) });
        }
        if relative {
            self.sign('+')?;
        }
        let end = self.time()?;
        if end < start {
            return Err(self.error_at(from, "a time range that goes forward", "one that goes backward"));
        }
        Ok(if relative { EventTime::RelativeRange(start, end) } else { EventTime::AbsoluteRange(start, end) })
    }

    /// Seconds, in microseconds.
    fn time(&mut self) -> Parsed<i64> {
        let (from, _) = self.place();
        match self.next() {
            Some(Token::Float(text) | Token::Integer(text)) => {
                micros(&text).ok_or_else(|| self.error_at(from, "a time in seconds, not below 0", text))
            }
            found => Err(self.expected_at(from, "a time in seconds", found.as_ref())),
        }
    }
}

/// Decimal seconds as microseconds; digits beyond the sixth are dropped.
fn micros(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: String = fraction.chars().chain("000000".chars()).take(6).collect();
    if whole < 0 || text.starts_with('-') {
        return None;
    }
    whole.checked_mul(1_000_000)?.checked_add(fraction.parse().ok()?)
}

/// Access to tokens.
impl Parser<'_> {
    /// The next token, with definitions replaced.
    fn peek(&self) -> Option<Token> {
        let token = &self.tokens.get(self.at)?.token;
        if let Token::Word(word) = token
            && !KEYWORDS.contains(&word.as_str())
            && let Some(value) = self.defines.get(word)
        {
            let (parts, invalid) = tokens(value, &self.defines);
            let mut parts = parts.into_iter().filter(|_| invalid.is_none());
            return match (parts.next(), parts.next()) {
                (Some(only), None) => Some(only.token),
                _ => Some(Token::Word(value.clone())),
            };
        }
        Some(token.clone())
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    fn peek_word(&self) -> Option<String> {
        match self.peek() {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn peek_sign(&self) -> Option<char> {
        match self.tokens.get(self.at)?.token {
            Token::Sign(sign) => Some(sign),
            _ => None,
        }
    }

    fn take_sign(&mut self, sign: char) -> bool {
        let found = self.peek_sign() == Some(sign);
        self.at += usize::from(found);
        found
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek_word().as_deref() == Some(word);
        self.at += usize::from(found);
        found
    }

    fn sign(&mut self, sign: char) -> Parsed<()> {
        if self.take_sign(sign) { Ok(()) } else { Err(self.expected(&format!("'{sign}'"))) }
    }

    fn word(&mut self, what: &str) -> Parsed<String> {
        let (from, _) = self.place();
        match self.next() {
            Some(Token::Word(word)) => Ok(word),
            found => Err(self.expected_at(from, what, found.as_ref())),
        }
    }

    /// A decimal or hexadecimal number of at most `most`.
    fn number(&mut self, what: &str, most: i64) -> Parsed<i64> {
        let (from, _) = self.place();
        let value = match self.next() {
            Some(Token::Integer(text)) => text.parse::<i64>().ok(),
            Some(Token::Hex(value)) => Some(value),
            found => return Err(self.expected_at(from, what, found.as_ref())),
        };
        match value {
            Some(value) if (0..=most).contains(&value) => Ok(value),
            _ => Err(self.error_at(from, &format!("{what} from 0 to {most}"), "a number out of range")),
        }
    }

    fn u32(&mut self, what: &str) -> Parsed<u32> {
        self.number(what, u32::MAX.into()).map(|value| value as u32)
    }

    fn u16(&mut self, what: &str) -> Parsed<u16> {
        self.number(what, u16::MAX.into()).map(|value| value as u16)
    }

    fn u8(&mut self, what: &str) -> Parsed<u8> {
        self.number(what, u8::MAX.into()).map(|value| value as u8)
    }

    /// The offset and line of the next token, or of the end.
    fn place(&self) -> (Offset, u32) {
        let offset = self.tokens.get(self.at).map_or(self.text.len(), |spanned| spanned.span.start);
        (offset, line_and_column(self.text, offset).0)
    }

    fn expected(&self, what: &str) -> ScriptError {
        let (offset, _) = self.place();
        self.expected_at(offset, what, self.peek().as_ref())
    }

    fn expected_at(&self, offset: Offset, what: &str, found: Option<&Token>) -> ScriptError {
        let found = found.map_or_else(|| "the end of the script".to_owned(), Token::to_string);
        self.error_at(offset, what, found)
    }

    fn error_at(&self, offset: Offset, expected: &str, found: impl Into<String>) -> ScriptError {
        ScriptError::at(self.text, offset, expected, found)
    }
}
