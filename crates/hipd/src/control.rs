//! The control socket: requests and responses, one line of JSON each, over a Unix socket that only root may use.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use holdover_host::control_client::{self, Answer};
use holdover_host::control_line::RequestError;
use serde::{Deserialize, Serialize};

use crate::files::Via;
use crate::invitation::Secret;
use crate::status::Status;

/// The default path of the socket.
pub const DEFAULT_SOCKET: &str = "/run/holdover-hip/control.sock";

/// A request to the daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Requests the status.
    Status,
    /// Reloads the file of peers.
    Reload,
    /// Opens an invitation.
    Invite {
        /// How long it lasts, unless the questions about it end before.
        valid_s: u64,
    },
    /// Asks for the state of an invitation. Without this question for 10 s, it ends.
    Invitation {
        /// Its number.
        number: u64,
    },
    /// Ends an invitation.
    Withdraw {
        /// Its number.
        number: u64,
    },
    /// Reloads the file of peers, and accepts the invitation of one of them.
    Join {
        /// Its HIT.
        hit: Ipv6Addr,
        /// The secret of its invitation.
        secret: Secret,
        /// This host's own invitation, without a secret.
        own: String,
    },
    /// Opens an association with whatever host answers at an address, if the settings allow it.
    Call {
        /// The address.
        address: IpAddr,
        /// The encapsulation of packets to it.
        via: Via,
    },
    /// Asks for the state of a call. Without this question for 5 s, it ends.
    CallState {
        /// Its number.
        number: u64,
    },
    /// Ends a call, and the association that it has opened unless the host is in the file of peers.
    HangUp {
        /// Its number.
        number: u64,
    },
    /// Ends all associations, and then the daemon.
    Down,
}

/// A response of the daemon.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "kebab-case")]
pub enum Response {
    /// The status.
    Status(Box<Status>),
    /// The request is done, or will be.
    Done,
    /// An invitation is open.
    Invited {
        /// Its number.
        number: u64,
        /// Its secret.
        secret: Secret,
    },
    /// The call has begun.
    Calling {
        /// Its number.
        number: u64,
    },
    /// There is an association with the host that has answered the call.
    Answered {
        /// Its HIT.
        hit: Ipv6Addr,
    },
    /// The invitation was not accepted, or the call not answered.
    Open,
    /// A host has accepted it.
    Joined {
        /// Its HIT, which its signature has proved.
        hit: Ipv6Addr,
        /// Its own invitation, as it has sent it.
        invitation: String,
    },
    /// The invitation or call has ended.
    Ended,
    /// The request was refused.
    Refused {
        /// The reason, with its remedy.
        message: String,
    },
}

/// A request to the daemon failed.
pub type ClientError = control_client::ClientError<String>;

impl Answer for Response {
    type Refusal = String;
    const DAEMON: &'static str = "HIP daemon";
    const START: &'static str = "sudo systemctl start holdover-hip, or sudo holdover hip up";

    fn accepted(self) -> Result<Self, String> {
        match self {
            Self::Refused { message } => Err(message),
            answer => Ok(answer),
        }
    }
}

impl From<RequestError> for Response {
    fn from(error: RequestError) -> Self {
        Self::Refused { message: error.to_string() }
    }
}

/// Sends the daemon with this control socket a request, and waits for its answer.
///
/// # Errors
/// See [`ClientError`].
pub fn ask(path: &Path, request: &Request) -> Result<Response, ClientError> {
    control_client::Client::ask(path, request)?.answer()
}

/// The state of the daemon with this control socket.
///
/// # Errors
/// See [`ClientError`].
pub fn status(path: &Path) -> Result<Status, ClientError> {
    match ask(path, &Request::Status)? {
        Response::Status(status) => Ok(*status),
        _ => Err(ClientError::unexpected::<Response>()),
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
        assert!(message.starts_with("invalid request: unknown variant `up`"), "{message}");
        assert_eq!(control_line::write(&Response::Done), b"{\"response\":\"done\"}\n");
    }
}
