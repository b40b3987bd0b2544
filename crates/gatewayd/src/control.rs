//! The control socket: requests and responses, one line of JSON each, over a Unix socket that only root may use.

use std::net::IpAddr;
use std::path::Path;

pub use holdover_gateway::divert::Standing;
use holdover_host::control_client::{self, Answer};
use holdover_host::control_line::RequestError;
use holdover_host::time_text::Time;
use serde::{Deserialize, Serialize};

use crate::status::{MobileLine, Status};

/// The default path of the socket.
pub const DEFAULT_SOCKET: &str = "/run/holdover/gateway.sock";

/// A request to the gateway.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Requests the status.
    Status,
    /// Requests the list of mobile hosts.
    Mobiles,
    /// Reports a change of a mobile host's presence.
    Mobile {
        /// Its address.
        address: IpAddr,
        /// The presence.
        presence: Standing,
    },
    /// A mobile host has come here from another gateway: requests its packets from the others.
    Handoff {
        /// Its address.
        address: IpAddr,
    },
    /// Diverts nothing from now on, and ends when no packets wait.
    Drain {
        /// The longest time until the end; packets that still wait are left for the next process.
        within: Time,
    },
}

/// A response of the gateway.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "kebab-case")]
pub enum Response {
    /// The status.
    Status(Box<Status>),
    /// The mobile hosts.
    Mobiles {
        /// Ordered by address.
        mobiles: Vec<MobileLine>,
    },
    /// The report was noted.
    Noted,
    /// The gateway is draining.
    Draining {
        /// The number of packets that wait.
        waiting: u64,
    },
    /// The request was refused.
    Refused {
        /// The reason, with its remedy.
        message: String,
    },
}

/// A request to the gateway failed.
pub type ClientError = control_client::ClientError<String>;

impl Answer for Response {
    type Refusal = String;
    const DAEMON: &'static str = "gateway";
    const START: &'static str = "sudo holdover gateway run --interface IF";

    fn accepted(self) -> Result<Self, String> {
        match self {
            Self::Refused { message } => Err(message),
            answer => Ok(answer),
        }
    }
}

/// Sends the gateway with this control socket a request, and waits for its answer.
///
/// # Errors
/// See [`ClientError`].
pub fn ask(path: &Path, request: &Request) -> Result<Response, ClientError> {
    control_client::Client::ask(path, request)?.answer()
}

/// The state of the gateway with this control socket.
///
/// # Errors
/// See [`ClientError`].
pub fn status(path: &Path) -> Result<Status, ClientError> {
    match ask(path, &Request::Status)? {
        Response::Status(status) => Ok(*status),
        _ => Err(ClientError::unexpected::<Response>()),
    }
}

impl From<RequestError> for Response {
    fn from(error: RequestError) -> Self {
        Self::Refused { message: error.to_string() }
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
        let line = br#"{"request":"mobile","address":"10.0.1.7","presence":"away"}"#;
        let expected = Request::Mobile { address: [10, 0, 1, 7].into(), presence: Standing::Away };
        assert_eq!(parse(line), Ok(expected));
        assert_eq!(parse(br#"{"request":"status"}"#), Ok(Request::Status));
        for line in [
            &br#"{"request":"reboot"}"#[..],
            br#"{"request":"mobile","address":"phone","presence":"away"}"#,
            br#"{"request":"mobile","address":"10.0.1.7","presence":"asleep"}"#,
            br#"{"request":"drain"}"#,
        ] {
            let Response::Refused { message } = parse(line).unwrap_err().into() else { panic!("{line:?}") };
            assert!(message.starts_with("invalid request: "), "{message}");
        }
        assert_eq!(control_line::write(&Response::Noted), b"{\"response\":\"noted\"}\n");
    }
}
