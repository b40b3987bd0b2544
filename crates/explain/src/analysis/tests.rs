use bytes::BytesMut;
use holdover_wire::{Packet, Segment, Seq};

use super::*;
use crate::evidence::{Silence, Wait};

fn packet(src: u8, segment: Segment) -> Vec<u8> {
    let ip = |last: u8| core::net::IpAddr::from([10, 0, 0, last]);
    let mut bytes = BytesMut::new();
    Packet::new(ip(src), ip(3 - src), segment).emit_prefix_into(&mut bytes, usize::MAX).unwrap();
    bytes.to_vec()
}

#[test]
fn a_new_syn_after_the_end_begins_another_connection() {
    let mut analysis = Analysis::new();
    for (millis, flags) in [(0, Flags::SYN), (10, Flags::ACK), (20, Flags::RST), (30, Flags::SYN), (40, Flags::ACK)] {
        let payload = if flags == Flags::ACK { vec![1; 10].into() } else { bytes::Bytes::new() };
        let segment = Segment { src_port: 5, dst_port: 6, seq: Seq::new(9), flags, payload, ..Segment::default() };
        let bytes = packet(1, segment);
        analysis.take(Instant::from_millis(millis), &bytes, bytes.len());
    }
    let found = analysis.finish();
    assert_eq!(found.iter().map(|one| one.begin.as_millis()).collect::<Vec<_>>(), [0, 30]);
}

/// Neither a scan of many ports nor a connection that sends every 25 ms for a day grows without bound.
// Claim: Memory is bounded in packets, connections and time, and over all connections; a block with an impossible length counts
// as damage.
// Tests: `tests::evidence_is_bounded_over_all_connections`, `evidence::tests::equally_long_silences_are_not_all_dropped`,
// `tests::a_block_that_claims_to_be_huge_does_not_fill_the_memory`
#[test]
fn memory_is_bounded_in_connections_and_in_time() {
    let mut analysis = Analysis::new();
    for port in 0..200_000_u32 {
        let segment =
            Segment { src_port: port as u16, dst_port: (port >> 16) as u16, flags: Flags::SYN, ..Segment::default() };
        let bytes = packet(1, segment);
        analysis.take(Instant::from_nanos(u64::from(port)), &bytes, bytes.len());
    }
    assert!(analysis.connections.len() <= Analysis::MOST_CONNECTIONS);
    assert_eq!((analysis.open.len(), analysis.counts.left_out), (analysis.connections.len(), 0));

    let mut analysis = Analysis::new();
    for n in 0..1_000_000_u32 {
        let data = Segment { src_port: 1, dst_port: 2, seq: Seq::new(n * 10), flags: Flags::ACK, ..Segment::default() };
        let bytes = packet(1, Segment { payload: vec![0; 10].into(), ..data });
        analysis.take(Instant::from_millis(86 * u64::from(n)), &bytes, bytes.len());
    }
    let kept = analysis.connections[0].streams[0].evidence.len();
    assert!(kept < 40_000, "{kept}");
    analysis.bound_evidence(1_000_000);
    let kept = analysis.connections[0].streams[0].evidence.len();
    assert!(kept < 20_000, "{kept}");
    assert_eq!(analysis.finish()[0].bytes, 10_000_000);
}

/// Many connections with short lists each are too much together.
#[test]
fn evidence_is_bounded_over_all_connections() {
    const CONNECTIONS: u16 = 2000;
    let mut analysis = Analysis::new();
    for port in 0..CONNECTIONS {
        let bytes = packet(1, Segment { src_port: port, dst_port: 1, flags: Flags::SYN, ..Segment::default() });
        analysis.take(Instant::ZERO, &bytes, bytes.len());
    }
    let long = Duration::from_secs(3600);
    for stream in analysis.connections.iter_mut().flat_map(|connection| &mut connection.streams) {
        let mut at = Instant::ZERO;
        for number in 0..60_u64 {
            // One of them is long.
            let to = at + if number == 30 { long } else { Duration::from_millis(20 + number) };
            let waits = vec![(at, Wait::Nothing); Silence::MAX_WAITS];
            let silence = Silence { waits, ..Silence::between(at, to) };
            assert!(stream.evidence.silence(silence));
            stream.evidence.bin(to.saturating_since(Instant::ZERO)).acked += 1;
            at = to + Duration::from_millis(1);
        }
    }
    // 1000 bytes for each direction of each connection; the lists have 27,000.
    let most = usize::from(CONNECTIONS) * 2 * 1000;
    assert!(analysis.evidence_memory() > 20 * most, "{}", analysis.evidence_memory());
    analysis.bound_evidence(most);
    assert!(analysis.evidence_memory() <= most, "{} of {most}", analysis.evidence_memory());
    for stream in analysis.connections.iter().flat_map(|connection| &connection.streams) {
        let evidence = &stream.evidence;
        assert!(evidence.silences.iter().any(|silence| silence.len() == long), "the longest is kept");
        assert_eq!(evidence.bins.iter().map(|bin| bin.acked).sum::<u64>(), 60, "merged, not dropped");
    }
    // Attempts to unreachable hosts end, too.
    analysis.bound_evidence(0);
    assert!(analysis.evidence_memory() < most);
}
