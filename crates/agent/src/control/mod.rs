//! The control socket: a question and its answer, each a line of JSON, over a Unix socket that root alone may use.
//!
//! A request is [`Request`], an answer [`Response`]. After a [`Request::Actions`] that follows, answers go on until one of the two
//! hangs up; every other request has one answer, and the agent hangs up after it.

mod client;

use core::fmt;

use holdover_base::Duration;
use holdover_host::control_line::RequestError;
use holdover_mobility::LinkEvent;
use serde::{Deserialize, Serialize};

pub use self::client::{Client, ClientError, status};
use crate::config::Time;
use crate::status::{ActionLine, Status};

/// Where the socket is if no other place is named.
pub const DEFAULT_SOCKET: &str = "/run/holdover/agent.sock";

/// What the agent is asked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Something has become of a link.
    Signal(SignalRequest),
    /// How is it all?
    Status,
    /// What was done lately?
    #[serde(alias = "deeds")]
    Actions {
        /// Whether to go on with what will be done.
        #[serde(default)]
        follow: bool,
    },
}

/// Something has become of a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// What.
    pub event: Word,
    /// Which link; missing for all that the agent looks after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// In how long it will be cut, if that is known; for [`Word::Fading`] only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<Time>,
}

/// What can become of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// It is about to be cut.
    Fading,
    /// It is not after all.
    Recovered,
    /// It is cut.
    Down,
    /// It is back.
    Up,
}

/// What the agent answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "kebab-case")]
pub enum Response {
    /// The signal was passed to these links.
    Signalled {
        /// Their names.
        links: Vec<String>,
    },
    /// How it all is.
    Status(Box<Status>),
    /// Something that was done.
    Action(ActionLine),
    /// No.
    Refused {
        /// Why.
        reason: Refusal,
        /// The same in words, with what to do about it.
        message: String,
    },
}

/// Why a request was refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Refusal {
    /// It is not a request.
    #[error("this is not a request: {message}")]
    NotUnderstood {
        /// Why not.
        message: String,
    },
    /// The agent does not look after that link.
    #[error("the agent does not look after \"{interface}\"; it does after: {}", list(links))]
    NoSuchLink {
        /// The link.
        interface: String,
        /// Those that it looks after.
        links: Vec<String>,
    },
    /// There is no link that it looks after.
    #[error(
        "the agent looks after no link yet: none has a default route, and none was asked for in [links] of its configuration"
    )]
    NoLinks,
    /// A time to a cut, with something else than a warning.
    #[error("a lead belongs to \"fading\" only")]
    LeadWithoutWarning,
    /// A time to a cut that is longer than a day.
    #[error("a lead of more than a day is no warning; longer ones belong into a timetable ([signals] schedule)")]
    LeadTooLong,
}

/// See [`Refusal::LeadTooLong`].
const LONGEST_LEAD: Duration = Duration::from_secs(86_400);

fn list(links: &[String]) -> String {
    if links.is_empty() { "none".to_owned() } else { links.join(", ") }
}

impl SignalRequest {
    /// The same in the mechanisms' vocabulary.
    ///
    /// # Errors
    /// [`Refusal::LeadWithoutWarning`], [`Refusal::LeadTooLong`].
    pub fn to_event(&self) -> Result<LinkEvent, Refusal> {
        match (self.event, self.lead) {
            (Word::Fading, Some(Time(lead))) if lead > LONGEST_LEAD => Err(Refusal::LeadTooLong),
            (Word::Fading, lead) => Ok(LinkEvent::Fading { lead: lead.map(|Time(lead)| lead) }),
            (_, Some(_)) => Err(Refusal::LeadWithoutWarning),
            (Word::Recovered, None) => Ok(LinkEvent::Recovered),
            (Word::Down, None) => Ok(LinkEvent::Down),
            (Word::Up, None) => Ok(LinkEvent::Up { symmetric: false, moved: false }),
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

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fading => "fading",
            Self::Recovered => "recovered",
            Self::Down => "down",
            Self::Up => "up",
        })
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
        let expected = SignalRequest { event: Word::Fading, interface: Some("wwan0".into()), lead };
        assert_eq!(expected.to_event(), Ok(LinkEvent::Fading { lead: Some(Duration::from_millis(300)) }));
        assert_eq!(parse(signal), Ok(Request::Signal(expected)));
        assert_eq!(parse(br#"{"request":"status"}"#), Ok(Request::Status));
        assert_eq!(parse(br#"{"request":"actions"}"#), Ok(Request::Actions { follow: false }));
    }

    #[test]
    fn what_is_not_a_request_is_refused_with_a_reason() {
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
        assert!(refusal.to_string().starts_with("this is not a request: unknown variant `reboot`"), "{refusal}");
        let lead = Some(Time(Duration::from_millis(1)));
        let request = SignalRequest { event: Word::Up, interface: None, lead };
        assert_eq!(request.to_event(), Err(Refusal::LeadWithoutWarning));
        let lead = Some(Time(Duration::from_secs(86_401)));
        let request = SignalRequest { event: Word::Fading, interface: None, lead };
        assert_eq!(request.to_event(), Err(Refusal::LeadTooLong));
        let line = control_line::write(&Response::from(Refusal::LeadWithoutWarning));
        let text = String::from_utf8(line).unwrap();
        assert!(text.contains(r#""reason":{"kind":"lead-without-warning"}"#) && text.ends_with("}\n"), "{text}");
    }
}
