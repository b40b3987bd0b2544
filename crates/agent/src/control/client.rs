//! Requests to the agent.

use std::path::Path;

use holdover_host::control_client::{self, Answer};

use super::{Refusal, Request, Response};
use crate::status::Status;

/// A connection to the agent, for one request.
pub type Client = control_client::Client<Response>;

/// A request to the agent failed.
pub type ClientError = control_client::ClientError<Refusal>;

impl Answer for Response {
    type Refusal = Refusal;
    const DAEMON: &'static str = "agent";
    const START: &'static str = "sudo systemctl start holdover-agent";

    fn accepted(self) -> Result<Self, Refusal> {
        match self {
            Self::Refused { reason, .. } => Err(reason),
            answer => Ok(answer),
        }
    }
}

/// The state of the agent with this control socket.
///
/// # Errors
/// See [`ClientError`].
pub fn status(path: &Path) -> Result<Status, ClientError> {
    match Client::ask(path, &Request::Status)?.answer()? {
        Response::Status(status) => Ok(*status),
        _ => Err(ClientError::unexpected::<Response>()),
    }
}
