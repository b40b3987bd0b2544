//! The answer to a scrape of Prometheus over HTTP.

use std::fmt::Write as _;

/// What HTTP requests end with.
pub const END_OF_REQUEST: &[u8] = b"\r\n\r\n";

/// The answer to a request, without the blank line that ends it. The metrics are asked for only if they are needed.
pub fn respond(request: &[u8], text: impl FnOnce() -> String) -> Vec<u8> {
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
