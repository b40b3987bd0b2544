//! Requests and answers on a control socket: a JSON value a line.
//!
//! Each daemon has its own requests and answers, as types with `serde`; reading and writing them, and the reasons to refuse a line, are the
//! same for all.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

/// No request is longer, in bytes, its line feed included.
pub const LONGEST_REQUEST: usize = 4096;

/// A line that is not a request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid request: {0}")]
pub struct RequestError(pub Fault);

/// Why a line is not a request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// It is longer than [`LONGEST_REQUEST`].
    #[error("it has more than {LONGEST_REQUEST} bytes")]
    TooLong,
    /// It is not text.
    #[error("it is not UTF-8 from byte {at} on")]
    NotUtf8 {
        /// The first byte that is not, counted from 0.
        at: usize,
    },
    /// It is not one JSON value.
    #[error("{message}")]
    NotJson {
        /// The error and its position.
        message: String,
    },
    /// It is JSON, but no request of this daemon: the word is unknown, an argument is missing, is unknown, or has a wrong value.
    #[error("{message}")]
    Unknown {
        /// The error and its position.
        message: String,
    },
}

/// Reads a request from a line without its line feed.
///
/// # Errors
/// The line is not a request of this type.
pub fn parse<R: DeserializeOwned>(line: &[u8]) -> Result<R, RequestError> {
    if line.len() >= LONGEST_REQUEST {
        return Err(RequestError(Fault::TooLong));
    }
    let text = str::from_utf8(line).map_err(|error| RequestError(Fault::NotUtf8 { at: error.valid_up_to() }))?;
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        RequestError(match error.classify() {
            Category::Data => Fault::Unknown { message },
            Category::Io | Category::Syntax | Category::Eof => Fault::NotJson { message },
        })
    })
}

/// A request or an answer as a line, its line feed included.
pub fn write(message: &impl Serialize) -> Vec<u8> {
    // JSON represents everything in a message: strings, numbers, booleans, lists of these and maps with string keys.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(PartialEq, Debug, Serialize, Deserialize)]
    #[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
    enum Request {
        Status,
        SetLead { lead_ms: u32 },
    }

    fn refused(line: &[u8]) -> Fault {
        parse::<Request>(line).expect_err("it is not a request").0
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        for request in [Request::Status, Request::SetLead { lead_ms: 300 }] {
            let line = write(&request);
            let (feed, text) = line.split_last().unwrap();
            assert_eq!((*feed, parse(text)), (b'\n', Ok(request)));
        }
        assert_eq!(write(&Request::Status), b"{\"request\":\"status\"}\n");
    }

    #[test]
    fn an_unknown_word_is_named_beside_those_that_are_known() {
        let fault = refused(br#"{"request":"reboot"}"#);
        assert!(matches!(fault, Fault::Unknown { .. }), "{fault:?}");
        let text = RequestError(fault).to_string();
        assert!(text.starts_with("invalid request: unknown variant `reboot`"), "{text}");
        assert!(text.contains("`status`") && text.contains("`set-lead`"), "{text}");
    }

    #[test]
    fn arguments_that_are_missing_unknown_or_wrong_are_named() {
        for (line, named) in [
            (&br#"{"request":"set-lead"}"#[..], "`lead_ms`"),
            (br#"{"request":"set-lead","lead_ms":-1}"#, "-1"),
            (br#"{"request":"set-lead","lead_ms":1,"lead_s":1}"#, "`lead_s`"),
            (b"{}", "`request`"),
            (b"[]", "request"),
            (br#""status""#, "status"),
        ] {
            let fault = refused(line);
            let Fault::Unknown { message } = &fault else { panic!("{fault:?}") };
            assert!(message.contains(named), "{message}");
        }
    }

    #[test]
    fn lines_other_than_one_json_value_are_refused() {
        for line in [&b""[..], b"hello", b"{\"request\":", br#"{"request":"status"} {"request":"status"}"#] {
            assert!(matches!(refused(line), Fault::NotJson { .. }), "{line:?}");
        }
    }

    #[test]
    fn lines_other_than_utf_8_are_refused_with_the_place() {
        assert_eq!(refused(b"\xff\xfe"), Fault::NotUtf8 { at: 0 });
        assert_eq!(refused(b"{\"request\":\"st\xe4tus\"}"), Fault::NotUtf8 { at: 14 });
    }

    #[test]
    fn a_line_of_the_longest_length_is_read_and_a_longer_one_is_refused() {
        let padded = |bytes: usize| format!("{:bytes$}", r#"{"request":"status"}"#);
        assert_eq!(
            parse(padded(LONGEST_REQUEST - 1).as_bytes()),
            Ok(Request::Status),
            "with its line feed it is as long as may be"
        );
        assert_eq!(refused(padded(LONGEST_REQUEST).as_bytes()), Fault::TooLong);
        // The rest of a line that is too long is skipped.
        assert_eq!(refused(&[0xff; LONGEST_REQUEST]), Fault::TooLong);
    }
}
