//! The anti-replay window (RFC 4303 section 3.4.3), with the upper half of sequence numbers guessed (its appendix A2.2).

/// The anti-replay window, in sequence numbers.
const WINDOW: u64 = 1024;
const WORDS: usize = (WINDOW / 64) as usize + 1;

/// The received sequence numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplayWindow {
    /// The greatest authenticated number; 0 before the first.
    greatest: u64,
    /// A ring of bits by sequence number, one word longer than the window, so that a whole word can be cleared.
    seen: [u64; WORDS],
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self { greatest: 0, seen: [0; WORDS] }
    }
}

impl ReplayWindow {
    /// The 64-bit sequence number of a packet that carries `low`: the smallest one that is not below the window.
    pub fn extend(&self, low: u32) -> u64 {
        let base = self.greatest.saturating_sub(WINDOW - 1);
        let candidate = base & !u64::from(u32::MAX) | u64::from(low);
        if candidate < base { candidate.wrapping_add(1 << 32) } else { candidate }
    }

    /// Whether a packet with this number may be accepted: it is not 0, not too old, and no repetition.
    pub fn may_accept(&self, number: u64) -> bool {
        let new = number > self.greatest;
        let in_window = number != 0 && self.greatest.saturating_sub(number) < WINDOW;
        new || in_window && self.seen[word(number)] & bit(number) == 0
    }

    /// Marks an authenticated number that [`Self::may_accept`] allowed.
    pub fn accept(&mut self, number: u64) {
        if number > self.greatest {
            // Words that enter the window are cleared. More than the whole ring need not be cleared.
            let steps = (number / 64 - self.greatest / 64).min(WORDS as u64);
            for step in 0..steps {
                self.seen[word(number - 64 * step)] = 0;
            }
            self.greatest = number;
        }
        self.seen[word(number)] |= bit(number);
    }

    /// The greatest accepted number.
    pub const fn greatest(&self) -> u64 {
        self.greatest
    }
}

const fn word(number: u64) -> usize {
    (number / 64 % WORDS as u64) as usize
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}
