//! The two bits of Explicit Congestion Notification in the IP header (RFC 3168 section 5).

/// The ECN field of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EcnField {
    /// The transport does not take part: congested routers drop the packet.
    #[default]
    NotEct,
    /// ECT(1).
    Ect1,
    /// ECT(0), the one that senders use (RFC 3168 section 5).
    Ect0,
    /// A router on the way was congested.
    Ce,
}

impl EcnField {
    /// The field of a traffic class byte: its two lowest bits.
    pub const fn of_traffic_class(byte: u8) -> Self {
        match byte & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// Its bits.
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0,
            Self::Ect1 => 1,
            Self::Ect0 => 2,
            Self::Ce => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_the_two_lowest_bits() {
        for bits in 0..=255 {
            assert_eq!(EcnField::of_traffic_class(bits).bits(), bits & 3);
        }
    }
}
