//! The control socket: a question and its answer, each a line of JSON, over a Unix socket that root alone may use.

use std::net::IpAddr;
use std::path::Path;

use holdover_host::control_socket::{AnswerError, Client};
use holdover_host::time_text::Time;
use serde::{Deserialize, Serialize};

pub use crate::presence::MobileState;
use crate::status::{MobileLine, Status};

/// Where the socket is if no other place is named.
pub const DEFAULT_SOCKET: &str = "/run/holdover/gateway.sock";

/// No request is longer, its line feed included.
pub const LONGEST_REQUEST: usize = 4096;

/// What the gateway is asked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How is it all?
    Status,
    /// Which mobile hosts are there?
    Mobiles,
    /// Something has become of a mobile host.
    Mobile {
        /// Its address.
        address: IpAddr,
        /// What.
        presence: MobileState,
    },
    /// A mobile host has come here from another gateway: the others are asked for what waits for it.
    Handoff {
        /// Its address.
        address: IpAddr,
    },
    /// Divert nothing from now on, and end when nothing waits any more.
    Drain {
        /// End after this time in any case; what still waits stays for the next process.
        within: Time,
    },
}

/// What the gateway answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "kebab-case")]
pub enum Response {
    /// How it all is.
    Status(Box<Status>),
    /// The mobile hosts.
    Mobiles {
        /// In the order of their addresses.
        mobiles: Vec<MobileLine>,
    },
    /// It was noted.
    Noted,
    /// It drains: so many packets wait.
    Draining {
        /// Packets.
        waiting: u64,
    },
    /// No.
    Refused {
        /// Why, with what to do about it.
        message: String,
    },
}

/// The gateway could not be asked, or would not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody is there.
    #[error(
        "no gateway answers at {path}: {reason}\nstart it: sudo holdover gateway run --interface IF; or name its socket: --socket"
    )]
    NotRunning {
        /// The socket.
        path: String,
        /// Why.
        reason: std::io::Error,
    },
    /// The socket is not for this user.
    #[error("{path} is for root only: sudo")]
    NotPermitted {
        /// The socket.
        path: String,
    },
    /// The answer cannot be had.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// It hung up.
    #[error("the gateway hung up without an answer")]
    HungUp,
    /// The gateway said no.
    #[error("{0}")]
    Refused(String),
}

/// Asks the gateway whose socket this is.
///
/// # Errors
/// Nobody is there, the socket is for others, or the answer is no.
pub fn ask(path: &Path, request: &Request) -> Result<Response, ClientError> {
    let mut client = Client::ask(path, request).map_err(|reason| {
        let path = path.display().to_string();
        match reason.kind() {
            std::io::ErrorKind::PermissionDenied => ClientError::NotPermitted { path },
            _ => ClientError::NotRunning { path, reason },
        }
    })?;
    match client.next_answer(false)?.ok_or(ClientError::HungUp)? {
        Response::Refused { message } => Err(ClientError::Refused(message)),
        answer => Ok(answer),
    }
}

impl Request {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| format!("this is not a request: {error}"))
    }
}

impl Response {
    /// A line, its line feed included.
    pub fn to_line(&self) -> Vec<u8> {
        // Every value is a text, a number, a truth value or a list of these, which JSON has.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_what_the_guide_says() {
        let line = br#"{"request":"mobile","address":"10.0.1.7","presence":"away"}"#;
        let expected = Request::Mobile { address: [10, 0, 1, 7].into(), presence: MobileState::Away };
        assert_eq!(Request::parse(line), Ok(expected));
        assert_eq!(Request::parse(br#"{"request":"status"}"#), Ok(Request::Status));
        for line in [
            &b"hello"[..],
            b"",
            b"{}",
            b"\xff\xfe",
            br#"{"request":"mobile","address":"phone","presence":"away"}"#,
            br#"{"request":"mobile","address":"10.0.1.7","presence":"asleep"}"#,
            br#"{"request":"drain"}"#,
        ] {
            assert!(Request::parse(line).unwrap_err().starts_with("this is not a request: "), "{line:?}");
        }
        assert_eq!(Response::Noted.to_line(), b"{\"response\":\"noted\"}\n");
    }
}
