//! ICMP errors of routers: which packets get one, and how many.

use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_wire::{IcmpError, Packet, Payload, Unreachable};

use crate::frame::Frame;
use crate::ids::NodeId;

/// The mean interval between errors for the same node (Linux `icmp_ratelimit`).
const INTERVAL: Duration = Duration::from_secs(1);
/// The burst of errors (Linux `XRLIM_BURST_FACTOR`).
const BURST: u64 = 6;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Token buckets of routers for their errors.
#[derive(Clone, Default, Debug)]
pub(crate) struct IcmpErrors {
    /// For each router and each node that it sends errors to (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 (f)).
    allowances: BTreeMap<(NodeId, NodeId), Allowance>,
}

/// A token bucket, counted in time.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    saved: Duration,
    at: Instant,
}

impl IcmpErrors {
    /// The error that `router` sends about a packet that it cannot forward, if any.
    pub(crate) fn about(&mut self, now: Instant, router: NodeId, kind: Unreachable, frame: &Frame) -> Option<Packet> {
        if !deserves_an_error(frame) {
            return None;
        }
        let sender = NodeId::of(frame.packet.src)?;
        let full = INTERVAL * BURST;
        let allowance = self.allowances.entry((router, sender)).or_insert(Allowance { saved: full, at: now });
        if !allowance.take(now, full) {
            return None;
        }
        let error = IcmpError::quoting_packet(kind, &frame.packet).ok()?;
        let own = router.address(frame.packet.src.is_ipv6());
        Some(Packet::new(own, frame.packet.src, error))
    }
}

impl Allowance {
    fn take(&mut self, now: Instant, full: Duration) -> bool {
        self.saved = (self.saved + now.saturating_since(self.at)).min(full);
        self.at = now;
        let allowed = self.saved >= INTERVAL;
        if allowed {
            self.saved -= INTERVAL;
        }
        allowed
    }
}

/// Routers send no errors about ICMP errors, multicast or fragments (RFC 1812 section 4.3.2.7 permits them about the first fragment; it is
/// treated like the others), and none about packets in tunnels or between identities.
fn deserves_an_error(frame: &Frame) -> bool {
    let packet = &frame.packet;
    let is_quotable = match &packet.payload {
        Payload::Tcp(_) | Payload::Udp(_) | Payload::IcmpEcho(_) => true,
        Payload::IcmpError(_) | Payload::Esp(_) | Payload::Encrypted(_) | Payload::Fragment(_) => false,
        Payload::Other { protocol, .. } => ![ICMP, ICMPV6].contains(protocol),
    };
    is_quotable && !frame.raw && frame.tunnel.is_none() && !packet.dst.is_multicast()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use holdover_wire::{Encrypted, EncryptionKey, Inner, Udp};

    use super::*;

    struct Secret;

    const HOST: NodeId = NodeId(0);
    const ROUTER: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);

    fn frame(from: NodeId, ipv6: bool) -> Frame {
        let udp = Udp { src_port: 1, dst_port: 2, payload: Bytes::from_static(b"data") };
        Frame::new(Packet::new(from.address(ipv6), OTHER.address(ipv6), udp), None)
    }

    fn sent(errors: &mut IcmpErrors, millis: u64, from: NodeId) -> bool {
        errors.about(Instant::from_millis(millis), ROUTER, Unreachable::Network, &frame(from, false)).is_some()
    }

    #[test]
    fn an_error_goes_to_the_sender_and_quotes_its_packet() {
        for ipv6 in [false, true] {
            let frame = frame(HOST, ipv6);
            let error = IcmpErrors::default().about(Instant::ZERO, ROUTER, Unreachable::Host, &frame).unwrap();
            assert_eq!((error.src, error.dst), (ROUTER.address(ipv6), HOST.address(ipv6)));
            let Payload::IcmpError(error) = &error.payload else { panic!("not an error: {error}") };
            assert_eq!(error.kind, Unreachable::Host);
            assert_eq!(Packet::parse(error.quote.clone()).unwrap(), frame.packet);
        }
    }

    #[test]
    fn six_errors_at_once_then_one_a_second_for_each_sender() {
        let mut errors = IcmpErrors::default();
        assert_eq!((0..20).filter(|_| sent(&mut errors, 5_000, HOST)).count(), 6);
        assert!(sent(&mut errors, 5_000, OTHER), "another sender has its own allowance");
        assert!(!sent(&mut errors, 5_999, HOST));
        assert!(sent(&mut errors, 6_000, HOST));
        assert!(!sent(&mut errors, 6_900, HOST));
        assert_eq!((0..20).filter(|_| sent(&mut errors, 100_000, HOST)).count(), 6, "no more is saved up");
    }

    #[test]
    fn no_errors_about_errors_multicast_tunnels_and_encrypted_packets() {
        let about =
            |frame: &Frame| IcmpErrors::default().about(Instant::ZERO, ROUTER, Unreachable::Network, frame).is_some();
        let good = frame(HOST, false);
        assert!(about(&good));
        let error = IcmpError::quoting_packet(Unreachable::Host, &good.packet).unwrap();
        let of = |packet: Packet| Frame::new(packet, None);
        assert!(!about(&of(Packet::new(HOST.address(false), OTHER.address(false), error))));
        assert!(!about(&of(Packet { dst: [224, 0, 0, 1].into(), ..good.packet.clone() })));
        assert!(!about(&of(Packet { src: [192, 0, 2, 1].into(), ..good.packet.clone() })), "of no node");
        assert!(!about(&of(Packet { payload: Payload::Esp(Bytes::from_static(b"x")), ..good.packet.clone() })));
        let (mut tunnelled, mut encrypted) = (good.clone(), good);
        tunnelled.enter_tunnel(OTHER, 20);
        let Packet { src, dst, payload, .. } = encrypted.packet.clone();
        let content = Encrypted::new(
            1,
            1,
            Inner { src, dst, payload },
            Bytes::from_static(&[0; 32]),
            EncryptionKey::of::<Secret>(),
        );
        encrypted.packet.payload = Payload::Encrypted(content);
        assert!(!about(&tunnelled));
        assert!(!about(&encrypted));
    }
}
