//! The puzzle (RFC 7401 section 4.1.2): #J such that the lowest #K bits of RHASH(#I | HIT-I | HIT-R | #J) are zero.

use bytes::Bytes;
use holdover_base::Duration;
use rand_core::CryptoRng;

use super::Rhash;
use crate::identity::Hit;

/// The greatest #K that this crate sets, under any load.
pub const MAX_DIFFICULTY: u8 = 22;

/// Whether `solution` solves the puzzle.
pub fn verify_solution(
    rhash: Rhash,
    difficulty: u8,
    random: &[u8],
    initiator: Hit,
    responder: Hit,
    solution: &[u8],
) -> bool {
    let hash = rhash.digest(&[random, &initiator.0.octets(), &responder.0.octets(), solution]);
    lowest_bits_are_zero(&hash, difficulty)
}

fn lowest_bits_are_zero(hash: &[u8], bits: u8) -> bool {
    let (bytes, rest) = (usize::from(bits / 8), bits % 8);
    if usize::from(bits) > hash.len() * 8 {
        return false;
    }
    let (head, tail) = hash.split_at(hash.len() - bytes);
    tail.iter().all(|&byte| byte == 0) && head.last().is_none_or(|byte| byte.trailing_zeros() >= u32::from(rest))
}

/// The lifetime of a puzzle: 2^(value - 32) s (RFC 7401 section 5.2.4).
pub fn puzzle_lifetime(value: u8) -> Duration {
    match value {
        // 2^32 s are 136 years.
        64.. => Duration::from_secs(1 << 32),
        32.. => Duration::from_secs(1 << (value - 32)),
        // Values below 2 (2^-30 s) are less than a nanosecond.
        2.. => Duration::from_nanos(1_000_000_000 >> (32 - value)),
        _ => Duration::ZERO,
    }
}

/// The greatest value for the wire whose lifetime is at most `lifetime`, at least 1 s.
pub fn lifetime_to_wire(lifetime: Duration) -> u8 {
    (32..64).rev().find(|&value| puzzle_lifetime(value) <= lifetime).unwrap_or(32)
}

/// A search for a solution, a bounded number of attempts at a time.
#[derive(Clone, Debug)]
pub struct PuzzleSearch {
    rhash: Rhash,
    difficulty: u8,
    random: Bytes,
    initiator: Hit,
    responder: Hit,
    candidate: Vec<u8>,
}

impl PuzzleSearch {
    /// Starts at a random #J.
    pub fn new<R: CryptoRng + ?Sized>(
        rhash: Rhash,
        difficulty: u8,
        random: Bytes,
        initiator: Hit,
        responder: Hit,
        rng: &mut R,
    ) -> Self {
        let mut candidate = vec![0; random.len()];
        rng.fill_bytes(&mut candidate);
        Self { rhash, difficulty, random, initiator, responder, candidate }
    }

    /// Tries at most `attempts` values; `None` if none of them solves the puzzle. Difficulty #K takes 2^K attempts on average.
    pub fn search(&mut self, attempts: u32) -> Option<Bytes> {
        for _ in 0..attempts {
            let candidate = &self.candidate;
            if verify_solution(self.rhash, self.difficulty, &self.random, self.initiator, self.responder, candidate) {
                return Some(Bytes::copy_from_slice(candidate));
            }
            // Counts up, as one number.
            for byte in self.candidate.iter_mut().rev() {
                *byte = byte.wrapping_add(1);
                if *byte != 0 {
                    break;
                }
            }
        }
        None
    }
}
