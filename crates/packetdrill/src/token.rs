//! The tokens of scripts, with their positions.

use core::fmt;
use core::ops::Range;

use logos::Logos;

/// A token. Keywords are ordinary words, because their meaning depends on the context (`ack`, for example).
#[derive(Logos, Clone, PartialEq, Debug)]
#[logos(skip r"[ \t\r\n\f]+")]
#[logos(skip(r"//[^\n]*", allow_greedy = true))]
#[logos(skip r"/\*([^*]|\*+[^*/])*\*+/")]
pub(crate) enum Token {
    #[token("...")]
    Ellipsis,
    #[regex(r"--[a-zA-Z0-9_]+", |lex| lex.slice()[2..].to_owned())]
    Option(String),
    #[regex(r"-?[0-9]*\.[0-9]+", |lex| lex.slice().to_owned(), priority = 6)]
    Float(String),
    #[regex(r"-?[0-9]+", |lex| lex.slice().to_owned(), priority = 5)]
    Integer(String),
    #[regex(r"0x[0-9a-fA-F]+", |lex| i64::from_str_radix(&lex.slice()[2..], 16).ok(), priority = 5)]
    Hex(i64),
    #[regex(r"[a-zA-Z0-9_]+", |lex| lex.slice().to_owned(), priority = 2)]
    Word(String),
    #[regex(r#""(\\[^\n]|[^"\\])*""#, |lex| unquoted(lex.slice()))]
    String(String),
    #[regex(r"`(\\(.|\n)|[^`\\])*`", |lex| unquoted(lex.slice()))]
    Command(String),
    #[token("%{", code)]
    Code(String),
    #[regex(r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+", |lex| lex.slice().to_owned(), priority = 9)]
    Ipv4(String),
    #[regex(
        r"([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){0,6})?::(([0-9a-fA-F]{1,4}:){0,5}([0-9]+\.[0-9]+\.[0-9]+\.[0-9]+|[0-9a-fA-F]{1,4}))?",
        |lex| lex.slice().to_owned(),
        priority = 9
    )]
    #[regex(r"([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}", |lex| lex.slice().to_owned(), priority = 9)]
    Ipv6(String),
    /// Directives are obeyed by the lexer, which returns none.
    #[token("#ifdef")]
    IfDefined,
    #[token("#endif")]
    EndIf,
    #[regex(r"[-+*~=:,.<>()\[\]{}|#/!]", |lex| lex.slice().chars().next(), priority = 1)]
    Sign(char),
}

/// The text between the quotes.
fn unquoted(quoted: &str) -> String {
    quoted[1..quoted.len() - 1].to_owned()
}

/// The text up to `}%`, without blanks at either end.
fn code(lexer: &mut logos::Lexer<'_, Token>) -> Option<String> {
    let length = lexer.remainder().find("}%")?;
    let text = lexer.remainder()[..length].trim_matches([' ', '\t']).to_owned();
    lexer.bump(length + 2);
    Some(text)
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ellipsis => write!(f, "'...'"),
            Self::Option(name) => write!(f, "'--{name}'"),
            Self::Float(text) | Self::Integer(text) | Self::Word(text) | Self::Ipv4(text) | Self::Ipv6(text) => {
                write!(f, "'{text}'")
            }
            Self::Hex(value) => write!(f, "'{value:#x}'"),
            Self::String(_) => write!(f, "a string"),
            Self::Command(_) => write!(f, "a command"),
            Self::Code(_) => write!(f, "code"),
            Self::IfDefined => write!(f, "'#ifdef'"),
            Self::EndIf => write!(f, "'#endif'"),
            Self::Sign(sign) => write!(f, "'{sign}'"),
        }
    }
}

/// A token and its position.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Spanned {
    pub(crate) token: Token,
    pub(crate) span: Range<usize>,
}
