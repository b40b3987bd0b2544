//! The control socket: requests and responses, one line of JSON each, over a Unix socket that only root may use.
//!
//! A [`Request`] is answered by one [`Response`], after which the agent closes the connection. A [`Request::Actions`] with `follow` is
//! answered by actions until either end closes it.

mod client;

use core::fmt;

use holdover_base::Duration;
use holdover_host::control_line::RequestError;
use holdover_mobility::LinkEvent;
use serde::{Deserialize, Serialize};

pub use self::client::{Client, ClientError, status};
use crate::config::Time;
use crate::status::{ActionLine, Status};

/// The default path of the socket.
pub const DEFAULT_SOCKET: &str = "/run/holdover/agent.sock";

/// A request to the agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Reports a change of a link.
    Signal(SignalRequest),
    /// Requests the status.
    Status,
    /// Requests the latest actions.
    Actions {
        /// Whether to continue with future actions.
        #[serde(default)]
        follow: bool,
    },
}

/// A change of a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// The event.
    pub event: EventKind,
    /// The link's interface; missing for all managed links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The time until the cut, if known; for [`EventKind::Fading`] only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<Time>,
}

/// The kind of a [`LinkEvent`], as requests name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A cut is predicted.
    Fading,
    /// The prediction was wrong.
    Recovered,
    /// The link is down.
    Down,
    /// The link is up.
    Up,
}

/// A response of the agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "kebab-case")]
pub enum Response {
    /// The signal was passed to these links.
    Signalled {
        /// Their interfaces.
        links: Vec<String>,
    },
    /// The status.
    Status(Box<Status>),
    /// An action.
    Action(ActionLine),
    /// The request was refused.
    Refused {
        /// The reason.
        reason: Refusal,
        /// The reason as text, with its remedy.
        message: String,
    },
}

/// Why a request was refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Refusal {
    /// The line is not a valid request.
    #[error("invalid request: {message}")]
    NotUnderstood {
        /// The parser's message.
        message: String,
    },
    /// The agent does not manage that link.
    #[error("the agent does not manage interface \"{interface}\"; it manages: {}", list(links))]
    NoSuchLink {
        /// The link.
        interface: String,
        /// The managed links.
        links: Vec<String>,
    },
    /// The agent manages no link.
    #[error(
        "the agent manages no link yet: none has a default route, and none was asked for in [links] of its configuration"
    )]
    NoLinks,
    /// A time until the cut, with an event other than a warning.
    #[error("a lead belongs to \"fading\" only")]
    LeadWithoutWarning,
    /// A time until the cut of more than a day.
    #[error("a lead is at most one day; use a timetable for longer ones ([signals] schedule)")]
    LeadTooLong,
}

/// See [`Refusal::LeadTooLong`].
const LONGEST_LEAD: Duration = Duration::from_secs(86_400);

fn list(links: &[String]) -> String {
    if links.is_empty() { "none".to_owned() } else { links.join(", ") }
}

impl SignalRequest {
    /// The event for the mechanisms.
    ///
    /// # Errors
    /// [`Refusal::LeadWithoutWarning`], [`Refusal::LeadTooLong`].
    pub fn to_event(&self) -> Result<LinkEvent, Refusal> {
        match (self.event, self.lead) {
            (EventKind::Fading, Some(Time(lead))) if lead > LONGEST_LEAD => Err(Refusal::LeadTooLong),
            (EventKind::Fading, lead) => Ok(LinkEvent::Fading { lead: lead.map(|Time(lead)| lead) }),
            (_, Some(_)) => Err(Refusal::LeadWithoutWarning),
            (EventKind::Recovered, None) => Ok(LinkEvent::Recovered),
            (EventKind::Down, None) => Ok(LinkEvent::Down),
            (EventKind::Up, None) => Ok(LinkEvent::Up { symmetric: false, moved: false }),
        }
    }
}

impl From<RequestError> for Refusal {
    fn from(RequestError(fault): RequestError) -> Self {
        Self::NotUnderstood { message: fault.to_string() }
    }
}

impl From<Refusal> for Response {
    fn from(reason: Refusal) -> Self {
        Self::Refused { message: reason.to_string(), reason }
    }
}

impl EventKind {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fading => "fading",
            Self::Recovered => "recovered",
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use holdover_host::control_line;

    use super::*;

    fn parse(line: &[u8]) -> Result<Request, Refusal> {
        control_line::parse(line).map_err(Refusal::from)
    }

    #[test]
    fn lines_are_what_the_guide_says() {
        let signal = br#"{"request":"signal","event":"fading","interface":"wwan0","lead":"300ms"}"#;
        let lead = Some(Time(Duration::from_millis(300)));
        let expected = SignalRequest { event: EventKind::Fading, interface: Some("wwan0".into()), lead };
        assert_eq!(expected.to_event(), Ok(LinkEvent::Fading { lead: Some(Duration::from_millis(300)) }));
        assert_eq!(parse(signal), Ok(Request::Signal(expected)));
        assert_eq!(parse(br#"{"request":"status"}"#), Ok(Request::Status));
        assert_eq!(parse(br#"{"request":"actions"}"#), Ok(Request::Actions { follow: false }));
    }

    #[test]
    fn invalid_requests_are_refused_with_a_reason() {
        for line in [
            &b"hello"[..],
            br#"{"request":"reboot"}"#,
            br#"{"request":"signal"}"#,
            br#"{"request":"signal","event":"sideways"}"#,
            br#"{"request":"signal","event":"up","interfaces":["a"]}"#,
        ] {
            assert!(matches!(parse(line), Err(Refusal::NotUnderstood { .. })), "{line:?}");
        }
        let refusal = parse(br#"{"request":"reboot"}"#).unwrap_err();
        assert!(refusal.to_string().starts_with("invalid request: unknown variant `reboot`"), "{refusal}");
        let lead = Some(Time(Duration::from_millis(1)));
        let request = SignalRequest { event: EventKind::Up, interface: None, lead };
        assert_eq!(request.to_event(), Err(Refusal::LeadWithoutWarning));
        let lead = Some(Time(Duration::from_secs(86_401)));
        let request = SignalRequest { event: EventKind::Fading, interface: None, lead };
        assert_eq!(request.to_event(), Err(Refusal::LeadTooLong));
        let line = control_line::write(&Response::from(Refusal::LeadWithoutWarning));
        let text = String::from_utf8(line).unwrap();
        assert!(text.contains(r#""reason":{"kind":"lead-without-warning"}"#) && text.ends_with("}\n"), "{text}");
    }
}
