//! Parameters to bytes.

use bytes::BufMut;

use super::{BuildError, HostId, Parameter, kind};

/// Appends a HOST_ID as it was received, also with a name that this host may not send.
pub(super) fn put_received(host_id: &HostId, out: &mut Vec<u8>) -> Result<(), BuildError> {
    let start = begin(out, kind::HOST_ID);
    host_id.put(out);
    end(out, start)
}

/// Begins a TLV; returns its position.
fn begin(out: &mut Vec<u8>, kind: u16) -> usize {
    let start = out.len();
    out.put_u16(kind);
    out.put_u16(0);
    start
}

/// Sets the length of a TLV, and pads it.
fn end(out: &mut Vec<u8>, start: usize) -> Result<(), BuildError> {
    let len = out.len() - start - 4;
    let field = u16::try_from(len).map_err(|_| BuildError::TooLong { len })?;
    out[start + 2..start + 4].copy_from_slice(&field.to_be_bytes());
    out.resize(start + (4 + len).next_multiple_of(8), 0);
    Ok(())
}

impl Parameter {
    /// Appends the parameter as TLV, padded to a multiple of 8 bytes (RFC 7401 section 5.2.1).
    ///
    /// # Errors
    ///
    /// [`BuildError::Field`] if a value exceeds its field, [`BuildError::TooLong`] for contents over 65,535 bytes.
    pub fn put(&self, out: &mut Vec<u8>) -> Result<(), BuildError> {
        let start = begin(out, self.kind());
        self.put_contents(out)?;
        end(out, start)
    }

    fn put_contents(&self, out: &mut Vec<u8>) -> Result<(), BuildError> {
        let field = BuildError::Field { kind: self.kind() };
        match self {
            Self::EspInfo(info) => {
                out.put_u16(0);
                out.put_u16(info.keymat_index);
                out.put_u32(info.old_spi);
                out.put_u32(info.new_spi);
            }
            Self::R1Counter(counter) => {
                out.put_slice(&counter.reserved);
                out.put_u64(counter.counter);
            }
            Self::LocatorSet(locators) => {
                for locator in locators {
                    locator.is_writable().then(|| locator.put(out)).ok_or(field)?;
                }
            }
            Self::Puzzle(puzzle) => {
                out.put_slice(&[puzzle.difficulty, puzzle.lifetime, puzzle.opaque[0], puzzle.opaque[1]]);
                out.put_slice(&puzzle.random);
            }
            Self::Solution(solution) => {
                if solution.random.len() != solution.solution.len() {
                    return Err(field);
                }
                out.put_slice(&[solution.difficulty, 0, solution.opaque[0], solution.opaque[1]]);
                out.put_slice(&solution.random);
                out.put_slice(&solution.solution);
            }
            Self::DiffieHellman { group, public } => {
                out.put_u8(*group);
                out.put_u16(u16::try_from(public.len()).map_err(|_| field)?);
                out.put_slice(public);
            }
            Self::HostId(id) => id.is_writable().then(|| id.put(out)).ok_or(field)?,
            Self::Notification(notification) => {
                out.put_u16(0);
                out.put_u16(notification.kind.0);
                out.put_slice(&notification.data);
            }
            Self::Encrypted(data) => {
                out.put_u32(0);
                out.put_slice(data);
            }
            _ => self.put_simple(out),
        }
        Ok(())
    }

    /// Lists, addresses, services and opaque bytes.
    fn put_simple(&self, out: &mut Vec<u8>) {
        match self {
            Self::Seq(value) | Self::TransactionPacing(value) | Self::CandidatePriority(value) => out.put_u32(*value),
            Self::Nominate => out.put_u32(0),
            Self::Ack(ids) => ids.iter().for_each(|id| out.put_u32(*id)),
            Self::DhGroupList(ids) | Self::HitSuiteList(ids) => out.put_slice(ids),
            Self::HipCipher(ids) | Self::TransportFormatList(ids) => ids.iter().for_each(|id| out.put_u16(*id)),
            Self::EspTransform(ids) | Self::NatTraversalMode(ids) => {
                out.put_u16(0);
                ids.iter().for_each(|id| out.put_u16(*id));
            }
            Self::RegInfo(info) => {
                out.put_slice(&[info.min_lifetime, info.max_lifetime]);
                out.put_slice(&info.types);
            }
            Self::RegRequest(list) | Self::RegResponse(list) => {
                out.put_u8(list.lifetime);
                out.put_slice(&list.types);
            }
            Self::RegFailed(failed) => {
                out.put_u8(failed.failure);
                out.put_slice(&failed.types);
            }
            Self::RegFrom(at)
            | Self::RelayedAddress(at)
            | Self::MappedAddress(at)
            | Self::RelayFrom(at)
            | Self::RelayTo(at) => {
                out.put_u16(at.port);
                out.put_slice(&[at.protocol, 0]);
                out.put_slice(&at.address.octets());
            }
            Self::PeerPermission(permission) => {
                out.put_u16(permission.relayed_port);
                out.put_u16(permission.peer_port);
                out.put_slice(&[permission.protocol, 0, 0, 0]);
                out.put_slice(&permission.relayed.octets());
                out.put_slice(&permission.peer.octets());
                out.put_u32(permission.outbound_spi);
                out.put_u32(permission.inbound_spi);
            }
            Self::From(address) => out.put_slice(&address.octets()),
            Self::ViaRvs(addresses) => addresses.iter().for_each(|address| out.put_slice(&address.octets())),
            Self::HipSignature2(signature) | Self::HipSignature(signature) => {
                out.put_u16(signature.algorithm);
                out.put_slice(&signature.signature);
            }
            Self::Invitation(data)
            | Self::HipMac(data)
            | Self::HipMac2(data)
            | Self::Certificate(data)
            | Self::EchoRequestSigned(data)
            | Self::EchoResponseSigned(data)
            | Self::EchoRequestUnsigned(data)
            | Self::EchoResponseUnsigned(data)
            | Self::RvsHmac(data)
            | Self::RelayHmac(data)
            | Self::Unknown { contents: data, .. } => out.put_slice(data),
            // Written by the caller.
            Self::EspInfo(_)
            | Self::R1Counter(_)
            | Self::LocatorSet(_)
            | Self::Puzzle(_)
            | Self::Solution(_)
            | Self::DiffieHellman { .. }
            | Self::HostId(_)
            | Self::Notification(_)
            | Self::Encrypted(_) => {}
        }
    }
}
