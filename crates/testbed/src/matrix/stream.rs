//! Streams of bytes in which every byte is determined by its position, so that every difference is detected and
//! located.

use core::fmt;
use core::hash::Hasher as _;
use std::io;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// Bytes read or written at a time.
const CHUNK: usize = 64 * 1024;

/// A stream to be written: `len` bytes determined by `seed`.
#[derive(Clone, Debug)]
pub struct Source {
    seed: u64,
    position: u64,
    len: u64,
    hasher: SipHasher24,
}

/// A stream being read and compared with the expected one.
#[derive(Clone, Debug)]
pub struct Sink {
    seed: u64,
    position: u64,
    hasher: SipHasher24,
    first_difference: Option<u64>,
}

/// Identifies a whole stream: its length in bytes and a hash of 128 bits (SipHash-2-4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest {
    /// The length in bytes.
    pub len: u64,
    /// The hash.
    pub hash: u128,
}

impl Source {
    /// A stream of `len` bytes.
    pub fn new(seed: u64, len: u64) -> Self {
        Self { seed, position: 0, len, hasher: SipHasher24::new() }
    }

    /// The number of bytes not taken yet.
    pub fn remaining(&self) -> u64 {
        self.len - self.position
    }

    /// The next bytes, as many as remain up to `most`. They are returned again until [`Self::advance`].
    pub fn peek(&self, most: usize) -> Vec<u8> {
        let len = self.remaining().min(most as u64);
        (self.position..self.position + len).map(|position| byte_at(self.seed, position)).collect()
    }

    /// Takes `written`, a prefix of the result of [`Self::peek`].
    pub fn advance(&mut self, written: &[u8]) {
        self.hasher.write(written);
        self.position += written.len() as u64;
    }

    /// Writes all remaining bytes.
    pub fn write_to(&mut self, out: &mut impl io::Write) -> io::Result<()> {
        while self.remaining() > 0 {
            let chunk = self.peek(CHUNK);
            let written = out.write(&chunk)?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.advance(&chunk[..written]);
        }
        Ok(())
    }

    /// The digest of the bytes taken so far.
    pub fn digest(&self) -> Digest {
        Digest { len: self.position, hash: self.hasher.finish128().as_u128() }
    }
}

impl Sink {
    /// Expects the stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed, position: 0, hasher: SipHasher24::new(), first_difference: None }
    }

    /// Handles the next bytes read.
    pub fn take(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
        if self.first_difference.is_none() {
            let expected = (self.position..).map(|position| byte_at(self.seed, position));
            let at = bytes.iter().zip(expected).position(|(&byte, expected)| byte != expected);
            self.first_difference = at.map(|at| self.position + at as u64);
        }
        self.position += bytes.len() as u64;
    }

    /// Reads until the end.
    pub fn read_from(&mut self, input: &mut impl io::Read) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK];
        loop {
            match input.read(&mut buffer)? {
                0 => return Ok(()),
                len => self.take(&buffer[..len]),
            }
        }
    }

    /// The digest of the bytes read so far.
    pub fn digest(&self) -> Digest {
        Digest { len: self.position, hash: self.hasher.finish128().as_u128() }
    }

    /// The position of the first byte that differs from the stream.
    pub fn first_difference(&self) -> Option<u64> {
        self.first_difference
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes {:032x}", self.len, self.hash)
    }
}

/// The byte at `position`: part of a word mixed from the position, as in `SplitMix64`.
fn byte_at(seed: u64, position: u64) -> u8 {
    let mut word = seed.wrapping_add((position / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)).to_le_bytes()[(position % 8) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(seed: u64, len: u64) -> Vec<u8> {
        Source::new(seed, len).peek(usize::MAX)
    }

    #[test]
    fn pieces_make_the_same_stream_on_both_sides() {
        let mut source = Source::new(7, 100_003);
        let mut sink = Sink::new(7);
        for most in 1.. {
            let piece = source.peek(most);
            if piece.is_empty() {
                break;
            }
            // Half of each chunk is refused.
            let written = &piece[..piece.len().div_ceil(2)];
            source.advance(written);
            sink.take(written);
        }
        assert_eq!(source.digest(), sink.digest());
        assert_eq!((sink.first_difference(), sink.digest().len), (None, 100_003));
        assert_eq!(sink.digest(), {
            let mut at_once = Sink::new(7);
            at_once.take(&whole(7, 100_003));
            at_once.digest()
        });
    }

    #[test]
    fn corrupted_streams_are_detected() {
        let stream = whole(7, 1000);
        let look = |bytes: &[&[u8]]| {
            let mut sink = Sink::new(7);
            bytes.iter().for_each(|bytes| sink.take(bytes));
            (sink.first_difference(), sink.digest())
        };
        let (_, digest) = look(&[&stream]);
        // A gap, a repetition, an exchange and a flipped bit.
        for (bytes, at) in [
            (vec![&stream[..500], &stream[508..]], 500),
            (vec![&stream[..500], &stream[492..]], 500),
            (vec![&stream[..8], &stream[16..24], &stream[8..16], &stream[24..]], 8),
            (vec![&stream[..999], &[stream[999] ^ 4]], 999),
        ] {
            let (difference, other) = look(&bytes);
            assert_eq!(difference, Some(at));
            assert_ne!(other, digest);
        }
    }
}
