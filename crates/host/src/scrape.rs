//! Scrapes of Prometheus over HTTP: the endpoint, the answers, and the values in them.

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener};

use holdover_base::{Duration, Instant};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::session::{Bounds, Sessions};

/// The endpoint, and those who scrape it.
pub struct Scrapes(Sessions<TcpListener>);

/// What HTTP requests end with.
pub const END_OF_REQUEST: &[u8] = b"\r\n\r\n";

const BOUNDS: Bounds =
    Bounds { mark: END_OF_REQUEST, question_bytes: 8192, callers: 8, time: Duration::from_secs(5), backlog_bytes: 0 };

/// Listens for Prometheus at `address`.
///
/// # Errors
///
/// If the system refuses, such as because another listens there.
pub fn listen(address: SocketAddr) -> io::Result<Scrapes> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(Scrapes(Sessions::new(listener, BOUNDS)))
}

impl Scrapes {
    /// What is to be polled.
    pub fn sessions(&self) -> &Sessions<TcpListener> {
        &self.0
    }

    /// Answers the requests that are complete. The metrics are asked for only if they are needed.
    pub fn handle_ready(&mut self, now: Instant, mut text: impl FnMut() -> String) {
        for (caller, request) in self.0.handle_ready(now) {
            let answer = respond(&request, &mut text);
            self.0.answer(now, caller, &answer, false);
        }
    }

    /// Hangs up on clients that take too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.0.hang_up(now);
    }
}

/// As [`listen`], for a daemon whose work does not depend on it: what the system refuses is told by the log.
pub fn listen_if_possible(address: SocketAddr) -> Option<Scrapes> {
    let listening = listen(address);
    if let Err(error) = &listening {
        tracing::warn!(%address, %error, "no metrics are served: [metrics] listen");
    }
    listening.ok()
}

/// A counter that stands at `value`.
pub fn counter(value: u64) -> Counter {
    let counter = Counter::<u64>::default();
    counter.inc_by(value);
    counter
}

/// A gauge that stands at `value`.
pub fn gauge(value: u64) -> Gauge {
    let gauge = Gauge::<i64>::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    gauge
}

/// The answer to a request, without the blank line that ends it.
fn respond(request: &[u8], text: impl FnOnce() -> String) -> Vec<u8> {
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let (code, kind, body) = match words[..] {
        [b"GET" | b"HEAD", path, version] if version.starts_with(b"HTTP/1.") => {
            if path.split(|&byte| byte == b'?').next() == Some(b"/metrics") {
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                ("200 OK", kind, text())
            } else {
                ("404 Not Found", "text/plain", "the metrics are at /metrics\n".to_owned())
            }
        }
        [_, _, version] if version.starts_with(b"HTTP/1.") => {
            ("405 Method Not Allowed", "text/plain", "GET /metrics\n".to_owned())
        }
        _ => ("400 Bad Request", "text/plain", "GET /metrics HTTP/1.1\n".to_owned()),
    };
    let mut answer = String::new();
    let length = body.len();
    // Writing to a text does not fail.
    let _ = write!(
        answer,
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if words.first() != Some(&&b"HEAD"[..]) {
        answer.push_str(&body);
    }
    answer.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_requests_are_refused() {
        let answer =
            |request: &str| String::from_utf8(respond(request.as_bytes(), || "a 1\n# EOF\n".to_owned())).unwrap();
        let good = answer("GET /metrics HTTP/1.1\r\nHost: localhost");
        let (head, body) = good.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(&format!("Content-Length: {}", body.len())));
        assert!(answer("HEAD /metrics HTTP/1.0").ends_with("\r\n\r\n"));
        for (request, code) in [
            ("GET / HTTP/1.1", "404"),
            ("POST /metrics HTTP/1.1", "405"),
            ("GET /metrics", "400"),
            ("\u{0}\u{1}", "400"),
            ("", "400"),
        ] {
            assert!(answer(request).starts_with(&format!("HTTP/1.1 {code} ")), "{request:?}");
        }
    }
}
