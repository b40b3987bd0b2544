//! HOST_ID (RFC 7401 section 5.2.9).

use bytes::{BufMut, Bytes};

/// The HOST_ID parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostId {
    /// The algorithm of the key: 5 RSA, 7 ECDSA, 9 ECDSA_LOW (RFC 7401), 13 EdDSA (RFC 9374 section 3.4.1).
    pub algorithm: u16,
    /// The key in the encoding of its algorithm.
    pub identity: Bytes,
    /// A name of the host.
    pub domain: DomainId,
}

/// A name that a host gives itself; authenticated only by the host's own signature.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DomainId {
    /// 0 none, without a name; 1 a domain name in the DNS's wire format, 2 a network access identifier; 4 bits.
    pub kind: u8,
    /// The name; at most 4,095 bytes.
    pub id: Bytes,
}

impl HostId {
    /// Whether the lengths fit into their fields, and the name has a type.
    pub(super) fn is_writable(&self) -> bool {
        let domain = &self.domain;
        let fits = domain.id.len() < 0x1000 && domain.kind < 0x10;
        // RFC 7401 section 5.2.9: no name has no length. A rule for senders: receivers accept other packets.
        let is_typed = domain.kind != 0 || domain.id.is_empty();
        self.identity.len() <= usize::from(u16::MAX) && fits && is_typed
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.identity.len() as u16);
        out.put_u16(u16::from(self.domain.kind) << 12 | self.domain.id.len() as u16);
        out.put_u16(self.algorithm);
        out.put_slice(&self.identity);
        out.put_slice(&self.domain.id);
    }

    pub(super) fn read(contents: &Bytes) -> Option<Self> {
        let head = contents.get(..6)?;
        let identity_len = usize::from(u16::from_be_bytes([head[0], head[1]]));
        let domain = u16::from_be_bytes([head[2], head[3]]);
        let algorithm = u16::from_be_bytes([head[4], head[5]]);
        let (kind, domain_len) = ((domain >> 12) as u8, usize::from(domain & 0xfff));
        let is_whole = contents.len() == 6 + identity_len + domain_len;
        is_whole.then(|| Self {
            algorithm,
            identity: contents.slice(6..6 + identity_len),
            domain: DomainId { kind, id: contents.slice(6 + identity_len..) },
        })
    }
}
