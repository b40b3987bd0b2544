//! Datagrams between gateways that share a key: encrypted and authenticated by AES-256-GCM, and fresh, without clocks.
//!
//! ```text
//! offset  bytes
//!      0      4  "HoGW"
//!      4      1  version: 1
//!      5      3  0
//!      8     16  the sender's session: random for each process
//!     24      8  number of the datagram in this session, from 1
//!     32      n  encrypted: the receiver's session as the sender knows it (16), and the message
//!   32+n     16  tag; authenticates the bytes before the encrypted part, too
//! ```
//!
//! Each session has a key of its own, HMAC-SHA256 of the shared key over the session, and the number is the nonce: no nonce is used twice.
//! A datagram is accepted only if it names the receiver's session and its number is new within a window: a recording from before the start
//! of either process, or a duplicate, is rejected. A sender that does not know the receiver's session is answered with an empty message
//! that contains it.

use std::collections::BTreeMap;

use aes_gcm::aead::AeadInOut as _;
use aes_gcm::{Aes256Gcm, KeyInit as _};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Bytes of a session.
pub(super) const SESSION: usize = 16;

const MAGIC: [u8; 8] = *b"HoGW\x01\0\0\0";
const HEADER: usize = 8 + SESSION + 8;
const TAG: usize = 16;

/// The overhead of a datagram around its message.
pub(super) const OVERHEAD: usize = HEADER + SESSION + TAG;

/// The most sessions of others remembered. A session is remembered only after a datagram that names this process's own,
/// so that replays cannot fill the table.
const MOST_SESSIONS: usize = 64;

/// Seals and opens datagrams.
pub(super) struct Seal {
    shared: Hmac<Sha256>,
    session: [u8; SESSION],
    cipher: Aes256Gcm,
    number: u64,
    others: BTreeMap<[u8; SESSION], Window>,
}

/// Numbers received in a session: the highest, and which of the 64 before it.
#[derive(Clone, Copy, Default, Debug)]
struct Window {
    highest: u64,
    seen: u64,
}

/// The result of opening a datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Opened {
    /// A valid message.
    Message {
        /// The sender's session.
        session: [u8; SESSION],
        message: Vec<u8>,
    },
    /// Authentic, but for another session than this process's: the sender needs the current one.
    Stale {
        /// The sender's session.
        session: [u8; SESSION],
    },
    /// A duplicate.
    Replayed,
    /// Not authentic, or no datagram of this kind.
    Forged,
}

impl Seal {
    /// `session` must be random, and unique for this key. `None` for an invalid key.
    pub(super) fn new(key: &[u8], session: [u8; SESSION]) -> Option<Self> {
        let shared = Hmac::<Sha256>::new_from_slice(key).ok()?;
        let cipher = cipher(&shared, &session)?;
        Some(Self { shared, session, cipher, number: 0, others: BTreeMap::new() })
    }

    /// A datagram for a process, with its session or zeros if unknown.
    pub(super) fn seal(&mut self, receiver: &[u8; SESSION], message: &[u8]) -> Vec<u8> {
        self.number += 1;
        let mut datagram = Vec::with_capacity(OVERHEAD + message.len());
        datagram.extend(MAGIC);
        datagram.extend(self.session);
        datagram.extend(self.number.to_be_bytes());
        datagram.extend(receiver);
        datagram.extend(message);
        let (header, plain) = datagram.split_at_mut(HEADER);
        // It fails only for messages of 64 GiB.
        if let Ok(tag) = self.cipher.encrypt_inout_detached(&nonce(self.number).into(), header, plain.into()) {
            datagram.extend(tag);
        }
        datagram
    }

    /// Opens a datagram.
    pub(super) fn open(&mut self, datagram: &[u8]) -> Opened {
        let Some((session, number, message)) = self.decrypt(datagram) else { return Opened::Forged };
        let Some((named, message)) = message.split_first_chunk::<SESSION>() else { return Opened::Forged };
        if session == self.session {
            // Its own, reflected.
            return Opened::Forged;
        }
        if *named != self.session {
            return Opened::Stale { session };
        }
        if self.others.len() >= MOST_SESSIONS && !self.others.contains_key(&session) {
            // Evicted sessions have to name this process's again, which they do.
            self.others.pop_first();
        }
        let window = self.others.entry(session).or_default();
        if !window.take(number) {
            return Opened::Replayed;
        }
        Opened::Message { session, message: message.to_vec() }
    }

    fn decrypt(&self, datagram: &[u8]) -> Option<([u8; SESSION], u64, Vec<u8>)> {
        let (header, rest) = datagram.split_at_checked(HEADER)?;
        let (plain, tag) = rest.split_at_checked(rest.len().checked_sub(TAG)?)?;
        let session: [u8; SESSION] = header.get(8..8 + SESSION)?.try_into().ok()?;
        let number = u64::from_be_bytes(header.get(8 + SESSION..)?.try_into().ok()?);
        if header[..8] != MAGIC {
            return None;
        }
        let mut plain = plain.to_vec();
        let tag: [u8; TAG] = tag.try_into().ok()?;
        let cipher = cipher(&self.shared, &session)?;
        cipher.decrypt_inout_detached(&nonce(number).into(), header, plain.as_mut_slice().into(), &tag.into()).ok()?;
        Some((session, number, plain))
    }
}

impl Window {
    /// Whether a number is new.
    fn take(&mut self, number: u64) -> bool {
        if number > self.highest {
            let ahead = number - self.highest;
            self.seen = if ahead >= 64 { 0 } else { self.seen << ahead } | 1;
            self.highest = number;
            return true;
        }
        let behind = self.highest - number;
        if number == 0 || behind >= 64 || self.seen & 1 << behind != 0 {
            return false;
        }
        self.seen |= 1 << behind;
        true
    }
}

fn cipher(shared: &Hmac<Sha256>, session: &[u8; SESSION]) -> Option<Aes256Gcm> {
    let mac = shared.clone().chain_update(b"holdover gateway handoff").chain_update(session);
    Aes256Gcm::new_from_slice(&mac.finalize().into_bytes()).ok()
}

fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Seal, Seal) {
        (Seal::new(&[7; 32], [1; SESSION]).unwrap(), Seal::new(&[7; 32], [2; SESSION]).unwrap())
    }

    fn message(session: u8, message: &[u8]) -> Opened {
        Opened::Message { session: [session; SESSION], message: message.to_vec() }
    }

    // Claim: Datagrams between gateways count once, in the sessions of running processes only; every bit is authenticated, and
    // nothing is in the clear.
    // Tests: `sealed::tests::every_bit_is_authenticated_and_nothing_is_in_the_clear`
    #[test]
    fn a_session_is_learned_and_a_datagram_counts_once() {
        let (mut a, mut b) = pair();
        let blind = a.seal(&[0; SESSION], b"hello");
        assert_eq!(b.open(&blind), Opened::Stale { session: [1; SESSION] });
        let first = a.seal(&[2; SESSION], b"hello");
        let second = a.seal(&[2; SESSION], b"");
        assert_eq!(b.open(&second), message(1, b""));
        assert_eq!(b.open(&first), message(1, b"hello"));
        assert_eq!(b.open(&first), Opened::Replayed);
        assert_eq!(a.open(&first), Opened::Forged, "sent back");
        // 64 later ones move it out of the window.
        let old = a.seal(&[2; SESSION], b"old");
        for _ in 0..64 {
            let datagram = a.seal(&[2; SESSION], b"x");
            assert_eq!(b.open(&datagram), message(1, b"x"));
        }
        assert_eq!(b.open(&old), Opened::Replayed);
        // Another process has another session: datagrams to former ones are invalid.
        let mut anew = Seal::new(&[7; 32], [3; SESSION]).unwrap();
        for datagram in [&blind, &first, &second, &old] {
            assert_eq!(anew.open(datagram), Opened::Stale { session: [1; SESSION] });
        }
    }

    #[test]
    fn every_bit_is_authenticated_and_nothing_is_in_the_clear() {
        let (mut a, mut b) = pair();
        let datagram = a.seal(&[2; SESSION], b"what waits");
        assert!(!datagram.windows(10).any(|window| window == b"what waits"));
        for bit in 0..8 * datagram.len() {
            let mut damaged = datagram.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(b.open(&damaged), Opened::Forged, "{bit}");
        }
        for cut in 0..datagram.len() {
            assert_eq!(b.open(&datagram[..cut]), Opened::Forged, "{cut}");
        }
        let mut stranger = Seal::new(&[8; 32], [4; SESSION]).unwrap();
        assert_eq!(b.open(&stranger.seal(&[2; SESSION], b"hello")), Opened::Forged);
        assert_eq!(b.open(&datagram), message(1, b"what waits"));
    }
}
