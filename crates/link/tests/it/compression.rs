//! Links with compression.

use crate::common::{ms, span_ms};
use bytes::Bytes;
use holdover_base::{BitRate, ByteCount, Instant};
use holdover_link::{BitErrors, Compression, Link, LinkConfig, PointToPoint, PointToPointEvent, QueueLimit, Rate};
use holdover_wire::{Packet, Payload, Segment, Udp};

/// 1 byte takes 8 us.
fn config(compression: Option<Compression>) -> LinkConfig {
    LinkConfig { rate: Rate::Fixed(BitRate::from_mbps(1)), compression, ..LinkConfig::default() }
}

fn halved() -> Option<Compression> {
    Some(Compression { tcp: 0.5, ..Compression::default() })
}

fn packet(payload: impl Into<Payload>) -> Packet {
    Packet::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), payload)
}

/// 40 bytes of headers and as much data.
fn segment(len: usize) -> Packet {
    packet(Segment { payload: vec![0; len].into(), ..Segment::default() })
}

/// Arrival times of packets that enter at once.
fn arrivals(config: &LinkConfig, packets: &[Packet]) -> Vec<u64> {
    let mut link = PointToPoint::new(config, 1).unwrap();
    packets.iter().for_each(|packet| link.handle_packet(Instant::ZERO, packet.clone()));
    let end = ms(1_000);
    core::iter::from_fn(|| link.poll_deliver(end))
        .zip(packets)
        .map(|(delivery, sent)| {
            assert_eq!(delivery.frame, *sent, "arrivals are decompressed");
            delivery.at.as_nanos() / 1_000
        })
        .collect()
}

// Claim: A link with compression sends the compressed size of each packet: times, queue limits in bytes and bit errors follow;
// packets arrive whole.
// Tests: `a_limit_in_bytes_counts_compressed_bytes_and_statistics_do_not`, `bit_errors_meet_compressed_bits`
#[test]
fn packets_take_the_time_of_their_compressed_length() {
    let udp = packet(Udp { payload: vec![0; 72].into(), ..Udp::default() });
    let esp = packet(Payload::Esp(Bytes::from_static(&[0; 80])));
    let packets = [segment(1000), segment(0), udp, esp];
    assert_eq!(arrivals(&config(None), &packets), [8_320, 8_640, 9_440, 10_240]);
    assert_eq!(arrivals(&config(halved()), &packets), [4_320, 4_640, 5_440, 6_240]);
    let headers = Compression { tcp: 0.5, udp: 0.25, header_bytes: 4, ..Compression::default() };
    assert_eq!(arrivals(&config(Some(headers)), &packets), [4_352, 4_672, 5_072, 5_872]);
}

#[test]
fn a_limit_in_bytes_counts_compressed_bytes_and_statistics_do_not() {
    let dropped = |compression| {
        let limit = QueueLimit::Bytes(ByteCount(2_000));
        let mut link = PointToPoint::new(&LinkConfig { queue_limit: limit, ..config(compression) }, 1).unwrap();
        (0..6).for_each(|_| link.handle_packet(Instant::ZERO, segment(1000)));
        while link.poll_deliver(ms(1_000)).is_some() {}
        let counted = link.statistics(ms(1_000));
        assert_eq!(counted.offered.bytes, 6 * 1040);
        assert_eq!(counted.delivered.bytes + counted.dropped.total().bytes, 6 * 1040);
        let drops = core::iter::from_fn(|| link.poll_event())
            .filter(|event| matches!(event, PointToPointEvent::Dropped { .. }));
        drops.count()
    };
    // One is being sent, and one or three wait.
    assert_eq!((dropped(None), dropped(halved())), (4, 2));
}

/// A bit error rate of 1e-3 leaves a packet of 8,320 bits whole with a probability of 0.0002, and one of 320 bits with 0.73.
#[test]
fn bit_errors_meet_compressed_bits() {
    let nothing_left = Compression { tcp: 0.0, ..Compression::default() };
    let whole = |compression| {
        let errors = BitErrors::Independent(1e-3);
        let mut link = PointToPoint::new(&LinkConfig { bit_errors: errors, ..config(compression) }, 7).unwrap();
        (0..100).for_each(|_| link.handle_packet(Instant::ZERO, segment(1000)));
        let end = Instant::ZERO + span_ms(10_000);
        core::iter::from_fn(|| link.poll_deliver(end)).filter(|delivery| !delivery.corrupted).count()
    };
    assert!(whole(None) <= 1);
    assert!((55..90).contains(&whole(Some(nothing_left))));
}

#[test]
fn shares_lie_between_0_and_1() {
    for compression in [
        Compression { tcp: 1.1, ..Compression::default() },
        Compression { udp: -0.1, ..Compression::default() },
        Compression { other: f64::NAN, ..Compression::default() },
    ] {
        assert!(PointToPoint::<Packet>::new(&config(Some(compression)), 1).is_err(), "{compression:?}");
    }
}
