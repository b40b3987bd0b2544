//! Whoever asks the agent.

use std::io;
use std::path::{Path, PathBuf};

use holdover_host::control_socket::{self, AnswerError};

use super::{Refusal, Request, Response};

/// A connection to the agent, for one request.
#[derive(Debug)]
pub struct Client(control_socket::Client);

/// The agent could not be asked, or would not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody is there.
    #[error("no agent answers at {}: {}\nstart it: sudo systemctl start holdover-agent; or name its socket: --socket", path.display(), why_not(reason))]
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
    /// The agent hung up or took too long.
    #[error("the agent did not answer: {0}")]
    Broken(#[from] io::Error),
    /// The answer was not understood.
    #[error("the agent's answer was not understood ({0}): is it of another version?")]
    NotUnderstood(#[from] serde_json::Error),
    /// The agent said no.
    #[error("{0}")]
    Refused(Refusal),
}

/// What the kernel's reason for not connecting means.
fn why_not(reason: &io::Error) -> String {
    match reason.kind() {
        io::ErrorKind::NotFound => "there is no such socket".to_owned(),
        io::ErrorKind::ConnectionRefused => "the one whose socket it was has ended".to_owned(),
        _ => reason.to_string(),
    }
}

impl Client {
    /// Sends a request.
    ///
    /// # Errors
    /// Nobody is there, or the socket is for others.
    pub fn ask(path: &Path, request: &Request) -> Result<Self, ClientError> {
        control_socket::Client::ask(path, request).map(Self).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => ClientError::NotPermitted { path: path.to_owned() },
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NotRunning { path: path.to_owned(), reason: source }
            }
            _ => ClientError::Broken(source),
        })
    }

    /// The answer.
    ///
    /// # Errors
    /// It does not come in time, is not understood, or is a refusal.
    pub fn answer(mut self) -> Result<Response, ClientError> {
        let none = || io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up");
        self.next_answer(false)?.ok_or_else(|| none().into())
    }

    /// The next of several answers, however long it takes; `None` when the agent hangs up.
    ///
    /// # Errors
    /// It is not understood, or is a refusal.
    pub fn follow(&mut self) -> Result<Option<Response>, ClientError> {
        self.next_answer(true)
    }

    fn next_answer(&mut self, patient: bool) -> Result<Option<Response>, ClientError> {
        match self.0.next_answer(patient).map_err(ClientError::from)? {
            Some(Response::Refused { reason, .. }) => Err(ClientError::Refused(reason)),
            answer => Ok(answer),
        }
    }
}

impl From<AnswerError> for ClientError {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Broken(error) => Self::Broken(error),
            AnswerError::NotUnderstood(error) => Self::NotUnderstood(error),
        }
    }
}
