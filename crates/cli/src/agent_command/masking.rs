//! Addresses in a text are replaced by names, so that it can be shown to others: the same address has the same name everywhere.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// The names that were given so far.
#[derive(Debug, Default)]
pub(super) struct Masker {
    names: BTreeMap<String, String>,
}

impl Masker {
    /// The text with `<ipv4-1>`, `<ipv6-1>` and `<mac-1>` in place of addresses. Addresses that do not identify a host
    /// stay: loopback,
    /// unspecified, broadcast.
    pub(super) fn mask(&mut self, text: &str) -> String {
        let mut masked = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_of_address) {
            let (before, from) = rest.split_at(start);
            let end = from.find(|c| !is_of_address(c)).unwrap_or(from.len());
            let (token, after) = from.split_at(end);
            masked.push_str(before);
            self.mask_token(token, &mut masked);
            rest = after;
        }
        masked + rest
    }

    /// The value with every text in it masked.
    pub(super) fn mask_json(&mut self, value: &mut serde_json::Value) {
        match value {
            serde_json::Value::String(text) => *text = self.mask(text),
            serde_json::Value::Array(values) => values.iter_mut().for_each(|value| self.mask_json(value)),
            serde_json::Value::Object(fields) => fields.values_mut().for_each(|value| self.mask_json(value)),
            serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
        }
    }

    /// A run of letters, digits, dots and colons: an address, with a port or punctuation after it, or anything else.
    fn mask_token(&mut self, token: &str, masked: &mut String) {
        let body = token.trim_end_matches(['.', ':']);
        let tail = &token[body.len()..];
        if let Some(name) = self.name(body) {
            masked.push_str(&name);
            masked.push_str(tail);
            return;
        }
        // An IPv4 address and a port, or a prefix such as "addr:".
        if let Some((address, port)) = body.rsplit_once(':')
            && let Some(name) = self.name(address).filter(|_| port.bytes().all(|byte| byte.is_ascii_digit()))
        {
            masked.push_str(&format!("{name}:{port}{tail}"));
        } else if let Some((word, address)) = body.split_once(':')
            && let Some(name) = self.name(address)
        {
            masked.push_str(&format!("{word}:{name}{tail}"));
        } else {
            masked.push_str(token);
        }
    }

    /// The name of an address; `None` if the text is not an address, or one that is not masked.
    fn name(&mut self, text: &str) -> Option<String> {
        let (key, kind) = if let Ok(address) = text.parse::<IpAddr>() {
            let says_nothing = match address {
                IpAddr::V4(address) => address.is_loopback() || address.is_unspecified() || address.is_broadcast(),
                IpAddr::V6(address) => address.is_loopback() || address.is_unspecified(),
            };
            if says_nothing {
                return None;
            }
            (address.to_string(), if address.is_ipv4() { "ipv4" } else { "ipv6" })
        } else if is_mac(text) {
            (text.to_ascii_lowercase(), "mac")
        } else {
            return None;
        };
        let number = 1 + self.names.values().filter(|name| name[1..].starts_with(kind)).count();
        Some(self.names.entry(key).or_insert_with(|| format!("<{kind}-{number}>")).clone())
    }
}

fn is_of_address(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '.' || c == ':'
}

/// Six pairs of hexadecimal digits.
fn is_mac(text: &str) -> bool {
    let pairs: Vec<&str> = text.split(':').collect();
    pairs.len() == 6 && pairs.iter().all(|pair| pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_names_and_everything_else_stays() {
        let mut masker = Masker::default();
        for (text, masked) in [
            ("192.0.2.1:443 -> 198.51.100.7:22", "<ipv4-1>:443 -> <ipv4-2>:22"),
            ("[2001:db8::1]:22, again 192.0.2.1.", "[<ipv6-1>]:22, again <ipv4-1>."),
            ("remote = \"198.51.100.0/24\"", "remote = \"<ipv4-3>/24\""),
            ("peer fe80::2%eth0 at 02:00:5E:00:53:01:", "peer <ipv6-2>%eth0 at <mac-1>:"),
            ("addr:192.0.2.1 lladdr 02:00:5e:00:53:01", "addr:<ipv4-1> lladdr <mac-1>"),
            ("::ffff:192.0.2.9", "<ipv6-3>"),
            ("127.0.0.1:9786, ::1, 0.0.0.0, [::]:80", "127.0.0.1:9786, ::1, 0.0.0.0, [::]:80"),
            (
                "Linux 6.18.0, at 12:30:45, version 0.1.0: mod::path, abc:def",
                "Linux 6.18.0, at 12:30:45, version 0.1.0: mod::path, abc:def",
            ),
            ("2026-11-23T22:16:34Z", "2026-11-23T22:16:34Z"),
            ("", ""),
        ] {
            assert_eq!(masker.mask(text), masked);
        }
        let mut value = serde_json::json!({ "links": [{ "local": "192.0.2.1:1", "count": 3 }] });
        masker.mask_json(&mut value);
        assert_eq!(value, serde_json::json!({ "links": [{ "local": "<ipv4-1>:1", "count": 3 }] }));
    }
}
