//! The control socket: a question and its answer, each a line of JSON, over a Unix socket that root alone may use.

use std::net::IpAddr;
use std::path::Path;

use holdover_host::control_client::{self, Answer};
use holdover_host::control_line::RequestError;
use holdover_host::time_text::Time;
use serde::{Deserialize, Serialize};

pub use crate::presence::MobileState;
use crate::status::{MobileLine, Status};

/// Where the socket is if no other place is named.
pub const DEFAULT_SOCKET: &str = "/run/holdover/gateway.sock";

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
        let expected = Request::Mobile { address: [10, 0, 1, 7].into(), presence: MobileState::Away };
        assert_eq!(parse(line), Ok(expected));
        assert_eq!(parse(br#"{"request":"status"}"#), Ok(Request::Status));
        for line in [
            &br#"{"request":"reboot"}"#[..],
            br#"{"request":"mobile","address":"phone","presence":"away"}"#,
            br#"{"request":"mobile","address":"10.0.1.7","presence":"asleep"}"#,
            br#"{"request":"drain"}"#,
        ] {
            let Response::Refused { message } = parse(line).unwrap_err().into() else { panic!("{line:?}") };
            assert!(message.starts_with("this is not a request: "), "{message}");
        }
        assert_eq!(control_line::write(&Response::Noted), b"{\"response\":\"noted\"}\n");
    }
}
