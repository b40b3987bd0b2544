//! The endpoint for Prometheus: HTTP, answers, and metric values.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use holdover_base::{Duration, Instant};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::session::{Bounds, Sessions};

/// The endpoint, and its clients.
pub struct Scrapes(Sessions<TcpListener>);

/// The endpoint for Prometheus: `GET /metrics`.
// By default there is one if `ENABLED`, at `PORT` of the loopback address. The schema has the text above for all daemons.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Metrics", default, deny_unknown_fields)]
pub struct MetricsTable<const ENABLED: bool, const PORT: u16> {
    /// Whether it is enabled.
    pub enabled: bool,
    /// Its address and port.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Whether that address may be non-loopback. Everyone who can reach it then sees all metrics, such as the number of
    /// connections.
    pub allow_remote: bool,
}

/// The section in a file: every field is optional.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    enabled: Option<bool>,
    listen: Option<SocketAddr>,
    allow_remote: Option<bool>,
}

impl<'de, const ENABLED: bool, const PORT: u16> Deserialize<'de> for MetricsTable<ENABLED, PORT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (written, defaults) = (Written::deserialize(deserializer)?, Self::default());
        Ok(Self {
            enabled: written.enabled.unwrap_or(defaults.enabled),
            listen: written.listen.unwrap_or(defaults.listen),
            allow_remote: written.allow_remote.unwrap_or(defaults.allow_remote),
        })
    }
}

impl<const ENABLED: bool, const PORT: u16> Default for MetricsTable<ENABLED, PORT> {
    fn default() -> Self {
        Self { enabled: ENABLED, listen: SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)), allow_remote: false }
    }
}

impl<const ENABLED: bool, const PORT: u16> MetricsTable<ENABLED, PORT> {
    /// Why the address cannot be used; `None` if it can.
    pub fn problem(&self) -> Option<String> {
        let listen = self.listen;
        if !self.enabled {
            return None;
        }
        if listen.port() == 0 {
            return Some(format!("{listen}: port 0 is not valid; expected 1 to 65535"));
        }
        (!listen.ip().is_loopback() && !self.allow_remote).then(|| {
            format!(
                "{listen} is not a loopback address: others could read the metrics; set allow_remote = true to permit it"
            )
        })
    }

    /// The endpoint, if enabled. A failure does not stop the daemon and is logged.
    pub fn listen_if_possible(&self) -> Option<Scrapes> {
        let listening = self.enabled.then(|| listen(self.listen))?;
        if let Err(error) = &listening {
            tracing::warn!(address = %self.listen, %error, "cannot serve metrics: [metrics] listen");
        }
        listening.ok()
    }
}

/// The end of an HTTP request.
pub const END_OF_REQUEST: &[u8] = b"\r\n\r\n";

const BOUNDS: Bounds = Bounds {
    delimiter: END_OF_REQUEST,
    request_bytes: 8192,
    callers: 8,
    time: Duration::from_secs(5),
    backlog_bytes: 0,
};

/// Listens for Prometheus at `address`.
///
/// # Errors
///
/// The system refuses, for example because the port is in use.
pub fn listen(address: SocketAddr) -> io::Result<Scrapes> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(Scrapes(Sessions::new(listener, BOUNDS)))
}

impl Scrapes {
    /// The sessions to poll.
    pub fn sessions(&self) -> &Sessions<TcpListener> {
        &self.0
    }

    /// Answers complete requests. `text` is called only if the metrics are requested.
    pub fn handle_ready(&mut self, now: Instant, mut text: impl FnMut() -> String) {
        for (caller, request) in self.0.handle_ready(now) {
            let answer = respond(&request, &mut text);
            self.0.answer(now, caller, &answer, false);
        }
    }

    /// Disconnects clients that take too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.0.hang_up(now);
    }
}

/// A counter with the value `value`.
pub fn counter(value: u64) -> Counter {
    let counter = Counter::<u64>::default();
    counter.inc_by(value);
    counter
}

/// A gauge with the value `value`.
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
    // Writing to a string does not fail.
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
