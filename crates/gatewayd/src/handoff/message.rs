//! Messages between gateways, as bytes: the kind (1 byte), the id of the claim (8), the mobile host's address (16), a number (4), and the
//! rest, in network byte order.

use std::net::{IpAddr, Ipv6Addr};

use crate::cluster::Epoch;

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) id: u64,
    pub(crate) mobile: IpAddr,
    pub(crate) body: Body,
}

/// The content of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// The sender owns the mobile host in this epoch. It reads records up to this version; 0 for none.
    Claim { epoch: Epoch, records: u8 },
    /// Packets wait for a mobile host that the receiver owns, as far as the sender knows, in this epoch.
    Offer { epoch: Epoch },
    /// The claim was refused: the sender knows this later epoch.
    Refused { epoch: Epoch },
    /// The sender has heard a broadcast of a mobile host of the receiver.
    Inquiry,
    /// The mobile host of an inquiry is not at the sender.
    NotThere,
    /// A packet, with its number. Its offload header is opaque here.
    Packet { place: u32, bytes: Vec<u8> },
    /// All packets before this number were sent.
    End { place: u32 },
    /// All before this number have arrived; the end counts as one.
    Got { place: u32 },
    /// Records of connections ([`super::records::Part`]): the number of this datagram, and how many there are. The content is opaque here.
    Records { number: u8, of: u8, bytes: Vec<u8> },
    /// The datagram of records of this number has arrived.
    GotRecords { number: u8 },
}

impl Message {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (kind, place, rest): (u8, u32, &[u8]) = match &self.body {
            Body::Claim { epoch, records } => (1, (*records).into(), &epoch.to_bytes()),
            Body::Offer { epoch } => (5, 0, &epoch.to_bytes()),
            Body::Refused { epoch } => (6, 0, &epoch.to_bytes()),
            Body::Inquiry => (7, 0, &[]),
            Body::NotThere => (8, 0, &[]),
            Body::Packet { place, bytes } => (2, *place, bytes),
            Body::End { place } => (3, *place, &[]),
            Body::Got { place } => (4, *place, &[]),
            Body::Records { number, of, bytes } => (9, u32::from(*number) | u32::from(*of) << 8, bytes),
            Body::GotRecords { number } => (10, (*number).into(), &[]),
        };
        let address = crate::network::mapped(self.mobile).octets();
        [&[kind][..], &self.id.to_be_bytes(), &address, &place.to_be_bytes(), rest].concat()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        let (id, rest) = rest.split_first_chunk::<8>()?;
        let (address, rest) = rest.split_first_chunk::<16>()?;
        let (place, rest) = rest.split_first_chunk::<4>()?;
        let place = u32::from_be_bytes(*place);
        let address = Ipv6Addr::from(*address);
        let mobile = address.to_ipv4_mapped().map_or(address.into(), IpAddr::from);
        let epoch = || Epoch::from_bytes(rest);
        let body = match kind {
            1 => Body::Claim { epoch: epoch()?, records: u8::try_from(place).unwrap_or(u8::MAX) },
            5 => Body::Offer { epoch: epoch()? },
            6 => Body::Refused { epoch: epoch()? },
            2 => Body::Packet { place, bytes: rest.to_vec() },
            3 if rest.is_empty() => Body::End { place },
            4 if rest.is_empty() => Body::Got { place },
            7 if rest.is_empty() => Body::Inquiry,
            8 if rest.is_empty() => Body::NotThere,
            9 if place <= 0xffff => Body::Records { number: place as u8, of: (place >> 8) as u8, bytes: rest.to_vec() },
            10 if rest.is_empty() => Body::GotRecords { number: u8::try_from(place).ok()? },
            _ => return None,
        };
        Some(Self { id: u64::from_be_bytes(*id), mobile, body })
    }
}
