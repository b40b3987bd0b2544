//! Silent outages of downloads, over a link without a next hop: the peer is probed.

use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration as StdDuration;

use holdover_agent::engine::EngineOptions;
use holdover_base::Duration;
use holdover_host::clock;
use holdover_testbed::{Congestion, ImpairmentConfig, KernelStream, Lateness, Namespace, SocketOptions};

use super::process::EngineThread;
use crate::wire::{FAR, FAR_V6, INTERFACE, LIMIT, Wire};

const ONE_WAY: Duration = Duration::from_millis(100);
/// The release takes half a round trip, and so do the data. After an empty probe it would take two round trips in all.
const RESUMES_WITHIN: Duration = Duration::from_millis(340);
/// The sender retransmits after 0.4, 1.2, 2.8 and 6 s.
const OUTAGE: StdDuration = StdDuration::from_millis(3500);

/// The release of what is held is the probe, so that the first one that gets through wakes the sender.
pub(crate) fn a_silent_download_resumes_a_round_trip_after_a_probe(near: &Namespace) {
    let wire = Wire::impaired(near, &ImpairmentConfig { delay: ONE_WAY, ..ImpairmentConfig::default() });
    let engine = EngineThread::attach(near, INTERFACE, EngineOptions::default());
    for (port, to) in [(5001, FAR), (5002, FAR_V6)] {
        let to = (to.parse::<IpAddr>().unwrap(), port).into();
        let took = Lateness::repeat_until_below(RESUMES_WITHIN, || {
            let (ours, theirs) = wire.connect_with(near, to, &SocketOptions::new(Congestion::Cubic));
            let watched = ours.try_clone().unwrap();
            let (sending, receiving) = (Sending::begin(theirs), Receiving::begin(ours));
            // ACKs are held back after 150 kB, with 32 segments in flight.
            sleep(StdDuration::from_secs(2));
            wire.cut(true);
            let cut_at = clock::now();
            sleep(OUTAGE);
            let connection = engine.with(move |engine| {
                engine.handle_silence(clock::now(), cut_at);
                engine.survey().recent.expect("the download is known")
            });
            // Those that are lost do no harm.
            (0..5).for_each(|_| engine.with(move |engine| engine.ask_peer(clock::now(), connection)));
            // A release is not repeated sooner than after half a round trip.
            sleep((ONE_WAY + Duration::from_millis(20)).into());
            let segments = || watched.tcp_info().unwrap().tcpi_data_segs_in;
            let before = segments();
            wire.cut(false);
            let back_at = clock::now();
            engine.with(move |engine| engine.ask_peer(clock::now(), connection));
            // They may be new data beyond a hole (F-RTO, RFC 5682 section 2.1, step 2b), which the application gets a round trip later.
            while segments() == before {
                sleep(StdDuration::from_millis(1));
                assert!(clock::now() < back_at + LIMIT, "nothing arrives");
            }
            let after = clock::now().saturating_since(back_at);
            sleep(StdDuration::from_secs(1));
            let sent = sending.end();
            assert_eq!(receiving.end(), sent);
            after
        });
        eprintln!("from {to}: resumed {took:?} after the link was back");
        assert!(took.last().is_some_and(|&after| after < RESUMES_WITHIN), "from {to}: {took:?}");
    }
}

/// A sender of 1 MB/s, whose bytes say where they are in the stream. Its thread returns how many it has sent.
struct Sending {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Sending {
    fn begin(mut stream: KernelStream) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                let mut sent = 0;
                while !is_over.load(Ordering::SeqCst) {
                    let piece: Vec<u8> = (sent..sent + 10_000).map(byte_at).collect();
                    stream.write_all(&piece).unwrap();
                    sent += 10_000;
                    sleep(StdDuration::from_millis(10));
                }
                stream.shutdown_write().unwrap();
                sent
            }
        });
        Self { is_over, thread }
    }

    fn end(self) -> u64 {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

/// A receiver. Its thread returns how many bytes have come.
struct Receiving(JoinHandle<u64>);

impl Receiving {
    fn begin(mut stream: KernelStream) -> Self {
        Self(std::thread::spawn(move || {
            let (mut received, mut piece) = (0, [0; 65_536]);
            loop {
                let len = stream.read(&mut piece).unwrap();
                if len == 0 {
                    return received;
                }
                for &byte in &piece[..len] {
                    assert_eq!(byte, byte_at(received), "at {received}");
                    received += 1;
                }
            }
        }))
    }

    fn end(self) -> u64 {
        self.0.join().unwrap()
    }
}

const fn byte_at(position: u64) -> u8 {
    (position % 251) as u8
}
