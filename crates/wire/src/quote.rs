//! The packet that an ICMP error quotes.

use crate::parse::{self, IpHeader};
use crate::{IcmpError, Layer, ParseError, Quoted, QuotedTcp, Seq};

/// The part of a TCP header that every quote has room for (RFC 792): ports and sequence number.
const QUOTED_TCP_LEN: usize = 8;

impl IcmpError {
    /// The packet that the error is about.
    ///
    /// # Errors
    /// The quote has no whole IP header, or is a later fragment, in which there is no transport header.
    pub fn quoted(&self) -> Result<Quoted, ParseError> {
        let ip = IpHeader::parse_quoted(&self.quote)?;
        if ip.fragment.is_some_and(|fragment| fragment.offset != 0) {
            return Err(ParseError::QuoteIsFragment);
        }
        let payload = self.quote.slice(ip.payload_start.min(self.quote.len())..);
        Ok(Quoted { src: ip.src, dst: ip.dst, protocol: ip.protocol, payload })
    }

    /// The TCP segment that the error is about. The quote may be cut off anywhere after the sequence number. Its
    /// checksums are not verified: routers change the packet before they quote it, and the rest may be missing.
    pub fn quoted_tcp(&self) -> Result<QuotedTcp, ParseError> {
        let Quoted { src, dst, protocol, payload } = self.quoted()?;
        if protocol != parse::TCP {
            return Err(ParseError::QuoteNotTcp { protocol });
        }
        let Some(&[a, b, c, d, e, f, g, h]) = payload.first_chunk::<QUOTED_TCP_LEN>() else {
            return Err(ParseError::Truncated { layer: Layer::Tcp, needed: QUOTED_TCP_LEN, have: payload.len() });
        };
        Ok(QuotedTcp {
            src,
            dst,
            src_port: u16::from_be_bytes([a, b]),
            dst_port: u16::from_be_bytes([c, d]),
            seq: Seq::new(u32::from_be_bytes([e, f, g, h])),
            packet_len: IpHeader::parse_quoted(&self.quote)?.total_len as u32,
        })
    }
}
