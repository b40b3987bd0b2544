//! Recognises the end of readdressing in the packets that reach hosts.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use holdover_testbed::access::{Arrival, Observer};

/// HIP's protocol number, and its port in UDP (RFC 9028), where four zero bytes stand before it.
const HIP: u8 = 139;
const UDP: u8 = 17;
const PORT: u16 = 10_500;
/// UPDATE, and ECHO_RESPONSE_SIGNED (RFC 7401 sections 5.2.20 and 5.3.5).
const UPDATE: u8 = 16;
const ECHO_RESPONSE: u16 = 961;
const HEADER: usize = 40;

/// An answer.
#[derive(Clone, Copy, Debug)]
struct Verification {
    at: Instant,
    link: usize,
    from: IpAddr,
}

/// Answers to echo requests that have reached the host that had asked: it has verified the other's address, from which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Verifications(Arc<Mutex<Vec<Verification>>>);

impl Verifications {
    /// Adds to these what it sees.
    pub(super) fn observer(&self) -> Observer {
        let verifications = self.clone();
        Box::new(move |Arrival { at, link, packet }| {
            if let Some(from) = verified(&packet) {
                verifications.0.lock().unwrap_or_else(PoisonError::into_inner).push(Verification { at, link, from });
            }
        })
    }

    /// When an address was first verified after `start` by the host of these links.
    pub(super) fn of(&self, address: IpAddr, links: &Range<usize>, start: Instant) -> Option<Instant> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |it: &&Verification| it.at >= start && it.from == address && links.contains(&it.link);
        all.iter().find(is_it).map(|it| it.at)
    }
}

/// The source of a packet that answers an echo request.
fn verified(packet: &[u8]) -> Option<IpAddr> {
    let (from, protocol, content) = match packet.first()? >> 4 {
        4 => {
            let from = IpAddr::from(<[u8; 4]>::try_from(packet.get(12..16)?).ok()?);
            (from, packet[9], packet.get(usize::from(packet[0] & 15) * 4..)?)
        }
        _ => (IpAddr::from(<[u8; 16]>::try_from(packet.get(8..24)?).ok()?), *packet.get(6)?, packet.get(40..)?),
    };
    let hip = match protocol {
        HIP => content,
        UDP if content.get(..2)? == PORT.to_be_bytes() && content.get(8..12)? == [0; 4] => content.get(12..)?,
        _ => return None,
    };
    if *hip.get(2)? & 0x7f != UPDATE {
        return None;
    }
    let mut rest = hip.get(HEADER..)?;
    while let Some((header, _)) = rest.split_at_checked(4) {
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        if number(0) == ECHO_RESPONSE {
            return Some(from);
        }
        // RFC 7401 section 5.2.1: padded to a multiple of eight bytes.
        rest = rest.get((4 + usize::from(number(2))).next_multiple_of(8)..).unwrap_or_default();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(parameters: &[(u16, usize)]) -> Vec<u8> {
        let ip = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, HIP, 0, 0, 10, 2, 0, 2, 10, 9, 0, 2];
        let mut packet = [&ip[..], &[59, 0, UPDATE], &[0; HEADER - 3]].concat();
        for &(kind, len) in parameters {
            packet.extend(kind.to_be_bytes());
            packet.extend((len as u16).to_be_bytes());
            packet.extend(vec![7; (4 + len).next_multiple_of(8) - 4]);
        }
        packet
    }

    #[test]
    fn an_answer_is_recognised_behind_other_parameters() {
        assert_eq!(verified(&update(&[(449, 4), (ECHO_RESPONSE, 16)])), Some("10.2.0.2".parse().unwrap()));
        assert_eq!(verified(&update(&[(385, 4), (897, 16), (61_505, 20)])), None, "a request");
        assert_eq!(verified(&update(&[(449, 4)])[..60]), None);
        assert_eq!(verified(&[]), None);
    }
}
