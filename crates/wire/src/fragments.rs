//! Cutting packets into fragments (RFC 791 section 3.2, RFC 8200 section 4.5).

use core::net::IpAddr;

use etherparse::{Ipv4Header, Ipv6FragmentHeader, Ipv6Header};

use crate::emit::{MAX_LEN_V4, MAX_LEN_V6};
use crate::{EmitError, Fragment, Packet, Payload};

/// Every IPv6 link carries packets of this length (RFC 8200 section 5).
const LEAST_MTU_V6: usize = 1280;
/// Offsets count units of 8 bytes.
const UNIT: usize = 8;

impl Packet {
    /// The fragments of a packet for a path that carries at most `mtu` bytes, in order; all but the last are as long as they can be.
    ///
    /// A packet that fits stays whole: over IPv4 as a whole [`Fragment`], which routers may fragment further (it is not atomic, RFC 6864
    /// section 4.1), over IPv6 unchanged, as only sources fragment there. IPv6 paths carry at least 1,280 bytes: a smaller `mtu` counts as
    /// 1,280.
    ///
    /// The identification must not occur in another packet with the same addresses and protocol while fragments of that one may be on their way
    /// (RFC 6864 section 4.3), and hosts off the path must not be able to guess it (RFC 7739). IPv4 takes its lower 16 bits. A fragment is
    /// cut up under its own identification. Fragments are made from the packet's value, without the IP options and extension headers of a
    /// received packet.
    ///
    /// # Errors
    /// As for [`Self::emit`], and [`EmitError::NoRoomForFragments`].
    pub fn fragments(&self, mtu: usize, id: u32) -> Result<Vec<Self>, EmitError> {
        let (header_len, max) = match self.dst {
            IpAddr::V4(_) => (Ipv4Header::MIN_LEN, MAX_LEN_V4),
            IpAddr::V6(_) => (Ipv6Header::LEN, MAX_LEN_V6),
        };
        let whole = self.whole(id)?;
        let len = header_len + usize::from(whole.offset) + whole.payload.len();
        if len > max {
            return Err(EmitError::TooLong { len, max });
        }
        let room = match self.dst {
            IpAddr::V6(_) if self.wire_len() <= mtu.max(LEAST_MTU_V6) => return Ok(vec![self.clone()]),
            IpAddr::V4(_) => mtu.saturating_sub(header_len),
            IpAddr::V6(_) => mtu.max(LEAST_MTU_V6) - header_len - Ipv6FragmentHeader::LEN,
        };
        let Fragment { id, offset, more, protocol, payload: mut rest } = whole;
        let (mut fragments, mut offset) = (Vec::new(), offset);
        while rest.len() > room {
            let payload = rest.split_to(room / UNIT * UNIT);
            if payload.is_empty() {
                return Err(EmitError::NoRoomForFragments { mtu });
            }
            // Below `max`, which was checked.
            let len = payload.len() as u16;
            fragments.push(self.with_fragment(Fragment { id, offset, more: true, protocol, payload }));
            offset += len;
        }
        fragments.push(self.with_fragment(Fragment { id, offset, more, protocol, payload: rest }));
        Ok(fragments)
    }

    /// The data to be fragmented: everything after the IP header.
    fn whole(&self, id: u32) -> Result<Fragment, EmitError> {
        if self.src.is_ipv4() != self.dst.is_ipv4() {
            return Err(EmitError::MixedFamilies { src: self.src, dst: self.dst });
        }
        if let Payload::Fragment(fragment) = &self.payload {
            return Ok(fragment.clone());
        }
        let (protocol, payload) = self.payload_bytes()?;
        let id = if self.dst.is_ipv4() { id & u32::from(u16::MAX) } else { id };
        Ok(Fragment { id, offset: 0, more: false, protocol, payload })
    }

    fn with_fragment(&self, fragment: Fragment) -> Self {
        let Self { src, dst, ttl, traffic_class, reserved_flag, .. } = *self;
        let payload = Payload::Fragment(fragment);
        Self { src, dst, ttl, traffic_class, reserved_flag, payload, received: None }
    }
}
