//! Digests of files.

use std::io;

/// 64-bit FNV-1a, printed as 16 hexadecimal digits: detects changes, not forgeries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    /// The digest of no content.
    pub(crate) const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    /// Adds content.
    pub(crate) fn add(&mut self, content: &[u8]) {
        let next = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        self.0 = content.iter().fold(self.0, next);
    }

    /// The digest of content of any size.
    pub(crate) fn of(mut content: impl io::Read) -> io::Result<Self> {
        let mut digest = Self::EMPTY;
        let mut block = vec![0; 1 << 16];
        loop {
            match content.read(&mut block) {
                Ok(0) => return Ok(digest),
                Ok(read) => digest.add(&block[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_fnv_1a() {
        assert_eq!(Digest::of(&b""[..]).unwrap().to_string(), "cbf29ce484222325");
        assert_eq!(Digest::of(&b"a"[..]).unwrap().to_string(), "af63dc4c8601ec8c");
    }
}
