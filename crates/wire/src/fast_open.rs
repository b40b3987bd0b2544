//! The Fast Open option (RFC 7413 section 4.1.1).

use core::fmt;

use crate::{ExperimentalId, OptionKind};

/// TCP Fast Open: a cookie, or a cookie request.
///
/// The option has kind 34. Before its assignment it was an experiment of kind 254 (RFC 6994), which Linux still
/// accepts, and tries with a server that does not answer a request of kind 34.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FastOpen {
    bytes: [u8; Self::MAX_COOKIE],
    len: u8,
    is_experiment: bool,
}

impl FastOpen {
    /// The longest cookie in bytes.
    pub const MAX_COOKIE: usize = 16;
    /// The shortest cookie in bytes.
    pub const MIN_COOKIE: usize = 4;
    /// The identifier of the experiment.
    pub const EXPERIMENT: ExperimentalId = ExperimentalId::Short(0xf989);
    /// A cookie request.
    pub const REQUEST: Self = Self { bytes: [0; Self::MAX_COOKIE], len: 0, is_experiment: false };

    /// A cookie, or, if `cookie` is empty, a cookie request; `None` for an invalid length: valid ones are even,
    /// [`Self::MIN_COOKIE`] to [`Self::MAX_COOKIE`].
    pub fn new(cookie: &[u8]) -> Option<Self> {
        let len = cookie.len();
        let is_cookie = len.is_multiple_of(2) && (Self::MIN_COOKIE..=Self::MAX_COOKIE).contains(&len);
        if len != 0 && !is_cookie {
            return None;
        }
        let mut bytes = [0; Self::MAX_COOKIE];
        bytes[..len].copy_from_slice(cookie);
        Some(Self { bytes, len: len as u8, is_experiment: false })
    }

    /// The option as the experiment of kind 254, or as kind 34.
    pub const fn as_experiment(self, is_experiment: bool) -> Self {
        Self { is_experiment, ..self }
    }

    /// Whether it has kind 254.
    pub const fn is_experiment(&self) -> bool {
        self.is_experiment
    }

    /// The cookie; empty in a request.
    pub fn cookie(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether it is a cookie request.
    pub const fn is_request(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the option.
    pub(crate) const fn wire_len(self) -> usize {
        2 + self.len as usize + if self.is_experiment { Self::EXPERIMENT.wire_len() } else { 0 }
    }

    /// Parses a whole option: kind, length and value. `None` for another option, or an invalid length.
    pub(crate) fn read(kind: u8, value: &[u8]) -> Option<Self> {
        const FAST_OPEN: u8 = OptionKind::FastOpen as u8;
        const EXPERIMENTAL: u8 = OptionKind::Experimental2 as u8;
        match (kind, value) {
            (FAST_OPEN, cookie) => Self::new(cookie),
            (EXPERIMENTAL, [0xf9, 0x89, cookie @ ..]) => Self::new(cookie).map(|option| option.as_experiment(true)),
            _ => None,
        }
    }

    /// Kind, length and identifier: the bytes before the cookie, and their number.
    pub(crate) const fn head(self) -> ([u8; 4], usize) {
        let len = self.wire_len() as u8;
        if self.is_experiment {
            ([OptionKind::Experimental2 as u8, len, 0xf9, 0x89], 4)
        } else {
            ([OptionKind::FastOpen as u8, len, 0, 0], 2)
        }
    }
}

/// Prints the option in packetdrill's notation.
impl fmt::Display for FastOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_experiment { "FOEXP" } else { "FO" })?;
        if !self.is_request() {
            f.write_str(" ")?;
        }
        self.cookie().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for FastOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_has_an_even_length_of_4_to_16_bytes() {
        let len_is_good = |len: usize| FastOpen::new(&vec![7; len]).is_some();
        let good: Vec<usize> = (0..40).filter(|&len| len_is_good(len)).collect();
        assert_eq!(good, [0, 4, 6, 8, 10, 12, 14, 16]);
        assert!(FastOpen::new(&[]).unwrap().is_request());
    }

    #[test]
    fn both_kinds_are_told_apart() {
        let option = FastOpen::new(&[1, 2, 3, 4]).unwrap();
        assert_eq!(option.to_string(), "FO 01020304");
        assert_eq!(option.as_experiment(true).to_string(), "FOEXP 01020304");
        assert_eq!(FastOpen::read(34, &[1, 2, 3, 4]), Some(option));
        assert_eq!(FastOpen::read(254, &[0xf9, 0x89, 1, 2, 3, 4]), Some(option.as_experiment(true)));
        assert_eq!(FastOpen::read(253, &[0xf9, 0x89, 1, 2, 3, 4]), None);
        assert_eq!(FastOpen::read(254, &[0xf9, 0x88, 1, 2, 3, 4]), None);
        assert_eq!(FastOpen::read(34, &[1, 2, 3]), None);
    }
}
