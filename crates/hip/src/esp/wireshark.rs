//! Keys in Wireshark's format, to decrypt captures.

use std::fmt::Write as _;

use super::{EspKeys, EspSuite};

/// The security association at `spi` as two lines of Wireshark's table `esp_sa`, for outer packets of either IP version. Its addresses
/// are wildcards, because hosts move.
pub fn esp_sa(spi: u32, keys: &EspKeys) -> String {
    let (encryption, authentication) = match keys.suite {
        EspSuite::NullHmacSha256 => ("NULL", "HMAC-SHA-256-128 [RFC4868]"),
        EspSuite::Aes128CbcHmacSha256 | EspSuite::Aes256CbcHmacSha256 => {
            ("AES-CBC [RFC3602]", "HMAC-SHA-256-128 [RFC4868]")
        }
        EspSuite::Aes128Gcm16 => ("AES-GCM with 16 octet ICV [RFC4106]", "NULL"),
    };
    let (key, authentication_key) = (hex(&keys.encryption), hex(&keys.authentication));
    let line = |version| {
        format!(
            "\"{version}\",\"*\",\"*\",\"{spi:#010x}\",\"{encryption}\",\"{key}\",\"{authentication}\",\"{authentication_key}\"\n"
        )
    };
    ["IPv4", "IPv6"].map(line).concat()
}

/// Hexadecimal digits in Wireshark's format; empty for no key.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::from(if bytes.is_empty() { "" } else { "0x" });
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
