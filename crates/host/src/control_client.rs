//! Requests to a daemon on its control socket.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::control_line;

/// The answers of a daemon.
pub trait Answer: DeserializeOwned {
    /// The reason of a refusal.
    type Refusal: fmt::Display + fmt::Debug;
    /// The daemon's name in errors, as in "no agent answers".
    const DAEMON: &'static str;
    /// The command that starts it.
    const START: &'static str;

    /// The answer, unless it is a refusal.
    ///
    /// # Errors
    /// The daemon refuses the request.
    fn accepted(self) -> Result<Self, Self::Refusal>;
}

/// A connection to a daemon with answers `A`, for one request.
#[derive(Debug)]
pub struct Client<A> {
    reader: BufReader<UnixStream>,
    answers: PhantomData<fn() -> A>,
}

/// A request failed. `R` is the daemon's reason for a refusal.
#[derive(Debug, thiserror::Error)]
pub enum ClientError<R: fmt::Display + fmt::Debug> {
    /// No daemon listens.
    #[error("no {daemon} answers at {}: {}\nstart it: {start}; or name its socket: --socket", path.display(), meaning(reason))]
    NotRunning {
        /// Its name.
        daemon: &'static str,
        /// The command that starts it.
        start: &'static str,
        /// The socket.
        path: PathBuf,
        /// The kernel's reason.
        reason: io::Error,
    },
    /// Access is denied.
    #[error("{} is for root only: sudo", path.display())]
    NotPermitted {
        /// The socket.
        path: PathBuf,
    },
    /// The daemon closed the connection, or took too long.
    #[error("the {daemon} did not answer: {reason}")]
    Broken {
        /// Its name.
        daemon: &'static str,
        /// The kernel's reason.
        reason: io::Error,
    },
    /// The answer is invalid, or not one to this request.
    #[error("cannot parse the {daemon}'s answer ({reason}): another version?")]
    NotUnderstood {
        /// Its name.
        daemon: &'static str,
        /// The defect.
        reason: String,
    },
    /// The daemon refused.
    #[error("{0}")]
    Refused(R),
}

/// The time for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest answer, in bytes.
const LONGEST_ANSWER: u64 = 64 << 20;

/// The meaning of the kernel's reason for not connecting.
fn meaning(reason: &io::Error) -> String {
    match reason.kind() {
        io::ErrorKind::NotFound => "there is no such socket".to_owned(),
        io::ErrorKind::ConnectionRefused => "the process that made the socket has ended".to_owned(),
        _ => reason.to_string(),
    }
}

/// Asks the daemon at this socket for its status: each daemon of the project has that request.
///
/// # Errors
/// No daemon listens, access is denied, or the answer is incomplete, invalid or a refusal.
pub fn answers(path: &Path) -> io::Result<()> {
    #[derive(Serialize)]
    struct Request {
        request: &'static str,
    }
    check_answer(&Client::<()>::connect(path, &Request { request: "status" })?.next_line(false)?)
}

/// Whether a line is complete and an answer other than a refusal.
fn check_answer(line: &[u8]) -> io::Result<()> {
    #[derive(Deserialize)]
    struct Answer {
        response: String,
    }
    let closed =
        || io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection before the end of its answer");
    let text = line.strip_suffix(b"\n").ok_or_else(closed)?;
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, format!("not an answer of a daemon: {error}"));
    let answer: Answer = serde_json::from_slice(text).map_err(invalid)?;
    if answer.response == "refused" {
        return Err(io::Error::other(format!("it refuses: {}", String::from_utf8_lossy(text))));
    }
    Ok(())
}

impl<A: Answer> Client<A> {
    /// Sends a request as a line of JSON.
    ///
    /// # Errors
    /// No daemon listens, or access is denied.
    pub fn ask(path: &Path, request: &impl Serialize) -> Result<Self, ClientError<A::Refusal>> {
        Self::connect(path, request).map_err(|reason| match reason.kind() {
            io::ErrorKind::PermissionDenied => ClientError::NotPermitted { path: path.to_owned() },
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NotRunning { daemon: A::DAEMON, start: A::START, path: path.to_owned(), reason }
            }
            _ => ClientError::Broken { daemon: A::DAEMON, reason },
        })
    }

    /// Waits for the only answer, for 10 s.
    ///
    /// # Errors
    /// No answer in time, an invalid one, or a refusal.
    pub fn answer(mut self) -> Result<A, ClientError<A::Refusal>> {
        let closed = || io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection");
        self.next_answer(false)?.ok_or_else(|| ClientError::Broken { daemon: A::DAEMON, reason: closed() })
    }

    /// Waits for the next of several answers, without limit; `None` when the daemon closes the connection.
    ///
    /// # Errors
    /// An invalid answer, or a refusal.
    pub fn follow(&mut self) -> Result<Option<A>, ClientError<A::Refusal>> {
        self.next_answer(true)
    }

    fn next_answer(&mut self, is_patient: bool) -> Result<Option<A>, ClientError<A::Refusal>> {
        let line = self.next_line(is_patient).map_err(|reason| ClientError::Broken { daemon: A::DAEMON, reason })?;
        if line.is_empty() {
            return Ok(None);
        }
        let answer: A = serde_json::from_slice(&line).map_err(|error| not_understood::<A>(&error))?;
        answer.accepted().map(Some).map_err(ClientError::Refused)
    }
}

impl<A> Client<A> {
    fn connect(path: &Path, request: &impl Serialize) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        (&stream).write_all(&control_line::write(request))?;
        Ok(Self { reader: BufReader::new(stream), answers: PhantomData })
    }

    fn next_line(&mut self, is_patient: bool) -> io::Result<Vec<u8>> {
        self.reader.get_ref().set_read_timeout((!is_patient).then_some(ANSWER_TIMEOUT))?;
        let mut line = Vec::new();
        self.reader.by_ref().take(LONGEST_ANSWER).read_until(b'\n', &mut line)?;
        Ok(line)
    }
}

impl<R: fmt::Display + fmt::Debug> ClientError<R> {
    /// A valid answer of a daemon with answers `A`, to another request.
    pub fn unexpected<A: Answer<Refusal = R>>() -> Self {
        not_understood::<A>(&"it is the answer to another request")
    }
}

fn not_understood<A: Answer>(reason: &dyn fmt::Display) -> ClientError<A::Refusal> {
    ClientError::NotUnderstood { daemon: A::DAEMON, reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_a_whole_answer_other_than_a_refusal_counts() {
        assert!(check_answer(b"{\"response\":\"status\",\"links\":[]}\n").is_ok());
        for (line, kind) in [
            (&b""[..], io::ErrorKind::UnexpectedEof),
            (b"{\"response\":\"status\"}", io::ErrorKind::UnexpectedEof),
            (b"{\"response\":\"refused\",\"message\":\"busy\"}\n", io::ErrorKind::Other),
            (b"220 mail.example.org ESMTP\n", io::ErrorKind::InvalidData),
            (b"{\"status\":{}}\n", io::ErrorKind::InvalidData),
        ] {
            let error = check_answer(line).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
        let refused = check_answer(b"{\"response\":\"refused\",\"message\":\"busy\"}\n").unwrap_err();
        assert!(refused.to_string().contains("busy"), "{refused}");
    }

    #[test]
    fn a_socket_that_is_missing_or_forbidden_is_reported_as_such() {
        let path = std::env::temp_dir().join(format!("holdover-answers-{}", std::process::id()));
        assert_eq!(answers(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
        let serve = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).unwrap();
            (&stream).write_all(b"{\"response\":\"status\"}\n").unwrap();
            request
        });
        match answers(&path) {
            // Root may connect.
            Ok(()) => assert_eq!(serve.join().unwrap(), "{\"request\":\"status\"}\n"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}"),
        }
        std::fs::remove_file(path).unwrap();
    }
}
