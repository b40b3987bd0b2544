//! The cost of parsing and emitting a packet of a full Ethernet MTU: `cargo bench -p holdover-wire`.
//!
//! `checksum` is the share of both that only touches the bytes, for comparison; `snapped` is the cost of a capture with
//! a snap length of 96 bytes.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use holdover_wire::{Checksums, Flags, Packet, ParseError, Payload, Segment, Seq, TcpOptions, Timestamps};

fn codec(criterion: &mut Criterion) {
    let packet = full_packet();
    let bytes = packet.emit().unwrap();
    assert_eq!(bytes.len(), 1500);

    let mut group = criterion.benchmark_group("tcp-1500");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("parse", |b| b.iter(|| Packet::parse(black_box(bytes.clone()))));
    group.bench_function("parse without checksums", |b| {
        b.iter(|| Packet::parse_with(black_box(bytes.clone()), Checksums::Ignore));
    });
    let mut buf = BytesMut::with_capacity(2048);
    group.bench_function("emit_into", |b| {
        b.iter(|| {
            buf.clear();
            black_box(&packet).emit_into(&mut buf)
        });
    });
    group.bench_function("snapped", |b| {
        b.iter(|| {
            buf.clear();
            black_box(&packet).emit_prefix_into(&mut buf, 96)
        });
    });
    group.bench_function("forward as it came", |b| {
        b.iter(|| Packet::parse_to_forward(black_box(bytes.clone()), Checksums::Verify).map(|packet| packet.emit()));
    });
    group.bench_function("forward with another window", |b| {
        b.iter(|| {
            let mut packet = Packet::parse_to_forward(black_box(bytes.clone()), Checksums::Verify)?;
            if let Payload::Tcp(segment) = &mut packet.payload {
                segment.window = 7;
            }
            Ok::<_, ParseError>(packet.emit())
        });
    });
    group.bench_function("checksum", |b| {
        b.iter(|| etherparse::checksum::Sum16BitWords::new().add_slice(black_box(&bytes)).ones_complement());
    });
    group.finish();
}

fn full_packet() -> Packet {
    let segment = Segment {
        src_port: 40_000,
        dst_port: 80,
        seq: Seq::new(1),
        ack: Seq::new(1),
        flags: Flags::ACK,
        window: 512,
        options: TcpOptions { timestamps: Some(Timestamps { val: 1, ecr: 2 }), ..TcpOptions::default() },
        payload: Bytes::from_static(&[0x5a; 1448]),
        ..Segment::default()
    };
    Packet::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), segment)
}

criterion_group!(benches, codec);
criterion_main!(benches);
