//! Messages between supervisor hosts, or base stations.

use core::net::IpAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::checksum::{checked, crc32};

/// A message between two supervisor hosts about one mobile host.
///
/// On the wire, in network byte order: two bytes that mark it, version and kind (1 each), id (8), the family of the mobile host's address
/// (4 or 6, 1 byte), that address (4 or 16); in *give* and *taken* the index of the record (2), in *give* also the number of records (2)
/// and the record; in *elsewhere* the number of the later request (8); and the CRC-32 of all preceding bytes (4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The number of the request, or of the one that it answers. One supervisor host's requests have growing numbers.
    pub id: u64,
    /// The mobile host.
    pub mobile: IpAddr,
    /// The content.
    pub body: Body,
}

/// The content of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// The mobile host is here: requests its connections.
    Ask,
    /// The sender has none.
    None,
    /// The sender knows of a later request, and has no more to do with this one: the mobile host has moved on.
    Elsewhere {
        /// The number of that request.
        newest: u64,
    },
    /// A part of their records.
    Give {
        /// Its index, from 0.
        index: u16,
        /// The number of parts.
        count: u16,
        /// A [`Piece`](super::Piece) of a record.
        record: Bytes,
    },
    /// Confirms the arrival of a part.
    Taken {
        /// Its index.
        index: u16,
    },
}

/// The reason why bytes are not a valid message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// They lack the mark of a message.
    #[error("not a control message of a supervisor host")]
    Foreign,
    /// The checksum is wrong.
    #[error("wrong checksum of a control message")]
    Checksum,
    /// Another version.
    #[error("control message of version {version}, expected {expected}", expected = Message::VERSION)]
    Version {
        /// Its version.
        version: u8,
    },
    /// An unknown kind.
    #[error("control message of unknown kind {kind}")]
    Kind {
        /// Its kind.
        kind: u8,
    },
    /// Too short, or too long.
    #[error("wrong length of a control message")]
    Length,
    /// A field has an invalid value.
    #[error("invalid {field} in a control message")]
    Field {
        /// The field.
        field: &'static str,
    },
}

const ASK: u8 = 1;
const NONE: u8 = 2;
const GIVE: u8 = 3;
const TAKEN: u8 = 4;
const ELSEWHERE: u8 = 5;

impl Message {
    /// The version that this code writes and reads.
    pub const VERSION: u8 = 1;
    /// The longest record: with its message it fits a UDP datagram.
    pub const MAX_RECORD_BYTES: usize = 65_000;
    const MARK: [u8; 2] = *b"HO";

    /// Emits the message.
    pub fn emit(&self) -> Bytes {
        let record_bytes = if let Body::Give { record, .. } = &self.body { record.len() } else { 0 };
        let mut out = BytesMut::with_capacity(48 + record_bytes);
        out.put_slice(&Self::MARK);
        out.put_u8(Self::VERSION);
        out.put_u8(match self.body {
            Body::Ask => ASK,
            Body::None => NONE,
            Body::Elsewhere { .. } => ELSEWHERE,
            Body::Give { .. } => GIVE,
            Body::Taken { .. } => TAKEN,
        });
        out.put_u64(self.id);
        match self.mobile {
            IpAddr::V4(address) => {
                out.put_u8(4);
                out.put_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                out.put_u8(6);
                out.put_slice(&address.octets());
            }
        }
        match &self.body {
            Body::Ask | Body::None => {}
            Body::Elsewhere { newest } => out.put_u64(*newest),
            Body::Give { index, count, record } => {
                out.put_u16(*index);
                out.put_u16(*count);
                out.put_slice(record);
            }
            Body::Taken { index } => out.put_u16(*index),
        }
        out.put_u32(crc32(&out));
        out.freeze()
    }

    /// Parses a message from exactly these bytes.
    ///
    /// # Errors
    /// See [`MessageError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        if !bytes.starts_with(&Self::MARK) {
            return Err(MessageError::Foreign);
        }
        let mut rest = checked(bytes).ok_or(MessageError::Checksum)?;
        rest.advance(Self::MARK.len().min(rest.len()));
        let version = rest.try_get_u8().map_err(|_| MessageError::Length)?;
        if version != Self::VERSION {
            return Err(MessageError::Version { version });
        }
        Self::parse_body(&mut rest)?.filter(|_| rest.is_empty()).ok_or(MessageError::Length)
    }

    /// The rest after the version; `None` if it is truncated.
    fn parse_body(rest: &mut &[u8]) -> Result<Option<Self>, MessageError> {
        let Ok(kind) = rest.try_get_u8() else { return Ok(None) };
        let (Ok(id), Ok(family)) = (rest.try_get_u64(), rest.try_get_u8()) else { return Ok(None) };
        let mobile = match family {
            4 => rest.try_get_u32().map(|bits| IpAddr::from(bits.to_be_bytes())),
            6 => rest.try_get_u128().map(|bits| IpAddr::from(bits.to_be_bytes())),
            _ => return Err(MessageError::Field { field: "address family" }),
        };
        let Ok(mobile) = mobile else { return Ok(None) };
        let body = match kind {
            ASK => Body::Ask,
            NONE => Body::None,
            ELSEWHERE => match rest.try_get_u64() {
                Ok(newest) => Body::Elsewhere { newest },
                Err(_) => return Ok(None),
            },
            GIVE => {
                let (Ok(index), Ok(count)) = (rest.try_get_u16(), rest.try_get_u16()) else { return Ok(None) };
                if index >= count {
                    return Err(MessageError::Field { field: "number of records" });
                }
                let record = Bytes::copy_from_slice(rest);
                rest.advance(rest.len());
                if record.len() > Self::MAX_RECORD_BYTES {
                    return Err(MessageError::Length);
                }
                Body::Give { index, count, record }
            }
            TAKEN => match rest.try_get_u16() {
                Ok(index) => Body::Taken { index },
                Err(_) => return Ok(None),
            },
            kind => return Err(MessageError::Kind { kind }),
        };
        Ok(Some(Self { id, mobile, body }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message() -> impl Strategy<Value = Message> {
        let body = prop_oneof![
            Just(Body::Ask),
            Just(Body::None),
            any::<u64>().prop_map(|newest| Body::Elsewhere { newest }),
            any::<u16>().prop_map(|index| Body::Taken { index }),
            (any::<u16>(), 1_u16.., prop::collection::vec(any::<u8>(), 0..2_000))
                .prop_map(|(index, count, record)| Body::Give { index: index % count, count, record: record.into() }),
        ];
        (any::<u64>(), any::<IpAddr>(), body).prop_map(|(id, mobile, body)| Message { id, mobile, body })
    }

    proptest! {
        #[test]
        fn a_message_comes_out_as_it_went_in(message in message()) {
            let bytes = message.emit();
            prop_assert_eq!(Message::parse(&bytes), Ok(message));
        }

        #[test]
        fn a_damaged_message_is_not_taken(
            message in message(), at in any::<prop::sample::Index>(), change in 1_u8.., cut in any::<prop::sample::Index>(),
        ) {
            let bytes = message.emit();
            let mut damaged = bytes.to_vec();
            *at.get_mut(&mut damaged) ^= change;
            prop_assert!(Message::parse(&damaged).is_err());
            prop_assert!(Message::parse(&bytes[..cut.index(bytes.len())]).is_err());
        }

        /// Half of the cases have the mark and a valid checksum.
        #[test]
        fn random_bytes_are_refused_or_are_a_message(bytes in prop::collection::vec(any::<u8>(), 0..300), is_sealed in any::<bool>()) {
            let mut bytes = bytes;
            if is_sealed && bytes.len() >= 13 {
                bytes[..3].copy_from_slice(b"HO\x01");
                (bytes[3], bytes[12]) = (bytes[3] % 6, bytes[12] % 3 + 4);
                bytes.extend(crc32(&bytes).to_be_bytes());
            }
            if let Ok(message) = Message::parse(&bytes) {
                prop_assert_eq!(&message.emit()[..], &bytes[..]);
            }
        }
    }

    #[test]
    fn parse_errors_are_named() {
        let whole = Message { id: 1, mobile: [10, 0, 0, 1].into(), body: Body::Ask }.emit();
        let error = |at: usize, value: u8| {
            let mut bytes = whole[..whole.len() - 4].to_vec();
            bytes[at] = value;
            bytes.extend(crc32(&bytes).to_be_bytes());
            Message::parse(&bytes).expect_err("it cannot be")
        };
        assert_eq!(error(0, 0), MessageError::Foreign);
        assert_eq!(error(2, 7), MessageError::Version { version: 7 });
        assert_eq!(error(3, 9), MessageError::Kind { kind: 9 });
        assert_eq!(error(3, TAKEN), MessageError::Length);
        assert_eq!(error(12, 5), MessageError::Field { field: "address family" });
        assert_eq!(error(12, 6), MessageError::Length);
        assert_eq!(Message::parse(&whole[..whole.len() - 1]), Err(MessageError::Checksum));
        assert_eq!(Message::parse(b""), Err(MessageError::Foreign));
    }
}
