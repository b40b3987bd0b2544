//! Reports over HTTP, for scripts of access points and modems on the same machine, and for proxies: `POST
//! /mobiles/ADDRESS/PRESENCE` with `Authorization: Bearer TOKEN`.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::BorrowedFd;

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;
use holdover_gateway::divert::Standing;
use holdover_host::scrape;
use holdover_host::session::{Bounds, SessionId, Sessions};
use rustix::event::PollFlags;
use sha2::{Digest as _, Sha256};

use super::registration::{SecretError, read_secret};
use crate::config::WebhookTable;

/// Identifies a request until it is answered.
pub(crate) type Caller = SessionId;

/// Authorized requests.
pub(super) struct Webhook {
    sessions: Sessions<TcpListener>,
    /// The token's digest: comparing digests leaks nothing by its duration.
    digest: [u8; 32],
}

const CALLERS: Bounds = Bounds {
    delimiter: scrape::END_OF_REQUEST,
    request_bytes: 4096,
    callers: 8,
    time: Duration::from_secs(2),
    backlog_bytes: 0,
};

/// A shorter token could be guessed.
const SHORTEST_TOKEN: usize = 16;

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum HookAnswer {
    Noted,
    Refused(String),
}

/// A parsed request, before the address is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Read {
    Report(IpAddr, Presence),
    Wrong(&'static str, &'static str),
}

impl Webhook {
    /// `None` if it is not configured.
    pub(super) fn open(config: &WebhookTable) -> Result<Option<Self>, SecretError> {
        let (Some(address), Some(file)) = (config.listen, &config.token_file) else { return Ok(None) };
        let token = read_secret(file)?;
        if token.trim().len() < SHORTEST_TOKEN {
            return Err(SecretError::Short { file: file.clone() });
        }
        let bind = || -> io::Result<TcpListener> {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = bind().map_err(|source| SecretError::Listen { section: "[webhook]", address, source })?;
        let digest = Sha256::digest(token.trim().as_bytes()).into();
        Ok(Some(Self { sessions: Sessions::new(listener, CALLERS), digest }))
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        self.sessions.descriptors()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.sessions.poll_timeout()
    }

    pub(super) fn hang_up(&mut self, now: Instant) {
        self.sessions.hang_up(now);
    }

    /// Valid requests, except for the address. Others are answered, and those without the token counted.
    pub(super) fn handle_ready(&mut self, now: Instant, refused: &mut u64) -> Vec<(Caller, IpAddr, Presence)> {
        let mut reports = Vec::new();
        for (caller, request) in self.sessions.handle_ready(now) {
            match read(&request, &self.digest) {
                Read::Report(address, presence) => reports.push((caller, address, presence)),
                Read::Wrong(code, why) => {
                    *refused += u64::from(code.starts_with("401"));
                    self.sessions.answer(now, caller, &respond(code, why), false);
                }
            }
        }
        reports
    }

    pub(super) fn answer(&mut self, now: Instant, caller: Caller, answer: &HookAnswer) {
        let answer = match answer {
            HookAnswer::Noted => respond("200 OK", "noted"),
            HookAnswer::Refused(why) => respond("409 Conflict", why),
        };
        self.sessions.answer(now, caller, &answer, false);
    }
}

const USAGE: &str = "POST /mobiles/ADDRESS/PRESENCE, where PRESENCE is present, fading, away or moved";

fn read(request: &[u8], digest: &[u8; 32]) -> Read {
    let Ok(text) = std::str::from_utf8(request) else { return Read::Wrong("400 Bad Request", USAGE) };
    let (line, headers) = text.split_once("\r\n").unwrap_or((text, ""));
    let words: Vec<&str> = line.split(' ').collect();
    let &[method, path, version] = words.as_slice() else { return Read::Wrong("400 Bad Request", USAGE) };
    if !version.starts_with("HTTP/1.") {
        return Read::Wrong("400 Bad Request", USAGE);
    }
    let token = headers.lines().find_map(|header| {
        let (name, value) = header.split_once(':')?;
        name.eq_ignore_ascii_case("authorization").then(|| value.trim().strip_prefix("Bearer "))?
    });
    if token.is_none_or(|token| <[u8; 32]>::from(Sha256::digest(token.trim().as_bytes())) != *digest) {
        return Read::Wrong("401 Unauthorized", "missing or wrong token: Authorization: Bearer TOKEN");
    }
    let place: Option<Vec<&str>> = path.strip_prefix("/mobiles/").map(|rest| rest.split('/').collect());
    let Some(&[address, word]) = place.as_deref() else { return Read::Wrong("404 Not Found", USAGE) };
    if method != "POST" {
        return Read::Wrong("405 Method Not Allowed", USAGE);
    }
    let word = match word {
        "present" => Standing::Present,
        "fading" => Standing::Fading,
        "away" => Standing::Away,
        "moved" => Standing::Moved,
        _ => return Read::Wrong("400 Bad Request", USAGE),
    };
    match address.parse() {
        Ok(address) => Read::Report(address, word.to_presence()),
        Err(_) => Read::Wrong("400 Bad Request", USAGE),
    }
}

fn respond(code: &str, text: &str) -> Vec<u8> {
    let text = format!("{text}\n");
    let length = text.len();
    format!(
        "HTTP/1.1 {code}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_with_the_token_and_the_right_form_count() {
        let digest = Sha256::digest(b"0123456789abcdef").into();
        let ask = |line: &str, token: &str| {
            let request = format!("{line}\r\nHost: here\r\nauthorization: Bearer {token}\r\n\r\n");
            read(request.as_bytes(), &digest)
        };
        let token = "0123456789abcdef";
        let mobile: IpAddr = [10, 0, 1, 7].into();
        assert_eq!(ask("POST /mobiles/10.0.1.7/away HTTP/1.1", token), Read::Report(mobile, Presence::Away));
        let v6 = "fd00::7".parse().unwrap();
        assert_eq!(ask("POST /mobiles/fd00::7/present HTTP/1.1", token), Read::Report(v6, Presence::Present));
        for (line, token, code) in [
            ("POST /mobiles/10.0.1.7/away HTTP/1.1", "0123456789abcdee", "401"),
            ("POST /mobiles/10.0.1.7/away HTTP/1.1", "", "401"),
            ("GET /mobiles/10.0.1.7/away HTTP/1.1", token, "405"),
            ("POST /mobiles/10.0.1.7/asleep HTTP/1.1", token, "400"),
            ("POST /mobiles/phone/away HTTP/1.1", token, "400"),
            ("POST /mobiles/10.0.1.7/away/now HTTP/1.1", token, "404"),
            ("POST / HTTP/1.1", token, "404"),
            ("POST /mobiles/10.0.1.7/away", token, "400"),
            ("", token, "400"),
        ] {
            assert!(matches!(ask(line, token), Read::Wrong(found, _) if found.starts_with(code)), "{line} {token}");
        }
        assert!(matches!(read(b"POST /mobiles/10.0.1.7/away HTTP/1.1\r\n\r\n", &digest), Read::Wrong(..)));
        assert!(matches!(read(b"\xff\xfe \x00", &digest), Read::Wrong("400 Bad Request", _)));
    }
}
