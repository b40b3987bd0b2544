//! Sequence numbers (RFC 9293 section 3.4).

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A 32-bit sequence number that wraps around.
///
/// There is deliberately no `Ord`: "less than" between two points on a circle holds only within a window, is not
/// transitive, and would break every sorted collection it is put into. Compare with [`Seq::lt`] and friends, which are meaningful for
/// numbers less than 2^31 apart, or measure the distance with `-`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(u32);

static_assertions::assert_not_impl_any!(Seq: PartialOrd, Ord, From<u32>, Into<u32>);

impl Seq {
    /// The sequence number with this value on the wire.
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The value on the wire.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Whether `self` comes before `other`.
    pub const fn lt(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether `self` comes before `other` or is equal to it.
    pub const fn le(self, other: Self) -> bool {
        !other.lt(self)
    }

    /// Whether `self` comes after `other`.
    pub const fn gt(self, other: Self) -> bool {
        other.lt(self)
    }

    /// Whether `self` comes after `other` or is equal to it.
    pub const fn ge(self, other: Self) -> bool {
        !self.lt(other)
    }

    /// The later of the two.
    pub const fn max(self, other: Self) -> Self {
        if self.lt(other) { other } else { self }
    }

    /// The earlier of the two.
    pub const fn min(self, other: Self) -> Self {
        if other.lt(self) { other } else { self }
    }

    /// The distance from `earlier` to `self`, or 0 if `self` is behind.
    pub const fn saturating_since(self, earlier: Self) -> u32 {
        if self.lt(earlier) { 0 } else { self.0.wrapping_sub(earlier.0) }
    }
}

impl Add<u32> for Seq {
    type Output = Self;
    fn add(self, len: u32) -> Self {
        Self(self.0.wrapping_add(len))
    }
}

impl AddAssign<u32> for Seq {
    fn add_assign(&mut self, len: u32) {
        *self = *self + len;
    }
}

impl Sub<u32> for Seq {
    type Output = Self;
    fn sub(self, len: u32) -> Self {
        Self(self.0.wrapping_sub(len))
    }
}

/// The distance from `earlier` to `self` around the circle; the caller knows which one is ahead.
impl Sub for Seq {
    type Output = u32;
    fn sub(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A half-open range of sequence space: includes `start`, excludes `end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqRange {
    /// The first number in the range.
    pub start: Seq,
    /// The first number after the range.
    pub end: Seq,
}

impl SeqRange {
    /// The range from `start` up to, not including, `end`.
    pub const fn new(start: Seq, end: Seq) -> Self {
        Self { start, end }
    }

    /// How many sequence numbers the range has.
    pub const fn len(self) -> u32 {
        self.end.0.wrapping_sub(self.start.0)
    }

    /// Whether the range has no number in it.
    pub const fn is_empty(self) -> bool {
        self.start.0 == self.end.0
    }

    /// Whether `seq` is in the range.
    pub const fn contains(self, seq: Seq) -> bool {
        seq.0.wrapping_sub(self.start.0) < self.len()
    }

    /// Whether all of `other` is in the range.
    pub const fn covers(self, other: Self) -> bool {
        self.start.le(other.start) && other.end.le(self.end)
    }

    /// Whether some number is in both ranges.
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.lt(other.end) && other.start.lt(self.end)
    }
}

impl fmt::Display for SeqRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

impl fmt::Debug for SeqRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparison_wraps_with_the_window() {
        let before = Seq::new(u32::MAX - 10);
        let after = before + 20;
        assert_eq!(after.value(), 9);
        assert!(before.lt(after) && after.gt(before) && before.le(before) && before.ge(before));
        assert_eq!(after - before, 20);
        assert_eq!(before.saturating_since(after), 0);
        assert_eq!((before.max(after), before.min(after)), (after, before));
    }

    #[test]
    fn a_range_holds_its_start_and_not_its_end() {
        let range = SeqRange::new(Seq::new(u32::MAX - 1), Seq::new(3));
        assert_eq!(range.len(), 5);
        assert!(range.contains(range.start) && range.contains(Seq::new(0)) && !range.contains(range.end));
        assert!(range.covers(SeqRange::new(Seq::new(0), Seq::new(3))));
        assert!(!range.covers(SeqRange::new(Seq::new(0), Seq::new(4))));
        assert!(range.overlaps(SeqRange::new(Seq::new(2), Seq::new(9))));
        assert!(!range.overlaps(SeqRange::new(Seq::new(3), Seq::new(9))));
    }
}
