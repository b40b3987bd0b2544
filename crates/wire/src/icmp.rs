//! ICMP and ICMPv6 errors: types and codes, and quoting a packet. `quote.rs` reads quotes.

use bytes::{Bytes, BytesMut};
use etherparse::{icmpv4, icmpv6};

use crate::{EmitError, IcmpError, Layer, Packet, ParseError, Unreachable};

/// An ICMP error over IPv4 fits into 576 bytes (RFC 1812 section 4.3.2.3): minus IP and ICMP headers.
const MAX_QUOTE_V4: usize = 576 - 20 - 8;
/// An ICMPv6 error fits into the smallest MTU of IPv6 (RFC 4443 section 2.4 (c)): minus IPv6 and ICMPv6 headers.
const MAX_QUOTE_V6: usize = 1280 - 40 - 8;
/// Where the IPv6 header has its next header field.
const NEXT_HEADER_OFFSET: u32 = 6;
/// Types for experiments (RFC 4727 section 2.2, RFC 4443 section 2.1): [`Unreachable::BadState`] with code 0.
const TYPE_BAD_STATE_V4: u8 = 253;
const TYPE_BAD_STATE_V6: u8 = 100;

impl IcmpError {
    /// The error of `kind` about `packet`, which begins at its IP header: quotes as much as the size limit of ICMP
    /// errors allows, 548 bytes of an IPv4 packet and 1232 of an IPv6 packet. Copies nothing.
    ///
    /// # Errors
    /// The packet is empty, or its IP version is neither 4 nor 6.
    pub fn quoting(kind: Unreachable, packet: &Bytes) -> Result<Self, ParseError> {
        let max = match packet.first().map(|first| first >> 4) {
            Some(4) => MAX_QUOTE_V4,
            Some(6) => MAX_QUOTE_V6,
            Some(version) => return Err(ParseError::Version { version }),
            None => return Err(ParseError::Truncated { layer: Layer::Ipv4, needed: 1, have: 0 }),
        };
        Ok(Self { kind, quote: packet.slice(..packet.len().min(max)) })
    }

    /// The error of `kind` about a packet value.
    pub fn quoting_packet(kind: Unreachable, packet: &Packet) -> Result<Self, EmitError> {
        let max = if packet.dst.is_ipv6() { MAX_QUOTE_V6 } else { MAX_QUOTE_V4 };
        let mut quote = BytesMut::new();
        packet.emit_prefix_into(&mut quote, max)?;
        Ok(Self { kind, quote: quote.freeze() })
    }
}

/// The first 8 bytes of an ICMP message without its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IcmpHead {
    pub(crate) kind: u8,
    pub(crate) code: u8,
    /// The four bytes after the checksum; their meaning depends on the type.
    pub(crate) rest: [u8; 4],
}

impl IcmpHead {
    fn new(kind: u8, code: u8, rest: [u8; 4]) -> Self {
        Self { kind, code, rest }
    }

    /// The kind of an ICMP error (of IPv4); `None` if the message is not an error.
    pub(crate) fn unreachable_v4(self) -> Option<Unreachable> {
        Some(match (self.kind, self.code) {
            (icmpv4::TYPE_DEST_UNREACH, icmpv4::CODE_DST_UNREACH_NET) => Unreachable::Network,
            (icmpv4::TYPE_DEST_UNREACH, icmpv4::CODE_DST_UNREACH_HOST) => Unreachable::Host,
            (icmpv4::TYPE_DEST_UNREACH, icmpv4::CODE_DST_UNREACH_PROTOCOL) => Unreachable::Protocol,
            (icmpv4::TYPE_DEST_UNREACH, icmpv4::CODE_DST_UNREACH_PORT) => Unreachable::Port,
            (icmpv4::TYPE_DEST_UNREACH, icmpv4::CODE_DST_UNREACH_NEED_FRAG) => {
                Unreachable::PacketTooBig { mtu: u32::from(u16::from_be_bytes([self.rest[2], self.rest[3]])) }
            }
            (icmpv4::TYPE_DEST_UNREACH, icmpv4::CODE_DST_UNREACH_FILTER_PROHIB) => {
                Unreachable::AdministrativelyProhibited
            }
            (icmpv4::TYPE_DEST_UNREACH, code) => Unreachable::Other { code },
            (TYPE_BAD_STATE_V4, 0) => Unreachable::BadState,
            (icmpv4::TYPE_TIME_EXCEEDED, code) => Unreachable::TimeExceeded { code },
            (icmpv4::TYPE_PARAMETER_PROBLEM, code) => {
                Unreachable::ParameterProblem { code, pointer: u32::from(self.rest[0]) }
            }
            _ => return None,
        })
    }

    /// The kind of an ICMPv6 error; `None` if the message is not an error.
    pub(crate) fn unreachable_v6(self) -> Option<Unreachable> {
        Some(match (self.kind, self.code) {
            (icmpv6::TYPE_DST_UNREACH, icmpv6::CODE_DST_UNREACH_NO_ROUTE) => Unreachable::Network,
            (icmpv6::TYPE_DST_UNREACH, icmpv6::CODE_DST_UNREACH_PROHIBITED) => Unreachable::AdministrativelyProhibited,
            (icmpv6::TYPE_DST_UNREACH, icmpv6::CODE_DST_UNREACH_ADDR) => Unreachable::Host,
            (icmpv6::TYPE_DST_UNREACH, icmpv6::CODE_DST_UNREACH_PORT) => Unreachable::Port,
            (icmpv6::TYPE_DST_UNREACH, code) => Unreachable::Other { code },
            // The receiver ignores the code (RFC 4443 section 3.2).
            (icmpv6::TYPE_PACKET_TOO_BIG, _) => Unreachable::PacketTooBig { mtu: u32::from_be_bytes(self.rest) },
            (TYPE_BAD_STATE_V6, 0) => Unreachable::BadState,
            (icmpv6::TYPE_TIME_EXCEEDED, code) => Unreachable::TimeExceeded { code },
            (icmpv6::TYPE_PARAMETER_PROBLEM, icmpv6::CODE_PARAM_PROBLEM_UNRECOG_NEXT_HEADER) => Unreachable::Protocol,
            (icmpv6::TYPE_PARAMETER_PROBLEM, code) => {
                Unreachable::ParameterProblem { code, pointer: u32::from_be_bytes(self.rest) }
            }
            _ => return None,
        })
    }

    /// The ICMP header (of IPv4) of `kind`.
    pub(crate) fn error_v4(kind: Unreachable) -> Result<Self, EmitError> {
        let unreachable = |code| Self::new(icmpv4::TYPE_DEST_UNREACH, code, [0; 4]);
        Ok(match kind {
            Unreachable::Network => unreachable(icmpv4::CODE_DST_UNREACH_NET),
            Unreachable::Host => unreachable(icmpv4::CODE_DST_UNREACH_HOST),
            Unreachable::Protocol => unreachable(icmpv4::CODE_DST_UNREACH_PROTOCOL),
            Unreachable::Port => unreachable(icmpv4::CODE_DST_UNREACH_PORT),
            Unreachable::AdministrativelyProhibited => unreachable(icmpv4::CODE_DST_UNREACH_FILTER_PROHIB),
            Unreachable::Other { code } => unreachable(code),
            Unreachable::PacketTooBig { mtu } => {
                let [a, b] = u16::try_from(mtu).map_err(|_| EmitError::IcmpMtu { mtu })?.to_be_bytes();
                Self { rest: [0, 0, a, b], ..unreachable(icmpv4::CODE_DST_UNREACH_NEED_FRAG) }
            }
            Unreachable::BadState => Self::new(TYPE_BAD_STATE_V4, 0, [0; 4]),
            Unreachable::TimeExceeded { code } => Self::new(icmpv4::TYPE_TIME_EXCEEDED, code, [0; 4]),
            Unreachable::ParameterProblem { code, pointer } => {
                let byte = u8::try_from(pointer).map_err(|_| EmitError::IcmpPointer { pointer })?;
                Self::new(icmpv4::TYPE_PARAMETER_PROBLEM, code, [byte, 0, 0, 0])
            }
        })
    }

    /// The ICMPv6 header of `kind`.
    pub(crate) fn error_v6(kind: Unreachable) -> Self {
        let unreachable = |code| Self::new(icmpv6::TYPE_DST_UNREACH, code, [0; 4]);
        let problem = |code, pointer: u32| Self::new(icmpv6::TYPE_PARAMETER_PROBLEM, code, pointer.to_be_bytes());
        match kind {
            Unreachable::Network => unreachable(icmpv6::CODE_DST_UNREACH_NO_ROUTE),
            Unreachable::Host => unreachable(icmpv6::CODE_DST_UNREACH_ADDR),
            Unreachable::Protocol => problem(icmpv6::CODE_PARAM_PROBLEM_UNRECOG_NEXT_HEADER, NEXT_HEADER_OFFSET),
            Unreachable::Port => unreachable(icmpv6::CODE_DST_UNREACH_PORT),
            Unreachable::AdministrativelyProhibited => unreachable(icmpv6::CODE_DST_UNREACH_PROHIBITED),
            Unreachable::Other { code } => unreachable(code),
            Unreachable::PacketTooBig { mtu } => Self::new(icmpv6::TYPE_PACKET_TOO_BIG, 0, mtu.to_be_bytes()),
            Unreachable::BadState => Self::new(TYPE_BAD_STATE_V6, 0, [0; 4]),
            Unreachable::TimeExceeded { code } => Self::new(icmpv6::TYPE_TIME_EXCEEDED, code, [0; 4]),
            Unreachable::ParameterProblem { code, pointer } => problem(code, pointer),
        }
    }

    /// Bytes of the quoted packet before extensions, if an ICMP error (of IPv4) announces extensions (RFC 4884 section
    /// 4).
    pub(crate) fn quote_len_v4(self) -> Option<usize> {
        let words = match self.kind {
            icmpv4::TYPE_DEST_UNREACH | icmpv4::TYPE_TIME_EXCEEDED | icmpv4::TYPE_PARAMETER_PROBLEM => self.rest[1],
            _ => 0,
        };
        (words != 0).then_some(4 * usize::from(words))
    }

    /// The same for ICMPv6, which counts in units of 8 bytes.
    pub(crate) fn quote_len_v6(self) -> Option<usize> {
        let units = match self.kind {
            icmpv6::TYPE_DST_UNREACH | icmpv6::TYPE_TIME_EXCEEDED => self.rest[0],
            _ => 0,
        };
        (units != 0).then_some(8 * usize::from(units))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type, code and the bytes after the checksum.
    type Head = (u8, u8, [u8; 4]);

    /// Every kind, as ICMP and as ICMPv6 header.
    const WIRE: [(Unreachable, Head, Head); 10] = [
        (Unreachable::Network, (3, 0, [0; 4]), (1, 0, [0; 4])),
        (Unreachable::Host, (3, 1, [0; 4]), (1, 3, [0; 4])),
        (Unreachable::Protocol, (3, 2, [0; 4]), (4, 1, [0, 0, 0, 6])),
        (Unreachable::Port, (3, 3, [0; 4]), (1, 4, [0; 4])),
        (Unreachable::PacketTooBig { mtu: 1400 }, (3, 4, [0, 0, 5, 0x78]), (2, 0, [0, 0, 5, 0x78])),
        (Unreachable::BadState, (253, 0, [0; 4]), (100, 0, [0; 4])),
        (Unreachable::TimeExceeded { code: 1 }, (11, 1, [0; 4]), (3, 1, [0; 4])),
        (Unreachable::AdministrativelyProhibited, (3, 13, [0; 4]), (1, 1, [0; 4])),
        (Unreachable::Other { code: 5 }, (3, 5, [0; 4]), (1, 5, [0; 4])),
        (Unreachable::ParameterProblem { code: 0, pointer: 9 }, (12, 0, [9, 0, 0, 0]), (4, 0, [0, 0, 0, 9])),
    ];

    #[test]
    fn every_kind_has_its_type_and_code_in_both_families() {
        for (kind, (kind_v4, code_v4, rest_v4), (kind_v6, code_v6, rest_v6)) in WIRE {
            let v4 = IcmpHead::new(kind_v4, code_v4, rest_v4);
            assert_eq!(IcmpHead::error_v4(kind), Ok(v4));
            assert_eq!(v4.unreachable_v4(), Some(kind));
            let v6 = IcmpHead::new(kind_v6, code_v6, rest_v6);
            assert_eq!(IcmpHead::error_v6(kind), v6);
            assert_eq!(v6.unreachable_v6(), Some(kind));
        }
        assert_eq!(IcmpHead::new(253, 1, [0; 4]).unreachable_v4(), None);
        assert_eq!(IcmpHead::new(100, 1, [0; 4]).unreachable_v6(), None);
        assert_eq!(IcmpHead::new(8, 0, [0; 4]).unreachable_v4(), None);
        assert_eq!(IcmpHead::new(128, 0, [0; 4]).unreachable_v6(), None);
    }

    #[test]
    fn values_too_large_for_icmp_are_refused_and_fit_icmpv6() {
        let mtu = Unreachable::PacketTooBig { mtu: 65_536 };
        assert_eq!(IcmpHead::error_v4(mtu), Err(EmitError::IcmpMtu { mtu: 65_536 }));
        assert_eq!(IcmpHead::error_v6(mtu).unreachable_v6(), Some(mtu));
        let problem = Unreachable::ParameterProblem { code: 0, pointer: 256 };
        assert_eq!(IcmpHead::error_v4(problem), Err(EmitError::IcmpPointer { pointer: 256 }));
        assert_eq!(IcmpHead::error_v6(problem).unreachable_v6(), Some(problem));
    }
}
