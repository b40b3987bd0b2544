//! The control socket: a question and its answer, each a line of JSON, over a Unix socket that root alone may use.

use std::io;
use std::path::{Path, PathBuf};

use holdover_host::control_line::RequestError;
use holdover_host::control_socket::{AnswerError, Client};
use serde::{Deserialize, Serialize};

use crate::status::Status;

/// Where the socket is if no other place is named.
pub const DEFAULT_SOCKET: &str = "/run/holdover-hip/control.sock";

/// What the daemon is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How is it all?
    Status,
    /// Read the file of peers again.
    Reload,
    /// End all associations, and then yourself.
    Down,
}

/// What the daemon answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "kebab-case")]
pub enum Response {
    /// How it all is.
    Status(Box<Status>),
    /// It is done, or will be.
    Done,
    /// No.
    Refused {
        /// Why, and what to do about it.
        message: String,
    },
}

/// The daemon could not be asked, or would not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody is there.
    #[error("no daemon answers at {} ({reason})\nstart it: sudo systemctl start holdover-hip, or sudo holdover hip up; or name its socket: --socket", path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// Why. It is in the text, before what to do, and so is no further cause.
        reason: io::Error,
    },
    /// The socket is not for this user.
    #[error("{} is for root only: sudo", path.display())]
    NotPermitted {
        /// The socket.
        path: PathBuf,
    },
    /// The daemon hung up, took too long, or was not understood.
    #[error("the daemon: {0}")]
    Answer(#[from] AnswerError),
    /// The daemon said no.
    #[error("{0}")]
    Refused(String),
}

impl From<RequestError> for Response {
    fn from(error: RequestError) -> Self {
        Self::Refused { message: error.to_string() }
    }
}

/// Asks the daemon at `path`.
///
/// # Errors
/// [`ClientError`]: no daemon runs, access is denied, or the answer is invalid.
pub fn ask(path: &Path, request: &Request) -> Result<Response, ClientError> {
    let mut client = Client::ask(path, request).map_err(|reason| match reason.kind() {
        io::ErrorKind::PermissionDenied => ClientError::NotPermitted { path: path.to_owned() },
        _ => ClientError::NotRunning { path: path.to_owned(), reason },
    })?;
    match client.next_answer(false)? {
        Some(Response::Refused { message }) => Err(ClientError::Refused(message)),
        Some(answer) => Ok(answer),
        None => Err(AnswerError::from(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up")).into()),
    }
}

#[cfg(test)]
mod tests {
    use holdover_host::control_line;

    use super::*;

    fn parse(line: &[u8]) -> Result<Request, RequestError> {
        control_line::parse(line)
    }

    #[test]
    fn lines_are_what_the_guide_says() {
        assert_eq!(parse(br#"{"request":"status"}"#), Ok(Request::Status));
        assert_eq!(parse(br#"{"request":"down"}"#), Ok(Request::Down));
        let Response::Refused { message } = parse(br#"{"request":"up"}"#).unwrap_err().into() else { panic!() };
        assert!(message.starts_with("this is not a request: unknown variant `up`"), "{message}");
        assert_eq!(control_line::write(&Response::Done), b"{\"response\":\"done\"}\n");
    }
}
