//! The cryptography of HIPv2 (RFC 7401 sections 4.1.2, 5.2 and 6), based on maintained crates: hashes and MACs, the puzzle, Diffie-Hellman,
//! keying material, and the cipher of ENCRYPTED. Randomness is an argument.

mod cipher;
mod dh;
mod hash;
mod keymat;
mod puzzle;

pub use cipher::{CipherError, HipCipher};
pub use dh::{DhError, DhGroup, DhKeyPair, SharedSecret};
pub use hash::Rhash;
pub use keymat::{HipKeys, Keymat, KeymatError};
pub use puzzle::{MAX_DIFFICULTY, PuzzleSearch, lifetime_to_wire, puzzle_lifetime, verify_solution};
