//! Addresses in a text are replaced by names, so that it can be shown to others: the same address has the same name everywhere.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;

/// The most characters of an IPv6 address.
const LONGEST_ADDRESS: usize = 45;

/// The names that were given so far.
#[derive(Debug, Default)]
pub(super) struct Masker {
    names: BTreeMap<String, String>,
}

/// What a part of a text is.
enum Found {
    /// An address that identifies a host, or an interface's name with one in it: printed as this.
    Masked(String),
    /// An address that identifies none: loopback, unspecified, broadcast.
    Plain,
}

impl Masker {
    /// The text with `<ipv4-1>`, `<ipv6-1>` and `<mac-1>` in place of addresses. Addresses that do not identify a host
    /// stay: loopback, unspecified, broadcast. Names of interfaces stay, but for the MAC addresses in them: `enx<mac-1>`.
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

    /// A run of letters, digits, dots and colons: addresses, with words, ports or punctuation around them, or anything else. At each place the
    /// longest address is taken, so that `addr:2001:db8::1` and `192.0.2.1:443` are divided where they should be.
    fn mask_token(&mut self, token: &str, masked: &mut String) {
        let mut start = 0;
        while start < token.len() {
            let found = ends(token, start).rev().find_map(|end| Some((end, self.look_up(token, &(start..end))?)));
            let (end, text) = match found {
                Some((end, Found::Masked(name))) => (end, Cow::Owned(name)),
                Some((end, Found::Plain)) => (end, Cow::Borrowed(&token[start..end])),
                None => {
                    let end = start + first_word(&token[start..]);
                    (end, Cow::Borrowed(&token[start..end]))
                }
            };
            masked.push_str(&text);
            start = end;
        }
    }

    /// What a part of a token is; `None` if it is neither an address nor an interface's name with one in it.
    fn look_up(&mut self, token: &str, part: &Range<usize>) -> Option<Found> {
        let text = &token[part.clone()];
        if let Ok(address) = text.parse::<IpAddr>() {
            let (kind, says_nothing) = match address {
                IpAddr::V6(_) if is_of_path(token, part) => return None,
                IpAddr::V6(address) => ("ipv6", address.is_loopback() || address.is_unspecified()),
                IpAddr::V4(address) => {
                    ("ipv4", address.is_loopback() || address.is_unspecified() || address.is_broadcast())
                }
            };
            return Some(if says_nothing { Found::Plain } else { Found::Masked(self.name(address.to_string(), kind)) });
        }
        if is_mac(text) {
            return Some(Found::Masked(self.name(text.to_ascii_lowercase(), "mac")));
        }
        let (prefix, mac) = split_interface(text)?;
        Some(Found::Masked(format!("{prefix}{}", self.name(mac, "mac"))))
    }

    /// The name of an address.
    fn name(&mut self, address: String, kind: &str) -> String {
        let number = 1 + self.names.values().filter(|name| name[1..].starts_with(kind)).count();
        self.names.entry(address).or_insert_with(|| format!("<{kind}-{number}>")).clone()
    }
}

fn is_of_address(c: char) -> bool {
    c.is_ascii_alphanumeric() || is_separator(c)
}

fn is_separator(c: char) -> bool {
    c == '.' || c == ':'
}

/// Where an address that begins at `start` may end: at the token's end, and on both sides of each separator.
fn ends(token: &str, start: usize) -> impl DoubleEndedIterator<Item = usize> {
    let bytes = token.as_bytes();
    let separates = move |at: usize| is_separator(char::from(bytes[at]));
    (start + 1..=bytes.len().min(start + LONGEST_ADDRESS))
        .filter(move |&end| end == bytes.len() || separates(end) || separates(end - 1))
}

/// The length of the word, or of the separator, at the beginning of a text.
fn first_word(text: &str) -> usize {
    if text.starts_with(is_separator) { 1 } else { text.find(is_separator).unwrap_or(text.len()) }
}

/// Whether what parses as an IPv6 address is more likely part of a path, such as `de` and `::` in `serde::de::Error`.
fn is_of_path(token: &str, part: &Range<usize>) -> bool {
    let (before, text, after) = (&token[..part.start], &token[part.clone()], &token[part.end..]);
    let continues = before.ends_with("::")
        || after.starts_with("::")
        || (text.starts_with(':') && before.ends_with(|c| !is_separator(c)))
        || (text.ends_with(':') && after.starts_with(|c| !is_separator(c)));
    continues && !text.contains(|c: char| c.is_ascii_digit())
}

/// Six pairs of hexadecimal digits.
fn is_mac(text: &str) -> bool {
    let pairs: Vec<&str> = text.split(':').collect();
    pairs.len() == 6 && pairs.iter().all(|pair| pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The prefix and the MAC address of a name that systemd gives an interface for want of a place on a bus: `en` (Ethernet), `wl` (Wi-Fi) or
/// `ww` (mobile), `x`, and the address's digits (systemd.net-naming-scheme(7)).
fn split_interface(name: &str) -> Option<(&str, String)> {
    let (prefix, digits) = name.split_at_checked(3)?;
    let is_named_by_mac = ["enx", "wlx", "wwx"].contains(&prefix)
        && digits.len() == 12
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let pairs = is_named_by_mac.then(|| digits.as_bytes().chunks(2))?;
    let pairs: Vec<String> = pairs.map(|pair| String::from_utf8_lossy(pair).to_ascii_lowercase()).collect();
    Some((prefix, pairs.join(":")))
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
            ("word:192.0.2.1:443, tcp:from:198.51.100.7:ssh", "word:<ipv4-1>:443, tcp:from:<ipv4-2>:ssh"),
            ("at:2001:db8::1 lladdr:02:00:5e:00:53:01 192.0.2.1.443", "at:<ipv6-1> lladdr:<mac-1> <ipv4-1>.443"),
            ("to:127.0.0.1:9786, serde::de::Error", "to:127.0.0.1:9786, serde::de::Error"),
            ("face::bed::x, at:fd::ab, log:2001:db8::9", "face::bed::x, at:<ipv6-4>, log:<ipv6-5>"),
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
    #[test]
    fn an_interface_named_by_its_mac_address_has_the_name_of_the_address() {
        let mut masker = Masker::default();
        for (text, masked) in [
            ("02:00:5e:00:53:01", "<mac-1>"),
            ("enx02005e005301: state up", "enx<mac-1>: state up"),
            ("wlx02005E005302, wwx02005e005303.network", "wlx<mac-2>, wwx<mac-3>.network"),
            ("sys-subsystem-net-devices-enx02005e005301.device", "sys-subsystem-net-devices-enx<mac-1>.device"),
            ("at 02:00:5E:00:53:02 on enx02005e005301:192.0.2.1:22", "at <mac-2> on enx<mac-1>:<ipv4-1>:22"),
            // Names of places on a bus, and words.
            (
                "enp0s31f6 enx02005e00530 wlxabcdef012345x slx02005e005301",
                "enp0s31f6 enx02005e00530 wlxabcdef012345x slx02005e005301",
            ),
            ("\u{e4}enx", "\u{e4}enx"),
        ] {
            assert_eq!(masker.mask(text), masked);
        }
    }
}
