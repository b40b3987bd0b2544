//! The cost of one frame on a link.
//!
//! `cargo bench -p holdover-link`

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use holdover_base::{BitRate, Duration, Instant};
use holdover_link::{
    Frame, InFlightFate, Link, LinkConfig, Loss, OutagePolicy, Outages, PointToPoint, QueueLimit, Rate,
};
use std::hint::black_box;

/// As large as a packet value of the simulator.
#[derive(Clone)]
struct Packet([u64; 28]);

impl Frame for Packet {
    fn wire_len(&self) -> u32 {
        self.0[0] as u32
    }
}

const FRAMES: u64 = 10_000;

/// Keeps the queue of a 10 Mb/s link nearly full, as a bulk transfer does: each delivery admits the next frame. The loop is that of a
/// discrete-event simulator with this link only.
fn bulk(link: &mut PointToPoint<Packet>, window: u64) -> Instant {
    let mut now = Instant::ZERO;
    let mut sent = 0;
    let mut send = |link: &mut PointToPoint<Packet>, now| {
        sent += 1;
        let mut packet = Packet([0; 28]);
        packet.0[0] = 1500;
        link.handle_packet(now, packet);
        sent
    };
    for _ in 0..window {
        send(link, now);
    }
    loop {
        let Some((at, _)) = link.poll_timeout() else { return now };
        now = at;
        link.handle_timeout(now);
        while let Some(delivery) = link.poll_deliver(now) {
            black_box(&delivery.frame);
            if send(link, now) >= FRAMES {
                return now;
            }
        }
        while let Some(event) = link.poll_event() {
            black_box(&event);
            if send(link, now) >= FRAMES {
                return now;
            }
        }
    }
}

fn traverse(c: &mut Criterion) {
    let plain = LinkConfig {
        rate: Rate::Fixed(BitRate::from_mbps(10)),
        delay: Duration::from_millis(25),
        queue_limit: QueueLimit::Packets(75),
        ..LinkConfig::default()
    };
    let lossy = LinkConfig { loss: Loss::Independent(0.01), ..plain.clone() };
    let outages = LinkConfig {
        outages: Outages::periodic(Duration::from_secs(5), Duration::from_secs(1)),
        outage_policy: OutagePolicy { in_flight: InFlightFate::Dropped, ..OutagePolicy::default() },
        ..plain.clone()
    };
    let mut group = c.benchmark_group("traverse");
    group.throughput(Throughput::Elements(FRAMES));
    for (name, config) in [("plain", plain), ("loss-1%", lossy), ("outages", outages)] {
        group.bench_with_input(BenchmarkId::from_parameter(name), &config, |b, config| {
            b.iter(|| {
                let mut link = PointToPoint::new(config, 1).unwrap_or_else(|error| panic!("{error}"));
                bulk(&mut link, 90)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, traverse);
criterion_main!(benches);
