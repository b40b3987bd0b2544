//! The Accurate ECN option (RFC 9768 section 3.2.3).

use core::fmt;

use crate::OptionKind;

/// How many bytes of payload the sender of the option has received with each ECN codepoint, modulo 2^24.
///
/// An option carries a prefix of three counters in one of two orders; a counter that does not change may be left out at the end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccurateEcn {
    order: AccurateEcnOrder,
    len: u8,
    counters: [[u8; 3]; Self::MAX_COUNTERS],
}

/// The order of the counters, given by the kind of the option.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AccurateEcnOrder {
    /// ECT(0), CE, ECT(1): kind 172.
    Zero,
    /// ECT(1), CE, ECT(0): kind 174.
    One,
}

/// The codepoint whose bytes are counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EcnCounter {
    /// ECT(0): the field EE0B, which begins with 1.
    Ect0,
    /// CE: the field ECEB, which begins with 0.
    Ce,
    /// ECT(1): the field EE1B, which begins with 1.
    Ect1,
}

/// Why counters do not form an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccurateEcnError {
    /// The option has room for three counters.
    #[error("{len} counters exceed the option's 3")]
    TooMany {
        /// The number of counters.
        len: usize,
    },
    /// A counter has 24 bits.
    #[error("counter {value} exceeds the option's 24 bits")]
    TooLarge {
        /// The value.
        value: u32,
    },
}

impl AccurateEcnOrder {
    /// The counters in this order.
    pub const fn counters(self) -> [EcnCounter; AccurateEcn::MAX_COUNTERS] {
        match self {
            Self::Zero => [EcnCounter::Ect0, EcnCounter::Ce, EcnCounter::Ect1],
            Self::One => [EcnCounter::Ect1, EcnCounter::Ce, EcnCounter::Ect0],
        }
    }

    pub(crate) const fn kind(self) -> u8 {
        match self {
            Self::Zero => OptionKind::AccurateEcn0 as u8,
            Self::One => OptionKind::AccurateEcn1 as u8,
        }
    }

    pub(crate) const fn of_kind(kind: u8) -> Option<Self> {
        match kind {
            _ if kind == Self::Zero.kind() => Some(Self::Zero),
            _ if kind == Self::One.kind() => Some(Self::One),
            _ => None,
        }
    }
}

impl EcnCounter {
    /// The value that the field has before any byte is counted (RFC 9768 section 3.2.1).
    pub const fn initial(self) -> u32 {
        match self {
            Self::Ect0 | Self::Ect1 => 1,
            Self::Ce => 0,
        }
    }
}

impl AccurateEcn {
    /// The most counters in an option.
    pub const MAX_COUNTERS: usize = 3;
    /// The bits of a counter.
    pub const COUNTER_MASK: u32 = 0xff_ffff;
    /// The longest option in bytes.
    pub const MAX_LEN: usize = Self::len_with(Self::MAX_COUNTERS);
    const HEAD_LEN: usize = 2;
    const COUNTER_LEN: usize = 3;

    /// An option with these fields, first to last.
    ///
    /// # Errors
    /// More than [`Self::MAX_COUNTERS`] fields, or one above [`Self::COUNTER_MASK`].
    pub fn new(order: AccurateEcnOrder, fields: &[u32]) -> Result<Self, AccurateEcnError> {
        if fields.len() > Self::MAX_COUNTERS {
            return Err(AccurateEcnError::TooMany { len: fields.len() });
        }
        let mut counters = [[0; 3]; Self::MAX_COUNTERS];
        for (place, &value) in counters.iter_mut().zip(fields) {
            if value > Self::COUNTER_MASK {
                return Err(AccurateEcnError::TooLarge { value });
            }
            let [_, bytes @ ..] = value.to_be_bytes();
            *place = bytes;
        }
        Ok(Self { order, len: fields.len() as u8, counters })
    }

    /// The option with the first `len` counters of an order, whose fields `field` returns; their upper bits are cut off.
    pub fn with(order: AccurateEcnOrder, len: usize, field: impl Fn(EcnCounter) -> u32) -> Self {
        let len = len.min(Self::MAX_COUNTERS);
        let mut counters = [[0; 3]; Self::MAX_COUNTERS];
        for (place, counter) in counters.iter_mut().zip(order.counters()).take(len) {
            let [_, bytes @ ..] = field(counter).to_be_bytes();
            *place = bytes;
        }
        Self { order, len: len as u8, counters }
    }

    /// Reads the value of an option of this order. As in Linux, a length that is none of the defined ones carries the counters that fit
    /// in whole, at most three.
    pub(crate) fn read(order: AccurateEcnOrder, value: &[u8]) -> Self {
        let mut option = Self { order, len: 0, counters: [[0; 3]; Self::MAX_COUNTERS] };
        for (place, bytes) in option.counters.iter_mut().zip(value.chunks_exact(Self::COUNTER_LEN)) {
            place.copy_from_slice(bytes);
            option.len += 1;
        }
        option
    }

    /// Writes the fields to the beginning of the value of an option.
    pub(crate) fn write(&self, value: &mut [u8]) {
        for (place, bytes) in value.chunks_exact_mut(Self::COUNTER_LEN).zip(&self.counters[..self.len()]) {
            place.copy_from_slice(bytes);
        }
    }

    /// The order.
    pub const fn order(&self) -> AccurateEcnOrder {
        self.order
    }

    /// The number of counters.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it has no counter.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The counters and their fields, first to last.
    pub fn fields(&self) -> impl Iterator<Item = (EcnCounter, u32)> + '_ {
        let value = |&[a, b, c]: &[u8; 3]| u32::from_be_bytes([0, a, b, c]);
        self.order.counters().into_iter().zip(self.counters[..self.len()].iter().map(value))
    }

    /// Bytes of the option.
    pub const fn wire_len(&self) -> usize {
        Self::len_with(self.len())
    }

    /// Bytes of an option with this number of counters.
    pub const fn len_with(counters: usize) -> usize {
        Self::HEAD_LEN + Self::COUNTER_LEN * counters
    }
}

impl fmt::Debug for AccurateEcn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccurateEcn({self})")
    }
}

/// Prints the option as packetdrill does: `ECN e1b 1 ceb 0 e0b 1`.
impl fmt::Display for AccurateEcn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ECN")?;
        for (counter, value) in self.fields() {
            let name = match counter {
                EcnCounter::Ect0 => "e0b",
                EcnCounter::Ce => "ceb",
                EcnCounter::Ect1 => "e1b",
            };
            write!(f, " {name} {value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_are_written() {
        for order in [AccurateEcnOrder::Zero, AccurateEcnOrder::One] {
            for fields in [&[][..], &[1], &[1, 0xff_ffff], &[7, 8, 9]] {
                let option = AccurateEcn::new(order, fields).unwrap();
                let mut value = vec![0xaa; option.wire_len() - 2];
                option.write(&mut value);
                assert_eq!(AccurateEcn::read(order, &value), option);
                assert_eq!(option.fields().map(|(_, value)| value).collect::<Vec<_>>(), fields);
            }
        }
        let option = AccurateEcn::new(AccurateEcnOrder::One, &[1, 0, 1001]).unwrap();
        assert_eq!(option.to_string(), "ECN e1b 1 ceb 0 e0b 1001");
    }

    #[test]
    fn an_unknown_length_carries_the_counters_that_fit() {
        let lens: Vec<usize> =
            (0..=14).map(|len| AccurateEcn::read(AccurateEcnOrder::Zero, &vec![1; len]).len()).collect();
        assert_eq!(lens, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3]);
    }

    #[test]
    fn counters_beyond_the_option_are_errors() {
        let new = |fields: &[u32]| AccurateEcn::new(AccurateEcnOrder::Zero, fields);
        assert_eq!(new(&[0; 4]), Err(AccurateEcnError::TooMany { len: 4 }));
        assert_eq!(new(&[0, 1 << 24]), Err(AccurateEcnError::TooLarge { value: 1 << 24 }));
        assert_eq!(new(&[1 << 24]).unwrap_err().to_string(), "counter 16777216 exceeds the option's 24 bits");
    }
}
