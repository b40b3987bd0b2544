//! The lexer of scripts.

use std::collections::BTreeMap;

use logos::Logos as _;

use crate::conditional::Conditional;
use crate::error::ScriptError;
use crate::token::{Spanned, Token};

/// The tokens of a script up to the first invalid one, and the error there. `defines` decide which conditional parts belong to it, with the
/// script's own definitions.
pub(crate) fn tokens(text: &str, defines: &BTreeMap<String, String>) -> (Vec<Spanned>, Option<ScriptError>) {
    let mut lexer = Token::lexer(text);
    let mut tokens = Vec::new();
    let mut conditional = Conditional::new(text, defines);
    while let Some(token) = lexer.next() {
        let span = lexer.span();
        let taken = match token {
            Ok(Token::IfDefined) => conditional.begin(span.start, lexer.remainder()).map(|length| lexer.bump(length)),
            Ok(Token::EndIf) => conditional.end(span.start),
            Ok(token) => {
                tokens.push(Spanned { token, span });
                conditional.note_definition(&tokens);
                Ok(())
            }
            Err(()) => {
                let found = text.get(span.clone()).unwrap_or_default().chars().take(20).collect::<String>();
                Err(ScriptError::at(text, span.start, "a token", format!("{found:?}")))
            }
        };
        if let Err(error) = taken {
            return (tokens, Some(error));
        }
    }
    (tokens, conditional.error_at_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens_of(text: &str) -> (Vec<Spanned>, Option<ScriptError>) {
        tokens(text, &BTreeMap::new())
    }

    fn all(text: &str) -> Vec<Token> {
        let (tokens, error) = tokens_of(text);
        assert_eq!(error, None);
        tokens.into_iter().map(|spanned| spanned.token).collect()
    }

    fn integer(text: &str) -> Token {
        Token::Integer(text.to_owned())
    }

    #[test]
    fn sequence_numbers_are_not_ipv6_addresses() {
        let seq = [integer("1"), Token::Sign(':'), integer("1001"), Token::Sign('(')];
        assert_eq!(all("1:1001(1000)")[..4], seq);
        assert_eq!(all("fd3d::1"), [Token::Ipv6("fd3d::1".to_owned())]);
        assert_eq!(all("::ffff:192.0.2.1"), [Token::Ipv6("::ffff:192.0.2.1".to_owned())]);
        assert_eq!(all("192.0.2.1"), [Token::Ipv4("192.0.2.1".to_owned())]);
    }

    #[test]
    fn the_end_time_of_a_blocking_call_is_no_part_of_its_start() {
        assert_eq!(all("0...0.1"), [integer("0"), Token::Ellipsis, Token::Float("0.1".to_owned())]);
        assert_eq!(all("+.1...0.200")[1], Token::Float(".1".to_owned()));
    }

    #[test]
    fn comments_and_code_are_one_token_or_none() {
        assert_eq!(all("// a\n/* b * c\n **/ 0x1F // end"), [Token::Hex(31)]);
        assert_eq!(all("%{ assert a == {}, b }%"), [Token::Code("assert a == {}, b".to_owned())]);
        assert_eq!(all("`echo \\`a\\``"), [Token::Command("echo \\`a\\`".to_owned())]);
    }

    #[test]
    fn invalid_tokens_are_named_with_their_place() {
        let (before, error) = tokens_of("0 ok\n  $5");
        let error = error.unwrap();
        assert_eq!((before.len(), error.line, error.column), (2, 2, 3));
        assert!(tokens_of("%{ never ends").1.is_some());
        assert!(tokens_of("\"never ends").1.is_some());
    }
}
